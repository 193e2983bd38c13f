//! The watcher's side of a live view.

use std::io::{self, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::listen::peer_uid;
use super::path::{candidates, own_uid};
use super::{Hello, LiveError, Message, Messages, Next, Request, io_error};

/// How long to wait for a publisher's hello.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// A connection to an engine that publishes.
#[derive(Debug)]
pub struct Watch {
    hello: Hello,
    messages: Messages<BufReader<UnixStream>>,
    path: PathBuf,
}

impl Watch {
    /// Watches the process `pid`.
    ///
    /// # Errors
    ///
    /// If there is no such process, or it doesn't publish, belongs to another user or uses a newer version.
    pub fn process(pid: u32) -> Result<Self, LiveError> {
        Self::process_telling(pid, &mut |_| true)
    }

    /// Like [`process`](Self::process). While the engine starts, calls `told` with what it is doing, at least
    /// once a second; `told` returns whether to keep waiting.
    ///
    /// # Errors
    ///
    /// As for [`process`](Self::process); [`LiveError::Starting`] if `told` returns false.
    pub fn process_telling(
        pid: u32,
        told: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Self, LiveError> {
        let uid = owner_of(pid)?;
        let places = candidates(pid, uid.unwrap_or_else(own_uid));
        for path in &places {
            match Self::socket_telling(path, told) {
                Err(LiveError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(LiveError::Io { cause, .. })
                    if cause.kind() == io::ErrorKind::PermissionDenied
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
        // Name the path where a publisher would have made it.
        let is_possible =
            |path: &&PathBuf| path.parent().and_then(Path::parent).is_some_and(Path::is_dir);
        let path = places.iter().find(is_possible).cloned().unwrap_or_default();
        Err(LiveError::NotPublishing { pid, path })
    }

    /// Watches the publisher that listens on the socket at `path`.
    ///
    /// # Errors
    ///
    /// As for [`process`](Self::process).
    pub fn socket(path: &Path) -> Result<Self, LiveError> {
        Self::socket_telling(path, &mut |_| true)
    }

    /// Like [`socket`](Self::socket), with `told` as in [`process_telling`](Self::process_telling).
    ///
    /// # Errors
    ///
    /// As for [`process_telling`](Self::process_telling).
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
            LiveError::Io { cause, .. } if is_time_out(&cause) => LiveError::Io {
                what: name(),
                cause: io::Error::new(cause.kind(), "whoever listens says nothing"),
            },
            other => other,
        })?;
        Ok(Self { hello, messages, path: path.to_owned() })
    }

    /// Describes the publisher.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks for `rate` frames per second. The publisher clamps it to its bounds.
    ///
    /// # Errors
    ///
    /// If the request can't be sent.
    pub fn ask(&mut self, rate: u32) -> Result<(), LiveError> {
        let mut line = serde_json::to_vec(&Request { rate: Some(rate) })
            .map_err(|error| LiveError::Malformed { line: 0, why: error.to_string() })?;
        line.push(b'\n');
        let stream = self.messages.reader.get_mut();
        stream.write_all(&line).map_err(io_error("asking for a rate"))
    }

    /// Waits for the next frame, but no longer than `within`.
    ///
    /// # Errors
    ///
    /// If what arrives isn't a frame, or has a newer version.
    pub fn next(&mut self, within: Duration) -> Result<Next, LiveError> {
        let until = Instant::now() + within;
        loop {
            // A time-out of zero means no time-out.
            let left = until.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            let stream = self.messages.reader.get_ref();
            stream.set_read_timeout(Some(left)).map_err(io_error("the socket"))?;
            match self.messages.next() {
                Ok(Some(Message::Frame(frame))) => return Ok(Next::Frame(frame)),
                Ok(Some(Message::Error(why))) => return Err(LiveError::Refused(why)),
                // The same format may gain further messages, which can be skipped.
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Next::Gone),
                Err(LiveError::Io { cause, .. }) if is_time_out(&cause) => {}
                Err(LiveError::Io { cause, .. })
                    if cause.kind() == io::ErrorKind::ConnectionReset =>
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

/// The user that runs a process; `None` where the system doesn't tell.
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
