//! Merging many small files into few.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use brickscope_analysis::lake::{RUNS, TABLES, Table, Value};
use brickscope_analysis::receipt::sha256_hex;
use serde::Serialize;

use super::check::COUNTS;
use super::store::{Each, Lake, Part, Place, Row, Whose, age, is_gone};
use super::table_file;

/// What merging did.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Compacted {
    /// Files of several runs that were written.
    pub(crate) merged_parts: u64,
    /// The runs in them.
    pub(crate) runs: u64,
    /// Files that were deleted: their rows are in merged ones.
    pub(crate) deleted_files: u64,
    /// Files that will be deleted later: readers may be reading them.
    pub(crate) kept_files: u64,
    /// Files that killed writers left behind, deleted.
    pub(crate) orphans: u64,
    /// Days that could not be merged: a part was deleted meanwhile, or rows are missing.
    pub(crate) given_up: u64,
}

/// A writer needs far less than this for one run.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Merges the parts of each day, where there are several; then deletes what has been superseded for `grace`.
pub(crate) fn compact(lake: &mut Lake, grace: Duration, each: Each<'_>) -> Result<Compacted> {
    let mut done = Compacted::default();
    lake.refresh_files(each)?;
    let mut days: BTreeSet<String> = BTreeSet::new();
    // A writer that was killed may have left files where there is none in `runs`.
    for table in &TABLES {
        days.extend(lake.days(table)?);
    }
    let steps = 2 * days.len() as u64;
    for (nth, date) in (0..).zip(&days) {
        each(nth, steps);
        merge(lake, date, &mut done)?;
    }
    // From an object store what was merged is read again before anything that it supersedes is deleted.
    lake.refresh_files(&mut |_, _| {})?;
    for (nth, date) in (steps / 2..).zip(&days) {
        each(nth, steps);
        sweep(lake, date, grace, &mut done)?;
    }
    done.orphans = lake.delete_orphans(&days, ABANDONED.max(grace))?;
    each(steps, steps);
    Ok(done)
}

/// What a day holds, as far as it was read.
pub(super) struct Live {
    /// All parts that were read, in their order. One that came later isn't among them.
    pub(super) parts: Vec<Part>,
    /// Which of the parts counts, for each run.
    pub(super) runs: BTreeMap<String, usize>,
}

impl Live {
    /// The parts that count for a run.
    pub(super) fn counting(&self) -> BTreeSet<usize> {
        self.runs.values().copied().collect()
    }

    /// Calls `each` with the rows of a part that count, each with its run.
    pub(super) fn read(
        &self,
        lake: &Lake,
        table: &'static Table,
        part: usize,
        each: &mut dyn FnMut(&str, Row) -> Result<()>,
    ) -> Result<()> {
        let run_id = table.column("run_id").context("a table has no such column")?;
        table_file::read(table, &lake.file(table, &self.parts[part]), &mut |row| {
            let Value::Text(run) = &row[run_id] else { return Ok(()) };
            match self.runs.get_key_value(run) {
                Some((run, of)) if *of == part => each(run, row),
                _ => Ok(()),
            }
        })
    }
}

/// Reads which runs a day has. `unreadable` gets the error of a file that can't be read.
pub(super) fn live(
    lake: &Lake,
    date: &str,
    unreadable: &mut dyn FnMut(anyhow::Error) -> Result<()>,
) -> Result<Live> {
    let mut live = Live { parts: Vec::new(), runs: BTreeMap::new() };
    // In their order: the last one counts.
    for part in lake.parts_of(date)? {
        match table_file::texts(&RUNS, &lake.file(&RUNS, &part), "run_id") {
            Ok(runs) => {
                let nth = live.parts.len();
                live.runs.extend(runs.into_iter().map(|run| (run, nth)));
                live.parts.push(part);
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => unreadable(error)?,
        }
    }
    Ok(live)
}

fn merge(lake: &Lake, date: &str, done: &mut Compacted) -> Result<()> {
    if lake.parts_of(date)?.len() < 2 {
        return Ok(());
    }
    let live = live(lake, date, &mut Err)?;
    let counting = live.counting();
    if counting.len() < 2 {
        return Ok(());
    }
    let merged = merged_part(&live, &counting, date);
    // Of each run, its row and how many rows other tables have.
    let mut runs: BTreeMap<&String, (Row, [i64; COUNTS.len()])> = BTreeMap::new();
    for &part in &counting {
        live.read(lake, &RUNS, part, &mut |run, row| {
            if let Some((run, _)) = live.runs.get_key_value(run) {
                runs.insert(run, (row, Default::default()));
            }
            Ok(())
        })?;
    }
    let stated = |row: &Row, nth: usize| match RUNS.column(COUNTS[nth].1).map(|at| &row[at]) {
        Some(Value::Int(rows)) => *rows,
        _ => 0,
    };
    let is_in = |table: &Table| COUNTS.iter().position(|(name, _)| *name == table.name);
    for (nth, table) in TABLES.iter().filter_map(|table| Some((is_in(table)?, table))) {
        if runs.values().all(|(row, _)| stated(row, nth) == 0) {
            continue;
        }
        let part_of = table.column("part").context("a table has no such column")?;
        let text = merged.text();
        lake.write(table, &merged, &mut |push| {
            for &part in &counting {
                if !lake.has(table, &live.parts[part])? {
                    // The runs of this part have no such rows. If they should, the counts tell.
                    continue;
                }
                live.read(lake, table, part, &mut |run, mut row| {
                    if let Some((_, found)) = runs.get_mut(&run.to_owned()) {
                        found[nth] += 1;
                    }
                    row[part_of] = Value::Text(text.clone());
                    push(row)
                })?;
            }
            Ok(())
        })?;
    }
    let is_counted = |(row, found): &(Row, [i64; COUNTS.len()])| {
        found.iter().enumerate().all(|(nth, found)| stated(row, nth) == *found)
    };
    if runs.len() != live.runs.len() || !runs.values().all(is_counted) {
        // Another process deleted a part meanwhile, or the lake is damaged: `check` tells. What was written so far
        // counts for nothing.
        done.given_up += 1;
        return Ok(());
    }
    let part_of = RUNS.column("part").context("a table has no such column")?;
    done.merged_parts += 1;
    done.runs += runs.len() as u64;
    // Last, so that the merged part counts when it is whole.
    lake.write(&RUNS, &merged, &mut |push| {
        std::mem::take(&mut runs).into_values().try_for_each(|(mut row, _)| {
            row[part_of] = Value::Text(merged.text());
            push(row)
        })
    })
}

/// A part with a name that no other process gives, so that none writes over what another one wrote.
fn merged_part(live: &Live, counting: &BTreeSet<usize>, date: &str) -> Part {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let host = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let own = format!("{host} {} {}", std::process::id(), now.as_nanos());
    let hash = sha256_hex(own.as_bytes());
    // Before it comes what makes it the last part: one more than the last merged one.
    let parts = counting.iter().map(|part| &live.parts[*part]);
    let last = parts
        .filter(|part| part.is_merged())
        .filter_map(|part| part.name.get(..8)?.parse::<u64>().ok());
    let number = last.max().map_or(1, |last| last + 1);
    let place = Place { date: date.to_owned(), whose: Whose::All };
    Part { place, name: format!("{number:08}-{}", &hash[..16]) }
}

/// Deletes parts that don't count any more.
fn sweep(lake: &Lake, date: &str, grace: Duration, done: &mut Compacted) -> Result<()> {
    if lake.parts_of(date)?.len() < 2 {
        return Ok(());
    }
    let live = live(lake, date, &mut Err)?;
    let counting = live.counting();
    // Readers that began before the last part was there may still read the others.
    let age_of = |part: &usize| age(&lake.file(&RUNS, &live.parts[*part]));
    let newest = counting.iter().filter_map(age_of).min();
    // Not one that came since: it was not read, and may hold a run that no other part has.
    let mut old = Vec::new();
    for nth in (0..live.parts.len()).filter(|nth| !counting.contains(nth)) {
        let part = &live.parts[nth];
        if newest.is_some_and(|age| age >= grace) && age_of(&nth).is_some_and(|age| age >= grace) {
            old.push(part);
            continue;
        }
        for table in &TABLES {
            done.kept_files += u64::from(lake.has(table, part)?);
        }
    }
    done.deleted_files += lake.delete(&old)?;
    let places: BTreeSet<&Place> = old.iter().map(|part| &part.place).collect();
    places.into_iter().for_each(|place| lake.delete_empty(place));
    Ok(())
}
