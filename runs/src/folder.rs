//! The folder that a run is written to.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, anyhow, bail};
use brickscope_analysis::receipt::Receipt;
use brickscope_profile::Profile;
use brickscope_profile::save::now_rfc3339_ms;
use tempfile::TempDir;

use crate::files::{FLAMEGRAPH, MAIN, PROFILE, RECEIPT, SAMPLES, SUMMARY, processes, remove_file};
use crate::private;
use crate::settings::home;
use crate::summary::{self, Summary};
use crate::writing::Writing;

/// A writable folder for a run. It is made before the run, so that errors come early.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Whether its contents may be removed.
    overwrite: bool,
    /// The outermost folder that was made for it.
    absent: Option<PathBuf>,
    /// The folder for a run that can't be written here; by default a new one among temporary files.
    rescue: Option<PathBuf>,
    /// The flamegraph that is replaced.
    replaced: Option<Replaced>,
    /// For a folder that is made when something is written to it: how to make it, and its final path.
    late: Option<Late>,
    /// Keeps others from removing what is in it meanwhile.
    writing: OnceCell<Writing>,
}

#[derive(Debug)]
struct Late {
    /// The time that a new folder is named after; `None` if it has a name.
    created: Option<String>,
    made: OnceCell<PathBuf>,
}

impl RunDir {
    /// The folder `path`, or a new one named after `created` (RFC 3339). A folder that holds a run is
    /// refused.
    pub fn create(path: Option<&Path>, created: &str) -> Result<Self> {
        Self::open(path, created, false)
    }

    /// As [`create`](Self::create), for a flamegraph of these `files`: with `overwrite` one that is in the folder is
    /// replaced, with the run that it was drawn from, once the new one is there. Any other run stays, and is refused. `tell`
    /// says where the old one is if it can't be put back.
    pub fn create_for_flamegraph(
        path: Option<&Path>,
        created: &str,
        overwrite: bool,
        files: &[&str],
        tell: fn(&str),
    ) -> Result<Self> {
        let mut replaced = None;
        if let Some(path) = path.filter(|path| path.join(FLAMEGRAPH).exists()) {
            let is_benchmark = path.join(RECEIPT).exists() || !processes(path)?.is_empty();
            if overwrite && !is_benchmark {
                let all = [PROFILE, SAMPLES, SUMMARY].into_iter().chain(files.iter().copied());
                replaced = Some(Replaced::new(path, all, tell)?);
            } else if !is_benchmark {
                bail!(
                    "{} already holds a run's flamegraph: name another folder with -o, or replace it, with its run, by \
                     --overwrite",
                    path.display()
                );
            }
        }
        let mut dir = Self::create(path, created)?;
        dir.replaced = replaced;
        Ok(dir)
    }

    /// As [`create`](Self::create), for a run that writes nothing until its end. Checks now that the folder
    /// can be written to, but makes it only when the run is saved, so that a killed run leaves none.
    pub fn create_late(path: Option<&Path>, created: &str) -> Result<Self> {
        Self::open_late(path, created, false)
    }

    /// As [`create_late`](Self::create_late), but with `overwrite` it accepts a folder that holds a run.
    pub fn open_late(path: Option<&Path>, created: &str, overwrite: bool) -> Result<Self> {
        let mut dir = Self::open(path, created, overwrite)?;
        dir.remove_empty();
        if !dir.path.exists() {
            dir.writing = OnceCell::new();
        }
        let created = path.is_none().then(|| created.to_owned());
        dir.late = Some(Late { created, made: OnceCell::new() });
        Ok(dir)
    }

    /// As [`create`](Self::create), but with `overwrite` it accepts a folder that holds a run.
    pub fn open(path: Option<&Path>, created: &str, overwrite: bool) -> Result<Self> {
        let absent = first_absent(path.unwrap_or(home()));
        let is_named = path.is_some();
        let cannot = |path: &Path| format!("can't write the run to {}", path.display());
        let path = match path {
            Some(path) => {
                fs::create_dir_all(path).with_context(|| cannot(path))?;
                path.to_owned()
            }
            None => {
                let parent = home();
                new_folder(parent, created).with_context(|| cannot(parent))?
            }
        };
        // A folder without a name is always new.
        let absent = absent.or_else(|| (!is_named).then(|| path.clone()));
        // From here on, an error removes what was made.
        let mut dir = Self::at(path);
        (dir.overwrite, dir.absent) = (overwrite, absent);
        dir.mark(&dir.path);
        let path = &dir.path;
        if !overwrite {
            if MAIN.iter().any(|file| path.join(file).exists()) {
                bail!("{} already holds a run: name another folder with --out", path.display());
            }
            // A run beside the folders of a set would be taken for the whole set.
            if !processes(path).with_context(|| cannot(path))?.is_empty() {
                bail!(
                    "{} already holds a set of runs: name another folder with --out",
                    path.display()
                );
            }
        }
        // Try to write, since permissions aren't everything: a disk may be full, or mounted read-only.
        let probe = path.join(format!(".writable.{}.partial", std::process::id()));
        fs::write(&probe, b"")
            .and_then(|()| fs::remove_file(&probe))
            .with_context(|| cannot(path))?;
        Ok(dir)
    }

    /// A folder that is there.
    fn at(path: PathBuf) -> Self {
        Self {
            path,
            overwrite: false,
            absent: None,
            rescue: None,
            replaced: None,
            late: None,
            writing: OnceCell::new(),
        }
    }

    /// Marks the folder as one that is being written, until this is dropped.
    fn mark(&self, path: &Path) {
        if self.writing.get().is_none()
            && let Some(writing) = Writing::begin(path)
        {
            self.writing.get_or_init(|| writing);
        }
    }

    /// Names the folder for a run that can't be written here.
    pub fn rescued_to(mut self, rescue: Option<&Path>) -> Self {
        self.rescue = rescue.map(Path::to_owned);
        self
    }

    /// Writes what was measured, here or, if that fails, to another folder: it can't be measured again.
    pub fn write(&self, write: impl Fn(&Self) -> Result<()>) -> Written {
        let Err(why) = write(self) else {
            return Written { folder: Some(self.path().to_owned()), trouble: None };
        };
        let other = match &self.rescue {
            // It must be new, as it is in a folder that others can write to.
            Some(rescue) => fs::create_dir(rescue)
                .with_context(|| rescue.display().to_string())
                .map(|()| rescue.clone()),
            None => private::temporary().map(TempDir::keep),
        };
        let other = other.and_then(|path| {
            let dir = Self::at(path);
            write(&dir).inspect_err(|_| drop(fs::remove_dir(&dir.path)))?;
            Ok(dir.path.clone())
        });
        let not_here = format!(
            "the run could not be written to {}: {}",
            self.path().display(),
            why.root_cause()
        );
        match other {
            Ok(folder) => {
                let trouble = anyhow!("{not_here}; it was saved to {} instead", folder.display());
                Written { folder: Some(folder), trouble: Some(trouble) }
            }
            Err(error) => {
                let trouble = anyhow!("{not_here}; nor could it be saved elsewhere: {error:#}");
                Written { folder: None, trouble: Some(trouble) }
            }
        }
    }

    /// Removes the folders that were made for this run and are empty.
    fn remove_empty(&self) {
        let Some(absent) = &self.absent else { return };
        for folder in self.path().ancestors().take_while(|folder| folder.starts_with(absent)) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }

    /// The path; for a folder that is made late, the final one once it is made.
    pub fn path(&self) -> &Path {
        self.late.as_ref().and_then(|late| late.made.get()).unwrap_or(&self.path)
    }

    /// Whether an earlier run is there, which a part of another must not replace.
    pub fn holds_a_run(&self) -> bool {
        [PROFILE, RECEIPT].iter().any(|file| self.path().join(file).exists())
            || processes(self.path()).is_ok_and(|processes| !processes.is_empty())
    }

    /// Writes the profile of the run.
    pub fn save(&self, profile: &Profile) -> Result<()> {
        self.make().with_context(|| format!("can't write the run to {}", self.path.display()))?;
        Ok(summary::save(profile, self.path())?)
    }

    /// Writes the profile of an import, and in it that it is written now: its other times are those of its file.
    pub fn save_import(&self, profile: &mut Profile) -> Result<()> {
        profile.imported_at = Some(now_rfc3339_ms());
        self.save(profile)
    }

    /// Writes the profile of another run of the same process to a folder in this one.
    pub fn save_beside(&self, folder: &str, profile: &Profile) -> Result<()> {
        let path = self.path.join(folder);
        let cannot = || format!("can't write the run to {}", path.display());
        self.make().with_context(cannot)?;
        let path = self.path().join(folder);
        fs::create_dir_all(&path).with_context(cannot)?;
        Ok(summary::save(profile, &path)?)
    }

    /// Makes the folder, if it is made late.
    fn make(&self) -> io::Result<()> {
        let Some(late) = self.late.as_ref().filter(|late| late.made.get().is_none()) else {
            return Ok(());
        };
        let path = match &late.created {
            // Other processes may have begun in the same second.
            Some(created) => new_folder(home(), created)?,
            None => {
                fs::create_dir_all(&self.path)?;
                self.path.clone()
            }
        };
        self.mark(&path);
        late.made.get_or_init(|| path);
        Ok(())
    }

    /// Writes the receipt of a benchmark, and its profile if there is one, then removes the runs of an
    /// earlier set. If this is interrupted, the receipt is the old or the new one, and a profile beside it
    /// belongs to the same run.
    pub fn save_benchmark(&self, receipt: &Receipt, profile: Option<&Profile>) -> Result<()> {
        self.make().with_context(|| format!("can't write the run to {}", self.path.display()))?;
        remove(&self.path().join(PROFILE))?;
        receipt.save(&self.path().join(RECEIPT))?;
        match profile {
            Some(profile) => self.save(profile)?,
            None => Summary::of_receipt(receipt).keep(self.path(), RECEIPT),
        }
        self.remove_processes(0)
    }

    /// Removes everything but the run of a set's first process. Readers take all runs in the folder for one
    /// set, and a run beside their folders for the whole set.
    pub fn leave_the_first_process(&self) -> Result<()> {
        self.remove_processes(1)?;
        if self.overwrite { remove_run(self.path()) } else { Ok(()) }
    }

    /// Removes the runs of a set's processes, except the first `kept`.
    fn remove_processes(&self, kept: u32) -> Result<()> {
        if !self.overwrite {
            return Ok(());
        }
        let cannot = || self.path().display().to_string();
        for (nth, folder) in processes(self.path()).with_context(cannot)? {
            if nth > kept {
                remove_run(&folder)?;
                // A folder with anything else in it stays.
                let _ = fs::remove_dir(&folder);
            }
        }
        Ok(())
    }
}

/// Removes the run in a folder. The profile goes first, so that it is never beside another run's
/// receipt.
fn remove_run(folder: &Path) -> Result<()> {
    [PROFILE, RECEIPT, SUMMARY].iter().try_for_each(|file| remove(&folder.join(file)))
}

fn remove(file: &Path) -> Result<()> {
    remove_file(file).with_context(|| file.display().to_string())
}

/// The files of a flamegraph that is replaced: away until another one is there, and back if none comes.
#[derive(Debug)]
struct Replaced {
    folder: PathBuf,
    away: Option<TempDir>,
    tell: fn(&str),
}

impl Replaced {
    fn new<'f>(
        folder: &Path,
        files: impl Iterator<Item = &'f str>,
        tell: fn(&str),
    ) -> Result<Self> {
        let away = tempfile::Builder::new().prefix(".replaced-").tempdir_in(folder);
        let away = away.with_context(|| folder.display().to_string())?;
        let replaced = Self { folder: folder.to_owned(), away: Some(away), tell };
        let Some(away) = &replaced.away else { return Ok(replaced) };
        for file in files {
            match fs::rename(folder.join(file), away.path().join(file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| folder.join(file).display().to_string());
                }
                _ => {}
            }
        }
        Ok(replaced)
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        let Some(away) = self.away.take() else { return };
        if self.folder.join(FLAMEGRAPH).exists() {
            return;
        }
        let entries = fs::read_dir(away.path()).into_iter().flatten().flatten();
        let files: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        let is_free = files.iter().all(|file| !self.folder.join(file).exists());
        let back = |file| fs::rename(away.path().join(file), self.folder.join(file)).is_ok();
        if !(is_free && files.iter().all(back)) {
            let away = away.keep();
            (self.tell)(&format!(
                "note: the flamegraph that was to be replaced is in {}",
                away.display()
            ));
        }
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        drop(self.replaced.take());
        // A failed run leaves nothing behind; a folder with anything in it stays.
        self.remove_empty();
    }
}

/// Where a run was written.
#[derive(Debug)]
pub struct Written {
    /// `None` if it couldn't be written anywhere.
    pub folder: Option<PathBuf>,
    /// Why it is not in the folder that was asked for, and where it is instead. Printed after the report.
    pub trouble: Option<anyhow::Error>,
}

/// The outermost missing folder of `path`; `None` if all exist.
fn first_absent(path: &Path) -> Option<PathBuf> {
    let absent =
        path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    absent.last().map(Path::to_owned)
}

/// Makes a new folder in `parent`, even if other processes make theirs in the same second.
pub(crate) fn new_folder(parent: &Path, created: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(parent)?;
    let digits: String = created.chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    let name = digits.replace('T', "-");
    // More tries than other processes could spoil.
    const TRIES: u32 = 1000;
    let (mut n, mut tries) = (1, 0);
    loop {
        let path = parent.join(if n == 1 { name.clone() } else { format!("{name}-{n}") });
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
            // Another process found the parent empty, and removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => {
                tries += 1;
                fs::create_dir_all(parent)?;
            }
            made => return made.map(|()| path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::profile_in;

    #[test]
    fn a_run_that_is_killed_leaves_no_folder() {
        let parent = TempDir::new().expect("a temporary folder");
        let path = parent.path().join("runs").join("one");
        // Nothing is dropped when a process is killed.
        std::mem::forget(RunDir::create_late(Some(&path), "").expect("it can be written to"));
        assert!(!parent.path().join("runs").exists());

        let dir = RunDir::create_late(Some(&path), "").expect("it can be written to");
        dir.save(&Profile::empty(Default::default())).expect("there is room");
        assert!(dir.path() == path && profile_in(&path).is_file());
        drop(dir);
        assert!(profile_in(&path).is_file());
        let again = RunDir::create_late(Some(&path), "").expect_err("it holds a run");
        assert!(again.to_string().contains("already holds a run"), "{again}");
    }

    #[test]
    fn only_a_flamegraph_is_replaced_by_one() {
        let dir = TempDir::new().expect("a temporary folder");
        let put = |file: &str| fs::write(dir.path().join(file), "old").expect("it is written");
        let has = |file: &str| dir.path().join(file).exists();
        let files = [FLAMEGRAPH, "flamegraph.svg", "diff.md"];
        let create = |overwrite| {
            RunDir::create_for_flamegraph(Some(dir.path()), "", overwrite, &files, |_| ())
        };
        // A run that nobody drew may be somebody's measurement.
        put(PROFILE);
        create(true).expect_err("it holds a run");
        assert!(has(PROFILE));
        for file in [SAMPLES, "README.md"].iter().chain(&files) {
            put(file);
        }
        let why = create(false).expect_err("it holds a flamegraph").to_string();
        assert!(
            why.contains("already holds a run's flamegraph") && why.contains("--overwrite"),
            "{why}"
        );
        put(RECEIPT);
        create(true).expect_err("it holds a benchmark");
        assert!(has(PROFILE) && has("flamegraph.svg"));
        fs::remove_file(dir.path().join(RECEIPT)).expect("it is there");
        drop(create(true).expect("it can be replaced"));
        assert!(has(PROFILE) && has("flamegraph.svg"), "there is no other");
        let replacing = create(true).expect("it can be replaced");
        put(FLAMEGRAPH);
        drop(replacing);
        fs::remove_file(dir.path().join(FLAMEGRAPH)).expect("it is there");
        for file in [PROFILE, SAMPLES].iter().chain(&files) {
            assert!(!has(file), "{file}");
        }
        assert!(has("README.md"), "what isn't ours stays");
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1, "and nothing else");
    }

    #[test]
    fn a_folder_that_was_there_stays() {
        let parent = TempDir::new().expect("a temporary folder");
        drop(RunDir::create_late(Some(parent.path()), "").expect("it can be written to"));
        assert!(parent.path().is_dir());
    }
}
