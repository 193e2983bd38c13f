//! The lines of the screen, in pieces of one colour each.

use std::fmt::{self, Write};

use brickscope_profile::text::screened_lines;

use crate::text::wrap;

/// What a piece of a line says, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tone {
    /// Nothing in particular.
    Plain,
    /// At its limit.
    Good,
    /// Far from it, or doubtful.
    Bad,
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The text, without line breaks.
    pub text: String,
    /// What it says.
    pub tone: Tone,
}

/// The first screen of a run, see [`summary()`](crate::view::summary()). Its [`Display`](fmt::Display) is the text without
/// colours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// The lines.
    pub lines: Vec<Vec<Piece>>,
}

impl Summary {
    /// The text, each piece after what `paint` gives for its tone; `plain` ends a colour.
    #[must_use]
    pub fn painted(&self, paint: impl Fn(Tone) -> &'static str, plain: &str) -> String {
        let mut text = String::new();
        for line in &self.lines {
            for piece in line {
                let colour = paint(piece.tone);
                let plain = if colour.is_empty() { "" } else { plain };
                let _ = write!(text, "{colour}{}{plain}", piece.text);
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }

    pub(super) fn line(&mut self, text: impl Into<String>) {
        self.toned(text, Tone::Plain);
    }

    pub(super) fn toned(&mut self, text: impl Into<String>, tone: Tone) {
        self.lines.push(vec![Piece { text: screened_lines(text.into()), tone }]);
    }

    /// `text` in as many lines as it needs; lines but the first are indented.
    pub(super) fn wrapped(&mut self, text: &str, columns: usize, indent: usize, tone: Tone) {
        for (i, line) in wrap(text, columns - indent).into_iter().enumerate() {
            let before = if i == 0 { 0 } else { indent };
            self.toned(format!("{:before$}{line}", ""), tone);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.painted(|_| "", ""))
    }
}
