//! A flamegraph's figures as text for a terminal.

use std::fmt::Write;

use super::captions::{self, Written, amount};
use super::summary::Summary;
use crate::figures::fine_percent_of;
use crate::text::{columns, cut, cut_front, padded, printable_text, wrapped};

/// Columns of a line at most.
const WIDTH: usize = 80;
/// Columns of a weight with its unit, and of a share.
const WEIGHT: usize = 16;
const SHARE: usize = 9;

/// The headline, the largest bricks and functions, the classes, the warnings and the files, at most 80
/// columns wide.
pub(crate) fn text(summary: &Summary, files: &[Written]) -> String {
    let mut text = String::new();
    wrapped("", &captions::headline(summary), &mut text);
    text.push('\n');
    line("model", &captions::model(summary), &mut text);
    line("workload", &captions::workload(summary), &mut text);
    line("machine", &captions::hardware(summary), &mut text);
    line("source", &captions::source(&summary.source), &mut text);
    for warning in &summary.warnings {
        line("warning", warning, &mut text);
    }
    for hidden in captions::hidden(summary) {
        line("picture", &hidden, &mut text);
    }
    bricks(summary, &mut text);
    functions(summary, &mut text);
    classes(summary, &mut text);
    agreement(summary, &mut text);
    if !files.is_empty() {
        text.push('\n');
    }
    for Written { path, what } in files {
        // A path is never broken, so that it can be copied.
        let _ = writeln!(text, "{:10}{}", "written", printable_text(path));
        let _ = writeln!(text, "{:10}{}", "", cut(&printable_text(what), WIDTH - 10));
    }
    text
}

fn line(name: &str, value: &str, text: &mut String) {
    // A word that is longer than a line would break the layout.
    let words = printable_text(value);
    let words: Vec<String> = words.split(' ').map(|word| cut(word, WIDTH - 10)).collect();
    wrapped(&format!("{name:10}"), &words.join(" "), text);
}

fn bricks(summary: &Summary, text: &mut String) {
    let bricks = captions::bricks(summary);
    if bricks.is_empty() {
        return;
    }
    heading(["brick", "phase"], &[("weight", WEIGHT), ("share", SHARE)], text);
    for brick in bricks.iter().take(captions::MOST_ROWS) {
        let phase = brick.phase.map_or("", |phase| phase.name());
        row(
            [&brick.name, phase],
            &[
                (&amount(brick.weight, summary.unit), WEIGHT),
                (&fine_percent_of(brick.weight, summary.total), SHARE),
            ],
            text,
        );
    }
    more(summary, bricks.iter().map(|brick| brick.weight), text);
}

fn functions(summary: &Summary, text: &mut String) {
    let functions = captions::functions(summary);
    if functions.is_empty() {
        return;
    }
    heading(["function", ""], &[("self", WEIGHT), ("share", SHARE), ("total", SHARE)], text);
    for function in functions.iter().take(captions::MOST_ROWS) {
        let total = fine_percent_of(function.weight, summary.total);
        row(
            [&function.name, ""],
            &[
                (&amount(function.self_weight, summary.unit), WEIGHT),
                (&fine_percent_of(function.self_weight, summary.total), SHARE),
                (&total, SHARE),
            ],
            text,
        );
    }
    more(summary, functions.iter().map(|function| function.self_weight), text);
}

fn classes(summary: &Summary, text: &mut String) {
    heading(["class", ""], &[("self", WEIGHT), ("share", SHARE)], text);
    for class in captions::classes(summary) {
        let weight = class.self_weight;
        row(
            [class.name.name(), ""],
            &[
                (&amount(weight, summary.unit), WEIGHT),
                (&fine_percent_of(weight, summary.total), SHARE),
            ],
            text,
        );
    }
}

/// The differing shares, or a line that all agree. The whole table is in the Markdown.
fn agreement(summary: &Summary, text: &mut String) {
    let Some(agreement) = &summary.agreement else {
        if let Some(absent) = &summary.agreement_absent {
            text.push('\n');
            line("agreement", &format!("not told: {}", absent.reason), text);
        }
        return;
    };
    text.push('\n');
    let Some(warning) = captions::warning(agreement) else {
        let n = agreement.bricks.len();
        let few = captions::too_few(agreement);
        if few > 0 {
            let said = format!(
                "too few samples ({}) to compare the shares of {few} of {n} bricks with the measured ones",
                agreement.samples
            );
            return line("agreement", &said, text);
        }
        let said = format!(
            "the sampled shares of all {n} bricks agree with the measured ones, as far as {} samples show",
            agreement.samples
        );
        line("agreement", &said, text);
        return;
    };
    line("warning", &format!("sampled and measured shares: {warning}"), text);
    for brick in &agreement.bricks {
        let [sampled, measured, difference, allowed, verdict] = captions::compared(brick);
        if verdict == "differs" {
            let said = format!(
                "{} of {}: sampled {sampled}, measured {measured}, {difference} points where \
                 {allowed} are allowed",
                brick.brick,
                brick.phase.name()
            );
            line("", &said, text);
        }
    }
}

/// The header of a table and a line below it. The last columns are numbers of these widths.
fn heading(names: [&str; 2], numbers: &[(&str, usize)], text: &mut String) {
    text.push('\n');
    row(names, numbers, text);
    let _ = writeln!(text, "{}", "-".repeat(WIDTH));
}

/// A row: a name, its phase, and numbers of these widths. A long name loses its beginning.
fn row([name, of]: [&str; 2], numbers: &[(&str, usize)], text: &mut String) {
    let of = if of.is_empty() { String::new() } else { format!(" {of:8}") };
    // A number may need more room than its column has.
    let numbers = numbers.iter().map(|&(number, width)| (number, width.max(columns(number) + 1)));
    let taken: usize = numbers.clone().map(|(_, width)| width).sum();
    let room = WIDTH.saturating_sub(taken + of.len());
    let name = padded(&cut_front(&printable_text(name), room), room);
    let _ = write!(text, "{name}{of}");
    for (number, width) in numbers {
        let _ = write!(text, "{number:>width$}");
    }
    text.push('\n');
}

fn more(summary: &Summary, weights: impl Iterator<Item = u64>, text: &mut String) {
    text.extend(captions::more(summary, weights).map(|more| more + "\n"));
}

#[cfg(test)]
mod tests {
    use super::super::captions::tests::{files, summary};
    use super::*;

    #[test]
    fn a_summary_for_a_terminal() {
        insta::assert_snapshot!(text(&summary(), &files()));
    }

    #[test]
    fn nothing_is_wider_than_a_terminal() {
        let mut summary = summary();
        summary.bricks[0].name = "brick".repeat(40);
        summary.warnings.push("x".repeat(200));
        // Folded stacks of other programs may count anything.
        summary.total = u64::MAX;
        for share in &mut summary.functions {
            share.self_weight = u64::MAX;
            share.weight = u64::MAX;
        }
        let text = text(&summary, &[]);
        for line in text.lines() {
            assert!(columns(line) <= WIDTH, "{line}");
        }
    }
}
