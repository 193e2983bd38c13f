//! The collectives that several ranks have in common, and how their clocks lie to each other.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::text::count;
use brickscope_profile::{Absent, Collective, CollectiveKind, MatchedBy, Ranks};

use super::matching::{Call, matched, median_and_spread, spread};

/// With fewer common collectives, no clock is aligned.
const LEAST_FOR_SHIFT: usize = 3;

/// Ends may scatter by so much of the collectives' time, or by the microseconds below.
const MOST_SCATTER: f64 = 0.2;
const LEAST_SCATTER_NS: u64 = 20_000;

/// A shift of less is none.
const LEAST_SHIFT_NS: u64 = 5_000;

/// What the ranks have in common. All indices of ranks are those of the files.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// Each with the index of a rank and the place among the collectives of that rank, the lowest rank first.
    pub(super) groups: Vec<Vec<(usize, usize)>>,
    pub(super) clocks: Vec<Clock>,
    /// The least certain way in which each rank's collectives were matched.
    pub(super) matched_by: Vec<Option<MatchedBy>>,
    /// How many collectives of each rank are in a group.
    pub(super) in_groups: Vec<u64>,
}

/// How the clock of a rank lies to that of the first.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    pub(super) shift_ns: Option<i64>,
    pub(super) spread_ns: Option<u64>,
    pub(super) absent: Option<Absent>,
}

/// The collectives of a rank, by its own clock.
fn calls(ranks: &Ranks, keys: &mut HashMap<CollectiveKind, u32>) -> Vec<Call> {
    let origin = ranks.ranks.first().map_or(0, |rank| rank.origin_ns);
    let mut of_kind: Vec<u32> = Vec::new();
    for kind in &ranks.kinds {
        let key = CollectiveKind { bytes: None, ..kind.clone() };
        let next = keys.len() as u32;
        of_kind.push(*keys.entry(key).or_insert(next));
    }
    let call = |(at, of): (usize, &Collective)| {
        let at_kind = of.kind as usize;
        Call::of((at, of), ranks.kinds.get(at_kind)?, *of_kind.get(at_kind)?, origin)
    };
    ranks.collectives.iter().enumerate().filter_map(call).collect()
}

/// Finds what the ranks have in common. The first one is the lowest.
pub(super) fn common(all: &[Ranks]) -> Common {
    let mut keys = HashMap::new();
    let calls: Vec<Vec<Call>> = all.iter().map(|ranks| calls(ranks, &mut keys)).collect();
    // The ranks that have a key; the lowest of them is what the others are matched with.
    let mut having: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (rank, of_rank) in calls.iter().enumerate() {
        for call in of_rank {
            let ranks = having.entry(call.key).or_default();
            if ranks.last() != Some(&rank) {
                ranks.push(rank);
            }
        }
    }
    let mut common = Common {
        clocks: vec![Clock::default(); all.len()],
        matched_by: vec![None; all.len()],
        in_groups: vec![0; all.len()],
        ..Common::default()
    };
    // By the lowest rank and the place there.
    let mut groups: BTreeMap<(usize, usize), Vec<(usize, usize)>> = BTreeMap::new();
    // What ends are apart, and how long the collectives took.
    let mut apart: BTreeMap<(usize, usize), Vec<(i64, i64)>> = BTreeMap::new();
    for lowest in 0..all.len() {
        for other in lowest + 1..all.len() {
            let is_between = |call: &&Call| {
                having
                    .get(&call.key)
                    .is_some_and(|ranks| ranks.first() == Some(&lowest) && ranks.contains(&other))
            };
            let of = |rank: usize| -> Vec<Call> {
                calls[rank].iter().filter(is_between).copied().collect()
            };
            let (of_lowest, of_other) = (of(lowest), of(other));
            if of_lowest.is_empty() {
                continue;
            }
            let found = matched(&of_lowest, &of_other);
            for rank in [lowest, other] {
                common.matched_by[rank] = common.matched_by[rank].max(found.by);
            }
            let by_place = |calls: &[Call]| -> HashMap<usize, Call> {
                calls.iter().map(|call| (call.at, *call)).collect()
            };
            let (of_lowest, of_other) = (by_place(&of_lowest), by_place(&of_other));
            for (a, b) in found.pairs {
                groups.entry((lowest, a)).or_insert_with(|| vec![(lowest, a)]).push((other, b));
                if let (Some(a), Some(b)) = (of_lowest.get(&a), of_other.get(&b))
                    && a.ends_at_once
                {
                    let time = a.end.saturating_sub(a.start).min(b.end.saturating_sub(b.start));
                    let ends = a.end.saturating_sub(b.end);
                    apart.entry((lowest, other)).or_default().push((ends, time));
                }
            }
        }
    }
    common.groups = groups.into_values().collect();
    for &(rank, _) in common.groups.iter().flatten() {
        common.in_groups[rank] += 1;
    }
    align(&apart, &mut common.clocks);
    common
}

/// Brings the clocks to the first one: by what a rank has in common with it, or with another one whose clock is known.
fn align(apart: &BTreeMap<(usize, usize), Vec<(i64, i64)>>, clocks: &mut [Clock]) {
    if let Some(first) = clocks.first_mut() {
        (first.shift_ns, first.spread_ns) = (Some(0), Some(0));
    }
    loop {
        let mut has_changed = false;
        for rank in 1..clocks.len() {
            if clocks[rank].shift_ns.is_some() || clocks[rank].absent.is_some() {
                continue;
            }
            let (mut ends, mut times, mut by) = (Vec::new(), Vec::new(), 0);
            for (&(a, b), pairs) in apart {
                // What is to be added to this rank's times.
                let (other, sign) = match (a == rank, b == rank) {
                    (true, _) => (b, -1),
                    (_, true) => (a, 1),
                    _ => continue,
                };
                let Clock { shift_ns: Some(shift), spread_ns, .. } = clocks[other] else {
                    continue;
                };
                by = by.max(spread_ns.unwrap_or(0));
                ends.extend(
                    pairs.iter().map(|(ends, _)| ends.saturating_mul(sign).saturating_add(shift)),
                );
                times.extend(pairs.iter().map(|&(_, time)| time));
            }
            if ends.is_empty() {
                continue;
            }
            clocks[rank] = clock(ends, times, by);
            has_changed = true;
        }
        if !has_changed {
            break;
        }
    }
    for clock in clocks.iter_mut().filter(|of| of.shift_ns.is_none() && of.absent.is_none()) {
        clock.absent = absent("it has no collective in common with a rank whose clock is known");
    }
}

fn absent(reason: impl Into<String>) -> Option<Absent> {
    Some(Absent { reason: reason.into() })
}

/// The clock of a rank by what the ends of its collectives are apart from those of other ranks; `by` is what is unsure of
/// theirs.
fn clock(ends: Vec<i64>, mut times: Vec<i64>, by: u64) -> Clock {
    if ends.len() < LEAST_FOR_SHIFT {
        let n = count(ends.len() as u64, "collective");
        let reason = format!("it has {n} in common with others: too few");
        return Clock { absent: absent(reason), ..Clock::default() };
    }
    let middle = times.len() / 2;
    let time = *times.select_nth_unstable(middle).1;
    let Some((shift, scatter)) = median_and_spread(ends.clone()) else { return Clock::default() };
    let most = ((time as f64 * MOST_SCATTER) as u64).max(LEAST_SCATTER_NS);
    if scatter > most {
        let us = |ns: u64| ns as f64 / 1e3;
        let reason = format!(
            "the ends of common collectives are {:.1} µs apart from what a shift of the clock explains, and these take \
             {:.1} µs",
            us(scatter),
            us(time.unsigned_abs())
        );
        return Clock { absent: absent(reason), ..Clock::default() };
    }
    let (shift, scatter) = match shift.unsigned_abs() <= scatter.max(LEAST_SHIFT_NS) {
        // One clock, as far as it can be told.
        true => (0, spread(ends.into_iter(), 0)),
        false => (shift, scatter),
    };
    Clock { shift_ns: Some(shift), spread_ns: Some(scatter.saturating_add(by)), absent: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks(n: usize, apart: &[((usize, usize), &[i64])]) -> Vec<Clock> {
        let of = |&(pair, ends): &((usize, usize), &[i64])| {
            (pair, ends.iter().map(|&ends| (ends, 100_000)).collect())
        };
        let apart: BTreeMap<(usize, usize), Vec<(i64, i64)>> = apart.iter().map(of).collect();
        let mut clocks = vec![Clock::default(); n];
        align(&apart, &mut clocks);
        clocks
    }

    #[test]
    fn a_clock_is_shifted_by_the_median_if_ends_scatter_little() {
        let of = clocks(2, &[((0, 1), &[5_000_000, 5_001_000, 4_998_000])]);
        assert_eq!((of[0].shift_ns, of[1].shift_ns), (Some(0), Some(5_000_000)));
        assert_eq!(of[1].spread_ns, Some(2_000));
        let of = clocks(2, &[((0, 1), &[3_000, 4_000, 3_500])]);
        assert_eq!((of[1].shift_ns, of[1].spread_ns), (Some(0), Some(4_000)));
    }

    #[test]
    fn a_clock_of_too_few_or_of_scattered_ends_is_not() {
        for ends in [&[5_000_000, 5_000_000][..], &[5_000_000, 5_900_000, 4_000_000], &[]] {
            let of = clocks(2, &[((0, 1), ends)]);
            assert_eq!(of[1].shift_ns, None, "{ends:?}");
            assert!(of[1].absent.is_some());
        }
    }

    #[test]
    fn a_clock_is_brought_to_the_first_by_way_of_another_rank() {
        let ends = |by: i64| [by, by, by];
        let of = clocks(3, &[((1, 2), &ends(-2_000_000)), ((0, 2), &ends(3_000_000))]);
        // The ends of rank 2 are 3 ms before those of rank 0, and 2 ms behind those of rank 1.
        assert_eq!(of[2].shift_ns, Some(3_000_000));
        assert_eq!(of[1].shift_ns, Some(5_000_000));
    }
}
