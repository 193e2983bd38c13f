//! Where a mistake was made.

use brickscope::misuse::{Misuse, MisusePlace};
use brickscope::{BrickId, BrickProfiler, MockClock, Part, Phase};

use super::profiler;

fn place(profiler: &BrickProfiler) -> (Misuse, MisusePlace) {
    let mut places = profiler.misuse_places();
    assert_eq!(places.len(), 1, "{places:?}");
    let (misuse, place) = places.remove(0);
    (misuse, place.expect("it is known"))
}

/// A pass of a layer with two bricks, of which the timer of one may be dropped.
fn pass(profiler: &BrickProfiler, hand: &MockClock, position: u64, lost: Option<BrickId>) {
    let pass = profiler.begin_pass(Phase::Decode);
    let layer = profiler.begin_layer(0);
    for brick in [BrickId::QkvProjection, BrickId::AttentionScore] {
        let timer = profiler.start_brick(brick);
        hand.advance(10);
        if lost != Some(brick) {
            profiler.stop_brick(timer, 1);
        }
    }
    profiler.end_layer(layer);
    profiler.end_pass(pass, 1, position);
}

#[test]
fn a_dropped_timer_is_where_other_passes_have_its_brick() {
    for lost in [BrickId::QkvProjection, BrickId::AttentionScore] {
        let (profiler, hand) = profiler();
        for position in 0..5 {
            pass(&profiler, &hand, position, (position == 3).then_some(lost));
        }
        let serial = profiler.profile().passes[3].serial;
        let (misuse, place) = place(&profiler);
        assert_eq!(misuse, Misuse::UnendedSpans(1));
        assert_eq!((place.brick.as_deref(), place.is_by_other_passes), (Some(lost.name()), true));
        assert_eq!((place.layer, place.pass), (Some(0), Some(serial)));
        assert!(place.thread.is_some(), "{place}");
    }
}

#[test]
fn a_dropped_timer_of_the_only_pass_has_no_name() {
    let (profiler, hand) = profiler();
    pass(&profiler, &hand, 0, Some(BrickId::AttentionScore));
    let (_, place) = place(&profiler);
    assert_eq!((place.brick.as_deref(), place.layer), (None, Some(0)));
    assert!(place.pass.is_some() && !place.is_by_other_passes, "{place}");
}

#[test]
fn passes_bricks_and_requests_have_theirs() {
    let (dropped, _) = profiler();
    drop(dropped.begin_pass(Phase::Decode));
    let (misuse, of_pass) = place(&dropped);
    assert_eq!((misuse, of_pass.pass), (Misuse::UnendedPasses(1), Some(1)));

    let (apart, hand) = profiler();
    let open = apart.begin_pass(Phase::Decode);
    std::thread::scope(|scope| {
        let work = || {
            let timer = apart.start_brick(BrickId::UpProjection);
            hand.advance(2);
            apart.stop_brick(timer, 1);
        };
        std::thread::Builder::new()
            .name("worker".to_owned())
            .spawn_scoped(scope, work)
            .expect("a thread");
    });
    apart.end_pass(open, 1, 0);
    assert_eq!(place(&apart).1.to_string(), "UpProjection, thread worker");

    let (unknown, _) = profiler();
    let open = unknown.begin_pass_of(&[Part::decode(9, 3)]);
    unknown.end_pass(open, 1, 0);
    assert_eq!(place(&unknown).1.to_string(), "request 9");
}
