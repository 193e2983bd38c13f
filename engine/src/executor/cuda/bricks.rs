//! A CUDA executor with its profiler, under the names of the predecessor's engine.

use std::ffi::c_void;

use brickscope::{
    BrickId, BrickProfiler, DeviceError, DeviceTimer, Phase, SyncMode, TileLevel, TileTimer, Work,
};

use super::{Cuda, CudaError, CudaOptions};
use crate::error::Error;
use crate::executor::gpu::{GpuError, GpuProbe, GpuSession, STREAM};
use crate::model::Model;

/// A model on an NVIDIA device, with the profiler that its passes are reported to.
///
/// [`forward`](Self::forward) reports each layer, brick and kernel.
/// [`start_brick_id`](Self::start_brick_id) and [`stop_brick_id`](Self::stop_brick_id) time what the caller
/// issues to the [`stream`](Self::stream) in between, by the device's clock.
#[derive(Debug)]
pub struct CudaExecutor<'m> {
    session: GpuSession<'m, Cuda<'m>>,
    profiler: &'m BrickProfiler,
    probe: GpuProbe<'m>,
    /// Whether the caller's bricks have begun a pass.
    is_in_pass: bool,
}

/// A brick that has begun on the device; hand it back to [`CudaExecutor::stop_brick_id`].
#[derive(Debug)]
#[must_use = "a brick that is never stopped lasts until the next one begins"]
pub struct CudaBrickTimer {
    begun: Result<(), DeviceError>,
}

impl<'m> CudaExecutor<'m> {
    /// An executor with room for `context` tokens. It reports the sources of its kernels and the copies of the weights
    /// to `profiler`.
    ///
    /// # Errors
    ///
    /// If there is no device, or too little memory.
    pub fn new(
        model: &'m Model,
        context: usize,
        options: CudaOptions,
        profiler: &'m BrickProfiler,
    ) -> Result<Self, Error> {
        let cuda = Cuda::new(model, context, options).map_err(CudaError::into_gpu)?;
        let mut session = GpuSession::new(model, cuda);
        let probe = session.profiled(profiler)?;
        Ok(Self { session, profiler, probe, is_in_pass: false })
    }

    /// The profiler. The last pass is missing from it until the next one, or [`settle`](Self::settle).
    #[must_use]
    pub fn profiler(&self) -> &'m BrickProfiler {
        self.profiler
    }

    /// Sets how often to wait for the device, from the next pass on: see [`BrickProfiler::set_sync_mode`].
    pub fn set_profiler_sync_mode(&mut self, mode: SyncMode) {
        self.profiler.set_sync_mode(mode);
    }

    /// How often the device is waited for.
    #[must_use]
    pub fn profiler_sync_mode(&self) -> SyncMode {
        self.profiler.sync_mode()
    }

    /// The session: positions, batches, logits.
    pub fn session(&mut self) -> &mut GpuSession<'m, Cuda<'m>> {
        &mut self.session
    }

    /// The timer of the device.
    pub fn timer(&mut self) -> &mut DeviceTimer<'m> {
        self.probe.timer()
    }

    /// Runs `tokens` after those so far, profiled; returns the logits that follow the last of them.
    ///
    /// # Errors
    ///
    /// As [`GpuSession::forward`].
    pub fn forward(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        self.end_bricks()?;
        self.session.forward_with(&mut self.probe, tokens)
    }

    /// Waits for the times of all passes and settles them. Call it once at the end of a series of passes.
    ///
    /// # Errors
    ///
    /// If the device is lost.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.end_bricks()?;
        Ok(self.probe.timer().settle(self.session.gpu(), true).map_err(GpuError::from)?)
    }

    /// Settles all passes, and reads the device's clock once more. The profiler keeps what was recorded.
    ///
    /// # Errors
    ///
    /// If the device is lost.
    pub fn finish(mut self) -> Result<(), Error> {
        self.end_bricks()?;
        self.session.finish(self.probe)
    }
}

/// Bricks of the caller's own.
impl CudaExecutor<'_> {
    /// The stream that all work is issued to, a `CUstream`, for kernels of the caller's own. The device's
    /// context is current on this thread.
    #[must_use]
    pub fn stream(&mut self) -> *mut c_void {
        self.session.gpu().stream.handle()
    }

    /// Begins a brick and ends the one before it: what is issued to the stream from now on belongs to it.
    /// The first brick begins a pass, which [`forward`](Self::forward) or [`settle`](Self::settle) ends.
    ///
    /// [`stop_brick_id`](Self::stop_brick_id) returns errors of the device.
    pub fn start_brick_id(&mut self, brick: BrickId) -> CudaBrickTimer {
        CudaBrickTimer { begun: self.start_brick(brick) }
    }

    fn start_brick(&mut self, brick: BrickId) -> Result<(), DeviceError> {
        let gpu = self.session.gpu();
        if !self.is_in_pass {
            self.probe.timer().begin_pass(gpu, Phase::Decode, 0, 0)?;
            self.is_in_pass = true;
        }
        self.probe.timer().brick(gpu, STREAM, None, brick, Work::default())
    }

    /// Ends a brick that processed `elements` elements.
    ///
    /// # Errors
    ///
    /// If the device is lost, or a pass has no room for so many bricks.
    pub fn stop_brick_id(&mut self, timer: CudaBrickTimer, elements: u64) -> Result<(), Error> {
        let ended = timer.begun.and_then(|()| {
            let gpu = self.session.gpu();
            self.probe.timer().end_brick_with(gpu, STREAM, Work::elements(elements))
        });
        Ok(ended.map_err(GpuError::from)?)
    }

    fn end_bricks(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.is_in_pass) {
            self.probe.timer().end_pass(self.session.gpu()).map_err(GpuError::from)?;
        }
        Ok(())
    }
}

/// Calls that the predecessor's executor passes on to its profiler.
impl CudaExecutor<'_> {
    /// Turns the recording of the graph on: it gets the passes of [`forward`](Self::forward), and its copies.
    pub fn enable_graph_tracking(&self) {
        self.profiler.enable_graph();
    }

    /// Turns the recording of the graph off.
    pub fn disable_graph_tracking(&self) {
        self.profiler.disable_graph();
    }

    /// Turns the timing of tiles on.
    pub fn enable_tile_profiling(&self) {
        self.profiler.enable_tile_profiling();
    }

    /// Turns the timing of tiles off.
    pub fn disable_tile_profiling(&self) {
        self.profiler.disable_tile_profiling();
    }

    /// Begins a tile, by the host's clock: a device's tiles have no marks of their own.
    pub fn start_tile(&self, level: TileLevel, row: u32, col: u32) -> TileTimer {
        self.profiler.start_tile(level, row, col)
    }

    /// Ends a tile.
    pub fn stop_tile(&self, timer: TileTimer, elements: u64, flops: u64) {
        self.profiler.stop_tile(timer, elements, flops);
    }
}
