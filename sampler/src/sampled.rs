//! Samples with names.

use serde::{Deserialize, Serialize};

use crate::recording::{Sampler, Thread, TimeBase};

/// Samples whose stacks have names. It is what is kept of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// What took the samples.
    pub sampler: Sampler,
    /// What was counted down to the next sample, as `perf` names it: `cpu-clock:u`, `cycles:u`.
    pub event: String,
    /// Samples asked for in a second of a thread's CPU time.
    pub frequency: Option<u64>,
    /// The clock of their times.
    pub time_base: TimeBase,
    /// Samples that there was no room for.
    pub lost: u64,
    /// Samples whose stacks end where the copied part of the stack did.
    pub cut: u64,
    /// Samples whose stacks end where there was no unwind information.
    pub unwound_in_part: u64,
    /// What else limits what the samples say, a sentence each.
    pub notes: Vec<String>,
    /// Every thread that was seen.
    pub threads: Vec<Thread>,
    /// Every function that was seen.
    pub frames: Vec<Frame>,
    /// Every stack that was seen: indices into `frames`, the outermost first.
    pub stacks: Vec<Vec<u32>>,
    /// The samples, by time.
    pub samples: Vec<Seen>,
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Its name, demangled; without one, `[unknown]` or, if the stack was cut, `[stack cut off]`.
    pub function: String,
    /// The name of the file of code that it is in, without folders; empty if that isn't known.
    pub module: String,
    /// Its source file, if there is debug information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Where it comes from.
    pub kind: FrameKind,
}

/// Where a frame comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// A function of the program.
    User,
    /// The same, inlined into the one around it.
    Inlined,
    /// A function of the kernel.
    Kernel,
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// When, in nanoseconds of the clock.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// How many samples it stands for.
    pub weight: u64,
    /// Its stack: an index into [`Sampled::stacks`].
    pub stack: u32,
}
