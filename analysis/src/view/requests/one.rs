//! One request, token by token.

use std::fmt::Write;

use brickscope_profile::Profile;
use brickscope_profile::text::grouped;

use super::names::{Names, heading};
use crate::requests::{
    Cause, Caused, Causes, Costs, FEWEST, InPasses, Interval, KINDS, OwnBricks, Piece, Requests,
    Waits, WithoutPrompts,
};
use crate::text::wrap;
use crate::view::layout::wrapped;
use crate::words::{many, time};

/// The most names of those in the passes that ran while a request was in the queue: servers often have four places.
const MOST_NAMES: usize = 4;

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
    let mut text = heading(of);
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
    let names = Names::of(&requests);
    let _ = writeln!(text, "\n{:>5}  {:>10}  {:>10}  of that", "token", "at", "took");
    for interval in requests.intervals(number) {
        let at = time(interval.to_ns.saturating_sub(of.arrived_ns) as f64);
        let took = time(interval.ns() as f64);
        let indent = format!("{:>5}  {at:>10}  {took:>10}  ", interval.until);
        let mut lines = wrap(&pieces_of(&requests, &interval), 48);
        let mut said = Vec::new();
        let why = slow.iter().find(|(of, _)| of.interval == interval);
        let is_queued = why.is_some_and(|(of, _)| of.cause == Cause::Queue);
        if is_queued || interval.of(Piece::Queue) > interval.ns() / 2 {
            said.extend(while_queued(&requests.while_queued(&interval), &names));
        }
        if let Some((of, is_by_chance)) = why {
            said.extend(beside(&requests.beside(&interval), &names));
            said.push(format!("slow: {}", of.cause.name()));
            said.extend(requests.waits(&interval).iter().flat_map(Waits::sentences));
            if of.cause == Cause::Prompts {
                said.extend(without.cost(&interval).sentences(*is_by_chance));
            }
            if let Some(bricks) = bricks.as_ref().filter(|_| of.cause == Cause::Own) {
                said.push(bricks.sentence(&interval));
            }
        }
        lines.extend(said.iter().flat_map(|sentence| wrap(sentence, 48)));
        for (nth, line) in lines.iter().enumerate() {
            let before = if nth == 0 { indent.as_str() } else { "" };
            let _ = writeln!(text, "{}", format!("{before:31}{line}").trim_end());
        }
    }
    Ok(text)
}

/// What it waited for, most first, and where its own prompt was read.
fn pieces_of(requests: &Requests<'_>, interval: &Interval) -> String {
    let prompt = requests.own_prompt(interval);
    let mut pieces: Vec<_> = Piece::ALL.into_iter().zip(interval.pieces).collect();
    pieces.retain(|(_, ns)| *ns > 0);
    pieces.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let pieces = pieces.iter().map(|(piece, ns)| {
        let own = match prompt[*piece as usize] {
            0 => String::new(),
            n => format!(", with {} of its prompt", many(n, "token")),
        };
        format!("{} {}{own}", piece.name(), time(*ns as f64))
    });
    pieces.collect::<Vec<_>>().join("; ")
}

/// Who was in the same passes: the first, and how many more. `None` if nobody was.
fn beside(others: &[InPasses], names: &Names<'_>) -> Option<String> {
    let (first, rest) = others.split_first()?;
    Some(format!("beside {}{}", told(first, names), and_more(rest.len())))
}

/// Who was in the passes that ran while it was in the queue. `None` if none ran for anybody.
fn while_queued(others: &[InPasses], names: &Names<'_>) -> Option<String> {
    let named: Vec<String> = others.iter().take(MOST_NAMES).map(|of| told(of, names)).collect();
    let all = many(others.len() as u64, "other");
    let rest = and_more(others.len() - named.len());
    let named = named.join("; ");
    let ran = "while it was in the queue, passes ran for";
    (!others.is_empty()).then(|| format!("{ran} {all}: {named}{rest}"))
}

/// `chatcmpl-lD3S…XbQw (no. 43): 509 tokens of its prompt in 2.84 s of passes`
fn told(of: &InPasses, names: &Names<'_>) -> String {
    let prompt = match of.prompt_tokens {
        0 => None,
        n => Some(format!("{} of its prompt", many(n, "token"))),
    };
    let decoded = match of.decode_tokens {
        0 => None,
        n => Some(many(n, "decoded token")),
    };
    let tokens: Vec<String> = prompt.into_iter().chain(decoded).collect();
    let tokens = if tokens.is_empty() { "no tokens".to_owned() } else { tokens.join(" and ") };
    format!("{}: {tokens} in {} of passes", names.name(of.request), time(of.ns as f64))
}

fn and_more(n: usize) -> String {
    if n == 0 { String::new() } else { format!("; and {} more", grouped(n as u64)) }
}
