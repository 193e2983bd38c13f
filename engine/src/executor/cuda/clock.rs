//! The device's clock: marks in the stream, and their times.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brickscope::{
    Bracket, Clock, Device, DeviceError, DeviceInfo, Grain, MarkCost, StreamId, Ticks,
};

use super::driver::{Arg, Buffer, Context, Event, Function, Mailbox, Stream};
use super::error::CudaError;
use super::graph::CapturedMarks;
use super::kernels::Launch;
use super::memory::nanos;
use super::{Cuda, Kernel};
use crate::executor::gpu::{GpuError, Operand};

/// How the device records times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stamps {
    /// Each kernel notes `%globaltimer` when it begins. That takes no launch, and less than 0.1 µs on an H200; and it is as
    /// fine as the clock's tick, which is measured: 32 ns there, 1 µs on some devices.
    #[default]
    Inside,
    /// As events: `cuEventRecord`, and event-record nodes in graphs. cuda.h states a resolution of about
    /// 0.5 µs. Each takes about 2.5 µs of the device's time on an H200.
    Events,
}

/// The most passes in flight: one that runs, one that is issued, one that is being settled, and that of
/// the graph.
const SETS: u32 = 4;

/// The set of [`Cuda::graph_cost`], which timers don't use.
pub(super) const OWN_SET: u32 = SETS;

/// Groups of four replays, from which the cost of a mark is known.
const MARK_QUADS: u32 = 10;

/// cuda.h on cuEventElapsedTime: "resolution of approximately 0.5 microseconds".
const EVENT_RESOLUTION_NS: f64 = 500.0;

/// The time of the anchor, above zero so that earlier events have times too.
const FIRST_ANCHOR_NS: u64 = 1 << 40;

/// The age at which an anchor is replaced: elapsed times are floats, whose steps reach 0.5 µs at 4 s.
const ANCHOR_AGE: Duration = Duration::from_millis(250);

/// The marks of all sets.
#[derive(Debug)]
pub(super) struct Marks {
    stamps: Stamps,
    per_set: u32,
    sets: Vec<Set>,
    /// An event of known time, from which all others are measured.
    anchor: Event,
    anchor_ns: u64,
    anchored: Instant,
    /// The next anchor, recorded before the first mark of this set.
    next_anchor: Event,
    anchors_with: Option<u32>,
    /// For copies and brackets.
    pair: (Event, Event),
    /// The last mark in the stream.
    last: Option<(u32, u32)>,
    /// The marks of the running capture, if there is one.
    pub(super) captured: Option<CapturedMarks>,
    stamper: Arc<Function>,
    ticker: Arc<Function>,
    /// `(SETS + 1, per_set)` of u64, if kernels take the times.
    noted: Buffer,
    /// The same, where the last stamp of a set hands them over.
    mailbox: Mailbox,
    /// The smallest step of `%globaltimer` seen so far.
    tick_ns: Option<u64>,
    /// A mark that the next kernel will make.
    pending: Option<(u32, u32)>,
    /// Whether marks wait for the next kernel: only while this executor issues its own steps, since each of these is
    /// followed by the next one at once, or by the end of the pass. Else a mark at the end of something would come late.
    pub(super) joins_kernels: bool,
}

#[derive(Debug)]
struct Set {
    events: Vec<Event>,
    /// Whether its marks are in the stream.
    is_made: bool,
}

impl Marks {
    pub(super) fn new(
        context: &Arc<Context>,
        stream: &Stream,
        per_set: u32,
        stamps: Stamps,
        kernels: &HashMap<&'static str, Kernel>,
    ) -> Result<Self, CudaError> {
        let of_stamps = stamps == Stamps::Inside;
        let sets = (0..=SETS).map(|_| {
            let n_events = if of_stamps { 0 } else { per_set };
            // All now, as creating an event takes longer than recording it.
            let events = (0..n_events).map(|_| Event::new(context)).collect::<Result<_, _>>()?;
            Ok(Set { events, is_made: false })
        });
        let sets = sets.collect::<Result<Vec<_>, CudaError>>()?;
        let room = if of_stamps { (SETS as usize + 1) * per_set as usize } else { 0 };
        let kernel = |name: &str| {
            let missing = || CudaError::NoKernel { kernel: name.to_owned() };
            kernels.get(name).map(|kernel| Arc::clone(&kernel.function)).ok_or_else(missing)
        };
        let noted = Buffer::new(context, 8 * room)?;
        stream.zero(&noted)?;
        let ticker = kernel("tick")?;
        let tick_ns = if of_stamps { tick(context, stream, &ticker)? } else { None };
        let marks = Self {
            stamps,
            per_set,
            sets,
            anchor: Event::new(context)?,
            anchor_ns: FIRST_ANCHOR_NS,
            anchored: Instant::now(),
            next_anchor: Event::new(context)?,
            anchors_with: None,
            pair: (Event::new(context)?, Event::new(context)?),
            last: None,
            captured: None,
            stamper: kernel("stamp")?,
            ticker,
            noted,
            mailbox: Mailbox::new(context, room)?,
            tick_ns,
            pending: None,
            joins_kernels: false,
        };
        marks.anchor.record(stream)?;
        Ok(marks)
    }

    /// Marks that fit a set; at least one.
    pub(super) fn per_set(&self) -> u32 {
        self.per_set
    }

    /// Two events, to time a copy with.
    pub(super) fn pair(&self) -> (&Event, &Event) {
        (&self.pair.0, &self.pair.1)
    }

    fn set(&mut self, set: u32) -> Result<&mut Set, CudaError> {
        let mark = u64::from(set) << 32;
        self.sets.get_mut(set as usize).ok_or(CudaError::Mark { mark })
    }

    /// The smallest step of `%globaltimer`, measured now.
    pub(super) fn tick(
        &self,
        context: &Arc<Context>,
        stream: &Stream,
    ) -> Result<Option<u64>, CudaError> {
        tick(context, stream, &self.ticker)
    }

    /// Begins a set: its marks are issued from now on, or by the next launch of a graph.
    pub(super) fn begin(&mut self, stream: &Stream, set: u32) -> Result<(), CudaError> {
        let begun = self.set(set)?;
        let is_in_flight = std::mem::replace(&mut begun.is_made, true);
        // Of a pass that was given up.
        self.pending = None;
        if self.stamps == Stamps::Inside {
            if is_in_flight {
                // Its kernels may still write there.
                self.pair.0.record(stream)?;
                self.pair.0.synchronize()?;
            }
            let first = set as usize * self.per_set as usize;
            self.mailbox.clear(first..first + self.per_set as usize);
        }
        if self.anchors_with == Some(set) {
            self.anchors_with = None;
        }
        if self.stamps == Stamps::Events
            && self.anchors_with.is_none()
            && self.anchored.elapsed() > ANCHOR_AGE
        {
            self.next_anchor.record(stream)?;
            self.anchored = Instant::now();
            self.anchors_with = Some(set);
        }
        Ok(())
    }

    /// Gives up a set: its marks won't come.
    pub(super) fn void(&mut self, set: u32) {
        if let Some(set) = self.sets.get_mut(set as usize) {
            set.is_made = false;
        }
    }

    pub(super) fn mark(&mut self, stream: &Stream, set: u32, mark: u32) -> Result<(), CudaError> {
        let fault = CudaError::Mark { mark: u64::from(set) << 32 | u64::from(mark) };
        if set > OWN_SET || mark >= self.per_set {
            return Err(fault);
        }
        match self.stamps {
            Stamps::Events => {
                let event = self.sets[set as usize].events.get(mark as usize).ok_or(fault)?;
                if self.captured.is_some() {
                    event.capture(stream)?;
                } else {
                    event.record(stream)?;
                }
            }
            Stamps::Inside => {
                // Nothing was launched since.
                self.flush(stream)?;
                self.pending = Some((set, mark));
                if !self.joins_kernels {
                    self.flush(stream)?;
                }
            }
        }
        match &mut self.captured {
            Some(captured) => {
                captured.set = Some(set);
                captured.n_marks += usize::from(self.stamps == Stamps::Events);
            }
            None => self.last = Some((set, mark)),
        }
        Ok(())
    }

    /// The number of a mark among those of all sets.
    fn slot(&self, set: u32, mark: u32) -> u64 {
        u64::from(set) * u64::from(self.per_set) + u64::from(mark)
    }

    /// Where in the device's memory the next kernel is to note when it begins, if a mark waits for one; else 0.
    pub(super) fn take_pending(&mut self) -> u64 {
        let pending = self.pending.take();
        pending.map_or(0, |(set, mark)| self.noted.address() + 8 * self.slot(set, mark))
    }

    /// Makes the mark that waits for a kernel, if there is one, by a kernel of its own, which hands over the marks of its
    /// set. Call it where the next kernel may be of somebody else, and before anybody waits for the mark.
    pub(super) fn flush(&mut self, stream: &Stream) -> Result<(), CudaError> {
        match self.pending.take() {
            Some((set, mark)) => self.stamp(stream, set, mark),
            None => Ok(()),
        }
    }

    fn stamp(&mut self, stream: &Stream, set: u32, mark: u32) -> Result<(), CudaError> {
        let row = 8 * self.slot(set, 0);
        let args = [
            Arg::Address(self.noted.address() + row),
            Arg::Address(self.mailbox.address() + row),
            Arg::U32(mark),
        ];
        stream.launch(&self.stamper, Launch::stamp(), &args)?;
        if let Some(captured) = &mut self.captured {
            captured.n_marks += 1;
            captured.kernels.push(stream.last_captured()?);
        }
        Ok(())
    }

    /// Waits for the last mark.
    fn wait(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.flush(stream)?;
        match self.last {
            Some((set, mark)) if self.stamps == Stamps::Events => {
                self.sets[set as usize].events[mark as usize].synchronize()
            }
            // A kernel can't be waited for without its stream.
            _ => {
                self.pair.0.record(stream)?;
                self.pair.0.synchronize()
            }
        }
    }

    pub(super) fn resolve(
        &mut self,
        stream: &Stream,
        set: u32,
        n_marks: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, CudaError> {
        let index = set as usize;
        let fault = CudaError::Mark { mark: u64::from(set) << 32 | u64::from(n_marks) };
        if n_marks == 0 {
            return Ok(true);
        }
        if index >= self.sets.len() || n_marks > self.per_set || !self.sets[index].is_made {
            return Err(fault);
        }
        self.flush(stream)?;
        match self.stamps {
            Stamps::Events => {
                // In order of the stream: when the last is there, all are.
                let last = &self.sets[index].events[n_marks as usize - 1];
                if wait {
                    last.synchronize()?;
                } else if !last.is_done()? {
                    return Ok(false);
                }
                if self.anchors_with == Some(set) {
                    // It lies before the set's marks, and after those of all resolved sets.
                    let since = nanos(self.next_anchor.since(&self.anchor)?);
                    self.anchor_ns = self.anchor_ns.wrapping_add_signed(since);
                    std::mem::swap(&mut self.anchor, &mut self.next_anchor);
                    self.anchors_with = None;
                }
                let events = &self.sets[index].events[..n_marks as usize];
                // Times out of order stay so; settling the pass detects them.
                let since = nanos(events[0].since(&self.anchor)?);
                let first = self.anchor_ns.wrapping_add_signed(since);
                ticks.push(first);
                // From the first mark and not from the one before, so that errors don't add up.
                for event in &events[1..] {
                    ticks.push(first.wrapping_add_signed(nanos(event.since(&events[0])?)));
                }
            }
            Stamps::Inside => {
                let first = self.slot(set, 0) as usize;
                let last = first + n_marks as usize - 1;
                if self.mailbox.read(last) == 0 {
                    if !wait {
                        return Ok(false);
                    }
                    self.pair.0.record(stream)?;
                    self.pair.0.synchronize()?;
                }
                self.sets[index].is_made = false;
                let times: Vec<u64> = (first..=last).map(|slot| self.mailbox.read(slot)).collect();
                if times.contains(&0) {
                    return Err(fault);
                }
                ticks.extend(times);
            }
        }
        Ok(true)
    }

    fn bracket(&mut self, stream: &Stream, host: &Clock) -> Result<Bracket, CudaError> {
        self.flush(stream)?;
        // Waits for earlier work, which isn't part of the bracket.
        self.pair.0.record(stream)?;
        self.pair.0.synchronize()?;
        let host_before_ns = host.now();
        match self.stamps {
            Stamps::Events => {
                self.pair.1.record(stream)?;
                self.pair.1.synchronize()?;
                let host_after_ns = host.now();
                let since = nanos(self.pair.1.since(&self.anchor)?);
                let device_ticks = self.anchor_ns.wrapping_add_signed(since);
                Ok(Bracket { host_before_ns, device_ticks, host_after_ns })
            }
            Stamps::Inside => {
                self.stamp(stream, OWN_SET, 0)?;
                self.pair.1.record(stream)?;
                self.pair.1.synchronize()?;
                let host_after_ns = host.now();
                let device_ticks = self.mailbox.read(self.slot(OWN_SET, 0) as usize);
                Ok(Bracket { host_before_ns, device_ticks, host_after_ns })
            }
        }
    }
}

/// A u64 from its low and high words.
fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The smallest step between consecutive readings of `%globaltimer`, in nanoseconds; `None` if it
/// stood still.
fn tick(
    context: &Arc<Context>,
    stream: &Stream,
    kernel: &Function,
) -> Result<Option<u64>, CudaError> {
    const READINGS: u32 = 64;
    let out = Buffer::new(context, 8 * READINGS as usize)?;
    stream.launch(kernel, Launch::one(), &[Arg::Address(out.address()), Arg::U32(READINGS)])?;
    let mut words = [0.0_f32; 2 * READINGS as usize];
    stream.read(&out, 0, &mut words)?;
    let readings: Vec<u64> =
        words.chunks_exact(2).map(|word| join(word[0].to_bits(), word[1].to_bits())).collect();
    let steps = readings.windows(2).filter(|pair| pair[0] > 0 && pair[1] > pair[0]);
    Ok(steps.map(|pair| pair[1] - pair[0]).min())
}

impl Device for Cuda<'_> {
    fn describe(&self) -> DeviceInfo {
        let version = self.context.driver_version;
        let resolution_ns = match self.marks.stamps {
            Stamps::Events => Some(EVENT_RESOLUTION_NS),
            Stamps::Inside => self.marks.tick_ns.map(|ns| ns as f64),
        };
        DeviceInfo {
            name: self.context.name.clone(),
            api: "cuda".to_owned(),
            driver: format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
            ticks: Ticks { ns_per_tick: 1.0, resolution_ns, valid_bits: 64 },
            streams: vec!["compute".to_owned()],
            sets: SETS,
            marks: self.marks.per_set,
        }
    }

    fn begin_set(&mut self, set: u32) -> Result<(), DeviceError> {
        self.on_device(|this| this.marks.begin(&this.stream, set)).map_err(CudaError::into_device)
    }

    fn mark(&mut self, _: StreamId, set: u32, mark: u32) -> Result<(), DeviceError> {
        self.on_device(|this| this.marks.mark(&this.stream, set, mark))
            .map_err(CudaError::into_device)
    }

    fn mark_cost(&mut self) -> Result<Option<MarkCost>, DeviceError> {
        if self.marks.stamps != Stamps::Inside {
            return Ok(None);
        }
        // Launches one by one differ by more than such a mark costs; replays of a graph don't.
        let cost = self.graph_cost(Grain::Kernel, MARK_QUADS).map_err(|error| match error {
            GpuError::Device(error) => error,
            error => CudaError::Pass { what: error.to_string() }.into_device(),
        })?;
        let more = cost.instrumented_ns as f64 - cost.plain_ns as f64;
        let device_ns = (more / cost.marks.max(1) as f64).max(0.0);
        Ok(Some(MarkCost { host_ns: 0.0, device_ns, marks: cost.marks as u32 }))
    }

    fn fill(&mut self, _: StreamId) -> Result<bool, DeviceError> {
        self.on_device(|this| {
            let len = this.model.config.dim as u32;
            // Between passes nobody reads them.
            let (sum, addend) =
                (this.operands.buffer(Operand::Y)?, this.operands.buffer(Operand::H)?);
            let args = [
                Arg::Address(sum.address()),
                Arg::Address(addend.address()),
                Arg::U32(len),
                Arg::Address(this.marks.take_pending()),
            ];
            let kernel = Arc::clone(&this.known("add")?.function);
            this.stream.launch(&kernel, Launch::elementwise(len), &args)?;
            Ok(true)
        })
        .map_err(CudaError::into_device)
    }

    fn wait(&mut self, _: StreamId) -> Result<(), DeviceError> {
        self.on_device(|this| this.marks.wait(&this.stream)).map_err(CudaError::into_device)
    }

    fn resolve(
        &mut self,
        set: u32,
        n_marks: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, DeviceError> {
        self.on_device(|this| this.marks.resolve(&this.stream, set, n_marks, wait, ticks))
            .map_err(CudaError::into_device)
    }

    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError> {
        self.on_device(|this| this.marks.bracket(&this.stream, host))
            .map_err(CudaError::into_device)
    }
}
