//! What is exported is what there was: by readers of their own, and by speedscope's schema.

mod csv;
mod folded;
mod otlp;
mod pprof;
mod prometheus;
mod speedscope;
mod timelines;
mod wire;

use std::io;

use brickscope::{BrickId, BrickProfiler, MockClock, Phase, Profile, Work};
use brickscope_analysis::stacks::{By, Class, Frame, Level, Stacks, Unit};
use brickscope_testing::nesting;
use proptest::prelude::*;

/// A profile of random passes of two threads, with hand-offs between them; `log_capacity` spans of each are
/// kept.
fn profile(passes: &[Vec<nesting::Step>], log_capacity: usize) -> Profile {
    let (profiler, hand) = nesting::on(log_capacity);
    for (steps, phase) in passes.iter().zip(Phase::ALL.into_iter().cycle()) {
        let given = profiler.hand_off();
        nesting::pass(&profiler, &hand, phase, steps);
        let (profiler, hand) = (&profiler, &hand);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                profiler.take_over(given);
                nesting::play(profiler, hand, steps);
            });
        });
    }
    profiler.profile()
}

/// What an export writes.
fn bytes(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes).expect("it can be written");
    bytes
}

/// Stacks of functions with these names and weights.
fn functions<S: AsRef<str>>(list: &[(Vec<S>, u64)]) -> Stacks {
    let mut stacks = Stacks::new(Unit::Samples, 0);
    for (names, weight) in list {
        let frames: Vec<u32> = names
            .iter()
            .map(|name| {
                let (level, class) = (Level::Function, Class::Other);
                stacks.frame(Frame { name: name.as_ref().to_owned(), level, class })
            })
            .collect();
        stacks.add(&frames, *weight, 0);
    }
    stacks
}

/// Each stack's names and weight.
fn named(stacks: &Stacks) -> Vec<(Vec<String>, u64)> {
    let names = |stack| stacks.frames_of(stack).map(|frame| frame.name.clone()).collect();
    stacks.iter().map(|stack| (names(stack), stack.weight)).collect()
}

/// A run of two passes with two layers.
fn run() -> Stacks {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for (phase, nanos) in [(Phase::Prefill, 300), (Phase::Decode, 40)] {
        let pass = profiler.begin_pass(phase);
        hand.advance(1);
        for layer in 0..2 {
            let timer = profiler.begin_layer(layer);
            hand.advance(2);
            let kernel = profiler.kernel("gemv_q4_k_avx2", None);
            let brick = profiler.start_brick_kernel(BrickId::DownProjection, kernel);
            hand.advance(nanos);
            profiler.stop_brick_kernel(brick, Work::default());
            profiler.end_layer(timer);
        }
        profiler.end_pass(pass, 1, 0);
    }
    Stacks::of_spans(&profiler.profile(), By::Layer, 0)
}

/// Names of any letters, and often of those that formats treat apart.
fn name() -> impl Strategy<Value = String> {
    let hard = vec![
        "",
        " ",
        "%",
        "%25",
        "%3B",
        "%3b",
        "%F",
        ";",
        "a;b",
        "\n",
        "\r\n",
        "\"",
        "\\",
        "<b>&amp;",
        "a b",
        " a",
        "a ",
        "\u{a0}x\u{3000}",
        "\u{2028}",
        "\u{85}",
        "\0",
        "7",
        "a 7",
        "ядро",
        "核",
        "🧱",
        "%FF",
    ];
    prop_oneof![
        2 => prop::sample::select(hard).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[a-z_:<> %;0-9A-F]{0,12}",
    ]
}

fn stacks() -> impl Strategy<Value = Stacks> {
    let stack = (prop::collection::vec(name(), 1..6), 1_u64..1 << 40);
    prop::collection::vec(stack, 1..8).prop_map(|list| functions(&list))
}

/// A stack of 2000 frames of hard names.
fn deep() -> Stacks {
    let hard = ["\"quoted\"", "semi;colon", "<angle & brackets>", "new\nline", "", "имя", " "];
    let names = (0..2_000).map(|at| format!("{}{at}", hard[at % hard.len()])).collect();
    let all: Vec<String> = hard.iter().map(|name| (*name).to_owned()).collect();
    functions(&[(names, 3), (all, 4)])
}
