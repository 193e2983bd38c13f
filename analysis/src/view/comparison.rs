//! The result of a comparison: one sentence, then the tables. As text, Markdown, JSON and Bencher's
//! format.

use std::fmt::Write;

use brickscope_profile::save;
use brickscope_profile::text::{
    brief, count, printable, printable_text, screened, screened_lines, shortened,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::compare::{
    Change, Compared, Comparison, LEAST_PROCESSES, LeftOutTest, Outcome, Pairing, Sample,
    TestChange, Verdict,
};
use crate::text::{broken, markdown, wrap};
use crate::view::doubts::doubts;
use crate::view::moved::bytes_in_words;
use crate::view::ranks_compared;
use crate::words::digits;

/// The sentence that says what changed, and where.
#[must_use]
pub fn comparison_headline(comparison: &Comparison) -> String {
    let tests = || comparison.tests.iter();
    let with = |verdict| tests().filter(move |test| test.whole.verdict == verdict);
    let mut sentences = Vec::new();
    sentences.extend(all_changed(with(Verdict::Slower).collect(), "slower"));
    // Of tests that are not slower as a whole.
    for test in tests().filter(|test| test.whole.verdict != Verdict::Slower) {
        let slower: Vec<&Change> = parts(test, Verdict::Slower);
        if !slower.is_empty() {
            let names: Vec<String> = slower.iter().map(|row| named(row)).collect();
            let whole = match test.whole.change {
                Some(_) => format!("changed by {}", interval(&test.whole)),
                None => "is unknown".to_owned(),
            };
            sentences.push(format!(
                "slower in {}: {}; the whole {whole}",
                title(test),
                names.join(", ")
            ));
        }
    }
    sentences.extend(all_changed(with(Verdict::Faster).collect(), "faster"));
    let unclear: Vec<&TestChange> = with(Verdict::Inconclusive).collect();
    let is_all = unclear.len() == comparison.tests.len() && sentences.is_empty();
    sentences.extend(inconclusive(&unclear, is_all, comparison));
    sentences.extend(left_out(comparison));
    if sentences.is_empty() {
        let most = tests()
            .flat_map(|test| [test.whole.low, test.whole.high])
            .flatten()
            .fold(0.0_f64, |most, end| most.max(end.abs()));
        sentences.push(format!(
            "unchanged: no test changed by {} or more (at most by {})",
            percent(comparison.threshold),
            percent(most)
        ));
    }
    let mut text = sentences.join("; ");
    text.push('.');
    text.push_str(&as_measured(comparison));
    // The first letter, unless it is a name's.
    if text.starts_with(|c: char| c.is_ascii_lowercase()) {
        text[..1].make_ascii_uppercase();
    }
    screened_lines(not_verified(comparison) + &of_models(comparison) + &text)
}

/// What the comparison is about, if it is about models.
fn of_models(comparison: &Comparison) -> String {
    let models: Vec<String> =
        comparison.models.iter().map(|of| printable_text(&of.to_string())).collect();
    if models.is_empty() {
        String::new()
    } else {
        format!("Other weights ({}). ", models.join("; "))
    }
}

/// What stands before any verdict if it rests on receipts that may be forged.
fn not_verified(comparison: &Comparison) -> String {
    let sides = [&comparison.a, &comparison.b];
    let all: usize = sides.iter().map(|side| side.processes).sum();
    let refused = sides.iter().flat_map(|side| &side.not_verified);
    let mut reasons: Vec<&str> = refused.clone().map(|(_, reason)| reason.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    match refused.count() {
        0 => String::new(),
        n => format!(
            "Not verified: {n} of {all} receipts ({}). ",
            printable_text(&reasons.join(", "))
        ),
    }
}

/// The most bricks that a sentence names.
const MOST_NAMED: usize = 4;

/// The most tests that a sentence names, each with its figures.
const MOST_TESTS: usize = 3;

/// A sentence for each test that changed; of a long list the number, and those that changed most.
fn all_changed(mut tests: Vec<&TestChange>, how: &str) -> Vec<String> {
    let all = tests.len();
    if all <= MOST_TESTS {
        return tests.into_iter().map(|test| changed(test, how)).collect();
    }
    tests.sort_by(|x, y| {
        let size = |test: &TestChange| test.whole.change.unwrap_or(0.0).abs();
        size(y).total_cmp(&size(x))
    });
    let most = tests.into_iter().take(MOST_TESTS).map(|test| changed(test, how));
    let most: Vec<String> = most.collect();
    vec![format!("{all} tests are {how}; those that changed most: {}", most.join(", "))]
}

/// `decode (tg128) is 2.9 % slower [2.1, 3.8]: GateProjection takes +8.0 % …`. That says where the time went, and not why.
fn changed(test: &TestChange, how: &str) -> String {
    let verdict = test.whole.verdict;
    let bricks = parts(test, verdict);
    let size = test.whole.change.unwrap_or(0.0).abs();
    let ends = [test.whole.low, test.whole.high].map(|end| end.unwrap_or(0.0));
    // "slower" is followed by how much slower, not by a negative number.
    let [low, high] = if verdict == Verdict::Faster { [-ends[1], -ends[0]] } else { ends };
    let within = match &bricks[..] {
        [] if is_whole(test) => String::new(),
        [] => ", but no single brick can be named".to_owned(),
        [first, others @ ..] => {
            let takes = format!("{} takes {}", printable(&first.name), in_time(&interval(first)));
            let others = others.iter().take(MOST_NAMED - 1).map(|row| named(row));
            let names: Vec<String> = [takes].into_iter().chain(others).collect();
            let more = match bricks.len().saturating_sub(MOST_NAMED) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            format!(": {}{more}", names.join(", "))
        }
    };
    let name = brief_title(test);
    // Of a multiple nobody thinks in percent.
    if verdict == Verdict::Slower && size >= MULTIPLE {
        let [times, low, high] = [size, low, high].map(|part| digits(1.0 + part));
        return format!("{name} takes {times} times as long [{low}, {high}]{within}");
    }
    format!("{name} is {} {how} [{}, {}]{within}", percent(size), plain(low), plain(high))
}

/// From this change on it is said how many times as long something takes.
const MULTIPLE: f64 = 2.0;

/// Whether a test is timed as a whole, as one of a benchmark's list, so that it has no parts.
fn is_whole(test: &TestChange) -> bool {
    test.sample == Sample::Repetition && test.categories.is_empty() && test.bricks.is_empty()
}

/// The name of a test within a sentence: that of one of a list may have all settings in it.
fn brief_title(test: &TestChange) -> String {
    if is_whole(test) { brief(&test.name) } else { title(test) }
}

/// The rows below the whole that have this verdict, those that changed by the most time first: bricks
/// or, where none has it, categories.
fn parts(test: &TestChange, verdict: Verdict) -> Vec<&Change> {
    let of = |rows: &'_ [Change]| -> Vec<usize> {
        let mut rows: Vec<(usize, f64)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.verdict == verdict)
            .map(|(index, row)| {
                (index, (row.a_ns.unwrap_or(0.0) * row.change.unwrap_or(0.0)).abs())
            })
            .collect();
        rows.sort_by(|x, y| y.1.total_cmp(&x.1));
        rows.into_iter().map(|(index, _)| index).collect()
    };
    let bricks: Vec<&Change> = of(&test.bricks).into_iter().map(|i| &test.bricks[i]).collect();
    if !bricks.is_empty() {
        return bricks;
    }
    of(&test.categories).into_iter().map(|i| &test.categories[i]).collect()
}

/// Why tests are inconclusive: a sentence for all that have one reason, since a reason says nothing of another test. The
/// tests are named unless one sentence is about all that there are.
fn inconclusive(tests: &[&TestChange], is_all: bool, comparison: &Comparison) -> Vec<String> {
    let mut by_reason: Vec<(Option<&str>, Vec<&TestChange>)> = Vec::new();
    for &test in tests {
        let reason = test.whole.reason.as_deref();
        match by_reason.iter_mut().find(|(of, _)| *of == reason) {
            Some((_, alike)) => alike.push(test),
            None => by_reason.push((reason, vec![test])),
        }
    }
    let is_about_all = is_all && by_reason.len() == 1;
    let sentence = |(reason, tests): &(Option<&str>, Vec<&TestChange>)| {
        let of = match is_about_all {
            true => String::new(),
            false => format!(" for {}", titles(tests)),
        };
        let why = reason.map_or_else(|| unseen(tests, comparison), printable_text);
        format!("inconclusive{of}: {why}")
    };
    by_reason.iter().map(sentence).collect()
}

/// The names of tests within a sentence.
fn titles(tests: &[&TestChange]) -> String {
    let names = tests.iter().take(MOST_NAMED).map(|test| brief_title(test));
    let names: Vec<String> = names.collect();
    match tests.len().saturating_sub(MOST_NAMED) {
        0 => names.join(", "),
        n => format!("{} and {n} more", names.join(", ")),
    }
}

/// The tests of A that B may be slower in, though nobody knows, since not all processes have them.
fn left_out(comparison: &Comparison) -> Option<String> {
    let open: Vec<&LeftOutTest> =
        comparison.left_out.iter().filter(|test| test.leaves_open()).collect();
    let first = open.first()?;
    let more = match open.len() - 1 {
        0 => String::new(),
        n => format!(", and {}", count(n as u64, "more test")),
    };
    Some(format!("nothing can be said of {} ({first}){more}", printable(&first.name)))
}

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

/// The most tests that are listed of those that weren't compared.
const MOST_LEFT_OUT: usize = 8;

/// What can't be seen in tests that more processes would decide.
fn unseen(tests: &[&TestChange], comparison: &Comparison) -> String {
    let rows = || tests.iter().map(|test| &test.whole);
    let worst = rows().filter_map(|row| row.visible).fold(0.0, f64::max);
    let needed = rows().map(|row| row.processes_needed).max_by_key(|n| n.unwrap_or(usize::MAX));
    let needed = match needed.flatten() {
        Some(n) => {
            format!("seeing {} would take {} a side", percent(comparison.threshold), processes(n))
        }
        None => format!("{} can't be seen in this noise", percent(comparison.threshold)),
    };
    format!("the smallest change that this comparison could have seen is {}; {needed}", seen(worst))
}

/// How often what A takes goes into what B takes, of tests without a verdict for want of processes.
fn as_measured(comparison: &Comparison) -> String {
    // Where there are enough, such a figure is chance's.
    if comparison.a.processes.min(comparison.b.processes) >= LEAST_PROCESSES {
        return String::new();
    }
    let few = comparison
        .tests
        .iter()
        .filter(|test| test.whole.verdict == Verdict::Inconclusive && test.whole.visible.is_none());
    let of_test = |test: &TestChange| {
        let (a, b) = test.whole.a_ns.zip(test.whole.b_ns).filter(|(a, _)| *a > 0.0)?;
        Some(format!("{} times as long in {}", digits(b / a), brief_title(test)))
    };
    let all: Vec<String> = few.filter_map(of_test).collect();
    let more = match all.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        n => format!(" (and {n} more below)"),
    };
    let named = all.get(..MOST_NAMED).unwrap_or(&all).join(", ");
    if all.is_empty() { String::new() } else { format!(" As measured, B took {named}{more}.") }
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
    // The reason of the whole is in the first sentence.
    for row in test.categories.iter().chain(&test.bricks) {
        if let Some(reason) = row.reason.as_ref().filter(|_| test.whole.reason != row.reason) {
            notes.push(format!("{}: {}", printable(&row.name), printable_text(reason)));
        }
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
