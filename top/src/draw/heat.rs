//! The heat map of layers by bricks: darker characters took more time.

use ratatui::style::Color;
use ratatui::text::{Line, Span};

use super::{Paint, absent, heading_of_layers, in_sight};
use crate::app::{App, Heat};
use crate::figures::{micros, percent_of, total_time};
use crate::text::{columns, cut, printable};

/// The map as a page of its own, with a cursor.
pub(super) fn lines(app: &App, paint: Paint, width: usize, room: usize) -> Vec<Line<'static>> {
    map(app, paint, width, room, true)
}

/// The map below another view, whose keys it doesn't take.
pub(super) fn below(app: &App, paint: Paint, width: usize, room: usize) -> Vec<Line<'static>> {
    map(app, paint, width, room, false)
}

fn map(app: &App, paint: Paint, width: usize, room: usize, has_cursor: bool) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(heading_of_layers(app, "layers by bricks"), paint.bold())];
    let heat = match app.heat() {
        Ok(heat) => heat,
        Err(why) => {
            lines.push(absent(&why));
            return lines;
        }
    };
    let most = heat.most();
    let (row, column) = match has_cursor {
        true => (
            app.selected.min(heat.layers.len() - 1),
            app.column.min(heat.bricks.len().saturating_sub(1)),
        ),
        false => (0, 0),
    };
    if has_cursor {
        lines.push(Line::raw(cut(&cell(&heat, row, column), width)));
    }
    // As wide as fits, at least a letter and a gap.
    let cells = width.saturating_sub(6) / heat.bricks.len().max(1);
    let cells = cells.clamp(2, if width >= 150 { 12 } else { 6 });
    let n_shown = (width.saturating_sub(6) / cells).min(heat.bricks.len());
    let first = (column + 1).saturating_sub(n_shown);
    let shown = first..(first + n_shown).min(heat.bricks.len());
    let mut header = vec![Span::raw("layer ")];
    header.extend(shown.clone().map(|brick| {
        let text = format!("{:<cells$}", letter(brick));
        Span::styled(
            text,
            if has_cursor && brick == column { paint.selected() } else { paint.bold() },
        )
    }));
    lines.push(Line::from(header));
    let names = legend(&heat, shown.clone(), paint, width);
    let left = room.saturating_sub(lines.len() + names.len());
    let rows = in_sight(heat.layers.iter().zip(&heat.cells).enumerate(), row, left.max(1));
    lines.extend(rows.map(|(at, (layer, of_layer))| {
        let mark = if has_cursor && at == row { '>' } else { ' ' };
        let name = layer.map_or("ends".to_owned(), |layer| layer.to_string());
        let mut spans = vec![Span::raw(format!("{mark}{name:>4} "))];
        for brick in shown.clone() {
            let ramp = paint.ramp();
            let level = of_layer.get(&brick).map(|&(ns, _)| level(ns, most, ramp.len()));
            // A space is a brick that didn't run.
            let letter = level.map_or(' ', |level| ramp[level]);
            let text = letter.to_string().repeat(cells - 1) + " ";
            let style = match level {
                Some(0..3) => paint.fg(Color::Blue),
                Some(3..6) => paint.fg(Color::Yellow),
                Some(_) => paint.fg(Color::Red),
                None => paint.fg(Color::Reset),
            };
            spans.push(if has_cursor && at == row && brick == column {
                Span::styled(text, paint.selected())
            } else {
                Span::styled(text, style)
            });
        }
        Line::from(spans)
    }));
    lines.extend(names);
    lines
}

/// A density, one less than `levels` at most, each half the next. On a linear scale the head of a model, which takes many
/// times as long as a brick of a layer, would leave the layers blank.
fn level(ns: u64, most: u64, levels: usize) -> usize {
    let halvings = (most.max(1) as f64 / ns.max(1) as f64).log2().round();
    (levels - 1).saturating_sub(halvings as usize)
}

/// A sentence about the cell under the cursor.
fn cell(heat: &Heat, row: usize, column: usize) -> String {
    let layer = heat.layers[row].map_or("outside of layers".to_owned(), |n| format!("layer {n}"));
    let Some(name) = heat.bricks.get(column) else { return format!(" {layer}") };
    let name = printable(name);
    let Some(&(ns, count)) = heat.cells[row].get(&column) else {
        return format!(" {layer}, {} {name}: it doesn't run there", letter(column));
    };
    format!(
        " {layer}, {} {name}: {} in {count} spans of {} µs, {} of all",
        letter(column),
        total_time(ns),
        micros(ns as f64 / count.max(1) as f64),
        percent_of(ns, heat.total())
    )
}

fn letter(brick: usize) -> char {
    ('A'..='Z').chain('a'..='z').nth(brick).unwrap_or('?')
}

/// The legend: the letters of bricks and the densities.
fn legend(
    heat: &Heat,
    shown: std::ops::Range<usize>,
    paint: Paint,
    width: usize,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for brick in shown {
        let entry = format!(" {} {}", letter(brick), cut(&printable(&heat.bricks[brick]), 18));
        if columns(&line) + columns(&entry) > width {
            lines.push(Line::raw(std::mem::take(&mut line)));
        }
        line.push_str(&entry);
    }
    lines.push(Line::raw(line));
    let density: String = paint.ramp().iter().collect();
    lines.push(Line::raw(format!(
        " {density}, each half the next; the last: {}",
        total_time(heat.most())
    )));
    lines
}
