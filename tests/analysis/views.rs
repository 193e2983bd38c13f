//! What people see: tables and JSON of profiles whose times are known.

use brickscope::{
    Absent, Bandwidth, Began, BrickId, BrickProfiler, CacheCeiling, CacheLevel, Ceilings,
    HostLaunch, KernelPace, Machine, MockClock, Model, Move, NameKind, NotFinite, Peak, Phase,
    Profile, Run, Survey, Tolerance, WeightGroup, Work,
};
use brickscope_analysis::Report;

/// A run of two layers: a prefill of 8 tokens and two tokens decoded, on a hand-turned clock.
fn profile() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let shape = "4096×4096 q4_k".to_owned();
    let gemv = profiler.kernel("gemv_q4_k_avx2", Some(HostLaunch { shape, threads: 2 }));
    let pass = |phase, tokens: u64, position| {
        let pass = profiler.begin_pass(phase);
        let brick = |brick, nanos: u64| {
            let timer = profiler.start_brick(brick);
            hand.advance(nanos * tokens);
            profiler.stop_brick_with(
                timer,
                Work { elements: 4096 * tokens, flops: 10, bytes: 20, ..Work::default() },
            );
        };
        brick(BrickId::Embedding, 1_000);
        for layer in 0..2 {
            let layer = profiler.begin_layer(layer);
            brick(BrickId::RmsNorm, 50_000);
            let timer = profiler.start_brick(BrickId::QkvProjection);
            hand.advance(2_000);
            let kernel = profiler.start_kernel(gemv);
            hand.advance(198_000 * tokens);
            profiler.stop_kernel(
                kernel,
                Work { elements: 4096, flops: 80, bytes: 40, ..Work::default() },
            );
            profiler.stop_brick(timer, 4096);
            profiler.end_layer(layer);
        }
        // A brick with a name of its own, and time that nobody explains.
        let timer = profiler.start("Detokenise");
        hand.advance(3_500);
        profiler.stop(timer, 1);
        hand.advance(1_500);
        profiler.end_pass(pass, tokens, position);
    };
    pass(Phase::Prefill, 8, 0);
    pass(Phase::Decode, 1, 8);
    pass(Phase::Decode, 1, 9);
    let mut profile = profiler.profile();
    // What differs between two machines, or two runs.
    profile.created = "2026-11-21T10:15:00Z".to_owned();
    profile.brickscope_version = "0.0.0".to_owned();
    profile.machine = Some(Machine {
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        cpu: Some("Example CPU".to_owned()),
        logical_cpus: Some(2),
        memory_bytes: None,
    });
    profile.model = Some(Model {
        path: "example.gguf".to_owned(),
        name: None,
        architecture: "llama".to_owned(),
        quantization: "q4_k".to_owned(),
        file_bytes: 1_000_000,
        parameters: 2_000_000,
        layers: 2,
        embedding_length: 4096,
        synthetic: true,
        weights_in: Some("large pages, rows interleaved".to_owned()),
        copied_in_ns: Some(150_000_000),
        interleaved_bytes: Some(900_000),
        interleaved_in_ns: Some(20_000_000),
        weights: vec![WeightGroup {
            name: "ffn_down".to_owned(),
            format: "q4_k".to_owned(),
            is_matrix: true,
            tensors: 2,
            parameters: 1_600_000,
            bytes: 900_000,
        }],
    });
    profile.run = Some(Run {
        backend: "avx2".to_owned(),
        threads: 2,
        prompt_tokens: 8,
        generated_tokens: 3,
        ..Run::default()
    });
    profile.lanes[0].name = None;
    profile.lanes[0].tid = None;
    profile
}

#[test]
fn the_report_shows_each_phase_with_bricks_and_what_they_do_not_explain() {
    let profile = profile();
    let report = brickscope_analysis::view::report(&profile);
    insta::assert_snapshot!("report", report);
    for line in report.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn a_profile_is_the_same_bytes_each_time_and_reads_back() {
    let profile = profile();
    let json = profile.to_json();
    insta::assert_snapshot!("profile_json", json);
    let read = Profile::from_json(&json, "profile.json".as_ref()).expect("it was just written");
    assert_eq!(read, profile);
    assert_eq!(read.to_json(), json);
    assert_eq!(read.check(), Ok(()));
}

#[test]
fn rates_are_read_back_to_the_last_bit() {
    let mut profile = profile();
    for i in 1..2_000 {
        let rate = 1e9 / f64::from(i) * 51.9;
        profile.ceilings = Some(Ceilings {
            read_bytes_per_second: rate,
            flops_per_second: rate.sqrt(),
            ..Ceilings::default()
        });
        let read = Profile::from_json(&profile.to_json(), "x".as_ref()).expect("it was written");
        assert_eq!(read.ceilings, profile.ceilings);
    }
}

/// [`profile`] with ceilings under which its bricks stand in every way.
fn profile_with_ceilings() -> Profile {
    let mut profile = profile();
    let cache = |level: &str, bytes, read_bytes_per_second| CacheCeiling {
        level: level.to_owned(),
        bytes,
        read_bytes_per_second,
    };
    profile.ceilings = Some(Ceilings {
        read_bytes_per_second: 50e9,
        flops_per_second: 200e9,
        basis: "made up: 2 threads, avx2".to_owned(),
        measured: Some("2026-11-21T10:00:00Z".to_owned()),
        caches: vec![cache("L1", 64_000, 400e9), cache("L3", 32_000_000, 180e9)],
        ..Ceilings::default()
    });
    // FLOPs, bytes of the whole phase, which takes 101 µs of norms and 400 µs of projections.
    for (name, flops, bytes) in [
        ("RmsNorm", 4_000, 30_000_000),
        ("QkvProjection", 140_000_000, 16_000_000),
        ("Embedding", 0, 60_000),
        ("Detokenise", 0, 0),
    ] {
        let totals = profile.totals.iter_mut().filter(|total| total.kind == NameKind::Brick);
        for total in totals.filter(|total| total.stats.name == name) {
            total.stats.total_flops = flops;
            total.stats.total_bytes = bytes;
        }
    }
    // All spans but one say what they did.
    let mut spans = profile.spans.iter_mut().filter(|span| span.pass.is_some());
    spans.by_ref().find(|span| span.name == Some(BrickId::QkvProjection as u16));
    spans.for_each(|span| span.work = Work { elements: 1, flops: 1, bytes: 1, ..Work::default() });
    profile
}

#[test]
fn the_roofline_is_a_table_and_a_plot_of_each_phase() {
    let text = brickscope_analysis::view::roofline(&profile_with_ceilings());
    insta::assert_snapshot!("roofline", text);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let report = brickscope_analysis::view::report(&profile_with_ceilings());
    for line in report.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert_eq!(report.matches("Roofline: 180.0 GB/s (L3), 200.0 GFLOP/s; memory 50.0").count(), 2);
}

#[test]
fn the_roofline_as_a_picture_holds_whatever_things_are_called() {
    let mut profile = profile_with_ceilings();
    let name = "say \"hi\"\u{1b}</text>&\u{ffff}";
    for total in profile.totals.iter_mut().filter(|total| total.stats.name == "RmsNorm") {
        name.clone_into(&mut total.stats.name);
    }
    let svg = brickscope_analysis::view::roofline_svg(&profile);
    assert_eq!(svg, brickscope_analysis::view::roofline_svg(&profile));
    insta::assert_snapshot!("roofline_svg", svg);
    // Each name is text, so nothing of it opens or closes an element.
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    assert_eq!(svg.matches('<').count(), svg.matches('>').count(), "a bare one is no XML");
    assert!(!svg.contains(['\u{1b}', '\u{ffff}']), "{svg}");
}

#[test]
fn without_ceilings_there_is_no_roofline_but_a_reason() {
    let text = brickscope_analysis::view::roofline(&profile());
    let reason = "no roofline: this run has no ceilings: the machine was not measured";
    assert_eq!(text, format!("Decode: {reason}\n\nPrefill: {reason}\n"));
    assert!(
        brickscope_analysis::view::roofline_svg(&profile()).contains("this run has no ceilings")
    );
    let json: serde_json::Value =
        serde_json::from_str(&brickscope_analysis::view::json(&profile())).expect("JSON");
    assert_eq!(json["roofline"], serde_json::json!([]));
}

#[test]
fn the_json_view_is_the_profile_and_the_roofline() {
    let profile = profile_with_ceilings();
    let text = brickscope_analysis::view::json(&profile);
    let read = Profile::from_json(&text, "x".as_ref()).expect("what is derived is no hindrance");
    assert_eq!(read, profile);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let decode = &json["roofline"][0];
    assert_eq!((&decode["phase"], &decode["ridge"]), (&"decode".into(), &4.0.into()));
    let bricks = decode["bricks"].as_array().expect("bricks");
    let brick = |name: &str| bricks.iter().find(|brick| brick["name"] == name).expect(name);
    assert_eq!(brick("QkvProjection")["bound"], "compute");
    assert_eq!(brick("Detokenise")["absent"]["reason"], "its work was not stated");
    assert!(brick("Detokenise").get("of_roof").is_none());
}

#[test]
fn a_machine_is_a_table_of_its_ceilings() {
    let absent = |reason: &str| Some(Absent { reason: reason.to_owned() });
    let caches = [(1, 32 << 10, 1), (2, 1 << 20, 2)];
    let caches = caches.map(|(level, bytes, shared_by)| CacheLevel { level, bytes, shared_by });
    let mut survey = Survey {
        measured: "2026-11-21T10:00:00Z".to_owned(),
        backend: "avx2".to_owned(),
        caches: caches.into(),
        bandwidth: Vec::new(),
        peaks: Vec::new(),
        paces: Vec::new(),
    };
    for threads in [1, 2] {
        for (level, rate) in [("L1", 227.4e9), ("L2", 118.0e9), ("memory", 35.1e9)] {
            for how in Move::ALL {
                let is_absent = (level, threads) == ("L2", 2);
                survey.bandwidth.push(Bandwidth {
                    level: level.to_owned(),
                    how,
                    threads,
                    working_set: (!is_absent).then_some(u64::from(threads) * (16 << 10)),
                    bytes_per_second: (!is_absent).then_some(rate * f64::from(threads)),
                    absent: is_absent.then(|| absent("not measured: too little")).flatten(),
                });
            }
        }
        for (numbers, backend, instructions, ops_per_second, absent) in [
            ("f32", "scalar", "multiply, add", Some(47.25e9), None),
            ("f32", "avx2", "fused multiply-add", Some(1182.0e9), None),
            ("f32", "avx512", "", None, absent("not written yet")),
            ("int8", "avx2", "vpdpbusd (VNNI)", None, absent("this CPU has no AVX-512 VNNI")),
        ] {
            survey.peaks.push(Peak {
                numbers: numbers.to_owned(),
                backend: backend.to_owned(),
                instructions: instructions.to_owned(),
                is_used: numbers == "f32",
                threads,
                ops_per_second,
                absent,
            });
        }
    }
    let text = brickscope_analysis::view::machine(&survey);
    insta::assert_snapshot!("machine", text);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    kernels_are_a_table_with_each_reason_once(survey.clone());
    // What bounds a run: the reads, and the peak of the backend whose loops they were.
    let ceilings = survey.ceilings(2).expect("two threads were measured");
    assert_eq!((ceilings.read_bytes_per_second, ceilings.flops_per_second), (70.2e9, 1182.0e9));
    let caches: Vec<&str> = ceilings.caches.iter().map(|cache| cache.level.as_str()).collect();
    assert_eq!(caches, ["L1"], "nobody knows of L2 on two threads");
    assert_eq!(survey.ceilings(3), None);
}

fn kernels_are_a_table_with_each_reason_once(mut survey: Survey) {
    let pace = |kernel: &str, level: &str, rate: Option<f64>| KernelPace {
        kernel: kernel.to_owned(),
        level: level.to_owned(),
        threads: 1,
        bytes_per_second: rate,
        absent: rate.is_none().then(|| Absent { reason: "not measured: why".to_owned() }),
        ..KernelPace::default()
    };
    for format in ["f32", "q4_k", "q6_k", "q8_0"] {
        survey.paces.push(pace(&format!("gemv_{format}_avx2"), "L1", Some(26.0e9)));
        survey.paces.push(pace(&format!("gemv_{format}_avx2"), "L2", None));
        survey.paces.push(pace(&format!("gemv_{format}_scalar"), "L1", Some(1.0e9)));
    }
    let of_tokens = pace("gemm_q4_k_avx2", "L2", Some(1.5e9));
    survey.paces.push(KernelPace { tokens: Some(128), ..of_tokens });
    let text = brickscope_analysis::view::machine(&survey);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for row in [
        "gemv_q4_k_avx2                              1        26.0           -",
        "gemm_q4_k_avx2                              1           -        1.50",
        "- gemm kernels: the weights are multiplied with 128 tokens at once",
    ] {
        assert!(text.lines().any(|line| line == row), "{row}: {text}");
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = "- gemv_f32_avx2 from L2, 1 thread; gemv_q4_k_avx2 from L2, 1 thread; gemv_q6_k_avx2 from L2, 1 thread; \
               and 1 more: not measured: why";
    assert_eq!(text.matches("not measured: why").count(), 1, "{text}");
    assert!(text.contains(why) && !text.contains("gemv_f32_scalar"), "{text}");
    assert!(text.ends_with("- kernels of other backends: `--json` has them"), "{text}");
}

#[test]
fn ceilings_that_are_no_rates_are_refused() {
    for (bytes, flops) in [(0.0, 1e9), (1e9, -1.0), (1e300, 1e9), (f64::NAN, 1e9)] {
        let mut profile = profile_with_ceilings();
        profile.ceilings = Some(Ceilings {
            read_bytes_per_second: bytes,
            flops_per_second: flops,
            ..Ceilings::default()
        });
        let text = brickscope_analysis::view::roofline(&profile);
        assert!(text.starts_with("Decode: no roofline: the ceilings of this run are not rates"));
    }
}

#[test]
fn without_stated_work_no_share_of_a_ceiling_is_claimed() {
    let mut profile = profile();
    profile.ceilings =
        Some(Ceilings { read_bytes_per_second: 1e9, flops_per_second: 1e9, ..Ceilings::default() });
    let stated = brickscope_analysis::view::headline(&profile);
    assert!(stated.contains(" GFLOP/s") || stated.contains(" GB/s"), "{stated}");
    for total in &mut profile.totals {
        total.stats.total_flops = 0;
        total.stats.total_bytes = 0;
    }
    assert_eq!(
        brickscope_analysis::view::headline(&profile),
        "Decode: QkvProjection takes the most time, 79.1% of it; what limits it is unknown, since \
         no work was stated."
    );
}

#[test]
fn logits_that_are_no_numbers_come_first_in_every_view_with_a_headline_and_stay_in_the_file() {
    let clean = profile();
    let before = brickscope_analysis::view::headline(&clean);
    let tensor = "blk.0.attn_q.weight".to_owned();
    for began in [
        None,
        Some(Began::Weights { tensor, is_nan: true, bad: 3, of: 4096, more_tensors: 1 }),
        Some(Began::Output {
            brick: "LmHead".to_owned(),
            layer: None,
            value: "logits".to_owned(),
            is_nan: false,
            bad: 1,
            of: 512,
            position: 9,
        }),
    ] {
        let mut profile = clean.clone();
        profile.not_finite = Some(NotFinite { passes: 2, of: 3, began });
        let sentence = profile.not_finite.as_ref().expect("set").to_string();
        let headline = brickscope_analysis::view::headline(&profile);
        assert_eq!(headline, format!("{sentence}. {before}"));
        let report = brickscope_analysis::view::report(&profile);
        assert!(report.starts_with("Not a number: the logits of 2 of 3 passes; "), "{report}");
        let json = profile.to_json();
        let again = Profile::from_json(&json, "profile.json".as_ref()).expect("a profile");
        assert_eq!((&again, again.to_json()), (&profile, json));
    }
    assert!(!clean.to_json().contains("not_finite"));
}

#[test]
fn a_profile_that_does_not_add_up_is_told_so() {
    let mut profile = profile();
    profile.phases[1].unattributed_ns += 1;
    assert_eq!(
        profile.check(),
        Err("the bricks of decode took 1009000 ns, and 3001 ns are unattributed, but the wall \
             time is 1012000 ns"
            .to_owned())
    );
}

#[test]
fn a_file_of_the_first_schema_is_read() {
    let mut json: serde_json::Value = serde_json::from_str(&profile().to_json()).expect("JSON");
    let file = json.as_object_mut().expect("an object");
    file.insert("schema_version".to_owned(), 1.into());
    file.remove("latency");
    for total in file["totals"].as_array_mut().expect("an array") {
        let total = total.as_object_mut().expect("an object");
        for later in ["squared_deviations", "histogram", "std_dev_ns", "p50_ns", "p99_ns"] {
            assert!(total.remove(later).is_some(), "{later}");
        }
    }
    let read = Profile::from_json(&json.to_string(), "x".as_ref()).expect("it is of schema 1");
    assert_eq!(read.phases, profile().phases);
    assert_eq!((read.totals[0].std_dev_ns, read.totals[0].stats.std_dev_ns()), (None, None));
}

#[test]
fn files_that_are_no_profiles_are_refused_in_a_sentence() {
    let refuse = |json: &str| {
        Profile::from_json(json, "run/profile.json".as_ref()).expect_err(json).to_string()
    };
    assert_eq!(
        refuse(&profile().to_json().replace("\"schema_version\": 2", "\"schema_version\": 3")),
        "run/profile.json has schema version 3, but this brickscope reads versions up to 2: use \
         a newer one"
    );
    let half = profile().to_json();
    assert_eq!(
        refuse(&half[..100]),
        "run/profile.json is not a whole brickscope profile: EOF while parsing a string at line 5 column 5"
    );
    assert!(refuse("{}").contains("missing field `schema_version`"), "{}", refuse("{}"));
    assert!(refuse("").starts_with("run/profile.json is not a whole brickscope profile"));
}

#[test]
fn a_profile_of_nothing_is_shown_without_numbers() {
    let report = BrickProfiler::with_clock(MockClock::default().clock()).report();
    assert_eq!(
        report,
        "Nothing was recorded.\n\n\
         overhead  absent: a mock clock can't measure a cost\n\
         clock     mock\n\
         others    unknown: profiling was not on, or its clock is a mock\ncounters  not asked for: `--counters`, or `BrickProfiler::enable_counters`\n"
    );
}

#[test]
fn the_summary_and_its_json_agree_with_what_was_recorded() {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for (name, nanos) in [("RmsNorm", 50_000), ("a \"quoted\"\nname", 150_000)] {
        let timer = profiler.start(name);
        hand.advance(nanos);
        profiler.stop(timer, 2);
    }
    assert_eq!(
        profiler.summary(),
        "=== Brick Profiler Summary ===\n\
         Total: 4 tokens, 200.00µs, 20000.0 tok/s\n\n\
         Per-Brick Breakdown:\n  \
         a \"quoted\"\\nname       150.00µs avg ( 75.0%) [1 samples]\n  \
         RmsNorm                 50.00µs avg ( 25.0%) [1 samples]\n\n\
         Category Breakdown:\n  \
         Norm            50.00µs avg ( 25.0%)\n  \
         Other          150.00µs avg ( 75.0%)\n"
    );
    let json: serde_json::Value = serde_json::from_str(&profiler.to_json()).expect("JSON");
    assert_eq!(json["total_ns"], 200_000);
    assert_eq!(json["bricks"][0]["name"], "a \"quoted\"\nname");
    assert_eq!(json["bricks"][1]["pct"], 25.0);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("profile.json");
    profiler.write_json(&path).expect("the temporary folder can be written to");
    assert_eq!(std::fs::read_to_string(&path).expect("it was written"), profiler.to_json());
}

#[test]
fn checksums_name_the_kernel_that_diverged() {
    let (cpu, gpu) = (BrickProfiler::enabled(), BrickProfiler::enabled());
    for layer in 0..3 {
        let output = [layer as f32; 8];
        cpu.record_checksum("RopeNeox", layer, 5, &output);
        gpu.record_checksum("RopeNeox", layer, 5, &output);
    }
    assert_eq!(gpu.find_divergence(&cpu), None);
    gpu.record_checksum("Softmax", 2, 5, &[1.0, 2.0]);
    cpu.record_checksum("Softmax", 2, 5, &[1.0, 2.5]);
    let found = gpu.find_divergence(&cpu).expect("they differ");
    assert_eq!((found.kernel_name.as_str(), found.layer_idx, found.position), ("Softmax", 2, 5));
    assert_eq!(gpu.get_checksums().len(), 4);
    gpu.disable();
    gpu.record_checksum("Softmax", 2, 6, &[1.0]);
    assert_eq!(gpu.get_checksums().len(), 4);
}

#[test]
fn digests_tell_rounding_from_a_fault() {
    let (cpu, gpu) = (BrickProfiler::enabled(), BrickProfiler::enabled());
    let output: Vec<f32> = (0..256).map(|i| (i as f32 * 0.7).cos()).collect();
    let rounded: Vec<f32> = output.iter().map(|x| x * (1.0 + f32::EPSILON)).collect();
    let mut fault = rounded.clone();
    // Past the 64 values that a checksum covers.
    fault[200] *= 1.01;
    for layer in 0..3 {
        cpu.checksums().record_digest("RopeNeox", layer, 5, &output);
        gpu.checksums().record_digest("RopeNeox", layer, 5, &rounded);
    }
    assert_eq!(gpu.checksums().find_fault(&cpu, Tolerance::default()), None);
    cpu.checksums().record_digest("Softmax", 2, 5, &output);
    gpu.checksums().record_digest("Softmax", 2, 5, &fault);
    let found = gpu.checksums().find_fault(&cpu, Tolerance::default()).expect("they differ");
    assert_eq!((found.name.as_str(), found.layer_idx, found.position), ("Softmax", 2, 5));
    let said = found.to_string();
    assert!(said.starts_with("DIVERGENCE at 'Softmax' (layer 2, pos 5): fault: "), "{said}");

    // They come through a file, and one from before they were there is read.
    let profile = gpu.profile();
    assert_eq!(profile.digests.len(), 4);
    let json = profile.to_json();
    let read = Profile::from_json(&json, "run".as_ref()).expect("it is one");
    assert_eq!(read.digests, profile.digests);
    assert_eq!(read.find_fault(&cpu.profile(), Tolerance::default()), Some(found));
    gpu.reset_checksums();
    let without = gpu.profile().to_json();
    assert!(!without.contains("\"digests\""));
    assert_eq!(Profile::from_json(&without, "run".as_ref()).expect("it is one").digests, []);
    gpu.disable();
    gpu.checksums().record_digest("Softmax", 2, 6, &output);
    assert_eq!(gpu.checksums().digests().len(), 0);
}

#[test]
fn what_was_observed_by_other_means_is_kept_as_that() {
    let profiler = BrickProfiler::new();
    assert_eq!((profiler.l2_cache_hit_rate(), profiler.is_zero_copy()), (None, false));
    // What nobody noted is not `false` in the file.
    assert_eq!(profiler.profile().observed.zero_copy, None);
    profiler.set_zero_copy(false);
    assert_eq!(profiler.profile().observed.zero_copy, Some(false));
    profiler.set_l2_cache_hit_rate(1.5);
    profiler.set_zero_copy(true);
    assert_eq!((profiler.l2_cache_hit_rate(), profiler.is_zero_copy()), (Some(1.0), true));
    profiler.set_l2_cache_hit_rate(f32::NAN);
    assert_eq!(profiler.l2_cache_hit_rate(), None);
}
