//! The timestamp counter, and the clock that measures times.

use std::fs;

use brickscope::Clock;

use super::Finding;

const SOURCES: &str = "/sys/devices/system/clocksource/clocksource0";

/// Whether the processor has a counter that runs at a constant rate.
pub(super) fn counter() -> Finding {
    if cfg!(target_arch = "aarch64") {
        return Finding::good("tsc", "cntvct_el0, constant by the architecture");
    }
    let read = |name: &str| fs::read_to_string(format!("{SOURCES}/{name}")).unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    judge(&cpuinfo, read("current_clocksource").trim(), &read("available_clocksource"))
}

fn judge(cpuinfo: &str, current: &str, available: &str) -> Finding {
    const NAME: &str = "tsc";
    let Some(flags) = flags(cpuinfo) else {
        return Finding::bad(
            NAME,
            "unknown: no flags in /proc/cpuinfo",
            "run on Linux on x86-64; elsewhere times come from the system's clock",
        );
    };
    // The kernel's name for CPUID 0x80000007, EDX bit 8.
    if !flags.contains(&"nonstop_tsc") {
        return Finding::bad(
            NAME,
            format!("not invariant; the kernel's clock is {current}"),
            "in a VM, let the host expose it (QEMU: `-cpu host,+invtsc`)",
        );
    }
    let trusted = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"].contains(&current);
    if trusted {
        Finding::good(NAME, format!("invariant; the kernel's clock is {current}"))
    } else if available.split_whitespace().any(|source| source == "tsc") {
        Finding::bad(
            NAME,
            format!("invariant, but the kernel's clock is {current}"),
            format!("echo tsc | sudo tee {SOURCES}/current_clocksource"),
        )
    } else {
        Finding::bad(
            NAME,
            format!("invariant, but the kernel distrusts it and uses `{current}`"),
            "`sudo dmesg | grep -i tsc` shows why; a firmware update often helps",
        )
    }
}

fn flags(cpuinfo: &str) -> Option<Vec<&str>> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("flags"))?;
    Some(line.split_once(':')?.1.split_whitespace().collect())
}

/// The smallest step of the clock, and the cost of reading it.
pub(super) fn resolution() -> Finding {
    // With larger steps, bricks of a microsecond can't be measured.
    const COARSE_NS: u64 = 100;
    let info = Clock::default().describe();
    let read = info.read_ns.map_or(String::new(), |ns| format!(", {ns:.0} ns per reading"));
    match info.resolution_ns {
        Some(ns) => {
            let found = format!("{}: steps of {ns} ns{read}", info.source);
            if ns <= COARSE_NS {
                Finding::good("clock", found)
            } else {
                Finding::bad(
                    "clock",
                    found,
                    "switch the kernel to a finer clock: see the line `tsc`",
                )
            }
        }
        None => Finding::bad(
            "clock",
            format!("{}: it stood still in all readings", info.source),
            "switch the kernel to a finer clock: see the line `tsc`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc avx2\n";

    #[test]
    fn a_counter_is_good_if_it_is_invariant_and_the_kernel_trusts_it() {
        assert!(judge(GOOD, "tsc", "tsc hpet").ok);
        let idle = judge(GOOD, "hpet", "tsc hpet acpi_pm\n");
        assert!(idle.fix.expect("a fix").starts_with("echo tsc | sudo tee /sys/"));
        let distrusted = judge(GOOD, "hpet", "hpet acpi_pm\n");
        assert!(distrusted.found.contains("distrusts") && distrusted.fix.is_some());
        let variant = judge("flags : fpu tsc constant_tsc\n", "tsc", "tsc");
        assert!(!variant.ok && variant.found.contains("not invariant"));
        let unknown = judge("Features : fp asimd\n", "", "");
        assert!(!unknown.ok && unknown.found.contains("unknown"));
    }
}
