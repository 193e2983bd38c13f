//! The same names for systems without Unix sockets, where every constructor fails.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brickscope::BrickProfiler;

use super::{Facts, Hello, LiveError, Next, SoFar};

/// Publishes a profiler to watchers. Not supported on this system.
#[derive(Debug)]
pub struct Publisher(Never);

/// Watches an engine. Not supported on this system.
#[derive(Debug)]
pub struct Watch(Never);

/// An engine that will publish. Not supported on this system.
#[derive(Debug)]
pub struct Starting(Never);

/// A recording that can be asked for what it has kept so far. Not supported on this system.
#[derive(Debug)]
pub struct Recording(Never);

#[derive(Debug, Clone, Copy)]
enum Never {}

/// Not supported on this system.
///
/// # Errors
///
/// [`LiveError::Unsupported`].
pub fn ask_so_far(_: u32) -> Result<SoFar, LiveError> {
    Err(LiveError::Unsupported)
}

/// Not supported on this system.
///
/// # Errors
///
/// [`LiveError::Unsupported`].
pub fn ask_so_far_at(_: &Path) -> Result<SoFar, LiveError> {
    Err(LiveError::Unsupported)
}

impl Recording {
    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn begin() -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn begin_at(_: &Path) -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// Not supported on this system.
    #[must_use]
    pub fn look(&mut self) -> bool {
        match self.0 {}
    }

    /// Not supported on this system.
    pub fn answer(&mut self, _: Result<&SoFar, &str>) {
        match self.0 {}
    }
}

impl Publisher {
    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn start(_: &Arc<BrickProfiler>, _: Facts) -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn start_with(
        _: impl Fn() -> Arc<BrickProfiler> + Send + Sync + 'static,
        _: Facts,
    ) -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn start_at(_: &Arc<BrickProfiler>, _: Facts, _: &Path) -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// Not supported on this system.
    #[must_use]
    pub fn wait_for_watcher(&self, _: Duration) -> bool {
        match self.0 {}
    }
}

impl Starting {
    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn begin() -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn begin_at(_: &Path) -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// Not supported on this system.
    pub fn say(&self, _: &str) {
        match self.0 {}
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// None.
    pub fn publish(self, _: &Arc<BrickProfiler>, _: Facts) -> Result<Publisher, LiveError> {
        match self.0 {}
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// None.
    pub fn publish_with(
        self,
        _: impl Fn() -> Arc<BrickProfiler> + Send + Sync + 'static,
        _: Facts,
    ) -> Result<Publisher, LiveError> {
        match self.0 {}
    }
}

impl Watch {
    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn process_telling(_: u32, _: &mut dyn FnMut(&str) -> bool) -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn socket_telling(_: &Path, _: &mut dyn FnMut(&str) -> bool) -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn process(_: u32) -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// [`LiveError::Unsupported`].
    pub fn socket(_: &Path) -> Result<Self, LiveError> {
        Err(LiveError::Unsupported)
    }

    /// Describes the publisher.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        match self.0 {}
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// None.
    pub fn ask(&mut self, _: u32) -> Result<(), LiveError> {
        match self.0 {}
    }

    /// Not supported on this system.
    ///
    /// # Errors
    ///
    /// None.
    pub fn next(&mut self, _: Duration) -> Result<Next, LiveError> {
        match self.0 {}
    }
}
