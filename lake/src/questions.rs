//! The named questions: SQL that all engines understand, in `questions/`.

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
