//! Each thread's share of a kernel as a span of that thread: shows which thread the others waited for.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brickscope::{
    BrickProfiler, HandOff, HostLaunch, KernelId, KernelTimer, NameKind, Phase, Profile, Share,
    ThreadShare as ThreadShareOfBrick, Work,
};
use brickscope_kernels::Watch;

/// How the kernels are named that are a thread's share of another one.
const SHARE: &str = "share of thread ";

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
            kernel: profiler.kernel(&format!("{SHARE}{thread}"), Some(launch.clone())),
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

/// What each thread did of each brick, and how long it waited for the others, by the spans of a run whose shares were
/// profiled ([`Session::profile_shares`](crate::Session::profile_shares)): in each kernel, a thread waits from the end of its
/// own share to the end of the longest one.
#[must_use]
pub fn thread_shares(profile: &Profile, threads: usize) -> Vec<ThreadShareOfBrick> {
    let thread_of = |name: u16| {
        let name = &profile.names.get(usize::from(name))?.name;
        name.strip_prefix(SHARE)?.parse::<usize>().ok().filter(|&thread| thread < threads)
    };
    let is_brick = |name: u16| {
        profile.names.get(usize::from(name)).is_some_and(|name| name.kind == NameKind::Brick)
    };
    let phases: HashMap<u32, Phase> =
        profile.passes.iter().map(|pass| (pass.serial, pass.phase)).collect();
    let (mut bricks, mut shares) = (Vec::new(), Vec::new());
    for span in &profile.spans {
        let Some(name) = span.name else { continue };
        let end = span.start_ns.saturating_add(span.duration_ns);
        if let Some(thread) = thread_of(name) {
            shares.push((span.start_ns, end, thread));
        } else if let Some(&phase) = span.pass.as_ref().and_then(|pass| phases.get(pass))
            && is_brick(name)
        {
            bricks.push((span.start_ns, end, phase, name));
        }
    }
    bricks.sort_unstable_by_key(|brick| brick.0);
    shares.sort_unstable();
    let mut sums: BTreeMap<(Phase, u16, usize), Share> = BTreeMap::new();
    let mut next = 0;
    for (begin, end, phase, name) in bricks {
        while shares.get(next).is_some_and(|share| share.0 < begin) {
            next += 1;
        }
        let first = next;
        while shares.get(next).is_some_and(|share| share.1 <= end) {
            next += 1;
        }
        for kernel in kernels(&shares[first..next]) {
            let last = kernel.iter().map(|share| share.1).max().unwrap_or(0);
            let first = kernel.iter().map(|share| share.0).min().unwrap_or(0);
            for thread in 0..threads {
                let own = kernel.iter().find(|share| share.2 == thread);
                let share = match own {
                    Some(own) => {
                        Share { count: 1, worked_ns: own.1 - own.0, waited_ns: last - own.1 }
                    }
                    // It had nothing to do.
                    None => Share { count: 0, worked_ns: 0, waited_ns: last - first },
                };
                sums.entry((phase, name, thread)).or_default().add(share);
            }
        }
    }
    let of = |((phase, name, thread), share): ((Phase, u16, usize), Share)| ThreadShareOfBrick {
        thread: thread as u32,
        phase,
        brick: profile.names[usize::from(name)].name.clone(),
        share,
    };
    sums.into_iter().map(of).collect()
}

/// The shares of one kernel after the other: those of the next one begin when all of the last have ended, and a thread has
/// one share of each.
fn kernels(mut shares: &[(u64, u64, usize)]) -> Vec<&[(u64, u64, usize)]> {
    let mut kernels = Vec::new();
    while !shares.is_empty() {
        let is_new = |(nth, share): (usize, &(u64, u64, usize))| {
            shares[..nth].iter().all(|earlier| earlier.2 != share.2)
        };
        let len = shares.iter().enumerate().take_while(|&one| is_new(one)).count();
        let (kernel, rest) = shares.split_at(len);
        kernels.push(kernel);
        shares = rest;
    }
    kernels
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, MockClock};

    use super::*;

    #[test]
    fn a_thread_waits_from_the_end_of_its_share_to_that_of_the_longest() {
        let hand = MockClock::default();
        let profiler = Arc::new(BrickProfiler::with_clock(hand.clock()));
        profiler.enable();
        let shares = Shares::new(&profiler, 2);
        for position in 0..3 {
            let pass = profiler.begin_pass(Phase::Decode);
            let timer = profiler.start_brick(BrickId::AttentionScore);
            // Of one kernel thread 0 has two thirds, of the next all.
            shares.share_begins(0);
            shares.share_begins(1);
            hand.advance(100);
            shares.share_ends(1);
            hand.advance(100);
            shares.share_ends(0);
            hand.advance(5);
            shares.share_begins(0);
            hand.advance(50);
            shares.share_ends(0);
            profiler.stop_brick(timer, 1);
            profiler.end_pass(pass, 1, position);
        }
        let found = thread_shares(&profiler.profile(), 2);
        let sums: Vec<_> =
            found.iter().map(|of| (of.thread, of.share.worked_ns, of.share.waited_ns)).collect();
        assert_eq!(sums, [(0, 3 * 250, 0), (1, 3 * 100, 3 * (100 + 50))]);
        assert!(found.iter().all(|of| of.brick == "AttentionScore" && of.phase == Phase::Decode));
    }
}
