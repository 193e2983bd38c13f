//! What all loops over interleaved rows share.
//!
//! Groups are read one after the other. The bytes of a group lie together, and the CPU's prefetchers follow them. How
//! far ahead depends on the processor, so loops are compiled without prefetches and with two kinds of them:
//!
//! - On Zen 4, loops that only load are as fast as one that only reads, measured in turns; software prefetches made them
//!   slower, and reading two or four groups at the same time no faster.
//! - On Emerald Rapids, loops that only load reach 50 to 73 % of what one that only reads does (Q8_0 90, F32 94), probably
//!   since operations that wait for a line fill the scheduler before the loads of the next lines are issued. With each
//!   line prefetched into the second-level cache, they reach 91 to 100 %.
//! - On Zen 5, most loops that only load reach 88 to 98 % of what one that only reads does, but those of Q4_K, Q5_K, Q6_K
//!   and TQ2_0 45 to 70 %: they have the most loads in their bodies. With each line prefetched into the first-level cache
//!   they reach 84 to 93 %, and F16 gains 3 %; the others lose up to 5 %.
//!
//! `cargo bench -p brickscope-kernels --bench layouts` runs all in turns.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use crate::lanes::wide::{is_intel, is_zen_5};

/// Where loops over interleaved rows prefetch to, as a constant that they are compiled with. This: nowhere.
pub(crate) const NOWHERE: u8 = 0;
/// Into the second-level cache.
pub(crate) const INTO_L2: u8 = 1;
/// Into the first-level cache.
pub(crate) const INTO_L1: u8 = 2;

/// Where loops over interleaved rows prefetch to.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Prefetch {
    /// Nowhere.
    Never = 1,
    /// Into the second-level cache.
    IntoL2,
    /// Into the first-level cache.
    IntoL1,
    /// Into the first-level cache where that helps on Zen 5, else nowhere.
    IntoL1WhereItHelps,
}

/// A [`Prefetch`], or 0 until the processor was asked.
static PREFETCH: AtomicU8 = AtomicU8::new(0);

/// Where a loop prefetches to, if prefetching into the first-level cache `helps` it on Zen 5. The processor is asked once.
pub(crate) fn prefetched(helps: bool) -> u8 {
    const NEVER: u8 = Prefetch::Never as u8;
    const L2: u8 = Prefetch::IntoL2 as u8;
    const L1: u8 = Prefetch::IntoL1 as u8;
    const WHERE_IT_HELPS: u8 = Prefetch::IntoL1WhereItHelps as u8;
    match PREFETCH.load(Ordering::Relaxed) {
        NEVER => NOWHERE,
        L2 => INTO_L2,
        L1 => INTO_L1,
        WHERE_IT_HELPS if helps => INTO_L1,
        WHERE_IT_HELPS => NOWHERE,
        _ => {
            prefetch_interleaved(if is_intel() {
                Prefetch::IntoL2
            } else if is_zen_5() {
                Prefetch::IntoL1WhereItHelps
            } else {
                Prefetch::Never
            });
            prefetched(helps)
        }
    }
}

/// Lets all loops over interleaved rows prefetch so, so that a benchmark can run each in turns. Results have the same bits.
pub fn prefetch_interleaved(to: Prefetch) {
    PREFETCH.store(to as u8, Ordering::Relaxed);
}

/// Keeps the compiler from reordering loads across this point: it doesn't know that prefetchers lose their stream
/// otherwise. Emits no instruction.
#[inline(always)]
pub(crate) fn in_order() {
    compiler_fence(Ordering::SeqCst);
}

/// The products of some rows of a matrix, where `$group` multiplies one group; `$helps` is of [`prefetched`].
///
/// A macro, because a function that is passed in isn't inlined where the target feature would have to come from its
/// caller.
macro_rules! of_groups {
    ($vis:vis $name:ident, $x:ty, $group:ident, $helps:literal) => {
        #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
        $vis fn $name(
            out: &mut [f32],
            w: &crate::Matrix,
            rows: std::ops::Range<usize>,
            x: &[$x],
        ) {
            use crate::gemv::groups::{INTO_L1, INTO_L2, NOWHERE, prefetched};
            use crate::interleave::GROUP_ROWS;
            use crate::lanes::wide::store_f32x16;

            let groups = rows.start / GROUP_ROWS..rows.end.div_ceil(GROUP_ROWS);
            let bytes = w.groups_bytes(groups.clone());
            let group_bytes = bytes.len() / groups.len().max(1);
            let to = prefetched($helps);
            for (group, bytes) in groups.zip(bytes.chunks_exact(group_bytes.max(1))) {
                let sums = match to {
                    INTO_L2 => $group::<INTO_L2>(bytes, x),
                    INTO_L1 => $group::<INTO_L1>(bytes, x),
                    _ => $group::<NOWHERE>(bytes, x),
                };
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
