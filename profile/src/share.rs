//! What each thread did of bricks that several threads share.

use serde::{Deserialize, Serialize};

use crate::brick::Phase;

/// How long a thread worked at its shares of bricks, and how long it waited for other threads before it could go on. Both
/// are measured, each by two readings of the clock on that thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Share {
    /// How many shares.
    pub count: u64,
    /// In nanoseconds.
    pub worked_ns: u64,
    /// In nanoseconds: at barriers in the brick, and at the one that ends it.
    pub waited_ns: u64,
}

impl Share {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.worked_ns = self.worked_ns.saturating_add(other.worked_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
    }

    /// The part of the time that was waited, 0 to 1; `None` if no time was measured.
    #[must_use]
    pub fn waited(&self) -> Option<f64> {
        let all = self.worked_ns as f64 + self.waited_ns as f64;
        (all > 0.0).then(|| self.waited_ns as f64 / all)
    }
}

/// The [`Share`] of one thread in the bricks of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadShare {
    /// The number of the thread, as the engine counts; 0 is mostly the one that runs the pass.
    pub thread: u32,
    /// The phase of the passes.
    pub phase: Phase,
    /// The brick's name.
    pub brick: String,
    /// What it did.
    #[serde(flatten)]
    pub share: Share,
}
