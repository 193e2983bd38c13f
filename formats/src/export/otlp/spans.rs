//! Requests of a server as OTLP's traces: a trace each, by OpenTelemetry's conventions for generative AI, which are still in
//! development. <https://github.com/open-telemetry/semantic-conventions-genai>
//!
//! A span is a whole request, and those in it are its stretches one after the other: before the engine, the queue, up to the
//! first token, the further tokens, and up to the end. Their attributes say what ran meanwhile. One in which a token was slow
//! has links to the requests that were in the passes of the slowest.

use std::collections::HashMap;
use std::io::{self, Write};
use std::iter;

use brickscope_analysis::requests::{
    Caused, Causes, Interval, KnownPieces, Piece, Requests, Row, Until, Way,
};
use brickscope_profile::{Ending, Profile};
use prost::Message;
use serde_json::json;

use super::message::{Any, AnyValue, ArrayValue, KeyValue, attribute, text};
use super::profiles::{fnv, of_run};
use super::span_message::{Link, ResourceSpans, ScopeSpans, Span, SpanStatus, TraceRequest};
use super::{Origin, Request, model, provider, scope, seconds};

/// With its attributes, a span takes some hundred bytes.
const MOST_SPANS: usize = 2_000;
/// So many links a span has: of a large batch, each token has hundreds beside it.
const MOST_LINKS: usize = 16;

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: i32 = 1;
/// `SPAN_KIND_SERVER`.
const SERVER: i32 = 2;
/// `SPAN_KIND_CLIENT`.
const CLIENT: i32 = 3;
/// `STATUS_CODE_ERROR`.
const FAILED: i32 = 2;

/// Why a run has no [`Spans`].
pub const NO_TIME: &str = "the run doesn't say when its clock's moments were in the calendar, to the nanosecond; \
     runs that are recorded now on Linux do";

/// The requests of a profile as spans.
#[derive(Debug)]
pub struct Spans<'p> {
    profile: &'p Profile,
    requests: Requests<'p>,
    /// What all ids begin with.
    run: u128,
    /// The slowest token of each request that has slow ones: whether it is its first one is told apart.
    slowest: HashMap<(u32, bool), Interval>,
}

/// A stretch of a request.
struct Stretch {
    name: &'static str,
    from_ns: u64,
    to_ns: u64,
    /// What was done meanwhile, unless the name says it.
    pieces: Option<KnownPieces>,
    /// How many tokens end in it, if they are several.
    tokens: Option<u64>,
    /// The slowest of the slow tokens that end in it.
    slowest: Option<Interval>,
}

impl<'p> Spans<'p> {
    /// The spans of a profile. `None` if its clock was never read beside the calendar's: then nobody knows when they were, to
    /// the nanosecond.
    #[must_use]
    pub fn of(profile: &'p Profile) -> Option<Self> {
        let has_time = profile.clock.anchors.iter().any(|anchor| anchor.unix_ns.is_some());
        has_time.then(|| {
            let requests = Requests::of(profile);
            let slowest = slowest_of_each(&requests);
            Self { profile, requests, run: of_run(profile), slowest }
        })
    }

    /// How many requests are left out: they hadn't ended when the recording ended.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.requests.all().iter().filter(|of| self.period(of).is_none()).count() as u64
    }

    /// As requests to [`TRACES_PATH`](super::TRACES_PATH).
    pub fn requests<'s>(&'s self, origin: &'s Origin) -> impl Iterator<Item = Request> + 's {
        let mut spans = self.all();
        iter::from_fn(move || {
            let part: Vec<Span> = spans.by_ref().take(MOST_SPANS).collect();
            (!part.is_empty()).then(|| self.encoded(part, origin))
        })
    }

    /// Writes them as JSON: one `ExportTraceServiceRequest`.
    ///
    /// # Errors
    ///
    /// If writing to `out` fails.
    pub fn write(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let attributes = Origin::of(self.profile).attributes;
        let attributes: Vec<_> = attributes.iter().map(KeyValue::json).collect();
        let resource = json!({ "attributes": attributes });
        let of = scope(self.profile);
        let scope = json!({ "name": of.name, "version": of.version });
        write!(
            out,
            "{{\"resourceSpans\":[{{\"resource\":{resource},\"scopeSpans\":[{{\"scope\":{scope},\"spans\":["
        )?;
        for (nth, span) in self.all().enumerate() {
            let between = if nth == 0 { "\n" } else { ",\n" };
            out.write_all(between.as_bytes())?;
            serde_json::to_writer(&mut *out, &span.json())?;
        }
        out.write_all(b"\n]}]}]}\n")
    }

    fn encoded(&self, spans: Vec<Span>, origin: &Origin) -> Request {
        let items = spans.len() as u64;
        let scope_spans = vec![ScopeSpans { scope: Some(scope(self.profile)), spans }];
        let of_run = ResourceSpans { resource: Some(origin.resource()), scope_spans };
        let body = TraceRequest { resource_spans: vec![of_run] }.encode_to_vec();
        Request { body, items }
    }

    fn all(&self) -> impl Iterator<Item = Span> + '_ {
        self.requests.rows().flat_map(|row| self.of_request(&row))
    }

    /// When a request began and ended, in nanoseconds since 1970.
    fn period(&self, of: &brickscope_profile::Request) -> Option<[u64; 2]> {
        let ended = of.ended_ns?.max(of.arrived_ns);
        self.in_calendar([of.arrived_ns, ended])
    }

    fn in_calendar(&self, [from_ns, to_ns]: [u64; 2]) -> Option<[u64; 2]> {
        let clock = &self.profile.clock;
        Some([clock.unix_ns(from_ns)?, clock.unix_ns(to_ns)?])
    }

    /// A request, then its stretches; none if it hadn't ended.
    fn of_request(&self, row: &Row<'_>) -> Vec<Span> {
        let Some([start, end]) = self.period(row.of) else { return Vec::new() };
        let trace = self.trace(row.number);
        let trace_id = id(trace).to_vec();
        let status = (row.of.ending == Some(Ending::Error)).then(|| SpanStatus {
            message: row.of.error.clone().unwrap_or_default(),
            code: FAILED,
        });
        let mut spans = vec![Span {
            trace_id: trace_id.clone(),
            span_id: span_id(trace, 0),
            parent_span_id: Vec::new(),
            name: self.name(row),
            kind: if self.requests.are_of_client() { CLIENT } else { SERVER },
            start,
            end,
            attributes: self.attributes(row),
            links: Vec::new(),
            dropped_links_count: 0,
            status,
        }];
        for (nth, stretch) in (1..).zip(self.stretches(row.number)) {
            let Some([start, end]) = self.in_calendar([stretch.from_ns, stretch.to_ns]) else {
                continue;
            };
            let (links, dropped_links_count) = self.links(stretch.slowest.as_ref());
            spans.push(Span {
                trace_id: trace_id.clone(),
                span_id: span_id(trace, nth),
                parent_span_id: span_id(trace, 0),
                name: stretch.name.to_owned(),
                kind: INTERNAL,
                start,
                end,
                attributes: stretch.attributes(),
                links,
                dropped_links_count,
                status: None,
            });
        }
        spans
    }

    /// What the ids of a request begin with.
    fn trace(&self, number: u32) -> u128 {
        fnv(self.run, &number.to_le_bytes())
    }

    /// Links to the requests that were in the passes of a slow token, the largest first, and how many have no room. One that
    /// hadn't ended has no span.
    fn links(&self, of: Option<&Interval>) -> (Vec<Link>, u32) {
        let others = of.map(|of| self.requests.beside(of)).unwrap_or_default();
        let has_span = |number: u32| {
            let of = self.requests.all().get(number as usize)?;
            self.period(of).map(|_| of)
        };
        let others = others.iter().filter_map(|of| Some((of, has_span(of.request)?)));
        let mut links: Vec<Link> = others
            .map(|(other, of)| {
                let trace = self.trace(other.request);
                Link {
                    trace_id: id(trace).to_vec(),
                    span_id: span_id(trace, 0),
                    attributes: vec![
                        text(id_key(&of.id), &*of.id),
                        int("brickscope.prompt_tokens", other.prompt_tokens),
                        int("brickscope.decode_tokens", other.decode_tokens),
                        int("brickscope.passes_ns", other.ns),
                    ],
                }
            })
            .collect();
        let no_room = links.len().saturating_sub(MOST_LINKS);
        links.truncate(MOST_LINKS);
        (links, u32::try_from(no_room).unwrap_or(u32::MAX))
    }

    /// As the conventions want it, as far as it is known: the operation and the model.
    fn name(&self, row: &Row<'_>) -> String {
        let operation = operation(&row.of.id).unwrap_or("request");
        match model(self.profile) {
            Some(model) => format!("{operation} {model}"),
            None => operation.to_owned(),
        }
    }

    fn attributes(&self, row: &Row<'_>) -> Vec<KeyValue> {
        let of = row.of;
        let mut known = Vec::new();
        known.extend(operation(&of.id).map(|name| text("gen_ai.operation.name", name)));
        // A client doesn't know what the server is.
        if !self.requests.are_of_client() {
            known.push(text("gen_ai.provider.name", provider(self.profile)));
        }
        known.extend(model(self.profile).map(|model| text("gen_ai.request.model", model)));
        known.push(text(id_key(&of.id), &*of.id));
        known.extend(of.ending.map(|ending| text("brickscope.ending", ending.name())));
        let reason = of.ending.filter(|of| matches!(of, Ending::Stop | Ending::Length));
        known.extend(reason.map(|reason| {
            let reason = AnyValue { value: Some(Any::Text(reason.name().to_owned())) };
            let reasons = Any::List(ArrayValue { values: vec![reason] });
            attribute("gen_ai.response.finish_reasons", reasons)
        }));
        if of.ending == Some(Ending::Error) {
            // The conventions' word for a kind that has no other name.
            known.push(text("error.type", "_OTHER"));
        }
        for (key, tokens) in [
            ("gen_ai.usage.input_tokens", of.prompt_tokens),
            ("gen_ai.usage.cache_read.input_tokens", row.cached_tokens),
            ("gen_ai.usage.output_tokens", of.output_tokens),
        ] {
            known.extend(tokens.map(|tokens| int(key, tokens)));
        }
        known.extend(
            row.to_first_token_ns.map(|ns| {
                attribute("gen_ai.response.time_to_first_chunk", Any::Double(seconds(ns)))
            }),
        );
        known
    }

    fn stretches(&self, number: u32) -> Vec<Stretch> {
        let mut found = Vec::new();
        let (mut further, mut tokens): (Option<Interval>, u64) = (None, 0);
        for interval in self.requests.intervals(number) {
            match interval.until {
                Until::FirstToken => self.add(&interval, "first token", None, &mut found),
                Until::Token(_) => {
                    further = Some(joined(further, interval));
                    tokens += 1;
                }
                Until::End => {
                    if let Some(further) = &further {
                        self.add(further, "further tokens", Some(tokens), &mut found);
                    }
                    self.add(&interval, "to the end", None, &mut found);
                }
            }
        }
        found
    }

    /// Adds an interval: what was before the engine, the queue, then the rest; of each, if it took any time.
    fn add(
        &self,
        interval: &Interval,
        name: &'static str,
        tokens: Option<u64>,
        found: &mut Vec<Stretch>,
    ) {
        let (mut from_ns, mut rest) = (interval.from_ns, *interval);
        for piece in [Piece::Receiving, Piece::Queue] {
            let to_ns = from_ns + interval.of(piece);
            rest.pieces[piece as usize] = 0;
            if to_ns > from_ns {
                let is_sent_late = piece == Piece::Queue && self.requests.are_of_client();
                let name = if is_sent_late { Way::Waiting.name() } else { piece.name() };
                let (pieces, tokens, slowest) = (None, None, None);
                found.push(Stretch { name, from_ns, to_ns, pieces, tokens, slowest });
            }
            from_ns = to_ns;
        }
        let (to_ns, pieces) = (interval.to_ns, Some(self.requests.known_pieces(&rest)));
        if to_ns > from_ns {
            let slowest = match interval.until {
                Until::End => None,
                until => self.slowest.get(&(interval.request, until == Until::FirstToken)).copied(),
            };
            found.push(Stretch { name, from_ns, to_ns, pieces, tokens, slowest });
        }
    }
}

impl Stretch {
    fn attributes(&self) -> Vec<KeyValue> {
        let mut known: Vec<KeyValue> =
            self.tokens.map(|tokens| int("brickscope.tokens", tokens)).into_iter().collect();
        let pieces = Piece::ALL.into_iter().zip(self.pieces.into_iter().flatten());
        let pieces = pieces.filter(|(of, _)| !matches!(of, Piece::Receiving | Piece::Queue));
        known.extend(pieces.filter_map(|(of, ns)| {
            let key = format!("brickscope.{}_ns", of.key());
            ns.map(|ns| int(&key, ns))
        }));
        known
    }
}

/// The slow interval of each request that took longest, up to its first token and up to a further one.
fn slowest_of_each(requests: &Requests<'_>) -> HashMap<(u32, bool), Interval> {
    let is_first = |until: Until| until == Until::FirstToken;
    let is_further = |until: Until| matches!(until, Until::Token(_));
    let kinds = [Causes::of(requests, is_first), Causes::of(requests, is_further)];
    let mut slowest: HashMap<(u32, bool), Interval> = HashMap::new();
    for Caused { interval, .. } in kinds.into_iter().flatten().flat_map(|causes| causes.slow) {
        let longest =
            slowest.entry((interval.request, is_first(interval.until))).or_insert(interval);
        if interval.ns() > longest.ns() {
            *longest = interval;
        }
    }
    slowest
}

/// The key of what a request is called: without a name of its own that is its path.
fn id_key(id: &str) -> &'static str {
    if id.starts_with('/') { "brickscope.request" } else { "gen_ai.response.id" }
}

/// The id of a request's span, or of one in it.
fn span_id(trace: u128, nth: u8) -> Vec<u8> {
    id(fnv(trace, &[nth]))[8..].to_vec()
}

/// An id of a hash. Those of one request and the next differ in few places, and samplers take the last 56 bits of a trace's id
/// for random. No half of it is 0, which would be no id.
fn id(hash: u128) -> [u8; 16] {
    let halves = [(hash >> 64) as u64, hash as u64];
    let [first, last] = halves.map(|half| spread(half).max(1).to_be_bytes());
    let mut id = [0; 16];
    id[..8].copy_from_slice(&first);
    id[8..].copy_from_slice(&last);
    id
}

/// Each bit of a number has an effect on all of the result, and no two numbers have the same one (SplitMix64's last steps).
const fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// An interval and the one after it.
fn joined(all: Option<Interval>, next: Interval) -> Interval {
    let Some(mut all) = all else { return next };
    all.to_ns = next.to_ns;
    all.pieces.iter_mut().zip(next.pieces).for_each(|(sum, ns)| *sum += ns);
    all
}

/// What a request asked for, by the name in its answer or else its path; `None` if neither says it.
fn operation(id: &str) -> Option<&'static str> {
    const BY_NAME: [(&str, &str); 3] =
        [("chatcmpl-", "chat"), ("cmpl-", "text_completion"), ("msg_", "chat")];
    let by_name = BY_NAME.iter().find(|(start, _)| id.starts_with(start));
    if let Some((_, operation)) = by_name {
        return Some(*operation);
    }
    let path = id.split(' ').next().filter(|path| path.starts_with('/'))?;
    let mut names = path.rsplit('/');
    match (names.next()?, names.next()) {
        ("completions", Some("chat")) | ("chat" | "messages", _) => Some("chat"),
        ("completions" | "completion" | "infill", _) => Some("text_completion"),
        ("embeddings" | "embedding", _) => Some("embeddings"),
        _ => None,
    }
}

/// Counts are signed in OTLP.
fn int(key: &str, count: u64) -> KeyValue {
    attribute(key, Any::Int(i64::try_from(count).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_spread_and_never_0() {
        assert_eq!(id(0), ((1_u128 << 64) | 1).to_be_bytes());
        let trace = |number: u32| id(fnv(7, &number.to_le_bytes()));
        let last_56_bits = |number| {
            let id = u128::from_be_bytes(trace(number));
            (id & ((1 << 56) - 1)) as f64 / (1_u64 << 56) as f64
        };
        // A sampler that keeps a quarter keeps a quarter of the requests of a run.
        let kept = (0..1_000).filter(|&number| last_56_bits(number) < 0.25).count();
        assert!((200..300).contains(&kept), "{kept}");
    }

    #[test]
    fn operations_have_the_names_of_the_conventions() {
        for (id, name) in [
            ("chatcmpl-ndADlNTC9YZA", Some("chat")),
            ("cmpl-7", Some("text_completion")),
            ("msg_01", Some("chat")),
            ("/v1/chat/completions 3", Some("chat")),
            ("/api/chat 4", Some("chat")),
            ("/v1/messages 5", Some("chat")),
            ("/v1/completions 6", Some("text_completion")),
            ("/completion 7", Some("text_completion")),
            ("/v1/embeddings 8", Some("embeddings")),
            ("/v1/rerank 9", None),
            ("resp_1", None),
            ("a request", None),
            ("", None),
        ] {
            assert_eq!(operation(id), name, "{id}");
        }
    }
}
