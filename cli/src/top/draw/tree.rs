//! Layers, the bricks in them, the kernels in these.

use ratatui::text::Line;

use super::{Paint, absent, heading, in_sight, micros, percent, seconds};
use crate::names::{cut, padded, printable};
use crate::top::app::{App, Branch, Seen};

pub(super) fn lines(
    app: &App,
    seen: &Seen,
    paint: Paint,
    width: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(heading(app, "layers, bricks, kernels"), paint.bold())];
    if let Err(why) = app.heat() {
        lines.push(absent(&why));
        return lines;
    }
    let wall = app.shown(seen).ok().and_then(|p| p.phase(app.phase)).map_or(0, |p| p.wall_ns);
    let branches = app.branches();
    let selected = app.selected.min(branches.len().saturating_sub(1));
    let rows = branches.iter().enumerate().map(|(at, branch)| {
        let text = cut(&line(branch, at == selected, wall), width);
        if at == selected { Line::styled(text, paint.selected()) } else { Line::raw(text) }
    });
    let left = room.saturating_sub(3).max(1);
    lines.extend(in_sight(rows.collect(), selected, left));
    if let Some(total) = app.shown(seen).ok().and_then(|profile| profile.phase(app.phase)) {
        let name = padded("unattributed", 40);
        lines.push(Line::raw(format!(
            "   {name} {:>7} {:>12}",
            percent(total.unattributed_ns, wall),
            seconds(total.unattributed_ns)
        )));
    }
    let serial = seen.example.as_ref().and_then(|example| example.passes.first());
    lines.push(Line::raw(match serial {
        Some(pass) => format!(" kernels: their times in decode pass {} alone", pass.serial),
        None => " kernels: absent, the engine kept no decode pass span by span".to_owned(),
    }));
    lines
}

fn line(branch: &Branch, is_selected: bool, wall: u64) -> String {
    let mark = if is_selected { '>' } else { ' ' };
    let fold = match branch.place {
        Some((_, true)) => '-',
        Some((_, false)) => '+',
        None => ' ',
    };
    let indent = "  ".repeat(branch.depth);
    let name = padded(&cut(&printable(&branch.name), 40 - indent.len()), 40 - indent.len());
    let count = branch.count;
    if branch.is_of_one_pass {
        let us = micros(branch.ns as f64);
        return format!("{mark}{fold} {indent}{name} {:>7} {us:>9} µs ×{count}", "");
    }
    let share = percent(branch.ns, wall);
    format!("{mark}{fold} {indent}{name} {share:>7} {:>12} {count:>9}", seconds(branch.ns))
}
