//! Names as people may see them: nothing in one breaks a line, turns the text around or is too long.

pub(crate) use brickscope::view::printable;

use std::fmt::Write;

use unicode_width::UnicodeWidthChar;

/// Columns that `text` takes where all letters are equally wide; those of Chinese take two.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// `text` with blanks after it, up to `width` columns.
pub(crate) fn padded(text: &str, width: usize) -> String {
    text.to_owned() + &" ".repeat(width.saturating_sub(columns(text)))
}

/// The beginning of `text`, with … where it is cut, in at most `most` columns.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let mut kept = fitting(text.chars(), most.saturating_sub(1));
    kept.push('…');
    kept
}

/// The end of `text`, with … where it is cut, in at most `most` columns: what tells one function from
/// another stands last in its path.
pub(crate) fn cut_front(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let kept = fitting(text.chars().rev(), most.saturating_sub(1));
    let mut end = "…".to_owned();
    end.extend(kept.chars().rev());
    end
}

/// As many of `chars` as `most` columns have room for.
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

/// Columns of a line at most.
pub(crate) const WIDTH: usize = 80;

/// `value` after `label`, on as many lines as it takes.
pub(crate) fn wrapped(label: &str, value: &str, text: &mut String) {
    let indent = label.chars().count();
    text.push_str(label);
    let mut column = indent;
    // A unit stays on the line of its number.
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

/// `1 brick`, `2 bricks`, `2 classes`.
pub(crate) fn count(n: u64, what: &str) -> String {
    match (n, what) {
        (1, _) => format!("1 {what}"),
        (_, "class") => format!("{n} classes"),
        _ => format!("{n} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
