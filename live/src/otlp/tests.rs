//! Collectors that misbehave.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use brickscope::{Anchor, BrickId, BrickProfiler, MockClock, Phase, Profile};
use brickscope_analysis::stacks::{By, Stacks};
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

fn settings(millis: u64) -> Settings {
    Settings { timeout: Duration::from_millis(millis), ..Settings::default() }
}

fn push(url: &str, settings: Settings) -> Result<Pushed, OtlpError> {
    let profile = run();
    let stacks = Stacks::of_spans(&profile, By::Layer, 0);
    Collector::new(url, settings)?.push(&profile, &stacks, &|| true)
}

/// The error of a push, and how long it took.
fn refused(url: &str, millis: u64) -> (String, Duration) {
    let begun = Instant::now();
    let error = push(url, settings(millis)).expect_err("it can't be pushed");
    (error.to_string(), begun.elapsed())
}

#[test]
fn both_signals_are_sent_with_their_headers() {
    let (url, got) = server(|_, _, _| ok());
    let mut settings = settings(5_000);
    settings.headers = vec![("Authorization".to_owned(), "Bearer x=y".to_owned())];
    settings.resource = vec![("service.name".to_owned(), "my engine".to_owned())];
    let pushed = push(&format!("{url}/"), settings).expect("it is taken");
    assert!(pushed.points > 10 && pushed.rejected == 0, "{pushed:?}");
    assert!(matches!(pushed.stacks, PushedStacks::Sent { profiles: 1, rejected: 0 }), "{pushed:?}");
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
    for status in ["429 Too Many Requests", "502 Bad Gateway", "503 Unavailable", "504 Timeout"] {
        let (url, got) = server(move |_, number, _| match number {
            0 => http(status, "", b"not a message"),
            _ => ok(),
        });
        push(&url, settings(5_000)).expect("the second try is taken");
        assert_eq!(got.try_iter().count(), 3, "{status}");
    }
    // Its own words are for who reads the message.
    let (url, got) = server(|_, _, _| http("503 Unavailable", "", b"\x12\x04full"));
    let (error, took) = refused(&url, 1_500);
    assert!(error.starts_with("it answered with status 503: full ("), "{error}");
    assert!(error.ends_with(" tries)") && took < Duration::from_secs(4), "{error}, {took:?}");
    assert!((2..6).contains(&got.try_iter().count()));
}

#[test]
fn the_pause_that_a_collector_asks_for_is_kept() {
    let (url, _got) = server(|_, number, _| match number {
        0 => http("429 Too Many Requests", "Retry-After: 1\r\n", b""),
        _ => ok(),
    });
    let begun = Instant::now();
    push(&url, settings(8_000)).expect("the second try is taken");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    // One that doesn't fit is not waited for.
    let (url, got) = server(|_, _, _| http("429 Too Many Requests", "Retry-After: 60\r\n", b""));
    let (error, took) = refused(&url, 5_000);
    assert!(error == "it answered with status 429" && took < Duration::from_secs(4), "{error}");
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
        let (error, _) = refused(&url, 5_000);
        assert!(error.ends_with(said), "{error}");
        assert_eq!(got.try_iter().count(), 1, "{status}");
    }
}

#[test]
fn an_answer_that_is_garbage_or_has_no_end_is_given_up() {
    let (url, _got) = server(|_, _, _| b"\x00\x01garbage\r\n\r\n".to_vec());
    let (error, took) = refused(&url, 5_000);
    assert!(took < Duration::from_secs(4), "{error}: {took:?}");
    let (url, _got) = server(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [&b"10000\r\n"[..], &[0; 1 << 16], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {}
        Vec::new()
    });
    let (error, took) = refused(&url, 8_000);
    assert!(error.ends_with("the answer has over 4 MiB"), "{error}");
    assert!(took < Duration::from_secs(7), "{took:?}");
}

#[test]
fn time_is_limited_whatever_the_collector_does() {
    // It takes the request, and says nothing.
    let (url, _got) = server(|_, _, _| {
        thread::sleep(Duration::from_secs(30));
        Vec::new()
    });
    let (error, took) = refused(&url, 400);
    assert!(error.starts_with("no answer in time"), "{error}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    // It drips its answer.
    let (url, _got) = server(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        while stream.write_all(b"\n").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
        Vec::new()
    });
    let (error, took) = refused(&url, 400);
    assert!(took < Duration::from_secs(3), "{error}: {took:?}");
    // Nobody listens.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let (error, took) = refused(&format!("http://{}", port.expect("a port")), 1_000);
    assert!(error.contains("refused") && error.ends_with("tries)"), "{error}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_push_can_be_ended_between_tries() {
    let (url, _got) = server(|_, _, _| http("503 Unavailable", "Retry-After: 20\r\n", b""));
    let profile = run();
    let stacks = Stacks::of_spans(&profile, By::Layer, 0);
    let collector = Collector::new(&url, settings(30_000)).expect("a URL");
    let begun = Instant::now();
    collector.push(&profile, &stacks, &|| false).expect_err("it is ended");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_a_collector_rejects_is_counted() {
    let (url, _got) = server(|got, _, _| {
        let rejected = if got.path == "/v1/metrics" { 3 } else { 1 };
        http("200 OK", "", &partial(rejected, "too old"))
    });
    let pushed = push(&url, settings(5_000)).expect("the rest is taken");
    assert_eq!((pushed.rejected, pushed.messages), (3, vec!["too old".to_owned(); 2]));
    assert!(matches!(pushed.stacks, PushedStacks::Sent { profiles: 1, rejected: 1 }));
    // A collector without profiles takes metrics all the same.
    for (status, is_taken) in [("404 Not Found", false), ("400 Bad Request", true)] {
        let (url, _got) = server(move |got, _, _| match &*got.path {
            "/v1/metrics" => ok(),
            _ => http(status, "", b""),
        });
        let stacks = push(&url, settings(5_000)).expect("metrics are taken").stacks;
        assert_eq!(matches!(stacks, PushedStacks::Failed(_)), is_taken, "{stacks:?}");
    }
}

#[test]
fn nothing_queues_up_behind_a_slow_collector() {
    let (url, got) = server(|_, number, _| {
        if number == 1 {
            thread::sleep(Duration::from_millis(700));
        }
        ok()
    });
    let collector = Arc::new(Collector::new(&url, settings(5_000)).expect("a URL"));
    let every = Duration::from_millis(100);
    let pusher = Pusher::start(collector, every, run).expect("a thread");
    // The second one is being answered; of the others, none follows it at once.
    thread::sleep(Duration::from_millis(650));
    let tally = pusher.finish();
    assert_eq!(tally.pushed as usize, got.try_iter().count(), "{tally:?}");
    assert!(tally.pushed <= 4 && tally.dropped >= 2, "{tally:?}");
}

#[test]
fn an_engine_does_not_notice_that_there_is_no_collector() {
    let collector = Collector::new("http://127.0.0.1:1", settings(60_000)).expect("a URL");
    let every = Duration::from_millis(10);
    let pusher = Pusher::start(Arc::new(collector), every, run).expect("a thread");
    thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    let tally = pusher.finish();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!((tally.pushed, tally.dropped > 0), (0, true));
    assert!(tally.trouble.is_some_and(|trouble| trouble.contains("refused")));
}

#[test]
fn all_pushes_of_a_profiler_have_one_start() {
    const SECOND: u64 = 1_000_000_000;
    let collector = Collector::new("http://localhost:4318", settings(1)).expect("a URL");
    let profile = |created: &str, at_ns| {
        let anchor = |at_ns| Anchor { at_ns, monotonic_ns: 7, monotonic_raw_ns: 7, width_ns: 1 };
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
    let fresh = Collector::new("http://localhost:4318", settings(1)).expect("a URL");
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
    let (error, _) = refused(&url, 3_000);
    assert!(error.contains("307") && !*seen.lock().expect("no panic"), "{error}");
}
