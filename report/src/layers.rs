//! Layers by bricks: a table as a heat map.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use brickscope_profile::{LayerBrick, NameKind, Phase};
use serde_json::{Map, Value, json};

use super::figure::{From, Unit, sum};
use super::html::{Table, note, said_in_parts};
use super::source::{Source, heading};

/// The most columns and rows. Further bricks share a column, further layers are left out and counted.
const MOST_BRICKS: usize = 16;
const MOST_LAYERS: usize = 130;

/// The number of shades between zero and the maximum.
const SHADES: f64 = 12.0;

/// A brick in a layer, of one phase.
#[derive(Default)]
struct Cell {
    ns: u64,
    /// Its rows in the profile's table of layers, if there is one.
    rows: Vec<usize>,
}

/// The bricks of one phase by layer, with the origin of their times.
pub(super) struct Cells<'r> {
    source: &'r Source<'r>,
    phase: Phase,
    of: HashMap<(Option<u16>, &'r str), Cell>,
    /// The numbers of each name, since several may look the same.
    numbers: HashMap<&'r str, Vec<usize>>,
    /// Whether they come from the profile's table, and not from its spans.
    is_own: bool,
}

impl<'r> Cells<'r> {
    /// From the rows of [`Profile::by_layer`](brickscope_profile::Profile::by_layer); `None` if the phase has none.
    pub(super) fn new(
        source: &'r Source<'r>,
        rows: &'r [LayerBrick],
        phase: Phase,
    ) -> Option<Self> {
        let mut of: HashMap<(Option<u16>, &str), Cell> = HashMap::new();
        for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.phase == Some(phase)) {
            let cell = of.entry((row.layer, row.name.as_str())).or_default();
            cell.ns = cell.ns.saturating_add(row.exclusive_ns);
            cell.rows.push(index);
        }
        let mut numbers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, name) in source.profile.names.iter().enumerate() {
            if name.kind == NameKind::Brick {
                numbers.entry(&name.name).or_default().push(number);
            }
        }
        let is_own = !source.profile.layers.is_empty();
        (!of.is_empty()).then_some(Self { source, phase, of, numbers, is_own })
    }

    pub(super) fn layers(&self) -> BTreeSet<Option<u16>> {
        self.of.keys().map(|(layer, _)| *layer).collect()
    }

    /// The bricks, sorted by their time in all layers.
    pub(super) fn bricks(&self) -> BTreeMap<&'r str, u64> {
        let mut by_brick: BTreeMap<&str, u64> = BTreeMap::new();
        for ((_, name), cell) in &self.of {
            let sum = by_brick.entry(name).or_default();
            *sum = sum.saturating_add(cell.ns);
        }
        by_brick
    }

    pub(super) fn ns(&self, layer: Option<u16>, name: &str) -> Option<u64> {
        self.of.get(&(layer, name)).map(|cell| cell.ns)
    }

    /// The origin of the time of some bricks in a layer.
    pub(super) fn from(&self, layer: Option<u16>, names: &[&str]) -> From {
        if self.is_own {
            let rows = names.iter().filter_map(|name| self.of.get(&(layer, *name)));
            return self.of_own(rows.flat_map(|cell| cell.rows.iter().copied()).collect());
        }
        let numbers = names.iter().filter_map(|name| self.numbers.get(name)).flatten();
        let numbers: Vec<&usize> = numbers.collect();
        let mut filter = self.filter(layer);
        filter.insert("name".to_owned(), json!(numbers));
        self.source.of_rows("exclusive_ns", filter)
    }

    /// The time of all bricks in a layer, and its origin.
    pub(super) fn all(&self, layer: Option<u16>) -> (u64, From) {
        let cells = || self.of.iter().filter(|((at, _), _)| *at == layer);
        let ns = cells().fold(0, |sum, (_, cell)| u64::saturating_add(sum, cell.ns));
        if self.is_own {
            let mut rows: Vec<usize> = cells().flat_map(|(_, cell)| cell.rows.clone()).collect();
            rows.sort_unstable();
            return (ns, self.of_own(rows));
        }
        (ns, self.source.of_rows("exclusive_ns", self.filter(layer)))
    }

    fn of_own(&self, rows: Vec<usize>) -> From {
        let at = |row: &usize| self.source.at(&format!("/layers/{row}/exclusive_ns"));
        sum(rows.iter().map(at).collect())
    }

    fn filter(&self, layer: Option<u16>) -> Map<String, Value> {
        let filter: Value = json!({"phase": self.phase, "layer": layer, "kind": "brick"});
        filter.as_object().cloned().unwrap_or_default()
    }
}

/// The heading of a layer's row.
pub(super) fn layer_heading(source: &Source<'_>, layer: Option<u16>) -> String {
    match layer {
        Some(layer) => super::figure::count(u64::from(layer), json!(["layer", source.base, layer])),
        None => "outside".to_owned(),
    }
}

pub(super) fn section(source: &Source<'_>) -> String {
    let profile = source.profile;
    let rows = profile.by_layer();
    let mut html = String::new();
    if profile.layers.is_empty() && profile.dropped.spans > 0 && !rows.is_empty() {
        html.push_str(&note(
            "Some spans did not fit the log, so these are sums over the others, which are less than in \
            the tables above.",
        ));
    }
    let mut any = false;
    for phase in Phase::SHOWN {
        let Some(cells) = Cells::new(source, &rows, phase) else { continue };
        any = true;
        html.push_str(&map(&cells));
    }
    if !any {
        return String::new();
    }
    html.push_str(&note(
        "Time without inner bricks, summed over the passes that the tables are of. Bricks before and after the layers are in the \
        first row. Darker cells are closer to the maximum of the table, or of the column.",
    ));
    html
}

fn map(cells: &Cells<'_>) -> String {
    let mut bricks: Vec<(&str, u64)> = cells.bricks().into_iter().collect();
    let layers = cells.layers();
    // A stable sort keeps equal times in the order of names.
    bricks.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let (shown, rest) = bricks.split_at(bricks.len().min(MOST_BRICKS));
    let most = cells.of.values().map(|cell| cell.ns).max().unwrap_or(0);
    let unit = Unit::of_cells(most);
    let mut columns = vec!["Layer".to_owned()];
    columns.extend(shown.iter().map(|(name, _)| format!("#{}", said_in_parts(name))));
    if !rest.is_empty() {
        columns.push("#further bricks".to_owned());
    }
    columns.push("#all".to_owned());
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let caption =
        format!("{}: time of each brick in each layer, {}", heading(Some(cells.phase)), unit.name);
    let mut table = Table::of_class("heat", &caption, &columns);
    let column_most: Vec<u64> = shown
        .iter()
        .map(|(name, _)| {
            layers.iter().filter_map(|layer| cells.ns(*layer, name)).max().unwrap_or(0)
        })
        .collect();
    for layer in layers.iter().take(MOST_LAYERS) {
        let mut row = String::from("<tr><th scope=\"row\">");
        row.push_str(&layer_heading(cells.source, *layer));
        row.push_str("</th>");
        for ((name, _), column_most) in shown.iter().zip(&column_most) {
            match cells.ns(*layer, name) {
                Some(ns) => {
                    let shade = |most: u64| (SHADES * ns as f64 / most.max(1) as f64).round();
                    row.push_str(&format!(
                        "<td class=\"n h{} k{}\">{}</td>",
                        shade(most),
                        shade(*column_most),
                        unit.show(ns, cells.from(*layer, &[name]))
                    ));
                }
                None => row.push_str("<td class=\"n none\">·</td>"),
            }
        }
        let sum_of = |names: &[&str]| {
            names.iter().filter_map(|name| cells.ns(*layer, name)).fold(0, u64::saturating_add)
        };
        let rest_names: Vec<&str> = rest.iter().map(|(name, _)| *name).collect();
        if !rest.is_empty() {
            let few = cells.is_own || rest_names.len() < 40;
            let cell = if few {
                unit.show(sum_of(&rest_names), cells.from(*layer, &rest_names))
            } else {
                String::from("…")
            };
            row.push_str(&format!("<td class=\"n\">{cell}</td>"));
        }
        let (all_ns, all_from) = cells.all(*layer);
        row.push_str(&format!("<td class=\"n all\">{}</td></tr>\n", unit.show(all_ns, all_from)));
        table.raw(&row);
    }
    let mut html = table.end();
    if layers.len() > MOST_LAYERS {
        html.push_str(&note(
            "Further layers are left out; <code>brickscope show RUN --as json</code> has all.",
        ));
    }
    html
}
