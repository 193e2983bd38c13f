//! What a server reads from its sockets and writes to them: when a request came, and when each piece of its answer left. No
//! text of either is kept but the path of a request and the number that the server gives it.
//!
//! A request is one of HTTP/1 that asks a model for something. What is encrypted isn't seen.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;

use crate::batch::IS_WANTED;
use crate::format::{Record, Sent, UNKNOWN, word};
use crate::hooks::Hook;
use crate::{HAS_LOCK, IS_ON, count, guarded, is_ready, lock, real};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, to: *mut c_void, len: *mut u32) -> c_int;
}

/// `recv` only looks at what will be read.
const PEEK: c_int = 2;

/// The most bytes of a request's head that are kept until it is whole. Servers refuse longer ones.
const MOST_HEAD: usize = 64 << 10;
/// The most bytes of an answer that are searched at once.
const MOST_SEARCHED: usize = 64 << 10;
/// The most connections, by their file descriptors.
const MOST_CONNECTIONS: usize = 1 << 16;
/// The most of a path, and of a request's name, that is kept.
const MOST_TEXT: usize = 96;

/// The last words of paths by which a model is asked for something.
const ASKING: [&[u8]; 11] = [
    b"completions",
    b"completion",
    b"messages",
    b"responses",
    b"infill",
    b"embeddings",
    b"embedding",
    b"rerank",
    b"reranking",
    b"chat",
    b"generate",
];

thread_local! {
    /// Whether this thread is in the middle of work of this file.
    static IS_BUSY: Cell<bool> = const { Cell::new(false) };
    /// The request that this thread has read and not answered, so that what it tokenizes is of that; 0 for none.
    static READS: Cell<u32> = const { Cell::new(0) };
}

/// The connections of this process.
#[derive(Default)]
pub(crate) struct Sockets {
    there: HashMap<c_int, Connection>,
    /// How many requests there were.
    requests: u32,
}

/// One of HTTP/1, by whose bytes it is known where a request begins.
struct Connection {
    /// When it was accepted. `None` once a request came by it, or if that wasn't seen.
    accepted: Option<u64>,
    reads: Reads,
    /// Requests that were read and not answered, in order; `None` for those that ask no model.
    waiting: VecDeque<Option<u32>>,
    /// The request that is being answered.
    answers: Option<u32>,
    /// Whether the name of that one isn't known.
    is_unnamed: bool,
}

enum Reads {
    /// A request's head, as far as it has come.
    Head(Vec<u8>),
    /// So many bytes of a body are to come.
    Body(u64),
    /// It is no HTTP/1, or has a body of unknown length.
    Lost,
}

impl Connection {
    fn new(accepted: Option<u64>) -> Self {
        Self {
            accepted,
            reads: Reads::Head(Vec::new()),
            waiting: VecDeque::new(),
            answers: None,
            is_unnamed: false,
        }
    }

    /// Takes what was read. Calls `begins` with the path of each request that begins, whole or not, which returns its number if
    /// it asks a model.
    fn read(&mut self, mut bytes: &[u8], begins: &mut dyn FnMut(&[u8]) -> Option<u32>) {
        while !bytes.is_empty() {
            match &mut self.reads {
                Reads::Lost => return,
                Reads::Body(left) => {
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    bytes = &bytes[taken..];
                    *left -= taken as u64;
                    if *left == 0 {
                        self.reads = Reads::Head(Vec::new());
                    }
                }
                Reads::Head(head) => {
                    if head.is_empty() {
                        // The line is in the first bytes of a request that programs send.
                        let Some(begun) = Begun::of(bytes) else {
                            self.reads = Reads::Lost;
                            return;
                        };
                        let number = if begun.is_post { begins(begun.path) } else { None };
                        self.waiting.push_back(number);
                    }
                    let before = head.len();
                    head.extend_from_slice(bytes);
                    // The end may lie across two pieces.
                    let from = before.saturating_sub(3);
                    let end = find(&head[from..], b"\r\n\r\n").map(|at| from + at + 4);
                    let Some(end) = end else {
                        if head.len() > MOST_HEAD {
                            self.reads = Reads::Lost;
                        }
                        return;
                    };
                    bytes = &bytes[end - before..];
                    self.reads = match body_of(&head[..end]) {
                        Some(0) => Reads::Head(Vec::new()),
                        Some(left) => Reads::Body(left),
                        None => Reads::Lost,
                    };
                }
            }
        }
    }
}

/// The first line of a request.
struct Begun<'b> {
    is_post: bool,
    /// Without what follows a question mark, which may be a secret.
    path: &'b [u8],
}

impl<'b> Begun<'b> {
    fn of(bytes: &'b [u8]) -> Option<Self> {
        let space = bytes.iter().take(8).position(|&byte| byte == b' ')?;
        let (method, rest) = (&bytes[..space], &bytes[space + 1..]);
        if method.is_empty() || !method.iter().all(u8::is_ascii_uppercase) {
            return None;
        }
        let end = rest.iter().position(|&byte| matches!(byte, b' ' | b'?' | b'\r' | b'\n'));
        let path = &rest[..end.unwrap_or(rest.len())];
        Some(Self { is_post: method == b"POST", path })
    }

    fn asks(path: &[u8]) -> bool {
        let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        ASKING.contains(&last)
    }
}

/// How long the body of a request is, by its head. `None` if that doesn't say.
fn body_of(head: &[u8]) -> Option<u64> {
    let mut length = Some(0);
    for line in head.split(|&byte| byte == b'\n') {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return None;
        }
    }
    length
}

fn find(all: &[u8], what: &[u8]) -> Option<usize> {
    all.windows(what.len()).position(|window| window == what)
}

/// What was sent, by its first bytes and what stands in it.
fn sent_of(bytes: &[u8]) -> Sent {
    let bytes = &bytes[..bytes.len().min(MOST_SEARCHED)];
    let mut sent = Sent::default();
    if let Some(rest) = bytes.strip_prefix(b"HTTP/1.") {
        let status = rest.get(2..5).and_then(|digits| std::str::from_utf8(digits).ok());
        sent.status = status.and_then(|status| status.parse().ok()).unwrap_or(0);
    }
    // In a text that is quoted, quotes have a backslash before them, so none of these is found there.
    let mut events = 0_u32;
    let mut from = 0;
    while let Some(at) = find(&bytes[from..], b"data: ").map(|at| from + at) {
        let end = find(&bytes[at..], b"\n\n").map_or(bytes.len(), |len| at + len);
        let is_begin = at == 0 || bytes[at - 1] == b'\n';
        if is_begin {
            events += 1;
            let event = &bytes[at + 6..end];
            let is_last = has_reason(event, &mut sent) || event.starts_with(b"[DONE]");
            sent.is_last |= is_last;
            if !is_last && has_text(event) {
                sent.pieces = sent.pieces.saturating_add(1);
            }
        }
        from = end.max(at + 6);
    }
    if events == 0 {
        sent.is_last = has_reason(bytes, &mut sent);
    }
    sent
}

/// Whether an event brings a part of an answer's text.
fn has_text(event: &[u8]) -> bool {
    let has = |what: &[u8]| find(event, what).is_some();
    if event.starts_with(b"{\"type\":\"") {
        // In the ways of Anthropic, and of OpenAI's responses.
        return has(b"\"content_block_delta\"") || has(b".delta\"");
    }
    // The first one of a chat says who speaks, and the last one how much was said.
    let is_null = has(b"\"content\":null") && !has(b"_content\":\"");
    !is_null && !has(b"\"choices\":[]")
}

/// Whether this says why an answer ended. An answer in the way of OpenAI says so in its last piece but one, which has no
/// text; others in one that may have.
fn has_reason(bytes: &[u8], sent: &mut Sent) -> bool {
    let has = |what: &[u8]| find(bytes, what).is_some();
    if has(b"\"error\":{") {
        sent.is_error = true;
        return true;
    }
    let is_limit = has(b"\"finish_reason\":\"length\"")
        || has(b"\"stop_type\":\"limit\"")
        || has(b"\"stop_reason\":\"max_tokens\"");
    sent.is_limit |= is_limit;
    is_limit || has(b"\"finish_reason\":\"") || has(b"\"stop\":true") || has(b"\"stop_reason\":\"")
}

/// How many tokens an answer says that its prompt has, and itself; 0 for what it doesn't say.
fn tokens_of(bytes: &[u8]) -> [u32; 2] {
    let bytes = &bytes[..bytes.len().min(MOST_SEARCHED)];
    let stated = |key: &[u8]| -> Option<u32> {
        let at = find(bytes, key)? + key.len();
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&bytes[at..at + digits]).ok()?.parse().ok()
    };
    let prompt = stated(b"\"prompt_tokens\":").or_else(|| stated(b"\"tokens_evaluated\":"));
    // The parts of a prompt that were found in a cache, and that were not.
    let parts = || Some(stated(b"\"cache_n\":")?.saturating_add(stated(b"\"prompt_n\":")?));
    let keys: [&[u8]; 4] = [
        b"\"completion_tokens\":",
        b"\"tokens_predicted\":",
        b"\"predicted_n\":",
        b"\"output_tokens\":",
    ];
    let answer = keys.into_iter().find_map(stated);
    [prompt.or_else(parts).unwrap_or(0), answer.unwrap_or(0)]
}

/// The name that a server gives a request, as it stands in an answer.
fn name_of(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = &bytes[..bytes.len().min(4096)];
    let at = find(bytes, b"\"id\":\"")? + 6;
    let len = bytes[at..].iter().position(|&byte| byte == b'"')?;
    let name = &bytes[at..at + len];
    let is_name = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (!name.is_empty() && len <= MOST_TEXT && name.iter().all(is_name)).then_some(name)
}

/// Milliseconds since something came on a TCP connection, as the system has them, in a word.
fn idle_ms(fd: c_int) -> u64 {
    const TCP: c_int = 6;
    const INFO: c_int = 11;
    /// Of `tcpi_last_data_recv` in `struct tcp_info`.
    const AT: usize = 13;
    let mut info = [0_u32; 64];
    let mut len = size_of_val(&info) as u32;
    // SAFETY: it writes as many bytes as there are, and says how many.
    let failed = unsafe { getsockopt(fd, TCP, INFO, info.as_mut_ptr().cast(), &raw mut len) };
    if failed != 0 || (len as usize) < 4 * (AT + 1) { UNKNOWN } else { u64::from(info[AT]) }
}

/// Does work of ours after a call, which it must not change.
fn noted(work: impl FnOnce()) {
    // A signal's handler may use sockets in the middle of our work.
    if !IS_ON.load(Relaxed) || HAS_LOCK.get() || IS_BUSY.replace(true) {
        return;
    }
    // SAFETY: each thread has one, and what the caller will look at in it stays.
    let errno = unsafe { *__errno_location() };
    guarded((), work);
    // SAFETY: as above.
    unsafe { *__errno_location() = errno };
    IS_BUSY.set(false);
}

/// A connection has been accepted.
fn accepted(fd: c_int) {
    if fd < 0 {
        return;
    }
    let now = count();
    noted(|| {
        if let Some(state) = &mut *lock() {
            let sockets = &mut state.sockets;
            if sockets.there.len() < MOST_CONNECTIONS || sockets.there.contains_key(&fd) {
                sockets.there.insert(fd, Connection::new(Some(now)));
            }
        }
    });
}

/// Something has been read.
///
/// # Safety
///
/// `bytes` are there.
unsafe fn heard(fd: c_int, bytes: *const u8, len: isize, begin: u64) {
    let end = count();
    noted(|| {
        // SAFETY: the caller says so.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, len.max(0) as usize) };
        // A request may come before the first pass.
        if bytes.starts_with(b"POST /") && !is_ready() {
            return;
        }
        let Some(state) = &mut *lock() else { return };
        let sockets = &mut state.sockets;
        if len <= 0 {
            let gone = sockets.there.remove(&fd);
            let all = gone
                .iter()
                .flat_map(|gone| gone.waiting.iter().copied().chain([gone.answers]).flatten());
            for request in all {
                state.recording.write_words(Record::Gone, &[u64::from(request), end], &[]);
            }
            return;
        }
        if !sockets.there.contains_key(&fd) {
            if !bytes.starts_with(b"POST /") || sockets.there.len() == MOST_CONNECTIONS {
                return;
            }
            sockets.there.insert(fd, Connection::new(None));
        }
        let Some(connection) = sockets.there.get_mut(&fd) else { return };
        let (requests, recording) = (&mut sockets.requests, &mut state.recording);
        let accepted = connection.accepted.take();
        connection.read(bytes, &mut |path| {
            if !Begun::asks(path) {
                return None;
            }
            *requests += 1;
            IS_WANTED.store(true, Relaxed);
            let idle_ms = idle_ms(fd);
            let head = [u64::from(*requests), accepted.unwrap_or(UNKNOWN), begin, end, idle_ms];
            let mut record: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
            record.extend_from_slice(&path[..path.len().min(MOST_TEXT)]);
            recording.write(Record::Asked, &record);
            READS.set(*requests);
            Some(*requests)
        });
    });
}

/// Something has been sent, or could not be.
///
/// # Safety
///
/// `bytes` are there.
unsafe fn told(fd: c_int, bytes: *const u8, len: isize, begin: u64) {
    let end = count();
    noted(|| {
        // SAFETY: the caller says so.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, len.max(0) as usize) };
        let Some(state) = &mut *lock() else { return };
        let Some(connection) = state.sockets.there.get_mut(&fd) else { return };
        if len < 0 {
            if let Some(request) = connection.answers {
                state.recording.write_words(Record::Gone, &[u64::from(request), end], &[]);
            }
            return;
        }
        let sent = sent_of(bytes);
        // A status below 200 is no answer yet.
        if sent.status >= 200 {
            connection.answers = connection.waiting.pop_front().flatten();
            connection.is_unnamed = true;
            READS.set(0);
        }
        let Some(request) = connection.answers else { return };
        let name = if connection.is_unnamed { name_of(bytes) } else { None };
        connection.is_unnamed &= name.is_none();
        let may_state = sent.is_last || sent.pieces == 0;
        let tokens = if may_state { tokens_of(bytes) } else { [0; 2] };
        let head = [word([request, sent.word()]), begin, end, len as u64, word(tokens)];
        let mut record: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        record.extend_from_slice(name.unwrap_or_default());
        state.recording.write(Record::Sent, &record);
    });
}

/// This thread has made tokens of a text.
pub(crate) fn tokenized(tokens: usize) {
    let request = READS.get();
    // A number of 32 bits, below 0 if there was no room.
    let tokens = tokens as i32;
    if request == 0 || tokens <= 0 {
        return;
    }
    noted(|| {
        if let Some(state) = &mut *lock() {
            let words = [word([request, tokens as u32])];
            state.recording.write_words(Record::Tokenized, &words, &[]);
        }
    });
}

/// In the place of the system's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn accept4<const COPY: usize>(
    fd: c_int,
    address: *mut c_void,
    len: *mut u32,
    flags: c_int,
) -> c_int {
    type Accept = unsafe extern "C-unwind" fn(c_int, *mut c_void, *mut u32, c_int) -> c_int;
    let real = real!(Hook::SocketAccept4, COPY, Accept);
    // SAFETY: the arguments are the caller's.
    let made = unsafe { real(fd, address, len, flags) };
    accepted(made);
    made
}

/// In the place of the system's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn accept<const COPY: usize>(
    fd: c_int,
    address: *mut c_void,
    len: *mut u32,
) -> c_int {
    type Accept = unsafe extern "C-unwind" fn(c_int, *mut c_void, *mut u32) -> c_int;
    let real = real!(Hook::SocketAccept, COPY, Accept);
    // SAFETY: the arguments are the caller's.
    let made = unsafe { real(fd, address, len) };
    accepted(made);
    made
}

/// In the place of the system's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn recv<const COPY: usize>(
    fd: c_int,
    to: *mut u8,
    len: usize,
    flags: c_int,
) -> isize {
    type Recv = unsafe extern "C-unwind" fn(c_int, *mut u8, usize, c_int) -> isize;
    let real = real!(Hook::SocketRecv, COPY, Recv);
    let begin = count();
    // SAFETY: the arguments are the caller's.
    let got = unsafe { real(fd, to, len, flags) };
    // That there is nothing yet is no end; nor is to ask for nothing. Who only looks reads it later.
    if got > 0 && flags & PEEK == 0 || got == 0 && len > 0 {
        // SAFETY: the function has written so many bytes.
        unsafe { heard(fd, to, got, begin) };
    }
    got
}

/// In the place of the system's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn send<const COPY: usize>(
    fd: c_int,
    from: *const u8,
    len: usize,
    flags: c_int,
) -> isize {
    const AGAIN: c_int = 11;
    const INTERRUPTED: c_int = 4;
    type Send = unsafe extern "C-unwind" fn(c_int, *const u8, usize, c_int) -> isize;
    let real = real!(Hook::SocketSend, COPY, Send);
    let begin = count();
    // SAFETY: the arguments are the caller's.
    let gone = unsafe { real(fd, from, len, flags) };
    // SAFETY: each thread has one.
    let is_wait = gone < 0 && matches!(unsafe { *__errno_location() }, AGAIN | INTERRUPTED);
    if !is_wait {
        // SAFETY: the caller has so many bytes there, of which these were sent.
        unsafe { told(fd, from, gone, begin) };
    }
    gone
}
