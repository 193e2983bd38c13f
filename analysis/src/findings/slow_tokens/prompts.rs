//! Slow tokens that waited for prompts of others: whose these were, what they cost, and what smaller pieces would bring.
//!
//! What was waited is measured. What prompts cost in a pass that others shared, and what it would take with smaller ones, is
//! predicted from other passes of the run, or not known.

use std::collections::HashMap;

use brickscope_profile::Profile;

use super::{NO_FLAGS, PLACE, Slowed, most_in_a_pass, names, sorted, starts};
use crate::findings::Finding;
use crate::findings::server::{Flag, Server};
use crate::requests::{CHANCE, Costs, Requests, WithoutPrompts};
use crate::words::many;

/// Smaller pieces of prompts make matrices be read for few tokens.
const LEAST_PIECE: u64 = 32;
/// vLLM refuses fewer tokens in a step than requests, of which its default is at most so many.
const MOST_DEFAULT_SEQUENCES: u64 = 1_024;

/// Takes out the kinds of tokens that happen to have prompts beside them, since passes with such are slow no more often than
/// others, and returns their names.
pub(super) fn take_out_chance(
    requests: &Requests<'_>,
    slowed: &mut Vec<Slowed<'_>>,
) -> Vec<&'static str> {
    let without = WithoutPrompts::of(requests);
    let mut by_chance = Vec::new();
    slowed.retain(|of| {
        let is_by_chance = Costs::of(&without, &of.causes.slow).is_by_chance;
        by_chance.extend(is_by_chance.then_some(of.what));
        !is_by_chance
    });
    by_chance
}

/// Why nothing is found of such.
pub(super) fn not_known(what: &str) -> String {
    format!("whether prompts of others slow {what}s is not known: {CHANCE}")
}

/// Whose prompts they were, how large, what they cost, and the server with smaller pieces.
pub(super) fn of_prompts(
    finding: Finding,
    requests: &Requests<'_>,
    profile: &Profile,
    server: Option<Server<'_>>,
    slowed: &[Slowed<'_>],
) -> Finding {
    let (mut tokens, mut largest): (HashMap<u32, u64>, u64) = (HashMap::new(), 0);
    for of in slowed.iter().flat_map(|slowed| &slowed.of) {
        largest = largest.max(requests.largest_prompt_piece(&of.interval));
        for (request, n) in requests.prompts_of_others(&of.interval) {
            let most = tokens.entry(request).or_default();
            *most = n.max(*most);
        }
    }
    let neighbours = names(profile, &sorted(tokens), "token");
    let finding = finding
        .because(format!("the most that one of them waited for: prompts of {neighbours}"), PLACE)
        .because(
            format!("one pass had up to {} of prompts", many(largest, "token")),
            "/parts, tokens",
        );
    let without = WithoutPrompts::of(requests);
    let finding =
        told(finding, slowed, |slowed| Costs::of(&without, &slowed.causes.slow).sentences());
    let piece = match smaller(profile, server, largest) {
        Ok(piece) => piece,
        Err(why) => return finding.untested(why),
    };
    let without = WithoutPrompts::of_pieces(requests, piece);
    let mut finding =
        told(finding, slowed, |slowed| Costs::of(&without, &slowed.causes.slow).of_smaller(piece));
    finding.advice = format!("{}, or long ones elsewhere", in_pieces(profile, server, piece));
    match server {
        Some(server) => starts(finding, server.with(Flag::PassTokens, piece)),
        None => finding.untested(NO_FLAGS),
    }
}

/// `prompts in smaller pieces (-b 256, now 512)`
fn in_pieces(profile: &Profile, server: Option<Server<'_>>, piece: u64) -> String {
    let run = profile.run.as_ref();
    let is_llama = run.is_some_and(|run| run.backend.starts_with("llama.cpp"));
    let flag = match server {
        Some(server) => server.name(Flag::PassTokens),
        None if is_llama => "llama-server's -b",
        None => return format!("prompts in pieces of at most {}", many(piece, "token")),
    };
    let engine = run.and_then(|run| run.engine.as_ref());
    let by_flag = server.and_then(|server| server.value(Flag::PassTokens));
    let now = by_flag.or(engine.and_then(|engine| engine.batch_tokens));
    let now = now.map_or(String::new(), |now| format!(", now {now}"));
    format!("prompts in smaller pieces ({flag} {piece}{now})")
}

/// What is said of each kind of tokens, as evidence.
fn told(
    mut finding: Finding,
    slowed: &[Slowed<'_>],
    sentences: impl Fn(&Slowed<'_>) -> Vec<String>,
) -> Finding {
    for of in slowed {
        let which = if slowed.len() > 1 { format!("{}s: ", of.what) } else { String::new() };
        for sentence in sentences(of) {
            let text = format!("{which}{}", sentence.trim_end_matches('.'));
            finding = finding.because(text, PLACE);
        }
    }
    finding
}

/// Into how large pieces prompts may be cut: half of the largest one, or a little more. Else why the server doesn't cut them so.
fn smaller(
    profile: &Profile,
    server: Option<Server<'_>>,
    largest: u64,
) -> Result<u64, &'static str> {
    // The tokens of a pass are those of prompts and one of each request that decodes.
    let in_passes = || most_in_a_pass(profile).saturating_add(LEAST_PIECE);
    let least = match server {
        Some(server) if !server.cuts_prompts() => {
            return Err("it was told not to cut prompts, so with a lower value it may not start");
        }
        Some(server) => match server.value(Flag::Places) {
            Some(places) => places.saturating_add(LEAST_PIECE),
            None if server.is_llama_server() => in_passes(),
            None => MOST_DEFAULT_SEQUENCES,
        },
        None => in_passes(),
    };
    // A round number: the largest power of two that is less.
    let half = largest.checked_next_power_of_two().unwrap_or(largest) / 2;
    let piece = half.max(least);
    if piece < largest { Ok(piece) } else { Err("its pieces are as small as its places allow") }
}
