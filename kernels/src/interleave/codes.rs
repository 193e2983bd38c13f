//! The codes of interleaved Q5_K and Q6_K, put together anew.
//!
//! In a file, the upper bits of all codes are in words of their own, and each code is put together from two words. Here,
//! each byte of a line has a whole code in its low bits, and what is left of the bytes holds the rest of the codes, so
//! loops need fewer instructions to take them apart:
//!
//! ```text
//! Q5_K  line 0: code 0, bits 2 to 4 of code 5      Q6_K  line 0: code 0, bits 4 and 5 of code 3
//!       line 1: code 1, bit 1 of code 7,                 line 1: code 1, bits 2 and 3 of code 3
//!               bits 0 and 1 of code 5                   line 2: code 2, bits 0 and 1 of code 3
//!       line 2: code 2, bits 2 to 4 of code 6
//!       line 3: code 3, bit 0 of code 7,
//!               bits 0 and 1 of code 6
//!       line 4: code 4, bits 2 to 4 of code 7
//! ```
//!
//! Where such bits lie, a shift by less than a byte brings them to their place in eight times code 5, 6 or 7 and in four
//! times code 3.

use super::Line;

/// The first line of those that are put together anew. Those before it are Q5_K's head and Q6_K's scales.
pub(crate) const FIRST_STEP: usize = 4;

/// Some lines that hold the same columns of several sub-blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Five lines of Q5_K: the fifth bits of eight sub-blocks, then their codes, two in each byte.
    Five,
    /// Three lines of Q6_K: the codes of the first and third quarters of a half, of the second and fourth, and their
    /// upper bits.
    Three,
}

impl Step {
    /// Puts the codes of a block's lines together.
    pub(super) fn join(self, lines: &mut [Line]) {
        #[cfg(target_arch = "x86_64")]
        if crate::backend::has_avx512() {
            // SAFETY: the line above says that the CPU has what the function needs.
            #[allow(unsafe_code)]
            return unsafe { self.join_wide(lines) };
        }
        self.join_rows(lines);
    }

    /// The same code, in vectors of 64 bytes: with the 16 that every x86-64 processor has, models take longer to load.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn join_wide(self, lines: &mut [Line]) {
        self.join_rows(lines);
    }

    // Written so that the compiler vectorises it.
    #[inline(always)]
    fn join_rows(self, lines: &mut [Line]) {
        match self {
            Self::Five => {
                for five in lines.as_chunks_mut::<5>().0 {
                    let [a, b, c, d, e] = five.each_mut().map(|line| line.as_chunks_mut::<4>().0);
                    let rows = a.iter_mut().zip(b).zip(c).zip(d).zip(e);
                    for ((((a, b), c), d), e) in rows {
                        let words = [*a, *b, *c, *d, *e].map(u32::from_le_bytes);
                        [*a, *b, *c, *d, *e] = join_q5_k(words).map(u32::to_le_bytes);
                    }
                }
            }
            Self::Three => {
                for three in lines.as_chunks_mut::<3>().0 {
                    let [a, b, c] = three.each_mut().map(|line| line.as_chunks_mut::<4>().0);
                    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                        let words = [*a, *b, *c].map(u32::from_le_bytes);
                        [*a, *b, *c] = join_q6_k(words).map(u32::to_le_bytes);
                    }
                }
            }
        }
    }

    /// Turns one row's words of these lines back into those of a file.
    pub(super) fn split(self, words: &mut [u32]) {
        match self {
            Self::Five => {
                for five in words.as_chunks_mut::<5>().0 {
                    *five = split_q5_k(*five);
                }
            }
            Self::Three => {
                for three in words.as_chunks_mut::<3>().0 {
                    *three = split_q6_k(*three);
                }
            }
        }
    }
}

/// The same byte four times.
const fn four(byte: u8) -> u32 {
    u32::from_ne_bytes([byte; 4])
}

/// Four bytes of each: the fifth bits of eight codes, then their lower bits, two codes in each byte.
#[inline(always)]
fn join_q5_k([fifth, p, q, r, s]: [u32; 5]) -> [u32; 5] {
    let low = |pair: u32, s: u32| pair & four(0x0f) | (fifth >> s & four(1)) << 4;
    let high = |pair: u32, s: u32| pair >> 4 & four(0x0f) | (fifth >> s & four(1)) << 4;
    let (a, b, c) = (high(r, 5), low(s, 6), high(s, 7));
    let upper = |code: u32| (code & four(0b11100)) << 3;
    let lower = |code: u32| (code & four(0b00011)) << 6;
    [
        low(p, 0) | upper(a),
        high(p, 1) | (c & four(0b00010)) << 4 | lower(a),
        low(q, 2) | upper(b),
        high(q, 3) | (c & four(0b00001)) << 5 | lower(b),
        low(r, 4) | upper(c),
    ]
}

fn split_q5_k(lines: [u32; 5]) -> [u32; 5] {
    let mut codes = [0; 8];
    for (code, line) in codes.iter_mut().zip(lines) {
        *code = line & four(0x1f);
    }
    let upper = |line: u32| line >> 3 & four(0b11100);
    let lower = |line: u32| line >> 6 & four(0b00011);
    codes[5] = upper(lines[0]) | lower(lines[1]);
    codes[6] = upper(lines[2]) | lower(lines[3]);
    let last_two = lines[1] >> 4 & four(0b00010) | lines[3] >> 5 & four(0b00001);
    codes[7] = upper(lines[4]) | last_two;
    let mut words = [0; 5];
    for (s, code) in codes.into_iter().enumerate() {
        words[0] |= (code >> 4 & four(1)) << s;
        words[1 + s / 2] |= (code & four(0x0f)) << (4 * (s % 2));
    }
    words
}

/// Four bytes of each: the lower bits of codes 0 and 2, of codes 1 and 3, and the upper bits of all four.
#[inline(always)]
fn join_q6_k([a, b, upper]: [u32; 3]) -> [u32; 3] {
    [
        a & four(0x0f) | (upper & four(0x03)) << 4 | upper & four(0xc0),
        b & four(0x0f) | (upper & four(0x0c)) << 2 | b & four(0xc0),
        a >> 4 & four(0x0f) | upper & four(0x30) | (b & four(0x30)) << 2,
    ]
}

fn split_q6_k([x, y, z]: [u32; 3]) -> [u32; 3] {
    [
        x & four(0x0f) | (z & four(0x0f)) << 4,
        y & four(0x0f) | y & four(0xc0) | z >> 2 & four(0x30),
        x >> 4 & four(0x03) | y >> 2 & four(0x0c) | z & four(0x30) | x & four(0xc0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantType;
    use crate::interleave::{GROUP_ROWS, interleave};
    use crate::quant::{q5_k, q6_k};
    use crate::tests::noise;

    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        noise(seed, len).iter().map(|x| ((x + 1.0) * 128.0) as u8).collect()
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "calls what was found to be there")]
    fn wide_vectors_put_the_same_codes_together() {
        if !crate::backend::has_avx512() {
            return eprintln!("skipped: no AVX-512 VNNI");
        }
        for (step, lines) in [(Step::Five, 40), (Step::Three, 48)] {
            let bytes = bytes(7, 64 * lines);
            let mut rows: Vec<Line> = bytes.as_chunks().0.to_vec();
            let mut wide = rows.clone();
            step.join_rows(&mut rows);
            // SAFETY: the CPU has it, as was asked above.
            unsafe { step.join_wide(&mut wide) };
            assert_eq!(wide, rows, "{step:?}");
        }
    }

    /// Some bits of a byte, moved to bit `to`.
    fn moved(byte: u8, bits: std::ops::Range<u32>, to: u32) -> u8 {
        (byte >> bits.start & ((1 << bits.len()) - 1)) << to
    }

    #[test]
    fn each_byte_of_a_line_has_a_whole_code_and_the_rest_holds_the_others() {
        // Weight `l` of sub-block `s`, as decoded from a file, against the codes found in the lines.
        let (kind, bytes) = (QuantType::Q5_K, bytes(5, GROUP_ROWS * q5_k::BYTES));
        let mut lines = bytes.clone();
        interleave(kind, q5_k::LEN, &mut lines);
        let lines = lines.as_chunks::<64>().0;
        for (row, block) in bytes.chunks_exact(q5_k::BYTES).enumerate() {
            for l in 0..32 {
                let five = |i: usize| lines[FIRST_STEP + 5 * (l / 4) + i][4 * row + l % 4];
                let mut codes = [0; 8];
                (0..5).for_each(|i| codes[i] = five(i) & 0x1f);
                codes[5] = moved(five(0), 5..8, 2) | moved(five(1), 6..8, 0);
                codes[6] = moved(five(2), 5..8, 2) | moved(five(3), 6..8, 0);
                codes[7] =
                    moved(five(4), 5..8, 2) | moved(five(1), 5..6, 1) | moved(five(3), 5..6, 0);
                for (s, code) in codes.into_iter().enumerate() {
                    let four = block[q5_k::QS + 32 * (s / 2) + l] >> (4 * (s % 2)) & 0x0f;
                    assert_eq!(code, four | (block[q5_k::QH + l] >> s & 1) << 4, "{row} {s} {l}");
                }
            }
        }
    }

    #[test]
    fn so_has_each_byte_of_a_line_of_six_bits() {
        let (kind, bytes) = (QuantType::Q6_K, bytes(6, GROUP_ROWS * q6_k::BYTES));
        let mut lines = bytes.clone();
        interleave(kind, q6_k::LEN, &mut lines);
        let lines = lines.as_chunks::<64>().0;
        for (row, block) in bytes.chunks_exact(q6_k::BYTES).enumerate() {
            for (h, l) in (0..2).flat_map(|h| (0..32).map(move |l| (h, l))) {
                let three = |i: usize| lines[FIRST_STEP + 3 * (8 * h + l / 4) + i][4 * row + l % 4];
                let last =
                    moved(three(0), 6..8, 4) | moved(three(1), 6..8, 2) | moved(three(2), 6..8, 0);
                let codes = [three(0) & 0x3f, three(1) & 0x3f, three(2) & 0x3f, last];
                for (i, code) in codes.into_iter().enumerate() {
                    let four = block[64 * h + 32 * (i % 2) + l] >> (4 * (i / 2)) & 0x0f;
                    let upper = block[q6_k::QH + 32 * h + l] >> (2 * i) & 3;
                    assert_eq!(code, four | upper << 4, "{row} {h} {i} {l}");
                }
            }
        }
    }
}
