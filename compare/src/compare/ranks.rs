//! The ranks of two runs beside each other: what each did by itself and waited, what collectives transferred, who came last,
//! and which links are slow. The figures are those of each run alone. One run each says nothing of how runs vary, so none of
//! it is a verdict.

use std::cmp::Reverse;

use brickscope_profile::text::count;
use brickscope_profile::{Absent, Profile};
use serde::{Deserialize, Serialize};

use super::Side;
use crate::links::{Member, SlowLink, several};
use crate::ranks::{InCollectives, OfKind, OfRank, Straggler};

/// The ranks of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RanksOfRun {
    /// Whether they are ranks, or devices of one file.
    pub members: Member,
    /// Their numbers.
    pub numbers: Vec<u32>,
    /// What they did together. `None` if they have no collective in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_collectives: Option<InCollectives>,
    /// Collectives with ranks that the profile lacks: what ranks waited in these is at least what is known.
    #[serde(default)]
    pub incomplete: u64,
}

/// A time in each of two runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TwoTimes {
    /// In A, if it is known.
    pub a_ns: Option<u64>,
    /// In B.
    pub b_ns: Option<u64>,
    /// B ÷ A, if both are of as much work and A is more than 0.
    pub ratio: Option<f64>,
    /// B − A, if both are of as much work.
    pub apart_ns: Option<i64>,
}

/// A rank in both runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankChange {
    /// Its number.
    pub rank: u32,
    /// What its devices did beside what ranks do together ([`OfRank::own_ns`]).
    pub own: TwoTimes,
    /// What it waited in collectives ([`OfRank::wait_ns`]).
    pub wait: TwoTimes,
}

/// The rank of each run whose devices did most by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SlowestChange {
    /// Which it is in A.
    pub a_rank: u32,
    /// Which it is in B.
    pub b_rank: u32,
    /// What these did.
    pub own: TwoTimes,
}

/// An operation of a group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransferChange {
    /// The operation.
    pub name: String,
    /// The process group, or the stream.
    pub group: String,
    /// How many A has.
    pub a_collectives: u64,
    /// How many B has.
    pub b_collectives: u64,
    /// What they transferred for ([`OfKind::transfer_ns`]). As much work is as many of them with as many bytes.
    pub transfer: TwoTimes,
}

/// Which of two runs have something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundIn {
    /// Neither has it.
    Neither,
    /// A has it, and B doesn't.
    OnlyA,
    /// B has it, and A doesn't.
    OnlyB,
    /// Both have the same one.
    Both,
    /// Each has another one.
    Another,
}

/// The rank that others wait for, in each run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StragglerChange {
    /// Whether it is the same one. Of other sets of ranks, two are never the same.
    #[serde(rename = "in")]
    pub is_in: FoundIn,
    /// That of A.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a: Option<Straggler>,
    /// That of B.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<Straggler>,
    /// Why A has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a_absent: Option<Absent>,
    /// Why B has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b_absent: Option<Absent>,
}

/// A slow link of a run, or of both: the same operation on as many bytes by the same ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkChange {
    /// Where it is named.
    #[serde(rename = "in")]
    pub is_in: FoundIn,
    /// What it is in A.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a: Option<SlowLink>,
    /// What it is in B.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<SlowLink>,
}

/// How the ranks of two runs differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RanksChange {
    /// Whether they are ranks, or devices of one file.
    pub members: Member,
    /// The ranks of A: none if it is of one, or of several runs.
    pub a: Vec<u32>,
    /// Those of B.
    pub b: Vec<u32>,
    /// Why nothing of them is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absent>,
    /// Why sums have neither ratios nor differences: they are of unlike many collectives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlike: Option<Absent>,
    /// Rank by rank, if both have the same ones.
    pub ranks: Vec<RankChange>,
    /// The slowest ones, if it is known of both what ranks did by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest: Option<SlowestChange>,
    /// All transfers, summed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TwoTimes>,
    /// Transfers by operation and group, if both have the same ranks.
    pub transfers: Vec<TransferChange>,
    /// Who came last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler: Option<StragglerChange>,
    /// Slow links, those of A first.
    pub slow_links: Vec<LinkChange>,
    /// How many of the collectives of A were found to be common ones, if ranks have others, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a_found: Option<String>,
    /// The same of B.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b_found: Option<String>,
    /// Collectives of A with ranks that its profile lacks.
    pub a_incomplete: u64,
    /// The same of B.
    pub b_incomplete: u64,
}

impl RanksOfRun {
    /// Those of a profile. `None` if it is of one rank.
    #[must_use]
    pub fn of(profile: &Profile) -> Option<Self> {
        let ranks = several(profile)?;
        Some(Self {
            members: Member::of(profile),
            numbers: ranks.ranks.iter().map(|of| of.rank).collect(),
            in_collectives: InCollectives::of(profile),
            incomplete: InCollectives::incomplete(profile).map_or(0, |(n, _)| n),
        })
    }

    /// `5 of 10 collectives were found on both`, if ranks have some that no other one is known to have.
    fn found(&self) -> Option<String> {
        let sums = self.in_collectives.as_ref().filter(|sums| sums.lacks_some());
        sums.map(InCollectives::found_in_words)
    }
}

impl TwoTimes {
    fn new([a_ns, b_ns]: [Option<u64>; 2], is_as_much: bool) -> Self {
        let both = a_ns.zip(b_ns).filter(|_| is_as_much);
        Self {
            a_ns,
            b_ns,
            ratio: both.filter(|(a, _)| *a > 0).map(|(a, b)| b as f64 / a as f64),
            apart_ns: both.and_then(|(a, b)| i64::try_from(i128::from(b) - i128::from(a)).ok()),
        }
    }
}

impl FoundIn {
    /// Of something that each run has or not.
    fn of(in_a: bool, in_b: bool) -> Self {
        match (in_a, in_b) {
            (false, false) => Self::Neither,
            (true, false) => Self::OnlyA,
            (false, true) => Self::OnlyB,
            (true, true) => Self::Both,
        }
    }
}

impl RanksChange {
    /// Those of two runs. `None` if neither has ranks.
    #[must_use]
    pub fn of_runs(a: Option<&RanksOfRun>, b: Option<&RanksOfRun>) -> Option<Self> {
        match (a, b) {
            (None, None) => None,
            (Some(of_a), Some(of_b)) if of_a.members != of_b.members => {
                let [in_a, in_b] = [of_a, of_b].map(|of| match of.members {
                    Member::Rank => "ranks",
                    Member::Device => "devices of one file",
                });
                Some(Self::without(a, b, format!("A has {in_a}, and B {in_b}")))
            }
            (Some(a), Some(b)) => Some(Self::between(a, b)),
            (Some(of), None) => Some(Self::without(a, b, one_sided(["A", "B"], of))),
            (None, Some(of)) => Some(Self::without(a, b, one_sided(["B", "A"], of))),
        }
    }

    /// Those of two sides. Of several runs none is taken, since it would be chance which.
    pub(super) fn of_sides([a, b]: [&Side; 2]) -> Option<Self> {
        if let ([a], [b]) = (&a.processes[..], &b.processes[..]) {
            return Self::of_runs(a.ranks.as_ref(), b.ranks.as_ref());
        }
        let mut all = a.processes.iter().chain(&b.processes);
        let has_some = all.any(|process| process.ranks.is_some());
        let (letter, side) = if a.processes.len() > 1 { ("A", a) } else { ("B", b) };
        let n = count(side.processes.len() as u64, "run");
        let why = format!("they are compared between two single runs, and {letter} is {n}");
        has_some.then(|| Self::without(None, None, why))
    }

    fn without(a: Option<&RanksOfRun>, b: Option<&RanksOfRun>, reason: String) -> Self {
        Self { absent: Some(Absent { reason }), ..Self::empty(a, b) }
    }

    fn empty(a: Option<&RanksOfRun>, b: Option<&RanksOfRun>) -> Self {
        let numbers = |of: Option<&RanksOfRun>| of.map_or_else(Vec::new, |of| of.numbers.clone());
        Self {
            a: numbers(a),
            b: numbers(b),
            absent: None,
            unlike: None,
            ranks: Vec::new(),
            slowest: None,
            transfer: None,
            transfers: Vec::new(),
            straggler: None,
            slow_links: Vec::new(),
            a_found: a.and_then(RanksOfRun::found),
            b_found: b.and_then(RanksOfRun::found),
            a_incomplete: a.map_or(0, |of| of.incomplete),
            b_incomplete: b.map_or(0, |of| of.incomplete),
            members: a.or(b).map_or(Member::Rank, |of| of.members),
        }
    }

    fn between(a: &RanksOfRun, b: &RanksOfRun) -> Self {
        let sums = match [&a.in_collectives, &b.in_collectives].map(Option::as_ref) {
            [Some(of_a), Some(of_b)] => [of_a, of_b],
            [of_a, of_b] => {
                let whose = match (of_a, of_b) {
                    (None, None) => "those of either run",
                    (None, Some(_)) => "those of A",
                    (Some(_), _) => "those of B",
                };
                let why = format!("{whose} have no collective in common");
                return Self::without(Some(a), Some(b), why);
            }
        };
        let have_same = a.numbers == b.numbers;
        let unlike = unlike(sums, have_same);
        let is_as_much = unlike.is_none();
        let transfers = sums.map(InCollectives::transfer_ns);
        Self {
            ranks: if have_same { ranks(&a.numbers, sums, is_as_much) } else { Vec::new() },
            slowest: slowest(sums, is_as_much),
            transfer: Some(TwoTimes::new(transfers, is_as_much)),
            transfers: if have_same { by_kind(sums) } else { Vec::new() },
            straggler: Some(straggler(sums, have_same)),
            slow_links: links(sums, have_same),
            unlike,
            ..Self::empty(Some(a), Some(b))
        }
    }

    /// Whether both runs have the same ranks.
    #[must_use]
    pub fn have_same(&self) -> bool {
        self.a == self.b
    }
}

fn one_sided([with, without]: [&str; 2], of: &RanksOfRun) -> String {
    let n = of.numbers.len();
    format!("only {with} has several ({n}), and {without} is of one or doesn't say")
}

/// Why sums of two runs are of unlike much work. As much work of other ranks may be other bytes of each.
fn unlike([a, b]: [&InCollectives; 2], have_same: bool) -> Option<Absent> {
    let of = |sums: &InCollectives| {
        format!("{} in {}", count(sums.collectives, "collective"), count(sums.passes, "pass"))
    };
    if (a.collectives, a.passes) != (b.collectives, b.passes) {
        let reason = format!("A has {}, and B {}, so sums have no ratio", of(a), of(b));
        return Some(Absent { reason });
    }
    let [a, b] = [bytes(a)?, bytes(b)?].map(|bytes| count(bytes, "byte"));
    let reason = format!("collectives of A have {a}, and of B {b}, so sums have no ratio");
    (have_same && a != b).then_some(Absent { reason })
}

/// What a rank puts into all of its collectives, if it is known of each.
fn bytes(of: &InCollectives) -> Option<u64> {
    of.kinds.iter().try_fold(0, |sum: u64, kind| sum.checked_add(kind.bytes?))
}

fn ranks(numbers: &[u32], sums: [&InCollectives; 2], is_as_much: bool) -> Vec<RankChange> {
    let change = |&rank: &u32| {
        let rows = sums.map(|of| of.ranks.iter().find(|row| row.rank == rank));
        let own = rows.map(|row| row?.own_ns);
        let wait = rows.map(|row| row.and_then(OfRank::known_wait_ns));
        RankChange {
            rank,
            own: TwoTimes::new(own, is_as_much),
            wait: TwoTimes::new(wait, is_as_much),
        }
    };
    numbers.iter().map(change).collect()
}

/// Of equals, the first.
fn slowest(sums: [&InCollectives; 2], is_as_much: bool) -> Option<SlowestChange> {
    let most = |of: &InCollectives| {
        let known = of.ranks.iter().filter_map(|row| Some((row.own_ns?, Reverse(row.rank))));
        known.max()
    };
    let [(a_ns, Reverse(a_rank)), (b_ns, Reverse(b_rank))] = [most(sums[0])?, most(sums[1])?];
    let own = TwoTimes::new([Some(a_ns), Some(b_ns)], is_as_much);
    Some(SlowestChange { a_rank, b_rank, own })
}

/// Those of A, and then those that only B has.
fn by_kind(sums: [&InCollectives; 2]) -> Vec<TransferChange> {
    let change = |of: &OfKind| {
        let both = sums.map(|sums| sums.kinds.iter().find(|kind| is_same_kind(kind, of)));
        let n = both.map(|kind| kind.map_or(0, |kind| kind.collectives));
        let bytes = both.map(|kind| kind?.bytes);
        let times = both.map(|kind| kind?.transfer_ns);
        TransferChange {
            name: of.name.clone(),
            group: of.group.clone(),
            a_collectives: n[0],
            b_collectives: n[1],
            transfer: TwoTimes::new(times, n[0] == n[1] && bytes[0] == bytes[1]),
        }
    };
    let [a, b] = sums;
    let only_in_b = b.kinds.iter().filter(|of| !a.kinds.iter().any(|kind| is_same_kind(kind, of)));
    a.kinds.iter().chain(only_in_b).map(change).collect()
}

fn is_same_kind(one: &OfKind, other: &OfKind) -> bool {
    one.name == other.name && one.group == other.group
}

fn straggler([a, b]: [&InCollectives; 2], have_same: bool) -> StragglerChange {
    let is_in = match (a.straggler, b.straggler) {
        (Some(of_a), Some(of_b)) if !have_same || of_a.rank != of_b.rank => FoundIn::Another,
        (of_a, of_b) => FoundIn::of(of_a.is_some(), of_b.is_some()),
    };
    StragglerChange {
        is_in,
        a: a.straggler,
        b: b.straggler,
        a_absent: a.straggler_absent.clone(),
        b_absent: b.straggler_absent.clone(),
    }
}

/// Ranks of other sets are others, whatever their numbers.
fn links([a, b]: [&InCollectives; 2], have_same: bool) -> Vec<LinkChange> {
    let is_same = |one: &SlowLink, other: &SlowLink| have_same && is_same_link(one, other);
    let change = |of_a: Option<&SlowLink>, of_b: Option<&SlowLink>| LinkChange {
        is_in: FoundIn::of(of_a.is_some(), of_b.is_some()),
        a: of_a.cloned(),
        b: of_b.cloned(),
    };
    let of_a = a.slow_links.iter().map(|of| {
        let in_b = b.slow_links.iter().find(|other| is_same(of, other));
        change(Some(of), in_b)
    });
    let is_new = |of: &&SlowLink| !a.slow_links.iter().any(|other| is_same(of, other));
    let only_in_b = b.slow_links.iter().filter(is_new);
    of_a.chain(only_in_b.map(|of| change(None, Some(of)))).collect()
}

fn is_same_link(one: &SlowLink, other: &SlowLink) -> bool {
    (&one.name, &one.ranks, one.bytes) == (&other.name, &other.ranks, other.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Options, Process, Test, compare};
    use brickscope_profile::{Collective, CollectiveKind, OnRank, Rank, Ranks};

    /// Ranks with a kind of collectives for each group, of ten each: the members, and the time of each of them.
    fn profile(numbers: &[u32], groups: &[(&[u32], &[u64])]) -> Profile {
        let rank = |&rank: &u32| Rank { rank, ..Rank::default() };
        let mut ranks = Ranks { ranks: numbers.iter().map(rank).collect(), ..Ranks::default() };
        for (kind, (members, times)) in (0_u32..).zip(groups) {
            ranks.kinds.push(CollectiveKind {
                name: "all_reduce".to_owned(),
                group: kind.to_string(),
                group_size: Some(members.len() as u32),
                bytes: Some(1 << 20),
                ..CollectiveKind::default()
            });
            let on = members.iter().zip(*times);
            let on = on.map(|(&rank, &duration_ns)| OnRank { rank, start_ns: None, duration_ns });
            let of = Collective { kind, pass: Some(1), on: on.collect(), ..Collective::default() };
            ranks.collectives.extend(vec![of; 10]);
        }
        Profile { ranks: Some(ranks), ..Profile::empty(Default::default()) }
    }

    fn change(a: &Profile, b: &Profile) -> RanksChange {
        let runs = [a, b].map(RanksOfRun::of);
        RanksChange::of_runs(runs[0].as_ref(), runs[1].as_ref()).expect("one has ranks")
    }

    /// Two ranks, of which this one comes 10 µs late.
    fn late(rank: usize) -> Profile {
        let mut times = [30_000; 2];
        times[rank] = 20_000;
        profile(&[0, 1], &[(&[0, 1], &times)])
    }

    #[test]
    fn figures_are_those_of_each_run() {
        let runs = [late(0), late(1)];
        let of = change(&runs[0], &runs[1]);
        let sums = runs.each_ref().map(|run| InCollectives::of(run).expect("they have some"));
        assert_eq!(of.ranks.len(), 2);
        for (nth, row) in of.ranks.iter().enumerate() {
            let waits = sums.each_ref().map(|sums| Some(sums.ranks[nth].wait_ns));
            assert_eq!([row.wait.a_ns, row.wait.b_ns], waits);
            // No device is in these profiles.
            assert_eq!((row.own.a_ns, row.own.ratio), (None, None));
        }
        let apart: Vec<Option<i64>> = of.ranks.iter().map(|row| row.wait.apart_ns).collect();
        assert_eq!(apart, [Some(100_000), Some(-100_000)]);
        assert_eq!(of.slowest, None);
        let [row] = &of.transfers[..] else { panic!("{of:?}") };
        assert_eq!((row.transfer.a_ns, row.transfer.ratio), (Some(200_000), Some(1.0)));
        assert_eq!(of.transfer, Some(row.transfer));
        let straggler = of.straggler.expect("both have collectives");
        assert_eq!(straggler.is_in, FoundIn::Another);
        assert_eq!([straggler.a, straggler.b], sums.map(|sums| sums.straggler));
    }

    #[test]
    fn ranks_and_devices_of_one_file_are_not_compared() {
        let [of_ranks, of_devices] = [Member::Rank, Member::Device].map(|members| {
            let run = RanksOfRun::of(&late(1)).expect("there are two");
            RanksOfRun { members, ..run }
        });
        let of = RanksChange::of_runs(Some(&of_ranks), Some(&of_devices)).expect("both have some");
        let why = of.absent.expect("it says why").reason;
        assert_eq!(why, "A has ranks, and B devices of one file");
        let of = RanksChange::of_runs(Some(&of_devices), Some(&of_devices));
        let of = of.expect("both have some");
        assert_eq!((of.members, of.absent, of.ranks.len()), (Member::Device, None, 2));
    }

    #[test]
    fn a_straggler_is_the_same_or_comes_or_goes() {
        let even = profile(&[0, 1], &[(&[0, 1], &[20_000, 20_000])]);
        for (a, b, is_in) in [
            (&late(1), &late(1), FoundIn::Both),
            (&late(1), &even, FoundIn::OnlyA),
            (&even, &late(1), FoundIn::OnlyB),
            (&even, &even, FoundIn::Neither),
        ] {
            let of = change(a, b).straggler.expect("both have collectives");
            assert_eq!(of.is_in, is_in);
            assert_eq!(of.a.is_none(), of.a_absent.is_some());
            assert_eq!(of.b.is_none(), of.b_absent.is_some());
        }
    }

    #[test]
    fn a_slow_link_comes_or_goes() {
        let (first, second) = (&[0, 1][..], &[2, 3][..]);
        let even = profile(&[0, 1, 2, 3], &[(first, &[50_000; 2]), (second, &[50_000; 2])]);
        let slow = profile(&[0, 1, 2, 3], &[(first, &[50_000; 2]), (second, &[90_000; 2])]);
        for (a, b, expected) in [
            (&even, &slow, Some(FoundIn::OnlyB)),
            (&slow, &even, Some(FoundIn::OnlyA)),
            (&slow, &slow, Some(FoundIn::Both)),
            (&even, &even, None),
        ] {
            let links = change(a, b).slow_links;
            assert_eq!(links.first().map(|of| of.is_in), expected);
            assert!(links.len() < 2, "{links:?}");
            let named = links.iter().flat_map(|of| [&of.a, &of.b]).flatten();
            assert!(named.map(|link| &link.ranks[..]).all(|ranks| ranks == second), "{links:?}");
        }
        // The same numbers among others are other ranks.
        let more = profile(&[0, 1, 2, 3, 4], &[(first, &[50_000; 2]), (second, &[90_000; 2])]);
        let found: Vec<FoundIn> =
            change(&slow, &more).slow_links.iter().map(|of| of.is_in).collect();
        assert_eq!(found, [FoundIn::OnlyA, FoundIn::OnlyB]);
    }

    #[test]
    fn of_other_ranks_only_sums_are_compared_and_of_unlike_many_no_ratio_is_told() {
        let four = profile(&[0, 1, 2, 3], &[(&[0, 1, 2, 3], &[30_000, 25_000, 25_000, 25_000])]);
        let of = change(&four, &late(1));
        assert!(!of.have_same() && of.ranks.is_empty() && of.transfers.is_empty());
        let sum = of.transfer.expect("both have collectives");
        assert_eq!((sum.a_ns, sum.b_ns, sum.ratio), (Some(250_000), Some(200_000), Some(0.8)));
        // The same number of a rank in another set is another rank.
        let other = profile(&[4, 5], &[(&[4, 5], &[30_000, 20_000])]);
        assert!(change(&late(1), &other).ranks.is_empty());

        let mut more = late(1);
        let of = more.ranks.as_mut().expect("they are");
        of.collectives.extend(of.collectives.clone());
        let of = change(&late(1), &more);
        assert!(of.unlike.is_some());
        assert!(of.ranks.iter().all(|row| row.wait.b_ns.is_some() && row.wait.apart_ns.is_none()));
        assert_eq!(of.transfers[0].transfer.ratio, None);

        let mut larger = late(1);
        larger.ranks.as_mut().expect("they are").kinds[0].bytes = Some(2 << 20);
        let of = change(&late(1), &larger);
        assert!(of.unlike.is_some_and(|why| why.reason.starts_with("collectives of A have ")));
        assert_eq!(of.transfer.map(|sum| (sum.a_ns, sum.ratio)), Some((Some(200_000), None)));
    }

    #[test]
    fn what_is_not_known_is_absent_and_not_nothing() {
        let mut rooted = late(1);
        rooted.ranks.as_mut().expect("they are").kinds[0].name = "broadcast".to_owned();
        let of = change(&rooted, &rooted);
        assert!(of.ranks.iter().all(|row| row.wait.a_ns.is_none() && row.wait.apart_ns.is_none()));
        assert_eq!(of.transfer.map(|sum| sum.a_ns), Some(None));
        let nothing = profile(&[0, 1], &[]);
        let why = change(&nothing, &late(1)).absent.expect("it says why");
        assert_eq!(why.reason, "those of A have no collective in common");
    }

    #[test]
    fn of_several_runs_a_side_none_is_taken() {
        let process = |ranks: Option<RanksOfRun>, ns| Process {
            ranks,
            tests: vec![Test { name: "t".to_owned(), wall_ns: vec![ns], ..Test::default() }],
            ..Process::default()
        };
        let side = |name: &str, processes| Side { name: name.to_owned(), processes };
        let ranks = || RanksOfRun::of(&late(1));
        let compared = |a: Vec<Process>, b: Vec<Process>| {
            let (a, b) = (side("a", a), side("b", b));
            compare(&a, &b, &Options::default()).expect("they have a test").ranks
        };
        let of = compared(vec![process(ranks(), 1)], vec![process(ranks(), 2)]);
        assert_eq!(of.map(|of| (of.absent, of.ranks.len())), Some((None, 2)));
        let of = compared(vec![process(ranks(), 1)], vec![process(None, 2)]);
        let why = of.and_then(|of| of.absent).expect("it says why").reason;
        assert_eq!(why, "only A has several (2), and B is of one or doesn't say");
        let of = compared(vec![process(None, 1)], vec![process(ranks(), 2), process(None, 3)]);
        let why = of.and_then(|of| of.absent).expect("it says why").reason;
        assert_eq!(why, "they are compared between two single runs, and B is 2 runs");
        assert_eq!(compared(vec![process(None, 1)], vec![process(None, 2)]), None);
    }
}
