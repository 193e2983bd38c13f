//! Files of other programs, as reports have them. The files in `tests/data/import` were made by hand, after what the
//! programs write.

mod hostile;
mod pytorch;

use std::path::Path;

use brickscope::{BrickId, BrickProfiler, MockClock, NameKind, Phase, Profile, Source};
use brickscope_analysis::compare::{CompareError, Options as Comparing, Process, Side, compare};
use brickscope_analysis::import::{Format, ImportError, Options, WeightUnit, read};
use brickscope_analysis::{export, view};

const LLAMA_BENCH: &str = include_str!("../../data/import/llama-bench.json");
const CANDLE: &str = include_str!("../../data/import/candle.json");
const TORCH: &str = include_str!("../../data/import/torch.json");
const VULKAN: &str = include_str!("../../data/import/vk-perf-logger.txt");
const FOLDED: &str = include_str!("../../data/import/stacks.folded");

fn import(text: &str, format: Format, options: &Options) -> Result<Profile, ImportError> {
    let profile = read(text, Path::new("a.file"), format, options)?;
    assert_eq!(profile.check(), Ok(()));
    let json = profile.to_json();
    let back = Profile::from_json(&json, Path::new("profile.json")).expect("it was written");
    assert_eq!(back.to_json(), json);
    Ok(profile)
}

fn imported(text: &str, format: Format) -> Profile {
    import(text, format, &Options::default()).expect("it is of this format")
}

fn refused(text: &str, format: Format, options: &Options) -> String {
    import(text, format, options).expect_err("it should be refused").to_string()
}

fn passes_of(name: &str) -> Options {
    Options { decode: Some(name.to_owned()), ..Options::default() }
}

/// Count, total and exclusive nanoseconds of a brick.
fn sums(profile: &Profile, phase: Option<Phase>, name: &str) -> (u64, u64, u64) {
    let bricks = profile.bricks(phase);
    let stats = &bricks.iter().find(|t| t.stats.name == name).expect("it is there").stats;
    (stats.count, stats.total_ns, stats.exclusive_ns)
}

#[test]
fn each_format_is_told_from_the_others() {
    for (text, format) in [
        (LLAMA_BENCH, Some(Format::LlamaBench)),
        (CANDLE, Some(Format::Chrome)),
        (TORCH, Some(Format::Chrome)),
        (VULKAN, Some(Format::VkPerfLogger)),
        (FOLDED, Some(Format::Folded)),
        ("", None),
        ("[1, 2]", None),
        ("some text", None),
    ] {
        assert_eq!(brickscope_analysis::import::format_of(text), format);
    }
}

#[test]
fn repetitions_of_llama_bench_are_passes_of_which_nothing_is_attributed() {
    let profile = imported(LLAMA_BENCH, Format::LlamaBench);
    let decode = profile.phase(Phase::Decode).expect("a phase");
    assert_eq!((decode.passes, decode.tokens), (3, 384));
    assert_eq!((decode.wall_ns, decode.unattributed_ns), (19_500_000_000, 19_500_000_000));
    let walls: Vec<u64> = profile.passes.iter().map(|pass| pass.wall_ns).collect();
    assert_eq!(walls[..4], [9_000_000_001, 9_100_000_003, 9_200_000_005, 6_400_000_000]);
    // No single token has a time.
    assert_eq!((profile.latency.per_token.count, profile.latency.first_token.count), (0, 0));
    assert_eq!(profile.created, "2026-11-20T09:12:44Z");
    insta::assert_snapshot!("llama_bench", view::report(&profile));
}

#[test]
fn a_line_of_llama_bench_is_a_test_too() {
    let rows: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let (mut lines, mut array) =
        (imported(&lines, Format::LlamaBench), imported(LLAMA_BENCH, Format::LlamaBench));
    lines.created.clear();
    array.created.clear();
    assert_eq!(lines, array);
}

#[test]
fn tests_under_unlike_conditions_are_not_mixed() {
    let other = LLAMA_BENCH.replacen("\"n_threads\": 2", "\"n_threads\": 4", 1);
    let said = refused(&other, Format::LlamaBench, &Options::default());
    assert_eq!(
        said,
        "a.file: rows 1 (pp512) and 2 (tg128) differ in n_threads (4 and 2), but a run has only one: choose \
         rows by their numbers"
    );
    let other = LLAMA_BENCH.replacen("\"type_k\": \"f16\"", "\"type_k\": \"q8_0\"", 1);
    let said = refused(&other, Format::LlamaBench, &Options::default());
    assert!(said.contains("differ in type_k (q8_0 and f16)"), "{said}");
    let second = Options { rows: vec![2], ..Options::default() };
    let alone = import(&other, Format::LlamaBench, &second).expect("one row");
    assert_eq!(alone.phases.len(), 1);
    let missing = Options { rows: vec![3], ..Options::default() };
    let said = refused(&other, Format::LlamaBench, &missing);
    assert_eq!(said, "a.file: has no row 3: its rows are 1 to 2");

    let twice = LLAMA_BENCH
        .replace("\"n_prompt\": 0,\n    \"n_gen\": 128", "\"n_prompt\": 64,\n    \"n_gen\": 0");
    let said = refused(&twice, Format::LlamaBench, &Options::default());
    assert!(said.contains("rows 1 (pp512) and 2 (pp64) are both of prefill"), "{said}");
    let mixed = LLAMA_BENCH.replace("\"n_prompt\": 0,", "\"n_prompt\": 512,");
    let profile = imported(&mixed, Format::LlamaBench);
    assert_eq!(profile.phases.len(), 1);
    assert_eq!(profile.imported.expect("it is").left_out[0].1, 1);
}

#[test]
fn faults_of_llama_bench_are_named_by_row_and_field() {
    for (from, to, said) in [
        ("6500000000,", "-1,", "row 2, samples_ns[1]: is not a whole number of nanoseconds"),
        ("\"n_gen\": 128", "\"n_gen\": \"x\"", "row 2, n_gen: is not a whole number"),
        ("\"n_gen\": 128", "\"n_gem\": 128", "row 2, n_gen: is missing"),
        ("\"n_gen\": 128", "\"n_gen\": 0", "row 2, n_prompt: is 0, and so is n_gen"),
        ("6400000000,", "18446744073709551615,", "row 2, samples_ns: add up to more than 64 bits"),
    ] {
        let text = LLAMA_BENCH.replace(from, to);
        assert_ne!(text, LLAMA_BENCH);
        let error = refused(&text, Format::LlamaBench, &Options::default());
        assert!(error.starts_with(&format!("a.file, {said}")), "{error}");
    }
    let cut = refused(&LLAMA_BENCH[..300], Format::LlamaBench, &Options::default());
    assert!(cut.starts_with("a.file, line 1"), "{cut}");
}

#[test]
fn spans_of_a_trace_are_to_the_nanosecond_and_nest() {
    let profile = imported(CANDLE, Format::Chrome);
    assert_eq!(sums(&profile, None, "softmax"), (1, 1_000, 1_000));
    // 8 µs of a pair with 1 µs of softmax inside, and 8.0004 µs of one event.
    assert_eq!(sums(&profile, None, "attn"), (2, 16_000, 15_000));
    assert_eq!(sums(&profile, None, "mlp"), (2, 19_999 + 20_000, 19_999 + 20_000));
    assert_eq!(sums(&profile, None, "generate"), (1, 100_000, 100_000 - 29_000 - 31_000));
    assert_eq!(profile.lanes[0].name.as_deref(), Some("main"));
    // From the first span on.
    assert_eq!(profile.spans[0].start_ns, 0);
    let left_out = profile.imported.as_ref().expect("it is").left_out.clone();
    assert_eq!(left_out, [("asynchronous events".to_owned(), 1), ("instants".to_owned(), 1)]);
    insta::assert_snapshot!("candle", view::report(&profile));
}

#[test]
fn events_that_are_said_to_be_passes_are() {
    let profile = import(CANDLE, Format::Chrome, &passes_of("model")).expect("it has them");
    let decode = profile.phase(Phase::Decode).expect("a phase");
    assert_eq!((decode.passes, decode.wall_ns), (2, 29_000 + 31_000));
    assert_eq!(decode.unattributed_ns, 29_000 - 8_000 - 19_999 + 31_000 - 8_000 - 20_000);
    assert_eq!(sums(&profile, Some(Phase::Decode), "softmax"), (1, 1_000, 1_000));
    // What is around passes explains none of them.
    assert_eq!(sums(&profile, None, "generate"), (1, 100_000, 40_000));
    let graph = profile.execution_graph(1).expect("its spans are all there");
    assert_eq!(graph.nodes_by_name("attn").count(), 1);
    insta::assert_snapshot!("candle_with_passes", view::report(&profile));

    let said = refused(CANDLE, Format::Chrome, &passes_of("forward"));
    assert!(
        said.contains("no event `forward`, which should be a decode pass; it has `generate`"),
        "{said}"
    );
}

#[test]
fn a_trace_in_an_object_has_processes_and_what_ran_on_a_device() {
    let profile = imported(TORCH, Format::Chrome);
    let [device] = &profile.devices[..] else { panic!("{:?}", profile.devices) };
    assert_eq!((&*device.name, &*device.streams[0].name), ("NVIDIA H200", "stream 7"));
    let kernel = &device.streams[0].totals;
    let kernel = kernel.iter().find(|t| t.stats.name.starts_with("sgemm")).expect("a kernel");
    assert_eq!((kernel.source, kernel.stats.total_ns), (Source::Device, 30_250));
    // A range of the program as it lies on the device is no work.
    let range = TORCH.replace("\"cat\": \"kernel\"", "\"cat\": \"gpu_user_annotation\"");
    assert_ne!(range, TORCH);
    assert!(imported(&range, Format::Chrome).devices.is_empty());
    // Of a moment in the calendar, in microseconds with three digits after the point. An operation inside is a part of it.
    assert_eq!(sums(&profile, None, "MatMul"), (1, 50_500, 50_500));
    let addmm = profile.spans.iter().find(|span| span.parent.is_some()).expect("it is inside");
    assert_eq!(addmm.start_ns, 3_212);
    let left_out = &profile.imported.as_ref().expect("it is").left_out;
    assert_eq!(left_out[0].0, "events that overlap another of their thread without nesting");
    assert_eq!(left_out.iter().map(|(_, n)| n).sum::<u64>(), 2);
}

#[test]
fn a_trace_may_break_off_between_events() {
    let at = CANDLE.find("{\"ph\":\"B\",\"pid\":1,\"ts\":140.0").expect("an event");
    for cut in [at, at + 20] {
        let profile = imported(&CANDLE[..cut], Format::Chrome);
        let left_out = profile.imported.expect("it is").left_out;
        let whys: Vec<&str> = left_out.iter().map(|(why, _)| why.as_str()).collect();
        let rest = "the rest of the file, which is truncated";
        assert_eq!(whys, ["begins without an end", "instants", rest]);
    }
}

#[test]
fn faults_of_a_trace_are_named_by_event_and_field() {
    for (event, said) in [
        (r#"{"ph":"X","dur":1}"#, "event 1: `ts` is missing"),
        (r#"{"ph":"X","ts":1}"#, "event 1: `dur` is missing"),
        (r#"{"ph":"X","ts":"x","dur":1}"#, "event 1: `ts` is not a number of microseconds"),
        (r#"{"ph":"X","ts":1e300,"dur":1}"#, "event 1: `ts` is not a number of microseconds"),
        (r#"{"ts":1}"#, "event 1: `ph`, the kind of the event, is missing"),
        ("{]", "line 1 column 3"),
    ] {
        let error = refused(&format!("[{event}]"), Format::Chrome, &Options::default());
        assert!(error.starts_with(&format!("a.file, {said}")), "{error}");
    }
    for nothing in ["[]", "{}", "{\"traceEvents\":[]}"] {
        let error = refused(nothing, Format::Chrome, &Options::default());
        assert!(error.contains("no event with a duration"), "{error}");
    }
}

#[test]
fn operations_of_the_vulkan_log_are_sums_by_the_clock_of_the_device() {
    let profile = imported(VULKAN, Format::VkPerfLogger);
    let vec = "MUL_MAT_VEC q4_K m=2048 n=1 k=2048";
    assert_eq!(sums(&profile, None, vec), (44, 1_104_970, 1_104_970));
    // C++ prints large numbers so, with six digits.
    let large = "MUL_MAT_VEC q4_K m=5632 n=1 k=2048";
    assert_eq!(sums(&profile, None, large).1, 54_321_100_000);
    assert!(profile.totals.iter().all(|total| total.source == Source::Device));
    assert!(profile.totals.iter().all(|total| total.kind == NameKind::Brick));
    assert_eq!(profile.totals.len(), 8);
    let left_out = &profile.imported.as_ref().expect("it is").left_out;
    assert_eq!(left_out[..], [("other lines among the timings".to_owned(), 1)]);
    insta::assert_snapshot!("vk_perf_logger", view::report(&profile));
    insta::assert_snapshot!("vk_perf_logger_statistics", view::statistics(&profile));
    let said = refused("nothing of the kind\n", Format::VkPerfLogger, &Options::default());
    assert!(said.contains("GGML_VK_PERF_LOGGER=1"), "{said}");
}

#[test]
fn weights_of_folded_stacks_are_what_the_user_says() {
    let said = refused(FOLDED, Format::Folded, &Options::default());
    assert!(said.contains("whether their weights are times or samples"), "{said}");
    let unit = |unit| Options { unit: Some(unit), ..Options::default() };
    let times = import(FOLDED, Format::Folded, &unit(WeightUnit::Microseconds)).expect("times");
    // How often it ran isn't known; a name that calls itself is in its stack once.
    assert_eq!(sums(&times, None, "forward"), (0, 825_000, 20_000));
    assert_eq!(sums(&times, None, "mlp"), (0, 505_000, 505_000));
    insta::assert_snapshot!("folded_times", view::report(&times));
    let samples = import(FOLDED, Format::Folded, &unit(WeightUnit::Samples)).expect("samples");
    assert!(samples.totals.is_empty());
    insta::assert_snapshot!("folded_samples", view::report(&samples));
    let said = refused("main x\n", Format::Folded, &unit(WeightUnit::Samples));
    assert!(said.starts_with("a.file, line 1: "), "{said}");
    let said = refused("a 18446744073709551615\n", Format::Folded, &unit(WeightUnit::Microseconds));
    assert!(said.contains("add up to more than"), "{said}");
}

#[test]
fn an_option_of_another_format_is_a_mistake() {
    for (format, options) in [
        (Format::Chrome, Options { unit: Some(WeightUnit::Samples), ..Options::default() }),
        (Format::Chrome, Options { rows: vec![1], ..Options::default() }),
        (Format::Folded, passes_of("a")),
    ] {
        let said = refused("", format, &options);
        assert!(said.contains("is for files of"), "{said}");
    }
}

/// The cells of a column of a table as CSV; those in quotes are empty here.
fn column(csv: &[u8], name: &str) -> Vec<String> {
    let text = std::str::from_utf8(csv).expect("UTF-8");
    let text: String = text.split('"').step_by(2).collect();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().expect("names of columns");
    let at = head.iter().position(|head| *head == name).expect("a column");
    lines.map(|cells| cells[at].to_owned()).collect()
}

#[test]
fn what_a_file_does_not_tell_is_no_number_in_exports() {
    let unit = Options { unit: Some(WeightUnit::Microseconds), ..Options::default() };
    for profile in [
        imported(VULKAN, Format::VkPerfLogger),
        import(FOLDED, Format::Folded, &unit).expect("times"),
    ] {
        let mut out = Vec::new();
        export::csv::totals(&profile, &mut out).expect("a vector has room");
        for name in ["min_ns", "max_ns", "p50_ns"] {
            assert!(column(&out, name).iter().all(String::is_empty), "{name}");
        }
        // Of stacks it isn't known how often a function ran.
        let counts = column(&out, "count");
        assert!(counts.iter().all(|count| count != "0"), "{counts:?}");
    }
    // A pass whose tokens nobody told.
    let profile = import(CANDLE, Format::Chrome, &passes_of("model")).expect("it has them");
    assert_eq!(profile.phases[0].tokens_per_second(), None);
    let mut out = Vec::new();
    export::csv::passes(&profile, &mut out).expect("a vector has room");
    assert_eq!(column(&out, "tokens"), ["", ""]);
    assert_eq!(column(&out, "position"), ["", ""]);
    assert!(column(&out, "start_ns").iter().all(|cell| !cell.is_empty()));
    let mut out = Vec::new();
    export::chrome::write(&profile, &mut out).expect("it says when all was");
    let trace = String::from_utf8(out).expect("UTF-8");
    for never in ["\"tokens\"", "\"position\"", "KV cache"] {
        assert!(!trace.contains(never), "{never} in {trace}");
    }
}

#[test]
fn what_lies_at_no_moment_is_in_no_timeline() {
    for (text, format) in [(LLAMA_BENCH, Format::LlamaBench), (VULKAN, Format::VkPerfLogger)] {
        let profile = imported(text, format);
        let mut out = Vec::new();
        let refused = export::chrome::write(&profile, &mut out).expect_err("nobody knows when");
        assert!(refused.to_string().contains("doesn't say when"), "{refused}");
        assert!(out.is_empty());
        export::perfetto::write(&profile, &mut out).expect_err("nobody knows when");
        assert!(out.is_empty());
    }
    let mut out = Vec::new();
    export::csv::passes(&imported(LLAMA_BENCH, Format::LlamaBench), &mut out).expect("room");
    assert!(column(&out, "start_ns").iter().all(String::is_empty));
    assert!(column(&out, "tokens").iter().all(|tokens| !tokens.is_empty()));
}

fn side(profile: &Profile) -> Side {
    let process = Process::from_profile("a run", profile).expect("it has passes");
    Side { name: "a side".to_owned(), processes: vec![process] }
}

#[test]
fn what_was_imported_compares_with_its_like_only() {
    let ours = {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let pass = profiler.begin_pass(Phase::Decode);
        let brick = profiler.start_brick(BrickId::LmHead);
        hand.advance(1_000);
        profiler.stop_brick(brick, 1);
        profiler.end_pass(pass, 1, 0);
        profiler.profile()
    };
    let theirs = imported(LLAMA_BENCH, Format::LlamaBench);
    let unlike = |a: &Profile, b: &Profile| match compare(&side(a), &side(b), &Comparing::default())
    {
        Err(CompareError::Unlike(differences)) => {
            differences.into_iter().map(|difference| difference.name).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let names = unlike(&theirs, &ours);
    assert_eq!(names[0], "measured by");
    assert!(names.contains(&"tokens of a decode pass".to_owned()), "{names:?}");

    let faster = LLAMA_BENCH.replace("6400000000", "6300000000");
    let faster = imported(&faster, Format::LlamaBench);
    assert!(compare(&side(&theirs), &side(&faster), &Comparing::default()).is_ok());
    let other = LLAMA_BENCH.replace("\"type_k\": \"f16\"", "\"type_k\": \"q8_0\"");
    let other = other.replace("6400000000", "6300000000");
    assert_eq!(unlike(&theirs, &imported(&other, Format::LlamaBench)), ["type_k"]);
    // Another build is what one wants to compare.
    let build = faster.to_json().replace("0c1e5709", "11111111");
    let build = Profile::from_json(&build, Path::new("b")).expect("a profile");
    assert!(compare(&side(&theirs), &side(&build), &Comparing::default()).is_ok());
}
