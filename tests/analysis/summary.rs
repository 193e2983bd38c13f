//! The first screen of runs whose times are known: a quiet one, and ones with a planted cause.

use brickscope::{
    BrickId, BrickProfiler, CacheCeiling, CeilingReading, Ceilings, Disturbance, Grain, Machine,
    MockClock, Model, Phase, Profile, ReadingTime, Run, Share, SimulatedDevice, StreamId,
    ThreadShare, Work,
};
use brickscope_analysis::explain;
use brickscope_analysis::roofline::{Reach, Roofline};
use brickscope_analysis::view::{self, Size, Tone};

const SIZES: [(usize, usize); 3] = [(80, 24), (120, 40), (200, 50)];

/// Each brick of a layer: microseconds, megabytes of weights, FLOPs for each byte.
const LAYER: [(BrickId, u64, u64); 9] = [
    (BrickId::RmsNorm, 300, 0),
    (BrickId::QkvProjection, 48_000, 1_880_000),
    (BrickId::RopeEmbedding, 1_300, 0),
    (BrickId::AttentionScore, 6_800, 0),
    (BrickId::OutputProjection, 16_000, 630_000),
    (BrickId::GateProjection, 41_000, 1_670_000),
    (BrickId::UpProjection, 41_000, 1_670_000),
    (BrickId::Activation, 1_100, 0),
    (BrickId::DownProjection, 42_000, 1_670_000),
];

/// A run of a model with twelve layers that reads memory at up to 40 GB/s. Each product takes `times` as long;
/// `extra_ns` is what the n-th pass of decode spends in no brick, beyond 2 µs.
fn run(times: u64, extra_ns: impl Fn(u64) -> u64) -> Profile {
    run_with(times, None, extra_ns)
}

/// The same, where the last product of one layer takes ten times as long.
fn run_with(times: u64, slow: Option<u16>, extra_ns: impl Fn(u64) -> u64) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock()).with_log_capacity(1 << 16);
    profiler.enable();
    let brick = |id: BrickId, ns: u64, weights: u64, tokens: u64| {
        let timer = profiler.start_brick(id);
        hand.advance(if weights > 0 { ns * times } else { ns });
        let bytes = weights.max(64);
        // A prompt's products read their weights once.
        let work = Work { elements: 768, flops: 2 * bytes * tokens, bytes, ..Work::default() };
        profiler.stop_brick_with(timer, work);
    };
    for position in 0..64 {
        let (phase, tokens) = match position {
            0 => (Phase::Prefill, 100),
            _ => (Phase::Decode, 1),
        };
        let pass = profiler.begin_pass(phase);
        // Products of a prompt are bound by arithmetic: 500 GFLOP/s are 2 ms for each GFLOP.
        let longer = if phase == Phase::Prefill { 16 } else { 1 };
        for index in 0..12 {
            let layer = profiler.begin_layer(index);
            for (id, ns, weights) in LAYER {
                let is_slow = slow == Some(index) && id == BrickId::DownProjection;
                let longer = if is_slow { 10 * longer } else { longer };
                brick(id, ns * longer, weights, tokens);
            }
            profiler.end_layer(layer);
        }
        brick(BrickId::LmHead, 660_000, 26_000_000, 1);
        hand.advance(2_000 + if position == 0 { 0 } else { extra_ns(position) });
        profiler.end_pass(pass, tokens, if position == 0 { 0 } else { 99 + position });
    }
    let mut profile = profiler.profile();
    let cache = |level: &str, bytes, read_bytes_per_second| CacheCeiling {
        level: level.to_owned(),
        bytes,
        read_bytes_per_second,
    };
    profile.ceilings = Some(Ceilings {
        read_bytes_per_second: 41e9,
        flops_per_second: 500e9,
        basis: "planted".to_owned(),
        caches: vec![cache("L1", 64_000, 400e9), cache("L2", 2_000_000, 200e9)],
        ..Ceilings::default()
    });
    profile.machine = Some(Machine {
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        cpu: Some("Example CPU".to_owned()),
        logical_cpus: Some(2),
        memory_bytes: None,
    });
    profile.model = Some(Model {
        path: "example.gguf".to_owned(),
        name: Some("example-110m".to_owned()),
        architecture: "llama".to_owned(),
        quantization: "q8_0".to_owned(),
        file_bytes: 117_000_000,
        parameters: 110_000_000,
        layers: 12,
        embedding_length: 768,
        synthetic: false,
        weights_in: None,
        copied_in_ns: None,
        interleaved_bytes: None,
        interleaved_in_ns: None,
        weights: Vec::new(),
    });
    profile.run = Some(Run { backend: "avx512".to_owned(), threads: 2, ..Run::default() });
    profile
}

/// Marks passes of decode: a thread waited `of` of a millisecond for a CPU that threads of its own process had.
fn disturb(profile: &mut Profile, passes: usize, own_ns: u64) {
    for pass in profile.passes.iter_mut().filter(|pass| pass.phase == Phase::Decode).take(passes) {
        pass.disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            longest_wait_ns: Some(1_000_000),
            run_queue_wait_ns: Some(1_000_000),
            own_wait_ns: Some(own_ns),
            ..Disturbance::default()
        });
    }
    let disturbed = profile.passes.iter().filter(|pass| pass.is_disturbed()).count() as u64;
    let phases = &mut profile.phases;
    phases.iter_mut().find(|total| total.phase == Phase::Decode).expect("decode").disturbed =
        disturbed;
    profile.dropped.disturbed_passes = disturbed;
}

fn screen(profile: &Profile, (columns, rows): (usize, usize)) -> String {
    // A line is the prompt's.
    view::summary(profile, Size { columns, rows: rows - 1 }, Some("runs/1")).to_string()
}

#[test]
fn a_screen_has_room_for_all_of_it_at_each_size() {
    let mut profile = run(1, |_| 0);
    disturb(&mut profile, 4, 0);
    for (columns, rows) in SIZES {
        let text = screen(&profile, (columns, rows));
        insta::assert_snapshot!(format!("screen_{columns}x{rows}"), text);
        assert!(text.lines().count() < rows, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
    }
}

#[test]
fn colours_change_nothing_but_colours() {
    let profile = run(1, |_| 0);
    let paint = |tone| match tone {
        Tone::Plain => "",
        Tone::Good => "<good>",
        Tone::Bad => "<bad>",
    };
    for (columns, rows) in SIZES {
        let summary = view::summary(&profile, Size { columns, rows: rows - 1 }, Some("runs/1"));
        let painted = summary.painted(paint, "<plain>");
        insta::assert_snapshot!(format!("painted_{columns}x{rows}"), painted);
        let bare =
            ["<good>", "<bad>", "<plain>"].iter().fold(painted, |text, of| text.replace(of, ""));
        assert_eq!(bare, summary.to_string());
    }
}

#[test]
fn a_planted_cause_is_what_the_screen_says_to_do_something_about() {
    let mut other_programs = run(1, |_| 0);
    disturb(&mut other_programs, 40, 0);
    let mut own_threads = run(3, |_| 0);
    disturb(&mut own_threads, 63, 990_000);
    let mut too_many = own_threads.clone();
    too_many.machine.as_mut().expect("planted").logical_cpus = Some(1);
    let mut of_llama_cpp = own_threads.clone();
    of_llama_cpp.run.as_mut().expect("planted").backend = "llama.cpp, CPU".to_owned();
    let mut no_ceilings = run(1, |_| 0);
    no_ceilings.ceilings = None;
    let mut waits = run(3, |_| 0);
    for (thread, worked_ns, waited_ns) in [(0, 900, 100), (1, 500, 500)] {
        let share = Share { count: 12, worked_ns, waited_ns };
        let brick = "UpProjection".to_owned();
        waits.shares.push(ThreadShare { thread, phase: Phase::Decode, brick, share });
    }
    let mut slow_reads = run(1, |_| 0);
    slow_reads.ceilings.as_mut().expect("planted").read_bytes_per_second = 52e9;
    for (name, profile, limit, advice) in [
        (
            "at the roof",
            run(1, |_| 0),
            "memory-bound: 94 % of 41 GB/s",
            "smaller weights (now q8_0)",
        ),
        (
            "near it",
            slow_reads,
            "memory-bound: 7",
            "read fewer bytes a token: smaller weights (now q8_0)",
        ),
        (
            "far from it",
            run(3, |_| 0),
            "far from the memory roof: 32 % of 41 GB/s",
            "try other `--threads`",
        ),
        (
            "between bricks",
            run(1, |_| 900_000),
            "lies outside of all bricks",
            "time what lies between",
        ),
        (
            "other programs",
            other_programs,
            "memory-bound: 9",
            "stop other programs, which took the CPU in 40",
        ),
        (
            "own threads",
            own_threads,
            "(memory); cause: threads shared a CPU",
            "give each thread a CPU (`--pin`), or run fewer threads",
        ),
        (
            "own threads of llama.cpp",
            of_llama_cpp,
            "(memory); cause: threads shared a CPU",
            "give each thread a CPU (`--cpu-mask`, `--cpu-strict 1`), or run fewer threads (`-t 1`)",
        ),
        (
            "more threads than CPUs",
            too_many,
            "(memory); cause: threads shared a CPU",
            "2 threads run on 1 CPU: allow",
        ),
        (
            "threads that wait",
            waits,
            "far from the memory roof: 32 % of 41 GB/s",
            "threads waited for each other for 30 % of their time, most in UpProjection",
        ),
        (
            "one slow layer",
            run_with(1, Some(7), |_| 0),
            "memory",
            "look at DownProjection of layer 7: 420 µs a pass where other layers take 42.0 µs",
        ),
        ("no ceilings", no_ceilings, "no measured ceilings", "`brickscope machine --add-to RUN`"),
    ] {
        let text = screen(&profile, (80, 24));
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let next = joined.split("Next: ").nth(1).unwrap_or_default();
        assert!(joined.contains(limit), "{name}: {limit}\n{text}");
        assert!(next.contains(advice), "{name}: {advice}\n{text}");
    }
}

#[test]
fn the_rate_is_measured_where_bricks_are_of_median_spans() {
    // Each pass is disturbed, and half of the time is waiting that no median span shows.
    let mut profile = run(1, |_| 3_000_000);
    disturb(&mut profile, 63, 990_000);
    let decode = profile.phase(Phase::Decode).expect("decode");
    let rate = format!("{:.0} tok/s", decode.tokens_per_second().expect("tokens"));
    let text = screen(&profile, (80, 24));
    assert!(text.starts_with(&format!("Decode   {rate} ")), "{rate}: {text}");
}

#[test]
fn one_stall_is_a_line_and_moves_no_bar() {
    let quiet = screen(&run(1, |_| 0), (80, 24));
    let mut stalled = run(1, |nth| if nth == 40 { 36_000_000 } else { 0 });
    disturb(&mut stalled, 0, 0);
    let text = screen(&stalled, (80, 24));
    assert!(text.contains("1 of 63 decode passes left out ("), "{text}");
    assert!(text.contains("one stall of 36.0 ms"), "{text}");
    let bars = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with('█')).map(str::to_owned).collect()
    };
    assert_eq!(bars(&text), bars(&quiet));
    assert!(!bars(&quiet).is_empty());
}

#[test]
fn long_names_are_whole_where_there_is_room() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let name = "model.layers.mixture_of_experts.shared_expert.gate_projection";
    let pass = profiler.begin_pass(Phase::Decode);
    let timer = profiler.start(name);
    hand.advance(1_000);
    profiler.stop(timer, 1);
    profiler.end_pass(pass, 1, 0);
    let profile = profiler.profile();
    assert!(screen(&profile, (200, 50)).contains(name));
    let narrow = screen(&profile, (80, 24));
    assert!(narrow.contains("model.layers.mixtur… "), "{narrow}");
}

/// The last lines of the report.
fn last_lines(profile: &Profile) -> String {
    let report = view::report(profile);
    let start = report.rfind("\ncounters ").or(report.rfind("\nothers ")).expect("what is known");
    let lines = report[start..].split_once("\nfinding ").map(|(_, rest)| format!("finding {rest}"));
    lines.unwrap_or_default()
}

#[test]
fn the_report_ends_with_the_first_finding_or_why_there_is_none() {
    let slow = last_lines(&run_with(1, Some(7), |_| 0));
    assert!(slow.starts_with("finding   DownProjection of layer 7: 420 µs a pass"), "{slow}");
    assert!(slow.contains("predicted: "), "{slow}");
    assert!(
        slow.ends_with("\n          brickscope findings RUN: its evidence, and 2 others\n"),
        "{slow}"
    );
    assert!(slow.lines().all(|line| line.chars().count() <= 80), "{slow}");
    // Nothing was found: at no roof, since no ceilings are known.
    let mut clean = run(1, |_| 0);
    clean.ceilings = None;
    assert_eq!(last_lines(&clean), "");
    // No rule could look.
    let mut imported = clean.clone();
    imported.phases.clear();
    imported.passes.clear();
    let said = last_lines(&imported);
    assert_eq!(said, "finding   no rule could look at this run; no pass was timed\n");
}

#[test]
fn each_screen_has_the_same_verdict_and_none_advises_by_a_limit_that_swings() {
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Memory before the run and after it, in GB/s.
    for (times, before, after, expected) in [
        (1, 41.0, 40.0, "memory-bound: 94 % of 41 GB/s"),
        (2, 44.0, 43.0, "far from the memory roof: 44 % of 44 GB/s"),
        (2, 46.0, 20.0, "memory swung 20 to 46 GB/s: no verdict"),
    ] {
        let mut profile = run(times, |_| 0);
        let ceilings = profile.ceilings.as_mut().expect("ceilings");
        ceilings.read_bytes_per_second = f64::max(before, after) * 1e9;
        ceilings.readings = [(ReadingTime::Before, before), (ReadingTime::After, after)]
            .map(|(when, rate)| CeilingReading {
                when,
                measured: String::new(),
                read_bytes_per_second: rate * 1e9,
                disturbed: false,
            })
            .into();
        let roofline = Roofline::of(&profile, Phase::Decode).expect("ceilings");
        let verdict = roofline.verdict().expect("stated work");
        let says = verdict.says();
        assert_eq!(says, expected);
        assert_eq!(view::phase_limit(&profile, Phase::Decode).text, says, "`top` and `benchmark`");
        let headline = view::headline(&profile);
        assert!(headline.starts_with(&format!("Decode: {says}")), "{headline}");
        let first = joined(&screen(&profile, (80, 24)));
        assert!(first.contains(&says), "{first}");
        let pages = explain::find_in("ceiling", &profile);
        let said: Vec<_> = pages.iter().map(|page| page.in_run(&profile)).collect();
        let explained = joined(&view::explain(&pages, Some(("runs/1", &said))));
        assert!(explained.contains(&format!("decode {says}")), "{explained}");
        let json: serde_json::Value =
            serde_json::from_str(&view::json(&profile)).expect("valid JSON");
        let mut phases = json["roofline"].as_array().expect("phases").iter();
        let decode = phases.find(|of| of["phase"] == "decode").expect("decode");
        assert_eq!(decode["verdict"]["says"], says.as_str());
        let found = joined(&view::findings(&profile, None));
        match verdict.reach {
            Reach::Unsettled => {
                assert!(found.contains(&says), "{found}");
                for advice in ["faster kernels", "smaller weights", "larger weights", "latency"] {
                    assert!(!(first.clone() + &found).contains(advice), "{advice}: {found}");
                }
            }
            Reach::Far => assert!(found.contains("44 % of its roof"), "{found}"),
            _ => assert!(found.contains("94 % of 41 GB/s"), "{found}"),
        }
    }
}

#[test]
fn a_word_is_explained_with_the_figures_of_a_run() {
    let profile = run_with(1, Some(7), |_| 0);
    let explained = |word: &str| {
        let pages = explain::find_in(word, &profile);
        let said: Vec<_> = pages.iter().map(|page| page.in_run(&profile)).collect();
        view::explain(&pages, Some(("runs/slow", &said)))
    };
    for (name, word) in [
        ("explained_brick", "down-projection"),
        ("explained_rule", "slow-layer"),
        ("explained_rule_that_found_nothing", "slow-sampling"),
        ("explained_term", "ceiling"),
        ("explained_term_and_rule", "unattributed"),
    ] {
        let text = explained(word);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(name, text);
    }
    // Every page has something to say of a run, and nothing breaks its lines.
    for page in explain::pages() {
        let text = explained(&page.word);
        assert!(text.contains("\nIn runs/slow:\n\n  "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
    assert!(explained("LayerNorm").ends_with("  no span of this brick was recorded\n"));
    insta::assert_snapshot!("words", view::words());
}

#[test]
fn a_brick_of_ones_own_has_figures_and_no_text() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..6 {
        let pass = profiler.begin_pass(Phase::Decode);
        for _ in 0..2 {
            let timer = profiler.start("moe_router");
            hand.advance(300_000);
            profiler.stop(timer, 1);
        }
        hand.advance(400_000);
        profiler.end_pass(pass, 1, position);
    }
    let profile = profiler.profile();
    let pages = explain::find_in("moe-router", &profile);
    let [page] = &pages[..] else { panic!("{pages:?}") };
    let said = page.in_run(&profile);
    assert_eq!((said.bricks[0].pass_ns, said.bricks[0].share), (600_000.0, 0.6));
    let text = view::explain(&pages, Some(("a", &[said])));
    assert!(
        text.contains("  decode      600 µs a pass (300 µs × 2), 60.0 % of it; of 6 passes\n"),
        "{text}"
    );
    assert!(text.contains("  work        its FLOPs and bytes were not stated\n"), "{text}");
    assert!(text.contains("  roof        unknown: "), "{text}");
    assert_eq!(explain::find("moe-router"), []);
}

/// Eight passes of a device, each timed as finely as `grain` says of its position.
fn on_a_device(grain: impl Fn(u64) -> Grain) -> Profile {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let stream = StreamId(0);
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 0..8 {
        timer.set_grain(grain(position));
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        for (layer, ns) in [(0, 30_000), (1, 10_000)] {
            let brick = [BrickId::QkvProjection, BrickId::LmHead][usize::from(layer)];
            let work = Work::elements(1);
            timer.brick(&mut device, stream, Some(layer), brick, work).expect("room");
            device.launch(stream, ns);
        }
        timer.end_pass(&mut device).expect("it is open");
        timer.settle(&mut device, true).expect("it is there");
    }
    timer.finish(&mut device).expect("it is there");
    profiler.profile()
}

#[test]
fn the_wait_between_two_tokens_of_a_request_is_told_from_a_pass() {
    let mut profile = run(1, |_| 0);
    profile.latency.of_requests = true;
    profile.latency.per_token.mean_ns = Some(92.5e6);
    profile.latency.per_token.percentiles.p50_ns = Some(39_100_000);
    let text = screen(&profile, (80, 24));
    let said = "\n         between tokens, prompts of others included: mean 92.5 ms, p50 39.1 ms\n";
    assert!(text.contains(said), "{text}");
    // Elsewhere on the line of a rate it is of passes.
    profile.latency.of_requests = false;
    let text = screen(&profile, (80, 24));
    assert!(text.contains("mean 92.5 ms, p50 39.1 ms"), "{text}");
    assert!(!text.contains("between tokens"), "{text}");
}

#[test]
fn a_device_of_which_only_whole_passes_were_timed_has_no_gaps() {
    for (grain, name) in [(Grain::Pass, "(whole passes)"), (Grain::Layer, "(in layers)")] {
        let profile = on_a_device(|_| grain);
        let on = profile.whole_device(0).expect("a device");
        let report = view::report(&on);
        let row = report.lines().find(|line| line.starts_with(name));
        assert!(row.is_some_and(|row| row.contains(" 100.0%")), "{report}");
        assert!(!report.contains("\nunattributed"), "{report}");
        let text = view::summary(&on, Size { columns: 80, rows: 24 }, None).to_string();
        assert!(text.contains("gaps 0.0 %"), "{text}");
        assert!(!text.contains("unattributed"), "{text}");
    }
}

#[test]
fn passes_of_a_device_without_bricks_are_no_gaps() {
    // Bricks of two passes, layers of the others.
    let profile = on_a_device(|n| if n < 2 { Grain::Brick } else { Grain::Layer });
    let text = view::summary(&profile, Size { columns: 80, rows: 24 }, None).to_string();
    assert!(text.contains("QkvProjection  75.0 %    30.0 µs × 1"), "{text}");
    assert!(text.contains("gaps 0.0 %"), "{text}");
    assert!(text.contains("look at QkvProjection, 75.0 % of the device's time there"), "{text}");
    assert!(text.contains("QkvProjection takes the most"), "{text}");

    // The same of the device by itself, where all passes are in the table.
    let on = profile.whole_device(0).expect("a device");
    let report = view::report(&on);
    assert!(report.replace('\n', " ").contains("gaps between bricks are 0.0%"), "{report}");
    let row = |name: &str| {
        let mut rows = report.lines().filter(|line| line.starts_with(name));
        rows.next().unwrap_or_else(|| panic!("no {name}: {report}")).to_owned()
    };
    assert!(row("(in layers)").contains(" 75.0%"), "{report}");
    assert!(row("(gaps)").contains(" 0.0%"), "{report}");
    assert!(row("QkvProjection").contains(" 18.7%") || row("QkvProjection").contains(" 18.8%"));
    assert!(report.contains("bricks were not measured in 6 of 8 passes"), "{report}");
    assert!(report.contains("One decode pass on the device"), "{report}");
    for says in [view::phase_limit(&on, Phase::Decode), view::phase_limit(&profile, Phase::Decode)]
    {
        assert!(!says.text.contains("outside of all bricks"), "{says:?}");
    }
    // Also of passes that were only summed, as in a live view.
    let mut summed = on.clone();
    summed.passes.truncate(1);
    summed.spans.clear();
    let says = view::phase_limit(&summed, Phase::Decode);
    assert!(!says.text.contains("outside of all bricks"), "{says:?}");
}
