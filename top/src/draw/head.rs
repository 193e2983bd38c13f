//! The lines that are always visible: rates and how they were lately, what limits and what disturbs, latencies, memory,
//! load, and what watching costs.

use brickscope_analysis::findings::Finding;
use brickscope_analysis::requests::Times;
use brickscope_analysis::view::{Tone, disturbed_by, phase_limit};
use brickscope_profile::{Disturber, Dropped, Percentiles, Phase, PhaseTotal};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::Paint;
use crate::app::{App, Seen, State, View};
use crate::figures::{bytes, total_time};
use crate::history::Rates;
use crate::numbers::{Known, Numbers, newest_disturbance};
use crate::text::{columns, cut, printable};

/// The columns of the names of lines.
const NAMES: usize = 10;
/// Screens with so many lines have room for a high graph.
const TALL: usize = 36;
/// The lines of a high graph.
const HIGH: usize = 4;
/// More columns of a graph than this are too far from its label.
const MOST_COLUMNS: usize = 120;

/// On a screen with `height` lines.
pub(super) fn lines(
    app: &App,
    seen: &Seen,
    paint: Paint,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let numbers = app.numbers(seen);
    let mut lines = Vec::new();
    // Losses qualify everything else, so they come first, as in the report.
    lines.extend(lost(app, &numbers, paint, width));
    lines.extend(Phase::SHOWN.into_iter().filter_map(|phase| rate(&numbers, phase, paint)));
    let is_tall = (TALL..usize::MAX).contains(&height);
    lines.extend(history(app, seen, paint, width, if is_tall { HIGH } else { 1 }));
    lines.extend(limit(app, seen, paint, width));
    lines.push(disturbs(app, seen, &numbers, paint, width));
    // The view of the process needs its lines for that.
    if app.view != View::System
        && let Some(found) = finding(app, seen)
    {
        lines.push(Line::raw(cut(&format!(" finding  {found}"), width)));
    }
    lines.push(Line::raw(cut(&tokens(&numbers), width)));
    lines.push(memory(&numbers, paint));
    lines.push(Line::raw(cut(&threads(&numbers), width)));
    lines.push(Line::raw(cut(&cost(&numbers), width)));
    lines
}

fn lost(app: &App, numbers: &Numbers<'_>, paint: Paint, width: usize) -> Option<Line<'static>> {
    let dropped = *numbers.dropped;
    // Leave out spans and passes that were only summed, since a live view shows no single ones, and
    // unfinished spans, which are normal in the middle of a pass.
    let mut lost = Dropped { disturbed_passes: 0, open_passes: 0, spans: 0, passes: 0, ..dropped };
    if dropped.open_passes > 0 && app.state != State::Ended {
        lost.unfinished = 0;
    }
    let lost: Vec<String> = lost.lines().chain(numbers.elsewhere.iter().cloned()).collect();
    let style = paint.fg(Color::Red).add_modifier(Modifier::BOLD);
    let text = format!(" LOST     {}", lost.join("; "));
    (!lost.is_empty()).then(|| Line::styled(cut(&text, width), style))
}

fn rate(numbers: &Numbers<'_>, phase: Phase, paint: Paint) -> Option<Line<'static>> {
    let Some(row) = numbers.phases.iter().find(|row| row.total.phase == phase) else {
        // Few engines encode, and none trains.
        let is_usual = !matches!(phase, Phase::Encode | Phase::Training);
        return is_usual.then(|| Line::raw(format!(" {:8} no pass has ended yet", phase.name())));
    };
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
    let now = row.tokens_per_second_now.0.as_ref().ok().copied();
    let total = row.by_host.unwrap_or(row.total);
    Some(Line::from(vec![
        Span::raw(format!(" {:8} ", phase.name())),
        Span::styled(format!("{} tok/s now", rate(now)), paint.bold()),
        Span::raw(format!(
            ", {} mean, {} tokens in {}, {}",
            rate(row.tokens_per_second),
            total.tokens,
            passes(total.passes),
            total_time(total.wall_ns)
        )),
    ]))
}

/// How fast the phase was lately: a graph in this many lines.
fn history(app: &App, seen: &Seen, paint: Paint, width: usize, rows: usize) -> Vec<Line<'static>> {
    let named = |text: &str| Line::raw(format!(" {text:8} "));
    let room = width.saturating_sub(NAMES);
    let all = seen.history.of(app.phase, paint.points(room.min(MOST_COLUMNS)));
    let highest = |of: &Rates| of.rates.iter().flatten().copied().fold(0.0, f64::max);
    let most = highest(&all);
    if most <= 0.0 {
        return vec![Line::raw(format!(" {:8} - (no pass ended between two frames)", "history"))];
    }
    // A large model's rate is less than one.
    let digits = match most {
        _ if most < 10.0 => 2,
        _ if most < 100.0 => 1,
        _ => 0,
    };
    let label =
        |of: &Rates| format!(" 0 to {:.digits$} tok/s, {:.0} s", highest(of), of.ns as f64 / 1e9);
    // The label of all is the longest.
    let graph_columns = room.saturating_sub(columns(&label(&all))).min(MOST_COLUMNS);
    let shown = seen.history.of(app.phase, paint.points(graph_columns));
    let graph = paint.graph(&shown.rates, highest(&shown), graph_columns, rows);
    let last = graph.len().saturating_sub(1);
    let line = |(nth, graph): (usize, String)| {
        let mut line = named(if nth == 0 { "history" } else { "" });
        line.spans.push(Span::styled(graph, paint.fg(Color::Green)));
        if nth == last {
            line.spans.push(Span::raw(label(&shown)));
        }
        line
    };
    graph.into_iter().enumerate().map(line).collect()
}

fn limit(app: &App, seen: &Seen, paint: Paint, width: usize) -> Option<Line<'static>> {
    let profile = app.shown(seen).ok()?;
    profile.phase(app.phase)?;
    let limit = phase_limit(profile, app.phase);
    let style = match limit.tone {
        Tone::Plain => Style::new(),
        Tone::Good => paint.fg(Color::Green),
        Tone::Bad => paint.fg(Color::Red),
    };
    let text = format!(" limit    {}: {}", app.phase, limit.text);
    Some(Line::styled(cut(&text, width), style))
}

/// What disturbed the passes of the phase, and what else the machine runs.
fn disturbs(
    app: &App,
    seen: &Seen,
    numbers: &Numbers<'_>,
    paint: Paint,
    width: usize,
) -> Line<'static> {
    let total = match &seen.window {
        Ok(window) if app.is_recent => window.waited_for(app.phase),
        Err(_) if app.is_recent => None,
        _ => seen.snapshot.waited_for(app.phase),
    };
    // The newest pass of all may be of another phase.
    let newest = newest_disturbance(&seen.snapshot.profile, |pass| pass.phase == app.phase);
    let newest = newest.and_then(|found| found.disturber());
    let (mut text, is_disturbed) = match total {
        Some(total) if app.is_disturbance_known() => disturbed(&total, newest),
        Some(_) => ("not known: the scheduler was not read".to_owned(), false),
        None => ("no pass has ended".to_owned(), false),
    };
    match numbers.activity.0.as_ref().ok().and_then(|activity| activity.machine) {
        Some(machine) => {
            text.push_str(&format!("; other programs {:.0}% of the CPUs", 100.0 * machine.others));
        }
        None => text.push_str("; other programs -"),
    }
    let style = if is_disturbed { paint.fg(Color::Red) } else { Style::new() };
    Line::styled(cut(&format!(" disturbs {}: {text}", app.phase), width), style)
}

/// By whom the newest pass was disturbed, and how many were: a narrow screen has no room for the end.
fn disturbed(total: &PhaseTotal, newest: Option<Disturber>) -> (String, bool) {
    let by = newest.map_or_else(String::new, |by| format!("{} in the newest; ", disturbed_by(by)));
    let all = passes(total.passes);
    let mut text = match total.disturbed {
        0 => format!("{by}none of {all}"),
        // Of more than half of them, `show` leaves out none.
        n if n.saturating_mul(2) > total.passes => format!("{by}{n} of {all}"),
        n => format!("{by}{n} of {all}, which `show` leaves out"),
    };
    if let Some(unknown @ 1..) = total.unwatched {
        text.push_str(&format!(" ({unknown} not known)"));
    }
    (text, newest.is_some())
}

/// The first finding about the phase that is shown, or about the whole run.
fn finding(app: &App, seen: &Seen) -> Option<String> {
    let findings = seen.findings.as_ref().ok()?;
    let is_shown = |finding: &&Finding| finding.phase.is_none_or(|phase| phase == app.phase);
    findings.found.iter().find(is_shown).map(Finding::line)
}

/// Time to first token and time per output token.
fn tokens(numbers: &Numbers<'_>) -> String {
    let latency = numbers.latency;
    if let Ok(now) = &numbers.requests.0
        && now.times[0].of > 0
    {
        return tokens_of_requests(&now.times);
    }
    let ms = short_ms;
    let first = &latency.first_token;
    let mut text = match first.mean_ns {
        Some(mean) => format!(" TTFT     {} ms mean of {}", ms(mean), first.count),
        None => " TTFT     -".to_owned(),
    };
    let each = &latency.per_token;
    match each.mean_ns {
        Some(mean) => {
            let Percentiles { p50_ns, p95_ns, p99_ns, .. } = each.percentiles;
            let known = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| ms(ns as f64));
            text.push_str(&format!(
                "; token {} ms mean, p50 {} p95 {} p99 {}",
                ms(mean),
                known(p50_ns),
                known(p95_ns),
                known(p99_ns)
            ));
        }
        None => text.push_str("; token -"),
    }
    text
}

/// The same as `brickscope requests` has it: from a request's arrival to its first token, and from one token to the next.
fn tokens_of_requests([first, between, ..]: &[Times; 4]) -> String {
    let known = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| short_ms(ns as f64));
    format!(
        " TTFT     p50 {}, longest {} ms of {}; token p50 {} p95 {} p99 {} ms",
        known(first.p50_ns),
        known(first.longest_ns),
        first.of,
        known(between.p50_ns),
        known(between.p95_ns),
        known(between.p99_ns)
    )
}

/// Three digits, so that the p99 fits into 80 columns.
fn short_ms(ns: f64) -> String {
    match ns / 1e6 {
        ms if ms < 9.995 => format!("{ms:.2}"),
        ms if ms < 99.95 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

fn memory(numbers: &Numbers<'_>, paint: Paint) -> Line<'static> {
    let mut spans = vec![Span::raw(" KV cache ")];
    match &numbers.kv_cache.0 {
        Ok(fill) => {
            let share = fill.tokens as f64 / fill.room.max(1) as f64;
            spans.push(Span::styled(paint.gauge(share, 12), paint.fg(Color::Blue)));
            let percent = 100.0 * share;
            spans.push(Span::raw(format!(" {}/{} tokens {percent:.0}%", fill.tokens, fill.room)));
        }
        Err(absent) => spans.push(Span::raw(format!("- ({})", printable(&absent.reason)))),
    }
    match &numbers.memory.0 {
        Ok(memory) => {
            let of_files = memory.file_bytes.map(|n| format!(", {} of files", bytes(n)));
            let text = format!(
                "; memory {}{}",
                bytes(memory.resident_bytes),
                of_files.unwrap_or_default()
            );
            spans.push(Span::raw(text));
        }
        Err(_) => spans.push(Span::raw("; memory -")),
    }
    Line::from(spans)
}

fn threads(numbers: &Numbers<'_>) -> String {
    match &numbers.activity.0 {
        Ok(activity) => match &activity.threads {
            Some(threads) => {
                let busy: f64 = threads.iter().map(|thread| thread.busy).sum();
                let waiting: f64 = threads.iter().map(|thread| thread.waiting).sum();
                let n = threads.len();
                // Of all that it has: those that compute are some of them.
                format!(
                    " threads  {busy:.2} of the process's {n} busy, {waiting:.2} waiting for a core"
                )
            }
            None => " threads  -".to_owned(),
        },
        Err(absent) => format!(" threads  - ({})", printable(&absent.reason)),
    }
}

/// What profiling and watching cost.
fn cost(numbers: &Numbers<'_>) -> String {
    let share = |known: &Known<f64>| match &known.0 {
        Ok(share) if *share > 0.0 && *share < 0.0005 => "<0.1%".to_owned(),
        Ok(share) => format!("{:.1}%", 100.0 * share),
        Err(_) => "-".to_owned(),
    };
    let machine = numbers.activity.0.as_ref().ok().and_then(|activity| activity.machine);
    let of_view = machine.map_or("-".to_owned(), |of| format!("{:.1}%", 100.0 * of.watcher));
    let mut text = format!(
        " cost     profiling {} (estimate), frames {}, this view {of_view} of the CPUs",
        share(&numbers.overhead.share),
        share(&numbers.overhead.watching)
    );
    let unkept = numbers.dropped.spans;
    if unkept > 0 {
        text.push_str(&format!("; {unkept} spans only summed"));
    }
    text
}

fn passes(n: u64) -> String {
    format!("{n} pass{}", if n == 1 { "" } else { "es" })
}
