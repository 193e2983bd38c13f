//! Whatever a file has in it, it becomes a profile that adds up or an error that names the file.

use std::borrow::Cow;
use std::path::Path;
use std::sync::LazyLock;

use brickscope::Profile;
use brickscope_analysis::view;
use brickscope_formats::export;
use brickscope_formats::import::{Format, Options, WeightUnit, read};
use brickscope_testing::gpu_trace::{Calls, Net, Recording};
use proptest::prelude::*;

use super::pytorch::GPU;
use super::{CANDLE, FOLDED, FORWARD_PASSES, LLAMA_BENCH, NCCL, TORCH, VULKAN, jax, onnx, rocprof};

/// Steps of graphs, with kernels on two streams.
static GRAPHS: LazyLock<String> =
    LazyLock::new(|| Recording::of(Net::of_shared_experts(6)).steps(&[32, 8]).record().trace);

/// Kernels in modules, some of which wait for another rank.
static CALLS: LazyLock<String> = LazyLock::new(|| {
    let recording = Recording { calls: Calls::Hip, ..Recording::of(Net::parallel(6)).eager() };
    recording.ranks(2).swap_remove(1).trace
});

fn options(format: Format) -> Options {
    match format {
        Format::Chrome => {
            Options { prefill: None, decode: Some("model".to_owned()), ..Options::default() }
        }
        Format::Rocprof => {
            Options { prefill: None, decode: Some("decode".to_owned()), ..Options::default() }
        }
        Format::Folded => Options { unit: Some(WeightUnit::Milliseconds), ..Options::default() },
        _ => Options::default(),
    }
}

fn holds(text: &str, format: Format) {
    let steps = Options { prefill: Some("Prof*[1]".to_owned()), ..options(format) };
    let is_trace = matches!(format, Format::Chrome | Format::Rocprof);
    let steps = if is_trace { steps } else { Options::default() };
    let mut before = None;
    for options in [options(format), Options::default(), steps] {
        match read(text, Path::new("a.file"), format, &options) {
            Ok(profile) => {
                // What is equal looks alike.
                if before.as_ref() == Some(&profile) {
                    continue;
                }
                assert_eq!(profile.check(), Ok(()));
                seen(&profile);
                before = Some(profile);
            }
            Err(error) => assert!(error.to_string().starts_with("a.file"), "{error}"),
        }
    }
}

/// Every view and export of it is text.
fn seen(profile: &Profile) {
    assert!(view::report(profile).contains("Imported from a.file"));
    let _ = (view::statistics(profile), view::json(profile), view::kernels(profile));
    let _ = (view::roofline(profile), profile.by_layer());
    export::prometheus::write(profile, &mut Vec::new()).expect("memory is written to");
    export::otlp::write(profile, &mut Vec::new()).expect("memory is written to");
    for pass in profile.passes.iter().take(4) {
        if let Some(graph) = profile.execution_graph(pass.serial) {
            let _ = view::critical_path(&graph, &[]);
        }
    }
}

/// A file of each format with a part of it replaced, or doubled, or cut.
fn changed() -> impl Strategy<Value = (String, Format)> {
    let file = prop::sample::select(vec![
        (LLAMA_BENCH, Format::LlamaBench),
        (CANDLE, Format::Chrome),
        (TORCH, Format::Chrome),
        (GPU, Format::Chrome),
        (GRAPHS.as_str(), Format::Chrome),
        (jax::GPU, Format::Chrome),
        (onnx::RUNS, Format::Chrome),
        (rocprof::JSON, Format::Rocprof),
        (rocprof::CSV, Format::Rocprof),
        (NCCL, Format::NcclInspector),
        (FORWARD_PASSES, Format::ForwardPassMetrics),
        (VULKAN, Format::VkPerfLogger),
        (FOLDED, Format::Folded),
    ]);
    let part = prop::sample::select(vec![
        "",
        "0",
        "-1",
        "1e18",
        "18446744073709551615",
        "9223372036854775807.9999",
        "null",
        "\"",
        "{",
        "[",
        "]",
        "}",
        ",",
        ": ",
        " x ",
        " us = ",
        "\n",
        "\u{2028}",
        "</script>",
        "🙂",
        "\\u0000",
    ]);
    (file, any::<prop::sample::Index>(), 0_usize..12, part, any::<bool>()).prop_map(
        |((text, format), at, removed, part, is_cut)| {
            let bytes = text.as_bytes();
            let at = at.index(bytes.len());
            let rest = if is_cut { &[] } else { &bytes[(at + removed).min(bytes.len())..] };
            let bytes = [&bytes[..at], part.as_bytes(), rest].concat();
            (String::from_utf8_lossy(&bytes).into_owned(), format)
        },
    )
}

/// What an event of a GPU's trace has.
static FIELDS: [&str; 14] = [
    "ph",
    "cat",
    "name",
    "pid",
    "tid",
    "ts",
    "dur",
    "correlation",
    "External id",
    "device",
    "stream",
    "grid",
    "block",
    "shared memory",
];

/// What else might stand there.
static VALUES: [&str; 24] = [
    "0",
    "1",
    "-1",
    "7",
    "31",
    "65536",
    "5210000000.5",
    "5210000500",
    "1000000000000",
    "9223372036854775.807",
    "18446744073709551615",
    "1e18",
    "nan",
    "null",
    "[]",
    "{}",
    "[4294967295,1,1]",
    "\"\"",
    "\"x\"",
    "\"kernel\"",
    "\"cuda_runtime\"",
    "\"cudaGraphLaunch\"",
    "\"execute_context_0(0)_generation_32(32)\"",
    "\"fused_moe_kernel\"",
];

/// An event with another value of a field that it has.
fn replaced(event: &str, field: &str, value: &str) -> String {
    let key = format!("\"{field}\":");
    let Some((front, back)) = event.split_once(&key) else { return event.to_owned() };
    let end = match back.as_bytes().first() {
        Some(b'"') => back[1..].find('"').map(|at| at + 2),
        Some(b'[') => back.find(']').map(|at| at + 1),
        _ => back.find([',', '}']),
    };
    format!("{front}{key}{value}{}", &back[end.unwrap_or(back.len())..])
}

/// A trace of a GPU with some events left out, doubled, in another order, or with other values.
fn mutated() -> impl Strategy<Value = String> {
    let index = any::<prop::sample::Index>;
    let value = (prop::sample::select(&FIELDS[..]), prop::sample::select(&VALUES[..]));
    let changes = prop::collection::vec((index(), index(), value, 0_u8..6), 1..8);
    (any::<bool>(), changes).prop_map(|(is_graph, changes)| {
        let text = if is_graph { GRAPHS.as_str() } else { CALLS.as_str() };
        let (head, rest) = text.split_once('\n').expect("a line before the events");
        let body = rest.trim_end().strip_suffix("\n]}").expect("a line behind them");
        let mut events: Vec<Cow<'_, str>> = body.split(",\n").map(Cow::Borrowed).collect();
        for (at, other, (field, value), how) in changes {
            let (at, other) = (at.index(events.len()), other.index(events.len()));
            match how {
                0 => drop(events.remove(at)),
                1 => events.insert(at, events[other].clone()),
                2 => events.swap(at, other),
                _ => events[at] = replaced(&events[at], field, value).into(),
            }
        }
        format!("{head}\n{}\n]}}\n", events.join(",\n"))
    })
}

/// 300 by default, and not more than 5,000: a trace of a GPU is long.
fn mutations() -> ProptestConfig {
    let config = brickscope_testing::cases(300);
    ProptestConfig { cases: config.cases.min(5_000), ..config }
}

#[test]
fn a_field_of_an_event_is_replaced_whole() {
    let event = r#"{"ph":"X","ts":1.5,"args":{"grid":[1,2,3],"stream":7}}"#;
    for (field, value, is) in [
        ("ph", "3", r#"{"ph":3,"ts":1.5,"args":{"grid":[1,2,3],"stream":7}}"#),
        ("ts", "nan", r#"{"ph":"X","ts":nan,"args":{"grid":[1,2,3],"stream":7}}"#),
        ("grid", "{}", r#"{"ph":"X","ts":1.5,"args":{"grid":{},"stream":7}}"#),
        ("stream", "-1", r#"{"ph":"X","ts":1.5,"args":{"grid":[1,2,3],"stream":-1}}"#),
        ("dur", "0", event),
    ] {
        assert_eq!(replaced(event, field, value), is);
    }
    for trace in [&*GRAPHS, &*CALLS] {
        assert!(read(trace, Path::new("a.file"), Format::Chrome, &Options::default()).is_ok());
    }
}

proptest! {
    #![proptest_config(mutations())]

    #[test]
    fn a_trace_of_a_gpu_with_other_events_is_a_profile_or_an_error(text in mutated()) {
        holds(&text, Format::Chrome);
    }
}

proptest! {
    #[test]
    fn a_file_with_anything_in_it_is_a_profile_or_an_error((text, format) in changed()) {
        holds(&text, format);
    }

    #[test]
    fn any_text_is_a_profile_or_an_error(text in "\\PC{0,200}") {
        for format in Format::ALL {
            holds(&text, format);
        }
        if let Some(format) = brickscope_formats::import::format_of(&text) {
            holds(&text, format);
        }
    }

    #[test]
    fn any_events_nest_or_are_left_out(
        events in prop::collection::vec((0_u32..60, 0_u32..30, 0_u8..3, 0_u8..3), 1..40)
    ) {
        let line = |&(ts, dur, name, tid): &(u32, u32, u8, u8)| {
            let name = ["model", "attn", "mlp"][usize::from(name)];
            format!(r#"{{"ph":"X","ts":{ts}.5,"dur":{dur},"name":"{name}","pid":1,"tid":{tid}}}"#)
        };
        let lines: Vec<String> = events.iter().map(line).collect();
        let text = format!("[{}]", lines.join(","));
        let options = options(Format::Chrome);
        let profile = match read(&text, Path::new("a.file"), Format::Chrome, &options) {
            Ok(profile) => profile,
            // None of them is a pass.
            Err(_) => return Ok(()),
        };
        prop_assert_eq!(profile.check(), Ok(()));
        let left_out = profile.imported.iter().flat_map(|of| &of.left_out);
        // Those whose ends were cut are there.
        let left_out = left_out.filter(|(what, _)| !what.starts_with("the ends of"));
        let left_out: u64 = left_out.map(|(_, n)| n).sum();
        let kept = profile.spans.len() + profile.passes.len();
        prop_assert_eq!(kept as u64 + left_out, events.len() as u64);
        for span in &profile.spans {
            if let Some(parent) = span.parent {
                let parent = profile.spans[parent as usize];
                prop_assert!(parent.start_ns <= span.start_ns);
                let (end, outer) =
                    (span.start_ns + span.duration_ns, parent.start_ns + parent.duration_ns);
                prop_assert!(end <= outer);
            }
        }
    }
}

#[test]
fn deep_and_odd_files_are_no_trouble() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for format in [
        Format::Chrome,
        Format::LlamaBench,
        Format::Rocprof,
        Format::NcclInspector,
        Format::ForwardPassMetrics,
    ] {
        holds(&deep, format);
    }
    let args = format!(r#"[{{"ph":"X","ts":1,"dur":2,"name":"a","args":{deep}}}]"#);
    holds(&args, Format::Chrome);
    // Spans inside of spans, more than any stack of calls has frames.
    let begins: Vec<String> = (0..50_000)
        .map(|n| format!(r#"{{"ph":"X","ts":{n},"dur":{},"name":"a"}}"#, 100_000 - 2 * n))
        .collect();
    holds(&format!("[{}]", begins.join(",")), Format::Chrome);
    // More names than there is room for.
    let names: Vec<String> =
        (0..5_000).map(|n| format!(r#"{{"ph":"X","ts":{n},"dur":1,"name":"n{n}"}}"#)).collect();
    let text = format!("[{}]", names.join(","));
    let profile =
        read(&text, Path::new("a.file"), Format::Chrome, &Options::default()).expect("a trace");
    assert_eq!(profile.totals.len() - 1, profile.names.len());
    assert_eq!(profile.dropped.names, 5_000 - profile.names.len() as u64);
    let other = profile.totals.iter().find(|total| total.stats.name == "(other)").expect("a row");
    assert_eq!(other.stats.count, profile.dropped.names);
}

#[test]
fn passes_whose_kernels_are_too_far_apart_have_no_sum() {
    let event = |kind: &str, name: &str, at: i64, args: &str| {
        format!(
            r#"{{"ph":"X","cat":"{kind}","name":"{name}","pid":1,"tid":1,"ts":{at},"dur":10,"args":{{{args}}}}}"#
        )
    };
    let pass = |nth: i64| {
        let at = 1_000 * nth;
        let (first, last) =
            (format!("\"correlation\":{}", 2 * nth), format!("\"correlation\":{}", 2 * nth + 1));
        let far = 9_000_000_000_000_000;
        [
            event("user_annotation", "ProfilerStep#1", at, "").replace("\"dur\":10", "\"dur\":100"),
            event("cuda_runtime", "cudaLaunchKernel", at + 1, &first),
            event("cuda_runtime", "cudaLaunchKernel", at + 20, &last),
            event("kernel", "gemm", 100 * nth - far, &first),
            event("kernel", "gemm", 100 * nth + far, &last),
        ]
        .join(",")
    };
    let of = |passes: &[i64]| {
        let events: Vec<String> = passes.iter().map(|&nth| pass(nth)).collect();
        let text = format!("[{}]", events.join(","));
        read(&text, Path::new("a.file"), Format::Chrome, &Options::default())
    };
    assert_eq!(of(&[1]).expect("64 bits hold it").check(), Ok(()));
    let said = of(&[1, 2]).expect_err("they don't").to_string();
    assert!(said.contains("add up to more than 64 bits"), "{said}");
}

#[test]
fn streams_beyond_the_most_are_counted() {
    let kernel = |nth: u32| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"gemm","ts":{nth},"dur":1,"args":{{"device":{nth},"stream":7}}}}"#
        )
    };
    let kernels: Vec<String> = (0..4_100).map(kernel).collect();
    let text = format!("[{}]", kernels.join(","));
    let profile =
        read(&text, Path::new("a.file"), Format::Chrome, &Options::default()).expect("a trace");
    assert_eq!(profile.devices.len(), 4_096);
    let left_out = &profile.imported.as_ref().expect("of a file").left_out;
    let why = "work of streams, of which there are more than are kept".to_owned();
    assert!(left_out.contains(&(why, 4)), "{left_out:?}");
}
