//! The books of a device while passes are issued: what is marked, when it is waited for, what the marks
//! mean.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::brick::{BrickId, Phase, Work};
use crate::clock::Clock;
use crate::device::SyncMode;
use crate::device::clock::{Alignment, Bracket, Ticks};
use crate::device::error::{DeviceError, Misuse};
use crate::device::log::DeviceLog;
use crate::profiler::{BrickIdTimer, BrickProfiler, KernelId};
use crate::recorder::NameIdx;

/// How many times the same moment is read by both clocks, to align them.
const BRACKETS: usize = 16;

/// A queue of a device, which does its work in the order in which it was put there: its place in
/// [`DeviceInfo::streams`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StreamId(pub u16);

/// What a device is, and what its timing can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// The device, as its driver names it.
    pub name: String,
    /// How it is driven: `vulkan`, `cuda`, `simulated` …
    pub api: String,
    /// The driver and its version, as it says.
    pub driver: String,
    /// Its clock.
    pub ticks: Ticks,
    /// Names of its streams; there is one at least.
    pub streams: Vec<String>,
    /// Sets of marks: so many passes can be in flight. One at least.
    pub sets: u32,
    /// Marks in a set: so many a pass can have, on all streams together.
    pub marks: u32,
}

/// What an executor offers, so that what it runs can be timed by the device's own clock.
///
/// Marks belong to sets, one for each pass in flight. A [`DeviceTimer`] says which; it calls
/// [`resolve`](Self::resolve) for a set before it begins the set anew.
pub trait Device {
    /// What it is. Says the same at each call.
    fn describe(&self) -> DeviceInfo;

    /// The marks of `set` are written anew from now on.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn begin_set(&mut self, set: u32) -> Result<(), DeviceError>;

    /// Has the device note its time as mark `mark` of `set`, when the work that was put into `stream`
    /// before is done. Marks of a set are numbered from 0, in the order of the calls.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn mark(&mut self, stream: StreamId, set: u32, mark: u32) -> Result<(), DeviceError>;

    /// Waits until all work that was put into `stream` is done.
    ///
    /// # Errors
    ///
    /// As the driver says; [`DeviceError::Lost`] if it never will be.
    fn wait(&mut self, stream: StreamId) -> Result<(), DeviceError>;

    /// Puts the device's readings at marks 0 to `n_marks` of `set` into `ticks`, and returns whether they
    /// are there: without `wait` they may not be yet, and `ticks` is left alone.
    ///
    /// # Errors
    ///
    /// As the driver says. The set is free again then.
    fn resolve(
        &mut self,
        set: u32,
        n_marks: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, DeviceError>;

    /// Reads the device's clock between two readings of the host's. Called between passes.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError>;
}

/// What has a device time of its own; the rest is inside.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Grain {
    /// Nothing smaller than a pass.
    Pass,
    /// Layers, and nothing inside them.
    Layer,
    /// Bricks.
    Brick,
    /// Bricks, and the kernels inside them.
    #[default]
    Kernel,
}

/// A pass as it was issued: what lies between its marks. Of a pass that is recorded once and replayed,
/// [`DeviceTimer::issued`] gives it for [`DeviceTimer::replayed`].
#[derive(Debug, Clone, Default)]
pub struct Issued {
    pub(crate) phase: Option<Phase>,
    pub(crate) tokens: u64,
    pub(crate) position: u64,
    pub(crate) set: u32,
    pub(crate) n_marks: u32,
    /// In the order of issue.
    pub(crate) events: Vec<Event>,
}

/// What a mark means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) stream: u16,
    pub(crate) mark: u32,
    pub(crate) layer: Option<u16>,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The layer begins; what ran before ends.
    Layer,
    /// A brick begins; what ran before ends.
    Brick(NameIdx, Work),
    /// A kernel of the running brick begins; the kernel before ends.
    Kernel(NameIdx, Work),
    /// What ran ends.
    End,
}

/// What runs on a stream.
#[derive(Debug, Default)]
struct Running {
    /// Whether anything was marked on it in this pass.
    has_begun: bool,
    brick: bool,
    layer: Option<u16>,
    /// The mark at which the brick began, as long as none of its kernels has.
    fresh: Option<u32>,
    /// In [`SyncMode::Immediate`], the brick as the host sees it.
    host: Option<BrickIdTimer>,
}

/// Keeps the books of one device: made by [`BrickProfiler::device_timer`].
///
/// The executor tells it before each launch what is launched; it has the device mark the borders,
/// N + 1 of them for N bricks that touch, and waits as the [`SyncMode`] says. Times are known when a
/// pass is settled, some passes later at most; [`finish`](Self::finish) settles what is left.
///
/// After [`DeviceError::Lost`] every call returns it again.
#[derive(Debug)]
pub struct DeviceTimer<'p> {
    profiler: &'p BrickProfiler,
    log: Arc<DeviceLog>,
    info: DeviceInfo,
    mode: SyncMode,
    grain: Grain,
    pass: Option<Issued>,
    streams: Vec<Running>,
    in_flight: VecDeque<Issued>,
    /// Sets that no pass uses.
    free: Vec<u32>,
    spare: Vec<Issued>,
    ticks: Vec<u64>,
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
        let brackets =
            (0..BRACKETS).map(|_| device.bracket(self.clock())).collect::<Result<Vec<_>, _>>()?;
        let alignment = Alignment::of(&brackets).unwrap_or(Alignment {
            host_ns: 0,
            device_ticks: 0,
            error_ns: u64::MAX,
        });
        let log = Arc::new(DeviceLog::new(&info, alignment));
        self.add_device(&log);
        let streams = info.streams.iter().map(|_| Running::default()).collect();
        Ok(DeviceTimer {
            profiler: self,
            log,
            mode: self.sync_mode(),
            grain: Grain::default(),
            pass: None,
            streams,
            in_flight: VecDeque::new(),
            free: (0..info.sets.max(1)).rev().collect(),
            spare: Vec::new(),
            ticks: Vec::new(),
            lost: None,
            info,
        })
    }
}

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

    /// What has times of its own.
    #[must_use]
    pub fn grain(&self) -> Grain {
        self.grain
    }

    /// Says what is to have times of its own, from the next pass on.
    pub fn set_grain(&mut self, grain: Grain) {
        self.grain = grain;
    }

    /// Whether this pass is timed.
    #[must_use]
    pub fn is_timing(&self) -> bool {
        self.pass.is_some()
    }

    /// Begins a pass of `tokens` tokens after `position` others. If all sets of marks are in use, the
    /// oldest pass is waited for. Off, or in [`SyncMode::None`], nothing happens until the next pass.
    ///
    /// # Errors
    ///
    /// If a pass is open, or by the device.
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
        if !self.profiler.is_enabled() || self.mode == SyncMode::None {
            return Ok(());
        }
        if self.free.is_empty() {
            self.settle_oldest(device, true)?;
        }
        let Some(set) = self.free.pop() else { return Ok(()) };
        if let Err(error) = device.begin_set(set) {
            self.free.push(set);
            return Err(self.failed(error));
        }
        let mut pass = self.spare.pop().unwrap_or_default();
        pass.events.clear();
        pass = Issued { phase: Some(phase), tokens, position, set, n_marks: 0, ..pass };
        self.pass = Some(pass);
        self.streams.iter_mut().for_each(|stream| *stream = Running::default());
        self.log.note(|state| state.open += 1);
        Ok(())
    }

    /// Begins a brick on a stream, before its first kernel is launched; the brick before ends with the
    /// same mark. `work` is the whole brick's.
    ///
    /// # Errors
    ///
    /// If there is no such stream, or no room for marks, or by the device. Outside of a timed pass
    /// nothing happens.
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
        let running = self.running(stream)?;
        let has_begun = running.has_begun;
        let changes_layer = !has_begun || running.layer != layer;
        if self.mode == SyncMode::PerLayer || self.grain <= Grain::Layer {
            let wanted = match self.grain {
                Grain::Pass if self.mode != SyncMode::PerLayer => !has_begun,
                _ => changes_layer,
            };
            if wanted {
                if self.mode == SyncMode::PerLayer && has_begun {
                    self.event(device, stream, None, What::End)?;
                    self.wait(device, stream)?;
                }
                self.event(device, stream, layer, What::Layer)?;
            }
            return Ok(());
        }
        if self.mode == SyncMode::Immediate {
            self.end_waiting(device, stream)?;
            let host = self.profiler.start_brick(brick);
            self.streams[usize::from(stream.0)].host = Some(host);
        }
        let mark = self.event(device, stream, layer, What::Brick(brick as NameIdx, work))?;
        let running = &mut self.streams[usize::from(stream.0)];
        running.brick = true;
        running.fresh = Some(mark);
        Ok(())
    }

    /// Says that a kernel of the running brick is launched next. The first one begins with the brick.
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
        let has_bricks = self.mode != SyncMode::PerLayer && self.grain > Grain::Layer;
        let is_timed = self.grain == Grain::Kernel;
        let running = self.running(stream)?;
        if !has_bricks {
            return Ok(());
        }
        if !running.brick {
            return Err(Misuse::NoBrick.into());
        }
        let layer = running.layer;
        let what = What::Kernel(kernel.0, work);
        match running.fresh.take() {
            Some(mark) => {
                let event = Event { stream: stream.0, mark, layer, what };
                if let Some(pass) = &mut self.pass {
                    pass.events.push(event);
                }
            }
            None if is_timed => drop(self.event(device, stream, layer, what)?),
            // More kernels than one, and no marks between them: none of them has a time.
            None => {
                if let Some(pass) = &mut self.pass {
                    let last = pass.events.iter().rposition(|event| event.stream == stream.0);
                    if let Some(last) = last
                        && matches!(pass.events[last].what, What::Kernel(..))
                    {
                        pass.events.remove(last);
                    }
                }
            }
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
        if self.mode == SyncMode::Immediate {
            return self.end_waiting(device, stream);
        }
        self.event(device, stream, None, What::End)?;
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
            return self.check();
        }
        for index in 0..self.streams.len() {
            let stream = StreamId(index as u16);
            let running = &self.streams[index];
            let (has_begun, has_brick) = (running.has_begun, running.brick);
            match self.mode {
                SyncMode::Immediate => self.end_waiting(device, stream)?,
                SyncMode::PerLayer if has_begun => {
                    self.event(device, stream, None, What::End)?;
                    self.wait(device, stream)?;
                }
                _ if has_brick || has_begun && self.grain <= Grain::Layer => {
                    self.event(device, stream, None, What::End)?;
                }
                _ => {}
            }
        }
        if let Some(pass) = self.pass.take() {
            self.in_flight.push_back(pass);
        }
        while !self.in_flight.is_empty() && self.settle_oldest(device, false)? {}
        Ok(())
    }

    /// The pass that is being issued, if one is, will have no times: an error ended it. It counts among
    /// the lost ones.
    pub fn abandon_pass(&mut self) {
        self.abandon();
    }

    /// The pass that is being issued, for [`replayed`](Self::replayed); it is not timed itself, and
    /// `None` if none is open. Ends the pass without a mark at its end: call
    /// [`end_brick`](Self::end_brick) first.
    pub fn issued(&mut self) -> Option<Issued> {
        let pass = self.pass.take()?;
        self.free.push(pass.set);
        self.log.note(|state| state.open -= 1);
        Some(pass)
    }

    /// Says that the device runs a recorded pass once more: its marks are written into `set`, as they
    /// were numbered when it was recorded. `work` is asked what each brick and kernel has to do, in their
    /// order, given what it had to do then.
    ///
    /// # Errors
    ///
    /// If a pass is open, or by the device.
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
        while !self.free.contains(&set) {
            self.settle_oldest(device, true)?;
        }
        self.free.retain(|&free| free != set);
        let mut pass = Issued { tokens, position, ..recorded.clone() };
        let works = pass.events.iter_mut().filter_map(|event| match &mut event.what {
            What::Brick(_, work) | What::Kernel(_, work) => Some(work),
            What::Layer | What::End => None,
        });
        works.enumerate().for_each(|(index, of_it)| *of_it = work(index, *of_it));
        self.log.note(|state| state.open += 1);
        self.in_flight.push_back(pass);
        Ok(())
    }

    /// Settles passes whose times are there; with `wait`, all of them.
    ///
    /// # Errors
    ///
    /// By the device.
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
        self.settle(device, true)?;
        let brackets = (0..BRACKETS)
            .map(|_| device.bracket(self.profiler.clock()))
            .collect::<Result<Vec<_>, _>>();
        let brackets = brackets.map_err(|error| self.failed(error))?;
        if let Some(alignment) = Alignment::of(&brackets) {
            self.log.note(|state| state.last_alignment = Some(alignment));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), DeviceError> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    fn running(&mut self, stream: StreamId) -> Result<&mut Running, DeviceError> {
        let streams = self.streams.len() as u16;
        self.streams
            .get_mut(usize::from(stream.0))
            .ok_or_else(|| Misuse::NoSuchStream { stream: stream.0, streams }.into())
    }

    /// Marks the stream; notes what the mark means.
    fn event(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        layer: Option<u16>,
        what: What,
    ) -> Result<u32, DeviceError> {
        let room = self.info.marks;
        let Some(pass) = &mut self.pass else { return Err(Misuse::NoPass.into()) };
        let mark = pass.n_marks;
        if mark >= room {
            self.abandon();
            return Err(Misuse::TooManyMarks { room }.into());
        }
        let set = pass.set;
        pass.n_marks += 1;
        pass.events.push(Event { stream: stream.0, mark, layer, what });
        let running = &mut self.streams[usize::from(stream.0)];
        running.has_begun = true;
        running.fresh = None;
        if what != What::End {
            running.layer = layer;
        }
        device.mark(stream, set, mark).map_err(|error| self.failed(error))?;
        Ok(mark)
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
        self.event(device, stream, None, What::End)?;
        self.wait(device, stream)?;
        let running = self.running(stream)?;
        if let Some(host) = running.host.take() {
            self.profiler.stop_brick(host, 0);
        }
        Ok(())
    }

    fn wait(&mut self, device: &mut impl Device, stream: StreamId) -> Result<(), DeviceError> {
        device.wait(stream).map_err(|error| self.failed(error))
    }

    /// Whether its times were there.
    fn settle_oldest(&mut self, device: &mut impl Device, wait: bool) -> Result<bool, DeviceError> {
        let Some(pass) = self.in_flight.front() else { return Ok(false) };
        let (set, n_marks) = (pass.set, pass.n_marks);
        let mut ticks = std::mem::take(&mut self.ticks);
        ticks.clear();
        let resolved = match n_marks {
            0 => Ok(true),
            _ => device.resolve(set, n_marks, wait, &mut ticks),
        };
        if matches!(resolved, Ok(false)) {
            self.ticks = ticks;
            return Ok(false);
        }
        let Some(pass) = self.in_flight.pop_front() else { return Ok(false) };
        self.free.push(set);
        self.log.note(|state| state.open -= 1);
        let settled = match resolved {
            Ok(_) => {
                self.log.settle(&self.info.ticks, &pass, &ticks);
                Ok(true)
            }
            Err(error) => {
                self.log.note(|state| state.lost_passes += 1);
                Err(self.failed(error))
            }
        };
        self.ticks = ticks;
        self.spare.push(pass);
        settled
    }

    /// The pass under way has no times.
    fn abandon(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.free.push(pass.set);
            self.log.note(|state| {
                state.open -= 1;
                state.lost_passes += 1;
            });
        }
    }

    /// A device that is lost stays lost.
    fn failed(&mut self, error: DeviceError) -> DeviceError {
        self.abandon();
        if matches!(error, DeviceError::Lost { .. }) {
            let in_flight = self.in_flight.len() as u64;
            self.in_flight.clear();
            self.log.note(|state| {
                state.open -= in_flight;
                state.lost_passes += in_flight;
                state.lost = Some(error.to_string());
            });
            self.lost = Some(error.clone());
        }
        error
    }
}
