//! pprof's `profile.proto`, compressed, as `go tool pprof`, Pyroscope and speedscope read it.
//!
//! The messages are those parts of <https://github.com/google/pprof/blob/main/proto/profile.proto> that
//! are needed: each frame is a function with a location of its own. Samples have their phase, layer and
//! brick as labels, for `-tagfocus` and `-tagroot`.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::refused;
use brickscope_analysis::stacks::{Level, Stacks, Unit};

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
}

/// Each text once; the first one is empty, as the format requires.
struct Strings<'a> {
    table: Vec<String>,
    of_text: HashMap<&'a str, i64>,
}

impl<'a> Strings<'a> {
    fn number(&mut self, text: &'a str) -> i64 {
        *self.of_text.entry(text).or_insert_with(|| {
            self.table.push(text.to_owned());
            self.table.len() as i64 - 1
        })
    }
}

/// Writes stacks, with the sample type `time` in `nanoseconds`, or `samples` in `count`.
///
/// # Errors
///
/// If writing to `out` fails, or if the weights add up to 2^63 or more, which the format can't represent.
pub fn write(stacks: &Stacks, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if i64::try_from(stacks.total()).is_err() {
        return Err(refused("the weights add up to more than pprof's signed 64 bits hold"));
    }
    let mut strings = Strings { table: Vec::new(), of_text: HashMap::new() };
    strings.number("");
    let (kind, unit) = match stacks.unit {
        Unit::Nanoseconds => ("time", "nanoseconds"),
        Unit::Samples => ("samples", "count"),
    };
    let sample_type = vec![ValueType { r#type: strings.number(kind), unit: strings.number(unit) }];
    let numbered = (1..).zip(&stacks.frames);
    let function = numbered
        .clone()
        .map(|(id, frame)| {
            let name = strings.number(&frame.name);
            Function { id, name, system_name: name }
        })
        .collect();
    // Ids of locations start at 1, since 0 means none.
    let location =
        numbered.map(|(id, _)| Location { id, line: vec![Line { function_id: id }] }).collect();
    let labels = [
        (Level::Thread, "thread"),
        (Level::Phase, "phase"),
        (Level::Layer, "layer"),
        (Level::Brick, "brick"),
    ];
    // A message is the concatenation of its parts, so each sample is written by itself: together they would take more
    // memory than the stacks.
    let mut packed = GzEncoder::new(out, Compression::default());
    let mut bytes = Vec::new();
    let mut part = |profile: &Profile| {
        bytes.clear();
        profile.encode(&mut bytes).expect("memory is written to");
        packed.write_all(&bytes)
    };
    part(&Profile { sample_type, ..Profile::default() })?;
    for stack in stacks.iter() {
        let label = labels
            .iter()
            .filter_map(|&(level, key)| {
                // Of nested bricks, the innermost.
                let frame = stacks.frames_of(stack).rev().find(|f| f.level == level)?;
                Some(Label { key: strings.number(key), str: strings.number(&frame.name) })
            })
            .collect();
        let sample = vec![Sample {
            location_id: stack.frames.iter().rev().map(|&f| u64::from(f) + 1).collect(),
            value: vec![stack.weight as i64],
            label,
        }];
        part(&Profile { sample, ..Profile::default() })?;
    }
    let string_table = strings.table;
    part(&Profile { location, function, string_table, ..Profile::default() })?;
    packed.finish()?.flush()
}
