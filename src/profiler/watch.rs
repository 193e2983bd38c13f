//! What else goes on during a run: other load on the machine, hardware counters, and what the caller observed.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::{Absent, OtherLoad};

use super::BrickProfiler;
use crate::machine::{Counters, LoadMeter, LoadReading, LoadWatch};
use crate::recorder::Looked;
use crate::sync::lock_unmodelled as lock;

/// # The machine and the model
impl BrickProfiler {
    /// Sets whether passes record what other processes did to them ([`Pass::disturbance`]). On by default.
    ///
    /// A look takes 20 to 30 µs with two threads, since it finds cold caches. At least 4000 times as long lies
    /// between two looks: passes of 3 ms share one, passes of 100 ms have one each.
    ///
    /// [`Pass::disturbance`]: crate::Pass::disturbance
    pub fn watch_load(&self, watch: bool) {
        self.watch.is_off.store(!watch, Relaxed);
        if watch && self.is_enabled() && !self.recorder.clock().is_mock() {
            self.watch.start();
        }
    }

    /// Reads hardware counters at the begin and the end of each brick: cycles, instructions, last-level cache
    /// misses and branch misses in user space, of all threads that the process has now.
    ///
    /// Each reading takes a microsecond or more, so the times of short bricks suffer.
    ///
    /// # Errors
    ///
    /// If there are no counters: the reason is the machine, its settings, or a build without the feature
    /// `counters`.
    pub fn enable_counters(&self) -> Result<(), Absent> {
        let counters = Counters::open();
        let absent = match &counters {
            Ok(counters) => {
                let missing: Vec<String> =
                    counters.absent().into_iter().map(|absent| absent.reason).collect();
                (!missing.is_empty()).then(|| Absent { reason: missing.join("; ") })
            }
            Err(absent) => Some(absent.clone()),
        };
        *lock(&self.counters) = CountersAsked::Yes { opened: counters.is_ok(), absent };
        self.recorder.count(Some(Box::new(counters?)));
        Ok(())
    }

    /// Stops reading hardware counters. What was counted stays.
    pub fn disable_counters(&self) {
        self.recorder.count(None);
    }

    /// Sets how many tokens there is room for in the KV cache, for views that show how full it is.
    pub fn set_kv_cache_tokens(&self, tokens: u64) {
        lock(&self.observed).kv_cache_tokens = Some(tokens);
    }
}

/// What other processes do to this one.
#[derive(Debug, Default)]
pub(super) struct Watch {
    meter: Mutex<Option<LoadMeter>>,
    /// Since profiling was first turned on.
    others: Mutex<Option<Result<LoadWatch, Absent>>>,
    is_off: AtomicBool,
}

impl Watch {
    pub(super) fn start(&self) {
        if !self.is_off.load(Relaxed) {
            lock(&self.meter).get_or_insert_with(LoadMeter::open);
        }
        lock(&self.others).get_or_insert_with(LoadWatch::start);
    }

    /// Before a pass, when a look is due. What lies between passes belongs to none, so after a pause the watch
    /// begins anew.
    pub(super) fn look_before(&self, since: &mut Option<LoadReading>) -> Looked {
        self.look(since, |meter, since| {
            *since = Some(meter.read());
            Looked::Anew
        })
    }

    /// After a pass, when a look is due.
    pub(super) fn look_after(&self, since: &mut Option<LoadReading>) -> Looked {
        self.look(since, |meter, since| match *since {
            Some(before) => {
                let now = since.insert(meter.read());
                Looked::Since(now.since(&before))
            }
            None => Looked::No,
        })
    }

    /// After the last pass, whether or not a look is due.
    pub(super) fn look_last(&self, since: &mut Option<LoadReading>) -> Looked {
        self.look(since, |meter, since| match since.take() {
            Some(before) => Looked::Since(meter.read().since(&before)),
            None => Looked::No,
        })
    }

    fn look(
        &self,
        since: &mut Option<LoadReading>,
        look: impl FnOnce(&mut LoadMeter, &mut Option<LoadReading>) -> Looked,
    ) -> Looked {
        if self.is_off.load(Relaxed) {
            *since = None;
            return Looked::No;
        }
        lock(&self.meter).as_mut().map_or(Looked::No, |meter| look(meter, since))
    }

    pub(super) fn other_load(&self) -> Result<OtherLoad, Absent> {
        match &*lock(&self.others) {
            Some(Ok(watch)) => watch.so_far(),
            Some(Err(absent)) => Err(absent.clone()),
            None => {
                Err(Absent { reason: "profiling was not on, or its clock is a mock".to_owned() })
            }
        }
    }
}

/// Whether the caller asked for counters.
#[derive(Debug, Default)]
pub(super) enum CountersAsked {
    #[default]
    No,
    Yes {
        opened: bool,
        /// Why they are missing, or some of them.
        absent: Option<Absent>,
    },
}

impl CountersAsked {
    pub(super) fn were_read(&self) -> bool {
        matches!(self, Self::Yes { opened: true, .. })
    }

    pub(super) fn absent(&self) -> Option<Absent> {
        match self {
            Self::No => Some(Absent {
                reason: "not asked for: `--counters`, or `BrickProfiler::enable_counters`"
                    .to_owned(),
            }),
            Self::Yes { absent, .. } => absent.clone(),
        }
    }
}
