//! Receipts as processes.

use super::{Brick, Fact, Process, Test, Turn};
use crate::brick::Phase;
use crate::receipt::Receipt;
use crate::receipt::v1;

impl Process {
    /// What a receipt says, without the samples of the warm-up. `name` is what people call it.
    #[must_use]
    pub fn from_receipt(name: &str, receipt: &Receipt) -> Self {
        Self {
            name: name.to_owned(),
            turns: turns(receipt),
            facts: facts(receipt),
            tests: receipt.tests.iter().map(test).collect(),
            doubts: receipt.load.doubts.clone(),
            disturbed: receipt
                .tests
                .iter()
                .flat_map(|test| &test.samples)
                .filter(|sample| !sample.is_warm_up && sample.disturbed == Some(true))
                .count() as u64,
        }
    }
}

/// By its number in its set, which is of use where both sides are one set; and by the time stamp,
/// among all of one boot.
fn turns(receipt: &Receipt) -> Vec<Turn> {
    let run = &receipt.run;
    let in_set = run.set.as_ref().map(|set| (format!("set {set}"), u64::from(run.process)));
    // Digits of RFC 3339 in UTC sort as the times do: to the millisecond, if the stamp has them.
    let digits = receipt.timestamp.chars().filter(char::is_ascii_digit);
    let stamp: String = digits.chain(std::iter::repeat('0')).take(17).collect();
    let boot = receipt.machine.boot.as_ref();
    let in_boot = boot.and_then(|boot| Some((format!("boot {boot}"), stamp.parse().ok()?)));
    in_set.into_iter().chain(in_boot).map(|(among, place)| Turn { among, place }).collect()
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
    });
    Test {
        name: test.name.clone(),
        phase,
        tokens: samples.first().map_or(0, |sample| sample.tokens),
        facts: vec![
            Fact::must(&format!("input of {}", test.name), short(&test.input_sha256)),
            Fact::may(&format!("tokens chosen in {}", test.name), short(&test.output_sha256)),
        ],
        wall_ns: samples.iter().map(|sample| sample.wall_ns).collect(),
        unattributed_ns: samples.iter().filter_map(|sample| sample.unattributed_ns).collect(),
        bricks: bricks.collect(),
    }
}

/// Everything that has an influence on times, and then what is compared or only good to know.
fn facts(receipt: &Receipt) -> Vec<Fact> {
    let Receipt { model, run, machine, binary, .. } = receipt;
    let told = |value: &Option<String>| value.clone().unwrap_or_else(not_told);
    fn number<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(not_told, |value| value.to_string())
    }
    let mut facts = vec![
        Fact::must("measured by", "benchmark"),
        Fact::must("backend", &*receipt.backend),
        Fact::must("model", short(&model.sha256)),
        Fact::must("quantisation", &*model.quantization),
        Fact::must("instruction set", &*run.kernels),
        Fact::must("threads", run.threads.to_string()),
        Fact::must("batch", run.batch.to_string()),
        Fact::must("sampling", &*run.sampling),
        Fact::must("profiler", if run.profiled { "on" } else { "off" }),
        Fact::must("tests", names(&receipt.tests)),
    ];
    facts.extend([
        Fact::must("system", format!("{} {}", machine.os, machine.arch)),
        Fact::must("cpu", told(&machine.cpu)),
        Fact::must("cpu_id", told(&machine.cpu_id)),
        Fact::must("microcode", told(&machine.microcode)),
        Fact::must("logical CPUs", number(machine.logical_cpus)),
        Fact::must("threads per core", number(machine.threads_per_core)),
        Fact::must("NUMA nodes", number(machine.numa_nodes)),
        Fact::must("governor", told(&machine.governor)),
        Fact::must("turbo", number(machine.turbo)),
        Fact::must("memory", number(machine.memory_bytes)),
        Fact::must("kernel", told(&machine.kernel)),
        Fact::must("libc", told(&machine.libc)),
        Fact::must("hypervisor", told(&machine.hypervisor)),
        Fact::must("CPUs of the control group", number(machine.cgroup_cpus)),
        Fact::must("CPU set of the control group", told(&machine.cgroup_cpuset)),
        Fact::must("memory of the control group", number(machine.cgroup_memory_bytes)),
        Fact::must("huge pages", told(&machine.huge_pages)),
        Fact::may("build", build(binary)),
    ]);
    for (name, value) in &receipt.environment {
        // That of the build is said above.
        if name != "BRICKSCOPE_VERSION" {
            facts.push(Fact::may(name, &**value));
        }
    }
    facts.push(Fact::may("repetitions", run.repetitions.to_string()));
    facts.push(Fact::may("clock", &*receipt.clock.source));
    facts.push(Fact::may("boot", told(&machine.boot)));
    facts
}

fn not_told() -> String {
    "not told".to_owned()
}

fn names(tests: &[v1::Test]) -> String {
    tests.iter().map(|test| &*test.name).collect::<Vec<&str>>().join(", ")
}

fn build(binary: &v1::Binary) -> String {
    let hash = binary.sha256.as_deref().map_or_else(|| "unknown".to_owned(), short);
    format!("brickscope {}, {hash}", binary.version)
}

/// As many digits of a hash as tell two apart.
fn short(sha256: &str) -> String {
    sha256.chars().take(12).collect()
}
