//! Checks that everything that a receipt says about its machine fits one machine.

use super::kernels::{cpu_instructions, is_quantized};
use super::{Code, Findings, measured, said};
use crate::v1::{Ceilings, Receipt, Test};

/// Checks the parts of the receipt that describe the machine against each other.
pub(super) fn check(receipt: &Receipt, found: &mut Findings) {
    let machine = &receipt.machine;
    let os = format!("{}-{}", machine.os, machine.arch);
    if let Some(stated) = receipt.environment.get("OS").filter(|stated| **stated != os) {
        found.refuse(
            Code::MachinesMixed,
            format!("environment says {}, but the machine is {}", said(stated), said(&os)),
        );
    }
    let version = &receipt.binary.version;
    if let Some(stated) = receipt.environment.get("BRICKSCOPE_VERSION").filter(|s| *s != version) {
        found.refuse(
            Code::MachinesMixed,
            format!(
                "environment says brickscope {}, but the program is {}",
                said(stated),
                said(version)
            ),
        );
    }
    instructions(receipt, found);
    let arch = match receipt.clock.source.as_str() {
        "tsc" => Some("x86"),
        "cntvct_el0" => Some("aarch64"),
        _ => None,
    };
    if arch.is_some_and(|arch| !machine.arch.starts_with(arch)) {
        found.refuse(
            Code::MachinesMixed,
            format!(
                "the clock is {}, which a processor of {} doesn't have",
                said(&receipt.clock.source),
                said(&machine.arch)
            ),
        );
    }
    if receipt.clock.source.to_lowercase().contains("mock") {
        found.refuse(Code::NotReal, "the clock is turned by hand, so its times are made up");
    }
    resolution(receipt, found);
    backend(receipt, found);
    match &receipt.ceilings {
        Some(ceilings) => basis(receipt, ceilings, found),
        None => {
            let reason =
                receipt.ceilings_absent.as_deref().unwrap_or("the receipt doesn't say why");
            let reason =
                format!("no ceilings: {}", brickscope_profile::text::printable_in(reason, 200));
            found.not_checked("that the machine can reach what was measured", reason);
        }
    }
    if receipt.ceilings.is_some() == receipt.ceilings_absent.is_some() {
        found.refuse(
            Code::Field,
            match &receipt.ceilings {
                Some(_) => "the receipt has ceilings and a reason why it has none",
                None => "the receipt has neither ceilings nor a reason why it has none",
            },
        );
    }
}

/// A reading takes this long at least, in nanoseconds, where the receipt doesn't say how long.
const READING_NS: f64 = 25.0;

/// The coarsest that the source's counter is: a processor's time-stamp counter counts faster than 500 MHz, and the
/// generic timer of ARM at 1 MHz or more (Arm Architecture Reference Manual, D12). `None` for the system's clock.
pub(super) fn coarsest(source: &str) -> Option<f64> {
    match source {
        "tsc" => Some(2.0),
        "cntvct_el0" => Some(1000.0),
        _ => None,
    }
}

/// Compares the clock's resolution with what its source can have, and with the times themselves.
///
/// It is the least difference of two readings in a row, so it may be as long as a reading takes while the clock itself
/// is finer.
fn resolution(receipt: &Receipt, found: &mut Findings) {
    let clock = &receipt.clock;
    let Some(stated) = clock.resolution_ns else { return };
    let of_reading = 4.0 * clock.reading_ns.unwrap_or(0.0).max(READING_NS);
    let most = coarsest(&clock.source).map(|ns| of_reading.max(1.1 * ns));
    if let Some(most) = most.filter(|most| stated > *most) {
        found.refuse_about(
            Code::Contradiction,
            "resolution",
            format!(
                "clock.resolution_ns is {stated}, but {}, one reading of which takes {} ns, tells {most} ns apart",
                said(&clock.source),
                clock.reading_ns.map_or("unknown".to_owned(), |ns| ns.to_string())
            ),
        );
    }
    // Readings of a coarse clock are so far apart, or equal; one more is from rounding.
    if let Some(least) = receipt.tests.iter().filter_map(granularity).reduce(f64::min)
        && stated > of_reading
        && least + 2.0 < stated
    {
        found.refuse_about(
            Code::Contradiction,
            "resolution",
            format!("clock.resolution_ns is {stated}, but some passes differ by {least} ns"),
        );
    }
}

/// The least difference between the measured passes of a test, from 3 ns on: less may come from rounding.
pub(super) fn granularity(test: &Test) -> Option<f64> {
    let mut passes: Vec<u64> = measured(test).flat_map(|sample| &sample.pass_ns).copied().collect();
    passes.push(0);
    passes.sort_unstable();
    let differences = passes.windows(2).map(|pair| pair[1] - pair[0]);
    differences.filter(|&ns| ns > 2).min().map(|ns| ns as f64)
}

/// Kernels of a GPU run on one.
fn backend(receipt: &Receipt, found: &mut Findings) {
    let is_gpu = matches!(receipt.run.kernels.as_str(), "cuda" | "wgpu");
    if is_gpu == (receipt.backend == "cpu") {
        found.refuse_about(
            Code::Contradiction,
            "backend",
            format!(
                "backend is {}, but run.kernels is {}",
                said(&receipt.backend),
                said(&receipt.run.kernels)
            ),
        );
    }
}

/// The rank of a CPU instruction set among those that contain each other; `None` for others.
fn rank(set: &str) -> Option<u32> {
    match set {
        "scalar" => Some(0),
        "avx2" => Some(1),
        set if set.starts_with("avx512") => Some(2),
        _ => None,
    }
}

fn instructions(receipt: &Receipt, found: &mut Findings) {
    let (run, arch) = (receipt.run.kernels.as_str(), receipt.machine.arch.as_str());
    let needs = |set: &str| match set {
        _ if set.starts_with("avx") || set.starts_with("sse") || set.starts_with("amx") => {
            Some("x86")
        }
        _ if set.starts_with("neon") || set.starts_with("sve") => Some("aarch64"),
        _ if set.starts_with("rvv") => Some("riscv"),
        _ => None,
    };
    let of_kernels = receipt.kernels.iter().filter_map(|id| Some((id, cpu_instructions(id)?)));
    let mut sets: Vec<(String, String)> = of_kernels.map(|(id, set)| (said(id), set)).collect();
    sets.push(("run.kernels".to_owned(), run.to_owned()));
    for (what, set) in sets {
        if let Some(needed) = needs(&set).filter(|needed| !arch.starts_with(needed)) {
            found.refuse(
                Code::MachinesMixed,
                format!(
                    "{what} needs {}, an instruction set of {needed}, but the machine is {}",
                    said(&set),
                    said(arch)
                ),
            );
        } else if let (Some(of_run), Some(of_kernel)) = (rank(run), rank(&set))
            && of_kernel > of_run
        {
            found.refuse(
                Code::MachinesMixed,
                format!("the run's kernels are {}, but {what} needs {}", said(run), said(&set)),
            );
        }
    }
}

/// Ceilings must be of the run's threads and instructions, `…: 2 threads, avx2`, and of bytes only if the
/// kernels multiply bytes.
fn basis(receipt: &Receipt, ceilings: &Ceilings, found: &mut Findings) {
    let run = &receipt.run;
    let mut are_of_bytes = false;
    let stated = ceilings.basis.rsplit_once(": ").and_then(|(_, with)| {
        let (threads, kernels) = with.split_once(", ")?;
        let floats = kernels.strip_suffix(brickscope_profile::machine::Ceilings::OF_BYTES);
        are_of_bytes = floats.is_some();
        let kernels = floats.unwrap_or(kernels);
        let threads = threads.strip_suffix(" threads").or(threads.strip_suffix(" thread"))?;
        Some((threads.parse::<u32>().ok()?, kernels))
    });
    let Some((threads, kernels)) = stated else {
        return found.not_checked(
            "that the ceilings are of this run's threads",
            format_args!("their basis, {}, doesn't name any", said(&ceilings.basis)),
        );
    };
    if threads != run.threads || kernels != run.kernels {
        found.refuse(
            Code::MachinesMixed,
            format!(
                "the run has {} threads of {}, but its ceilings were measured with {threads} of {}",
                run.threads,
                said(&run.kernels),
                said(kernels)
            ),
        );
    }
    // Of our kernels only those for AVX-512 multiply bytes.
    let multiplies_bytes = |id: &str| {
        is_quantized(id) && cpu_instructions(id).is_some_and(|set| set.starts_with("avx512"))
    };
    let mut kernels = receipt.tests.iter().flat_map(|test| &test.kernels);
    if are_of_bytes
        && !receipt.kernels.is_empty()
        && !kernels.any(|kernel| multiplies_bytes(&kernel.id))
    {
        found.refuse(
            Code::MachinesMixed,
            "its ceilings are of products of bytes, but none of its kernels multiplies bytes",
        );
    }
}
