//! Each thread's share of a kernel as a span of that thread: shows which thread the others waited for.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brickscope::{BrickProfiler, HandOff, HostLaunch, KernelId, KernelTimer, Work};
use brickscope_kernels::Watch;

/// Reports the shares of a pool's threads to a profiler. On every thread, a share lies inside the kernel that the pool
/// was asked to run.
pub(crate) struct Shares {
    profiler: Arc<BrickProfiler>,
    handed: Mutex<Option<HandOff>>,
    threads: Vec<ThreadShare>,
}

struct ThreadShare {
    kernel: KernelId,
    /// The running share.
    running: Mutex<Option<KernelTimer>>,
    /// The hand-off back to the thread that asked.
    back: Mutex<Option<HandOff>>,
}

impl Shares {
    pub(crate) fn new(profiler: &Arc<BrickProfiler>, n_threads: usize) -> Self {
        let launch = HostLaunch { shape: String::new(), threads: 1 };
        let threads = (0..n_threads).map(|thread| ThreadShare {
            kernel: profiler.kernel(&format!("share of thread {thread}"), Some(launch.clone())),
            running: Mutex::new(None),
            back: Mutex::new(None),
        });
        let (profiler, threads) = (Arc::clone(profiler), threads.collect());
        Self { profiler, handed: Mutex::new(None), threads }
    }
}

impl Watch for Shares {
    fn job_begins(&self) {
        *lock(&self.handed) = Some(self.profiler.hand_off());
    }

    fn share_begins(&self, thread_idx: usize) {
        let Some(thread) = self.threads.get(thread_idx) else { return };
        // Copied, so as not to hold the lock while a thread's first call makes its log.
        let handed = *lock(&self.handed);
        if thread_idx > 0
            && let Some(handed) = handed
        {
            self.profiler.take_over(handed);
        }
        *lock(&thread.running) = Some(self.profiler.start_kernel(thread.kernel));
    }

    fn share_ends(&self, thread_idx: usize) {
        let Some(thread) = self.threads.get(thread_idx) else { return };
        if let Some(timer) = lock(&thread.running).take() {
            self.profiler.stop_kernel(timer, Work::default());
        }
        if thread_idx > 0 {
            *lock(&thread.back) = Some(self.profiler.hand_off());
        }
    }

    fn job_ends(&self) {
        for thread in &self.threads {
            if let Some(back) = lock(&thread.back).take() {
                self.profiler.take_over(back);
            }
        }
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
