//! Requests as a list.

use std::collections::BTreeSet;
use std::fmt::Write;

use brickscope_profile::Profile;
use brickscope_profile::text::grouped;

use super::missed::not_recorded;
use super::names::shortened;
use crate::requests::{Cause, Listed, Order, Requests};
use crate::text::padded;
use crate::view::layout::wrapped;
use crate::words::time;

/// Columns of a request's number and its name: of a longer name its beginning and its end are shown.
const REQUEST: usize = 19;
/// The fewest columns of the number.
const NUMBER: usize = 3;
/// The fewest columns of the name.
const NAME: usize = 8;
/// Columns of a cause.
const CAUSE: usize = 8;

/// The requests of a run, a line each: when it came, its tokens, how long it waited for the first and at most for a further
/// one, and why for each; at the end how many more came that are not recorded. At most 80 columns wide. They are in the order
/// in which they were told, or in one that is asked for.
#[must_use]
pub(super) fn list_of_requests(profile: &Profile, order: Option<Order>) -> String {
    let mut text = of(&Requests::of(profile), order);
    if let Some(missed) = not_recorded(profile) {
        wrapped(&missed, &mut text);
    }
    text
}

pub(super) fn of(requests: &Requests<'_>, order: Option<Order>) -> String {
    let list = order.map_or_else(|| requests.list(), |order| requests.list_by(order));
    let mut text = String::new();
    text.push_str(
        "Each request, its first token and its worst further one, each with its cause:\n",
    );
    let number = requests.all().len().to_string().len().max(NUMBER);
    let name = REQUEST.saturating_sub(number).max(NAME);
    let widths = [number, name];
    let head = ["", "request", "arrived", "prompt", "answer", "first", "cause", "worst", "cause"];
    line(widths, head, &mut text);
    let mut causes: BTreeSet<Cause> = BTreeSet::new();
    for request in list {
        let Listed { prompt_tokens, answer_tokens, first_ns, worst_ns, .. } = request;
        let tokens = |n: Option<u64>| n.map_or("-".to_owned(), grouped);
        let took = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| time(ns as f64));
        let nth = (u64::from(request.number) + 1).to_string();
        let name = shortened(&request, name);
        let arrived = at(request.of.arrived_ns);
        let [prompt, answer] = [prompt_tokens, answer_tokens].map(tokens);
        let [first, worst] = [first_ns, worst_ns].map(took);
        let both = [request.first_cause, request.cause];
        causes.extend(both.into_iter().flatten());
        let [why_first, why_worst] = both.map(|cause| cause.map_or("-", Cause::short));
        let row: [&str; 9] =
            [&nth, &name, &arrived, &prompt, &answer, &first, why_first, &worst, why_worst];
        line(widths, row, &mut text);
    }
    if !causes.is_empty() {
        let causes = causes.iter().map(|of| format!("{} ({})", of.name(), of.short()));
        wrapped(&format!("Causes: {}", causes.collect::<Vec<_>>().join("; ")), &mut text);
    }
    text
}

/// Since the run began: of days in whole seconds.
fn at(ns: u64) -> String {
    match ns as f64 / 1e9 {
        seconds if seconds >= 1e4 => format!("{seconds:.0} s"),
        _ => time(ns as f64),
    }
}

fn line([number, name]: [usize; 2], cells: [&str; 9], text: &mut String) {
    let [nth, request, arrived, prompt, answer, first, why_first, worst, why_worst] = cells;
    let request = format!("{nth:>number$} {} {arrived:>9}", padded(request, name));
    let tokens = format!("{prompt:>6} {answer:>6}");
    let times = format!("{first:>8} {why_first:CAUSE$} {worst:>8} {why_worst}");
    let _ = writeln!(text, "{}", format!("{request} {tokens} {times}").trim_end());
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Pass, Phase, Request};

    use super::*;

    #[test]
    fn what_is_shown_of_a_long_name_names_its_request() {
        let mut profile = Profile::empty(ClockInfo::default());
        let ids = [
            "chatcmpl-vLxCgp0WXgxgiI3HYkogO5Td9zvpZrpi",
            "chatcmpl-vLxCg9KWXgxgiI3HYkogO5Td9zvpZrpi",
            "chatcmpl-WeQ6thOaquAV7Ba3DntGdW5o6vBqtEcn",
        ];
        let request = |id: &str| Request { id: id.to_owned(), ..Request::default() };
        profile.requests.extend(ids.map(request));
        let text = list_of_requests(&profile, None);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let requests = Requests::of(&profile);
        for (row, number) in text.lines().skip(2).zip(0..) {
            let name = row.split_whitespace().nth(1).expect("a name");
            let (begin, _) = name.split_once('…').expect("it is cut");
            assert_eq!(requests.named(begin), Ok(number), "{row}");
            assert_eq!(requests.named(name), Ok(number), "{row}");
        }
    }

    #[test]
    fn both_waits_have_a_cause_that_fits_and_lines_are_in_the_order_that_is_asked_for() {
        let mut profile = Profile::empty(ClockInfo::default());
        // The last one waits for a place, and for a further token while nothing runs.
        for nth in 0..20_u64 {
            let arrived_ns = nth * 1_000_000_000_000;
            let (queue, gap) = if nth == 19 { (700_000_000, 90_000_000) } else { (100, 1_000) };
            profile.requests.push(Request {
                id: format!("r{nth}"),
                arrived_ns,
                admitted_ns: Some(arrived_ns + queue),
                tokens_ns: vec![arrived_ns + queue + 100, arrived_ns + queue + 100 + gap],
                ..Request::default()
            });
        }
        profile.passes.push(Pass {
            serial: 0,
            phase: Phase::Decode,
            lane: 0,
            tokens: 1,
            position: 0,
            start_ns: 0,
            wall_ns: 0,
            attributed_ns: 0,
            unattributed_ns: 0,
            disturbance: None,
            is_left_out: false,
        });
        let text = list_of_requests(&profile, Some(Order::First));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1..4],
            [
                "    request            arrived prompt answer    first cause       worst cause",
                " 20 r19                19000 s      -      2   700 ms queue     90.0 ms host",
                "  1 r0                    0 ns      -      2   200 ns -         1.00 µs -",
            ]
        );
        let legend = "Causes: no place in the batch (queue); the host, between passes (host)";
        assert_eq!(lines.last(), Some(&legend));
    }
}
