//! Work that runs on a device later than the host issues it.

use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::name::NameIdx;
use brickscope_profile::{BrickId, SyncMode, Work};

use super::BrickProfiler;
use crate::device::{Pending, partition};
use crate::sync::lock_unmodelled as lock;

/// Records work that runs on a device later than the host issues it. Made by [`BrickProfiler::device`].
///
/// If the device's clock can be read, use a [`timer`](Self::timer). Otherwise all that is known is the order of
/// issue, and [`record`](Self::record) and [`finalize`](Self::finalize) do what can be done with that: each brick
/// lasts until the next one is issued, and the last one until the device was done
/// ([`Source::HostOrder`](crate::Source::HostOrder)). So the bricks partition the time from the first issue to the
/// end.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler};
///
/// let profiler = BrickProfiler::enabled();
/// let device = profiler.device();
/// device.reset_epoch();
/// for brick in [BrickId::AttentionScore, BrickId::AttentionOutput] {
///     device.record(brick, device.elapsed_ns(), 4096);
///     // … the launch …
/// }
/// // … wait for the device …
/// device.finalize(device.elapsed_ns());
/// assert_eq!(profiler.brick_stats(BrickId::AttentionScore).count, 1);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct DeviceRecorder<'p>(pub(crate) &'p BrickProfiler);

/// # When to wait
impl DeviceRecorder<'_> {
    /// Sets how often to wait for an asynchronous device. [`SyncMode::None`] times nothing, not even on the host.
    pub fn set_sync_mode(self, mode: SyncMode) {
        self.0.sync_mode.store(mode as u8, Relaxed);
        self.0.refresh();
    }

    /// How often to wait for an asynchronous device.
    #[must_use]
    pub fn sync_mode(self) -> SyncMode {
        SyncMode::ALL[usize::from(self.0.sync_mode.load(Relaxed))]
    }
}

/// # Times by the order of issue
impl DeviceRecorder<'_> {
    /// Makes now the zero of [`elapsed_ns`](Self::elapsed_ns).
    pub fn reset_epoch(self) {
        if self.0.recorder.is_active() {
            // Makes this thread's log, if it has none yet, before the time that is to be measured.
            self.0.recorder.standing();
        }
        self.0.epoch.store(self.0.recorder.clock().now(), Relaxed);
    }

    /// Nanoseconds since the epoch. Never less than before.
    #[must_use]
    pub fn elapsed_ns(self) -> u64 {
        self.0.recorder.clock().now().saturating_sub(self.0.epoch.load(Relaxed))
    }

    /// Records that a brick was issued at `start_ns`, a value of [`elapsed_ns`](Self::elapsed_ns).
    pub fn record(self, brick: BrickId, start_ns: u64, elements: u64) {
        if self.0.recorder.is_active() {
            self.defer(brick as NameIdx, start_ns, elements);
        }
    }

    /// Like [`record`](Self::record), by name.
    pub fn record_named(self, name: &str, start_ns: u64, elements: u64) {
        if self.0.recorder.is_active() {
            self.defer(self.0.brick_index(name), start_ns, elements);
        }
    }

    fn defer(self, name: NameIdx, start_ns: u64, elements: u64) {
        let start = self.0.epoch.load(Relaxed).saturating_add(start_ns);
        let mut pending = lock(&self.0.pending);
        if pending.issued.is_empty() {
            pending.since = self.0.recorder.standing();
        }
        pending.issued.push((name, start, Work::elements(elements)));
    }

    /// Settles all pending bricks: the device was waited for, and was done at `end_ns`, a value of
    /// [`elapsed_ns`](Self::elapsed_ns). Bricks that were recorded while profiling was on are settled though it is off by
    /// now. Those that are pending when a profile is taken are counted there as
    /// [unfinished](crate::Dropped::unfinished).
    ///
    /// In a pass they account for time of the pass, if they were issued and settled on the thread that runs it and
    /// no brick was timed there in the meantime. Otherwise they count as outside of the pass.
    pub fn finalize(self, end_ns: u64) {
        let Pending { issued, since } = std::mem::take(&mut *lock(&self.0.pending));
        let end = self.0.epoch.load(Relaxed).saturating_add(end_ns);
        let (settled, late) = partition(issued, end);
        self.0.late.fetch_add(late, Relaxed);
        if let Some(&(_, first, ..)) = settled.first() {
            self.0.recorder.add_settled(since, first, &settled);
        }
    }

    /// How many bricks wait to be settled.
    #[must_use]
    pub fn pending(self) -> usize {
        lock(&self.0.pending).issued.len()
    }
}
