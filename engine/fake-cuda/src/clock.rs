//! A clock that only calls move, so that every run has the same times.

/// The host time that a call takes, in nanoseconds.
const CALL_NS: u64 = 1_000;

/// Host and device read the same clock. Waiting advances it to the time that is waited for.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    now: u64,
}

impl VirtualClock {
    pub(crate) fn new() -> Self {
        Self { now: CALL_NS }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// A call was made.
    pub(crate) fn call(&mut self) {
        self.now += CALL_NS;
    }

    pub(crate) fn wait_until(&mut self, at: u64) {
        self.now = self.now.max(at);
    }
}
