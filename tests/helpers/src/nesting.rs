//! Random nesting of passes, layers, bricks and kernels, by a clock that a test turns.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brickscope::{BrickId, BrickProfiler, MockClock, Phase};
use proptest::prelude::*;

/// What a thread does in a pass.
#[derive(Debug, Clone)]
pub enum Step {
    /// Time that no brick explains.
    Idle(u64),
    /// A brick with steps inside.
    Brick(usize, Vec<Step>),
    /// A kernel with steps inside.
    Kernel(Vec<Step>),
    /// A layer with steps inside.
    Layer(u16, Vec<Step>),
    /// A brick that begins and never ends, though its steps do.
    Forgotten(usize, Vec<Step>),
    /// A brick in which something panics after these steps; somebody outside catches it.
    Panic(usize, Vec<Step>),
    /// A brick that was timed elsewhere and ends now.
    Told(u64),
    /// Deferred bricks, this far apart.
    Deferred(Vec<u64>),
}

/// Some steps, random.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![
        (0u64..1_000).prop_map(Step::Idle),
        (0u64..2_000).prop_map(Step::Told),
        prop::collection::vec(0u64..500, 0..4).prop_map(Step::Deferred),
    ];
    let step = leaf.prop_recursive(5, 64, 6, |step| {
        let inner = prop::collection::vec(step, 0..6);
        prop_oneof![
            4 => (0usize..15, inner.clone()).prop_map(|(brick, inner)| Step::Brick(brick, inner)),
            1 => inner.clone().prop_map(Step::Kernel),
            1 => (0u16..4, inner.clone()).prop_map(|(layer, inner)| Step::Layer(layer, inner)),
            1 => (0usize..15, inner.clone()).prop_map(|(b, inner)| Step::Forgotten(b, inner)),
            1 => (0usize..15, inner).prop_map(|(brick, inner)| Step::Panic(brick, inner)),
        ]
    });
    prop::collection::vec(step, 0..12)
}

/// Takes the steps, by a clock that it turns.
pub fn play(profiler: &BrickProfiler, hand: &MockClock, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Idle(nanos) => hand.advance(*nanos),
            Step::Brick(brick, inner) => {
                let timer = profiler.start_brick(BrickId::ALL[*brick]);
                hand.advance(3);
                play(profiler, hand, inner);
                profiler.stop_brick(timer, 1);
            }
            Step::Kernel(inner) => {
                let timer = profiler.start_kernel(profiler.kernel("kernel", None));
                play(profiler, hand, inner);
                profiler.stop_kernel(timer, Default::default());
            }
            Step::Layer(layer, inner) => {
                let timer = profiler.begin_layer(*layer);
                play(profiler, hand, inner);
                profiler.end_layer(timer);
            }
            Step::Forgotten(brick, inner) => {
                let timer = profiler.start_brick(BrickId::ALL[*brick]);
                play(profiler, hand, inner);
                let _ = timer;
            }
            Step::Panic(brick, inner) => {
                let result = catch_unwind(AssertUnwindSafe(|| {
                    let _timer = profiler.start_brick(BrickId::ALL[*brick]);
                    play(profiler, hand, inner);
                    // Not `panic!`, which would write each of them to the terminal.
                    std::panic::resume_unwind(Box::new(()));
                }));
                assert!(result.is_err());
            }
            Step::Told(nanos) => {
                profiler.record_elapsed("Told", std::time::Duration::from_nanos(*nanos), 1);
            }
            Step::Deferred(gaps) => {
                for gap in gaps {
                    profiler.record_deferred(BrickId::LmHead, profiler.elapsed_ns(), 1);
                    hand.advance(*gap);
                }
                profiler.finalize(profiler.elapsed_ns());
            }
        }
    }
}

/// A profiler that is on, with the hand of its clock.
pub fn on(log_capacity: usize) -> (BrickProfiler, MockClock) {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock()).with_log_capacity(log_capacity);
    profiler.enable();
    (profiler, hand)
}

/// Plays one pass.
pub fn pass(profiler: &BrickProfiler, hand: &MockClock, phase: Phase, steps: &[Step]) {
    let timer = profiler.begin_pass(phase);
    play(profiler, hand, steps);
    profiler.end_pass(timer, 1, 0);
}
