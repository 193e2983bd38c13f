//! Runs over time, for a comment or a page.

use std::fmt::Write;

use brickscope_profile::text::screened_lines;

use super::{
    BuiltOf, MOST_BRICKS, brick_cells, headline, legend, listed, machine, moment, new_there,
    no_change, notes, sentence, signed, title,
};
use crate::history::{Figures, History};
use crate::text::markdown as cell;
use crate::view::fleet::fleet_lines;
use crate::words::short;

/// Each series as a heading, a table and its changes.
#[must_use]
pub fn history_markdown(history: &History) -> String {
    let mut text = format!("{}\n", cell(&headline(history)));
    for series in &history.series {
        let [ran, on] = title(series, &history.measure).map(|line| cell(&line));
        let built_of = BuiltOf::of(series);
        let _ = writeln!(text, "\n### {ran}\n\n{on}\n");
        let unit = history.measure.unit();
        let (last, aligned) = match series.fleet {
            Some(_) => ("machine", "---"),
            None => ("before | level", "---:|---:"),
        };
        let _ = writeln!(
            text,
            "| time (UTC) | {} | {unit} | least | most | {last} | |\n|---|---|---:|---:|---:|{aligned}|---|",
            built_of.name()
        );
        for (i, point) in series.points.iter().enumerate() {
            let figure = |of: fn(&Figures) -> f64| {
                point.figures.as_ref().map_or("-".to_owned(), |figures| short(of(figures)))
            };
            let is_change = series.changes.iter().any(|change| change.at == i as u64);
            let mark = if is_change { "**change** " } else { "" };
            let last = match series.fleet {
                Some(_) => cell(&machine(point, 64)),
                None => {
                    format!("{} | {}", signed(point.against_before), signed(point.against_level))
                }
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {last} | {mark}{} |",
                cell(&moment(&point.time)),
                cell(&built_of.cell(point)),
                figure(|f| f.median),
                figure(|f| f.low),
                figure(|f| f.high),
                notes(point)
            );
        }
        text.push('\n');
        for change in &series.changes {
            let _ = writeln!(text, "- {}", cell(&sentence(change, &history.measure)));
            if let Some(new) = new_there(change) {
                let _ = writeln!(text, "  - {}", cell(&new));
            }
            if let Some(absent) = &change.bricks_absent {
                let _ = writeln!(text, "  - no bricks: {}", cell(absent));
            }
            for brick in change.bricks.iter().take(MOST_BRICKS) {
                let [before, after, difference, part] = brick_cells(brick);
                let name = cell(&brick.name);
                let _ = writeln!(
                    text,
                    "  - {name}: {before} to {after} µs per token, {difference}, {part} of the change"
                );
            }
        }
        if let Some(fleet) = &series.fleet {
            let _ = write!(text, "```text\n{}```\n", fleet_lines(fleet));
        } else if series.changes.is_empty() {
            let _ = writeln!(text, "{}", cell(&no_change(series)));
        }
    }
    for (i, line) in legend(history).iter().enumerate() {
        let _ = writeln!(text, "{}{}  ", if i == 0 { "\n" } else { "" }, cell(line));
    }
    for (title, list) in [("Not verified", &history.not_verified), ("Left out", &history.left_out)]
    {
        if !list.is_empty() {
            let _ = writeln!(text, "\n{title}:\n");
        }
        for line in listed(list) {
            let _ = writeln!(text, "- {}", cell(&line));
        }
    }
    screened_lines(text)
}
