//! The folder that a run is written to.

use std::fs;
use std::path::{Path, PathBuf};

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
        let path = match path {
            Some(path) => path.to_owned(),
            None => unused(Path::new("brickscope-runs"), created)?,
        };
        let cannot = || format!("the run can't be written to {}", path.display());
        fs::create_dir_all(&path).with_context(cannot)?;
        // Permissions don't tell everything: a disk may be full, or mounted for reading.
        let probe = path.join(format!(".writable.{}", std::process::id()));
        fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe)).with_context(cannot)?;
        if path.join(PROFILE).exists() {
            bail!("{} holds a run already: name another folder with --out", path.display());
        }
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn save(&self, profile: &Profile) -> Result<()> {
        Ok(profile.save(&self.path.join(PROFILE))?)
    }
}

/// A folder in `parent` that isn't there yet.
fn unused(parent: &Path, created: &str) -> Result<PathBuf> {
    let digits: String = created.chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    let name = digits.replace('T', "-");
    for n in 1..1000 {
        let path = parent.join(if n == 1 { name.clone() } else { format!("{name}-{n}") });
        if !path.exists() {
            return Ok(path);
        }
    }
    bail!("{} has a thousand runs of this second", parent.display())
}

/// Reads the profile of a run: its folder, or the file itself.
pub(crate) fn load(run: &Path) -> Result<Profile> {
    let path = if run.is_dir() { run.join(PROFILE) } else { run.to_owned() };
    Ok(Profile::load(&path)?)
}
