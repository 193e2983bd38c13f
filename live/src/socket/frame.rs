//! What is sent over the socket.

use std::path::PathBuf;

use brickscope::{
    Absent, Ceilings, ClockInfo, Machine, Model, Profile, Run, SCHEMA_VERSION, Total,
};
use brickscope_analysis::requests::Now;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_RATE, Delta, FORMAT, LEAST_RATE, MOST_RATE};

/// A line from a publisher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// What the engine is doing while it starts. Comes before the hello, if at all.
    Starting(String),
    /// The first message of an engine that runs.
    Hello(Box<Hello>),
    /// The state of the engine.
    Frame(Box<Frame>),
    /// The state of the engine, as a difference from the newest whole frame.
    Delta(Box<Delta>),
    /// The answer to [`Request::so_far`]. Nothing follows it.
    SoFar(SoFar),
    /// What went wrong. Nothing follows it.
    Error(String),
}

/// A run that was written of what a recording has kept so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoFar {
    /// Its folder.
    pub folder: PathBuf,
    /// How many passes there were, kept or not.
    pub passes: u64,
}

/// Describes the publisher; constant while it publishes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The publisher's [`FORMAT`]. First, so that a reader can tell before it parses the rest.
    pub format: u32,
    /// The version of the profiles in frames: the publisher's [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The publisher's version of brickscope.
    pub brickscope_version: String,
    /// The process id.
    pub pid: u32,
    /// The clock that all times come from.
    pub clock: ClockInfo,
    /// What the engine said of the run.
    pub facts: Facts,
    /// The frame rates that a watcher may ask for.
    pub rates: Rates,
}

impl Hello {
    /// A hello from this process.
    #[must_use]
    pub fn new(clock: ClockInfo, facts: Facts) -> Self {
        Self {
            format: FORMAT,
            schema_version: SCHEMA_VERSION,
            brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            clock,
            facts,
            rates: Rates::default(),
        }
    }
}

/// Facts that are constant while an engine runs. All are optional; the profiler knows none of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The run.
    pub run: Option<Run>,
    /// The model.
    pub model: Option<Model>,
    /// The machine.
    pub machine: Option<Machine>,
    /// The machine's measured ceilings. Without them, no view can say how close bricks come to them.
    pub ceilings: Option<Ceilings>,
    /// Why `ceilings` is absent.
    pub ceilings_absent: Option<Absent>,
    /// Those of the device, if one runs the bricks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_ceilings: Option<Ceilings>,
    /// Why `device_ceilings` is absent, if they were to be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_ceilings_absent: Option<Absent>,
}

/// Frame rates, in frames per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// The lowest.
    pub least: u32,
    /// The highest.
    pub most: u32,
    /// For a watcher that doesn't ask for one.
    pub default: u32,
}

impl Default for Rates {
    fn default() -> Self {
        Self { least: LEAST_RATE, most: MOST_RATE, default: DEFAULT_RATE }
    }
}

/// The state of the engine, as sums since it started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The number of the frame, from 1. A gap means that other watchers were sent the frames between.
    pub seq: u64,
    /// When the frame was made, by the profile's clock.
    pub at_ns: u64,
    /// How long making all earlier frames took: the cost of being watched.
    pub made_ns: u64,
    /// Whether this is the last frame of a publisher that ends normally.
    #[serde(default)]
    pub last: bool,
    /// [`BrickProfiler::snapshot`](brickscope::BrickProfiler::snapshot) without histograms. `layers` and
    /// `brick_kernels` count from the moment when the first watcher came.
    pub profile: Profile,
    /// Whether this frame has details: `profile.layers`, `profile.brick_kernels`, and the percentiles and
    /// deviations in `profile.totals`. Only some frames do. In the others they are empty, and those of an earlier
    /// frame still apply: see [`Frame::take_details_of`].
    #[serde(default, alias = "layers")]
    pub details: bool,
    /// The engine's requests, if it says that it has any: a detail, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Now>,
}

impl Frame {
    /// Copies the details from `before`, an earlier frame, if this frame has none.
    ///
    /// Called on each new frame of a watch, this keeps the newest frame complete.
    pub fn take_details_of(&mut self, before: &Self) {
        if self.details {
            return;
        }
        let passes = |profile: &Profile| profile.phases.iter().map(|p| p.passes).sum::<u64>();
        // The profiler was reset in between.
        if passes(&before.profile) > passes(&self.profile) {
            return;
        }
        self.requests.clone_from(&before.requests);
        let (own, before) = (&mut self.profile, &before.profile);
        own.layers.clone_from(&before.layers);
        own.brick_kernels.clone_from(&before.brick_kernels);
        take_distributions(&mut own.totals, &before.totals);
    }
}

/// Rows come in the same order in all frames; later frames may have more of them.
fn take_distributions(totals: &mut [Total], before: &[Total]) {
    let mut before = before.iter();
    for row in totals {
        let mut ahead = before.clone();
        if let Some(found) = ahead.find(|found| is_same(found, row)) {
            // The profiler was reset in between.
            if found.stats.count > row.stats.count {
                return;
            }
            (row.std_dev_ns, row.percentiles) = (found.std_dev_ns, found.percentiles);
            before = ahead;
        }
    }
}

/// Whether two rows describe the same thing.
pub(super) fn is_same(a: &Total, b: &Total) -> bool {
    (a.phase, a.kind, a.source) == (b.phase, b.kind, b.source)
        && a.stats.name == b.stats.name
        && (&a.host, &a.device) == (&b.host, &b.device)
}

/// A line from a watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Frames per second from now on, clamped to the publisher's bounds.
    pub rate: Option<u32>,
    /// Whether a run is to be written of what is kept so far, as a [`Recording`](super::Recording) does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub so_far: bool,
}
