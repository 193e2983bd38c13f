//! The named questions: SQL that all engines understand, in `questions/`.

use crate::engine::quoted;

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// A query of the lake's tables, and of `params`, which has one row.
    pub sql: &'static str,
}

macro_rules! questions {
    ($($name:literal),* $(,)?) => {
        /// All of them.
        pub const QUESTIONS: &[Question] = &[
            $(Question { name: $name, sql: include_str!(concat!("questions/", $name, ".sql")) },)*
        ];
    };
}

questions! {
    "inventory",
    "machines",
    "trend",
    "compare",
    "slowest-machines",
    "regressions",
    "requests",
    "bricks",
    "kernels",
    "percentiles",
    "far-from-roof",
    "slow-passes",
    "disturbed",
    "who-backs",
    "unverified",
}

impl Question {
    /// Whether the answer depends on runs of other days than those that it is about.
    pub fn needs_all_days(&self) -> bool {
        // Of commits it takes the order in which they were first seen.
        matches!(self.name, "regressions" | "requests")
    }

    /// The first comment: what it answers.
    pub fn meaning(&self) -> &'static str {
        let first = self.sql.lines().next().unwrap_or_default();
        first.trim_start_matches("--").trim()
    }
}

/// What a question is about; an empty text chooses all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    /// The first day.
    pub since: &'a str,
    /// The last day.
    pub until: &'a str,
    /// The model.
    pub model: &'a str,
    /// The test.
    pub test: &'a str,
    /// The phase.
    pub phase: &'a str,
    /// The brick or kernel.
    pub brick: &'a str,
    /// The property of runs whose values are put side by side.
    pub by: &'a str,
    /// Tokens per second.
    pub number: f64,
    /// How far from it a run may be, in percent.
    pub within: f64,
}

impl Asked<'_> {
    /// The view that questions read it from.
    #[must_use]
    pub fn params(&self) -> String {
        let Self { number, within, .. } = self;
        format!(
            "CREATE TEMP VIEW params AS SELECT {} AS since, {} AS until, {} AS model, {} AS test,\n  \
            {} AS phase, {} AS brick, {} AS by_column, cast({number:e} AS DOUBLE) AS number,\n  \
            cast({within:e} AS DOUBLE) AS within;\n",
            quoted(self.since),
            quoted(self.until),
            quoted(self.model),
            quoted(self.test),
            quoted(self.phase),
            quoted(self.brick),
            quoted(self.by),
        )
    }
}
