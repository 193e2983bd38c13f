//! The comparison itself: whether two sides may be compared, and what comes of it.

use super::environment::Differences;
use super::rows::Rows;
use super::{
    CompareError, Compared, Comparison, LeftOutTest, Options, POWER, Process, RanksChange, Side,
    Test, TestChange, bytes, environment, in_both, turns, verdict,
};

/// Compares the times of side `b` with those of side `a`.
///
/// # Errors
///
/// See [`CompareError`]. Too few processes are not an error: every verdict is then
/// [`Verdict::Inconclusive`](super::Verdict::Inconclusive).
pub fn compare(a: &Side, b: &Side, options: &Options) -> Result<Comparison, CompareError> {
    compare_beside(a, b, [a, b], options)
}

/// As [`compare`], where `whole` has the samples that sides of fewer samples were made from: they say how times change
/// within a process.
pub(super) fn compare_beside(
    a: &Side,
    b: &Side,
    whole: [&Side; 2],
    options: &Options,
) -> Result<Comparison, CompareError> {
    if !(options.threshold > 0.0 && options.threshold.is_finite()) {
        return Err(CompareError::Threshold(options.threshold));
    }
    if let Some(side) = [a, b].into_iter().find(|side| side.processes.is_empty()) {
        return Err(CompareError::Empty { side: side.name.clone() });
    }
    if let Some((one, other)) = copies(whole[0], whole[1]) {
        return Err(CompareError::Copy { one, other });
    }
    let first = |side: &Side| {
        let tests = side.processes[0].tests.iter().map(|test| test.name.clone());
        tests.collect::<Vec<String>>()
    };
    let is_asked = |test: &&Test| options.phase.is_none_or(|phase| test.is_of(phase));
    if let Some(phase) = options.phase {
        let is_without = |side: &&Side| !side.processes[0].tests.iter().any(|test| is_asked(&test));
        if let Some(side) = [a, b].into_iter().find(is_without) {
            return Err(CompareError::NoTestOfPhase {
                side: side.name.clone(),
                phase,
                tests: first(side),
            });
        }
    }
    let names: Vec<String> = a.processes[0]
        .tests
        .iter()
        .filter(is_asked)
        .map(|test| test.name.clone())
        .filter(|name| is_everywhere(name, a) && is_everywhere(name, b))
        .collect();
    let Differences { unlike, models, may } =
        environment::differences(a, b, &names, options.models_may_differ);
    if !unlike.is_empty() && !options.is_forced {
        return Err(CompareError::Unlike(unlike));
    }
    if names.is_empty() {
        return Err(CompareError::NoCommonTest { a: first(a), b: first(b) });
    }
    let left_out = LeftOutTest::all(whole, &names, |test| is_asked(&test));
    let order = turns::order(a, b);
    let mut tests: Vec<Rows> =
        names.iter().map(|name| Rows::new(name, [a, b], whole, &order, options)).collect();
    verdict::judge(&mut tests, options);
    let mut tests: Vec<TestChange> = tests.into_iter().map(Rows::into_change).collect();
    tests.iter_mut().for_each(|test| bytes::add(test, [a, b], !models.is_empty()));
    Ok(Comparison {
        threshold: options.threshold,
        level: options.level,
        power: POWER,
        a: Compared::new(whole[0]),
        b: Compared::new(whole[1]),
        pairing: order.pairing,
        forced: unlike,
        models,
        differences: may,
        tests,
        left_out,
        ranks: RanksChange::of_sides(whole),
        kernels_in_both: in_both::shares(whole),
    })
}

/// The names of two processes, on either side, that are the same process.
fn copies(a: &Side, b: &Side) -> Option<(String, String)> {
    same(a.processes.iter().chain(&b.processes).collect())
}

impl Side {
    /// The names of two of its processes that have the same measurements, so that one is a copy.
    #[must_use]
    pub fn copies(&self) -> Option<(String, String)> {
        same(self.processes.iter().collect())
    }
}

fn same(mut all: Vec<&Process>) -> Option<(String, String)> {
    // By their measurements: no two processes measure the same nanoseconds throughout.
    let times = |process: &Process| {
        let walls = process.tests.iter().map(|test| test.wall_ns.clone());
        walls.collect::<Vec<Vec<u64>>>()
    };
    all.retain(|process| process.tests.iter().map(|test| test.wall_ns.len()).sum::<usize>() > 0);
    all.sort_by_cached_key(|process| times(process));
    let same = all.windows(2).find(|two| times(two[0]) == times(two[1]))?;
    Some((same[0].name.clone(), same[1].name.clone()))
}

fn is_everywhere(test: &str, side: &Side) -> bool {
    let has = |process: &Process| {
        process.tests.iter().any(|of| of.name == test && !of.wall_ns.is_empty())
    };
    side.processes.iter().all(has)
}

impl Compared {
    fn new(side: &Side) -> Self {
        let samples = |process: &Process| {
            process.tests.iter().map(|test| test.wall_ns.len() as u64).sum::<u64>()
        };
        Self {
            name: side.name.clone(),
            processes: side.processes.len(),
            samples: side.processes.iter().map(samples).sum(),
            disturbed: side.processes.iter().map(|process| process.disturbed).sum(),
            doubts: side
                .processes
                .iter()
                .flat_map(|p| p.doubts.iter().map(|doubt| (p.name.clone(), doubt.clone())))
                .collect(),
            not_verified: side
                .processes
                .iter()
                .filter_map(|p| Some((p.name.clone(), p.not_verified.clone()?)))
                .collect(),
        }
    }
}
