//! The device part of a profile.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;
use crate::brick::Phase;
use crate::device::launch::launch_table;
use crate::device::{Alignment, Drift, Grain, GrainChoice, Launch, StampCost, Ticks};
use crate::dropped::Dropped;
use crate::latency::Latency;
use crate::machine::Ceilings;
use crate::span::{Dependency, Span, span_table};
use crate::sums::{Pass, PhaseTotal, Total};

/// What a device did, by its own clock.
///
/// For each stream, phase and pass, the exclusive times of the bricks and the gaps between them
/// (`unattributed_ns`) add up to the span on the device (`wall_ns`), from its first mark to its last. A pass
/// has the same `serial` on all streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// The device, as its driver names it.
    pub name: String,
    /// The rank whose device it is, in a profile of several ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How it was driven: `vulkan`, `cuda`, `simulated` …
    pub api: String,
    /// The driver and its version.
    pub driver: String,
    /// Its clock.
    pub ticks: Ticks,
    /// The alignment with the host's clock when timing began. `start_ns` of spans and passes is by the host's
    /// clock, with this error.
    pub alignment: Option<Alignment>,
    /// The last alignment. Passes after it are placed by it.
    pub last_alignment: Option<Alignment>,
    /// How often the clocks were aligned.
    #[serde(default)]
    pub alignments: u64,
    /// What the device does at best, measured beside the run: its memory, a cache, and arithmetic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<Ceilings>,
    /// Why there are no ceilings, if they were to be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings_absent: Option<Absent>,
    /// The cost of a mark, if it was measured.
    #[serde(default)]
    pub stamp: Option<StampCost>,
    /// Why the cost of a mark is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp_absent: Option<Absent>,
    /// The share of a pass that its marks were allowed to cost; `None` without a known cost.
    #[serde(default)]
    pub budget: Option<f64>,
    /// How finely each phase was timed in the end, and why.
    #[serde(default)]
    pub grains: Vec<GrainChoice>,
    /// Passes that had begun and were not settled when the profile was taken.
    pub unsettled_passes: u64,
    /// Passes without times because the device was lost or could not read them back.
    pub lost_passes: u64,
    /// Passes without times because their marks were not in order.
    pub disordered_passes: u64,
    /// Passes without times because the caller abandoned them.
    #[serde(default)]
    pub abandoned_passes: u64,
    /// Passes without times because they had too many marks. The passes after them were timed less finely.
    #[serde(default)]
    pub overfull_passes: u64,
    /// Passes that ran without marks to keep to the budget: only some replays of a recorded pass, or only some
    /// short passes, are timed.
    #[serde(default)]
    pub unmarked_passes: u64,
    /// A brick lasts from when the host began to issue it until its last kernel ended, so its time includes those in which
    /// the device waited for the host: events around the modules of another program. How busy the device was is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub includes_waits: bool,
    /// Why the device was lost, if it was.
    pub lost: Option<String>,
    /// The last failure after which the device still worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The streams.
    pub streams: Vec<DeviceStream>,
    /// Dependencies between streams. Lanes are indices into `streams`, spans are indices into the stream's
    /// `spans`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    /// Dependencies that lack one side: it did not fit the log, or nothing came after it.
    #[serde(default)]
    pub dropped_dependencies: u64,
}

impl DeviceProfile {
    /// A device with this clock that did nothing, and of which nothing is known.
    #[must_use]
    pub const fn empty(ticks: Ticks) -> Self {
        Self {
            name: String::new(),
            rank: None,
            api: String::new(),
            driver: String::new(),
            ticks,
            alignment: None,
            last_alignment: None,
            alignments: 0,
            ceilings: None,
            ceilings_absent: None,
            stamp: None,
            stamp_absent: None,
            budget: None,
            grains: Vec::new(),
            unsettled_passes: 0,
            lost_passes: 0,
            disordered_passes: 0,
            abandoned_passes: 0,
            overfull_passes: 0,
            unmarked_passes: 0,
            includes_waits: false,
            lost: None,
            failure: None,
            streams: Vec::new(),
            dependencies: Vec::new(),
            dropped_dependencies: 0,
        }
    }
}

/// What a stream of a device did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStream {
    /// Its name.
    pub name: String,
    /// What was lost or recorded otherwise than intended.
    pub dropped: Dropped,
    /// Sums by phase.
    pub phases: Vec<PhaseTotal>,
    /// Sums by phase and name.
    pub totals: Vec<Total>,
    /// Latency of the first and the further tokens, on the device alone.
    pub latency: Latency,
    /// Its passes by phase and the grain at which they were timed, with their gaps.
    #[serde(default)]
    pub grains: Vec<GrainTotal>,
    /// The layers that have times.
    #[serde(default)]
    pub layers: Vec<LayerTotal>,
    /// The passes, one by one.
    pub passes: Vec<Pass>,
    /// Every span that was kept. Their lane is 0.
    #[serde(with = "span_table")]
    pub spans: Vec<Span>,
    /// When the host launched the spans, in the order of `spans`: kernels, and bricks without timed kernels.
    /// Layers have no launches, nor do spans in profiles of older versions.
    #[serde(default, with = "launch_table", skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
}

impl DeviceProfile {
    /// Whether more than one stream ran bricks.
    #[must_use]
    pub fn has_streams_at_once(&self) -> bool {
        let has_bricks =
            |stream: &&DeviceStream| stream.totals.iter().any(|total| total.category.is_some());
        self.streams.iter().filter(has_bricks).count() > 1
    }
}

impl DeviceStream {
    /// Which of the host's passes issued which of this stream's: pairs of indices into `host` and `passes`.
    ///
    /// Host and device number their passes independently. Passes are matched by phase, tokens, and tokens before
    /// them: if both sides have equally many passes of a kind, these match in order. Other passes are unmatched.
    #[must_use]
    pub fn issued_by(&self, host: &[Pass]) -> Vec<(usize, usize)> {
        issued(host, &self.passes)
    }
}

/// See [`DeviceStream::issued_by`].
pub fn issued(host: &[Pass], done: &[Pass]) -> Vec<(usize, usize)> {
    type Known = (u8, u64, u64);
    // Of phases with a pass whose tokens aren't known, on either side, they tell nothing.
    let untold: Vec<Phase> =
        host.iter().chain(done).filter(|pass| pass.tokens == 0).map(|pass| pass.phase).collect();
    let untold = Phase::ALL.map(|phase| untold.contains(&phase));
    let sorted = |passes: &[Pass]| {
        let key = |pass: &Pass| {
            let is_untold = untold.get(pass.phase as usize).is_some_and(|is_untold| *is_untold);
            (pass.phase as u8, if is_untold { 0 } else { pass.tokens }, pass.position)
        };
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
            // A pass can't run before it is issued.
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
    /// The grain.
    pub grain: Grain,
    /// The number of passes.
    pub passes: u64,
    /// The number of their marks.
    pub marks: u64,
    /// The time that they spanned on the device.
    pub wall_ns: u64,
    /// The part of it in what was timed: bricks; or layers and what is before and after them, if nothing
    /// smaller was timed; or whole passes.
    pub timed_ns: u64,
    /// The part of it in gaps. Gaps inside of what was timed are unknown.
    pub gaps_ns: u64,
}

/// The sums of a layer in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTotal {
    /// The phase.
    pub phase: Phase,
    /// The layer; `None` for what ran before and after the layers, if bricks had no times.
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
    /// How far its clock ran ahead of the host's, from the first alignment to the last.
    #[must_use]
    pub fn drift(&self) -> Option<Drift> {
        self.alignment?.drift(&self.ticks, &self.last_alignment?)
    }

    /// The largest error of a device time on the host's axis according to the alignments: the larger of the
    /// first one's and the last one's. Between them, drift adds to it.
    #[must_use]
    pub fn clock_error_ns(&self) -> Option<u64> {
        let looks = [self.alignment, self.last_alignment];
        looks.into_iter().flatten().map(|alignment| alignment.error_ns).max()
    }

    /// The number of passes that began and have no times, for any reason.
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
