//! The way through the file, which needs little memory: only single elements of arrays are read as a whole.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Reader, TOOL};

/// A place in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    File,
    Processes,
    Process,
    Strings,
    Records,
    Callbacks,
    Array(Array),
}

/// An array whose elements are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Array {
    Agents,
    Kinds,
    Messages,
    Symbols,
    Dispatches,
    Copies,
    Hip,
    Hsa,
    Rccl,
    Markers,
    Counters,
    Samples,
    Others,
}

impl Level {
    /// What is under a key; `None` if nothing of it matters.
    fn below(self, key: &str) -> Option<Self> {
        Some(match (self, key) {
            (Self::File, TOOL) => Self::Processes,
            (Self::Process, "agents") => Self::Array(Array::Agents),
            (Self::Process, "strings") => Self::Strings,
            (Self::Process, "kernel_symbols") => Self::Array(Array::Symbols),
            (Self::Process, "buffer_records") => Self::Records,
            (Self::Process, "callback_records") => Self::Callbacks,
            (Self::Strings, "buffer_records") => Self::Array(Array::Kinds),
            (Self::Strings, "marker_api") => Self::Array(Array::Messages),
            (Self::Callbacks, "counter_collection") => Self::Array(Array::Counters),
            // The names of 2024 are plurals.
            (Self::Records, "kernel_dispatch" | "kernel_dispatches") => {
                Self::Array(Array::Dispatches)
            }
            (Self::Records, "memory_copy" | "memory_copies") => Self::Array(Array::Copies),
            (Self::Records, "hip_api") => Self::Array(Array::Hip),
            (Self::Records, "hsa_api") => Self::Array(Array::Hsa),
            (Self::Records, "rccl_api") => Self::Array(Array::Rccl),
            (Self::Records, "marker_api") => Self::Array(Array::Markers),
            (Self::Records, key) if key.starts_with("pc_sample") => Self::Array(Array::Samples),
            (Self::Records, _) => Self::Array(Array::Others),
            _ => return None,
        })
    }
}

/// Reads what is at a place in the file.
pub(super) struct Walk<'r>(pub(super) &'r mut Reader, pub(super) Level);

impl<'a> DeserializeSeed<'a> for Walk<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array or an object, as rocprofv3 has it there")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self(reader, level) = self;
        match level {
            Level::Processes => {
                let each = Level::Process;
                while elements.next_element_seed(Walk(&mut *reader, each))?.is_some() {}
            }
            Level::Array(array) => {
                while let Some(element) = elements.next_element::<&'a RawValue>()? {
                    reader.element(array, element);
                    if reader.is_full {
                        return Err(A::Error::custom("too many records"));
                    }
                }
            }
            _ => while elements.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<(), A::Error> {
        let Self(reader, level) = self;
        // A file of one process may have it without an array.
        let level = if level == Level::Processes { Level::Process } else { level };
        if level == Level::Process {
            reader.begin_process();
        }
        let mut records: Option<&'a RawValue> = None;
        while let Some(field) = fields.next_key::<Cow<'a, str>>()? {
            if level == Level::Process && field == "metadata" {
                reader.metadata(fields.next_value::<&'a RawValue>()?);
                continue;
            }
            match level.below(&field) {
                // Names come first, unless another program has sorted the keys.
                Some(Level::Records) if !reader.process.has_names() => {
                    records = Some(fields.next_value::<&'a RawValue>()?);
                }
                Some(below) => fields.next_value_seed(Walk(&mut *reader, below))?,
                None => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        if let Some(records) = records {
            let mut json = serde_json::Deserializer::from_str(records.get());
            let walk = Walk(&mut *reader, Level::Records);
            walk.deserialize(&mut json).map_err(A::Error::custom)?;
        }
        if level == Level::Process {
            reader.end_process();
        }
        Ok(())
    }
}
