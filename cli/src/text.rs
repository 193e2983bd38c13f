//! Text of the command line, and what all views take from the analysis.

pub(crate) use brickscope::text::count;
pub(crate) use brickscope_analysis::text::{
    WIDTH, broken, columns, cut, cut_front, hanging, markdown, padded, wrap,
};
pub(crate) use brickscope_analysis::view::{printable, printable_text, screened};

use std::ffi::OsStr;

use brickscope::secrets;
use brickscope_analysis::text::labelled;

/// The words that this program was started with, as a run keeps them.
pub(crate) fn command_line() -> Vec<String> {
    kept(std::env::args_os())
}

/// A command line as a run keeps it: without secrets, and with a mark in the place of what isn't UTF-8.
pub(crate) fn kept<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Vec<String> {
    secrets::without(words.into_iter().map(|word| word.as_ref().to_string_lossy().into_owned()))
}

/// Appends `label` and `value`, in lines that are indented to the end of the label.
pub(crate) fn wrapped(label: &str, value: &str, text: &mut String) {
    text.push_str(&labelled(label, value));
    text.push('\n');
}

/// Whether a text is like `2026-01-31`.
pub(crate) fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().zip(b"0000-00-00").all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == *form,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_spelt_out() {
        assert_eq!(printable("a\nb\u{202e}c\u{0}é注"), "a\\nb\\u{202e}c\\u{0}é注");
    }
}
