//! The metrics of an engine, pushed while it runs.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brickscope::Profile;

use super::Collector;

/// Pushes metrics at intervals, from a thread of its own, until it is dropped or finished.
///
/// Nothing queues up: a snapshot that is due while an earlier one is being sent, or tried again, is dropped and counted.
/// Since sums are cumulative, the next one has what was missed.
#[derive(Debug)]
pub struct Pusher {
    is_over: Arc<IsOver>,
    pushing: Option<JoinHandle<Tally>>,
}

/// What a [`Pusher`] has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Snapshots that the collector took.
    pub pushed: u64,
    /// Snapshots that were not sent, or not taken.
    pub dropped: u64,
    /// Data points that the collector rejected, of those that it took.
    pub rejected: u64,
    /// Why the last one that was dropped was not taken, or some points were rejected.
    pub trouble: Option<String>,
}

#[derive(Debug, Default)]
struct IsOver {
    flag: Mutex<bool>,
    changed: Condvar,
}

impl IsOver {
    fn get(&self) -> bool {
        *self.flag.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self) {
        *self.flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Whether it is over before `until`.
    fn before(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let flag = self.flag.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(flag, left, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Pusher {
    /// Pushes what `snapshot` returns every so often, first after one interval.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(
        collector: Arc<Collector>,
        every: Duration,
        snapshot: impl Fn() -> Profile + Send + 'static,
    ) -> io::Result<Self> {
        let is_over = Arc::new(IsOver::default());
        let over = Arc::clone(&is_over);
        let pushing = thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || push(&collector, every, &snapshot, &over))?;
        Ok(Self { is_over, pushing: Some(pushing) })
    }

    /// Begins no further push, without waiting.
    pub fn stop(&self) {
        self.is_over.set();
    }

    /// Stops, and says what was done. It waits for a request that has no answer yet, at most as long as a push may take.
    #[must_use]
    pub fn finish(mut self) -> Tally {
        self.join()
    }

    fn join(&mut self) -> Tally {
        self.stop();
        match self.pushing.take().map(JoinHandle::join) {
            Some(Ok(tally)) => tally,
            Some(Err(_)) => {
                let trouble =
                    "the thread that pushes panicked, so that nobody knows what was pushed";
                Tally { trouble: Some(trouble.to_owned()), ..Tally::default() }
            }
            None => Tally::default(),
        }
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.join();
    }
}

fn push(
    collector: &Collector,
    every: Duration,
    snapshot: &dyn Fn() -> Profile,
    is_over: &IsOver,
) -> Tally {
    /// With 0 it would never end.
    const LEAST: Duration = Duration::from_millis(1);
    let every = every.max(LEAST);
    let mut tally = Tally::default();
    let mut next = Instant::now() + every;
    while !is_over.before(next) {
        let profile = snapshot();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let origin = collector.origin(&profile, u64::try_from(now).ok());
        let until = Instant::now() + collector.settings.timeout;
        match collector.push_metrics(&profile, &origin, until, &|| !is_over.get()) {
            Ok(pushed) => {
                tally.pushed += 1;
                tally.rejected += pushed.rejected;
                tally.trouble = pushed.messages.into_iter().next().or(tally.trouble);
            }
            Err(error) => {
                tally.dropped += 1;
                tally.trouble = Some(error.to_string());
            }
        }
        next += every;
        while next <= Instant::now() {
            next += every;
            tally.dropped += 1;
        }
    }
    tally
}
