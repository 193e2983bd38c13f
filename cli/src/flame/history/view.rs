//! Shares over time as text, Markdown and CSV.

use std::fmt::Write;

use brickscope_analysis::history::LeftOut;
use brickscope_formats::export::csv::cell;

use super::{Family, Flamegraphs, Kind, Move, Point, Series, Shares};
use crate::figures::percent;
use crate::flame::captions::titled;
use crate::flame::diff::named;
use crate::flame::markdown::escaped;
use crate::text::{count, padded, printable, printable_text, wrapped};

/// The most rows of a family; JSON and CSV have all.
const MOST_ROWS: usize = 10;

/// The most points that fit side by side.
const MOST_POINTS: usize = 5;

/// The columns for a name.
const NAME: usize = 34;

impl Flamegraphs {
    /// Text: each series as a table of at most 80 columns, with what moved, and then `left_out`.
    pub(crate) fn text(&self, left_out: &[LeftOut]) -> String {
        let mut out = self.headline(left_out) + "\n";
        for series in &self.series {
            out.push('\n');
            wrapped("", &title(&series.kind), &mut out);
            let skipped = series.points.len().saturating_sub(MOST_POINTS);
            if skipped > 0 {
                let _ = writeln!(out, "the last {MOST_POINTS} of {}", series.points.len());
            }
            let shown = &series.points[skipped..];
            for part in [day, clock] {
                let cells: String =
                    shown.iter().map(|point| format!("{:>8} ", part(point))).collect();
                let _ = writeln!(out, "{:NAME$}{}", "", cells.trim_end());
            }
            for family in Family::ALL {
                let (rows, more) = rows(series, family);
                if rows.is_empty() {
                    continue;
                }
                let _ =
                    writeln!(out, "{} {}", plural(family), "-".repeat(78 - plural(family).len()));
                for row in rows {
                    let cells: String = (skipped..series.points.len())
                        .map(|at| {
                            let mark = if series.is_moved(row, at) { '>' } else { ' ' };
                            format!("{mark}{:>7} ", share(row.shares[at]))
                        })
                        .collect();
                    let line = padded(&titled(row.phase, &row.name, NAME - 1), NAME) + &cells;
                    let _ = writeln!(out, "{}", line.trim_end());
                }
                if let Some(more) = more {
                    let _ = writeln!(out, "{more}");
                }
            }
            for line in moved(series) {
                wrapped("> ", &line, &mut out);
            }
        }
        out.push('\n');
        wrapped("", LEGEND, &mut out);
        if !left_out.is_empty() {
            let _ = writeln!(out, "\nleft out:");
            for LeftOut { path, reason } in left_out {
                wrapped(
                    "  ",
                    &format!("{}: {}", printable_text(path), printable_text(reason)),
                    &mut out,
                );
            }
        }
        out
    }

    /// Markdown, with all points.
    pub(crate) fn markdown(&self, left_out: &[LeftOut]) -> String {
        let mut out = self.headline(left_out) + "\n";
        for series in &self.series {
            let _ = write!(out, "\n### {}\n", escaped(&title(&series.kind)));
            for family in Family::ALL {
                let (rows, more) = rows(series, family);
                if rows.is_empty() {
                    continue;
                }
                let heads: String = series
                    .points
                    .iter()
                    .map(|point| format!(" {} {} |", escaped(&day(point)), escaped(&clock(point))))
                    .collect();
                let _ = write!(
                    out,
                    "\n| {} |{heads}\n|---|{}\n",
                    plural(family),
                    "--:|".repeat(series.points.len())
                );
                for row in rows {
                    let cells: String = (0..series.points.len())
                        .map(|at| {
                            let bold = if series.is_moved(row, at) { "**" } else { "" };
                            format!(" {bold}{}{bold} |", share(row.shares[at]))
                        })
                        .collect();
                    let _ =
                        writeln!(out, "| {} |{cells}", escaped(&titled(row.phase, &row.name, 100)));
                }
                if let Some(more) = more {
                    let _ = write!(out, "\n{more}\n");
                }
            }
            out.push('\n');
            for line in moved(series) {
                let _ = writeln!(out, "- {}", escaped(&line));
            }
        }
        let _ = write!(out, "\n{}\n", escaped(LEGEND));
        if !left_out.is_empty() {
            let _ = writeln!(out, "\nLeft out:\n");
            for LeftOut { path, reason } in left_out {
                let _ = writeln!(out, "- {}: {}", escaped(path), escaped(reason));
            }
        }
        out
    }

    /// CSV (RFC 4180) with a line for each share at each point. A missing share is empty.
    pub(crate) fn csv(&self) -> String {
        let mut out =
            "model,workload,machine,via,event,unit,time,version,total,source,family,phase,\
                       name,share,is_moved\r\n"
                .to_owned();
        for series in &self.series {
            let kind = &series.kind;
            for (at, point) in series.points.iter().enumerate() {
                for row in &series.shares {
                    let or_none =
                        |text: &Option<String>| text.as_deref().map_or(String::new(), quoted);
                    let cells = [
                        or_none(&kind.model),
                        or_none(&kind.workload),
                        or_none(&kind.machine),
                        quoted(&kind.via),
                        or_none(&kind.event),
                        quoted(kind.unit),
                        quoted(&point.time),
                        quoted(&point.version),
                        point.total.to_string(),
                        quoted(&point.source),
                        quoted(row.family.name()),
                        row.phase.map_or(String::new(), |phase| quoted(phase.name())),
                        quoted(&row.name),
                        row.shares[at].map_or(String::new(), |share| share.to_string()),
                        series.is_moved(row, at).to_string(),
                    ];
                    out.push_str(&cells.join(","));
                    out.push_str("\r\n");
                }
            }
        }
        out
    }

    fn headline(&self, left_out: &[LeftOut]) -> String {
        let series = match self.series.len() {
            1 => "1 series".to_owned(),
            n => format!("{n} series"),
        };
        let left_out = match left_out.len() {
            0 => String::new(),
            n => format!("; {n} left out, see below"),
        };
        format!("{} in {series}{left_out}", count(self.flamegraphs, "flamegraph"))
    }
}

const LEGEND: &str = "Shares: bricks of their phase; classes, and functions including callees, of the \
    total. Marks: moved since the previous flamegraph by more than the error of both; of 100 pairs of \
    equal runs at most 1 gets a mark, unless the machine was disturbed in one of them.";

/// The title of a series.
fn title(kind: &Kind) -> String {
    let event = kind.event.as_ref().map(|event| format!("{} of {event}", kind.unit));
    let mut parts = vec![kind.model.clone().unwrap_or_else(|| "no model named".to_owned())];
    parts.extend(kind.workload.clone());
    parts.push(format!("{} by {}", event.unwrap_or_else(|| kind.unit.to_owned()), kind.via));
    parts.push(kind.machine.clone().unwrap_or_else(|| "no machine named".to_owned()));
    printable_text(&parts.join("; "))
}

fn plural(family: Family) -> &'static str {
    match family {
        Family::Class => "classes",
        Family::Brick => "bricks",
        Family::Function => "functions",
    }
}

/// The largest rows at the last point, and a line about the others.
fn rows(series: &Series, family: Family) -> (Vec<&Shares>, Option<String>) {
    let all: Vec<&Shares> = series.shares.iter().filter(|row| row.family == family).collect();
    let more = all.len().saturating_sub(MOST_ROWS);
    let more = (more > 0).then(|| format!("and {more} more, with less at the last"));
    (all.into_iter().take(MOST_ROWS).collect(), more)
}

/// A sentence for each point with moves.
fn moved(series: &Series) -> Vec<String> {
    if series.points.len() < 2 {
        return vec!["a single flamegraph: nothing to compare it with".to_owned()];
    }
    if series.moves.is_empty() {
        return vec!["nothing moved by more than its error".to_owned()];
    }
    let sentence = |there: &Move| {
        let rows: Vec<&_> = there.rows.iter().map(|moved| &moved.row).collect();
        format!("{}: {}", moment(&there.time), named(&rows))
    };
    series.moves.iter().map(sentence).collect()
}

fn share(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| percent(share) + "%")
}

/// A time, to the minute.
fn moment(time: &str) -> String {
    printable(time).replace('T', " ").chars().take(16).collect()
}

/// The month and day of a point.
fn day(point: &Point) -> String {
    moment(&point.time).chars().skip(5).take(5).collect()
}

fn clock(point: &Point) -> String {
    moment(&point.time).chars().skip(11).collect()
}

/// A cell of text; empty if the text is.
fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { cell(&printable_text(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_no_formula_and_one_line() {
        assert_eq!(quoted("=1+1"), "'=1+1");
        assert_eq!(quoted("-a,\"b\"\n\u{1b}"), "\"'-a,\"\"b\"\"\\n\\u{1b}\"");
        assert_eq!([quoted(""), quoted("ffn")], ["", "ffn"]);
    }
}
