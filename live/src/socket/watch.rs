//! The watcher's side of a live view.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::connect::{to_process, to_socket};
use super::timed::{Timed, Unfinished, is_time_out};
use super::{Hello, LiveError, Message, Messages, Next, Request, io_error};

/// How long to wait for a publisher.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For each message up to its hello, from nothing to the end of its line.
    hello: Duration,
    /// For the end of a line of which a part has come. A publisher gives up after two seconds.
    line: Duration,
}

const PATIENCE: Patience =
    Patience { hello: Duration::from_secs(5), line: Duration::from_secs(10) };

/// A connection to an engine that publishes.
#[derive(Debug)]
pub struct Watch {
    hello: Hello,
    messages: Messages<BufReader<Timed<UnixStream>>>,
    unfinished: Unfinished,
    patience: Patience,
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
        to_process(pid, &mut |path| Self::socket_telling(path, told))
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
        Self::over(to_socket(path)?, path, told, PATIENCE)
    }

    fn over(
        stream: UnixStream,
        path: &Path,
        told: &mut dyn FnMut(&str) -> bool,
        patience: Patience,
    ) -> Result<Self, LiveError> {
        let name = || path.display().to_string();
        stream.set_write_timeout(Some(patience.hello)).map_err(io_error(name()))?;
        let reader = BufReader::with_capacity(1 << 16, Timed::new(stream));
        let mut messages = Messages::new(reader);
        let hello = messages.hello_with(told, &mut |reader| {
            reader.get_mut().wait_until(Instant::now() + patience.hello);
        });
        let hello = hello.map_err(|error| match error {
            LiveError::Io { cause, .. } if is_time_out(&cause) => {
                let why = match messages.is_within_line() {
                    true => {
                        format!("whoever listens did not end a line within {:?}", patience.hello)
                    }
                    false => "whoever listens says nothing".to_owned(),
                };
                LiveError::Io { what: name(), cause: io::Error::new(cause.kind(), why) }
            }
            other => other,
        })?;
        let unfinished = Unfinished::default();
        Ok(Self { hello, messages, unfinished, patience, path: path.to_owned() })
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
        let mut line = serde_json::to_vec(&Request { rate: Some(rate), ..Request::default() })
            .map_err(|error| LiveError::Malformed { line: 0, why: error.to_string() })?;
        line.push(b'\n');
        let mut stream = self.messages.reader.get_ref().stream();
        stream.write_all(&line).map_err(io_error("asking for a rate"))
    }

    /// Waits for the next frame, but no longer than `within`.
    ///
    /// # Errors
    ///
    /// If what arrives isn't a frame, has a newer version, or is a line that doesn't end within ten seconds.
    pub fn next(&mut self, within: Duration) -> Result<Next, LiveError> {
        let until = Instant::now() + within;
        loop {
            let now = Instant::now();
            self.messages.reader.get_mut().wait_until(until.min(now + self.patience.line));
            let next = self.messages.next();
            if !self.messages.is_within_line() {
                self.unfinished.is_whole();
            } else if self.unfinished.is_overdue(self.patience.line) {
                let why = format!("a line did not end within {:?}", self.patience.line);
                let cause = io::Error::new(io::ErrorKind::TimedOut, why);
                return Err(LiveError::Io { what: self.path.display().to_string(), cause });
            }
            match next {
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

#[cfg(test)]
mod tests {
    use brickscope::ClockInfo;

    use super::super::snapshotter::line_of;
    use super::super::timed::tests::dripping;
    use super::super::{Facts, Hello};
    use super::*;

    const SOON: Patience =
        Patience { hello: Duration::from_millis(50), line: Duration::from_millis(50) };

    fn watch(stream: UnixStream) -> Result<Watch, LiveError> {
        Watch::over(stream, Path::new("a.sock"), &mut |_| true, SOON)
    }

    #[test]
    fn a_publisher_that_drips_its_hello_is_given_up() {
        let said = watch(dripping(b"{")).expect_err("it has no end").to_string();
        assert_eq!(said, "a.sock: whoever listens did not end a line within 50ms");
        let starting = line_of(&Message::Starting("loading".to_owned())).expect("a line");
        let said =
            watch(dripping(&[&starting, &b"{"[..]].concat())).expect_err("no end").to_string();
        assert_eq!(said, "a.sock: whoever listens did not end a line within 50ms");
        let (here, _there) = UnixStream::pair().expect("a pair of sockets");
        let said = watch(here).expect_err("it says nothing").to_string();
        assert_eq!(said, "a.sock: whoever listens says nothing");
    }

    #[test]
    fn a_publisher_that_drips_a_frame_holds_no_wait_up_and_is_given_up() {
        let hello = Message::Hello(Box::new(Hello::new(ClockInfo::default(), Facts::default())));
        let mut hello = line_of(&hello).expect("a line");
        hello.push(b'{');
        for within in [Duration::from_millis(2), Duration::from_secs(3600)] {
            let mut watch = watch(dripping(&hello)).expect("it says who it is");
            let mut waits = 0;
            let said = loop {
                match watch.next(within) {
                    Ok(Next::Nothing) => waits += 1,
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => break error.to_string(),
                }
            };
            assert_eq!(said, "a.sock: a line did not end within 50ms");
            assert!(waits > 0 || within > SOON.line, "each wait ends when it should");
        }
    }

    #[test]
    fn what_is_no_socket_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        for (path, what) in [(file.as_path(), "a file"), (folder.path(), "a folder")] {
            let error = Watch::socket(path).expect_err("it is none");
            assert!(
                matches!(&error, LiveError::NotASocket { what: is, .. } if *is == what),
                "{error}"
            );
        }
        let socket = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&socket).expect("bound"));
        let error = Watch::socket(&socket).expect_err("nobody is there");
        assert!(matches!(error, LiveError::NobodyListens(_)), "{error}");
    }
}
