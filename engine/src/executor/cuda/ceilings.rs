//! What a device does at best, measured by its own events.

use std::collections::HashMap;
use std::sync::Arc;

use brickscope::save::now_rfc3339;
use brickscope::{CacheCeiling, Ceilings, Numbers};

use super::CudaError;
use super::driver::{Arg, Buffer, Context, Event, Function, Module, Stream};
use super::kernels::{Launch, MODULES, PEAK};
use crate::executor::gpu::peak::best_rate;

/// Memory is measured with so many bytes, or with [`LEAST_OF_CACHE`] times as many as the device's cache has.
const MOST_BYTES: u64 = 8 << 30;
const LEAST_OF_CACHE: u64 = 4;
/// At most this part of the free memory is taken.
const OF_FREE: u64 = 4;
/// The rounds of `peak_read` in which memory is read once: more blocks would write more, and with fewer, many a place of
/// the device would be empty while the last ones run.
const SWEEP_ROUNDS: u32 = 8;
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
    let in_l2 = if l2 >= 1 << 20 { Some(meter.l2()?) } else { None };
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
    /// A word for each thread of `launch`.
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

    /// Runs a kernel a few times in a row; the nanoseconds that they took.
    fn run(
        &self,
        kernel: &'static str,
        launch: Launch,
        args: &[Arg],
        times: u32,
    ) -> Result<f64, CudaError> {
        let function = self
            .kernels
            .get(kernel)
            .ok_or_else(|| CudaError::NoKernel { kernel: kernel.to_owned() })?;
        // Nobody asks when it begins.
        let no_mark = Arg::Address(0);
        let args = [args, &[no_mark]].concat();
        self.begin.record(&self.stream)?;
        for _ in 0..times {
            self.stream.launch(function, launch, &args)?;
        }
        self.end.record(&self.stream)?;
        self.end.synchronize()?;
        Ok(f64::from(self.end.since(&self.begin)?) * 1e6)
    }

    /// Bytes read per second from memory: each launch reads each byte once. In a loop over the same bytes, blocks that are
    /// ahead leave behind in the cache what others read next, and an H200 seems to read 6.3 TB/s of its 4.9.
    fn memory(&self) -> Result<f64, CudaError> {
        let (free, _) = self.context.memory()?;
        let least = (LEAST_OF_CACHE * self.context.l2_bytes).max(1 << 20);
        let bytes = MOST_BYTES.max(least).min(free / OF_FREE);
        // With less, much of it would come from the cache.
        if bytes < least {
            return Err(CudaError::Memory { asked: OF_FREE * least, free });
        }
        let of = |bytes: u64| {
            let launch = Launch::peak_once(bytes / UNIT / READS / u64::from(SWEEP_ROUNDS));
            (launch, threads(launch) * SWEEP_ROUNDS * READS as u32)
        };
        let mut bytes = bytes;
        let data = loop {
            match self.filled(of(bytes).1) {
                // Another program may have taken it meanwhile.
                Err(_) if bytes / 2 >= least => bytes /= 2,
                data => break data?,
            }
        };
        let (launch, units) = of(bytes);
        let out = Buffer::new(&self.context, 4 * threads(launch) as usize)?;
        let args = [
            Arg::Address(out.address()),
            Arg::Address(data.address()),
            Arg::U32(units),
            Arg::U32(SWEEP_ROUNDS),
        ];
        let each = f64::from(units) * UNIT as f64;
        best_rate(each, 1, |n| self.run("peak_read", launch, &args, n))?.ok_or_else(still)
    }

    /// Bytes read per second from the cache: a quarter of it, over and over, since some devices keep what both halves of
    /// their cache read in each.
    fn l2(&self) -> Result<f64, CudaError> {
        let units = (self.context.l2_bytes / 4 / UNIT) as u32;
        let data = self.filled(units)?;
        let [out, data] = [&self.out, &data].map(|buffer| Arg::Address(buffer.address()));
        let each = f64::from(threads(self.launch)) * (READS * UNIT) as f64;
        let rate = best_rate(each, 1, |n| {
            let args = [out, data, Arg::U32(units), Arg::U32(n)];
            self.run("peak_read", self.launch, &args, 1)
        })?;
        rate.ok_or_else(still)
    }

    /// So many times [`UNIT`] bytes, with something in them.
    fn filled(&self, units: u32) -> Result<Buffer, CudaError> {
        let data = Buffer::new(&self.context, units as usize * UNIT as usize)?;
        self.run("peak_fill", self.launch, &[Arg::Address(data.address()), Arg::U32(units)], 1)?;
        Ok(data)
    }

    /// Multiplications and additions of floats per second.
    fn flops(&self) -> Result<f64, CudaError> {
        let out = Arg::Address(self.out.address());
        let each = FLOPS * f64::from(threads(self.launch));
        let rate = best_rate(each, 1, |n| {
            self.run("peak_multiply_add", self.launch, &[out, Arg::U32(n)], 1)
        })?;
        rate.ok_or_else(still)
    }
}

fn threads(launch: Launch) -> u32 {
    launch.grid[0] * launch.block[0]
}

fn still() -> CudaError {
    CudaError::Pass { what: "a loop that took no time by the device's events".to_owned() }
}
