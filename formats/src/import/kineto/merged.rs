//! Files that a tool has merged of the traces of several ranks. The numbers of calls repeat in them, so a rank is read by
//! itself, and all are joined as files of single ranks are.
//!
//! SGLang's merger puts a label before each process: `[TP00-EP00] 4242`. In a file without labels, a kernel is of the process
//! whose call alone has its number: where several have it, whose it is isn't known.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use brickscope_profile::Profile;

use super::table::Table;
use super::{EventKind, Writer, profile};
use crate::import::trace::{LeftOut, Timed, Trace};
use crate::import::{At, ImportError, lacks, left_out, ranks};

/// The most ranks of a file. Each has a look at all of its names.
const MOST_RANKS: usize = 256;

/// What the parts of a label begin with, before a number.
const PARALLEL: [&str; 4] = ["TP", "DP", "PP", "EP"];

/// The label of a rank before a process, and the process.
pub(in crate::import) fn labelled(pid: &str) -> Option<(&str, &str)> {
    let (label, process) = pid.trim_matches('"').strip_prefix('[')?.split_once("] ")?;
    let is_part = |part: &str| PARALLEL.into_iter().any(|kind| part_number(part, kind).is_some());
    label.split('-').all(is_part).then_some((label, process))
}

/// The number that a part of a label has, if it is of this kind: 3 of `TP03`.
fn part_number(part: &str, kind: &str) -> Option<u32> {
    let digits = part.strip_prefix(kind)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The labels of a file's processes.
#[derive(Default)]
struct Labels {
    names: Vec<String>,
    of_track: Vec<Option<usize>>,
}

impl Labels {
    fn of(trace: &Trace) -> Self {
        let mut labels = Self::default();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for track in &trace.tracks {
            let number = labelled(&track.pid).map(|(label, _)| {
                *numbers.entry(label).or_insert_with(|| {
                    labels.names.push(label.to_owned());
                    labels.names.len() - 1
                })
            });
            labels.of_track.push(number);
        }
        labels
    }

    fn of_event(&self, event: &Timed) -> Option<usize> {
        self.of_track.get(event.lane as usize).copied().flatten()
    }

    /// Those that events have, in the order of the file. First come those with work of a device: what was left out of the
    /// whole file is told with the first rank, and ranks without such work aren't kept.
    fn used(&self, trace: &Trace) -> Vec<usize> {
        let mut is_used = vec![false; self.names.len()];
        let mut has_work = is_used.clone();
        for event in &trace.timed {
            if let Some(label) = self.of_event(event) {
                is_used[label] = true;
                has_work[label] |= event.kind == EventKind::Work;
            }
        }
        let mut used: Vec<usize> = (0..self.names.len()).filter(|&label| is_used[label]).collect();
        used.sort_by_key(|&label| !has_work[label]);
        used
    }
}

/// The profile of a file of PyTorch's profiler: that of its only process, or of all ranks that it was merged of.
pub(in crate::import) fn read(
    trace: &mut Trace,
    at: &At<'_>,
    table: &Table,
    writer: impl Fn() -> Writer,
) -> Result<Profile, ImportError> {
    let labels = Labels::of(trace);
    let used = labels.used(trace);
    match used.len() {
        0 | 1 => of_one(trace, at, table, writer()),
        2..=MOST_RANKS => of_ranks(trace, at, table, writer, &labels, &used),
        more => Err(at.whole(format!(
            "is merged of {more} ranks, more than {MOST_RANKS}: import the files of its ranks"
        ))),
    }
}

/// That there are captures of one rank in a trace: those of several would mix.
pub(super) fn is_of_one(trace: &Trace, at: &At<'_>) -> Result<(), ImportError> {
    match Labels::of(trace).used(trace).len() {
        0 | 1 => Ok(()),
        ranks => Err(at.whole(format!(
            "is merged of {ranks} ranks: give the trace of the capture on one of them"
        ))),
    }
}

fn of_ranks(
    trace: &mut Trace,
    at: &At<'_>,
    table: &Table,
    writer: impl Fn() -> Writer,
    labels: &Labels,
    used: &[usize],
) -> Result<Profile, ImportError> {
    let mut parts: Vec<Vec<Timed>> = vec![Vec::new(); labels.names.len()];
    let mut of_none = 0;
    for event in std::mem::take(&mut trace.timed) {
        match labels.of_event(&event) {
            Some(label) => parts[label].push(event),
            None => of_none += 1,
        }
    }
    let stated = ranks_of(labels, used);
    let numbers: Vec<u32> = stated.clone().unwrap_or_else(|| (0..).take(used.len()).collect());
    let file = at.path.display().to_string();
    let mut files: Vec<(PathBuf, Profile)> = Vec::with_capacity(used.len());
    for (&label, rank) in used.iter().zip(numbers) {
        trace.timed = std::mem::take(&mut parts[label]);
        trace.rank = Some(rank);
        let path = PathBuf::from(format!("{file} [{}]", labels.names[label]));
        let of_rank = profile(trace, &At { path: &path }, table, writer())?;
        files.push((path, of_rank));
        forget_left_out(trace);
    }
    // Only what ran on devices can be set beside that of others.
    let before = files.len();
    match files.iter().any(|(_, of_rank)| !of_rank.devices.is_empty()) {
        true => files.retain(|(_, of_rank)| !of_rank.devices.is_empty()),
        false => files.truncate(1),
    }
    let dropped = (before - files.len()) as u64;
    let mut joined = ranks::join(files)?;
    if let Some(imported) = &mut joined.imported {
        imported.file = file;
    }
    left_out(&mut joined, "ranks of a merged file of which nothing on a device is there", dropped);
    left_out(&mut joined, "events of a merged file that have no label of a rank", of_none);
    if stated.is_none() {
        let why = "the numbers of ranks: the labels of the merged file don't tell them, so they are counted in its \
                   order";
        lacks(&mut joined, &[why]);
    }
    Ok(joined)
}

/// The number of each rank: that of tensor parallelism, if no two have the same.
fn ranks_of(labels: &Labels, used: &[usize]) -> Option<Vec<u32>> {
    let of =
        |&label: &usize| labels.names[label].split('-').find_map(|part| part_number(part, "TP"));
    let numbers: Vec<u32> = used.iter().map(of).collect::<Option<_>>()?;
    let single: HashSet<u32> = numbers.iter().copied().collect();
    (single.len() == numbers.len()).then_some(numbers)
}

/// Forgets what was left out of the whole file, once it was told of the first rank.
fn forget_left_out(trace: &mut Trace) {
    trace.left_out = LeftOut::default();
    trace.fault = None;
    for track in &mut trace.tracks {
        track.open.clear();
    }
    (trace.products.over, trace.attentions.over) = (0, 0);
}

fn of_one(
    trace: &mut Trace,
    at: &At<'_>,
    table: &Table,
    writer: Writer,
) -> Result<Profile, ImportError> {
    let others = without_other_processes(trace);
    let mut profile = profile(trace, at, table, writer)?;
    let Some(Others { host, work, unclear }) = others else { return Ok(profile) };
    let why = "events of the host of other processes than the one shown";
    left_out(&mut profile, why, host);
    let why = "kernels and copies that other processes launched than the one shown";
    left_out(&mut profile, why, work);
    if unclear > 0 {
        let why = format!(
            "which process launched {unclear} kernels and copies: the file was merged of several, whose calls have the same \
             numbers, and has no labels of ranks; import the file of each rank"
        );
        lacks(&mut profile, &[why.as_str()]);
    }
    Ok(profile)
}

/// What isn't of the process shown.
#[derive(Default)]
struct Others {
    host: u64,
    work: u64,
    /// Kernels and copies of which several processes could be.
    unclear: u64,
}

/// Where calls of several processes have the same numbers, keeps the host of one of them alone: that of the first pass, or of
/// the first call. What ran on devices isn't tied to a call whose number several have.
fn without_other_processes(trace: &mut Trace) -> Option<Others> {
    let of_track = processes(trace);
    let process = |event: &Timed| of_track.get(event.lane as usize).copied();
    let links = &trace.links;
    let number = |event: &Timed| links.get(event.link? as usize)?.correlation;
    let calls = || trace.timed.iter().filter(|event| event.kind == EventKind::Call);
    let first = calls().find_map(process)?;
    // As in all files of one process.
    if calls().all(|event| process(event) == Some(first)) {
        return None;
    }
    let mut owners: HashMap<u64, usize> = HashMap::new();
    let mut shared: HashSet<u64> = HashSet::new();
    for event in calls() {
        if let (Some(number), Some(process)) = (number(event), process(event))
            && *owners.entry(number).or_insert(process) != process
        {
            shared.insert(number);
        }
    }
    if shared.is_empty() {
        return None;
    }
    let is_pass = |event: &&Timed| !event.kind.is_of_device() && event.phase().is_some();
    let first_pass = trace.timed.iter().filter(is_pass).min_by_key(|event| event.start);
    let shown = first_pass.and_then(process).unwrap_or(first);
    let mut others = Others::default();
    let mut unclear: Vec<u32> = Vec::new();
    trace.timed.retain(|event| {
        if !event.kind.is_of_device() {
            let is_shown = process(event) == Some(shown);
            others.host += u64::from(!is_shown);
            return is_shown;
        }
        let Some(number) = number(event) else { return true };
        if shared.contains(&number) {
            others.unclear += u64::from(event.kind == EventKind::Work);
            unclear.extend(event.link);
            return true;
        }
        let is_of_another = owners.get(&number).is_some_and(|&process| process != shown);
        others.work += u64::from(is_of_another && event.kind == EventKind::Work);
        !is_of_another
    });
    for link in unclear {
        if let Some(link) = trace.links.get_mut(link as usize) {
            (link.correlation, link.external) = (None, None);
        }
    }
    Some(others)
}

/// A number for the process of each track.
fn processes(trace: &Trace) -> Vec<usize> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut of_track = Vec::with_capacity(trace.tracks.len());
    for track in &trace.tracks {
        let next = numbers.len();
        of_track.push(*numbers.entry(track.pid.as_str()).or_insert(next));
    }
    of_track
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_parallelism() {
        for (pid, is) in [
            ("\"[TP00-EP00] 4242\"", Some(("TP00-EP00", "4242"))),
            ("\"[TP01-DP02-PP03-EP04] Spans\"", Some(("TP01-DP02-PP03-EP04", "Spans"))),
            ("\"[TP00] 0\"", Some(("TP00", "0"))),
            ("\"[Unknown] 4242\"", None),
            ("\"[TP] 0\"", None),
            ("\"[] 0\"", None),
            ("\"Spans\"", None),
            ("4242", None),
        ] {
            assert_eq!(labelled(pid), is, "{pid}");
        }
    }

    #[test]
    fn ranks_have_the_numbers_of_tensor_parallelism_if_these_differ() {
        let labels = |of: &[&str]| Labels {
            names: of.iter().map(|&label| label.to_owned()).collect(),
            of_track: Vec::new(),
        };
        let of = |names: &[&str]| {
            let used: Vec<usize> = (0..names.len()).collect();
            ranks_of(&labels(names), &used)
        };
        assert_eq!(of(&["TP00-EP00", "TP02-EP01"]), Some(vec![0, 2]));
        assert_eq!(of(&["TP00-PP00", "TP00-PP01"]), None);
        assert_eq!(of(&["DP00", "DP01"]), None);
    }
}
