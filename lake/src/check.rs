//! Whether each run of a lake is there as a whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::rows::{RUNS, TABLES, Value};
use anyhow::{Context, Result};
use serde::Serialize;

use crate::compact::live;
use crate::part::{COUNTS, Each, Part, Whose, is_gone};
use crate::store::Lake;
use crate::table_file::Columns;

/// What a check found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Checked {
    /// Runs that are there as a whole.
    pub whole: u64,
    /// What is wrong, one sentence each.
    pub faults: Vec<String>,
}

/// Reads all files, and counts the rows of each run.
pub fn check(lake: &mut Lake, each: Each<'_>) -> Result<Checked> {
    lake.refresh_files(each)?;
    let days = lake.days(&RUNS)?;
    let mut checked = Checked::default();
    for (nth, date) in (0..).zip(&days) {
        each(nth, days.len() as u64);
        let mut found = of_day(lake, date);
        for _ in 0..TRIES {
            let is_changed = match &found {
                Err(error) => is_gone(error),
                Ok(day) => !day.faults.is_empty() && !day.is_still(lake)?,
            };
            if !is_changed {
                break;
            }
            found = of_day(lake, date);
        }
        match found {
            Ok(found) => {
                checked.whole += found.whole;
                checked.faults.extend(found.faults);
            }
            Err(error) => checked.faults.push(format!("{error:#}")),
        }
    }
    each(days.len() as u64, days.len() as u64);
    Ok(checked)
}

/// What is known of a run.
#[derive(Default)]
struct Run {
    machine: String,
    /// The rows that there should be, by table; those found are subtracted.
    missing: [i64; COUNTS.len()],
}

/// How often a day is read again that was merged, and what was merged deleted, meanwhile.
const TRIES: u32 = 100;

/// What was found of a day.
#[derive(Default)]
struct Day {
    whole: u64,
    faults: Vec<String>,
    /// The parts that count.
    parts: Vec<Part>,
}

impl Day {
    /// Whether the parts are all still there.
    fn is_still(&self, lake: &Lake) -> Result<bool> {
        for part in &self.parts {
            if !lake.has(&RUNS, part)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn of_day(lake: &Lake, date: &str) -> Result<Day> {
    let mut checked = Day::default();
    // A file that can't be read is one fault; its runs get no others.
    let mut unreadable: BTreeSet<usize> = BTreeSet::new();
    let live = live(lake, date, &mut |error| {
        checked.faults.push(format!("{error:#}"));
        Ok(())
    })?;
    checked.parts = live.counting().iter().map(|part| live.parts[*part].clone()).collect();
    let mut runs: BTreeMap<String, Run> = BTreeMap::new();
    // `runs` is the last of the tables, and says how many rows the others have.
    for table in TABLES.iter().rev() {
        let column = |name: &str| table.column(name).context("a table has no such column");
        let part_of = column("part")?;
        for nth in live.counting() {
            let part = &live.parts[nth];
            if table.name != RUNS.name && !lake.has(table, part)? {
                continue;
            }
            let text = part.text();
            let read = live.read(lake, table, nth, Columns::Known, &mut |run, row| {
                if !matches!(&row[part_of], Value::Text(said) if *said == text) {
                    let file = lake.file(table, part);
                    let file = file.display();
                    checked.faults.push(format!("{file}: a row of run {run} names another part"));
                }
                if table.name == RUNS.name {
                    let mut known = Run::default();
                    if let Value::Text(machine) = &row[column("machine_name")?] {
                        known.machine.clone_from(machine);
                    }
                    for ((_, column), missing) in COUNTS.iter().zip(&mut known.missing) {
                        let at = RUNS.column(column).context("a table has no such column")?;
                        if let Value::Int(rows) = row[at] {
                            *missing = rows;
                        }
                    }
                    if let Whose::Machine(machine) = &part.place.whose
                        && *machine != known.machine
                    {
                        checked.faults.push(format!(
                            "{}: run {run} is of {}",
                            lake.file(table, part).display(),
                            known.machine
                        ));
                    }
                    if runs.insert(run.to_owned(), known).is_some() {
                        let file = lake.file(table, part);
                        checked
                            .faults
                            .push(format!("{}: run {run} is there twice", file.display()));
                    }
                } else if let Some(of) = COUNTS.iter().position(|(name, _)| *name == table.name)
                    && let Some(run) = runs.get_mut(run)
                {
                    run.missing[of] -= 1;
                }
                Ok(())
            });
            match read {
                Err(error) if !is_gone(&error) => {
                    if unreadable.insert(nth) {
                        checked.faults.push(format!("{error:#}"));
                    }
                }
                read => read?,
            }
        }
    }
    for (run, part) in live.runs.iter().filter(|(_, part)| !unreadable.contains(part)) {
        let Some(Run { machine, missing }) = runs.get(run) else {
            let file = lake.file(&RUNS, &live.parts[*part]);
            checked.faults.push(format!("{}: run {run} has no row", file.display()));
            continue;
        };
        let wrong = COUNTS.iter().zip(missing).filter(|(_, rows)| **rows != 0);
        let wrong: Vec<String> = wrong
            .map(|((table, _), rows)| match rows {
                1.. => format!("{rows} rows of `{table}` are missing"),
                _ => format!("`{table}` has {} rows too many", -rows),
            })
            .collect();
        match &wrong[..] {
            [] => checked.whole += 1,
            _ => {
                let wrong = wrong.join(", ");
                checked.faults.push(format!("run {run} of {machine} on {date}: {wrong}"));
            }
        }
    }
    Ok(checked)
}
