//! `brickscope machine`: measures the peak rates of this machine.

use std::num::NonZeroUsize;

use anyhow::{Result, anyhow};
use brickscope::{CeilingReading, Ceilings, Survey};
use brickscope_analysis::view;
use brickscope_kernels::Kernels;
use serde::Serialize;

use crate::ceilings_cache::{self, Cached, Identity};
use crate::flags::threads;
use crate::output;
use crate::progress;

/// Measure the peak rates of this machine: memory bandwidths and operations per second.
///
/// Measures read, write, copy and triad (a = b + s·c) for each level of cache and for memory, and the
/// multiply-adds of each backend, on 1, 2, 4, … and all threads. This takes some seconds. The result is
/// stored in the cache folder, which BRICKSCOPE_CACHE overrides, and `brickscope profile` uses it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope machine\n  brickscope machine --fresh --threads 4\n  brickscope machine --json | jq '.peaks[] | {backend, numbers, threads, ops_per_second}'"
)]
pub(crate) struct MachineArgs {
    /// Print all results as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Measure again, even if there are stored results.
    #[arg(long)]
    pub(crate) fresh: bool,

    /// The most threads to measure with. By default all that this process may use.
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Json<'k> {
    #[serde(flatten)]
    survey: &'k Survey,
    identity: &'k Identity,
    others_share: Option<f64>,
    /// Whether this is a stored result of an earlier measurement.
    is_kept: bool,
    kept_in: Option<String>,
    /// Each measurement of memory's bandwidth that is kept.
    memory: Vec<CeilingReading>,
}

pub(crate) fn run(args: &MachineArgs) -> Result<()> {
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let steps = brickscope::machine::survey_steps(threads, brickscope::machine::caches().len());
    let bar = progress::steps("measuring", steps as u64);
    let (cached, source) = ceilings_cache::survey(threads, args.fresh, &mut || bar.inc(1))
        .map_err(|absent| anyhow!("{}", absent.reason))?;
    bar.finish_and_clear();
    let Cached { identity, others_share, value: survey } = &cached;
    let readings = ceilings_cache::memory_readings();
    let kept_in = source.path.as_ref().map(|path| path.display().to_string());
    let text = if args.json {
        let (others_share, is_kept) = (*others_share, source.is_cached);
        let json = Json { survey, identity, others_share, is_kept, kept_in, memory: readings };
        serde_json::to_string_pretty(&json)? + "\n"
    } else {
        let mut text = identity.line() + &view::machine(survey);
        let ceilings = Ceilings { readings: readings.clone(), ..Ceilings::default() };
        text += &view::memory_readings(&ceilings);
        if let Some(caveat) = Kernels::best().backend().caveat() {
            text += &format!("note: {caveat}\n");
        }
        if let Some(remark) = ceilings_cache::remark(*others_share) {
            text += &format!("note: {remark}\n");
        }
        if let Some(path) = kept_in {
            let how = if source.is_cached { "stored earlier" } else { "stored" };
            text += &format!("{how} in {path}\n");
        }
        text
    };
    output::print(text)
}
