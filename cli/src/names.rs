//! Names as people may see them: nothing in one breaks a line, turns the text around or is too long.

pub(crate) use brickscope_analysis::view::printable;

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
}
