//! Nodes on a GPU, each run by itself.

use brickscope::{PairedRatio, Phase, Profile};
use brickscope_testing::patience::skipped;

use super::{command_of, run, total};

/// The time of the spans of a brick in a layer.
fn durations(profile: &Profile, name: &str, layer: u16) -> Vec<u64> {
    let is_it = |span: &&brickscope::Span| {
        let named = span.name.map(|name| profile.names[usize::from(name)].name.as_str());
        named == Some(name) && span.layer == Some(layer)
    };
    profile.spans.iter().filter(is_it).map(|span| span.duration_ns).collect()
}

/// Asserts that passes whose nodes run one at a time take more than a fifth longer. They take a millisecond, and wait for a
/// CPU ten times as long if others are on it: then there are more of them, until it is sure.
fn costs_a_fifth(gpu: &str, mut cost: PairedRatio) {
    for decodes in ["264", "1056", "4224", "16896"] {
        if cost.estimate > 0.2 {
            return;
        }
        assert!(cost.high >= 0.2, "{cost:?}");
        let profile = run("good/loads", &[], &[("GPU", gpu), ("DECODES", decodes)]).profile();
        let decode = profile.serialised(Phase::Decode).expect("its nodes were");
        cost = decode.cost.expect("there were enough pairs");
    }
    if cost.estimate <= 0.2 {
        skipped(&format!("others disturbed too many of 16 896 passes: {cost:?}"));
    }
}

#[test]
fn nodes_of_a_gpu_are_timed_one_at_a_time_in_turns() {
    // The second one must be asked for an answer: to wait for it tells nothing.
    for gpu in ["GPU0", "RPC0[127.0.0.1:50052]"] {
        let ran = run("good/loads", &[], &[("GPU", gpu), ("DECODES", "66")]);
        assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
        let profile = ran.profile();
        profile.check().expect("it adds up");
        assert_eq!(profile.sync_mode, brickscope::SyncMode::Immediate);
        assert_eq!(
            profile.run.as_ref().expect("it has one").backend,
            format!("llama.cpp, CPU and {gpu}")
        );

        // Two of eight; the first one describes its graph.
        assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(17));
        let decode = profile.serialised(Phase::Decode).expect("its nodes were");
        assert_eq!((&decode.devices[..], decode.whole_passes), (&[gpu.to_owned()][..], 24));
        assert_eq!(decode.whole_tokens, 24);
        let prefill = profile.serialised(Phase::Prefill).expect("its nodes were");
        assert_eq!((prefill.whole_passes, prefill.whole_p50_ns), (0, None));
        assert!(prefill.cost.is_none() && prefill.cost_absent.is_some());

        // The GPU takes half the time of what it is told at once, and the pass lasts until it has done it.
        let whole = decode.whole_p50_ns.expect("there were some");
        assert!(whole >= 600_000, "{whole}");
        let cost = decode.cost.expect("there were enough pairs");
        assert_eq!(cost.pairs, 16);
        costs_a_fifth(gpu, cost);

        // Each node takes its time, on either side.
        for (name, layer, ns) in [
            ("DownProjection", 0, 100_000),
            ("DownProjection", 1, 400_000),
            ("QkvProjection", 1, 120_000),
        ] {
            let all = durations(&profile, name, layer);
            // Of both phases, with the ones that are left out.
            assert_eq!(all.len(), 20, "{name}");
            assert!(all.iter().all(|&took| took >= ns / 100 * 99), "{name}: {all:?}");
        }
        let kernel = |name: &str| profile.names.iter().any(|of| of.name == name);
        assert!(kernel("get_rows_q8_0") && kernel(&format!("mul_mat_q8_0 on {gpu}")));
        assert!(!kernel(&format!("view on {gpu}")), "it computes nothing");

        // The roof is the CPU's.
        let why = brickscope_analysis::roofline::Roofline::of(&profile, Phase::Decode);
        assert!(why.is_err_and(|why| why.reason.contains(gpu)));
        let screen = ran.stderr();
        for said in ["ran one at a time", "no roof is known for"] {
            assert!(screen.contains(said) && screen.contains(gpu), "{screen}");
        }
    }
}

#[test]
fn a_graph_in_part_on_a_gpu_has_all_nodes() {
    let ran = run("good/loads", &[], &[("GPU", "GPU0"), ("MIXED", "1")]);
    let profile = ran.profile();
    profile.check().expect("it adds up");
    assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(5), "{}", ran.stderr());
    let count = |name| total(&profile, Phase::Decode, name).stats.count;
    for (name, each) in [
        ("QkvProjection", 2),
        ("DownProjection", 2),
        ("FlashAttention", 2),
        ("Embedding", 1),
        ("LmHead", 1),
    ] {
        assert_eq!(count(name), 5 * each, "{name}");
    }
    let kernel = |name: &str| profile.names.iter().any(|of| of.name == name);
    // The CPU computes a norm and its product as one, as ever.
    assert!(kernel("rms_norm_mul") && kernel("mul_mat_q8_0") && kernel("mul_mat_q8_0 on GPU0"));
    assert!(durations(&profile, "DownProjection", 1).iter().all(|&took| took >= 396_000));
}

#[test]
fn a_scheduler_whose_nodes_are_the_cpus_is_left_alone() {
    let profile = run("good/loads", &[], &[("GPU", "GPU0"), ("ALL_CPU", "1")]).profile();
    assert!(profile.serialised.is_empty());
    assert_eq!(profile.sync_mode, brickscope::SyncMode::Deferred);
    assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(19));
    assert_eq!(profile.run.expect("it has one").backend, "llama.cpp, CPU");
}

#[test]
fn what_can_not_be_timed_on_a_gpu_is_said() {
    for (program, more, said) in [
        ("good/loads", "OWN_CALLBACK", "the program has a callback of its own for nodes"),
        ("old/loads", "", "ggml's ggml_backend_sched_get_n_splits isn't there"),
    ] {
        let ran = run(
            program,
            &[],
            &[("GPU", "GPU0"), ("MIXED", "1"), (if more.is_empty() { "NONE" } else { more }, "1")],
        );
        assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
        assert!(ran.said().contains(said), "{}", ran.stderr());
        assert_eq!(
            ran.stdout().contains("own callback with 7\n"),
            !more.is_empty(),
            "{}",
            ran.stdout()
        );
        // The CPU's nodes are there, and the rest isn't.
        let profile = ran.profile();
        profile.check().expect("it adds up");
        assert!(profile.serialised.is_empty());
        assert!(profile.names.iter().any(|of| of.name == "mul_mat_q8_0"));
        assert!(profile.totals.iter().all(|total| total.stats.name != "LmHead"));
        // Such passes can't be held against the CPU's limits. Where ggml doesn't say that there are such nodes, they are.
        let reason = profile.ceilings_absent.map(|absent| absent.reason).unwrap_or_default();
        assert_eq!(reason.contains("that were not timed"), !more.is_empty(), "{reason}");
    }
    // Whoever else calls back is told no, and what is timed is right.
    let ran = run("good/loads", &[], &[("GPU", "GPU0"), ("OTHER_THREAD", "1")]);
    assert!(ran.stderr().contains("on another thread"), "{}", ran.stderr());
    let profile = ran.profile();
    profile.check().expect("it adds up");
    assert_eq!(total(&profile, Phase::Decode, "LmHead").stats.count, 5);
}

#[test]
fn the_cost_of_recording_is_measured_where_a_gpu_computes_too() {
    let (mut command, run, _dir) =
        command_of(&["--check-overhead"], "good/loads", &[], &[("GPU", "GPU0")]);
    let output = command.output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Recording costs "), "{output:?}");
    let profile = Profile::load(&run.join("profile.json")).expect("a profile");
    let decode = profile.serialised(Phase::Decode).expect("its nodes were");
    assert!(decode.whole_passes >= 9 && decode.cost.is_some(), "{decode:?}");
}
