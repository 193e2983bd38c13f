//! What belongs to another profiler, or to another clock.

use brickscope::misuse::Misuse;
use brickscope::{
    BrickCategory, BrickId, BrickProfiler, PassTemplate, PassTimer, Phase, TimedPass,
    TimedPassError, Work,
};

use super::{brick, profiler, told};

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
