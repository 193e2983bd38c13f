//! Do samples agree with spans? Compares the shares of bricks by both, on the threads that ran the passes.

use std::collections::{BTreeMap, HashMap};

use brickscope::stats::student;
use brickscope::{Absent, NameKind, Profile};
use brickscope_analysis::stacks::UNATTRIBUTED;

use super::join::chain;
use super::summary::{Agreement, Compared};
use super::timeline::{Known, Place};

/// The confidence of a whole table: one table in this many exceeds the allowed differences by chance.
const TABLES: f64 = 100.0;

/// If undisturbed passes have this many samples, the disturbed ones are left out.
const ENOUGH: u64 = 1000;

/// Compares samples, each with its place and weight, with the spans of the same passes. Disturbed
/// passes are left out if there are enough others: while a thread waits for its core, its spans go on
/// and its samples don't.
pub(super) fn of(
    profile: &Profile,
    known: &[Known],
    samples: impl Iterator<Item = (Place, u64)>,
) -> Result<Agreement, Absent> {
    let absent = |reason: String| Err(Absent { reason });
    // By pass, so that only passes that were both sampled and measured are compared.
    let mut by_pass: BTreeMap<usize, HashMap<Option<u16>, u64>> = BTreeMap::new();
    for (place, weight) in samples {
        let Some(pass) = place.pass.filter(|&pass| known[pass] == Known::Whole) else { continue };
        let brick = innermost_brick(profile, place.span);
        *by_pass.entry(pass).or_default().entry(brick).or_default() += weight;
    }
    let (Some((&first, _)), Some((&last, _))) =
        (by_pass.first_key_value(), by_pass.last_key_value())
    else {
        return absent("no sample lies in a pass with a known time for each brick".to_owned());
    };
    let is_quiet = |pass: usize| !profile.passes[pass].is_disturbed();
    let quiet = by_pass.iter().filter(|(pass, _)| is_quiet(**pass));
    let quiet: u64 = quiet.flat_map(|(_, bricks)| bricks.values()).sum();
    let only_quiet = quiet >= ENOUGH;
    let is_compared = |pass: usize| {
        let is_known = known[pass] == Known::Whole && (first..=last).contains(&pass);
        is_known && (is_quiet(pass) || !only_quiet)
    };

    let numbers: HashMap<u32, usize> =
        profile.passes.iter().zip(0..).map(|(pass, index)| (pass.serial, index)).collect();
    // Nanoseconds and samples of each brick of each phase; `None` is what is unattributed.
    let mut rows: BTreeMap<(u8, Option<u16>), (u64, u64)> = BTreeMap::new();
    let mut walls = [0_u64; brickscope::Phase::ALL.len()];
    let mut counts = [0_u64; brickscope::Phase::ALL.len()];
    for (index, pass) in profile.passes.iter().enumerate().filter(|(index, _)| is_compared(*index))
    {
        let phase = pass.phase as u8;
        walls[usize::from(phase)] = walls[usize::from(phase)].saturating_add(pass.wall_ns);
        let row = rows.entry((phase, None)).or_default();
        row.0 = row.0.saturating_add(pass.unattributed_ns);
        for (&brick, &weight) in by_pass.get(&index).into_iter().flatten() {
            rows.entry((phase, brick)).or_default().1 += weight;
            counts[usize::from(phase)] += weight;
        }
    }
    for span in &profile.spans {
        let pass = span.pass.and_then(|pass| numbers.get(&pass)).copied();
        let Some(pass) = pass.filter(|&pass| is_compared(pass)) else { continue };
        let Some(name) = span.name else { continue };
        let is_brick = |name: u16| {
            profile.names.get(usize::from(name)).is_some_and(|name| name.kind == NameKind::Brick)
        };
        if is_brick(name) {
            let row = rows.entry((profile.passes[pass].phase as u8, Some(name))).or_default();
            row.0 = row.0.saturating_add(span.exclusive_ns);
        }
    }
    let alpha = 1.0 / (TABLES * rows.len() as f64);
    let bricks = rows
        .into_iter()
        .filter_map(|((phase, brick), (nanos, samples))| {
            let (wall, count) = (walls[usize::from(phase)], counts[usize::from(phase)]);
            if wall == 0 || count == 0 {
                return None;
            }
            let measured = (nanos as f64 / wall as f64).clamp(0.0, 1.0);
            let sampled = samples as f64 / count as f64;
            // Sorted by the measured share, which is exact.
            let allowed = allowed(measured, count, alpha);
            let brick = match brick {
                None => UNATTRIBUTED.to_owned(),
                Some(name) => profile.names[usize::from(name)].name.clone(),
            };
            let phase = brickscope::Phase::ALL[usize::from(phase)];
            Some(Compared { phase, brick, measured, sampled, allowed })
        })
        .collect();
    let disturbed = (0..known.len()).any(|pass| is_compared(pass) && !is_quiet(pass));
    Ok(Agreement { samples: counts.iter().sum(), disturbed, bricks })
}

/// The difference from `share` that the share of `count` samples exceeds with probability `alpha` at
/// most, if each sample has the chance `share`: the longer tail of the binomial distribution.
fn allowed(share: f64, count: u64, alpha: f64) -> f64 {
    let above = |share: f64| {
        // The smallest number of samples that is too many.
        let (mut low, mut high) = ((share * count as f64) as u64, count + 1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if student::binomial_at_least(middle, count, share) <= alpha / 2.0 {
                high = middle;
            } else {
                low = middle;
            }
        }
        (high - 1) as f64 / count as f64 - share
    };
    // Too few hits are too many misses.
    above(share).max(above(1.0 - share))
}

fn innermost_brick(profile: &Profile, span: Option<u32>) -> Option<u16> {
    let is_brick = |name: &u16| {
        profile.names.get(usize::from(*name)).is_some_and(|name| name.kind == NameKind::Brick)
    };
    chain(profile, span)
        .into_iter()
        .rev()
        .filter_map(|span| profile.spans[span as usize].name)
        .find(is_brick)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_holds_for_rare_bricks_too() {
        // Of a hundred thousand samples with a chance of a millionth each, P(X >= 3) is 1.5e-4 and P(X >= 2)
        // is 4.7e-3: 2 are allowed at 1e-3, 3 are not.
        let of_rare = allowed(1e-6, 100_000, 1e-3) + 1e-6;
        assert!((of_rare * 100_000.0 - 2.0).abs() < 1e-6, "{of_rare}");
        // With many samples it approaches the normal distribution.
        let of_many = allowed(0.25, 10_000, 0.01);
        assert!(
            (of_many / (2.5758 * (0.25 * 0.75 / 1e4_f64).sqrt()) - 1.0).abs() < 0.02,
            "{of_many}"
        );
        // Both tails, and the extremes.
        assert!((allowed(0.9, 1000, 0.01) - allowed(0.1, 1000, 0.01)).abs() < 1e-9);
        assert_eq!(allowed(0.0, 1000, 0.01), 0.0);
        assert_eq!(allowed(1.0, 1000, 0.01), 0.0);
    }
}
