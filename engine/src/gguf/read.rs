//! Parses a [`Directory`] from untrusted bytes.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;

use super::tensor::{TensorInfo, TensorType};
use super::value::{ARRAY, Array, Metadata, Value};
use super::{DEFAULT_ALIGNMENT, Directory, Error};

/// A metadata entry is at least a key's length, a value type and a byte.
const LEAST_ENTRY: u64 = 8 + 4 + 1;

/// A tensor info is at least a name's length, the number of dimensions, a type and an offset.
const LEAST_TENSOR: u64 = 8 + 4 + 4 + 8;

/// ggml keeps a tensor's name in 64 bytes, the last of them 0.
const NAME_CAP: u64 = 64;

/// Reads everything before the data, and checks that the data is complete.
///
/// `name` stands for the file in error messages; nothing is opened. Never panics, and allocates at
/// most a small multiple of `bytes.len()`.
///
/// # Errors
///
/// The first fault, if the bytes aren't a valid model file.
pub fn parse(bytes: &[u8], name: &Path) -> Result<Directory, Error> {
    directory(bytes, bytes.len() as u64, name)
}

/// Reads a file of `file_len` bytes, of which `bytes` are all but the data.
pub(super) fn directory(bytes: &[u8], file_len: u64, name: &Path) -> Result<Directory, Error> {
    let mut reader = Reader { bytes, at: 0, file: name };
    let (version, n_tensors, n_entries) = header(&mut reader)?;
    let metadata = metadata(&mut reader, n_entries)?;
    refuse_split(&metadata, name)?;
    let alignment = alignment(&metadata, name)?;
    let (mut tensors, by_name) = tensors(&mut reader, n_tensors)?;
    // If this overflows, no tensor is within the file either, and the first one will say so.
    let data_start = (reader.at as u64).next_multiple_of(alignment.into());
    let data_start = usize::try_from(data_start).unwrap_or(usize::MAX);
    place(&mut tensors, data_start, alignment, file_len, name)?;
    let tensors = tensors.into_iter().map(|(tensor, _)| tensor).collect();
    Ok(Directory {
        path: name.to_owned(),
        version,
        alignment,
        metadata,
        tensors,
        data_start,
        by_name,
    })
}

/// Gives the version, the number of tensors and the number of metadata entries.
fn header(reader: &mut Reader<'_>) -> Result<(u32, u64, u64), Error> {
    let file = || reader.file.to_owned();
    if reader.bytes.starts_with(b"version https://git-lfs.github.com/spec/") {
        return Err(Error::LfsPointer { file: file() });
    }
    // A short file of other bytes is more likely another kind of file than a truncated model.
    if let Some(&magic) = reader.bytes.first_chunk()
        && &magic != b"GGUF"
    {
        return Err(Error::NotGguf { file: file(), magic });
    }
    reader.take(4, &"the magic \"GGUF\"")?;
    let file = reader.file.to_owned();
    match reader.u32(&"the version")? {
        1 => return Err(Error::Version1 { file }),
        2 | 3 => {}
        version if version & 0xffff == 0 && version != 0 => {
            return Err(Error::BigEndian { file, version });
        }
        version => return Err(Error::UnknownVersion { file, version }),
    }
    let version = u32::from(reader.bytes[4]);
    let at = reader.at as u64;
    let n_tensors = reader.u64(&"the number of tensors")?;
    let n_entries = reader.u64(&"the number of metadata entries")?;
    let left = reader.left();
    for (what, count, at, least) in [
        ("tensors", n_tensors, at, LEAST_TENSOR),
        ("metadata entries", n_entries, at + 8, LEAST_ENTRY),
    ] {
        let least = u128::from(count) * u128::from(least);
        if least > u128::from(left) {
            return Err(Error::Count { file, what, count, at, least, left });
        }
    }
    Ok((version, n_tensors, n_entries))
}

fn metadata(reader: &mut Reader<'_>, n_entries: u64) -> Result<Metadata, Error> {
    let mut metadata = Metadata::new(reader.file);
    for index in 0..n_entries {
        let at = reader.at as u64;
        let key = reader.string(&format_args!("the key of metadata entry {index}"))?;
        if key.is_empty() {
            return Err(Error::EmptyKey { file: reader.file.to_owned(), index, at });
        }
        if metadata.contains(key) {
            return Err(Error::DuplicateKey {
                file: reader.file.to_owned(),
                key: key.to_owned(),
                at,
            });
        }
        let type_at = reader.at as u64;
        let type_id = reader.u32(&KeyField { key, part: "the value type" })?;
        let value_at = reader.at as u64;
        let value = value(reader, key, type_id, type_at)?;
        metadata.insert(key.to_owned(), value, value_at);
    }
    Ok(metadata)
}

fn value(reader: &mut Reader<'_>, key: &str, type_id: u32, type_at: u64) -> Result<Value, Error> {
    let field = KeyField { key, part: "the value" };
    Ok(match type_id {
        0 => Value::U8(u8::from_le_bytes(reader.array(&field)?)),
        1 => Value::I8(i8::from_le_bytes(reader.array(&field)?)),
        2 => Value::U16(u16::from_le_bytes(reader.array(&field)?)),
        3 => Value::I16(i16::from_le_bytes(reader.array(&field)?)),
        4 => Value::U32(u32::from_le_bytes(reader.array(&field)?)),
        5 => Value::I32(i32::from_le_bytes(reader.array(&field)?)),
        6 => Value::F32(f32::from_le_bytes(reader.array(&field)?)),
        7 => Value::Bool(reader.array::<1>(&field)? != [0]),
        8 => Value::String(reader.string(&field)?.to_owned()),
        ARRAY => {
            let type_at = reader.at as u64;
            let element_id = reader.u32(&KeyField { key, part: "the element type" })?;
            Value::Array(array(reader, key, element_id, type_at)?)
        }
        10 => Value::U64(u64::from_le_bytes(reader.array(&field)?)),
        11 => Value::I64(i64::from_le_bytes(reader.array(&field)?)),
        12 => Value::F64(f64::from_le_bytes(reader.array(&field)?)),
        id => {
            return Err(Error::UnknownValueType {
                file: reader.file.to_owned(),
                key: key.to_owned(),
                id,
                at: type_at,
            });
        }
    })
}

fn array(
    reader: &mut Reader<'_>,
    key: &str,
    element_id: u32,
    type_at: u64,
) -> Result<Array, Error> {
    let n = reader.u64(&KeyField { key, part: "the array's length" })?;
    Ok(match element_id {
        0 => Array::U8(reader.elements(n, key, u8::from_le_bytes)?),
        1 => Array::I8(reader.elements(n, key, i8::from_le_bytes)?),
        2 => Array::U16(reader.elements(n, key, u16::from_le_bytes)?),
        3 => Array::I16(reader.elements(n, key, i16::from_le_bytes)?),
        4 => Array::U32(reader.elements(n, key, u32::from_le_bytes)?),
        5 => Array::I32(reader.elements(n, key, i32::from_le_bytes)?),
        6 => Array::F32(reader.elements(n, key, f32::from_le_bytes)?),
        7 => Array::Bool(reader.elements(n, key, |byte: [u8; 1]| byte != [0])?),
        8 => Array::String(reader.strings(n, key)?),
        ARRAY => {
            return Err(Error::NestedArray {
                file: reader.file.to_owned(),
                key: key.to_owned(),
                at: type_at,
            });
        }
        10 => Array::U64(reader.elements(n, key, u64::from_le_bytes)?),
        11 => Array::I64(reader.elements(n, key, i64::from_le_bytes)?),
        12 => Array::F64(reader.elements(n, key, f64::from_le_bytes)?),
        id => {
            return Err(Error::UnknownValueType {
                file: reader.file.to_owned(),
                key: key.to_owned(),
                id,
                at: type_at,
            });
        }
    })
}

fn refuse_split(metadata: &Metadata, file: &Path) -> Result<(), Error> {
    match metadata.opt_u64("split.count")? {
        Some(count) if count > 1 => {
            Err(Error::Split { file: file.to_owned(), count, at: metadata.at("split.count") })
        }
        _ => Ok(()),
    }
}

fn alignment(metadata: &Metadata, file: &Path) -> Result<u32, Error> {
    let alignment = metadata.opt_u32("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() {
        let at = metadata.at("general.alignment");
        return Err(Error::BadAlignment { file: file.to_owned(), alignment, at });
    }
    Ok(alignment)
}

/// The tensor infos, each with the position of its offset in the file, and the index of each name.
type TensorInfos = (Vec<(TensorInfo, u64)>, HashMap<String, usize>);

fn tensors(reader: &mut Reader<'_>, n_tensors: u64) -> Result<TensorInfos, Error> {
    let mut tensors = Vec::new();
    let mut by_name = HashMap::new();
    for index in 0..n_tensors {
        let at = reader.at as u64;
        let (tensor, offset_at) = tensor(reader, index)?;
        if by_name.insert(tensor.name.clone(), tensors.len()).is_some() {
            return Err(Error::DuplicateTensor {
                file: reader.file.to_owned(),
                name: tensor.name,
                at,
            });
        }
        tensors.push((tensor, offset_at));
    }
    Ok((tensors, by_name))
}

fn tensor(reader: &mut Reader<'_>, index: u64) -> Result<(TensorInfo, u64), Error> {
    let file = reader.file.to_owned();
    let at = reader.at as u64;
    let len = reader.u64(&format_args!("the length of the name of tensor {index}"))?;
    if len >= NAME_CAP {
        return Err(Error::LongTensorName { file, index, len, at });
    }
    let name = reader.text(len, &format_args!("the name of tensor {index}"))?.to_owned();

    let at = reader.at as u64;
    let n_dims = reader.u32(&TensorField { name: &name, part: "the number of dimensions" })?;
    if !(1..=4).contains(&n_dims) {
        return Err(Error::DimensionCount { file, name, n_dims, at });
    }
    let dims_at = reader.at as u64;
    let mut wide = Vec::with_capacity(4);
    for index in 0..n_dims as usize {
        let at = reader.at as u64;
        let dim = reader.u64(&TensorField { name: &name, part: "a dimension" })?;
        if dim == 0 {
            return Err(Error::EmptyTensor { file, name, index, at });
        }
        wide.push(dim);
    }

    let at = reader.at as u64;
    let id = reader.u32(&TensorField { name: &name, part: "the type" })?;
    let offset_at = reader.at as u64;
    let offset = reader.u64(&TensorField { name: &name, part: "the offset" })?;
    let Some(kind) = TensorType::from_id(id) else {
        return Err(Error::UnknownTensorType { file, name, id, at });
    };
    let block_len = kind.block_len();
    if !wide[0].is_multiple_of(block_len as u64) {
        let n_cols = wide[0];
        return Err(Error::RaggedRow {
            file,
            name,
            n_cols,
            kind: kind.name(),
            block_len,
            at: dims_at,
        });
    }
    let sized = sizes(&wide, kind)
        .and_then(|(dims, n_bytes)| Some((dims, n_bytes, usize::try_from(offset).ok()?)));
    let Some((dims, n_bytes, offset)) = sized else {
        let dims = wide.iter().map(u64::to_string).collect::<Vec<_>>().join(" × ");
        return Err(Error::TensorTooLarge { file, name, dims, at: dims_at });
    };
    Ok((TensorInfo { name, dims, kind, offset, n_bytes, is_interleaved: false }, offset_at))
}

/// The dimensions and the number of bytes, as far as they can be counted.
fn sizes(wide: &[u64], kind: TensorType) -> Option<(Vec<usize>, usize)> {
    let dims = wide.iter().map(|&dim| usize::try_from(dim).ok()).collect::<Option<Vec<_>>>()?;
    let n_elements = dims.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim))?;
    let n_bytes = kind.n_bytes(n_elements)?;
    Some((dims, n_bytes))
}

/// Checks that the tensors follow one another without holes, as llama.cpp requires, and that the file
/// contains them all.
fn place(
    tensors: &mut [(TensorInfo, u64)],
    data_start: usize,
    alignment: u32,
    file_len: u64,
    file: &Path,
) -> Result<(), Error> {
    let mut expected = 0u64;
    for (tensor, at) in tensors {
        let (name, offset, at) = (tensor.name.clone(), tensor.offset as u64, *at);
        let file = file.to_owned();
        if !offset.is_multiple_of(alignment.into()) {
            return Err(Error::Misaligned { file, name, offset, alignment, at });
        }
        if offset != expected {
            return Err(Error::Misplaced { file, name, offset, expected, at });
        }
        // `offset` is within the file, because the tensors before it are, up to a padding. So only
        // the size can overflow.
        let end = (data_start as u64).saturating_add(offset).saturating_add(tensor.n_bytes as u64);
        if end > file_len {
            return Err(Error::TensorPastEnd { file, name, end, file_len });
        }
        expected = (offset + tensor.n_bytes as u64).next_multiple_of(alignment.into());
    }
    Ok(())
}

/// Names a part of a metadata entry. Formats only when something is wrong.
struct KeyField<'a> {
    key: &'a str,
    part: &'static str,
}

impl Display for KeyField<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of `{}`", self.part, self.key.escape_debug())
    }
}

/// Names a part of a tensor info. Formats only when something is wrong.
struct TensorField<'a> {
    name: &'a str,
    part: &'static str,
}

impl Display for TensorField<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of tensor `{}`", self.part, self.name.escape_debug())
    }
}

/// A place in the file. `at` never passes the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    file: &'a Path,
}

impl<'a> Reader<'a> {
    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `n` bytes, if there are as many.
    fn take(&mut self, n: u64, field: &dyn Display) -> Result<&'a [u8], Error> {
        self.has(n.into(), field)?;
        // `n` is at most the length of a slice here, so it is a `usize`.
        let (at, n) = (self.at, n as usize);
        self.at += n;
        Ok(&self.bytes[at..at + n])
    }

    fn has(&self, takes: u128, field: &dyn Display) -> Result<(), Error> {
        let left = self.left();
        if takes <= u128::from(left) {
            return Ok(());
        }
        Err(Error::Truncated {
            file: self.file.to_owned(),
            field: field.to_string(),
            at: self.at as u64,
            takes,
            left,
        })
    }

    fn array<const N: usize>(&mut self, field: &dyn Display) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, field)?);
        Ok(array)
    }

    fn u32(&mut self, field: &dyn Display) -> Result<u32, Error> {
        self.array(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &dyn Display) -> Result<u64, Error> {
        self.array(field).map(u64::from_le_bytes)
    }

    fn string(&mut self, field: &dyn Display) -> Result<&'a str, Error> {
        let len = self.u64(&format_args!("the length of {field}"))?;
        self.text(len, field)
    }

    fn text(&mut self, len: u64, field: &dyn Display) -> Result<&'a str, Error> {
        let at = self.at as u64;
        std::str::from_utf8(self.take(len, field)?).map_err(|error| Error::NotUtf8 {
            file: self.file.to_owned(),
            field: field.to_string(),
            at: at + error.valid_up_to() as u64,
        })
    }

    /// `n` numbers. They are asked for before any memory is.
    fn elements<T, const N: usize>(
        &mut self,
        n: u64,
        key: &str,
        read: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Error> {
        let field = KeyField { key, part: "the array" };
        self.has(u128::from(n) * N as u128, &field)?;
        let bytes = self.take(n * N as u64, &field)?;
        Ok(bytes.as_chunks().0.iter().map(|&chunk| read(chunk)).collect())
    }

    fn strings(&mut self, n: u64, key: &str) -> Result<Vec<String>, Error> {
        self.has(u128::from(n) * 8, &KeyField { key, part: "the array" })?;
        // A `String` takes more memory than the eight bytes of an empty one in the file: reserve
        // no more than the rest of the file in bytes, and let the vector grow if the elements
        // are really there.
        let worth = self.left() / size_of::<String>() as u64;
        let mut strings = Vec::with_capacity(n.min(worth) as usize);
        for index in 0..n {
            strings.push(
                self.string(&format_args!("element {index} of `{}`", key.escape_debug()))?
                    .to_owned(),
            );
        }
        Ok(strings)
    }
}
