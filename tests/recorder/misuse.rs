//! Mistakes of embedders that every sum survives: each is told, with the call that mends it, and a right program has none.

use std::process::Command;

use brickscope::misuse::Misuse;
use brickscope::{
    BrickCategory, BrickId, BrickProfiler, Ending, MockClock, Part, PassTemplate, PassTimer, Phase,
    TimedPass, TimedPassError, Work,
};

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
    let expected = "40 spans of bricks that passes have, on threads without a pass: call join_pass";
    assert!(said.starts_with(expected), "{said}");
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
fn a_key_of_another_profiler_is_recorded_under_no_name_of_this_one() {
    let ((own, hand), (other, _)) = (profiler(), profiler());
    let of_other = other.named_brick("KvCache", BrickCategory::Attention);
    let kernel_of_other = other.kernel("theirs", None);
    let _ = own.named_brick("Router", BrickCategory::Ffn);
    let kernel = own.kernel("mine", None);
    let pass = own.begin_pass(Phase::Decode);
    let timer = own.start_brick(of_other);
    hand.advance(7);
    let timer = own.lap(timer, 1, BrickId::LmHead);
    hand.advance(5);
    own.stop_brick(timer, 1);
    let timer = own.start_brick_kernel(BrickId::LmHead, kernel_of_other);
    hand.advance(3);
    own.stop_brick_kernel(timer, Work::elements(1));
    let timer = own.start_kernel(kernel);
    own.stop_kernel(timer, Work::elements(1));
    own.end_pass(pass, 1, 0);
    assert_eq!(told(&own), [Misuse::ForeignKeys(2)]);
    assert_eq!(own.stats("Router").map(|stats| stats.count), Some(0));
    let foreign = own.stats("(another profiler's key)").expect("it has a name");
    assert_eq!((foreign.count, foreign.total_ns), (1, 7));
    // What any profiler knows is nobody's own.
    let head = other.named_brick("LmHead", BrickCategory::Other);
    own.stop_brick(own.start_brick(head), 1);
    assert_eq!(told(&own), [Misuse::ForeignKeys(2)]);
    // Nor is a key foreign to the same profiler with other room.
    let key = own.named_brick("Router", BrickCategory::Ffn);
    let own = own.with_log_capacity(64);
    own.stop_brick(own.start_brick(key), 1);
    assert_eq!(told(&own), []);
    assert_eq!(own.stats("Router").map(|stats| stats.count), Some(1));
}

#[test]
fn a_pass_of_another_profiler_is_not_ended_here() {
    let ((own, hand), (other, _)) = (profiler(), profiler());
    let ends: [fn(&BrickProfiler, PassTimer); 2] =
        [|other, pass| other.end_pass(pass, 1, 0), |other, pass| other.discard_pass(pass)];
    for end in ends {
        let pass = own.begin_pass(Phase::Decode);
        brick(&own, &hand);
        end(&other, pass);
    }
    assert_eq!(told(&other), [Misuse::ForeignPasses(2)]);
    assert_eq!(told(&own), [Misuse::UnendedPasses(2)]);
    assert_eq!(own.profile().dropped.abandoned_passes, 2);
}

#[test]
fn a_template_of_another_profilers_keys_labels_nothing() {
    let own = BrickProfiler::enabled();
    own.warn_of_misuse(false);
    let other = BrickProfiler::new();
    let mut template = PassTemplate::builder();
    template.brick(other.named_brick("Theirs", BrickCategory::Other), Work::elements(1));
    let template = template.build();
    let mut room = vec![0; template.timestamps()];
    let pass = own.begin_pass(Phase::Decode);
    let Some(timestamps) = own.timestamps_of(&pass, &mut room) else { return };
    timestamps.take();
    timestamps.take();
    let unlabelled = timestamps.end().expect("nothing else was timed");
    assert!(!unlabelled.label(&template, 0));
    own.end_pass(pass, 1, 0);
    assert_eq!(told(&own), [Misuse::UnendedSpans(2), Misuse::ForeignKeys(1)]);
}

#[test]
fn passes_by_another_clock_are_refused_or_told() {
    let profiler = BrickProfiler::enabled();
    profiler.warn_of_misuse(false);
    let record = |start_ns, end_ns| {
        let (phase, disturbance) = (Phase::Decode, None);
        let times = TimedPass { phase, start_ns, end_ns, tokens: 1, position: 0, disturbance };
        profiler.record_pass(&times, &[])
    };
    let now = || profiler.clock().now();
    assert_eq!(record(now(), now()), Ok(()));
    assert_eq!(profiler.misuse(), []);
    for end in [1_790_000_000_000_000_000, 10_000_000_000_000_000_000] {
        assert_eq!(record(now(), end), Err(TimedPassError::Future));
    }
    assert_eq!(profiler.profile().passes.len(), 1);
    // In microseconds, or by a clock that began later.
    assert_eq!(record(1, 2), Ok(()));
    assert_eq!(told(&profiler), [Misuse::EarlyPasses(1)]);
}

#[test]
fn a_timer_of_another_profiler_is_not_recorded_under_a_name_of_this_one() {
    let ((own, hand), (other, _)) = (profiler(), profiler());
    let [key, of_other] = [(&own, "Mine"), (&other, "Theirs")]
        .map(|(profiler, name)| profiler.named_brick(name, BrickCategory::Other));
    assert_ne!(key, of_other, "keys are each profiler's own");
    brick(&other, &hand);
    let timer = own.start_brick(key);
    hand.advance(7);
    other.stop_brick(timer, 1);
    let timer = own.start_brick(key);
    let next = other.lap(timer, 1, of_other);
    other.stop_brick(next, 1);
    other.end_layer(own.begin_layer(3));
    assert_eq!(told(&other), [Misuse::ForeignTimers(3)]);
    assert_eq!(told(&own), [Misuse::UnendedSpans(3)]);
    assert_eq!(other.stats("Theirs").map(|stats| stats.count), Some(1));
    assert_eq!(other.profile().dropped.moved, 0);
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
    // What may end yet, or be meant so, is none.
    let goes_on = BrickProfiler::enabled();
    let pass = goes_on.begin_pass(Phase::Decode);
    let timer = goes_on.start_brick(BrickId::LmHead);
    std::thread::scope(|scope| {
        let beside = || goes_on.stop_brick(goes_on.start_brick(BrickId::Embedding), 1);
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
    let later = ["1 span begun and never ended", "1 pass begun inside of another"];
    let later: usize = later.iter().map(|what| said.matches(what).count()).sum();
    assert_eq!(later, if cfg!(debug_assertions) { 2 } else { 0 }, "{said}");
    let warnings = said.matches("brickscope: all times add up").count();
    assert_eq!(warnings, warned + later, "{said}");
}
