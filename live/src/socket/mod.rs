//! Pictures of a running engine over a local socket.
//!
//! An engine starts a [`Publisher`] beside its profiler; whoever wants to see it run connects a [`Watch`]:
//! `brickscope top --attach PID` does. While nobody watches, a publisher is a thread that sleeps in
//! `accept`. What goes over the socket is [`Message`]s, each a line of JSON; `docs/live.md` describes them
//! for publishers and watchers in other languages.
//!
//! On systems without Unix sockets both say that they can't.

mod delta;
mod frame;
mod lines;
#[cfg(unix)]
mod listen;
#[cfg(unix)]
mod maker;
#[cfg(unix)]
mod place;
#[cfg(unix)]
mod publisher;
#[cfg(unix)]
mod watch;
#[cfg(not(unix))]
mod without;

use std::io;
use std::path::PathBuf;

pub use self::delta::{Beside, Changed, Delta, Details, DeviceRow, Row};
pub use self::frame::{Facts, Frame, Hello, Message, Rates, Request};
pub use self::lines::Messages;
#[cfg(unix)]
pub use self::publisher::{Publisher, Starting};
#[cfg(unix)]
pub use self::watch::{Next, Watch};
#[cfg(not(unix))]
pub use self::without::{Next, Publisher, Starting, Watch};

/// The version of what goes over the socket. A watcher refuses what is newer than it knows.
pub const FORMAT: u32 = 2;

/// Frames in a second, unless the watcher asks for another rate.
pub const DEFAULT_RATE: u32 = 10;
/// The least rate that a watcher gets.
pub const LEAST_RATE: u32 = 1;
/// The highest.
pub const MOST_RATE: u32 = 20;

/// How many may watch a publisher at the same time. The next is told so, and sent away.
pub const MOST_WATCHERS: usize = 4;

/// A watcher reads no line that is longer, and a publisher writes none.
pub const MOST_LINE: usize = 8 << 20;
/// A publisher reads no request that is longer.
pub const MOST_REQUEST: usize = 1 << 10;

/// Why nothing can be published or watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// This system has no Unix sockets.
    #[error("this system has no Unix sockets, which live views go over")]
    Unsupported,
    /// No process has this number.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The process runs, and has no socket where one would be.
    #[error(
        "process {pid} doesn't publish: {} doesn't exist. `brickscope profile --live` does, and engines that start a \
         `brickscope_live::socket::Publisher`",
        .path.display()
    )]
    NotPublishing {
        /// The process.
        pid: u32,
        /// Where its socket would be.
        path: PathBuf,
    },
    /// The socket is there, and nobody listens: its process has ended.
    #[error("nobody listens on {}: the process that made it has ended", .0.display())]
    NobodyListens(PathBuf),
    /// The socket is another user's.
    #[error("{} can't be watched: its process is another user's (uid {uid})", .path.display())]
    OtherUser {
        /// The socket.
        path: PathBuf,
        /// The user that its process runs as.
        uid: u32,
    },
    /// Another publisher of this process has the socket.
    #[error("{} is in use: this process publishes already", .0.display())]
    InUse(PathBuf),
    /// The folder for sockets isn't one that only we can use.
    #[error("{} can't hold a socket: {why}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The other side speaks a newer version than this.
    #[error(
        "{what} is of version {found}, and this brickscope knows versions up to {known}: use a newer one"
    )]
    Newer {
        /// What is newer.
        what: &'static str,
        /// Its version.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// A line isn't what the format says.
    #[error("line {line}: {why}")]
    Malformed {
        /// Which, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The engine isn't there yet, and who asked doesn't wait for it.
    #[error("the engine is still starting: {0}")]
    Starting(String),
    /// The other side said why it ends.
    #[error("the publisher says: {0}")]
    Refused(String),
    /// What the system says.
    #[error("{what}: {source}")]
    Io {
        /// What was to be done with what.
        what: String,
        /// The error.
        source: io::Error,
    },
}

#[cfg(unix)]
fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> LiveError {
    let what = what.into();
    move |source| LiveError::Io { what, source }
}
