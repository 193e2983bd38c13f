//! Checks that the machine of a receipt can exist: what its system, its processor and its limits say fits together.

use brickscope_profile::save::unix_seconds;

use super::{Code, Findings, measured, said};
use crate::v1::Receipt;

/// Sources of time, as clocks name them.
const SOURCES: [&str; 4] = ["tsc", "cntvct_el0", "os", "mock"];

/// More threads than one core of a processor of an architecture runs at once.
const MOST_PER_CORE: [(&str, u32); 2] = [("x86", 4), ("aarch64", 4)];

/// More NUMA nodes than Linux knows (`MAX_NUMNODES`). How many CPUs of them a process may use says nothing of their number.
const MOST_NODES: u32 = 1024;

/// Between ceilings and run lie minutes; with a machine that slept, hours.
const DAY: u64 = 86_400;

/// Checks what is said of the machine against itself.
pub(super) fn check(receipt: &Receipt, found: &mut Findings) {
    system(receipt, found);
    processor(receipt, found);
    limits(receipt, found);
    clock(receipt, found);
    ceilings(receipt, found);
}

/// What only Linux tells is of Linux, and its C library is the one that the program was built for.
fn system(receipt: &Receipt, found: &mut Findings) {
    let machine = &receipt.machine;
    let mut refuse = |sentence: String| found.refuse_about(Code::MachinesMixed, "system", sentence);
    if !matches!(machine.os.as_str(), "linux" | "android") {
        let samples = || receipt.tests.iter().flat_map(|test| &test.samples);
        let of_linux = [
            ("machine.cpu_id", machine.cpu_id.is_some()),
            ("machine.microcode", machine.microcode.is_some()),
            ("machine.threads_per_core", machine.threads_per_core.is_some()),
            ("machine.numa_nodes", machine.numa_nodes.is_some()),
            ("machine.governor", machine.governor.is_some()),
            ("machine.turbo", machine.turbo.is_some()),
            ("machine.kernel", machine.kernel.is_some()),
            ("machine.libc", machine.libc.is_some()),
            ("machine.cgroup_cpus", machine.cgroup_cpus.is_some()),
            ("machine.cgroup_cpuset", machine.cgroup_cpuset.is_some()),
            ("machine.cgroup_memory_bytes", machine.cgroup_memory_bytes.is_some()),
            ("machine.huge_pages", machine.huge_pages.is_some()),
            ("machine.swap_used_bytes", machine.swap_used_bytes.is_some()),
            ("machine.boot", machine.boot.is_some()),
            ("run_queue_wait_ns", samples().any(|sample| sample.run_queue_wait_ns.is_some())),
            ("cpu_khz", samples().any(|sample| sample.cpu_khz.is_some())),
        ];
        if let Some((name, _)) = of_linux.iter().find(|(_, is_there)| *is_there) {
            refuse(format!(
                "{name} is known, which only Linux tells, but machine.os is {}",
                said(&machine.os)
            ));
        }
        return;
    }
    let version = |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.');
    if let Some(kernel) = machine.kernel.as_deref().filter(|kernel| !version(kernel)) {
        refuse(format!("machine.kernel is {}, which no release of Linux is called", said(kernel)));
    }
    let Some(libc) = machine.libc.as_deref() else { return };
    let (name, rest) = libc.split_once(' ').unwrap_or((libc, ""));
    let is_known = match name {
        "glibc" => version(rest),
        "musl" => rest.is_empty() || version(rest),
        _ => false,
    };
    if !is_known {
        return refuse(format!(
            "machine.libc is {}, but a program of Linux has glibc and its version, or musl",
            said(libc)
        ));
    }
    let target = receipt.environment.get("TARGET").map(String::as_str).unwrap_or_default();
    let built_for = [("-musl", "musl"), ("-gnu", "glibc")].into_iter();
    let built_for = built_for.filter(|(abi, _)| target.contains(abi)).map(|(_, libc)| libc).next();
    if built_for.is_some_and(|built_for| built_for != name) {
        refuse(format!(
            "machine.libc is {}, but the environment says that the program was built for {}",
            said(libc),
            said(target)
        ));
    }
}

/// Names of processors of an architecture, in lower case: makers and families that have no other one.
const MADE: [(&str, &[&str]); 2] = [
    ("x86", &["intel", "amd ", "xeon", "epyc", "ryzen", "athlon", "opteron", "pentium", "celeron"]),
    (
        "aarch64",
        &[
            "neoverse",
            "cortex-",
            "ampere",
            "graviton",
            "apple m",
            "kunpeng",
            "thunderx",
            "snapdragon",
            "grace",
        ],
    ),
];

fn processor(receipt: &Receipt, found: &mut Findings) {
    let machine = &receipt.machine;
    let arch = machine.arch.as_str();
    let mut refuse =
        |sentence: String| found.refuse_about(Code::MachinesMixed, "processor", sentence);
    let cpu = machine.cpu.as_deref().unwrap_or_default();
    let name = cpu.to_lowercase();
    let of = MADE.iter().find(|(_, names)| names.iter().any(|part| name.contains(part)));
    if let Some((made, _)) = of.filter(|(made, _)| !arch.starts_with(made)) {
        refuse(format!(
            "machine.cpu is {}, a processor of {made}, but machine.arch is {}",
            said(cpu),
            said(arch)
        ));
    }
    if let Some(id) = &machine.cpu_id {
        let parts: Option<Vec<u32>> = id.split('/').map(|part| part.parse().ok()).collect();
        match parts.as_deref() {
            Some(&[family, _, _]) => {
                // Intel's families end at 19 (Software Developer's Manual, volume 4); AMD's begin anew at 15.
                let is_other = (name.contains("intel") && family > 20)
                    || (name.contains("amd ") && family < 15);
                if is_other {
                    refuse(format!(
                        "machine.cpu is {}, but machine.cpu_id is {}: its maker has no family {family}",
                        said(cpu),
                        said(id)
                    ));
                }
            }
            _ => refuse(format!("machine.cpu_id is {}, but it is family/model/stepping", said(id))),
        }
        if arch.starts_with("aarch64") {
            let sentence = format!(
                "machine.cpu_id is {}, but processors of {} have none",
                said(id),
                said(arch)
            );
            refuse(sentence);
        }
    }
    let most = MOST_PER_CORE.iter().find(|(of, _)| arch.starts_with(of)).map(|(_, most)| *most);
    if let (Some(threads), Some(most)) = (machine.threads_per_core, most)
        && threads > most
    {
        refuse(format!(
            "machine.threads_per_core is {threads}, but no core of {} runs more than {most}",
            said(arch)
        ));
    }
}

/// How many CPUs are in a list such as `0-3,8`; `None` if it is none.
fn count(list: &str) -> Option<u64> {
    list.trim().split(',').try_fold(0_u64, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        sum.checked_add(u64::from(last.checked_sub(first)?) + 1)
    })
}

/// The processors that a process may use are among those of its control group, and no more than its quota.
fn limits(receipt: &Receipt, found: &mut Findings) {
    let machine = &receipt.machine;
    let mut refuse = |sentence: String| found.refuse_about(Code::Contradiction, "limits", sentence);
    let set = machine.cgroup_cpuset.as_deref();
    if let Some(list) = set.filter(|list| count(list).is_none()) {
        refuse(format!("machine.cgroup_cpuset is {}, which is no list of CPUs", said(list)));
    }
    let in_set = set.and_then(count);
    if let Some(cpus) = machine.logical_cpus {
        if let Some(in_set) = in_set.filter(|&in_set| u64::from(cpus) > in_set) {
            refuse(format!(
                "machine.logical_cpus is {cpus}, but machine.cgroup_cpuset has {in_set}: {}",
                said(set.unwrap_or_default())
            ));
        }
        // Rust and we may see different groups of a container, so an honest one can say so, too.
        if let Some(quota) =
            machine.cgroup_cpus.filter(|quota| f64::from(cpus) > quota.ceil().max(1.0))
        {
            found.verdict.doubts.push(format!(
                "machine.logical_cpus is {cpus}, but the control group grants the time of {quota}"
            ));
        }
    }
    if let Some(nodes) = machine.numa_nodes.filter(|&nodes| nodes > MOST_NODES) {
        found.refuse_about(
            Code::Contradiction,
            "limits",
            format!("machine.numa_nodes is {nodes}, but Linux has at most {MOST_NODES}"),
        );
    }
}

/// The clock's source is one, and its readings are shorter than what they time.
fn clock(receipt: &Receipt, found: &mut Findings) {
    let clock = &receipt.clock;
    if !SOURCES.contains(&clock.source.as_str()) {
        found.refuse(
            Code::Field,
            format!(
                "clock.source is {}, but it can only be one of {}",
                said(&clock.source),
                SOURCES[..3].join(", ")
            ),
        );
    }
    let passes = receipt.tests.iter().flat_map(measured).flat_map(|sample| &sample.pass_ns);
    if let (Some(reading), Some(&shortest)) = (clock.reading_ns, passes.min())
        && reading > shortest as f64
    {
        found.refuse_about(
            Code::Contradiction,
            "reading",
            format!(
                "clock.reading_ns is {reading}, but a pass between two readings took {shortest} ns"
            ),
        );
    }
}

/// Ceilings that were measured before the run are of the same day.
fn ceilings(receipt: &Receipt, found: &mut Findings) {
    let Some(ceilings) = &receipt.ceilings else { return };
    if !ceilings.basis.starts_with("measured before the run") {
        return;
    }
    let measured = ceilings.measured.as_deref().unwrap_or_default();
    let times = unix_seconds(measured).zip(unix_seconds(&receipt.timestamp));
    // What the samples took, which may be days.
    let samples = || receipt.tests.iter().flat_map(|test| &test.samples);
    let first = samples().map(|sample| sample.start_ns).min().unwrap_or(0);
    let last = samples().map(|sample| sample.end_ns).max().unwrap_or(0);
    let most = DAY.saturating_add(last.saturating_sub(first) / 1_000_000_000);
    if times.is_some_and(|(measured, ended)| ended > measured.saturating_add(most)) {
        found.refuse_about(
            Code::Contradiction,
            "ceilings",
            format!(
                "the ceilings were measured at {}, right before a run that ended at {}, more than a day and its samples later",
                said(measured),
                said(&receipt.timestamp)
            ),
        );
    }
}
