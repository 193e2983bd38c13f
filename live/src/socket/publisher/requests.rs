//! What a watcher asks for.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::socket::lines::read_line;
use crate::socket::timed::{Timed, Unfinished, is_time_out};
use crate::socket::{DEFAULT_RATE, LEAST_RATE, MOST_RATE, MOST_REQUEST, Request};

/// What a watcher asks for.
pub(super) struct Requests<'s> {
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
    pub(super) fn new(stream: &'s UnixStream, within: Duration) -> Self {
        let reader = BufReader::with_capacity(MOST_REQUEST, Timed::new(stream));
        let unfinished = Unfinished::default();
        let (line, rate, is_silent) = (Vec::new(), DEFAULT_RATE, false);
        Self { reader, line, unfinished, within, rate, is_silent }
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.rate
    }

    /// Reads requests until `then`. An error is a message for the watcher about a bad request.
    pub(super) fn until(&mut self, then: Instant, ends: impl Fn() -> bool) -> Result<(), String> {
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
                    if request.so_far {
                        return Err("only a recording keeps a run of what came so far".to_owned());
                    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::timed::tests::dripping;

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
