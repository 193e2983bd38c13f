//! The watcher's side.

use std::io::{self, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::listen::peer_uid;
use super::place::{candidates, own_uid};
use super::{Frame, Hello, LiveError, Message, Messages, Request, io_error};

/// How long a publisher may take to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// What came of waiting for a frame.
#[derive(Debug)]
pub enum Next {
    /// A frame.
    Frame(Box<Frame>),
    /// None came in that time.
    Nothing,
    /// The publisher has gone. After a frame that says that it is the last, in good order; else its process
    /// has died.
    Gone,
}

/// Watches an engine that publishes.
#[derive(Debug)]
pub struct Watch {
    hello: Hello,
    messages: Messages<BufReader<UnixStream>>,
    path: PathBuf,
}

impl Watch {
    /// Watches a process.
    ///
    /// # Errors
    ///
    /// If there is no such process, it doesn't publish, is another user's, or speaks a newer version.
    pub fn process(pid: u32) -> Result<Self, LiveError> {
        Self::process_telling(pid, &mut |_| true)
    }

    /// As [`process`](Self::process). While the engine starts, `told` hears what it is at, at least once a second,
    /// and says whether to wait.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process); [`LiveError::Starting`] if `told` doesn't want to wait.
    pub fn process_telling(
        pid: u32,
        told: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Self, LiveError> {
        let uid = owner_of(pid)?;
        let places = candidates(pid, uid.unwrap_or_else(own_uid));
        for path in &places {
            match Self::socket_telling(path, told) {
                Err(LiveError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(LiveError::Io { source, .. })
                    if source.kind() == io::ErrorKind::PermissionDenied
                        && uid.is_some_and(|uid| uid != own_uid()) =>
                {
                    let uid = uid.unwrap_or_default();
                    return Err(LiveError::OtherUser { path: path.clone(), uid });
                }
                other => return other,
            }
        }
        if let Some(uid) = uid.filter(|&uid| uid != own_uid() && own_uid() != 0) {
            return Err(LiveError::OtherUser { path: places[0].clone(), uid });
        }
        // Where a publisher would have made it.
        let is_possible =
            |path: &&PathBuf| path.parent().and_then(Path::parent).is_some_and(Path::is_dir);
        let path = places.iter().find(is_possible).cloned().unwrap_or_default();
        Err(LiveError::NotPublishing { pid, path })
    }

    /// Watches whoever listens on a socket.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    pub fn socket(path: &Path) -> Result<Self, LiveError> {
        Self::socket_telling(path, &mut |_| true)
    }

    /// As [`socket`](Self::socket), with `told` as in [`process_telling`](Self::process_telling).
    ///
    /// # Errors
    ///
    /// As [`process_telling`](Self::process_telling).
    pub fn socket_telling(
        path: &Path,
        told: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Self, LiveError> {
        let name = || path.display().to_string();
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => LiveError::NobodyListens(path.to_owned()),
            _ => io_error(name())(error),
        })?;
        if let Some(uid) = peer_uid(&stream)
            && ![own_uid(), 0].contains(&uid)
            && own_uid() != 0
        {
            return Err(LiveError::OtherUser { path: path.to_owned(), uid });
        }
        stream.set_read_timeout(Some(HELLO_WITHIN)).map_err(io_error(name()))?;
        stream.set_write_timeout(Some(HELLO_WITHIN)).map_err(io_error(name()))?;
        let mut messages = Messages::new(BufReader::with_capacity(1 << 16, stream));
        let hello = messages.hello_telling(told).map_err(|error| match error {
            LiveError::Io { source, .. } if is_time_out(&source) => LiveError::Io {
                what: name(),
                source: io::Error::new(source.kind(), "whoever listens says nothing"),
            },
            other => other,
        })?;
        Ok(Self { hello, messages, path: path.to_owned() })
    }

    /// Who publishes.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks for so many frames in a second; the publisher keeps to its bounds.
    ///
    /// # Errors
    ///
    /// If it can't be told.
    pub fn ask(&mut self, rate: u32) -> Result<(), LiveError> {
        let mut line = serde_json::to_vec(&Request { rate: Some(rate) })
            .map_err(|error| LiveError::Malformed { line: 0, why: error.to_string() })?;
        line.push(b'\n');
        let stream = self.messages.reader.get_mut();
        stream.write_all(&line).map_err(io_error("asking for a rate"))
    }

    /// Waits for the next frame, for so long at most.
    ///
    /// # Errors
    ///
    /// If what comes is no frame, or of a newer version.
    pub fn next(&mut self, within: Duration) -> Result<Next, LiveError> {
        let until = Instant::now() + within;
        loop {
            // A time-out of zero would be none.
            let left = until.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            let stream = self.messages.reader.get_ref();
            stream.set_read_timeout(Some(left)).map_err(io_error("the socket"))?;
            match self.messages.next() {
                Ok(Some(Message::Frame(frame))) => return Ok(Next::Frame(frame)),
                Ok(Some(Message::Error(why))) => return Err(LiveError::Refused(why)),
                // Messages of later versions of the same format may be passed over.
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Next::Gone),
                Err(LiveError::Io { source, .. }) if is_time_out(&source) => {}
                Err(LiveError::Io { source, .. })
                    if source.kind() == io::ErrorKind::ConnectionReset =>
                {
                    return Ok(Next::Gone);
                }
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Ok(Next::Nothing);
            }
        }
    }
}

fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The user that a process runs as; `None` where the system doesn't tell.
fn owner_of(pid: u32) -> Result<Option<u32>, LiveError> {
    if !Path::new("/proc/self").exists() {
        return Ok(None);
    }
    match std::fs::metadata(format!("/proc/{pid}")) {
        Ok(found) => Ok(Some(found.uid())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LiveError::NoProcess(pid)),
        Err(_) => Ok(None),
    }
}
