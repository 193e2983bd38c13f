#![doc = include_str!("../README.md")]

pub mod backends;
pub mod brick;
mod checksum;
mod clock;
mod collect;
pub mod compare;
mod cost;
mod device;
mod digest;
pub mod export;
mod fold;
mod graph;
#[cfg(feature = "receipt")]
pub mod history;
pub mod import;
mod latency;
mod layers;
mod machine;
mod paired;
mod profile;
mod profiler;
#[cfg(feature = "receipt")]
pub mod receipt;
mod recorder;
pub mod roofline;
mod row;
mod save;
mod script;
pub mod stacks;
mod stats;
mod sync;
mod tile;
pub mod view;

pub use crate::brick::{BrickCategory, BrickId, Phase, Source, Work};
pub use crate::checksum::{DivergenceInfo, KernelChecksum, fnv1a_f32_checksum};
pub use crate::clock::{Anchor, Clock, ClockInfo, MockClock};
pub use crate::device::{
    Alignment, Bracket, Busy, Device, DeviceError, DeviceInfo, DeviceProfile, DeviceStream,
    DeviceTimer, Drift, Grain, GrainChoice, GrainTotal, Issued, Launch, LaunchKind, LayerTotal,
    Misuse, SimulatedDevice, StampCost, StreamId, SyncMode, Ticks,
};
pub use crate::digest::{Broken, Digest, DigestFault, KernelDigest, Measure, Tolerance, Verdict};
pub use crate::graph::{
    Cycle, DeviceLaunch, EdgeType, ExecutionEdge, ExecutionGraph, ExecutionNode, ExecutionNodeId,
    HostLaunch, NodeTime, PingPong, PtxName, PtxRegistry, PtxSource, Registered, Schedule, Slack,
    Step, TransferDirection, WhatIf,
};
pub use crate::latency::{Durations, Latency, SlowBrick, SlowTokens};
pub use crate::machine::{
    Bandwidth, CacheCeiling, CacheLevel, Ceilings, CounterReading, CounterSums, CpuLimit,
    Disturbance, LoadWatch, Machine, MachineDetails, Missing, Move, Numbers, OtherLoad, Peak,
    Survey, cpu_frequency_khz, probe_counters, probe_sampling,
};
pub use crate::paired::{PairedError, PairedRatio, RatioOfRuns};
pub use crate::profile::{
    Absent, BrickKernel, Dependency, Dropped, FunctionSamples, Imported, Lane, LayerBrick, Model,
    Name, NameKind, Observed, Overhead, Pass, PhaseTotal, Point, Profile, ProfileError, Route, Run,
    SCHEMA_VERSION, Span, Total,
};
pub use crate::profiler::{
    BrickGuard, BrickIdTimer, BrickKernelTimer, BrickKernelsTimer, BrickProfiler, BrickTimer,
    HandOff, KernelId, KernelTimer, LayerTimer, PassReadings, PassTimer, UntoldPass,
};
pub use crate::save::{time_rfc3339, write_atomically};
pub use crate::script::{GrowingWork, PassScript, PassScriptBuilder};
pub use crate::stats::{BrickStats, CategoryStats, Histogram, Percentiles};
pub use crate::tile::{TileBalance, TileLevel, TileStats, TileThread, TileTimer};
pub use crate::view::TreeOptions;
#[cfg(feature = "kernels")]
pub use brickscope_kernels::{Backend, detect_backend, simd};

/// The pages of `docs/`, so that their examples are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/export.md")]
    struct Export;
    #[doc = include_str!("../docs/flamegraph.md")]
    struct Flamegraph;
    #[doc = include_str!("../docs/gpu.md")]
    struct Gpu;
    #[doc = include_str!("../docs/graph.md")]
    struct Graph;
    #[doc = include_str!("../docs/import.md")]
    struct Import;
    #[doc = include_str!("../docs/measuring.md")]
    struct Measuring;
    #[doc = include_str!("../docs/porting.md")]
    struct Porting;
    #[doc = include_str!("../docs/performance.md")]
    struct Performance;
    #[doc = include_str!("../docs/profile.md")]
    struct ProfileFile;
    #[cfg(feature = "receipt")]
    #[doc = include_str!("../docs/receipts.md")]
    struct Receipts;
    #[doc = include_str!("../docs/roofline.md")]
    struct Roofline;
    #[doc = include_str!("../docs/work.md")]
    struct Work;
    #[doc = include_str!("../docs/diverge.md")]
    struct Diverge;
    #[doc = include_str!("../docs/compare.md")]
    struct Compare;
}
