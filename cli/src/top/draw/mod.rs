//! The screens: functions of the state, at any size, readable without colour.

mod bricks;
mod heat;
mod system;
#[cfg(test)]
mod tests;
mod tree;

use brickscope::{Absent, BrickCategory, Dropped, Percentiles, Phase};
use brickscope_analysis::findings::Finding;
use brickscope_analysis::view::{Tone, phase_limit};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::app::{App, Seen, State, View};
use super::numbers::{Known, Numbers};
use crate::figures::{bytes, total_time};
use crate::text::{columns, cut, is_unprintable, padded, printable, printable_text};

/// Draws the whole screen.
pub(crate) fn draw(app: &App, frame: &mut Frame<'_>) {
    let area = frame.area();
    let paint = Paint { has_colour: app.has_colour };
    let width = usize::from(area.width);
    if area.height == 0 || width == 0 {
        return;
    }
    let lines = lines(app, paint, width, usize::from(area.height) - 1);
    let body = Rect { height: area.height - 1, ..area };
    frame.render_widget(Paragraph::new(lines), body);
    let last = Rect { y: area.y + area.height - 1, height: 1, ..area };
    frame.render_widget(Paragraph::new(screened(footer(app, paint))), last);
}

/// Everything above the keys as text, with as many lines as it needs.
pub(crate) fn text(app: &App, width: usize) -> String {
    let mut text = String::new();
    for line in lines(app, Paint { has_colour: false }, width, usize::MAX) {
        let line: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        text.push_str(cut(&line, width).trim_end());
        text.push('\n');
    }
    text
}

/// Everything above the keys, in at most this many lines.
fn lines(app: &App, paint: Paint, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(app, paint, width)];
    if app.is_help {
        lines.extend(HELP.iter().map(|line| Line::raw(*line)));
    } else if let Some(seen) = app.seen() {
        let room = height.saturating_sub(1);
        let head = head(app, &seen, paint, width);
        // The current view needs some lines.
        let head_room = head.len().min(room.saturating_sub(5));
        lines.extend(head.into_iter().take(head_room));
        let room = room.saturating_sub(head_room);
        lines.extend(match app.view {
            View::Bricks => {
                let mut lines = bricks::lines(app, &seen, paint, width, room);
                // What has no limit is printed, and there each thing once.
                let left = if height == usize::MAX { 0 } else { room.saturating_sub(lines.len()) };
                if app.drilled.is_none() && left >= LEAST_MAP {
                    lines.push(Line::raw(""));
                    lines.extend(heat::below(app, paint, width, left - 1));
                }
                lines
            }
            View::Heat => heat::lines(app, paint, width, room),
            View::Tree => tree::lines(app, paint, width, room),
            View::System => system::lines(app, &seen, paint, room),
        });
    } else {
        lines.push(Line::raw(""));
        lines.push(Line::raw(match &app.state {
            State::Starting(what) => format!(" {} …", printable(what)),
            State::Running => " waiting for the first frame …".to_owned(),
            State::Ended | State::Died(_) => " no frame came before it ended".to_owned(),
        }));
    }
    lines.into_iter().map(screened).collect()
}

/// The lines for which the heat map is worth drawing below the bricks.
const LEAST_MAP: usize = 9;

/// A line without what could control the terminal: whatever a view forgot.
fn screened(mut line: Line<'static>) -> Line<'static> {
    for span in &mut line.spans {
        if span.content.contains(is_unprintable) {
            span.content = printable_text(&span.content).into();
        }
    }
    line
}

const HELP: &[&str] = &[
    "",
    " Tab, 1-4     bricks, heat map, tree, system",
    " up, down     select; also k j, PgUp PgDn, Home End",
    " Enter        a brick's kernels; in the tree: fold or unfold",
    " left, right  tree: fold, unfold; heat map: another brick",
    " + -          tree: unfold, fold all layers",
    " s  S         sort by the next column; reverse the order",
    " /            only bricks with this text; Esc ends it",
    " p            prefill or decode",
    " w            since the start, or the last two seconds",
    " space        pause; the engine goes on",
    " q, Esc       back, quit",
    "",
    " `-` is an unknown figure: p50 needs 7 spans, p95 90, p99 459.",
    " `of roof` is the share of this machine's measured roofline;",
    " `unattributed` is the time of passes outside of all bricks.",
];

/// Styles, with and without colour.
#[derive(Debug, Clone, Copy)]
struct Paint {
    has_colour: bool,
}

impl Paint {
    fn fg(self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn category(self, category: Option<BrickCategory>) -> Style {
        self.fg(match category {
            Some(BrickCategory::Norm) => Color::Yellow,
            Some(BrickCategory::Attention) => Color::Cyan,
            Some(BrickCategory::Ffn) => Color::Green,
            Some(BrickCategory::Other) => Color::Magenta,
            None => Color::DarkGray,
        })
    }
}

/// The first line: the engine and its state. If the engine has died, that comes first.
fn title(app: &App, paint: Paint, width: usize) -> Line<'static> {
    if let State::Died(why) = &app.state {
        let why = why.as_deref().map(|why| format!(": {}", printable(why))).unwrap_or_default();
        let text = format!(" THE ENGINE HAS DIED{why}. This is its last frame.");
        let style = paint.fg(Color::Red).add_modifier(Modifier::REVERSED | Modifier::BOLD);
        return Line::styled(padded(&cut(&text, width), width), style);
    }
    let mut right = match &app.state {
        State::Starting(_) => "starting".to_owned(),
        State::Running => "running".to_owned(),
        State::Ended => "ENDED, this is the last frame".to_owned(),
        State::Died(_) => String::new(),
    };
    if app.is_paused() {
        right = format!("PAUSED, {right}");
    }
    let mut left = " brickscope top".to_owned();
    if let Some(hello) = &app.hello {
        let facts = &hello.facts;
        if let Some(model) = &facts.model {
            let file = std::path::Path::new(&model.path).file_name();
            let name = model.name.clone().or_else(|| Some(file?.to_string_lossy().into_owned()));
            let name = printable(&name.unwrap_or_default());
            left.push_str(&format!(": {name} {}", printable(&model.quantization)));
        }
        if let Some(run) = &facts.run {
            left.push_str(&format!(", {}", printable(&run.backend)));
            if run.threads > 0 {
                left.push_str(&format!(" ×{}", run.threads));
            }
        }
        left.push_str(&format!(", pid {}", hello.pid));
    }
    let room = width.saturating_sub(columns(&right) + 2);
    Line::styled(format!("{} {right}", padded(&cut(&left, room), room)), paint.bold())
}

fn footer(app: &App, paint: Paint) -> Line<'static> {
    if app.is_filtering {
        return Line::raw(format!(" only bricks with: {}_", printable(&app.filter)));
    }
    let keys = match app.view {
        _ if app.is_help => " any key: back",
        View::Bricks if app.drilled.is_some() => {
            " Esc:back space:pause p:phase w:window ?:help q:quit"
        }
        View::Bricks => {
            " Tab:view Enter:kernels s:sort /:filter p:phase w:window space:pause ?:help"
        }
        View::Tree => " Tab:view Enter:fold +-:all p:phase w:window space:pause ?:help q:quit",
        View::Heat => " Tab:view arrows:select p:phase w:window space:pause ?:help q:quit",
        View::System => " Tab:view up,down:scroll space:pause ?:help q:quit",
    };
    Line::styled(keys, paint.fg(Color::DarkGray))
}

/// The lines that are always visible: rates, latencies, memory, load, losses and overhead.
fn head(app: &App, seen: &Seen, paint: Paint, width: usize) -> Vec<Line<'static>> {
    let numbers = app.numbers(seen);
    let mut lines = Vec::new();
    // Losses qualify everything else, so they come first, as in the report.
    let dropped = *numbers.dropped;
    // Leave out spans and passes that were only summed, since a live view shows no single ones, and
    // unfinished spans, which are normal in the middle of a pass.
    let mut lost = Dropped { disturbed_passes: 0, open_passes: 0, spans: 0, passes: 0, ..dropped };
    if dropped.open_passes > 0 && app.state != State::Ended {
        lost.unfinished = 0;
    }
    let lost: Vec<String> = lost.lines().chain(numbers.elsewhere.iter().cloned()).collect();
    if !lost.is_empty() {
        let text = format!(" LOST     {}", lost.join("; "));
        lines.push(Line::styled(
            cut(&text, width),
            paint.fg(Color::Red).add_modifier(Modifier::BOLD),
        ));
    }
    for phase in Phase::SHOWN {
        let Some(row) = numbers.phases.iter().find(|row| row.total.phase == phase) else {
            // Few engines encode, and none trains.
            if !matches!(phase, Phase::Encode | Phase::Training) {
                lines.push(Line::raw(format!(" {:8} no pass has ended yet", phase.name())));
            }
            continue;
        };
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
        let now = row.tokens_per_second_now.0.as_ref().ok().copied();
        lines.push(Line::from(vec![
            Span::raw(format!(" {:8} ", phase.name())),
            Span::styled(format!("{} tok/s now", rate(now)), paint.bold()),
            Span::raw(format!(
                ", {} mean, {} tokens in {}, {}",
                rate(row.tokens_per_second),
                row.total.tokens,
                passes(row.total.passes),
                total_time(row.total.wall_ns)
            )),
        ]));
    }
    if let Ok(profile) = app.shown(seen)
        && profile.phase(app.phase).is_some()
    {
        let limit = phase_limit(profile, app.phase);
        let style = match limit.tone {
            Tone::Plain => Style::new(),
            Tone::Good => paint.fg(Color::Green),
            Tone::Bad => paint.fg(Color::Red),
        };
        // Frames have sums, in which they are. The run's own screens leave them out.
        let disturbed = profile.phase(app.phase).map_or(0, |total| total.disturbed);
        let of_all = match disturbed {
            0 => String::new(),
            n => format!("; with {n} disturbed, which `show` leaves out"),
        };
        let text = format!(" limit    {}: {}{of_all}", app.phase, limit.text);
        lines.push(Line::styled(cut(&text, width), style));
    }
    // The view of the process needs its lines for that.
    if app.view != View::System
        && let Some(found) = finding(app, seen)
    {
        lines.push(Line::raw(cut(&format!(" finding  {found}"), width)));
    }
    lines.push(Line::raw(cut(&tokens(&numbers), width)));
    lines.push(memory(&numbers, paint));
    lines.push(Line::raw(cut(&load(&numbers), width)));
    lines.push(Line::raw(cut(&cost(app, &numbers), width)));
    lines
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
    // Three digits, so that the p99 fits into 80 columns.
    let ms = |ns: f64| match ns / 1e6 {
        ms if ms < 9.995 => format!("{ms:.2}"),
        ms if ms < 99.95 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    };
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

fn memory(numbers: &Numbers<'_>, paint: Paint) -> Line<'static> {
    let mut spans = vec![Span::raw(" KV cache ")];
    match &numbers.kv_cache.0 {
        Ok(fill) => {
            let share = fill.tokens as f64 / fill.room.max(1) as f64;
            spans.push(Span::styled(bar(share, 12), paint.fg(Color::Blue)));
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

fn load(numbers: &Numbers<'_>) -> String {
    let mut text = " threads  ".to_owned();
    match &numbers.activity.0 {
        Ok(activity) => {
            match &activity.threads {
                Some(threads) => {
                    let busy: f64 = threads.iter().map(|thread| thread.busy).sum();
                    let waiting: f64 = threads.iter().map(|thread| thread.waiting).sum();
                    text.push_str(&format!(
                        "{busy:.2} of {} busy, {waiting:.2} waiting",
                        threads.len()
                    ));
                }
                None => text.push('-'),
            }
            match activity.machine {
                Some(machine) => text.push_str(&format!(
                    "; others {:.0}%, top {:.1}%",
                    100.0 * machine.others,
                    100.0 * machine.watcher
                )),
                None => text.push_str("; others -"),
            }
        }
        Err(absent) => text.push_str(&format!("- ({})", printable(&absent.reason))),
    }
    text
}

/// The disturbances of the engine, and the overhead of profiling and of frames.
fn cost(app: &App, numbers: &Numbers<'_>) -> String {
    let share = |known: &Known<f64>| match &known.0 {
        Ok(share) if *share > 0.0 && *share < 0.0005 => "<0.1%".to_owned(),
        Ok(share) => format!("{:.1}%", 100.0 * share),
        Err(_) => "-".to_owned(),
    };
    let all: u64 = numbers.phases.iter().map(|row| row.total.passes).sum();
    let disturbed: u64 = numbers.phases.iter().map(|row| row.total.disturbed).sum();
    // Without readings, no pass is known to be disturbed.
    let disturbed = if app.is_disturbance_known() { disturbed.to_string() } else { "-".to_owned() };
    let unknown: u64 =
        numbers.phases.iter().filter_map(|row| row.total.unwatched).fold(0, u64::saturating_add);
    let unknown = match unknown {
        0 => String::new(),
        n => format!(" (not known of {n})"),
    };
    let mut text = format!(
        " quality  disturbed {disturbed} of {}{unknown}; profiling costs {} (estimate), frames {}",
        passes(all),
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

/// A bar of `share` of `width`, in characters that every terminal has.
fn bar(share: f64, width: usize) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * width as f64).round() as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(width - full.min(width)))
}

/// The heading of a view: the phase, the contents and the period.
fn heading(app: &App, what: &str) -> String {
    let since = if app.is_recent { "the last 2 s" } else { "since the start" };
    format!(" {} · {what} · {since}", app.phase.name().to_uppercase())
}

/// The same for sums by layer, which exist only while somebody watches, and only in some frames.
fn heading_of_layers(app: &App, what: &str) -> String {
    let since = if app.is_recent { "about the last 2 s" } else { "since a viewer attached" };
    format!(" {} · {what} · {since}", app.phase.name().to_uppercase())
}

/// A line about an unknown figure.
fn absent(why: &Absent) -> Line<'static> {
    Line::raw(format!(" absent: {}", printable(&why.reason)))
}

/// The visible lines, which include the selected one.
fn in_sight<T>(
    lines: impl Iterator<Item = T>,
    selected: usize,
    room: usize,
) -> impl Iterator<Item = T> {
    let first = (selected + 1).saturating_sub(room);
    lines.skip(first).take(room)
}
