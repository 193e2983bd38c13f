//! The ranks of two runs beside each other.

use brickscope_analysis::compare::{RanksChange, RanksOfRun, TwoTimes};
use brickscope_analysis::links::Member;
use brickscope_analysis::view;
use brickscope_profile::Profile;
use serde_json::json;

use super::figure::{From, Unit, absent, count, scaled};
use super::html::{Table, note, said, told};

/// The most rows of a table.
const MOST_ROWS: usize = 60;

/// Empty if neither run has ranks, or several devices with collectives.
pub(super) fn section(a: &Profile, b: &Profile) -> String {
    let (a, b) = (RanksOfRun::of(a), RanksOfRun::of(b));
    let Some(of) = RanksChange::of_runs(a.as_ref(), b.as_ref()) else { return String::new() };
    let mut words = view::ranks_compared_in_words(&of).into_iter();
    let mut html: String = words.by_ref().take(1).map(|what| note(&told(&what))).collect();
    if !of.ranks.is_empty() {
        html.push_str(&by_rank(&of));
    }
    if !of.transfers.is_empty() {
        html.push_str(&by_kind(&of));
    }
    html.extend(words.map(|what| note(&told(&what))));
    html
}

fn from(pointer: &str) -> From {
    json!(["ranks", pointer])
}

/// The unit in which the longest of these times has few digits.
fn unit<'t>(times: impl Iterator<Item = &'t TwoTimes>) -> Unit {
    Unit::of(times.flat_map(|of| [of.a_ns, of.b_ns]).flatten().max().unwrap_or(0))
}

/// Both times.
fn both(of: &TwoTimes, unit: Unit, at: &str) -> [String; 2] {
    [(of.a_ns, "a_ns"), (of.b_ns, "b_ns")].map(|(ns, field)| {
        ns.map_or_else(|| absent("-"), |ns| unit.show(ns, from(&format!("{at}/{field}"))))
    })
}

/// How often A's time goes into B's.
fn ratio(of: &TwoTimes, at: &str) -> String {
    let shown = |ratio: f64| scaled(ratio, 1.0, "", from(&format!("{at}/ratio")));
    of.ratio.map_or_else(|| absent("-"), shown)
}

fn by_rank(of: &RanksChange) -> String {
    let own = unit(of.ranks.iter().map(|row| &row.own));
    let wait = unit(of.ranks.iter().map(|row| &row.wait));
    let (one, title) = match of.members {
        Member::Rank => ("Rank", "Ranks"),
        Member::Device => ("Device", "Devices with collectives"),
    };
    let columns = [
        one.to_owned(),
        format!("#By itself, A, {}", own.name),
        format!("#B, {}", own.name),
        "#B ÷ A".to_owned(),
        format!("#Waits, A, {}", wait.name),
        format!("#B, {}", wait.name),
        format!("#B − A, {}", wait.name),
    ];
    let mut table = Table::new(title, &columns.each_ref().map(String::as_str));
    for (nth, row) in of.ranks.iter().enumerate().take(MOST_ROWS) {
        let at = |field: &str| format!("/ranks/{nth}/{field}");
        let [own_a, own_b] = both(&row.own, own, &at("own"));
        let [wait_a, wait_b] = both(&row.wait, wait, &at("wait"));
        let apart = |ns: i64| wait.signed(ns as f64, from(&at("wait/apart_ns")));
        table.row(&[
            &count(row.rank, from(&at("rank"))),
            &own_a,
            &own_b,
            &ratio(&row.own, &at("own")),
            &wait_a,
            &wait_b,
            &row.wait.apart_ns.map_or_else(|| absent("-"), apart),
        ]);
    }
    table.end() + &further(of.ranks.len())
}

fn by_kind(of: &RanksChange) -> String {
    let unit = unit(of.transfers.iter().map(|row| &row.transfer));
    let columns = [
        "Collective".to_owned(),
        "Group".to_owned(),
        "#A, how many".to_owned(),
        "#B".to_owned(),
        format!("#Transfer, A, {}", unit.name),
        format!("#B, {}", unit.name),
        "#B ÷ A".to_owned(),
    ];
    let mut table = Table::new("Transfers", &columns.each_ref().map(String::as_str));
    for (nth, row) in of.transfers.iter().enumerate().take(MOST_ROWS) {
        let at = |field: &str| format!("/transfers/{nth}/{field}");
        let [a, b] = both(&row.transfer, unit, &at("transfer"));
        table.row(&[
            &said(&row.name),
            &said(&row.group),
            &count(row.a_collectives, from(&at("a_collectives"))),
            &count(row.b_collectives, from(&at("b_collectives"))),
            &a,
            &b,
            &ratio(&row.transfer, &at("transfer")),
        ]);
    }
    table.end() + &further(of.transfers.len())
}

fn further(rows: usize) -> String {
    if rows <= MOST_ROWS {
        return String::new();
    }
    note("Further rows are left out; <code>brickscope compare A B --json</code> has all.")
}
