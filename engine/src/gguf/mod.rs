//! The GGUF container: reading and writing model files.
//!
//! ```text
//! "GGUF" · version u32 · n_tensors u64 · n_metadata u64
//! metadata:     key · type u32 · value                                              × n_metadata
//! tensor infos: name · n_dims u32 · dims u64… · type u32 · offset u64               × n_tensors
//! padding to the alignment
//! data:         the tensors' bytes, in order, each padded to the alignment
//! ```
//!
//! All numbers are little endian; a text is its length as `u64` and that many bytes. Versions 2 and
//! 3 look the same.
//!
//! A model file is a stranger's: [`parse`] trusts nothing in it. Sums and products are checked, and
//! nothing is allocated that the rest of the file couldn't fill, so that a header which promises
//! 2⁶⁰ strings is an [`Error`] and not a dead machine.
//!
//! ```no_run
//! use std::path::Path;
//!
//! let model = brickscope_engine::gguf::Gguf::open(Path::new("model.gguf"))?;
//! let n_layers = model.metadata.u32("llama.block_count")?;
//! for tensor in &model.tensors {
//!     println!("{} {:?} {}", tensor.name, tensor.dims, tensor.kind);
//! }
//! # Ok::<(), brickscope_engine::gguf::Error>(())
//! ```

mod error;
mod map;
mod memory;
mod read;
mod tensor;
mod value;
mod write;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use error::Error;
pub use read::parse;
pub use tensor::{TensorInfo, TensorType};
pub use value::{Array, Metadata, Value};
pub use write::{DataWriter, Writer, write_atomically};

use map::Bytes;

/// The alignment of files that don't name one in `general.alignment`.
const DEFAULT_ALIGNMENT: u32 = 32;

/// A model file: its [`Directory`], to which it dereferences, and its bytes. Cloning shares the
/// bytes, not the directory.
#[derive(Clone, Debug)]
pub struct Gguf {
    directory: Directory,
    bytes: Bytes,
    /// How long copying took, and how many bytes are in large pages, if the system says.
    copying: Option<(Duration, Option<u64>)>,
}

impl Gguf {
    /// Maps a file and reads its directory. The weights are read from disk when they are first
    /// touched.
    ///
    /// # Errors
    ///
    /// If the file can't be opened, or isn't the model file it should be.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bytes = open(path).and_then(Bytes::map);
        let bytes = bytes.map_err(|cause| Error::Open { file: path.to_owned(), cause })?;
        Ok(Self { directory: parse(&bytes, path)?, bytes, copying: None })
    }

    /// Copies a file into memory, in pages of 2 MiB where the system gives them, and reads its directory.
    /// `progress` gets the bytes copied and the bytes in all.
    ///
    /// A CPU reads weights faster that way: a processor that walks its page tables every 4 KiB reads
    /// 18 GB/s where it reads 27 from large pages (benches/performance.md). If the system has no such pages, or less free
    /// memory than the file is long, the file is mapped as by [`open`](Self::open); [`placement`](Self::placement)
    /// says which.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or isn't the model file it should be.
    pub fn load(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Self, Error> {
        let mut gguf = Self::open(path)?;
        gguf.copy_into_memory(Pages::Large, progress)?;
        Ok(gguf)
    }

    /// Does for an open file what [`load`](Self::load) does, into pages of this size.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    pub fn copy_into_memory(
        &mut self,
        pages: Pages,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        let len = self.bytes.len() as u64;
        let is_given = pages == Pages::Small || memory::gives_large_pages();
        if !is_given || !memory::has_room_for(len) {
            return Ok(());
        }
        let begun = Instant::now();
        let copy = self.bytes.copy(self.data_start, pages, &mut |done| progress(done, len));
        let copy = copy.map_err(|cause| Error::Read { file: self.path.clone(), cause })?;
        if let Some(copy) = copy {
            let took = begun.elapsed();
            self.copying = Some((took, memory::in_large_pages(&copy)));
            self.bytes = copy;
        }
        Ok(())
    }

    /// Reads a model that is in memory. `name` stands for it in error messages.
    ///
    /// # Errors
    ///
    /// If the bytes aren't a model file.
    pub fn from_bytes(
        bytes: impl Into<Arc<[u8]>>,
        name: impl Into<PathBuf>,
    ) -> Result<Self, Error> {
        let bytes = Bytes::Owned(bytes.into());
        let directory = parse(&bytes, &name.into())?;
        Ok(Self { directory, bytes, copying: None })
    }

    /// A tensor's bytes: those of the file, in another order if its rows were interleaved
    /// ([`TensorInfo::is_interleaved`]). In a mapped file, and in a copy that was made here, they begin at a multiple of
    /// the file's alignment; in a buffer, anywhere.
    ///
    /// # Panics
    ///
    /// If the tensor is from another file and reaches past the end of this one.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        &self.bytes[self.range(tensor)]
    }

    /// All bytes, for changing them in place; `None` if they are in a file, or shared with a clone.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.bytes.get_mut()
    }

    /// Marks the tensors that begin at these bytes of the file as interleaved.
    pub(crate) fn mark_interleaved(&mut self, starts: &[usize]) {
        let data_start = self.data_start;
        for tensor in &mut self.directory.tensors {
            tensor.is_interleaved |= starts.contains(&(data_start + tensor.offset));
        }
    }

    /// Where the bytes are stored.
    #[must_use]
    pub fn placement(&self) -> Placement {
        match (&self.bytes, self.copying) {
            (Bytes::Mapped(_), _) => Placement::Mapped,
            (_, Some((took, in_large_pages))) => Placement::Copied { took, in_large_pages },
            (_, None) => Placement::Given,
        }
    }

    /// How long the file is.
    pub fn file_len(&self) -> usize {
        self.bytes.len()
    }
}

impl Deref for Gguf {
    type Target = Directory;

    fn deref(&self) -> &Directory {
        &self.directory
    }
}

/// The size of the pages of memory into which a model is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// 2 MiB, as far as the system gives them: the CPU finds their addresses faster.
    Large,
    /// The usual size: to see what large ones bring.
    Small,
}

/// Where a model's bytes are while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// In the file, mapped: in pages of 4 KiB, which arrive when they are first read.
    Mapped,
    /// In memory.
    Copied {
        /// How long it took to copy the file there.
        took: Duration,
        /// How many bytes are in large pages; `None` if the system doesn't say.
        in_large_pages: Option<u64>,
    },
    /// In a buffer that the caller filled.
    Given,
}

fn open(path: &Path) -> io::Result<File> {
    // Before it is opened: a pipe that nobody writes would block. A folder opens, but to map one fails with "No such
    // device".
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::other("only a file can be mapped, not a pipe or a device"));
    }
    File::open(path)
}

/// What a model file says before its data begins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Directory {
    /// The file, or what was given as its name.
    pub path: PathBuf,
    /// The version of the format: 2 or 3.
    pub version: u32,
    /// Tensors begin at multiples of this.
    pub alignment: u32,
    /// What the file says of the model.
    pub metadata: Metadata,
    /// All tensors, in the file's order. They follow one another without holes.
    pub tensors: Vec<TensorInfo>,
    /// Where the data section begins, in bytes from the start of the file.
    pub data_start: usize,
    /// The index in `tensors` of each name.
    by_name: HashMap<String, usize>,
}

impl Directory {
    /// The tensor with that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    /// Where a tensor's bytes are in the file.
    pub fn range(&self, tensor: &TensorInfo) -> Range<usize> {
        let start = self.data_start + tensor.offset;
        start..start + tensor.n_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_in_memory_is_the_file() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf");
        let mapped = Gguf::open(&path).expect("the fixture");
        let mut told = Vec::new();
        let copied = Gguf::load(&path, &mut |done, total| told.push((done, total))).expect("it");
        assert_eq!(mapped.placement(), Placement::Mapped);
        assert_eq!(mapped.bytes[..], copied.bytes[..]);
        // So that vectors of interleaved weights don't straddle cache lines, if the tensors before them are whole
        // lines.
        let first = copied.bytes[copied.data_start..].as_ptr().addr();
        assert!(copied.placement() == Placement::Mapped || first.is_multiple_of(64));
        let len = mapped.file_len() as u64;
        match copied.placement() {
            Placement::Copied { took, .. } => {
                assert!(took > Duration::ZERO);
                assert_eq!(told.last(), Some(&(len, len)));
            }
            // Where the system has no large pages, or no room.
            Placement::Mapped => assert!(told.is_empty()),
            Placement::Given => panic!("nobody gave it"),
        }
        // Only files are copied.
        let mut given = Gguf::from_bytes(mapped.bytes.to_vec(), "given").expect("the same");
        given
            .copy_into_memory(Pages::Large, &mut |_, _| panic!("nothing to copy"))
            .expect("nothing to do");
        assert_eq!(given.placement(), Placement::Given);
    }
}
