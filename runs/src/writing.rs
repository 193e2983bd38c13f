//! A mark on the folder of a run that is being written: a lock of the system's on the folder itself. It needs no file, and
//! ends with the process, however that ends.

use std::error::Error;
use std::fmt;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use crate::files;

/// The error that a run is being written, which is none of the run's.
#[derive(Debug)]
pub struct BeingWritten {
    /// Its folder.
    pub folder: PathBuf,
}

impl fmt::Display for BeingWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a run is being written to it", self.folder.display())
    }
}

impl Error for BeingWritten {}

/// While it lives, nobody removes what is in a folder. Several processes may write to one.
#[derive(Debug)]
pub(crate) struct Writing {
    _lock: File,
}

impl Writing {
    /// Marks a folder; `None` where the system can't, which is no reason not to write.
    pub(crate) fn begin(folder: &Path) -> Option<Self> {
        let lock = File::open(folder).ok()?;
        lock.try_lock_shared().ok()?;
        Some(Self { _lock: lock })
    }
}

/// While it lives, nobody takes the folder for one that is being written, and it was none.
#[derive(Debug)]
pub(crate) struct Alone {
    _locks: Vec<File>,
}

impl Alone {
    /// # Errors
    ///
    /// If a run is being written to the folder, or to the set that it is of, or if the system can't tell.
    pub(crate) fn with(folder: &Path, parts: &[&Path]) -> Result<Self> {
        if folder.file_name().is_some_and(files::is_part)
            && let Some(set) = folder.parent().filter(|set| !set.as_os_str().is_empty())
        {
            // Not kept, since others of the set may be removed at the same time.
            alone(set)?;
        }
        let all = [folder].into_iter().chain(parts.iter().copied());
        Ok(Self { _locks: all.map(alone).collect::<Result<_>>()? })
    }
}

fn alone(folder: &Path) -> Result<File> {
    let shown = folder.display();
    let lock = File::open(folder).map_err(|error| anyhow!("{shown}: {error}"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(BeingWritten { folder: folder.to_owned() }.into()),
        Err(TryLockError::Error(error)) => {
            Err(anyhow!("{shown}: can't tell whether a run is being written to it: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_marked_while_it_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = folder.path().join("1");
        std::fs::create_dir(&part).expect("a folder");
        let writing = Writing::begin(folder.path()).expect("the system has locks");
        let other = Writing::begin(folder.path());
        assert!(other.is_some(), "several may write");
        for of in [folder.path(), part.as_path()] {
            let why = Alone::with(of, &[]).expect_err("it is being written").to_string();
            assert!(why.ends_with("a run is being written to it"), "{why}");
        }
        drop((writing, other));
        let alone = Alone::with(folder.path(), &[part.as_path()]).expect("nobody writes");
        assert!(Writing::begin(&part).is_none());
        drop(alone);
        assert!(Writing::begin(&part).is_some());
    }
}
