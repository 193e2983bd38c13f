//! Requests as text.

mod list;
mod missed;
mod names;
mod one;
mod seen;
mod slow;

use std::collections::BTreeMap;
use std::fmt::Write;

use brickscope_profile::keep::KeptRequests;
use brickscope_profile::text::{count, grouped, printable, printable_text};
use brickscope_profile::{Profile, Request, Run};

use self::missed::not_recorded;
use super::layout::wrapped;
use crate::findings::slow_tokens::{self, queue_of_all};
use crate::requests::{
    Cause, Causes, Client, Costs, KINDS, LONGEST, OfKind, Order, Requests, SLOW, SLOWEST,
    SLOWEST_FIRST, Slow, Times, WithoutPrompts, is_by_client, missing_passes, times, too_few,
};
use crate::text::padded;
use crate::words::time;

/// What a run is called whose name isn't known.
const UNNAMED: &str = "RUN";
const NO_PASSES: &str = "No passes are in this run, so it doesn't say what tokens waited for.";

/// Columns of a cause's name.
const NAME: usize = 36;
/// More requests are listed where that is asked for.
const FEW: usize = 12;

/// How long requests of a server waited for their tokens, and what the slowest hundredth of tokens have that others don't; at
/// most 80 columns wide.
#[must_use]
pub fn requests(profile: &Profile) -> String {
    requests_of_run(profile, UNNAMED)
}

/// The same, with what commands call the run.
#[must_use]
pub fn requests_of_run(profile: &Profile, run: &str) -> String {
    let requests = Requests::of(profile);
    let all = requests.all();
    let mut text = String::new();
    if all.is_empty() {
        wrapped(&format!("This run has no requests: {}.", why_none(profile)), &mut text);
        if let Some(missed) = not_recorded(profile) {
            wrapped(&missed, &mut text);
        }
        return text;
    }
    let _ = writeln!(text, "requests  {}", how_they_ended(profile));
    let kept = kept_of(profile);
    if let Some(kept) = kept {
        wrapped(&kept.line(), &mut text);
        let not_covered = requests.not_covered();
        if not_covered > 0 {
            let n = count(not_covered, "request");
            let what = format!("not kept: passes beside {n}, so time without one is unattributed");
            wrapped(&what, &mut text);
        }
        if kept.too_long > 0 {
            let n = count(kept.too_long, "request");
            wrapped(&format!("{n} had too many tokens to be kept, so only sums are"), &mut text);
        }
    }
    let missing = if kept.is_some() { 0 } else { missing_passes(profile) };
    if missing > 0 {
        let missing = count(missing, "pass");
        wrapped(&format!("missing: {missing}, so time without one is unattributed"), &mut text);
    }
    if profile.run.as_ref().is_some_and(Run::goes_on) {
        wrapped(
            "written while the program ran: a pass that had not ended isn't in this run yet, so \
             time after the last one is unattributed",
            &mut text,
        );
    }
    let untied = requests.untied();
    if untied > 0 {
        let untied = count(untied, "request");
        wrapped(&format!("{untied} tied to no passes: these are unattributed"), &mut text);
    }
    if let Some(missed) = not_recorded(profile) {
        wrapped(&missed, &mut text);
    }
    let no_room = profile.dropped.requests;
    if no_room > 0 {
        let no_room = grouped(no_room);
        wrapped(&format!("{no_room} requests, tokens and parts of passes had no room"), &mut text);
    }

    text.push('\n');
    text.push_str(&times_of_requests(profile));
    text.push('\n');
    if all.len() <= FEW {
        text.push_str(&list::of(&requests, None));
        what_answers_are(all, &mut text);
    } else {
        wrapped(&which_to_look_at(&requests), &mut text);
    }
    if profile.passes.is_empty() {
        text.push('\n');
        wrapped(NO_PASSES, &mut text);
        if is_by_client(profile) {
            seen::say(run, &mut text);
        }
        return text;
    }
    let without = WithoutPrompts::of(&requests);
    let kinds = Causes::of_kinds(&requests);
    let mut is_told = false;
    for (what, wanted) in KINDS {
        if let Some(slow) = Slow::of(&requests, wanted) {
            slow::table(profile, what, &slow, &mut text);
        }
        if let Some((_, causes)) = kinds.iter().find(|(of, _)| *of == what) {
            is_told |= causes.most().is_some_and(|(cause, _)| cause == Cause::Queue);
            let costs = Costs::of(&without, &causes.slow);
            why(what, &requests, causes, &costs, &mut text);
            if let Some(advice) = advice(&requests, profile, &kinds, causes, &costs) {
                wrapped(&format!("Next: {advice}"), &mut text);
            }
        }
    }
    // Where all wait alike, none is slow.
    if let Some(next) = queue_of_all(&requests, profile).filter(|_| !is_told) {
        text.push('\n');
        wrapped(&format!("Next: {next}"), &mut text);
    }
    text
}

/// How to list the requests, and which of them waited or took longest.
fn which_to_look_at(requests: &Requests<'_>) -> String {
    let longest = [
        (SLOWEST, Order::Worst, "waited longest for a further token"),
        (SLOWEST_FIRST, Order::First, "waited longest for its first"),
        (LONGEST, Order::Total, "took longest to its end"),
    ];
    let longest = longest.into_iter().filter_map(|(name, order, what)| {
        let number = u64::from(requests.first_by(order)?) + 1;
        Some(format!("`{name}` (no. {number}) {what}"))
    });
    let longest: Vec<String> = longest.collect();
    let one = match longest.is_empty() {
        true => String::new(),
        false => format!(" `--request` shows one: {}.", longest.join(", ")),
    };
    format!("`--list` lists the requests.{one}")
}

/// One request, token by token: what its time went to, and why it took long where it did; in the run of a client, when its
/// tokens were there. It is [named](Requests::named) by its id, the beginning of it, its place in the list, or as the slowest.
///
/// # Errors
///
/// If the profile has no such request, or several: a sentence that says so.
pub fn request(profile: &Profile, wanted: &str) -> Result<String, String> {
    request_of_run(profile, wanted, UNNAMED)
}

/// The same, with what commands call the run.
///
/// # Errors
///
/// Like [`request`].
pub fn request_of_run(profile: &Profile, wanted: &str, run: &str) -> Result<String, String> {
    match is_by_client(profile) {
        true => seen::request(profile, wanted, run),
        false => one::request(profile, wanted),
    }
}

/// The requests of a run, a line each, see [`requests`]; and of what their answers are counted, if not of tokens. They are in
/// the order in which they were told, or in one that is asked for.
#[must_use]
pub fn list_of_requests(profile: &Profile, order: Option<Order>) -> String {
    let mut text = list::list_of_requests(profile, order);
    what_answers_are(&profile.requests, &mut text);
    text
}

/// A server may hold a token back until its text is whole: then what was sent is less than what was generated.
fn what_answers_are(all: &[Request], text: &mut String) {
    let is_of_pieces = |of: &Request| of.output_tokens.is_none() && !of.tokens_ns.is_empty();
    if all.iter().any(is_of_pieces) {
        wrapped("answer: pieces of text as they came, which may be of several tokens each", text);
    }
}

/// What is known of the requests that were kept, where not all were.
fn kept_of(profile: &Profile) -> Option<&KeptRequests> {
    profile.kept.as_ref()?.requests.as_ref()
}

/// Why a run has no requests: as what it was imported from says it, or since none that came was recorded.
fn why_none(profile: &Profile) -> String {
    let mut lacks = profile.imported.iter().flat_map(|imported| &imported.lacks);
    let why = lacks.find_map(|lack| lack.reason.strip_prefix("requests: "));
    let why = why.map(printable_text);
    why.unwrap_or_else(|| match profile.dropped.missed_requests {
        0 => "nobody told when they came and got tokens".to_owned(),
        _ => "none of those that came was recorded".to_owned(),
    })
}

/// Percentiles of times, a row each.
fn table<'t>(rows: impl IntoIterator<Item = &'t Times>, width: usize, text: &mut String) {
    let _ = writeln!(
        text,
        "{:width$}  {:>10}  {:>10}  {:>10}  {:>10}  {:>7}",
        "", "p50", "p95", "p99", "longest", "of"
    );
    for times in rows {
        let shown = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| time(ns as f64));
        let _ = writeln!(
            text,
            "{:width$}  {:>10}  {:>10}  {:>10}  {:>10}  {:>7}",
            times.what,
            shown(times.p50_ns),
            shown(times.p95_ns),
            shown(times.p99_ns),
            shown(times.longest_ns),
            grouped(times.of),
        );
    }
}

/// How long requests took, as a table of at most 80 columns, with why it lacks some percentiles.
#[must_use]
pub fn times_of_requests(profile: &Profile) -> String {
    let times = times(profile);
    let mut text = table_of_times(&times);
    if let Some(why) = too_few(&times) {
        wrapped(&why, &mut text);
    }
    text
}

/// The same of times that are known.
#[must_use]
pub fn table_of_times(times: &[Times; 4]) -> String {
    let mut text = String::new();
    table(times, 14, &mut text);
    text
}

/// What lies between a server and its client, which saw the same requests; at most 80 columns wide.
#[must_use]
pub fn client(client: &Client) -> String {
    let mut text = String::new();
    wrapped(&format!("{} as the client saw them:", count(client.both, "request")), &mut text);
    text.push('\n');
    table(&client.times(), 20, &mut text);
    let mut notes = Vec::new();
    notes.extend(too_few(&client.times()));
    if client.client_alone > 0 {
        notes.push(format!("The server's run has {} of the client's not.", client.client_alone));
    }
    if client.alike > 0 {
        let n = count(client.alike, "request");
        notes.push(format!("{n} of the client's have a name that others have, too."));
    }
    if client.other_pieces > 0 {
        let n = count(client.other_pieces, "request");
        notes.push(format!("Of {n} the client had more or fewer pieces than the server sent."));
    }
    if client.of > 0 {
        notes.push(format!(
            "{} of {} further tokens took the client at least {SLOW} times its median. Most of what was more was on \
             the way in {}.",
            grouped(client.slow),
            grouped(client.of),
            grouped(client.slow_by_way),
        ));
    }
    for note in notes {
        text.push('\n');
        wrapped(&note, &mut text);
    }
    text
}

/// A line for the first screen of a run that has requests.
pub(super) fn in_summary(profile: &Profile) -> Option<String> {
    if profile.requests.is_empty() {
        return None;
    }
    let medians = times(profile)
        .into_iter()
        .take(2)
        .filter_map(|of| Some(format!("{} {}", of.what, time(of.p50_ns? as f64))));
    let medians: Vec<String> = medians.collect();
    let medians =
        if medians.is_empty() { String::new() } else { format!("; p50 {}", medians.join(", ")) };
    let by = profile.run.as_ref().and_then(|run| run.ended_by.as_deref());
    let by = by.map_or(String::new(), |by| format!("; ended by {}", printable(by)));
    Some(format!("{}{medians}{by}", how_they_ended(profile)))
}

fn how_they_ended(profile: &Profile) -> String {
    let mut endings: BTreeMap<String, u64> = BTreeMap::new();
    let (mut going_on, mut all) = (0, profile.requests.len() as u64);
    if let Some(kept) = kept_of(profile) {
        endings.extend(kept.endings.iter().map(|(ending, n)| (ending.to_string(), *n)));
        (going_on, all) = (kept.going_on(), kept.requests);
    }
    let listed = profile.requests.iter().filter(|_| kept_of(profile).is_none());
    for request in listed {
        match (request.ended_ns, request.ending) {
            (None, _) => going_on += 1,
            (Some(_), None) => *endings.entry("unknown how".to_owned()).or_default() += 1,
            (Some(_), Some(ending)) => *endings.entry(ending.to_string()).or_default() += 1,
        }
    }
    let endings: Vec<String> =
        endings.iter().map(|(name, n)| format!("{name} {}", grouped(*n))).collect();
    let mut said = grouped(all);
    // Without this word, `length 68` reads as a size.
    if !endings.is_empty() {
        let _ = write!(said, ", ended: {}", endings.join(", "));
    }
    if going_on > 0 {
        let _ = write!(said, "; not ended: {}", grouped(going_on));
    }
    said
}

/// How many took much longer than the median, what each of these waited for most, and what prompts of others cost them.
fn why(what: &str, requests: &Requests<'_>, causes: &Causes, costs: &Costs, text: &mut String) {
    text.push('\n');
    wrapped(&causes.how_many_slow(what), text);
    for (cause, count) in causes.counts() {
        let _ = writeln!(text, "{}  {:>10}", padded(cause.name(), NAME), grouped(count));
    }
    for sentence in causes.overlaps(requests).into_iter().chain(costs.sentences()) {
        wrapped(&sentence, text);
    }
}

/// What to try against the cause that most of the slow ones have, if they are some. Nothing where it is by chance that these
/// have prompts beside them.
fn advice(
    requests: &Requests<'_>,
    profile: &Profile,
    kinds: &[OfKind],
    causes: &Causes,
    costs: &Costs,
) -> Option<String> {
    let most = causes.most().map(|(cause, _)| cause);
    let most = most.filter(|cause| *cause != Cause::Prompts || !costs.is_by_chance)?;
    slow_tokens::advice(requests, profile, kinds, most)
}

/// Requests in sentences: how they ended, how many tokens they had, and why some were slow.
#[must_use]
pub fn requests_in_words(profile: &Profile) -> Vec<String> {
    let requests = Requests::of(profile);
    let numbers = times(profile).map(|of| format!("{}: {}", of.what, grouped(of.of)));
    let mut words = vec![
        format!("Requests: {}.", how_they_ended(profile)),
        format!("Times by what they are of: {}.", numbers.join("; ")),
    ];
    words.extend(kept_of(profile).map(|kept| format!("Of them, {}.", kept.line())));
    words.extend(not_recorded(profile).map(|missed| format!("Beside them, {missed}.")));
    if profile.passes.is_empty() {
        words.push(NO_PASSES.to_owned());
        return words;
    }
    let without = WithoutPrompts::of(&requests);
    let kinds = Causes::of_kinds(&requests);
    let mut is_told = false;
    for (what, causes) in &kinds {
        is_told |= causes.most().is_some_and(|(cause, _)| cause == Cause::Queue);
        let counts = causes.counts().into_iter();
        let counts = counts.map(|(cause, count)| format!("{} {}", cause.name(), grouped(count)));
        let counts: Vec<String> = counts.collect();
        let end =
            if counts.is_empty() { String::new() } else { format!(" {}.", counts.join("; ")) };
        words.push(causes.how_many_slow(what) + &end);
        let costs = Costs::of(&without, &causes.slow);
        words.extend(causes.overlaps(&requests));
        words.extend(costs.sentences());
        let kind = KINDS.into_iter().find(|(of, _)| of == what);
        let slow = kind.and_then(|(_, wanted)| Slow::of(&requests, wanted));
        words.extend(slow.and_then(|slow| {
            let prompts = slow::prompts_of_others(profile, &slow)?;
            Some(format!("{}. {prompts}", slow::slowest(what, &slow)))
        }));
        let advice = advice(&requests, profile, &kinds, causes, &costs);
        words.extend(advice.map(|advice| format!("Next: {advice}.")));
    }
    let next = queue_of_all(&requests, profile).filter(|_| !is_told);
    words.extend(next.map(|next| format!("Next: {next}.")));
    words
}

#[cfg(test)]
mod tests {
    use brickscope_profile::ClockInfo;

    use super::*;

    #[test]
    fn what_ended_a_server_is_said_and_warned_of_by_nothing() {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.requests.push(Request::default());
        assert_eq!(in_summary(&profile).as_deref(), Some("1; not ended: 1"));
        profile.run = Some(Run { ended_by: Some("Ctrl-C".to_owned()), ..Run::default() });
        assert_eq!(in_summary(&profile).as_deref(), Some("1; not ended: 1; ended by Ctrl-C"));
    }

    #[test]
    fn an_answer_is_of_pieces_where_nobody_said_its_tokens() {
        let said = "answer: pieces of text";
        let mut profile = Profile::empty(ClockInfo::default());
        profile.requests.push(Request { tokens_ns: vec![1, 2], ..Request::default() });
        for text in [requests(&profile), list_of_requests(&profile, None)] {
            assert_eq!(text.matches(said).count(), 1, "{text}");
        }
        profile.requests[0].output_tokens = Some(3);
        for text in [requests(&profile), list_of_requests(&profile, None)] {
            assert!(!text.contains(said), "{text}");
        }
    }

    #[test]
    fn many_requests_are_listed_where_that_is_asked_for() {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.requests = vec![Request::default(); FEW];
        assert!(requests(&profile).contains("Each request, its first token"));
        profile.requests.push(Request::default());
        let text = requests(&profile);
        assert!(!text.contains("Each request") && text.contains("`--list` lists"), "{text}");
        assert_eq!(list_of_requests(&profile, None).lines().count(), FEW + 3);
        assert!(!text.contains("--request"), "of none anything is known: {text}");
        profile.requests[4].tokens_ns = vec![9, 12];
        profile.requests[6].tokens_ns = vec![5, 20];
        profile.requests[7].ended_ns = Some(30);
        let text = requests(&profile).split_whitespace().collect::<Vec<_>>().join(" ");
        let said = "`slowest` (no. 7) waited longest for a further token, `slowest-first` (no. 5) waited longest for its \
                    first, `longest` (no. 8) took longest to its end.";
        assert!(text.contains(said), "{text}");
    }
}
