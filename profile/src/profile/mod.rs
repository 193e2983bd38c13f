//! The profile: recording fills a [`Profile`]; views, exports, checks and comparisons read one.
//!
//! A profile is plain data. It is written as JSON and read back, and equal profiles give the same
//! bytes. In each phase and each pass,
//!
//! ```text
//! sum of exclusive_ns of the bricks + unattributed_ns = wall_ns
//! ```
//!
//! to the nanosecond. [`Profile::check`] verifies that.

mod check;
mod device;
mod file;
mod graph;
mod graph_layers;
mod lately;
mod undisturbed;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

pub use self::device::DeviceParts;
pub use self::file::{ProfileError, RUN_FILE};
pub use self::lately::Lately;
use crate::absent::Absent;
use crate::among::Among;
use crate::brick::{BrickCategory, Phase};
use crate::checksum::KernelChecksum;
use crate::clock::ClockInfo;
use crate::device::{DeviceProfile, GrainTotal, Serialised, SyncMode};
use crate::digest::{DigestFault, KernelDigest, Tolerance, first_fault};
use crate::dropped::Dropped;
use crate::experts::LayerExperts;
use crate::graph::{ExecutionGraph, PtxRegistry};
use crate::keep::{Fired, Kept};
use crate::latency::Latency;
use crate::layers::LayerTables;
use crate::machine::{Ceilings, Machine, OtherLoad};
use crate::name::{Name, NameKind};
use crate::not_finite::NotFinite;
use crate::ranks::Ranks;
use crate::request::{PassPart, Request};
use crate::run::{Imported, Model, Named, Observed, Overhead, Run};
use crate::save;
use crate::share::{CpuWait, ThreadShare};
use crate::span::{Dependency, Lane, Span, span_table};
use crate::stats::{BrickStats, CategoryStats, by_category};
use crate::sums::{BrickKernel, LayerBrick, Pass, PhaseTotal, Total};
use crate::tile::{TileBalance, TileStats, TileThread};
use crate::trial::Trial;

/// The version of the file format that this crate writes. It reads all versions up to this one.
pub const SCHEMA_VERSION: u32 = 2;

/// What a profile can be taken from: a profile, or a profiler that has recorded one. So that what reads profiles needs no
/// profiler, and can still be called on one.
pub trait AsProfile {
    /// The profile as it is now.
    fn as_profile(&self) -> Cow<'_, Profile>;
}

impl AsProfile for Profile {
    fn as_profile(&self) -> Cow<'_, Profile> {
        Cow::Borrowed(self)
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`SCHEMA_VERSION`] of the crate that wrote it.
    pub schema_version: u32,
    /// The version of brickscope that wrote it.
    pub brickscope_version: String,
    /// When it was collected, RFC 3339 in UTC.
    pub created: String,
    /// Of an import, when that was, in the same form: `created` is then as the file says. It stands here, since lists of runs
    /// read the begin of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_at: Option<String>,
    /// What was lost or recorded otherwise than intended. First, since it qualifies everything else.
    pub dropped: Dropped,
    /// The run, as far as its caller described it.
    pub run: Option<Run>,
    /// What whoever measured named of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<Named>,
    /// The model, as far as the caller described it.
    pub model: Option<Model>,
    /// The machine.
    pub machine: Option<Machine>,
    /// The limits of this machine, as measured before the run.
    pub ceilings: Option<Ceilings>,
    /// Why there are no ceilings, if they were to be measured.
    pub ceilings_absent: Option<Absent>,
    /// The id of the process that recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Which of several processes that was, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub among: Option<Among>,
    /// The clock behind every time.
    pub clock: ClockInfo,
    /// How the profiler synchronised with devices.
    pub sync_mode: SyncMode,
    /// What the profiler itself cost.
    pub overhead: Overhead,
    /// Why hardware counters are missing, if any are.
    // Schema 1 has the older name.
    #[serde(alias = "counters")]
    pub counters_absent: Option<Absent>,
    /// How much of the machine other processes used while profiling was on.
    #[serde(default)]
    pub other_load: Option<OtherLoad>,
    /// Why `other_load` is unknown.
    #[serde(default)]
    pub other_load_absent: Option<Absent>,
    /// Sums by phase.
    pub phases: Vec<PhaseTotal>,
    /// Sums by phase, name and source.
    pub totals: Vec<Total>,
    /// Latency of the first and the further tokens.
    #[serde(default)]
    pub latency: Latency,
    /// The passes, one by one.
    pub passes: Vec<Pass>,
    /// Which of all passes these are, where some were kept and the others only summed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// How often the condition came true by which passes were to be kept whole, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<Fired>,
    /// The requests of a server, in the order in which they were told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Request>,
    /// Which requests passes were for. A pass without any isn't known to be for one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PassPart>,
    /// Tiles by level.
    pub tiles: Vec<TileStats>,
    /// Tiles by thread and level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tile_threads: Vec<TileThread>,
    /// How evenly threads shared the matrix products, if that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tile_balance: Option<TileBalance>,
    /// How long each thread worked at its shares of bricks, and waited for others, where that was recorded: by phase,
    /// brick and thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ThreadShare>,
    /// How long each thread waited for a CPU, where threads were looked at one by one: by phase and thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_waits: Vec<CpuWait>,
    /// Which experts of a mixture ran, where that was recorded: by phase and layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experts: Vec<LayerExperts>,
    /// Fingerprints of kernel outputs, in the order in which they were recorded.
    pub checksums: Vec<KernelChecksum>,
    /// Digests of kernel outputs, which compare across machines, in the order in which they were
    /// recorded.
    // Absent from files without digests, and from older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<KernelDigest>,
    /// What the caller observed by other means.
    pub observed: Observed,
    /// The graph that the caller recorded, if there is one.
    pub graph: Option<ExecutionGraph>,
    /// The sources of kernels, if any were registered.
    #[serde(default, skip_serializing_if = "PtxRegistry::is_empty")]
    pub ptx: PtxRegistry,
    /// What the numbers in `spans` stand for.
    pub names: Vec<Name>,
    /// The threads that recorded.
    pub lanes: Vec<Lane>,
    /// Every span that was kept.
    #[serde(with = "span_table")]
    pub spans: Vec<Span>,
    /// Dependencies between threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    /// What ran on devices, by their own clocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceProfile>,
    /// How finely the passes of a device were timed, in a profile that is of a device by itself
    /// ([`Profile::on_device`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grains: Vec<GrainTotal>,
    /// The phases in which a device's operations ran one at a time, and were timed by the host's clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serialised: Vec<Serialised>,
    /// Bricks layer by layer, in a snapshot (`BrickProfiler::snapshot`) after
    /// `BrickProfiler::sum_layers` was called. [`Profile::by_layer`] computes the same table from the spans
    /// that were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerBrick>,
    /// Kernels by the brick that they ran in, in the same snapshots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brick_kernels: Vec<BrickKernel>,
    /// Logits that aren't numbers, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_finite: Option<NotFinite>,
    /// The file of another program that this profile was imported from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Imported>,
    /// The ranks of a job that its devices are of, and their collectives, if a file tells of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Ranks>,
    /// Changes that were tried since, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<Trial>,
}

impl Profile {
    /// An empty profile, for callers that fill it by other means than a profiler.
    #[must_use]
    pub fn empty(clock: ClockInfo) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
            created: save::now_rfc3339(),
            imported_at: None,
            dropped: Dropped::default(),
            run: None,
            named: None,
            model: None,
            machine: None,
            ceilings: None,
            ceilings_absent: None,
            process: None,
            among: None,
            clock,
            sync_mode: SyncMode::default(),
            overhead: Overhead::default(),
            counters_absent: None,
            other_load: None,
            other_load_absent: None,
            phases: Vec::new(),
            totals: Vec::new(),
            latency: Latency::default(),
            passes: Vec::new(),
            kept: None,
            fired: None,
            requests: Vec::new(),
            parts: Vec::new(),
            tiles: Vec::new(),
            tile_threads: Vec::new(),
            tile_balance: None,
            shares: Vec::new(),
            cpu_waits: Vec::new(),
            experts: Vec::new(),
            checksums: Vec::new(),
            digests: Vec::new(),
            observed: Observed::default(),
            graph: None,
            ptx: PtxRegistry::new(),
            names: Vec::new(),
            lanes: Vec::new(),
            spans: Vec::new(),
            dependencies: Vec::new(),
            devices: Vec::new(),
            grains: Vec::new(),
            serialised: Vec::new(),
            layers: Vec::new(),
            brick_kernels: Vec::new(),
            not_finite: None,
            imported: None,
            ranks: None,
            trials: Vec::new(),
        }
    }

    /// Of a phase in which a device's operations ran one at a time.
    #[must_use]
    pub fn serialised(&self, phase: Phase) -> Option<&Serialised> {
        self.serialised.iter().find(|of| of.phase == phase)
    }

    /// The first kernel whose digest differs from that of `reference` at the same place by more than
    /// `tolerance` allows, like `ChecksumRecorder::find_fault` but for runs from files.
    #[must_use]
    pub fn find_fault(&self, reference: &Self, tolerance: Tolerance) -> Option<DigestFault> {
        first_fault(&self.digests, &reference.digests, tolerance)
    }

    /// The sums of a phase, if it had any pass.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<&PhaseTotal> {
        self.phases.iter().find(|total| total.phase == phase)
    }

    /// What recording took, in nanoseconds: the [estimate](Overhead::estimate_ns) of what spans cost, and what threads prepared
    /// once the first pass had begun. Before it, no pass waited for that.
    #[must_use]
    pub fn recording_ns(&self) -> Option<f64> {
        Some(self.overhead.estimate_ns()? + self.prepared_ns() as f64)
    }

    /// What threads [prepared](crate::Preparation) between the begin of the first pass and the end of the last one, in
    /// nanoseconds.
    #[must_use]
    pub fn prepared_ns(&self) -> u64 {
        let first = self.passes.iter().map(|pass| pass.start_ns).min();
        let last = self.passes.iter().map(|pass| pass.start_ns.saturating_add(pass.wall_ns)).max();
        first.zip(last).map_or(0, |(first, last)| self.overhead.prepared_within_ns(first, last))
    }

    /// The bricks of a phase (`None`: outside of passes), the longest first.
    #[must_use]
    pub fn bricks(&self, phase: Option<Phase>) -> Vec<&Total> {
        self.sorted_totals(phase, NameKind::Brick, |stats| stats.exclusive_ns)
    }

    /// The kernels of a phase (`None`: outside of passes), the longest first.
    #[must_use]
    pub fn kernels(&self, phase: Option<Phase>) -> Vec<&Total> {
        self.sorted_totals(phase, NameKind::Kernel, |stats| stats.total_ns)
    }

    fn sorted_totals(
        &self,
        phase: Option<Phase>,
        kind: NameKind,
        key: impl Fn(&BrickStats) -> u64,
    ) -> Vec<&Total> {
        let wanted = |total: &&Total| total.phase == phase && total.kind == kind;
        let mut totals: Vec<&Total> = self.totals.iter().filter(wanted).collect();
        // A stable sort, so that equals stay in the order of their numbers.
        totals.sort_by_key(|total| std::cmp::Reverse(key(&total.stats)));
        totals
    }

    /// The categories of a phase (`None`: outside of passes), indexed by `BrickCategory as usize`.
    #[must_use]
    pub fn categories(&self, phase: Option<Phase>) -> [CategoryStats; BrickCategory::COUNT] {
        by_category(
            self.totals
                .iter()
                .filter(|total| total.phase == phase)
                .filter_map(|total| Some((total.category?, &total.stats))),
        )
    }

    /// The pass of `phase` with the median wall time, to represent all of them. If their number is even,
    /// the earlier of the two in the middle. Where passes were [kept](Self::kept) by chance, each counts as often as it stands
    /// for others.
    #[must_use]
    pub fn typical_pass(&self, phase: Phase) -> Option<&Pass> {
        self.median_pass_among(phase, |_| true)
    }

    /// The same of the passes that are wanted.
    #[must_use]
    pub fn median_pass_among(
        &self,
        phase: Phase,
        is_wanted: impl Fn(&Pass) -> bool,
    ) -> Option<&Pass> {
        let is_in = |pass: &&Pass| pass.phase == phase && !pass.is_left_out && is_wanted(pass);
        let mut passes: Vec<&Pass> = self.passes.iter().filter(is_in).collect();
        passes.sort_by_key(|pass| (pass.wall_ns, pass.start_ns));
        let Some(kept) = &self.kept else {
            return passes.get(passes.len().checked_sub(1)? / 2).copied();
        };
        let weights = kept.weights();
        let weight = |pass: &Pass| weights.get(&pass.serial).copied().unwrap_or(1.0);
        let half = passes.iter().map(|pass| weight(pass)).sum::<f64>() / 2.0;
        let mut so_far = 0.0;
        let is_middle = |pass: &&Pass| {
            so_far += weight(pass);
            so_far >= half
        };
        // Rounding may keep all of them from being as many as their sum.
        let last = passes.last().copied();
        passes.iter().copied().find(is_middle).or(last)
    }

    /// The pass of `phase` to draw: the [typical](Self::typical_pass) one if all of its spans were kept,
    /// else the complete one with the nearest wall time. Passes in which no brick was timed come last.
    #[must_use]
    pub fn drawable_pass(&self, phase: Phase) -> Option<&Pass> {
        self.drawable_pass_among(phase, |_| true)
    }

    /// The same of the passes that are wanted.
    #[must_use]
    pub fn drawable_pass_among(
        &self,
        phase: Phase,
        is_wanted: impl Fn(&Pass) -> bool,
    ) -> Option<&Pass> {
        let typical = self.median_pass_among(phase, &is_wanted)?;
        let explained = self.explained();
        self.passes
            .iter()
            .filter(|pass| pass.phase == phase && !pass.is_left_out && is_wanted(pass))
            .filter(|pass| explained.get(&pass.serial) == Some(&pass.attributed_ns))
            .min_by_key(|pass| {
                let is_other = pass.serial != typical.serial;
                (pass.attributed_ns == 0, is_other, pass.wall_ns.abs_diff(typical.wall_ns))
            })
    }

    /// What the spans of each pass took, by its serial. By itself, since what is generic is compiled with the package that calls
    /// it, and as little optimised.
    fn explained(&self) -> HashMap<u32, u64> {
        let mut explained: HashMap<u32, u64> = HashMap::new();
        for span in &self.spans {
            if let Some(pass) = span.pass {
                let explained = explained.entry(pass).or_default();
                *explained = u64::saturating_add(*explained, span.exclusive_ns);
            }
        }
        explained
    }

    /// The serials of passes that were left out of all sums: their spans are still there.
    #[must_use]
    pub fn left_out(&self) -> HashSet<u32> {
        self.passes.iter().filter(|pass| pass.is_left_out).map(|pass| pass.serial).collect()
    }

    /// Bricks by phase, layer and name: the profile's own table if it has one, else the sums of the spans
    /// that were kept, without passes that were left out. If spans were [dropped](Dropped::spans) and there is no table, these are less than
    /// the sums of `totals`.
    #[must_use]
    pub fn by_layer(&self) -> Vec<LayerBrick> {
        if !self.layers.is_empty() {
            return self.layers.clone();
        }
        self.layers_of_spans()
    }

    fn layers_of_spans(&self) -> Vec<LayerBrick> {
        let left_out = self.left_out();
        let phases: HashMap<u32, Phase> =
            self.passes.iter().map(|pass| (pass.serial, pass.phase)).collect();
        let mut tables = LayerTables::default();
        for span in &self.spans {
            let Some(index) = span.name else { continue };
            if span.pass.is_some_and(|pass| left_out.contains(&pass)) {
                continue;
            }
            let is_brick = |name: &Name| name.kind == NameKind::Brick;
            if self.names.get(usize::from(index)).is_some_and(is_brick) {
                let phase = span.pass.and_then(|pass| phases.get(&pass).copied());
                tables.add_brick(phase, index, span);
            }
        }
        tables.finish(&self.names).0
    }
}
