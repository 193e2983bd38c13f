//! Standard output and standard error, whose readers may go away at any time.
//!
//! An exit code is a verdict, and must not depend on whether somebody reads the text. So a closed pipe is
//! no error here: the text isn't printed, and the command goes on. All other errors, such as a full disk,
//! are errors. `print!` and `eprintln!` would panic; clippy refuses them in this program.

use std::fmt::Arguments;
use std::io::{self, BufWriter, ErrorKind, Stdout, Write, stderr, stdout};
use std::path::Path;

use anyhow::{Context, Result};

/// Prints a text on standard output.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<()> {
    stream(|out| out.write_all(text.as_ref()))
}

/// Gives standard output to `write`, which may return early with the error of a closed pipe.
pub(crate) fn stream(write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>) -> Result<()> {
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

/// Prints a line on standard error, if it can be printed: nothing depends on it.
macro_rules! tell {
    ($($text:tt)*) => { $crate::output::tell_line(format_args!($($text)*)) };
}
pub(crate) use tell;

pub(crate) fn tell_line(text: Arguments<'_>) {
    // In one piece, so that the lines of several processes don't mix.
    let _ = stderr().lock().write_all(format!("{text}\n").as_bytes());
}
