//! Sampling this process by its own timers, when `brickscope flamegraph --via timer` asks for it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use brickscope_sampler::timer::{self, TimerSampler};

use super::record;

/// Sampling in progress.
#[derive(Debug)]
pub(crate) struct Asked {
    sampler: TimerSampler,
    path: PathBuf,
}

impl Asked {
    /// Begins, if the environment asks for it.
    pub(crate) fn start() -> Result<Option<Self>> {
        let asked = timer::start_if_asked().context("can't sample by timers")?;
        Ok(asked.map(|(sampler, path)| Self { sampler, path }))
    }

    /// Ends, and writes the samples.
    pub(crate) fn finish(self) -> Result<()> {
        record::write(&self.path, &record::name(&self.sampler.finish()))
    }
}
