//! What the slowest hundredth of tokens have that others don't.

use std::fmt::Write;

use brickscope_profile::Profile;
use brickscope_profile::text::{grouped, printable};

use crate::requests::Slow;
use crate::text::{cut, padded};
use crate::view::layout::wrapped;
use crate::words::{many, signed, time};

/// The most names of neighbours.
const MOST_NAMES: usize = 3;
/// Columns of a request's name.
const NAME: usize = 36;
/// Columns of what lies in a piece of an interval: the longest of its names.
const PIECE: usize = 45;

/// The slowest hundredth beside the others, piece by piece, and whose prompts were in it.
pub(super) fn table(profile: &Profile, what: &str, slow: &Slow, text: &mut String) {
    text.push('\n');
    wrapped(&(slowest(what, slow) + ":"), text);
    let line = |name: &str, slow_ns: f64, others_ns: f64, text: &mut String| {
        let _ = writeln!(
            text,
            "{}  {:>9}  {:>9}  {:>10}",
            padded(name, PIECE),
            time(slow_ns),
            time(others_ns),
            signed(slow_ns - others_ns),
        );
    };
    let _ = writeln!(text, "{:PIECE$}  {:>9}  {:>9}  {:>10}", "", "slow", "others", "more");
    for (piece, slow_ns, others_ns) in &slow.pieces {
        line(piece.name(), *slow_ns, *others_ns, text);
    }
    line("together", slow.slow_ns, slow.others_ns, text);
    let prompts = prompts_of_others(profile, slow);
    let too = if prompts.is_some() { ", too" } else { "" };
    for sentence in prompts.into_iter().chain(slow.waited.sentence(slow.slow, too)) {
        wrapped(&sentence, text);
    }
}

/// How long the slowest hundredth took, without a full stop.
pub(super) fn slowest(what: &str, slow: &Slow) -> String {
    let all = slow.slow + slow.others;
    let (all, took) = (grouped(all), time(slow.slow_ns));
    let more = time(slow.slow_ns - slow.others_ns);
    let (n, of_slow, of_others) = match slow.slow {
        1 => (String::new(), "", " on average"),
        n => (grouped(n) + " ", " on average", ""),
    };
    let took = format!("{took}{of_slow}, {more} more than the others{of_others}");
    format!("The slowest {n}of {all} {what}s took {took}")
}

/// Whose prompts were processed in these. `None` if nobody's were.
pub(super) fn prompts_of_others(profile: &Profile, slow: &Slow) -> Option<String> {
    let names = slow.neighbours.iter().take(MOST_NAMES).map(|of| {
        let known = profile.requests.get(of.request as usize);
        let id = known.map_or("requests that aren't known", |request| &request.id);
        let (id, tokens) = (cut(&printable(id), NAME), many(of.tokens, "token"));
        match slow.slow {
            1 => format!("{id} ({tokens})"),
            _ => format!("{id} ({tokens}) in {}", grouped(of.in_slow)),
        }
    });
    let names: Vec<String> = names.collect();
    let more = match slow.neighbours.len() - names.len() {
        0 => String::new(),
        1 => ", and 1 other".to_owned(),
        rest => format!(", and {} others", grouped(rest as u64)),
    };
    let these = if slow.slow == 1 { "this one" } else { "these" };
    let names = names.join(", ");
    (!names.is_empty()).then(|| format!("Prompts of others in {these}: {names}{more}."))
}
