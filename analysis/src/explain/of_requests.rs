//! What a run says of a word of the screens of requests: what `brickscope requests` prints of it.

use brickscope_profile::Profile;
use brickscope_profile::text::{count, grouped, printable};

use super::Section;
use crate::requests::{
    Cause, Causes, KINDS, Piece, Requests, Slow, Times, is_by_client, times, too_few,
};
use crate::text::cut;
use crate::words::time;

/// Columns of a request's name.
const NAME: usize = 36;

/// The figures of a word; none of another word, and of a run without requests.
pub(super) fn of_term(profile: &Profile, term: &str) -> Vec<Section> {
    if profile.requests.is_empty() {
        return Vec::new();
    }
    if let Some(of) = times(profile).into_iter().find(|of| of.what == term) {
        return of_times(&of);
    }
    let (is_it, cause): (fn(Piece) -> bool, Option<Cause>) = match term {
        "late" => return late(profile),
        "neighbour" => return neighbours(profile),
        "before the engine" => (|piece| piece == Piece::Receiving, Some(Cause::Receiving)),
        "queue" => (|piece| piece == Piece::Queue, Some(Cause::Queue)),
        "own pass" => (is_own, Some(Cause::Own)),
        "other pass" => (is_of_others, None),
        "prompts of others" => (Piece::has_prompts_of_others, Some(Cause::Prompts)),
        "tokens of others" => (has_tokens_of_others, Some(Cause::TokensOfOthers)),
        "time between passes" => (|piece| piece == Piece::Between, Some(Cause::Between)),
        _ => return Vec::new(),
    };
    if profile.passes.is_empty() {
        return vec![Section::new("", "unknown: this run has no passes")];
    }
    let requests = Requests::of(profile);
    let mut sections = Vec::new();
    for (what, wanted) in KINDS {
        let slow = Slow::of(&requests, wanted).map(|slow| in_slow(&slow, is_it));
        let causes = Causes::of(&requests, wanted).filter(|causes| !causes.slow.is_empty());
        let caused = cause.zip(causes).map(|(cause, causes)| {
            let n = causes.slow.iter().filter(|of| of.cause == cause).count() as u64;
            let all = causes.slow.len() as u64;
            format!("the cause of {} of {} slow", grouped(n), grouped(all))
        });
        let said: Vec<String> = slow.into_iter().chain(caused).collect();
        let said = if said.is_empty() { "unknown: of too few".to_owned() } else { said.join("; ") };
        sections.push(Section::new(label(what), said));
    }
    sections
}

/// A kind of tokens, as short as labels are.
fn label(what: &str) -> &str {
    if what == "further token" { "further" } else { what }
}

fn is_own(piece: Piece) -> bool {
    matches!(
        piece,
        Piece::OwnAlone | Piece::OwnBesidePrompts | Piece::OwnBesideDecode | Piece::OwnBesideBoth
    )
}

fn is_of_others(piece: Piece) -> bool {
    matches!(piece, Piece::OtherPrompts | Piece::OtherDecode | Piece::OtherBoth)
}

fn has_tokens_of_others(piece: Piece) -> bool {
    matches!(
        piece,
        Piece::OwnBesideDecode | Piece::OwnBesideBoth | Piece::OtherDecode | Piece::OtherBoth
    )
}

fn of_times(of: &Times) -> Vec<Section> {
    if of.of == 0 {
        return vec![Section::new("", "none in this run")];
    }
    let known =
        [("p50", of.p50_ns), ("p95", of.p95_ns), ("p99", of.p99_ns), ("longest", of.longest_ns)];
    let known = known.map(|(name, ns)| {
        format!("{name} {}", ns.map_or_else(|| "-".to_owned(), |ns| time(ns as f64)))
    });
    let figures = format!("{}; of {}", known.join(", "), grouped(of.of));
    let why = too_few(std::slice::from_ref(of)).map(|why| Section::new("", why));
    [Section::new("", figures)].into_iter().chain(why).collect()
}

/// What of the slowest ones and of the others is of some pieces.
fn in_slow(slow: &Slow, is_it: fn(Piece) -> bool) -> String {
    let pieces = || slow.pieces.iter().filter(|(piece, ..)| is_it(*piece));
    let of_slow: f64 = pieces().map(|(_, ns, _)| *ns).sum();
    let of_others: f64 = pieces().map(|(_, _, ns)| *ns).sum();
    let all = grouped(slow.slow + slow.others);
    let which = match slow.slow {
        1 => format!("the slowest of {all}"),
        n => format!("the slowest {} of {all}, on average", grouped(n)),
    };
    format!(
        "{} of {} in {which}; {} of {} in the others, on average",
        time(of_slow),
        time(slow.slow_ns),
        time(of_others),
        time(slow.others_ns)
    )
}

/// Whose prompts were read in the slowest ones, most of them first.
fn neighbours(profile: &Profile) -> Vec<Section> {
    let requests = Requests::of(profile);
    let each = KINDS.into_iter().filter_map(|(what, wanted)| {
        let slow = Slow::of(&requests, wanted)?;
        let most = slow.neighbours.first().map(|most| {
            let id = profile.requests.get(most.request as usize).map_or("one unknown", |of| &of.id);
            let (id, tokens) = (cut(&printable(id), NAME), count(most.tokens, "token"));
            let (n, all) = (grouped(most.in_slow), grouped(slow.slow));
            let others = slow.neighbours.len() as u64;
            let of = count(others, "neighbour");
            format!("{of} in the slowest; {id} ({tokens}) in {n} of these {all}")
        });
        Some(Section::new(label(what), most.unwrap_or_else(|| "none in the slowest".to_owned())))
    });
    each.collect()
}

/// What a client took to send, from when each request was due.
fn late(profile: &Profile) -> Vec<Section> {
    if !is_by_client(profile) {
        return vec![Section::new("", "none: this run is of no client")];
    }
    let sent = profile.requests.iter();
    let sent = sent.filter_map(|of| Some(of.admitted_ns?.saturating_sub(of.arrived_ns)));
    of_times(&Times::of("late", sent))
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Part, Pass, PassPart, Phase, Request, Run};

    use super::*;
    use crate::requests::OF_CLIENT;

    const MS: u64 = 1_000_000;

    /// Thirty requests of a prompt each, one after the other. The eighth waits 5 ms for a place, the others 1 ms.
    fn queued() -> Profile {
        let mut profile = Profile::empty(ClockInfo::default());
        for nth in 0..30_u32 {
            let arrived_ns = u64::from(nth) * 10 * MS;
            let start_ns = arrived_ns + if nth == 7 { 5 * MS } else { MS };
            profile.passes.push(Pass {
                serial: nth,
                phase: Phase::Prefill,
                lane: 0,
                tokens: 5,
                position: 0,
                start_ns,
                wall_ns: MS,
                attributed_ns: 0,
                unattributed_ns: MS,
                disturbance: None,
                is_left_out: false,
            });
            profile.parts.push(PassPart { pass: nth, part: Part::prompt(nth, 5, 0) });
            profile.requests.push(Request {
                arrived_ns,
                admitted_ns: Some(start_ns),
                tokens_ns: vec![start_ns + MS],
                ..Request::default()
            });
        }
        profile
    }

    fn said(profile: &Profile, term: &str) -> Vec<(String, String)> {
        of_term(profile, term).into_iter().map(|of| (of.label, of.text)).collect()
    }

    #[test]
    fn a_word_of_requests_has_the_figures_of_their_screen() {
        let profile = queued();
        let screen = crate::view::requests(&profile);
        let screen = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(screen.contains("queue 5.00 ms 1.00 ms 4.00 ms"), "{screen}");
        assert!(screen.contains("no place in the batch 1"), "{screen}");
        let queue = said(&profile, "queue");
        let of_first = "5.00 ms of 6.00 ms in the slowest of 30; 1.00 ms of 2.00 ms in the others, on average; \
                        the cause of 1 of 1 slow";
        assert_eq!(queue[0], ("first token".to_owned(), of_first.to_owned()));
        assert_eq!(queue[1].1, "unknown: of too few");
        assert!(said(&profile, "own pass")[0].1.starts_with("1.00 ms of 6.00 ms in the slowest"));
        let first = said(&profile, "first token");
        assert_eq!(first[0].1, "p50 2.00 ms, p95 -, p99 -, longest 6.00 ms; of 30");
        assert!(first[1].1.contains("a p95 needs 90"), "{first:?}");
        assert_eq!(said(&profile, "time per token")[0].1, "none in this run");
        assert_eq!(said(&profile, "neighbour")[0].1, "none in the slowest");
        // Words of other things, and runs of no server.
        assert!(said(&profile, "tile").is_empty());
        assert!(said(&Profile::empty(ClockInfo::default()), "queue").is_empty());
    }

    #[test]
    fn what_only_a_client_knows_is_of_its_run() {
        let mut profile = queued();
        assert_eq!(said(&profile, "late")[0].1, "none: this run is of no client");
        profile.passes.clear();
        profile.run = Some(Run { backend: OF_CLIENT.to_owned(), ..Run::default() });
        assert!(said(&profile, "late")[0].1.ends_with("longest 5.00 ms; of 30"));
        assert_eq!(said(&profile, "queue")[0].1, "unknown: this run has no passes");
    }
}
