//! What was measured, so that figures of it may stand beside each other: one answer for `compare`, `gate` and lakes.

use std::collections::BTreeMap;

use brickscope_profile::{ImportedTest, Phase, Profile};

use super::environment::is_default;
use super::{Fact, Process, Test, Weight, from_profile};
#[cfg(feature = "receipt")]
use crate::receipt::{Receipt, v1};

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
        let is_setting =
            |fact: &Fact| fact.weight == Weight::Option || fact.name == "bytes of the model";
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
        Weight::Option => !is_default(&fact.name, &fact.value),
        Weight::Machine | Weight::May => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use brickscope_formats::import::{self, Format};

    fn of(change: &[(&str, &str)]) -> Work {
        let mut text = include_str!("../../../tests/data/import/llama-bench.json").to_owned();
        for (from, to) in change {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let path = Path::new("llama-bench.json");
        let profile = import::read(&text, path, Format::LlamaBench, &import::Options::default());
        Work::of_profile(&profile.expect("it is one"), Phase::Decode)
    }

    #[test]
    fn flags_make_another_work_and_machines_and_builds_do_not() {
        let usual = of(&[]);
        for same in [
            &[("AMD EPYC 9R14", "another")][..],
            &[("0c1e5709", "1c1e5709"), ("9001", "9002")],
            // Of the other test.
            &[("\"n_prompt\": 512", "\"n_prompt\": 1024")],
        ] {
            assert_eq!(of(same), usual, "{same:?}");
        }
        for (from, to, name) in [
            ("\"n_gpu_layers\": 99", "\"n_gpu_layers\": 20", "n_gpu_layers"),
            ("\"type_k\": \"f16\"", "\"type_k\": \"q8_0\"", "type_k"),
            ("\"type_v\": \"f16\"", "\"type_v\": \"q8_0\"", "type_v"),
            ("\"flash_attn\": 0", "\"flash_attn\": 1", "flash_attn"),
            ("\"n_gpu_layers\": 99", "\"n_gpu_layers\": -1", "n_gpu_layers"),
            ("\"split_mode\": \"layer\"", "\"split_mode\": \"none\"", "split_mode"),
            ("\"flash_attn\": 0", "\"flash_attn\": -1", "flash_attn"),
            ("\"n_batch\": 2048", "\"n_batch\": 512", "n_batch"),
            ("\"n_threads\": 2", "\"n_threads\": 3", "threads"),
            ("\"model_size\": 668190720", "\"model_size\": 668190721", "bytes of the model"),
        ] {
            let other = of(&[(from, to)]);
            let differences = Work::differences(&[&usual, &other]);
            let names: Vec<&str> = differences.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, [name]);
            assert_eq!(Work::from_json(&other.json()), Some(other));
        }
        assert_eq!(Work::from_json("nothing"), None);
    }

    #[test]
    fn a_test_of_a_list_is_the_same_work_as_alone() {
        let text = include_str!("../../../tests/data/import/llama-bench.json");
        let rows: Vec<serde_json::Value> = serde_json::from_str(text).expect("JSON");
        let changed = |changes: &[(&str, serde_json::Value)]| {
            let mut row = rows[1].clone();
            for (field, value) in changes {
                row[*field] = value.clone();
            }
            row
        };
        let read = |rows: &[serde_json::Value]| {
            let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
            let (path, options) = (Path::new("a.jsonl"), import::Options::default());
            import::read(&lines, path, Format::LlamaBench, &options).expect("it is one")
        };
        let tests = [
            changed(&[]),
            changed(&[("n_depth", 4096.into())]),
            changed(&[("n_threads", 4.into())]),
            changed(&[("type_k", "q8_0".into()), ("no_host", true.into())]),
            changed(&[("backends", "CUDA".into()), ("gpu_info", "an RTX".into())]),
            changed(&[("model_size", 7.into()), ("model_type", "qwen2 7B".into())]),
            changed(&[("model_n_params", 7.into()), ("build_commit", "1111111".into())]),
        ];
        let list = read(&tests);
        let imported = list.imported.as_ref().expect("of a file");
        for (row, test) in tests.iter().zip(&imported.tests) {
            let alone = Work::of_profile(&read(std::slice::from_ref(row)), Phase::Decode);
            assert_eq!(Work::of_imported_test(&list, test), alone, "{row}");
        }
    }
}
