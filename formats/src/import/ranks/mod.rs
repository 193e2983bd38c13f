//! The traces of several ranks, as one profile.
//!
//! The host's spans and passes are those of the lowest rank. Devices of all ranks stand beside each other, with the first
//! rank's passes and clock, as far as common collectives tell them.
//!
//! `matching.rs` finds which collectives of two ranks are the same, `common.rs` what all have in common and how their clocks
//! lie, and `merge.rs` brings names, passes and times of a rank to those of the first. Files that state durations and numbers
//! alone are joined by `durations.rs`. What several devices of one file have in common, `devices.rs` finds.

mod common;
mod devices;
mod durations;
mod matching;
mod merge;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use brickscope_profile::{
    Absent, Collective, CollectiveKind, Imported, OnRank, Profile, Rank, Ranks,
};

use self::common::Common;
pub(super) use self::devices::{STREAM, of_devices, unmatched};
pub(super) use self::durations::settled;
use self::merge::{Names, Partners};
use super::{At, Format, ImportError};

/// The most collectives that are kept.
pub(super) const MOST_COLLECTIVES: usize = 1_000_000;

/// Clocks that are further apart are those of other things: of a machine since it started, and of the day.
const MOST_BETWEEN_NS: u64 = 3_600_000_000_000;

/// Makes one profile of those of single files, which [`read`](super::read()) has read: each of a rank of the same job.
///
/// # Errors
///
/// With the first file that doesn't fit to the others: it has no devices, is of another job, or is of a rank that another
/// file is of.
pub fn join(files: Vec<(PathBuf, Profile)>) -> Result<Profile, ImportError> {
    let mut files = files;
    if let [_] = files[..] {
        return Ok(files.remove(0).1);
    }
    let is_of_durations = |(_, profile): &(PathBuf, Profile)| {
        let imported = profile.imported.as_ref();
        imported.is_some_and(|imported| imported.format == Format::NcclInspector.name())
    };
    if files.iter().all(is_of_durations) {
        return durations::join(files);
    }
    for (path, profile) in &files {
        let at = At { path };
        if profile.devices.is_empty() || profile.imported.is_none() {
            return Err(at.whole(
                "is no trace with a device. Several files are read as the ranks of one job; import others one by one",
            ));
        }
    }
    let (numbers, why) = numbers(&files)?;
    let mut sorted: Vec<(u32, PathBuf, Profile)> = numbers
        .into_iter()
        .zip(files)
        .map(|(rank, (path, profile))| (rank, path, profile))
        .collect();
    sorted.sort_by_key(|(rank, ..)| *rank);
    let mut said = Said::default();
    said.lacks.extend(why);
    let mut all: Vec<Ranks> = Vec::with_capacity(sorted.len());
    for (rank, _, profile) in &mut sorted {
        let ranks = profile.ranks.take().unwrap_or_default();
        if ranks.ranks.len() > 1 {
            said.lacks.push(format!(
                "collectives of rank {rank}: several devices of its file have some, and which of them is which rank isn't \
                 known; imported alone, the file tells what its devices wait for each other"
            ));
        }
        all.push(of_one(ranks));
    }
    let common = common::common(&all);
    let mut rows = rows(&sorted, &all, &common);
    let later = axis(&rows);
    let mut rest = sorted.into_iter();
    let Some((first_rank, path, mut profile)) = rest.next() else {
        return Err(At { path: Path::new("") }.whole("there is no file"));
    };
    let serials = merge::serials(&profile);
    let mut partners = vec![Partners::default()];
    let mut names = Names::new(std::mem::take(&mut profile.names));
    merge::later(&mut profile, later[0].unwrap_or(0));
    name_devices(first_rank, &mut profile);
    for (nth, (rank, _, mut other)) in rest.enumerate() {
        let at = nth + 1;
        let pairs = pairs_of_passes(&all, &common, at);
        let of = merge::partners(&serials, &merge::serials(&other), &pairs);
        said.passes(first_rank, rank, &of);
        let numbers = names.add(std::mem::take(&mut other.names));
        merge::later(&mut other, later[at].unwrap_or(0));
        merge::adopt(&mut other, &numbers, &of.of_serial);
        name_devices(rank, &mut other);
        said.file(first_rank, rank, &other);
        profile.devices.append(&mut other.devices);
        partners.push(of);
    }
    profile.names = names.names;
    merge::sum_up(&mut profile);
    for (row, in_groups) in rows.iter_mut().zip(&common.in_groups) {
        row.unmatched = row.collectives.saturating_sub(*in_groups);
    }
    profile.ranks = Some(collectives(rows, &all, &common, &later, &partners));
    said.add_to(&mut profile, &path);
    debug_assert_eq!(profile.check(), Ok(()));
    Ok(profile)
}

/// What a file tells of its rank: if several of its devices have collectives, nothing but how many.
fn of_one(of: Ranks) -> Ranks {
    if of.ranks.len() < 2 {
        return of;
    }
    let sum = of.ranks.into_iter().reduce(|sum, row| Rank {
        collectives: sum.collectives.saturating_add(row.collectives),
        point_to_point: sum.point_to_point.saturating_add(row.point_to_point),
        ..sum
    });
    Ranks { ranks: sum.into_iter().collect(), left_out: of.left_out, ..Ranks::default() }
}

/// The number of each file's rank, and what to say if they only count the files.
fn numbers(files: &[(PathBuf, Profile)]) -> Result<(Vec<u32>, Option<String>), ImportError> {
    let stated: Vec<Option<(u32, Option<u32>)>> =
        files.iter().map(|(_, profile)| stated(profile)).collect();
    // All of them are of one job.
    let mut job: Option<(&Path, u32)> = None;
    for ((path, profile), stated) in files.iter().zip(&stated) {
        let at = At { path };
        if let (Some(a), Some((first, b))) =
            (&profile.imported, files.first().map(|(path, of)| (path, &of.imported)))
            && b.as_ref().is_some_and(|b| a.format != b.format)
        {
            let first = first.display();
            return Err(
                at.whole(format!("has another format than {first}: they aren't ranks of one job"))
            );
        }
        let Some((rank, Some(size))) = *stated else { continue };
        match job {
            Some((other, of)) if of != size => {
                let other = other.display();
                return Err(at.whole(format!(
                    "is of rank {rank} of {size}, and {other} of one of {of}: they aren't ranks of one job"
                )));
            }
            _ => job = Some((path.as_path(), size)),
        }
    }
    let known = files.iter().zip(&stated).map(|((path, _), stated)| {
        stated.map(|(rank, _)| rank).or_else(|| of_name(&path.file_name()?.to_string_lossy()))
    });
    let Some(known) = known.collect::<Option<Vec<u32>>>() else {
        let why = "the numbers of ranks: some files don't state theirs, nor do their names, so they are counted in the order \
                   in which they were given";
        return Ok(((0..).take(files.len()).collect(), Some(why.to_owned())));
    };
    for (at, rank) in known.iter().enumerate() {
        if let Some(before) = known[..at].iter().position(|other| other == rank) {
            let other = files[before].0.display();
            return Err(At { path: &files[at].0 }
                .whole(format!("is of rank {rank}, as {other} is: a job has each rank once")));
        }
    }
    Ok((known, None))
}

/// The rank that a file states, and of how many it is: `1 of 8`.
fn stated(profile: &Profile) -> Option<(u32, Option<u32>)> {
    let conditions = profile.imported.iter().flat_map(|imported| &imported.conditions);
    let (_, text) = conditions.into_iter().find(|(name, _)| name == "rank")?;
    match text.split_once(" of ") {
        Some((rank, size)) => Some((rank.parse().ok()?, size.parse().ok())),
        None => Some((text.parse().ok()?, None)),
    }
}

/// The rank that a file's name tells: `rank1`, `rank-1`, `rank_1`, or SGLang's `TP-1`.
fn of_name(name: &str) -> Option<u32> {
    let name = name.to_ascii_lowercase();
    ["rank", "tp-"].into_iter().find_map(|word| {
        name.match_indices(word).find_map(|(at, _)| {
            // Not `prank1`.
            let is_inside = name[..at].chars().next_back().is_some_and(char::is_alphanumeric);
            let rest = &name[at + word.len()..];
            let rest = rest.strip_prefix(['-', '_']).unwrap_or(rest);
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse().ok().filter(|_| !is_inside)
        })
    })
}

/// What the profile says of each rank.
fn rows(sorted: &[(u32, PathBuf, Profile)], all: &[Ranks], common: &Common) -> Vec<Rank> {
    let row = |(at, ((number, path, _), ranks)): (usize, (&(u32, PathBuf, Profile), &Ranks))| {
        let clock = common.clocks.get(at).cloned().unwrap_or_default();
        Rank {
            rank: *number,
            file: path.display().to_string(),
            shift_ns: clock.shift_ns,
            shift_spread_ns: clock.spread_ns,
            shift_absent: clock.absent,
            matched_by: common.matched_by.get(at).copied().flatten(),
            ..ranks.ranks.first().cloned().unwrap_or_default()
        }
    };
    sorted.iter().zip(all).enumerate().map(row).collect()
}

/// What to add to the times of each rank, so that they are from the first event of all on. `None` where that isn't known, since
/// its clock is another one.
fn axis(rows: &[Rank]) -> Vec<Option<u64>> {
    let first = rows.first().map_or(0, |row| row.origin_ns);
    let begins: Vec<Option<i64>> = rows
        .iter()
        .map(|row| {
            let begin = row.origin_ns.saturating_add(row.shift_ns.unwrap_or(0));
            let is_near = begin.abs_diff(first) <= MOST_BETWEEN_NS;
            (is_near || row.shift_ns.is_some()).then_some(begin)
        })
        .collect();
    let earliest = begins.iter().flatten().min().copied().unwrap_or(first);
    begins.into_iter().map(|begin| begin.map(|begin| begin.abs_diff(earliest))).collect()
}

/// The passes of collectives that the first rank and another one have in common.
fn pairs_of_passes(all: &[Ranks], common: &Common, other: usize) -> Vec<(u32, u32)> {
    let pass = |(rank, at): (usize, usize)| all[rank].collectives.get(at)?.pass;
    let of_group = |group: &Vec<(usize, usize)>| {
        let on = |rank: usize| group.iter().copied().find(|&(of, _)| of == rank);
        Some((pass(on(0)?)?, pass(on(other)?)?))
    };
    common.groups.iter().filter_map(of_group).collect()
}

/// Says whose devices they are.
fn name_devices(rank: u32, profile: &mut Profile) {
    for device in &mut profile.devices {
        device.rank = Some(rank);
        device.name = format!("rank {rank}: {}", device.name);
    }
}

/// The common collectives with the times of all ranks on one axis, and the first rank's passes.
fn collectives(
    rows: Vec<Rank>,
    all: &[Ranks],
    common: &Common,
    later: &[Option<u64>],
    partners: &[Partners],
) -> Ranks {
    let mut ranks = Ranks {
        left_out: all.iter().fold(0, |sum, of| u64::saturating_add(sum, of.left_out)),
        ..Ranks::default()
    };
    let mut of_kind: HashMap<CollectiveKind, u32> = HashMap::new();
    let mut entries = 0;
    for group in &common.groups {
        let of = |&(rank, at): &(usize, usize)| Some((rank, all.get(rank)?.collectives.get(at)?));
        let members: Vec<(usize, &Collective)> = group.iter().filter_map(of).collect();
        let Some(&(lowest, first)) = members.first() else { continue };
        let Some(kind) = all[lowest].kinds.get(first.kind as usize) else { continue };
        entries += members.len();
        if entries > MOST_COLLECTIVES {
            ranks.left_out += 1;
            continue;
        }
        let kind = *of_kind.entry(kind.clone()).or_insert_with(|| {
            ranks.kinds.push(kind.clone());
            ranks.kinds.len() as u32 - 1
        });
        let pass = |&(rank, of): &(usize, &Collective)| match rank {
            0 => of.pass,
            _ => partners.get(rank)?.of_serial.get(&of.pass?).copied(),
        };
        let on = |&(rank, of): &(usize, &Collective)| {
            let on = of.on.first()?;
            let later = later.get(rank).copied().flatten().unwrap_or(0);
            let start_ns = on.start_ns.map(|start| start.saturating_add(later));
            Some(OnRank { rank: rows.get(rank)?.rank, start_ns, duration_ns: on.duration_ns })
        };
        ranks.collectives.push(Collective {
            kind,
            number: first.number,
            pass: members.iter().find_map(pass),
            layer: members.iter().find_map(|(_, of)| of.layer),
            on: members.iter().filter_map(on).collect(),
        });
    }
    ranks.collectives.sort_by_key(|of| of.on.first().map(|on| on.start_ns));
    ranks.ranks = rows;
    ranks
}

/// What the files say, and what is left out of them.
#[derive(Default)]
struct Said {
    files: u64,
    lacks: Vec<String>,
    /// What files of other ranks than the first lack, and of which.
    of_ranks: Vec<(String, Vec<u32>)>,
    doubts: Vec<String>,
    left_out: Vec<(String, u64)>,
}

impl Said {
    /// What another rank's file says beside its devices.
    fn file(&mut self, first: u32, rank: u32, profile: &Profile) {
        self.files += 1;
        let spans = profile.spans.len() as u64;
        self.leave_out(
            format!("spans of the host of rank {rank}: the host shown is that of rank {first}"),
            spans,
        );
        let Some(imported) = &profile.imported else { return };
        for (why, n) in &imported.left_out {
            self.leave_out(why.clone(), *n);
        }
        self.doubts.extend(imported.doubts.iter().map(|doubt| format!("rank {rank}: {doubt}")));
        for lack in &imported.lacks {
            match self.of_ranks.iter_mut().find(|(reason, _)| *reason == lack.reason) {
                Some((_, ranks)) if ranks.contains(&rank) => {}
                Some((_, ranks)) => ranks.push(rank),
                None => self.of_ranks.push((lack.reason.clone(), vec![rank])),
            }
        }
    }

    fn leave_out(&mut self, why: String, n: u64) {
        if n == 0 {
            return;
        }
        match self.left_out.iter_mut().find(|(other, _)| *other == why) {
            Some((_, sum)) => *sum = sum.saturating_add(n),
            None => self.left_out.push((why, n)),
        }
    }

    /// How the passes of another rank were found to be those of the first.
    fn passes(&mut self, first: u32, rank: u32, of: &Partners) {
        self.leave_out(
            format!("passes of rank {rank} that rank {first} has no partner of; their work is in no pass"),
            of.alone,
        );
        if !of.is_even && !of.is_told && !of.of_serial.is_empty() {
            self.lacks.push(format!(
                "which passes of rank {rank} are which of rank {first}: there are not equally many, and no common \
                 collective tells, so they are paired from the first one on"
            ));
        }
    }

    fn add_to(self, profile: &mut Profile, path: &Path) {
        let Some(imported) = &mut profile.imported else { return };
        let n = self.files;
        let s = if n == 1 { "" } else { "s" };
        imported.file = format!("{} and {n} more file{s}", path.display());
        let doubts = profile.ranks.iter().flat_map(|ranks| ranks.ranks.first());
        let first = doubts.map(|rank| rank.rank).next().unwrap_or(0);
        let own = std::mem::take(&mut imported.lacks).into_iter();
        let mut lacks: Vec<(String, Vec<u32>)> =
            own.map(|lack| (lack.reason, vec![first])).collect();
        for (reason, ranks) in self.of_ranks {
            match lacks.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, of)) => of.extend(ranks),
                None => lacks.push((reason, ranks)),
            }
        }
        let lacks = lacks.into_iter();
        imported.lacks =
            lacks.map(|(reason, of)| Absent { reason: of_whom(&of, n + 1, reason) }).collect();
        for reason in self.lacks {
            if !imported.lacks.iter().any(|lack| lack.reason == reason) {
                imported.lacks.push(Absent { reason });
            }
        }
        for doubt in &mut imported.doubts {
            *doubt = format!("rank {first}: {doubt}");
        }
        imported.doubts.extend(self.doubts);
        for (why, n) in self.left_out {
            match imported.left_out.iter_mut().find(|(other, _)| *other == why) {
                Some((_, sum)) => *sum = sum.saturating_add(n),
                None => imported.left_out.push((why, n)),
            }
        }
        conditions(imported, n + 1);
    }
}

/// The most ranks that a sentence names.
const MOST_NAMED: usize = 4;

/// What some of the files lack, with their ranks; what all of them lack as it is.
fn of_whom(ranks: &[u32], all: u64, reason: String) -> String {
    let named: Vec<String> = ranks.iter().take(MOST_NAMED).map(u32::to_string).collect();
    let named = named.join(", ");
    match ranks.len() {
        n if n as u64 == all => reason,
        1 => format!("rank {named}: {reason}"),
        n if n > MOST_NAMED => format!("ranks {named} and {} more: {reason}", n - MOST_NAMED),
        _ => format!("ranks {named}: {reason}"),
    }
}

/// Of how many ranks the profile is, instead of which.
fn conditions(imported: &mut Imported, ranks: u64) {
    for (name, value) in imported.conditions.iter_mut().filter(|(name, _)| name == "rank") {
        "ranks".clone_into(name);
        *value = match value.split_once(" of ") {
            Some((_, size)) => format!("{ranks} of {size}"),
            None => ranks.to_string(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_tell_ranks() {
        for (name, rank) in [
            ("rank0.1700000000.pt.trace.json.gz", Some(0)),
            ("sampled_rank-12.json.gz", Some(12)),
            ("trace_Rank_3.json", Some(3)),
            ("1718-TP-1.trace.json.gz", Some(1)),
            ("prank7.json", None),
            ("ranks.json", None),
            ("rank99999999999.json", None),
            ("trace.json", None),
        ] {
            assert_eq!(of_name(name), rank, "{name}");
        }
    }

    #[test]
    fn times_are_from_the_first_event_of_all_on() {
        let row = |origin_ns, shift_ns| Rank { origin_ns, shift_ns, ..Rank::default() };
        let rows = [row(1_000, Some(0)), row(500, Some(-100)), row(2_000, None)];
        assert_eq!(axis(&rows), [Some(600), Some(0), Some(1_600)]);
        // The clock of a machine since it started, and that of the day.
        let rows = [row(1_000, Some(0)), row(1 << 60, None)];
        assert_eq!(axis(&rows), [Some(0), None]);
        assert_eq!(
            axis(&[row(0, Some(0)), row(1 << 60, Some(-(1 << 60) + 7))]),
            [Some(0), Some(7)]
        );
    }
}
