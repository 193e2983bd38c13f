//! What threads without a pass time.

use brickscope::misuse::Misuse;
use brickscope::{BrickId, Phase};

use super::{brick, profiler, told};

#[test]
fn spans_of_threads_without_a_pass_are_told_with_what_to_call() {
    let (profiler, hand) = profiler();
    let pass = profiler.begin_pass(Phase::Decode);
    // One after the other, so that one log is that of several threads.
    for _ in 0..4 {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..10).for_each(|_| brick(&profiler, &hand)));
        });
    }
    brick(&profiler, &hand);
    profiler.end_pass(pass, 1, 0);
    assert_eq!(told(&profiler), [Misuse::SpansWithoutPass(40)]);
    let said = profiler.misuse()[0].to_string();
    let expected = "40 spans of bricks of passes, on threads that joined none: call join_pass";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn a_well_known_brick_is_a_part_of_a_pass_though_no_pass_has_it() {
    let (profiler, hand) = profiler();
    let pass = profiler.begin_pass(Phase::Decode);
    brick(&profiler, &hand);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let timer = profiler.start_brick(BrickId::UpProjection);
            hand.advance(3);
            profiler.stop_brick(timer, 1);
        });
    });
    profiler.end_pass(pass, 1, 0);
    assert_eq!(told(&profiler), [Misuse::SpansWithoutPass(1)]);
}

#[test]
fn a_thread_whose_bricks_no_pass_has_does_something_else_unless_it_joined_one() {
    let (profiler, hand) = profiler();
    let tokenize = || {
        let timer = profiler.start("Tokenize");
        hand.advance(3);
        profiler.stop(timer, 1);
    };
    let pass = profiler.begin_pass(Phase::Decode);
    brick(&profiler, &hand);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|_| tokenize()));
    });
    profiler.end_pass(pass, 1, 0);
    assert_eq!(told(&profiler), []);
    // One that joins the pass is to time its shares by what that returns.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _worker = profiler.join_pass(Phase::Decode, 1);
            tokenize();
        });
    });
    assert_eq!(told(&profiler), [Misuse::SpansWithoutPass(51)]);
    let said = profiler.misuse()[0].to_string();
    assert!(said.ends_with("by begin of what it returns, not by start_brick"), "{said}");
}

#[test]
fn a_timer_that_ends_on_another_thread_is_told_though_its_thread_is_gone() {
    let (profiler, hand) = profiler();
    let begin = || {
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(3);
        timer
    };
    let first = std::thread::scope(|scope| scope.spawn(begin).join().expect("no panic"));
    // Another thread gets its log.
    std::thread::scope(|scope| scope.spawn(|| brick(&profiler, &hand)).join().expect("no panic"));
    profiler.stop_brick(first, 1);
    assert_eq!(told(&profiler), [Misuse::MovedTimers(1)]);
    assert_eq!(profiler.profile().dropped.moved, 1);
}
