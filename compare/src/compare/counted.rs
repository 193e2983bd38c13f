//! Which passes of a process count where two sides run in turns.

use std::ops::Range;

use serde::Serialize;

use super::Process;

/// Which passes of a process count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// Those in the middle half by their time.
    MiddleHalf,
    /// The fastest quarter, where most are disturbed.
    FastestQuarter,
}

impl Counted {
    pub(super) const ALL: [Self; 2] = [Self::MiddleHalf, Self::FastestQuarter];

    /// Of some processes, which are to be compared with each other.
    #[must_use]
    pub fn of<'p>(processes: impl IntoIterator<Item = &'p Process>) -> Self {
        let passes = |process: &Process| {
            process.tests.iter().map(|test| test.wall_ns.len() as u64).sum::<u64>()
        };
        let (disturbed, all) = processes.into_iter().fold((0, 0), |(disturbed, all), process| {
            (disturbed + process.disturbed, all + passes(process))
        });
        if 2 * disturbed > all { Self::FastestQuarter } else { Self::MiddleHalf }
    }

    /// Of so many passes, the shortest first, those that count.
    pub(super) fn range(self, n: usize) -> Range<usize> {
        match self {
            Self::MiddleHalf => n / 4..n - n / 4,
            Self::FastestQuarter => 0..n.div_ceil(4),
        }
    }

    /// Its place in [`Self::ALL`].
    pub(super) const fn place(self) -> usize {
        match self {
            Self::MiddleHalf => 0,
            Self::FastestQuarter => 1,
        }
    }
}
