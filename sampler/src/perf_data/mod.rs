//! Recordings of the program `perf`: files named `perf.data`.
//!
//! The format is that of `tools/perf/Documentation/perf.data-file-format.txt` of the kernel's
//! source, and the records are those of `perf_event_open(2)`. It is read here rather than by the
//! crate `linux-perf-data`, whose sizes come from the file unchecked: it takes as much memory as a
//! damaged file says, and where the sum of two of its numbers overflows, debug builds panic.

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
/// The text is whole: an error of the system is in it, and not the source besides.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct PerfDataError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: PerfDataFault,
}

/// What is wrong with a file of `perf`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfDataFault {
    /// It can't be opened.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("not a file of perf: it begins with {0:?}, not with PERFILE2")]
    NotPerfData(String),
    /// It is of a machine whose numbers begin with the other end.
    #[error("recorded on a machine of the other byte order; read it on one like that")]
    ByteOrder,
    /// It is of another architecture, whose stacks we can't unwind.
    #[error("recorded on {recorded}, and this machine is {here}; read it on one like that")]
    Architecture {
        /// Where it was recorded.
        recorded: String,
        /// What this machine is.
        here: &'static str,
    },
    /// The recording wasn't ended in order.
    #[error(
        "its header says that it holds no data: perf record was killed before it could finish; \
         record again, and end it with Ctrl-C"
    )]
    Unfinished,
    /// It is shorter than it says.
    #[error("cut off: {what} at byte {offset} would end at byte {end}, and the file has {len}")]
    Truncated {
        /// What is not all there.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// Where it would end.
        end: u64,
        /// The file's bytes.
        len: u64,
    },
    /// A number in it can't be right.
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
    /// Several events whose samples can't be told apart.
    #[error(
        "its events are recorded in different forms without a number that tells which is which"
    )]
    MixedEvents,
}

/// Reads a file of `perf record`; the program `perf` isn't needed. `progress` is told how many
/// records were read, and how many there are.
///
/// Samples with a copy of the stack (`--call-graph dwarf`) are unwound here, by the files of this
/// machine; call chains by frame pointers (`-g`) are taken as they are. Each sample weighs 1: its
/// period, in cycles or nanoseconds, is not its weight, since times are made of counted samples.
/// Of several events, the first is read. What was left out or may be wrong is said in
/// [`Recording::notes`]. A recording without samples is no error.
///
/// # Errors
///
/// When it isn't such a file, is damaged or cut off, is compressed, or comes from another
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
        // What `perf record --threads` makes.
        return Err(io::Error::other("a folder; only single files of perf can be read"));
    }
    if !metadata.is_file() {
        return Err(io::Error::other("not a file"));
    }
    // An empty file can't be mapped.
    if metadata.len() == 0 { Ok(Bytes::default()) } else { Bytes::map(&file) }
}

/// The same as [`read`], of bytes in memory.
///
/// # Errors
///
/// Those of [`read`].
pub fn parse(
    bytes: &[u8],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Recording, PerfDataFault> {
    let layout = layout::Layout::of(bytes)?;
    replay::replay(bytes, &layout, progress)
}
