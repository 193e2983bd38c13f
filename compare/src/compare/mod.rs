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
mod counted;
mod drift;
mod environment;
mod exchange;
mod from_profile;
#[cfg(feature = "receipt")]
mod from_receipt;
mod in_both;
mod inside;
mod looks;
mod middle;
mod moved;
mod moved_kernels;
mod moved_layers;
mod pairs;
mod ranks;
mod ratio;
#[cfg(test)]
mod simulated;
mod trimming;
mod turns;
mod verdict;
mod work;

use std::collections::BTreeMap;
use std::fmt;

use brickscope_profile::stats::median;
use brickscope_profile::text::{printable, printable_text};
use brickscope_profile::{Absent, Phase};
use serde::{Deserialize, Serialize};

pub use self::bytes::BytesMoved;
pub use self::counted::Counted;
use self::environment::Differences;
pub use self::environment::{Difference, Fact, Weight};
pub use self::from_profile::UnusableProfile;
pub use self::inside::{Inside, KernelSum, LayerCell};
pub use self::looks::{look_after, until_next_look};
pub use self::middle::{of_most_tokens, pass_ns};
pub use self::moved::{Moved, Versus, versus};
pub use self::moved_kernels::{KernelTime, KernelsOfBrick};
pub use self::moved_layers::{LayerSpread, MovedLayer, MovedLayers};
pub use self::pairs::MovedPart;
pub use self::ranks::{
    FoundIn, LinkChange, RankChange, RanksChange, RanksOfRun, SlowestChange, StragglerChange,
    TransferChange, TwoTimes,
};
use self::ratio::Ratio;
use self::turns::Order;
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

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The smallest change that matters, 0.03 for 3 %.
    pub threshold: f64,
    /// Bricks and categories that take less than this part of their test on both sides are listed, but
    /// not judged.
    pub min_share: f64,
    /// Compare even sides that ran under different conditions.
    pub is_forced: bool,
    /// Compare sides with two models, or with two formats of one: what that brings is the question.
    pub models_may_differ: bool,
    /// The probability of a false alarm: [`LEVEL`], or less of it for who compares more than once.
    pub level: f64,
    /// The only phase whose [tests](Test::is_of) are compared and judged; `None` for all tests.
    pub phase: Option<Phase>,
}

impl Default for Options {
    /// A threshold of 3 %, rows from 1 % of their test on, and equal conditions only.
    fn default() -> Self {
        Self {
            threshold: 0.03,
            min_share: 0.01,
            is_forced: false,
            models_may_differ: false,
            level: LEVEL,
            phase: None,
        }
    }
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

/// The reason why sides can't be compared.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CompareError {
    /// The threshold is not a number above 0.
    Threshold(f64),
    /// A side has no processes.
    Empty {
        /// Its name.
        side: String,
    },
    /// Two files hold the same process.
    Copy {
        /// The one file.
        one: String,
        /// The other.
        other: String,
    },
    /// The sides ran under different conditions.
    Unlike(Vec<Difference>),
    /// A side has no test of the [phase](Options::phase) that is asked for.
    NoTestOfPhase {
        /// The side's name.
        side: String,
        /// The phase.
        phase: Phase,
        /// The tests that it has.
        tests: Vec<String>,
    },
    /// They have no test in common.
    NoCommonTest {
        /// The tests of side A.
        a: Vec<String>,
        /// The tests of side B.
        b: Vec<String>,
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threshold(value) => {
                write!(f, "the smallest change that matters must be above 0, not {value}")
            }
            Self::Empty { side } => write!(f, "{} has no runs", printable_text(side)),
            Self::Copy { one, other } if one == other => write!(
                f,
                "{} is there twice: a run says nothing about how it varies",
                printable_text(one)
            ),
            Self::Copy { one, other } => write!(
                f,
                "{} and {} hold the same run: a copy says nothing about how runs vary",
                printable_text(one),
                printable_text(other)
            ),
            Self::Unlike(differences) => {
                writeln!(f, "these runs can't be compared, since they differ in")?;
                for difference in differences {
                    writeln!(f, "  {difference}")?;
                }
                write!(f, "any of these could cause a change of time")
            }
            Self::NoTestOfPhase { side, phase, tests } => {
                let names: Vec<String> = tests.iter().map(|name| printable(name)).collect();
                write!(
                    f,
                    "{} has no test of {phase} alone: it has {}",
                    printable_text(side),
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                )
            }
            Self::NoCommonTest { a, b } => {
                // `decode`, or `decode on the device`.
                let is_list = |names: &[String]| {
                    let is_phase = |name: &str| {
                        let word = name.split_once(" on ").map_or(name, |(phase, _)| phase);
                        Phase::ALL.iter().any(|phase| phase.name() == word)
                    };
                    names.iter().any(|name| !is_phase(name))
                };
                let hint = match is_list(a) != is_list(b) {
                    true => {
                        ": one side has a benchmark's tests, the other a profile's passes. Compare two benchmarks or two \
                         profiles; of a file of llama-bench, `brickscope import --rows` makes a profile"
                    }
                    false => "",
                };
                let [a, b] = [a, b].map(|names| {
                    let names: Vec<String> = names.iter().map(|name| printable(name)).collect();
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                });
                write!(
                    f,
                    "the sides have no test in common: A has the tests {a}; B has the tests {b}{hint}"
                )
            }
        }
    }
}

impl std::error::Error for CompareError {}

/// Compares the times of side `b` with those of side `a`.
///
/// # Errors
///
/// See [`CompareError`]. Too few processes are not an error: every verdict is then
/// [`Verdict::Inconclusive`].
pub fn compare(a: &Side, b: &Side, options: &Options) -> Result<Comparison, CompareError> {
    compare_beside(a, b, [a, b], options)
}

/// As [`compare`], where `whole` has the samples that sides of fewer samples were made from: they say how times change
/// within a process.
fn compare_beside(
    a: &Side,
    b: &Side,
    whole: [&Side; 2],
    options: &Options,
) -> Result<Comparison, CompareError> {
    if !(options.threshold > 0.0 && options.threshold.is_finite()) {
        return Err(CompareError::Threshold(options.threshold));
    }
    if let Some(side) = [a, b].into_iter().find(|side| side.processes.is_empty()) {
        return Err(CompareError::Empty { side: side.name.clone() });
    }
    if let Some((one, other)) = copies(whole[0], whole[1]) {
        return Err(CompareError::Copy { one, other });
    }
    let first = |side: &Side| {
        let tests = side.processes[0].tests.iter().map(|test| test.name.clone());
        tests.collect::<Vec<String>>()
    };
    let is_asked = |test: &&Test| options.phase.is_none_or(|phase| test.is_of(phase));
    if let Some(phase) = options.phase {
        let is_without = |side: &&Side| !side.processes[0].tests.iter().any(|test| is_asked(&test));
        if let Some(side) = [a, b].into_iter().find(is_without) {
            return Err(CompareError::NoTestOfPhase {
                side: side.name.clone(),
                phase,
                tests: first(side),
            });
        }
    }
    let names: Vec<String> = a.processes[0]
        .tests
        .iter()
        .filter(is_asked)
        .map(|test| test.name.clone())
        .filter(|name| is_everywhere(name, a) && is_everywhere(name, b))
        .collect();
    let Differences { unlike, models, may } =
        environment::differences(a, b, &names, options.models_may_differ);
    if !unlike.is_empty() && !options.is_forced {
        return Err(CompareError::Unlike(unlike));
    }
    if names.is_empty() {
        return Err(CompareError::NoCommonTest { a: first(a), b: first(b) });
    }
    let order = turns::order(a, b);
    let mut tests: Vec<Rows> =
        names.iter().map(|name| Rows::new(name, [a, b], whole, &order, options)).collect();
    verdict::judge(&mut tests, options);
    let mut tests: Vec<TestChange> = tests.into_iter().map(Rows::into_change).collect();
    tests.iter_mut().for_each(|test| bytes::add(test, [a, b], !models.is_empty()));
    Ok(Comparison {
        threshold: options.threshold,
        level: options.level,
        power: POWER,
        a: Compared::new(whole[0]),
        b: Compared::new(whole[1]),
        pairing: order.pairing,
        forced: unlike,
        models,
        differences: may,
        tests,
        ranks: RanksChange::of_sides(whole),
        kernels_in_both: in_both::shares(whole),
    })
}

/// The names of two processes, on either side, that are the same process.
fn copies(a: &Side, b: &Side) -> Option<(String, String)> {
    same(a.processes.iter().chain(&b.processes).collect())
}

impl Side {
    /// The names of two of its processes that have the same measurements, so that one is a copy.
    #[must_use]
    pub fn copies(&self) -> Option<(String, String)> {
        same(self.processes.iter().collect())
    }
}

fn same(mut all: Vec<&Process>) -> Option<(String, String)> {
    // By their measurements: no two processes measure the same nanoseconds throughout.
    let times = |process: &Process| {
        let walls = process.tests.iter().map(|test| test.wall_ns.clone());
        walls.collect::<Vec<Vec<u64>>>()
    };
    all.retain(|process| process.tests.iter().map(|test| test.wall_ns.len()).sum::<usize>() > 0);
    all.sort_by_cached_key(|process| times(process));
    let same = all.windows(2).find(|two| times(two[0]) == times(two[1]))?;
    Some((same[0].name.clone(), same[1].name.clone()))
}

fn is_everywhere(test: &str, side: &Side) -> bool {
    let has = |process: &Process| {
        process.tests.iter().any(|of| of.name == test && !of.wall_ns.is_empty())
    };
    side.processes.iter().all(has)
}

impl Compared {
    fn new(side: &Side) -> Self {
        let samples = |process: &Process| {
            process.tests.iter().map(|test| test.wall_ns.len() as u64).sum::<u64>()
        };
        Self {
            name: side.name.clone(),
            processes: side.processes.len(),
            samples: side.processes.iter().map(samples).sum(),
            disturbed: side.processes.iter().map(|process| process.disturbed).sum(),
            doubts: side
                .processes
                .iter()
                .flat_map(|p| p.doubts.iter().map(|doubt| (p.name.clone(), doubt.clone())))
                .collect(),
            not_verified: side
                .processes
                .iter()
                .filter_map(|p| Some((p.name.clone(), p.not_verified.clone()?)))
                .collect(),
        }
    }
}

/// A row before it is judged.
#[derive(Debug)]
struct Row {
    change: Change,
    ratio: Option<Ratio>,
    /// By how much, as a logarithm, times change within a process: a quarter of the processes reach this. Only
    /// where there are too few processes to rule out that it is this change that the sides show.
    within: Option<f64>,
}

/// A test before it is judged.
#[derive(Debug)]
struct Rows {
    test: TestChange,
    whole: Row,
    categories: Vec<Row>,
    bricks: Vec<Row>,
}

impl Rows {
    fn new(
        name: &str,
        [a, b]: [&Side; 2],
        whole: [&Side; 2],
        order: &Order,
        options: &Options,
    ) -> Self {
        let (sides, samples) =
            ([a, b].map(|side| tests_of(side, name)), whole.map(|side| tests_of(side, name)));
        let walls = sides.each_ref().map(|side| medians(side, |test| Some(test.wall_ns.clone())));
        let seconds = seconds(a, b);
        let row = |name: &str, of: &dyn Fn(&Test) -> Option<Vec<u64>>| {
            let times = sides.each_ref().map(|side| medians(side, of));
            let few = sides.iter().any(|side| side.len() < exchange::PAIRS_THAT_DECIDE);
            let within = few.then(|| within(&samples, of)).flatten();
            let row = Row::new(name, &times, &walls, order, seconds.as_ref());
            Row { within, ..row }
        };
        let whole = row(name, &|test| Some(test.wall_ns.clone()));

        let [names_a, names_b] = sides.each_ref().map(|side| brick_names(side));
        let without = |names: &[String], others: &[String]| {
            let only = names.iter().filter(|name| !others.contains(name));
            only.cloned().collect::<Vec<String>>()
        };
        let mut test = TestChange {
            name: name.to_owned(),
            phase: sides[0][0].phase,
            tokens: sides[0][0].tokens,
            sample: sides[0][0].sample,
            whole: whole.change.clone(),
            categories: Vec::new(),
            bricks: Vec::new(),
            small: Vec::new(),
            only_in_a: without(&names_a, &names_b),
            only_in_b: without(&names_b, &names_a),
            bytes: None,
            bytes_absent: None,
        };
        let mut bricks: Vec<Row> = names_a
            .iter()
            .filter(|name| names_b.contains(name))
            .map(|name| row(name, &|test| brick_ns(test, name)))
            .collect();
        let has_rest = |test: &&Test| test.unattributed_ns.len() == test.wall_ns.len();
        if sides.iter().flatten().all(has_rest) {
            bricks.push(row(UNATTRIBUTED, &|test| Some(test.unattributed_ns.clone())));
        }
        let mut categories: Vec<String> = Vec::new();
        for brick in sides.iter().flatten().flat_map(|test| &test.bricks) {
            if !categories.contains(&brick.category) {
                categories.push(brick.category.clone());
            }
        }
        let mut categories: Vec<Row> =
            categories.iter().map(|name| row(name, &|test| category_ns(test, name))).collect();

        let share_of = |row: &Row| {
            let of_b = row.change.b_ns.zip(whole.change.b_ns).map(|(part, whole)| part / whole);
            row.change.share.into_iter().chain(of_b).fold(0.0, f64::max)
        };
        bricks.retain(|row| {
            let share = share_of(row);
            let is_small = share < options.min_share;
            if is_small {
                test.small.push((row.change.name.clone(), share));
            }
            !is_small
        });
        categories.retain(|row| share_of(row) >= options.min_share);
        for rows in [&mut bricks, &mut categories] {
            let key = |row: &Row| row.change.a_ns.unwrap_or(0.0);
            rows.sort_by(|x, y| key(y).total_cmp(&key(x)));
        }
        test.small.sort_by(|x, y| y.1.total_cmp(&x.1));
        Self { test, whole, categories, bricks }
    }

    fn into_change(self) -> TestChange {
        let changes = |rows: Vec<Row>| rows.into_iter().map(|row| row.change).collect();
        TestChange {
            whole: self.whole.change,
            categories: changes(self.categories),
            bricks: changes(self.bricks),
            ..self.test
        }
    }
}

impl Row {
    /// From the medians of the processes of both sides; `None` for a process without a time.
    fn new(
        name: &str,
        times: &[Vec<Option<f64>>; 2],
        walls: &[Vec<Option<f64>>; 2],
        order: &Order,
        seconds: Option<&[Vec<f64>; 2]>,
    ) -> Self {
        let logs = |times: &Vec<Option<f64>>| -> Option<Vec<f64>> {
            times.iter().map(|time| time.filter(|&ns| ns > 0.0).map(f64::ln)).collect()
        };
        let typical = |times: &[Option<f64>]| {
            let known: Vec<Option<f64>> = times.iter().copied().filter(Option::is_some).collect();
            // Zeros have no logarithm; with any, the plain median has to do.
            logs(&known).and_then(|logs| trimming::typical(&logs)).map_or_else(
                || median(&known.into_iter().flatten().collect::<Vec<f64>>()),
                |(log, _)| Some(log.exp()),
            )
        };
        let [a_ns, b_ns] = times.each_ref().map(|times| typical(times));
        let both = logs(&times[0]).zip(logs(&times[1]));
        let b_interval_ns = both.as_ref().and_then(|(_, b)| {
            let interval = trimming::typical(b)?.1?;
            Some((interval.0.exp(), interval.1.exp()))
        });
        let fewest = times[0].len().min(times[1].len());
        let enough = both.as_ref().filter(|_| fewest >= ratio::MIN_PROCESSES);
        let ratio = enough.and_then(|(a, b)| match &order.pairing {
            Pairing::Paired { pairs } => {
                let logs: Vec<f64> = pairs.iter().map(|&(i, j)| b[j] - a[i]).collect();
                Ratio::paired(&logs, &order.a_first)
            }
            Pairing::Unpaired { .. } => {
                Ratio::unpaired(a, b, seconds.map(|[a, b]| [a.as_slice(), b.as_slice()]))
            }
        });
        let reason = match (&both, &ratio) {
            (None, _) if a_ns.is_none() => Some("only B has it".to_owned()),
            (None, _) if b_ns.is_none() => Some("only A has it".to_owned()),
            (None, _) => Some("some processes spent no time in it".to_owned()),
            (_, None) => Some(format!(
                "{}: no verdict below {} a side, since fewer agree by chance too often",
                match (fewest, &order.pairing) {
                    (1, _) => "one process only".to_owned(),
                    (n, Pairing::Paired { .. }) => format!("{n} pairs only"),
                    (n, _) => format!("{n} processes only"),
                },
                ratio::MIN_PROCESSES
            )),
            (_, Some(ratio)) if ratio.error == 0.0 => {
                Some("all processes have the same times, which no measurement gives".to_owned())
            }
            _ => None,
        };
        Self {
            change: Change {
                name: name.to_owned(),
                share: a_ns.zip(typical(&walls[0])).map(|(part, wall)| part / wall),
                a_ns,
                b_ns,
                b_interval_ns,
                // Without an interval where there are too few for one.
                change: a_ns.zip(b_ns).filter(|_| fewest > 1).map(|(a, b)| b / a - 1.0),
                low: None,
                high: None,
                visible: None,
                processes_needed: None,
                verdict: Verdict::Inconclusive,
                reason,
            },
            ratio: ratio.filter(|ratio| ratio.error > 0.0),
            within: None,
        }
    }
}

/// When the processes of both sides were measured, if that is known of all.
fn seconds(a: &Side, b: &Side) -> Option<[Vec<f64>; 2]> {
    let of = |side: &Side| -> Option<Vec<f64>> {
        let seconds: Option<Vec<f64>> = side.processes.iter().map(|p| p.seconds).collect();
        // Receipts of one second have no order.
        seconds.filter(|seconds| seconds.windows(2).all(|two| two[0] < two[1]))
    };
    Some([of(a)?, of(b)?])
}

/// The part of a time's logarithm that a quarter of the processes change by within themselves: between the medians
/// of up to five stretches of consecutive samples.
fn within(sides: &[Vec<&Test>; 2], of: &dyn Fn(&Test) -> Option<Vec<u64>>) -> Option<f64> {
    const STRETCHES: usize = 5;
    let of_one = |test: &&Test| -> Option<f64> {
        let samples: Vec<f64> = of(test)?.into_iter().map(|ns| ns as f64).collect();
        let n = samples.len().min(STRETCHES);
        let stretch = |i: usize| {
            median(&samples[i * samples.len() / n..(i + 1) * samples.len() / n]).map(f64::ln)
        };
        let logs = (0..n).map(stretch).collect::<Option<Vec<f64>>>()?;
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = logs.iter().copied().fold(f64::INFINITY, f64::min);
        Some(most - least).filter(|spread| spread.is_finite())
    };
    let mut spreads: Vec<f64> = sides.iter().flatten().filter_map(of_one).collect();
    spreads.sort_by(f64::total_cmp);
    spreads.get(3 * spreads.len() / 4).copied()
}

fn tests_of<'s>(side: &'s Side, name: &str) -> Vec<&'s Test> {
    side.processes.iter().filter_map(|process| test_of(process, name)).collect()
}

fn test_of<'p>(process: &'p Process, name: &str) -> Option<&'p Test> {
    process.tests.iter().find(|test| test.name == name)
}

/// Each sample's time in the bricks of a name, which may be in two categories.
fn brick_ns(test: &Test, name: &str) -> Option<Vec<u64>> {
    sum_ns(test, |brick| brick.name == name)
}

/// The names of the bricks of these tests, in their order.
fn brick_names(tests: &[&Test]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for brick in tests.iter().flat_map(|test| &test.bricks) {
        if !names.contains(&brick.name) {
            names.push(brick.name.clone());
        }
    }
    names
}

/// Each sample's time in the bricks of a category.
fn category_ns(test: &Test, category: &str) -> Option<Vec<u64>> {
    sum_ns(test, |brick| brick.category == category)
}

fn sum_ns(test: &Test, is_meant: impl Fn(&Brick) -> bool) -> Option<Vec<u64>> {
    let mut sums: Option<Vec<u64>> = None;
    for brick in test.bricks.iter().filter(|brick| is_meant(brick)) {
        let sums = sums.get_or_insert_with(|| vec![0; brick.ns.len()]);
        for (sum, ns) in sums.iter_mut().zip(&brick.ns) {
            *sum = sum.saturating_add(*ns);
        }
    }
    sums
}

/// The median of each process's samples.
fn medians(tests: &[&Test], of: impl Fn(&Test) -> Option<Vec<u64>>) -> Vec<Option<f64>> {
    let of_one = |test: &&Test| {
        let samples: Vec<f64> = of(test)?.into_iter().map(|ns| ns as f64).collect();
        median(&samples)
    };
    tests.iter().map(of_one).collect()
}
