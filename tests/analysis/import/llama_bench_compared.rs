//! Files of llama-bench beside each other: whose tests are the same, what of their builds is another question, and what is
//! said where times are missing.

use brickscope::Profile;
use brickscope_analysis::compare::{CompareError, Options as Comparing, Process, compare};
use brickscope_analysis::view;
use brickscope_formats::import::Format;

use super::llama_bench::{MARKDOWN, sweep};
use super::{LLAMA_BENCH, imported, side};

/// As an older build writes it: without the fields that newer ones have.
fn older() -> String {
    const NEW: [&str; 5] =
        ["n_cpu_moe", "devices", "tensor_buft_overrides", "no_op_offload", "no_host"];
    let lines = LLAMA_BENCH.lines();
    let kept = lines.filter(|line| !NEW.iter().any(|new| line.contains(&format!("\"{new}\":"))));
    kept.collect::<Vec<_>>().join("\n")
}

/// As a newer build writes the same test: with fields that an older one has not.
fn newer(more: &str) -> Profile {
    let text = older().replace("\"n_gen\":", &format!("{more}\"n_gen\":"));
    let text = text.replace("6400000000", "6300000000").replace("0c1e5709", "11111111");
    imported(&text, Format::LlamaBench)
}

#[test]
fn options_that_another_build_lacks_are_no_other_work_while_they_are_off() {
    let old = imported(&older(), Format::LlamaBench);
    for off in [
        "",
        "\"n_cpu_moe\": 0, \"no_op_offload\": 0, \"tensor_buft_overrides\": \"none\", \"no_host\": false, ",
        "\"devices\": \"auto\", \"use_direct_io\": false, \"fit_target\": 0, ",
    ] {
        let new = newer(off);
        for (a, b) in [(&old, &new), (&new, &old)] {
            let found = compare(&side(a), &side(b), &Comparing::default());
            let found = found.unwrap_or_else(|error| panic!("{off}: {error}"));
            let names: Vec<&str> = found.differences.iter().map(|of| of.name.as_str()).collect();
            assert_eq!(names, ["build"]);
        }
    }
    for (on, name) in [
        ("\"n_cpu_moe\": 30, ", "n_cpu_moe"),
        ("\"tensor_buft_overrides\": \"exps=CPU\", ", "tensor_buft_overrides"),
        ("\"no_host\": true, ", "no_host"),
    ] {
        match compare(&side(&old), &side(&newer(on)), &Comparing::default()) {
            Err(CompareError::Unlike(found)) => assert_eq!(found[0].name, name),
            other => panic!("{other:?}"),
        }
        let off =
            newer("\"n_cpu_moe\": 0, \"tensor_buft_overrides\": \"none\", \"no_host\": false, ");
        assert!(compare(&side(&off), &side(&newer(on)), &Comparing::default()).is_err());
    }
    // JSON has had both for flags.
    let flag = |value: &str| {
        let text = older().replace("\"flash_attn\": 0", &format!("\"flash_attn\": {value}"));
        imported(&text.replace("6400000000", "6300000000"), Format::LlamaBench)
    };
    assert!(compare(&side(&old), &side(&flag("false")), &Comparing::default()).is_ok());
    assert!(compare(&side(&old), &side(&flag("true")), &Comparing::default()).is_err());
}

#[test]
fn one_word_of_2026_is_what_was_a_flag() {
    let old = imported(
        &older().replace("\"n_gen\":", "\"use_mmap\": true, \"n_gen\":"),
        Format::LlamaBench,
    );
    let new = newer("\"load_mode\": \"mmap\", ");
    assert!(compare(&side(&old), &side(&new), &Comparing::default()).is_ok());
    for mode in ["none", "mlock", "dio"] {
        let text = older().replace("\"n_gen\":", &format!("\"load_mode\": \"{mode}\", \"n_gen\":"));
        let other = imported(&text.replace("6400000000", "6350000000"), Format::LlamaBench);
        for one in [&old, &new] {
            let found = compare(&side(one), &side(&other), &Comparing::default());
            assert!(matches!(found, Err(CompareError::Unlike(_))), "{mode}: {found:?}");
        }
    }
}

#[test]
fn a_prompt_and_its_answer_timed_together_are_compared_beside_the_phases() {
    let with_pg = |ns: &str| {
        let mut rows: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
        let mut both = rows[0].clone();
        both["n_gen"] = 128.into();
        both["samples_ns"] = serde_json::from_str(ns).expect("JSON");
        rows.push(both);
        rows[1]["samples_ns"][0] = ns.len().into();
        imported(&serde_json::to_string(&rows).expect("JSON"), Format::LlamaBench)
    };
    let (a, b) = (with_pg("[15000000000, 15100000000]"), with_pg("[25000000000, 25100000000, 1]"));
    let found = compare(&side(&a), &side(&b), &Comparing::default()).expect("alike");
    let tests: Vec<&str> = found.tests.iter().map(|test| test.name.as_str()).collect();
    assert_eq!(tests, ["pp512", "tg128", "pp512+tg128"]);
}

#[test]
fn tests_of_a_list_have_one_name_whichever_build_wrote_it_and_in_whichever_order() {
    let list = |rows: [(&str, u32); 2]| {
        let template: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
        let row = |(flag, threads): (&str, u32)| {
            let mut row = template[0].clone();
            row["flash_attn"] = serde_json::from_str(flag).expect("JSON");
            row["n_threads"] = threads.into();
            row["samples_ns"][0] =
                (9_000_000_000_u64 + u64::from(threads) + flag.len() as u64).into();
            row
        };
        let rows: Vec<_> = rows.into_iter().map(row).collect();
        let profile = imported(&serde_json::to_string(&rows).expect("JSON"), Format::LlamaBench);
        let process = Process::from_profile("a run", &profile).expect("it has tests");
        let mut names: Vec<String> = process.tests.into_iter().map(|test| test.name).collect();
        names.sort();
        names
    };
    let old = list([("false", 4), ("true", 8)]);
    assert_eq!(old, ["pp512 (flash_attn 1, n_threads 8)", "pp512 (n_threads 4)"]);
    assert_eq!(list([("1", 8), ("0", 4)]), old);
}

#[test]
fn a_test_has_its_name_whichever_others_are_in_the_file() {
    let mut rows: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
    let mut longer = rows[1].clone();
    longer["n_gen"] = 256.into();
    longer["samples_ns"] = serde_json::json!([13_000_000_000_u64, 13_100_000_001_u64]);
    // Of another build, which states an option that the first one lacks, at its default.
    longer["a_new_option"] = 0.into();
    rows.push(longer);
    rows[0]["samples_ns"][0] = 9_000_000_007_u64.into();
    let three = imported(&serde_json::to_string(&rows).expect("JSON"), Format::LlamaBench);
    let two = imported(LLAMA_BENCH, Format::LlamaBench);
    let found = compare(&side(&two), &side(&three), &Comparing::default()).expect("alike");
    let tests: Vec<&str> = found.tests.iter().map(|test| test.name.as_str()).collect();
    assert_eq!(tests, ["pp512", "tg128"]);
}

#[test]
fn an_option_that_nobody_knows_is_shown_and_stops_nothing() {
    let old = imported(&older(), Format::LlamaBench);
    let new = newer("\"an_option\": \"fast\", ");
    let found = compare(&side(&old), &side(&new), &Comparing::default()).expect("alike");
    let names: Vec<String> = found.differences.iter().map(ToString::to_string).collect();
    assert!(names.contains(&"an_option: not stated and fast".to_owned()), "{names:?}");
    // Of two that state it, it is a setting.
    let slow = newer("\"an_option\": \"slow\", ");
    let slow_text = slow.to_json().replace("6300000000", "6200000000");
    let slow = Profile::from_json(&slow_text, std::path::Path::new("slow")).expect("a profile");
    match compare(&side(&slow), &side(&new), &Comparing::default()) {
        Err(CompareError::Unlike(found)) => assert_eq!(found[0].name, "an_option"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_condition_of_another_format_that_only_one_side_has_refuses_it() {
    let other = |stack: Option<&str>| {
        let mut profile = imported(LLAMA_BENCH, Format::LlamaBench);
        let imported = profile.imported.as_mut().expect("of a file");
        imported.format = "pytorch".to_owned();
        imported.tests.clear();
        let condition = |value: &str| ("with_stack".to_owned(), value.to_owned());
        imported.conditions = stack.map(condition).into_iter().collect();
        profile.passes[0].wall_ns += stack.map_or(0, |_| 1_000_000);
        profile.passes[0].unattributed_ns = profile.passes[0].wall_ns;
        profile
    };
    let [plain, with_stacks] = [None, Some("1")].map(other);
    match compare(&side(&plain), &side(&with_stacks), &Comparing::default()) {
        Err(CompareError::Unlike(found)) => assert_eq!(found[0].name, "with_stack"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_option_that_one_file_sweeps_and_the_other_has_throughout_is_no_test_in_common() {
    let rows = |options: &[u32], more: u64| {
        let template: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
        let row = |option: &u32| {
            let mut row = template[1].clone();
            row["an_option"] = (*option).into();
            row["samples_ns"][0] = (6_400_000_000 + more + u64::from(*option)).into();
            row
        };
        let rows: Vec<_> = options.iter().map(row).collect();
        imported(&serde_json::to_string(&rows).expect("JSON"), Format::LlamaBench)
    };
    let (swept, throughout) = (rows(&[0, 1], 0), rows(&[1], 77));
    match compare(&side(&swept), &side(&throughout), &Comparing::default()) {
        Err(CompareError::NoCommonTest { a, b }) => {
            assert_eq!(a, ["tg128 (an_option 0)", "tg128 (an_option 1)"]);
            assert_eq!(b, ["tg128"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn nights_in_one_file_are_processes_of_their_own() {
    let night = |day: u32| {
        let text = sweep().lines().take(2).collect::<Vec<_>>().join("\n");
        let rows = text.lines().map(|line| {
            let mut row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            row["test_time"] = format!("2026-11-{day:02}T03:00:00Z").into();
            row["samples_ns"][0] = (9_000_000_000_u64 + u64::from(day)).into();
            row.to_string()
        });
        rows.collect::<Vec<_>>().join("\n")
    };
    let text = [night(1), night(2), night(3)].join("\n");
    let profile = imported(&text, Format::LlamaBench);
    let processes = Process::all_of_profile("nights.jsonl", &profile).expect("it has tests");
    let names: Vec<&str> = processes.iter().map(|process| process.name.as_str()).collect();
    assert_eq!(names, [1, 2, 3].map(|day| format!("nights.jsonl, 2026-11-0{day}T03:00:00Z")));
    for (day, process) in (1_u64..).zip(&processes) {
        let tests: Vec<(&str, u64)> =
            process.tests.iter().map(|test| (test.name.as_str(), test.wall_ns[0])).collect();
        assert_eq!(tests, [("pp512", 9_000_000_000 + day), ("tg128", 9_000_000_000 + day)]);
        assert!(process.doubts.is_empty(), "{:?}", process.doubts);
    }
    // One call is the one process of its file.
    let one = imported(&night(1), Format::LlamaBench);
    assert_eq!(Process::all_of_profile("a.jsonl", &one).expect("tests").len(), 1);
}

#[test]
fn rates_without_times_are_shown_beside_each_other_without_a_verdict() {
    let a = imported(MARKDOWN, Format::LlamaBench);
    let b = imported(&MARKDOWN.replace("118.80", "108.00"), Format::LlamaBench);
    let rates = view::rates_compared(&a, &b);
    let found: Vec<(&str, &str, &str)> = rates
        .tests
        .iter()
        .map(|test| (test.name.as_str(), test.a.as_str(), test.b.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("pp512", "7097.99 ± 15.03", "7097.99 ± 15.03"),
            ("tg128 @ d4096", "118.80 ± 0.22", "108.00 ± 0.22")
        ]
    );
    assert!((rates.tests[1].b_takes.expect("rates") - 0.1).abs() < 1e-9);
    let text = rates.text();
    assert!(text.starts_with("No verdict: ") && text.contains("+10.0 % time"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(rates.json().contains("\"outcome\": \"inconclusive\""), "{}", rates.json());
    // With a file that has both, by the mean that every screen shows.
    let timed = imported(LLAMA_BENCH, Format::LlamaBench);
    let stated = imported(&LLAMA_BENCH.replace("samples_ns", "samples_no"), Format::LlamaBench);
    let rates = view::rates_compared(&timed, &stated);
    assert_eq!(rates.tests[0].name, "pp512");
    assert!(rates.tests[0].b_takes.expect("rates").abs() < 0.001);
    assert_eq!(rates.differences, []);
    // Another model is named.
    let other = imported(&MARKDOWN.replace("qwen2 7B", "llama 8B"), Format::LlamaBench);
    let differ: Vec<String> =
        view::rates_compared(&a, &other).differences.iter().map(ToString::to_string).collect();
    assert_eq!(differ, ["model: qwen2 7B Q4_K - Medium and llama 8B Q4_K - Medium"]);
    // Of a test that was measured twice the last row counts.
    let row = MARKDOWN.lines().nth(3).expect("a row");
    let twice = MARKDOWN.replace(row, &format!("{row}\n{}", row.replace("118.80", "99.00")));
    let rates = view::rates_compared(&a, &imported(&twice, Format::LlamaBench));
    assert_eq!((rates.tests[1].b.as_str(), rates.again), ("99.00 ± 0.22", [0, 1]));
    assert!(rates.text().contains("B: 1 row left out"), "{}", rates.text());
}

#[test]
fn one_flag_of_2023_is_the_types_of_keys_and_values() {
    let new = imported(LLAMA_BENCH, Format::LlamaBench);
    let old = |flag: &str| {
        let lines = LLAMA_BENCH.lines().filter(|line| !line.contains("\"type_v\""));
        let text = lines.collect::<Vec<_>>().join("\n");
        let text = text.replace("\"type_k\": \"f16\"", &format!("\"f16_kv\": {flag}"));
        imported(&text.replace("6400000000", "6300000000"), Format::LlamaBench)
    };
    for (a, b) in [(&new, &old("true")), (&old("true"), &new)] {
        let found = compare(&side(a), &side(b), &Comparing::default()).expect("alike");
        assert!(found.differences.is_empty(), "{:?}", found.differences);
    }
    // Without it they were of 32 bits.
    match compare(&side(&old("false")), &side(&new), &Comparing::default()) {
        Err(CompareError::Unlike(found)) => {
            let values: Vec<_> = found.iter().map(|of| (&*of.name, &*of.a[0], &*of.b[0])).collect();
            assert_eq!(values, [("type_k", "f32", "f16"), ("type_v", "f32", "f16")]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_way_to_load_a_model_that_tells_nothing_is_shown_and_stops_nothing() {
    let old = imported(&older(), Format::LlamaBench);
    let auto = newer("\"load_mode\": \"auto\", ");
    let found = compare(&side(&old), &side(&auto), &Comparing::default()).expect("alike");
    let names: Vec<String> = found.differences.iter().map(ToString::to_string).collect();
    assert!(names.contains(&"load_mode: not stated and auto".to_owned()), "{names:?}");
}

#[test]
fn calls_without_times_are_told() {
    let rows: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
    let call = |day: u32, is_timed: bool| {
        let mut row = rows[1].clone();
        row["test_time"] = format!("2026-11-{day:02}T03:00:00Z").into();
        row["samples_ns"] = serde_json::json!([6_400_000_000_u64 + u64::from(day)]);
        if !is_timed {
            row.as_object_mut().expect("a row").remove("samples_ns");
        }
        format!("{row}\n")
    };
    let of = |text: String| imported(&text, Format::LlamaBench);
    let file = of(call(1, true) + &call(2, false) + &call(3, true) + &call(4, false));
    let processes = Process::all_of_profile("nights", &file).expect("two have times");
    let doubts: Vec<&str> = processes.iter().flat_map(|of| &of.doubts).map(|of| &**of).collect();
    assert_eq!(processes.len(), 2);
    assert_eq!(doubts, ["2 other calls in its file are left out: they have no times"]);
    let error = Process::all_of_profile("nights", &of(call(1, false) + &call(2, false)));
    assert!(error.is_err(), "{error:?}");
}

#[test]
fn a_test_names_its_model_as_briefly_as_tells_it_from_others() {
    let names = |models: &[(&str, &str)]| {
        let template: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
        let row = |(at, (file, of_type)): (usize, &(&str, &str))| {
            let mut row = template[1].clone();
            row["model_filename"] = (*file).into();
            row["model_type"] = (*of_type).into();
            row["model_size"] = at.into();
            row["samples_ns"][0] = (6_400_000_000 + at).into();
            row
        };
        let rows: Vec<_> = models.iter().enumerate().map(row).collect();
        let profile = imported(&serde_json::to_string(&rows).expect("JSON"), Format::LlamaBench);
        let process = Process::from_profile("a run", &profile).expect("it has tests");
        assert!(process.doubts.is_empty(), "{:?}", process.doubts);
        process.tests.into_iter().map(|test| test.name).collect::<Vec<_>>()
    };
    let different = [("/home/a/x.gguf", "llama 1B"), ("/home/a/y.gguf", "llama 8B")];
    assert_eq!(names(&different), ["tg128 (x.gguf)", "tg128 (y.gguf)"]);
    // Whichever others are in the file.
    let more = [&different[..], &[("/home/a/z.gguf", "llama 1B")]].concat();
    assert_eq!(names(&more), ["tg128 (x.gguf)", "tg128 (y.gguf)", "tg128 (z.gguf)"]);
    let alike = [("a/x.gguf", "llama 1B"), ("b/x.gguf", "llama 1B"), ("a/z.gguf", "llama 8B")];
    assert_eq!(names(&alike), ["tg128 (a/x.gguf)", "tg128 (b/x.gguf)", "tg128 (z.gguf)"]);
}
