//! The name of a machine, which tells its runs from those of others.

use anyhow::{Context, Result, ensure};

/// What names this machine.
const VARIABLE: &str = "BRICKSCOPE_MACHINE";

/// The name of no machine: a lake has files without rows there.
pub(crate) const NO_MACHINE: &str = "none";

/// What stands for the machine where the runs of all machines are together.
pub(crate) const ALL_MACHINES: &str = "merged";

/// Checks that a name can be that of a folder in a lake, by the rules of Hive's partitions.
pub(crate) fn check(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    ensure!(
        begins_well && name.len() <= 64 && name.chars().all(is_plain),
        "{name:?} can't name a machine: use 1 to 64 letters, digits, `.`, `_` and `-`, with a letter or digit first"
    );
    ensure!(
        name != NO_MACHINE && name != ALL_MACHINES,
        "{name:?} can't name a machine: it has a meaning of its own in a lake"
    );
    Ok(())
}

/// The name that the user gave this machine, if any.
pub(crate) fn given() -> Result<Option<String>> {
    let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
    name.iter().try_for_each(|name| check(name)).context(VARIABLE)?;
    Ok(name)
}

/// Whether a run can be of this machine, by its processor and its memory.
#[cfg(any(feature = "otlp", feature = "parquet"))]
pub(crate) fn is_here(cpu: Option<&str>, memory_bytes: Option<u64>) -> bool {
    let here = brickscope::machine::detect();
    // The part of the memory that the system reserves varies a little.
    let gib = |bytes: Option<u64>| bytes.map(|bytes| bytes.div_ceil(1 << 30));
    (cpu, gib(memory_bytes)) == (here.cpu.as_deref(), gib(here.memory_bytes))
}

/// The name of this machine, as the system states it.
#[cfg(any(feature = "otlp", feature = "parquet"))]
pub(crate) fn of_host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}
