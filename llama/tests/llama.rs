//! Recording a llama.cpp that computes nothing, with a clock that is moved by hand.
#![allow(unsafe_code, reason = "its users call C functions, too")]

use std::ptr::null_mut;

use brickscope::{BrickProfiler, MockClock, Phase, Profile};
use brickscope_llama::{Recorded, Recorder};
use llama_cpp_sys_2 as sys;
use proptest::prelude::*;

/// The name of a brick, its layer, its begin and its end in nanoseconds after the pass began.
type Seen = (String, Option<u16>, u64, u64);

struct Fake {
    hand: MockClock,
    profiler: BrickProfiler,
}

impl Fake {
    fn new() -> Self {
        let hand = MockClock::default();
        // Room for each span, under Miri, too.
        let profiler = BrickProfiler::with_clock(hand.clock()).with_log_capacity(1 << 11);
        profiler.enable();
        Self { hand, profiler }
    }

    fn recorder(&self) -> Recorder<'_> {
        Recorder::new(&self.profiler, brickscope_llama::bindings!(llama_cpp_sys_2)).with_threads(2)
    }

    /// The graphs of a pass, each call of which takes 10 ns, and 1 ns more each time.
    fn compute(&self, graphs: Vec<sys::Graph>) {
        let timed = |graph: sys::Graph| {
            let hand = self.hand.clone();
            graph.timed(move |call| hand.advance(10 + call as u64))
        };
        sys::GRAPHS.set(graphs.into_iter().map(timed).collect());
    }
}

fn params() -> sys::llama_context_params {
    // SAFETY: it only makes a value.
    let mut params = unsafe { sys::llama_context_default_params() };
    params.cb_eval = Some(brickscope_llama::on_node);
    params.abort_callback = Some(brickscope_llama::after_node);
    params
}

fn decode(params: sys::llama_context_params, tokens: i32) -> i32 {
    // SAFETY: the model isn't looked at, nor are the tokens; the context is freed once.
    unsafe {
        let context = sys::llama_init_from_model(null_mut(), params);
        let status = sys::llama_decode(context, sys::llama_batch_get_one(null_mut(), tokens));
        sys::llama_free(context);
        status
    }
}

fn decode_in(recorder: &Recorder<'_>, tokens: i32, position: u64) -> i32 {
    recorder.pass(Phase::Decode, tokens as u64, position, || decode(params(), tokens))
}

/// The bricks of each pass.
fn bricks(profile: &Profile) -> Vec<Vec<Seen>> {
    let of = |pass: &brickscope::Pass| {
        let spans = profile.spans.iter().filter(|span| span.pass == Some(pass.serial));
        let bricks = spans.filter_map(|span| {
            let name = profile.names.get(span.name? as usize)?;
            (name.kind == brickscope::NameKind::Brick).then(|| {
                let begin = span.start_ns - pass.start_ns;
                (name.name.clone(), span.layer, begin, begin + span.duration_ns)
            })
        });
        bricks.collect()
    };
    profile.passes.iter().map(of).collect()
}

fn seen(name: &str, layer: Option<u16>, begin: u64, end: u64) -> Seen {
    (name.to_owned(), layer, begin, end)
}

fn checked(recorder: &Recorder<'_>) -> Recorded {
    let recorded = recorder.finish();
    assert_eq!(recorded.profile.check(), Ok(()));
    recorded
}

#[test]
fn each_node_is_a_brick_of_its_layer() {
    let fake = Fake::new();
    fake.compute(vec![sys::layer(1)]);
    let recorder = fake.recorder();
    for position in 0..3 {
        assert_eq!(decode_in(&recorder, 1, position), 0);
    }
    let Recorded { profile, notes } = checked(&recorder);
    assert_eq!(
        notes,
        [
            "1 pass left out: the first of each shape warms up, and their graphs were described in them"
        ]
    );
    let expected = vec![
        seen("Start + Embedding", None, 0, 10),
        seen("RmsNorm", Some(0), 10, 21),
        seen("QkvProjection", Some(0), 21, 33),
        seen("RopeEmbedding", Some(0), 33, 46),
        seen("FlashAttention", Some(0), 46, 60),
        seen("OutputProjection", Some(0), 60, 75),
        seen("Residual", Some(0), 75, 91),
        seen("LmHead", None, 91, 108),
    ];
    assert_eq!(bricks(&profile), [expected.clone(), expected]);
    let run = profile.run.expect("it is known");
    assert_eq!((run.threads, run.generated_tokens, run.prompt_tokens), (2, 2, 0));
    assert_eq!(profile.passes[1].position, 2);
}

#[test]
fn the_only_pass_of_a_phase_is_kept_though_it_warms_up() {
    let fake = Fake::new();
    fake.compute(vec![sys::layer(4)]);
    let recorder = fake.recorder();
    let status = recorder.pass(Phase::Prefill, 4, 0, || decode(params(), 4));
    assert_eq!(status, 0);
    for _ in 0..2 {
        let Recorded { profile, notes } = checked(&recorder);
        assert_eq!(notes, [""; 0]);
        let names: Vec<_> = bricks(&profile).remove(0).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names[..3], ["Start + Embedding", "RmsNorm", "QkvProjection"]);
    }
}

#[test]
fn a_pass_of_several_graphs_has_them_one_after_the_other() {
    let fake = Fake::new();
    fake.compute(vec![sys::layer(4), sys::layer(2)]);
    let recorder = fake.recorder();
    for _ in 0..2 {
        recorder.pass(Phase::Prefill, 6, 0, || decode(params(), 6));
    }
    let Recorded { profile, .. } = checked(&recorder);
    let bricks = &bricks(&profile)[0];
    assert_eq!(bricks.len(), 16);
    assert_eq!(bricks[7], seen("LmHead", None, 91, 108));
    assert_eq!(bricks[8], seen("Start + Embedding", None, 108, 118));
    assert_eq!(profile.phases[0].unattributed_ns, 0);
}

#[test]
fn what_is_before_and_after_the_graph_is_unattributed() {
    let fake = Fake::new();
    fake.compute(vec![sys::layer(1)]);
    let recorder = fake.recorder();
    for _ in 0..2 {
        recorder.pass(Phase::Decode, 1, 0, || {
            fake.hand.advance(500);
            decode(params(), 1);
            fake.hand.advance(1000);
        });
    }
    let Recorded { profile, .. } = checked(&recorder);
    assert_eq!(profile.phases[0].unattributed_ns, 1500);
    assert_eq!(bricks(&profile)[0][0], seen("Start + Embedding", None, 500, 510));
}

#[test]
fn what_the_recorder_takes_to_list_nodes_is_its_own() {
    let fake = Fake::new();
    let mut graph = sys::layer(1);
    let hand = fake.hand.clone();
    graph.before_list = Some(Box::new(move || hand.advance(3)));
    fake.compute(vec![graph]);
    let recorder = fake.recorder();
    decode_in(&recorder, 1, 0);
    decode_in(&recorder, 1, 1);
    let Recorded { profile, .. } = checked(&recorder);
    let bricks = &bricks(&profile)[0];
    // Until the first node is listed, the time is the scheduler's.
    assert_eq!(bricks[0], seen("(brickscope)", None, 3, 30));
    assert_eq!(bricks[1], seen("Start + Embedding", None, 30, 40));
}

#[test]
fn without_a_callback_a_pass_has_no_bricks_and_it_says_why() {
    let without = |change: fn(&mut sys::llama_context_params)| {
        let fake = Fake::new();
        fake.compute(vec![sys::layer(1)]);
        let recorder = fake.recorder();
        let mut params = params();
        change(&mut params);
        recorder.pass(Phase::Decode, 1, 0, || decode(params, 1));
        let Recorded { profile, notes } = checked(&recorder);
        assert_eq!(profile.phases[0].wall_ns, 108);
        assert_eq!(profile.phases[0].unattributed_ns, 108);
        notes.join("; ")
    };
    let neither = without(|params| {
        params.cb_eval = None;
        params.abort_callback = None;
    });
    assert!(neither.starts_with("1 pass without bricks: no callback came: set"), "{neither}");
    let nodes = without(|params| params.cb_eval = None);
    assert!(nodes.starts_with("1 pass without bricks: `cb_eval` was not called"), "{nodes}");
    let ends = without(|params| params.abort_callback = None);
    assert!(ends.starts_with("1 pass without bricks: `abort_callback` was not called"), "{ends}");
}

/// Nothing is called back after a part on a GPU, so what is listed next, of this graph or of another one, comes in one go
/// with it.
#[test]
fn a_pass_that_another_backend_computes_a_part_of_has_no_bricks() {
    let fake = Fake::new();
    fake.compute(vec![sys::layer(1).on_device(c"CUDA0"), sys::layer(1)]);
    let recorder = fake.recorder();
    decode_in(&recorder, 1, 0);
    decode_in(&recorder, 1, 1);
    let Recorded { profile, notes } = checked(&recorder);
    assert!(bricks(&profile).iter().all(Vec::is_empty), "{:?}", bricks(&profile));
    let said = "2 passes without bricks: another backend than the CPU computed a part of the graph: results are in CUDA0";
    assert!(notes.iter().any(|note| note.starts_with(said)), "{notes:?}");
}

#[test]
fn nodes_that_did_not_all_end_are_not_guessed() {
    for calls in [1, 7, 11] {
        let fake = Fake::new();
        let mut graph = sys::layer(1);
        graph.calls = calls;
        fake.compute(vec![graph]);
        let recorder = fake.recorder();
        decode_in(&recorder, 1, 0);
        decode_in(&recorder, 1, 1);
        let Recorded { profile, notes } = checked(&recorder);
        assert_eq!(bricks(&profile), [[]], "{calls}");
        let said = format!(
            "2 passes without bricks: of 10 nodes that were listed {calls} ended, which is not as the CPU backend computes \
             them; their results are in no buffer that has a name"
        );
        assert!(notes.contains(&said), "{notes:?}");
    }
}

#[test]
fn a_pass_that_fails_is_counted_and_left_out() {
    let fake = Fake::new();
    let recorder = fake.recorder();
    assert_eq!(decode_in(&recorder, -1, 0), -1);
    let failed: Result<(), &str> = recorder.pass(Phase::Decode, 1, 0, || Err("no room"));
    assert_eq!(failed, Err("no room"));
    let Recorded { profile, notes } = checked(&recorder);
    assert_eq!(notes, ["2 passes left out: llama.cpp returned an error"]);
    assert_eq!(profile.passes, []);
}

#[test]
fn a_pass_in_a_pass_is_run_and_counted() {
    let fake = Fake::new();
    fake.compute(vec![sys::layer(1)]);
    let recorder = fake.recorder();
    decode_in(&recorder, 1, 0);
    recorder.pass(Phase::Decode, 1, 1, || decode_in(&recorder, 1, 1));
    let Recorded { profile, notes } = checked(&recorder);
    assert_eq!(profile.passes.len(), 1);
    assert!(
        notes.contains(
            &"1 pass left out: another one was being recorded at the same time".to_owned()
        ),
        "{notes:?}"
    );
}

#[test]
fn a_pass_that_panics_leaves_the_recorder_as_it_was() {
    let fake = Fake::new();
    fake.compute(vec![sys::layer(1)]);
    let recorder = fake.recorder();
    decode_in(&recorder, 1, 0);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        recorder.pass(Phase::Decode, 1, 1, || -> i32 {
            decode(params(), 1);
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    // Nobody listens outside of a pass.
    decode(params(), 1);
    decode_in(&recorder, 1, 1);
    let Recorded { profile, .. } = checked(&recorder);
    assert_eq!(bricks(&profile).len(), 1);
    assert_eq!(bricks(&profile)[0].len(), 8);
}

#[test]
fn off_it_reads_no_clock() {
    let fake = Fake::new();
    fake.compute(vec![sys::layer(1)]);
    let recorder = fake.recorder();
    fake.profiler.disable();
    let before = fake.hand.reads();
    assert_eq!(decode_in(&recorder, 1, 0), 0);
    assert_eq!(fake.hand.reads(), before);
}

#[test]
fn passes_on_other_threads_are_recorded_where_they_run() {
    let fake = Fake::new();
    let recorder = fake.recorder();
    std::thread::scope(|scope| {
        let run = || {
            fake.compute(vec![sys::layer(1)]);
            (0..20).for_each(|position| assert_eq!(decode_in(&recorder, 1, position), 0));
        };
        scope.spawn(run);
        scope.spawn(run);
    });
    let recorded = checked(&recorder);
    // What ran meanwhile is counted. None is mixed with another.
    let without_bricks = |note: &String| note.contains("without bricks");
    assert!(!recorded.notes.iter().any(without_bricks), "{:?}", recorded.notes);
    for bricks in bricks(&recorded.profile) {
        // The other thread moves the clock, too, so listing may take time.
        let nodes = bricks.iter().filter(|(name, ..)| name != "(brickscope)");
        assert_eq!(nodes.count(), 8, "{bricks:?}");
    }
}

/// Bindings one function of which panics.
mod panicking {
    pub(crate) use llama_cpp_sys_2::*;
    pub(crate) unsafe fn ggml_op_desc(_: *const ggml_tensor) -> *const std::ffi::c_char {
        panic!("on purpose")
    }
}

#[test]
fn a_panic_in_a_callback_does_not_reach_llama_cpp() {
    let fake = Fake::new();
    fake.compute(vec![sys::layer(1)]);
    let bindings = brickscope_llama::bindings!(crate::panicking);
    let recorder = Recorder::new(&fake.profiler, bindings);
    assert_eq!(decode_in(&recorder, 1, 0), 0);
    let Recorded { profile, notes } = checked(&recorder);
    assert_eq!((bricks(&profile).len(), bricks(&profile)[0].len()), (1, 0));
    assert!(notes[0].starts_with("1 pass without bricks: brickscope failed in a callback"));
}

/// A model that takes the place of another in memory has other nodes, though all pointers and shapes are the same.
#[test]
fn graphs_with_other_types_are_other_graphs() {
    let fake = Fake::new();
    let graph = sys::layer(1);
    // SAFETY: tensors are never freed.
    let weights = unsafe { (*graph.nodes[3]).src[0] };
    fake.compute(vec![graph]);
    let recorder = fake.recorder();
    decode_in(&recorder, 1, 0);
    decode_in(&recorder, 1, 1);
    // SAFETY: as above, and no pass runs.
    unsafe { (*weights).type_ = sys::GGML_TYPE_Q8_0 };
    decode_in(&recorder, 1, 2);
    decode_in(&recorder, 1, 3);
    let Recorded { profile, .. } = checked(&recorder);
    let kernels: Vec<&str> = profile.names.iter().map(|name| name.name.as_str()).collect();
    assert!(kernels.contains(&"mul_mat_f32") && kernels.contains(&"mul_mat_q8_0"), "{kernels:?}");
    assert_eq!(profile.passes.len(), 2);
}

/// How a version of llama.cpp calls back.
#[derive(Debug, Clone, Copy)]
enum Version {
    AfterEach,
    AfterComputing,
    AfterNeeded,
    Fusing,
}

/// A node of a random graph: what it is, and what its call takes.
#[derive(Debug, Clone)]
struct Made {
    op: &'static str,
    is_needed: bool,
    takes: u64,
}

fn made() -> impl Strategy<Value = Made> {
    let op = prop_oneof![
        Just("ADD"),
        Just("MUL"),
        Just("RMS_NORM"),
        Just("NORM + MUL"),
        Just("MUL_MAT"),
        Just("VIEW"),
        Just("ROPE")
    ];
    (op, prop::bool::weighted(0.9), 0_u64..1000).prop_map(|(op, is_needed, takes)| Made {
        op,
        is_needed,
        takes,
    })
}

/// The graph, and what each of its calls takes, with the kernel that it comes after.
fn graph_of(made: &[Made], version: Version) -> (sys::Graph, Vec<(&'static str, u64)>) {
    let mut graph = sys::Graph::default();
    let ne = [8, 1, 1, 1];
    let mut last = graph.leaf("inp", ne);
    let mut calls = Vec::new();
    for (n, made) in made.iter().enumerate() {
        let name = format!("x-{n}");
        let add = |graph: &mut sys::Graph, op: &str, src: &[*mut sys::ggml_tensor]| {
            let node = graph.node(op, &name, ne, src);
            if !made.is_needed {
                // SAFETY: it was just made.
                unsafe { (*node).flags = 0 };
            }
            node
        };
        let counts = match version {
            Version::AfterEach => true,
            Version::AfterComputing => made.op != "VIEW",
            Version::AfterNeeded | Version::Fusing => made.op != "VIEW" && made.is_needed,
        };
        if made.op == "NORM + MUL" {
            let norm = add(&mut graph, "RMS_NORM", &[last]);
            let weights = graph.leaf("blk.0.attn_norm.weight", ne);
            last = add(&mut graph, "MUL", &[weights, norm]);
            match version {
                _ if !counts => {}
                Version::Fusing => calls.push(("rms_norm_mul", made.takes)),
                _ => calls.extend([("rms_norm", made.takes), ("mul", made.takes)]),
            }
        } else {
            let weights = graph.leaf("w", ne);
            // Its own result is of no use to the next one, so that single norms aren't taken for the pair.
            let result = add(&mut graph, made.op, &[weights, last]);
            if !matches!(made.op, "RMS_NORM") {
                last = result;
            }
            if counts {
                calls.push((kernel_of(made.op), made.takes));
            }
        }
    }
    graph.calls = calls.len();
    (graph, calls)
}

fn kernel_of(op: &str) -> &'static str {
    match op {
        "ADD" => "add",
        "MUL" => "mul",
        "RMS_NORM" => "rms_norm",
        "MUL_MAT" => "mul_mat_f32",
        "ROPE" => "rope",
        _ => "view",
    }
}

proptest! {
    #[test]
    fn random_graphs_have_the_kernels_that_ran_with_their_times(
        nodes in prop::collection::vec(made(), 1..40),
        version in prop_oneof![
            Just(Version::AfterEach),
            Just(Version::AfterComputing),
            Just(Version::AfterNeeded),
            Just(Version::Fusing),
        ],
    ) {
        let fake = Fake::new();
        let (graph, calls) = graph_of(&nodes, version);
        prop_assume!(!calls.is_empty());
        let (hand, takes) = (fake.hand.clone(), calls.clone());
        sys::GRAPHS.set(vec![graph.timed(move |call| hand.advance(takes[call].1))]);
        let recorder = fake.recorder();
        decode_in(&recorder, 1, 0);
        decode_in(&recorder, 1, 1);
        let Recorded { profile, notes } = recorder.finish();
        prop_assert_eq!(profile.check(), Ok(()));
        prop_assert_eq!(notes.len(), 1, "{:?}", notes);
        let kernels: Vec<(&str, u64)> = profile
            .spans
            .iter()
            .filter_map(|span| {
                let name = profile.names.get(span.name? as usize)?;
                let is_kernel = name.kind == brickscope::NameKind::Kernel;
                is_kernel.then_some((name.name.as_str(), span.duration_ns))
            })
            .collect();
        // The first one's begin isn't known, so it is no kernel; views compute nothing.
        let expected: Vec<_> = calls[1..].iter().copied().filter(|call| call.0 != "view").collect();
        prop_assert_eq!(kernels, expected);
        let wall: u64 = calls.iter().map(|call| call.1).sum();
        prop_assert_eq!(profile.phases[0].wall_ns, wall);
    }
}
