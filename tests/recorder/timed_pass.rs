//! Passes that were timed elsewhere, and bricks of one's own.

use brickscope::handles::SpanAt;
use brickscope::{
    BrickCategory, BrickId, BrickKey, BrickProfiler, Disturbance, ExecutionNode, KernelId,
    MockClock, NameKind, Phase, Profile, TimedPass, TimedPassError, TimedSpan, TimedWork, Work,
};
use proptest::prelude::*;

fn profiler() -> (BrickProfiler, MockClock) {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    (profiler, hand)
}

fn keys(profiler: &BrickProfiler) -> ([BrickKey; 3], [KernelId; 2]) {
    let cache = profiler.named_brick("KvCache", BrickCategory::Attention);
    let bricks = [BrickId::RmsNorm.into(), cache, BrickId::LmHead.into()];
    (bricks, ["gemv", "copy"].map(|name| profiler.kernel(name, None)))
}

/// What begins in a pass, and what lies in it.
#[derive(Debug, Clone)]
enum Tree {
    Brick(usize, Vec<Self>),
    Kernel(usize, Vec<Self>),
    Layer(u16, Vec<Self>),
    Pause,
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Pause),
        (0..3_usize).prop_map(|n| Tree::Brick(n, Vec::new())),
        (0..2_usize).prop_map(|n| Tree::Kernel(n, Vec::new())),
    ];
    leaf.prop_recursive(3, 40, 5, |inner| {
        let inside = prop::collection::vec(inner, 0..5);
        prop_oneof![
            (0..3_usize, inside.clone()).prop_map(|(n, inside)| Tree::Brick(n, inside)),
            (0..2_usize, inside.clone()).prop_map(|(n, inside)| Tree::Kernel(n, inside)),
            (0..4_u16, inside).prop_map(|(n, inside)| Tree::Layer(n, inside)),
        ]
    })
}

/// Times a tree by timers, and lists the same spans.
struct Timers<'p> {
    profiler: &'p BrickProfiler,
    /// Whom the list is for: a key is of use only with its own.
    given: &'p BrickProfiler,
    hand: &'p MockClock,
    now: u64,
    spans: Vec<TimedSpan>,
}

impl Timers<'_> {
    fn advance(&mut self) {
        // Different steps, so that no two spans are equally long by accident.
        let step = 3 + self.spans.len() as u64 * 7;
        self.hand.advance(step);
        self.now += step;
    }

    fn run(&mut self, trees: &[Tree]) {
        let ((bricks, kernels), of_given) = (keys(self.profiler), keys(self.given));
        for (n, tree) in trees.iter().enumerate() {
            let work = Work { flops: n as u64, bytes: 9, ..Work::elements(5) };
            match tree {
                Tree::Pause => self.advance(),
                Tree::Brick(brick, inside) => {
                    let timer = self.profiler.start_brick(bricks[*brick]);
                    let what = TimedWork::Brick(of_given.0[*brick]);
                    self.around(what, work, inside);
                    self.profiler.stop_brick_with(timer, work);
                }
                Tree::Kernel(kernel, inside) => {
                    let timer = self.profiler.start_kernel(kernels[*kernel]);
                    self.around(TimedWork::Kernel(of_given.1[*kernel]), work, inside);
                    self.profiler.stop_kernel(timer, work);
                }
                Tree::Layer(layer, inside) => {
                    let timer = self.profiler.begin_layer(*layer);
                    self.around(TimedWork::Layer(*layer), Work::default(), inside);
                    self.profiler.end_layer(timer);
                }
            }
        }
    }

    fn around(&mut self, what: TimedWork, work: Work, inside: &[Tree]) {
        let at = self.spans.len();
        self.spans.push(TimedSpan { what, start_ns: self.now, end_ns: 0, work, layer: None });
        self.advance();
        self.run(inside);
        self.advance();
        self.spans[at].end_ns = self.now;
    }
}

fn comparable(profiler: &BrickProfiler) -> Profile {
    let mut profile = profiler.profile();
    profile.check().expect("it adds up");
    profile.created.clear();
    profile
}

proptest! {
    #[test]
    fn a_pass_that_was_timed_elsewhere_is_the_same_as_one_by_timers(
        passes in prop::collection::vec(prop::collection::vec(tree(), 0..6), 1..4),
    ) {
        let (by_timers, hand) = profiler();
        let (given, _) = profiler();
        keys(&given);
        let mut now = 0;
        for (nth, trees) in passes.iter().enumerate() {
            let phase = if nth == 0 { Phase::Prefill } else { Phase::Decode };
            let pass = by_timers.begin_pass(phase);
            let (profiler, given) = (&by_timers, &given);
            let mut timers = Timers { profiler, given, hand: &hand, now, spans: Vec::new() };
            timers.run(trees);
            timers.advance();
            let (start_ns, end_ns, spans) = (now, timers.now, timers.spans);
            now = end_ns;
            by_timers.end_pass(pass, 2, nth as u64);
            let pass = TimedPass {
                phase,
                start_ns,
                end_ns,
                tokens: 2,
                position: nth as u64,
                disturbance: None,
            };
            given.record_pass(&pass, &spans).expect("they nest");
        }
        let (expected, seen) = (comparable(&by_timers), comparable(&given));
        prop_assert_eq!(expected.spans, seen.spans);
        prop_assert_eq!(expected.passes, seen.passes);
        prop_assert_eq!(expected.phases, seen.phases);
        prop_assert_eq!(expected.totals, seen.totals);
        prop_assert_eq!(expected.dropped, seen.dropped);
    }
}

fn pass(start_ns: u64, end_ns: u64) -> TimedPass {
    TimedPass { phase: Phase::Decode, start_ns, end_ns, tokens: 1, position: 3, disturbance: None }
}

fn brick(start_ns: u64, end_ns: u64) -> TimedSpan {
    let what = TimedWork::Brick(BrickId::LmHead.into());
    TimedSpan { what, start_ns, end_ns, work: Work::elements(1), layer: None }
}

#[test]
fn spans_that_do_not_fit_are_named_and_nothing_is_recorded() {
    let (profiler, _) = profiler();
    let at = |index, start_ns, end_ns| {
        let what = TimedWork::Brick(BrickId::LmHead.into());
        SpanAt { index, what, start_ns, end_ns }
    };
    let unordered = TimedPassError::Unordered(at(1, 3, 4), 4);
    let said = "span 1 (LmHead, from 3 to 4 ns) begins before the span that is listed before it, \
                which begins at 4 ns";
    assert_eq!(unordered.to_string(), said);
    let outside = TimedPassError::Outside(at(0, 4, 6), [5, 10]);
    let said = "span 0 (LmHead, from 4 to 6 ns) isn't within the pass, which is from 5 to 10 ns";
    assert_eq!(outside.to_string(), said);
    for (refused, pass, spans) in [
        (TimedPassError::PassBackwards, pass(10, 9), vec![]),
        (TimedPassError::Backwards(at(1, 6, 5)), pass(0, 10), vec![brick(0, 4), brick(6, 5)]),
        (outside, pass(5, 10), vec![brick(4, 6)]),
        (TimedPassError::Outside(at(0, 6, 11), [5, 10]), pass(5, 10), vec![brick(6, 11)]),
        (unordered, pass(0, 10), vec![brick(4, 6), brick(3, 4)]),
        (TimedPassError::Crossing(at(1, 4, 7)), pass(0, 10), vec![brick(2, 6), brick(4, 7)]),
    ] {
        assert_eq!(profiler.record_pass(&pass, &spans), Err(refused), "{refused}");
    }
    let open = profiler.begin_pass(Phase::Decode);
    let refused = profiler.record_pass(&pass(0, 1), &[brick(0, 1)]);
    assert_eq!(refused, Err(TimedPassError::Nested));
    profiler.end_pass(open, 1, 0);
    let profile = profiler.profile();
    assert_eq!((profile.passes.len(), profile.spans.len()), (1, 0));
    profile.check().expect("it adds up");
}

#[test]
fn a_pass_that_was_timed_elsewhere_has_the_disturbance_that_was_given() {
    let (profiler, _) = profiler();
    let disturbance = Disturbance {
        longest_wait_ns: Some(600),
        run_queue_wait_ns: Some(700),
        ..Disturbance::default()
    };
    let disturbed = TimedPass { disturbance: Some(disturbance), ..pass(1_000, 2_000) };
    profiler.record_pass(&disturbed, &[brick(1_100, 1_900)]).expect("it fits");
    let quiet = TimedPass { disturbance: Some(Disturbance::default()), ..pass(3_000, 4_000) };
    profiler.record_pass(&quiet, &[brick(3_100, 3_900)]).expect("it fits");
    let profile = profiler.profile();
    profile.check().expect("it adds up");
    let seen: Vec<bool> = profile.passes.iter().map(brickscope::Pass::is_disturbed).collect();
    assert_eq!(seen, [true, false]);
    assert_eq!(profile.phases[0].unattributed_ns, 400);
}

#[test]
fn a_profiler_that_is_off_records_no_pass_that_was_timed_elsewhere() {
    let profiler = BrickProfiler::new();
    assert_eq!(profiler.record_pass(&pass(9, 1), &[]), Ok(()));
    assert!(profiler.profile().passes.is_empty());
}

#[test]
fn a_brick_of_ones_own_has_one_number_and_the_category_it_was_given_first() {
    let (profiler, hand) = profiler();
    // By its name alone, it has none yet.
    let timer = profiler.start("KvCache");
    hand.advance(5);
    profiler.stop(timer, 1);
    let cache = profiler.named_brick("KvCache", BrickCategory::Attention);
    assert_eq!(cache, profiler.named_brick("KvCache", BrickCategory::Ffn));
    assert_eq!(profiler.named_brick("LmHead", BrickCategory::Ffn), BrickId::LmHead.into());
    let timer = profiler.start_brick(cache);
    hand.advance(7);
    let timer = profiler.lap(timer, 1, BrickId::LmHead);
    hand.advance(11);
    profiler.stop_brick(timer, 1);

    let [_, attention, ffn, other] = profiler.category_stats().map(|stats| stats.total_ns);
    assert_eq!((attention, ffn, other), (12, 0, 11));
    let profile = profiler.profile();
    let total = |name: &str| {
        let is_it = |total: &&brickscope::Total| total.stats.name == name;
        profile.totals.iter().find(is_it).map(|total| (total.category, total.stats.count))
    };
    assert_eq!(total("KvCache"), Some((Some(BrickCategory::Attention), 2)));
    assert_eq!(total("LmHead"), Some((Some(BrickCategory::Other), 1)));
    let named: Vec<_> = profile
        .names
        .iter()
        .filter(|name| name.kind == NameKind::Brick && name.category.is_some())
        .map(|name| name.name.as_str())
        .collect();
    assert_eq!(named, ["KvCache"]);
    let read = Profile::from_json(&profile.to_json(), "here".as_ref()).expect("it is one");
    assert_eq!(read.names, profile.names);
}

#[test]
fn a_span_belongs_to_the_layer_it_states_or_else_to_the_one_it_lies_in() {
    let (profiler, _) = profiler();
    let of = |layer, start_ns| TimedSpan { layer, ..brick(start_ns, start_ns + 5) };
    let what = TimedWork::Layer(4);
    let layer = TimedSpan { what, work: Work::default(), ..brick(10, 40) };
    let spans = [of(None, 0), layer, of(None, 10), of(Some(9), 20), of(Some(0), 50)];
    profiler.record_pass(&pass(0, 60), &spans).expect("they nest");
    let profile = profiler.profile();
    let layers: Vec<_> = profile.spans.iter().map(|span| span.layer).collect();
    assert_eq!(layers, [None, Some(4), Some(4), Some(9), Some(0)]);
    // The tree has those that lie in no other.
    let graph = profile.execution_graph(profile.passes[0].serial).expect("it has spans");
    let layer = |node| match node {
        ExecutionNode::Layer { index } => Some(index),
        _ => None,
    };
    let mut layers: Vec<u32> = graph.nodes().filter_map(layer).collect();
    layers.sort_unstable();
    assert_eq!(layers, [0, 4]);
}
