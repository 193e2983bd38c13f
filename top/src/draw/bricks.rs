//! The table of bricks, with the shares of categories above it, and the view of one brick.

use brickscope_analysis::roofline::Roofline;
use brickscope_analysis::typical;
use brickscope_profile::Profile;
use brickscope_profile::name::category_of;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Paint, absent, heading, in_sight};
use crate::app::{App, BrickRow, Seen};
use crate::figures::{micros, percent_of, total_time};
use crate::numbers::{CategoryNumbers, categories, rests};
use crate::text::{columns, cut, padded, printable, printable_text, wrap};

/// The columns of a row beside the name, the bar and the sum.
const CELLS: usize = 54;
/// Those of the sum, on screens that have room for it.
const SUM: usize = 12;
/// Those of a name, at least.
const LEAST_NAME: usize = 17;
/// The shortest bar that is worth drawing, and the longest.
const LEAST_BAR: usize = 4;
const MOST_BAR: usize = 60;
/// A narrower bar takes no columns of a long name.
const GOOD_BAR: usize = 8;
/// Screens with so much room for this view have a bar for each category.
const TALL: usize = 22;

pub(super) fn lines(
    app: &App,
    seen: &Seen,
    paint: Paint,
    width: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let profile = match app.shown(seen) {
        Ok(profile) => profile,
        Err(why) => return vec![Line::styled(heading(app, "bricks"), paint.bold()), absent(&why)],
    };
    let (all, judged) = (profile, typical::judged(profile, app.phase));
    let profile = &*judged;
    let wall_of = |profile: &Profile| profile.phase(app.phase).map_or(0, |total| total.wall_ns);
    let less_ns = wall_of(all).saturating_sub(wall_of(profile));
    let passes_of = |profile: &Profile| profile.phase(app.phase).map_or(0, |total| total.passes);
    // On a device the other passes have no bricks.
    let stalls = match (passes_of(profile), passes_of(all)) {
        (fine, all) if fine < all => format!(" · {fine} of {all} passes were timed by brick"),
        _ if less_ns > 0 && typical::is_of_medians(all, app.phase) => {
            format!(" · by median spans, {:.1} ms less", less_ns as f64 / 1e6)
        }
        _ if less_ns > 0 => format!(" · without stalls of {:.1} ms", less_ns as f64 / 1e6),
        _ => String::new(),
    };
    if let Some(name) = &app.drilled {
        let heading = heading(app, &printable(name)) + &stalls;
        return brick(app, profile, name, heading, paint, width);
    }
    let mut lines = Vec::new();
    let of_categories = profile.phase(app.phase).map(|total| categories(profile, total));
    match of_categories {
        Some(rows) if room >= TALL => lines.extend(bars(&rows, paint, width)),
        Some(rows) => lines.push(shares(&rows, paint)),
        None => {}
    }
    let backend = printable(profile.run.as_ref().map_or("", |run| run.backend.as_str()));
    let mut what = format!("bricks by {}", app.sort.name());
    if app.is_reversed {
        what.push_str(", reversed");
    }
    if !app.filter.is_empty() {
        what.push_str(&format!(", with \"{}\"", printable(&app.filter)));
    }
    if let Some(device) = &seen.snapshot.device {
        what.push_str(&format!(" · clock of {}", printable(device)));
    }
    let mut heading = heading(app, &what);
    heading.push_str(&stalls);
    heading.push_str(&match Roofline::of_sums(profile, app.phase) {
        Ok(_) => {
            format!(" · roof of {}", if backend.is_empty() { "this machine" } else { &backend })
        }
        Err(why) => format!(" · no roof: {}", printable_text(&why.reason)),
    });
    lines.push(Line::styled(cut(&heading, width), paint.bold()));
    let rows = app.rows();
    // A name is whole where there is room; what then is left is for bars.
    let sum_width = if width >= 100 { SUM } else { 0 };
    let longest = rows.iter().map(|row| columns(&printable(&row.name))).max().unwrap_or(0);
    let room_beside = width.saturating_sub(CELLS + sum_width);
    let name_width = longest.min(room_beside.saturating_sub(GOOD_BAR + 1)).max(LEAST_NAME);
    let bar_width = room_beside.saturating_sub(name_width + 1).min(MOST_BAR);
    let bar_width = if bar_width >= LEAST_BAR { bar_width } else { 0 };
    let total = profile.phase(app.phase);
    let outside = total.map(|total| rests(profile, total)).unwrap_or_default();
    let all_ns = rows.iter().map(|row| row.exclusive_ns).chain(outside.iter().map(|(_, ns)| *ns));
    let longest_ns = all_ns.max().unwrap_or(0).max(1);
    let named =
        |mark: char, name: &str| format!("{mark}{}", padded(&cut(name, name_width), name_width));
    let bar = |ns: u64| match bar_width {
        0 => String::new(),
        _ => format!(" {}", paint.bar(ns as f64 / longest_ns as f64, bar_width)),
    };
    let cells = |cells: [&str; 8]| {
        let [share, average, sum, count, p50, p99, roof, bound] = cells;
        let wide = if sum_width > 0 { format!("{sum:>SUM$}") } else { String::new() };
        format!(" {share:>6} {average:>7}{wide} {count:>7} {p50:>7} {p99:>7} {roof:>5} {bound:<7}")
    };
    let header =
        cells(["share", "avg µs", "total ms", "count", "p50 µs", "p99 µs", "roof", "bound"]);
    lines.push(Line::raw(format!("{}{}{header}", named(' ', "Brick"), bar(0))));
    let (wall, passes) = total.map_or((0, 0), |total| (total.wall_ns, total.passes));
    let left = room.saturating_sub(lines.len() + outside.len());
    let selected = app.selected.min(rows.len().saturating_sub(1));
    let table: Vec<Line<'static>> = in_sight(rows.iter().enumerate(), selected, left)
        .map(|(at, brick)| {
            let is_selected = at == selected;
            let known = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| micros(ns as f64));
            let BrickRow { exclusive_ns, count, .. } = *brick;
            let (of_roof, bound) =
                brick.roof.as_ref().map_or(("-".to_owned(), ""), |(part, bound)| {
                    (format!("{:.0}%", 100.0 * part), bound.as_str())
                });
            let text = cells([
                &percent_of(exclusive_ns, wall),
                &micros(exclusive_ns as f64 / count.max(1) as f64),
                &format!("{:.3}", exclusive_ns as f64 / 1e6),
                &count.to_string(),
                &known(brick.p50_ns),
                &known(brick.p99_ns),
                &of_roof,
                &cut(bound, 7),
            ]);
            let style = if is_selected { paint.selected() } else { Style::new() };
            let mark = if is_selected { '>' } else { ' ' };
            let colour = paint.category(Some(category_of(&brick.name)));
            Line::from(vec![
                Span::styled(named(mark, &printable(&brick.name)), style),
                Span::styled(bar(exclusive_ns), colour),
                Span::styled(text, style),
            ])
        })
        .collect();
    if rows.is_empty() {
        lines.push(Line::raw(match app.filter.is_empty() {
            true if app.is_recent => format!(" no brick of {} ended in the last 2 s", app.phase),
            true => format!(" no brick of {} was recorded", app.phase),
            false => " no brick has this in its name".to_owned(),
        }));
    }
    lines.extend(table);
    for (name, ns) in outside {
        let text = cells([
            &percent_of(ns, wall),
            &micros(ns as f64 / passes.max(1) as f64),
            &format!("{:.3}", ns as f64 / 1e6),
            &passes.to_string(),
            "",
            "",
            "",
            "",
        ]);
        let text = format!("{}{}{text}", named(' ', name), bar(ns));
        lines.push(Line::styled(text, paint.category(None)));
    }
    lines
}

/// A bar for each category, and one for unattributed time.
fn bars(rows: &[CategoryNumbers], paint: Paint, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(24).min(MOST_BAR);
    let bar = |row: &CategoryNumbers| {
        Line::from(vec![
            Span::raw(format!(" {:12} {:>6} ", name_of(row), share_of(row))),
            Span::styled(
                paint.gauge(row.share.unwrap_or_default(), room),
                paint.category(row.category),
            ),
        ])
    };
    rows.iter().map(bar).collect()
}

/// The same in one line, without those that took no time.
fn shares(rows: &[CategoryNumbers], paint: Paint) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for row in rows.iter().filter(|row| row.exclusive_ns > 0) {
        let text = format!("{} {}  ", name_of(row), share_of(row));
        spans.push(Span::styled(text, paint.category(row.category)));
    }
    Line::from(spans)
}

fn name_of(row: &CategoryNumbers) -> &'static str {
    row.category.map_or(row.rest.unwrap_or("unattributed"), |category| category.name())
}

fn share_of(row: &CategoryNumbers) -> String {
    row.share.map_or("-".to_owned(), |share| match 100.0 * share {
        percent if percent > 0.0 && percent < 0.05 => "<0.1%".to_owned(),
        percent => format!("{percent:.1}%"),
    })
}

/// The details of one brick, by what is typical.
fn brick(
    app: &App,
    profile: &Profile,
    name: &str,
    heading: String,
    paint: Paint,
    width: usize,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(cut(&heading, width), paint.bold())];
    let bricks = profile.bricks(Some(app.phase));
    let Some(brick) = bricks.iter().find(|brick| brick.stats.name == name) else {
        let when = if app.is_recent { " in the last 2 s" } else { "" };
        lines.push(Line::raw(format!(" it has not run in {}{when}", app.phase)));
        return lines;
    };
    let stats = &brick.stats;
    let wall = profile.phase(app.phase).map_or(0, |total| total.wall_ns);
    let mut time = format!(
        " {} of {} wall time is its own: {}, {} spans of {} µs",
        percent_of(stats.exclusive_ns, wall),
        app.phase,
        total_time(stats.exclusive_ns),
        stats.count,
        micros(stats.exclusive_ns as f64 / stats.count.max(1) as f64)
    );
    if stats.exclusive_ns != stats.total_ns {
        time.push_str(&format!(", including inner bricks {}", total_time(stats.total_ns)));
    }
    lines.push(Line::raw(cut(&time, width)));
    lines.push(Line::raw(format!(" by the {} clock", brick.source.name())));
    match Roofline::of_sums(profile, app.phase) {
        Ok(roofline) => {
            if let Some(row) = roofline.bricks.iter().find(|row| row.name == name) {
                match &row.place {
                    Some(place) => lines.push(Line::raw(format!(
                        " {:.1} GB/s, {:.1} GFLOP/s: {:.0}% of the roofline ({}), bound by {}",
                        place.bytes_per_second / 1e9,
                        place.flops_per_second / 1e9,
                        100.0 * place.of_roof,
                        place.reach.name(),
                        printable(place.limit())
                    ))),
                    None => lines.extend(
                        row.absent
                            .as_ref()
                            .map(|why| Line::raw(format!(" roofline absent: {}", why.reason))),
                    ),
                }
                let source = row.place.as_ref().and_then(|_| roofline.says_source());
                let source = source.map(|text| wrap(&text, width.saturating_sub(1)));
                let source = source.into_iter().flatten();
                lines.extend(source.map(|line| Line::raw(format!(" {line}"))));
                lines.extend(
                    row.notes.iter().map(|note| Line::raw(cut(&format!(" note: {note}"), width))),
                );
            }
        }
        Err(why) => lines.push(Line::raw(cut(&format!(" no roofline: {}", why.reason), width))),
    }
    lines.push(Line::raw(""));
    let kernels = app.kernels().remove(name).unwrap_or_default();
    let since = if app.is_recent { "in about the last 2 s" } else { "since a viewer attached" };
    if kernels.is_empty() {
        lines.push(Line::raw(format!(" No kernel was timed in it {since}.")));
        return lines;
    }
    let text = format!(
        " {:34} {:>8} {:>10} {:>12}",
        format!("Kernels, {since}"),
        "count",
        "avg µs",
        "total"
    );
    lines.push(Line::styled(text, paint.bold()));
    for kernel in kernels {
        lines.push(Line::raw(format!(
            " {} {:>8} {:>10} {:>12}",
            padded(&cut(&printable(&kernel.kernel), 34), 34),
            kernel.count,
            micros(kernel.total_ns as f64 / kernel.count.max(1) as f64),
            total_time(kernel.total_ns)
        )));
    }
    lines
}
