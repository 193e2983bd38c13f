//! Merging many small files into few.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use brickscope_analysis::lake::{RUNS, TABLES, Value};
use brickscope_analysis::receipt::sha256_hex;
use serde::Serialize;

use super::check::COUNTS;
use super::store::{Each, Lake, MERGED, Place, age, is_gone};
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
    /// Places that could not be merged: a part was deleted meanwhile, or rows are missing.
    pub(crate) given_up: u64,
}

/// A writer needs far less than this for one run.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Merges the parts of each place, where there are several; then deletes what has been superseded for `grace`.
pub(crate) fn compact(lake: &mut Lake, grace: Duration, each: Each<'_>) -> Result<Compacted> {
    let mut done = Compacted::default();
    lake.refresh_files(each)?;
    let mut places: BTreeSet<Place> = BTreeSet::new();
    // A writer that was killed may have left files where there is none in `runs`.
    for table in &TABLES {
        places.extend(lake.places(table)?);
    }
    let steps = 2 * places.len() as u64;
    for (nth, place) in (0..).zip(&places) {
        each(nth, steps);
        merge(lake, place, &mut done)?;
    }
    // From an object store what was merged is read again before anything that it supersedes is deleted.
    lake.refresh_files(&mut |_, _| {})?;
    for (nth, place) in (steps / 2..).zip(&places) {
        each(nth, steps);
        sweep(lake, place, grace, &mut done)?;
    }
    done.orphans = lake.delete_orphans(&places, ABANDONED.max(grace))?;
    each(steps, steps);
    Ok(done)
}

/// What a place holds, as far as it was read.
pub(super) struct Live {
    /// The part that counts, for each run.
    pub(super) runs: BTreeMap<String, String>,
    /// All parts that were read. One that came later isn't among them.
    parts: BTreeSet<String>,
}

/// Reads which runs a place holds.
pub(super) fn live(lake: &Lake, place: &Place) -> Result<Live> {
    let mut live = Live { runs: BTreeMap::new(), parts: BTreeSet::new() };
    // By name: the last one counts.
    for part in lake.parts(&RUNS, place)? {
        match table_file::texts(&RUNS, &lake.file(&RUNS, place, &part), "run_id") {
            Ok(runs) => {
                live.runs.extend(runs.into_iter().map(|run| (run, part.clone())));
                live.parts.insert(part);
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(live)
}

fn merge(lake: &Lake, place: &Place, done: &mut Compacted) -> Result<()> {
    let live = live(lake, place)?.runs;
    let parts: BTreeSet<&String> = live.values().collect();
    if parts.len() < 2 {
        return Ok(());
    }
    // A name that no other process gives, so that none writes over what another one wrote.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let host = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let own = format!("{host} {} {}", std::process::id(), now.as_nanos());
    let hash = sha256_hex(own.as_bytes());
    // Before it comes what makes it the last part by name: one more than the last merged one.
    let count = |part: &&String| part.strip_prefix(MERGED)?.get(..8)?.parse::<u64>().ok();
    let number = parts.iter().filter_map(count).max().map_or(1, |last| last + 1);
    let merged = format!("{MERGED}{number:08}-{}", &hash[..16]);
    // Of each run, the rows in each table so far.
    let mut found: BTreeMap<String, [i64; TABLES.len()]> = BTreeMap::new();
    // `runs` is the last of the tables, so that the merged part counts when it is whole.
    for (nth, table) in TABLES.iter().enumerate() {
        let mut rows = Vec::new();
        let place_of = |name: &str| table.column(name).context("a table has no such column");
        let (run_id, part_of) = (place_of("run_id")?, place_of("part")?);
        for part in &parts {
            let file = lake.file(table, place, part);
            if !file.try_exists().with_context(|| file.display().to_string())? {
                // The runs of this part have no such rows. If they should, the counts tell.
                continue;
            }
            table_file::read(table, &file, &mut |mut row| {
                let is_live =
                    matches!(&row[run_id], Value::Text(run) if live.get(run) == Some(part));
                if is_live {
                    if let Value::Text(run) = &row[run_id] {
                        found.entry(run.clone()).or_default()[nth] += 1;
                    }
                    row[part_of] = Value::Text(merged.clone());
                    rows.push(row);
                }
                Ok(())
            })?;
        }
        if table.name == RUNS.name {
            let is_whole = |row: &Vec<Value>| {
                let Value::Text(run) = &row[run_id] else { return false };
                let counts = found.get(run);
                counts.is_some_and(|counts| is_counted(row, counts))
            };
            if rows.len() != live.len() || !rows.iter().all(is_whole) {
                // Another process deleted a part meanwhile, or the lake is damaged: `check` tells. What was written
                // so far counts for nothing.
                done.given_up += 1;
                return Ok(());
            }
        }
        if !rows.is_empty() {
            lake.write(table, place, &merged, rows)?;
        }
    }
    done.merged_parts += 1;
    done.runs += live.len() as u64;
    Ok(())
}

/// Whether a row of `runs` counts as many rows of the other tables as were found.
fn is_counted(row: &[Value], found: &[i64; TABLES.len()]) -> bool {
    COUNTS.iter().all(|(table, column)| {
        let at = TABLES.iter().position(|of| of.name == *table);
        let found = at.map(|at| found[at]);
        let stated = RUNS.column(column).map(|at| &row[at]);
        matches!((stated, found), (Some(Value::Int(stated)), Some(found)) if *stated == found)
    })
}

/// Deletes parts that don't count any more.
fn sweep(lake: &Lake, place: &Place, grace: Duration, done: &mut Compacted) -> Result<()> {
    let live = live(lake, place)?;
    let counts: BTreeSet<&String> = live.runs.values().collect();
    // Readers that began before the last part was there may still read the others.
    let newest = counts.iter().filter_map(|part| age(&lake.file(&RUNS, place, part))).min();
    // Not one that came since: it was not read, and may hold a run that no other part has.
    let superseded = live.parts.iter().filter(|part| !counts.contains(part));
    let mut old = Vec::new();
    for part in superseded {
        let own = age(&lake.file(&RUNS, place, part));
        if newest.is_some_and(|age| age >= grace) && own.is_some_and(|own| own >= grace) {
            old.push(part);
            continue;
        }
        for table in &TABLES {
            let file = lake.file(table, place, part);
            let is_there = file.try_exists().with_context(|| file.display().to_string())?;
            done.kept_files += u64::from(is_there);
        }
    }
    done.deleted_files += lake.delete(place, &old)?;
    Ok(())
}
