//! The runs that are made of what the processes of a command recorded: when it has ended, or so far.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use brickscope::{Absent, Anchor, Clock, Named, Profile};
use brickscope_live::socket::SoFar;
use brickscope_llama::recording::{self, Recorded};
use brickscope_runs::RunDir;

use super::{Described, Of, Records};
use crate::text::count;

/// The most runs that are made of a command: a program may have a context for each of its tests.
const MOST_RUNS: usize = 64;

/// What is known of a command when it begins.
pub(crate) struct Began<'r> {
    pub(crate) command: &'r [OsString],
    /// When it was, as RFC 3339 has it.
    pub(crate) created: &'r str,
    /// It was made when the recording began, or tells the time since.
    pub(crate) clock: Clock,
    /// When the recording began, on the machine's clocks, too.
    pub(crate) anchor: Option<Anchor>,
    /// What the machine and the commit were named then.
    pub(crate) named: Option<Named>,
}

/// The processes that computed anything, first the one that did most.
pub(crate) fn by_passes(mut all: Vec<Recorded>) -> Vec<Recorded> {
    all.retain(|recorded| !recorded.events.is_empty());
    all.sort_by_key(|recorded| Reverse(recorded.events.len()));
    all
}

/// A run of each context of each process: those of the first process first.
pub(crate) fn describe(
    all: &mut [Recorded],
    began: &Began<'_>,
    is_over: bool,
    notes: &mut Vec<String>,
) -> Vec<Described> {
    let mut described: Vec<Described> = Vec::new();
    let mut left_out = 0;
    for (number, recorded) in all.iter_mut().enumerate() {
        let files = recording::name_weights(recorded, began.command, notes);
        let recorded = &*recorded;
        let groups = recording::groups(recorded);
        let process = (number > 0).then_some(recorded.process);
        for nth in 0..groups.len() {
            if described.len() == MOST_RUNS {
                left_out += groups.len() - nth;
                break;
            }
            let of = Of {
                recorded,
                groups: &groups,
                nth,
                process,
                line: began.command,
                files: &files,
                anchor: began.anchor,
                is_over,
            };
            let is_first = described.is_empty();
            described.extend(of.described(&began.clock, notes, is_first));
        }
    }
    if left_out > 0 {
        notes.push(format!(
            "{} left out: there are more than {MOST_RUNS}",
            count(left_out as u64, "context")
        ));
    }
    for of in &mut described {
        began.created.clone_into(&mut of.profile.created);
        of.profile.named.clone_from(&began.named);
    }
    described
}

/// The first run, which names those beside it, and these. `None` if there is none.
pub(crate) fn with_others(described: Vec<Described>) -> Option<(Described, Vec<Described>)> {
    let mut all = described.into_iter();
    let mut first = all.next()?;
    let others: Vec<Described> = all.collect();
    for (of, nth) in others.iter().zip(2..) {
        if let Some(run) = &mut first.profile.run {
            run.beside.push(of.beside(folder_of(nth)));
        }
    }
    Some((first, others))
}

/// Writes a run, and those beside it.
pub(crate) fn save(dir: &RunDir, first: &Profile, others: &[Described]) -> Result<()> {
    dir.save(first)?;
    let mut others = others.iter().zip(2..);
    others.try_for_each(|(of, nth)| dir.save_beside(&folder_of(nth), &of.profile))
}

fn folder_of(nth: u32) -> String {
    format!("context-{nth}")
}

/// Writes a run of what is kept so far of a program that goes on, beside the one of its end, which is written to `out`, and says
/// where. Returns that, or what was said instead.
pub(crate) fn tell_so_far(
    records: &mut Records,
    began: &Began<'_>,
    out: Option<&Path>,
) -> Result<SoFar, String> {
    let why = match write_so_far(records, began, out) {
        Ok(Some((folder, passes))) => {
            tell!("note: {} so far: {}", count(passes, "pass"), folder.display());
            // Who asks may be in another folder.
            let folder = std::path::absolute(&folder).unwrap_or(folder);
            return Ok(SoFar { folder, passes });
        }
        Ok(None) => "no pass was recorded so far".to_owned(),
        Err(why) => format!("what was recorded so far can't be written: {why:#}"),
    };
    tell!("note: {why}");
    Err(why)
}

/// The folder, and how many passes there were. `None` if nothing was recorded.
fn write_so_far(
    records: &mut Records,
    began: &Began<'_>,
    out: Option<&Path>,
) -> Result<Option<(PathBuf, u64)>> {
    let mut recorded = by_passes(records.so_far());
    // Its notes are those of the end, too.
    let described = describe(&mut recorded, began, false, &mut Vec::new());
    drop(recorded);
    let Some((Described { mut profile, .. }, mut others)) = with_others(described) else {
        return Ok(None);
    };
    for profile in others.iter_mut().map(|of| &mut of.profile).chain([&mut profile]) {
        let reason = "it is known when the program has ended";
        profile.other_load = None;
        profile.other_load_absent = Some(Absent { reason: reason.to_owned() });
    }
    let of_phases = profile.phases.iter().map(|phase| phase.passes);
    let passes = of_phases.fold(0, u64::saturating_add);
    let write = |dir: &RunDir| save(dir, &profile, &others);
    let folder = brickscope_runs::write_so_far(out, began.created, write)?;
    Ok(Some((folder, passes)))
}
