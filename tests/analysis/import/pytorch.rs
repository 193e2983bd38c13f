//! Traces of PyTorch's profiler. `pytorch.json`, `pytorch-stack.json` and `pytorch-table.json` are of real runs, by
//! `data/pytorch.py`; `pytorch-h200.json.gz` is of a small Llama of transformers 5.17 with torch 2.11 on an NVIDIA H200, with
//! the kernels of `key_averages()` in `pytorch-h200-table.json`. `kineto-gpu.json` was made by hand in the form that Kineto has for a CUDA device, with round times.

use std::io::Read as _;

use brickscope::{NameKind, Phase, Profile, Source, Total};
use brickscope_analysis::view;
use brickscope_formats::import::{Format, Map, Options};
use serde::Deserialize;

use super::{import, imported, refused, sums};

pub(crate) const CPU: &str = include_str!("../../data/import/pytorch.json");
pub(crate) const STACK: &str = include_str!("../../data/import/pytorch-stack.json");
pub(crate) const GPU: &str = include_str!("../../data/import/kineto-gpu.json");
const TABLE: &str = include_str!("../../data/import/pytorch-table.json");

fn passes(prefill: &str, decode: &str) -> Options {
    let pattern = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Options { prefill: pattern(prefill), decode: pattern(decode), ..Options::default() }
}

fn mapped(text: &str, options: Options) -> Options {
    Options { map: Some(Map { path: "my.toml".into(), text: text.to_owned() }), ..options }
}

fn total<'p>(profile: &'p Profile, name: &str) -> &'p Total {
    profile.totals.iter().find(|total| total.stats.name == name).expect(name)
}

/// Of torch.profiler's own table, a row.
#[derive(Deserialize)]
struct Row {
    name: String,
    self_ns: u64,
    total_ns: u64,
    count: u64,
}

#[test]
fn own_times_are_those_of_the_profilers_own_table() {
    let rows: Vec<Row> = serde_json::from_str(TABLE).expect("a table");
    let alone = mapped("built_in = false\n", Options::default());
    let profile = import(CPU, Format::Chrome, &alone).expect("a trace");
    assert!(rows.len() > 30);
    for row in &rows {
        let stats = &total(&profile, &row.name).stats;
        assert_eq!(stats.exclusive_ns, row.self_ns, "{}", row.name);
        // The table counts an operation that is alone inside of one with the same name once.
        assert!(stats.count >= row.count && stats.total_ns >= row.total_ns, "{}", row.name);
    }
    assert_eq!(profile.totals.len(), rows.len());
    // So its shares are the same too.
    let ours: u64 = profile.totals.iter().map(|total| total.stats.exclusive_ns).sum();
    assert_eq!(ours, rows.iter().map(|row| row.self_ns).sum::<u64>());
}

#[test]
fn kernels_of_a_gpu_have_the_times_of_the_profilers_own_table() {
    #[derive(Deserialize)]
    struct Kernel {
        name: String,
        count: u64,
        ns: u64,
    }
    let (trace, table) = (
        &include_bytes!("../../data/import/pytorch-h200.json.gz")[..],
        include_str!("../../data/import/pytorch-h200-table.json"),
    );
    let mut text = String::new();
    flate2::read::GzDecoder::new(trace).read_to_string(&mut text).expect("a trace");
    let gpu = imported(&text, Format::Chrome).on_device(0, 0).expect("a stream");
    assert!(gpu.spans.iter().all(|span| span.duration_ns > 0));
    let kernels: Vec<Kernel> = serde_json::from_str(table).expect("a table");
    assert_eq!(kernels.len(), 36);
    for kernel in &kernels {
        let own = gpu.spans.iter().filter(|span| {
            let name = span.name.map(|name| &gpu.names[usize::from(name)]);
            name.is_some_and(|name| name.kind == NameKind::Kernel && name.name == kernel.name)
        });
        let found = own.fold((0, 0), |(n, ns), span| (n + 1, ns + span.duration_ns));
        assert_eq!(found, (kernel.count, kernel.ns), "{}", kernel.name);
    }
}

#[test]
fn ranges_are_passes_and_operations_are_bricks() {
    let profile = import(CPU, Format::Chrome, &passes("prefill", "decode")).expect("a trace");
    assert_eq!(profile.phases.len(), 2);
    let rows: Vec<Row> = serde_json::from_str(TABLE).expect("a table");
    let of = |name: &str| rows.iter().find(|row| row.name == name).expect("a row");
    // What is in a pass and in no operation is what the table calls its own.
    for (phase, name) in [(Phase::Prefill, "prefill"), (Phase::Decode, "decode")] {
        let sum = profile.phase(phase).expect("a pass");
        assert_eq!((sum.wall_ns, sum.unattributed_ns), (of(name).total_ns, of(name).self_ns));
    }
    // No brick counts twice what is inside of it: each product is linear, matmul and mm.
    assert_eq!(sums(&profile, Some(Phase::Decode), "MatMul").0, 15);
    let mm: Vec<_> = profile.kernels(Some(Phase::Decode));
    let mm = mm.iter().find(|kernel| kernel.stats.name == "aten::mm").expect("a kernel");
    assert_eq!((mm.stats.count, mm.stats.exclusive_ns), (15, 0));
    // By the file's own base, not of now.
    assert_eq!(profile.created, "2026-11-25T13:45:12Z");
    insta::assert_snapshot!("pytorch", view::report(&profile));
}

#[test]
fn modules_tell_layers_and_bricks() {
    let profile = import(STACK, Format::Chrome, &passes("prefill", "decode")).expect("a trace");
    for (name, count) in [
        ("QkvProjection", 6),
        ("OutputProjection", 2),
        ("GateProjection", 2),
        ("UpProjection", 2),
        ("DownProjection", 2),
        ("RmsNorm", 5),
        ("FlashAttention", 2),
        ("Embedding", 1),
    ] {
        assert_eq!(sums(&profile, Some(Phase::Decode), name).0, count, "{name}");
    }
    let layers = profile.by_layer();
    let of = |layer| {
        let is_it = |row: &&brickscope::LayerBrick| {
            row.layer == layer && row.name == "RmsNorm" && row.phase == Some(Phase::Decode)
        };
        layers.iter().find(is_it).expect("a row").count
    };
    assert_eq!((of(None), of(Some(0)), of(Some(1))), (1, 2, 2));
    insta::assert_snapshot!("pytorch_modules", view::report(&profile));
}

#[test]
fn a_device_has_tables_of_its_own() {
    let profile = imported(GPU, Format::Chrome);
    assert!(profile.totals.iter().all(|total| total.source == Source::Host));
    let [device] = &profile.devices[..] else { panic!("one device") };
    assert_eq!((&*device.name, &*device.api), ("NVIDIA H100 80GB HBM3", "cuda"));
    let names: Vec<&str> = device.streams.iter().map(|stream| &*stream.name).collect();
    assert_eq!(names, ["stream 7", "stream 7b", "stream 20"]);
    let of = |stream: usize, name: &str| {
        let totals = device.streams[stream].totals.iter();
        let mut totals = totals.filter(|total| total.stats.name == name);
        let total = totals.next().expect(name);
        (total.phase, total.stats.count, total.stats.exclusive_ns)
    };
    let decode = Some(Phase::Decode);
    // By the range around the call that launched it.
    assert_eq!(of(0, "QkvProjection"), (decode, 4, 82_000));
    // By the operation; by the operation inside of one that the table knows.
    assert_eq!(of(0, "Sampling"), (decode, 2, 4_000));
    assert_eq!(of(0, "FlashAttention"), (decode, 4, 24_500));
    // It begins before the kernel before it ends, and its time is whole.
    assert_eq!(of(1, "DownProjection"), (decode, 4, 72_000));
    assert_eq!(of(2, "AllReduce"), (decode, 4, 39_000));
    // Of a graph's kernels, their names tell.
    assert_eq!(of(0, "my_triton_kernel_0d1d"), (decode, 2, 6_000));
    // The step on the device is no work, and what was launched before the trace is in no pass.
    assert_eq!(device.streams[0].totals.iter().filter(|total| total.phase.is_none()).count(), 2);
    let layers: Vec<_> =
        device.streams[0].spans.iter().filter(|span| span.layer == Some(1)).collect();
    // Norm, projection and attention in two passes; attention is outside of any range with a layer.
    assert_eq!(layers.len(), 2 * 2 * 2);
    let launch = device.streams[0].launches[0];
    let span = &device.streams[0].spans[launch.span as usize];
    assert_eq!(profile.names[usize::from(span.name.expect("a name"))].kind, NameKind::Kernel);
    assert_eq!(launch.delay_ns(span), 17_500);
    let lacks: Vec<&str> =
        profile.imported.iter().flat_map(|of| &of.lacks).map(|l| &*l.reason).collect();
    assert!(
        lacks.iter().any(|lack| lack.starts_with("the launch of 1 of 29 kernels")),
        "{lacks:?}"
    );
    // What is the device's isn't the host's.
    assert_eq!(sums(&profile, decode, "Launch").0, 2 * (2 * 5 + 1 + 1));
    insta::assert_snapshot!("kineto_gpu", view::report(&profile));
    // By itself it has the same shares, and what other streams did in passes is in them.
    let alone = view::report_of_device(&profile, 0);
    assert!(
        alone.contains("AllReduce                   9.8       39.0        4   15.2%"),
        "{alone}"
    );
    // And what is doubtful.
    let cut = imported(&GPU[..GPU.len() * 19 / 20], Format::Chrome);
    assert!(cut.devices[0].streams.len() > 1, "{:?}", cut.devices[0].streams.len());
    let of_cut = view::report_of_device(&cut, 0);
    assert!(of_cut.contains("the file breaks off"), "{of_cut}");
    let totals = profile.totals_of_device(0).expect("a device");
    let whole = profile.whole_device(0).expect("a device");
    let statistics = view::statistics(&Profile { totals, ..whole });
    let decode = statistics.split("Kernels, decode").next().expect("a table");
    assert!(decode.contains("\nAllReduce             4 "), "{statistics}");
}

#[test]
fn of_several_streams_without_passes_time_counts_once() {
    let event = |name: &str, stream: u32, ts: u32, dur: u32| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":{stream},"ts":{ts},"dur":{dur},"args":{{"device":0,"stream":{stream}}}}}"#
        )
    };
    let launch =
        r#"{"ph":"X","cat":"cpu_op","name":"aten::linear","pid":1,"tid":1,"ts":0,"dur":9}"#;
    let events = [launch.to_owned(), event("sgemm", 7, 200, 100), event("other", 8, 260, 90)];
    let profile = imported(&format!("[{}]", events.join(",")), Format::Chrome);
    let screen = view::summary(&profile, view::Size::default(), None).to_string();
    // Of the 150 µs in which something ran.
    let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("MatMul takes the most time, 66.7% of what ran there"), "{screen}");
    let share = screen.lines().find(|line| line.contains("█ MatMul")).expect("a row");
    assert!(share.contains(" 66.7 % "), "{screen}");
}

#[test]
fn a_run_is_of_when_its_file_says_or_it_lacks_that() {
    let undated = "when it was measured: the time of the run is that of the import";
    let lacks = |profile: &Profile| {
        profile.imported.iter().flat_map(|of| &of.lacks).any(|of| of.reason == undated)
    };
    let event = |ts: u64| {
        let kernel = format!(
            r#"{{"ph":"X","cat":"kernel","name":"sgemm","pid":0,"tid":7,"ts":{ts},"dur":1,"args":{{"device":0,"stream":7}}}}"#
        );
        imported(&format!("[{kernel}]"), Format::Chrome)
    };
    // Microseconds since 1970, as PyTorch wrote them before 2.1.
    let of_2023 = event(1_682_725_898_094_377);
    assert_eq!(of_2023.created, "2023-04-28T23:51:38Z");
    assert!(!lacks(&of_2023));
    assert!(lacks(&event(5_000_000)));
}

#[test]
fn a_share_of_the_device_is_of_what_ran_there() {
    // No pass, and a kernel that took 67.7 % of the device's time.
    let event = |cat: &str, name: &str, pid: u32, ts: u32, dur: f64| {
        format!(
            r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":7,"ts":{ts},"dur":{dur},"args":{{"device":0,"stream":7}}}}"#
        )
    };
    let events = [
        event("cpu_op", "aten::linear", 4242, 0, 125.0),
        event("kernel", "sgemm", 0, 200, 67.7),
        event("kernel", "other", 0, 300, 32.3),
    ];
    let profile = imported(&format!("[{}]", events.join(",")), Format::Chrome);
    let text = view::report(&profile).replace("\n", " ");
    assert!(text.contains("on the device, MatMul takes the most time, 67.7%"), "{text}");
    assert!(!text.contains("30.1"), "{text}");
}

#[test]
fn a_pattern_chooses_passes_by_name_number_and_argument() {
    let step = |options: &Options| {
        let profile = import(GPU, Format::Chrome, options).expect("a trace");
        profile.passes.iter().map(|pass| (pass.phase, pass.start_ns)).collect::<Vec<_>>()
    };
    let (first, second) = (10_000_000, 10_400_000);
    let began = 9_000_000;
    let [first, second] = [first, second].map(|at| at - began);
    assert_eq!(
        step(&passes("ProfilerStep*[1]", "ProfilerStep*[2..]")),
        [(Phase::Prefill, first), (Phase::Decode, second)]
    );
    let by_argument = passes("", "ProfilerStep*[args.External id=1001]");
    assert_eq!(step(&by_argument), [(Phase::Decode, second)]);
    // Both match the second one.
    assert_eq!(
        step(&passes("ProfilerStep*", "ProfilerStep#6")),
        [(Phase::Prefill, first), (Phase::Decode, second)]
    );
    let said = refused(GPU, Format::Chrome, &passes("", "ProfilerStep*[3]"));
    assert!(said.starts_with("a.file: has no event `ProfilerStep*[3]`"), "{said}");
    assert!(said.contains("it has `ProfilerStep#5`, "), "{said}");
}

#[test]
fn a_table_of_ones_own_comes_first() {
    let mine = "[op]\n\"aten::item\" = \"Wait\"\n[kernel]\n\"my_triton*\" = \"Mine\"\n\
                [category]\nMine = \"FFN\"\n";
    let profile = import(GPU, Format::Chrome, &mapped(mine, Options::default())).expect("a trace");
    let totals = &profile.devices[0].streams[0].totals;
    let mine = totals.iter().find(|total| total.stats.name == "Mine").expect("a brick");
    assert_eq!(mine.category, Some(brickscope::BrickCategory::Ffn));
    let said = refused(GPU, Format::Chrome, &mapped("[op]\n\"a\" = 1\n", Options::default()));
    assert_eq!(said, "my.toml, line 2: the brick is a text in quotes");
    let said = refused(
        "[{\"ph\":\"X\",\"ts\":1,\"dur\":1}]",
        Format::Chrome,
        &mapped("", Options::default()),
    );
    assert!(said.contains("isn't a trace of PyTorch's profiler"), "{said}");
}

#[test]
fn what_json_has_no_number_for_is_mended_or_named() {
    let odd = GPU.replacen("\"queued\":0", "\"queued\":nan", 1);
    let odd = odd.replacen("my_triton", "my\u{1}triton", 1);
    assert_ne!(odd, GPU);
    let profile = imported(&odd, Format::Chrome);
    assert_eq!(profile.check(), Ok(()));
    assert_eq!(profile.devices[0].streams.len(), 3);
    let odd_of = |text: &str| {
        let left_out = imported(text, Format::Chrome).imported.expect("of a file").left_out;
        let odd =
            left_out.into_iter().find(|(what, _)| what.starts_with("events that can't be read"));
        odd.expect("one can't be read").0
    };
    for number in ["NaN", "-Infinity", "1e400", "\"long\""] {
        let odd = CPU.replacen("\"dur\":", &format!("\"dur\":{number},\"was\":"), 1);
        assert!(odd_of(&odd).contains("`dur` is not a number"), "{}", odd_of(&odd));
    }
    let long = CPU.replacen("\"dur\":", "\"dur\":9e15,\"was\":", 1);
    let profile = imported(&long, Format::Chrome);
    assert_eq!(profile.check(), Ok(()));
    let longer = CPU.replacen("\"dur\":", "\"dur\":9e18,\"was\":", 1);
    assert!(odd_of(&longer).contains("out of range"), "{}", odd_of(&longer));
}

#[test]
fn a_run_of_the_recorder_in_python_adds_up_and_is_shown() {
    // python/test_brickscope.py makes it, with modules and a clock of its own, and checks that it is still that.
    const RUN: &str = include_str!("../../data/import/brickscope-py.json");
    let profile = Profile::from_json(RUN, std::path::Path::new("run.json")).expect("a profile");
    assert_eq!(profile.check(), Ok(()));
    let again = Profile::from_json(&profile.to_json(), std::path::Path::new("again.json"));
    assert_eq!(again.expect("it was written"), profile);
    // Its sums are those that the library makes of its spans.
    for total in &profile.totals {
        let mut stats = brickscope::BrickStats::new(&total.stats.name);
        let is_its = |span: &&brickscope::Span| {
            let name = &profile.names[usize::from(span.name.expect("a brick"))].name;
            let pass = profile.passes.iter().find(|pass| Some(pass.serial) == span.pass);
            *name == total.stats.name && pass.map(|pass| pass.phase) == total.phase
        };
        for span in profile.spans.iter().filter(is_its) {
            let rest = span.duration_ns - span.exclusive_ns;
            stats.add_sample(span.duration_ns, 0);
            stats.exclusive_ns -= rest;
        }
        assert!((stats.squared_deviations - total.stats.squared_deviations).abs() < 1e-3);
        stats.squared_deviations = total.stats.squared_deviations;
        assert_eq!(stats, total.stats);
        assert_eq!(stats.percentiles(), total.percentiles);
    }
    insta::assert_snapshot!("brickscope_py", view::report(&profile));
}

#[test]
fn a_trace_that_breaks_off_is_read_up_to_there() {
    for part in 1..8 {
        let cut = &GPU[..GPU.len() * part / 8];
        let profile = imported(cut, Format::Chrome);
        assert_eq!(profile.check(), Ok(()));
        let left_out = profile.imported.expect("it is").left_out;
        assert!(left_out.iter().any(|(why, _)| why.contains("truncated")), "{left_out:?}");
    }
}

/// An event with these arguments.
fn event(cat: &str, name: &str, place: (u32, u32), time: (u32, u32), args: &str) -> String {
    let ((pid, tid), (ts, dur)) = (place, time);
    format!(
        r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#
    )
}

#[test]
fn a_trace_of_a_device_alone_has_its_passes_there() {
    let at = r#""device":0,"stream":7,"correlation":3"#;
    let events = [
        event("gpu_user_annotation", "ProfilerStep#1", (0, 7), (0, 100), ""),
        event("kernel", "void flash_fwd_kernel", (0, 7), (10, 20), at),
        event("kernel", "mine", (0, 7), (50, 30), at),
        event("kernel", "mine", (0, 7), (150, 30), at),
    ];
    let profile = imported(&format!("[{}]", events.join(",")), Format::Chrome);
    assert!(profile.phases.is_empty() && profile.spans.is_empty());
    let stream = &profile.devices[0].streams[0];
    let [phase] = stream.phases[..] else { panic!("{:?}", stream.phases) };
    assert_eq!((phase.passes, phase.wall_ns, phase.unattributed_ns), (1, 70_000, 20_000));
    let of = |phase: Option<Phase>| {
        let totals = stream.totals.iter().filter(|total| total.phase == phase);
        totals.filter(|total| total.kind == NameKind::Brick).count()
    };
    assert_eq!((of(Some(Phase::Decode)), of(None)), (2, 1));
}

#[test]
fn a_kernel_that_another_thread_launched_in_a_pass_belongs_to_it() {
    let events = [
        event("user_annotation", "ProfilerStep#1", (9, 1), (0, 100), ""),
        event("cpu_op", "autograd::engine::evaluate_function", (9, 2), (20, 40), ""),
        event("cuda_runtime", "cudaLaunchKernel", (9, 2), (22, 5), r#""correlation":5"#),
        event("kernel", "k", (0, 7), (30, 500), r#""correlation":5,"device":0,"stream":7"#),
    ];
    let profile = imported(&format!("[{}]", events.join(",")), Format::Chrome);
    let stream = &profile.devices[0].streams[0];
    assert_eq!(stream.passes[0].serial, profile.passes[0].serial);
    assert_eq!(stream.passes[0].wall_ns, 500_000);
    // On the host, what other threads did is outside of it.
    assert_eq!(profile.passes[0].unattributed_ns, 100_000);
}

#[test]
fn a_category_that_ends_like_one_of_pytorchs_is_not_one() {
    let other = event("my_runtime", "poll", (1, 1), (0, 10), "");
    let profile = imported(&format!("[{other}]"), Format::Chrome);
    assert_eq!(profile.imported.expect("it is").program, None);
}

#[test]
fn a_step_whose_attentions_see_whole_sequences_only_is_prefill() {
    let phases = |operation: &str, of: &[[u64; 2]], more: &str| {
        let steps = of.iter().zip(0..).map(|([queries, keys], nth)| {
            let args = format!(
                r#""Input Dims":[[2,4,{queries},16],[2,2,{keys},16],[2,2,{keys},16]],"Input type":["float","float","float"]"#
            );
            let name = format!("ProfilerStep#{nth}");
            let step = event("user_annotation", &name, (1, 1), (100 * nth, 90), "");
            step + "," + &event("cpu_op", operation, (1, 1), (100 * nth + 10, 20), &args)
        });
        let steps = steps.collect::<Vec<_>>().join(",");
        let profile = imported(&format!("[{steps}{more}]"), Format::Chrome);
        profile.passes.iter().map(|pass| pass.phase).collect::<Vec<_>>()
    };
    let generated = [[8, 8], [1, 9], [1, 10]];
    for operation in
        ["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_efficient_attention"]
    {
        let found = phases(operation, &generated, "");
        assert_eq!(found, [Phase::Prefill, Phase::Decode, Phase::Decode], "{operation}");
    }
    // One query and one key may be the first token of a decode pass.
    assert_eq!(phases("aten::scaled_dot_product_attention", &[[1, 1]], ""), [Phase::Decode]);
    // No attention is known, or one of several sees what came before.
    assert_eq!(phases("aten::mm", &[[8, 8]], ""), [Phase::Decode]);
    let args =
        r#""Input Dims":[[2,4,1,16],[2,2,9,16],[2,2,9,16]],"Input type":["float","float","float"]"#;
    let other = event("cpu_op", "aten::scaled_dot_product_attention", (1, 1), (50, 20), args);
    let more = format!(",{other}");
    assert_eq!(phases("aten::scaled_dot_product_attention", &[[8, 8]], &more), [Phase::Decode]);
    let trains = event("cpu_op", "Optimizer.step#AdamW.step", (1, 1), (50, 20), "");
    let more = format!(",{trains}");
    assert_eq!(phases("aten::scaled_dot_product_attention", &[[8, 8]], &more), [Phase::Training]);
}

#[test]
fn steps_of_servers_are_passes_without_being_named() {
    let file = |names: &[&str]| {
        let steps = names.iter().zip(0..).map(|(name, nth)| {
            let step = event("user_annotation", name, (1, 1), (100 * nth, 50), "");
            step + "," + &event("cpu_op", "aten::mm", (1, 1), (100 * nth + 10, 20), "")
        });
        format!("[{}]", steps.collect::<Vec<_>>().join(","))
    };
    let tokens = std::cell::RefCell::default();
    let phases = |names: &[&str], options: &Options| {
        let profile = import(&file(names), Format::Chrome, options).expect("a trace");
        let rates = profile.phases.iter().all(|sum| {
            let passes = profile.passes.iter().filter(|pass| pass.phase == sum.phase);
            let tokens: Vec<u64> = passes.map(|pass| pass.tokens).collect();
            // Of a part of the passes they would make a rate of nothing.
            sum.tokens == if tokens.contains(&0) { 0 } else { tokens.iter().sum() }
        });
        assert!(rates, "{:?}", profile.phases);
        tokens.replace(profile.passes.iter().map(|pass| pass.tokens).collect::<Vec<_>>());
        let phases = profile.passes.iter().map(|pass| pass.phase).collect::<Vec<_>>();
        (phases, profile.imported.expect("of a file").left_out)
    };
    let of_vllm = [
        "execute_context_1(128)_generation_0(0)",
        "execute_context_1(64)_generation_4(4)",
        "execute_5_context_0(sq0sk0sqsq0sqsk0)_generation_5(sq5sk640sqsq5sqsk640)",
        "execute_context_0(0)_generation_0(0)",
        "execute_context_0(0)_generation_many",
        "execute_model_context_1(1)_generation_0(0)",
        "ProfilerStep#1",
    ];
    let (found, left_out) = phases(&of_vllm, &Options::default());
    assert_eq!(found, [Phase::Prefill, Phase::Prefill, Phase::Decode]);
    assert_eq!(*tokens.borrow(), [128, 68, 5]);
    assert!(left_out.contains(&("steps that computed no token".to_owned(), 1)), "{left_out:?}");
    let of_sglang =
        ["step[EXTEND bs=1 toks=128]", "step[DECODE bs=4]", "step[IDLE bs=0]", "step[DRAFT bs=1]"];
    let (found, left_out) = phases(&of_sglang, &Options::default());
    assert_eq!(found, [Phase::Prefill, Phase::Decode]);
    assert_eq!(*tokens.borrow(), [128, 4]);
    assert!(left_out.contains(&("steps that computed no token".to_owned(), 1)), "{left_out:?}");
    // What the user says counts, and a schedule's steps where no server has any.
    assert_eq!(phases(&of_vllm, &passes("", "execute_*")).0, [Phase::Decode; 6]);
    let scheduled = ["execute_context_0(0)_generation_0(0)", "ProfilerStep#1", "ProfilerStep#2"];
    assert_eq!(phases(&scheduled, &Options::default()).0, [Phase::Decode; 2]);
}

/// The left-out parts and the doubts of a trace with these events.
fn said_of(events: &[String]) -> (Profile, Vec<(String, u64)>, Vec<String>) {
    let profile = imported(&format!("[{}]", events.join(",")), Format::Chrome);
    profile.check().expect("it adds up");
    let told = profile.imported.clone().expect("of a file");
    (profile, told.left_out, told.doubts)
}

/// The first screen, each line with its words one space apart.
fn first_screen(profile: &Profile) -> String {
    let size = view::Size { columns: 80, rows: 40 };
    let screen = view::summary(profile, size, None).painted(|_| "", "");
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    screen.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A step of the host, and a kernel that it launches at 10 µs.
fn step_and_kernel(kernel: (u32, u32)) -> [String; 3] {
    [
        event("user_annotation", "ProfilerStep#1", (1, 1), (1_000_000, 1000), ""),
        event("cuda_runtime", "cudaLaunchKernel", (1, 1), (1_000_010, 5), r#""correlation":1"#),
        event("kernel", "gemm", (0, 7), kernel, r#""device":0,"stream":7,"correlation":1"#),
    ]
}

#[test]
fn bricks_of_all_streams_are_shown_as_parts_of_the_devices_time() {
    let at = r#""device":0,"stream":20,"correlation":2"#;
    let mut events = step_and_kernel((1_000_050, 300)).to_vec();
    events.push(event(
        "cuda_runtime",
        "cudaLaunchKernel",
        (1, 1),
        (1_000_020, 5),
        r#""correlation":2"#,
    ));
    events.push(event("kernel", "ncclDevKernel_AllReduce_Sum_bf16", (0, 20), (1_000_060, 600), at));
    let (profile, ..) = said_of(&events);
    let busy = profile.devices[0].busy(Some(Phase::Decode)).expect("it is known");
    assert_eq!((busy.span_ns, busy.busy_ns, busy.overlap_ns), (610_000, 610_000, 290_000));
    let screen = first_screen(&profile);
    let row = |name: &str| {
        let row = screen.lines().find(|line| line.contains(name) && line.contains('×'));
        row.unwrap_or_else(|| panic!("{name}: {screen}")).to_owned()
    };
    assert!(
        row("AllReduce").contains("98.4 %") && row("AllReduce").contains("600 µs × 1"),
        "{screen}"
    );
    assert!(row("MatMul").contains("49.2 %") && row("MatMul").contains("300 µs × 1"), "{screen}");
    assert!(screen.contains("gaps 0.0 % · several streams at once 47.5 %"), "{screen}");
    // The sentence has the same share.
    assert!(screen.replace('\n', " ").contains("98.4% of the span"), "{screen}");
}

/// As a small kernel that runs long before the graph, which is all that the step does else.
#[test]
fn where_nothing_ran_for_most_of_a_step_it_is_said_where_and_shares_are_of_busy_time() {
    let launch = |at: u32, of: u32| {
        let args = format!("\"correlation\":{of}");
        event("cuda_runtime", "cudaLaunchKernel", (1, 1), (at, 5), &args)
    };
    let kernel = |name: &str, at: (u32, u32), of: u32| {
        let args = format!("\"device\":0,\"stream\":7,\"correlation\":{of}");
        event("kernel", name, (0, 7), at, &args)
    };
    let small = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor>";
    let (profile, ..) = said_of(&[
        event("user_annotation", "ProfilerStep#1", (1, 1), (1_000_000, 1000), ""),
        launch(1_000_010, 1),
        launch(1_000_020, 2),
        kernel(small, (1_000_050, 2), 1),
        kernel("gemm", (1_000_900, 60), 2),
    ]);
    let lines = first_screen(&profile);
    let screen = lines.replace('\n', " ");
    for said in [
        "the device is busy 62.0 µs of 910 µs from its first kernel to its last, 6.8%;",
        "nothing ran for 848 µs between Elementwise and MatMul, with work launched; from there on it is busy 60.0 µs of \
         60.0 µs; MatMul takes the most time, 96.8% of its busy time.",
        "brick of busy each",
        "MatMul 96.8 % 60.0 µs × 1",
        "gaps 93.2 % of the span",
        "Next: find out what the device waits for: 848 µs a pass with work launched, and nothing in the file ran; the \
         longest, 848 µs, lies between void at::native",
    ] {
        assert!(screen.contains(said), "{said}: {lines}");
    }
    // Where less than half of it is gaps, shares are of all of it.
    let (profile, ..) = said_of(&[
        event("user_annotation", "ProfilerStep#1", (1, 1), (1_000_000, 1000), ""),
        launch(1_000_010, 1),
        launch(1_000_020, 2),
        kernel(small, (1_000_050, 2), 1),
        kernel("gemm", (1_000_100, 60), 2),
    ]);
    let screen = first_screen(&profile).replace('\n', " ");
    assert!(screen.contains("brick share each") && screen.contains("% of the span."), "{screen}");
    assert!(screen.contains("MatMul 54.5 %") && screen.contains("gaps 43.6 % ·"), "{screen}");
}

#[test]
fn a_step_is_kept_though_an_operation_goes_on_into_it() {
    // Of what goes on for longer it isn't known how much of it was before the step.
    for (into, why, kept) in [
        (1, "the ends of events that don't quite nest, up to 2 µs of each", Some(10_000)),
        (40, "events that go on into a pass, so that their own time isn't known", None),
        (990, "events that go on into a pass, so that their own time isn't known", None),
    ] {
        let before = event("cpu_op", "my::op", (1, 1), (999_990, 10 + into), "");
        let events = [&[before][..], &step_and_kernel((1_000_100, 300))].concat();
        let (profile, left_out, _) = said_of(&events);
        assert_eq!(profile.phase(Phase::Decode).expect("a step").wall_ns, 1_000_000);
        assert_eq!(left_out, [(why.to_owned(), 1)]);
        let bricks = profile.bricks(None);
        let own = bricks.iter().find(|total| total.stats.name == "my::op");
        assert_eq!(own.map(|total| total.stats.exclusive_ns), kept);
    }
    // In a pass there is no other one for which an operation would have to go.
    let text = r#"[{"ph":"X","name":"step","pid":1,"tid":1,"ts":0,"dur":1000},
        {"ph":"X","name":"op","pid":1,"tid":1,"ts":100,"dur":400},
        {"ph":"X","name":"step","pid":1,"tid":1,"ts":300,"dur":500}]"#;
    let profile = import(text, Format::Chrome, &passes("", "step")).expect("a pass");
    assert_eq!((profile.passes.len(), sums(&profile, Some(Phase::Decode), "op").1), (1, 400_000));
}

#[test]
fn an_event_that_ends_a_little_late_nests() {
    let child = |dur: &str| {
        format!(
            r#"[{{"ph":"X","name":"step","pid":1,"tid":1,"ts":0,"dur":100}},
                {{"ph":"X","name":"attn","pid":1,"tid":1,"ts":10,"dur":50}},
                {{"ph":"X","name":"mlp","pid":1,"tid":1,"ts":60,"dur":{dur}}}]"#
        )
    };
    for (dur, mlp, left) in [("40.5", 40_000, 10_000), ("40", 40_000, 10_000), ("45", 0, 50_000)] {
        let profile = imported(&child(dur), Format::Chrome);
        let own = |name: &str| sums(&profile, None, name).2;
        // By more, nobody knows where it belongs.
        let found = profile.totals.iter().any(|of| of.stats.name == "mlp");
        assert_eq!(found, mlp > 0, "{dur}");
        assert_eq!((own("attn"), own("step")), (50_000, left), "{dur}");
        assert!(!found || own("mlp") == mlp, "{dur}");
    }
}

#[test]
fn one_odd_event_does_not_refuse_a_file() {
    for odd in [
        "{}",
        r#"{"ph":"X","name":"a","ts":3}"#,
        r#"{"ph":"X","name":"a","dur":3}"#,
        r#"{"ph":"X","ts":"x","dur":1}"#,
    ] {
        let events =
            format!(r#"[{{"ph":"X","name":"dot.1","pid":1,"tid":1,"ts":1,"dur":5}},{odd}]"#);
        let profile = imported(&events, Format::Chrome);
        assert_eq!(sums(&profile, None, "dot.1"), (1, 5_000, 5_000));
        let left_out = profile.imported.expect("of a file").left_out;
        let [(why, 1)] = &left_out[..] else { panic!("{left_out:?}") };
        assert!(why.starts_with("events that can't be read, such as event 2: "), "{why}");
    }
}

#[test]
fn what_can_not_be_right_of_a_device_is_left_out_or_doubted() {
    // A time that was lost.
    let mut events = step_and_kernel((1_000_100, 200)).to_vec();
    events.push(event(
        "cuda_runtime",
        "cudaLaunchKernel",
        (1, 1),
        (1_000_020, 5),
        r#""correlation":2"#,
    ));
    events.push(event(
        "kernel",
        "gemm",
        (0, 7),
        (0, 0),
        r#""device":0,"stream":7,"correlation":2"#,
    ));
    let (profile, left_out, doubts) = said_of(&events);
    assert_eq!(left_out, [("work of a device whose times are 0".to_owned(), 1)]);
    let stream = &profile.devices[0].streams[0];
    assert_eq!(stream.phases[0].wall_ns, 200_000);
    assert_eq!(
        doubts,
        ["1 of 2 launches have no kernel in the file: the device did more than it says"]
    );
    let screen = first_screen(&profile);
    assert!(screen.contains("1 of 2 launches have no kernel in the file"), "{screen}");

    // A kernel that runs over the next one of its stream.
    let mut events = step_and_kernel((1_000_100, 1_600_000)).to_vec();
    events.push(event(
        "cuda_runtime",
        "cudaLaunchKernel",
        (1, 1),
        (1_000_020, 5),
        r#""correlation":2"#,
    ));
    events.push(event(
        "kernel",
        "gemm",
        (0, 7),
        (1_000_300, 100),
        r#""device":0,"stream":7,"correlation":2"#,
    ));
    let (.., doubts) = said_of(&events);
    assert!(
        doubts[0].starts_with("1 of 2 kernels and copies begin before the one before them"),
        "{doubts:?}"
    );
    // On another stream it may, if it isn't longer than such kernels are.
    events[2] = events[2].replace("1600000", "16000");
    let last = events.last_mut().expect("a kernel");
    *last = last.replace(r#""stream":7"#, r#""stream":8"#);
    assert!(said_of(&events).2.is_empty());
    // So may those of a graph.
    let mut events: Vec<String> = step_and_kernel((1_000_100, 300)).to_vec();
    events[1] = events[1].replace("cudaLaunchKernel", "cudaGraphLaunch");
    events.push(event(
        "kernel",
        "gemm",
        (0, 7),
        (1_000_150, 300),
        r#""device":0,"stream":7,"correlation":1"#,
    ));
    assert!(said_of(&events).2.is_empty());
}

#[test]
fn work_whose_launch_is_missing_is_told_on_the_first_screen() {
    let mut events = step_and_kernel((1_000_100, 100)).to_vec();
    events.push(event("kernel", "flash_fwd", (0, 7), (1_000_200, 700), r#""device":0,"stream":7"#));
    let (profile, _, doubts) = said_of(&events);
    let doubt = "the launch of 1 of 2 kernels and copies is not in the file: they are in no pass, with 87.5% of the devices' time";
    assert_eq!(doubts, [doubt]);
    assert!(first_screen(&profile).replace('\n', " ").contains("is not in the file"));
    // A correlation that some program rewrote.
    let rewritten = events.iter().map(|of| of.replace("\"correlation\":1", "\"correlation\":1.0"));
    assert_eq!(said_of(&rewritten.collect::<Vec<_>>()).2, [doubt]);
}

#[test]
fn a_kernel_that_a_file_has_twice_counts_once() {
    let mut events = step_and_kernel((1_000_100, 100)).to_vec();
    events.push(events[2].clone());
    let (profile, left_out, _) = said_of(&events);
    assert_eq!(left_out, [("kernels and copies that the file has twice".to_owned(), 1)]);
    assert_eq!(profile.devices[0].streams.len(), 1);
    assert_eq!(profile.devices[0].streams[0].phases[0].wall_ns, 100_000);
}

#[test]
fn bricks_have_a_name_however_many_ranges_and_launches_come_before_them() {
    let of = |nth: u32| nth + 10;
    let range = |nth: u32| {
        event("user_annotation", &format!("request {nth}"), (1, 1), (1_000_000 + nth, 1), "")
    };
    let call = |nth: u32| {
        let args = format!(r#""correlation":{}"#, of(nth));
        event("cuda_runtime", "cudaLaunchKernel", (1, 2), (1_010_000 + nth, 1), &args)
    };
    let kernel = |nth: u32, name: &str, ns: u32| {
        let args = format!(
            r#""device":0,"stream":7,"correlation":{},"grid":[{nth},1,1],"block":[64,1,1]"#,
            of(nth)
        );
        event("kernel", name, (0, 7), (1_020_000 + 2 * nth, ns), &args)
    };
    let mut events: Vec<String> = (1..4_200).map(range).collect();
    events.extend((1..4_200).map(call));
    events.extend((1..4_200).map(|nth| kernel(nth, "elementwise_kernel", 1)));
    events.extend([call(4_200), call(4_201)]);
    events.extend([
        kernel(4_200, "flash_fwd_kernel", 1_000),
        kernel(4_201 + 1_000, "sm80_xmma_gemm", 100),
    ]);
    let (profile, ..) = said_of(&events);
    let totals = &profile.devices[0].streams[0].totals;
    let of_bricks: Vec<(&str, u64)> = totals
        .iter()
        .filter(|total| total.kind == NameKind::Brick && total.category.is_some())
        .map(|total| (total.stats.name.as_str(), total.stats.exclusive_ns))
        .collect();
    for brick in [("FlashAttention", 1_000_000), ("MatMul", 100_000), ("Elementwise", 4_199_000)] {
        assert!(of_bricks.contains(&brick), "{brick:?}: {of_bricks:?}");
    }
}

#[test]
fn a_call_within_a_call_is_one_launch() {
    let mut events = step_and_kernel((1_000_100, 100)).to_vec();
    let inner =
        event("cuda_driver", "cuLaunchKernel", (1, 1), (1_000_011, 3), r#""correlation":1"#);
    events.insert(2, inner);
    let missing =
        event("cuda_runtime", "cudaLaunchKernel", (1, 1), (1_000_020, 5), r#""correlation":2"#);
    events.push(missing);
    let (_, _, doubts) = said_of(&events);
    assert_eq!(
        doubts,
        ["1 of 2 launches have no kernel in the file: the device did more than it says"]
    );
}

#[test]
fn a_file_whose_times_begin_at_0_has_its_first_kernel() {
    let kernel = |at: u32| event("kernel", "gemm", (0, 7), (at, 100), r#""device":0,"stream":7"#);
    let (profile, left_out, _) = said_of(&[kernel(0), kernel(150), kernel(300)]);
    assert!(left_out.is_empty(), "{left_out:?}");
    // Each is a span in that of its brick.
    assert_eq!(profile.devices[0].streams[0].spans.len(), 2 * 3);
}

#[test]
fn a_pass_whose_kernel_took_no_time_has_no_share_of_it() {
    let screen = first_screen(&said_of(&step_and_kernel((1_000_100, 0))).0);
    assert!(!screen.contains("NaN"), "{screen}");
}

#[test]
fn traces_of_2021_are_pytorchs_too() {
    let events = [
        event("Operator", "ProfilerStep#1", (10, 10), (1_000_000, 1000), ""),
        event("Operator", "aten::mm", (10, 10), (1_000_010, 50), ""),
        event("Runtime", "cudaLaunchKernel", (10, 10), (1_000_020, 5), r#""correlation":1"#),
        event(
            "Kernel",
            "volta_sgemm_64x64_nt",
            (0, 7),
            (1_000_100, 200),
            r#""device":0,"stream":7,"correlation":1"#,
        ),
        event("Trace", "PyTorch Profiler (0)", (9, 9), (999_900, 2000), ""),
    ];
    let (profile, ..) = said_of(&events);
    assert_eq!(profile.phase(Phase::Decode).expect("a step").wall_ns, 1_000_000);
    assert_eq!(profile.devices[0].streams[0].phases[0].wall_ns, 200_000);
    // Without operations, by what a kernel states.
    let (profile, ..) = said_of(&events[2..4]);
    assert_eq!(profile.devices[0].streams[0].spans[0].exclusive_ns, 200_000);
    // Another program's.
    let (profile, ..) = said_of(&[event("Kernel", "boot", (0, 7), (1_000_100, 200), "")]);
    assert!(profile.devices.is_empty());
}

#[test]
fn a_step_that_only_launches_has_no_rate() {
    let name = "execute_context_0(0)_generation_4(4)";
    for (kernel, tokens) in [(300, 4), (3000, 0)] {
        let events =
            step_and_kernel((1_000_100, kernel)).map(|event| event.replace("ProfilerStep#1", name));
        let (profile, ..) = said_of(&events);
        assert_eq!(profile.phase(Phase::Decode).expect("a step").tokens, tokens);
        let lacks = profile.imported.expect("of a file").lacks;
        let is_told = lacks.iter().any(|of| of.reason.contains("would be that of launching"));
        assert_eq!(is_told, tokens == 0, "{lacks:?}");
    }
}

/// As many names as a table has room for come before the two that take the time.
#[test]
fn names_that_take_the_time_have_room() {
    let event = |name: &str, ts: u32, dur: u32| {
        format!(r#"{{"ph":"X","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}"#)
    };
    let mut events: Vec<String> =
        (0..5000).map(|n| event(&format!("step {n}"), 10 * n, 1)).collect();
    events.push(event("attention", 100_000, 90_000));
    events.push(event("ffn", 200_000, 10_000));
    let profile = imported(&format!("[{}]", events.join(",")), Format::Chrome);
    assert_eq!(sums(&profile, None, "attention"), (1, 90_000_000, 90_000_000));
    assert_eq!(sums(&profile, None, "ffn"), (1, 10_000_000, 10_000_000));
}

/// As `brickscope.py` records them, with events around modules.
#[test]
fn how_busy_a_device_was_is_unknown_where_its_bricks_include_waits() {
    let (mut profile, ..) = said_of(&step_and_kernel((1_000_100, 300)));
    let words =
        |profile: &Profile| view::report(profile).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words(&profile)
            .contains("the device is busy 300 µs of 300 µs from its first kernel to its last"),
        "{}",
        words(&profile)
    );
    profile.devices[0].includes_waits = true;
    let busy = profile.devices[0].busy(Some(Phase::Decode)).expect_err("nobody knows");
    assert_eq!(busy.reason, "its bricks' times include waits for the host");
    assert!(profile.devices[0].busy_by_pass(None).is_empty());
    let report = words(&profile);
    assert!(
        report.contains("how busy the device was is unknown: its bricks' times include waits for"),
        "{report}"
    );
    assert!(
        report.contains("times a brick's include those in which the device waited for the host"),
        "{report}"
    );
    assert!(!report.contains(" is busy "), "{report}");
    let found = brickscope_analysis::findings::Findings::of(&profile);
    let unknown = found.unknown.iter().map(|of| of.why.as_str()).collect::<Vec<_>>().join("; ");
    assert!(
        unknown.contains("what slows decode down on a device is not known: its bricks' times"),
        "{unknown}"
    );
}
