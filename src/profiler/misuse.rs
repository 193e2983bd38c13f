//! Whether the profiler was called as it is meant to be.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::BrickProfiler;
use crate::misuse::{self, Misuse, MisusePlace};
use crate::recorder::{Spot, Spots};
use crate::sync::lock_unmodelled as lock;

/// When somebody wants to know of misuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// A caller asks.
    Asked,
    /// Nobody asks, and what is open may end yet.
    GoesOn,
    /// Nobody asks, and nothing more is recorded.
    Over,
}

/// # Whether it is used well
impl BrickProfiler {
    /// Mistakes in the calls up to now that no sum shows, each with the call that mends it; none of a program that calls
    /// the profiler as it is meant to be. [`Profile::check`](crate::Profile::check) finds none of them: all that was timed
    /// adds up, but is not where it was meant to be.
    ///
    /// Ask when no pass runs, after the last one for example. Spans that run outside of passes at this moment look like
    /// those whose timers were dropped. While another thread is in a pass, spans without an end are not counted.
    ///
    /// In a debug build, what this finds goes to the standard error stream too, each kind once: see
    /// [`warn_of_misuse`](Self::warn_of_misuse).
    ///
    /// What it can't find: times of another clock that lie between the making of this profiler and now, and keys of another
    /// profiler once a process has made 65 535 of them.
    ///
    /// ```
    /// use brickscope::misuse::Misuse;
    /// use brickscope::{BrickId, BrickProfiler, Phase};
    ///
    /// let profiler = BrickProfiler::enabled();
    /// # profiler.warn_of_misuse(false);
    /// let pass = profiler.begin_pass(Phase::Decode);
    /// let _ = profiler.start_brick(BrickId::LmHead); // was to be stopped
    /// profiler.end_pass(pass, 1, 0);
    ///
    /// assert_eq!(profiler.profile().check(), Ok(()));
    /// assert_eq!(profiler.misuse(), [Misuse::UnendedSpans(1)]);
    /// for misuse in profiler.misuse() {
    ///     println!("{misuse}"); // 1 span begun and never ended: give each timer to stop_brick …
    /// }
    /// ```
    #[must_use]
    pub fn misuse(&self) -> Vec<Misuse> {
        self.found(When::Asked)
    }

    /// Sets whether a debug build warns of [`misuse`](Self::misuse) on the standard error stream. On by default.
    ///
    /// A profiler warns of each kind once: when a [`profile`](Self::profile) or a report is made of it, or when it is dropped;
    /// one in a `static` is never dropped, nor is any by `std::process::exit`. Of what may still end it warns only when it is
    /// dropped. Builds without debug assertions never warn, nor do profilers whose clock is a
    /// [`MockClock`](crate::MockClock).
    pub fn warn_of_misuse(&self, warn: bool) {
        self.warns.store(warn, Relaxed);
    }

    /// [`misuse`](Self::misuse), each with where it was made first, as far as that is known: the brick, layer, pass and
    /// thread, or the request. Of what had no room in the [log](Self::with_log_capacity) it isn't. Looks at all spans that
    /// were kept.
    ///
    /// ```
    /// use brickscope::{BrickId, BrickProfiler, Phase};
    ///
    /// let profiler = BrickProfiler::enabled();
    /// # profiler.warn_of_misuse(false);
    /// let pass = profiler.begin_pass(Phase::Decode);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| profiler.stop_brick(profiler.start_brick(BrickId::UpProjection), 1));
    /// });
    /// profiler.end_pass(pass, 1, 0);
    /// let places = profiler.misuse_places();
    /// let [(misuse, Some(place))] = &places[..] else { panic!("one") };
    /// assert_eq!((misuse.count(), place.brick.as_deref()), (1, Some("UpProjection")));
    /// ```
    #[must_use]
    pub fn misuse_places(&self) -> Vec<(Misuse, Option<MisusePlace>)> {
        self.placed(self.found(When::Asked))
    }

    fn placed(&self, found: Vec<Misuse>) -> Vec<(Misuse, Option<MisusePlace>)> {
        if found.is_empty() {
            return Vec::new();
        }
        let spots = self.recorder.spots();
        let place = |misuse| self.place(&misuse, &spots).and_then(MisusePlace::known);
        found.into_iter().map(|misuse| (misuse, place(misuse))).collect()
    }

    fn place(&self, misuse: &Misuse, spots: &Spots) -> Option<MisusePlace> {
        let spot = match misuse {
            Misuse::UnendedPasses(_) => &spots.abandoned_pass,
            Misuse::NestedPasses(_) => &spots.nested_pass,
            Misuse::UnendedSpans(_) => &spots.unended_span,
            Misuse::SpansWithoutPass(_) => &spots.span_without_pass,
            Misuse::CrossingBricks(_) => &spots.crossing_brick,
            Misuse::MovedTimers(_) => &spots.moved_timer,
            Misuse::StraddlingBricks(_) => &spots.straddling_brick,
            Misuse::UnknownRequests(_) => {
                let request = lock(&self.requests).first_unknown();
                return Some(MisusePlace { request, ..MisusePlace::default() });
            }
            _ => return None,
        };
        spot.as_ref().map(|spot| self.named(spot))
    }

    fn named(&self, spot: &Spot) -> MisusePlace {
        let name = spot.name.and_then(|name| {
            self.read_names().list.get(usize::from(name)).map(|name| name.name.clone())
        });
        let tid = || spot.thread.tid.map(|tid| tid.to_string());
        MisusePlace {
            brick: name,
            is_by_other_passes: spot.is_by_other_passes,
            layer: spot.layer,
            pass: spot.pass,
            thread: spot.thread.name.clone().or_else(tid),
            request: None,
        }
    }

    fn found(&self, when: When) -> Vec<Misuse> {
        let has_idle_workers = lock(&self.shares).has_idle_workers();
        let seen = self.recorder.misused(when == When::Over, has_idle_workers);
        let unended_spans = match when {
            When::GoesOn => seen.left_open,
            When::Asked | When::Over => seen.unended_spans,
        };
        let open = |count| if when == When::GoesOn { 0 } else { count };
        let mut found = vec![
            Misuse::UnendedPasses(seen.abandoned_passes + open(seen.open_passes)),
            Misuse::NestedPasses(seen.nested_passes),
            Misuse::UnendedSpans(unended_spans),
            Misuse::SpansWithoutPass(seen.spans_without_pass),
            Misuse::CrossingBricks(seen.crossing_bricks),
            Misuse::CrossingLayers(seen.crossing_layers),
            Misuse::StraddlingLayers(seen.straddling_layers),
            Misuse::ForeignPasses(seen.foreign_passes),
            Misuse::ForeignTimers(seen.foreign_timers),
            Misuse::ForeignKeys(seen.foreign_keys),
            Misuse::EarlyPasses(seen.early_passes),
            Misuse::MovedTimers(seen.moved_timers),
            Misuse::StraddlingBricks(seen.straddling_bricks),
            Misuse::UnsettledBricks(open(self.device().pending() as u64)),
            Misuse::SettledApart(seen.settled_apart),
            Misuse::UnknownRequests(lock(&self.requests).unknown()),
        ];
        found.retain(|misuse| misuse.count() > 0);
        found
    }

    /// Warns of what it has not warned of yet, unless that is not wanted. `is_over` says that nothing more is recorded.
    pub(super) fn warn_once(&self, is_over: bool) {
        let is_wanted = cfg!(debug_assertions) && !self.clock().is_mock();
        if !is_wanted || !self.warns.load(Relaxed) {
            return;
        }
        let mut found = self.found(if is_over { When::Over } else { When::GoesOn });
        let all = found.iter().fold(0, |all, misuse| all | misuse.bit());
        let said = self.warned.fetch_or(all, Relaxed);
        found.retain(|misuse| misuse.bit() & !said != 0);
        if !found.is_empty() {
            // Who closed the stream doesn't want to hear it.
            let _ = std::io::stderr().write_all(misuse::warning(&self.placed(found)).as_bytes());
        }
    }
}

impl Drop for BrickProfiler {
    fn drop(&mut self) {
        // A panic leaves much without an end, and says itself why.
        if !std::thread::panicking() {
            self.warn_once(true);
        }
    }
}
