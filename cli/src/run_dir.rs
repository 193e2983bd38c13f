//! The folder that a run is written to.

use std::cell::OnceCell;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, bail, ensure};
use brickscope::Profile;
use brickscope::receipt::Receipt;

/// The profile in a run's folder.
const PROFILE: &str = "profile.json";

/// Where runs go that nobody named a folder for.
const RUNS: &str = "brickscope-runs";

/// The receipt of a benchmark.
const RECEIPT: &str = "receipt.json";

/// The figures of a flamegraph.
pub(crate) const FLAMEGRAPH: &str = "flamegraph.json";

/// The samples that were taken of a run.
pub(crate) const SAMPLES: &str = "samples.json";

/// A folder that can be written to, made before the run so that its lack isn't found out after.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    /// Whether what is in it may be removed.
    overwrite: bool,
    /// Of a folder that is only there when something is written to it: how it is made then, and which it became.
    late: Option<Late>,
}

#[derive(Debug)]
struct Late {
    /// What a new folder is named for; `None` for one with a name.
    created: Option<String>,
    made: OnceCell<PathBuf>,
}

impl RunDir {
    /// The folder `path`, or a new one that is named for `created` (RFC 3339). A folder that holds a
    /// run is refused.
    pub(crate) fn create(path: Option<&Path>, created: &str) -> Result<Self> {
        Self::open(path, created, false)
    }

    /// As [`create`](Self::create), for a run that writes nothing until its end: that the folder can be written
    /// to is tried now, and it is made when the run is saved, so that one that is killed leaves none.
    pub(crate) fn create_late(path: Option<&Path>, created: &str) -> Result<Self> {
        let absent = first_absent(path.unwrap_or(Path::new(RUNS)));
        let mut dir = Self::create(path, created)?;
        // Only what wasn't there is removed: of a folder with a name that may be nothing.
        let absent = absent.or_else(|| path.is_none().then(|| dir.path.clone()));
        if let Some(absent) = absent {
            for folder in dir.path.ancestors().take_while(|folder| folder.starts_with(&absent)) {
                if fs::remove_dir(folder).is_err() {
                    break;
                }
            }
        }
        let created = path.is_none().then(|| created.to_owned());
        dir.late = Some(Late { created, made: OnceCell::new() });
        Ok(dir)
    }

    /// As [`create`](Self::create); with `overwrite` a folder that holds a run will do.
    pub(crate) fn open(path: Option<&Path>, created: &str, overwrite: bool) -> Result<Self> {
        let cannot = |path: &Path| format!("the run can't be written to {}", path.display());
        let path = match path {
            Some(path) => {
                fs::create_dir_all(path).with_context(|| cannot(path))?;
                path.to_owned()
            }
            None => {
                let parent = Path::new(RUNS);
                new_folder(parent, created).with_context(|| cannot(parent))?
            }
        };
        if !overwrite {
            let kept = [PROFILE, RECEIPT, SAMPLES, FLAMEGRAPH];
            if kept.iter().any(|file| path.join(file).exists()) {
                bail!("{} holds a run already: name another folder with --out", path.display());
            }
            // A run beside the folders of a set would be taken for the whole of it.
            if !processes(&path).with_context(|| cannot(&path))?.is_empty() {
                bail!(
                    "{} holds a set of runs already: name another folder with --out",
                    path.display()
                );
            }
        }
        // Permissions don't tell everything: a disk may be full, or mounted for reading.
        let probe = path.join(format!(".writable.{}.partial", std::process::id()));
        fs::write(&probe, b"")
            .and_then(|()| fs::remove_file(&probe))
            .with_context(|| cannot(&path))?;
        Ok(Self { path, overwrite, late: None })
    }

    /// Of one that is made late, after that.
    pub(crate) fn path(&self) -> &Path {
        self.late.as_ref().and_then(|late| late.made.get()).unwrap_or(&self.path)
    }

    /// Writes the profile of the run.
    pub(crate) fn save(&self, profile: &Profile) -> Result<()> {
        self.make()
            .with_context(|| format!("the run can't be written to {}", self.path.display()))?;
        Ok(profile.save(&self.path().join(PROFILE))?)
    }

    /// Makes the folder, if it is made late.
    fn make(&self) -> io::Result<()> {
        let Some(late) = self.late.as_ref().filter(|late| late.made.get().is_none()) else {
            return Ok(());
        };
        let path = match &late.created {
            // Others may have begun in the same second.
            Some(created) => new_folder(Path::new(RUNS), created)?,
            None => {
                fs::create_dir_all(&self.path)?;
                self.path.clone()
            }
        };
        late.made.get_or_init(|| path);
        Ok(())
    }

    /// Writes the receipt of a benchmark, and the profile if there is one. Whenever this is cut short,
    /// the receipt is the old or the new one, and a profile beside it is of the same run. The runs of a
    /// set that was here before are removed after that.
    pub(crate) fn save_benchmark(
        &self,
        receipt: &Receipt,
        profile: Option<&Profile>,
    ) -> Result<()> {
        remove(&self.path.join(PROFILE))?;
        receipt.save(&self.path.join(RECEIPT))?;
        profile.map_or(Ok(()), |profile| self.save(profile))?;
        self.remove_processes(0)
    }

    /// Leaves of what was here only the run of a set's first process: what reads the folder takes all
    /// runs in it for one set, and one beside their folders for the whole of it.
    pub(crate) fn leave_the_first_process(&self) -> Result<()> {
        self.remove_processes(1)?;
        if self.overwrite { remove_run(&self.path) } else { Ok(()) }
    }

    /// Removes the runs of a set's processes but for the first `kept`.
    fn remove_processes(&self, kept: u32) -> Result<()> {
        if !self.overwrite {
            return Ok(());
        }
        let cannot = || self.path.display().to_string();
        for (nth, folder) in processes(&self.path).with_context(cannot)? {
            if nth > kept {
                remove_run(&folder)?;
                // With something else in it, it stays.
                let _ = fs::remove_dir(&folder);
            }
        }
        Ok(())
    }
}

/// The folders of a set's processes in `path` that hold a run, with their numbers, in no order.
fn processes(path: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let folder = entry?.path();
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.parse::<u32>().ok().filter(|n| *n > 0 && n.to_string() == name);
        if let Some(number) = number
            && [PROFILE, RECEIPT].iter().any(|file| folder.join(file).is_file())
        {
            found.push((number, folder));
        }
    }
    Ok(found)
}

/// Removes the run in a folder: the profile first, so that none is ever beside another run's receipt.
fn remove_run(folder: &Path) -> Result<()> {
    remove(&folder.join(PROFILE))?;
    remove(&folder.join(RECEIPT))
}

fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| file.display().to_string())
        }
        _ => Ok(()),
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.late.as_ref().is_some_and(|late| late.made.get().is_none()) {
            return;
        }
        // Of a run that failed nothing is left; a folder with something in it stays.
        let _ = fs::remove_dir(self.path());
    }
}

/// The outermost folder on the way to `path` that isn't there; `None` if all are.
fn first_absent(path: &Path) -> Option<PathBuf> {
    let absent =
        path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    absent.last().map(Path::to_owned)
}

/// Makes a folder in `parent` that wasn't there, whoever else makes one in the same second.
fn new_folder(parent: &Path, created: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(parent)?;
    let digits: String = created.chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    let name = digits.replace('T', "-");
    // More often than others could come between.
    const TRIES: u32 = 1000;
    let (mut n, mut tries) = (1, 0);
    loop {
        let path = parent.join(if n == 1 { name.clone() } else { format!("{name}-{n}") });
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
            // Another one found the parent empty, and removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => {
                tries += 1;
                fs::create_dir_all(parent)?;
            }
            made => return made.map(|()| path),
        }
    }
}

/// The profile in the folder of a run.
pub(crate) fn profile_in(run: &Path) -> PathBuf {
    run.join(PROFILE)
}

/// The receipt in the folder of a run.
pub(crate) fn receipt_in(run: &Path) -> PathBuf {
    run.join(RECEIPT)
}

/// Refuses to write where one of `runs` has what was measured.
pub(crate) fn spare(out: &Path, runs: &[&Path]) -> Result<()> {
    let Ok(out) = fs::canonicalize(out) else { return Ok(()) };
    for run in runs {
        for kept in [run.to_path_buf(), profile_in(run), receipt_in(run)] {
            ensure!(
                fs::canonicalize(&kept).ok().as_ref() != Some(&out) || kept.is_dir(),
                "{} is the run itself: name another file",
                kept.display()
            );
        }
    }
    Ok(())
}

/// The folder of a run that was named by it, or by its profile.json.
pub(crate) fn folder_of(run: &Path) -> &Path {
    match run.parent() {
        _ if run.is_dir() => run,
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Reads the profile of a run: its folder, or the file itself.
pub(crate) fn load(run: &Path) -> Result<Profile> {
    let path = if run.is_dir() { run.join(PROFILE) } else { run.to_owned() };
    if let Some(what) = what_else(&path) {
        bail!("{} is {what}", path.display());
    }
    Ok(Profile::load(&path)?)
}

/// What a file is that is no run, and which command takes it, by its first bytes.
fn what_else(path: &Path) -> Option<String> {
    // What is read of a pipe is gone.
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(8).read_to_end(&mut start).ok()?;
    let file = path.display();
    match &start[..] {
        [b'G', b'G', b'U', b'F', ..] => Some(format!(
            "a model (GGUF), and no run of one: `brickscope profile {file}` runs it and makes one"
        )),
        [0x1f, 0x8b, ..] => Some(format!(
            "packed by gzip, and no run: `brickscope import {file}` reads files of other programs so"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_run_that_is_killed_leaves_no_folder() {
        let parent = TempDir::new().expect("a temporary folder");
        let path = parent.path().join("runs").join("one");
        // As after a kill nothing is dropped.
        std::mem::forget(RunDir::create_late(Some(&path), "").expect("it can be written to"));
        assert!(!parent.path().join("runs").exists());

        let dir = RunDir::create_late(Some(&path), "").expect("it can be written to");
        dir.save(&Profile::empty(Default::default())).expect("there is room");
        assert!(dir.path() == path && profile_in(&path).is_file());
        drop(dir);
        assert!(profile_in(&path).is_file());
        let again = RunDir::create_late(Some(&path), "").expect_err("it holds a run");
        assert!(again.to_string().contains("holds a run already"), "{again}");
    }

    #[test]
    fn a_folder_that_was_there_stays() {
        let parent = TempDir::new().expect("a temporary folder");
        drop(RunDir::create_late(Some(parent.path()), "").expect("it can be written to"));
        assert!(parent.path().is_dir());
    }

    #[test]
    fn what_is_no_run_is_named_with_the_command_for_it() {
        let folder = TempDir::new().expect("a temporary folder");
        let said = |bytes: &[u8]| {
            let path = folder.path().join("file");
            fs::write(&path, bytes).expect("there is room");
            let error = load(&path).expect_err("it is no run");
            format!("{error:#}").replace(path.to_str().expect("UTF-8"), "FILE")
        };
        assert_eq!(
            said(b"GGUF\x03\0\0\0 and more"),
            "FILE is a model (GGUF), and no run of one: `brickscope profile FILE` runs it and makes one"
        );
        assert!(said(b"\x1f\x8b\x08\0").contains("brickscope import FILE"));
        assert_eq!(said(b"\xff\xfe\0"), "FILE is not a brickscope profile: it is no text");
        assert!(said(b"{").starts_with("FILE is not a whole brickscope profile"));
    }
}
