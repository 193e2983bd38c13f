//! Q8_0 rows. `quant/q8_0.rs` describes the layout.
//!
//! Codes are signed, so 128 is added to each. What that adds to a lane's sum is subtracted from its initial value.
//! Blocks are taken eight at a time, so that their scales fill one vector.

use std::arch::x86_64::*;

use super::{by_fours, side_by_side};
use crate::activations::Activations;
use crate::lanes::wide::{load_i8x64, load_i32x16, load_u8, sum16};
use crate::lanes::{load, piece, prefetch_ahead_of_four};
use crate::quant::q8_0::{BYTES, LEN};

/// How many blocks are taken together.
const EIGHT: usize = 8;

/// The activations of eight blocks each. Missing blocks at the end have scales of zero.
#[derive(Debug)]
pub(super) struct Arranged {
    n_blocks: usize,
    eights: Vec<EightBlocks>,
}

/// The activations of eight blocks. Aligned, because a load that crosses a cache line takes two.
#[derive(Debug)]
#[repr(align(64))]
struct EightBlocks {
    /// Two blocks in each.
    q: [[i8; 2 * LEN]; 4],
    /// The initial values of their sums.
    begin: [[i32; 16]; 4],
    scales: [f32; EIGHT],
}

#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn gemv(out: &mut [f32], bytes: &[u8], x: &Arranged) {
    let row_bytes = x.n_blocks * BYTES;
    let x = &x.eights;
    for at in by_fours(out.len()) {
        let rows = at.map(|i| &bytes[i * row_bytes..][..row_bytes]);
        let mut acc = [[_mm512_setzero_ps(); 2]; 4];
        for (eights, x) in side_by_side::<{ EIGHT * BYTES }>(rows).zip(x) {
            for (acc, eight) in acc.iter_mut().zip(eights) {
                add(acc, eight, x);
            }
        }
        for (acc, row) in acc.iter_mut().zip(rows) {
            let (eights, last) = row.as_chunks::<{ EIGHT * BYTES }>();
            if !last.is_empty() {
                // Pads with zeros: scales of zero add nothing.
                let mut eight = [0; EIGHT * BYTES];
                eight[..last.len()].copy_from_slice(last);
                add(acc, &eight, &x[eights.len()]);
            }
        }
        for (i, [a, b]) in at.into_iter().zip(acc) {
            out[i] = sum16(_mm512_add_ps(a, b));
        }
    }
}

/// Adds the products of eight blocks.
#[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn add(acc: &mut [__m512; 2], eight: &[u8; EIGHT * BYTES], x: &EightBlocks) {
    for line in [0, 64, 128, 192] {
        prefetch_ahead_of_four(&eight[line..]);
    }
    let scale = |i: usize| i16::from_le_bytes(*piece(eight, BYTES * i));
    let scales = _mm_set_epi16(
        scale(7),
        scale(6),
        scale(5),
        scale(4),
        scale(3),
        scale(2),
        scale(1),
        scale(0),
    );
    let scales = _mm256_mul_ps(_mm256_cvtph_ps(scales), load(&x.scales));
    let scales = _mm512_castps256_ps512(scales);
    for i in 0..4 {
        let block = |i: usize| load_u8(piece(eight, BYTES * i + 2));
        let codes = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(block(2 * i)), block(2 * i + 1));
        let codes = _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
        let dot = _mm512_dpbusd_epi32(load_i32x16(&x.begin[i]), codes, load_i8x64(&x.q[i]));
        let (a, b) = (2 * i as i32, 2 * i as i32 + 1);
        let both = _mm512_set_epi32(b, b, b, b, b, b, b, b, a, a, a, a, a, a, a, a);
        let scale = _mm512_permutexvar_ps(both, scales);
        acc[i % 2] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dot), acc[i % 2]);
    }
}

pub(super) fn arrange(x: &Activations) -> Arranged {
    let q = x.q.as_chunks::<LEN>().0.chunks(EIGHT);
    let sums = x.sums.as_chunks::<8>().0.chunks(EIGHT);
    let eights = q.zip(sums).zip(x.scales.chunks(EIGHT)).map(|((q, sums), scales)| {
        let mut of =
            EightBlocks { q: [[0; 2 * LEN]; 4], begin: [[0; 16]; 4], scales: [0.0; EIGHT] };
        of.scales[..scales.len()].copy_from_slice(scales);
        for (i, (q, sums)) in q.iter().zip(sums).enumerate() {
            of.q[i / 2][LEN * (i % 2)..][..LEN].copy_from_slice(q);
            let begin = &mut of.begin[i / 2][8 * (i % 2)..][..8];
            begin.iter_mut().zip(sums).for_each(|(begin, sum)| *begin = -128 * sum);
        }
        of
    });
    Arranged { n_blocks: x.scales.len(), eights: eights.collect() }
}
