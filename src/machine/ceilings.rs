//! Measures the peaks of the machine, with timed loops that do nothing else.

use std::num::NonZeroUsize;

use brickscope_kernels::{Backend, Int8, Kernels, QuantType, ThreadPool};
use brickscope_profile::{
    Absent, Bandwidth, CacheCeiling, CacheLevel, Ceilings, Move, Numbers, Peak, Survey, save,
};

use crate::machine::caches::{self, caches};
use crate::machine::meter::Meter;
use crate::machine::pace::measure_paces;

/// The time for which moving memory, or multiplying, is repeated; the best run counts.
const NANOS: u64 = 100_000_000;
/// The same for data in a cache, where one run takes less than a millisecond.
const CACHE_NANOS: u64 = 40_000_000;

/// Measures what the threads of `pool` reach together with `kernels`. Takes most of a second, and
/// 32 MiB of memory per thread, but at most an eighth of free memory; more if caches are larger and the
/// processor can't empty them.
///
/// # Errors
///
/// The reason, if there isn't enough memory.
pub fn measure_ceilings(kernels: Kernels, pool: &ThreadPool) -> Result<Ceilings, Absent> {
    ceilings_by(kernels, &Meter::new(kernels, pool, caches()), pool.threads() as u32)
}

/// Measures what this many threads of this process reach together with the best kernels for this processor. Takes most of a
/// second; see [`measure_ceilings`].
///
/// Products of some formats multiply bytes, which processors do faster: [`Ceilings::of_int8_products`].
///
/// ```
/// use brickscope::machine::ceilings_of_threads;
///
/// let ceilings = ceilings_of_threads(1).expect("one thread and some memory");
/// assert!(ceilings.read_bytes_per_second > 0.0 && ceilings.flops_per_second > 0.0);
/// assert!(ceilings_of_threads(0).is_err());
/// ```
///
/// # Errors
///
/// The reason, if `threads` is 0, if they can't be started, or if there isn't enough memory.
pub fn ceilings_of_threads(threads: usize) -> Result<Ceilings, Absent> {
    let pool = NonZeroUsize::new(threads)
        .ok_or("there are no threads to measure with".to_owned())
        .and_then(|n| ThreadPool::new(n).map_err(|why| format!("{n} threads: {why}")))
        .map_err(|reason| Absent { reason })?;
    measure_ceilings(Kernels::best(), &pool)
}

/// Bytes that the threads of `pool` read from memory per second: the most of a few short measurements, of which two
/// [agree](Ceilings::AGREE) if any two of six did. Takes 0.1 to 0.3 s, and memory as [`measure_ceilings`].
///
/// # Errors
///
/// The reason, if there isn't enough memory.
pub fn measure_memory(kernels: Kernels, pool: &ThreadPool) -> Result<f64, Absent> {
    const EACH_NANOS: u64 = 24_000_000;
    const MOST_TRIES: usize = 6;
    let meter = Meter::new(kernels, pool, caches());
    let mut rates = Vec::new();
    while rates.len() < MOST_TRIES {
        rates.push(meter.memory(Move::Read, EACH_NANOS)?.per_second);
        let highest = rates.iter().copied().fold(0.0, f64::max);
        let agree = |rate: &&f64| **rate >= (1.0 - Ceilings::AGREE) * highest;
        if rates.iter().filter(agree).count() >= 2 {
            break;
        }
    }
    let reason = "memory wasn't measured: no reading of it is a number".to_owned();
    Ceilings::confirmed(rates).filter(|&rate| rate > 0.0).ok_or(Absent { reason })
}

/// What the threads of `pool` reach once more, each for some 20 ms: multiplications and additions per second as `f32` and
/// `int8`, and bytes per second of each level of cache, by its name, up to the smallest that holds `bytes`. What can't be
/// measured is left out.
#[must_use]
pub fn measure_limits(kernels: Kernels, pool: &ThreadPool, bytes: u64) -> Vec<(String, f64)> {
    const EACH_NANOS: u64 = 20_000_000;
    let mut caches = caches();
    if let Some(holds) = caches.iter().position(|cache| cache.bytes_per_thread(1) >= bytes) {
        caches.truncate(holds + 1);
    }
    let meter = Meter::of_caches(kernels, pool, caches);
    let mut rates = vec![("f32".to_owned(), meter.flops(EACH_NANOS))];
    let int8 = multiplied(kernels).and_then(|int8| meter.int8(int8, EACH_NANOS).ok());
    rates.extend(int8.map(|rate| ("int8".to_owned(), rate)));
    let levels = meter.caches().iter();
    rates.extend(levels.filter_map(|&cache| {
        let rate = meter.cache(cache, Move::Read, EACH_NANOS).ok()?;
        Some((cache.name(), rate.per_second))
    }));
    rates
}

fn ceilings_by(kernels: Kernels, meter: &Meter, threads: u32) -> Result<Ceilings, Absent> {
    let memory = meter.memory(Move::Read, NANOS)?;
    // More threads than CPUs have no more caches.
    let cpus = std::thread::available_parallelism().map_or(threads, |n| n.get() as u32);
    let busy = threads.min(cpus);
    let caches = meter.caches().iter().filter_map(|&cache| {
        let rate = meter.cache(cache, Move::Read, CACHE_NANOS).ok()?;
        Some(CacheCeiling {
            level: cache.name(),
            bytes: cache.bytes_of(busy),
            read_bytes_per_second: rate.per_second,
        })
    });
    Ok(Ceilings {
        read_bytes_per_second: memory.per_second,
        caches: caches.collect(),
        flops_per_second: meter.flops(NANOS),
        int8_ops_per_second: multiplied(kernels).and_then(|int8| meter.int8(int8, NANOS).ok()),
        numbers: Some(Numbers::F32),
        basis: Ceilings::basis("measured before the run", threads, kernels.backend().name()),
        measured: Some(save::now_rfc3339()),
        ..Ceilings::default()
    })
}

/// How products of these kernels multiply bytes, if they do.
fn multiplied(kernels: Kernels) -> Option<Int8> {
    kernels.rounds_activations(QuantType::Q8_0, 1).then_some(Int8::Vnni)
}

/// The name of memory among the levels of a survey.
const MEMORY: &str = "memory";

/// The numbers of threads on which a survey's loops run: 1, 2, 4, … and `most`.
#[must_use]
pub fn survey_thread_counts(most: NonZeroUsize) -> Vec<NonZeroUsize> {
    let below = (0..usize::BITS).map(|bit| 1 << bit).take_while(|&n| n < most.get());
    below.filter_map(NonZeroUsize::new).chain([most]).collect()
}

/// The number of rates that [`measure_survey`] measures, each of which it reports.
#[must_use]
pub fn survey_steps(most: NonZeroUsize, caches: usize) -> usize {
    let each = (caches + 1) * Move::ALL.len() + BACKENDS.len() * (1 + Int8::ALL.len());
    let counts = survey_thread_counts(most);
    let with_paces = counts.iter().filter(|&&threads| has_paces(threads, most)).count();
    counts.len() * each + with_paces * BACKENDS.len() * QuantType::ALL.len()
}

/// Kernels are slow enough to be measured on one thread and on all only.
fn has_paces(threads: NonZeroUsize, most: NonZeroUsize) -> bool {
    threads.get() == 1 || threads == most
}

/// Measures everything on 1, 2, 4, … and `most` threads, calling `step` after each rate. Takes
/// some two seconds for each number of threads, some more for kernels on one thread and on all, and
/// memory as [`measure_ceilings`].
///
/// # Errors
///
/// If the system can't start that many threads.
pub fn measure_survey(most: NonZeroUsize, step: &mut dyn FnMut()) -> std::io::Result<Survey> {
    let kernels = Kernels::best();
    let caches = caches::caches();
    let mut survey = Survey {
        measured: save::now_rfc3339(),
        backend: kernels.backend().name().to_owned(),
        caches: caches.clone(),
        bandwidth: Vec::new(),
        peaks: Vec::new(),
        paces: Vec::new(),
    };
    for threads in survey_thread_counts(most) {
        let pool = ThreadPool::new(threads)?;
        let meter = Meter::new(kernels, &pool, caches.clone());
        let n = threads.get() as u32;
        let places = caches.iter().map(Some).chain([None]);
        for (place, how) in places.flat_map(|place| Move::ALL.map(|how| (place, how))) {
            let rate = match place {
                Some(&cache) => meter.cache(cache, how, CACHE_NANOS),
                // More threads have no less of memory. If they seem to, it was slower just then.
                None => {
                    let fewer =
                        survey.bandwidth.iter().filter(|row| row.level == MEMORY && row.how == how);
                    let known = fewer.filter_map(|row| row.bytes_per_second).fold(0.0, f64::max);
                    meter.memory_of_at_least(how, NANOS, known)
                }
            };
            survey.bandwidth.push(Bandwidth {
                level: place.map_or(MEMORY.to_owned(), CacheLevel::name),
                how,
                threads: n,
                working_set: rate.as_ref().ok().map(|rate| rate.working_set),
                bytes_per_second: rate.as_ref().ok().map(|rate| rate.per_second),
                absent: rate.err(),
            });
            step();
        }
        for &backend in BACKENDS {
            survey.peaks.extend(peaks(backend, &pool, step));
        }
        for &backend in BACKENDS.iter().filter(|_| has_paces(threads, most)) {
            let kernels = Kernels::new(backend).ok();
            for kind in QuantType::ALL {
                // Why there are none is among the peaks.
                if let Some(kernels) = kernels {
                    survey.paces.extend(measure_paces(kernels, &pool, &[kind]));
                }
                step();
            }
        }
    }
    Ok(survey)
}

/// The backends that a CPU of this architecture may have.
const BACKENDS: &[Backend] = if cfg!(target_arch = "x86_64") {
    &[Backend::Scalar, Backend::Avx2, Backend::Avx512]
} else if cfg!(target_arch = "aarch64") {
    &[Backend::Scalar, Backend::Neon]
} else {
    &[Backend::Scalar]
};

/// The peaks of one backend on the threads of `pool`.
fn peaks(backend: Backend, pool: &ThreadPool, step: &mut dyn FnMut()) -> Vec<Peak> {
    let threads = pool.threads() as u32;
    let peak = |numbers: &str, instructions: &str, is_used, rate: Result<f64, Absent>| Peak {
        numbers: numbers.to_owned(),
        backend: backend.name().to_owned(),
        instructions: instructions.to_owned(),
        is_used,
        threads,
        ops_per_second: rate.as_ref().ok().copied(),
        absent: rate.err(),
    };
    let kernels = match Kernels::new(backend) {
        Ok(kernels) => kernels,
        Err(why) => {
            (0..=Int8::ALL.len()).for_each(|_| step());
            let why = Err(Absent { reason: why.to_string() });
            return vec![peak("f32", "", false, why.clone()), peak("int8", "", false, why)];
        }
    };
    let meter = Meter::of_arithmetic(kernels, pool);
    let fused = if backend == Backend::Scalar { "multiply, add" } else { "fused multiply-add" };
    let mut peaks = vec![peak("f32", fused, true, Ok(meter.flops(NANOS)))];
    step();
    for int8 in Int8::ALL {
        match meter.int8(int8, NANOS) {
            // One line for a backend without any of these loops.
            Err(why) if matches!(backend, Backend::Scalar | Backend::Neon) => {
                if int8 == Int8::ALL[0] {
                    peaks.push(peak("int8", "", false, Err(why)));
                }
            }
            rate => {
                let is_used = multiplied(kernels) == Some(int8);
                peaks.push(peak("int8", int8.name(), is_used, rate));
            }
        }
        step();
    }
    peaks
}
