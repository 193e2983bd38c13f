//! Activations in the form that strips read: those of each column side by side.

use std::arch::x86_64::_mm512_setzero_ps;
use std::ops::Range;

use crate::gemm::TILE_TOKENS;
use crate::gemm::pieces::Aligned;
use crate::lanes::wide::{load_f32x16, store_f32x16, transpose};
use crate::scratch::Scratch;

/// The tokens in a vector.
pub(super) const LANES: usize = 16;
const _: () = assert!(TILE_TOKENS == 2 * LANES);
/// One column of a tile, padded with zeros if the tile has fewer tokens.
pub(super) type Column = Aligned<[[f32; LANES]; 2]>;

static COLUMNS: Scratch<Column> = Scratch::new();

/// A tile of tokens.
#[derive(Debug)]
pub(super) struct Tile {
    n: usize,
    columns: Vec<Column>,
}

impl Tile {
    pub(super) fn n(&self) -> usize {
        self.n
    }

    pub(super) fn columns(&self, depth: Range<usize>) -> &[Column] {
        &self.columns[depth]
    }

    /// Up to [`TILE_TOKENS`] rows.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn new(rows: &[&[f32]]) -> Self {
        let cols = rows[0].len();
        let mut columns = COLUMNS.take();
        columns.clear();
        columns.reserve(cols);
        let mut some = [Aligned([[0.0; LANES]; 2]); LANES];
        let whole = cols - cols % LANES;
        for at in (0..whole).step_by(LANES) {
            for (half, rows) in rows.chunks(LANES).enumerate() {
                let mut lanes = [_mm512_setzero_ps(); LANES];
                for (lanes, row) in lanes.iter_mut().zip(rows) {
                    *lanes = load_f32x16(row[at..].first_chunk().expect("whole sixteens"));
                }
                for (column, lanes) in some.iter_mut().zip(transpose(lanes)) {
                    store_f32x16(&mut column.0[half], lanes);
                }
            }
            columns.extend_from_slice(&some);
        }
        for at in whole..cols {
            let mut column = Aligned([[0.0; LANES]; 2]);
            for (lane, row) in column.0.as_flattened_mut().iter_mut().zip(rows) {
                *lane = row[at];
            }
            columns.push(column);
        }
        Self { n: rows.len(), columns }
    }
}

impl Drop for Tile {
    fn drop(&mut self) {
        COLUMNS.put(std::mem::take(&mut self.columns));
    }
}

/// How many of `n` tokens are multiplied together. Up to 8 cost half a vector, up to 16 one, more than that two.
fn first_tile(n: usize) -> usize {
    const HALF: usize = LANES / 2;
    match n {
        ..=LANES => n,
        _ if n <= LANES + HALF => LANES,
        _ => n.min(TILE_TOKENS),
    }
}

/// Rows of activations, in tiles.
#[derive(Debug)]
pub(crate) struct Packed(Vec<Tile>);

impl Packed {
    /// Packs `n` rows, at least one, that aren't empty.
    #[target_feature(enable = "avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(crate) fn new(x: &[f32], n: usize) -> Self {
        let rows: Vec<&[f32]> = x.chunks_exact(x.len() / n).collect();
        let (mut rest, mut tiles) = (&rows[..], Vec::with_capacity(n.div_ceil(TILE_TOKENS) + 1));
        while !rest.is_empty() {
            let (rows, others) = rest.split_at(first_tile(rest.len()));
            tiles.push(Tile::new(rows));
            rest = others;
        }
        Self(tiles)
    }

    pub(super) fn tiles(&self) -> &[Tile] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn few_tokens_more_than_a_vector_cost_half_a_vector_more() {
        for (n, expected) in [
            (1, vec![1]),
            (16, vec![16]),
            (17, vec![16, 1]),
            (24, vec![16, 8]),
            (25, vec![25]),
            (32, vec![32]),
            (94, vec![32, 32, 30]),
            (128, vec![32, 32, 32, 32]),
        ] {
            let (mut rest, mut tiles) = (n, Vec::new());
            while rest > 0 {
                tiles.push(super::first_tile(rest));
                rest -= tiles.last().expect("just pushed");
            }
            assert_eq!(tiles, expected, "{n} tokens");
        }
    }
}
