//! Styles and characters: with and without colour, with blocks and braille or in ASCII.

use brickscope_profile::BrickCategory;
use ratatui::style::{Color, Modifier, Style};

use crate::look::Look;

/// What the eye reads as more, from the least to the most.
const ASCII: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// What a bar ends with: eighths of a column.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// The dots of a braille character from the lowest to the highest: of its left half, and of its right half.
const DOTS: [[u32; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];

/// How things are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    look: Look,
}

impl Paint {
    pub(super) const fn new(look: Look) -> Self {
        Self { look }
    }

    pub(super) const fn is_unicode(self) -> bool {
        self.look.is_unicode
    }

    pub(super) fn fg(self, colour: Color) -> Style {
        if self.look.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn category(self, category: Option<BrickCategory>) -> Style {
        self.fg(match category {
            Some(BrickCategory::Norm) => Color::Yellow,
            Some(BrickCategory::Attention) => Color::Cyan,
            Some(BrickCategory::Ffn) => Color::Green,
            Some(BrickCategory::Other) => Color::Magenta,
            None => Color::DarkGray,
        })
    }

    /// Characters from the least to the most.
    pub(super) const fn ramp(self) -> &'static [char] {
        if self.look.is_unicode { &BLOCKS } else { &ASCII }
    }

    /// A bar of `share` of `width`, padded to it. What is more than nothing can be seen.
    pub(super) fn bar(self, share: f64, width: usize) -> String {
        let share = within(share);
        let least = usize::from(share > 0.0);
        let bar = if self.look.is_unicode {
            let eighths = ((share * width as f64 * 8.0).round() as usize).max(least);
            "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
        } else {
            "#".repeat(((share * width as f64).round() as usize).max(least))
        };
        let blank = width.saturating_sub(bar.chars().count());
        bar + &" ".repeat(blank)
    }

    /// How full something is: a bar in which what is free can be seen.
    pub(super) fn gauge(self, share: f64, width: usize) -> String {
        let full = ((within(share) * width as f64).round() as usize).min(width);
        let [filled, free] = if self.look.is_unicode { ["█", "░"] } else { ["#", "."] };
        filled.repeat(full) + &free.repeat(width - full)
    }

    /// The points that a graph of so many columns has.
    pub(super) const fn points(self, columns: usize) -> usize {
        if self.look.is_unicode { 2 * columns } else { columns }
    }

    /// A graph from 0 to `most`, the topmost row first; the last point is at its right end. A point that isn't known is
    /// blank, and one that is more than 0 is not.
    pub(super) fn graph(
        self,
        points: &[Option<f64>],
        most: f64,
        columns: usize,
        rows: usize,
    ) -> Vec<String> {
        let n = self.points(columns);
        let shown = &points[points.len().saturating_sub(n)..];
        let steps = if self.look.is_unicode { 4 } else { ASCII.len() };
        let level = |point: &Option<f64>| match point {
            Some(value) if *value > 0.0 && most > 0.0 => {
                ((within(value / most) * (rows * steps) as f64).ceil() as usize).max(1)
            }
            _ => 0,
        };
        let mut levels = vec![0; n - shown.len()];
        levels.extend(shown.iter().map(level));
        let row = |below: usize| -> String {
            let here = |level: usize| level.saturating_sub(below).min(steps);
            if !self.look.is_unicode {
                let mark = |&level: &usize| match here(level) {
                    0 => ' ',
                    step => ASCII[step - 1],
                };
                return levels.iter().map(mark).collect();
            }
            let braille = |pair: &[usize]| {
                let dots = |(half, &level): (&[u32; 4], &usize)| -> u32 {
                    half.iter().take(here(level)).sum()
                };
                match DOTS.iter().zip(pair).map(dots).sum::<u32>() {
                    0 => ' ',
                    dots => char::from_u32(0x2800 + dots).unwrap_or(' '),
                }
            };
            levels.chunks(2).map(braille).collect()
        };
        (0..rows).rev().map(|nth| row(nth * steps)).collect()
    }
}

fn within(share: f64) -> f64 {
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNICODE: Paint = Paint::new(Look { has_colour: false, is_unicode: true });
    const PLAIN: Paint = Paint::new(Look::plain());

    #[test]
    fn bars_have_eighths_of_a_column_where_there_are_characters_for_them() {
        assert_eq!(UNICODE.bar(0.5, 3), "█▌ ");
        assert_eq!(UNICODE.bar(1e-9, 3), "▏  ");
        assert_eq!(UNICODE.bar(0.0, 3), "   ");
        assert_eq!(UNICODE.bar(f64::NAN, 2), "  ");
        assert_eq!(PLAIN.bar(0.5, 4), "##  ");
        assert_eq!(PLAIN.bar(1e-9, 4), "#   ");
        assert_eq!(UNICODE.gauge(0.5, 4), "██░░");
        assert_eq!(PLAIN.gauge(2.0, 4), "####");
    }

    #[test]
    fn a_graph_ends_with_the_newest_point_and_leaves_out_what_is_unknown() {
        let points = [Some(9.0), Some(1.0), None, Some(4.0), Some(2.0)];
        // The first point is older than what fits.
        assert_eq!(UNICODE.graph(&points, 4.0, 2, 1), ["⡀⣧"]);
        assert_eq!(UNICODE.graph(&points[3..], 4.0, 2, 2), [" ⡇", " ⣿"]);
        assert_eq!(PLAIN.graph(&points[1..], 4.0, 5, 1), [" - @+"]);
        assert_eq!(PLAIN.graph(&[], 0.0, 2, 1), ["  "]);
    }
}
