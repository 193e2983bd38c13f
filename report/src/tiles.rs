//! The tiles of products: how fast each level was, and how evenly threads shared them.

use brickscope_profile::{Profile, TileBalance, TileLevel, TileStats};
use serde_json::json;

use super::figure::{From, Unit, absent, at, count, counted, div, percent, scaled, sub};
use super::html::{Table, note, said};

/// The most rows of levels: an imported file may have a level twice.
const MOST_LEVELS: usize = 60;
/// The most threads in the table.
const MOST_THREADS: usize = 32;

pub(super) fn section(profile: &Profile) -> String {
    if profile.tiles.is_empty() {
        return String::new();
    }
    let mut html = levels(profile);
    if profile.tile_threads.len() > 1 {
        html.push_str(&threads(profile));
    }
    html.push_str(&note(
        "GFLOP/s are per thread: FLOPs over the time in tiles of the level, each timed by two clock readings.",
    ));
    for (nth, tile) in profile.tiles.iter().enumerate().take(MOST_LEVELS) {
        if let Some(tiles) = tile.tiles_in_runs {
            let place = |field: &str| at(format!("/tiles/{nth}/{field}"));
            html.push_str(&note(&format!(
                "{}: {} in {}, which were timed as a whole; a single tile is too short for the clock.",
                tile.level.name(),
                counted(tiles, "tile", place("tiles_in_runs")),
                counted(tile.count, "run", place("count")),
            )));
        }
    }
    let has = |level: &TileLevel| profile.tiles.iter().any(|tile| tile.level == *level);
    let absent: Vec<_> =
        TileLevel::ALL.iter().filter(|level| !has(level)).map(|level| level.name()).collect();
    if !absent.is_empty() {
        html.push_str(&note(&format!(
            "No {} tiles: the code that ran reported none.",
            absent.join(" and ")
        )));
    }
    if profile.dropped.left_out_passes > 0 {
        html.push_str(&note(
            "Tiles of all passes: they are only summed, so no pass could be left out.",
        ));
    }
    if let Some(balance) = &profile.tile_balance {
        html.push_str(&note(&balanced(balance)));
    }
    html
}

fn levels(profile: &Profile) -> String {
    let unit = Unit::of(profile.tiles.iter().map(|tile| tile.total_ns).max().unwrap_or(0));
    let total = format!("#Total, {}", unit.name);
    let columns = ["Level", "#Timed", "#Mean, µs", &total, "#GFLOP/s", "#Least, µs", "#Most, µs"];
    let mut table = Table::new("Tiles by level", &columns);
    for (nth, tile) in profile.tiles.iter().enumerate().take(MOST_LEVELS) {
        let place = |field: &str| at(format!("/tiles/{nth}/{field}"));
        let micros = Unit::of(0);
        // Without tiles there is no mean, minimum or maximum.
        let [mean, least, most] = match tile.count {
            0 => [(); 3].map(|()| absent("-")),
            n => [
                micros
                    .show(tile.total_ns as f64 / n as f64, div(place("total_ns"), place("count"))),
                micros.show(tile.min_ns, place("min_ns")),
                micros.show(tile.max_ns, place("max_ns")),
            ],
        };
        table.row(&[
            tile.level.name(),
            &count(tile.count, place("count")),
            &mean,
            &unit.show(tile.total_ns, place("total_ns")),
            &rate(tile, &format!("/tiles/{nth}")),
            &least,
            &most,
        ]);
    }
    table.end()
}

fn threads(profile: &Profile) -> String {
    let columns = ["Thread", "#macro, µs", "#macro, GFLOP/s", "#midi, GFLOP/s", "#micro, GFLOP/s"];
    let mut table = Table::new("Tiles by thread", &columns);
    for (nth, thread) in profile.tile_threads.iter().enumerate().take(MOST_THREADS) {
        let of = |level: TileLevel| {
            let found = thread.tiles.iter().enumerate().find(|(_, tile)| tile.level == level)?;
            Some((found.1, format!("/tile_threads/{nth}/tiles/{}", found.0)))
        };
        let worked = of(TileLevel::Macro).map_or_else(
            || absent("-"),
            |(tile, place)| Unit::of(0).show(tile.total_ns, at(format!("{place}/total_ns"))),
        );
        let [of_macro, of_midi, of_micro] = TileLevel::ALL
            .map(|level| of(level).map_or_else(|| absent("-"), |(tile, place)| rate(tile, &place)));
        let name = thread.name.as_deref().map_or_else(|| absent("no name"), said);
        table.row(&[&name, &worked, &of_macro, &of_midi, &of_micro]);
    }
    let more = profile.tile_threads.len().saturating_sub(MOST_THREADS);
    let left_out = if more > 0 { note("Further threads are left out.") } else { String::new() };
    table.end() + &left_out
}

/// GFLOP/s of one thread, if FLOPs were stated and time has passed.
fn rate(tile: &TileStats, place: &str) -> String {
    if tile.total_ns == 0 || tile.total_flops == 0 {
        return absent("-");
    }
    let from = |field: &str| at(format!("{place}/{field}"));
    scaled(tile.gflops(), 1.0, "", div(from("total_flops"), from("total_ns")))
}

fn balanced(balance: &TileBalance) -> String {
    let place = |field: &str| -> From { at(format!("/tile_balance/{field}")) };
    let of = counted(balance.products, "product", place("products"));
    let ratio = |a: &str, b: &str| div(place(a), place(b));
    match balance.imbalance() {
        Some(imbalance) => format!(
            "Imbalance of {of}: the slowest thread took {} longer than the mean; threads worked {} of their time.",
            percent(imbalance, sub(ratio("offered_ns", "worked_ns"), json!(1))),
            percent(
                balance.worked_ns as f64 / balance.offered_ns as f64,
                ratio("worked_ns", "offered_ns")
            ),
        ),
        None if balance.worked_ns == 0 => {
            format!("Imbalance of {of}: unknown, since no share took any time.")
        }
        None => format!("Imbalance of {of}: unknown, since other shares were timed too."),
    }
}
