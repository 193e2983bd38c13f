//! A device that exists only in memory, with a clock whose readings are known in advance.

use std::collections::HashMap;

use brickscope_profile::stats::SplitMix64;
use brickscope_profile::{Bracket, Ticks};

use crate::clock::{Clock, MockClock};
use crate::device::error::DeviceError;
use crate::device::executor::{Device, DeviceInfo, StreamId};

/// A device with a virtual clock, for the tests of executors and of embedders.
///
/// The caller puts work of known duration into its streams. It runs as on a real device: in order, later than
/// it was issued, and in parallel with other streams. [`clock`](Self::clock) is the host's clock, which advances
/// when the host waits.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, Phase, SimulatedDevice, StreamId, Work};
///
/// let mut device = SimulatedDevice::new(1).with_issue(0);
/// let profiler = BrickProfiler::with_clock(device.clock());
/// profiler.enable();
/// let mut timer = profiler.device().timer(&mut device)?;
/// let stream = StreamId(0);
/// timer.begin_pass(&mut device, Phase::Decode, 1, 7)?;
/// for brick in [BrickId::RmsNorm, BrickId::QkvProjection] {
///     timer.brick(&mut device, stream, Some(0), brick, Work::elements(1))?;
///     device.launch(stream, 10_000);
/// }
/// timer.end_pass(&mut device)?;
/// timer.finish(&mut device)?;
///
/// let on_device = profiler.profile().on_device(0, 0).expect("there is one");
/// assert_eq!(on_device.passes[0].wall_ns, 20_000);
/// assert_eq!(on_device.passes[0].unattributed_ns, 0);
/// # Ok::<(), brickscope::DeviceError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedDevice {
    hand: MockClock,
    host: Clock,
    /// When each stream is done with its work, in true nanoseconds of the device.
    done_at: Vec<u64>,
    /// When each stream was marked last.
    marked_at: Vec<u64>,
    /// By set and number: when the mark is made, and the reading of the clock then.
    marks: HashMap<(u32, u32), (u64, u64)>,
    /// Nanoseconds of the host for each call.
    issue_ns: u64,
    /// Nanoseconds of the host and of the device for each mark.
    stamp_ns: (u64, u64),
    filler_ns: Option<u64>,
    tick_ns: u64,
    valid_bits: u32,
    /// How late a mark may be, and the random state that decides how late the next one is.
    jitter_ns: u64,
    random: SplitMix64,
    drift_ppm: f64,
    /// How far the device's clock is ahead of the host's.
    offset_ns: u64,
    sets: u32,
    n_marks: u32,
    n_waits: u64,
    is_lost: bool,
}

impl SimulatedDevice {
    /// A device with `streams` streams, whose clock counts nanoseconds from another zero than the host's.
    #[must_use]
    pub fn new(streams: u16) -> Self {
        let hand = MockClock::default();
        Self {
            host: hand.clock(),
            hand,
            done_at: vec![0; usize::from(streams.max(1))],
            marked_at: vec![0; usize::from(streams.max(1))],
            marks: HashMap::new(),
            issue_ns: 100,
            stamp_ns: (0, 0),
            filler_ns: None,
            tick_ns: 1,
            valid_bits: 64,
            jitter_ns: 0,
            random: SplitMix64(0),
            drift_ppm: 0.0,
            offset_ns: 5_000_000,
            sets: 2,
            n_marks: 4096,
            n_waits: 0,
            is_lost: false,
        }
    }

    /// Makes the device's clock advance in steps of this many nanoseconds.
    #[must_use]
    pub fn with_tick(mut self, nanos: u64) -> Self {
        self.tick_ns = nanos.max(1);
        self
    }

    /// Makes the device's clock run faster than the host's by this many parts per million.
    #[must_use]
    pub fn with_drift(mut self, ppm: f64) -> Self {
        self.drift_ppm = ppm;
        self
    }

    /// Makes each launch take this many nanoseconds of the host; the default is 100. A device that has
    /// nothing to do waits for it.
    #[must_use]
    pub fn with_issue(mut self, nanos: u64) -> Self {
        self.issue_ns = nanos;
        self
    }

    /// Makes each mark take this many nanoseconds of the host and of the device.
    #[must_use]
    pub fn with_stamp(mut self, host_ns: u64, device_ns: u64) -> Self {
        self.stamp_ns = (host_ns, device_ns);
        self
    }

    /// Adds [work to measure marks between](Device::fill), which takes this many nanoseconds of the device.
    #[must_use]
    pub fn with_filler(mut self, nanos: u64) -> Self {
        self.filler_ns = Some(nanos);
        self
    }

    /// Makes marks late by a random time of up to this many nanoseconds. Marks of a stream stay in order.
    #[must_use]
    pub fn with_jitter(mut self, nanos: u64, seed: u64) -> Self {
        (self.jitter_ns, self.random) = (nanos, SplitMix64(seed));
        self
    }

    /// Makes the device's clock wrap to 0 after this many bits.
    #[must_use]
    pub fn with_valid_bits(mut self, bits: u32) -> Self {
        self.valid_bits = bits.clamp(1, 64);
        self
    }

    /// Sets the number of marks in a set; the default is 4096.
    #[must_use]
    pub fn with_marks(mut self, marks: u32) -> Self {
        self.n_marks = marks;
        self
    }

    /// Sets the number of passes that can be in flight.
    #[must_use]
    pub fn with_sets(mut self, sets: u32) -> Self {
        self.sets = sets.max(1);
        self
    }

    /// The host's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.host.clone()
    }

    /// Puts work of this many nanoseconds into a stream. Returns when it truly begins and ends there, by the
    /// host's clock.
    ///
    /// # Panics
    ///
    /// If there is no such stream.
    pub fn launch(&mut self, stream: StreamId, nanos: u64) -> (u64, u64) {
        self.hand.advance(self.issue_ns);
        let done_at = &mut self.done_at[usize::from(stream.0)];
        let start = (*done_at).max(self.host.now());
        *done_at = start + nanos;
        (start, *done_at)
    }

    /// Makes a stream wait for the work that another one has so far.
    ///
    /// # Panics
    ///
    /// If there is no such stream.
    pub fn depend(&mut self, stream: StreamId, on: StreamId) {
        let until = self.done_at[usize::from(on.0)];
        let done_at = &mut self.done_at[usize::from(stream.0)];
        *done_at = (*done_at).max(until);
    }

    /// Makes the host busy with something else for this many nanoseconds.
    pub fn host_works(&mut self, nanos: u64) {
        self.hand.advance(nanos);
    }

    /// How often the host waited for the device.
    #[must_use]
    pub fn n_waits(&self) -> u64 {
        self.n_waits
    }

    /// Makes the device lost.
    pub fn lose(&mut self) {
        self.is_lost = true;
    }

    /// The reading of the device's clock at this time of the host's.
    fn reads(&self, host_ns: u64) -> u64 {
        let fast = host_ns as f64 * self.drift_ppm / 1e6;
        let now = (host_ns + self.offset_ns) as f64 + fast;
        let mask = u64::MAX >> (64 - self.valid_bits);
        (now as u64 / self.tick_ns * self.tick_ns) & mask
    }

    fn check(&self) -> Result<(), DeviceError> {
        if self.is_lost {
            return Err(DeviceError::Lost { reason: "it was removed".to_owned() });
        }
        Ok(())
    }

    fn wait_until(&mut self, host_ns: u64) {
        self.n_waits += 1;
        self.hand.advance(host_ns.saturating_sub(self.host.now()));
    }
}

impl Device for SimulatedDevice {
    fn describe(&self) -> DeviceInfo {
        DeviceInfo {
            name: "simulated device".to_owned(),
            api: "simulated".to_owned(),
            driver: env!("CARGO_PKG_VERSION").to_owned(),
            ticks: Ticks {
                ns_per_tick: 1.0,
                resolution_ns: Some(self.tick_ns as f64),
                valid_bits: self.valid_bits,
            },
            streams: (0..self.done_at.len()).map(|index| format!("stream {index}")).collect(),
            sets: self.sets,
            marks: self.n_marks,
        }
    }

    fn begin_set(&mut self, set: u32) -> Result<(), DeviceError> {
        self.marks.retain(|&(of, _), _| of != set);
        self.check()
    }

    fn mark(&mut self, stream: StreamId, set: u32, mark: u32) -> Result<(), DeviceError> {
        self.check()?;
        let (host_ns, device_ns) = self.stamp_ns;
        self.hand.advance(host_ns);
        let late = if self.jitter_ns == 0 { 0 } else { self.random.bits() % (self.jitter_ns + 1) };
        let done_at = &mut self.done_at[usize::from(stream.0)];
        *done_at = (*done_at).max(self.host.now()) + device_ns;
        let marked_at = &mut self.marked_at[usize::from(stream.0)];
        *marked_at = (*marked_at).max(*done_at + late);
        let at = *marked_at;
        self.marks.insert((set, mark), (at, self.reads(at)));
        Ok(())
    }

    fn fill(&mut self, stream: StreamId) -> Result<bool, DeviceError> {
        self.check()?;
        let Some(nanos) = self.filler_ns else { return Ok(false) };
        self.launch(stream, nanos);
        Ok(true)
    }

    fn wait(&mut self, stream: StreamId) -> Result<(), DeviceError> {
        self.check()?;
        self.wait_until(self.done_at[usize::from(stream.0)]);
        Ok(())
    }

    fn resolve(
        &mut self,
        set: u32,
        n_marks: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, DeviceError> {
        self.check()?;
        let found = (0..n_marks).map(|mark| self.marks.get(&(set, mark)).copied());
        let Some(found) = found.collect::<Option<Vec<_>>>() else {
            return Err(DeviceError::Failed {
                what: format!("read the marks of set {set}"),
                reason: "they were not all made".to_owned(),
            });
        };
        let last = found.iter().map(|&(at, _)| at).max().unwrap_or(0);
        if last > self.host.now() {
            if !wait {
                return Ok(false);
            }
            self.wait_until(last);
        }
        ticks.extend(found.iter().map(|&(_, ticks)| ticks));
        Ok(true)
    }

    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError> {
        self.check()?;
        let host_before_ns = host.now();
        self.hand.advance(self.issue_ns);
        let device_ticks = self.reads(self.host.now());
        self.hand.advance(self.issue_ns);
        Ok(Bracket { host_before_ns, device_ticks, host_after_ns: host.now() })
    }
}
