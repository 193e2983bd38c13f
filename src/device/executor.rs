//! The trait that an executor implements so that its work can be timed by the device's own clock.

use brickscope_profile::{Bracket, LaunchKind, Ticks};

use crate::clock::Clock;
use crate::device::error::DeviceError;

/// A queue of a device, which does its work in order: an index into [`DeviceInfo::streams`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StreamId(pub u16);

/// A description of a device and its timing.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// The device, as its driver names it.
    pub name: String,
    /// How it is driven: `vulkan`, `cuda`, `simulated` …
    pub api: String,
    /// The driver and its version, as the driver reports them.
    pub driver: String,
    /// Its clock.
    pub ticks: Ticks,
    /// The names of its streams, at least one.
    pub streams: Vec<String>,
    /// The number of sets of marks, which is how many passes can be in flight. At least one.
    pub sets: u32,
    /// The number of marks in a set, which is how many a pass can have on all streams together.
    pub marks: u32,
}

/// What a mark costs in a pass, as an executor measured it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MarkCost {
    /// The host's time for each, in nanoseconds.
    pub host_ns: f64,
    /// The device's time for each, in nanoseconds.
    pub device_ns: f64,
    /// Marks over which the cost is averaged.
    pub marks: u32,
}

/// Implemented by an executor so that its work can be timed by the device's own clock.
///
/// Marks belong to sets, one for each pass in flight. The [`DeviceTimer`](crate::DeviceTimer) chooses the
/// set, and calls [`resolve`](Self::resolve) for a set before it reuses the set.
pub trait Device {
    /// Describes the device. Returns the same at each call.
    fn describe(&self) -> DeviceInfo;

    /// How launches get to the device while a pass is issued. The default is [`LaunchKind::Issued`].
    fn launches(&self) -> LaunchKind {
        LaunchKind::Issued
    }

    /// Begins to reuse `set`: from now on its marks are overwritten.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    fn begin_set(&mut self, set: u32) -> Result<(), DeviceError>;

    /// Has the device record its time as mark `mark` of `set` when all earlier work of `stream` is done, or, where the
    /// executor knows that it issues more work at once, when that begins. Marks of
    /// a set are numbered from 0, in the order of the calls. Also called outside of passes, to measure the cost of
    /// marks.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    fn mark(&mut self, stream: StreamId, set: u32, mark: u32) -> Result<(), DeviceError>;

    /// Puts a little work into `stream`, like a kernel of a pass. The cost of marks is measured between such work,
    /// since marks with nothing between them can be far cheaper. Called outside of passes. Returns whether there is
    /// such work; the default has none.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    fn fill(&mut self, _stream: StreamId) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// What a mark costs, where the executor knows better than a series of marks tells: where the work that is issued after a
    /// mark makes it, for example. The default is `None`, and then marks in a row are measured. Called outside of passes.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    fn mark_cost(&mut self) -> Result<Option<MarkCost>, DeviceError> {
        Ok(None)
    }

    /// Waits until all work in `stream` is done.
    ///
    /// # Errors
    ///
    /// If the driver fails; [`DeviceError::Lost`] if the work will never be done.
    fn wait(&mut self, stream: StreamId) -> Result<(), DeviceError>;

    /// Puts the device's readings at the first `n_marks` marks of `set` into `ticks`, and returns whether they
    /// have arrived. Without `wait` they may not have arrived yet; then `ticks` is left unchanged.
    ///
    /// # Errors
    ///
    /// If the driver fails. The set is free again then.
    fn resolve(
        &mut self,
        set: u32,
        n_marks: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, DeviceError>;

    /// Reads the device's clock between two readings of the host's. Called between passes.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError>;
}
