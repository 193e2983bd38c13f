//! Sixteen rows of weights side by side, so that a vector has a number of each.
//!
//! A loop over one row at a time adds up lanes, and takes the scales of each block apart on their own: on
//! AVX-512 that is more work than the products. With the same four bytes of sixteen rows side by side a lane is a
//! row, nothing is added up across lanes, and one vector has the scales of sixteen blocks. Besides, a core reads one
//! stream from its start to its end, which its prefetchers follow best.
//!
//! ```text
//! by row       row 0: block, block, …   row 1: block, block, …   …   row 15
//! interleaved  block 0: word of row 0, of row 1, … of row 15   next word: of row 0, … of row 15   …
//!              block 1: …
//!              the lone half floats of block 0: of row 0, … of row 15   of block 1: …
//! ```
//!
//! A word is four bytes, so that one of each row is a line of 64. Q6_K's blocks have a half float after their last
//! whole word. It is a permutation of the bytes of sixteen rows, a group: a matrix is as long as before, and each row
//! can be had again.
//!
//! The words of a block come in the order in which the loops take them: those of Q4_K as in the file, those of Q5_K
//! and Q6_K with the upper bits beside the rest of the codes, and scales first. Out of order it is two or three streams
//! in a page, of which the prefetchers of Zen 4 follow none: 9 GB/s for 27.

use crate::QuantType;
use crate::quant::{q4_k, q5_k, q6_k};

/// How many rows are side by side.
pub const GROUP_ROWS: usize = 16;

/// The words of a line.
pub(crate) type Line = [u8; 4 * GROUP_ROWS];
/// The lone half floats of a block.
pub(crate) type Halves = [u8; 2 * GROUP_ROWS];

pub(crate) const Q4_K_WORDS: usize = q4_k::BYTES / 4;
pub(crate) const Q5_K_WORDS: usize = q5_k::BYTES / 4;
pub(crate) const Q6_K_WORDS: usize = q6_k::BYTES / 4;

/// Where the lines of Q6_K's codes begin: after its scales.
pub(crate) const Q6_K_CODES: usize = 4;

/// The line that has some word of a block.
static Q4_K_LINES: [u8; Q4_K_WORDS] = in_order();
static Q5_K_LINES: [u8; Q5_K_WORDS] = q5_k_lines();
static Q6_K_LINES: [u8; Q6_K_WORDS] = q6_k_lines();

const fn in_order<const N: usize>() -> [u8; N] {
    let mut lines = [0; N];
    let mut word = 0;
    while word < N {
        lines[word] = word as u8;
        word += 1;
    }
    lines
}

/// For four columns of each sub-block: the word with their fifth bits, then those with their codes, two sub-blocks in
/// each.
const fn q5_k_lines() -> [u8; Q5_K_WORDS] {
    let mut lines = in_order();
    let (bits, codes) = (q5_k::QH / 4, q5_k::QS / 4);
    let mut step = 0;
    while step < 8 {
        let first = bits + 5 * step;
        lines[bits + step] = first as u8;
        let mut c = 0;
        while c < 4 {
            lines[codes + 8 * c + step] = (first + 1 + c) as u8;
            c += 1;
        }
        step += 1;
    }
    lines
}

/// Of each half of a block, for four columns after four columns: the word with the codes of the first and third
/// quarter of the half, that of the second and fourth, that of their upper bits.
const fn q6_k_lines() -> [u8; Q6_K_WORDS] {
    let mut lines = [0; Q6_K_WORDS];
    let mut line = 0;
    while line < Q6_K_CODES {
        lines[q6_k::SCALES / 4 + line] = line as u8;
        line += 1;
    }
    let mut step = 0;
    while step < 16 {
        let (half, word) = (step / 8, step % 8);
        lines[16 * half + word] = line as u8;
        lines[16 * half + 8 + word] = line as u8 + 1;
        lines[q6_k::QH / 4 + 8 * half + word] = line as u8 + 2;
        line += 3;
        step += 1;
    }
    lines
}

/// How a block's bytes are spread.
#[derive(Debug, Clone, Copy)]
struct Spread {
    /// The line of each whole word.
    lines: &'static [u8],
    /// Whether a half float follows the last.
    has_half: bool,
}

fn spread(kind: QuantType) -> Option<Spread> {
    match kind {
        QuantType::Q4_K => Some(Spread { lines: &Q4_K_LINES, has_half: false }),
        QuantType::Q5_K => Some(Spread { lines: &Q5_K_LINES, has_half: false }),
        QuantType::Q6_K => Some(Spread { lines: &Q6_K_LINES, has_half: true }),
        _ => None,
    }
}

/// Whether this type has an interleaved layout.
#[must_use]
pub fn can_be_interleaved(kind: QuantType) -> bool {
    spread(kind).is_some()
}

/// The line of a block that has the word which begins `at` bytes from its start.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn line_of(kind: QuantType, at: usize) -> usize {
    debug_assert!(at.is_multiple_of(4));
    let lines: &[u8] = match kind {
        QuantType::Q5_K => &Q5_K_LINES,
        QuantType::Q6_K => &Q6_K_LINES,
        // In order; a table of those would be read each time.
        _ => return at / 4,
    };
    usize::from(lines[at / 4])
}

/// Turns whole groups of [`GROUP_ROWS`] rows of `cols` weights, one row after the other, into interleaved ones, in
/// the same place. A [`Matrix::interleaved`](crate::Matrix::interleaved) reads them.
///
/// Groups don't depend on each other, so that several threads can take some each. One group's bytes are copied
/// beside, and no more.
///
/// # Panics
///
/// If the type has no such layout ([`can_be_interleaved`]), `cols` isn't whole blocks, or `rows` isn't whole groups.
pub fn interleave(kind: QuantType, cols: usize, rows: &mut [u8]) {
    let spread = spread(kind).unwrap_or_else(|| panic!("interleave: {kind} has no such layout"));
    let (blocks, rest) = (cols / kind.block_len(), cols % kind.block_len());
    let row_bytes = blocks * kind.block_bytes();
    let group_bytes = GROUP_ROWS * row_bytes;
    assert!(
        rest == 0 && (rows.is_empty() || group_bytes > 0 && rows.len().is_multiple_of(group_bytes)),
        "interleave: {} bytes aren't whole groups of {GROUP_ROWS} rows of {cols} weights of {kind}",
        rows.len()
    );
    if rows.is_empty() {
        return;
    }
    let mut by_row = vec![0; group_bytes];
    for group in rows.chunks_exact_mut(group_bytes) {
        by_row.copy_from_slice(group);
        match kind {
            QuantType::Q4_K => interleave_group::<{ q4_k::BYTES }>(spread, &by_row, group),
            QuantType::Q5_K => interleave_group::<{ q5_k::BYTES }>(spread, &by_row, group),
            _ => interleave_group::<{ q6_k::BYTES }>(spread, &by_row, group),
        }
    }
}

/// With the length of a block known at compile time a word is one load and one store.
fn interleave_group<const BYTES: usize>(spread: Spread, by_row: &[u8], out: &mut [u8]) {
    let blocks = by_row.len() / GROUP_ROWS / BYTES;
    let (lines, halves) = out.split_at_mut(blocks * spread.lines.len() * size_of::<Line>());
    let lines = lines.as_chunks_mut().0.chunks_exact_mut(spread.lines.len());
    let mut rows = [[].as_slice(); GROUP_ROWS];
    for (row, bytes) in rows.iter_mut().zip(by_row.chunks_exact(blocks * BYTES)) {
        *row = bytes.as_chunks::<BYTES>().0;
    }
    for (b, lines) in lines.enumerate() {
        let blocks = rows.map(|row| &row[b]);
        for (word, &line) in spread.lines.iter().enumerate() {
            let line: &mut Line = &mut lines[usize::from(line)];
            for (out, block) in line.as_chunks_mut::<4>().0.iter_mut().zip(blocks) {
                *out = block.as_chunks().0[word];
            }
        }
    }
    for (b, halves) in halves.as_chunks_mut::<{ size_of::<Halves>() }>().0.iter_mut().enumerate() {
        for (half, row) in halves.as_chunks_mut::<2>().0.iter_mut().zip(rows) {
            half.copy_from_slice(&row[b][BYTES - 2..]);
        }
    }
}

/// Appends one row of an interleaved group, the `row`th, to `out`, as it was before.
pub(crate) fn row_of(kind: QuantType, group: &[u8], row: usize, out: &mut Vec<u8>) {
    let spread = spread(kind).expect("an interleaved matrix is of such a type");
    let (lines, halves) = parts(kind, group);
    let mut halves = halves.iter();
    for lines in lines.chunks_exact(spread.lines.len()) {
        for &line in spread.lines {
            out.extend_from_slice(&lines[usize::from(line)].as_chunks::<4>().0[row]);
        }
        if let Some(halves) = halves.next() {
            out.extend_from_slice(&halves.as_chunks::<2>().0[row]);
        }
    }
}

/// The lines of an interleaved group, so many for each block, and the lone half floats.
#[inline]
pub(crate) fn parts(kind: QuantType, group: &[u8]) -> (&[Line], &[Halves]) {
    let has_half = spread(kind).is_some_and(|spread| spread.has_half);
    let blocks = group.len() / GROUP_ROWS / kind.block_bytes();
    let halves = if has_half { blocks * size_of::<Halves>() } else { 0 };
    let (lines, halves) = group.split_at(group.len() - halves);
    (lines.as_chunks().0, halves.as_chunks().0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Matrix;
    use crate::tests::noise;

    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        noise(seed, len).iter().map(|x| ((x + 1.0) * 128.0) as u8).collect()
    }

    fn kinds() -> impl Iterator<Item = QuantType> {
        QuantType::ALL.into_iter().filter(|kind| can_be_interleaved(*kind))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 64 }, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn each_row_comes_back(
            groups in 1usize..4, blocks in 1usize..8, shift in 0usize..3, seed in any::<u64>()
        ) {
            for kind in kinds() {
                let (rows, cols) = (GROUP_ROWS * groups, blocks * kind.block_len());
                let row_bytes = blocks * kind.block_bytes();
                let by_row = bytes(seed, rows * row_bytes);
                // At any alignment.
                let mut interleaved = [&vec![0; shift], &by_row[..]].concat();
                interleave(kind, cols, &mut interleaved[shift..]);
                let w = Matrix::interleaved(kind, rows, cols, &interleaved[shift..]).unwrap();
                for (i, row) in by_row.chunks_exact(row_bytes).enumerate() {
                    prop_assert_eq!(&w.row_bytes(i)[..], row, "{}, row {}", kind, i);
                }
                let sorted = |bytes: &[u8]| {
                    let mut bytes = bytes.to_vec();
                    bytes.sort_unstable();
                    bytes
                };
                prop_assert_eq!(sorted(&by_row), sorted(&interleaved[shift..]));
            }
        }
    }

    #[test]
    fn a_line_has_the_same_word_of_sixteen_rows() {
        for kind in kinds() {
            let cols = 3 * kind.block_len();
            let row_bytes = 3 * kind.block_bytes();
            let by_row = bytes(1, 2 * GROUP_ROWS * row_bytes);
            let mut interleaved = by_row.clone();
            interleave(kind, cols, &mut interleaved);
            let words = kind.block_bytes() / 4;
            let (group, block) = (1, 2);
            let from = group * GROUP_ROWS * row_bytes;
            let mut seen = vec![false; words];
            for word in 0..words {
                let line = usize::from(spread(kind).unwrap().lines[word]);
                assert!(!std::mem::replace(&mut seen[line], true), "{kind}: line {line} twice");
                for row in 0..GROUP_ROWS {
                    let at = from + (block * words + line) * 64 + 4 * row;
                    let of = from + row * row_bytes + block * kind.block_bytes() + 4 * word;
                    assert_eq!(interleaved[at..at + 4], by_row[of..of + 4], "{kind}");
                }
            }
        }
    }

    #[test]
    fn the_half_floats_of_q6_k_are_at_the_end_of_their_group() {
        let kind = QuantType::Q6_K;
        let mut rows = vec![0; GROUP_ROWS * 2 * q6_k::BYTES];
        for (i, block) in rows.chunks_exact_mut(q6_k::BYTES).enumerate() {
            block[q6_k::D..].copy_from_slice(&[i as u8, 100]);
        }
        interleave(kind, 2 * kind.block_len(), &mut rows);
        let halves = &rows[2 * Q6_K_WORDS * 64..];
        for (i, half) in halves.chunks_exact(2).enumerate() {
            assert_eq!(half, [(i % 16 * 2 + i / 16) as u8, 100]);
        }
        assert_eq!(halves.len(), 2 * 32);
    }

    #[test]
    #[should_panic = "1152 bytes aren't whole groups of 16 rows of 256 weights of q4_k"]
    fn half_a_group_is_refused() {
        interleave(QuantType::Q4_K, 256, &mut [0; 8 * 144]);
    }

    #[test]
    #[should_panic = "q8_0 has no such layout"]
    fn a_type_without_such_a_layout_is_refused() {
        interleave(QuantType::Q8_0, 32, &mut []);
    }
}
