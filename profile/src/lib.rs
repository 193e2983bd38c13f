//! A profile of LLM inference as plain data: what was recorded, and nothing that measures.
//!
//! [`brickscope`](https://docs.rs/brickscope) records profiles, and re-exports all of this package;
//! `brickscope-analysis` reads them. Programs that only read profiles need no more than this package.
//! It measures nothing, and has no threads and no `unsafe`.
//!
//! ```
//! # use brickscope_profile::{ClockInfo, Phase, Profile};
//! # let path = std::env::temp_dir().join(format!("brickscope-doc-{}.json", std::process::id()));
//! # Profile::empty(ClockInfo::default()).save(&path)?;
//! let profile = Profile::load(&path)?; // the profile.json of a run
//! for brick in profile.bricks(Some(Phase::Decode)) {
//!     println!("{}: {} µs on average", brick.stats.name, brick.stats.avg_us());
//! }
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//!
//! | file | contents |
//! |---|---|
//! | `profile/mod.rs` | [`Profile`]: a run |
//! | `profile/file.rs`, `check.rs` | its JSON file; the check that bricks + unattributed = wall |
//! | `profile/graph.rs`, `device.rs`, `undisturbed.rs` | a pass as a graph; a device's part; only undisturbed passes |
//! | `brick.rs` | the vocabulary: the fifteen well-known bricks, phases, sources of times, work |
//! | `name.rs` | names of bricks and kernels |
//! | `span.rs` | single spans, their threads, hand-offs |
//! | `sums.rs`, `layers.rs` | sums by phase, pass, brick and kernel; by layer |
//! | `run.rs`, `machine/`, `clock.rs` | what ran; on which machine, and what disturbed it; by which clock |
//! | `among.rs` | which of several processes ran it |
//! | `device/` | what ran on devices: streams, launches, clocks, busy times |
//! | `dropped.rs`, `absent.rs` | what was lost; what could not be measured, and why |
//! | `not_finite.rs` | logits that aren't numbers, and where that began |
//! | `latency.rs`, `tile.rs` | times of tokens; tiles of matrix products |
//! | `trial.rs` | changes that were tried, and what they brought |
//! | `request.rs` | requests of a server, and which passes were for them |
//! | `keep/` | which passes are kept of a run of days, and what these stand for |
//! | `ranks.rs` | ranks of one job, and their collectives |
//! | `share.rs` | how long each thread worked and waited |
//! | `experts.rs` | which experts of a mixture ran |
//! | `checksum.rs`, `digest.rs` | fingerprints of kernel outputs: bit for bit; within rounding |
//! | `graph/mod.rs`, `node.rs`, `store.rs` | [`ExecutionGraph`] |
//! | `graph/schedule.rs`, `transfer.rs` | critical path, slack and what-if; copies that undo each other |
//! | `graph/tree.rs`, `dot.rs`, `tui.rs`, `critical_path_text.rs` | a graph as text |
//! | `graph/ptx.rs` | sources of GPU kernels |
//! | `stats/mod.rs`, `histogram.rs` | [`BrickStats`]; the histogram behind percentiles |
//! | `stats/paired.rs`, `student.rs` | ratios of times measured in turns; Student's t |
//! | `save.rs`, `load.rs` | files written whole or not at all; files read up to a limit |
//! | `text.rs` | numbers and names as tables show them |
#![forbid(unsafe_code)]

pub mod absent;
pub mod among;
pub mod brick;
pub mod checksum;
pub mod clock;
pub mod device;
pub mod digest;
pub mod dropped;
pub mod experts;
pub mod graph;
pub mod keep;
pub mod latency;
#[doc(hidden)]
pub mod layers;
#[doc(hidden)]
pub mod load;
pub mod machine;
pub mod name;
pub mod not_finite;
pub mod profile;
pub mod ranks;
pub mod request;
pub mod run;
pub mod save;
pub mod secrets;
pub mod share;
pub mod span;
pub mod stats;
pub mod sums;
#[doc(hidden)]
pub mod text;
pub mod tile;
pub mod told;
pub mod trial;

pub use crate::absent::Absent;
pub use crate::among::{Among, InSet, SET_VARIABLE};
pub use crate::brick::{BrickCategory, BrickId, Data, Phase, Source, Work};
pub use crate::checksum::{DivergenceInfo, KernelChecksum, fnv1a_f32_checksum};
pub use crate::clock::{Anchor, ClockInfo};
pub use crate::device::{
    Alignment, Bracket, Busy, ClockMisfits, DeviceProfile, DeviceStream, Drift, Grain, GrainChoice,
    GrainTotal, Launch, LaunchKind, LayerTotal, Serialised, StampCost, SyncMode, Ticks,
};
pub use crate::digest::{Broken, Digest, DigestFault, KernelDigest, Measure, Tolerance, Verdict};
pub use crate::dropped::Dropped;
pub use crate::experts::{ExpertRuns, ExpertTime, LayerExperts};
pub use crate::graph::{
    Cycle, DeviceLaunch, DotOptions, EdgeType, ExecutionEdge, ExecutionGraph, ExecutionNode,
    ExecutionNodeId, HostLaunch, NodeTime, PingPong, PtxName, PtxRegistry, PtxSource, Registered,
    Schedule, Slack, Step, TransferDirection, TreeOptions, WhatIf,
};
pub use crate::keep::Kept;
pub use crate::latency::{Durations, Latency, SlowBrick, SlowTokens};
pub use crate::machine::{
    Bandwidth, CacheCeiling, CacheLevel, CeilingReading, Ceilings, CounterReading, CounterSums,
    Disturbance, Disturber, KernelPace, LimitSpread, Machine, Move, Numbers, OtherLoad, Peak,
    ReadingTime, Survey,
};
pub use crate::name::{Name, NameKind, Route};
pub use crate::not_finite::{Began, NotFinite};
pub use crate::profile::{
    AsProfile, DeviceParts, Lately, Profile, ProfileError, RUN_FILE, SCHEMA_VERSION,
};
pub use crate::ranks::{Collective, CollectiveKind, MatchedBy, OnRank, Rank, Ranks};
pub use crate::request::{Ending, Part, PartKind, PassPart, Request};
pub use crate::run::{
    Beside, Between, Calls, Engine, FunctionSamples, GraphLayers, GraphLayersBy, Imported,
    ImportedTest, Model, Named, Observed, OtherThreads, Overhead, PhaseBeside, Preparation,
    Profiled, Repeated, Repetition, Run, StatedRate, WeightGroup,
};
pub use crate::save::{time_rfc3339, write_atomically};
pub use crate::share::{CpuWait, Share, ThreadShare};
pub use crate::span::{Dependency, Lane, Point, Span};
pub use crate::stats::{
    BrickStats, CategoryStats, DataSums, Histogram, PairedError, PairedRatio, Percentiles,
    RatioOfRuns,
};
pub use crate::sums::{BrickKernel, LayerBrick, Pass, PhaseTotal, Total};
pub use crate::tile::{TileBalance, TileLevel, TileStats, TileThread};
pub use crate::told::{PartTold, StepTold, Unruled};
pub use crate::trial::{Change, PassTime, Trial, TrialVerdict};
