//! What a server reads from its sockets and writes to them: when a request came, and when each piece of its answer left. No
//! text of either is kept but the path of a request and the number that the server gives it.
//!
//! A request is one of HTTP/1 that asks a model for something. What is encrypted isn't seen.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::batch::IS_WANTED;
use crate::file::Recording;
use crate::format::{Record, Sent, UNKNOWN, word};
use crate::hooks::Hook;
use crate::http::{Chunks, First, Head, Length, Taken, asks};
use crate::{HAS_LOCK, HAS_STATE, IS_ON, State, count, guarded, is_ready, lock, real};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, to: *mut c_void, len: *mut u32) -> c_int;
}

/// With these flags `recv` doesn't give the next bytes of a stream: it looks at them, leaves them, or gives others.
const NO_STREAM: c_int = OUT_OF_BAND | PEEK | TRUNCATED | ERRORS;
const OUT_OF_BAND: c_int = 0x1;
const PEEK: c_int = 0x2;
const TRUNCATED: c_int = 0x20;
const ERRORS: c_int = 0x2000;

/// Errors by which a connection is known to be gone: EPIPE, ECONNRESET, ETIMEDOUT.
const GONE: [c_int; 3] = [32, 104, 110];

/// The most bytes of an answer that are searched at once.
const MOST_SEARCHED: usize = 64 << 10;
/// The most of a path, and of a request's name, that is kept.
const MOST_TEXT: usize = 96;

/// Why requests are not recorded, each of which is counted.
const NO_ROOM: &str = "requests by file descriptors above 65,535";
const NOT_ALONE: &str =
    "requests on a connection where one came before the one before it was answered";
/// Not counted: where the next one begins isn't known.
const NO_LENGTH: &str = "what came on a connection after a request whose length isn't known";

/// The connections that are known, a bit for each file descriptor, so that nothing is done for others. Requests
/// by higher ones are counted.
static KNOWN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn is_known(fd: c_int) -> bool {
    let word = usize::try_from(fd).ok().and_then(|fd| KNOWN.get(fd / 64));
    word.is_some_and(|word| word.load(Relaxed) >> (fd % 64) & 1 == 1)
}

/// Whether there is room to know it.
fn know(fd: c_int, is: bool) -> bool {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| KNOWN.get(fd / 64)) else {
        return false;
    };
    let bit = 1 << (fd % 64);
    if is {
        word.fetch_or(bit, Relaxed)
    } else {
        word.fetch_and(!bit, Relaxed)
    };
    true
}

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
    /// The head of the request that is read, and when its first bytes were.
    head: Head,
    read: [u64; 2],
    /// Whether that one is known to be a request.
    is_begun: bool,
    /// Whether a request was read whose answer hasn't begun, and its number; `None` for one that asks no model.
    is_waiting: bool,
    asked: Option<u32>,
    /// The request that is being answered, and how its answer ends.
    answers: Option<u32>,
    ends: Ends,
    /// Whether the name of that one isn't known.
    is_unnamed: bool,
    /// Whether a request came before the one before it was answered. From there on it can't be told whose answer begins, which
    /// may be in the middle of what is sent.
    is_mixed: bool,
    /// Whether it was found closed.
    is_closed: bool,
}

/// How the body of an answer ends.
#[derive(Clone, Copy)]
enum Ends {
    /// After so many bytes more.
    After(u64),
    /// With an empty chunk.
    Chunk(Chunks),
    /// With the connection.
    Unknown,
}

enum Reads {
    /// A request's head.
    Head,
    /// So many bytes of a body are to come.
    Body(u64),
    /// A body in chunks.
    Chunks(Chunks),
    /// It is no HTTP/1, or has a body of unknown length.
    Lost,
}

/// A request by POST.
struct Posted<'b> {
    path: &'b [u8],
    /// When its connection was accepted, if no other came by that before.
    accepted: Option<u64>,
    /// When its first bytes were begun to be read, and when they had been.
    read: [u64; 2],
    /// Whether its answer can be told from others.
    is_alone: bool,
}

impl Connection {
    fn new(accepted: Option<u64>) -> Self {
        Self {
            accepted,
            reads: Reads::Head,
            head: Head::new(),
            read: [0; 2],
            is_begun: false,
            is_waiting: false,
            asked: None,
            answers: None,
            ends: Ends::Unknown,
            is_unnamed: false,
            is_mixed: false,
            is_closed: false,
        }
    }

    /// Those of which something is still to be answered.
    fn unanswered(&self) -> impl Iterator<Item = u32> {
        [self.asked, self.answers].into_iter().flatten()
    }

    /// Whether the next bytes begin a request.
    fn is_between(&self) -> bool {
        matches!(self.reads, Reads::Head) && self.head.is_empty()
    }

    /// Takes what was read, with when that began and ended. Calls `begins` with each request by POST, whole or not, which
    /// returns its number if it asks a model.
    fn read(
        &mut self,
        mut bytes: &[u8],
        read: [u64; 2],
        begins: &mut dyn FnMut(&Posted<'_>) -> Option<u32>,
    ) {
        while !bytes.is_empty() {
            match &mut self.reads {
                Reads::Lost => return,
                Reads::Body(left) => {
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    bytes = &bytes[taken..];
                    *left -= taken as u64;
                    if *left == 0 {
                        self.reads = Reads::Head;
                    }
                }
                Reads::Chunks(chunks) => match chunks.take(bytes) {
                    Taken::All => return,
                    Taken::Ends(end) => {
                        bytes = &bytes[end..];
                        self.reads = Reads::Head;
                    }
                    Taken::Wrong => self.reads = Reads::Lost,
                },
                Reads::Head => {
                    if self.head.is_empty() {
                        // Some programs send an empty line after a body.
                        let empty = bytes.iter().take_while(|byte| b"\r\n".contains(byte)).count();
                        bytes = &bytes[empty..];
                        self.read = read;
                    }
                    let taken = self.head.take(bytes);
                    if !self.is_begun {
                        self.begin(begins);
                    }
                    match taken {
                        Taken::All => return,
                        Taken::Ends(_) if matches!(self.reads, Reads::Lost) => return,
                        Taken::Ends(end) => {
                            bytes = &bytes[end..];
                            self.reads = match self.head.length() {
                                Length::Unsaid | Length::Bytes(0) => Reads::Head,
                                Length::Bytes(left) => Reads::Body(left),
                                Length::Chunks => Reads::Chunks(Chunks::BEGIN),
                                Length::Unknown => Reads::Lost,
                            };
                            self.head = Head::new();
                            self.is_begun = false;
                        }
                        Taken::Wrong => self.reads = Reads::Lost,
                    }
                }
            }
        }
    }

    /// Begins a request, if its path has come.
    fn begin(&mut self, begins: &mut dyn FnMut(&Posted<'_>) -> Option<u32>) {
        let begun = match First::of(self.head.first()) {
            First::Request(begun) => begun,
            First::NotYet => return,
            First::Other => {
                self.reads = Reads::Lost;
                return;
            }
        };
        self.is_begun = true;
        let accepted = self.accepted.take();
        self.is_mixed |= self.is_waiting || self.answers.is_some();
        let is_alone = !self.is_mixed;
        let posted = Posted { path: begun.path, accepted, read: self.read, is_alone };
        let number = if begun.is_post { begins(&posted) } else { None };
        if is_alone {
            self.is_waiting = true;
            self.asked = number;
        }
    }

    /// Takes what was sent, and returns whose answer it is of, if that is somebody's, and whether that is whole.
    fn send(&mut self, bytes: &[u8], status: u16) -> Option<(u32, bool)> {
        // No answer yet.
        if (1..200).contains(&status) {
            return None;
        }
        let mut body = bytes;
        if status >= 200 && self.answers.is_none() {
            self.answers = self.asked.take();
            self.is_waiting = false;
            self.is_unnamed = true;
            (self.ends, body) = ends_of(bytes);
            READS.set(0);
        }
        let request = self.answers?;
        let is_end = match &mut self.ends {
            Ends::After(left) => {
                *left = left.saturating_sub(body.len() as u64);
                *left == 0
            }
            Ends::Chunk(chunks) => match chunks.take(body) {
                Taken::All => false,
                Taken::Ends(_) => true,
                Taken::Wrong => {
                    self.ends = Ends::Unknown;
                    false
                }
            },
            Ends::Unknown => false,
        };
        if is_end {
            self.answers = None;
        }
        Some((request, is_end))
    }
}

fn find(all: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    loop {
        // Ten times as fast as to compare at each byte.
        let at = from + all[from..].iter().position(|&byte| byte == first)?;
        if all[at..].starts_with(what) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// The status of HTTP that an answer begins with, or 0.
fn status_of(bytes: &[u8]) -> u16 {
    let digits = bytes.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// How the body ends of an answer that begins with this, and what of that is there.
fn ends_of(bytes: &[u8]) -> (Ends, &[u8]) {
    let mut head = Head::new();
    let Taken::Ends(end) = head.take(bytes) else { return (Ends::Unknown, &[]) };
    let ends = match head.length() {
        Length::Bytes(length) => Ends::After(length),
        Length::Chunks => Ends::Chunk(Chunks::BEGIN),
        Length::Unsaid | Length::Unknown => Ends::Unknown,
    };
    (ends, &bytes[end..])
}

/// What was sent, by what stands in it.
fn sent_of(bytes: &[u8]) -> Sent {
    if bytes.len() > MOST_SEARCHED {
        // Why an answer ended may stand at its end.
        let mut sent = sent_of(&bytes[..MOST_SEARCHED]);
        let is_last = has_reason(&bytes[bytes.len() - MOST_SEARCHED..], &mut sent);
        sent.is_last |= is_last;
        return sent;
    }
    let mut sent = Sent::default();
    // In a text that is quoted, quotes have a backslash before them, so none of these is found there.
    let mut events = 0_u32;
    let mut from = 0;
    while let Some(at) = find(&bytes[from..], b"data: ").map(|at| from + at) {
        let rest = &bytes[at..];
        let ends = [find(rest, b"\n\n"), find(rest, b"\r\n\r\n")];
        let end = ends.into_iter().flatten().min().map_or(bytes.len(), |len| at + len);
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
        let body = find(bytes, b"\r\n\r\n").filter(|_| status_of(bytes) > 0);
        sent.is_last = has_reason(&bytes[body.map_or(0, |at| at + 4)..], &mut sent);
    }
    sent
}

/// Whether an event brings a part of an answer's text.
fn has_text(event: &[u8]) -> bool {
    let has = |what: &[u8]| find(event, what).is_some();
    if event.starts_with(b"{\"type\":\"") {
        // In the ways of Anthropic, and of OpenAI's responses.
        let is_delta = has(b"\"content_block_delta\"") || has(b".delta\"");
        return is_delta && !has(b"\"signature_delta\"");
    }
    // The first one of a chat says who speaks, the last one how much was said, and others how much of the prompt is done. A
    // token may have no text, or one that is held back.
    let is_empty = has(b"\"content\":null") || has(b"\"content\":\"\"") || has(b"\"text\":\"\"");
    let has_more = has(b"_content\":\"") || has(b"\"tool_calls\":");
    (!is_empty || has_more) && !has(b"\"choices\":[]") && !has(b"\"prompt_progress\":")
}

/// Whether this says why an answer ended. An answer in the way of OpenAI says so in its last piece but one, which has no
/// text; others in one that may have.
fn has_reason(bytes: &[u8], sent: &mut Sent) -> bool {
    let has = |what: &[u8]| find(bytes, what).is_some();
    // In the way of OpenAI, and in that of Anthropic as llama-server has it.
    let is_error = bytes.starts_with(b"{\"error\":") || bytes.starts_with(b"{\"code\":");
    if is_error || has(b"\"type\":\"response.failed\"") {
        sent.is_error = true;
        return true;
    }
    let is_limit = has(b"\"finish_reason\":\"length\"")
        || has(b"\"stop_type\":\"limit\"")
        || has(b"\"stop_reason\":\"max_tokens\"")
        || has(b"\"type\":\"response.incomplete\"");
    sent.is_limit |= is_limit;
    is_limit
        || has(b"\"finish_reason\":\"")
        || has(b"\"stop\":true")
        || has(b"\"stop_reason\":\"")
        || has(b"\"type\":\"response.completed\"")
}

/// How many tokens an answer says that its prompt has, and itself; 0 for what it doesn't say.
fn tokens_of(bytes: &[u8]) -> [u32; 2] {
    let bytes = &bytes[bytes.len().saturating_sub(MOST_SEARCHED)..];
    let stated = |key: &[u8]| -> Option<u32> {
        // Behind what a model made, which may have anything in it.
        let at = bytes.windows(key.len()).rposition(|window| window == key)? + key.len();
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

/// The name that a server gives a request, as it stands in an answer: one that begins as those of servers do, since a model may
/// make such a field, too.
fn name_of(bytes: &[u8]) -> Option<&[u8]> {
    const BEGINS: [&[u8]; 4] = [b"chatcmpl-", b"cmpl-", b"msg_", b"resp_"];
    let mut bytes = &bytes[..bytes.len().min(MOST_SEARCHED)];
    while let Some(at) = find(bytes, b"\"id\":\"") {
        bytes = &bytes[at + 6..];
        let len = bytes.iter().position(|&byte| byte == b'"')?;
        let name = &bytes[..len];
        let is_name = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let begins = BEGINS.iter().any(|begin| name.starts_with(begin));
        if begins && len <= MOST_TEXT && name.iter().all(is_name) {
            return Some(name);
        }
    }
    None
}

/// Whether these bytes begin a request that asks a model.
fn is_asking(bytes: &[u8]) -> bool {
    matches!(First::of(bytes), First::Request(begun) if begun.is_post && asks(begun.path))
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
    // Without a recording there is nothing to write to, and no lock to wait for.
    if fd < 0 || !HAS_STATE.load(Acquire) {
        return;
    }
    let now = count();
    noted(|| {
        let Some(state) = &mut *lock() else { return };
        // Who asks by others is counted when it is read.
        if know(fd, true) {
            let before = state.sockets.there.insert(fd, Connection::new(Some(now)));
            gone(&mut state.recording, before.as_ref(), now);
        }
    });
}

/// A socket has been made, which is no connection that had its number before.
fn made(fd: c_int) {
    if !is_known(fd) {
        return;
    }
    let now = count();
    noted(|| {
        if let Some(state) = &mut *lock() {
            know(fd, false);
            let before = state.sockets.there.remove(&fd);
            gone(&mut state.recording, before.as_ref(), now);
        }
    });
}

/// Writes words and a text, without memory for them: see [`http`](crate::http).
fn write(recording: &mut Recording, kind: Record, words: [u64; 5], text: &[u8]) {
    let mut record = [0_u8; 5 * 8 + MOST_TEXT];
    for (place, word) in record.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    let text = &text[..text.len().min(MOST_TEXT)];
    let len = 5 * 8 + text.len();
    record[5 * 8..len].copy_from_slice(text);
    recording.write(kind, &record[..len]);
}

/// Writes that nobody waits any more for what was asked on a connection.
fn gone(recording: &mut Recording, connection: Option<&Connection>, when: u64) {
    // Servers look again and again whether somebody is there.
    let connection = connection.filter(|of| !of.is_closed);
    for request in connection.into_iter().flat_map(Connection::unanswered) {
        recording.write_words(Record::Gone, &[u64::from(request), when], &[]);
    }
}

/// A connection has been found closed. Its answer may go on, if it is so in one direction only.
fn closed(fd: c_int) {
    if !is_known(fd) {
        return;
    }
    let now = count();
    READS.set(0);
    noted(|| {
        let Some(state) = &mut *lock() else { return };
        if let Some(connection) = state.sockets.there.get_mut(&fd) {
            connection.reads = Reads::Lost;
            gone(&mut state.recording, Some(connection), now);
            connection.is_closed = true;
        }
    });
}

/// Something has been read.
///
/// # Safety
///
/// `bytes` are there.
unsafe fn heard(fd: c_int, bytes: *const u8, len: usize, begin: u64) {
    let end = count();
    // SAFETY: the caller says so.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
    let is_first = bytes.starts_with(b"POST /");
    if !is_known(fd) && !is_first {
        return;
    }
    noted(|| {
        // A request may come before the first pass.
        if is_first && !is_ready() {
            return;
        }
        let Some(state) = &mut *lock() else { return };
        let sockets = &mut state.sockets;
        let connection = match sockets.there.entry(fd) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) if is_first && know(fd, true) => new.insert(Connection::new(None)),
            Entry::Vacant(_) => {
                if is_first && is_asking(bytes) {
                    state.recording.miss(NO_ROOM);
                }
                return;
            }
        };
        let (requests, recording) = (&mut sockets.requests, &mut state.recording);
        let was_lost = matches!(connection.reads, Reads::Lost);
        if was_lost || connection.is_between() {
            READS.set(0);
        }
        connection.read(bytes, [begin, end], &mut |posted| {
            if !asks(posted.path) {
                return None;
            }
            if !posted.is_alone {
                recording.miss(NOT_ALONE);
                return None;
            }
            *requests += 1;
            IS_WANTED.store(true, Relaxed);
            // Of one that comes in pieces, what the connection says is of a later one.
            let is_at_once = posted.read == [begin, end];
            let idle_ms = if is_at_once { idle_ms(fd) } else { UNKNOWN };
            let accepted = posted.accepted.unwrap_or(UNKNOWN);
            let [began, read] = posted.read;
            let words = [u64::from(*requests), accepted, began, read, idle_ms];
            write(recording, Record::Asked, words, posted.path);
            READS.set(*requests);
            Some(*requests)
        });
        if matches!(connection.reads, Reads::Lost) && !was_lost {
            let has_answer = connection.unanswered().next().is_some();
            if has_answer {
                recording.lose(NO_LENGTH);
            } else {
                sockets.there.remove(&fd);
                know(fd, false);
            }
        }
    });
}

/// Something has been sent.
///
/// # Safety
///
/// `bytes` are there.
unsafe fn told(fd: c_int, bytes: *const u8, len: usize, begin: u64) {
    let end = count();
    if !is_known(fd) {
        return;
    }
    // SAFETY: the caller says so.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
    noted(|| {
        let status = status_of(bytes);
        let answers = |state: &mut State| {
            let connection = state.sockets.there.get_mut(&fd)?;
            let (request, is_end) = connection.send(bytes, status)?;
            Some((request, is_end, connection.is_unnamed))
        };
        let Some((request, is_end, is_unnamed)) = lock().as_mut().and_then(answers) else { return };
        // Without the lock, which passes wait for.
        let sent = Sent { status, is_end, ..sent_of(bytes) };
        let may_state = sent.is_last || sent.pieces == 0;
        let tokens = if may_state { tokens_of(bytes) } else { [0; 2] };
        let name = if is_unnamed { name_of(bytes) } else { None };
        let words = [word([request, sent.word()]), begin, end, len as u64, word(tokens)];
        if let Some(state) = &mut *lock() {
            write(&mut state.recording, Record::Sent, words, name.unwrap_or_default());
            if let Some(connection) = state.sockets.there.get_mut(&fd) {
                connection.is_unnamed &= name.is_none();
            }
        }
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
pub(crate) unsafe extern "C-unwind" fn socket<const COPY: usize>(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    type Socket = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
    let real = real!(Hook::Socket, COPY, Socket);
    // SAFETY: the arguments are the caller's.
    let fd = unsafe { real(domain, kind, protocol) };
    made(fd);
    fd
}

/// In the place of the system's function.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn socketpair<const COPY: usize>(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    fds: *mut [c_int; 2],
) -> c_int {
    type Pair = unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut [c_int; 2]) -> c_int;
    let real = real!(Hook::SocketPair, COPY, Pair);
    // SAFETY: the arguments are the caller's, and two numbers are there if it worked.
    unsafe {
        let failed = real(domain, kind, protocol, fds);
        if failed == 0 && !fds.is_null() {
            let both = *fds;
            both.into_iter().for_each(made);
        }
        failed
    }
}

/// What became of a call of `recv`.
///
/// # Safety
///
/// The call has written what it says.
unsafe fn received(fd: c_int, to: *const u8, len: usize, flags: c_int, got: isize, begin: u64) {
    match usize::try_from(got) {
        // To ask for nothing says nothing.
        Ok(0) if len > 0 => closed(fd),
        Ok(0) => {}
        // Who only looks reads it later.
        Ok(got) if flags & NO_STREAM == 0 && !to.is_null() => {
            // SAFETY: so many bytes have been written, and no more than there is room for.
            unsafe { heard(fd, to, got.min(len), begin) };
        }
        Ok(_) => {}
        Err(_) => failed(fd),
    }
}

/// A call has failed. That there is nothing yet is no end.
fn failed(fd: c_int) {
    // SAFETY: each thread has one.
    if GONE.contains(&unsafe { *__errno_location() }) {
        closed(fd);
    }
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
    // SAFETY: the arguments are the caller's, and what it has written is there.
    unsafe {
        let got = real(fd, to, len, flags);
        received(fd, to, len, flags, got, begin);
        got
    }
}

/// In the place of the function that is `recv` where a program was compiled with `_FORTIFY_SOURCE`: it is given the size of the
/// buffer, too.
///
/// # Safety
///
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn recv_chk<const COPY: usize>(
    fd: c_int,
    to: *mut u8,
    len: usize,
    room: usize,
    flags: c_int,
) -> isize {
    type Recv = unsafe extern "C-unwind" fn(c_int, *mut u8, usize, usize, c_int) -> isize;
    let real = real!(Hook::SocketRecvChk, COPY, Recv);
    let begin = count();
    // SAFETY: as above.
    unsafe {
        let got = real(fd, to, len, room, flags);
        received(fd, to, len, flags, got, begin);
        got
    }
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
    type Send = unsafe extern "C-unwind" fn(c_int, *const u8, usize, c_int) -> isize;
    let real = real!(Hook::SocketSend, COPY, Send);
    let begin = count();
    // SAFETY: the arguments are the caller's.
    let gone = unsafe { real(fd, from, len, flags) };
    match usize::try_from(gone) {
        Ok(0) => {}
        // SAFETY: the caller has so many bytes there, of which these were sent.
        Ok(sent) if !from.is_null() => unsafe { told(fd, from, sent.min(len), begin) },
        Ok(_) => {}
        Err(_) => failed(fd),
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> (u8, bool) {
        let sent = sent_of(text.as_bytes());
        (sent.pieces, sent.is_last)
    }

    #[test]
    fn pieces_with_text_are_counted_and_the_last_one_is_known() {
        for (text, expected) in [
            (r#"data: {"choices":[{"text":"a","finish_reason":null}]}"#, (1, false)),
            (r#"data: {"choices":[{"delta":{"role":"assistant","content":null}}]}"#, (0, false)),
            (r#"data: {"choices":[{"delta":{"content":null,"tool_calls":[]}}]}"#, (1, false)),
            (r#"data: {"choices":[{"delta":{"content":"a \"stop\":true b"}}]}"#, (1, false)),
            (r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#, (0, true)),
            (r#"data: {"choices":[],"usage":{"prompt_tokens":3}}"#, (0, false)),
            (r#"data: {"content":"a","stop":false}"#, (1, false)),
            (r#"data: {"content":"","stop":true,"stop_type":"limit"}"#, (0, true)),
            ("data: [DONE]", (0, true)),
            (": ping", (0, false)),
            (r#"data: {"choices":[{"text":"","finish_reason":null}]}"#, (0, false)),
            (r#"data: {"content":"","prompt_progress":{"total":9}}"#, (0, false)),
            (r#"data: {"choices":[{"text":"a"}],"prompt_progress":{"total":9}}"#, (0, false)),
            (r#"data: {"code":500,"message":"","type":"server_error"}"#, (0, true)),
            (r#"data: {"type":"message_start","message":{}}"#, (0, false)),
            (r#"data: {"type":"content_block_delta","delta":{"type":"text_delta"}}"#, (1, false)),
            (
                r#"data: {"type":"content_block_delta","delta":{"type":"signature_delta"}}"#,
                (0, false),
            ),
            (r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#, (0, true)),
            (r#"data: {"type":"response.output_text.delta","delta":"a"}"#, (1, false)),
            (r#"data: {"type":"response.completed","response":{}}"#, (0, true)),
        ] {
            for end in ["\n\n", "\r\n\r\n"] {
                assert_eq!(pieces(&format!("{text}{end}")), expected, "{text}");
                let event = format!("1a\r\nevent: any\n{text}{end}\r\n");
                assert_eq!(pieces(&event), expected, "{event}");
            }
        }
        let both = "data: {\"content\":\"a\"}\r\n\r\ndata: {\"content\":\"b\"}\r\n\r\n";
        assert_eq!(pieces(both), (2, false));
        let whole = r#"{"choices":[{"finish_reason":"length","message":{"content":"data: x"}}]}"#;
        let sent = sent_of(whole.as_bytes());
        assert_eq!((sent.pieces, sent.is_last, sent.is_limit), (0, true, true));
        let error = b"HTTP/1.1 500 X\r\n\r\n{\"error\":{\"code\":500}}";
        assert!(sent_of(error).is_error);
        let long = format!(
            r#"{{"content":"","stop":true,"prompt":"{}","stop_type":"limit","tokens_predicted":7}}"#,
            "x".repeat(MOST_SEARCHED)
        );
        assert!(sent_of(long.as_bytes()).is_limit && sent_of(long.as_bytes()).is_last);
        assert_eq!(tokens_of(long.as_bytes()), [0, 7]);
        // What a model made.
        assert!(!sent_of(br#"{"input":{"error":{}},"a":1}"#).is_error);
    }

    #[test]
    fn lengths_and_names_are_those_of_the_server() {
        let whole =
            br#"{"input":{"prompt_tokens":5},"usage":{"prompt_tokens":70,"completion_tokens":9}}"#;
        assert_eq!(tokens_of(whole), [70, 9]);
        let own = br#"{"timings":{"cache_n":40,"prompt_n":30,"predicted_n":12}}"#;
        assert_eq!(tokens_of(own), [70, 12]);
        assert_eq!(tokens_of(b"{\"prompt_tokens\":x}"), [0, 0]);
        let tools = br#"{"choices":[{"tool_calls":[{"id":"call_1"}]}],"id":"chatcmpl-Ab_9"}"#;
        assert_eq!(name_of(tools), Some(&b"chatcmpl-Ab_9"[..]));
        assert_eq!(name_of(br#"{"id":"patient-4711"}"#), None);
        assert_eq!(name_of(b"{\"id\":\"cmpl-\x1b[31m\"}"), None);
        assert_eq!(name_of(b"{\"id\":\"cmpl-1"), None);
    }

    /// A client's bytes, and each request by POST that begins in them.
    struct Client {
        connection: Connection,
        /// Paths, and whether each was alone.
        posted: Vec<(String, bool)>,
        /// When something is read.
        now: u64,
    }

    impl Client {
        fn new() -> Self {
            Self { connection: Connection::new(Some(1)), posted: Vec::new(), now: 10 }
        }

        fn reads(&mut self, bytes: &[u8]) {
            let (now, posted) = (self.now, &mut self.posted);
            self.now += 10;
            self.connection.read(bytes, [now, now + 5], &mut |of| {
                posted.push((String::from_utf8_lossy(of.path).into_owned(), of.is_alone));
                Some(posted.len() as u32)
            });
        }

        /// As if all that was read were answered.
        fn answer_all(&mut self) {
            (self.connection.is_waiting, self.connection.asked) = (false, None);
        }

        fn sends(&mut self, text: &str) -> Option<(u32, bool)> {
            self.connection.send(text.as_bytes(), status_of(text.as_bytes()))
        }

        fn is_lost(&self) -> bool {
            matches!(self.connection.reads, Reads::Lost)
        }
    }

    #[test]
    fn requests_begin_where_the_ones_before_end_however_they_are_cut() {
        let all = b"POST /v1/completions?key=1 HTTP/1.1\r\nA: b\r\ncontent-length:  25 \r\n\r\n\
            POST /v1/chat HTTP/1.1\r\n\nGET /health HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\n\r\n\
            \r\nPOST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
            14\r\nPOST /d HTTP/1.1\r\n\r\n\r\n0\r\n\r\nPOST /e HTTP/1.1\r\n\r\n";
        for size in 1..20 {
            let mut client = Client::new();
            for piece in all.chunks(size) {
                client.reads(piece);
                client.answer_all();
            }
            let found: Vec<_> = client.posted.iter().map(|(path, _)| &path[..]).collect();
            assert_eq!(found, ["/v1/completions", "/b", "/c", "/e"], "{size}");
            assert!(!client.is_lost());
        }
        for lost in [
            &b"\x16\x03\x01"[..],
            b"POST /a HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            b"POST /a HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        ] {
            let mut client = Client::new();
            client.reads(lost);
            assert!(client.is_lost(), "{}", String::from_utf8_lossy(lost));
        }
    }

    #[test]
    fn a_request_in_pieces_came_with_the_first_one() {
        let mut connection = Connection::new(Some(1));
        let mut seen = Vec::new();
        let pieces = [(&b"PO"[..], 5), (b"ST /v1/comp", 7), (b"letions ", 9)];
        for (piece, begin) in pieces {
            let read = [begin, begin + 1];
            connection.read(piece, read, &mut |of| {
                seen.push((of.path.to_vec(), of.accepted, of.read));
                None
            });
        }
        assert_eq!(seen, [(b"/v1/completions".to_vec(), Some(1), [5, 6])]);
    }

    #[test]
    fn who_comes_before_the_one_before_is_answered_is_not_alone_nor_those_after() {
        let mut client = Client::new();
        client.reads(b"POST /a HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 2\r\n\r\nab");
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!([client.sends(answer), client.sends(answer)], [Some((1, true)), None]);
        client.reads(b"POST /c HTTP/1.1\r\n\r\n");
        let posted = [("/a", true), ("/b", false), ("/c", false)];
        assert_eq!(client.posted, posted.map(|(path, is_alone)| (path.to_owned(), is_alone)));
        assert!(!client.is_lost());
    }

    #[test]
    fn an_answer_ends_however_it_is_cut() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = "5\r\ndata:\r\n0\r\n\r\n";
        for size in 1..=body.len() {
            let mut client = Client::new();
            client.reads(b"POST /a HTTP/1.1\r\n\r\n");
            assert_eq!(client.sends("HTTP/1.1 100 Continue\r\n\r\n"), None);
            assert_eq!(client.sends(head), Some((1, false)));
            let pieces = body.as_bytes().chunks(size).map(String::from_utf8_lossy);
            let sent: Vec<_> = pieces.map(|piece| client.sends(&piece)).collect();
            let (last, before) = sent.split_last().expect("there are some");
            assert_eq!(*last, Some((1, true)), "{size}");
            assert!(before.iter().all(|sent| *sent == Some((1, false))));
            client.reads(b"POST /b HTTP/1.1\r\n\r\n");
            assert_eq!(client.posted.last(), Some(&("/b".to_owned(), true)));
        }
    }

    #[test]
    fn how_an_answer_ends_is_in_its_head() {
        let of = |head: &str| match ends_of(head.as_bytes()) {
            (Ends::After(left), body) => format!("{left} {}", body.len()),
            (Ends::Chunk(_), body) => format!("chunk {}", body.len()),
            (Ends::Unknown, body) => format!("unknown {}", body.len()),
        };
        assert_eq!(of("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nabc"), "7 3");
        assert_eq!(of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), "chunk 0");
        assert_eq!(of("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"), "unknown 0");
        assert_eq!(of("HTTP/1.1 200 OK\r\n"), "unknown 0");
    }
}
