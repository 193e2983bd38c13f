//! Stacks as OTLP's profiles, a signal in development:
//! <https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/profiles/v1development/profiles.proto>.

use std::collections::HashMap;
use std::hash::Hash;

use brickscope_profile::Profile;
use prost::Message;

use super::message::{
    self, Any, AnyValue, Attribute, Dictionary, Empty, Function, Line, Location, ProfilesRequest,
    ResourceProfiles, Sample, ScopeProfiles, ValueType,
};
use super::{Origin, Request, scope};
use brickscope_analysis::stacks::{Level, Stack, Stacks, Unit};

/// With its frames, a stack takes some hundred bytes.
const MOST_STACKS: usize = 20_000;

const LABELS: [(Level, &str); 4] = [
    (Level::Thread, "thread"),
    (Level::Phase, "phase"),
    (Level::Layer, "layer"),
    (Level::Brick, "brick"),
];

/// `stacks` of `profile` as requests to [`PROFILES_PATH`](super::PROFILES_PATH): wall time in nanoseconds, or samples as
/// counts. Each request has a part of the stacks as one profile; no stack without weight is sent.
#[must_use]
pub fn profiles(profile: &Profile, stacks: &Stacks, origin: &Origin) -> Vec<Request> {
    let weighty: Vec<Stack<'_>> = stacks.iter().filter(|stack| stack.weight > 0).collect();
    let parts = weighty.chunks(MOST_STACKS).enumerate();
    parts.map(|(nth, part)| request(profile, stacks, part, nth as u64, origin)).collect()
}

fn request(
    profile: &Profile,
    stacks: &Stacks,
    part: &[Stack<'_>],
    nth: u64,
    origin: &Origin,
) -> Request {
    let mut tables = Tables::default();
    let (kind, unit) = match stacks.unit {
        Unit::Nanoseconds => ("wall", "nanoseconds"),
        Unit::Samples => ("samples", "count"),
    };
    let sample_type = Some(ValueType { kind: tables.string(kind), unit: tables.string(unit) });
    let samples = part.iter().map(|&stack| tables.sample(stacks, stack)).collect();
    let (start, end) = origin.period();
    let sent = message::Profile {
        sample_type,
        samples,
        start,
        duration: if start > 0 { end.saturating_sub(start) } else { 0 },
        profile_id: id(profile, nth),
    };
    let scope_profiles = vec![ScopeProfiles { scope: Some(scope(profile)), profiles: vec![sent] }];
    let resource = Some(origin.resource());
    let body = ProfilesRequest {
        resource_profiles: vec![ResourceProfiles { resource, scope_profiles }],
        dictionary: Some(tables.dictionary()),
    };
    Request { body: body.encode_to_vec(), items: 1 }
}

/// The dictionary of a request. No table has an entry twice.
#[derive(Default)]
struct Tables<'s> {
    strings: Table<&'s str>,
    /// The string of each function. Each has one location, with the same index.
    functions: Table<i32>,
    attributes: Table<(i32, &'s str)>,
    stacks: Table<Vec<i32>>,
}

impl<'s> Tables<'s> {
    fn string(&mut self, text: &'s str) -> i32 {
        // The empty entry.
        if text.is_empty() { 0 } else { self.strings.index(text) }
    }

    fn sample(&mut self, stacks: &'s Stacks, stack: Stack<'s>) -> Sample {
        let mut locations = Vec::with_capacity(stack.frames.len());
        for frame in stacks.frames_of(stack).rev() {
            let name = self.string(&frame.name);
            locations.push(self.functions.index(name));
        }
        let mut attributes = Vec::new();
        for (level, key) in LABELS {
            // Of nested bricks, the innermost.
            let frame = stacks.frames_of(stack).rev().find(|frame| frame.level == level);
            if let Some(frame) = frame {
                let key = self.string(key);
                attributes.push(self.attributes.index((key, &frame.name)));
            }
        }
        let stack_index = self.stacks.index(locations);
        // Centuries of nanoseconds.
        let value = i64::try_from(stack.weight).unwrap_or(i64::MAX);
        Sample { stack: stack_index, attributes, values: vec![value] }
    }

    fn dictionary(self) -> Dictionary {
        let functions = self.functions.entries;
        let location = |function| Location { lines: vec![Line { function }] };
        let attribute = |(key, text): (i32, &str)| {
            let value = AnyValue { value: Some(Any::Text(text.to_owned())) };
            Attribute { key, value: Some(value) }
        };
        Dictionary {
            mappings: vec![Empty {}],
            locations: from_empty((1..=functions.len() as i32).map(location)),
            functions: from_empty(functions.into_iter().map(|name| Function { name })),
            links: vec![Empty {}],
            strings: from_empty(self.strings.entries.into_iter().map(str::to_owned)),
            attributes: from_empty(self.attributes.entries.into_iter().map(attribute)),
            stacks: from_empty(
                self.stacks.entries.into_iter().map(|locations| message::Stack { locations }),
            ),
        }
    }
}

/// Each entry once, with indices from 1 on.
struct Table<T> {
    entries: Vec<T>,
    of_entry: HashMap<T, i32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), of_entry: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn index(&mut self, entry: T) -> i32 {
        *self.of_entry.entry(entry).or_insert_with_key(|entry| {
            self.entries.push(entry.clone());
            self.entries.len() as i32
        })
    }
}

fn from_empty<T: Default>(entries: impl Iterator<Item = T>) -> Vec<T> {
    [T::default()].into_iter().chain(entries).collect()
}

/// 16 bytes that no other profile has, and that are the same when a run is sent again: the FNV-1a hash of what was
/// measured.
fn id(profile: &Profile, nth: u64) -> Vec<u8> {
    fnv(of_run(profile), &nth.to_le_bytes()).to_be_bytes().to_vec()
}

/// The hash of what was measured, which goes on with what tells one thing of the run from another.
pub(super) fn of_run(profile: &Profile) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut hash = fnv(OFFSET, profile.created.as_bytes());
    hash = fnv(hash, &profile.process.unwrap_or_default().to_le_bytes());
    for phase in &profile.phases {
        hash = fnv(hash, &phase.wall_ns.to_le_bytes());
        hash = fnv(hash, &phase.unattributed_ns.to_le_bytes());
    }
    for total in &profile.totals {
        hash = fnv(hash, &total.stats.exclusive_ns.to_le_bytes());
    }
    hash
}

/// Goes on with a hash.
pub(super) fn fnv(hash: u128, bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}
