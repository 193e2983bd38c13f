//! Two runs side by side: the library's verdicts, then the figures of both.

use std::collections::{BTreeMap, BTreeSet};

use brickscope_analysis::compare::{Change, Comparison, Sample, TestChange, Verdict};
use brickscope_analysis::{place, view};
use brickscope_profile::{Absent, DeviceProfile, DeviceStream, NameKind, Phase, Profile, Total};
use serde_json::json;

use super::apart::{A, B, apart};
use super::figure::{
    From, Unit, absent, count, counted, div, percent, signed, sub, time, times as ratio,
};
use super::html::{Table, bar, called, note, reason, said, told};
use super::page::Section;
use super::source::{Source, heading};
use super::{difference, overview, ranks};

/// The most rows of a table.
const MOST_ROWS: usize = 60;
/// The most tests.
const MOST_TESTS: usize = 24;
/// The fields of the times of both sides, in a comparison as JSON.
const SIDES: [&str; 2] = ["a_ns", "b_ns"];

pub(super) fn head(
    names: [&str; 2],
    comparison: &Result<Comparison, String>,
    runs: [&Result<Profile, String>; 2],
) -> String {
    let [a, b] = names;
    let [of_a, of_b] = apart(runs);
    let mut html = format!(
        "<p class=\"kind\">Two runs compared</p>\n<h1>{A} {}{of_a} {B} {}{of_b}</h1>\n",
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

/// Whether any row of the verdicts says more than that nothing can be said, or there is no verdict at all.
pub(super) fn decides(comparison: &Result<Comparison, String>) -> bool {
    let Ok(comparison) = comparison else { return true };
    let is_decided = |change: &Change| change.verdict != Verdict::Inconclusive;
    comparison.tests.iter().any(|test| {
        let mut parts = test.categories.iter().chain(&test.bricks);
        is_decided(&test.whole) || parts.any(is_decided)
    })
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
        for warning in view::doubts(side).into_iter().take(40) {
            html.push_str(&note(&format!("{letter}, {}", told(&warning))));
        }
    }
    for (nth, test) in comparison.tests.iter().enumerate().take(MOST_TESTS) {
        html.push_str(&of_test(test, &|rest| from(format!("/tests/{nth}{rest}"))));
    }
    if comparison.a.processes.min(comparison.b.processes) == 1 {
        html.push_str(&note(
            "The comparison is between processes, however many passes each ran. Two single runs can’t distinguish a \
            change from the variation between runs; sets from <code>brickscope benchmark --processes N</code> can.",
        ));
    }
    html
}

fn of_test(test: &TestChange, from: &dyn Fn(String) -> From) -> String {
    let most = [test.whole.a_ns, test.whole.b_ns].into_iter().flatten().fold(0.0, f64::max);
    let unit = Unit::of(most as u64);
    let (a, b) = (format!("#A, {}", unit.name), format!("#B, {}", unit.name));
    // With several processes it is the typical one of these.
    let (whole, one) = match test.sample {
        Sample::Repetition => ("the whole", "a typical repetition"),
        Sample::Pass => ("one pass", "a typical pass"),
        Sample::Token => ("one token", "a typical token"),
    };
    let caption = format!("{}: {one} on each side", called(&test.name));
    let bare = test.is_bare();
    let columns: &[&str] = match bare {
        true => &["Part", &a, &b, "#B:A", "Verdict"],
        false => &["Part", &a, &b, "#Change", "#from", "#to", "Verdict"],
    };
    let row = if bare { bare_row } else { row };
    let mut table = Table::of_class("verdicts", &caption, columns);
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

fn time_or_absent(ns: Option<f64>, unit: Unit, from: From) -> String {
    ns.map_or_else(|| absent("absent"), |ns| unit.show(ns, from))
}

fn bare_row(
    table: &mut Table,
    name: &str,
    class: &str,
    change: &Change,
    unit: Unit,
    from: &dyn Fn(&str) -> From,
) {
    let time = |ns, field| time_or_absent(ns, unit, from(field));
    let times = change.a_ns.zip(change.b_ns).filter(|(a, _)| *a > 0.0);
    let times =
        times.map_or_else(|| absent("-"), |(a, b)| ratio(b / a, div(from("b_ns"), from("a_ns"))));
    let verdict = change.verdict.name();
    table.row_of(
        class,
        &[
            name,
            &time(change.a_ns, "a_ns"),
            &time(change.b_ns, "b_ns"),
            &times,
            &format!("<span class=\"verdict {verdict}\">{verdict}</span>"),
        ],
    );
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
    let time = |ns, field| time_or_absent(ns, unit, from(field));
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
pub(super) fn side_by_side(
    runs: [&Result<Profile, String>; 2],
    comparison: &Result<Comparison, String>,
) -> Vec<Section> {
    let mut html = String::new();
    let mut profiles = Vec::new();
    for (run, letter) in runs.into_iter().zip(["A", "B"]) {
        match run {
            Ok(profile) => profiles.push((letter, profile)),
            Err(why) => html.push_str(&reason(&format!("{letter}: {why}"))),
        }
    }
    let mut cards = String::new();
    let [of_a, of_b] = apart(runs);
    for (letter, profile) in &profiles {
        let run = format!("{letter}:");
        let name = called(&overview::title(profile, letter));
        let (mark, apart) = if *letter == "A" { (A, &of_a) } else { (B, &of_b) };
        cards.push_str(&format!("<h3>{mark} {name}{apart}</h3>\n"));
        cards.push_str(&format!("<p class=\"facts\">{}</p>\n", overview::facts(profile, &run)));
        cards.push_str(&overview::notes(profile, &run));
        cards.push_str(&overview::cards(profile, profile, &format!("{letter}:")));
    }
    // Two sets of runs, which were compared, have no one run to show.
    let are_sets = profiles.is_empty() && comparison.is_ok();
    let mut sections = Vec::new();
    if !are_sets {
        sections.push(Section {
            id: "figures",
            title: "Both runs",
            lead: "The main figures of both runs.",
            html: html + &cards,
        });
    }
    if let [(_, a), (_, b)] = profiles[..] {
        let places = [Place::of(a, "A:"), Place::of(b, "B:")];
        sections.push(Section {
            id: "bricks",
            title: "Bricks side by side",
            lead: "Time of each brick: by medians as in the verdicts, or without any by means, per token or, where tokens \
                   aren’t stated, per pass. Differences between single runs aren’t verdicts.",
            html: bricks([&places[0], &places[1]], comparison),
        });
        sections.push(Section {
            id: "layers",
            title: "Layers side by side",
            lead: "The layers and bricks in which a token takes longer in B than in A.",
            html: layers([&places[0], &places[1]]),
        });
        sections.push(Section {
            id: "ranks",
            title: "Ranks side by side",
            lead: "What each rank, or each device of one file, did by itself and waited for others, and what collectives \
                   transferred.",
            html: ranks::section(a, b),
        });
        sections.push(Section {
            id: "tokens",
            title: "Tokens",
            lead: "How long a user waits for each token, in both runs, by the host’s clock.",
            html: tokens(a, b),
        });
    }
    sections
}

/// Where a run's bricks ran: what `show`, `compare` and the verdicts above are of.
struct Place<'p> {
    profile: &'p Profile,
    /// The device that ran them, if it isn't the host that did.
    device: Option<(usize, &'p DeviceProfile)>,
    /// `A:` or `B:`.
    run: &'static str,
}

/// A figure and its place in the file.
type Figure = (u64, From);

/// The sums of a phase.
struct Sums {
    passes: Figure,
    tokens: Figure,
    wall: Figure,
    /// In no brick.
    rest: Figure,
}

impl<'p> Place<'p> {
    fn of(profile: &'p Profile, run: &'static str) -> Self {
        let device = place::shown_first(profile);
        let device = device.and_then(|index| Some((index, profile.devices.get(index)?)));
        Self { profile, device, run }
    }

    /// The beginning of its pointers: of the host, or of a device's stream.
    fn base(&self, stream: usize) -> String {
        let run = self.run;
        match self.device {
            Some((device, _)) => format!("{run}/devices/{device}/streams/{stream}"),
            None => run.to_owned(),
        }
    }

    /// The sums of a phase, or why they aren't known.
    fn sums(&self, phase: Phase) -> Result<Option<Sums>, Absent> {
        let phases = match self.device {
            None => &self.profile.phases,
            Some((_, DeviceProfile { streams, .. })) if streams.len() == 1 => &streams[0].phases,
            Some((index, device)) => {
                let has_phase = |of: &DeviceStream| of.passes.iter().any(|p| p.phase == phase);
                if !device.streams.iter().any(has_phase) {
                    return Ok(None);
                }
                let busy = device.busy(Some(phase))?;
                let base = format!("{}/devices/{index}", self.run);
                let at = |field: &str| json!(["busy", base, phase.name(), field]);
                return Ok(Some(Sums {
                    passes: (busy.passes, at("passes")),
                    // Each stream has the pass and its tokens, and they can't be summed.
                    tokens: (0, at("passes")),
                    wall: (busy.span_ns, at("span_ns")),
                    rest: (busy.idle_ns, at("idle_ns")),
                }));
            }
        };
        let nth = phases.iter().position(|of| of.phase == phase);
        Ok(nth.map(|nth| {
            let of = &phases[nth];
            let at = |field: &str| json!(format!("{}/phases/{nth}/{field}", self.base(0)));
            Sums {
                passes: (of.passes, at("passes")),
                tokens: (of.tokens, at("tokens")),
                wall: (of.wall_ns, at("wall_ns")),
                rest: (of.unattributed_ns, at("unattributed_ns")),
            }
        }))
    }

    /// The time of each brick, on all streams of a device, the longest first.
    fn bricks(&self, phase: Phase) -> Vec<(&'p str, Figure)> {
        let all: Vec<&'p [Total]> = match self.device {
            None => vec![&self.profile.totals],
            Some((_, device)) => device.streams.iter().map(|of| &of.totals[..]).collect(),
        };
        // A brick may have a row for each source of its times, and on each stream.
        let mut sums: BTreeMap<&str, (u64, Vec<From>)> = BTreeMap::new();
        for (stream, totals) in all.into_iter().enumerate() {
            for (nth, total) in totals.iter().enumerate() {
                if total.phase == Some(phase) && total.kind == NameKind::Brick {
                    let (ns, froms) = sums.entry(&total.stats.name).or_default();
                    *ns = ns.saturating_add(total.stats.exclusive_ns);
                    let base = self.base(stream);
                    froms.push(json!(format!("{base}/totals/{nth}/exclusive_ns")));
                }
            }
        }
        let sums = sums.into_iter();
        let mut bricks: Vec<(&str, Figure)> =
            sums.map(|(name, (ns, froms))| (name, (ns, super::figure::sum(froms)))).collect();
        bricks.sort_by_key(|(_, (ns, _))| std::cmp::Reverse(*ns));
        bricks
    }
}

/// Says where the figures of both runs are from, if not from the host's clock.
fn of_places(places: [&Place<'_>; 2]) -> String {
    let told = places.iter().filter_map(|of| {
        let (_, device) = of.device?;
        let letter = of.run.trim_end_matches(':');
        Some(note(&format!(
            "{letter}: what ran on {}, by its clock, on all of its streams; where these ran at once, bricks are more than the \
             wall. The report of {letter} alone has the host, too.",
            said(&device.name)
        )))
    });
    told.collect()
}

/// The layers of both runs, if each has one clock's spans.
fn layers(places: [&Place<'_>; 2]) -> String {
    let mut owned = Vec::new();
    for of in places {
        match of.device {
            None => owned.push(None),
            Some((index, device)) if device.streams.len() == 1 => {
                owned.push(of.profile.on_device(index, 0));
            }
            Some(_) => {
                return reason("A device ran several streams, whose layers aren’t compared.");
            }
        }
    }
    let source = |side: usize| match &owned[side] {
        None => Source::host(places[side].profile, places[side].run),
        Some(profile) => {
            let base = places[side].base(0);
            Source { title: None, base, profile, is_device: true, device: None, judged: None }
        }
    };
    difference::section([&source(0), &source(1)])
}

fn bricks(places: [&Place<'_>; 2], comparison: &Result<Comparison, String>) -> String {
    let mut html = String::new();
    let mut unknown = String::new();
    for phase in Phase::SHOWN {
        let verdicts = of_verdicts(places, comparison, phase);
        if !verdicts.is_empty() {
            html.push_str(&format!("<h3>{}</h3>\n{verdicts}", heading(Some(phase))));
            continue;
        }
        let sums = places.map(|place| place.sums(phase));
        for (side, place) in sums.iter().zip(places) {
            if let Err(why) = side {
                let letter = place.run.trim_end_matches(':');
                unknown.push_str(&reason(&format!("{letter}, {phase}: {}", why.reason)));
            }
        }
        let [Ok(Some(of_a)), Ok(Some(of_b))] = &sums else { continue };
        let sums = [of_a, of_b];
        // A trace of another program may not say how many tokens its passes had.
        let has_tokens = sums.iter().all(|of| of.tokens.0 > 0);
        let what = if has_tokens { "token" } else { "pass" };
        let n = sums.map(|of| if has_tokens { &of.tokens } else { &of.passes });
        if n.iter().any(|(n, _)| *n == 0) {
            continue;
        }
        let each = |ns: u64, side: usize| ns as f64 / n[side].0 as f64;
        let from = |side: usize, from: From| div(from, n[side].1.clone());
        let unit = Unit::of(each(of_a.wall.0, 0).max(each(of_b.wall.0, 1)) as u64);
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
        let sides = places.map(|place| place.bricks(phase));
        for (name, _) in sides.iter().flatten() {
            if known.insert(*name) {
                names.push(name);
            }
        }
        let walls = sums.map(|of| of.wall.0);
        let sum = |side: usize, name: &str| -> Option<Figure> {
            let found = sides[side].iter().find(|(of, _)| *of == name);
            found.map(|(_, figure)| figure.clone())
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
                        let whole = sums[side].wall.1.clone();
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
        let is_device = places.iter().all(|place| place.device.is_some());
        let rest = if is_device { "gaps" } else { "unattributed" };
        add(rest, "unattributed", sums.map(|of| Some(of.rest.clone())));
        add("wall", "wall", sums.map(|of| Some(of.wall.clone())));
        html.push_str(&format!("<h3>{}</h3>\n{}", heading(Some(phase)), table.end()));
    }
    match html.is_empty() {
        true => unknown + &reason("No phase was recorded on both sides."),
        false => of_places(places) + &html + &unknown,
    }
}

/// The tables of a phase's tests by the figures of the verdicts; empty without any.
fn of_verdicts(
    places: [&Place<'_>; 2],
    comparison: &Result<Comparison, String>,
    phase: Phase,
) -> String {
    // Bricks on several streams add up to more than a pass.
    if places.iter().any(|place| place.device.is_some()) {
        return String::new();
    }
    let tests = comparison.iter().flat_map(|of| of.tests.iter().enumerate());
    let tests = tests.filter(|(_, test)| test.phase == Some(phase)).take(MOST_TESTS);
    tests.filter_map(|(nth, test)| of_verdict(test, nth)).collect()
}

/// Less than this part of a pass is no row: what is left may be rounding.
const LEAST_REST: f64 = 1e-4;

/// A test's bricks, what they don't add up to, and the whole.
fn of_verdict(test: &TestChange, nth: usize) -> Option<String> {
    let walls = [test.whole.a_ns?, test.whole.b_ns?];
    if test.bricks.is_empty() || walls.iter().any(|ns| *ns <= 0.0) {
        return None;
    }
    let from = |of: &str, side: usize| -> From {
        json!(["compare", format!("/tests/{nth}{of}/{}", SIDES[side])])
    };
    let unit = Unit::of(walls[0].max(walls[1]) as u64);
    let what = match test.sample {
        Sample::Repetition => "repetition",
        Sample::Pass => "pass",
        Sample::Token => "token",
    };
    let [a, b] = ["A", "B"].map(|side| format!("#{side}, {} a {what}", unit.name));
    let apart = format!("#B − A, {}", unit.name);
    let columns = ["Brick", "Share: A above, B below", "#A, %", "#B, %", &a, &b, &apart];
    let caption = format!("Bricks of {}, side by side, by medians", called(&test.name));
    let mut table = Table::of_class("bricks", &caption, &columns);
    let mut add = |name: &str, class: &str, of: [Option<(f64, From)>; 2]| {
        let share = |side: usize| match &of[side] {
            Some((ns, at)) => percent(ns / walls[side], div(at.clone(), from("/whole", side))),
            None => absent("absent"),
        };
        let time = |side: usize| match &of[side] {
            Some((ns, at)) => unit.show(*ns, at.clone()),
            None => absent("absent"),
        };
        let apart = match &of {
            [Some((a, at_a)), Some((b, at_b))] => {
                unit.signed(b - a, sub(at_b.clone(), at_a.clone()))
            }
            _ => absent("-"),
        };
        let pair = |side: usize, colour: &str| match &of[side] {
            Some((ns, _)) if class != "wall" => bar(ns / walls[side], colour),
            _ => String::new(),
        };
        // Decoration: the numbers are next to it.
        let pair = pair(0, "c-side-a") + &pair(1, "c-side-b");
        let cells = [name, &pair, &share(0), &share(1), &time(0), &time(1), &apart];
        table.row_of(class, &cells);
    };
    let figure = |n: usize, change: &Change, side: usize| {
        let ns = [change.a_ns, change.b_ns][side]?;
        Some((ns, from(&format!("/bricks/{n}"), side)))
    };
    for (n, change) in test.bricks.iter().enumerate().take(MOST_ROWS) {
        add(&said(&change.name), "", [figure(n, change, 0), figure(n, change, 1)]);
    }
    let rest = [0, 1].map(|side| {
        let all = test.bricks.iter().enumerate().take(MOST_ROWS);
        let (times, froms): (Vec<f64>, Vec<From>) =
            all.filter_map(|(n, change)| figure(n, change, side)).unzip();
        let ns = walls[side] - times.iter().sum::<f64>();
        let is_much = ns.abs() > LEAST_REST * walls[side] && !froms.is_empty();
        is_much.then(|| (ns, sub(from("/whole", side), super::figure::sum(froms))))
    });
    if rest.iter().any(Option::is_some) {
        let what = match test.only_in_a.is_empty() && test.only_in_b.is_empty() {
            true => "further ones, and what medians don’t add up to",
            false => "further ones, those of one side only, and what medians don’t add up to",
        };
        add(what, "unattributed", rest);
    }
    add("the whole", "wall", [0, 1].map(|side| Some((walls[side], from("/whole", side)))));
    Some(table.end())
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
