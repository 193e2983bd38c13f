//! Reads files of the kernel that stay open, and the numbers in them.

use std::fs::File;
use std::io;

/// Reads a file in `/proc` from its begin, whatever was read of it before.
#[cfg(unix)]
pub(super) fn read_begin(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, 0)
}

#[cfg(not(unix))]
pub(super) fn read_begin(_file: &File, _buffer: &mut [u8]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The words of a line as numbers; `None` for those that are not.
pub(super) fn numbers(text: &[u8]) -> impl Iterator<Item = Option<u64>> {
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map(|word| std::str::from_utf8(word).ok()?.parse().ok())
}
