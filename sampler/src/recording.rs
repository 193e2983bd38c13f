//! What a sampler noted, as addresses.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
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
    /// The addresses of the stacks, one after the other. Equal stacks share theirs.
    pub addresses: Vec<u64>,
    /// The processes that were seen: of those that have ended, at least the ones with samples.
    pub processes: Vec<Process>,
    /// Every thread that was seen.
    pub threads: Vec<Thread>,
    /// Samples that the kernel or we had no room for, where samples are counted.
    pub lost: u64,
    /// Records that the kernel had no room for, where it counts records: of samples, nearly all, but
    /// also of processes, threads and code. They aren't in `lost`, and `notes` says so.
    pub lost_records: u64,
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

/// Mappings that forked processes get from their parents, all together. A program that does nothing
/// but fork, or a damaged file of a few megabytes, could ask for terabytes.
pub(crate) const MAX_INHERITED: usize = 1 << 20;

/// Addresses of stacks, equal ones once.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    pub(crate) addresses: Vec<u64>,
    /// By the hash of their addresses. Of two stacks with the same hash only the first is here.
    known: HashMap<u64, Range<usize>>,
    hasher: RandomState,
}

impl Stacks {
    /// Keeps the stack that `append` appends to the addresses it is given; it leaves the ones that
    /// are there as they are. Gives where the stack is, and what `append` gives.
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
