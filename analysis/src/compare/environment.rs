//! What two sides must have in common, so that a change of time can only be theirs.

use std::fmt;

use serde::Serialize;

use super::{Process, Side};

/// Something that a process says of the conditions that it ran under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What it is called.
    pub name: String,
    /// How it was.
    pub value: String,
    /// What follows if two processes differ in it.
    pub weight: Weight,
}

/// What follows if two processes differ in something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// They can't be compared.
    Must,
    /// It is shown.
    May,
}

impl Fact {
    /// What must be alike.
    #[must_use]
    pub fn must(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), weight: Weight::Must }
    }

    /// What may differ, and is shown then.
    #[must_use]
    pub fn may(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), weight: Weight::May }
    }
}

/// Something that processes differ in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What.
    pub name: String,
    /// How it was on side A: all the ways, if its processes differ.
    pub a: Vec<String>,
    /// How it was on side B.
    pub b: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} and {}", self.name, self.a.join(" or "), self.b.join(" or "))
    }
}

/// What processes of either side differ in, or these tests of them: first what forbids to compare
/// them, then the rest.
pub(super) fn differences(
    a: &Side,
    b: &Side,
    tests: &[String],
) -> (Vec<Difference>, Vec<Difference>) {
    let mut names: Vec<(&str, Weight)> = Vec::new();
    let all = a.processes.iter().chain(&b.processes);
    for fact in all.flat_map(facts).filter(|(test, _)| is_in(*test, tests)).map(|(_, fact)| fact) {
        if !names.iter().any(|(name, _)| *name == fact.name) {
            names.push((&fact.name, fact.weight));
        }
    }
    let (mut must, mut may) = (Vec::new(), Vec::new());
    for (name, weight) in names {
        let (a, b) = (values(a, name), values(b, name));
        if a.len() > 1 || a != b {
            let differences = if weight == Weight::Must { &mut must } else { &mut may };
            differences.push(Difference { name: name.to_owned(), a, b });
        }
    }
    (must, may)
}

/// What a process says of itself and of its tests, with the test.
fn facts(process: &Process) -> impl Iterator<Item = (Option<&str>, &Fact)> {
    let own = process.facts.iter().map(|fact| (None, fact));
    own.chain(
        process
            .tests
            .iter()
            .flat_map(|test| test.facts.iter().map(|fact| (Some(&*test.name), fact))),
    )
}

/// Whether it is of no test, or of one of these.
fn is_in(test: Option<&str>, tests: &[String]) -> bool {
    test.is_none_or(|test| tests.iter().any(|name| name == test))
}

/// All that the processes of a side say of something, each once.
fn values(side: &Side, name: &str) -> Vec<String> {
    let value = |process: &Process| {
        let fact = facts(process).find(|(_, fact)| fact.name == name);
        fact.map_or_else(|| "not told".to_owned(), |(_, fact)| fact.value.clone())
    };
    let mut values: Vec<String> = side.processes.iter().map(value).collect();
    values.sort();
    values.dedup();
    values
}
