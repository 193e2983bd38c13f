//! The ways from a profiler to the parts that have handles of their own.

use super::{BrickProfiler, ChecksumRecorder, DeviceRecorder, GraphRecorder, TileRecorder};

/// # Tiles, graph, checksums and devices
///
/// Each of these returns a small `Copy` handle that borrows the profiler.
impl BrickProfiler {
    /// Tiles: the cache-blocked pieces of a kernel.
    #[inline]
    #[must_use]
    pub fn tiles(&self) -> TileRecorder<'_> {
        TileRecorder(self)
    }

    /// The execution graph that the caller builds, and the sources of kernels.
    #[must_use]
    pub fn graph(&self) -> GraphRecorder<'_> {
        GraphRecorder(self)
    }

    /// Checksums and digests of what kernels wrote.
    #[must_use]
    pub fn checksums(&self) -> ChecksumRecorder<'_> {
        ChecksumRecorder(self)
    }

    /// Work that runs on a device later than the host issues it.
    #[must_use]
    pub fn device(&self) -> DeviceRecorder<'_> {
        DeviceRecorder(self)
    }
}
