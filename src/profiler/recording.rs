//! Timing bricks, kernels, layers and passes.

use std::time::Duration;

use brickscope_profile::name::NameIdx;
use brickscope_profile::{
    BrickCategory, BrickId, DeviceLaunch, HostLaunch, Name, NameKind, Phase, Work,
};

use super::timers::RunningKernel;
use super::{
    BrickGuard, BrickKernelsTimer, BrickProfiler, BrickTimer, HandOff, KernelTimer, LayerTimer,
    PassTimer, PassTimestamps,
};
use crate::names::{ANY_PROFILER, BrickKey, KernelId};
use crate::recorder::Open;

/// # Timing bricks
impl BrickProfiler {
    /// Begins a brick: a [`BrickId`], or a brick of your own by its
    /// [key](Self::named_brick). If profiling is off, returns without reading the clock.
    #[inline]
    pub fn start_brick(&self, brick: impl Into<BrickKey>) -> BrickTimer {
        BrickTimer(self.recorder.begin_brick(self.brick_of(brick.into())))
    }

    /// The key of a brick with this name, which is timed as fast as a well-known one. Look it up once, where the model is
    /// loaded: the look-up takes a lock.
    ///
    /// The name of a well-known brick gives its key. Reports count another brick in `category`, or in the one that
    /// the name was given first. A key is of use only with the profiler that made it: another one records its time under
    /// a name that says so, and [`misuse`](Self::misuse) counts it.
    ///
    /// ```
    /// # use brickscope::{BrickCategory, BrickId, BrickProfiler, Work};
    /// # let profiler = BrickProfiler::enabled();
    /// let cache = profiler.named_brick("KvCache", BrickCategory::Attention);
    /// let timer = profiler.start_brick(BrickId::RopeEmbedding);
    /// // … RoPE …
    /// let timer = profiler.lap(timer, 4096, cache);
    /// // … the new keys and values are stored …
    /// profiler.stop_brick_with(timer, Work { bytes: 8192, ..Work::elements(4096) });
    /// ```
    #[must_use]
    pub fn named_brick(&self, name: &str, category: BrickCategory) -> BrickKey {
        let number = self.categorised_index(name, category);
        let of = match BrickId::from_str(name) {
            Some(_) => ANY_PROFILER,
            None => self.recorder.number(),
        };
        BrickKey { name: number, of }
    }

    /// Ends a brick that processed `elements` elements.
    #[inline]
    pub fn stop_brick(&self, timer: BrickTimer, elements: u64) {
        self.recorder.end_brick(timer.0, Work::elements(elements));
    }

    /// Ends a brick whose work is known.
    #[inline]
    pub fn stop_brick_with(&self, timer: BrickTimer, work: Work) {
        self.recorder.end_brick(timer.0, work);
    }

    /// Ends a brick that processed `elements` elements and begins `next` with the same reading of the clock. For
    /// bricks that follow each other without a gap.
    #[inline]
    pub fn lap(&self, timer: BrickTimer, elements: u64, next: impl Into<BrickKey>) -> BrickTimer {
        self.lap_with(timer, Work::elements(elements), next)
    }

    /// Like [`lap`](Self::lap), for a brick whose work is known.
    #[inline]
    pub fn lap_with(&self, timer: BrickTimer, work: Work, next: impl Into<BrickKey>) -> BrickTimer {
        BrickTimer(self.recorder.lap(timer.0, work, self.brick_of(next.into())))
    }

    /// Begins a brick that ends when the guard is dropped. See also the macro [`brick!`](crate::brick!).
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
    pub fn brick(&self, brick: impl Into<BrickKey>) -> BrickGuard<'_> {
        let open = self.recorder.begin_brick(self.brick_of(brick.into()));
        BrickGuard { recorder: &self.recorder, open, work: Work::default() }
    }

    /// Begins a brick by name. A name that [`BrickId::from_str`](crate::BrickId::from_str) knows means that brick.
    ///
    /// Looks the name up, under a read lock, before it reads the clock.
    pub fn start(&self, name: &str) -> BrickTimer {
        if !self.recorder.is_active() {
            return BrickTimer(Open::OFF);
        }
        BrickTimer(self.recorder.begin_brick(self.brick_index(name)))
    }

    /// The same as [`stop_brick`](Self::stop_brick).
    #[inline]
    pub fn stop(&self, timer: BrickTimer, elements: u64) {
        self.stop_brick(timer, elements);
    }

    /// Records a brick that the caller timed and that ends now.
    ///
    /// In a pass it accounts for time of the pass, unless another brick ended within it. It then counts as outside
    /// of the pass, so that no nanosecond counts twice.
    pub fn record_elapsed(&self, name: &str, elapsed: Duration, elements: u64) {
        if self.recorder.is_active() {
            let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
            self.recorder.add_elapsed(self.brick_index(name), nanos, Work::elements(elements));
        }
    }

    /// Begins a brick whose number is known.
    pub(crate) fn start_index(&self, brick: NameIdx) -> BrickTimer {
        BrickTimer(self.recorder.begin_brick(brick))
    }
}

/// # Timing kernels
///
/// Kernels are details of the brick that they run in. They are timed and counted, but account for no time that the
/// brick doesn't.
impl BrickProfiler {
    /// The number of the kernel with this name. `host` states how it runs on the CPU.
    ///
    /// The same name and launch give the same number. There is room for about 4000 names of bricks and kernels.
    pub fn kernel(&self, name: &str, host: Option<HostLaunch>) -> KernelId {
        let (name, kind) = (name.to_owned(), NameKind::Kernel);
        self.kernel_named(Name { name, kind, category: None, host, device: None, transfer: None })
    }

    /// The number of the kernel with this name that runs on a device.
    pub fn device_kernel(&self, name: &str, launch: DeviceLaunch) -> KernelId {
        let (name, kind, device) = (name.to_owned(), NameKind::Kernel, Some(launch));
        self.kernel_named(Name { name, kind, category: None, host: None, device, transfer: None })
    }

    fn kernel_named(&self, name: Name) -> KernelId {
        KernelId { name: self.index_of(name), of: self.recorder.number() }
    }

    /// Begins a kernel.
    #[inline]
    pub fn start_kernel(&self, kernel: KernelId) -> KernelTimer {
        KernelTimer(self.recorder.begin_detail(self.kernel_of(kernel)))
    }

    /// Ends a kernel.
    #[inline]
    pub fn stop_kernel(&self, timer: KernelTimer, work: Work) {
        self.recorder.end_kernel(timer.0, work);
    }

    /// Begins a brick and its first kernel with one reading of the clock.
    ///
    /// If that kernel is all of the brick, end both with [`stop_brick_kernel`](Self::stop_brick_kernel): two
    /// readings in all. If more kernels follow, end with [`stop_kernels`](Self::stop_kernels): n kernels take n + 1
    /// readings.
    ///
    /// ```
    /// # use brickscope::{BrickId, BrickProfiler, Work};
    /// # let profiler = BrickProfiler::enabled();
    /// let [gemv, add] = ["q4_k_gemv", "add"].map(|name| profiler.kernel(name, None));
    /// let timer = profiler.start_brick_kernel(BrickId::OutputProjection, gemv);
    /// // … the multiplication …
    /// let timer = profiler.next_kernel(timer, Work::elements(4096), add);
    /// // … the addition …
    /// profiler.stop_kernels(timer, Work::elements(4096), Work::elements(4096));
    /// ```
    #[inline]
    pub fn start_brick_kernel(
        &self,
        brick: impl Into<BrickKey>,
        first: KernelId,
    ) -> BrickKernelsTimer {
        let (brick, first) = (self.brick_of(brick.into()), self.kernel_of(first));
        let brick = self.recorder.begin_both(brick);
        BrickKernelsTimer { brick, kernel: RunningKernel::First(first) }
    }

    /// Ends the running kernel, which did this `work`, and begins the `next` one of the same brick with the same
    /// reading of the clock.
    #[inline]
    pub fn next_kernel(
        &self,
        timer: BrickKernelsTimer,
        work: Work,
        next: KernelId,
    ) -> BrickKernelsTimer {
        let open = self.recorder.next_detail(timer.running(), work, self.kernel_of(next));
        BrickKernelsTimer { kernel: RunningKernel::Later(open), ..timer }
    }

    /// Ends a brick that is a single kernel: both did this `work`.
    ///
    /// If [`next_kernel`](Self::next_kernel) was called, the last kernel ends without stated work.
    #[inline]
    pub fn stop_brick_kernel(&self, timer: BrickKernelsTimer, work: Work) {
        match timer.kernel {
            RunningKernel::First(kernel) => self.recorder.end_both(timer.brick, kernel, work),
            RunningKernel::Later(_) => self.stop_kernels(timer, Work::default(), work),
        }
    }

    /// Ends a brick that is a single kernel, both of which did this `work`, and begins the brick `next` with its `first`
    /// kernel, with the same reading of the clock. For bricks that follow each other without a gap.
    ///
    /// If [`next_kernel`](Self::next_kernel) was called, the last kernel ends without stated work, and the clock is read
    /// twice.
    ///
    /// ```
    /// # use brickscope::{BrickCategory, BrickId, BrickProfiler, Work};
    /// # let profiler = BrickProfiler::enabled();
    /// let [gemv, store] = ["gemv", "store"].map(|name| profiler.kernel(name, None));
    /// let cache = profiler.named_brick("KvCache", BrickCategory::Attention);
    /// let timer = profiler.start_brick_kernel(BrickId::QkvProjection, gemv);
    /// // … the projection …
    /// let timer = profiler.lap_kernel(timer, Work::elements(6144), cache, store);
    /// // … the new keys and values are stored …
    /// profiler.stop_brick_kernel(timer, Work::elements(4096));
    /// ```
    #[inline]
    pub fn lap_kernel(
        &self,
        timer: BrickKernelsTimer,
        work: Work,
        next: impl Into<BrickKey>,
        first: KernelId,
    ) -> BrickKernelsTimer {
        match timer.kernel {
            RunningKernel::First(kernel) => {
                let (next, first) = (self.brick_of(next.into()), self.kernel_of(first));
                let brick = self.recorder.lap_both(timer.brick, kernel, work, next);
                BrickKernelsTimer { brick, kernel: RunningKernel::First(first) }
            }
            RunningKernel::Later(_) => {
                self.stop_brick_kernel(timer, work);
                self.start_brick_kernel(next, first)
            }
        }
    }

    /// Ends the last kernel, which did `kernel_work`, and the brick, which did `work` in all.
    #[inline]
    pub fn stop_kernels(&self, timer: BrickKernelsTimer, kernel_work: Work, work: Work) {
        self.recorder.end_last(timer.brick, timer.running(), kernel_work, work);
    }
}

/// # Timing passes and layers
impl BrickProfiler {
    /// Begins a pass on this thread. Its wall time is what the thread's bricks are compared with.
    ///
    /// If it turns out later which phase it is of, [`PassTimer::set_phase`] says so.
    ///
    /// Between passes, and outside of their wall times, the profiler looks from time to time at what other
    /// processes do to this one. See [`watch_load`](Self::watch_load).
    pub fn begin_pass(&self, phase: Phase) -> PassTimer {
        PassTimer {
            open: self.recorder.begin_pass(phase, |since: &mut _| self.watch.look_before(since)),
            phase,
        }
    }

    /// Ends a pass that processed `tokens` tokens with `position` tokens in the KV cache before it.
    pub fn end_pass(&self, timer: PassTimer, tokens: u64, position: u64) {
        if let Some(open) = timer.open {
            let look = |since: &mut _| self.watch.look_after(since);
            self.recorder.end_pass(open, timer.phase, tokens, position, look);
        }
    }

    /// Ends a pass that is not wanted, such as one that warms up caches. Neither it nor what was timed in it is in the
    /// profile.
    ///
    /// Tiles, checksums and what threads shared have no pass, so those of it stay.
    ///
    /// ```
    /// # use brickscope::{BrickId, BrickProfiler, Phase};
    /// # let profiler = BrickProfiler::enabled();
    /// let warm_up = profiler.begin_pass(Phase::Decode);
    /// let timer = profiler.start_brick(BrickId::LmHead);
    /// profiler.stop_brick(timer, 32_000);
    /// profiler.discard_pass(warm_up);
    /// let profile = profiler.profile();
    /// assert!(profile.passes.is_empty() && profile.spans.is_empty());
    /// assert_eq!(profiler.brick_stats(BrickId::LmHead).count, 0);
    /// ```
    pub fn discard_pass(&self, timer: PassTimer) {
        if let Some(open) = timer.open {
            self.recorder.discard_pass(open);
        }
    }

    /// Begins a transformer layer on this thread. The spans until its end belong to it.
    pub fn begin_layer(&self, index: u16) -> LayerTimer {
        let (open, before) = self.recorder.begin_layer(index);
        LayerTimer { open, before }
    }

    /// Ends a layer.
    pub fn end_layer(&self, timer: LayerTimer) {
        self.recorder.end_layer(timer.open, timer.before);
    }

    /// Takes the timestamps of `pass` without labels. They are labelled after the pass.
    ///
    /// Between two bricks this touches a few words where timers touch a few cache lines. It is meant for engines
    /// whose bricks last microseconds and whose passes all take the same path: one
    /// [`PassTemplate`](crate::PassTemplate) labels the timestamps of all of them.
    ///
    /// `room` holds the timestamps until then. A brick or a layer takes two, and each kernel of a brick after the
    /// first takes one; timestamps can be shared ([`lap`](crate::PassTemplateBuilder::lap)). Nothing else may be timed
    /// on this thread in the meantime. Until the timestamps are labelled, nothing of the pass is recorded, so a
    /// profile taken during the pass doesn't have its bricks.
    ///
    /// Returns `None` if this profiler isn't recording the pass on this thread, if hardware counters are read at
    /// each brick, if bricks are shown as [ranges](Self::enable_nvtx), if the processor has no usable time-stamp counter, and
    /// on a second call for the same pass.
    ///
    /// ```
    /// # use brickscope::{BrickId, BrickProfiler, PassTemplate, Phase, Work};
    /// # let profiler = BrickProfiler::enabled();
    /// # let norm = profiler.kernel("rms_norm", None);
    /// let mut template = PassTemplate::builder();
    /// template.brick_kernel(BrickId::RmsNorm, norm, Work::elements(4096));
    /// let template = template.build();
    ///
    /// let mut room = vec![0; template.timestamps()];
    /// let pass = profiler.begin_pass(Phase::Decode);
    /// if let Some(timestamps) = profiler.timestamps_of(&pass, &mut room) {
    ///     timestamps.take();
    ///     // … the norm …
    ///     timestamps.take();
    ///     if let Some(unlabelled) = timestamps.end() {
    ///         unlabelled.label(&template, 0);
    ///     }
    /// }
    /// profiler.end_pass(pass, 1, 0);
    /// ```
    pub fn timestamps_of<'p>(
        &'p self,
        pass: &'p PassTimer,
        room: &'p mut [u64],
    ) -> Option<PassTimestamps<'p>> {
        self.recorder.timestamps(pass.open.as_ref(), room).map(PassTimestamps)
    }
}

/// # Threads
impl BrickProfiler {
    /// Marks a point in this thread's work. Whatever another thread does after [`take_over`](Self::take_over) had
    /// to wait for it, so the critical path of a recorded graph can cross threads.
    ///
    /// Records nothing if profiling is off, or if there is no room for single spans.
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
    #[inline]
    pub fn hand_off(&self) -> HandOff {
        HandOff(self.recorder.hand_off())
    }

    /// Records that what this thread does next had to wait for `from`.
    #[inline]
    pub fn take_over(&self, from: HandOff) {
        if let Some(number) = from.0 {
            self.recorder.take_over(number);
        }
    }

    /// Allocates the memory that this thread records into, so that its first call doesn't wait for it: a few milliseconds,
    /// which [`Overhead::preparations`](brickscope_profile::Overhead::preparations) has in either case. For pools of threads:
    /// with tokio, `Builder::on_thread_start(move || profiler.prepare_thread())`. Does nothing if profiling is off, or if the
    /// thread has recorded something already.
    pub fn prepare_thread(&self) {
        self.recorder.prepare_thread();
    }
}
