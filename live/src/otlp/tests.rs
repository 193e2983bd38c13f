//! Collectors that misbehave.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use brickscope::{Anchor, BrickId, BrickProfiler, MockClock, Phase, Profile, Request};
use brickscope_analysis::stacks::{By, Stacks};
use brickscope_testing::NOBODY_LISTENS;
use brickscope_testing::patience::{first_to_judge, unless_it_hangs};
use flate2::read::GzDecoder;

use super::send::retry_after;
use super::*;

fn run() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for n in 0..8 {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(1_000 * (n + 1));
        profiler.stop_brick(timer, 5);
        profiler.end_pass(pass, 1, n);
    }
    profiler.profile()
}

/// A request as a collector gets it.
#[derive(Debug, Clone)]
struct Got {
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

fn read(stream: &mut TcpStream) -> Option<Got> {
    let mut bytes = Vec::new();
    let mut part = [0; 1 << 14];
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        let n = stream.read(&mut part).ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&part[..n]);
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut packed = bytes.split_off(head);
    while packed.len() < length {
        let n = stream.read(&mut part).ok().filter(|n| *n > 0)?;
        packed.extend_from_slice(&part[..n]);
    }
    let mut body = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut body).ok()?;
    Some(Got { path, headers, body })
}

/// Answers each connection by `answer`, with the request and its number from 0 on; an empty answer closes it.
fn server(
    answer: impl Fn(&Got, u64, &mut TcpStream) -> Vec<u8> + Send + Sync + 'static,
) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (sender, got) = channel();
    let (answer, numbers) = (Arc::new(answer), Arc::new(AtomicU64::new(0)));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, numbers) = (Arc::clone(&answer), Arc::clone(&numbers));
            let (mut stream, sender) = (stream.expect("a client"), sender.clone());
            thread::spawn(move || {
                while let Some(request) = read(&mut stream) {
                    let _ = sender.send(request.clone());
                    let number = numbers.fetch_add(1, Ordering::AcqRel);
                    let bytes = answer(&request, number, &mut stream);
                    if bytes.is_empty() || stream.write_all(&bytes).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, got)
}

fn http(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn ok() -> Vec<u8> {
    http("200 OK", "Content-Type: application/x-protobuf\r\n", b"")
}

/// A message with one message in field 1, as answers with a partial success are.
fn partial(rejected: u8, why: &str) -> Vec<u8> {
    let inner = [&[8, rejected, 18, why.len() as u8], why.as_bytes()].concat();
    [&[10, inner.len() as u8], &inner[..]].concat()
}

/// Far longer than the tests wait for a push that goes on: one that ends does so for another reason.
const DAY: Duration = Duration::from_secs(86_400);

fn settings(timeout: Duration) -> Settings {
    Settings { timeout, ..Settings::default() }
}

fn push(url: &str, settings: Settings) -> Result<Pushed, OtlpError> {
    push_while(url, settings, &|| true)
}

fn push_while(
    url: &str,
    settings: Settings,
    go_on: &dyn Fn() -> bool,
) -> Result<Pushed, OtlpError> {
    let profile = run();
    let stacks = Stacks::of_spans(&profile, By::Layer, 0);
    Collector::new(url, settings)?.push(&profile, &stacks, go_on)
}

/// The error of a push.
fn refused(url: &str, timeout: Duration) -> String {
    let url = url.to_owned();
    let pushed = unless_it_hangs(move || push(&url, settings(timeout)));
    pushed.expect_err("it can't be pushed").to_string()
}

/// Returns when the client has closed the connection.
fn until_closed(stream: &mut TcpStream) {
    while stream.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
}

#[test]
fn both_signals_are_sent_with_their_headers() {
    let (url, got) = server(|_, _, _| ok());
    let mut settings = settings(DAY);
    settings.headers = vec![("Authorization".to_owned(), "Bearer x=y".to_owned())];
    settings.resource = vec![("service.name".to_owned(), "my engine".to_owned())];
    let pushed = push(&format!("{url}/"), settings).expect("it is taken");
    assert!(pushed.points > 10 && pushed.rejected == 0, "{pushed:?}");
    assert!(matches!(pushed.stacks, PushedSignal::Sent { items: 1, rejected: 0 }), "{pushed:?}");
    let got: Vec<Got> = got.try_iter().collect();
    let paths: Vec<&str> = got.iter().map(|got| &*got.path).collect();
    assert_eq!(paths, ["/v1/metrics", "/v1development/profiles"]);
    for Got { headers, body, .. } in &got {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        assert_eq!(headers["authorization"], "Bearer x=y");
        assert!(headers["user-agent"].starts_with("brickscope/"));
        let has = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has("my engine") && has("LmHead"));
    }
}

#[test]
fn a_collector_that_is_busy_is_asked_again() {
    let statuses = ["429 Too Many Requests", "502 Bad Gateway", "503 Unavailable", "504 Timeout"];
    // At once, since each pauses.
    thread::scope(|scope| {
        for status in statuses {
            scope.spawn(move || {
                let (url, got) = server(move |_, number, _| match number {
                    0 => http(status, "", b"not a message"),
                    _ => ok(),
                });
                push(&url, settings(DAY)).expect("the second try is taken");
                assert_eq!(got.try_iter().count(), 3, "{status}");
            });
        }
    });
    // Its own words are for who reads the message.
    let answered = Arc::new(AtomicU64::new(0));
    let tries = Arc::clone(&answered);
    let (url, got) = server(move |_, _, _| {
        tries.fetch_add(1, Ordering::AcqRel);
        http("503 Unavailable", "", b"\x12\x04full")
    });
    let go_on = || answered.load(Ordering::Acquire) < 3;
    let error = push_while(&url, settings(DAY), &go_on).expect_err("it is full").to_string();
    assert_eq!(error, "it answered with status 503: full (3 tries)");
    assert_eq!(got.try_iter().count(), 3);
}

#[test]
fn an_answer_says_more_than_that_there_was_no_time_for_a_further_one() {
    let judged = first_to_judge(|n| {
        let (url, got) = server(|_, number, stream| match number {
            0 => http("503 Unavailable", "", b"\x12\x04full"),
            _ => {
                until_closed(stream);
                Vec::new()
            }
        });
        let error = refused(&url, Duration::from_millis(500 << n));
        match got.try_iter().count() {
            2 => Ok(error),
            tries => Err(format!("{tries} tries were heard in {} ms", 500 << n)),
        }
    });
    let Some(error) = judged else { return };
    assert_eq!(error, "it answered with status 503: full (2 tries)");
}

#[test]
fn the_pause_that_a_collector_asks_for_is_kept() {
    let (url, _got) = server(|_, number, _| match number {
        0 => http("429 Too Many Requests", "Retry-After: 1\r\n", b""),
        _ => ok(),
    });
    let begun = Instant::now();
    push(&url, settings(DAY)).expect("the second try is taken");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    // One that doesn't fit is not waited for.
    let (url, got) = server(|_, _, _| http("429 Too Many Requests", "Retry-After: 86401\r\n", b""));
    assert_eq!(refused(&url, DAY), "it answered with status 429");
    assert_eq!(got.try_iter().count(), 1);
    let at = UNIX_EPOCH + Duration::from_secs(784_111_777);
    let date = "Sun, 06 Nov 1994 08:49:47 GMT";
    assert_eq!(retry_after(date, at), Some(Duration::from_secs(10)));
    assert_eq!(retry_after(" 7 ", at), Some(Duration::from_secs(7)));
    assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:07 GMT", at), Some(Duration::ZERO));
    for bad in ["", "-1", "soon", "Sun, 06 Non 1994 08:49:47 GMT", "Sun, 06"] {
        assert_eq!(retry_after(bad, at), None, "{bad}");
    }
}

#[test]
fn what_is_wrong_with_a_request_is_not_tried_again() {
    for (status, body, said) in [
        ("400 Bad Request", &b"\x12\x09no metric"[..], "it answered with status 400: no metric"),
        ("401 Unauthorized", b"<html>", "it answered with status 401"),
        ("404 Not Found", b"", "it answered with status 404"),
        ("301 Moved", b"", "it answered with status 301"),
        ("200 OK", b"<html>hello</html>", "the answer is no message of OTLP"),
    ] {
        let (url, got) =
            server(move |_, _, _| http(status, "Location: http://127.0.0.1:1/\r\n", body));
        let error = refused(&url, DAY);
        assert!(error.ends_with(said), "{error}");
        assert_eq!(got.try_iter().count(), 1, "{status}");
    }
}

#[test]
fn an_answer_that_is_garbage_or_has_no_end_is_given_up() {
    let (url, got) = server(|_, _, _| b"\x00\x01garbage\r\n\r\n".to_vec());
    refused(&url, DAY);
    assert_eq!(got.try_iter().count(), 1);
    let (url, _got) = server(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [&b"10000\r\n"[..], &[0; 1 << 16], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {}
        Vec::new()
    });
    let error = refused(&url, DAY);
    assert!(error.ends_with("the answer has over 4 MiB"), "{error}");
}

#[test]
fn time_is_limited_whatever_the_collector_does() {
    const SOON: Duration = Duration::from_millis(200);
    // It takes the request, and says nothing.
    let (url, _got) = server(|_, _, stream| {
        until_closed(stream);
        Vec::new()
    });
    assert_eq!(refused(&url, SOON), "no answer in time");
    // It drips its answer, for ever.
    let (url, _got) = server(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        while stream.write_all(b"\n").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
        Vec::new()
    });
    assert_eq!(refused(&url, SOON), "no answer in time");
    // Nobody listens.
    let judged = first_to_judge(|n| {
        let millis = 400 << n;
        let error = refused(&format!("http://{NOBODY_LISTENS}"), Duration::from_millis(millis));
        match error.ends_with("tries)") {
            true => Ok(error),
            false => Err(format!("not tried again in {millis} ms: {error}")),
        }
    });
    let Some(error) = judged else { return };
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn requests_of_a_server_are_spans_where_their_time_is_known() {
    let (url, got) = server(|_, _, _| ok());
    let collector = Collector::new(&url, settings(DAY)).expect("a URL");
    let push = |profile: &Profile| {
        let stacks = Stacks::of_spans(profile, By::Layer, 0);
        collector.push(profile, &stacks, &|| true).expect("it is taken")
    };
    let request = |ended_ns| Request { id: "cmpl-1".to_owned(), ended_ns, ..Request::default() };
    let mut profile = Profile { requests: vec![request(Some(7)), request(None)], ..run() };
    let pushed = push(&profile);
    assert!(matches!(pushed.spans, PushedSignal::NoTime), "{pushed:?}");
    assert_eq!(got.try_iter().count(), 2);
    profile.clock.anchors = vec![Anchor {
        at_ns: 0,
        monotonic_ns: 7,
        monotonic_raw_ns: 7,
        unix_ns: Some(1_795_258_092_000_000_000),
        width_ns: 1,
    }];
    let pushed = push(&profile);
    // The request, and its time up to its end.
    assert!(matches!(pushed.spans, PushedSignal::Sent { items: 2, rejected: 0 }), "{pushed:?}");
    assert_eq!(pushed.without_spans, 1);
    let paths: Vec<String> = got.try_iter().map(|got| got.path).collect();
    assert_eq!(paths, ["/v1/metrics", "/v1development/profiles", "/v1/traces"]);
}

#[test]
fn a_push_can_be_ended_between_tries() {
    let (url, got) = server(|_, _, _| http("503 Unavailable", "Retry-After: 3600\r\n", b""));
    let pushed = unless_it_hangs(move || push_while(&url, settings(DAY), &|| false));
    pushed.expect_err("it is ended");
    assert_eq!(got.try_iter().count(), 1);
}

#[test]
fn what_a_collector_rejects_is_counted() {
    let (url, _got) = server(|got, _, _| {
        let rejected = if got.path == "/v1/metrics" { 3 } else { 1 };
        http("200 OK", "", &partial(rejected, "too old"))
    });
    let pushed = push(&url, settings(DAY)).expect("the rest is taken");
    assert_eq!((pushed.rejected, pushed.messages), (3, vec!["too old".to_owned(); 2]));
    assert!(matches!(pushed.stacks, PushedSignal::Sent { items: 1, rejected: 1 }));
    // A collector without profiles takes metrics all the same.
    for (status, is_taken) in [("404 Not Found", false), ("400 Bad Request", true)] {
        let (url, _got) = server(move |got, _, _| match &*got.path {
            "/v1/metrics" => ok(),
            _ => http(status, "", b""),
        });
        let stacks = push(&url, settings(DAY)).expect("metrics are taken").stacks;
        assert_eq!(matches!(stacks, PushedSignal::Failed(_)), is_taken, "{stacks:?}");
    }
}

#[test]
fn nothing_queues_up_behind_a_slow_collector() {
    let (arrived, hears) = channel();
    let (lets_go, waits) = channel::<()>();
    let waits = Mutex::new(waits);
    let (url, got) = server(move |_, number, _| {
        if number > 0 {
            let _ = arrived.send(number);
            let _ = waits.lock().expect("no panic").recv();
        }
        ok()
    });
    let collector = Arc::new(Collector::new(&url, settings(DAY)).expect("a URL"));
    let every = Duration::from_millis(20);
    let pusher = Pusher::start(collector, every, run).expect("a thread");
    assert_eq!(hears.recv(), Ok(1));
    // The second one is being answered while five are due; the next is one that is due later.
    thread::sleep(5 * every);
    lets_go.send(()).expect("it waits");
    assert_eq!(hears.recv(), Ok(2));
    pusher.stop();
    lets_go.send(()).expect("it waits");
    let tally = pusher.finish();
    assert_eq!((tally.pushed, got.try_iter().count()), (3, 3), "{tally:?}");
    assert!(tally.dropped >= 5, "{tally:?}");
}

#[test]
fn an_engine_does_not_notice_that_there_is_no_collector() {
    let url = format!("http://{NOBODY_LISTENS}");
    let collector = Collector::new(&url, settings(DAY)).expect("a URL");
    let (asked, hears) = channel();
    let snapshot = move || {
        let _ = asked.send(());
        run()
    };
    let every = Duration::from_millis(10);
    let pusher = Pusher::start(Arc::new(collector), every, snapshot).expect("a thread");
    hears.recv().expect("a snapshot is due");
    let tally = unless_it_hangs(move || pusher.finish());
    assert_eq!((tally.pushed, tally.dropped > 0), (0, true));
    assert!(tally.trouble.is_some_and(|trouble| trouble.contains("refused")));
}

#[test]
fn all_pushes_of_a_profiler_have_one_start() {
    const SECOND: u64 = 1_000_000_000;
    let collector = Collector::new("http://localhost:4318", settings(DAY)).expect("a URL");
    let profile = |created: &str, at_ns| {
        let anchor = |at_ns| Anchor {
            at_ns,
            monotonic_ns: 7,
            monotonic_raw_ns: 7,
            unix_ns: None,
            width_ns: 1,
        };
        let mut profile = Profile { created: created.to_owned(), ..run() };
        profile.clock.anchors = vec![anchor(0), anchor(at_ns)];
        profile
    };
    let end = 1_795_258_092 * SECOND;
    let first = profile("2026-11-21T10:48:12Z", 5 * SECOND);
    // Within that second, and the last push in the same one.
    let live = collector.origin(&first, Some(end + 800_000_000));
    let last = collector.origin(&profile("2026-11-21T10:48:12Z", 6 * SECOND), None);
    assert_eq!(live.start_ns, Some(end + 800_000_000 - 5 * SECOND));
    assert_eq!((last.start_ns, last.end_ns), (live.start_ns, Some(end + 800_000_001)));
    // Without a live push it is what the profile states.
    let fresh = Collector::new("http://localhost:4318", settings(DAY)).expect("a URL");
    let stated = fresh.origin(&first, None);
    assert_eq!((stated.start_ns, stated.end_ns), (Some(end - 5 * SECOND), Some(end)));
}

#[test]
fn urls_that_are_no_collectors_are_refused() {
    for (url, why) in [
        ("localhost:4318", "must begin with http"),
        ("ftp://localhost", "must begin with http"),
        ("http://", "no URL"),
        ("not a url", "no URL"),
        ("http://me:secret@localhost:4318", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://localhost:4318/?token=1", "must end with the path"),
        ("http://localhost:4318/v1/metrics", "leave out /v1/metrics"),
        ("http://localhost:4318/v1/traces/", "/v1/traces and the like"),
    ] {
        let error = Collector::new(url, Settings::default()).expect_err(url).to_string();
        assert!(error.contains(why) && !error.contains("secret"), "{url}: {error}");
    }
    let collector = Collector::new("https://example.org/otlp/", Settings::default());
    assert_eq!(collector.expect("a URL").url(), "https://example.org/otlp");
}

#[test]
fn variables_are_read_as_the_specification_says() {
    let read = |variables: &[(&str, &str)]| {
        Settings::from_variables(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            Ok(found.map(|(_, value)| (*value).to_owned()))
        })
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let settings = read(&[
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s%C3%A4cret%2C1, x = a=b ,"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=ci,service.name=list"),
        ("OTEL_SERVICE_NAME", "alone"),
    ]);
    let settings = settings.expect("they are right");
    assert_eq!(settings.headers, [pair("api-key", "säcret,1"), pair("x", "a=b")]);
    assert_eq!(settings.timeout, Duration::from_millis(2500));
    assert_eq!(settings.resource.last(), Some(&pair("service.name", "alone")));
    assert!(!format!("{settings:?}").contains("cret"));
    let unset = read(&[("OTEL_EXPORTER_OTLP_TIMEOUT", ""), ("OTEL_SERVICE_NAME", " ")]);
    let unset = unset.expect("empty variables are unset ones");
    assert_eq!((unset.timeout, unset.resource.len()), (Duration::from_secs(10), 0));
    for (name, value, why) in [
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "pair 1: it must be a name"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,=secret", "pair 2: there is no name"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%2", "pair 1: `%`"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret", "pair 1 can't be a header"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0A", "pair 1 can't be a header"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "must be 1 to 3600000"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "must be 1 to 3600000"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a", "pair 1: it must be a name"),
    ] {
        let error = read(&[(name, value)]).expect_err(value).to_string();
        assert!(error.starts_with(&format!("{name}: ")) && error.contains(why), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_file_of_certificates_must_have_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("ca.pem");
    for text in [None, Some(""), Some("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----")]
    {
        if let Some(text) = text {
            std::fs::write(&file, text).expect("it is written");
        }
        let settings = Settings { certificates: Some(file.clone()), ..Settings::default() };
        let error = Collector::new("https://localhost", settings).expect_err("it has none");
        let error = error.to_string();
        assert!(error.starts_with("OTEL_EXPORTER_OTLP_CERTIFICATE: "), "{error}");
        assert!(error.contains("ca.pem"), "{error}");
    }
}

#[test]
fn secrets_do_not_follow_a_redirect() {
    let seen = Arc::new(Mutex::new(false));
    let there = Arc::clone(&seen);
    let (other, _got) = server(move |_, _, _| {
        *there.lock().expect("no panic") = true;
        ok()
    });
    let (url, _got) = server(move |_, _, _| {
        http("307 Temporary Redirect", &format!("Location: {other}/v1/metrics\r\n"), b"")
    });
    let error = refused(&url, DAY);
    assert!(error.contains("307") && !*seen.lock().expect("no panic"), "{error}");
}
