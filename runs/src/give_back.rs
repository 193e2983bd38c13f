//! Room on the disk that a file has and needs no more.

use std::fs::File;
use std::io;
use std::ops::Range;

/// Gives bytes of a file back to the disk: they are zeros then, and the file is as long as before.
///
/// # Errors
///
/// If the file system can't do that.
#[cfg(target_os = "linux")]
pub fn give_back(file: &File, bytes: Range<u64>) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::retry_on_intr;

    let len = bytes.end.saturating_sub(bytes.start);
    if len == 0 {
        return Ok(());
    }
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| fallocate(file, how, bytes.start, len))?)
}

/// As above.
///
/// # Errors
///
/// Always: it isn't done on this system.
#[cfg(not(target_os = "linux"))]
pub fn give_back(_: &File, _: Range<u64>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
