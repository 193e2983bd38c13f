//! What a device did, as a profile has it.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;
use crate::brick::Phase;
use crate::device::launch::launch_table;
use crate::device::{Alignment, Drift, Grain, GrainChoice, Launch, StampCost, Ticks};
use crate::dropped::Dropped;
use crate::latency::Latency;
use crate::span::{Dependency, Span, span_table};
use crate::sums::{Pass, PhaseTotal, Total};

/// What a device did, by its own clock.
///
/// For each stream, phase and pass: the exclusive times of the bricks and the gaps between them
/// (`unattributed_ns`) are the span of the device (`wall_ns`), from its first mark to its last. A pass has
/// the same `serial` on all streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// The device, as its driver names it.
    pub name: String,
    /// How it was driven: `vulkan`, `cuda`, `simulated` …
    pub api: String,
    /// The driver and its version.
    pub driver: String,
    /// Its clock.
    pub ticks: Ticks,
    /// How that lay beside the host's when timing began: `start_ns` of its spans and passes is by the
    /// host's clock, to this error.
    pub alignment: Option<Alignment>,
    /// And when somebody looked last; passes after it are placed by it.
    pub last_alignment: Option<Alignment>,
    /// How often the clocks were aligned.
    #[serde(default)]
    pub alignments: u64,
    /// What a mark costs, if it was measured.
    #[serde(default)]
    pub stamp: Option<StampCost>,
    /// Why that isn't known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp_absent: Option<Absent>,
    /// Which share of a pass its marks were allowed to cost; `None` without a known cost.
    #[serde(default)]
    pub budget: Option<f64>,
    /// How fine each phase was timed in the end, and why.
    #[serde(default)]
    pub grains: Vec<GrainChoice>,
    /// Passes that were begun and had not been settled when the profile was made.
    pub unsettled_passes: u64,
    /// Passes that have no times: the device was lost, or could not read them back.
    pub lost_passes: u64,
    /// Passes that have no times since their marks were not in order.
    pub disordered_passes: u64,
    /// Passes that have no times since the caller gave them up.
    #[serde(default)]
    pub abandoned_passes: u64,
    /// Passes that have no times since they had more marks than there is room for; the next ones were timed
    /// less finely.
    #[serde(default)]
    pub overfull_passes: u64,
    /// Passes that ran without marks, to keep to the budget: of a recorded pass that is replayed, or of passes
    /// that are short, one in so many is timed.
    #[serde(default)]
    pub unmarked_passes: u64,
    /// Why the device was lost, if it was.
    pub lost: Option<String>,
    /// What failed last without that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Its streams.
    pub streams: Vec<DeviceStream>,
    /// What on a stream had to wait for what on another: lanes are places in `streams`, spans are places in
    /// the stream's `spans`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    /// Dependencies of which one side did not fit the log, or nothing came after.
    #[serde(default)]
    pub dropped_dependencies: u64,
}

/// What a stream of a device did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceStream {
    /// Its name.
    pub name: String,
    /// What was lost, or went otherwise than meant.
    pub dropped: Dropped,
    /// Sums by phase.
    pub phases: Vec<PhaseTotal>,
    /// Sums by phase and name.
    pub totals: Vec<Total>,
    /// The times of tokens, on the device alone.
    pub latency: Latency,
    /// How its passes were timed, by phase and grain, and their gaps.
    #[serde(default)]
    pub grains: Vec<GrainTotal>,
    /// Its layers, as far as they have times.
    #[serde(default)]
    pub layers: Vec<LayerTotal>,
    /// The passes, one by one.
    pub passes: Vec<Pass>,
    /// Every span that was kept; its lane is 0.
    #[serde(with = "span_table")]
    pub spans: Vec<Span>,
    /// When the host launched them, in the order of `spans`: of kernels, and of bricks without kernels that
    /// have times of their own. Layers have none, nor have spans of earlier versions' profiles.
    #[serde(default, with = "launch_table", skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
}

impl DeviceStream {
    /// Which of the host's passes issued which of this stream's: pairs of places in `host` and in `passes`.
    ///
    /// Host and device number passes each by themselves. What a pass is known by on both sides is its phase,
    /// its tokens and the tokens before it: where as many of a kind are on both sides, they are the same, in
    /// order. Of others nobody can tell.
    #[must_use]
    pub fn issued_by(&self, host: &[Pass]) -> Vec<(usize, usize)> {
        issued(host, &self.passes)
    }
}

/// See [`DeviceStream::issued_by`].
pub fn issued(host: &[Pass], done: &[Pass]) -> Vec<(usize, usize)> {
    type Known = (u8, u64, u64);
    let sorted = |passes: &[Pass]| {
        let key = |pass: &Pass| (pass.phase as u8, pass.tokens, pass.position);
        let mut sorted: Vec<(Known, u64, usize)> =
            (0..).zip(passes).map(|(at, pass)| (key(pass), pass.start_ns, at)).collect();
        sorted.sort_unstable();
        sorted
    };
    let (issued, done) = (sorted(host), sorted(done));
    let mut done = done.chunk_by(|a, b| a.0 == b.0).peekable();
    let mut pairs = Vec::new();
    for issued in issued.chunk_by(|a, b| a.0 == b.0) {
        while done.next_if(|done| done[0].0 < issued[0].0).is_some() {}
        let Some(done) = done.next_if(|done| done[0].0 == issued[0].0) else { continue };
        if issued.len() == done.len() {
            let both = issued.iter().zip(done);
            // Nothing runs before it is issued.
            let both = both.filter(|((_, begin, _), (_, start, _))| begin <= start);
            pairs.extend(both.map(|(&(_, _, host), &(_, _, done))| (host, done)));
        }
    }
    pairs
}

/// The passes of a phase that were timed at one grain: `timed_ns` + `gaps_ns` = `wall_ns`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrainTotal {
    /// The phase.
    pub phase: Phase,
    /// What had times of its own.
    pub grain: Grain,
    /// Passes.
    pub passes: u64,
    /// Marks in them.
    pub marks: u64,
    /// Their spans on the device.
    pub wall_ns: u64,
    /// What bricks explain of these; or layers, and what is before and after them, where nothing smaller was
    /// timed; or the passes as a whole.
    pub timed_ns: u64,
    /// What lies between. Gaps inside of what was timed are not known.
    pub gaps_ns: u64,
}

/// The sums of a layer in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTotal {
    /// The phase.
    pub phase: Phase,
    /// Which layer; `None` for what ran before and after the layers, where bricks had no times.
    pub layer: Option<u16>,
    /// How often it ran.
    pub count: u64,
    /// Its times, summed.
    pub total_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl DeviceProfile {
    /// How far its clock ran ahead of the host's, from the first look at both to the last.
    #[must_use]
    pub fn drift(&self) -> Option<Drift> {
        self.alignment?.drift(&self.ticks, &self.last_alignment?)
    }

    /// The most that a device time is off by on the host's axis, as far as looks at both clocks tell: that
    /// of the worse of the first and the last. Between them drift adds to it.
    #[must_use]
    pub fn clock_error_ns(&self) -> Option<u64> {
        let looks = [self.alignment, self.last_alignment];
        looks.into_iter().flatten().map(|alignment| alignment.error_ns).max()
    }

    /// Passes that were begun and have no times, for whatever reason.
    #[must_use]
    pub fn untimed_passes(&self) -> u64 {
        [
            self.unsettled_passes,
            self.lost_passes,
            self.disordered_passes,
            self.abandoned_passes,
            self.overfull_passes,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}
