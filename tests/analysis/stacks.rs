//! Stacks of spans add up to the wall, to the nanosecond, whatever was nested in what and whatever
//! was dropped.

use std::collections::BTreeMap;

use brickscope::{BrickId, BrickProfiler, MockClock, NameKind, Phase, Profile, Work};
use brickscope_analysis::stacks::{By, Class, Level, NOT_KEPT, OUTSIDE, Stacks, UNATTRIBUTED};
use proptest::prelude::*;

use brickscope_testing::nesting::{Step, on, pass, play, steps};

const VIEWS: [By; 3] = [By::Layer, By::Brick, By::Thread];

/// Each stack as its frames' names, and its weight.
fn lines(stacks: &Stacks) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    for stack in stacks.iter() {
        let names: Vec<&str> = stacks.frames_of(stack).map(|frame| frame.name.as_str()).collect();
        *lines.entry(names.join(";")).or_default() += stack.weight;
    }
    lines
}

/// Holds stacks to the tables of the profile that they were made from.
fn hold(profile: &Profile, blocks: usize) {
    profile.check().expect("it adds up");
    for by in VIEWS {
        let stacks = Stacks::of_spans(profile, by, blocks);
        let mut walls: BTreeMap<&str, u64> = BTreeMap::new();
        let mut bricks: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for stack in stacks.iter() {
            assert_eq!(stack.by_block.len(), blocks);
            let placed: u64 = stack.by_block.iter().sum();
            let is_kept = stacks.frames_of(stack).all(|frame| frame.name != NOT_KEPT);
            assert_eq!(placed, if is_kept && blocks > 0 { stack.weight } else { 0 });
            let named = |level| {
                let mut frames = stacks.frames_of(stack).rev();
                frames.find(|frame| frame.level == level).map(|frame| frame.name.as_str())
            };
            let Some(phase) = named(Level::Phase) else {
                panic!("nothing here is of a helper: {stack:?}");
            };
            *walls.entry(phase).or_default() += stack.weight;
            if let Some(brick) = named(Level::Brick) {
                *bricks.entry((phase, brick)).or_default() += stack.weight;
            }
        }
        let mut expected: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for total in profile.totals.iter().filter(|total| total.kind == NameKind::Brick) {
            let phase = total.phase.map_or(OUTSIDE, Phase::name);
            *expected.entry((phase, &total.stats.name)).or_default() += total.stats.exclusive_ns;
        }
        for phase in Phase::ALL {
            let total = profile.phase(phase);
            assert_eq!(
                walls.get(phase.name()).copied(),
                total.map(|t| t.wall_ns).filter(|&n| n > 0)
            );
            let unattributed = total.map_or(0, |total| total.unattributed_ns);
            expected.insert((phase.name(), UNATTRIBUTED), unattributed);
        }
        // Outside of passes there is no wall that something could be unattributed of.
        bricks.remove(&(OUTSIDE, UNATTRIBUTED));
        expected.retain(|_, nanos| *nanos > 0);
        assert_eq!(bricks, expected, "{by:?}");
    }
}

/// What a clock that looked at each nanosecond would have seen.
struct Watcher {
    open: Vec<(Level, String)>,
    seen: BTreeMap<String, u64>,
}

impl Watcher {
    fn advance(&mut self, hand: &MockClock, nanos: u64) {
        hand.advance(nanos);
        if nanos == 0 {
            return;
        }
        let mut open = self.open.clone();
        if open.iter().any(|(level, _)| *level == Level::Brick) {
            // A layer in a brick has no time of its own, nor takes a kernel around it any.
            let is_layer = |(level, _): &(Level, String)| *level == Level::Layer;
            if open.last().is_some_and(is_layer) {
                let brick = open.iter().rposition(|(level, _)| *level == Level::Brick);
                open.truncate(brick.expect("there is one") + 1);
            }
        } else {
            let kernel = open.iter().position(|(level, _)| *level == Level::Kernel);
            let at = kernel.unwrap_or(open.len());
            open.insert(at, (Level::Brick, UNATTRIBUTED.to_owned()));
        }
        let names: Vec<String> = open.into_iter().map(|(_, name)| name).collect();
        *self.seen.entry(format!("prefill;{}", names.join(";"))).or_default() += nanos;
    }

    fn play(&mut self, profiler: &BrickProfiler, hand: &MockClock, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Idle(nanos) | Step::Told(nanos) => self.advance(hand, *nanos),
                Step::Brick(brick, inner) | Step::Forgotten(brick, inner) => {
                    let timer = profiler.start_brick(BrickId::ALL[*brick]);
                    self.open.push((Level::Brick, BrickId::ALL[*brick].name().to_owned()));
                    self.advance(hand, 3);
                    self.play(profiler, hand, inner);
                    profiler.stop_brick(timer, 1);
                    self.open.pop();
                }
                Step::Kernel(inner) | Step::Panic(_, inner) => {
                    let timer = profiler.start_kernel(profiler.kernel("kernel", None));
                    self.open.push((Level::Kernel, "kernel".to_owned()));
                    self.play(profiler, hand, inner);
                    profiler.stop_kernel(timer, Work::default());
                    self.open.pop();
                }
                Step::Layer(layer, inner) => {
                    let timer = profiler.begin_layer(*layer);
                    self.open.push((Level::Layer, format!("layer {layer}")));
                    self.play(profiler, hand, inner);
                    profiler.end_layer(timer);
                    self.open.pop();
                }
                Step::Deferred(_) => {}
            }
        }
    }
}

proptest! {
    #[test]
    fn stacks_are_what_was_open_at_each_nanosecond(steps in steps()) {
        let (profiler, hand) = on(10_000);
        let mut watcher = Watcher { open: Vec::new(), seen: BTreeMap::new() };
        let timer = profiler.begin_pass(Phase::Prefill);
        watcher.play(&profiler, &hand, &steps);
        profiler.end_pass(timer, 1, 0);
        let profile = profiler.profile();
        hold(&profile, 1);
        prop_assert_eq!(lines(&Stacks::of_spans(&profile, By::Layer, 0)), watcher.seen);
    }

    #[test]
    fn whatever_overlaps_panics_or_is_dropped(
        passes in prop::collection::vec(steps(), 1..6),
        room in prop_oneof![Just(10_000_usize), 0_usize..60],
        blocks in 0_usize..4,
    ) {
        let (profiler, hand) = on(room);
        for (i, steps) in passes.iter().enumerate() {
            play(&profiler, &hand, steps);
            pass(&profiler, &hand, Phase::ALL[i % 2], steps);
        }
        hold(&profiler.profile(), blocks);
        // In the middle of a pass.
        let _open = profiler.begin_pass(Phase::Decode);
        play(&profiler, &hand, &passes[0]);
        hold(&profiler.profile(), blocks);
    }

    #[test]
    fn on_many_threads_at_once(threads in prop::collection::vec(steps(), 2..5), room in 0_usize..99) {
        let (profiler, hand) = on(room);
        std::thread::scope(|scope| {
            for steps in &threads {
                scope.spawn(|| {
                    pass(&profiler, &hand, Phase::Decode, steps);
                    play(&profiler, &hand, steps);
                });
            }
        });
        hold(&profiler.profile(), 2);
    }
}

/// A brick of so many nanoseconds, all of them in a kernel.
fn brick_kernel(
    profiler: &BrickProfiler,
    hand: &MockClock,
    brick: BrickId,
    kernel: &str,
    nanos: u64,
) {
    let timer = profiler.start_brick_kernel(brick, profiler.kernel(kernel, None));
    hand.advance(nanos);
    profiler.stop_brick_kernel(timer, Work::default());
}

fn decode(profiler: &BrickProfiler, hand: &MockClock, nanos: u64) {
    let timer = profiler.begin_pass(Phase::Decode);
    hand.advance(1);
    for layer in 0..2 {
        let timer = profiler.begin_layer(layer);
        hand.advance(2);
        brick_kernel(profiler, hand, BrickId::DownProjection, "gemv_q4_k_avx2", nanos);
        profiler.end_layer(timer);
    }
    let head = profiler.start_brick(BrickId::LmHead);
    hand.advance(4);
    let kernel = profiler.start_kernel(profiler.kernel("gemv_f32_avx2", None));
    hand.advance(5);
    let share = profiler.start_kernel(profiler.kernel("share of thread 0", None));
    hand.advance(6);
    profiler.stop_kernel(share, Work::default());
    profiler.stop_kernel(kernel, Work::default());
    profiler.stop_brick(head, 1);
    profiler.end_pass(timer, 1, 0);
}

#[test]
fn a_pass_by_layer_and_by_brick() {
    let (profiler, hand) = on(100);
    decode(&profiler, &hand, 10);
    decode(&profiler, &hand, 30);
    let profile = profiler.profile();
    let by_layer = Stacks::of_spans(&profile, By::Layer, 2);
    let expected = [
        ("decode;LmHead", 8),
        ("decode;LmHead;gemv_f32_avx2", 10),
        ("decode;LmHead;gemv_f32_avx2;share of thread 0", 12),
        ("decode;layer 0;DownProjection;gemv_q4_k_avx2", 40),
        ("decode;layer 0;unattributed", 4),
        ("decode;layer 1;DownProjection;gemv_q4_k_avx2", 40),
        ("decode;layer 1;unattributed", 4),
        ("decode;unattributed", 2),
    ];
    let expected: BTreeMap<String, u64> =
        expected.into_iter().map(|(line, nanos)| (line.to_owned(), nanos)).collect();
    assert_eq!(lines(&by_layer), expected);
    let by_brick = Stacks::of_spans(&profile, By::Brick, 2);
    assert_eq!(lines(&by_brick)["decode;unattributed"], 10);
    assert_eq!(lines(&by_brick)["decode;DownProjection;gemv_q4_k_avx2"], 80);
    let down = &by_brick.inclusive(Level::Brick)[0];
    assert_eq!((down.name, &down.by_block[..]), ("DownProjection", &[20, 60][..]));
    // A share does what its kernel does.
    let shares = by_layer.inclusive(Level::Tile);
    assert_eq!((shares.len(), shares[0].class), (1, Class::Matmul));
    let classes: Vec<u64> = by_layer.by_class().iter().map(|sum| sum.weight).collect();
    assert_eq!(classes, [80, 22, 0, 0, 0, 18]);
}

#[test]
fn blocks_are_of_as_many_passes_each_in_the_order_of_time() {
    let (profiler, hand) = on(100);
    for nanos in [1, 2, 4, 8, 16] {
        pass(&profiler, &hand, Phase::Decode, &[Step::Idle(nanos)]);
        play(&profiler, &hand, &[Step::Brick(0, vec![Step::Idle(10 * nanos)])]);
    }
    let mut profile = profiler.profile();
    profile.passes.reverse();
    let stacks = Stacks::of_spans(&profile, By::Layer, 2);
    let blocks: Vec<_> =
        stacks.inclusive(Level::Phase).into_iter().map(|sum| (sum.name, sum.by_block)).collect();
    let outside = vec![70 + 9, 240 + 6];
    assert_eq!(blocks, [(OUTSIDE, outside), ("decode", vec![7, 24])]);
}

#[test]
fn the_bricks_of_an_abandoned_pass_are_outside_of_passes() {
    let (profiler, hand) = on(100);
    let abandoned = profiler.begin_pass(Phase::Decode);
    brick_kernel(&profiler, &hand, BrickId::LmHead, "gemv", 5);
    drop(abandoned);
    let profile = profiler.profile();
    hold(&profile, 1);
    let found: Vec<_> = lines(&Stacks::of_spans(&profile, By::Layer, 1)).into_iter().collect();
    assert_eq!(found, [("outside of passes;LmHead;gemv".to_owned(), 5)]);
}

#[test]
fn a_kernel_in_no_brick_and_no_pass_is_there_by_thread_without_the_passes_in_it() {
    let (profiler, hand) = on(100);
    let kernel = profiler.kernel("kernel", None);
    let alone = profiler.start_kernel(kernel);
    hand.advance(4);
    profiler.stop_kernel(alone, Work::default());
    let around = profiler.start_kernel(kernel);
    hand.advance(3);
    pass(&profiler, &hand, Phase::Decode, &[Step::Idle(2)]);
    profiler.stop_kernel(around, Work::default());
    let profile = profiler.profile();
    let sums = |by| {
        let phases = Stacks::of_spans(&profile, by, 0);
        let phases = phases.inclusive(Level::Phase);
        phases.iter().map(|sum| (sum.name.to_owned(), sum.weight)).collect::<Vec<_>>()
    };
    let sum = |name: &str, nanos| (name.to_owned(), nanos);
    assert_eq!(sums(By::Layer), [sum("decode", 2)]);
    assert_eq!(sums(By::Thread), [sum(OUTSIDE, 4), sum("decode", 2)]);
}

#[test]
fn what_other_threads_do_for_a_pass_is_in_no_wall_and_on_their_own_threads() {
    let (profiler, hand) = on(100);
    let timer = profiler.begin_pass(Phase::Decode);
    let kernel =
        profiler.start_brick_kernel(BrickId::LmHead, profiler.kernel("gemv_q4_k_avx2", None));
    let handed = profiler.hand_off();
    let work = || {
        profiler.take_over(handed);
        let share = profiler.start_kernel(profiler.kernel("share of thread 1", None));
        hand.advance(7);
        profiler.stop_kernel(share, Work::default());
        let back = profiler.hand_off();
        // Who runs a pass of its own helps nobody any more.
        profiler.end_pass(profiler.begin_pass(Phase::Decode), 1, 0);
        brick_kernel(&profiler, &hand, BrickId::Sampling, "sample", 3);
        back
    };
    let back = std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("worker".to_owned());
        worker.spawn_scoped(scope, work).expect("a thread").join().expect("no panic")
    });
    profiler.take_over(back);
    profiler.stop_brick_kernel(kernel, Work::default());
    profiler.end_pass(timer, 1, 0);
    // After the pass this thread works for itself, though it took over something in it.
    let outside = profiler.start_brick(BrickId::Embedding);
    hand.advance(2);
    profiler.stop_brick(outside, 1);
    let profile = profiler.profile();
    let names = |by| lines(&Stacks::of_spans(&profile, by, 1)).into_iter().collect::<Vec<_>>();
    let line = |line: &str, nanos| (line.to_owned(), nanos);
    let expected = [
        line("decode;LmHead;gemv_q4_k_avx2", 10),
        line("outside of passes;Embedding", 2),
        line("outside of passes;Sampling;sample", 3),
    ];
    assert_eq!(names(By::Layer), expected);
    let main = std::thread::current().name().expect("the test has a name").to_owned();
    let mut expected = [
        line(&format!("{main};decode;LmHead;gemv_q4_k_avx2"), 10),
        line(&format!("{main};outside of passes;Embedding"), 2),
        line("worker;gemv_q4_k_avx2;share of thread 1", 7),
        line("worker;outside of passes;Sampling;sample", 3),
    ];
    expected.sort();
    assert_eq!(names(By::Thread), expected);
}

#[test]
fn of_passes_whose_spans_were_dropped_there_are_sums() {
    // Room for the first pass only, which has 8 spans.
    let (profiler, hand) = on(12);
    for nanos in [10, 30, 50] {
        decode(&profiler, &hand, nanos);
    }
    let profile = profiler.profile();
    assert!(profile.dropped.spans > 0);
    hold(&profile, 3);
    let stacks = Stacks::of_spans(&profile, By::Layer, 3);
    let lines = lines(&stacks);
    assert_eq!(lines["decode;layer 0;DownProjection;gemv_q4_k_avx2"], 10);
    assert_eq!(lines["decode;[spans not kept];DownProjection"], 160);
    assert_eq!(lines["decode;[spans not kept];LmHead"], 30);
    assert_eq!(lines["decode;[spans not kept];unattributed"], 10);
    // One pass is in a block; of the rest it isn't known.
    assert_eq!(stacks.block_totals().iter().filter(|&&nanos| nanos > 0).count(), 1);
    let sums: u64 = Stacks::of_spans(&profile, By::Thread, 0)
        .inclusive(Level::Thread)
        .iter()
        .filter(|sum| sum.name == NOT_KEPT)
        .map(|sum| sum.weight)
        .sum();
    assert_eq!(sums, 200);
}

#[test]
fn deferred_bricks_are_there_and_passes_that_were_left_out_are_not() {
    let (profiler, hand) = on(100);
    let pass = profiler.begin_pass(Phase::Decode);
    let layer = profiler.begin_layer(0);
    profiler.record_deferred(BrickId::RmsNorm, profiler.elapsed_ns(), 1);
    hand.advance(5);
    profiler.record_deferred(BrickId::LmHead, profiler.elapsed_ns(), 1);
    hand.advance(6);
    profiler.end_layer(layer);
    profiler.finalize(profiler.elapsed_ns());
    hand.advance(1);
    profiler.end_pass(pass, 1, 0);
    let mut profile = profiler.profile();
    hold(&profile, 1);
    // The layer overlaps the bricks, which were told after it; so it has no time of its own.
    let found: Vec<_> = lines(&Stacks::of_spans(&profile, By::Layer, 0)).into_iter().collect();
    let expected = [("decode;LmHead", 6), ("decode;RmsNorm", 5), ("decode;unattributed", 1)];
    assert_eq!(found, expected.map(|(line, nanos)| (line.to_owned(), nanos)));

    profile.passes[0].is_left_out = true;
    profile.phases.clear();
    profile.totals.clear();
    assert!(Stacks::of_spans(&profile, By::Thread, 0).is_empty());
}

#[test]
fn spans_nested_beyond_any_sense_are_drawn_at_a_bounded_depth() {
    let (profiler, hand) = on(5_000);
    let pass = profiler.begin_pass(Phase::Decode);
    let timers: Vec<_> = (0..2_000)
        .map(|at| {
            hand.advance(1);
            profiler.start_brick(BrickId::ALL[at % 15])
        })
        .collect();
    hand.advance(1);
    timers.into_iter().rev().for_each(|timer| {
        profiler.stop_brick(timer, 1);
    });
    profiler.end_pass(pass, 1, 0);
    let profile = profiler.profile();
    hold(&profile, 1);
    let stacks = Stacks::of_spans(&profile, By::Layer, 0);
    assert!(stacks.iter().all(|stack| stack.frames.len() <= 257));
    assert_eq!(stacks.total(), 2_001);
}
