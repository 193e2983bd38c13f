//! Frauds made at random from the schema: each field beyond what it can be, and each pair that must agree made to
//! disagree. The forger derives figures and doubts anew and seals the result. Each fraud is refused by name.

use brickscope::stats::SplitMix64;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use brickscope_analysis::receipt::v1::{Receipt, Sample, Test};
use brickscope_analysis::receipt::{Options, sha256_hex, verify};
use serde_json::{Value, json};

use super::honest::{Plan, Random, resealed, unsealed};

/// How often each kind is tried.
const EACH: u64 = 40;

/// A fraud: what was changed, and the words one of which the refusal must have.
struct Fraud {
    receipt: Receipt,
    what: String,
    names: Vec<String>,
}

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(super) fn one_of<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len())]
    }

    /// From 0 to 1.
    pub(super) fn part(&mut self) -> f64 {
        self.below(1_000_000) as f64 / 1e6
    }
}

pub(super) fn plan(random: &mut Random) -> Plan {
    Plan {
        seed: random.next(),
        parameters: *random.one_of(&[2_000_000, 110_000_000, 1_100_000_000]),
        quantization: random.one_of::<&str>(&["q4_k", "q8_0", "tq2_0", "f16", "f32"]),
        kernels: random.one_of::<&str>(&["scalar", "avx2", "avx512", "neon"]),
        threads: *random.one_of(&[1, 2, 8]),
        repetitions: 3 + random.below(5) as u32,
        warm_up: 3,
        depths: random.one_of(&[vec![0], vec![0, 64]]).clone(),
        n_prompt: *random.one_of(&[33, 64]),
        n_gen: 3 + random.below(14) as u64,
        noise: 0.01,
        ..Plan::default()
    }
}

pub(super) fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/receipt-v1.schema.json");
        let text = std::fs::read_to_string(path).expect("the schema");
        serde_json::from_str(&text).expect("JSON")
    });
    &SCHEMA
}

/// Each leaf of a receipt: the way to it, and its schema.
pub(super) fn leaves<'s>(
    root: &'s Value,
    schema: &'s Value,
    value: &Value,
    at: &str,
    out: &mut Vec<(String, &'s Value)>,
) {
    walk(root, schema, value, &mut at.to_owned(), out);
}

/// The same. A place is written behind the way to it, and taken off again.
fn walk<'s>(
    root: &'s Value,
    schema: &'s Value,
    value: &Value,
    at: &mut String,
    out: &mut Vec<(String, &'s Value)>,
) {
    if let Some(target) = schema["$ref"].as_str() {
        let target = root.pointer(target.trim_start_matches('#')).expect("it leads somewhere");
        return walk(root, target, value, at, out);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        return walk(root, &choices[1], value, at, out);
    }
    let end = at.len();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| *name != "seal") {
                let schema =
                    schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                at.push('/');
                at.push_str(name);
                walk(root, schema, field, at, out);
                at.truncate(end);
            }
        }
        Value::Array(items) => {
            let schema = &schema["items"];
            for (i, item) in items.iter().enumerate() {
                at.push('/');
                at.push_str(&i.to_string());
                walk(root, schema, item, at, out);
                at.truncate(end);
            }
        }
        // An absent number can be there.
        _ => out.push((at.clone(), schema)),
    }
}

/// The last name on the way to a leaf.
fn name(place: &str) -> String {
    let named = place.rsplit('/').find(|part| part.parse::<u64>().is_err());
    named.unwrap_or_default().to_owned()
}

/// Changes one leaf for which `change` has another value.
fn change_a_leaf(
    random: &mut Random,
    change: impl Fn(&mut Random, &Value) -> Option<Value>,
    is_wanted: impl Fn(&str, &Value) -> bool,
) -> Fraud {
    let root = schema();
    let mut value = serde_json::to_value(unsealed(&plan(random))).expect("plain data");
    let mut all = Vec::new();
    leaves(root, root, &value, "", &mut all);
    // Aggregates follow from the samples, and a forger derives them anew.
    all.retain(|(place, schema)| {
        !place.contains("/aggregates/") && place != "/tokens_per_second" && is_wanted(place, schema)
    });
    // First a field, then one of its places: there are a thousand times of passes, and one drift.
    let mut names: Vec<String> = all.iter().map(|(place, _)| name(place)).collect();
    names.sort();
    names.dedup();
    let wanted = random.one_of(&names).clone();
    all.retain(|(place, _)| name(place) == wanted);
    let (place, schema) = random.one_of(&all).clone();
    let changed = change(random, schema).expect("it was asked for");
    let what = format!("{place} = {changed}");
    *value.pointer_mut(&place).expect("it is there") = changed;
    Fraud {
        receipt: serde_json::from_value(value).expect("of the right types"),
        what,
        names: vec![wanted],
    }
}

pub(super) fn is(schema: &Value, kind: &str) -> bool {
    schema["type"] == kind
        || schema["type"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind))
}

fn a_number_out_of_its_range(random: &mut Random) -> Fraud {
    let beyond = |random: &mut Random, schema: &Value| {
        let [least, most] = [schema["minimum"].as_f64()?, schema["maximum"].as_f64()?];
        let is_whole = is(schema, "integer");
        let below = random.below(2) == 0;
        Some(match (is_whole, below) {
            (true, true) if least >= 1.0 => json!(random.below(least as usize)),
            (true, _) => json!(most as u64 + 1 + random.next() % (most as u64 / 2).max(2)),
            (false, true) if least > 0.0 => {
                json!(least * random.part() * 0.99 - if random.below(2) == 0 { 0.0 } else { 1e9 })
            }
            (false, true) => json!(least - 1e-3 - 10_f64.powf(20.0 * random.part() - 2.0)),
            (false, false) => json!(most * 1.001 + 10_f64.powf(30.0 * random.part())),
        })
    };
    change_a_leaf(random, beyond, |_, schema| {
        // 32 bits don't hold more, and beyond 2^53 there is another check.
        let fits = schema["maximum"]
            .as_f64()
            .is_some_and(|most| most < 4e9 || is(schema, "number") || most < 2e15);
        fits && (is(schema, "integer") || is(schema, "number"))
    })
}

fn a_text_that_it_cannot_be(random: &mut Random) -> Fraud {
    let other = |random: &mut Random, schema: &Value| {
        let texts: &[&str] = if schema["format"] == "date-time" {
            &[
                "banana",
                "",
                "2999-01-01T00:00:00Z",
                "1999-12-31T23:59:59Z",
                "2026-13-01T00:00:00Z",
                "2026-11-21",
            ]
        } else if schema.get("pattern").is_some() {
            &["banana", "", "0x00", "00112233AABBCCDD", "deadbeef"]
        } else if schema.get("enum").is_some() {
            &["banana", "", " ", "L9", "sometimes"]
        } else {
            &["", " ", "\t"]
        };
        Some(json!(random.one_of(texts)))
    };
    change_a_leaf(random, other, |_, schema| {
        ["format", "pattern", "enum", "minLength"].iter().any(|word| schema.get(word).is_some())
    })
}

fn a_hash_of_nothing(random: &mut Random) -> Fraud {
    let hash = |random: &mut Random, schema: &Value| {
        let digits = if schema["pattern"].as_str()?.contains("64") { 64 } else { 16 };
        let empty = sha256_hex(b"");
        Some(match random.below(3) {
            0 => json!("0".repeat(digits)),
            1 => json!("f".repeat(digits)),
            _ if digits == 64 => json!(empty),
            _ => json!("a".repeat(digits)),
        })
    };
    change_a_leaf(random, hash, |_, schema| schema.get("pattern").is_some())
}

/// A test of the receipt, and its number.
fn a_test<'r>(random: &mut Random, receipt: &'r mut Receipt) -> &'r mut Test {
    let which = random.below(receipt.tests.len());
    &mut receipt.tests[which]
}

fn a_sample<'r>(random: &mut Random, test: &'r mut Test) -> &'r mut Sample {
    let measured: Vec<usize> =
        (0..test.samples.len()).filter(|&i| !test.samples[i].is_warm_up).collect();
    let which = *random.one_of(&measured);
    &mut test.samples[which]
}

fn something_twice(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let what = *random.one_of(&["kernel", "brick", "sample", "test", "level", "id"]);
    match what {
        "level" => match &mut receipt.ceilings {
            Some(ceilings) => {
                let cache = random.one_of(&ceilings.caches).clone();
                ceilings.caches.push(cache);
            }
            None => panic!("the plan has ceilings"),
        },
        "test" => {
            let test = a_test(random, &mut receipt).clone();
            receipt.tests.push(test);
        }
        "id" => {
            let id = random.one_of(&receipt.kernels).clone();
            receipt.kernels.push(id);
            receipt.kernels.sort();
        }
        _ => {
            let test = a_test(random, &mut receipt);
            match what {
                "kernel" => {
                    let mut kernel = random.one_of(&test.kernels).clone();
                    // Without work, so that the sums still hold.
                    (kernel.flops, kernel.bytes) =
                        (kernel.flops.map(|_| 0), kernel.bytes.map(|_| 0));
                    test.kernels.push(kernel);
                }
                "brick" => {
                    let brick = random.one_of(&test.bricks).clone();
                    test.bricks.push(brick);
                    test.samples.iter_mut().for_each(|sample| sample.brick_ns.push(0));
                }
                _ => {
                    let mut copy = a_sample(random, test).clone();
                    copy.index = test.samples.len() as u32;
                    test.samples.push(copy);
                }
            }
        }
    }
    let names = match what {
        "level" => vec!["caches".to_owned()],
        "test" => vec!["two tests".to_owned()],
        "id" => vec!["has one twice".to_owned()],
        _ => vec![what.to_owned()],
    };
    Fraud { receipt, what: format!("{what} twice"), names }
}

fn something_left_out(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let what = *random
        .one_of(&["sample", "pass_ns", "token_ns", "brick_ns", "brick", "kernel", "id", "token"]);
    if what == "id" {
        let which = random.below(receipt.kernels.len());
        receipt.kernels.remove(which);
        return Fraud {
            receipt,
            what: what.to_owned(),
            names: vec!["the list of kernels lacks".to_owned()],
        };
    }
    let is_decode = what == "token_ns";
    let tests: Vec<usize> =
        (0..receipt.tests.len()).filter(|&i| !is_decode || receipt.tests[i].n_gen > 0).collect();
    let test = &mut receipt.tests[*random.one_of(&tests)];
    let name = test.name.clone();
    match what {
        "sample" => {
            let which = test.samples.len() - 1 - random.below(3);
            test.samples.remove(which);
            (0..).zip(&mut test.samples).for_each(|(index, sample)| sample.index = index);
        }
        "brick" => {
            let which = random.below(test.bricks.len());
            test.bricks.remove(which);
        }
        "kernel" => {
            let which = random.below(test.kernels.len());
            test.kernels.remove(which);
        }
        "token" => a_sample(random, test).tokens -= 1,
        _ => {
            let sample = a_sample(random, test);
            let column = match what {
                "pass_ns" => &mut sample.pass_ns,
                // One may be missing, that from the start to the first token.
                "token_ns" => {
                    sample.token_ns.pop();
                    &mut sample.token_ns
                }
                _ => &mut sample.brick_ns,
            };
            column.pop();
        }
    }
    Fraud { receipt, what: format!("{what} of {name} is missing"), names: vec![name] }
}

fn a_column_in_another_unit(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let factor = *random.one_of(&[2, 1000, 1_000_000]);
    let is_less = random.below(2) == 0;
    let scale = |ns: &mut u64| *ns = if is_less { *ns / factor } else { *ns * factor };
    let column = *random.one_of(&[
        "wall_ns",
        "pass_ns",
        "brick_ns",
        "unattributed_ns",
        "end_ns",
        "start_ns",
    ]);
    let test = a_test(random, &mut receipt);
    let name = test.name.clone();
    let sample = a_sample(random, test);
    match column {
        "wall_ns" => scale(&mut sample.wall_ns),
        "pass_ns" => sample.pass_ns.iter_mut().for_each(scale),
        "brick_ns" => sample.brick_ns.iter_mut().for_each(scale),
        "unattributed_ns" => sample.unattributed_ns.iter_mut().for_each(scale),
        "end_ns" => scale(&mut sample.end_ns),
        _ => scale(&mut sample.start_ns),
    }
    Fraud { receipt, what: format!("{column} of {name}, {factor} times"), names: vec![name] }
}

fn a_doubt_erased(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let what = random.below(8);
    match what {
        0 => receipt.load.others_share = Some(0.06 + 0.9 * random.part()),
        1 => receipt.load.steal_share = Some(0.011 + 0.9 * random.part()),
        2 => receipt.machine.governor = Some("powersave".to_owned()),
        3 => receipt.machine.logical_cpus = Some(receipt.run.threads),
        4 => receipt.clock.drift_ppm = Some(501.0 + 9e4 * random.part()),
        5 => receipt.deterministic = false,
        6 => {
            let test = a_test(random, &mut receipt);
            a_sample(random, test).disturbed = Some(true);
        }
        _ => {
            let test = a_test(random, &mut receipt);
            test.warm_up.steady = false;
        }
    }
    if what == 3 {
        receipt.run.threads += 1;
        let threads = format!("--threads={}", receipt.run.threads);
        receipt
            .run
            .command
            .iter_mut()
            .filter(|w| w.starts_with("--threads"))
            .for_each(|w| *w = threads.clone());
    }
    let mut receipt = resealed(receipt);
    receipt.load.doubts.clear();
    Fraud { receipt, what: format!("doubt {what}"), names: vec!["load.doubts lacks".to_owned()] }
}

fn another_command_line(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let flags = [
        ("--repetitions", "9999"),
        ("--threads", "77"),
        ("--prompt-tokens", "7"),
        ("--tokens", "1"),
        ("--depth", "0,9"),
        ("--seed", "43"),
        ("--processes", "2"),
        ("--backend", "amx"),
        ("--model", "other.gguf"),
        ("--no-profiler", ""),
    ];
    let &(flag, value) = random.one_of(&flags);
    let command = &mut receipt.run.command;
    match flag {
        "--no-profiler" => command.push(flag.to_owned()),
        "--model" => {
            command.retain(|word| !word.ends_with(".gguf"));
            command.extend(["--".to_owned(), value.to_owned()]);
        }
        _ if random.below(2) == 0 => command.push(format!("{flag}={value}")),
        _ => command.extend([flag.to_owned(), value.to_owned()]),
    }
    Fraud { receipt, what: format!("{flag} {value}"), names: vec![flag.to_owned()] }
}

fn two_that_do_not_agree(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let which = random.below(14);
    let name = match which {
        0 => {
            let test = a_test(random, &mut receipt);
            let brick = random.below(test.bricks.len());
            let brick = &mut test.bricks[brick];
            brick.category = if brick.category == "Norm" { "FFN" } else { "Norm" }.to_owned();
            "is in the category"
        }
        1 => {
            let label = &mut receipt.model.quantization;
            *label = if label == "q6_k" { "q4_0" } else { "q6_k" }.to_owned();
            "quantization"
        }
        2 => {
            receipt.model.layers = 23 + random.below(200) as u32;
            "layers"
        }
        3 => {
            let times = 2 + random.below(998) as u64;
            let test = a_test(random, &mut receipt);
            let softmax = test.kernels.iter_mut().find(|kernel| kernel.id.starts_with("softmax"));
            softmax.expect("it ran").launches *= times;
            "layers"
        }
        4 => {
            receipt.model.bytes = 10_000_000_000_000;
            "weights in"
        }
        5 => {
            receipt.machine.memory_bytes = Some(17_000_000);
            "machine.memory_bytes"
        }
        6 => {
            receipt.overhead.spans = random.below(100) as u64;
            "overhead has"
        }
        7 => {
            receipt.load.absent = Some("because".to_owned());
            "load.absent"
        }
        8 => {
            receipt.load.steal_share = None;
            "load.absent"
        }
        9 => {
            receipt.clock.resolution_ns = Some(200.0 + 1.9e7 * random.part());
            "clock.resolution_ns"
        }
        10 => {
            receipt.binary.sha256 = Some(receipt.model.sha256.clone());
            "the same SHA-256"
        }
        11 => {
            let [first, second] = &mut receipt.tests[..2] else {
                unreachable!("there are two or four tests")
            };
            if random.below(2) == 0 {
                second.input_sha256.clone_from(&first.input_sha256);
            } else {
                second.output_sha256.clone_from(&first.output_sha256);
            }
            "the same SHA-256"
        }
        12 => {
            let threads = u64::from(receipt.run.threads) + 8;
            let test = a_test(random, &mut receipt);
            let sample = a_sample(random, test);
            sample.run_queue_wait_ns =
                Some(threads * (sample.end_ns - sample.start_ns) / 10 + 2_000_000);
            "nothing disturbed it"
        }
        _ => {
            receipt.run.processes = 2;
            let word = "--processes=2".to_owned();
            receipt.run.command.push(word);
            "run.set"
        }
    };
    Fraud { receipt, what: format!("{name} ({which})"), names: vec![name.to_owned()] }
}

fn a_warm_up_that_did_not_agree(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let test = a_test(random, &mut receipt);
    let name = test.name.clone();
    let is_loose = random.below(2) == 0;
    if is_loose {
        test.warm_up.within = 0.26 + random.part();
    } else {
        // By more than repetitions differ.
        test.warm_up.window = 3;
        test.warm_up.within = 0.02;
    }
    test.warm_up.steady = true;
    let names = vec![if is_loose { "within".to_owned() } else { name }];
    Fraud { receipt, what: format!("a warm-up within {}", 0), names }
}

/// Where samples lie in time, so that a forger can lay other times out.
struct Layout {
    /// The samples by time, as test and sample.
    order: Vec<(usize, usize)>,
    /// What lies before each, and in each beside its passes.
    gaps: Vec<u64>,
    outside: Vec<u64>,
    choosing: Vec<Vec<u64>>,
}

impl Layout {
    fn of(receipt: &Receipt) -> Self {
        let tests = receipt.tests.iter().enumerate();
        let mut order: Vec<(usize, usize)> =
            tests.flat_map(|(t, test)| (0..test.samples.len()).map(move |s| (t, s))).collect();
        order.sort_by_key(|&(t, s)| receipt.tests[t].samples[s].start_ns);
        let mut now = 0;
        let mut layout =
            Self { order, gaps: Vec::new(), outside: Vec::new(), choosing: Vec::new() };
        for &(t, s) in &layout.order {
            let sample = &receipt.tests[t].samples[s];
            layout.gaps.push(sample.start_ns - now);
            layout.outside.push(sample.end_ns - sample.start_ns - sample.wall_ns);
            let tokens = sample.token_ns.iter().zip(&sample.pass_ns);
            layout.choosing.push(tokens.map(|(token, pass)| token - pass).collect());
            now = sample.end_ns;
        }
        layout
    }

    /// Makes all else fit the times of passes and bricks.
    fn fit(self, receipt: &mut Receipt) {
        let mut now = 0;
        for (((t, s), gap), (outside, choosing)) in
            self.order.into_iter().zip(self.gaps).zip(self.outside.into_iter().zip(self.choosing))
        {
            let sample = &mut receipt.tests[t].samples[s];
            let before = sample.wall_ns;
            sample.wall_ns = sample.pass_ns.iter().sum();
            if let Some(first) = &mut sample.first_token_ns {
                *first = *first - before + sample.wall_ns;
            }
            let tokens = sample.pass_ns.iter().zip(choosing);
            sample.token_ns = tokens.map(|(pass, choosing)| pass + choosing).collect();
            if let Some(rest) = &mut sample.unattributed_ns {
                let bricks: u64 = sample.brick_ns.iter().sum();
                *rest = sample.wall_ns.saturating_sub(bricks);
                // What doesn't fit is taken from the longest.
                if let Some(longest) = sample.brick_ns.iter_mut().max() {
                    *longest -= bricks.saturating_sub(sample.wall_ns);
                }
            }
            sample.start_ns = now + gap;
            now = sample.start_ns + sample.wall_ns + outside;
            sample.end_ns = now;
        }
    }
}

/// A model whose passes are long enough to tell measured ones, and tests at two depths.
fn long_passes(random: &mut Random) -> Receipt {
    let plan = Plan {
        parameters: 1_100_000_000,
        n_gen: 14 + random.below(3) as u64,
        depths: vec![0, 64],
        ..plan(random)
    };
    unsealed(&plan)
}

fn times_of_others(random: &mut Random) -> Fraud {
    let mut receipt = long_passes(random);
    let layout = Layout::of(&receipt);
    let [_, shallow, _, deep] = &mut receipt.tests[..] else {
        unreachable!("a prompt and decoding, at two depths")
    };
    let measured: Vec<usize> =
        (0..shallow.samples.len()).filter(|&s| !shallow.samples[s].is_warm_up).collect();
    let noise = 1 + random.below(9);
    let mut near = |ns: &u64| ns + random.below(noise) as u64;
    let which = near(&0) as usize;
    let which = (which + measured.len() + shallow.n_gen as usize) % 7;
    let what = match which {
        0 => {
            let (from, to) = (measured[0], measured[1]);
            let passes = shallow.samples[from].pass_ns.iter().map(&mut near).collect();
            let bricks = shallow.samples[from].brick_ns.iter().map(&mut near).collect();
            (shallow.samples[to].pass_ns, shallow.samples[to].brick_ns) = (passes, bricks);
            "a few ns apart"
        }
        1 => {
            for (from, to) in shallow.samples.iter().zip(&mut deep.samples) {
                to.pass_ns = from.pass_ns.iter().map(&mut near).collect();
                to.brick_ns = from.brick_ns.iter().map(&mut near).collect();
            }
            "a few ns apart"
        }
        2 => {
            let sample = &mut shallow.samples[measured[0]];
            let half = sample.pass_ns.len() / 2;
            let at = sample.pass_ns.len() - half;
            let first: Vec<u64> = sample.pass_ns[..half].iter().map(&mut near).collect();
            sample.pass_ns[at..].copy_from_slice(&first);
            "the first half once more"
        }
        3 => {
            for sample in &mut shallow.samples {
                sample.pass_ns.sort_unstable();
            }
            "are sorted"
        }
        4 => {
            // The first sample, faster and slower.
            let model = shallow.samples[measured[0]].pass_ns.clone();
            for (nth, &s) in measured.iter().enumerate() {
                let factor = 1.0 + 0.004 * nth as f64;
                let scaled = model.iter().map(|ns| (*ns as f64 * factor).round() as u64);
                shallow.samples[s].pass_ns = scaled.collect();
            }
            "the same part of every sample"
        }
        5 => {
            let sample = &mut shallow.samples[measured[0]];
            let each = sample.wall_ns / (sample.brick_ns.len() as u64 + 1);
            sample.brick_ns.fill(each);
            "took the same time: they are a total that was split"
        }
        _ => {
            layout.fit(&mut receipt);
            let test = &mut receipt.tests[1];
            let sample = &mut test.samples[measured[0]];
            let least = sample.token_ns.iter().zip(&sample.pass_ns).map(|(t, p)| t - p).min();
            let least = least.expect("tokens");
            sample.token_ns = sample.pass_ns.iter().map(|ns| ns + least).collect();
            return Fraud {
                receipt,
                what: "the same for choosing each token".to_owned(),
                names: vec!["that was added, not measured".to_owned()],
            };
        }
    };
    layout.fit(&mut receipt);
    Fraud { receipt, what: format!("{what} ({which})"), names: vec![what.to_owned()] }
}

fn a_machine_that_cannot_be(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let machine = &mut receipt.machine;
    let is_x86 = machine.arch == "x86_64";
    let which = random.below(12);
    let name = match which {
        0 => {
            machine.cgroup_cpuset = Some("3".to_owned());
            "machine.cgroup_cpuset has 1"
        }
        1 => {
            machine.cgroup_cpuset = Some("0-1".to_owned());
            machine.logical_cpus = Some(3 + random.below(60) as u32);
            "machine.cgroup_cpuset has 2"
        }
        2 => {
            machine.numa_nodes = Some(1025 + random.below(1000) as u32);
            "machine.numa_nodes"
        }
        3 => {
            let other = if is_x86 { "Neoverse-V2" } else { "AMD EPYC 9654 96-Core Processor" };
            machine.cpu = Some(other.to_owned());
            "machine.cpu is"
        }
        4 => {
            let libc = ["msvcrt 14", "glibc", "bionic 34", "glibc two"];
            machine.libc = Some((*random.one_of(&libc)).to_owned());
            "machine.libc"
        }
        5 => {
            machine.libc = Some("musl".to_owned());
            let target = format!("{}-unknown-linux-gnu", machine.arch);
            receipt.environment.insert("TARGET".to_owned(), target);
            "machine.libc"
        }
        6 => {
            machine.kernel = Some("Darwin Kernel Version 23".to_owned());
            "machine.kernel"
        }
        7 => {
            let os = *random.one_of(&["macos", "windows", "freebsd"]);
            machine.os = os.to_owned();
            receipt.environment.insert("OS".to_owned(), format!("{os}-{}", machine.arch));
            "which only Linux tells"
        }
        8 => {
            machine.threads_per_core = Some(5 + random.below(50) as u32);
            "machine.threads_per_core"
        }
        9 => {
            machine.cpu_id = Some(if is_x86 { "25/1/1" } else { "6/207/2" }.to_owned());
            "machine.cpu_id"
        }
        10 => {
            machine.cgroup_cpuset = Some("all of them".to_owned());
            "machine.cgroup_cpuset"
        }
        _ => {
            machine.cpu_id = Some("Xeon".to_owned());
            "machine.cpu_id"
        }
    };
    Fraud { receipt, what: format!("{name} ({which})"), names: vec![name.to_owned()] }
}

fn work_that_cannot_be(random: &mut Random) -> Fraud {
    let mut receipt = long_passes(random);
    let which = random.below(6);
    let name = match which {
        0 => {
            // The decode tests are of a file of another format.
            let formats = ["q4_k", "q8_0", "tq2_0", "f16", "f32"];
            let own = receipt.model.quantization.clone();
            let other = formats.iter().find(|format| **format != own).expect("there are five");
            for test in receipt.tests.iter_mut().filter(|test| test.n_gen > 0) {
                for kernel in &mut test.kernels {
                    kernel.id = kernel.id.replace(&own, other);
                }
            }
            "they are of two models"
        }
        1 => {
            for kernel in receipt.tests[1].kernels.iter_mut().filter(|k| k.id.starts_with("gemv")) {
                kernel.launches /= 22;
            }
            "have one each at least"
        }
        2 => {
            let test = &mut receipt.tests[3];
            test.flops = test.flops.map(|flops| flops - flops / 20);
            let repetitions = u64::from(receipt.run.repetitions);
            let all = test.flops.expect("stated") * repetitions;
            let mut rest = all;
            let last = test.kernels.len() - 1;
            for (nth, kernel) in test.kernels.iter_mut().enumerate() {
                let own = if nth == last { rest } else { kernel.flops.unwrap_or(0).min(rest) };
                kernel.flops = Some(own);
                rest -= own;
            }
            "which attends to fewer tokens"
        }
        3 => {
            let test = a_test(random, &mut receipt);
            let which = ["RmsNorm", "RopeEmbedding", "AttentionSoftmax", "AttentionScore"];
            let which = *random.one_of(&which);
            let at = test.bricks.iter().position(|brick| brick.name == which).expect("it ran");
            test.bricks.remove(at);
            for sample in &mut test.samples {
                let ns = sample.brick_ns.remove(at);
                sample.unattributed_ns = sample.unattributed_ns.map(|rest| rest + ns);
            }
            "in which it runs"
        }
        4 => {
            let model = receipt.model.sha256.clone();
            let test = a_test(random, &mut receipt);
            if random.below(2) == 0 {
                test.input_sha256 = model
            } else {
                test.output_sha256 = model
            }
            "the same SHA-256"
        }
        _ => {
            let test = &mut receipt.tests[1];
            test.output_sha256 = test.input_sha256.clone();
            "the same SHA-256"
        }
    };
    // The list of kernels is that of the tests.
    let all = receipt.tests.iter().flat_map(|test| test.kernels.iter().map(|k| k.id.clone()));
    let all: BTreeSet<String> = all.collect();
    receipt.kernels = all.into_iter().collect();
    Fraud { receipt, what: format!("{name} ({which})"), names: vec![name.to_owned()] }
}

fn a_clock_that_cannot_be(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let which = random.below(5);
    let name = match which {
        0 => {
            receipt.clock.source = (*random.one_of(&["hpet", "sundial", "TSC", "gps"])).to_owned();
            "clock.source"
        }
        1 => {
            let passes = receipt.tests.iter().flat_map(|test| &test.samples);
            let shortest = passes.flat_map(|sample| &sample.pass_ns).min().expect("passes");
            receipt.clock.reading_ns = Some(*shortest as f64 * 2.0 + 1.0);
            // It costs what a reading costs.
            receipt.clock.resolution_ns = None;
            "clock.reading_ns"
        }
        2 => {
            receipt.timestamp = (*random.one_of(&[
                "2026-02-30T10:00:00Z",
                "2026-04-31T10:00:00Z",
                "2026-06-31T10:00:00Z",
            ]))
            .to_owned();
            "a day that doesn't exist"
        }
        3 => {
            receipt.timestamp = "2026-11-24T10:48:12Z".to_owned();
            "more than a day"
        }
        _ => {
            let ceilings = receipt.ceilings.as_mut().expect("the plan has some");
            ceilings.measured = Some("2026-09-31T10:47:58Z".to_owned());
            "a day that doesn't exist"
        }
    };
    Fraud { receipt, what: format!("{name} ({which})"), names: vec![name.to_owned()] }
}

fn a_doubt_that_was_skipped(random: &mut Random) -> Fraud {
    let mut receipt = unsealed(&plan(random));
    let threads = u64::from(receipt.run.threads) + 8;
    let which = random.below(2);
    let test = a_test(random, &mut receipt);
    let name = match which {
        0 => {
            (test.warm_up.window, test.warm_up.steady) = (1, true);
            "but that takes two"
        }
        _ => {
            let sample = a_sample(random, test);
            sample.disturbed = None;
            sample.run_queue_wait_ns =
                Some(threads * (sample.end_ns - sample.start_ns) / 10 + 2_000_000);
            "whether anything disturbed it is null"
        }
    };
    Fraud { receipt, what: format!("{name} ({which})"), names: vec![name.to_owned()] }
}

/// Flags of a later version, beside others that aren't so.
fn a_command_line_of_later(random: &mut Random) -> Fraud {
    let Fraud { mut receipt, what, names } = another_command_line(random);
    let later = *random.one_of(&["--later", "--later=5", "--energy on", "-Z"]);
    let at = 2 + random.below(2);
    for word in later.split(' ').rev() {
        receipt.run.command.insert(at, word.to_owned());
    }
    Fraud { receipt, what: format!("{later} and {what}"), names }
}

/// A kind of fraud.
type Kind = (&'static str, fn(&mut Random) -> Fraud);

const KINDS: [Kind; 16] = [
    ("a number out of its range", a_number_out_of_its_range),
    ("a text that it cannot be", a_text_that_it_cannot_be),
    ("a hash of nothing", a_hash_of_nothing),
    ("something twice", something_twice),
    ("something left out", something_left_out),
    ("a column in another unit", a_column_in_another_unit),
    ("a doubt erased", a_doubt_erased),
    ("another command line", another_command_line),
    ("two that do not agree", two_that_do_not_agree),
    ("a warm-up that did not agree", a_warm_up_that_did_not_agree),
    ("times of others", times_of_others),
    ("a machine that can't be", a_machine_that_cannot_be),
    ("work that can't be", work_that_cannot_be),
    ("a clock that can't be", a_clock_that_cannot_be),
    ("a doubt that was skipped", a_doubt_that_was_skipped),
    ("a command line of a later version", a_command_line_of_later),
];

#[test]
fn each_self_contradiction_is_refused_by_name() {
    let options = Options::default();
    let (mut missed, mut tried) = (Vec::new(), 0);
    for (kind, (title, forge)) in (0_u64..).zip(KINDS) {
        for n in 0..EACH {
            let mut random = Random(SplitMix64(1 + 1000 * kind + n));
            let Fraud { receipt, what, names } = forge(&mut random);
            let is_erased = names.iter().any(|name| name.starts_with("load.doubts"));
            let receipt = if is_erased {
                receipt.sealed().expect("numbers")
            } else {
                resealed_or_not(receipt)
            };
            let found = verify(receipt.to_json().as_bytes(), &options);
            let all: Vec<String> = found.refusals.iter().map(ToString::to_string).collect();
            let is_named =
                all.iter().any(|sentence| names.iter().any(|name| sentence.contains(name)));
            if !is_named {
                missed.push(format!("{title}: {what}, by {names:?}: {all:?}"));
            }
            tried += 1;
        }
    }
    assert!(missed.is_empty(), "{} of {tried}:\n{}", missed.len(), missed.join("\n"));
}

/// Sealed anew, if that is possible: JSON has no numbers that aren't finite.
fn resealed_or_not(receipt: Receipt) -> Receipt {
    let json = serde_json::to_string(&receipt).expect("plain data");
    let receipt: Receipt = serde_json::from_str(&json).expect("as before");
    resealed(receipt)
}
