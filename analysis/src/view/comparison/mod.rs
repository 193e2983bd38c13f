//! The result of a comparison: one sentence, then the tables. As text, Markdown, JSON and Bencher's
//! format.

mod headline;

use std::fmt::Write;

use brickscope_profile::save;
use brickscope_profile::text::{
    count, printable, printable_text, screened, screened_lines, shortened,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use self::headline::comparison_headline;
use crate::compare::{Change, Compared, Comparison, Outcome, Pairing, Sample, TestChange, Verdict};
use crate::text::{broken, markdown, wrap};
use crate::view::doubts::doubts;
use crate::view::moved::bytes_in_words;
use crate::view::ranks_compared;

/// Why tests weren't compared, a line for each.
pub(super) fn not_compared(comparison: &Comparison) -> Vec<String> {
    let shown = comparison.left_out.iter().take(MOST_LEFT_OUT);
    let mut lines: Vec<String> =
        shown.map(|test| format!("not compared: {}: {test}", printable(&test.name))).collect();
    let more = comparison.left_out.len().saturating_sub(MOST_LEFT_OUT);
    if more > 0 {
        lines.push(format!("not compared: {}; --json has them", count(more as u64, "more test")));
    }
    lines
}

/// The most rows that a note names.
const MOST_NAMED: usize = 6;

/// The most tests that are listed of those that weren't compared.
const MOST_LEFT_OUT: usize = 8;

/// Whether a test is timed as a whole, as one of a benchmark's list, so that it has no parts.
fn is_whole(test: &TestChange) -> bool {
    test.sample == Sample::Repetition && test.categories.is_empty() && test.bricks.is_empty()
}

pub(super) fn title(test: &TestChange) -> String {
    match test.phase {
        Some(phase) if phase.name() != test.name => {
            format!("{} ({})", phase.name(), printable(&test.name))
        }
        _ => printable(&test.name),
    }
}

fn named(row: &Change) -> String {
    format!("{} {}", printable(&row.name), interval(row))
}

/// `+3.1 % [+2.4, +3.9]`.
fn interval(row: &Change) -> String {
    match (row.change, row.low, row.high) {
        (Some(change), Some(low), Some(high)) => {
            format!("{} % [{}, {}]", signed(change), signed(low), signed(high))
        }
        _ => "n/a".to_owned(),
    }
}

/// `+3.1 % time [+2.4, +3.9]`: beside rates, which fall by less than times grow, or where it might be a share.
pub(super) fn in_time(interval: &str) -> String {
    interval.replacen(" %", " % time", 1)
}

/// A fraction in percent, without its sign: two digits after the point below 1 %.
fn plain(part: f64) -> String {
    let percent = 100.0 * part;
    let digits = if percent.abs() < 0.995 { 2 } else { usize::from(percent.abs() < 99.95) };
    format!("{percent:.digits$}")
}

pub(super) fn percent(part: f64) -> String {
    format!("{} %", plain(part))
}

/// The smallest change that is seen. With two processes a side it may have a hundred digits, which
/// only means that no change is.
fn seen(part: f64) -> String {
    if part > 10.0 { "more than 1000 %".to_owned() } else { percent(part) }
}

/// A change in percent, with its sign.
pub(super) fn signed(part: f64) -> String {
    let text = plain(part);
    let is_zero = text.chars().all(|c| !c.is_ascii_digit() || c == '0');
    match (is_zero, text.strip_prefix('-')) {
        (true, _) => "0".to_owned(),
        (_, Some(text)) => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// Nanoseconds in the unit that leaves three digits or four.
pub(super) fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// As [`duration`], for a time that a side may lack.
pub(super) fn duration_or_absent(ns: Option<f64>) -> String {
    ns.map_or_else(|| "absent".to_owned(), duration)
}

/// The comparison as text of at most 80 columns, names of files aside.
#[must_use]
pub fn comparison(comparison: &Comparison) -> String {
    let mut out = String::new();
    for line in wrap(&comparison_headline(comparison), 80) {
        let _ = writeln!(out, "{line}");
    }
    write_warnings(&unlike(comparison), &mut out);
    let _ = writeln!(out);
    for (letter, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        let _ = writeln!(out, "{letter}  {}", side_line(side));
    }
    for line in notes(comparison) {
        for line in wrap(&line, 77) {
            let _ = writeln!(out, "   {line}");
        }
    }
    for tests in tables(comparison) {
        let bare = tests[0].is_bare();
        let (row, columns): (Row, _) = match bare {
            true => (bare_row, "       A        B       B:A  verdict"),
            false => (row, "       A        B  change       interval   sees  verdict"),
        };
        let test = tests[0];
        if is_whole(test) {
            let _ = writeln!(out, "\n{:NAME$} {columns}", "one repetition of");
            for test in tests {
                let name = title(test);
                let is_long = name.chars().count() > NAME;
                for line in broken(&name, 80).into_iter().filter(|_| is_long) {
                    let _ = writeln!(out, "{line}");
                }
                row(&mut out, if is_long { "" } else { &name }, &test.whole);
            }
            continue;
        }
        let name = shortened(&title(test), NAME, "");
        let _ = writeln!(out, "\n{name:NAME$} {columns}");
        row(&mut out, test.sample.whole(), &test.whole);
        for part in &test.categories {
            row(&mut out, &part.name, part);
        }
        if !test.bricks.is_empty() {
            let _ = writeln!(out);
        }
        for part in &test.bricks {
            row(&mut out, &part.name, part);
        }
        if let Some([a, b]) = beyond(test) {
            let _ = writeln!(out, "{BEYOND:NAME$} {:>8} {:>8}", duration(a), duration(b));
        }
        for line in test_notes(test) {
            for line in wrap(&line, 80) {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    if let Some(of) = &comparison.ranks {
        ranks_compared::section(of, &mut out);
    }
    let _ = writeln!(out);
    let below = warnings(comparison);
    write_warnings(&below, &mut out);
    if !below.is_empty() {
        let _ = writeln!(out);
    }
    for line in wrap(&legend(comparison), 80) {
        let _ = writeln!(out, "{line}");
    }
    screened_lines(out)
}

/// Columns of a row's name.
const NAME: usize = 18;

/// The tests of each table: those of a benchmark's list, which have no parts, share one.
fn tables(comparison: &Comparison) -> Vec<Vec<&TestChange>> {
    let mut tables: Vec<Vec<&TestChange>> = Vec::new();
    for test in &comparison.tests {
        let is_same =
            |of: &&TestChange| is_whole(of) && is_whole(test) && of.is_bare() == test.is_bare();
        match tables.last_mut() {
            Some(table) if table.first().is_some_and(is_same) => table.push(test),
            _ => tables.push(vec![test]),
        }
    }
    tables
}

fn write_warnings(warnings: &[String], out: &mut String) {
    for warning in warnings {
        for (n, line) in wrap(warning, 78).into_iter().enumerate() {
            let _ = writeln!(out, "{}{line}", if n == 0 { "! " } else { "  " });
        }
    }
}

/// The row of what the rows of bricks don't add up to.
const BEYOND: &str = "(not in the rows)";

/// What a test takes beyond its bricks, on both sides, if that is more than what smaller ones take: medians of bricks don't
/// add up to the median of passes where each pass had another brick disturbed.
fn beyond(test: &TestChange) -> Option<[f64; 2]> {
    const LEAST: f64 = 0.05;
    let wholes = [test.whole.a_ns?, test.whole.b_ns?];
    let sum = |of: fn(&Change) -> Option<f64>| test.bricks.iter().filter_map(of).sum::<f64>();
    let beyond = [wholes[0] - sum(|row| row.a_ns), wholes[1] - sum(|row| row.b_ns)];
    let small: f64 = test.small.iter().map(|(_, share)| share).sum();
    let is_much = beyond.iter().zip(wholes).any(|(ns, whole)| *ns > (LEAST + small) * whole);
    let is_alike = test.only_in_a.is_empty() && test.only_in_b.is_empty();
    let is_told = is_much && is_alike && !test.bricks.is_empty();
    is_told.then(|| beyond.map(|ns| ns.max(0.0)))
}

/// Writes a row of a table.
type Row = fn(&mut String, &str, &Change);

/// How often A's time goes into B's.
fn times(row: &Change) -> String {
    match (row.a_ns, row.b_ns) {
        (Some(a), Some(b)) if a > 0.0 => format!("{:.3}", b / a),
        _ => "-".to_owned(),
    }
}

/// What each side took, and how often A's time goes into B's.
fn bare_row(out: &mut String, name: &str, row: &Change) {
    let name = shortened(name, NAME, "");
    let _ = writeln!(
        out,
        "{name:NAME$} {:>8} {:>8} {:>9}  {}",
        duration_or_absent(row.a_ns),
        duration_or_absent(row.b_ns),
        times(row),
        row.verdict.name()
    );
}

fn row(out: &mut String, name: &str, row: &Change) {
    let name = shortened(name, NAME, "");
    let change = row.change.map_or_else(|| "n/a".to_owned(), |change| signed(change) + " %");
    let interval = match (row.low, row.high) {
        (Some(low), Some(high)) => format!("[{}, {}]", signed(low), signed(high)),
        _ => "n/a".to_owned(),
    };
    let visible = row.visible.map_or_else(
        || "n/a".to_owned(),
        |visible| {
            if visible > 10.0 { ">1000%".to_owned() } else { plain(visible) + "%" }
        },
    );
    let _ = writeln!(
        out,
        "{name:NAME$} {:>8} {:>8} {change:>7} {interval:>14} {visible:>6}  {}",
        duration_or_absent(row.a_ns),
        duration_or_absent(row.b_ns),
        row.verdict.name()
    );
}

/// What a reader must know before any figure: that the sides ran other things.
fn unlike(comparison: &Comparison) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(of_other_programs(comparison));
    if !comparison.forced.is_empty() {
        warnings.push(
            "Forced: the two ran under different conditions, which any change can come from:"
                .to_owned(),
        );
        warnings.extend(
            comparison.forced.iter().map(|difference| printable_text(&difference.to_string())),
        );
    }
    warnings
}

/// What makes the figures less sure.
fn warnings(comparison: &Comparison) -> Vec<String> {
    let mut warnings = Vec::new();
    for (letter, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        if side.disturbed > 0 {
            warnings.push(format!(
                "{} of {} samples of {letter} were disturbed by other work on the machine; the \
                 figures include them",
                side.disturbed, side.samples
            ));
        }
        warnings.extend(doubts(side).into_iter().map(|doubt| format!("{letter}, {doubt}")));
    }
    warnings
}

/// What tells that sides that don't state it are other programs or models.
fn of_other_programs(comparison: &Comparison) -> Option<String> {
    let [a, b] = comparison.kernels_in_both.filter(|_| comparison.is_of_other_programs())?;
    let common = match a > 0.0 || b > 0.0 {
        true => format!(
            "Kernels that are in both take {} of A's time in kernels and {} of B's",
            percent(a),
            percent(b)
        ),
        false => "No kernel is in both".to_owned(),
    };
    Some(format!("{common}: these are other programs or models"))
}

fn processes(n: usize) -> String {
    format!("{n} {}", if n == 1 { "process" } else { "processes" })
}

fn side_line(side: &Compared) -> String {
    format!(
        "{}, {}, {}",
        printable_text(&side.name),
        processes(side.processes),
        count(side.samples, "sample")
    )
}

fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = vec![match &comparison.pairing {
        Pairing::Paired { pairs } => {
            format!("run in turns: {}", count(pairs.len() as u64, "neighbouring pair"))
        }
        Pairing::Unpaired { reason } => {
            format!(
                "not paired: {}; a machine that changed between the two counts as a change",
                printable_text(reason)
            )
        }
    }];
    notes.extend(not_compared(comparison));
    notes.extend(
        comparison.differences.iter().map(|difference| printable_text(&difference.to_string())),
    );
    notes
}

fn test_notes(test: &TestChange) -> Vec<String> {
    let mut notes = Vec::new();
    if beyond(test).is_some() {
        notes.push(format!(
            "{BEYOND}: rows are medians, and those of bricks don't add up to that of the passes"
        ));
    }
    if !test.small.is_empty() {
        let names: Vec<String> = test
            .small
            .iter()
            .map(|(name, share)| format!("{} {}", printable(name), percent(*share)))
            .collect();
        notes.push(format!("too small to judge: {}", names.join(", ")));
    }
    // The reason of the whole is in the first sentence, in words for a pass.
    let of_whole =
        test.whole.reason.as_ref().map(|reason| reason.replace("a pass's time", "its time"));
    let mut reasons: Vec<(&str, Vec<&Change>)> = Vec::new();
    for row in test.categories.iter().chain(&test.bricks) {
        let Some(reason) = row.reason.as_ref().filter(|of| of_whole.as_ref() != Some(of)) else {
            continue;
        };
        match reasons.iter_mut().find(|(of, _)| of == reason) {
            Some((_, rows)) => rows.push(row),
            None => reasons.push((reason, vec![row])),
        }
    }
    for (reason, rows) in reasons {
        let mut names: Vec<String> =
            rows.iter().take(MOST_NAMED).map(|row| printable(&row.name)).collect();
        if rows.len() > MOST_NAMED {
            names.push(format!("{} more", rows.len() - MOST_NAMED));
        }
        let reason = match rows.len() {
            1 => reason.to_owned(),
            _ => reason.replace("its time", "their times"),
        };
        notes.push(format!("{}: {}", names.join(", "), printable_text(&reason)));
    }
    for (letter, names) in [("A", &test.only_in_a), ("B", &test.only_in_b)] {
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|name| printable(name)).collect();
            notes.push(format!("only in {letter}: {}", names.join(", ")));
        }
    }
    notes.extend(bytes_in_words(test).map(|text| format!("bytes: {}", printable_text(&text))));
    notes
}

fn legend(comparison: &Comparison) -> String {
    if comparison.tests.iter().all(TestChange::is_bare) {
        return "B:A is B's time over A's. Between two runs of the same program it differs from 1, too: several runs of each, \
                in turns, tell how much (`versus`, `benchmark --processes`, `bisect`)."
            .to_owned();
    }
    let unclear: Vec<&Change> = comparison
        .tests
        .iter()
        .flat_map(|test| test.categories.iter().chain(&test.bricks))
        .filter(|row| row.verdict == Verdict::Inconclusive)
        .collect();
    let unsettled = match (unclear.len(), comparison.outcome()) {
        (0, _) => String::new(),
        (n, outcome) => {
            let needed =
                unclear.iter().map(|row| row.processes_needed).collect::<Option<Vec<usize>>>();
            let takes = match needed.and_then(|needed| needed.into_iter().max()) {
                Some(most) => format!("; settling it would take up to {} a side", processes(most)),
                None => String::new(),
            };
            let but = if outcome == Outcome::Pass { ", though the whole is not" } else { "" };
            let are = if n == 1 { "is" } else { "are" };
            let n = count(n as u64, "change");
            format!(" Below the whole, {n} {are} inconclusive{but}{takes}.")
        }
    };
    let level = 100.0 * comparison.level;
    let guarantee = match comparison.pairing {
        Pairing::Paired { .. } => {
            format!(
                "Of comparisons of equal sides, at most {level} % call anything slower or faster."
            )
        }
        Pairing::Unpaired { .. } => format!(
            "The intervals allow for drift within each side, and for the same drift between the two over one \
             session's length; what else changed on the machine in between counts as a change, so the limit of \
             {level} % false alarms holds only for sides that ran in turns."
        ),
    };
    format!(
        "Changes are in time: + is slower. {guarantee} `sees` is the smallest change that {:.0} of 100 comparisons \
         like this one find; a change below {} does not matter.{unsettled}",
        100.0 * comparison.power,
        percent(comparison.threshold)
    )
}

/// The comparison as a comment on a pull request.
#[must_use]
pub fn comparison_markdown(comparison: &Comparison) -> String {
    let mut out = format!("**{}**\n", comparison_headline(comparison));
    for warning in unlike(comparison) {
        let _ = write!(out, "\n> ⚠️ {}\n", markdown(&warning));
    }
    for tests in tables(comparison) {
        let test = tests[0];
        let bare = test.is_bare();
        let of_list = is_whole(test);
        let (columns, line) = match bare {
            true => ("B:A | verdict", "--:|---"),
            false => ("change | interval | sees | verdict", "--:|--:|--:|---"),
        };
        let title_of_table = if of_list { "one repetition of".to_owned() } else { title(test) };
        let _ = write!(
            out,
            "\n| {} | A | B | {columns} |\n|---|--:|--:|{line}|\n",
            markdown(&title_of_table)
        );
        let whole = tests.iter().map(|test| match of_list {
            true => (title(test), &test.whole),
            false => (test.sample.whole().to_owned(), &test.whole),
        });
        // A category and a brick may have the same name.
        let categories =
            test.categories.iter().map(|row| (format!("{} (category)", row.name), row));
        let bricks = test.bricks.iter().map(|row| (row.name.clone(), row));
        for (name, row) in whole.chain(categories).chain(bricks) {
            let change = row.change.map_or_else(|| "n/a".to_owned(), |c| signed(c) + " %");
            let interval = match (row.low, row.high) {
                (Some(low), Some(high)) => format!("{}, {}", signed(low), signed(high)),
                _ => "n/a".to_owned(),
            };
            let visible = row.visible.map_or_else(|| "n/a".to_owned(), seen);
            let verdict = match row.verdict {
                Verdict::Slower => "**slower**",
                Verdict::Faster => "**faster**",
                verdict => verdict.name(),
            };
            let change = match bare {
                true => times(row),
                false => format!("{change} | {interval} | {visible}"),
            };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {change} | {verdict} |",
                markdown(&name),
                duration_or_absent(row.a_ns),
                duration_or_absent(row.b_ns)
            );
        }
        for line in test_notes(test) {
            let _ = write!(out, "\n{}\n", markdown(&line));
        }
    }
    if let Some(of) = &comparison.ranks {
        ranks_compared::section_markdown(of, &mut out);
    }
    for warning in warnings(comparison) {
        let _ = write!(out, "\n> ⚠️ {}\n", markdown(&warning));
    }
    let _ = write!(out, "\n<details><summary>What was compared</summary>\n\n");
    for (letter, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        let _ = writeln!(out, "- {letter}: {}", markdown(&side_line(side)));
    }
    for note in notes(comparison) {
        let _ = writeln!(out, "- {}", markdown(&note));
    }
    let _ = write!(out, "\n{}\n\n</details>\n", markdown(&legend(comparison)));
    screened_lines(out)
}

/// The comparison as JSON: `outcome` and `headline` first, then all fields of [`Comparison`].
#[must_use]
pub fn comparison_json(comparison: &Comparison) -> String {
    #[derive(Serialize)]
    struct WithOutcome<'c> {
        outcome: Outcome,
        headline: String,
        #[serde(flatten)]
        comparison: &'c Comparison,
    }
    let headline = comparison_headline(comparison);
    let outcome = comparison.outcome();
    screened(save::to_json(&WithOutcome { outcome, headline, comparison }))
}

/// Side B in Bencher Metric Format: latencies in nanoseconds, throughputs in tokens per second, each
/// with its 95 % interval where there are several processes.
#[must_use]
pub fn comparison_bmf(comparison: &Comparison) -> String {
    let metric = |value: f64, interval: Option<(f64, f64)>| {
        let mut metric = json!({ "value": value });
        if let Some((low, high)) = interval {
            metric["lower_value"] = json!(low);
            metric["upper_value"] = json!(high);
        }
        metric
    };
    let mut all = Map::new();
    for test in &comparison.tests {
        let rate = |ns: f64| test.tokens as f64 * 1e9 / ns;
        let whole = &test.whole;
        if let Some(b_ns) = whole.b_ns {
            let mut measures = json!({ "latency": metric(b_ns, whole.b_interval_ns) });
            if test.tokens > 0 {
                // A shorter time is a higher rate: the ends swap.
                let interval = whole.b_interval_ns.map(|(low, high)| (rate(high), rate(low)));
                measures["throughput"] = metric(rate(b_ns), interval);
            }
            all.insert(test.name.clone(), measures);
        }
        // A category and a brick may have the same name.
        let categories = test.categories.iter().map(|row| ("category/", row));
        for (kind, row) in categories.chain(test.bricks.iter().map(|row| ("", row))) {
            let Some(b_ns) = row.b_ns else { continue };
            let latency = metric(b_ns, row.b_interval_ns);
            all.insert(format!("{}/{kind}{}", test.name, row.name), json!({ "latency": latency }));
        }
    }
    screened(format!("{:#}\n", Value::Object(all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_has_no_more_digits_than_it_tells() {
        assert_eq!([seen(0.062), seen(10.0), seen(1e200)], ["6.2 %", "1000 %", "more than 1000 %"]);
        assert_eq!(seen(f64::INFINITY), "more than 1000 %");
        let change = Change {
            name: "whole".to_owned(),
            share: Some(1.0),
            a_ns: Some(1e6),
            b_ns: Some(1e6),
            b_interval_ns: None,
            change: Some(0.0),
            low: None,
            high: None,
            visible: Some(1e200),
            processes_needed: None,
            verdict: Verdict::Inconclusive,
            reason: None,
        };
        let mut line = String::new();
        row(&mut line, "whole", &change);
        assert!(line.contains(" >1000% "), "{line}");
    }
}
