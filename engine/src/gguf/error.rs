//! Errors in model files, worded so that the file's owner can fix them.

use std::io;
use std::path::PathBuf;

/// A model file that can't be read or written.
///
/// Each message names the file, the faulty part and its byte offset. Names from the file are
/// escaped, so that a hostile one can't control your terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the sentence above each variant says what its fields are")]
pub enum Error {
    /// The file isn't there, or may not be read.
    #[error("cannot open {file}: {cause}")]
    Open { file: PathBuf, cause: io::Error },

    /// The file was there, but couldn't be read to the end: it may have become shorter.
    #[error("cannot read {file} into memory: {cause}")]
    Read { file: PathBuf, cause: io::Error },

    /// Git LFS has put a pointer in the place of the file.
    #[error("{file} is a pointer of Git LFS, not the model: `git lfs pull` fetches it")]
    LfsPointer { file: PathBuf },

    /// The file doesn't begin with `GGUF`.
    #[error("{file} is not a GGUF file: it begins with \"{}\" where \"GGUF\" should be (byte 0)", magic.escape_ascii())]
    NotGguf { file: PathBuf, magic: [u8; 4] },

    /// The file was written for a machine that stores numbers the other way round.
    #[error(
        "{file} is a big-endian GGUF file (its version, at byte 4, reads {version:#010x}), and brickscope reads only \
         little-endian ones: convert it with `gguf_convert_endian.py <file> little`"
    )]
    BigEndian { file: PathBuf, version: u32 },

    /// The first version of the format, which was in use for a few weeks.
    #[error(
        "{file} has GGUF version 1 (byte 4), which was replaced in 2023 and is not read: convert the original model again"
    )]
    Version1 { file: PathBuf },

    /// An unknown version.
    #[error("{file} has GGUF version {version} (byte 4), but brickscope knows only 2 and 3")]
    UnknownVersion { file: PathBuf, version: u32 },

    /// The header counts more things than the rest of the file has room for.
    #[error(
        "{file}: the header promises {count} {what} (byte {at}), which take at least {least} bytes, but the file has {left} \
         left: was the download cut short?"
    )]
    Count { file: PathBuf, what: &'static str, count: u64, at: u64, least: u128, left: u64 },

    /// Something reaches past the end of the file.
    #[error(
        "{file}: {field} at byte {at} takes {takes} bytes, but the file has {left} left: was the download cut short?"
    )]
    Truncated { file: PathBuf, field: String, at: u64, takes: u128, left: u64 },

    /// A text isn't UTF-8.
    #[error("{file}: {field} at byte {at} is not valid UTF-8")]
    NotUtf8 { file: PathBuf, field: String, at: u64 },

    /// A key has no name.
    #[error("{file}: metadata entry {index} at byte {at} has an empty key")]
    EmptyKey { file: PathBuf, index: u64, at: u64 },

    /// A key that is there already.
    #[error("{file}: the key `{}` is there twice, the second time at byte {at}", key.escape_debug())]
    DuplicateKey { file: PathBuf, key: String, at: u64 },

    /// A value type that GGUF doesn't have.
    #[error("{file}: `{}` has value type {id} at byte {at}, but GGUF's types are 0 to 12", key.escape_debug())]
    UnknownValueType { file: PathBuf, key: String, id: u32, at: u64 },

    /// An array of arrays.
    #[error("{file}: `{}` is an array of arrays (byte {at}), which no model needs and brickscope does not read", key.escape_debug())]
    NestedArray { file: PathBuf, key: String, at: u64 },

    /// An alignment that isn't a power of two.
    #[error("{file}: `general.alignment` is {alignment} (byte {at}), but must be a power of two")]
    BadAlignment { file: PathBuf, alignment: u32, at: u64 },

    /// A part of a model that comes in several files.
    #[error(
        "{file} is one of the {count} parts of a split model (`split.count`, byte {at}), and brickscope reads only whole ones: \
         join the parts with `llama-gguf-split --merge`"
    )]
    Split { file: PathBuf, count: u64, at: u64 },

    /// A tensor name that ggml has no room for.
    #[error(
        "{file}: the name of tensor {index} has {len} bytes (byte {at}), but at most 63 are allowed"
    )]
    LongTensorName { file: PathBuf, index: u64, len: u64, at: u64 },

    /// A tensor name that is there already.
    #[error("{file}: the tensor `{}` is there twice, the second time at byte {at}", name.escape_debug())]
    DuplicateTensor { file: PathBuf, name: String, at: u64 },

    /// No dimensions, or more than four.
    #[error("{file}: tensor `{}` has {n_dims} dimensions (byte {at}), but must have 1 to 4", name.escape_debug())]
    DimensionCount { file: PathBuf, name: String, n_dims: u32, at: u64 },

    /// A dimension of size 0.
    #[error("{file}: tensor `{}` is empty: its dimension {index} is 0 (byte {at})", name.escape_debug())]
    EmptyTensor { file: PathBuf, name: String, index: usize, at: u64 },

    /// More numbers, or bytes, than can be counted.
    #[error("{file}: tensor `{}` of {dims} has more bytes than can be counted (byte {at})", name.escape_debug())]
    TensorTooLarge { file: PathBuf, name: String, dims: String, at: u64 },

    /// A type id that ggml doesn't have, or not any more.
    #[error("{file}: tensor `{}` has type {id} (byte {at}), which brickscope does not know", name.escape_debug())]
    UnknownTensorType { file: PathBuf, name: String, id: u32, at: u64 },

    /// Rows that aren't whole blocks.
    #[error(
        "{file}: tensor `{}` has rows of {n_cols} (byte {at}), but {kind} stores {block_len} numbers together",
        name.escape_debug()
    )]
    RaggedRow {
        file: PathBuf,
        name: String,
        n_cols: u64,
        kind: &'static str,
        block_len: usize,
        at: u64,
    },

    /// A tensor that begins between two multiples of the alignment.
    #[error(
        "{file}: tensor `{}` begins at {offset} in the data section (byte {at}), which is not a multiple of the alignment, \
         {alignment}",
        name.escape_debug()
    )]
    Misaligned { file: PathBuf, name: String, offset: u64, alignment: u32, at: u64 },

    /// A tensor that overlaps the one before, or leaves a hole.
    #[error(
        "{file}: tensor `{}` begins at {offset} in the data section (byte {at}), but the tensors before it end at {expected}",
        name.escape_debug()
    )]
    Misplaced { file: PathBuf, name: String, offset: u64, expected: u64, at: u64 },

    /// A tensor's bytes reach past the end of the file. Usually a download that was cut short.
    #[error(
        "{file}: tensor `{}` ends at byte {end}, but the file has {file_len}: was the download cut short?",
        name.escape_debug()
    )]
    TensorPastEnd { file: PathBuf, name: String, end: u64, file_len: u64 },

    /// A key that the model needs isn't there.
    #[error("{file} has no `{}`, which the model needs", key.escape_debug())]
    MissingKey { file: PathBuf, key: String },

    /// A value has another type than the one asked for.
    #[error("{file}: `{}` should be {expected}, but is {found} (byte {at})", key.escape_debug())]
    WrongType { file: PathBuf, key: String, expected: &'static str, found: &'static str, at: u64 },

    /// A number is too large or too small for what was asked for.
    #[error("{file}: `{}` should be {expected}, but {found} does not fit (byte {at})", key.escape_debug())]
    OutOfRange { file: PathBuf, key: String, expected: &'static str, found: i128, at: u64 },

    /// The file couldn't be written.
    #[error("cannot write {file}: {cause}")]
    Write { file: PathBuf, cause: io::Error },

    /// More data than the tensor has room for.
    #[error("cannot write {file}: {extra} bytes too many for tensor `{}`, which has {n_bytes}", name.escape_debug())]
    TooMuchData { file: PathBuf, name: String, n_bytes: usize, extra: usize },

    /// Data for which no tensor was declared.
    #[error("cannot write {file}: {extra} bytes after the last tensor")]
    DataAfterLastTensor { file: PathBuf, extra: usize },

    /// The data of a declared tensor didn't come, or not all of it.
    #[error("cannot write {file}: tensor `{}` lacks {missing} of its bytes", name.escape_debug())]
    TooLittleData { file: PathBuf, name: String, missing: usize },
}
