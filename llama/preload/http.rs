//! Where requests and answers of HTTP/1 begin and end, by the bytes of a connection, however they are cut.
//!
//! Nothing here takes memory: a signal's handler of the program may send something in the middle of an allocation.

/// The most bytes of a head. Servers refuse longer ones.
const MOST_HEAD: usize = 64 << 10;
/// The most of a request's first line that is kept: paths that ask a model are shorter.
const MOST_FIRST: usize = 512;
/// The most of each line after it: those that say how long a body is are shorter.
const MOST_LINE: usize = 64;

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

/// Whether a model is asked for something by this path.
pub(crate) fn asks(path: &[u8]) -> bool {
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    ASKING.contains(&last)
}

/// The first line of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Begun<'b> {
    pub(crate) is_post: bool,
    /// Without what follows a question mark, which may be a secret.
    pub(crate) path: &'b [u8],
}

/// What the first bytes of a request are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum First<'b> {
    Request(Begun<'b>),
    /// The path goes on in bytes that haven't come.
    NotYet,
    /// Anything but HTTP/1.
    Other,
}

impl<'b> First<'b> {
    pub(crate) fn of(bytes: &'b [u8]) -> Self {
        let space = bytes.iter().take(8).position(|&byte| byte == b' ');
        let method = &bytes[..space.unwrap_or(bytes.len().min(8))];
        if !method.iter().all(u8::is_ascii_uppercase) {
            return Self::Other;
        }
        let Some(space) = space else {
            return if bytes.len() < 8 { Self::NotYet } else { Self::Other };
        };
        if method.is_empty() {
            return Self::Other;
        }
        let rest = &bytes[space + 1..];
        let end = rest.iter().position(|&byte| matches!(byte, b' ' | b'?' | b'\r' | b'\n'));
        match end {
            Some(end) => Self::Request(Begun { is_post: method == b"POST", path: &rest[..end] }),
            None if bytes.len() < MOST_FIRST => Self::NotYet,
            // A longer one than any that asks a model.
            None => Self::Request(Begun { is_post: method == b"POST", path: b"" }),
        }
    }
}

/// How long a body is, by the head before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// The head says nothing.
    Unsaid,
    Bytes(u64),
    Chunks,
    /// It isn't known: what the head says is no length, or several.
    Unknown,
}

/// A head, as it comes.
#[derive(Debug)]
pub(crate) struct Head {
    first: [u8; MOST_FIRST],
    line: [u8; MOST_LINE],
    /// How many bytes of the line have come, also those that there is no room for.
    in_line: usize,
    /// How many bytes of the first line are kept.
    in_first: usize,
    is_in_first: bool,
    /// How many bytes have come.
    all: usize,
    length: Length,
}

/// How much of some bytes belongs to a head, or to a body in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All of it, and there is more to come.
    All,
    /// So many bytes, which are the last ones.
    Ends(usize),
    /// It is too long, or none.
    Wrong,
}

impl Head {
    pub(crate) fn new() -> Self {
        Self {
            first: [0; MOST_FIRST],
            line: [0; MOST_LINE],
            in_line: 0,
            in_first: 0,
            is_in_first: true,
            all: 0,
            length: Length::Unsaid,
        }
    }

    /// Whether nothing of it has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// What has come of its first line.
    pub(crate) fn first(&self) -> &[u8] {
        &self.first[..self.in_first]
    }

    /// How long the body after it is, once it is whole.
    pub(crate) fn length(&self) -> Length {
        self.length
    }

    /// Takes what comes, up to the end of the head.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Taken {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let end = rest.iter().position(|&byte| byte == b'\n').map(|end| end + 1);
            let piece = &rest[..end.unwrap_or(rest.len())];
            at += piece.len();
            self.all = self.all.saturating_add(piece.len());
            if self.all > MOST_HEAD {
                return Taken::Wrong;
            }
            self.keep(piece);
            if end.is_none() {
                break;
            }
            if !self.is_in_first {
                if self.in_line == 2 && self.line[0] == b'\r' {
                    return Taken::Ends(at);
                }
                self.look_at_line();
            }
            self.is_in_first = false;
            self.in_line = 0;
        }
        Taken::All
    }

    /// Keeps a piece of a line, as far as there is room.
    fn keep(&mut self, piece: &[u8]) {
        let (room, from) = if self.is_in_first {
            (&mut self.first[..], self.in_first)
        } else {
            (&mut self.line[..], self.in_line)
        };
        let room = room.get_mut(from..).unwrap_or_default();
        let len = room.len().min(piece.len());
        room[..len].copy_from_slice(&piece[..len]);
        if self.is_in_first {
            self.in_first += len;
        }
        self.in_line = self.in_line.saturating_add(piece.len());
    }

    /// Looks what a whole line says of the body.
    fn look_at_line(&mut self) {
        let is_cut = self.in_line > MOST_LINE;
        let line = &self.line[..self.in_line.min(MOST_LINE)];
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        let says = if name.eq_ignore_ascii_case(b"content-length") {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(value).ok().filter(|_| is_number && !is_cut);
            number.and_then(|number| number.parse().ok()).map_or(Length::Unknown, Length::Bytes)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_chunked = !is_cut && value.eq_ignore_ascii_case(b"chunked");
            if is_chunked { Length::Chunks } else { Length::Unknown }
        } else {
            return;
        };
        self.length = match self.length {
            Length::Unsaid => says,
            before if before == says => says,
            // Who says both is read in one way by some servers, and in another by others.
            _ => Length::Unknown,
        };
    }
}

/// A body in chunks, as it comes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Chunks {
    /// The line with the size of a chunk.
    Size { size: u64, has_digits: bool, is_read: bool },
    /// So many bytes of a chunk are to come, with the end of its line.
    Data(u64),
    /// Lines after the last chunk, the last of which is empty.
    Trailer { is_empty: bool },
}

impl Chunks {
    pub(crate) const BEGIN: Self = Self::Size { size: 0, has_digits: false, is_read: false };

    /// Takes what comes, up to the end of the body.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Taken {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self {
                Self::Data(left) => {
                    let rest = bytes.len() - at;
                    let here = rest.min(usize::try_from(*left).unwrap_or(rest));
                    at += here;
                    *left -= here as u64;
                    if *left == 0 {
                        *self = Self::BEGIN;
                    }
                    continue;
                }
                Self::Size { size: 0, has_digits: true, .. } if byte == b'\n' => {
                    *self = Self::Trailer { is_empty: true };
                }
                Self::Size { size, has_digits: true, .. } if byte == b'\n' => {
                    *self = Self::Data(size.saturating_add(2));
                }
                Self::Size { is_read: true, .. } => {}
                Self::Size { has_digits: true, is_read, .. }
                    if matches!(byte, b'\r' | b';' | b' ' | b'\t') =>
                {
                    *is_read = true;
                }
                Self::Size { size, has_digits, .. } => {
                    let digit = char::from(byte).to_digit(16);
                    let more = size.checked_mul(16).zip(digit);
                    let Some((more, digit)) = more else { return Taken::Wrong };
                    *size = more + u64::from(digit);
                    *has_digits = true;
                }
                Self::Trailer { is_empty: true } if byte == b'\n' => return Taken::Ends(at + 1),
                Self::Trailer { is_empty } => match byte {
                    b'\n' => *is_empty = true,
                    b'\r' => {}
                    _ => *is_empty = false,
                },
            }
            at += 1;
        }
        Taken::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all of it in pieces of a size, and returns how many bytes there are up to the end.
    fn taken(bytes: &[u8], size: usize, mut take: impl FnMut(&[u8]) -> Taken) -> Option<usize> {
        let mut before = 0;
        for piece in bytes.chunks(size) {
            match take(piece) {
                Taken::All => before += piece.len(),
                Taken::Ends(at) => return Some(before + at),
                Taken::Wrong => return None,
            }
        }
        Some(usize::MAX)
    }

    fn length(head: &str) -> Length {
        let mut whole = Head::new();
        assert_eq!(whole.take(head.as_bytes()), Taken::Ends(head.len()), "{head}");
        for size in 1..head.len() {
            let mut cut = Head::new();
            assert_eq!(taken(head.as_bytes(), size, |piece| cut.take(piece)), Some(head.len()));
            assert_eq!((cut.length(), cut.first()), (whole.length(), whole.first()), "{size}");
        }
        whole.length()
    }

    #[test]
    fn a_head_says_how_long_its_body_is_however_it_is_cut() {
        let long = "x".repeat(MOST_LINE);
        for (lines, expected) in [
            (String::new(), Length::Unsaid),
            ("A: b\r\ncontent-LENGTH:  25 \r\n".to_owned(), Length::Bytes(25)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n".to_owned(), Length::Bytes(5)),
            ("Content-Length: 5\r\nContent-Length: 6\r\n".to_owned(), Length::Unknown),
            ("Content-Length: +5\r\n".to_owned(), Length::Unknown),
            ("Content-Length:\r\n".to_owned(), Length::Unknown),
            ("Content-Length: 99999999999999999999\r\n".to_owned(), Length::Unknown),
            ("Transfer-Encoding: Chunked\r\n".to_owned(), Length::Chunks),
            ("Transfer-Encoding: gzip, chunked\r\n".to_owned(), Length::Unknown),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n".to_owned(), Length::Unknown),
            (format!("Content-Length: 5{long}\r\n"), Length::Unknown),
            (format!("{long}: {long}\r\nContent-Length: 7\r\n"), Length::Bytes(7)),
        ] {
            assert_eq!(length(&format!("POST /a HTTP/1.1\r\n{lines}\r\n")), expected, "{lines}");
        }
    }

    #[test]
    fn a_head_without_end_is_given_up() {
        let mut head = Head::new();
        let endless = [&b"POST /a HTTP/1.1\r\n"[..], &[b'x'; MOST_HEAD]].concat();
        assert_eq!(taken(&endless, 4096, |piece| head.take(piece)), None);
    }

    #[test]
    fn a_first_line_is_a_request_once_its_path_is_whole() {
        let whole = b"POST /v1/completions?key=1 HTTP/1.1";
        for len in 0..20 {
            assert_eq!(First::of(&whole[..len]), First::NotYet, "{len}");
        }
        for len in 21..whole.len() {
            let expected = Begun { is_post: true, path: b"/v1/completions" };
            assert_eq!(First::of(&whole[..len]), First::Request(expected), "{len}");
        }
        for other in [&b"\x16\x03\x01"[..], b"post /a", b" /a", b"HTTP/1.1 200 OK", b"Po"] {
            assert_eq!(First::of(other), First::Other);
        }
        let long = [&b"POST /"[..], &[b'x'; MOST_FIRST]].concat();
        let expected = Begun { is_post: true, path: b"" };
        assert_eq!(First::of(&long[..MOST_FIRST]), First::Request(expected));
    }

    #[test]
    fn chunks_end_with_the_empty_one_however_they_are_cut() {
        let whole = b"5\r\n0\r\n\r\n\r\nA;name=value\r\n0123456789\r\n000\r\nTrailer: 0\r\n\r\n";
        let all = [&whole[..], b"POST /b"].concat();
        for size in 1..=all.len() {
            let mut chunks = Chunks::BEGIN;
            let end = taken(&all, size, |piece| chunks.take(piece));
            assert_eq!(end, Some(whole.len()), "{size}");
        }
        for wrong in [&b"x\r\n"[..], b"\r\n", b"-1\r\n", b"fffffffffffffffff\r\n"] {
            let mut chunks = Chunks::BEGIN;
            assert_eq!(chunks.take(wrong), Taken::Wrong);
        }
        let mut chunks = Chunks::BEGIN;
        assert_eq!(chunks.take(b"ffffffffffffffff\r\nab"), Taken::All);
    }
}
