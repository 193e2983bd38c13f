//! The copy of a lake in an object store: each part's files, with the store's times.
//!
//! Parts never change, so a refresh asks twice for the list of `runs` and fetches the parts that are new. A part's row counts in
//! `runs` say which files it has, so that the other tables needn't be listed. A part is placed when all of them have come,
//! its file in `runs` last: `live` finds a run in the copy only if the run is there as a whole. If a file is gone, its part
//! was merged and deleted since the list was made, and the list is asked for again. If the part is in that list, too, the
//! lake is damaged, and `lake check` tells.
//!
//! Several processes may use one copy. Those that read it, or add parts, share a lock. To delete parts that the lake has no
//! more, a process waits until no other one holds the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::rows::{REQUESTS, RUNS, TABLES, Value};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use object_store::ObjectMeta;

use super::{AT_ONCE, Bucket};
use crate::part::COUNTS;
use crate::part::{ALL_DAYS, Days, Depth, Each, Part, age, names};
use crate::table_file;

/// Lists that are asked for while parts are deleted faster than they can be fetched.
const TRIES: usize = 10;

/// Hidden from DuckDB, as is the lock.
const PARTIAL: &str = ".partial";
const LOCK: &str = ".lock";

/// What tells that a file was replaced: its size, and the second in which it was written.
type Version = (u64, u64);

/// A file's name in the lake, what is in it, and when it was written.
type Fetched = (String, Bytes, SystemTime);

enum Fetch {
    /// `runs` comes last.
    Whole(Vec<Fetched>),
    /// A file isn't there.
    Lacks(Part),
}

impl Bucket {
    /// Brings the copy up to date, and then keeps other processes from deleting anything of it.
    pub(crate) fn refresh(&mut self, depth: Depth, days: Days<'_>, each: Each<'_>) -> Result<()> {
        self.lock = None;
        let cannot = || {
            let copy = self.copy.display();
            format!("can't copy the lake to {copy}; BRICKSCOPE_CACHE names another folder")
        };
        fs::create_dir_all(self.copy.join(PARTIAL)).with_context(cannot)?;
        fs::write(self.copy.join("url.txt"), format!("{}\n", self.url)).with_context(cannot)?;
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        let lock = options.open(self.copy.join(LOCK)).with_context(cannot)?;
        if lock.try_lock_shared().is_err() {
            let copy = self.copy.display();
            (self.host.tell)(&format!("waiting for another command that brings {copy} up to date"));
            lock.lock_shared().with_context(cannot)?;
        }
        let unknown = match self.update(depth, days, false, each)? {
            Some(unknown) => unknown,
            None => {
                lock.unlock().with_context(cannot)?;
                if lock.try_lock().is_err() {
                    let copy = self.copy.display();
                    (self.host.tell)(&format!("waiting for other commands that read {copy}"));
                    lock.lock().with_context(cannot)?;
                }
                let unknown = self.update(depth, days, true, each)?;
                // Another process may hold the lock in between. It leaves a copy that is no older.
                lock.unlock().with_context(cannot)?;
                lock.lock_shared().with_context(cannot)?;
                unknown.unwrap_or_default()
            }
        };
        self.unknown = unknown;
        self.lock = Some(lock);
        Ok(())
    }

    /// Returns the files in no run, if all files were asked for; or `None` if something has to be deleted, which needs
    /// the lock for this process alone.
    fn update(
        &self,
        depth: Depth,
        days: Days<'_>,
        may_delete: bool,
        each: Each<'_>,
    ) -> Result<Option<Vec<String>>> {
        self.fetch_columns()?;
        if may_delete {
            self.delete_partial()?;
        } else if self.has_old_partial()? {
            return Ok(None);
        }
        // Parts that lacked a file while they were listed.
        let mut lacking: BTreeSet<Part> = BTreeSet::new();
        for _ in 0..TRIES {
            let mut listed: BTreeMap<Part, Version> = BTreeMap::new();
            // Twice: what is merged during the first list is in the second one.
            for _ in 0..2 {
                for (name, object) in self.list(RUNS.name, days.0, days.1)? {
                    if let Some(part) = Part::of_key(&RUNS, &name) {
                        listed.insert(part, version(&object));
                    }
                }
            }
            let files = match depth {
                Depth::Runs => None,
                Depth::Files => Some(self.other_files()?),
            };
            let here = self.parts_here(days)?;
            let is_current = |part: &Part, of: Version| {
                listed.get(part) == Some(&of)
                    && files.as_ref().is_none_or(|files| self.is_same(part, files))
            };
            let outdated: Vec<&Part> = here
                .iter()
                .filter(|(part, of)| !is_current(part, **of))
                .map(|(part, _)| part)
                .collect();
            if !outdated.is_empty() && !may_delete {
                return Ok(None);
            }
            let (replaced, gone): (Vec<&Part>, Vec<&Part>) =
                outdated.into_iter().partition(|part| listed.contains_key(*part));
            replaced.iter().try_for_each(|part| self.forget(part))?;
            let new = |part: &&Part| !here.contains_key(*part) || replaced.contains(part);
            let new: Vec<Part> = listed.keys().filter(new).cloned().collect();
            let (many, mut single): (Vec<Part>, Vec<Part>) =
                new.into_iter().partition(Part::is_merged);
            let all = (many.len() + single.len()) as u64;
            let mut is_whole = self.fetch(many, &listed, (0, all), &mut lacking, each)?;
            if !is_whole {
                continue;
            }
            if depth == Depth::Runs {
                let merged = self.merged_runs(&single, &listed)?;
                single.retain(|part| !merged.contains(part));
            }
            let done = all - single.len() as u64;
            is_whole &= self.fetch(single, &listed, (done, all), &mut lacking, each)?;
            if !is_whole {
                continue;
            }
            // Last, when what supersedes them is there.
            gone.iter().try_for_each(|part| self.forget(part))?;
            let unknown = |name: &String| {
                let part = TABLES.iter().find_map(|table| Part::of_key(table, name));
                part.is_some_and(|part| !listed.contains_key(&part))
            };
            return Ok(Some(files.unwrap_or_default().into_keys().filter(unknown).collect()));
        }
        bail!("{}: parts were deleted while they were read, {TRIES} times in a row", self.url)
    }

    /// The files of the tables but `runs`, which was listed before: a part that is added meanwhile has files here that
    /// are in no run yet.
    fn other_files(&self) -> Result<BTreeMap<String, Version>> {
        let mut files = BTreeMap::new();
        for table in TABLES.iter().filter(|table| table.name != RUNS.name) {
            let listed = self.list(table.name, ALL_DAYS.0, ALL_DAYS.1)?;
            files.extend(listed.into_iter().map(|(name, object)| (name, version(&object))));
        }
        Ok(files)
    }

    /// Whether a part has the same files here but for `runs`.
    fn is_same(&self, part: &Part, files: &BTreeMap<String, Version>) -> bool {
        TABLES.iter().filter(|table| table.name != RUNS.name).all(|table| {
            let name = part.key(table);
            files.get(&name).copied() == version_here(&self.copy.join(name))
        })
    }

    /// The parts in the copy that were made on some days.
    fn parts_here(&self, (since, until): Days<'_>) -> Result<BTreeMap<Part, Version>> {
        let cannot = || self.copy.display().to_string();
        let root = self.copy.join(RUNS.name);
        let mut parts = BTreeMap::new();
        for day in names(&root).with_context(cannot)? {
            let is_asked = |date: &str| since <= date && date <= until;
            if !day.strip_prefix("date=").is_some_and(is_asked) {
                continue;
            }
            for machine in names(&root.join(&day)).with_context(cannot)? {
                for file in names(&root.join(&day).join(&machine)).with_context(cannot)? {
                    let name = format!("{}/{day}/{machine}/{file}", RUNS.name);
                    if let Some(part) = Part::of_key(&RUNS, &name)
                        && let Some(version) = version_here(&self.copy.join(&name))
                    {
                        parts.insert(part, version);
                    }
                }
            }
        }
        Ok(parts)
    }

    /// Those parts of one run whose run is in a merged part, too.
    fn merged_runs(
        &self,
        single: &[Part],
        listed: &BTreeMap<Part, Version>,
    ) -> Result<BTreeSet<Part>> {
        let days: BTreeSet<&String> = single.iter().map(|part| &part.place.date).collect();
        let mut merged: BTreeSet<(&String, String)> = BTreeSet::new();
        for part in listed.keys().filter(|part| part.is_merged()) {
            if let Some(date) = days.get(&part.place.date) {
                let file = self.copy.join(part.key(&RUNS));
                let runs = table_file::texts(&RUNS, &file, "run_id")?;
                merged.extend(runs.into_iter().map(|run| (*date, run)));
            }
        }
        let is_merged = |part: &&Part| merged.contains(&(&part.place.date, part.name.clone()));
        Ok(single.iter().filter(is_merged).cloned().collect())
    }

    /// Fetches parts and places each; returns `false` if one lacked a file for the first time.
    fn fetch(
        &self,
        parts: Vec<Part>,
        listed: &BTreeMap<Part, Version>,
        (mut done, all): (u64, u64),
        lacking: &mut BTreeSet<Part>,
        each: Each<'_>,
    ) -> Result<bool> {
        let known = lacking.clone();
        let fetch = |part: Part| {
            let may_lack = known.contains(&part);
            let seconds = listed.get(&part).map_or(0, |(_, seconds)| *seconds);
            self.fetch_part(part, seconds, may_lack)
        };
        let mut fetching = Box::pin(stream::iter(parts).map(fetch).buffer_unordered(AT_ONCE));
        let mut is_whole = true;
        while let Some(fetched) = self.runtime.block_on(fetching.next()) {
            match fetched? {
                Fetch::Whole(files) => {
                    files.iter().try_for_each(|(name, bytes, at)| self.place(name, bytes, *at))?;
                }
                Fetch::Lacks(part) => {
                    lacking.insert(part);
                    is_whole = false;
                }
            }
            done += 1;
            each(done, all);
        }
        Ok(is_whole)
    }

    /// `seconds` is when `runs` was written, by the list, which the next refresh compares it with.
    async fn fetch_part(&self, part: Part, seconds: u64, may_lack: bool) -> Result<Fetch> {
        let name = part.key(&RUNS);
        let Some((runs, _)) = self.get(&name).await? else { return Ok(Fetch::Lacks(part)) };
        let columns = COUNTS.map(|(_, column)| column);
        let counts = table_file::cells_in(&RUNS, runs.clone(), &columns)
            .with_context(|| format!("{}/{name}", self.url))?;
        let mut files = Vec::new();
        for ((table, _), counts) in COUNTS.iter().zip(counts) {
            // Runs from before a table was there don't count its rows.
            let has_rows = counts.iter().any(|count| !matches!(count, Value::Int(0) | Value::Null));
            let table = TABLES.iter().find(|known| known.name == *table).filter(|_| has_rows);
            let Some(table) = table else { continue };
            let name = part.key(table);
            match self.get(&name).await? {
                Some((bytes, at)) => files.push((name, bytes, at)),
                None if may_lack => {}
                None => return Ok(Fetch::Lacks(part)),
            }
        }
        files.push((name, runs, UNIX_EPOCH + Duration::from_secs(seconds)));
        Ok(Fetch::Whole(files))
    }

    /// The files without rows, which tell DuckDB the columns.
    fn fetch_columns(&self) -> Result<()> {
        for table in &TABLES {
            let name = Part::columns().key(table);
            if version_here(&self.copy.join(&name)).is_none() {
                match self.runtime.block_on(self.get(&name))? {
                    Some((bytes, at)) => self.place(&name, &bytes, at)?,
                    // The lake was made before there was this table.
                    None if table.name == REQUESTS.name => {}
                    None => bail!("{}/{name} is missing", self.url),
                }
            }
        }
        Ok(())
    }

    /// Puts a file into the copy, as a whole. After a loss of power it may be empty, of which DuckDB tells; to wait for
    /// the disk after each file would take longer than to fetch it.
    fn place(&self, name: &str, bytes: &[u8], modified: SystemTime) -> Result<()> {
        // Containers that share a cache have processes of the same number. Its keys are drawn at random.
        let partial =
            self.copy.join(PARTIAL).join(format!("{:016x}", RandomState::new().hash_one(name)));
        let path = self.copy.join(name);
        let placed = || -> io::Result<()> {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = File::create_new(&partial)?;
            file.write_all(bytes)?;
            file.set_times(FileTimes::new().set_modified(modified))?;
            drop(file);
            fs::rename(&partial, &path)
        };
        placed().with_context(|| path.display().to_string())
    }

    /// Deletes a part from the copy, `runs` first.
    fn forget(&self, part: &Part) -> Result<()> {
        for table in TABLES.iter().rev() {
            let path = self.copy.join(part.key(table));
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| path.display().to_string());
                }
                // The folder may hold other parts.
                _ => drop(path.parent().map(fs::remove_dir)),
            }
        }
        Ok(())
    }

    /// Whether a process that was killed left a file half-written.
    fn has_old_partial(&self) -> Result<bool> {
        const OLD: Duration = Duration::from_secs(3600);
        let folder = self.copy.join(PARTIAL);
        let names = names(&folder).with_context(|| folder.display().to_string())?;
        Ok(names.iter().any(|name| age(&folder.join(name)).is_some_and(|age| age >= OLD)))
    }

    fn delete_partial(&self) -> Result<()> {
        let folder = self.copy.join(PARTIAL);
        let cannot = || folder.display().to_string();
        for name in names(&folder).with_context(cannot)? {
            fs::remove_file(folder.join(name)).with_context(cannot)?;
        }
        Ok(())
    }
}

fn version(object: &ObjectMeta) -> Version {
    (object.size, u64::try_from(object.last_modified.timestamp()).unwrap_or_default())
}

/// `None` if there is no such file.
fn version_here(path: &std::path::Path) -> Option<Version> {
    let found = fs::metadata(path).ok()?;
    let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some((found.len(), modified.as_secs()))
}
