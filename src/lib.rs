#![doc = include_str!("../README.md")]

mod async_task;
pub mod clock;
mod collect;
mod cost;
pub mod device;
mod device_timer;
mod fold;
pub mod machine;
mod names;
mod profiler;
mod recorder;
mod row;
mod sync;
mod template;

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

    #[doc(no_inline)]
    pub use crate::{AsyncTaskProfiler, BrickIdTimer, BrickProfiler, BrickTimer, TileTimer};
}

#[cfg(feature = "kernels")]
pub use brickscope_kernels::{Backend, detect_backend, simd};
#[doc(inline)]
pub use brickscope_profile::*;

pub use crate::async_task::AsyncTaskProfiler;
pub use crate::clock::{Clock, MockClock};
pub use crate::device::{
    Device, DeviceError, DeviceInfo, Issued, MarkCost, Misuse, SimulatedDevice, StreamId,
};
pub use crate::device_timer::DeviceTimer;
pub use crate::machine::{
    CpuLimit, LoadWatch, MachineDetails, Missing, cpu_frequency_khz, probe_counters, probe_sampling,
};
pub use crate::names::{BrickKey, KernelId};
pub use crate::profiler::{
    BrickGuard, BrickIdTimer, BrickKernelsTimer, BrickProfiler, BrickTimer, ChecksumRecorder,
    DeviceRecorder, GraphRecorder, HandOff, KernelTimer, LayerTimer, PassTimer, PassTimestamps,
    PassWorker, RequestRecorder, TileRecorder, TileTimer, TimedPass, TimedPassError, TimedSpan,
    TimedWork, UnlabelledPass,
};
pub use crate::template::{GrowingWork, PassTemplate, PassTemplateBuilder};

/// The pages of `docs/`, so that their examples are tests.
#[cfg(doctest)]
mod pages {
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
