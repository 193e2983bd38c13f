//! The screens: functions of the state, at any size, readable without colour.

mod bricks;
mod findings;
mod head;
mod heat;
mod paint;
mod requests;
mod system;
#[cfg(test)]
mod tests;
mod tree;

use brickscope_profile::Absent;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use self::paint::Paint;
use crate::app::{App, Death, State, View};
use crate::text::{ascii, columns, cut, is_unprintable, padded, printable, printable_text, wrap};

/// Draws the whole screen.
pub fn draw(app: &App, frame: &mut Frame<'_>) {
    let area = frame.area();
    let paint = Paint::new(app.look);
    let width = usize::from(area.width);
    if area.height == 0 || width == 0 {
        return;
    }
    let lines = lines(app, paint, width, usize::from(area.height) - 1);
    let lines: Vec<Line<'static>> = lines.into_iter().map(|line| fit(line, paint)).collect();
    let body = Rect { height: area.height - 1, ..area };
    frame.render_widget(Paragraph::new(lines), body);
    let last = Rect { y: area.y + area.height - 1, height: 1, ..area };
    let keys = fit(screened(footer(app, paint)), paint);
    frame.render_widget(Paragraph::new(keys), last);
}

/// Everything above the keys as text, with as many lines as it needs.
#[must_use]
pub fn text(app: &App, width: usize) -> String {
    let paint = Paint::new(app.look);
    let mut text = String::new();
    for line in lines(app, paint, width, usize::MAX) {
        let line: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        let line = cut(&line, width);
        let line = if paint.is_unicode() { line } else { ascii(&line) };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A line with what the terminal can show.
fn fit(mut line: Line<'static>, paint: Paint) -> Line<'static> {
    if !paint.is_unicode() {
        for span in line.spans.iter_mut().filter(|span| !span.content.is_ascii()) {
            span.content = ascii(&span.content).into();
        }
    }
    line
}

/// Everything above the keys, in at most this many lines.
fn lines(app: &App, paint: Paint, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(app, paint, width)];
    // The current view needs some lines.
    let mut least = 5;
    if let State::Died(death) = &app.state {
        lines.extend(last_words(death, paint, width, height / 3));
        least = 10;
    }
    if app.is_help {
        lines.extend(HELP.iter().map(|line| Line::raw(*line)));
    } else if let Some(seen) = app.seen() {
        let room = height.saturating_sub(lines.len());
        let head = match app.view {
            // They have the screen to themselves, to be read.
            View::Findings | View::Requests => Vec::new(),
            _ => head::lines(app, &seen, paint, width, height),
        };
        let head_room = head.len().min(room.saturating_sub(least));
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
            View::System => scrolled(app, system::lines(app, &seen, paint), room),
            View::Findings => {
                let (title, page) = findings::page(&seen, paint, width);
                let mut lines = vec![title];
                lines.extend(scrolled(app, page, room.saturating_sub(1)));
                lines
            }
            View::Requests => {
                let (title, page) = requests::page(app, &seen, paint, width);
                let mut lines = vec![title];
                lines.extend(scrolled(app, page, room.saturating_sub(1)));
                lines
            }
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

/// The part of a page that is in sight.
fn scrolled(app: &App, page: Vec<Line<'static>>, room: usize) -> Vec<Line<'static>> {
    let most = page.len().saturating_sub(room);
    app.scrolls.set(most);
    page.into_iter().skip(app.selected.min(most)).take(room).collect()
}

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
    " Tab, 1-6     bricks, heat map, tree, system, findings, requests",
    " f            findings, whole: what slows it down, and how to test it",
    " up, down     select, scroll; also k j, PgUp PgDn, Home End",
    " Enter        a brick's kernels; tree: fold, unfold; requests: those that ended",
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
    " `roof` is the share of this machine's measured roofline;",
    " `unattributed` is the time of passes outside of all bricks.",
    " Each point of the history is half a second or more, of its passes alone.",
];

/// The first line: the engine and its state. If the engine has died, that comes first.
fn title(app: &App, paint: Paint, width: usize) -> Line<'static> {
    if let State::Died(death) = &app.state {
        let how = death.how.as_deref().map(|how| format!(": {}", printable_text(how)));
        let text =
            format!(" THE ENGINE HAS DIED{}. This is its last frame.", how.unwrap_or_default());
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

/// What a dead engine said last, as far as there is room for it.
fn last_words(death: &Death, paint: Paint, width: usize, most: usize) -> Vec<Line<'static>> {
    let style = paint.fg(Color::Red);
    let line = |text: &str| vec![Line::styled(format!(" {text}"), style)];
    let Some(said) = &death.said else {
        return line("What it said last is not known here: see where it was started.");
    };
    if said.is_empty() {
        return line("It wrote nothing to standard error.");
    }
    let mut lines = line("It wrote last:");
    let room = width.saturating_sub(3).max(1);
    let said: Vec<String> =
        said.iter().flat_map(|said| wrap(&printable_text(said), room)).collect();
    let first = said.len().saturating_sub(most.max(2) - 1);
    lines.extend(said[first..].iter().map(|said| Line::styled(format!("   {said}"), style)));
    lines
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
            " Tab:view f:findings Enter:kernels s:sort /:filter p:phase w:window ?:help"
        }
        View::Tree => " Tab:view f:findings Enter:fold +-:all p:phase w:window ?:help q:quit",
        View::Heat => " Tab:view f:findings arrows:select p:phase w:window ?:help q:quit",
        View::System => " Tab:view f:findings up,down:scroll space:pause ?:help q:quit",
        View::Findings => " f,Esc:back up,down:scroll space:pause ?:help q:quit",
        View::Requests if app.has_ended_ones => {
            " Tab:view f:findings Enter:fold up,down:scroll space:pause ?:help q:quit"
        }
        View::Requests => {
            " Tab:view f:findings Enter:ended up,down:scroll space:pause ?:help q:quit"
        }
    };
    Line::styled(keys, paint.fg(Color::DarkGray))
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
