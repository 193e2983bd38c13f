//! Tiles in the report: what each level did, and how evenly threads shared the work.

use std::fmt::Write;

use brickscope_profile::text::{count, micros, shortened};
use brickscope_profile::{Profile, TileBalance, TileLevel, TileStats};

use crate::view::layout::wrapped;

/// Threads in the table at most.
const MOST_THREADS: usize = 32;

/// The tiles, if any were timed.
pub(super) fn in_report(profile: &Profile, text: &mut String) {
    if profile.tiles.is_empty() {
        return;
    }
    text.push_str("\nTiles: products that are cut for threads, caches and registers\n");
    let row = |name: &str, of: [&str; 6]| {
        let [timed, avg, total, rate, least, most] = of;
        format!("{name:14} {timed:>9} {avg:>11} {total:>12} {rate:>9} {least:>9} {most:>9}\n")
    };
    let head = ["Timed", "Avg (µs)", "Total (µs)", "GFLOP/s", "min (µs)", "max (µs)"];
    text.push_str(&row("Level", head));
    let _ = writeln!(text, "{}", "-".repeat(79));
    for tile in &profile.tiles {
        // Of none there is no mean, no shortest and no longest.
        let [mean, least, most] = match tile.count {
            0 => [(); 3].map(|()| "-".to_owned()),
            n => [tile.total_ns as f64 / n as f64, tile.min_ns as f64, tile.max_ns as f64]
                .map(micros),
        };
        let total = micros(tile.total_ns as f64);
        let figures = [tile.count.to_string(), mean, total, rate(tile), least, most];
        text.push_str(&row(tile.level.name(), figures.each_ref().map(String::as_str)));
    }
    if profile.tile_threads.len() > 1 {
        threads(profile, text);
    }
    text.push('\n');
    notes(profile).iter().for_each(|note| wrapped(note, text));
}

/// How fast each thread was on each level.
fn threads(profile: &Profile, text: &mut String) {
    let row = |name: &str, of: [&str; 4]| {
        let [worked, rates @ ..] = of;
        let [of_macro, of_midi, of_micro] = rates;
        format!("{name:24} {worked:>12} {of_macro:>12} {of_midi:>12} {of_micro:>12}\n")
    };
    text.push('\n');
    let head = ["macro (µs)", "GFLOP/s", "midi", "micro"];
    text.push_str(&row("Thread", head));
    let _ = writeln!(text, "{}", "-".repeat(76));
    for (i, thread) in profile.tile_threads.iter().enumerate().take(MOST_THREADS) {
        let name = match &thread.name {
            Some(name) => shortened(name, 24, ""),
            None => format!("thread {i}"),
        };
        let of = |level: TileLevel| thread.tiles.iter().find(|tile| tile.level == level);
        let worked = of(TileLevel::Macro).map_or("-".to_owned(), |t| micros(t.total_ns as f64));
        let [a, b, c] = TileLevel::ALL.map(|level| of(level).map_or("-".to_owned(), rate));
        text.push_str(&row(&name, [&worked, &a, &b, &c]));
    }
    if let more @ 1.. = profile.tile_threads.len().saturating_sub(MOST_THREADS) {
        let _ = writeln!(text, "({more} more)");
    }
}

/// GFLOP/s of one thread, where FLOPs were stated and time has passed.
fn rate(tile: &TileStats) -> String {
    match tile.total_ns > 0 && tile.total_flops > 0 {
        true => format!("{:.1}", tile.gflops()),
        false => "-".to_owned(),
    }
}

/// What the tables don't say by themselves.
fn notes(profile: &Profile) -> Vec<String> {
    let mut notes = vec![
        "GFLOP/s are per thread: FLOPs over the time in tiles of the level, each timed by two clock readings"
            .to_owned(),
    ];
    for tile in &profile.tiles {
        if let Some(tiles) = tile.tiles_in_runs {
            notes.push(format!(
                "{}: {} in {}, which were timed as a whole; a single tile is too short for the clock",
                tile.level.name(),
                count(tiles, "tile"),
                count(tile.count, "run"),
            ));
        }
    }
    let has = |level: TileLevel| profile.tiles.iter().any(|tile| tile.level == level);
    let absent: Vec<_> =
        TileLevel::ALL.into_iter().filter(|&level| !has(level)).map(TileLevel::name).collect();
    if !absent.is_empty() {
        notes.push(format!("no {} tiles: the code that ran reported none", absent.join(" and ")));
    }
    if profile.dropped.left_out_passes > 0 {
        notes.push(
            "tiles of all passes: they are only summed, so no pass could be left out".to_owned(),
        );
    }
    if let Some(balance) = &profile.tile_balance {
        notes.push(balanced(balance));
    }
    notes
}

fn balanced(balance: &TileBalance) -> String {
    let of = count(balance.products, "product");
    match balance.imbalance() {
        Some(imbalance) => format!(
            "imbalance of {of}: the slowest thread took {:.1} % longer than the mean; threads worked \
             {:.1} % of their time",
            100.0 * imbalance,
            100.0 * balance.worked_ns as f64 / balance.offered_ns as f64,
        ),
        None if balance.worked_ns == 0 => {
            format!("imbalance of {of}: unknown, since no share took any time")
        }
        None => format!("imbalance of {of}: unknown, since other shares were timed too"),
    }
}
