//! Spans of engines that don't exist, by a clock that is turned by hand.

use std::cell::RefCell;
use std::collections::BTreeMap;

use brickscope::{BrickId, MockClock, Profile};
use proptest::prelude::*;
use tracing::{Span, trace_span};
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

const ATTENTION: BrickCategory = BrickCategory::Attention;

/// A profiler that is on, its clock, and the layer in a subscriber that `run` is run under.
struct Engine {
    profiler: Arc<BrickProfiler>,
    hand: MockClock,
    layer: BrickLayer,
}

impl Engine {
    fn new(map: Map) -> Self {
        let hand = MockClock::default();
        let profiler = Arc::new(BrickProfiler::with_clock(hand.clock()));
        profiler.enable();
        let layer = BrickLayer::new(&profiler, map);
        Self { profiler, hand, layer }
    }

    fn run<T>(&self, run: impl FnOnce() -> T) -> T {
        let subscriber = tracing_subscriber::registry().with(self.layer.clone());
        tracing::subscriber::with_default(subscriber, run)
    }

    fn wait(&self, nanos: u64) {
        self.hand.advance(nanos);
    }

    /// Bricks with their layer and time, in the order in which they ended; then what no brick explains.
    fn recorded(&self) -> String {
        let profile = self.profile();
        let mut lines: Vec<String> = Vec::new();
        for span in &profile.spans {
            let Some(name) = span.name else { continue };
            let layer = span.layer.map_or(String::new(), |layer| format!("{layer}:"));
            assert_eq!(span.exclusive_ns, span.duration_ns, "no piece lies in another one");
            assert!(span.pass.is_some());
            lines.push(format!(
                "{layer}{} {}",
                profile.names[usize::from(name)].name,
                span.duration_ns
            ));
        }
        for phase in &profile.phases {
            lines.push(format!("{} passes, {} left", phase.passes, phase.unattributed_ns));
        }
        lines.join(", ")
    }

    /// What was recorded, which adds up.
    fn profile(&self) -> Profile {
        let profile = self.profiler.profile();
        assert_eq!(profile.check(), Ok(()));
        profile
    }
}

/// `norm`, `q`, `attn` and `block` with a field, as an engine that makes its spans anew in each pass might have them.
fn by_name() -> Map {
    Map::new(|span| match span.name() {
        "norm" => Role::brick(BrickId::RmsNorm),
        "q" => Role::brick(BrickId::QkvProjection),
        "attn" => Role::named("Attention", ATTENTION),
        "block" => Role::layer(span.number("index")),
        "forward" if span.text("phase").as_deref() == Some("prefill") => {
            Role::pass(Phase::Prefill, span.number("tokens").unwrap_or(0), 0)
        }
        "forward" => Role::pass(Phase::Decode, 1, span.number("position").unwrap_or(0)),
        "around" => Role::around(),
        _ => Role::unknown(),
    })
}

#[test]
fn a_span_with_others_in_it_is_recorded_in_pieces() {
    let engine = Engine::new(by_name());
    engine.run(|| {
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        engine.wait(1);
        trace_span!("attn").in_scope(|| {
            engine.wait(2);
            trace_span!("q").in_scope(|| engine.wait(10));
            trace_span!("around").in_scope(|| engine.wait(3));
            trace_span!("q").in_scope(|| engine.wait(20));
            engine.wait(4);
        });
        engine.wait(5);
        pass.end();
    });
    assert_eq!(
        engine.recorded(),
        "Attention 2, QkvProjection 10, Attention 3, QkvProjection 20, Attention 4, 1 passes, 6 left"
    );
    let profile = engine.profile();
    let attention = profile.names.iter().find(|name| name.name == "Attention").expect("it ran");
    assert_eq!(attention.category, Some(ATTENTION));
}

#[test]
fn a_layer_by_a_field_has_the_spans_in_it_and_a_span_may_enter_itself() {
    let engine = Engine::new(by_name());
    engine.run(|| {
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        for index in 0..2_u64 {
            let _block = trace_span!("block", index).entered();
            engine.wait(1);
            let norm = trace_span!("norm");
            norm.in_scope(|| {
                engine.wait(2);
                norm.in_scope(|| engine.wait(3));
                engine.wait(4);
            });
        }
        // No such layer: a block around, whose time is nobody's.
        trace_span!("block", index = -1_i64).in_scope(|| engine.wait(7));
        trace_span!("block").in_scope(|| trace_span!("norm").in_scope(|| engine.wait(8)));
        pass.end();
    });
    assert_eq!(
        engine.recorded(),
        "0:RmsNorm 2, 0:RmsNorm 3, 0:RmsNorm 4, 1:RmsNorm 2, 1:RmsNorm 3, 1:RmsNorm 4, RmsNorm 8, \
         1 passes, 9 left"
    );
}

#[test]
fn layers_without_a_span_last_until_another_one_begins() {
    let engine = Engine::new(Map::new(|span| match (span.name(), span.nth()) {
        ("norm", 4) => Role::brick(BrickId::RmsNorm).outside_layers(),
        ("norm", nth) => Role::brick(BrickId::RmsNorm).in_layer(nth / 2),
        _ => Role::named("Tail", BrickCategory::Other),
    }));
    engine.run(|| {
        let norms: Vec<Span> = (0..5).map(|_| trace_span!("norm")).collect();
        let head = trace_span!("head");
        for _ in 0..2 {
            let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
            for norm in &norms {
                norm.in_scope(|| engine.wait(1));
                engine.wait(10);
            }
            head.in_scope(|| engine.wait(2));
            pass.end();
        }
    });
    let one = "0:RmsNorm 1, 0:RmsNorm 1, 1:RmsNorm 1, 1:RmsNorm 1, RmsNorm 1, Tail 2";
    assert_eq!(engine.recorded(), format!("{one}, {one}, 2 passes, 100 left"));
    let profile = engine.profile();
    let layers: Vec<u64> =
        profile.spans.iter().filter(|span| span.name.is_none()).map(|l| l.duration_ns).collect();
    // With what lies between a span of it and the first one of another.
    assert_eq!(layers, [22, 22, 22, 22]);
}

#[test]
fn spans_around_a_pass_are_not_of_it() {
    let engine = Engine::new(by_name());
    engine.run(|| {
        let outer = trace_span!("attn").entered();
        engine.wait(100);
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        engine.wait(1);
        trace_span!("q").in_scope(|| engine.wait(2));
        // It was entered before the pass.
        drop(outer);
        let cut = trace_span!("norm").entered();
        engine.wait(4);
        pass.end();
        engine.wait(100);
        drop(cut);
        trace_span!("q").in_scope(|| engine.wait(100));
        engine.layer.begin_pass(Phase::Prefill, 3, 0).end();
    });
    assert_eq!(engine.recorded(), "QkvProjection 2, RmsNorm 4, 1 passes, 0 left, 1 passes, 1 left");
    let seen = engine.layer.seen();
    assert_eq!((seen.outside, seen.out_of_order), (2, 0));
}

#[test]
fn spans_that_cross_leave_the_time_to_the_one_that_was_entered_last() {
    let engine = Engine::new(by_name());
    engine.run(|| {
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        let (attn, around, q) = (trace_span!("attn"), trace_span!("around"), trace_span!("q"));
        let attn = attn.entered();
        engine.wait(1);
        let q = q.entered();
        engine.wait(2);
        drop(attn);
        engine.wait(4);
        drop(q);
        engine.wait(8);
        // What is around no brick any more has no brick.
        let attn = trace_span!("attn").entered();
        let around = around.entered();
        engine.wait(16);
        drop(attn);
        engine.wait(32);
        drop(around);
        pass.end();
    });
    assert_eq!(engine.recorded(), "Attention 1, QkvProjection 6, Attention 16, 1 passes, 40 left");
    assert_eq!(engine.layer.seen().out_of_order, 2);
}

#[test]
fn a_span_that_is_closed_while_it_is_entered_ends_where_it_is_exited() {
    let engine = Engine::new(by_name());
    engine.run(|| {
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        let span = trace_span!("q");
        let id = span.id().expect("it is on");
        span.with_subscriber(|(id, to)| to.enter(id));
        engine.wait(3);
        // The registry holds what is entered; a subscriber that doesn't would say that it is closed.
        engine.layer.shared.forget(id.into_u64());
        engine.wait(4);
        span.with_subscriber(|(id, to)| to.exit(id));
        engine.wait(5);
        pass.end();
    });
    assert_eq!(engine.recorded(), "QkvProjection 7, 1 passes, 5 left");
}

#[test]
fn spans_of_other_threads_are_counted_and_not_mixed_in() {
    let engine = Engine::new(by_name());
    engine.run(|| {
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        let attn = trace_span!("attn").entered();
        let q = trace_span!("q");
        engine.wait(1);
        std::thread::scope(|scope| {
            scope.spawn(|| q.in_scope(|| engine.wait(10)));
        });
        drop(attn);
        pass.end();
    });
    assert_eq!(engine.recorded(), "Attention 11, 1 passes, 0 left");
    assert_eq!(engine.layer.seen().outside, 1);
}

#[test]
fn a_span_can_be_the_pass() {
    let engine = Engine::new(by_name());
    engine.run(|| {
        let forward = trace_span!("forward", phase = "prefill", tokens = 5_u64);
        forward.in_scope(|| {
            engine.wait(1);
            trace_span!("q").in_scope(|| engine.wait(2));
            // Inside of a pass it is around, and its own end does not end the pass.
            trace_span!("forward", position = 9_u64).in_scope(|| engine.wait(4));
            trace_span!("q").in_scope(|| engine.wait(8));
        });
        trace_span!("forward", position = 5_u64).in_scope(|| engine.wait(16));
    });
    assert_eq!(
        engine.recorded(),
        "QkvProjection 2, QkvProjection 8, 1 passes, 5 left, 1 passes, 16 left"
    );
    let profile = engine.profile();
    let passes: Vec<_> = profile.passes.iter().map(|p| (p.phase, p.tokens, p.position)).collect();
    assert_eq!(passes, [(Phase::Prefill, 5, 0), (Phase::Decode, 1, 5)]);
}

#[test]
fn a_pass_that_is_dropped_or_panics_is_abandoned_and_the_next_one_is_whole() {
    let engine = Engine::new(by_name());
    engine.run(|| {
        let fails = || {
            let _pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
            let _block = trace_span!("block", index = 3_u64).entered();
            std::mem::forget(trace_span!("q").entered());
            engine.wait(1);
            None::<u8>
        };
        assert_eq!(fails(), None);
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            trace_span!("forward").in_scope(|| std::panic::resume_unwind(Box::new(())))
        }));
        assert!(panics.is_err());
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        trace_span!("norm").in_scope(|| engine.wait(2));
        pass.end();
    });
    let profile = engine.profile();
    assert_eq!(profile.dropped.abandoned_passes, 2);
    assert_eq!((profile.phases[0].passes, profile.phases[0].unattributed_ns), (1, 0));
    let norm = profile.spans.last().expect("the norm");
    assert_eq!((norm.layer, norm.duration_ns), (None, 2));
}

#[test]
fn a_pass_in_a_pass_has_no_spans_of_its_own() {
    let engine = Engine::new(by_name());
    engine.run(|| {
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        let inner = engine.layer.begin_pass(Phase::Decode, 1, 0);
        trace_span!("q").in_scope(|| engine.wait(1));
        inner.end();
        trace_span!("norm").in_scope(|| engine.wait(2));
        pass.end();
    });
    assert_eq!(engine.recorded(), "QkvProjection 1, RmsNorm 2, 1 passes, 0 left");
    assert_eq!(engine.profile().dropped.nested_passes, 1);
}

#[test]
fn a_profiler_that_is_off_reads_no_clock_and_learns_no_name() {
    let engine = Engine::new(by_name());
    engine.profiler.disable();
    let before = engine.hand.reads();
    let spans = engine.run(|| {
        let spans = [trace_span!("attn"), trace_span!("mystery")];
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        spans.iter().for_each(|span| span.in_scope(|| engine.wait(1)));
        pass.end();
        spans
    });
    assert_eq!(engine.hand.reads(), before);
    assert_eq!(engine.layer.seen().outside, 0);
    assert_eq!(engine.profile().names.len(), BrickId::COUNT);
    // Spans that were made meanwhile are known when it is on.
    engine.profiler.enable();
    engine.run(|| {
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        spans.iter().for_each(|span| span.in_scope(|| engine.wait(1)));
        pass.end();
    });
    assert_eq!(engine.recorded(), "Attention 1, mystery 1, 1 passes, 0 left");
}

#[test]
fn a_span_that_the_map_does_not_know_is_a_brick_of_its_own_and_named() {
    let engine = Engine::new(by_name());
    assert!(engine.layer.seen().to_string().contains("before the model is loaded"));
    engine.run(|| {
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        for _ in 0..2 {
            trace_span!(target: "engine", "mystery").in_scope(|| engine.wait(1));
        }
        trace_span!("norm").in_scope(|| engine.wait(1));
        pass.end();
    });
    assert_eq!(engine.recorded(), "mystery 1, mystery 1, RmsNorm 1, 1 passes, 0 left");
    let seen = engine.layer.seen();
    let unmapped = Unmapped { target: "engine", name: "mystery", made: 2 };
    assert_eq!((seen.made, &seen.unmapped), (3, &vec![unmapped]));
    assert_eq!(seen.to_string(), "3 spans were made\nnot in the map: 2 of engine::mystery");
}

#[test]
fn a_weight_states_the_work_of_its_product() {
    let weight = Weight { rows: 8, columns: 4, bytes: 34 };
    let engine =
        Engine::new(Map::new(move |_| Role::brick(BrickId::UpProjection).with_weight(weight)));
    engine.run(|| {
        let pass = engine.layer.begin_pass(Phase::Prefill, 3, 0);
        trace_span!("up").in_scope(|| engine.wait(1));
        pass.end();
    });
    let up = engine.profiler.brick_stats(BrickId::UpProjection);
    assert_eq!((up.count, up.total_elements), (1, 24));
    let work = engine.profile().spans[0].work;
    assert_eq!((work.flops, work.bytes), (2 * 8 * 4 * 3, 34 + 3 * 48));
}

/// The spans of a two-layer `quantized_llama`, as its constructor makes them.
fn load_quantized_llama() -> Vec<Span> {
    let mut spans = Vec::new();
    let mut make = |name: &str| {
        spans.push(match name {
            "rms-norm" => trace_span!(target: "candle_transformers::quantized_nn", "rms-norm"),
            "qmatmul" => trace_span!(target: "candle_transformers::models::x", "qmatmul"),
            "attn" => trace_span!(target: "candle_transformers::models::x", "attn"),
            "attn-rot" => trace_span!(target: "candle_transformers::models::x", "attn-rot"),
            "attn-mlp" => trace_span!(target: "candle_transformers::models::x", "attn-mlp"),
            "model" => trace_span!(target: "candle_transformers::models::x", "model"),
            _ => trace_span!(target: "candle_transformers::models::x", "output"),
        });
    };
    make("rms-norm");
    for _ in 0..2 {
        for name in ["qmatmul"; 3].into_iter().chain(["attn", "attn-rot", "attn-mlp"]) {
            make(name);
        }
        for name in ["qmatmul"; 4].into_iter().chain(["rms-norm"; 2]) {
            make(name);
        }
    }
    for name in ["model", "output", "qmatmul"] {
        make(name);
    }
    spans
}

const LAYER: &str = "0:GateProjection 1, 0:DownProjection 1, 0:UpProjection 1, 0:attn 1, \
     0:RopeEmbedding 1, 0:attn-mlp 1, 0:QkvProjection 1, 0:QkvProjection 1, 0:QkvProjection 1, \
     0:OutputProjection 1, 0:RmsNorm 1, 0:RmsNorm 1, ";

fn whole_model() -> String {
    format!("RmsNorm 1, {LAYER}{}LmHead 1, ", LAYER.replace("0:", "1:"))
}

#[test]
fn models_are_found_by_the_order_of_their_spans_one_after_the_other_and_after_failures() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&asked);
    let map = Map::candle_quantized_llama().with_weights(move |name| {
        lock(&names).push(name.to_owned());
        None
    });
    let engine = Engine::new(map);
    engine.run(|| {
        let first = load_quantized_llama();
        // The loading of this one fails: its spans are dropped.
        drop(load_quantized_llama().drain(..9).collect::<Vec<_>>());
        let failed = (0..3).map(|_| trace_span!(target: "candle_transformers::x", "qmatmul"));
        drop(failed.collect::<Vec<_>>());
        // Another thread's spans come in between.
        let second = std::thread::scope(|scope| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let other = scope
                .spawn(move || tracing::dispatcher::with_default(&dispatch, load_quantized_llama));
            trace_span!(target: "app", "qmatmul").in_scope(|| {});
            let second = load_quantized_llama();
            drop(other.join().expect("no panic"));
            second
        });
        for model in [first, second] {
            let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
            model.iter().for_each(|span| span.in_scope(|| engine.wait(1)));
            pass.end();
        }
    });
    let model = whole_model();
    assert_eq!(engine.recorded(), format!("{model}{model}2 passes, 4 left"));
    let asked = lock(&asked);
    let first: Vec<&str> = asked.iter().take(4).map(String::as_str).collect();
    assert_eq!(first[..2], ["blk.0.ffn_gate.weight", "blk.0.ffn_down.weight"]);
    assert!(asked.contains(&"blk.1.attn_output.weight".to_owned()));
    assert!(asked.contains(&"token_embd.weight".to_owned()), "a tied head");
}

#[test]
fn pieces_of_a_span_that_compute_different_things_are_different_bricks() {
    let engine = Engine::new(Map::candle_quantized_llama());
    engine.run(|| {
        let spans = load_quantized_llama();
        let inner = |span: usize, nanos| spans[span].in_scope(|| engine.wait(nanos));
        let (attn, rot, mlp) = (&spans[4], 5, &spans[6]);
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        for _ in 0..2 {
            attn.in_scope(|| {
                for (nth, span) in [7, 8, 9, rot, rot].into_iter().enumerate() {
                    engine.wait(1 + nth as u64);
                    inner(span, 10);
                }
                engine.wait(100);
                inner(10, 10);
                engine.wait(7);
            });
        }
        mlp.in_scope(|| {
            [12, 1, 3].into_iter().for_each(|span| inner(span, 10));
            engine.wait(50);
            inner(2, 10);
            engine.wait(5);
        });
        pass.end();
    });
    let attention = "0:attn 1, 0:QkvProjection 10, 0:attn 2, 0:QkvProjection 10, 0:attn 3, \
         0:QkvProjection 10, 0:attn 4, 0:RopeEmbedding 10, 0:attn 5, 0:RopeEmbedding 10, \
         0:Attention 100, 0:OutputProjection 10, 0:attn 7, ";
    let mlp = "0:attn-mlp 0, 0:RmsNorm 10, 0:attn-mlp 0, 0:GateProjection 10, 0:attn-mlp 0, \
         0:UpProjection 10, 0:Activation 50, 0:DownProjection 10, 0:Residual 5, ";
    assert_eq!(engine.recorded(), format!("{attention}{attention}{mlp}1 passes, 0 left"));
}

#[test]
fn a_model_that_is_made_otherwise_gets_no_label_rather_than_a_wrong_one() {
    let engine = Engine::new(Map::candle_quantized_llama());
    engine.run(|| {
        // Experts: more products than the order has.
        let make = || trace_span!(target: "candle_transformers::x", "qmatmul");
        let spans: Vec<Span> = (0..9).map(|_| make()).collect();
        let pass = engine.layer.begin_pass(Phase::Decode, 1, 0);
        spans.iter().for_each(|span| span.in_scope(|| engine.wait(1)));
        pass.end();
    });
    let seen = engine.layer.seen();
    assert_eq!((seen.unmapped.len(), seen.unmapped[0].made), (1, 9));
    assert_eq!(engine.profiler.stats("qmatmul").map(|stats| stats.count), Some(9));
}

#[test]
fn two_layers_of_one_subscriber_do_not_mix() {
    let (one, two) = (Engine::new(by_name()), Engine::new(by_name()));
    let both = tracing_subscriber::registry().with(one.layer.clone()).with(two.layer.clone());
    tracing::subscriber::with_default(both, || {
        let pass = one.layer.begin_pass(Phase::Decode, 1, 0);
        trace_span!("q").in_scope(|| one.wait(1));
        pass.end();
    });
    assert_eq!(one.recorded(), "QkvProjection 1, 1 passes, 0 left");
    assert_eq!(two.recorded(), "");
    assert_eq!(two.layer.seen().outside, 1);
}

/// What may happen to spans.
#[derive(Debug, Clone, Copy)]
enum Event {
    Enter(usize),
    Exit(usize),
    Wait(u64),
    BeginPass,
    EndPass,
}

/// Three bricks, one of which is in layer 1 and one in none, a span around, and a layer.
const SPANS: [&str; 5] = ["a", "b", "c", "around", "block"];

fn of_letters() -> Map {
    Map::new(|span| match span.name() {
        "a" => Role::named("a", ATTENTION),
        "b" => Role::named("b", ATTENTION).in_layer(1),
        "c" => Role::named("c", ATTENTION).outside_layers(),
        "around" => Role::around(),
        _ => Role::layer(2),
    })
}

/// Times and pieces of bricks by the list of events alone: time is that of the last brick that was entered in this pass
/// and is entered still.
#[derive(Debug, Default, PartialEq)]
struct Reference {
    bricks: BTreeMap<&'static str, u64>,
    unattributed: u64,
    passes: u64,
}

fn reference(events: &[Event]) -> Reference {
    let mut found = Reference::default();
    let mut entered: Option<Vec<usize>> = None;
    for event in events {
        match (*event, &mut entered) {
            (Event::BeginPass, None) => entered = Some(Vec::new()),
            (Event::EndPass, Some(_)) => {
                found.passes += 1;
                entered = None;
            }
            (Event::Enter(span), Some(entered)) => entered.push(span),
            (Event::Exit(span), Some(entered)) => {
                if let Some(at) = entered.iter().rposition(|&other| other == span) {
                    entered.remove(at);
                }
            }
            (Event::Wait(nanos), Some(entered)) => {
                match entered.iter().rev().find(|&&span| span < 3) {
                    Some(&span) => *found.bricks.entry(SPANS[span]).or_default() += nanos,
                    None => found.unattributed += nanos,
                }
            }
            _ => {}
        }
    }
    found
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        5 => (0..SPANS.len()).prop_map(Event::Enter),
        5 => (0..SPANS.len()).prop_map(Event::Exit),
        5 => (1..1000_u64).prop_map(Event::Wait),
        1 => Just(Event::BeginPass),
        1 => Just(Event::EndPass),
    ];
    prop::collection::vec(event, 0..120).prop_map(|mut events| {
        events.insert(0, Event::BeginPass);
        events.push(Event::EndPass);
        events
    })
}

proptest! {
    #[test]
    fn whatever_is_entered_and_exited_own_times_are_those_of_the_events(events in events()) {
        let engine = Engine::new(of_letters());
        engine.run(|| {
            let spans = [
                trace_span!("a"),
                trace_span!("b"),
                trace_span!("c"),
                trace_span!("around"),
                trace_span!("block"),
            ];
            let pass = RefCell::new(None);
            for event in &events {
                match *event {
                    Event::Enter(span) => {
                        spans[span].with_subscriber(|(id, to)| to.enter(id));
                    }
                    Event::Exit(span) => {
                        spans[span].with_subscriber(|(id, to)| to.exit(id));
                    }
                    Event::Wait(nanos) => engine.wait(nanos),
                    Event::BeginPass if pass.borrow().is_none() => {
                        pass.replace(Some(engine.layer.begin_pass(Phase::Decode, 1, 0)));
                    }
                    Event::BeginPass => {}
                    Event::EndPass => drop(pass.take().map(Pass::end)),
                }
            }
        });
        let profile = engine.profile();
        let mut found = Reference::default();
        for span in &profile.spans {
            let Some(name) = span.name else { continue };
            let name = &profile.names[usize::from(name)].name;
            let name = SPANS.iter().find(|known| *known == name).expect("one of ours");
            prop_assert_eq!(span.duration_ns, span.exclusive_ns);
            *found.bricks.entry(name).or_default() += span.duration_ns;
        }
        found.bricks.retain(|_, nanos| *nanos > 0);
        for phase in &profile.phases {
            found.unattributed += phase.unattributed_ns;
            found.passes += phase.passes;
        }
        prop_assert_eq!(found, reference(&events));
        // Nothing is left open, and nothing was refused on the way.
        prop_assert_eq!(profile.dropped, brickscope::Dropped::default());
    }
}
