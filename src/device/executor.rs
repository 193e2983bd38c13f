//! What an executor must offer, so that what it runs can be timed by the device's own clock.

use brickscope_profile::{Bracket, LaunchKind, Ticks};

use crate::clock::Clock;
use crate::device::error::DeviceError;

/// A queue of a device, which does its work in the order in which it was put there: its place in
/// [`DeviceInfo::streams`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StreamId(pub u16);

/// What a device is, and what its timing can do.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// The device, as its driver names it.
    pub name: String,
    /// How it is driven: `vulkan`, `cuda`, `simulated` …
    pub api: String,
    /// The driver and its version, as it says.
    pub driver: String,
    /// Its clock.
    pub ticks: Ticks,
    /// Names of its streams; there is one at least.
    pub streams: Vec<String>,
    /// Sets of marks: so many passes can be in flight. One at least.
    pub sets: u32,
    /// Marks in a set: so many a pass can have, on all streams together.
    pub marks: u32,
}

/// What an executor offers, so that what it runs can be timed by the device's own clock.
///
/// Marks belong to sets, one for each pass in flight. A [`DeviceTimer`](crate::DeviceTimer) says which;
/// it calls [`resolve`](Self::resolve) for a set before it begins the set anew.
pub trait Device {
    /// What it is. Says the same at each call.
    fn describe(&self) -> DeviceInfo;

    /// How what is launched while a pass is issued gets to the device: by itself, unless it says otherwise.
    fn launches(&self) -> LaunchKind {
        LaunchKind::Issued
    }

    /// The marks of `set` are written anew from now on.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn begin_set(&mut self, set: u32) -> Result<(), DeviceError>;

    /// Has the device note its time as mark `mark` of `set`, when the work that was put into `stream`
    /// before is done. Marks of a set are numbered from 0, in the order of the calls. Called outside of passes
    /// too, to measure what it takes.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn mark(&mut self, stream: StreamId, set: u32, mark: u32) -> Result<(), DeviceError>;

    /// Puts a little work into `stream`, as a kernel of a pass would be: marks are measured between such, as
    /// one between nothing can be far cheaper. Called outside of passes. Returns whether there is such work;
    /// there is none unless an executor has some.
    ///
    /// # Errors
    ///
    /// As the driver says.
    fn fill(&mut self, _stream: StreamId) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Waits until all work that was put into `stream` is done.
    ///
    /// # Errors
    ///
    /// As the driver says; [`DeviceError::Lost`] if it never will be.
    fn wait(&mut self, stream: StreamId) -> Result<(), DeviceError>;

    /// Puts the device's readings at marks 0 to `n_marks` of `set` into `ticks`, and returns whether they
    /// are there: without `wait` they may not be yet, and `ticks` is left alone.
    ///
    /// # Errors
    ///
    /// As the driver says. The set is free again then.
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
    /// As the driver says.
    fn bracket(&mut self, host: &Clock) -> Result<Bracket, DeviceError>;
}
