//! How much of a run is kept, and what this machine can do beside a run that was made before.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use brickscope::{Absent, Ceilings, Machine, Profile, ReadingTime};
use brickscope_engine::Model;

use crate::text::printable_text;
use crate::{ceilings_cache, progress};

/// The most rows of the trace that are kept, summed over all recording threads: half a gigabyte.
pub(crate) const MAX_LOG: usize = 1 << 23;

/// Room for every span of the run, so that the trace has no holes.
pub(crate) fn log_capacity(model: &Model, batch: usize, context: usize) -> usize {
    // A layer has at most 14 bricks, 33 kernels and a row for itself.
    let spans_per_pass = 48 * (model.config.n_layers + 1);
    // Each token of the answer is a pass; the prompt takes fewer.
    let passes = context.div_ceil(batch) + context;
    spans_per_pass.saturating_mul(passes).min(MAX_LOG)
}

/// Capacity of each thread's log when every kernel also has a row per thread. All logs have the same
/// capacity and share [`MAX_LOG`]. The thread that hands the work out has a row for each other thread.
pub(crate) fn shares_capacity(capacity: usize, threads: usize) -> usize {
    capacity.saturating_mul(1 + threads).min(MAX_LOG / threads.max(1))
}

/// How the basis of ceilings begins that were added to a run.
pub(crate) const AFTER: &str = "measured after the run";

/// The ceilings of this machine with as many threads as a run had. `run` is its name in messages.
pub(crate) fn ceilings_here(
    profile: &Profile,
    threads_given: Option<NonZeroUsize>,
    run: &str,
) -> Result<Ceilings> {
    let here = brickscope::machine::detect();
    if let Some(of) = profile.machine.as_ref().filter(|of| **of != here) {
        let name = |machine: &Machine| {
            let cpu = printable_text(machine.cpu.as_deref().unwrap_or("an unnamed CPU"));
            let cpus = machine.logical_cpus.map(|n| format!(", {n} CPUs")).unwrap_or_default();
            format!("{cpu}{cpus}")
        };
        bail!(
            "{run} was made on another machine: {}. This one is {}, so its ceilings say nothing of that run",
            name(of),
            name(&here)
        );
    }
    let of_run = profile.run.as_ref().and_then(|run| NonZeroUsize::new(run.threads as usize));
    let all = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = threads_given.or(of_run).unwrap_or_else(all);
    let model = profile.model.as_ref().map(|model| Path::new(&model.path));
    let model = model.filter(|path| path.is_file());
    let model = model.and_then(|path| Model::open(path).ok());
    let note = progress::note("measuring what this machine can do");
    let ceilings = ceilings_cache::ceilings_after(model.as_ref(), threads);
    note.finish_and_clear();
    let mut ceilings = ceilings.map_err(|Absent { reason }| anyhow!("{reason}"))?;
    are_after(&mut ceilings);
    if threads_given.is_none() && of_run.is_none() {
        ceilings.basis += "; the run doesn't state its threads, so these are of all CPUs";
    }
    Ok(ceilings)
}

/// Says of ceilings when they were measured: as if for a run to come, but it had been made before.
fn are_after(ceilings: &mut Ceilings) {
    ceilings.basis = ceilings.basis.replace("measured before the run", AFTER);
    for reading in &mut ceilings.readings {
        if reading.when == ReadingTime::Before {
            reading.when = ReadingTime::After;
        }
    }
}

#[cfg(test)]
mod tests {
    use brickscope::CeilingReading;

    use super::*;

    #[test]
    fn ceilings_that_are_added_to_a_run_were_measured_after_it() {
        let reading = |when| CeilingReading {
            when,
            measured: "2026-11-29T23:40:06Z".to_owned(),
            read_bytes_per_second: 29.4e9,
            disturbed: false,
        };
        let mut ceilings = Ceilings {
            basis: "measured before the run: 2 threads, avx2".to_owned(),
            readings: vec![reading(ReadingTime::Kept), reading(ReadingTime::Before)],
            ..Ceilings::default()
        };
        are_after(&mut ceilings);
        assert_eq!(ceilings.basis, "measured after the run: 2 threads, avx2");
        let when = ceilings.readings.iter().map(|reading| reading.when);
        assert_eq!(when.collect::<Vec<_>>(), [ReadingTime::Kept, ReadingTime::After]);
    }

    #[test]
    fn the_logs_of_all_threads_stay_within_the_bound() {
        // A small run has room for all shares.
        assert_eq!(shares_capacity(1_000, 2), 3_000);
        for threads in [0, 1, 2, 3, 32, 1_000] {
            let each = shares_capacity(usize::MAX, threads);
            assert!(each > 0 && each * threads.max(1) <= MAX_LOG, "{threads} threads: {each}");
        }
    }
}
