//! The engine's side. Nothing here runs unless somebody watches, and nothing that a watcher does can hold
//! up the engine: frames are made and sent on a thread of the watcher's own.

use std::fmt;
use std::io::{self, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use brickscope::BrickProfiler;
use rustix::net::{SendFlags, send};

use super::lines::read_line;
use super::listen::{bind, peer_uid, remove_stale};
use super::maker::{Maker, News, line_of, line_of_error};
use super::place::{self, own_uid};
use super::{
    DEFAULT_RATE, Facts, Hello, LEAST_RATE, LiveError, MOST_RATE, MOST_REQUEST, MOST_WATCHERS,
    Message, Request, io_error,
};

/// What the threads are called: as long as a name can be that the system shows.
const THREAD: &str = "brickscope-live";

/// How often to look what an engine that starts is at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a watcher hears of it though it is at the same, so that it knows that somebody is there.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// A watcher that hasn't taken a frame after so long is sent away.
const SEND_WITHIN: Duration = Duration::from_secs(2);
/// How long the end of a publisher waits for watchers to take the last frame.
const END_WITHIN: Duration = Duration::from_millis(300);

/// Lets others on this machine watch a profiler, for as long as this lives: `brickscope top --attach PID`.
///
/// It listens on a socket that only the same user (and root) can reach: `brickscope/PID.sock` in
/// `$XDG_RUNTIME_DIR`, or else in a private folder of the temporary one. While nobody watches it does
/// nothing. Dropped, it sends a last frame, and removes the socket.
///
/// ```
/// use std::sync::Arc;
///
/// use brickscope::BrickProfiler;
/// use brickscope_live::socket::{Facts, Publisher};
///
/// let profiler = Arc::new(BrickProfiler::enabled());
/// // An engine doesn't fail because nobody can watch it.
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
    /// Starts to publish at the place where `brickscope top --attach PID` looks.
    ///
    /// # Errors
    ///
    /// If this process publishes already, or there can be no such socket.
    pub fn start(profiler: &Arc<BrickProfiler>, facts: Facts) -> Result<Self, LiveError> {
        let profiler = Arc::clone(profiler);
        Self::start_with(move || Arc::clone(&profiler), facts)
    }

    /// As [`start`](Self::start), where profilers take turns: `current` says which one records.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(
        current: impl Fn() -> Arc<BrickProfiler> + Send + Sync + 'static,
        facts: Facts,
    ) -> Result<Self, LiveError> {
        Starting::begin()?.publish_with(current, facts)
    }

    /// Starts to publish on a socket of the caller's choice. What keeps others from it besides its
    /// permissions is the folder that it is in.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_at(
        profiler: &Arc<BrickProfiler>,
        facts: Facts,
        path: &Path,
    ) -> Result<Self, LiveError> {
        Starting::begin_at(path)?.publish(profiler, facts)
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until somebody watches, for so long at most, and returns whether somebody does: for an engine
    /// that would be done before anybody could have come.
    #[must_use]
    pub fn wait_for_watcher(&self, within: Duration) -> bool {
        let watchers = lock(&self.shared.watchers);
        let wait = self.shared.changed.wait_timeout_while(watchers, within, |all| all.is_empty());
        !wait.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }
}

/// An engine that will publish and can't yet: it loads its model, say. Who comes before it does is told what it is
/// at, and then watches.
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
    /// Listens at the place where `brickscope top --attach PID` looks.
    ///
    /// # Errors
    ///
    /// As [`Publisher::start`].
    pub fn begin() -> Result<Self, LiveError> {
        let folder = place::folder()?;
        remove_stale(&folder);
        Self::begin_at(&place::socket_in(&folder, std::process::id()))
    }

    /// Listens on a socket of the caller's choice.
    ///
    /// # Errors
    ///
    /// As [`Publisher::start`].
    pub fn begin_at(path: &Path) -> Result<Self, LiveError> {
        let listener = bind(path)?;
        let shared = Arc::new(Shared {
            stage: Mutex::new(Stage::Starting("starting".to_owned())),
            staged: Condvar::new(),
            ends: AtomicBool::new(false),
            watchers: Mutex::default(),
            changed: Condvar::new(),
            maker: Mutex::default(),
        });
        let publisher = Publisher { shared: Arc::clone(&shared), path: path.to_owned() };
        thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || shared.accept(&listener))
            .map_err(io_error("a thread for watchers"))?;
        Ok(Self(publisher))
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Says what the engine is at: a few words. Cheap: nobody is waited for.
    pub fn say(&self, what: &str) {
        if let Stage::Starting(said) = &mut *lock(&self.0.shared.stage) {
            what.clone_into(said);
        }
    }

    /// The engine is there: it publishes from now on.
    ///
    /// # Errors
    ///
    /// If `facts` are more than fit a line of the format.
    pub fn publish(
        self,
        profiler: &Arc<BrickProfiler>,
        facts: Facts,
    ) -> Result<Publisher, LiveError> {
        let profiler = Arc::clone(profiler);
        self.publish_with(move || Arc::clone(&profiler), facts)
    }

    /// As [`publish`](Self::publish), where profilers take turns: `current` says which one records.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish).
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
        // The one who waits for watchers finds out when another comes.
        let _ = UnixStream::connect(&self.path);
        // Then nobody finds what nobody listens to; if it can't be removed, the next one will.
        let _ = std::fs::remove_file(&self.path);
        let mut watchers = lock(&self.shared.watchers);
        watchers.iter().for_each(Watcher::wake);
        let until = Instant::now() + END_WITHIN;
        while !watchers.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            watchers = self
                .shared
                .changed
                .wait_timeout(watchers, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        for watcher in watchers.iter() {
            let _ = watcher.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Says which profiler records.
type Current = Box<dyn Fn() -> Arc<BrickProfiler> + Send + Sync>;

/// An engine that runs.
struct Engine {
    current: Current,
    /// The first line.
    hello: Vec<u8>,
}

/// How far an engine is.
enum Stage {
    /// What it is at.
    Starting(String),
    Running(Arc<Engine>),
}

/// What the threads of a publisher share.
struct Shared {
    stage: Mutex<Stage>,
    /// It runs, or never will.
    staged: Condvar,
    ends: AtomicBool,
    watchers: Mutex<Vec<Watcher>>,
    /// One of them has come or gone.
    changed: Condvar,
    maker: Mutex<Maker>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("watchers", &self.watchers).finish_non_exhaustive()
    }
}

/// Somebody who watches.
#[derive(Debug)]
struct Watcher {
    stream: UnixStream,
    thread: Thread,
}

impl Watcher {
    /// Has its thread look whether the publisher ends.
    fn wake(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Read);
        self.thread.unpark();
    }
}

/// This thread is on the list of watchers until this is dropped, by a panic too.
struct Listed<'s>(&'s Shared);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let here = thread::current().id();
        let mut watchers = lock(&self.0.watchers);
        watchers.retain(|watcher| watcher.thread.id() != here);
        if watchers.is_empty() {
            lock(&self.0.maker).rest();
        }
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.ends() {
                return;
            }
            match stream {
                Ok(stream) => self.admit(stream),
                // Out of files, say: that may pass.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Gives a watcher a thread of its own, if it may watch and there is room.
    fn admit(self: &Arc<Self>, stream: UnixStream) {
        let refuse = |why: &str| {
            if let Ok(line) = line_of(&Message::Error(why.to_owned())) {
                let _ = set_timeouts(&stream).and_then(|()| send_all(&stream, &line));
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
            return refuse(&format!("{MOST_WATCHERS} watch already"));
        }
        let Ok(kept) = stream.try_clone() else { return };
        let shared = Arc::clone(self);
        let served = thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
            let listed = Listed(&shared);
            // A watcher that goes is no error.
            let _ = listed.0.serve(&stream);
        });
        // The thread takes itself off the list, for which it waits until it is on it.
        if let Ok(handle) = served {
            watchers.push(Watcher { stream: kept, thread: handle.thread().clone() });
            self.changed.notify_all();
        }
    }

    /// The engine, once it runs; until then the watcher is told what it is at. `None` if it never will.
    fn await_engine(&self, stream: &UnixStream) -> io::Result<Option<Arc<Engine>>> {
        let mut told: Option<(String, Instant)> = None;
        loop {
            let what = {
                let (stage, _) = self
                    .staged
                    .wait_timeout_while(
                        lock(&self.stage),
                        // The first is told at once.
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
                send_all(stream, &line.unwrap_or_else(|why| line_of_error(&why.to_string())))?;
                told = Some((what, Instant::now()));
            }
        }
    }

    /// Sends frames until the watcher or the publisher goes.
    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        set_timeouts(stream)?;
        let Some(engine) = self.await_engine(stream)? else {
            return send_all(stream, &line_of_error("the engine ended before it ran"));
        };
        send_all(stream, &engine.hello)?;
        lock(&self.maker).greet();
        let mut requests = Requests::new(stream);
        let mut known = Known::default();
        loop {
            let began = Instant::now();
            let news = lock(&self.maker).news(&(engine.current)(), false);
            known.catch_up(stream, &news)?;
            // Nothing comes after an error.
            if news.is_error {
                return Ok(());
            }
            if let Err(why) = requests.until(began + requests.interval(), || self.ends()) {
                return send_all(stream, &line_of_error(&why));
            }
            if self.ends() {
                let news = lock(&self.maker).news(&(engine.current)(), true);
                return known.catch_up(stream, &news);
            }
        }
    }
}

/// What a watcher was sent: the numbers of the newest frame, and of the newest whole one.
#[derive(Debug, Default)]
struct Known {
    seq: u64,
    whole: u64,
}

impl Known {
    fn catch_up(&mut self, stream: &UnixStream, news: &News) -> io::Result<()> {
        if news.seq == self.seq {
            return Ok(());
        }
        if news.whole_seq != self.whole {
            send_all(stream, &news.whole)?;
        }
        if let Some(delta) = &news.delta {
            send_all(stream, delta)?;
        }
        (self.seq, self.whole) = (news.seq, news.whole_seq);
        Ok(())
    }
}

/// What a watcher asks for.
struct Requests<'s> {
    stream: &'s UnixStream,
    reader: BufReader<&'s UnixStream>,
    line: Vec<u8>,
    rate: u32,
    /// It has closed its side, and may still read.
    is_silent: bool,
}

impl<'s> Requests<'s> {
    fn new(stream: &'s UnixStream) -> Self {
        let reader = BufReader::with_capacity(MOST_REQUEST, stream);
        Self { stream, reader, line: Vec::new(), rate: DEFAULT_RATE, is_silent: false }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.rate
    }

    /// Listens to the watcher until then; an error is a sentence about what it said.
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
            // A time-out of zero would be none.
            let left = left.max(Duration::from_millis(1));
            if self.stream.set_read_timeout(Some(left)).is_err() {
                self.is_silent = true;
                continue;
            }
            match read_line(&mut self.reader, &mut self.line, MOST_REQUEST) {
                Ok(true) => {
                    let line = std::mem::take(&mut self.line);
                    let request: Request = serde_json::from_slice(&line)
                        .map_err(|error| format!("a request that is none: {error}"))?;
                    if let Some(rate) = request.rate {
                        self.rate = rate.clamp(LEAST_RATE, MOST_RATE);
                    }
                }
                Ok(false) => self.is_silent = true,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                    io::ErrorKind::InvalidData => return Err(format!("a request: {error}")),
                    _ => self.is_silent = true,
                },
            }
        }
        Ok(())
    }
}

fn set_timeouts(stream: &UnixStream) -> io::Result<()> {
    stream.set_write_timeout(Some(SEND_WITHIN / 8))
}

/// Sends all of it within [`SEND_WITHIN`], however slowly the other side takes it.
fn send_all(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    // A watcher that has gone is no reason to end an engine that doesn't ignore this signal.
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::NOSIGNAL;
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::empty();
    let until = Instant::now() + SEND_WITHIN;
    while !bytes.is_empty() {
        match send(stream, bytes, flags) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        if !bytes.is_empty() && Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
