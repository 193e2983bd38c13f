//! The bytes of a code file: a mapped file or a buffer.
//!
//! This is the only `unsafe` code in unwinding and naming.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::Mmap;

/// A part of a file's bytes. Clones share the memory.
#[derive(Clone)]
pub(crate) struct Bytes {
    whole: Whole,
    part: Range<usize>,
}

#[derive(Clone)]
enum Whole {
    Mapped(Arc<Mmap>),
    Owned(Arc<[u8]>),
}

impl Bytes {
    /// Maps a file read-only.
    ///
    /// Nothing in this process writes to the file, but another process might. If one truncates the file while it is
    /// mapped, the next read past the new end raises SIGBUS, which ends this process. However, a running program can't
    /// be written to (`ETXTBSY`), and compilers and package managers replace libraries instead of overwriting them. If
    /// one overwrites the file, bytes change under a shared reference: formally that is undefined behaviour; in
    /// practice it gives wrong names, since every range is checked when it is used.
    pub(crate) fn map(file: &File) -> io::Result<Self> {
        // SAFETY: the mapping is read-only, and nothing in this process writes to the file; other processes are
        // discussed above.
        let map = unsafe { Mmap::map(file) }?;
        let part = 0..map.len();
        Ok(Self { whole: Whole::Mapped(Arc::new(map)), part })
    }

    /// Wraps a buffer.
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        let part = 0..bytes.len();
        Self { whole: Whole::Owned(bytes.into()), part }
    }

    /// A part of these bytes; `None` if it doesn't lie within them.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Option<Self> {
        let start = self.part.start.checked_add(usize::try_from(offset).ok()?)?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        (end <= self.part.end).then(|| Self { whole: self.whole.clone(), part: start..end })
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::owned(Vec::new())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let whole: &[u8] = match &self.whole {
            Whole::Mapped(map) => map,
            Whole::Owned(bytes) => bytes,
        };
        &whole[self.part.clone()]
    }
}
