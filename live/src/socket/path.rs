//! Where sockets lie: in a directory that only their user can enter.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::{LiveError, io_error};

/// The effective user of this process.
pub(super) fn own_uid() -> u32 {
    geteuid().as_raw()
}

/// The directory for this user's sockets. It is created if necessary, and must be private to the user.
pub(super) fn folder() -> Result<PathBuf, LiveError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // The session's directory may be gone, or may never have existed, as in containers.
    let folder = match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(runtime) => runtime.join("brickscope"),
        None => in_temp(own_uid()),
    };
    make_private(&folder)?;
    Ok(folder)
}

#[expect(
    clippy::disallowed_methods,
    reason = "others must find it; `make_private` refuses one that isn't ours"
)]
fn in_temp(uid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("brickscope-{uid}"))
}

fn make_private(folder: &Path) -> Result<(), LiveError> {
    if let Some(parent) = folder.parent().filter(|of| !of.as_os_str().is_empty() && !of.is_dir()) {
        let why = "there is no such directory: make it, or name another one with TMPDIR";
        return Err(LiveError::Folder { path: parent.to_owned(), why });
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(io_error(folder.display().to_string())(error));
        }
        _ => {}
    }
    // Don't follow symbolic links: in a shared temporary directory anybody may have planted one.
    let found = fs::symlink_metadata(folder).map_err(io_error(folder.display().to_string()))?;
    let why = if !found.is_dir() {
        "it is not a directory"
    } else if found.uid() != own_uid() {
        "it belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "other users can access it; `chmod 700` makes it private"
    } else {
        return Ok(());
    };
    Err(LiveError::Folder { path: folder.to_owned(), why })
}

/// The socket of a process in `folder`.
pub(super) fn socket_in(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}.sock"))
}

/// Where a process of the user `uid` may have its socket, likeliest first.
pub(super) fn candidates(pid: u32, uid: u32) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if uid == own_uid()
        && let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR")
    {
        folders.push(PathBuf::from(runtime).join("brickscope"));
    }
    folders.push(PathBuf::from(format!("/run/user/{uid}/brickscope")));
    folders.push(in_temp(uid));
    folders.dedup();
    folders.iter().map(|folder| socket_in(folder, pid)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_can_use_is_refused() {
        let temp = tempfile::tempdir().expect("a folder");
        let folder = temp.path().join("sockets");
        make_private(&folder).expect("it is new");
        make_private(&folder).expect("it is ours");
        assert_eq!(fs::metadata(&folder).expect("it is there").mode() & 0o777, 0o700);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let told = make_private(&folder).expect_err("others can access it").to_string();
        assert!(told.ends_with("`chmod 700` makes it private"), "{told}");
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(temp.path(), &link).expect("a link");
        let told = make_private(&link).expect_err("a link").to_string();
        assert!(told.ends_with("it is not a directory"), "{told}");
    }
}
