//! Taking a mapped file out of this process's memory while it runs.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::path::Path;

/// What becomes of the file's pages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unmap {
    /// They stay in the system's cache, and each has to be mapped anew.
    Keep,
    /// They are read from the disk again.
    Drop,
}

/// Takes all read-only mappings of the file out of memory.
pub(crate) fn unmap(file: &Path, how: Unmap) -> io::Result<()> {
    let file = fs::canonicalize(file)?;
    let advice = match how {
        Unmap::Keep => libc::MADV_DONTNEED,
        Unmap::Drop => libc::MADV_PAGEOUT,
    };
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        if !rest.starts_with("r--") || !rest.ends_with(&*file.to_string_lossy()) {
            continue;
        }
        let ends =
            range.split_once('-').map(|(a, b)| [a, b].map(|at| usize::from_str_radix(at, 16)));
        let Some([Ok(start), Ok(end)]) = ends else { continue };
        let at = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is a read-only mapping of a file that nobody writes, as the system has just said, and nothing
        // unmaps it before the process ends. So whoever reads it later finds the same bytes, from the file.
        if unsafe { libc::madvise(at, end - start, advice) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
