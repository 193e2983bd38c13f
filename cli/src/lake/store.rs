//! The folder of a lake: where files are, and how one is added.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use ::parquet::errors::ParquetError;
use anyhow::{Context, Result, bail, ensure};
use brickscope::write_atomically;
use brickscope_analysis::lake::{LAKE_VERSION, RUNS, RunRows, TABLES, Table, Value};
use serde::{Deserialize, Serialize};

use super::table_file::{self, TableWriter};
use crate::machine_name::NO_MACHINE;

/// The file that says that a folder is a lake.
const MARK: &str = "lake.json";

/// The date and machine of files without rows, by which engines know the columns of empty tables.
const NO_DATE: &str = "1970-01-01";

/// Parts with several runs begin with this, which comes after all ids of runs.
pub(super) const MERGED: &str = "merged-";

#[derive(Serialize, Deserialize)]
struct Mark {
    lake_version: u32,
    brickscope_version: String,
}

/// A folder that holds a lake.
#[derive(Debug, Clone)]
pub(crate) struct Lake {
    root: PathBuf,
}

/// A folder of files: what one machine made on one day.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) date: String,
    pub(super) machine: String,
}

/// The whole names of files in a table's folder for a place, without `.parquet`.
pub(super) type Parts = Vec<String>;

impl Lake {
    /// The lake in a folder.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let mark = root.join(MARK);
        let text = fs::read_to_string(&mark).map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow::anyhow!(
                "{} is not a lake: it has no {MARK}. `brickscope collect RUN --lake DIR` makes one",
                root.display()
            ),
            _ => anyhow::Error::new(error).context(mark.display().to_string()),
        })?;
        let found: Mark =
            serde_json::from_str(&text).with_context(|| mark.display().to_string())?;
        ensure!(
            found.lake_version <= LAKE_VERSION,
            "{}: lake_version {} is newer than this brickscope, which knows {LAKE_VERSION}",
            mark.display(),
            found.lake_version
        );
        Ok(Self { root: root.to_owned() })
    }

    /// The same, and makes it where there is an empty folder or none.
    pub(crate) fn open_or_make(root: &Path) -> Result<Self> {
        if root.join(MARK).exists() {
            return Self::open(root);
        }
        let cannot = || format!("can't make a lake in {}", root.display());
        fs::create_dir_all(root).with_context(cannot)?;
        let is_ours = |name: &str| {
            // Another process may be making the same lake.
            name.starts_with('.') || name == MARK || TABLES.iter().any(|table| table.name == name)
        };
        for entry in fs::read_dir(root).with_context(cannot)? {
            let name = entry.with_context(cannot)?.file_name();
            if !name.to_str().is_some_and(is_ours) {
                bail!("{} is neither empty nor a lake: name another folder", root.display());
            }
        }
        let lake = Self { root: root.to_owned() };
        let place = Place { date: NO_DATE.to_owned(), machine: NO_MACHINE.to_owned() };
        for table in &TABLES {
            lake.write(table, &place, "columns", Vec::new()).with_context(cannot)?;
        }
        let mark = Mark {
            lake_version: LAKE_VERSION,
            brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mark = serde_json::to_string_pretty(&mark)? + "\n";
        write_atomically(
            &root.join(MARK),
            |error| error,
            |out| io::Write::write_all(out, mark.as_bytes()),
        )
        .with_context(cannot)?;
        sync_folder(root).with_context(cannot)?;
        Ok(lake)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn folder(&self, table: &Table, place: &Place) -> PathBuf {
        let Place { date, machine } = place;
        let table = self.root.join(table.name);
        table.join(format!("date={date}")).join(format!("machine={machine}"))
    }

    pub(super) fn file(&self, table: &Table, place: &Place, part: &str) -> PathBuf {
        self.folder(table, place).join(format!("{part}.parquet"))
    }

    /// Adds a run.
    pub(super) fn add(&self, machine: &str, run: RunRows) -> Result<()> {
        let place = Place { date: run.date, machine: machine.to_owned() };
        // `runs` is the last of the tables.
        for (table, rows) in TABLES.iter().zip(run.tables) {
            if !rows.is_empty() {
                self.write(table, &place, &run.run_id, rows)?;
            }
        }
        Ok(())
    }

    /// The runs of a day, each with its machine.
    pub(super) fn runs_of(&self, date: &str) -> Result<BTreeMap<String, String>> {
        let mut runs = BTreeMap::new();
        for place in self.places_of(&RUNS, date)? {
            let merged = |part: &String| part.starts_with(MERGED);
            // Merged parts first. If they are merged once more meanwhile, their runs are found in none and added again,
            // which changes nothing.
            let (many, single): (Parts, Parts) =
                self.parts(&RUNS, &place)?.into_iter().partition(merged);
            for part in many {
                match table_file::texts(&RUNS, &self.file(&RUNS, &place, &part), "run_id") {
                    Ok(ids) => runs.extend(ids.into_iter().map(|id| (id, place.machine.clone()))),
                    Err(error) if is_gone(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            runs.extend(single.into_iter().map(|part| (part, place.machine.clone())));
        }
        Ok(runs)
    }

    /// Writes a file so that it is there as a whole or not at all, also after a loss of power.
    pub(super) fn write(
        &self,
        table: &'static Table,
        place: &Place,
        part: &str,
        rows: Vec<Vec<Value>>,
    ) -> Result<()> {
        let folder = self.folder(table, place);
        make_folder(&folder).with_context(|| folder.display().to_string())?;
        let path = self.file(table, place, part);
        let cannot = || path.display().to_string();
        let write = |out: &mut io::BufWriter<File>| {
            let mut writer = TableWriter::new(table, out)?;
            rows.into_iter().try_for_each(|row| writer.push(row))?;
            writer.finish()
        };
        write_atomically(&path, |error| ParquetError::External(Box::new(error)), write)
            .with_context(cannot)?;
        sync_folder(&folder).with_context(cannot)
    }

    /// The parts of a table in a place, by name; none if there is no such folder.
    pub(super) fn parts(&self, table: &Table, place: &Place) -> Result<Parts> {
        let folder = self.folder(table, place);
        let names = names(&folder).with_context(|| folder.display().to_string())?;
        let part = |name: String| name.strip_suffix(".parquet").map(str::to_owned);
        // Files that are being written are hidden.
        let mut parts: Parts =
            names.into_iter().filter(|name| !name.starts_with('.')).filter_map(part).collect();
        parts.sort();
        Ok(parts)
    }

    /// The places that a table has files in, by date and machine.
    pub(super) fn places(&self, table: &Table) -> Result<Vec<Place>> {
        let root = self.root.join(table.name);
        let cannot = || root.display().to_string();
        let mut places = Vec::new();
        for day in names(&root).with_context(cannot)? {
            if let Some(date) = day.strip_prefix("date=") {
                places.extend(self.places_of(table, date)?);
            }
        }
        places.sort();
        Ok(places)
    }

    fn places_of(&self, table: &Table, date: &str) -> Result<Vec<Place>> {
        let day = self.root.join(table.name).join(format!("date={date}"));
        let names = names(&day).with_context(|| day.display().to_string())?;
        let machine = |name: String| name.strip_prefix("machine=").map(str::to_owned);
        let machines = names.into_iter().filter_map(machine).filter(|name| name != NO_MACHINE);
        Ok(machines.map(|machine| Place { date: date.to_owned(), machine }).collect())
    }

    /// The files that writers left half-written in a place.
    pub(super) fn partial_files(&self, table: &Table, place: &Place) -> Result<Vec<PathBuf>> {
        let folder = self.folder(table, place);
        let names = names(&folder).with_context(|| folder.display().to_string())?;
        let is_partial = |name: &String| name.starts_with('.') && name.ends_with(".partial");
        Ok(names.into_iter().filter(is_partial).map(|name| folder.join(name)).collect())
    }
}

/// Whether a file was there and isn't any more.
pub(super) fn is_gone(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::NotFound)
}

/// The names in a folder; none if it isn't there.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// Makes a folder and those around it, so that they are still there after a loss of power.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        make_folder(parent)?;
        match fs::create_dir(folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
        sync_folder(parent)?;
    }
    Ok(())
}

/// Waits until the names in a folder are on the disk. Not all file systems can say so.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}
