//! The rows of bricks.

use std::fmt::Write;
use std::slice;

use brickscope_profile::Phase;
use brickscope_profile::text::{alike_when_cut, screened_lines};

use super::bricks::{Brick, Main};
use super::lines::{Piece, Summary, Tone};
use crate::text::cut;
use crate::words::{digits, fraction, time, times};

/// A brick with less of the time than this is not worth a row.
const LEAST_SHARE: f64 = 0.01;

/// The rows of bricks, and one that sums up the rest.
pub(super) fn table(main: &Main, columns: usize, room: usize, text: &mut Summary) {
    let (bar, has_spread, has_rates) = match columns {
        ..110 => (10, false, false),
        110..150 => (20, true, false),
        _ => (30, true, true),
    };
    // The header.
    let room = room.saturating_sub(1).max(3);
    let is_shown = |brick: &&Brick| main.share(brick.ran_ns()) >= LEAST_SHARE;
    // A table without rows says nothing.
    const LEAST_ROWS: usize = 3;
    let n = main.bricks.iter().take_while(is_shown).count();
    let mut n = n.max(LEAST_ROWS.min(main.bricks.len())).min(room);
    // A row that sums up one brick is as long as its own.
    if n + 1 == main.bricks.len() && n < room {
        n += 1;
    }
    // A name that looks like another one when it is cut has a line of its own.
    let names = |n: usize| main.bricks[..n].iter().map(|brick| &*brick.name);
    // Beside the name: its bar, share, time and place, and the further columns.
    let others = bar + 50 + if has_spread { 22 } else { 0 } + if has_rates { 30 } else { 0 };
    let alike = alike_when_cut(names(n), columns.saturating_sub(others).max(5));
    while n > 1 && n + names(n).filter(|name| alike.contains_key(name)).count() > room {
        n -= 1;
    }
    let shown = &main.bricks[..n];
    let longest = shown.iter().map(|brick| brick.name.chars().count()).max().unwrap_or(0);
    let width = longest.min(columns.saturating_sub(others)).max(5);
    let phase = main.phase.map_or("", Phase::name);
    let each = if main.passes > 0.0 { "× a pass" } else { "× spans" };
    let share = if main.is_of_busy_time { "of busy" } else { "share" };
    let each_is = if main.is_of_medians { "median" } else { "each" };
    let mut header = format!("{phase:bar$} {:width$} {share:>7} {each_is:>10} {each:9}", "brick");
    if has_spread {
        let _ = write!(header, "{:>9}{:>11}", "p50", "p99");
    }
    if has_rates {
        let _ = write!(header, "{:>9}{:>10}{:>11}", "GB/s", "GFLOP/s", "µs above");
    }
    if main.bricks.iter().any(|brick| brick.roof.is_some()) {
        header.push_str("  of its roof");
    }
    text.line(header.trim_end());
    let most = shown.first().map_or(0.0, Brick::ran_ns);
    for brick in shown {
        let share = main.share_of(slice::from_ref(brick));
        let (reach, tone) = brick.reach(share.unwrap_or(0.0));
        let whole = alike.get(&*brick.name);
        if let Some(whole) = whole {
            text.line(format!("{:bar$} {}", "", cut(whole, columns - bar - 1)));
        }
        let mean = match brick.spans {
            0 => String::new(),
            n => time(brick.own_ns / n as f64),
        };
        let times = match brick.spans as f64 / main.passes {
            each if main.passes > 0.0 && each.is_finite() && brick.spans > 0 => {
                format!("× {}", times(each))
            }
            _ if brick.spans > 0 => format!("× {}", brick.spans),
            _ => String::new(),
        };
        let mut row = format!(
            " {:width$} {:>7} {mean:>10} {times:9}",
            whole.map_or_else(|| cut(&brick.name, width), |_| String::new()),
            share_in_words(share),
        );
        if has_spread {
            let of = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| time(ns as f64));
            let _ = write!(row, "{:>9}{:>11}", of(brick.p50_ns), of(brick.p99_ns));
        }
        if has_rates {
            let place = brick.roof.as_ref().and_then(|roof| roof.place.as_ref());
            let of = |rate: f64| if rate > 0.0 { digits(rate / 1e9) } else { "-".to_owned() };
            let [bytes, flops, above] = place.map_or([const { String::new() }; 3], |place| {
                let above = format!("{:.1}", place.us_to_roof);
                [of(place.bytes_per_second), of(place.flops_per_second), above]
            });
            let _ = write!(row, "{bytes:>9}{flops:>10}{above:>11}");
        }
        row.push_str("  ");
        text.lines.push(vec![
            Piece { text: bar_of(brick.ran_ns() / most, bar), tone },
            Piece { text: screened_lines(row), tone: Tone::Plain },
            Piece { text: screened_lines(reach), tone },
        ]);
    }
    let rest = &main.bricks[n..];
    if !rest.is_empty() {
        let together = share_in_words(main.share_of(rest));
        let text_of_rest = format!("{} more, {together} together", rest.len());
        text.line(format!("{:bar$} {text_of_rest}", "…"));
    }
}

/// A share; `-` if streams overlap and it isn't known when the brick ran.
fn share_in_words(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), fraction)
}

/// A bar of `share` of `width` characters, in steps of an eighth.
fn bar_of(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = ((share * width as f64 * 8.0).round() as usize).max(1);
    let bar = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    let blank = width.saturating_sub(bar.chars().count());
    bar + &" ".repeat(blank)
}
