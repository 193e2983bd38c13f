//! The engine's side of a live view.
//!
//! Nothing here runs unless somebody watches. Each watcher has a thread of its own, which makes and sends
//! frames, so a slow watcher can't hold up the engine.

use std::fmt;
use std::io::{self, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use brickscope::BrickProfiler;
use rustix::net::{SendFlags, send};

use super::lines::read_line;
use super::listen::{bind, peer_uid, remove_stale};
use super::path::{self, own_uid};
use super::snapshotter::{Latest, Snapshotter, line_of, line_of_error};
use super::timed::{Timed, Unfinished, is_time_out};
use super::{
    DEFAULT_RATE, Facts, Hello, LEAST_RATE, LiveError, MOST_RATE, MOST_REQUEST, MOST_WATCHERS,
    Message, Request, io_error,
};

/// The name of the publisher's threads: 15 bytes, the most that Linux shows.
const THREAD: &str = "brickscope-live";

/// How often a watcher's thread checks what a starting engine is doing.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often that is repeated to the watcher while it stays the same, as a sign of life.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// A watcher that takes longer than this to receive a frame is disconnected.
const SEND_WITHIN: Duration = Duration::from_secs(2);
/// A watcher that takes longer than this to send a line is disconnected.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);
/// How long a send waits for a watcher that takes nothing. While the publisher ends, such a watcher is disconnected.
const DEAF_AFTER: Duration = Duration::from_millis(250);
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
        let folder = path::folder()?;
        remove_stale(&folder);
        Self::begin_at(&path::socket_in(&folder, std::process::id()))
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

/// Returns the profiler that is recording.
type Current = Box<dyn Fn() -> Arc<BrickProfiler> + Send + Sync>;

/// A running engine.
struct Engine {
    current: Current,
    /// The first line for every watcher.
    hello: Vec<u8>,
}

/// How far the engine has got.
enum Stage {
    /// What it is doing.
    Starting(String),
    Running(Arc<Engine>),
}

/// What the threads of a publisher share.
struct Shared {
    stage: Mutex<Stage>,
    /// Signals that the engine runs, or that it never will.
    staged: Condvar,
    ends: AtomicBool,
    /// What the watchers' threads have done, as a sign of progress.
    steps: AtomicU64,
    watchers: Mutex<Vec<Watcher>>,
    /// Signals that a watcher has come or gone.
    changed: Condvar,
    snapshotter: Mutex<Snapshotter>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("watchers", &self.watchers).finish_non_exhaustive()
    }
}

/// A connected watcher.
#[derive(Debug)]
struct Watcher {
    stream: UnixStream,
    thread: Thread,
}

impl Watcher {
    /// Makes the watcher's thread check whether the publisher is ending.
    fn wake(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Read);
        self.thread.unpark();
    }
}

/// Takes this thread off the list of watchers when dropped, also after a panic.
struct Listed<'s>(&'s Shared);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let here = thread::current().id();
        let mut watchers = lock(&self.0.watchers);
        watchers.retain(|watcher| watcher.thread.id() != here);
        if watchers.is_empty() {
            lock(&self.0.snapshotter).watchers_gone();
        }
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    fn steps_on(&self) {
        self.steps.fetch_add(1, Ordering::AcqRel);
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.ends() {
                return;
            }
            match stream {
                Ok(stream) => self.admit(stream),
                // For example too many open files, which may pass.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Starts a thread for a watcher, unless it may not watch or there are too many.
    fn admit(self: &Arc<Self>, stream: UnixStream) {
        let refuse = |why: &str| {
            if let Ok(line) = line_of(&Message::Error(why.to_owned())) {
                let _ = set_timeouts(&stream).and_then(|()| self.send_all(&stream, &line));
            }
        };
        if let Some(uid) = peer_uid(&stream)
            && uid != own_uid()
            && uid != 0
        {
            return refuse("this process belongs to another user");
        }
        let mut watchers = lock(&self.watchers);
        if watchers.len() >= MOST_WATCHERS {
            return refuse(&format!("there are already {MOST_WATCHERS} watchers"));
        }
        let Ok(kept) = stream.try_clone() else { return };
        let shared = Arc::clone(self);
        let served = thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
            let listed = Listed(&shared);
            // A watcher that disconnects is not an error.
            let _ = listed.0.serve(&stream);
        });
        // To take itself off the list the thread needs this lock, so it can't do so before it is on it.
        if let Ok(handle) = served {
            watchers.push(Watcher { stream: kept, thread: handle.thread().clone() });
            self.changed.notify_all();
        }
    }

    /// Waits for the engine to run, and tells the watcher what it is doing meanwhile. `None` if it never runs.
    fn await_engine(&self, stream: &UnixStream) -> io::Result<Option<Arc<Engine>>> {
        let mut told: Option<(String, Instant)> = None;
        loop {
            let what = {
                let (stage, _) = self
                    .staged
                    .wait_timeout_while(
                        lock(&self.stage),
                        // The watcher is told at once what the engine is doing.
                        if told.is_some() { LOOK_EVERY } else { Duration::ZERO },
                        |stage| matches!(stage, Stage::Starting(_)) && !self.ends(),
                    )
                    .unwrap_or_else(PoisonError::into_inner);
                match &*stage {
                    Stage::Running(engine) => return Ok(Some(Arc::clone(engine))),
                    Stage::Starting(what) => what.clone(),
                }
            };
            if self.ends() {
                return Ok(None);
            }
            let is_news =
                told.as_ref().is_none_or(|(said, at)| *said != what || at.elapsed() >= TELL_EVERY);
            if is_news {
                let line = line_of(&Message::Starting(what.clone()));
                self.send_all(stream, &line.unwrap_or_else(|why| line_of_error(&why.to_string())))?;
                told = Some((what, Instant::now()));
            }
        }
    }

    /// Sends frames until the watcher disconnects or the publisher ends.
    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        set_timeouts(stream)?;
        let Some(engine) = self.await_engine(stream)? else {
            return self.send_all(stream, &line_of_error("the engine ended before it ran"));
        };
        self.send_all(stream, &engine.hello)?;
        lock(&self.snapshotter).watcher_joined();
        let mut requests = Requests::new(stream, REQUEST_WITHIN);
        let mut sent = Sent::default();
        loop {
            let began = Instant::now();
            let latest = lock(&self.snapshotter).latest(&(engine.current)(), false);
            sent.catch_up(self, stream, &latest)?;
            // An error is always the last line.
            if latest.is_error {
                return Ok(());
            }
            if let Err(why) = requests.until(began + requests.interval(), || self.ends()) {
                return self.send_all(stream, &line_of_error(&why));
            }
            if self.ends() {
                self.steps_on();
                let latest = lock(&self.snapshotter).latest(&(engine.current)(), true);
                self.steps_on();
                return sent.catch_up(self, stream, &latest);
            }
        }
    }

    /// Sends all of `bytes` within [`SEND_WITHIN`], however slowly the other side receives. While the publisher ends, it
    /// has to take something within [`DEAF_AFTER`].
    fn send_all(&self, stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
        // SIGPIPE would end an engine that doesn't ignore it.
        #[cfg(not(target_vendor = "apple"))]
        let flags = SendFlags::NOSIGNAL;
        #[cfg(target_vendor = "apple")]
        let flags = SendFlags::empty();
        let until = Instant::now() + SEND_WITHIN;
        while !bytes.is_empty() {
            let mut is_deaf = false;
            match send(stream, bytes, flags) {
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    self.steps_on();
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => is_deaf = self.ends(),
                Err(error) => return Err(error.into()),
            }
            if !bytes.is_empty() && (is_deaf || Instant::now() >= until) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

/// The numbers of the newest frame, and of the newest whole frame, that a watcher was sent.
#[derive(Debug, Default)]
struct Sent {
    seq: u64,
    whole: u64,
}

impl Sent {
    fn catch_up(
        &mut self,
        shared: &Shared,
        stream: &UnixStream,
        latest: &Latest,
    ) -> io::Result<()> {
        if latest.seq == self.seq {
            return Ok(());
        }
        if latest.whole_seq != self.whole {
            shared.send_all(stream, &latest.whole)?;
        }
        if let Some(delta) = &latest.delta {
            shared.send_all(stream, delta)?;
        }
        (self.seq, self.whole) = (latest.seq, latest.whole_seq);
        Ok(())
    }
}

/// What a watcher asks for.
struct Requests<'s> {
    reader: BufReader<Timed<&'s UnixStream>>,
    line: Vec<u8>,
    unfinished: Unfinished,
    /// How long a line may take.
    within: Duration,
    rate: u32,
    /// It has closed its writing half, but may still read.
    is_silent: bool,
}

impl<'s> Requests<'s> {
    fn new(stream: &'s UnixStream, within: Duration) -> Self {
        let reader = BufReader::with_capacity(MOST_REQUEST, Timed::new(stream));
        let unfinished = Unfinished::default();
        let (line, rate, is_silent) = (Vec::new(), DEFAULT_RATE, false);
        Self { reader, line, unfinished, within, rate, is_silent }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.rate
    }

    /// Reads requests until `then`. An error is a message for the watcher about a bad request.
    fn until(&mut self, then: Instant, ends: impl Fn() -> bool) -> Result<(), String> {
        while !ends() {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.is_silent {
                thread::park_timeout(left);
                continue;
            }
            self.reader.get_mut().wait_until(then);
            match read_line(&mut self.reader, &mut self.line, MOST_REQUEST) {
                Ok(true) => {
                    self.unfinished.is_whole();
                    let line = std::mem::take(&mut self.line);
                    let request: Request = serde_json::from_slice(&line)
                        .map_err(|error| format!("not a request: {error}"))?;
                    if let Some(rate) = request.rate {
                        self.rate = rate.clamp(LEAST_RATE, MOST_RATE);
                    }
                }
                Ok(false) => self.is_silent = true,
                Err(error) if is_time_out(&error) => {
                    if !self.line.is_empty() && self.unfinished.is_overdue(self.within) {
                        return Err(format!(
                            "bad request: it did not end within {:?}",
                            self.within
                        ));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(format!("bad request: {error}"));
                }
                Err(_) => self.is_silent = true,
            }
        }
        Ok(())
    }
}

fn set_timeouts(stream: &UnixStream) -> io::Result<()> {
    stream.set_write_timeout(Some(DEAF_AFTER))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::timed::tests::dripping;
    use super::*;

    #[test]
    fn a_watcher_that_drips_its_request_waits_for_no_frame_and_is_told_why_it_is_given_up() {
        let stream = dripping(b"{");
        let mut requests = Requests::new(&stream, Duration::from_millis(40));
        let mut frames = 0;
        let why = loop {
            match requests.until(Instant::now() + Duration::from_millis(2), || false) {
                Ok(()) => frames += 1,
                Err(why) => break why,
            }
        };
        assert_eq!(why, "bad request: it did not end within 40ms");
        assert!(frames > 0);
    }
}
