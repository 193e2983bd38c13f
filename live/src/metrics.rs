//! Prometheus metrics over HTTP.
//!
//! A scraper sends `GET /metrics`, and gets a snapshot of the profiler at that moment
//! ([`BrickProfiler::snapshot`]). Requests can't cost the engine much: a snapshot is taken at most once every
//! [`FRESH`], no more than [`MOST_CONNECTIONS`] requests are answered at once, and each client has
//! [`MetricsOptions::patience`] to send its request and as long again to receive the answer. A connection serves one
//! request. Clients that send nothing hold nobody up: of more than [`MOST_WAITING`] the one that came first is sent away.
//!
//! ```
//! use std::sync::Arc;
//!
//! use brickscope::BrickProfiler;
//! use brickscope_live::metrics::{MetricsOptions, MetricsServer};
//!
//! let profiler = Arc::new(BrickProfiler::new());
//! let options = MetricsOptions::default();
//! // Port 0 picks a free port.
//! let server = MetricsServer::start(Arc::clone(&profiler), "127.0.0.1:0".parse()?, options)?;
//! println!("http://{}/metrics", server.addr());
//! profiler.enable();
//! // … the engine runs …
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The server uses only the standard library, and `httparse` (hyper's parser) for requests. tiny_http has no
//! time-outs and no limits, so a slow client could hold a thread of the engine's process for ever; hyper
//! brings an asynchronous runtime with its own threads.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brickscope::{BrickProfiler, Profile};
use brickscope_formats::export::prometheus::{self, Dialect, Names, Options};

/// How long a snapshot is reused before the next request takes a new one.
pub const FRESH: Duration = Duration::from_millis(50);

/// How many requests are answered at once. Further ones get status 503.
pub const MOST_CONNECTIONS: usize = 4;

/// How many connections may be open whose request isn't there yet.
pub const MOST_WAITING: usize = 16;

/// How long a client may take to send its request, and then again to receive the answer, unless
/// [`MetricsOptions::patience`] is changed.
pub const PATIENCE: Duration = Duration::from_secs(3);

// The size of a request without a body, in bytes, and the number of its headers.
const MOST_BYTES: usize = 8 << 10;
const MOST_HEADERS: usize = 64;

/// Options of the server.
#[derive(Debug, Clone, Copy)]
pub struct MetricsOptions {
    /// The names of the metrics.
    pub names: Names,
    /// Whether to allow an address that other machines can reach. Metrics include the names of the model and its
    /// file, and the server has neither encryption nor authentication.
    pub is_public: bool,
    /// How long a client may take to send its request, and then again to receive the answer: [`PATIENCE`] by default.
    pub patience: Duration,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self { names: Names::default(), is_public: false, patience: PATIENCE }
    }
}

/// Why metrics can't be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// The address isn't a loopback address, and [`MetricsOptions::is_public`] isn't set.
    #[error(
        "{addr} can be reached from other machines, and metrics name the model and its file: serve on \
         127.0.0.1, or allow other machines explicitly"
    )]
    Public {
        /// The address.
        addr: SocketAddr,
    },
    /// The server can't listen at the address.
    #[error("metrics can't be served at {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// Serves metrics until it is dropped or stopped.
#[derive(Debug)]
pub struct MetricsServer {
    addr: SocketAddr,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves what `profiler` records at `http://{addr}/metrics`, on its own threads. Port 0 picks a free port.
    ///
    /// # Errors
    ///
    /// If `addr` isn't a loopback address and [`MetricsOptions::is_public`] isn't set, or the server can't listen
    /// there.
    pub fn start(
        profiler: Arc<BrickProfiler>,
        addr: SocketAddr,
        options: MetricsOptions,
    ) -> Result<Self, MetricsError> {
        Self::start_with(move || profiler.snapshot(), addr, options)
    }

    /// Like [`start`](Self::start), with the profiles that `snapshot` returns: to add what a profiler doesn't
    /// know, such as the model, or to switch between profilers.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start).
    pub fn start_with(
        snapshot: impl Fn() -> Profile + Send + Sync + 'static,
        addr: SocketAddr,
        options: MetricsOptions,
    ) -> Result<Self, MetricsError> {
        if !options.is_public && !addr.ip().is_loopback() {
            return Err(MetricsError::Public { addr });
        }
        let failed = |source| MetricsError::Listen { addr, source };
        let listener = TcpListener::bind(addr).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let snapshots = Snapshots {
            snapshot: Box::new(snapshot),
            names: options.names,
            last: Mutex::new(None),
        };
        let shared = Arc::new(Shared {
            snapshots,
            is_loopback: addr.ip().is_loopback(),
            patience: options.patience,
            connections: AtomicUsize::new(0),
            waiting: Mutex::default(),
        });
        let over = Arc::clone(&is_over);
        let listening = thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || listen(&listener, &over, &shared))
            .map_err(failed)?;
        Ok(Self { addr, is_over, listening: Some(listening) })
    }

    /// The address it listens at, with the actual port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops listening. Requests being answered are completed.
    pub fn stop(self) {}
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread from `accept`, so that it sees the flag.
        let woken = TcpStream::connect_timeout(&reachable(self.addr), Duration::from_secs(1));
        if let (Some(listening), Ok(_)) = (self.listening.take(), woken) {
            // A panic in that thread leaves nothing to stop.
            let _ = listening.join();
        }
    }
}

/// An address by which this process reaches a listener at `addr`.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

struct Shared {
    snapshots: Snapshots,
    is_loopback: bool,
    patience: Duration,
    connections: AtomicUsize,
    /// Connections whose request isn't there yet, the oldest first, each with a number.
    waiting: Mutex<VecDeque<(u64, TcpStream)>>,
}

impl Shared {
    /// Lets a connection wait for its request, at the cost of the one that has waited longest.
    fn wait(&self, nth: u64, stream: &TcpStream) {
        let Ok(other) = stream.try_clone() else { return };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() == MOST_WAITING
            && let Some((_, oldest)) = waiting.pop_front()
        {
            // Its thread then finds the end of the request.
            let _ = oldest.shutdown(std::net::Shutdown::Both);
        }
        waiting.push_back((nth, other));
    }

    fn waits_no_more(&self, nth: u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|(other, _)| *other != nth);
    }
}

/// Permission to answer one of [`MOST_CONNECTIONS`] requests.
struct Permit(Arc<Shared>);

impl Permit {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let taken = shared.connections.fetch_add(1, Ordering::AcqRel);
        let permit = Self(Arc::clone(shared));
        (taken < MOST_CONNECTIONS).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

fn listen(listener: &TcpListener, is_over: &AtomicBool, shared: &Arc<Shared>) {
    for nth in 0.. {
        let accepted = listener.accept();
        if is_over.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            // For example too many open files. That may pass, and retrying at once would keep a core busy.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        shared.wait(nth, &stream);
        let of_client = Arc::clone(shared);
        // If no thread can be started, the connection is closed.
        let started = thread::Builder::new()
            .name("metrics client".to_owned())
            .spawn(move || answer(stream, nth, &of_client));
        if started.is_err() {
            shared.waits_no_more(nth);
        }
    }
}

/// Sends an answer that needs no permit, if that is possible without blocking: nobody holds a thread by it.
fn refuse(mut stream: TcpStream, response: &Response) {
    if stream.set_nonblocking(true).is_err() {
        return;
    }
    let _ = stream.write(&response.bytes(false));
    let _ = stream.shutdown(std::net::Shutdown::Write);
    // What has come is read, so that closing the socket doesn't reset it before the answer is read.
    let mut rest = [0; 1 << 10];
    while matches!(stream.read(&mut rest), Ok(1..)) {}
}

/// Snapshots of the profiler as text; only the newest is kept.
struct Snapshots {
    snapshot: Box<dyn Fn() -> Profile + Send + Sync>,
    names: Names,
    last: Mutex<Option<(Instant, CachedSnapshot)>>,
}

/// A snapshot, and its text in each dialect that has been asked for.
struct CachedSnapshot {
    profile: Profile,
    texts: [Option<Arc<String>>; 2],
}

impl Snapshots {
    fn text(&self, dialect: Dialect) -> Arc<String> {
        // One request at a time: those that wait here share the snapshot being taken.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let CachedSnapshot { profile, texts } = match &mut *last {
            Some(cached) if cached.0.elapsed() < FRESH => &mut cached.1,
            stale => {
                let taken = Instant::now();
                let cached =
                    CachedSnapshot { profile: (self.snapshot)(), texts: Default::default() };
                &mut stale.insert((taken, cached)).1
            }
        };
        if let Some(text) = &texts[dialect as usize] {
            return Arc::clone(text);
        }
        let mut bytes = Vec::new();
        let options = Options { names: self.names, dialect };
        prometheus::write_with(profile, options, &mut bytes).expect("memory is written to");
        let text = Arc::new(String::from_utf8(bytes).expect("it writes text"));
        texts[dialect as usize] = Some(Arc::clone(&text));
        text
    }
}

/// Reads a request and answers it. Errors of the connection are ignored: there is nobody to report them to.
fn answer(mut stream: TcpStream, nth: u64, shared: &Arc<Shared>) {
    let until = Instant::now() + shared.patience;
    let mut head = Vec::new();
    let request = read_head(&mut stream, until, &mut head);
    shared.waits_no_more(nth);
    let permit = Permit::take(shared);
    let (response, is_head) = match request {
        Ok(_) if permit.is_none() => {
            return refuse(stream, &Response::new(503, "too many requests at once\n".to_owned()));
        }
        Ok(request) => respond(&request, shared),
        Err(Some(response)) => return refuse(stream, &response),
        Err(None) => return,
    };
    let until = Instant::now() + shared.patience;
    if write_all(&mut stream, &response.bytes(is_head), until).is_err() {
        return;
    }
    // Closing a socket with unread input resets the connection, and the client may lose the answer.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut rest = [0; 1 << 10];
    for _ in 0..64 {
        match read(&mut stream, &mut rest, until) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// The relevant parts of a request.
struct Request {
    method: String,
    target: String,
    /// The values of all headers `Host`: there should be one.
    hosts: Vec<String>,
    /// Whether the client accepts OpenMetrics.
    takes_open_metrics: bool,
}

/// Reads a request up to the empty line. `Err(None)` if the client has gone.
fn read_head(
    stream: &mut TcpStream,
    until: Instant,
    head: &mut Vec<u8>,
) -> Result<Request, Option<Response>> {
    let error = |status, text: &str| Some(Response::new(status, format!("{text}\n")));
    let mut part = [0; 1 << 10];
    loop {
        let n = match read(stream, &mut part, until) {
            Ok(0) => return Err(None),
            Ok(n) => n,
            Err(failed) if is_timeout(&failed) => {
                return Err(error(408, "the request did not come in time"));
            }
            Err(_) => return Err(None),
        };
        head.extend_from_slice(&part[..n]);
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(httparse::Status::Complete(_)) => return Ok(Request::from_parsed(&request)),
            Ok(httparse::Status::Partial) if head.len() < MOST_BYTES => {}
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(error(431, "the request is too large"));
            }
            Err(_) => return Err(error(400, "not an HTTP request")),
        }
    }
}

impl Request {
    fn from_parsed(request: &httparse::Request<'_, '_>) -> Self {
        let header = |name: &str| {
            let header = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(header.value).ok()
        };
        let accept = header("accept").unwrap_or_default();
        let hosts = request.headers.iter().filter(|h| h.name.eq_ignore_ascii_case("host"));
        Self {
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            hosts: hosts.map(|h| String::from_utf8_lossy(h.value).into_owned()).collect(),
            takes_open_metrics: accept.contains("application/openmetrics-text"),
        }
    }

    /// The host of the target, and its path without the query. Requests to a proxy have a scheme and a host there.
    fn host_and_path(&self) -> (Option<&str>, &str) {
        let (host, target) = match self.target.split_once("://") {
            Some((_, rest)) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
            None => (None, &*self.target),
        };
        let path = target.split(['?', '#']).next().unwrap_or_default();
        (host, if path.is_empty() { "/" } else { path })
    }

    /// Whether the request is for this machine by its name or address. A web page can make a domain of its own resolve to
    /// this machine (DNS rebinding), and its browser would let it read the answer.
    fn names_loopback(&self) -> bool {
        let hosts = self.hosts.iter().map(String::as_str).chain(self.host_and_path().0);
        self.hosts.len() <= 1 && hosts.into_iter().all(is_loopback)
    }
}

/// Whether `HOST` or `HOST:PORT` is this machine, and nothing else is in it.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
        Some((name, rest)) => (name, rest),
        None => host.find(':').map_or((host, ""), |colon| host.split_at(colon)),
    };
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return false;
    }
    match host.starts_with('[') {
        true => name.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback()),
        false => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

/// The answer, and whether to omit its body.
fn respond(request: &Request, shared: &Shared) -> (Response, bool) {
    let is_head = request.method == "HEAD";
    let text = |status, text: &str| Response::new(status, format!("{text}\n"));
    if !is_head && request.method != "GET" {
        let mut response = text(405, "only GET and HEAD are answered");
        response.allow = true;
        return (response, false);
    }
    if shared.is_loopback && !request.names_loopback() {
        return (text(421, "ask by localhost or by the address"), is_head);
    }
    let response = match request.host_and_path().1 {
        "/metrics" => {
            let dialect = match request.takes_open_metrics {
                true => Dialect::OpenMetrics,
                false => Dialect::Prometheus,
            };
            let body = shared.snapshots.text(dialect);
            Response { status: 200, content_type: dialect.content_type(), body, allow: false }
        }
        "/" => text(200, "brickscope: metrics are at /metrics"),
        _ => text(404, "there is nothing here: metrics are at /metrics"),
    };
    (response, is_head)
}

struct Response {
    status: u16,
    content_type: &'static str,
    body: Arc<String>,
    /// Whether to list the allowed methods.
    allow: bool,
}

impl Response {
    fn new(status: u16, body: String) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Self { status, content_type, body: Arc::new(body), allow: false }
    }

    fn bytes(&self, without_body: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let allow = if self.allow { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: \
             no-store\r\nX-Content-Type-Options: nosniff\r\n{allow}Connection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        );
        let mut bytes = head.into_bytes();
        if !without_body {
            bytes.extend_from_slice(self.body.as_bytes());
        }
        bytes
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The time left until `until`; an error if none is.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn read(stream: &mut TcpStream, bytes: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Like [`Write::write_all`], but bounds the whole write by `until`: a client that takes a byte a second
/// can't make it last for hours. What there is room for is written however late it is: the client may have waited for
/// a thread of ours that had no processor.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    let mut least = Some(Duration::from_millis(1));
    while !bytes.is_empty() {
        let left = left(until).or_else(|over| least.ok_or(over))?;
        least = None;
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_drips_its_request_is_given_up() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut stream, _) = listener.accept().expect("a client");
        let dripping = thread::spawn(move || {
            // Fewer bytes than are too many, however late they are read.
            for _ in 0..MOST_BYTES / 2 {
                if client.write_all(b"x").is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
            let _ = client.read(&mut [0]);
        });
        let until = Instant::now() + Duration::from_millis(50);
        let Err(Some(answer)) = read_head(&mut stream, until, &mut Vec::new()) else {
            panic!("it is no request")
        };
        assert_eq!(answer.status, 408);
        drop(stream);
        dripping.join().expect("no panic");
    }
}
