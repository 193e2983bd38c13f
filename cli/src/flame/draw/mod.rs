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
use brickscope_analysis::stacks::{Class, Stacks};
use inferno::flamegraph::color::Color;

pub(crate) use self::diff::{Direction, diff_svg};
pub(crate) use self::page::Picture;
use self::page::{Drawn, Page};
use self::tree::Tree;
use super::captions::{Look, amount};
use crate::figures::fine_percent_of;

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

#[cfg(test)]
mod browser;
#[cfg(test)]
mod tests;
