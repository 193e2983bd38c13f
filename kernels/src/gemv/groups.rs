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
//!   and TQ2_0 45 to 70 %. Q4_K's body has 36 loads; as a loop of eight it reaches 80. With each line prefetched into the
//!   first-level cache as well, Q4_K and Q6_K as loops, these reach 92 to 96 % (TQ2_0 82), and F16 gains 3 to 8 %; the
//!   others lose up to 5.
//!
//! `cargo bench -p brickscope-kernels --bench layouts` runs all in turns.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use crate::lanes::wide::{INTO_L1, INTO_L2, NOWHERE, family_and_model, maker};

/// Where loops over interleaved rows prefetch to.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Nowhere.
    Never,
    /// Into the second-level cache.
    IntoL2,
    /// Into the first-level cache.
    IntoL1,
    /// Into the first-level cache where that helps on Zen 5, else nowhere.
    IntoL1WhereItHelps,
}

/// The [`Prefetch`] of all loops; [`UNKNOWN`] until the processor was asked.
static PREFETCH: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = u8::MAX;

/// Where a loop prefetches to, if prefetching into the first-level cache `helps` it on Zen 5. The processor is asked once.
pub(crate) fn prefetched(helps: bool) -> u8 {
    const ALL: [Prefetch; 4] =
        [Prefetch::Never, Prefetch::IntoL2, Prefetch::IntoL1, Prefetch::IntoL1WhereItHelps];
    let known = ALL.get(usize::from(PREFETCH.load(Ordering::Relaxed)));
    let to = known.copied().unwrap_or_else(|| {
        let best = best_for(maker(), family_and_model());
        prefetch_interleaved(best);
        best
    });
    to.of_loop(helps)
}

/// Lets all loops over interleaved rows prefetch so, so that a benchmark can run each in turns. Results have the same bits.
#[doc(hidden)]
pub fn prefetch_interleaved(to: Prefetch) {
    PREFETCH.store(to as u8, Ordering::Relaxed);
}

impl Prefetch {
    const fn of_loop(self, helps: bool) -> u8 {
        match (self, helps) {
            (Self::IntoL2, _) => INTO_L2,
            (Self::IntoL1, _) | (Self::IntoL1WhereItHelps, true) => INTO_L1,
            (Self::Never, _) | (Self::IntoL1WhereItHelps, false) => NOWHERE,
        }
    }
}

/// What was fastest on processors of this kind, and never on others.
fn best_for(maker: [u8; 12], family_and_model: (u32, u32)) -> Prefetch {
    match (&maker, family_and_model) {
        (b"GenuineIntel", _) => Prefetch::IntoL2,
        // Other models of this family are Zen 6, on which nobody has measured it.
        (b"AuthenticAMD", (0x1a, 0x00..0x30 | 0x40..0x50 | 0x60..0x80)) => {
            Prefetch::IntoL1WhereItHelps
        }
        _ => Prefetch::Never,
    }
}

/// Keeps the compiler from reordering loads across this point: it doesn't know that prefetchers lose their stream
/// otherwise. Emits no instruction.
#[inline(always)]
pub(crate) fn in_order() {
    compiler_fence(Ordering::SeqCst);
}

/// The products of some rows of a matrix, where `$group` multiplies one group. `$helps`: whether prefetching
/// into the first-level cache makes its loop faster on Zen 5.
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
            use crate::gemv::groups::prefetched;
            use crate::interleave::GROUP_ROWS;
            use crate::lanes::wide::{INTO_L1, INTO_L2, NOWHERE, store_f32x16};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_prefetches_as_it_was_fastest() {
        let of = |maker: &[u8; 12], family, model| {
            let to = best_for(*maker, (family, model));
            [false, true].map(|helps| to.of_loop(helps))
        };
        assert_eq!(of(b"GenuineIntel", 6, 0xcf), [INTO_L2; 2]);
        assert_eq!(of(b"AuthenticAMD", 0x19, 0x11), [NOWHERE; 2], "Zen 4");
        for zen_5 in [0x02, 0x11, 0x24, 0x44, 0x60, 0x70] {
            assert_eq!(of(b"AuthenticAMD", 0x1a, zen_5), [NOWHERE, INTO_L1]);
        }
        assert_eq!(of(b"AuthenticAMD", 0x1a, 0x50), [NOWHERE; 2], "Zen 6");
        assert_eq!(of(b"Another Make", 0x1a, 0x02), [NOWHERE; 2]);
        assert_eq!([false, true].map(|helps| Prefetch::IntoL1.of_loop(helps)), [INTO_L1; 2]);
    }
}
