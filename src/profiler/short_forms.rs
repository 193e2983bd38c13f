//! The short forms of sums: summary, box, tables and JSON.

use std::fmt::Write;

use brickscope_profile::stats::ratio;
use brickscope_profile::text::{percent, printable};
use brickscope_profile::{BrickCategory, BrickStats, TileStats};
use serde_json::json;

use super::sums::BrickSums;

/// The bricks that ran, the longest first.
fn longest_first(stats: &[BrickStats]) -> Vec<&BrickStats> {
    let mut bricks: Vec<_> = stats.iter().filter(|stats| stats.count > 0).collect();
    bricks.sort_by_key(|stats| std::cmp::Reverse(stats.exclusive_ns));
    bricks
}

fn throughput(total: &BrickStats) -> f64 {
    ratio(total.total_elements as f64 * 1e9, total.exclusive_ns as f64)
}

pub(super) fn summary(bricks: BrickSums) -> String {
    let total = bricks.total();
    let total_ns = total.exclusive_ns;
    let rate = if total_ns > 0 {
        format!("{:.1} tok/s", throughput(&total))
    } else {
        "n/a tok/s".to_owned()
    };
    let mut text = format!(
        "=== Brick Profiler Summary ===\nTotal: {} tokens, {:.2}µs, {rate}\n\nPer-Brick Breakdown:\n",
        total.total_elements,
        total_ns as f64 / 1e3,
    );
    let [first, others] = bricks.sides().map(longest_first);
    let rows = |text: &mut String, bricks: &[&BrickStats]| {
        for stats in bricks {
            let _ = writeln!(
                text,
                "  {:20} {:8.2}µs avg ({:>6}) [{} samples]",
                printable(&stats.name),
                stats.avg_us(),
                percent(stats.exclusive_ns as f64, total_ns as f64),
                stats.count
            );
        }
    };
    rows(&mut text, &first);
    if !others.is_empty() {
        text.push_str("On devices, in parts of the host's total:\n");
        rows(&mut text, &others);
    }
    text.push_str("\nCategory Breakdown:\n");
    for (category, stats) in BrickCategory::ALL.into_iter().zip(bricks.by_category()) {
        if stats.count > 0 {
            let _ = writeln!(
                text,
                "  {:12} {:8.2}µs avg ({:>6})",
                category.name(),
                stats.avg_us(),
                percent(stats.total_ns as f64, total_ns as f64)
            );
        }
    }
    text
}

pub(super) fn category_box(bricks: BrickSums) -> String {
    let total = bricks.total().exclusive_ns as f64;
    let rule = "─".repeat(57);
    let mut text = format!("╭{rule}╮\n│{:^57}│\n├{rule}┤\n", "Category Breakdown");
    for (category, stats) in BrickCategory::ALL.into_iter().zip(bricks.by_category()) {
        if stats.count > 0 {
            let line = format!(
                " {:12} {:8.2}µs avg {:>7} [{:5} samples]",
                category.name(),
                stats.avg_us(),
                percent(stats.total_ns as f64, total),
                stats.count
            );
            let _ = writeln!(text, "│{line:57}│");
        }
    }
    let _ = writeln!(text, "╰{rule}╯");
    text
}

pub(super) fn bricks_json(bricks: &BrickSums) -> String {
    let total = bricks.total();
    let total_ns = total.exclusive_ns;
    let measured = |ns: u64, value: f64| (ns > 0).then_some(value);
    let row = |stats: &BrickStats| {
        json!({
            "name": stats.name,
            "count": stats.count,
            "total_ns": stats.total_ns,
            "exclusive_ns": stats.exclusive_ns,
            "avg_us": stats.avg_us(),
            "min_us": stats.min_us(),
            "max_us": stats.max_us(),
            "throughput": measured(stats.total_ns.min(stats.total_elements), stats.throughput()),
            "pct": measured(total_ns, 100.0 * stats.exclusive_ns as f64 / total_ns as f64),
        })
    };
    let [first, others] =
        bricks.sides().map(|side| longest_first(side).into_iter().map(row).collect::<Vec<_>>());
    let mut all = json!({
        "total_tokens": total.total_elements,
        "total_ns": total_ns,
        "total_throughput": measured(total_ns, throughput(&total)),
        "bricks": first,
    });
    if !others.is_empty() {
        all["device_bricks"] = others.into();
    }
    all.to_string()
}

/// GFLOP/s, where FLOPs were stated and time has passed.
fn gflops(tile: &TileStats) -> Option<f64> {
    (tile.total_ns > 0 && tile.total_flops > 0).then(|| tile.gflops())
}

/// FLOPs for each byte, where FLOPs and elements were stated.
fn intensity(tile: &TileStats) -> Option<f64> {
    (tile.total_elements > 0 && tile.total_flops > 0).then(|| tile.arithmetic_intensity())
}

pub(super) fn tile_table(tiles: &[TileStats]) -> String {
    let mut text = String::from(
        "=== Tile Profiling Summary ===\n\
         Level       Samples   Avg µs    GFLOP/s   AI      Elements\n",
    );
    for tile in tiles.iter().filter(|tile| tile.count > 0) {
        let shown = |value: Option<f64>| value.map_or("n/a".to_owned(), |v| format!("{v:.2}"));
        let (gflops, intensity) = (shown(gflops(tile)), shown(intensity(tile)));
        let _ = writeln!(
            text,
            "{:8}  {:9}  {:8.1}  {gflops:>8}  {intensity:>4}  {:10}",
            tile.level.name(),
            tile.count,
            tile.avg_us(),
            tile.total_elements / tile.count
        );
    }
    text
}

pub(super) fn tiles_json(enabled: bool, tiles: &[TileStats]) -> String {
    let tiles: Vec<_> = tiles
        .iter()
        .filter(|tile| tile.count > 0)
        .map(|tile| {
            json!({
                "level": tile.level.name(),
                "count": tile.count,
                "tiles_in_runs": tile.tiles_in_runs,
                "total_ns": tile.total_ns,
                "avg_us": tile.avg_us(),
                "min_us": tile.min_ns as f64 / 1e3,
                "max_us": tile.max_ns as f64 / 1e3,
                "gflops": gflops(tile),
                "arithmetic_intensity": intensity(tile),
                "total_elements": tile.total_elements,
                "total_flops": tile.total_flops,
            })
        })
        .collect();
    json!({"tile_profiling_enabled": enabled, "tiles": tiles}).to_string()
}
