//! A run that others may watch: the socket, and its messages until the run begins.

use std::sync::Arc;

use anyhow::{Context, Result};
use brickscope::BrickProfiler;
use brickscope_live::socket::{Facts, Publisher, Starting};

use crate::output::tell;

/// A run that is being prepared.
pub(crate) struct Live {
    starting: Option<Starting>,
    /// Whether to print on standard error how to watch.
    is_told: bool,
}

impl Live {
    /// `is_asked`: whether others may watch. `is_told`: whether to print how to.
    pub(crate) fn begin(is_asked: bool, is_told: bool) -> Result<Self> {
        // Fail before all the work, for example if the socket's name is taken.
        let starting = is_asked.then(Starting::begin).transpose().context("--live")?;
        if let Some(starting) = starting.as_ref().filter(|_| is_told) {
            tell!("live: will publish at {} once the model runs", starting.path().display());
        }
        let live = Self { starting, is_told };
        live.say("reading the model");
        Ok(live)
    }

    /// Tells watchers what this process is doing.
    pub(crate) fn say(&self, what: &str) {
        if let Some(starting) = &self.starting {
            starting.say(what);
        }
    }

    /// Tells watchers how far it is.
    pub(crate) fn say_bytes(&self, what: &str, done: u64, total: u64) {
        if let Some(starting) = &self.starting {
            let mb = |bytes: u64| bytes / 1_000_000;
            starting.say(&format!("{what}: {} of {} MB", mb(done), mb(total)));
        }
    }

    /// Publishes the run that begins; `None` if nobody may watch.
    pub(crate) fn publish(
        self,
        current: impl Fn() -> Arc<BrickProfiler> + Send + Sync + 'static,
        facts: impl FnOnce() -> Facts,
    ) -> Result<Option<Publisher>> {
        let Some(starting) = self.starting else { return Ok(None) };
        let publisher = starting.publish_with(current, facts()).context("--live")?;
        if self.is_told {
            tell!("live: publishing; `brickscope top --attach {}` shows it", std::process::id());
        }
        Ok(Some(publisher))
    }
}
