//! Numbers as the first screen and findings write them: three digits, a unit, and no 0 for what is not 0.

use brickscope_profile::text::grouped;
pub(crate) use brickscope_profile::text::{size, time};

/// `19.5 %`; a share above 0 is never shown as 0.
#[must_use]
pub fn fraction(share: f64) -> String {
    match 100.0 * share {
        of if of > 0.0 && of < 0.05 => "<0.1 %".to_owned(),
        of => format!("{of:.1} %"),
    }
}

pub(crate) fn whole_percent(share: f64) -> String {
    match 100.0 * share {
        of if of > 0.0 && of < 1.0 => "<1 %".to_owned(),
        of if of > 999.0 => ">999 %".to_owned(),
        of => format!("{of:.0} %"),
    }
}

/// [`time`] of a difference.
#[must_use]
pub fn signed(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "" };
    format!("{sign}{}", time(ns.abs()))
}

/// A difference of times, always with its sign.
pub(crate) fn change_of(ns: f64) -> String {
    let text = time(ns.abs());
    match ns {
        _ if text.starts_with("0 ") => text,
        ns if ns < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// The time of a pass: microseconds below a millisecond, else milliseconds.
#[must_use]
pub fn pass_time(ns: f64) -> String {
    if ns < 1e6 { format!("{:.1} µs", ns / 1e3) } else { format!("{:.3} ms", ns / 1e6) }
}

/// A rate in three digits or more.
#[must_use]
pub fn digits(rate: f64) -> String {
    match rate {
        _ if rate < 10.0 => format!("{rate:.2}"),
        _ if rate < 100.0 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

/// Three significant digits, or the integer part if that has more.
pub(crate) fn short(value: f64) -> String {
    match value {
        _ if value > 0.0 && value < 0.005 => "<0.01".to_owned(),
        ..9.995 => format!("{value:.2}"),
        ..999.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A rate without decimals where it has two digits.
pub(crate) fn whole(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// `1 token`, `2,048 tokens`
pub(crate) fn many(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// A number of spans in a pass, whole where it is.
pub(crate) fn times(each: f64) -> String {
    if (each - each.round()).abs() < 0.005 { format!("{each:.0}") } else { format!("{each:.1}") }
}

/// A path as a shell takes it.
#[must_use]
pub fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@%:,".contains(c);
    if path.starts_with('-') {
        // Else it would be a flag.
        return quoted(&format!("./{path}"));
    }
    if !path.is_empty() && path.chars().all(is_plain) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', "'\\''"))
}

/// A word of a command line as a shell takes it.
pub(crate) fn shell_word(word: &str) -> String {
    // A variable that is set has a `=` in the first word, and a flag may have one.
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@%:,".contains(c);
    let is_flag = word.starts_with('-');
    if !word.is_empty() && word.chars().all(|c| is_plain(c) || is_flag && c == '=') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_where_a_shell_would_split_or_expand_it() {
        assert_eq!(quoted("runs/a-1_b.2"), "runs/a-1_b.2");
        assert_eq!(quoted("my run"), "'my run'");
        assert_eq!(quoted("-x"), "./-x");
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
    }

    #[test]
    fn a_word_of_a_command_is_quoted_where_a_shell_would_read_more_into_it() {
        for plain in ["-np", "--seed=4", "bin/a"] {
            assert_eq!(shell_word(plain), plain);
        }
        for word in ["a=b", "a  b", "", "$(x)", "-x;y"] {
            assert_eq!(shell_word(word), format!("'{word}'"));
        }
        assert_eq!(shell_word("it's"), "'it'\\''s'");
    }
}
