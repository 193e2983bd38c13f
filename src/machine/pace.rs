//! The pace of our own kernels: how fast they multiply by weights that lie near the core, one token or several.

use std::hint::black_box;
use std::sync::Mutex;

use brickscope_kernels::{
    GROUP_ROWS, Inputs, Kernels, Matrix, MatrixError, QuantType, ThreadPool, interleave, quant,
};
use brickscope_profile::{Absent, CacheLevel, Ceilings, KernelPace};

use crate::machine::caches::caches;
use crate::machine::meter::{OwnCpus, best_of, part_of, per_second};
use crate::sync::lock_unmodelled as lock;

/// The farthest cache that a pace is measured in. What lies farther away may hold a kernel back.
const FARTHEST: u32 = 2;
/// The columns of the weights, if as many fit: few rows of real models are shorter.
const COLUMNS: [usize; 4] = [2048, 1024, 512, 256];
/// The fewest rows that are multiplied at once.
const LEAST_ROWS: usize = 4;
/// Several tokens: as many as long prompts' kernels need to be about as fast as with more.
const TOKENS: usize = 128;
/// The rows that several tokens are multiplied with: as many as kernels finish before the next ones.
const ROWS_OF_TOKENS: usize = 128;
/// More weights in a cache would only take longer.
const MOST_BYTES: u64 = 256 << 10;
/// The bytes in the nearest cache that a column's activation takes: as a float, and rounded.
const BYTES_PER_COLUMN: u64 = 8;
/// The same of each of several tokens: by then it was rounded, or is a float.
const BYTES_PER_TOKEN: u64 = 4;
/// One run of a kernel takes at least as long: waking the threads takes some microseconds.
const RUN_NANOS: u64 = 200_000;
/// No product is so fast that more are needed for that.
const MOST_PRODUCTS: u64 = 1 << 16;
/// The time for which runs are repeated; the best one counts.
const EACH_NANOS: u64 = 3_000_000;
/// If no two of so many readings agree, there is no pace.
const MOST_TRIES: usize = 6;

/// How fast the threads of `pool` take weights in with the kernels that multiply one vector, and 128, for each of these types:
/// rows as in a file and, where `kernels` read them faster, interleaved; for one vector in L1 and in L2, for several, which
/// fill L1 themselves, in L2. What can't be measured, or where no two readings [agree](Ceilings::AGREE), has its reason. Takes
/// some 10 ms for each.
#[must_use]
pub fn measure_paces(kernels: Kernels, pool: &ThreadPool, types: &[QuantType]) -> Vec<KernelPace> {
    paces_in(kernels, pool, types, &caches())
}

fn paces_in(
    kernels: Kernels,
    pool: &ThreadPool,
    types: &[QuantType],
    caches: &[CacheLevel],
) -> Vec<KernelPace> {
    let pool = OwnCpus::new(pool);
    let mut paces = Vec::new();
    for &kind in types {
        let layouts: &[bool] = if kernels.interleaves(kind) { &[false, true] } else { &[false] };
        for &is_interleaved in layouts {
            for tokens in [1, TOKENS] {
                let product = Product { kind, is_interleaved, tokens };
                paces.extend(paces_of(product, kernels, &pool, caches));
            }
        }
    }
    paces
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Product {
    kind: QuantType,
    is_interleaved: bool,
    tokens: usize,
}

impl Product {
    fn is_of_several(self) -> bool {
        self.tokens > 1
    }
}

fn paces_of(
    product: Product,
    kernels: Kernels,
    pool: &ThreadPool,
    caches: &[CacheLevel],
) -> Vec<KernelPace> {
    let Product { kind, is_interleaved, tokens } = product;
    let pace = |level: String, rate: Result<Pace, Absent>| KernelPace {
        kernel: kernels.matmul_name(kind, tokens).to_owned(),
        is_interleaved,
        tokens: product.is_of_several().then_some(tokens as u32),
        level,
        threads: pool.threads() as u32,
        working_set: rate.as_ref().ok().map(|rate| rate.working_set),
        bytes_per_second: rate.as_ref().ok().map(|rate| rate.per_second),
        absent: rate.err(),
    };
    let near: Vec<&CacheLevel> = caches.iter().filter(|of| of.level <= FARTHEST).collect();
    let Some(last) = near.len().checked_sub(1) else {
        let level = if product.is_of_several() { "L2" } else { "L1" };
        let reason = "not measured: the system doesn't say how large L1 and L2 are".to_owned();
        return vec![pace(level.to_owned(), Err(Absent { reason }))];
    };
    let used = if product.is_of_several() { &near[last..] } else { &near[..] };
    let paces = used.iter().map(|cache| {
        let inner = caches.iter().rfind(|inner| inner.level < cache.level);
        pace(cache.name(), in_cache(product, kernels, pool, cache, inner))
    });
    paces.collect()
}

/// A kernel's rate.
struct Pace {
    /// The bytes of weights that the threads read together.
    working_set: u64,
    per_second: f64,
}

/// With the weights in a cache, of which they and their activations fill a half at most.
fn in_cache(
    product: Product,
    kernels: Kernels,
    pool: &ThreadPool,
    cache: &CacheLevel,
    inner: Option<&CacheLevel>,
) -> Result<Pace, Absent> {
    let Product { kind, is_interleaved, tokens } = product;
    let threads = pool.threads() as u32;
    let room = part_of(cache.bytes_per_thread(threads));
    let held = inner.map_or(0, |inner| inner.bytes_per_thread(threads));
    let too_small = |next_to: &str| Absent {
        reason: format!(
            "not measured: half of a thread's part of {}, {} KB, is too small {next_to}",
            cache.name(),
            room >> 10
        ),
    };
    // Most of the weights must fit into no cache nearer to the core, unless they are used for several tokens: then they come
    // from there seldom.
    let least = if product.is_of_several() { 0 } else { held.saturating_mul(2) };
    let room = if product.is_of_several() { room } else { room.min(MOST_BYTES.max(least)) };
    if room < least {
        return Err(too_small("next to the cache before it"));
    }
    let (least_rows, most_rows, per_column) = match (product.is_of_several(), is_interleaved) {
        (true, _) => (ROWS_OF_TOKENS, ROWS_OF_TOKENS, BYTES_PER_TOKEN * tokens as u64),
        (false, true) => (GROUP_ROWS, usize::MAX, BYTES_PER_COLUMN),
        (false, false) => (LEAST_ROWS, usize::MAX, BYTES_PER_COLUMN),
    };
    let fit = COLUMNS.into_iter().find_map(|cols| {
        let row = kind.matrix_bytes(1, cols as u64)? + (size_of::<f32>() * tokens) as u64;
        let rows = room.checked_sub(per_column * cols as u64)? / row;
        let rows = usize::try_from(rows).ok()? / least_rows * least_rows;
        (rows > 0).then_some((rows.min(most_rows), cols))
    });
    let (rows, cols) = fit.ok_or_else(|| too_small("for some rows and their activations"))?;
    Weights::new(product, rows, cols).pace(kernels, pool)
}

/// The bytes of a matrix, with room to begin them at a cache line.
struct Weights {
    product: Product,
    rows: usize,
    cols: usize,
    bytes: Vec<u8>,
}

/// The length of a cache line.
const LINE: usize = 64;

/// What a thread has for itself.
struct Own {
    bytes: Vec<u8>,
    start: usize,
    out: Vec<f32>,
}

impl Weights {
    /// Rows that are all alike: the time doesn't depend on what they hold.
    fn new(product: Product, rows: usize, cols: usize) -> Self {
        let Product { kind, is_interleaved, .. } = product;
        let numbers = numbers(cols);
        let mut row = Vec::new();
        match kind {
            QuantType::I2_S => quant::quantize_i2_s(&numbers, &mut row),
            _ => quant::quantize_row(kind, &numbers, &mut row),
        }
        // A tensor of I2_S has a scale after all rows.
        let (codes, tail) = row.split_at(cols / kind.block_len() * kind.block_bytes());
        let mut bytes = codes.repeat(rows);
        if is_interleaved {
            interleave(kind, cols, &mut bytes);
        }
        bytes.extend_from_slice(tail);
        Self { product, rows, cols, bytes }
    }

    /// A copy for the calling thread.
    fn own(&self) -> Own {
        let mut bytes: Vec<u8> = Vec::with_capacity(self.bytes.len() + LINE);
        let start = bytes.as_ptr().align_offset(LINE).min(LINE);
        bytes.resize(start, 0);
        bytes.extend_from_slice(&self.bytes);
        Own { bytes, start, out: vec![0.0; self.rows * self.product.tokens] }
    }

    /// The rate at which all threads multiply them, each its own copy.
    fn pace(&self, kernels: Kernels, pool: &ThreadPool) -> Result<Pace, Absent> {
        let own: Vec<Mutex<Option<Own>>> = (0..pool.threads()).map(|_| Mutex::default()).collect();
        pool.run(&|thread| *lock(&own[thread]) = Some(self.own()));
        let tokens = self.product.tokens;
        let x = numbers(self.cols * tokens);
        let run = |times: u64| {
            pool.run(&|thread| {
                let mut own = lock(&own[thread]);
                let Some(Own { bytes, start, out }) = own.as_mut() else { return };
                let Ok(w) = self.matrix(&bytes[*start..]) else { return };
                // The matrices of a layer share what is prepared of their input.
                let mut inputs = Inputs::new(&x, tokens);
                for _ in 0..times {
                    kernels.gemm_inputs(black_box(&mut out[..]), black_box(w), &mut inputs);
                }
            });
        };
        // Otherwise nothing would be timed.
        let each = self.matrix(&self.bytes).map(|w| w.n_bytes() as u64);
        let each = each.map_err(|why| Absent { reason: format!("not measured: {why}") })?;
        let mut times = 1;
        while times < MOST_PRODUCTS && best_of(1, &|| (), &|| run(times)) < RUN_NANOS {
            times *= 2;
        }
        let working_set = each * pool.threads() as u64;
        let rate =
            agreed(|| per_second(working_set * times, best_of(EACH_NANOS, &|| (), &|| run(times))));
        let reason = format!(
            "not measured: no two of {MOST_TRIES} readings agree, so others likely disturbed them"
        );
        let per_second = rate.ok_or(Absent { reason })?;
        Ok(Pace { working_set, per_second })
    }

    fn matrix<'b>(&self, bytes: &'b [u8]) -> Result<Matrix<'b>, MatrixError> {
        let Self { product: Product { kind, is_interleaved, .. }, rows, cols, .. } = *self;
        match is_interleaved {
            true => Matrix::interleaved(kind, rows, cols, bytes),
            false => Matrix::new(kind, rows, cols, bytes),
        }
    }
}

/// Numbers of both signs, none of which is so small that it is slow.
fn numbers(n: usize) -> Vec<f32> {
    [-0.75, 0.5, 1.0, -0.25, 0.75, -1.0, 0.25].into_iter().cycle().take(n).collect()
}

/// The highest of some readings, once another one agrees with it. `None` if no two of [`MOST_TRIES`] do.
fn agreed(mut read: impl FnMut() -> f64) -> Option<f64> {
    let mut rates: Vec<f64> = Vec::new();
    while rates.len() < MOST_TRIES {
        rates.push(read());
        let highest = rates.iter().copied().fold(0.0, f64::max);
        let agree = |rate: &&f64| **rate >= (1.0 - Ceilings::AGREE) * highest;
        if highest > 0.0 && rates.iter().filter(agree).count() >= 2 {
            return Some(highest);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use brickscope_kernels::Backend;

    use super::*;

    fn caches() -> [CacheLevel; 3] {
        [(1, 32 << 10), (2, 512 << 10), (3, 8 << 20)].map(|(level, bytes)| CacheLevel {
            level,
            bytes,
            shared_by: 1,
        })
    }

    #[test]
    fn a_pace_is_what_two_readings_agree_on() {
        let of = |rates: &[f64]| {
            let mut next = rates.iter().copied().cycle();
            agreed(|| next.next().unwrap_or(0.0))
        };
        assert_eq!(of(&[26.0]), Some(26.0));
        // Somebody disturbed the first ones.
        assert_eq!(of(&[9.0, 26.0, 14.0, 25.5]), Some(26.0));
        // The highest is alone.
        assert_eq!(of(&[9.0, 60.0, 9.1, 30.0, 20.0, 14.0]), None);
        assert_eq!(of(&[0.0]), None);
        assert_eq!(of(&[f64::NAN]), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it measures")]
    fn each_kernel_has_a_pace_or_the_reason_why_not() {
        let kernels = Kernels::best();
        let pool = ThreadPool::new(NonZeroUsize::MIN).expect("a thread");
        let types = [QuantType::Q8_0, QuantType::I2_S];
        let paces = paces_in(kernels, &pool, &types, &caches());
        let layouts = types.map(|kind| if kernels.interleaves(kind) { 2 } else { 1 });
        // Of one token in L1 and in L2, of several in L2.
        assert_eq!(paces.len(), 3 * layouts.iter().sum::<usize>());
        for of in &paces {
            let operation = if of.tokens.is_some() { "gemm_" } else { "gemv_" };
            assert!(of.kernel.starts_with(operation) && of.threads == 1, "{of:?}");
            assert!(of.tokens.is_none() || of.level == "L2", "{of:?}");
            match (of.bytes_per_second, &of.absent) {
                (Some(rate), None) => {
                    assert!(Ceilings::is_rate(rate), "{of:?}");
                    let most = if of.level == "L1" { 16 << 10 } else { 256 << 10 };
                    assert!(of.working_set.is_some_and(|set| (1..=most).contains(&set)), "{of:?}");
                }
                // On a busy machine.
                (None, Some(Absent { reason })) => assert!(reason.contains("agree"), "{of:?}"),
                _ => panic!("{of:?}"),
            }
        }
    }

    #[test]
    fn a_cache_that_holds_too_little_or_that_nobody_names_has_a_reason() {
        let kernels = Kernels::new(Backend::Scalar).expect("it runs everywhere");
        let pool = ThreadPool::new(NonZeroUsize::MIN).expect("a thread");
        let small = CacheLevel { level: 1, bytes: 4 << 10, shared_by: 1 };
        // Some virtual machines name the last level alone.
        let far = CacheLevel { level: 3, bytes: 8 << 20, shared_by: 2 };
        for (caches, why) in
            [(&[][..], "how large"), (&[far][..], "how large"), (&[small][..], "too small")]
        {
            let paces = paces_in(kernels, &pool, &[QuantType::F32], caches);
            let [of, of_several] = &paces[..] else { panic!("{paces:?}") };
            assert_eq!(of.name(), "gemv_f32_scalar from L1");
            assert!(of_several.name().starts_with("gemm_f32_scalar of 128 tokens from L"));
            for of in [of, of_several] {
                assert_eq!(of.bytes_per_second, None);
                assert!(of.absent.as_ref().is_some_and(|of| of.reason.contains(why)), "{of:?}");
            }
        }
    }
}
