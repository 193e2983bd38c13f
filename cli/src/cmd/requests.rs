//! `brickscope requests`: what the requests of a server waited for.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use brickscope::keep::KeptRequests;
use brickscope::{Ending, Profile};
use brickscope_analysis::requests::{
    Cause, Causes, Client, Costs, InPasses, Interval, ONLY_CLIENT, Order, Piece, PromptCost,
    Requests, Slow, Times, Until, WithoutPrompts, is_by_client, late_ns, times,
};
use brickscope_analysis::view;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{output, runs};

/// Say what the requests of a server waited for, and why some tokens were slow.
///
/// From its arrival on, a request's time is divided into: the queue, passes for it (alone, or beside others), passes for others
/// alone, time between passes, and what is unattributed. A pass that several requests share is never divided among them. What
/// prompts of others cost in it is predicted, from passes with as much decode and no prompt.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope requests RUN\n  brickscope requests RUN --list\n  brickscope requests RUN --sort first\n  brickscope requests RUN --request slowest\n  brickscope requests RUN --request chatcmpl-7\n  brickscope requests RUN --client LOAD\n  brickscope requests --attach 4711"
)]
pub(crate) struct RequestsArgs {
    /// The run: its folder or profile.json, its tag, the beginning of its name, or `@-1` for the one before the newest. By
    /// default the newest in `brickscope-runs`.
    pub(crate) run: Option<PathBuf>,

    /// Of a server that runs under `brickscope run --keep tail`: write a run of what is kept so far, and take that. The process of
    /// either, by its id, or the socket.
    #[arg(long, value_name = "PID|SOCKET", conflicts_with = "run")]
    pub(crate) attach: Option<String>,

    /// Show one request, token by token: by its id or the beginning of it, by its number in the list, or the one that waited
    /// longest for a token after its first (`slowest`), for its first (`slowest-first`), or took longest to its end (`longest`).
    #[arg(long, value_name = "ID|N|slowest|slowest-first|longest")]
    pub(crate) request: Option<String>,

    /// List the requests: when they came, their tokens, how long they waited for the first and at most for a further one, and
    /// why. Up to twelve are listed anyway.
    #[arg(long, conflicts_with_all = ["request", "client", "json"])]
    pub(crate) list: bool,

    /// List them by how long they waited for the first token or at most for a further one (`worst`), as they came, or by how
    /// long they took.
    #[arg(long, value_name = "first|worst|arrival|total", conflicts_with_all = ["request", "client", "json"])]
    pub(crate) sort: Option<Order>,

    /// Put the run of their client beside it, which `brickscope load` made on the same machine, and say what the client and the
    /// way took.
    #[arg(long, value_name = "RUN", conflicts_with = "request")]
    pub(crate) client: Option<PathBuf>,

    /// Print them as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &RequestsArgs) -> Result<()> {
    let run = match args.attach.as_deref() {
        Some(process) => runs::so_far_of(process)?,
        None => runs::named_or_newest(args.run.as_deref())?,
    };
    let profile = runs::load(&run)?;
    if let Err(why) = profile.check() {
        tell!("note: this profile is inconsistent: {why}");
    }
    if (args.list || args.sort.is_some()) && !profile.requests.is_empty() {
        return output::print(view::list_of_requests(&profile, args.sort));
    }
    let wanted = args.request.as_deref();
    let client = args.client.as_deref().map(runs::named).transpose()?;
    let client = client.map(|client| beside(&profile, &run, &client)).transpose()?;
    if args.json {
        let wanted = wanted.map(|wanted| Requests::of(&profile).named(wanted));
        let wanted = wanted.transpose().map_err(anyhow::Error::msg)?;
        return output::print(as_json(&profile, wanted, client)? + "\n");
    }
    let name = output::shown(&run);
    let text = match wanted {
        Some(id) => view::request_of_run(&profile, id, &name).map_err(anyhow::Error::msg)?,
        None => view::requests_of_run(&profile, &name),
    };
    let client = client.map(|client| format!("\n{}", view::requests_of_client(&client)));
    output::print(text + &client.unwrap_or_default())
}

fn beside(server: &Profile, of_server: &Path, run: &Path) -> Result<Client> {
    let client = runs::load(run)?;
    Client::of(server, &client).map_err(|why| {
        anyhow!("can't put {} beside {}: {why}", output::shown(run), output::shown(of_server))
    })
}

/// Each request with its intervals, and what slow ones have that others don't.
fn as_json(
    profile: &Profile,
    wanted: Option<u32>,
    client: Option<Client>,
) -> serde_json::Result<String> {
    let requests = Requests::of(profile);
    let is_first = |until: Until| until == Until::FirstToken;
    let is_further = |until: Until| matches!(until, Until::Token(_));
    // Without a pass nobody knows what tokens waited for.
    let has_passes = !profile.passes.is_empty();
    let of = |is: fn(Until) -> bool| if has_passes { Causes::of(&requests, is) } else { None };
    let (of_first, of_further) = (of(is_first), of(is_further));
    let slow = of_first.iter().chain(&of_further).flat_map(|of| &of.slow);
    let caused: HashMap<(u32, u32), Cause> =
        slow.filter_map(|of| Some((key_of(&of.interval)?, of.cause))).collect();
    let by_client = is_by_client(profile);
    let numbered = || requests.all().iter().zip(0_u32..);
    let chosen = || numbered().filter(|(_, number)| wanted.is_none_or(|of| of == *number));
    let each = || {
        chosen().map(|(of, number)| {
            let (requests, caused, is_chosen) = (&requests, &caused, wanted.is_some());
            One {
                id: &of.id,
                arrived_ns: of.arrived_ns,
                late_ns: if by_client { late_ns(of) } else { None },
                ending: of.ending,
                intervals: Each(move || {
                    requests
                        .intervals(number)
                        .map(move |of| as_row(requests, of, caused, is_chosen, by_client))
                }),
            }
        })
    };
    let slow = |is: fn(Until) -> bool| {
        let slow = if has_passes { Slow::of(&requests, is) } else { None };
        slow.map(|slow| slow_as_json(&requests, &slow))
    };
    let without = WithoutPrompts::of(&requests);
    let causes = |of: Option<Causes>| of.map(|of| causes_as_json(&requests, &without, &of));
    let kept = profile.kept.as_ref().and_then(|kept| kept.requests.as_ref());
    serde_json::to_string_pretty(&All {
        times: times(profile),
        kept: kept.map(kept_as_json),
        missed_requests: profile.dropped.missed_requests,
        pieces_absent: by_client.then_some(ONLY_CLIENT),
        requests: Each(each),
        slow_first_tokens: slow(is_first),
        slow_tokens: slow(is_further),
        causes_of_first_tokens: causes(of_first),
        causes_of_tokens: causes(of_further),
        client: client.map(|client| client_as_json(&client)),
    })
}

#[derive(Serialize)]
struct All<R> {
    times: [Times; 4],
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<Value>,
    #[serde(skip_serializing_if = "is_zero")]
    missed_requests: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces_absent: Option<&'static str>,
    requests: R,
    slow_first_tokens: Option<Value>,
    slow_tokens: Option<Value>,
    causes_of_first_tokens: Option<Value>,
    causes_of_tokens: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<Value>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[derive(Serialize)]
struct One<'p, I> {
    id: &'p str,
    arrived_ns: u64,
    /// From when it was due until its client sent it, if that took any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    late_ns: Option<u64>,
    ending: Option<Ending>,
    intervals: I,
}

#[derive(Serialize)]
struct Row<'p> {
    until: String,
    from_ns: u64,
    to_ns: u64,
    /// Nothing of what a client saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<BTreeMap<Piece, u64>>,
    /// Tokens of its own prompt that its passes processed.
    #[serde(skip_serializing_if = "is_zero")]
    own_prompt_tokens: u64,
    /// Who was in the passes, once it had a place. Of all tokens of all requests, these would be most of what is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    neighbours: Option<Others<'p>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    while_queued: Option<Others<'p>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
}

/// Others in some passes, largest first.
#[derive(Serialize)]
struct Others<'p> {
    of: usize,
    largest: Vec<Other<'p>>,
}

/// One of them, by its name and its number in the list: nothing if nobody knows it.
#[derive(Serialize)]
struct Other<'p> {
    id: Option<&'p str>,
    number: Option<u64>,
    prompt_tokens: u64,
    decode_tokens: u64,
    ns: u64,
}

/// So many are listed: of a large batch, each token has hundreds beside it.
const MOST_OTHERS: usize = 16;

fn others<'p>(requests: &Requests<'p>, found: &[InPasses]) -> Others<'p> {
    let largest = found.iter().take(MOST_OTHERS).map(|of| {
        let known = requests.all().get(of.request as usize);
        Other {
            id: known.map(|known| known.id.as_str()),
            number: known.map(|_| u64::from(of.request) + 1),
            prompt_tokens: of.prompt_tokens,
            decode_tokens: of.decode_tokens,
            ns: of.ns,
        }
    });
    Others { of: found.len(), largest: largest.collect() }
}

/// A request, and which of its tokens ends an interval.
fn key_of(of: &Interval) -> Option<(u32, u32)> {
    match of.until {
        Until::FirstToken => Some((of.request, 0)),
        Until::Token(before) => Some((of.request, before)),
        Until::End => None,
    }
}

fn as_row<'p>(
    requests: &Requests<'p>,
    of: Interval,
    caused: &HashMap<(u32, u32), Cause>,
    is_chosen: bool,
    by_client: bool,
) -> Row<'p> {
    let cause = key_of(&of).and_then(|key| caused.get(&key).copied());
    // Of slow tokens, and of the one request that was asked for.
    let is_told = (is_chosen || cause.is_some()) && !by_client;
    let pieces = Piece::ALL.into_iter().zip(of.pieces).filter(|(_, ns)| *ns > 0);
    let is_queued = of.of(Piece::Queue) > 0;
    Row {
        until: of.until.to_string(),
        from_ns: of.from_ns,
        to_ns: of.to_ns,
        pieces: (!by_client).then(|| pieces.collect()),
        own_prompt_tokens: requests.own_prompt(&of).into_iter().fold(0, u64::saturating_add),
        neighbours: is_told.then(|| others(requests, &requests.beside(&of))),
        while_queued: (is_told && is_queued).then(|| others(requests, &requests.while_queued(&of))),
        cause,
    }
}

/// A list whose items are made one by one as they are written.
struct Each<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

/// Why nothing is predicted of a token that waited for passes of others.
const ALONE: &str = "prompts of others were in passes without it: `prompts_alone_ns` is measured";

fn causes_as_json(
    requests: &Requests<'_>,
    without: &WithoutPrompts<'_, '_>,
    causes: &Causes,
) -> Value {
    let slow = causes.slow.iter().map(|of| {
        let id = requests.all().get(of.interval.request as usize).map(|request| &request.id);
        let until = of.interval.until.to_string();
        let (ns, more_ns) = (of.interval.ns(), of.more_ns);
        let mut slow =
            json!({ "id": id, "until": until, "ns": ns, "cause": of.cause, "more_ns": more_ns });
        let PromptCost { shared, alone_ns } = without.cost(&of.interval);
        slow["neighbour"] = match shared {
            Some(Ok(cost)) => json!(cost),
            Some(Err(why)) => json!({ "not_known": why.to_string() }),
            None => json!({ "not_known": ALONE }),
        };
        slow["prompts_alone_ns"] = json!(alone_ns);
        if let Some(waits) = requests.waits(&of.interval) {
            slow["waited_for_cpu_ns"] = json!(waits.cpu_ns);
            slow["page_faults"] = json!(waits.page_faults);
            slow["disk_faults"] = json!(waits.disk_faults);
        }
        slow
    });
    let costs = Costs::of(without, &causes.slow);
    json!({
        "of": causes.of,
        "median_ns": causes.median_ns,
        "neighbours": {
            "known": costs.known.len(),
            "of": costs.tokens(),
            "sum": costs.sum(),
            "is_by_chance": costs.is_by_chance,
        },
        "slow": slow.collect::<Vec<_>>(),
    })
}

/// What those that are listed stand for, where `times` are of all.
fn kept_as_json(kept: &KeptRequests) -> Value {
    json!({
        "requests": kept.requests,
        "slowest": kept.slowest,
        "slower_than_ns": kept.slower_than_ns,
        "first_slower_than_ns": kept.first_slower_than_ns,
        "sample": kept.sample,
        "sample_of": kept.sample_of,
        "beside": kept.beside,
        "too_long": kept.too_long,
        "untied": kept.untied,
    })
}

fn client_as_json(client: &Client) -> Value {
    json!({
        "both": client.both,
        "client_alone": client.client_alone,
        "alike": client.alike,
        "other_pieces": client.other_pieces,
        "times": client.times(),
        "slow": client.slow,
        "of": client.of,
        "slow_by_way": client.slow_by_way,
    })
}

fn slow_as_json(requests: &Requests<'_>, slow: &Slow) -> Value {
    let pieces = slow.pieces.iter().map(|(piece, slow_ns, others_ns)| {
        json!({ "piece": piece, "slow_ns": slow_ns, "others_ns": others_ns })
    });
    let neighbours = slow.neighbours.iter().map(|of| {
        let id = requests.all().get(of.request as usize).map(|request| &request.id);
        json!({ "id": id, "in_slow": of.in_slow, "tokens": of.tokens })
    });
    json!({
        "slow": slow.slow,
        "others": slow.others,
        "least_ns": slow.least_ns,
        "slow_ns": slow.slow_ns,
        "others_ns": slow.others_ns,
        "pieces": pieces.collect::<Vec<_>>(),
        "neighbours": neighbours.collect::<Vec<_>>(),
        "waited_for_cpu": slow.waited.intervals,
        "waited_for_cpu_ns": slow.waited.cpu_ns,
    })
}
