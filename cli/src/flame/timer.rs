//! Sampling this process by its own timers, when `brickscope flamegraph --via timer` asks for it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use brickscope_sampler::timer::{self, TimerSampler};

use super::take;

/// Where to write the samples.
pub(crate) const ASKED: &str = "BRICKSCOPE_TIMER_SAMPLES";
/// How many a second.
pub(crate) const FREQUENCY: &str = "BRICKSCOPE_TIMER_FREQUENCY";

/// Samples that are being taken.
#[derive(Debug)]
pub(crate) struct Asked {
    sampler: TimerSampler,
    path: PathBuf,
}

impl Asked {
    /// Begins, if that was asked for.
    pub(crate) fn start() -> Result<Option<Self>> {
        let Some(path) = std::env::var_os(ASKED).filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let mut options = timer::Options::default();
        if let Ok(frequency) = std::env::var(FREQUENCY) {
            options.frequency = frequency.parse().with_context(|| format!("{FREQUENCY}={frequency}"))?;
        }
        let sampler = timer::start(&options).context("can't sample by timers")?;
        Ok(Some(Self { sampler, path: path.into() }))
    }

    /// Ends, and writes what was sampled.
    pub(crate) fn finish(self) -> Result<()> {
        take::write(&self.path, &take::name(&self.sampler.finish()))
    }
}
