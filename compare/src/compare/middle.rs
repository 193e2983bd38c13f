//! The one sample of each test by which a process counts: the mean of those passes that are in the middle half by their time
//! or, where other work disturbed most passes, of the fastest quarter, since what disturbs only adds time.
//!
//! All bricks are taken from the same passes, so what they moved by adds up to what the pass moved by. Medians of single
//! bricks would not add up.

use std::collections::HashMap;

use brickscope_profile::{Phase, Profile};

use super::counted::Counted;
use super::{Brick, Process, Sample, Side, Test, UNATTRIBUTED};

/// Leaves of each phase the passes with the number of tokens that most of them have, or the larger of two such numbers: a
/// pass of 512 tokens and one of 88 are not two samples of one thing. Returns how many were taken away.
pub fn of_most_tokens(profile: &mut Profile) -> usize {
    let mut times: HashMap<(Phase, u64), usize> = HashMap::new();
    for pass in profile.passes.iter().filter(|pass| !pass.is_left_out) {
        *times.entry((pass.phase, pass.tokens)).or_default() += 1;
    }
    let mut most: HashMap<Phase, (usize, u64)> = HashMap::new();
    for (&(phase, tokens), &n) in &times {
        let of = most.entry(phase).or_default();
        *of = (*of).max((n, tokens));
    }
    let before = profile.passes.len();
    profile.passes.retain(|pass| {
        pass.is_left_out || most.get(&pass.phase).is_some_and(|&(_, tokens)| pass.tokens == tokens)
    });
    before - profile.passes.len()
}

/// The tests whose passes have other numbers of tokens in some processes than in others: a token of them is compared.
pub(super) fn of_tokens(sides: [&Side; 2]) -> Vec<String> {
    let mut tokens: HashMap<&str, Vec<u64>> = HashMap::new();
    for test in sides.iter().flat_map(|side| &side.processes).flat_map(|process| &process.tests) {
        tokens.entry(&test.name).or_default().push(test.tokens);
    }
    let differ = |all: &Vec<u64>| !all.contains(&0) && all.iter().any(|of| *of != all[0]);
    let names = tokens.into_iter().filter(|(_, all)| differ(all));
    names.map(|(name, _)| name.to_owned()).collect()
}

pub(super) fn of_counted(side: &Side, counted: Counted, of_tokens: &[String]) -> Side {
    let of = |process: &Process| Process {
        tests: process
            .tests
            .iter()
            .filter(|test| !test.wall_ns.is_empty())
            .map(|test| match of_tokens.contains(&test.name) {
                true => token_of(mean_of(test, counted)),
                false => mean_of(test, counted),
            })
            .collect(),
        ..process.clone()
    };
    Side { name: side.name.clone(), processes: side.processes.iter().map(of).collect() }
}

/// The test with one sample: the mean of the passes that count.
fn mean_of(test: &Test, counted: Counted) -> Test {
    let mut order: Vec<usize> = (0..test.wall_ns.len()).collect();
    order.sort_by_key(|&nth| test.wall_ns[nth]);
    let kept = &order[counted.range(order.len())];
    let mean = |ns: &Vec<u64>| -> Vec<u64> {
        // Without the times of each pass there is no mean.
        if ns.len() != test.wall_ns.len() {
            return Vec::new();
        }
        let sum: u128 = kept.iter().map(|&nth| u128::from(ns[nth])).sum();
        let n = kept.len() as u128;
        vec![((sum + n / 2) / n) as u64]
    };
    let brick =
        |brick: &Brick| Brick { ns: mean(&brick.ns), bytes: mean(&brick.bytes), ..brick.clone() };
    Test {
        sample: Sample::Pass,
        wall_ns: mean(&test.wall_ns),
        unattributed_ns: mean(&test.unattributed_ns),
        bricks: test.bricks.iter().map(brick).collect(),
        ..test.clone()
    }
}

/// The test with the time of a token of its pass, which is known.
fn token_of(test: Test) -> Test {
    let tokens = test.tokens.max(1);
    let each = |ns: Vec<u64>| ns.into_iter().map(|ns| (ns + tokens / 2) / tokens).collect();
    let bricks = test.bricks.into_iter();
    Test {
        sample: Sample::Token,
        tokens: 1,
        wall_ns: each(test.wall_ns),
        unattributed_ns: each(test.unattributed_ns),
        bricks: bricks
            .map(|brick| Brick { ns: each(brick.ns), bytes: each(brick.bytes), ..brick })
            .collect(),
        inside: test.inside.of_tokens(tokens),
        ..test
    }
}

/// The nanoseconds of a pass of a test, or of the bricks of a name in it: the mean of those passes that count,
/// as [`versus`](super::versus) has it. `None` if it has no pass, or no such brick.
#[must_use]
pub fn pass_ns(test: &Test, brick: Option<&str>, counted: Counted) -> Option<f64> {
    if test.wall_ns.is_empty() {
        return None;
    }
    let mean = mean_of(test, counted);
    match brick {
        Some(name) => in_brick(&mean, name),
        None => mean.wall_ns.first().map(|&ns| ns as f64),
    }
}

/// The time of a test of one sample in the bricks of a name.
pub(super) fn in_brick(test: &Test, name: &str) -> Option<f64> {
    if name == UNATTRIBUTED {
        return test.unattributed_ns.first().map(|&ns| ns as f64);
    }
    let mut of_name = test.bricks.iter().filter(|brick| brick.name == name).peekable();
    of_name.peek()?;
    Some(of_name.filter_map(|brick| brick.ns.first()).map(|&ns| ns as f64).sum())
}
