//! Receipts that were never measured: what a benchmark of a small model would say.

use std::collections::BTreeMap;

use brickscope_analysis::history::MACHINE;
use brickscope_analysis::receipt::Aggregates;
use brickscope_analysis::receipt::v1::{
    Binary, Brick, Clock, Load, Machine, Model, Overhead, Receipt, Run, Sample, Test, VERSION,
    WarmUp,
};

/// What is told of a made receipt; the rest is the same in all.
#[derive(Debug, Clone)]
pub struct Made {
    /// The day of 2026 from 0, and the minute in it.
    pub when: (u32, u32),
    /// Decoded tokens per second of each repetition.
    pub rates: Vec<f64>,
    /// The part of a decode sample's time that is QkvProjection's, the rest being LmHead's but for a
    /// microsecond a token; `None` for a run without a profiler.
    pub projection: Option<f64>,
    /// The program.
    pub binary: u8,
    /// The set, the process in it, and how many it has.
    pub set: Option<(&'static str, u32, u32)>,
    /// Which boot of the machine.
    pub boot: u8,
    /// The machine's name.
    pub machine: Option<String>,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            when: (0, 0),
            rates: vec![300.0, 299.0, 301.0, 300.5, 299.5],
            projection: Some(0.6),
            binary: 1,
            set: None,
            boot: 1,
            machine: None,
        }
    }
}

/// Tokens of a decode sample.
const TOKENS: u64 = 16;

impl Made {
    /// What a benchmark with this result would have written.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        let (day, minute) = self.when;
        let timestamp = format!(
            "2026-{:02}-{:02}T{:02}:{:02}:00Z",
            1 + day / 28,
            1 + day % 28,
            minute / 60,
            minute % 60
        );
        let test = self.test();
        let mut environment = BTreeMap::from([("RUST_VERSION".to_owned(), "1.95.0".to_owned())]);
        let machine = self.machine.iter().map(|name| (MACHINE.to_owned(), name.clone()));
        environment.extend(machine);
        Receipt {
            schema_version: VERSION.to_owned(),
            timestamp,
            compute_path: "real".to_owned(),
            backend: "cpu".to_owned(),
            deterministic: true,
            tokens_requested: TOKENS,
            tokens_generated: TOKENS,
            tokens_per_second: test.aggregates.median_ts,
            kernels: vec!["gemv_q8_0_avx2".to_owned()],
            environment,
            model: Model {
                path: "models/110m.gguf".to_owned(),
                sha256: "5f".repeat(32),
                bytes: 117_000_000,
                name: Some("brickscope-synth-110m".to_owned()),
                architecture: "llama".to_owned(),
                quantization: "q8_0".to_owned(),
                parameters: 110_000_000,
                layers: 12,
                synthetic: true,
            },
            run: Run {
                command: vec!["brickscope".to_owned(), "benchmark".to_owned()],
                kernels: "avx2".to_owned(),
                threads: 2,
                batch: 512,
                sampling: "greedy".to_owned(),
                seed: 42,
                repetitions: self.rates.len() as u32,
                process: self.set.map_or(1, |(_, process, _)| process),
                processes: self.set.map_or(1, |(.., processes)| processes),
                set: self.set.map(|(set, ..)| set.to_owned()),
                profiled: self.projection.is_some(),
            },
            binary: Binary {
                version: "0.1.0".to_owned(),
                sha256: Some(format!("{:02x}", self.binary).repeat(32)),
            },
            device: None,
            machine: Machine {
                os: "linux".to_owned(),
                arch: "x86_64".to_owned(),
                cpu: Some("AMD EPYC".to_owned()),
                cpu_id: Some("25/1/1".to_owned()),
                logical_cpus: Some(2),
                threads_per_core: Some(1),
                memory_bytes: Some(25 << 30),
                hypervisor: Some("kvm".to_owned()),
                boot: Some(format!("{:02x}", self.boot).repeat(8)),
                ..Machine::default()
            },
            ceilings: None,
            ceilings_absent: Some("not measured".to_owned()),
            clock: Clock { source: "tsc".to_owned(), ..Clock::default() },
            tests: vec![test],
            overhead: Overhead::default(),
            dropped: BTreeMap::new(),
            load: Load::default(),
            seal: None,
        }
    }

    fn test(&self) -> Test {
        let mut start = 1_000_000;
        let sample = |(index, rate): (usize, &f64)| {
            let wall_ns = (TOKENS as f64 * 1e9 / rate).round() as u64;
            let rest = TOKENS * 1_000;
            let projection = self.projection.map(|part| (wall_ns as f64 * part) as u64);
            let sample = Sample {
                index: index as u32,
                start_ns: start,
                end_ns: start + wall_ns,
                wall_ns,
                pass_ns: vec![wall_ns],
                tokens: TOKENS,
                brick_ns: projection.map_or(Vec::new(), |ns| vec![ns, wall_ns - rest - ns]),
                unattributed_ns: projection.map(|_| rest),
                disturbed: Some(false),
                ..Sample::default()
            };
            start = sample.end_ns;
            sample
        };
        let samples: Vec<Sample> = self.rates.iter().enumerate().map(sample).collect();
        let brick = |name: &str, category: &str| Brick {
            name: name.to_owned(),
            category: category.to_owned(),
        };
        let bricks = vec![brick("QkvProjection", "Attention"), brick("LmHead", "Other")];
        Test {
            name: "tg16".to_owned(),
            n_gen: TOKENS,
            output_tokens: TOKENS,
            bricks: self.projection.map_or(Vec::new(), |_| bricks),
            warm_up: WarmUp { window: 3, within: 0.05, steady: true },
            aggregates: Aggregates::of(&samples),
            samples,
            ..Test::default()
        }
    }
}

/// Thirty days of one benchmark a day with half a percent of noise that is made, too. On day 18 the
/// projections become slower by a tenth, with another program and another boot.
pub fn month() -> Vec<Made> {
    let noise = |day: u32| f64::from((day * 7 + day * day * 3) % 11) / 11.0 - 0.5;
    (0..30)
        .map(|day| {
            let rate = if day < 18 { 300.0 } else { 283.0 } * (1.0 + 0.01 * noise(day));
            Made {
                when: (day, 600),
                rates: [-0.002, 0.0, 0.001, -0.001, 0.002].map(|off| rate * (1.0 + off)).to_vec(),
                projection: Some(if day < 18 { 0.6 } else { 0.6228 }),
                binary: if day < 18 { 1 } else { 2 },
                boot: if day < 18 { 1 } else { 2 },
                ..Made::default()
            }
        })
        .collect()
}
