//! The top of the page: the headline, the main figures and their caveats.

use std::borrow::Cow;

use brickscope_analysis::rate;
use brickscope_analysis::roofline::{Reach, Roofline};
use brickscope_analysis::typical::{self, Basis, Typical};
use brickscope_analysis::view;
use brickscope_profile::keep::Fired;
use brickscope_profile::{Imported, Kept, Phase, Profile, Profiled};

use super::figure::{absent, at, count, counted, div, mul, percent, scaled, signed, sum, time};
use super::html::{self, Table, attribute, note, reason, said, told};
use super::source::Source;
use serde_json::json;

/// The display name of the run: its model, or else its file.
pub(super) fn title(profile: &Profile, name: &str) -> String {
    let model = profile.model.as_ref();
    let of_model = model.map(|model| model.name.as_deref().unwrap_or(&model.path));
    let of_file = profile.imported.as_ref().map(|imported| &*imported.file);
    of_model.or(of_file).filter(|name| !name.is_empty()).unwrap_or(name).to_owned()
}

/// The head of a report of one run. `all` has the passes that `profile` leaves out, too.
pub(super) fn head(profile: &Profile, all: &Profile, name: &str) -> String {
    let mut html = format!(
        "<p class=\"kind\">Report of a run</p>\n<h1>{}</h1>\n<p class=\"facts\">{}</p>\n",
        html::called(&title(profile, name)),
        facts(profile, "")
    );
    html.push_str(&format!("<p class=\"headline\">{}</p>\n", told(&view::headline(all))));
    if has_figures(all) {
        let next = told(&view::next_step(all));
        html.push_str(&format!("<p class=\"next\"><strong>Next</strong> {next}</p>\n"));
    }
    html.push_str(&cards(profile, all, ""));
    html.push_str(&notes_with(profile, "", typical::notes(all)));
    for line in all.run.iter().flat_map(view::around) {
        html.push_str(&format!("<p class=\"facts\">{}</p>\n", told(&line)));
    }
    html
}

/// Whether anything was recorded that a next step could go by.
fn has_figures(profile: &Profile) -> bool {
    !profile.passes.is_empty() || !profile.totals.is_empty() || profile.imported.is_some()
}

/// The model, the run and the machine in one line.
pub(super) fn facts(profile: &Profile, run: &str) -> String {
    let mut parts = Vec::new();
    if let Some(model) = &profile.model {
        parts.extend([said(&model.architecture), said(&model.quantization)]);
    }
    if let Some(of) = &profile.run {
        parts.push(said(&of.backend));
        if of.threads > 0 {
            parts.push(counted(of.threads.into(), "thread", at(format!("{run}/run/threads"))));
        }
        parts.extend(of.cut_short.iter().map(|how| said(&format!("cut short: {how}"))));
        parts.extend(of.ended_by.iter().map(|by| said(&format!("ended by {by}"))));
    }
    parts.extend(profile.machine.as_ref().and_then(|machine| machine.cpu.as_deref()).map(said));
    parts.push(said(&profile.created));
    parts.retain(|part| !part.ends_with("></span>"));
    parts.join(" · ")
}

/// Caveats for the whole page: imported times, and losses.
pub(super) fn notes(profile: &Profile, run: &str) -> String {
    notes_with(profile, run, Vec::new())
}

/// `typical` are the notes about disturbed passes and stalls.
fn notes_with(profile: &Profile, run: &str, typical: Vec<String>) -> String {
    let imported = profile.imported.as_ref();
    let imported = imported.map_or_else(String::new, |of| of_other_program(profile, of, run));
    let mut dropped = profile.dropped;
    if !typical.is_empty() {
        dropped.disturbed_passes = 0;
    }
    if profile.kept.is_some() {
        // What isn't listed was not lost.
        (dropped.passes, dropped.spans) = (0, 0);
    }
    let not_finite = profile.not_finite.as_ref().map(ToString::to_string);
    // The gravest first.
    let [lost, left_out] = dropped.lost_and_left_out();
    let mut notes: Vec<String> = not_finite
        .into_iter()
        .chain(lost.lines())
        .chain(profile.fired.iter().map(Fired::line))
        .chain(profile.kept.iter().map(Kept::line))
        .chain(typical)
        .chain(view::serialised_notes(profile))
        .chain(left_out.lines())
        .collect();
    if dropped.left_out_passes > 0 {
        notes.push(LEFT_OUT.to_owned());
    }
    if Phase::SHOWN.iter().any(|&phase| goes_by_sums(profile, phase)) {
        notes.push(OF_SUMS.to_owned());
    }
    if let Err(why) = profile.check() {
        notes.push(format!("this profile is inconsistent: {why}"));
    }
    for device in &profile.devices {
        notes.extend(device.lost.as_ref().map(|why| format!("{} was lost: {why}", device.name)));
        for stream in &device.streams {
            let of = |line: String| format!("{}, {}: {line}", device.name, stream.name);
            notes.extend(stream.dropped.lines().map(of));
        }
    }
    let Some(first) = notes.first() else { return imported };
    // Closed, it is the first of them, which is the gravest.
    let line = format!("<strong>Warnings</strong> <span class=\"first\">{}</span>", told(first));
    let lines: Vec<String> = notes.iter().map(|note| format!("<li>{}</li>", told(note))).collect();
    folded("banner warn", &line, &format!("<ul>{}</ul>", lines.concat())) + &imported
}

/// One line that opens.
fn folded(class: &str, line: &str, html: &str) -> String {
    format!("<details class=\"{class}\"><summary>{line}</summary>\n{html}</details>\n")
}

/// Where figures are that are not of all passes.
const LEFT_OUT: &str = "figures on this page are without the passes that were left out: they are in the JSON \
                                   that `brickscope show --as json --leave-out-disturbed` prints, rather than in \
                                   profile.json";

/// What the figures of this page are where the headline goes by something else.
const OF_SUMS: &str = "layers, kernels and flames on this page are sums of all passes; the headline, tables of bricks \
                                  and rooflines go by what is typical, as on other screens";

/// Whether the sums of a phase, which are shown, are not what the headline goes by.
fn goes_by_sums(profile: &Profile, phase: Phase) -> bool {
    matches!(typical::judged(profile, phase), Cow::Owned(_))
}

fn of_other_program(profile: &Profile, imported: &Imported, run: &str) -> String {
    let program = imported
        .program
        .as_deref()
        .map_or_else(String::new, |program| format!(", written by {}", said(program)));
    let line = format!(
        "<strong>Imported</strong> from {} ({}){program}: its times are those of that program.",
        said(&imported.file),
        said(&imported.format)
    );
    let mut html = String::new();
    if !imported.lacks.is_empty() {
        let lines =
            imported.lacks.iter().take(40).map(|lacks| format!("<li>{}</li>", told(&lacks.reason)));
        html.push_str(&format!(" The file lacks:<ul>{}</ul>", lines.collect::<String>()));
    }
    if !imported.doubts.is_empty() {
        let lines =
            imported.doubts.iter().take(40).map(|doubt| format!("<li>{}</li>", told(doubt)));
        html.push_str(&format!(" Doubtful:<ul>{}</ul>", lines.collect::<String>()));
    }
    if !imported.left_out.is_empty() {
        let line = |(nth, (what, n)): (usize, &(String, u64))| {
            format!(
                "<li>{}: {}</li>",
                told(what),
                count(*n, at(format!("{run}/imported/left_out/{nth}/1")))
            )
        };
        let lines: String = imported.left_out.iter().enumerate().take(40).map(line).collect();
        html.push_str(&format!(" Left out:<ul>{lines}</ul>"));
    }
    let more = view::import_in_words(profile);
    if !more.is_empty() {
        let lines = more.iter().map(|what| format!("<li>{}</li>", told(what)));
        html.push_str(&format!(
            " Of its passes and kernels:<ul>{}</ul>",
            lines.collect::<String>()
        ));
    }
    if html.is_empty() {
        return format!("<div class=\"banner\" role=\"note\">{line}</div>\n");
    }
    folded("banner", &line, &html)
}

/// The main figures. `run` is the prefix of pointers, `all` has the passes that `profile` leaves out, too.
pub(super) fn cards(profile: &Profile, all: &Profile, run: &str) -> String {
    let source = Source::host(profile, run);
    // What ran on a device comes first, where the host only launched it.
    let on_devices = view::busy_in_words(profile);
    let on_host = if on_devices.is_empty() { "" } else { " on the host" };
    let of_device = |[of, part, times]: [String; 3]| (of, told(&part), told(&times));
    let mut cards: Vec<(String, String, String)> =
        on_devices.into_iter().take(MOST_DEVICES).map(of_device).collect();
    let devices = cards.len();
    for phase in Phase::SHOWN {
        let Some(total) = profile.phase(phase) else { continue };
        let name = format!("{}{on_host}", phase.heading());
        let of = |field: &str| source.of_phase(phase, field);
        if let Some(card) = benchmark(profile, all, phase, &source) {
            cards.push(card);
            continue;
        }
        let rate = total.tokens_per_second().map_or_else(
            || absent("n/a"),
            |rate| scaled(rate, 1.0, "", div(mul(json!(1e9), of("tokens")), of("wall_ns"))),
        );
        let card = if total.tokens == 0 {
            let passes = counted(total.passes, "pass", of("passes"));
            let beside = match rate::ByDevice::of(profile, phase) {
                Some(_) => format!("in {passes}; their work on devices goes on behind them"),
                None => format!("in {passes}; how many tokens they had isn’t known"),
            };
            (name, time(total.wall_ns, of("wall_ns")), beside)
        } else {
            let overlapped = rate::Overlapped::of(all, phase)
                .map_or_else(String::new, |of| format!("; {}", told(&of.to_string())));
            (
                name,
                format!("{rate} <small>tokens/s</small>"),
                format!(
                    "{} in {}{overlapped}",
                    counted(total.tokens, "token", of("tokens")),
                    time(total.wall_ns, of("wall_ns"))
                ),
            )
        };
        cards.push(card);
    }
    for phase in Phase::SHOWN {
        if let Some(Bound { by, how }) = bound(all, phase) {
            cards.push((format!("Limit of {phase}"), told(&by), told(&how)));
        }
    }
    let latency = &profile.latency.per_token;
    let place = |field: &str| source.at(&format!("/latency/per_token/{field}"));
    if let Some(p50) = latency.percentiles.p50_ns {
        let beside = match latency.percentiles.p99_ns {
            Some(p99) => format!("p99 {}", time(p99, place("p99_ns"))),
            None => {
                format!("{} are too few for a p99", counted(latency.count, "token", place("count")))
            }
        };
        // Of requests it is the wait between two tokens, in which prompts of others may run: no pass.
        let name = if profile.latency.of_requests { "Between tokens, p50" } else { "Token, p50" };
        cards.push((name.to_owned(), time(p50, place("p50_ns")), beside));
    }
    cards.extend(left_out(profile, all, &source));
    if let Some(measured) = &profile.overhead.measured {
        let of = |value, field: &str| {
            signed(value, 0.01, 2, " %", source.at(&format!("/overhead/measured/{field}")))
        };
        let (low, high) = (of(measured.low, "low"), of(measured.high, "high"));
        cards.push((
            "Profiling cost".to_owned(),
            of(measured.estimate, "estimate"),
            format!("of a decode pass, measured: {low} to {high}"),
        ));
    } else if let Some(ns) = profile.overhead.estimate_ns() {
        let overhead = |field: &str| source.at(&format!("/overhead/{field}"));
        let from = mul(overhead("span_ns"), overhead("spans"));
        let spans = counted(profile.overhead.spans, "span", overhead("spans"));
        cards.push((
            "Profiling cost".to_owned(),
            time(ns, from),
            format!("an estimate, for {spans}"),
        ));
    }
    // Of one phase: the other is in the tables of bricks.
    let first = Phase::SHOWN.into_iter().find_map(|phase| profile.phase(phase));
    let judged = first.and_then(|total| source.judged(total.phase));
    let by = judged.as_ref().zip(first).map(|(judged, of)| source.by(judged, of.phase));
    let by = by.as_ref().unwrap_or(&source);
    if let Some(total) = first.and_then(|total| by.profile.phase(total.phase)) {
        let of = |field: &str| by.of_phase(total.phase, field);
        let share = total.unattributed_ns as f64 / total.wall_ns as f64;
        cards.push((
            format!("Unattributed{on_host}"),
            percent(share, div(of("unattributed_ns"), of("wall_ns"))),
            format!("{} of {}", time(total.unattributed_ns, of("unattributed_ns")), total.phase),
        ));
    }
    if cards.is_empty() {
        let tests = tests(profile);
        return match tests.is_empty() {
            true => reason("No pass was recorded, so there are no figures."),
            false => tests,
        };
    }
    let cards: Vec<String> = cards
        .into_iter()
        .enumerate()
        .map(|(nth, (name, value, beside))| {
            // Of several devices, it has the number of one, or of its rank.
            let is_numbered = nth < devices && name.contains(|c: char| c.is_ascii_digit());
            let name = if is_numbered { told(&name) } else { attribute(&name) };
            format!(
                "<div class=\"card\"><dt>{name}</dt><dd class=\"big\">{value}</dd><dd>{beside}</dd></div>\n"
            )
        })
        .collect();
    format!("<dl class=\"cards\">\n{}</dl>\n", cards.concat())
}

/// The most devices, in each phase, that have a figure at the top.
const MOST_DEVICES: usize = 8;

/// The most tests of a benchmark that the page lists.
const MOST_TESTS: usize = 200;

/// The tests of an imported benchmark that aren't passes; empty if there are none.
fn tests(profile: &Profile) -> String {
    let rows = rate::imported_tests(profile);
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new("Tests, each timed as a whole", &["Test", "#tokens/s", "Of"]);
    for row in rows.iter().take(MOST_TESTS) {
        table.row(&[&said(&row.name), &told(&row.rate), &told(&row.how)]);
    }
    let more = match rows.len() - rows.len().min(MOST_TESTS) {
        0 => String::new(),
        more => note(&told(&format!("{more} more are in the file"))),
    };
    table.end() + &more
}

/// The rate of a benchmark's test: the median of its repetitions, of which the page has one.
fn benchmark(
    profile: &Profile,
    all: &Profile,
    phase: Phase,
    source: &Source<'_>,
) -> Option<(String, String, String)> {
    let of = rate::repeated(all, phase)?;
    let run = all.run.as_ref()?;
    let nth = run.repeated.iter().position(|other| std::ptr::eq(other, of))?;
    let total = profile.phase(phase)?;
    let place = |at: usize, field: &str| {
        source.at(&format!("/run/repeated/{nth}/repetitions/{at}/{field}"))
    };
    let middle = rate::middle(of).into_iter();
    let rates: Vec<_> =
        middle.map(|at| div(mul(json!(1e9), place(at, "tokens")), place(at, "wall_ns"))).collect();
    let n = rates.len();
    let from = if n == 1 { rates[0].clone() } else { div(sum(rates), json!(n)) };
    let figure = scaled(of.tokens_per_second()?, 1.0, "", from);
    let field = |field: &str| source.of_phase(phase, field);
    let profiled = total.tokens_per_second().map_or_else(
        || absent("n/a"),
        |rate| scaled(rate, 1.0, "", div(mul(json!(1e9), field("tokens")), field("wall_ns"))),
    );
    let which = match of.profiled {
        Profiled::No => return None,
        Profiled::Last if of.repetitions.len() == 1 => "it",
        Profiled::Last => "the last of them",
        Profiled::Further => "a further one",
    };
    let left_out = match all.phase(phase).is_some_and(|all| all.passes > total.passes) {
        true => " without passes left out",
        false => "",
    };
    let basis =
        if of.repetitions.len() == 1 { "one repetition" } else { "the median of its repetitions" };
    let beside = format!(
        "{}, {basis}; this page is of {which}{left_out}: {profiled} tokens/s",
        said(&of.test)
    );
    Some((phase.heading().to_owned(), format!("{figure} <small>tokens/s</small>"), beside))
}

/// What bounds a phase.
struct Bound {
    /// A level of memory, compute, or unknown.
    by: String,
    /// How near it is, or why it isn't known.
    how: String,
}

/// What stands in the place of a limit that was measured too unevenly.
const NO_VERDICT: &str = "no verdict";

/// What bounds a phase, by the verdict that the headline states. `None` if the host's clock can't tell, since a device
/// did the work, or if there is nothing to judge.
fn bound(all: &Profile, phase: Phase) -> Option<Bound> {
    if !all.devices.is_empty() {
        return None;
    }
    let judged = typical::judged(all, phase);
    let total = judged.phase(phase)?;
    let bricks = judged.bricks(Some(phase));
    let unknown = |why: &str| Some(Bound { by: "unknown".to_owned(), how: why.to_owned() });
    if bricks.is_empty() {
        return None;
    }
    if total.unattributed_ns as f64 > 0.1 * total.wall_ns as f64 {
        return unknown("more than a tenth of its time is unattributed");
    }
    let roofline = match Roofline::of_sums(&judged, phase) {
        Ok(roofline) => roofline,
        // An imported file can't have ceilings of its machine, and says so above.
        Err(_) if all.imported.is_some() => return None,
        Err(absent) => return unknown(&absent.reason),
    };
    if bricks.iter().all(|brick| brick.stats.total_bytes == 0)
        || bricks.iter().all(|brick| brick.stats.total_flops == 0)
    {
        return unknown("no work was stated");
    }
    let Some(verdict) = roofline.verdict() else { return unknown("no work was stated") };
    let (by, says) = match verdict.reach {
        // What it would be at has no place in large letters.
        Reach::Unsettled => (NO_VERDICT.to_owned(), verdict.says().replace(": no verdict", "")),
        _ => (verdict.limit(), verdict.says()),
    };
    let how = match view::disturber(all, phase) {
        // What limits the rest doesn't limit the phase.
        Some(why) if view::waits_most(all, phase) => {
            let how = format!("{why}; without the waits {says}");
            return Some(Bound { by: "waits for CPUs".to_owned(), how });
        }
        Some(why) => format!("{says}; {why}"),
        None => says,
    };
    Some(Bound { by, how })
}

/// The passes that figures leave out, or that were disturbed and are in them. `None` if nobody looked.
fn left_out(
    profile: &Profile,
    all: &Profile,
    source: &Source<'_>,
) -> Option<(String, String, String)> {
    let n = profile.dropped.left_out_passes;
    if n > 0 {
        let card = count(n, source.at("/dropped/left_out_passes"));
        return Some(("Passes left out".to_owned(), card, told(&causes(all))));
    }
    let disturbed: u64 = profile.phases.iter().map(|total| total.disturbed).sum();
    if disturbed > 0 {
        let places =
            (0..profile.phases.len()).map(|n| source.at(&format!("/phases/{n}/disturbed")));
        let card = count(disturbed, super::figure::sum(places.collect()));
        let name = "Disturbed passes".to_owned();
        let of_phases = profile.phases.iter().enumerate().filter(|(_, of)| of.disturbed > 0);
        let each = of_phases.map(|(nth, of)| {
            let at = |field: &str| source.at(&format!("/phases/{nth}/{field}"));
            let all = counted(of.passes, "pass", at("passes"));
            format!("{} of {all} of {}", count(of.disturbed, at("disturbed")), of.phase)
        });
        let each: Vec<String> = each.collect();
        return Some((name, card, format!("{}; the warnings say why", each.join(", "))));
    }
    let is_known = profile.phases.iter().all(|total| total.unwatched == Some(0))
        && Typical::all(all).iter().all(|of| of.basis == Basis::Passes && of.stalls.is_empty());
    (is_known && !profile.phases.is_empty()).then(|| {
        let none = attribute("none").to_owned();
        ("Passes left out".to_owned(), none, "none was disturbed or had a stall".to_owned())
    })
}

/// Why passes are left out: `3 disturbed, 1 with a stall, 2 that warmed up`.
fn causes(all: &Profile) -> String {
    let (mut disturbed, mut stalled) = (0_u64, 0_u64);
    for typical in Typical::all(all).iter().filter(|typical| typical.basis == Basis::Passes) {
        disturbed += typical.left_out.disturbed.values().sum::<u64>();
        stalled += typical.left_out.stalled;
    }
    let warm_up = all.dropped.warm_up_passes;
    let parts = [(disturbed, "disturbed"), (stalled, "with a stall"), (warm_up, "that warmed up")];
    let parts = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    parts.collect::<Vec<_>>().join(", ")
}
