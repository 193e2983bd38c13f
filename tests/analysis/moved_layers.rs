//! What moved by layer between runs of two sides, beside what was made slower in them.

use brickscope::{BrickId, BrickProfiler, MockClock};
use brickscope_analysis::compare::{
    LayerSpread, Moved, MovedLayer, MovedLayers, MovedPart, Process, Sample, Side, Turn, Verdict,
    Versus, versus,
};
use brickscope_profile::stats::SplitMix64;
use brickscope_profile::{Phase, Work};
use proptest::prelude::*;

/// What a pass of a run takes: of each layer its two bricks, then the one after the layers, and what is in no brick.
#[derive(Debug, Clone, PartialEq)]
struct Made {
    layers: Vec<[u64; 2]>,
    head: u64,
    bare: u64,
    tokens: u64,
    /// Whether the engine tells its layers.
    tells_layers: bool,
}

impl Made {
    fn of(layers: usize) -> Self {
        Self {
            layers: vec![[50_000, 100_000]; layers],
            head: 200_000,
            bare: 5_000,
            tokens: 1,
            tells_layers: true,
        }
    }

    /// A run of so many passes. Each takes up to 2 % more by chance, and each brick up to 1 %.
    fn run(&self, passes: u64, random: &mut SplitMix64) -> Process {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let kernel = profiler.kernel("mul_mat_q8_0", None);
        let mut more = |ns: u64, most: u64| ns + ns * (random.bits() % 1000) / 1000 * most / 100;
        for nth in 0..passes {
            let pass = profiler.begin_pass(Phase::Decode);
            let own = more(1_000, 2);
            let mut brick = |id: BrickId, ns: u64| {
                let timer = profiler.start_brick(id);
                let inner = profiler.start_kernel(kernel);
                hand.advance(more(ns * own / 1_000, 1));
                profiler.stop_kernel(inner, Work::default());
                profiler.stop_brick(timer, 1);
            };
            for (layer, [attention, feed]) in (0..).zip(&self.layers) {
                let timer = self.tells_layers.then(|| profiler.begin_layer(layer));
                brick(BrickId::QkvProjection, *attention);
                brick(BrickId::DownProjection, *feed);
                if let Some(timer) = timer {
                    profiler.end_layer(timer);
                }
            }
            brick(BrickId::LmHead, self.head);
            hand.advance(more(self.bare, 1));
            profiler.end_pass(pass, self.tokens, nth);
        }
        Process::from_profile("run", &profiler.profile()).expect("passes")
    }
}

fn sides(a: &Made, b: &Made, pairs: u64, passes: u64) -> [Side; 2] {
    let mut random = SplitMix64(11);
    let mut sides = [Side::default(), Side::default()];
    for pair in 0..pairs {
        for (side, made) in [a, b].into_iter().enumerate() {
            let place = 2 * pair + (pair + side as u64) % 2;
            let turns = vec![Turn { among: "here".to_owned(), place }];
            sides[side].processes.push(Process { turns, ..made.run(passes, &mut random) });
        }
    }
    sides
}

fn compared(a: &Made, b: &Made) -> Versus {
    let [a, b] = sides(a, b, 10, 8);
    versus(&a, &b, 3, 0.03).expect("compared")
}

fn layers(found: &Versus) -> &MovedLayers {
    found.moved[0].layers.as_ref().expect("both sides have layers")
}

#[test]
fn a_difference_in_all_layers_alike_is_told_as_one() {
    let a = Made::of(6);
    let mut b = a.clone();
    b.layers.iter_mut().for_each(|[_, feed]| *feed += 30_000);
    let found = compared(&a, &b);
    assert_eq!(found.comparison.tests[0].whole.verdict, Verdict::Slower);
    let layers = layers(&found);
    assert_eq!((layers.layers.len(), &layers.spread), (6, &Some(LayerSpread::Alike)));
    assert_eq!(layers.layers[5].bricks[0].name, "DownProjection");
    assert!((layers.in_layers.moved_ns - 180_000.0).abs() < 20_000.0, "{layers:?}");
}

#[test]
fn few_layers_with_most_of_it_are_named_with_their_brick() {
    let a = Made::of(8);
    let mut b = a.clone();
    b.layers[0][1] = 300_000;
    b.layers[1][1] = 250_000;
    let found = compared(&a, &b);
    let brick = Some("DownProjection".to_owned());
    let most = LayerSpread::Most { layers: vec![0, 1], brick };
    assert_eq!(layers(&found).spread, Some(most), "{:?}", layers(&found));
    // Three of eight aren't few, and aren't all.
    b.layers[2][1] = 300_000;
    assert_eq!(layers(&compared(&a, &b)).spread, None);
}

#[test]
fn what_is_after_the_layers_or_nowhere_is_spread_over_none() {
    let a = Made::of(8);
    let slow_head = Made { head: 400_000, ..a.clone() };
    let found = compared(&a, &slow_head);
    assert_eq!(found.comparison.tests[0].whole.verdict, Verdict::Slower);
    assert_eq!(layers(&found).spread, None);
    assert_eq!(layers(&found).outside.bricks[0].name, "LmHead");
    let found = compared(&a, &a);
    assert_ne!(found.comparison.tests[0].whole.verdict, Verdict::Slower);
    assert_eq!(layers(&found).spread, None);
}

#[test]
fn one_layer_takes_no_share_of_others() {
    let a = Made::of(1);
    let mut b = a.clone();
    b.layers[0][1] = 200_000;
    assert_eq!(layers(&compared(&a, &b)).spread, None);
}

#[test]
fn if_one_side_alone_has_layers_that_is_told() {
    let a = Made::of(4);
    let b = Made { tells_layers: false, ..a.clone() };
    let why = |found: &Versus| found.moved[0].layers_absent.clone().map(|absent| absent.reason);
    let found = compared(&a, &b);
    assert_eq!(found.moved[0].layers, None);
    assert_eq!(why(&found).as_deref(), Some("only the runs of A tell the layers of their bricks"));
    let found = compared(&b, &b);
    assert_eq!((&found.moved[0].layers, why(&found)), (&None, None));
}

/// A layer that only one side has took nothing on the other.
#[test]
fn a_model_with_more_layers_takes_more_in_these() {
    let found = compared(&Made::of(4), &Made::of(5));
    let last = &layers(&found).layers[4];
    assert_eq!((last.layer, last.whole.a_ns), (Some(4), None));
    let most = LayerSpread::Most { layers: vec![4], brick: Some("DownProjection".to_owned()) };
    assert_eq!(layers(&found).spread, Some(most));
}

/// By how much a sum may differ: means of bricks are rounded to a nanosecond, and rounded again by the token.
const ROUNDED: f64 = 2.0;

fn near(a: f64, b: f64, parts: usize) -> bool {
    (a - b).abs() <= ROUNDED * parts as f64
}

/// Layers and what is in none add up to the whole, cells to their layers, and cells of a brick to the brick.
fn adds_up(moved: &Moved) -> bool {
    let Some(layers) = &moved.layers else { return false };
    let all: Vec<&MovedLayer> = layers.layers.iter().chain([&layers.outside]).collect();
    let figures: [fn(&MovedPart) -> f64; 3] =
        [|of| of.a_ns.unwrap_or(0.0), |of| of.b_ns.unwrap_or(0.0), |of| of.moved_ns];
    let wholes = [moved.a_ns, moved.b_ns, moved.moved_ns()];
    figures.iter().zip(wholes).all(|(figure, whole)| {
        let sum: f64 = all.iter().map(|of| figure(&of.whole)).sum();
        let of_layers = all.iter().all(|of| {
            let cells: f64 = of.bricks.iter().map(figure).sum();
            near(cells, figure(&of.whole), 8)
        });
        let of_bricks = moved.parts.iter().all(|part| {
            let cells = all.iter().flat_map(|of| &of.bricks).filter(|of| of.name == part.name);
            near(cells.map(figure).sum(), figure(part), 1)
        });
        near(sum, whole, 1) && of_layers && of_bricks
    })
}

fn made() -> impl Strategy<Value = Made> {
    let times = || 1_000..1_000_000_u64;
    let layers = prop::collection::vec([times(), times()], 1..5);
    (layers, times(), times(), 1..4_u64).prop_map(|(layers, head, bare, tokens)| Made {
        layers,
        head,
        bare,
        tokens,
        tells_layers: true,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_runs_take_the_parts_add_up_by_layer_and_by_brick(
        two in prop::array::uniform2(made()),
        pairs in 1..5_u64,
        passes in 1..10_u64,
        is_disturbed in any::<bool>(),
    ) {
        let mut both = sides(&two[0], &two[1], pairs, passes);
        if is_disturbed {
            let all = both.iter_mut().flat_map(|side| &mut side.processes);
            all.for_each(|of| of.disturbed = passes);
        }
        // Two runs may happen to take the same times.
        let found = versus(&both[0], &both[1], 1, 0.03);
        prop_assume!(found.is_ok());
        if let Ok(found) = found {
            let by_token = two[0].tokens != two[1].tokens;
            let sample = if by_token { Sample::Token } else { Sample::Pass };
            prop_assert_eq!(found.comparison.tests[0].sample, sample);
            prop_assert!(adds_up(&found.moved[0]), "{:?}", found.moved[0]);
        }
    }
}
