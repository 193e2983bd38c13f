//! The roofline as a picture: one SVG file that needs nothing else.

use std::fmt::Write;

use brickscope_profile::text::{percent, printable, screened};
use brickscope_profile::{Ceilings, Profile};

use crate::roofline::Roofline;
use crate::view::roofline::{Axes, decade, letter, phases, points};
use crate::view::svg::{escaped, line, text};
use crate::words::short;

const WIDTH: usize = 900;
const HEIGHT: usize = 440;
/// The plot within a panel.
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const PLOT: [f64; 2] = [520.0, 340.0];

/// The roofline of each phase that has one, one below the other, as an SVG of its own. The same
/// profile gives the same bytes.
#[must_use]
pub fn roofline_svg(profile: &Profile) -> String {
    let rooflines = phases(profile).map(|phase| (phase, Roofline::of(profile, phase)));
    let rooflines: Vec<_> = rooflines.collect();
    let height = HEIGHT * rooflines.len().max(1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (i, (phase, roofline)) in rooflines.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", i * HEIGHT);
        let name = phase.heading();
        match roofline {
            Ok(roofline) => panel(name, roofline, profile, &mut svg),
            Err(absent) => text(&mut svg, LEFT, 24.0, "", &format!("{name}: {}", absent.reason)),
        }
        svg.push_str("</g>\n");
    }
    if rooflines.is_empty() {
        text(&mut svg, LEFT, 24.0, "", "No pass was recorded, so there is no roofline.");
    }
    svg.push_str("</svg>\n");
    screened(svg)
}

fn panel(name: &str, roofline: &Roofline, profile: &Profile, svg: &mut String) {
    let axes = Axes::of(roofline);
    let (peak, bandwidth) = (roofline.peak_flops_per_second, roofline.peak_bytes_per_second);
    let title = format!(
        "{name}: {} GB/s, {} GFLOP/s, ridge at {} FLOP/byte",
        short(bandwidth / 1e9),
        short(peak / 1e9),
        short(roofline.ridge)
    );
    text(svg, LEFT, 24.0, " font-size=\"15\" font-weight=\"bold\"", &title);
    let [right, bottom] = [LEFT + PLOT[0], TOP + PLOT[1]];
    for exponent in axes.x[0]..=axes.x[1] {
        let [x, _] = at(&axes, 10f64.powi(exponent), peak);
        line(svg, [x, TOP, x, bottom], "#ddd");
        text(svg, x, bottom + 16.0, " text-anchor=\"middle\"", &decade(exponent));
    }
    for exponent in axes.y[0]..=axes.y[1] {
        let [_, y] = at(&axes, roofline.ridge, 10f64.powi(exponent));
        line(svg, [LEFT, y, right, y], "#ddd");
        text(svg, LEFT - 6.0, y + 4.0, " text-anchor=\"end\"", &decade(exponent - 9));
    }
    text(svg, right, bottom + 34.0, " text-anchor=\"end\"", "arithmetic intensity, FLOP/byte");
    text(svg, 8.0, TOP - 8.0, "", "GFLOP/s");
    let caches = profile.ceilings.iter().flat_map(|ceilings| &ceilings.caches);
    let limit = |of: &str, measured| roofline.limit_of(of).map_or(measured, |[_, stated]| stated);
    for cache in caches.filter(|cache| Ceilings::is_rate(cache.read_bytes_per_second)) {
        roof(
            svg,
            &axes,
            peak,
            limit(&cache.level, cache.read_bytes_per_second),
            "stroke-dasharray=\"4 4\"",
            &cache.level,
        );
    }
    roof(svg, &axes, peak, bandwidth, "stroke-width=\"2\"", "memory");
    for (index, brick, place) in points(roofline) {
        let [x, y] = at(&axes, place.intensity, place.flops_per_second);
        let title = format!(
            "{}: {} FLOP/byte, {} GFLOP/s, {} of the roof",
            printable(&brick.name),
            short(place.intensity),
            short(place.flops_per_second / 1e9),
            percent(place.of_roof, 1.0)
        );
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\" fill=\"#2b6cb0\" fill-opacity=\"0.8\">\
             <title>{}</title></circle>",
            escaped(&title)
        );
        let style = " font-size=\"10\" text-anchor=\"middle\" fill=\"#fff\"";
        text(svg, x, y + 3.5, style, &letter(index).to_string());
    }
    // As many as a panel has room for.
    for (index, brick) in roofline.bricks.iter().enumerate().take(22) {
        let figure = match (&brick.place, &brick.absent) {
            (Some(place), _) => {
                format!("{} of its roof, {}", percent(place.of_roof, 1.0), place.limit())
            }
            (None, absent) => absent.as_ref().map_or("absent", |_| "absent: no work").to_owned(),
        };
        let mut name = printable(&brick.name);
        if name.chars().count() > 18 {
            name = name.chars().take(17).chain(['…']).collect();
        }
        let line = format!("{} {name}: {figure}", letter(index));
        text(svg, right + 12.0, TOP + 10.0 + 15.5 * index as f64, " font-size=\"11\"", &line);
    }
}

/// The roof of one bandwidth, with its name where it leaves the plot.
fn roof(svg: &mut String, axes: &Axes, peak: f64, bandwidth: f64, style: &str, name: &str) {
    // Where it begins: at the left edge or at the bottom.
    let left = axes.intensity(0.0).max(10f64.powi(axes.y[0]) / bandwidth);
    let right = axes.intensity(1.0);
    let start = (left * bandwidth).min(peak);
    let ridge = (peak / bandwidth).clamp(left, right.max(left));
    let points = [(left, start), (ridge, (ridge * bandwidth).min(peak)), (right, peak)];
    let points: Vec<String> = points
        .into_iter()
        .map(|(intensity, flops)| {
            let [x, y] = at(axes, intensity, flops);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#c53030\" {style}/>",
        points.join(" ")
    );
    let [x, y] = at(axes, left, start);
    text(svg, x + 4.0, y - 6.0, " font-size=\"11\" fill=\"#c53030\"", name);
}

fn at(axes: &Axes, intensity: f64, flops_per_second: f64) -> [f64; 2] {
    let [x, y] = axes.place(intensity, flops_per_second);
    [LEFT + x * PLOT[0], TOP + (1.0 - y) * PLOT[1]]
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickProfiler, MockClock};
    use brickscope_profile::{BrickId, CacheCeiling, Ceilings, Phase, Work};

    use super::*;

    #[test]
    fn a_cache_without_a_rate_has_no_roof() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(1_000);
        profiler.stop_brick_with(
            timer,
            Work { elements: 1, flops: 9_000, bytes: 9_000, ..Work::default() },
        );
        profiler.end_pass(pass, 1, 0);
        let mut profile = profiler.profile();
        for (rate, is_there) in
            [(180e9, true), (0.0, false), (-1.0, false), (5e-324, false), (1e308, false)]
        {
            profile.ceilings = Some(Ceilings {
                read_bytes_per_second: 50e9,
                flops_per_second: 200e9,
                caches: vec![CacheCeiling {
                    level: "L3".to_owned(),
                    bytes: 1 << 25,
                    read_bytes_per_second: rate,
                }],
                ..Ceilings::default()
            });
            let svg = roofline_svg(&profile);
            assert!(svg.contains(">memory</text>"), "{svg}");
            assert_eq!(svg.contains(">L3</text>"), is_there, "{rate}: {svg}");
            assert!(!svg.contains("inf") && !svg.contains("NaN"), "{rate}: {svg}");
        }
    }
}
