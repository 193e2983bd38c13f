//! How each format's blocks are unpacked into a panel. The layouts are drawn in `quant/`.
//!
//! 64 columns of a row are a vector, a byte each: what of the block's bytes belongs to 32 columns is put in
//! either half, shifted to where the lowest bits are. Sixteen rows of these are then turned around.

use std::arch::x86_64::*;

use super::panel::{LANES, Panel, UNIT};
use crate::lanes::piece;
use crate::lanes::wide::{
    load_f16x16, load_i8x16, load_u8, load_u8x64, load_u64x8, store_f32x16, store_u8x64,
};
use crate::quant::ternary::{I2_S_BYTES, LEN, TQ1_0_BYTES, TQ2_0_BYTES};
use crate::quant::{q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};
use crate::{Matrix, QuantType};

impl Panel {
    /// Unpacks the blocks of sixteen rows.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn unpack(&mut self, half: usize, w: &Matrix, rows: [&[u8]; LANES]) {
        /// The rows by blocks.
        macro_rules! blocks {
            () => {{
                let mut blocks = [[].as_slice(); LANES];
                for i in 0..LANES {
                    blocks[i] = rows[i].as_chunks().0;
                }
                blocks
            }};
        }
        match w.kind() {
            QuantType::Q4_0 => {
                self.unpack_of_32::<{ q4_0::BYTES }, { q4_0::QS }, false, false>(half, blocks!());
            }
            QuantType::Q4_1 => {
                self.unpack_of_32::<{ q4_1::BYTES }, { q4_1::QS }, false, true>(half, blocks!());
            }
            QuantType::Q5_0 => {
                self.unpack_of_32::<{ q5_0::BYTES }, { q5_0::QS }, true, false>(half, blocks!());
            }
            QuantType::Q5_1 => {
                self.unpack_of_32::<{ q5_1::BYTES }, { q5_1::QS }, true, true>(half, blocks!());
            }
            QuantType::Q8_0 => self.unpack_q8_0(half, blocks!()),
            QuantType::Q4_K => self.unpack_q4_k(half, blocks!()),
            QuantType::Q5_K => self.unpack_q5_k(half, blocks!()),
            QuantType::Q6_K => self.unpack_q6_k(half, blocks!()),
            QuantType::TQ1_0 => self.unpack_tq1_0(half, blocks!()),
            QuantType::TQ2_0 => self.unpack_tq2_0(half, blocks!()),
            QuantType::I2_S => self.unpack_i2_s(half, w.tensor_scale(), blocks!()),
            kind @ (QuantType::F32 | QuantType::F16 | QuantType::BF16) => {
                unreachable!("no int8 loop for {kind}")
            }
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_q8_0(&mut self, half: usize, rows: [&[[u8; q8_0::BYTES]]; LANES]) {
        let n = rows[0].len();
        for unit in 0..n.div_ceil(2) {
            // There may be no second: what is in its place is never read.
            let second = (2 * unit + 1).min(n - 1);
            let mut codes = [_mm512_setzero_si512(); LANES];
            for i in 0..LANES {
                let row = &rows[i][..n];
                let two = join(load_u8(piece(&row[2 * unit], 2)), load_u8(piece(&row[second], 2)));
                codes[i] = _mm512_xor_si512(two, _mm512_set1_epi8(-128));
            }
            self.set_codes(half, unit, codes);
        }
        for b in 0..n {
            store_f32x16(&mut self.scales[b].0[half], f16_of(&rows, b, 0));
        }
    }

    /// The formats of blocks of 32 with 4 bits of each weight in 16 bytes from `QS` on, and in some the fifth
    /// in the four before them. The minimum, if there is one, is behind the scale.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_of_32<
        const BYTES: usize,
        const QS: usize,
        const FIFTH_BITS: bool,
        const MINIMUMS: bool,
    >(
        &mut self,
        half: usize,
        rows: [&[[u8; BYTES]]; LANES],
    ) {
        let n = rows[0].len();
        for unit in 0..n.div_ceil(2) {
            let second = (2 * unit + 1).min(n - 1);
            let mut codes = [_mm512_setzero_si512(); LANES];
            for i in 0..LANES {
                let [a, b] = [&rows[i][..n][2 * unit], &rows[i][..n][second]];
                let two = _mm256_set_m128i(load_i8x16(piece(b, QS)), load_i8x16(piece(a, QS)));
                let two = _mm512_castsi256_si512(two);
                let twice = _mm512_shuffle_i32x4::<0b01_01_00_00>(two, two);
                let shifted = _mm512_srlv_epi64(twice, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
                codes[i] = _mm512_and_si512(shifted, _mm512_set1_epi8(15));
                if FIFTH_BITS {
                    let bits = |block| u64::from(u32::from_le_bytes(*piece(block, QS - 4)));
                    let fifth = _mm512_maskz_set1_epi8(bits(a) | bits(b) << 32, 16);
                    codes[i] = _mm512_or_si512(codes[i], fifth);
                }
            }
            self.set_codes(half, unit, codes);
        }
        for b in 0..n {
            store_f32x16(&mut self.scales[b].0[half], f16_of(&rows, b, 0));
            if MINIMUMS {
                store_f32x16(&mut self.minimums[b].0[half], f16_of(&rows, b, 2));
            }
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_q4_k(&mut self, half: usize, rows: [&[[u8; q4_k::BYTES]]; LANES]) {
        let n = rows[0].len();
        for b in 0..n {
            for c in 0..4 {
                let mut codes = [_mm512_setzero_si512(); LANES];
                for i in 0..LANES {
                    let bytes = load_u8(piece(&rows[i][b], q4_k::HEAD + 32 * c));
                    codes[i] = shifted(bytes, 0, 4, 15);
                }
                self.set_codes(half, 4 * b + c, codes);
            }
            self.set_heads(half, b, &rows);
        }
    }

    /// Scales and minimums of Q4_K and Q5_K.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn set_heads<const BYTES: usize>(
        &mut self,
        half: usize,
        block: usize,
        rows: &[&[[u8; BYTES]]; LANES],
    ) {
        let (mut scales, mut minimums) = ([0; LANES], [0; LANES]);
        for i in 0..LANES {
            (scales[i], minimums[i]) = q4_k::unpack_scales(q4_k::head_of(&rows[i][block]));
        }
        let (d, dmin) = (f16_of(rows, block, 0), f16_of(rows, block, 2));
        let low = _mm512_set1_epi32(0xff);
        for g in 0..8 {
            let scale = _mm512_and_si512(lower_words(&scales, 8 * g), low);
            let scale = _mm512_mul_ps(_mm512_cvtepi32_ps(scale), d);
            store_f32x16(&mut self.scales[8 * block + g as usize].0[half], scale);
        }
        for p in 0..4 {
            let two = lower_words(&minimums, 16 * p);
            let first = _mm512_and_si512(two, low);
            let second = _mm512_slli_epi32::<8>(_mm512_and_si512(two, _mm512_set1_epi32(0xff00)));
            let pair = &mut self.pairs[4 * block + p as usize].0[half];
            store_u8x64(pair, _mm512_or_si512(first, second));
        }
        store_f32x16(&mut self.minimums[block].0[half], _mm512_sub_ps(_mm512_setzero_ps(), dmin));
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_q5_k(&mut self, half: usize, rows: [&[[u8; q5_k::BYTES]]; LANES]) {
        let n = rows[0].len();
        for b in 0..n {
            for c in 0..4 {
                let mut codes = [_mm512_setzero_si512(); LANES];
                for i in 0..LANES {
                    let block = &rows[i][b];
                    let low = shifted(load_u8(piece(block, q5_k::QS + 32 * c)), 0, 4, 15);
                    let bit = 2 * c as i64;
                    let fifth = shifted(load_u8(piece(block, q5_k::QH)), bit, bit + 1, 1);
                    codes[i] = _mm512_or_si512(low, _mm512_slli_epi16::<4>(fifth));
                }
                self.set_codes(half, 4 * b + c, codes);
            }
            self.set_heads(half, b, &rows);
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_q6_k(&mut self, half: usize, rows: [&[[u8; q6_k::BYTES]]; LANES]) {
        let n = rows[0].len();
        for b in 0..n {
            for c in 0..4u32 {
                let (h, high) = (c as usize / 2, c % 2);
                let mut codes = [_mm512_setzero_si512(); LANES];
                for i in 0..LANES {
                    let block = &rows[i][b];
                    let ql = load_u8x64(piece(block, 64 * h));
                    let low = _mm512_srl_epi16(ql, _mm_cvtsi32_si128(4 * high as i32));
                    let qh = load_u8(piece(block, q6_k::QH + 32 * h));
                    let bits = shifted(qh, 4 * high as i64, 4 * high as i64 + 2, 3);
                    codes[i] = _mm512_or_si512(
                        _mm512_and_si512(low, _mm512_set1_epi8(15)),
                        _mm512_slli_epi16::<4>(bits),
                    );
                }
                self.set_codes(half, 4 * b + c as usize, codes);
            }
            let d = f16_of(&rows, b, q6_k::D);
            // Sixteen rows of sixteen scales: whose are whose turns around.
            let mut scales = [0; 16 * LANES];
            for i in 0..LANES {
                let of_row: &[u8; 16] = piece(&rows[i][b], q6_k::SCALES);
                for g in 0..16 {
                    scales[LANES * g + i] = of_row[g];
                }
            }
            for (g, scales) in scales.as_chunks::<LANES>().0.iter().enumerate() {
                let scale = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_i8x16(scales)));
                store_f32x16(&mut self.scales[16 * b + g].0[half], _mm512_mul_ps(scale, d));
            }
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_tq1_0(&mut self, half: usize, rows: [&[[u8; TQ1_0_BYTES]]; LANES]) {
        let n = rows[0].len();
        for b in 0..n {
            let mut of_rows = [[0; LEN]; LANES];
            for i in 0..LANES {
                of_rows[i] = tq1_0_codes(&rows[i][b]);
            }
            for c in 0..4 {
                let mut codes = [_mm512_setzero_si512(); LANES];
                for i in 0..LANES {
                    codes[i] = load_u8x64(piece(&of_rows[i], UNIT * c));
                }
                self.set_codes(half, 4 * b + c, codes);
            }
            store_f32x16(&mut self.scales[b].0[half], f16_of(&rows, b, TQ1_0_BYTES - 2));
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_tq2_0(&mut self, half: usize, rows: [&[[u8; TQ2_0_BYTES]]; LANES]) {
        let n = rows[0].len();
        for b in 0..n {
            for c in 0..4 {
                let (run, bit) = (c / 2, 4 * (c as i64 % 2));
                let mut codes = [_mm512_setzero_si512(); LANES];
                for i in 0..LANES {
                    codes[i] = shifted(load_u8(piece(&rows[i][b], 32 * run)), bit, bit + 2, 3);
                }
                self.set_codes(half, 4 * b + c, codes);
            }
            store_f32x16(&mut self.scales[b].0[half], f16_of(&rows, b, TQ2_0_BYTES - 2));
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_i2_s(&mut self, half: usize, scale: f32, rows: [&[[u8; I2_S_BYTES]]; LANES]) {
        let block = |i: usize, b: usize| &rows[i][b];
        for b in 0..rows[0].len() {
            for c in 0..2 {
                let bit = 6 - 4 * c as i64;
                let mut codes = [_mm512_setzero_si512(); LANES];
                for i in 0..LANES {
                    codes[i] = shifted(load_u8(block(i, b)), bit, bit - 2, 3);
                }
                self.set_codes(half, 2 * b + c, codes);
            }
            self.scales[b].0[half] = [scale; LANES];
        }
    }
}

/// A block's digits in base 3, in the order of its weights.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn tq1_0_codes(block: &[u8; TQ1_0_BYTES]) -> [u8; LEN] {
    let mut codes = [0; LEN];
    let (fives, last) = codes.split_at_mut(240);
    let (first, second) = fives.split_at_mut(160);
    digits::<32>(first, piece(block, 0));
    digits::<16>(second, piece(block, 32));
    digits::<4>(last, piece(block, 48));
    codes
}

/// The first digits of all bytes, then the second, and so on.
#[inline(always)]
fn digits<const N: usize>(codes: &mut [u8], bytes: &[u8; N]) {
    let mut fractions = *bytes;
    for codes in codes.as_chunks_mut::<N>().0 {
        for m in 0..N {
            // Three times the fraction, in 256ths, is the digit and the next fraction.
            codes[m] = u8::from(fractions[m] >= 86) + u8::from(fractions[m] >= 171);
            fractions[m] = fractions[m].wrapping_mul(3);
        }
    }
}

/// The half floats at a place in a block of each row.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn f16_of<const BYTES: usize>(rows: &[&[[u8; BYTES]]; LANES], block: usize, at: usize) -> __m512 {
    let mut bits = [0; LANES];
    for i in 0..LANES {
        bits[i] = u16::from_le_bytes(*piece(&rows[i][block], at));
    }
    load_f16x16(&bits)
}

/// One and the other.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn join(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// The bytes twice, each shifted to the right by one and by the other distance, and what of them is in a mask.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn shifted(bytes: __m256i, first: i64, second: i64, mask: i8) -> __m512i {
    let distances = _mm512_setr_epi64(first, first, first, first, second, second, second, second);
    let shifted = _mm512_srlv_epi64(_mm512_broadcast_i64x4(bytes), distances);
    _mm512_and_si512(shifted, _mm512_set1_epi8(mask))
}

/// Of each of sixteen, 32 bits after so many others.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn lower_words(rows: &[u64; LANES], after: i64) -> __m512i {
    let [first, second] = rows.as_chunks::<8>().0 else { unreachable!("sixteen are two eights") };
    let distance = _mm_cvtsi64_si128(after);
    join(
        _mm512_cvtepi64_epi32(_mm512_srl_epi64(load_u64x8(first), distance)),
        _mm512_cvtepi64_epi32(_mm512_srl_epi64(load_u64x8(second), distance)),
    )
}
