//! What may name a machine: a name becomes that of a folder in a lake.

/// The name of no machine: a lake has files without rows there.
pub const NO_MACHINE: &str = "none";

/// What stands for the machine where the runs of all machines are together.
pub const ALL_MACHINES: &str = "merged";

/// Checks that a name can be that of a folder in a lake, by the rules of Hive's partitions.
///
/// # Errors
///
/// If it can't, with the reason.
pub fn check(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !begins_well || name.len() > 64 || !name.chars().all(is_plain) {
        return Err(format!(
            "{name:?} can't name a machine: use 1 to 64 letters, digits, `.`, `_` and `-`, with a letter or digit first"
        ));
    }
    if name == NO_MACHINE || name == ALL_MACHINES {
        return Err(format!(
            "{name:?} can't name a machine: it has a meaning of its own in a lake"
        ));
    }
    Ok(())
}
