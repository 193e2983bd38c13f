//! Prometheus' text, by a strict reader of its own. `tests/readers/` has a reader that isn't ours.

use std::collections::BTreeMap;

use brickscope::{
    BrickId, BrickProfiler, MockClock, Model, Named, Phase, Profile, Run, SimulatedDevice,
    StreamId, Work,
};
use brickscope_formats::export::prometheus::{Dialect, Names, Options, write_with};

use super::bytes;

/// A sample's name and labels, in order of their names.
type Series = (String, Vec<(String, String)>);

/// Each sample's value, as it is written; and each family's type.
#[derive(Debug, Default)]
struct Read {
    samples: BTreeMap<Series, String>,
    types: BTreeMap<String, String>,
    ends: bool,
}

impl Read {
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> &str {
        let mut labels: Vec<(String, String)> =
            labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        labels.sort();
        let series = (name.to_owned(), labels);
        self.samples.get(&series).unwrap_or_else(|| panic!("no {series:?} in {self:#?}"))
    }

    /// Nanoseconds, from the very digits.
    fn nanos(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        nanos(self.value(name, labels))
    }

    /// All samples of a name whose labels have this one.
    fn all<'r>(
        &'r self,
        name: &'r str,
        label: (&'r str, &'r str),
    ) -> impl Iterator<Item = &'r str> {
        let has = move |labels: &[(String, String)]| {
            labels.iter().any(|(name, value)| (name.as_str(), value.as_str()) == label)
        };
        let wanted = self.samples.iter().filter(move |((of, labels), _)| of == name && has(labels));
        wanted.map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.samples.keys().any(|(of, _)| of == name)
    }
}

fn nanos(seconds: &str) -> u64 {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    assert!(fraction.len() <= 9 && !fraction.ends_with('0'), "{seconds}");
    let fraction: u64 = format!("{fraction:0<9}").parse().expect("digits");
    whole.parse::<u64>().expect("digits") * 1_000_000_000 + fraction
}

fn is_name(name: &str) -> bool {
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':');
    rest && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Reads as the format says: a family's help and type before its samples, all of them together, each once.
fn read(text: &str) -> Read {
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut read = Read::default();
    let mut family = String::new();
    for line in text.split_terminator('\n') {
        assert!(!read.ends, "{line} after the end");
        if line == "# EOF" {
            read.ends = true;
        } else if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').expect("a text").0.to_owned();
            assert!(is_name(&family), "{line}");
        } else if let Some(of) = line.strip_prefix("# TYPE ") {
            let (name, kind) = of.split_once(' ').expect("a type");
            assert_eq!(name, family);
            let before = read.types.insert(name.to_owned(), kind.to_owned());
            assert_eq!(before, None, "{name} is there twice");
        } else if let Some(unit) = line.strip_prefix("# UNIT ") {
            let (name, unit) = unit.split_once(' ').expect("a unit");
            assert!(name == family && name.ends_with(unit), "{line}");
        } else {
            let (series, value) = sample(line);
            assert!(series.0.starts_with(&family), "{line} is not of {family}");
            let before = read.samples.insert(series, value);
            assert_eq!(before, None, "{line} is there twice");
        }
    }
    read
}

fn sample(line: &str) -> (Series, String) {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label");
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let (value, after) = quoted(after);
            labels.push((label.to_owned(), value));
            rest = &after[1..];
            match after.as_bytes()[0] {
                b',' => {}
                b'}' => break,
                other => panic!("{other} in {line}"),
            }
        }
    }
    labels.sort();
    let value = rest.strip_prefix(' ').expect("a blank");
    assert!(["NaN", "+Inf", "-Inf"].contains(&value) || value.parse::<f64>().is_ok(), "{line}");
    ((name.to_owned(), labels), value.to_owned())
}

/// A text up to its closing quote, and what follows that.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next().expect("a letter").1 {
                'n' => '\n',
                letter @ ('\\' | '"') => letter,
                other => panic!("\\{other}"),
            }),
            letter => value.push(letter),
        }
    }
    panic!("{text} does not end");
}

fn metrics(profile: &Profile, names: Names, dialect: Dialect) -> Read {
    let options = Options { names, dialect };
    let text = bytes(|out| write_with(profile, options, out));
    read(std::str::from_utf8(&text).expect("text"))
}

fn of(profile: &Profile) -> Read {
    metrics(profile, Names::Brickscope, Dialect::Prometheus)
}

/// A prefill pass of 3 tokens and 10 decode passes, whose times differ.
fn run(brick: &str) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    profiler.set_kv_cache_tokens(64);
    let kernel = profiler.kernel("gemv", None);
    for n in 0..11_u64 {
        let phase = if n == 0 { Phase::Prefill } else { Phase::Decode };
        let pass = profiler.begin_pass(phase);
        hand.advance(7);
        let timer = profiler.start(brick);
        let inner = profiler.start_brick_kernel(BrickId::LmHead, kernel);
        hand.advance(1_000 + n * 333);
        profiler.stop_brick_kernel(
            inner,
            Work { elements: 5, flops: 1_000, bytes: 64, ..Work::default() },
        );
        hand.advance(250_000_000);
        profiler.stop(timer, 2);
        let (tokens, position) = if n == 0 { (3, 0) } else { (1, 2 + n) };
        profiler.end_pass(pass, tokens, position);
    }
    profiler.profile()
}

#[test]
fn sums_are_those_of_the_profile_to_the_nanosecond() {
    let profile = run("outer");
    let read = of(&profile);
    for total in &profile.phases {
        let phase = ("phase", total.phase.name());
        assert_eq!(read.nanos("brickscope_wall_seconds_total", &[phase]), total.wall_ns);
        let rest = read.nanos("brickscope_unattributed_seconds_total", &[phase]);
        assert_eq!(rest, total.unattributed_ns);
        let bricks = read.all("brickscope_brick_exclusive_seconds_total", phase).map(nanos);
        assert_eq!(bricks.sum::<u64>() + rest, total.wall_ns);
        assert_eq!(read.value("brickscope_tokens_total", &[phase]), total.tokens.to_string());
        assert_eq!(read.value("brickscope_passes_total", &[phase]), total.passes.to_string());
    }
    let head =
        [("phase", "decode"), ("brick", "LmHead"), ("category", "Other"), ("source", "host")];
    assert_eq!(read.value("brickscope_brick_flops_total", &head), "10000");
    assert_eq!(read.value("brickscope_brick_moved_bytes_total", &head), "640");
    assert_eq!(read.value("brickscope_brick_spans_total", &head), "10");
    let kernel = [("phase", "decode"), ("kernel", "gemv"), ("source", "host")];
    let expected: u64 = (1..=10).map(|n| 1_000 + n * 333).sum();
    assert_eq!(read.nanos("brickscope_kernel_seconds_total", &kernel), expected);
    assert_eq!(read.value("brickscope_kv_cache_capacity_tokens", &[]), "64");
    assert_eq!(read.value("brickscope_kv_cache_filled_tokens", &[("thread", "0")]), "13");
    assert_eq!(read.value("brickscope_dropped_total", &[("what", "spans")]), "0");
    assert_eq!(read.types["brickscope_wall_seconds_total"], "counter");
}

#[test]
fn what_slows_a_run_down_is_there_with_its_predicted_gain() {
    let hand = brickscope::MockClock::default();
    let profiler = brickscope::BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..20 {
        let pass = profiler.begin_pass(brickscope::Phase::Decode);
        let timer = profiler.start("Mlp");
        hand.advance(1_000_000);
        profiler.stop(timer, 1);
        profiler.end_pass(pass, 1, position);
        hand.advance(500_000);
    }
    let read = of(&profiler.profile());
    let labels = [("rule", "gaps-between-passes"), ("phase", "decode")];
    assert_eq!(read.value("brickscope_finding_info", &labels), "1");
    // From nothing to half a millisecond: the middle.
    assert_eq!(read.value("brickscope_finding_gain_seconds", &labels), "0.00025");
    // Nothing was found in an empty run.
    assert!(!of(&Profile::empty(Default::default())).has("brickscope_finding_info"));
}

#[test]
fn what_was_named_are_labels_and_a_model_is_called_as_in_lists() {
    let mut profile = Profile::empty(Default::default());
    profile.run = Some(Run { backend: "CPU".to_owned(), threads: 8, ..Run::default() });
    profile.model = Some(Model {
        path: "/models/7b.gguf".to_owned(),
        architecture: "llama 7B Q4_0".to_owned(),
        ..Model::default()
    });
    let run = [("backend", "CPU"), ("threads", "8")];
    assert_eq!(of(&profile).value("brickscope_run_info", &run), "1");
    profile.named = Some(Named { machine: Some("ci-7".to_owned()), commit: Some("c1".to_owned()) });
    let read = of(&profile);
    let named = [&run[..], &[("machine", "ci-7"), ("commit", "c1")]].concat();
    assert_eq!(read.value("brickscope_run_info", &named), "1");
    let model = [
        ("name", "7b"),
        ("architecture", "llama 7B Q4_0"),
        ("quantization", "q4_0"),
        ("synthetic", "false"),
    ];
    assert_eq!(read.value("brickscope_model_info", &model), "1");
}

#[test]
fn what_nobody_stated_or_measured_is_not_there() {
    let profile = run("outer");
    let read = of(&profile);
    let outer = |series: &Series| series.1.contains(&("brick".to_owned(), "outer".to_owned()));
    for name in ["brickscope_brick_flops_total", "brickscope_brick_moved_bytes_total"] {
        assert!(!read.samples.keys().any(|series| series.0 == name && outer(series)), "{name}");
    }
    for name in [
        "brickscope_ceiling_read_bytes_per_second",
        "brickscope_model_info",
        "brickscope_counted_total",
        "brickscope_device_info",
    ] {
        assert!(!read.has(name), "{name}");
    }
    let empty = of(&BrickProfiler::new().profile());
    for name in ["brickscope_wall_seconds_total", "brickscope_brick_spans_total"] {
        assert!(!empty.has(name), "{name}");
    }
    assert!(empty.has("brickscope_build_info"));
}

#[test]
fn disturbed_passes_are_there_where_somebody_looked_and_stated_limits_never() {
    let labels = [("phase", "decode")];
    let mut profile = run("outer");
    profile.other_load = None;
    for phase in &mut profile.phases {
        (phase.disturbed, phase.unwatched) = (0, None);
    }
    assert!(!of(&profile).has("brickscope_passes_disturbed_total"));
    // A process of a benchmark has no load of the whole, and knows it of passes.
    let decode = profile.phases.iter_mut().find(|of| of.phase == Phase::Decode).expect("decode");
    (decode.disturbed, decode.unwatched) = (2, Some(0));
    assert_eq!(of(&profile).value("brickscope_passes_disturbed_total", &labels), "2");
    let limits = |basis: &str| brickscope::Ceilings {
        read_bytes_per_second: 5300e9,
        flops_per_second: 1307e12,
        basis: basis.to_owned(),
        ..Default::default()
    };
    profile.ceilings = Some(limits("measured"));
    assert!(of(&profile).has("brickscope_ceiling_read_bytes_per_second"));
    profile.ceilings = Some(limits(brickscope::Ceilings::STATED));
    assert!(!of(&profile).has("brickscope_ceiling_read_bytes_per_second"));
}

#[test]
fn a_histogram_counts_what_is_no_longer_than_each_bound() {
    let read = of(&run("outer"));
    let labels = |bound| {
        [
            ("phase", "decode"),
            ("brick", "LmHead"),
            ("category", "Other"),
            ("source", "host"),
            ("le", bound),
        ]
    };
    // 1333, 1666, 1999, 2332, … 4330.
    for (bound, count) in
        [("0.000001023", "0"), ("0.000002047", "3"), ("0.000004095", "9"), ("+Inf", "10")]
    {
        let found = read.value("brickscope_brick_span_seconds_bucket", &labels(bound));
        assert_eq!(found, count, "{bound}");
    }
    let [phase, brick, category, source, _] = labels("");
    let sum = read.nanos("brickscope_brick_span_seconds_sum", &[phase, brick, category, source]);
    assert_eq!(sum, (1..=10).map(|n| 1_000 + n * 333).sum::<u64>());
}

#[test]
fn times_of_tokens_are_summaries() {
    let profile = run("outer");
    let read = of(&profile);
    let walls: u64 =
        profile.passes.iter().filter(|p| p.phase == Phase::Decode).map(|p| p.wall_ns).sum();
    assert_eq!(read.nanos("brickscope_time_per_output_token_seconds_sum", &[]), walls);
    assert_eq!(read.value("brickscope_time_per_output_token_seconds_count", &[]), "10");
    let median = profile.latency.per_token.percentiles.p50_ns.expect("ten are enough");
    let median_read =
        read.nanos("brickscope_time_per_output_token_seconds", &[("quantile", "0.5")]);
    assert_eq!(median_read, median);
    // It takes more tokens to state a p99.
    let p99 = (
        "brickscope_time_per_output_token_seconds".to_owned(),
        vec![("quantile".to_owned(), "0.99".to_owned())],
    );
    assert!(!read.samples.contains_key(&p99));
}

#[test]
fn any_name_comes_back_as_it_is() {
    for name in
        ["\"", "\\", "\n", "a\\nb", "</script>", "🙂\u{2028}", "\r\t\u{1b}[31m", "}", " # ", ""]
    {
        let read = of(&run(name));
        let labels =
            [("phase", "decode"), ("brick", name), ("category", "Other"), ("source", "host")];
        assert_eq!(read.value("brickscope_brick_spans_total", &labels), "10", "{name:?}");
    }
}

#[test]
fn devices_have_families_of_their_own() -> Result<(), brickscope::DeviceError> {
    let mut device = SimulatedDevice::new(1).with_issue(100);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device)?;
    timer.begin_pass(&mut device, Phase::Decode, 1, 7)?;
    for brick in [BrickId::RmsNorm, BrickId::QkvProjection] {
        timer.brick(&mut device, StreamId(0), Some(0), brick, Work::elements(1))?;
        device.launch(StreamId(0), 10_000);
    }
    timer.end_pass(&mut device)?;
    timer.finish(&mut device)?;
    let profile = profiler.profile();
    let read = of(&profile);
    let stream = &profile.devices[0].streams[0];
    let labels = [("device", "0"), ("stream", &*stream.name), ("phase", "decode")];
    let wall = read.nanos("brickscope_device_wall_seconds_total", &labels);
    let gaps = read.nanos("brickscope_device_unattributed_seconds_total", &labels);
    assert_eq!((wall, gaps), (stream.phases[0].wall_ns, stream.phases[0].unattributed_ns));
    let phase = ("phase", "decode");
    let bricks = read.all("brickscope_device_brick_exclusive_seconds_total", phase).map(nanos);
    assert_eq!(bricks.sum::<u64>() + gaps, wall);
    // The host's bricks are not mixed with them.
    assert!(!read.has("brickscope_brick_spans_total"));
    Ok(())
}

#[test]
fn open_metrics_names_a_family_without_its_suffix() {
    let read = metrics(&run("outer"), Names::Both, Dialect::OpenMetrics);
    assert!(read.ends);
    assert_eq!(read.types["brickscope_wall_seconds"], "counter");
    assert_eq!(read.types["brickscope_build"], "info");
    assert_eq!(read.types["llamacpp:prompt_tokens"], "counter");
    assert!(read.has("brickscope_wall_seconds_total"));
    assert!(!of(&run("outer")).ends);
}

#[test]
fn names_of_llama_cpp_say_what_its_server_means_by_them() {
    let profile = run("outer");
    let read = metrics(&profile, Names::LlamaCpp, Dialect::Prometheus);
    let (prefill, decode) =
        (profile.phase(Phase::Prefill).unwrap(), profile.phase(Phase::Decode).unwrap());
    assert_eq!(read.value("llamacpp:prompt_tokens_total", &[]), "3");
    assert_eq!(read.nanos("llamacpp:prompt_seconds_total", &[]), prefill.wall_ns);
    assert_eq!(read.value("llamacpp:tokens_predicted_total", &[]), "10");
    assert_eq!(read.nanos("llamacpp:tokens_predicted_seconds_total", &[]), decode.wall_ns);
    assert_eq!(read.value("llamacpp:n_decode_total", &[]), "11");
    assert_eq!(read.value("llamacpp:n_tokens_max", &[]), "13");
    let rate: f64 = read.value("llamacpp:predicted_tokens_seconds", &[]).parse().unwrap();
    assert_eq!(rate, decode.tokens_per_second().unwrap());
    assert!(read.samples.keys().all(|(name, _)| name.starts_with("llamacpp:")));
    assert_eq!(read.samples.len(), 8);

    let both = metrics(&profile, Names::Both, Dialect::Prometheus);
    assert_eq!(both.samples.len(), of(&profile).samples.len() + 8);
}
