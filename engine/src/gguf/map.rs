//! Where a model's bytes live: a file mapped into memory, a copy of it, or a buffer.
//!
//! Here is the engine's only `unsafe` besides that of calls into the CUDA driver and CUPTI.
#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::{Mutex, PoisonError, mpsc};

use memmap2::{Mmap, MmapMut};

use super::Pages;

/// A model file's bytes. Cloning shares them.
#[derive(Clone)]
pub(super) enum Bytes {
    /// A file, mapped: pages arrive when they are first read.
    Mapped(Arc<(Mmap, File)>),
    /// A copy of a file, in large pages as far as the system gave them.
    Copied(Arc<Copied>),
    /// A buffer that the caller filled.
    Owned(Arc<[u8]>),
}

/// A copy of a file.
pub(super) struct Copied {
    map: MmapMut,
    /// Where it begins in the map.
    start: usize,
}

/// A cache line.
#[cfg(target_os = "linux")]
const LINE: usize = 64;

impl Bytes {
    /// Maps a file, read only.
    ///
    /// Nothing in this process writes to the file, but another process may. If one
    /// truncates the file while it is mapped, the next read past the new end is a SIGBUS, which ends
    /// this process. If one overwrites it, the bytes change under a shared reference: formally
    /// undefined, in practice wrong numbers, because the directory was copied out when the file was
    /// opened and all ranges come from that copy. Every engine that maps models accepts this. The
    /// alternative is to copy gigabytes at each start, which `Gguf::load` does.
    pub(super) fn map(file: File) -> io::Result<Self> {
        // SAFETY: the map is read only, and nothing in this process writes to the file; for other
        // processes see above.
        unsafe { Mmap::map(&file) }.map(|map| Self::Mapped(Arc::new((map, file))))
    }

    /// Always `None`: this system isn't known to have large pages.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn copy(
        &self,
        _: usize,
        _: Pages,
        _: &mut dyn FnMut(u64),
    ) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// A copy of a mapped file in memory; `None` if it isn't mapped. `progress` gets the bytes copied so far.
    ///
    /// The file is read, not copied out of the map, so that this process never has both in memory. The byte at `aligned`
    /// begins a cache line. It reads on as many threads as the process may run, since most of the time goes into
    /// allocating pages, which in a virtual machine the host may have to provide first.
    #[cfg(target_os = "linux")]
    pub(super) fn copy(
        &self,
        aligned: usize,
        pages: Pages,
        progress: &mut dyn FnMut(u64),
    ) -> io::Result<Option<Self>> {
        let Self::Mapped(mapped) = self else { return Ok(None) };
        let (len, file) = (mapped.0.len(), &mapped.1);
        // A map is page-aligned.
        let start = aligned.next_multiple_of(LINE) - aligned;
        let mut copy = MmapMut::map_anon(start + len)?;
        // Before any page is allocated. If this is refused, pages are small and nothing else changes.
        let _ = copy.advise(match pages {
            Pages::Large => memmap2::Advice::HugePage,
            Pages::Small => memmap2::Advice::NoHugePage,
        });
        read_in_parts(file, &mut copy[start..], progress)?;
        Ok(Some(Self::Copied(Arc::new(Copied { map: copy, start }))))
    }

    /// For changing them in place; `None` if they are in a file, or shared.
    pub(super) fn get_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Mapped(_) => None,
            Self::Copied(copy) => {
                let Copied { map, start } = Arc::get_mut(copy)?;
                Some(&mut map[*start..])
            }
            Self::Owned(bytes) => Arc::get_mut(bytes),
        }
    }
}

/// Large enough that the calls cost nothing.
#[cfg(target_os = "linux")]
const READ_AT_ONCE: usize = 8 << 20;

/// Fills `bytes` from the start of a file.
#[cfg(target_os = "linux")]
fn read_in_parts(file: &File, bytes: &mut [u8], progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(bytes.len().div_ceil(READ_AT_ONCE));
    let parts = (0..).step_by(READ_AT_ONCE).zip(bytes.chunks_mut(READ_AT_ONCE));
    let parts = &Mutex::new(parts);
    std::thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for i in 0..threads {
            let sender = sender.clone();
            let work = move || {
                loop {
                    // A statement of its own, so that the lock isn't held while reading.
                    let next = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((at, part)) = next else { return };
                    // With an explicit offset, as threads share the file.
                    let read = std::os::unix::fs::FileExt::read_exact_at(file, part, at);
                    // The receiver is gone once one has failed.
                    if sender.send(read.map(|()| part.len() as u64)).is_err() {
                        return;
                    }
                }
            };
            let spawned = std::thread::Builder::new().spawn_scoped(scope, work);
            // Fewer threads are enough, but one is needed.
            if let Err(error) = spawned
                && i == 0
            {
                return Err(error);
            }
        }
        drop(sender);
        let mut done = 0;
        for read in results {
            done += read?;
            progress(done);
        }
        Ok(())
    })
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(mapped) => &mapped.0,
            Self::Copied(copy) => &copy.map[copy.start..],
            Self::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mapped(mapped) => write!(f, "{} bytes, mapped", mapped.0.len()),
            Self::Copied(_) => write!(f, "{} bytes, copied", self.len()),
            Self::Owned(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}
