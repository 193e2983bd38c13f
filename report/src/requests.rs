//! Requests of a server: how long they took, a picture of the slowest, and why tokens were slow.

use std::cmp::Reverse;
use std::fmt::Write;

use brickscope_analysis::requests::percentile;
use brickscope_analysis::view;
use brickscope_profile::{Phase, Profile, Request};
use serde_json::{Value, json};

use super::figure::{absent, at, div, sub, time};
use super::html::{Table, note, told};

/// The most requests of the picture.
const MOST: usize = 60;
/// The most passes of the picture: the longest.
const MOST_PASSES: usize = 2_000;
/// The picture, in its own units.
const WIDE: f64 = 720.0;
const LANE: f64 = 9.0;

/// A time, and where its two ends are in the file.
type Measured = (u64, [String; 2]);

pub(super) fn section(profile: &Profile) -> String {
    if profile.requests.is_empty() {
        return String::new();
    }
    let mut html = lengths(profile);
    html.push_str(&picture(profile));
    for sentence in view::requests_in_words(profile) {
        let _ = writeln!(html, "<p>{}</p>", told(&sentence));
    }
    html
}

/// How long requests took: each figure is of one request, which the file has.
fn lengths(profile: &Profile) -> String {
    // Those that were kept are the slow ones, and times that were added up are of no request.
    if profile.kept.is_some() {
        return String::new();
    }
    let (mut first, mut between, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for (nth, of) in profile.requests.iter().enumerate() {
        let field = |name: &str| format!("/requests/{nth}/{name}");
        let mut since = (of.arrived_ns, field("arrived_ns"));
        for (token, &now) in of.tokens_ns.iter().enumerate() {
            let now = (now, field(&format!("tokens_ns/{token}")));
            let ns = now.0.saturating_sub(since.0);
            let times = if token == 0 { &mut first } else { &mut between };
            times.push((ns, [now.1.clone(), since.1]));
            since = now;
        }
        if let Some(ended) = of.ended_ns.filter(|_| of.is_answered()) {
            let ns = ended.saturating_sub(of.arrived_ns);
            whole.push((ns, [field("ended_ns"), field("arrived_ns")]));
        }
    }
    let columns = ["Time", "#p50", "#p95", "#p99", "#Longest"];
    let mut table = Table::new("How long requests took", &columns);
    for times in [&mut first, &mut between, &mut whole] {
        times.sort_by_key(|(ns, _)| *ns);
    }
    let rows = [
        row("to the first token", &first, measured),
        row("between tokens", &between, measured),
        row("time per token", &per_token(profile), |(ns, from)| time(*ns, from.clone())),
        row("whole request", &whole, measured),
    ];
    for row in &rows {
        table.row(&row.each_ref().map(String::as_str));
    }
    table.end() + &note("Percentiles of too few requests are not shown.")
}

/// The cells of a row: percentiles of what is sorted, and the longest.
fn row<T>(name: &str, sorted: &[T], shown: impl Fn(&T) -> String) -> [String; 5] {
    let shown = |of: Option<&T>| of.map_or_else(|| absent("-"), &shown);
    let [p50, p95, p99] = [50, 95, 99].map(|nth| shown(percentile(sorted, nth)));
    [name.to_owned(), p50, p95, p99, shown(sorted.last())]
}

fn measured((ns, [end, begin]): &Measured) -> String {
    time(*ns, sub(at(end.clone()), at(begin.clone())))
}

/// What a token after the first one took on average, of each request that had some, with where that is from; sorted.
fn per_token(profile: &Profile) -> Vec<(f64, Value)> {
    let each = profile.requests.iter().enumerate().filter_map(|(nth, of)| {
        let pieces = of.tokens_ns.len();
        let (first, last) = (of.tokens_ns.first()?, of.tokens_ns.last()?);
        let field = |name: &str| at(format!("/requests/{nth}/{name}"));
        // As `Request::mean_token_ns` has it.
        let (tokens, from) = match of.output_tokens.filter(|&tokens| tokens > pieces as u64) {
            Some(tokens) => (tokens, field("output_tokens")),
            None => (pieces as u64, json!(["count", format!("/requests/{nth}/tokens_ns")])),
        };
        let took = sub(field(&format!("tokens_ns/{}", pieces - 1)), field("tokens_ns/0"));
        let mean_ns = last.saturating_sub(*first) as f64 / (tokens - 1) as f64;
        (pieces > 1).then(|| (mean_ns, div(took, sub(from, json!(["const", 1])))))
    });
    let mut each: Vec<(f64, Value)> = each.collect();
    each.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    each
}

/// The slowest requests below the passes that ran meanwhile.
fn picture(profile: &Profile) -> String {
    let end = |of: &Request| of.ended_ns.or(of.tokens_ns.last().copied()).unwrap_or(of.arrived_ns);
    let end_in_file = |(nth, of): &(usize, &Request)| match (of.ended_ns, of.tokens_ns.len()) {
        (Some(_), _) => format!("/requests/{nth}/ended_ns"),
        (None, 0) => format!("/requests/{nth}/arrived_ns"),
        (None, tokens) => format!("/requests/{nth}/tokens_ns/{}", tokens - 1),
    };
    let mut slowest: Vec<(usize, &Request)> = profile.requests.iter().enumerate().collect();
    slowest.sort_by_key(|(_, of)| Reverse(end(of).saturating_sub(of.arrived_ns)));
    slowest.truncate(MOST);
    slowest.sort_by_key(|(_, of)| of.arrived_ns);
    let (Some(first), Some(last)) = (slowest.first(), slowest.iter().max_by_key(|(_, of)| end(of)))
    else {
        return String::new();
    };
    let (from, to) = (first.1.arrived_ns, end(last.1));
    if to <= from {
        return String::new();
    }
    let spans = sub(at(end_in_file(last)), at(format!("/requests/{}/arrived_ns", first.0)));
    let spans = time(to - from, spans);
    let x = |ns: u64| WIDE * ns.clamp(from, to).saturating_sub(from) as f64 / (to - from) as f64;
    let mut svg = String::new();
    let mut bar = |class: &str, lane: usize, from_ns: u64, to_ns: u64| {
        let (left, right) = (x(from_ns), x(to_ns));
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{left:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{:.1}\"/>",
            lane as f64 * LANE + 1.0,
            (right - left).max(0.4),
            LANE - 2.0
        );
    };
    let ends = |start: u64, wall: u64| start.saturating_add(wall);
    let mut passes: Vec<_> = profile.passes.iter().collect();
    passes.retain(|pass| pass.start_ns < to && ends(pass.start_ns, pass.wall_ns) > from);
    passes.sort_by_key(|pass| Reverse(pass.wall_ns));
    let left_out = passes.len().saturating_sub(MOST_PASSES);
    passes.truncate(MOST_PASSES);
    for pass in passes {
        let class = if pass.phase == Phase::Prefill { "c-slow" } else { "c-path" };
        bar(class, 0, pass.start_ns, ends(pass.start_ns, pass.wall_ns));
    }
    for (lane, (_, of)) in (1..).zip(&slowest) {
        let admitted = of.admitted_ns.unwrap_or(of.arrived_ns);
        let first = of.tokens_ns.first().copied().unwrap_or(end(of));
        bar("c-unattributed", lane, of.arrived_ns, admitted.min(first));
        bar("c-slow", lane, admitted.min(first), first);
        bar("c-path", lane, first, end(of));
    }
    let high = (slowest.len() + 1) as f64 * LANE;
    let mut html = format!(
        "{}<figure><svg viewBox=\"0 0 {WIDE} {high:.0}\" role=\"img\" aria-label=\"The slowest requests over time: the table \
         above has their times\">\n{svg}</svg></figure>\n",
        legend()
    );
    html.push_str(&note(&format!(
        "{spans} from left to right. The first line has passes, those with prompts and those without. Each line below is a \
         request, one of the slowest, in the order of their arrival.",
    )));
    if left_out > 0 {
        html.push_str(&note("Of so many passes only the longest are drawn."));
    }
    html
}

/// What the colours of the picture are.
fn legend() -> String {
    let colours = [
        ("unattributed", "in the queue"),
        ("slow", "up to the first token; a pass with a prompt"),
        ("path", "up to the end; a pass without"),
    ];
    let items: String = colours
        .iter()
        .map(|(class, what)| {
            format!("<span><span class=\"dot c-{class}\" aria-hidden=\"true\"></span>{what}</span>")
        })
        .collect();
    format!("<p class=\"legend\">{items}</p>\n")
}
