//! Mistakes of embedders that every sum survives: each is told, with the call that mends it, and a right program has none.

mod foreign;
mod nesting;
mod places;
mod threads;

use std::process::Command;

use brickscope::misuse::Misuse;
use brickscope::{BrickId, BrickProfiler, Ending, MockClock, Part, Phase, Work};

fn profiler() -> (BrickProfiler, MockClock) {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    (profiler, hand)
}

fn brick(profiler: &BrickProfiler, hand: &MockClock) {
    let timer = profiler.start_brick(BrickId::LmHead);
    hand.advance(10);
    profiler.stop_brick(timer, 1);
}

/// What is told of a program, whose sums are right.
fn told(profiler: &BrickProfiler) -> Vec<Misuse> {
    assert_eq!(profiler.profile().check(), Ok(()));
    profiler.misuse()
}

#[test]
fn bricks_of_a_device_that_are_not_settled_in_their_pass_are_told() {
    let (profiler, hand) = profiler();
    let device = profiler.device();
    device.reset_epoch();
    let pass = profiler.begin_pass(Phase::Decode);
    device.record(BrickId::LmHead, device.elapsed_ns(), 1);
    assert_eq!(profiler.misuse().last(), Some(&Misuse::UnsettledBricks(1)));
    hand.advance(9);
    profiler.end_pass(pass, 1, 0);
    device.finalize(device.elapsed_ns());
    assert_eq!(told(&profiler), [Misuse::SettledApart(1)]);
}

#[test]
fn a_right_program_has_none_while_it_runs_and_after_it() {
    let (profiler, hand) = profiler();
    let gemv = profiler.kernel("gemv", None);
    // Bricks outside of passes, as of what loads a model.
    brick(&profiler, &hand);
    assert_eq!(profiler.misuse(), []);
    for position in 0..3 {
        let pass = profiler.begin_pass(Phase::Decode);
        for index in 0..2 {
            let layer = profiler.begin_layer(index);
            let timer = profiler.start_brick_kernel(BrickId::QkvProjection, gemv);
            hand.advance(4);
            profiler.stop_brick_kernel(timer, Work::elements(1));
            let outer = profiler.start_brick(BrickId::AttentionOutput);
            brick(&profiler, &hand);
            profiler.stop_brick(outer, 1);
            profiler.end_layer(layer);
        }
        let handed = profiler.hand_off();
        std::thread::scope(|scope| {
            // Threads that share bricks, and one that works for this one and says so.
            scope.spawn(|| {
                let mut worker = profiler.join_pass(Phase::Decode, 1);
                worker.begin(BrickId::LmHead);
                worker.end();
            });
            scope.spawn(|| {
                profiler.take_over(handed);
                brick(&profiler, &hand);
                // In the midst of another thread's pass.
                assert_eq!(profiler.misuse(), []);
            });
        });
        profiler.end_pass(pass, 1, position);
    }
    let warm_up = profiler.begin_pass(Phase::Decode);
    brick(&profiler, &hand);
    profiler.discard_pass(warm_up);
    assert_eq!(told(&profiler), []);
    // Who times bricks alone misses no pass, on whatever thread.
    let (bricks_alone, hand) = self::profiler();
    std::thread::scope(|scope| {
        scope.spawn(|| brick(&bricks_alone, &hand));
    });
    assert_eq!(told(&bricks_alone), []);
}

#[test]
fn what_ran_before_all_passes_misses_none() {
    let (profiler, hand) = profiler();
    // One thread loads the model, others run it.
    for _ in 0..2 {
        std::thread::scope(|scope| {
            scope.spawn(|| brick(&profiler, &hand));
        });
    }
    brick(&profiler, &hand);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let pass = profiler.begin_pass(Phase::Decode);
            brick(&profiler, &hand);
            profiler.end_pass(pass, 1, 0);
        });
    });
    assert_eq!(told(&profiler), []);
    brick(&profiler, &hand);
    assert_eq!(told(&profiler), [Misuse::SpansWithoutPass(2)]);
}

#[test]
fn a_thread_that_goes_on_leaves_nothing_open() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let profiler = BrickProfiler::enabled();
    profiler.warn_of_misuse(false);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for position in 0.. {
                let pass = profiler.begin_pass(Phase::Decode);
                for _ in 0..20 {
                    profiler.stop_brick(profiler.start_brick(BrickId::LmHead), 1);
                }
                profiler.end_pass(pass, 1, position);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let found: Vec<Misuse> =
            (0..if cfg!(miri) { 3 } else { 300 }).flat_map(|_| profiler.misuse()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(found, []);
    });
}

#[test]
fn a_reset_forgets_them() {
    let ((own, hand), (other, _)) = (profiler(), profiler());
    drop(own.begin_pass(Phase::Decode));
    other.stop_brick(own.start_brick(BrickId::LmHead), 1);
    let pass = other.begin_pass(Phase::Decode);
    let first = other.begin_layer(0);
    let second = other.begin_layer(1);
    other.end_layer(first);
    other.end_layer(second);
    own.end_pass(pass, 1, 0);
    for profiler in [&own, &other] {
        assert_ne!(profiler.misuse(), []);
        profiler.reset();
        brick(profiler, &hand);
        assert_eq!(told(profiler), []);
    }
}

#[test]
fn what_is_told_of_requests_that_nobody_has_or_that_have_ended_is_told() {
    let (profiler, _) = profiler();
    let requests = profiler.requests();
    let a = requests.arrive("a");
    let pass = profiler.begin_pass_of(&[Part::decode(a + 9, 3)]);
    profiler.end_pass(pass, 1, 0);
    requests.admit(a + 9);
    requests.token(a);
    requests.end(a, Ending::Stop);
    requests.token(a);
    assert_eq!(told(&profiler), [Misuse::UnknownRequests(3)]);
    let b = requests.arrive("b");
    requests.end(b, Ending::Cancelled);
    // The engine hears of it later.
    requests.token(b);
    assert_eq!(told(&profiler), [Misuse::UnknownRequests(3)]);
}

/// Not a test by itself: the next one runs it in a process of its own, since it prints.
#[test]
#[ignore = "another test runs it"]
fn prints_what_a_debug_build_warns_of() {
    let misuse = |profiler: &BrickProfiler| drop(profiler.begin_pass(Phase::Decode));
    let told_by_profile = BrickProfiler::enabled();
    misuse(&told_by_profile);
    (0..3).for_each(|_| drop(told_by_profile.profile()));
    let told_at_the_end = BrickProfiler::enabled();
    misuse(&told_at_the_end);
    drop(told_at_the_end);
    let is_quiet = BrickProfiler::enabled();
    is_quiet.warn_of_misuse(false);
    misuse(&is_quiet);
    drop(is_quiet.profile());
    // Each kind once, and timers that were dropped in passes that are over without waiting for the end.
    let of_two_kinds = BrickProfiler::enabled();
    for position in 0..2 {
        let pass = of_two_kinds.begin_pass(Phase::Decode);
        let _ = of_two_kinds.start_brick(BrickId::LmHead);
        of_two_kinds.end_pass(pass, 1, position);
        drop(of_two_kinds.profile());
    }
    of_two_kinds.end_layer(of_two_kinds.begin_layer(0));
    let pass = of_two_kinds.begin_pass(Phase::Decode);
    drop(of_two_kinds.begin_pass(Phase::Decode));
    of_two_kinds.end_pass(pass, 1, 2);
    drop(of_two_kinds.profile());
    std::mem::forget(of_two_kinds);
    let apart = BrickProfiler::enabled();
    let pass = apart.begin_pass(Phase::Decode);
    std::thread::scope(|scope| {
        scope.spawn(|| apart.stop_brick(apart.start_brick(BrickId::UpProjection), 1));
    });
    apart.end_pass(pass, 1, 0);
    drop(apart.profile());
    std::mem::forget(apart);
    // What may end yet, or be meant so, is none.
    let goes_on = BrickProfiler::enabled();
    let pass = goes_on.begin_pass(Phase::Decode);
    let timer = goes_on.start_brick(BrickId::LmHead);
    std::thread::scope(|scope| {
        let beside = || goes_on.stop(goes_on.start("Tokenize"), 1);
        scope.spawn(beside);
    });
    drop(goes_on.profile());
    goes_on.stop_brick(timer, 1);
    goes_on.end_pass(pass, 1, 0);
}

#[test]
fn a_debug_build_warns_once_for_each_profiler_unless_it_is_not_to() {
    let own = std::env::current_exe().expect("a path");
    let name = "misuse::prints_what_a_debug_build_warns_of";
    let run = Command::new(own).args([name, "--exact", "--ignored", "--nocapture"]).output();
    let run = run.expect("it starts");
    assert!(run.status.success(), "{run:?}");
    let said = String::from_utf8_lossy(&run.stderr);
    let warned = said.matches("1 pass without an end: call end_pass").count();
    assert_eq!(warned, if cfg!(debug_assertions) { 2 } else { 0 }, "{said}");
    let later = [
        "1 span begun and never ended",
        "1 pass begun inside of another",
        "1 span of bricks of passes, on threads that joined none",
    ];
    let later: usize = later.iter().map(|what| said.matches(what).count()).sum();
    assert_eq!(later, if cfg!(debug_assertions) { 3 } else { 0 }, "{said}");
    let warnings = said.matches("brickscope: all times add up").count();
    assert_eq!(warnings, warned + later, "{said}");
}
