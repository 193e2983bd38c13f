//! Making sockets that nobody else can reach, and removing those that nobody listens to.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::{LiveError, io_error};

/// Listens at `path`, where nobody may listen yet. What a process left that has ended is removed.
///
/// Between its making and its permissions a socket is open to whom the process's mask lets in. So it is made in a
/// folder that nobody else can enter, and given its name when it is closed to others.
pub(super) fn bind(path: &Path) -> Result<UnixListener, LiveError> {
    let failed = |error| io_error(format!("listening on {}", path.display()))(error);
    if std::fs::symlink_metadata(path).is_ok() {
        remove_dead(path)?;
    }
    let room = Room::beside(path).map_err(failed)?;
    let made = room.0.join("s");
    let listener = UnixListener::bind(&made).map_err(failed)?;
    std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    // Unlike a renamed one, a link takes the place of nothing.
    match std::fs::hard_link(&made, path) {
        Ok(()) => {
            let _ = std::fs::remove_file(&made);
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let _ = std::fs::remove_file(&made);
            return Err(LiveError::InUse(path.to_owned()));
        }
        // Not every file system has links.
        Err(_) => std::fs::rename(&made, path).map_err(failed)?,
    }
    Ok(listener)
}

/// Removes a socket that nobody listens to.
fn remove_dead(path: &Path) -> Result<(), LiveError> {
    let failed = |error| io_error(format!("listening on {}", path.display()))(error);
    // Never what is no socket: a path may be mistyped.
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    if !found.file_type().is_socket() {
        let why = "there is something else than a socket";
        return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, why)));
    }
    match UnixStream::connect(path) {
        Ok(_) => return Err(LiveError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) => return Err(failed(error)),
    }
    std::fs::remove_file(path).map_err(failed)
}

/// A folder of our own, until this is dropped. Its name is short: paths of sockets have some 100 bytes.
struct Room(PathBuf);

impl Room {
    fn beside(path: &Path) -> io::Result<Self> {
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        let pid = std::process::id();
        let mut nth = 0;
        loop {
            let room = folder.join(format!(".{pid:x}{}", char::from(b'g' + nth)));
            match std::fs::DirBuilder::new().mode(0o700).create(&room) {
                Ok(()) => return Ok(Self(room)),
                // Another thread's, or left by a process of this number that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && nth < 16 => nth += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.join("s"));
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Removes sockets of processes that ended without doing so.
pub(super) fn remove_stale(folder: &Path) {
    // Where there is no such file system, nothing tells which processes there are.
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
            // It may be in another container that shares the folder.
            && UnixStream::connect(&path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The user on the other side; `None` where the system doesn't tell, and the permissions of the socket
/// have to do.
#[cfg(target_os = "linux")]
pub(super) fn peer_uid(stream: &UnixStream) -> Option<u32> {
    rustix::net::sockopt::socket_peercred(stream).ok().map(|peer| peer.uid.as_raw())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn peer_uid(_: &UnixStream) -> Option<u32> {
    None
}
