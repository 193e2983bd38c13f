//! Tokens of requests that were slow, most of them for one cause that a change of the server or of its clients could cure.
//!
//! Which tokens are slow, and why, is what `brickscope requests` says. What they waited is measured, and bounds what a cure
//! brings: a change of the order in which a server works may move waits elsewhere.

mod prompts;
mod queue;

use std::collections::HashMap;

use brickscope_profile::Profile;
use brickscope_profile::text::{grouped, printable};

use self::queue::Queued;
use super::facts::Facts;
use super::server::{Flag, Server};
use super::{Finding, FindingKind, Findings, Waits, gaps};
use crate::requests::{Alone, Cause, Caused, Causes, OfKind, Piece, Requests};
use crate::text::cut;
use crate::typical::passes_text;
use crate::words::{many, quoted, time};

/// What is found of the queue where it is most of the time to first tokens, in a sentence, as a finding says it.
pub(crate) fn queue_of_all(requests: &Requests<'_>, profile: &Profile) -> Option<String> {
    let [_, (_, rule), ..] = RULES;
    Some(Queued::of(requests, profile)?.finding(rule, profile).sentence().to_owned())
}

/// The causes that have a rule.
const RULES: [(Cause, &str); 5] = [
    (Cause::Prompts, "prompts-stall-decode"),
    (Cause::Queue, "queue-for-places"),
    (Cause::Again, "tokens-computed-again"),
    (Cause::Between, "host-between-passes"),
    (Cause::Sending, "slow-client"),
];

/// The most requests that are named.
const MOST_NAMES: usize = 3;
/// Columns of a request's name.
const NAME: usize = 36;
/// The longest name that a command has.
const LONGEST_ID: usize = 200;
/// Why there is no command that starts the server otherwise.
const NO_FLAGS: &str = "the flags of the program that was started are not known here, or its command was not kept whole: set it \
                        there, ask the same (`brickscope load --seed`), and compare `brickscope requests`";
/// Where a profile has what requests wait for.
const PLACE: &str = "/requests, /parts and /passes";

/// The slow tokens of a kind that have the cause which most of them have.
struct Slowed<'c> {
    what: &'static str,
    causes: &'c Causes,
    of: Vec<&'c Caused>,
}

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let profile = facts.profile;
    // The run of a client has no passes, and doesn't tell what its requests waited for.
    // Where not all were kept, those that are there are the slow ones, and say nothing of how many are.
    if profile.requests.is_empty() || profile.passes.is_empty() || profile.kept.is_some() {
        return;
    }
    let requests = Requests::of(profile);
    let kinds = Causes::of_kinds(&requests);
    for (cause, rule) in RULES {
        let (slowed, by_chance) = slowed_by(&requests, &kinds, cause);
        for what in by_chance {
            findings.unknown(rule, prompts::not_known(what));
        }
        let queued = match cause {
            Cause::Queue => Queued::of(&requests, profile),
            _ => None,
        };
        let found = match (slowed.is_empty(), queued) {
            (true, None) => continue,
            (true, Some(queued)) => queued.finding(rule, profile),
            (false, queued) => {
                let finding = finding(&requests, profile, cause, rule, &slowed);
                match queued {
                    Some(queued) => queued.because(finding),
                    None => finding,
                }
            }
        };
        findings.found.push(found);
    }
}

/// The kinds of tokens of which most slow ones have a cause, and those where it is by chance that they do.
fn slowed_by<'c>(
    requests: &Requests<'_>,
    kinds: &'c [OfKind],
    cause: Cause,
) -> (Vec<Slowed<'c>>, Vec<&'static str>) {
    let mut slowed: Vec<Slowed<'c>> = kinds
        .iter()
        .filter(|(_, causes)| causes.most().is_some_and(|(most, _)| most == cause))
        .map(|(what, causes)| Slowed {
            what,
            causes,
            of: causes.slow.iter().filter(|of| of.cause == cause).collect(),
        })
        .collect();
    let is_of_prompts = cause == Cause::Prompts && !slowed.is_empty();
    let by_chance =
        if is_of_prompts { prompts::take_out_chance(requests, &mut slowed) } else { Vec::new() };
    (slowed, by_chance)
}

/// What to try against a cause of slow tokens: with the value of a flag, as the finding of it says, if there is one.
pub(crate) fn advice(
    requests: &Requests<'_>,
    profile: &Profile,
    kinds: &[OfKind],
    cause: Cause,
) -> Option<String> {
    let rule = RULES.iter().find(|(of, _)| *of == cause).map(|(_, rule)| *rule);
    // Of requests that were kept because they are slow there is no finding, and how many share a pass isn't known.
    let rule = rule.filter(|_| profile.kept.is_none());
    if let Some(rule) = rule {
        let (slowed, _) = slowed_by(requests, kinds, cause);
        if !slowed.is_empty() {
            return Some(finding(requests, profile, cause, rule, &slowed).advice);
        }
    }
    cause.advice().map(str::to_owned)
}

fn finding(
    requests: &Requests<'_>,
    profile: &Profile,
    cause: Cause,
    rule: &'static str,
    slowed: &[Slowed<'_>],
) -> Finding {
    let all = || slowed.iter().flat_map(|slowed| slowed.of.iter().copied());
    let sum = |ns: &dyn Fn(&Caused) -> u64| all().map(ns).fold(0, u64::saturating_add);
    let alone = Alone::of(requests);
    let waits = Waits {
        tokens: all().count() as u64,
        took_ns: sum(&|of| of.interval.ns()),
        waited_ns: sum(&|of| waited_ns(requests, of)),
        gain_ns: sum(&|of| {
            let stays_ns = alone.stays_ns(&of.interval, waited_in_own_ns(requests, of));
            waited_ns(requests, of).saturating_sub(stays_ns)
        }),
    };
    let mut finding = Finding::new(rule, FindingKind::Slow, None);
    let who = slowed.iter().map(|Slowed { what, causes, of }| {
        format!(
            "{} of {} slow {what}s",
            grouped(of.len() as u64),
            grouped(causes.slow.len() as u64)
        )
    });
    let who: Vec<String> = who.collect();
    finding.what = format!("{} {}", who.join(" and "), did(cause));
    for Slowed { what, causes, .. } in slowed {
        let counts = causes.counts().into_iter();
        let counts = counts.map(|(cause, n)| format!("{} {}", cause.name(), grouped(n)));
        let counts: Vec<String> = counts.collect();
        let text = format!("{} {}", causes.how_many_slow(what), counts.join("; "));
        finding = finding.because(text, PLACE);
    }
    finding = says(finding, &waits, &alone, when(cause)).because(
        format!("their requests: {}", names(profile, &whose(all()), "slow token")),
        "/requests, id",
    );
    finding.advice = cause.advice().unwrap_or_default().to_owned();
    refuted_if(cause).clone_into(&mut finding.refuted_if);
    let server = Server::of(profile);
    let finding = match cause {
        Cause::Prompts => prompts::of_prompts(finding, requests, profile, server, slowed),
        Cause::Queue => queue::of_places(finding, profile, server),
        Cause::Again => of_cache(finding, profile, server),
        Cause::Between => of_host(finding, profile),
        _ => finding,
    };
    let mut finding = finding.waited(waits);
    if finding.test.is_none() && finding.test_absent.is_none() {
        finding = shows_one(finding, profile, &whose(all()));
    }
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    finding
}

/// The sums, as evidence: what was waited, and what of it stays.
pub(super) fn says(finding: Finding, waits: &Waits, alone: &Alone, when: &str) -> Finding {
    let text = format!(
        "{} of the {} that these {} took, summed over requests, were {when}",
        time(waits.waited_ns as f64),
        time(waits.took_ns as f64),
        many(waits.tokens, "token"),
    );
    let finding = finding.because(text, PLACE);
    let stays_ns = waits.waited_ns.saturating_sub(waits.gain_ns);
    if stays_ns == 0 {
        return finding;
    }
    let which = match alone.median_of {
        Some(n) => format!("the median of {} without a prompt", passes_text(n)),
        None => "the shortest one of the run".to_owned(),
    };
    let text = format!(
        "{} of that stays: each of these tokens needs a pass of its own, and one takes {}, {which}",
        time(stays_ns as f64),
        time(alone.ns as f64)
    );
    finding.because(text, "/passes, wall_ns; /parts, kind")
}

/// The part of that in passes of its own.
fn waited_in_own_ns(requests: &Requests<'_>, of: &Caused) -> u64 {
    let interval = &of.interval;
    match of.cause {
        Cause::Prompts => {
            interval.of(Piece::OwnBesidePrompts).saturating_add(interval.of(Piece::OwnBesideBoth))
        }
        Cause::Again => requests.again_ns(interval),
        _ => 0,
    }
}

/// How long a slow token waited for its cause.
fn waited_ns(requests: &Requests<'_>, of: &Caused) -> u64 {
    let interval = &of.interval;
    match of.cause {
        Cause::Prompts => {
            let pieces = Piece::ALL.into_iter().filter(|piece| piece.has_prompts_of_others());
            pieces.map(|piece| interval.of(piece)).sum()
        }
        Cause::Queue => interval.of(Piece::Queue),
        Cause::Again => requests.again_ns(interval),
        Cause::Between => interval.of(Piece::Between),
        // From when the next pass began.
        _ => of.more_ns,
    }
}

/// What slow tokens did, as the end of a sentence.
fn did(cause: Cause) -> &'static str {
    match cause {
        Cause::Prompts => "waited most for prompts of others",
        Cause::Queue => "waited most for a place in the batch",
        Cause::Again => "waited most for tokens of their own that were computed again",
        Cause::Between => "waited most for the host, between passes",
        _ => "were there, and not sent: who asked reads slowly, or what sends them had no CPU",
    }
}

/// The time that they waited.
fn when(cause: Cause) -> &'static str {
    match cause {
        Cause::Prompts => "in passes with prompts of others",
        Cause::Queue => "in the queue",
        Cause::Again => "in passes that computed tokens of their own again",
        Cause::Between => "between passes",
        _ => "after the begin of the next pass",
    }
}

fn refuted_if(cause: Cause) -> &'static str {
    match cause {
        Cause::Prompts => {
            "with smaller pieces of prompts, under the same load, as many further tokens are slow"
        }
        Cause::Queue => {
            "with more places in the batch, under the same load, first tokens take as long"
        }
        Cause::Again => {
            "with fewer places in the batch, under the same load, as many tokens are computed again"
        }
        Cause::Between => {
            "without grammars and with few samplers, under the same load, as many tokens are slow"
        }
        _ => "with clients that read at once, under the same load, as many tokens are slow",
    }
}

/// How many of these tokens each request has, the most first.
fn whose<'c>(slow: impl Iterator<Item = &'c Caused>) -> Vec<(u32, u64)> {
    let mut counts: HashMap<u32, u64> = HashMap::new();
    for of in slow {
        *counts.entry(of.interval.request).or_default() += 1;
    }
    sorted(counts)
}

fn sorted(counts: HashMap<u32, u64>) -> Vec<(u32, u64)> {
    let mut counts: Vec<(u32, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|&(request, n)| (std::cmp::Reverse(n), request));
    counts
}

/// The first of some requests, each with how many it has of something, and how many others there are.
fn names(profile: &Profile, all: &[(u32, u64)], what: &str) -> String {
    let named = all.iter().take(MOST_NAMES).map(|&(request, n)| {
        let known = profile.requests.get(request as usize);
        let id = known.map_or("requests that aren't known", |request| &request.id);
        format!("{} ({})", cut(&printable(id), NAME), many(n, what))
    });
    let named: Vec<String> = named.collect();
    let more = match all.len() - named.len() {
        0 => String::new(),
        1 => ", and 1 other".to_owned(),
        rest => format!(", and {} others", grouped(rest as u64)),
    };
    named.join(", ") + &more
}

/// The server with fewer requests that share its KV cache.
fn of_cache(finding: Finding, profile: &Profile, server: Option<Server<'_>>) -> Finding {
    let in_a_pass = most_in_a_pass(profile);
    let finding = finding
        .because(format!("at most {} in one pass", many(in_a_pass, "request")), "/parts, request");
    if in_a_pass < 2 {
        return finding.untested("there was one request in a pass at a time");
    }
    let Some(server) = server else { return finding.untested(NO_FLAGS) };
    let fewer = in_a_pass / 2;
    let mut finding = starts(finding, server.with_places(in_a_pass, fewer));
    finding.advice = format!(
        "more room in the KV cache (vLLM: --gpu-memory-utilization), or fewer places in the batch ({} {fewer})",
        server.name(Flag::Places)
    );
    finding
}

/// What takes most of the time between passes, if that is known.
fn of_host(mut finding: Finding, profile: &Profile) -> Finding {
    let between = profile.run.as_ref().and_then(|run| run.between.as_ref());
    let Some(between) = between.filter(|between| between.between_ns > 0) else { return finding };
    let (name, ns) = gaps::longest(between);
    let name = printable(name);
    finding.advice = format!("{}; {}", finding.advice, gaps::advice(&name));
    finding.because(
        format!(
            "of all time between passes, {}, {name} takes {}",
            time(between.between_ns as f64),
            time(ns as f64)
        ),
        "/run/between",
    )
}

/// Its test is the server's command with another value.
fn starts(mut finding: Finding, command: String) -> Finding {
    finding.test = Some(command);
    finding.is_whole_command = true;
    finding
}

/// Its test is to look at the request that has most of the slow tokens.
fn shows_one(mut finding: Finding, profile: &Profile, whose: &[(u32, u64)]) -> Finding {
    let first = whose.first().and_then(|(request, _)| profile.requests.get(*request as usize));
    // Of another name a command would make something else.
    let is_plain =
        |id: &&str| quoted(id) == **id && !["RUN", "MODEL"].contains(id) && id.len() <= LONGEST_ID;
    let id = first.map(|request| request.id.as_str()).filter(is_plain);
    let one = id.map(|id| format!(" --request {id}"));
    finding.test = Some(format!("brickscope requests RUN{}", one.unwrap_or_default()));
    finding
}

/// The most requests that one pass was for.
fn most_in_a_pass(profile: &Profile) -> u64 {
    let parts = profile.parts.iter().map(|of| (of.pass, of.part.request));
    let mut parts: Vec<(u32, u32)> = parts.collect();
    parts.sort_unstable();
    parts.dedup();
    parts.chunk_by(|a, b| a.0 == b.0).map(|of_pass| of_pass.len() as u64).max().unwrap_or(0)
}
