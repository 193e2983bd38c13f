//! What this machine is, and how fast it can be: its description, load, limits, hardware counters and
//! measured peaks.

mod caches;
#[cfg(feature = "kernels")]
mod ceilings;
mod cgroup;
mod counters;
mod details;
mod frequency;
mod list;
mod load;
#[cfg(feature = "kernels")]
mod meter;
pub(crate) mod os;
#[cfg(feature = "kernels")]
mod pace;

use std::fs;

#[doc(no_inline)]
pub use brickscope_profile::machine::*;
pub use caches::caches;
#[cfg(feature = "kernels")]
pub use ceilings::{
    ceilings_of_threads, measure_ceilings, measure_limits, measure_memory, measure_survey,
    survey_steps, survey_thread_counts,
};
pub use cgroup::CpuLimit;
pub(crate) use counters::{Counters, ReadCounters};
pub use counters::{Missing, probe_counters, probe_sampling};
pub use details::MachineDetails;
pub(crate) use details::boot_id;
pub use frequency::cpu_frequency_khz;
pub use load::LoadWatch;
pub(crate) use load::{LoadMeter, LoadReading};
#[cfg(feature = "kernels")]
pub use pace::measure_paces;

/// This machine, as the operating system describes it. What it doesn't say is `None`.
#[must_use]
pub fn detect() -> Machine {
    let cpuinfo = of_this_arch(fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Machine {
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        cpu: field(&cpuinfo, "model name").map(str::to_owned),
        logical_cpus: std::thread::available_parallelism()
            .ok()
            .and_then(|cpus| u32::try_from(cpus.get()).ok()),
        memory_bytes: kilobytes(&meminfo, "MemTotal"),
    }
}

/// What the system says of its processors, unless that is of another architecture: under an emulator of programs (`qemu-user`)
/// it is the host's.
fn of_this_arch(cpuinfo: String) -> String {
    let is_x86 = cfg!(any(target_arch = "x86", target_arch = "x86_64"));
    let makers = ["GenuineIntel", "AuthenticAMD", "HygonGenuine", "CentaurHauls"];
    let is_of_x86 = field(&cpuinfo, "vendor_id").is_some_and(|maker| makers.contains(&maker));
    if is_of_x86 && !is_x86 { String::new() } else { cpuinfo }
}

/// Bytes of memory available without swapping, if the system reports it.
#[cfg(feature = "kernels")]
fn available_memory() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

/// The value of a line `name : value kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The value of the first line `name : value`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_linux_writes_them() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\nMemTotal:       24614140 kB\n";
        assert_eq!(field(text, "model name"), Some("AMD EPYC"));
        assert_eq!(kilobytes(text, "MemTotal"), Some(24_614_140 * 1024));
        assert_eq!(kilobytes(text, "model name"), None);
        assert_eq!(field(text, "cpu"), None);
    }

    #[test]
    fn this_machine_has_an_architecture() {
        assert_eq!(detect().arch, std::env::consts::ARCH);
    }
}
