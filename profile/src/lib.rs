//! A profile of LLM inference as plain data: what was recorded, and nothing that measures.
//!
//! [`brickscope`](https://docs.rs/brickscope) records profiles, and re-exports all of this package;
//! `brickscope-analysis` reads them. Programs that only read profiles need no more than this package.
//! There is no clock, no lock, no thread and no `unsafe` in it.
//!
//! | module | what it has |
//! |---|---|
//! | [`profile`] | [`Profile`]: a run; its file, its checks, its passes as graphs, its devices |
//! | [`brick`], [`name`] | the fifteen well-known bricks, phases, work; names of bricks and kernels |
//! | [`span`], [`sums`] | single spans and their threads; sums by phase, pass, brick, kernel, layer |
//! | [`run`], [`machine`], [`clock`], [`device`] | what ran, where, by which clock, on which device |
//! | [`dropped`], [`absent`] | what was lost; what could not be measured, and why |
//! | [`latency`], [`tile`], [`checksum`], [`digest`] | times of tokens, tiles, fingerprints of kernel outputs |
//! | [`graph`] | [`ExecutionGraph`]: schedule, critical path, slack, transfers, and its text forms |
//! | [`stats`] | statistics of spans; ratios of paired times; Student's t |
//! | [`save`] | files written whole or not at all |
#![forbid(unsafe_code)]

pub mod absent;
pub mod brick;
pub mod checksum;
pub mod clock;
pub mod device;
pub mod digest;
pub mod dropped;
pub mod graph;
pub mod latency;
#[doc(hidden)]
pub mod layers;
pub mod machine;
pub mod name;
pub mod profile;
pub mod run;
pub mod save;
pub mod span;
pub mod stats;
pub mod sums;
#[doc(hidden)]
pub mod text;
pub mod tile;

pub use crate::absent::Absent;
pub use crate::brick::{BrickCategory, BrickId, Phase, Source, Work};
pub use crate::checksum::{DivergenceInfo, KernelChecksum, fnv1a_f32_checksum};
pub use crate::clock::{Anchor, ClockInfo};
pub use crate::device::{
    Alignment, Bracket, Busy, DeviceProfile, DeviceStream, Drift, Grain, GrainChoice, GrainTotal,
    Launch, LaunchKind, LayerTotal, StampCost, SyncMode, Ticks,
};
pub use crate::digest::{Broken, Digest, DigestFault, KernelDigest, Measure, Tolerance, Verdict};
pub use crate::dropped::Dropped;
pub use crate::graph::{
    Cycle, DeviceLaunch, EdgeType, ExecutionEdge, ExecutionGraph, ExecutionNode, ExecutionNodeId,
    HostLaunch, NodeTime, PingPong, PtxName, PtxRegistry, PtxSource, Registered, Schedule, Slack,
    Step, TransferDirection, TreeOptions, WhatIf,
};
pub use crate::latency::{Durations, Latency, SlowBrick, SlowTokens};
pub use crate::machine::{
    Bandwidth, CacheCeiling, CacheLevel, Ceilings, CounterReading, CounterSums, Disturbance,
    Machine, Move, Numbers, OtherLoad, Peak, Survey,
};
pub use crate::name::{Name, NameKind, Route};
pub use crate::profile::{Profile, ProfileError, SCHEMA_VERSION};
pub use crate::run::{FunctionSamples, Imported, Model, Observed, Overhead, Run};
pub use crate::save::{time_rfc3339, write_atomically};
pub use crate::span::{Dependency, Lane, Point, Span};
pub use crate::stats::{
    BrickStats, CategoryStats, Histogram, PairedError, PairedRatio, Percentiles, RatioOfRuns,
};
pub use crate::sums::{BrickKernel, LayerBrick, Pass, PhaseTotal, Total};
pub use crate::tile::{TileBalance, TileLevel, TileStats, TileThread};
