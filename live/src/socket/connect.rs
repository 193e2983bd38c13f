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
    if let Some(found) = to_first(&places, uid, connect) {
        return found;
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

/// Tries places in turn, until `connect` finds anything but a socket on which nobody listens: if there are only such, the first
/// one. What is another user's at a place after it is passed over. `None` if there is nothing at any.
fn to_first<T>(
    places: &[PathBuf],
    uid: Option<u32>,
    connect: &mut dyn FnMut(&Path) -> Result<T, LiveError>,
) -> Option<Result<T, LiveError>> {
    let mut left = None;
    for path in places {
        match connect(path) {
            Err(LiveError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {}
            // Left by a process that had the same number: this one may listen at a later place.
            Err(why @ LiveError::NobodyListens(_)) => left = left.or(Some(why)),
            // Nobody listens where this user may look. Where it may not says nothing of this process, and those that
            // started it may have to be asked.
            Err(why) if left.is_some() && is_of_others(&why) => {}
            Err(LiveError::Io { cause, .. })
                if cause.kind() == io::ErrorKind::PermissionDenied
                    && uid.is_some_and(|uid| uid != own_uid()) =>
            {
                let uid = uid.unwrap_or_default();
                return Some(Err(LiveError::OtherUser { path: path.clone(), uid }));
            }
            other => return Some(other),
        }
    }
    left.map(Err)
}

/// Whether a place is another user's, or one that this user may not look at.
fn is_of_others(why: &LiveError) -> bool {
    match why {
        LiveError::OtherUser { .. } => true,
        LiveError::Io { cause, .. } => cause.kind() == io::ErrorKind::PermissionDenied,
        _ => false,
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_that_was_left_hides_no_live_one_at_a_later_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| folder.path().join(name);
        let [nothing, left, left_too, live] = ["nothing", "left", "left-too", "live"].map(place);
        for path in [&left, &left_too] {
            drop(UnixListener::bind(path).expect("a socket"));
        }
        let _listener = UnixListener::bind(&live).expect("a socket");
        let mut tried = Vec::new();
        let places = [nothing.clone(), left.clone(), live.clone(), left_too.clone()];
        let found = to_first(&places, None, &mut |path| {
            tried.push(path.to_owned());
            to_socket(path)
        });
        assert!(matches!(found, Some(Ok(_))), "{found:?}");
        assert_eq!(tried, places[..3]);
        // If nobody listens on any, the first one is named.
        let found = to_first(&[nothing.clone(), left.clone(), left_too], None, &mut to_socket);
        assert!(
            matches!(&found, Some(Err(LiveError::NobodyListens(path))) if *path == left),
            "{found:?}"
        );
        // Who listens has the last word, also if it refuses.
        let refused = to_first(&[left, live], None, &mut |path| {
            to_socket(path)?;
            Err::<(), _>(LiveError::Refused("there are too many".to_owned()))
        });
        assert!(matches!(refused, Some(Err(LiveError::Refused(_)))), "{refused:?}");
        assert!(to_first(&[nothing], None, &mut to_socket).is_none());
    }

    #[test]
    fn after_a_socket_that_was_left_what_is_of_another_user_says_nothing() {
        let places = ["left", "denied", "others", "live"].map(PathBuf::from);
        let [left, denied, others, live] = &places;
        let connect = |path: &Path| match path {
            path if path == left => Err(LiveError::NobodyListens(path.to_owned())),
            path if path == denied => {
                Err(io_error(path.display().to_string())(io::ErrorKind::PermissionDenied.into()))
            }
            path if path == others => {
                Err(LiveError::OtherUser { path: path.to_owned(), uid: own_uid() + 1 })
            }
            path => Ok(path.to_owned()),
        };
        for uid in [None, Some(own_uid()), Some(own_uid() + 1)] {
            // So those above the process are asked.
            let found = to_first(&places[..3], uid, &mut { connect });
            assert!(
                matches!(&found, Some(Err(LiveError::NobodyListens(path))) if path == left),
                "{uid:?}: {found:?}"
            );
            let found = to_first(&places, uid, &mut { connect });
            assert!(matches!(&found, Some(Ok(path)) if path == live), "{uid:?}: {found:?}");
        }
        // Before it they do.
        let found = to_first(&[others.clone(), left.clone()], None, &mut { connect });
        assert!(matches!(found, Some(Err(LiveError::OtherUser { .. }))), "{found:?}");
        let found = to_first(&[denied.clone(), left.clone()], None, &mut { connect });
        assert!(matches!(found, Some(Err(LiveError::Io { .. }))), "{found:?}");
    }
}
