//! What was measured, so that figures of it may stand beside each other: one answer for `compare`, `gate` and lakes.

use std::collections::BTreeMap;

use brickscope_profile::{ImportedTest, Phase, Profile};
#[cfg(feature = "receipt")]
use brickscope_receipt::{Receipt, v1};

use super::environment::is_default;
use super::{Fact, Process, Test, Weight, from_profile};

/// What was measured: everything that [`compare`](super::compare) demands to be equal, but for the machine. By name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Work(BTreeMap<String, String>);

impl Work {
    /// The work of a phase of a profile.
    #[must_use]
    pub fn of_profile(profile: &Profile, phase: Phase) -> Self {
        let passes = profile.passes.iter().filter(|pass| !pass.is_left_out && pass.phase == phase);
        let facts = from_profile::facts(profile);
        Self::of(&facts, &from_profile::facts_of_test(phase, passes, profile))
    }

    /// The work of a test of a benchmark's list, the same as if the file had no other test.
    #[must_use]
    pub fn of_imported_test(profile: &Profile, test: &ImportedTest) -> Self {
        Self::of(&from_profile::facts_of_listed(profile, test), &[])
    }

    /// The work of a test of a receipt. Which other tests were run beside it is none of it.
    #[cfg(feature = "receipt")]
    #[must_use]
    pub fn of_receipt(receipt: &Receipt, test: &v1::Test) -> Self {
        let mut facts = super::from_receipt::facts(receipt);
        facts.retain(|fact| fact.name != super::from_receipt::TESTS);
        Self::of(&facts, &super::from_receipt::facts_of_test(test))
    }

    /// The work of a test of a process.
    #[must_use]
    pub fn of_process(process: &Process, test: &Test) -> Self {
        Self::of(&process.facts, &test.facts)
    }

    fn of(of_process: &[Fact], of_test: &[Fact]) -> Self {
        let facts = of_process.iter().chain(of_test).filter(|fact| is_work(fact));
        Self(facts.map(|fact| (fact.name.clone(), fact.value.clone())).collect())
    }

    /// What a benchmark's list states of a test beside what names it: its options that aren't at their defaults, and how
    /// large the model is.
    #[cfg(feature = "receipt")]
    pub(crate) fn settings_of(profile: &Profile, test: &ImportedTest) -> Vec<(String, String)> {
        let facts = from_profile::facts_of_listed(profile, test).into_iter().filter(is_work);
        let is_setting = |fact: &Fact| {
            matches!(fact.weight, Weight::Option | Weight::NewOption)
                || fact.name == "bytes of the model"
        };
        let mut settings: Vec<(String, String)> =
            facts.filter(is_setting).map(|fact| (fact.name, fact.value)).collect();
        settings.sort();
        settings
    }

    /// It as a text: equal texts are equal work.
    #[must_use]
    pub fn json(&self) -> String {
        let names = self.0.iter().map(|(name, value)| (name.clone(), value.clone().into()));
        serde_json::Value::Object(names.collect()).to_string()
    }

    /// The work that [`Self::json`] wrote; `None` if it isn't that.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    /// What these differ by: the names, with the value of each of them.
    #[must_use]
    pub fn differences(works: &[&Self]) -> Vec<(String, Vec<Option<String>>)> {
        let mut names: Vec<&String> = works.iter().flat_map(|work| work.0.keys()).collect();
        names.sort();
        names.dedup();
        let values =
            |name: &String| works.iter().map(|work| work.0.get(name).cloned()).collect::<Vec<_>>();
        let differ = |values: &Vec<Option<String>>| values.iter().any(|value| *value != values[0]);
        let each = names.into_iter().map(|name| (name.clone(), values(name)));
        each.filter(|(_, values)| differ(values)).collect()
    }
}

/// Whether another value of it is other work.
fn is_work(fact: &Fact) -> bool {
    match fact.weight {
        Weight::Must | Weight::Model => true,
        // At its default it is as one that a build doesn't state.
        Weight::Option | Weight::NewOption => !is_default(&fact.name, &fact.value),
        Weight::Machine | Weight::May => false,
    }
}
