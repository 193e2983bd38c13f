//! Protobuf messages as they are on the wire, read without a schema.

use std::collections::BTreeMap;

/// A field of a message, by protobuf's wire format
/// (<https://protobuf.dev/programming-guides/encoding/>).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (&first, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first < 0x80 {
            return number;
        }
    }
    unreachable!("the numbers of shifts don't end");
}

/// The fields of a message by number, each in the order in which it is there.
fn fields(mut bytes: &[u8]) -> BTreeMap<u64, Vec<Field<'_>>> {
    let mut fields: BTreeMap<u64, Vec<Field<'_>>> = BTreeMap::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_first_chunk().expect("eight bytes");
                bytes = rest;
                Field::Number(u64::from_le_bytes(*value))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            other => panic!("no field has the wire type {other}"),
        };
        fields.entry(key >> 3).or_default().push(value);
    }
    fields
}

pub(crate) struct Message<'a>(BTreeMap<u64, Vec<Field<'a>>>);

impl<'a> Message<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(fields(bytes))
    }

    pub(crate) fn all(&self, field: u64) -> &[Field<'a>] {
        self.0.get(&field).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn messages(&self, field: u64) -> Vec<Message<'a>> {
        self.all(field).iter().map(|&field| Message::new(text(field))).collect()
    }

    /// 0 if it isn't there, as protobuf has it.
    pub(crate) fn number(&self, field: u64) -> u64 {
        self.all(field).last().map_or(0, |&field| match field {
            Field::Number(number) => number,
            Field::Bytes(_) => panic!("no number"),
        })
    }

    /// Of a list of numbers, packed or not.
    pub(crate) fn numbers(&self, field: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        for &field in self.all(field) {
            match field {
                Field::Number(number) => numbers.push(number),
                Field::Bytes(mut bytes) => {
                    while !bytes.is_empty() {
                        numbers.push(varint(&mut bytes));
                    }
                }
            }
        }
        numbers
    }
}

pub(crate) fn text(field: Field<'_>) -> &[u8] {
    match field {
        Field::Bytes(bytes) => bytes,
        Field::Number(number) => panic!("{number} is no message"),
    }
}
