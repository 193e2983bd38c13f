//! The sampling thread.

mod handler;
mod maps;
mod threads;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::handler::{SLOTS, Slots, Taken};
use self::threads::Thread;
use super::{Options, TimerError};
use crate::recording::{self, Mapping, Process, RawSample, Recording, Sampler, Stacks, TimeBase};
use crate::unwind::Unwinder;

/// How often new threads are looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How long the last samples are waited for.
const LAST: Duration = Duration::from_millis(100);

/// There is one handler and one table of slots.
static TAKEN: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(super) struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Recording>>,
}

impl Running {
    pub(super) fn finish(mut self) -> Recording {
        self.end().unwrap_or_else(|| unreachable!("only dropping ends it before"))
    }

    fn end(&mut self) -> Option<Recording> {
        self.stop.store(true, Ordering::Release);
        let joined = self.thread.take()?.join();
        TAKEN.store(false, Ordering::Release);
        Some(joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

pub(super) fn start(options: &Options) -> Result<Running, TimerError> {
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(TimerError::Running);
    }
    let begin = || {
        let slots = Slots::open(options.stack_bytes as usize)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (begun, wait) = mpsc::channel();
        let mut sampling = Sampling::new(slots, options);
        let asked_to_stop = Arc::clone(&stop);
        let thread = thread::Builder::new().name("brickscope-timer".to_owned());
        let thread = thread.spawn(move || {
            sampling.look_for_threads(own_tid());
            let _ = begun.send(());
            sampling.run(&asked_to_stop);
            sampling.finish()
        });
        let thread =
            thread.map_err(|error| TimerError::System { what: "start a thread", error })?;
        // What there is now is sampled from now on.
        let _ = wait.recv();
        Ok(Running { stop, thread: Some(thread) })
    };
    begin().inspect_err(|_| TAKEN.store(false, Ordering::Release))
}

/// The number of this thread.
fn own_tid() -> i32 {
    let link = std::fs::read_link("/proc/thread-self").ok();
    let name = link.as_ref().and_then(|link| link.file_name()?.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}

/// A thread that is sampled.
struct Target {
    thread: Thread,
    slot: usize,
    /// Its CPU time when it was first seen.
    first_ns: u64,
    /// Its CPU time when it was last seen.
    cpu_ns: u64,
    /// Its CPU time up to which there are samples.
    sampled_ns: u64,
    has_late_name: bool,
}

struct Sampling {
    slots: Slots,
    period_ns: u64,
    frequency: u64,
    pid: u32,
    targets: Vec<Target>,
    ended: Vec<recording::Thread>,
    /// CPU time of threads that have ended.
    ended_ns: u64,
    own_tid: i32,
    unwinder: Unwinder,
    mappings: Vec<Mapping>,
    /// When code was last looked for.
    looked_ns: u64,
    samples: Vec<RawSample>,
    stacks: Stacks,
    /// Whether there was no slot for a thread.
    had_no_slot: bool,
    lost: u64,
}

impl Sampling {
    fn new(slots: Slots, options: &Options) -> Self {
        let mut sampling = Self {
            slots,
            period_ns: 1_000_000_000 / options.frequency,
            frequency: options.frequency,
            pid: std::process::id(),
            targets: Vec::new(),
            ended: Vec::new(),
            ended_ns: 0,
            own_tid: 0,
            unwinder: Unwinder::new(),
            mappings: Vec::new(),
            looked_ns: 0,
            samples: Vec::new(),
            stacks: Stacks::default(),
            had_no_slot: false,
            lost: 0,
        };
        map_new(&mut sampling.unwinder, &mut sampling.mappings, sampling.pid, 0);
        sampling
    }

    fn run(&mut self, stop: &AtomicBool) {
        let period = Duration::from_nanos(self.period_ns);
        let mut next = Instant::now() + period;
        let mut next_look = Instant::now() + LOOK;
        while !stop.load(Ordering::Acquire) {
            let now = Instant::now();
            thread::sleep(next.saturating_duration_since(now));
            // Ticks that were missed aren't caught up with: that would be many samples of one
            // moment.
            next = (next + period).max(Instant::now());
            if now >= next_look {
                self.look_for_threads(self.own_tid);
                next_look = now + LOOK;
            }
            self.tick();
        }
    }

    /// Takes the last tick's samples and asks for this one's.
    fn tick(&mut self) {
        let mut at = 0;
        while let Some(target) = self.targets.get(at) {
            let (slot, tid) = (target.slot, target.thread.tid as u32);
            self.take(slot, tid);
            let target = &mut self.targets[at];
            let Some(cpu_ns) = target.thread.cpu_ns() else {
                // The handler may have run between the two, just before the thread's end.
                self.take(slot, tid);
                self.end(at);
                continue;
            };
            target.cpu_ns = cpu_ns;
            // A thread that mostly waits is often not running when it is looked at. What it has
            // used since isn't forgotten, but nor is it sampled in a row later.
            const MOST: u64 = 4;
            let kept = cpu_ns.saturating_sub(MOST * self.period_ns);
            target.sampled_ns = target.sampled_ns.max(kept);
            let is_due = cpu_ns.saturating_sub(target.sampled_ns) >= self.period_ns;
            if is_due && target.thread.is_running() && self.slots.ask(target.slot) {
                target.sampled_ns += self.period_ns;
            }
            at += 1;
        }
    }

    fn take(&mut self, slot: usize, tid: u32) {
        let Self { slots, unwinder, mappings, looked_ns, samples, stacks, pid, .. } = self;
        slots.take(slot, |taken: &Taken<'_>| {
            let known = |address| mappings.iter().any(|map| map.addresses.contains(&address));
            // Not at each sample of code that nothing is known of.
            let is_time = taken.time_ns.saturating_sub(*looked_ns) > LOOK.as_nanos() as u64;
            if is_time && !known(taken.registers.ip) {
                *looked_ns = taken.time_ns;
                map_new(unwinder, mappings, *pid, taken.time_ns);
            }
            let (stack, ending) = stacks
                .add(|addresses| unwinder.unwind(*pid, &taken.registers, taken.stack, addresses));
            samples.push(RawSample {
                time_ns: taken.time_ns,
                pid: *pid,
                tid,
                weight: 1,
                stack,
                n_kernel: 0,
                ending,
            });
        });
    }

    fn look_for_threads(&mut self, own_tid: i32) {
        self.own_tid = own_tid;
        for target in &mut self.targets {
            if !target.has_late_name {
                target.has_late_name = true;
                target.thread.look_up_name();
            }
        }
        for tid in threads::list() {
            if tid == own_tid || self.targets.iter().any(|target| target.thread.tid == tid) {
                continue;
            }
            let thread = Thread::new(tid);
            let Some(cpu_ns) = thread.cpu_ns() else { continue };
            let Some(slot) = self.slots.assign(tid) else {
                self.had_no_slot = true;
                continue;
            };
            self.targets.push(Target {
                thread,
                slot,
                first_ns: cpu_ns,
                cpu_ns,
                sampled_ns: cpu_ns,
                has_late_name: false,
            });
        }
    }

    /// A thread has ended.
    fn end(&mut self, at: usize) {
        let target = self.targets.swap_remove(at);
        self.slots.release(target.slot);
        self.ended_ns += target.cpu_ns.saturating_sub(target.first_ns);
        let (pid, tid) = (self.pid, target.thread.tid as u32);
        self.ended.push(recording::Thread { pid, tid, name: target.thread.name });
    }

    fn finish(mut self) -> Recording {
        let deadline = Instant::now() + LAST;
        let owed = |sampling: &Self| {
            sampling.targets.iter().any(|target| sampling.slots.is_owed(target.slot))
        };
        while owed(&self) && Instant::now() < deadline {
            thread::sleep(Duration::from_nanos(self.period_ns).min(LAST / 10));
        }
        while let Some(target) = self.targets.last_mut() {
            target.thread.look_up_name();
            target.cpu_ns = target.thread.cpu_ns().unwrap_or(target.cpu_ns);
            let (slot, tid) = (target.slot, target.thread.tid as u32);
            self.take(slot, tid);
            // A thread that has blocked the signal never answers.
            self.lost += u64::from(self.slots.is_owed(slot));
            self.end(self.targets.len() - 1);
        }
        let notes = self.notes();
        self.samples.sort_by_key(|sample| sample.time_ns);
        Recording {
            sampler: Sampler::Timer,
            event: "cpu-clock:u".to_owned(),
            frequency: Some(self.frequency),
            time_base: TimeBase::MonotonicRaw,
            samples: self.samples,
            addresses: self.stacks.addresses,
            processes: vec![Process { pid: self.pid, mappings: self.mappings }],
            threads: self.ended,
            lost: self.lost,
            lost_records: 0,
            notes,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "the program sampled itself, by signals: time in the kernel counts for the call that \
             it was spent in"
                .to_owned(),
        ];
        let seconds = self.ended_ns as f64 / 1e9;
        let reached = self.samples.len() as f64 / seconds;
        if seconds > 0.1 && reached < 0.9 * self.frequency as f64 {
            notes.push(format!(
                "{} samples a second were asked for, and {reached:.0} taken",
                self.frequency
            ));
        }
        if self.had_no_slot {
            notes.push(format!("only {SLOTS} threads at a time could be sampled"));
        }
        notes
    }
}

/// Tells the unwinder of code that it doesn't know yet.
fn map_new(unwinder: &mut Unwinder, known: &mut Vec<Mapping>, pid: u32, from_ns: u64) {
    for mapping in maps::code(from_ns) {
        let same = |old: &Mapping| {
            old.addresses == mapping.addresses
                && old.file == mapping.file
                && old.file_offset == mapping.file_offset
        };
        if !known.iter().any(same) {
            unwinder.map(pid, &mapping);
            known.push(mapping);
        }
    }
}
