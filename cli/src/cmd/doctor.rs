//! `brickscope doctor`: shows what this machine offers to a profiler, and how to enable the rest.

use anyhow::Result;

use crate::doctor::{self, Finding};
use crate::output::{self, GREEN, PLAIN, RED};
use crate::text::printable_text;

/// Show what a profiler can measure on this machine, and how to enable the rest.
///
/// Each line is a capability: clock, counters, SIMD, limits, load by other processes, GPUs. A cross
/// comes with a fix. The exit code is 0 even if there are crosses.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope doctor\n  brickscope doctor --json | jq '.[] | select(.ok | not)'"
)]
pub(crate) struct DoctorArgs {
    /// Print a JSON array of {name, ok, found, fix}.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let findings = doctor::examine();
    if args.json {
        return output::print(serde_json::to_string_pretty(&findings)? + "\n");
    }
    output::print_painted(&text(&findings, output::wants_colour()))
}

const WIDTH: usize = 80;
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
        text += &format!("{mark} {name:name_width$}{}\n", wrap(&printable_text(found), INDENT));
        if let Some(fix) = fix {
            text += &format!("{:INDENT$}fix: {}\n", "", wrap(&printable_text(fix), INDENT + 5));
        }
    }
    text
}

/// Wraps a text to the width, and indents all lines but the first.
fn wrap(text: &str, indent: usize) -> String {
    let room = WIDTH - indent;
    let mut wrapped = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + word.len() <= room {
            wrapped.push(' ');
            used += 1;
        } else if used > 0 {
            new_line(&mut wrapped, indent);
            used = 0;
        }
        // Only a word that is longer than a line is broken.
        while used == 0 && word.len() > room {
            wrapped.extend(word.drain(..room));
            new_line(&mut wrapped, indent);
        }
        used += word.len();
        wrapped.extend(word);
    }
    wrapped
}

fn new_line(text: &mut String, indent: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n(' ', indent));
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
