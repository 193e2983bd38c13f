//! The current frequency of a CPU, if the system knows it.

use std::fs;

use super::field;

/// The frequency of the CPU that this thread last ran on, in kHz; `None` if the system doesn't report it.
///
/// From `scaling_cur_freq`, or else from the line `cpu MHz` of `/proc/cpuinfo`, if that is measured. In a
/// virtual machine that line is what the host's firmware states, whatever the CPU does, so it isn't used
/// there.
#[must_use]
pub fn cpu_frequency_khz() -> Option<u64> {
    let cpu = last_cpu(&fs::read_to_string("/proc/thread-self/stat").ok()?)?;
    let scaling = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
    match fs::read_to_string(scaling) {
        Ok(text) => text.trim().parse().ok().filter(|&khz| khz > 0),
        Err(_) => of_cpuinfo(&fs::read_to_string("/proc/cpuinfo").ok()?, cpu),
    }
}

/// The 39th field of `/proc/<pid>/stat`: the CPU last executed on.
fn last_cpu(stat: &str) -> Option<u32> {
    // The second field is the program's name in parentheses, which may contain anything.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(39 - 3)?.parse().ok()
}

fn of_cpuinfo(cpuinfo: &str, cpu: u32) -> Option<u64> {
    let mut blocks = cpuinfo.split("\n\n");
    let number = cpu.to_string();
    let block = blocks.find(|block| field(block, "processor") == Some(number.as_str()))?;
    let flags = field(block, "flags")?;
    let has = |flag| flags.split_whitespace().any(|has| has == flag);
    // The kernel measures it only with these two registers.
    if !has("aperfmperf") || has("hypervisor") {
        return None;
    }
    let mhz: f64 = field(block, "cpu MHz")?.parse().ok()?;
    (1.0..1e6).contains(&mhz).then_some((1000.0 * mhz) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_found_whatever_the_program_is_called() {
        let rest = (3..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(last_cpu(&format!("17 (a) b) {rest}")), Some(39));
        assert_eq!(last_cpu("17 (a) R 1 2"), None);
        assert_eq!(last_cpu(""), None);
    }

    #[test]
    fn a_frequency_that_nobody_measured_is_none() {
        let block = |flags: &str| {
            format!(
                "processor\t: 0\ncpu MHz\t\t: 800.000\n\nprocessor\t: 1\ncpu MHz\t\t: 2596.130\n\
                 flags\t\t: {flags}\n\n"
            )
        };
        assert_eq!(of_cpuinfo(&block("fpu aperfmperf"), 1), Some(2_596_130));
        assert_eq!(of_cpuinfo(&block("fpu aperfmperf hypervisor"), 1), None);
        assert_eq!(of_cpuinfo(&block("fpu"), 1), None);
        assert_eq!(of_cpuinfo(&block("fpu aperfmperf"), 2), None);
        let garbage = block("aperfmperf").replace("2596.130", "-1");
        assert_eq!(of_cpuinfo(&garbage, 1), None);
    }
}
