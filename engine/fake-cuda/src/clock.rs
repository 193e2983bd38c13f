//! The time of the device: the host's, as far as nothing runs.

use std::time::{Duration, Instant};

/// Nanoseconds since the library was first called.
#[derive(Debug)]
pub(crate) struct DeviceClock {
    zero: Instant,
}

impl DeviceClock {
    pub(crate) fn start() -> Self {
        Self { zero: Instant::now() }
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns when the host's time is `at`.
    pub(crate) fn wait_until(&self, at: u64) {
        while let Some(left) = at.checked_sub(self.now()).filter(|&left| left > 0) {
            // A sleep takes longer than it was asked for.
            if left > 200_000 {
                std::thread::sleep(Duration::from_nanos(left - 100_000));
            } else {
                std::hint::spin_loop();
            }
        }
    }
}
