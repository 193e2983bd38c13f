//! Text for terminals and pages: names made printable, measured, cut, padded and wrapped.

#[cfg(feature = "top")]
pub(crate) use brickscope_analysis::view::is_unprintable;
pub(crate) use brickscope_analysis::view::{printable, printable_text, screened};

use std::ffi::OsStr;
use std::fmt::Write;

use brickscope::secrets;
use unicode_width::UnicodeWidthChar;

/// The words that this program was started with, as a run keeps them.
pub(crate) fn command_line() -> Vec<String> {
    kept(std::env::args_os())
}

/// A command line as a run keeps it: without secrets, and with a mark in the place of what isn't UTF-8.
pub(crate) fn kept<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Vec<String> {
    secrets::without(words.into_iter().map(|word| word.as_ref().to_string_lossy().into_owned()))
}

/// The columns of `text` in a monospaced font, where a Chinese character takes two.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Whether a text is like `2026-01-31`.
pub(crate) fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().zip(b"0000-00-00").all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == *form,
        })
}

/// `text`, padded with spaces to `width` columns.
pub(crate) fn padded(text: &str, width: usize) -> String {
    text.to_owned() + &" ".repeat(width.saturating_sub(columns(text)))
}

/// `text` in at most `most` columns: if it is too long, its beginning and an ellipsis.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let mut kept = fitting(text.chars(), most.saturating_sub(1));
    kept.push('…');
    kept
}

/// `text` in at most `most` columns: if it is too long, an ellipsis and its end, which distinguishes the
/// paths of functions.
pub(crate) fn cut_front(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let kept = fitting(text.chars().rev(), most.saturating_sub(1));
    let mut end = "…".to_owned();
    end.extend(kept.chars().rev());
    end
}

/// `text` in lines of at most `most` columns, broken between words; a longer word is broken anywhere. No text
/// is one empty line.
pub(crate) fn broken(text: &str, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > most {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        while columns(&line) > most {
            let start = fitting(line.chars(), most);
            if start.is_empty() {
                break;
            }
            line = line.split_off(start.len());
            lines.push(start);
        }
    }
    lines.push(line);
    lines
}

/// The first of `chars` that fit into `most` columns.
fn fitting(chars: impl Iterator<Item = char>, most: usize) -> String {
    let mut room = most;
    chars
        .take_while(|c| {
            let width = c.width().unwrap_or(0);
            let fits = width <= room;
            room = room.saturating_sub(width);
            fits
        })
        .collect()
}

/// The most columns of a line.
pub(crate) const WIDTH: usize = 80;

/// Appends `label` and `value`, wrapped and indented to the label.
pub(crate) fn wrapped(label: &str, value: &str, text: &mut String) {
    let indent = label.chars().count();
    text.push_str(label);
    let mut column = indent;
    // A percent sign stays on the line of its number.
    let value = value.replace(" %", "\u{a0}%");
    for (nth, word) in value.split(' ').filter(|word| !word.is_empty()).enumerate() {
        let word = word.replace('\u{a0}', " ");
        let width = word.chars().count();
        if nth > 0 && column + 1 + width > WIDTH {
            let _ = write!(text, "\n{:indent$}", "");
            column = indent;
        } else if nth > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(&word);
        column += width;
    }
    text.push('\n');
}

/// `1 brick`, `2 bricks`, `2 passes`.
pub(crate) fn count(n: u64, what: &str) -> String {
    match (n, what) {
        (1, _) => format!("1 {what}"),
        (_, "class" | "pass") => format!("{n} {what}es"),
        _ => format!("{n} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_text_has_all_its_words_and_no_line_too_wide() {
        assert_eq!(broken("", 5), [""]);
        assert_eq!(broken("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(broken("abcdefghijk l", 5), ["abcde", "fghij", "k l"]);
        // A character of two columns in one of them can't be broken.
        assert_eq!(broken("a 注意", 1), ["a", "注意"]);
        assert_eq!(broken("注意力 機制", 5), ["注意", "力", "機制"]);
    }

    #[test]
    fn what_cannot_be_seen_is_spelt_out() {
        assert_eq!(printable("a\nb\u{202e}c\u{0}é注"), "a\\nb\\u{202e}c\\u{0}é注");
    }

    #[test]
    fn cuts_by_columns_and_not_by_bytes() {
        assert_eq!(cut("flamegraph", 10), "flamegraph");
        assert_eq!(cut("flamegraphs", 10), "flamegrap…");
        assert_eq!(cut("注意注意", 6), "注意…");
        assert_eq!(cut_front("注意注意", 6), "…注意");
        assert_eq!(cut_front("kernels::gemv::q4_k", 11), "…gemv::q4_k");
        assert_eq!(cut("ab", 1), "…");
        assert_eq!([padded("注意", 6), padded("abc", 2)], ["注意  ", "abc"]);
    }

    #[test]
    fn a_line_is_broken_between_words() {
        let mut text = String::new();
        wrapped("label  ", &"word ".repeat(40), &mut text);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        assert!(text.lines().skip(1).all(|line| line.starts_with("       word")));
        assert_eq!(text.matches("word").count(), 40);
    }
}
