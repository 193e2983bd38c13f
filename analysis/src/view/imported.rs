//! Imported profiles in the report: where they are from, and what they lack.

use std::fmt::Write;

use brickscope_profile::run::Format;
use brickscope_profile::text::{
    MOST_ROWS, alike_when_cut, count, percent, printable, printable_in, printable_text, shortened,
};
use brickscope_profile::{FunctionSamples, Phase, Profile, StepTold, Unruled};

use crate::rate::{Rate, TestRow, imported_tests};
use crate::text::{cut, hanging};
use crate::typical;
use crate::view::layout::labelled;
use crate::view::{by_the_file, layers, ranks};
use crate::words::{digits, fraction, time};

/// The most tests of a benchmark that the report lists.
const MOST_TESTS: usize = 100;

/// The most kernels for which the report writes a line of a table.
const MOST_PATTERNS: usize = 5;

/// What there is of a file that tells of no passes, in a sentence.
pub(super) fn without_passes(profile: &Profile) -> String {
    let samples = profile.imported.iter().flat_map(|imported| &imported.samples);
    let samples = samples.fold(0_u64, |sum, row| sum.saturating_add(row.own));
    if samples > 0 {
        let rows = profile.imported.iter().flat_map(|imported| &imported.samples);
        let top = rows.max_by_key(|row| row.own).map_or_else(String::new, |top| {
            format!(
                "; {} has {} of them",
                printable(&top.name),
                percent(top.own as f64, samples as f64)
            )
        });
        return format!("It has {} but no times{top}.", count(samples, "sample"));
    }
    let bricks = profile.bricks(None);
    let sum = bricks.iter().fold(0_u64, |sum, brick| sum.saturating_add(brick.stats.exclusive_ns));
    match bricks.first() {
        Some(top) => format!(
            "It has no passes; {} takes the most time, {}.",
            printable(&top.stats.name),
            percent(top.stats.exclusive_ns as f64, sum as f64)
        ),
        None => ranks::alone(profile).unwrap_or_else(|| "It is empty.".to_owned()),
    }
}

/// How long the passes of phases without bricks took, in a sentence: all that is known of them. `None` if no file tells of any.
pub(super) fn whole_passes(profile: &Profile) -> Option<String> {
    profile.imported.as_ref()?;
    let shown = typical::shown(profile);
    let phases = Phase::SHOWN.into_iter().filter_map(|phase| shown.phase(phase));
    let whole = phases.filter(|of| shown.bricks(Some(of.phase)).is_empty());
    let said = whole.filter_map(|of| {
        let passes = count(of.passes, &format!("{} pass", of.phase));
        let each = time(of.wall_ns.checked_div(of.passes)? as f64);
        let rate = Rate::of(profile, of.phase).map(|rate| digits(rate.tokens_per_second));
        let rate = rate.map_or_else(String::new, |rate| format!(" ({rate} tok/s)"));
        Some(format!("{passes} of {each} on average{rate}"))
    });
    let all = said.collect::<Vec<_>>().join(", ");
    (!all.is_empty()).then(|| format!("It has {all}; no brick was recorded in them."))
}

/// The tests of a benchmark, in a sentence; `None` if the file has none.
pub(super) fn of_tests(profile: &Profile) -> Option<String> {
    match &imported_tests(profile)[..] {
        [] => None,
        [one] => Some(format!("It has one test, timed as a whole: {}.", rate_of(one))),
        all => Some(format!("It has {} tests, each timed as a whole.", all.len())),
    }
}

/// `pp512 7098 ± 15 tok/s`
fn rate_of(test: &TestRow) -> String {
    format!("{} {} tok/s", test.name, test.rate)
}

/// Rows of the tests, their columns below each other.
fn rows_of_tests(rows: &[TestRow], how: fn(&TestRow) -> &str) -> Vec<String> {
    let longest = |of: fn(&TestRow) -> &str| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0)
    };
    let (name, width) = (longest(|row| &row.name), longest(|row| &row.rate));
    let line =
        |row: &TestRow| format!("{:name$}  {:>width$} tok/s  {}", row.name, row.rate, how(row));
    rows.iter().map(line).collect()
}

/// What a file has that is no brick of a pass, for the first screen: tests, or functions that were sampled.
pub(super) fn in_summary(profile: &Profile, columns: usize, room: usize) -> Vec<String> {
    let Some(imported) = &profile.imported else { return Vec::new() };
    let mut lines = rows_of_tests(&imported_tests(profile), |row| &row.brief);
    if lines.is_empty() {
        let all = imported.samples.iter().fold(0_u64, |sum, row| sum.saturating_add(row.own));
        let seen = imported.samples.iter().filter(|function| function.own > 0);
        lines.extend(seen.map(|function| {
            let share = fraction(function.own as f64 / all as f64);
            let name = printable(&function.name);
            format!("{share:>7}  {name}, {}", count(function.own, "sample"))
        }));
    }
    let all = lines.len();
    if all > room {
        lines.truncate(room.saturating_sub(1));
        lines.push(format!("… {} more", all - lines.len()));
    }
    lines.iter().map(|line| cut(line, columns)).collect()
}

/// What to do with a file that has no bricks; `None` if that isn't known.
pub(super) fn next(profile: &Profile) -> Option<String> {
    let imported = profile.imported.as_ref()?;
    if imported.tests.iter().any(|test| !test.samples_ns.is_empty()) {
        return Some(
            "run both builds or settings five times or more, in turns, with `-o jsonl` to a file each, and compare the two \
             folders of files: `brickscope compare A B` gives no verdict on one run a side"
                .to_owned(),
        );
    }
    if !imported.tests.is_empty() {
        return Some(
            "have llama-bench write its repetitions, `-o jsonl`, to compare it with another build"
                .to_owned(),
        );
    }
    if imported.format == Format::ForwardPassMetrics.name() {
        return Some(
            "to see where passes spend their time, have PyTorch's profiler trace some of them on that server, and import \
             the trace"
                .to_owned(),
        );
    }
    if let Some(next) = ranks::next(profile).filter(|_| imported.samples.is_empty()) {
        return Some(next.to_owned());
    }
    (!imported.samples.is_empty())
        .then(|| format!("draw it: `brickscope flamegraph {}`", printable_text(&imported.file)))
}

/// The tests of a benchmark.
pub(super) fn tests(profile: &Profile, text: &mut String) {
    let tests = imported_tests(profile);
    if tests.is_empty() {
        return;
    }
    text.push_str("\nTests\n");
    let (shown, rest) = tests.split_at(tests.len().min(MOST_TESTS));
    for row in rows_of_tests(shown, |row| &row.how) {
        let _ = writeln!(text, "{}", hanging("", "    ", &row));
    }
    if !rest.is_empty() {
        let _ = writeln!(text, "({} more: `--as json`)", rest.len());
    }
}

/// The functions that were sampled, those seen most first.
pub(super) fn samples(profile: &Profile, text: &mut String) {
    let Some(imported) = profile.imported.as_ref().filter(|of| !of.samples.is_empty()) else {
        return;
    };
    let all = imported.samples.iter().fold(0_u64, |sum, row| sum.saturating_add(row.own));
    let row = |name: &str, own: &str, share: &str, total: &str| {
        format!("{name:44} {own:>10} {share:>7} {total:>10}\n")
    };
    text.push('\n');
    text.push_str(&row("Function", "Own", "Share", "Inclusive"));
    let _ = writeln!(text, "{}", "-".repeat(74));
    let of = |rows: &[FunctionSamples]| {
        rows.iter().fold(0, |sum, row| u64::saturating_add(sum, row.own))
    };
    let (shown, rest) = imported.samples.split_at(imported.samples.len().min(MOST_ROWS));
    let alike = alike_when_cut(shown.iter().map(|function| &*function.name), 44);
    for function in shown {
        let whole = alike.get(&*function.name);
        if let Some(whole) = whole {
            let _ = writeln!(text, "{whole}");
        }
        text.push_str(&row(
            &whole.map_or_else(|| shortened(&function.name, 44, ""), |_| String::new()),
            &function.own.to_string(),
            &percent(function.own as f64, all as f64),
            &function.total.to_string(),
        ));
    }
    if !rest.is_empty() {
        let own = of(rest);
        let share = percent(own as f64, all as f64);
        text.push_str(&row(&format!("({} more)", rest.len()), &own.to_string(), &share, ""));
    }
}

/// How many passes read prompts and generated tokens at once, which are passes of prefill; `None` without any.
pub(super) fn mixed(profile: &Profile) -> Option<String> {
    let steps = profile.imported.iter().flat_map(|imported| &imported.steps);
    let mixed: Vec<&StepTold> = steps.map(|(_, told)| told).filter(|told| told.is_mixed).collect();
    let all = profile.phase(Phase::Prefill).filter(|_| !mixed.is_empty())?.passes;
    let sum = |of: fn(&StepTold) -> Option<u64>| {
        mixed.iter().try_fold(0_u64, |sum, told| Some(sum.saturating_add(of(told)?)))
    };
    let of = match (sum(|told| told.context.tokens), sum(|told| told.generation.tokens)) {
        (Some(prompts), Some(answers)) => {
            format!("{} of prompts and {answers} of answers", count(prompts, "token"))
        }
        (Some(prompts), None) => {
            format!("{} of prompts; those of answers aren't told", count(prompts, "token"))
        }
        (None, Some(answers)) => {
            format!("{} of answers; those of prompts aren't told", count(answers, "token"))
        }
        (None, None) => "how many tokens of prompts and of answers isn't told".to_owned(),
    };
    let passes = if all == 1 { "pass" } else { "passes" };
    Some(format!("{} of {all} prefill {passes} also generated: {of}", mixed.len()))
}

/// In how many passes requests waited for a place, and how many did at most; `None` where none did, or nobody told.
pub(super) fn waiting(profile: &Profile) -> Option<String> {
    let steps = || profile.imported.iter().flat_map(|imported| &imported.steps);
    let waiting = || steps().filter_map(|(_, told)| told.waiting).filter(|&n| n > 0);
    let most = waiting().max()?;
    let preempted = steps().filter_map(|(_, told)| told.preempted).filter(|&n| n > 0).count();
    let preempted = match preempted {
        0 => String::new(),
        n => format!("; in {n} some of them had been preempted"),
    };
    let (n, of) = (waiting().count(), count(steps().count() as u64, "pass"));
    Some(format!("requests waited for a place in {n} of {of}, at most {most} at once{preempted}"))
}

/// How much of devices' time is of kernels that no line of the table of bricks is for.
fn unruled(of: &Unruled) -> String {
    let (are, whose) = if of.names == 1 { ("is", "its brick") } else { ("are", "their bricks") };
    let kernels = count(of.names, "kernel");
    let share = percent(of.ns as f64, of.of_ns as f64);
    format!(
        "{kernels}, {share} of devices' time, {are} in no brick of the table; name {whose} in a file for `import --map`"
    )
}

/// What a reader of an imported file is told of its steps, devices, layers, ranks and kernels.
#[must_use]
pub fn import_in_words(profile: &Profile) -> Vec<String> {
    let unruled =
        profile.imported.iter().filter_map(|imported| imported.unruled.as_ref()).map(unruled);
    let of_devices = by_the_file::details(profile).into_iter().chain(layers::in_words(profile));
    let of_ranks = ranks::in_words(profile);
    let of_steps = mixed(profile).into_iter().chain(waiting(profile));
    of_steps.chain(of_devices).chain(of_ranks).chain(unruled).collect()
}

/// What the file says of how it was measured, what it can't tell, and what was left out of it.
pub(super) fn limits(profile: &Profile, text: &mut String) {
    let Some(imported) = &profile.imported else { return };
    let mut lines = Vec::new();
    // The first sentence has no room for all of it.
    if !profile.devices.is_empty() {
        let program = imported.program.as_ref();
        let program = program.map_or_else(String::new, |of| format!(", by {}", printable_text(of)));
        let (file, format) = (printable_text(&imported.file), printable(&imported.format));
        lines.push(("file", format!("{file} ({format}{program})")));
    }
    let conditions = imported.conditions.iter().filter(|(_, value)| !value.is_empty());
    let conditions: Vec<String> = conditions
        .map(|(name, value)| match value.strip_prefix(name.as_str()) {
            // `with_stack` says itself that it was with it.
            Some(rest) if rest.starts_with('_') => printable_text(value),
            _ => format!("{} {}", printable(name), printable_text(value)),
        })
        .collect();
    if !conditions.is_empty() {
        lines.push(("measured", conditions.join(", ")));
    }
    for (n, lack) in imported.lacks.iter().enumerate() {
        lines.push((if n == 0 { "lacks" } else { "" }, printable_text(&lack.reason)));
    }
    for (n, doubt) in imported.doubts.iter().enumerate() {
        lines.push((if n == 0 { "doubts" } else { "" }, printable_text(doubt)));
    }
    for (n, (why, number)) in imported.left_out.iter().enumerate() {
        lines.push((
            if n == 0 { "left out" } else { "" },
            format!("{}: {number}", printable_text(why)),
        ));
    }
    for (n, said) in by_the_file::details(profile).into_iter().enumerate() {
        lines.push((if n == 0 { "devices" } else { "" }, said));
    }
    for (n, said) in layers::in_words(profile).into_iter().enumerate() {
        lines.push((if n == 0 { "layers" } else { "" }, said));
    }
    lines.extend(mixed(profile).map(|said| ("mixed", said)));
    lines.extend(waiting(profile).map(|said| ("waiting", said)));
    lines.extend(imported.unruled.as_ref().map(|of| ("no brick", unruled(of) + ":")));
    labelled(&lines, text);
    if let Some(of) = imported.unruled.as_ref().filter(|of| !of.longest.is_empty()) {
        let _ = writeln!(text, "{:9} [kernel]", "");
        for (pattern, _) in of.longest.iter().take(MOST_PATTERNS) {
            let pattern = printable_in(pattern, 61);
            let _ = writeln!(text, "{:9} \"{pattern}\" = \"\"", "");
        }
    }
}
