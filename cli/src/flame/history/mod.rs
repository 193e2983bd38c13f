//! Flamegraphs over time: the shares of one kind of run, oldest first, and where a share moved by more
//! than its error from one run to the next.

mod view;

use std::collections::BTreeMap;

use brickscope::Phase;
use brickscope_analysis::stacks::Unit;
use serde::Serialize;

use super::diff::{self, MIN_SHARE, Row, THRESHOLD_POINTS, machine_name, model_name};
use super::summary::Summary;
use crate::flame::captions;

/// Flamegraphs, grouped by what ran and on what machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Flamegraphs {
    pub(crate) flamegraphs: u64,
    pub(crate) series: Vec<Series>,
}

/// The properties that all flamegraphs of a series share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Kind {
    /// Name, quantisation and size, since a flamegraph doesn't have the hash of its model.
    pub(crate) model: Option<String>,
    /// Threads, backend and tokens, or the sampled command.
    pub(crate) workload: Option<String>,
    /// Processor, CPUs, system and architecture.
    pub(crate) machine: Option<String>,
    /// How the stacks were recorded: `spans`, `sampler`, `timer`, `perf` or `folded`.
    pub(crate) via: String,
    /// The event that triggers samples.
    pub(crate) event: Option<String>,
    /// Measured time, or samples.
    pub(crate) unit: &'static str,
}

/// Flamegraphs of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Series {
    pub(crate) kind: Kind,
    /// Oldest first.
    pub(crate) points: Vec<Point>,
    /// Classes, bricks and functions with a share of at least half a percent at any point, the largest at
    /// the last point first.
    pub(crate) shares: Vec<Shares>,
    /// The points at which shares moved by more than their error from the previous point.
    pub(crate) moves: Vec<Move>,
}

/// One flamegraph of a series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Point {
    /// When it was made, RFC 3339 in UTC.
    pub(crate) time: String,
    /// The version of brickscope.
    pub(crate) version: String,
    /// The file.
    pub(crate) source: String,
    /// The total weight, in the unit.
    pub(crate) total: u64,
    /// Warnings, a sentence each.
    #[serde(rename = "doubts")]
    pub(crate) warnings: Vec<String>,
}

/// The kinds of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Family {
    /// Kinds of work: shares of the total.
    Class,
    /// Bricks: shares of their phase.
    Brick,
    /// Functions including callees: shares of the total.
    Function,
}

impl Family {
    const ALL: [Self; 3] = [Self::Class, Self::Brick, Self::Function];

    fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Brick => "brick",
            Self::Function => "function",
        }
    }
}

/// The shares of one row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Shares {
    pub(crate) family: Family,
    pub(crate) name: String,
    pub(crate) phase: Option<Phase>,
    /// 0 to 1 at each point; `null` if it is missing there.
    pub(crate) shares: Vec<Option<f64>>,
}

/// A point at which something moved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Move {
    /// The index of the point.
    pub(crate) at: u64,
    /// The time of the point.
    pub(crate) time: String,
    /// The rows that moved.
    pub(crate) rows: Vec<Moved>,
}

/// A row that moved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Moved {
    pub(crate) family: Family,
    #[serde(flatten)]
    pub(crate) row: Row,
}

impl Kind {
    fn of(summary: &Summary) -> Self {
        let run = captions::workload_of(summary);
        let command = summary.command.as_ref().map(|words| words.join(" "));
        Self {
            model: summary.model.as_ref().map(model_name),
            workload: run.or(command),
            machine: summary.machine.as_ref().map(machine_name),
            via: summary.source.via.clone(),
            event: summary.source.event.clone(),
            unit: match summary.unit {
                Unit::Nanoseconds => "nanoseconds",
                Unit::Samples => "samples",
            },
        }
    }
}

impl Flamegraphs {
    /// Makes series of files, in any order. Copies of a file count once; the others are returned with the
    /// one that counts.
    pub(crate) fn of(mut found: Vec<(String, Summary)>) -> (Self, Vec<(String, String)>) {
        found.sort_by(|(a, x), (b, y)| x.generated.cmp(&y.generated).then_with(|| a.cmp(b)));
        let mut by_kind: BTreeMap<Kind, Vec<(String, Summary)>> = BTreeMap::new();
        let mut copies = Vec::new();
        for (path, summary) in found {
            let points = by_kind.entry(Kind::of(&summary)).or_default();
            // Copies have the same time, so they are adjacent.
            let same =
                points.iter().rev().take_while(|(_, known)| known.generated == summary.generated);
            match same.into_iter().find(|(_, known)| *known == summary) {
                Some((first, _)) => copies.push((path, first.clone())),
                None => points.push((path, summary)),
            }
        }
        let series: Vec<Series> =
            by_kind.into_iter().map(|(kind, points)| Series::of(kind, &points)).collect();
        let flamegraphs = series.iter().map(|series| series.points.len() as u64).sum();
        (Self { flamegraphs, series }, copies)
    }
}

impl Series {
    fn of(kind: Kind, found: &[(String, Summary)]) -> Self {
        let point = |(source, summary): &(String, Summary)| Point {
            time: summary.generated.clone(),
            version: summary.brickscope_version.clone(),
            source: source.clone(),
            total: summary.total,
            warnings: summary.warnings.clone(),
        };
        let mut shares: BTreeMap<(Family, Option<Phase>, String), Vec<Option<f64>>> =
            BTreeMap::new();
        for (at, (_, summary)) in found.iter().enumerate() {
            for (family, of_family) in Family::ALL.into_iter().zip(diff::shares(summary)) {
                for (name, phase, share) in of_family {
                    let row = shares.entry((family, phase, name)).or_default();
                    row.resize(found.len(), None);
                    row[at] = Some(share);
                }
            }
        }
        let is_seen = |shares: &[Option<f64>]| shares.iter().flatten().any(|s| *s >= MIN_SHARE);
        let mut shares: Vec<Shares> = shares
            .into_iter()
            .filter(|(_, shares)| is_seen(shares))
            .map(|((family, phase, name), shares)| Shares { family, name, phase, shares })
            .collect();
        // A stable sort, so that equal rows stay sorted by name.
        let last = |row: &Shares| row.shares.last().copied().flatten().unwrap_or(0.0);
        shares.sort_by(|a, b| a.family.cmp(&b.family).then(last(b).total_cmp(&last(a))));
        let moves = (1..found.len()).filter_map(|at| moves(found, at)).collect();
        Self { kind, points: found.iter().map(point).collect(), shares, moves }
    }
}

/// The rows that moved since the previous point.
fn moves(found: &[(String, Summary)], at: usize) -> Option<Move> {
    let [before, after] = [at - 1, at].map(|at| &found[at].1);
    // Forced, since other differences within a series don't matter.
    let diff = diff::compare(before, after, THRESHOLD_POINTS, true).ok()?;
    let families = Family::ALL.into_iter().zip([&diff.classes, &diff.bricks, &diff.functions]);
    let rows: Vec<Moved> = families
        .flat_map(|(family, rows)| rows.iter().map(move |row| (family, row)))
        .filter(|(_, row)| row.is_moved())
        .map(|(family, row)| Moved { family, row: row.clone() })
        .collect();
    (!rows.is_empty()).then(|| Move { at: at as u64, time: after.generated.clone(), rows })
}

impl Series {
    /// Whether a row moved from the point before `at`.
    fn is_moved(&self, shares: &Shares, at: usize) -> bool {
        let there = self.moves.iter().find(|there| there.at == at as u64);
        there.is_some_and(|there| {
            there.rows.iter().any(|Moved { family, row }| {
                (*family, &row.name, row.phase) == (shares.family, &shares.name, shares.phase)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::diff::tests::Made;

    const DAYS: [&str; 7] = [
        "2026-11-14T10:00:00Z",
        "2026-11-15T10:00:00Z",
        "2026-11-16T10:00:00Z",
        "2026-11-17T10:00:00Z",
        "2026-11-18T10:00:00Z",
        "2026-11-19T10:00:00Z",
        "2026-11-20T10:00:00Z",
    ];

    /// A week in which one brick grows on the fifth day.
    fn week() -> Vec<(String, Summary)> {
        let made = |(day, generated)| {
            let qkv = if day < 4 { 40 } else { 52 };
            let memcpy = if day == 6 { 4 } else { 0 };
            let made = Made { qkv, memcpy, generated, ..Made::default() };
            (format!("runs/{day}/flamegraph.json"), made.summary())
        };
        DAYS.into_iter().enumerate().map(made).collect()
    }

    #[test]
    fn a_week_has_the_day_on_which_a_share_moved() {
        let (flamegraphs, copies) = Flamegraphs::of(week());
        assert_eq!((flamegraphs.flamegraphs, flamegraphs.series.len(), copies.len()), (7, 1, 0));
        let series = &flamegraphs.series[0];
        assert_eq!(series.moves.iter().map(|there| there.at).collect::<Vec<_>>(), [4, 6]);
        insta::assert_snapshot!("week", flamegraphs.text(&[]));
        insta::assert_snapshot!("week_markdown", flamegraphs.markdown(&[]));
        assert!(flamegraphs.text(&[]).lines().all(|line| line.chars().count() <= 80));
        let csv = flamegraphs.csv();
        assert_eq!(csv.lines().count(), 1 + 7 * series.shares.len());
        let moved = "brick,decode,QkvProjection,0.52,true";
        assert_eq!(csv.lines().filter(|line| line.ends_with(moved)).count(), 1, "{csv}");
    }

    #[test]
    fn the_order_of_files_does_not_matter_and_a_copy_counts_once() {
        let mut files = week();
        files.push(("z/flamegraph.json".to_owned(), files[2].1.clone()));
        files.reverse();
        let (flamegraphs, copies) = Flamegraphs::of(files);
        assert_eq!(flamegraphs, Flamegraphs::of(week()).0);
        let copy = ("z/flamegraph.json".to_owned(), "runs/2/flamegraph.json".to_owned());
        assert_eq!(copies, [copy]);
    }

    #[test]
    fn other_models_machines_and_weights_are_other_series() {
        let made = Made::default();
        let files = [
            made.summary(),
            Made { bytes: 5, ..made.clone() }.summary(),
            Made { cpu: "Intel Xeon", ..made.clone() }.summary(),
            Made { unit: Unit::Nanoseconds, ..made }.summary(),
        ];
        let files = files.into_iter().enumerate().map(|(at, file)| (at.to_string(), file));
        let (flamegraphs, _) = Flamegraphs::of(files.collect());
        assert_eq!(flamegraphs.series.len(), 4);
        assert!(flamegraphs.text(&[]).contains("a single flamegraph: nothing to compare it with"));
    }
}
