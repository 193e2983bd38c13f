//! The exits of the command: all that it prints passes one of these, so that nothing reaches a terminal that
//! controls it. `clippy.toml` and the lints in `main.rs` forbid other ways out.
#![expect(clippy::disallowed_methods, reason = "these are the ways that all others take")]

use std::fmt;
use std::io::{BufWriter, IsTerminal, Stdout, Write, stderr, stdout};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use brickscope_analysis::view::{printable_text, screened, screened_lines};

/// Prints text, JSON or a page on standard output, without what could control a terminal.
pub(crate) fn print(text: impl Into<String>) -> Result<()> {
    stdout().lock().write_all(screened(text.into()).as_bytes()).context("standard output")
}

/// Prints text with our own colours on standard output.
pub(crate) fn print_painted(text: &str) -> Result<()> {
    stdout().lock().write_all(screened_but_paint(text).as_bytes()).context("standard output")
}

/// The same on standard error.
pub(crate) fn tell_painted(text: &str) {
    // There is nobody to tell that nobody listens.
    let _ = stderr().lock().write_all(screened_but_paint(text).as_bytes());
}

/// Prints a note on standard error, see [`tell!`].
pub(crate) fn write_note(what: fmt::Arguments<'_>) {
    let _ = stderr().lock().write_all(note(&what.to_string()).as_bytes());
}

/// Prints a note, a warning or an error on standard error, as `eprintln!` does. Lines but the first are indented, so
/// that a line break in the name of a file doesn't make a note of its own.
macro_rules! tell {
    ($($what:tt)*) => { $crate::output::write_note(format_args!($($what)*)) };
}

/// The path of a file in one line.
pub(crate) fn shown(path: &Path) -> String {
    printable_text(&path.to_string_lossy())
}

/// Standard output for a file of another program, which has its own rules for characters.
pub(crate) fn file() -> BufWriter<Stdout> {
    BufWriter::new(stdout())
}

/// Standard error for the output of a program that is run.
pub(crate) fn stderr_of_child() -> Stdio {
    Stdio::from(stderr())
}

pub(crate) fn is_terminal() -> bool {
    stdout().is_terminal()
}

pub(crate) fn is_stderr_terminal() -> bool {
    stderr().is_terminal()
}

/// Green, red, and neither.
pub(crate) const GREEN: &str = "\x1b[32m";
pub(crate) const RED: &str = "\x1b[31m";
pub(crate) const PLAIN: &str = "\x1b[0m";

/// `text` without what could control a terminal, but with our colours.
fn screened_but_paint(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let paint_in = |text: &str| {
        [GREEN, RED, PLAIN].into_iter().filter_map(|paint| Some((text.find(paint)?, paint))).min()
    };
    while let Some((at, paint)) = paint_in(rest) {
        shown.push_str(&screened(rest[..at].to_owned()));
        shown.push_str(paint);
        rest = &rest[at + paint.len()..];
    }
    shown + &screened(rest.to_owned())
}

fn note(text: &str) -> String {
    let text = text.trim_end_matches('\n').replace('\t', "\\t").replace('\n', "\n  ");
    screened_lines(text) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_one_note_whatever_a_file_is_called() {
        assert_eq!(
            note("note: x\nbrickscope: all is well\u{1b}[2J\u{202e}\u{9b}1m\r"),
            "note: x\n  brickscope: all is well\\u001b[2J\\u202e\\u009b1m\\u000d\n"
        );
        assert!(note(&"x".repeat(1 << 20)).len() < 7_000);
    }

    #[test]
    fn of_paint_only_our_own_is_left() {
        let text = format!("{GREEN}✓{PLAIN} a\u{1b}[2J\n{RED}✗{PLAIN}\u{1b}]0;t\u{7}");
        let shown = screened_but_paint(&text);
        assert_eq!(shown, format!("{GREEN}✓{PLAIN} a\\u001b[2J\n{RED}✗{PLAIN}\\u001b]0;t\\u0007"));
    }
}
