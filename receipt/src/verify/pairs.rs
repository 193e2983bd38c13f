//! Checks fields of a receipt that must agree with each other.

use std::collections::{BTreeMap, HashSet};

use brickscope_profile::BrickId;
use brickscope_profile::name::category_of;
use brickscope_profile::save::unix_seconds;

use super::kernels::{formats, operation};
use super::{Code, Findings, measured, said, span};
use crate::derived_doubts;
use crate::v1::{NotFinite, Receipt, Sample, Test};

/// Checks everything that must agree, except figures and times.
pub(super) fn check(receipt: &Receipt, found: &mut Findings) {
    model(receipt, found);
    memory(receipt, found);
    ceilings(receipt, found);
    build(receipt, found);
    overhead(receipt, found);
    load(receipt, found);
    hashes(receipt, found);
    doubts(receipt, found);
    let run = &receipt.run;
    if run.set.is_none() && run.processes != 1 {
        let sentence =
            format!("the run is one of {} processes, but run.set is null", run.processes);
        found.refuse_about(Code::Contradiction, "check", sentence);
    }
}

/// Checks what must agree within a test.
pub(super) fn test(receipt: &Receipt, test: &Test, found: &mut Findings) {
    twice(test, found);
    categories(test, found);
    layers(receipt, test, found);
    // Kernels of a device may do several operations, and others for one token than for many.
    if receipt.device.is_none() {
        operations(receipt, test, found);
    }
    not_finite(test, found);
    for (which, sample) in test.samples.iter().enumerate() {
        waits(receipt, test, which, sample, found);
    }
}

/// What a model's file has besides weights: a vocabulary of 256 000 words takes some MB.
const METADATA: u64 = 512 << 20;

/// The bits of a weight in a format.
fn bits(format: &str) -> Option<f64> {
    Some(match format {
        "f64" => 64.0,
        "f32" => 32.0,
        "f16" | "bf16" => 16.0,
        "q8_0" => 8.5,
        "q6_k" => 6.5625,
        "q5_1" => 6.0,
        "q5_0" | "q5_k" => 5.5,
        "q4_1" => 5.0,
        "q4_0" | "q4_k" => 4.5,
        "q3_k" => 3.4375,
        "q2_k" => 2.625,
        "tq2_0" => 2.0625,
        "i2_s" => 2.0,
        "tq1_0" => 1.6875,
        _ => return None,
    })
}

fn model(receipt: &Receipt, found: &mut Findings) {
    let model = &receipt.model;
    let label = model.quantization.to_lowercase();
    let stated: Vec<&str> = formats(&label).collect();
    let bits = stated.iter().filter_map(|format| bits(format)).reduce(f64::max);
    let weights = model.parameters as f64;
    // No format but f64 takes more than f32.
    let most = bits.unwrap_or(32.0).max(32.0) / 8.0 * 1.05 * weights + METADATA as f64;
    if model.bytes as f64 > most {
        found.refuse_about(
            Code::Contradiction,
            "model",
            format!(
                "the model has {} weights in {} bytes, but as {} they take at most {most:.0}",
                model.parameters,
                model.bytes,
                said(&model.quantization)
            ),
        );
    }
    // The format is that of most weights, other than an embedding of up to half of them.
    let least = bits.unwrap_or(0.0) / 8.0 / 4.0 * weights;
    if (model.bytes as f64) < least {
        found.refuse_about(
            Code::Contradiction,
            "model",
            format!(
                "the model has {} weights in {} bytes, but as {} they take at least {least:.0}",
                model.parameters,
                model.bytes,
                said(&model.quantization)
            ),
        );
    }
    let products =
        || receipt.kernels.iter().filter(|id| matches!(operation(id).as_str(), "gemv" | "gemm"));
    let of_products: HashSet<&str> = products().flat_map(|id| formats(id)).collect();
    if !stated.is_empty()
        && !of_products.is_empty()
        && !stated.iter().any(|format| of_products.contains(format))
    {
        let first = products().next().map_or("", String::as_str);
        found.refuse_about(
            Code::Contradiction,
                "model",
            format!(
                "the model's quantization is {}, but no kernel multiplies by that format: {} is one that ran",
                said(&model.quantization),
                said(first)
            ),
        );
    }
}

fn memory(receipt: &Receipt, found: &mut Findings) {
    let machine = &receipt.machine;
    // Not all of a file is copied: an embedding is only looked up. On a device it is the device's memory that counts.
    let is_copied = receipt.device.is_none()
        && receipt.environment.get("WEIGHTS").is_some_and(|weights| !weights.starts_with("mapped"));
    let needed = if is_copied { receipt.model.bytes / 2 } else { 0 };
    for (name, bytes) in [
        ("memory_bytes", machine.memory_bytes),
        ("cgroup_memory_bytes", machine.cgroup_memory_bytes),
    ] {
        // Unless they were swapped out.
        let swapped = machine.swap_used_bytes.unwrap_or(0);
        if let Some(bytes) = bytes.filter(|&bytes| bytes.saturating_add(swapped) < needed) {
            found.refuse_about(
                Code::Contradiction,
                "memory",
                format!(
                    "machine.{name} is {bytes}, but the weights of a file of {} bytes were in memory",
                    receipt.model.bytes
                ),
            );
        }
    }
    let caches = receipt.ceilings.iter().flat_map(|ceilings| &ceilings.caches);
    if let (Some(memory), Some(cache)) =
        (machine.memory_bytes, caches.map(|cache| cache.bytes).max())
        && cache > memory
    {
        let sentence = format!("a cache has {cache} bytes, but machine.memory_bytes is {memory}");
        found.refuse_about(Code::Contradiction, "memory", sentence);
    }
}

/// Ceilings may be measured once more after the run, when its time stamp is made.
const AFTER: u64 = 600;

fn ceilings(receipt: &Receipt, found: &mut Findings) {
    let Some(ceilings) = &receipt.ceilings else { return };
    let levels: Vec<&str> = ceilings.caches.iter().map(|cache| cache.level.as_str()).collect();
    if !levels.windows(2).all(|pair| pair[0] < pair[1]) {
        let sentence = format!(
            "the caches are {}, but the smallest level comes first",
            said(&levels.join(", "))
        );
        found.refuse_about(Code::Contradiction, "ceilings", sentence);
    }
    let Some(measured) = &ceilings.measured else { return };
    let times = unix_seconds(measured).zip(unix_seconds(&receipt.timestamp));
    if times.is_some_and(|(measured, ended)| measured > ended + AFTER) {
        found.refuse_about(
            Code::Contradiction,
            "ceilings",
            format!(
                "the ceilings were measured at {}, after the run, which ended at {}",
                said(measured),
                said(&receipt.timestamp)
            ),
        );
    }
    let in_basis = ceilings.basis.split(' ').find(|word| unix_seconds(word).is_some());
    if let Some(other) = in_basis.filter(|word| *word != measured) {
        found.refuse_about(
            Code::Contradiction,
            "ceilings",
            format!(
                "ceilings.measured is {}, but their basis says {}",
                said(measured),
                said(other)
            ),
        );
    }
}

/// What the environment says of the build.
fn build(receipt: &Receipt, found: &mut Findings) {
    let (machine, environment) = (&receipt.machine, &receipt.environment);
    if let Some(target) = environment.get("TARGET") {
        let os = if machine.os == "macos" { "darwin" } else { &machine.os };
        // Such as `i686`.
        let is_i86 = machine.arch == "x86" && target.starts_with('i') && target.contains("86-");
        let is_arch = is_i86 || target.starts_with(machine.arch.as_str());
        if !is_arch || !target.contains(os) {
            found.refuse(
                Code::MachinesMixed,
                format!(
                    "environment says that the program was built for {}, but the machine is {}",
                    said(target),
                    said(&format!("{}-{}", machine.os, machine.arch))
                ),
            );
        }
    }
    if let Some(version) =
        environment.get("RUST_VERSION").filter(|text| !text.starts_with("rustc "))
    {
        let sentence =
            format!("environment says RUST_VERSION {}, which is no rustc", said(version));
        found.refuse(Code::Field, sentence);
    }
}

/// Spans for each launch, layer and pass, at most.
const MOST_SPANS: u128 = 8;

fn overhead(receipt: &Receipt, found: &mut Findings) {
    let overhead = &receipt.overhead;
    let mut refuse =
        |sentence: String| found.refuse_about(Code::Contradiction, "overhead", sentence);
    if !receipt.run.profiled {
        if overhead.spans > 0 || overhead.span_ns.is_some() {
            refuse(format!("overhead has {} spans, but the profiler was off", overhead.spans));
        }
        return;
    }
    let all = || receipt.tests.iter().flat_map(measured);
    let passes: u128 = all().map(|sample| sample.pass_ns.len() as u128).sum();
    let launches: u128 = receipt
        .tests
        .iter()
        .flat_map(|test| &test.kernels)
        .map(|kernel| u128::from(kernel.launches))
        .sum();
    // Each is a span, except of kernels on a device; what was dropped may be missing.
    let launches = if receipt.device.is_some() { 0 } else { launches };
    let least = passes + launches;
    if u128::from(overhead.spans) < least && receipt.dropped.is_empty() {
        refuse(format!(
            "overhead has {} spans, but the measured repetitions have {passes} passes and {launches} launches",
            overhead.spans
        ));
    }
    // A span for each brick, kernel, layer and pass, and more for what runs in several steps.
    let most = MOST_SPANS * (launches + passes * (1 + u128::from(receipt.model.layers)));
    if u128::from(overhead.spans) > most && receipt.device.is_none() {
        refuse(format!(
            "overhead has {} spans, but {passes} passes and {launches} launches have at most {most}",
            overhead.spans
        ));
    }
    let walls: f64 = all().map(|sample| sample.wall_ns as f64).sum();
    if let Some(cost) = overhead.span_ns.filter(|ns| ns * overhead.spans as f64 > walls) {
        refuse(format!(
            "{} spans of {cost} ns are longer than the passes that they are in, {walls:.0} ns",
            overhead.spans
        ));
    }
}

fn load(receipt: &Receipt, found: &mut Findings) {
    let load = &receipt.load;
    if let (Some(others), Some(steal)) = (load.others_share, load.steal_share)
        && others + steal > 1.0 + 1e-9
    {
        let sentence = format!(
            "others used {others} and the hypervisor {steal} of the CPU time, more than all of it"
        );
        found.refuse_about(Code::Contradiction, "load", sentence);
    }
    let is_absent = load.others_share.is_none() || load.steal_share.is_none();
    if is_absent != load.absent.is_some() {
        found.refuse_about(
            Code::Contradiction,
            "load",
            match is_absent {
                true => "a share of load is null, but load.absent doesn't say why",
                false => "load.absent says why a share is absent, but none is",
            },
        );
    }
}

/// Hashes of different content are different.
fn hashes(receipt: &Receipt, found: &mut Findings) {
    if receipt.binary.sha256.as_ref() == Some(&receipt.model.sha256) {
        found.refuse_about(
            Code::Contradiction,
            "hashes",
            "the program and the model's file have the same SHA-256",
        );
    }
    let mut inputs: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
    let mut outputs = inputs.clone();
    for test in &receipt.tests {
        // Decoding begins with a token.
        let depth = if test.n_gen > 0 { test.n_depth.max(1) } else { test.n_depth };
        let input = depth.saturating_add(test.n_prompt);
        for (what, hash, tokens, known) in [
            ("input", &test.input_sha256, input, &mut inputs),
            ("output", &test.output_sha256, test.output_tokens, &mut outputs),
        ] {
            let &mut (others, name) = known.entry(hash).or_insert((tokens, &test.name));
            if others != tokens {
                found.refuse_about(
                    Code::Contradiction,
                "hashes",
                    format!(
                        "the {what}s of tests {} and {} have the same SHA-256, but {others} and {tokens} tokens",
                        said(name),
                        said(&test.name)
                    ),
                );
            }
        }
    }
}

/// The receipt's doubts have everything that follows from its figures.
fn doubts(receipt: &Receipt, found: &mut Findings) {
    let mut stated: HashSet<String> = receipt.load.doubts.iter().cloned().collect();
    // Earlier versions wrote of "the last 3 of 2" repetitions.
    for test in &receipt.tests {
        let n = test.samples.iter().filter(|sample| sample.is_warm_up).count();
        let before = format!("{}: the last {} of {n} warm-up", test.name, test.warm_up.window);
        let now = format!("{}: the last {n} of {n} warm-up", test.name);
        let earlier: Vec<String> = stated
            .iter()
            .filter(|_| n < test.warm_up.window as usize)
            .filter_map(|doubt| Some(now.clone() + doubt.strip_prefix(&before)?))
            .collect();
        stated.extend(earlier);
    }
    for doubt in derived_doubts(receipt) {
        if !stated.contains(&doubt) {
            found.refuse(
                Code::DoubtsErased,
                format!(
                    "load.doubts lacks what follows from the receipt's own figures: {}",
                    said(&doubt)
                ),
            );
        }
    }
}

/// The passes that computed logits are those of the samples.
fn not_finite(test: &Test, found: &mut Findings) {
    let Some(NotFinite { passes, of, .. }) = &test.not_finite else { return };
    let name = said(&test.name);
    let mut refuse =
        |sentence: String| found.refuse_about(Code::Contradiction, "not_finite", sentence);
    let ran = match test.n_gen {
        0 => test.samples.len(),
        _ => test.samples.iter().map(|sample| sample.pass_ns.len()).sum(),
    };
    if *of != ran as u64 {
        refuse(format!("test {name} says that {of} passes computed logits, but {ran} did"));
    }
    if passes > of {
        refuse(format!("test {name} has {passes} passes with logits that aren't numbers, of {of}"));
    }
}

fn twice(test: &Test, found: &mut Findings) {
    let name = said(&test.name);
    let kernels = test.kernels.iter().map(|kernel| ("kernel", kernel.id.as_str()));
    let bricks = test.bricks.iter().map(|brick| ("brick", brick.name.as_str()));
    let mut known = HashSet::new();
    for (what, id) in kernels.chain(bricks) {
        if !known.insert((what, id)) {
            let sentence = format!("test {name} has the {what} {} twice", said(id));
            found.refuse_about(Code::Contradiction, "twice", sentence);
        }
    }
}

/// What the host does of a pass on a device.
const OF_HOST: [&str; 2] = ["Issue", "DeviceWait"];

/// A later version may know more bricks.
fn categories(test: &Test, found: &mut Findings) {
    for brick in test.bricks.iter().chain(&test.device_bricks) {
        let name = brick.name.as_str();
        let is_known = BrickId::from_str(name).is_some() || OF_HOST.contains(&name);
        let category = category_of(name).name();
        if is_known && brick.category != category {
            found.refuse_about(
                Code::Contradiction,
                "categories",
                format!(
                    "brick {} of test {} is in the category {}, but it belongs to {category}",
                    said(&brick.name),
                    said(&test.name),
                    said(&brick.category)
                ),
            );
        }
    }
}

/// More launches of one kernel in a layer than any model has: one for each matrix of 1024 experts.
const MOST_LAUNCHES: u128 = 4096;

/// Launches fit the model's layers: each layer has one attention.
fn layers(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let name = said(&test.name);
    let layers = u128::from(receipt.model.layers);
    let passes: u128 = measured(test).map(|sample| sample.pass_ns.len() as u128).sum();
    let each = layers * passes;
    if each == 0 {
        return;
    }
    let mut by_operation: BTreeMap<String, u128> = BTreeMap::new();
    for kernel in &test.kernels {
        let launches = u128::from(kernel.launches);
        *by_operation.entry(operation(&kernel.id)).or_default() += launches;
        if launches > MOST_LAUNCHES * each {
            found.refuse_about(
                Code::Contradiction,
                "layers",
                format!(
                    "{} was launched {launches} times in {passes} passes of test {name}, over {MOST_LAUNCHES} times \
                     for each of {layers} layers",
                    said(&kernel.id)
                ),
            );
        }
    }
    for (operation, launches) in by_operation {
        let fits = match operation.as_str() {
            "softmax" => launches == each,
            "rope" | "scores" => launches.is_multiple_of(each),
            _ => continue,
        };
        if !fits {
            found.refuse_about(
                Code::Contradiction,
                "layers",
                format!(
                    "{} was launched {launches} times in {passes} passes of test {name}, which doesn't fit {layers} \
                     layers",
                    said(&operation)
                ),
            );
        }
    }
}

/// Each test runs the whole model, so each operation of one is one of the others. Products of one token have another name
/// than those of many.
fn operations(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let of = |test: &Test| -> HashSet<String> {
        let all = test.kernels.iter().map(|kernel| operation(&kernel.id));
        all.map(|name| if name == "gemm" { "gemv".to_owned() } else { name }).collect()
    };
    let own = of(test);
    for other in &receipt.tests {
        let lacking = of(other).into_iter().filter(|name| !own.contains(name)).min();
        if let Some(operation) = lacking {
            found.refuse_about(
                Code::Contradiction,
                "operations",
                format!(
                    "test {} launched no {}, but test {} of the same model did",
                    said(&test.name),
                    said(&operation),
                    said(&other.name)
                ),
            );
        }
    }
}

/// The threads of a process besides those that share the work.
const OTHER_THREADS: f64 = 8.0;
/// A repetition is disturbed if one thread waits for more than this part of a pass: `Disturbance::is_disturbed`.
const DISTURBED: f64 = 0.01;

fn waits(receipt: &Receipt, test: &Test, which: usize, sample: &Sample, found: &mut Findings) {
    let Some(wait) = sample.run_queue_wait_ns else { return };
    let place = || format!("sample {which} of test {}", said(&test.name));
    let threads = f64::from(receipt.run.threads) + OTHER_THREADS;
    let wall = span(sample) as f64;
    // A wait may have begun before the sample. If no thread waited for a hundredth of any pass, all of them together
    // waited for at most that many hundredths.
    if wait as f64 > 8.0 * threads * wall + 1e10 {
        let sentence =
            format!("the threads of {} waited {wait} ns, far longer than it lasted", place());
        found.refuse_about(Code::Contradiction, "waits", sentence);
    } else if sample.disturbed != Some(true) && wait as f64 > 2.0 * DISTURBED * threads * wall + 1e6
    {
        let sentence = format!(
            "the threads of {} waited {wait} ns for a core, but {}",
            place(),
            match sample.disturbed {
                Some(_) => "it says that nothing disturbed it",
                None => "whether anything disturbed it is null",
            }
        );
        found.refuse_about(Code::Contradiction, "waits", sentence);
    }
}
