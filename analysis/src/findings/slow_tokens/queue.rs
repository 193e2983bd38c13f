//! Requests that waited for a place in the batch: whether that is most of what first tokens take, and how many places there are.
//!
//! Where all requests wait alike, none is slow against the median.

use brickscope_profile::text::grouped;
use brickscope_profile::{Profile, Request};

use super::{Cause, NO_FLAGS, PLACE, most_in_a_pass, refuted_if, starts};
use crate::findings::server::{Flag, Server};
use crate::findings::{Finding, FindingKind, Waits};
use crate::requests::{FEWEST, Piece, Requests, Until};
use crate::words::{many, time, whole_percent};

/// From this part of the time to first tokens on, the queue is what to shorten.
const MOST: f64 = 0.5;
/// So many requests must have waited for a place: fewer are chance.
const FEWEST_QUEUED: u64 = 5;

/// What first tokens waited in the queue, summed over all requests that have one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued {
    waits: Waits,
    /// How many requests waited while whole passes ran that were full.
    passed_over: u64,
    /// How many requests such a pass was for.
    full: u64,
}

impl Queued {
    /// `None` unless the queue is half of the time to first tokens, of enough requests, and places were full meanwhile: a
    /// request also waits for the end of the pass that runs.
    pub(super) fn of(requests: &Requests<'_>, profile: &Profile) -> Option<Self> {
        let in_a_pass = most_in_a_pass(profile);
        let places = told_places(profile, Server::of(profile)).unwrap_or(in_a_pass);
        if places == 0 || places > in_a_pass {
            return None;
        }
        let full = requests.passes_for(places);
        let mut waits = Waits { tokens: 0, took_ns: 0, waited_ns: 0, gain_ns: 0 };
        let mut passed_over = 0;
        for interval in requests.all_where(|until, _| until == Until::FirstToken) {
            let queue_ns = interval.of(Piece::Queue);
            waits.tokens += 1;
            waits.took_ns = waits.took_ns.saturating_add(interval.ns());
            waits.waited_ns = waits.waited_ns.saturating_add(queue_ns);
            if queue_ns > 0 && requests.was_passed_over(&interval, &full) {
                passed_over += 1;
                waits.gain_ns = waits.gain_ns.saturating_add(queue_ns);
            }
        }
        let is_most = waits.gain_ns > 0 && waits.gain_ns as f64 >= MOST * waits.took_ns as f64;
        let is_enough = waits.tokens >= FEWEST as u64 && passed_over >= FEWEST_QUEUED;
        (is_most && is_enough).then_some(Self { waits, passed_over, full: places })
    }

    fn share(&self) -> String {
        whole_percent(self.waits.waited_ns as f64 / self.waits.took_ns.max(1) as f64)
    }

    /// The sums, as evidence.
    pub(super) fn because(&self, finding: Finding) -> Finding {
        let Waits { tokens, took_ns, waited_ns, .. } = self.waits;
        finding.because(
            format!(
                "{} of the {} that {} took, summed over requests, were in the queue, {}; {} of these waited while passes ran \
                 that had {} or more",
                time(waited_ns as f64),
                time(took_ns as f64),
                many(tokens, "first token"),
                self.share(),
                grouped(self.passed_over),
                many(self.full, "request")
            ),
            PLACE,
        )
    }

    /// Where no few requests are slow by it, but all are.
    pub(super) fn finding(&self, rule: &'static str, profile: &Profile) -> Finding {
        let mut finding = Finding::new(rule, FindingKind::Slow, None);
        finding.what = format!("of the time to first tokens, {} was queue", self.share());
        Cause::Queue.advice().unwrap_or_default().clone_into(&mut finding.advice);
        refuted_if(Cause::Queue).clone_into(&mut finding.refuted_if);
        let finding = of_places(self.because(finding), profile, Server::of(profile));
        let mut finding = finding.waited(self.waits);
        finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
        finding
    }
}

/// How many places the server says that it has: by its flag, or as llama.cpp was set up.
fn told_places(profile: &Profile, server: Option<Server<'_>>) -> Option<u64> {
    let by_flag = server.and_then(|server| server.value(Flag::Places));
    let engine = profile.run.as_ref().and_then(|run| run.engine.as_ref());
    by_flag.or(engine.and_then(|engine| engine.sequences))
}

/// How many requests were there at once, and the server with places for more of them.
pub(super) fn of_places(
    mut finding: Finding,
    profile: &Profile,
    server: Option<Server<'_>>,
) -> Finding {
    let (in_a_pass, at_once) = (most_in_a_pass(profile), most_at_once(&profile.requests));
    finding = finding.because(
        format!(
            "at most {} in one pass, and {} there at once",
            many(in_a_pass, "request"),
            grouped(at_once)
        ),
        "/parts, request; /requests, arrived_ns and ended_ns",
    );
    let told = told_places(profile, server);
    if let Some(places) = told.filter(|places| *places > in_a_pass) {
        let text = format!(
            "no pass had as many as there are places, {}: requests may wait for something else, such as room in the KV cache",
            grouped(places)
        );
        let by_flag = server.and_then(|server| server.value(Flag::Places));
        let place = if by_flag.is_some() { "/run/command" } else { "/run/engine/sequences" };
        return finding.because(text, place).untested("places were free");
    }
    let is_llama_server = server.is_some_and(|server| server.is_llama_server());
    // How many vLLM has depends on its version and the device.
    let Some(places) = told.or(is_llama_server.then_some(in_a_pass)) else {
        let why = if server.is_some() { "how many places it has is not known" } else { NO_FLAGS };
        return finding.untested(why);
    };
    let most = server.map_or(u64::MAX, |server| server.most_places());
    let more = places.saturating_mul(2).min(at_once).min(most);
    if places == 0 || more <= places {
        return finding.untested("it takes no more places, or no more requests were there at once");
    }
    let (flag, with_it) = match server {
        Some(server) if !server.is_llama_server() => (server.name(Flag::Places), ""),
        Some(_) => ("-np", ", and -c with it"),
        None => ("llama-server's -np", ", and -c with it"),
    };
    finding.advice = format!(
        "more places in the batch ({flag} {more}, now {places}{with_it}), or fewer requests at once"
    );
    match server {
        Some(server) => starts(finding, server.with_places(places, more)),
        None => finding.untested(NO_FLAGS),
    }
}

/// The most requests that were there at once: had come, and not ended.
fn most_at_once(requests: &[Request]) -> u64 {
    // At the same time, one goes before another comes.
    let mut changes: Vec<(u64, bool)> = Vec::new();
    for of in requests {
        if of.ended_ns.is_none_or(|ended| ended > of.arrived_ns) {
            changes.push((of.arrived_ns, true));
            changes.extend(of.ended_ns.map(|ended| (ended, false)));
        }
    }
    changes.sort_unstable();
    let (mut now, mut most) = (0_u64, 0);
    for (_, comes) in changes {
        now = if comes { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    most
}
