#![doc = include_str!("README.md")]
//!
//! # This page
//!
//! [`BrickProfiler`] first: its methods come in the order of use. Below are what they take and return. All types of
//! [`brickscope_profile`] have their names here, too; this page lists those that an engine names.

mod async_task;
pub mod clock;
mod collect;
mod cost;
pub mod device;
mod device_timer;
mod fold;
pub mod machine;
pub mod misuse;
mod names;
mod nvtx;
mod profiler;
mod recorder;
mod row;
mod sync;
pub mod template;

/// The vocabulary: the kinds of operation that have names of their own, and the groups that they form. With the types
/// that the predecessor has under this path.
pub mod brick {
    #[doc(no_inline)]
    pub use brickscope_profile::brick::*;
    #[doc(no_inline)]
    pub use brickscope_profile::{
        BrickStats, CategoryStats, DivergenceInfo, EdgeType, ExecutionEdge, ExecutionGraph,
        ExecutionNode, ExecutionNodeId, KernelChecksum, PtxRegistry, SyncMode, TileLevel,
        TileStats, TransferDirection, fnv1a_f32_checksum,
    };

    pub use crate::async_task::AsyncTaskProfiler;
    pub use crate::profiler::BrickIdTimer;
    #[doc(no_inline)]
    pub use crate::{BrickProfiler, BrickTimer, TileTimer};
}

/// What parts of [`BrickProfiler`] that not every engine needs return: tiles, graph, checksums, requests, devices, and
/// timestamps that are labelled after the pass.
pub mod handles {
    pub use crate::profiler::{
        ChecksumRecorder, DeviceRecorder, GraphRecorder, LoadMark, PassTimestamps, RequestRecorder,
        SpanAt, TileRecorder, TileTimer, UnlabelledPass,
    };
}

#[cfg(feature = "kernels")]
pub use brickscope_kernels::{Backend, detect_backend, simd};
#[doc(inline)]
pub use brickscope_profile::{
    BrickCategory, BrickId, BrickStats, Dropped, ExecutionGraph, ExecutionNode, Phase, Profile,
    PtxRegistry, SyncMode, Work,
};

pub use crate::clock::Clock;
pub use crate::device_timer::DeviceTimer;
pub use crate::misuse::Misuse;
pub use crate::names::{BrickKey, KernelId};
pub use crate::profiler::{
    BrickGuard, BrickKernelsTimer, BrickProfiler, BrickTimer, HandOff, KernelTimer, LayerTimer,
    PassTimer, PassWorker, TimedPass, TimedPassError, TimedSpan, TimedWork,
};

// The rest has its page in a module or in another package, so that this one shows what an engine needs.
#[doc(hidden)]
pub use brickscope_profile::*;

#[doc(hidden)]
pub use crate::async_task::AsyncTaskProfiler;
#[doc(hidden)]
pub use crate::clock::MockClock;
#[doc(hidden)]
pub use crate::device::{
    Device, DeviceError, DeviceInfo, DeviceMisuse, Issued, MarkCost, SimulatedDevice, StreamId,
};
#[doc(hidden)]
pub use crate::machine::{
    CpuLimit, LoadWatch, MachineDetails, Missing, cpu_frequency_khz, probe_counters, probe_sampling,
};
#[doc(hidden)]
pub use crate::profiler::{
    BrickIdTimer, ChecksumRecorder, DeviceRecorder, GraphRecorder, PassTimestamps, RequestRecorder,
    TileRecorder, TileTimer, UnlabelledPass,
};
#[doc(hidden)]
pub use crate::template::{GrowingWork, PassTemplate, PassTemplateBuilder};

/// The pages of `docs/`, so that their examples are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../docs/export.md")]
    struct Export;
    #[doc = include_str!("../docs/flamegraph.md")]
    struct Flamegraph;
    #[doc = include_str!("../docs/gpu.md")]
    struct Gpu;
    #[doc = include_str!("../docs/import.md")]
    struct Import;
    #[doc = include_str!("../docs/measuring.md")]
    struct Measuring;
    #[doc = include_str!("profiler/porting.md")]
    struct Porting;
    #[doc = include_str!("../docs/profile.md")]
    struct ProfileFile;
    #[doc = include_str!("../docs/receipts.md")]
    struct Receipts;
    #[doc = include_str!("../docs/requests.md")]
    struct Requests;
    #[doc = include_str!("../docs/roofline.md")]
    struct Roofline;
    #[doc = include_str!("../docs/models.md")]
    struct Models;
    #[doc = include_str!("../docs/compare.md")]
    struct Compare;
}
