//! What a profile says of passes that were kept, where not all were.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::KeptRequests;
use crate::brick::Phase;
use crate::stats::Histogram;

/// Which passes a profile has of all that there were. Its sums are of all of them; what is made of passes and spans is of
/// these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// How many passes there were.
    pub passes: u64,
    /// How many of the slowest were kept: they stand for themselves.
    pub slowest: u64,
    /// All that were slower than this are among them, by the longest time between two tokens of a sequence that they lie in.
    pub slower_than_ns: Option<u64>,
    /// How many were kept around what came true ([`Profile::fired`](crate::Profile::fired)), besides these: they stand for
    /// themselves, too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub around: u64,
    /// Samples of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// The walls of all passes, by phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub walls: Vec<WallsOf>,
    /// The times between two tokens of one sequence, of all of them: from the end of the pass that computed the one to the end
    /// of that which computed the next.
    #[serde(default)]
    pub intervals: Times,
    /// Which requests were kept, of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<KeptRequests>,
}

/// A sample of the passes of one phase and about as many tokens: each was as likely to be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The phase.
    pub phase: Phase,
    /// Each has at most so many tokens, and more than half as many.
    pub tokens: u64,
    /// How many passes it stands for.
    pub of: u64,
    /// [`Pass::serial`](crate::Pass::serial) of those that were kept, in order.
    pub passes: Vec<u32>,
}

/// The walls of the passes of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallsOf {
    /// The phase.
    pub phase: Phase,
    /// How long they took.
    pub walls: Times,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Durations: how many, their sum and their longest, exactly, and a histogram.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// How many of each length, to within 0.8 %.
    pub histogram: Histogram,
}

impl Times {
    /// Adds one.
    pub fn add(&mut self, ns: u64) {
        self.count = self.count.saturating_add(1);
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
        self.histogram.record(ns);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.histogram.merge(&other.histogram);
    }
}

impl Kept {
    /// For how many passes each of a sample stands, by its serial. One that isn't here stands for itself.
    #[must_use]
    pub fn weights(&self) -> HashMap<u32, f64> {
        let of_sample = |sample: &Sample| {
            let weight = sample.of as f64 / sample.passes.len().max(1) as f64;
            sample.passes.iter().map(move |serial| (*serial, weight)).collect::<Vec<_>>()
        };
        self.samples.iter().flat_map(of_sample).collect()
    }

    /// How many passes were kept.
    #[must_use]
    pub fn kept(&self) -> u64 {
        let sampled = self.samples.iter().map(|sample| sample.passes.len() as u64);
        sampled.fold(self.for_themselves(), u64::saturating_add)
    }

    fn for_themselves(&self) -> u64 {
        self.slowest.saturating_add(self.around)
    }

    /// What a reader is told: a sentence without a full stop.
    #[must_use]
    pub fn line(&self) -> String {
        let around = match self.around {
            0 => String::new(),
            n => format!(", {n} around what fired"),
        };
        format!(
            "kept: the {} slowest of {} passes{around}, a sample of {}; sums: all",
            self.slowest,
            self.passes,
            self.kept().saturating_sub(self.for_themselves())
        )
    }

    /// Checks that each pass is counted once, and that each sample has one.
    pub(crate) fn check(&self, passes: u64) -> Result<(), String> {
        let of = self.samples.iter().map(|sample| sample.of);
        let counted = of.fold(self.for_themselves(), u64::saturating_add);
        if counted != self.passes || passes != self.passes {
            return Err(format!(
                "what was kept stands for {counted} of {} passes, and the phases have {passes}",
                self.passes
            ));
        }
        let is_wrong = |of: &&Sample| of.passes.is_empty() || of.of < of.passes.len() as u64;
        match self.samples.iter().find(is_wrong) {
            Some(sample) => {
                Err(format!("a sample of {} passes stands for {}", sample.passes.len(), sample.of))
            }
            None => Ok(()),
        }
    }
}
