//! Experts of a mixture by layers: who ran, and how long, as tables and heat maps.

use std::collections::HashMap;
use std::fmt::Write;

use brickscope_profile::{ExpertRuns, LayerExperts, Phase, Profile};

use serde_json::json;

use super::figure::{From, Unit, absent, at, count, counted, div, mul, percent, scaled, sub, sum};
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
        self.sum_of("experts", self.of.experts.len(), field)
    }

    /// The place of a field of one expert's time.
    fn of_time(&self, expert: u32, field: &str) -> From {
        let at = self.of.times.iter().position(|of| of.expert == expert);
        self.at(&format!("times/{}/{field}", at.unwrap_or(usize::MAX)))
    }

    /// The sum of a field over all experts with a time.
    fn all_times(&self, field: &str) -> From {
        self.sum_of("times", self.of.times.len(), field)
    }

    fn sum_of(&self, list: &str, n: usize, field: &str) -> From {
        let each = |nth| self.at(&format!("{list}/{nth}/{field}"));
        sum((0..n).map(each).collect())
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
    let (mut any_time, mut any_choice) = (false, false);
    for phase in Phase::SHOWN {
        let rows = || {
            let rows = profile.experts.iter().enumerate().filter(|(_, of)| of.phase == phase);
            rows.map(|(nth, of)| Row { nth, of })
        };
        let timed: Vec<Row<'_>> = rows().filter(|row| !row.of.times.is_empty()).collect();
        let (read, unread): (Vec<Row<'_>>, Vec<Row<'_>>) = rows().partition(|row| row.of.reads > 0);
        if !timed.is_empty() {
            html.push_str(&times(phase, &timed));
            html.push_str(&maps(phase, &timed, What::Time));
            any_time = true;
        }
        if !read.is_empty() {
            html.push_str(&table(phase, &read));
            html.push_str(&maps(phase, &read, What::Tokens));
            any_choice = true;
        }
        html.push_str(&beside(&read, &unread));
    }
    if html.is_empty() {
        return html;
    }
    if any_choice || !any_time {
        html.push_str(&note(
            "Each time: different experts each time that the layer was computed, on average. Of mean: how many times as many \
             tokens chose the busiest expert as chose an expert on average. Idle experts were chosen by no token. Bytes are \
             those of the matrices of the experts that ran. Choices of disturbed passes count, too.",
        ));
    }
    if !any_time {
        html.push_str(&note(
            "Time by expert is not known: all experts of a product are computed in one operation, and no clock is read \
             around one. The time of each layer is in the table of layers.",
        ));
        return html;
    }
    html.push_str(&note(
        "Time of experts: of the kernels and copies that were launched in a range of one expert, or that the file notes as its \
         own. A kernel for several experts is of none. Of mean: how many times as long the longest expert ran as one of those \
         that ran on average.",
    ));
    if !any_choice {
        html.push_str(&note(
            "How many tokens chose each expert, and the bytes of its matrices, are not known: the file doesn't tell them.",
        ));
    }
    html
}

/// How long experts ran: a row for each layer.
fn times(phase: Phase, rows: &[Row<'_>]) -> String {
    let a_pass = |row: &Row<'_>| row.of.time_ns().checked_div(row.of.timed_passes);
    let unit = Unit::of(rows.iter().filter_map(a_pass).max().unwrap_or(0));
    let mut table = Table::new(
        &format!("Time of experts in {phase}"),
        &[
            "#Layer",
            "#Ran",
            &format!("#A pass ({})", unit.name),
            "#Longest",
            "#Of these, %",
            "#Of mean",
            "#Kernels",
        ],
    );
    for row in rows.iter().take(MOST_LAYERS) {
        let of = row.of;
        let unknown = || absent("-");
        let all = of.time_ns() as f64;
        let ran = || json!(["count", format!("/experts/{}/times", row.nth)]);
        // A file may contain anything.
        let mean = match of.timed_passes {
            0 => unknown(),
            passes => {
                unit.show(all / passes as f64, div(row.all_times("ns"), row.at("timed_passes")))
            }
        };
        let longest = of.longest();
        let named =
            longest.map_or_else(unknown, |of| count(of.expert, row.of_time(of.expert, "expert")));
        let part = longest.map_or_else(unknown, |of| {
            percent(of.ns as f64 / all, div(row.of_time(of.expert, "ns"), row.all_times("ns")))
        });
        let times = longest.zip(of.time_imbalance()).map_or_else(unknown, |(longest, times)| {
            let share = mul(row.of_time(longest.expert, "ns"), ran());
            scaled(times, 1.0, "", div(share, row.all_times("ns")))
        });
        table.row(&[
            &row.heading(),
            &count(of.times.len() as u64, ran()),
            &mean,
            &named,
            &part,
            &times,
            &count(of.kernels(), row.all_times("kernels")),
        ]);
    }
    table.end() + &further(rows)
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
        let all = of.n_expert.map_or_else(unknown, |all| count(all, row.at("n_expert")));
        // Without an expert that ran, the file has no list of them.
        let is_listed = !of.experts.is_empty();
        let idle = of.idle().filter(|_| is_listed);
        table.row(&[
            &row.heading(),
            &all,
            &if is_listed { count(of.ran(), ran()) } else { unknown() },
            &idle.map_or_else(unknown, |idle| count(idle, sub(row.at("n_expert"), ran()))),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Tokens,
    Bytes,
    Time,
}

impl What {
    /// The caption of a table.
    fn caption(self) -> &'static str {
        match self {
            Self::Tokens => "tokens that chose each expert",
            Self::Bytes => "bytes read of each expert's matrices, MB",
            Self::Time => "time of each expert, µs",
        }
    }

    /// What a picture shows, and where it is darker.
    fn in_picture(self) -> [&'static str; 2] {
        match self {
            Self::Tokens => ["tokens", "more tokens chose it"],
            Self::Bytes => ["bytes", "more was read of it"],
            Self::Time => ["time", "it ran longer"],
        }
    }

    /// The experts of a layer that have it, each with it.
    fn cells(self, of: &LayerExperts) -> Vec<(u32, u64)> {
        let ran = of.experts.iter();
        match self {
            Self::Tokens => ran.map(|of| (of.expert, of.tokens)).collect(),
            Self::Bytes => ran.map(|of| (of.expert, of.bytes)).collect(),
            Self::Time => of.times.iter().map(|of| (of.expert, of.ns)).collect(),
        }
    }

    /// The number of an expert that has it.
    fn expert(self, row: &Row<'_>, expert: u32) -> String {
        let from = match self {
            Self::Tokens | Self::Bytes => row.of_expert(expert, "expert"),
            Self::Time => row.of_time(expert, "expert"),
        };
        count(expert, from)
    }

    fn show(self, row: &Row<'_>, expert: u32, value: u64) -> String {
        match self {
            Self::Tokens => count(value, row.of_expert(expert, "tokens")),
            Self::Bytes => scaled(value, 1e6, "", row.of_expert(expert, "bytes")),
            Self::Time => scaled(value, 1e3, "", row.of_time(expert, "ns")),
        }
    }
}

/// The maps of what is known. Where they are too large, that of tokens or times as a picture.
fn maps(phase: Phase, rows: &[Row<'_>], what: What) -> String {
    // Where nothing tells how many experts there are, up to the last that ran.
    let last = |row: &Row<'_>| {
        let cells = what.cells(row.of).into_iter();
        cells.map(|(expert, _)| expert.saturating_add(1)).max()
    };
    let columns = rows.iter().filter_map(|row| row.of.n_expert.or_else(|| last(row))).max();
    let columns = columns.unwrap_or(0);
    if columns as usize > MOST_COLUMNS {
        return picture(phase, rows, columns.min(MOST_DRAWN), what);
    }
    let first = map(phase, rows, columns, what);
    match what {
        What::Tokens => {
            let bytes = map(phase, rows, columns, What::Bytes);
            first + &details("Bytes read of each expert", &bytes)
        }
        What::Bytes | What::Time => first,
    }
}

fn most(rows: &[Row<'_>], what: What) -> u64 {
    let cells = rows.iter().flat_map(|row| what.cells(row.of));
    cells.map(|(_, value)| value).max().unwrap_or(0)
}

fn shade(value: u64, most: u64) -> f64 {
    (SHADES * value as f64 / most.max(1) as f64).round()
}

/// A table with a number in each cell.
fn map(phase: Phase, rows: &[Row<'_>], columns: u32, what: What) -> String {
    let most = most(rows, what);
    let mut headings = vec!["Layer".to_owned()];
    headings.extend((0..columns).map(|expert| format!("#{}", heading(rows, expert, what))));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let caption = format!("{}: {}", phase.heading(), what.caption());
    let mut table = Table::of_class("heat", &caption, &headings);
    let mut most_of: HashMap<u32, u64> = HashMap::new();
    for (expert, value) in rows.iter().flat_map(|row| what.cells(row.of)) {
        let most = most_of.entry(expert).or_default();
        *most = value.max(*most);
    }
    for row in rows.iter().take(MOST_LAYERS) {
        let mut html = format!("<tr><th scope=\"row\">{}</th>", row.heading());
        let cells = what.cells(row.of);
        for expert in 0..columns {
            let Some(&(_, value)) = cells.iter().find(|of| of.0 == expert) else {
                html.push_str("<td class=\"n none\">·</td>");
                continue;
            };
            let shown = what.show(row, expert, value);
            let most_of = most_of.get(&expert).copied().unwrap_or(0);
            let (h, k) = (shade(value, most), shade(value, most_of));
            let _ = write!(html, "<td class=\"n h{h} k{k}\">{shown}</td>");
        }
        html.push_str("</tr>\n");
        table.raw(&html);
    }
    table.end()
}

/// The number of an expert, from a layer in which it ran.
fn heading(rows: &[Row<'_>], expert: u32, what: What) -> String {
    let ran = |row: &&Row<'_>| what.cells(row.of).iter().any(|of| of.0 == expert);
    rows.iter().find(ran).map_or_else(|| "·".to_owned(), |row| what.expert(row, expert))
}

/// A picture whose cells are too many for numbers: a row for each layer, a column for each expert.
fn picture(phase: Phase, rows: &[Row<'_>], columns: u32, what: What) -> String {
    let most = most(rows, what);
    let drawn = rows.len().min(MOST_LAYERS);
    let (width, height) = (columns as usize * CELL, drawn * CELL);
    let mut cells = String::new();
    for (y, row) in rows.iter().take(drawn).enumerate() {
        let of = what.cells(row.of).into_iter();
        for (expert, value) in of.filter(|&(expert, value)| expert < columns && value > 0) {
            let (x, y) = (expert as usize * CELL, y * CELL);
            // What ran is seen, however seldom that was.
            let opacity = shade(value, most).max(1.0) / SHADES;
            let _ = write!(
                cells,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" opacity=\"{opacity:.2}\"/>"
            );
        }
    }
    let [shows, is_darker] = what.in_picture();
    let label = format!("{}: {shows} by layer and expert", phase.heading());
    let what = note(&format!(
        "{}: a row for each layer, a column for each expert; darker where {is_darker}.",
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
