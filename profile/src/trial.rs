//! Changes that were tried: the same work with and without a change, in turns.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::brick::Phase;
use crate::stats::PairedRatio;

/// A change that was tried: runs with it and without it, in turns, and what it brought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// When, RFC 3339 in UTC.
    pub measured: String,
    /// The rule of the finding that proposed it; `None` if nobody predicted anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What was changed.
    pub change: Change,
    /// Whose passes were compared.
    pub phase: Phase,
    /// Which time of a pass was compared.
    pub time: PassTime,
    /// What a pass took without the change, in nanoseconds: the median of the runs.
    pub before_ns: f64,
    /// And with it.
    pub after_ns: f64,
    /// The ratio of the two, minus 1, by pairs of runs: -0.1 means that the change saves a tenth.
    pub ratio: PairedRatio,
    /// What was predicted to be saved, as parts of the time without the change: at least, most likely (or in the middle, if
    /// nothing is likelier than the ends), at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<[f64; 3]>,
    /// What follows from it.
    pub verdict: TrialVerdict,
    /// The part of the machine's CPU time that other programs used meanwhile, 0 to 1: the mean of the runs. `None` if that
    /// isn't known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_share: Option<f64>,
}

/// What is changed to save time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Another number of threads.
    Threads(u32),
    /// Each thread stays on a CPU of its own.
    Pinned,
    /// The weights are copied into large pages of memory.
    LargePages,
    /// The weights have another format: `q4_k_m`.
    Quantization(String),
    /// Less is recorded: no hardware counters, no shares, no tiles.
    RecordLess,
    /// Sampling looks only at this many of the likeliest tokens.
    TopK(u32),
    /// Another build of the program.
    Program(String),
    /// The command has these words, too.
    Words(Vec<String>),
    /// A command of the user's switched the change on before each run with it.
    Command(String),
}

/// Which time of a pass is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassTime {
    /// Of a typical pass: without those that were disturbed or had a stall, if enough others remain.
    #[default]
    Typical,
    /// On average over all passes.
    Mean,
    /// Of a typical pass, with the time until the next one begins.
    WithGap,
}

/// What a trial says of a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialVerdict {
    /// It is faster with the change; and by as much as was predicted, if anything was.
    Confirmed,
    /// It is not faster by 1 %, or by less than was predicted.
    Refuted,
    /// The runs don't tell.
    Inconclusive,
}

impl fmt::Display for Change {
    /// `--threads 2`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(threads) => write!(f, "--threads {threads}"),
            Self::Pinned => f.write_str("--pin"),
            Self::LargePages => f.write_str("--huge-pages"),
            Self::Quantization(name) => write!(f, "--quant {name}"),
            Self::RecordLess => f.write_str("recording less"),
            Self::TopK(k) => write!(f, "--top-k {k}"),
            Self::Program(program) => write!(f, "--program {program}"),
            Self::Words(words) => f.write_str(&words.join(" ")),
            Self::Command(command) => f.write_str(command),
        }
    }
}

impl TrialVerdict {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Inconclusive => "inconclusive",
        }
    }
}

impl Trial {
    /// What the change saves, as parts of the time without it: at least, estimated, at most. Below 0 where it costs time.
    #[must_use]
    pub fn saved(&self) -> [f64; 3] {
        [-self.ratio.high, -self.ratio.estimate, -self.ratio.low]
    }
}
