//! Tags: names that users give to runs. A tag is a file in the run's own folder, so it is moved, copied and removed with it.

use std::path::Path;
use std::{fs, io};

use anyhow::{Result, ensure};

use crate::files::{self, TAG};

/// The most characters of a tag.
pub const MOST: usize = 64;

/// Whether a tag can be given: letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit. So it is
/// neither a path nor a flag, and a shell needs no quotation marks.
///
/// # Errors
///
/// What is wrong with it.
pub fn check(name: &str) -> Result<()> {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    ensure!(
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_usual),
        "a tag has letters, digits, `.`, `_` and `-`, and begins with a letter or a digit"
    );
    ensure!(name.len() <= MOST, "a tag has at most {MOST} characters");
    Ok(())
}

/// The tag of the run in a folder. `None` also if there is another text in its place.
#[must_use]
pub fn of(folder: &Path) -> Option<String> {
    let bytes = files::small(&folder.join(TAG), MOST as u64 + 1)?;
    let name = String::from_utf8(bytes).ok()?.trim_end_matches('\n').to_owned();
    check(&name).is_ok().then_some(name)
}

/// Whether a run has a tag, even if that can't be read.
#[must_use]
pub fn is_there(folder: &Path) -> bool {
    fs::symlink_metadata(folder.join(TAG)).is_ok()
}

/// Gives a run a tag, in the place of one that it had.
///
/// # Errors
///
/// If the tag can't be given, or not be written.
pub fn set(folder: &Path, name: &str) -> Result<()> {
    check(name)?;
    files::put(folder, TAG, format!("{name}\n").as_bytes())?;
    Ok(())
}

/// Takes its tag from a run. Returns whether it had one.
///
/// # Errors
///
/// The system's.
pub fn remove(folder: &Path) -> io::Result<bool> {
    match fs::remove_file(folder.join(TAG)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_need_no_quotation_marks() {
        for name in ["best", "v1.2", "2026-11-29", "a", "b_c", &"x".repeat(MOST)] {
            assert!(check(name).is_ok(), "{name}");
        }
        let long = "x".repeat(MOST + 1);
        for name in
            ["", "-x", ".x", "@", "@-1", "a b", "a/b", "..", "é", "a\n", "\u{1b}[2J", "a*", &long]
        {
            assert!(check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_tag_is_replaced_and_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(of(folder.path()), None);
        assert!(!is_there(folder.path()));
        assert!(!remove(folder.path()).expect("there is none"));
        for name in ["one", &"x".repeat(MOST)] {
            set(folder.path(), name).expect("there is room");
            assert_eq!(of(folder.path()).as_deref(), Some(name));
        }
        set(folder.path(), "a/b").expect_err("it is a path");
        assert!(remove(folder.path()).expect("it is there"));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        for other in ["", "a b\n", "a\nb\n", "\u{1b}[2J"] {
            fs::write(folder.path().join(TAG), other).expect("there is room");
            assert_eq!(of(folder.path()), None, "{other:?}");
            assert!(is_there(folder.path()));
        }
    }
}
