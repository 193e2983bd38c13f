use std::collections::BTreeSet;

use brickscope_analysis::stacks::{Stacks, Unit};
use brickscope_formats::export::speedscope;
use proptest::prelude::*;
use serde_json::Value;

use super::{bytes, deep, named, run, stacks};

/// The schema that speedscope publishes, as in `dist/release/file-format-schema.json` of its npm
/// package of this version (MIT, Copyright (c) 2018 Jamie Wong).
const SCHEMA: &str = include_str!("speedscope-1.25.0.schema.json");

/// Why a value isn't as JSON Schema (draft 7) asks for; of its words, those that this schema uses.
fn fault(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let rules = schema.as_object().expect("a schema is an object");
    rules.iter().find_map(|(word, rule)| match word.as_str() {
        "$ref" => {
            let pointer = rule.as_str().expect("a name").trim_start_matches('#');
            fault(root, root.pointer(pointer).expect("it leads somewhere"), value, at)
        }
        "type" => {
            let is = match rule.as_str().expect("one type") {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "number" => value.is_number(),
                other => panic!("no rule for the type {other}"),
            };
            (!is).then(|| format!("{at} is no {rule}"))
        }
        "const" => (value != rule).then(|| format!("{at} is not {rule}")),
        "enum" => {
            let all = rule.as_array().expect("a list");
            (!all.contains(value)).then(|| format!("{at} is none of {rule}"))
        }
        "anyOf" => {
            let all = rule.as_array().expect("a list");
            let faults: Option<Vec<_>> =
                all.iter().map(|schema| fault(root, schema, value, at)).collect();
            faults.map(|faults| faults.join(", and "))
        }
        "required" => rule.as_array().expect("a list").iter().find_map(|name| {
            let name = name.as_str().expect("a name");
            (value.is_object() && value.get(name).is_none()).then(|| format!("{at} has no {name}"))
        }),
        "properties" => rule.as_object().expect("fields").iter().find_map(|(name, schema)| {
            fault(root, schema, value.get(name)?, &format!("{at}.{name}"))
        }),
        "items" => value
            .as_array()
            .into_iter()
            .flatten()
            .zip(0..)
            .find_map(|(value, index)| fault(root, rule, value, &format!("{at}[{index}]"))),
        "definitions" | "title" | "$schema" => None,
        other => panic!("no rule for {other}"),
    })
}

fn hold(value: &Value) -> Option<String> {
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    fault(&schema, &schema, value, "file")
}

fn json(stacks: &Stacks) -> Value {
    let bytes = bytes(|out| speedscope::write(stacks, "a \"run\"", out));
    serde_json::from_slice(&bytes).expect("JSON")
}

/// The stacks of a file, and their weights.
fn read(file: &Value) -> Vec<(Vec<String>, u64)> {
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let frames = list(&file["shared"]["frames"]);
    let profile = &file["profiles"][0];
    let weights = list(&profile["weights"]);
    let samples = list(&profile["samples"]);
    assert_eq!(weights.len(), samples.len());
    let name = |frame: &Value| {
        let frame = &frames[frame.as_u64().expect("an index") as usize];
        frame["name"].as_str().expect("a name").to_owned()
    };
    samples
        .iter()
        .zip(weights)
        .map(|(sample, weight)| {
            (list(sample).iter().map(name).collect(), weight.as_u64().expect("a weight"))
        })
        .collect()
}

proptest! {
    #[test]
    fn every_file_is_as_the_schema_says_and_has_all_stacks(stacks in stacks()) {
        let file = json(&stacks);
        prop_assert_eq!(hold(&file), None);
        prop_assert_eq!(read(&file), named(&stacks));
        prop_assert_eq!(file["profiles"][0]["endValue"].as_u64(), Some(stacks.total()));
    }
}

#[test]
fn a_run_by_layers() {
    let bytes = bytes(|out| speedscope::write(&run(), "run", out));
    let expected = r#"{"$schema":"https://www.speedscope.app/file-format-schema.json","name":"run",
"activeProfileIndex":0,"exporter":"brickscope@VERSION","shared":{"frames":[{"name":"prefill"},
{"name":"layer 0"},{"name":"unattributed"},{"name":"DownProjection"},{"name":"gemv_q4_k_avx2"},
{"name":"layer 1"},{"name":"decode"}]},"profiles":[{"type":"sampled","name":"run",
"unit":"nanoseconds","startValue":0,"endValue":690,"samples":[[0,1,2],[0,1,3,4],[0,5,2],[0,5,3,4],
[6,1,2],[6,1,3,4],[6,5,2],[6,5,3,4],[0,2],[6,2]],"weights":[2,300,2,300,2,40,2,40,1,1]}]}"#;
    let expected = expected.replace('\n', "").replace("VERSION", env!("CARGO_PKG_VERSION")) + "\n";
    assert_eq!(String::from_utf8(bytes).expect("text"), expected);
}

#[test]
fn empty_and_deep_stacks_are_files_too() {
    for stacks in [Stacks::new(Unit::Samples, 0), deep()] {
        let file = json(&stacks);
        assert_eq!(hold(&file), None);
        assert_eq!(read(&file), named(&stacks));
        assert_eq!(file["profiles"][0]["unit"], "none");
    }
}

#[test]
fn the_schema_refuses_what_is_not_of_it() {
    let good = json(&run());
    let mut seen = BTreeSet::new();
    for (pointer, bad) in [
        ("/$schema", Value::from("https://example.org")),
        ("/shared/frames/0/name", Value::from(7)),
        ("/profiles/0/unit", Value::from("fortnights")),
        ("/profiles/0/type", Value::from("flame")),
        ("/profiles/0/weights/3", Value::from("7")),
        ("/profiles/0/samples/3", Value::from(7)),
        ("/profiles/0/endValue", Value::Null),
    ] {
        let mut file = good.clone();
        *file.pointer_mut(pointer).expect("it is there") = bad;
        seen.insert(hold(&file).unwrap_or_else(|| panic!("{pointer} was let pass")));
    }
    assert_eq!(seen.len(), 7, "{seen:#?}");
}
