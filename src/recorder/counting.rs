//! Hardware counters, read at the begin and the end of each brick. The careful ways call this.

use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::CounterReading;

use super::log::{Open, ThreadLog};
use super::{Recorder, thread};
use crate::machine::ReadCounters;
use crate::row::{Counted, Event};
use crate::sync::lock;

impl Recorder {
    /// Has `counters` read at the begin and the end of each brick; `None` ends that.
    pub(crate) fn count(&self, counters: Option<Box<dyn ReadCounters>>) {
        let _held = lock(&self.switch);
        self.is_counting.store(u32::from(counters.is_some()), Relaxed);
        self.set_state(self.is_active());
        *lock(&self.counters) = counters;
    }

    pub(super) fn is_counting(&self) -> bool {
        self.is_counting.load(Relaxed) != 0
    }

    /// What the counters say; nothing where they can't be read.
    fn read_counters(&self) -> CounterReading {
        let mut counters = lock(&self.counters);
        counters.as_mut().and_then(|counters| counters.read().ok()).unwrap_or_default()
    }

    #[cold]
    pub(super) fn begin_counting(&self, log: &ThreadLog, open: Open) {
        /// Bricks that never end leave their readings behind.
        const MOST: usize = 1024;
        thread::not_within_itself(|| {
            let mut counting = lock(&log.counting);
            if counting.len() >= MOST {
                counting.drain(..MOST / 2);
            }
            counting.reserve(1);
            // Last, so that little of the book-keeping is counted.
            counting.push((open.order(), self.read_counters()));
        });
    }

    #[cold]
    pub(super) fn end_counting(&self, log: &ThreadLog, open: Open) {
        let is_home = log.oddity(open) == 0;
        let readings = thread::not_within_itself(|| {
            let now = self.read_counters();
            let mut counting = lock(&log.counting);
            let at = counting.iter().rposition(|&(order, _)| order == open.order())?;
            Some((now, counting.remove(at).1))
        });
        let reading = match readings.flatten() {
            Some((now, before)) if is_home => now.since(&before),
            // Begun on another thread or before counting: what lies between can't be told.
            _ => CounterReading::default(),
        };
        let pass = if is_home { open.pass() } else { 0 };
        log.push_event(pass, Event::Counters(Counted::new(open.name(), &reading)));
    }
}
