//! What each of the threads that share bricks did, and how long it waited for the others.

use std::collections::{BTreeMap, BTreeSet};

use brickscope_profile::name::NameIdx;
use brickscope_profile::{Phase, Share, ThreadShare};

use super::BrickProfiler;
use crate::names::BrickKey;
use crate::sync::lock_unmodelled as lock;

/// Threads that are remembered for what they didn't do.
const MOST_IDLE: usize = 1024;

/// Sums by phase, brick and thread.
#[derive(Debug, Default)]
pub(super) struct Shares {
    sums: BTreeMap<(Phase, NameIdx, u32), Share>,
    /// Threads that joined a pass and began no share of it.
    idle: BTreeSet<u32>,
    /// How often everything was forgotten.
    resets: u64,
}

impl Shares {
    pub(super) fn reset(&mut self) {
        *self = Self { resets: self.resets + 1, ..Self::default() };
    }

    /// Whether threads joined a pass and never timed a share of any.
    pub(super) fn has_idle_workers(&self) -> bool {
        self.idle.iter().any(|thread| !self.sums.keys().any(|(.., of)| of == thread))
    }

    fn add(&mut self, at: (Phase, NameIdx, u32), share: Share) {
        self.sums.entry(at).or_default().add(share);
    }
}

/// One of the threads that share the bricks of a pass. Made by [`BrickProfiler::join_pass`].
///
/// What it timed is added to the profiler when it is dropped.
#[derive(Debug)]
#[must_use = "it times nothing until `begin` is called"]
pub struct PassWorker<'p> {
    profiler: &'p BrickProfiler,
    phase: Phase,
    thread: u32,
    is_on: bool,
    resets: u64,
    sums: Vec<(NameIdx, Share)>,
    doing: Option<Doing>,
}

#[derive(Debug, Clone, Copy)]
struct Doing {
    brick: NameIdx,
    waits: bool,
    since: u64,
}

impl PassWorker<'_> {
    /// Begins this thread's share of a brick, and ends what it did before.
    #[inline]
    pub fn begin(&mut self, brick: impl Into<BrickKey>) {
        let brick = self.profiler.brick_of(brick.into());
        self.go_on(Some((brick, false)));
    }

    /// Ends this thread's share of the brick, and begins to wait for other threads. Does nothing if no share has begun.
    ///
    /// A brick with a barrier inside goes on with [`work`](Self::work).
    #[inline]
    pub fn wait(&mut self) {
        if let Some(Doing { brick, waits: false, .. }) = self.doing {
            self.go_on(Some((brick, true)));
        }
    }

    /// Ends the wait and goes on with the same share. Does nothing if this thread doesn't wait.
    #[inline]
    pub fn work(&mut self) {
        if let Some(Doing { brick, waits: true, .. }) = self.doing {
            let counted = self.go_on(Some((brick, false)));
            // It was counted when it began to wait.
            if let Some(sums) = counted.and_then(|at| self.sums.get_mut(at)) {
                sums.1.count = sums.1.count.saturating_sub(1);
            }
        }
    }

    /// Ends the share or the wait.
    #[inline]
    pub fn end(&mut self) {
        self.go_on(None);
    }

    /// Adds what this thread did until now, and goes on. Returns where in `sums` it was added.
    fn go_on(&mut self, next: Option<(NameIdx, bool)>) -> Option<usize> {
        if !self.is_on {
            return None;
        }
        let now = self.profiler.recorder.clock().now();
        let before = self.doing.take();
        self.doing = next.map(|(brick, waits)| Doing { brick, waits, since: now });
        let Doing { brick, waits, since } = before?;
        let ns = now.saturating_sub(since);
        let share = match waits {
            true => Share { waited_ns: ns, ..Share::default() },
            false => Share { count: 1, worked_ns: ns, ..Share::default() },
        };
        // A pass has few kinds of bricks, and mostly the last one is meant.
        let at = self.sums.iter().rposition(|sum| sum.0 == brick).unwrap_or_else(|| {
            self.sums.push((brick, Share::default()));
            self.sums.len() - 1
        });
        self.sums[at].1.add(share);
        Some(at)
    }
}

impl Drop for PassWorker<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.profiler.shares);
        // What began before a reset is forgotten.
        if all.resets == self.resets {
            let is_idle = self.sums.is_empty() && self.doing.is_none();
            if self.is_on && is_idle && all.idle.len() < MOST_IDLE {
                all.idle.insert(self.thread);
            }
            for &(brick, share) in &self.sums {
                all.add((self.phase, brick, self.thread), share);
            }
        }
    }
}

/// # Threads that share bricks
///
/// A brick that several threads share is timed once, by the thread that runs the pass: from its begin until the slowest
/// thread is done. These calls tell what each thread did in that time. They explain no time of a pass, and are in
/// [`Profile::shares`](crate::Profile::shares).
impl BrickProfiler {
    /// Times what this thread does of the bricks of a pass. `thread` is its number in the engine.
    ///
    /// Each call of the [`PassWorker`] reads the clock once and takes no lock. If profiling is off now, they do nothing.
    ///
    /// ```
    /// use std::sync::Barrier;
    ///
    /// use brickscope::{BrickId, BrickProfiler, Phase};
    ///
    /// let profiler = BrickProfiler::enabled();
    /// let barrier = Barrier::new(2);
    /// std::thread::scope(|scope| {
    ///     for thread in 0..2 {
    ///         let (profiler, barrier) = (&profiler, &barrier);
    ///         scope.spawn(move || {
    ///             let mut worker = profiler.join_pass(Phase::Decode, thread);
    ///             for brick in [BrickId::QkvProjection, BrickId::OutputProjection] {
    ///                 worker.begin(brick);
    ///                 // … the rows of this thread …
    ///                 worker.wait();
    ///                 barrier.wait();
    ///             }
    ///             worker.end();
    ///         });
    ///     }
    /// });
    /// let shares = profiler.profile().shares;
    /// assert_eq!(shares.len(), 4);
    /// assert!(shares.iter().all(|of| of.share.count == 1 && of.share.worked_ns > 0));
    /// ```
    pub fn join_pass(&self, phase: Phase, thread: u32) -> PassWorker<'_> {
        PassWorker {
            profiler: self,
            phase,
            thread,
            is_on: self.recorder.is_active(),
            resets: lock(&self.shares).resets,
            sums: Vec::new(),
            doing: None,
        }
    }

    /// Adds what a thread did of bricks of one name, as somebody else timed it. Does nothing if profiling is off.
    pub fn record_share(
        &self,
        phase: Phase,
        thread: u32,
        brick: impl Into<BrickKey>,
        share: Share,
    ) {
        if self.recorder.is_active() {
            let brick = self.brick_of(brick.into());
            lock(&self.shares).add((phase, brick, thread), share);
        }
    }

    pub(super) fn thread_shares(&self) -> Vec<ThreadShare> {
        let names = self.read_names();
        let name = |index: NameIdx| {
            let name = names.list.get(usize::from(index)).map(|name| name.name.clone());
            name.unwrap_or_else(|| "(other)".to_owned())
        };
        let shares = lock(&self.shares);
        let share = |(&(phase, brick, thread), &share): (&(Phase, NameIdx, u32), &Share)| {
            ThreadShare { thread, phase, brick: name(brick), share }
        };
        shares.sums.iter().map(share).collect()
    }
}
