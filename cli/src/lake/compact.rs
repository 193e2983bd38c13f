//! Merging many small files into few.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use brickscope_analysis::lake::{RUNS, TABLES, Table, Value};
use brickscope_analysis::receipt::sha256_hex;
use serde::Serialize;

use super::store::{Lake, MERGED, Place, is_gone};
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
}

/// Merges the parts of each place, where there are several; then deletes what has been superseded for `grace`.
pub(crate) fn compact(
    lake: &Lake,
    grace: Duration,
    each: &mut dyn FnMut(u64, u64),
) -> Result<Compacted> {
    let mut done = Compacted::default();
    let mut places: BTreeSet<Place> = BTreeSet::new();
    // A writer that was killed may have left files where there is none in `runs`.
    for table in &TABLES {
        places.extend(lake.places(table)?);
    }
    for (nth, place) in (0..).zip(&places) {
        each(nth, places.len() as u64);
        merge(lake, place, &mut done)?;
        sweep(lake, place, grace, &mut done)?;
    }
    each(places.len() as u64, places.len() as u64);
    Ok(done)
}

/// The part that counts, for each run of a place.
pub(super) fn live(lake: &Lake, place: &Place) -> Result<BTreeMap<String, String>> {
    let mut live: BTreeMap<String, String> = BTreeMap::new();
    // By name: the last one counts.
    for part in lake.parts(&RUNS, place)? {
        match table_file::texts(&RUNS, &lake.file(&RUNS, place, &part), "run_id") {
            Ok(runs) => live.extend(runs.into_iter().map(|run| (run, part.clone()))),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(live)
}

fn merge(lake: &Lake, place: &Place, done: &mut Compacted) -> Result<()> {
    let live = live(lake, place)?;
    let parts: BTreeSet<&String> = live.values().collect();
    if parts.len() < 2 {
        return Ok(());
    }
    // By what it holds, so that two processes that merge the same write the same.
    let names: Vec<String> = live.iter().map(|(run, part)| format!("{run} {part}")).collect();
    let hash = sha256_hex(names.join("\n").as_bytes());
    // Before it comes what makes it the last part by name: one more than the last merged one.
    let count = |part: &&String| part.strip_prefix(MERGED)?.get(..8)?.parse::<u64>().ok();
    let number = parts.iter().filter_map(count).max().map_or(1, |last| last + 1);
    let merged = format!("{MERGED}{number:08}-{}", &hash[..16]);
    // `runs` is the last of the tables, so that the merged part counts when it is whole.
    for table in &TABLES {
        let mut rows = Vec::new();
        let place_of = |name: &str| table.column(name).context("a table has no such column");
        let (run_id, part_of) = (place_of("run_id")?, place_of("part")?);
        for part in &parts {
            let file = lake.file(table, place, part);
            if !file.exists() {
                // The runs of this part have no such rows.
                continue;
            }
            table_file::read(table, &file, &mut |mut row| {
                let is_live =
                    matches!(&row[run_id], Value::Text(run) if live.get(run) == Some(part));
                if is_live {
                    row[part_of] = Value::Text(merged.clone());
                    rows.push(row);
                }
                Ok(())
            })?;
        }
        if !rows.is_empty() {
            lake.write(table, place, &merged, rows)?;
        }
    }
    done.merged_parts += 1;
    done.runs += live.len() as u64;
    Ok(())
}

/// Deletes parts that don't count any more, and what killed writers left.
fn sweep(lake: &Lake, place: &Place, grace: Duration, done: &mut Compacted) -> Result<()> {
    let live = live(lake, place)?;
    let counts: BTreeSet<&String> = live.values().collect();
    // Readers that began before the last part was there may still read the others.
    let newest = counts.iter().filter_map(|part| age(&lake.file(&RUNS, place, part))).min();
    let known: BTreeSet<String> = lake.parts(&RUNS, place)?.into_iter().collect();
    let superseded = known.iter().filter(|part| !counts.contains(part));
    for part in superseded {
        let is_old = newest.is_some_and(|age| age >= grace);
        // `runs` goes first, so that no reader takes the part for whole.
        for table in in_order_of_deletion() {
            let file = lake.file(table, place, part);
            match (file.exists(), is_old) {
                (true, true) => {
                    delete(&file)?;
                    done.deleted_files += 1;
                }
                (true, false) => done.kept_files += 1,
                (false, _) => {}
            }
        }
    }
    // A writer needs far less than this for one run.
    const ABANDONED: Duration = Duration::from_secs(3600);
    for table in &TABLES {
        let mut orphans = lake.partial_files(table, place)?;
        let parts = lake.parts(table, place)?;
        // Nothing in `runs` counts them: their writer was killed before it came to that.
        let unknown = parts.iter().filter(|part| !known.contains(*part));
        orphans.extend(unknown.map(|part| lake.file(table, place, part)));
        for orphan in orphans {
            if age(&orphan).is_some_and(|age| age >= ABANDONED.max(grace)) {
                delete(&orphan)?;
                done.orphans += 1;
            }
        }
    }
    Ok(())
}

fn in_order_of_deletion() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().rev()
}

fn age(file: &Path) -> Option<Duration> {
    let modified = fs::metadata(file).ok()?.modified().ok()?;
    Some(SystemTime::now().duration_since(modified).unwrap_or_default())
}

fn delete(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| file.display().to_string())
        }
        _ => Ok(()),
    }
}
