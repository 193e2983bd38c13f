//! The first screen of a run, in the terminal's size and colours.

use std::path::Path;

use anyhow::Result;
use brickscope::Profile;
use brickscope_analysis::view::{self, Size, Tone, quoted};
use terminal_size::terminal_size;

use crate::output::{self, GREEN, PLAIN, RED};
use crate::text::cut;

/// Prints what limits a run, its longest bricks and what to do next. `run` is its folder, if it was written; `last` is
/// a line to print after it.
pub(crate) fn print(profile: &Profile, run: Option<&Path>, last: Option<&str>) -> Result<()> {
    let (summary, last) = made(profile, run, last, size());
    if output::wants_colour() {
        let paint = |tone| match tone {
            Tone::Plain => "",
            Tone::Good => GREEN,
            Tone::Bad => RED,
        };
        return output::print_painted(&(summary.painted(paint, PLAIN) + &last));
    }
    output::print(summary.to_string() + &last)
}

/// The same as text, for a file or a pipe.
pub(crate) fn text(profile: &Profile, run: Option<&Path>, last: Option<&str>) -> String {
    let (summary, last) = made(profile, run, last, Size::default());
    summary.to_string() + &last
}

fn made(
    profile: &Profile,
    run: Option<&Path>,
    last: Option<&str>,
    mut size: Size,
) -> (view::Summary, String) {
    size.rows = size.rows.saturating_sub(usize::from(last.is_some()));
    let run = run.map(|run| quoted(&run.to_string_lossy()));
    let summary = view::summary(profile, size, run.as_deref());
    let last = last.map(|last| cut(last, size.columns) + "\n").unwrap_or_default();
    (summary, last)
}

/// The size of the terminal less a line for the prompt; 80 × 23 for a file or a pipe.
fn size() -> Size {
    let known = terminal_size().filter(|(columns, rows)| columns.0 > 0 && rows.0 > 0);
    let known = known.filter(|_| output::is_terminal());
    known.map_or_else(Size::default, |(columns, rows)| Size {
        columns: usize::from(columns.0),
        rows: usize::from(rows.0).saturating_sub(1),
    })
}
