//! The first screen of a run, in the terminal's size and colours.

use std::path::Path;

use anyhow::Result;
use brickscope::Profile;
use brickscope_analysis::view::{self, Size, Tone};
use ratatui::crossterm::terminal;

use crate::output::{self, GREEN, PLAIN, RED};

/// Prints what limits a run, its longest bricks and what to do next. `run` is its folder, if it was written.
pub(crate) fn print(profile: &Profile, run: Option<&Path>) -> Result<()> {
    let is_terminal = output::is_terminal();
    let run = run.map(|run| run.to_string_lossy());
    let summary = view::summary(profile, size(is_terminal), run.as_deref());
    if output::wants_colour() {
        let paint = |tone| match tone {
            Tone::Plain => "",
            Tone::Good => GREEN,
            Tone::Bad => RED,
        };
        return output::print_painted(&summary.painted(paint, PLAIN));
    }
    output::print(summary.to_string())
}

/// The size of the terminal less a line for the prompt; 80 × 23 for a file or a pipe.
fn size(is_terminal: bool) -> Size {
    let known =
        terminal::size().ok().filter(|&(columns, rows)| is_terminal && columns > 0 && rows > 0);
    known.map_or_else(Size::default, |(columns, rows)| Size {
        columns: usize::from(columns),
        rows: usize::from(rows).saturating_sub(1),
    })
}
