//! Sixteen rows of weights side by side, so that one vector holds a number from each.
//!
//! A loop over one row at a time must add up the lanes of a vector, and unpack the scales of each block by itself: on
//! AVX-512 that is more work than the products. With the same four bytes of sixteen rows side by side, each lane is a
//! row, nothing is added up across lanes, and one vector holds the scales of sixteen blocks. Besides, a core then reads
//! one stream from start to end, which its prefetchers follow best.
//!
//! ```text
//! by row       row 0: block, block, …   row 1: block, block, …   …   row 15
//! interleaved  block 0: word of row 0, of row 1, … of row 15   next word: of row 0, … of row 15   …
//!              block 1: …
//!
//! with lone    the half floats of block 0: of row 0, … of row 15   of block 1: of row 0, … of row 15
//! half floats  the words of block 0   the words of block 1
//!              the half floats of blocks 2 and 3   …
//!              a last block without a partner: its words   its half floats
//!
//! floats       column 0: of row 0, … of row 15   column 1: …
//! ```
//!
//! A word is four bytes, so one word of each row makes a line of 64 bytes. Blocks of some types also have a lone half
//! float, before or after their words; those of two blocks share a line, which comes before the words that they scale.
//! A float is a block of its own: F32 has one word, F16 and BF16 a half float and no words.
//!
//! Where the first word of a block is two half floats, the first line has the first of each row, then the second of each.
//!
//! The layout rearranges the bytes of sixteen rows, which form a group, and of Q5_K and Q6_K also the bits of the codes:
//! see `interleave/codes.rs`. The matrix keeps its size, and each row can be restored. Some consecutive blocks of a group are a group
//! of shorter rows, provided that they begin with an even block and don't separate an even block from the next.
//!
//! All lines come in the order in which the loops read them. For Q5_K and Q6_K, that puts the upper bits beside the
//! rest of the codes, and the scales first; for other types it is the order of the file. In any other order, a loop
//! reads two or three streams within a page, and Zen 4's prefetchers follow none of them: 9 GB/s instead of 27.

mod codes;

use crate::QuantType;
use crate::quant::{q4_0, q4_k, q5_k, q6_k, q8_0, ternary};

pub(crate) use codes::FIRST_STEP;
use codes::Step;

/// How many rows lie side by side.
pub const GROUP_ROWS: usize = 16;

/// One word of each of sixteen rows.
pub(crate) type Line = [u8; 4 * GROUP_ROWS];
/// The lone half floats of one block of each of sixteen rows.
pub(crate) type Halves = [u8; 2 * GROUP_ROWS];

pub(crate) const Q4_K_WORDS: usize = q4_k::BYTES / 4;
pub(crate) const Q5_K_WORDS: usize = q5_k::BYTES / 4;
pub(crate) const Q6_K_WORDS: usize = q6_k::BYTES / 4;
pub(crate) const Q4_0_WORDS: usize = q4_0::BYTES / 4;
pub(crate) const Q8_0_WORDS: usize = q8_0::BYTES / 4;
pub(crate) const TQ2_0_WORDS: usize = ternary::TQ2_0_BYTES / 4;

const _: () = assert!(q5_k::QH == 4 * FIRST_STEP);

/// For each word of a block, the line that holds it.
static Q4_K_LINES: [u8; Q4_K_WORDS] = in_order();
static Q5_K_LINES: [u8; Q5_K_WORDS] = q5_k_lines();
static Q6_K_LINES: [u8; Q6_K_WORDS] = q6_k_lines();
static Q4_0_LINES: [u8; Q4_0_WORDS] = in_order();
static Q8_0_LINES: [u8; Q8_0_WORDS] = in_order();
static TQ2_0_LINES: [u8; TQ2_0_WORDS] = in_order();
static F32_LINES: [u8; 1] = in_order();

const fn in_order<const N: usize>() -> [u8; N] {
    let mut lines = [0; N];
    let mut word = 0;
    while word < N {
        lines[word] = word as u8;
        word += 1;
    }
    lines
}

/// For every four columns of the sub-blocks: the word with their fifth bits, then those with their codes, two
/// sub-blocks in each.
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

/// For each half of a block and every four columns: the word with the codes of the half's first and third quarters,
/// the word with those of the second and fourth, and the word with their upper bits.
const fn q6_k_lines() -> [u8; Q6_K_WORDS] {
    let mut lines = [0; Q6_K_WORDS];
    let mut line = 0;
    while line < FIRST_STEP {
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

/// How the bytes of a type's block are distributed.
#[derive(Debug, Clone, Copy)]
struct Spread {
    /// The line of each word.
    lines: &'static [u8],
    /// The position of a lone half float in a block, if it has one.
    half: Option<Half>,
    /// Whether the first word is two half floats.
    pair: bool,
    /// The lines whose codes are put together anew, if any: all after the first four.
    step: Option<Step>,
}

/// Moves the first half float of each word before the second of each.
#[inline(always)]
fn set_pairs_apart(line: &mut Line) {
    let pairs = *line;
    let (first, second) = line.split_at_mut(size_of::<Halves>());
    let to = first.as_chunks_mut().0.iter_mut().zip(second.as_chunks_mut().0);
    for ((first, second), &[a, b, c, d]) in to.zip(pairs.as_chunks().0) {
        (*first, *second) = ([a, b], [c, d]);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    /// Before all words.
    First,
    /// After all words.
    Last,
}

/// Byte offsets of the parts of a block.
#[derive(Debug, Clone, Copy)]
struct Offsets {
    lines: usize,
    /// Meaningful only if the type has lone half floats.
    halves: usize,
}

impl Spread {
    /// The size of one block of sixteen rows, in bytes.
    #[inline(always)]
    fn block_bytes(self) -> usize {
        let halves = if self.half.is_some() { size_of::<Halves>() } else { 0 };
        self.lines.len() * size_of::<Line>() + halves
    }

    /// Where block `b` of a group of `n` blocks begins.
    #[inline(always)]
    fn offsets(self, b: usize, n: usize) -> Offsets {
        let begin = b * self.block_bytes();
        match self.half {
            None => Offsets { lines: begin, halves: begin },
            // An odd block's half floats follow those of the block before it, before the lines of either.
            Some(_) if b % 2 == 1 => Offsets {
                lines: begin + size_of::<Halves>(),
                halves: begin - self.block_bytes() + size_of::<Halves>(),
            },
            Some(_) if b + 1 < n => Offsets { lines: begin + size_of::<Line>(), halves: begin },
            Some(_) => {
                Offsets { lines: begin, halves: begin + self.lines.len() * size_of::<Line>() }
            }
        }
    }

    /// Where the first word and the half float, if any, lie within a block of a file.
    #[inline(always)]
    fn in_file(self) -> Offsets {
        match self.half {
            None => Offsets { lines: 0, halves: 0 },
            Some(Half::First) => Offsets { lines: 2, halves: 0 },
            Some(Half::Last) => Offsets { lines: 0, halves: 4 * self.lines.len() },
        }
    }
}

#[inline(always)]
fn spread(kind: QuantType) -> Option<Spread> {
    let (lines, half): (&[u8], _) = match kind {
        QuantType::Q4_K => (&Q4_K_LINES, None),
        QuantType::Q5_K => (&Q5_K_LINES, None),
        QuantType::Q6_K => (&Q6_K_LINES, Some(Half::Last)),
        QuantType::Q4_0 => (&Q4_0_LINES, Some(Half::First)),
        QuantType::Q8_0 => (&Q8_0_LINES, Some(Half::First)),
        QuantType::TQ2_0 => (&TQ2_0_LINES, Some(Half::Last)),
        QuantType::F32 => (&F32_LINES, None),
        QuantType::F16 | QuantType::BF16 => (&[], Some(Half::First)),
        _ => return None,
    };
    let step = match kind {
        QuantType::Q5_K => Some(Step::Five),
        QuantType::Q6_K => Some(Step::Three),
        _ => None,
    };
    let pair = matches!(kind, QuantType::Q4_K | QuantType::Q5_K);
    Some(Spread { lines, half, pair, step })
}

/// Whether the type has an interleaved layout.
#[must_use]
pub fn can_be_interleaved(kind: QuantType) -> bool {
    spread(kind).is_some()
}

/// Interleaves whole groups of [`GROUP_ROWS`] rows of `cols` weights in place.
/// [`Matrix::interleaved`](crate::Matrix::interleaved) reads the result.
///
/// Groups are independent, so threads can share them out. Besides `rows`, this needs memory for one group.
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
            QuantType::Q4_0 => interleave_group::<{ q4_0::BYTES }>(spread, &by_row, group),
            QuantType::Q8_0 => interleave_group::<{ q8_0::BYTES }>(spread, &by_row, group),
            QuantType::TQ2_0 => {
                interleave_group::<{ ternary::TQ2_0_BYTES }>(spread, &by_row, group);
            }
            QuantType::F32 => interleave_singles(&by_row, group),
            QuantType::F16 | QuantType::BF16 => interleave_halves(&by_row, group),
            _ => interleave_group::<{ q6_k::BYTES }>(spread, &by_row, group),
        }
    }
}

/// With the length of a block known at compile time, a word is one load and one store.
#[inline(always)]
fn interleave_group<const BYTES: usize>(spread: Spread, by_row: &[u8], out: &mut [u8]) {
    let n = by_row.len() / GROUP_ROWS / BYTES;
    let mut rows = [[].as_slice(); GROUP_ROWS];
    for (row, bytes) in rows.iter_mut().zip(by_row.chunks_exact(n * BYTES)) {
        *row = bytes.as_chunks::<BYTES>().0;
    }
    let from = spread.in_file();
    for b in 0..n {
        let blocks = rows.map(|row| &row[b]);
        let to = spread.offsets(b, n);
        let lines = out[to.lines..].as_chunks_mut::<{ size_of::<Line>() }>().0;
        for (word, &line) in spread.lines.iter().enumerate() {
            let line = &mut lines[usize::from(line)];
            for (out, block) in line.as_chunks_mut().0.iter_mut().zip(blocks) {
                *out = piece::<4>(block, from.lines + 4 * word);
            }
        }
        if spread.pair {
            set_pairs_apart(&mut lines[0]);
        }
        if let Some(step) = spread.step {
            step.join(&mut lines[FIRST_STEP..spread.lines.len()]);
        }
        if spread.half.is_some() {
            let halves = out[to.halves..].as_chunks_mut().0;
            for (out, block) in halves.iter_mut().zip(blocks) {
                *out = piece::<2>(block, from.halves);
            }
        }
    }
}

// Interleaves floats, eight bytes of each row at a time. A macro, since with a known type the compiler vectorises
// the shifts and stores.
macro_rules! interleave_floats {
    ($name:ident, $bits:ty) => {
        fn $name(by_row: &[u8], out: &mut [u8]) {
            const EIGHT: usize = size_of::<u64>();
            const BYTES: usize = size_of::<$bits>();
            let row_bytes = by_row.len() / GROUP_ROWS;
            let mut rows = [[].as_slice(); GROUP_ROWS];
            for (row, bytes) in rows.iter_mut().zip(by_row.chunks_exact(row_bytes)) {
                *row = bytes;
            }
            for (i, some) in out.chunks_mut(EIGHT * GROUP_ROWS).enumerate() {
                // The last step takes the rest, which may be fewer.
                let eights = rows.map(|row| match row[EIGHT * i..].first_chunk() {
                    Some(bytes) => u64::from_le_bytes(*bytes),
                    None => {
                        row[EIGHT * i..].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
                    }
                });
                for (c, column) in some.chunks_exact_mut(BYTES * GROUP_ROWS).enumerate() {
                    let column: &mut [_; GROUP_ROWS] =
                        column.as_chunks_mut::<BYTES>().0.try_into().expect("one of each row");
                    *column =
                        eights.map(|eight| ((eight >> (8 * BYTES * c)) as $bits).to_le_bytes());
                }
            }
        }
    };
}

interleave_floats!(interleave_halves, u16);
interleave_floats!(interleave_singles, u32);

#[inline(always)]
fn piece<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    *block[at..].first_chunk().expect("a block's parts lie inside it")
}

/// Appends the blocks of row `row` of an interleaved group to `out`, in the order of a file.
pub(crate) fn row_of(kind: QuantType, group: &[u8], row: usize, out: &mut Vec<u8>) {
    // This row's float of every column.
    let mut floats = |bytes: usize| {
        for column in group.chunks_exact(bytes * GROUP_ROWS) {
            out.extend_from_slice(&column[bytes * row..][..bytes]);
        }
    };
    match kind {
        QuantType::F32 => return floats(4),
        QuantType::F16 | QuantType::BF16 => return floats(2),
        _ => {}
    }
    let spread = spread(kind).expect("an interleaved matrix is of such a type");
    let n = group.len() / spread.block_bytes();
    let mut words = vec![0; spread.lines.len()];
    for b in 0..n {
        let from = spread.offsets(b, n);
        let half = |halves: usize| piece::<2>(group, halves + 2 * row);
        if spread.half == Some(Half::First) {
            out.extend_from_slice(&half(from.halves));
        }
        let lines = &group[from.lines..].as_chunks::<{ size_of::<Line>() }>().0;
        for (word, line) in words.iter_mut().zip(*lines) {
            *word = u32::from_le_bytes(line.as_chunks::<4>().0[row]);
        }
        if spread.pair {
            let halves = lines[0].as_chunks::<2>().0;
            let [first, second] = [row, GROUP_ROWS + row].map(|i| u16::from_le_bytes(halves[i]));
            words[0] = u32::from(first) | u32::from(second) << 16;
        }
        if let Some(step) = spread.step {
            step.split(&mut words[FIRST_STEP..]);
        }
        for &line in spread.lines {
            out.extend_from_slice(&words[usize::from(line)].to_le_bytes());
        }
        if spread.half == Some(Half::Last) {
            out.extend_from_slice(&half(from.halves));
        }
    }
}

/// Some consecutive blocks of a group, as a group of shorter rows. If the type has lone half floats, the range must
/// begin with an even block, and end at the end of the row or before an even block.
#[cfg(target_arch = "x86_64")]
pub(crate) fn part(kind: QuantType, group: &[u8], blocks: std::ops::Range<usize>) -> &[u8] {
    let bytes = GROUP_ROWS * kind.block_bytes();
    let part = &group[blocks.start * bytes..blocks.end * bytes];
    debug_assert!(
        spread(kind).is_some_and(|spread| spread.half.is_none())
            || blocks.start.is_multiple_of(2)
                && (blocks.end.is_multiple_of(2) || blocks.end * bytes == group.len()),
        "{blocks:?}: splits two blocks of {kind} whose half floats share a line"
    );
    part
}

/// The number of blocks in each row of a group.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn blocks_in(kind: QuantType, group: &[u8]) -> usize {
    group.len() / (GROUP_ROWS * kind.block_bytes())
}

/// The lines of a block.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn lines_of(kind: QuantType, group: &[u8], block: usize) -> &[Line] {
    let spread = spread(kind).expect("an interleaved matrix is of such a type");
    let at = spread.offsets(block, blocks_in(kind, group)).lines;
    &group[at..].as_chunks().0[..spread.lines.len()]
}

/// The lone half floats of a block. The type must have some.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn halves_of(kind: QuantType, group: &[u8], block: usize) -> &Halves {
    let spread = spread(kind).expect("an interleaved matrix is of such a type");
    let at = spread.offsets(block, blocks_in(kind, group)).halves;
    group[at..].first_chunk().expect("a group has the half floats of all its blocks")
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
        #![proptest_config(brickscope_testing::cases(64))]

        #[test]
        fn each_row_comes_back(
            groups in 1usize..4, blocks in 1usize..8, shift in 0usize..3, seed in any::<u64>()
        ) {
            for kind in kinds() {
                let (rows, cols) = (GROUP_ROWS * groups, blocks * kind.block_len());
                let row_bytes = blocks * kind.block_bytes();
                let by_row = bytes(seed, rows * row_bytes);
                // Any alignment must work.
                let mut interleaved = [&vec![0; shift], &by_row[..]].concat();
                interleave(kind, cols, &mut interleaved[shift..]);
                let w = Matrix::interleaved(kind, rows, cols, &interleaved[shift..]).unwrap();
                for (i, row) in by_row.chunks_exact(row_bytes).enumerate() {
                    prop_assert_eq!(&w.row_bytes(i)[..], row, "{}, row {}", kind, i);
                }
                if spread(kind).unwrap().step.is_some() {
                    // The codes of these are put together anew.
                    continue;
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
            // The half floats of two blocks come in a line before them, those of the third after it.
            let (has_half, is_first) = match kind {
                QuantType::Q6_K | QuantType::TQ2_0 => (1, 0),
                QuantType::Q4_0 | QuantType::Q8_0 => (1, 1),
                // These are laid out by column, as the next test checks.
                QuantType::F16 | QuantType::BF16 => continue,
                _ => (0, 0),
            };
            for (group, block) in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)] {
                let from = group * GROUP_ROWS * row_bytes;
                let lines = from + 64 * (block * words + has_half);
                let spread = spread(kind).unwrap();
                let mut seen = vec![false; words];
                for word in 0..words {
                    let line = usize::from(spread.lines[word]);
                    assert!(!std::mem::replace(&mut seen[line], true), "{kind}: line {line} twice");
                    if spread.pair && line == 0 || spread.step.is_some() && line >= FIRST_STEP {
                        // The next tests check these.
                        continue;
                    }
                    for row in 0..GROUP_ROWS {
                        let at = lines + 64 * line + 4 * row;
                        let of = from + row * row_bytes + block * kind.block_bytes();
                        let of = of + 4 * word + 2 * is_first;
                        assert_eq!(interleaved[at..at + 4], by_row[of..of + 4], "{kind}");
                    }
                }
            }
        }
    }

    #[test]
    fn two_half_floats_in_a_word_are_set_apart() {
        for kind in [QuantType::Q4_K, QuantType::Q5_K] {
            let rows = bytes(4, GROUP_ROWS * kind.block_bytes());
            let mut lines = rows.clone();
            interleave(kind, kind.block_len(), &mut lines);
            for (row, block) in rows.chunks_exact(kind.block_bytes()).enumerate() {
                assert_eq!(lines[2 * row..][..2], block[..2], "{kind}");
                assert_eq!(lines[32 + 2 * row..][..2], block[2..4], "{kind}");
            }
        }
    }

    #[test]
    fn floats_are_column_after_column() {
        for kind in [QuantType::F32, QuantType::F16, QuantType::BF16] {
            let bytes = kind.block_bytes();
            for columns in [1, 2, 5] {
                let mut rows = Vec::new();
                for row in 0..GROUP_ROWS {
                    for column in 0..columns {
                        rows.extend(&[row as u8, column as u8, 0, 0][..bytes]);
                    }
                }
                interleave(kind, columns, &mut rows);
                for (i, float) in rows.chunks_exact(bytes).enumerate() {
                    let (column, row) = (i / GROUP_ROWS, i % GROUP_ROWS);
                    assert_eq!(float[..2], [row as u8, column as u8], "{kind}");
                }
            }
        }
    }

    #[test]
    fn lone_half_floats_are_before_their_two_blocks_and_the_last_behind_its_own() {
        let kinds = [
            (QuantType::Q6_K, q6_k::D),
            (QuantType::TQ2_0, ternary::TQ2_0_BYTES - 2),
            (QuantType::Q4_0, 0),
            (QuantType::Q8_0, 0),
        ];
        for (kind, at) in kinds {
            let (blocks, bytes) = (3, kind.block_bytes());
            let mut rows = vec![0; GROUP_ROWS * blocks * bytes];
            for (i, block) in rows.chunks_exact_mut(bytes).enumerate() {
                block[at..at + 2].copy_from_slice(&[i as u8, 100]);
            }
            interleave(kind, blocks * kind.block_len(), &mut rows);
            let of_two = &rows[..64];
            let of_last = &rows[rows.len() - 32..];
            for (i, half) in of_two.chunks_exact(2).chain(of_last.chunks_exact(2)).enumerate() {
                let (block, row) = (i / 16, i % 16);
                assert_eq!(half, [(row * blocks + block) as u8, 100], "{kind}");
            }
            let rest = &rows[64..rows.len() - 32];
            assert!(rest.iter().all(|byte| *byte == 0), "{kind}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn some_blocks_of_a_group_are_a_group() {
        for kind in kinds() {
            let (n, bytes) = (7, kind.block_bytes());
            let by_row = bytes_of_rows(n, bytes);
            let mut whole = by_row.clone();
            interleave(kind, n * kind.block_len(), &mut whole);
            for some in [0..2, 2..6, 4..7, 6..7, 0..7, 2..2] {
                let cut = by_row.chunks_exact(n * bytes);
                let cut = cut.flat_map(|row| &row[some.start * bytes..some.end * bytes]);
                let mut cut: Vec<u8> = cut.copied().collect();
                interleave(kind, some.len() * kind.block_len(), &mut cut);
                assert_eq!(part(kind, &whole, some.clone()), cut, "{kind} {some:?}");
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn bytes_of_rows(blocks: usize, block_bytes: usize) -> Vec<u8> {
        bytes(3, GROUP_ROWS * blocks * block_bytes)
    }

    #[test]
    #[should_panic = "1152 bytes aren't whole groups of 16 rows of 256 weights of q4_k"]
    fn half_a_group_is_refused() {
        interleave(QuantType::Q4_K, 256, &mut [0; 8 * 144]);
    }

    #[test]
    #[should_panic = "q4_1 has no such layout"]
    fn a_type_without_such_a_layout_is_refused() {
        interleave(QuantType::Q4_1, 32, &mut []);
    }
}
