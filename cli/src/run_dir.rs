//! The folder that a run is written to.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, bail, ensure};
use brickscope::Profile;
use brickscope::receipt::Receipt;

use crate::flame::load;

/// The profile in a run's folder.
const PROFILE: &str = "profile.json";

/// The receipt of a benchmark.
const RECEIPT: &str = "receipt.json";

/// The samples that were taken of a run.
pub(crate) const SAMPLES: &str = "samples.json";

/// A folder that can be written to, made before the run so that its lack isn't found out after.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    /// Whether what is in it may be removed.
    overwrite: bool,
}

impl RunDir {
    /// The folder `path`, or a new one that is named for `created` (RFC 3339). A folder that holds a
    /// run is refused.
    pub(crate) fn create(path: Option<&Path>, created: &str) -> Result<Self> {
        Self::open(path, created, false)
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
                let parent = Path::new("brickscope-runs");
                new_folder(parent, created).with_context(|| cannot(parent))?
            }
        };
        if !overwrite {
            let kept = [PROFILE, RECEIPT, SAMPLES, load::FILE];
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
        Ok(Self { path, overwrite })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the profile of the run.
    pub(crate) fn save(&self, profile: &Profile) -> Result<()> {
        Ok(profile.save(&self.path.join(PROFILE))?)
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
        // Of a run that failed nothing is left; a folder with something in it stays.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Makes a folder in `parent` that wasn't there, whoever else makes one in the same second.
fn new_folder(parent: &Path, created: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(parent)?;
    let digits: String = created.chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    let name = digits.replace('T', "-");
    for n in 1.. {
        let path = parent.join(if n == 1 { name.clone() } else { format!("{name}-{n}") });
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    unreachable!("a folder has fewer entries than there are numbers")
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
    Ok(Profile::load(&path)?)
}
