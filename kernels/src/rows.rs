//! The rows of a slice, divided among threads in contiguous shares.
//!
//! A thread's share depends only on the number of rows and threads, so that it finds in its own caches what it read for
//! the same rows before.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::ThreadPool;

/// A slice whose rows are divided among threads.
struct Shared {
    start: *mut f32,
    len: usize,
}

// SAFETY: the pointer comes from a `&mut [f32]` that is borrowed for as long as the threads run, and `part` requires of
// its callers that no two of them have the same element.
unsafe impl Sync for Shared {}

impl Shared {
    /// # Safety
    ///
    /// While the result lives, no other part may contain an element of `elements`, and the slice must stay
    /// borrowed.
    #[expect(clippy::mut_from_ref, reason = "parts are disjoint, which callers answer for")]
    unsafe fn part(&self, elements: Range<usize>) -> &mut [f32] {
        assert!(elements.start <= elements.end && elements.end <= self.len);
        // SAFETY: checked to lie in the slice; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(elements.start), elements.len()) }
    }
}

/// Which of `rows` rows a thread takes: as many as the others, or one more.
fn share(rows: usize, thread: usize, threads: usize) -> Range<usize> {
    let bound = |thread: usize| {
        let (each, more) = (rows / threads, rows % threads);
        thread * each + (thread * more) / threads
    };
    bound(thread)..bound(thread + 1)
}

impl ThreadPool {
    /// Calls `run(i, row)` once for each row `i` of `rows`, where each row is `row_len` long. Divides the rows among the
    /// first `threads` threads of the pool (all, if it has fewer): each takes contiguous rows, as many as the others or
    /// one more. Takes no lock.
    ///
    /// # Panics
    ///
    /// If `rows` isn't whole rows of `row_len`, or `threads` is 0; also like [`run`](Self::run).
    pub fn run_rows(
        &self,
        threads: usize,
        rows: &mut [f32],
        row_len: usize,
        run: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        assert!(
            row_len > 0 && rows.len().is_multiple_of(row_len),
            "run_rows: {} elements aren't rows of {row_len}",
            rows.len()
        );
        assert!(threads > 0, "run_rows: at least one thread is needed");
        let threads = threads.min(self.threads());
        let n_rows = rows.len() / row_len;
        let shared = Shared { start: rows.as_mut_ptr(), len: rows.len() };
        let shared = &shared;
        self.run(&|thread| {
            if thread >= threads {
                return;
            }
            let own = share(n_rows, thread, threads);
            // SAFETY: the threads' shares are disjoint, each thread uses its own once, and `rows` stays borrowed until
            // `run` has returned.
            let part = unsafe { shared.part(own.start * row_len..own.end * row_len) };
            for (row, i) in part.chunks_exact_mut(row_len).zip(own) {
                run(i, row);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn pool(threads: usize) -> ThreadPool {
        ThreadPool::new(NonZeroUsize::new(threads).expect("not 0")).expect("threads")
    }

    #[test]
    fn shares_are_neighbours_and_as_large_as_the_others_or_one_larger() {
        for rows in [0, 1, 2, 3, 7, 32, 33, 100] {
            for threads in 1..8 {
                let shares: Vec<_> = (0..threads).map(|i| share(rows, i, threads)).collect();
                let mut next = 0;
                for share in &shares {
                    assert_eq!(share.start, next);
                    next = share.end;
                    assert!([0, 1].contains(&(share.len() - rows / threads)), "{shares:?}");
                }
                assert_eq!(next, rows, "{shares:?}");
            }
        }
        // Eight heads share a cached key: if possible, they run on one thread.
        assert_eq!([0, 1].map(|i| share(32, i, 2)), [0..16, 16..32]);
        assert_eq!([0, 1, 2, 3].map(|i| share(32, i, 4).start), [0, 8, 16, 24]);
    }

    #[test]
    fn every_row_is_run_once_with_its_number() {
        for threads in 1..4 {
            let pool = pool(3);
            for n_rows in [0, 1, 2, 5, 12] {
                let mut rows = vec![0.0; 3 * n_rows];
                pool.run_rows(threads, &mut rows, 3, |i, row| {
                    assert_eq!(row.len(), 3);
                    row.iter_mut().for_each(|x| *x += 1.0 + i as f32);
                });
                let expected: Vec<f32> = (0..n_rows).flat_map(|i| [1.0 + i as f32; 3]).collect();
                assert_eq!(rows, expected, "{n_rows} rows on {threads} threads");
            }
        }
    }

    #[test]
    fn only_so_many_threads_have_rows_and_never_more_than_there_are() {
        use std::collections::HashSet;
        use std::sync::Mutex;

        for (threads, expected) in [(1, 1), (2, 2), (3, 3), (9, 3)] {
            let seen = Mutex::new(HashSet::new());
            pool(3).run_rows(threads, &mut [0.0; 12], 1, |_, _| {
                seen.lock().expect("no panic").insert(std::thread::current().id());
            });
            assert_eq!(seen.into_inner().expect("no panic").len(), expected);
        }
    }

    #[test]
    #[should_panic = "run_rows: 7 elements aren't rows of 2"]
    fn half_a_row_is_refused() {
        pool(1).run_rows(1, &mut [0.0; 7], 2, |_, _| {});
    }
}
