//! How fast a phase was, in a line, with what limits it.

use brickscope_profile::text::screened_lines;
use brickscope_profile::{Phase, Profile};

use super::limit::limit;
use super::lines::{Piece, Summary, Tone};
use crate::rate::{self, Rate, RateOf};
use crate::text::wrap;
use crate::typical;
use crate::words::{digits, time};

/// A mean that is further from the median than this part of it is another figure.
const APART: f64 = 0.1;

/// `Decode   291 tok/s ± 1 % p50 3.39 ms memory-bound: at the roof (41 GB/s)`
pub(super) fn rate_line(profile: &Profile, phase: Phase, columns: usize, head: &mut Summary) {
    // As measured: what is judged may be of median spans.
    let shown = typical::shown(profile);
    let total = shown.phase(phase);
    let rate = Rate::of(profile, phase);
    let is_of = |of: RateOf| rate.is_some_and(|rate| rate.of == of);
    // A test of a benchmark that was cut short may have no profile.
    if total.is_none() && !is_of(RateOf::Repetitions) {
        return;
    }
    // What is encoded may be no text.
    let each = || match total.and_then(|total| total.wall_ns.checked_div(total.passes)) {
        Some(ns) if matches!(phase, Phase::Encode | Phase::Training) => {
            format!("{} a pass", time(ns as f64))
        }
        _ => "no rate".to_owned(),
    };
    let said = rate.map_or_else(each, |rate| {
        let spread = match rate.of {
            RateOf::Passes => spread(profile, phase),
            RateOf::WholePasses
            | RateOf::Repetitions
            | RateOf::DeviceSteps
            | RateOf::DeviceSpans => String::new(),
        };
        format!("{} tok/s{spread}", digits(rate.tokens_per_second))
    });
    let whole = profile.serialised(phase).filter(|of| of.whole_passes > 0);
    let timed = shown.latency.per_token.percentiles.p50_ns;
    let p50_ns = whole.map_or(timed, |whole| whole.whole_p50_ns);
    // Passes of a server are no tokens of a request.
    let is_of_tokens = shown.latency.of_requests || profile.parts.is_empty();
    let p50_ns = p50_ns.filter(|_| phase == Phase::Decode && is_of_tokens);
    let mean_ns = shown.latency.per_token.mean_ns.filter(|_| whole.is_none());
    let p50 = p50_ns.map_or(String::new(), |ns| middle(ns as f64, mean_ns));
    // Beside the rate of passes it would read as a pass: what ran between two tokens may be prompts of others, too.
    let (p50, of_requests) = match shown.latency.of_requests && whole.is_none() && !p50.is_empty() {
        true => (String::new(), Some(format!("between tokens, prompts of others included: {p50}"))),
        false => (p50, None),
    };
    // That of the repetition that was profiled is none of the benchmark.
    let (p50, of_profile) = match is_of(RateOf::Repetitions) {
        true => (String::new(), if p50.is_empty() { p50 } else { format!(", {p50}") }),
        false => (p50, String::new()),
    };
    let (limit, tone) = limit(profile, phase);
    let start = format!("{:8} {said:16} {p50:11} ", phase.heading());
    if start.chars().count() + limit.chars().count() <= columns {
        head.lines.push(vec![
            Piece { text: start, tone: Tone::Plain },
            Piece { text: screened_lines(limit), tone },
        ]);
    } else {
        head.line(start.trim_end());
        for line in wrap(&limit, columns - 9) {
            head.toned(format!("{:9}{line}", ""), tone);
        }
    }
    for line in of_requests.iter().flat_map(|said| wrap(said, columns - 9)) {
        head.line(format!("{:9}{line}", ""));
    }
    if let Some(overlapped) = rate.and_then(|rate| rate.passes_overlapped) {
        head.line(format!("{:9}{overlapped}", ""));
    }
    if let (Some(of), Some(which)) =
        (rate::repeated(profile, phase), rate::of_profile(profile, phase))
    {
        for line in wrap(&format!("{}; {which}{of_profile}", rate::basis(of)), columns - 9) {
            head.line(format!("{:9}{line}", ""));
        }
    }
}

/// How fast a phase was in another program's file, and how long a pass took, where a sentence says what limits it:
/// `Decode   4902 tok/s       204 µs a pass`.
pub(super) fn told_rate_line(profile: &Profile, phase: Phase, head: &mut Summary) {
    let shown = typical::shown(profile);
    let Some(total) = shown.phase(phase) else { return };
    let Some(ns) = total.wall_ns.checked_div(total.passes) else { return };
    let rate = Rate::of(profile, phase);
    let rate = rate.map_or_else(
        || "no rate".to_owned(),
        |rate| format!("{} tok/s", digits(rate.tokens_per_second)),
    );
    let mean = if total.passes > 1 { ", the mean" } else { "" };
    head.line(format!("{:8} {rate:16} {} a pass{mean}", phase.heading(), time(ns as f64)));
}

/// `p50 3.39 ms`, with the mean, which the rate is of, where it is another figure.
fn middle(p50_ns: f64, mean_ns: Option<f64>) -> String {
    let p50 = format!("p50 {}", time(p50_ns));
    match mean_ns.filter(|mean_ns| (mean_ns - p50_ns).abs() > APART * p50_ns) {
        Some(mean_ns) => format!("mean {}, {p50}", time(mean_ns)),
        None => p50,
    }
}

/// ` ± 4 %`, of the mean pass; nothing if that isn't known.
fn spread(profile: &Profile, phase: Phase) -> String {
    let Some(pass) = rate::pass_interval(profile, phase) else { return String::new() };
    let half = 50.0 * (pass.interval_ns[1] - pass.interval_ns[0]) / pass.ns;
    if half < 0.95 { format!(" ± {half:.1} %") } else { format!(" ± {half:.0} %") }
}
