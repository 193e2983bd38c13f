//! One request, token by token.

use std::fmt::Write;

use brickscope_profile::Profile;
use brickscope_profile::text::printable;

use crate::requests::{
    Cause, Caused, Causes, Costs, FEWEST, Interval, KINDS, OwnBricks, Piece, Requests, Waits,
    WithoutPrompts,
};
use crate::text::{cut, wrap};
use crate::view::layout::wrapped;
use crate::words::time;

/// One request, token by token: what its time went to, and why it took long where it did. It is [named](Requests::named) by its
/// id, the beginning of it, its place in the list, or as the slowest.
///
/// # Errors
///
/// If the profile has no such request, or several: a sentence that says so.
pub(super) fn request(profile: &Profile, wanted: &str) -> Result<String, String> {
    let requests = Requests::of(profile);
    let number = requests.named(wanted)?;
    let of = &requests.all()[number as usize];
    let mut text = format!("request   {}", cut(&printable(&of.id), 60));
    if let Some(ending) = of.ending {
        let _ = write!(text, ", ended: {ending}");
    }
    text.push('\n');
    let without = WithoutPrompts::of(&requests);
    let mut slow: Vec<(Caused, bool)> = Vec::new();
    for (what, wanted) in KINDS {
        let Some(causes) = Causes::of(&requests, wanted) else {
            let few = format!("No {what} has a cause: this run has fewer than {FEWEST}.");
            wrapped(&few, &mut text);
            continue;
        };
        let its = causes.slow.iter().filter(|of| of.interval.request == number);
        let its: Vec<Caused> = its.copied().collect();
        // One of them is no better known than all.
        let is_by_chance = its.iter().any(|of| of.cause == Cause::Prompts)
            && Costs::of(&without, &causes.slow).is_by_chance;
        slow.extend(its.into_iter().map(|of| (of, is_by_chance)));
    }
    let by_own = slow.iter().any(|(of, _)| of.cause == Cause::Own);
    let bricks = if by_own { OwnBricks::of(&requests) } else { None };
    let _ = writeln!(text, "\n{:>5}  {:>10}  {:>10}  of that", "token", "at", "took");
    for interval in requests.intervals(number) {
        let at = time(interval.to_ns.saturating_sub(of.arrived_ns) as f64);
        let took = time(interval.ns() as f64);
        let indent = format!("{:>5}  {at:>10}  {took:>10}  ", interval.until);
        let mut lines = wrap(&pieces_of(&interval), 48);
        if let Some((of, is_by_chance)) = slow.iter().find(|(of, _)| of.interval == interval) {
            let mut said = vec![format!("slow: {}", of.cause.name())];
            said.extend(requests.waits(&interval).iter().flat_map(Waits::sentences));
            if of.cause == Cause::Prompts {
                said.extend(without.cost(&interval).sentences(*is_by_chance));
            }
            if let Some(bricks) = bricks.as_ref().filter(|_| of.cause == Cause::Own) {
                said.push(bricks.sentence(&interval));
            }
            lines.extend(said.iter().flat_map(|sentence| wrap(sentence, 48)));
        }
        for (nth, line) in lines.iter().enumerate() {
            let before = if nth == 0 { indent.as_str() } else { "" };
            let _ = writeln!(text, "{}", format!("{before:31}{line}").trim_end());
        }
    }
    Ok(text)
}

fn pieces_of(interval: &Interval) -> String {
    let mut pieces: Vec<_> = Piece::ALL.into_iter().zip(interval.pieces).collect();
    pieces.retain(|(_, ns)| *ns > 0);
    pieces.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let pieces = pieces.iter().map(|(piece, ns)| format!("{} {}", piece.name(), time(*ns as f64)));
    pieces.collect::<Vec<_>>().join("; ")
}
