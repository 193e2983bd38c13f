//! The summary of a flamegraph, `flamegraph.json`: its shares, for comparisons and history; and how it is read.

use std::path::{Path, PathBuf};

use brickscope_profile::load::{self, Limit};
use brickscope_profile::text::printable;
use brickscope_profile::{Absent, Machine, Model, Phase, Run};
use serde::{Deserialize, Serialize};

use super::{Class, Unit};

/// The file in a flamegraph's folder.
pub const FILE: &str = "flamegraph.json";

/// The version of `flamegraph.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// Room for ninety thousand functions, which take about 700 bytes each with forty blocks.
pub const LIMIT: Limit = Limit { bytes: 64 << 20, instead: "is it a flamegraph.json?" };

/// The file `flamegraph.json` of a flamegraph's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The [`SCHEMA_VERSION`] with which it was written.
    pub schema_version: u32,
    /// The version of brickscope that wrote it.
    pub brickscope_version: String,
    /// When the samples were taken or the spans measured, RFC 3339 in UTC.
    pub generated: String,
    /// Where the stacks come from.
    pub source: Source,
    /// The unit of `total` and the weights.
    pub unit: Unit,
    /// The weight of all drawn stacks.
    pub total: u64,
    /// Losses and limits, a sentence each.
    #[serde(rename = "doubts")]
    pub warnings: Vec<String>,
    /// The model, if it is known.
    pub model: Option<Model>,
    /// What ran, likewise.
    pub run: Option<Run>,
    /// Where it ran, likewise.
    pub machine: Option<Machine>,
    /// The sampled command, if it wasn't brickscope itself.
    pub command: Option<Vec<String>>,
    /// The command line of brickscope, with the program.
    #[serde(default)]
    pub command_line: Vec<String>,
    /// The compiler and flags with which brickscope was built.
    pub build: String,
    /// Self weights, the largest first.
    pub classes: Vec<Share<Class>>,
    /// The weight in each brick, without the bricks inside of it. `unattributed` counts as one.
    pub bricks: Vec<Share<String>>,
    /// The weight in each function, including callees.
    pub functions: Vec<Share<String>>,
    /// The comparison of sampled and measured shares.
    pub agreement: Option<Agreement>,
    /// Why there is none, for a sampled flamegraph.
    pub agreement_absent: Option<Absent>,
    /// What the picture doesn't show in full; `None` without a picture, or from an older brickscope.
    #[serde(default)]
    pub hidden: Option<Hidden>,
    /// What the passes took; empty without a run, or from an older brickscope.
    #[serde(default)]
    pub latency: Vec<Latency>,
    /// What limits the run and what slows it down, a sentence each; likewise.
    #[serde(default)]
    pub insights: Vec<String>,
    /// How many passes of the run were disturbed, and how many there are; `None` likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<[u64; 2]>,
    /// Whether tokens of the run are counted by the phases of its passes, which requests share; not from an older brickscope.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_by_passes: bool,
}

impl Summary {
    /// Reads `flamegraph.json`, given the file or its folder.
    ///
    /// # Errors
    ///
    /// A sentence without the file's name, if the file is unreadable, too long, truncated, inconsistent or
    /// of another schema.
    pub fn load(path: &Path) -> Result<Self, String> {
        let file: PathBuf = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        let bytes = load::bytes(&file, LIMIT).map_err(|error| error.to_string())?;
        Self::from_json(&bytes)
    }

    /// The same from the bytes of the file.
    ///
    /// # Errors
    ///
    /// Likewise.
    pub fn from_json(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let fault = |error: serde_json::Error| match error.is_eof() {
            true => format!("a truncated flamegraph.json: it ends at byte {}", bytes.len()),
            false => format!("not a flamegraph.json: {error}"),
        };
        let Version { schema_version: found } = serde_json::from_slice(bytes).map_err(fault)?;
        if found != SCHEMA_VERSION {
            return Err(format!(
                "its schema_version is {found}, and this brickscope reads {SCHEMA_VERSION}"
            ));
        }
        let summary: Self = serde_json::from_slice(bytes).map_err(fault)?;
        summary.check()?;
        Ok(summary)
    }

    /// Checks that a part is at most the whole, and its blocks sum up to at most the part: spans that a run
    /// didn't keep are in no block.
    fn check(&self) -> Result<(), String> {
        let classes = self.classes.iter().map(|share| {
            (format!("class {:?}", share.name), share.weight, share.self_weight, &share.by_block)
        });
        let others = self.bricks.iter().chain(&self.functions);
        let others = others
            .map(|share| (share.name.clone(), share.weight, share.self_weight, &share.by_block));
        for (name, weight, self_weight, by_block) in classes.chain(others) {
            let name = printable(&name);
            if weight > self.total || self_weight > weight {
                return Err(format!(
                    "`{name}` weighs {weight} and {self_weight} by itself, of {} in all",
                    self.total
                ));
            }
            let sum = by_block.iter().fold(0, |sum: u64, block| sum.saturating_add(*block));
            if !by_block.is_empty() && sum > weight {
                return Err(format!("`{name}` weighs {weight}, and {sum} in its blocks"));
            }
        }
        Ok(())
    }
}

/// What the passes of a phase took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The phase.
    pub phase: Phase,
    /// How many passes.
    pub passes: u64,
    /// All of them together.
    pub wall_ns: u64,
    /// How fast that was; `None` if nobody counted tokens.
    pub tokens_per_second: Option<f64>,
}

/// What the picture of a flamegraph doesn't show in full. The weight of frames that lie in one another
/// counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden {
    /// The width in pixels that names were fitted to.
    pub width: u32,
    /// Frames that are too narrow to be drawn.
    pub left_out: Frames,
    /// Frames that are drawn, but too narrow for their name.
    pub unnamed: Frames,
    /// Frames whose name is shortened.
    pub shortened: Frames,
}

/// A number of frames, and the weight they hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// How many.
    pub frames: u64,
    /// The weight.
    pub weight: u64,
}

/// The source of the stacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// `spans`, `device` (the spans of one in another program's trace), `sampler`, `timer`, `perf` or `folded`.
    pub via: String,
    /// The event that triggers samples.
    pub event: Option<String>,
    /// Samples requested per second of a thread's CPU time.
    pub frequency: Option<u64>,
}

/// The weight of a class, brick or function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share<T> {
    /// Its name.
    pub name: T,
    /// The phase, for bricks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The weight, including everything inside.
    pub weight: u64,
    /// The weight without that.
    pub self_weight: u64,
    /// The `weight` in each block of time; empty if times are unknown.
    pub by_block: Vec<u64>,
}

/// Sampled and measured shares of bricks, on the threads that ran the passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Samples inside of passes.
    pub samples: u64,
    /// Whether they include disturbed passes, for lack of undisturbed ones.
    #[serde(default)]
    pub disturbed: bool,
    /// One for each brick of a phase.
    pub bricks: Vec<Compared>,
}

/// One brick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The phase.
    pub phase: Phase,
    /// The brick.
    pub brick: String,
    /// Share of the phase's wall time, 0 to 1.
    pub measured: f64,
    /// Share of the phase's samples, 0 to 1.
    pub sampled: f64,
    /// The allowed difference, given the number of samples: in one table of a hundred, some brick exceeds
    /// it by chance.
    pub allowed: f64,
}
