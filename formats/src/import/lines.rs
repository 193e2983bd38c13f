//! Records of JSON one after the other, as programs write them while they run: of a line each, or of many lines. Who gathered
//! them may have made a list of them, and logs have lines of their own between them, or put a time before each.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;

/// Calls `note` with each record of a text, in order; a record is an object. Returns how many are odd: they break off, or are
/// something else. What is odd is left out up to the next line that begins a record.
pub(super) fn each<'t, R: Deserialize<'t>>(text: &'t str, note: impl FnMut(R)) -> u64 {
    walk::<R>(text, note).odd
}

/// What became of a text.
#[derive(Debug, Default)]
struct Walked {
    odd: u64,
    /// How many bytes were looked at, some of them more than once: for tests.
    #[cfg_attr(not(test), allow(dead_code))]
    bytes: usize,
}

fn walk<'t, R: Deserialize<'t>>(text: &'t str, mut note: impl FnMut(R)) -> Walked {
    let (mut rest, mut walked) = (text, Walked::default());
    let mut broken = Broken::default();
    loop {
        let begin = rest.trim_start();
        if broken.is_begun_at(text.len() - begin.len()) {
            let (line, behind) = begin.split_once('\n').unwrap_or((begin, ""));
            if let Some(record) = behind_prefix(line) {
                walked.odd += u64::from(!read(record, &mut note));
                rest = behind;
                continue;
            }
            walked.odd += 1;
            match next_line(begin) {
                Some(line) => rest = line,
                None => return walked,
            }
            continue;
        }
        let mut records = serde_json::Deserializer::from_str(rest).into_iter::<&'t RawValue>();
        // Where the last one begins, and, if it is odd, whether it was read to its end.
        let (mut from, mut is_whole, mut fault) = (0, None, None);
        while let Some(record) = records.next() {
            match record {
                Ok(list) if list.get().starts_with('[') => walked.odd += each_of(list, &mut note),
                Ok(record) if read(record, &mut note) => {}
                Ok(_) => is_whole = Some(true),
                Err(error) => (is_whole, fault) = (Some(false), Some(error)),
            }
            if is_whole.is_some() {
                break;
            }
            from = records.byte_offset();
        }
        walked.bytes += records.byte_offset();
        let Some(is_whole) = is_whole else { return walked };
        let mut is_too_deep = false;
        let mut end = from;
        if let Some(error) = fault {
            end = byte_of(&error, rest);
            let begun = text.len() - rest.len();
            walked.bytes += 2 * end.saturating_sub(from);
            is_too_deep = !broken.note(text, begun + from, begun + end);
        }
        let begin = rest.get(from..).unwrap_or("").trim_start();
        let (line, behind) = begin.split_once('\n').unwrap_or((begin, ""));
        if let Some(record) = behind_prefix(line) {
            walked.odd += u64::from(!read(record, &mut note));
            rest = behind;
            continue;
        }
        walked.odd += 1;
        // The end of the last one that was read.
        let after = if is_too_deep { end } else { records.byte_offset() };
        let after = rest.get(after..).unwrap_or("");
        let after = if is_whole { after } else { after.trim_start() };
        match next_line(after) {
            Some(line) => rest = line,
            None => return walked,
        }
    }
}

/// Records and lists within one that breaks off, which break off at the same place: they are begun within it and aren't closed
/// before its fault. To read each of them up to there would take a time that grows with the square of the text.
#[derive(Debug, Default)]
struct Broken {
    /// Where they begin, the last one first.
    begins: Vec<usize>,
    /// Up to where this is known.
    end: usize,
}

/// Where more than so many are within each other, all are left out as one, up to the fault.
const MOST_WITHIN: usize = 1 << 20;

impl Broken {
    /// Notes those from a record's begin to its fault. Returns whether they aren't too many.
    fn note(&mut self, text: &str, begin: usize, end: usize) -> bool {
        if end <= self.end {
            return true;
        }
        let begins = open_at_end(text.get(begin..end).unwrap_or(""));
        let is_few = begins.is_some();
        (self.begins, self.end) = (begins.unwrap_or_default(), end);
        self.begins.iter_mut().for_each(|at| *at += begin);
        self.begins.reverse();
        is_few
    }

    /// Whether one begins here. Places are asked for in their order.
    fn is_begun_at(&mut self, at: usize) -> bool {
        while self.begins.pop_if(|begin| *begin < at).is_some() {}
        self.begins.last() == Some(&at)
    }
}

/// Where objects and lists begin that are a line's first, and not closed at the end of a text that is right so far. `None` if
/// they are too many.
fn open_at_end(text: &str) -> Option<Vec<usize>> {
    let mut begins: Vec<(usize, usize)> = Vec::new();
    let (mut depth, mut is_inside, mut is_escaped, mut is_first) = (0_usize, false, false, true);
    for (at, byte) in text.bytes().enumerate() {
        if is_inside {
            is_inside = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => is_inside = true,
            b'{' | b'[' => {
                if is_first {
                    begins.push((at, depth));
                }
                if begins.len() > MOST_WITHIN {
                    return None;
                }
                depth += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                begins.pop_if(|(_, of)| *of >= depth);
            }
            _ => {}
        }
        is_first = byte == b'\n' || is_first && byte.is_ascii_whitespace();
    }
    Some(begins.into_iter().map(|(at, _)| at).collect())
}

/// At which byte of a text an error is: that which is wrong, or the end.
fn byte_of(error: &serde_json::Error, text: &str) -> usize {
    if error.is_eof() {
        return text.len();
    }
    let before = error.line().saturating_sub(1);
    let begins = text.split_inclusive('\n').take(before).map(str::len).sum::<usize>();
    let at = begins.saturating_add(error.column()).saturating_sub(1).min(text.len());
    // A wrong escape may end within a character.
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default()
}

/// The record of a line that begins with something else, such as the time of a log. A line of a record that breaks off isn't
/// one: it begins with a field.
fn behind_prefix(line: &str) -> Option<&RawValue> {
    let (prefix, _) = line.split_once("{\"")?;
    let record = line.get(prefix.len()..)?;
    let prefix = prefix.trim();
    let is_none = prefix.is_empty() || prefix == "[" || prefix.starts_with(['"', '{', '}']);
    (!is_none).then(|| serde_json::from_str(record).ok()).flatten()
}

/// The text from the next line on that begins a record, with something before it or not.
fn next_line(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        (_, rest) = rest.split_once('\n')?;
        let line = rest.split_once('\n').map_or(rest, |(line, _)| line);
        if line.starts_with('{') || behind_prefix(line).is_some() {
            return Some(rest);
        }
    }
}

/// The text with `null` for what Python writes as numbers where JSON has none: `NaN`, `Infinity` and `-Infinity`. A name may
/// have these words, so those in quotes stay.
pub(super) fn with_nulls(text: &str) -> Cow<'_, str> {
    if !WORDS.iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let mut mended = String::with_capacity(text.len());
    // No string of JSON goes beyond its line, so one that breaks off costs no other.
    for line in text.split_inclusive('\n') {
        match WORDS.iter().any(|word| line.contains(word)) {
            true => with_nulls_in(line, &mut mended),
            false => mended.push_str(line),
        }
    }
    Cow::Owned(mended)
}

const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

fn with_nulls_in(line: &str, mended: &mut String) {
    let mut rest = line;
    let (mut is_inside, mut is_escaped) = (false, false);
    while let Some(c) = rest.chars().next() {
        let word = WORDS.iter().find(|word| !is_inside && rest.starts_with(**word));
        let taken = word.map_or(c.len_utf8(), |word| word.len());
        match word {
            Some(_) => mended.push_str("null"),
            None => mended.push(c),
        }
        if c == '"' && !is_escaped {
            is_inside = !is_inside;
        }
        is_escaped = is_inside && c == '\\' && !is_escaped;
        rest = rest.get(taken..).unwrap_or("");
    }
}

/// Whether it is a record. A list isn't one, though its elements could be taken for fields.
fn read<'t, R: Deserialize<'t>>(record: &'t RawValue, note: &mut impl FnMut(R)) -> bool {
    let text = record.get();
    let record: Option<R> =
        text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
    record.map(note).is_some()
}

/// Reads the records of a list. Returns how many are odd.
fn each_of<'t, R: Deserialize<'t>>(list: &'t RawValue, note: &mut impl FnMut(R)) -> u64 {
    let mut odd = 0;
    let mut json = serde_json::Deserializer::from_str(list.get());
    let all = json.deserialize_seq(Elements(|record: &'t RawValue| {
        odd += u64::from(!read(record, note));
    }));
    odd + u64::from(all.is_err())
}

/// Calls the function with each element of a list, which is nowhere as a whole.
struct Elements<F>(F);

impl<'t, F: FnMut(&'t RawValue)> Visitor<'t> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'t>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(record) = list.next_element::<&'t RawValue>()? {
            (self.0)(record);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Record {
        #[serde(default)]
        n: u64,
        #[serde(default)]
        more: u64,
    }

    /// The numbers of the records, and how many are odd.
    fn of(text: &str) -> (Vec<u64>, u64) {
        let mut numbers = Vec::new();
        let odd = each::<Record>(text, |record| numbers.push(record.n + record.more));
        (numbers, odd)
    }

    #[test]
    fn a_list_has_records_and_is_none_itself() {
        assert_eq!(of("[{\"n\":1},\n {\"n\":2},{\"n\":3}]\n{\"n\":4}"), (vec![1, 2, 3, 4], 0));
        assert_eq!(of("[]"), (vec![], 0));
        // Neither numbers nor lists of them are records, though a list could be taken for the fields of one.
        assert_eq!(of("[1,{\"n\":2},[3,4],{\"n\":\"x\"},{\"n\":5}]"), (vec![2, 5], 3));
    }

    #[test]
    fn what_is_odd_is_left_out_up_to_the_next_line() {
        for odd in
            ["{\"n\":\"x\"}", "7", "\"x\"", "x", "{\"n\":7", "{\"n\":", "12 INFO", "12 WARN x {"]
        {
            let text = format!("{{\"n\":1}}\n{odd}\n{{\"n\":2}}\n{{\"n\":3}}");
            assert_eq!(of(&text), (vec![1, 2, 3], 1), "{odd}");
        }
        assert_eq!(of("[{\"n\":1},\n{\"n\":2},\n{\"n\""), (vec![2], 3));
    }

    /// Records that break off within each other, as a broken or hostile file has them.
    #[test]
    fn records_within_one_that_breaks_off_are_read_once() {
        const N: usize = 20_000;
        let nested = "{\"n\":\n".repeat(N);
        let lists = "{\"a\":[{\"n\":1},\n".repeat(N);
        let good = "{\"n\":1}\n";
        for (text, numbers, odd) in [
            // Up to the end, or up to a fault behind which there is another one.
            (nested.clone(), 0, N),
            (format!("{nested}x\n{good}"), 1, N),
            (format!("{nested}{good}x\n{good}"), 2, N + 1),
            // A fault within a character.
            (format!("{nested}\"\\uaaé\"\n{good}"), 1, N),
            (lists.clone(), 0, N),
            // Lists of which a line is as a record with something before it.
            ("[0,{\"n\":1}\n,\n".repeat(N), N as u64, N),
            (format!("{good}{lists}x\n{good}"), 2, N),
        ] {
            let mut all = 0;
            let walked = walk::<Record>(&text, |record| all += record.n);
            let about = &text[text.len() - 20..];
            assert_eq!((all, walked.odd), (numbers, odd as u64), "{about}");
            assert!(walked.bytes <= 4 * text.len(), "{} of {}", walked.bytes, text.len());
        }
    }

    #[test]
    fn records_within_each_other_are_as_if_each_was_read_alone() {
        // Each way to put five of these together.
        const PARTS: [&str; 9] = [
            "{\"n\":1}\n",
            "{\"n\":\n",
            " {\"n\":[\n",
            "]\n",
            "}\n",
            ",",
            "\"}{\"\n",
            "x {\"n\":1}\n",
            "[0,{\"n\":1}\n",
        ];
        for nth in 0..9_usize.pow(5) {
            let text: String = (0..5).map(|power| PARTS[nth / 9_usize.pow(power) % 9]).collect();
            assert_eq!(of(&text), one_by_one(&text), "{text}");
        }
    }

    /// The same as [`of`], with each record that breaks off read to its fault.
    fn one_by_one(text: &str) -> (Vec<u64>, u64) {
        let (mut rest, mut numbers, mut odd) = (text, Vec::new(), 0);
        loop {
            let mut records = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
            let mut from = 0;
            let is_whole = loop {
                let mut note = |record: Record| numbers.push(record.n + record.more);
                match records.next() {
                    None => return (numbers, odd),
                    Some(Ok(list)) if list.get().starts_with('[') => {
                        odd += each_of(list, &mut note);
                    }
                    Some(Ok(record)) if read(record, &mut note) => {}
                    Some(record) => break record.is_ok(),
                }
                from = records.byte_offset();
            };
            let begin = rest[from..].trim_start();
            let (line, behind) = begin.split_once('\n').unwrap_or((begin, ""));
            if let Some(record) = behind_prefix(line) {
                let mut note = |record: Record| numbers.push(record.n + record.more);
                odd += u64::from(!read(record, &mut note));
                rest = behind;
                continue;
            }
            odd += 1;
            let after = &rest[records.byte_offset()..];
            match next_line(if is_whole { after } else { after.trim_start() }) {
                Some(line) => rest = line,
                None => return (numbers, odd),
            }
        }
    }

    #[test]
    fn a_log_may_have_lines_between_records_and_a_prefix_before_each() {
        let text = "INFO starting\n{\"n\":1}\n2026 WARN x {\n{\"n\":2}\n";
        assert_eq!(of(text), (vec![1, 2], 2));
        for prefix in ["2026-01-01T00:00:00Z INFO ", "[pod/a/b] ", "Jan 01 h p[1]: ", "7\t"] {
            let lines = ["{\"n\":1}", "{\"n\":2,", "x", "{\"n\":3}\r"];
            let text: String = lines.iter().map(|line| format!("{prefix}{line}\n")).collect();
            assert_eq!(of(&text), (vec![1, 3], 1), "{prefix}");
        }
    }

    #[test]
    fn words_for_numbers_that_json_lacks_are_null_outside_of_strings() {
        let text = "{\"NaN\":NaN,\"a\\\"NaN\":[-Infinity, Infinity]}\n{\"broken NaN\n{\"x\":NaN}";
        let mended = "{\"NaN\":null,\"a\\\"NaN\":[null, null]}\n{\"broken NaN\n{\"x\":null}";
        assert_eq!(with_nulls(text), mended);
        assert!(matches!(with_nulls("{\"x\":1}"), Cow::Borrowed(_)));
    }
}
