//! Ranks of one job, or devices of one file: how long each was in collectives, what of it was waiting for others, and who it was
//! that they waited for.
//!
//! A collective can end on no rank before it has begun on all, so the last rank to come has no wait in its time: the shortest
//! time of all ranks is the transfer, and what others took more, they waited. That needs no common clock. Where a part of the
//! group is in the profile alone, a wait is at least that.

use std::collections::{BTreeMap, BTreeSet};

use brickscope_profile::stats::student;
use brickscope_profile::text::count;
use brickscope_profile::{
    Absent, Collective, CollectiveKind, DeviceProfile, NameKind, Phase, Profile, Rank,
};
use serde::{Deserialize, Serialize};

use crate::links::{Member, SlowLink, moved_bytes, several, slow_links};

/// By so much a rank's time must be the shortest, for it to have come last: files have microseconds.
const LEAST_LEAD_NS: u64 = 2_000;

/// That a rank is the last by chance alone must be less likely than this.
const BY_CHANCE: f64 = 0.01;

/// The least part of the way from its share to all, by which a rank is last more often than its share.
const CLEARLY: f64 = 0.25;

/// What ranks did in collectives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InCollectives {
    /// Whether they are ranks, or devices of one file.
    pub members: Member,
    /// Collectives that two ranks or more have.
    pub collectives: u64,
    /// Those of them in which one rank has a part of its own, such as `broadcast`: what is transfer isn't known.
    pub with_a_root: u64,
    /// Of each rank, over all collectives.
    pub ranks: Vec<OfRank>,
    /// By operation and group, those with the most waiting first.
    pub kinds: Vec<OfKind>,
    /// The groups that transfer slower than others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_links: Vec<SlowLink>,
    /// By layer, where it is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<OfLayer>,
    /// Of each rank's collectives, how many others have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<FoundOn>,
    /// In how many passes they are.
    pub passes: u64,
    /// The rank that others wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler: Option<Straggler>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler_absent: Option<Absent>,
}

/// How many of a rank's collectives are known to be the same as those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundOn {
    /// The rank.
    pub rank: u32,
    /// Those that another rank has, too.
    pub found: u64,
    /// The collectives of its file.
    pub of: u64,
}

/// The times of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OfRank {
    /// The rank.
    pub rank: u32,
    /// Its collectives.
    pub collectives: u64,
    /// From begin to end, summed: `transfer_ns` + `wait_ns` + `with_a_root_ns`.
    pub time_ns: u64,
    /// The shortest times of these collectives on any rank.
    pub transfer_ns: u64,
    /// What this rank took more: it waited.
    pub wait_ns: u64,
    /// Its time in collectives in which one rank has a part of its own.
    pub with_a_root_ns: u64,
    /// In how many collectives it came last, of those in which one rank clearly did and it took part.
    pub last: u64,
    /// Of how many.
    pub of: u64,
    /// What its devices did beside what ranks do together: the times of its bricks, summed over its streams, in passes and
    /// outside of them. Over all collectives alone, and not where the profile lacks its devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_ns: Option<u64>,
}

/// The times of an operation of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfKind {
    /// The operation.
    pub name: String,
    /// The process group, or the stream.
    pub group: String,
    /// How many there are.
    pub collectives: u64,
    /// The bytes that a rank puts in, over all of them, if the files state them of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What they move, of which the algorithm bandwidth is: the same bytes, of an `all_gather` those of all ranks. `None` where
    /// ranks may put in unlike many, or some of them are not in the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_bytes: Option<u64>,
    /// The shortest times, summed. `None` if one rank has a part of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_ns: Option<u64>,
    /// Of each rank.
    pub ranks: Vec<OfRank>,
}

/// The waits of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfLayer {
    /// The layer.
    pub layer: u16,
    /// How many collectives it has.
    pub collectives: u64,
    /// The shortest times, summed.
    pub transfer_ns: u64,
    /// What all ranks waited, summed.
    pub wait_ns: u64,
}

/// The rank that others wait for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Straggler {
    /// The rank.
    pub rank: u32,
    /// In how many collectives it came last.
    pub last: u64,
    /// Of how many in which one rank clearly came last.
    pub of: u64,
    /// How likely that is by chance, for any of the ranks.
    pub by_chance: f64,
    /// What the others waited in these, in the mean over them, summed.
    pub others_wait_ns: u64,
    /// By how much it came after the last but one, summed: so much sooner would these have begun without it.
    pub lead_ns: u64,
    /// The phase of the passes that these are in, if it is one and none is outside of passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// In how many passes of that phase the rank has collectives; 0 if it isn't one.
    pub passes: u64,
}

impl Straggler {
    /// What the others wait for it in a pass of the phase; in all, if it isn't one.
    #[must_use]
    pub fn others_wait_a_pass_ns(&self) -> f64 {
        self.others_wait_ns as f64 / self.passes.max(1) as f64
    }

    /// The same of what would begin sooner.
    #[must_use]
    pub fn lead_a_pass_ns(&self) -> f64 {
        self.lead_ns as f64 / self.passes.max(1) as f64
    }

    /// What both are of: `a pass`, or `in all`.
    #[must_use]
    pub fn basis(&self) -> &'static str {
        if self.phase.is_some() { "a pass" } else { "in all" }
    }
}

/// The last rank of a collective, if one clearly was.
struct Last {
    rank: u32,
    lead_ns: u64,
    /// The mean of what the others waited.
    others_wait_ns: u64,
}

fn last(of: &Collective) -> Option<Last> {
    let mut times: Vec<(u64, u32)> = of.on.iter().map(|on| (on.duration_ns, on.rank)).collect();
    times.sort_unstable();
    let &[(least, rank), (next, _), ..] = &times[..] else { return None };
    let lead_ns = next - least;
    let others = times[1..].iter().map(|(time, _)| u128::from(time - least));
    let others_wait_ns = others.sum::<u128>() / (times.len() as u128 - 1);
    let others_wait_ns = u64::try_from(others_wait_ns).unwrap_or(u64::MAX);
    (lead_ns >= LEAST_LEAD_NS).then_some(Last { rank, lead_ns, others_wait_ns })
}

/// What is counted of a rank's lateness.
#[derive(Default)]
struct Lateness {
    last: u64,
    of: u64,
    /// The sum of the chances of those `of`.
    chances: f64,
    others_wait_ns: u64,
    lead_ns: u64,
    /// The phases of the passes in which it was last.
    phases: BTreeSet<Option<Phase>>,
}

/// The passes of each phase in which a rank has collectives.
type Passes = BTreeMap<Phase, BTreeSet<u32>>;

/// What a kind of collectives did, and each rank in it.
type Rows = (OfKind, BTreeMap<u32, OfRank>);

impl InCollectives {
    /// What the ranks of a profile did. `None` if it is of one rank, or they have no collective in common.
    #[must_use]
    pub fn of(profile: &Profile) -> Option<Self> {
        let ranks = several(profile)?;
        let mut all: BTreeMap<u32, OfRank> = BTreeMap::new();
        let mut kinds: BTreeMap<(&str, &str), Rows> = BTreeMap::new();
        let mut layers: BTreeMap<u16, OfLayer> = BTreeMap::new();
        let mut late: BTreeMap<u32, Lateness> = BTreeMap::new();
        let phases: BTreeMap<u32, Phase> = phases(profile);
        let mut passes: BTreeSet<u32> = BTreeSet::new();
        let mut passes_of: BTreeMap<u32, Passes> = BTreeMap::new();
        let (mut collectives, mut with_a_root) = (0, 0);
        for of in &ranks.collectives {
            let kind = ranks.kinds.get(of.kind as usize);
            let (Some(kind), Some(transfer)) = (kind, of.transfer_ns()) else { continue };
            collectives += 1;
            let transfer = Some(transfer).filter(|_| !kind.has_root());
            with_a_root += u64::from(transfer.is_none());
            let entry = kinds.entry((&*kind.name, &*kind.group));
            let (row, of_kind) = entry.or_insert_with(|| (OfKind::new(kind), BTreeMap::new()));
            row.add(kind, of.on.len(), transfer);
            for on in &of.on {
                for sums in [&mut all, &mut *of_kind] {
                    let row = sums.entry(on.rank).or_default();
                    row.rank = on.rank;
                    row.add(on.duration_ns, transfer);
                }
            }
            passes.extend(of.pass);
            let Some(transfer) = transfer else { continue };
            let phase = of.pass.and_then(|pass| phases.get(&pass).copied());
            if let Some((pass, phase)) = of.pass.zip(phase) {
                for on in &of.on {
                    let of_rank = passes_of.entry(on.rank).or_default();
                    of_rank.entry(phase).or_default().insert(pass);
                }
            }
            if let Some(layer) = of.layer {
                let none = OfLayer { layer, collectives: 0, transfer_ns: 0, wait_ns: 0 };
                let row = layers.entry(layer).or_insert(none);
                let waits = of.on.iter().map(|on| on.duration_ns - transfer);
                row.collectives += 1;
                row.transfer_ns = row.transfer_ns.saturating_add(transfer);
                row.wait_ns = waits.fold(row.wait_ns, u64::saturating_add);
            }
            let Some(last) = last(of) else { continue };
            for on in &of.on {
                let late = late.entry(on.rank).or_default();
                late.of += 1;
                late.chances += 1.0 / of.on.len() as f64;
                if on.rank == last.rank {
                    late.last += 1;
                    late.lead_ns = late.lead_ns.saturating_add(last.lead_ns);
                    late.others_wait_ns = late.others_wait_ns.saturating_add(last.others_wait_ns);
                    late.phases.insert(phase);
                }
            }
        }
        if collectives == 0 {
            return None;
        }
        let members = Member::of(profile);
        for (rank, row) in &mut all {
            if let Some(late) = late.get(rank) {
                (row.last, row.of) = (late.last, late.of);
            }
            row.own_ns = own_ns(profile, members, *rank);
        }
        let passes = passes.len() as u64;
        let straggler = match with_a_root == collectives {
            true => Err(format!(
                "in each collective one {} has a part of its own, so a short time isn't that of the last to come",
                members.one()
            )),
            false => straggler(&late, &passes_of, members),
        };
        let (straggler, straggler_absent) = match straggler {
            Ok(straggler) => (Some(straggler), None),
            Err(reason) => (None, Some(Absent { reason })),
        };
        let mut kinds: Vec<OfKind> = kinds
            .into_values()
            .map(|(row, ranks)| OfKind { ranks: ranks.into_values().collect(), ..row })
            .collect();
        let waits = |of: &OfKind| {
            of.ranks.iter().fold(0, |sum, rank| u64::saturating_add(sum, rank.wait_ns))
        };
        kinds.sort_by_key(|of| std::cmp::Reverse(waits(of)));
        Some(Self {
            members,
            collectives,
            with_a_root,
            ranks: all.into_values().collect(),
            kinds,
            slow_links: slow_links(profile),
            layers: layers.into_values().collect(),
            found: ranks.ranks.iter().map(FoundOn::new).collect(),
            passes,
            straggler,
            straggler_absent,
        })
    }

    /// The transfers of all collectives, summed. `None` if in each of them one rank has a part of its own.
    #[must_use]
    pub fn transfer_ns(&self) -> Option<u64> {
        let known = self.kinds.iter().filter_map(|of| of.transfer_ns);
        (self.with_a_root < self.collectives).then(|| known.fold(0, u64::saturating_add))
    }

    /// `5 of 10 collectives were found on both`: how many there are, and of how many, where that is the same of each rank. Else
    /// the rank is named of whose the fewest were found.
    #[must_use]
    pub fn found_in_words(&self) -> String {
        let n = self.collectives;
        let were = if n == 1 { "was" } else { "were" };
        let first = self.found.first().copied();
        let is_alike = |of: FoundOn| {
            of.found == n && self.found.iter().all(|on| (on.found, on.of) == (of.found, of.of))
        };
        if let Some(FoundOn { of, .. }) = first.filter(|&of| is_alike(of)) {
            let on = if self.found.len() == 2 { "both" } else { "all" };
            return format!("{n} of {} {were} found on {on}", count(of, "collective"));
        }
        let many = self.members.many();
        let some = format!("{} {were} found on several {many}", count(n, "collective"));
        let part = |on: &FoundOn| on.found as f64 / on.of.max(1) as f64;
        let fewest = self.found.iter().copied().min_by(|a, b| part(a).total_cmp(&part(b)));
        match fewest.filter(|on| on.found < on.of) {
            Some(FoundOn { rank, found, of }) => {
                format!("{some} (of {} {rank} only {found} of {of})", self.members.one())
            }
            None => some,
        }
    }

    /// Whether a rank has collectives that no other one is known to have.
    #[must_use]
    pub fn lacks_some(&self) -> bool {
        self.found.iter().any(|on| on.found < on.of)
    }

    /// How many collectives have ranks that aren't in the profile, and how many ranks the largest group of these has. `None` if
    /// no file states such a group.
    #[must_use]
    pub fn incomplete(profile: &Profile) -> Option<(u64, u32)> {
        let ranks = several(profile)?;
        let size = |of: &Collective| ranks.kinds.get(of.kind as usize)?.group_size;
        let missing = ranks.collectives.iter().filter_map(|of| {
            size(of).filter(|&size| usize::try_from(size).is_ok_and(|size| size > of.on.len()))
        });
        let (n, most) = missing.fold((0, 0), |(n, most), size| (n + 1, most.max(size)));
        (n > 0).then_some((n, most))
    }
}

impl FoundOn {
    fn new(of: &Rank) -> Self {
        let found = of.collectives.saturating_sub(of.unmatched);
        Self { rank: of.rank, found, of: of.collectives }
    }
}

impl OfKind {
    fn new(kind: &CollectiveKind) -> Self {
        Self {
            name: kind.name.clone(),
            group: kind.group.clone(),
            collectives: 0,
            bytes: Some(0),
            moved_bytes: Some(0),
            transfer_ns: Some(0),
            ranks: Vec::new(),
        }
    }

    /// The algorithm bandwidth, in bytes per second: what they move, by their transfers.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<f64> {
        let (bytes, ns) = self.moved_bytes.zip(self.transfer_ns)?;
        (ns > 0).then(|| bytes as f64 / (ns as f64 / 1e9))
    }

    fn add(&mut self, kind: &CollectiveKind, on_ranks: usize, transfer_ns: Option<u64>) {
        self.collectives += 1;
        let moved = moved_bytes(kind, on_ranks);
        self.moved_bytes =
            self.moved_bytes.zip(moved).and_then(|(sum, bytes)| sum.checked_add(bytes));
        self.bytes = self.bytes.zip(kind.bytes).and_then(|(sum, bytes)| sum.checked_add(bytes));
        self.transfer_ns = self.transfer_ns.zip(transfer_ns).map(|(a, b)| a.saturating_add(b));
    }
}

impl OfRank {
    /// What it transferred, if that is known of any of its collectives: where one rank has a part of its own, it isn't.
    #[must_use]
    pub fn known_transfer_ns(&self) -> Option<u64> {
        self.is_divided().then_some(self.transfer_ns)
    }

    /// What it waited, if that is known of any of its collectives.
    #[must_use]
    pub fn known_wait_ns(&self) -> Option<u64> {
        self.is_divided().then_some(self.wait_ns)
    }

    fn is_divided(&self) -> bool {
        self.with_a_root_ns < self.time_ns
    }

    fn add(&mut self, duration_ns: u64, transfer_ns: Option<u64>) {
        self.collectives += 1;
        let (transfer, wait, other) = match transfer_ns {
            Some(transfer) => (transfer, duration_ns.saturating_sub(transfer), 0),
            None => (0, 0, duration_ns),
        };
        for (sum, part) in [
            (&mut self.time_ns, duration_ns),
            (&mut self.transfer_ns, transfer),
            (&mut self.wait_ns, wait),
            (&mut self.with_a_root_ns, other),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// What the devices of a rank did beside what ranks do together, or a device of one file by itself. `None` if the profile lacks
/// them, or if the times of bricks include waits for the host.
fn own_ns(profile: &Profile, members: Member, rank: u32) -> Option<u64> {
    let is_its = |(index, of): &(usize, &DeviceProfile)| match members {
        Member::Rank => of.rank == Some(rank),
        Member::Device => u32::try_from(*index) == Ok(rank),
    };
    let mut devices = profile.devices.iter().enumerate().filter(is_its).peekable();
    devices.peek()?;
    devices.try_fold(0, |sum: u64, (_, device)| {
        if device.includes_waits {
            return None;
        }
        let totals = device.streams.iter().flat_map(|stream| &stream.totals);
        let own =
            totals.filter(|total| total.kind == NameKind::Brick && !is_together(&total.stats.name));
        Some(own.fold(sum, |sum, total| sum.saturating_add(total.stats.exclusive_ns)))
    })
}

/// What ranks do together: it takes as long as the last of them lets it.
#[must_use]
pub fn is_together(brick: &str) -> bool {
    ["AllReduce", "Communication"].contains(&brick)
}

/// Whether the host of a profile drove a device: of several ranks, it is the first one's.
#[must_use]
pub fn is_of_host(profile: &Profile, rank: Option<u32>) -> bool {
    let first = several(profile).and_then(|ranks| ranks.ranks.first());
    rank.zip(first).is_none_or(|(rank, first)| rank == first.rank)
}

/// `the device`, or which of several: `device 1`, `rank 1`.
#[must_use]
pub fn name_of_device(profile: &Profile, index: usize) -> String {
    let rank = profile.devices.get(index).and_then(|device| device.rank);
    match (profile.devices.len(), rank) {
        (1, _) => "the device".to_owned(),
        (_, None) => format!("device {index}"),
        (_, Some(rank)) => {
            let of_rank = profile.devices.iter().filter(|device| device.rank == Some(rank));
            match of_rank.count() {
                1 => format!("rank {rank}"),
                _ => format!("device {index} (rank {rank})"),
            }
        }
    }
}

/// The phases of passes, of the host and of devices.
fn phases(profile: &Profile) -> BTreeMap<u32, Phase> {
    let on_devices = profile.devices.iter().flat_map(|device| &device.streams);
    let on_devices = on_devices.flat_map(|stream| &stream.passes);
    profile.passes.iter().chain(on_devices).map(|pass| (pass.serial, pass.phase)).collect()
}

/// The rank that others waited for the longest, if it is the last clearly more often than its share.
fn straggler(
    late: &BTreeMap<u32, Lateness>,
    passes_of: &BTreeMap<u32, Passes>,
    members: Member,
) -> Result<Straggler, String> {
    let one = members.one();
    let most = late.iter().max_by_key(|(_, late)| late.others_wait_ns);
    let Some((&rank, of)) = most.filter(|(_, late)| late.last > 0) else {
        return Err(format!("no collective has a {one} that clearly came last"));
    };
    let share = of.chances / of.of as f64;
    let by_chance = student::binomial_at_least(of.last, of.of, share) * late.len() as f64;
    let part = of.last as f64 / of.of as f64;
    if by_chance >= BY_CHANCE || part < share + CLEARLY * (1.0 - share) {
        return Err(format!(
            "no {one} is last clearly more often than by chance: the others wait longest for {one} {rank}, which is last in \
             {} of {} collectives",
            of.last, of.of
        ));
    }
    let phase = match of.phases.first() {
        Some(&phase) if of.phases.len() == 1 => phase,
        _ => None,
    };
    let passes = phase.and_then(|phase| passes_of.get(&rank)?.get(&phase));
    let passes = passes.map_or(0, |passes| passes.len() as u64);
    Ok(Straggler {
        rank,
        last: of.last,
        of: of.of,
        by_chance: by_chance.min(1.0),
        others_wait_ns: of.others_wait_ns,
        lead_ns: of.lead_ns,
        phase,
        passes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use brickscope_profile::{OnRank, Pass, Ranks};

    fn profile(kinds: &[&str], collectives: &[(u32, &[u64])]) -> Profile {
        let kind = |name: &&str| CollectiveKind { name: (*name).to_owned(), ..Default::default() };
        let collective = |&(kind, times): &(u32, &[u64])| Collective {
            kind,
            pass: Some(1),
            on: (0..)
                .zip(times)
                .map(|(rank, &duration_ns)| OnRank { rank, start_ns: Some(0), duration_ns })
                .collect(),
            ..Default::default()
        };
        Profile {
            ranks: Some(Ranks {
                ranks: (0..4).map(|rank| Rank { rank, ..Default::default() }).collect(),
                kinds: kinds.iter().map(kind).collect(),
                collectives: collectives.iter().map(collective).collect(),
                left_out: 0,
            }),
            ..Profile::empty(Default::default())
        }
    }

    #[test]
    fn transfer_and_wait_add_up_to_the_time_of_each_rank() {
        let of = [(0, &[30_000, 20_000, 25_000][..]), (1, &[5_000, 7_000][..]), (0, &[9_000][..])];
        let sums = InCollectives::of(&profile(&["all_reduce", "broadcast"], &of));
        let sums = sums.expect("there are common ones");
        // The last is on one rank alone.
        assert_eq!((sums.collectives, sums.with_a_root, sums.passes), (2, 1, 1));
        let parts: Vec<[u64; 4]> = sums
            .ranks
            .iter()
            .map(|of| [of.time_ns, of.transfer_ns, of.wait_ns, of.with_a_root_ns])
            .collect();
        assert_eq!(
            parts,
            [
                [35_000, 20_000, 10_000, 5_000],
                [27_000, 20_000, 0, 7_000],
                [25_000, 20_000, 5_000, 0]
            ]
        );
        assert_eq!(sums.kinds[0].transfer_ns, Some(20_000));
        assert_eq!(sums.kinds[1].transfer_ns, None);
    }

    #[test]
    fn a_straggler_is_last_far_more_often_than_its_share() {
        // Rank 1 comes last in 7 of 8, by 10 µs.
        let late = (0, &[50_000, 20_000, 30_000, 40_000][..]);
        let other = (0, &[20_000, 25_000, 25_000, 25_000][..]);
        let mut of = vec![late; 7];
        of.push(other);
        let sums = InCollectives::of(&profile(&["all_reduce"], &of)).expect("there are some");
        let straggler = sums.straggler.expect("there is one");
        assert_eq!((straggler.rank, straggler.last, straggler.of), (1, 7, 8));
        assert_eq!((straggler.lead_ns, straggler.others_wait_ns), (70_000, 140_000));
        // Σ of C(8, k) × 0.25^k × 0.75^(8 − k) for 7 and 8, for each of four ranks.
        let chance = 4.0 * (8.0 * 0.25_f64.powi(7) * 0.75 + 0.25_f64.powi(8));
        assert!((straggler.by_chance / chance - 1.0).abs() < 1e-6, "{straggler:?}");
    }

    /// Passes 1 to 6 are of decode, and 7 to 12 of prefill.
    fn with_passes(of: &[(u32, &[u64])], passes: &[Option<u32>]) -> InCollectives {
        let mut profile = profile(&["all_reduce"], of);
        let collectives = profile.ranks.iter_mut().flat_map(|ranks| &mut ranks.collectives);
        for (collective, pass) in collectives.zip(passes) {
            collective.pass = *pass;
        }
        let pass = |serial: u32| Pass {
            serial,
            phase: if serial <= 6 { Phase::Decode } else { Phase::Prefill },
            lane: 0,
            tokens: 0,
            position: 0,
            start_ns: 0,
            wall_ns: 0,
            attributed_ns: 0,
            unattributed_ns: 0,
            disturbance: None,
            is_left_out: false,
        };
        profile.passes = (1..=12).map(pass).collect();
        InCollectives::of(&profile).expect("there are some")
    }

    #[test]
    fn what_others_wait_a_pass_is_of_the_passes_of_that_phase() {
        // Rank 1 comes 10 µs late to each decode pass, and the others wait 20 µs; to prefill all come at once.
        let late = (0, &[50_000, 20_000, 30_000, 40_000][..]);
        let even = (0, &[20_000, 20_500, 20_500, 20_500][..]);
        let mut of = vec![late; 6];
        of.extend([even; 6]);
        let mut passes: Vec<Option<u32>> = (1..=12).map(Some).collect();
        let straggler = with_passes(&of, &passes).straggler.expect("there is one");
        assert_eq!((straggler.phase, straggler.passes), (Some(Phase::Decode), 6));
        assert_eq!((straggler.others_wait_a_pass_ns(), straggler.lead_a_pass_ns()), (20e3, 10e3));
        assert_eq!(straggler.basis(), "a pass");
        // Where it is late in both, or outside of passes, there is no pass of which the sum is.
        for (nth, pass) in [(6, Some(7)), (0, None)] {
            (of[nth], passes[nth]) = (late, pass);
            let straggler = with_passes(&of, &passes).straggler.expect("there is one");
            assert_eq!((straggler.phase, straggler.passes), (None, 0));
            assert_eq!(straggler.others_wait_a_pass_ns(), straggler.others_wait_ns as f64);
            assert_eq!(straggler.basis(), "in all");
            (of[6], passes[0]) = (even, Some(1));
        }
    }

    #[test]
    fn of_broadcasts_alone_the_last_to_come_is_not_known() {
        let of = [(0, &[50_000, 20_000][..]); 8];
        let sums = InCollectives::of(&profile(&["broadcast"], &of)).expect("there are some");
        assert_eq!((sums.straggler, sums.with_a_root), (None, 8));
        let reason = sums.straggler_absent.expect("it says why").reason;
        assert!(
            reason.starts_with("in each collective one rank has a part of its own"),
            "{reason}"
        );
    }

    #[test]
    fn no_rank_is_named_if_chance_explains_it_or_nobody_is_clearly_last() {
        let (a, b) = ((0, &[20_000, 50_000][..]), (0, &[50_000, 20_000][..]));
        for (of, why) in [
            (vec![a, b, a, b, a], "3 of 5"),
            (vec![a; 7], "7 of 7"),
            (vec![(0, &[20_000, 20_900][..]); 40], "no collective has"),
            // Not by chance, and by little.
            (std::iter::repeat_n([a, a, a, b, b], 200).flatten().collect(), "600 of 1000"),
        ] {
            let sums = InCollectives::of(&profile(&["all_reduce"], &of)).expect("there are some");
            assert_eq!(sums.straggler, None);
            let reason = sums.straggler_absent.expect("it says why").reason;
            assert!(reason.contains(why), "{reason}");
        }
        assert!(
            InCollectives::of(&profile(&["all_reduce"], &[a; 8]))
                .expect("some")
                .straggler
                .is_some()
        );
    }
}
