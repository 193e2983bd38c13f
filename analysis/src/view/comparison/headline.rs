//! The first sentence of a comparison: what changed, by how much, and in which bricks.

use brickscope_profile::text::{brief, count, printable, printable_text, screened_lines};

use super::{in_time, interval, is_whole, named, percent, plain, processes, seen, title};
use crate::compare::{Change, Comparison, LEAST_PROCESSES, LeftOutTest, TestChange, Verdict};
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

/// What can't be seen in tests that more processes would decide.
fn unseen(tests: &[&TestChange], comparison: &Comparison) -> String {
    let rows = || tests.iter().map(|test| &test.whole);
    let needed = rows().map(|row| row.processes_needed).max_by_key(|n| n.unwrap_or(usize::MAX));
    let needed = match needed.flatten() {
        Some(n) => {
            format!("seeing {} would take {} a side", percent(comparison.threshold), processes(n))
        }
        None => format!("{} can't be seen in this noise", percent(comparison.threshold)),
    };
    // It isn't stated where it is more than that.
    let worst = rows().map(|row| row.visible.unwrap_or(f64::INFINITY)).fold(0.0, f64::max);
    if worst > 1.0 {
        return format!("this comparison couldn't have seen even a doubling; {needed}");
    }
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
