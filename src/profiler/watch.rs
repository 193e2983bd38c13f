//! What else goes on during a run: other load on the machine, hardware counters, and what the caller observed.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use brickscope_profile::{Absent, Disturbance, OtherLoad};

use super::BrickProfiler;
use crate::machine::{Counters, LoadMeter, LoadReading, LoadWatch};
use crate::recorder::Looked;
use crate::sync::lock_unmodelled as lock;

/// # The machine and the model
impl BrickProfiler {
    /// Sets whether passes record what other processes did to them ([`Pass::disturbance`]). On by default.
    ///
    /// A look takes some 25 µs with two threads, since it finds cold caches (5 of them for page faults), and 2.5 µs more for
    /// each further thread. It
    /// lies between passes, outside of their wall times. Looks take at most a hundredth of the time, and what they
    /// don't use is saved up, to 5 ms: passes of 2 ms have a look each, and so have the passes of a burst. If passes
    /// are shorter, some share a look.
    ///
    /// [`Pass::disturbance`]: crate::Pass::disturbance
    pub fn watch_load(&self, watch: bool) {
        self.watch.is_off.store(!watch, Relaxed);
        if watch && self.is_enabled() && !self.recorder.clock().is_mock() {
            self.watch.start();
        }
    }

    /// Reads what others have done to this process, at the begin of a pass that is [recorded](Self::record_pass) once it is
    /// over: see [`disturbance_since`](Self::disturbance_since).
    pub fn mark_load(&self) -> LoadMark {
        LoadMark(self.is_enabled().then(|| self.watch.mark()).flatten())
    }

    /// What others did to this process since a mark, for [`TimedPass::disturbance`](crate::TimedPass::disturbance): without it
    /// nobody knows whether a pass or a token waited for a CPU. `None` if that isn't [watched](Self::watch_load).
    ///
    /// Both look at all threads of the process, some 25 µs each: before the pass's first reading of the clock, and after its
    /// last. Of passes of microseconds, take a mark for several. A thread whose passes have a disturbance is to state it of
    /// each of them: one that has none counts to the next that has.
    ///
    /// ```
    /// use brickscope::{BrickProfiler, Phase, TimedPass};
    ///
    /// let profiler = BrickProfiler::enabled();
    /// let load = profiler.mark_load();
    /// let start_ns = profiler.clock().now();
    /// // … the pass …
    /// let end_ns = profiler.clock().now();
    /// let disturbance = profiler.disturbance_since(load);
    /// let (phase, tokens, position) = (Phase::Decode, 1, 0);
    /// let pass = TimedPass { phase, start_ns, end_ns, tokens, position, disturbance };
    /// profiler.record_pass(&pass, &[]).expect("it fits");
    /// ```
    #[must_use]
    pub fn disturbance_since(&self, mark: LoadMark) -> Option<Disturbance> {
        self.watch.since(mark.0?)
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

    /// States what executes the kernels, such as `detect_backend()`, for reports and files. Only the caller knows which
    /// of an engine's functions it calls.
    pub fn set_backend(&self, backend: impl fmt::Display) {
        *lock(&self.backend) = Some(backend.to_string());
    }
}

/// What others had done to this process: for [`BrickProfiler::disturbance_since`].
#[derive(Debug, Clone, Copy)]
#[must_use = "it says nothing without `disturbance_since`"]
pub struct LoadMark(Option<LoadReading>);

/// What other processes do to this one.
#[derive(Debug, Default)]
pub(super) struct Watch {
    meter: Mutex<Option<LoadMeter>>,
    /// While profiling was on.
    others: Mutex<Option<Result<LoadWatch, Absent>>>,
    is_off: AtomicBool,
}

impl Watch {
    pub(super) fn start(&self) {
        if !self.is_off.load(Relaxed) {
            lock(&self.meter).get_or_insert_with(LoadMeter::open);
        }
        match &mut *lock(&self.others) {
            Some(Ok(watch)) => watch.go_on(),
            Some(Err(_)) => {}
            others => *others = Some(LoadWatch::start()),
        }
    }

    /// What others do from here on doesn't count.
    pub(super) fn pause(&self) {
        if let Some(Ok(watch)) = &mut *lock(&self.others) {
            watch.pause();
        }
    }

    /// Before a pass, when a look is due. What lies between passes belongs to none, so after a pause the watch
    /// begins anew.
    pub(super) fn look_before(&self, since: &mut Option<LoadReading>) -> Looked {
        self.look(since, |meter, since| match since {
            // Passes that ended since then may not have been looked at.
            Some(before) => {
                let disturbance = meter.read_since(before);
                *since = Some(meter.begin_anew(*before));
                Looked::AtMost(disturbance)
            }
            None => {
                *since = Some(meter.read_anew());
                Looked::Anew
            }
        })
    }

    /// Before a pass that is recorded once it is over.
    fn mark(&self) -> Option<LoadReading> {
        if self.is_off.load(Relaxed) {
            return None;
        }
        lock(&self.meter).as_mut().map(LoadMeter::read_anew)
    }

    /// After it.
    fn since(&self, mut before: LoadReading) -> Option<Disturbance> {
        lock(&self.meter).as_mut().map(|meter| meter.read_since(&mut before))
    }

    /// After a pass, when a look is due.
    pub(super) fn look_after(&self, since: &mut Option<LoadReading>) -> Looked {
        self.look(since, |meter, since| match since {
            Some(before) => Looked::Since(meter.read_since(before)),
            None => Looked::No,
        })
    }

    /// After the last pass, whether or not a look is due.
    pub(super) fn look_last(&self, since: &mut Option<LoadReading>) -> Looked {
        self.look(since, |meter, since| match since.take() {
            Some(mut before) => Looked::Since(meter.read_since(&mut before)),
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

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::fs;
    use std::path::Path;

    use brickscope_profile::{Disturber, Pass, Phase};

    use super::*;
    use crate::TimedPass;
    use crate::clock::MockClock;

    /// The folder `/proc` of a process with two threads, as the scheduler would fill it.
    struct Scheduler {
        proc: tempfile::TempDir,
        run_ns: [u64; 2],
        wait_ns: [u64; 2],
        cpus: [u32; 2],
    }

    impl Scheduler {
        fn new() -> Self {
            let proc = tempfile::tempdir().expect("a folder");
            let scheduler = Self { proc, run_ns: [1; 2], wait_ns: [0; 2], cpus: [0, 1] };
            for thread in ["thread-self", "self/task/11", "self/task/12"] {
                fs::create_dir_all(scheduler.proc.path().join(thread)).expect("made");
            }
            fs::write(scheduler.proc.path().join("thread-self/schedstat"), "1 0 1\n")
                .expect("written");
            scheduler.write();
            scheduler
        }

        fn write(&self) {
            for (i, thread) in ["self/task/11", "self/task/12"].iter().enumerate() {
                let file = |name: &str| self.proc.path().join(thread).join(name);
                let text = format!("{} {} 1\n", self.run_ns[i], self.wait_ns[i]);
                fs::write(file("schedstat"), text).expect("written");
                let stat = format!("11 (x) R{} {}\n", " 0".repeat(35), self.cpus[i]);
                fs::write(file("stat"), stat).expect("written");
            }
        }
    }

    /// What happens in a pass: how long its second thread waits, how long the pause before it is, and whether the
    /// threads share a CPU.
    #[derive(Debug, Clone, Copy)]
    struct Planted {
        wait_ns: u64,
        pause_ns: u64,
        shares: bool,
    }

    const WALL_NS: u64 = 3_000_000;

    /// Passes of 3 ms (and what their threads wait), each look of which takes 20 µs. What the profiler says of them.
    fn play(planted: &[Planted]) -> Vec<Pass> {
        let mut scheduler = Scheduler::new();
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        let (at, clock) = (hand.clone(), hand.clock());
        // Asked twice in a look, so each time it takes the half of it.
        let now_ns = move || {
            at.advance(10_000);
            clock.now()
        };
        let meter = LoadMeter::open_below(Path::new(scheduler.proc.path()), now_ns);
        *lock(&profiler.watch.meter) = Some(meter);
        profiler.enable();
        for plan in planted {
            // In a pause threads may wait as they like.
            hand.advance(plan.pause_ns);
            scheduler.wait_ns[0] += plan.pause_ns / 2;
            scheduler.write();
            let pass = profiler.begin_pass(Phase::Decode);
            hand.advance(WALL_NS + plan.wait_ns);
            scheduler.cpus = if plan.shares { [1, 1] } else { [0, 1] };
            // Threads of a pool wait some microseconds whenever they wake.
            scheduler.wait_ns[0] += 9_000;
            scheduler.wait_ns[1] += 9_000 + plan.wait_ns;
            scheduler.run_ns[0] += WALL_NS;
            scheduler.run_ns[1] += WALL_NS;
            scheduler.write();
            profiler.end_pass(pass, 1, 0);
            hand.advance(30_000);
        }
        profiler.disable();
        profiler.profile().passes
    }

    /// Of the passes that the profiler calls disturbed, the part that waited; of those that waited, the part that it
    /// calls disturbed; and of how many passes it says nothing.
    fn precision_and_recall(planted: &[Planted]) -> [f64; 3] {
        let passes = play(planted);
        assert_eq!(passes.len(), planted.len());
        let (mut both, mut called, mut waited, mut unknown) = (0, 0, 0, 0);
        for (plan, pass) in planted.iter().zip(&passes) {
            let truth = plan.wait_ns > pass.wall_ns / 100;
            both += u32::from(truth && pass.is_disturbed());
            called += u32::from(pass.is_disturbed());
            waited += u32::from(truth);
            unknown += u32::from(pass.disturbance.is_none());
        }
        let part = |part: u32, of: u32| if of == 0 { 1.0 } else { f64::from(part) / f64::from(of) };
        [part(both, called), part(both, waited), f64::from(unknown)]
    }

    #[test]
    fn bursts_steady_load_and_a_quiet_machine_are_told_pass_by_pass() {
        let quiet = Planted { wait_ns: 0, pause_ns: 0, shares: false };
        let waits = |wait_ns| Planted { wait_ns, ..quiet };
        // A server: five passes, and a pause. In nearly all passes a thread waits.
        let server: Vec<Planted> = (0..200)
            .map(|i| Planted {
                pause_ns: if i % 5 == 0 { 40_000_000 } else { 0 },
                ..waits(if i % 25 == 24 { 0 } else { 4_000_000 })
            })
            .collect();
        // Others run for five passes of forty.
        let bursts: Vec<Planted> =
            (0..800).map(|i| waits(if i % 40 < 5 { 1_500_000 } else { 0 })).collect();
        let steady: Vec<Planted> =
            (0..800).map(|i| waits([4_000_000, 2_000_000, 0, 800_000][i % 4])).collect();
        let cases = [
            ("server", &server),
            ("bursts", &bursts),
            ("steady", &steady),
            ("quiet", &vec![quiet; 800]),
        ];
        for (name, planted) in cases {
            let [precision, recall, unknown] = precision_and_recall(planted);
            assert!(precision >= 0.95 && recall >= 0.95, "{name}: {precision} {recall}");
            assert!(unknown <= 0.01 * planted.len() as f64, "{name}: {unknown} unknown");
        }
    }

    #[test]
    fn a_pass_that_is_recorded_once_it_is_over_says_who_took_the_cpu() {
        let mut scheduler = Scheduler::new();
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        let (at, clock) = (hand.clone(), hand.clock());
        let now_ns = move || {
            at.advance(10_000);
            clock.now()
        };
        let meter = LoadMeter::open_below(Path::new(scheduler.proc.path()), now_ns);
        *lock(&profiler.watch.meter) = Some(meter);
        profiler.enable();
        let load = profiler.mark_load();
        let start_ns = profiler.clock().now();
        hand.advance(2 * WALL_NS);
        scheduler.wait_ns[1] += WALL_NS;
        scheduler.run_ns[0] += 2 * WALL_NS;
        scheduler.write();
        let end_ns = profiler.clock().now();
        let disturbance = profiler.disturbance_since(load);
        assert_eq!(disturbance.and_then(|of| of.longest_wait_ns), Some(WALL_NS));
        let (phase, tokens, position) = (Phase::Decode, 1, 0);
        let pass = TimedPass { phase, start_ns, end_ns, tokens, position, disturbance };
        profiler.record_pass(&pass, &[]).expect("it fits");
        assert!(profiler.profile().passes[0].is_disturbed());
        profiler.watch_load(false);
        assert_eq!(profiler.disturbance_since(profiler.mark_load()), None);
    }

    #[test]
    fn each_disturbed_pass_says_who_it_was() {
        let plan = |shares| Planted { wait_ns: 2_000_000, pause_ns: 0, shares };
        let passes = play(&[plan(false), plan(true)].repeat(50));
        for (pass, expected) in
            passes.iter().zip([Disturber::Others, Disturber::OwnThreads].repeat(50))
        {
            let disturber = pass.disturbance.and_then(|of| of.disturber());
            assert_eq!(disturber, Some(expected), "{pass:?}");
        }
    }
}
