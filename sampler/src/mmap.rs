//! Where the bytes of a file of code live: the file mapped into memory, or a buffer.
//!
//! The only `unsafe` of unwinding and naming is here.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::Mmap;

/// A part of a file's bytes. Cloning shares them.
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
    /// Maps a file, read only.
    ///
    /// Nothing in this process writes to the file; what can't be excluded is another process. If one
    /// truncates the file while it is mapped, the next read past the new end is a SIGBUS, which ends
    /// this process; a program that runs can't be written to (`ETXTBSY`), and compilers and package
    /// managers write libraries anew rather than over the old file. If one overwrites it, the bytes
    /// change under a shared reference: formally undefined, in practice wrong names, since every
    /// range is checked when it is used.
    pub(crate) fn map(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read only, and nothing in this process writes to the file; of other
        // processes see above.
        let map = unsafe { Mmap::map(file) }?;
        let part = 0..map.len();
        Ok(Self { whole: Whole::Mapped(Arc::new(map)), part })
    }

    /// A buffer.
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        let part = 0..bytes.len();
        Self { whole: Whole::Owned(bytes.into()), part }
    }

    /// A part of these bytes; `None` if they don't go that far.
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
