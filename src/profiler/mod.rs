//! The handle that an engine holds: from switches and timers to a [`Profile`](crate::Profile).

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

use brickscope_profile::{
    Anchor, ExecutionGraph, KernelChecksum, KernelDigest, Observed, PtxRegistry,
};

use crate::device::{DeviceLog, Pending};
use crate::names::Names;
use crate::recorder::Recorder;

mod names;
mod short_forms;
mod sums;
mod timers;

// rustdoc shows the methods of `BrickProfiler` in the order of these modules: first what every embedder needs, last the
// predecessor's spellings.
mod switches;

mod recording;

mod timed;

mod shares;

mod requests;

mod results;

mod handles;

mod misuse;

mod watch;

mod nvtx;

mod checksums;
mod device;
mod graph;
mod tiles;

mod porting;

#[cfg(all(test, not(loom)))]
mod tests;

pub use self::checksums::ChecksumRecorder;
pub use self::device::DeviceRecorder;
pub use self::graph::GraphRecorder;
pub use self::requests::RequestRecorder;
pub use self::shares::PassWorker;
pub use self::tiles::TileRecorder;
pub use self::timed::{SpanAt, TimedPass, TimedPassError, TimedSpan, TimedWork};
pub use self::timers::{
    BrickGuard, BrickIdTimer, BrickKernelsTimer, BrickTimer, HandOff, KernelTimer, LayerTimer,
    PassTimer, PassTimestamps, TileTimer, UnlabelledPass,
};
pub use self::watch::LoadMark;

/// Times the bricks of an engine, from any number of threads.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, Phase};
/// use brickscope_analysis::Report;
///
/// let profiler = BrickProfiler::enabled();
/// let pass = profiler.begin_pass(Phase::Decode);
/// let timer = profiler.start_brick(BrickId::QkvProjection);
/// // … the projection …
/// profiler.stop_brick(timer, 4096); // elements
/// profiler.end_pass(pass, 1, 0); // one token, with none before it in the KV cache
///
/// println!("{}", profiler.report());
/// # assert_eq!(profiler.brick_stats(BrickId::QkvProjection).count, 1);
/// ```
///
/// # In the order of use
///
/// 1. **Make** a profiler with [`enabled`](Self::enabled), or with [`new`](Self::new) and turn it on with
///    [`enable`](Self::enable) later. While it is off, a recording call returns without reading the clock.
/// 2. **Time bricks** with [`start_brick`](Self::start_brick) and [`stop_brick`](Self::stop_brick), with a guard
///    ([`brick`](Self::brick)), or by a name of your own ([`start`](Self::start)).
///    [`stop_brick_with`](Self::stop_brick_with) takes the FLOPs and bytes that a roofline needs. The kernels inside a
///    brick can be timed too ([`start_brick_kernel`](Self::start_brick_kernel)).
/// 3. **Put passes around them** with [`begin_pass`](Self::begin_pass) and [`end_pass`](Self::end_pass), and layers
///    with [`begin_layer`](Self::begin_layer). A pass has a wall time, so that the profile can say how much of it no
///    brick accounts for.
/// 4. **Read the result**: [`summary`](Self::summary) in short, [`profile`](Self::profile) as plain data for views,
///    exports and files, [`snapshot`](Self::snapshot) while the run goes on. [`misuse`](Self::misuse) says whether the
///    calls were as they are meant to be.
///
/// [`tiles`](Self::tiles), the [`graph`](Self::graph), [`checksums`](Self::checksums) and the
/// [`device`](Self::device) have handles of their own. The last block of methods has the predecessor's spellings, for
/// code that is ported from it.
///
/// # Threads
///
/// Every method takes `&self`, so a `&BrickProfiler` or an `Arc<BrickProfiler>` is all that a thread needs. Timing a
/// [`BrickId`](crate::BrickId) takes no lock: each thread writes to a log of its own.
///
/// Sums are always exact. When a thread's log of single spans is full, further spans are summed but not kept one by one,
/// and [`Profile::dropped`](crate::Profile::dropped) says how many.
pub struct BrickProfiler {
    recorder: Recorder,
    enabled: AtomicBool,
    /// `SyncMode as u8`.
    sync_mode: AtomicU8,
    /// The zero of `elapsed_ns`: a reading of the clock.
    epoch: AtomicU64,
    names: Arc<RwLock<Names>>,
    pending: Mutex<Pending>,
    late: AtomicU64,
    devices: Mutex<Vec<Arc<DeviceLog>>>,
    graph_enabled: AtomicBool,
    /// Shared with callers who asked for it; copied when it changes while one of them holds it.
    graph: Mutex<Arc<ExecutionGraph>>,
    graph_times: Mutex<graph::GraphTimes>,
    ptx: Mutex<PtxRegistry>,
    tiles_enabled: AtomicBool,
    shares: Mutex<shares::Shares>,
    requests: Mutex<requests::Requests>,
    checksums: Mutex<Vec<KernelChecksum>>,
    digests: Mutex<Vec<KernelDigest>>,
    observed: Mutex<Observed>,
    /// What executes the kernels, as the caller stated it.
    backend: Mutex<Option<String>>,
    watch: watch::Watch,
    counters: Mutex<watch::CountersAsked>,
    /// Taken when profiling was first turned on.
    anchor: Mutex<Option<Anchor>>,
    /// Whether a debug build is to tell what was called otherwise than it is meant.
    warns: AtomicBool,
    /// The [bits](crate::Misuse::bit) of what it has told.
    warned: AtomicU32,
}

/// The switches, in a line. The logs of a profiler take megabytes of text.
impl fmt::Debug for BrickProfiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrickProfiler")
            .field("enabled", &self.is_enabled())
            .field("sync_mode", &self.device().sync_mode())
            .field("clock", &self.clock().source())
            .field("log_capacity", &self.log_capacity())
            .field("tiles", &self.tiles_enabled.load(Relaxed))
            .field("graph", &self.graph_enabled.load(Relaxed))
            .finish_non_exhaustive()
    }
}
