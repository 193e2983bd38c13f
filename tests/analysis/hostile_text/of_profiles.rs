//! Every text of a profile, through every view.

use brickscope::{
    Absent, Bandwidth, BrickId, BrickKernel, BrickProfiler, CacheCeiling, CeilingReading, Ceilings,
    DeviceLaunch, ExecutionGraph, ExecutionNode, FunctionSamples, GraphLayers, GraphLayersBy,
    HostLaunch, Imported, ImportedTest, KernelPace, LayerBrick, Machine, MockClock, Model, Move,
    Name, NameKind, Peak, Phase, Profile, ReadingTime, Route, Run, Serialised, SimulatedDevice,
    SlowBrick, SlowTokens, StatedRate, StreamId, Survey, TileLevel, TileStats, TileThread,
    TransferDirection, TreeOptions, Unruled, WeightGroup, Work,
};
use brickscope_analysis::backends::{BackendComparison, BackendRounds};
use brickscope_analysis::compare::{Options, Process, Side, compare};
use brickscope_analysis::explain;
use brickscope_analysis::stacks::{By, Stacks};
use brickscope_analysis::view;
use brickscope_formats::export::{folded, prometheus};
use serde_json::Value;

use brickscope_testing::hostile::{
    Place, SCRIPT, assert_harmless, assert_inert, flood, forbidden, places, planted,
};

/// A run with a value in every field that is a text.
fn profile() -> Profile {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 7..10 {
        let pass = profiler.begin_pass(Phase::Decode);
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        timer
            .brick(&mut device, StreamId(0), None, BrickId::LmHead, Work::elements(1))
            .expect("room");
        device.launch(StreamId(0), 45_000);
        timer.end_pass(&mut device).expect("it is open");
        let wait = profiler.start("DeviceWait");
        timer.settle(&mut device, true).expect("it is there");
        profiler.stop(wait, 0);
        profiler.end_pass(pass, 1, position);
    }
    timer.finish(&mut device).expect("it is there");
    let mut devices = profiler.profile().devices;
    devices[0].lost = Some("gone".to_owned());
    devices[0].failure = Some("failed".to_owned());
    devices[0].stamp = None;
    devices[0].stamp_absent = Some(absent("no cost"));
    devices[0].ceilings = Some(ceilings());
    devices[0].ceilings_absent = Some(absent("no limits"));

    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let launch = HostLaunch { shape: "768×768 q8_0".to_owned(), threads: 2 };
    let gemv = profiler.kernel("gemv", Some(launch));
    for (phase, tokens) in [(Phase::Prefill, 4), (Phase::Decode, 1), (Phase::Decode, 1)] {
        let pass = profiler.begin_pass(phase);
        let layer = profiler.begin_layer(0);
        let timer = profiler.start_brick_kernel(BrickId::QkvProjection, gemv);
        hand.advance(100_000 * tokens);
        let work = Work { elements: 8, flops: 4_000_000, bytes: 900_000, ..Work::default() };
        profiler.stop_brick_kernel(timer, work);
        let timer = profiler.start("moe");
        hand.advance(40_000);
        profiler.stop(timer, 1);
        profiler.end_layer(layer);
        profiler.end_pass(pass, tokens, 0);
    }
    profiler.record_checksum("Softmax", 2, 5, &[1.0, 2.0]);
    profiler.checksums().record_digest("Softmax", 2, 5, &[1.0, 2.0]);
    let mut profile = profiler.profile();
    profile.devices = devices;
    profile.graph = Some(graph());
    profile.ptx.register("gemv", "// PTX", Some("src/gemv.ptx".as_ref()));
    profile.names.push(Name {
        name: "copy".to_owned(),
        kind: NameKind::Brick,
        category: None,
        host: None,
        device: None,
        transfer: Some(Route {
            src: "host".to_owned(),
            dst: "device".to_owned(),
            direction: TransferDirection::H2D,
        }),
    });
    profile.lanes[0].name = Some("main".to_owned());
    profile.clock.instead = Some("it drifts".to_owned());
    profile.clock.absent = Some("no drift".to_owned());
    profile.overhead.basis = "measured".to_owned();
    profile.overhead.span_ns = Some(10.0);
    profile.overhead.spans = 5;
    profile.counters_absent = Some(absent("no counters"));
    profile.other_load = None;
    profile.other_load_absent = Some(absent("no load"));
    profile.latency.slow_absent = Some(absent("too few"));
    profile.latency.slow = Some(SlowTokens {
        slow: 1,
        fast: 1,
        least_ns: 5,
        extra_ns: 9.0,
        bricks: vec![SlowBrick { name: "moe".to_owned(), extra_ns: 9.0 }],
        unattributed_extra_ns: 0.0,
    });
    profile.tiles = vec![TileStats::new(TileLevel::Macro)];
    let tiles = profile.tiles.clone();
    profile.tile_threads = ["a", "b"]
        .map(|name| TileThread { name: Some(name.to_owned()), tid: None, tiles: tiles.clone() })
        .into();
    profile.layers = vec![LayerBrick {
        phase: Some(Phase::Decode),
        layer: Some(0),
        name: "moe".to_owned(),
        count: 1,
        total_ns: 1,
        exclusive_ns: 1,
    }];
    profile.brick_kernels = vec![BrickKernel {
        phase: Some(Phase::Decode),
        brick: "moe".to_owned(),
        kernel: "gemv".to_owned(),
        count: 1,
        total_ns: 1,
    }];
    // As a kernel of a device, too.
    let launch = DeviceLaunch { shape: "8×8".to_owned(), ..DeviceLaunch::default() };
    let mut total = profile.totals[0].clone();
    (total.kind, total.host) = (NameKind::Kernel, None);
    total.stats.name = "on_device".to_owned();
    total.device = Some(launch.clone());
    profile.totals.push(total);
    profile.names.push(Name {
        name: "on_device".to_owned(),
        kind: NameKind::Kernel,
        category: None,
        host: None,
        device: Some(launch),
        transfer: None,
    });
    profile.machine = Some(Machine {
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        cpu: Some("A Processor 9000".to_owned()),
        logical_cpus: Some(2),
        memory_bytes: Some(24_000_000_000),
    });
    profile.model = Some(Model {
        path: "tiny.gguf".to_owned(),
        name: Some("tiny".to_owned()),
        architecture: "llama".to_owned(),
        quantization: "q8_0".to_owned(),
        weights_in: Some("large pages".to_owned()),
        weights: vec![WeightGroup {
            name: "ffn_down".to_owned(),
            format: "q8_0".to_owned(),
            is_matrix: true,
            tensors: 1,
            parameters: 800,
            bytes: 850,
        }],
        ..Model::default()
    });
    profile.run = Some(Run {
        command: vec!["brickscope".to_owned(), "profile".to_owned()],
        backend: "avx2".to_owned(),
        threads: 2,
        ..Run::default()
    });
    profile.imported = Some(Imported {
        format: "chrome".to_owned(),
        file: "trace.json".to_owned(),
        program: Some("candle".to_owned()),
        lacks: vec![absent("no work")],
        left_out: vec![("no end".to_owned(), 3)],
        doubts: vec!["no kernel".to_owned()],
        conditions: vec![("n_batch".to_owned(), "512".to_owned())],
        samples: vec![FunctionSamples { name: "main".to_owned(), own: 1, total: 2 }],
        other_threads: Vec::new(),
        tests: vec![ImportedTest {
            row: 1,
            name: "tg128".to_owned(),
            tokens: 128,
            samples_ns: Vec::new(),
            stated: Some(StatedRate {
                tokens_per_second: "19.7".to_owned(),
                std_dev: Some("0.3".to_owned()),
            }),
            apart: vec![("n_threads".to_owned(), "2".to_owned())],
            began: Some("2026-11-30T21:00:00Z".to_owned()),
        }],
        graph_layers: Some(GraphLayers {
            by: GraphLayersBy::Sequence,
            layers: 2,
            kernels: 3,
            of_kernels: 4,
            detail: "layers of 2 kinds take turns".to_owned(),
        }),
        unruled: Some(Unruled {
            names: 1,
            ns: 1,
            of_ns: 2,
            longest: vec![("my_kernel".to_owned(), 1)],
        }),
        ..Imported::default()
    });
    profile
}

fn absent(reason: &str) -> Absent {
    Absent { reason: reason.to_owned() }
}

/// Ceilings, under which the other variant of the profile has a roofline.
fn ceilings() -> Ceilings {
    Ceilings {
        read_bytes_per_second: 5e9,
        flops_per_second: 1e9,
        basis: "made up".to_owned(),
        measured: Some("2026-11-21T10:00:00Z".to_owned()),
        caches: vec![CacheCeiling {
            level: "L1".to_owned(),
            bytes: 64_000_000,
            read_bytes_per_second: 1e9,
        }],
        readings: vec![CeilingReading {
            when: ReadingTime::Kept,
            measured: "2026-11-20".to_owned(),
            read_bytes_per_second: 5e9,
            disturbed: false,
        }],
        paces: vec![KernelPace {
            kernel: "gemv_q8_0_avx2".to_owned(),
            level: "L1".to_owned(),
            threads: 1,
            absent: Some(absent("too little")),
            ..KernelPace::default()
        }],
        ..Ceilings::default()
    }
}

/// One node of each kind that has a name, and a copy with its inverse.
fn graph() -> ExecutionGraph {
    let mut graph = ExecutionGraph::new();
    let text = |text: &str| text.to_owned();
    graph.push_scope(ExecutionNode::Function {
        name: text("main"),
        file: Some(text("src/a.rs")),
        line: Some(7),
    });
    graph.push_scope(ExecutionNode::NamedBrick {
        name: text("Ffn"),
        timing_ns: 9_000,
        elements: 8,
    });
    graph.record_kernel_launch("q6", 1, (1, 1, 1), (32, 1, 1), 0);
    graph.pop_scope();
    graph.add_node_in_scope(ExecutionNode::AsyncTask {
        name: text("task"),
        poll_count: 1,
        yield_count: 1,
        total_poll_ns: 500,
    });
    graph.add_node_in_scope(ExecutionNode::Routine {
        name: text("routine"),
        launch: HostLaunch { shape: text("8×8"), threads: 2 },
        timing_ns: Some(400),
        arithmetic_intensity: None,
        achieved_tflops: None,
    });
    for way in [TransferDirection::H2D, TransferDirection::D2H] {
        let (from, to) = match way {
            TransferDirection::H2D => ("host_scores", "scores"),
            _ => ("scores", "host_scores"),
        };
        graph.record_transfer(from, to, 4_096, way, Some(900));
    }
    graph
}

/// The variants that a view tells apart: on the host with ceilings, and without; on a device; imported; with the
/// times of its passes only in the spans; with a device that ran one operation at a time.
fn variants() -> Vec<Profile> {
    let all = profile();
    let mut on_host = all.clone();
    on_host.devices.clear();
    on_host.imported = None;
    on_host.latency.slow_absent = None;
    on_host.ceilings = Some(ceilings());
    let mut bare = on_host.clone();
    bare.graph = None;
    bare.ceilings = None;
    bare.ceilings_absent = Some(absent("not measured"));
    bare.overhead.span_ns = None;
    bare.model.as_mut().expect("a model").name = None;
    let mut imported = bare.clone();
    imported.imported = all.imported.clone();
    let mut without_passes = imported.clone();
    without_passes.phases.clear();
    without_passes.passes.clear();
    let mut serialised = on_host.clone();
    serialised.serialised.push(Serialised {
        phase: Phase::Decode,
        devices: vec!["CUDA0".to_owned()],
        whole_passes: 0,
        whole_tokens: 0,
        whole_wall_ns: 0,
        whole_p50_ns: None,
        cost: None,
        cost_absent: Some(absent("too few pairs")),
    });
    vec![all, on_host, bare, imported, without_passes, serialised]
}

/// What people see of a profile, each form with its name.
fn views(profile: &Profile) -> Vec<(String, String)> {
    let summary = |columns| {
        view::summary(profile, view::Size { columns, rows: 50 }, Some(&flood(9))).to_string()
    };
    let mut seen = vec![
        ("report".to_owned(), view::report(profile)),
        ("summary".to_owned(), summary(80)),
        ("wide summary".to_owned(), summary(200)),
        ("statistics".to_owned(), view::statistics(profile)),
        ("kernels".to_owned(), view::kernels(profile)),
        ("roofline".to_owned(), view::roofline(profile)),
        ("roofline_svg".to_owned(), view::roofline_svg(profile)),
        ("headline".to_owned(), view::headline(profile)),
        ("findings".to_owned(), view::findings(profile, Some(&flood(9)))),
    ];
    for word in ["QkvProjection", "far-from-the-roof", "roofline", "device", "stall", "moe"] {
        let pages = explain::find_in(word, profile);
        let said: Vec<_> = pages.iter().map(|page| page.in_run(profile)).collect();
        let text = view::explain(&pages, Some((&flood(9), &said)));
        seen.push((format!("explain {word}"), text));
    }
    let mut see = |name: &str, text: String| seen.push((name.to_owned(), text));
    for note in view::device_notes(profile).into_iter().chain(view::serialised_notes(profile)) {
        see("a note of a device", note);
    }
    if let Some(ceilings) = &profile.ceilings {
        see("memory_readings", view::memory_readings(ceilings));
    }
    if let Err(why) = profile.check() {
        see("check", why);
    }
    let passes = profile.passes.iter().filter_map(|pass| profile.execution_graph(pass.serial));
    for graph in profile.graph.clone().into_iter().chain(passes) {
        see("ascii tree", graph.to_ascii_tree());
        see("folded tree", graph.to_tree(&TreeOptions { fold: true, ..TreeOptions::default() }));
        see("dot", graph.to_dot());
        see("critical path summary", graph.critical_path_summary());
        let names: Vec<(String, f64)> =
            graph.nodes().map(|node| (node.name(), 0.5)).chain([(flood(9), 0.5)]).collect();
        see("critical path", view::critical_path(&graph, &names));
    }
    for index in 0..profile.devices.len() {
        for device in profile.whole_device(index).into_iter().chain(profile.on_device(index, 0)) {
            see("report of a device", view::report(&device));
            see("statistics of a device", view::statistics(&device));
        }
    }
    let side = |name: &str, profile: &Profile| {
        let process = Process::from_profile(name, profile).ok()?;
        Some(Side { name: name.to_owned(), processes: vec![process] })
    };
    let mut other = profile.clone();
    other.run.iter_mut().for_each(|run| run.backend.push('2'));
    other.machine.iter_mut().for_each(|machine| machine.cpu = None);
    for (a, b) in [("a", "b"), (&*flood(9), &*flood(8))] {
        let sides = side(a, profile).zip(side(b, &other));
        for is_forced in [true, false] {
            let options = Options { is_forced, ..Options::default() };
            match sides.as_ref().map(|(a, b)| compare(a, b, &options)) {
                None => {}
                Some(Err(why)) => see("an error of compare", why.to_string()),
                Some(Ok(compared)) => {
                    see("comparison", view::comparison(&compared));
                    let markdown = view::comparison_markdown(&compared);
                    see("comparison_markdown", markdown.replace('\u{fe0f}', ""));
                    see("comparison_headline", view::comparison_headline(&compared));
                }
            }
        }
    }
    let rounds = [profile.clone()];
    let names = [flood(9), "avx2".to_owned()];
    let sides = names.each_ref().map(|backend| BackendRounds { backend, rounds: &rounds });
    if let Ok(compared) = BackendComparison::new(&sides) {
        see("backends", view::backends(&compared));
    }
    seen
}

/// The views whose strings are JSON: they keep a text whole.
fn json_views(profile: &Profile) -> Vec<String> {
    let mut seen = vec![view::json(profile)];
    let side = |name: &str| {
        let process = Process::from_profile(name, profile).ok()?;
        Some(Side { name: name.to_owned(), processes: vec![process] })
    };
    let options = Options { is_forced: true, ..Options::default() };
    if let Some(Ok(compared)) = side("a").zip(side("b")).map(|(a, b)| compare(&a, &b, &options)) {
        seen.extend([view::comparison_json(&compared), view::comparison_bmf(&compared)]);
    }
    seen
}

/// The lines of exports that are read by line, and how many there are.
fn lines_of_exports(profile: &Profile) -> [usize; 2] {
    let mut metrics = Vec::new();
    prometheus::write(profile, &mut metrics).expect("in memory");
    let mut stacks = Vec::new();
    // An empty profile has no stacks.
    let _ = folded::write(&Stacks::of_spans(profile, By::Layer, 0), &mut stacks);
    [metrics, stacks].map(|bytes| String::from_utf8(bytes).expect("UTF-8").lines().count())
}

/// Calls `see` with every profile that has a hostile text in one place; its error if it is none any more.
fn each_planted(text: &str, mut see: impl FnMut(&Place, Result<Profile, String>)) -> usize {
    let mut n = 0;
    for variant in variants() {
        let value = serde_json::to_value(&variant).expect("JSON");
        for place in places(&value) {
            n += 1;
            let json = planted(&value, &place, text).to_string();
            let read = Profile::from_json(&json, "run/profile.json".as_ref());
            see(&place, read.map_err(|why| why.to_string()));
        }
    }
    n
}

#[test]
fn no_text_of_a_profile_controls_a_terminal_forges_a_line_or_floods_the_screen() {
    let mut read = 0;
    let n = each_planted(&flood(10_000), |place, profile| match profile {
        Ok(profile) => {
            read += usize::from(matches!(place, Place::Leaf(_)));
            for (view, text) in views(&profile) {
                assert_harmless(&format!("{view}, with a text at {place:?}"), &text);
            }
        }
        Err(why) => assert_harmless(&format!("the error for a text at {place:?}"), &why),
    });
    assert!(n > 1_000 && read > 200, "{read} of {n}");
}

#[test]
fn json_on_a_terminal_has_no_control_character_and_the_same_values() {
    each_planted(brickscope_testing::hostile::HOSTILE, |place, profile| {
        let (Place::Leaf(_), Ok(profile)) = (place, profile) else { return };
        for json in json_views(&profile) {
            assert_eq!(forbidden(&json), None, "{place:?}");
            assert!(serde_json::from_str::<Value>(&json).is_ok(), "{place:?}");
        }
        let again = Profile::from_json(&view::json(&profile), "x".as_ref()).expect("a profile");
        assert!(again == profile, "{place:?}");
    });
}

#[test]
fn a_line_break_in_a_text_breaks_no_line_of_an_export() {
    for variant in variants() {
        let value = serde_json::to_value(&variant).expect("JSON");
        for place in places(&value).iter().filter(|place| matches!(place, Place::Leaf(_))) {
            let lines = ["a_b__c", "a\nb\r\nc"].map(|text| {
                let json = planted(&value, place, text).to_string();
                Profile::from_json(&json, "x".as_ref()).ok().map(|of| lines_of_exports(&of))
            });
            assert_eq!(lines[0], lines[1], "metrics and stacks, with a text at {place:?}");
        }
    }
}

#[test]
fn a_megabyte_in_every_text_at_once_is_cut() {
    let text = flood(1 << 20);
    for variant in variants() {
        let mut value = serde_json::to_value(&variant).expect("JSON");
        // Texts of which there are only a few, such as phases, stay.
        let is_free =
            |place: &Place| serde_json::from_value::<Profile>(planted(&value, place, "x")).is_ok();
        let mut free = places(&value);
        free.retain(|place| matches!(place, Place::Leaf(_)));
        free.retain(is_free);
        assert!(!free.is_empty());
        for place in free {
            if let Place::Leaf(at) = place {
                *value.pointer_mut(&at).expect("it is there") = text.as_str().into();
            }
        }
        let profile: Profile = serde_json::from_value(value).expect("a profile");
        for (view, text) in views(&profile) {
            assert_harmless(&view, &text);
        }
    }
}

#[test]
fn no_text_of_a_machine_controls_a_terminal() {
    let survey = Survey {
        measured: "2026-11-21T10:00:00Z".to_owned(),
        backend: "avx2".to_owned(),
        caches: Vec::new(),
        bandwidth: [Some(1e9), None]
            .map(|bytes_per_second| Bandwidth {
                level: "L1".to_owned(),
                how: Move::ALL[0],
                threads: 1,
                working_set: Some(1),
                bytes_per_second,
                absent: bytes_per_second.is_none().then(|| absent("too little")),
            })
            .into(),
        peaks: [Some(1e9), None]
            .map(|ops_per_second| Peak {
                numbers: "f32".to_owned(),
                backend: "avx2".to_owned(),
                instructions: "fma".to_owned(),
                is_used: true,
                threads: 1,
                ops_per_second,
                absent: ops_per_second.is_none().then(|| absent("too little")),
            })
            .into(),
        paces: [Some(1e9), None]
            .map(|bytes_per_second| KernelPace {
                kernel: "gemv_q8_0_avx2".to_owned(),
                level: if bytes_per_second.is_some() { "L1" } else { "L2" }.to_owned(),
                threads: 1,
                bytes_per_second,
                absent: bytes_per_second.is_none().then(|| absent("too little")),
                ..KernelPace::default()
            })
            .into(),
    };
    let value = serde_json::to_value(&survey).expect("JSON");
    for place in places(&value) {
        let text = planted(&value, &place, &flood(10_000));
        if let Ok(survey) = serde_json::from_value::<Survey>(text) {
            assert_harmless(&format!("a text at {place:?}"), &view::machine(&survey));
        }
    }
}

/// The fields of texts that the profile above has. A new one belongs there.
#[test]
fn every_text_of_a_profile_is_walked() {
    let mut fields: Vec<String> = variants()
        .iter()
        .flat_map(|variant| places(&serde_json::to_value(variant).expect("JSON")))
        .filter_map(|place| match place {
            Place::Leaf(at) => Some(
                at.split('/').filter(|at| at.parse::<u32>().is_err()).collect::<Vec<_>>().join("/"),
            ),
            Place::Key(..) => None,
        })
        .collect();
    fields.sort();
    fields.dedup();
    insta::assert_snapshot!(fields.join("\n"));
}

#[test]
fn no_text_of_a_profile_makes_a_picture_run_or_fetch_anything() {
    let mut drawn = 0;
    each_planted(SCRIPT, |place, profile| {
        if let Ok(profile) = profile {
            drawn += 1;
            assert_inert(&format!("a script at {place:?}"), &view::roofline_svg(&profile));
        }
    });
    assert!(drawn > 100, "{drawn}");
}
