//! Two runs side by side: the library's verdicts, then the figures of both.

use std::collections::BTreeSet;

use brickscope_analysis::compare::{Change, Comparison, Sample, TestChange, Verdict};
use brickscope_analysis::view;
use brickscope_profile::{Phase, Profile};
use serde_json::json;

use super::figure::{From, Unit, absent, count, counted, div, percent, signed, sub, time};
use super::html::{Table, bar, called, note, reason, said, told};
use super::page::Section;
use super::source::{Source, heading};
use super::{difference, overview};

/// The most rows of a table.
const MOST_ROWS: usize = 60;

pub(super) fn head(names: [&str; 2], comparison: &Result<Comparison, String>) -> String {
    let [a, b] = names;
    let mut html = format!(
        "<p class=\"kind\">Two runs compared</p>\n<h1><span class=\"side\">A</span> {} <span class=\"side\">B</span> {}</h1>\n",
        called(a),
        called(b)
    );
    match comparison {
        Ok(comparison) => {
            let headline = view::comparison_headline(comparison);
            html.push_str(&format!("<p class=\"headline\">{}</p>\n", told(&headline)));
        }
        Err(why) => html.push_str(&format!(
            "<div class=\"banner warn\" role=\"note\"><strong>No verdict.</strong> {}</div>\n",
            sentences(why)
        )),
    }
    html
}

/// A text of several lines, such as one that lists differences.
fn sentences(text: &str) -> String {
    text.lines().map(|line| told(line.trim())).collect::<Vec<_>>().join("<br>")
}

pub(super) fn verdicts(comparison: &Result<Comparison, String>) -> String {
    let comparison = match comparison {
        Ok(comparison) => comparison,
        Err(why) => return format!("<p class=\"reason\">{}</p>\n", sentences(why)),
    };
    let from = |pointer: String| -> From { json!(["compare", pointer]) };
    let mut html = String::new();
    for (side, letter, field) in [(&comparison.a, "A", "a"), (&comparison.b, "B", "b")] {
        html.push_str(&note(&format!(
            "{letter}: {}, {}, {}, {} of them disturbed by other work",
            called(&side.name),
            counted(side.processes as u64, "process", from(format!("/{field}/processes"))),
            counted(side.samples, "sample", from(format!("/{field}/samples"))),
            count(side.disturbed, from(format!("/{field}/disturbed")))
        )));
        for (_, warning) in side.doubts.iter().take(12) {
            html.push_str(&note(&format!("{letter}: {}", told(warning))));
        }
    }
    for (nth, test) in comparison.tests.iter().enumerate().take(24) {
        html.push_str(&of_test(test, &|rest| from(format!("/tests/{nth}{rest}"))));
    }
    html.push_str(&note(
        "The comparison is between processes, however many passes each ran. Two single runs can’t distinguish a \
        change from the variation between runs; sets from <code>brickscope benchmark --processes N</code> can.",
    ));
    html
}

fn of_test(test: &TestChange, from: &dyn Fn(String) -> From) -> String {
    let most = [test.whole.a_ns, test.whole.b_ns].into_iter().flatten().fold(0.0, f64::max);
    let unit = Unit::of(most as u64);
    let (a, b) = (format!("#A, {}", unit.name), format!("#B, {}", unit.name));
    let caption = format!("{}: one sample on each side", called(&test.name));
    let columns = ["Part", &a, &b, "#Change", "#from", "#to", "Verdict"];
    let mut table = Table::of_class("verdicts", &caption, &columns);
    let whole = match test.sample {
        Sample::Repetition => "the whole",
        Sample::Pass => "one pass",
    };
    row(&mut table, whole, "wall", &test.whole, unit, &|field| from(format!("/whole/{field}")));
    for (n, change) in test.categories.iter().enumerate() {
        row(&mut table, &said(&change.name), "category", change, unit, &|field| {
            from(format!("/categories/{n}/{field}"))
        });
    }
    for (n, change) in test.bricks.iter().enumerate().take(MOST_ROWS) {
        row(&mut table, &said(&change.name), "", change, unit, &|field| {
            from(format!("/bricks/{n}/{field}"))
        });
    }
    let mut html = table.end();
    let reasons: BTreeSet<&String> = [&test.whole]
        .into_iter()
        .chain(&test.categories)
        .chain(&test.bricks)
        .filter_map(|change| change.reason.as_ref())
        .collect();
    for why in reasons.into_iter().take(12) {
        html.push_str(&reason(why));
    }
    for (name, only) in [("A", &test.only_in_a), ("B", &test.only_in_b)] {
        if !only.is_empty() {
            let names: Vec<String> = only.iter().take(20).map(|name| said(name)).collect();
            html.push_str(&note(&format!("Only in {name}: {}", names.join(", "))));
        }
    }
    html
}

fn row(
    table: &mut Table,
    name: &str,
    class: &str,
    change: &Change,
    unit: Unit,
    from: &dyn Fn(&str) -> From,
) {
    let part = |value: Option<f64>, field: &str| {
        value.map_or_else(|| absent("n/a"), |part| signed(part, 0.01, 2, " %", from(field)))
    };
    let time = |ns: Option<f64>, field: &str| {
        ns.map_or_else(|| absent("absent"), |ns| unit.show(ns, from(field)))
    };
    let (verdict, mark) = match change.verdict {
        Verdict::Slower => ("slower", "▲ "),
        Verdict::Faster => ("faster", "▼ "),
        Verdict::Unchanged => ("unchanged", ""),
        Verdict::Inconclusive => ("inconclusive", ""),
    };
    table.row_of(
        class,
        &[
            name,
            &time(change.a_ns, "a_ns"),
            &time(change.b_ns, "b_ns"),
            &part(change.change, "change"),
            &part(change.low, "low"),
            &part(change.high, "high"),
            &format!("<span class=\"verdict {verdict}\">{mark}{verdict}</span>"),
        ],
    );
}

/// The figures of both runs side by side, or why one has none.
pub(super) fn side_by_side(runs: [&Result<Profile, String>; 2]) -> Vec<Section> {
    let mut html = String::new();
    let mut profiles = Vec::new();
    for (run, letter) in runs.into_iter().zip(["A", "B"]) {
        match run {
            Ok(profile) => profiles.push((letter, profile)),
            Err(why) => html.push_str(&reason(&format!("{letter}: {why}"))),
        }
    }
    let mut cards = String::new();
    for (letter, profile) in &profiles {
        let run = format!("{letter}:");
        let name = called(&overview::title(profile, letter));
        cards.push_str(&format!("<h3><span class=\"side\">{letter}</span> {name}</h3>\n"));
        cards.push_str(&format!("<p class=\"facts\">{}</p>\n", overview::facts(profile, &run)));
        cards.push_str(&overview::notes(profile, &run));
        cards.push_str(&overview::cards(profile, profile, &format!("{letter}:")));
    }
    let mut sections = vec![Section {
        id: "figures",
        title: "Both runs",
        lead: "The main figures of both runs.",
        html: html + &cards,
    }];
    if let [(_, a), (_, b)] = profiles[..] {
        sections.push(Section {
            id: "bricks",
            title: "Bricks side by side",
            lead: "Time per token of each brick, or per pass where tokens aren’t stated. Differences between single runs aren’t verdicts.",
            html: bricks(a, b),
        });
        sections.push(Section {
            id: "layers",
            title: "Layers side by side",
            lead: "The layers and bricks in which a token takes longer in B than in A.",
            html: difference::section([&Source::host(a, "A:"), &Source::host(b, "B:")]),
        });
        sections.push(Section {
            id: "tokens",
            title: "Tokens",
            lead: "How long a user waits for each token, in both runs.",
            html: tokens(a, b),
        });
    }
    sections
}

fn bricks(a: &Profile, b: &Profile) -> String {
    let sources = [Source::host(a, "A:"), Source::host(b, "B:")];
    let mut html = String::new();
    for phase in Phase::SHOWN {
        let (Some(of_a), Some(of_b)) = (a.phase(phase), b.phase(phase)) else { continue };
        // A trace of another program may not say how many tokens its passes had.
        let has_tokens = of_a.tokens > 0 && of_b.tokens > 0;
        let (what, field) = if has_tokens { ("token", "tokens") } else { ("pass", "passes") };
        let n = [of_a, of_b].map(|of| if has_tokens { of.tokens } else { of.passes });
        if n.contains(&0) {
            continue;
        }
        let each = |ns: u64, side: usize| ns as f64 / n[side] as f64;
        let from = |side: usize, from: From| div(from, sources[side].of_phase(phase, field));
        let unit = Unit::of(each(of_a.wall_ns, 0).max(each(of_b.wall_ns, 1)) as u64);
        let columns = [
            format!("#A, {} a {what}", unit.name),
            format!("#B, {} a {what}", unit.name),
            format!("#B − A, {}", unit.name),
        ];
        let columns = [
            "Brick",
            "Share: A above, B below",
            "#A, %",
            "#B, %",
            &columns[0],
            &columns[1],
            &columns[2],
        ];
        let caption = format!("Bricks of {phase}, side by side");
        let mut table = Table::of_class("bricks", &caption, &columns);
        // The bricks of A, the longest first, then those that only B has.
        let mut names: Vec<&str> = Vec::new();
        let mut known = BTreeSet::new();
        let (of_side_a, of_side_b) = (a.bricks(Some(phase)), b.bricks(Some(phase)));
        for total in of_side_a.iter().chain(&of_side_b) {
            if known.insert(total.stats.name.as_str()) {
                names.push(&total.stats.name);
            }
        }
        let sides = [&of_side_a, &of_side_b];
        let walls = [of_a.wall_ns, of_b.wall_ns];
        // A brick may have a row for each source of its times.
        let sum = |side: usize, name: &str| -> Option<(u64, From)> {
            let totals = sides[side].iter().filter(|total| total.stats.name == name);
            let froms = totals.clone().map(|t| sources[side].of_total(t, "exclusive_ns"));
            let froms: Vec<From> = froms.collect();
            let ns = totals.fold(0, |sum, t| u64::saturating_add(sum, t.stats.exclusive_ns));
            (!froms.is_empty()).then(|| (ns, super::figure::sum(froms)))
        };
        let mut add = |name: &str, class: &str, of: [Option<(u64, From)>; 2]| {
            let time = |side: usize| {
                let of: Option<&(u64, From)> = of[side].as_ref();
                of.map_or_else(
                    || absent("absent"),
                    |(ns, place)| unit.show(each(*ns, side), from(side, place.clone())),
                )
            };
            let share = |side: usize| {
                let of: Option<&(u64, From)> = of[side].as_ref();
                of.map_or_else(
                    || absent("absent"),
                    |(ns, place)| {
                        let whole = sources[side].of_phase(phase, "wall_ns");
                        percent(*ns as f64 / walls[side] as f64, div(place.clone(), whole))
                    },
                )
            };
            let apart = match &of {
                [Some((of_a, place_a)), Some((of_b, place_b))] => unit.signed(
                    each(*of_b, 1) - each(*of_a, 0),
                    sub(from(1, place_b.clone()), from(0, place_a.clone())),
                ),
                _ => absent("-"),
            };
            // Decoration: the numbers are next to it.
            let pair = match class {
                "wall" => String::new(),
                _ => [(0, "c-side-a"), (1, "c-side-b")]
                    .map(|(side, colour): (usize, _)| {
                        let ns = of[side].as_ref().map(|(ns, _)| *ns);
                        ns.map_or_else(String::new, |ns| {
                            bar(ns as f64 / walls[side] as f64, colour)
                        })
                    })
                    .concat(),
            };
            let cells = [name, &pair, &share(0), &share(1), &time(0), &time(1), &apart];
            table.row_of(class, &cells);
        };
        for name in names.iter().take(MOST_ROWS) {
            add(&said(name), "", [sum(0, name), sum(1, name)]);
        }
        for (name, field, class) in
            [("unattributed", "unattributed_ns", "unattributed"), ("wall", "wall_ns", "wall")]
        {
            let of = |side: usize, total: &brickscope_profile::PhaseTotal| {
                let ns = if class == "wall" { total.wall_ns } else { total.unattributed_ns };
                Some((ns, sources[side].of_phase(phase, field)))
            };
            add(name, class, [of(0, of_a), of(1, of_b)]);
        }
        html.push_str(&format!("<h3>{}</h3>\n{}", heading(Some(phase)), table.end()));
    }
    if html.is_empty() { reason("No phase was recorded on both sides.") } else { html }
}

fn tokens(a: &Profile, b: &Profile) -> String {
    let columns = ["Tokens", "#A", "#B", "#of A", "#of B"];
    let mut table = Table::new("Times of tokens", &columns);
    let mut any = false;
    for (title, place) in [("first", "first_token"), ("each further", "per_token")] {
        let of = |profile: &Profile| {
            let latency = profile.latency.clone();
            if place == "first_token" { latency.first_token } else { latency.per_token }
        };
        let sides = [of(a), of(b)];
        let at = |side: usize, field: &str| -> From {
            json!(format!("{}:/latency/{place}/{field}", ["A", "B"][side]))
        };
        let counted = |side: usize| count(sides[side].count, at(side, "count"));
        let mut add = |name: &str, field: &str, values: [Option<f64>; 2]| {
            if values.iter().all(Option::is_none) {
                return;
            }
            any = true;
            let cell = |side: usize| {
                values[side].map_or_else(|| absent("-"), |ns| time(ns, at(side, field)))
            };
            table.row(&[&format!("{title}, {name}"), &cell(0), &cell(1), &counted(0), &counted(1)]);
        };
        add("mean", "mean_ns", [sides[0].mean_ns, sides[1].mean_ns]);
        for (name, field) in [("p50", "p50_ns"), ("p90", "p90_ns"), ("p99", "p99_ns")] {
            let of = |side: usize| {
                let percentiles = &sides[side].percentiles;
                let ns = match field {
                    "p50_ns" => percentiles.p50_ns,
                    "p90_ns" => percentiles.p90_ns,
                    _ => percentiles.p99_ns,
                };
                ns.map(|ns| ns as f64)
            };
            add(name, field, [of(0), of(1)]);
        }
    }
    if any { table.end() } else { reason("No tokens were timed on either side.") }
}
