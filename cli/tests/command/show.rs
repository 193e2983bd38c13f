//! `brickscope show`: every form, for runs with known times.

use std::path::{Path, PathBuf};

use brickscope::{
    BrickId, BrickProfiler, ExecutionGraph, ExecutionNode, HostLaunch, MockClock, Phase, Profile,
    SimulatedDevice, StreamId, Work,
};
use tempfile::TempDir;

use brickscope_testing::command::{self, adds_up, brickscope, run, text};

const PTX: &str = ".version 7.0\n.target sm_70\n// q4k\n";

/// A profile in its own folder.
struct Run {
    dir: TempDir,
}

impl Run {
    fn of(profile: &Profile) -> Self {
        let run = Self { dir: TempDir::new().expect("a temporary folder") };
        profile.save(&run.file()).expect("it is written");
        run
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("profile.json")
    }

    fn path(&self) -> &str {
        self.dir.path().to_str().expect("UTF-8")
    }

    fn show(&self, args: &[&str]) -> String {
        let output = run(brickscope(&["show", self.path()]).args(args));
        text(&output.stdout).to_owned()
    }

    /// Its message, if it must fail.
    fn refuse(&self, args: &[&str]) -> String {
        let output = brickscope(&["show", self.path()]).args(args).output().expect("it starts");
        assert!(!output.status.success(), "{args:?} succeeded");
        assert!(output.stdout.is_empty(), "{args:?} printed a result");
        let said = text(&output.stderr).to_owned();
        assert!(!said.contains("panicked"), "{said}");
        said
    }
}

/// A decode pass of an embedding and three layers, each with a brick and a kernel on the CPU, on a mock
/// clock.
fn on_cpu() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let launch = HostLaunch { shape: "768×768 q8_0".to_owned(), threads: 2 };
    let gemv = profiler.kernel("q8_0_gemv_avx2", Some(launch));
    let pass = profiler.begin_pass(Phase::Decode);
    let timer = profiler.start_brick(BrickId::Embedding);
    hand.advance(1_000);
    profiler.stop_brick(timer, 768);
    for index in 0..3 {
        let layer = profiler.begin_layer(index);
        let timer = profiler.start_brick_kernel(BrickId::QkvProjection, gemv);
        hand.advance(100_000 + 10_000 * u64::from(index));
        profiler.stop_brick_kernel(timer, Work::elements(768));
        profiler.end_layer(layer);
    }
    profiler.end_pass(pass, 1, 0);
    profiler.profile()
}

/// The seeds' graph of one layer, with kernels of a GPU, two of which have a source.
fn on_gpu() -> Profile {
    let profiler = BrickProfiler::with_clock(MockClock::default().clock());
    profiler.enable();
    profiler.enable_graph();
    let hash =
        profiler.graph().register_ptx("q4k_gemv", PTX, Some(Path::new("src/q4k.ptx"))).hash();
    profiler.graph().register_ptx("two", "a\n", None);
    let two = profiler.graph().register_ptx("two", "b\n", None).hash();
    profiler.graph_push_scope(ExecutionNode::Layer { index: 0 });
    profiler.graph_record_brick(BrickId::QkvProjection, 200_000, 4096);
    for (name, hash) in [("q4k_gemv", hash), ("alias", hash), ("two", two), ("lost", 7)] {
        profiler.graph_record_kernel(name, hash, (32, 1, 1), (256, 1, 1), 4096);
    }
    profiler.graph_record_kernel("q4k_gemv", hash, (32, 1, 1), (256, 1, 1), 4096);
    profiler.graph_pop_scope();
    profiler.profile()
}

#[test]
fn the_tree_whole_and_in_part() {
    let run = Run::of(&on_cpu());
    assert_eq!(
        run.show(&["--as", "tree"]),
        "\
Decode pass  331.0µs
├── Embedding  1.0µs (768 elem)
├── Layer 0  100.0µs
│   └── QkvProjection  100.0µs (768 elem)
│       └── q8_0_gemv_avx2  768×768 q8_0  2 threads  100.0µs
├── Layer 1  110.0µs
│   └── QkvProjection  110.0µs (768 elem)
│       └── q8_0_gemv_avx2  768×768 q8_0  2 threads  110.0µs
└── Layer 2  120.0µs
    └── QkvProjection  120.0µs (768 elem)
        └── q8_0_gemv_avx2  768×768 q8_0  2 threads  120.0µs
"
    );
    assert_eq!(
        run.show(&["--as", "tree", "--fold", "--min-share", "1%"]),
        "\
Decode pass  331.0µs
├── Layers 0–2  ×3, 330.0µs sum, 100.0–120.0µs each
│   └── QkvProjection  330.0µs sum, 100.0–120.0µs each (768 elem)
│       └── q8_0_gemv_avx2  768×768 q8_0  2 threads  330.0µs sum
└── … 1 more, 1.0µs
"
    );
    assert_eq!(
        run.show(&["--as", "tree", "--layer", "1", "--depth", "2"]),
        "\
Execution Graph
├── Layer 1  110.0µs
│   └── QkvProjection  110.0µs (768 elem)  … 1 inside
└── … outside of this layer: 4 more with 4 inside, 221.0µs
"
    );
}

#[test]
fn flags_that_do_nothing_or_ask_for_what_is_not_there_are_refused() {
    let run = Run::of(&on_cpu());
    let say = |args: &[&str]| run.refuse(args);
    assert_eq!(say(&["--depth", "2"]), "brickscope: --depth goes with --as tree\n");
    assert_eq!(say(&["--as", "dot", "--fold"]), "brickscope: --fold goes with --as tree\n");
    assert_eq!(say(&["--layer", "1"]), "brickscope: --layer goes with --as tree, dot or svg\n");
    assert_eq!(
        say(&["--as", "tree", "--unfolded"]),
        "brickscope: --unfolded goes with --as dot or svg\n"
    );
    assert_eq!(say(&["--ptx", "k"]), "brickscope: --ptx goes with --as kernels\n");
    assert_eq!(
        say(&["--as", "tree", "--layer", "3"]),
        "brickscope: there is no layer 3: the layers are 0 to 2\n"
    );
    assert_eq!(
        say(&["--as", "svg", "--layer", "3"]),
        "brickscope: there is no layer 3: the layers are 0 to 2\n"
    );
    for share in ["1", "0.01", "-1%", "101%", "NaN%", "%"] {
        let said = say(&["--as", "tree", &format!("--min-share={share}")]);
        assert!(said.contains("must be a percentage from 0% to 100%, such as 1%"), "{said}");
    }
    assert!(say(&["--as", "tree", "--depth", "0"]).contains("at least 1"));
}

#[test]
fn kernels_of_the_cpu_have_shapes_and_no_ptx() {
    let run = Run::of(&on_cpu());
    assert_eq!(
        run.show(&["--as", "kernels"]),
        "\
Timed kernels, in all phases
Kernel                 Launches  Total (µs)  PTX                 Launch
-------------------------------------------------------------------------------
q8_0_gemv_avx2                3       330.0  cpu                 768×768 q8_0
"
    );
    assert_eq!(
        run.refuse(&["--as", "kernels", "--ptx", "q8_0_gemv_avx2"]),
        "brickscope: `q8_0_gemv_avx2` is a routine of the CPU: it has no PTX\n"
    );
    assert_eq!(
        run.refuse(&["--as", "kernels", "--ptx", "nothing"]),
        "brickscope: there is no kernel `nothing`: `--as kernels` lists those of this run\n"
    );
}

#[test]
fn kernels_of_a_gpu_lead_to_their_ptx() {
    let run = Run::of(&on_gpu());
    let shown = run.show(&["--as", "kernels"]);
    assert_eq!(
        shown,
        "\
Kernels of the recorded graph
Kernel                 Launches  Total (µs)  PTX                 Launch
-------------------------------------------------------------------------------
q4k_gemv                      2           -  0xcb59e39109c55587  <<<32,256,1>>>
alias                         1           -  0xcb59e39109c55587  <<<32,256,1>>>
two                           1           -  0x08a61e07b54dac5d  <<<32,256,1>>>
lost                          1           -  0x0000000000000007? <<<32,256,1>>>
- in Total: not timed
? no source of this hash was registered

PTX: 3 sources, 38 bytes
  0xcb59e39109c55587  q4k_gemv (src/q4k.ptx)
  0x089bdc07b544e7b2  two
  0x08a61e07b54dac5d  two
"
    );
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let ptx = |name: &str| run.show(&["--as", "kernels", "--ptx", name]);
    assert_eq!(ptx("q4k_gemv"), PTX);
    assert_eq!(ptx("alias"), PTX, "a node of this name has the hash of that source");
    let said = run.refuse(&["--as", "kernels", "--ptx", "two"]);
    assert!(said.contains("`two` has 2 sources: name one of 0x"), "{said}");
    let hashes: Vec<&str> = said.split("0x").skip(1).map(|hash| &hash[..16]).collect();
    assert_eq!([0, 1].map(|n| ptx(&format!("0x{}", hashes[n]))), ["a\n", "b\n"]);
    assert_eq!(
        run.refuse(&["--as", "kernels", "--ptx", "lost"]),
        "brickscope: no PTX source was registered for `lost`\n"
    );
}

#[test]
fn the_graph_as_json_is_the_same_bytes_each_time_and_reads_back() {
    for profile in [on_cpu(), on_gpu()] {
        let run = Run::of(&profile);
        if !profile.phases.is_empty() {
            adds_up(&serde_json::from_str(&run.show(&["--as", "json"])).expect("JSON"));
        }
        let json = run.show(&["--as", "graph-json"]);
        assert_eq!(run.show(&["--as", "graph-json"]), json);
        let graph: ExecutionGraph = serde_json::from_str(&json).expect("JSON of a graph");
        let pass = profile.passes.first().map(|pass| pass.serial);
        let expected = profile.graph.clone().or(profile.execution_graph(pass.unwrap_or_default()));
        assert_eq!(Some(graph), expected);
    }
}

#[test]
fn a_drawing_has_equal_layers_once_and_unfolded_all_of_them() {
    let run = Run::of(&on_cpu());
    let folded = run.show(&["--as", "dot"]);
    assert!(folded.contains("Layers 0–2  ×3\\n330.0µs sum, 100.0–120.0µs each"), "{folded}");
    assert!(folded.contains("11 nodes as 5 boxes: layers of the same bricks"), "{folded}");
    let one = run.show(&["--as", "dot", "--layer", "1"]);
    assert!(one.contains("\"Layer 1\\n110.0µs\"") && one.contains("8 outside of this"), "{one}");
    let whole = run.show(&["--as", "dot", "--unfolded"]);
    let graph: ExecutionGraph =
        serde_json::from_str(&run.show(&["--as", "graph-json"])).expect("JSON of a graph");
    assert_eq!(whole, graph.to_dot(), "what embedders get");
}

#[test]
fn without_graphviz_the_drawing_is_refused_with_what_to_do() {
    let run = Run::of(&on_cpu());
    let empty = TempDir::new().expect("a temporary folder");
    let mut command = brickscope(&["show", run.path(), "--as", "svg"]);
    let output = command.env("PATH", empty.path()).output().expect("it starts");
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(said.contains("install the package `graphviz`") && said.contains("--as dot"), "{said}");
}

/// Replacements for Graphviz, so that the test doesn't need it.
#[cfg(unix)]
#[test]
fn graphviz_gets_the_whole_graph_and_its_faults_are_told() {
    let run = Run::of(&on_cpu());
    let dot = run.show(&["--as", "dot"]);
    let svg = |script: &str| {
        let bin = TempDir::new().expect("a temporary folder");
        command::script(&bin.path().join("dot"), script);
        let path = format!("{}:/usr/bin:/bin", bin.path().display());
        let mut command = brickscope(&["show", run.path(), "--as", "svg"]);
        let output = command.env("PATH", path).output().expect("it starts");
        let stderr = text(&output.stderr).to_owned();
        (output.status.success(), text(&output.stdout).to_owned(), stderr)
    };
    assert_eq!(svg("echo \"$@\"; cat"), (true, format!("-Tsvg\n{dot}"), String::new()));
    let (succeeds, drawn, said) = svg("cat > /dev/null; echo 'Error: <stdin>: no' >&2; exit 1");
    assert!(!succeeds && drawn.is_empty());
    assert_eq!(said, "brickscope: Graphviz's `dot` failed (exit status: 1): Error: <stdin>: no\n");
}

#[test]
fn files_that_contradict_themselves_get_a_sentence_in_every_form() {
    let run = Run::of(&on_gpu());
    let json = std::fs::read_to_string(run.file()).expect("it was written");
    let write = |json: &str| std::fs::write(run.file(), json).expect("it is written");
    // A source that doesn't match its hash.
    write(&json.replace("// q4k", "// q5k"));
    let said = run.refuse(&["--as", "kernels"]);
    assert!(said.contains("PTX source 0 is said to have the hash"), "{said}");
    // A file from before this table existed.
    let mut old: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(old.as_object_mut().expect("an object").remove("ptx").is_some());
    write(&old.to_string());
    let kernels = run.show(&["--as", "kernels"]);
    assert!(kernels.contains("0x0000000000000007?") && !kernels.contains("PTX: "), "{kernels}");
    // Times whose sum overflows, and nodes inside each other.
    let mut odd = old;
    let nodes = odd["graph"]["nodes"].as_array_mut().expect("nodes");
    for _ in 0..3 {
        let mut node = nodes[1].clone();
        node["timing_ns"] = u64::MAX.into();
        nodes.push(node);
    }
    let circle =
        serde_json::json!({"src": 1, "dst": 0, "edge_type": {"kind": "contains"}, "weight": 1.0});
    odd["graph"]["edges"].as_array_mut().expect("edges").push(circle);
    write(&odd.to_string());
    for form in ["report", "statistics", "tree", "dot", "graph-json", "kernels", "json"] {
        assert!(!run.show(&["--as", form]).is_empty(), "{form}");
    }
    let tree = run.show(&["--as", "tree", "--fold", "--min-share", "50%"]);
    assert!(tree.contains("in a cycle: "), "{tree}");
}

/// A decode pass whose host issues two bricks and waits for them.
fn on_a_device() -> Profile {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    let pass = profiler.begin_pass(Phase::Decode);
    timer.begin_pass(&mut device, Phase::Decode, 1, 7).expect("none is open");
    for (brick, nanos) in [(BrickId::RmsNorm, 5_000), (BrickId::LmHead, 45_000)] {
        timer.brick(&mut device, StreamId(0), None, brick, Work::elements(1)).expect("room");
        device.launch(StreamId(0), nanos);
    }
    timer.end_pass(&mut device).expect("it is open");
    let wait = profiler.start("DeviceWait");
    timer.settle(&mut device, true).expect("it is there");
    profiler.stop(wait, 0);
    profiler.end_pass(pass, 1, 7);
    timer.finish(&mut device).expect("it is there");
    profiler.profile()
}

#[test]
fn a_run_on_a_device_shows_host_and_device_and_in_other_forms_the_device() {
    let run = Run::of(&on_a_device());
    let first = run.show(&[]);
    assert!(first.contains("the device is busy 100.0% of") && first.contains("LmHead"), "{first}");
    let report = run.show(&["--full"]);
    assert!(
        report.contains("the device is busy 100.0% of") && report.contains("(in 1 of 1 pass)"),
        "{report}"
    );
    assert!(report.contains("Device 0: simulated device"), "{report}");
    for form in ["tree", "path", "statistics", "dot", "graph-json"] {
        let text = run.show(&["--as", form]);
        assert!(text.contains("LmHead") && !text.contains("DeviceWait"), "{form}: {text}");
        assert_eq!(run.show(&["--as", form, "--device", "0", "--stream", "0"]), text);
        let host = run.show(&["--as", form, "--host"]);
        assert!(host.contains("DeviceWait") && !host.contains("LmHead"), "{form}: {host}");
    }
    let json = run.show(&["--as", "json"]);
    assert_eq!(Profile::from_json(&json, "x".as_ref()).expect("a profile").devices.len(), 1);
    let device = run.show(&["--as", "json", "--device", "0"]);
    adds_up(&serde_json::from_str(&device).expect("JSON"));
    assert!(run.refuse(&["--device", "1"]).contains("the run has 1, numbered from 0"));
    assert!(run.refuse(&["--device", "0", "--stream", "3"]).contains("no stream 3"));
    assert!(Run::of(&on_cpu()).refuse(&["--device", "0"]).contains("used no device"));
}
