//! Tests of pages of one run.

use brickscope::{
    Absent, Began, BrickId, CacheCeiling, Ceilings, LayerBrick, NotFinite, PairedRatio, Phase,
    Profile, Share, ThreadShare, TileLevel, TileStats, TileThread,
};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::view;

use brickscope_report::{Run, of_run};

use crate::provenance::{Files, check};
use crate::read::{cards, data, html_of, names_of, page, section, sections, traced};
use crate::samples::{HOSTILE, of_spans, on_a_device, sample, served};

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
fn a_page_of_a_server_says_how_long_who_asked_waited() {
    let profile = served();
    let (page, numbers) = traced(&profile);
    assert!(numbers > 10);
    let text = section(&page, "requests");
    assert!(text.contains("Requests: 30, ended: length 30."), "{text}");
    assert!(text.contains("1 of 30 first tokens took at least 2 times the median"), "{text}");
    assert!(text.contains("its own passes 1"), "{text}");
    // Each kind whose times are counted has a row.
    assert!(text.contains("time per token: 30"), "{text}");
    assert!(html_of(&page, "requests").contains("time per token</"), "{page}");
    // The queue, up to the first token and up to the end, for each; and the passes.
    assert_eq!(html_of(&page, "requests").matches("<rect").count(), 30 * 3 + 120);
    let mut missed = profile;
    missed.dropped.missed_requests = 3;
    let (page, _) = traced(&missed);
    let said = "Beside them, not recorded: 3 more requests, in no figure here.";
    assert!(section(&page, "requests").contains(said), "{page}");
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
fn tables_of_a_run_whose_passes_were_all_disturbed_are_of_what_the_headline_says() {
    use brickscope_analysis::typical;
    let mut profile = sample("moe");
    for pass in profile.passes.iter_mut().filter(|pass| pass.phase == Phase::Decode) {
        pass.disturbance = Some(brickscope::Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            longest_wait_ns: Some(pass.wall_ns / 2),
            run_queue_wait_ns: Some(pass.wall_ns / 2),
            own_wait_ns: Some(0),
            ..brickscope::Disturbance::default()
        });
    }
    for total in profile.phases.iter_mut().filter(|total| total.phase == Phase::Decode) {
        total.disturbed = 60;
    }
    let (page, _) = traced(&profile);
    let judged = typical::judged(&profile, Phase::Decode);
    let (of, all) = (judged.phase(Phase::Decode), profile.phase(Phase::Decode));
    let (of, all) = (of.expect("passes"), all.expect("passes"));
    assert!(of.wall_ns < all.wall_ns);
    let said = typical::basis_in_words(true, of, all);
    assert!(section(&page, "bricks").contains(&said), "{said}");
    for id in ["bricks", "roofline"] {
        assert!(html_of(&page, id).contains("\"judged\""), "{id}");
    }
    let cards = cards(&page);
    let disturbed = cards.iter().find(|[name, ..]| name == "Disturbed passes").expect("a card");
    assert!(disturbed[2].starts_with("60 of 60 passes of decode"), "{disturbed:?}");
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

#[test]
fn the_same_run_is_the_same_page() {
    let profile = sample("moe");
    let again = Profile::from_json(&profile.to_json(), "profile.json".as_ref()).unwrap();
    assert_eq!(page(&profile), page(&again));
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
fn a_finding_that_no_command_tests_says_why() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/planted-tokens/queue-4.json.gz");
    let text = brickscope_formats::import::packed_run(file.as_ref()).expect("readable");
    let mut profile = Profile::from_json(&text.expect("a run"), file.as_ref()).expect("a profile");
    assert!(html_of(&page(&profile), "findings").contains("-np 8 -c 2048"), "its own command");
    profile.run.as_mut().expect("a run").command = vec!["serve.py".to_owned()];
    let page = page(&profile);
    let said = "the flags of the program that was started are not known here";
    assert!(html_of(&page, "findings").contains("<dt>untested</dt>"), "{page}");
    assert!(section(&page, "findings").contains(said), "{page}");
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
            // What is in backticks is code.
            .split('`')
            .enumerate()
            .map(|(nth, part)| match nth % 2 {
                0 => part.to_owned(),
                _ => format!("<code>{part}</code>"),
            })
            .collect::<String>()
    );
    assert!(next.contains("<code>--threads</code>"), "{next}");
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

#[test]
fn a_page_does_not_grow_with_the_spans() {
    let small = page(&of_spans(20_000)).len();
    // More than a path is looked for in.
    let large = page(&of_spans(600_000)).len();
    assert!(large < small + small / 10, "{small} and {large} bytes");
    assert!(large < 3 << 20, "{large} bytes");
}
