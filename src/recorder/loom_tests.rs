//! Every order of events that the memory model allows, as far as a model checker gets: registering,
//! recording, folding and collecting at once.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --no-default-features --lib loom_tests`; the tail of a
//! log is a single row then, so that every span folds the one before it.

use std::sync::Arc;

use brickscope_profile::{BrickId, BrickStats, Source, Work};
use loom::thread::{self, JoinHandle};

use super::Recorder;
use crate::clock::MockClock;
use crate::fold::Slot;
use crate::row::SpanKind;

const NAME: u16 = BrickId::LmHead as u16;

fn recorder(capacity: usize) -> (Arc<Recorder>, MockClock) {
    let hand = MockClock::default();
    let recorder = Recorder::new(hand.clock(), capacity);
    recorder.set_active(true);
    (Arc::new(recorder), hand)
}

/// Records spans of 5 ns and 2 elements.
fn record(recorder: &Recorder, hand: &MockClock, spans: usize) {
    for _ in 0..spans {
        let open = recorder.begin_brick(NAME);
        hand.advance(5);
        recorder.end_brick(open, Work::elements(2));
    }
}

/// What was collected: the sums, the spans in traces, and those that were dropped from them.
fn collect(recorder: &Recorder) -> (BrickStats, u64, u64) {
    let (mut stats, mut kept, mut dropped) = (BrickStats::new(""), 0, 0);
    recorder.collect(|mut log| {
        for slot in Slot::ALL {
            if let Some(sums) = log.fold().sums(Source::Host, slot, NAME) {
                sums.add_to(&mut stats);
            }
        }
        dropped += log.dropped();
        for lane in log.lanes() {
            kept += lane.records.len() as u64;
            assert!(lane.records.iter().filter_map(|record| record.span()).all(|span| {
                span.kind == SpanKind::Brick && span.work.elements == 2 && span.name == NAME
            }));
            assert!(lane.records.iter().all(|record| record.is_span()));
        }
    });
    assert_eq!(stats.total_elements, 2 * stats.count, "half a span was seen");
    (stats, kept, dropped)
}

/// Records on a thread of its own.
fn recorded(recorder: &Arc<Recorder>, hand: &MockClock, spans: usize) -> JoinHandle<()> {
    let (recorder, hand) = (Arc::clone(recorder), hand.clone());
    thread::spawn(move || record(&recorder, &hand, spans))
}

/// Collects on a thread of its own. Started after the others: the checker notices a load that a
/// store of another thread came before, but not always one that it could come before.
fn collected(recorder: &Arc<Recorder>) -> JoinHandle<(BrickStats, u64, u64)> {
    let recorder = Arc::clone(recorder);
    thread::spawn(move || collect(&recorder))
}

#[test]
fn who_collects_sees_whole_spans_and_in_the_end_all_of_them() {
    loom::model(|| {
        let (recorder, hand) = recorder(1);
        let writer = recorded(&recorder, &hand, 3);
        let reader = collected(&recorder);
        let (early, kept, dropped) = reader.join().expect("no panic");
        assert_eq!(early.total_ns, 5 * early.count);
        assert_eq!(kept + dropped, early.count);
        writer.join().expect("no panic");
        let (all, kept, dropped) = collect(&recorder);
        assert_eq!((all.count, all.total_ns, kept, dropped), (3, 15, 1, 2));
    });
}

#[test]
fn threads_that_register_at_once_lose_nothing() {
    loom::model(|| {
        let (recorder, hand) = recorder(0);
        let writers = [(); 2].map(|()| recorded(&recorder, &hand, 2));
        let reader = collected(&recorder);
        assert!(reader.join().expect("no panic").0.count <= 4);
        for writer in writers {
            writer.join().expect("no panic");
        }
        assert_eq!(collect(&recorder).0.count, 4);
    });
}

#[test]
fn a_reset_while_others_record_forgets_what_was_before_and_nothing_after() {
    loom::model(|| {
        let (recorder, hand) = recorder(1);
        let writer = recorded(&recorder, &hand, 2);
        let resetter = thread::spawn({
            let recorder = Arc::clone(&recorder);
            move || {
                recorder.reset();
                collect(&recorder).0.count
            }
        });
        assert!(resetter.join().expect("no panic") <= 2);
        writer.join().expect("no panic");
        // Each may have ended before the reset or after it, or have been begun before and ended
        // after.
        let before = collect(&recorder).0.count;
        assert!(before <= 2);
        record(&recorder, &hand, 1);
        // This thread's own span is there in any case.
        assert_eq!(collect(&recorder).0.count, before + 1);
    });
}
