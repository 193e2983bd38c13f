//! Receipts as processes.

use std::collections::BTreeMap;

use brickscope_profile::Phase;
use brickscope_profile::save::{parse_rfc3339, unix_seconds};
use brickscope_receipt::{Receipt, v1};

use super::inside::Inside;
use super::{Brick, Fact, Process, Sample, Test, Turn};

impl Process {
    /// A process made from a receipt, without the samples of the warm-up. `name` is for people.
    #[must_use]
    pub fn from_receipt(name: &str, receipt: &Receipt) -> Self {
        Self {
            name: name.to_owned(),
            turns: turns(receipt),
            facts: facts(receipt),
            tests: receipt.tests.iter().map(test).collect(),
            doubts: receipt.load.doubts.clone(),
            not_verified: None,
            seconds: seconds(&receipt.timestamp),
            ranks: None,
            kernels: BTreeMap::new(),
            disturbed: receipt
                .tests
                .iter()
                .flat_map(|test| &test.samples)
                .filter(|sample| !sample.is_warm_up && sample.disturbed == Some(true))
                .count() as u64,
        }
    }
}

/// Its place by its number in its set, which helps if both sides are one set, and by its time stamp among
/// all of one boot.
fn turns(receipt: &Receipt) -> Vec<Turn> {
    let set = receipt.run.set.as_deref().map(|set| (set, receipt.run.process));
    Turn::stated(set, receipt.machine.boot.as_deref(), &receipt.timestamp)
}

/// Seconds since 1970 of an RFC 3339 time in UTC, with its fraction.
fn seconds(timestamp: &str) -> Option<f64> {
    let (whole, fraction) = parse_rfc3339(timestamp)?;
    let whole = unix_seconds(&format!("{whole}Z"))? as f64;
    Some(whole + format!("0.{fraction}0").parse::<f64>().ok()?)
}

fn test(test: &v1::Test) -> Test {
    let samples: Vec<&v1::Sample> =
        test.samples.iter().filter(|sample| !sample.is_warm_up).collect();
    let phase = match (test.n_prompt, test.n_gen) {
        (_, 0) => Some(Phase::Prefill),
        (0, _) => Some(Phase::Decode),
        _ => None,
    };
    let bricks = test.bricks.iter().enumerate().map(|(index, brick)| Brick {
        name: brick.name.clone(),
        category: brick.category.clone(),
        ns: samples.iter().filter_map(|sample| sample.brick_ns.get(index).copied()).collect(),
        bytes: Vec::new(),
    });
    Test {
        name: test.name.clone(),
        phase,
        tokens: samples.first().map_or(0, |sample| sample.tokens),
        sample: Sample::Repetition,
        facts: facts_of_test(test),
        wall_ns: samples.iter().map(|sample| sample.wall_ns).collect(),
        unattributed_ns: samples.iter().filter_map(|sample| sample.unattributed_ns).collect(),
        bricks: bricks.collect(),
        inside: Inside::default(),
    }
}

pub(super) fn facts_of_test(test: &v1::Test) -> Vec<Fact> {
    vec![
        Fact::must(&format!("input of {}", test.name), short(&test.input_sha256)),
        Fact::may(&format!("tokens chosen in {}", test.name), short(&test.output_sha256)),
    ]
}

/// The fact that names the tests.
pub(super) const TESTS: &str = "tests";

/// First everything that influences times, then what is compared or only informative.
pub(super) fn facts(receipt: &Receipt) -> Vec<Fact> {
    let Receipt { model, run, machine, binary, .. } = receipt;
    let stated = |value: &Option<String>| value.clone().unwrap_or_else(not_stated);
    fn number<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(not_stated, |value| value.to_string())
    }
    let mut facts = vec![
        Fact::must("measured by", "benchmark"),
        Fact::must("backend", &*receipt.backend),
        Fact::model("model", short(&model.sha256)),
        Fact::model("quantisation", &*model.quantization),
        Fact::must("instruction set", &*run.kernels),
        Fact::must("threads", run.threads.to_string()),
        Fact::must("batch", run.batch.to_string()),
        Fact::must("sampling", &*run.sampling),
        Fact::must("profiler", if run.profiled { "on" } else { "off" }),
        Fact::must(TESTS, names(&receipt.tests)),
    ];
    facts.extend([
        Fact::machine("system", format!("{} {}", machine.os, machine.arch)),
        Fact::machine("cpu", stated(&machine.cpu)),
        Fact::machine("cpu_id", stated(&machine.cpu_id)),
        Fact::may("microcode", stated(&machine.microcode)),
        Fact::machine("logical CPUs", number(machine.logical_cpus)),
        Fact::machine("threads per core", number(machine.threads_per_core)),
        Fact::machine("NUMA nodes", number(machine.numa_nodes)),
        Fact::machine("governor", stated(&machine.governor)),
        Fact::machine("turbo", number(machine.turbo)),
        Fact::machine("memory", gib(machine.memory_bytes)),
        Fact::may("kernel", stated(&machine.kernel)),
        Fact::may("libc", stated(&machine.libc)),
        Fact::machine("hypervisor", stated(&machine.hypervisor)),
        Fact::machine("CPUs of the control group", number(machine.cgroup_cpus)),
        Fact::machine("CPU set of the control group", stated(&machine.cgroup_cpuset)),
        Fact::machine("memory of the control group", gib(machine.cgroup_memory_bytes)),
        Fact::machine("huge pages", stated(&machine.huge_pages)),
        Fact::may("build", build(binary)),
    ]);
    if let Some(device) = &receipt.device {
        facts.extend([
            Fact::must("device", &*device.name),
            Fact::must("interface of the device", &*device.api),
            Fact::machine("memory of the device", gib(device.memory_bytes)),
            Fact::may("driver of the device", stated(&device.driver)),
        ]);
    }
    for (name, value) in &receipt.environment {
        // The version is in the build above.
        if name != "BRICKSCOPE_VERSION" {
            facts.push(Fact::may(name, &**value));
        }
    }
    facts.push(Fact::may("repetitions", run.repetitions.to_string()));
    facts.push(Fact::may("clock", &*receipt.clock.source));
    facts.push(Fact::may("boot", stated(&machine.boot)));
    facts
}

/// A reboot or another kernel changes the usable part of the same memory a little.
fn gib(bytes: Option<u64>) -> String {
    let gib = |bytes: u64| (bytes as f64 / (1_u64 << 30) as f64).round();
    bytes.map_or_else(not_stated, |bytes| format!("{} GiB", gib(bytes)))
}

fn not_stated() -> String {
    "not stated".to_owned()
}

fn names(tests: &[v1::Test]) -> String {
    tests.iter().map(|test| &*test.name).collect::<Vec<&str>>().join(", ")
}

fn build(binary: &v1::Binary) -> String {
    let hash = binary.sha256.as_deref().map_or_else(|| "unknown".to_owned(), short);
    format!("brickscope {}, {hash}", binary.version)
}

/// Enough digits of a hash to tell two apart.
fn short(sha256: &str) -> String {
    sha256.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::compare::Weight;

    fn receipt() -> Receipt {
        let sample = |index: u32, wall_ns: u64| v1::Sample {
            index,
            is_warm_up: index == 0,
            wall_ns,
            tokens: 16,
            brick_ns: vec![wall_ns - 5, 4],
            unattributed_ns: Some(1),
            disturbed: Some(index == 0 || index == 2),
            ..v1::Sample::default()
        };
        let brick = |name: &str| v1::Brick { name: name.to_owned(), category: "FFN".to_owned() };
        Receipt {
            schema_version: v1::VERSION.to_owned(),
            timestamp: "2026-11-21T10:51:28.5Z".to_owned(),
            compute_path: "real".to_owned(),
            backend: "cpu".to_owned(),
            deterministic: true,
            tokens_requested: 16,
            tokens_generated: 16,
            tokens_per_second: None,
            kernels: Vec::new(),
            environment: BTreeMap::from([("RUST_VERSION".to_owned(), "1.90".to_owned())]),
            model: v1::Model { sha256: "ab".repeat(32), ..v1::Model::default() },
            run: v1::Run {
                set: Some("s".to_owned()),
                process: 7,
                threads: 2,
                ..v1::Run::default()
            },
            binary: v1::Binary::default(),
            machine: v1::Machine { boot: Some("b".to_owned()), ..v1::Machine::default() },
            device: None,
            ceilings: None,
            ceilings_absent: None,
            clock: v1::Clock::default(),
            tests: vec![v1::Test {
                name: "tg16".to_owned(),
                n_gen: 16,
                bricks: vec![brick("GateProjection"), brick("UpProjection")],
                samples: vec![sample(0, 900), sample(1, 100), sample(2, 110)],
                ..v1::Test::default()
            }],
            overhead: v1::Overhead::default(),
            dropped: BTreeMap::new(),
            load: v1::Load { doubts: vec!["busy".to_owned()], ..v1::Load::default() },
            seal: None,
        }
    }

    #[test]
    fn the_warm_up_is_left_out_and_all_else_is_there() {
        let process = Process::from_receipt("r.json", &receipt());
        let test = &process.tests[0];
        assert_eq!((test.phase, test.tokens), (Some(Phase::Decode), 16));
        assert_eq!((&test.wall_ns, &test.unattributed_ns), (&vec![100, 110], &vec![1, 1]));
        assert_eq!((&*test.bricks[0].name, &test.bricks[0].ns), ("GateProjection", &vec![95, 105]));
        assert_eq!((process.disturbed, &*process.doubts), (1, &["busy".to_owned()][..]));
        let place = |among: &str, place| Turn { among: among.to_owned(), place };
        assert_eq!(process.turns, [place("set s", 7), place("boot b", 20_261_121_105_128_500)]);
    }

    #[test]
    fn times_of_receipts_are_seconds_since_1970() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(seconds("2000-03-01T00:00:01.5Z"), Some(951_868_801.5));
        assert_eq!(seconds("2026-11-24T03:50:00Z"), Some(1_795_492_200.0));
        for not in [
            "",
            "2026-11-24",
            "2026-13-24T03:50:00Z",
            "0-0-0T0:0:0Z",
            "2026-11-24T03:50Z",
            "2026-11-24TNaN:50:00Z",
            "2026-11-24T03:50:infZ",
            "2026-11-24T25:00:00Z",
            "2026-11-9223372036854775807T03:50:00Z",
            "-9223372036854775808-11-24T03:50:00Z",
        ] {
            assert_eq!(seconds(not), None, "{not}");
        }
    }

    #[test]
    fn the_build_may_differ_and_the_conditions_must_not() {
        let process = Process::from_receipt("r.json", &receipt());
        let weight = |name: &str| {
            let fact = process.facts.iter().find(|fact| fact.name == name);
            fact.unwrap_or_else(|| panic!("no {name}")).weight
        };
        for name in ["model", "quantisation"] {
            assert_eq!(weight(name), Weight::Model, "{name}");
        }
        for name in ["threads", "instruction set", "batch"] {
            assert_eq!(weight(name), Weight::Must, "{name}");
        }
        for name in ["cpu", "governor", "memory"] {
            assert_eq!(weight(name), Weight::Machine, "{name}");
        }
        for name in ["build", "RUST_VERSION", "boot", "clock", "kernel", "libc", "microcode"] {
            assert_eq!(weight(name), Weight::May, "{name}");
        }
        let mut names: Vec<&str> = process.facts.iter().map(|fact| &*fact.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "a name that two facts share would compare only one of them");
    }
}
