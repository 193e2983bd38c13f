//! The engine's side of a live view.
//!
//! Nothing here runs unless somebody watches. Each watcher has a thread of its own, which makes and sends
//! frames, so a slow watcher can't hold up the engine.

mod requests;
mod shared;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use brickscope::BrickProfiler;

use self::shared::{Engine, Shared, Stage, THREAD, Watcher, lock};
use crate::socket::listen::{bind, own_place};
use crate::socket::snapshotter::line_of;
use crate::socket::{Facts, Hello, LiveError, Message, io_error};

/// How long dropping a publisher waits without any progress of its threads. They give deaf and slow watchers up
/// themselves, so this only ends a wait for a thread that is blocked elsewhere, such as in the caller's `current`.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Publishes a profiler to watchers on this machine, for as long as this value lives.
///
/// `brickscope top --attach PID` watches it. The publisher listens on a socket that only the same user and
/// root can reach: `brickscope/PID.sock` in `$XDG_RUNTIME_DIR`, or else in a private directory below the
/// temporary one. While nobody watches, it does nothing. Dropping it sends a last frame and removes the
/// socket; a watcher that takes nothing then holds it up for half a second, and a slow one for at most four.
///
/// ```
/// use std::sync::Arc;
///
/// use brickscope::BrickProfiler;
/// use brickscope_live::socket::{Facts, Publisher};
///
/// let profiler = Arc::new(BrickProfiler::enabled());
/// // An engine shouldn't fail because it can't be watched.
/// let publisher = Publisher::start(&profiler, Facts::default())
///     .inspect_err(|error| eprintln!("not live: {error}"))
///     .ok();
/// // … the engine runs …
/// drop(publisher);
/// ```
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Publisher {
    /// Starts publishing on the socket that `brickscope top --attach PID` looks for.
    ///
    /// # Errors
    ///
    /// If this process publishes already, or the socket can't be made.
    pub fn start(profiler: &Arc<BrickProfiler>, facts: Facts) -> Result<Self, LiveError> {
        let profiler = Arc::clone(profiler);
        Self::start_with(move || Arc::clone(&profiler), facts)
    }

    /// Like [`start`](Self::start), for engines that use several profilers in turn: `current` returns the one
    /// that is recording.
    ///
    /// # Errors
    ///
    /// Like [`start`](Self::start).
    pub fn start_with(
        current: impl Fn() -> Arc<BrickProfiler> + Send + Sync + 'static,
        facts: Facts,
    ) -> Result<Self, LiveError> {
        Starting::begin()?.publish_with(current, facts)
    }

    /// Starts publishing on a socket at `path`. Its permissions let in nobody but its user; the directory that it
    /// lies in should keep others out, too.
    ///
    /// # Errors
    ///
    /// Like [`start`](Self::start).
    pub fn start_at(
        profiler: &Arc<BrickProfiler>,
        facts: Facts,
        path: &Path,
    ) -> Result<Self, LiveError> {
        Starting::begin_at(path)?.publish(profiler, facts)
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until somebody watches, but no longer than `within`. Returns whether anybody does.
    ///
    /// For an engine that would finish before a watcher could connect.
    #[must_use]
    pub fn wait_for_watcher(&self, within: Duration) -> bool {
        let watchers = lock(&self.shared.watchers);
        let wait = self.shared.changed.wait_timeout_while(watchers, within, |all| all.is_empty());
        !wait.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }
}

/// An engine that will publish but isn't ready yet, for example because it is loading its model.
///
/// A watcher that connects this early is told what the engine is doing, and receives frames once it runs.
///
/// ```
/// use std::sync::Arc;
///
/// use brickscope::BrickProfiler;
/// use brickscope_live::socket::{Facts, Starting};
///
/// let starting = Starting::begin().inspect_err(|error| eprintln!("not live: {error}")).ok();
/// if let Some(starting) = &starting {
///     starting.say("loading the model");
/// }
/// // … seconds later …
/// let profiler = Arc::new(BrickProfiler::enabled());
/// let publisher = starting.and_then(|starting| starting.publish(&profiler, Facts::default()).ok());
/// # drop(publisher);
/// ```
#[derive(Debug)]
pub struct Starting(Publisher);

impl Starting {
    /// Listens on the socket that `brickscope top --attach PID` looks for.
    ///
    /// # Errors
    ///
    /// Like [`Publisher::start`].
    pub fn begin() -> Result<Self, LiveError> {
        Self::begin_at(&own_place()?)
    }

    /// Listens on a socket at `path`.
    ///
    /// # Errors
    ///
    /// Like [`Publisher::start`].
    pub fn begin_at(path: &Path) -> Result<Self, LiveError> {
        let listener = bind(path)?;
        let shared = Arc::new(Shared {
            stage: Mutex::new(Stage::Starting("starting".to_owned())),
            staged: Condvar::new(),
            ends: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            watchers: Mutex::default(),
            changed: Condvar::new(),
            snapshotter: Mutex::default(),
        });
        let publisher = Publisher { shared: Arc::clone(&shared), path: path.to_owned() };
        thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || shared.accept(&listener))
            .map_err(io_error("starting a thread for watchers"))?;
        Ok(Self(publisher))
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Tells watchers, in a few words, what the engine is doing. Never blocks on a watcher.
    pub fn say(&self, what: &str) {
        if let Stage::Starting(said) = &mut *lock(&self.0.shared.stage) {
            what.clone_into(said);
        }
    }

    /// Starts publishing: the engine is ready.
    ///
    /// # Errors
    ///
    /// If `facts` don't fit in one line of the format.
    pub fn publish(
        self,
        profiler: &Arc<BrickProfiler>,
        facts: Facts,
    ) -> Result<Publisher, LiveError> {
        let profiler = Arc::clone(profiler);
        self.publish_with(move || Arc::clone(&profiler), facts)
    }

    /// Like [`publish`](Self::publish), for engines that use several profilers in turn: `current` returns the one
    /// that is recording.
    ///
    /// # Errors
    ///
    /// Like [`publish`](Self::publish).
    pub fn publish_with(
        self,
        current: impl Fn() -> Arc<BrickProfiler> + Send + Sync + 'static,
        facts: Facts,
    ) -> Result<Publisher, LiveError> {
        let hello = Hello::new(current().clock().describe(), facts);
        let hello = line_of(&Message::Hello(Box::new(hello)))?;
        let Self(publisher) = self;
        *lock(&publisher.shared.stage) =
            Stage::Running(Arc::new(Engine { current: Box::new(current), hello }));
        publisher.shared.staged.notify_all();
        Ok(publisher)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.staged.notify_all();
        // Wakes the thread that is blocked in `accept`.
        let _ = UnixStream::connect(&self.path);
        // Nobody should find a socket without a listener. If this fails, the next publisher removes it.
        let _ = std::fs::remove_file(&self.path);
        let mut watchers = lock(&self.shared.watchers);
        watchers.iter().for_each(Watcher::wake);
        // A thread that waits for a processor is no reason to lose the last frame.
        loop {
            let before = self.shared.steps.load(Ordering::Acquire);
            let changed = &self.shared.changed;
            let waited = changed.wait_timeout_while(watchers, END_WITHIN, |all| !all.is_empty());
            let (left, time) = waited.unwrap_or_else(PoisonError::into_inner);
            watchers = left;
            if !time.timed_out() || self.shared.steps.load(Ordering::Acquire) == before {
                break;
            }
        }
        for watcher in watchers.iter() {
            let _ = watcher.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}
