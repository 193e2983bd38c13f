//! The folder that a run is written to.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, bail};
use brickscope::Profile;

/// The profile in a run's folder.
const PROFILE: &str = "profile.json";

/// A folder that can be written to, made before the run so that its lack isn't found out after.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// The folder `path`, or a new one that is named for `created` (RFC 3339).
    pub(crate) fn create(path: Option<&Path>, created: &str) -> Result<Self> {
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
        if path.join(PROFILE).exists() {
            bail!("{} holds a run already: name another folder with --out", path.display());
        }
        // Permissions don't tell everything: a disk may be full, or mounted for reading.
        let probe = path.join(format!(".writable.{}", std::process::id()));
        fs::write(&probe, b"")
            .and_then(|()| fs::remove_file(&probe))
            .with_context(|| cannot(&path))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the profile of the run.
    pub(crate) fn save(&self, profile: &Profile) -> Result<()> {
        Ok(profile.save(&self.path.join(PROFILE))?)
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

/// Reads the profile of a run: its folder, or the file itself.
pub(crate) fn load(run: &Path) -> Result<Profile> {
    let path = if run.is_dir() { run.join(PROFILE) } else { run.to_owned() };
    Ok(Profile::load(&path)?)
}
