//! Dot products of 8-bit integers: the highest rate a CPU reaches with 8-bit weights and activations.

use crate::kernels::Kernels;

/// Bytes in each row of [`Kernels::int8_tile`]. Its six rows fit in an L1 cache of 32 KB.
pub const INT8_DEPTH: usize = 4096;
const ROWS: usize = 4;
const OTHERS: usize = 2;

/// Instructions that multiply unsigned with signed bytes and add up the products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Int8 {
    /// AVX2: `vpmaddubsw`, `vpmaddwd` and `vpaddd`.
    Maddubs,
    /// AVX-512 VNNI: `vpdpbusd` alone, on vectors of 512 bits in the AVX-512 kernels, otherwise of 256 bits.
    Vnni,
}

impl Int8 {
    /// Both variants.
    pub const ALL: [Self; 2] = [Self::Maddubs, Self::Vnni];

    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Maddubs => "maddubs, madd, add",
            Self::Vnni => "vpdpbusd (VNNI)",
        }
    }
}

impl Kernels {
    /// The dot products of four rows with two others. `None` if these kernels have no such loop, or this CPU lacks the
    /// instructions: [`int8_absent`](Self::int8_absent) says why.
    ///
    /// [`Int8::Maddubs`] adds pairs of products in 16 bits, so `rows` above 127 may saturate.
    pub fn int8_tile(
        self,
        int8: Int8,
        rows: &[[u8; INT8_DEPTH]; ROWS],
        others: &[[i8; INT8_DEPTH]; OTHERS],
    ) -> Option<[[i32; OTHERS]; ROWS]> {
        if self.int8_absent(int8).is_some() {
            return None;
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: these kernels may use AVX2, or the line above would have found a reason; it also found that the CPU has
        // the other loop's instructions.
        #[allow(unsafe_code)]
        return unsafe {
            match int8 {
                Int8::Maddubs => Some(x86::maddubs(rows, others)),
                Int8::Vnni if self.has_avx512() => Some(x86::vnni_wide(rows, others)),
                Int8::Vnni => Some(x86::vnni(rows, others)),
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (rows, others);
            None
        }
    }

    /// Why [`int8_tile`](Self::int8_tile) returns `None`, if it does.
    pub fn int8_absent(self, int8: Int8) -> Option<&'static str> {
        #[cfg(target_arch = "x86_64")]
        if self.has_eight_lanes() {
            let has_vnni = is_x86_feature_detected!("avx512vnni")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512f");
            return match int8 {
                Int8::Vnni if !has_vnni => Some("this CPU has no AVX-512 VNNI"),
                _ => None,
            };
        }
        let _ = int8;
        Some("no int8 loop is written for this backend")
    }

    /// Multiplications and additions of one [`int8_tile`](Self::int8_tile).
    pub const INT8_OPS_PER_TILE: usize = 2 * ROWS * OTHERS * INT8_DEPTH;
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::*;

    use super::{INT8_DEPTH, OTHERS, ROWS};

    /// The tile with `$step` as its inner operation on an accumulator, unsigned bytes and signed bytes.
    macro_rules! tile {
        ($name:ident, $features:literal, $step:expr) => {
            tile!(
                $name,
                32,
                _mm256_setzero_si256,
                _mm256_loadu_si256,
                _mm256_storeu_si256,
                $features,
                $step
            );
        };
        ($name:ident, $bytes:literal, $zero:ident, $load:ident, $store:ident, $features:literal, $step:expr) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name(
                rows: &[[u8; INT8_DEPTH]; ROWS],
                others: &[[i8; INT8_DEPTH]; OTHERS],
            ) -> [[i32; OTHERS]; ROWS] {
                let mut sums = [[$zero(); OTHERS]; ROWS];
                for at in (0..INT8_DEPTH).step_by($bytes) {
                    let others = others.each_ref().map(|other| {
                        // SAFETY: `INT8_DEPTH` is a multiple of the bytes that are read.
                        unsafe { $load(other[at..].as_ptr().cast()) }
                    });
                    for (row, sums) in rows.iter().zip(&mut sums) {
                        // SAFETY: likewise.
                        let row = unsafe { $load(row[at..].as_ptr().cast()) };
                        for (sum, other) in sums.iter_mut().zip(others) {
                            *sum = $step(*sum, row, other);
                        }
                    }
                }
                sums.map(|sums| {
                    sums.map(|sum| {
                        let mut lanes = [0i32; $bytes / 4];
                        // SAFETY: `lanes` has the bytes that are written.
                        unsafe { $store(lanes.as_mut_ptr().cast(), sum) };
                        lanes.iter().sum()
                    })
                })
            }
        };
    }

    tile!(maddubs, "avx2,fma,f16c", |sum, row, other| {
        let pairs = _mm256_maddubs_epi16(row, other);
        _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    });
    tile!(vnni, "avx2,fma,f16c,avx512f,avx512vl,avx512vnni", _mm256_dpbusd_epi32);
    tile!(
        vnni_wide,
        64,
        _mm512_setzero_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        "avx2,fma,f16c,avx512f,avx512vl,avx512vnni",
        _mm512_dpbusd_epi32
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;

    #[test]
    fn every_loop_that_runs_here_computes_dot_products() {
        let mut rows = [[0u8; INT8_DEPTH]; ROWS];
        let mut others = [[0i8; INT8_DEPTH]; OTHERS];
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 24
        };
        rows.as_flattened_mut().fill_with(|| (next() / 2) as u8);
        others.as_flattened_mut().fill_with(|| next() as u8 as i8);
        let backends = [Backend::Avx2, Backend::Avx512].map(|backend| Kernels::new(backend).ok());
        for (kernels, int8) in
            backends.into_iter().flatten().flat_map(|k| Int8::ALL.map(|i| (k, i)))
        {
            let Some(tile) = kernels.int8_tile(int8, &rows, &others) else {
                println!("skipped: {}", kernels.int8_absent(int8).expect("a reason"));
                continue;
            };
            for (row, sums) in rows.iter().zip(tile) {
                for (other, sum) in others.iter().zip(sums) {
                    let products =
                        row.iter().zip(other).map(|(&a, &b)| i32::from(a) * i32::from(b));
                    assert_eq!(sum, products.sum::<i32>(), "{int8:?}");
                }
            }
        }
    }

    #[test]
    fn a_backend_without_a_loop_says_so() {
        let scalar = Kernels::new(Backend::Scalar).unwrap();
        let (rows, others) = ([[1; INT8_DEPTH]; ROWS], [[1; INT8_DEPTH]; OTHERS]);
        for int8 in Int8::ALL {
            assert_eq!(scalar.int8_tile(int8, &rows, &others), None);
            assert!(scalar.int8_absent(int8).is_some());
        }
    }
}
