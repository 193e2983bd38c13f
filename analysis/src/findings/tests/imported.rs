//! Runs that were imported.

use std::path::Path;

use brickscope_profile::run::Format;
use brickscope_profile::stats::SplitMix64;

use super::*;
use brickscope_formats::import::{Options, read};

const LLAMA_BENCH: &str = include_str!("../../../../tests/data/import/llama-bench.json");
const PYTORCH: &str = include_str!("../../../../tests/data/import/pytorch.json");
const GPU: &str = include_str!("../../../../tests/data/import/kineto-gpu.json");

fn import(text: &str, format: Format, options: &Options) -> Profile {
    read(text, Path::new("a.json"), format, options).expect("it is of this format")
}

/// A prompt of 512 tokens in 9.1 s, and 128 tokens in 6.5 s, of a model of 668 MB.
fn llama_bench(ceilings: Option<Ceilings>) -> Profile {
    let mut profile = import(LLAMA_BENCH, Format::LlamaBench, &Options::default());
    profile.ceilings = ceilings;
    profile
}

fn found<'f>(findings: &'f Findings, rule: &str, phase: Phase) -> &'f Finding {
    let found = findings.found.iter().find(|of| of.rule == rule && of.phase == Some(phase));
    found.unwrap_or_else(|| panic!("no {rule}: {findings:#?}"))
}

fn knows_not(findings: &Findings, rule: &str) -> bool {
    findings.unknown.iter().any(|unknown| unknown.rule == rule)
}

#[test]
fn llama_bench_without_limits_tells_nothing_and_says_why() {
    let findings = Findings::of(&llama_bench(None));
    assert_eq!(findings.found, []);
    for rule in ["slow-layer", "gaps-between-passes", "threads-wait", "far-from-the-roof"] {
        assert!(knows_not(&findings, rule), "{rule}: {findings:#?}");
    }
}

#[test]
fn llama_bench_is_held_to_memory_and_to_the_peak() {
    // It reads 13.2 GB/s, and computes 124 GFLOP/s.
    let machine = |read: f64, peak: f64| Ceilings {
        read_bytes_per_second: read,
        flops_per_second: peak,
        ..Ceilings::default()
    };
    let far = Findings::of(&llama_bench(Some(machine(50e9, 400e9))));
    let generation = found(&far, "far-from-the-roof", Phase::Decode);
    assert_eq!(generation.kind, FindingKind::Slow);
    let token_ns = 19_500e6 / 384.0;
    let gain = generation.gain.expect("a prediction");
    assert!((gain.now_ns - token_ns).abs() < 1.0, "{gain:?}");
    assert!((gain.highest_ns - (token_ns - 668_190_720.0 / 50.0)).abs() < 1.0, "{gain:?}");
    let prompt = found(&far, "far-from-the-roof", Phase::Prefill);
    assert!(prompt.what.contains("at most 31 % of the peak"), "{}", prompt.what);

    let near = Findings::of(&llama_bench(Some(machine(14e9, 130e9))));
    let generation = found(&near, "memory-roof", Phase::Decode);
    assert_eq!(generation.kind, FindingKind::Limit);
    // 4.86 bits a weight already.
    assert!(generation.gain_absent.is_some(), "{generation:?}");
    found(&near, "compute-roof", Phase::Prefill);

    let mut large = llama_bench(Some(machine(14e9, 130e9)));
    large.model.as_mut().expect("a model").parameters = 628_885_000;
    let findings = Findings::of(&large);
    let generation = found(&findings, "memory-roof", Phase::Decode);
    // 8.5 bits a weight.
    assert_predicts(generation, (1.0 - 4.5 / 8.5) * token_ns);

    // More than memory gives: it doesn't read all of it.
    let above = Findings::of(&llama_bench(Some(machine(5e9, 50e9))));
    assert_eq!(above.found, []);
    assert!(knows_not(&above, "far-from-the-roof"));
    // Nor do experts, nor does a GPU have the limits of the CPU.
    let mut experts = llama_bench(Some(machine(50e9, 400e9)));
    experts.model.as_mut().expect("a model").architecture = "qwen3moe 30B.A3B Q4_K".to_owned();
    assert_eq!(Findings::of(&experts).found, []);
    let mut gpu = llama_bench(Some(machine(50e9, 400e9)));
    gpu.run.as_mut().expect("a run").backend = "CUDA".to_owned();
    assert_eq!(Findings::of(&gpu).found, []);
}

#[test]
fn the_fastest_number_of_threads_that_was_measured() {
    let rows: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
    let sweep = |other: [u64; 3]| {
        let mut rows = rows.clone();
        let mut row = rows[1].clone();
        row["n_threads"] = 4.into();
        row["samples_ns"] = other.to_vec().into();
        rows.push(row);
        let text = serde_json::to_string(&rows).expect("JSON");
        let options = Options { rows: vec![1, 2], ..Options::default() };
        import(&text, Format::LlamaBench, &options)
    };
    let findings = Findings::of(&sweep([4_000_000_000, 4_010_000_000, 4_020_000_000]));
    let faster = found(&findings, "number-of-threads", Phase::Decode);
    assert!(faster.what.starts_with("4 threads are faster than 2"), "{}", faster.what);
    assert_predicts(faster, 19_500e6 / 3.0 - 4_010e6);
    // Slower, and not told from chance.
    for other in [[9_000_000_000; 3], [6_300_000_000, 6_500_000_000, 6_600_000_000]] {
        assert_eq!(Findings::of(&sweep(other)).found, []);
    }
}

/// What the rule says of 100 files with so many numbers of threads, whose repetitions vary by 2 %. The run is the one
/// with 1 thread; `faster` ones take a tenth less.
fn lucky_files(numbers: usize, repetitions: usize, faster: Option<usize>) -> Vec<String> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
    let options = Options { rows: vec![1], ..Options::default() };
    let mut said = Vec::new();
    for seed in 0..100 {
        let mut random = SplitMix64(seed * 1000 + numbers as u64);
        let row = |threads: usize| {
            let mut row = rows[1].clone();
            let mut time = || {
                // Twelve uniform ones are as good as normal.
                let noise =
                    (0..12).map(|_| random.bits() as f64 / 2_f64.powi(64)).sum::<f64>() - 6.0;
                let part = if faster == Some(threads) { 0.9 } else { 1.0 };
                (1.28e9 * part / (1.0 + 0.02 * noise)) as u64
            };
            row["n_threads"] = threads.into();
            row["samples_ns"] = (0..repetitions).map(|_| time()).collect::<Vec<u64>>().into();
            row
        };
        let all: Vec<_> = (1..=numbers).map(row).collect();
        let text = serde_json::to_string(&all).expect("JSON");
        let found = Findings::of(&import(&text, Format::LlamaBench, &options)).found;
        said.extend(
            found.into_iter().filter(|of| of.rule == "number-of-threads").map(|of| of.what),
        );
    }
    said
}

#[test]
fn the_luckiest_of_many_numbers_of_threads_is_not_faster() {
    for numbers in [2, 4, 8, 16] {
        let said = lucky_files(numbers, 5, None);
        assert!(said.len() <= 5, "{numbers}: {} of 100, {said:?}", said.len());
    }
    // A tenth is more than luck.
    for numbers in [2, 4, 8, 16] {
        let said = lucky_files(numbers, 5, Some(2));
        assert!(said.len() >= 95, "{numbers}: {} of 100", said.len());
        let right = said.iter().filter(|of| of.starts_with("2 threads are faster than 1"));
        assert_eq!(right.count(), said.len(), "{said:?}");
    }
}

#[test]
fn a_trace_of_the_cpu_says_what_it_cannot_tell() {
    let options = Options {
        prefill: Some("prefill".to_owned()),
        decode: Some("decode".to_owned()),
        ..Options::default()
    };
    let findings = Findings::of(&import(PYTORCH, Format::Chrome, &options));
    assert!(findings.has_looked);
    for rule in ["far-from-the-roof", "waits-for-a-cpu"] {
        assert!(knows_not(&findings, rule), "{rule}: {findings:#?}");
    }
    let findings = Findings::of(&import(
        PYTORCH,
        Format::Chrome,
        &Options { decode: Some("decode[1]".to_owned()), ..Options::default() },
    ));
    assert!(!findings.found.iter().any(|of| of.rule == "gaps-between-passes"), "{findings:#?}");
}

#[test]
fn a_trace_of_a_device_shows_what_waits_for_launches() {
    let mut profile = import(GPU, Format::Chrome, &Options::default());
    let findings = Findings::of(&profile);
    assert!(findings.has_looked);
    assert_eq!(findings.found, [], "the host is ahead within passes");
    for rule in ["far-from-the-roof", "occupancy", "waits-for-a-cpu"] {
        assert!(knows_not(&findings, rule), "{rule}: {findings:#?}");
    }
    // Kernels that begin three times as late, a microsecond after their launches.
    for stream in &mut profile.devices[0].streams {
        for pass in &mut stream.passes {
            (pass.start_ns, pass.wall_ns) = (3 * pass.start_ns, 3 * pass.wall_ns);
        }
        stream.spans.iter_mut().for_each(|span| span.start_ns *= 3);
        for launch in &mut stream.launches {
            launch.issued_ns = stream.spans[launch.span as usize].start_ns - 1_000;
        }
    }
    let findings = Findings::of(&profile);
    let launches = found(&findings, "launch-bound", Phase::Decode);
    // It launches a graph, too, so graphs are on.
    assert!(launches.evidence[1].text.contains(" as part of a graph"), "{launches:?}");
    let gain = launches.gain.expect("a prediction");
    assert!(gain.highest_ns > 0.5 * gain.now_ns, "{gain:?}");
}
