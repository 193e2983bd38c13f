//! 32 rows of weights, unpacked: a byte for each code, four columns of sixteen rows to a vector.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::lanes::piece;
use crate::lanes::wide::{
    load_16_bytes, load_64_bytes, load_f16x16, load_u8, load_u64x8, store_16, store_64_bytes,
};
use crate::quant::{q4_k, q6_k, q8_0};
use crate::{Matrix, QuantType};

pub(super) const PANEL_ROWS: usize = 32;
/// A panel's rows are two vectors.
const LANES: usize = 16;
/// How many columns are unpacked together: sixteen vectors of four.
const UNIT: usize = 64;

/// What begins at a cache line, so that no vector is in two.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// A piece of 32 rows.
#[derive(Default)]
pub(super) struct Panel {
    /// By four columns.
    pub(super) codes: Vec<Aligned<[[u8; 64]; 2]>>,
    /// By run of columns with one scale.
    pub(super) scales: Vec<Aligned<[[f32; LANES]; 2]>>,
    /// What is added per sum of activations: by block.
    pub(super) minimums: Vec<Aligned<[[f32; LANES]; 2]>>,
    /// By two runs of columns: the minimums of both in units of the block's, 16 bits each.
    pub(super) pairs: Vec<Aligned<[[u8; 64]; 2]>>,
}

impl Panel {
    /// Unpacks some columns, whole blocks, of up to 32 rows, at least one. What is in the lanes of rows that
    /// aren't there is anything.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn fill(&mut self, w: &Matrix, rows: Range<usize>, depth: Range<usize>) {
        let kind = w.kind();
        let bytes_of = |cols: usize| cols / kind.block_len() * kind.block_bytes();
        let bytes = bytes_of(depth.start)..bytes_of(depth.end);
        self.make_room(kind, depth.len());
        for half in 0..2 {
            let mut sixteen: [&[u8]; LANES] = [&[]; LANES];
            for (i, row) in sixteen.iter_mut().enumerate() {
                // The last again and again where there is none.
                let i = (rows.start + LANES * half + i).min(rows.end - 1);
                *row = &w.row_bytes(i)[bytes.clone()];
            }
            match kind {
                QuantType::Q8_0 => self.fill_q8_0(half, sixteen.map(|row| row.as_chunks().0)),
                QuantType::Q4_K => self.fill_q4_k(half, sixteen.map(|row| row.as_chunks().0)),
                QuantType::Q6_K => self.fill_q6_k(half, sixteen.map(|row| row.as_chunks().0)),
                kind => unreachable!("no int8 loop for {kind}"),
            }
        }
    }

    fn make_room(&mut self, kind: QuantType, cols: usize) {
        let blocks = cols / kind.block_len();
        let (scales, minimums, pairs) = match kind {
            QuantType::Q4_1 | QuantType::Q5_1 => (blocks, blocks, 0),
            QuantType::Q4_K | QuantType::Q5_K => (8 * blocks, blocks, 4 * blocks),
            QuantType::Q6_K => (16 * blocks, 0, 0),
            _ => (blocks, 0, 0),
        };
        self.codes.resize(cols.next_multiple_of(UNIT) / 4, Aligned([[0; 64]; 2]));
        self.scales.resize(scales, Aligned([[0.0; LANES]; 2]));
        self.minimums.resize(minimums, Aligned([[0.0; LANES]; 2]));
        self.pairs.resize(pairs, Aligned([[0; 64]; 2]));
    }

    /// Writes 64 columns, given by rows.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn set_codes(&mut self, half: usize, unit: usize, rows: [__m512i; LANES]) {
        let unit = &mut self.codes.as_chunks_mut::<{ UNIT / 4 }>().0[unit];
        for (codes, columns) in unit.iter_mut().zip(transpose(rows)) {
            store_64_bytes(&mut codes.0[half], columns);
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn fill_q8_0(&mut self, half: usize, rows: [&[[u8; q8_0::BYTES]]; LANES]) {
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
            let scales = f16_of(&rows, b, 0);
            store_16(&mut self.scales[b].0[half], scales);
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn fill_q4_k(&mut self, half: usize, rows: [&[[u8; q4_k::BYTES]]; LANES]) {
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
            let mut heads = [[0; q4_k::HEAD]; LANES];
            for i in 0..LANES {
                heads[i] = *q4_k::head_of(&rows[i][b]);
            }
            self.set_heads(half, b, &heads, f16_of(&rows, b, 0), f16_of(&rows, b, 2));
        }
    }

    /// Scales and minimums of Q4_K and Q5_K.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn set_heads(
        &mut self,
        half: usize,
        block: usize,
        heads: &[[u8; q4_k::HEAD]; LANES],
        d: __m512,
        dmin: __m512,
    ) {
        let (mut scales, mut minimums) = ([0; LANES], [0; LANES]);
        for i in 0..LANES {
            (scales[i], minimums[i]) = q4_k::unpack_scales(&heads[i]);
        }
        let low = _mm512_set1_epi32(0xff);
        for g in 0..8 {
            let scale = _mm512_and_si512(lower_words(&scales, 8 * g), low);
            let scale = _mm512_mul_ps(_mm512_cvtepi32_ps(scale), d);
            store_16(&mut self.scales[8 * block + g as usize].0[half], scale);
        }
        for p in 0..4 {
            let two = lower_words(&minimums, 16 * p);
            let first = _mm512_and_si512(two, low);
            let second = _mm512_slli_epi32::<8>(_mm512_and_si512(two, _mm512_set1_epi32(0xff00)));
            let pair = &mut self.pairs[4 * block + p as usize].0[half];
            store_64_bytes(pair, _mm512_or_si512(first, second));
        }
        store_16(&mut self.minimums[block].0[half], _mm512_sub_ps(_mm512_setzero_ps(), dmin));
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn fill_q6_k(&mut self, half: usize, rows: [&[[u8; q6_k::BYTES]]; LANES]) {
        let n = rows[0].len();
        for b in 0..n {
            for c in 0..4u32 {
                let (h, high) = (c as usize / 2, c % 2);
                let mut codes = [_mm512_setzero_si512(); LANES];
                for i in 0..LANES {
                    let block = &rows[i][b];
                    let ql = load_64_bytes(piece(block, 64 * h));
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
                let scale = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(scales)));
                store_16(&mut self.scales[16 * b + g].0[half], _mm512_mul_ps(scale, d));
            }
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

/// Sixteen rows of sixteen words of 32 bits become columns.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn transpose(r: [__m512i; 16]) -> [__m512i; 16] {
    // Within quarters of vectors: pairs of rows, then fours.
    let mut pairs = r;
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    // fours[4i + j]: column j of each quarter, of rows 4i to 4i + 3.
    let mut fours = r;
    for i in 0..4 {
        fours[4 * i] = _mm512_unpacklo_epi64(pairs[4 * i], pairs[4 * i + 2]);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(pairs[4 * i], pairs[4 * i + 2]);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(pairs[4 * i + 1], pairs[4 * i + 3]);
    }
    // Quarters change places: column 4q + j is quarter q of the four vectors j.
    let mut columns = r;
    for j in 0..4 {
        let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
        let even = [
            _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b),
            _mm512_shuffle_i32x4::<0b10_00_10_00>(c, d),
        ];
        let odd = [
            _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b),
            _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d),
        ];
        columns[j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(even[0], even[1]);
        columns[8 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(even[0], even[1]);
        columns[4 + j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(odd[0], odd[1]);
        columns[12 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(odd[0], odd[1]);
    }
    columns
}
