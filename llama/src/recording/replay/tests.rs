//! Recordings that were made up, as profiles.

mod experts;

use brickscope::{MockClock, Phase};
use brickscope_analysis::typical::{Basis, Typical};
use brickscope_analysis::view::{self, Size};

use super::phase::{keeps_nothing, phase_of};
use super::*;
use crate::recording::events::{Event, Load, Pass, ThreadLoad};
use crate::recording::groups::groups;
use crate::recording::passes::Grown;
use crate::{Node, Tensor};

const PASS_NS: u64 = 1_000_000;

fn tensor(name: &str, ne: [u64; 4]) -> Tensor {
    let bytes = 4 * ne.iter().product::<u64>();
    Tensor { name: name.to_owned(), kind: "f32".to_owned(), ne, bytes, numbers: None }
}

fn node(op: &str, name: &str, ne: [u64; 4], src: Vec<Tensor>) -> Node {
    Node { op: op.to_owned(), out: tensor(name, ne), src, then: None }
}

/// A product, a rotation and a head, for so many tokens of which so many get logits.
fn graph(tokens: u64, outputs: u64) -> Vec<Node> {
    let [wide, matrix] = [[64, tokens, 1, 1], [64, 64, 1, 1]];
    let product = vec![tensor("blk.0.attn_q.weight", matrix), tensor("attn_norm-0", wide)];
    let head = vec![tensor("output.weight", [64, 100, 1, 1]), tensor("result_norm", wide)];
    vec![
        node("MUL_MAT", "Qcur-0", wide, product),
        node("ROPE", "Qcur-0", wide, vec![tensor("Qcur-0", wide)]),
        node("MUL_MAT", "result_output", [100, outputs, 1, 1], head),
    ]
}

fn pass(nth: u64, sequences: &[[u32; 2]]) -> Pass {
    let begin = PASS_NS * (10 + 2 * nth);
    Pass {
        begin,
        end: begin + PASS_NS,
        tokens: Some(sequences.iter().map(|[from, to]| u64::from(to - from)).sum()),
        position: Some(0),
        sequences: sequences.to_vec(),
        numbers: Vec::new(),
        status: 0,
        graphs: 1,
        is_decode: true,
        is_bare: false,
        is_whole: false,
        is_incomplete: false,
        has_untimed: false,
        is_graph: false,
        is_warm_up: false,
        context: None,
        of_thread: 0,
    }
}

fn computed(pass: &Pass, number: u32) -> Event {
    let at = |part: u64| pass.begin + PASS_NS * part / 100;
    let nodes = vec![at(2), at(60), at(61)];
    Event::Graph(Graph {
        number,
        threads: 2,
        of_thread: pass.of_thread,
        begin: at(1),
        end: at(99),
        nodes,
        ends: Vec::new(),
        shares: Vec::new(),
        sequences: Vec::new(),
        experts: Vec::new(),
        chosen: Vec::new(),
    })
}

/// Of the group whose passes took longest.
fn replayed(recorded: &Recorded) -> Replayed {
    replayed_all(recorded).remove(0)
}

fn replayed_all(recorded: &Recorded) -> Vec<Replayed> {
    let of = |group: &Group| {
        let profiler = BrickProfiler::with_clock(MockClock::default().clock());
        let replayed = replay(recorded, group, profiler);
        replayed.profile.check().expect("it adds up");
        replayed
    };
    groups(recorded).iter().map(of).collect()
}

/// Fifty tokens on two threads. After each pass somebody looks at the threads, which are on `cpus`; the second one waits
/// for its CPU for so long in each of the passes that `waits` names.
fn starved(cpus: [u32; 2], wait_ns: u64, waits: impl Fn(u64) -> bool) -> Profile {
    let mut recorded = Recorded { graphs: [(0, graph(1, 1))].into(), ..Recorded::default() };
    let (mut ran_ns, mut waited_ns) = ([0; 2], [0; 2]);
    for nth in 0..50 {
        let pass = pass(nth, &[[6 + nth as u32, 7 + nth as u32]]);
        let at = pass.end;
        recorded.events.push(computed(&pass, 0));
        if nth == 0 {
            recorded.events.push(Event::Described([pass.end - 1000, pass.end - 900], 0));
        }
        recorded.events.push(Event::Pass(pass));
        let wait_ns = if waits(nth) { wait_ns } else { 1_000 };
        for (thread, wait_ns) in [1_000, wait_ns].into_iter().enumerate() {
            ran_ns[thread] += 2 * PASS_NS - wait_ns;
            waited_ns[thread] += wait_ns;
        }
        let threads = [0, 1].map(|n| ThreadLoad {
            thread: 4311 + n as u32,
            cpu: Some(cpus[n]),
            ran_ns: ran_ns[n],
            waited_ns: waited_ns[n],
        });
        recorded.events.push(Event::Load(Load {
            at,
            threads: threads.to_vec(),
            disk_faults: Some(0),
        }));
    }
    let mut profile = replayed(&recorded).profile;
    let run =
        brickscope::Run { backend: "llama.cpp, CPU".to_owned(), threads: 2, ..Default::default() };
    profile.run = Some(run);
    profile
}

fn screen(profile: &Profile) -> String {
    let text = view::summary(profile, Size::default(), None).to_string();
    // As one line, since long ones are wrapped.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_thread_on_a_busy_core_is_named_by_the_first_screen() {
    let profile = starved([0, 1], 960_000, |_| true);
    let waits: Vec<_> = profile.cpu_waits.iter().map(|of| (of.thread, of.cpu)).collect();
    assert_eq!(waits, [(4311, Some(0)), (4312, Some(1))]);
    // Of 49: the first pass described its graph.
    let second = profile.cpu_waits[1];
    assert_eq!((second.looked_ns, second.waited_ns), (49 * 2 * PASS_NS, 49 * 960_000));
    let screen = screen(&profile);
    for said in [
        "thread 4312 waited for CPU 1 for 48 % of decode: other programs had it",
        "no decode pass is clean, so bricks are by median spans (",
        "Next: stop other programs, which took the CPU in 49 of 49 passes, or run fewer threads (`-t 1`)",
    ] {
        assert!(screen.contains(said), "{said}: {screen}");
    }
    let report = view::report(&profile);
    let said = "thread 4312 waited for CPU 1 for 48.0% of decode; other programs had it";
    assert!(report.contains(said), "{report}");
}

#[test]
fn threads_that_share_a_core_are_named_by_the_first_screen() {
    let screen = screen(&starved([3, 3], 960_000, |_| true));
    for said in [
        "thread 4312 waited for CPU 3 for 48 % of decode: other threads of this process had it",
        "give each thread a CPU (`--cpu-mask`, `--cpu-strict 1`), or run fewer threads (`-t 1`): threads shared a CPU \
         in 49 of 49 passes",
    ] {
        assert!(screen.contains(said), "{said}: {screen}");
    }
}

#[test]
fn threads_that_run_one_after_another_do_not_take_each_others_cpu() {
    let of = |ran_ns, waited_ns, others_ran_ns| {
        Grown { thread: 1, cpu: Some(0), ran_ns, waited_ns, others_ran_ns }.own_ns(1000)
    };
    // It sleeps for 600 while another thread runs, and a program waits in its way for 200.
    assert_eq!(of(200, 200, 600), 0);
    // It neither sleeps nor runs for half of the time: others of its process ran, for as long or less.
    assert_eq!((of(500, 500, 500), of(500, 500, 300), of(500, 500, 900)), (500, 300, 500));
    assert_eq!((of(0, 0, 900), of(900, 200, 0)), (0, 0));
}

#[test]
fn few_disturbed_passes_are_left_out_of_the_tables_and_counted() {
    let profile = starved([0, 1], 960_000, |nth| nth == 20 || nth == 30);
    let typical = Typical::of(&profile, Phase::Decode).expect("it decoded");
    assert_eq!((typical.basis, typical.passes), (Basis::Passes, 47));
    let shown = brickscope_analysis::typical::shown(&profile);
    assert_eq!(shown.phase(Phase::Decode).map(|of| of.passes), Some(47));
    let screen = screen(&profile);
    assert!(screen.contains("2 of 49 decode passes left out"), "{screen}");
    assert!(!screen.contains("waited for CPU"), "2 % of the time are little: {screen}");
}

#[test]
fn each_pass_of_a_server_has_the_phase_and_the_position_of_its_sequences() {
    let mut recorded = Recorded {
        graphs: [(0, graph(5, 1)), (1, graph(2, 2)), (2, graph(6, 2))].into(),
        ..Recorded::default()
    };
    // A prompt of the second client, both decode, and the first one's prompt while the second decodes.
    for (nth, number, sequences) in
        [(0, 0, &[[0, 5]][..]), (1, 1, &[[40, 41], [100, 101]]), (2, 2, &[[10, 15], [30, 31]])]
    {
        let pass = pass(nth, sequences);
        recorded.events.extend([computed(&pass, number), Event::Pass(pass)]);
    }
    let Replayed { profile, notes, prompt_tokens, generated_tokens, .. } = replayed(&recorded);
    let passes: Vec<_> =
        profile.passes.iter().map(|of| (of.phase, of.tokens, of.position)).collect();
    let expected =
        [(Phase::Prefill, 5, 0), (Phase::Decode, 2, 70), (Phase::Prefill, 6, (50 + 30) / 6)];
    assert_eq!(passes, expected);
    assert_eq!((prompt_tokens, generated_tokens), (11, 2));
    assert!(notes[0].starts_with("1 pass read a prompt and decoded"), "{notes:?}");
}

/// Adds a pass that described its graph.
fn add_first(recorded: &mut Recorded, pass: &Pass, number: u32) {
    let described = [99, 100].map(|part| pass.begin + PASS_NS * part / 100);
    recorded.events.extend([
        computed(pass, number),
        Event::Described(described, pass.of_thread),
        Event::Pass(pass.clone()),
    ]);
}

fn add(recorded: &mut Recorded, pass: &Pass, number: u32) {
    recorded.events.extend([computed(pass, number), Event::Pass(pass.clone())]);
}

/// As `llama-cli` runs: an empty run, the prompt, and tokens.
#[test]
fn the_prompt_that_was_asked_for_is_shown_and_the_programs_own_warm_up_is_not() {
    for is_said in [true, false] {
        let mut recorded = Recorded {
            graphs: [(0, graph(2, 2)), (1, graph(41, 1)), (2, graph(1, 1))].into(),
            ..Recorded::default()
        };
        let empty = Pass { is_warm_up: is_said, ..pass(0, &[[0, 2]]) };
        add_first(&mut recorded, &empty, 0);
        add_first(&mut recorded, &pass(1, &[[0, 41]]), 1);
        add_first(&mut recorded, &pass(2, &[[41, 42]]), 2);
        for nth in 3..8 {
            let at = 39 + nth as u32;
            add(&mut recorded, &pass(nth, &[[at, at + 1]]), 2);
        }
        let Replayed { profile, notes, .. } = replayed(&recorded);
        let of = |phase| profile.phase(phase).map(|of| (of.passes, of.tokens));
        assert_eq!(of(Phase::Prefill), Some((1, 41)), "{is_said}: {notes:?}");
        assert_eq!(of(Phase::Decode), Some((5, 5)));
        let said = notes.join("; ");
        assert!(said.contains("1 pass left out: the first of each shape warms up"), "{said}");
        assert!(said.contains("1 pass left out: the program warms up by them"), "{said}");
    }
}

#[test]
fn prompts_of_new_lengths_count_and_of_one_length_the_first_warms_up() {
    let mut recorded = Recorded {
        graphs: [(0, graph(20, 1)), (1, graph(30, 1)), (2, graph(2, 1))].into(),
        ..Recorded::default()
    };
    // A prompt of two tokens that stay in the cache is none that warms up.
    add_first(&mut recorded, &pass(0, &[[0, 2]]), 2);
    add_first(&mut recorded, &pass(1, &[[2, 22]]), 0);
    add_first(&mut recorded, &pass(2, &[[22, 52]]), 1);
    add_first(&mut recorded, &pass(3, &[[52, 72]]), 0);
    let profile = replayed(&recorded).profile;
    assert_eq!(profile.phase(Phase::Prefill).map(|of| (of.passes, of.tokens)), Some((3, 52)));
    assert_eq!(profile.dropped.left_out_passes, 1);
}

#[test]
fn a_pass_that_adds_a_token_to_each_of_many_sequences_decodes() {
    let sequences: Vec<[u32; 2]> = (0..64).map(|n| [100 + n, 101 + n]).collect();
    let mut recorded =
        Recorded { graphs: [(0, graph(64, 64)), (1, graph(64, 64))].into(), ..Recorded::default() };
    add(&mut recorded, &pass(0, &sequences), 0);
    // As many outputs of one sequence are a prompt whose logits are all asked for.
    add(&mut recorded, &pass(1, &[[0, 64]]), 1);
    let phases: Vec<Phase> =
        replayed(&recorded).profile.passes.iter().map(|pass| pass.phase).collect();
    assert_eq!(phases, [Phase::Decode, Phase::Prefill]);
}

#[test]
fn passes_of_two_threads_at_once_have_their_own_graphs() {
    let mut recorded =
        Recorded { graphs: [(0, graph(5, 1)), (1, graph(1, 1))].into(), ..Recorded::default() };
    let first = pass(0, &[[0, 5]]);
    let second = Pass { of_thread: 1, begin: first.begin + 1000, ..pass(0, &[[7, 8]]) };
    recorded.events.extend([
        computed(&first, 0),
        computed(&second, 1),
        Event::Pass(second.clone()),
        Event::Pass(first.clone()),
    ]);
    // One that ended by an exception leaves its graph.
    let lost = pass(1, &[]);
    recorded.events.push(computed(&lost, 1));
    add(&mut recorded, &pass(2, &[[5, 6]]), 1);
    let found: Vec<Vec<u32>> = Passes::of(&recorded)
        .map(|found| found.graphs.iter().map(|graph| graph.number).collect())
        .collect();
    assert_eq!(found, [[1], [0], [1]]);
}

#[test]
fn two_copies_of_ggml_are_groups_with_names_and_versions() {
    let library = |file: &str, version: &str| crate::recording::events::Library {
        file: file.to_owned(),
        version: Some(version.to_owned()),
        commit: None,
    };
    let mut recorded = Recorded {
        graphs: [(0, graph(1, 1)), (1, graph(1, 1))].into(),
        copies: [(0, 0), (1, 1)].into(),
        libraries: [(0, library("/a/libggml-cpu.so", "0.26.0")), (1, library("/b/w.so", "0.13.1"))]
            .into(),
        ..Recorded::default()
    };
    for nth in 0..6 {
        let number = u32::from(nth >= 4);
        // A graph that no call of llama.cpp is around.
        let of = Pass { is_graph: number == 1, ..pass(nth, &[[nth as u32, nth as u32 + 1]]) };
        add(&mut recorded, &of, number);
    }
    let all = replayed_all(&recorded);
    // The second one's graphs look up no tokens, and no call of llama.cpp is around them.
    let passes: Vec<_> = all.iter().map(|of| (of.profile.passes.len(), of.is_llama)).collect();
    assert_eq!(passes, [(4, true), (2, false)]);
    let groups = groups(&recorded);
    let names: Vec<String> = groups.iter().map(|of| of.name(&groups, None)).collect();
    assert_eq!(names, ["libggml-cpu.so, version 0.26.0", "w.so, version 0.13.1"]);
    assert_eq!(groups[1].engine.version.as_deref(), Some("0.13.1"));
}

/// As whisper.cpp's: its weights have no names.
#[test]
fn a_graph_by_itself_decodes_as_many_tokens_as_it_looks_up_and_else_encodes() {
    let nameless = |tokens: u64| {
        let [wide, ids] = [[64, tokens, 1, 1], [tokens, 1, 1, 1]];
        let looked_up = vec![tensor("leaf_1", [64, 500, 1, 1]), tensor("embd", ids)];
        let head = vec![tensor("leaf_1", [64, 500, 1, 1]), tensor("node_7", wide)];
        vec![
            node("GET_ROWS", "node_0", wide, looked_up),
            node("ADD", "node_1", wide, vec![tensor("node_0", wide)]),
            node("MUL_MAT", "node_8", [500, tokens, 1, 1], head),
        ]
    };
    let mut recorded = Recorded {
        graphs: [(0, nameless(1)), (1, nameless(5)), (2, graph(9, 1))].into(),
        ..Recorded::default()
    };
    for nth in 0..3 {
        let nothing = Pass { tokens: None, position: None, is_decode: false, ..pass(nth, &[]) };
        add(&mut recorded, &Pass { is_graph: true, ..nothing }, nth as u32);
    }
    let Replayed { profile, notes, is_llama, .. } = replayed(&recorded);
    let passes: Vec<_> = profile.passes.iter().map(|of| (of.phase, of.tokens)).collect();
    let expected = [(Phase::Decode, 1), (Phase::Decode, 5), (Phase::Encode, 0)];
    assert_eq!(passes, expected, "{notes:?}");
    assert!(!is_llama && !notes.iter().any(|note| note.contains("left out")));
}

/// Attention over a cache, or over the tokens of the pass alone.
fn attention(tokens: u64, has_cache: bool) -> Vec<Node> {
    let wide = [64, tokens, 1, 1];
    let keys = if has_cache { "cache_k_l0 (view)" } else { "Kcur-0" };
    let mut nodes = graph(tokens, tokens);
    let read = vec![tensor("Qcur-0", wide), tensor(keys, wide), tensor("Vcur-0", wide)];
    nodes.insert(2, node("FLASH_ATTN_EXT", "fattn-0", wide, read));
    nodes
}

#[test]
fn what_makes_embeddings_or_keeps_no_cache_encodes() {
    let context = crate::recording::events::Context { pooling: Some(1), ..Default::default() };
    let mut recorded = Recorded {
        graphs: [(0, attention(5, true)), (1, attention(5, false))].into(),
        contexts: [(1, context)].into(),
        ..Recorded::default()
    };
    let times = |pass: &Pass, number| {
        let at = |part: u64| pass.begin + PASS_NS * part / 100;
        Event::Graph(Graph {
            number,
            threads: 1,
            of_thread: 0,
            begin: at(1),
            end: at(99),
            nodes: vec![at(2), at(30), at(50), at(60)],
            ends: Vec::new(),
            shares: Vec::new(),
            sequences: Vec::new(),
            experts: Vec::new(),
            chosen: Vec::new(),
        })
    };
    // A prompt; one of a context that pools; one without a cache; a call that only encodes.
    let of = |nth, is_decode| Pass { is_decode, context: Some(2), ..pass(nth, &[[0, 5]]) };
    let all = [
        (of(0, true), 0),
        (Pass { context: Some(1), ..of(1, true) }, 0),
        (of(2, true), 1),
        (of(3, false), 0),
    ];
    for (pass, number) in &all {
        recorded.events.extend([times(pass, *number), Event::Pass(pass.clone())]);
    }
    let all = replayed_all(&recorded);
    let phases: Vec<Vec<Phase>> =
        all.iter().map(|of| of.profile.passes.iter().map(|pass| pass.phase).collect()).collect();
    use Phase::{Encode, Prefill};
    assert_eq!(phases, [vec![Prefill, Encode, Encode], vec![Encode]]);
    let tokens: u64 = all[0].profile.phase(Encode).map_or(0, |of| of.tokens);
    assert_eq!((tokens, all[0].prompt_tokens), (10, 15));
}

#[test]
fn tokens_of_a_draft_that_are_checked_decode_and_a_short_prompt_does_not() {
    let phase = |sequences: &[[u32; 2]], tokens, outputs| phase_of(tokens, outputs, sequences);
    assert_eq!(phase(&[[40, 45]], 5, 5), Phase::Decode);
    assert_eq!(phase(&[[0, 5]], 5, 5), Phase::Prefill);
    assert_eq!(phase(&[[40, 45]], 5, 1), Phase::Prefill);
    assert_eq!(phase(&[], 5, 5), Phase::Decode, "whose sequences aren't known");
}

/// A server tries its cache with two tokens, warms up, and gets a prompt.
#[test]
fn what_a_server_tries_before_its_first_prompt_is_left_out() {
    let mut recorded = Recorded {
        graphs: [(0, graph(2, 2)), (1, graph(41, 1)), (2, graph(1, 1))].into(),
        ..Recorded::default()
    };
    add_first(&mut recorded, &pass(0, &[[0, 2]]), 0);
    add(&mut recorded, &Pass { is_warm_up: true, ..pass(1, &[[0, 2]]) }, 0);
    add(&mut recorded, &pass(2, &[[0, 2]]), 0);
    add_first(&mut recorded, &pass(3, &[[0, 41]]), 1);
    add_first(&mut recorded, &pass(4, &[[41, 42]]), 2);
    add(&mut recorded, &pass(5, &[[42, 43]]), 2);
    let Replayed { profile, notes, .. } = replayed(&recorded);
    let prefill = profile.phase(Phase::Prefill).map(|of| (of.passes, of.tokens));
    assert_eq!(prefill, Some((1, 41)), "{notes:?}");
    assert!(notes.iter().any(|of| of.starts_with("3 passes left out: the program warms up")));
}

#[test]
fn the_time_between_passes_is_that_of_the_thread_and_has_names() {
    let mut recorded =
        Recorded { graphs: [(0, graph(9, 1)), (1, graph(1, 1))].into(), ..Recorded::default() };
    add(&mut recorded, &pass(0, &[[0, 9]]), 0);
    for nth in 1..4 {
        let sampled = 200_000 + nth;
        recorded.events.push(Event::Calls(0, [[2, sampled], [0; 2], [0; 2], [1, 30], [0; 2]]));
        // Of another thread, which is in no pass.
        recorded.events.push(Event::Calls(7, [[1, 999_999]; 5]));
        let at = 8 + nth as u32;
        add(&mut recorded, &pass(nth, &[[at, at + 1]]), 1);
    }
    let between = replayed(&recorded).between.expect("it decoded");
    // A pass of a millisecond every two of them.
    let sums = (between.passes, between.tokens, between.passes_ns, between.between_ns);
    assert_eq!(sums, (3, 3, 3 * PASS_NS, 3 * PASS_NS));
    let calls: Vec<_> = between.calls.iter().map(|of| (&*of.name, of.calls, of.ns)).collect();
    assert_eq!(calls, [("sampling", 6, 600_006), ("making text", 3, 90)]);
    assert_eq!(between.rest_ns(), 3 * PASS_NS - 600_096);
    assert_eq!(between.tokens_per_second(), Some(500.0));
}

#[test]
fn a_wait_for_a_request_and_the_passes_of_another_thread_are_no_time_between_passes() {
    let mut recorded =
        Recorded { graphs: [(0, graph(9, 1)), (1, graph(1, 1))].into(), ..Recorded::default() };
    let of_thread = |thread: u16, pass: Pass| Pass { of_thread: thread, ..pass };
    add(&mut recorded, &pass(0, &[[0, 9]]), 0);
    add(&mut recorded, &pass(1, &[[9, 10]]), 1);
    // The same context on another thread, and back: each gap is of a millisecond.
    add(&mut recorded, &of_thread(1, pass(2, &[[10, 11]])), 1);
    recorded.events.push(Event::Calls(0, [[1, 700_000]; 5]));
    add(&mut recorded, &pass(3, &[[11, 12]]), 1);
    // Long after, a request of which all but a token is in the cache.
    add(&mut recorded, &pass(90, &[[4, 5]]), 1);
    // Its answer goes on.
    add(&mut recorded, &pass(91, &[[5, 6]]), 1);
    let between = replayed(&recorded).between.expect("it decoded");
    assert_eq!((between.passes, between.between_ns), (4, 4 * PASS_NS));
    assert_eq!(between.calls, [], "they were before the other thread's pass");
}

#[test]
fn short_texts_that_are_all_that_was_asked_for_are_no_tries() {
    let mut recorded = Recorded { graphs: [(0, graph(1, 1))].into(), ..Recorded::default() };
    for nth in 0..9 {
        add(&mut recorded, &pass(nth, &[[0, 1]]), 0);
    }
    let profile = replayed(&recorded).profile;
    assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(9));
    // Not more than some are tries, whatever follows.
    add(&mut recorded, &pass(9, &[[1, 2]]), 0);
    let profile = replayed(&recorded).profile;
    assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(6));
}

#[test]
fn the_softmax_of_a_router_is_no_attention() {
    let wide = [64, 5, 1, 1];
    let softmax = |name: &str, src| node("SOFT_MAX", name, wide, src);
    let router = softmax("ffn_moe_probs-0", vec![tensor("ffn_moe_logits-0", wide)]);
    assert!(!keeps_nothing([router].iter()));
    let masked = vec![tensor("kq-0", wide), tensor("KQ_mask", wide)];
    assert!(keeps_nothing([softmax("node_5", masked)].iter()));
    let kept = node("SET_ROWS", "cache_k_l0 (view)", wide, Vec::new());
    let named = softmax("kq_soft_max-0", vec![tensor("kq-0", wide)]);
    assert!(keeps_nothing([named.clone()].iter()) && !keeps_nothing([named, kept].iter()));
}

/// What each graph of a pass attends to: FLOPs of one kernel each.
fn attended(recorded: &Recorded) -> Vec<u64> {
    let profile = replayed(recorded).profile;
    let is_attention = |of: &&brickscope::Span| {
        let name = of.name.and_then(|name| profile.names.get(usize::from(name)));
        name.is_some_and(|name| name.name == "flash_attn_ext_f32")
    };
    profile.spans.iter().filter(is_attention).map(|of| of.work.flops).collect()
}

/// A graph that looks up so many tokens, and attends to a cache that has room for so many.
fn micro_batch(tokens: u64, room: u64) -> Vec<Node> {
    let looked_up =
        vec![tensor("token_embd.weight", [64, 500, 1, 1]), tensor("ids", [tokens, 1, 1, 1])];
    let cache = |kv: &str| tensor(&format!("cache_{kv}_l0 (view)"), [64, room, 1, 1]);
    let queries = tensor("q-0", [64, tokens, 2, 1]);
    let head = vec![tensor("output.weight", [64, 100, 1, 1]), tensor("result_norm", [64, 1, 1, 1])];
    vec![
        node("GET_ROWS", "embd", [64, tokens, 1, 1], looked_up),
        node(
            "FLASH_ATTN_EXT",
            "fattn-0",
            [64, 2, tokens, 1],
            vec![queries, cache("k"), cache("v")],
        ),
        node("MUL_MAT", "result_output", [100, 1, 1, 1], head),
    ]
}

#[test]
fn each_graph_of_a_pass_attends_to_the_tokens_before_it_and_its_own() {
    // A prompt of 70 tokens after 10 others, in micro-batches of 32.
    let batches = [(32, 48), (32, 80), (6, 80)];
    let graphs = batches.map(|(tokens, room)| micro_batch(tokens, room));
    let mut recorded = Recorded { graphs: (0..).zip(graphs).collect(), ..Recorded::default() };
    let of = pass(0, &[[10, 80]]);
    let mut events: Vec<Event> = Vec::new();
    for number in 0..3 {
        let Event::Graph(mut graph) = computed(&of, number) else { panic!("it is one") };
        let at = |part: u64| of.begin + PASS_NS * part / 100;
        let from = 30 * u64::from(number);
        (graph.begin, graph.end) = (at(from + 1), at(from + 29));
        graph.nodes = vec![at(from + 2), at(from + 10), at(from + 20)];
        events.push(Event::Graph(graph));
    }
    recorded.events.clone_from(&events);
    recorded.events.push(Event::Pass(of.clone()));
    // Of each query, each of two heads: a score and its part of the result, 64 wide, for each token that it looks at.
    let each = 2 * 4 * 64_u64;
    let flops = |positions: std::ops::Range<u64>| positions.map(|of| (of + 1) * each).sum::<u64>();
    assert_eq!(attended(&recorded), [flops(10..42), flops(42..74), flops(74..80)]);

    // Two clients' prompts, whose parts are only known if they were recorded.
    let sequences = [vec![[10, 42]], vec![[42, 50], [0, 24]], vec![[24, 30]]];
    for (event, of) in events.iter_mut().zip(&sequences) {
        let Event::Graph(graph) = event else { panic!("it is one") };
        graph.sequences.clone_from(of);
    }
    recorded.events = events;
    recorded.events.push(Event::Pass(Pass { sequences: vec![[10, 50], [0, 30]], ..of }));
    let expected = [flops(10..42), flops(42..50) + flops(0..24), flops(24..30)];
    assert_eq!(attended(&recorded), expected);
}

#[test]
fn layers_of_a_model_with_a_window_look_at_its_tokens() {
    let model = |n_swa, architecture: &str| crate::recording::events::Model {
        n_swa: Some(n_swa),
        architecture: Some(architecture.to_owned()),
        ..Default::default()
    };
    // The cache has room for 48 tokens, and 90 came before.
    let each = 2 * 4 * 64_u64;
    for (model, looked) in
        [(model(16, "gemma3"), 16), (model(16, "llama4"), 90 % 16 + 1), (model(0, "llama"), 0)]
    {
        let context =
            crate::recording::events::Context { model: Some(model), ..Default::default() };
        let mut recorded = Recorded {
            graphs: [(0, micro_batch(1, 48))].into(),
            contexts: [(1, context)].into(),
            ..Recorded::default()
        };
        add(&mut recorded, &Pass { context: Some(1), ..pass(0, &[[90, 91]]) }, 0);
        assert_eq!(attended(&recorded), [looked * each]);
    }
}
