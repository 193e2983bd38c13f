//! Reads recordings of the program `perf`: files named `perf.data`.
//!
//! The format is described in `tools/perf/Documentation/perf.data-file-format.txt` in the kernel's source, and the
//! records in `perf_event_open(2)`. We don't use the crate `linux-perf-data`, because it trusts the sizes in the file:
//! it allocates as much memory as a damaged file says, and panics in debug builds where the sum of two sizes overflows.

mod bytes;
mod layout;
mod record;
mod replay;
mod sample;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::mmap::Bytes;
use crate::recording::Recording;

/// Why a file of `perf` can't be read.
///
/// The message is complete: it includes the system's error, so `source` isn't set.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct PerfDataError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub fault: PerfDataFault,
}

/// What is wrong with a file of `perf`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfDataFault {
    /// It can't be opened.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It isn't a `perf.data` file.
    #[error("not a perf.data file: it begins with {0:?}, not with PERFILE2")]
    NotPerfData(String),
    /// It was recorded on a machine with the other byte order.
    #[error("recorded on a machine with the other byte order; read it on such a machine")]
    ByteOrder,
    /// It was recorded on another architecture, whose stacks we can't unwind.
    #[error("recorded on {recorded}, but this machine is {here}; read it on a {recorded} machine")]
    Architecture {
        /// Where it was recorded.
        recorded: String,
        /// The architecture of this machine.
        here: &'static str,
    },
    /// The recording didn't end properly.
    #[error(
        "its header says that it holds no data: perf record was killed before it could finish; \
         record again, and end it with Ctrl-C"
    )]
    Unfinished,
    /// It is shorter than it states.
    #[error(
        "cut off: {what} at byte {offset} would end at byte {end}, but the file has {len} bytes"
    )]
    Truncated {
        /// The part that isn't complete.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// Where it should end.
        end: u64,
        /// The size of the file.
        len: u64,
    },
    /// It contains a number that can't be right.
    #[error("damaged: {what} at byte {offset}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where it is.
        offset: u64,
    },
    /// Its records are compressed.
    #[error("compressed (byte {0}), which we can't read; record without -z")]
    Compressed(u64),
    /// It has several events whose samples can't be told apart.
    #[error("its events have different formats, and its samples have no id that tells them apart")]
    MixedEvents,
}

/// Reads a file of `perf record`, without needing the program `perf`. Calls `progress` with the number of records read
/// and their total.
///
/// Samples with a copy of the stack (`--call-graph dwarf`) are unwound here, with the files of this machine; call chains
/// by frame pointers (`-g`) are taken as they are. Each sample has weight 1, not its period in cycles or nanoseconds,
/// since times are computed from numbers of samples. If there are several events, only the first is read.
/// [`Recording::notes`] says what was left out and what may be wrong. A recording without samples isn't an error.
///
/// # Errors
///
/// If it isn't such a file, is damaged, truncated or compressed, or comes from another architecture.
/// architecture.
pub fn read(
    path: &Path,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Recording, PerfDataError> {
    let error = |fault| PerfDataError { path: path.to_owned(), fault };
    let bytes = map(path).map_err(|e| error(e.into()))?;
    parse(&bytes, progress).map_err(error)
}

fn map(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        // `perf record --threads` writes a folder.
        return Err(io::Error::other("a folder; only single perf.data files can be read"));
    }
    if !metadata.is_file() {
        return Err(io::Error::other("not a file"));
    }
    // An empty file can't be mapped.
    if metadata.len() == 0 { Ok(Bytes::default()) } else { Bytes::map(&file) }
}

/// Like [`read`], for bytes in memory.
///
/// # Errors
///
/// As for [`read`].
pub fn parse(
    bytes: &[u8],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Recording, PerfDataFault> {
    let layout = layout::Layout::parse(bytes)?;
    replay::replay(bytes, &layout, progress)
}
