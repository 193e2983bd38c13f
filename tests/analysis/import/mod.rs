//! Files of other programs, as reports have them. The files in `tests/data/import` were made by hand, after what the
//! programs write.

mod attention;
mod capture;
mod chrome;
mod databases;
mod device_graph;
mod device_times;
mod devices;
mod experts;
mod file;
mod forward_pass;
mod hostile;
mod jax;
mod kernel_names;
mod llama_bench;
mod llama_bench_compared;
mod merged;
mod nccl_inspector;
mod onnx;
mod planted_gpu;
mod pytorch;
mod ranks;
mod rocprof;
mod shapes;
mod waits;

use std::path::Path;

use brickscope::{BrickId, BrickProfiler, MockClock, NameKind, Phase, Profile, Source};
use brickscope_analysis::compare::{CompareError, Options as Comparing, Process, Side, compare};
use brickscope_analysis::view;
use brickscope_formats::export;
use brickscope_formats::import::{Format, ImportError, Options, WeightUnit, read};

const LLAMA_BENCH: &str = include_str!("../../data/import/llama-bench.json");
const CANDLE: &str = include_str!("../../data/import/candle.json");
const TORCH: &str = include_str!("../../data/import/torch.json");
const NCCL: &str = include_str!("../../data/import/nccl-inspector.log");
const FORWARD_PASSES: &str = include_str!("../../data/import/forward-pass-metrics.jsonl");
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
        (onnx::RUNS, Some(Format::Chrome)),
        (NCCL, Some(Format::NcclInspector)),
        (FORWARD_PASSES, Some(Format::ForwardPassMetrics)),
        (VULKAN, Some(Format::VkPerfLogger)),
        (FOLDED, Some(Format::Folded)),
        ("", None),
        ("[1, 2]", None),
        ("some text", None),
    ] {
        assert_eq!(brickscope_formats::import::format_of(text), format);
    }
}

/// What `GGML_VK_PERF_LOGGER=1 llama-bench … > bench.log 2>&1` leaves.
#[test]
fn times_of_vulkan_within_the_output_of_llama_bench_are_read() {
    let head =
        "| model | size | params | backend | ngl | test | t/s |\n|---|---|---|---|---|---|---|\n";
    let row = "| llama 1B | 1 GiB | 1 B | Vulkan | 99 | tg8 | 20.00 ± 0.10 |\n";
    let block = "Vulkan Timings:\nADD: 2 x 3 us = 6 us\nTotal time: 6 us.\n";
    let whole = format!("{head}{block}{row}\nbuild: abc (1)\n");
    // Killed before the test had ended.
    for text in [whole.clone(), format!("{head}{block}")] {
        assert_eq!(brickscope_formats::import::format_of(&text), Some(Format::VkPerfLogger));
        let profile = imported(&text, Format::VkPerfLogger);
        assert_eq!(sums(&profile, None, "ADD"), (2, 6_000, 6_000));
        let lacks = profile.imported.expect("of a file").lacks;
        assert!(
            lacks.iter().any(|lack| lack.reason.contains("`import --format llama-bench`")),
            "{lacks:?}"
        );
    }
    let tests = imported(&whole, Format::LlamaBench).imported.expect("of a file").tests;
    assert_eq!(tests.len(), 1);
    // A heading alone is no time.
    let text = format!("Vulkan Timings:\n{head}{row}");
    assert_eq!(brickscope_formats::import::format_of(&text), Some(Format::LlamaBench));
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
    let why = "events that overlap another of their thread without nesting, by more than 2 µs";
    assert_eq!(left_out[0].0, why);
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

/// Versions of 2025 print means and no sums, and the first of them no last line.
#[test]
fn a_vulkan_log_of_2025_is_read_by_its_means() {
    let lines = VULKAN.lines().map(|line| match line.split_once(" us = ") {
        Some((front, back)) => match back.split_once(" (") {
            Some((_, rate)) => format!("{front} us ({rate}\n"),
            None => format!("{front} us\n"),
        },
        None => format!("{line}\n"),
    });
    let of_means: String = lines.collect();
    let without_end = of_means.lines().filter(|line| !line.starts_with("Total time"));
    let without_end = without_end.collect::<Vec<_>>().join("\n");
    for text in [&of_means, &without_end, &of_means.replace('\n', "\r\n")] {
        assert!(!text.contains(" us = "));
        let profile = imported(text, Format::VkPerfLogger);
        let vec = "MUL_MAT_VEC q4_K m=2048 n=1 k=2048";
        assert_eq!(sums(&profile, None, vec), (44, 44 * 25_113, 44 * 25_113));
        assert_eq!(profile.totals.len(), 8);
        let imported = profile.imported.as_ref().expect("of a file");
        assert!(imported.lacks.iter().any(|lack| lack.reason.starts_with("sums: the log has")));
        assert!(imported.left_out.iter().all(|(why, _)| !why.contains("truncated")));
    }
}

#[test]
fn names_that_differ_only_in_their_ends_are_whole() {
    let shapes = ["m=2048 n=1 k=2048", "m=6144 n=1 k=2048", "m=2048 n=1 k=6144"];
    let line = |shape| format!("MUL_MAT_VEC q4_K {shape}: 9 x 111.6 us = 1004.4 us\n");
    let log = format!("Vulkan Timings:\n{}ADD: 1 x 300 us = 300 us\n", shapes.map(line).concat());
    let profile = imported(&log, Format::VkPerfLogger);
    let report = view::report(&profile);
    let screen = view::summary(&profile, view::Size::default(), None).to_string();
    for shape in shapes {
        let name = format!("MUL_MAT_VEC q4_K {shape}");
        for text in [&report, &screen] {
            assert!(text.lines().any(|line| line.trim() == name), "{text}");
        }
    }
    assert!(screen.lines().count() <= 23, "{screen}");
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
    assert!(!report.contains("MUL_MAT_VEC q4_K m=…"), "{report}");
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
    assert!(said.contains("is more than"), "{said}");
}

#[test]
fn stacks_of_other_programs_are_read_or_named() {
    let unit = |unit| Options { unit: Some(unit), ..Options::default() };
    let of = |text: &str, as_unit| import(text, Format::Folded, &unit(as_unit));
    // A frame that begins like JSON.
    let text = "\u{feff}[unknown];main;gemm 10\r\n[libc.so.6];memcpy 5\r\n";
    assert_eq!(brickscope_formats::import::format_of(text), Some(Format::Folded));
    let samples = of(text, WeightUnit::Samples).expect("stacks").imported.expect("of a file");
    assert_eq!((samples.samples[0].name.as_str(), samples.samples[0].own), ("gemm", 10));
    // Fractions of times are nanoseconds.
    let text = "main;a 1.5\nmain;b 0.000001\nmain;c 2\nmain;d 3.00\n";
    assert_eq!(brickscope_formats::import::format_of(text), Some(Format::Folded));
    let times = of(text, WeightUnit::Milliseconds).expect("times");
    assert_eq!(
        ["a", "b", "c", "d"].map(|name| sums(&times, None, name).2),
        [1_500_000, 1, 2_000_000, 3_000_000]
    );
    let said = of(text, WeightUnit::Samples).expect_err("half a sample").to_string();
    assert!(said.starts_with("a.file, line 1: its weight has a fraction"), "{said}");
    assert!(of("a 1.\nb 2.0\n", WeightUnit::Samples).is_ok());
    // Two counts a line.
    for text in ["main;a;gemm 10 30\nmain;a;softmax 5 2\n", "a\t1.5 2\nb\t0 3.5\n"] {
        let said = of(text, WeightUnit::Milliseconds).expect_err("two").to_string();
        assert!(said.contains("has two counts a line, before and after"), "{said}");
        assert!(said.contains("as `%20`"), "{said}");
        assert!(export::folded::read(text, Path::new("a.file")).is_err());
    }
    // A layer has a number, and so may one name of many, and all of a few.
    for text in [
        "decode;layer 0 10\ndecode;layer 1 20\n",
        "main;f 1 10\nmain;g 20\n",
        "main;op 5 100\n",
        "expert 5 100\nexpert 6 100\n",
        "main;op%205 100\nmain;other%207 30\n",
    ] {
        let samples = of(text, WeightUnit::Samples).expect(text).imported.expect("of a file");
        assert!(samples.samples[0].own < 101, "{text}");
        assert!(samples.samples.iter().any(|row| row.name.contains(' ')), "{text}");
    }
}

#[test]
fn the_first_screen_of_samples_names_functions() {
    let unit = Options { unit: Some(WeightUnit::Samples), ..Options::default() };
    let text = "main;a;gemm 70\nmain;b;softmax 30\n";
    let profile = import(text, Format::Folded, &unit).expect("samples");
    let screen = view::summary(&profile, view::Size::default(), None).to_string();
    insta::assert_snapshot!("samples_first_screen", screen);
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
    // A repetition of many tokens is no pass.
    let forced = Comparing { is_forced: true, ..Comparing::default() };
    match compare(&side(&theirs), &side(&ours), &forced) {
        Err(error @ CompareError::NoCommonTest { .. }) => {
            assert!(error.to_string().contains("llama-bench"), "{error}");
        }
        other => panic!("{other:?}"),
    }

    let faster = LLAMA_BENCH.replace("6400000000", "6300000000");
    let faster = imported(&faster, Format::LlamaBench);
    let found = compare(&side(&theirs), &side(&faster), &Comparing::default()).expect("alike");
    // What takes so long is no pass.
    let text = brickscope_analysis::view::comparison(&found);
    assert!(text.contains("\none repetition of ") && text.contains("\ntg128 "), "{text}");
    assert!(!text.contains("one pass"), "{text}");
    let mut out = Vec::new();
    export::prometheus::write(&theirs, &mut out).expect("room");
    let text = String::from_utf8(out).expect("text");
    assert!(text.contains("tokens_total") && !text.contains("passes_total"), "{text}");
    let other = LLAMA_BENCH.replace("\"type_k\": \"f16\"", "\"type_k\": \"q8_0\"");
    let other = other.replace("6400000000", "6300000000");
    assert_eq!(unlike(&theirs, &imported(&other, Format::LlamaBench)), ["type_k"]);
    // Another build is what one wants to compare.
    let build = faster.to_json().replace("0c1e5709", "11111111");
    let build = Profile::from_json(&build, Path::new("b")).expect("a profile");
    assert!(compare(&side(&theirs), &side(&build), &Comparing::default()).is_ok());
}
