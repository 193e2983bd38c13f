//! One matrix on many threads: each takes a share of the weight rows.
//!
//! With one token, the results of neighbouring rows lie together, so threads take slices, first of their own share and
//! then of others' ([`Shares`]). With `n` tokens, a row's results are a column of `out`: the shares interleave in
//! memory and can't be handed out as slices, so each thread gets a view of its columns ([`Columns`](crate::columns)).
//! Only creating these needs unsafe code.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::columns::{Columns, Shared};
use crate::tiles::{self, TileLevel};
use crate::{Inputs, Kernels, Matrix, ThreadPool, TileWatch};

/// The results that share a cache line.
const FLOATS_PER_LINE: usize = 16;

/// How many of `threads` threads take part in [`Kernels::matmul`] of `rows` weight rows with `n` tokens: with few
/// rows, fewer than all. With one token it is an upper bound, since threads take rows as they go.
pub fn threads_for_rows(rows: usize, n: usize, threads: usize) -> usize {
    if n == 1 {
        return rows.div_ceil(FLOATS_PER_LINE).clamp(1, threads.max(1));
    }
    rows.div_ceil(share_size(rows, threads).max(1)).max(1)
}

/// How many weight rows each thread but the last takes: see [`share`].
fn share_size(rows: usize, threads: usize) -> usize {
    rows.div_ceil(threads).next_multiple_of(FLOATS_PER_LINE)
}

/// Which of `rows` weight rows a thread takes: equally many, in whole cache lines of `out`, so that no two threads
/// write to the same line.
fn share(rows: usize, thread: usize, threads: usize) -> Range<usize> {
    let size = share_size(rows, threads);
    (thread * size).min(rows)..((thread + 1) * size).min(rows)
}

/// The division of a matrix's rows among threads, for a product with one vector.
///
/// Each thread reads its own share from start to end. When it is done, it takes rows from the end of another's,
/// because memory may serve one thread faster than another, and not always the same one. So nearly everything that a
/// thread reads is one stream, which prefetchers follow.
///
/// Rows are counted in cache lines of results, so that two threads hardly ever write to the same line.
struct Shares {
    rows: usize,
    /// The lines left of each thread's share. For few threads they are stored here, without an allocation.
    few: [Remaining; FEW],
    many: Vec<Remaining>,
    threads: usize,
}

/// The most threads whose shares need no allocation.
const FEW: usize = 8;

/// `first << 32 | end`, in lines. The word is the whole state, so a compare-and-swap that finds the expected word is
/// correct whatever happened in between (no ABA problem). Only its own thread writes to an empty one.
#[derive(Default)]
#[repr(align(64))]
struct Remaining(AtomicU64);

impl Remaining {
    fn new(lines: Range<u32>) -> Self {
        Self(AtomicU64::new(Self::word(lines)))
    }

    fn word(lines: Range<u32>) -> u64 {
        u64::from(lines.start) << 32 | u64::from(lines.end)
    }

    fn get(&self) -> Range<u32> {
        let word = self.0.load(Ordering::Relaxed);
        (word >> 32) as u32..word as u32
    }

    /// Replaces `before` with `lines`, unless another thread was faster.
    fn replace(&self, before: Range<u32>, lines: Range<u32>) -> bool {
        let (before, after) = (Self::word(before), Self::word(lines));
        // Relaxed: no other thread reads the results until the pool has seen all threads finish.
        let relaxed = Ordering::Relaxed;
        self.0.compare_exchange_weak(before, after, relaxed, relaxed).is_ok()
    }

    /// Takes the first lines: one part in `part` of what is left, so ever fewer, which leaves some for others to take.
    fn take_first(&self, part: u32) -> Option<Range<u32>> {
        loop {
            let left = self.get();
            if left.is_empty() {
                return None;
            }
            let end = left.start + (left.end - left.start).div_ceil(part);
            if self.replace(left.clone(), end..left.end) {
                return Some(left.start..end);
            }
        }
    }

    /// Takes the last half of what is left.
    fn take_last(&self) -> Option<Range<u32>> {
        loop {
            let left = self.get();
            if left.is_empty() {
                return None;
            }
            let start = left.end - (left.end - left.start).div_ceil(2);
            if self.replace(left.clone(), left.start..start) {
                return Some(start..left.end);
            }
        }
    }
}

impl Shares {
    /// # Panics
    ///
    /// If there are 2³⁶ rows or more.
    fn new(rows: usize, threads: usize) -> Self {
        let lines = rows.div_ceil(FLOATS_PER_LINE);
        assert!(u32::try_from(lines).is_ok(), "matmul: {rows} rows are too many");
        // With so few rows the other threads have none, and needn't look for any.
        let threads = threads.min(lines).max(1);
        let left = |thread: usize| {
            let bound = |thread| (lines as u64 * thread as u64 / threads as u64) as u32;
            Remaining::new(bound(thread)..bound(thread + 1))
        };
        let (few, many) = match threads {
            ..=FEW => {
                let left = |i| if i < threads { left(i) } else { Remaining::default() };
                (std::array::from_fn(left), Vec::new())
            }
            _ => (Default::default(), (0..threads).map(left).collect()),
        };
        Self { rows, few, many, threads }
    }

    fn left(&self) -> &[Remaining] {
        if self.many.is_empty() { &self.few[..self.threads] } else { &self.many }
    }

    /// The next rows of this thread's share or, when that is empty, of the thread that has most left. A single thread
    /// gets all rows at once.
    ///
    /// Each thread must use its own index: two threads with the same index could lose rows.
    fn take(&self, thread: usize) -> Option<Range<usize>> {
        let left = self.left();
        let own = left.get(thread)?;
        let part = if self.threads == 1 { 1 } else { 4 };
        let lines = loop {
            if let Some(lines) = own.take_first(part) {
                break lines;
            }
            // Threads begin at different places, so that not all of them pick the same one.
            let others = left[thread + 1..].iter().chain(&left[..thread]);
            let most = others.max_by_key(|left| left.get().len())?;
            if most.get().is_empty() {
                // The lines just taken by others are no longer available.
                return None;
            }
            if let Some(lines) = most.take_last() {
                // Only this thread writes to its own word while that is empty.
                let before = own.0.swap(Remaining::word(lines), Ordering::Relaxed);
                debug_assert!(before >> 32 >= before & u64::from(u32::MAX), "two took as one");
            }
        };
        let row = |line: u32| (line as usize * FLOATS_PER_LINE).min(self.rows);
        Some(row(lines.start)..row(lines.end))
    }
}

/// `out = X·Wᵀ` on all threads of the pool.
pub(crate) fn matmul(
    kernels: Kernels,
    pool: &ThreadPool,
    out: &mut [f32],
    w: Matrix,
    x: &mut Inputs<'_>,
    tiles: Option<&dyn TileWatch>,
) {
    let n = x.n();
    assert!(
        Some(x.x().len()) == n.checked_mul(w.cols()),
        "matmul: x has {} elements, but {n} rows of {w:?}'s columns are needed",
        x.x().len()
    );
    let shared = &Shared::new(Columns::new(out, n, w.rows()));
    let threads = pool.threads();
    if n == 1 {
        let x = x.vector(kernels, &w);
        let shares = &Shares::new(w.rows(), threads);
        return pool.run(&|thread| {
            while let Some(rows) = shares.take(thread) {
                // SAFETY: no two ranges from `take` have a row in common, since a line leaves a word once, and none
                // goes beyond `w.rows()`, which is the length of `out` when `n` is 1; `out` stays borrowed until
                // `run` has returned.
                let out = unsafe { shared.row(rows.clone()) };
                kernels.gemv_vector(out, w, rows, x);
            }
        });
    }
    let x = x.tokens(kernels, Some(pool), w.kind());
    let gemm = |thread, tiles| {
        // SAFETY: the shares of the threads are disjoint, and `out` stays borrowed until `run` has
        // returned.
        let mut out = unsafe { shared.share(share(w.rows(), thread, threads)) }.telling(tiles);
        kernels.gemm_columns(&mut out, w, x, n);
    };
    let Some(watch) = tiles else { return pool.run(&|thread| gemm(thread, None)) };
    let shares: Vec<OnceLock<Range<u64>>> = (0..threads).map(|_| OnceLock::new()).collect();
    pool.run(&|thread| {
        let rows = share(w.rows(), thread, threads).len();
        if rows == 0 {
            return;
        }
        let from = watch.now();
        gemm(thread, Some(watch));
        let to = watch.now();
        if let (Some(from), Some(to)) = (from, to) {
            // Only this thread sets this cell.
            let _ = shares[thread].set(from..to);
            watch.tile(tiles::work(TileLevel::Macro, 1, rows, w.cols(), n), from..to);
        }
    });
    let shares: Vec<_> = shares.into_iter().filter_map(OnceLock::into_inner).collect();
    watch.product(&shares, threads);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, Mutex};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_row_is_in_exactly_one_share() {
        for rows in [0, 1, 15, 16, 17, 100, 256, 2049] {
            for threads in 1..6 {
                let mut next = 0;
                for thread in 0..threads {
                    let share = share(rows, thread, threads);
                    assert!(share.start == next.min(rows), "{rows} rows, thread {thread}");
                    next = share.end;
                }
                assert_eq!(next, rows, "{rows} rows on {threads} threads");
            }
        }
    }

    /// The rows that each thread takes, if `next` says whose turn it is.
    fn taken(
        rows: usize,
        threads: usize,
        mut next: impl FnMut() -> usize,
    ) -> Vec<Vec<Range<usize>>> {
        let shares = Shares::new(rows, threads);
        let mut taken = vec![Vec::new(); threads];
        let mut is_done = vec![false; threads];
        while is_done.contains(&false) {
            let thread = next() % threads;
            match shares.take(thread) {
                Some(rows) => taken[thread].push(rows),
                None => is_done[thread] = true,
            }
        }
        taken
    }

    #[test]
    fn every_row_is_taken_once_in_whole_lines_whoever_is_fast() {
        let mut seed = 1_u64;
        for rows in [0, 1, 15, 16, 17, 100, 256, 2049] {
            for threads in [1, 2, 3, 5, 8, 9, 70] {
                for slow in 0..3 {
                    // Some threads get fewer turns than others.
                    let taken = taken(rows, threads, || {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let turn = (seed >> 33) as usize;
                        if slow > 0 && (seed >> 20) % 16 > slow { turn & !1 } else { turn }
                    });
                    let mut all = taken.concat();
                    all.sort_by_key(|rows| rows.start);
                    let mut next = 0;
                    for share in &all {
                        assert_eq!(share.start, next, "{taken:?}");
                        assert!(share.end > share.start);
                        assert!(share.end == rows || share.end.is_multiple_of(FLOATS_PER_LINE));
                        next = share.end;
                    }
                    assert_eq!(next, rows, "{taken:?}");
                    assert!(threads > 1 || all.len() == usize::from(rows > 0));
                }
            }
        }
    }

    #[test]
    fn threads_that_are_alike_read_one_stream_each_and_one_that_waits_loses_the_end_of_its_own() {
        let mut turn = 0;
        let alike = taken(5632, 2, || {
            turn += 1;
            turn
        });
        for (thread, own) in alike.iter().enumerate() {
            assert_eq!(own.first(), Some(&(2816 * thread..2816 * thread + 704)));
            assert!(own.windows(2).all(|two| two[0].end == two[1].start), "{own:?}");
            assert_eq!(own.last().map(|rows| rows.end), Some(2816 * (thread + 1)));
        }
        // The first thread takes once and then loses its core.
        let mut turn = 0;
        let one = taken(2048, 2, || {
            turn += 1;
            usize::from(turn > 1 && turn < 100)
        });
        assert_eq!((one[0].len(), &one[0][0]), (1, &(0..256)));
        assert!(one[1].contains(&(1024..1280)) && one[1].contains(&(640..736)), "{:?}", one[1]);
    }

    #[test]
    fn every_row_is_taken_once_by_threads_that_run_at_once() {
        const THREADS: usize = 4;
        // Beside busy processes threads take milliseconds to wait for each other: then fewer, but so many.
        let (least, most) = if cfg!(miri) { (10, 10) } else { (50, 2_000) };
        let begun = Instant::now();
        let (begin, shares) = (Barrier::new(THREADS), Mutex::new(None));
        let (taken, wrong) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let work = |thread: usize| {
            for round in 0..most {
                if begin.wait().is_leader() {
                    let is_over = round >= least && begun.elapsed() > Duration::from_secs(3);
                    let next = (!is_over).then(|| Arc::new(Shares::new(1_000 + round, THREADS)));
                    *shares.lock().expect("no panic") = next;
                }
                begin.wait();
                let Some(shares) = shares.lock().expect("no panic").clone() else { return };
                let mut own = Vec::new();
                while let Some(rows) = shares.take(thread) {
                    own.push(rows);
                    // With few cores, let other threads run in between.
                    if (round + thread).is_multiple_of(3) {
                        std::thread::yield_now();
                    }
                }
                taken.lock().expect("no panic").append(&mut own);
                if begin.wait().is_leader() {
                    let mut all = std::mem::take(&mut *taken.lock().expect("no panic"));
                    all.sort_by_key(|rows| rows.start);
                    let ends = all.iter().map(|rows| rows.end);
                    let is_next = all
                        .iter()
                        .map(|rows| rows.start)
                        .eq([0].into_iter().chain(ends).take(all.len()));
                    // A panic here would leave the others waiting.
                    if !is_next || all.last().map(|rows| rows.end) != Some(1_000 + round) {
                        wrong.lock().expect("no panic").push(all);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
        });
        let wrong = wrong.into_inner().expect("no panic");
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
