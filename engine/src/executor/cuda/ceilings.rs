//! What a device does at best, measured by its own events.

use std::collections::HashMap;
use std::sync::Arc;

use brickscope::save::now_rfc3339;
use brickscope::{CacheCeiling, Ceilings, Numbers};

use super::CudaError;
use super::driver::{Arg, Buffer, Context, Event, Function, Module, Stream};
use super::kernels::{Launch, MODULES, PEAK};
use crate::executor::gpu::peak::best_rate;

/// Memory is measured with at least so many bytes, and with at least [`OF_CACHE`] times as many as the device's cache has.
const LEAST_BYTES: u64 = 256 << 20;
const OF_CACHE: u64 = 8;
const LEAST_OF_CACHE: u64 = 4;
/// At most this part of the free memory is taken.
const OF_FREE: u64 = 4;
/// The bytes of a read, and the reads of a thread in a round of `peak_read`.
const UNIT: u64 = 16;
const READS: u64 = 8;
/// Multiplications and additions, each counted as one, of a thread in a round of `peak_multiply_add`.
const FLOPS: f64 = 2.0 * 256.0;

/// Measures how fast device `ordinal` reads its memory and its L2 cache, and how fast it multiplies and adds floats with its
/// usual units (not its tensor cores): the fastest of some runs of loops that do nothing else, by events. Each
/// loop ends after 0.6 s, or three runs. Takes a quarter of the free memory at most.
///
/// # Errors
///
/// If there is no driver or device, or too little free memory.
pub fn measure_ceilings(ordinal: usize) -> Result<Ceilings, CudaError> {
    let meter = Meter::new(ordinal)?;
    let l2 = meter.context.l2_bytes;
    let read_bytes_per_second = meter.memory()?;
    // A quarter, since some devices keep what both halves of their cache read in each.
    let in_l2 = if l2 >= 1 << 20 { Some(meter.read(l2 / 4)?) } else { None };
    Ok(Ceilings {
        read_bytes_per_second,
        // A cache that is no faster than memory limits nothing.
        caches: in_l2
            .filter(|&rate| rate > read_bytes_per_second)
            .map(|rate| CacheCeiling {
                level: "L2".to_owned(),
                bytes: l2,
                read_bytes_per_second: rate,
            })
            .into_iter()
            .collect(),
        flops_per_second: meter.flops()?,
        numbers: Some(Numbers::F32),
        basis: format!("measured before the run: {}, cuda", meter.context.name),
        measured: Some(now_rfc3339()),
        ..Ceilings::default()
    })
}

/// Measures how fast device `ordinal` reads its memory, in bytes per second; see [`measure_ceilings`].
///
/// # Errors
///
/// As there.
pub fn measure_memory(ordinal: usize) -> Result<f64, CudaError> {
    Meter::new(ordinal)?.memory()
}

/// Loops on a device.
struct Meter {
    kernels: HashMap<&'static str, Function>,
    /// A word for each thread.
    out: Buffer,
    begin: Event,
    end: Event,
    stream: Stream,
    launch: Launch,
    context: Arc<Context>,
}

impl Meter {
    fn new(ordinal: usize) -> Result<Self, CudaError> {
        let context = Context::new(ordinal)?;
        let launch = Launch::peak(context.multiprocessors);
        let mut kernels = HashMap::new();
        for source in MODULES.into_iter().filter(|module| module.name == PEAK) {
            let module = Module::load(&context, source.path, source.ptx)?;
            for name in source.kernels() {
                kernels.insert(name, module.function(name)?);
            }
        }
        Ok(Self {
            kernels,
            out: Buffer::new(&context, 4 * threads(launch) as usize)?,
            begin: Event::new(&context)?,
            end: Event::new(&context)?,
            stream: Stream::new(&context)?,
            launch,
            context,
        })
    }

    /// Runs a kernel; the nanoseconds that it took.
    fn run(&self, kernel: &'static str, args: &[Arg]) -> Result<f64, CudaError> {
        let function = self
            .kernels
            .get(kernel)
            .ok_or_else(|| CudaError::NoKernel { kernel: kernel.to_owned() })?;
        // Nobody asks when it begins.
        let no_mark = Arg::Address(0);
        self.begin.record(&self.stream)?;
        self.stream.launch(function, self.launch, &[args, &[no_mark]].concat())?;
        self.end.record(&self.stream)?;
        self.end.synchronize()?;
        Ok(f64::from(self.end.since(&self.begin)?) * 1e6)
    }

    /// Bytes read per second from memory.
    fn memory(&self) -> Result<f64, CudaError> {
        let (free, _) = self.context.memory()?;
        let wanted = LEAST_BYTES.max(OF_CACHE * self.context.l2_bytes);
        let bytes = wanted.min(free / OF_FREE);
        // With less, much of it would come from the cache.
        if bytes < (LEAST_OF_CACHE * self.context.l2_bytes).max(1 << 20) {
            return Err(CudaError::Memory { asked: wanted, free });
        }
        self.read(bytes)
    }

    /// Bytes read per second from so many, over and over.
    fn read(&self, bytes: u64) -> Result<f64, CudaError> {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        let data = Buffer::new(&self.context, units as usize * UNIT as usize)?;
        let (len, of_data) = (Arg::U32(units), Arg::Address(data.address()));
        self.run("peak_fill", &[of_data, len])?;
        let out = Arg::Address(self.out.address());
        let each = f64::from(threads(self.launch)) * (READS * UNIT) as f64;
        // A run reads all of it, or else the next one finds a part in the cache.
        let all = (bytes as f64 / each).ceil() as u32;
        let rate =
            best_rate(each, all, |n| self.run("peak_read", &[out, of_data, len, Arg::U32(n)]))?;
        rate.ok_or_else(still)
    }

    /// Multiplications and additions of floats per second.
    fn flops(&self) -> Result<f64, CudaError> {
        let out = Arg::Address(self.out.address());
        let each = FLOPS * f64::from(threads(self.launch));
        let rate = best_rate(each, 1, |n| self.run("peak_multiply_add", &[out, Arg::U32(n)]))?;
        rate.ok_or_else(still)
    }
}

fn threads(launch: Launch) -> u32 {
    launch.grid[0] * launch.block[0]
}

fn still() -> CudaError {
    CudaError::Pass { what: "a loop that took no time by the device's events".to_owned() }
}
