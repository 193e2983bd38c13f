//! The engine's side. Nothing here runs unless somebody watches, and nothing that a watcher does can hold
//! up the engine: frames are made and sent on a thread of the watcher's own.

use std::fmt;
use std::io::{self, BufReader};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use brickscope::{BrickProfiler, BrickStats, Histogram, Profile, Total};
use rustix::net::{SendFlags, send};

use super::lines::read_line;
use super::place::{self, own_uid};
use super::{
    DEFAULT_RATE, Facts, Frame, Hello, LEAST_RATE, LiveError, MOST_LINE, MOST_RATE, MOST_REQUEST,
    MOST_WATCHERS, Message, Request, io_error,
};

/// What the threads are called: as long as a name can be that the system shows.
const THREAD: &str = "brickscope-live";

/// A frame younger than this is sent to a second watcher as it is, so that more watchers make no more work.
const FRESH: Duration = Duration::from_millis(40);
/// How often the tables of bricks by layer and of kernels by brick are in a frame: they are most of one, and
/// nobody reads them faster.
const DETAILS_EVERY: Duration = Duration::from_millis(500);
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
        let folder = place::folder()?;
        remove_stale(&folder);
        Self::listen(Box::new(current), facts, &place::socket_in(&folder, std::process::id()))
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
        let profiler = Arc::clone(profiler);
        Self::listen(Box::new(move || Arc::clone(&profiler)), facts, path)
    }

    fn listen(current: Current, facts: Facts, path: &Path) -> Result<Self, LiveError> {
        let name = || path.display().to_string();
        let listener = bind(path)?;
        // Until then whoever can enter the folder may connect, and is asked who he is where the system tells.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(io_error(name()))?;
        let hello = Hello::new(current().clock().describe(), facts);
        let shared = Arc::new(Shared {
            current,
            hello: line_of(&Message::Hello(Box::new(hello)))?,
            ends: AtomicBool::new(false),
            watchers: Mutex::default(),
            changed: Condvar::new(),
            maker: Mutex::default(),
        });
        let publisher = Self { shared: Arc::clone(&shared), path: path.to_owned() };
        thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || shared.accept(&listener))
            .map_err(io_error("a thread for watchers"))?;
        Ok(publisher)
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

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
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

/// Listens at `path`, where nobody may listen yet. What a process left that has ended is removed.
fn bind(path: &Path) -> Result<UnixListener, LiveError> {
    let failed = |error| io_error(format!("listening on {}", path.display()))(error);
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return bound.map_err(failed),
    }
    // Never what is no socket: a path may be mistyped.
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    if !found.file_type().is_socket() {
        let why = "there is something else than a socket";
        return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, why)));
    }
    match UnixStream::connect(path) {
        Ok(_) => return Err(LiveError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) => return Err(failed(error)),
    }
    std::fs::remove_file(path).map_err(failed)?;
    UnixListener::bind(path).map_err(failed)
}

/// Removes sockets of processes that ended without doing so.
fn remove_stale(folder: &Path) {
    // Where there is no such file system, nothing tells which processes there are.
    if !Path::new("/proc/self").exists() {
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().take(1 << 10).map(|entry| entry.path()) {
        let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
        let is_socket = path.extension().is_some_and(|ending| ending == "sock");
        if let Some(pid) = pid
            && is_socket
            && !Path::new(&format!("/proc/{pid}")).exists()
            // It may be in another container that shares the folder.
            && UnixStream::connect(&path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Says which profiler records.
type Current = Box<dyn Fn() -> Arc<BrickProfiler> + Send + Sync>;

/// What the threads of a publisher share.
struct Shared {
    current: Current,
    /// The first line.
    hello: Vec<u8>,
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

    /// Sends frames until the watcher or the publisher goes.
    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        set_timeouts(stream)?;
        send_all(stream, &self.hello)?;
        lock(&self.maker).greet();
        let mut requests = Requests::new(stream);
        let mut sent = 0;
        loop {
            let began = Instant::now();
            let (seq, line) = lock(&self.maker).frame(&(self.current)(), false);
            if seq > sent {
                send_all(stream, &line)?;
                sent = seq;
            }
            // Nothing comes after an error.
            if line.starts_with(ERROR) {
                return Ok(());
            }
            if let Err(why) = requests.until(began + requests.interval(), || self.ends()) {
                return send_all(stream, &line_of_error(&why));
            }
            if self.ends() {
                let (_, line) = lock(&self.maker).frame(&(self.current)(), true);
                return send_all(stream, &line);
            }
        }
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

/// How the line of an error begins.
const ERROR: &[u8] = b"{\"error\"";

/// Makes frames, each once for all who watch.
#[derive(Debug, Default)]
struct Maker {
    /// Whoever sums layers for us.
    sums: Option<Arc<BrickProfiler>>,
    seq: u64,
    made: Duration,
    last_at: Option<Instant>,
    details_at: Option<Instant>,
    is_last: bool,
    line: Arc<Vec<u8>>,
}

impl Maker {
    /// Somebody has come who knows none of what isn't in every frame.
    fn greet(&mut self) {
        (self.last_at, self.details_at) = (None, None);
    }

    /// Nobody watches any more: what was done for watchers alone ends.
    fn rest(&mut self) {
        if let Some(profiler) = self.sums.take() {
            profiler.stop_summing_layers();
        }
    }

    /// The newest frame and its number; made anew if it is no longer fresh. The `last` one is made once.
    fn frame(&mut self, profiler: &Arc<BrickProfiler>, last: bool) -> (u64, Arc<Vec<u8>>) {
        let now = Instant::now();
        let is_due =
            |at: Option<Instant>, every| at.is_none_or(|at| now.duration_since(at) >= every);
        if self.is_last || !last && !is_due(self.last_at, FRESH) {
            return (self.seq, Arc::clone(&self.line));
        }
        self.seq += 1;
        self.is_last = last;
        let details = last || is_due(self.details_at, DETAILS_EVERY);
        let at_ns = profiler.clock().now();
        // Another one may record than before.
        if !self.sums.as_ref().is_some_and(|before| Arc::ptr_eq(before, profiler)) {
            self.rest();
            profiler.sum_layers();
            self.sums = Some(Arc::clone(profiler));
        }
        let profile = light(match details {
            true => profiler.snapshot(),
            false => profiler.snapshot_without_details(),
        });
        if details {
            self.details_at = Some(now);
        }
        let frame = Frame {
            seq: self.seq,
            at_ns,
            made_ns: u64::try_from(self.made.as_nanos()).unwrap_or(u64::MAX),
            last,
            profile,
            details,
        };
        let line = line_of(&Message::Frame(Box::new(frame)));
        self.line = Arc::new(line.unwrap_or_else(|error| line_of_error(&error.to_string())));
        let end = Instant::now();
        self.last_at = Some(end);
        self.made += end.duration_since(now);
        (self.seq, Arc::clone(&self.line))
    }
}

/// A snapshot without what no view of a running engine needs.
fn light(mut profile: Profile) -> Profile {
    without_histograms(&mut profile.totals);
    for device in &mut profile.devices {
        device.streams.iter_mut().for_each(|stream| without_histograms(&mut stream.totals));
    }
    profile
}

fn without_histograms(totals: &mut [Total]) {
    for BrickStats { histogram, .. } in totals.iter_mut().map(|total| &mut total.stats) {
        *histogram = Histogram::default();
    }
}

fn line_of(message: &Message) -> Result<Vec<u8>, LiveError> {
    let mut line = serde_json::to_vec(message)
        .map_err(|error| LiveError::Malformed { line: 0, why: error.to_string() })?;
    line.push(b'\n');
    if line.len() > MOST_LINE {
        let why = format!("a line of {} bytes, more than watchers read", line.len());
        return Err(LiveError::Malformed { line: 0, why });
    }
    Ok(line)
}

fn line_of_error(why: &str) -> Vec<u8> {
    line_of(&Message::Error(why.to_owned())).unwrap_or_else(|_| b"{\"error\":\"\"}\n".to_vec())
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

/// The user on the other side; `None` where the system doesn't tell, and the permissions of the socket
/// have to do.
#[cfg(target_os = "linux")]
pub(super) fn peer_uid(stream: &UnixStream) -> Option<u32> {
    rustix::net::sockopt::socket_peercred(stream).ok().map(|peer| peer.uid.as_raw())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn peer_uid(_: &UnixStream) -> Option<u32> {
    None
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
