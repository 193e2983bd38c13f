//! Tests of pages: runs with known times.

use brickscope::{
    Absent, Began, BrickId, BrickProfiler, CacheCeiling, Ceilings, FunctionSamples, HostLaunch,
    Imported, Lane, LayerBrick, Machine, MockClock, Model, Name, NameKind, NotFinite, Numbers,
    PairedRatio, Pass, Phase, PhaseTotal, Profile, Share, SimulatedDevice, Source, Span, StreamId,
    ThreadShare, TileBalance, TileLevel, TileStats, TileThread, TransferDirection, Work,
};
use brickscope_analysis::compare::{Options, Process, RanksChange, RanksOfRun, Side, compare};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::view;

use brickscope_report::{Run, of_run, of_two, steps};
use brickscope_testing::hostile;
use proptest::prelude::*;

use crate::provenance::{Files, check, walk};

/// A name with everything that a page, a script or a terminal could misinterpret.
pub(crate) const HOSTILE: &str =
    "\"'><script>hacked()</script><!--]]>&amp;\n\u{202e}🦀 {{title}} \u{0} 注意力 ${x} `y` \\u003c";

/// A prompt and sixty tokens of three layers, the last of them slow; and a copy with its inverse.
pub(crate) fn sample(named: &str) -> Profile {
    slower(named, 0)
}

/// The same with layers that take some nanoseconds longer.
fn slower(named: &str, by: u64) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let launch = HostLaunch { shape: "768×768 q8_0".to_owned(), threads: 2 };
    let gemv = profiler.kernel("q8_0_gemv_avx2", Some(launch));
    let run = |phase: Phase, tokens: u64, slow: u64| {
        let pass = profiler.begin_pass(phase);
        hand.advance(130);
        let timer = profiler.start_brick(BrickId::Embedding);
        hand.advance(1_010 * tokens);
        profiler.stop_brick_with(
            timer,
            Work { elements: 768, flops: 0, bytes: 3_072, ..Work::default() },
        );
        for index in 0..3 {
            let layer = profiler.begin_layer(index);
            let timer = profiler.start_brick_kernel(BrickId::QkvProjection, gemv);
            hand.advance((100_003 + 10_000 * u64::from(index)) * tokens + slow);
            profiler.stop_brick_kernel(
                timer,
                Work { elements: 768, flops: 4_000_000, bytes: 900_000, ..Work::default() },
            );
            let timer = profiler.start(named);
            hand.advance(40_000);
            let inner = profiler.start_brick(BrickId::DownProjection);
            hand.advance(60_001);
            profiler.stop_brick_with(
                inner,
                Work { elements: 768, flops: 900_000, bytes: 600_000, ..Work::default() },
            );
            profiler.stop(timer, 1);
            profiler.end_layer(layer);
        }
        hand.advance(77);
        profiler.end_pass(pass, tokens, 0);
        hand.advance(5_000);
    };
    run(Phase::Prefill, 12, 0);
    for token in 0..60 {
        run(Phase::Decode, 1, if token > 52 { 30_000 + token } else { by + token % 7 });
    }
    profiler.enable_graph();
    profiler.graph_record_brick(BrickId::AttentionScore, 5_000, 1);
    let copy = |from: &str, to: &str, way| {
        profiler.graph().record_transfer(from, to, 4_096, way, Some(900))
    };
    copy("host_scores", "scores", TransferDirection::H2D);
    copy("scores", "host_scores", TransferDirection::D2H);
    let mut profile = profiler.profile();
    profile.ceilings = Some(Ceilings {
        read_bytes_per_second: 50e9,
        flops_per_second: 100e9,
        int8_ops_per_second: Some(200e9),
        numbers: Some(Numbers::Int8),
        basis: "measured 2026-11-21 and kept: 2 threads, avx2".to_owned(),
        caches: vec![CacheCeiling {
            level: "L3".to_owned(),
            bytes: 1 << 25,
            read_bytes_per_second: 180e9,
        }],
        ..Ceilings::default()
    });
    tile(&mut profile, named);
    profile.machine = Some(Machine {
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        cpu: Some("A Processor 9000".to_owned()),
        logical_cpus: Some(2),
        memory_bytes: Some(24_000_000_000),
    });
    profile.model = Some(Model {
        path: "tiny-q8_0.gguf".to_owned(),
        name: Some(named.to_owned()),
        architecture: "llama".to_owned(),
        quantization: "q8_0".to_owned(),
        file_bytes: 110_000_000,
        parameters: 110_000_000,
        layers: 3,
        embedding_length: 768,
        synthetic: true,
        weights_in: Some("large pages, rows interleaved".to_owned()),
        copied_in_ns: Some(150_000_000),
        interleaved_bytes: Some(900_000),
        interleaved_in_ns: Some(20_000_000),
        weights: Vec::new(),
    });
    profile.run = Some(brickscope::Run {
        command: vec!["brickscope".to_owned(), "profile".to_owned(), named.to_owned()],
        backend: "avx2".to_owned(),
        threads: 2,
        prompt_tokens: 12,
        generated_tokens: 60,
        ..brickscope::Run::default()
    });
    profile
}

/// Shares of two products on two threads, one of them named, and runs of register tiles in these.
fn tile(profile: &mut Profile, named: &str) {
    let of = |level, each: &[u64]| {
        let mut tiles = TileStats::new(level);
        each.iter().for_each(|&ns| tiles.add_sample(ns, 768, 20 * ns));
        tiles.tiles_in_runs = (level == TileLevel::Micro).then_some(40);
        tiles
    };
    let shares: [&[u64]; 2] = [&[70_001, 30_000], &[90_000, 40_003]];
    let thread = |nth: usize| {
        let tiles = vec![of(TileLevel::Macro, shares[nth]), of(TileLevel::Micro, &[25_000])];
        TileThread { name: (nth == 0).then(|| named.to_owned()), tid: None, tiles }
    };
    profile.tiles =
        vec![of(TileLevel::Macro, &shares.concat()), of(TileLevel::Micro, &[25_000; 2])];
    profile.tile_threads = vec![thread(0), thread(1)];
    profile.tile_balance = Some(TileBalance {
        products: 2,
        slowest_ns: 130_003,
        offered_ns: 260_006,
        worked_ns: 230_004,
    });
}

/// A decode pass on a device; the host only issues it and waits.
pub(crate) fn on_a_device() -> Profile {
    let mut device = SimulatedDevice::new(1).with_issue(0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    for position in 7..10 {
        let pass = profiler.begin_pass(Phase::Decode);
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        for (brick, nanos) in [(BrickId::RmsNorm, 5_000), (BrickId::LmHead, 45_000)] {
            timer.brick(&mut device, StreamId(0), None, brick, Work::elements(1)).expect("room");
            device.launch(StreamId(0), nanos);
        }
        timer.end_pass(&mut device).expect("it is open");
        let wait = profiler.start("DeviceWait");
        timer.settle(&mut device, true).expect("it is there");
        profiler.stop(wait, 0);
        profiler.end_pass(pass, 1, position);
    }
    timer.finish(&mut device).expect("it is there");
    profiler.profile()
}

/// Host and device each number their passes themselves.
#[test]
fn spans_of_a_device_are_drawn_in_the_pass_that_issued_them() {
    let mut profile = on_a_device();
    // As if the host had run another pass before, without the device.
    for pass in &mut profile.passes {
        pass.serial += 1;
    }
    for span in &mut profile.spans {
        span.pass = span.pass.map(|pass| pass + 1);
    }
    let drawn = |profile: &Profile| {
        let page = page(profile);
        let data: serde_json::Value = serde_json::from_str(data(&page)).expect("JSON");
        let diagrams = data["timelines"].as_array().expect("timelines");
        let starts = diagrams.iter().flat_map(|diagram| {
            let pass = &profile.passes[diagram["pass"].as_u64().expect("a pass") as usize];
            let tracks = diagram["tracks"].as_array().expect("tracks").iter();
            let on_device = tracks.filter(|track| track["base"] != "");
            let rows = on_device.flat_map(|track| track["rows"].as_array().expect("rows"));
            let within = |row: &serde_json::Value| {
                let start = row[4].as_i64().expect("a start");
                (0..pass.wall_ns as i64).contains(&start)
            };
            rows.map(within).collect::<Vec<_>>()
        });
        (starts.collect::<Vec<bool>>(), html_of(&page, "timeline").to_owned())
    };
    let (within, html) = drawn(&profile);
    assert!(!within.is_empty() && within.iter().all(|&within| within), "{within:?}");
    assert!(!html.contains("can’t be matched"));
    // Passes of a kind that the host has none of can't be matched.
    for pass in &mut profile.devices[0].streams[0].passes {
        pass.position += 100;
    }
    let (within, html) = drawn(&profile);
    assert!(within.is_empty(), "{within:?}");
    assert!(html.contains("can’t be matched"), "{html}");
}

#[test]
fn threads_that_wait_are_in_tables_of_their_own() {
    let mut profile = sample("moe");
    let add = |profile: &mut Profile, thread, brick: &str, worked_ns, waited_ns| {
        let share = Share { count: 12, worked_ns, waited_ns };
        let (phase, brick) = (Phase::Decode, brick.to_owned());
        profile.shares.push(ThreadShare { thread, phase, brick, share });
    };
    add(&mut profile, 0, HOSTILE, 900_000, 100_000);
    add(&mut profile, 0, "FlashAttention", 400_000, 10_000);
    let (page, _) = traced(&profile);
    assert!(!page.contains("id=\"threads\""), "one thread waits for nobody");
    add(&mut profile, 1, HOSTILE, 950_000, 50_000);
    add(&mut profile, 1, "FlashAttention", 0, 0);
    let (page, _) = traced(&profile);
    assert!(page.contains("Threads in decode"), "{page}");
    // 110 of 1 410 µs, by the sums over bricks.
    assert!(page.contains(">7.8 %<"), "{page}");
}

#[test]
fn a_measured_cost_is_shown_instead_of_an_estimate() {
    let mut profile = sample("moe");
    profile.overhead.span_ns = Some(31.5);
    let pairs: Vec<_> = (1..=20).map(|n| (f64::from(n), 1.0125 * f64::from(n))).collect();
    profile.overhead.measured = PairedRatio::new(&pairs).ok();
    let (page, _) = traced(&profile);
    let cost = cards(&page).into_iter().find(|[name, ..]| name == "Profiling cost");
    let [_, value, beside] = cost.expect("a card");
    assert_eq!(value, "+1.25 %");
    assert!(beside.starts_with("of a decode pass, measured"), "{beside}");
}

#[test]
fn what_an_imported_file_does_not_tell_is_no_zero() {
    use brickscope_formats::import::{Format, Options, read};
    let data = |name: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/import");
        std::fs::read_to_string(folder.join(name)).expect("it is there")
    };
    let passes = Options { decode: Some("model".to_owned()), ..Options::default() };
    let microseconds = Options {
        unit: Some(brickscope_formats::import::WeightUnit::Microseconds),
        ..Options::default()
    };
    for (file, format, options) in [
        ("llama-bench.json", Format::LlamaBench, Options::default()),
        ("candle.json", Format::Chrome, passes),
        ("vk-perf-logger.txt", Format::VkPerfLogger, Options::default()),
        ("forward-pass-metrics.jsonl", Format::ForwardPassMetrics, Options::default()),
        ("stacks.folded", Format::Folded, microseconds),
    ] {
        let profile = read(&data(file), file.as_ref(), format, &options).expect("it is read");
        let (page, _) = traced(&profile);
        assert!(!page.contains("spans recorded"), "{file}");
        for figure in page.split("value=0 ").skip(1) {
            let figure = figure.split("</").next().expect("there is one");
            let untold = ["/count", "tokens", "/position", "/layers", "_length", "/overhead/spans"];
            assert!(!untold.iter().any(|field| figure.contains(field)), "{file}: {figure}");
        }
        if format != Format::Chrome {
            assert!(!page.contains("too few spans"), "{file}");
        } else {
            assert!(section(&page, "timeline").contains("pass "), "{file}");
            assert!(!section(&page, "timeline").contains("at position"), "{file}");
        }
    }
}

/// Two ranks of which the second comes 50 µs late to each of eight collectives.
fn two_ranks() -> Profile {
    ranks_late([0, 50])
}

/// Two ranks that come so many microseconds late to each of eight collectives.
fn ranks_late([first, second]: [u32; 2]) -> Profile {
    use brickscope_formats::import::{Format, Options, join, read};
    let rank = |rank: u32, late: u32| {
        let mut events = Vec::new();
        for step in 0..4 {
            let begin = 1_000 * step;
            events.push(format!(
                "{{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#{step}\",\"pid\":1,\"tid\":1,\
                 \"ts\":{begin},\"dur\":900}}"
            ));
            for nth in 0..2 {
                let (at, call) = (begin + 20 + 400 * nth, 2 * step + nth + 1);
                events.push(format!(
                    "{{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,\
                     \"ts\":{at},\"dur\":5,\"args\":{{\"correlation\":{call}}}}}"
                ));
                events.push(format!(
                    "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllReduce_Sum_bf16_RING_LL\",\"pid\":0,\
                     \"tid\":7,\"ts\":{},\"dur\":{},\"args\":{{\"device\":0,\"stream\":7,\"correlation\":{call},\
                     \"Collective name\":\"allreduce\",\"Group size\":2,\"Process Group Name\":\"0\",\"Seq\":{call}}}}}",
                    at + 10 + late,
                    200 - late
                ));
            }
        }
        let text = format!(
            "{{\"schemaVersion\":1,\"distributedInfo\":{{\"backend\":\"nccl\",\"rank\":{rank},\"world_size\":2}},\n\
             \"traceEvents\":[\n{}\n]}}",
            events.join(",\n")
        );
        let path = std::path::PathBuf::from(format!("rank{rank}.json"));
        let profile = read(&text, &path, Format::Chrome, &Options::default());
        (path, profile.expect("it is a trace"))
    };
    join(vec![rank(0, first), rank(1, second)]).expect("two ranks")
}

#[test]
fn ranks_are_told_with_who_comes_last_and_how_their_clocks_lie() {
    let (page, _) = traced(&two_ranks());
    for said in [
        "ranks 2 of 2: rank 1 is the straggler: the others wait 100 µs a pass for it (8 of 8 collectives)",
        "rank 1: rank1.json; 8 of 8 collectives found on other ranks, by their numbers",
        "its clock is that of rank 0, within 0 ns",
    ] {
        assert!(page.contains(said), "{said}");
    }
}

pub(crate) fn page(profile: &Profile) -> String {
    let run = Run { name: "runs/today".to_owned(), profile, receipt: None };
    let mut done = 0;
    let page = of_run(&run, &mut || done += 1);
    assert_eq!(done, steps(profile), "progress ends where it was said to");
    page
}

/// The page, after checking each of its numbers against the file, and their number.
#[track_caller]
fn traced(profile: &Profile) -> (String, usize) {
    let page = page(profile);
    // What is left out of the page is left out of the JSON that its numbers are in.
    let shown = brickscope_analysis::typical::shown(profile);
    let mut files = Files::of(&shown.to_json(), &["runs/today"]);
    files.hear(profile);
    let numbers = check(&page, &mut files);
    (page, numbers)
}

/// What the page's script draws.
fn data(page: &str) -> &str {
    let (_, data) = page.split_once("id=\"data\">").expect("a script of data");
    data.split("</script>").next().expect("it ends")
}

/// The HTML of one section.
fn html_of<'p>(page: &'p str, id: &str) -> &'p str {
    let start = page.find(&format!("<section id=\"{id}\"")).expect("a section");
    page[start..].split("</section>").next().expect("it ends")
}

/// The text of one section.
fn section(page: &str, id: &str) -> String {
    let mut found = None;
    walk(page, |around, text, ends| {
        if ends && around.last().is_some_and(|e| e.name == "section" && e.get("id") == Some(id)) {
            found = Some(text.to_owned());
        }
    });
    found.unwrap_or_else(|| panic!("no section {id}"))
}

/// A server: thirty requests, of which the tenth has a long prompt, beside which the others decode.
fn served() -> Profile {
    let hand = brickscope::MockClock::default();
    let profiler = brickscope::BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let requests = profiler.requests();
    for nth in 0..30 {
        let request = requests.arrive(&format!("<{nth}>"));
        hand.advance(40);
        requests.admit(request);
        for token in 0..4 {
            let part = match token {
                0 => brickscope::Part::prompt(request, 9, 0),
                _ => brickscope::Part::decode(request, 8 + token),
            };
            let pass = profiler.begin_pass_of(&[part]);
            hand.advance(if nth == 10 && token == 0 { 9_000 } else { 1_000 });
            profiler.end_pass(pass, 1, token);
            requests.token(request);
        }
        requests.end(request, brickscope::Ending::Length);
    }
    profiler.profile()
}

#[test]
fn a_page_of_a_server_says_how_long_who_asked_waited() {
    let profile = served();
    let (page, numbers) = traced(&profile);
    assert!(numbers > 10);
    let text = section(&page, "requests");
    assert!(text.contains("Requests: 30: length 30."), "{text}");
    assert!(text.contains("1 of 30 first tokens took at least 2 times the median"), "{text}");
    assert!(text.contains("its own passes 1"), "{text}");
    // The queue, up to the first token and up to the end, for each; and the passes.
    assert_eq!(html_of(&page, "requests").matches("<rect").count(), 30 * 3 + 120);
    // A run without requests has no such section.
    assert!(!page_of_no_requests().contains("<section id=\"requests\""));
}

fn page_of_no_requests() -> String {
    page(&sample("moe"))
}

#[test]
fn layers_and_flames_are_of_the_passes_that_tables_are_of() {
    let mut profile = sample("moe");
    let mut decoded = profile.passes.iter_mut().filter(|pass| pass.phase == Phase::Decode);
    let pass = decoded.next().expect("sixty");
    pass.disturbance = Some(brickscope::Disturbance {
        passes: 1,
        wall_ns: pass.wall_ns,
        longest_wait_ns: Some(50_000_000),
        run_queue_wait_ns: Some(50_000_000),
        own_wait_ns: Some(0),
        ..brickscope::Disturbance::default()
    });
    let shown = brickscope_analysis::typical::shown(&profile).into_owned();
    let kept = shown.phase(Phase::Decode).expect("passes").passes;
    assert!(kept < 60, "{kept}");
    let (page, _) = traced(&profile);
    // As many spans of the first layer as passes in the tables.
    let flame = html_of(&page, "flame");
    assert!(flame.contains(&format!("value={kept} ")), "{flame}");
    assert!(!flame.contains("value=60 "), "{flame}");
    assert!(section(&page, "layers").contains("summed over the passes that the tables are of"));
}

#[test]
fn every_number_of_a_page_is_in_the_file() {
    let (page, numbers) = traced(&sample("moe"));
    assert!(numbers > 700, "{numbers}");
    for (id, has) in [
        ("findings", "predicted"),
        ("bricks", "QkvProjection"),
        ("layers", "moe"),
        ("timeline", "Decode, slowest"),
        ("flame", "All frames"),
        ("roofline", "the two limits meet at"),
        ("path", "QkvProjection › q8_0_gemv_avx2"),
        ("transfers", "Copies that undo each other"),
        ("tokens", "Bricks behind the slow tokens"),
        ("tiles", "Imbalance of 2 products: the slowest thread took 13.0 % longer"),
        ("machine", "A Processor 9000"),
    ] {
        let text = section(&page, id);
        assert!(text.contains(has), "{id}: {text}");
    }
    assert_eq!(sections(&page).len(), 11, "without devices and receipt");
}

/// The sections of a page, after checking that the contents list them.
fn sections(page: &str) -> Vec<String> {
    let of = |start: &str| -> Vec<String> {
        let ids = page.split(start).skip(1);
        ids.map(|rest| rest.split('"').next().expect("an end").to_owned()).collect()
    };
    let sections = of("<section id=\"");
    assert_eq!(of("<li><a href=\"#"), sections, "the contents are the sections");
    sections
}

/// The cards at the top: what, how much, and what stands beside it.
fn cards(page: &str) -> Vec<[String; 3]> {
    let mut cards: Vec<Vec<String>> = Vec::new();
    walk(page, |around, text, ends| {
        let is_in_card = around.iter().any(|element| element.get("class") == Some("card"));
        match around.last().map(|element| element.name.as_str()) {
            Some("dt") if ends && is_in_card => cards.push(vec![text.to_owned()]),
            Some("dd") if ends && is_in_card => {
                cards.last_mut().expect("a card").push(text.to_owned());
            }
            _ => {}
        }
    });
    cards.into_iter().map(|card| card.try_into().expect("three texts")).collect()
}

fn names_of(cards: &[[String; 3]]) -> Vec<&str> {
    cards.iter().map(|[name, ..]| name.as_str()).collect()
}

#[test]
fn the_cards_say_how_fast_what_bounds_it_and_how_sure_that_is() {
    let mut profile = sample("moe");
    for total in &mut profile.phases {
        total.unwatched = Some(0);
    }
    profile.overhead.span_ns = Some(31.5);
    let (page, _) = traced(&profile);
    let cards = cards(&page);
    assert_eq!(
        names_of(&cards),
        [
            "Decode",
            "Prefill",
            "Limit of decode",
            "Limit of prefill",
            "Token, p50",
            "Passes left out",
            "Profiling cost",
            "Unattributed"
        ]
    );
    let of = |name: &str| cards.iter().find(|[of, ..]| of == name).expect("a card").clone();
    assert!(of("Decode")[1].ends_with(" tokens/s"), "{cards:?}");
    // What the headline says, of the same roofline.
    let [_, by, how] = of("Limit of decode");
    let headline = brickscope_analysis::view::headline(&profile);
    assert_eq!((by.as_str(), &how[..26]), ("compute", "far from the compute roof:"), "{headline}");
    assert!(headline.contains(&how), "{headline}");
    assert_eq!(of("Passes left out")[1], "none");
    assert!(of("Unattributed")[2].ends_with(" of decode"), "{cards:?}");
    // What isn't known is not said to be none.
    profile.phases[0].unwatched = None;
    let (page, _) = traced(&profile);
    assert!(!names_of(&self::cards(&page)).contains(&"Passes left out"));
    profile.ceilings = None;
    profile.ceilings_absent = Some(Absent { reason: "no time was given to it".to_owned() });
    let (page, _) = traced(&profile);
    let cards = self::cards(&page);
    let bound = cards.iter().find(|[name, ..]| name == "Limit of decode").expect("a card");
    assert_eq!(bound[1], "unknown");
    assert!(bound[2].contains("no time was given to it"), "{bound:?}");
    // Of a run on a device the host can't tell what bounds it.
    let (page, _) = traced(&on_a_device());
    let cards = self::cards(&page);
    assert!(names_of(&cards).iter().all(|name| !name.contains("Limit")), "{cards:?}");
}

#[test]
fn tiles_that_are_not_known_are_not_shown_as_numbers() {
    let mut profile = sample("moe");
    // Without FLOPs; with a level that no thread names; without any.
    let mut without = TileStats::new(TileLevel::Macro);
    without.add_sample(70_001, 768, 0);
    profile.tiles = vec![without.clone(), TileStats::new(TileLevel::Micro)];
    let thread = TileThread { tiles: vec![without], ..profile.tile_threads[1].clone() };
    profile.tile_threads = vec![thread; 40];
    profile.dropped.left_out_passes = 1;
    let balance = profile.tile_balance.as_mut().expect("a balance");
    balance.worked_ns = balance.offered_ns + 1;
    let (page, _) = traced(&profile);
    let text = section(&page, "tiles");
    for says in [
        "macro170.0 70.0-70.070.0",
        "micro0-0.0---",
        "no name70.0---",
        "Further threads are left out.",
        "No midi tiles: the code that ran reported none.",
        "Tiles of all passes: they are only summed",
        "unknown, since other shares were timed too.",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        assert!(squeezed(&text).contains(&squeezed(says)), "{says}: {text}");
    }
    assert_eq!(text.matches("no name").count(), 32);

    profile.tile_balance.as_mut().expect("a balance").worked_ns = 0;
    profile.tiles = vec![TileStats::new(TileLevel::Macro); 100];
    let (page, _) = traced(&profile);
    let text = section(&page, "tiles");
    assert!(text.contains("unknown, since no share took any time."), "{text}");
    assert_eq!(text.matches("macro").count(), 60 + 2, "and the headings");
}

#[test]
fn a_number_that_is_not_in_the_file_is_found() {
    let profile = sample("moe");
    let page = page(&profile);
    let json = profile.to_json();
    let holds = |page: &str| {
        let page = page.to_owned();
        let json = json.clone();
        std::panic::catch_unwind(move || check(&page, &mut Files::of(&json, &["runs/today"])))
            .is_ok()
    };
    assert!(holds(&page));
    let wall = profile.phases[1].wall_ns;
    // A value, its shown text, a place, a bare number, and a number in a diagram.
    let wrong = page.replacen(&format!("value={wall}"), &format!("value={}", wall + 1), 1);
    assert!(!holds(&wrong));
    assert!(!holds(&page.replacen("/phases/1/wall_ns", "/phases/0/wall_ns", 1)));
    assert!(!holds(&page.replacen("<h2 ", "<p>some 7 of them</p><h2 ", 1)));
    assert!(!holds(&page.replacen("QkvProjection</span>", "QkvProjection2</span>", 1)));
    let shown =
        page.find("/phases/1/wall_ns'>").map(|at| at + "/phases/1/wall_ns'>".len()).unwrap();
    let digit = if &page[shown..=shown] == "9" { "8" } else { "9" };
    assert!(!holds(&format!("{}{digit}{}", &page[..shown], &page[shown + 1..])));
    let rows = page.find("\"rows\":[[").map(|at| at + "\"rows\":[[".len()).unwrap();
    assert!(!holds(&format!("{}1{}", &page[..rows], &page[rows..])));
}

#[test]
fn a_receipt_is_held_to_its_file_too() {
    let text = include_str!("../../../tests/data/receipt-v1.json");
    let receipt: brickscope_analysis::receipt::Receipt =
        serde_json::from_str(text).expect("a receipt");
    let profile = sample("moe");
    let run = Run { name: "runs/today".to_owned(), profile: &profile, receipt: Some(&receipt) };
    let page = of_run(&run, &mut || ());
    let mut files = Files::of(&profile.to_json(), &["runs/today"]);
    files.receipt = serde_json::from_str(text).expect("JSON");
    check(&page, &mut files);
    let section = section(&page, "receipt");
    assert!(section.contains("its seal is intact"), "{section}");
    assert!(section.contains(&receipt.tests[0].name), "{section}");
}

/// Replaces some numbers of a file by impossible ones.
fn disturbed(value: &mut serde_json::Value, at: &mut impl FnMut() -> Option<u64>) {
    match value {
        serde_json::Value::Number(number) if number.is_u64() => {
            if let Some(other) = at() {
                *number = other.into();
            }
        }
        serde_json::Value::Array(values) => {
            values.iter_mut().for_each(|value| disturbed(value, at))
        }
        serde_json::Value::Object(values) => {
            values.values_mut().for_each(|value| disturbed(value, at))
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(brickscope_testing::cases(24))]

    #[test]
    fn whatever_the_numbers_are_the_page_is_whole(
        places in prop::collection::hash_map(
            0_usize..4_000,
            prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX - 1), 0_u64..300, any::<u64>()],
            1..200,
        ),
    ) {
        let mut value = serde_json::to_value(sample("moe")).expect("JSON");
        let mut nth = 0;
        disturbed(&mut value, &mut || {
            nth += 1;
            places.get(&nth).copied()
        });
        // Most numbers are accepted, whatever they are; otherwise the file is refused.
        if let Ok(profile) = serde_json::from_value::<Profile>(value) {
            walk(&page(&profile), |_, text, _| assert!(!text.contains("NaN") && !text.contains("inf ")));
        }
    }
}

#[test]
fn the_same_run_is_the_same_page() {
    let profile = sample("moe");
    let again = Profile::from_json(&profile.to_json(), "profile.json".as_ref()).unwrap();
    assert_eq!(page(&profile), page(&again));
}

#[test]
fn names_stay_names() {
    let mut profile = sample(HOSTILE);
    profile.lanes[0].name = Some(HOSTILE.to_owned());
    profile.names[0].name = HOSTILE.repeat(10_000);
    let (page, _) = traced(&profile);
    assert!(page.len() < 2 << 20, "{}", page.len());
    // Exactly two scripts: the data and ours.
    assert_eq!(page.matches("<script").count(), 2);
    assert!(!page.contains("hacked()</script>"));
    assert!(!page.contains('\u{202e}') && !page.contains('\u{0}'));
    // No inserted text was expanded again.
    assert!(page.contains("{{title}}"));
}

/// Each text of a file in turn, among them those that no other test makes hostile.
#[test]
fn no_text_of_a_file_controls_forges_or_floods_a_page() {
    let mut on_host = sample("moe");
    // Enough for each section, and fast enough for each text.
    on_host.passes.truncate(4);
    on_host.spans.retain(|span| span.pass.is_none_or(|pass| pass <= 4));
    for profile in [on_host, on_a_device()] {
        let honest = page(&profile).len();
        let value = serde_json::to_value(&profile).expect("JSON");
        let leaves = hostile::places(&value).into_iter();
        for place in leaves.filter(|place| matches!(place, hostile::Place::Leaf(_))) {
            let json = hostile::planted(&value, &place, &hostile::flood(20_000)).to_string();
            let Ok(profile) = Profile::from_json(&json, "x".as_ref()) else { continue };
            let page = page(&profile);
            assert_eq!(hostile::forbidden(&page), None, "{place:?}");
            assert!(page.lines().all(|line| !line.starts_with("FORGED")), "{place:?}");
            assert!(page.len() < honest + 200_000, "{place:?}: {} of {honest}", page.len());
            assert_eq!(page.matches("<script").count(), 2, "{place:?}");
        }
    }
}

#[test]
fn nothing_is_loaded_and_nothing_inline_is_needed() {
    let page = page(&sample("moe"));
    let policy = "default-src 'none'; style-src 'sha256-";
    assert!(page.contains(policy));
    walk(&page, |around, _, _| {
        for element in around {
            for (name, value) in &element.attributes {
                assert!(!name.starts_with("on") && name != "style" && name != "src", "{element:?}");
                assert!(name != "href" || value.starts_with('#'), "{element:?}");
            }
        }
    });
    // The only URL is the namespace of SVG, in our script.
    assert_eq!(page.matches("http").count() - page.matches("http-equiv").count(), 1);
}

#[test]
fn sections_with_nothing_to_show_are_not_on_the_page() {
    let (page, numbers) = traced(&Profile::empty(Default::default()));
    assert!(numbers < 5, "{numbers}");
    assert_eq!(sections(&page), ["machine"]);
    assert!(section(&page, "machine").contains("The machine is not recorded."));
    assert!(page.contains("No pass was recorded, so there is no wall time to attribute."));
}

#[test]
fn what_slows_the_run_down_comes_first_with_its_evidence_and_a_test() {
    let mut profile = sample("moe");
    profile.imported = None;
    let (page, _) = traced(&profile);
    assert_eq!(sections(&page)[0], "findings");
    let first = &Findings::of(&profile).found[0];
    let text = section(&page, "findings");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    let mut before = at(&first.what);
    for part in ["predicted", &first.prediction(), "evidence", &first.evidence[0].place, "do"] {
        let next = before + text[before..].find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        before = next;
    }
    assert!(at("refuted if") < at("Not known"), "{text}");
    assert!(text.contains("is faster is not known"), "{text}");
    // The names of bricks in it stay names.
    let (page, _) = traced(&sample(HOSTILE));
    assert!(!html_of(&page, "findings").contains("<script"));
}

#[test]
fn a_run_that_no_rule_can_look_at_says_so() {
    let mut profile = on_a_device();
    profile.sync_mode = brickscope::SyncMode::Immediate;
    let (page, _) = traced(&profile);
    let text = section(&page, "findings");
    assert!(text.contains("No rule could look at this run."), "{text}");
    assert!(text.contains("the gaps are the profiler's"), "{text}");
}

#[test]
fn a_profile_without_spans_has_its_tables() {
    let mut profile = sample("moe");
    profile.spans.clear();
    let (page, _) = traced(&profile);
    assert!(section(&page, "bricks").contains("QkvProjection"));
    // One line says what is missing, and why.
    assert!(section(&page, "timeline").contains("No spans of passes were kept, so there is no"));
    let listed = sections(&page);
    for missing in ["layers", "flame"] {
        assert!(!listed.iter().any(|id| id == missing), "{missing}: {listed:?}");
    }
    // With sums by layer there is a heat map.
    profile.layers = vec![LayerBrick {
        phase: Some(Phase::Decode),
        layer: Some(2),
        name: "QkvProjection".to_owned(),
        count: 60,
        total_ns: 7_000_000,
        exclusive_ns: 7_000_000,
    }];
    let (page, _) = traced(&profile);
    assert!(section(&page, "layers").contains("7000.0"), "{}", section(&page, "layers"));
}

#[test]
fn a_run_on_a_device_has_its_streams_and_its_host() {
    let mut profile = on_a_device();
    profile.devices[0].ceilings = Some(Ceilings {
        read_bytes_per_second: 4e12,
        flops_per_second: 6e13,
        caches: vec![CacheCeiling {
            level: "L2".to_owned(),
            bytes: 50 << 20,
            read_bytes_per_second: 7e12,
        }],
        basis: "measured before the run: a device".to_owned(),
        ..Ceilings::default()
    });
    let (page, _) = traced(&profile);
    let bricks = section(&page, "bricks");
    assert!(bricks.contains("LmHead") && bricks.contains("gaps") && bricks.contains("DeviceWait"));
    let devices = section(&page, "devices");
    assert!(devices.contains("cost of a mark") && devices.contains("reads from memory"));
    let roofline = section(&page, "roofline");
    assert!(
        roofline.contains("Roofline of decode") && roofline.contains("4000 GB/s"),
        "{roofline}"
    );
    // One timeline has the host's thread and the stream.
    let timeline = section(&page, "timeline");
    assert!(timeline.contains("LmHead") && timeline.contains("DeviceWait"), "{timeline}");
}

/// As whisper.cpp's runs have them.
#[test]
fn passes_that_encode_have_a_card_and_frames() {
    let mut profile = sample("moe");
    let is_prompt = |phase: &Phase| *phase == Phase::Prefill;
    let passes = profile.passes.iter_mut().filter(|pass| is_prompt(&pass.phase));
    passes.for_each(|pass| (pass.phase, pass.tokens) = (Phase::Encode, 0));
    let sums = profile.phases.iter_mut().filter(|sum| is_prompt(&sum.phase));
    sums.for_each(|sum| (sum.phase, sum.tokens) = (Phase::Encode, 0));
    for total in profile.totals.iter_mut().filter(|total| total.phase == Some(Phase::Prefill)) {
        total.phase = Some(Phase::Encode);
    }
    profile.check().expect("it adds up");
    let (page, _) = traced(&profile);
    assert!(page.contains("Encode") && page.contains("how many tokens they had isn’t known"));
    assert!(!page.contains("Prefill"));
}

#[test]
fn what_was_imported_says_so_at_the_top_and_what_it_lacks() {
    let mut profile = sample("moe");
    profile.imported = Some(Imported {
        format: "chrome".to_owned(),
        file: "trace-9.json".to_owned(),
        program: Some("candle 0.9".to_owned()),
        lacks: vec![Absent { reason: "no FLOPs: the format has no field for them".to_owned() }],
        left_out: vec![("events that are no durations".to_owned(), 12)],
        doubts: vec!["2 of 9 launches have no kernel".to_owned()],
        conditions: vec![("n_threads".to_owned(), "2".to_owned())],
        samples: vec![FunctionSamples { name: "ggml_vec_dot".to_owned(), own: 70, total: 90 }],
        tests: Vec::new(),
        ..Imported::default()
    });
    let (page, _) = traced(&profile);
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(at("class=\"headline\"") < at("<strong>Imported</strong>"));
    assert!(at("<strong>Imported</strong>") < at("no FLOPs: the format has no field for them"));
    assert!(at("events that are no durations") < at("</header>"));
    assert!(section(&page, "bricks").contains("ggml_vec_dot"));
    assert!(section(&page, "machine").contains("n_threads"));
}

#[test]
fn files_of_other_programs_have_reports() {
    use brickscope_formats::import::{Format, Options, WeightUnit, read};
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import");
    for name in
        ["candle.json", "torch.json", "llama-bench.json", "vk-perf-logger.txt", "stacks.folded"]
    {
        let text = std::fs::read_to_string(format!("{folder}/{name}")).expect("a file");
        let format = brickscope_formats::import::format_of(&text).expect("a format");
        let unit = (format == Format::Folded).then_some(WeightUnit::Samples);
        let options = Options { unit, ..Options::default() };
        let profile = read(&text, name.as_ref(), format, &options).expect("it is read");
        let (page, _) = traced(&profile);
        assert!(page.contains("<strong>Imported</strong>"), "{name}");
        assert!(!page.contains("NaN"), "{name}");
    }
}

#[test]
fn a_sweep_of_tests_without_passes_has_a_table_of_them() {
    use brickscope_formats::import::{Format, Options, read};
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import/llama-bench.json");
    let text = std::fs::read_to_string(file).expect("a file");
    let mut rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
    for nth in 0..rows.len() {
        let mut deep = rows[nth].clone();
        deep["n_depth"] = 8192.into();
        rows.push(deep);
    }
    let text = serde_json::Value::from(rows).to_string();
    let profile = read(&text, "sweep.json".as_ref(), Format::LlamaBench, &Options::default());
    let profile = profile.expect("it is read");
    let (page, _) = traced(&profile);
    let tests = brickscope_analysis::rate::imported_tests(&profile);
    assert_eq!(tests.len(), 4);
    for test in tests {
        assert!(test.rate.contains(" ± "), "{test:?}");
        for part in [test.name, test.rate, test.how] {
            assert!(page.contains(&part), "{part}");
        }
    }
    assert!(!page.contains("there are no figures"));
    // In words, too.
    let decode = brickscope_analysis::explain::find("decode")[0].in_run(&profile).sections;
    assert_eq!(decode.len(), 2, "{decode:?}");
    assert!(decode[0].text.contains(" tok/s, "), "{decode:?}");
}

#[test]
fn a_stall_has_a_line_and_the_figures_are_of_the_other_passes() {
    let hand = brickscope::MockClock::default();
    let profiler = brickscope::BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for nth in 0..20 {
        let pass = profiler.begin_pass(Phase::Decode);
        for (brick, nanos) in [(BrickId::RmsNorm, 50_000), (BrickId::LmHead, 1_000_000)] {
            let timer = profiler.start_brick(brick);
            let is_stall = nth == 12 && brick == BrickId::RmsNorm;
            hand.advance(if is_stall { 90_000_000 } else { nanos });
            profiler.stop_brick(timer, 1);
        }
        profiler.end_pass(pass, 1, nth);
    }
    // Passes that warmed up are no reason to doubt what else is said.
    let mut warmed = profiler.profile();
    (warmed.dropped.left_out_passes, warmed.dropped.warm_up_passes) = (3, 3);
    let (page, _) = traced(&warmed);
    let stall = page.find("left out of the tables: 1 of 20");
    let warm_up = page.find("since they warm up: 3");
    assert!(stall.is_some() && stall < warm_up, "{page}");
    let (page, _) = traced(&profiler.profile());
    assert!(page.contains("left out of the tables: 1 of 20 passes of decode"), "{page}");
    assert!(page.contains("stall: RmsNorm took 90.000 ms, 1800 times its median"), "{page}");
    assert!(page.contains("LmHead takes the most time, 95.2%"), "{page}");
    let [_, n, why] =
        cards(&page).into_iter().find(|card| card[0] == "Passes left out").expect("it");
    assert_eq!((n.as_str(), why.as_str()), ("1", "1 with a stall"));
    assert!(page.contains("<strong>Warnings</strong>"));
    let bricks = section(&page, "bricks");
    assert!(bricks.find("LmHead") < bricks.find("RmsNorm"), "{bricks}");
}

#[test]
fn the_answer_is_first_then_what_to_do_the_figures_and_a_line_of_warnings() {
    let mut profile = sample("moe");
    profile.dropped.spans = 12;
    let (page, _) = traced(&profile);
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    let next = format!(
        "<p class=\"next\"><strong>Next</strong> <span data-text=\"library\">{}</span>",
        [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")]
            .into_iter()
            .fold(view::next_step(&profile), |text, (of, with)| text.replace(of, with))
    );
    let order = [
        "class=\"headline\"",
        &next,
        "<dl class=\"cards\">",
        "<details class=\"banner warn\"><summary><strong>Warnings</strong>",
        "spans that did not fit the log: 12",
        "</summary>",
        "</details>",
        "</header>",
    ];
    let places = order.map(at);
    assert!(places.is_sorted(), "{places:?}");
    // Of nothing there is no next step.
    let (page, _) = traced(&Profile::empty(Default::default()));
    assert!(!page.contains("class=\"next\""));
}

#[test]
fn logits_that_are_no_numbers_are_said_before_anything_else() {
    for tensor in ["blk.3.ffn_gate.weight", HOSTILE] {
        let mut profile = sample("moe");
        profile.dropped.spans = 12;
        let tensor = tensor.to_owned();
        let began = Began::Weights { tensor, is_nan: true, bad: 1, of: 589_824, more_tensors: 2 };
        profile.not_finite = Some(NotFinite { passes: 64, of: 65, began: Some(began) });
        let (page, _) = traced(&profile);
        let said = page.find("Not a number: the logits of 64 of 65 passes").expect("it is said");
        assert!(said < page.find("spans that did not fit the log: 12").unwrap());
        assert!(said < page.find("class=\"next\"").unwrap(), "the headline says it");
        assert!(!page.contains("<script>hacked"));
    }
}

/// A huge number of spans, in one pass with one brick and two hundred layers.
fn of_spans(spans: u32) -> Profile {
    let mut profile = Profile::empty(Default::default());
    profile.lanes.push(Lane { name: None, tid: None });
    profile.names.extend(["moe", "gemv"].map(|name| Name {
        name: name.to_owned(),
        kind: if name == "moe" { NameKind::Brick } else { NameKind::Kernel },
        category: None,
        host: None,
        device: None,
        transfer: None,
    }));
    let wall_ns = u64::from(spans) * 10;
    profile.spans = (0..spans)
        .map(|index| Span {
            name: Some((index % 2) as u16),
            source: Source::Host,
            lane: 0,
            pass: Some(1),
            layer: Some((index / 2 % 200) as u16),
            parent: (index % 2 == 1).then(|| index - 1),
            start_ns: u64::from(index) * 10,
            duration_ns: if index % 2 == 0 { 20 } else { 10 },
            exclusive_ns: if index % 2 == 0 { 20 } else { 0 },
            work: Work::default(),
        })
        .collect();
    let attributed_ns = u64::from(spans / 2) * 20;
    let unattributed_ns = wall_ns - attributed_ns;
    let (tokens, passes, disturbed) = (1, 1, 0);
    let phase = Phase::Decode;
    profile.phases.push(PhaseTotal {
        phase,
        passes,
        disturbed,
        unwatched: None,
        tokens,
        wall_ns,
        attributed_ns,
        unattributed_ns,
    });
    profile.passes.push(Pass {
        serial: 1,
        phase,
        lane: 0,
        tokens,
        position: 0,
        start_ns: 0,
        wall_ns,
        attributed_ns,
        unattributed_ns,
        disturbance: None,
        is_left_out: false,
    });
    profile
}

#[test]
fn a_page_does_not_grow_with_the_spans() {
    let small = page(&of_spans(20_000)).len();
    let large = page(&of_spans(1_000_000)).len();
    assert!(large < small + small / 10, "{small} and {large} bytes");
    assert!(large < 3 << 20, "{large} bytes");
}

#[test]
fn two_runs_lie_side_by_side_and_one_each_decides_nothing() {
    let (a, b) = (sample("moe"), slower("moe", 900));
    let side = |name: &str, profile: &Profile| Side {
        name: name.to_owned(),
        processes: vec![Process {
            doubts: ["built for tests", "2 CPUs", "3 CPUs"].map(str::to_owned).to_vec(),
            ..Process::from_profile(name, profile).expect("passes")
        }],
    };
    let options = Options { is_forced: true, ..Options::default() };
    let comparison = compare(&side("runs/a", &a), &side("runs/b", &b), &options);
    let comparison = comparison.map_err(|why| why.to_string());
    let (json_a, json_b) = (a.to_json(), b.to_json());
    let names = ["runs/a", "runs/b", "prefill", "decode"];
    let page = of_two(["runs/a", "runs/b"], &comparison, [&Ok(a), &Ok(b)]);
    let comparison = comparison.expect("it is made");
    let value = serde_json::to_value(&comparison).expect("JSON");
    let mut files = Files::of_two(&json_a, &json_b, value, &names);
    files.told.insert(brickscope_analysis::view::comparison_headline(&comparison));
    files.told.extend(brickscope_analysis::view::doubts(&comparison.a));
    assert!(check(&page, &mut files) > 100);
    assert!(page.contains("1 process: 2 to 3 CPUs"), "each kind of doubt once");
    assert!(page.contains("a typical pass on each side"), "one of several, or of one");
    assert!(page.contains("nconclusive"), "{page:.4000}");
    assert!(section(&page, "bricks").contains("QkvProjection"));
    assert!(section(&page, "figures").contains("tokens/s"));
    // Bars of both, and a map of where a token takes longer: in each layer of one brick alike.
    assert!(html_of(&page, "bricks").matches("class=\"c-side-b\"").count() > 4);
    let layers = html_of(&page, "layers");
    assert_eq!(layers.matches("<table").count(), 2, "{layers}");
    let decode = layers.split("</table>").next().expect("a table");
    let longer = decode.matches("<td class=\"n s12\">").count();
    assert_eq!((longer, decode.matches("<td class=\"n f0\">").count() > 3), (3, true), "{decode}");
    assert!(page.contains("one pass"), "a sample is a pass, not all of a prompt");
}

#[test]
fn a_brick_of_one_run_has_no_difference_and_a_log_that_was_full_no_picture() {
    let (a, mut b) = (sample("moe"), sample("elsewhere"));
    let of_two = |b: &Profile| {
        let why = "not compared".to_owned();
        let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(a.clone()), &Ok(b.clone())]);
        let mut files =
            Files::of_two(&a.to_json(), &b.to_json(), serde_json::Value::Null, &["a", "b"]);
        files.told.insert(why);
        (html_of(&page, "layers").to_owned(), check(&page, &mut files))
    };
    let (layers, n) = of_two(&b);
    assert!(n > 100, "{n}");
    // In three layers of two phases.
    let only =
        |side: &str| layers.matches(&format!("<td class=\"n none\">only {side}</td>")).count();
    assert_eq!((only("A"), only("B")), (6, 6));
    b.dropped.spans = 1;
    let (layers, _) = of_two(&b);
    assert!(layers.contains("of B did not fit the log") && !layers.contains("<table"), "{layers}");
}

#[test]
fn the_first_figure_of_a_trace_of_a_gpu_is_how_busy_the_gpu_was() {
    use brickscope_formats::import::{Format, Options, read};
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import/kineto-streams.json");
    let text = std::fs::read_to_string(file).expect("a file");
    let profile = read(&text, file.as_ref(), Format::Chrome, &Options::default()).expect("read");
    let (page, _) = traced(&profile);
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part}"));
    assert!(at("<dt>Decode, the device busy</dt>") < at("<dt>Decode on the host</dt>"));
    assert!(
        !page.contains("<dt>Unattributed</dt>") && page.contains("<dt>Unattributed on the host")
    );
}

/// The streams of this trace run at once, so neither alone has what the first screen says.
#[test]
fn two_traces_of_gpus_are_side_by_side_by_what_the_gpus_did() {
    use brickscope_formats::import::{Format, Options, read};
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import/kineto-streams.json");
    let text = std::fs::read_to_string(file).expect("a file");
    let of =
        |text: &str| read(text, file.as_ref(), Format::Chrome, &Options::default()).expect("read");
    let (a, b) = (of(&text), of(&text.replace("\"dur\":400,", "\"dur\":410,")));
    let why = "not compared".to_owned();
    let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(a.clone()), &Ok(b.clone())]);
    let mut files = Files::of_two(&a.to_json(), &b.to_json(), serde_json::Value::Null, &["a", "b"]);
    files.told.insert(why);
    assert!(check(&page, &mut files) > 20);
    let bricks = section(&page, "bricks");
    for said in ["AllReduce", "MatMul", "gaps", "a device", "200.0", "205.0", "795.0"] {
        assert!(bricks.contains(said), "{said}: {bricks:.3000}");
    }
    // What the host did is in the report of one run.
    assert!(!bricks.contains("Launch") && !bricks.contains("unattributed"), "{bricks:.3000}");
}

/// The host of such a run only waits.
#[test]
fn runs_on_a_device_are_side_by_side_by_its_clock() {
    let why = "not compared".to_owned();
    let profile = on_a_device();
    let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(profile.clone()), &Ok(profile.clone())]);
    let json = profile.to_json();
    let mut files = Files::of_two(&json, &json, serde_json::Value::Null, &["a", "b", "A", "B"]);
    files.told.insert(why);
    assert!(check(&page, &mut files) > 10);
    let bricks = section(&page, "bricks");
    assert!(bricks.contains("LmHead") && bricks.contains(" a token"), "{bricks:.3000}");
    assert!(!bricks.contains("DeviceWait"), "{bricks:.3000}");
}

#[test]
fn traces_without_tokens_are_side_by_side_by_pass() {
    use brickscope_formats::import::{Format, Options, read};
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import/kineto-training.json");
    let text = std::fs::read_to_string(file).expect("a file");
    let profile = read(&text, file.as_ref(), Format::Chrome, &Options::default()).expect("read");
    assert!(profile.phases.iter().all(|of| of.tokens == 0), "{:?}", profile.phases);
    let why = "they differ in\n  rank: 0 and 1\nany of these".to_owned();
    let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(profile.clone()), &Ok(profile.clone())]);
    let json = profile.to_json();
    let mut files = Files::of_two(&json, &json, serde_json::Value::Null, &["a", "b"]);
    files.told.extend(why.lines().map(|line| line.trim().to_owned()));
    assert!(check(&page, &mut files) > 20);
    let bricks = section(&page, "bricks");
    assert!(bricks.contains(" a pass") && bricks.contains("Training"), "{bricks:.2000}");
    assert!(!page.contains("\\n"), "lines are lines");
}

#[test]
fn ranks_of_two_runs_are_side_by_side_also_where_there_is_no_verdict() {
    let why = "not compared".to_owned();
    let page_of = |a: &Profile, b: &Profile| {
        let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(a.clone()), &Ok(b.clone())]);
        let names = ["a", "b", "A", "B"];
        let mut files = Files::of_two(&a.to_json(), &b.to_json(), serde_json::Value::Null, &names);
        files.told.insert(why.clone());
        let runs = [a, b].map(RanksOfRun::of);
        let change = RanksChange::of_runs(runs[0].as_ref(), runs[1].as_ref());
        files.told.extend(change.iter().flat_map(view::ranks_compared_in_words));
        check(&page, &mut files);
        page
    };
    let ranks = section(&page_of(&two_ranks(), &ranks_late([50, 0])), "ranks");
    for said in [
        "Ranks: 2 in each; one run each, no verdict",
        "another straggler: rank 1 in A (the others wait 100 µs a pass for it), rank 0 in B",
        "+400.0",
        "−400.0",
        // All of them, of 150 µs each.
        "1200.0",
        "1.00",
    ] {
        assert!(ranks.contains(said), "{said}: {ranks}");
    }
    let alone = section(&page_of(&two_ranks(), &sample("moe")), "ranks");
    assert!(alone.contains("only A has several (2), and B is of one"), "{alone}");
    let without = page_of(&sample("moe"), &sample("elsewhere"));
    assert!(!without.contains("<section id=\"ranks\""));
}

#[test]
fn two_runs_that_can_not_be_compared_say_why_and_are_shown_all_the_same() {
    let (a, b) = (sample("moe"), Profile::empty(Default::default()));
    let why = "these runs can't be compared".to_owned();
    let page = of_two(["runs/a", "runs/b"], &Err(why.clone()), [&Ok(a), &Ok(b)]);
    assert!(page.contains("No verdict.") && page.contains("can&#39;t be compared"), "{page:.3000}");
    assert!(section(&page, "figures").contains("tokens/s"));
    let page =
        of_two(["a", "b"], &Err(why), [&Err("no profile".to_owned()), &Err("none".to_owned())]);
    assert!(section(&page, "figures").contains("no profile"));
}
