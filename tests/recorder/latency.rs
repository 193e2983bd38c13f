//! First tokens, times of tokens, and what made the slow ones slow.

use brickscope::{BrickId, BrickProfiler, MockClock};
use brickscope_profile::{Latency, Phase, Profile, SlowBrick};

/// A profile of one prompt in two passes, and of tokens that take 1000 ns in a norm and so many
/// more in the head.
fn run(heads: impl IntoIterator<Item = u64>) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let pass = |phase, tokens, position, head| {
        let timer = profiler.begin_pass(phase);
        let norm = profiler.start_brick(BrickId::RmsNorm);
        hand.advance(1_000);
        let head_timer = profiler.lap(norm, 1, BrickId::LmHead);
        hand.advance(head);
        profiler.stop_brick(head_timer, 1);
        hand.advance(10);
        profiler.end_pass(timer, tokens, position);
    };
    pass(Phase::Prefill, 128, 0, 500);
    hand.advance(77);
    pass(Phase::Prefill, 28, 128, 600);
    for (position, head) in (156..).zip(heads) {
        pass(Phase::Decode, 1, position, head);
    }
    profiler.profile()
}

#[test]
fn the_first_token_takes_from_the_first_pass_of_the_prompt_to_the_last() {
    let latency = run([0]).latency;
    assert_eq!(latency.first_token.count, 1);
    assert_eq!(latency.first_token.min_ns, Some(1_510 + 77 + 1_610));
    assert_eq!(latency.per_token.max_ns, Some(1_010));
}

#[test]
fn two_prompts_have_two_first_tokens() {
    let mut passes = run([]).passes;
    let mut again = passes.clone();
    again.iter_mut().for_each(|pass| pass.start_ns += 10_000);
    passes.extend(again);
    assert_eq!(Latency::of(&passes, &[], &[]).first_token.count, 2);
    passes[3].is_left_out = true;
    assert_eq!(
        Latency::of(&passes, &[], &[]).first_token.count,
        1,
        "half a prompt has no first token"
    );
}

#[test]
fn what_made_slow_tokens_slow_is_named_and_adds_up() {
    let slow = |i: u64| if i.is_multiple_of(10) { 900 } else { 100 };
    let latency = run((0..50).map(slow)).latency;
    let slow = latency.slow.expect("there are enough");
    assert_eq!((slow.slow, slow.fast, slow.least_ns), (5, 25, 1_910));
    assert_eq!(slow.bricks[0], SlowBrick { name: "LmHead".to_owned(), extra_ns: 800.0 });
    let bricks: f64 = slow.bricks.iter().map(|brick| brick.extra_ns).sum();
    assert_eq!(bricks + slow.unattributed_extra_ns, slow.extra_ns);
}

#[test]
fn too_few_tokens_tell_nothing_of_slow_ones() {
    let latency = run((0..43).map(|_| 100)).latency;
    assert_eq!(latency.slow, None);
    assert!(latency.slow_absent.is_some_and(|absent| absent.reason.contains("there are 43")));
    assert_eq!(latency.per_token.percentiles.p50_ns, Some(1_110));
    assert_eq!(latency.per_token.percentiles.p90_ns, None);
}
