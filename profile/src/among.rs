//! Which of several processes a run is, so that runs can be paired with those that ran beside them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::checksum::fnv1a;

/// By which variable of the environment a process that starts others tells each which one it is, as [`InSet`] is
/// displayed. `brickscope compare --processes` does.
pub const SET_VARIABLE: &str = "BRICKSCOPE_SET";

/// What runs may have in common that says in which order they ran. What isn't known is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Among {
    /// The set of processes that it is one of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<InSet>,
    /// Stands for the time since the system was started: equal for two runs between which it wasn't started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

impl Among {
    /// Of this process, by [`SET_VARIABLE`] and the system's id for its boot, which is kept as a hash only. `None` if
    /// neither is known.
    #[must_use]
    pub fn of_this_process(boot_id: Option<&str>) -> Option<Self> {
        let set = std::env::var(SET_VARIABLE).ok().as_deref().and_then(InSet::parse);
        Self::of(set, boot_id)
    }

    fn of(set: Option<InSet>, boot_id: Option<&str>) -> Option<Self> {
        let boot = boot_id.map(|id| format!("{:016x}", fnv1a(id.bytes())));
        (set.is_some() || boot.is_some()).then_some(Self { set, boot })
    }
}

/// A process of a set: of processes that were started in turns, to be compared with each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InSet {
    /// The set's name.
    pub name: String,
    /// Which process of it this is, from 1 on, in the order in which they ran.
    pub process: u32,
    /// How many it has.
    pub processes: u32,
}

impl InSet {
    /// The longest name of a set, in bytes.
    const LONGEST: usize = 200;

    /// Reads what [`SET_VARIABLE`] says: `NAME 3/40`. `None` if it isn't that.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, place) = text.trim().rsplit_once(' ')?;
        let (process, processes) = place.split_once('/')?;
        let (process, processes): (u32, u32) = (process.parse().ok()?, processes.parse().ok()?);
        let is_one =
            !name.is_empty() && name.len() <= Self::LONGEST && (1..=processes).contains(&process);
        is_one.then(|| Self { name: name.to_owned(), process, processes })
    }
}

impl fmt::Display for InSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.name, self.process, self.processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_parent_says_is_read_and_all_else_is_unknown() {
        let third = InSet { name: "a set".to_owned(), process: 3, processes: 40 };
        assert_eq!(InSet::parse(&third.to_string()), Some(third));
        let long = format!("{} 1/2", "x".repeat(InSet::LONGEST + 1));
        for text in ["", "a", "a 3", "a 3/", " 3/4", "a 0/4", "a 5/4", "a -1/4", "a 1/99999999999"]
        {
            assert_eq!(InSet::parse(text), None, "{text}");
        }
        assert_eq!(InSet::parse(&long), None);
    }

    #[test]
    fn of_a_boot_only_a_hash_is_kept_and_nothing_known_is_nothing() {
        assert_eq!(Among::of(None, None), None);
        let [one, other] = ["c6caac0e", "c6caac0f"].map(|id| Among::of(None, Some(id)));
        let boot = |of: &Option<Among>| of.as_ref().and_then(|among| among.boot.clone());
        assert!(boot(&one).is_some_and(|boot| boot.len() == 16 && !boot.contains("c6caac0e")));
        assert_ne!(boot(&one), boot(&other));
    }
}
