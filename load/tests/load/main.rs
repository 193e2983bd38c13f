//! Plans that are carried out, beside a server that says what it did.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brickscope_load::{
    Api, Figures, LoadError, Plan, Progress, Server, Settings, Slo, Words, drive,
};
use brickscope_profile::Ending;
use brickscope_testing::model_server::{Does, Fake};

fn opened(fake: &Fake) -> Server {
    Server::open(&fake.url, Settings::default()).expect("an address")
}

fn never() -> bool {
    false
}

#[test]
fn each_request_is_answered_with_what_the_server_says_of_it() {
    let fake = Fake::start(|_| Does::Answer);
    let server = opened(&fake);
    assert_eq!(server.model(), Some("fake-1"));
    // The fake says that a word is two tokens, after three.
    let words = server.measure_words().expect("an answer");
    assert_eq!(words, Some(Words { base: 3.0, each: 2.0 }));
    let before = fake.asked().len();
    let plan = Plan::poisson(200.0, 12, 83, 5, 1);
    let driven = drive(&server, &plan, words, &never, &mut |_| {});
    assert_eq!((driven.answers.len(), driven.not_begun), (12, 0));
    let asked = fake.asked();
    assert_eq!(asked.len() - before, 12);
    for (nth, answer) in driven.answers.iter().enumerate() {
        assert_eq!((answer.nth, answer.failure.as_deref()), (nth, None));
        assert_eq!(answer.prompt_tokens, Some(83));
        assert_eq!((answer.answer_tokens, answer.pieces_ns.len()), (Some(5), 5));
        assert_eq!((answer.ending, answer.cached_tokens), (Some(Ending::Length), Some(1)));
        // Nothing is sent before it is due, and all comes in its order.
        let times = [answer.due_ns, answer.sent_ns].into_iter().chain(answer.pieces_ns.clone());
        assert!(times.chain(answer.ended_ns).is_sorted(), "{answer:?}");
        // What is due lies as far apart as it was planned, whenever it could be sent.
        let since_first = answer.due_ns - driven.answers[0].due_ns;
        assert_eq!(since_first, plan.asks[nth].due_ns - plan.asks[0].due_ns);
    }
    let profile = driven.profile();
    assert_eq!(profile.check(), Ok(()));
    assert_eq!(profile.requests.len(), 12);
    let mut names: Vec<&str> = profile.requests.iter().map(|of| of.id.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 12);
    let figures = Figures::of(&driven, None);
    assert_eq!((figures.sent, figures.answered, figures.failed.len()), (12, 12, 0));
    assert_eq!(figures.prompt_tokens, Some(12 * 83));
    assert_eq!(
        (figures.answer_tokens, figures.pieces, figures.cached_tokens),
        (Some(60), 60, Some(12))
    );
}

#[test]
fn a_server_that_stalls_is_asked_all_the_same() {
    // No request is answered before all ten have come. A client that waits for an answer before it asks again, or for a
    // connection, never ends.
    let fake = Fake::start(|_| Does::WaitFor(10));
    let plan = Plan::constant(100.0, 10, 8, 3, 1);
    let driven = drive(&opened(&fake), &plan, None, &never, &mut |_| {});
    let figures = Figures::of(&driven, None);
    assert_eq!((figures.answered, figures.failed), (10, Vec::new()));
    // The first one waited until the last one was due: 90 ms.
    let first = &driven.answers[0];
    assert!(first.pieces_ns[0] - first.due_ns >= 90_000_000, "{first:?}");
    assert!(figures.late.p50_ns <= figures.late.longest_ns);
}

#[test]
fn clients_in_a_closed_loop_are_never_more_than_that() {
    let fake = Fake::start(|_| Does::Answer);
    let clients = NonZeroUsize::new(3).expect("three");
    let plan = Plan::closed(clients, 20, 8, 2, 1);
    let (most, last) = (Cell::new(0), Cell::new(0));
    let driven = drive(&opened(&fake), &plan, None, &never, &mut |now| {
        most.set(most.get().max(now.begun - now.ended));
        last.set(now.ended);
    });
    assert_eq!((driven.answers.len(), last.get()), (20, 20));
    assert!((1..=3).contains(&fake.most_at_once.load(Ordering::SeqCst)));
    assert!(most.get() <= 3);
}

#[test]
fn what_fails_is_counted_by_its_reason_and_keeps_what_came() {
    let fake = Fake::start(|nth| match nth % 5 {
        0 => Does::Refuse(503),
        1 => Does::BreakOff,
        2 => Does::HangUp,
        3 => Does::Whole,
        _ => Does::Answer,
    });
    let plan = Plan::closed(NonZeroUsize::MIN, 10, 8, 4, 1);
    let driven = drive(&opened(&fake), &plan, None, &never, &mut |_| {});
    let slo: Slo = "ttft=100s".parse().expect("limits");
    let figures = Figures::of(&driven, Some(&slo));
    assert_eq!((figures.sent, figures.answered), (10, 4));
    assert_eq!(figures.failed.iter().map(|(_, n)| n).sum::<u64>(), 6);
    let reasons: Vec<&str> = figures.failed.iter().map(|(why, _)| why.as_str()).collect();
    assert!(reasons.contains(&"HTTP 503: no slot"), "{reasons:?}");
    // An answer that came as a whole has no first token.
    assert_eq!(figures.good, Some(2));
    let broken = &driven.answers[1];
    assert_eq!((broken.pieces_ns.len(), broken.ending), (2, Some(Ending::Error)));
    let whole = &driven.answers[3];
    assert_eq!((whole.pieces_ns.len(), whole.answer_tokens), (0, Some(4)));
    assert_eq!(driven.profile().check(), Ok(()));
}

#[test]
fn once_it_is_to_stop_nothing_more_is_sent_and_what_came_is_kept() {
    let fake = Fake::start(|nth| if nth == 0 { Does::Answer } else { Does::WaitFor(usize::MAX) });
    // More than come due before it is looked at, however busy the machine is.
    let plan = Plan::constant(50.0, 100_000, 8, 3, 1);
    // One has its answer, and others wait for theirs.
    let goes_on = Cell::new(true);
    let stop = || !goes_on.get();
    let mut look = |now: Progress| goes_on.set(now.ended == 0 || now.begun < 5);
    let driven = drive(&opened(&fake), &plan, None, &stop, &mut look);
    assert!(driven.not_begun > 0);
    // One was answered, whichever came first.
    let of = |ending| driven.answers.iter().filter(|answer| answer.ending == Some(ending)).count();
    assert_eq!(of(Ending::Length), 1);
    assert!(driven.answers.len() >= 5);
    assert_eq!(of(Ending::Cancelled), driven.answers.len() - 1);
    assert!(
        driven
            .answers
            .iter()
            .all(|of| of.ended_ns.is_some() == (of.ending == Some(Ending::Length)))
    );
    assert_eq!(driven.profile().check(), Ok(()));
}

#[test]
fn a_server_that_is_not_there_is_an_error_that_names_it() {
    // Nothing listens on port 1 of this machine.
    let server = Server::open("http://127.0.0.1:1", Settings::default()).expect("an address");
    let error = server.measure_words().expect_err("nobody");
    assert!(
        matches!(&error, LoadError::Refused { url, .. } if url.contains("127.0.0.1:1/")),
        "{error}"
    );
}

#[test]
fn a_chat_has_messages_and_a_key_is_sent() {
    let fake = Fake::start(|_| Does::Answer);
    let settings = Settings {
        api: Api::Chat,
        key: Some("abc".to_owned()),
        timeout: Duration::from_secs(60),
        ..Settings::default()
    };
    let server = Server::open(&fake.url, settings).expect("an address");
    let plan = Plan::closed(NonZeroUsize::MIN, 1, 8, 2, 1);
    drive(&server, &plan, None, &never, &mut |_| {});
    let asked = fake.asked();
    assert!(asked[0].starts_with("POST /v1/chat/completions HTTP/1.1"), "{}", asked[0]);
    assert!(asked[0].to_lowercase().contains("authorization: bearer abc"), "{}", asked[0]);
    assert!(asked[0].contains("\"messages\":[{"), "{}", asked[0]);
}
