//! Samples with names.

use serde::{Deserialize, Serialize};

use crate::recording::{Sampler, Thread, TimeBase};

/// Samples with names. This is what is kept of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// How the samples were taken.
    pub sampler: Sampler,
    /// The event that triggered samples, in `perf`'s notation: `cpu-clock:u`, `cycles:u`.
    pub event: String,
    /// The requested number of samples per second of a thread's CPU time.
    pub frequency: Option<u64>,
    /// The clock of the samples' times.
    pub time_base: TimeBase,
    /// Lost samples, for which there was no room.
    pub lost: u64,
    /// Samples whose stacks end where the copy of the stack ends.
    pub cut: u64,
    /// Samples whose stacks end where unwind information is missing.
    pub unwound_in_part: u64,
    /// Further limitations of the samples, a sentence each.
    pub notes: Vec<String>,
    /// All threads that were seen.
    pub threads: Vec<Thread>,
    /// All functions that were seen.
    pub frames: Vec<Frame>,
    /// All stacks that were seen, as indices into `frames`, outermost first.
    pub stacks: Vec<Vec<u32>>,
    /// The samples, in the order of time.
    pub samples: Vec<Seen>,
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Its demangled name; without a name, `[unknown]` or, if the stack was cut off, `[stack cut off]`.
    pub function: String,
    /// The name of its code file, without folders; empty if unknown.
    pub module: String,
    /// Its source file, if there is debug information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The origin of the frame.
    pub kind: FrameKind,
}

/// The origin of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// A function of the program.
    User,
    /// A function of the program, inlined into the next outer one.
    Inlined,
    /// A function of the kernel.
    Kernel,
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// When it was taken, in nanoseconds of the clock.
    pub time_ns: u64,
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// How many samples it stands for.
    pub weight: u64,
    /// The index of its stack in [`Sampled::stacks`].
    pub stack: u32,
}
