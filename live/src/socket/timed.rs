//! Reading from a socket for a bounded time, however slowly bytes drip.

use std::borrow::Borrow;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A socket whose reads end at a moment. A time-out of the socket alone bounds each read, and a line of many bytes takes
/// many.
#[derive(Debug)]
pub(super) struct Timed<S> {
    stream: S,
    until: Instant,
    /// Whether it was read since `until` was set. The first read takes what is there, however late it is.
    was_read: bool,
}

impl<S: Borrow<UnixStream>> Timed<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, until: Instant::now(), was_read: false }
    }

    /// From now on, reads wait until this moment.
    pub(super) fn wait_until(&mut self, until: Instant) {
        (self.until, self.was_read) = (until, false);
    }

    pub(super) fn stream(&self) -> &UnixStream {
        self.stream.borrow()
    }
}

impl<S: Borrow<UnixStream>> Read for Timed<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() && self.was_read {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.was_read = true;
        // A time-out of zero means no time-out.
        self.stream().set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        self.stream().read(bytes)
    }
}

/// Since when a line is unfinished.
#[derive(Debug, Default)]
pub(super) struct Unfinished(Option<Instant>);

impl Unfinished {
    /// Whether a line has been unfinished for `within`; to be asked whenever waiting for its end timed out.
    pub(super) fn is_overdue(&mut self, within: Duration) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() >= within
    }

    /// There is no unfinished line.
    pub(super) fn is_whole(&mut self) {
        self.0 = None;
    }
}

pub(super) fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;
    use std::thread;

    use super::*;

    /// A socket whose other end has sent `first`, and goes on with an `x` each millisecond, until this end is closed. After
    /// half a second it only waits for that, so that a reader that gets no processor finds no line that is too long.
    pub(in super::super) fn dripping(first: &[u8]) -> UnixStream {
        let (here, mut there) = UnixStream::pair().expect("a pair of sockets");
        there.write_all(first).expect("there is room");
        thread::spawn(move || {
            for _ in 0..500 {
                if there.write_all(b"x").is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(1));
            }
            let _ = there.read(&mut [0]);
        });
        here
    }

    #[test]
    fn what_is_there_is_read_however_late_it_is_and_then_no_more() {
        let (here, mut there) = UnixStream::pair().expect("a pair of sockets");
        there.write_all(b"abc").expect("there is room");
        let mut timed = Timed::new(here);
        let mut byte = [0];
        timed.wait_until(Instant::now());
        assert_eq!(timed.read(&mut byte).expect("it is there"), 1);
        let error = timed.read(&mut byte).expect_err("the time is over");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        timed.wait_until(Instant::now());
        assert_eq!(timed.read(&mut byte).expect("it is there"), 1);
        assert_eq!(byte, *b"b");
    }
}
