//! What was measured, of files of llama-bench.

use std::path::Path;

use brickscope_analysis::compare::Work;
use brickscope_formats::import::{self, Format};
use brickscope_profile::Phase;

fn of(change: &[(&str, &str)]) -> Work {
    let mut text = include_str!("../data/import/llama-bench.json").to_owned();
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
    let text = include_str!("../data/import/llama-bench.json");
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
