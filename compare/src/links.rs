//! Slow links: groups of ranks whose collectives transfer longer than the same ones of other groups.
//!
//! A transfer is the shortest time of all ranks of a collective, in which no wait is; so only collectives of which every rank
//! is in the profile count. Groups compare if they do the same operation on as many bytes on as many ranks. Where a rank is in
//! several of them, as in a group of its machine and in one across machines, those compare whose ranks are as far apart.

use std::collections::{BTreeMap, BTreeSet};

use brickscope_profile::text::{printable, shortened, size, time};
use brickscope_profile::{CollectiveKind, Profile, Ranks};
use serde::{Deserialize, Serialize};

/// With fewer collectives of a group, it is not compared.
const LEAST_COLLECTIVES: usize = 8;

/// The median of a slow group is that of others times more than this.
const LEAST_RATIO: f64 = 1.3;

/// And longer by so much: files have microseconds.
const LEAST_APART_NS: u64 = 2_000;

/// Ranks of a group that are named one by one.
const MOST_NAMED: usize = 8;

/// What takes part in the collectives of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Member {
    /// Ranks of a job.
    #[default]
    Rank,
    /// Devices of one file, which tells nothing of ranks. Their numbers are those of the profile's devices.
    Device,
}

impl Member {
    /// What those of a profile with several are.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let has_ranks = profile.devices.iter().any(|device| device.rank.is_some());
        if has_ranks || profile.devices.is_empty() { Self::Rank } else { Self::Device }
    }

    /// `rank` or `device`.
    #[must_use]
    pub const fn one(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Device => "device",
        }
    }

    /// `ranks` or `devices`.
    #[must_use]
    pub const fn many(self) -> &'static str {
        match self {
            Self::Rank => "ranks",
            Self::Device => "devices",
        }
    }
}

/// A group of ranks, or of devices, that transfers slowly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowLink {
    /// The operation.
    pub name: String,
    /// The process group.
    pub group: String,
    /// Its ranks.
    pub ranks: Vec<u32>,
    /// What these are.
    pub members: Member,
    /// The bytes that a rank puts in.
    pub bytes: u64,
    /// How many such collectives it did.
    pub collectives: u64,
    /// The median of their transfers.
    pub transfer_ns: u64,
    /// In how many groups the same is faster.
    pub other_groups: u64,
    /// The median of the transfers there.
    pub others_ns: u64,
}

impl SlowLink {
    /// What it took more, over all of its collectives.
    #[must_use]
    pub fn more_ns(&self) -> u64 {
        self.transfer_ns.saturating_sub(self.others_ns).saturating_mul(self.collectives)
    }

    /// `all_reduce of group 1 (ranks 4 to 7) transfers 32 MB in 412 µs, the other groups in 205 µs: a slower link`
    #[must_use]
    pub fn in_words(&self) -> String {
        format!(
            "{} of group {} ({} {}) transfers {} in {}, {} in {}: a slower link",
            printable(&self.name),
            shortened(&self.group, 24, ""),
            self.members.many(),
            in_short(&self.ranks),
            size(self.bytes as f64),
            time(self.transfer_ns as f64),
            if self.other_groups == 1 { "the other group" } else { "the other groups" },
            time(self.others_ns as f64)
        )
    }
}

/// `4 to 7`, `0 and 4` or `0, 2, 4`; of many, the first ones.
#[must_use]
pub fn in_short(ranks: &[u32]) -> String {
    let is_row = ranks.windows(2).all(|two| two[1].checked_sub(two[0]) == Some(1));
    let all = |ranks: &[u32]| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match ranks {
        [one, other] => format!("{one} and {other}"),
        [first, .., last] if is_row => format!("{first} to {last}"),
        few if few.len() <= MOST_NAMED => all(few),
        many => format!("{} and {} more", all(&many[..MOST_NAMED]), many.len() - MOST_NAMED),
    }
}

/// The transfers of a group.
struct Group<'p> {
    name: &'p str,
    ranks: Vec<u32>,
    /// Sorted.
    times: Vec<u64>,
}

impl Group<'_> {
    /// The time that so many quarters of all are below.
    fn quartile(&self, quarters: usize) -> u64 {
        let last = self.times.len().saturating_sub(1);
        self.times.get(last * quarters / 4).copied().unwrap_or(0)
    }

    fn median(&self) -> u64 {
        self.quartile(2)
    }

    /// By how much each of its ranks is after the one before it.
    fn steps(&self) -> Vec<u32> {
        self.ranks.windows(2).map(|two| two[1].abs_diff(two[0])).collect()
    }
}

/// How many bytes a collective moves, as NCCL's tests count for the algorithm bandwidth: those that a rank puts in, of an
/// `all_gather` those of all. `None` where ranks may put in unlike many, or some of them are not in the profile.
/// <https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md>
pub(crate) fn moved_bytes(kind: &CollectiveKind, on_ranks: usize) -> Option<u64> {
    let (bytes, size) = kind.bytes.zip(kind.group_size)?;
    if usize::try_from(size) != Ok(on_ranks) {
        return None;
    }
    match &*kind.name {
        "all_reduce" | "reduce_scatter" => Some(bytes),
        "all_gather" => bytes.checked_mul(size.into()),
        _ => None,
    }
}

/// The groups that transfer clearly longer than their like, those that take the most more first. None if there is but one
/// group of a kind, or half of them are slow: then nothing tells which of them is as it should be.
#[must_use]
pub fn slow_links(profile: &Profile) -> Vec<SlowLink> {
    let Some(ranks) = several(profile) else { return Vec::new() };
    let mut alike: BTreeMap<(&str, u64, usize), BTreeMap<Vec<u32>, Group<'_>>> = BTreeMap::new();
    for of in &ranks.collectives {
        let Some(kind) = ranks.kinds.get(of.kind as usize) else { continue };
        let (Some(bytes), Some(transfer)) = (kind.bytes, of.transfer_ns()) else { continue };
        if moved_bytes(kind, of.on.len()).is_none() {
            continue;
        }
        let mut members: Vec<u32> = of.on.iter().map(|on| on.rank).collect();
        members.sort_unstable();
        let groups = alike.entry((&*kind.name, bytes, members.len())).or_default();
        let new = || Group { name: &kind.group, ranks: members.clone(), times: Vec::new() };
        groups.entry(members.clone()).or_insert_with(new).times.push(transfer);
    }
    let mut slow = Vec::new();
    for ((name, bytes, _), groups) in alike {
        let groups = groups.into_values().filter(|of| of.times.len() >= LEAST_COLLECTIVES);
        for groups in comparable(groups.collect()) {
            slow.extend(slow_of(name, bytes, groups, Member::of(profile)));
        }
    }
    slow.sort_by_key(|of| std::cmp::Reverse(of.more_ns()));
    slow
}

/// Whether no rank is in two of the groups.
fn are_apart(groups: &[Group<'_>]) -> bool {
    let mut seen = BTreeSet::new();
    groups.iter().flat_map(|of| &of.ranks).all(|rank| seen.insert(*rank))
}

/// Sets of groups of which no rank is in two.
fn comparable(groups: Vec<Group<'_>>) -> Vec<Vec<Group<'_>>> {
    if are_apart(&groups) {
        return vec![groups];
    }
    let mut by_steps: BTreeMap<Vec<u32>, Vec<Group<'_>>> = BTreeMap::new();
    for group in groups {
        by_steps.entry(group.steps()).or_default().push(group);
    }
    by_steps.into_values().filter(|groups| are_apart(groups)).collect()
}

/// Those of the groups that are slower than the rest, if the rest are more, or the one other.
fn slow_of(name: &str, bytes: u64, mut groups: Vec<Group<'_>>, members: Member) -> Vec<SlowLink> {
    for group in &mut groups {
        group.times.sort_unstable();
    }
    groups.sort_by_key(Group::median);
    let is_split = |at: &usize| {
        let (fast, slow) = groups.split_at(*at);
        let (Some(last), Some(first)) = (fast.last(), slow.first()) else { return false };
        let (last, first) = (last.median(), first.median());
        let slowest = fast.iter().map(|of| of.quartile(3)).max().unwrap_or(0);
        let fastest = slow.iter().map(|of| of.quartile(1)).min().unwrap_or(0);
        (slow.len() < fast.len() || groups.len() == 2)
            && first as f64 > LEAST_RATIO * last as f64
            && first - last >= LEAST_APART_NS
            && fastest > slowest
    };
    let Some(at) = (1..groups.len()).find(is_split) else { return Vec::new() };
    let (fast, slow) = groups.split_at(at);
    let mut times: Vec<u64> = fast.iter().flat_map(|of| &of.times).copied().collect();
    times.sort_unstable();
    let others = Group { name, ranks: Vec::new(), times };
    let of = |group: &Group<'_>| SlowLink {
        name: name.to_owned(),
        group: group.name.to_owned(),
        ranks: group.ranks.clone(),
        members,
        bytes,
        collectives: group.times.len() as u64,
        transfer_ns: group.median(),
        other_groups: fast.len() as u64,
        others_ns: others.median(),
    };
    slow.iter().map(of).collect()
}

/// The ranks of a profile of several; `None` if it has one, or none.
#[must_use]
pub fn several(profile: &Profile) -> Option<&Ranks> {
    profile.ranks.as_ref().filter(|ranks| ranks.ranks.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brickscope_profile::{Collective, OnRank, Rank, Ranks};

    /// Groups of ranks, each with the median of its ten transfers, in microseconds. All but one rank wait 5 µs more.
    fn profile(groups: &[(&[u32], u64)]) -> Profile {
        let mut ranks = Ranks {
            ranks: (0..8).map(|rank| Rank { rank, ..Rank::default() }).collect(),
            ..Ranks::default()
        };
        for (nth, (members, _)) in groups.iter().enumerate() {
            ranks.kinds.push(CollectiveKind {
                name: "all_reduce".to_owned(),
                group: format!("g{nth}"),
                group_size: Some(members.len() as u32),
                bytes: Some(1 << 20),
                ..CollectiveKind::default()
            });
        }
        for k in 0..10 {
            for (kind, (members, us)) in (0..).zip(groups) {
                // By up to a twentieth longer or shorter.
                let ns = us * 950 + us * 10 * k;
                let on = |(at, &rank): (usize, &u32)| OnRank {
                    rank,
                    start_ns: None,
                    duration_ns: ns + if at == 1 { 0 } else { 5_000 },
                };
                let on = members.iter().enumerate().map(on).collect();
                ranks.collectives.push(Collective { kind, on, ..Collective::default() });
            }
        }
        Profile { ranks: Some(ranks), ..Profile::empty(Default::default()) }
    }

    fn slow(groups: &[(&[u32], u64)]) -> Vec<Vec<u32>> {
        slow_links(&profile(groups)).into_iter().map(|of| of.ranks).collect()
    }

    #[test]
    fn a_group_is_slow_by_those_that_do_the_same() {
        let of = slow_links(&profile(&[(&[0, 1, 2, 3], 200), (&[4, 5, 6, 7], 400)]));
        let [of] = &of[..] else { panic!("{of:?}") };
        assert_eq!((&*of.name, &*of.group, &of.ranks[..]), ("all_reduce", "g1", &[4, 5, 6, 7][..]));
        // The fifth of ten.
        assert_eq!((of.transfer_ns, of.others_ns), (396_000, 198_000));
        assert_eq!((of.bytes, of.collectives, of.other_groups), (1 << 20, 10, 1));
        assert_eq!(of.more_ns(), 1_980_000);
        let pairs: [(&[u32], u64); 4] =
            [(&[0, 1], 10), (&[2, 3], 20), (&[4, 5], 10), (&[6, 7], 11)];
        assert_eq!(slow(&pairs), [[2, 3]]);
    }

    #[test]
    fn what_is_alike_or_not_known_names_nobody() {
        let (all, first, second) =
            (&[0, 1, 2, 3, 4, 5, 6, 7][..], &[0, 1, 2, 3][..], &[4, 5, 6, 7][..]);
        assert!(slow(&[(all, 200)]).is_empty());
        assert!(slow(&[(first, 200), (second, 255)]).is_empty());
        assert!(slow(&[(first, 2), (second, 3)]).is_empty());
        // Half of them.
        assert!(slow(&[(&[0, 1], 10), (&[2, 3], 20), (&[4, 5], 10), (&[6, 7], 20)]).is_empty());
        let mut of = profile(&[(first, 200), (second, 400)]);
        for collective in &mut of.ranks.as_mut().expect("they are").collectives {
            // A rank whose file isn't here may have come last.
            collective.on.truncate(3);
        }
        assert!(slow_links(&of).is_empty());
        let mut of = profile(&[(first, 200), (second, 400)]);
        of.ranks.as_mut().expect("they are").kinds[1].bytes = Some(2 << 20);
        assert!(slow_links(&of).is_empty());
        let mut of = profile(&[(first, 200), (second, 400)]);
        of.ranks.as_mut().expect("they are").collectives.truncate(14);
        assert!(slow_links(&of).is_empty());
    }

    #[test]
    fn groups_across_machines_compare_with_each_other() {
        let inside: [(&[u32], u64); 4] =
            [(&[0, 1], 10), (&[2, 3], 10), (&[4, 5], 10), (&[6, 7], 10)];
        let across: [(&[u32], u64); 4] =
            [(&[0, 4], 50), (&[1, 5], 50), (&[2, 6], 50), (&[3, 7], 50)];
        assert!(slow(&[inside, across].concat()).is_empty());
        let mut one_slow = [inside, across].concat();
        one_slow[6].1 = 90;
        assert_eq!(slow(&one_slow), [[2, 6]]);
    }

    #[test]
    fn ranks_are_said_in_short() {
        for (ranks, said) in [
            (&[0, 4][..], "0 and 4"),
            (&[4, 5], "4 and 5"),
            (&[4, 5, 6, 7], "4 to 7"),
            (&[0, 2, 4], "0, 2, 4"),
            (&[1, 0, 2], "1, 0, 2"),
        ] {
            assert_eq!(in_short(ranks), said);
        }
        let many: Vec<u32> = (0..16).map(|rank| 8 * rank).collect();
        assert_eq!(in_short(&many), "0, 8, 16, 24, 32, 40, 48, 56 and 8 more");
    }

    #[test]
    fn bytes_are_counted_as_the_tests_of_nccl_do() {
        let kind = |name: &str| CollectiveKind {
            name: name.to_owned(),
            bytes: Some(100),
            group_size: Some(4),
            ..CollectiveKind::default()
        };
        for (name, moved) in [
            ("all_reduce", Some(100)),
            ("reduce_scatter", Some(100)),
            ("all_gather", Some(400)),
            ("all_to_all", None),
            ("broadcast", None),
        ] {
            assert_eq!(moved_bytes(&kind(name), 4), moved, "{name}");
            assert_eq!(moved_bytes(&kind(name), 3), None);
        }
        let huge = CollectiveKind { bytes: Some(u64::MAX), ..kind("all_gather") };
        assert_eq!(moved_bytes(&huge, 4), None);
    }
}
