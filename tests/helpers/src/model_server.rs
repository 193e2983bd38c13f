//! A server with OpenAI's API that does what it is told to, and keeps what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// What becomes of a request.
#[derive(Debug, Clone, Copy)]
pub enum Does {
    /// A stream with as many pieces as were asked for.
    Answer,
    /// The same, once this many requests have come.
    WaitFor(usize),
    /// An answer that isn't a stream.
    Whole,
    /// This status.
    Refuse(u16),
    /// A stream that ends after two pieces, without its end.
    BreakOff,
    /// Nothing, and the connection is closed.
    HangUp,
}

/// The server. Its threads end with the program.
#[derive(Debug)]
pub struct Fake {
    /// Its address.
    pub url: String,
    /// The most requests that it had at once.
    pub most_at_once: Arc<AtomicUsize>,
    asked: Arc<(Mutex<Vec<String>>, Condvar)>,
}

impl Fake {
    /// Starts a server that does with the `nth` request to an endpoint what it is told.
    ///
    /// # Panics
    ///
    /// If there is no port.
    #[must_use]
    pub fn start(does: impl Fn(usize) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let fake = Self { url, most_at_once: Arc::default(), asked: Arc::default() };
        let (asked, most) = (Arc::clone(&fake.asked), Arc::clone(&fake.most_at_once));
        let (does, now) = (Arc::new(does), Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (asked, does) = (Arc::clone(&asked), Arc::clone(&does));
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
                    while let Some(request) = next(&mut reader) {
                        if request.starts_with("GET /v1/models") {
                            whole(&stream, 200, r#"{"data":[{"id":"fake-1"}]}"#);
                            continue;
                        }
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        let nth = {
                            let mut all = asked.0.lock().expect("a lock");
                            all.push(request.clone());
                            asked.1.notify_all();
                            all.len() - 1
                        };
                        let goes_on = answer(&stream, &request, nth, does(nth), &asked, &now);
                        if !goes_on {
                            return;
                        }
                    }
                });
            }
        });
        fake
    }

    /// What was asked of endpoints, head and body.
    ///
    /// # Panics
    ///
    /// If the server failed.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.0.lock().expect("a lock").clone()
    }
}

fn next(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8(body).ok()?)
}

fn whole(mut stream: &TcpStream, status: u16, body: &str) {
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
}

/// Answers one request. Returns whether the connection stays.
fn answer(
    mut stream: &TcpStream,
    request: &str,
    nth: usize,
    does: Does,
    asked: &(Mutex<Vec<String>>, Condvar),
    now: &AtomicUsize,
) -> bool {
    // Before the client has its answer, after which it may ask again.
    let is_done = || now.fetch_sub(1, Ordering::SeqCst);
    let body = request.split("\r\n\r\n").nth(1).unwrap_or_default();
    let body: serde_json::Value = serde_json::from_str(body).expect("a body");
    let most = body["max_tokens"].as_u64().expect("a number of tokens");
    let prompt = body["prompt"].as_str().or(body["messages"][0]["content"].as_str());
    let words = prompt.expect("a prompt").split(' ').count();
    let usage = format!(
        r#""usage":{{"prompt_tokens":{},"completion_tokens":{most},"prompt_tokens_details":{{"cached_tokens":1}}}}"#,
        3 + 2 * words
    );
    match does {
        Does::Refuse(status) => {
            is_done();
            whole(stream, status, r#"{"error":{"message":"no slot"}}"#);
            return true;
        }
        Does::HangUp => {
            is_done();
            return false;
        }
        Does::Whole => {
            is_done();
            whole(
                stream,
                200,
                &format!(
                    r#"{{"id":"fake-{nth}","choices":[{{"text":"a b","finish_reason":"length"}}],{usage}}}"#
                ),
            );
            return true;
        }
        Does::WaitFor(number) => {
            let mut all = asked.0.lock().expect("a lock");
            while all.len() < number {
                all = asked.1.wait(all).expect("a lock");
            }
        }
        Does::Answer | Does::BreakOff => {}
    }
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let mut event = |data: &str| {
        let text = format!("data: {data}\n\n");
        let _ = write!(stream, "{:x}\r\n{text}\r\n", text.len());
    };
    let pieces = if matches!(does, Does::BreakOff) { 2 } else { most };
    for piece in 1..=pieces {
        let why = if piece == most { "\"length\"" } else { "null" };
        event(&format!(
            r#"{{"id":"fake-{nth}","choices":[{{"text":"w{piece}","finish_reason":{why}}}]}}"#
        ));
    }
    if matches!(does, Does::BreakOff) {
        is_done();
        return false;
    }
    event(&format!(r#"{{"id":"fake-{nth}","choices":[],{usage}}}"#));
    is_done();
    event("[DONE]");
    let _ = write!(stream, "0\r\n\r\n");
    true
}
