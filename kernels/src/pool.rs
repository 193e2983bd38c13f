//! A thread pool for work that comes every few microseconds.
//!
//! A forward pass splits hundreds of matrices per token, and between two of them one thread does what is too small to
//! split. Waking a sleeping thread takes longer than many of these matrices, so an idle worker spins for some hundreds
//! of microseconds before it goes to sleep. For part of that time it yields its core: where threads outnumber idle
//! cores, the thread that it waits for may be waiting for one.
//!
//! ```text
//! run ──► job, remaining = workers ──► epoch + 1, unpark ──► own share ──► wait for remaining = 0
//!                                          │
//! worker: spin or park until the epoch ────┘──► its share ──► remaining - 1 (the last: unpark run)
//! ```
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::hint::spin_loop;
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// How often a waiting thread checks before it begins to yield. A `pause` instruction takes some 10 to 50 ns, so this
/// is 5 to 25 µs.
const SPINS: usize = if cfg!(miri) { 4 } else { 500 };

/// How often a waiting thread then yields before it sleeps: a good half millisecond, if nothing else wants the core.
/// That is longer than a layer's attention and norms take on one thread, so workers sleep between requests, not
/// between matrices.
const YIELDS: usize = if cfg!(miri) { 2 } else { 2000 };

/// Waits until `done` returns true: spins, then yields, then sleeps. Whoever makes `done` true must unpark this thread
/// afterwards.
fn wait_until(done: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if done() {
            return;
        }
        spin_loop();
    }
    for _ in 0..YIELDS {
        if done() {
            return;
        }
        thread::yield_now();
    }
    // An unpark between the check and the park makes the park return at once.
    while !done() {
        thread::park();
    }
}

type Task<'a> = &'a (dyn Fn(usize) + Sync);

/// Observes the shares of each job, on the threads that run them.
pub trait Watch: Send + Sync {
    /// A job begins. Called on the thread that called [`ThreadPool::run`], before any share begins.
    fn job_begins(&self);
    /// A thread's share begins. Index 0 is the thread that called [`ThreadPool::run`].
    fn share_begins(&self, thread_idx: usize);
    /// A thread's share has ended.
    fn share_ends(&self, thread_idx: usize);
    /// All shares have ended. Called on the thread that called [`ThreadPool::run`].
    fn job_ends(&self);
}

/// A fixed number of threads that run one closure together.
///
/// ```
/// use std::num::NonZeroUsize;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let pool = brickscope_kernels::ThreadPool::new(NonZeroUsize::new(2).unwrap())?;
/// let sum = AtomicUsize::new(0);
/// pool.run(&|thread| {
///     sum.fetch_add(thread + 1, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 1 + 2);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    // Held while a job runs, so that other callers wait their turn.
    turn: Mutex<()>,
}

struct Shared {
    // The number of jobs so far. Its release store publishes `job`.
    epoch: AtomicUsize,
    // The number of workers that haven't finished the job.
    remaining: AtomicUsize,
    // Written only by the caller whose turn it is, and only while `remaining` is 0; read by workers only between a new
    // epoch and their own decrement of `remaining`.
    job: UnsafeCell<Option<Job>>,
    // Checked once per job, before its epoch.
    is_watched: AtomicBool,
    watch: Mutex<Option<Arc<dyn Watch>>>,
    // The payload of the first panic in a worker.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    closing: AtomicBool,
}

// SAFETY: all fields but `job` are `Sync`. `job` is written and read at different times, as described there, and its
// contents may be used by several threads: a `Sync` closure and a `Thread`.
unsafe impl Sync for Shared {}
// SAFETY: what `job` points to is used only during `run`, which outlives the use; the rest is `Send`.
unsafe impl Send for Shared {}

struct Job {
    task: *const (dyn Fn(usize) + Sync),
    caller: Thread,
}

thread_local! {
    // The pool whose job this thread is running, to refuse a nested job, which would wait for the first.
    static CURRENT: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

impl ThreadPool {
    /// Starts `n_threads - 1` threads; the one that calls [`run`](Self::run) is the first.
    ///
    /// # Errors
    ///
    /// If the system can't start that many. Threads already started are ended.
    pub fn new(n_threads: NonZeroUsize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            remaining: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            is_watched: AtomicBool::new(false),
            watch: Mutex::new(None),
            panic: Mutex::new(None),
            closing: AtomicBool::new(false),
        });
        // If an error drops the pool, it ends the threads started so far.
        let mut pool = Self { shared, workers: Vec::new(), turn: Mutex::new(()) };
        for thread_idx in 1..n_threads.get() {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("kernels-{thread_idx}"));
            pool.workers.push(builder.spawn(move || work(&shared, thread_idx))?);
        }
        Ok(pool)
    }

    /// Makes `watch` observe each job from the next one on; `None` stops that. Without a watch, a job costs one extra
    /// load. A watch shouldn't panic: its panic counts as one of the share.
    pub fn watch(&self, watch: Option<Arc<dyn Watch>>) {
        self.shared.is_watched.store(watch.is_some(), Ordering::Relaxed);
        *self.shared.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch;
    }

    /// Whether jobs are observed.
    pub fn is_watched(&self) -> bool {
        self.shared.is_watched.load(Ordering::Relaxed)
    }

    /// The number of threads that [`run`](Self::run) uses, including the caller.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(thread_idx)` once on each thread, with 0 on this one, and returns when all calls have.
    ///
    /// With one thread, this is a plain call. Concurrent callers take turns.
    ///
    /// # Panics
    ///
    /// If `f` panics on any thread; this panics once all threads are done. Also if called from inside `f`, where it
    /// would wait for itself.
    pub fn run(&self, f: Task<'_>) {
        let shared = &*self.shared;
        if shared.is_watched.load(Ordering::Relaxed) {
            return self.run_watched(f);
        }
        self.run_in_turn(f, None);
    }

    #[cold]
    fn run_watched(&self, f: Task<'_>) {
        let watch = self.shared.watch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(watch) = watch else { return self.run_in_turn(f, None) };
        let share = |thread_idx| {
            watch.share_begins(thread_idx);
            f(thread_idx);
            watch.share_ends(thread_idx);
        };
        self.run_in_turn(&share, Some(&*watch));
    }

    /// The watch is told of the job's begin and end while this thread has its turn, so that jobs of different callers
    /// never mix.
    fn run_in_turn(&self, f: Task<'_>, watch: Option<&dyn Watch>) {
        let shared = &*self.shared;
        if self.workers.is_empty() {
            watch.inspect(|watch| watch.job_begins());
            f(0);
            watch.inspect(|watch| watch.job_ends());
            return;
        }
        assert!(
            !ptr::eq(CURRENT.get(), shared),
            "ThreadPool::run was called from inside a job of the same pool"
        );
        // Panics are re-raised with no lock held. One in the lines between would poison the lock, but it protects no
        // state that could be inconsistent.
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        watch.inspect(|watch| watch.job_begins());

        // SAFETY: only the lifetime is changed. The reference is used by workers until they decrement
        // `remaining`, and below nothing returns or unwinds before that is 0.
        let task: Task<'static> = unsafe { std::mem::transmute::<Task<'_>, Task<'static>>(f) };
        // SAFETY: this thread has its turn and `remaining` is 0, so no worker reads `job`.
        unsafe { *shared.job.get() = Some(Job { task, caller: thread::current() }) };
        // Relaxed, since the store of the epoch publishes it.
        shared.remaining.store(self.workers.len(), Ordering::Relaxed);
        shared.epoch.fetch_add(1, Ordering::Release);
        for worker in &self.workers {
            // Just an atomic swap, unless the worker sleeps.
            worker.thread().unpark();
        }

        let own = run_share(shared, f, 0);

        // Acquire, to see everything that the workers wrote.
        wait_until(|| shared.remaining.load(Ordering::Acquire) == 0);
        let theirs = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        watch.inspect(|watch| watch.job_ends());
        drop(turn);
        if let Some(panic) = own.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

/// Runs a share, during which the thread remembers which pool it works for.
fn run_share(
    shared: &Shared,
    f: Task<'_>,
    thread_idx: usize,
) -> Result<(), Box<dyn Any + Send + 'static>> {
    let outer = CURRENT.replace(shared);
    // Whoever gets the re-raised panic is responsible for unwind safety.
    let result = catch_unwind(AssertUnwindSafe(|| f(thread_idx)));
    CURRENT.set(outer);
    result
}

fn work(shared: &Shared, thread_idx: usize) {
    let mut seen = 0;
    loop {
        // Acquire, to see the job that came with the epoch.
        wait_until(|| shared.epoch.load(Ordering::Acquire) != seen);
        // The next job can't begin before this thread has finished this one.
        seen = seen.wrapping_add(1);
        if shared.closing.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the epoch is new and this thread hasn't decremented `remaining`, so `job` is set and
        // isn't written.
        let job = unsafe { (*shared.job.get()).as_ref() }.expect("an epoch has a job");
        // Taken before the decrement, after which `job` may be replaced.
        let caller = job.caller.clone();
        // SAFETY: `run` keeps the closure borrowed until `remaining` is 0.
        let task = unsafe { &*job.task };
        if let Err(panic) = run_share(shared, task, thread_idx) {
            shared.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        // Release, so that the caller sees what this share wrote; acquire, because the last thread to decrement unparks
        // the caller on behalf of all.
        if shared.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            caller.unpark();
        }
    }
}

/// The threads of a pool have a CPU each, see [`ThreadPool::pin`]. Dropped, they may run where they could before.
#[derive(Debug)]
pub struct Pinned<'p> {
    pool: &'p ThreadPool,
    /// Where each thread could run before, if it was moved.
    before: Vec<Option<CpuSet>>,
    /// One of the threads is the one that pinned them, so it has to drop this, too.
    here: PhantomData<*const ()>,
}

impl ThreadPool {
    /// Keeps each thread, the calling one among them, on a CPU of its own until the guard is dropped: on the first of
    /// those that the calling thread may use, in the order of their numbers. Threads that the calling thread starts
    /// meanwhile stay on its CPU.
    ///
    /// # Errors
    ///
    /// If the calling thread may use fewer CPUs than the pool has threads, or the system refuses, or isn't Linux. Then
    /// no thread is kept anywhere.
    pub fn pin(&self) -> io::Result<Pinned<'_>> {
        let allowed = CpuSet::of_this_thread()?.each();
        if allowed.len() < self.threads() {
            return Err(io::Error::other(format!(
                "this process may use {} CPUs, so {} threads can't have one each",
                allowed.len(),
                self.threads()
            )));
        }
        let results: Vec<Mutex<Option<io::Result<CpuSet>>>> =
            (0..self.threads()).map(|_| Mutex::new(None)).collect();
        self.run(&|thread| {
            let before = CpuSet::of_this_thread();
            let pinned = before.and_then(|before| allowed[thread].apply().map(|()| before));
            *results[thread].lock().unwrap_or_else(PoisonError::into_inner) = Some(pinned);
        });
        let mut pinned = Pinned { pool: self, before: Vec::new(), here: PhantomData };
        let mut error = None;
        for result in results {
            match result.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(Ok(before)) => pinned.before.push(Some(before)),
                Some(Err(why)) => {
                    pinned.before.push(None);
                    error = Some(why);
                }
                None => pinned.before.push(None),
            }
        }
        // With an error, the guard is dropped here.
        error.map_or(Ok(pinned), Err)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // If the system refuses, they stay where they are.
        self.pool.run(&|thread| drop(self.before[thread].map(|before| before.apply())));
    }
}

/// The CPUs that a thread may run on: a bit for each of the first 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuSet([u64; 16]);

impl CpuSet {
    /// Each of these CPUs by itself.
    fn each(&self) -> Vec<Self> {
        let cpus = (0..1024).filter(|cpu| self.0[cpu / 64] >> (cpu % 64) & 1 == 1);
        cpus.map(|cpu| {
            let mut set = Self([0; 16]);
            set.0[cpu / 64] = 1 << (cpu % 64);
            set
        })
        .collect()
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
impl CpuSet {
    fn of_this_thread() -> io::Result<Self> {
        let mut set = Self([0; 16]);
        // SAFETY: the pointer is to as many bytes as it says, which nobody else sees; 0 is this thread.
        let failed = unsafe { sched_getaffinity(0, size_of::<Self>(), set.0.as_mut_ptr()) } != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(set) }
    }

    /// Sets where the calling thread may run.
    fn apply(&self) -> io::Result<()> {
        // SAFETY: the pointer is to as many bytes as it says; 0 is this thread.
        let failed = unsafe { sched_setaffinity(0, size_of::<Self>(), self.0.as_ptr()) } != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

// The C library, which the standard library links.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe extern "C" {
    fn sched_getaffinity(pid: i32, bytes: usize, mask: *mut u64) -> i32;
    fn sched_setaffinity(pid: i32, bytes: usize, mask: *const u64) -> i32;
}

#[cfg(any(not(target_os = "linux"), miri))]
impl CpuSet {
    fn of_this_thread() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn apply(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        // Relaxed, since the store of the epoch publishes it.
        self.shared.closing.store(true, Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // Panics were caught, so the result is always `Ok`.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    use super::*;

    fn pool(n_threads: usize) -> ThreadPool {
        ThreadPool::new(NonZeroUsize::new(n_threads).unwrap()).unwrap()
    }

    /// Runs a job that records which threads ran it.
    fn who_ran(pool: &ThreadPool) -> Vec<usize> {
        let ran: Vec<AtomicUsize> = (0..pool.threads()).map(|_| AtomicUsize::new(0)).collect();
        pool.run(&|thread| {
            ran[thread].fetch_add(1, Ordering::Relaxed);
        });
        ran.into_iter().map(AtomicUsize::into_inner).collect()
    }

    /// How often `job` is done: `most` times, or as often as is possible in three seconds, but `least` times. Beside busy
    /// processes threads take milliseconds to wait for each other, instead of microseconds.
    fn often(least: u64, most: u64, mut job: impl FnMut(u64)) -> u64 {
        let (least, most) = if cfg!(miri) { (3, 20) } else { (least, most) };
        let begun = Instant::now();
        for n in 0..most {
            if n >= least && begun.elapsed() > Duration::from_secs(3) {
                return n;
            }
            job(n);
        }
        most
    }

    fn message(panic: Box<dyn Any + Send>) -> String {
        panic
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .unwrap_or_else(|| panic.downcast_ref::<String>().expect("a message").clone())
    }

    /// Records what a watch is told.
    #[derive(Default)]
    struct Log(Mutex<Vec<(&'static str, usize)>>);

    impl Watch for Log {
        fn job_begins(&self) {
            self.0.lock().unwrap().push(("job", 0));
        }
        fn share_begins(&self, thread_idx: usize) {
            self.0.lock().unwrap().push(("begin", thread_idx));
        }
        fn share_ends(&self, thread_idx: usize) {
            self.0.lock().unwrap().push(("end", thread_idx));
        }
        fn job_ends(&self) {
            self.0.lock().unwrap().push(("done", 0));
        }
    }

    #[test]
    fn a_watch_is_told_of_each_share_between_the_begin_and_the_end_of_the_job() {
        for n_threads in 1..=3 {
            let (pool, log) = (pool(n_threads), Arc::new(Log::default()));
            pool.watch(Some(Arc::clone(&log) as Arc<dyn Watch>));
            assert_eq!(who_ran(&pool), vec![1; n_threads]);
            let mut told = std::mem::take(&mut *log.0.lock().unwrap());
            assert_eq!((told.remove(0), told.pop()), (("job", 0), Some(("done", 0))));
            for thread in 0..n_threads {
                let of_thread =
                    told.iter().filter(|(_, idx)| *idx == thread).map(|(what, _)| *what);
                assert_eq!(of_thread.collect::<Vec<_>>(), ["begin", "end"]);
            }
            pool.watch(None);
            assert_eq!(who_ran(&pool), vec![1; n_threads]);
            assert!(log.0.lock().unwrap().is_empty());
        }
    }

    #[test]
    fn a_watch_is_told_of_one_job_after_the_other_whoever_has_it() {
        let (pool, log) = (pool(2), Arc::new(Log::default()));
        pool.watch(Some(Arc::clone(&log) as Arc<dyn Watch>));
        let runs = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let done = often(30, 200, |_| pool.run(&|_| {}));
                    runs.fetch_add(done, Ordering::Relaxed);
                });
            }
        });
        let told = std::mem::take(&mut *log.0.lock().unwrap());
        assert_eq!(told.len() as u64, runs.into_inner() * 6);
        for job in told.chunks(6) {
            assert_eq!((job[0], job[5]), (("job", 0), ("done", 0)), "{job:?}");
        }
    }

    #[test]
    fn every_thread_runs_its_share_once() {
        for n_threads in 1..=4 {
            assert_eq!(who_ran(&pool(n_threads)), vec![1; n_threads]);
        }
    }

    #[test]
    fn many_short_runs_lose_nothing() {
        let pool = pool(3);
        let mut sums = [0u64; 3];
        let runs = often(500, 20_000, |run| {
            // Borrowed mutably between runs, so Miri would report a straggler as a data race.
            let shares: Vec<AtomicU64> = sums.iter().map(|&sum| AtomicU64::new(sum)).collect();
            pool.run(&|thread| {
                shares[thread].fetch_add(run * (thread as u64 + 1), Ordering::Relaxed);
            });
            for (sum, share) in sums.iter_mut().zip(shares) {
                *sum = share.into_inner();
            }
        });
        let total = runs * (runs - 1) / 2;
        assert_eq!(sums, [total, 2 * total, 3 * total]);
    }

    #[test]
    fn a_worker_that_went_to_sleep_wakes_up() {
        let pool = pool(2);
        for _ in 0..3 {
            // Longer than workers spin, so some of these jobs find them parked.
            for _ in 0..200 * SPINS {
                spin_loop();
            }
            thread::yield_now();
            assert_eq!(who_ran(&pool), [1, 1]);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_have_finished_and_the_pool_lives_on() {
        let pool = pool(3);
        for panicking in 0..3 {
            let finished = AtomicUsize::new(0);
            let panic = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|thread| {
                    assert!(thread != panicking, "thread {thread} has had enough");
                    finished.fetch_add(1, Ordering::Relaxed);
                });
            }))
            .unwrap_err();
            assert_eq!(message(panic), format!("thread {panicking} has had enough"));
            assert_eq!(finished.into_inner(), 2);
            assert_eq!(who_ran(&pool), [1, 1, 1]);
        }
    }

    #[test]
    fn when_all_panic_the_caller_gets_its_own() {
        let pool = pool(3);
        let panic =
            catch_unwind(AssertUnwindSafe(|| pool.run(&|thread| panic!("thread {thread}"))))
                .unwrap_err();
        assert_eq!(message(panic), "thread 0");
        // A later run doesn't report the other threads' panics.
        assert_eq!(who_ran(&pool), [1, 1, 1]);
    }

    #[test]
    fn a_job_cannot_start_another_on_its_own_pool() {
        let pool = pool(2);
        for nesting in 0..2 {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|thread| {
                    if thread == nesting {
                        pool.run(&|_| {});
                    }
                });
            }))
            .unwrap_err();
            assert!(message(panic).contains("from inside a job"));
        }
        assert_eq!(who_ran(&pool), [1, 1]);
    }

    #[test]
    fn a_job_can_use_another_pool_and_its_panics_come_through_both() {
        let (outer, inner) = (pool(2), pool(2));
        let ran = AtomicUsize::new(0);
        outer.run(&|_| {
            inner.run(&|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(ran.into_inner(), 4);

        let panic = catch_unwind(AssertUnwindSafe(|| {
            outer.run(&|a| inner.run(&|b| assert!((a, b) != (1, 1), "deep down")));
        }))
        .unwrap_err();
        assert_eq!(message(panic), "deep down");
        assert_eq!((who_ran(&outer), who_ran(&inner)), (vec![1, 1], vec![1, 1]));
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = pool(2);
        let inside = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    often(50, 500, |_| {
                        pool.run(&|_| {
                            // Both threads of one job, never those of two.
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        });
                    });
                });
            }
        });
    }

    #[test]
    fn threads_have_a_cpu_each_while_they_are_pinned() {
        // On a thread of its own, so that other tests keep their CPUs.
        let check = || {
            let Ok(before) = CpuSet::of_this_thread() else { return };
            let cpus = before.each();
            let pool = pool(cpus.len());
            let where_they_may_run = || {
                let sets: Vec<Mutex<Option<CpuSet>>> =
                    cpus.iter().map(|_| Mutex::new(None)).collect();
                pool.run(&|thread| {
                    *sets[thread].lock().unwrap() = CpuSet::of_this_thread().ok();
                });
                sets.into_iter().map(|set| set.into_inner().unwrap().unwrap()).collect::<Vec<_>>()
            };
            {
                let _pinned = pool.pin().unwrap();
                assert_eq!(where_they_may_run(), cpus);
            }
            assert_eq!(where_they_may_run(), vec![before; cpus.len()]);
            let too_many = self::pool(cpus.len() + 1);
            let refused = too_many.pin().unwrap_err().to_string();
            assert!(refused.contains("can't have one each"), "{refused}");
            assert_eq!(CpuSet::of_this_thread().unwrap(), before);
        };
        thread::spawn(check).join().unwrap();
    }

    #[test]
    fn one_thread_runs_the_closure_where_it_is() {
        let pool = pool(1);
        let here = thread::current().id();
        pool.run(&|thread| {
            assert_eq!((thread, thread::current().id()), (0, here));
            // A single thread waits for nobody, so nesting works.
            pool.run(&|thread| assert_eq!(thread, 0));
        });
    }
}
