//! The names of a machine and of the engine's commit, which tell runs from those of others.

use anyhow::{Context, Error, Result, ensure};
use brickscope::Named;
#[cfg(feature = "parquet")]
use brickscope::Profile;
use brickscope_analysis::machine_name::check;
#[cfg(feature = "parquet")]
use brickscope_analysis::receipt::Receipt;

/// What names this machine.
const VARIABLE: &str = "BRICKSCOPE_MACHINE";

/// The name that the user gave this machine, if any.
pub(crate) fn given() -> Result<Option<String>> {
    let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
    name.iter().try_for_each(|name| check(name).map_err(Error::msg)).context(VARIABLE)?;
    Ok(name)
}

/// What names the engine's commit.
const COMMIT: &str = "BRICKSCOPE_COMMIT";

/// The commit that the user says the engine is of, if any.
pub(crate) fn commit() -> Result<Option<String>> {
    let commit = std::env::var(COMMIT).ok().filter(|commit| !commit.is_empty());
    if let Some(commit) = &commit {
        ensure!(
            commit.len() <= 100 && commit.chars().all(|of| of.is_ascii_graphic()),
            "{COMMIT}: it can't name a commit: use 1 to 100 letters, digits and signs"
        );
    }
    Ok(commit)
}

/// Both names, for a run that is written or watched now. That they can be names was seen before it began.
pub(crate) fn named() -> Option<Named> {
    let names = Named { machine: given().ok().flatten(), commit: commit().ok().flatten() };
    Some(names).filter(|names| *names != Named::default())
}

/// Whether a run can be of this machine, by its processor and its memory.
#[cfg(feature = "parquet")]
pub(crate) fn is_here(cpu: Option<&str>, memory_bytes: Option<u64>) -> bool {
    let here = brickscope::machine::detect();
    // The part of the memory that the system reserves varies a little.
    let gib = |bytes: Option<u64>| bytes.map(|bytes| bytes.div_ceil(1 << 30));
    (cpu, gib(memory_bytes)) == (here.cpu.as_deref(), gib(here.memory_bytes))
}

/// The name of this machine, as the system states it.
#[cfg(feature = "parquet")]
pub(crate) fn of_host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The name of the machine that a run is of: what the user named this one, or its host name, if the run can be of it.
#[cfg(feature = "parquet")]
pub(crate) fn of_run(profile: Option<&Profile>, receipt: Option<&Receipt>) -> Result<String> {
    if let Some(machine) = given()? {
        return Ok(machine);
    }
    let theirs = match (receipt, profile) {
        (Some(Receipt { machine, .. }), _) => Some((machine.cpu.as_deref(), machine.memory_bytes)),
        (None, Some(profile)) => {
            let machine = profile.machine.as_ref();
            machine.map(|machine| (machine.cpu.as_deref(), machine.memory_bytes))
        }
        (None, None) => None,
    };
    match theirs {
        Some((cpu, memory_bytes)) if is_here(cpu, memory_bytes) => of_host()
            .context("the system doesn't state this machine's name: set BRICKSCOPE_MACHINE to one"),
        Some(_) => anyhow::bail!(
            "it is of another machine than this one: set BRICKSCOPE_MACHINE to the name of that"
        ),
        None => anyhow::bail!(
            "it doesn't say which machine it is of: set BRICKSCOPE_MACHINE to its name"
        ),
    }
}

#[cfg(all(test, feature = "parquet"))]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_machine_is_what_all_commands_take() {
        if given().is_ok_and(|name| name.is_some()) {
            return;
        }
        let said = of_run(None, None).expect_err("nothing states it").to_string();
        assert!(said.contains(VARIABLE) && !said.contains("--"), "{said}");
    }
}
