//! The handle that an engine holds: names, switches, and the way from what was recorded to a
//! [`Profile`].

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::brick::{BrickCategory, BrickId, Phase, Source, Work};
use crate::checksum::{DivergenceInfo, KernelChecksum, first_divergence, fnv1a_f32_checksum};
use crate::clock::{Anchor, Clock, ClockInfo};
use crate::device::{DeviceLog, Pending, SyncMode, partition};
use crate::digest::{Digest, DigestFault, KernelDigest, Tolerance, first_fault};
use crate::fold::Slot;
use crate::graph::{
    DeviceLaunch, ExecutionGraph, ExecutionNode, ExecutionNodeId, HostLaunch, PtxRegistry,
    Registered, TransferDirection,
};
use crate::machine::{Counters, LoadMeter, LoadReading, LoadWatch, OtherLoad};
use crate::profile::Absent;
use crate::profile::{Dropped, Name, NameKind, Observed, Overhead, Profile, Route};
use crate::recorder::{Looked, Open, OpenPass, Owner, Recorder, Timestamps, Unlabelled};
use crate::row::{NameIdx, TileWork};
use crate::script::PassScript;
use crate::stats::{BrickStats, CategoryStats, by_category, ratio};
use crate::sync::lock_unmodelled as lock;
use crate::tile::{TileBalance, TileLevel, TileStats, TileThread, TileTimer};
use crate::{collect, cost, save, view};

/// How many spans each thread keeps one by one, unless the caller says otherwise: 4 MiB. Under Miri,
/// which takes seconds to write that many rows for the first time, fewer.
const DEFAULT_LOG_CAPACITY: usize = if cfg!(miri) { 1 << 8 } else { 1 << 16 };

/// Measures bricks, from any number of threads.
///
/// Every method takes `&self`, so a `&BrickProfiler` or an `Arc<BrickProfiler>` is all that a
/// thread needs. Timing a [`BrickId`] takes no lock: each thread writes to a log of its own. Sums
/// are exact whatever happens; when a thread's log of single spans is full, further spans are only
/// summed, and [`Profile::dropped`](crate::Profile::dropped) says how many.
///
/// ```
/// use brickscope::{BrickCategory, BrickId, BrickProfiler};
///
/// let profiler = BrickProfiler::new();
/// profiler.enable();
///
/// let timer = profiler.start_brick(BrickId::QkvProjection);
/// // … the work …
/// profiler.stop_brick(timer, 4096);
///
/// assert_eq!(profiler.brick_stats(BrickId::QkvProjection).count, 1);
/// let categories = profiler.category_stats();
/// let attention = categories[BrickCategory::Attention as usize];
/// println!("Attention: {:.1}%", attention.percentage(profiler.total_ns()));
/// ```
#[derive(Debug)]
pub struct BrickProfiler {
    recorder: Recorder,
    enabled: AtomicBool,
    /// `SyncMode as u8`.
    sync_mode: AtomicU8,
    /// What `elapsed_ns` counts from: a reading of the clock.
    epoch: AtomicU64,
    names: RwLock<Names>,
    pending: Mutex<Pending>,
    late: AtomicU64,
    devices: Mutex<Vec<Arc<DeviceLog>>>,
    graph_enabled: AtomicBool,
    /// Shared with whoever asked for it; copied when it is changed while somebody holds it.
    graph: Mutex<Arc<ExecutionGraph>>,
    ptx: Mutex<PtxRegistry>,
    tiles_enabled: AtomicBool,
    checksums: Mutex<Vec<KernelChecksum>>,
    digests: Mutex<Vec<KernelDigest>>,
    observed: Mutex<Observed>,
    watch: Watch,
    counters: Mutex<CountersAsked>,
    /// Of the moment when profiling was first turned on.
    anchor: Mutex<Option<Anchor>>,
}

/// What spans can be of. Bricks and kernels share the numbers; the well-known bricks come first.
#[derive(Debug)]
struct Names {
    list: Vec<Name>,
    index: HashMap<Name, NameIdx>,
    /// Uses of names for which there was no room.
    refused: u64,
}

/// How many names there is room for: sums take memory for each of them on each thread.
const MAX_NAMES: usize = 4096;

/// The last numbers: bricks and kernels for whose names there is no room.
pub(crate) const OTHER_BRICK: NameIdx = (MAX_NAMES - 1) as NameIdx;
pub(crate) const OTHER_KERNEL: NameIdx = (MAX_NAMES - 2) as NameIdx;

impl Names {
    fn new() -> Self {
        let list: Vec<Name> = BrickId::ALL.iter().map(|brick| brick_name(brick.name())).collect();
        let index = list.iter().cloned().zip(0..).collect();
        Self { list, index, refused: 0 }
    }
}

fn brick_name(name: &str) -> Name {
    let kind = NameKind::Brick;
    Name { name: name.to_owned(), kind, host: None, device: None, transfer: None }
}

/// A brick that has begun; hand it back to [`BrickProfiler::stop_brick`].
///
/// One that is never handed back is counted as unfinished.
#[derive(Debug)]
#[must_use = "a brick that is never stopped is not recorded"]
pub struct BrickIdTimer(Open);

/// A brick that has begun, and ends when this is dropped; see [`BrickProfiler::brick`].
///
/// Dropped by a panic, the brick counts as unfinished: it did not do what it was begun for.
#[derive(Debug)]
#[must_use = "the brick ends when this is dropped"]
pub struct BrickGuard<'p> {
    recorder: &'p Recorder,
    open: Open,
    work: Work,
}

impl BrickGuard<'_> {
    /// Says how many elements the brick processed.
    #[inline]
    pub fn elements(&mut self, elements: u64) {
        self.work.elements = elements;
    }

    /// Says what the brick had to do.
    #[inline]
    pub fn work(&mut self, work: Work) {
        self.work = work;
    }
}

impl Drop for BrickGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.open.is_off() && !std::thread::panicking() {
            self.recorder.end_brick(self.open, self.work);
        }
    }
}

/// Runs a block as a brick: `brick!(profiler, BrickId::LmHead, elements, { … })`. The elements are
/// worked out after the block has run; its value is the macro's. Leaving the block early, by
/// `return` or `?`, ends the brick with no elements.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, brick};
///
/// let profiler = BrickProfiler::enabled();
/// let sum: u64 = brick!(profiler, BrickId::LmHead, 100, { (0..100).sum() });
/// assert_eq!(sum, 4950);
/// assert_eq!(profiler.brick_stats(BrickId::LmHead).total_elements, 100);
/// ```
#[macro_export]
macro_rules! brick {
    ($profiler:expr, $brick:expr, $elements:expr, $run:block) => {{
        let mut guard = $profiler.brick($brick);
        let result = $run;
        guard.elements($elements);
        drop(guard);
        result
    }};
}

/// A brick begun by name; hand it back to [`BrickProfiler::stop`].
#[derive(Debug)]
#[must_use = "a brick that is never stopped is not recorded"]
pub struct BrickTimer(Open);

/// A kernel that has begun; hand it back to [`BrickProfiler::stop_kernel`].
#[derive(Debug)]
#[must_use = "a kernel that is never stopped is not recorded"]
pub struct KernelTimer(Open);

/// A brick that is a single kernel and has begun; hand it back to
/// [`BrickProfiler::stop_brick_kernel`].
#[derive(Debug)]
#[must_use = "a brick that is never stopped is not recorded"]
pub struct BrickKernelTimer {
    open: Open,
    kernel: KernelId,
}

/// A brick of several kernels, one after the other, that has begun; hand it back to
/// [`BrickProfiler::stop_kernels`].
#[derive(Debug)]
#[must_use = "a brick that is never stopped is not recorded"]
pub struct BrickKernelsTimer {
    brick: Open,
    kernel: Open,
}

/// A point in the work of a thread that others wait for: [`BrickProfiler::hand_off`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "whoever waits for this work hands it to `take_over`"]
pub struct HandOff(Option<u64>);

/// A layer that has begun; hand it back to [`BrickProfiler::end_layer`].
#[derive(Debug)]
#[must_use = "a layer that is never ended is not recorded"]
pub struct LayerTimer {
    open: Open,
    before: u16,
}

/// A pass that has begun; hand it back to [`BrickProfiler::end_pass`] on the same thread.
///
/// One that is dropped, by a panic say, is abandoned: its bricks count outside of passes, and
/// [`Dropped::abandoned_passes`] says so.
#[derive(Debug)]
#[must_use = "a pass that is dropped is abandoned: its bricks count outside of passes"]
pub struct PassTimer {
    /// `None` if profiling was off.
    open: Option<OpenPass>,
    phase: Phase,
}

/// Readings of the clock in a pass, which is told when it is over what they were of. See
/// [`BrickProfiler::readings_of`].
///
/// Dropped without being told, as by a panic, they are [counted as unfinished](Dropped::unfinished). It stays on
/// its thread:
///
/// ```compile_fail
/// fn is_sent<T: Send>(_: T) {}
/// let profiler = brickscope::BrickProfiler::enabled();
/// let pass = profiler.begin_pass(brickscope::Phase::Decode);
/// is_sent(profiler.readings_of(&pass, &mut [0; 2]));
/// ```
#[derive(Debug)]
pub struct PassReadings<'p>(Timestamps<'p>);

impl<'p> PassReadings<'p> {
    /// Reads the clock.
    #[inline(always)]
    pub fn take(&self) {
        self.0.take();
    }

    /// Ends the wall of the pass, unless more bricks follow in it, so that there is time to say what the readings were
    /// of. `None` if there are more than there was room for, if anything else was timed on this thread meanwhile, with
    /// which they might overlap, or if profiling was turned off or [reset](BrickProfiler::reset): then they are counted
    /// as unfinished, but for a reset, which forgets them.
    #[must_use]
    pub fn end(self) -> Option<UntoldPass<'p>> {
        self.0.end().map(UntoldPass)
    }
}

/// Readings of a pass of which nobody has said yet what they were of. Dropped so, they are
/// [counted as unfinished](Dropped::unfinished).
#[must_use]
#[derive(Debug)]
pub struct UntoldPass<'p>(Unlabelled<'p>);

impl UntoldPass<'_> {
    /// Says what they were of, with `position` tokens before the pass. The script's kernels are to be this profiler's.
    /// False, and the readings are counted as unfinished, if the script takes another number of them, or if anything was
    /// timed otherwise on this thread since.
    pub fn tell(self, script: &PassScript, position: u64) -> bool {
        self.0.label(script, position)
    }
}

/// The number of a kernel's name. See [`BrickProfiler::kernel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelId(pub(crate) NameIdx);

// Timers live in registers and on hot stacks.
const _: () = assert!(size_of::<BrickIdTimer>() <= 32);

impl Default for BrickProfiler {
    fn default() -> Self {
        Self::new()
    }
}

/// Making, switching on and off.
impl BrickProfiler {
    /// A profiler that is off.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::default())
    }

    /// A profiler that is on.
    #[must_use]
    pub fn enabled() -> Self {
        let profiler = Self::new();
        profiler.enable();
        profiler
    }

    /// A profiler, off, with a clock of the caller's choice.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            recorder: Recorder::new(clock, DEFAULT_LOG_CAPACITY),
            enabled: AtomicBool::new(false),
            sync_mode: AtomicU8::new(SyncMode::default() as u8),
            epoch: AtomicU64::new(0),
            names: RwLock::new(Names::new()),
            pending: Mutex::default(),
            late: AtomicU64::new(0),
            devices: Mutex::default(),
            graph_enabled: AtomicBool::new(false),
            graph: Mutex::default(),
            ptx: Mutex::default(),
            tiles_enabled: AtomicBool::new(false),
            checksums: Mutex::default(),
            digests: Mutex::default(),
            observed: Mutex::default(),
            watch: Watch::default(),
            counters: Mutex::default(),
            anchor: Mutex::default(),
        }
    }

    /// Has each thread keep its spans one by one in so many rows of 64 bytes each, allocated at the thread's first
    /// span; 65 536 unless said otherwise. A span takes a row, and a brick together with the one kernel that is all of
    /// it; of a pass that was [told afterwards](Self::readings_of) one row and eight readings each do, so that a
    /// profile has up to eight times as many spans as there are rows. With 0 only sums are kept, and the first 4096 passes. Of
    /// threads that have ended, eight times as many spans are kept at most for each thread that
    /// lived at the same time. What was recorded so far is forgotten.
    #[must_use]
    pub fn with_log_capacity(mut self, rows_per_thread: usize) -> Self {
        let sums_layers = self.recorder.sums_layers();
        self.recorder = Recorder::new(self.recorder.clock().clone(), rows_per_thread);
        if sums_layers {
            self.recorder.sum_layers(true);
        }
        self.refresh();
        self
    }

    /// Turns profiling on. The first time in a process it measures what a span costs, in about a
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

    /// Turns profiling off: no recording call reads a clock any more. Bricks open now stay
    /// unfinished, and are counted as that.
    pub fn disable(&self) {
        // The passes that ended on this thread since the last look get theirs.
        self.recorder.look(|since: &mut _| self.watch.look_last(since));
        self.enabled.store(false, Relaxed);
        self.refresh();
    }

    /// Whether profiling is on.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    /// Says how often to wait for an asynchronous device. [`SyncMode::None`] times nothing.
    pub fn set_sync_mode(&self, mode: SyncMode) {
        self.sync_mode.store(mode as u8, Relaxed);
        self.refresh();
    }

    /// How often to wait for an asynchronous device.
    #[must_use]
    pub fn sync_mode(&self) -> SyncMode {
        SyncMode::ALL[usize::from(self.sync_mode.load(Relaxed))]
    }

    /// The clock behind every host time.
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

    fn refresh(&self) {
        self.recorder.set_active(self.is_enabled() && self.sync_mode() != SyncMode::None);
    }

    /// Forgets everything that was recorded; switches, names, PTX sources, modes and what the caller
    /// observed stay. Spans open now are forgotten too.
    pub fn reset(&self) {
        self.recorder.reset();
        *lock(&self.pending) = Pending::default();
        self.late.store(0, Relaxed);
        lock(&self.devices).iter().for_each(|device| device.reset());
        self.write_names().refused = 0;
        self.reset_checksums();
        self.graph_clear();
    }
}

/// What others do to this process.
#[derive(Debug, Default)]
struct Watch {
    meter: Mutex<Option<LoadMeter>>,
    /// Since profiling was first turned on.
    others: Mutex<Option<Result<LoadWatch, Absent>>>,
    is_off: AtomicBool,
}

impl Watch {
    fn start(&self) {
        if !self.is_off.load(Relaxed) {
            lock(&self.meter).get_or_insert_with(LoadMeter::open);
        }
        lock(&self.others).get_or_insert_with(LoadWatch::start);
    }

    /// Before a pass, when it is due. What lies between passes is no pass's, so after a pause it begins anew.
    fn look_before(&self, since: &mut Option<LoadReading>) -> Looked {
        self.look(since, |meter, since| {
            *since = Some(meter.read());
            Looked::Anew
        })
    }

    /// After a pass, when it is due.
    fn look_after(&self, since: &mut Option<LoadReading>) -> Looked {
        self.look(since, |meter, since| match *since {
            Some(before) => {
                let now = since.insert(meter.read());
                Looked::Since(now.since(&before))
            }
            None => Looked::No,
        })
    }

    /// After the last pass, whether or not it is due.
    fn look_last(&self, since: &mut Option<LoadReading>) -> Looked {
        self.look(since, |meter, since| match since.take() {
            Some(before) => Looked::Since(meter.read().since(&before)),
            None => Looked::No,
        })
    }

    fn look(
        &self,
        since: &mut Option<LoadReading>,
        look: impl FnOnce(&mut LoadMeter, &mut Option<LoadReading>) -> Looked,
    ) -> Looked {
        if self.is_off.load(Relaxed) {
            *since = None;
            return Looked::No;
        }
        lock(&self.meter).as_mut().map_or(Looked::No, |meter| look(meter, since))
    }

    fn other_load(&self) -> Result<OtherLoad, Absent> {
        match &*lock(&self.others) {
            Some(Ok(watch)) => watch.so_far(),
            Some(Err(absent)) => Err(absent.clone()),
            None => {
                Err(Absent { reason: "profiling was not on, or its clock is a mock".to_owned() })
            }
        }
    }
}

/// Other work on the machine, and hardware counters.
impl BrickProfiler {
    /// Whether passes are to say what others did to them ([`Pass::disturbance`]); they are unless
    /// it is turned off. A look takes 20 to 30 µs with two threads, since it finds cold caches, and
    /// there is one at most every 4000 times as long: passes of 3 ms share a look, those of 100 ms
    /// have their own.
    ///
    /// [`Pass::disturbance`]: crate::Pass::disturbance
    pub fn watch_load(&self, watch: bool) {
        self.watch.is_off.store(!watch, Relaxed);
        if watch && self.is_enabled() && !self.recorder.clock().is_mock() {
            self.watch.start();
        }
    }

    /// Has hardware counters read at the begin and the end of each brick: cycles, instructions,
    /// last-level cache misses and branch misses in user space, of all threads that the process has
    /// now. Takes a microsecond or more each time, so the times of short bricks suffer.
    ///
    /// # Errors
    ///
    /// Why there are none: the machine, its settings, or a build without the feature `counters`.
    pub fn enable_counters(&self) -> Result<(), Absent> {
        let counters = Counters::open();
        let absent = match &counters {
            Ok(counters) => {
                let missing: Vec<String> =
                    counters.absent().into_iter().map(|absent| absent.reason).collect();
                (!missing.is_empty()).then(|| Absent { reason: missing.join("; ") })
            }
            Err(absent) => Some(absent.clone()),
        };
        *lock(&self.counters) = CountersAsked::Yes { opened: counters.is_ok(), absent };
        self.recorder.count(Some(Box::new(counters?)));
        Ok(())
    }

    /// Ends the reading of hardware counters. What was counted stays.
    pub fn disable_counters(&self) {
        self.recorder.count(None);
    }
}

/// Whether somebody wanted counters.
#[derive(Debug, Default)]
enum CountersAsked {
    #[default]
    No,
    Yes {
        opened: bool,
        /// Why they are missing, or some of them.
        absent: Option<Absent>,
    },
}

impl CountersAsked {
    fn were_read(&self) -> bool {
        matches!(self, Self::Yes { opened: true, .. })
    }

    fn absent(&self) -> Option<Absent> {
        match self {
            Self::No => Some(Absent {
                reason: "not asked for: `--counters`, or `BrickProfiler::enable_counters`"
                    .to_owned(),
            }),
            Self::Yes { absent, .. } => absent.clone(),
        }
    }
}

/// Timing bricks.
impl BrickProfiler {
    /// Begins a well-known brick. Off, it returns without a look at the clock.
    #[inline]
    pub fn start_brick(&self, brick: BrickId) -> BrickIdTimer {
        BrickIdTimer(self.recorder.begin_brick(brick as NameIdx))
    }

    /// Ends a brick that processed `elements` elements.
    #[inline]
    pub fn stop_brick(&self, timer: BrickIdTimer, elements: u64) {
        self.recorder.end_brick(timer.0, Work::elements(elements));
    }

    /// Ends a brick whose work is known.
    #[inline]
    pub fn stop_brick_with(&self, timer: BrickIdTimer, work: Work) {
        self.recorder.end_brick(timer.0, work);
    }

    /// Ends a brick that processed `elements` elements and begins `next` where it ended, with a
    /// single reading of the clock: for bricks that touch end to end.
    #[inline]
    pub fn lap(&self, timer: BrickIdTimer, elements: u64, next: BrickId) -> BrickIdTimer {
        self.lap_with(timer, Work::elements(elements), next)
    }

    /// As [`lap`](Self::lap), where the work is known.
    #[inline]
    pub fn lap_with(&self, timer: BrickIdTimer, work: Work, next: BrickId) -> BrickIdTimer {
        BrickIdTimer(self.recorder.lap(timer.0, work, next as NameIdx))
    }

    /// Begins a brick that ends when the guard is dropped.
    ///
    /// ```
    /// # use brickscope::{BrickId, BrickProfiler};
    /// # let profiler = BrickProfiler::enabled();
    /// {
    ///     let mut guard = profiler.brick(BrickId::RmsNorm);
    ///     // … the work …
    ///     guard.elements(4096);
    /// }
    /// assert_eq!(profiler.brick_stats(BrickId::RmsNorm).total_elements, 4096);
    /// ```
    #[inline]
    pub fn brick(&self, brick: BrickId) -> BrickGuard<'_> {
        let open = self.recorder.begin_brick(brick as NameIdx);
        BrickGuard { recorder: &self.recorder, open, work: Work::default() }
    }

    /// Begins a brick by name; the names that [`BrickId::from_str`] knows are those bricks. The
    /// name is looked up, under a lock for readers, before the clock is read.
    pub fn start(&self, name: &str) -> BrickTimer {
        if !self.recorder.is_active() {
            return BrickTimer(Open::OFF);
        }
        BrickTimer(self.recorder.begin_brick(self.brick_index(name)))
    }

    /// Ends a brick begun by name.
    pub fn stop(&self, timer: BrickTimer, elements: u64) {
        self.recorder.end_brick(timer.0, Work::elements(elements));
    }

    /// Records a brick that the caller timed and that ends now.
    ///
    /// In a pass it explains time of the pass, unless another brick ended within it: then it is
    /// counted outside, lest the same nanoseconds count twice.
    pub fn record_elapsed(&self, name: &str, elapsed: Duration, elements: u64) {
        if self.recorder.is_active() {
            let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
            self.recorder.add_elapsed(self.brick_index(name), nanos, Work::elements(elements));
        }
    }

    /// The number of a kernel of this name. `host` says how it runs on the CPU.
    ///
    /// The same name and launch give the same number; there is room for about 4000 names of bricks
    /// and kernels.
    pub fn kernel(&self, name: &str, host: Option<HostLaunch>) -> KernelId {
        let (name, kind) = (name.to_owned(), NameKind::Kernel);
        KernelId(self.index_of(Name { name, kind, host, device: None, transfer: None }))
    }

    /// The number of a kernel of this name that runs on a device.
    pub fn device_kernel(&self, name: &str, launch: DeviceLaunch) -> KernelId {
        let (name, kind, device) = (name.to_owned(), NameKind::Kernel, Some(launch));
        KernelId(self.index_of(Name { name, kind, host: None, device, transfer: None }))
    }

    /// Begins a kernel. Kernels are details of the brick that they run in: they are timed and
    /// counted, but explain no time that the brick doesn't.
    #[inline]
    pub fn start_kernel(&self, kernel: KernelId) -> KernelTimer {
        KernelTimer(self.recorder.begin_detail(kernel.0))
    }

    /// Ends a kernel.
    #[inline]
    pub fn stop_kernel(&self, timer: KernelTimer, work: Work) {
        self.recorder.end_kernel(timer.0, work);
    }

    /// Begins a brick that is a single kernel, and the kernel with it: both have the same two readings
    /// of the clock.
    #[inline]
    pub fn start_brick_kernel(&self, brick: BrickId, kernel: KernelId) -> BrickKernelTimer {
        BrickKernelTimer { open: self.recorder.begin_both(brick as NameIdx), kernel }
    }

    /// Ends a brick that is a single kernel.
    #[inline]
    pub fn stop_brick_kernel(&self, timer: BrickKernelTimer, work: Work) {
        self.recorder.end_both(timer.open, timer.kernel.0, work);
    }

    /// Begins a brick that is several kernels, one after the other, and the first of them: n kernels
    /// take n + 1 readings of the clock.
    ///
    /// ```
    /// # use brickscope::{BrickId, BrickProfiler, Work};
    /// # let profiler = BrickProfiler::enabled();
    /// let [gemv, add] = ["q4_k_gemv", "add"].map(|name| profiler.kernel(name, None));
    /// let timer = profiler.start_kernels(BrickId::OutputProjection, gemv);
    /// // … the multiplication …
    /// let timer = profiler.next_kernel(timer, Work::elements(4096), add);
    /// // … the addition …
    /// profiler.stop_kernels(timer, Work::elements(4096), Work::elements(4096));
    /// ```
    #[inline]
    pub fn start_kernels(&self, brick: BrickId, first: KernelId) -> BrickKernelsTimer {
        let brick = self.recorder.begin_both(brick as NameIdx);
        let kernel = if brick.is_off() { Open::OFF } else { brick.inner(first.0) };
        BrickKernelsTimer { brick, kernel }
    }

    /// Ends the running kernel, which had this work to do, and begins the `next` one of the same
    /// brick with the same reading of the clock.
    #[inline]
    pub fn next_kernel(
        &self,
        timer: BrickKernelsTimer,
        work: Work,
        next: KernelId,
    ) -> BrickKernelsTimer {
        let kernel = self.recorder.next_detail(timer.kernel, work, next.0);
        BrickKernelsTimer { kernel, ..timer }
    }

    /// Ends the last kernel, which had `kernel_work` to do, and the brick with it.
    #[inline]
    pub fn stop_kernels(&self, timer: BrickKernelsTimer, kernel_work: Work, work: Work) {
        self.recorder.end_last(timer.brick, timer.kernel, kernel_work, work);
    }

    /// Begins a transformer layer on this thread: the spans until its end belong to it.
    pub fn begin_layer(&self, index: u16) -> LayerTimer {
        let (open, before) = self.recorder.begin_layer(index);
        LayerTimer { open, before }
    }

    /// Ends a layer.
    pub fn end_layer(&self, timer: LayerTimer) {
        self.recorder.end_layer(timer.open, timer.before);
    }

    /// Begins a pass on this thread: the wall that the thread's bricks are held against.
    ///
    /// What others do to this process is looked at between passes, seldom, and outside of walls. See [`watch_load`](Self::watch_load).
    pub fn begin_pass(&self, phase: Phase) -> PassTimer {
        PassTimer {
            open: self.recorder.begin_pass(|since: &mut _| self.watch.look_before(since)),
            phase,
        }
    }

    /// The clock, to be read while `pass` runs, where it is told afterwards what the readings were of: less is
    /// done between bricks than by timers, some words instead of some cache lines. It is for engines whose bricks are some
    /// microseconds long, and whose passes take the same way each time: what the readings are of is said once for all of
    /// them, by a [`PassScript`].
    ///
    /// `room` is where readings are kept until then, a number each; two for a brick or a layer, and one for each kernel
    /// but its first, or fewer where one is shared ([`lap`](crate::PassScriptBuilder::lap)). In the meantime nothing else
    /// is to be timed on this thread. Nothing is recorded before they are told: who looks at the profile during the pass
    /// doesn't see its bricks.
    ///
    /// `None` if the pass isn't recorded here, on this thread, or not by clock readings alone: where hardware counters
    /// are read at each brick, or there is no counter to tell the time. And the second time.
    ///
    /// ```
    /// # use brickscope::{BrickId, BrickProfiler, PassScript, Phase, Work};
    /// # let profiler = BrickProfiler::enabled();
    /// # let norm = profiler.kernel("rms_norm", None);
    /// let mut script = PassScript::builder();
    /// script.brick_kernel(BrickId::RmsNorm, norm, Work::elements(4096));
    /// let script = script.build();
    ///
    /// let mut room = vec![0; script.readings()];
    /// let pass = profiler.begin_pass(Phase::Decode);
    /// if let Some(readings) = profiler.readings_of(&pass, &mut room) {
    ///     readings.take();
    ///     // … the norm …
    ///     readings.take();
    ///     if let Some(untold) = readings.end() {
    ///         untold.tell(&script, 0);
    ///     }
    /// }
    /// profiler.end_pass(pass, 1, 0);
    /// ```
    pub fn readings_of<'p>(
        &'p self,
        pass: &'p PassTimer,
        room: &'p mut [u64],
    ) -> Option<PassReadings<'p>> {
        self.recorder.timestamps(pass.open.as_ref(), room).map(PassReadings)
    }

    /// Ends a pass that processed `tokens` tokens with `position` tokens in the KV cache before it.
    pub fn end_pass(&self, timer: PassTimer, tokens: u64, position: u64) {
        if let Some(open) = timer.open {
            let look = |since: &mut _| self.watch.look_after(since);
            self.recorder.end_pass(open, timer.phase, tokens, position, look);
        }
    }

    pub(crate) fn brick_index(&self, name: &str) -> NameIdx {
        match BrickId::from_str(name) {
            Some(brick) => brick as NameIdx,
            None => self.index_of(brick_name(name)),
        }
    }

    /// The number of a brick that is a copy: named as graphs name it.
    pub(crate) fn transfer_index(&self, route: Route) -> NameIdx {
        let Route { src, dst, direction } = &route;
        let name = format!("{}: {src} → {dst}", direction.name());
        self.index_of(Name { transfer: Some(route), ..brick_name(&name) })
    }

    /// Begins a brick whose number is known.
    pub(crate) fn start_index(&self, brick: NameIdx) -> BrickTimer {
        BrickTimer(self.recorder.begin_brick(brick))
    }

    /// Ends it.
    pub(crate) fn stop_with(&self, timer: BrickTimer, work: Work) {
        self.recorder.end_brick(timer.0, work);
    }

    fn index_of(&self, name: Name) -> NameIdx {
        if let Some(&index) = self.read_names().index.get(&name) {
            return index;
        }
        let mut names = self.write_names();
        // Another thread may have been quicker.
        if let Some(&index) = names.index.get(&name) {
            return index;
        }
        let index = names.list.len() as NameIdx;
        if index >= OTHER_KERNEL {
            names.refused += 1;
            return match name.kind {
                NameKind::Brick => OTHER_BRICK,
                NameKind::Kernel => OTHER_KERNEL,
            };
        }
        names.list.push(name.clone());
        names.index.insert(name, index);
        index
    }

    fn read_names(&self) -> std::sync::RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_names(&self) -> std::sync::RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work that waits for work on another thread.
impl BrickProfiler {
    /// Says that what other threads do after [`take_over`](Self::take_over) had to wait for what this
    /// one did so far. So the critical path of a recorded graph finds its way across threads.
    ///
    /// ```
    /// use brickscope::{BrickId, BrickProfiler};
    ///
    /// let profiler = BrickProfiler::enabled();
    /// let norm = profiler.start_brick(BrickId::RmsNorm);
    /// profiler.stop_brick(norm, 1);
    /// let handed = profiler.hand_off();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         profiler.take_over(handed);
    ///         let gate = profiler.start_brick(BrickId::GateProjection);
    ///         profiler.stop_brick(gate, 1);
    ///     });
    /// });
    /// assert_eq!(profiler.profile().dependencies.len(), 1);
    /// ```
    ///
    /// Off, or with no room for single spans, nothing is recorded.
    #[inline]
    pub fn hand_off(&self) -> HandOff {
        HandOff(self.recorder.hand_off())
    }

    /// Says that what this thread does next had to wait for `from`.
    #[inline]
    pub fn take_over(&self, from: HandOff) {
        if let Some(number) = from.0 {
            self.recorder.take_over(number);
        }
    }
}

/// Deferred time, for work that is issued now and finished later.
///
/// Without a device clock all that is known is the order of issue: each brick lasts until the next
/// one starts, and the last until the end ([`Source::HostOrder`]). So they partition the time from
/// the first start to the end.
impl BrickProfiler {
    /// Sets the zero of [`elapsed_ns`](Self::elapsed_ns) to now.
    pub fn reset_epoch(&self) {
        if self.recorder.is_active() {
            // Makes this thread's log, if it has none yet, before the time that is to be measured.
            self.recorder.standing();
        }
        self.epoch.store(self.recorder.clock().now(), Relaxed);
    }

    /// Nanoseconds since the epoch; never less than before.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.recorder.clock().now().saturating_sub(self.epoch.load(Relaxed))
    }

    /// Notes that a brick was issued at `start_ns` (from [`elapsed_ns`](Self::elapsed_ns)).
    pub fn record_deferred(&self, brick: BrickId, start_ns: u64, elements: u64) {
        if self.recorder.is_active() {
            self.defer(brick as NameIdx, start_ns, elements);
        }
    }

    /// As [`record_deferred`](Self::record_deferred), by name.
    pub fn record_deferred_dynamic(&self, name: &str, start_ns: u64, elements: u64) {
        if self.recorder.is_active() {
            self.defer(self.brick_index(name), start_ns, elements);
        }
    }

    fn defer(&self, name: NameIdx, start_ns: u64, elements: u64) {
        let start = self.epoch.load(Relaxed).saturating_add(start_ns);
        let mut pending = lock(&self.pending);
        if pending.issued.is_empty() {
            pending.since = self.recorder.standing();
        }
        pending.issued.push((name, start, Work::elements(elements)));
    }

    /// Settles all pending bricks: the device was waited for, and was done at `end_ns` (from
    /// [`elapsed_ns`](Self::elapsed_ns)).
    ///
    /// In a pass they explain time of the pass, if they were issued and settled on the thread that
    /// runs it, and no brick was timed there meanwhile; else they are counted outside of it.
    pub fn finalize(&self, end_ns: u64) {
        let Pending { issued, since } = std::mem::take(&mut *lock(&self.pending));
        let end = self.epoch.load(Relaxed).saturating_add(end_ns);
        let (settled, late) = partition(issued, end);
        self.late.fetch_add(late, Relaxed);
        if let (Some(&(_, first, ..)), Some(since)) = (settled.first(), since) {
            self.recorder.add_settled(since, first, &settled);
        }
    }

    /// Whether bricks wait to be settled.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.pending_count() > 0
    }

    /// How many bricks wait to be settled.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        lock(&self.pending).issued.len()
    }
}

/// Reading what was recorded.
///
/// These return copies: other threads may go on recording. What a thread has ended before the
/// call is in them if the caller has synchronised with it, such as by joining it.
impl BrickProfiler {
    /// What one well-known brick did.
    #[must_use]
    pub fn brick_stats(&self, brick: BrickId) -> BrickStats {
        self.sums_of([(brick.name().to_owned(), brick as NameIdx)]).remove(0)
    }

    /// The same as [`brick_stats`](Self::brick_stats).
    #[must_use]
    pub fn stats_for(&self, brick: BrickId) -> BrickStats {
        self.brick_stats(brick)
    }

    /// What the brick of this name did; `None` if no brick has it.
    #[must_use]
    pub fn stats(&self, name: &str) -> Option<BrickStats> {
        if let Some(brick) = BrickId::from_str(name) {
            return Some(self.brick_stats(brick));
        }
        let index = *self.read_names().index.get(&brick_name(name))?;
        Some(self.sums_of([(name.to_owned(), index)]).remove(0))
    }

    /// All bricks: the fifteen, then those with names of their own in the order of their first use.
    pub fn all_brick_stats(&self) -> impl Iterator<Item = BrickStats> + use<> {
        self.sums_of(self.brick_names_and_numbers()).into_iter()
    }

    /// The names of all bricks that were recorded.
    #[must_use]
    pub fn brick_names(&self) -> Vec<String> {
        self.all_brick_stats().filter(|stats| stats.count > 0).map(|stats| stats.name).collect()
    }

    /// Sums by category, indexed by `BrickCategory as usize`.
    #[must_use]
    pub fn category_stats(&self) -> [CategoryStats; BrickCategory::COUNT] {
        let bricks: Vec<BrickStats> = self.all_brick_stats().collect();
        by_category(bricks.iter().map(|stats| (category_of(&stats.name), stats)))
    }

    /// Nanoseconds that bricks explain, each counted once where bricks nest. Bricks that were
    /// timed elsewhere ([`record_elapsed`](Self::record_elapsed)) or moved between threads count
    /// in full where what lies inside them can't be told.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.all_brick_stats().map(|stats| stats.exclusive_ns).sum()
    }

    /// The sum of the elements that bricks were stopped with: tokens, where elements are tokens.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        self.all_brick_stats().fold(0, |sum, stats| sum.saturating_add(stats.total_elements))
    }

    /// [`total_tokens`](Self::total_tokens) per second of [`total_ns`](Self::total_ns); 0.0 if
    /// nothing was recorded.
    #[must_use]
    pub fn total_throughput(&self) -> f64 {
        ratio(self.total_tokens() as f64 * 1e9, self.total_ns() as f64)
    }

    fn brick_names_and_numbers(&self) -> Vec<(String, NameIdx)> {
        let names = self.read_names();
        let bricks = names.list.iter().zip(0..).filter(|(name, _)| name.kind == NameKind::Brick);
        let mut bricks: Vec<_> = bricks.map(|(name, index)| (name.name.clone(), index)).collect();
        if names.refused > 0 {
            bricks.push(("(other)".to_owned(), OTHER_BRICK));
        }
        bricks
    }

    /// What each of these bricks did, in all phases and by all sources.
    fn sums_of(&self, bricks: impl IntoIterator<Item = (String, NameIdx)>) -> Vec<BrickStats> {
        let mut sums: Vec<(NameIdx, BrickStats)> = bricks
            .into_iter()
            .map(|(name, index)| {
                (index, BrickStats { name, min_ns: u64::MAX, ..Default::default() })
            })
            .collect();
        self.recorder.collect(|log| {
            for (index, stats) in &mut sums {
                for source in Source::ALL {
                    for slot in Slot::ALL {
                        if let Some(sums) = log.fold().sums(source, slot, *index) {
                            sums.add_to(stats);
                        }
                    }
                }
            }
        });
        sums.into_iter().map(|(_, stats)| stats).collect()
    }

    /// Everything that was recorded, as plain data.
    #[must_use]
    pub fn profile(&self) -> Profile {
        let (mut profile, refused) = self.described(self.recorder.clock().describe());
        profile.clock.anchors.extend(*lock(&self.anchor));
        profile.clock.anchors.extend(self.recorder.clock().anchor());
        profile.checksums = self.get_checksums();
        profile.digests = self.get_digests();
        let graph = self.execution_graph();
        profile.graph = (graph.num_nodes() > 0).then(|| graph.as_ref().clone());
        profile.ptx = self.ptx_registry();
        collect::fill(&mut profile, &self.recorder, refused);
        let devices = lock(&self.devices).clone();
        profile.devices =
            devices.iter().map(|device| device.profile(&profile.names, refused)).collect();
        profile.counters_absent = lock(&self.counters).absent();
        match self.watch.other_load() {
            Ok(load) => profile.other_load = Some(load),
            Err(absent) => profile.other_load_absent = Some(absent),
        }
        profile.overhead = self.overhead(profile.overhead.spans);
        profile
    }

    /// As [`profile`](Self::profile), but only what a live view needs, at a cost that does not grow with the
    /// length of the run: sums. It has no single spans and dependencies, and of the passes only the newest of
    /// each thread, and the newest of which it is known what disturbed it; no graph, sources of kernels, checksums or digests; nobody looks at the load of the
    /// machine. Where [`sum_layers`](Self::sum_layers) asked for it, it has bricks by layer and kernels by
    /// brick. The times of tokens are of all passes, of those too for which a profile has no room; a prompt
    /// counts once a pass has come after it, since until then it may go on.
    #[must_use]
    pub fn snapshot(&self) -> Profile {
        self.snapshot_with(true)
    }

    /// As [`snapshot`](Self::snapshot), without what takes longer than all the rest: bricks by layer, kernels
    /// by brick, and the histograms of `totals` on the host, hence their percentiles.
    #[must_use]
    pub fn snapshot_without_details(&self) -> Profile {
        self.snapshot_with(false)
    }

    fn snapshot_with(&self, details: bool) -> Profile {
        let mut clock = self.recorder.clock().describe_unmeasured();
        if !self.recorder.clock().is_mock() {
            clock.absent =
                Some("its step and cost take many readings: the profile has them".to_owned());
        }
        let (mut profile, refused) = self.described(clock);
        collect::fill_with_sums(&mut profile, &self.recorder, refused, details);
        let devices = lock(&self.devices).clone();
        profile.devices =
            devices.iter().map(|device| device.sums(&profile.names, refused)).collect();
        profile.counters_absent = lock(&self.counters).absent();
        let reason = "nobody looked: this is a picture of a run that goes on".to_owned();
        profile.other_load_absent = Some(Absent { reason });
        profile.overhead = self.overhead(profile.overhead.spans);
        // They are what spans are called.
        profile.names = Vec::new();
        profile
    }

    /// What needs no logs, and whether there were names without room.
    fn described(&self, clock: ClockInfo) -> (Profile, bool) {
        let mut profile = Profile::empty(clock);
        profile.process = (!self.recorder.clock().is_mock()).then(std::process::id);
        profile.sync_mode = self.sync_mode();
        profile.observed = *lock(&self.observed);
        profile.tiles = self.all_tile_stats().into_iter().filter(has_tiles).collect();
        if !profile.tiles.is_empty() {
            profile.tile_threads = self.tile_threads();
            profile.tile_balance = self.tile_balance();
        }
        let names = self.read_names();
        profile.names.clone_from(&names.list);
        profile.dropped =
            Dropped { late: self.late.load(Relaxed), names: names.refused, ..Dropped::default() };
        (profile, names.refused > 0)
    }

    /// Has bricks summed by layer, and kernels by brick, too, from here on: for
    /// [`snapshot`](Self::snapshot), which has no spans to make such sums of. A layer's sums are of what ran
    /// since, and so less than those of `totals`.
    pub fn sum_layers(&self) {
        self.recorder.sum_layers(true);
    }

    /// Ends that, and forgets these sums: rows are folded faster without.
    pub fn stop_summing_layers(&self) {
        self.recorder.sum_layers(false);
    }

    /// Says how many tokens there is room for in the KV cache.
    pub fn set_kv_cache_tokens(&self, tokens: u64) {
        lock(&self.observed).kv_cache_tokens = Some(tokens);
    }

    fn overhead(&self, spans: u64) -> Overhead {
        let clock = self.recorder.clock();
        if lock(&self.counters).were_read() {
            let basis = "absent: hardware counters were read at each brick, and what that takes was \
                         not measured";
            return Overhead { span_ns: None, spans, basis: basis.to_owned() };
        }
        let span_ns = cost::of_a_span(clock);
        let basis = match span_ns {
            None => "absent: a mock clock can't measure a cost".to_owned(),
            Some(_) => {
                let build = if cfg!(debug_assertions) { " (a debug build)" } else { "" };
                format!(
                    "estimate: cost of one span by timers, measured at start-up{build}, times the \
                     spans recorded"
                )
            }
        };
        Overhead { span_ns, spans, basis }
    }
}

pub(crate) fn category_of(name: &str) -> BrickCategory {
    BrickId::from_str(name).map_or(BrickCategory::Other, BrickId::category)
}

/// Text and files.
impl BrickProfiler {
    /// The tables of bricks and categories.
    #[must_use]
    pub fn report(&self) -> String {
        view::report(&self.profile())
    }

    /// The same in short, one line a brick.
    #[must_use]
    pub fn summary(&self) -> String {
        view::summary(self)
    }

    /// The bricks as JSON: `total_tokens`, `total_ns`, `total_throughput`, and `bricks`, each with
    /// `name`, `count`, `total_ns`, `avg_us`, `min_us`, `max_us`, `throughput` and `pct`.
    ///
    /// For the whole of what was recorded, see [`Profile::to_json`](crate::Profile::to_json).
    #[must_use]
    pub fn to_json(&self) -> String {
        view::bricks_json(self)
    }

    /// Writes [`to_json`](Self::to_json) to a file: the whole of it, or nothing.
    ///
    /// # Errors
    ///
    /// Where the file can't be written.
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        save::write_text(path, &self.to_json())
    }

    /// Prints the categories to standard output.
    pub fn print_category_stats(&self) {
        print!("{}", view::category_box(self));
    }
}

/// As a record carries it.
fn tile_work(tiles: u64, elements: u64, flops: u64) -> TileWork {
    TileWork { tiles, elements, flops }
}

fn has_tiles(stats: &TileStats) -> bool {
    stats.count > 0
}

/// Tiles, the cache-blocked pieces of a kernel. Off unless asked for.
impl BrickProfiler {
    /// Turns the timing of tiles on. They are timed while profiling as a whole is on, too.
    pub fn enable_tile_profiling(&self) {
        self.tiles_enabled.store(true, Relaxed);
    }

    /// Turns the timing of tiles off.
    pub fn disable_tile_profiling(&self) {
        self.tiles_enabled.store(false, Relaxed);
    }

    /// Whether tiles are to be timed.
    #[must_use]
    pub fn is_tile_profiling_enabled(&self) -> bool {
        self.tiles_enabled.load(Relaxed)
    }

    /// Begins the tile at `row`, `col` of those on its level.
    #[inline]
    pub fn start_tile(&self, level: TileLevel, row: u32, col: u32) -> TileTimer {
        let on = self.is_tile_profiling_enabled() && self.recorder.is_active();
        TileTimer { level, row, col, start: on.then(|| self.recorder.clock().now()) }
    }

    /// Ends a tile that processed `elements` elements with `flops` floating-point operations.
    #[inline]
    pub fn stop_tile(&self, timer: TileTimer, elements: u64, flops: u64) {
        if let Some(start) = timer.start
            && self.recorder.is_active()
        {
            self.recorder.add_tile(timer.level as u16, start, tile_work(1, elements, flops));
        }
    }

    /// A reading of the clock, for tiles that touch end to end: one begins at the reading at which the one
    /// before it ended. `None` while tiles are not timed.
    #[inline]
    #[must_use]
    pub fn tile_reading(&self) -> Option<u64> {
        let on = self.is_tile_profiling_enabled() && self.recorder.is_active();
        on.then(|| self.recorder.clock().now())
    }

    /// Adds what was computed between two [readings](Self::tile_reading) on this thread: a tile, or a run of
    /// `tiles` of them where each is too short for readings of its own.
    #[inline]
    pub fn add_tiles(
        &self,
        level: TileLevel,
        readings: Range<u64>,
        tiles: u64,
        elements: u64,
        flops: u64,
    ) {
        if self.recorder.is_active() {
            let work = tile_work(tiles, elements, flops);
            self.recorder.add_tile_of(level as u16, readings.start, readings.end, work);
        }
    }

    /// Notes that a product is done that `threads` threads were there to share: `slowest` has the
    /// [readings](Self::tile_reading) of its longest share. See [`TileBalance`].
    pub fn add_tiled_product(&self, slowest: Range<u64>, threads: u64) {
        if self.recorder.is_active() {
            let longest = slowest.end.saturating_sub(slowest.start);
            self.recorder.add_product(slowest.start, longest, longest.saturating_mul(threads));
        }
    }

    /// Makes what the calling thread records into, if profiling is on and it has recorded nothing yet: so that
    /// its first tile, or its first span, doesn't wait for that memory.
    pub fn prepare_thread(&self) {
        self.recorder.prepare_thread();
    }

    /// What the tiles of each thread did, of threads that had some, in the order in which they first recorded.
    #[must_use]
    pub fn tile_threads(&self) -> Vec<TileThread> {
        let mut threads = Vec::new();
        self.recorder.collect(|log| {
            let of = |level: TileLevel| {
                let mut sums = BrickStats::new("");
                log.fold().tiles(level as usize).add_without_histogram(&mut sums);
                TileStats::from_sums(level, &sums)
            };
            let tiles: Vec<_> = TileLevel::ALL.map(of).into_iter().filter(has_tiles).collect();
            if !tiles.is_empty() {
                let lane = log.lane();
                let Owner { name, tid } = lane.thread;
                threads.push((lane.serial, TileThread { name, tid, tiles }));
            }
        });
        // Logs come by the numbers that threads have in the process, which those of before gave back.
        threads.sort_by_key(|(serial, _)| *serial);
        threads.into_iter().map(|(_, thread)| thread).collect()
    }

    /// How evenly threads shared products, if any was noted.
    #[must_use]
    pub fn tile_balance(&self) -> Option<TileBalance> {
        let mut sums = BrickStats::new("");
        self.recorder.collect(|log| log.fold().products().add_to(&mut sums));
        (sums.count > 0).then(|| TileBalance {
            products: sums.count,
            slowest_ns: sums.total_ns,
            offered_ns: sums.total_bytes,
            worked_ns: self.tile_stats(TileLevel::Macro).total_ns,
        })
    }

    /// What the tiles of one level did.
    #[must_use]
    pub fn tile_stats(&self, level: TileLevel) -> TileStats {
        let mut sums = BrickStats::new("");
        self.recorder.collect(|log| log.fold().tiles(level as usize).add_to(&mut sums));
        TileStats::from_sums(level, &sums)
    }

    /// What the tiles did, from the largest level to the smallest.
    #[must_use]
    pub fn all_tile_stats(&self) -> [TileStats; 3] {
        let mut sums = TileLevel::ALL.map(|level| (level, BrickStats::new("")));
        // One look at the logs for all of them.
        self.recorder.collect(|log| {
            for (level, sums) in &mut sums {
                log.fold().tiles(*level as usize).add_to(sums);
            }
        });
        sums.map(|(level, sums)| TileStats::from_sums(level, &sums))
    }

    /// Forgets all tiles, and nothing else.
    pub fn reset_tile_stats(&self) {
        self.recorder.collect(|mut log| log.forget_tiles());
    }

    /// A table of the tiles by level.
    #[must_use]
    pub fn tile_summary(&self) -> String {
        view::tile_table(&self.all_tile_stats())
    }

    /// The tiles as JSON.
    #[must_use]
    pub fn tile_stats_to_json(&self) -> String {
        view::tiles_json(self.is_tile_profiling_enabled(), &self.all_tile_stats())
    }
}

/// Fingerprints of kernel outputs.
impl BrickProfiler {
    /// Notes the fingerprint of `output`, which kernel `name` made in a layer at a position.
    pub fn record_checksum(&self, name: &str, layer_idx: usize, position: u32, output: &[f32]) {
        if !self.recorder.is_active() {
            return;
        }
        let checksum = fnv1a_f32_checksum(output);
        let name = name.to_owned();
        lock(&self.checksums).push(KernelChecksum { name, layer_idx, position, checksum });
    }

    /// All fingerprints, in the order in which they were recorded.
    #[must_use]
    pub fn get_checksums(&self) -> Vec<KernelChecksum> {
        lock(&self.checksums).clone()
    }

    /// The first kernel whose fingerprint isn't that of `reference` at the same place; `None` if
    /// all that both have are equal.
    #[must_use]
    pub fn find_divergence(&self, reference: &Self) -> Option<DivergenceInfo> {
        first_divergence(&self.get_checksums(), &reference.get_checksums())
    }

    /// Notes the digest of `output`, which kernel `name` made in a layer at a position. Unlike a
    /// checksum it covers the whole output, and compares with that of other hardware. It takes some
    /// 20 additions for each element.
    pub fn record_digest(&self, name: &str, layer_idx: usize, position: u32, output: &[f32]) {
        if !self.recorder.is_active() {
            return;
        }
        let digest = Digest::of(output);
        let name = name.to_owned();
        lock(&self.digests).push(KernelDigest { name, layer_idx, position, digest });
    }

    /// All digests, in the order in which they were recorded.
    #[must_use]
    pub fn get_digests(&self) -> Vec<KernelDigest> {
        lock(&self.digests).clone()
    }

    /// The first kernel whose digest differs from that of `reference` at the same place by more than
    /// `tolerance` allows; `None` if all that both have differ by rounding. Places recorded more than
    /// once are matched in order.
    ///
    /// ```
    /// use brickscope::{BrickProfiler, Tolerance};
    ///
    /// let (cpu, gpu) = (BrickProfiler::enabled(), BrickProfiler::enabled());
    /// cpu.record_digest("Softmax", 0, 5, &[0.25, 0.75]);
    /// gpu.record_digest("Softmax", 0, 5, &[0.25, 0.750_000_1]);
    /// cpu.record_digest("Rope", 1, 5, &[0.6, -0.8]);
    /// gpu.record_digest("Rope", 1, 5, &[-0.8, 0.6]);
    ///
    /// let fault = gpu.find_fault(&cpu, Tolerance::default()).expect("a swapped pair");
    /// assert_eq!((&*fault.name, fault.layer_idx), ("Rope", 1));
    /// println!("{fault}");
    /// ```
    #[must_use]
    pub fn find_fault(&self, reference: &Self, tolerance: Tolerance) -> Option<DigestFault> {
        first_fault(&self.get_digests(), &reference.get_digests(), tolerance)
    }

    /// Forgets all fingerprints and digests.
    pub fn reset_checksums(&self) {
        lock(&self.checksums).clear();
        lock(&self.digests).clear();
    }
}

/// The execution graph, filled by hand. What was recorded has a graph of its own:
/// [`Profile::execution_graph`](crate::Profile::execution_graph).
impl BrickProfiler {
    /// Turns the `graph_*` calls on.
    pub fn enable_graph(&self) {
        self.graph_enabled.store(true, Relaxed);
    }

    /// Turns the `graph_*` calls off; what was recorded stays.
    pub fn disable_graph(&self) {
        self.graph_enabled.store(false, Relaxed);
    }

    /// Whether the `graph_*` calls are on.
    #[must_use]
    pub fn is_graph_enabled(&self) -> bool {
        self.graph_enabled.load(Relaxed)
    }

    /// The graph as it is now.
    #[must_use]
    pub fn execution_graph(&self) -> Arc<ExecutionGraph> {
        Arc::clone(&lock(&self.graph))
    }

    /// Adds a node to the open scope and opens it. `None` if the graph is off.
    pub fn graph_push_scope(&self, node: ExecutionNode) -> Option<ExecutionNodeId> {
        self.change_graph(|graph| graph.push_scope(node))
    }

    /// Closes the innermost scope. `None` if none is open, or the graph is off.
    pub fn graph_pop_scope(&self) -> Option<ExecutionNodeId> {
        self.change_graph(ExecutionGraph::pop_scope).flatten()
    }

    /// Adds a brick to the open scope. `None` if the graph is off.
    pub fn graph_record_brick(
        &self,
        brick: BrickId,
        timing_ns: u64,
        elements: u64,
    ) -> Option<ExecutionNodeId> {
        self.change_graph(|graph| {
            graph.add_node_in_scope(ExecutionNode::Brick { id: brick, timing_ns, elements })
        })
    }

    /// Adds a copy of `bytes` from `src` to `dst` to the open scope; `timing_ns` if that was measured.
    /// `None` if the graph is off.
    pub fn graph_record_transfer(
        &self,
        src: &str,
        dst: &str,
        bytes: u64,
        direction: TransferDirection,
        timing_ns: Option<u64>,
    ) -> Option<ExecutionNodeId> {
        self.change_graph(|graph| graph.record_transfer(src, dst, bytes, direction, timing_ns))
    }

    /// Adds a kernel launch: by the innermost scope if that is a brick, else by the brick last
    /// recorded in that scope, else by the scope. `None` if the graph is off.
    pub fn graph_record_kernel(
        &self,
        name: &str,
        ptx_hash: u64,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared_mem: u32,
    ) -> Option<ExecutionNodeId> {
        self.change_graph(|graph| {
            let kernel = crate::graph::gpu_kernel(name, ptx_hash, grid, block, shared_mem);
            let launcher = graph.launcher();
            graph.add_kernel(launcher, kernel)
        })
    }

    /// Registers the source of a kernel, whether or not profiling is on: the profile has it, and
    /// kernels of its name or hash lead to it. [`reset`](Self::reset) leaves it.
    pub fn register_ptx(&self, name: &str, ptx: &str, path: Option<&Path>) -> Registered {
        lock(&self.ptx).register(name, ptx, path)
    }

    /// The sources that were registered.
    #[must_use]
    pub fn ptx_registry(&self) -> PtxRegistry {
        lock(&self.ptx).clone()
    }

    /// The graph in Graphviz's format.
    #[must_use]
    pub fn graph_to_dot(&self) -> String {
        self.execution_graph().to_dot()
    }

    /// Forgets the graph and its open scopes.
    pub fn graph_clear(&self) {
        *lock(&self.graph) = Arc::default();
    }

    /// Whether every scope that was opened has been closed.
    #[must_use]
    pub fn graph_is_scope_balanced(&self) -> bool {
        lock(&self.graph).is_scope_balanced()
    }

    fn change_graph<R>(&self, change: impl FnOnce(&mut ExecutionGraph) -> R) -> Option<R> {
        let on = self.is_graph_enabled() && self.is_enabled();
        on.then(|| change(Arc::make_mut(&mut lock(&self.graph))))
    }
}

/// What the caller observed by other means.
impl BrickProfiler {
    /// Notes the share of L2 accesses that hit, as hardware told it; clamped to 0–1. What isn't a
    /// number is no observation.
    pub fn set_l2_cache_hit_rate(&self, rate: f32) {
        lock(&self.observed).l2_cache_hit_rate = (!rate.is_nan()).then(|| rate.clamp(0.0, 1.0));
    }

    /// The share of L2 accesses that hit, if somebody observed it.
    #[must_use]
    pub fn l2_cache_hit_rate(&self) -> Option<f32> {
        lock(&self.observed).l2_cache_hit_rate
    }

    /// Notes whether transfers are zero-copy.
    pub fn set_zero_copy(&self, zero_copy: bool) {
        lock(&self.observed).zero_copy = zero_copy;
    }

    /// Whether transfers are zero-copy.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        lock(&self.observed).zero_copy
    }
}
