//! Runs with known times, and with everything that a page shows.

use brickscope::{
    BrickId, BrickProfiler, CacheCeiling, Ceilings, HostLaunch, Lane, Machine, MockClock, Model,
    Name, NameKind, Numbers, Pass, Phase, PhaseTotal, Profile, SimulatedDevice, Source, Span,
    StreamId, TileBalance, TileLevel, TileStats, TileThread, TransferDirection, Work,
};

/// A name with everything that a page, a script or a terminal could misinterpret.
pub(crate) const HOSTILE: &str =
    "\"'><script>hacked()</script><!--]]>&amp;\n\u{202e}🦀 {{title}} \u{0} 注意力 ${x} `y` \\u003c";

/// A prompt and sixty tokens of three layers, the last of them slow; and a copy with its inverse.
pub(crate) fn sample(named: &str) -> Profile {
    slower(named, 0)
}

/// The same with layers that take some nanoseconds longer.
pub(crate) fn slower(named: &str, by: u64) -> Profile {
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

/// Two ranks of which the second comes 50 µs late to each of eight collectives.
pub(crate) fn two_ranks() -> Profile {
    ranks_late([0, 50])
}

/// Two ranks that come so many microseconds late to each of eight collectives.
pub(crate) fn ranks_late([first, second]: [u32; 2]) -> Profile {
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

/// A server: thirty requests, of which the tenth has a long prompt, beside which the others decode.
pub(crate) fn served() -> Profile {
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

/// A huge number of spans, in one pass with one brick and two hundred layers.
pub(crate) fn of_spans(spans: u32) -> Profile {
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
