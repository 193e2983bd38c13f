//! Metadata: what a model file says of itself, by key.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::Error;

/// Writes the scalar and array enums, their type ids and names from one table.
macro_rules! value_types {
    ($($variant:ident($type:ty) = $id:literal, $name:literal;)*) => {
        /// One metadata value.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value {
            $(
                #[doc = concat!("`", $name, "`, type ", stringify!($id), ".")]
                $variant($type),
            )*
            /// Many of one type, type 9.
            Array(Array),
        }

        /// Many metadata values of one type. Arrays of arrays don't exist in model files.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Array {
            $(
                #[doc = concat!("Many `", $name, "`.")]
                $variant(Vec<$type>),
            )*
        }

        impl Value {
            /// GGUF's number for the type.
            pub fn type_id(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $id,)*
                    Self::Array(_) => ARRAY,
                }
            }

            /// The type in words, such as `u32` or `array of string`.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Array(array) => array.type_name(),
                }
            }
        }

        impl Array {
            /// GGUF's number for the elements' type.
            pub fn element_type_id(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $id,)*
                }
            }

            /// The type in words, such as `array of string`.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => concat!("array of ", $name),)*
                }
            }

            /// How many elements it has.
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$variant(elements) => elements.len(),)*
                }
            }

            /// Whether it has none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        $(
            impl From<$type> for Value {
                fn from(value: $type) -> Self {
                    Self::$variant(value)
                }
            }

            impl From<Vec<$type>> for Value {
                fn from(elements: Vec<$type>) -> Self {
                    Self::Array(Array::$variant(elements))
                }
            }
        )*
    };
}

/// GGUF's number for an array.
pub(super) const ARRAY: u32 = 9;

value_types! {
    U8(u8) = 0, "u8";
    I8(i8) = 1, "i8";
    U16(u16) = 2, "u16";
    I16(i16) = 3, "i16";
    U32(u32) = 4, "u32";
    I32(i32) = 5, "i32";
    F32(f32) = 6, "f32";
    Bool(bool) = 7, "bool";
    String(String) = 8, "string";
    U64(u64) = 10, "u64";
    I64(i64) = 11, "i64";
    F64(f64) = 12, "f64";
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl Value {
    /// The number, if it is an integer of any width. `i128` holds them all.
    fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }
}

impl Array {
    /// The numbers, if they are integers of any width.
    fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        Some(match self {
            Self::U8(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::I8(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::U16(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::I16(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::U32(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::I32(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::U64(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::I64(v) => Box::new(v.iter().map(|&v| v.into())),
            _ => return None,
        })
    }
}

/// A file's metadata, in the file's order.
///
/// The getters come in pairs: `u32(key)` for what a model must have, `opt_u32(key)` for what it may
/// have. Both refuse a value of another type; integers may have any width, as long as the number
/// fits.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// For error messages.
    file: PathBuf,
    entries: Vec<Entry>,
    /// Where in `entries` a key is.
    by_key: HashMap<String, usize>,
}

/// A key, its value, and where the value is in the file.
#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Value,
    at: u64,
}

impl Metadata {
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), entries: Vec::new(), by_key: HashMap::new() }
    }

    /// Adds an entry. Gives `false`, and adds nothing, if the key is there already.
    pub(super) fn insert(&mut self, key: String, value: Value, at: u64) -> bool {
        if self.by_key.contains_key(&key) {
            return false;
        }
        self.by_key.insert(key.clone(), self.entries.len());
        self.entries.push(Entry { key, value, at });
        true
    }

    /// Whether the key is there.
    pub(super) fn contains(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// Where the key's value is in the file, or 0.
    pub(crate) fn at(&self, key: &str) -> u64 {
        self.entry(key).map_or(0, |entry| entry.at)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.by_key.get(key).map(|&i| &self.entries[i])
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries, in the file's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|entry| (entry.key.as_str(), &entry.value))
    }

    /// The value of a key, of whatever type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// A required `u32`.
    pub fn u32(&self, key: &str) -> Result<u32, Error> {
        self.required(key, self.opt_u32(key)?)
    }

    /// A `u32`, or `None` if the key is absent.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.opt_integer(key, "u32")
    }

    /// A required `i32`.
    pub fn i32(&self, key: &str) -> Result<i32, Error> {
        self.required(key, self.opt_i32(key)?)
    }

    /// An `i32`, or `None` if the key is absent.
    pub fn opt_i32(&self, key: &str) -> Result<Option<i32>, Error> {
        self.opt_integer(key, "i32")
    }

    /// A required `u64`.
    pub fn u64(&self, key: &str) -> Result<u64, Error> {
        self.required(key, self.opt_u64(key)?)
    }

    /// A `u64`, or `None` if the key is absent.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.opt_integer(key, "u64")
    }

    /// A required size.
    pub fn usize(&self, key: &str) -> Result<usize, Error> {
        self.required(key, self.opt_usize(key)?)
    }

    /// A size, or `None` if the key is absent.
    pub fn opt_usize(&self, key: &str) -> Result<Option<usize>, Error> {
        self.opt_integer(key, "usize")
    }

    /// A required `f32`. An `f64` is rounded to one.
    pub fn f32(&self, key: &str) -> Result<f32, Error> {
        self.required(key, self.opt_f32(key)?)
    }

    /// An `f32`, or `None` if the key is absent. An `f64` is rounded to one.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.opt(key, "f32", |value| match *value {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        })
    }

    /// A required `bool`.
    pub fn bool(&self, key: &str) -> Result<bool, Error> {
        self.required(key, self.opt_bool(key)?)
    }

    /// A `bool`, or `None` if the key is absent.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.opt(key, "bool", |value| match *value {
            Value::Bool(v) => Some(v),
            _ => None,
        })
    }

    /// A required string.
    pub fn str(&self, key: &str) -> Result<&str, Error> {
        self.required(key, self.opt_str(key)?)
    }

    /// A string, or `None` if the key is absent.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.opt(key, "string", |value| match value {
            Value::String(v) => Some(v.as_str()),
            _ => None,
        })
    }

    /// A required array of strings.
    pub fn strings(&self, key: &str) -> Result<&[String], Error> {
        self.required(key, self.opt_strings(key)?)
    }

    /// An array of strings, or `None` if the key is absent.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&[String]>, Error> {
        self.opt(key, "array of string", |value| match value {
            Value::Array(Array::String(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// A required array of `f32`.
    pub fn f32s(&self, key: &str) -> Result<&[f32], Error> {
        self.required(key, self.opt_f32s(key)?)
    }

    /// An array of `f32`, or `None` if the key is absent.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<&[f32]>, Error> {
        self.opt(key, "array of f32", |value| match value {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// A required array of `i32`, made from integers of any width.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, Error> {
        self.required(key, self.opt_i32s(key)?)
    }

    /// An array of `i32`, made from integers of any width, or `None` if the key is absent.
    pub fn opt_i32s(&self, key: &str) -> Result<Option<Vec<i32>>, Error> {
        self.opt_integers(key, "array of i32")
    }

    /// A required array of `u32`, made from integers of any width.
    pub fn u32s(&self, key: &str) -> Result<Vec<u32>, Error> {
        self.required(key, self.opt_u32s(key)?)
    }

    /// An array of `u32`, made from integers of any width, or `None` if the key is absent.
    pub fn opt_u32s(&self, key: &str) -> Result<Option<Vec<u32>>, Error> {
        self.opt_integers(key, "array of u32")
    }

    fn required<T>(&self, key: &str, found: Option<T>) -> Result<T, Error> {
        found.ok_or_else(|| Error::MissingKey { file: self.file.clone(), key: key.to_owned() })
    }

    fn opt<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        let wrong_type = || Error::WrongType {
            file: self.file.clone(),
            key: key.to_owned(),
            at: entry.at,
            expected,
            found: entry.value.type_name(),
        };
        read(&entry.value).ok_or_else(wrong_type).map(Some)
    }

    fn opt_integer<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
    ) -> Result<Option<T>, Error> {
        let Some(wide) = self.opt(key, expected, Value::integer)? else { return Ok(None) };
        self.narrow(key, expected, wide).map(Some)
    }

    fn opt_integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
    ) -> Result<Option<Vec<T>>, Error> {
        let wide = self.opt(key, expected, |value| match value {
            Value::Array(array) => array.integers(),
            _ => None,
        })?;
        wide.map(|wide| wide.map(|wide| self.narrow(key, expected, wide)).collect()).transpose()
    }

    fn narrow<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
        wide: i128,
    ) -> Result<T, Error> {
        T::try_from(wide).map_err(|_| Error::OutOfRange {
            file: self.file.clone(),
            key: key.to_owned(),
            at: self.at(key),
            expected,
            found: wide,
        })
    }
}
