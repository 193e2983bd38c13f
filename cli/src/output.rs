//! The exits of the command: all that it prints passes one of these. `clippy.toml` and the lints in `main.rs`
//! forbid other ways out.
//!
//! Nothing reaches a terminal that controls it. And an exit code is a verdict, which must not depend on whether
//! somebody reads the text: a closed pipe is no error here; the text isn't printed, and the command goes on. All
//! other errors, such as a full disk, are errors.
#![expect(clippy::disallowed_methods, reason = "these are the ways that all others take")]

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Stdout, Write, stderr, stdout};
use std::iter::repeat;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use brickscope_analysis::text::{WIDTH, wrap};
use brickscope_analysis::view::{printable_text, screened, screened_lines};
use clap::ColorChoice;
use terminal_size::terminal_size_of;

/// Prints text, JSON or a page on standard output, without what could control a terminal.
pub(crate) fn print(text: impl Into<String>) -> Result<()> {
    let text = screened(text.into());
    to_reader(|out| out.write_all(text.as_bytes()))
}

/// Prints text with our own colours on standard output.
pub(crate) fn print_painted(text: &str) -> Result<()> {
    to_reader(|out| out.write_all(screened_but_paint(text).as_bytes()))
}

/// The same on standard error.
#[cfg(feature = "flamegraph")]
pub(crate) fn tell_painted(text: &str) {
    // There is nobody to tell that nobody listens.
    let _ = stderr().lock().write_all(screened_but_paint(text).as_bytes());
}

/// Prints text on standard error.
pub(crate) fn tell_text(text: impl Into<String>) {
    let _ = stderr().lock().write_all(screened(text.into()).as_bytes());
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

/// Prints the error that ends a command. On a terminal its lines fit; elsewhere a line stays one, for who searches it.
pub(crate) fn write_error(error: &anyhow::Error) {
    let text = note(&format!("brickscope: {error:#}"));
    let text = match stderr().is_terminal() {
        true => fitted(&text, columns_of_stderr()),
        false => text,
    };
    let _ = stderr().lock().write_all(text.as_bytes());
}

fn columns_of_stderr() -> usize {
    let known = terminal_size_of(stderr()).map(|(columns, _)| usize::from(columns.0));
    known.filter(|columns| *columns > 0).unwrap_or(WIDTH)
}

/// The path of a file in one line.
pub(crate) fn shown(path: &Path) -> String {
    printable_text(&path.to_string_lossy())
}

/// Gives standard output to `write`, for a file of another program, which has its own rules for characters; but a
/// terminal gets none that could control it. `write` may return early with the error of a closed pipe.
pub(crate) fn stream(write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>) -> Result<()> {
    if !is_terminal() {
        return to_reader(write);
    }
    to_reader(|out| {
        let mut out = Screen { out, line: Vec::new() };
        write(&mut out)?;
        out.flush()
    })
}

fn to_reader(write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(Reader { out: stdout(), is_gone: false });
    let written = write(&mut out).and_then(|()| out.flush());
    // Not by the kind of the error: `write` may have wrapped it, or have read from another pipe.
    if out.get_ref().is_gone {
        return Ok(());
    }
    written.context("standard output")
}

/// Whether a path given for a file means standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-" || path.as_os_str() == "/dev/stdout"
}

/// Who reads standard output.
struct Reader {
    out: Stdout,
    is_gone: bool,
}

impl Reader {
    fn noticed<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.is_gone |= result.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
        result
    }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.noticed(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.noticed(result)
    }
}

/// Writes lines without what could control a terminal.
struct Screen<W: Write> {
    out: W,
    /// What has no line break yet.
    line: Vec<u8>,
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|&byte| byte == b'\n') {
            let rest = self.line.split_off(end + 1);
            let lines = std::mem::replace(&mut self.line, rest);
            let lines = screened(String::from_utf8_lossy(&lines).into_owned());
            self.out.write_all(lines.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let rest = screened(String::from_utf8_lossy(&self.line).into_owned());
        self.line.clear();
        self.out.write_all(rest.as_bytes())?;
        self.out.flush()
    }
}

/// Standard error for the output of a program that is run.
#[cfg(feature = "flamegraph")]
pub(crate) fn stderr_of_child() -> std::process::Stdio {
    std::process::Stdio::from(stderr())
}

pub(crate) fn is_terminal() -> bool {
    stdout().is_terminal()
}

/// What `--color` says.
static COLOUR: OnceLock<ColorChoice> = OnceLock::new();

pub(crate) fn set_colour(choice: ColorChoice) {
    let _ = COLOUR.set(choice);
}

/// Whether to colour standard output.
pub(crate) fn wants_colour() -> bool {
    wants_colour_on(is_terminal())
}

/// Whether to colour what goes to a terminal, or not to one: as `--color` says, and without it only on a terminal, and not
/// against <https://no-color.org>.
pub(crate) fn wants_colour_on(is_terminal: bool) -> bool {
    let declined = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = || std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    match COLOUR.get() {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        _ => is_terminal && !declined() && !dumb(),
    }
}

#[cfg(feature = "flamegraph")]
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

/// Lines of at most so many columns, unless a word or a command in backticks, which is to be copied, is longer. All but the
/// first are indented, so that they belong to it.
fn fitted(text: &str, columns: usize) -> String {
    const INDENT: &str = "  ";
    let mut lines = String::new();
    for (nth, line) in text.lines().enumerate() {
        let words = line.trim_start_matches(' ');
        let before = &line[..line.len() - words.len()];
        let after = if nth == 0 { INDENT } else { before };
        let room = columns.saturating_sub(before.len().max(after.len()));
        let parts = wrap(&unbroken_commands(words), room.max(1));
        for (part, indent) in parts.iter().zip([before].into_iter().chain(repeat(after))) {
            lines.push_str(indent);
            lines.push_str(part);
            lines.push('\n');
        }
    }
    lines
}

/// The spaces in backticks as such that [`wrap`] breaks no line at.
fn unbroken_commands(line: &str) -> String {
    // Else it isn't clear what they are around.
    if !line.matches('`').count().is_multiple_of(2) {
        return line.to_owned();
    }
    let parts = line.split('`').enumerate().map(|(nth, part)| match nth % 2 {
        0 => part.to_owned(),
        _ => part.replace(' ', "\u{a0}"),
    });
    parts.collect::<Vec<_>>().join("`")
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
    fn an_error_on_a_terminal_has_lines_that_fit_and_whole_commands() {
        let text = note(
            "brickscope: trace.json has no passes to compare: `brickscope import --decode EVENT` says which they are\nand a \
             second line that is longer than the terminal is wide",
        );
        let shown = fitted(&text, 40);
        let expected = "\
brickscope: trace.json has no passes
  to compare:
  `brickscope import --decode EVENT`
  says which they are
  and a second line that is longer than
  the terminal is wide
";
        assert_eq!(shown, expected);
        assert_eq!(fitted(&text, 1_000), text);
        // One backtick in a name is no command.
        let text = "a file called ` and many more words\n";
        assert!(fitted(text, 20).lines().all(|line| line.len() <= 20));
        assert_eq!(fitted(text, 0).split_whitespace().count(), 8);
    }

    #[test]
    fn an_export_on_a_terminal_does_not_control_it() {
        let mut screen = Screen { out: Vec::new(), line: Vec::new() };
        // However it is cut.
        for part in "é\u{1b}[2J,\u{202e}\r\na\u{9b}".as_bytes().chunks(1) {
            screen.write_all(part).expect("in memory");
        }
        screen.flush().expect("in memory");
        let shown = String::from_utf8(screen.out).expect("UTF-8");
        assert_eq!(shown, "é\\u001b[2J,\\u202e\r\na\\u009b");
    }

    #[test]
    fn of_paint_only_our_own_is_left() {
        let text = format!("{GREEN}✓{PLAIN} a\u{1b}[2J\n{RED}✗{PLAIN}\u{1b}]0;t\u{7}");
        let shown = screened_but_paint(&text);
        assert_eq!(shown, format!("{GREEN}✓{PLAIN} a\\u001b[2J\n{RED}✗{PLAIN}\\u001b]0;t\\u0007"));
    }
}
