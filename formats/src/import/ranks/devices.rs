//! What several devices of one file have in common. They have one clock, so nothing is shifted.
//!
//! Where the file states the group of a collective, its number tells which it is, or the order in which all of the group could
//! have met. Else any two streams are compared that do the same operation, since each device numbers its own: those whose
//! collectives end at once are of one group. What isn't sure stays alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use brickscope_profile::text::count;
use brickscope_profile::{Collective, CollectiveKind, MatchedBy, OnRank, Rank, Ranks};

use super::matching::{
    Call, Key, LEAST_AT_ONCE, at_once, by_number, in_order, is_at_once, median_and_spread,
};

/// What a group is called that the file doesn't state, before the number of the stream.
pub(in crate::import) const STREAM: &str = "stream ";

/// If an operation has more sequences than this, they aren't compared. A server has one for each device and group.
const MOST_SEQUENCES: usize = 256;

/// Ends on a device of another group scatter more than this many times as much as on one of the same group.
const FAR: u64 = 4;
const LEAST_SCATTER_NS: u64 = 1_000;

/// The collectives of a device that come one after the other: those of an operation and a group, or of a stream.
struct Sequence {
    device: u32,
    calls: Vec<Call>,
}

/// Sequences that may be of one group, by their devices.
struct Alike {
    /// Whether the file states that they are.
    is_stated: bool,
    sequences: Vec<Sequence>,
}

/// Which calls of two sequences are the same.
struct Met {
    /// Places in the calls of both.
    pairs: Vec<(usize, usize)>,
    by: MatchedBy,
    /// By how much nine tenths of the ends miss what they are apart at most.
    scatter_ns: u64,
}

/// Calls by device and by stream or group.
type ByStream<'r> = BTreeMap<(u32, &'r str), Vec<Call>>;

/// What devices did together.
struct Together {
    /// What to call the group, if the file doesn't state it.
    group: Option<String>,
    devices: Vec<(u32, MatchedBy)>,
    /// Places among all collectives, those of the first device first.
    collectives: Vec<Vec<usize>>,
}

/// Puts collectives together that are one. Each is on one device before.
pub(in crate::import) fn of_devices(mut ranks: Ranks) -> Ranks {
    if ranks.ranks.len() < 2 {
        return ranks;
    }
    let mut joined = Ranks { left_out: ranks.left_out, ..Ranks::default() };
    let mut of_kind: HashMap<CollectiveKind, u32> = HashMap::new();
    let mut matched_by: HashMap<u32, MatchedBy> = HashMap::new();
    for together in alike(&ranks).into_iter().flat_map(groups) {
        for (device, by) in together.devices {
            let least_sure = matched_by.entry(device).or_insert(by);
            *least_sure = by.max(*least_sure);
        }
        for members in together.collectives {
            let members: Vec<&Collective> =
                members.into_iter().filter_map(|at| ranks.collectives.get(at)).collect();
            let Some(first) = members.first() else { continue };
            let Some(kind) = ranks.kinds.get(first.kind as usize) else { continue };
            let group = together.group.as_ref().unwrap_or(&kind.group).clone();
            let kind = CollectiveKind { group, ..kind.clone() };
            let kind = *of_kind.entry(kind.clone()).or_insert_with(|| {
                joined.kinds.push(kind);
                joined.kinds.len() as u32 - 1
            });
            let mut on: Vec<OnRank> = members.iter().flat_map(|of| &of.on).copied().collect();
            on.sort_by_key(|on| on.rank);
            joined.collectives.push(Collective {
                kind,
                number: first.number,
                pass: members.iter().find_map(|of| of.pass),
                layer: members.iter().find_map(|of| of.layer),
                on,
            });
        }
    }
    joined.collectives.sort_by_key(|of| of.on.first().map(|on| on.start_ns));
    let mut common: HashMap<u32, u64> = HashMap::new();
    for on in joined.collectives.iter().flat_map(|of| &of.on) {
        *common.entry(on.rank).or_default() += 1;
    }
    for row in &mut ranks.ranks {
        let n = common.get(&row.rank).copied().unwrap_or(0);
        row.unmatched = row.collectives.saturating_sub(n);
        row.matched_by = matched_by.get(&row.rank).copied();
    }
    joined.ranks = ranks.ranks;
    joined
}

/// What isn't known of the collectives of several devices of one file.
pub(in crate::import) fn unmatched(ranks: &Ranks) -> Option<String> {
    if ranks.ranks.len() < 2 {
        return None;
    }
    let sum = |of: fn(&Rank) -> u64| ranks.ranks.iter().map(of).fold(0, u64::saturating_add);
    let (alone, all) = (sum(|row| row.unmatched), sum(|row| row.collectives));
    let all = count(all, "collective");
    (alone > 0).then(|| {
        format!(
            "with which device {alone} of {all} were: neither a number nor their order or their ends tell it for sure"
        )
    })
}

/// Sequences of several devices that may be of one group.
fn alike(ranks: &Ranks) -> Vec<Alike> {
    // By what they do, then by device and, of those whose group isn't stated, by stream.
    let mut places: HashMap<CollectiveKind, usize> = HashMap::new();
    let mut all: Vec<(bool, ByStream<'_>)> = Vec::new();
    let mut place_of_kind: Vec<usize> = Vec::with_capacity(ranks.kinds.len());
    for kind in &ranks.kinds {
        let is_stated = !kind.group.starts_with(STREAM);
        let group = if is_stated { kind.group.clone() } else { String::new() };
        let what = CollectiveKind { bytes: None, group, ..kind.clone() };
        let place = *places.entry(what).or_insert(all.len());
        if place == all.len() {
            all.push((is_stated, BTreeMap::new()));
        }
        place_of_kind.push(place);
    }
    for (at, of) in ranks.collectives.iter().enumerate() {
        let (Some(kind), Some(&place), Some(on)) =
            (ranks.kinds.get(of.kind as usize), place_of_kind.get(of.kind as usize), of.on.first())
        else {
            continue;
        };
        let sequence = all[place].1.entry((on.rank, &*kind.group)).or_default();
        sequence.extend(Call::of((at, of), kind, 0, 0));
    }
    let few = all.into_iter().filter(|(_, of)| of.len() <= MOST_SEQUENCES);
    few.map(|(is_stated, of)| Alike {
        is_stated,
        sequences: of.into_iter().map(|((device, _), calls)| Sequence { device, calls }).collect(),
    })
    .collect()
}

/// The groups that sequences are of, each of the first device that is in none yet and those that did the same with it.
fn groups(alike: Alike) -> Vec<Together> {
    let Alike { is_stated, sequences: mut rest } = alike;
    let mut groups = Vec::new();
    while !rest.is_empty() {
        let first = rest.remove(0);
        // Of each other device, the sequence that fits best.
        let mut best: BTreeMap<u32, (usize, Met)> = BTreeMap::new();
        for (at, other) in rest.iter().enumerate().filter(|(_, of)| of.device != first.device) {
            let Some(met) = met(&first.calls, &other.calls, is_stated) else { continue };
            let before = best.get(&other.device);
            if before.is_none_or(|(_, before)| met.scatter_ns < before.scatter_ns) {
                best.insert(other.device, (at, met));
            }
        }
        let mut others: Vec<(usize, Met)> = best.into_values().collect();
        if !is_stated {
            others.sort_by_key(|(_, met)| met.scatter_ns);
            let scatters: Vec<u64> = others.iter().map(|(_, met)| met.scatter_ns).collect();
            others.truncate(near(&scatters));
        }
        if others.is_empty() {
            continue;
        }
        others.sort_by_key(|&(at, _)| at);
        groups.push(together(&first, &others, &rest, is_stated));
        let taken: HashSet<usize> = others.into_iter().map(|(at, _)| at).collect();
        let mut at = 0;
        rest.retain(|_| {
            at += 1;
            !taken.contains(&(at - 1))
        });
    }
    groups
}

/// How many of the first of these, which are sorted, come before one that is far from the one before it.
fn near(scatters_ns: &[u64]) -> usize {
    let is_far = |two: &[u64]| two[1] > two[0].max(LEAST_SCATTER_NS).saturating_mul(FAR);
    scatters_ns.windows(2).position(is_far).map_or(scatters_ns.len(), |last| last + 1)
}

/// Finds the calls of two sequences that are the same. `None` if that isn't sure.
fn met(a: &[Call], b: &[Call], is_stated: bool) -> Option<Met> {
    let key = Key { a: (0..a.len()).collect(), b: (0..b.len()).collect() };
    let is_numbered = |calls: &[Call]| calls.iter().all(|call| call.number.is_some());
    let (mut pairs, by) = if is_stated && is_numbered(a) && is_numbered(b) {
        (by_number(a, b, &key), MatchedBy::Number)
    } else if let Some(pairs) = in_order(a, b, &key, Some(0)) {
        (pairs, MatchedBy::Order)
    } else {
        (at_once(a, b, &key, 0), MatchedBy::Ends)
    };
    let end_at_once = |(i, j): (usize, usize)| {
        let (a, b) = (&a[i], &b[j]);
        a.ends_at_once && is_at_once(a, b, 0)
    };
    let is_sure = match by {
        MatchedBy::Number => true,
        MatchedBy::Order if is_stated => true,
        // Work of two groups overlaps by chance, but its ends don't meet.
        _ => {
            let n = pairs.iter().filter(|pair| end_at_once(**pair)).count();
            n >= LEAST_AT_ONCE && n * 10 >= a.len().min(b.len()) * 9
        }
    };
    if !is_stated {
        // A stream may have some of another group, which come at the same place of its order.
        pairs.retain(|pair| end_at_once(*pair));
    }
    let apart = |&(i, j): &(usize, usize)| a[i].end.saturating_sub(b[j].end);
    let (_, scatter_ns) = median_and_spread(pairs.iter().map(apart).collect())?;
    is_sure.then_some(Met { pairs, by, scatter_ns })
}

/// What a device and others did together. The others are places in `rest`, in their order.
fn together(
    first: &Sequence,
    others: &[(usize, Met)],
    rest: &[Sequence],
    is_stated: bool,
) -> Together {
    let mut collectives: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let by = others.iter().map(|(_, met)| met.by).max().unwrap_or(MatchedBy::Number);
    let mut devices = vec![(first.device, by)];
    for (at, met) in others {
        let other = &rest[*at];
        devices.push((other.device, met.by));
        for &(i, j) in &met.pairs {
            let members = collectives.entry(i).or_insert_with(|| vec![first.calls[i].at]);
            members.push(other.calls[j].at);
        }
    }
    let group = (!is_stated).then(|| named(&devices));
    Together { group, devices, collectives: collectives.into_values().collect() }
}

/// `devices 0-3`, or `devices 0,2,5`.
fn named(devices: &[(u32, MatchedBy)]) -> String {
    let numbers: Vec<u32> = devices.iter().map(|&(device, _)| device).collect();
    let is_row = numbers.windows(2).all(|two| two[1].checked_sub(two[0]) == Some(1));
    match &numbers[..] {
        [first, _, .., last] if is_row => format!("devices {first}-{last}"),
        _ => {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            format!("devices {}", numbers.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When collectives of 30 µs end, which come at no regular times.
    fn ends(n: u64) -> Vec<u64> {
        (0..n).map(|k| 500_000 + k * 400_000 + (k * k * 37_777) % 90_000).collect()
    }

    /// The collectives of devices, each of a kind, and which end then.
    fn ranks(kinds: &[(&str, &str)], of: &[(u32, u32, Vec<u64>)]) -> Ranks {
        let kind = |&(name, group): &(&str, &str)| CollectiveKind {
            name: name.to_owned(),
            group: group.to_owned(),
            ..CollectiveKind::default()
        };
        let mut ranks = Ranks { kinds: kinds.iter().map(kind).collect(), ..Ranks::default() };
        let mut rows: BTreeMap<u32, u64> = BTreeMap::new();
        for (device, kind, ends) in of {
            *rows.entry(*device).or_default() += ends.len() as u64;
            for &end in ends {
                // The last device comes last.
                let duration_ns = 100_000 - 10_000 * u64::from(*device);
                let start_ns = Some(end - duration_ns);
                let on = vec![OnRank { rank: *device, start_ns, duration_ns }];
                ranks.collectives.push(Collective { kind: *kind, on, ..Collective::default() });
            }
        }
        ranks.collectives.sort_by_key(|of| of.on.first().map(|on| on.start_ns));
        let row = |(rank, collectives): (u32, u64)| Rank { rank, collectives, ..Rank::default() };
        ranks.ranks = rows.into_iter().map(row).collect();
        ranks
    }

    /// The groups with their devices and numbers of collectives.
    fn found(ranks: &Ranks) -> BTreeMap<(String, Vec<u32>), usize> {
        let mut found = BTreeMap::new();
        for of in &ranks.collectives {
            let devices = of.on.iter().map(|on| on.rank).collect();
            let group = ranks.kinds[of.kind as usize].group.clone();
            *found.entry((group, devices)).or_default() += 1;
        }
        found
    }

    fn later(ends: &[u64], by: impl Fn(u64) -> u64) -> Vec<u64> {
        (0..).zip(ends).map(|(k, end)| end + by(k)).collect()
    }

    #[test]
    fn streams_that_end_at_once_are_one_group_whatever_their_numbers() {
        let all = ends(12);
        let near = later(&all, |k| k % 3 * 400);
        let kinds = [("all_reduce", "stream 7"), ("all_reduce", "stream 15")];
        let of = of_devices(ranks(&kinds, &[(0, 0, all), (1, 1, near)]));
        assert_eq!(found(&of), BTreeMap::from([(("devices 0,1".to_owned(), vec![0, 1]), 12)]));
        assert!(of.ranks.iter().all(|row| row.matched_by == Some(MatchedBy::Order)), "{of:?}");
        assert_eq!(unmatched(&of), None);
        let on = &of.collectives[0].on;
        assert_eq!((on[0].duration_ns, on[1].duration_ns), (100_000, 90_000));
    }

    #[test]
    fn two_groups_at_once_are_two() {
        let all = ends(20);
        // The second group is a few microseconds behind, and no two of its ends are as far.
        let behind = later(&all, |k| (k * 3_700) % 9_000);
        let kinds = [("all_reduce", "stream 7")];
        let of = [(0, 0, all.clone()), (1, 0, behind.clone()), (2, 0, all), (3, 0, behind)];
        let found = found(&of_devices(ranks(&kinds, &of)));
        let group = |devices: &str, of: [u32; 2]| ((format!("devices {devices}"), of.to_vec()), 20);
        assert_eq!(found, BTreeMap::from([group("0,2", [0, 2]), group("1,3", [1, 3])]));
    }

    #[test]
    fn one_that_a_device_lacks_is_counted() {
        let all = ends(12);
        let mut short = all.clone();
        short.remove(4);
        let of = of_devices(ranks(&[("all_reduce", "stream 7")], &[(0, 0, all), (1, 0, short)]));
        assert_eq!(found(&of).into_values().collect::<Vec<_>>(), [11]);
        let unmatched_of: Vec<u64> = of.ranks.iter().map(|row| row.unmatched).collect();
        assert_eq!(unmatched_of, [1, 0]);
        assert_eq!(of.ranks[1].matched_by, Some(MatchedBy::Ends));
        let said = unmatched(&of).expect("it is said");
        assert!(said.starts_with("with which device 1 of 23 collectives were"), "{said}");
    }

    #[test]
    fn those_of_another_group_in_a_stream_are_not_matched() {
        let all = ends(20);
        // They run at the same time, but the ends of two are far apart.
        let near = later(&all, |k| if k % 12 == 5 { 40_000 } else { 0 });
        let of = of_devices(ranks(&[("all_reduce", "stream 7")], &[(0, 0, all), (1, 0, near)]));
        assert_eq!(found(&of).into_values().collect::<Vec<_>>(), [18]);
        assert!(of.ranks.iter().all(|row| row.unmatched == 2), "{of:?}");
        assert!(of.ranks.iter().all(|row| row.matched_by == Some(MatchedBy::Order)), "{of:?}");
    }

    #[test]
    fn what_has_nothing_in_common_stays_alone() {
        let all = ends(12);
        // Those of two jobs, and three that end at once by chance.
        let other = later(&all, |k| 90_000 + (k * k * 31_000) % 200_000);
        for (name, a, b) in [
            ("all_reduce", all.clone(), other),
            ("all_reduce", all[..3].to_vec(), all[..3].to_vec()),
            // One of them may end long before the others, so their ends tell nothing.
            ("broadcast", all.clone(), all),
        ] {
            let kinds = [(name, "stream 7")];
            let n = a.len() + b.len();
            let of = of_devices(ranks(&kinds, &[(0, 0, a), (1, 0, b)]));
            assert!(of.collectives.is_empty(), "{of:?}");
            assert!(of.ranks.iter().all(|row| row.matched_by.is_none()), "{of:?}");
            assert!(unmatched(&of).is_some_and(|said| said.contains(&format!("{n} of {n}"))));
        }
    }

    #[test]
    fn a_group_that_the_file_states_needs_no_ends() {
        let all = ends(3);
        let kinds = [("broadcast", "tp"), ("broadcast", "dp")];
        let of = [(0, 0, all.clone()), (1, 0, all.clone()), (2, 1, all)];
        let of = of_devices(ranks(&kinds, &of));
        assert_eq!(found(&of), BTreeMap::from([(("tp".to_owned(), vec![0, 1]), 3)]));
        assert_eq!(of.ranks[2].unmatched, 3);
    }

    #[test]
    fn a_file_of_one_rank_is_what_it_was() {
        let one = ranks(&[("all_reduce", "stream 7")], &[(0, 0, ends(5))]);
        assert_eq!(of_devices(one.clone()), one);
        assert_eq!(unmatched(&one), None);
    }
}
