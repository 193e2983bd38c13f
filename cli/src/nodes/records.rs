//! The folder that the library which is loaded into a program lies in, and writes to.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::{Context, Result, bail};

use super::{Kind, Loaded, Recorded, library};

/// A folder that is removed in the end, for the files of the library.
pub(crate) struct Records {
    path: PathBuf,
    /// A further one.
    more: Cell<Option<PathBuf>>,
}

impl Records {
    pub(crate) fn create() -> Result<Self> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let name =
            format!("brickscope-{}-{}", std::process::id(), now.unwrap_or_default().as_nanos());
        let path = env::temp_dir().join(name);
        make(&path).with_context(|| format!("can't make {}", path.display()))?;
        Ok(Self { path, more: Cell::new(None) })
    }

    /// Writes the library that is loaded into the program to a file. `None` if the program does not bear that.
    pub(crate) fn library(&self, line: &[OsString]) -> Result<Option<PathBuf>> {
        if !line.first().is_none_or(|program| Kind::of(program).bears_library()) {
            return Ok(None);
        }
        let folder = self.for_library()?;
        library(&folder).map(Some)
    }

    /// A folder that the linker takes libraries from: the list of them is separated by spaces and colons, and some folders
    /// have no programs.
    fn for_library(&self) -> Result<PathBuf> {
        let suits = |path: &Path| {
            !path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\t\n".contains(byte))
                && !is_noexec(path)
        };
        if suits(&self.path) {
            return Ok(self.path.clone());
        }
        let name = self.path.file_name().unwrap_or_default();
        for folder in ["/tmp", "/dev/shm", "/var/tmp"].map(Path::new) {
            let folder = folder.join(name);
            if suits(&folder) && make(&folder).is_ok() {
                self.more.set(Some(folder.clone()));
                return Ok(folder);
            }
        }
        bail!(
            "can't load a library into a program from {}: its path has a space or a colon, or the file system has no \
             programs (noexec). Set TMPDIR to a folder that is neither",
            self.path.display()
        )
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What each process recorded, and where the library was loaded. A file that can't be read is kept, and named.
    pub(crate) fn read(self) -> Result<(Vec<Recorded>, Loaded)> {
        let mut all = Vec::new();
        let mut loaded = Loaded::default();
        let mut is_kept = false;
        for file in fs::read_dir(&self.path).with_context(|| self.path.display().to_string())? {
            let Ok(path) = file.map(|file| file.path()) else { continue };
            let kind = path.extension().and_then(OsStr::to_str);
            if !matches!(kind, Some("loaded" | "nodes")) {
                continue;
            }
            let bytes = fs::read(&path);
            if kind == Some("loaded") {
                loaded.add(&String::from_utf8_lossy(&bytes.unwrap_or_default()));
                continue;
            }
            let read = bytes
                .map_err(|why| format!("{}: {why}", path.display()))
                .and_then(|bytes| Recorded::read(&bytes, &path).map_err(|why| why.to_string()));
            match read {
                Ok(recorded) => {
                    // Of one that has no passes, nobody else will tell.
                    if recorded.events.is_empty() {
                        let said = recorded.lost.iter().chain(&recorded.fault).cloned();
                        loaded.said.extend(said);
                    }
                    all.push(recorded);
                }
                Err(why) => {
                    is_kept = true;
                    loaded.said.push(format!("can't read what was recorded, which is kept: {why}"));
                }
            }
        }
        if is_kept {
            std::mem::forget(self);
        }
        Ok((all, loaded))
    }
}

/// Makes a folder that nobody else may write to.
fn make(path: &Path) -> io::Result<()> {
    let mut folder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
    folder.create(path)
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

impl Drop for Records {
    fn drop(&mut self) {
        // Nothing can be done about it, and the report matters more.
        for path in [Some(self.path.clone()), self.more.take()].into_iter().flatten() {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_none_is_kept_and_said_and_the_others_are_read() {
        let records = Records::create().expect("a folder");
        let path = records.path().to_owned();
        for (name, text) in [
            ("7.nodes", "BRKNODES"),
            ("8.nodes", ""),
            ("9.loaded", "program /bin/true\nsaid why\n"),
            ("9.other", "x"),
        ] {
            fs::write(path.join(name), text).expect("a file");
        }
        let (all, loaded) = records.read().expect("it can be read");
        assert!(all.is_empty());
        assert_eq!(loaded.programs, [PathBuf::from("/bin/true")]);
        let said = loaded.said.join("; ");
        assert!(said.contains("7.nodes, byte 0: not a recording"), "{said}");
        assert!(said.contains("8.nodes, byte 0") && said.contains("why"), "{said}");
        assert!(path.join("7.nodes").exists(), "it is kept");
        fs::remove_dir_all(path).expect("it can be removed");
    }

    #[test]
    fn a_folder_that_the_linker_takes_no_library_from_has_another_beside() {
        let dir = tempfile::tempdir().expect("a folder");
        let spaced = dir.path().join(format!("a b/brickscope-test-{}", std::process::id()));
        fs::create_dir_all(&spaced).expect("a folder");
        let records = Records { path: spaced, more: Cell::new(None) };
        let found = records.for_library().expect("there is one");
        assert!(found.exists() && !found.to_string_lossy().contains(' '), "{}", found.display());
        drop(records);
        assert!(!found.exists(), "it is removed");
        assert!(!is_noexec(Path::new("/")));
    }
}
