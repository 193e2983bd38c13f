//! `brickscope machine`: what this machine can do at best, measured.

use std::io::{Write, stdout};
use std::num::NonZeroUsize;

use anyhow::{Context, Result, anyhow};
use brickscope::{CacheLevel, Survey};
use brickscope_analysis::view;
use brickscope_kernels::Kernels;
use serde::Serialize;

use crate::args::MachineArgs;
use crate::kept::{self, Identity, Kept};
use crate::progress;

/// What `--json` prints.
#[derive(Serialize)]
struct Json<'k> {
    #[serde(flatten)]
    survey: &'k Survey,
    identity: &'k Identity,
    others_share: Option<f64>,
    /// Whether it was measured before and kept.
    is_kept: bool,
    kept_in: Option<String>,
}

pub(crate) fn run(args: &MachineArgs) -> Result<()> {
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let steps = brickscope::machine::survey_steps(threads, brickscope::machine::caches().len());
    let bar = progress::steps("measuring", steps as u64);
    let (kept, source) = kept::survey(threads, args.fresh, &mut || bar.inc(1))
        .map_err(|absent| anyhow!("{}", absent.reason))?;
    bar.finish_and_clear();
    let Kept { identity, others_share, value: survey } = &kept;
    let kept_in = source.path.as_ref().map(|path| path.display().to_string());
    let text = if args.json {
        let (others_share, is_kept) = (*others_share, source.is_kept);
        let json = Json { survey, identity, others_share, is_kept, kept_in };
        serde_json::to_string_pretty(&json)? + "\n"
    } else {
        let mut text = identity.line() + &view::machine(survey);
        if let Some(caveat) = Kernels::best().backend().caveat() {
            text += &format!("note: {caveat}\n");
        }
        if let Some(remark) = kept::remark(*others_share) {
            text += &format!("note: {remark}\n");
        }
        if let Some(path) = kept_in {
            let how = if source.is_kept { "kept since then" } else { "kept" };
            text += &format!("{how} in {path}\n");
        }
        text
    };
    stdout().lock().write_all(text.as_bytes()).context("standard output")
}
