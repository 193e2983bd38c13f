//! Timelines of benchmarks: the measurements of one thing on one kind of machine, oldest first, and where
//! they changed for good.
//!
//! A [`Run`] is what a timeline needs of a receipt, or of a file of llama-bench. [`History::of`] distributes runs to
//! series, makes one point of the processes of a set, and finds changes (see [`Change`]). Where runs name several
//! machines, it takes commits and machines apart instead ([`Fleet`](crate::fleet::Fleet)). All of it is plain data; the
//! order in which runs are given doesn't matter.

mod run;
mod series;

use std::collections::BTreeMap;

pub use brickscope_profile::stats::changes::{ALPHA, LEAST_POINTS, LEAST_SEGMENT};
pub use run::{Difference, ENGINE_COMMIT, Figures, MACHINE, Run, commit_of};
use serde::Serialize;
pub use series::{BrickChange, Change, Level, MachineKind, Point, Series, SeriesKind};

/// The figure that a history follows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Tokens per second: the median of each process's repetitions.
    #[default]
    TokensPerSecond,
    /// Nanoseconds per token in the brick of this name itself; likewise the median.
    Brick(String),
}

impl Measure {
    /// The unit, as in tables and on axes.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Self::TokensPerSecond => "t/s",
            Self::Brick(_) => "ns/token",
        }
    }

    /// Whether more of it is slower.
    #[must_use]
    pub fn is_time(&self) -> bool {
        matches!(self, Self::Brick(_))
    }
}

/// Runs over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct History {
    /// What was followed.
    pub measure: Measure,
    /// The runs in it, each counted once.
    pub runs: u64,
    /// How many of them have no receipt, since another program measured.
    #[serde(skip_serializing_if = "is_none")]
    pub without_receipt: u64,
    /// A series for each test of each [`SeriesKind`], by model, then test.
    pub series: Vec<Series>,
    /// Receipts and other runs that are not in it, with the reason; by path.
    pub left_out: Vec<LeftOut>,
    /// Those that are in it though they aren't verified, with the reason; by path.
    pub not_verified: Vec<LeftOut>,
}

/// A receipt that is not in a history, or in it with a reservation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub struct LeftOut {
    /// The file.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl History {
    /// The history of `runs`, given in any order. A run that occurs twice, by the hash of its receipt,
    /// counts once; its copies go to [`left_out`](Self::left_out).
    #[must_use]
    pub fn of(mut runs: Vec<Run>, measure: Measure) -> Self {
        runs.sort_by(Run::cmp_by_time);
        let mut left_out: Vec<LeftOut> = Vec::new();
        // Copies have the same time, but other runs may lie between them.
        let mut known = BTreeMap::new();
        runs.retain(|run| {
            let Some(hash) = run.hash.clone() else { return true };
            let first = known.entry(hash).or_insert_with(|| run.source.clone());
            if *first != run.source {
                let what = if run.has_receipt { "receipt" } else { "measurements" };
                let reason = format!("the same {what} as {first}");
                left_out.push(LeftOut { path: run.source.clone(), reason });
            }
            *first == run.source
        });
        left_out.sort();
        let series = series::all(&runs, &measure);
        let without_receipt = runs.iter().filter(|run| !run.has_receipt).count() as u64;
        let not_verified = Vec::new();
        let runs = runs.len() as u64;
        Self { measure, runs, without_receipt, series, left_out, not_verified }
    }
}

fn is_none(count: &u64) -> bool {
    *count == 0
}
