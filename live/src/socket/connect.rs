//! Connecting to the socket of a process of this user.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::listen::peer_uid;
use super::path::{candidates, own_uid};
use super::{LiveError, io_error};

/// Tries the sockets that a process may have, until `connect` finds one.
pub(super) fn to_process<T>(
    pid: u32,
    connect: &mut dyn FnMut(&Path) -> Result<T, LiveError>,
) -> Result<T, LiveError> {
    let uid = owner_of(pid)?;
    let places = candidates(pid, uid.unwrap_or_else(own_uid));
    for path in &places {
        match connect(path) {
            Err(LiveError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(LiveError::Io { cause, .. })
                if cause.kind() == io::ErrorKind::PermissionDenied
                    && uid.is_some_and(|uid| uid != own_uid()) =>
            {
                let uid = uid.unwrap_or_default();
                return Err(LiveError::OtherUser { path: path.clone(), uid });
            }
            other => return other,
        }
    }
    if let Some(uid) = uid.filter(|&uid| uid != own_uid() && own_uid() != 0) {
        return Err(LiveError::OtherUser { path: places[0].clone(), uid });
    }
    // Name the path where a publisher would have made it.
    let is_possible =
        |path: &&PathBuf| path.parent().and_then(Path::parent).is_some_and(Path::is_dir);
    let path = places.iter().find(is_possible).cloned().unwrap_or_default();
    Err(LiveError::NotPublishing { pid, path })
}

/// Connects to the socket at `path`.
pub(super) fn to_socket(path: &Path) -> Result<UnixStream, LiveError> {
    let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => match what_else(path) {
            Some(what) => LiveError::NotASocket { path: path.to_owned(), what },
            None => LiveError::NobodyListens(path.to_owned()),
        },
        _ => io_error(path.display().to_string())(error),
    })?;
    if let Some(uid) = peer_uid(&stream)
        && ![own_uid(), 0].contains(&uid)
        && own_uid() != 0
    {
        return Err(LiveError::OtherUser { path: path.to_owned(), uid });
    }
    Ok(stream)
}

/// What is at a path, if it isn't a socket.
fn what_else(path: &Path) -> Option<&'static str> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    match () {
        () if kind.is_socket() => None,
        () if kind.is_dir() => Some("a folder"),
        () if kind.is_file() => Some("a file"),
        () => Some("a pipe or a device"),
    }
}

/// The user that runs a process; `None` where the system doesn't tell.
fn owner_of(pid: u32) -> Result<Option<u32>, LiveError> {
    if !Path::new("/proc/self").exists() {
        return Ok(None);
    }
    match std::fs::metadata(format!("/proc/{pid}")) {
        Ok(found) => Ok(Some(found.uid())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LiveError::NoProcess(pid)),
        Err(_) => Ok(None),
    }
}
