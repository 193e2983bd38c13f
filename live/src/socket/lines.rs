//! Reads lines of bounded length, and messages from them.

use std::io::{self, BufRead, Read};

use brickscope::SCHEMA_VERSION;
use serde::Deserialize;

use super::{FORMAT, Frame, Hello, LiveError, MOST_LINE, Message};

/// Reads up to the next line break, which is not kept. Returns false at the end of the input.
///
/// What was read before an error stays in `line`, so the call can be repeated after a time-out.
///
/// # Errors
///
/// Errors of the reader; [`io::ErrorKind::InvalidData`] if the line is longer than `most`.
pub(super) fn read_line(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
    most: usize,
) -> io::Result<bool> {
    let room = (most + 1).saturating_sub(line.len());
    reader.by_ref().take(room as u64).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(true);
    }
    if line.len() > most {
        let why = format!("the line is longer than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    // The other side ended in mid-line: drop the incomplete line.
    Ok(false)
}

/// Reads the messages of a publisher, from its socket or from a recording, such as one made by
/// `nc -U SOCKET > frames.jsonl`.
#[derive(Debug)]
pub struct Messages<R> {
    pub(super) reader: R,
    line: Vec<u8>,
    lines: u64,
    /// The newest whole frame.
    whole: Option<Box<Frame>>,
}

impl<R: BufRead> Messages<R> {
    /// Reads messages from `reader`.
    pub fn new(reader: R) -> Self {
        Self { reader, line: Vec::new(), lines: 0, whole: None }
    }

    /// Reads the hello, which is the first message of an engine that runs.
    ///
    /// # Errors
    ///
    /// If the first message isn't a hello, or has a newer version.
    pub fn hello(&mut self) -> Result<Hello, LiveError> {
        self.hello_telling(&mut |_| true)
    }

    /// Like [`hello`](Self::hello). While the engine starts, calls `told` with what it is doing, at least once a
    /// second; `told` returns whether to keep waiting.
    ///
    /// # Errors
    ///
    /// As for [`hello`](Self::hello); [`LiveError::Starting`] if `told` returns false.
    pub fn hello_telling(
        &mut self,
        told: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Hello, LiveError> {
        self.hello_with(told, &mut |_| ())
    }

    /// Like [`hello_telling`](Self::hello_telling). Calls `prepared` with the reader before each message.
    pub(super) fn hello_with(
        &mut self,
        told: &mut dyn FnMut(&str) -> bool,
        prepared: &mut dyn FnMut(&mut R),
    ) -> Result<Hello, LiveError> {
        loop {
            prepared(&mut self.reader);
            return match self.next()? {
                Some(Message::Starting(what)) if told(&what) => continue,
                Some(Message::Starting(what)) => Err(LiveError::Starting(what)),
                Some(Message::Hello(hello)) => Ok(*hello),
                Some(Message::Error(why)) => Err(LiveError::Refused(why)),
                Some(_) => Err(self.malformed("the first message is not a hello")),
                None => Err(self.malformed("nothing came")),
            };
        }
    }

    /// Reads the next message; `None` at the end. A [`Delta`](super::Delta) is returned as the frame that it
    /// stands for.
    ///
    /// # Errors
    ///
    /// If a line can't be read, is too long, isn't a message, has a newer version, or is a difference from a frame
    /// that didn't come. After a time-out the call can be repeated.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Message>, LiveError> {
        match read_line(&mut self.reader, &mut self.line, MOST_LINE) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.lines += 1;
                return Err(self.malformed(error.to_string()));
            }
            Err(cause) => {
                return Err(LiveError::Io { what: "reading from the publisher".to_owned(), cause });
            }
        }
        self.lines += 1;
        let line = std::mem::take(&mut self.line);
        let message = parse(&line).map_err(|why| match why {
            Fault::Newer(what, found, known) => LiveError::Newer { what, found, known },
            Fault::Malformed(why) => self.malformed(why),
        });
        // Reuse the allocation.
        self.line = line;
        self.line.clear();
        match message? {
            Message::Frame(frame) => {
                self.whole = Some(frame.clone());
                Ok(Some(Message::Frame(frame)))
            }
            Message::Delta(delta) => {
                let whole =
                    self.whole.as_deref().ok_or("a difference before any whole frame".to_owned());
                let frame = whole.and_then(|whole| delta.onto(whole));
                Ok(Some(Message::Frame(Box::new(frame.map_err(|why| self.malformed(why))?))))
            }
            other => Ok(Some(other)),
        }
    }

    /// Whether a part of a line has come.
    #[cfg_attr(not(unix), expect(dead_code, reason = "only sockets wait"))]
    pub(super) fn is_within_line(&self) -> bool {
        !self.line.is_empty()
    }

    fn malformed(&self, why: impl Into<String>) -> LiveError {
        LiveError::Malformed { line: self.lines, why: why.into() }
    }
}

enum Fault {
    Newer(&'static str, u32, u32),
    Malformed(String),
}

/// The fields that tell a message's versions, whatever else it contains.
#[derive(Deserialize)]
struct Versions {
    hello: Option<Formats>,
    frame: Option<Framed>,
}

#[derive(Deserialize)]
struct Formats {
    format: Option<u32>,
    schema_version: Option<u32>,
}

#[derive(Deserialize)]
struct Framed {
    profile: Option<Schema>,
}

#[derive(Deserialize)]
struct Schema {
    schema_version: Option<u32>,
}

fn parse(line: &[u8]) -> Result<Message, Fault> {
    let newer = |what, found: Option<u32>, known| match found {
        Some(found) if found > known => Err(Fault::Newer(what, found, known)),
        _ => Ok(()),
    };
    let malformed = |error: serde_json::Error| Fault::Malformed(error.to_string());
    let message = serde_json::from_slice(line);
    match &message {
        Ok(Message::Frame(frame)) => {
            newer("the profile", Some(frame.profile.schema_version), SCHEMA_VERSION)?;
        }
        // The hello or whole frame before it told the version.
        Ok(Message::Delta(_)) => {}
        // Check the version first, also of lines that can't be parsed: it is the better explanation.
        _ => {
            if let Ok(Versions { hello, frame }) = serde_json::from_slice(line) {
                if let Some(hello) = hello {
                    newer("what it publishes", hello.format, FORMAT)?;
                    newer("the profile", hello.schema_version, SCHEMA_VERSION)?;
                }
                let profile = frame.and_then(|frame| frame.profile);
                let version = profile.and_then(|profile| profile.schema_version);
                newer("the profile", version, SCHEMA_VERSION)?;
            }
        }
    }
    message.map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_refused_before_it_is_in_memory() {
        let mut line = Vec::new();
        let mut reader = io::BufReader::new(io::repeat(b'x'));
        let error = read_line(&mut reader, &mut line, 100).expect_err("it has no end");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(line.len(), 101);
        let mut line = Vec::new();
        let mut reader = &b"0123456789\nab"[..];
        assert!(read_line(&mut reader, &mut line, 10).expect("it fits"));
        assert_eq!(line, b"0123456789");
        line.clear();
        assert!(!read_line(&mut reader, &mut line, 10).expect("no error"), "no whole line is left");
    }

    #[test]
    fn what_is_newer_or_no_message_is_said_with_its_line() {
        let told = |text: &str| {
            let mut messages = Messages::new(text.as_bytes());
            messages.hello().expect_err("it is no hello").to_string()
        };
        assert_eq!(told(""), "line 0: nothing came");
        assert!(told("{\"hello\":").starts_with("line 0: nothing came"), "the line has no end");
        assert!(told("[]\n").starts_with("line 1: "), "{}", told("[]\n"));
        assert_eq!(
            told("{\"hello\":{\"format\":9,\"what\":[]}}\n"),
            "what it publishes has version 9, but this brickscope reads versions up to 2: use a newer brickscope"
        );
        assert_eq!(
            told("{\"frame\":{\"profile\":{\"schema_version\":99}}}\n"),
            "the profile has version 99, but this brickscope reads versions up to 2: use a newer brickscope"
        );
        assert_eq!(told("{\"error\":\"full\"}\n"), "the publisher says: full");
    }
}
