//! A client of a publisher, or of a server of metrics, that sends any bytes. Whatever it sent, the next client is
//! served.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use brickscope::{BrickId, BrickProfiler};
use brickscope_live::metrics::{MetricsOptions, MetricsServer};
use brickscope_live::socket::{Facts, Publisher, Watch};

struct Engine {
    publisher: Publisher,
    metrics: MetricsServer,
}

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let profiler = Arc::new(BrickProfiler::enabled());
    let timer = profiler.start_brick(BrickId::RmsNorm);
    profiler.stop_brick(timer, 1);
    #[expect(clippy::disallowed_methods, reason = "a fuzzer's socket: nobody relies on it")]
    let socket = std::env::temp_dir().join(format!("brickscope-{}.sock", std::process::id()));
    let publisher = Publisher::start_at(&profiler, Facts::default(), &socket).expect("a socket");
    let any_port = "127.0.0.1:0".parse().expect("an address");
    let metrics =
        MetricsServer::start(profiler, any_port, MetricsOptions::default()).expect("it listens");
    Engine { publisher, metrics }
});

/// How long a client waits for an answer. A server that is well answers at once.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// Panics if the server answers a hostile client with anything but HTTP, or doesn't serve a good one afterwards. The
/// first byte says which server.
pub fn run(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    if first.is_multiple_of(2) { ask_for_metrics(bytes) } else { watch(bytes) }
}

fn ask_for_metrics(bytes: &[u8]) {
    let answer = exchange(bytes);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{}", answer.escape_ascii());
    // Those before may not have ended yet.
    let is_served = (0..1000).any(|_| {
        let answer = exchange(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let is_served = answer.starts_with(b"HTTP/1.1 200 ");
        if !is_served {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_served
    });
    assert!(is_served, "a good client is refused");
}

/// Sends a request, and returns the answer. A server that has heard enough may close before all is sent.
fn exchange(request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(ENGINE.metrics.addr()).expect("it listens");
    stream.set_read_timeout(PATIENCE).expect("a time-out");
    let _ = stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer"),
        _ => answer,
    }
}

fn watch(bytes: &[u8]) {
    let path = ENGINE.publisher.path();
    if let Ok(mut stream) = UnixStream::connect(path) {
        stream.set_write_timeout(PATIENCE).expect("a time-out");
        let _ = stream.write_all(bytes);
    }
    let is_served = (0..1000).any(|_| {
        let is_served = Watch::socket(path).is_ok();
        if !is_served {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_served
    });
    assert!(is_served, "a good watcher is refused");
}
