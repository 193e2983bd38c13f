//! The page of requests: how long they take, those that go on, and those that ended lately.

use brickscope_analysis::requests::{Longest, Now, Piece, RequestNow, Stage};
use brickscope_analysis::view::{table_of_times, time};
use brickscope_profile::{Absent, Ending};
use ratatui::text::Line;

use super::{Paint, absent};
use crate::app::{App, Seen};
use crate::numbers::NO_REQUESTS;
use crate::text::{columns, cut, padded, printable};

/// The columns of a row beside the name and what the longest interval had.
const CELLS: usize = 53;
/// Those of a name, and of what the interval had, on the smallest screen.
const LEAST_NAME: usize = 12;
const LEAST_PARTS: usize = 15;
const MOST_NAME: usize = 40;
/// Who looks this long after somebody looked at requests is told.
const LATE_NS: u64 = 2_000_000_000;

const LEGEND: [&str; 3] = [
    " longest: the longest wait for a token, or for the end, and what was done then:",
    " alone, shared: passes for it; others: passes without it; between: no pass ran;",
    " unknown: unattributed. `brickscope requests RUN` has each token of the run.",
];

/// Its heading, and its lines.
pub(super) fn page(
    app: &App,
    seen: &Seen,
    paint: Paint,
    width: usize,
) -> (Line<'static>, Vec<Line<'static>>) {
    let Some(now) = &seen.snapshot.requests else {
        let why = Absent { reason: NO_REQUESTS.to_owned() };
        return (Line::styled(" REQUESTS", paint.bold()), vec![absent(&why)]);
    };
    let late_ns = seen.snapshot.at_ns.saturating_sub(now.at_ns);
    let title = cut(&heading(now, late_ns), width);
    let mut lines: Vec<Line<'static>> =
        table_of_times(&now.times).lines().map(|line| Line::raw(format!(" {line}"))).collect();
    lines.extend(missing(now).into_iter().map(|line| Line::styled(line, paint.bold())));
    lines.push(Line::raw(""));
    let name = LEAST_NAME + width.saturating_sub(80) / 2;
    let table = Columns { name: name.min(MOST_NAME), width };
    lines.push(Line::styled(table.heading(), paint.bold()));
    let (ended, going_on): (Vec<&RequestNow>, Vec<&RequestNow>) =
        now.listed.iter().partition(|of| of.stage == Stage::Ended);
    lines.extend(going_on.iter().map(|of| Line::raw(table.row(of))));
    lines.extend(more(now.going_on, going_on.len(), "go on").map(Line::raw));
    if app.has_ended_ones {
        lines.push(Line::raw(format!(" - {} ended", now.ended)));
        lines.extend(ended.iter().map(|of| Line::raw(table.row(of))));
        lines.extend(more(now.ended, ended.len(), "ended before").map(Line::raw));
    } else if now.ended > 0 {
        lines.push(Line::raw(format!(" + {} ended", now.ended)));
    }
    lines.push(Line::raw(""));
    lines.extend(LEGEND.map(Line::raw));
    (Line::styled(title, paint.bold()), lines)
}

fn heading(now: &Now, late_ns: u64) -> String {
    let mut text = format!(" REQUESTS · {} go on, {} ended", now.going_on, now.ended);
    if now.left_out > 0 {
        text.push_str(&format!(" · the newest {} of {}", now.of, now.of + now.left_out));
    }
    if late_ns >= LATE_NS {
        // The engine looks at them for a hundredth of the time.
        let ago = time(late_ns as f64);
        text.push_str(&format!(" · as of {ago} ago: looks take long, so they are rare"));
    }
    text
}

/// What isn't known, since it had no room or nobody recorded it.
fn missing(now: &Now) -> Vec<String> {
    let lines = [
        (now.lost, "not ended, and recorded no further: whether they go on isn't known"),
        (now.dropped, "requests, tokens or parts had no room: newer ones are not here"),
        (now.missing_passes, "passes are not known: time in which no other ran is unknown"),
    ];
    let lines = lines.into_iter().filter(|(n, _)| *n > 0);
    lines.map(|(n, what)| format!(" {n} {what}")).collect()
}

/// How many are not listed.
fn more(all: u64, listed: usize, what: &str) -> Option<String> {
    let rest = all.saturating_sub(listed as u64);
    (rest > 0).then(|| format!("   and {rest} more {what}"))
}

/// How wide the columns are.
struct Columns {
    name: usize,
    width: usize,
}

impl Columns {
    fn heading(&self) -> String {
        let name = padded("Request", self.name);
        let cells = cells(["state", "age", "prompt", "out", "last", "longest"]);
        cut(&format!(" {name} {cells}  of that"), self.width)
    }

    fn row(&self, of: &RequestNow) -> String {
        let name = padded(&cut(&printable(&of.id), self.name), self.name);
        let known = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| time(ns as f64));
        let longest = of.longest.as_ref();
        let cells = cells([
            of.ending.map_or(of.stage.name(), Ending::name),
            &age(of.age_ns),
            &of.prompt_tokens.map_or("-".to_owned(), |tokens| tokens.to_string()),
            &of.tokens.to_string(),
            &known(of.last_ns),
            &known(longest.map(|longest| longest.ns)),
        ]);
        let room = self.width.saturating_sub(CELLS + self.name).max(LEAST_PARTS);
        let parts = longest.map_or_else(String::new, |longest| parts(longest, room));
        format!(" {name} {cells}  {parts}").trim_end().to_owned()
    }
}

fn cells([state, age, prompt, out, last, longest]: [&str; 6]) -> String {
    format!("{state:<9} {age:>8} {prompt:>6} {out:>5} {last:>8} {longest:>8}")
}

/// What an interval had, what took most first: as many parts as there is room for.
fn parts(longest: &Longest, room: usize) -> String {
    let Some(pieces) = &longest.pieces else { return cut("not known", room) };
    let mut sums: Vec<(&'static str, u64)> = Vec::new();
    for &(piece, ns) in pieces {
        match sums.iter_mut().find(|(name, _)| *name == part_of(piece)) {
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => sums.push((part_of(piece), ns)),
        }
    }
    sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let mut text = String::new();
    for (name, ns) in sums {
        let before = if text.is_empty() { "" } else { ", " };
        let part = format!("{before}{name} {}", time(ns as f64));
        if !text.is_empty() && columns(&text) + columns(&part) > room {
            break;
        }
        text.push_str(&part);
    }
    cut(&text, room)
}

/// The part of which a piece is.
const fn part_of(piece: Piece) -> &'static str {
    match piece {
        Piece::Receiving => "before",
        Piece::Queue => "queue",
        Piece::OwnAlone => "alone",
        Piece::OwnBesidePrompts | Piece::OwnBesideDecode | Piece::OwnBesideBoth => "shared",
        Piece::OtherPrompts | Piece::OtherDecode | Piece::OtherBoth => "others",
        Piece::Between => "between",
        Piece::Unattributed => "unknown",
    }
}

/// A time that may be long.
fn age(ns: u64) -> String {
    match ns as f64 / 1e9 {
        s if s < 100.0 => time(ns as f64),
        s if s < 10_000.0 => format!("{s:.0} s"),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use brickscope_analysis::requests::Times;

    use super::*;

    #[test]
    fn what_is_not_known_is_said_in_lines_that_fit() {
        let none = || Times::of("first token", std::iter::empty());
        let mut now = Now {
            at_ns: 0,
            of: 0,
            left_out: 0,
            times: [none(), none(), none(), none()],
            going_on: 0,
            ended: 0,
            lost: 0,
            dropped: 0,
            missing_passes: 0,
            kv_tokens: None,
            listed: Vec::new(),
        };
        assert!(missing(&now).is_empty());
        (now.lost, now.dropped, now.missing_passes) = (3, 999_999_999, 65_536);
        let lines = missing(&now);
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with(" 3 not ended, and recorded no further"), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    }
}
