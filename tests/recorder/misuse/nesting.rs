//! What has no end, or another one than it should have: passes, layers and bricks nest.

use brickscope::misuse::Misuse;
use brickscope::{BrickId, Phase};

use super::{brick, profiler, told};

#[test]
fn a_pass_that_was_dropped_or_is_open_when_it_is_read_has_no_end() {
    let (profiler, hand) = profiler();
    drop(profiler.begin_pass(Phase::Decode));
    brick(&profiler, &hand);
    assert_eq!(told(&profiler), [Misuse::UnendedPasses(1)]);
    let pass = profiler.begin_pass(Phase::Decode);
    brick(&profiler, &hand);
    assert_eq!(told(&profiler), [Misuse::UnendedPasses(2)]);
    profiler.end_pass(pass, 1, 0);
    assert_eq!(told(&profiler), [Misuse::UnendedPasses(1)]);
}

#[test]
fn a_pass_within_a_pass_is_told() {
    let (profiler, hand) = profiler();
    let outer = profiler.begin_pass(Phase::Prefill);
    let inner = profiler.begin_pass(Phase::Decode);
    brick(&profiler, &hand);
    profiler.end_pass(inner, 1, 0);
    profiler.end_pass(outer, 1, 0);
    assert_eq!(told(&profiler), [Misuse::NestedPasses(1)]);
}

#[test]
fn timers_that_were_dropped_are_told_whatever_they_time() {
    let (profiler, hand) = profiler();
    let pass = profiler.begin_pass(Phase::Decode);
    let _ = profiler.start_brick(BrickId::LmHead);
    let _ = profiler.start_kernel(profiler.kernel("gemv", None));
    let _ = profiler.begin_layer(0);
    brick(&profiler, &hand);
    profiler.end_pass(pass, 1, 0);
    assert_eq!(told(&profiler), [Misuse::UnendedSpans(3)]);
}

#[test]
fn a_brick_that_began_in_one_that_ends_first_is_told() {
    let (profiler, hand) = profiler();
    let pass = profiler.begin_pass(Phase::Decode);
    let first = profiler.start_brick(BrickId::QkvProjection);
    hand.advance(5);
    let second = profiler.start_brick(BrickId::RopeEmbedding);
    hand.advance(5);
    profiler.stop_brick(first, 1);
    hand.advance(5);
    profiler.stop_brick(second, 1);
    profiler.end_pass(pass, 1, 0);
    assert_eq!(told(&profiler), [Misuse::CrossingBricks(1)]);
}

#[test]
fn layers_that_overlap_are_told_once() {
    let (profiler, hand) = profiler();
    let pass = profiler.begin_pass(Phase::Decode);
    let first = profiler.begin_layer(0);
    brick(&profiler, &hand);
    let second = profiler.begin_layer(1);
    profiler.end_layer(first);
    brick(&profiler, &hand);
    profiler.end_layer(second);
    profiler.end_pass(pass, 1, 0);
    assert_eq!(told(&profiler), [Misuse::CrossingLayers(1)]);
}

#[test]
fn a_layer_and_a_brick_that_cross_are_told() {
    let (profiler, hand) = profiler();
    let pass = profiler.begin_pass(Phase::Decode);
    for index in 0..2 {
        let layer = profiler.begin_layer(index);
        // One that is dropped crosses nothing.
        let _ = profiler.start_kernel(profiler.kernel("gemv", None));
        let timer = profiler.start_brick(BrickId::UpProjection);
        hand.advance(3);
        profiler.end_layer(layer);
        hand.advance(3);
        profiler.stop_brick(timer, 1);
    }
    let timer = profiler.start_brick(BrickId::UpProjection);
    let layer = profiler.begin_layer(2);
    hand.advance(3);
    profiler.stop_brick(timer, 1);
    profiler.end_layer(layer);
    // These nest.
    let layer = profiler.begin_layer(3);
    brick(&profiler, &hand);
    profiler.end_layer(layer);
    brick(&profiler, &hand);
    profiler.end_pass(pass, 1, 0);
    assert_eq!(told(&profiler), [Misuse::UnendedSpans(2), Misuse::CrossingLayers(3)]);
}

#[test]
fn a_layer_that_ends_after_its_pass_is_told_and_leaves_the_next_one_alone() {
    let (profiler, hand) = profiler();
    let mut open = None;
    for position in 0..3 {
        let pass = profiler.begin_pass(Phase::Decode);
        let layer = profiler.begin_layer(7);
        if let Some(before) = open.replace(layer) {
            profiler.end_layer(before);
        }
        brick(&profiler, &hand);
        profiler.end_pass(pass, 1, position);
    }
    profiler.end_layer(open.expect("the last one"));
    assert_eq!(told(&profiler), [Misuse::StraddlingLayers(3)]);
    let profile = profiler.profile();
    let bricks = profile.spans.iter().filter(|span| span.name.is_some());
    assert!(bricks.clone().count() == 3 && bricks.clone().all(|span| span.layer == Some(7)));
}

#[test]
fn a_brick_that_ends_after_its_pass_is_told() {
    let (profiler, hand) = profiler();
    let pass = profiler.begin_pass(Phase::Decode);
    let timer = profiler.start_brick(BrickId::LmHead);
    hand.advance(3);
    profiler.end_pass(pass, 1, 0);
    profiler.stop_brick(timer, 1);
    assert_eq!(told(&profiler), [Misuse::StraddlingBricks(1)]);
}
