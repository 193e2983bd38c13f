//! What is read of the samples of a side's processes.

use brickscope_profile::stats::median;

use super::{Brick, Process, Side, Test};

/// When the processes of both sides were measured, if that is known of all.
pub(super) fn seconds(a: &Side, b: &Side) -> Option<[Vec<f64>; 2]> {
    let of = |side: &Side| -> Option<Vec<f64>> {
        let seconds: Option<Vec<f64>> = side.processes.iter().map(|p| p.seconds).collect();
        // Receipts of one second have no order.
        seconds.filter(|seconds| seconds.windows(2).all(|two| two[0] < two[1]))
    };
    Some([of(a)?, of(b)?])
}

/// The part of a time's logarithm that a quarter of the processes change by within themselves: between the medians
/// of up to five stretches of consecutive samples.
pub(super) fn within(
    sides: &[Vec<&Test>; 2],
    of: &dyn Fn(&Test) -> Option<Vec<u64>>,
) -> Option<f64> {
    const STRETCHES: usize = 5;
    let of_one = |test: &&Test| -> Option<f64> {
        let samples: Vec<f64> = of(test)?.into_iter().map(|ns| ns as f64).collect();
        let n = samples.len().min(STRETCHES);
        let stretch = |i: usize| {
            median(&samples[i * samples.len() / n..(i + 1) * samples.len() / n]).map(f64::ln)
        };
        let logs = (0..n).map(stretch).collect::<Option<Vec<f64>>>()?;
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = logs.iter().copied().fold(f64::INFINITY, f64::min);
        Some(most - least).filter(|spread| spread.is_finite())
    };
    let mut spreads: Vec<f64> = sides.iter().flatten().filter_map(of_one).collect();
    spreads.sort_by(f64::total_cmp);
    spreads.get(3 * spreads.len() / 4).copied()
}

pub(super) fn tests_of<'s>(side: &'s Side, name: &str) -> Vec<&'s Test> {
    side.processes.iter().filter_map(|process| test_of(process, name)).collect()
}

pub(super) fn test_of<'p>(process: &'p Process, name: &str) -> Option<&'p Test> {
    process.tests.iter().find(|test| test.name == name)
}

/// Each sample's time in the bricks of a name, which may be in two categories.
pub(super) fn brick_ns(test: &Test, name: &str) -> Option<Vec<u64>> {
    sum_ns(test, |brick| brick.name == name)
}

/// The names of the bricks of these tests, in their order.
pub(super) fn brick_names(tests: &[&Test]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for brick in tests.iter().flat_map(|test| &test.bricks) {
        if !names.contains(&brick.name) {
            names.push(brick.name.clone());
        }
    }
    names
}

/// Each sample's time in the bricks of a category.
pub(super) fn category_ns(test: &Test, category: &str) -> Option<Vec<u64>> {
    sum_ns(test, |brick| brick.category == category)
}

fn sum_ns(test: &Test, is_meant: impl Fn(&Brick) -> bool) -> Option<Vec<u64>> {
    let mut sums: Option<Vec<u64>> = None;
    for brick in test.bricks.iter().filter(|brick| is_meant(brick)) {
        let sums = sums.get_or_insert_with(|| vec![0; brick.ns.len()]);
        for (sum, ns) in sums.iter_mut().zip(&brick.ns) {
            *sum = sum.saturating_add(*ns);
        }
    }
    sums
}

/// The median of each process's samples.
pub(super) fn medians(tests: &[&Test], of: impl Fn(&Test) -> Option<Vec<u64>>) -> Vec<Option<f64>> {
    let of_one = |test: &&Test| {
        let samples: Vec<f64> = of(test)?.into_iter().map(|ns| ns as f64).collect();
        median(&samples)
    };
    tests.iter().map(of_one).collect()
}
