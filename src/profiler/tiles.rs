//! Tiles of kernels: switched, timed and summed.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::{BrickStats, TileBalance, TileLevel, TileStats, TileThread};

use super::{BrickProfiler, TileTimer, short_forms};
use crate::recorder::Owner;
use crate::row::TileWork;

/// Times the tiles of a profiler's kernels: the cache-blocked pieces of a computation. Made by
/// [`BrickProfiler::tiles`].
///
/// Tiles are off by default. They are timed while both they and the profiler are on.
///
/// ```
/// use brickscope::{BrickProfiler, TileLevel};
///
/// let profiler = BrickProfiler::enabled();
/// let tiles = profiler.tiles();
/// tiles.enable();
/// let timer = tiles.start(TileLevel::Macro, 0, 0);
/// // … the tile …
/// tiles.stop(timer, 64 * 64, 2 * 64 * 64 * 64);
/// assert_eq!(tiles.stats(TileLevel::Macro).count, 1);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TileRecorder<'p>(pub(super) &'p BrickProfiler);

/// # Timing tiles
impl TileRecorder<'_> {
    /// Turns the timing of tiles on.
    pub fn enable(self) {
        self.0.tiles_enabled.store(true, Relaxed);
    }

    /// Turns the timing of tiles off.
    pub fn disable(self) {
        self.0.tiles_enabled.store(false, Relaxed);
    }

    /// Whether tiles are timed while the profiler is on.
    #[inline]
    #[must_use]
    pub fn is_enabled(self) -> bool {
        self.0.tiles_enabled.load(Relaxed)
    }

    /// Begins the tile at `row`, `col` among those of its level.
    #[inline]
    pub fn start(self, level: TileLevel, row: u32, col: u32) -> TileTimer {
        TileTimer { level, row, col, start: self.reading() }
    }

    /// Ends a tile that processed `elements` elements with `flops` floating-point operations.
    #[inline]
    pub fn stop(self, timer: TileTimer, elements: u64, flops: u64) {
        if let Some(start) = timer.start
            && self.0.recorder.is_active()
        {
            self.0.recorder.add_tile(timer.level as u16, start, work(1, elements, flops));
        }
    }

    /// A reading of the clock, for tiles that follow each other without a gap: the end of one is the begin of the
    /// next. `None` while tiles are not timed.
    #[inline]
    #[must_use]
    pub fn reading(self) -> Option<u64> {
        let on = self.is_enabled() && self.0.recorder.is_active();
        on.then(|| self.0.recorder.clock().now())
    }

    /// Adds what this thread computed between two [readings](Self::reading): one tile, or a run of `tiles` of them
    /// if each is too short for readings of its own.
    #[inline]
    pub fn add(
        self,
        level: TileLevel,
        readings: Range<u64>,
        tiles: u64,
        elements: u64,
        flops: u64,
    ) {
        if self.0.recorder.is_active() {
            let work = work(tiles, elements, flops);
            self.0.recorder.add_tile_of(level as u16, readings.start, readings.end, work);
        }
    }

    /// Adds a product that `threads` threads shared. `slowest` has the [readings](Self::reading) of its longest
    /// share. See [`TileBalance`].
    pub fn add_product(self, slowest: Range<u64>, threads: u64) {
        if self.0.recorder.is_active() {
            let longest = slowest.end.saturating_sub(slowest.start);
            let offered = longest.saturating_mul(threads);
            self.0.recorder.add_product(slowest.start, longest, offered);
        }
    }
}

/// # What tiles did
impl TileRecorder<'_> {
    /// What the tiles of one level did.
    #[must_use]
    pub fn stats(self, level: TileLevel) -> TileStats {
        let (mut runs, mut tiles) = (BrickStats::new(""), 0);
        self.0
            .recorder
            .collect(|log| log.fold().tiles(level as usize).add_to(&mut runs, &mut tiles));
        TileStats::from_sums(level, &runs, tiles)
    }

    /// What the tiles of each level did, from the largest level to the smallest.
    #[must_use]
    pub fn all_stats(self) -> [TileStats; 3] {
        let mut sums = TileLevel::ALL.map(|level| (level, BrickStats::new(""), 0));
        // One look at the logs for all of them.
        self.0.recorder.collect(|log| {
            for (level, runs, tiles) in &mut sums {
                log.fold().tiles(*level as usize).add_to(runs, tiles);
            }
        });
        sums.map(|(level, runs, tiles)| TileStats::from_sums(level, &runs, tiles))
    }

    /// What the tiles of each thread did. Threads without tiles are left out; the others come in the order in which
    /// they first recorded.
    #[must_use]
    pub fn threads(self) -> Vec<TileThread> {
        let mut threads = Vec::new();
        self.0.recorder.collect(|log| {
            let of = |level: TileLevel| {
                let (mut runs, mut tiles) = (BrickStats::new(""), 0);
                log.fold().tiles(level as usize).add_to(&mut runs, &mut tiles);
                TileStats::from_sums(level, &runs, tiles)
            };
            let tiles: Vec<_> = TileLevel::ALL.map(of).into_iter().filter(were_timed).collect();
            if !tiles.is_empty() {
                let lane = log.lane();
                let Owner { name, tid } = lane.thread;
                threads.push((lane.serial, TileThread { name, tid, tiles }));
            }
        });
        // Logs come in the order of the threads' numbers in the process, and a number is reused after its thread
        // has ended.
        threads.sort_by_key(|(serial, _)| *serial);
        threads.into_iter().map(|(_, thread)| thread).collect()
    }

    /// How evenly threads shared products. `None` if no product was [added](Self::add_product).
    #[must_use]
    pub fn balance(self) -> Option<TileBalance> {
        let (mut longest, mut offered_ns) = (BrickStats::new(""), 0);
        self.0.recorder.collect(|log| log.fold().products().add_to(&mut longest, &mut offered_ns));
        (longest.count > 0).then(|| TileBalance {
            products: longest.count,
            slowest_ns: longest.total_ns,
            offered_ns,
            worked_ns: self.stats(TileLevel::Macro).total_ns,
        })
    }

    /// A table of the tiles by level.
    #[must_use]
    pub fn summary(self) -> String {
        short_forms::tile_table(&self.all_stats())
    }

    /// The tiles as JSON.
    #[must_use]
    pub fn to_json(self) -> String {
        short_forms::tiles_json(self.is_enabled(), &self.all_stats())
    }

    /// Forgets all tiles, and nothing else.
    pub fn reset(self) {
        self.0.recorder.collect(|mut log| log.forget_tiles());
    }
}

/// The work of tiles as a record carries it.
fn work(tiles: u64, elements: u64, flops: u64) -> TileWork {
    TileWork { tiles, elements, flops }
}

pub(super) fn were_timed(stats: &TileStats) -> bool {
    stats.count > 0
}
