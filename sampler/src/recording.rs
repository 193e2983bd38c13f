//! The result of sampling, as addresses.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How samples were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampler {
    /// By this crate, with `perf_event_open`.
    PerfEvent,
    /// By this crate, with timers in the process itself.
    Timer,
    /// By the program `perf`.
    Perf,
}

/// The clock of the samples' times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeBase {
    /// `CLOCK_MONOTONIC_RAW`.
    MonotonicRaw,
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// The kernel's scheduler clock, which programs can't read: such samples can't be matched with other times.
    Scheduler,
}

/// Samples with addresses.
#[derive(Debug, Clone)]
pub struct Recording {
    /// How the samples were taken.
    pub sampler: Sampler,
    /// The event that triggered samples, in `perf`'s notation: `cpu-clock:u`, `cycles:u`.
    pub event: String,
    /// The requested number of samples per second of a thread's CPU time.
    pub frequency: Option<u64>,
    /// The clock of the samples' times.
    pub time_base: TimeBase,
    /// The samples, in the order of time.
    pub samples: Vec<RawSample>,
    /// The addresses of all stacks, one after the other. Equal stacks are stored once.
    pub addresses: Vec<u64>,
    /// The processes that were seen; of those that have ended, at least the ones with samples.
    pub processes: Vec<Process>,
    /// All threads that were seen.
    pub threads: Vec<Thread>,
    /// Lost samples: those that the kernel or this crate had no room for, where samples are counted.
    pub lost: u64,
    /// Lost records, where the kernel counts records: nearly all are samples, but some describe processes, threads and
    /// code. They aren't included in `lost`, and `notes` mentions them.
    pub lost_records: u64,
    /// Further limitations of the samples, a sentence each.
    pub notes: Vec<String>,
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawSample {
    /// When it was taken, in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// How many samples it stands for: 1, unless the file states otherwise.
    pub weight: u64,
    /// The range of its stack in [`Recording::addresses`], innermost first. The first address is where the thread was;
    /// the others are return addresses, each just after its call.
    pub stack: Range<usize>,
    /// How many of the addresses, the innermost ones, are the kernel's.
    pub n_kernel: usize,
    /// How the stack ends.
    pub ending: Ending,
}

/// How far a stack was unwound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// To the thread's first function.
    Root,
    /// To the end of the part of the stack that was copied.
    Cut,
    /// To a place without unwind information, or with wrong information.
    Lost,
}

/// The process id under which a recording of `perf` lists the kernel. The mapping has the addresses of the kernel's code,
/// and its offset is the address of its first symbol, which tells whether it is the kernel that is running now.
pub const KERNEL_PID: u32 = u32::MAX;

/// A process that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its code, in the order of mapping.
    pub mappings: Vec<Mapping>,
}

/// A part of a file that a process can execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// When it was mapped, in nanoseconds of the recording's clock; 0 if that was before the recording. A later mapping
    /// replaces an earlier one at the same addresses.
    pub from_ns: u64,
    /// Its addresses.
    pub addresses: Range<u64>,
    /// The offset in the file at which it begins, in bytes.
    pub file_offset: u64,
    /// The file, or the kernel's name for the memory: `[vdso]`, `//anon`.
    pub file: PathBuf,
}

/// A thread that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The id of its process.
    pub pid: u32,
    /// Its id; for the main thread it is the process id.
    pub tid: u32,
    /// Its name.
    pub name: String,
}

/// How many mappings forked processes may inherit from their parents in total. A program that only forks, or a damaged
/// file of a few megabytes, could require terabytes.
pub(crate) const MAX_INHERITED: usize = 1 << 20;

/// The addresses of stacks, with equal stacks stored once.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    pub(crate) addresses: Vec<u64>,
    /// By the hash of their addresses. Of two stacks with the same hash, only the first is here.
    known: HashMap<u64, Range<usize>>,
    hasher: RandomState,
}

impl Stacks {
    /// Stores the stack that `append` appends to the given addresses without changing those already there. Returns where
    /// the stack is, and what `append` returned.
    pub(crate) fn add<T>(&mut self, append: impl FnOnce(&mut Vec<u64>) -> T) -> (Range<usize>, T) {
        let start = self.addresses.len();
        let given = append(&mut self.addresses);
        let new = start..self.addresses.len();
        let hash = self.hasher.hash_one(&self.addresses[new.clone()]);
        let known = self.known.entry(hash).or_insert_with(|| new.clone()).clone();
        if known != new && self.addresses[known.clone()] == self.addresses[new.clone()] {
            self.addresses.truncate(start);
            return (known, given);
        }
        (new, given)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_stack_is_kept_once_and_as_it_was(
            wanted in prop::collection::vec(prop::collection::vec(0..3_u64, 0..4), 0..100),
        ) {
            let mut stacks = Stacks::default();
            let add = |(at, stack): (usize, &Vec<u64>)| {
                stacks.add(|addresses| {
                    addresses.extend(stack);
                    at
                })
            };
            let kept: Vec<_> = wanted.iter().enumerate().map(add).collect();
            for (at, ((range, given), stack)) in kept.iter().zip(&wanted).enumerate() {
                prop_assert_eq!(&stacks.addresses[range.clone()], stack.as_slice());
                prop_assert_eq!(*given, at);
            }
            let distinct: std::collections::HashSet<_> = wanted.iter().collect();
            let n_addresses: usize = distinct.iter().map(|stack| stack.len()).sum();
            prop_assert_eq!(stacks.addresses.len(), n_addresses);
        }
    }
}
