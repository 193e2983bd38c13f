//! What two sides must have in common, so that only the sides themselves can change a time.

use std::fmt;

use brickscope_profile::text::printable;
use serde::{Deserialize, Serialize};

use super::{Process, Side};

/// A condition that a process ran under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What follows if two processes differ in it.
    pub weight: Weight,
}

/// What follows if two processes differ in a [`Fact`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// They can't be compared: it is other work.
    Must,
    /// They can't be compared, unless the question is what another model or other weights bring: it is other work.
    Model,
    /// They can't be compared: it is another machine.
    Machine,
    /// They can't be compared. It is an option of another program, and a build that doesn't state it, since it is older
    /// or newer, does as one with the option left at its default.
    Option,
    /// As [`Option`](Self::Option), but nobody knows its default, such as that of an option that came later than this
    /// program: where one side doesn't state it, it is shown.
    NewOption,
    /// It is shown.
    May,
}

impl Fact {
    /// A fact that must be equal.
    #[must_use]
    pub fn must(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), weight: Weight::Must }
    }

    /// A fact about the model, which must be equal unless models are what is compared.
    #[must_use]
    pub fn model(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), weight: Weight::Model }
    }

    /// A fact about the machine that must be equal.
    #[must_use]
    pub fn machine(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), weight: Weight::Machine }
    }

    /// An option of another program, which may be missing where the other side has its default.
    #[must_use]
    pub fn option(name: &str, value: impl Into<String>) -> Self {
        let value = match value.into().as_str() {
            // JSON has both.
            "false" => "0".to_owned(),
            "true" => "1".to_owned(),
            value => value.to_owned(),
        };
        Self { name: name.to_owned(), value, weight: Weight::Option }
    }

    /// A fact that may differ; a difference is shown.
    #[must_use]
    pub fn may(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), weight: Weight::May }
    }
}

/// A condition that processes differ in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name.
    pub name: String,
    /// Its value on side A: all values, if the processes of the side differ.
    pub a: Vec<String>,
    /// Its value on side B.
    pub b: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |values: &[String]| {
            values.iter().map(|value| printable(value)).collect::<Vec<_>>().join(" or ")
        };
        write!(f, "{}: {} and {}", printable(&self.name), values(&self.a), values(&self.b))
    }
}

/// What a condition says that another program's file states. Builds of llama.cpp before 2024 had one flag for the types of
/// keys and values, which newer ones state each by its name. Of the ways to load a model (`mlock`, `dio`) the others are as they
/// are called.
pub(super) fn facts_of_condition(name: &str, value: &str, is_llama_bench: bool) -> Vec<Fact> {
    let option = |name: &str, value: &str| {
        let fact = Fact::option(name, value);
        match is_llama_bench && !is_known(name) {
            true => Fact { weight: Weight::NewOption, ..fact },
            false => fact,
        }
    };
    match (name, value) {
        ("cpu_info", _) => vec![Fact::machine(name, value)],
        // Builds since July 2026 have one word for what were two flags.
        ("load_mode", "mmap") => vec![Fact::option("use_mmap", "1")],
        // What it comes to isn't stated.
        ("load_mode", "auto") => {
            vec![Fact { weight: Weight::NewOption, ..Fact::option(name, value) }]
        }
        ("load_mode", "none") => vec![Fact::option("use_mmap", "0")],
        ("f16_kv", "true" | "1" | "false" | "0") => {
            let of = if matches!(value, "true" | "1") { "f16" } else { "f32" };
            ["type_k", "type_v"].map(|name| Fact::option(name, of)).to_vec()
        }
        _ => vec![option(name, value)],
    }
}

/// The differences between processes of either side, or between these tests of theirs.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// Those that forbid a comparison.
    pub(super) unlike: Vec<Difference>,
    /// Those of models, if each side has one of its own.
    pub(super) models: Vec<Difference>,
    /// Those that may be.
    pub(super) may: Vec<Difference>,
}

/// The differences; those of models forbid a comparison unless `models_may_differ`.
pub(super) fn differences(
    a: &Side,
    b: &Side,
    tests: &[String],
    models_may_differ: bool,
) -> Differences {
    let mut names: Vec<(&str, Weight)> = Vec::new();
    let all = a.processes.iter().chain(&b.processes);
    for fact in all.flat_map(facts).filter(|(test, _)| is_in(*test, tests)).map(|(_, fact)| fact) {
        if !names.iter().any(|(name, _)| *name == fact.name) {
            names.push((&fact.name, fact.weight));
        }
    }
    let mut found = Differences::default();
    for (name, weight) in names {
        let (a, b) = (values(a, name), values(b, name));
        if a.len() > 1 || a != b {
            let is_new = matches!(weight, Weight::Option | Weight::NewOption)
                && a.iter().chain(&b).any(|value| value == NOT_STATED)
                && a.iter().chain(&b).all(|value| value == NOT_STATED || is_default(name, value));
            if is_new {
                continue;
            }
            let mut stated = a.iter().chain(&b).filter(|value| *value != NOT_STATED);
            let first = stated.next();
            let is_one = a.len() == 1 && b.len() == 1 && stated.next().is_none();
            let is_unknown = weight == Weight::NewOption && first.is_some() && is_one;
            let differences = match weight {
                Weight::May => &mut found.may,
                _ if is_unknown => &mut found.may,
                // Two models on one side are no question.
                Weight::Model if models_may_differ && a.len() == 1 && b.len() == 1 => {
                    &mut found.models
                }
                _ => &mut found.unlike,
            };
            differences.push(Difference { name: name.to_owned(), a, b });
        }
    }
    found
}

/// The value of what a process doesn't state.
const NOT_STATED: &str = "not stated";

/// What builds do that don't state an option of llama.cpp. Each has one such value, so that two values are never one work.
const DEFAULTS: [(&str, &str); 12] = [
    ("use_mmap", "1"),
    ("lazy_mode", "auto"),
    ("repack", "1"),
    ("split_mode", "layer"),
    ("poll", "50"),
    ("n_gpu_layers", "99"),
    ("cpu_mask", "0x0"),
    ("devices", "auto"),
    ("-b", "2048"),
    ("-ub", "512"),
    ("-ctk", "f16"),
    ("-ctv", "f16"),
];

/// Other options of llama-bench that are known: most do nothing by default.
const KNOWN: [&str; 22] = [
    "cpu_strict",
    "delay",
    "embeddings",
    "fit_min_ctx",
    "fit_target",
    "flash_attn",
    "load_mode",
    "low_vram",
    "main_gpu",
    "n_batch",
    "n_cpu_moe",
    "n_ubatch",
    "no_host",
    "no_kv_offload",
    "no_op_offload",
    "prio",
    "tensor_buft_overrides",
    "tensor_split",
    "type_k",
    "type_v",
    "use_direct_io",
    "use_mlock",
];

/// Whether it is known what a build does that doesn't state an option.
fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || DEFAULTS.iter().any(|(of, _)| *of == name)
}

/// Whether an option does nothing, or is one of llama.cpp's with a default that does something.
pub(super) fn is_default(name: &str, value: &str) -> bool {
    if let Some((_, default)) = DEFAULTS.iter().find(|(of, _)| *of == name) {
        return value == *default;
    }
    let is_zero = |part: &str| part.parse::<f64>().is_ok_and(|number| number == 0.0);
    matches!(value, "" | "none") || value.split('/').all(is_zero)
}

/// The facts of a process and of its tests, with the test.
fn facts(process: &Process) -> impl Iterator<Item = (Option<&str>, &Fact)> {
    let own = process.facts.iter().map(|fact| (None, fact));
    own.chain(
        process
            .tests
            .iter()
            .flat_map(|test| test.facts.iter().map(|fact| (Some(&*test.name), fact))),
    )
}

/// Whether a fact is of no test, or of one of these.
fn is_in(test: Option<&str>, tests: &[String]) -> bool {
    test.is_none_or(|test| tests.iter().any(|name| name == test))
}

/// All values that the processes of a side have for a fact, each once.
fn values(side: &Side, name: &str) -> Vec<String> {
    let value = |process: &Process| {
        let fact = facts(process).find(|(_, fact)| fact.name == name);
        fact.map_or_else(|| NOT_STATED.to_owned(), |(_, fact)| fact.value.clone())
    };
    let mut values: Vec<String> = side.processes.iter().map(value).collect();
    values.sort();
    values.dedup();
    values
}
