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
    /// It tells the time since the recording began, or since a moment before that: [`Clock::counter_since`].
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
        let before = described.len();
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
        let runs = described[before..].iter_mut().map(|of| &mut of.profile).collect();
        let is_shown = count_missed(recorded.missed, runs) == Some(0) && before == 0;
        notes.extend(missed_elsewhere(recorded, process).filter(|_| !is_shown));
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

/// Counts the requests of a process that are not recorded in one of its runs, so that they are in a sum over these once: the
/// first that has requests, or else the first. Returns which one that is; `None` if there is no run.
fn count_missed(missed: u64, mut runs: Vec<&mut Profile>) -> Option<usize> {
    let has_some = runs.iter().position(|of| !of.requests.is_empty());
    let nth = has_some.unwrap_or(0);
    runs.get_mut(nth)?.dropped.missed_requests = missed;
    Some(nth)
}

/// What is told of the requests of a process that are not recorded, where the run that is shown doesn't count them.
fn missed_elsewhere(recorded: &Recorded, process: Option<u32>) -> Option<String> {
    let of = process.map_or(String::new(), |process| format!(" in process {process}"));
    let missed = recorded.missed;
    (missed > 0).then(|| format!("requests that came{of} and are not recorded: {missed}"))
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

#[cfg(test)]
mod tests {
    use brickscope::{ClockInfo, MockClock, Request};

    use super::*;

    #[test]
    fn requests_that_are_not_recorded_are_counted_in_one_run_of_their_process() {
        let none = Profile::empty(ClockInfo::default());
        let mut some = none.clone();
        some.requests.push(Request::default());
        for (mut runs, counted) in [
            (vec![none.clone(), some.clone(), some.clone()], Some(1)),
            (vec![some.clone(), none.clone()], Some(0)),
            (vec![none.clone(), none.clone()], Some(0)),
            (Vec::new(), None),
        ] {
            assert_eq!(count_missed(7, runs.iter_mut().collect()), counted);
            let missed = runs.iter().map(|of| of.dropped.missed_requests);
            let expected = (0..runs.len()).map(|nth| if Some(nth) == counted { 7 } else { 0 });
            assert!(missed.eq(expected), "{counted:?}");
        }
    }

    #[test]
    fn requests_of_a_process_of_which_no_pass_can_be_read_are_told() {
        let mut recorded = Recorded::default();
        (recorded.process, recorded.missed) = (9, 5);
        let clock = MockClock::default().clock();
        let began = Began { command: &[], created: "", clock, anchor: None, named: None };
        let told = |recorded: &Recorded| {
            let mut notes = Vec::new();
            let mut all = [recorded.clone(), recorded.clone()];
            let described = describe(&mut all, &began, false, &mut notes);
            assert_eq!(described.len(), 0);
            notes
        };
        let said = [
            "requests that came and are not recorded: 5",
            "requests that came in process 9 and are not recorded: 5",
        ];
        assert_eq!(told(&recorded), said);
        recorded.missed = 0;
        assert_eq!(told(&recorded), [""; 0]);
    }
}
