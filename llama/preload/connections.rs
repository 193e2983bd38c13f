//! Where each request begins that is read from a connection, and whose answer it is that is sent by it.
//!
//! Nothing here takes memory: see [`http`](crate::http).

use std::cell::Cell;

use crate::http::{Chunks, First, Head, Length, Taken};

thread_local! {
    /// The request that this thread has read and not answered, so that what it tokenizes is of that; 0 for none.
    pub(crate) static READS: Cell<u32> = const { Cell::new(0) };
}

/// One of HTTP/1, by whose bytes it is known where a request begins.
pub(crate) struct Connection {
    /// When it was accepted. `None` once a request came by it, or if that wasn't seen.
    accepted: Option<u64>,
    pub(crate) reads: Reads,
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
    pub(crate) is_unnamed: bool,
    /// Whether a request came before the one before it was answered. From there on it can't be told whose answer begins, which
    /// may be in the middle of what is sent.
    is_mixed: bool,
    /// Whether it was found closed.
    pub(crate) is_closed: bool,
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

pub(crate) enum Reads {
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
pub(crate) struct Posted<'b> {
    pub(crate) path: &'b [u8],
    /// When its connection was accepted, if no other came by that before.
    pub(crate) accepted: Option<u64>,
    /// When its first bytes were begun to be read, and when they had been.
    pub(crate) read: [u64; 2],
    /// Whether its answer can be told from others.
    pub(crate) is_alone: bool,
}

impl Connection {
    pub(crate) fn new(accepted: Option<u64>) -> Self {
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
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = u32> {
        [self.asked, self.answers].into_iter().flatten()
    }

    /// Whether the next bytes begin a request.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.reads, Reads::Head) && self.head.is_empty()
    }

    /// Takes what was read, with when that began and ended. Calls `begins` with each request by POST, whole or not, which
    /// returns its number if it asks a model.
    pub(crate) fn read(
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
    pub(crate) fn send(&mut self, bytes: &[u8], status: u16) -> Option<(u32, bool)> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::status_of;

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
