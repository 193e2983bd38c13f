//! The difference between two sets of stacks, as a flamegraph.

use anyhow::Result;
use brickscope_analysis::stacks::Stacks;

use super::colours;
use super::page::{Drawn, Page};
use super::tree::{Block, Tree};
use crate::figures::{fine_percent_of, points};
use crate::flame::captions::{Look, amount};

/// The side whose widths are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The widths of after.
    Forward,
    /// The widths of before, which show what has vanished.
    Reverse,
}

/// The flamegraph of one side, coloured by the change of each frame's share: red if it grew, blue if it
/// shrank, in both directions. Shares are of each side's own total, so that a longer run isn't all red,
/// and include the frames above. Colours don't account for chance: [`super::super::diff`] judges shares.
///
/// # Errors
///
/// If a side has no stack of any weight, or the width is below 400 pixels.
pub(crate) fn diff_svg(
    before: &Stacks,
    after: &Stacks,
    look: &Look,
    direction: Direction,
) -> Result<String> {
    let (side, unit) = match direction {
        Direction::Forward => (1, after.unit),
        Direction::Reverse => (0, before.unit),
    };
    let tree = Tree::of(&[before, after])?;
    let layouts = [tree.layout(0), tree.layout(1)];
    let layout = &layouts[side];
    let totals = layout.blocks[0].weights;
    let share = |block: &Block, side: usize| block.weights[side] as f64 / totals[side] as f64;
    let change = |block: &Block| share(block, 1) - share(block, 0);
    // Over both directions, so that a colour means the same in each.
    let blocks = layouts.iter().flat_map(|layout| &layout.blocks);
    let most = blocks.map(|block| change(block).abs()).fold(0.0, f64::max);
    let frames = layout.blocks.iter().map(|block| {
        let [was, is] = [0, 1].map(|side| fine_percent_of(block.weights[side], totals[side]));
        let how = match block.weights {
            [0, _] => "new".to_owned(),
            [_, 0] => "gone".to_owned(),
            _ => format!("{} points", points(change(block))),
        };
        Drawn {
            depth: block.depth,
            start: block.start,
            weight: block.weights[side],
            colour: colours::of_change(change(block), most),
            name: block.frame.map_or("all", |frame| &frame.name).to_owned(),
            figures: format!(
                "{}, before {was}, after {is}, {how}",
                amount(block.weights[side], unit)
            ),
        }
    });
    let mut lines = look.subtitle.clone();
    lines.push(match direction {
        Direction::Forward => {
            "widths are those of after; vanished frames are in the reverse flamegraph".into()
        }
        Direction::Reverse => {
            "widths are those of before; new frames are in the forward flamegraph".into()
        }
    });
    let full =
        format!("share of the whole, at most {} points", points(most).trim_start_matches('+'));
    let legend = [
        (colours::of_change(1.0, 1.0), "grew".to_owned()),
        (colours::of_change(-1.0, 1.0), format!("shrank ({full})")),
    ];
    let page = Page {
        title: &look.title,
        lines: &lines,
        legend: &legend,
        width: look.width,
        unit,
        total: totals[side],
        frames: frames.collect(),
        left_out: layout.left_out,
    };
    Ok(page.svg()?.text)
}
