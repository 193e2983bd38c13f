//! The nodes of graphs on the CPU as bricks, and what is beside them.

use std::process::Command;

use brickscope::{BrickCategory, Phase, Profile};
use brickscope_testing::command;

use super::{as_it_is, command_of, run, total};

#[test]
fn each_node_of_an_unmodified_program_is_a_brick_of_its_layer() {
    let ran = as_it_is();
    assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
    // Standard output is the program's.
    assert_eq!(ran.stdout(), "generated\n");
    assert!(ran.stderr().contains("Decode") && ran.stderr().contains("DownProjection"));
    let profile = ran.profile();
    profile.check().expect("it adds up");

    // The first prompt and the first token described their graphs.
    let passes = |phase| profile.phase(phase).map(|of| (of.passes, of.tokens));
    assert_eq!(passes(Phase::Prefill), Some((1, 6)));
    assert_eq!(passes(Phase::Decode), Some((19, 19)));
    assert_eq!(profile.dropped.left_out_passes, 2);
    assert!(ran.stderr().contains("2 passes left out"), "{}", ran.stderr());
    let positions: Vec<u64> = profile.passes.iter().map(|pass| pass.position).collect();
    assert_eq!(positions[..4], [0, 6, 12, 13]);

    // Three matrices of each of two layers follow each other; what computes nothing is no brick.
    let count = |name| total(&profile, Phase::Decode, name).stats.count;
    for (name, each) in [
        ("QkvProjection", 2),
        ("DownProjection", 2),
        ("FlashAttention", 2),
        ("RmsNorm", 3),
        ("Embedding", 1),
        ("LmHead", 1),
    ] {
        assert_eq!(count(name), 19 * each, "{name}");
    }
    assert!(profile.totals.iter().all(|total| total.stats.name != "view"));
    let attention = total(&profile, Phase::Decode, "FlashAttention");
    assert_eq!(attention.category, Some(BrickCategory::Attention));

    // The program waits at least so long in each node, by its own clock.
    let at_least = |name: &str, layer: u16, ns: u64| {
        let is_it = |span: &&brickscope::Span| {
            let named = span.name.map(|name| profile.names[usize::from(name)].name.as_str());
            named == Some(name) && span.layer == Some(layer)
        };
        let spans: Vec<_> = profile.spans.iter().filter(is_it).collect();
        assert_eq!(spans.len(), 22, "{name} of layer {layer}");
        // The two clocks may differ a little.
        assert!(
            spans.iter().all(|span| span.duration_ns >= ns / 100 * 99),
            "{name} of layer {layer}"
        );
        // Others may hold a node up, but not most of them.
        let mut all: Vec<u64> = spans.iter().map(|span| span.duration_ns).collect();
        all.sort_unstable();
        assert!(all[2] < 2 * ns, "{name} of layer {layer}: {all:?}");
    };
    at_least("DownProjection", 0, 100_000);
    at_least("DownProjection", 1, 400_000);
    at_least("QkvProjection", 0, 120_000);
    at_least("FlashAttention", 1, 60_000);

    let run = profile.run.as_ref().expect("it has one");
    assert_eq!((run.threads, run.prompt_tokens, run.generated_tokens), (2, 12, 20));
    assert!(run.command[0].ends_with("good/loads"), "{:?}", run.command);
}

#[test]
fn nodes_have_the_work_that_their_shapes_state() {
    let profile = as_it_is().profile();
    let span = |name: &str, position: u64| {
        let pass = profile.passes.iter().find(|pass| pass.position == position).expect("a pass");
        let is_it = |span: &&brickscope::Span| {
            let named = span.name.map(|name| profile.names[usize::from(name)].name.as_str());
            named == Some(name) && span.pass == Some(pass.serial)
        };
        profile.spans.iter().find(is_it).unwrap_or_else(|| panic!("no {name}")).work
    };
    // A row of 64 q8_0 weights takes 68 bytes.
    let down = span("DownProjection", 12);
    assert_eq!((down.elements, down.flops), (64, 2 * 64 * 128));
    let weights = 64 * 128 / 32 * 34;
    let activations = 64 * 4 + 64 * 4;
    assert_eq!(down.bytes, weights + activations);
    // Three matrices in a row.
    let qkv = span("QkvProjection", 12);
    assert_eq!((qkv.flops, qkv.bytes), (3 * 2 * 64 * 64, 3 * (64 * 68 + activations)));
    let embedding = span("Embedding", 6);
    assert_eq!((embedding.elements, embedding.bytes), (6 * 64, 6 * 68 + 6 * 64 * 4));
    // The cache has room for 256 tokens; 13 of them are there, one row of keys and one of values each.
    let attention = span("FlashAttention", 12);
    assert_eq!(attention.bytes, 13 * 2 * 64 * 4 + activations);
    assert_eq!(attention.flops, 13 * 2 * (64 + 64));
    let later = span("FlashAttention", 20);
    assert_eq!(later.flops, 21 * 2 * (64 + 64));
    // Over two layers and 19 tokens, of which the first comes after 13.
    let data = |name| total(&profile, Phase::Decode, name).stats.data;
    let down = data("DownProjection");
    assert_eq!((down.weights, down.activations, down.kv), (38 * weights, 38 * activations, 0));
    // What bytes are is kept in sums only, so without the first pass they are known by its part of all bytes.
    let (seen, looked_at) = (data("FlashAttention").kv, (14..33_u64).sum::<u64>());
    let ratio = seen as f64 / (2 * looked_at * 2 * 64 * 4) as f64;
    assert!((0.99..1.01).contains(&ratio), "{seen}");
}

#[test]
fn threads_work_and_wait_where_that_is_asked_for() {
    let environment = [("THREADS", "1")];
    let without = run("good/loads", &[], &environment).profile();
    assert!(without.shares.is_empty());

    let (mut command, run, _dir) = command_of(&["--shares"], "good/loads", &[], &environment);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let profile = Profile::load(&run.join("profile.json")).expect("a profile");
    profile.check().expect("it adds up");
    let share = |thread: u32, brick: &str| {
        let is_it = |of: &&brickscope::ThreadShare| {
            (of.thread, of.phase, of.brick.as_str()) == (thread, Phase::Decode, brick)
        };
        profile.shares.iter().find(is_it).unwrap_or_else(|| panic!("{:?}", profile.shares)).share
    };
    let passes = profile.phase(Phase::Decode).expect("it decoded").passes;
    let wall = profile.phase(Phase::Decode).expect("it decoded").wall_ns;
    // What each of the two spins in a pass, in nanoseconds: in two layers, 100 and 400 µs.
    for (thread, least) in [(0, 500_000), (1, 250_000)] {
        let down = share(thread, "DownProjection");
        assert_eq!(down.count, 2 * passes);
        assert!(down.worked_ns >= least / 100 * 99 * passes, "{thread}: {down:?}");
        let of_thread = profile.shares.iter().filter(|of| of.thread == thread);
        let in_decode: u64 = of_thread
            .filter(|of| of.phase == Phase::Decode)
            .map(|of| of.share.worked_ns + of.share.waited_ns)
            .sum();
        assert!(in_decode <= wall, "{in_decode} of {wall}");
    }
    // One waits while the other one works longer, whichever that is while other programs run.
    let waited: u64 = [0, 1].map(|thread| share(thread, "DownProjection").waited_ns).iter().sum();
    assert!(waited >= 100_000 * passes, "{waited} in {passes} passes");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(!report.contains("shares of threads"), "{report}");
}

#[test]
fn the_time_between_passes_has_names_where_the_program_calls_llama_for_it() {
    let ran = run("packages-lazy", &["samples", "linked"], &[]);
    assert_eq!(ran.output.status.code(), Some(5), "{}", ran.stderr());
    let profile = ran.profile();
    let between = profile.run.and_then(|run| run.between).expect("it decoded");
    assert_eq!((between.passes, between.tokens), (3, 3), "the first of four warms up");
    let calls: Vec<_> = between.calls.iter().map(|of| (&*of.name, of.calls)).collect();
    // The text that sampling asks for on the way is a part of that, and a grammar in it is not.
    assert_eq!(calls, [("sampling", 6), ("grammar", 3), ("making text", 3)]);
    let least = [600_000, 300_000, 300_000];
    assert!(between.calls.iter().zip(least).all(|(of, least)| of.ns >= least), "{between:?}");
    let in_calls: u64 = between.calls.iter().map(|of| of.ns).sum();
    assert_eq!(between.rest_ns(), between.between_ns - in_calls);
    let full = Command::new(command::program()).args(["show", "--full"]).arg(&ran.run).output();
    let full = String::from_utf8(full.expect("it runs").stdout).expect("UTF-8");
    assert!(full.contains("\nmaking text ") && full.contains("\ngrammar "), "{full}");
    let screen = ran.said();
    assert!(screen.contains("with the time between them"), "{screen}");
    // Who asks the linker for the functions, as ctypes does, calls them unseen.
    let unseen = as_it_is().profile().run.and_then(|run| run.between).expect("it decoded");
    assert_eq!((unseen.passes, unseen.calls.len()), (19, 0));
}

#[test]
fn what_a_pass_does_besides_its_graphs_has_bricks() {
    let profile = as_it_is().profile();
    let alloc = &total(&profile, Phase::Decode, "AllocGraph").stats;
    assert_eq!(alloc.count, 19);
    assert!(alloc.min_ns >= 70_000, "{alloc:?}");
    profile.check().expect("it adds up");
}
