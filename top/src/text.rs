//! Text of the screens: what the analysis has, and characters for terminals that have only ASCII.

pub(crate) use brickscope_analysis::text::{columns, cut, padded, wrap};
pub(crate) use brickscope_analysis::view::{is_unprintable, printable, printable_text};

/// The text in ASCII, with as many columns: what has no letter there becomes `?`.
pub(crate) fn ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0'..='\x7f' => plain.push(c),
            '·' | '–' | '—' | '−' => plain.push('-'),
            'µ' => plain.push('u'),
            '×' => plain.push('x'),
            '…' | '±' => plain.push('~'),
            '†' => plain.push('+'),
            _ => plain.push_str(&"?".repeat(columns(c.encode_utf8(&mut [0; 4])))),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_has_as_many_columns() {
        let text = "DECODE · 3.2 µs × 4 …, ± 注é";
        let plain = ascii(text);
        assert_eq!(plain, "DECODE - 3.2 us x 4 ~, ~ ???");
        assert_eq!(columns(&plain), columns(text));
        assert!(plain.is_ascii());
    }
}
