//! Patterns that choose events of a trace: which of them are passes, and which brick each of them is.
//!
//! ```text
//! ProfilerStep#*                 `*` stands for any characters
//! forward[3]  forward[3..]       the third event with this name; from the third on
//! execute_model[args.kind=decode]  an argument of the event
//! ```

/// Whether `text` is `pattern`, in which each `*` stands for any number of any characters.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, others)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let (parts, last) = others.rsplit_once('*').unwrap_or(("", others));
    // Each kernel is held against hundreds of patterns, most of which are none of it.
    if !rest.ends_with(last) {
        return false;
    }
    // The earliest place for each part leaves the most room for those after it.
    for part in parts.split('*') {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A pattern for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    name: String,
    /// An argument and what it must be.
    argument: Option<(String, String)>,
    /// The first and the last event that it chooses, of those that it matches, counted from 1.
    pub(super) nth: Option<(u64, u64)>,
}

impl Pattern {
    /// Names may have brackets of their own, so only `[args.KEY=VALUE]`, `[N]`, `[N..]` and `[N..M]` at the end are
    /// conditions.
    pub(super) fn parse(text: &str) -> Self {
        let (mut name, mut argument, mut nth) = (text, None, None);
        while let Some((front, inside)) =
            name.strip_suffix(']').and_then(|name| name.rsplit_once('['))
        {
            let key_value = inside.strip_prefix("args.").and_then(|inside| inside.split_once('='));
            if let (Some((key, value)), None) = (key_value, &argument) {
                argument = Some((key.to_owned(), value.to_owned()));
            } else if let (Some(found), None) = (range(inside), nth) {
                nth = Some(found);
            } else {
                break;
            }
            name = front;
        }
        Self { name: name.to_owned(), argument, nth }
    }

    /// Whether it chooses an event, apart from [`nth`](Self::nth). `argument` looks up an argument.
    pub(super) fn chooses(&self, name: &str, argument: impl Fn(&str) -> Option<String>) -> bool {
        matches(&self.name, name)
            && self
                .argument
                .as_ref()
                .is_none_or(|(key, value)| argument(key).is_some_and(|is| matches(value, &is)))
    }
}

/// `3`, `3..` and `3..5`, of which both ends are meant.
fn range(text: &str) -> Option<(u64, u64)> {
    let number = |text: &str| {
        let are_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|&number: &u64| are_digits && number > 0)
    };
    match text.split_once("..") {
        None => number(text).map(|only| (only, only)),
        Some((from, "")) => Some((number(from)?, u64::MAX)),
        Some((from, to)) => Some((number(from)?, number(to)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, text, is_match) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*a", "a", false),
            ("*b*", "abc", true),
            ("*ab*ab*", "abab", true),
            ("*ab*ab*", "aba", false),
            ("a**c", "abc", true),
            ("ProfilerStep#*", "ProfilerStep#12", true),
            ("*é*", "né", true),
            ("abc", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn conditions_stand_in_brackets_at_the_end() {
        let parsed = |text: &str| {
            let Pattern { name, argument, nth } = Pattern::parse(text);
            (name, argument.map(|(key, value)| format!("{key} is {value}")), nth)
        };
        let name = |name: &str| name.to_owned();
        assert_eq!(parsed("step[DECODE bs=1]"), (name("step[DECODE bs=1]"), None, None));
        assert_eq!(parsed("f[2]"), (name("f"), None, Some((2, 2))));
        assert_eq!(parsed("f[2..]"), (name("f"), None, Some((2, u64::MAX))));
        let both = (name("f"), Some("kind is decode".to_owned()), Some((1, 3)));
        assert_eq!(parsed("f[args.kind=decode][1..3]"), both);
        assert_eq!(parsed("f[0]"), (name("f[0]"), None, None));
        assert_eq!(parsed("f[]"), (name("f[]"), None, None));

        let pattern = Pattern::parse("f*[args.kind=de*]");
        let argument = |key: &str| (key == "kind").then(|| "decode".to_owned());
        assert!(pattern.chooses("forward", argument));
        assert!(!pattern.chooses("forward", |_| None));
        assert!(!pattern.chooses("backward", argument));
    }
}
