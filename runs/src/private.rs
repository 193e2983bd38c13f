//! Folders that no other user can write to.
//!
//! Names among the system's temporary files can be guessed, and whoever is first decides what lies there. So each such
//! folder is made by [`temporary`], and what other programs load lies in one of [`ours`].

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A new folder among the system's temporary files, with a name that nobody knows before, which only this user can enter.
/// It is removed with what is in it, unless it is kept.
///
/// # Errors
///
/// If it can't be made.
pub fn temporary() -> Result<TempDir> {
    let parent = parent();
    ensure!(
        parent.is_dir(),
        "there is no folder {}, which should hold temporary files: make it, or name another with TMPDIR",
        parent.display()
    );
    temporary_in(&parent)
}

/// The system's temporary files.
#[expect(clippy::disallowed_methods, reason = "this is the place that others are to use")]
fn parent() -> PathBuf {
    std::env::temp_dir()
}

const PREFIX: &str = "brickscope-tmp-";

/// Folders of this user that [`temporary`] has made and that are still there, in use or left.
pub fn earlier() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(parent()).into_iter().flatten().flatten();
    let begins = |name: &OsStr| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    let named = entries.filter(|entry| begins(&entry.file_name()));
    // Another user may have given one of theirs such a name.
    let is_ours = |path: &PathBuf| {
        fs::symlink_metadata(path)
            .is_ok_and(|of| of.is_dir() && of.uid() == user && of.mode() & 0o077 == 0)
    };
    named.map(|entry| entry.path()).filter(is_ours).collect()
}

/// The same in another folder.
pub fn temporary_in(parent: &Path) -> Result<TempDir> {
    let mut folder = tempfile::Builder::new();
    folder.prefix(PREFIX).permissions(Permissions::from_mode(0o700));
    folder.tempdir_in(parent).with_context(|| parent.display().to_string())
}

/// The path of `folder` without links, made if it is missing, if nobody but this user and root can write to it or put
/// another one in its place.
///
/// # Errors
///
/// If it can't be made, or somebody else can write to it.
pub fn ours(folder: &Path) -> Result<PathBuf> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let shown = || folder.display().to_string();
    DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(shown)?;
    let path = fs::canonicalize(folder).with_context(shown)?;
    for (nth, of) in path.ancestors().enumerate() {
        let found = fs::symlink_metadata(of).with_context(|| of.display().to_string())?;
        let (mode, owner) = (found.mode(), found.uid());
        ensure!(
            owner == user || (nth > 0 && owner == 0),
            "{} belongs to another user",
            of.display()
        );
        // In such a folder nobody can rename or remove what others own, and what we use is our own.
        let is_sticky = nth > 0 && mode & 0o1000 != 0;
        // A group of the user's own has the user's number by custom; others have members.
        let is_private = found.gid() == group && group == user;
        let by_group = mode & 0o020 != 0 && !is_private;
        ensure!(
            is_sticky || (mode & 0o002 == 0 && !by_group),
            "other users can write to {}",
            of.display()
        );
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }

    #[test]
    fn a_temporary_folder_is_new_and_nobody_elses() {
        let [one, other] = [temporary(), temporary()].map(|folder| folder.expect("a folder"));
        assert_ne!(one.path(), other.path());
        let mode = fs::metadata(one.path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        // Another process can't foresee it.
        let number = std::process::id().to_string();
        let name = one.path().file_name().expect("a name").to_string_lossy().into_owned();
        assert!(name.starts_with("brickscope-tmp-") && name.len() >= 21 && !name.contains(&number));
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let root = temporary().expect("a folder");
        let inner = root.path().join("a/b");
        assert!(ours(&inner).expect("it was made").ends_with("a/b"));
        assert_eq!(fs::metadata(&inner).expect("made").permissions().mode() & 0o777, 0o700);
        let made = fs::metadata(&inner).expect("made");
        let has_private_group = made.gid() == made.uid();
        for (path, mode, is_ours) in [
            (&*inner, 0o755, true),
            (&*inner, 0o777, false),
            // A group of its own, as the folder was made by this user.
            (&*inner, 0o775, has_private_group),
            // Anybody could make another file there.
            (&*inner, 0o1777, false),
            (root.path(), 0o755, true),
            (root.path(), 0o777, false),
            (root.path(), 0o1777, true),
        ] {
            set(path, mode);
            let found = ours(&inner);
            assert_eq!(found.is_ok(), is_ours, "{mode:o} {found:?}");
            if let Err(why) = found {
                assert!(why.to_string().starts_with("other users can write to "), "{why}");
            }
            set(path, 0o700);
        }
        // A link is followed: what counts is where it leads.
        set(root.path(), 0o777);
        let link = temporary().expect("a folder");
        std::os::unix::fs::symlink(&inner, link.path().join("here")).expect("a link");
        assert!(ours(&link.path().join("here")).is_err());
        set(root.path(), 0o700);
    }
}
