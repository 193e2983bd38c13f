//! Runs over time as a picture: one SVG file that needs nothing else.

use std::fmt::Write;

use brickscope_profile::text::{screened, shortened};

use super::{moment, no_change, signed, title};
use crate::history::{Figures, History, Series};
use crate::view::svg::{escaped, line, text};
use crate::words::short;

const WIDTH: usize = 900;
const HEIGHT: usize = 320;
/// The plot within a panel.
const LEFT: f64 = 70.0;
const TOP: f64 = 64.0;
const PLOT: [f64; 2] = [800.0, 200.0];

/// Dates under the axis at most.
const MOST_DATES: usize = 6;

/// Each series, one below the other, as an SVG of its own: the points evenly spaced, with bars from
/// least to most, the median of each level, and a dashed line at each change. The same history gives
/// the same bytes.
#[must_use]
pub fn history_svg(history: &History) -> String {
    let height = HEIGHT * history.series.len().max(1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (i, series) in history.series.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", i * HEIGHT);
        let [ran, on] = title(series, &history.measure);
        let bold = " font-size=\"14\" font-weight=\"bold\"";
        text(&mut svg, LEFT, 20.0, bold, &shortened(&ran, 110, ""));
        text(&mut svg, LEFT, 37.0, " font-size=\"11\"", &shortened(&on, 140, ""));
        panel(series, history, &mut svg);
        svg.push_str("</g>\n");
    }
    if history.series.is_empty() {
        text(&mut svg, LEFT, 24.0, "", "No run was read, so there is no history.");
    }
    svg.push_str("</svg>\n");
    screened(svg)
}

fn panel(series: &Series, history: &History, svg: &mut String) {
    let unit = history.measure.unit();
    let Some(axes) = Axes::of(series) else {
        return text(svg, LEFT, TOP + 16.0, "", "No point has a figure.");
    };
    let [right, bottom] = [LEFT + PLOT[0], TOP + PLOT[1]];
    for tick in axes.ticks() {
        let y = axes.y(tick);
        line(svg, [LEFT, y, right, y], "#ddd");
        text(svg, LEFT - 6.0, y + 4.0, " text-anchor=\"end\"", &axes.label(tick));
    }
    text(svg, 8.0, TOP - 10.0, "", unit);
    line(svg, [LEFT, bottom, right, bottom], "#888");
    // From the last to the first, so that the last has its date.
    let every = series.points.len().div_ceil(MOST_DATES).max(1);
    for (i, point) in series.points.iter().enumerate().rev().step_by(every) {
        let x = axes.x(i);
        line(svg, [x, bottom, x, bottom + 4.0], "#888");
        let date: String = moment(&point.time).chars().take(10).collect();
        text(svg, x, bottom + 17.0, " text-anchor=\"middle\"", &date);
    }
    let below = match series.changes.is_empty() {
        true => no_change(series),
        false => "points in order of time, evenly spaced; the scale does not begin at 0; dashed: the level changed".to_owned(),
    };
    text(svg, right, bottom + 36.0, " font-size=\"11\" text-anchor=\"end\"", &below);
    for level in &series.levels {
        let [start, end] = [level.from, level.to].map(|at| axes.x(at as usize));
        let y = axes.y(level.median);
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#dd6b20\" \
             stroke-width=\"2\"/>",
            start - 4.0,
            end + 4.0
        );
    }
    for change in &series.changes {
        let colour = if change.is_slower { "#c53030" } else { "#2f855a" };
        let x = (axes.x(change.at as usize) + axes.x(change.at.saturating_sub(1) as usize)) / 2.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{TOP:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" \
             stroke=\"{colour}\" stroke-dasharray=\"5 4\"/>"
        );
        let style = format!(" font-size=\"11\" text-anchor=\"middle\" fill=\"{colour}\"");
        text(svg, x, TOP - 4.0, &style, &signed(Some(change.ratio - 1.0)));
    }
    for (i, point) in series.points.iter().enumerate() {
        let Some(Figures { low, median, high }) = point.figures.filter(is_drawable) else {
            continue;
        };
        let [x, y] = [axes.x(i), axes.y(median)];
        line(svg, [x, axes.y(low), x, axes.y(high)], "#90b4d8");
        let built = point.commit.as_deref().or(point.binary.as_deref()).unwrap_or(&point.version);
        let built: String = built.chars().take(8).collect();
        let title = format!(
            "{} {built}: {} {unit} ({} to {}), {} against the level",
            moment(&point.time),
            short(median),
            short(low),
            short(high),
            signed(point.against_level)
        );
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{}\"><title>{}</title></circle>",
            // Hollow: has a caveat.
            if point.disturbed > 0 || !point.doubts.is_empty() {
                "#fff\" stroke=\"#2b6cb0"
            } else {
                "#2b6cb0"
            },
            escaped(&title)
        );
    }
}

/// Where figures are in a panel.
struct Axes {
    points: usize,
    low: f64,
    high: f64,
    /// From one line of the grid to the next.
    step: f64,
}

impl Axes {
    fn of(series: &Series) -> Option<Self> {
        let figures = || series.points.iter().filter_map(|p| p.figures).filter(is_drawable);
        let low = figures().map(|figures| figures.low).reduce(f64::min)?;
        let high = figures().map(|figures| figures.high).reduce(f64::max)?;
        // A line of equal points lies in the middle.
        let margin = match (high - low) * 0.06 {
            0.0 => (high.abs() * 0.01).max(f64::MIN_POSITIVE * 1e6),
            margin => margin,
        };
        let (low, high) = (low - margin, high + margin);
        let rough = (high - low) / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade).into_iter().find(|&s| s >= rough)?;
        let is_fine = (low..=high).contains(&(low + step)) && step > 0.0;
        is_fine.then_some(Self { points: series.points.len(), low, high, step })
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let first = (self.low / self.step).ceil();
        // At most one for each fifth of the plot, and the first.
        (0..6).map(move |i| (first + f64::from(i)) * self.step).filter(|tick| *tick <= self.high)
    }

    fn label(&self, tick: f64) -> String {
        let digits = (-self.step.log10().floor()).clamp(0.0, 6.0) as usize;
        format!("{tick:.digits$}")
    }

    fn x(&self, index: usize) -> f64 {
        LEFT + PLOT[0] * (index as f64 + 0.5) / self.points.max(1) as f64
    }

    fn y(&self, figure: f64) -> f64 {
        TOP + PLOT[1] * (1.0 - ((figure - self.low) / (self.high - self.low)).clamp(0.0, 1.0))
    }
}

/// Whether the figures have a place on paper.
fn is_drawable(figures: &Figures) -> bool {
    [figures.low, figures.median, figures.high].iter().all(|x| x.abs() < 1e100)
}
