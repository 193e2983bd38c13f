//! Whether each run of a lake is there as a whole.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use brickscope_analysis::lake::{RUNS, TABLES, Value};
use serde::Serialize;

use super::compact::live;
use super::store::{Each, Lake, Place, is_gone};
use super::table_file;

/// What a check found.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Checked {
    /// Runs that are there as a whole.
    pub(crate) whole: u64,
    /// What is wrong, one sentence each.
    pub(crate) faults: Vec<String>,
}

/// Reads all files, and counts the rows of each run.
pub(crate) fn check(lake: &mut Lake, each: Each<'_>) -> Result<Checked> {
    lake.refresh_files(each)?;
    let places = lake.places(&RUNS)?;
    let mut checked = Checked::default();
    for (nth, place) in (0..).zip(&places) {
        each(nth, places.len() as u64);
        let found = match place_of(lake, place) {
            // Merged, and what was merged deleted, meanwhile.
            Err(error) if is_gone(&error) => place_of(lake, place),
            found => found,
        };
        match found {
            Ok(found) => {
                checked.whole += found.whole;
                checked.faults.extend(found.faults);
            }
            Err(error) => checked.faults.push(format!("{error:#}")),
        }
    }
    each(places.len() as u64, places.len() as u64);
    Ok(checked)
}

fn place_of(lake: &Lake, place: &Place) -> Result<Checked> {
    let mut checked = Checked::default();
    let live = live(lake, place)?.runs;
    // The rows of each run that there should be, by table; those found are subtracted.
    let mut missing: BTreeMap<&String, BTreeMap<&'static str, i64>> = BTreeMap::new();
    let parts: std::collections::BTreeSet<&String> = live.values().collect();
    // `runs` is the last of the tables, and says how many rows the others have.
    for table in TABLES.iter().rev() {
        let column = |name: &str| table.column(name).context("a table has no such column");
        let (run_id, part_of) = (column("run_id")?, column("part")?);
        for part in &parts {
            let file = lake.file(table, place, part);
            let is_there = file.try_exists().with_context(|| file.display().to_string())?;
            if table.name != RUNS.name && !is_there {
                continue;
            }
            table_file::read(table, &file, &mut |row| {
                let Value::Text(run) = &row[run_id] else { return Ok(()) };
                let Some((run, live)) = live.get_key_value(run).filter(|(_, live)| live == part)
                else {
                    return Ok(());
                };
                if !matches!(&row[part_of], Value::Text(said) if said == live) {
                    let file = file.display();
                    checked.faults.push(format!("{file}: a row of run {run} names another part"));
                }
                if table.name == RUNS.name {
                    for (counted, column) in COUNTS {
                        let at = RUNS.column(column).context("a table has no such column")?;
                        if let Value::Int(rows) = row[at] {
                            missing.entry(run).or_default().insert(counted, rows);
                        }
                    }
                } else if let Some(rows) =
                    missing.get_mut(run).and_then(|run| run.get_mut(table.name))
                {
                    *rows -= 1;
                }
                Ok(())
            })?;
        }
    }
    for run in live.keys() {
        let wrong = missing.get(run).into_iter().flatten().filter(|(_, rows)| **rows != 0);
        let wrong: Vec<String> = wrong
            .map(|(table, rows)| match rows {
                1.. => format!("{rows} rows of `{table}` are missing"),
                _ => format!("`{table}` has {} rows too many", -rows),
            })
            .collect();
        if wrong.is_empty() && missing.contains_key(run) {
            checked.whole += 1;
        } else {
            let Place { date, machine } = place;
            let wrong =
                if wrong.is_empty() { "it has no row".to_owned() } else { wrong.join(", ") };
            checked.faults.push(format!("run {run} of {machine} on {date}: {wrong}"));
        }
    }
    Ok(checked)
}

/// The tables whose rows are counted in `runs`, and in which column.
pub(super) const COUNTS: [(&str, &str); 5] = [
    ("speeds", "speed_rows"),
    ("bricks", "brick_rows"),
    ("durations", "duration_rows"),
    ("passes", "pass_rows"),
    ("spans", "span_rows"),
];
