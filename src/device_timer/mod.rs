//! Timing a device while passes are issued: what is marked, what the marks mean, and when to wait for them.
//!
//! This lies above the handle, so that `device/` doesn't need to know the profiler.

mod issue;
mod measure;
mod recorded;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use brickscope_profile::{Grain, Phase, SyncMode, Work};

use crate::device::{
    Device, DeviceError, DeviceInfo, DeviceLog, DeviceMisuse, Event, Issued, State, StreamId, What,
};
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
            self.profiler.mark_all_issued();
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
