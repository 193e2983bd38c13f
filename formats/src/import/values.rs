//! JSON of any length, value by value, from whatever can be read: only the value that is looked at is in
//! memory.
//!
//! Values are parsed where they lie, in a window of what was read. One that the window's end cuts is parsed
//! once more when there is more of it.

use std::borrow::Cow;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// How much is read at once, in bytes.
pub(super) const PIECE: usize = 1 << 20;

/// The most bytes of a value. An event of a trace has hundreds.
const MOST_VALUE: usize = 16 << 20;

/// Why the next value can't be had.
#[derive(Debug)]
pub(super) enum Fault {
    /// The text ends where something is missing.
    End,
    /// It is no JSON: at which byte, counted from 1, and what is wrong.
    At(u64, String),
    /// It can't be read.
    Io(io::Error),
}

/// What became of a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Read,
    /// It is JSON, but not what is wanted, or too long.
    Odd(String),
}

/// The values of a text.
pub(super) struct Values<R> {
    from: R,
    /// What was read, from some place before the next value on.
    window: Vec<u8>,
    /// Where in the window the next value begins.
    at: usize,
    /// How many bytes were before the window.
    before: u64,
    /// Whether all was read.
    is_end: bool,
    piece: usize,
}

impl<R: Read> Values<R> {
    pub(super) fn new(from: R, piece: usize) -> Self {
        Self { from, window: Vec::new(), at: 0, before: 0, is_end: false, piece: piece.max(1) }
    }

    /// How many bytes are done with.
    pub(super) fn position(&self) -> u64 {
        self.before + self.at as u64
    }

    fn rest(&self) -> &[u8] {
        &self.window[self.at..]
    }

    /// Reads on, as much again as there is: so a long value is looked at a few times only. Whether there was
    /// more.
    fn more(&mut self) -> Result<bool, Fault> {
        if self.is_end {
            return Ok(false);
        }
        self.window.drain(..self.at);
        self.before += self.at as u64;
        self.at = 0;
        let wanted = self.piece.max(self.window.len());
        self.window.reserve(wanted);
        let mut part = self.from.by_ref().take(wanted as u64);
        let read = part.read_to_end(&mut self.window).map_err(Fault::Io)?;
        self.is_end = read < wanted;
        Ok(read > 0)
    }

    /// Leaves out what is before all values, which `find` tells by what was read and by whether that is all. Returns it.
    pub(super) fn skip_before(
        &mut self,
        find: impl Fn(&[u8], bool) -> Option<usize>,
    ) -> Result<Vec<u8>, Fault> {
        loop {
            if let Some(length) = find(self.rest(), self.is_end) {
                let skipped = self.rest().get(..length).unwrap_or_default().to_vec();
                self.at += skipped.len();
                return Ok(skipped);
            }
            if self.is_end {
                return Ok(Vec::new());
            }
            self.more()?;
        }
    }

    /// The next byte that is no blank.
    pub(super) fn peek(&mut self) -> Result<u8, Fault> {
        loop {
            let is_blank = |byte: u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            let next = self.rest().iter().enumerate().find(|(_, byte)| !is_blank(**byte));
            if let Some((blanks, &byte)) = next {
                self.at += blanks;
                return Ok(byte);
            }
            self.at = self.window.len();
            if !self.more()? {
                return Err(Fault::End);
            }
        }
    }

    /// Goes behind the byte that [`peek`](Self::peek) gave.
    pub(super) fn step(&mut self) {
        self.at = (self.at + 1).min(self.window.len());
    }

    /// What is wrong with the byte that [`peek`](Self::peek) gave.
    pub(super) fn fault(&self, what: &str) -> Fault {
        Fault::At(self.position() + 1, what.to_owned())
    }

    /// Reads the value that begins at the byte that [`peek`](Self::peek) gave. `take` gets a text that begins
    /// with it, and says how many bytes of it the value has; it must not have done anything when it returns
    /// an error, since it gets the same value again when more was read, or some of it was mended.
    pub(super) fn value(
        &mut self,
        mut take: impl FnMut(&[u8]) -> serde_json::Result<usize>,
    ) -> Result<Value, Fault> {
        self.delimit()?;
        loop {
            let error = match take(self.rest()) {
                Ok(length) => {
                    self.at += length;
                    return Ok(Value::Read);
                }
                Err(error) => error,
            };
            let known = self.rest().len();
            if error.is_eof() {
                if known > MOST_VALUE {
                    return self.skip();
                }
                if !self.more()? {
                    return Err(Fault::End);
                }
                continue;
            }
            let (length, is_closed) = self.extent()?;
            // Else it may be the end of the window that is wrong: `1.` is no number, and `1.5` is one.
            if self.rest().len() == known {
                return self.mended(&error, length, is_closed, &mut take);
            }
        }
    }

    /// Reads on until the end of a number or a word is there: without what follows, `12` may be the half of
    /// `1234`.
    fn delimit(&mut self) -> Result<(), Fault> {
        loop {
            let rest = self.rest();
            let is_delimited = match rest.first() {
                Some(b'{' | b'[' | b'"') => true,
                _ => rest.iter().any(|byte| b",:]} \t\r\n".contains(byte)),
            };
            if is_delimited || rest.len() > MOST_VALUE || !self.more()? {
                return Ok(());
            }
        }
    }

    /// How many bytes the value has that begins here, and whether its end is there. It isn't where the text
    /// breaks off, or the value is too long.
    fn extent(&mut self) -> Result<(usize, bool), Fault> {
        let mut nesting = Nesting::default();
        let mut seen = 0;
        loop {
            if let Some(length) = nesting.end(&self.rest()[seen..]) {
                return Ok((seen + length, true));
            }
            seen = self.rest().len();
            if seen > MOST_VALUE || !self.more()? {
                return Ok((seen, false));
            }
        }
    }

    /// Leaves out a value that is too long.
    fn skip(&mut self) -> Result<Value, Fault> {
        let mut nesting = Nesting::default();
        loop {
            if let Some(length) = nesting.end(self.rest()) {
                self.at += length;
                return Ok(Value::Odd(format!("it has more than {} MiB", MOST_VALUE >> 20)));
            }
            self.at = self.window.len();
            if !self.more()? {
                return Err(Fault::End);
            }
        }
    }

    /// Mends a value of `length` bytes that can't be read, and reads it then.
    fn mended(
        &mut self,
        error: &serde_json::Error,
        length: usize,
        is_closed: bool,
        take: &mut impl FnMut(&[u8]) -> serde_json::Result<usize>,
    ) -> Result<Value, Fault> {
        let value = &self.rest()[..length];
        let mended = mended(value);
        let text = mended.as_deref().map_or(value, str::as_bytes);
        let is = parsed::<IgnoredAny>(text);
        // A number whose end is cut is no number.
        let is_part = value.last().is_some_and(|last| b"+-.eE".contains(last));
        match is {
            // Not if there is more behind it: `nan1` is none.
            Ok((_, whole)) if whole == text.len() => {
                let is_read = mended.is_some() && take(text).is_ok();
                self.at += length;
                Ok(if is_read { Value::Read } else { Value::Odd(said(error)) })
            }
            Err(why) if !is_closed && self.is_end && (why.is_eof() || is_part) => Err(Fault::End),
            _ => Err(Fault::At(self.position() + byte_of(error, self.rest()) as u64, said(error))),
        }
    }
}

/// Finds where a value ends, in one part of it after the other.
#[derive(Default)]
struct Nesting {
    /// How many brackets are open.
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl Nesting {
    /// How many bytes of this part the value has; `None` if it goes on behind it.
    fn end(&mut self, part: &[u8]) -> Option<usize> {
        for (at, byte) in part.iter().enumerate() {
            if self.is_escaped {
                self.is_escaped = false;
            } else if self.is_in_string {
                match byte {
                    b'\\' => self.is_escaped = true,
                    b'"' => {
                        self.is_in_string = false;
                        if self.depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.is_in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' if self.depth > 1 => self.depth -= 1,
                    b'}' | b']' => return Some(at + self.depth),
                    b',' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => return Some(at),
                    _ => {}
                }
            }
        }
        None
    }
}

/// The value that a text begins with, and how many bytes it has.
pub(super) fn parsed<'a, T: Deserialize<'a>>(text: &'a [u8]) -> serde_json::Result<(T, usize)> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<T>();
    match values.next() {
        Some(value) => Ok((value?, values.byte_offset())),
        // There is nothing, which is an error.
        None => serde_json::from_slice(text).map(|value| (value, text.len())),
    }
}

/// What an error says, without the place.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what).to_owned()
}

/// The byte of `text` at which an error is, counted from 1.
fn byte_of(error: &serde_json::Error, text: &[u8]) -> usize {
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let mut begins = ends.map(|(end, _)| end + 1);
    let line = error.line().checked_sub(2).and_then(|before| begins.nth(before));
    line.unwrap_or_default().saturating_add(error.column())
}

/// The line and column of a byte of `text`, counted from 1.
pub(super) fn line_and_column(text: &[u8], byte: u64) -> String {
    let byte = usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
    let before = &text[..byte];
    let begin = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let line = 1 + before[..begin].iter().filter(|&&byte| byte == b'\n').count();
    format!("line {line} column {}", byte - begin)
}

/// The text with quotes around numbers that JSON has none for, and escapes for control characters within
/// strings; without bytes that are of no character. `None` if there is none of these.
fn mended(value: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(value);
    let mended = quoted(&text);
    mended.or(match text {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    })
}

/// PyTorch writes numbers and names as they come: `nan`, and control characters in names.
fn quoted(text: &str) -> Option<String> {
    const WORDS: [&str; 7] = ["-nan", "nan", "NaN", "-inf", "inf", "-Infinity", "Infinity"];
    let mut mended = String::with_capacity(text.len());
    let (mut is_inside, mut is_escaped, mut is_mended) = (false, false, false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        if is_inside {
            if c < ' ' {
                is_mended = true;
                mended.push_str(&format!("\\u{:04x}", u32::from(c)));
            } else {
                mended.push(c);
            }
            is_inside = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
        } else if let Some(word) = WORDS.iter().find(|word| rest.starts_with(**word)) {
            is_mended = true;
            mended.extend(["\"", word, "\""]);
            taken = word.len();
        } else {
            is_inside = c == '"';
            mended.push(c);
        }
        rest = &rest[taken..];
    }
    is_mended.then_some(mended)
}

/// The text of a JSON string, or any other value as it is written.
pub(super) fn words(value: Option<&RawValue>) -> Cow<'_, str> {
    let text = value.map_or("", RawValue::get);
    let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inside {
        // As most are.
        Some(inside) if !inside.contains('\\') => Cow::Borrowed(inside),
        Some(_) => serde_json::from_str::<String>(text).map_or(Cow::Borrowed(text), Cow::Owned),
        None => Cow::Borrowed(text),
    }
}

/// A value as it is written; nothing if there is none.
pub(super) fn text(value: Option<&RawValue>) -> &str {
    value.map_or("", RawValue::get)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The elements of an array as they are read in pieces of so many bytes, odd ones as what is said of
    /// them; and why it ends.
    fn elements(text: &[u8], piece: usize) -> (Vec<String>, Option<String>) {
        let mut values = Values::new(text, piece);
        let mut found = Vec::new();
        let mut all = || -> Result<(), Fault> {
            assert_eq!(values.peek()?, b'[');
            values.step();
            loop {
                let mut element = None;
                let read = values.peek().and_then(|_| {
                    values.value(|text| {
                        let (value, length) = parsed::<&RawValue>(text)?;
                        element = Some(value.get().to_owned());
                        Ok(length)
                    })
                })?;
                found.push(match read {
                    Value::Read => element.expect("it was read"),
                    Value::Odd(why) => why,
                });
                match values.peek()? {
                    b',' => values.step(),
                    b']' => return Ok(()),
                    _ => return Err(values.fault("no comma")),
                }
            }
        };
        let why = all().err().map(|fault| match fault {
            Fault::End => "end".to_owned(),
            Fault::At(byte, what) => format!("{byte}: {what}"),
            Fault::Io(error) => error.to_string(),
        });
        (found, why)
    }

    const TEXT: &str = r#" [ {"a": "x\"]}", "b": [1.5e-3, {}]} ,12, -0.5 ,"é🦀\\",null,[[]],
        {"c": true}]"#;

    #[test]
    fn values_are_the_same_in_pieces_of_any_size() {
        let found = [
            r#"{"a": "x\"]}", "b": [1.5e-3, {}]}"#,
            "12",
            "-0.5",
            r#""é🦀\\""#,
            "null",
            "[[]]",
            r#"{"c": true}"#,
        ];
        for piece in 1..=TEXT.len() + 1 {
            assert_eq!(elements(TEXT.as_bytes(), piece), (found.map(str::to_owned).to_vec(), None));
        }
    }

    #[test]
    fn a_text_may_break_off_anywhere() {
        let whole = elements(TEXT.as_bytes(), TEXT.len()).0;
        let first = TEXT.find('[').expect("it begins") + 1;
        for end in first..TEXT.len() - 1 {
            for piece in [1, 7, TEXT.len()] {
                let (found, why) = elements(&TEXT.as_bytes()[..end], piece);
                assert_eq!(why.as_deref(), Some("end"), "{end}");
                // A number may lack digits.
                let (last, before) = found.split_last().map_or(("", &[][..]), |(l, b)| (&**l, b));
                assert_eq!(before, &whole[..before.len()], "{end}");
                assert!(last.is_empty() || whole[before.len()].starts_with(last), "{end}: {last}");
            }
        }
    }

    #[test]
    fn what_json_has_no_number_for_and_control_characters_are_mended() {
        let text = b"[{\"a\": nan}, {\"b\": \"x\x01\ny\"}, -inf, {\"c\": \"\xff\"}, 1]";
        let found = [
            r#"{"a": "nan"}"#,
            r#"{"b": "x\u0001\u000ay"}"#,
            r#""-inf""#,
            "{\"c\": \"\u{fffd}\"}",
            "1",
        ];
        for piece in 1..=text.len() {
            let is = elements(text, piece);
            assert_eq!(is, (found.map(str::to_owned).to_vec(), None), "{piece}");
        }
        // Cut within what is mended.
        let (found, why) = elements(&text[..22], 5);
        assert_eq!((found.len(), why.as_deref()), (1, Some("end")));
    }

    #[test]
    fn what_is_no_json_has_a_place() {
        for (text, why) in [
            ("[{]]", "3: key must be a string"),
            ("[1,\n {\"a\"\n: x}]", "13: expected value"),
            ("[nan1]", "3: expected ident"),
            ("[1 2]", "4: no comma"),
            ("[1,]", "4: expected value"),
        ] {
            for piece in 1..=text.len() {
                assert_eq!(elements(text.as_bytes(), piece).1.as_deref(), Some(why), "{text}");
            }
        }
        assert_eq!(line_and_column(b"[1,\n {\"a\"\n: x}]", 13), "line 3 column 3");
        assert_eq!(line_and_column(b"", 5), "line 1 column 0");
    }

    #[test]
    fn a_value_that_is_too_long_is_left_out() {
        let long = "x".repeat(2 * MOST_VALUE);
        let text = format!("[1,{{\"a\":[\"{long}\"]}},2]");
        let (found, why) = elements(text.as_bytes(), PIECE);
        assert_eq!((&*found[0], &*found[1], &*found[2]), ("1", "it has more than 16 MiB", "2"));
        assert_eq!(why, None);
    }

    proptest! {
        #[test]
        fn any_text_ends_the_same_in_pieces(text in "[\\[\\]{},:\"\\\\ na1.e\n-]{0,40}", piece in 1_usize..9) {
            let text = format!("[{text}");
            let whole = elements(text.as_bytes(), 64);
            prop_assert_eq!(elements(text.as_bytes(), piece), whole);
        }
    }
}
