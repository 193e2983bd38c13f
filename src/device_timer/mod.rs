//! Timing a device while passes are issued: what is marked, what the marks mean, and when to wait for them.
//!
//! This lies above the handle, so that `device/` doesn't need to know the profiler.

mod measure;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use brickscope_profile::name::NameIdx;
use brickscope_profile::{
    BrickId, Grain, LaunchKind, Phase, Route, SyncMode, TransferDirection, Work,
};

use crate::device::{
    Device, DeviceError, DeviceInfo, DeviceLog, DeviceMisuse, Event, Issued, NEXT_MARK, Needs,
    State, StreamId, What,
};
use crate::names::KernelId;
use crate::profiler::{BrickProfiler, BrickTimer, DeviceRecorder};

/// How often the clocks are aligned anew in a long run. Two clocks whose rates differ by 10 ppm are 100 µs apart after
/// this time.
const REALIGN_NS: u64 = 10_000_000_000;

/// What runs on a stream.
#[derive(Debug, Default)]
struct Running {
    /// Whether anything began on it in this pass.
    has_begun: bool,
    brick: bool,
    layer: Option<u16>,
    /// Its last mark in this pass.
    last_mark: Option<u32>,
    /// When the brick or kernel that began last was issued.
    issued_ns: u64,
    /// The mark at which the brick began.
    brick_mark: u32,
    /// How many kernels the running brick has had so far, and the call of the first.
    kernels: u32,
    first_kernel: u32,
    /// If the grain is the layer or the pass: the event that ends what runs, unless it goes on.
    paused: Option<usize>,
    /// In [`SyncMode::Immediate`], the brick as timed by the host.
    host: Option<(BrickTimer, Work)>,
}

/// Times one device by its own clock. Made by [`DeviceRecorder::timer`].
///
/// Before each launch, the executor declares what it is about to launch. The timer then has the device mark the borders
/// between bricks, N + 1 marks for N bricks without gaps, and waits as the [`SyncMode`] says. Times are known when a
/// pass is settled, at most a few passes later; [`finish`](Self::finish) settles the rest.
///
/// Once [`calibrate`](Self::calibrate) has measured what a mark costs, a budget limits how finely passes are marked.
///
/// After [`DeviceError::Lost`], every call returns that error again.
pub struct DeviceTimer<'p> {
    profiler: &'p BrickProfiler,
    log: Arc<DeviceLog>,
    info: DeviceInfo,
    mode: SyncMode,
    pass: Option<Issued>,
    streams: Vec<Running>,
    /// How many bricks, kernels and transfers this pass has had so far.
    calls: u32,
    hand_offs: u32,
    in_flight: VecDeque<Issued>,
    /// The sets of marks that no pass uses.
    free: Vec<u32>,
    spare: Vec<Issued>,
    ticks: Vec<u64>,
    /// When the clocks were last aligned, by the host's clock.
    aligned_ns: u64,
    realign_ns: Option<u64>,
    lost: Option<DeviceError>,
}

/// The state, in a line. The log of a device takes megabytes of text.
impl fmt::Debug for DeviceTimer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceTimer")
            .field("name", &self.info.name)
            .field("mode", &self.mode)
            .field("is_timing", &self.is_timing())
            .field("in_flight", &self.in_flight.len())
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

/// # Times by the device's clock
impl<'p> DeviceRecorder<'p> {
    /// Begins to time a device whose clock can be read: aligns its clock with the host's. From then on, its times are
    /// in [`Profile::devices`](crate::Profile::devices), in the order of these calls.
    ///
    /// # Errors
    ///
    /// If the device's clock can't be read.
    pub fn timer(self, device: &mut impl Device) -> Result<DeviceTimer<'p>, DeviceError> {
        let profiler = self.0;
        let info = device.describe();
        let alignment = measure::align(profiler, device)?;
        let log = Arc::new(DeviceLog::new(&info, alignment, profiler.log_capacity()));
        profiler.add_device(&log);
        let streams = info.streams.iter().map(|_| Running::default()).collect();
        Ok(DeviceTimer {
            profiler,
            log,
            mode: self.sync_mode(),
            pass: None,
            streams,
            calls: 0,
            hand_offs: 0,
            in_flight: VecDeque::new(),
            free: (0..info.sets.max(1)).rev().collect(),
            spare: Vec::new(),
            ticks: Vec::new(),
            aligned_ns: profiler.clock().now(),
            realign_ns: Some(REALIGN_NS),
            lost: None,
            info,
        })
    }
}

/// # What is timed, and how finely
impl DeviceTimer<'_> {
    /// The device that is timed.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// When to wait: the profiler's mode at the begin of the pass.
    #[must_use]
    pub fn mode(&self) -> SyncMode {
        self.mode
    }

    /// When to wait in the next pass: the profiler's mode now, or [`SyncMode::None`] if the profiler is off.
    #[must_use]
    pub fn wanted_mode(&self) -> SyncMode {
        if self.profiler.is_enabled() { self.profiler.device().sync_mode() } else { SyncMode::None }
    }

    /// What has times of its own in the open pass. If no pass is open, what would have them in a decode pass that
    /// began now.
    #[must_use]
    pub fn grain(&self) -> Grain {
        self.pass.as_ref().map_or_else(|| self.grain_of(Phase::Decode), |pass| pass.grain)
    }

    /// What will have times of its own in the next pass of a phase.
    #[must_use]
    pub fn grain_of(&self, phase: Phase) -> Grain {
        match self.profiler.device().sync_mode() {
            SyncMode::PerLayer => Grain::Layer,
            _ => self.log.budget(|budget| budget.grain(phase)),
        }
    }

    /// Sets what has times of its own from the next pass on, whatever that costs.
    pub fn set_grain(&mut self, grain: Grain) {
        self.log.budget(|budget| budget.forced = Some(grain));
    }

    /// Chooses the grain by its cost from the next pass on. This is the default, and undoes
    /// [`set_grain`](Self::set_grain).
    pub fn choose_grain(&mut self) {
        self.log.budget(|budget| budget.forced = None);
    }

    /// Sets the share of a pass that its marks may cost; the default is 0.01.
    ///
    /// Marks in a pass cost up to twice what [`calibrate`](Self::calibrate) measured, so only half of the share is
    /// spent by that measure. NaN counts as 0: then only whole passes are timed, and of decode passes one in 16.
    pub fn set_budget(&mut self, share: f64) {
        self.log.budget(|budget| budget.share = if share > 0.0 { share } else { 0.0 });
    }

    /// Sets that one in `every` passes of a phase is timed, as when a recorded pass has a twin with marks in it. All of
    /// these passes then share the cost of its marks. The default is 1.
    pub fn set_sampling(&mut self, phase: Phase, every: u32) {
        self.log.budget(|budget| budget.sampled(phase, every));
    }

    /// Sets how often the clocks are aligned anew in a long run. With `None`, only [`realign`](Self::realign) does.
    pub fn realign_every(&mut self, time: Option<Duration>) {
        self.realign_ns = time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// # Issuing a pass
impl DeviceTimer<'_> {
    /// Whether a pass is open and timed.
    #[must_use]
    pub fn is_timing(&self) -> bool {
        self.pass.is_some()
    }

    /// Begins a pass of `tokens` tokens after `position` others. If all sets of marks are in use, waits for the
    /// oldest pass.
    ///
    /// The pass is not timed, and calls do nothing until the next one, if the profiler is off, if its mode is
    /// [`SyncMode::None`], or if decode passes are so short that the budget allows to time only some of them. A pass
    /// that has begun is timed to its end, even if profiling is turned off in the meantime.
    ///
    /// # Errors
    ///
    /// If a pass is open, or if the device fails. [`abandon_pass`](Self::abandon_pass) closes a pass that an error
    /// elsewhere left open.
    pub fn begin_pass(
        &mut self,
        device: &mut impl Device,
        phase: Phase,
        tokens: u64,
        position: u64,
    ) -> Result<(), DeviceError> {
        self.check()?;
        if self.pass.is_some() {
            return Err(DeviceMisuse::PassInPass.into());
        }
        self.mode = self.profiler.device().sync_mode();
        if !self.is_on() {
            return Ok(());
        }
        let is_budgeted = self.mode == SyncMode::Deferred;
        if is_budgeted && !self.log.budget(|budget| budget.is_turn(phase)) {
            self.unmarked_pass();
            return Ok(());
        }
        let now = self.profiler.clock().now();
        if self.realign_ns.is_some_and(|every| now.saturating_sub(self.aligned_ns) >= every) {
            // If this fails without losing the device, it is tried again after the same time.
            self.aligned_ns = now;
            if let Err(error @ DeviceError::Lost { .. }) = self.realign(device) {
                return Err(error);
            }
        }
        if self.free.is_empty() {
            self.settle_oldest(device, true)?;
        }
        let Some(set) = self.free.pop() else { return Ok(()) };
        if let Err(error) = device.begin_set(set) {
            self.free.push(set);
            return Err(self.failed(error));
        }
        let grain = self.grain_of(phase);
        let mut pass = self.spare.pop().unwrap_or_default();
        pass.events.clear();
        self.pass = Some(Issued {
            phase: Some(phase),
            grain,
            tokens,
            position,
            set,
            n_marks: 0,
            issued_ns: self.profiler.clock().now(),
            launches: device.launches(),
            generation: self.log.begun(),
            needs: Needs::default(),
            events: pass.events,
        });
        self.streams.iter_mut().for_each(|stream| *stream = Running::default());
        (self.calls, self.hand_offs) = (0, 0);
        Ok(())
    }

    /// Begins a brick on a stream. Call it before the brick's first kernel is launched. The brick before it ends with
    /// the same mark. `work` is that of the whole brick.
    ///
    /// Does nothing outside of a timed pass.
    ///
    /// # Errors
    ///
    /// If there is no such stream, if there is no room for marks at a grain that the caller chose, or if the device
    /// fails.
    pub fn brick(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        layer: Option<u16>,
        brick: BrickId,
        work: Work,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        self.begin_brick(device, stream, layer, brick as NameIdx, work)
    }

    /// Like [`brick`](Self::brick), by name. A name that [`BrickId::from_str`] knows means that brick.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn brick_named(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        layer: Option<u16>,
        brick: &str,
        work: Work,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        let name = self.profiler.brick_index(brick);
        self.begin_brick(device, stream, layer, name, work)
    }

    /// Begins a copy of `bytes` bytes from `src` to `dst` on a stream. Call it before the copy is issued.
    ///
    /// The copy is timed as a brick is, in the layer that the stream works on, and ends as a brick does. Graphs of the
    /// device show it as a transfer.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn transfer(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        src: &str,
        dst: &str,
        bytes: u64,
        direction: TransferDirection,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        let layer = self.running(stream)?.layer;
        let route = Route { src: src.to_owned(), dst: dst.to_owned(), direction };
        let name = self.profiler.transfer_index(route);
        self.begin_brick(
            device,
            stream,
            layer,
            name,
            Work { elements: 0, flops: 0, bytes, ..Work::default() },
        )
    }

    fn begin_brick(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        layer: Option<u16>,
        name: NameIdx,
        work: Work,
    ) -> Result<(), DeviceError> {
        self.running(stream)?;
        let Some(pass) = &mut self.pass else { return Ok(()) };
        let grain = pass.grain;
        let call = self.calls;
        self.calls += 1;
        let running = &mut self.streams[usize::from(stream.0)];
        let is_first = !running.has_begun;
        let changes_layer = is_first || running.layer != layer;
        pass.needs.add(&[Grain::Kernel, Grain::Brick]);
        pass.needs.add(if changes_layer { &[Grain::Layer] } else { &[] });
        pass.needs.add(if is_first { &[Grain::Pass] } else { &[] });
        if grain <= Grain::Layer {
            let paused = running.paused.take();
            running.has_begun = true;
            running.brick = true;
            running.layer = layer;
            let begins = is_first || changes_layer && grain == Grain::Layer;
            if !begins {
                // What runs goes on, so the event that seemed to end it didn't.
                if let Some(event) = paused.and_then(|at| pass.events.get_mut(at)) {
                    event.what = What::Nothing;
                }
                return Ok(());
            }
            if self.mode == SyncMode::PerLayer && !is_first {
                if paused.is_none() {
                    self.event(device, stream, None, call, What::End)?;
                }
                self.wait(device, stream)?;
            }
            let what = if grain == Grain::Pass { What::Whole } else { What::Layer };
            self.event(device, stream, layer, call, what)?;
            return Ok(());
        }
        if self.mode == SyncMode::Immediate {
            self.end_waiting(device, stream)?;
            let host = self.profiler.start_index(name);
            self.streams[usize::from(stream.0)].host = Some((host, work));
        }
        let mark = self.event(device, stream, layer, call, What::Brick(name, work))?;
        let running = &mut self.streams[usize::from(stream.0)];
        running.has_begun = true;
        running.brick = true;
        running.layer = layer;
        running.brick_mark = mark.unwrap_or_default();
        running.kernels = 0;
        Ok(())
    }

    /// Begins the next kernel of the running brick. Call it before the kernel is launched. The first kernel begins with
    /// the brick.
    ///
    /// If the grain is the brick, the kernel of a brick that has no other kernel gets the brick's time, and other
    /// kernels get none.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick), and if no brick runs on the stream.
    pub fn kernel(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        kernel: KernelId,
        work: Work,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        let running = self.running(stream)?;
        if !running.brick {
            return Err(DeviceMisuse::NoBrick.into());
        }
        let (layer, mark, nth) = (running.layer, running.brick_mark, running.kernels);
        // The first kernel begins with the brick, at the same mark.
        let issued_ns = running.issued_ns;
        running.kernels += 1;
        let call = self.calls;
        self.calls += 1;
        let Some(pass) = &mut self.pass else { return Ok(()) };
        pass.needs.add(if nth > 0 { &[Grain::Kernel] } else { &[] });
        if pass.grain <= Grain::Layer {
            return Ok(());
        }
        let what = What::Kernel(self.profiler.kernel_of(kernel), work);
        if nth == 0 {
            self.streams[usize::from(stream.0)].first_kernel = call;
            pass.events.push(Event { stream: stream.0, mark, layer, call, issued_ns, what });
        } else if pass.grain == Grain::Kernel {
            self.event(device, stream, layer, call, what)?;
        } else if nth == 1 {
            // Two kernels without a mark between them: neither has a time.
            let first = self.streams[usize::from(stream.0)].first_kernel;
            let is_first =
                |event: &Event| event.call == first && matches!(event.what, What::Kernel(..));
            if let Some(at) = pass.events.iter().rposition(is_first) {
                pass.events.remove(at);
            }
        }
        Ok(())
    }

    /// Declares that what `stream` does next waits for what `on` has been given so far. Call it before the device is
    /// made to wait.
    ///
    /// Ends the bricks that run on both streams, so that the wait doesn't count as their time. The device's graph has
    /// it as a dependency, unless the grain is the layer or the pass.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn depends(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        on: StreamId,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        self.running(stream)?;
        self.running(on)?;
        if stream == on {
            return Ok(());
        }
        self.end_brick(device, on)?;
        self.end_brick(device, stream)?;
        // If `on` has no mark in this pass, all that it could be waited for ended with the pass before.
        let mark = self.streams[usize::from(on.0)].last_mark;
        if let (Some(pass), Some(mark)) = (&mut self.pass, mark)
            && pass.grain > Grain::Layer
        {
            let number = self.hand_offs;
            self.hand_offs += 1;
            let what = What::End;
            let event = Event { stream: on.0, mark, layer: None, call: 0, issued_ns: 0, what };
            let take = What::TakeOver(number);
            pass.events.push(Event { what: What::HandOff(number), ..event });
            pass.events.push(Event { stream: stream.0, mark: NEXT_MARK, what: take, ..event });
        }
        Ok(())
    }

    /// Ends the brick that runs on a stream. The time until the next brick begins is a gap.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn end_brick(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        if !self.running(stream)?.brick {
            return Ok(());
        }
        let Some(pass) = &mut self.pass else { return Ok(()) };
        pass.needs.add(&Grain::ALL);
        if pass.grain <= Grain::Layer {
            let at = pass.events.len();
            self.event(device, stream, None, self.calls, What::End)?;
            let running = &mut self.streams[usize::from(stream.0)];
            (running.brick, running.paused) = (false, Some(at));
            return Ok(());
        }
        if self.mode == SyncMode::Immediate {
            return self.end_waiting(device, stream);
        }
        self.event(device, stream, None, self.calls, What::End)?;
        self.streams[usize::from(stream.0)].brick = false;
        Ok(())
    }

    /// Like [`end_brick`](Self::end_brick), for a brick whose work is known only now.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn end_brick_with(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        work: Work,
    ) -> Result<(), DeviceError> {
        if self.pass.is_some() && self.running(stream)?.brick {
            if let Some((_, of_host)) = &mut self.streams[usize::from(stream.0)].host {
                *of_host = work;
            }
            let events = self.pass.iter_mut().flat_map(|pass| pass.events.iter_mut().rev());
            let mut of_stream = events.filter(|event| event.stream == stream.0);
            let last = of_stream.find_map(|event| match &mut event.what {
                What::Brick(_, work) => Some(work),
                _ => None,
            });
            if let Some(last) = last {
                *last = work;
            }
        }
        self.end_brick(device, stream)
    }

    /// Ends the pass: issues its last marks, and settles passes whose times have arrived.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn end_pass(&mut self, device: &mut impl Device) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            // Also after a pass that isn't timed, so that no reader has to wait for those before it.
            self.check()?;
            while !self.in_flight.is_empty() && self.settle_oldest(device, false)? {}
            return Ok(());
        }
        self.count_ends();
        for index in 0..self.streams.len() {
            let Some(pass) = &self.pass else { break };
            let grain = pass.grain;
            let stream = StreamId(index as u16);
            let Running { has_begun, brick, paused, .. } = self.streams[index];
            if grain > Grain::Layer && self.mode == SyncMode::Immediate {
                self.end_waiting(device, stream)?;
                continue;
            }
            if if grain > Grain::Layer { brick } else { has_begun && paused.is_none() } {
                self.event(device, stream, None, self.calls, What::End)?;
            }
            if self.mode == SyncMode::PerLayer && has_begun {
                self.wait(device, stream)?;
            }
        }
        if let Some(pass) = self.pass.take() {
            self.in_flight.push_back(pass);
        }
        while !self.in_flight.is_empty() && self.settle_oldest(device, false)? {}
        Ok(())
    }

    /// Gives up the open pass, for example because a launch failed: it has no times, and is counted as abandoned. Does
    /// nothing if no pass is open.
    pub fn abandon_pass(&mut self) {
        self.give_up(|state| &mut state.abandoned_passes);
    }

    /// Adds the marks that the ends of streams would take at each grain.
    fn count_ends(&mut self) {
        let Some(pass) = &mut self.pass else { return };
        for _ in self.streams.iter().filter(|running| running.brick) {
            pass.needs.add(&Grain::ALL);
        }
    }
}

/// # Recorded passes, and settling
impl DeviceTimer<'_> {
    /// Takes the open pass as the record of a pass that is [`replayed`](Self::replayed) later. It is not timed itself.
    /// `None` if no pass is open.
    ///
    /// The record has no marks at its end, so a brick that still runs has no time in any replay. Call
    /// [`end_brick`](Self::end_brick) first, or use [`end_recorded`](Self::end_recorded).
    pub fn issued(&mut self) -> Option<Issued> {
        self.count_ends();
        let pass = self.pass.take()?;
        self.free.push(pass.set);
        self.log.forget(&pass);
        if let Some(phase) = pass.phase {
            self.log.budget(|budget| budget.recorded(phase));
        }
        Some(pass)
    }

    /// Like [`issued`](Self::issued), after the marks that [`end_pass`](Self::end_pass) would make. Call it while the
    /// device still records.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn end_recorded(
        &mut self,
        device: &mut impl Device,
    ) -> Result<Option<Issued>, DeviceError> {
        for index in 0..self.streams.len() {
            let Some(pass) = &self.pass else { return Ok(None) };
            let Running { has_begun, brick, paused, .. } = self.streams[index];
            if if pass.grain > Grain::Layer { brick } else { has_begun && paused.is_none() } {
                self.event(device, StreamId(index as u16), None, self.calls, What::End)?;
            }
        }
        Ok(self.issued())
    }

    /// Declares that the device is about to replay a recorded pass. Call it before the replay is launched.
    ///
    /// The device writes the marks into the set that the pass was recorded with, under the same numbers, so this waits
    /// for a pass in flight that uses the set. It doesn't call [`Device::begin_set`].
    ///
    /// `work` returns what each brick and kernel has to do. Its arguments are the number of the call that began the
    /// brick or kernel while recording, and the work that was stated then.
    ///
    /// # Errors
    ///
    /// If a pass is open, if `recorded` belongs to a device with other sets, or if the device fails.
    pub fn replayed(
        &mut self,
        device: &mut impl Device,
        recorded: &Issued,
        tokens: u64,
        position: u64,
        work: &mut dyn FnMut(usize, Work) -> Work,
    ) -> Result<(), DeviceError> {
        self.check()?;
        if self.pass.is_some() {
            return Err(DeviceMisuse::PassInPass.into());
        }
        let set = recorded.set;
        let sets = self.info.sets.max(1);
        if set >= sets {
            return Err(DeviceMisuse::NoSuchSet { set, sets }.into());
        }
        while !self.free.contains(&set) && self.settle_oldest(device, true)? {}
        self.mode = self.profiler.device().sync_mode();
        if !self.is_on() {
            return Ok(());
        }
        self.free.retain(|&free| free != set);
        let generation = self.log.begun();
        let mut spare = self.spare.pop().unwrap_or_default().events;
        spare.clear();
        spare.extend_from_slice(&recorded.events);
        for event in &mut spare {
            if let What::Brick(_, of_it) | What::Kernel(_, of_it) = &mut event.what {
                *of_it = work(event.call as usize, *of_it);
            }
        }
        // As late as possible, so that our own work doesn't count as delay before the device begins.
        let issued_ns = self.profiler.clock().now();
        spare.iter_mut().for_each(|event| event.issued_ns = issued_ns);
        let Issued { phase, grain, n_marks, needs, .. } = *recorded;
        let events = spare;
        self.in_flight.push_back(Issued {
            phase,
            grain,
            tokens,
            position,
            set,
            n_marks,
            issued_ns,
            launches: LaunchKind::Replayed,
            generation,
            needs,
            events,
        });
        Ok(())
    }

    /// Settles passes whose times have arrived. With `wait`, waits for all of them.
    ///
    /// # Errors
    ///
    /// If the device is lost. A pass whose marks can't be read back is counted as lost, with the reason.
    pub fn settle(&mut self, device: &mut impl Device, wait: bool) -> Result<(), DeviceError> {
        self.check()?;
        while !self.in_flight.is_empty() && self.settle_oldest(device, wait)? {}
        Ok(())
    }

    /// Settles all passes, and reads both clocks once more to see how far they drifted apart.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn finish(mut self, device: &mut impl Device) -> Result<(), DeviceError> {
        self.abandon_pass();
        self.settle(device, true)?;
        self.realign(device)
    }
}

impl DeviceTimer<'_> {
    fn check(&self) -> Result<(), DeviceError> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    fn is_on(&self) -> bool {
        self.profiler.is_enabled() && self.mode != SyncMode::None
    }

    fn running(&mut self, stream: StreamId) -> Result<&mut Running, DeviceError> {
        let streams = self.streams.len() as u16;
        self.streams
            .get_mut(usize::from(stream.0))
            .ok_or_else(|| DeviceMisuse::NoSuchStream { stream: stream.0, streams }.into())
    }

    /// Marks the stream and notes what the mark means. `None` if the pass isn't timed any more.
    fn event(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        layer: Option<u16>,
        call: u32,
        what: What,
    ) -> Result<Option<u32>, DeviceError> {
        let room = self.info.marks;
        let Some(pass) = &mut self.pass else { return Ok(None) };
        let mark = pass.n_marks;
        if mark >= room {
            let (phase, grain) = (pass.phase, pass.grain);
            self.give_up(|state| &mut state.overfull_passes);
            let is_forced = self.log.budget(|budget| {
                phase.into_iter().for_each(|phase| budget.ran_out(phase, grain));
                budget.forced.is_some()
            });
            let error = DeviceMisuse::TooManyMarks { room };
            return if is_forced { Err(error.into()) } else { Ok(None) };
        }
        let set = pass.set;
        pass.n_marks += 1;
        let running = &mut self.streams[usize::from(stream.0)];
        running.last_mark = Some(mark);
        if matches!(what, What::Brick(..) | What::Kernel(..)) {
            // Before the mark, since the device may reach it at once.
            running.issued_ns = self.profiler.clock().now();
        }
        let issued_ns = running.issued_ns;
        pass.events.push(Event { stream: stream.0, mark, layer, call, issued_ns, what });
        match device.mark(stream, set, mark) {
            Ok(()) => Ok(Some(mark)),
            Err(error) => {
                self.give_up(|state| &mut state.lost_passes);
                Err(self.failed(error))
            }
        }
    }

    /// In [`SyncMode::Immediate`]: ends the running brick on the device, waits for it, and ends it on the host.
    fn end_waiting(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
    ) -> Result<(), DeviceError> {
        let running = self.running(stream)?;
        if !std::mem::take(&mut running.brick) {
            return Ok(());
        }
        let host = running.host.take();
        self.event(device, stream, None, self.calls, What::End)?;
        self.wait(device, stream)?;
        if let Some((host, work)) = host {
            self.profiler.stop_brick_with(host, work);
        }
        Ok(())
    }

    fn wait(&mut self, device: &mut impl Device, stream: StreamId) -> Result<(), DeviceError> {
        // A pass that was given up is not waited for.
        if self.pass.is_none() {
            return Ok(());
        }
        device.wait(stream).map_err(|error| {
            self.give_up(|state| &mut state.lost_passes);
            self.failed(error)
        })
    }

    /// Settles the oldest pass in flight. Whether its times had arrived.
    fn settle_oldest(&mut self, device: &mut impl Device, wait: bool) -> Result<bool, DeviceError> {
        let Some(pass) = self.in_flight.front() else { return Ok(false) };
        let (set, n_marks) = (pass.set, pass.n_marks);
        self.ticks.clear();
        let resolved = match n_marks {
            0 => Ok(true),
            _ => device.resolve(set, n_marks, wait, &mut self.ticks),
        };
        let found = self.ticks.len();
        let resolved = resolved.and_then(|is_there| {
            if !is_there || found >= n_marks as usize {
                return Ok(is_there);
            }
            let what = format!("read back all of {n_marks} marks");
            Err(DeviceError::Failed { what, reason: format!("resolve gave the ticks of {found}") })
        });
        if matches!(resolved, Ok(false)) {
            return Ok(false);
        }
        let Some(pass) = self.in_flight.pop_front() else { return Ok(false) };
        self.free.push(set);
        match resolved {
            Ok(_) => {
                let clock = self.profiler.clock();
                // Turned by hand, a clock may stand while its device goes on.
                let now = (!clock.is_mock()).then(|| clock.now());
                self.log.settle(&pass, &self.ticks, self.mode == SyncMode::Deferred, now);
            }
            Err(error) => {
                self.log.lose(&pass, error.to_string());
                // After other failures the device goes on.
                if matches!(error, DeviceError::Lost { .. }) {
                    return Err(self.failed(error));
                }
            }
        }
        self.spare.push(pass);
        Ok(true)
    }

    /// Gives up the open pass and counts it in `counter`.
    fn give_up(&mut self, counter: impl FnOnce(&mut State) -> &mut u64) {
        if let Some(pass) = self.pass.take() {
            self.free.push(pass.set);
            if self.log.forget(&pass) {
                self.log.note(|state| *counter(state) += 1);
            }
        }
    }

    /// Declares that a pass runs without marks because the executor times only some passes. It is counted, so that the
    /// timed passes aren't taken for all of them. Counts nothing if the profiler is off or its mode is
    /// [`SyncMode::None`].
    pub fn unmarked_pass(&mut self) {
        if self.wanted_mode() != SyncMode::None {
            self.log.note(|state| state.unmarked_passes += 1);
        }
    }

    /// Declares that a call outside of this timer failed, such as a launch. The open pass then has no times. After
    /// [`DeviceError::Lost`], the passes in flight have none either, and the profile says why.
    pub fn note_error(&mut self, error: &DeviceError) {
        self.give_up(|state| &mut state.abandoned_passes);
        if self.lost.is_none() {
            self.failed(error.clone());
        }
    }

    /// A device that is lost stays lost.
    fn failed(&mut self, error: DeviceError) -> DeviceError {
        if matches!(error, DeviceError::Lost { .. }) {
            self.give_up(|state| &mut state.lost_passes);
            for pass in std::mem::take(&mut self.in_flight) {
                self.log.lose(&pass, error.to_string());
            }
            self.log.note(|state| state.lost = Some(error.to_string()));
            self.lost = Some(error.clone());
        } else {
            self.log.note(|state| state.failure = Some(error.to_string()));
        }
        error
    }
}
