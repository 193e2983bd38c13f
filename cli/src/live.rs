//! A run that others may watch: where, and what they are told until it is one.

use std::sync::Arc;

use anyhow::{Context, Result};
use brickscope::BrickProfiler;
use brickscope_live::socket::{Facts, Publisher, Starting};

/// A run that is being prepared.
pub(crate) struct Live {
    starting: Option<Starting>,
    /// Whether who started this is to read where to watch.
    is_told: bool,
}

impl Live {
    /// `is_asked`: somebody may watch. `is_told`: whoever started this is told where.
    pub(crate) fn begin(is_asked: bool, is_told: bool) -> Result<Self> {
        // A name that is taken, say, is better found out before all the work.
        let starting = is_asked.then(Starting::begin).transpose().context("--live")?;
        if let Some(starting) = starting.as_ref().filter(|_| is_told) {
            eprintln!("live: will publish at {} once the model runs", starting.path().display());
        }
        let live = Self { starting, is_told };
        live.say("reading the model");
        Ok(live)
    }

    /// What is being done.
    pub(crate) fn say(&self, what: &str) {
        if let Some(starting) = &self.starting {
            starting.say(what);
        }
    }

    /// How far that is.
    pub(crate) fn say_bytes(&self, what: &str, done: u64, total: u64) {
        if let Some(starting) = &self.starting {
            let mb = |bytes: u64| bytes / 1_000_000;
            starting.say(&format!("{what}: {} of {} MB", mb(done), mb(total)));
        }
    }

    /// The run begins. `None` if nobody may watch.
    pub(crate) fn publish(
        self,
        current: impl Fn() -> Arc<BrickProfiler> + Send + Sync + 'static,
        facts: impl FnOnce() -> Facts,
    ) -> Result<Option<Publisher>> {
        let Some(starting) = self.starting else { return Ok(None) };
        let publisher = starting.publish_with(current, facts()).context("--live")?;
        if self.is_told {
            eprintln!(
                "live: publishing; `brickscope top --attach {}` shows it",
                std::process::id()
            );
        }
        Ok(Some(publisher))
    }
}
