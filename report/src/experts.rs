//! Experts of a mixture by layers: who ran, as tables and heat maps.

use std::fmt::Write;

use brickscope_profile::{ExpertRuns, LayerExperts, Phase, Profile};

use serde_json::json;

use super::figure::{From, absent, at, count, counted, div, mul, percent, scaled, sub, sum};
use super::html::{Table, details, note, reason};

/// The most rows of a table. Further layers are left out.
const MOST_LAYERS: usize = 130;
/// Up to as many experts, each cell of a map has its number; of more, there is a picture.
const MOST_COLUMNS: usize = 64;
/// The most columns of a picture.
const MOST_DRAWN: u32 = 1024;
/// The number of shades between zero and the maximum.
const SHADES: f64 = 12.0;
/// The sides of a cell of a picture.
const CELL: usize = 6;

/// A layer, and its place in the file.
struct Row<'p> {
    nth: usize,
    of: &'p LayerExperts,
}

impl Row<'_> {
    fn at(&self, field: &str) -> From {
        at(format!("/experts/{}/{field}", self.nth))
    }

    /// The place of a field of one expert.
    fn of_expert(&self, expert: u32, field: &str) -> From {
        let at = self.of.experts.iter().position(|of| of.expert == expert);
        self.at(&format!("experts/{}/{field}", at.unwrap_or(usize::MAX)))
    }

    /// The sum of a field over all experts that ran.
    fn all(&self, field: &str) -> From {
        let each = |nth| self.at(&format!("experts/{nth}/{field}"));
        sum((0..self.of.experts.len()).map(each).collect())
    }

    fn heading(&self) -> String {
        match self.of.layer {
            Some(layer) => count(u64::from(layer), self.at("layer")),
            None => "none".to_owned(),
        }
    }
}

pub(super) fn section(profile: &Profile) -> String {
    let mut html = String::new();
    for phase in Phase::SHOWN {
        let rows = profile.experts.iter().enumerate().filter(|(_, of)| of.phase == phase);
        let rows: Vec<Row<'_>> = rows.map(|(nth, of)| Row { nth, of }).collect();
        let (read, unread): (Vec<Row<'_>>, Vec<Row<'_>>) =
            rows.into_iter().partition(|row| row.of.reads > 0);
        if !read.is_empty() {
            html.push_str(&table(phase, &read));
            html.push_str(&maps(phase, &read));
        }
        html.push_str(&beside(&read, &unread));
    }
    if html.is_empty() {
        return html;
    }
    html.push_str(&note(
        "Each time: different experts each time that the layer was computed, on average. Of mean: how many times as many \
         tokens chose the busiest expert as chose an expert on average. Idle experts were chosen by no token. Bytes are those \
         of the matrices of the experts that ran. Choices of disturbed passes count, too.",
    ));
    html.push_str(&note(
        "Time by expert is not known: all experts of a product are computed in one operation, and no clock is read around \
         one. The time of each layer is in the table of layers.",
    ));
    html
}

fn table(phase: Phase, rows: &[Row<'_>]) -> String {
    let mut table = Table::new(
        &format!("Experts in {phase}"),
        &[
            "#Layer",
            "#Experts",
            "#Ran",
            "#Idle",
            "#Each time",
            "#Busiest",
            "#Of tokens, %",
            "#Of mean",
            "#Read",
        ],
    );
    for row in rows.iter().take(MOST_LAYERS) {
        let of = row.of;
        let unknown = || absent("-");
        let ran = || json!(["count", format!("/experts/{}/experts", row.nth)]);
        let different = of
            .different()
            .map_or_else(unknown, |n| scaled(n, 1.0, "", div(row.all("reads"), row.at("reads"))));
        let busiest = of.busiest();
        let tokens_of = |of: &ExpertRuns| row.of_expert(of.expert, "tokens");
        let named =
            busiest.map_or_else(unknown, |of| count(of.expert, row.of_expert(of.expert, "expert")));
        let part = busiest.filter(|_| of.tokens > 0).map_or_else(unknown, |busiest| {
            percent(
                busiest.tokens as f64 / of.tokens as f64,
                div(tokens_of(busiest), row.at("tokens")),
            )
        });
        let mean = busiest.zip(of.imbalance()).map_or_else(unknown, |(busiest, times)| {
            let all = mul(tokens_of(busiest), row.at("n_expert"));
            scaled(times, 1.0, "", div(all, row.all("tokens")))
        });
        table.row(&[
            &row.heading(),
            &count(of.n_expert, row.at("n_expert")),
            &count(of.ran(), ran()),
            &count(of.idle(), sub(row.at("n_expert"), ran())),
            &different,
            &named,
            &part,
            &mean,
            &scaled(of.bytes(), 1e6, " MB", row.all("bytes")),
        ]);
    }
    table.end() + &further(rows)
}

fn further(rows: &[Row<'_>]) -> String {
    if rows.len() <= MOST_LAYERS {
        return String::new();
    }
    note("Further layers are left out; <code>brickscope show RUN --as json</code> has all.")
}

/// What a cell of a map shows.
#[derive(Clone, Copy)]
struct What {
    name: &'static str,
    field: &'static str,
    of: fn(&ExpertRuns) -> u64,
}

const TOKENS: What =
    What { name: "tokens that chose each expert", field: "tokens", of: |of| of.tokens };
const BYTES: What =
    What { name: "bytes read of each expert's matrices, MB", field: "bytes", of: |of| of.bytes };

fn maps(phase: Phase, rows: &[Row<'_>]) -> String {
    let columns = rows.iter().map(|row| row.of.n_expert).max().unwrap_or(0);
    if columns as usize > MOST_COLUMNS {
        return picture(phase, rows, columns.min(MOST_DRAWN));
    }
    let tokens = map(phase, rows, columns, TOKENS);
    let bytes = details("Bytes read of each expert", &map(phase, rows, columns, BYTES));
    tokens + &bytes
}

fn most(rows: &[Row<'_>], what: What) -> u64 {
    rows.iter().flat_map(|row| &row.of.experts).map(what.of).max().unwrap_or(0)
}

fn shade(value: u64, most: u64) -> f64 {
    (SHADES * value as f64 / most.max(1) as f64).round()
}

/// A table with a number in each cell.
fn map(phase: Phase, rows: &[Row<'_>], columns: u32, what: What) -> String {
    let most = most(rows, what);
    let mut headings = vec!["Layer".to_owned()];
    headings.extend((0..columns).map(|expert| format!("#{}", heading(rows, expert))));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let caption = format!("{}: {}", phase.heading(), what.name);
    let mut table = Table::of_class("heat", &caption, &headings);
    let most_of = |expert: u32| {
        let of = rows.iter().flat_map(|row| &row.of.experts).filter(|of| of.expert == expert);
        of.map(what.of).max().unwrap_or(0)
    };
    for row in rows.iter().take(MOST_LAYERS) {
        let mut html = format!("<tr><th scope=\"row\">{}</th>", row.heading());
        for expert in 0..columns {
            let Some(of) = row.of.experts.iter().find(|of| of.expert == expert) else {
                html.push_str("<td class=\"n none\">·</td>");
                continue;
            };
            let value = (what.of)(of);
            let from = row.of_expert(expert, what.field);
            let shown = match what.field {
                "bytes" => scaled(value, 1e6, "", from),
                _ => count(value, from),
            };
            let (h, k) = (shade(value, most), shade(value, most_of(expert)));
            let _ = write!(html, "<td class=\"n h{h} k{k}\">{shown}</td>");
        }
        html.push_str("</tr>\n");
        table.raw(&html);
    }
    table.end()
}

/// The number of an expert, from a layer in which it ran.
fn heading(rows: &[Row<'_>], expert: u32) -> String {
    let ran = |row: &&Row<'_>| row.of.experts.iter().any(|of| of.expert == expert);
    match rows.iter().find(ran) {
        Some(row) => count(expert, row.of_expert(expert, "expert")),
        None => "·".to_owned(),
    }
}

/// A picture whose cells are too many for numbers: a row for each layer, a column for each expert.
fn picture(phase: Phase, rows: &[Row<'_>], columns: u32) -> String {
    let most = most(rows, TOKENS);
    let drawn = rows.len().min(MOST_LAYERS);
    let (width, height) = (columns as usize * CELL, drawn * CELL);
    let mut cells = String::new();
    for (y, row) in rows.iter().take(drawn).enumerate() {
        for of in row.of.experts.iter().filter(|of| of.expert < columns && of.tokens > 0) {
            let (x, y) = (of.expert as usize * CELL, y * CELL);
            // What ran is seen, however seldom that was.
            let opacity = shade(of.tokens, most).max(1.0) / SHADES;
            let _ = write!(
                cells,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" opacity=\"{opacity:.2}\"/>"
            );
        }
    }
    let label = format!("{}: tokens by layer and expert", phase.heading());
    let what = note(&format!(
        "{}: a row for each layer, a column for each expert; darker where more tokens chose it.",
        phase.heading()
    ));
    format!(
        "<figure class=\"experts\"><svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">{cells}</svg>\
         </figure>\n{what}"
    )
}

/// What is not in the tables.
fn beside(read: &[Row<'_>], unread: &[Row<'_>]) -> String {
    let mut html = String::new();
    let all = || read.iter().chain(unread);
    let why = all().find_map(|row| row.of.unread_absent.as_ref());
    let total =
        |of: fn(&LayerExperts) -> u64| all().map(|row| of(row.of)).fold(0, u64::saturating_add);
    // A field that is 0 isn't in the file.
    let places = |of: fn(&LayerExperts) -> u64, field: &str| {
        sum(all().filter(|row| of(row.of) > 0).map(|row| row.at(field)).collect())
    };
    let times = total(|of| of.unread);
    if times > 0 {
        let times = counted(times, "time", places(|of| of.unread, "unread"));
        html.push_str(&note(&format!("Experts of a computed layer are not known, {times}:")));
        html.push_str(&why.map_or(String::new(), |why| reason(&why.reason)));
    }
    let odd = total(|of| of.odd);
    if odd > 0 {
        let odd = counted(odd, "choice", places(|of| of.odd, "odd"));
        html.push_str(&note(&format!("{odd} of no expert, left out.")));
    }
    html
}
