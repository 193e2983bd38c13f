//! What there is of a run that goes on: a run in a folder of its own, which is there once it is whole.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::folder::{RunDir, new_folder};
use crate::settings::home;

/// What is between the name of a run and a number.
const SO_FAR: &str = "-so-far-";

/// Whether this is the name of a folder with what there was of a run that has one.
pub(crate) fn is_so_far(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.rsplit_once(SO_FAR)).map(|(_, number)| number);
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Writes a run to a new folder, and returns that. It lies beside the one that the run which goes on will be written to, and is
/// named after it, with a number: `named` is that one, or `None` if it has no name yet. `created` is when it began.
///
/// # Errors
///
/// If it can't be written. Then nothing of it is left.
pub fn write_so_far(
    named: Option<&Path>,
    created: &str,
    write: impl FnOnce(&RunDir) -> Result<()>,
) -> Result<PathBuf> {
    let hidden = format!(".so-far.{}.partial", std::process::id());
    let unfinished = match named {
        Some(path) => path.with_file_name(hidden),
        None => home().join(hidden),
    };
    // Of a process that was killed and had the same number.
    let _ = fs::remove_dir_all(&unfinished);
    let dir = RunDir::create_late(Some(&unfinished), created)?;
    let written = write(&dir).and_then(|()| {
        let put = match named {
            Some(path) => put_beside(&unfinished, path),
            None => new_folder(home(), created).and_then(|to| put(&unfinished, to)),
        };
        put.with_context(|| unfinished.display().to_string())
    });
    if written.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    written
}

/// Gives a folder the first free name of those after `path`.
fn put_beside(unfinished: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut n = 1_u64;
    loop {
        let mut name = path.file_name().unwrap_or(OsStr::new("run")).to_owned();
        name.push(format!("{SO_FAR}{n}"));
        let to = path.with_file_name(name);
        match fs::create_dir(&to) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => n += 1,
            made => return made.and_then(|()| put(unfinished, to)),
        }
    }
}

/// Puts a folder in the place of an empty one.
fn put(unfinished: &Path, to: PathBuf) -> io::Result<PathBuf> {
    match fs::rename(unfinished, &to) {
        Ok(()) => Ok(to),
        Err(error) => {
            let _ = fs::remove_dir(&to);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use brickscope_profile::Profile;
    use tempfile::TempDir;

    use super::*;
    use crate::files::profile_in;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_there_is_so_far_lies_beside_the_run_once_it_is_whole() {
        let parent = TempDir::new().expect("a folder");
        let run = parent.path().join("runs").join("one");
        let profile = Profile::empty(Default::default());
        let write = || {
            write_so_far(Some(&run), "", |dir| {
                dir.save(&profile)?;
                // What others see is whole.
                let runs = parent.path().join("runs");
                for name in names(&runs).iter().filter(|name| !name.starts_with('.')) {
                    assert!(profile_in(&runs.join(name).join("context-2")).is_file(), "{name}");
                }
                dir.save_beside("context-2", &profile)
            })
        };
        for n in 1..=3 {
            let folder = write().expect("it can be written");
            assert_eq!(folder, parent.path().join(format!("runs/one-so-far-{n}")));
            assert!(profile_in(&folder).is_file());
            assert!(profile_in(&folder.join("context-2")).is_file());
        }
        // What is left of another process is none of it.
        let partial = format!("runs/.so-far.{}.partial", std::process::id());
        fs::create_dir(parent.path().join(&partial)).expect("a folder");
        fs::write(parent.path().join(partial).join("profile.json"), "{").expect("a file");
        write().expect("it can be written");
        let numbers = [1, 2, 3, 4].map(|n| format!("one-so-far-{n}"));
        assert_eq!(names(&parent.path().join("runs")), numbers);
    }

    #[test]
    fn nothing_is_left_of_what_can_not_be_written() {
        let parent = TempDir::new().expect("a folder");
        let run = parent.path().join("one");
        let written = write_so_far(Some(&run), "", |dir| {
            dir.save(&Profile::empty(Default::default()))?;
            bail!("the disk is full")
        });
        assert_eq!(written.expect_err("it is full").to_string(), "the disk is full");
        assert_eq!(names(parent.path()), [""; 0]);
    }
}
