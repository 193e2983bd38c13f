//! Writing model files, without ever holding one in memory.
//!
//! ```
//! use brickscope_engine::gguf::{Gguf, TensorType, Writer};
//!
//! let mut writer = Writer::new("small.gguf");
//! writer.set("general.architecture", "llama").set("llama.block_count", 0u32);
//! writer.tensor("output_norm.weight", &[2], TensorType::F32);
//!
//! let mut data = writer.begin(Vec::new())?;
//! data.write(&1f32.to_le_bytes())?;
//! data.write(&2f32.to_le_bytes())?;
//! let bytes = data.finish()?;
//!
//! let model = Gguf::from_bytes(bytes, "small.gguf")?;
//! assert_eq!(model.bytes(&model.tensors[0]), [0, 0, 128, 63, 0, 0, 0, 64]);
//! # Ok::<(), brickscope_engine::gguf::Error>(())
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::read::directory;
use super::value::ARRAY;
use super::{Array, DEFAULT_ALIGNMENT, Directory, Error, TensorInfo, TensorType, Value};

/// The version that is written.
const VERSION: u32 = 3;

/// Builds a model file: its metadata and its tensors, all of which must be known before the first
/// byte of data.
///
/// [`begin`](Self::begin) checks the header with the reader, so that no file is written that couldn't
/// be read.
#[derive(Clone, Debug)]
pub struct Writer {
    file: PathBuf,
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<usize>, TensorType)>,
}

impl Writer {
    /// An empty model. `name` stands for the file in error messages; no file is created.
    pub fn new(name: impl Into<PathBuf>) -> Self {
        Self { file: name.into(), metadata: Vec::new(), tensors: Vec::new() }
    }

    /// Adds a metadata entry. `general.alignment` takes effect.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Declares a tensor. Data is written in the order of declaration.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dims: &[usize],
        kind: TensorType,
    ) -> &mut Self {
        self.tensors.push((name.into(), dims.to_vec(), kind));
        self
    }

    /// How long the file will be.
    ///
    /// # Errors
    ///
    /// Those of [`begin`](Self::begin).
    pub fn file_len(&self) -> Result<u64, Error> {
        self.checked_header().map(|(_, directory)| file_len(&directory))
    }

    /// Writes all that comes before the data.
    ///
    /// # Errors
    ///
    /// If `out` can't be written to, or if the reader would refuse the file: for a key or a tensor
    /// that is there twice, rows that aren't whole blocks, a name that is too long. Then nothing
    /// has been written.
    pub fn begin<W: Write>(&self, out: W) -> Result<DataWriter<W>, Error> {
        let (header, directory) = self.checked_header()?;
        let padding = directory.data_start - header.len();
        let total = file_len(&directory);
        let Directory { path: file, alignment, tensors, .. } = directory;
        let mut data =
            DataWriter { out, file, alignment, tensors, current: 0, filled: 0, done: 0, total };
        data.put(&header)?;
        data.pad(padding)?;
        Ok(data)
    }

    fn checked_header(&self) -> Result<(Vec<u8>, Directory), Error> {
        // Where the data will end isn't known before the header has been read, so the reader is
        // given the length of the longest file that a file system could hold.
        let header = self.header();
        let directory = directory(&header, i64::MAX as u64, &self.file)?;
        Ok((header, directory))
    }

    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        header.extend(b"GGUF");
        header.extend(VERSION.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_text(&mut header, key);
            header.extend(value.type_id().to_le_bytes());
            put_value(&mut header, value);
        }
        let alignment = self.alignment();
        let mut offset = 0usize;
        for (name, dims, kind) in &self.tensors {
            put_text(&mut header, name);
            header.extend((dims.len() as u32).to_le_bytes());
            for &dim in dims {
                header.extend((dim as u64).to_le_bytes());
            }
            header.extend(kind.id().to_le_bytes());
            header.extend((offset as u64).to_le_bytes());
            // What can't be sized is refused when the header is read back; any number will do until
            // then.
            let n_elements = dims.iter().fold(1usize, |n, &dim| n.saturating_mul(dim));
            let end = offset.saturating_add(kind.n_bytes(n_elements).unwrap_or(0));
            offset = end.checked_next_multiple_of(alignment).unwrap_or(end);
        }
        header
    }

    /// The alignment that the metadata asks for. One that isn't a power of two is refused when the
    /// header is read back.
    fn alignment(&self) -> usize {
        let asked = self.metadata.iter().find(|(key, _)| key == "general.alignment");
        match asked {
            Some(&(_, Value::U32(alignment))) => alignment.max(1) as usize,
            _ => DEFAULT_ALIGNMENT as usize,
        }
    }
}

fn file_len(directory: &Directory) -> u64 {
    let end =
        directory.tensors.last().map_or(directory.data_start, |tensor| directory.range(tensor).end);
    (end as u64).next_multiple_of(directory.alignment.into())
}

/// The second half of writing a file: the tensors' bytes, in order, in pieces of any size.
#[derive(Debug)]
#[must_use = "a file is complete only after `finish`"]
pub struct DataWriter<W> {
    out: W,
    file: PathBuf,
    alignment: u32,
    tensors: Vec<TensorInfo>,
    /// The tensor whose bytes come next: an index into `tensors`.
    current: usize,
    /// How many of its bytes have come.
    filled: usize,
    /// How many bytes of the file have been written.
    done: u64,
    total: u64,
}

impl<W: Write> DataWriter<W> {
    /// The tensor whose bytes come next, or `None` after the last.
    pub fn awaits(&self) -> Option<&TensorInfo> {
        self.tensors.get(self.current)
    }

    /// How many bytes of the file have been written, and how many it will have.
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// Writes the next bytes of the current tensor: all of them, or a part. A piece ends where the
    /// tensor ends, or before.
    ///
    /// # Errors
    ///
    /// If there are more bytes than the tensor has left, or if they can't be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let Some(tensor) = self.tensors.get(self.current) else {
            return Err(Error::DataAfterLastTensor { file: self.file.clone(), extra: bytes.len() });
        };
        let n_bytes = tensor.n_bytes;
        if let Some(extra) =
            bytes.len().checked_sub(n_bytes - self.filled).filter(|&extra| extra > 0)
        {
            return Err(Error::TooMuchData {
                file: self.file.clone(),
                name: tensor.name.clone(),
                n_bytes,
                extra,
            });
        }
        self.put(bytes)?;
        self.filled += bytes.len();
        if self.filled == n_bytes {
            self.pad(n_bytes.next_multiple_of(self.alignment as usize) - n_bytes)?;
            self.current += 1;
            self.filled = 0;
        }
        Ok(())
    }

    /// Checks that all tensors have come, and gives the output back.
    ///
    /// # Errors
    ///
    /// If a tensor's bytes are missing, or the last ones can't be written.
    pub fn finish(mut self) -> Result<W, Error> {
        if let Some(tensor) = self.tensors.get(self.current) {
            let missing = tensor.n_bytes - self.filled;
            return Err(Error::TooLittleData {
                file: self.file,
                name: tensor.name.clone(),
                missing,
            });
        }
        match self.out.flush() {
            Ok(()) => Ok(self.out),
            Err(cause) => Err(Error::Write { file: self.file, cause }),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.done += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|cause| Error::Write { file: self.file.clone(), cause })
    }

    fn pad(&mut self, n: usize) -> Result<(), Error> {
        self.done += n as u64;
        let mut zeros = io::Read::take(io::repeat(0), n as u64);
        io::copy(&mut zeros, &mut self.out)
            .map(drop)
            .map_err(|cause| Error::Write { file: self.file.clone(), cause })
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push((*v).into()),
        Value::String(v) => put_text(out, v),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::Array(array) => put_array(out, array),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    debug_assert_ne!(array.element_type_id(), ARRAY);
    out.extend(array.element_type_id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend(v),
        Array::I8(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::U16(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::I16(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::U32(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::I32(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::F32(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|&v| u8::from(v))),
        Array::String(v) => v.iter().for_each(|v| put_text(out, v)),
        Array::U64(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::I64(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
        Array::F64(v) => v.iter().for_each(|v| out.extend(v.to_le_bytes())),
    }
}

/// Writes a model file so that it is either there as a whole or not at all, as
/// [`brickscope::write_atomically`] does.
///
/// # Errors
///
/// Those of `write`, and those of the file system.
pub fn write_atomically<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, Error>,
) -> Result<T, Error> {
    let failed = |cause| Error::Write { file: path.to_owned(), cause };
    brickscope::write_atomically(path, failed, write)
}
