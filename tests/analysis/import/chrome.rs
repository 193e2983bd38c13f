//! Traces whose events don't quite nest, are in another order, or lack parts of what the format has.

use super::*;

/// A list of events of one thread: `(kind, name, times)`.
fn events(of: &[(&str, &str, &str)]) -> Vec<String> {
    let event = |&(kind, name, times): &(&str, &str, &str)| {
        format!(r#"{{"ph":"{kind}","name":"{name}","pid":1,"tid":1,{times}}}"#)
    };
    of.iter().map(event).collect()
}

fn list(of: &[(&str, &str, &str)]) -> String {
    format!("[{}]", events(of).join(","))
}

fn decoded(text: &str) -> Profile {
    import(text, Format::Chrome, &passes_of("decode")).expect(text)
}

fn decode_time(profile: &Profile) -> (u64, u64, u64) {
    let phase = profile.phase(Phase::Decode).expect("it has passes");
    (phase.passes, phase.wall_ns, phase.unattributed_ns)
}

/// The total of a brick in decode passes, if it has one there.
fn in_decode(profile: &Profile, name: &str) -> Option<u64> {
    let bricks = profile.bricks(Some(Phase::Decode));
    bricks.iter().find(|total| total.stats.name == name).map(|total| total.stats.total_ns)
}

fn left_out(profile: &Profile) -> Vec<(&str, u64)> {
    let left_out = &profile.imported.as_ref().expect("of a file").left_out;
    left_out.iter().map(|(why, count)| (why.as_str(), *count)).collect()
}

const CUT: &str = "the ends of events that don't quite nest, up to 2 µs of each";

#[test]
fn a_pass_keeps_its_begin_whatever_ends_behind_it() {
    for (end, left) in [(r#""ts":1,"dur":100.5"#, 1_000), (r#""ts":1,"dur":101.5"#, 100_000)] {
        let profile = decoded(&list(&[("X", "decode", r#""ts":0,"dur":100"#), ("X", "attn", end)]));
        assert_eq!(decode_time(&profile), (1, 100_000, left), "{end}");
    }
}

#[test]
fn an_event_that_begins_a_little_early_nests() {
    for (times, attn, left) in [
        (r#""ts":9.5,"dur":50.5"#, Some(50_000), 10_000),
        (r#""ts":8,"dur":52"#, Some(50_000), 10_000),
        // Nearly as long as the pass.
        (r#""ts":9.5,"dur":49.5"#, Some(49_000), 11_000),
        // By more, nobody knows where it belongs.
        (r#""ts":7.9,"dur":52.1"#, None, 60_000),
    ] {
        let profile = decoded(&list(&[
            ("X", "decode", r#""ts":10,"dur":100"#),
            ("X", "attn", times),
            ("X", "mlp", r#""ts":60,"dur":40"#),
        ]));
        assert_eq!(decode_time(&profile), (1, 100_000, left), "{times}");
        assert_eq!((in_decode(&profile, "attn"), in_decode(&profile, "mlp")), (attn, Some(40_000)));
        let why = match attn {
            Some(_) => CUT,
            None => "events that go on into a pass, so that their own time isn't known",
        };
        assert_eq!(left_out(&profile), [(why, 1)], "{times}");
    }
    // The pass keeps its end, too, where its only child misses that by more than its begin.
    let profile = decoded(&list(&[
        ("X", "attn", r#""ts":9.5,"dur":99.5"#),
        ("X", "decode", r#""ts":10,"dur":100"#),
    ]));
    assert_eq!(decode_time(&profile), (1, 100_000, 1_000));
    assert_eq!(in_decode(&profile, "attn"), Some(99_000));
    // All that lies in an early one goes with it.
    let profile = decoded(&list(&[
        ("X", "attn", r#""ts":9.5,"dur":50.5"#),
        ("X", "qkv", r#""ts":9.6,"dur":20.4"#),
        ("X", "decode", r#""ts":10,"dur":100"#),
    ]));
    assert_eq!(sums(&profile, Some(Phase::Decode), "attn"), (1, 50_000, 30_000));
    assert_eq!(sums(&profile, Some(Phase::Decode), "qkv"), (1, 20_000, 20_000));
    assert_eq!(left_out(&profile), [(CUT, 2)]);
}

#[test]
fn children_end_late_by_as_much_as_times_are_rounded() {
    // Of a clock of milliseconds, with children that end so many of them after their passes.
    let late_by = |ms: u32| {
        let event = |name: &str, at: u32, dur: u32| {
            let times = format!(r#""ts":{at}000,"dur":{dur}000"#);
            format!(r#"{{"ph":"X","name":"{name}","pid":1,"tid":1,{times}}}"#)
        };
        let passes = (0..12).flat_map(|n| {
            let at = 1 + 100 * n + n % 3;
            [event("decode", at, 50), event("attn", at + 10, 40 + ms)]
        });
        decoded(&format!("[{}]", passes.collect::<Vec<_>>().join(",")))
    };
    let cut = "the ends of events that don't quite nest, up to 1 ms of each, of which all times are \
               multiples";
    let left = "events that overlap another of their thread without nesting, by more than 1 ms, of \
                which all times are multiples";
    for (ms, attn, why) in
        [(0, Some(480_000_000), None), (1, Some(480_000_000), Some(cut)), (2, None, Some(left))]
    {
        let profile = late_by(ms);
        let own = if attn.is_some() { 120_000_000 } else { 600_000_000 };
        assert_eq!(decode_time(&profile), (12, 600_000_000, own), "{ms}");
        assert_eq!(in_decode(&profile, "attn"), attn, "{ms}");
        let expected: Vec<(&str, u64)> = why.into_iter().map(|why| (why, 12)).collect();
        assert_eq!(left_out(&profile), expected, "{ms}");
    }
}

const PAIRS: [(&str, &str, &str); 6] = [
    ("B", "decode", r#""ts":0"#),
    ("B", "attn", r#""ts":10"#),
    ("E", "attn", r#""ts":60"#),
    ("B", "mlp", r#""ts":60"#),
    ("E", "mlp", r#""ts":100"#),
    ("E", "decode", r#""ts":100"#),
];

#[test]
fn begins_and_ends_may_be_in_any_order() {
    let mut pairs = PAIRS;
    for turn in 0..pairs.len() {
        pairs.rotate_left(1);
        let profile = decoded(&list(&pairs));
        assert_eq!(decode_time(&profile), (1, 100_000, 10_000), "{turn}");
        assert_eq!(in_decode(&profile, "attn"), Some(50_000), "{turn}");
        assert_eq!(in_decode(&profile, "mlp"), Some(40_000), "{turn}");
        assert!(left_out(&profile).is_empty(), "{turn}");
    }
}

#[test]
fn an_end_of_another_name_closes_no_event() {
    let mut pairs = PAIRS;
    pairs[4..].rotate_left(1);
    pairs[5].2 = r#""ts":100.5"#;
    let profile = decoded(&list(&pairs));
    assert_eq!(decode_time(&profile), (1, 100_000, 10_000));
    assert_eq!(in_decode(&profile, "mlp"), Some(40_000));
    assert_eq!(left_out(&profile), [(CUT, 1)]);
    pairs[5].1 = "norm";
    let profile = decoded(&list(&pairs));
    assert_eq!((decode_time(&profile), in_decode(&profile, "mlp")), ((1, 100_000, 50_000), None));
    assert_eq!(left_out(&profile), [("begins without an end", 1), ("ends without a begin", 1)]);
}

const WHOLE: [(&str, &str, &str); 3] = [
    ("X", "decode", r#""ts":0,"dur":100"#),
    ("X", "attn", r#""ts":10,"dur":50"#),
    ("X", "mlp", r#""ts":60,"dur":40"#),
];

#[test]
fn a_comma_behind_the_last_event_and_events_of_a_line_each_are_read() {
    let events = events(&WHOLE);
    let of_commas = events.join(",\n");
    for text in [
        format!("[\n{of_commas},\n]"),
        format!("{{\"traceEvents\":[{of_commas},]}}"),
        format!("{{\"traceEvents\":[{of_commas},],}}\n"),
        events.join("\n"),
        format!("{}\r\n", events.join("\r\n")),
    ] {
        assert_eq!(brickscope_formats::import::format_of(&text), Some(Format::Chrome), "{text}");
        let profile = decoded(&text);
        assert_eq!(decode_time(&profile), (1, 100_000, 10_000), "{text}");
        assert_eq!(in_decode(&profile, "mlp"), Some(40_000), "{text}");
        assert!(left_out(&profile).is_empty(), "{text}");
    }
    // The last line of a program that was killed.
    let cut = &events.join("\n")[..events[0].len() + events[1].len() + 10];
    let profile = decoded(cut);
    assert_eq!(decode_time(&profile), (1, 100_000, 50_000));
    assert_eq!(left_out(&profile), [("the rest of the file, which is truncated", 1)]);
    let screen = view::summary(&profile, view::Size::default(), None).to_string();
    assert!(screen.contains("the file breaks off: work of any pass may be missing"), "{screen}");
    // How fast it was is on the first screen, too.
    assert!(screen.contains("\nDecode   no rate          100 µs a pass\n"), "{screen}");
    for (text, why) in [
        (format!("[{of_commas},,]"), "expected value"),
        (format!("{}\nx", events.join("\n")), "there is more behind its end"),
        (format!("{{\"traceEvents\":[{of_commas}]}}{{}}"), "there is more behind its end"),
    ] {
        let said = refused(&text, Format::Chrome, &Options::default());
        assert!(said.ends_with(why), "{said}");
    }
}

#[test]
fn a_trace_behind_lines_of_a_log_is_read_and_they_are_counted() {
    let all = events(&WHOLE).join(",\n");
    for (log, first, lines) in [
        ("INFO: profiler started\n", "INFO: profiler started", 1),
        ("[INFO] a\r\n\n[2026-11-20 09:12:44,123] {x}\n", "[INFO] a", 2),
    ] {
        for trace in [
            format!("{{ \"traceEvents\": [{all}]}}"),
            format!("{{\n\"otherData\": {{}},\n\"traceEvents\": [{all}"),
            format!("[\n{all}]"),
        ] {
            let text = format!("{log}{trace}");
            let is = brickscope_formats::import::format_of(&text);
            assert_eq!(is, Some(Format::Chrome), "{text}");
            let profile = decoded(&text);
            assert_eq!(decode_time(&profile), (1, 100_000, 10_000), "{text}");
            let why = format!("lines before the trace, such as `{first}`");
            assert_eq!(left_out(&profile)[0], (why.as_str(), lines), "{text}");
        }
        // What is wrong has its place in the file.
        let text = format!("{log}{{\"traceEvents\": 5}}");
        let said = refused(&text, Format::Chrome, &Options::default());
        let line = log.lines().count() + 1;
        assert!(said.starts_with(&format!("a.file, line {line} column 17: ")), "{said}");
    }
}

#[test]
fn a_pass_without_an_end_or_a_time_is_no_pass() {
    let said = refused(&list(&PAIRS[..4]), Format::Chrome, &passes_of("decode"));
    let why =
        "its event `decode`, which should be a decode pass, begins and has no end; it has `attn`";
    assert!(said.ends_with(why), "{said}");
    let zero = ("X", "decode", r#""ts":0,"dur":0"#);
    let said = refused(&list(&[zero, WHOLE[1]]), Format::Chrome, &passes_of("decode"));
    let why = "its event `decode`, which should be a decode pass, takes 0 ns; it has `attn`";
    assert!(said.ends_with(why), "{said}");
    let profile = decoded(&list(&[zero, ("X", "decode", r#""ts":5,"dur":100"#), WHOLE[1]]));
    assert_eq!(decode_time(&profile), (1, 100_000, 50_000));
    assert_eq!(left_out(&profile), [("passes of 0 ns", 1)]);
}
