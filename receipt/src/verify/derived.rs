//! Finds times that were not measured: shares of a total, and repetitions that agree too well.
//!
//! A measured time varies by at least a thousandth from repetition to repetition. So times that agree to the
//! nanosecond are unlikely, the more so the longer they are and the more of them there are; a receipt is
//! refused if chance would do it in one of a million receipts.

use std::collections::HashMap;

use super::machine::granularity;
use super::{Code, Findings, measured, said, span};
use crate::v1::{Receipt, Sample, Test};

/// The least variation of a time when it is measured again: a thousandth. Real machines are worse.
pub(super) const NOISE: f64 = 1e-3;
/// Refuse what chance does less than once in this many cases, as a power of ten.
const SHARE_BY_CHANCE: f64 = 6.0;
/// The same for equal times.
const EQUAL_BY_CHANCE: f64 = 4.0;
/// Ratios are checked between this many of the longest bricks.
const PAIRS_OF: usize = 48;

/// Checks the measured samples of a test.
pub(super) fn test(test: &Test, unit: f64, found: &mut Findings) {
    let name = said(&test.name);
    let samples: Vec<&Sample> = measured(test).collect();
    passes(test, unit, &samples, found);
    if samples.len() < 3 {
        return found.not_checked(
            format_args!("that the times of {name} are not derived"),
            "that needs 3 measured samples",
        );
    }
    let walls: Vec<u64> = samples.iter().map(|sample| sample.wall_ns).collect();
    if is_constant(&walls, unit) {
        found.refuse(
            Code::NoVariance,
            format!(
                "all {} measured samples of test {name} took {} ns: no machine repeats itself to the \
                 nanosecond",
                walls.len(),
                walls[0]
            ),
        );
    }
    if test.bricks.is_empty() {
        return found.not_checked(
            format_args!("that the times of bricks in {name} are not derived"),
            "the profiler was off, so there are none",
        );
    }
    let times: Vec<Vec<u64>> = (0..test.bricks.len())
        .map(|brick| samples.iter().filter_map(|s| s.brick_ns.get(brick).copied()).collect())
        .collect();
    bricks(test, &times, &walls, unit, found);
}

/// Finds passes of a decode sample that are an even split.
fn passes(test: &Test, unit: f64, samples: &[&Sample], found: &mut Findings) {
    for (which, sample) in samples.iter().enumerate() {
        let (Some(least), Some(most)) = (sample.pass_ns.iter().min(), sample.pass_ns.iter().max())
        else {
            continue;
        };
        let chance = (sample.pass_ns.len() - 1) as f64 * surprise(*least, NOISE / 2.0, unit);
        if most - least <= 1 && sample.pass_ns.len() >= 3 && chance >= SHARE_BY_CHANCE {
            found.refuse(
                Code::DerivedTimes,
                format!(
                    "all {} passes of measured sample {which} of test {} took the same time: they are \
                     a total that was split",
                    sample.pass_ns.len(),
                    said(&test.name)
                ),
            );
        }
    }
}

fn is_constant(times: &[u64], unit: f64) -> bool {
    let Some(first) = times.first() else { return false };
    times.iter().all(|time| time == first)
        && (times.len() - 1) as f64 * surprise(*first, NOISE, unit) >= EQUAL_BY_CHANCE
}

fn bricks(test: &Test, times: &[Vec<u64>], walls: &[u64], unit: f64, found: &mut Findings) {
    let name =
        |brick: usize| test.bricks.get(brick).map_or(String::new(), |brick| said(&brick.name));
    let test_name = said(&test.name);
    for (brick, of_brick) in times.iter().enumerate() {
        if is_constant(of_brick, unit) {
            found.refuse(
                Code::NoVariance,
                format!(
                    "{} took {} ns in every measured sample of test {test_name}: no machine repeats \
                     itself to the nanosecond",
                    name(brick),
                    of_brick[0]
                ),
            );
        }
    }
    let attributed: Vec<u64> = (0..walls.len())
        .map(|sample| times.iter().fold(0, |sum: u64, t| sum.saturating_add(t[sample])))
        .collect();
    // A brick with all of the attributed time is not a share of it.
    let parts = times.iter().enumerate().filter(|(_, times)| **times != attributed);
    let mut together = [0.0, 0.0];
    let mut shared = [0, 0];
    for (brick, of_brick) in parts.clone() {
        let totals = [("wall", walls), ("time of all bricks", &attributed[..])];
        for (which, (total_name, total)) in totals.into_iter().enumerate() {
            let Some((share, chance)) = constant_share(of_brick, total, unit) else { continue };
            together[which] += chance;
            shared[which] += 1;
            if chance >= SHARE_BY_CHANCE {
                found.refuse(
                    Code::DerivedTimes,
                    format!(
                        "{} took {:.4} % of the {total_name} in every measured sample of test \
                         {test_name}: it is a share of a total, not a measured time",
                        name(brick),
                        100.0 * share
                    ),
                );
            }
        }
    }
    // Each is too short to decide by itself, but not all together.
    let busy = parts.clone().filter(|(_, times)| times.iter().any(|&ns| ns > 0)).count();
    for (chance, count) in together.into_iter().zip(shared) {
        if count == busy && count >= 2 && chance >= SHARE_BY_CHANCE {
            found.refuse(
                Code::DerivedTimes,
                format!(
                    "every brick of test {test_name} took the same share of the total in every \
                     measured sample: they are shares of a total, not measured times"
                ),
            );
        }
    }
    pairs(test, times, unit, found);
}

/// Finds measured time that was split between two bricks.
fn pairs(test: &Test, times: &[Vec<u64>], unit: f64, found: &mut Findings) {
    let mut longest: Vec<usize> = (0..times.len()).collect();
    longest.sort_by_key(|&brick| std::cmp::Reverse(times[brick].first().copied()));
    longest.truncate(PAIRS_OF);
    for (i, &long) in longest.iter().enumerate() {
        for &short in &longest[i + 1..] {
            let Some((ratio, chance)) = constant_share(&times[short], &times[long], unit) else {
                continue;
            };
            // A higher bar, since there are many pairs.
            if chance >= SHARE_BY_CHANCE + 2.0 {
                found.refuse(
                    Code::DerivedTimes,
                    format!(
                        "{} took {ratio:.4} times as long as {} in every measured sample of test {}: \
                         one total was split between them",
                        said(&test.bricks[short].name),
                        said(&test.bricks[long].name),
                        said(&test.name)
                    ),
                );
            }
        }
    }
}

/// The share of `totals` that all of `parts` have, if one share explains them up to rounding to whole
/// nanoseconds; and how unlikely that is by chance, as a power of ten.
fn constant_share(parts: &[u64], totals: &[u64], unit: f64) -> Option<(f64, f64)> {
    // The shares that each sample allows: with a part of one more or less, and a total likewise.
    let (mut least, mut most) = (0.0_f64, f64::INFINITY);
    for (&part, &total) in parts.iter().zip(totals) {
        if part == 0 || total < 2 {
            return None;
        }
        least = least.max((part as f64 - 1.0) / (total as f64 + 1.0));
        most = most.min((part as f64 + 1.0) / (total as f64 - 1.0));
    }
    if least > most {
        return None;
    }
    let shortest = *parts.iter().min()?;
    let chance = (parts.len() - 1) as f64 * surprise(shortest, NOISE / 2.0, unit);
    Some(((least + most) / 2.0, chance))
}

/// How unlikely it is that two runs agree in all these times, as a power of ten: a time repeats to
/// within [`NOISE`], and `unit` is the smallest difference between two times.
fn surprise(ns: u64, noise: f64, unit: f64) -> f64 {
    (noise * ns as f64 / unit.max(1.0)).max(1.0).log10()
}

/// The smallest difference between two readings of the receipt's clock, in nanoseconds: as the receipt says, but no more
/// than its times show.
pub(super) fn unit(receipt: &Receipt) -> f64 {
    let shown = receipt.tests.iter().filter_map(granularity).fold(f64::INFINITY, f64::min);
    receipt.clock.resolution_ns.map_or(1.0, |ns| ns.min(shown)).max(1.0)
}

/// Finds samples whose raw times are the same to the nanosecond, so that they are one sample twice.
pub(super) fn duplicates(test: &Test, unit: f64, found: &mut Findings) {
    let name = said(&test.name);
    let mut starts = HashMap::new();
    let mut times = HashMap::new();
    for (which, sample) in test.samples.iter().enumerate() {
        if let Some(first) = starts.insert(sample.start_ns, which) {
            found.refuse(
                Code::DuplicateSample,
                format!(
                    "samples {first} and {which} of test {name} both begin at {} ns: one is there \
                     twice",
                    sample.start_ns
                ),
            );
        }
        let raw = (span(sample), &sample.pass_ns, &sample.token_ns, &sample.brick_ns);
        let Some(first) = times.insert(raw, which) else { continue };
        if surprise_of(sample, unit) >= 6.0 {
            found.refuse(
                Code::DuplicateSample,
                format!(
                    "all raw times of samples {first} and {which} of test {name} are the same to the \
                     nanosecond: one is there twice"
                ),
            );
        }
    }
}

/// The surprise of all raw times of a sample, counting dependent ones once.
fn surprise_of(sample: &Sample, unit: f64) -> f64 {
    let parts = sample.pass_ns.iter().chain(&sample.brick_ns);
    let times: f64 = parts.map(|&ns| surprise(ns, NOISE, unit)).sum();
    // Time outside of passes varies more.
    times + surprise(span(sample).saturating_sub(sample.wall_ns), 0.1, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_seen_through_rounding_and_noise_is_not_taken_for_one() {
        let walls = [3_000_123_456_u64, 3_004_567_890, 2_998_765_432, 3_010_203_040];
        for share in [0.25, 0.031_7, 0.9] {
            let parts = walls.map(|wall| (share * wall as f64) as u64);
            let (found, chance) = constant_share(&parts, &walls, 1.0).expect("it is one");
            assert!((found - share).abs() < 1e-6 && chance > 6.0, "{found} {chance}");
            // A hundred-thousandth of noise is enough.
            let mut measured = parts;
            measured[1] += measured[1] / 100_000;
            assert_eq!(constant_share(&measured, &walls, 1.0), None);
        }
        // For short times rounding explains it.
        let (_, chance) = constant_share(&[40, 41, 40], &walls[..3], 1.0).expect("by rounding");
        assert_eq!(chance, 0.0);
    }
}
