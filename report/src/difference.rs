//! Layers by bricks of two runs: how much longer a token takes in each cell.

use std::collections::{BTreeMap, BTreeSet};

use brickscope_profile::{Phase, Profile};

use super::figure::{Unit, div, sub};
use super::html::{Table, note, reason, said_in_parts};
use super::layers::{Cells, layer_heading};
use super::source::{Source, heading};

/// The most columns and rows. Further bricks and layers are left out, with a note.
const MOST_BRICKS: usize = 16;
const MOST_LAYERS: usize = 130;

/// The number of shades between no difference and the largest.
const SHADES: f64 = 12.0;

pub(super) fn section(sources: [&Source<'_>; 2]) -> String {
    for (source, letter) in sources.iter().zip(["A", "B"]) {
        if source.profile.layers.is_empty() && source.profile.dropped.spans > 0 {
            return reason(&format!(
                "Some spans of {letter} did not fit the log, so the time of its bricks in each layer is incomplete."
            ));
        }
    }
    let rows = sources.map(|source| source.profile.by_layer());
    let mut html = String::new();
    for phase in Phase::SHOWN {
        let of = |side: usize| Cells::new(sources[side], &rows[side], phase);
        if let (Some(a), Some(b)) = (of(0), of(1)) {
            html.push_str(&map(phase, sources, [&a, &b]));
        }
    }
    if html.is_empty() {
        return reason("No phase has bricks by layer on both sides.");
    }
    html + &note(
        "Time of a token in B minus that in A, each without inner bricks: + is longer in B. Darker cells are closer \
        to the largest difference in the table. <em>only A</em>, <em>only B</em>: the other side has no such brick \
        there. Differences between single runs aren’t verdicts.",
    )
}

fn map(phase: Phase, sources: [&Source<'_>; 2], cells: [&Cells<'_>; 2]) -> String {
    let tokens = |profile: &Profile| profile.phase(phase).map_or(0, |total| total.tokens);
    let tokens = sources.map(|source| tokens(source.profile));
    if tokens.contains(&0) {
        return reason(&format!("{phase}: a run doesn’t state its number of tokens."));
    }
    let each = |ns: u64, side: usize| ns as f64 / tokens[side] as f64;
    let from = |side: usize, from| div(from, sources[side].of_phase(phase, "tokens"));
    let apart = |a: u64, b: u64| each(b, 1) - each(a, 0);
    // Sorted by their time on both sides together.
    let mut by_brick: BTreeMap<&str, f64> = BTreeMap::new();
    for (side, cells) in cells.iter().enumerate() {
        for (name, ns) in cells.bricks() {
            *by_brick.entry(name).or_default() += each(ns, side);
        }
    }
    let mut bricks: Vec<(&str, f64)> = by_brick.into_iter().collect();
    // A stable sort keeps equal times in the order of names.
    bricks.sort_by(|x, y| y.1.total_cmp(&x.1));
    let shown = &bricks[..bricks.len().min(MOST_BRICKS)];
    let layers: BTreeSet<Option<u16>> =
        cells[0].layers().union(&cells[1].layers()).copied().collect();
    let mut most = 0.0_f64;
    for layer in &layers {
        for (name, _) in shown {
            if let (Some(a), Some(b)) = (cells[0].ns(*layer, name), cells[1].ns(*layer, name)) {
                most = most.max(apart(a, b).abs());
            }
        }
    }
    let unit = Unit::of(most as u64);
    let mut columns = vec!["Layer".to_owned()];
    columns.extend(shown.iter().map(|(name, _)| format!("#{}", said_in_parts(name))));
    columns.push("#all".to_owned());
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let caption = format!(
        "{}: B − A of each brick in each layer, {} per token",
        heading(Some(phase)),
        unit.name
    );
    let mut table = Table::of_class("heat apart", &caption, &columns);
    for layer in layers.iter().take(MOST_LAYERS) {
        let mut row = String::from("<tr><th scope=\"row\">");
        let side = usize::from(!cells[0].layers().contains(layer));
        row.push_str(&layer_heading(sources[side], *layer));
        row.push_str("</th>");
        for (name, _) in shown {
            match (cells[0].ns(*layer, name), cells[1].ns(*layer, name)) {
                (Some(a), Some(b)) => {
                    let apart = apart(a, b);
                    let shade =
                        if most > 0.0 { (SHADES * apart.abs() / most).round() } else { 0.0 };
                    let way = if apart > 0.0 { "s" } else { "f" };
                    let place = sub(
                        from(1, cells[1].from(*layer, &[name])),
                        from(0, cells[0].from(*layer, &[name])),
                    );
                    let shown = unit.signed(apart, place);
                    row.push_str(&format!("<td class=\"n {way}{shade}\">{shown}</td>"));
                }
                (Some(_), None) => row.push_str("<td class=\"n none\">only A</td>"),
                (None, Some(_)) => row.push_str("<td class=\"n none\">only B</td>"),
                (None, None) => row.push_str("<td class=\"n none\">·</td>"),
            }
        }
        let both = cells.iter().all(|cells| cells.layers().contains(layer));
        let all = if both {
            let ((a, from_a), (b, from_b)) = (cells[0].all(*layer), cells[1].all(*layer));
            unit.signed(apart(a, b), sub(from(1, from_b), from(0, from_a)))
        } else {
            "·".to_owned()
        };
        row.push_str(&format!("<td class=\"n all\">{all}</td></tr>\n"));
        table.raw(&row);
    }
    let mut html = table.end();
    if bricks.len() > MOST_BRICKS || layers.len() > MOST_LAYERS {
        html.push_str(&note(
            "Further bricks have no column, but are included in <em>all</em>; further layers have no row.",
        ));
    }
    html
}
