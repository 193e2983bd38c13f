//! What a server reads from its sockets and writes to them: when a request came, and when each piece of its answer left. No
//! text of either is kept but the path of a request and the number that the server gives it.
//!
//! A request is one of HTTP/1 that asks a model for something. What is encrypted isn't seen. Where requests begin is found in
//! [`connections`](crate::connections), and what stands in an answer in [`answers`](crate::answers).

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::answers::{MOST_TEXT, name_of, sent_of, status_of, tokens_of};
use crate::batch::IS_WANTED;
use crate::connections::{Connection, READS, Reads};
use crate::file::Recording;
use crate::format::{Record, Sent, UNKNOWN, word};
use crate::hooks::Hook;
use crate::http::{First, asks};
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
}

/// The connections of this process.
#[derive(Default)]
pub(crate) struct Sockets {
    there: HashMap<c_int, Connection>,
    /// How many requests there were.
    requests: u32,
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
