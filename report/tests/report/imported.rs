//! Pages of what other programs recorded.

use brickscope::{Absent, FunctionSamples, Imported};

use crate::read::{section, traced};
use crate::samples::{sample, two_ranks};

#[test]
fn what_an_imported_file_does_not_tell_is_no_zero() {
    use brickscope_formats::import::{Format, Options, read};
    let data = |name: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/import");
        std::fs::read_to_string(folder.join(name)).expect("it is there")
    };
    let passes = Options { decode: Some("model".to_owned()), ..Options::default() };
    let microseconds = Options {
        unit: Some(brickscope_formats::import::WeightUnit::Microseconds),
        ..Options::default()
    };
    for (file, format, options) in [
        ("llama-bench.json", Format::LlamaBench, Options::default()),
        ("candle.json", Format::Chrome, passes),
        ("vk-perf-logger.txt", Format::VkPerfLogger, Options::default()),
        ("forward-pass-metrics.jsonl", Format::ForwardPassMetrics, Options::default()),
        ("stacks.folded", Format::Folded, microseconds),
    ] {
        let profile = read(&data(file), file.as_ref(), format, &options).expect("it is read");
        let (page, _) = traced(&profile);
        assert!(!page.contains("spans recorded"), "{file}");
        for figure in page.split("value=0 ").skip(1) {
            let figure = figure.split("</").next().expect("there is one");
            let untold = ["/count", "tokens", "/position", "/layers", "_length", "/overhead/spans"];
            assert!(!untold.iter().any(|field| figure.contains(field)), "{file}: {figure}");
        }
        if format != Format::Chrome {
            assert!(!page.contains("too few spans"), "{file}");
        } else {
            assert!(section(&page, "timeline").contains("pass "), "{file}");
            assert!(!section(&page, "timeline").contains("at position"), "{file}");
        }
    }
}

#[test]
fn ranks_are_told_with_who_comes_last_and_how_their_clocks_lie() {
    let (page, _) = traced(&two_ranks());
    for said in [
        "ranks 2 of 2: rank 1 is the straggler: the others wait 100 µs a pass for it (8 of 8 collectives)",
        "rank 1: rank1.json; 8 of 8 collectives found on other ranks, by their numbers",
        "its clock is that of rank 0, within 0 ns",
    ] {
        assert!(page.contains(said), "{said}");
    }
}

#[test]
fn what_was_imported_says_so_at_the_top_and_what_it_lacks() {
    let mut profile = sample("moe");
    profile.imported = Some(Imported {
        format: "chrome".to_owned(),
        file: "trace-9.json".to_owned(),
        program: Some("candle 0.9".to_owned()),
        lacks: vec![Absent { reason: "no FLOPs: the format has no field for them".to_owned() }],
        left_out: vec![("events that are no durations".to_owned(), 12)],
        doubts: vec!["2 of 9 launches have no kernel".to_owned()],
        conditions: vec![("n_threads".to_owned(), "2".to_owned())],
        samples: vec![FunctionSamples { name: "ggml_vec_dot".to_owned(), own: 70, total: 90 }],
        tests: Vec::new(),
        ..Imported::default()
    });
    let (page, _) = traced(&profile);
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(at("class=\"headline\"") < at("<strong>Imported</strong>"));
    assert!(at("<strong>Imported</strong>") < at("no FLOPs: the format has no field for them"));
    assert!(at("events that are no durations") < at("</header>"));
    assert!(section(&page, "bricks").contains("ggml_vec_dot"));
    assert!(section(&page, "machine").contains("n_threads"));
}

#[test]
fn files_of_other_programs_have_reports() {
    use brickscope_formats::import::{Format, Options, WeightUnit, read};
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import");
    for name in
        ["candle.json", "torch.json", "llama-bench.json", "vk-perf-logger.txt", "stacks.folded"]
    {
        let text = std::fs::read_to_string(format!("{folder}/{name}")).expect("a file");
        let format = brickscope_formats::import::format_of(&text).expect("a format");
        let unit = (format == Format::Folded).then_some(WeightUnit::Samples);
        let options = Options { unit, ..Options::default() };
        let profile = read(&text, name.as_ref(), format, &options).expect("it is read");
        let (page, _) = traced(&profile);
        assert!(page.contains("<strong>Imported</strong>"), "{name}");
        assert!(!page.contains("NaN"), "{name}");
    }
}

#[test]
fn a_sweep_of_tests_without_passes_has_a_table_of_them() {
    use brickscope_formats::import::{Format, Options, read};
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import/llama-bench.json");
    let text = std::fs::read_to_string(file).expect("a file");
    let mut rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
    for nth in 0..rows.len() {
        let mut deep = rows[nth].clone();
        deep["n_depth"] = 8192.into();
        rows.push(deep);
    }
    let text = serde_json::Value::from(rows).to_string();
    let profile = read(&text, "sweep.json".as_ref(), Format::LlamaBench, &Options::default());
    let profile = profile.expect("it is read");
    let (page, _) = traced(&profile);
    let tests = brickscope_analysis::rate::imported_tests(&profile);
    assert_eq!(tests.len(), 4);
    for test in tests {
        assert!(test.rate.contains(" ± "), "{test:?}");
        for part in [test.name, test.rate, test.how] {
            assert!(page.contains(&part), "{part}");
        }
    }
    assert!(!page.contains("there are no figures"));
    // In words, too.
    let decode = brickscope_analysis::explain::find("decode")[0].in_run(&profile).sections;
    assert_eq!(decode.len(), 2, "{decode:?}");
    assert!(decode[0].text.contains(" tok/s, "), "{decode:?}");
}

#[test]
fn the_first_figure_of_a_trace_of_a_gpu_is_how_busy_the_gpu_was() {
    use brickscope_formats::import::{Format, Options, read};
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import/kineto-streams.json");
    let text = std::fs::read_to_string(file).expect("a file");
    let profile = read(&text, file.as_ref(), Format::Chrome, &Options::default()).expect("read");
    let (page, _) = traced(&profile);
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part}"));
    assert!(at("<dt>Decode, the device busy</dt>") < at("<dt>Decode on the host</dt>"));
    assert!(
        !page.contains("<dt>Unattributed</dt>") && page.contains("<dt>Unattributed on the host")
    );
}
