//! A clock that only calls move, so that every run has the same times.

use std::time::{Duration, Instant};

/// The host time that a call takes, in nanoseconds.
const CALL_NS: u64 = 1_000;

/// Host and device read the same clock. Waiting advances it to the time that is waited for.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    now: u64,
    /// Whether the calling thread waits for as long as the clock advances.
    takes_time: bool,
}

impl VirtualClock {
    pub(crate) fn new(takes_time: bool) -> Self {
        Self { now: CALL_NS, takes_time }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// A call was made.
    pub(crate) fn call(&mut self) {
        self.wait_until(self.now + CALL_NS);
    }

    pub(crate) fn wait_until(&mut self, at: u64) {
        let ns = at.saturating_sub(self.now);
        self.now += ns;
        if self.takes_time {
            let (began, least) = (Instant::now(), Duration::from_nanos(ns));
            while began.elapsed() < least {
                std::hint::spin_loop();
            }
        }
    }
}
