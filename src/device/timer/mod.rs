//! The books of a device while passes are issued: what is marked, when it is waited for, what the marks
//! mean.

mod measure;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::brick::{BrickId, Phase, Work};
use crate::device::SyncMode;
use crate::device::error::{DeviceError, Misuse};
use crate::device::executor::{Device, DeviceInfo, StreamId};
use crate::device::issued::{Event, Grain, Issued, NEXT_MARK, Needs, What};
use crate::device::launch::LaunchKind;
use crate::device::log::DeviceLog;
use crate::graph::TransferDirection;
use crate::profile::Route;
use crate::profiler::{BrickProfiler, BrickTimer, KernelId};
use crate::row::NameIdx;

/// How often the clocks are aligned anew in a long run: as two clocks that are 10 ppm apart are 100 µs
/// apart after as long.
const REALIGN_NS: u64 = 10_000_000_000;

/// What runs on a stream.
#[derive(Debug, Default)]
struct Running {
    /// Whether anything was begun on it in this pass.
    has_begun: bool,
    brick: bool,
    layer: Option<u16>,
    /// Its last mark in this pass.
    last_mark: Option<u32>,
    /// When the brick or kernel was issued that began last.
    issued_ns: u64,
    /// The mark at which the brick began.
    brick_mark: u32,
    /// Kernels of the running brick so far, and the call of the first.
    kernels: u32,
    first_kernel: u32,
    /// Where layers or passes are the smallest: the event that ends what runs, unless it goes on.
    paused: Option<usize>,
    /// In [`SyncMode::Immediate`], the brick as the host sees it.
    host: Option<(BrickTimer, Work)>,
}

/// Keeps the books of one device: made by [`BrickProfiler::device_timer`].
///
/// The executor tells it before each launch what is launched; it has the device mark the borders,
/// N + 1 of them for N bricks that touch, and waits as the [`SyncMode`] says. Times are known when a
/// pass is settled, some passes later at most; [`finish`](Self::finish) settles what is left.
///
/// How fine it marks is limited by what marks cost, once [`calibrate`](Self::calibrate) has measured it.
///
/// After [`DeviceError::Lost`] every call returns it again.
#[derive(Debug)]
pub struct DeviceTimer<'p> {
    profiler: &'p BrickProfiler,
    log: Arc<DeviceLog>,
    info: DeviceInfo,
    mode: SyncMode,
    pass: Option<Issued>,
    streams: Vec<Running>,
    /// Bricks, kernels and transfers of this pass so far.
    calls: u32,
    hand_offs: u32,
    in_flight: VecDeque<Issued>,
    /// Sets that no pass uses.
    free: Vec<u32>,
    spare: Vec<Issued>,
    ticks: Vec<u64>,
    /// When the clocks were aligned last, by the host's.
    aligned_ns: u64,
    realign_ns: Option<u64>,
    lost: Option<DeviceError>,
}

impl BrickProfiler {
    /// Begins to time a device: aligns its clock with the host's. Its times are in
    /// [`Profile::devices`](crate::Profile::devices) from then on, in the order of these calls.
    ///
    /// # Errors
    ///
    /// If the device's clock can't be read.
    pub fn device_timer(&self, device: &mut impl Device) -> Result<DeviceTimer<'_>, DeviceError> {
        let info = device.describe();
        let alignment = measure::align(self, device)?;
        let log = Arc::new(DeviceLog::new(&info, alignment, self.log_capacity()));
        self.add_device(&log);
        let streams = info.streams.iter().map(|_| Running::default()).collect();
        Ok(DeviceTimer {
            profiler: self,
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
            aligned_ns: self.clock().now(),
            realign_ns: Some(REALIGN_NS),
            lost: None,
            info,
        })
    }
}

/// What is timed, and how finely.
impl DeviceTimer<'_> {
    /// What the timed device is.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// When to wait: that of the profiler when the pass began.
    #[must_use]
    pub fn mode(&self) -> SyncMode {
        self.mode
    }

    /// When the next pass will be waited for: the mode of the profiler now, or none if it is off.
    #[must_use]
    pub fn wanted_mode(&self) -> SyncMode {
        if self.profiler.is_enabled() { self.profiler.sync_mode() } else { SyncMode::None }
    }

    /// What has times of its own: in the open pass or, without one, in a decode pass if it began now.
    #[must_use]
    pub fn grain(&self) -> Grain {
        self.pass.as_ref().map_or_else(|| self.grain_of(Phase::Decode), |pass| pass.grain)
    }

    /// What has times of its own in the next pass of a phase.
    #[must_use]
    pub fn grain_of(&self, phase: Phase) -> Grain {
        match self.profiler.sync_mode() {
            SyncMode::PerLayer => Grain::Layer,
            _ => self.log.budget(|budget| budget.grain(phase)),
        }
    }

    /// Says what is to have times of its own, from the next pass on, whatever it costs.
    pub fn set_grain(&mut self, grain: Grain) {
        self.log.budget(|budget| budget.forced = Some(grain));
    }

    /// Has the grain chosen by what it costs, from the next pass on: as it is unless
    /// [`set_grain`](Self::set_grain) was called.
    pub fn choose_grain(&mut self) {
        self.log.budget(|budget| budget.forced = None);
    }

    /// Says which share of a pass its marks may cost; a hundredth unless said otherwise. Half of it may be used
    /// by what [`calibrate`](Self::calibrate) measured, as marks in a pass cost up to twice as much. What isn't a
    /// number is none: whole passes, and of decode passes one in 16.
    pub fn set_budget(&mut self, share: f64) {
        self.log.budget(|budget| budget.share = if share > 0.0 { share } else { 0.0 });
    }

    /// Says that of so many passes of a phase one is timed, as where a recorded pass has a twin with marks
    /// in it: all of them share what its marks cost. One in one unless said otherwise.
    pub fn set_sampling(&mut self, phase: Phase, every: u32) {
        self.log.budget(|budget| budget.sampled(phase, every));
    }

    /// How often to look at both clocks in a long run; `None` for not by itself.
    pub fn realign_every(&mut self, time: Option<Duration>) {
        self.realign_ns = time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// A pass, as it is issued.
impl DeviceTimer<'_> {
    /// Whether this pass is timed.
    #[must_use]
    pub fn is_timing(&self) -> bool {
        self.pass.is_some()
    }

    /// Begins a pass of `tokens` tokens after `position` others. If all sets of marks are in use, the
    /// oldest pass is waited for. Off, in [`SyncMode::None`], or where decode passes are so short that the
    /// budget has only some of them timed, nothing happens until the next pass; a pass that has begun is timed to
    /// its end, even if profiling is turned off meanwhile.
    ///
    /// # Errors
    ///
    /// If a pass is open, or by the device. [`abandon_pass`](Self::abandon_pass) closes what an error
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
            return Err(Misuse::PassInPass.into());
        }
        self.mode = self.profiler.sync_mode();
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
            // What fails without the device being lost is tried again as much later.
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

    /// Begins a brick on a stream, before its first kernel is launched; the brick before ends with the
    /// same mark. `work` is the whole brick's.
    ///
    /// # Errors
    ///
    /// If there is no such stream, or no room for marks at a grain that the caller chose, or by the
    /// device. Outside of a timed pass nothing happens.
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

    /// As [`brick`](Self::brick), by name; the names that [`BrickId::from_str`] knows are those bricks.
    ///
    /// # Errors
    ///
    /// As [`brick`](Self::brick).
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

    /// Begins a copy of `bytes` from `src` to `dst` on a stream, before it is put there. It has its time
    /// as a brick has, in the layer that the stream works on, and ends as one does; graphs of the device
    /// have it as a transfer.
    ///
    /// # Errors
    ///
    /// As [`brick`](Self::brick).
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
        self.begin_brick(device, stream, layer, name, Work { elements: 0, flops: 0, bytes })
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
                // It goes on: what looked like an end was none.
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

    /// Says that a kernel of the running brick is launched next. The first one begins with the brick.
    /// Where bricks are the smallest that has a time, the kernel of a brick that is this kernel alone has
    /// the same; those of other bricks have none.
    ///
    /// # Errors
    ///
    /// As [`brick`](Self::brick); and if no brick runs on the stream.
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
            return Err(Misuse::NoBrick.into());
        }
        let (layer, mark, nth) = (running.layer, running.brick_mark, running.kernels);
        // Of the first: it begins with the brick, at one mark.
        let issued_ns = running.issued_ns;
        running.kernels += 1;
        let call = self.calls;
        self.calls += 1;
        let Some(pass) = &mut self.pass else { return Ok(()) };
        pass.needs.add(if nth > 0 { &[Grain::Kernel] } else { &[] });
        if pass.grain <= Grain::Layer {
            return Ok(());
        }
        let what = What::Kernel(kernel.0, work);
        if nth == 0 {
            self.streams[usize::from(stream.0)].first_kernel = call;
            pass.events.push(Event { stream: stream.0, mark, layer, call, issued_ns, what });
        } else if pass.grain == Grain::Kernel {
            self.event(device, stream, layer, call, what)?;
        } else if nth == 1 {
            // Two, and no mark between them: neither has a time.
            let first = self.streams[usize::from(stream.0)].first_kernel;
            let is_first =
                |event: &Event| event.call == first && matches!(event.what, What::Kernel(..));
            if let Some(at) = pass.events.iter().rposition(is_first) {
                pass.events.remove(at);
            }
        }
        Ok(())
    }

    /// Says that what `stream` does next waits for what `on` has so far: before the device is told to
    /// wait. The bricks that run on both end, so that waiting is none of their time. It is a dependency of
    /// the device's graph; where bricks have no times it is none.
    ///
    /// # Errors
    ///
    /// As [`brick`](Self::brick).
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
        // Without a mark in this pass there is nothing to wait for that the pass before didn't end.
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

    /// Ends the brick that runs on a stream; what comes until the next one begins is a gap.
    ///
    /// # Errors
    ///
    /// As [`brick`](Self::brick).
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

    /// As [`end_brick`](Self::end_brick), where what the brick had to do is known only now.
    ///
    /// # Errors
    ///
    /// As [`brick`](Self::brick).
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

    /// Ends the pass: its last marks are put into the streams. Settles passes whose times are there.
    ///
    /// # Errors
    ///
    /// By the device.
    pub fn end_pass(&mut self, device: &mut impl Device) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            // Of passes that aren't timed, too, so that those before them aren't waited for by readers.
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

    /// Gives the open pass up, as when what it was to launch failed: it has no times, and is counted. Does
    /// nothing if none is open.
    pub fn abandon_pass(&mut self) {
        self.give_up(|state| &mut state.abandoned_passes);
    }

    /// What the ends of streams would take at each grain.
    fn count_ends(&mut self) {
        let Some(pass) = &mut self.pass else { return };
        for _ in self.streams.iter().filter(|running| running.brick) {
            pass.needs.add(&Grain::ALL);
        }
    }
}

/// Passes that are recorded once and replayed, and the times of all.
impl DeviceTimer<'_> {
    /// The pass that is being issued, for [`replayed`](Self::replayed); it is not timed itself, and
    /// `None` if none is open. Ends the pass without marks at its end: what runs has no time in any
    /// replay, unless [`end_brick`](Self::end_brick) came first. See [`end_recorded`](Self::end_recorded).
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

    /// As [`issued`](Self::issued), after the marks that [`end_pass`](Self::end_pass) would make: while they
    /// are still recorded.
    ///
    /// # Errors
    ///
    /// By the device.
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

    /// Says that the device is to run a recorded pass once more, before it is told to: its marks are then
    /// written into the set that it was recorded with, as they were numbered then, so a pass in flight that
    /// uses this set is waited for. [`Device::begin_set`] is not called. `work` is asked what each brick
    /// and kernel has to do, by its number among the calls that began one while recording, given what it
    /// had to do then.
    ///
    /// # Errors
    ///
    /// If a pass is open, or `recorded` is of a device with other sets, or by the device.
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
            return Err(Misuse::PassInPass.into());
        }
        let set = recorded.set;
        let sets = self.info.sets.max(1);
        if set >= sets {
            return Err(Misuse::NoSuchSet { set, sets }.into());
        }
        while !self.free.contains(&set) && self.settle_oldest(device, true)? {}
        self.mode = self.profiler.sync_mode();
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
        // As late as may be: what is told of the delay from here to the begin shouldn't be ours.
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

    /// Settles passes whose times are there; with `wait`, all of them.
    ///
    /// # Errors
    ///
    /// If the device is lost. A pass whose marks it can't read back is counted as lost, with the reason.
    pub fn settle(&mut self, device: &mut impl Device, wait: bool) -> Result<(), DeviceError> {
        self.check()?;
        while !self.in_flight.is_empty() && self.settle_oldest(device, wait)? {}
        Ok(())
    }

    /// Settles all passes, and looks at both clocks once more, to see how far they drifted apart.
    ///
    /// # Errors
    ///
    /// By the device.
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
            .ok_or_else(|| Misuse::NoSuchStream { stream: stream.0, streams }.into())
    }

    /// Marks the stream; notes what the mark means. `None` if the pass isn't timed any more.
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
            let error = Misuse::TooManyMarks { room };
            return if is_forced { Err(error.into()) } else { Ok(None) };
        }
        let set = pass.set;
        pass.n_marks += 1;
        let running = &mut self.streams[usize::from(stream.0)];
        running.last_mark = Some(mark);
        if matches!(what, What::Brick(..) | What::Kernel(..)) {
            // Before the mark, as the device may make it at once.
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

    /// In [`SyncMode::Immediate`]: ends the running brick, on the device and, when that was waited for, on
    /// the host.
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
            self.profiler.stop_with(host, work);
        }
        Ok(())
    }

    fn wait(&mut self, device: &mut impl Device, stream: StreamId) -> Result<(), DeviceError> {
        // Not for a pass that was given up.
        if self.pass.is_none() {
            return Ok(());
        }
        device.wait(stream).map_err(|error| {
            self.give_up(|state| &mut state.lost_passes);
            self.failed(error)
        })
    }

    /// Whether its times were there.
    fn settle_oldest(&mut self, device: &mut impl Device, wait: bool) -> Result<bool, DeviceError> {
        let Some(pass) = self.in_flight.front() else { return Ok(false) };
        let (set, n_marks) = (pass.set, pass.n_marks);
        self.ticks.clear();
        let resolved = match n_marks {
            0 => Ok(true),
            _ => device.resolve(set, n_marks, wait, &mut self.ticks),
        };
        if matches!(resolved, Ok(false)) {
            return Ok(false);
        }
        let Some(pass) = self.in_flight.pop_front() else { return Ok(false) };
        self.free.push(set);
        match resolved {
            Ok(_) => self.log.settle(&pass, &self.ticks, self.mode == SyncMode::Deferred),
            Err(error) => {
                self.log.lose(&pass, error.to_string());
                // Of other failures the device goes on.
                if matches!(error, DeviceError::Lost { .. }) {
                    return Err(self.failed(error));
                }
            }
        }
        self.spare.push(pass);
        Ok(true)
    }

    /// The pass under way has no times; it is counted among those that `counter` counts.
    fn give_up(&mut self, counter: impl FnOnce(&mut crate::device::log::State) -> &mut u64) {
        if let Some(pass) = self.pass.take() {
            self.free.push(pass.set);
            if self.log.forget(&pass) {
                self.log.note(|state| *counter(state) += 1);
            }
        }
    }

    /// Says that a pass runs without marks, as the executor times every so many only: it is counted, so that
    /// nobody takes those that are timed for all. Off, or in [`SyncMode::None`], it isn't.
    pub fn unmarked_pass(&mut self) {
        if self.wanted_mode() != SyncMode::None {
            self.log.note(|state| state.unmarked_passes += 1);
        }
    }

    /// Says that a call failed of which this did not hear, such as a launch. The open pass has no times then;
    /// after [`DeviceError::Lost`] nor do those in flight, and the profile says why.
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
