//! Receipts as a benchmark would write them, with the noise that machines have.

use brickscope::stats::SplitMix64;
use std::collections::{BTreeMap, BTreeSet};

use brickscope_analysis::receipt::v1::{
    Binary, Brick, CacheCeiling, Ceilings, Clock, Kernel, Load, Machine, Model, Overhead, Run,
    Sample, Test, VERSION, WarmUp,
};
use brickscope_analysis::receipt::{
    Aggregates, Receipt, derived_doubts, sha256_hex, tokens_sha256,
};

/// What is benchmarked, and how.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) parameters: u64,
    pub(crate) quantization: &'static str,
    /// The instruction set.
    pub(crate) kernels: &'static str,
    pub(crate) threads: u32,
    pub(crate) repetitions: u32,
    pub(crate) warm_up: u32,
    pub(crate) depths: Vec<u64>,
    pub(crate) n_prompt: u64,
    pub(crate) n_gen: u64,
    pub(crate) profiled: bool,
    /// How far times are off from repetition to repetition.
    pub(crate) noise: f64,
    pub(crate) has_caches: bool,
}

impl Default for Plan {
    /// A model of 1.1 billion weights on two threads.
    fn default() -> Self {
        Self {
            seed: 1,
            parameters: 1_100_000_000,
            quantization: "q4_k",
            kernels: "avx2",
            threads: 2,
            repetitions: 5,
            warm_up: 3,
            depths: vec![0],
            n_prompt: 64,
            n_gen: 16,
            profiled: true,
            noise: 0.01,
            has_caches: true,
        }
    }
}

pub(crate) struct Random(pub(crate) SplitMix64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// `nanos`, give or take, and now and then a good deal more.
    fn around(&mut self, nanos: f64, noise: f64) -> u64 {
        let unit = |random: u64| (random >> 11) as f64 / (1_u64 << 53) as f64;
        let bell = (0..4).map(|_| unit(self.next()) - 0.5).sum::<f64>();
        let rare = if self.next().is_multiple_of(200) { 3.0 * noise } else { 0.0 };
        (nanos * (1.0 + noise * bell + rare)).max(1.0) as u64
    }
}

/// Bricks with their parts of a pass, and the kernel of each.
const BRICKS: [(&str, &str, f64, &str); 9] = [
    ("Embedding", "Other", 0.000_2, "embed"),
    ("RmsNorm", "Norm", 0.008, "rms_norm"),
    ("QkvProjection", "Attention", 0.151, "gemv"),
    ("RopeEmbedding", "Attention", 0.004, "rope"),
    ("AttentionScore", "Attention", 0.017, "scores"),
    ("AttentionSoftmax", "Attention", 0.004, "softmax"),
    ("GateProjection", "FFN", 0.422, "gemv"),
    ("DownProjection", "FFN", 0.256, "gemv"),
    ("LmHead", "Other", 0.131, "gemv"),
];

const LAYERS: u64 = 22;
const BATCH: u64 = 32;
const BANDWIDTH: f64 = 17e9;
const PEAK: f64 = 107e9;

pub(crate) fn receipt(plan: &Plan) -> Receipt {
    unsealed(plan).sealed().expect("its numbers are numbers")
}

/// The same for who changes it and seals it then: the hash takes longer than all else of it.
pub(crate) fn unsealed(plan: &Plan) -> Receipt {
    let bits = match plan.quantization {
        "q4_k" => 4.5,
        "q8_0" => 8.5,
        "tq2_0" => 2.06,
        "f16" => 16.0,
        _ => 32.0,
    };
    let model_bytes = (plan.parameters as f64 * bits / 8.0) as u64 + 700_000;
    let mut random = Random(SplitMix64(plan.seed));
    // The clock began with the process.
    let mut now = 40_000_000 + random.next() % 1_000_000_000;
    let mut tests = Vec::new();
    for &depth in &plan.depths {
        if plan.n_prompt > 0 {
            tests.push(test(plan, model_bytes, (plan.n_prompt, 0, depth), &mut now, &mut random));
        }
        if plan.n_gen > 0 {
            tests.push(test(plan, model_bytes, (0, plan.n_gen, depth), &mut now, &mut random));
        }
    }
    let kernels = tests.iter().flat_map(|test| test.kernels.iter().map(|kernel| kernel.id.clone()));
    let kernels: BTreeSet<String> = kernels.collect();
    let decode = tests.iter().filter(|test| test.n_gen > 0).min_by_key(|test| test.n_depth);
    let arch = if plan.kernels == "neon" { "aarch64" } else { "x86_64" };
    let is_gpu = plan.kernels == "cuda";
    let threads = f64::from(plan.threads);
    let cache = |level: &str, bytes: u64, rate: f64| CacheCeiling {
        level: level.to_owned(),
        bytes: bytes * u64::from(plan.threads),
        read_bytes_per_second: rate * threads,
    };
    let launches = tests.iter().flat_map(|test| &test.kernels).map(|kernel| kernel.launches);
    let passes =
        tests.iter().flat_map(|test| test.samples.iter().filter(|sample| !sample.is_warm_up));
    let spans =
        2 * launches.sum::<u64>() + passes.map(|sample| sample.pass_ns.len() as u64).sum::<u64>();
    let mut receipt = Receipt {
        schema_version: VERSION.to_owned(),
        timestamp: "2026-11-21T10:48:12Z".to_owned(),
        compute_path: "real".to_owned(),
        backend: if is_gpu { "cuda" } else { "cpu" }.to_owned(),
        deterministic: true,
        tokens_requested: decode.map_or(0, |test| test.n_gen),
        tokens_generated: decode.map_or(0, |test| test.output_tokens),
        tokens_per_second: decode.and_then(|test| test.aggregates.median_ts),
        kernels: kernels.into_iter().collect(),
        environment: BTreeMap::from([
            ("BRICKSCOPE_VERSION".to_owned(), "0.1.0".to_owned()),
            ("OS".to_owned(), format!("linux-{arch}")),
            ("RUST_VERSION".to_owned(), "rustc 1.95.0".to_owned()),
            ("WEIGHTS".to_owned(), "large pages".to_owned()),
        ]),
        model: Model {
            path: "1b-q4_k.gguf".to_owned(),
            sha256: sha256_hex(b"the model's file"),
            bytes: model_bytes,
            name: Some("TinyLlama".to_owned()),
            architecture: "llama".to_owned(),
            quantization: plan.quantization.to_owned(),
            parameters: plan.parameters,
            layers: LAYERS as u32,
            synthetic: false,
        },
        run: Run {
            command: command(plan),
            kernels: plan.kernels.to_owned(),
            threads: plan.threads,
            batch: BATCH,
            sampling: "greedy".to_owned(),
            seed: 42,
            repetitions: plan.repetitions,
            process: 1,
            processes: 1,
            set: None,
            profiled: plan.profiled,
        },
        binary: Binary { version: "0.1.0".to_owned(), sha256: Some(sha256_hex(b"the program")) },
        machine: Machine {
            os: "linux".to_owned(),
            arch: arch.to_owned(),
            cpu: Some(
                if arch == "x86_64" { "Intel(R) Xeon(R) Processor" } else { "Neoverse-N1" }
                    .to_owned(),
            ),
            cpu_id: (arch == "x86_64").then(|| "6/207/2".to_owned()),
            logical_cpus: Some(2),
            threads_per_core: Some(1),
            numa_nodes: Some(1),
            memory_bytes: Some(24_614_140 << 10),
            cgroup_cpus: Some(2.0),
            boot: Some("00112233aabbccdd".to_owned()),
            ..Machine::default()
        },
        device: None,
        ceilings: (!is_gpu).then(|| Ceilings {
            read_bytes_per_second: BANDWIDTH * threads,
            flops_per_second: PEAK * threads,
            caches: match plan.has_caches {
                true => vec![
                    cache("L1", 49_152, 300e9),
                    cache("L2", 2 << 20, 110e9),
                    cache("L3", 16 << 20, 31e9),
                ],
                false => Vec::new(),
            },
            basis: format!(
                "measured before the run: {} thread{}, {}",
                plan.threads,
                if plan.threads == 1 { "" } else { "s" },
                plan.kernels
            ),
            measured: Some("2026-11-21T10:47:58Z".to_owned()),
            memory_spread: None,
        }),
        ceilings_absent: is_gpu.then(|| "nobody measures a GPU's ceilings yet".to_owned()),
        clock: Clock {
            source: if arch == "x86_64" { "tsc" } else { "cntvct_el0" }.to_owned(),
            resolution_ns: Some(9.5),
            reading_ns: Some(10.2),
            drift_ppm: Some(0.4),
        },
        tests,
        overhead: Overhead {
            span_ns: plan.profiled.then_some(21.5),
            spans: if plan.profiled { spans } else { 0 },
            basis: "measured before the run".to_owned(),
        },
        dropped: BTreeMap::new(),
        load: Load {
            before: Some(0.21),
            others_share: Some(0.004),
            steal_share: Some(0.0),
            absent: None,
            doubts: Vec::new(),
        },
        seal: None,
    };
    receipt.load.doubts = derived_doubts(&receipt);
    receipt
}

fn command(plan: &Plan) -> Vec<String> {
    let depths: Vec<String> = plan.depths.iter().map(u64::to_string).collect();
    let mut words =
        vec!["brickscope".to_owned(), "benchmark".to_owned(), "models/1b-q4_k.gguf".to_owned()];
    words.push(format!("--threads={}", plan.threads));
    words.push(format!("--prompt-tokens={}", plan.n_prompt));
    words.extend(["-n".to_owned(), plan.n_gen.to_string(), "-d".to_owned(), depths.join(",")]);
    words.push(format!("-r{}", plan.repetitions));
    if !plan.profiled {
        words.push("--no-profiler".to_owned());
    }
    words
}

fn test(
    plan: &Plan,
    model_bytes: u64,
    (n_prompt, n_gen, n_depth): (u64, u64, u64),
    now: &mut u64,
    random: &mut Random,
) -> Test {
    let tokens = n_prompt + n_gen;
    let passes = if n_gen > 0 { n_gen } else { n_prompt.div_ceil(BATCH) };
    let flops = tokens * 2 * plan.parameters;
    let bytes = passes * model_bytes;
    // Half of what the machine can do, plus what a pass costs in any case.
    let threads = f64::from(plan.threads);
    let work = (flops as f64 / (PEAK * threads)).max(bytes as f64 / (BANDWIDTH * threads)) / 0.5;
    let pass_ns = 1e9 * work / passes as f64 + 30_000.0;
    let filling_ns = pass_ns * n_depth as f64 / 20.0;
    let mut samples = Vec::new();
    for index in 0..plan.warm_up + plan.repetitions {
        *now += random.around(8_000.0 + filling_ns, 2.0 * plan.noise);
        // The first repetition finds cold caches.
        let cold = if index == 0 { 1.3 } else { 1.0 };
        samples.push(sample(plan, (tokens, passes, n_gen), cold * pass_ns, index, now, random));
    }
    let repetitions = u64::from(plan.repetitions);
    let [last_flops, last_bytes] = [flops, bytes].map(|all| all - all / 2);
    let mut kernels: Vec<Kernel> = Vec::new();
    for (_, _, _, operation) in BRICKS {
        let operation = if operation == "gemv" && n_gen == 0 { "gemm" } else { operation };
        let format = match operation {
            "gemv" | "gemm" => format!("_{}", plan.quantization),
            _ => String::new(),
        };
        let id = format!("{operation}{format}_{}", plan.kernels);
        if kernels.iter().all(|kernel| kernel.id != id) {
            let is_matmul = !format.is_empty();
            let is_norm = operation == "rms_norm";
            let share = |half: u64, rest: u64| match (is_matmul, is_norm) {
                (true, _) => half,
                (_, true) => rest,
                _ => 0,
            };
            kernels.push(Kernel {
                id,
                launches: passes * repetitions * if operation == "embed" { 1 } else { LAYERS },
                flops: Some(share(flops / 2, last_flops) * repetitions),
                bytes: Some(share(bytes / 2, last_bytes) * repetitions),
            });
        }
    }
    let depth = if n_depth > 0 { format!(" @ d{n_depth}") } else { String::new() };
    let name = if n_gen > 0 { format!("tg{n_gen}") } else { format!("pp{n_prompt}") };
    let brick = |&(name, category, _, _): &(&str, &str, f64, &str)| Brick {
        name: name.to_owned(),
        category: category.to_owned(),
    };
    Test {
        name: name + &depth,
        n_prompt,
        n_gen,
        n_depth,
        input_sha256: tokens_sha256(&tokens_of(n_depth.max(n_gen.min(1)) + n_prompt)),
        output_sha256: tokens_sha256(&tokens_of(n_gen.max(1))),
        output_tokens: n_gen.max(1),
        bricks: if plan.profiled { BRICKS.iter().map(brick).collect() } else { Vec::new() },
        device_bricks: Vec::new(),
        kernels,
        flops: Some(flops),
        bytes: Some(bytes),
        warm_up: warm_up(&samples),
        aggregates: Aggregates::of(&samples),
        not_finite: None,
        samples,
    }
}

/// Whether the last two of the warm-up agree.
fn warm_up(samples: &[Sample]) -> WarmUp {
    let walls: Vec<f64> =
        samples.iter().filter(|s| s.is_warm_up).map(|s| s.wall_ns as f64).collect();
    let steady = walls.len() >= 2 && {
        let [a, b] = [walls[walls.len() - 2], walls[walls.len() - 1]];
        (a - b).abs() <= 0.1 * a.max(b)
    };
    WarmUp { window: 2, within: 0.1, steady }
}

/// Some tokens.
fn tokens_of(count: u64) -> Vec<u32> {
    (0..count as u32).map(|n| 4 + n * 7).collect()
}

fn sample(
    plan: &Plan,
    (tokens, passes, n_gen): (u64, u64, u64),
    pass_ns: f64,
    index: u32,
    now: &mut u64,
    random: &mut Random,
) -> Sample {
    let start_ns = *now;
    // A repetition as a whole is a bit faster or slower, and each pass is, too.
    let pace = random.around(1e9, plan.noise) as f64 / 1e9;
    let mut brick_ns = vec![0; BRICKS.len()];
    let (mut unattributed_ns, mut passes_ns, mut token_ns) = (0, Vec::new(), Vec::new());
    for _ in 0..passes {
        let mut wall = random.around(2_000.0, 0.3);
        unattributed_ns += wall;
        for (sum, (_, _, share, _)) in brick_ns.iter_mut().zip(BRICKS) {
            let ns = random.around(share * pace * pass_ns + 20.0, 2.0 * plan.noise);
            *sum += ns;
            wall += ns;
        }
        let choosing = random.around(9_000.0, 0.2);
        passes_ns.push(wall);
        token_ns.push(wall + choosing);
        *now += wall + choosing;
    }
    *now += random.around(500.0, 0.5);
    let is_prefill = n_gen == 0;
    Sample {
        index,
        is_warm_up: index < plan.warm_up,
        start_ns,
        end_ns: *now,
        wall_ns: passes_ns.iter().sum(),
        pass_ns: passes_ns,
        tokens,
        first_token_ns: is_prefill.then(|| token_ns.iter().sum()),
        token_ns: if is_prefill { Vec::new() } else { token_ns },
        brick_ns: if plan.profiled { brick_ns } else { Vec::new() },
        unattributed_ns: plan.profiled.then_some(unattributed_ns),
        disturbed: Some(false),
        run_queue_wait_ns: Some(0),
        cpu_khz: None,
        device: None,
    }
}

/// What a forger does after each change, since the code is public: the figures and the doubts, anew, and the seal.
pub(crate) fn resealed(receipt: Receipt) -> Receipt {
    renewed(receipt).sealed().expect("a forger's numbers are numbers, too")
}

/// The figures and the doubts, anew, without a seal.
pub(crate) fn renewed(mut receipt: Receipt) -> Receipt {
    for test in &mut receipt.tests {
        test.aggregates = Aggregates::of(&test.samples);
    }
    let decode = receipt.tests.iter().filter(|test| test.n_gen > 0).min_by_key(|t| t.n_depth);
    receipt.tokens_per_second = decode.and_then(|test| test.aggregates.median_ts);
    for doubt in derived_doubts(&receipt) {
        if !receipt.load.doubts.contains(&doubt) {
            receipt.load.doubts.push(doubt);
        }
    }
    receipt
}
