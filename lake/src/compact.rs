//! Merging many small files into few.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, SystemTime};

use crate::rows::{REQUESTS, RUNS, TABLES, Table, Value};
use anyhow::{Context, Result, bail, ensure};
use brickscope_analysis::receipt::sha256_hex;
use brickscope_profile::text::printable;
use serde::Serialize;

use crate::part::COUNTS;
use crate::part::{Each, Part, Place, Whose, age, is_gone};
use crate::store::Lake;
use crate::table_file::{self, Columns, Newer, Row};

/// What merging did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Compacted {
    /// Parts with several runs that were written.
    pub merged_parts: u64,
    /// The runs in them.
    pub runs: u64,
    /// Files that were deleted: their rows are in merged ones.
    pub deleted_files: u64,
    /// Files that will be deleted later: readers may be reading them.
    pub kept_files: u64,
    /// Files that killed writers left behind, deleted.
    pub orphans: u64,
    /// Parts that could not be merged: a file can't be read, or rows are missing. `check` tells.
    pub given_up: u64,
}

/// A writer needs far less than this for one run.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A merged part of this many bytes is not merged once more: who adds a run to a large day, or reads a copy of it,
/// shouldn't have to write or fetch all of the day again.
const LARGE: u64 = 64 << 20;

/// Merges the parts of each day, where there are several; then deletes what has been superseded for `grace`.
pub fn compact(lake: &mut Lake, grace: Duration, each: Each<'_>) -> Result<Compacted> {
    let mut done = Compacted::default();
    lake.refresh_files(each)?;
    if let Some(table) = lake.unknown_table()? {
        bail!(
            "{}: this brickscope, {}, does not know the table {}, and would leave it out: merge with the newer one that wrote \
            it",
            lake.name(),
            env!("CARGO_PKG_VERSION"),
            printable(&table)
        );
    }
    // A mark of before there was such a table lets versions merge that would leave it out.
    if lake.has_rows_of(&REQUESTS)? {
        lake.mark_requests()?;
    }
    let mut days: BTreeSet<String> = BTreeSet::new();
    // A writer that was killed may have left files where there is none in `runs`.
    for table in &TABLES {
        days.extend(lake.days(table)?);
    }
    let steps = 2 * days.len() as u64;
    for (nth, date) in (0..).zip(&days) {
        each(nth, steps);
        match merge(lake, date, &mut done) {
            // Another process merged it, and deleted what it merged.
            Err(error) if is_gone(&error) => {}
            merged => merged?,
        }
    }
    // From an object store what was merged is read again before anything that it supersedes is deleted.
    lake.refresh_files(&mut |_, _| {})?;
    for (nth, date) in (steps / 2..).zip(&days) {
        each(nth, steps);
        match sweep(lake, date, grace, &mut done) {
            // Another process sweeps it.
            Err(error) if is_gone(&error) => {}
            swept => swept?,
        }
    }
    done.orphans = lake.delete_orphans(&days, ABANDONED.max(grace))?;
    each(steps, steps);
    Ok(done)
}

/// What a day holds, as far as it was read.
pub(crate) struct Live {
    /// All parts that were read, in their order. One that came later isn't among them.
    pub(crate) parts: Vec<Part>,
    /// The runs in each of them.
    runs_of: Vec<Vec<String>>,
    /// Which of the parts counts, for each run.
    pub(crate) runs: BTreeMap<String, usize>,
}

impl Live {
    /// The parts that count for a run.
    pub(crate) fn counting(&self) -> BTreeSet<usize> {
        self.runs.values().copied().collect()
    }

    /// Calls `each` with the rows of a part that count, each with its run.
    pub(crate) fn read(
        &self,
        lake: &Lake,
        table: &'static Table,
        part: usize,
        columns: Columns,
        each: &mut dyn FnMut(&str, Row) -> Result<()>,
    ) -> Result<()> {
        let run_id = table.column("run_id").context("a table has no such column")?;
        table_file::read(table, &lake.file(table, &self.parts[part]), columns, &mut |row| {
            let Value::Text(run) = &row[run_id] else { return Ok(()) };
            match self.runs.get_key_value(run) {
                Some((run, of)) if *of == part => each(run, row),
                _ => Ok(()),
            }
        })
    }
}

/// Reads which runs a day has. `unreadable` gets the error of a file that can't be read.
pub(crate) fn live(
    lake: &Lake,
    date: &str,
    unreadable: &mut dyn FnMut(anyhow::Error) -> Result<()>,
) -> Result<Live> {
    let mut live = Live { parts: Vec::new(), runs_of: Vec::new(), runs: BTreeMap::new() };
    // In their order: the last one counts.
    for part in lake.parts_of(date)? {
        match table_file::texts(&RUNS, &lake.file(&RUNS, &part), "run_id") {
            Ok(runs) => {
                let nth = live.parts.len();
                live.runs.extend(runs.iter().map(|run| (run.clone(), nth)));
                live.runs_of.push(runs);
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
    // A file of `runs` that can't be read holds up nothing but its own runs.
    let live = live(lake, date, &mut |_| {
        done.given_up += 1;
        Ok(())
    })?;
    let mut parts = live.counting();
    for part in parts.clone() {
        if live.parts[part].is_merged() && lake.bytes(&live.parts[part]) >= LARGE {
            parts.remove(&part);
        }
    }
    while parts.len() > 1 {
        let damaged = merge_parts(lake, &live, &parts, date)?;
        if damaged.is_empty() {
            done.merged_parts += 1;
            done.runs += live.runs.values().filter(|part| parts.contains(part)).count() as u64;
            break;
        }
        // What was written so far is in no run. The rest is merged without these parts.
        done.given_up += damaged.len() as u64;
        parts.retain(|part| !damaged.contains(part));
    }
    Ok(())
}

/// The run's row, and how many rows each other table has.
type Counted = (Row, [i64; COUNTS.len()]);

/// Merges some of a day's parts. If a part has a file that can't be read, or if the rows of its runs are not as many as
/// `runs` says, nothing is merged, and such parts are returned.
fn merge_parts(
    lake: &Lake,
    live: &Live,
    parts: &BTreeSet<usize>,
    date: &str,
) -> Result<BTreeSet<usize>> {
    let merged = merged_part(live, parts, date);
    let mut damaged = BTreeSet::new();
    let mut runs: BTreeMap<String, Counted> = BTreeMap::new();
    for &part in parts {
        let read = live.read(lake, &RUNS, part, Columns::All, &mut |run, row| {
            runs.insert(run.to_owned(), (row, Default::default()));
            Ok(())
        });
        note_damage(read, part, &mut damaged)?;
    }
    let stated = |row: &Row, nth: usize| match RUNS.column(COUNTS[nth].1).map(|at| &row[at]) {
        Some(Value::Int(rows)) => *rows,
        _ => 0,
    };
    let is_in = |table: &Table| COUNTS.iter().position(|(name, _)| *name == table.name);
    let mut written = Vec::new();
    for (nth, table) in TABLES.iter().filter_map(|table| Some((is_in(table)?, table))) {
        if !damaged.is_empty() || runs.values().all(|(row, _)| stated(row, nth) == 0) {
            continue;
        }
        let part_of = table.column("part").context("a table has no such column")?;
        let text = merged.text();
        lake.write(table, &merged, &mut |push| {
            for &part in parts {
                if !lake.has(table, &live.parts[part])? {
                    // The runs of this part have no such rows. If they should, the counts tell.
                    continue;
                }
                let mut pushed = Ok(());
                let read = live.read(lake, table, part, Columns::All, &mut |run, mut row| {
                    if let Some((_, found)) = runs.get_mut(run) {
                        found[nth] += 1;
                    }
                    row[part_of] = Value::Text(text.clone());
                    pushed = push(row);
                    ensure!(pushed.is_ok(), "the merged file can't be written");
                    Ok(())
                });
                pushed?;
                note_damage(read, part, &mut damaged)?;
            }
            Ok(())
        })?;
        written.push(table);
    }
    let is_counted = |(row, found): &Counted| {
        found.iter().enumerate().all(|(nth, found)| stated(row, nth) == *found)
    };
    // After a file that can't be read, rows are missing of all runs.
    if damaged.is_empty() {
        let of_parts = live.runs.iter().filter(|(_, part)| parts.contains(part));
        let wrong = of_parts.filter(|(run, _)| !runs.get(*run).is_some_and(is_counted));
        damaged.extend(wrong.map(|(_, part)| *part));
    }
    if !damaged.is_empty() {
        return Ok(damaged);
    }
    // If this took so long that another process took the files for those of a killed writer, they don't count.
    for table in written {
        ensure!(lake.is_there(table, &merged)?, "{} was deleted meanwhile", merged.key(table));
    }
    let part_of = RUNS.column("part").context("a table has no such column")?;
    // Last, so that the merged part counts when it is whole.
    lake.write(&RUNS, &merged, &mut |push| {
        std::mem::take(&mut runs).into_values().try_for_each(|(mut row, _)| {
            row[part_of] = Value::Text(merged.text());
            push(row)
        })
    })?;
    Ok(damaged)
}

/// Notes a part whose file can't be read. One that is gone was merged and deleted by another process; one that is newer is
/// not damaged, and must not be merged.
fn note_damage(read: Result<()>, part: usize, damaged: &mut BTreeSet<usize>) -> Result<()> {
    match read {
        Err(error) if !is_gone(&error) && !error.is::<Newer>() => {
            damaged.insert(part);
            Ok(())
        }
        read => read,
    }
}

/// A part with a name that no other process gives, so that none writes over what another one wrote.
fn merged_part(live: &Live, merged: &BTreeSet<usize>, date: &str) -> Part {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let host = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let own = format!("{host} {} {}", std::process::id(), now.as_nanos());
    let hash = sha256_hex(own.as_bytes());
    // Before it comes what makes it the last part: one more than the last merged one.
    let last = merged
        .iter()
        .map(|part| &live.parts[*part])
        .filter(|part| part.is_merged())
        .filter_map(|part| part.name.get(..8)?.parse::<u64>().ok());
    let number = last.max().map_or(1, |last| last + 1);
    let place = Place { date: date.to_owned(), whose: Whose::All };
    Part { place, name: format!("{number:08}-{}", &hash[..16]) }
}

/// Deletes parts whose runs are all in merged parts that come later and are old enough: readers that began before these
/// were there may still read what they supersede.
fn sweep(lake: &Lake, date: &str, grace: Duration, done: &mut Compacted) -> Result<()> {
    if lake.parts_of(date)?.len() < 2 {
        return Ok(());
    }
    // Not one that came since: it was not read, and may hold a run that no other part has.
    let live = live(lake, date, &mut |_| Ok(()))?;
    let mut superseded: BTreeSet<&String> = BTreeSet::new();
    let mut old = Vec::new();
    for (part, runs) in live.parts.iter().zip(&live.runs_of).rev() {
        let is_old = age(&lake.file(&RUNS, part)).is_some_and(|age| age >= grace);
        if is_old && runs.iter().all(|run| superseded.contains(run)) {
            old.push(part);
        } else if is_old && part.is_merged() && is_complete(lake, part)? {
            superseded.extend(runs);
        } else if runs.iter().all(|run| live.parts[live.runs[run]] != *part) {
            for table in &TABLES {
                done.kept_files += u64::from(lake.has(table, part)?);
            }
        }
    }
    done.deleted_files += lake.delete(&old)?;
    let places: BTreeSet<&Place> = old.iter().map(|part| &part.place).collect();
    places.into_iter().for_each(|place| lake.delete_empty(place));
    Ok(())
}

/// Whether a part has all files that its rows in `runs` count.
fn is_complete(lake: &Lake, part: &Part) -> Result<bool> {
    let file = lake.file(&RUNS, part);
    let of_file = || file.display().to_string();
    let opened = fs::File::open(&file).with_context(of_file)?;
    let counts = table_file::cells_in(&RUNS, opened, &COUNTS.map(|(_, column)| column));
    for ((name, _), counts) in COUNTS.iter().zip(counts.with_context(of_file)?) {
        let table = TABLES.iter().find(|table| table.name == *name);
        let table = table.context("there is no such table")?;
        // Runs from before a table was there don't count its rows.
        let has_rows = counts.iter().any(|count| !matches!(count, Value::Int(0) | Value::Null));
        if has_rows && !lake.has(table, part)? {
            return Ok(false);
        }
    }
    Ok(true)
}
