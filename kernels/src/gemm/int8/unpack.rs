//! Unpacks each format's blocks into a panel. The files in `quant/` describe the layouts.
//!
//! 32 bytes of each of sixteen rows are transposed first, into eight vectors of four bytes of each row. Then the codes
//! are extracted from these, four columns of sixteen rows at a time. If a block's fifth bits are in the order of its
//! columns, codes are completed before the transposition. Interleaved rows need none, and Q5_K and Q6_K put their codes
//! together in another way there: see `interleave.rs`.

use std::arch::x86_64::*;

use super::panel::{LANES, Panel, RUN};
use crate::gemv::int8::interleaved::{
    codes_of_q5_k, codes_of_q6_k, factors, scales_and_minimums, steps_of,
};
use crate::interleave::{blocks_in, halves_of, lines_of};
use crate::lanes::piece;
use crate::lanes::wide::{
    load_f16_bytes, load_f16x16, load_i8x16, load_i32x16, load_u8, load_u8x64, load_u64x8,
    store_f32x16, store_u8x64,
};
use crate::quant::ternary::{I2_S_BYTES, LEN, TQ1_0_BYTES, TQ2_0_BYTES};
use crate::quant::{q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};
use crate::{Matrix, QuantType};

impl Panel {
    /// Unpacks the blocks of sixteen rows.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn unpack(&mut self, half: usize, w: &Matrix, rows: [&[u8]; LANES]) {
        /// Splits the rows into blocks.
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
            QuantType::Q8_0 => self.unpack_q8_0(half, Sixteen::Rows(blocks!())),
            QuantType::Q4_K => self.unpack_q4_k(half, Sixteen::Rows(blocks!())),
            QuantType::Q5_K => self.unpack_q5_k(half, &blocks!()),
            QuantType::Q6_K => self.unpack_q6_k(half, &blocks!()),
            QuantType::TQ1_0 => self.unpack_tq1_0(half, blocks!()),
            QuantType::TQ2_0 => self.unpack_tq2_0(half, Sixteen::Rows(blocks!())),
            QuantType::I2_S => self.unpack_i2_s(half, w.tensor_scale(), blocks!()),
            kind @ (QuantType::F32 | QuantType::F16 | QuantType::BF16) => {
                unreachable!("{kind} has no integer loop")
            }
        }
    }

    /// Unpacks the blocks of sixteen interleaved rows.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn unpack_group(&mut self, half: usize, kind: QuantType, group: &[u8]) {
        match kind {
            QuantType::Q4_0 => self.unpack_group_of_q4_0(half, group),
            QuantType::Q8_0 => self.unpack_q8_0(half, Sixteen::Group(group)),
            QuantType::TQ2_0 => self.unpack_tq2_0(half, Sixteen::Group(group)),
            QuantType::Q4_K => self.unpack_q4_k(half, Sixteen::Group(group)),
            QuantType::Q5_K => self.unpack_group_of_q5_k(half, group),
            QuantType::Q6_K => self.unpack_group_of_q6_k(half, group),
            kind => unreachable!("rows of {kind} are never interleaved"),
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_q8_0(&mut self, half: usize, rows: Sixteen<'_, { q8_0::BYTES }>) {
        const KIND: QuantType = QuantType::Q8_0;
        let sign = _mm512_set1_epi8(-128);
        for b in 0..rows.blocks(KIND) {
            let mut codes = eight_words(&rows, KIND, b, 2);
            for codes in &mut codes {
                *codes = _mm512_xor_si512(*codes, sign);
            }
            self.set_codes(half, b, codes);
            store_f32x16(&mut self.scales[b].0[half], lone_halves(&rows, KIND, b, 0));
        }
    }

    /// One line has the codes of four columns and of the four that come sixteen columns later.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_group_of_q4_0(&mut self, half: usize, group: &[u8]) {
        const KIND: QuantType = QuantType::Q4_0;
        let low_4 = _mm512_set1_epi8(0x0f);
        for b in 0..blocks_in(KIND, group) {
            let mut codes = [_mm512_setzero_si512(); RUN / 4];
            for (word, line) in lines_of(KIND, group, b).iter().enumerate() {
                let twos = load_u8x64(line);
                codes[word] = _mm512_and_si512(twos, low_4);
                codes[4 + word] = _mm512_and_si512(_mm512_srli_epi16::<4>(twos), low_4);
            }
            self.set_codes(half, b, codes);
            let d = load_f16_bytes(halves_of(KIND, group, b));
            store_f32x16(&mut self.scales[b].0[half], d);
        }
    }

    /// Unpacks formats with blocks of 32: the low four bits of the codes are in 16 bytes from `QS` on, the fifth bits,
    /// if any, in the four bytes before them. The minimum, if any, follows the scale.
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
        for b in 0..rows[0].len() {
            let mut codes = [_mm256_setzero_si256(); LANES];
            for i in 0..LANES {
                let block = &rows[i][b];
                let twos = load_i8x16(piece(block, QS));
                let twos = _mm256_set_m128i(_mm_srli_epi16::<4>(twos), twos);
                codes[i] = _mm256_and_si256(twos, _mm256_set1_epi8(15));
                if FIFTH_BITS {
                    let bits = u32::from_le_bytes(*piece(block, QS - 4));
                    codes[i] = _mm256_or_si256(codes[i], _mm256_maskz_set1_epi8(bits, 16));
                }
            }
            self.set_codes(half, b, turn(codes));
            store_f32x16(&mut self.scales[b].0[half], f16_of(&rows, b, 0));
            if MINIMUMS {
                store_f32x16(&mut self.minimums[b].0[half], f16_of(&rows, b, 2));
            }
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_q4_k(&mut self, half: usize, rows: Sixteen<'_, { q4_k::BYTES }>) {
        for b in 0..rows.blocks(QuantType::Q4_K) {
            for c in 0..4 {
                let twos = eight_words(&rows, QuantType::Q4_K, b, q4_k::HEAD + 32 * c);
                self.set_codes(half, 8 * b + 2 * c, bits::<4>(twos, 0));
                self.set_codes(half, 8 * b + 2 * c + 1, bits::<4>(twos, 4));
            }
            self.set_heads(half, b, &rows, QuantType::Q4_K);
        }
    }

    /// Sets the scales and minimums of Q4_K and Q5_K.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn set_heads<const BYTES: usize>(
        &mut self,
        half: usize,
        block: usize,
        rows: &Sixteen<'_, BYTES>,
        kind: QuantType,
    ) {
        let low = _mm512_set1_epi32(0xff);
        // Four bytes of each row: scales 0 to 3 and 4 to 7, then the minimums.
        let (scales, minimums, d, dmin) = match rows {
            Sixteen::Rows(rows) => {
                let (mut scales, mut minimums) = ([0; LANES], [0; LANES]);
                for i in 0..LANES {
                    (scales[i], minimums[i]) = q4_k::unpack_scales(q4_k::head_of(&rows[i][block]));
                }
                let fours = |of: &[u64; LANES]| [lower_words(of, 0), lower_words(of, 32)];
                let (d, dmin) = (f16_of(rows, block, 0), f16_of(rows, block, 2));
                (fours(&scales), fours(&minimums), d, dmin)
            }
            Sixteen::Group(group) => {
                let head = lines_of(kind, group, block).first_chunk().expect("a block has a head");
                let [scales, minimums] = scales_and_minimums(head);
                let [d, dmin] = factors(&head[0]);
                (scales, minimums, d, dmin)
            }
        };
        for (g, scales) in scales.into_iter().enumerate() {
            let mut scales = scales;
            for i in 0..4 {
                let scale = _mm512_cvtepi32_ps(_mm512_and_si512(scales, low));
                let scale = _mm512_mul_ps(scale, d);
                store_f32x16(&mut self.scales[8 * block + 4 * g + i].0[half], scale);
                scales = _mm512_srli_epi32::<8>(scales);
            }
        }
        for (p, four) in minimums.into_iter().enumerate() {
            for (i, two) in [four, _mm512_srli_epi32::<16>(four)].into_iter().enumerate() {
                let first = _mm512_and_si512(two, low);
                let second =
                    _mm512_slli_epi32::<8>(_mm512_and_si512(two, _mm512_set1_epi32(0xff00)));
                let pair = &mut self.pairs[4 * block + 2 * p + i].0[half];
                store_u8x64(pair, _mm512_or_si512(first, second));
            }
        }
        store_f32x16(&mut self.minimums[block].0[half], _mm512_sub_ps(_mm512_setzero_ps(), dmin));
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_q5_k(&mut self, half: usize, rows: &[&[[u8; q5_k::BYTES]]; LANES]) {
        for b in 0..rows[0].len() {
            let eights = turned(rows, b, q5_k::QH);
            for c in 0..4 {
                let twos = turned(rows, b, q5_k::QS + 32 * c);
                for i in 0..2 {
                    let low = bits::<4>(twos, 4 * i);
                    let fifth = bits::<1>(eights, 2 * c as u32 + i);
                    self.set_codes(half, 8 * b + 2 * c + i as usize, above(low, fifth));
                }
            }
            self.set_heads(half, b, &Sixteen::Rows(*rows), QuantType::Q5_K);
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_group_of_q5_k(&mut self, half: usize, group: &[u8]) {
        const KIND: QuantType = QuantType::Q5_K;
        for b in 0..blocks_in(KIND, group) {
            let panel = &mut self.codes.as_chunks_mut::<{ q5_k::LEN / 4 }>().0[b];
            for (k, five) in steps_of::<5>(lines_of(KIND, group, b)).iter().enumerate() {
                let mut codes = codes_of_q5_k(five);
                for codes in &mut codes[5..] {
                    *codes = _mm512_srli_epi16::<3>(*codes);
                }
                for (s, codes) in codes.into_iter().enumerate() {
                    store_u8x64(&mut panel[RUN / 4 * s + k].0[half], codes);
                }
            }
            let rows: Sixteen<'_, { q5_k::BYTES }> = Sixteen::Group(group);
            self.set_heads(half, b, &rows, KIND);
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_q6_k(&mut self, half: usize, rows: &[&[[u8; q6_k::BYTES]]; LANES]) {
        for b in 0..rows[0].len() {
            for h in 0..2 {
                let low = [64 * h, 64 * h + 32].map(|at| turned(rows, b, at));
                let high = turned(rows, b, q6_k::QH + 32 * h);
                for i in 0..4 {
                    let low = bits::<4>(low[i % 2], i as u32 / 2 * 4);
                    let codes = above(low, bits::<2>(high, 2 * i as u32));
                    self.set_codes(half, 8 * b + 4 * h + i, codes);
                }
            }
            let mut words = [[0; LANES]; 4];
            for i in 0..LANES {
                for (word, words) in words.iter_mut().enumerate() {
                    let at = q6_k::SCALES + 4 * word;
                    words[i] = i32::from_le_bytes(*piece(&rows[i][b], at));
                }
            }
            let words = words.each_ref().map(|words| load_i32x16(words));
            self.set_signed_scales(half, b, words, f16_of(rows, b, q6_k::D));
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_group_of_q6_k(&mut self, half: usize, group: &[u8]) {
        const KIND: QuantType = QuantType::Q6_K;
        for b in 0..blocks_in(KIND, group) {
            let lines = lines_of(KIND, group, b);
            let panel = &mut self.codes.as_chunks_mut::<{ q6_k::LEN / 4 }>().0[b];
            for (step, three) in steps_of::<3>(lines).iter().enumerate() {
                let mut codes = codes_of_q6_k(three);
                codes[3] = _mm512_srli_epi16::<2>(codes[3]);
                for (i, codes) in codes.into_iter().enumerate() {
                    // Each half of a block has four quarters of eight words.
                    let word = 32 * (step / 8) + RUN / 4 * i + step % 8;
                    store_u8x64(&mut panel[word].0[half], codes);
                }
            }
            let words: &[_; 4] = lines.first_chunk().expect("scales are the first lines");
            let words = words.each_ref().map(|line| load_u8x64(line));
            let d = load_f16_bytes(halves_of(KIND, group, b));
            self.set_signed_scales(half, b, words, d);
        }
    }

    /// Sets the scales of a block of Q6_K: four to a word of each row.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn set_signed_scales(&mut self, half: usize, block: usize, words: [__m512i; 4], d: __m512) {
        let scales = self.scales.as_chunks_mut::<16>().0[block].as_chunks_mut::<4>().0;
        for (scales, words) in scales.iter_mut().zip(words) {
            let mut words = words;
            for scales in scales {
                let scale = _mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(words));
                let scale = _mm512_mul_ps(_mm512_cvtepi32_ps(scale), d);
                store_f32x16(&mut scales.0[half], scale);
                words = _mm512_srli_epi32::<8>(words);
            }
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_tq1_0(&mut self, half: usize, rows: [&[[u8; TQ1_0_BYTES]]; LANES]) {
        for b in 0..rows[0].len() {
            let mut fractions = turned(&rows, b, 0);
            for n in 0..5 {
                self.set_codes(half, 8 * b + n, next_digits(&mut fractions));
            }
            // The last 32 bytes that hold codes: the run of sixteen is in words 3 to 6, the run of four in word 7.
            let mut fractions = turned(&rows, b, 20);
            let codes = &mut self.codes.as_chunks_mut::<{ LEN / 4 }>().0[b];
            for n in 0..5 {
                let digits = next_digits(&mut fractions);
                for word in 0..4 {
                    store_u8x64(&mut codes[40 + 4 * n + word].0[half], digits[3 + word]);
                }
                if n < 4 {
                    store_u8x64(&mut codes[60 + n].0[half], digits[7]);
                }
            }
            let d = f16_of(&rows, b, TQ1_0_BYTES - 2);
            store_f32x16(&mut self.scales[b].0[half], d);
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_tq2_0(&mut self, half: usize, rows: Sixteen<'_, TQ2_0_BYTES>) {
        const KIND: QuantType = QuantType::TQ2_0;
        for b in 0..rows.blocks(KIND) {
            for run in 0..2 {
                let fours = eight_words(&rows, KIND, b, 32 * run);
                for l in 0..4 {
                    let codes = bits::<2>(fours, 2 * l as u32);
                    self.set_codes(half, 8 * b + 4 * run + l, codes);
                }
            }
            let d = lone_halves(&rows, KIND, b, TQ2_0_BYTES - 2);
            store_f32x16(&mut self.scales[b].0[half], d);
        }
    }

    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn unpack_i2_s(&mut self, half: usize, scale: f32, rows: [&[[u8; I2_S_BYTES]]; LANES]) {
        for b in 0..rows[0].len() {
            let fours = turned(&rows, b, 0);
            for l in 0..4 {
                self.set_codes(half, 4 * b + l, bits::<2>(fours, 6 - 2 * l as u32));
            }
            self.scales[b].0[half] = [scale; LANES];
        }
    }
}

/// Blocks of sixteen rows.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, on the stack")]
enum Sixteen<'a, const BYTES: usize> {
    /// In file order, row by row.
    Rows([&'a [[u8; BYTES]]; LANES]),
    /// Interleaved: see `interleave.rs`.
    Group(&'a [u8]),
}

impl<const BYTES: usize> Sixteen<'_, BYTES> {
    fn blocks(&self, kind: QuantType) -> usize {
        match self {
            Self::Rows(rows) => rows[0].len(),
            Self::Group(group) => blocks_in(kind, group),
        }
    }
}

/// The eight words from byte `at` on in a block of each row, one word of all rows to a vector. The type's lines must be
/// in the order of a file.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn eight_words<const BYTES: usize>(
    rows: &Sixteen<'_, BYTES>,
    kind: QuantType,
    block: usize,
    at: usize,
) -> [__m512i; RUN / 4] {
    match rows {
        Sixteen::Rows(rows) => turned(rows, block, at),
        Sixteen::Group(group) => {
            let lines = lines_of(kind, group, block);
            let mut words = [_mm512_setzero_si512(); RUN / 4];
            for (i, word) in words.iter_mut().enumerate() {
                *word = load_u8x64(&lines[at / 4 + i]);
            }
            words
        }
    }
}

/// The next base-3 digits of fractions in 256ths; the fractions become the rest. Three times a fraction is its digit and
/// the rest.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn next_digits(fractions: &mut [__m512i; RUN / 4]) -> [__m512i; RUN / 4] {
    let one = _mm512_set1_epi8(1);
    let (third, two_thirds) = (_mm512_set1_epi8(86), _mm512_set1_epi8(171_u8.cast_signed()));
    let mut digits = *fractions;
    for (digit, fraction) in digits.iter_mut().zip(fractions) {
        let some = _mm512_maskz_mov_epi8(_mm512_cmpge_epu8_mask(*fraction, third), one);
        let two = _mm512_cmpge_epu8_mask(*fraction, two_thirds);
        *digit = _mm512_mask_add_epi8(some, two, some, one);
        *fraction = _mm512_add_epi8(*fraction, _mm512_add_epi8(*fraction, *fraction));
    }
    digits
}

/// The half floats at byte `at` in a block of each row.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn f16_of<const BYTES: usize>(rows: &[&[[u8; BYTES]]; LANES], block: usize, at: usize) -> __m512 {
    let mut bits = [0; LANES];
    for i in 0..LANES {
        bits[i] = u16::from_le_bytes(*piece(&rows[i][block], at));
    }
    load_f16x16(&bits)
}

/// The lone half floats of a block, which lie at byte `at` in each row's.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn lone_halves<const BYTES: usize>(
    rows: &Sixteen<'_, BYTES>,
    kind: QuantType,
    block: usize,
    at: usize,
) -> __m512 {
    match rows {
        Sixteen::Rows(rows) => f16_of(rows, block, at),
        Sixteen::Group(group) => load_f16_bytes(halves_of(kind, group, block)),
    }
}

/// Concatenates two half vectors.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn join(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// `N` bits of each byte, from bit `after` on.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn bits<const N: u32>(bytes: [__m512i; RUN / 4], after: u32) -> [__m512i; RUN / 4] {
    let (after, mask) = (_mm_cvtsi32_si128(after as i32), _mm512_set1_epi8((1 << N) - 1));
    let mut bits = bytes;
    for bits in &mut bits {
        // Masks away the bits shifted in from the neighbouring byte.
        *bits = _mm512_and_si512(_mm512_srl_epi16(*bits, after), mask);
    }
    bits
}

/// Adds upper bits to codes.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn above(low: [__m512i; RUN / 4], high: [__m512i; RUN / 4]) -> [__m512i; RUN / 4] {
    let mut codes = low;
    for (codes, high) in codes.iter_mut().zip(high) {
        *codes = _mm512_or_si512(*codes, _mm512_slli_epi16::<4>(high));
    }
    codes
}

/// 32 bits from bit `after` on, of each of sixteen.
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

/// 32 bytes of a block of each row, transposed.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn turned<const BYTES: usize>(
    rows: &[&[[u8; BYTES]]; LANES],
    block: usize,
    at: usize,
) -> [__m512i; RUN / 4] {
    let mut bytes = [_mm256_setzero_si256(); LANES];
    for i in 0..LANES {
        bytes[i] = load_u8(piece(&rows[i][block], at));
    }
    turn(bytes)
}

/// Transposes sixteen rows of eight 32-bit words into columns.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn turn(rows: [__m256i; LANES]) -> [__m512i; RUN / 4] {
    // In quarters of vectors: words 0 to 3 and 4 to 7 of one row, then of the row four rows later.
    let mut r = [_mm512_setzero_si512(); 8];
    for i in 0..4 {
        r[i] = join(rows[i], rows[4 + i]);
        r[4 + i] = join(rows[8 + i], rows[12 + i]);
    }
    let mut columns = r;
    // fours[h][j]: word j of each quarter, for four consecutive rows.
    let mut fours = [[r[0]; 4]; 2];
    for h in 0..2 {
        let [a, b, c, d] = [r[4 * h], r[4 * h + 1], r[4 * h + 2], r[4 * h + 3]];
        let (low, low_2) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (high, high_2) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        fours[h] = [
            _mm512_unpacklo_epi64(low, low_2),
            _mm512_unpackhi_epi64(low, low_2),
            _mm512_unpacklo_epi64(high, high_2),
            _mm512_unpackhi_epi64(high, high_2),
        ];
    }
    for j in 0..4 {
        columns[j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(fours[0][j], fours[1][j]);
        columns[4 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(fours[0][j], fours[1][j]);
    }
    columns
}
