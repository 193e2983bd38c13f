//! Flamegraphs as SVG files that can be zoomed and searched in a browser.
//!
//! The width of a frame is its share of the total, its height the depth of the stack. Names are
//! unchanged, except for unprintable characters, which are escaped: a newline is `\n`. Frames of less
//! than 0.01 % of the total are left out. The flamegraph says how many these are, how many names are
//! shortened or don't fit, and how much time that is.

mod colours;
mod diff;
mod page;
mod tree;

use anyhow::Result;
use brickscope_analysis::stacks::{Class, Stacks, Unit};
use inferno::flamegraph::color::Color;

pub(crate) use self::diff::{Direction, diff_svg};
pub(crate) use self::page::Picture;
use self::page::{Drawn, Page};
use self::tree::Tree;
use super::summary::{Frames, Hidden};
use crate::figures::fine_percent_of;
use crate::text::count;

/// The text of a flamegraph besides its frames, and its width.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Look {
    pub(crate) title: String,
    /// The lines below the title: model, workload, machine, source, warnings. Long lines are wrapped.
    pub(crate) subtitle: Vec<String>,
    /// In pixels; `None` is as wide as the window.
    pub(crate) width: Option<u32>,
}

/// The flamegraph of `stacks`, coloured by class. The same stacks give the same bytes.
///
/// # Errors
///
/// If no stack has a weight, or the width is below 400 pixels.
pub(crate) fn svg(stacks: &Stacks, look: &Look) -> Result<Picture> {
    let layout = Tree::of(&[stacks])?.layout(0);
    let total = layout.blocks[0].weights[0];
    let frames = layout.blocks.iter().map(|block| {
        let weight = block.weights[0];
        Drawn {
            depth: block.depth,
            start: block.start,
            weight,
            colour: colours::of_frame(block.frame),
            name: block.frame.map_or("all", |frame| &frame.name).to_owned(),
            figures: format!("{}, {}", amount(weight, stacks.unit), fine_percent_of(weight, total)),
        }
    });
    let page = Page {
        title: &look.title,
        lines: &look.subtitle,
        legend: &legend(stacks, total),
        width: look.width,
        unit: stacks.unit,
        total,
        frames: frames.collect(),
        left_out: layout.left_out,
    };
    page.svg()
}

/// The classes of stacks, each with its share.
fn legend(stacks: &Stacks, total: u64) -> Vec<(Color, String)> {
    let sums = stacks.by_class();
    let of = |class: Class| sums.iter().find(|sum| sum.class == class).map_or(0, |sum| sum.weight);
    let classes = Class::ALL.into_iter().map(|class| (class, of(class)));
    classes
        .filter(|&(class, weight)| weight > 0 || class == Class::Other)
        .map(|(class, weight)| {
            (
                colours::of_class(class),
                format!("{} {}", class.name(), fine_percent_of(weight, total)),
            )
        })
        .collect()
}

/// What a picture doesn't show in full, a sentence each.
pub(crate) fn of_hidden(hidden: &Hidden, unit: Unit, total: u64) -> Vec<String> {
    let Hidden { width, left_out, unnamed, shortened } = *hidden;
    let mut lines = Vec::new();
    let mut say = |of: Frames, before: &str, after: &str, advice: &str| {
        if of.frames > 0 {
            let (frames, held) = (count(of.frames, "frame"), amount(of.weight, unit));
            let share = fine_percent_of(of.weight, total);
            lines.push(format!("{before}: {frames}{after}, together {held}, {share}{advice}"));
        }
    };
    let advice = "; zoom in, or see the tooltip";
    say(left_out, "left out", " narrower than 0.01 %", "");
    say(unnamed, &format!("without its name at {width} pixels"), "", advice);
    say(shortened, &format!("with a shortened name at {width} pixels"), "", advice);
    lines
}

/// A weight with its unit.
pub(crate) fn amount(weight: u64, unit: Unit) -> String {
    let ns = weight as f64;
    match unit {
        Unit::Samples if weight == 1 => "1 sample".to_owned(),
        Unit::Samples => format!("{weight} samples"),
        Unit::Nanoseconds if weight < 1_000 => format!("{weight} ns"),
        Unit::Nanoseconds if weight < 1_000_000 => format!("{:.3} µs", ns / 1e3),
        Unit::Nanoseconds if weight < 10_000_000_000 => format!("{:.3} ms", ns / 1e6),
        Unit::Nanoseconds => format!("{:.3} s", ns / 1e9),
    }
}

#[cfg(test)]
mod browser;
#[cfg(test)]
mod tests;
