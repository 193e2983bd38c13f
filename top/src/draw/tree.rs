//! The tree of layers, bricks and kernels.

use ratatui::text::Line;

use super::{Paint, absent, heading_of_layers, in_sight};
use crate::app::{App, Branch};
use crate::figures::{percent_of, total_time};
use crate::text::{cut, padded, printable};

pub(super) fn lines(app: &App, paint: Paint, width: usize, room: usize) -> Vec<Line<'static>> {
    let mut lines =
        vec![Line::styled(heading_of_layers(app, "layers, bricks, kernels"), paint.bold())];
    let total = match app.heat() {
        Ok(heat) => heat.total(),
        Err(why) => {
            lines.push(absent(&why));
            return lines;
        }
    };
    let branches = app.branches();
    let selected = app.selected.min(branches.len().saturating_sub(1));
    let left = room.saturating_sub(2).max(1);
    lines.extend(in_sight(branches.iter().enumerate(), selected, left).map(|(at, branch)| {
        let text = cut(&line(branch, at == selected, total), width);
        if at == selected { Line::styled(text, paint.selected()) } else { Line::raw(text) }
    }));
    lines.push(Line::raw(" Kernels are summed over all layers of their brick."));
    lines
}

fn line(branch: &Branch, is_selected: bool, total: u64) -> String {
    let mark = if is_selected { '>' } else { ' ' };
    let fold = match branch.place {
        Some((_, true)) => '-',
        Some((_, false)) => '+',
        None => ' ',
    };
    let indent = "  ".repeat(branch.depth);
    let name = padded(&cut(&printable(&branch.name), 40 - indent.len()), 40 - indent.len());
    let count = branch.count;
    // Its total differs from that of the lines around it.
    let share =
        if branch.is_of_all_layers { "all ".to_owned() } else { percent_of(branch.ns, total) };
    format!("{mark}{fold} {indent}{name} {share:>7} {:>12} {count:>9}", total_time(branch.ns))
}
