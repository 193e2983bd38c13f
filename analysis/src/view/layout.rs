//! How lines of text lie: names before values, sentences in lines.

use std::fmt::Write;

use brickscope_profile::text::{self, printable_text};

use crate::text::{cut_front, wrap};

/// Columns of a line.
pub(super) const COLUMNS: usize = 80;

/// Columns of a label.
const LABEL: usize = 12;

/// The most columns of the name of a file.
const MOST_OF_FILE: usize = 44;

/// The name of a file, without its folders; of a long one, the end.
pub(super) fn file_name(file: &str) -> String {
    cut_front(&printable_text(text::file_name(file)), MOST_OF_FILE)
}

/// Lines with a name before each, wrapped.
pub(super) fn labelled<T: AsRef<str>>(lines: &[(&str, T)], text: &mut String) {
    for (name, value) in lines {
        for (i, line) in wrap(value.as_ref(), 68).into_iter().enumerate() {
            let _ = writeln!(text, "{:9} {line}", if i == 0 { name } else { "" });
        }
    }
}

/// A value with its label before it, indented under what it is of.
pub(super) fn field(label: &str, what: &str, text: &mut String) {
    for (nth, line) in wrap(what, COLUMNS - 3 - LABEL).into_iter().enumerate() {
        let label = if nth == 0 { label } else { "" };
        let _ = writeln!(text, "   {label:LABEL$}{line}");
    }
}

/// Writes `words` in lines of at most 78 characters.
pub(super) fn wrapped(words: &str, text: &mut String) {
    for line in wrap(words, 78) {
        let _ = writeln!(text, "{line}");
    }
}

pub(super) fn milliseconds(nanos: u64) -> String {
    format!("{:.3} ms", nanos as f64 / 1e6)
}
