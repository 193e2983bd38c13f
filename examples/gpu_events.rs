//! How an engine with a GPU and events of its own has its passes timed by the GPU's clock: it implements [`Device`].
//!
//! Run with `cargo run --release --example gpu_events`. The GPU here is a queue with a clock of its own, whose events have
//! their times later, as those of CUDA, HIP, Metal and Vulkan do. Each method says what it would call there.

use std::time::{Duration, Instant};

use brickscope::device::{Bracket, Device, DeviceError, DeviceInfo, StreamId, Ticks};
use brickscope::{BrickId, BrickProfiler, Clock, Phase, Work};
use brickscope_analysis::Report;

/// How many passes may be in flight, and how many events each of them has.
const SETS: u32 = 2;
const EVENTS: u32 = 64;

/// A GPU with one stream.
struct Gpu {
    clock: Instant,
    /// When all is done that it was given, by its own clock in nanoseconds.
    done_at: u64,
    /// The times of events, by set.
    events: Vec<Vec<u64>>,
}

impl Gpu {
    fn new() -> Self {
        Self { clock: Instant::now(), done_at: 0, events: vec![Vec::new(); SETS as usize] }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Gives it a kernel, which runs when those before it are done.
    fn launch(&mut self, nanos: u64) {
        self.done_at = self.done_at.max(self.now()) + nanos;
    }

    fn set(&mut self, set: u32) -> &mut Vec<u64> {
        &mut self.events[set as usize]
    }
}

impl Device for Gpu {
    fn describe(&self) -> DeviceInfo {
        DeviceInfo {
            name: "example".to_owned(),
            api: "example".to_owned(),
            driver: "none".to_owned(),
            ticks: Ticks { ns_per_tick: 1.0, resolution_ns: Some(1.0), valid_bits: 64 },
            streams: vec!["compute".to_owned()],
            sets: SETS,
            marks: EVENTS,
        }
    }

    /// Vulkan would reset the queries of the set.
    fn begin_set(&mut self, set: u32) -> Result<(), DeviceError> {
        self.set(set).clear();
        Ok(())
    }

    /// `cudaEventRecord`, `vkCmdWriteTimestamp`: the event has its time when the stream comes there.
    fn mark(&mut self, _stream: StreamId, set: u32, _mark: u32) -> Result<(), DeviceError> {
        let at = self.done_at.max(self.now());
        self.set(set).push(at);
        Ok(())
    }

    /// `cudaStreamSynchronize`.
    fn wait(&mut self, _stream: StreamId) -> Result<(), DeviceError> {
        std::thread::sleep(Duration::from_nanos(self.done_at.saturating_sub(self.now())));
        Ok(())
    }

    /// `cudaEventQuery` and the times of the events; `vkGetQueryPoolResults`.
    fn resolve(
        &mut self,
        set: u32,
        n_marks: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, DeviceError> {
        let of_set = &self.events[set as usize];
        let times = of_set[..of_set.len().min(n_marks as usize)].to_vec();
        let last = times.last().copied().unwrap_or_default();
        while last > self.now() {
            if !wait {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_nanos(last.saturating_sub(self.now())));
        }
        *ticks = times;
        Ok(true)
    }

    /// The GPU's clock between two readings of the host's: `vkGetCalibratedTimestampsKHR`, or an event that is waited for.
    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError> {
        let host_before_ns = host.now();
        let device_ticks = self.now();
        Ok(Bracket { host_before_ns, device_ticks, host_after_ns: host.now() })
    }
}

fn main() -> Result<(), DeviceError> {
    let profiler = BrickProfiler::enabled();
    let mut gpu = Gpu::new();
    let mut timer = profiler.device().timer(&mut gpu)?;
    let stream = StreamId(0);
    for position in 0..20 {
        timer.begin_pass(&mut gpu, Phase::Decode, 1, position)?;
        for layer in 0..2 {
            for (brick, nanos) in
                [(BrickId::QkvProjection, 200_000), (BrickId::AttentionScore, 100_000)]
            {
                // Before the launch: the brick before it ends with the same event.
                timer.brick(&mut gpu, stream, Some(layer), brick, Work::elements(4096))?;
                gpu.launch(nanos);
            }
        }
        timer.end_pass(&mut gpu)?;
        // A token is chosen once the device is done.
        gpu.wait(stream)?;
    }
    timer.finish(&mut gpu)?;

    println!("{}", profiler.report());
    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));
    assert!(profiler.misuse().is_empty(), "{:?}", profiler.misuse());
    Ok(())
}
