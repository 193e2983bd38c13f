//! Names and sentences that fit where they are printed.

/// `text` with control characters made visible, so that a name can't break a line or a terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        // Those that turn the direction of what follows, too.
        let hides = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if c.is_control() || hides {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The last `width` characters of a name, since paths of functions differ at their ends.
pub(crate) fn tail(name: &str, width: usize) -> String {
    let name = printable(name);
    let count = name.chars().count();
    if count <= width {
        return name;
    }
    let kept: String = name.chars().skip(count + 1 - width).collect();
    format!("…{kept}")
}

/// Text inside of Markdown, and of a cell of its tables.
pub(crate) fn markdown(text: &str) -> String {
    let mut out = String::new();
    for c in printable(text).chars() {
        if matches!(c, '|' | '<' | '>' | '*' | '_' | '[' | ']' | '\\' | '`' | '@' | '#') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Lines of at most `width` characters, broken at spaces; a longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // `3.1 %` stays together.
    for word in text.replace(" %", "\u{a0}%").split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

/// `1 brick`, `2 bricks`, `2 classes`.
pub(crate) fn count(n: usize, what: &str) -> String {
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
    fn names_fit_and_break_nothing() {
        assert_eq!(tail("a::b::c", 7), "a::b::c");
        assert_eq!(tail("a::b::c", 5), "…b::c");
        assert_eq!(tail("a\nb", 9), "a\\nb");
        assert_eq!(markdown("a|b<c>\u{202e}"), "a\\|b\\<c\\>\\\\u{202e}");
        assert_eq!(wrapped("aa bb 3 % c", 6), ["aa bb", "3 % c"]);
        assert_eq!(
            count(1, "class") + &count(2, "class") + &count(0, "brick"),
            "1 class2 classes0 bricks"
        );
    }
}
