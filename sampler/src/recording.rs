//! What a sampler noted, as addresses.

use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What took the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampler {
    /// Our own, by `perf_event_open`.
    PerfEvent,
    /// Our own, by timers of the process itself.
    Timer,
    /// The program `perf`.
    Perf,
}

/// The clock that the samples' times are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeBase {
    /// `CLOCK_MONOTONIC_RAW`.
    MonotonicRaw,
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// The kernel's scheduler clock, which no program can read: such samples can't be joined with
    /// anything by their time.
    Scheduler,
}

/// What a sampler noted.
#[derive(Debug, Clone)]
pub struct Recording {
    /// What took them.
    pub sampler: Sampler,
    /// What was counted down to the next sample, as `perf` names it: `cpu-clock:u`, `cycles:u`.
    pub event: String,
    /// Samples asked for in a second of a thread's CPU time.
    pub frequency: Option<u64>,
    /// The clock of their times.
    pub time_base: TimeBase,
    /// The samples, by time.
    pub samples: Vec<RawSample>,
    /// The addresses of all stacks, one after the other.
    pub addresses: Vec<u64>,
    /// Every process that was seen.
    pub processes: Vec<Process>,
    /// Every thread that was seen.
    pub threads: Vec<Thread>,
    /// Samples that the kernel or we had no room for.
    pub lost: u64,
    /// What else limits what the samples say, a sentence each.
    pub notes: Vec<String>,
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawSample {
    /// When, in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// How many samples it stands for: 1, unless the file says otherwise.
    pub weight: u64,
    /// Of its stack in [`Recording::addresses`], the innermost first. The first is where the thread
    /// was; the others are return addresses, each the one after its call.
    pub stack: Range<usize>,
    /// How many of them, the innermost, are the kernel's.
    pub n_kernel: usize,
    /// How the stack ends.
    pub ending: Ending,
}

/// How far a stack could be unwound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// To the thread's first function.
    Root,
    /// To the end of the part of the stack that was copied.
    Cut,
    /// To a place for which there is no unwind information, or where it was wrong.
    Lost,
}

/// The number under which a recording of `perf` has the kernel among its processes. The mapping's
/// addresses are those of its code, and its offset is the address of its first symbol, which tells
/// whether it is the one that runs now.
pub const KERNEL_PID: u32 = u32::MAX;

/// A process that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its code, in the order in which it was mapped.
    pub mappings: Vec<Mapping>,
}

/// A part of a file that a process can execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// When it came, in nanoseconds of the recording's clock; 0 if it was there before. A later one
    /// replaces an earlier one of the same addresses.
    pub from_ns: u64,
    /// Its addresses.
    pub addresses: Range<u64>,
    /// Where in the file it begins, in bytes.
    pub file_offset: u64,
    /// The file, or what the kernel calls the memory: `[vdso]`, `//anon`.
    pub file: PathBuf,
}

/// A thread that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its process.
    pub pid: u32,
    /// Its number; that of the process for the first one.
    pub tid: u32,
    /// Its name.
    pub name: String,
}
