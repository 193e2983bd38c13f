//! The folder that the library which is loaded into a program writes to.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::{Kind, Library, Loaded, Recorded};
use crate::private;

/// A folder that is removed in the end, for the files of the library.
pub(crate) struct Records(TempDir);

impl Records {
    pub(crate) fn create() -> Result<Self> {
        private::temporary().map(Self)
    }

    /// The library that is loaded into the program. `None` if the program does not bear that.
    pub(crate) fn library(line: &[OsString]) -> Result<Option<Library>> {
        if !line.first().is_none_or(|program| Kind::of(program).bears_library()) {
            return Ok(None);
        }
        Library::write().map(Some)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// What each process recorded, and where the library was loaded. A file that can't be read is kept, and named.
    pub(crate) fn read(self) -> Result<(Vec<Recorded>, Loaded)> {
        let mut all = Vec::new();
        let mut loaded = Loaded::default();
        let mut is_kept = false;
        for file in fs::read_dir(self.path()).with_context(|| self.path().display().to_string())? {
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
            let _ = self.0.keep();
        }
        Ok((all, loaded))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
}
