//! The library that is loaded into other programs: it is part of this program, and written to a file for them.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, iter};

use anyhow::{Context, Result, anyhow, bail};
use brickscope_analysis::receipt::sha256_hex;
use brickscope_llama::recording::LIBRARY;
use tempfile::{NamedTempFile, TempDir};

use crate::{cache, private};

/// The library in a file.
#[derive(Debug)]
pub(crate) struct Library {
    path: PathBuf,
    /// The folder that it is in, if that is removed in the end.
    passing: Option<TempDir>,
}

impl Library {
    /// The library in a folder that only this user can write to. It stays there: what a program leaves running may have the
    /// path in its environment, and would load whatever lies there later. Where there is no such folder, it is among
    /// temporary files, and [passing](Self::is_passing).
    ///
    /// # Errors
    ///
    /// If this build has none, or no folder suits.
    pub(crate) fn write() -> Result<Self> {
        if LIBRARY.is_empty() {
            bail!("this build can't record other programs: that needs Linux on x86-64 or AArch64");
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let kept = [cache::folder().ok(), runtime.map(|folder| folder.join("brickscope"))];
        for folder in kept.into_iter().flatten() {
            if let Ok(path) = library_in(&folder.join("preload")) {
                return Ok(Self { path, passing: None });
            }
        }
        let others = ["/tmp", "/dev/shm", "/var/tmp"].map(Path::new).into_iter();
        let passing = iter::once_with(private::temporary).chain(others.map(private::temporary_in));
        let mut why = anyhow!("there is no folder for it");
        for folder in passing {
            let tried = folder.and_then(|folder| Ok((written_to(folder.path())?, folder)));
            match tried {
                Ok((path, folder)) => return Ok(Self { path, passing: Some(folder) }),
                Err(not_there) => why = not_there,
            }
        }
        Err(why.context("can't write the library that is loaded into the program"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it isn't there any more in the end, so that the program must not pass it on to what it leaves running.
    pub(crate) fn is_passing(&self) -> bool {
        self.passing.is_some()
    }
}

/// The library's path in `folder`: as it lies there, or written.
fn library_in(folder: &Path) -> Result<PathBuf> {
    written_to(&private::ours(folder)?)
}

/// The same in a folder that nobody else can write to.
fn written_to(folder: &Path) -> Result<PathBuf> {
    // The linker separates libraries by spaces and colons.
    if folder.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        bail!("the path {} has a space or a colon", folder.display());
    }
    if is_noexec(folder) {
        bail!("the file system of {} has no programs (noexec)", folder.display());
    }
    // Two versions of this program use two files.
    let path = folder.join(format!("libbrickscope-{}.so", &sha256_hex(LIBRARY)[..16]));
    if is_as_written(&path) {
        return Ok(path);
    }
    let cannot = || format!("can't write {}", path.display());
    // Renamed over what lies there: a link there is replaced, not followed.
    let mut file = NamedTempFile::new_in(folder).with_context(cannot)?;
    file.write_all(LIBRARY).with_context(cannot)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o700)).with_context(cannot)?;
    file.persist(&path).with_context(cannot)?;
    Ok(path)
}

/// Whether a file is the library, and nobody else can write to it.
fn is_as_written(path: &Path) -> bool {
    let is_file = fs::symlink_metadata(path)
        .is_ok_and(|of| of.is_file() && of.mode() & 0o022 == 0 && of.len() == LIBRARY.len() as u64);
    is_file && fs::read(path).is_ok_and(|bytes| bytes == LIBRARY)
}

/// Whether the file system that a path is on has no programs, as far as the system says.
fn is_noexec(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut longest = (0, false);
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(at), Some(options)) = (fields.next(), fields.nth(1)) else { continue };
        let at = at.replace("\\040", " ");
        // Of two at one place the later one counts.
        if path.starts_with(&at) && at.len() >= longest.0 {
            longest = (at.len(), options.split(',').any(|option| option == "noexec"));
        }
    }
    longest.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_written_once_and_again_if_it_is_another() {
        if LIBRARY.is_empty() {
            return;
        }
        let folder = private::temporary().expect("a folder");
        let of = || library_in(&folder.path().join("preload"));
        let path = of().expect("it was written");
        let written = || fs::metadata(&path).expect("it is there").modified().expect("a time");
        assert_eq!(fs::read(&path).expect("it is there"), LIBRARY);
        let first = written();
        assert_eq!((of().expect("it is there"), written()), (path.clone(), first));
        // What somebody else could have changed isn't used.
        fs::write(&path, b"another").expect("it is ours");
        assert_eq!(fs::read(of().expect("it was written")).expect("it is there"), LIBRARY);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o722)).expect("it is ours");
        of().expect("it was written");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o700);
        fs::remove_file(&path).expect("it is ours");
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, b"another").expect("it is ours");
        std::os::unix::fs::symlink(&elsewhere, &path).expect("a link");
        of().expect("it was written");
        assert!(fs::symlink_metadata(&path).expect("it is there").is_file());
        assert_eq!(fs::read(&elsewhere).expect("it is there"), b"another", "no link is followed");
    }

    #[test]
    fn a_folder_that_does_not_suit_is_refused_with_its_reason() {
        if LIBRARY.is_empty() {
            return;
        }
        let folder = private::temporary().expect("a folder");
        let spaced = library_in(&folder.path().join("a b")).expect_err("it has a space");
        assert!(spaced.to_string().ends_with("has a space or a colon"), "{spaced}");
        let open = folder.path().join("open");
        fs::create_dir(&open).expect("a folder");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("it is ours");
        let refused = library_in(&open.join("preload")).expect_err("anybody can write there");
        assert!(refused.to_string().starts_with("other users can write to"), "{refused}");
        assert!(!is_noexec(Path::new("/")));
    }
}
