//! Whether the core was ours alone.
//!
//! On a shared machine another guest may have the other half of the core for seconds or minutes. Readings of the
//! counter take as long as ever then, as they wait for most of their time, and all else takes 1.3 to 1.6 times as
//! long: a ratio of the two would tell of the neighbour. So a loop that keeps the core as busy as it can be runs
//! before and after each batch. It is slow exactly then, and knows nothing of what is measured.

use std::hint::black_box;
use std::time::Instant;

/// How many times its least the loop may take beside a batch that counts.
pub(crate) const AT_MOST: f64 = 1.1;

const STEPS: u64 = 8192;

/// Runs the loop; returns its nanoseconds.
#[inline(never)]
pub(crate) fn time() -> f64 {
    let start = Instant::now();
    // Additions that don't wait for each other: as many at once as the core can do.
    let mut sums = [0_u64; 6];
    for step in 0..STEPS {
        for (sum, factor) in sums.iter_mut().zip(1..) {
            *sum = black_box(sum.wrapping_add(step ^ factor));
        }
    }
    black_box(sums);
    start.elapsed().as_nanos() as f64
}
