//! Prometheus text over HTTP.
//!
//! A scraper asks `GET /metrics`; the answer is a picture of the profiler at that moment
//! ([`BrickProfiler::snapshot`]). Nobody's requests can cost the engine much: a picture is taken at most
//! every [`FRESH`], however many ask, at most [`MOST_CONNECTIONS`] of them are heard at once, and each has
//! [`PATIENCE`] to ask and as much to take its answer. A connection is for one request.
//!
//! ```
//! use std::sync::Arc;
//!
//! use brickscope::BrickProfiler;
//! use brickscope_live::metrics::{MetricsOptions, MetricsServer};
//!
//! let profiler = Arc::new(BrickProfiler::new());
//! let options = MetricsOptions::default();
//! // Port 0: any that is free.
//! let server = MetricsServer::start(Arc::clone(&profiler), "127.0.0.1:0".parse()?, options)?;
//! println!("http://{}/metrics", server.addr());
//! profiler.enable();
//! // … the engine runs …
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The server is written by hand on the standard library: tiny_http has no timeouts and no limits, so
//! that a slow client could keep a thread of the engine's process for ever, and hyper brings an
//! asynchronous runtime with threads of its own. Requests are parsed by `httparse`, which is hyper's.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brickscope::{BrickProfiler, Profile};
use brickscope_analysis::export::prometheus::{self, Dialect, Names, Options};

/// For so long a picture is handed to whoever asks; then a new one is taken.
pub const FRESH: Duration = Duration::from_millis(50);

/// So many connections are heard at once. Further ones are told to come later.
pub const MOST_CONNECTIONS: usize = 4;

/// So long a client may take to ask, and then again to take its answer.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of a request, without a body, and its headers at most.
const MOST_BYTES: usize = 8 << 10;
const MOST_HEADERS: usize = 64;

/// How to serve.
#[derive(Debug, Clone, Copy, Default)]
pub struct MetricsOptions {
    /// By which names.
    pub names: Names,
    /// Whether an address that other machines reach is meant. Metrics name the model and its file; there
    /// is no encryption, and nobody is asked who they are.
    pub is_public: bool,
}

/// Why metrics can't be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// The address isn't of this machine alone, and that isn't said to be meant.
    #[error(
        "{addr} can be reached from other machines, and metrics name the model and its file: serve on \
         127.0.0.1, or say that this is meant"
    )]
    Public {
        /// The address.
        addr: SocketAddr,
    },
    /// Nobody can listen there.
    #[error("metrics can't be served at {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
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
    /// Serves what `profiler` records at `http://{addr}/metrics`, on threads of its own; a port of 0 takes
    /// any that is free.
    ///
    /// # Errors
    ///
    /// If the address isn't a loopback address and [`MetricsOptions::is_public`] isn't set, or nobody can
    /// listen there.
    pub fn start(
        profiler: Arc<BrickProfiler>,
        addr: SocketAddr,
        options: MetricsOptions,
    ) -> Result<Self, MetricsError> {
        Self::start_with(move || profiler.snapshot(), addr, options)
    }

    /// As [`start`](Self::start), of the pictures that `snapshot` takes: to put in what a profiler doesn't
    /// know, such as the model, or where an engine has several profilers.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
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
        let pictures =
            Pictures { snapshot: Box::new(snapshot), names: options.names, last: Mutex::new(None) };
        let shared = Arc::new(Shared {
            pictures,
            is_loopback: addr.ip().is_loopback(),
            connections: AtomicUsize::new(0),
        });
        let over = Arc::clone(&is_over);
        let listening = thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || listen(&listener, &over, &shared))
            .map_err(failed)?;
        Ok(Self { addr, is_over, listening: Some(listening) })
    }

    /// Where it listens: with the port that it got.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops listening. What is being answered is answered.
    pub fn stop(self) {}
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // So that it wakes up, and sees it.
        let woken = TcpStream::connect_timeout(&reachable(self.addr), Duration::from_secs(1));
        if let (Some(listening), Ok(_)) = (self.listening.take(), woken) {
            // A thread that panicked has nothing left to stop.
            let _ = listening.join();
        }
    }
}

/// An address by which this process reaches what listens at `addr`.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

struct Shared {
    pictures: Pictures,
    is_loopback: bool,
    connections: AtomicUsize,
}

/// One of the connections that are heard at once.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let taken = shared.connections.fetch_add(1, Ordering::AcqRel);
        let place = Self(Arc::clone(shared));
        (taken < MOST_CONNECTIONS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

fn listen(listener: &TcpListener, is_over: &AtomicBool, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if is_over.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            // Too many open files, say: that passes, and asking again at once would keep a core busy.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = Place::take(shared) else {
            refuse(stream);
            continue;
        };
        // Without a thread to hear it, the connection is closed.
        let _ = thread::Builder::new()
            .name("metrics client".to_owned())
            .spawn(move || answer(stream, &place.0));
    }
}

/// Says that there are too many, if that can be said without waiting.
fn refuse(mut stream: TcpStream) {
    let busy = Response::new(503, "too many connections at once\n".to_owned());
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream.write(&busy.bytes(false));
    }
}

/// Pictures of the profiler as text, of each dialect the last one.
struct Pictures {
    snapshot: Box<dyn Fn() -> Profile + Send + Sync>,
    names: Names,
    last: Mutex<Option<(Instant, Pictured)>>,
}

/// A picture, and its texts by dialect as far as somebody asked for them.
struct Pictured {
    profile: Profile,
    texts: [Option<Arc<String>>; 2],
}

impl Pictures {
    fn text(&self, dialect: Dialect) -> Arc<String> {
        // One at a time: who waits here gets the picture that is being taken.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Pictured { profile, texts } = match &mut *last {
            Some(pictured) if pictured.0.elapsed() < FRESH => &mut pictured.1,
            stale => {
                let taken = Instant::now();
                let pictured = Pictured { profile: (self.snapshot)(), texts: Default::default() };
                &mut stale.insert((taken, pictured)).1
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

/// Hears a request and answers it. Whatever goes wrong on the way, nobody is left to tell.
fn answer(mut stream: TcpStream, shared: &Shared) {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let response = match read_head(&mut stream, until, &mut head) {
        Ok(request) => respond(&request, shared),
        Err(Some(response)) => (response, false),
        Err(None) => return,
    };
    let (response, is_head) = response;
    let until = Instant::now() + PATIENCE;
    if write_all(&mut stream, &response.bytes(is_head), until).is_err() {
        return;
    }
    // Closing with something unread in the buffer would reset the connection, and the answer with it.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut rest = [0; 1 << 10];
    for _ in 0..64 {
        match read(&mut stream, &mut rest, until) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// What of a request matters.
struct Request {
    method: String,
    target: String,
    host: Option<String>,
    /// OpenMetrics is among what it takes.
    takes_open_metrics: bool,
}

/// Reads a request up to the empty line; `Err(None)` if the client has gone.
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
            Ok(httparse::Status::Complete(_)) => return Ok(Request::of(&request)),
            Ok(httparse::Status::Partial) if head.len() < MOST_BYTES => {}
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(error(431, "the request is too large"));
            }
            Err(_) => return Err(error(400, "this is no HTTP request")),
        }
    }
}

impl Request {
    fn of(request: &httparse::Request<'_, '_>) -> Self {
        let header = |name: &str| {
            let header = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(header.value).ok()
        };
        let accept = header("accept").unwrap_or_default();
        Self {
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            host: header("host").map(str::to_owned),
            takes_open_metrics: accept.contains("application/openmetrics-text"),
        }
    }

    /// The path, without what is asked of it.
    fn path(&self) -> &str {
        // A proxy's form has the scheme and the host, too.
        let target = match self.target.strip_prefix("http://") {
            Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
            None => &self.target,
        };
        target.split(['?', '#']).next().unwrap_or_default()
    }

    /// Whether the host that it was sent to is this machine by name. A page in a browser can have a name of
    /// its own point here, and would be allowed to read the answer.
    fn names_loopback(&self) -> bool {
        let Some(host) = &self.host else { return true };
        let name = match host.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name),
        };
        let is_local = name.eq_ignore_ascii_case("localhost");
        is_local || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// The answer, and whether it is to be without its body.
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
    let response = match request.path() {
        "/metrics" => {
            let dialect = match request.takes_open_metrics {
                true => Dialect::OpenMetrics,
                false => Dialect::Prometheus,
            };
            let body = shared.pictures.text(dialect);
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
    /// Whether to say which methods there are.
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

/// What is left until a moment; an error if it has passed.
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

/// As [`Write::write_all`], but all of it until a moment: a client that takes a byte a second is no reason
/// to wait for hours.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
