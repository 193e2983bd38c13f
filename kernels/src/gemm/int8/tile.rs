//! The inner loop: 32 rows of weights with some tokens.

use std::arch::x86_64::*;

use super::panel::Panel;
use super::tokens::Block;
use crate::lanes::wide::{load_f32x16, load_u8x64, store_f32x16};

/// Adds the products of a panel with `T` tokens' blocks to `sums`.
///
/// A token's sums have the same bits whatever `T` is.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn tile<
    const WORDS: usize,
    const SUMS: usize,
    const GROUPS: usize,
    const MINIMUMS: bool,
    const T: usize,
>(
    panel: &Panel,
    tokens: [&[Block<WORDS, SUMS>]; T],
    sums: &mut [[[f32; 16]; 2]; T],
) {
    if GROUPS == 1 {
        blocks::<WORDS, SUMS, MINIMUMS, T>(panel, tokens, sums);
    } else {
        super_blocks::<WORDS, SUMS, GROUPS, MINIMUMS, T>(panel, tokens, sums);
    }
}

/// For blocks with one scale.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn blocks<const WORDS: usize, const SUMS: usize, const MINIMUMS: bool, const T: usize>(
    panel: &Panel,
    tokens: [&[Block<WORDS, SUMS>]; T],
    sums: &mut [[[f32; 16]; 2]; T],
) {
    let n = tokens[0].len();
    let tokens = cut(tokens, n);
    let codes = &panel.codes.as_chunks::<WORDS>().0[..n];
    let scales = &panel.scales[..n];
    let minimums = if MINIMUMS { &panel.minimums[..n] } else { &[] };

    let mut acc = [[_mm512_setzero_ps(); 2]; T];
    for t in 0..T {
        acc[t] = [load_f32x16(&sums[t][0]), load_f32x16(&sums[t][1])];
    }
    for b in 0..n {
        let mut dots = [[_mm512_setzero_si512(); 2]; T];
        if !MINIMUMS {
            for t in 0..T {
                dots[t] = [_mm512_set1_epi32(tokens[t][b].sums[0]); 2];
            }
        }
        for (s, codes) in codes[b].iter().enumerate() {
            step(&mut dots, &codes.0, &tokens, b, s);
        }
        let scales = [load_f32x16(&scales[b].0[0]), load_f32x16(&scales[b].0[1])];
        for t in 0..T {
            let scale = _mm512_set1_ps(tokens[t][b].scale);
            for r in 0..2 {
                let dot = _mm512_mul_ps(_mm512_cvtepi32_ps(dots[t][r]), scale);
                acc[t][r] = _mm512_fmadd_ps(dot, scales[r], acc[t][r]);
            }
        }
        if MINIMUMS {
            let minimums = [load_f32x16(&minimums[b].0[0]), load_f32x16(&minimums[b].0[1])];
            for t in 0..T {
                let sum = f32::from_bits(tokens[t][b].sums[0].cast_unsigned());
                for r in 0..2 {
                    acc[t][r] = _mm512_fmadd_ps(minimums[r], _mm512_set1_ps(sum), acc[t][r]);
                }
            }
        }
    }
    for t in 0..T {
        store_f32x16(&mut sums[t][0], acc[t][0]);
        store_f32x16(&mut sums[t][1], acc[t][1]);
    }
}

/// For blocks with several scales, in units of the block's.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn super_blocks<
    const WORDS: usize,
    const SUMS: usize,
    const GROUPS: usize,
    const MINIMUMS: bool,
    const T: usize,
>(
    panel: &Panel,
    tokens: [&[Block<WORDS, SUMS>]; T],
    sums: &mut [[[f32; 16]; 2]; T],
) {
    let n = tokens[0].len();
    let tokens = cut(tokens, n);
    let codes = &panel.codes.as_chunks::<WORDS>().0[..n];
    let scales = &panel.scales.as_chunks::<GROUPS>().0[..n];
    let pairs = if MINIMUMS { &panel.pairs.as_chunks::<SUMS>().0[..n] } else { &[] };
    let minimums = if MINIMUMS { &panel.minimums[..n] } else { &[] };

    for b in 0..n {
        let mut acc = [[_mm512_setzero_ps(); 2]; T];
        if MINIMUMS {
            let mut dots = [[_mm512_setzero_si512(); 2]; T];
            for (s, pair) in pairs[b].iter().enumerate() {
                let pair = [load_u8x64(&pair.0[0]), load_u8x64(&pair.0[1])];
                for t in 0..T {
                    let two = _mm512_set1_epi32(tokens[t][b].sums[s]);
                    for r in 0..2 {
                        dots[t][r] = _mm512_dpwssd_epi32(dots[t][r], pair[r], two);
                    }
                }
            }
            for r in 0..2 {
                let minimum = load_f32x16(&minimums[b].0[r]);
                for t in 0..T {
                    acc[t][r] = _mm512_mul_ps(_mm512_cvtepi32_ps(dots[t][r]), minimum);
                }
            }
        }
        for (g, scales) in scales[b].iter().enumerate() {
            let mut dots = [[_mm512_setzero_si512(); 2]; T];
            if !MINIMUMS {
                for t in 0..T {
                    dots[t] = [_mm512_set1_epi32(tokens[t][b].sums[g]); 2];
                }
            }
            for s in 0..WORDS / GROUPS {
                let s = WORDS / GROUPS * g + s;
                step(&mut dots, &codes[b][s].0, &tokens, b, s);
            }
            for r in 0..2 {
                let scale = load_f32x16(&scales.0[r]);
                for t in 0..T {
                    acc[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t][r]), scale, acc[t][r]);
                }
            }
        }
        for t in 0..T {
            let scale = _mm512_set1_ps(tokens[t][b].scale);
            for r in 0..2 {
                let sum = load_f32x16(&sums[t][r]);
                store_f32x16(&mut sums[t][r], _mm512_fmadd_ps(acc[t][r], scale, sum));
            }
        }
    }
}

/// Adds the products of four columns.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn step<const WORDS: usize, const SUMS: usize, const T: usize>(
    dots: &mut [[__m512i; 2]; T],
    codes: &[[u8; 64]; 2],
    tokens: &[&[Block<WORDS, SUMS>]; T],
    block: usize,
    word: usize,
) {
    let codes = [load_u8x64(&codes[0]), load_u8x64(&codes[1])];
    for t in 0..T {
        let four = tokens[t][block].q[word].map(i8::cast_unsigned);
        let four = _mm512_set1_epi32(i32::from_le_bytes(four));
        for r in 0..2 {
            dots[t][r] = _mm512_dpbusd_epi32(dots[t][r], codes[r], four);
        }
    }
}

/// Cut to one length that the compiler can see, or each load would be bounds-checked.
#[inline(always)]
fn cut<B, const T: usize>(tokens: [&[B]; T], n: usize) -> [&[B]; T] {
    let mut cut: [&[B]; T] = [&[]; T];
    for (cut, blocks) in cut.iter_mut().zip(tokens) {
        *cut = &blocks[..n];
    }
    cut
}
