//! Imported profiles in the report: where they are from, and what they lack.

use std::fmt::Write;

use brickscope_profile::text::{MOST_ROWS, count, percent, printable, printable_text, shortened};
use brickscope_profile::{FunctionSamples, Profile};

use crate::view::report::labelled;

/// What there is of a file that tells of no passes, in a sentence.
pub(super) fn without_passes(profile: &Profile) -> String {
    let samples = profile.imported.iter().flat_map(|imported| &imported.samples);
    let samples = samples.fold(0_u64, |sum, row| sum.saturating_add(row.own));
    if samples > 0 {
        return format!("It has {} but no times.", count(samples, "sample"));
    }
    let bricks = profile.bricks(None);
    let sum = bricks.iter().fold(0_u64, |sum, brick| sum.saturating_add(brick.stats.exclusive_ns));
    match bricks.first() {
        Some(top) => format!(
            "It has no passes; {} takes the most time, {}.",
            printable(&top.stats.name),
            percent(top.stats.exclusive_ns as f64, sum as f64)
        ),
        None => "It is empty.".to_owned(),
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
    for function in shown {
        text.push_str(&row(
            &shortened(&function.name, 44, ""),
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

/// What the file says of how it was measured, what it can't tell, and what was left out of it.
pub(super) fn limits(profile: &Profile, text: &mut String) {
    let Some(imported) = &profile.imported else { return };
    let mut lines = Vec::new();
    let conditions = imported.conditions.iter().filter(|(_, value)| !value.is_empty());
    let conditions: Vec<String> = conditions
        .map(|(name, value)| format!("{} {}", printable(name), printable_text(value)))
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
    labelled(&lines, text);
}
