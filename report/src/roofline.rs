//! The roofline: measured work compared with the machine's limits, as a plot and a table.

use std::fmt::Write;

use brickscope_analysis::roofline::{Moved, Reach, Roofline, RooflineBrick, Standing};
use brickscope_analysis::view;
use brickscope_profile::{Ceilings, Phase, Profile, Total};
use serde_json::json;

use super::bricks::colour;
use super::figure::{From, at, div, mul, percent, scaled, signed, sub, sum};
use super::html::{Table, note, part, parts, reason, said, said_in_parts, told};
use super::labels::{Area, Room};
use super::source::{Source, heading};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 306.0;

/// The most bricks in the plot and its table: the longest.
const MOST_BRICKS: usize = 40;

pub(super) fn section(source: &Source<'_>) -> String {
    let profile = source.profile;
    let phases = Phase::SHOWN.into_iter().filter(|p| profile.phase(*p).is_some());
    let mut html = String::new();
    let mut why = None;
    for phase in phases {
        let judged = source.judged(phase);
        let by = judged.as_ref().map(|judged| source.by(judged, phase));
        let by = by.as_ref().unwrap_or(source);
        match Roofline::of_sums(by.profile, phase) {
            Ok(roofline) => {
                let title = format!("<h3>{}</h3>\n", heading(Some(phase)));
                let plot = diagram(&roofline, by.profile);
                html.push_str(&part(&(title + &plot + &table(by, &roofline))));
            }
            // Both phases lack the same.
            Err(absent) if why.as_ref() == Some(&absent.reason) => {}
            Err(absent) => {
                html.push_str(&part(&reason(&absent.reason)));
                why = Some(absent.reason);
            }
        }
    }
    parts(&html)
}

fn bricks<'p>(profile: &'p Profile, roofline: &'p Roofline) -> Vec<(&'p RooflineBrick, &'p Total)> {
    // Both list the bricks of the phase, the longest first.
    let totals = profile.bricks(Some(roofline.phase));
    roofline.bricks.iter().zip(totals).take(MOST_BRICKS).collect()
}

fn letter(index: usize) -> char {
    ('A'..='Z').chain('a'..='z').nth(index).unwrap_or('?')
}

/// The powers of ten around some numbers.
fn decades(values: &[f64]) -> [i32; 2] {
    let usable = || values.iter().copied().filter(|value| (1e-30..1e30).contains(value));
    let least = usable().fold(f64::INFINITY, f64::min).log10().floor() as i32;
    let most = usable().fold(0.0, f64::max).log10().ceil() as i32;
    // Limit the range, since an outlier would leave no room for the others.
    let most = most.max(least + 1);
    [least.max(most - 12), most]
}

fn diagram(roofline: &Roofline, profile: &Profile) -> String {
    let bricks = bricks(profile, roofline);
    let places = || bricks.iter().filter_map(|(brick, _)| brick.place.as_ref());
    let places = || places().filter(|place| place.intensity > 0.0);
    let (mut xs, mut ys) = (vec![roofline.ridge], vec![roofline.peak_flops_per_second]);
    for place in places() {
        xs.push(place.intensity);
        ys.extend([place.flops_per_second, place.roof_flops_per_second]);
    }
    let (x_axis, y_axis) = (decades(&xs), decades(&ys));
    let along = |value: f64, [least, most]: [i32; 2]| {
        ((value.log10() - f64::from(least)) / f64::from(most - least)).clamp(0.0, 1.0)
    };
    let x = |intensity: f64| LEFT + (RIGHT - LEFT) * along(intensity, x_axis);
    let y = |flops: f64| BOTTOM - (BOTTOM - TOP) * along(flops, y_axis);
    let mut svg = format!(
        "<figure class=\"roofline\"><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Roofline of {phase}\">\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Roofline of {phase}: the table below \
         has its numbers\">\n",
        phase = roofline.phase
    );
    let tick = |svg: &mut String, x: f64, y: f64, anchor: &str, text: &str| {
        let _ = writeln!(
            svg,
            "<text data-text=\"tick\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    };
    let line = |svg: &mut String, class: &str, [x1, y1, x2, y2]: [f64; 4]| {
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    };
    for exponent in x_axis[0]..=x_axis[1] {
        let at = x(10f64.powi(exponent));
        line(&mut svg, "grid", [at, TOP, at, BOTTOM]);
        // The first one begins at its line, since left of it are those of the other axis.
        let anchor = if exponent == x_axis[0] { "start" } else { "middle" };
        tick(&mut svg, at, BOTTOM + 22.0, anchor, &decade(exponent));
    }
    for exponent in y_axis[0]..=y_axis[1] {
        let at = y(10f64.powi(exponent));
        line(&mut svg, "grid", [LEFT, at, RIGHT, at]);
        tick(&mut svg, LEFT - 6.0, at + 4.0, "end", &decade(exponent - 9));
    }
    let _ = writeln!(
        svg,
        "<text x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">work for each byte, FLOP per byte</text>",
        BOTTOM + 46.0
    );
    let _ = writeln!(svg, "<text x=\"4\" y=\"16\">speed, GFLOP/s</text>");
    let marks: Vec<Mark<'_>> = bricks
        .iter()
        .enumerate()
        .filter_map(|(index, (brick, total))| {
            let place = brick.place.as_ref().filter(|place| place.intensity > 0.0)?;
            let at = [x(place.intensity), y(place.flops_per_second)];
            let (name, class) = (brick.name.as_str(), colour(total.category));
            Some(Mark { name, class, letter: letter(index), at })
        })
        .collect();
    // A roof at the upper edge has its name across it.
    let top = TOP - 13.0;
    let plot = Area {
        middle: [(LEFT + RIGHT) / 2.0, (top + BOTTOM) / 2.0],
        half: [(RIGHT - LEFT) / 2.0, (BOTTOM - top) / 2.0],
    };
    let mut room = Room::new(plot);
    for mark in &marks {
        let half = if mark.is_alone(&marks) { BADGE } else { SPOT };
        room.take(Area { middle: mark.at, half: [half; 2] });
    }
    let caches = profile.ceilings.iter().flat_map(|ceilings| &ceilings.caches);
    let limit = |of: &str, measured| roofline.limit_of(of).map_or(measured, |[_, stated]| stated);
    let caches = caches.map(|cache| {
        let level = cache.level.as_str();
        (level, limit(level, cache.read_bytes_per_second), "roof cache")
    });
    let memory = ("memory", roofline.peak_bytes_per_second, "roof");
    let (least, most) = (10f64.powi(x_axis[0]), 10f64.powi(x_axis[1]));
    let mut names = String::new();
    for (name, bandwidth, class) in caches.chain([memory]) {
        if !(1.0..1e30).contains(&bandwidth) {
            continue;
        }
        let peak = roofline.peak_flops_per_second;
        // The line enters from the left, or from below.
        let from = least.max(10f64.powi(y_axis[0]) / bandwidth).min(most);
        let ridge = (peak / bandwidth).clamp(from, most);
        let points = [
            (from, (from * bandwidth).min(peak)),
            (ridge, (ridge * bandwidth).min(peak)),
            (most, peak),
        ];
        let points = points.map(|(at, flops)| [x(at), y(flops)]);
        let texts = points.map(|[x, y]| format!("{x:.1},{y:.1}"));
        let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", texts.join(" "));
        let name = super::html::text(name);
        let [at_x, at_y] = on_line(&mut room, &name, points);
        let _ = writeln!(
            names,
            "<text class=\"{class}\" x=\"{at_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" \
             data-text=\"library\">{name}</text>",
            at_y + 4.0
        );
    }
    svg.push_str(&names);
    svg.push_str(&drawn(&marks, &mut room));
    svg.push_str("</svg></div></figure>\n");
    svg
}

/// A brick in the plot.
struct Mark<'r> {
    name: &'r str,
    class: &'static str,
    letter: char,
    at: [f64; 2],
}

/// Half of the width of a letter's disc, and of the spot of a brick whose letter is beside it: with a margin, and as large as
/// they are in a narrow window.
const BADGE: f64 = 13.5;
const SPOT: f64 = 5.0;

impl Mark<'_> {
    /// Whether its letter hides no other brick.
    fn is_alone(&self, marks: &[Mark<'_>]) -> bool {
        let is_near = |other: &&Mark<'_>| {
            (0..2).all(|axis| (self.at[axis] - other.at[axis]).abs() < 2.0 * BADGE)
        };
        marks.iter().filter(is_near).count() <= 1
    }
}

/// The bricks at their places. Where several are near each other, each is a spot there, and its letter beside it.
fn drawn(marks: &[Mark<'_>], room: &mut Room) -> String {
    let (mut lines, mut points) = (String::new(), String::new());
    for mark in marks {
        let [x, y] = mark.at;
        let is_alone = mark.is_alone(marks);
        let [at_x, at_y] = if is_alone { mark.at } else { room.near([BADGE; 2], mark.at) };
        let mut spot = String::new();
        if !is_alone {
            let _ = writeln!(
                lines,
                "<line class=\"leader\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{at_x:.1}\" y2=\"{at_y:.1}\"/>"
            );
            spot = format!("<circle class=\"spot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
        }
        let _ = writeln!(
            points,
            "<g class=\"point {}\"><title>{}</title>{spot}<circle cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"9\"/>\
             <text x=\"{at_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text></g>",
            mark.class,
            super::html::text(mark.name),
            at_y + 3.5,
            mark.letter
        );
    }
    lines + &points
}

/// The place of a roof's name: on its line, as far to the left as nothing else is there.
fn on_line(room: &mut Room, name: &str, [from, ridge, to]: [[f64; 2]; 3]) -> [f64; 2] {
    // Letters of a narrow window.
    let half = [name.chars().count().min(16) as f64 * 5.8 + 4.0, 12.0];
    let slope = (ridge[1] - from[1]) / (ridge[0] - from[0]).max(1.0);
    let places = (0..100).map(|nth| from[0] + half[0] + 1.0 + 8.0 * f64::from(nth));
    let places = places.take_while(|x| *x < to[0]);
    let on = |x: f64| if x < ridge[0] { from[1] + slope * (x - from[0]) } else { ridge[1] };
    room.first_free(half, places.map(|x| [x, on(x)])).unwrap_or(from)
}

/// A power of ten.
fn decade(exponent: i32) -> String {
    match exponent {
        -3..=6 => format!("{}", 10f64.powi(exponent)),
        _ => format!("1e{exponent}"),
    }
}

fn table(source: &Source<'_>, roofline: &Roofline) -> String {
    let profile = source.profile;
    let caption = format!("Roofline of {}", roofline.phase);
    let columns =
        ["Brick", "#FLOP/B", "#GFLOP/s", "#GB/s", "#of roof", "bound by", "reach", "#µs above"];
    let mut table = Table::of_class("roofline", &caption, &columns);
    let limit = |of: &str, field: &str| limit(source, roofline, of, field);
    let peak_field = profile.ceilings.as_ref().map_or("flops_per_second", Ceilings::peak_field);
    let peak = if peak_field == "int8_ops_per_second" { "int8" } else { "f32" };
    let peak_of_run = limit(peak, peak_field);
    let memory = limit("memory", "read_bytes_per_second");
    let mut notes = Vec::new();
    for (index, (brick, total)) in bricks(profile, roofline).into_iter().enumerate() {
        let name = format!(
            "<span class=\"key {}\" aria-hidden=\"true\">{}</span>{}",
            colour(total.category),
            letter(index),
            said_in_parts(&brick.name)
        );
        let Some(place) = &brick.place else {
            let why = brick.absent.as_ref().map_or("", |absent| &absent.reason);
            let row = format!(
                "<tr><th scope=\"row\">{name}</th><td colspan=\"7\" class=\"absent\">{}</td></tr>\n",
                told(why)
            );
            table.raw(&row);
            continue;
        };
        let of = |field: &str| source.of_total(total, field);
        let (ns, flops, bytes) = (of("total_ns"), of("total_flops"), of("total_bytes"));
        let per_second = |work: &From| mul(json!(1e9), div(work.clone(), ns.clone()));
        let caches = profile.ceilings.iter().flat_map(|ceilings| &ceilings.caches);
        let level = caches.clone().position(|cache| cache.level == place.least_level);
        let bandwidth = match level.filter(|_| place.least_level != "memory") {
            // A cache that was measured to be slower than memory has memory's limit.
            Some(nth) if is_faster(roofline, &place.least_level) => {
                limit(&place.least_level, &format!("caches/{nth}/read_bytes_per_second"))
            }
            _ => memory.clone(),
        };
        let mut least = div(moved(source, total, place), bandwidth);
        if brick.flops.is_some() {
            let peak = if place.is_of_floats {
                limit("f32", "flops_per_second")
            } else {
                peak_of_run.clone()
            };
            least = json!(["max", least, div(flops.clone(), peak)]);
        }
        let seconds = div(ns.clone(), json!(1e9));
        let stated =
            |html: String| if brick.flops.is_some() { html } else { super::figure::absent("-") };
        // No more than the time that is its own, and no less than nothing.
        let own = div(of("exclusive_ns"), json!(1e9));
        let beyond = sub(json!(["max", own, least.clone()]), least.clone());
        let above = div(mul(json!(1e6), beyond), of("count"));
        let class = if place.reach == Reach::Above { "error" } else { "" };
        table.row_of(
            class,
            &[
                &name,
                &stated(scaled(place.intensity, 1.0, "", div(flops.clone(), bytes.clone()))),
                &stated(scaled(place.flops_per_second, 1e9, "", per_second(&flops))),
                &scaled(place.bytes_per_second, 1e9, "", per_second(&bytes)),
                &percent(place.of_roof, div(least, seconds)),
                &told(place.limit()),
                &reach(place.reach),
                &signed(place.us_to_roof, 1.0, 1, "", above),
            ],
        );
        notes.extend(brick.notes.iter().map(|note| (brick.name.as_str(), note.to_string())));
    }
    let mut html = table.end();
    let peak = scaled(roofline.peak_flops_per_second, 1e9, " GFLOP/s", peak_of_run.clone());
    let bandwidth = scaled(roofline.peak_bytes_per_second, 1e9, " GB/s", memory.clone());
    let ridge = scaled(roofline.ridge, 1.0, " FLOP/byte", div(peak_of_run.clone(), memory));
    let basis = profile.ceilings.as_ref().map_or("", |ceilings| &ceilings.basis);
    html.push_str(&note(&format!(
        "Memory reads {bandwidth}, arithmetic reaches {peak}, and the two limits meet at {ridge}; {}. Points are \
        the stated work over the measured time, including inner bricks.",
        said(basis)
    )));
    let mut places = roofline.bricks.iter().filter_map(|brick| brick.place.as_ref());
    if places.any(|place| place.reach == Reach::Unsettled) {
        html.push_str(&note(&told(&view::swings_in_words())));
    }
    if let Some(says) = roofline.says_source() {
        html.push_str(&note(&told(&says)));
    }
    if let Some(absent) = &roofline.pace_absent {
        html.push_str(&note(&told(&absent.reason)));
    }
    notes.truncate(30);
    if !notes.is_empty() {
        let notes: Vec<String> = notes
            .iter()
            .map(|(name, text)| format!("<li>{}: {}</li>", said(name), told(text)))
            .collect();
        let _ = writeln!(html, "<ul class=\"notes\">{}</ul>", notes.concat());
    }
    html
}

/// A limit: what was measured, or what the run itself reached if that was more.
fn limit(source: &Source<'_>, roofline: &Roofline, of: &str, field: &str) -> From {
    let shown = roofline.shown_by.iter().find(|shown| shown.of == of).and_then(|shown| {
        let totals = source.profile.bricks(Some(shown.phase));
        let total = totals.into_iter().find(|total| total.stats.name == shown.name)?;
        Some((total, shown.moved))
    });
    let Some((total, moved)) = shown else {
        let ceilings = source.profile.ceilings.as_ref().filter(|_| of == "memory");
        // What it gave around the run.
        let around = ceilings.filter(|of| of.memory_limit() != of.read_bytes_per_second);
        let nth = around.and_then(|ceilings| {
            let limit = ceilings.memory_limit();
            ceilings.readings.iter().rposition(|reading| reading.read_bytes_per_second == limit)
        });
        return match nth {
            Some(nth) => ceiling_at(source, &format!("readings/{nth}/read_bytes_per_second")),
            None => ceiling_at(source, field),
        };
    };
    let done = match of {
        "f32" | "int8" => source.of_total(total, "total_flops"),
        _ => of_data(source, total, moved),
    };
    div(mul(json!(1e9), done), source.of_total(total, "total_ns"))
}

/// How near a brick comes to its limit, with what that means where no verdict is.
fn reach(of: Reach) -> String {
    match of {
        Reach::Unsettled => {
            let says = super::html::attribute(&view::swings_in_words());
            format!("<span title=\"{says}\">{}</span>", of.name())
        }
        of => of.name().to_owned(),
    }
}

/// Whether a cache's limit is above that of memory.
fn is_faster(roofline: &Roofline, level: &str) -> bool {
    let limit = roofline.limit_of(level);
    limit.is_some_and(|[_, stated]| stated > roofline.peak_bytes_per_second)
}

fn moved(source: &Source<'_>, total: &Total, place: &Standing) -> From {
    of_data(source, total, place.moved)
}

/// The bytes of a brick of one kind.
fn of_data(source: &Source<'_>, total: &Total, moved: Moved) -> From {
    let of = |field: &str| source.of_total(total, field);
    let data = &total.stats.data;
    let is_told = data.activations > 0 || data.once_a_pass() > 0;
    match moved {
        Moved::OnceAPass if is_told => sum(vec![of("data/weights"), of("data/kv")]),
        Moved::Activations if is_told => {
            sub(sub(of("total_bytes"), of("data/weights")), of("data/kv"))
        }
        Moved::All | Moved::OnceAPass | Moved::Activations => of("total_bytes"),
    }
}

/// A ceiling's place in the run's file: that of the machine, or of the device whose stream the source is.
fn ceiling_at(source: &Source<'_>, field: &str) -> From {
    let of = source.base.find("/streams/").map_or(&*source.base, |end| &source.base[..end]);
    at(format!("{of}/ceilings/{field}"))
}
