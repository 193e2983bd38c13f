//! The latency of tokens, and the bricks behind the slow ones.

use std::fmt::Write;

use brickscope_profile::{Durations, Pass, Phase};
use serde_json::json;

use super::figure::{Unit, absent, count, percent, signed, time};
use super::html::{Table, details, note, part, parts, reason, said};
use super::source::Source;

/// The number of bars of the distribution.
const BINS: u64 = 32;

/// The picture of the distribution, in its own units.
const WIDE: f64 = 720.0;
const HIGH: f64 = 202.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 32.0;
const FLOOR: f64 = 152.0;

pub(super) fn section(source: &Source<'_>) -> String {
    let profile = source.profile;
    let latency = &profile.latency;
    let mut html = String::new();
    if latency.first_token.count == 0 && latency.per_token.count == 0 {
        return String::new();
    }
    let columns = [
        "Tokens",
        "#Count",
        "#Mean",
        "#Deviation",
        "#Least",
        "#p50",
        "#p90",
        "#p95",
        "#p99",
        "#Most",
    ];
    let mut table = Table::new("Times of tokens", &columns);
    // A pass of a server may be a piece of a prompt, and have tokens of several requests.
    let [first, each] = match latency.of_requests || profile.parts.is_empty() {
        true => ["first", "each further"],
        false => ["a prefill", "a pass of one token"],
    };
    for (name, place, of) in
        [(first, "first_token", &latency.first_token), (each, "per_token", &latency.per_token)]
    {
        if of.count > 0 {
            durations(source, name, place, of, &mut table);
        }
    }
    html.push_str(&table.end());
    html.push_str(&note("Percentiles of too few tokens are not shown."));
    html.push_str(&parts(&(part(&distribution(source)) + &part(&slow(source)))));
    html
}

fn durations(source: &Source<'_>, name: &str, place: &str, of: &Durations, table: &mut Table) {
    let at = |field: &str| source.at(&format!("/latency/{place}/{field}"));
    let whole =
        |ns: Option<u64>, field: &str| ns.map_or_else(|| absent("-"), |ns| time(ns, at(field)));
    let float =
        |ns: Option<f64>, field: &str| ns.map_or_else(|| absent("-"), |ns| time(ns, at(field)));
    let percentiles = &of.percentiles;
    table.row(&[
        name,
        &count(of.count, at("count")),
        &float(of.mean_ns, "mean_ns"),
        &float(of.std_dev_ns, "std_dev_ns"),
        &whole(of.min_ns, "min_ns"),
        &whole(percentiles.p50_ns, "p50_ns"),
        &whole(percentiles.p90_ns, "p90_ns"),
        &whole(percentiles.p95_ns, "p95_ns"),
        &whole(percentiles.p99_ns, "p99_ns"),
        &whole(of.max_ns, "max_ns"),
    ]);
}

/// The distribution of the times of passes of one token.
fn distribution(source: &Source<'_>) -> String {
    if source.profile.kept.is_some() {
        return reason(
            "Passes were kept by how slow they are, so their distribution is not that of all tokens: the table above is of \
             all.",
        );
    }
    let is_token =
        |pass: &&Pass| pass.phase == Phase::Decode && pass.tokens == 1 && !pass.is_left_out;
    let walls = || source.profile.passes.iter().filter(is_token).map(|pass| pass.wall_ns);
    let (Some(least), Some(most)) = (walls().min(), walls().max()) else {
        return reason("Single passes were not kept, so their distribution is unknown.");
    };
    let width = most.saturating_sub(least) / BINS + 1;
    let mut bins = vec![0_u64; BINS as usize];
    walls().for_each(|ns| bins[((ns - least) / width).min(BINS - 1) as usize] += 1);
    let highest = bins.iter().copied().max().unwrap_or(1);
    let mut svg = format!(
        "<figure class=\"distribution\"><svg viewBox=\"0 0 {WIDE} {HIGH}\" role=\"img\" aria-label=\"Distribution of the times \
         of tokens: the table below has its numbers\">\n"
    );
    svg.push_str(&axes(least, width, highest));
    let bin = (WIDE - LEFT) / BINS as f64;
    let unit = Unit::of(most);
    let columns =
        [format!("#From, {}", unit.name), format!("#Below, {}", unit.name), "#Tokens".to_owned()];
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("Distribution of the times of tokens", &columns);
    for (nth, &tokens) in bins.iter().enumerate() {
        let from_ns = least.saturating_add((nth as u64).saturating_mul(width));
        let below_ns = from_ns.saturating_add(width);
        if tokens > 0 {
            let height = (FLOOR - TOP) * tokens as f64 / highest as f64;
            let _ = writeln!(
                svg,
                "<rect class=\"c-path\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
                LEFT + nth as f64 * bin + 1.0,
                FLOOR - height,
                bin - 2.0
            );
            // The limits of a bar are chosen, not measured.
            let border = |ns: u64| unit.show(ns, json!(["const", ns]));
            let filter =
                json!({"phase": "decode", "tokens": 1, "from_ns": from_ns, "below_ns": below_ns});
            let from = json!(["passes", source.base, filter]);
            table.row(&[&border(from_ns), &border(below_ns), &count(tokens, from)]);
        }
    }
    svg.push_str("</svg></figure>\n");
    svg + &details("The distribution as a table", &table.end())
}

/// The axes: how many tokens, over how long they took.
fn axes(least: u64, width: u64, highest: u64) -> String {
    let mut svg = String::new();
    for (y, tokens) in [(FLOOR, 0), (TOP, highest)] {
        let class = if tokens == 0 { "axis" } else { "grid" };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{y}\" x2=\"{WIDE}\" y2=\"{y}\"/>\
             <text data-text=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tokens}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (nth, anchor) in [(0, "start"), (BINS / 2, "middle"), (BINS, "end")] {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            LEFT + (WIDE - LEFT) * nth as f64 / BINS as f64,
            FLOOR + 22.0,
            tick(least.saturating_add(nth.saturating_mul(width)))
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"4\" y=\"14\">tokens</text><text x=\"{WIDE}\" y=\"{:.1}\" text-anchor=\"end\">time of a token</text>",
        FLOOR + 46.0
    );
    svg
}

/// A time on an axis.
fn tick(ns: u64) -> String {
    let (unit, per) = match ns {
        ..1_000 => ("ns", 1.0),
        1_000..1_000_000 => ("µs", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    format!("<tspan data-text=\"tick\">{:.2} {unit}</tspan>", ns as f64 / per)
}

fn slow(source: &Source<'_>) -> String {
    let latency = &source.profile.latency;
    let Some(slow) = &latency.slow else {
        return latency.slow_absent.as_ref().map_or_else(String::new, |absent| {
            format!("<h3>What makes slow tokens slow</h3>\n{}", reason(&absent.reason))
        });
    };
    let at = |field: &str| source.at(&format!("/latency/slow/{field}"));
    let mut html = format!(
        "<h3>What makes slow tokens slow</h3>\n<p>The slowest {} took {} longer each than the {} of the faster half. \
         By brick:</p>\n",
        count(slow.slow, at("slow")),
        time(slow.extra_ns, at("extra_ns")),
        count(slow.fast, at("fast")),
    );
    let most =
        slow.bricks.iter().map(|brick| brick.extra_ns.abs()).fold(slow.extra_ns.abs(), f64::max);
    let (unit, per) = if most < 1e7 { ("µs", 1e3) } else { ("ms", 1e6) };
    let extra = format!("#Longer, {unit}");
    let mut table = Table::of_class(
        "bricks",
        "Bricks behind the slow tokens",
        &["Brick", "Share", "#%", &extra],
    );
    let parts =
        slow.bricks.iter().enumerate().take(24).map(|(n, brick)| {
            (said(&brick.name), brick.extra_ns, at(&format!("bricks/{n}/extra_ns")))
        });
    let rest = ("unattributed".to_owned(), slow.unattributed_extra_ns, at("unattributed_extra_ns"));
    for (name, extra, from) in parts.chain([rest]) {
        let share = extra / slow.extra_ns;
        table.row(&[
            &name,
            &super::html::bar(share, "c-slow"),
            &percent(share, super::figure::div(from.clone(), at("extra_ns"))),
            &signed(extra, per, 2, "", from),
        ]);
    }
    html.push_str(&table.end());
    html
}
