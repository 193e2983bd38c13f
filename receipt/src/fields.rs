//! Checks that JSON has each field that it should have, exactly once. serde's derived code takes a missing
//! field for `null`, and keeps the last of equal keys of a map.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// The number of fields in all objects of `json` together.
///
/// # Errors
///
/// If it isn't JSON, or an object has the same field twice.
pub(super) fn count_in(json: &str) -> serde_json::Result<u64> {
    let mut count = 0;
    let mut parser = serde_json::Deserializer::from_str(json);
    Counter(&mut count).deserialize(&mut parser)?;
    Ok(count)
}

/// The number of fields in all objects that `value` is written as.
pub(super) fn count_of(value: &impl Serialize) -> u64 {
    let mut count = 0;
    let mut writer = Serializer::with_formatter(io::sink(), Keys(&mut count));
    // Writing to a sink never fails.
    let _ = value.serialize(&mut writer);
    count
}

/// The first field with which `value` is written and which `json` lacks.
pub(super) fn missing(value: &impl Serialize, json: &str) -> Option<String> {
    let wanted = serde_json::to_value(value).ok()?;
    lacking(&wanted, &serde_json::from_str(json).ok()?)
}

fn lacking(wanted: &Value, had: &Value) -> Option<String> {
    match (wanted, had) {
        (Value::Object(wanted), Value::Object(had)) => wanted.iter().find_map(|(name, value)| {
            let Some(had) = had.get(name) else { return Some(name.clone()) };
            let inside = lacking(value, had)?;
            let dot = if inside.starts_with('[') { "" } else { "." };
            Some(format!("{name}{dot}{inside}"))
        }),
        (Value::Array(wanted), Value::Array(had)) => {
            wanted.iter().zip(had).enumerate().find_map(|(item, (wanted, had))| {
                let inside = lacking(wanted, had)?;
                let dot = if inside.starts_with('[') { "" } else { "." };
                Some(format!("[{item}]{dot}{inside}"))
            })
        }
        _ => None,
    }
}

/// A formatter that counts keys and writes nothing.
struct Keys<'c>(&'c mut u64);

impl Formatter for Keys<'_> {
    fn begin_object_key<W: ?Sized + Write>(&mut self, _: &mut W, _: bool) -> io::Result<()> {
        *self.0 += 1;
        Ok(())
    }
}

/// A reader of anything that counts keys.
struct Counter<'c>(&'c mut u64);

impl<'de> DeserializeSeed<'de> for Counter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Counter(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            if names.contains(&name) {
                let name: String = name.chars().take(64).collect();
                let said = format!("the field `{}` is there twice", name.escape_debug());
                return Err(A::Error::custom(said));
            }
            names.insert(name);
            *self.0 += 1;
            fields.next_value_seed(Counter(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_alike_when_read_and_written() {
        let json = r#"{"a": [1, {"b": null, "c": {"d": 1.5}}], "e": "f", "g": [true, -1]}"#;
        let value: Value = serde_json::from_str(json).expect("JSON");
        assert_eq!((count_in(json).expect("JSON"), count_of(&value)), (6, 6));
        assert_eq!(missing(&value, json), None);
        let less = json.replace("\"d\": 1.5", "");
        assert_eq!(missing(&value, &less).as_deref(), Some("a[1].c.d"));
        assert_eq!(missing(&value, "{}").as_deref(), Some("a"));
    }

    #[test]
    fn a_field_is_there_once() {
        let error = count_in(r#"{"a": {"b": 1, "b": 1}}"#).expect_err("twice");
        assert!(error.to_string().starts_with("the field `b` is there twice at line 1"), "{error}");
    }
}
