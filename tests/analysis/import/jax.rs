//! Traces of JAX's profiler. `jax.json` was made by hand, in the form that XProf writes, with round times and
//! the names of tracks behind the events.

use brickscope::{NameKind, Phase, Profile};
use brickscope_analysis::view;
use brickscope_formats::import::{Format, Options, format_of};

use super::{import, imported, passes_of, sums};

pub(crate) const GPU: &str = include_str!("../../data/import/jax.json");

/// Brick, kernel, layer and nanoseconds of what a stream of the device did.
fn work(profile: &Profile, stream: usize) -> Vec<(&str, &str, Option<u16>, u64)> {
    let stream = &profile.devices[0].streams[stream];
    let name = |span: &brickscope::Span| &profile.names[usize::from(span.name.expect("a name"))];
    let kernels = stream.spans.iter().filter(|span| name(span).kind == NameKind::Kernel);
    kernels
        .map(|span| {
            let brick = &stream.spans[span.parent.expect("a brick") as usize];
            (&*name(brick).name, &*name(span).name, span.layer, span.duration_ns)
        })
        .collect()
}

fn left_out(profile: &Profile) -> Vec<(&str, u64)> {
    let imported = profile.imported.as_ref().expect("of a file");
    imported.left_out.iter().map(|(why, count)| (why.as_str(), *count)).collect()
}

#[test]
fn kernels_of_streams_have_the_layers_and_bricks_of_their_scopes() {
    assert_eq!(format_of(GPU), Some(Format::Chrome));
    let profile = imported(GPU, Format::Chrome);
    let streams: Vec<&str> = profile.devices[0].streams.iter().map(|of| &*of.name).collect();
    assert_eq!((profile.devices.len(), streams), (1, vec!["stream 7", "stream 9"]));
    assert_eq!(
        work(&profile, 0),
        [
            ("QkvProjection", "gemm_fusion_dot_4", Some(3), 10_500),
            ("RmsNorm", "input_reduce_fusion_2", Some(4), 2_250),
            // No scope of it is a brick, but what is computed there is.
            ("MatMul", "loop_add_fusion", Some(4), 3_000),
        ]
    );
    assert_eq!(work(&profile, 1), [("Copy", "MemcpyD2H", None, 1_000)]);
    let gemm = profile.names.iter().find(|name| name.name == "gemm_fusion_dot_4");
    let launch = gemm.and_then(|name| name.device.as_ref()).expect("it is stated");
    assert_eq!((launch.grid, launch.block, launch.shared_mem), ((132, 1, 1), (128, 1, 1), 1_024));
    // From 90 to 110 µs.
    assert_eq!(profile.devices[0].streams[0].launches[0].issued_ns, 20_000);
    assert_eq!(
        left_out(&profile),
        [
            ("functions of Python that aren't modules", 1),
            ("events that list a device's work once more, such as by scope or line of source", 2),
        ]
    );
    let imported = profile.imported.as_ref().expect("of a file");
    assert_eq!(imported.program.as_deref(), Some("JAX's profiler (XProf)"));
    assert!(imported.doubts.is_empty());
}

#[test]
fn the_hosts_time_is_that_of_its_threads_only() {
    let profile = imported(GPU, Format::Chrome);
    assert_eq!(sums(&profile, None, "decode_step"), (1, 60_000, 10_000));
    assert_eq!(sums(&profile, None, "PjitFunction(decode)"), (1, 50_000, 42_000));
    assert_eq!(sums(&profile, None, "Launch"), (2, 8_000, 8_000));
    assert!(profile.totals.iter().all(|total| !total.stats.name.contains("fusion")));
    assert_eq!(profile.lanes.len(), 1);
    assert_eq!(profile.lanes[0].name.as_deref(), Some("/host:CPU: python3"));
}

#[test]
fn passes_are_modules_of_a_device_or_steps_of_the_host() {
    let of_module = import(GPU, Format::Chrome, &passes_of("jit_decode*")).expect("a pass");
    assert!(of_module.passes.is_empty());
    let passes = &of_module.devices[0].streams[0].passes;
    assert_eq!(passes.len(), 1);
    // From 200 to 219 µs.
    assert_eq!((passes[0].wall_ns, passes[0].attributed_ns), (19_000, 15_750));
    let step = passes_of("decode_step[args.step_num=3]");
    let of_step = import(GPU, Format::Chrome, &step).expect("a pass");
    assert_eq!(of_step.phase(Phase::Decode).map(|phase| phase.wall_ns), Some(60_000));
    // What it launched.
    let passes = &of_step.devices[0].streams[0].passes;
    assert_eq!((passes.len(), passes[0].attributed_ns), (1, 12_750));
}

#[test]
fn loops_of_a_tpu_are_not_counted_beside_what_is_in_them() {
    let ops = [
        ("while.1", 0, 100, ""),
        ("fusion.1", 0, 40, "jit(f)/decoder/layers_0/mlp/wo/dot_general:"),
        ("fusion.2", 40, 60, ""),
        ("all-reduce.3", 100, 20, ""),
    ];
    let mut events: Vec<String> = ops
        .map(|(name, ts, dur, path)| {
            format!(
                r#"{{"ph":"X","pid":3,"tid":2,"ts":{ts},"dur":{dur},"name":"{name}","args":{{"tf_op":"{path}"}}}}"#
            )
        })
        .to_vec();
    for (tid, track) in [(1, "Steps"), (2, "XLA Ops"), (4, "Source code")] {
        let name = format!(r#""name":"thread_name","args":{{"name":"{track}"}}"#);
        events.push(format!(r#"{{"ph":"M","pid":3,"tid":{tid},{name}}}"#));
    }
    events.push(r#"{"ph":"X","pid":3,"tid":1,"ts":0,"dur":120,"name":"5"}"#.to_owned());
    events.push(r#"{"ph":"X","pid":3,"tid":4,"ts":0,"dur":120,"name":"f.py:1"}"#.to_owned());
    let process = r#"{"ph":"M","pid":3,"name":"process_name","args":{"name":"/device:TPU:0"}}"#;
    events.push(process.to_owned());
    let text = format!("{{\"traceEvents\":[{}]}}", events.join(","));
    let profile = import(&text, Format::Chrome, &passes_of("5")).expect("a pass");
    assert_eq!(
        work(&profile, 0),
        [
            ("DownProjection", "fusion.1", Some(0), 40_000),
            ("fusion.2", "fusion.2", None, 60_000),
            ("AllReduce", "all-reduce.3", None, 20_000),
        ]
    );
    let pass = &profile.devices[0].streams[0].passes[0];
    assert_eq!((pass.wall_ns, pass.attributed_ns), (120_000, 120_000));
    assert!(profile.spans.is_empty());
    assert_eq!(
        left_out(&profile),
        [
            ("events that list a device's work once more, such as by scope or line of source", 1),
            ("operations of a TPU that others lie in, and of which only these count", 1),
        ]
    );
}

#[test]
fn the_empty_event_at_the_end_is_no_fault() {
    let text = r#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"X","pid":1,"tid":1,"ts":1.0,"dur":5.0,"name":"dot.1"},{}]}"#;
    let profile = import(text, Format::Chrome, &Options::default()).expect("a trace");
    assert!(left_out(&profile).is_empty());
    assert_eq!(sums(&profile, None, "dot.1"), (1, 5_000, 5_000));
}

#[test]
fn where_no_event_is_a_pass_those_that_may_be_are_named() {
    let profile = imported(GPU, Format::Chrome);
    assert!(profile.passes.is_empty());
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let may_be = "such as `decode_step` (once), `PjitFunction(decode)` (once)";
    for text in [view::findings(&profile, None), view::report(&profile)] {
        let text = words(text);
        assert!(text.contains(may_be) && text.contains("--decode"), "{text}");
    }
}
