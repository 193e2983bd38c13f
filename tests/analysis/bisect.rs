//! Searches for the revision that made a program slower: on recorded noise, with revisions that can't be built, after
//! breaks, and whatever the results are.

use brickscope_analysis::bisect::{
    Bisect, BisectError, Event, Next, Options, Outcome, Purpose, Record, Run, Verdict, Why,
};
use brickscope_profile::stats::SplitMix64;
use proptest::prelude::*;

/// The tokens per second of each recorded process, of prefill and of decode (`tests/data/noise.json`).
fn recorded() -> [Vec<f64>; 2] {
    #[derive(serde::Deserialize)]
    struct Recorded {
        /// For each process and test its samples, of which the wall is the first figure.
        processes: Vec<Vec<Vec<Vec<u64>>>>,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/noise.json");
    let text = std::fs::read_to_string(path).expect("it is there");
    let recorded: Recorded = serde_json::from_str(&text).expect("it is what was recorded");
    // The mean of samples, as llama-bench has it.
    [(0, 128e9), (1, 64e9)].map(|(test, tokens)| {
        let rate = |samples: &Vec<Vec<u64>>| {
            samples.iter().map(|sample| tokens / sample[0] as f64).sum::<f64>()
                / samples.len() as f64
        };
        recorded.processes.iter().map(|process| rate(&process[test])).collect()
    })
}

/// A machine that does what a recorded one did, process after process: 40 of them from anywhere, then as many from
/// anywhere else (Künsch, "The jackknife and the bootstrap for general stationary observations", 1989).
struct Machine<'t> {
    recorded: &'t [f64],
    at: usize,
    left: usize,
    random: SplitMix64,
}

impl Machine<'_> {
    fn rate(&mut self) -> f64 {
        if self.left == 0 {
            self.at = below(&mut self.random, self.recorded.len());
            self.left = 40;
        }
        self.left -= 1;
        self.at = (self.at + 1) % self.recorded.len();
        self.recorded[self.at]
    }
}

fn below(random: &mut SplitMix64, end: usize) -> usize {
    ((u128::from(random.bits()) * end as u128) >> 64) as usize
}

/// How many of some searches ended how.
#[derive(Debug, Default)]
struct Tally {
    right: usize,
    wrong: usize,
    none: usize,
    undecided: usize,
    measurements: Vec<u64>,
    revisions: usize,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome, planted: usize) {
        match outcome.verdict {
            Verdict::Found { to, .. } if to == planted => self.right += 1,
            Verdict::Found { .. } => self.wrong += 1,
            Verdict::None { .. } => self.none += 1,
            Verdict::Inconclusive { .. } => self.undecided += 1,
        }
        self.measurements.push(outcome.measurements);
    }

    fn shown(&mut self, what: &str) -> String {
        self.measurements.sort_unstable();
        let all = self.measurements.len();
        let mean = self.measurements.iter().sum::<u64>() as f64 / all as f64;
        let at = |part: usize| self.measurements[(all * part / 100).min(all - 1)];
        format!(
            "{what}: {} right, {} wrong, {} none, {} undecided of {all}; {mean:.0} measurements (median {}, 90 % {}, \
             most {}), {:.1} revisions measured",
            self.right,
            self.wrong,
            self.none,
            self.undecided,
            at(50),
            at(90),
            at(100),
            self.revisions as f64 / all as f64,
        )
    }
}

/// Searches among 128 revisions, of which one anywhere is slower by `step`.
fn searches(recorded: &[f64], step: f64, trials: std::ops::Range<u64>, most: u64) -> Tally {
    let mut tally = Tally::default();
    for trial in trials {
        let mut random = SplitMix64(trial * 7919 + 13);
        let planted = 1 + below(&mut random, 128);
        let seed = random.bits();
        let mut machine = Machine { recorded, at: 0, left: 0, random };
        let options =
            Options { more_is_better: true, max_measurements: most, seed, ..Options::default() };
        let mut measured = std::collections::BTreeSet::new();
        let outcome = search(128, options, |run| {
            measured.insert(run.revision);
            machine.rate() / if run.revision >= planted { 1.0 + step } else { 1.0 }
        });
        tally.revisions += measured.len();
        tally.count(&outcome, planted);
    }
    tally
}

fn search(last: usize, options: Options, mut measure: impl FnMut(Run) -> f64) -> Outcome {
    let mut bisect = Bisect::new(last, options).expect("it can be searched");
    loop {
        match bisect.next() {
            Next::Run(run) => bisect.add(measure(run)).expect("it was asked for"),
            Next::Done(outcome) => return *outcome,
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of runs")]
fn on_recorded_noise_a_step_of_3_percent_is_found_and_no_step_is_none() {
    let [_, decode] = recorded();
    let mut found = searches(&decode, 0.03, 0..20, 1000);
    println!("{}", found.shown("3 %"));
    assert!(found.right >= 19 && found.wrong == 0, "{found:?}");
    let mut none = searches(&decode, 0.0, 0..40, 1000);
    println!("{}", none.shown("A/A"));
    assert!(none.none >= 39 && none.wrong + none.right == 0, "{none:?}");
}

/// `cargo test --workspace --all-features --test analysis bisect:: -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes; `.ci/nightly` runs it"]
fn long_on_recorded_noise() {
    let [prefill, decode] = recorded();
    let cases = [("decode", &decode, 1000, 195), ("prefill", &prefill, 2000, 190)];
    for (name, noise, most, least) in cases {
        let mut none = searches(noise, 0.0, 0..1000, most);
        println!("{}", none.shown(&format!("{name}, A/A")));
        assert!(none.none >= 980 && none.wrong + none.right <= 10, "{none:?}");
        for step in [0.03, 0.05, 0.1] {
            let mut found = searches(noise, step, 0..200, most);
            println!("{}", found.shown(&format!("{name}, {:.0} %", 100.0 * step)));
            assert!(found.right >= least && found.wrong <= 10, "{found:?}");
        }
    }
}

/// Noise of some size that is the same in each run of the test.
fn noise(random: &mut SplitMix64, size: f64) -> f64 {
    let uniform = |random: &mut SplitMix64| (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    // Nearly normal: Irwin and Hall.
    (size * ((0..12).map(|_| uniform(random)).sum::<f64>() - 6.0)).exp()
}

#[test]
fn without_noise_each_place_is_found() {
    for last in [1, 2, 3, 20] {
        for planted in 1..=last {
            let outcome =
                search(
                    last,
                    Options::default(),
                    |run| {
                        if run.revision >= planted { 1.05 } else { 1.0 }
                    },
                );
            let found = Verdict::Found { after: planted - 1, to: planted };
            assert_eq!(outcome.verdict, found, "{planted} of {last}");
            let step = outcome.step.expect("it was measured");
            assert!((step.ratio - 1.05).abs() < 1e-9, "{step:?}");
            assert!(step.low.is_some_and(|low| low > 1.0 && low < 1.05), "{step:?}");
        }
    }
    let none = search(20, Options::default(), |_| 1.0);
    assert_eq!(none.verdict, Verdict::None { why: Why::NoDifference });
    let faster = search(20, Options::default(), |run| 1.0 / (1.0 + run.revision as f64));
    assert_eq!(faster.verdict, Verdict::None { why: Why::Faster });
    // The same figures as rates.
    let rates = Options { more_is_better: true, ..Options::default() };
    let slower = search(20, rates, |run| if run.revision >= 7 { 20.0 } else { 21.0 });
    assert_eq!(slower.verdict, Verdict::Found { after: 6, to: 7 });
}

/// However the coins fall, what revisions differ by is not taken for the cost of going second.
#[test]
fn without_noise_each_pair_shows_its_own_difference() {
    for seed in 0..20 {
        let options = Options { seed, ..Options::default() };
        let rate = |run: Run| if run.revision >= 9 { 90.0 } else { 100.0 };
        let outcome = search(16, options, |run| 1.0 / rate(run));
        assert_eq!(outcome.verdict, Verdict::Found { after: 8, to: 9 });
        let controls = outcome.controls;
        let second = controls.second.expect("pairs ran in both orders");
        assert!((second - 1.0).abs() < 1e-9, "seed {seed}: {second}");
        if let Some(itself) = controls.itself {
            assert!((itself.ratio - 1.0).abs() < 1e-9, "seed {seed}: {itself:?}");
        }
        let step = outcome.step.expect("it was confirmed").ratio;
        assert!((step - 100.0 / 90.0).abs() < 1e-9, "seed {seed}: {step}");
    }
}

#[test]
fn revisions_that_can_not_be_measured_are_left_out() {
    for (broken, planted, expected) in [(9..=12, 5, 4..5), (9..=12, 11, 8..13), (1..=19, 7, 0..20)]
    {
        let mut random = SplitMix64(3);
        let mut bisect = Bisect::new(20, Options::default()).expect("it can be searched");
        let outcome = loop {
            match bisect.next() {
                Next::Run(run) if broken.contains(&run.revision) => {
                    bisect.unusable(run.revision).expect("it is between the ends");
                }
                Next::Run(run) => {
                    let slow = if run.revision >= planted { 1.04 } else { 1.0 };
                    bisect.add(slow * noise(&mut random, 0.01)).expect("it was asked for");
                }
                Next::Done(outcome) => break outcome,
            }
        };
        let Verdict::Found { after, to } = outcome.verdict else { panic!("{outcome:?}") };
        assert_eq!(after..to, expected);
        assert!(outcome.unusable.iter().all(|revision| broken.contains(revision)));
    }
    let mut bisect = Bisect::new(20, Options::default()).expect("it can be searched");
    assert_eq!(bisect.unusable(0), Err(BisectError::End(0)));
    assert_eq!(bisect.unusable(20), Err(BisectError::End(20)));
}

#[test]
fn a_search_goes_on_from_its_record_wherever_it_was_cut() {
    let measure = |random: &mut SplitMix64, run: Run| {
        noise(random, 0.02) * if run.revision >= 11 { 1.05 } else { 1.0 }
    };
    let mut random = SplitMix64(5);
    let whole = search(30, Options::default(), |run| measure(&mut random, run));
    let mut random = SplitMix64(5);
    let mut bisect = Bisect::new(30, Options::default()).expect("it can be searched");
    let cut = loop {
        match bisect.next() {
            Next::Run(run) => bisect.add(measure(&mut random, run)).expect("it was asked for"),
            Next::Done(outcome) => break *outcome,
        }
        let text = serde_json::to_string(bisect.record()).expect("it can be written");
        let record: Record = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(&record, bisect.record());
        bisect = Bisect::resumed(record).expect("it is a record");
    };
    assert_eq!(cut, whole);
    // And with half a pair forgotten now and then.
    let mut random = SplitMix64(6);
    let mut bisect = Bisect::new(30, Options::default()).expect("it can be searched");
    while let Next::Run(run) = bisect.next() {
        bisect.add(measure(&mut random, run)).expect("it was asked for");
        if bisect.record().events.len() % 17 == 16 {
            bisect.begin_pair_anew();
            bisect = Bisect::resumed(bisect.record().clone()).expect("it is a record");
        }
    }
    let Next::Done(outcome) = bisect.next() else { panic!("it is over") };
    assert_eq!(outcome.verdict, Verdict::Found { after: 10, to: 11 });
    assert_eq!(bisect.add(1.0), Err(BisectError::NotAsked));
}

#[test]
fn a_record_that_was_changed_is_refused() {
    let mut bisect = Bisect::new(9, Options::default()).expect("it can be searched");
    for _ in 0..40 {
        bisect.add(1.0).unwrap_or_default();
    }
    let mut record = bisect.record().clone();
    let Event::Ran(revision, _) = &mut record.events[2] else { panic!("it ran") };
    *revision = 9 - *revision;
    assert_eq!(Bisect::resumed(record).err(), Some(BisectError::Record(3)));
    let mut record = bisect.record().clone();
    record.options.least = f64::NAN;
    assert!(matches!(Bisect::resumed(record), Err(BisectError::Option(_))));
    assert_eq!(Bisect::new(0, Options::default()).err(), Some(BisectError::NoRevisions));
}

#[test]
fn a_search_that_ran_out_goes_on_with_more_measurements() {
    let measure = |run: Run| if run.revision >= 3 { 1.05 } else { 1.0 };
    let few = Options { max_measurements: 11, ..Options::default() };
    let mut bisect = Bisect::new(9, few).expect("it can be searched");
    while let Next::Run(run) = bisect.next() {
        bisect.add(measure(run)).expect("it was asked for");
    }
    let Next::Done(outcome) = bisect.next() else { panic!("it is over") };
    assert_eq!(outcome.verdict, Verdict::Inconclusive { why: Why::Cap });
    assert_eq!(outcome.measurements, 10, "half a pair says nothing");
    let mut record = bisect.record().clone();
    record.options.max_measurements = 1000;
    let mut bisect = Bisect::resumed(record).expect("it is a record");
    while let Next::Run(run) = bisect.next() {
        bisect.add(measure(run)).expect("it was asked for");
    }
    let Next::Done(outcome) = bisect.next() else { panic!("it is over") };
    assert_eq!(outcome.verdict, Verdict::Found { after: 2, to: 3 });
}

#[test]
fn slow_drift_and_the_cost_of_going_second_change_nothing() {
    // A third slower after 100 measurements; each second run of a pair 2 % slower, which is as much as the step.
    for seed in 0..10 {
        let mut random = SplitMix64(seed);
        let mut runs = 0.0;
        let outcome = search(40, Options { seed, ..Options::default() }, |run| {
            runs += 1.0;
            let second = if runs % 2.0 == 0.0 { 1.02 } else { 1.0 };
            let step = if run.revision >= 20 { 1.03 } else { 1.0 };
            step * second * noise(&mut random, 0.01) * (0.003_f64 * runs).exp()
        });
        let Verdict::Found { after, to } = outcome.verdict else { panic!("{outcome:?}") };
        assert_eq!((after, to), (19, 20));
        assert!(outcome.controls.drift.is_some_and(|drift| drift > 1.05), "{outcome:?}");
        let second = outcome.controls.second.expect("it was measured");
        assert!((second - 1.0232).abs() < 0.01, "{second}");
    }
}

#[test]
fn where_the_machine_drifts_it_abstains() {
    // Each run is 5 % slower than the one before.
    let mut runs = 0.0;
    let mut random = SplitMix64(8);
    let outcome = search(40, Options::default(), |_| {
        runs += 1.0;
        noise(&mut random, 0.01) * (0.05_f64 * runs).exp()
    });
    assert_eq!(outcome.verdict, Verdict::Inconclusive { why: Why::Drift });
    // It becomes slower, and there are too few measurements to see through it.
    let mut runs = 0.0;
    let few = Options { max_measurements: 30, ..Options::default() };
    let outcome = search(40, few, |_| {
        runs += 1.0;
        noise(&mut random, 0.05) * (0.01_f64 * runs).exp()
    });
    assert_eq!(outcome.verdict, Verdict::Inconclusive { why: Why::Drift });
}

#[test]
fn of_two_steps_one_is_found_and_its_own_size_is_said() {
    let mut random = SplitMix64(9);
    let outcome = search(40, Options::default(), |run| {
        let steps = [12, 30].into_iter().filter(|step| run.revision >= *step).count();
        noise(&mut random, 0.01) * 1.04_f64.powi(steps as i32)
    });
    let Verdict::Found { to, .. } = outcome.verdict else { panic!("{outcome:?}") };
    assert!(to == 12 || to == 30, "{outcome:?}");
    let (step, ends) = (outcome.step.expect("measured"), outcome.ends.expect("measured"));
    assert!((step.ratio - 1.04).abs() < 0.02 && (ends.ratio - 1.08).abs() < 0.02, "{outcome:?}");
}

#[test]
fn the_machine_alone_is_measured_now_and_then() {
    let mut controls = 0;
    let mut random = SplitMix64(2);
    let outcome = search(64, Options::default(), |run| {
        if run.purpose == Purpose::Control {
            assert_eq!((run.revision, run.beside), (0, 0));
            controls += 1;
        }
        noise(&mut random, 0.02) * if run.revision > 40 { 1.05 } else { 1.0 }
    });
    assert!(controls >= 4, "{controls}");
    assert_eq!(outcome.controls.itself.map(|itself| itself.pairs), Some(controls / 2));
}

proptest! {
    #![proptest_config(brickscope_testing::cases(64))]

    #[test]
    fn whatever_the_results_are_it_ends(
        last in 1..200_usize,
        most in 0..160_u64,
        seed in any::<u64>(),
        values in prop::collection::vec(
            prop_oneof![any::<f64>(), 0.9..1.1_f64, Just(1.0), Just(f64::MIN_POSITIVE), Just(f64::MAX)],
            1..60,
        ),
        broken in prop::collection::btree_set(0..200_usize, 0..60),
        is_rate in any::<bool>(),
    ) {
        let options = Options {
            max_measurements: most,
            seed,
            more_is_better: is_rate,
            ..Options::default()
        };
        let mut bisect = Bisect::new(last, options).expect("it can be searched");
        let mut calls = 0_usize;
        let outcome = loop {
            match bisect.next() {
                Next::Done(outcome) => break outcome,
                Next::Run(run) => {
                    prop_assert!(run.revision <= last && run.beside <= last);
                    if broken.contains(&run.revision) && bisect.unusable(run.revision).is_ok() {
                        continue;
                    }
                    let value = values[calls % values.len()];
                    let before = bisect.record().clone();
                    match bisect.add(value) {
                        Ok(()) => prop_assert!(value.is_finite() && value > 0.0),
                        Err(error) => {
                            prop_assert!(!(value.is_finite() && value > 0.0), "{}", error);
                            prop_assert_eq!(&before, bisect.record());
                            bisect.add(1.0).expect("a plain number");
                        }
                    }
                    calls += 1;
                }
            }
            if calls.is_multiple_of(13) {
                let progress = bisect.progress();
                let likely = progress.likely;
                prop_assert!(1 <= likely.first && likely.first <= likely.last && likely.last <= last);
                prop_assert!((0.0..=1.0 + 1e-9).contains(&likely.top), "{:?}", likely);
            }
        };
        prop_assert!(outcome.measurements <= most, "{:?}", outcome);
        let again = Bisect::resumed(bisect.record().clone()).expect("it is a record");
        prop_assert_eq!(again.next(), Next::Done(outcome));
    }

    #[test]
    fn a_hostile_record_is_refused_and_nothing_else(
        last in 0..1_000_000_usize,
        events in prop::collection::vec(
            prop_oneof![
                (0..5_usize, any::<f64>()).prop_map(|(revision, value)| Event::Ran(revision, value)),
                any::<usize>().prop_map(Event::Unusable),
                Just(Event::Forgot),
            ],
            0..20,
        ),
        least in any::<f64>(),
    ) {
        let options = Options { least, ..Options::default() };
        let _ = Bisect::resumed(Record { last, options, events: events.clone() });
        let _ = Bisect::resumed(Record { last, options: Options::default(), events });
    }
}
