//! Findings as text.

use super::Finding;
use crate::output::{GREEN, PLAIN, RED};
use crate::text::{WIDTH, broken, printable_text};

/// The column where the text begins: after the mark and the longest name.
const INDENT: usize = 14;

pub(crate) fn text(findings: &[Finding], colour: bool) -> String {
    let mut text = String::new();
    for Finding { name, ok, found, fix } in findings {
        let mark = match (ok, colour) {
            (true, false) => "✓".to_owned(),
            (false, false) => "✗".to_owned(),
            (true, true) => format!("{GREEN}✓{PLAIN}"),
            (false, true) => format!("{RED}✗{PLAIN}"),
        };
        let name_width = INDENT - 2;
        text += &format!("{mark} {name:name_width$}{}\n", indented(&printable_text(found), INDENT));
        if let Some(fix) = fix {
            text += &format!("{:INDENT$}fix: {}\n", "", indented(&printable_text(fix), INDENT + 5));
        }
    }
    text
}

/// `what` in lines to the width, all but the first indented.
fn indented(what: &str, indent: usize) -> String {
    let words: Vec<&str> = what.split_whitespace().collect();
    broken(&words.join(" "), WIDTH - indent).join(&format!("\n{:indent$}", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> [Finding; 2] {
        let long = "the kernel's clock is refined-jiffies, ".repeat(3) + &"z".repeat(150);
        [
            Finding { name: "clock", ok: true, found: "os: steps of 1 ns".to_owned(), fix: None },
            Finding {
                name: "huge pages",
                ok: false,
                found: long,
                fix: Some("echo madvise".to_owned()),
            },
        ]
    }

    #[test]
    fn lines_are_aligned_and_fit_80_columns_whatever_was_found() {
        let text = text(&findings(), false);
        assert!(text.starts_with("✓ clock       os: steps of 1 ns\n✗ huge pages  the"), "{text}");
        assert!(text.ends_with("\n              fix: echo madvise\n"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH && line == line.trim_end(), "{line:?}");
        }
        assert_eq!(text.matches('z').count(), 150);
    }

    #[test]
    fn colour_is_on_the_mark_alone() {
        let (plain, colour) = (text(&findings(), false), text(&findings(), true));
        assert!(!plain.contains('\x1b'));
        let uncoloured = ["\x1b[32m", "\x1b[31m", "\x1b[0m"]
            .iter()
            .fold(colour, |text, code| text.replace(code, ""));
        assert_eq!(uncoloured, plain);
    }
}
