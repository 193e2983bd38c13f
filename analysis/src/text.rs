//! Text for terminals, by columns of a monospaced font: a Chinese character takes two, a mark over a letter none.

use std::borrow::Cow;

use brickscope_profile::text::printable_text;
pub use brickscope_profile::text::size;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use unicode_width::UnicodeWidthChar;

pub use crate::words::{digits, fraction, pass_time, signed};

/// The most columns of a line.
pub const WIDTH: usize = 80;

/// The columns of `text`.
#[must_use]
pub fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// `text`, padded with spaces to `width` columns.
#[must_use]
pub fn padded(text: &str, width: usize) -> String {
    text.to_owned() + &" ".repeat(width.saturating_sub(columns(text)))
}

/// `text` in at most `most` columns: if it is too long, its beginning and an ellipsis.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let mut kept = fitting(text.chars(), most.saturating_sub(1));
    kept.push('…');
    kept
}

/// `text` in at most `most` columns: if it is too long, an ellipsis and its end, which distinguishes the
/// paths of functions.
#[must_use]
pub fn cut_front(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let kept = fitting(text.chars().rev(), most.saturating_sub(1));
    let mut end = "…".to_owned();
    end.extend(kept.chars().rev());
    end
}

/// `text` in at most `most` columns: if it is too long, its beginning, an ellipsis and its end. The beginning has `begin`
/// characters or more, if these fit.
#[must_use]
pub fn cut_middle(text: &str, begin: usize, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(1);
    let wanted: usize = text.chars().take(begin).map(|c| c.width().unwrap_or(0)).sum();
    let front = if wanted > room { room / 2 } else { wanted.max(room - room / 4) };
    let mut kept = fitting(text.chars(), front);
    let end = fitting(text.chars().rev(), room - front);
    kept.push('…');
    kept.extend(end.chars().rev());
    kept
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

/// `text` in lines of at most `width` columns, broken between words; a longer word has a line of its own. No text is one
/// empty line. A number and its per cent stay together, as do words with a no-break space between them, which becomes a
/// space.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    lines(text, Options::new(width).break_words(false))
}

/// The same, but a word that is longer than a line is broken anywhere.
#[must_use]
pub fn broken(text: &str, width: usize) -> Vec<String> {
    lines(text, Options::new(width))
}

/// `text` in lines of at most [`WIDTH`] columns, the first after `first`, the others after `rest`.
#[must_use]
pub fn hanging(first: &str, rest: &str, text: &str) -> String {
    let options = Options::new(WIDTH).break_words(false);
    lines(text, options.initial_indent(first).subsequent_indent(rest)).join("\n")
}

/// The same for a label: the other lines are indented to the end of it.
#[must_use]
pub fn labelled(label: &str, text: &str) -> String {
    hanging(label, &" ".repeat(columns(label)), text)
}

fn lines(text: &str, options: Options<'_>) -> Vec<String> {
    /// No place to break a line, and one column wide.
    const NO_BREAK: &str = "\u{a0}%";
    let options = options
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    let text = text.replace(" %", NO_BREAK);
    textwrap::wrap(&text, options).iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

/// `text` as XML and HTML have it: the characters that would be markup are escaped, also within double quotes.
#[must_use]
pub fn xml(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// `text` as Markdown has it, also in a cell of a table: nothing in it is markup, ends the cell, or mentions a user; and
/// [printable](brickscope_profile::text::printable_text).
#[must_use]
pub fn markdown(text: &str) -> String {
    let mut escaped = String::new();
    for c in printable_text(text).chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '#' | '~' | '@' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// A cell of CSV: [`csv_guarded`], and in quotes if it needs them. Line breaks in it stay, in quotes.
#[must_use]
pub fn csv_cell(text: &str) -> String {
    let needs_quotes = text.is_empty()
        || text.contains(['"', ',', '\r', '\n'])
        || text.starts_with(char::is_whitespace)
        || text.ends_with(char::is_whitespace);
    let text = csv_guarded(text);
    if needs_quotes { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into_owned() }
}

/// Text with a `'` before it if a spreadsheet would take it for a formula, or if it begins with `'`.
#[must_use]
pub fn csv_guarded(text: &str) -> Cow<'_, str> {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r', '\'']) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_is_cut_in_the_middle_keeps_the_beginning_that_is_wanted() {
        assert_eq!(cut_middle("abcdefghij", 0, 10), "abcdefghij");
        assert_eq!(cut_middle("abcdefghijk", 0, 10), "abcdefg…jk");
        assert_eq!(cut_middle("abcdefghijk", 8, 10), "abcdefgh…k");
        assert_eq!(cut_middle("abcdefghijk", 9, 10), "abcdefghi…");
        // It doesn't fit, so the end tells what is meant.
        assert_eq!(cut_middle("abcdefghijk", 10, 10), "abcd…ghijk");
        assert_eq!(cut_middle("注意注意注意", 0, 7), "注意…");
        assert_eq!(cut_middle("abc", 2, 0), "…");
    }

    #[test]
    fn a_broken_text_has_all_its_words_and_no_line_too_wide() {
        assert_eq!(broken("", 5), [""]);
        assert_eq!(broken("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(broken("abcdefghijk l", 5), ["abcde", "fghij", "k l"]);
        // A character of two columns in one of them can't be broken.
        assert_eq!(broken("a 注意", 1), ["a", "注", "意"]);
        assert_eq!(broken("注意力 機制", 5), ["注意", "力", "機制"]);
    }

    #[test]
    fn a_long_word_has_a_line_of_its_own_and_a_number_its_per_cent() {
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("ab kernels::gemv cd", 5), ["ab", "kernels::gemv", "cd"]);
        assert_eq!(wrap("well-known 12 % of", 13), ["well-known", "12 % of"]);
        assert_eq!(wrap("注意 力機", 7), ["注意", "力機"]);
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
    fn lines_but_the_first_are_indented_to_the_label() {
        let text = labelled("label  ", &"word ".repeat(40));
        assert!(text.lines().all(|line| columns(line) <= WIDTH));
        assert!(text.lines().skip(1).all(|line| line.starts_with("       word")));
        assert_eq!(text.matches("word").count(), 40);
        assert_eq!(hanging("- ", "  ", "a b"), "- a b");
    }

    proptest! {
        #[test]
        fn no_word_is_lost(words in prop::collection::vec("[a-z注%]{1,12}", 0..20), width in 0_usize..30) {
            let text = words.join(" ");
            prop_assert_eq!(wrap(&text, width).join(" "), text.clone());
            let letters = |text: &str| text.replace(' ', "");
            prop_assert_eq!(letters(&broken(&text, width).concat()), letters(&text));
        }
    }
}
