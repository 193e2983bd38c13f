//! Live views of a running engine over a local socket.
//!
//! An engine starts a [`Publisher`] for its profiler. To watch it, another process connects a [`Watch`], as
//! `brickscope top --attach PID` does. While nobody watches, the publisher is one thread blocked in `accept`.
//! The two exchange [`Message`]s, one line of JSON each; `live/format.md` describes them for programs in other
//! languages.
//!
//! On systems without Unix sockets, both return [`LiveError::Unsupported`].

#[cfg(unix)]
mod connect;
mod delta;
mod frame;
mod lines;
#[cfg(unix)]
mod listen;
#[cfg(unix)]
mod path;
#[cfg(unix)]
mod publisher;
#[cfg(unix)]
mod snapshotter;
#[cfg(unix)]
mod so_far;
#[cfg(unix)]
mod timed;
#[cfg(not(unix))]
mod unsupported;
#[cfg(unix)]
mod watch;

use std::io;
use std::path::PathBuf;

pub use self::delta::{Changed, Delta, Details, DeviceRowDelta, Extras, RowDelta};
pub use self::frame::{Facts, Frame, Hello, Message, Rates, Request, SoFar};
pub use self::lines::Messages;
#[cfg(unix)]
pub use self::publisher::{Publisher, Starting};
#[cfg(unix)]
pub use self::so_far::{Recording, ask_so_far, ask_so_far_at};
#[cfg(not(unix))]
pub use self::unsupported::{Publisher, Recording, Starting, Watch, ask_so_far, ask_so_far_at};
#[cfg(unix)]
pub use self::watch::Watch;

/// The version of the protocol. A watcher refuses a newer one.
pub const FORMAT: u32 = 2;

/// Frames per second, unless the watcher asks for another rate.
pub const DEFAULT_RATE: u32 = 10;
/// The lowest rate that a watcher can ask for.
pub const LEAST_RATE: u32 = 1;
/// The highest rate that a watcher can ask for.
pub const MOST_RATE: u32 = 20;

/// How many watchers a publisher serves at the same time. Further ones get an error.
pub const MOST_WATCHERS: usize = 4;

/// The longest line, in bytes, that a watcher reads and a publisher writes.
pub const MOST_LINE: usize = 8 << 20;
/// The longest request, in bytes, that a publisher reads.
pub const MOST_REQUEST: usize = 1 << 10;

/// What came of waiting for a frame.
#[derive(Debug)]
pub enum Next {
    /// A frame.
    Frame(Box<Frame>),
    /// None arrived in time.
    Nothing,
    /// The publisher has gone. If the last frame said that it was the last, the publisher ended normally;
    /// otherwise its process died.
    Gone,
}

/// Why an engine can't be published or watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// This system has no Unix sockets.
    #[error("this system has no Unix sockets, which live views need")]
    Unsupported,
    /// No process has this number.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The process runs, but has no socket in the expected places.
    #[error(
        "process {pid} doesn't publish: {} doesn't exist. `brickscope profile --live` publishes, and so do engines \
         that start a `brickscope_live::socket::Publisher`. An unmodified llama.cpp can't be watched, nor under \
         `brickscope run`: that records it, and `show` prints the run when it has ended, `requests` a server's requests; \
         under `run --keep tail`, `requests --attach` writes and prints a run while it goes on",
        .path.display()
    )]
    NotPublishing {
        /// The process.
        pid: u32,
        /// Where its socket is expected.
        path: PathBuf,
    },
    /// The socket exists, but nobody listens on it, because its process has ended.
    #[error("nobody listens on {}: the process that made it has ended", .0.display())]
    NobodyListens(PathBuf),
    /// There is something else at the path of a socket.
    #[error("{} is {what}, not a socket: name the number of the process, or the socket that it publishes on", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// The socket belongs to another user.
    #[error("{} can't be watched: its process belongs to another user (uid {uid})", .path.display())]
    OtherUser {
        /// The socket.
        path: PathBuf,
        /// The user of its process.
        uid: u32,
    },
    /// This process has another publisher on the same socket.
    #[error("{} is in use: this process publishes already", .0.display())]
    InUse(PathBuf),
    /// The directory for sockets isn't private to this user.
    #[error("{} can't hold a socket: {why}", .path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The other side uses a newer version.
    #[error(
        "{what} has version {found}, but this brickscope reads versions up to {known}: use a newer brickscope"
    )]
    Newer {
        /// What is newer.
        what: &'static str,
        /// Its version.
        found: u32,
        /// The newest version that this brickscope reads.
        known: u32,
    },
    /// A line doesn't follow the format.
    #[error("line {line}: {why}")]
    Malformed {
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The engine is still starting, and the caller didn't wait.
    #[error("the engine is still starting: {0}")]
    Starting(String),
    /// The publisher sent an error.
    #[error("the publisher says: {0}")]
    Refused(String),
    /// The system reported an error.
    #[error("{what}: {cause}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The system's error. Part of the message, and so no `source` that would repeat it.
        cause: io::Error,
    },
}

#[cfg(unix)]
fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> LiveError {
    let what = what.into();
    move |cause| LiveError::Io { what, cause }
}
