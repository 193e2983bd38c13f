//! Tiles: the pieces that a product of several tokens is cut into for threads, caches and registers.
//!
//! A [`TileWatch`] observes them. The loops of `gemm/` are compiled twice: for [`NoSink`], which reads no clock, and for
//! a watch.

use std::ops::Range;

/// A level of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TileLevel {
    /// A thread's share of a product.
    Macro,
    /// A block of weights that stays in a core's own caches, with all tokens.
    Midi,
    /// Rows of weights by tokens whose sums stay in registers.
    Micro,
}

/// The work done between two readings of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileWork {
    /// The level.
    pub level: TileLevel,
    /// How many consecutive tiles of the level: more than one where a tile is too short to be timed by itself.
    pub tiles: u64,
    /// The number of sums added to: weight rows times tokens.
    pub elements: u64,
    /// A multiplication and an addition for each weight and token. Those of each level add up to the product's.
    pub flops: u64,
}

/// Observes the tiles of products of several tokens, on the threads that compute them.
pub trait TileWatch: Sync {
    /// Reads the clock; `None` while tiles aren't wanted.
    fn now(&self) -> Option<u64>;
    /// Some tiles were computed between these readings.
    fn tile(&self, work: TileWork, readings: Range<u64>);
    /// A product is done. `shares` has the readings of each thread that took part, out of a pool of `threads`.
    fn product(&self, shares: &[Range<u64>], threads: usize);
}

/// What a loop reports its tiles to.
pub(crate) trait TileSink: Copy {
    type Reading: Copy;
    fn now(self) -> Self::Reading;
    /// Reports what was computed between two readings.
    fn tile(self, work: impl FnOnce() -> TileWork, from: Self::Reading, to: Self::Reading);
}

/// Discards all reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoSink;

impl TileSink for NoSink {
    type Reading = ();

    #[inline(always)]
    fn now(self) {}

    #[inline(always)]
    fn tile(self, _: impl FnOnce() -> TileWork, (): (), (): ()) {}
}

impl TileSink for &dyn TileWatch {
    type Reading = Option<u64>;

    #[inline]
    fn now(self) -> Option<u64> {
        TileWatch::now(self)
    }

    #[inline]
    fn tile(self, work: impl FnOnce() -> TileWork, from: Option<u64>, to: Option<u64>) {
        if let (Some(from), Some(to)) = (from, to) {
            TileWatch::tile(self, work(), from..to);
        }
    }
}

/// The work of `tiles` tiles of a level, which together have this many rows and columns of weights and tokens.
pub(crate) fn work(
    level: TileLevel,
    tiles: usize,
    rows: usize,
    cols: usize,
    tokens: usize,
) -> TileWork {
    let elements = rows as u64 * tokens as u64;
    TileWork { level, tiles: tiles as u64, elements, flops: 2 * elements * cols as u64 }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::tests::{encode, laid_out, noise};
    use crate::{
        Backend, GROUP_ROWS, Inputs, Kernels, Matrix, QuantType, ThreadPool, can_be_interleaved,
    };

    /// Keeps all reports, with a clock that ticks at each reading.
    #[derive(Default)]
    struct Log {
        clock: AtomicU64,
        tiles: Mutex<Vec<(ThreadId, TileWork, Range<u64>)>>,
        products: Mutex<Vec<(Vec<Range<u64>>, usize)>>,
    }

    impl TileWatch for Log {
        fn now(&self) -> Option<u64> {
            Some(self.clock.fetch_add(1, Ordering::Relaxed))
        }
        fn tile(&self, work: TileWork, readings: Range<u64>) {
            self.tiles.lock().unwrap().push((thread::current().id(), work, readings));
        }
        fn product(&self, shares: &[Range<u64>], threads: usize) {
            self.products.lock().unwrap().push((shares.to_vec(), threads));
        }
    }

    #[test]
    fn the_flops_of_each_level_are_those_of_the_product_and_tiles_lie_in_each_other() {
        // Rows that aren't whole panels, columns that aren't whole depths, tokens that aren't whole tiles.
        let shapes = [(100, 768, 13, 2), (37, 1280, 2, 1), (20, 256, 7, 3)];
        // These can be interleaved, too.
        let groups = [(96, 768, 13, 2), (48, 512, 40, 2), (160, 256, 2, 1)];
        for (rows, cols, n, threads) in shapes.into_iter().chain(groups) {
            let pool = ThreadPool::new(NonZeroUsize::new(threads).unwrap()).unwrap();
            for backend in [Backend::Scalar, Backend::Avx2, Backend::Avx512, Backend::Neon] {
                let Ok(kernels) = Kernels::new(backend) else { continue };
                let can_be = |kind: &QuantType| rows % GROUP_ROWS == 0 && can_be_interleaved(*kind);
                let side_by_side =
                    QuantType::ALL.into_iter().filter(can_be).map(|kind| (kind, true));
                let by_row = QuantType::ALL.into_iter().map(|kind| (kind, false));
                for (kind, is_interleaved) in by_row.chain(side_by_side) {
                    let mut bytes = encode(kind, &noise(1, rows * cols));
                    let w = laid_out(kind, [rows, cols], is_interleaved, &mut bytes);
                    let what = format!("{w:?} on {backend:?}, {n} tokens");
                    let x: Vec<f32> = (0..n * cols).map(|i| (i % 7) as f32 - 3.0).collect();
                    let (mut told, mut untold) = (vec![0.0; n * rows], vec![0.0; n * rows]);
                    let log = Log::default();
                    let inputs = &mut Inputs::new(&x, n);
                    kernels.matmul_inputs(&pool, &mut told, w, inputs, Some(&log));
                    kernels.matmul_inputs(&pool, &mut untold, w, inputs, None);
                    assert_eq!(told, untold, "{what}");

                    let tiles = log.tiles.into_inner().unwrap();
                    let of = |level| tiles.iter().filter(move |(_, work, _)| work.level == level);
                    let flops = |level| of(level).map(|(_, work, _)| work.flops).sum::<u64>();
                    let all = 2 * (n * rows * cols) as u64;
                    assert_eq!(flops(TileLevel::Macro), all, "{what}");
                    let is_cut = of(TileLevel::Midi).count() > 0;
                    assert_eq!(is_cut, backend != Backend::Scalar, "{what}");
                    if is_cut {
                        assert_eq!(flops(TileLevel::Midi), all, "{what}");
                        assert_eq!(flops(TileLevel::Micro), all, "{what}");
                    }
                    for (inner, outer) in
                        [(TileLevel::Micro, TileLevel::Midi), (TileLevel::Midi, TileLevel::Macro)]
                    {
                        for (thread, _, time) in of(inner) {
                            let around = of(outer).filter(|(other, _, around)| {
                                thread == other
                                    && around.start <= time.start
                                    && time.end <= around.end
                            });
                            assert_eq!(around.count(), 1, "{what}: {inner:?} in {outer:?}");
                        }
                    }
                    let products = log.products.into_inner().unwrap();
                    let [(shares, of_pool)] = &products[..] else { panic!("{what}: one product") };
                    assert_eq!((shares.len(), *of_pool), (of(TileLevel::Macro).count(), threads));
                }
            }
        }
    }

    #[test]
    fn products_of_one_token_are_not_cut() {
        let bytes = encode(QuantType::Q8_0, &noise(1, 32 * 64));
        let w = Matrix::new(QuantType::Q8_0, 32, 64, &bytes).unwrap();
        let pool = ThreadPool::new(NonZeroUsize::MIN).unwrap();
        let log = Log::default();
        let x = [1.0; 64];
        let inputs = &mut Inputs::new(&x, 1);
        Kernels::best().matmul_inputs(&pool, &mut [0.0; 32], w, inputs, Some(&log));
        assert_eq!(log.clock.into_inner(), 0);
    }
}
