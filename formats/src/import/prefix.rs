//! What a keeper of logs puts before each line: a time, a host and a program, a container.

/// What is before a line, of which numbers and blanks differ from line to line, and words such as months too if there is a
/// number.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Prefix<'t> {
    text: &'t str,
    has_digits: bool,
}

/// What a character is to a prefix.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Kind {
    Digit,
    Letter,
    Blank,
    Other,
}

impl Kind {
    fn of(c: char) -> Self {
        match c {
            c if c.is_ascii_digit() => Self::Digit,
            c if c.is_alphabetic() => Self::Letter,
            c if c.is_whitespace() => Self::Blank,
            _ => Self::Other,
        }
    }
}

impl<'t> Prefix<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Self { text, has_digits: text.contains(|c: char| c.is_ascii_digit()) }
    }

    /// What is behind such a prefix in a line; `None` if it doesn't begin with one.
    pub(super) fn behind<'l>(&self, line: &'l str) -> Option<&'l str> {
        if !self.has_digits {
            return line.strip_prefix(self.text);
        }
        let (mut prefix, mut line) = (self.text, line);
        while !prefix.is_empty() {
            let (kind, part, rest) = first(prefix)?;
            // Blanks at the end of a line may have been cut.
            if line.is_empty() && kind == Kind::Blank && rest.is_empty() {
                return Some(line);
            }
            let (is, found, behind) = first(line)?;
            if is != kind || (kind == Kind::Other && found != part) {
                return None;
            }
            (prefix, line) = (rest, behind);
        }
        Some(line)
    }
}

/// The first run of characters of a kind, with the kind, and what is behind it.
fn first(text: &str) -> Option<(Kind, &str, &str)> {
    let kind = Kind::of(text.chars().next()?);
    let end = text.find(|c| Kind::of(c) != kind).unwrap_or(text.len());
    let (run, rest) = text.split_at(end);
    Some((kind, run, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_prefix_may_differ() {
        let time = Prefix::of("Jan  9 10:00:59 gpu0 llama[12]: ");
        for (line, behind) in [
            ("Feb 10 9:01:00 gpu0 llama[345]: ADD: 1 x 2 us", Some("ADD: 1 x 2 us")),
            ("Feb 10 9:01:00 gpu0 llama[345]:", Some("")),
            ("Feb 10 9:01:00 gpu0 llama[345]", None),
            ("ADD: 1 x 2 us", None),
            ("", None),
        ] {
            assert_eq!(time.behind(line), behind, "{line}");
        }
        // Without a time, words are the same.
        let container = Prefix::of("vulkan | ");
        assert_eq!(container.behind("vulkan | ADD"), Some("ADD"));
        assert_eq!(container.behind("other | ADD"), None);
        assert_eq!(Prefix::default().behind("ADD"), Some("ADD"));
    }
}
