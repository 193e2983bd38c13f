//! Ranks of files that state durations and numbers alone: what is one collective is stated, and no clock is needed.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use brickscope_profile::{Collective, CollectiveKind, MatchedBy, Profile, Ranks};

use super::{MOST_COLLECTIVES, Said};
use crate::import::{At, ImportError, lacks, left_out};

/// Puts collectives together that are one: of the same operation, group and number. Those of which a rank has the number
/// twice are left out, and counted.
pub(in crate::import) fn settled(mut ranks: Ranks) -> (Ranks, u64) {
    let mut of_kind: HashMap<CollectiveKind, u32> = HashMap::new();
    let mut alike: Vec<u32> = Vec::with_capacity(ranks.kinds.len());
    for kind in &ranks.kinds {
        let key = CollectiveKind { bytes: None, ..kind.clone() };
        let next = of_kind.len() as u32;
        alike.push(*of_kind.entry(key).or_insert(next));
    }
    let mut places: HashMap<(u32, u64), usize> = HashMap::new();
    let mut all: Vec<Collective> = Vec::new();
    for of in std::mem::take(&mut ranks.collectives) {
        let key = alike.get(of.kind as usize).copied().zip(of.number);
        let place = key.map(|key| *places.entry(key).or_insert(all.len()));
        match place.and_then(|place| all.get_mut(place)) {
            Some(first) => first.on.extend(of.on),
            None => all.push(of),
        }
    }
    let mut twice = 0;
    all.retain_mut(|of| {
        of.on.sort_by_key(|on| on.rank);
        let is_single = of.on.windows(2).all(|two| two[0].rank != two[1].rank);
        twice += if is_single { 0 } else { of.on.len() as u64 };
        is_single
    });
    let mut common: HashMap<u32, u64> = HashMap::new();
    for on in all.iter().filter(|of| of.on.len() > 1).flat_map(|of| &of.on) {
        *common.entry(on.rank).or_default() += 1;
    }
    for rank in &mut ranks.ranks {
        let n = common.get(&rank.rank).copied().unwrap_or(0);
        rank.unmatched = rank.collectives.saturating_sub(n);
        rank.matched_by = (n > 0).then_some(MatchedBy::Number);
    }
    ranks.ranks.sort_by_key(|rank| rank.rank);
    ranks.collectives = all;
    (ranks, twice)
}

/// The largest group of each rank: its size and its name. Of several, that whose name comes first.
fn worlds(ranks: &Ranks) -> HashMap<u32, (u32, Reverse<&str>)> {
    let mut worlds = HashMap::new();
    for of in &ranks.collectives {
        let Some(kind) = ranks.kinds.get(of.kind as usize) else { continue };
        let group = (kind.group_size.unwrap_or(0), Reverse(&*kind.group));
        for on in &of.on {
            let largest = worlds.entry(on.rank).or_insert(group);
            *largest = group.max(*largest);
        }
    }
    worlds
}

/// How many ranks the group has that all ranks are in. `None` if there is none.
fn world(all: &[Ranks]) -> Option<u32> {
    let worlds = all.iter().flat_map(|ranks| worlds(ranks).into_values());
    let worlds: HashSet<(u32, Reverse<&str>)> = worlds.collect();
    let mut worlds = worlds.into_iter();
    let (size, _) = worlds.next()?;
    worlds.next().is_none().then_some(size)
}

/// Makes one profile of several.
pub(super) fn join(files: Vec<(PathBuf, Profile)>) -> Result<Profile, ImportError> {
    let mut files = files;
    let all: Vec<Ranks> =
        files.iter_mut().map(|(_, profile)| profile.ranks.take().unwrap_or_default()).collect();
    let size = world(&all);
    if size.is_some() {
        check(&files, &all)?;
    }
    let mut joined = Ranks::default();
    let mut of_kind: HashMap<CollectiveKind, u32> = HashMap::new();
    let mut entries = 0;
    for ranks in all {
        // Where no group has all ranks, numbers of two files may be the same.
        let next = joined.ranks.len() as u32;
        let numbers: HashMap<u32, u32> = ranks
            .ranks
            .iter()
            .zip(next..)
            .map(|(rank, nth)| (rank.rank, if size.is_some() { rank.rank } else { nth }))
            .collect();
        let number = |rank: u32| numbers.get(&rank).copied().unwrap_or(rank);
        joined.left_out = joined.left_out.saturating_add(ranks.left_out);
        let mut kinds = Vec::with_capacity(ranks.kinds.len());
        for kind in ranks.kinds {
            let at = *of_kind.entry(kind.clone()).or_insert_with(|| {
                joined.kinds.push(kind);
                joined.kinds.len() as u32 - 1
            });
            kinds.push(at);
        }
        for mut of in ranks.collectives {
            let Some(&kind) = kinds.get(of.kind as usize) else { continue };
            entries += of.on.len();
            if entries > MOST_COLLECTIVES {
                joined.left_out += 1;
                continue;
            }
            of.kind = kind;
            for on in &mut of.on {
                on.rank = number(on.rank);
            }
            joined.collectives.push(of);
        }
        let rows = ranks.ranks.into_iter();
        joined.ranks.extend(rows.map(|mut rank| {
            rank.rank = number(rank.rank);
            rank
        }));
    }
    let (mut joined, twice) = settled(joined);
    joined.collectives.retain(|of| of.on.len() > 1);
    let n = joined.ranks.len();
    let first_rank = joined.ranks.first().map_or(0, |rank| rank.rank);
    let lowest = joined.ranks.first().map(|rank| rank.file.clone());
    // What is said first is said of the file of the lowest rank.
    let is_lowest = |(path, _): &(PathBuf, Profile)| Some(path.display().to_string()) == lowest;
    let at = files.iter().position(is_lowest).unwrap_or(0);
    if files.is_empty() {
        return Err(At { path: Path::new("") }.whole("there is no file"));
    }
    let (path, mut profile) = files.remove(at);
    let mut said = Said::default();
    for (path, other) in &files {
        let file = path.display().to_string();
        let rank = joined.ranks.iter().find(|rank| rank.file == file);
        said.file(first_rank, rank.map_or(first_rank, |rank| rank.rank), other);
    }
    profile.ranks = Some(joined);
    said.add_to(&mut profile, &path);
    left_out(&mut profile, "collectives whose number one rank has twice", twice);
    if let Some(imported) = &mut profile.imported {
        imported.conditions.retain(|(name, _)| name != "rank" && name != "ranks");
        let ranks = match size {
            Some(size) => format!("{n} of {size}"),
            None => n.to_string(),
        };
        imported.conditions.insert(0, ("ranks".to_owned(), ranks));
    }
    if size.is_none() {
        let why = "the numbers of ranks: no communicator has all of them, so they are counted in the order of the \
                   files";
        lacks(&mut profile, &[why]);
    }
    debug_assert_eq!(profile.check(), Ok(()));
    Ok(profile)
}

/// Whether each rank is of one file.
fn check(files: &[(PathBuf, Profile)], all: &[Ranks]) -> Result<(), ImportError> {
    let mut seen: HashMap<u32, &Path> = HashMap::new();
    for ((path, _), ranks) in files.iter().zip(all) {
        for rank in &ranks.ranks {
            if let Some(other) = seen.insert(rank.rank, path) {
                let (rank, other) = (rank.rank, other.display());
                return Err(At { path }
                    .whole(format!("is of rank {rank}, as {other} is: a job has each rank once")));
            }
        }
    }
    Ok(())
}
