//! What all loops over interleaved rows share.
//!
//! Groups are read one after the other. The bytes of a group lie together, and the CPU's prefetchers follow them. How
//! far ahead depends on the maker: on Zen 4, loops that only load are as fast as one that only reads, measured in turns;
//! software prefetches made them slower, and reading two or four groups at the same time no faster. On Emerald Rapids,
//! loops that only load reach 50 to 73 % of what one that only reads does (Q8_0 90, F32 94), probably since operations
//! that wait for a line fill the scheduler before the loads of the next lines are issued. With each line prefetched into
//! the second-level cache, they reach 91 to 100 %. So loops are compiled with and without. On Zen 5 nobody has measured it
//! yet: `cargo bench -p brickscope-kernels --bench layouts` runs both in turns.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use crate::lanes::wide::is_intel;

/// Whether loops over interleaved rows prefetch: [`OFF`], [`ON`], or [`UNKNOWN`] until the processor was asked.
static PREFETCHED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Whether loops over interleaved rows prefetch. The processor is asked once.
pub(crate) fn are_prefetched() -> bool {
    match PREFETCHED.load(Ordering::Relaxed) {
        UNKNOWN => {
            let are = is_intel();
            prefetch_interleaved(are);
            are
        }
        of => of == ON,
    }
}

/// Lets all loops over interleaved rows prefetch, or none of them, so that a benchmark can run both in turns. Results have the
/// same bits.
pub fn prefetch_interleaved(are: bool) {
    PREFETCHED.store(if are { ON } else { OFF }, Ordering::Relaxed);
}

/// Keeps the compiler from reordering loads across this point: it doesn't know that prefetchers lose their stream
/// otherwise. Emits no instruction.
#[inline(always)]
pub(crate) fn in_order() {
    compiler_fence(Ordering::SeqCst);
}

/// The products of some rows of a matrix, where `$group` multiplies one group.
///
/// A macro, because a function that is passed in isn't inlined where the target feature would have to come from its
/// caller.
macro_rules! of_groups {
    ($vis:vis $name:ident, $x:ty, $group:ident) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        $vis fn $name(
            out: &mut [f32],
            w: &crate::Matrix,
            rows: std::ops::Range<usize>,
            x: &[$x],
        ) {
            use crate::interleave::GROUP_ROWS;
            use crate::lanes::wide::store_f32x16;

            let groups = rows.start / GROUP_ROWS..rows.end.div_ceil(GROUP_ROWS);
            let bytes = w.groups_bytes(groups.clone());
            let group_bytes = bytes.len() / groups.len().max(1);
            let ahead = crate::gemv::groups::are_prefetched();
            for (group, bytes) in groups.zip(bytes.chunks_exact(group_bytes.max(1))) {
                let sums = if ahead { $group::<true>(bytes, x) } else { $group::<false>(bytes, x) };
                let first = GROUP_ROWS * group;
                if rows.start <= first
                    && let Some(out) = out[first - rows.start..].first_chunk_mut()
                {
                    store_f32x16(out, sums);
                    continue;
                }
                // The requested rows of a group in which the range begins or ends.
                let mut all = [0.0; GROUP_ROWS];
                store_f32x16(&mut all, sums);
                let some = rows.start.max(first)..rows.end.min(first + GROUP_ROWS);
                out[some.start - rows.start..some.end - rows.start]
                    .copy_from_slice(&all[some.start - first..some.end - first]);
            }
        }
    };
}

pub(super) use of_groups;
