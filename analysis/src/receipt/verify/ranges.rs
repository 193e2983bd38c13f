//! What each number and each text of a receipt can be, whatever the others are.

use std::time::{Duration, UNIX_EPOCH};

use brickscope_profile::save::{parse_rfc3339, time_rfc3339, unix_seconds};
use serde_json::Value;

use super::{Code, Findings, said};
use crate::receipt::hash::{sha256_hex, unhex};
use crate::receipt::v1::Receipt;

/// The largest whole number that every reader of JSON reads alike.
const WHOLE: f64 = 9_007_199_254_740_992.0;
/// More tokens than any context has.
const TOKENS: f64 = 1e9;
/// As many repetitions and processes as `benchmark` takes.
const TIMES: f64 = 10_000.0;
/// A rate or a duration that isn't negative.
const POSITIVE: f64 = 1e18;

/// The least and the most of each number, by its place. `[]` is each item of a list, `*` each entry of a map.
/// `docs/receipt-v1.schema.json` has the same numbers.
pub(super) const RANGES: &[(&str, f64, f64)] = &[
    ("tokens_requested", 0.0, TOKENS),
    ("tokens_generated", 0.0, TOKENS),
    ("tokens_per_second", 0.0, POSITIVE),
    ("model.bytes", 1.0, 1e15),
    ("model.parameters", 1.0, 1e15),
    ("model.layers", 1.0, 10_000.0),
    ("run.threads", 1.0, 65_536.0),
    ("run.batch", 1.0, TOKENS),
    ("run.seed", 0.0, WHOLE),
    ("run.repetitions", 1.0, TIMES),
    ("run.process", 1.0, TIMES),
    ("run.processes", 1.0, TIMES),
    ("machine.logical_cpus", 1.0, 65_536.0),
    ("machine.threads_per_core", 1.0, 64.0),
    ("machine.numa_nodes", 1.0, 65_536.0),
    // The engine alone takes some MB.
    ("machine.memory_bytes", 16_777_216.0, 1e15),
    ("machine.cgroup_cpus", 0.001, 65_536.0),
    ("machine.cgroup_memory_bytes", 4_194_304.0, WHOLE),
    ("machine.swap_used_bytes", 0.0, 1e15),
    ("device.memory_bytes", 1_048_576.0, 1e15),
    // wgpu's devices count steps of some ns to some µs.
    ("device.resolution_ns", 0.001, 2e7),
    ("ceilings.read_bytes_per_second", 1.0, POSITIVE),
    ("ceilings.flops_per_second", 1.0, POSITIVE),
    ("ceilings.caches[].bytes", 1024.0, 1e12),
    ("ceilings.caches[].read_bytes_per_second", 1.0, POSITIVE),
    ("ceilings.memory_spread[]", 1.0, POSITIVE),
    // Ticks of 50 Hz are the coarsest that any system counts time in.
    ("clock.resolution_ns", 0.001, 2e7),
    // A trapped reading takes some µs.
    ("clock.reading_ns", 0.1, 1e5),
    // In a run of some ms, one reading that was interrupted looks like a tenth.
    ("clock.drift_ppm", -1e5, 1e5),
    ("tests[].n_prompt", 0.0, TOKENS),
    ("tests[].n_gen", 0.0, TOKENS),
    ("tests[].n_depth", 0.0, TOKENS),
    ("tests[].output_tokens", 1.0, TOKENS),
    ("tests[].kernels[].launches", 1.0, WHOLE),
    ("tests[].kernels[].flops", 0.0, WHOLE),
    ("tests[].kernels[].bytes", 0.0, WHOLE),
    ("tests[].flops", 0.0, WHOLE),
    ("tests[].bytes", 0.0, WHOLE),
    ("tests[].warm_up.window", 1.0, TIMES),
    // Repetitions that are off by more don't agree.
    ("tests[].warm_up.within", 0.0, 0.25),
    ("tests[].samples[].index", 0.0, 1e6),
    ("tests[].samples[].start_ns", 0.0, WHOLE),
    ("tests[].samples[].end_ns", 0.0, WHOLE),
    ("tests[].samples[].wall_ns", 0.0, WHOLE),
    ("tests[].samples[].pass_ns[]", 0.0, WHOLE),
    ("tests[].samples[].tokens", 0.0, TOKENS),
    ("tests[].samples[].token_ns[]", 0.0, WHOLE),
    ("tests[].samples[].first_token_ns", 0.0, WHOLE),
    ("tests[].samples[].brick_ns[]", 0.0, WHOLE),
    ("tests[].samples[].unattributed_ns", 0.0, WHOLE),
    ("tests[].samples[].run_queue_wait_ns", 0.0, WHOLE),
    ("tests[].samples[].cpu_khz", 10_000.0, 20_000_000.0),
    ("tests[].samples[].device.passes", 0.0, TOKENS),
    ("tests[].samples[].device.span_ns", 0.0, WHOLE),
    ("tests[].samples[].device.passes_in_bricks", 0.0, TOKENS),
    ("tests[].samples[].device.brick_ns[]", 0.0, WHOLE),
    ("tests[].samples[].device.gaps_ns", 0.0, WHOLE),
    ("tests[].aggregates.samples", 0.0, TIMES),
    ("tests[].aggregates.avg_ns", 0.0, POSITIVE),
    ("tests[].aggregates.stddev_ns", 0.0, POSITIVE),
    ("tests[].aggregates.median_ns", 0.0, POSITIVE),
    ("tests[].aggregates.avg_ts", 0.0, POSITIVE),
    ("tests[].aggregates.stddev_ts", 0.0, POSITIVE),
    ("tests[].aggregates.median_ts", 0.0, POSITIVE),
    // Of two rates that are far apart the interval has any width.
    ("tests[].aggregates.low_ts", -POSITIVE, POSITIVE),
    ("tests[].aggregates.high_ts", 0.0, POSITIVE),
    ("tests[].aggregates.per_token.count", 0.0, WHOLE),
    ("tests[].aggregates.per_token.mean_ns", 0.0, POSITIVE),
    ("tests[].aggregates.per_token.stddev_ns", 0.0, POSITIVE),
    ("tests[].aggregates.per_token.min_ns", 0.0, WHOLE),
    ("tests[].aggregates.per_token.max_ns", 0.0, WHOLE),
    ("tests[].aggregates.per_token.p50_ns", 0.0, WHOLE),
    ("tests[].aggregates.per_token.p90_ns", 0.0, WHOLE),
    ("tests[].aggregates.per_token.p95_ns", 0.0, WHOLE),
    ("tests[].aggregates.per_token.p99_ns", 0.0, WHOLE),
    ("tests[].aggregates.first_token.count", 0.0, WHOLE),
    ("tests[].aggregates.first_token.mean_ns", 0.0, POSITIVE),
    ("tests[].aggregates.first_token.stddev_ns", 0.0, POSITIVE),
    ("tests[].aggregates.first_token.min_ns", 0.0, WHOLE),
    ("tests[].aggregates.first_token.max_ns", 0.0, WHOLE),
    ("tests[].aggregates.first_token.p50_ns", 0.0, WHOLE),
    ("tests[].aggregates.first_token.p90_ns", 0.0, WHOLE),
    ("tests[].aggregates.first_token.p95_ns", 0.0, WHOLE),
    ("tests[].aggregates.first_token.p99_ns", 0.0, WHOLE),
    ("tests[].aggregates.brick_total_ns[]", 0.0, WHOLE),
    ("tests[].aggregates.unattributed_total_ns", 0.0, WHOLE),
    ("tests[].aggregates.disturbed", 0.0, TIMES),
    ("tests[].not_finite.passes", 1.0, WHOLE),
    ("tests[].not_finite.of", 1.0, WHOLE),
    ("overhead.span_ns", 0.1, 1e6),
    ("overhead.spans", 0.0, WHOLE),
    ("dropped.*", 0.0, WHOLE),
    ("load.before", 0.0, 1e6),
    ("load.others_share", 0.0, 1.0),
    ("load.steal_share", 0.0, 1.0),
];

/// What a text can be.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// 64 hexadecimal digits of something.
    Sha256,
    /// 16 hexadecimal digits of something.
    HalfHash,
    /// A moment between the first brickscope and now.
    Time,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A name: not empty, and not too long.
    Name,
}

const FORMS: &[(&str, Form)] = &[
    ("timestamp", Form::Time),
    ("ceilings.measured", Form::Time),
    ("model.sha256", Form::Sha256),
    ("model.path", Form::Name),
    ("model.architecture", Form::Name),
    ("model.quantization", Form::Name),
    ("binary.version", Form::Name),
    ("binary.sha256", Form::Sha256),
    ("run.kernels", Form::OneOf(&["scalar", "avx2", "avx512", "neon", "wgpu", "cuda"])),
    ("run.set", Form::Name),
    ("machine.os", Form::Name),
    ("machine.arch", Form::Name),
    ("machine.huge_pages", Form::OneOf(&["always", "madvise", "never"])),
    ("machine.boot", Form::HalfHash),
    ("device.name", Form::Name),
    ("device.api", Form::Name),
    ("device.driver", Form::Name),
    ("ceilings.basis", Form::Name),
    ("ceilings.caches[].level", Form::OneOf(&["L1", "L2", "L3", "L4"])),
    ("clock.source", Form::Name),
    ("tests[].input_sha256", Form::Sha256),
    ("tests[].output_sha256", Form::Sha256),
    ("tests[].bricks[].name", Form::Name),
    ("tests[].bricks[].category", Form::OneOf(&["Norm", "Attention", "FFN", "Other"])),
    ("tests[].device_bricks[].name", Form::Name),
    ("tests[].device_bricks[].category", Form::OneOf(&["Norm", "Attention", "FFN", "Other"])),
    ("tests[].not_finite.origin", Form::Name),
    ("overhead.basis", Form::Name),
];

/// The most characters of a text. Paths may have 4096 bytes.
const MOST_CHARS: usize = 4096;
/// The most words of a command line, and entries of the environment and of what was dropped.
const MOST_WORDS: usize = 256;
/// The most characters of a name.
const MOST_NAME: usize = 1024;

/// No receipt is older than this format.
const FIRST: &str = "2026-01-01T00:00:00Z";
/// How far the clocks of two machines may be apart, in seconds.
const APART: u64 = 86_400;

/// Checks each number and each text by itself. `now`: seconds since 1970; `None` where that isn't known.
pub(super) fn check(receipt: &Receipt, now: Option<u64>, found: &mut Findings) {
    let Ok(value) = serde_json::to_value(receipt) else { return };
    walk(&value, &mut Place::default(), now, found);
    for (what, count) in [
        ("run.command", receipt.run.command.len()),
        ("environment", receipt.environment.len()),
        ("dropped", receipt.dropped.len()),
    ] {
        if count > MOST_WORDS {
            let sentence =
                format!("{what} has {count} entries, but at most {MOST_WORDS} are allowed");
            found.refuse(Code::Field, sentence);
        }
    }
}

/// Where a value is: with the numbers of items for people, and without for the tables.
#[derive(Default)]
struct Place {
    named: String,
    pattern: String,
}

impl Place {
    fn enter(&mut self, named: &str, pattern: &str, walk: impl FnOnce(&mut Self)) {
        let lengths = (self.named.len(), self.pattern.len());
        self.named += named;
        self.pattern += pattern;
        walk(self);
        self.named.truncate(lengths.0);
        self.pattern.truncate(lengths.1);
    }
}

fn walk(value: &Value, place: &mut Place, now: Option<u64>, found: &mut Findings) {
    match value {
        Value::Object(fields) => {
            let is_map = matches!(place.pattern.as_str(), "environment" | "dropped");
            for (name, field) in fields {
                // The seal has checks of its own.
                if place.pattern.is_empty() && name == "seal" {
                    continue;
                }
                if is_map && name.chars().count() > MOST_NAME {
                    let sentence =
                        format!("{} has a name of over {MOST_NAME} characters", place.named);
                    found.refuse(Code::Field, sentence);
                }
                let dot = if place.pattern.is_empty() { "" } else { "." };
                let pattern = if is_map { "*" } else { name.as_str() };
                let named = brickscope_profile::text::printable_in(name, 72);
                place.enter(&format!("{dot}{named}"), &format!("{dot}{pattern}"), |place| {
                    walk(field, place, now, found);
                });
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                place.enter(&format!("[{i}]"), "[]", |place| walk(item, place, now, found));
            }
        }
        Value::Number(number) => {
            let range = RANGES.iter().find(|(pattern, ..)| *pattern == place.pattern);
            if let (Some(&(_, least, most)), Some(n)) = (range, number.as_f64())
                && !(least..=most).contains(&n)
            {
                let (name, least, most) = (&place.named, short(least), short(most));
                found.refuse_about(
                    Code::Field,
                    &place.pattern,
                    format!("{name} is {}, but it can only be from {least} to {most}", short(n)),
                );
            }
        }
        Value::String(text) => self::text(text, place, now, found),
        Value::Null | Value::Bool(_) => {}
    }
}

/// A number with as few digits as it needs.
fn short(n: f64) -> String {
    if n != 0.0 && !(1e-3..1e16).contains(&n.abs()) { format!("{n:e}") } else { n.to_string() }
}

fn text(text: &str, place: &Place, now: Option<u64>, found: &mut Findings) {
    let name = &place.named;
    let mut refuse = |sentence: String| found.refuse_about(Code::Field, &place.pattern, sentence);
    let form = FORMS.iter().find(|(pattern, _)| *pattern == place.pattern).map(|(_, form)| form);
    let chars = text.chars().count();
    if chars > MOST_CHARS {
        return refuse(format!(
            "{name} has {chars} characters, but at most {MOST_CHARS} are allowed"
        ));
    }
    match form {
        None => {}
        Some(Form::Name) if text.trim().is_empty() => refuse(format!("{name} is empty")),
        Some(Form::Name) => {}
        Some(Form::OneOf(words)) if words.contains(&text) => {}
        Some(Form::OneOf(words)) => refuse(format!(
            "{name} is {}, but it can only be one of {}",
            said(text),
            words.join(", ")
        )),
        Some(Form::Sha256) => {
            if unhex::<32>(text).is_none() {
                refuse(format!(
                    "{name} is {}, which isn't 64 lower-case hexadecimal digits",
                    said(text)
                ));
            } else if is_placeholder(text) || text == sha256_hex(b"") {
                refuse(format!(
                    "{name} is {}, which is the hash of nothing that was hashed",
                    said(text)
                ));
            }
        }
        Some(Form::HalfHash) => {
            if unhex::<8>(text).is_none() {
                refuse(format!(
                    "{name} is {}, which isn't 16 lower-case hexadecimal digits",
                    said(text)
                ));
            } else if is_placeholder(text) {
                refuse(format!(
                    "{name} is {}, which is the hash of nothing that was hashed",
                    said(text)
                ));
            }
        }
        Some(Form::Time) => time(text, place, now, found),
    }
}

/// Whether all digits of a hash are the same.
fn is_placeholder(hash: &str) -> bool {
    hash.bytes().all(|digit| Some(&digit) == hash.as_bytes().first())
}

fn time(text: &str, place: &Place, now: Option<u64>, found: &mut Findings) {
    let name = &place.named;
    let mut refuse = |sentence: String| found.refuse_about(Code::Field, &place.pattern, sentence);
    let seconds = parse_rfc3339(text).and_then(|(whole, _)| unix_seconds(&format!("{whole}Z")));
    let Some(seconds) = seconds else {
        return refuse(format!(
            "{name} is {}, which is not a time in UTC as in RFC 3339",
            said(text)
        ));
    };
    // Not each month has 31 days.
    let date = |text: &str| text.get(..10).map(str::to_owned);
    let written = time_rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
    if date(&written) != date(text) && !text.contains(":60") {
        return refuse(format!("{name} is {}, a day that doesn't exist", said(text)));
    }
    let is_early = unix_seconds(FIRST).is_some_and(|first| seconds < first);
    if is_early {
        let sentence = format!("{name} is {}, before there were receipts", said(text));
        refuse(sentence);
    }
    if now.is_some_and(|now| seconds > now.saturating_add(APART)) {
        refuse(format!("{name} is {}, which is yet to come", said(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_in_the_tables_once() {
        let mut places: Vec<&str> = RANGES.iter().map(|(place, ..)| *place).collect();
        places.extend(FORMS.iter().map(|(place, _)| *place));
        let all = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), all);
        assert!(RANGES.iter().all(|(_, least, most)| least < most));
    }

    /// Each place of the schema with a number or a text, with what the schema says of it.
    fn leaves<'s>(
        root: &'s Value,
        schema: &'s Value,
        place: &str,
        out: &mut Vec<(String, &'s Value)>,
    ) {
        if let Some(target) = schema["$ref"].as_str() {
            let target = root.pointer(target.trim_start_matches('#')).expect("it leads somewhere");
            return leaves(root, target, place, out);
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            return choices.iter().for_each(|choice| leaves(root, choice, place, out));
        }
        let dot = if place.is_empty() { "" } else { "." };
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            leaves(root, field, &format!("{place}{dot}{name}"), out);
        }
        if schema["additionalProperties"].is_object() {
            leaves(root, &schema["additionalProperties"], &format!("{place}{dot}*"), out);
        }
        if schema["items"].is_object() {
            leaves(root, &schema["items"], &format!("{place}[]"), out);
        }
        out.push((place.to_owned(), schema));
    }

    #[test]
    fn the_schema_has_the_same_ranges() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/receipt-v1.schema.json");
        let root = std::fs::read_to_string(path).expect("the schema");
        let root: Value = serde_json::from_str(&root).expect("JSON");
        let mut all = Vec::new();
        leaves(&root, &root, "", &mut all);
        let is = |schema: &Value, kind: &str| {
            let kinds =
                schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
            kinds.iter().any(|other| other == kind)
        };
        let mut numbers = 0;
        for (place, schema) in all {
            if is(schema, "integer") || is(schema, "number") {
                let range = RANGES.iter().find(|(pattern, ..)| *pattern == place);
                let &(_, least, most) = range.unwrap_or_else(|| panic!("{place} has no range"));
                let stated = [&schema["minimum"], &schema["maximum"]].map(Value::as_f64);
                assert_eq!(stated, [Some(least), Some(most)], "{place}");
                numbers += 1;
            }
            if let Some((_, form)) = FORMS.iter().find(|(pattern, _)| *pattern == place) {
                let says = match form {
                    Form::Sha256 => schema["pattern"] == "^[0-9a-f]{64}$",
                    Form::HalfHash => schema["pattern"] == "^[0-9a-f]{16}$",
                    Form::Time => schema["format"] == "date-time",
                    Form::Name => schema["minLength"] == 1,
                    Form::OneOf(words) => words.iter().all(|word| {
                        schema["enum"]
                            .as_array()
                            .is_some_and(|all| all.iter().any(|other| other == word))
                    }),
                };
                assert!(says, "{place}: {schema}");
            }
        }
        assert_eq!(numbers, RANGES.len());
    }

    #[test]
    fn numbers_are_said_with_few_digits() {
        assert_eq!(
            [0.0, 1.0, 0.25, 2e7, -1e5, 1e18].map(short),
            ["0", "1", "0.25", "20000000", "-100000", "1e18"]
        );
    }
}
