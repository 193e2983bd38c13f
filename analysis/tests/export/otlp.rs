//! OTLP's JSON, by a reader of its own. `tests/readers/` reads it by the published protocol buffers.

use brickscope::{BrickId, BrickProfiler, MockClock, Model, Phase, Profile};
use brickscope_analysis::export::otlp;
use serde_json::Value;

use crate::bytes;

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
