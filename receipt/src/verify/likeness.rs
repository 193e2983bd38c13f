//! Finds times that are others once more: of another sample, of another test, of the first half; or that stand in an order
//! that no run makes.
//!
//! Two measured times of one work differ by a thousandth and more. So rows of times that all agree within some nanoseconds
//! are one row, with noise that somebody added.

use super::derived::NOISE;
use super::{Code, Findings, measured, said, span};
use crate::v1::{Receipt, Sample, Test};

/// Times that differ by at most this many steps of the clock are alike.
const NEAR: u64 = 32;

/// Refuse what chance does less than once in this many receipts, as a power of ten.
const BY_CHANCE: f64 = 9.0;

/// The most samples that are compared with each other.
const MOST_SAMPLES: usize = 400;

/// Checks the samples of all tests against each other.
pub(super) fn across(receipt: &Receipt, unit: f64, found: &mut Findings) {
    let samples = receipt.tests.iter().flat_map(|test| measured(test).map(move |of| (test, of)));
    let samples: Vec<(&Test, &Sample, Vec<u64>)> =
        samples.take(MOST_SAMPLES).map(|(test, sample)| (test, sample, times(sample))).collect();
    for (nth, (test, sample, ours)) in samples.iter().enumerate() {
        for (other_test, other, theirs) in &samples[..nth] {
            let is_found = std::ptr::eq(*test, *other_test) && is_same(sample, other);
            if is_found || chance_of(ours, theirs, unit) < BY_CHANCE {
                continue;
            }
            let of_other = match std::ptr::eq(*test, *other_test) {
                true => String::new(),
                false => format!(" of test {}", said(&other_test.name)),
            };
            found.refuse_about(
                Code::DuplicateSample,
                "near",
                format!(
                    "all times of sample {} of test {} are those of sample {}{of_other}, a few ns apart: one was made of \
                     the other",
                    sample.index,
                    said(&test.name),
                    other.index
                ),
            );
        }
    }
}

/// Whether all raw times of two samples are equal, which is found elsewhere.
fn is_same(a: &Sample, b: &Sample) -> bool {
    let raw =
        |of: &Sample| (span(of), of.pass_ns.clone(), of.token_ns.clone(), of.brick_ns.clone());
    raw(a) == raw(b)
}

/// The times of a sample that were each measured.
fn times(sample: &Sample) -> Vec<u64> {
    sample.pass_ns.iter().chain(&sample.brick_ns).copied().collect()
}

/// How unlikely it is that two rows of times are as near to each other by chance, as a power of ten: as they are, and with a
/// difference or a factor that all have.
fn chance_of(a: &[u64], b: &[u64], unit: f64) -> f64 {
    if a.len() != b.len() || a.is_empty() {
        return 0.0;
    }
    let sum = |row: &[u64]| row.iter().map(|&ns| ns as f64).sum::<f64>();
    let factor = sum(a) / sum(b).max(1.0);
    let rows = || a.iter().zip(b).map(|(&a, &b)| (a as f64, b as f64));
    let shift = (sum(a) - sum(b)) / a.len() as f64;
    let furthest =
        |of: &dyn Fn(f64) -> f64| rows().map(|(a, b)| (a - of(b)).abs()).fold(0.0, f64::max);
    let furthest = furthest(&|b| b).min(furthest(&|b| b * factor)).min(furthest(&|b| b + shift));
    let furthest = furthest / unit.max(1.0);
    if furthest > NEAR as f64 {
        return 0.0;
    }
    let room = unit.max(1.0) * (2.0 * furthest + 1.0);
    // A factor or a difference explains one of them.
    let all = rows().map(|(a, b)| (NOISE * a.min(b) / room).max(1.0).log10());
    let (count, total, most) = all
        .fold((0, 0.0, 0.0_f64), |(n, sum, most), chance| (n + 1, sum + chance, most.max(chance)));
    if count > 1 { total - most } else { 0.0 }
}

/// Checks the measured samples of one test.
pub(super) fn test(receipt: &Receipt, test: &Test, unit: f64, found: &mut Findings) {
    halves(test, unit, found);
    sorted(test, found);
    shares_of_passes(test, unit, found);
    choosing(test, unit, found);
    even(test, unit, found);
    device(receipt, test, found);
}

/// The second half of a sample's passes isn't the first once more.
fn halves(test: &Test, unit: f64, found: &mut Findings) {
    for sample in measured(test) {
        for row in [&sample.pass_ns, &sample.token_ns] {
            let half = row.len() / 2;
            let (first, second) = (&row[..half], &row[row.len() - half..]);
            if half >= 2 && chance_of(first, second, unit) >= BY_CHANCE {
                return found.refuse_about(
                    Code::DerivedTimes,
                    "halves",
                    format!(
                        "the second half of the times of sample {} of test {} is the first half once more",
                        sample.index,
                        said(&test.name)
                    ),
                );
            }
        }
    }
}

/// Passes come in no order. Those of a prompt do: each attends to more tokens than the one before.
fn sorted(test: &Test, found: &mut Findings) {
    let is_decode = test.n_gen > 0;
    let is_sorted = |row: &[u64]| (is_decode && row.is_sorted()) || row.iter().rev().is_sorted();
    let all = || measured(test).map(|sample| sample.pass_ns.as_slice());
    if all().next().is_none() || !all().all(|row| row.len() >= 4 && is_sorted(row)) {
        return;
    }
    // Each by itself: what slows all samples down alike, such as a limit of power, makes all of them rise.
    if all().all(|row| chance_of_order(row) >= BY_CHANCE) {
        found.refuse_about(
            Code::DerivedTimes,
            "sorted",
            format!(
                "the passes of every sample of test {} are sorted by how long they took: a list was written down",
                said(&test.name)
            ),
        );
    }
}

/// How unlikely it is that a row is sorted, one way or the other, as a power of ten: equal times, as a coarse clock tells
/// them, can stand in any order among themselves.
fn chance_of_order(row: &[u64]) -> f64 {
    let orders = |n: usize| (1..=n).map(|n| (n as f64).log10()).sum::<f64>();
    let equal: f64 = row.chunk_by(|a, b| a == b).map(|equal| orders(equal.len())).sum();
    orders(row.len()) - equal - 2_f64.log10()
}

/// Each pass isn't the same part of its sample, over and over.
fn shares_of_passes(test: &Test, unit: f64, found: &mut Findings) {
    let rows: Vec<&[u64]> = measured(test).map(|sample| sample.pass_ns.as_slice()).collect();
    let [first, rest @ ..] = &rows[..] else { return };
    if rest.len() < 2 || first.len() < 2 {
        return;
    }
    let chance: f64 = rest.iter().map(|row| chance_of(first, row, unit)).sum();
    if rest.iter().all(|row| chance_of(first, row, unit) > 0.0) && chance >= BY_CHANCE {
        found.refuse_about(
            Code::DerivedTimes,
            "shares",
            format!(
                "each pass of test {} has the same part of every sample: they are shares of a total, not measured times",
                said(&test.name)
            ),
        );
    }
}

/// Choosing a token takes a little longer or shorter each time.
fn choosing(test: &Test, unit: f64, found: &mut Findings) {
    /// So many tokens of one sample tell.
    const LEAST: usize = 12;
    for sample in measured(test) {
        let skipped = sample.pass_ns.len().saturating_sub(sample.token_ns.len());
        let passes = sample.pass_ns.iter().skip(skipped);
        let rest: Vec<u64> = sample
            .token_ns
            .iter()
            .zip(passes)
            .map(|(token, pass)| token.saturating_sub(*pass))
            .collect();
        let (Some(least), Some(most)) = (rest.iter().min(), rest.iter().max()) else { continue };
        let is_one = rest.len() >= LEAST && most - least <= 1;
        if is_one && *least as f64 > 100.0 * unit {
            return found.refuse_about(
                Code::DerivedTimes,
                "choosing",
                format!(
                    "each token of sample {} of test {} took {least} ns more than its pass: that was added, not measured",
                    sample.index,
                    said(&test.name)
                ),
            );
        }
    }
}

/// Bricks don't take equal parts of a pass.
fn even(test: &Test, unit: f64, found: &mut Findings) {
    for sample in measured(test) {
        let row = &sample.brick_ns;
        let (Some(&least), Some(&most)) = (row.iter().min(), row.iter().max()) else { continue };
        let each = (NOISE * least as f64 / unit.max(1.0)).max(1.0).log10();
        if row.len() >= 3 && most - least <= 1 && (row.len() - 1) as f64 * each >= BY_CHANCE {
            return found.refuse_about(
                Code::DerivedTimes,
                "even",
                format!(
                    "all {} bricks of sample {} of test {} took the same time: they are a total that was split",
                    row.len(),
                    sample.index,
                    said(&test.name)
                ),
            );
        }
    }
}

/// A device doesn't repeat itself to the step of its clock.
fn device(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let step = receipt.device.as_ref().and_then(|device| device.resolution_ns).unwrap_or(1.0);
    let times: Vec<_> = measured(test).filter_map(|sample| sample.device.as_ref()).collect();
    let [first, rest @ ..] = &times[..] else { return };
    if rest.len() < 2 || !rest.iter().all(|other| other == first) || first.span_ns == 0 {
        return;
    }
    // Its clock is steadier than a host's: a ten-thousandth.
    let row = first.brick_ns.iter().chain([&first.span_ns]);
    let each: f64 = row.map(|&ns| (0.1 * NOISE * ns as f64 / step).max(1.0).log10()).sum();
    if rest.len() as f64 * each >= BY_CHANCE {
        found.refuse_about(
            Code::NoVariance,
            "device",
            format!(
                "the device took {} ns in every measured sample of test {}, and as long in each brick: no device repeats \
                 itself so",
                first.span_ns,
                said(&test.name)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_a_little_noise_are_alike_and_measured_ones_are_not() {
        let row: Vec<u64> = (0..16).map(|n| 2_000_000 + 7_919 * (n * n % 13)).collect();
        let near: Vec<u64> = row.iter().zip(0..).map(|(ns, n)| ns + n % 5).collect();
        let scaled: Vec<u64> = row.iter().map(|ns| (*ns as f64 * 1.013).round() as u64).collect();
        let shifted: Vec<u64> = row.iter().map(|ns| ns + 40_000).collect();
        for other in [&near, &scaled, &shifted] {
            assert!(chance_of(&row, other, 1.0) >= BY_CHANCE);
        }
        // A ten-thousandth of noise is enough.
        let measured: Vec<u64> =
            row.iter().zip(0..).map(|(ns, n)| ns + 211 * (n * 5 % 7)).collect();
        assert_eq!(chance_of(&row, &measured, 1.0), 0.0);
        // Of a coarse clock all times may be one.
        assert!(chance_of_order(&[5; 30]) < 0.0);
        assert!(chance_of_order(&(0..15).collect::<Vec<u64>>()) > BY_CHANCE);
        // Short times are near each other by chance.
        let short: Vec<u64> = (0..64).map(|n| 9_000 + n % 3).collect();
        assert!(chance_of(&short, &short, 1.0) < 64.0);
        assert_eq!(chance_of(&short, &short[1..], 1.0), 0.0);
    }
}
