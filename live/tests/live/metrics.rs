//! The metrics server: scraped during a real run, and asked by clients that misbehave.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brickscope::{BrickProfiler, Phase, Profile};
use brickscope_engine::executor::Cpu;
use brickscope_engine::{Model, Session};
use brickscope_formats::export::prometheus::Names;
use brickscope_kernels::Kernels;
use brickscope_live::metrics::{FRESH, MOST_WAITING, MetricsError, MetricsOptions, MetricsServer};
use brickscope_testing::patience::{HANG, wait_until};

fn serve(profiler: &Arc<BrickProfiler>, names: Names) -> MetricsServer {
    serve_patiently(profiler, names, HANG)
}

fn serve_patiently(
    profiler: &Arc<BrickProfiler>,
    names: Names,
    patience: Duration,
) -> MetricsServer {
    let options = MetricsOptions { names, patience, ..MetricsOptions::default() };
    let any = "127.0.0.1:0".parse().expect("an address");
    MetricsServer::start(Arc::clone(profiler), any, options).expect("it listens")
}

/// Sends `request` and reads until the server closes the connection. On a busy machine, answered connections may
/// still count as open, so this retries when refused.
fn ask(addr: SocketAddr, request: &[u8]) -> String {
    let mut answer = String::new();
    wait_until("an answer", || {
        let mut stream = TcpStream::connect(addr).expect("it listens");
        answer.clear();
        let asked = stream.write_all(request).and_then(|()| stream.read_to_string(&mut answer));
        asked.is_ok() && !answer.starts_with("HTTP/1.1 503 ")
    });
    answer
}

fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it answers");
    String::from_utf8(bytes).expect("text")
}

/// Splits an answer into head and body, and checks the head's `Content-Length`.
fn split(answer: &str) -> (&str, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("\r\nConnection: close"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    (head, body)
}

fn scrape(addr: SocketAddr) -> String {
    let answer = ask(addr, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = split(&answer);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    body.to_owned()
}

/// The value of the sample `series`, a name with labels.
fn value<'t>(text: &'t str, series: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Checks scraped text against a profile.
fn says(text: &str, profile: &Profile) {
    for total in &profile.phases {
        let phase = total.phase.name();
        let of = |name: &str| {
            let found = value(text, &format!("brickscope_{name}{{phase=\"{phase}\"}}"));
            found
                .unwrap_or_else(|| panic!("no {name} of {phase} in {text}"))
                .parse::<f64>()
                .unwrap()
        };
        assert_eq!(of("tokens_total"), total.tokens as f64);
        assert_eq!(of("passes_total"), total.passes as f64);
        assert_eq!(of("wall_seconds_total"), seconds(total.wall_ns));
        assert_eq!(of("unattributed_seconds_total"), seconds(total.unattributed_ns));
        for brick in profile.bricks(Some(total.phase)) {
            let (name, category) = (&brick.stats.name, brick.category.unwrap().name());
            let series = format!(
                "brickscope_brick_exclusive_seconds_total{{phase=\"{phase}\",brick=\"{name}\",category=\"\
                 {category}\",source=\"host\"}}"
            );
            let found = value(text, &series).unwrap_or_else(|| panic!("no {series}"));
            assert_eq!(
                found.parse::<f64>().unwrap(),
                seconds(brick.stats.exclusive_ns),
                "{series}"
            );
        }
    }
}

#[test]
fn a_run_of_a_model_is_scraped_while_it_goes_on_and_at_its_end() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    let model = Model::open(&models.join("tiny-Q4_K_M.gguf")).expect("a model");
    let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).expect("a thread");
    let mut session = Session::new(&model, cpu, 64).expect("a session");
    let profiler = Arc::new(BrickProfiler::new());
    let server = serve(&profiler, Names::Both);
    let addr = server.addr();
    profiler.enable();

    const SCRAPES: usize = 5;
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    let scraper = thread::spawn(move || {
        let mut tokens = Vec::new();
        for _ in 0..SCRAPES {
            let text = scrape(addr);
            let found = value(&text, "brickscope_tokens_total{phase=\"decode\"}");
            tokens.push(found.map_or(0, |tokens| tokens.parse::<u64>().unwrap()));
            counted.fetch_add(1, Ordering::Release);
            thread::sleep(FRESH);
        }
        tokens
    });
    session.forward_profiled(&profiler, &[1, 2, 3, 4, 5]).expect("it fits");
    let mut decoded = 0;
    // Until the scraper is done.
    while done.load(Ordering::Acquire) < SCRAPES {
        session.truncate(5);
        session.forward_profiled(&profiler, &[9]).expect("it fits");
        decoded += 1;
    }
    profiler.disable();
    let tokens = scraper.join().expect("every scrape is answered");
    assert!(tokens.is_sorted(), "counters only grow: {tokens:?}");
    assert!(tokens.last().is_some_and(|last| *last <= decoded), "{tokens:?}");

    // Later than any snapshot taken before the end.
    thread::sleep(FRESH);
    let text = scrape(addr);
    let profile = profiler.profile();
    assert_eq!(profile.phase(Phase::Decode).map(|total| total.tokens), Some(decoded));
    says(&text, &profile);
    assert_eq!(value(&text, "llamacpp:tokens_predicted_total"), Some(&*decoded.to_string()));
    server.stop();
    match TcpStream::connect_timeout(&addr, HANG) {
        Err(gone) => assert_eq!(gone.kind(), ErrorKind::ConnectionRefused),
        // Another test may have got the port meanwhile. No other has decoded.
        Ok(mut other) => {
            let mut answer = Vec::new();
            let _ = other.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            let _ = other.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            assert!(!answer.contains("brickscope_tokens_total{phase=\"decode\"}"), "{answer}");
        }
    }
}

#[test]
fn questions_that_are_none_get_an_answer_that_says_so() {
    let profiler = Arc::new(BrickProfiler::new());
    let server = serve(&profiler, Names::Brickscope);
    let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(9_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: a\r\n".repeat(65));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"),
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
        ("GET http://127.0.0.1:9/metrics HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n", "200"),
        ("GET /metrics HTTP/1.1\r\nhost: [::1]:80\r\n\r\n", "200"),
        ("GET /metrics/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET * HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
        ("OPTIONS / HTTP/1.1\r\n\r\n", "405"),
        // A web page whose domain resolves to this machine.
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: [::1].evil.example\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: [::1]:80.evil.example\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: localhost:evil.example\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: localhost:99999\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: me@localhost\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: \r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: evil.\u{e9}\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "421"),
        ("garbage\r\n\r\n", "400"),
        ("\0\u{1}\u{2}\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", "400"),
        (&long, "431"),
        (&many, "431"),
    ] {
        let answer = ask(server.addr(), request.as_bytes());
        let (head, _) = split(&answer);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.60}: {head}");
        assert_eq!(head.contains("\r\nAllow: GET, HEAD"), status == "405", "{head}");
    }
    let head = ask(server.addr(), b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(!head.contains("\r\nContent-Length: 0\r\n"), "that of the body that GET has: {head}");
    let open = ask(
        server.addr(),
        b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n",
    );
    assert!(
        open.contains("Content-Type: application/openmetrics-text") && open.ends_with("# EOF\n")
    );
}

#[test]
fn a_request_may_come_in_parts_and_a_second_one_is_not_heard() {
    let profiler = Arc::new(BrickProfiler::new());
    let server = serve(&profiler, Names::Brickscope);
    let mut stream = TcpStream::connect(server.addr()).expect("it listens");
    for part in ["GE", "T / HT", "TP/1.1\r", "\nHost: localhost\r\n", "\r\n"] {
        stream.write_all(part.as_bytes()).expect("it is heard");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(rest(&mut stream).starts_with("HTTP/1.1 200"));
    let twice = ask(server.addr(), b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(twice.matches("HTTP/1.1 ").count(), 1);
    // A client that leaves without a request does no harm.
    let stream = TcpStream::connect(server.addr()).expect("it listens");
    stream.shutdown(Shutdown::Both).expect("it is open");
    assert!(ask(server.addr(), b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
}

#[test]
fn those_who_say_nothing_take_no_place() {
    let profiler = Arc::new(BrickProfiler::new());
    let silent = |server: &MetricsServer, n: usize| -> Vec<TcpStream> {
        (0..n).map(|_| TcpStream::connect(server.addr()).expect("it listens")).collect()
    };
    // More than may wait: those that came first are sent away, and whoever asks is answered.
    let server = serve(&profiler, Names::Brickscope);
    let mut clients = silent(&server, 3 * MOST_WAITING);
    let answer = ask(server.addr(), b"GET / HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut bytes = Vec::new();
    // A reset is as good as an end.
    let _ = clients[0].read_to_end(&mut bytes);
    assert!(bytes.is_empty(), "{bytes:?}");
    drop(clients);

    let patience = Duration::from_millis(50);
    let server = serve_patiently(&profiler, Names::Brickscope, patience);
    let begun = Instant::now();
    let mut clients = silent(&server, MOST_WAITING);
    for stream in &mut clients {
        assert!(rest(stream).starts_with("HTTP/1.1 408"), "their time is over");
    }
    assert!(begun.elapsed() >= patience);
    drop(clients);
    wait_until("a permit", || {
        let Ok(mut stream) = TcpStream::connect(server.addr()) else { return false };
        let mut bytes = Vec::new();
        let asked = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
        let _ = stream.read_to_end(&mut bytes);
        asked.is_ok() && bytes.starts_with(b"HTTP/1.1 200")
    });
}

#[test]
fn other_machines_are_heard_only_if_that_is_meant() {
    let profiler = Arc::new(BrickProfiler::new());
    let all: SocketAddr = "0.0.0.0:0".parse().expect("an address");
    let refused = MetricsServer::start(Arc::clone(&profiler), all, MetricsOptions::default());
    assert!(matches!(refused, Err(MetricsError::Public { .. })), "{refused:?}");
    let options = MetricsOptions { is_public: true, patience: HANG, ..MetricsOptions::default() };
    let server = MetricsServer::start(Arc::clone(&profiler), all, options).expect("it listens");
    let here = SocketAddr::from(([127, 0, 0, 1], server.addr().port()));
    // Under any host name.
    let answer = ask(here, b"GET /metrics HTTP/1.1\r\nHost: box.example:9187\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let taken = MetricsServer::start(profiler, here, MetricsOptions::default());
    let taken = taken.expect_err("somebody listens there").to_string();
    assert!(taken.contains(&here.to_string()), "{taken}");
}
