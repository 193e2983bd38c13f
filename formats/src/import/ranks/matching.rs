//! Which collectives of two ranks are the same one.
//!
//! A number in the group, which newer files state, tells it. Otherwise the two clocks are tried at the shifts at which many
//! collectives end at once, since a collective ends on all of its ranks at nearly the same time: at the right one, either both
//! ranks have equally many of a kind and each meets its like in their order, or those are the same that end at once. What is
//! neither stays alone. Where several shifts fit as well, as in work that repeats, none is taken.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::{Collective, CollectiveKind, MatchedBy};

/// A collective on one rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    /// The operation and its group.
    pub(super) key: u32,
    pub(super) number: Option<u64>,
    /// The bytes that a rank puts in, where all ranks put in as many.
    pub(super) bytes: Option<u64>,
    /// Whether its end tells of the clocks: those of a rank with a part of its own may come sooner.
    pub(super) ends_at_once: bool,
    /// By the clock of its file.
    pub(super) start: i64,
    pub(super) end: i64,
    /// Its place among the collectives of its rank.
    pub(super) at: usize,
}

impl Call {
    /// The call of a collective on its first rank, by a clock that began then. `None` if it isn't known when it began.
    pub(super) fn of(
        (at, of): (usize, &Collective),
        kind: &CollectiveKind,
        key: u32,
        origin: i64,
    ) -> Option<Self> {
        let on = of.on.first()?;
        let start = origin.saturating_add_unsigned(on.start_ns?);
        // Of some operations, ranks put in as much as each has.
        let is_even = ["all_reduce", "broadcast", "reduce"].contains(&&*kind.name);
        Some(Self {
            key,
            number: of.number,
            bytes: kind.bytes.filter(|_| is_even),
            ends_at_once: !kind.has_root(),
            start,
            end: start.saturating_add_unsigned(on.duration_ns),
            at,
        })
    }
}

/// Which of two ranks' collectives are the same.
#[derive(Debug, Default)]
pub(super) struct Matched {
    /// Places on the one and the other.
    pub(super) pairs: Vec<(usize, usize)>,
    /// The least certain way that was needed.
    pub(super) by: Option<MatchedBy>,
}

/// Ends of one collective are within this part of its time, but for the bounds below.
const PART_OF_TIME: i64 = 10;
const LEAST_APART_NS: i64 = 10_000;
const MOST_APART_NS: i64 = 1_000_000;

/// Clocks within this of each other are one clock: that of a machine.
const ONE_CLOCK_NS: u64 = 20_000;

/// By so much may a collective seem to end before it has begun elsewhere.
const SLACK_NS: i64 = 20_000;

/// Shifts that are looked at, and by how much the ends that speak for one may differ.
const MOST_SHIFTS: usize = 16;
const WINDOW_NS: i64 = 40_000;

/// The most differences of ends of which the likely shifts are found.
const MOST_DIFFERENCES: usize = 1 << 20;

/// Fewer collectives that end at once are chance.
pub(super) const LEAST_AT_ONCE: usize = 4;

/// Places in the calls of both ranks, of one key.
pub(super) struct Key {
    pub(super) a: Vec<usize>,
    pub(super) b: Vec<usize>,
}

/// A shift of the second rank's clock, and what speaks for it.
#[derive(Debug, Clone)]
struct Shift {
    ns: i64,
    pairs: usize,
    spread_ns: u64,
    /// Whether it is that of the calls in their order.
    is_of_order: bool,
}

/// Finds the collectives that are the same on two ranks.
pub(super) fn matched(a: &[Call], b: &[Call]) -> Matched {
    let mut keys: BTreeMap<u32, Key> = BTreeMap::new();
    for (at, call) in a.iter().enumerate() {
        keys.entry(call.key).or_insert_with(|| Key { a: Vec::new(), b: Vec::new() }).a.push(at);
    }
    for (at, call) in b.iter().enumerate() {
        if let Some(key) = keys.get_mut(&call.key) {
            key.b.push(at);
        }
    }
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut by = None;
    let mut rest: Vec<Key> = Vec::new();
    for mut key in keys.into_values().filter(|key| !key.b.is_empty()) {
        let is_numbered =
            |calls: &[Call], of: &[usize]| of.iter().all(|&at| calls[at].number.is_some());
        if is_numbered(a, &key.a) && is_numbered(b, &key.b) {
            found.extend(by_number(a, b, &key));
            by = by.max(Some(MatchedBy::Number));
            continue;
        }
        key.a.sort_by_key(|&at| (a[at].start, a[at].end));
        key.b.sort_by_key(|&at| (b[at].start, b[at].end));
        rest.push(key);
    }
    let known = shift_of(a, b, &found).map(|(ns, _)| ns);
    let shift = known.or_else(|| likeliest(a, b, &rest));
    if let Some(shift) = shift {
        for key in &rest {
            let (pairs, how) = match in_order(a, b, key, Some(shift)) {
                Some(pairs) => (pairs, MatchedBy::Order),
                None => (at_once(a, b, key, shift), MatchedBy::Ends),
            };
            if !pairs.is_empty() {
                by = by.max(Some(how));
            }
            found.extend(pairs);
        }
    }
    if found.is_empty() {
        return Matched::default();
    }
    let pairs = found.into_iter().map(|(i, j)| (a[i].at, b[j].at)).collect();
    Matched { pairs, by }
}

/// Pairs with one number; of a number that is there several times, as of operations that were put together, in their order.
pub(super) fn by_number(a: &[Call], b: &[Call], key: &Key) -> Vec<(usize, usize)> {
    let mut of_number: HashMap<Option<u64>, (Vec<usize>, Vec<usize>)> = HashMap::new();
    for &at in &key.a {
        of_number.entry(a[at].number).or_default().0.push(at);
    }
    for &at in &key.b {
        of_number.entry(b[at].number).or_default().1.push(at);
    }
    let alike = of_number.into_values().filter(|(of_a, of_b)| of_a.len() == of_b.len());
    let mut pairs: Vec<(usize, usize)> = alike
        .flat_map(|(mut of_a, mut of_b)| {
            of_a.sort_by_key(|&at| a[at].start);
            of_b.sort_by_key(|&at| b[at].start);
            of_a.into_iter().zip(of_b)
        })
        .collect();
    pairs.sort_unstable();
    pairs
}

/// Whether two calls may be one by their sizes.
fn is_alike(a: &Call, b: &Call) -> bool {
    a.bytes.zip(b.bytes).is_none_or(|(a, b)| a == b)
}

/// The calls of a key in their order, if both ranks have equally many, and each has begun on both ranks before it ends on one.
pub(super) fn in_order(
    a: &[Call],
    b: &[Call],
    key: &Key,
    shift: Option<i64>,
) -> Option<Vec<(usize, usize)>> {
    if key.a.len() != key.b.len() {
        return None;
    }
    let pairs: Vec<(usize, usize)> = key.a.iter().copied().zip(key.b.iter().copied()).collect();
    let fits = |&(i, j): &(usize, usize)| {
        let (a, b) = (&a[i], &b[j]);
        let meets = |shift: i64| {
            let (start, end) = (b.start.saturating_add(shift), b.end.saturating_add(shift));
            a.start <= end.saturating_add(SLACK_NS) && start <= a.end.saturating_add(SLACK_NS)
        };
        is_alike(a, b) && shift.is_none_or(meets)
    };
    pairs.iter().all(fits).then_some(pairs)
}

/// Whether two calls may be one by their sizes and ends.
pub(super) fn is_at_once(a: &Call, b: &Call, shift: i64) -> bool {
    let time = a.end.saturating_sub(a.start).min(b.end.saturating_sub(b.start));
    let most = (time / PART_OF_TIME).clamp(LEAST_APART_NS, MOST_APART_NS);
    let apart = b.end.saturating_add(shift).abs_diff(a.end);
    is_alike(a, b) && apart <= most.unsigned_abs()
}

/// The calls of a key that end at once.
pub(super) fn at_once(a: &[Call], b: &[Call], key: &Key, shift: i64) -> Vec<(usize, usize)> {
    let end = |at: usize| b[at].end.saturating_add(shift);
    let apart_of = |i: usize, j: usize| end(j).abs_diff(a[i].end);
    let (mut of_a, mut of_b) = (key.a.clone(), key.b.clone());
    of_a.sort_by_key(|&at| a[at].end);
    of_b.sort_by_key(|&at| b[at].end);
    let mut pairs = Vec::new();
    let mut next = 0;
    for i in of_a {
        let call = &a[i];
        // The nearest end is one of those around the place where this one would be.
        let place = of_b.partition_point(|&j| end(j) < call.end);
        let near = place.saturating_sub(2).max(next)..(place + 2).min(of_b.len()).max(next);
        let apart = |at: &usize| apart_of(i, of_b[*at]);
        let fits = |at: &usize| is_at_once(call, &b[of_b[*at]], shift);
        if let Some(nearest) = near.filter(fits).min_by_key(apart) {
            pairs.push((i, of_b[nearest]));
            next = nearest + 1;
        }
    }
    pairs
}

/// What has to be added to the second rank's times for the ends of these pairs to be at once, the median, and by how much
/// nine tenths of them miss it. `None` without a pair whose ends tell.
fn shift_of(a: &[Call], b: &[Call], pairs: &[(usize, usize)]) -> Option<(i64, u64)> {
    let ends = pairs.iter().filter(|&&(i, _)| a[i].ends_at_once);
    median_and_spread(ends.map(|&(i, j)| a[i].end.saturating_sub(b[j].end)).collect())
}

/// The median of some differences, and by how much nine tenths of them miss it at most.
pub(super) fn median_and_spread(mut differences: Vec<i64>) -> Option<(i64, u64)> {
    let middle = differences.len().checked_sub(1)? / 2;
    let median = *differences.select_nth_unstable(middle).1;
    Some((median, spread(differences.into_iter(), median)))
}

/// By how much nine tenths of some differences miss one at most.
pub(super) fn spread(differences: impl Iterator<Item = i64>, from: i64) -> u64 {
    let mut off: Vec<u64> = differences.map(|difference| difference.abs_diff(from)).collect();
    off.sort_unstable();
    let nine_tenths = (off.len() * 9).div_ceil(10).saturating_sub(1);
    off.get(nine_tenths).copied().unwrap_or_default()
}

/// The shift of the second rank's clock for which the most speaks. `None` if nothing does, or as much for another one.
fn likeliest(a: &[Call], b: &[Call], keys: &[Key]) -> Option<i64> {
    let fewer = keys.iter().map(|key| key.a.len().min(key.b.len())).sum::<usize>();
    // In their order, if that is known of all.
    let ordered: Option<Vec<(usize, usize)>> = keys
        .iter()
        .map(|key| in_order(a, b, key, None))
        .collect::<Option<Vec<_>>>()
        .map(|pairs| pairs.concat());
    let ordered = ordered.and_then(|pairs| {
        let (ns, spread_ns) = shift_of(a, b, &pairs)?;
        let fits = keys.iter().all(|key| in_order(a, b, key, Some(ns)).is_some());
        // Files that begin and end elsewhere may have equally many, too: only ends that meet speak for it.
        let meet = |&&(i, j): &&(usize, usize)| is_at_once(&a[i], &b[j], ns);
        let pairs = pairs.iter().filter(meet).count();
        fits.then_some(Shift { ns, pairs, spread_ns, is_of_order: true })
    });
    let mut shifts: Vec<Shift> = Vec::new();
    for ns in votes(a, b, keys) {
        // Once more, around the median of those that it finds.
        let pairs_at = |ns| keys.iter().flat_map(move |key| at_once(a, b, key, ns));
        let first: Vec<(usize, usize)> = pairs_at(ns).collect();
        let Some((ns, _)) = shift_of(a, b, &first) else { continue };
        let pairs: Vec<(usize, usize)> = pairs_at(ns).collect();
        let Some((ns, spread_ns)) = shift_of(a, b, &pairs) else { continue };
        if pairs.len() >= LEAST_AT_ONCE.min(fewer.max(2)) && pairs.len() * 3 >= fewer {
            shifts.push(Shift { ns, pairs: pairs.len(), spread_ns, is_of_order: false });
        }
    }
    shifts.extend(ordered);
    choose(shifts)
}

/// Of the shifts for which nearly the most collectives speak: that of one clock, or that of their order, or the one at which
/// ends scatter far less than at any other.
fn choose(shifts: Vec<Shift>) -> Option<i64> {
    let most = shifts.iter().map(|shift| shift.pairs).max()?;
    let mut likely: Vec<Shift> =
        shifts.into_iter().filter(|shift| shift.pairs * 10 >= most * 9).collect();
    likely.sort_by_key(|shift| (shift.spread_ns, !shift.is_of_order, shift.ns.unsigned_abs()));
    let first = likely.first()?;
    let least = first.spread_ns.max(1_000);
    let is_sharp = |shift: &&Shift| shift.spread_ns <= least.saturating_mul(4);
    let is_one_clock = |shift: &&Shift| shift.ns.unsigned_abs() <= ONE_CLOCK_NS;
    if let Some(one) = likely.iter().filter(is_sharp).find(is_one_clock) {
        return Some(one.ns);
    }
    if let Some(ordered) = likely.iter().filter(is_sharp).find(|shift| shift.is_of_order) {
        return Some(ordered.ns);
    }
    let other = likely.iter().find(|shift| shift.ns.abs_diff(first.ns) > WINDOW_NS.unsigned_abs());
    other
        .is_none_or(|other| {
            other.spread_ns >= least.saturating_mul(2) || other.pairs * 2 <= first.pairs
        })
        .then_some(first.ns)
}

/// The shifts at which many ends of a kind meet, and none.
fn votes(a: &[Call], b: &[Call], keys: &[Key]) -> Vec<i64> {
    let all: usize = keys.iter().map(|key| key.b.len()).sum();
    let each = (MOST_DIFFERENCES / all.max(1)).clamp(1, 32);
    let mut differences: Vec<i64> = Vec::new();
    for key in keys {
        let step = key.a.len().div_ceil(each).max(1);
        for &i in key.a.iter().step_by(step).filter(|&&i| a[i].ends_at_once) {
            let room = MOST_DIFFERENCES.saturating_sub(differences.len());
            let of_b = key.b.iter().take(room);
            differences.extend(of_b.map(|&j| a[i].end.saturating_sub(b[j].end)));
        }
    }
    differences.sort_unstable();
    // Each window with as many differences as it has.
    let mut windows: Vec<(usize, i64)> = Vec::new();
    let mut last = 0;
    for (first, &from) in differences.iter().enumerate() {
        last = last.max(first);
        while differences.get(last).is_some_and(|&to| to.saturating_sub(from) <= WINDOW_NS) {
            last += 1;
        }
        windows.push((last - first, differences[first + (last - first - 1) / 2]));
    }
    windows.sort_by_key(|&(n, middle)| (std::cmp::Reverse(n), middle.unsigned_abs()));
    let mut shifts = vec![0];
    for (_, middle) in windows {
        if shifts.len() > MOST_SHIFTS {
            break;
        }
        let is_far = |shift: &i64| shift.abs_diff(middle) > WINDOW_NS.unsigned_abs();
        // That of one clock is looked at beside one that is near to it.
        if shifts.iter().skip(1).all(is_far) {
            shifts.push(middle);
        }
    }
    shifts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(times: &[(i64, i64)], shift: i64) -> Vec<Call> {
        let call = |(at, &(start, end)): (usize, &(i64, i64))| Call {
            key: 0,
            number: None,
            bytes: None,
            ends_at_once: true,
            start: start + shift,
            end: end + shift,
            at,
        };
        times.iter().enumerate().map(call).collect()
    }

    /// Collectives of 100 µs that don't come at regular times.
    fn irregular(n: i64) -> Vec<(i64, i64)> {
        (0..n)
            .map(|k| k * 700_000 + (k * k * 37_777) % 300_000)
            .map(|at| (at, at + 100_000))
            .collect()
    }

    #[test]
    fn numbers_tell_whatever_the_clocks_say() {
        let (mut a, mut b) = (calls(&irregular(4), 0), calls(&irregular(4), 1 << 40));
        for (at, call) in a.iter_mut().enumerate() {
            call.number = Some(10 + at as u64);
        }
        for (at, call) in b.iter_mut().enumerate() {
            call.number = Some(11 + at as u64);
        }
        let found = matched(&a, &b);
        assert_eq!(found.pairs, [(1, 0), (2, 1), (3, 2)]);
        assert_eq!(found.by, Some(MatchedBy::Number));
    }

    #[test]
    fn equally_many_are_the_same_in_their_order() {
        let found = matched(&calls(&irregular(9), 0), &calls(&irregular(9), 5_000_000));
        assert_eq!(found.pairs, (0..9).map(|at| (at, at)).collect::<Vec<_>>());
        assert_eq!(found.by, Some(MatchedBy::Order));
    }

    #[test]
    fn of_what_one_rank_lacks_the_others_are_found_by_their_ends() {
        let mut short = irregular(12);
        short.remove(4);
        let found = matched(&calls(&irregular(12), 0), &calls(&short, -5_000_000));
        let expected: Vec<(usize, usize)> =
            (0..12).filter(|&at| at != 4).map(|at| (at, at - usize::from(at > 4))).collect();
        assert_eq!(found.pairs, expected);
        assert_eq!(found.by, Some(MatchedBy::Ends));
    }

    #[test]
    fn equally_many_that_can_not_have_met_are_not_taken_in_their_order() {
        // Each rank lacks another one.
        let (mut a, mut b) = (irregular(12), irregular(12));
        a.remove(2);
        b.remove(9);
        let found = matched(&calls(&a, 0), &calls(&b, 3_000));
        // In the order of all: 0 and 1, then one further on the second rank, up to the one that it lacks, then alike.
        let expected: Vec<(usize, usize)> = (0..2)
            .map(|at| (at, at))
            .chain((2..8).map(|at| (at, at + 1)))
            .chain((9..11).map(|at| (at, at)))
            .collect();
        assert_eq!(found.pairs, expected);
        assert_eq!(found.by, Some(MatchedBy::Ends));
    }

    #[test]
    fn equally_many_of_files_that_begin_and_end_elsewhere_are_found_by_their_ends() {
        let all = irregular(9);
        let found = matched(&calls(&all[1..], 0), &calls(&all[..8], 4_000_000));
        assert_eq!(found.pairs, (0..7).map(|at| (at, at + 1)).collect::<Vec<_>>());
        assert_eq!(found.by, Some(MatchedBy::Ends));
    }

    #[test]
    fn in_work_that_repeats_nothing_is_guessed() {
        let regular: Vec<(i64, i64)> =
            (0..20).map(|k| (k * 1_000_000, k * 1_000_000 + 100_000)).collect();
        let found = matched(&calls(&regular, 0), &calls(&regular[1..19], 7_300_000));
        assert!(found.pairs.is_empty(), "{found:?}");
        // Of one machine, its clock tells.
        let found = matched(&calls(&regular, 0), &calls(&regular[1..19], 2_000));
        assert_eq!(found.pairs, (0..18).map(|at| (at + 1, at)).collect::<Vec<_>>());
    }

    #[test]
    fn other_sizes_are_other_collectives() {
        let (mut a, b) = (calls(&irregular(8), 0), calls(&irregular(8), 0));
        let with = |mut calls: Vec<Call>| {
            calls.iter_mut().for_each(|call| call.bytes = Some(64));
            calls
        };
        a.iter_mut().for_each(|call| call.bytes = Some(32));
        assert!(matched(&a, &with(b.clone())).pairs.is_empty());
        assert_eq!(matched(&with(a), &with(b)).pairs.len(), 8);
    }

    #[test]
    fn times_at_the_ends_of_the_axis_do_no_harm() {
        let ends = [(i64::MIN, i64::MIN), (i64::MIN, i64::MAX), (i64::MAX, i64::MAX)];
        for b in [&ends[..], &ends[1..], &ends[..1], &[]] {
            matched(&calls(&ends, 0), &calls(b, 0));
        }
    }
}
