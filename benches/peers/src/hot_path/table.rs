//! The figures as text and as JSON.

use serde_json::{Value, json};

use crate::row::{Bound, PAIR};
use crate::series::{Figures, Median};

/// The table for people.
pub(crate) fn text(figures: &[Figures]) -> String {
    let width = figures.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let mut text = format!(
        "{:width$}  {:>8}  {:>8}  {:>20}  {}\n",
        "", "ns/span", "least", "x two raw readings", "target"
    );
    for row in figures {
        let target = row.target.map_or_else(String::new, |(target, ratio)| {
            let mark = if target.bound.holds(ratio.median) { "pass" } else { "MISSED" };
            let bound = match target.bound {
                Bound::AtMost(limit) => format!("at most {limit}"),
                Bound::MoreThan(limit) => format!("more than {limit}"),
            };
            match target.base {
                // It stands in the column before.
                PAIR => format!("{mark:6}  {bound}"),
                _ => format!("{mark:6}  {bound}: {} x {}", interval(ratio), target.base_name),
            }
        });
        let mark = if row.is_disturbed { "*" } else { " " };
        let line = format!(
            "{:width$} {mark}{:>8.2}  {:>8.2}  {:>20}  {target}",
            row.name,
            row.nanos.median,
            row.least,
            interval(row.to_pair)
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn interval(Median { low, median, high }: Median) -> String {
    format!("{median:.3} [{low:.3}, {high:.3}]")
}

/// The same for programs.
pub(crate) fn json(figures: &[Figures]) -> Value {
    let median = |Median { low, median, high }: Median| json!([low, median, high]);
    let rows = figures.iter().map(|row| {
        let target = row.target.map(|(target, ratio)| {
            let (bound, limit) = match target.bound {
                Bound::AtMost(limit) => ("at most", limit),
                Bound::MoreThan(limit) => ("more than", limit),
            };
            let (base, ratio, met) = (target.base, median(ratio), !row.misses());
            json!({ "base": base, "bound": bound, "limit": limit, "ratio": ratio, "met": met })
        });
        json!({
            "id": row.id,
            "name": row.name,
            "spans_in_a_batch": row.spans,
            "rounds": row.rounds,
            "is_disturbed": row.is_disturbed,
            "ns": median(row.nanos),
            "least_ns": row.least,
            "to_two_raw_readings": median(row.to_pair),
            "target": target,
        })
    });
    rows.collect()
}
