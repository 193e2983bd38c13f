//! Layer × brick: a heat map that is a table.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use brickscope::{NameKind, Phase};
use serde_json::{Map, Value, json};

use super::figure::{From, Unit, sum};
use super::html::{Table, note, reason, said_in_parts};
use super::source::{Source, heading};

/// Columns and rows; further bricks share a column, further layers are left out and counted.
const MOST_BRICKS: usize = 16;
const MOST_LAYERS: usize = 130;

/// Shades between nothing and the most.
const SHADES: f64 = 12.0;

/// A brick in a layer, of one phase.
#[derive(Default)]
struct Cell {
    ns: u64,
    /// Its rows in the profile's own table, if it has one.
    rows: Vec<usize>,
}

pub(super) fn section(source: &Source<'_>) -> String {
    let profile = source.profile;
    let rows = profile.by_layer();
    let mut html = String::new();
    if profile.layers.is_empty() && profile.dropped.spans > 0 && !rows.is_empty() {
        html.push_str(&note(
            "Some spans did not fit the log, so these are sums over those that were kept: less than in \
             the tables above.",
        ));
    }
    let is_own = !profile.layers.is_empty();
    let mut any = false;
    for phase in [Phase::Decode, Phase::Prefill] {
        let mut cells: HashMap<(Option<u16>, &str), Cell> = HashMap::new();
        for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.phase == Some(phase)) {
            let cell = cells.entry((row.layer, row.name.as_str())).or_default();
            cell.ns = cell.ns.saturating_add(row.exclusive_ns);
            cell.rows.push(index);
        }
        if cells.is_empty() {
            continue;
        }
        any = true;
        html.push_str(&map(source, phase, &cells, is_own));
    }
    if !any {
        let why = if profile.spans.is_empty() {
            "No spans were kept, and nobody summed the bricks by layer while they ran."
        } else {
            "No brick was recorded inside of a pass."
        };
        return reason(why);
    }
    html.push_str(&note(
        "Time without that of bricks inside, summed over the passes. Bricks before and after the layers are in \
         the first row. The darker a cell, the more of the most in its table, or in its column.",
    ));
    html
}

fn ns_of(
    cells: &HashMap<(Option<u16>, &str), Cell>,
    layer: Option<u16>,
    name: &str,
) -> Option<u64> {
    cells.get(&(layer, name)).map(|cell| cell.ns)
}

fn map(
    source: &Source<'_>,
    phase: Phase,
    cells: &HashMap<(Option<u16>, &str), Cell>,
    is_own: bool,
) -> String {
    let mut by_brick: BTreeMap<&str, u64> = BTreeMap::new();
    let mut layers: BTreeSet<Option<u16>> = BTreeSet::new();
    for ((layer, name), cell) in cells {
        let sum = by_brick.entry(name).or_default();
        *sum = sum.saturating_add(cell.ns);
        layers.insert(*layer);
    }
    let mut bricks: Vec<(&str, u64)> = by_brick.into_iter().collect();
    // Stable, so that equals stay in the order of their names.
    bricks.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let (shown, rest) = bricks.split_at(bricks.len().min(MOST_BRICKS));
    // By name, its numbers: two names may read alike.
    let mut numbers: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, name) in source.profile.names.iter().enumerate() {
        if name.kind == NameKind::Brick {
            numbers.entry(&name.name).or_default().push(number);
        }
    }
    let from = |layer: Option<u16>, names: &[&str]| -> From {
        if is_own {
            let rows = names.iter().filter_map(|name| cells.get(&(layer, *name)));
            let rows = rows.flat_map(|cell| &cell.rows);
            return sum(rows
                .map(|row| source.at(&format!("/layers/{row}/exclusive_ns")))
                .collect());
        }
        let mut filter = Map::new();
        filter.insert("phase".to_owned(), json!(phase));
        filter.insert("layer".to_owned(), json!(layer));
        filter.insert("kind".to_owned(), json!("brick"));
        let numbers = names.iter().filter_map(|name| numbers.get(name)).flatten();
        let numbers: Vec<&usize> = numbers.collect();
        filter.insert("name".to_owned(), json!(numbers));
        source.of_rows("exclusive_ns", filter)
    };
    let most = cells.values().map(|cell| cell.ns).max().unwrap_or(0);
    let unit = Unit::of(most.min(9_000_000_000));
    let mut columns = vec!["Layer".to_owned()];
    columns.extend(shown.iter().map(|(name, _)| format!("#{}", said_in_parts(name))));
    if !rest.is_empty() {
        columns.push("#further bricks".to_owned());
    }
    columns.push("#all".to_owned());
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let caption =
        format!("{}: time of each brick in each layer, {}", heading(Some(phase)), unit.name);
    let mut table = Table::of_class("heat", &caption, &columns);
    let column_most: Vec<u64> = shown
        .iter()
        .map(|(name, _)| {
            layers.iter().filter_map(|layer| ns_of(cells, *layer, name)).max().unwrap_or(0)
        })
        .collect();
    for layer in layers.iter().take(MOST_LAYERS) {
        let mut row = String::from("<tr><th scope=\"row\">");
        match layer {
            Some(layer) => {
                let number =
                    super::figure::count(u64::from(*layer), json!(["layer", source.base, layer]));
                row.push_str(&number);
            }
            None => row.push_str("outside"),
        }
        row.push_str("</th>");
        for ((name, _), column_most) in shown.iter().zip(&column_most) {
            match ns_of(cells, *layer, name) {
                Some(ns) => {
                    let shade = |most: u64| (SHADES * ns as f64 / most.max(1) as f64).round();
                    row.push_str(&format!(
                        "<td class=\"n h{} k{}\">{}</td>",
                        shade(most),
                        shade(*column_most),
                        unit.show(ns, from(*layer, &[name]))
                    ));
                }
                None => row.push_str("<td class=\"n none\">·</td>"),
            }
        }
        let sum_of = |names: &[&str]| {
            names.iter().filter_map(|name| ns_of(cells, *layer, name)).fold(0, u64::saturating_add)
        };
        let rest_names: Vec<&str> = rest.iter().map(|(name, _)| *name).collect();
        if !rest.is_empty() {
            let few = is_own || rest_names.len() < 40;
            let cell = if few {
                unit.show(sum_of(&rest_names), from(*layer, &rest_names))
            } else {
                String::from("…")
            };
            row.push_str(&format!("<td class=\"n\">{cell}</td>"));
        }
        let all = cells.iter().filter(|((at, _), _)| at == layer);
        let all_ns = all.clone().fold(0, |sum, (_, cell)| u64::saturating_add(sum, cell.ns));
        let all_from = if is_own {
            let mut rows: Vec<usize> = all.flat_map(|(_, cell)| cell.rows.clone()).collect();
            rows.sort_unstable();
            sum(rows.iter().map(|row| source.at(&format!("/layers/{row}/exclusive_ns"))).collect())
        } else {
            let filter: Value = json!({"phase": phase, "layer": layer, "kind": "brick"});
            source.of_rows("exclusive_ns", filter.as_object().cloned().unwrap_or_default())
        };
        row.push_str(&format!("<td class=\"n all\">{}</td></tr>\n", unit.show(all_ns, all_from)));
        table.raw(&row);
    }
    let mut html = table.end();
    if layers.len() > MOST_LAYERS {
        html.push_str(&note(
            "Further layers are left out here; <code>brickscope show RUN --as json</code> has all.",
        ));
    }
    html
}
