//! The tables of bricks, categories and kernels, by phase.

use brickscope_analysis::typical;
use brickscope_profile::{BrickCategory, Phase, Source as Clock, Total};

use super::figure::{From, Unit, absent, count, counted, div, percent, scaled, sub, sum, time};
use super::html::{Table, bar, details, note, part, parts, said, told};
use super::source::{Source, heading};

/// The most rows of a table; further ones are summed up in one.
const MOST_ROWS: usize = 60;

pub(super) fn section(source: &Source<'_>) -> String {
    let profile = source.profile;
    let phases = Phase::SHOWN.into_iter().filter(|p| profile.phase(*p).is_some());
    let mut html: String = phases.map(|phase| part(&of_phase(source, phase))).collect();
    if profile.totals.iter().any(|total| total.phase.is_none()) {
        let mut outside = String::new();
        bricks(source, None, &mut outside);
        kernels(source, None, &mut outside);
        html.push_str(&part(&outside));
    }
    html.push_str(&part(&samples(source)));
    parts(&html)
}

/// The functions of an imported file that counts samples and has no times.
fn samples(source: &Source<'_>) -> String {
    let imported = source.profile.imported.as_ref().filter(|of| !of.samples.is_empty());
    let Some(imported) = imported else { return String::new() };
    let mut table =
        Table::new("Samples by function", &["Function", "#Own samples", "#Including callees"]);
    for (nth, function) in imported.samples.iter().enumerate().take(MOST_ROWS) {
        let at = |field: &str| source.at(&format!("/imported/samples/{nth}/{field}"));
        table.row(&[
            &said(&function.name),
            &count(function.own, at("own")),
            &count(function.total, at("total")),
        ]);
    }
    table.end() + &note("Samples are counts by another program, not times.")
}

fn of_phase(source: &Source<'_>, phase: Phase) -> String {
    let mut html = String::new();
    let judged = source.judged(phase);
    let by = judged.as_ref().map(|judged| source.by(judged, phase));
    bricks(by.as_ref().unwrap_or(source), Some(phase), &mut html);
    if let Some(by) = &by {
        html.push_str(&basis(source, by, phase));
    }
    categories(by.as_ref().unwrap_or(source), phase, &mut html);
    kernels(source, Some(phase), &mut html);
    html
}

/// What times are that aren't those of the file, and how they add up to the wall.
fn basis(source: &Source<'_>, by: &Source<'_>, phase: Phase) -> String {
    let Some((measured, judged)) = source.profile.phase(phase).zip(by.profile.phase(phase)) else {
        return String::new();
    };
    let is_of_medians = typical::is_of_medians(source.profile, phase);
    let words = typical::basis_in_words(is_of_medians, judged, measured);
    let beyond = measured.wall_ns.saturating_sub(judged.wall_ns);
    let (all, sum) = (source.of_phase(phase, "wall_ns"), by.of_phase(phase, "wall_ns"));
    note(&format!(
        "Times and shares are {}. All passes took {}, {} more than the sum.",
        told(&words),
        time(measured.wall_ns, all.clone()),
        time(beyond, sub(all, sum))
    ))
}

/// The CSS class for the colour of a category.
pub(super) fn colour(category: Option<BrickCategory>) -> &'static str {
    match category {
        Some(BrickCategory::Norm) => "c-norm",
        Some(BrickCategory::Attention) => "c-attention",
        Some(BrickCategory::Ffn) => "c-ffn",
        Some(BrickCategory::Other) => "c-other",
        None => "c-kernel",
    }
}

/// A count of runs. In sums by another program 0 means unknown.
fn number(n: u64, from: From) -> String {
    if n == 0 { absent("-") } else { count(n, from) }
}

/// A name after a mark in the colour of its category.
fn named(total: &Total) -> String {
    let mark = if total.source == Clock::HostOrder {
        " <abbr title=\"host order: from its issue to the next one's\">†</abbr>"
    } else {
        ""
    };
    format!(
        "<span class=\"dot {}\" aria-hidden=\"true\"></span>{}{mark}",
        colour(total.category),
        said(&total.stats.name)
    )
}

fn bricks(source: &Source<'_>, phase: Option<Phase>, html: &mut String) {
    let profile = source.profile;
    let bricks = profile.bricks(phase);
    if bricks.is_empty() && phase.is_none() {
        return;
    }
    let of_phase = phase.and_then(|phase| Some((phase, profile.phase(phase)?)));
    let explained: u64 =
        bricks.iter().fold(0, |sum, brick| sum.saturating_add(brick.stats.exclusive_ns));
    let all = || bricks.iter().map(|b| source.of_total(b, "exclusive_ns")).collect();
    // Without a pass there is no wall time, and shares are of the attributed time.
    let (whole, whole_from) = match of_phase {
        Some((phase, total)) => (total.wall_ns, source.of_phase(phase, "wall_ns")),
        None => (explained, sum(all())),
    };
    let most = bricks.first().map_or(0, |brick| brick.stats.exclusive_ns);
    let each = bricks.iter().map(|b| b.stats.total_ns.checked_div(b.stats.count).unwrap_or(0));
    let (unit, each_unit) = (Unit::of(whole.max(most)), Unit::of(each.max().unwrap_or(0)));
    let own = format!("#Time, {}", unit.name);
    let (mean, p50, p99) = (
        format!("#Mean of a span, {}", each_unit.name),
        format!("#p50, {}", each_unit.name),
        format!("#p99, {}", each_unit.name),
    );
    let caption = format!("Bricks of {}", heading(phase).to_lowercase());
    let is_nested = bricks.iter().any(|brick| brick.stats.exclusive_ns != brick.stats.total_ns);
    let inclusive = format!("#Inclusive, {}", unit.name);
    let columns = ["Brick", "Share", "#%", &own, &inclusive, "#Spans", &mean, &p50, &p99];
    // The inclusive column is for nested bricks only.
    let only = |cells: &[&str]| -> Vec<String> {
        let cells = cells.iter().enumerate().filter(|(nth, _)| is_nested || *nth != 4);
        cells.map(|(_, cell)| (*cell).to_owned()).collect()
    };
    let columns = only(&columns);
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::of_class("bricks", &caption, &columns);
    let mut add = |class: &str, cells: &[&str]| {
        let cells = only(cells);
        table.row_of(class, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let share = |ns: u64, from| percent(ns as f64 / whole as f64, div(from, whole_from.clone()));
    for brick in bricks.iter().take(MOST_ROWS) {
        let stats = &brick.stats;
        let from = |field: &str| source.of_total(brick, field);
        let mean = stats.mean_ns().map_or_else(
            || absent("-"),
            |mean| each_unit.show(mean, div(from("total_ns"), from("count"))),
        );
        // Sums by another program have no spread, however many spans there are.
        let has_spread = stats.histogram.count() == stats.count && stats.count > 0;
        let not_shown = || match has_spread {
            true => "<abbr class=\"absent\" title=\"too few spans\">-</abbr>".to_owned(),
            false => absent("-"),
        };
        let at = |ns: Option<u64>, field: &str| {
            ns.map_or_else(not_shown, |ns| each_unit.show(ns, from(field)))
        };
        add(
            "",
            &[
                &named(brick),
                &bar(stats.exclusive_ns as f64 / whole as f64, colour(brick.category)),
                &share(stats.exclusive_ns, from("exclusive_ns")),
                &unit.show(stats.exclusive_ns, from("exclusive_ns")),
                &unit.show(stats.total_ns, from("total_ns")),
                &number(stats.count, from("count")),
                &mean,
                &at(brick.percentiles.p50_ns, "p50_ns"),
                &at(brick.percentiles.p99_ns, "p99_ns"),
            ],
        );
    }
    let rest = bricks.get(MOST_ROWS..).unwrap_or_default();
    if !rest.is_empty() {
        let ns = rest.iter().fold(0, |sum, b| u64::saturating_add(sum, b.stats.exclusive_ns));
        let spans = rest.iter().fold(0, |sum, b| u64::saturating_add(sum, b.stats.count));
        let froms = |field: &str| sum(rest.iter().map(|b| source.of_total(b, field)).collect());
        add(
            "rest",
            &[
                "further bricks",
                "",
                &share(ns, froms("exclusive_ns")),
                &unit.show(ns, froms("exclusive_ns")),
                "",
                &number(spans, froms("count")),
            ],
        );
    }
    if let Some((phase, total)) = of_phase {
        let rest = if source.is_device { "gaps" } else { "unattributed" };
        let passes = || counted(total.passes, "pass", source.of_phase(phase, "passes"));
        for (name, ns, field, class) in [
            (rest, total.unattributed_ns, "unattributed_ns", "unattributed"),
            ("wall", total.wall_ns, "wall_ns", "wall"),
        ] {
            let bar = bar(ns as f64 / whole as f64, &format!("c-{class}"));
            let bar = if class == "wall" { String::new() } else { bar };
            let is_sum = class == "wall" && source.judged.is_some();
            let name = if is_sum { "sum" } else { name };
            add(
                class,
                &[
                    name,
                    &bar,
                    &share(ns, source.of_phase(phase, field)),
                    &unit.show(ns, source.of_phase(phase, field)),
                    "",
                    &passes(),
                ],
            );
        }
    }
    html.push_str(&table.end());
    if bricks.iter().any(|brick| brick.source == Clock::HostOrder) {
        html.push_str(&note(
            "† host order: from its issue to the next one’s, the last to the end.",
        ));
    }
    if of_phase.is_some() {
        html.push_str(&note(
            "Time excludes inner bricks; together with the unattributed time it adds up to the wall time. \
             Mean and percentiles are of whole spans.",
        ));
    }
}

fn categories(source: &Source<'_>, phase: Phase, html: &mut String) {
    let profile = source.profile;
    let wall = profile.phase(phase).map_or(0, |total| total.wall_ns);
    let unit = Unit::of(wall);
    let time = format!("#Time, {}", unit.name);
    let caption = format!("Categories of {phase}");
    let mut table =
        Table::of_class("bricks", &caption, &["Category", "Share", "#%", &time, "#Spans"]);
    let mut any = false;
    for (category, stats) in BrickCategory::ALL.into_iter().zip(profile.categories(Some(phase))) {
        let of = |total: &&Total| total.phase == Some(phase) && total.category == Some(category);
        let froms = |field: &str| {
            let totals = profile.totals.iter().filter(of);
            sum(totals.map(|total| source.of_total(total, field)).collect())
        };
        if stats.count == 0 && stats.total_ns == 0 {
            continue;
        }
        any = true;
        let class = colour(Some(category));
        let share = stats.total_ns as f64 / wall as f64;
        table.row(&[
            &format!("<span class=\"dot {class}\" aria-hidden=\"true\"></span>{category}"),
            &bar(share, class),
            &percent(share, div(froms("exclusive_ns"), source.of_phase(phase, "wall_ns"))),
            &unit.show(stats.total_ns, froms("exclusive_ns")),
            &number(stats.count, froms("count")),
        ]);
    }
    if any {
        html.push_str(&table.end());
    }
}

fn kernels(source: &Source<'_>, phase: Option<Phase>, html: &mut String) {
    let kernels = source.profile.kernels(phase);
    if kernels.is_empty() {
        return;
    }
    let unit = Unit::of(kernels[0].stats.total_ns);
    let each = kernels.iter().map(|b| b.stats.total_ns.checked_div(b.stats.count).unwrap_or(0));
    let each_unit = Unit::of(each.max().unwrap_or(0));
    let time = format!("#Time, {}", unit.name);
    let mean = format!("#Mean, {}", each_unit.name);
    let caption = format!("Kernels of {}", heading(phase).to_lowercase());
    let mut table = Table::new(
        &caption,
        &["Kernel", "Works on", "#Launches", &time, &mean, "#GB/s", "#GFLOP/s"],
    );
    for kernel in kernels.iter().take(MOST_ROWS) {
        let stats = &kernel.stats;
        let from = |field: &str| source.of_total(kernel, field);
        let launch = match (&kernel.host, &kernel.device) {
            (Some(host), _) => said(&host.shape),
            (_, Some(device)) => said(&device.shape),
            _ => String::new(),
        };
        let rate = |work: u64, field: &str| {
            if work == 0 || stats.total_ns == 0 {
                return absent("-");
            }
            // A byte per nanosecond is a gigabyte per second.
            let rate = work as f64 / stats.total_ns as f64;
            scaled(rate, 1.0, "", div(from(field), from("total_ns")))
        };
        let mean = stats.mean_ns().map_or_else(
            || absent("-"),
            |mean| each_unit.show(mean, div(from("total_ns"), from("count"))),
        );
        table.row(&[
            &said(&stats.name),
            &launch,
            &number(stats.count, from("count")),
            &unit.show(stats.total_ns, from("total_ns")),
            &mean,
            &rate(stats.total_bytes, "total_bytes"),
            &rate(stats.total_flops, "total_flops"),
        ]);
    }
    let mut inside = table.end();
    if kernels.len() > MOST_ROWS {
        inside.push_str(&note(
            "These are the longest; <code>brickscope show RUN --as kernels</code> lists all.",
        ));
    }
    html.push_str(&details(&caption, &inside));
}
