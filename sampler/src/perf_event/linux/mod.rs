//! Starts the command, reads the rings until it ends, and notes what limits the recording.

mod event;
mod interrupt;
mod journal;
mod ring;

use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use self::interrupt::Outlive;
use self::journal::Journal;
use self::ring::Rings;
use super::{Abilities, Options, Progress, RecordError};
use crate::clock;
use crate::recording::{Recording, Sampler, TimeBase};

/// The longest time that the reader sleeps. Its priority isn't lowered (`setpriority`): at a nice value of 19 on a busy
/// machine, it came too late, and records were lost.
const TICK: Duration = Duration::from_millis(200);

/// How old a record must be before it is processed.
///
/// A CPU stamps its record before writing it. So a later record of another CPU could be seen first, and code seem to run
/// before it is mapped.
const SETTLED_NS: u64 = 2_000_000;

pub(super) fn record(
    mut command: Command,
    options: &Options,
    mut on_tick: impl FnMut(&Progress),
) -> Result<(Recording, ExitStatus), RecordError> {
    let mut notes = Vec::new();
    let options = &lowered(options, &mut notes);
    let outlive = Outlive::start();
    let mut journal = Journal::default();
    let (rings, status) = thread::scope(|scope| {
        let (give, given) = mpsc::channel();
        // Processes inherit the events of the thread that starts them. This is a thread of its own, so that
        // processes started by the caller's `on_tick` aren't sampled.
        let starter = thread::Builder::new().spawn_scoped(scope, move || {
            let rings = Rings::open(options)?;
            let started = command.spawn();
            let mut child = started.map_err(|error| {
                let program = command.get_program().to_string_lossy().into_owned();
                RecordError::Spawn { program, error }
            })?;
            // The receiver lives as long as this thread.
            let _ = give.send(rings);
            child
                .wait()
                .map_err(|error| RecordError::System { what: "wait for the command", error })
        });
        let starter =
            starter.map_err(|error| RecordError::System { what: "start a thread", error })?;
        let mut rings = given.recv().ok();
        if let Some(rings) = &mut rings {
            while !starter.is_finished() {
                rings.wait(TICK);
                let settled_ns = clock::raw_ns().saturating_sub(SETTLED_NS);
                rings.drain(settled_ns, |time_ns, event| journal.take(time_ns, event));
                let lost = journal.lost.saturating_add(journal.lost_records);
                on_tick(&Progress { samples: journal.samples.len(), lost });
            }
            rings.drain(u64::MAX, |time_ns, event| journal.take(time_ns, event));
        }
        let status = starter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((rings, status))
    })?;
    drop(outlive);
    let (kernel, ring_size) = rings.map_or((false, 0), |rings| (rings.kernel, rings.size));
    if journal.lost_records > 0 {
        notes.push(format!(
            "{} records of the kernel (samples, or information about mapped code) were lost because \
             the rings of {} KiB were full: take less of the stack or fewer samples, or \
             raise `ulimit -l`",
            journal.lost_records,
            ring_size >> 10
        ));
    }
    if options.kernel && !kernel {
        let level = ring::paranoid().map_or("?".to_owned(), |level| level.to_string());
        notes.push(format!(
            "kernel time is not sampled: kernel.perf_event_paranoid is {level}, but must be at \
             most 1"
        ));
    }
    Ok((finish(journal, options, kernel, notes), status))
}

/// The options, with a frequency that the kernel allows.
fn lowered(options: &Options, notes: &mut Vec<String>) -> Options {
    let mut options = options.clone();
    if let Some(most) = ring::max_frequency().filter(|&most| most < options.frequency) {
        notes.push(format!(
            "sampled {most} times per second, not {}: kernel.perf_event_max_sample_rate",
            options.frequency
        ));
        options.frequency = most;
    }
    options
}

fn finish(
    mut journal: Journal,
    options: &Options,
    kernel: bool,
    mut notes: Vec<String>,
) -> Recording {
    if journal.throttled > 0 {
        notes.push(format!(
            "the kernel paused sampling {} times because it took too long",
            journal.throttled
        ));
    }
    if journal.forks_without_code > 0 {
        notes.push(format!(
            "{} forked processes exceed the limit on inherited code: their functions have no names",
            journal.forks_without_code
        ));
    }
    if journal.unreadable > 0 {
        notes.push(format!("{} records of the kernel could not be parsed", journal.unreadable));
    }
    if journal.samples.is_empty() {
        notes.push("no samples: the command used almost no CPU time".to_owned());
    }
    let (processes, threads) = journal.seen();
    journal.samples.sort_by_key(|sample| sample.time_ns);
    Recording {
        sampler: Sampler::PerfEvent,
        event: if kernel { "cpu-clock" } else { "cpu-clock:u" }.to_owned(),
        frequency: Some(options.frequency),
        time_base: TimeBase::MonotonicRaw,
        samples: journal.samples,
        addresses: journal.stacks.addresses,
        processes,
        threads,
        lost: journal.lost,
        lost_records: journal.lost_records,
        notes,
    }
}

pub(super) fn probe() -> Result<Abilities, RecordError> {
    let max_frequency = ring::max_frequency();
    let frequency = max_frequency.unwrap_or(999).clamp(1, 999);
    let kernel = ring::try_open(frequency, true).is_ok();
    if !kernel {
        ring::try_open(frequency, false)?;
    }
    Ok(Abilities { kernel, max_frequency })
}
