//! Formatting of numbers and names, the same in all tables.

/// `text` with control characters escaped, so that a name can't break a line, control a terminal, or
/// look like another name.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let (escaped, plain) =
                if is_unprintable(c) { (Some(c.escape_default()), None) } else { (None, Some(c)) };
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

fn is_unprintable(c: char) -> bool {
    match c {
        c if c.is_control() => true,
        // Line and paragraph separators; bidirectional controls; the byte order mark; characters that
        // XML, and so SVG, can't contain.
        '\u{2028}' | '\u{2029}' => true,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        '\u{feff}' | '\u{fffe}' | '\u{ffff}' => true,
        _ => false,
    }
}

/// Nanoseconds as microseconds with one decimal, or with three if one would round a measured time
/// to 0.
#[must_use]
pub fn micros(nanos: f64) -> String {
    let digits = if nanos > 0.0 && nanos < 50.0 { 3 } else { 1 };
    format!("{:.digits$}", nanos / 1e3)
}

/// `part` of `whole` in percent; `n/a` if `whole` is 0.
#[must_use]
pub fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "n/a".to_owned();
    }
    let percent = 100.0 * part / whole;
    if percent > 0.0 && percent < 0.05 { "<0.1%".to_owned() } else { format!("{percent:.1}%") }
}

/// `n` things, in the singular or the plural.
#[must_use]
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A number with a comma between thousands.
#[must_use]
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A name in at most `width` characters, followed by `mark`.
#[must_use]
pub fn shortened(name: &str, width: usize, mark: &str) -> String {
    let name = printable(name);
    if name.chars().count() <= width {
        return name + mark;
    }
    let kept: String = name.chars().take(width - 1).collect();
    format!("{kept}…{mark}")
}

/// The most bricks that a table lists. The others are summed in one row.
pub const MOST_ROWS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart_by_commas() {
        let grouped = [0, 7, 999, 1000, 589_824, 1_000_000, u64::MAX].map(grouped);
        let expected =
            ["0", "7", "999", "1,000", "589,824", "1,000,000", "18,446,744,073,709,551,615"];
        assert_eq!(grouped, expected);
    }
}
