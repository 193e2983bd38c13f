//! Where the files of a lake are, and how one is added: a folder, or an object store with a copy in a folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ::parquet::errors::ParquetError;
use anyhow::{Context, Result, bail, ensure};
use brickscope::write_atomically;
use brickscope_analysis::lake::{LAKE_VERSION, RUNS, RunRows, TABLES, Table, Value};
use serde::{Deserialize, Serialize};

use super::bucket::Bucket;
use super::table_file::{self, TableWriter};
use crate::machine_name::NO_MACHINE;

/// The file that says that a folder is a lake.
const MARK: &str = "lake.json";

/// The date and machine of files without rows, by which engines know the columns of empty tables.
pub(super) const NO_DATE: &str = "1970-01-01";
/// Their name.
pub(super) const COLUMNS: &str = "columns";

/// Parts with several runs begin with this, which comes after all ids of runs.
pub(super) const MERGED: &str = "merged-";

#[derive(Serialize, Deserialize)]
struct Mark {
    lake_version: u32,
    brickscope_version: String,
}

/// A folder that holds a lake, or an object store that holds one.
#[derive(Debug)]
pub(crate) struct Lake {
    /// The folder. Of an object store, the copy in the cache folder.
    root: PathBuf,
    bucket: Option<Bucket>,
}

/// What is to be up to date in the copy of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// The runs that count. Files that are in no run are not looked for.
    Runs,
    /// Every file of every run.
    Files,
}

/// The first and the last day of a question.
pub(crate) type Days<'t> = (&'t str, &'t str);

pub(crate) const ALL_DAYS: Days<'static> = ("", "9999-99-99");

/// Called with the number of steps that are done, and of all.
pub(crate) type Each<'t> = &'t mut dyn FnMut(u64, u64);

/// A folder of files: what one machine made on one day.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) date: String,
    pub(super) machine: String,
}

/// The whole names of files in a table's folder for a place, without `.parquet`.
pub(super) type Parts = Vec<String>;

impl Lake {
    /// The lake in a folder, or behind a URL such as `s3://bucket/lake`.
    pub(crate) fn open(name: &Path) -> Result<Self> {
        let lake = Self::unopened(name)?;
        match lake.mark()? {
            Some(text) => lake.check_mark(&text)?,
            None => bail!(
                "{} is not a lake: it has no {MARK}. `brickscope collect RUN --lake {}` makes one",
                name.display(),
                if lake.bucket.is_some() { "URL" } else { "DIR" }
            ),
        }
        Ok(lake)
    }

    /// The same, and makes it where there is nothing.
    pub(crate) fn open_or_make(name: &Path) -> Result<Self> {
        let lake = Self::unopened(name)?;
        match lake.mark()? {
            Some(text) => lake.check_mark(&text)?,
            None => lake.make().with_context(|| format!("can't make a lake in {}", lake.name()))?,
        }
        Ok(lake)
    }

    /// Refuses a place where a lake can't be opened, before it is needed. In one that holds nothing a lake can be made.
    pub(crate) fn check(name: &Path) -> Result<()> {
        let lake = Self::unopened(name)?;
        match lake.mark()? {
            Some(text) => lake.check_mark(&text),
            None => {
                lake.check_free().with_context(|| format!("can't make a lake in {}", lake.name()))
            }
        }
    }

    /// Whether a name is that of a lake rather than of another folder.
    pub(crate) fn is_at(name: &Path) -> bool {
        is_url(name) || name.join(MARK).is_file()
    }

    fn unopened(name: &Path) -> Result<Self> {
        match name.to_str().filter(|_| is_url(name)) {
            Some(url) => {
                let bucket = Bucket::of_url(url)?;
                Ok(Self { root: bucket.copy().to_owned(), bucket: Some(bucket) })
            }
            None => Ok(Self { root: name.to_owned(), bucket: None }),
        }
    }

    fn mark(&self) -> Result<Option<String>> {
        if let Some(bucket) = &self.bucket {
            return bucket.first_read(MARK);
        }
        let mark = self.root.join(MARK);
        match fs::read_to_string(&mark) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            text => text.map(Some).with_context(|| mark.display().to_string()),
        }
    }

    fn check_mark(&self, text: &str) -> Result<()> {
        let mark = || format!("{}/{MARK}", self.name());
        let found: Mark = serde_json::from_str(text).with_context(mark)?;
        ensure!(
            found.lake_version <= LAKE_VERSION,
            "{}: lake_version {} is newer than this brickscope, which knows {LAKE_VERSION}",
            mark(),
            found.lake_version
        );
        Ok(())
    }

    /// Refuses a place that holds something else than a lake.
    fn check_free(&self) -> Result<()> {
        let names = match &self.bucket {
            Some(bucket) => bucket.names()?,
            None => names(&self.root)?,
        };
        let is_ours = |name: &String| {
            // Another process may be making the same lake.
            name.starts_with('.') || name == MARK || TABLES.iter().any(|table| table.name == name)
        };
        ensure!(
            names.iter().all(is_ours),
            "it is neither empty nor a lake: name another {}",
            if self.bucket.is_some() { "prefix" } else { "folder" }
        );
        Ok(())
    }

    fn make(&self) -> Result<()> {
        if self.bucket.is_none() {
            fs::create_dir_all(&self.root)?;
        }
        self.check_free()?;
        let place = Place { date: NO_DATE.to_owned(), machine: NO_MACHINE.to_owned() };
        for table in &TABLES {
            self.write(table, &place, COLUMNS, Vec::new())?;
        }
        let mark = Mark {
            lake_version: LAKE_VERSION,
            brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mark = serde_json::to_string_pretty(&mark)? + "\n";
        if let Some(bucket) = &self.bucket {
            return bucket.put_new(MARK, mark.into_bytes());
        }
        write_atomically(
            &self.root.join(MARK),
            |error| error,
            |out| io::Write::write_all(out, mark.as_bytes()),
        )?;
        Ok(sync_folder(&self.root)?)
    }

    /// The folder as it was named, or the URL.
    pub(crate) fn name(&self) -> String {
        match &self.bucket {
            Some(bucket) => bucket.url().to_owned(),
            None => self.root.display().to_string(),
        }
    }

    /// The folder to read files from, after [`refresh`](Self::refresh).
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn is_folder(&self) -> bool {
        self.bucket.is_none()
    }

    /// Brings the copy of an object store up to date, as far as a question of these days needs it. It stays as it is
    /// while the lake is in use, but for runs that are added.
    pub(crate) fn refresh(&mut self, days: Days<'_>, each: Each<'_>) -> Result<()> {
        match &mut self.bucket {
            Some(bucket) => bucket.refresh(Depth::Runs, days, each),
            None => Ok(()),
        }
    }

    /// The same for all files.
    pub(super) fn refresh_files(&mut self, each: Each<'_>) -> Result<()> {
        match &mut self.bucket {
            Some(bucket) => bucket.refresh(Depth::Files, ALL_DAYS, each),
            None => Ok(()),
        }
    }

    fn folder(&self, table: &Table, place: &Place) -> PathBuf {
        let Place { date, machine } = place;
        let table = self.root.join(table.name);
        table.join(format!("date={date}")).join(format!("machine={machine}"))
    }

    pub(super) fn file(&self, table: &Table, place: &Place, part: &str) -> PathBuf {
        self.folder(table, place).join(format!("{part}.parquet"))
    }

    /// Deletes parts of a place; of an object store not from the copy, which others may be reading. Returns how many
    /// files there were.
    pub(super) fn delete(&self, place: &Place, parts: &[&String]) -> Result<u64> {
        let mut deleted = 0;
        // `runs` goes first, so that no reader takes a part for whole.
        for table in TABLES.iter().rev() {
            let mut keys = Vec::new();
            for part in parts {
                let file = self.file(table, place, part);
                if file.try_exists().with_context(|| file.display().to_string())? {
                    keys.push(key(table, place, part));
                }
            }
            deleted += keys.len() as u64;
            match &self.bucket {
                Some(bucket) => bucket.delete(keys)?,
                None => keys.iter().try_for_each(|key| delete(&self.root.join(key)))?,
            }
        }
        Ok(deleted)
    }

    /// Deletes what killed writers left and nobody has written to for `age`: in `places`, or in a whole object store.
    /// Returns how many files there were.
    pub(super) fn delete_orphans<'t>(
        &self,
        places: impl IntoIterator<Item = &'t Place>,
        least_age: Duration,
    ) -> Result<u64> {
        if let Some(bucket) = &self.bucket {
            return bucket.delete_orphans(least_age);
        }
        let mut deleted = 0;
        for place in places {
            let known = self.parts(&RUNS, place)?;
            for table in &TABLES {
                let mut orphans = self.partial_files(table, place)?;
                let parts = self.parts(table, place)?;
                // Nothing in `runs` counts them: their writer was killed before it came to that.
                let unknown = parts.iter().filter(|part| known.binary_search(part).is_err());
                orphans.extend(unknown.map(|part| self.file(table, place, part)));
                for orphan in orphans {
                    if age(&orphan).is_some_and(|age| age >= least_age) {
                        delete(&orphan)?;
                        deleted += 1;
                    }
                }
            }
        }
        Ok(deleted)
    }

    /// Adds a run.
    pub(super) fn add(&self, machine: &str, run: RunRows) -> Result<()> {
        let place = Place { date: run.date, machine: machine.to_owned() };
        // `runs` is the last of the tables.
        let mut tables = TABLES.iter().zip(run.tables).filter(|(_, rows)| !rows.is_empty());
        let Some(bucket) = &self.bucket else {
            return tables
                .try_for_each(|(table, rows)| self.write(table, &place, &run.run_id, rows));
        };
        let mut files = Vec::new();
        for (table, rows) in tables {
            files.push((key(table, &place, &run.run_id), table_file::bytes(table, rows)?));
        }
        let runs = files.pop();
        bucket.put(files)?;
        bucket.put(runs.into_iter().collect())
    }

    /// The runs of a day, each with its machine.
    pub(super) fn runs_of(&self, date: &str) -> Result<BTreeMap<String, String>> {
        if let Some(bucket) = &self.bucket {
            return bucket.runs_of(date);
        }
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
        if let Some(bucket) = &self.bucket {
            return bucket.put(vec![(key(table, place, part), table_file::bytes(table, rows)?)]);
        }
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
    fn partial_files(&self, table: &Table, place: &Place) -> Result<Vec<PathBuf>> {
        let folder = self.folder(table, place);
        let names = names(&folder).with_context(|| folder.display().to_string())?;
        let is_partial = |name: &String| name.starts_with('.') && name.ends_with(".partial");
        Ok(names.into_iter().filter(is_partial).map(|name| folder.join(name)).collect())
    }
}

fn is_url(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.contains("://"))
}

/// The name of a file in the lake.
pub(super) fn key(table: &Table, Place { date, machine }: &Place, part: &str) -> String {
    format!("{}/date={date}/machine={machine}/{part}.parquet", table.name)
}

/// How long ago a file was written, by this machine's clock. The copy of an object store has the times of the store.
pub(super) fn age(file: &Path) -> Option<Duration> {
    let modified = fs::metadata(file).ok()?.modified().ok()?;
    Some(SystemTime::now().duration_since(modified).unwrap_or_default())
}

fn delete(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| file.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Whether a file was there and isn't any more.
pub(super) fn is_gone(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::NotFound)
}

/// The names in a folder; none if it isn't there.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
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
