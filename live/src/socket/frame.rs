//! What goes over the socket.

use brickscope::{
    Absent, Ceilings, ClockInfo, Machine, Model, Profile, Run, SCHEMA_VERSION, Total,
};
use serde::{Deserialize, Serialize};

use super::{DEFAULT_RATE, Delta, FORMAT, LEAST_RATE, MOST_RATE};

/// A line from a publisher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// Before the first one, and only while the engine isn't there yet: what it is at.
    Starting(String),
    /// The first one.
    Hello(Box<Hello>),
    /// How the engine stands.
    Frame(Box<Frame>),
    /// The same, by what differs from the frame that was sent whole last.
    Delta(Box<Delta>),
    /// The last one, where something is wrong: a sentence.
    Error(String),
}

/// Who publishes, and what doesn't change while it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`FORMAT`] of the publisher. First, so that a reader that doesn't know the rest knows that.
    pub format: u32,
    /// The version of the profiles in frames: [`SCHEMA_VERSION`] of the publisher.
    pub schema_version: u32,
    /// The version of brickscope that publishes.
    pub brickscope_version: String,
    /// The process, as the system numbers it.
    pub pid: u32,
    /// The clock behind every time.
    pub clock: ClockInfo,
    /// What was told of the run.
    pub facts: Facts,
    /// What may be asked for.
    pub rates: Rates,
}

impl Hello {
    /// What this process says of a run.
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

/// What doesn't change while an engine runs, as far as it says so. The profiler knows nothing of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The run.
    pub run: Option<Run>,
    /// The model.
    pub model: Option<Model>,
    /// The machine.
    pub machine: Option<Machine>,
    /// What this machine can do at best; without it nobody can say how far bricks are from that.
    pub ceilings: Option<Ceilings>,
    /// Why there are none.
    pub ceilings_absent: Option<Absent>,
}

/// Frames in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// The least.
    pub least: u32,
    /// The highest.
    pub most: u32,
    /// Those of a watcher that doesn't ask.
    pub default: u32,
}

impl Default for Rates {
    fn default() -> Self {
        Self { least: LEAST_RATE, most: MOST_RATE, default: DEFAULT_RATE }
    }
}

/// How the engine stands: sums since it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Its number, from 1. Frames are made when they are sent, so none is missing but for those that
    /// other watchers got.
    pub seq: u64,
    /// When it was made, by the clock of the profile.
    pub at_ns: u64,
    /// How long the making of the frames before took: what watching costs.
    pub made_ns: u64,
    /// Whether the publisher ends after it, in good order.
    #[serde(default)]
    pub last: bool,
    /// [`BrickProfiler::snapshot`](brickscope::BrickProfiler::snapshot) without histograms. `layers` and
    /// `brick_kernels` are of what ran since somebody first watched.
    pub profile: Profile,
    /// Whether `profile.layers`, `profile.brick_kernels`, and the percentiles and deviations in `profile.totals`
    /// are of this frame, as they are in every so many only. Where they aren't, they are empty, and those of an earlier
    /// frame still the newest: [`Frame::take_details_of`].
    #[serde(default, alias = "layers")]
    pub details: bool,
}

impl Frame {
    /// Takes from `before`, an earlier frame, the details that this one is without. Does nothing to one that
    /// has them.
    ///
    /// So the newest frame of a watch is whole again, and after it the next.
    pub fn take_details_of(&mut self, before: &Self) {
        if self.details {
            return;
        }
        let (own, before) = (&mut self.profile, &before.profile);
        let passes = |profile: &Profile| profile.phases.iter().map(|p| p.passes).sum::<u64>();
        // The engine has forgotten what it had recorded.
        if passes(before) > passes(own) {
            return;
        }
        own.layers.clone_from(&before.layers);
        own.brick_kernels.clone_from(&before.brick_kernels);
        take_distributions(&mut own.totals, &before.totals);
    }
}

/// The rows are in the same order in all frames; there may be more of them from one to the next.
fn take_distributions(totals: &mut [Total], before: &[Total]) {
    let mut before = before.iter();
    for row in totals {
        let mut ahead = before.clone();
        if let Some(found) = ahead.find(|found| is_same(found, row)) {
            // Else the engine has forgotten what it had recorded.
            if found.stats.count > row.stats.count {
                return;
            }
            (row.std_dev_ns, row.percentiles) = (found.std_dev_ns, found.percentiles);
            before = ahead;
        }
    }
}

/// Whether two rows are of the same.
pub(super) fn is_same(a: &Total, b: &Total) -> bool {
    (a.phase, a.kind, a.source) == (b.phase, b.kind, b.source)
        && a.stats.name == b.stats.name
        && (&a.host, &a.device) == (&b.host, &b.device)
}

/// A line from a watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Frames in a second, from now on. What is out of bounds becomes the nearest that isn't.
    pub rate: Option<u32>,
}
