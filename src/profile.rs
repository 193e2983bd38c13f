//! The noun in the waist: everything that records fills a [`Profile`], everything that shows,
//! checks or compares reads one.
//!
//! A profile is plain data. It is written as JSON and read back, and the same profile gives the
//! same bytes. In it, for each phase and each pass,
//!
//! ```text
//! sum of exclusive_ns of the bricks + unattributed_ns = wall_ns
//! ```
//!
//! to the nanosecond: [`Profile::check`] holds a file to it.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::brick::{BrickCategory, Phase, Source, Work};
use crate::checksum::KernelChecksum;
use crate::clock::ClockInfo;
use crate::device::{DeviceProfile, SyncMode};
use crate::digest::{DigestFault, KernelDigest, Tolerance, first_fault};
use crate::graph::{DeviceLaunch, ExecutionGraph, HostLaunch, PtxRegistry, TransferDirection};
use crate::latency::Latency;
use crate::layers::LayerTables;
use crate::machine::{Ceilings, CounterSums, Disturbance, Machine, OtherLoad};
use crate::profiler::{OTHER_BRICK, OTHER_KERNEL};
use crate::save;
use crate::stats::{BrickStats, CategoryStats, Percentiles, by_category};
use crate::tile::{TileBalance, TileStats, TileThread};

/// The version of the file format that this crate writes. It reads all versions up to this one.
pub const SCHEMA_VERSION: u32 = 2;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`SCHEMA_VERSION`] of the crate that wrote it.
    pub schema_version: u32,
    /// The version of brickscope that wrote it.
    pub brickscope_version: String,
    /// When it was collected, RFC 3339 in UTC.
    pub created: String,
    /// What was lost or went otherwise than meant. First, since it qualifies all that follows.
    pub dropped: Dropped,
    /// The run, as far as its caller described it.
    pub run: Option<Run>,
    /// The model, as far as the caller described it.
    pub model: Option<Model>,
    /// The machine.
    pub machine: Option<Machine>,
    /// What this machine can do at best, as measured before the run.
    pub ceilings: Option<Ceilings>,
    /// Why there are no ceilings, if they were to be measured.
    pub ceilings_absent: Option<Absent>,
    /// The process that recorded, as the system numbers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// The clock behind every time.
    pub clock: ClockInfo,
    /// How the profiler was to synchronise with a device.
    pub sync_mode: SyncMode,
    /// What the profiler itself cost.
    pub overhead: Overhead,
    /// Why there are no hardware counters, or not all.
    // Of schema 1 under the older name.
    #[serde(alias = "counters")]
    pub counters_absent: Option<Absent>,
    /// How much of the machine others used while profiling was on.
    #[serde(default)]
    pub other_load: Option<OtherLoad>,
    /// Why that isn't known.
    #[serde(default)]
    pub other_load_absent: Option<Absent>,
    /// Sums by phase.
    pub phases: Vec<PhaseTotal>,
    /// Sums by phase, name and source.
    pub totals: Vec<Total>,
    /// The times of tokens.
    #[serde(default)]
    pub latency: Latency,
    /// The passes, one by one.
    pub passes: Vec<Pass>,
    /// Tiles by level.
    pub tiles: Vec<TileStats>,
    /// Tiles by thread and level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tile_threads: Vec<TileThread>,
    /// How evenly threads shared the products that macro tiles are of, if that was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tile_balance: Option<TileBalance>,
    /// Fingerprints of kernel outputs, in the order in which they were recorded.
    pub checksums: Vec<KernelChecksum>,
    /// Digests of kernel outputs, which compare across machines, in the order in which they were
    /// recorded.
    // Absent from files that have none, and from those of before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<KernelDigest>,
    /// What the caller observed by other means.
    pub observed: Observed,
    /// The graph that was recorded by hand, if one was.
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
    /// What had to wait for what on another thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    /// What devices did, by their own clocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceProfile>,
    /// Bricks layer by layer, in a [snapshot](crate::BrickProfiler::snapshot) since
    /// [`BrickProfiler::sum_layers`](crate::BrickProfiler::sum_layers). Of the spans that were kept,
    /// [`Profile::by_layer`] makes the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerBrick>,
    /// Kernels by the brick that they ran in, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brick_kernels: Vec<BrickKernel>,
    /// The file of another program that all this was read from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Imported>,
}

/// A file of another program that a profile was made from: its times are those of that program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Imported {
    /// The format: `llama-bench`, `chrome`, `vk-perf-logger`, `folded`.
    pub format: String,
    /// The file.
    pub file: String,
    /// The program that wrote it, and its version, if the file says so.
    pub program: Option<String>,
    /// What the file can't tell, each with the reason.
    #[serde(default)]
    pub lacks: Vec<Absent>,
    /// Parts of it that were left out, and why, with their number.
    #[serde(default)]
    pub left_out: Vec<(String, u64)>,
    /// What it says of how it was measured, as it names that: what must be alike for times to compare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<(String, String)>,
    /// Samples by function, of a file that counts those and has no times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<FunctionSamples>,
}

/// How often a function was seen in samples: no time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionSamples {
    /// The function.
    pub name: String,
    /// Samples in the function itself.
    pub own: u64,
    /// Samples in it or in what it called.
    pub total: u64,
}

/// The sums of one brick in one layer and phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerBrick {
    /// The phase; `None` outside of passes.
    pub phase: Option<Phase>,
    /// The layer; `None` for what ran before and after the layers.
    pub layer: Option<u16>,
    /// The brick.
    pub name: String,
    /// Spans.
    pub count: u64,
    /// From begin to end, summed, in nanoseconds.
    pub total_ns: u64,
    /// What of it no brick inside explains.
    pub exclusive_ns: u64,
}

/// A thing that can't be told, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// One sentence.
    pub reason: String,
}

/// What was lost, or went otherwise than its caller meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// Spans that are in the totals, but not in `spans`: the log was full.
    pub spans: u64,
    /// Passes that are in the phases, but not in `passes`.
    pub passes: u64,
    /// Calls that could not be recorded: their thread was being torn down, or they came from
    /// inside another recording call.
    pub homeless: u64,
    /// Deferred bricks whose start lay after the end that settled them.
    pub late: u64,
    /// Hand-offs between threads of which one side did not fit the log, or was forgotten by a reset.
    pub dependencies: u64,
    /// Uses of names of bricks or kernels for which there was no room; in the totals under
    /// `(other)`.
    pub names: u64,
    /// Spans that began and never ended, or ended while recording was off; and readings of the clock of which nobody
    /// said what they were of ([`PassReadings`](crate::PassReadings)).
    pub unfinished: u64,
    /// Bricks and kernels that ended on another thread than they began on; counted outside of
    /// passes.
    pub moved: u64,
    /// Bricks that began and ended in different passes; counted outside of passes.
    pub straddling: u64,
    /// Bricks that overlap another of their thread without nesting.
    pub overlapping: u64,
    /// Passes begun inside a pass; not counted as passes.
    pub nested_passes: u64,
    /// Passes that never ended, because of a panic say; their bricks count outside of passes.
    pub abandoned_passes: u64,
    /// Passes that were open when the profile was collected; it has nothing of them but spans.
    pub open_passes: u64,
    /// Passes whose times other work on the machine disturbed; they are in the statistics.
    pub disturbed_passes: u64,
    /// Passes that were disturbed and left out of the statistics, because that was asked for.
    pub left_out_passes: u64,
    /// In a [snapshot](crate::BrickProfiler::snapshot), kernels that are in no row of `brick_kernels`: more than there
    /// is room for ran before the brick around them ended. The totals have them.
    #[serde(skip_serializing_if = "is_zero")]
    pub unplaced_kernels: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Dropped {
    /// Each counter, by the name of its field.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 16] {
        // Taken apart, so that a new one can't be forgotten.
        let &Self {
            spans,
            passes,
            homeless,
            late,
            dependencies,
            names,
            unfinished,
            moved,
            straddling,
            overlapping,
            nested_passes,
            abandoned_passes,
            open_passes,
            disturbed_passes,
            left_out_passes,
            unplaced_kernels,
        } = self;
        [
            ("spans", spans),
            ("passes", passes),
            ("homeless", homeless),
            ("late", late),
            ("dependencies", dependencies),
            ("names", names),
            ("unfinished", unfinished),
            ("moved", moved),
            ("straddling", straddling),
            ("overlapping", overlapping),
            ("nested_passes", nested_passes),
            ("abandoned_passes", abandoned_passes),
            ("open_passes", open_passes),
            ("disturbed_passes", disturbed_passes),
            ("left_out_passes", left_out_passes),
            ("unplaced_kernels", unplaced_kernels),
        ]
    }

    /// Each counter that isn't zero, with what it means.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let outside = "they count outside of passes";
        [
            ("spans that did not fit the log", self.spans, "the totals count them"),
            ("passes that did not fit the list", self.passes, "the totals count them"),
            ("recording calls with no way to the thread's log", self.homeless, "they are lost"),
            ("deferred bricks that began after the end that settled them", self.late, ""),
            ("hand-offs between threads with one side lost", self.dependencies, ""),
            ("uses of names beyond the room for names", self.names, "they count as (other)"),
            ("spans that began and never ended", self.unfinished, ""),
            ("spans that ended on another thread", self.moved, outside),
            ("bricks that crossed the border of a pass", self.straddling, outside),
            ("bricks that overlap others without nesting", self.overlapping, ""),
            ("passes begun inside a pass", self.nested_passes, "they are no passes of their own"),
            ("passes that never ended", self.abandoned_passes, "their bricks count outside"),
            ("passes that were still open", self.open_passes, "the tables have nothing of them"),
            (
                "passes that other work on this machine disturbed",
                self.disturbed_passes,
                "their times say less of the model than of that",
            ),
            ("disturbed passes left out of the tables", self.left_out_passes, ""),
            (
                "kernels in a row without the end of a brick around them",
                self.unplaced_kernels,
                "no brick has them; the totals do",
            ),
        ]
        .into_iter()
        .filter(|&(_, count, _)| count > 0)
        .map(|(what, count, then)| {
            let then = if then.is_empty() { String::new() } else { format!(" ({then})") };
            format!("{what}: {count}{then}")
        })
    }
}

/// How a run was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The command line.
    pub command: Vec<String>,
    /// The backend that ran the kernels.
    pub backend: String,
    /// Threads of the CPU that shared the work; 0 where it ran on a device.
    pub threads: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// The seed of the sampler; `None` for greedy decoding.
    pub seed: Option<u64>,
}

/// What ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Model {
    /// The file.
    pub path: String,
    /// The name that the file gives.
    pub name: Option<String>,
    /// The architecture.
    pub architecture: String,
    /// The quantisation, as far as one word can say it.
    pub quantization: String,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Weights.
    pub parameters: u64,
    /// Transformer layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub embedding_length: u32,
    /// The weights are random: the timings are real, the text is noise.
    pub synthetic: bool,
    /// Where the weights were while the CPU read them, in a few words: `mapped file` or `large pages`, or
    /// `large pages, rows interleaved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_in: Option<String>,
    /// How long it took to copy the file there, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_in_ns: Option<u64>,
    /// How many bytes of them were put into another order there, for kernels that read them faster so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved_bytes: Option<u64>,
    /// How long that took, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved_in_ns: Option<u64>,
}

/// What the profiler itself cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// Nanoseconds of one span, measured on this machine with this clock.
    pub span_ns: Option<f64>,
    /// Spans recorded.
    pub spans: u64,
    /// How `span_ns` was obtained, or why it is absent.
    pub basis: String,
}

impl Overhead {
    /// `span_ns` times `spans`: an estimate, in nanoseconds.
    #[must_use]
    pub fn estimate_ns(&self) -> Option<f64> {
        Some(self.span_ns? * self.spans as f64)
    }
}

/// The sums of one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTotal {
    /// Which.
    pub phase: Phase,
    /// Passes.
    pub passes: u64,
    /// How many of them other work on the machine disturbed.
    #[serde(default)]
    pub disturbed: u64,
    /// Tokens that they processed.
    pub tokens: u64,
    /// From begin to end of each pass, summed.
    pub wall_ns: u64,
    /// What bricks explain of it.
    pub attributed_ns: u64,
    /// What no brick explains.
    pub unattributed_ns: u64,
}

impl PhaseTotal {
    /// Tokens per second of wall; `None` without a wall or a token: an imported file may not say how many
    /// there were.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.wall_ns > 0 && self.tokens > 0)
            .then(|| self.tokens as f64 * 1e9 / self.wall_ns as f64)
    }
}

/// The sums of one brick or kernel in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// The phase; `None` outside of passes.
    pub phase: Option<Phase>,
    /// A brick or a kernel.
    pub kind: NameKind,
    /// The category of a brick.
    pub category: Option<BrickCategory>,
    /// How the times were obtained.
    pub source: Source,
    /// How a kernel runs on the CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostLaunch>,
    /// How it runs on a device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<DeviceLaunch>,
    /// The sums.
    #[serde(flatten)]
    pub stats: BrickStats,
    /// The standard deviation of a span, in nanoseconds; `None` for fewer than two.
    #[serde(default)]
    pub std_dev_ns: Option<f64>,
    /// Percentiles of a span, as far as there are enough of them.
    #[serde(flatten)]
    pub percentiles: Percentiles,
    /// What hardware counters counted in it, as a whole, with what lies inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<CounterSums>,
}

/// One pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// Its number in `spans`.
    pub serial: u32,
    /// The phase.
    pub phase: Phase,
    /// The thread that ran it: an index into `lanes`.
    pub lane: u32,
    /// Tokens processed.
    pub tokens: u64,
    /// Tokens in the KV cache when it began.
    pub position: u64,
    /// When it began, in nanoseconds of the clock.
    pub start_ns: u64,
    /// From begin to end.
    pub wall_ns: u64,
    /// What bricks explain of it.
    pub attributed_ns: u64,
    /// What no brick explains.
    pub unattributed_ns: u64,
    /// What others did to it, or to it and its neighbours; `None` if nobody looked.
    #[serde(default)]
    pub disturbance: Option<Disturbance>,
    /// Whether it was left out of the statistics for that.
    #[serde(default)]
    pub is_left_out: bool,
}

impl Pass {
    /// Whether other work on the machine disturbed it, as far as that is known.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.disturbance.is_some_and(|disturbance| disturbance.is_disturbed())
    }
}

/// What the caller observed by other means.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Share of L2 accesses that hit, 0 to 1, as the caller was told by hardware.
    pub l2_cache_hit_rate: Option<f32>,
    /// Whether transfers were zero-copy.
    pub zero_copy: bool,
    /// Tokens that there is room for in the KV cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_tokens: Option<u64>,
}

/// Whether a name is that of a brick or of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameKind {
    /// A brick.
    Brick,
    /// A kernel.
    Kernel,
}

/// What a span can be of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Name {
    /// The name.
    pub name: String,
    /// Of a brick or of a kernel.
    pub kind: NameKind,
    /// How a kernel runs on the CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostLaunch>,
    /// How it runs on a device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<DeviceLaunch>,
    /// What is copied, of a brick that is a copy between memories.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transfer: Option<Route>,
}

/// From where to where data is copied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// From where.
    pub src: String,
    /// To where.
    pub dst: String,
    /// Between which memories.
    pub direction: TransferDirection,
}

/// A thread that recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// The thread's name, if it has one.
    pub name: Option<String>,
    /// The number by which the system knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
}

/// One span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// What it is of: an index into `names`; `None` for a layer.
    pub name: Option<u16>,
    /// How its time was obtained.
    pub source: Source,
    /// The thread: an index into `lanes`.
    pub lane: u32,
    /// The serial of the pass; `None` outside of passes.
    pub pass: Option<u32>,
    /// The transformer layer.
    pub layer: Option<u16>,
    /// The span around it: an index into `spans`, less than its own.
    pub parent: Option<u32>,
    /// When it began, in nanoseconds of the clock.
    pub start_ns: u64,
    /// From begin to end.
    pub duration_ns: u64,
    /// What of it no brick inside explains; 0 for kernels and layers, which explain no time of
    /// their own.
    pub exclusive_ns: u64,
    /// What it had to do.
    pub work: Work,
}

/// Work of one thread that had to wait for work of another: see
/// [`BrickProfiler::hand_off`](crate::BrickProfiler::hand_off).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// Where the work was handed off.
    pub from: Point,
    /// Where it was taken over.
    pub to: Point,
}

/// A place in the work of a thread, between spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// The thread: an index into `lanes`.
    pub lane: u32,
    /// When, in nanoseconds of the clock.
    pub at_ns: u64,
    /// Its place among the points of its thread.
    pub nth: u32,
    /// The span that it lies in: an index into `spans`.
    pub inside: Option<u32>,
}

/// The sums of one kernel in the bricks of one name and phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrickKernel {
    /// The phase; `None` outside of passes.
    pub phase: Option<Phase>,
    /// The brick.
    pub brick: String,
    /// The kernel.
    pub kernel: String,
    /// Spans.
    pub count: u64,
    /// From begin to end, summed, in nanoseconds.
    pub total_ns: u64,
}

impl Profile {
    /// A profile of nothing, for a caller who fills it by other means than a profiler.
    #[must_use]
    pub fn empty(clock: ClockInfo) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
            created: save::now_rfc3339(),
            dropped: Dropped::default(),
            run: None,
            model: None,
            machine: None,
            ceilings: None,
            ceilings_absent: None,
            process: None,
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
            tiles: Vec::new(),
            tile_threads: Vec::new(),
            tile_balance: None,
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
            layers: Vec::new(),
            brick_kernels: Vec::new(),
            imported: None,
        }
    }

    /// The first kernel whose digest differs from that of `reference` at the same place by more than
    /// `tolerance` allows: as [`ChecksumRecorder::find_fault`](crate::ChecksumRecorder::find_fault), for
    /// runs from files.
    #[must_use]
    pub fn find_fault(&self, reference: &Self, tolerance: Tolerance) -> Option<DigestFault> {
        first_fault(&self.digests, &reference.digests, tolerance)
    }

    /// The sums of a phase, if it had a pass.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<&PhaseTotal> {
        self.phases.iter().find(|total| total.phase == phase)
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
        // Stable, so that equals stay in the order of their numbers.
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

    /// The pass of `phase` whose wall is the median: the one to look at when one is to stand for
    /// all. Of an even number, the earlier of the two in the middle.
    #[must_use]
    pub fn typical_pass(&self, phase: Phase) -> Option<&Pass> {
        let mut passes: Vec<&Pass> =
            self.passes.iter().filter(|pass| pass.phase == phase && !pass.is_left_out).collect();
        passes.sort_by_key(|pass| (pass.wall_ns, pass.start_ns));
        passes.get(passes.len().checked_sub(1)? / 2).copied()
    }

    /// The pass of `phase` to draw: the [typical](Self::typical_pass) one if all its spans were
    /// kept, else the one whose wall is nearest to it among those of which all were. Passes in which no
    /// brick was timed come last.
    #[must_use]
    pub fn drawable_pass(&self, phase: Phase) -> Option<&Pass> {
        let typical = self.typical_pass(phase)?;
        let mut explained: HashMap<u32, u64> = HashMap::new();
        for span in &self.spans {
            if let Some(pass) = span.pass {
                let explained = explained.entry(pass).or_default();
                *explained = u64::saturating_add(*explained, span.exclusive_ns);
            }
        }
        self.passes
            .iter()
            .filter(|pass| pass.phase == phase && !pass.is_left_out)
            .filter(|pass| explained.get(&pass.serial) == Some(&pass.attributed_ns))
            .min_by_key(|pass| {
                let is_other = pass.serial != typical.serial;
                (pass.attributed_ns == 0, is_other, pass.wall_ns.abs_diff(typical.wall_ns))
            })
    }

    /// Bricks layer by layer, by phase, layer and name: the profile's own table if it has one, else
    /// what the spans that were kept add up to. Where spans were [dropped](Dropped::spans) and there is
    /// no table, that is less than the sums of `totals`.
    #[must_use]
    pub fn by_layer(&self) -> Vec<LayerBrick> {
        if !self.layers.is_empty() {
            return self.layers.clone();
        }
        let phases: HashMap<u32, Phase> =
            self.passes.iter().map(|pass| (pass.serial, pass.phase)).collect();
        let mut tables = LayerTables::default();
        for span in &self.spans {
            let Some(index) = span.name else { continue };
            let is_brick = |name: &Name| name.kind == NameKind::Brick;
            if self.names.get(usize::from(index)).is_some_and(is_brick) {
                let phase = span.pass.and_then(|pass| phases.get(&pass).copied());
                tables.add_brick(phase, index, span);
            }
        }
        tables.finish(&self.names).0
    }

    /// This profile with the statistics of undisturbed passes only. Those that were disturbed stay in
    /// `passes` with a mark, and are counted in [`Dropped::left_out_passes`].
    ///
    /// # Errors
    ///
    /// If not every pass and span was kept: what was only summed can't be taken apart again. If devices ran
    /// any of it.
    pub fn without_disturbed(&self) -> Result<Self, Absent> {
        if !self.devices.is_empty() {
            return Err(Absent {
                reason: "disturbed passes can't be left out of a run on a device: what disturbed the host \
                         is known, not what disturbed the device"
                    .to_owned(),
            });
        }
        let Dropped { spans, passes, .. } = self.dropped;
        let has_passes = self.phases.iter().any(|phase| phase.passes > 0);
        if spans > 0 || passes > 0 || self.spans.is_empty() && has_passes {
            return Err(Absent {
                reason: "disturbed passes can't be left out: that takes every span and pass, and \
                         some were only summed"
                    .to_owned(),
            });
        }
        let mut rest = self.clone();
        for pass in &mut rest.passes {
            pass.is_left_out |= pass.is_disturbed();
        }
        let left_out = rest.passes.iter().filter(|pass| pass.is_left_out).count() as u64;
        if left_out == 0 {
            return Ok(rest);
        }
        rest.dropped.left_out_passes = left_out;
        rest.dropped.disturbed_passes = 0;
        let kept: HashMap<u32, Phase> = rest
            .passes
            .iter()
            .filter(|pass| !pass.is_left_out)
            .map(|pass| (pass.serial, pass.phase))
            .collect();
        let mut stats: HashMap<(Phase, u8, u16), BrickStats> = HashMap::new();
        for span in &rest.spans {
            if let (Some(name), Some(pass)) = (span.name, span.pass)
                && let Some(&phase) = kept.get(&pass)
            {
                stats
                    .entry((phase, span.source as u8, name))
                    .or_insert_with(|| BrickStats::new(""))
                    .add(span.duration_ns, span.exclusive_ns, span.work);
            }
        }
        let mut had_counters = false;
        let key =
            |name: &Name| (name.name.clone(), name.kind, name.host.clone(), name.device.clone());
        let numbers: HashMap<_, u16> = self.names.iter().map(key).zip(0..).collect();
        rest.totals.retain_mut(|total| {
            let Some(phase) = total.phase else { return true };
            let (kind, host, device) = (total.kind, total.host.clone(), total.device.clone());
            let name = (total.stats.name.clone(), kind, host, device);
            let number = numbers.get(&name).copied().unwrap_or(match kind {
                NameKind::Brick => OTHER_BRICK,
                NameKind::Kernel => OTHER_KERNEL,
            });
            let key = Some((phase, total.source as u8, number));
            let Some(mut found) = key.and_then(|key| stats.remove(&key)) else { return false };
            found.name = name.0;
            total.std_dev_ns = found.std_dev_ns();
            total.percentiles = found.percentiles();
            total.stats = found;
            // What was counted is known only as a whole.
            had_counters |= total.counters.take().is_some();
            true
        });
        if had_counters {
            let reason = "hardware counters are known of all passes together only".to_owned();
            rest.counters_absent = Some(Absent { reason });
        }
        rest.phases.retain_mut(|total| {
            let passes = rest.passes.iter().filter(|p| p.phase == total.phase && !p.is_left_out);
            let mut sum = PhaseTotal {
                passes: 0,
                disturbed: 0,
                tokens: 0,
                wall_ns: 0,
                attributed_ns: 0,
                unattributed_ns: 0,
                ..*total
            };
            for pass in passes {
                sum.passes += 1;
                for (sum, of_pass) in [
                    (&mut sum.tokens, pass.tokens),
                    (&mut sum.wall_ns, pass.wall_ns),
                    (&mut sum.attributed_ns, pass.attributed_ns),
                    (&mut sum.unattributed_ns, pass.unattributed_ns),
                ] {
                    *sum = sum.saturating_add(of_pass);
                }
            }
            *total = sum;
            sum.passes > 0
        });
        rest.latency = Latency::of(&rest);
        Ok(rest)
    }

    /// Holds the profile to its own arithmetic: bricks + unattributed = wall, to the nanosecond,
    /// in every phase and in every pass whose spans were all kept; likewise for each stream of a device.
    ///
    /// # Errors
    ///
    /// A sentence that says which sum is off, and by how much.
    pub fn check(&self) -> Result<(), String> {
        for (index, device) in self.devices.iter().enumerate() {
            device.check().map_err(|why| format!("device {index}: {why}"))?;
        }
        for phase in &self.phases {
            let bricks = self.bricks(Some(phase.phase));
            let bricks =
                bricks.iter().fold(0, |sum, b| u64::saturating_add(sum, b.stats.exclusive_ns));
            sum_is_wall(
                &format!("the bricks of {}", phase.phase),
                bricks,
                phase.unattributed_ns,
                phase.wall_ns,
            )?;
        }
        for pass in &self.passes {
            sum_is_wall(
                &format!("pass {}", pass.serial),
                pass.attributed_ns,
                pass.unattributed_ns,
                pass.wall_ns,
            )?;
        }
        if self.dropped.spans == 0 {
            let mut explained = HashMap::<u32, u64>::new();
            for span in &self.spans {
                if let Some(pass) = span.pass {
                    let explained = explained.entry(pass).or_default();
                    *explained = u64::saturating_add(*explained, span.exclusive_ns);
                }
            }
            for pass in &self.passes {
                let spans = explained.get(&pass.serial).copied().unwrap_or_default();
                // Without a trace there is nothing to compare.
                if !self.spans.is_empty() {
                    sum_is_wall(
                        &format!("the spans of pass {}", pass.serial),
                        spans,
                        pass.unattributed_ns,
                        pass.wall_ns,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// The profile as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        save::to_json(self)
    }

    /// Reads a profile back. `path` is only for messages.
    ///
    /// # Errors
    ///
    /// Where it isn't JSON, isn't a profile, or is of a newer schema.
    pub fn from_json(json: &str, path: &Path) -> Result<Self, ProfileError> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let fault = |source| ProfileError::Json { path: path.to_owned(), source };
        let Version { schema_version: found } = serde_json::from_str(json).map_err(fault)?;
        if found > SCHEMA_VERSION {
            return Err(ProfileError::Newer { path: path.to_owned(), found });
        }
        serde_json::from_str(json).map_err(fault)
    }

    /// Writes the profile to a file: the whole of it, or nothing.
    ///
    /// # Errors
    ///
    /// Where the file can't be written.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        save::write_text(path, &self.to_json())
            .map_err(|source| ProfileError::Io { path: path.to_owned(), source })
    }

    /// Writes the profile to the file that the environment variable `BRICKSCOPE_PROFILE` names, as
    /// [`save`](Self::save) does, and returns its path; does nothing if there is none. `brickscope
    /// flamegraph -- COMMAND` sets it, and lays the samples that it took beside the spans.
    ///
    /// # Errors
    ///
    /// Where the file can't be written.
    pub fn save_where_asked(&self) -> Result<Option<PathBuf>, ProfileError> {
        let Some(path) = std::env::var_os("BRICKSCOPE_PROFILE").filter(|path| !path.is_empty())
        else {
            return Ok(None);
        };
        let path = PathBuf::from(path);
        self.save(&path)?;
        Ok(Some(path))
    }

    /// Reads a profile from a file.
    ///
    /// # Errors
    ///
    /// Where the file can't be read, and as [`Profile::from_json`].
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let json = std::fs::read_to_string(path)
            .map_err(|source| ProfileError::Io { path: path.to_owned(), source })?;
        Self::from_json(&json, path)
    }
}

pub(crate) fn sum_is_wall(
    what: &str,
    explained: u64,
    unattributed: u64,
    wall: u64,
) -> Result<(), String> {
    if explained.checked_add(unattributed) == Some(wall) {
        return Ok(());
    }
    Err(format!(
        "{what} explain {explained} ns, and {unattributed} ns are unattributed, but the wall is {wall} ns"
    ))
}

/// A profile that can't be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file can't be written or read.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file isn't a profile.
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// The file was written by a newer brickscope.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
    },
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Of text that isn't any the system has only this to say.
            Self::Io { path, source } if source.kind() == std::io::ErrorKind::InvalidData => {
                write!(f, "{} is not a brickscope profile: it is no text", path.display())
            }
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Json { path, source } if source.is_eof() => {
                write!(f, "{} is not a whole brickscope profile: {source}", path.display())
            }
            Self::Json { path, source } => {
                write!(f, "{} is not a brickscope profile: {source}", path.display())
            }
            Self::Newer { path, found } => write!(
                f,
                "{} has schema version {found}, but this brickscope reads versions up to \
                 {SCHEMA_VERSION}: use a newer one",
                path.display()
            ),
        }
    }
}

// The sentences hold their causes, so there is no `source` that would say them again.
impl std::error::Error for ProfileError {}

/// Spans as a table: thousands of rows with the names of the columns written once.
pub(crate) mod span_table {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Source, Span, Work};
    use crate::stats::stated;

    const COLUMNS: [&str; 12] = [
        "name",
        "source",
        "lane",
        "pass",
        "layer",
        "parent",
        "start_ns",
        "duration_ns",
        "exclusive_ns",
        "elements",
        "flops",
        "bytes",
    ];

    type Row = (
        Option<u16>,
        u8,
        u32,
        Option<u32>,
        Option<u16>,
        Option<u32>,
        u64,
        u64,
        u64,
        u64,
        Option<u64>,
        Option<u64>,
    );

    #[derive(Serialize)]
    struct Written<'a> {
        columns: [&'a str; 12],
        sources: &'a [Source],
        rows: Vec<Row>,
    }

    #[derive(Deserialize)]
    struct Read {
        columns: Vec<String>,
        sources: Vec<Source>,
        rows: Vec<Row>,
    }

    pub(crate) fn serialize<S: Serializer>(spans: &[Span], to: S) -> Result<S::Ok, S::Error> {
        let row = |span: &Span| {
            (
                span.name,
                span.source as u8,
                span.lane,
                span.pass,
                span.layer,
                span.parent,
                span.start_ns,
                span.duration_ns,
                span.exclusive_ns,
                span.work.elements,
                stated::some(span.work.flops),
                stated::some(span.work.bytes),
            )
        };
        let rows = spans.iter().map(row).collect();
        // Readers of before know two of them.
        let is_of_device = spans.iter().any(|span| span.source == Source::Device);
        let sources = &Source::ALL[..if is_of_device { 3 } else { 2 }];
        Written { columns: COLUMNS, sources, rows }.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Span>, D::Error> {
        let Read { columns, sources, rows } = Read::deserialize(from)?;
        if columns != COLUMNS {
            return Err(D::Error::custom(format!("spans have the columns {columns:?}")));
        }
        let span = |(index, row): (usize, Row)| {
            let source = sources.get(usize::from(row.1)).copied().ok_or_else(|| {
                D::Error::custom(format!("span {index} has the source {}, of {sources:?}", row.1))
            })?;
            Ok(Span {
                name: row.0,
                source,
                lane: row.2,
                pass: row.3,
                layer: row.4,
                parent: row.5.filter(|parent| (*parent as usize) < index),
                start_ns: row.6,
                duration_ns: row.7,
                exclusive_ns: row.8,
                work: Work {
                    elements: row.9,
                    flops: row.10.unwrap_or_default(),
                    bytes: row.11.unwrap_or_default(),
                },
            })
        };
        rows.into_iter().enumerate().map(span).collect()
    }
}
