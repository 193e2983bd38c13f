//! Compares two sides, each some processes that measured the same work: what became slower, and by how
//! much.
//!
//! Times within one process resemble each other more than times of two processes: they share the layout
//! of memory, the clock frequency and the load of the machine. So a process is one replicate, however
//! many samples it took (Kalibera and Jones, "Rigorous benchmarking in reasonable time", 2013: replicate
//! where the variance is). It is summed up by the median of its samples, which the disturbance of some of
//! them does not move.
//!
//! The estimate is of the logarithm of the ratio of B to A. If the processes of both sides ran in turns,
//! each is compared with its neighbour of the other side, so that slow changes drop out. Otherwise the
//! sides are two samples, whose errors come from the means of blocks of consecutive processes if these
//! are further apart than independent processes would put them, and the interval also spans the estimate
//! from which steady drift of the machine was taken off. The estimate is the mean without the
//! fifth at either end (from 20 processes on), and its error comes from the winsorised squares (Yuen
//! 1974), so that some processes under another load neither move it nor make it blind. The interval is
//! based on Student's t. Two things make it hold where noise is not normal: rows are tested at half of
//! [`LEVEL`], and a difference of pairs also has to be rarer than by chance among the orders that
//! [`turns_at_random`] could have drawn: those in which either side goes first equally often. Up to 19 pairs they are
//! counted, for more the count is approximated. Below five pairs there is no verdict.
//!
//! # Why not a bootstrap
//!
//! How often a 95 % interval misses the true value, in 1000 to 5000 simulated comparisons of pairs of
//! processes with 5 samples each, and in brackets half its width in percent. Spikes: one process in
//! seven takes 3 % longer or more. Bursts: some consecutive processes take 5 to 20 % longer.
//!
//! | noise, processes | Student's t | trimmed by a fifth | percentile, hierarchical | BCa | bootstrap-t |
//! |---|---|---|---|---|---|
//! | normal, 5 | 0.05 (1.7) | 0.06 (2.5) | 0.09 (1.3) | 0.10 (1.3) | 0.05 (2.2) |
//! | normal, 10 | 0.06 (1.1) | 0.06 (1.2) | 0.05 (1.0) | 0.05 (1.0) | 0.05 (1.1) |
//! | normal, 20 | 0.06 (0.7) | 0.06 (0.8) | 0.03 (0.7) | 0.04 (0.7) | 0.05 (0.7) |
//! | t with 2 degrees, 5 | 0.04 (2.1) | 0.06 (2.7) | 0.08 (1.5) | 0.12 (1.5) | 0.06 (2.9) |
//! | t with 2 degrees, 10 | 0.04 (1.4) | 0.05 (1.3) | 0.06 (1.2) | 0.09 (1.3) | 0.08 (1.5) |
//! | t with 2 degrees, 20 | 0.04 (1.0) | 0.05 (0.8) | 0.05 (1.0) | 0.09 (1.0) | 0.08 (1.0) |
//! | spikes, 5 | 0.01 (3.1) | 0.04 (1.5) | 0.07 (2.1) | 0.16 (2.3) | 0.02 (6.1) |
//! | spikes, 10 | 0.02 (2.2) | 0.03 (0.7) | 0.09 (1.9) | 0.19 (2.0) | 0.10 (3.0) |
//! | spikes, 20 | 0.03 (1.7) | 0.02 (0.4) | 0.07 (1.6) | 0.17 (1.7) | 0.11 (2.0) |
//! | bursts, 5 | 0.03 (0.8) | 0.05 (1.1) | 0.04 (1.0) | 0.09 (1.0) | 0.03 (1.2) |
//! | bursts, 10 | 0.02 (2.2) | 0.04 (0.5) | 0.06 (1.7) | 0.14 (2.0) | 0.08 (3.3) |
//! | bursts, 20 | 0.03 (1.9) | 0.04 (0.4) | 0.07 (1.7) | 0.16 (2.0) | 0.13 (2.6) |
//!
//! A percentile bootstrap of the processes alone misses the true value in 8 to 20 %. Resampling the samples
//! within processes as well counts their variance twice, since it is already in the medians; that hides
//! part of the error. And a comparison of thirty bricks needs intervals not for 95 but for 99.99 %, which
//! resampling five or ten numbers can't give. At 99.9 %, Student's t misses the true value in 0.000 to
//! 0.001 of the comparisons, and the mean trimmed by a fifth in 0.0004 to 0.0018, with 20 processes at 0.3
//! to 1.2 times the width. With 5 processes trimming would be three times as wide, for lack of degrees of
//! freedom; so it begins at 20 processes. The tests repeat the simulation, with a bootstrap beside it.
//!
//! # Many rows
//!
//! A comparison raises a false alarm, anywhere in its output, with probability at most [`LEVEL`]. Three
//! families share that equally: whole tests, categories, bricks. In each, the step-down procedure of Holm
//! ("A simple sequentially rejective multiple test procedure", 1979) shares it among the rows, over all
//! tests. Rows that take less than a small part of their test are left out, since each row makes all
//! others harder to judge.

mod bytes;
mod comparison;
mod counted;
mod drift;
mod environment;
mod error;
mod exchange;
mod from_profile;
#[cfg(feature = "receipt")]
mod from_receipt;
mod in_both;
mod inside;
mod left_out;
mod looks;
mod middle;
mod moved;
mod moved_kernels;
mod moved_layers;
mod options;
mod pairs;
mod ranks;
mod ratio;
mod rows;
mod samples;
#[cfg(test)]
mod simulated;
mod trimming;
mod turns;
mod verdict;
mod work;

use std::collections::BTreeMap;

use brickscope_profile::{Absent, Phase};
use serde::{Deserialize, Serialize};

pub use self::bytes::BytesMoved;
pub use self::comparison::compare;
pub use self::counted::Counted;
pub use self::environment::{Difference, Fact, Weight};
pub use self::error::CompareError;
pub use self::from_profile::{UnusableProfile, differences_of, names_of_tests};
#[cfg(feature = "receipt")]
pub(crate) use self::from_profile::{build, calls};
pub use self::inside::{Inside, KernelSum, LayerCell};
pub use self::left_out::LeftOutTest;
pub use self::looks::{look_after, until_next_look};
pub use self::middle::{of_most_tokens, pass_ns};
pub use self::moved::{Moved, Versus, versus};
pub use self::moved_kernels::{KernelTime, KernelsOfBrick};
pub use self::moved_layers::{LayerSpread, MovedLayer, MovedLayers};
pub use self::options::Options;
pub use self::pairs::MovedPart;
pub use self::ranks::{
    FoundIn, LinkChange, RankChange, RanksChange, RanksOfRun, SlowestChange, StragglerChange,
    TransferChange, TwoTimes,
};
pub use self::turns::{Pairing, Turn, evened, turns_at_random};
pub use self::verdict::{Outcome, Verdict, holm};
pub use self::work::Work;

/// The probability that a comparison of equal sides calls anything slower or faster. Half of it is for the rows'
/// tests; the other half is kept for what they take for granted and a machine doesn't keep: normal noise that has
/// no memory.
pub const LEVEL: f64 = 0.01;

/// The fewest pairs, or processes on a side, for which there is a verdict.
pub const LEAST_PROCESSES: usize = ratio::MIN_PROCESSES;

/// The probability that a change of the smallest visible size is found.
pub const POWER: f64 = 0.95;

/// The name of time that is in no brick.
pub const UNATTRIBUTED: &str = "(unattributed)";

/// The processes that measured one thing, such as a build.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Side {
    /// A name for people: a path.
    pub name: String,
    /// Its replicates, in the order in which they ran: from the order it is estimated how far drift may
    /// have moved the side, if the sides did not run in turns.
    pub processes: Vec<Process>,
}

/// One measuring process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Process {
    /// A name for people: the path of its file.
    pub name: String,
    /// Its places in orders with other processes, the most telling order first.
    pub turns: Vec<Turn>,
    /// The conditions that it ran under.
    pub facts: Vec<Fact>,
    /// Its measurements.
    pub tests: Vec<Test>,
    /// What makes its figures doubtful, one sentence each.
    pub doubts: Vec<String>,
    /// Why its receipt isn't verified, in a few words; `None` if it is, and for a profile, which nobody sealed.
    pub not_verified: Option<String>,
    /// Samples that other work on the machine disturbed.
    pub disturbed: u64,
    /// When it was measured, in seconds on a clock that all processes share: says how far apart two sides are
    /// that did not run in turns. Without it they count as one session's length apart.
    pub seconds: Option<f64>,
    /// Its ranks, if it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RanksOfRun>,
    /// Of an import that states no model: nanoseconds by the name of the kernel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kernels: BTreeMap<String, u64>,
}

/// One kind of work, repeated.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Test {
    /// Its name, the same on both sides.
    pub name: String,
    /// The phase that it measures, if it is only one.
    pub phase: Option<Phase>,
    /// Tokens of one sample.
    pub tokens: u64,
    /// What one sample is.
    pub sample: Sample,
    /// Its input and output.
    pub facts: Vec<Fact>,
    /// How long each sample took, in nanoseconds, without those of the warm-up.
    pub wall_ns: Vec<u64>,
    /// The unattributed time of each sample; empty without a profiler.
    pub unattributed_ns: Vec<u64>,
    /// Its bricks.
    pub bricks: Vec<Brick>,
    /// Their layers and kernels, if it is known of each pass which it had.
    #[serde(default, skip_serializing_if = "Inside::is_empty")]
    pub inside: Inside,
}

/// What one sample of a test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sample {
    /// All of the test's work, done once.
    #[default]
    Repetition,
    /// One pass; the work may take several.
    Pass,
    /// One token of a pass, where the passes of two sides have other numbers of tokens.
    Token,
}

impl Test {
    /// Whether it measures this phase and no other, on the host or on a device, or is llama-bench's test of it, whose name
    /// is all that a list says of it.
    #[must_use]
    pub fn is_of(&self, phase: Phase) -> bool {
        let of_list = match phase {
            Phase::Prefill => self.name.starts_with("pp") && !self.name.contains("+tg"),
            Phase::Decode => self.name.starts_with("tg"),
            Phase::Encode | Phase::Training => false,
        };
        let on_device = self.name.split_once(" on ").is_some_and(|(name, _)| name == phase.name());
        match self.phase {
            Some(of) => of == phase,
            None => of_list || on_device,
        }
    }
}

impl Sample {
    /// The name of its wall time.
    #[must_use]
    pub const fn whole(self) -> &'static str {
        match self {
            Self::Repetition => "whole",
            Self::Pass => "one pass",
            Self::Token => "one token",
        }
    }
}

/// A brick of a test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Brick {
    /// Its name.
    pub name: String,
    /// Its category.
    pub category: String,
    /// Its time in each sample, without nested bricks.
    pub ns: Vec<u64>,
    /// The bytes that it moved in each sample; empty if the engine states none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bytes: Vec<u64>,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// [`Options::threshold`].
    pub threshold: f64,
    /// [`LEVEL`].
    pub level: f64,
    /// [`POWER`].
    pub power: f64,
    /// The side that is the reference.
    pub a: Compared,
    /// The side whose change is reported.
    pub b: Compared,
    /// Whether processes were compared with their neighbours.
    pub pairing: Pairing,
    /// Conditions that differ although they should not; only if the comparison was forced.
    pub forced: Vec<Difference>,
    /// How the sides' models differ, if [that may be](Options::models_may_differ).
    pub models: Vec<Difference>,
    /// Conditions that differ and may: builds, boots.
    pub differences: Vec<Difference>,
    /// The tests, in the order of side A.
    pub tests: Vec<TestChange>,
    /// Tests that weren't compared, since not all processes have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutTest>,
    /// The ranks of both runs, if one has several. Nothing of it is judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RanksChange>,
    /// Of imports that state no model: the part of the time in kernels, of A and of B, that is in kernels of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels_in_both: Option<[f64; 2]>,
}

/// A side of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// Its processes.
    pub processes: usize,
    /// Their samples, of all tests.
    pub samples: u64,
    /// Samples that other work on the machine disturbed. All figures include them.
    pub disturbed: u64,
    /// What makes its figures doubtful: the process, and a sentence.
    pub doubts: Vec<(String, String)>,
    /// The processes whose receipts aren't verified, each with the reason in a few words.
    pub not_verified: Vec<(String, String)>,
}

/// How a test changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestChange {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: Option<Phase>,
    /// Tokens of one sample.
    pub tokens: u64,
    /// What one sample is.
    pub sample: Sample,
    /// Its wall time.
    pub whole: Change,
    /// Its categories, the longest first. A sample's time in a category is the sum of its bricks' times.
    pub categories: Vec<Change>,
    /// Its bricks, and the time in no brick, the longest first.
    pub bricks: Vec<Change>,
    /// Bricks that were not judged since they take too little of the test, with the larger of their
    /// shares on the two sides.
    pub small: Vec<(String, f64)>,
    /// Bricks that only side A has.
    pub only_in_a: Vec<String>,
    /// Bricks that only side B has.
    pub only_in_b: Vec<String>,
    /// Of decode, the bytes that its bricks move and how fast, if these are others on B than on A.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<BytesMoved>,
    /// Why they aren't known, where the models differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_absent: Option<Absent>,
}

impl TestChange {
    /// Whether no change has an interval, as of two processes: then it is told how often A's time goes into B's.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        let mut rows = self.categories.iter().chain(&self.bricks).chain([&self.whole]);
        rows.all(|row| row.change.is_none() && row.visible.is_none())
    }
}

/// How one time changed from A to B.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The name of what took the time.
    pub name: String,
    /// Its part of the test's wall time on side A, 0 to 1; `None` if A has none of it.
    pub share: Option<f64>,
    /// Nanoseconds of one sample on side A: the geometric mean of its processes' medians, from 20
    /// processes on without the fifth at either end. `None` if no process of A has it.
    pub a_ns: Option<f64>,
    /// The same for side B.
    pub b_ns: Option<f64>,
    /// The 95 % interval of `b_ns`; `None` for a single process.
    pub b_interval_ns: Option<(f64, f64)>,
    /// B ÷ A − 1: 0.03 says that B takes 3 % longer.
    pub change: Option<f64>,
    /// The lower end of its interval, at the level that is left for this row.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The smallest change that this comparison would have found, with probability [`POWER`].
    pub visible: Option<f64>,
    /// For an inconclusive row: how many processes a side would show a change as large as the threshold;
    /// `None` if more than 500.
    pub processes_needed: Option<usize>,
    /// What may be said of the change.
    pub verdict: Verdict,
    /// Why it is inconclusive, if more such processes would not help, if there are too few for any verdict, or if a
    /// side has none. If the processes vary too much for an interval to mean anything, `low`, `high` and `visible`
    /// are `None` and this says so.
    pub reason: Option<String>,
}
