//! Why a token took much longer than others: the one thing that it waited for most, beyond what is typical.

use brickscope_profile::text::grouped as with_commas;
use serde::Serialize;

use super::{Interval, Piece, Requests, Until, rank};
use crate::words::time;

/// How many intervals there must be, so that a median says what is typical.
pub(crate) const FEWEST: usize = 20;
/// How many times the median an interval takes that asks for a reason.
pub const SLOW: u64 = 2;
/// How many slow intervals there must be, so that what most of them waited for is worth a word.
const FEWEST_SLOW: usize = 5;

/// A kind of tokens: its name, and whether an interval ends with one.
type Kind = (&'static str, fn(Until) -> bool);

/// A kind of tokens by its name, with why its slow ones were.
pub(crate) type OfKind = (&'static str, Causes);

/// The kinds of tokens that are held against each other.
pub(crate) const KINDS: [Kind; 2] = [
    ("first token", |until| until == Until::FirstToken),
    ("further token", |until| matches!(until, Until::Token(_))),
];

/// What a slow interval waited for most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// The engine did not have it yet: it was read, and its text made tokens.
    Receiving,
    /// The request had no place in the batch.
    Queue,
    /// Prompts of others were processed, in its own passes or before them.
    Prompts,
    /// Tokens of more others than is typical, or passes for others alone.
    TokensOfOthers,
    /// Passes ran that computed tokens of its own again: they had lost their place in the KV cache.
    Again,
    /// A thread of the program waited for a CPU while its passes ran.
    Cpu,
    /// Passes ran that waited for pages from a disk.
    Disk,
    /// It had been computed, and was not sent: who asked reads slowly, or what sends it had no CPU.
    Sending,
    /// Its own passes took long, and nothing of the above says why: a long prompt of its own, say.
    Own,
    /// Between passes: the host scheduled, sampled, made text or sent it.
    Between,
    /// Between passes, as a thread made the memory that the profiler records into.
    Profiler,
    /// Nobody knows what ran.
    Unattributed,
}

impl Cause {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receiving => "before the engine: HTTP, its text",
            Self::Queue => "no place in the batch",
            Self::Prompts => "prompts of others",
            Self::TokensOfOthers => "tokens of others",
            Self::Again => "its own tokens, computed again",
            Self::Cpu => "waiting for a CPU",
            Self::Disk => "waiting for a disk",
            Self::Sending => "being sent",
            Self::Own => "its own passes",
            Self::Between => "the host, between passes",
            Self::Profiler => "brickscope itself, at a first call",
            Self::Unattributed => "(unattributed)",
        }
    }
}

impl Cause {
    /// The same in at most eight letters, where there is no more room: the name is told beside it.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::Receiving => "engine",
            Self::Queue => "queue",
            Self::Prompts => "prompts",
            Self::TokensOfOthers => "tokens",
            Self::Again => "again",
            Self::Cpu => "CPU",
            Self::Disk => "disk",
            Self::Sending => "sent",
            Self::Own => "own",
            Self::Between => "host",
            Self::Profiler => "profiler",
            Self::Unattributed => "(unattr)",
        }
    }

    /// What to try against it, if that is known: flags of llama-server and of vLLM.
    #[must_use]
    pub const fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::Receiving => {
                "more processes that read requests (vLLM: --api-server-count), or shorter prompts"
            }
            Self::Queue => {
                "more places in the batch (llama-server: -np, and -c with it; vLLM: --max-num-seqs), or fewer requests at once"
            }
            Self::Prompts => {
                "prompts in smaller pieces (llama-server: a lower -b; vLLM: --max-num-batched-tokens), or long ones elsewhere"
            }
            Self::TokensOfOthers => {
                "fewer places in the batch (llama-server: -np; vLLM: --max-num-seqs)"
            }
            Self::Again => {
                "more room in the KV cache (vLLM: --gpu-memory-utilization), or fewer places in the batch (--max-num-seqs)"
            }
            Self::Cpu => {
                "no other programs on these CPUs, or fewer threads (llama-server: -t, -tb)"
            }
            Self::Disk => "more free memory, or weights that stay in it (llama-server: --mlock)",
            Self::Sending => "look at who asked: it reads slowly, or the network is slow",
            Self::Between => {
                "look at grammars, samplers and logging of these requests: `--request ID` shows one"
            }
            Self::Profiler => "call prepare_thread on each thread before it serves",
            Self::Own | Self::Unattributed => return None,
        })
    }
}

/// An interval that took at least [`SLOW`] times the median, with its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caused {
    /// The interval.
    pub interval: Interval,
    /// What it waited for most.
    pub cause: Cause,
    /// How much longer that took than it typically does, in nanoseconds.
    pub more_ns: u64,
}

/// The slow intervals of some, and what is typical.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Causes {
    /// How many intervals there are.
    pub of: u64,
    /// Their median, in nanoseconds.
    pub median_ns: u64,
    /// Those that take at least [`SLOW`] times as long.
    pub slow: Vec<Caused>,
}

/// The parts of an interval that are held against what is typical of them.
const GROUPS: [&[Piece]; 5] = [
    &[Piece::Receiving],
    &[Piece::Queue],
    &[
        Piece::OwnAlone,
        Piece::OwnBesidePrompts,
        Piece::OwnBesideDecode,
        Piece::OwnBesideBoth,
        Piece::OtherPrompts,
        Piece::OtherDecode,
        Piece::OtherBoth,
    ],
    &[Piece::Between],
    &[Piece::Unattributed],
];

fn grouped(interval: &Interval) -> [u64; GROUPS.len()] {
    GROUPS.map(|pieces| pieces.iter().map(|&piece| interval.of(piece)).sum())
}

/// The median, of what is sorted for it.
pub(super) fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    rank(values, 50).unwrap_or(0)
}

impl Causes {
    /// Of each kind of tokens of which there are enough.
    pub(crate) fn of_kinds(requests: &Requests<'_>) -> Vec<OfKind> {
        let kinds = KINDS.into_iter();
        kinds.filter_map(|(what, wanted)| Some((what, Self::of(requests, wanted)?))).collect()
    }

    /// Of the intervals with an end that is wanted. `None` if there are fewer than 20.
    ///
    /// One that had been computed for half of what it took more has that cause: whatever ran then wasn't for it. Any other has
    /// the cause whose time exceeds its median most. Where that is in passes, it is the first of these that took
    /// half of it or more: what a thread waited for a CPU, passes that read from a disk, passes that computed tokens of its own
    /// again, passes with prompts of others, passes for tokens of others, if some were for these alone. Where it is none of
    /// these, and waits were read around several passes together, it is the CPU if all of that wait may lie in this interval.
    #[must_use]
    pub fn of(requests: &Requests<'_>, is_wanted: impl Fn(Until) -> bool) -> Option<Self> {
        let lengths = requests.lengths().filter(|(until, _)| is_wanted(*until));
        let mut lengths: Vec<u64> = lengths.map(|(_, ns)| ns).collect();
        if lengths.len() < FEWEST {
            return None;
        }
        let of_kept = median(&mut lengths);
        // Those that were kept are slow ones: what is typical, the sums of all say.
        let median_ns = requests.median_of_all(&is_wanted).unwrap_or(of_kept);
        // Then nothing has to be divided.
        if lengths.last().is_none_or(|&longest| longest < median_ns.saturating_mul(SLOW)) {
            return Some(Self { of: lengths.len() as u64, median_ns, slow: Vec::new() });
        }
        let all = requests.all_where(|until, _| is_wanted(until));
        let all: Vec<[u64; GROUPS.len()]> = all.map(|interval| grouped(&interval)).collect();
        let mut typical = [0; GROUPS.len()];
        for (group, typical) in typical.iter_mut().enumerate() {
            *typical = median(&mut all.iter().map(|of| of[group]).collect::<Vec<_>>());
        }
        let least_ns = median_ns.saturating_mul(SLOW);
        let is_slow = |until: Until, ns: u64| median_ns > 0 && ns >= least_ns && is_wanted(until);
        let slow = requests.all_where(is_slow).map(|interval| {
            let sending_ns = requests.sending_ns(&interval);
            if sending_ns > 0 && sending_ns >= interval.ns().saturating_sub(median_ns) / 2 {
                return Caused { interval, cause: Cause::Sending, more_ns: sending_ns };
            }
            let more = grouped(&interval).into_iter().zip(typical);
            let more = more.map(|(ns, typical)| ns.saturating_sub(typical));
            let (group, more_ns) = more
                .enumerate()
                .max_by_key(|(group, ns)| (*ns, GROUPS.len() - group))
                .unwrap_or_default();
            let cause = match group {
                // Each is as it typically is, and only together they are not.
                _ if more_ns == 0 => Cause::Unattributed,
                0 => Cause::Receiving,
                1 => Cause::Queue,
                2 => requests.cause_in_passes(&interval, more_ns),
                3 if requests.prepared_ns(&interval) > more_ns / 2 => Cause::Profiler,
                3 => Cause::Between,
                _ => Cause::Unattributed,
            };
            Caused { interval, cause, more_ns }
        });
        Some(Self { of: lengths.len() as u64, median_ns, slow: slow.collect() })
    }

    /// How many slow intervals each cause has, most first.
    #[must_use]
    pub fn counts(&self) -> Vec<(Cause, u64)> {
        let mut counts: Vec<(Cause, u64)> = Vec::new();
        for of in &self.slow {
            match counts.iter_mut().find(|(cause, _)| *cause == of.cause) {
                Some((_, count)) => *count += 1,
                None => counts.push((of.cause, 1)),
            }
        }
        counts.sort_by_key(|&(cause, count)| (std::cmp::Reverse(count), cause));
        counts
    }

    /// The cause that more than half of the slow intervals have, and how many have it; `None` if fewer than five are slow.
    #[must_use]
    pub fn most(&self) -> Option<(Cause, u64)> {
        let (cause, count) = self.counts().into_iter().next()?;
        let slow = self.slow.len();
        (slow >= FEWEST_SLOW && count.saturating_mul(2) > slow as u64).then_some((cause, count))
    }

    /// How many intervals are slow, that end with what is said: `115 of 774 further tokens took at least 2 times the median,
    /// 30.6 ms. Most of what was more:`.
    pub(crate) fn how_many_slow(&self, what: &str) -> String {
        let Self { of, median_ns, slow } = self;
        let (of, median) = (with_commas(*of), time(*median_ns as f64));
        if slow.is_empty() {
            return format!("No {what} of {of} took {SLOW} times the median, {median}.");
        }
        let slow = with_commas(slow.len() as u64);
        format!(
            "{slow} of {of} {what}s took at least {SLOW} times the median, {median}. Most of what was more:"
        )
    }
}

impl Requests<'_> {
    /// The median of all such intervals, where only some are there.
    fn median_of_all(&self, is_wanted: &impl Fn(Until) -> bool) -> Option<u64> {
        let kept = self.kept?;
        let times =
            if is_wanted(Until::FirstToken) { &kept.first_token } else { &kept.between_tokens };
        times.histogram.percentile(0.5)
    }

    /// What of the time between passes of an interval threads took to make the memory that the profiler records into.
    fn prepared_ns(&self, interval: &Interval) -> u64 {
        let of = &self.profile.overhead;
        let from = self.after_queue(interval);
        let in_passes = self.overlapping(from, interval.to_ns).map(|pass| {
            of.prepared_within_ns(pass.start_ns.max(from), pass.end_ns.min(interval.to_ns))
        });
        let in_passes = in_passes.fold(0, u64::saturating_add);
        of.prepared_within_ns(from, interval.to_ns).saturating_sub(in_passes)
    }

    /// Why the passes of an interval took so much longer than is typical.
    pub(super) fn cause_in_passes(&self, interval: &Interval, more_ns: u64) -> Cause {
        // What ran while it was in the queue is of the queue.
        let admitted = self.profile.requests[interval.request as usize].admitted_ns;
        let from = admitted.unwrap_or(0).clamp(interval.from_ns, interval.to_ns);
        let (mut waiting_ns, mut reading_ns) = (0_u64, 0_u64);
        for pass in self.overlapping(from, interval.to_ns) {
            let Some(of) = self.profile.passes[pass.nth].disturbance else { continue };
            let ns = pass.end_ns.min(interval.to_ns).saturating_sub(pass.start_ns.max(from));
            if of.disk_faults.is_some_and(|faults| faults > 0) {
                reading_ns = reading_ns.saturating_add(ns);
            }
            // Threads are looked at every few passes, so a wait is of all of these, as long as each took.
            let waited_ns = u128::from(of.longest_wait_ns.unwrap_or(0)) * u128::from(ns);
            let waited_ns = waited_ns / u128::from(of.wall_ns.max(1));
            waiting_ns = waiting_ns.saturating_add(waited_ns.min(ns.into()) as u64);
        }
        let beside: u64 =
            [Piece::OwnBesidePrompts, Piece::OwnBesideBoth, Piece::OtherPrompts, Piece::OtherBoth]
                .into_iter()
                .map(|piece| interval.of(piece))
                .sum();
        let others: u64 = [Piece::OwnBesideDecode, Piece::OtherDecode]
            .into_iter()
            .map(|piece| interval.of(piece))
            .sum();
        let again_ns = self.again_ns(interval);
        let is_half = |ns: u64| ns >= more_ns / 2;
        if is_half(waiting_ns) && waiting_ns > 0 {
            Cause::Cpu
        } else if is_half(reading_ns) && reading_ns > 0 {
            Cause::Disk
        } else if again_ns > 0 && is_half(again_ns) {
            Cause::Again
        } else if is_half(beside) && beside > 0 {
            Cause::Prompts
        } else if interval.of(Piece::OtherDecode) > 0 && is_half(others) {
            Cause::TokensOfOthers
        } else if self
            .waits(interval)
            .and_then(|of| of.cpu_ns)
            .is_some_and(|[_, most]| is_half(most) && most > 0)
        {
            // Of the passes that were read together, the one that waited is longer, so that its part of them isn't its part
            // of the wait.
            Cause::Cpu
        } else {
            Cause::Own
        }
    }
}
