//! OTLP's JSON and protocol buffers, by readers of their own. `tests/readers/` and `tests/otlp/` read them by the published
//! protocol buffers.

use brickscope::{
    Anchor, BrickId, BrickProfiler, Ending, MockClock, Model, Named, Part, Phase, Profile, Request,
};
use brickscope_analysis::stacks::{By, Stacks};
use brickscope_formats::export::otlp::{self, Answer, Origin, Spans};
use serde_json::Value;

use super::bytes;
use super::wire::{self, Message};

fn run() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for n in 0..8_u64 {
        let phase = if n == 0 { Phase::Prefill } else { Phase::Decode };
        let pass = profiler.begin_pass(phase);
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(1_000 * (n + 1));
        profiler.stop_brick(timer, 5);
        hand.advance(11);
        profiler.end_pass(pass, 1, n);
    }
    let mut profile = profiler.profile();
    profile.created = "2026-11-21T10:48:12Z".to_owned();
    profile.model = Some(Model { name: Some("a \"model\"\n".to_owned()), ..Model::default() });
    profile
}

fn written(profile: &Profile) -> Value {
    serde_json::from_slice(&bytes(|out| otlp::write(profile, out))).expect("JSON")
}

fn metric<'j>(json: &'j Value, name: &str) -> &'j Value {
    let metrics = &json["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let metrics = metrics.as_array().expect("metrics");
    metrics.iter().find(|metric| metric["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

fn has(point: &Value, key: &str, value: &str) -> bool {
    let attributes = point["attributes"].as_array().expect("attributes");
    attributes.iter().any(|a| a["key"] == key && a["value"]["stringValue"] == value)
}

#[test]
fn sums_are_cumulative_and_integers_of_64_bits_are_text() {
    let profile = run();
    let json = written(&profile);
    let tokens = &metric(&json, "brickscope.tokens")["sum"];
    assert_eq!(
        (&tokens["isMonotonic"], &tokens["aggregationTemporality"]),
        (&true.into(), &2.into())
    );
    let points = tokens["dataPoints"].as_array().expect("points");
    let decode = points.iter().find(|point| has(point, "phase", "decode")).expect("a phase");
    assert_eq!(decode["asInt"], "7");
    assert_eq!(decode["timeUnixNano"], "1795258092000000000");
    let wall = metric(&json, "brickscope.wall");
    assert_eq!(wall["unit"], "s");
    let seconds: f64 = wall["sum"]["dataPoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["asDouble"].as_f64().unwrap())
        .sum();
    let walls: u64 = profile.phases.iter().map(|phase| phase.wall_ns).sum();
    assert_eq!((seconds * 1e9).round() as u64, walls);
}

#[test]
fn buckets_of_a_histogram_are_apart_and_add_up() {
    let json = written(&run());
    let points =
        metric(&json, "brickscope.brick.span")["histogram"]["dataPoints"].as_array().unwrap();
    let decode = points.iter().find(|point| has(point, "phase", "decode")).expect("a phase");
    let counts: Vec<u64> = decode["bucketCounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count.as_str().expect("text").parse().expect("a number"))
        .collect();
    let bounds = decode["explicitBounds"].as_array().unwrap();
    assert_eq!(counts.len(), bounds.len() + 1);
    // 2000; 3000 and 4000; 5000 to 8000.
    assert_eq!(counts[..5], [0, 1, 2, 4, 0]);
    assert_eq!(decode["count"], "7");
    assert_eq!(bounds[1], 2047e-9);
}

#[test]
fn times_of_tokens_have_the_names_of_the_conventions_too() {
    let json = written(&run());
    let point = &metric(&json, "gen_ai.server.time_per_output_token")["histogram"]["dataPoints"][0];
    assert_eq!(point["count"], "7");
    assert!(has(point, "gen_ai.request.model", "a \"model\"\n"));
    assert_eq!(point["max"].as_f64(), Some(8_011e-9));
    let summary = &metric(&json, "brickscope.time_per_output_token")["summary"]["dataPoints"][0];
    assert_eq!(summary["quantileValues"][0]["quantile"], 0.5);
}

#[test]
fn an_empty_profile_says_what_recorded_it() {
    let json = written(&BrickProfiler::new().profile());
    assert_eq!(metric(&json, "brickscope.build.info")["gauge"]["dataPoints"][0]["asInt"], "1");
    assert_eq!(json["resourceMetrics"][0]["resource"]["attributes"][0]["key"], "service.name");
}

fn texts<'a>(message: &Message<'a>, field: u64) -> Vec<&'a str> {
    let texts = message.all(field).iter().map(|&field| std::str::from_utf8(wire::text(field)));
    texts.map(|text| text.expect("UTF-8")).collect()
}

/// The text of a value, if it is one.
fn text<'a>(value: &Message<'a>) -> &'a str {
    texts(value, 1).first().copied().unwrap_or_default()
}

/// A run with so many points that they take several requests.
fn wide() -> Profile {
    let mut profile = run();
    let brick = profile.totals.pop().expect("a brick");
    profile.totals = (0..1_000)
        .map(|n| {
            let mut brick = brick.clone();
            brick.stats.name = format!("brick {n}");
            brick
        })
        .collect();
    profile
}

#[test]
fn many_points_are_several_requests() {
    let profile = wide();
    let json = written(&profile);
    let metrics = json["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let of_kind = |metric: &Value, kind: &str| metric[kind]["dataPoints"].as_array().map(Vec::len);
    let kinds = ["sum", "gauge", "histogram", "summary"];
    let all =
        metrics.iter().flat_map(|metric| kinds.iter().filter_map(|kind| of_kind(metric, kind)));
    let all: usize = all.sum();
    let requests = otlp::metrics(&profile, &Origin::of(&profile));
    let items: Vec<u64> = requests.iter().map(|request| request.items).collect();
    assert_eq!(items.iter().sum::<u64>(), all as u64);
    let (last, full) = items.split_last().expect("a request");
    assert!(full.len() >= 2 && full.iter().all(|&n| n == 2_000) && *last <= 2_000, "{items:?}");
    // What each has says the same of itself, and together they have each point once.
    let mut points = 0;
    let mut names = Vec::new();
    for request in &requests {
        let message = Message::new(&request.body);
        let resource = &message.messages(1)[0];
        assert_eq!(texts(&resource.messages(1)[0].messages(1)[0], 1), ["service.name"]);
        for metric in resource.messages(2)[0].messages(2) {
            names.push(texts(&metric, 1)[0].to_owned());
            let data = [5, 7, 9, 11].into_iter().flat_map(|kind| metric.messages(kind));
            points += data.map(|data| data.messages(1).len()).sum::<usize>();
        }
    }
    assert_eq!(points, all);
    names.dedup();
    assert_eq!(names.len(), metrics.len());
}

/// The attributes of the resource, a line each, whose values are texts.
fn resource_of(profile: &Profile, origin: &Origin) -> String {
    let body = &otlp::metrics(profile, origin)[0].body;
    let resource = &Message::new(body).messages(1)[0].messages(1)[0];
    let pairs = resource.messages(1);
    let line =
        |pair: &Message<'_>| format!("{}={}\n", texts(pair, 1)[0], text(&pair.messages(2)[0]));
    pairs.iter().map(line).collect()
}

#[test]
fn attributes_can_be_replaced() {
    let profile = run();
    let mut origin = Origin::of(&profile);
    origin.set("service.name", "mine");
    origin.set("host.name", "here");
    assert!(!resource_of(&profile, &Origin::of(&profile)).contains("host.name"), "nobody named it");
    let named = Named { machine: Some("ci-7".to_owned()), commit: Some("c1".to_owned()) };
    let of_fleet = Profile { named: Some(named), ..profile.clone() };
    let attributes = resource_of(&of_fleet, &Origin::of(&of_fleet));
    for attribute in ["host.name=ci-7", "vcs.ref.head.revision=c1"] {
        assert!(attributes.contains(attribute), "{attributes}");
    }
    let body = &otlp::metrics(&profile, &origin)[0].body;
    let resource = &Message::new(body).messages(1)[0].messages(1)[0];
    let attributes: Vec<String> = resource
        .messages(1)
        .iter()
        .map(|pair| format!("{}={}", texts(pair, 1)[0], text(&pair.messages(2)[0])))
        .collect();
    assert_eq!(attributes.iter().filter(|pair| pair.starts_with("service.name=")).count(), 1);
    assert!(attributes.contains(&"service.name=mine".to_owned()), "{attributes:?}");
    assert!(attributes.contains(&"host.name=here".to_owned()), "{attributes:?}");
}

#[test]
fn stacks_are_profiles_whose_weights_are_the_wall() {
    let profile = run();
    let stacks = Stacks::of_spans(&profile, By::Layer, 0);
    let requests = otlp::profiles(&profile, &stacks, &Origin::of(&profile));
    assert_eq!(requests, otlp::profiles(&profile, &stacks, &Origin::of(&profile)));
    let [request] = &requests[..] else { panic!("{} requests", requests.len()) };
    let message = Message::new(&request.body);
    let dictionary = &message.messages(2)[0];
    let strings: Vec<&str> = texts(dictionary, 5);
    assert_eq!(strings[0], "");
    let sent = &message.messages(1)[0].messages(2)[0].messages(2)[0];
    let kind = &sent.messages(1)[0];
    let string = |index: u64| strings[index as usize];
    assert_eq!((string(kind.number(1)), string(kind.number(2))), ("wall", "nanoseconds"));
    let weights: u64 = sent.messages(2).iter().flat_map(|sample| sample.numbers(4)).sum();
    assert_eq!(weights, profile.phases.iter().map(|phase| phase.wall_ns).sum::<u64>());
    let (tables, functions) = (dictionary.messages(7), dictionary.messages(3));
    for sample in sent.messages(2) {
        let frames = tables[sample.number(1) as usize].numbers(1);
        // Locations have the index of their functions. The outermost frame is the phase.
        let outermost = functions[*frames.last().expect("a frame") as usize].number(1);
        assert!(["prefill", "decode"].contains(&string(outermost)));
    }
    assert!(
        otlp::profiles(&BrickProfiler::new().profile(), &empty(), &Origin::of(&profile)).is_empty()
    );
}

fn empty() -> Stacks {
    Stacks::of_spans(&BrickProfiler::new().profile(), By::Layer, 0)
}

#[test]
fn answers_are_read_whatever_they_are() {
    assert_eq!(Answer::read(b""), Some(Answer::default()));
    let rejected = Answer { rejected: 3, message: "old".to_owned() };
    assert_eq!(Answer::read(b"\x0a\x07\x08\x03\x12\x03old"), Some(rejected));
    // A count below 0 is none.
    let body = b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert_eq!(Answer::read(body), Some(Answer::default()));
    for bad in [&b"<html>"[..], b"{}", b"ok", b"\x0a\xff", &[0xff; 64]] {
        assert_eq!((Answer::read(bad), Answer::reason(bad)), (None, None), "{bad:?}");
    }
    assert_eq!(Answer::reason(b"\x08\x03\x12\x02no"), Some("no".to_owned()));
}

/// When the clock of `served` was at 0.
const MIDNIGHT: u64 = 1_795_219_200_000_000_000;

/// A server: a request with three tokens, one that fails beside it, and one that goes on.
fn served() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let requests = profiler.requests();
    let a = requests.arrive("chatcmpl-1");
    hand.advance(500);
    requests.receive(a);
    hand.advance(1_000);
    requests.admit(a);
    let b = requests.arrive("/v1/completions 2");
    for part in [Part::prompt(a, 8, 4).with_cached(4), Part::decode(a, 12), Part::decode(a, 13)] {
        let pass = profiler.begin_pass_of(&[part]);
        hand.advance(2_000);
        profiler.end_pass(pass, part.tokens, 0);
        hand.advance(30);
        requests.token(a);
    }
    hand.advance(7);
    requests.end(a, Ending::Length);
    requests.end(b, Ending::Error);
    let _ = requests.arrive("chatcmpl-3");
    let mut profile = profiler.profile();
    profile.requests[0].prompt_tokens = Some(12);
    profile.requests[1].error = Some("no room".to_owned());
    profile.model = Some(Model { name: Some("tiny".to_owned()), ..Model::default() });
    profile.clock.anchors = vec![at_midnight()];
    profile
}

fn at_midnight() -> Anchor {
    Anchor { at_ns: 0, monotonic_ns: 0, monotonic_raw_ns: 0, unix_ns: Some(MIDNIGHT), width_ns: 0 }
}

/// A request of thirty tokens, one of which waits for a pass with the prompt of a second one, that goes on, and of a third.
fn crowded() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let requests = profiler.requests();
    let [a, b, c] = ["chatcmpl-1", "chatcmpl-2", "/completion 3"].map(|id| requests.arrive(id));
    for of in [a, b, c] {
        requests.admit(of);
    }
    for nth in 0..30 {
        let mut parts = vec![Part::decode(a, nth)];
        let is_slow = nth == 20;
        if is_slow {
            parts.extend([Part::prompt(b, 700, 0), Part::prompt(c, 1_000, 0)]);
        }
        let pass = profiler.begin_pass_of(&parts);
        hand.advance(if is_slow { 90_000 } else { 2_000 });
        profiler.end_pass(pass, 1, nth);
        requests.token(a);
    }
    requests.end(a, Ending::Stop);
    requests.end(c, Ending::Cancelled);
    let mut profile = profiler.profile();
    // What disturbs this test is no part of it.
    profile.passes.iter_mut().for_each(|pass| pass.disturbance = None);
    profile.clock.anchors = vec![at_midnight()];
    profile
}

fn spans(profile: &Profile) -> Vec<Value> {
    let spans = Spans::of(profile).expect("its time is known");
    let json: Value = serde_json::from_slice(&bytes(|out| spans.write(out))).expect("JSON");
    json["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone()
}

/// The value of an attribute, whatever its type.
fn attribute(span: &Value, key: &str) -> Option<Value> {
    let attributes = span["attributes"].as_array().expect("attributes");
    let value = attributes.iter().find(|of| of["key"] == key)?["value"].as_object()?;
    value.values().next().cloned()
}

fn ns(span: &Value, field: &str) -> u64 {
    span[field].as_str().expect("text").parse().expect("a number")
}

#[test]
fn a_request_is_a_span_with_its_stretches_in_it() {
    let profile = served();
    let spans = spans(&profile);
    let told: Vec<(&str, u64, u64)> = spans
        .iter()
        .map(|span| {
            let name = span["name"].as_str().expect("a name");
            let [start, end] = ["startTimeUnixNano", "endTimeUnixNano"].map(|of| ns(span, of));
            (name, start - MIDNIGHT, end - MIDNIGHT)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("chat tiny", 0, 7_597),
            ("before the engine", 0, 500),
            ("queue", 500, 1_500),
            ("first token", 1_500, 3_530),
            ("further tokens", 3_530, 7_590),
            ("to the end", 7_590, 7_597),
            ("text_completion tiny", 1_500, 7_597),
            ("to the end", 1_500, 7_597),
        ]
    );
    let of = |nth: usize, key: &str| attribute(&spans[nth], key);
    let text = |text: &str| Some(Value::from(text));
    for (nth, key, value) in [
        (0, "gen_ai.operation.name", text("chat")),
        (0, "gen_ai.provider.name", text("brickscope")),
        (0, "gen_ai.response.id", text("chatcmpl-1")),
        (0, "gen_ai.usage.input_tokens", text("12")),
        (0, "gen_ai.usage.cache_read.input_tokens", text("4")),
        (0, "gen_ai.usage.output_tokens", None),
        (0, "gen_ai.response.time_to_first_chunk", Some(Value::from(3_530e-9_f64))),
        (3, "brickscope.own_alone_ns", text("2000")),
        (3, "brickscope.between_ns", text("30")),
        (4, "brickscope.tokens", text("2")),
        (4, "brickscope.own_alone_ns", text("4000")),
        (6, "brickscope.request", text("/v1/completions 2")),
        (6, "gen_ai.response.id", None),
        (6, "gen_ai.response.finish_reasons", None),
        (6, "gen_ai.response.time_to_first_chunk", None),
        (6, "error.type", text("_OTHER")),
        // No pass is known that was for it.
        (7, "brickscope.own_alone_ns", None),
        (7, "brickscope.other_decode_ns", text("4000")),
    ] {
        assert_eq!(of(nth, key), value, "{nth}: {key}");
    }
    let reasons = of(0, "gen_ai.response.finish_reasons").expect("it ended");
    assert_eq!(reasons["values"][0]["stringValue"], "length");
    assert_eq!(spans[6]["status"], serde_json::json!({ "message": "no room", "code": 2 }));
    assert_eq!((&spans[0]["kind"], &spans[1]["kind"]), (&2.into(), &1.into()));
    // Each in its own trace, and each span with an id of its own.
    let roots: Vec<&Value> = spans.iter().filter(|span| span["parentSpanId"].is_null()).collect();
    assert_eq!(roots.len(), 2);
    assert_ne!(roots[0]["traceId"], roots[1]["traceId"]);
    for span in &spans {
        let root = roots.iter().find(|root| root["traceId"] == span["traceId"]).expect("a root");
        assert!(span["parentSpanId"].is_null() || span["parentSpanId"] == root["spanId"]);
        assert_eq!(span["traceId"].as_str().map(str::len), Some(32));
        assert_eq!(span["spanId"].as_str().map(str::len), Some(16));
    }
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|of| of["spanId"].as_str()).collect();
    assert_eq!(ids.len(), spans.len());
    assert_eq!(Spans::of(&profile).map(|spans| spans.left_out()), Some(1));
}

#[test]
fn a_slow_token_has_links_to_who_was_in_its_pass() {
    let profile = crowded();
    let spans = spans(&profile);
    let linked: Vec<&Value> = spans.iter().filter(|span| !span["links"].is_null()).collect();
    let [slow] = &linked[..] else { panic!("{linked:?}") };
    assert_eq!(slow["name"], "further tokens");
    // One that goes on has no span.
    let links = slow["links"].as_array().expect("links");
    let [link] = &links[..] else { panic!("{links:?}") };
    let called = |span: &&Value| attribute(span, "brickscope.request").is_some();
    let neighbour = spans.iter().find(called).expect("the third one");
    for key in ["traceId", "spanId"] {
        assert_eq!(link[key], neighbour[key]);
    }
    assert_ne!(link["traceId"], slow["traceId"]);
    for (key, value) in [
        ("brickscope.request", "/completion 3"),
        ("brickscope.prompt_tokens", "1000"),
        ("brickscope.decode_tokens", "0"),
        ("brickscope.passes_ns", "90000"),
    ] {
        assert_eq!(attribute(link, key), Some(Value::from(value)), "{key}");
    }
    assert!(slow["droppedLinksCount"].is_null());

    let all = Spans::of(&profile).expect("its time is known");
    let origin = Origin::of(&profile);
    let requests: Vec<otlp::Request> = all.requests(&origin).collect();
    let message = Message::new(&requests[0].body);
    let found = message.messages(1)[0].messages(2)[0].messages(2);
    let links: Vec<usize> = found.iter().map(|span| span.messages(13).len()).collect();
    let in_json = spans.iter().map(|span| span["links"].as_array().map_or(0, Vec::len));
    assert_eq!(links, in_json.collect::<Vec<_>>());
}

#[test]
fn what_a_client_saw_are_spans_of_a_client() {
    let mut profile = served();
    profile.passes.clear();
    profile.parts.clear();
    let spans = spans(&profile);
    let names: Vec<&str> = spans.iter().filter_map(|span| span["name"].as_str()).collect();
    assert_eq!(names[..4], ["chat tiny", "before the engine", "due until sent", "first token"]);
    assert_eq!((&spans[0]["kind"], &spans[1]["kind"]), (&3.into(), &1.into()));
    assert_eq!(attribute(&spans[0], "gen_ai.provider.name"), None);
    assert_eq!(attribute(&spans[3], "brickscope.unattributed_ns"), Some(Value::from("2030")));
}

#[test]
fn spans_as_protocol_buffers_are_those_of_the_json() {
    let profile = served();
    let all = Spans::of(&profile).expect("its time is known");
    let origin = Origin::of(&profile);
    let requests: Vec<otlp::Request> = all.requests(&origin).collect();
    let [request] = &requests[..] else { panic!("{} requests", requests.len()) };
    let message = Message::new(&request.body);
    let found = message.messages(1)[0].messages(2)[0].messages(2);
    let json = spans(&profile);
    assert_eq!((request.items, found.len()), (json.len() as u64, json.len()));
    for (message, json) in found.iter().zip(&json) {
        assert_eq!(texts(message, 5), [json["name"].as_str().expect("a name")]);
        assert_eq!(message.number(6), json["kind"].as_u64().expect("a number"));
        let times = ["startTimeUnixNano", "endTimeUnixNano"].map(|field| ns(json, field));
        assert_eq!([message.number(7), message.number(8)], times);
        let keys: Vec<&str> = json["attributes"]
            .as_array()
            .expect("attributes")
            .iter()
            .map(|of| of["key"].as_str().expect("a key"))
            .collect();
        let pairs = message.messages(9);
        let found: Vec<&str> = pairs.iter().flat_map(|pair| texts(pair, 1)).collect();
        assert_eq!(found, keys);
    }
}

#[test]
fn requests_without_a_time_in_the_calendar_have_no_spans() {
    let mut profile = served();
    profile.clock.anchors[0].unix_ns = None;
    assert!(Spans::of(&profile).is_none());
    // A moment before 1970, or after all that has a number, is none.
    profile.clock.anchors[0] = Anchor { at_ns: 10, unix_ns: Some(5), ..profile.clock.anchors[0] };
    let request = |arrived_ns, ended_ns| Request { arrived_ns, ended_ns, ..Request::default() };
    profile.requests = vec![request(0, Some(20)), request(7, Some(u64::MAX))];
    profile.parts.clear();
    let all = Spans::of(&profile).expect("its clock was read");
    assert_eq!(all.left_out(), 1);
    assert_eq!(spans(&profile).len(), 2);
}
