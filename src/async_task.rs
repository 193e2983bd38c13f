//! How often an asynchronous task was polled, and for how long.

use brickscope_profile::ExecutionNode;
use brickscope_profile::stats::ratio;

use crate::clock::Clock;

/// Counts and times the polls of a future.
///
/// ```
/// use brickscope::{AsyncTaskProfiler, ExecutionGraph};
///
/// let mut task = AsyncTaskProfiler::new("inference_request");
/// task.on_poll_start();
/// // … poll the future: it is pending …
/// task.on_poll_end(false);
/// task.on_poll_start();
/// // … poll it again …
/// task.on_poll_end(true);
/// assert_eq!((task.efficiency(), task.yield_ratio()), (0.5, 0.5));
///
/// let mut graph = ExecutionGraph::new();
/// graph.add_node(task.to_execution_node());
/// ```
#[derive(Debug, Clone)]
pub struct AsyncTaskProfiler {
    /// The name of the task.
    pub name: String,
    /// How often it was polled.
    pub poll_count: u64,
    /// How often it was then pending.
    pub yield_count: u64,
    /// Nanoseconds in polls.
    pub total_poll_ns: u64,
    /// When the poll began that runs now: a reading of the clock.
    began: Option<u64>,
    clock: Clock,
}

impl AsyncTaskProfiler {
    /// A task that was not polled yet.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_clock(name, Clock::default())
    }

    /// The same, timed by the given clock.
    #[must_use]
    pub fn with_clock(name: impl Into<String>, clock: Clock) -> Self {
        let name = name.into();
        Self { name, poll_count: 0, yield_count: 0, total_poll_ns: 0, began: None, clock }
    }

    /// A poll begins.
    pub fn on_poll_start(&mut self) {
        self.poll_count += 1;
        self.began = Some(self.clock.now());
    }

    /// The poll ends; `is_ready` unless it returned `Pending`. Without a begin, no time is added.
    pub fn on_poll_end(&mut self, is_ready: bool) {
        if let Some(began) = self.began.take() {
            let took = self.clock.now().saturating_sub(began);
            self.total_poll_ns = self.total_poll_ns.saturating_add(took);
        }
        self.yield_count += u64::from(!is_ready);
    }

    /// One over the number of polls: 1.0 if the first one was enough, 0.0 without any.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        ratio(1.0, self.poll_count as f64)
    }

    /// Microseconds of a poll on average; 0.0 without any.
    #[must_use]
    pub fn avg_poll_us(&self) -> f64 {
        ratio(self.total_poll_ns as f64 / 1e3, self.poll_count as f64)
    }

    /// The share of polls that returned `Pending`; 0.0 without any.
    #[must_use]
    pub fn yield_ratio(&self) -> f64 {
        ratio(self.yield_count as f64, self.poll_count as f64)
    }

    /// The task as a node of a graph.
    #[must_use]
    pub fn to_execution_node(&self) -> ExecutionNode {
        let Self { name, poll_count, yield_count, total_poll_ns, .. } = self.clone();
        ExecutionNode::AsyncTask { name, poll_count, yield_count, total_poll_ns }
    }
}

impl Default for AsyncTaskProfiler {
    fn default() -> Self {
        Self::new("unnamed")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::MockClock;

    #[test]
    fn the_time_in_polls_is_measured_and_the_time_between_them_is_not() {
        let hand = MockClock::default();
        let mut task = AsyncTaskProfiler::with_clock("request", hand.clock());
        assert_eq!((task.efficiency(), task.avg_poll_us(), task.yield_ratio()), (0.0, 0.0, 0.0));
        for (nanos, is_ready) in [(1_000, false), (2_000, false), (3_000, true)] {
            task.on_poll_start();
            hand.advance(nanos);
            task.on_poll_end(is_ready);
            hand.advance(50_000);
        }
        // Nothing was polled.
        task.on_poll_end(true);
        assert_eq!((task.poll_count, task.yield_count, task.total_poll_ns), (3, 2, 6_000));
        assert_eq!(task.avg_poll_us(), 2.0);
        let node = task.to_execution_node();
        assert_eq!(node.poll_efficiency(), Some(1.0 / 3.0));
        assert_eq!(node.timing_ns(), Some(6_000));
    }
}
