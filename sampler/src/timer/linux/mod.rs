//! The sampling thread.

mod handler;
mod maps;
mod threads;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use self::handler::{CpuTimer, SLOTS, Slots, Taken};
use self::threads::Thread;
use super::{Options, TimerError};
use crate::recording::{self, Mapping, Process, RawSample, Recording, Sampler, Stacks, TimeBase};
use crate::unwind::Unwinder;

/// How often samples are collected and new threads looked for. A slot holds the samples of 16 kernel ticks, which is
/// 16 ms or more.
const LOOK: Duration = Duration::from_millis(8);

/// There is only one handler and one table of slots.
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
        // Wait until the existing threads are being sampled.
        let _ = wait.recv();
        Ok(Running { stop, thread: Some(thread) })
    };
    begin().inspect_err(|_| TAKEN.store(false, Ordering::Release))
}

/// The id of this thread.
fn own_tid() -> i32 {
    let link = std::fs::read_link("/proc/thread-self").ok();
    let name = link.as_ref().and_then(|link| link.file_name()?.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}

/// A thread that has run for so long has the name that it gives itself.
const RUNS_NS: u64 = 5_000_000;
/// One that sleeps from its begin on isn't looked at for longer.
const MOST_LOOKS: u8 = 200;

/// A sampled thread.
struct Target {
    thread: Thread,
    slot: usize,
    /// Sends it the signal; `None` if the system had no timer.
    timer: Option<CpuTimer>,
    /// Its CPU time when first seen.
    first_ns: u64,
    /// Its CPU time when last seen.
    cpu_ns: u64,
    has_late_name: bool,
    /// How often its name was looked up again.
    looks: u8,
}

struct Sampling {
    slots: Slots,
    period_ns: u64,
    frequency: u64,
    pid: u32,
    targets: Vec<Target>,
    ended: Vec<recording::Thread>,
    /// The CPU time of threads that have ended.
    ended_ns: u64,
    own_tid: i32,
    unwinder: Unwinder,
    mappings: Vec<Mapping>,
    /// When new code was last looked for.
    looked_ns: u64,
    samples: Vec<RawSample>,
    stacks: Stacks,
    /// Whether a thread got no slot.
    had_no_slot: bool,
    /// Whether a thread got no timer.
    had_no_timer: bool,
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
            had_no_timer: false,
            lost: 0,
        };
        map_new(&mut sampling.unwinder, &mut sampling.mappings, sampling.pid, 0);
        sampling
    }

    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            thread::sleep(LOOK);
            self.look_for_threads(self.own_tid);
            self.tick();
        }
    }

    /// Collects samples.
    fn tick(&mut self) {
        let mut at = 0;
        while let Some(target) = self.targets.get(at) {
            let (slot, tid) = (target.slot, target.thread.tid as u32);
            self.take(slot, tid);
            let target = &mut self.targets[at];
            match target.thread.cpu_ns() {
                Some(cpu_ns) => {
                    target.cpu_ns = cpu_ns;
                    at += 1;
                }
                None => {
                    // The handler may have run in between, just before the thread ended.
                    self.take(slot, tid);
                    self.end(at);
                }
            }
        }
    }

    fn take(&mut self, slot: usize, tid: u32) {
        let Self { slots, unwinder, mappings, looked_ns, samples, stacks, pid, .. } = self;
        slots.take(slot, |taken: &Taken<'_>| {
            let known = |address| mappings.iter().any(|map| map.addresses.contains(&address));
            // Not for every sample of unknown code.
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
                // Most threads give themselves a name as the first thing they do, but may wait long for a CPU to do that.
                target.looks += 1;
                target.has_late_name = target.cpu_ns >= RUNS_NS || target.looks == MOST_LOOKS;
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
            let timer = CpuTimer::start(tid, thread.cpu_clock(), self.period_ns);
            self.had_no_timer |= timer.is_none() && thread.cpu_ns().is_some();
            let (first_ns, has_late_name, looks) = (cpu_ns, false, 0);
            let target = Target { thread, slot, timer, first_ns, cpu_ns, has_late_name, looks };
            self.targets.push(target);
        }
    }

    /// Stops sampling a thread, which may have ended.
    fn end(&mut self, at: usize) {
        let mut target = self.targets.swap_remove(at);
        drop(target.timer.take());
        self.lost += self.slots.missed(target.slot);
        self.slots.release(target.slot);
        self.ended_ns += target.cpu_ns.saturating_sub(target.first_ns);
        let (pid, tid) = (self.pid, target.thread.tid as u32);
        self.ended.push(recording::Thread { pid, tid, name: target.thread.name });
    }

    fn finish(mut self) -> Recording {
        while let Some(target) = self.targets.last_mut() {
            drop(target.timer.take());
            target.thread.look_up_name();
            target.cpu_ns = target.thread.cpu_ns().unwrap_or(target.cpu_ns);
            let (slot, tid) = (target.slot, target.thread.tid as u32);
            self.take(slot, tid);
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
            "the program sampled itself with signals: kernel time counts for the system call in which \
             it was spent"
                .to_owned(),
        ];
        let seconds = self.ended_ns as f64 / 1e9;
        let reached = self.samples.len() as f64 / seconds;
        if seconds > 0.1 && reached < 0.9 * self.frequency as f64 {
            notes.push(format!(
                "{} samples per second were requested, but {reached:.0} taken: timers of CPU clocks fire \
                 with the kernel's tick only",
                self.frequency
            ));
        }
        if self.had_no_slot {
            notes.push(format!("only {SLOTS} threads could be sampled at the same time"));
        }
        if self.had_no_timer {
            notes
                .push("the system had no timers for some threads: they have no samples".to_owned());
        }
        notes
    }
}

/// Tells the unwinder of new code.
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
