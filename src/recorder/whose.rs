//! Whose a span or a pass is: this recorder's, or by mistake another one's. Numbers of names mean nothing in another recorder,
//! and its clock may have another zero: so what is another's is counted, and not recorded.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::log::{Open, ThreadLog};
use super::{NEAR, NO_LOG, OpenPass, Recorder, thread};
use crate::sync::lock;

/// Serials of logs that are remembered after their threads. With more, it can't be told any longer whose a span is, and it
/// is taken for one of this recorder.
const MOST_RETIRED: usize = 4096;

impl Recorder {
    /// Whether a span is none to be recorded: it was begun before a reset, or by another recorder, which is counted.
    pub(super) fn refuses(&self, open: &Open, log: &ThreadLog) -> bool {
        if open.log() == log.serial() {
            return false;
        }
        let is_foreign = open.log() >= self.first_log.load(Relaxed) && self.is_foreign(open, log);
        if is_foreign {
            self.written.foreign_timers.fetch_add(1, Relaxed);
        }
        is_foreign || open.log() < self.first_log.load(Relaxed)
    }

    /// Whether a span was begun by another recorder.
    pub(super) fn is_foreign(&self, open: &Open, log: &ThreadLog) -> bool {
        let serial = open.log();
        if serial == NO_LOG
            || serial == log.serial()
            || self.all_logs().any(|own| own.serial() == serial)
        {
            return false;
        }
        let retired = lock(&self.written.retired);
        retired.len() < MOST_RETIRED && !retired.contains(&serial)
    }

    /// Remembers whose a log was that is about to be adopted, since spans that this thread began may end on others.
    pub(super) fn retire(&self, log: &ThreadLog, generation: u32) {
        if log.generation.load(Relaxed) == generation {
            let mut retired = lock(&self.written.retired);
            if retired.len() < MOST_RETIRED {
                retired.push(log.serial());
            }
        }
    }

    /// Whether it is a pass of this recorder. Another one's is counted.
    pub(super) fn owns_pass(&self, pass: &OpenPass) -> bool {
        let Some(log) = &pass.log else { return true };
        // A pass stays on its thread, so mostly it is in this place.
        let here = self.near[thread::here().index() % NEAR].get();
        let is_own = here.is_some_and(|own| Arc::ptr_eq(own, log))
            || self.all_logs().any(|own| Arc::ptr_eq(own, log));
        if !is_own {
            self.written.foreign_passes.fetch_add(1, Relaxed);
        }
        is_own
    }

    /// Counts the use of another profiler's key.
    pub(crate) fn note_foreign_key(&self) {
        self.written.foreign_keys.fetch_add(1, Relaxed);
    }

    pub(super) fn forget_foreign(&self) {
        self.written.foreign_keys.store(0, Relaxed);
        self.written.foreign_timers.store(0, Relaxed);
        self.written.foreign_passes.store(0, Relaxed);
        lock(&self.written.retired).clear();
    }
}
