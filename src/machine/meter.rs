//! Times the loops that saturate a machine.

use std::hint::black_box;
use std::ops::Deref;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use brickscope_kernels::{INT8_DEPTH, Int8, Kernels, Place, ThreadPool};
use brickscope_profile::{Absent, CacheLevel, Move};

use crate::clock::Clock;
use crate::machine::available_memory;
use crate::machine::os::{self, Affinity};
use crate::sync::lock_unmodelled as lock;

/// The bytes of memory that each thread moves in one run: some milliseconds. With four times that, machines gave the same
/// rates within their noise, and what they name as L3 without having it to themselves was memory in half of the cases.
const MEMORY_BYTES: u64 = 32 << 20;
/// With fewer bytes per thread, caches would be measured instead of memory.
const LEAST_MEMORY_BYTES: u64 = 16 << 20;
/// Where data can't be taken out of the caches, memory is measured with this many times the size of the last level: the rule
/// of STREAM. Some systems don't name their last level: where there is enough, it is taken to be as large as this.
const TIMES_LAST_LEVEL: u64 = 4;
const LEAST_LAST_LEVEL: u64 = 64 << 20;
/// The bytes that a thread moves in one run if they stay in a cache: some hundred microseconds.
const CACHE_BYTES: u64 = 32 << 20;
/// Rounds of multiplications in one run: a third of a millisecond. The shorter a run, the likelier one is in
/// which no thread was taken off its core; but starting the threads takes some microseconds.
const ROUNDS: usize = 200_000;
/// Tiles of bytes in one run, for about the same time.
const TILES: usize = 1_000;

/// The numbers in a page: arrays begin at pages, so that no vector spans two cache lines.
const PAGE: usize = 4096 / size_of::<f64>();
/// The alignment of the arrays: a huge page.
const ALIGN: usize = 2 << 20;

/// The arrays of one thread.
struct Arrays {
    numbers: Vec<f64>,
    /// The index at which they begin.
    start: usize,
}

impl Arrays {
    /// `len` numbers, written to; `None` if there isn't enough memory.
    fn new(len: usize) -> Option<Self> {
        let mut numbers: Vec<f64> = Vec::new();
        let room = len + ALIGN / size_of::<f64>();
        numbers.try_reserve_exact(room).ok()?;
        os::advise_huge_pages(numbers.spare_capacity_mut());
        let start = numbers.as_ptr().align_offset(ALIGN).min(room - len);
        // Filled, so that each page exists and none is the shared page of zeros.
        numbers.resize(start + len, 1.0);
        Some(Self { numbers, start })
    }

    fn numbers(&mut self) -> &mut [f64] {
        &mut self.numbers[self.start..]
    }
}

/// Loops to time on the threads of one pool.
pub(super) struct Meter<'p> {
    kernels: Kernels,
    pool: OwnCpus<'p>,
    caches: Vec<CacheLevel>,
    memory: Result<Vec<Mutex<Arrays>>, Absent>,
    /// The numbers in the arrays of each thread.
    numbers: usize,
}

/// A pool whose threads are pinned to a CPU each, if it has as many threads as there are CPUs: under other
/// load the scheduler may put two threads of a pool on one CPU, and leave them there. With fewer threads
/// the scheduler chooses, since it knows which CPUs share a core.
pub(super) struct OwnCpus<'p> {
    pool: &'p ThreadPool,
    before: Option<Affinity>,
}

impl<'p> OwnCpus<'p> {
    pub(super) fn new(pool: &'p ThreadPool) -> Self {
        let before = Affinity::of_this_thread();
        let each = before.as_ref().map(Affinity::each).unwrap_or_default();
        if each.len() != pool.threads() {
            return Self { pool, before: None };
        }
        pool.run(&|thread| each[thread].apply());
        Self { pool, before }
    }
}

impl Deref for OwnCpus<'_> {
    type Target = ThreadPool;

    fn deref(&self) -> &ThreadPool {
        self.pool
    }
}

impl Drop for OwnCpus<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            self.pool.run(&|_| before.apply());
        }
    }
}

/// A loop's rate, in bytes or operations per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// The bytes that the threads touch together, again and again.
    pub(super) working_set: u64,
    pub(super) per_second: f64,
}

impl<'p> Meter<'p> {
    /// Allocates the memory that the loops move: 32 MiB per thread, but at most an eighth of free memory; more if caches are
    /// larger and can't be emptied. Each thread writes to its own part first, so that the memory lies near the thread.
    pub(super) fn new(kernels: Kernels, pool: &'p ThreadPool, caches: Vec<CacheLevel>) -> Self {
        let pool = OwnCpus::new(pool);
        let n_threads = pool.threads() as u64;
        let named = caches.last().map(|cache| cache.bytes_of(pool.threads() as u32));
        let last_level = if kernels.evicts() { 0 } else { named.unwrap_or_default() };
        let beyond = if kernels.evicts() { 0 } else { last_level.max(LEAST_LAST_LEVEL) };
        let beyond_caches = beyond.saturating_mul(TIMES_LAST_LEVEL);
        let wanted = (MEMORY_BYTES * n_threads).max(beyond_caches);
        let bytes = available_memory().map_or(wanted, |free| wanted.min(free / 8)) / n_threads;
        let least = LEAST_MEMORY_BYTES.max(last_level.saturating_mul(2) / n_threads);
        let numbers = bytes as usize / size_of::<f64>();
        let memory = if bytes < least { None } else { allocate(&pool, numbers) };
        let memory = memory.ok_or_else(|| Absent {
            reason: format!(
                "not measured: moving memory on {n_threads} threads, {} MB each, would take more than \
                 an eighth of free memory",
                least >> 20
            ),
        });
        Self { kernels, pool, caches, memory, numbers }
    }

    /// A meter without memory to move.
    pub(super) fn of_arithmetic(kernels: Kernels, pool: &'p ThreadPool) -> Self {
        let reason = "not measured: no memory was taken for it".to_owned();
        let pool = OwnCpus::new(pool);
        Self { kernels, pool, caches: Vec::new(), memory: Err(Absent { reason }), numbers: 0 }
    }

    /// A meter with as much memory as is moved in the largest cache.
    pub(super) fn of_caches(
        kernels: Kernels,
        pool: &'p ThreadPool,
        caches: Vec<CacheLevel>,
    ) -> Self {
        let meter = Self::of_arithmetic(kernels, pool);
        let threads = meter.threads();
        let shares = caches.iter().map(|cache| part_of(cache.bytes_per_thread(threads)));
        let bytes = shares.max().unwrap_or_default();
        let is_little =
            available_memory().is_none_or(|free| bytes <= free / 8 / u64::from(threads.max(1)));
        let numbers = bytes as usize / size_of::<f64>();
        let memory = is_little.then(|| allocate(&meter.pool, numbers)).flatten();
        let reason = "not measured: it would take more than an eighth of free memory".to_owned();
        Self { caches, memory: memory.ok_or(Absent { reason }), numbers, ..meter }
    }

    pub(super) fn caches(&self) -> &[CacheLevel] {
        &self.caches
    }

    fn threads(&self) -> u32 {
        self.pool.threads() as u32
    }

    /// Moves data in memory, for `nanos`.
    pub(super) fn memory(&self, how: Move, nanos: u64) -> Result<Rate, Absent> {
        self.stream(how, Place::Memory, u64::MAX, nanos)
    }

    /// The same, measured up to three times more while it is below `known`. The highest counts.
    pub(super) fn memory_of_at_least(
        &self,
        how: Move,
        nanos: u64,
        known: f64,
    ) -> Result<Rate, Absent> {
        let mut best = self.memory(how, nanos)?;
        for _ in 0..3 {
            if best.per_second >= known {
                break;
            }
            let again = self.memory(how, nanos)?;
            if again.per_second > best.per_second {
                best = again;
            }
        }
        Ok(best)
    }

    /// Moves data in a cache, at most half of which it fills, for `nanos`.
    pub(super) fn cache(&self, cache: CacheLevel, how: Move, nanos: u64) -> Result<Rate, Absent> {
        let share = cache.bytes_per_thread(self.threads());
        let inner = self.caches.iter().rfind(|inner| inner.level < cache.level);
        let inner = inner.map_or(0, |inner| inner.bytes_per_thread(self.threads()));
        // Most of that must fit into no level nearer to the core.
        if part_of(share) < 2 * inner {
            return Err(Absent {
                reason: format!(
                    "not measured: a thread's part of {}, {} KB, is too small next to the {} KB \
                     of the level below",
                    cache.name(),
                    share >> 10,
                    inner >> 10
                ),
            });
        }
        self.stream(how, Place::Cache, part_of(share), nanos)
    }

    fn stream(&self, how: Move, place: Place, most: u64, nanos: u64) -> Result<Rate, Absent> {
        let memory = self.memory.as_ref().map_err(Clone::clone)?;
        let numbers = self.numbers.min((most / size_of::<f64>() as u64) as usize);
        // Whole pages, so that all arrays begin at the same offset.
        let array = numbers / how.arrays() / PAGE * PAGE;
        if array == 0 {
            return Err(Absent {
                reason: format!(
                    "not measured: {most} bytes can't hold the arrays of {}",
                    how.name()
                ),
            });
        }
        let set = (array * how.arrays() * size_of::<f64>()) as u64;
        // All of memory's part in one run, however long that takes: with smaller pieces, caches of unknown
        // eviction policy may hold most of it, and they aren't emptied within a run.
        let times = match place {
            Place::Memory => 1,
            Place::Cache => CACHE_BYTES.div_ceil(set),
        };
        let kernels = self.kernels;
        // Which of these loops reads memory fastest depends on the machine, so all of them are tried.
        let (loops, nanos): (&[usize], u64) = match (how, place) {
            (Move::Read, Place::Memory) => (&[1, 2, 4], nanos / 2),
            _ => (&[1], nanos),
        };
        let run = |streams: usize| {
            self.pool.run(&|thread| {
                let mut arrays = lock(&memory[thread]);
                let mut arrays = arrays.numbers().chunks_exact_mut(array);
                let mut next = || arrays.next().unwrap_or_default();
                let (a, b, c) = (next(), next(), next());
                for _ in 0..times {
                    match how {
                        Move::Read => {
                            black_box(kernels.read_streams(black_box(a), streams));
                        }
                        Move::Write => kernels.write_stream(black_box(a), 1.0, place),
                        Move::Copy => kernels.copy_stream(black_box(a), black_box(b), place),
                        Move::Triad => {
                            kernels.triad_stream(
                                black_box(a),
                                black_box(b),
                                black_box(c),
                                0.5,
                                place,
                            );
                        }
                    }
                }
            });
        };
        // A triad and a copy write past the caches, but what they read may be in one.
        let evict = || {
            if place == Place::Memory && kernels.evicts() {
                self.pool.run(&|thread| kernels.evict(lock(&memory[thread]).numbers()));
            }
        };
        let times_taken = loops.iter().map(|&streams| best_of(nanos, &evict, &|| run(streams)));
        let ns = times_taken.min().unwrap_or(u64::MAX);
        let working_set = set * memory.len() as u64;
        Ok(Rate { working_set, per_second: per_second(working_set * times, ns) })
    }

    /// Single-precision multiplications and additions per second.
    pub(super) fn flops(&self, nanos: u64) -> f64 {
        let ns = best_of(nanos, &|| (), &|| {
            self.pool.run(&|_| {
                black_box(self.kernels.multiply_add(black_box(ROUNDS)));
            });
        });
        per_second(self.pool.threads() as u64 * (ROUNDS * Kernels::FLOPS_PER_ROUND) as u64, ns)
    }

    /// Multiplications and additions of bytes per second.
    pub(super) fn int8(&self, int8: Int8, nanos: u64) -> Result<f64, Absent> {
        if let Some(why) = self.kernels.int8_absent(int8) {
            return Err(Absent { reason: why.to_owned() });
        }
        let (rows, others) = ([[1; INT8_DEPTH]; 4], [[1; INT8_DEPTH]; 2]);
        let ns = best_of(nanos, &|| (), &|| {
            self.pool.run(&|_| {
                for _ in 0..TILES {
                    black_box(self.kernels.int8_tile(int8, black_box(&rows), &others));
                }
            });
        });
        Ok(per_second((self.pool.threads() * TILES * Kernels::INT8_OPS_PER_TILE) as u64, ns))
    }
}

/// What a thread moves of its share of a cache: half, since the other half is for whatever else runs; and no more than of
/// memory.
pub(super) fn part_of(share: u64) -> u64 {
    (share / 2).min(MEMORY_BYTES)
}

pub(super) fn per_second(amount: u64, ns: u64) -> f64 {
    amount as f64 * 1e9 / ns as f64
}

/// Arrays for each thread, written to by it; `None` if there isn't enough memory.
fn allocate(pool: &ThreadPool, numbers: usize) -> Option<Vec<Mutex<Arrays>>> {
    let memory: Vec<Mutex<Option<Arrays>>> =
        (0..pool.threads()).map(|_| Mutex::default()).collect();
    pool.run(&|thread| *lock(&memory[thread]) = Arrays::new(numbers));
    let each = memory.into_iter().map(|arrays| arrays.into_inner().ok().flatten());
    each.map(|arrays| arrays.map(Mutex::new)).collect()
}

/// The shortest time of `run` within `nanos`, in nanoseconds, over at least one run: other load only slows
/// it down. `prepare` comes before each, untimed.
///
/// Now and then the threads are left alone until they sleep. Two threads that share a core, since no other
/// was idle when they began, would stay there for as long as they are busy; a thread that wakes is given
/// an idle core.
pub(super) fn best_of(nanos: u64, prepare: &dyn Fn(), run: &dyn Fn()) -> u64 {
    const BUSY_NANOS: u64 = 10_000_000;
    const REST: Duration = Duration::from_millis(2);
    let clock = Clock::os();
    let (mut best, mut timed) = (u64::MAX, 0);
    let mut last_rest = 0;
    loop {
        prepare();
        let start = clock.now();
        run();
        let end = clock.now();
        best = best.min(end - start);
        timed += end - start;
        // Rests and preparations may take twice as long again.
        if timed >= nanos || end >= 3 * nanos {
            return best.max(1);
        }
        if end - last_rest > BUSY_NANOS {
            thread::sleep(REST);
            last_rest = clock.now();
        }
    }
}
