//! First tokens that waited for prompts of their own, in a server that was told to keep none.
//!
//! Whether prompts begin alike is not recorded, so what a cache would find is not known: the whole wait bounds it.

use brickscope_profile::text::grouped;

use super::facts::Facts;
use super::server::Server;
use super::slow_tokens::says;
use super::{Finding, FindingKind, Findings, Waits};
use crate::requests::{Alone, Cause, Causes, Interval, OWN, Requests, Until};

const RULE: &str = "prompt-cache-off";
const ADVICE: &str =
    "keep prompts (llama-server: no --no-cache-prompt; vLLM: no --no-enable-prefix-caching)";
const PLACE: &str = "/requests, /parts and /passes";

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let profile = facts.profile;
    let Some(test) = Server::of(profile).and_then(|server| server.with_prompt_cache()) else {
        return;
    };
    // A request may ask for the cache by itself.
    let is_whole = profile.kept.is_none() && !profile.requests.is_empty();
    if !is_whole || profile.parts.iter().any(|of| of.part.cached > 0) {
        return;
    }
    let requests = Requests::of(profile);
    let causes = Causes::of(&requests, |until| until == Until::FirstToken);
    let Some(causes) = causes.filter(|of| of.most().is_some_and(|(most, _)| most == Cause::Own))
    else {
        return;
    };
    let own = || causes.slow.iter().filter(|of| of.cause == Cause::Own).map(|of| &of.interval);
    let alone = Alone::of(&requests);
    let in_own = |of: &Interval| OWN.map(|piece| of.of(piece)).into_iter().sum::<u64>();
    let waits = Waits {
        tokens: own().count() as u64,
        took_ns: own().map(|of| of.ns()).fold(0, u64::saturating_add),
        waited_ns: own().map(in_own).fold(0, u64::saturating_add),
        gain_ns: own()
            .map(|of| in_own(of) - alone.stays_ns(of, in_own(of)))
            .fold(0, u64::saturating_add),
    };
    let mut finding = Finding::new(RULE, FindingKind::Slow, None);
    finding.what = format!(
        "{} of {} slow first tokens waited most for their own prompts, and the server keeps none",
        grouped(waits.tokens),
        grouped(causes.slow.len() as u64)
    );
    let counts = causes.counts().into_iter();
    let counts = counts.map(|(cause, n)| format!("{} {}", cause.name(), grouped(n)));
    let counts: Vec<String> = counts.collect();
    let slow = format!("{} {}", causes.how_many_slow("first token"), counts.join("; "));
    let finding = finding.because(slow, PLACE);
    let mut finding = says(finding, &waits, &alone, "in passes of their own prompts")
        .because("no pass found a token of a prompt in a cache", "/parts, cached")
        .waited(waits);
    ADVICE.clone_into(&mut finding.advice);
    finding.refuted_if =
        "with prompts kept, under the same load, as many first tokens are slow".to_owned();
    finding.test = Some(test);
    finding.is_whole_command = true;
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    findings.found.push(finding);
}
