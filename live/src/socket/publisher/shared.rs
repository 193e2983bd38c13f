//! What the threads of a publisher share: each serves one watcher, one accepts them.

use std::fmt;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use brickscope::BrickProfiler;
use rustix::net::{SendFlags, send};

use super::requests::Requests;
use crate::socket::listen::peer_uid;
use crate::socket::path::own_uid;
use crate::socket::snapshotter::{Latest, Snapshotter, line_of, line_of_error};
use crate::socket::{MOST_WATCHERS, Message};

/// The name of the publisher's threads: 15 bytes, the most that Linux shows.
pub(super) const THREAD: &str = "brickscope-live";

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

/// Returns the profiler that is recording.
type Current = Box<dyn Fn() -> Arc<BrickProfiler> + Send + Sync>;

/// A running engine.
pub(super) struct Engine {
    pub(super) current: Current,
    /// The first line for every watcher.
    pub(super) hello: Vec<u8>,
}

/// How far the engine has got.
pub(super) enum Stage {
    /// What it is doing.
    Starting(String),
    Running(Arc<Engine>),
}

/// What the threads of a publisher share.
pub(super) struct Shared {
    pub(super) stage: Mutex<Stage>,
    /// Signals that the engine runs, or that it never will.
    pub(super) staged: Condvar,
    pub(super) ends: AtomicBool,
    /// What the watchers' threads have done, as a sign of progress.
    pub(super) steps: AtomicU64,
    pub(super) watchers: Mutex<Vec<Watcher>>,
    /// Signals that a watcher has come or gone.
    pub(super) changed: Condvar,
    pub(super) snapshotter: Mutex<Snapshotter>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("watchers", &self.watchers).finish_non_exhaustive()
    }
}

/// A connected watcher.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) stream: UnixStream,
    thread: Thread,
}

impl Watcher {
    /// Makes the watcher's thread check whether the publisher is ending.
    pub(super) fn wake(&self) {
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

    pub(super) fn accept(self: &Arc<Self>, listener: &UnixListener) {
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

fn set_timeouts(stream: &UnixStream) -> io::Result<()> {
    stream.set_write_timeout(Some(DEAF_AFTER))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
