//! Requests of a server: what is recorded of them, and what of those that were there while nothing was.

use brickscope::{
    BrickProfiler, Ending, MockClock, Part, PartKind, Phase, Request, TimedPass, TimedPassError,
};

fn profiler() -> (MockClock, BrickProfiler) {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    (hand, profiler)
}

fn pass(profiler: &BrickProfiler, hand: &MockClock, parts: &[Part]) {
    let pass = profiler.begin_pass_of(parts);
    hand.advance(100);
    profiler.end_pass(pass, parts.iter().map(|part| part.tokens).sum(), 0);
}

#[test]
fn a_pass_is_of_prefill_if_it_has_any_prompt() {
    let (hand, profiler) = profiler();
    let (a, b) = (profiler.requests().arrive("a"), profiler.requests().arrive("b"));
    pass(&profiler, &hand, &[Part::decode(a, 5), Part::prompt(b, 9, 3).with_cached(3)]);
    pass(&profiler, &hand, &[Part::decode(a, 6)]);
    pass(&profiler, &hand, &[]);
    let profile = profiler.profile();
    let phases: Vec<Phase> = profile.passes.iter().map(|pass| pass.phase).collect();
    assert_eq!(phases, [Phase::Prefill, Phase::Decode, Phase::Decode]);
    let parts: Vec<_> = profile.parts.iter().map(|of| (of.pass, of.part.request)).collect();
    let serials: Vec<u32> = profile.passes.iter().map(|pass| pass.serial).collect();
    assert_eq!(parts, [(serials[0], 0), (serials[0], 1), (serials[1], 0)]);
    assert_eq!((profile.parts[1].part.kind, profile.parts[1].part.cached), (PartKind::Prompt, 3));
}

#[test]
fn tokens_take_as_long_as_requests_waited_for_them_and_no_pass_is_a_token() {
    let (hand, profiler) = profiler();
    let requests = profiler.requests();
    let (a, b) = (requests.arrive("a"), requests.arrive("b"));
    hand.advance(50);
    pass(&profiler, &hand, &[Part::prompt(a, 5, 0), Part::prompt(b, 7, 0)]);
    requests.token(a);
    requests.token(b);
    pass(&profiler, &hand, &[Part::decode(a, 5), Part::decode(b, 7)]);
    requests.token(a);
    requests.token(b);
    let latency = profiler.profile().latency;
    assert!(latency.of_requests);
    assert_eq!((latency.first_token.count, latency.per_token.count), (2, 2));
    // With the queue; and of one pass two tokens.
    assert_eq!(latency.first_token.min_ns, Some(150));
    assert_eq!(latency.per_token.max_ns, Some(100));
}

#[test]
fn what_comes_after_the_end_of_a_request_changes_nothing() {
    let (hand, profiler) = profiler();
    let requests = profiler.requests();
    let a = requests.arrive("a");
    hand.advance(10);
    requests.admit(a);
    hand.advance(10);
    requests.admit(a);
    requests.token(a);
    hand.advance(10);
    requests.end(a, Ending::Cancelled);
    hand.advance(10);
    // From the engine's thread, which doesn't know yet.
    requests.token(a);
    requests.admit(a);
    requests.end(a, Ending::Stop);
    let nobodys = a + 1;
    requests.token(nobodys);
    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));
    let of = &profile.requests[0];
    let admitted = of.admitted_ns.expect("it was");
    assert_eq!(of.tokens_ns, [admitted + 10]);
    assert_eq!((of.ended_ns, of.ending), (Some(admitted + 20), Some(Ending::Cancelled)));
}

#[test]
fn a_request_is_recorded_up_to_where_profiling_was_turned_off() {
    let (hand, profiler) = profiler();
    let requests = profiler.requests();
    let a = requests.arrive("a");
    requests.token(a);
    profiler.disable();
    let b = requests.arrive("b");
    requests.token(a);
    hand.advance(1_000_000);
    profiler.enable();
    requests.token(a);
    requests.end(a, Ending::Stop);
    requests.token(b);
    let c = requests.arrive("c");
    requests.token(c);
    // Whom the second of these is for isn't known: one of its parts is of a request that came meanwhile.
    pass(&profiler, &hand, &[Part::decode(a, 1), Part::decode(c, 1)]);
    pass(&profiler, &hand, &[Part::decode(b, 1), Part::decode(c, 2)]);
    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));
    let of: Vec<_> =
        profile.requests.iter().map(|of| (of.id.as_str(), of.tokens_ns.len())).collect();
    assert_eq!(of, [("a", 1), ("c", 1)]);
    assert_eq!(profile.requests[0].ended_ns, None);
    let parts: Vec<_> = profile.parts.iter().map(|of| (of.pass, of.part.request)).collect();
    let first = profile.passes[0].serial;
    assert_eq!(parts, [(first, 0), (first, 1)]);
}

#[test]
fn after_a_reset_requests_that_go_on_are_known_and_their_times_are_not() {
    let (hand, profiler) = profiler();
    let requests = profiler.requests();
    let (done, a) = (requests.arrive("done"), requests.arrive("a"));
    requests.token(a);
    requests.end(done, Ending::Stop);
    pass(&profiler, &hand, &[Part::prompt(a, 5, 0)]);
    profiler.reset();
    let b = requests.arrive("b");
    pass(&profiler, &hand, &[Part::prompt(a, 900, 5), Part::decode(b, 0)]);
    requests.token(a);
    requests.token(b);
    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));
    let of: Vec<_> =
        profile.requests.iter().map(|of| (of.id.as_str(), of.tokens_ns.len())).collect();
    assert_eq!(of, [("a", 0), ("b", 1)]);
    let parts: Vec<u32> = profile.parts.iter().map(|of| of.part.request).collect();
    assert_eq!(parts, [0, 1]);
}

#[test]
fn parts_of_passes_that_were_abandoned_or_discarded_are_of_none() {
    let (hand, profiler) = profiler();
    let a = profiler.requests().arrive("a");
    drop(profiler.begin_pass_of(&[Part::decode(a, 0)]));
    let discarded = profiler.begin_pass_of(&[Part::decode(a, 0)]);
    profiler.discard_pass(discarded);
    pass(&profiler, &hand, &[Part::decode(a, 0)]);
    let profile = profiler.profile();
    assert_eq!(profile.dropped.abandoned_passes, 1);
    assert_eq!((profile.parts.len(), profile.passes.len()), (1, 1));
    assert_eq!(profile.parts[0].pass, profile.passes[0].serial);
}

#[test]
fn the_newest_requests_have_their_passes_and_say_up_to_when_all_are_known() {
    let (hand, profiler) = profiler();
    let requests = profiler.requests();
    assert!(requests.lately().is_none());
    pass(&profiler, &hand, &[]);
    let a = requests.arrive("a");
    pass(&profiler, &hand, &[Part::prompt(a, 5, 0)]);
    requests.token(a);
    let lately = requests.lately().expect("there is one");
    let whole = profiler.profile();
    assert_eq!(lately.profile.requests, whole.requests);
    assert_eq!(lately.profile.parts, whole.parts);
    // The first pass ended before it came.
    assert_eq!(lately.profile.passes, whole.passes[1..]);
    assert_eq!((lately.known_ns, lately.left_out), (0..u64::MAX, 0));
    // The pass that is open began after the one before had ended.
    let open = profiler.begin_pass_of(&[Part::decode(a, 5)]);
    hand.advance(3);
    assert_eq!(requests.lately().map(|lately| lately.known_ns), Some(0..200));
    profiler.end_pass(open, 1, 5);
    requests.end(a, Ending::Stop);
    // Older ones are left out, and passes for them were for somebody.
    for _ in 0..9_000 {
        let b = requests.arrive("b");
        requests.end(b, Ending::Stop);
    }
    let lately = requests.lately().expect("there are some");
    assert_eq!((lately.left_out, lately.profile.requests.len()), (809, 8192));
}

#[test]
fn a_pass_for_a_request_that_is_left_out_was_for_somebody() {
    let (hand, profiler) = profiler();
    let requests = profiler.requests();
    let a = requests.arrive("a");
    for _ in 0..9_000 {
        let b = requests.arrive("b");
        requests.end(b, Ending::Stop);
    }
    let c = requests.arrive("c");
    pass(&profiler, &hand, &[Part::decode(a, 1), Part::decode(c, 1)]);
    let parts = || {
        let lately = requests.lately().expect("there are some");
        lately.profile.parts.iter().map(|of| of.part.request).collect::<Vec<_>>()
    };
    // As long as they go on, both are there: before those that ended, and after them.
    assert_eq!(parts(), [0, 8193]);
    requests.end(a, Ending::Stop);
    assert_eq!(parts(), [Part::NOBODY, 8192]);
}

#[test]
fn a_request_that_is_recorded_no_further_is_not_said_to_go_on() {
    let (_hand, profiler) = profiler();
    let requests = profiler.requests();
    let lost = || requests.lately().map(|lately| lately.lost);
    let [ended, a, b] = ["ended", "a", "b"].map(|id| requests.arrive(id));
    requests.end(ended, Ending::Stop);
    assert_eq!(lost(), Some(vec![]));
    profiler.disable();
    requests.end(a, Ending::Stop);
    profiler.enable();
    requests.end(b, Ending::Stop);
    let _goes_on = requests.arrive("c");
    assert_eq!(lost(), Some(vec![1, 2]));
}

#[test]
fn passes_and_requests_that_were_timed_elsewhere_are_like_others() {
    let (hand, profiler) = profiler();
    let begun = profiler.clock().now();
    hand.advance(500);
    let request = Request { id: "a".to_owned(), arrived_ns: begun, ..Request::default() };
    let a = profiler.requests().record(request);
    let timed = TimedPass {
        phase: Phase::Decode,
        start_ns: begun,
        end_ns: begun + 100,
        tokens: 1,
        position: 7,
        disturbance: None,
    };
    profiler.record_pass_of(&timed, &[], &[Part::decode(a, 7)]).expect("it fits");
    let backwards = TimedPass { start_ns: begun + 9, end_ns: begun + 8, ..timed };
    let refused = profiler.record_pass_of(&backwards, &[], &[Part::decode(a, 8)]);
    assert!(matches!(refused, Err(TimedPassError::PassBackwards)), "{refused:?}");
    let profile = profiler.profile();
    assert_eq!((profile.passes.len(), profile.parts.len()), (1, 1));
    assert_eq!(profile.requests[0].arrived_ns, profile.passes[0].start_ns);
}
