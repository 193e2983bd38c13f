//! Makes sockets that no other user can reach, and removes those without a listener.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::path::{folder, socket_in};
use super::{LiveError, io_error};

/// Where the socket of this process lies. Those that others left there are removed.
pub(super) fn own_place() -> Result<PathBuf, LiveError> {
    let folder = folder()?;
    remove_stale(&folder);
    Ok(socket_in(&folder, std::process::id()))
}

/// Listens at `path`. A socket left there by a process that has ended is replaced.
///
/// A new socket has the permissions that the process's umask allows until they are changed. So it is made in a
/// directory that nobody else can enter, and linked to `path` once it is private.
pub(super) fn bind(path: &Path) -> Result<UnixListener, LiveError> {
    let failed = |error| io_error(format!("listening on {}", path.display()))(error);
    if std::fs::symlink_metadata(path).is_ok() {
        remove_dead(path)?;
    }
    let dir = PrivateDir::beside(path).map_err(failed)?;
    let made = dir.0.join("s");
    let listener = UnixListener::bind(&made).map_err(failed)?;
    std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    // Unlike renaming, linking fails if the path exists.
    match std::fs::hard_link(&made, path) {
        Ok(()) => {
            let _ = std::fs::remove_file(&made);
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let _ = std::fs::remove_file(&made);
            return Err(LiveError::InUse(path.to_owned()));
        }
        // Not every file system has hard links.
        Err(_) => std::fs::rename(&made, path).map_err(failed)?,
    }
    Ok(listener)
}

/// Removes a socket without a listener.
fn remove_dead(path: &Path) -> Result<(), LiveError> {
    let failed = |error| io_error(format!("listening on {}", path.display()))(error);
    // Remove only sockets: the path may be mistyped.
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    if !found.file_type().is_socket() {
        let why = "a file that isn't a socket is there";
        return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, why)));
    }
    match UnixStream::connect(path) {
        Ok(_) => return Err(LiveError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) => return Err(failed(error)),
    }
    std::fs::remove_file(path).map_err(failed)
}

/// A private directory, removed when dropped. Its name is short, since a socket's path is limited to about 100
/// bytes.
struct PrivateDir(PathBuf);

impl PrivateDir {
    fn beside(path: &Path) -> io::Result<Self> {
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        let pid = std::process::id();
        let mut nth = 0;
        loop {
            let dir = folder.join(format!(".{pid:x}{}", char::from(b'g' + nth)));
            match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Self(dir)),
                // Another thread's, or left by a killed process with the same pid.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && nth < 16 => nth += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.join("s"));
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Removes the sockets of processes that ended without removing them.
fn remove_stale(folder: &Path) {
    // Without procfs we can't tell which processes exist.
    if !Path::new("/proc/self").exists() {
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().take(1 << 10).map(|entry| entry.path()) {
        let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
        let is_socket = path.extension().is_some_and(|ending| ending == "sock");
        if let Some(pid) = pid
            && is_socket
            && !Path::new(&format!("/proc/{pid}")).exists()
            // The process may be in another container that shares the directory.
            && UnixStream::connect(&path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The user of the process at the other end. `None` where the system doesn't tell; the permissions of the
/// socket must suffice there.
#[cfg(target_os = "linux")]
pub(super) fn peer_uid(stream: &UnixStream) -> Option<u32> {
    rustix::net::sockopt::socket_peercred(stream).ok().map(|peer| peer.uid.as_raw())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn peer_uid(_: &UnixStream) -> Option<u32> {
    None
}
