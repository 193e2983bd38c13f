//! Making a profiler, and turning it on and off.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

use brickscope_profile::SyncMode;

use super::BrickProfiler;
use super::watch::Watch;
use crate::clock::Clock;
use crate::cost;
use crate::device::{DeviceLog, Pending};
use crate::names::Names;
use crate::recorder::Recorder;
use crate::sync::lock_unmodelled as lock;

/// How many rows each thread keeps, unless the caller says otherwise: 4 MiB. Fewer under Miri, which takes seconds
/// to write that many rows for the first time.
const DEFAULT_LOG_CAPACITY: usize = if cfg!(miri) { 1 << 8 } else { 1 << 16 };

impl Default for BrickProfiler {
    fn default() -> Self {
        Self::new()
    }
}

/// # Making a profiler and switching it
impl BrickProfiler {
    /// A profiler that is off.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::default())
    }

    /// A profiler that is on.
    #[must_use]
    pub fn enabled() -> Self {
        let mut profiler = Self::new();
        profiler.enable();
        profiler.recorder.is_made_now();
        profiler
    }

    /// A profiler that is off and reads the given clock.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            recorder: Recorder::new(clock, DEFAULT_LOG_CAPACITY),
            enabled: AtomicBool::new(false),
            sync_mode: AtomicU8::new(SyncMode::default() as u8),
            epoch: AtomicU64::new(0),
            names: Arc::new(RwLock::new(Names::new())),
            pending: Mutex::default(),
            late: AtomicU64::new(0),
            devices: Mutex::default(),
            graph_enabled: AtomicBool::new(false),
            graph: Mutex::default(),
            graph_times: Mutex::default(),
            ptx: Mutex::default(),
            tiles_enabled: AtomicBool::new(false),
            shares: Mutex::default(),
            requests: Mutex::default(),
            checksums: Mutex::default(),
            digests: Mutex::default(),
            observed: Mutex::default(),
            backend: Mutex::default(),
            watch: Watch::default(),
            counters: Mutex::default(),
            anchor: Mutex::default(),
            warns: AtomicBool::new(true),
            warned: AtomicU32::new(0),
        }
    }

    /// Sets how many single spans each thread keeps, in rows of 64 bytes; the default is 65 536 rows. With 0, only
    /// sums are kept, and the first 4096 passes. Forgets what was recorded so far.
    ///
    /// A thread allocates its rows at its first span. A span takes one row, and so does a brick together with the
    /// one kernel that is all of it. A pass recorded by [readings](Self::timestamps_of) takes one row, and one for
    /// every eight readings, so a profile can have up to eight times as many spans as there are rows. The spans of
    /// threads that have ended are kept, up to eight times the capacity for each thread that lived at the same time.
    #[must_use]
    pub fn with_log_capacity(mut self, rows_per_thread: usize) -> Self {
        let sums_layers = self.recorder.sums_layers();
        let recorder = Recorder::new(self.recorder.clock().clone(), rows_per_thread);
        self.recorder = recorder.in_place_of(&self.recorder);
        if sums_layers {
            self.recorder.sum_layers(true);
        }
        // The passes of this recorder have the same numbers again.
        lock(&self.requests).reset();
        self.refresh();
        self
    }

    /// Turns profiling on. The first call in a process measures what a span costs, which takes about a
    /// millisecond.
    pub fn enable(&self) {
        let clock = self.recorder.clock();
        cost::of_a_span(clock);
        if !clock.is_mock() {
            self.watch.start();
        }
        let mut anchor = lock(&self.anchor);
        *anchor = anchor.or_else(|| clock.anchor());
        drop(anchor);
        self.enabled.store(true, Relaxed);
        self.refresh();
    }

    /// Turns profiling off: recording calls no longer read the clock. Bricks that are open now never end, and are
    /// counted as unfinished.
    pub fn disable(&self) {
        // Gives the passes that ended on this thread since the last look their disturbance.
        self.recorder.look(|since: &mut _| self.watch.look_last(since));
        self.enabled.store(false, Relaxed);
        self.refresh();
        lock(&self.requests).cut();
        self.watch.pause();
    }

    /// Whether profiling is on.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    /// Forgets everything that was recorded, and the spans that are open now. Keeps switches, names, PTX sources,
    /// modes, and what the caller observed.
    pub fn reset(&self) {
        self.recorder.reset();
        *lock(&self.pending) = Pending::default();
        self.late.store(0, Relaxed);
        lock(&self.devices).iter().for_each(|device| device.reset());
        self.write_names().refused = 0;
        self.checksums().reset();
        self.graph().clear();
        lock(&self.shares).reset();
        lock(&self.requests).reset();
    }

    /// The clock that all host times come from.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.recorder.clock()
    }

    pub(crate) fn log_capacity(&self) -> usize {
        self.recorder.capacity()
    }

    pub(crate) fn add_device(&self, device: &Arc<DeviceLog>) {
        lock(&self.devices).push(Arc::clone(device));
    }

    pub(super) fn refresh(&self) {
        self.recorder.set_active(self.is_enabled() && self.device().sync_mode() != SyncMode::None);
    }
}
