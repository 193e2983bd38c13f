//! A mixture of experts, whose choices are in memory while it computes.

use std::process::Command;

use brickscope::{ExpertRuns, LayerExperts, Phase, Profile};
use brickscope_testing::command;

use super::run;

/// A matrix of an expert: 32 rows of 64 q8_0 weights, 68 bytes each.
const MATRIX: u64 = 32 * 68;

fn layer(profile: &Profile, phase: Phase, layer: u16) -> &LayerExperts {
    let is_it = |of: &&LayerExperts| (of.phase, of.layer) == (phase, Some(layer));
    profile.experts.iter().find(is_it).unwrap_or_else(|| panic!("{:?}", profile.experts))
}

/// Experts with their tokens, in so many passes that each reads three matrices.
fn ran(all: &[(u32, u64, u64)]) -> Vec<ExpertRuns> {
    let of = |&(expert, tokens, passes): &(u32, u64, u64)| ExpertRuns {
        expert,
        tokens,
        passes,
        reads: passes,
        bytes: passes * 3 * MATRIX,
    };
    all.iter().map(of).collect()
}

/// The work of the first span of a brick in the second prompt, which counts.
fn work_of_prompt(profile: &Profile, name: &str) -> brickscope::Work {
    let pass = profile.passes.iter().find(|pass| pass.position == 6).expect("a second prompt");
    let is_it = |span: &&brickscope::Span| {
        let named = span.name.map(|name| profile.names[usize::from(name)].name.as_str());
        named == Some(name) && span.pass == Some(pass.serial)
    };
    profile.spans.iter().find(is_it).unwrap_or_else(|| panic!("no {name}")).work
}

#[test]
fn the_experts_that_ran_are_counted_and_their_bytes_are_read() {
    // An older one doesn't say what is in the host's memory; all that the CPU computes with is.
    for program in ["good/loads", "old/loads"] {
        let of_run = run(program, &[], &[("EXPERTS", "1")]);
        let profile = of_run.profile();
        profile.check().expect("it adds up");
        assert_eq!(profile.experts.len(), 4, "two layers in two phases: {}", of_run.stderr());
        // The 22 passes choose in turn, and the first of both kinds are left out: of tokens, these are passes 3 to 21.
        let first = layer(&profile, Phase::Decode, 0);
        assert_eq!((first.n_expert, first.n_used), (Some(8), Some(2)));
        assert_eq!((first.passes, first.reads), (19, 19));
        assert_eq!(first.experts, ran(&[(0, 7, 7), (1, 6, 6), (2, 6, 6), (5, 19, 19)]));
        assert_eq!((first.ran(), first.idle(), first.different()), (4, Some(4), Some(2.0)));
        let second = layer(&profile, Phase::Decode, 1);
        assert_eq!(second.experts, ran(&[(0, 19, 19), (7, 19, 19)]));
        // Of six tokens, each of the three is chosen by two.
        let prompt = layer(&profile, Phase::Prefill, 0);
        assert_eq!((prompt.tokens, prompt.passes, prompt.unread), (6, 1, 0));
        assert_eq!(prompt.experts, ran(&[(0, 2, 1), (1, 2, 1), (2, 2, 1), (5, 6, 1)]));
        let work = work_of_prompt(&profile, "UpProjection");
        assert_eq!((work.elements, work.flops), (32 * 2 * 6, 2 * 64 * 32 * 2 * 6));
        let around = 6 * 64 * 4 + 6 * 2 * 4 + 6 * 2 * 32 * 4;
        assert_eq!(work.bytes, 4 * MATRIX + around, "those of the four that ran");
        let full =
            Command::new(command::program()).args(["show", "--full"]).arg(&of_run.run).output();
        let full = String::from_utf8(full.expect("it runs").stdout).expect("UTF-8");
        let words = full.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("Experts in decode: each token chooses 2 of 8"), "{full}");
        // 19 of 38 choices of eight experts: four times the mean.
        assert!(words.contains(" 0 4 of 8 2.0 #5 100.0% 4.0 4 "), "{full}");
    }
}

#[test]
fn numbers_of_no_expert_are_counted_as_such() {
    let profile = run("good/loads", &[], &[("EXPERTS", "odd")]).profile();
    let decode = layer(&profile, Phase::Decode, 1);
    assert_eq!((decode.odd, &decode.experts), (19, &ran(&[(0, 19, 19)])));
    let prompt = layer(&profile, Phase::Prefill, 1);
    assert_eq!((prompt.odd, &prompt.experts), (2, &ran(&[(0, 6, 1), (7, 4, 1)])));
    assert_eq!(layer(&profile, Phase::Decode, 0).odd, 0);
}

#[test]
fn numbers_that_are_not_in_the_hosts_memory_are_not_read() {
    let of_run = run("good/loads", &[], &[("EXPERTS", "elsewhere")]);
    assert_eq!(of_run.output.status.code(), Some(0), "{}", of_run.stderr());
    let profile = of_run.profile();
    let decode = layer(&profile, Phase::Decode, 0);
    assert_eq!((decode.n_expert, decode.n_used, decode.reads), (Some(8), None, 0));
    assert_eq!((decode.unread, decode.experts.len()), (19, 0));
    let why = decode.unread_absent.as_ref().expect("there is a reason");
    assert_eq!(why.reason, "the numbers of the chosen experts are not in the host's memory");
    // One token runs as many as it chooses; how many different ones six of them run, nobody knows.
    assert_eq!(work_of_prompt(&profile, "UpProjection").bytes, 0);
    let one = profile
        .totals
        .iter()
        .find(|of| of.phase == Some(Phase::Decode) && of.stats.name == "UpProjection");
    let around = 64 * 4 + 2 * 4 + 2 * 32 * 4;
    assert_eq!(one.expect("it ran").stats.total_bytes, 2 * 19 * (2 * MATRIX + around));
}

#[test]
fn a_model_without_experts_has_no_such_table() {
    assert!(super::as_it_is().profile().experts.is_empty());
}
