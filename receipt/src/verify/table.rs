//! Each field of a receipt, once: what it can be, and what else of the receipt bears it out. Ranges and forms are checked
//! from this table, `docs/receipt-v1.schema.json` says the same, and the tests make frauds from it, so that a field that
//! is added needs a row.

use super::Code;

/// A field of a receipt.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Field {
    /// Its place, such as `tests[].samples[].wall_ns`: `[]` is each item of a list, `*` each entry of a map.
    pub place: &'static str,
    /// What it can be, whatever the others are. Where the schema allows it, it can be `null`, too.
    pub can_be: CanBe,
    /// What it must agree with.
    pub borne_out: BorneOut,
}

/// What a field can be.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum CanBe {
    /// A number from the least to the most.
    Number(f64, f64),
    /// `true` or `false`.
    Flag,
    /// 64 hexadecimal digits of something.
    Sha256,
    /// 16 hexadecimal digits of something.
    HalfHash,
    /// A moment between the first brickscope and now.
    Time,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One of these words, too; a check of its own refuses others.
    Word(&'static [&'static str]),
    /// A name: not empty, and not too long.
    Name,
    /// A text that is not too long.
    Text,
}

/// What the value of a field must agree with.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum BorneOut {
    /// Changed alone, by more than what is measured varies, it contradicts others, and is refused.
    By {
        /// The codes of which the refusal has one.
        codes: &'static [Code],
        /// The places of the others.
        with: &'static [&'static str],
    },
    /// Nothing else bears it out, or only roughly: why.
    Alone(&'static str),
}

/// The largest whole number that every reader of JSON reads alike.
const WHOLE: f64 = 9_007_199_254_740_992.0;
/// More tokens than any context has.
const TOKENS: f64 = 1e9;
/// As many repetitions and processes as `benchmark` takes.
const TIMES: f64 = 10_000.0;
/// A rate or a duration that isn't negative.
const POSITIVE: f64 = 1e18;

const CATEGORIES: &[&str] = &["Norm", "Attention", "FFN", "Other"];

/// Nobody else was there.
const MACHINE: &str = "the machine alone knows";
const DRIVER: &str = "the device's driver alone knows";
const TOKENS_ALONE: &str = "a receipt has no tokens: a rerun has";
const DISTURBED: &str =
    "what disturbs a machine is the machine's to say; that it was disturbed makes a doubt";

macro_rules! borne_out {
    (by $($code:ident)+ : $($with:literal)+) => {
        BorneOut::By { codes: &[$(Code::$code),+], with: &[$($with),+] }
    };
    (alone $why:expr) => {
        BorneOut::Alone($why)
    };
}

macro_rules! fields {
    ($($place:literal: $kind:ident $(($($arg:expr),*))?, [$($borne_out:tt)+];)*) => {
        /// All fields but those of the seal, which is checked as a whole.
        pub const FIELDS: &[Field] = &[$(Field {
            place: $place,
            can_be: CanBe::$kind $(($($arg),*))?,
            borne_out: borne_out!($($borne_out)+),
        }),*];
    };
}

fields! {
    "schema_version": Word(&["1.0.0", "1.1.0"]), [by Version Schema: "device.name"];
    "timestamp": Time, [by Contradiction: "ceilings.measured"];
    "compute_path": Word(&["real"]), [by NotReal: "tests[].kernels[].id"];
    "backend": Word(&["cpu", "cuda", "wgpu"]), [by Contradiction NoGpuKernels Field: "run.kernels" "tests[].kernels[].id"];
    "deterministic": Flag, [alone TOKENS_ALONE];
    "tokens_requested": Number(0.0, TOKENS), [by TokenCount: "tests[].n_gen"];
    "tokens_generated": Number(0.0, TOKENS), [by TokenCount: "tests[].output_tokens"];
    "tokens_per_second": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].aggregates.median_ts"];
    "kernels[]": Text, [by KernelsMismatch MachinesMixed: "tests[].kernels[].id"];
    "environment.*": Text, [alone "a writer knows more or less of its build; its version and system must agree"];
    "model.path": Name, [by CommandMismatch: "run.command[]"];
    "model.sha256": Sha256, [alone "the file alone tells (--model)"];
    "model.bytes": Number(1.0, 1e15), [alone "a file has more than weights, and no kernel reads all of it"];
    "model.name": Text, [alone "the file alone tells (--model)"];
    "model.architecture": Name, [alone "the file alone tells (--model)"];
    "model.quantization": Name, [alone "a model of several formats is called by any of them"];
    "model.parameters": Number(1.0, 1e15), [alone "a format isn't that of all weights"];
    "model.layers": Number(1.0, 10_000.0), [by Contradiction: "tests[].kernels[].launches" "tests[].samples[].pass_ns[]"];
    "model.synthetic": Flag, [alone "the file alone tells (--model)"];
    "run.command[]": Text, [by CommandMismatch: "model.path" "run.threads" "run.repetitions" "tests[].n_prompt" "tests[].n_gen" "tests[].n_depth"];
    "run.kernels": OneOf(&["scalar", "avx2", "avx512", "neon", "wgpu", "cuda"]), [by Contradiction MachinesMixed: "backend" "ceilings.basis" "machine.arch" "tests[].kernels[].id"];
    "run.threads": Number(1.0, 65_536.0), [by CommandMismatch MachinesMixed Contradiction: "run.command[]" "ceilings.basis" "device.name"];
    "run.batch": Number(1.0, TOKENS), [alone "several batches have as many passes"];
    "run.sampling": Word(&["greedy"]), [by Field: "deterministic"];
    "run.seed": Number(0.0, WHOLE), [by CommandMismatch: "run.command[]"];
    "run.repetitions": Number(1.0, TIMES), [by CommandMismatch RepetitionsMismatch: "run.command[]" "tests[].samples[].is_warm_up"];
    "run.process": Number(1.0, TIMES), [by Field CommandMismatch: "run.processes" "run.command[]"];
    "run.processes": Number(1.0, TIMES), [by Contradiction CommandMismatch: "run.set" "run.command[]"];
    "run.set": Name, [alone "a process may be the only one of a set"];
    "run.profiled": Flag, [by CommandMismatch Contradiction SamplesMissing: "run.command[]" "overhead.spans" "tests[].samples[].brick_ns[]"];
    "binary.version": Name, [by MachinesMixed: "environment.*"];
    "binary.sha256": Sha256, [alone "the program alone tells"];
    "machine.os": Name, [by MachinesMixed: "environment.*" "machine.kernel" "machine.libc"];
    "machine.arch": Name, [by MachinesMixed: "environment.*" "run.kernels" "clock.source"];
    "machine.cpu": Text, [alone MACHINE];
    "machine.cpu_id": Text, [alone MACHINE];
    "machine.microcode": Text, [alone MACHINE];
    "machine.logical_cpus": Number(1.0, 65_536.0), [alone MACHINE];
    "machine.threads_per_core": Number(1.0, 64.0), [alone MACHINE];
    "machine.numa_nodes": Number(1.0, 65_536.0), [alone MACHINE];
    "machine.governor": Text, [alone MACHINE];
    "machine.turbo": Flag, [alone MACHINE];
    // The engine alone takes some MB.
    "machine.memory_bytes": Number(16_777_216.0, 1e15), [alone MACHINE];
    "machine.kernel": Text, [alone MACHINE];
    "machine.libc": Text, [alone MACHINE];
    "machine.hypervisor": Text, [alone MACHINE];
    "machine.cgroup_cpus": Number(0.001, 65_536.0), [alone MACHINE];
    "machine.cgroup_cpuset": Text, [alone MACHINE];
    "machine.cgroup_memory_bytes": Number(4_194_304.0, WHOLE), [alone MACHINE];
    "machine.huge_pages": OneOf(&["always", "madvise", "never"]), [alone MACHINE];
    "machine.swap_used_bytes": Number(0.0, 1e15), [alone MACHINE];
    "machine.boot": HalfHash, [alone MACHINE];
    "device.name": Name, [alone DRIVER];
    "device.api": OneOf(&["cuda", "vulkan", "metal", "dx12", "gl", "webgpu"]), [alone DRIVER];
    "device.driver": Name, [alone DRIVER];
    "device.memory_bytes": Number(1_048_576.0, 1e15), [alone DRIVER];
    // wgpu's devices count steps of some ns to some µs.
    "device.resolution_ns": Number(0.001, 2e7), [alone DRIVER];
    "ceilings.read_bytes_per_second": Number(1.0, POSITIVE), [alone MACHINE];
    "ceilings.flops_per_second": Number(1.0, POSITIVE), [alone MACHINE];
    "ceilings.caches[].level": OneOf(&["L1", "L2", "L3", "L4"]), [alone MACHINE];
    "ceilings.caches[].bytes": Number(1024.0, 1e12), [alone MACHINE];
    "ceilings.caches[].read_bytes_per_second": Number(1.0, POSITIVE), [alone MACHINE];
    "ceilings.memory_spread[]": Number(1.0, POSITIVE), [alone MACHINE];
    "ceilings.basis": Name, [alone "another engine may word it otherwise"];
    "ceilings.measured": Time, [alone "ceilings may be kept for hours"];
    "ceilings_absent": Text, [alone "the writer alone knows why"];
    "clock.source": Name, [alone MACHINE];
    // Ticks of 50 Hz are the coarsest that any system counts time in.
    "clock.resolution_ns": Number(0.001, 2e7), [alone MACHINE];
    // A trapped reading takes some µs.
    "clock.reading_ns": Number(0.1, 1e5), [alone MACHINE];
    // In a run of some ms, one reading that was interrupted looks like a tenth.
    "clock.drift_ppm": Number(-1e5, 1e5), [alone MACHINE];
    "tests[].name": Text, [by TokenCount Field: "tests[].n_prompt" "tests[].n_gen" "tests[].n_depth"];
    "tests[].n_prompt": Number(0.0, TOKENS), [by TokenCount CommandMismatch: "tests[].name" "tests[].samples[].tokens" "run.command[]"];
    "tests[].n_gen": Number(0.0, TOKENS), [by TokenCount CommandMismatch: "tests[].name" "tests[].samples[].tokens" "run.command[]" "tokens_requested"];
    "tests[].n_depth": Number(0.0, TOKENS), [by TokenCount CommandMismatch: "tests[].name" "run.command[]"];
    "tests[].input_sha256": Sha256, [alone TOKENS_ALONE];
    "tests[].output_sha256": Sha256, [alone TOKENS_ALONE];
    "tests[].output_tokens": Number(1.0, TOKENS), [by TokenCount Contradiction: "tests[].n_gen" "tokens_generated"];
    "tests[].bricks[].name": Name, [alone "an engine may have bricks of its own"];
    "tests[].bricks[].category": OneOf(CATEGORIES), [by Contradiction: "tests[].bricks[].name"];
    "tests[].device_bricks[].name": Name, [alone "an engine may have bricks of its own"];
    "tests[].device_bricks[].category": OneOf(CATEGORIES), [alone "an engine may have bricks of its own"];
    "tests[].kernels[].id": Text, [by KernelsMismatch Contradiction: "kernels[]"];
    "tests[].kernels[].launches": Number(1.0, WHOLE), [alone "a layer may launch a kernel several times"];
    "tests[].kernels[].flops": Number(0.0, WHOLE), [by KernelsMismatch: "tests[].flops"];
    "tests[].kernels[].bytes": Number(0.0, WHOLE), [by KernelsMismatch: "tests[].bytes"];
    "tests[].flops": Number(0.0, WHOLE), [by KernelsMismatch: "tests[].kernels[].flops"];
    "tests[].bytes": Number(0.0, WHOLE), [by KernelsMismatch: "tests[].kernels[].bytes"];
    "tests[].warm_up.window": Number(1.0, TIMES), [by WarmUpCounted: "tests[].samples[].is_warm_up" "tests[].samples[].wall_ns"];
    // Repetitions that are off by more don't agree.
    "tests[].warm_up.within": Number(0.0, 0.25), [alone "repetitions agree within more, too"];
    "tests[].warm_up.steady": Flag, [alone "that a warm-up wasn't steady makes a doubt"];
    "tests[].samples[].index": Number(0.0, 1e6), [by RepetitionsMismatch: "run.repetitions"];
    "tests[].samples[].is_warm_up": Flag, [by RepetitionsMismatch WarmUpCounted: "run.repetitions" "tests[].samples[].index"];
    "tests[].samples[].start_ns": Number(0.0, WHOLE), [by ClockBackwards SumMismatch TimelineHole: "tests[].samples[].end_ns" "tests[].samples[].wall_ns"];
    "tests[].samples[].end_ns": Number(0.0, WHOLE), [by ClockBackwards SumMismatch TimelineHole: "tests[].samples[].start_ns" "tests[].samples[].wall_ns"];
    "tests[].samples[].wall_ns": Number(0.0, WHOLE), [by SumMismatch: "tests[].samples[].pass_ns[]" "tests[].samples[].end_ns"];
    "tests[].samples[].pass_ns[]": Number(0.0, WHOLE), [by SumMismatch: "tests[].samples[].wall_ns" "tests[].samples[].token_ns[]"];
    "tests[].samples[].tokens": Number(0.0, TOKENS), [by TokenCount: "tests[].n_prompt" "tests[].n_gen"];
    "tests[].samples[].token_ns[]": Number(0.0, WHOLE), [by SumMismatch TokenCount: "tests[].samples[].pass_ns[]" "tests[].samples[].end_ns"];
    "tests[].samples[].first_token_ns": Number(0.0, WHOLE), [by SumMismatch SamplesMissing TokenCount: "tests[].samples[].wall_ns" "tests[].samples[].end_ns" "tests[].n_gen"];
    "tests[].samples[].brick_ns[]": Number(0.0, WHOLE), [by SumMismatch: "tests[].samples[].wall_ns" "tests[].samples[].unattributed_ns"];
    "tests[].samples[].unattributed_ns": Number(0.0, WHOLE), [by SumMismatch SamplesMissing: "tests[].samples[].wall_ns" "tests[].samples[].brick_ns[]"];
    "tests[].samples[].disturbed": Flag, [alone DISTURBED];
    "tests[].samples[].run_queue_wait_ns": Number(0.0, WHOLE), [alone "short waits disturb nothing"];
    "tests[].samples[].cpu_khz": Number(10_000.0, 20_000_000.0), [alone MACHINE];
    "tests[].samples[].device.passes": Number(0.0, TOKENS), [alone "a device may time any of the passes"];
    "tests[].samples[].device.span_ns": Number(0.0, WHOLE), [by SumMismatch: "tests[].samples[].device.brick_ns[]" "tests[].samples[].device.gaps_ns" "tests[].samples[].wall_ns"];
    "tests[].samples[].device.passes_in_bricks": Number(0.0, TOKENS), [by TokenCount SumMismatch: "tests[].samples[].device.passes" "tests[].samples[].device.brick_ns[]"];
    "tests[].samples[].device.brick_ns[]": Number(0.0, WHOLE), [by SumMismatch: "tests[].samples[].device.span_ns" "tests[].samples[].device.gaps_ns"];
    "tests[].samples[].device.gaps_ns": Number(0.0, WHOLE), [by SumMismatch: "tests[].samples[].device.span_ns" "tests[].samples[].device.brick_ns[]"];
    "tests[].aggregates.samples": Number(0.0, TIMES), [by AggregateNotOfSamples: "tests[].samples[].is_warm_up"];
    "tests[].aggregates.avg_ns": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].wall_ns"];
    "tests[].aggregates.stddev_ns": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].wall_ns"];
    "tests[].aggregates.median_ns": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].wall_ns"];
    "tests[].aggregates.avg_ts": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].wall_ns"];
    "tests[].aggregates.stddev_ts": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].wall_ns"];
    "tests[].aggregates.median_ts": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].wall_ns" "tokens_per_second"];
    // Of two rates that are far apart the interval has any width.
    "tests[].aggregates.low_ts": Number(-POSITIVE, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].wall_ns"];
    "tests[].aggregates.high_ts": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].wall_ns"];
    "tests[].aggregates.per_token.count": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].token_ns[]"];
    "tests[].aggregates.per_token.mean_ns": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].token_ns[]"];
    "tests[].aggregates.per_token.stddev_ns": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].token_ns[]"];
    "tests[].aggregates.per_token.min_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].token_ns[]"];
    "tests[].aggregates.per_token.max_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].token_ns[]"];
    "tests[].aggregates.per_token.p50_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].token_ns[]"];
    "tests[].aggregates.per_token.p90_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].token_ns[]"];
    "tests[].aggregates.per_token.p95_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].token_ns[]"];
    "tests[].aggregates.per_token.p99_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].token_ns[]"];
    "tests[].aggregates.first_token.count": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].first_token_ns"];
    "tests[].aggregates.first_token.mean_ns": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].first_token_ns"];
    "tests[].aggregates.first_token.stddev_ns": Number(0.0, POSITIVE), [by AggregateNotOfSamples: "tests[].samples[].first_token_ns"];
    "tests[].aggregates.first_token.min_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].first_token_ns"];
    "tests[].aggregates.first_token.max_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].first_token_ns"];
    "tests[].aggregates.first_token.p50_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].first_token_ns"];
    "tests[].aggregates.first_token.p90_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].first_token_ns"];
    "tests[].aggregates.first_token.p95_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].first_token_ns"];
    "tests[].aggregates.first_token.p99_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].first_token_ns"];
    "tests[].aggregates.brick_total_ns[]": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].brick_ns[]"];
    "tests[].aggregates.unattributed_total_ns": Number(0.0, WHOLE), [by AggregateNotOfSamples: "tests[].samples[].unattributed_ns"];
    "tests[].aggregates.disturbed": Number(0.0, TIMES), [by AggregateNotOfSamples: "tests[].samples[].disturbed"];
    "tests[].not_finite.passes": Number(1.0, WHOLE), [alone TOKENS_ALONE];
    "tests[].not_finite.of": Number(1.0, WHOLE), [by Contradiction: "tests[].samples[].pass_ns[]"];
    "tests[].not_finite.origin": Name, [alone TOKENS_ALONE];
    "overhead.span_ns": Number(0.1, 1e6), [alone MACHINE];
    "overhead.spans": Number(0.0, WHOLE), [alone "a brick may have several"];
    "overhead.basis": Name, [alone "another engine may word it otherwise"];
    "dropped.*": Number(0.0, WHOLE), [alone "what was lost makes a doubt"];
    "load.before": Number(0.0, 1e6), [alone MACHINE];
    "load.others_share": Number(0.0, 1.0), [alone MACHINE];
    "load.steal_share": Number(0.0, 1.0), [alone MACHINE];
    "load.absent": Text, [by Contradiction: "load.others_share" "load.steal_share"];
    "load.doubts[]": Text, [alone "whoever runs a benchmark may add doubts; those that follow from figures must be there"];
}

impl Field {
    /// The field of a place.
    #[must_use]
    pub fn at(place: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.place == place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_place_is_there_once_and_so_are_those_that_it_agrees_with() {
        let mut places: Vec<&str> = FIELDS.iter().map(|field| field.place).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), FIELDS.len());
        for field in FIELDS {
            if let CanBe::Number(least, most) = field.can_be {
                assert!(least < most, "{}", field.place);
            }
            let BorneOut::By { with, .. } = field.borne_out else { continue };
            for other in with {
                assert!(
                    *other != field.place && Field::at(other).is_some(),
                    "{}: {other}",
                    field.place
                );
            }
        }
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

    /// Without the seal, and each place once: a field may be this or that.
    fn all_leaves(root: &Value) -> BTreeMap<String, &Value> {
        let mut all = Vec::new();
        leaves(root, root, "", &mut all);
        let is_leaf = |schema: &&Value| {
            let kinds = ["integer", "number", "string", "boolean"];
            kinds.iter().any(|kind| is(schema, kind))
        };
        let all = all
            .into_iter()
            .filter(|(place, schema)| !place.starts_with("seal.") && is_leaf(schema));
        all.collect()
    }

    fn is(schema: &Value, kind: &str) -> bool {
        schema["type"] == kind
            || schema["type"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|other| other == kind))
    }

    fn schema() -> Value {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/receipt-v1.schema.json");
        let text = std::fs::read_to_string(path).expect("the schema");
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn the_schema_has_the_same_fields_ranges_and_forms() {
        let root = schema();
        let all = all_leaves(&root);
        let has_all = |schema: &Value, words: &[&str]| {
            let listed = schema["oneOf"].as_array().into_iter().flatten().map(|one| &one["const"]);
            let listed = listed.chain(schema["enum"].as_array().into_iter().flatten());
            let listed: Vec<&Value> = listed.chain(schema.get("const")).collect();
            !listed.is_empty() && words.iter().all(|word| listed.iter().any(|other| *other == word))
        };
        for (place, schema) in &all {
            let field = Field::at(place).unwrap_or_else(|| panic!("{place} has no row"));
            let says = match field.can_be {
                CanBe::Number(least, most) => {
                    let stated = [&schema["minimum"], &schema["maximum"]].map(Value::as_f64);
                    stated == [Some(least), Some(most)]
                }
                CanBe::Flag => is(schema, "boolean"),
                CanBe::Sha256 => schema["pattern"] == "^[0-9a-f]{64}$",
                CanBe::HalfHash => schema["pattern"] == "^[0-9a-f]{16}$",
                CanBe::Time => schema["format"] == "date-time",
                CanBe::Name => schema["minLength"] == 1,
                CanBe::OneOf(words) | CanBe::Word(words) => has_all(schema, words),
                CanBe::Text => {
                    is(schema, "string")
                        && ["minLength", "pattern", "enum", "format"]
                            .iter()
                            .all(|key| schema.get(key).is_none())
                }
            };
            assert!(says, "{place}: {schema}");
        }
        let lacking: Vec<&str> = FIELDS
            .iter()
            .map(|field| field.place)
            .filter(|place| !all.contains_key(*place))
            .collect();
        assert!(lacking.is_empty(), "{lacking:?}");
    }

    /// `"agreesWith"` of the schema has for each place the others, or why nothing bears it out.
    #[test]
    fn the_schema_says_what_agrees_with_what() {
        let said = |field: &Field| match field.borne_out {
            BorneOut::By { with, .. } => json!(with),
            BorneOut::Alone(why) => json!(why),
        };
        let all: serde_json::Map<String, Value> =
            FIELDS.iter().map(|field| (field.place.to_owned(), said(field))).collect();
        assert_eq!(schema()["agreesWith"], Value::Object(all.clone()), "{}", json!(all));
    }
}
