//! The details that decide how fast a machine is, besides its name: revisions, switches, limits.

use std::fs;
use std::path::Path;

use super::{cgroup, field, kilobytes, list, of_this_arch, os};

/// Details of this machine that two runs should have in common if they are to be compared. What the
/// system doesn't report is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineDetails {
    /// The processor's family, model and stepping, as in `25/1/1`: several processors can have one name.
    pub cpu_id: Option<String>,
    /// The revision of its microcode.
    pub microcode: Option<String>,
    /// Threads per core that run at once.
    pub threads_per_core: Option<u32>,
    /// NUMA nodes.
    pub numa_nodes: Option<u32>,
    /// The frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Whether the processor may go above its base frequency.
    pub turbo: Option<bool>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The C library, as in `glibc 2.36`.
    pub libc: Option<String>,
    /// The hypervisor's name for itself, or that of the virtual machine, if this is one.
    pub hypervisor: Option<String>,
    /// Bytes of memory that the control group grants.
    pub memory_limit: Option<u64>,
    /// Whether the system gives huge pages without being asked: `always`, `madvise`, `never`.
    pub huge_pages: Option<String>,
    /// Swap in use, in bytes.
    pub swap_used: Option<u64>,
    /// The system's id for the time since it was started.
    pub boot_id: Option<String>,
}

impl MachineDetails {
    /// Asks the system.
    #[must_use]
    pub fn read() -> Self {
        Self::read_below(Path::new("/"))
    }

    fn read_below(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let line = |path: &str| word(&read(path)?);
        let cpuinfo = of_this_arch(read("proc/cpuinfo").unwrap_or_default());
        let meminfo = read("proc/meminfo").unwrap_or_default();
        let groups = read("proc/self/cgroup").unwrap_or_default();
        let cpu = |path: &str| format!("sys/devices/system/cpu/{path}");
        // Intel's own driver has the opposite switch.
        let no_turbo = line(&cpu("intel_pstate/no_turbo")).as_deref().and_then(switch);
        let boost = || line(&cpu("cpufreq/boost")).as_deref().and_then(switch);
        Self {
            cpu_id: cpu_id(&cpuinfo),
            microcode: field(&cpuinfo, "microcode").map(str::to_owned),
            threads_per_core: line(&cpu("cpu0/topology/thread_siblings_list"))
                .as_deref()
                .and_then(list::count),
            numa_nodes: line("sys/devices/system/node/online").as_deref().and_then(list::count),
            governor: line(&cpu("cpu0/cpufreq/scaling_governor")),
            turbo: no_turbo.map(|off| !off).or_else(boost),
            kernel: line("proc/sys/kernel/osrelease"),
            libc: os::libc_version(),
            hypervisor: line("sys/hypervisor/type").or_else(os::hypervisor),
            memory_limit: cgroup::memory_limit(&root.join("sys/fs/cgroup"), &groups),
            huge_pages: read("sys/kernel/mm/transparent_hugepage/enabled")
                .as_deref()
                .and_then(chosen),
            swap_used: kilobytes(&meminfo, "SwapTotal")
                .zip(kilobytes(&meminfo, "SwapFree"))
                .and_then(|(total, free)| total.checked_sub(free)),
            boot_id: boot_id_below(root),
        }
    }
}

/// The system's id for the time since it was started.
pub(crate) fn boot_id() -> Option<String> {
    boot_id_below(Path::new("/"))
}

fn boot_id_below(root: &Path) -> Option<String> {
    word(&fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).ok()?)
}

/// The text of a file of one line, unless it is empty.
fn word(text: &str) -> Option<String> {
    let word = text.trim();
    (!word.is_empty()).then(|| word.to_owned())
}

fn cpu_id(cpuinfo: &str) -> Option<String> {
    let number = |name| field(cpuinfo, name)?.parse::<u32>().ok();
    let (family, model, stepping) = (number("cpu family")?, number("model")?, number("stepping")?);
    Some(format!("{family}/{model}/{stepping}"))
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// The word in brackets of `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_files_say_is_what_there_is() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        write(
            "proc/cpuinfo",
            "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\
             stepping\t: 1\nmicrocode\t: 0x1000065\n",
        );
        write("proc/meminfo", "SwapTotal:  2048 kB\nSwapFree:  1024 kB\n");
        write("proc/self/cgroup", "4:memory:/box\n0::/\n");
        write("proc/sys/kernel/osrelease", "6.18.44\n");
        write("proc/sys/kernel/random/boot_id", "c6caac0e\n");
        write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,32\n");
        write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        write("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n");
        write("sys/devices/system/cpu/cpufreq/boost", "1\n");
        write("sys/devices/system/node/online", "0-1\n");
        write("sys/hypervisor/type", "xen\n");
        write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1073741824\n");
        let details = MachineDetails::read_below(root.path());
        let nothing = MachineDetails::read_below(&root.path().join("nowhere"));
        let text = |text: &str| Some(text.to_owned());
        let expected = MachineDetails {
            cpu_id: text("25/17/1"),
            microcode: text("0x1000065"),
            threads_per_core: Some(2),
            numa_nodes: Some(2),
            governor: text("powersave"),
            turbo: Some(false),
            kernel: text("6.18.44"),
            libc: os::libc_version(),
            hypervisor: text("xen"),
            memory_limit: Some(1 << 30),
            huge_pages: text("madvise"),
            swap_used: Some(1 << 20),
            boot_id: text("c6caac0e"),
        };
        assert_eq!(details, expected);
        let (libc, hypervisor) = (os::libc_version(), os::hypervisor());
        assert_eq!(nothing, MachineDetails { libc, hypervisor, ..MachineDetails::default() });
    }
}
