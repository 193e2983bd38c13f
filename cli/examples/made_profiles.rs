//! Profiles for testing the readers of exports, each in its own folder:
//!
//! ```sh
//! cargo run -p brickscope-cli --example made_profiles -- made            # small ones
//! cargo run --release -p brickscope-cli --example made_profiles -- cost 10000000
//! ```
//!
//! The second makes a profile with this many spans in memory, exports it, and prints the cost of each
//! format: bytes, seconds, and the peak memory beyond the profile's own (Linux).

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use brickscope::{
    Anchor, BrickId, BrickProfiler, BrickStats, ClockInfo, Device, DeviceLaunch, DeviceTimer,
    Ending, HostLaunch, Lane, MockClock, Name, NameKind, Part, Pass, Phase, PhaseTotal, Profile,
    SimulatedDevice, Source, Span, StreamId, Total, TransferDirection, Work,
};
use brickscope_formats::export;

type Anyhow<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anyhow<()> {
    let args: Vec<String> = std::env::args().collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "cost", spans] => cost(&many(spans.parse()?)),
        [_, folder] => {
            let requests = std::env::var("BRICKSCOPE_REQUESTS").map_or(Ok(300), |n| n.parse())?;
            for (name, profile) in [
                ("empty", Profile::empty(ClockInfo::default())),
                ("threads", threads()),
                ("hostile", hostile()),
                ("device", device()),
                ("graph", graph()),
                ("many", many(3_000)),
                ("served", served(requests)),
            ] {
                let folder = Path::new(folder).join(name);
                fs::create_dir_all(&folder)?;
                profile.check()?;
                profile.save(&folder.join("profile.json"))?;
            }
            Ok(())
        }
        _ => Err("usage: made_profiles FOLDER | cost SPANS".into()),
    }
}

/// A thread that gives work to another, spans that overlap without nesting, spans of zero duration, and
/// spans outside of passes.
fn threads() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let launch = HostLaunch { shape: "768×2048 q8_0".to_owned(), threads: 2 };
    let gemv = profiler.kernel("gemv_q8_0_avx2", Some(launch));
    for position in 0..40 {
        let outside = profiler.start("between passes");
        hand.advance(7);
        profiler.stop(outside, 1);
        let phase = if position == 0 { Phase::Prefill } else { Phase::Decode };
        let pass = profiler.begin_pass(phase);
        for layer in 0..3 {
            let timer = profiler.begin_layer(layer);
            let brick = profiler.start_brick_kernel(BrickId::DownProjection, gemv);
            let given = profiler.hand_off();
            hand.advance(11);
            let back = std::thread::scope(|scope| {
                let help = scope.spawn(|| {
                    profiler.take_over(given);
                    let share = profiler.start_kernel(gemv);
                    hand.advance(500 + position);
                    profiler.stop_kernel(
                        share,
                        Work { elements: 9, flops: 18, bytes: 72, ..Work::default() },
                    );
                    profiler.hand_off()
                });
                help.join().expect("it does not panic")
            });
            profiler.take_over(back);
            hand.advance(3);
            profiler.stop_brick_kernel(
                brick,
                Work { elements: 18, flops: 36, bytes: 144, ..Work::default() },
            );
            let nothing = profiler.start_brick(BrickId::Activation);
            profiler.stop_brick(nothing, 0);
            profiler.end_layer(timer);
        }
        let first = profiler.start_brick(BrickId::LmHead);
        hand.advance(20);
        profiler.stop_brick(first, 1);
        // It began before the bricks that ended meanwhile, and is reported now.
        profiler.record_elapsed("told afterwards", std::time::Duration::from_nanos(30), 1);
        let last = profiler.start_brick(BrickId::Sampling);
        hand.advance(5);
        profiler.record_elapsed("told in between", std::time::Duration::from_nanos(9), 1);
        hand.advance(5);
        profiler.stop_brick(last, 1);
        profiler.end_pass(pass, 1, position);
    }
    profiler.profile()
}

/// A server with eight places in its batch, to which this many requests come at random: prompts in pieces, cancelled requests,
/// passes of which nobody says whom they are for, or says that it is somebody.
fn served(requests: u32) -> Profile {
    const PLACES: usize = 8;
    const PIECE: u64 = 64;
    struct Going {
        request: u32,
        prompt_left: u64,
        position: u64,
        tokens_left: u64,
    }
    let mut random = brickscope::stats::SplitMix64(7);
    let mut below = |n: u64| random.bits() % n;
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let recorder = profiler.requests();
    let mut queue = std::collections::VecDeque::new();
    let mut going: Vec<Going> = Vec::new();
    let mut came = 0;
    while came < requests || !queue.is_empty() || !going.is_empty() {
        if came < requests && below(4) == 0 {
            queue.push_back(recorder.arrive(&format!("request-{came}")));
            came += 1;
        }
        hand.advance(below(900));
        while going.len() < PLACES
            && let Some(request) = queue.pop_front()
        {
            if request % 3 == 0 {
                recorder.receive(request);
                hand.advance(below(300));
            }
            recorder.admit(request);
            let (prompt_left, tokens_left) = (1 + below(300), below(20));
            going.push(Going { request, prompt_left, position: 0, tokens_left });
        }
        let parts: Vec<Part> = going
            .iter()
            .map(|of| match of.prompt_left {
                0 => Part::decode(of.request, of.position),
                left => Part::prompt(of.request, left.min(PIECE), of.position),
            })
            .collect();
        if parts.is_empty() {
            continue;
        }
        // Now and then nobody says whom a pass is for.
        let mut told = if below(20) == 0 { Vec::new() } else { parts.clone() };
        // Of every tenth request it isn't known which passes are for it.
        let unknown = told.iter_mut().filter(|part| part.request % 10 == 9);
        unknown.for_each(|part| part.request = Part::NOBODY);
        let pass = profiler.begin_pass_of(&told);
        hand.advance(1_000 + parts.iter().map(|part| 10 * part.tokens).sum::<u64>());
        profiler.end_pass(pass, parts.iter().map(|part| part.tokens).sum(), 0);
        going.retain_mut(|of| {
            hand.advance(below(50));
            let tokens = of.prompt_left.min(PIECE);
            of.prompt_left -= tokens;
            of.position += tokens.max(1);
            if of.prompt_left == 0 {
                recorder.token(of.request);
                of.tokens_left = of.tokens_left.saturating_sub(1);
            }
            let ending = match of.tokens_left {
                0 if of.prompt_left == 0 => Some(Ending::Length),
                _ => (below(100) == 0).then_some(Ending::Cancelled),
            };
            if let Some(ending) = ending {
                recorder.end(of.request, ending);
            }
            ending.is_none()
        });
    }
    let mut profile = profiler.profile();
    // A clock that is made has never been read beside the system's.
    profile.clock.anchors = vec![Anchor {
        at_ns: 5_000,
        monotonic_ns: 1_000_000,
        monotonic_raw_ns: 900_000,
        unix_ns: Some(1_795_258_092_123_456_789),
        width_ns: 40,
    }];
    profile
}

/// Names that formats, browsers and spreadsheets misinterpret.
fn hostile() -> Profile {
    let names = [
        "\"quoted\", 'and' \\",
        "</script><script>alert(1)</script>",
        "new\nline\r\nand\ttab",
        "=HYPERLINK(\"http://example.org\")",
        "+1",
        "-1",
        "@SUM(1)",
        "'=",
        "\u{1}\u{1b}[31m\u{7f}",
        "🧱 ядро 核",
        "\u{202e}drow",
        "\u{2028}",
        " a;b,c ",
        "%3B",
        "",
        "%",
        "decode",
        "layer 0",
    ];
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for (nth, name) in (1..).zip(names) {
        let launch = HostLaunch { shape: name.to_owned(), threads: 1 };
        let kernel = profiler.kernel(name, Some(launch));
        let pass = profiler.begin_pass(Phase::Decode);
        let brick = profiler.start(name);
        hand.advance(nth);
        let timer = profiler.start_kernel(kernel);
        hand.advance(100);
        profiler.stop_kernel(timer, Work::elements(1));
        profiler.stop(brick, 1);
        profiler.end_pass(pass, 1, nth);
    }
    let mut profile = profiler.profile();
    for lane in &mut profile.lanes {
        lane.name = Some(names[..7].concat());
    }
    profile
}

/// Two streams of a device with work from the host.
fn device() -> Profile {
    let (main, side) = (StreamId(0), StreamId(1));
    let mut device = SimulatedDevice::new(2);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let launch = DeviceLaunch {
        shape: "2048×2048 q4_k".to_owned(),
        grid: (64, 2, 1),
        block: (256, 1, 1),
        shared_mem: 4096,
        ptx_hash: 0x0123_4567_89ab_cdef,
        registers: Some(40),
        spill_bytes: Some(0),
    };
    let gemv = profiler.device_kernel("q4_k_gemv", launch);
    let mut timer = profiler.device().timer(&mut device).expect("it has a clock");
    for position in 0..6 {
        let phase = if position == 0 { Phase::Prefill } else { Phase::Decode };
        let pass = profiler.begin_pass(phase);
        timer.begin_pass(&mut device, phase, 1, position).expect("none is open");
        let (src, dst) = ("host \"a\"", "device");
        timer
            .transfer(&mut device, main, src, dst, 8192, TransferDirection::H2D)
            .expect("a pass is open");
        device.launch(main, 900);
        for layer in 0..2 {
            let work = Work { elements: 2048, flops: 4096, bytes: 1 << 20, ..Work::default() };
            timer
                .brick(&mut device, main, Some(layer), BrickId::DownProjection, work)
                .expect("room");
            timer.kernel(&mut device, main, gemv, work).expect("a brick runs");
            device.launch(main, 12_345);
            timer.depends(&mut device, side, main).expect("room");
            device.depend(side, main);
            timer.brick(&mut device, side, Some(layer), BrickId::UpProjection, work).expect("room");
            device.launch(side, 30_001);
            timer.depends(&mut device, main, side).expect("room");
            device.depend(main, side);
        }
        timer.end_brick(&mut device, side).expect("it runs");
        timer.brick(&mut device, main, None, BrickId::LmHead, Work::elements(1)).expect("room");
        device.launch(main, 40_000);
        timer.end_pass(&mut device).expect("it is open");
        let wait = profiler.start("DeviceWait");
        timer.settle(&mut device, true).expect("it is there");
        profiler.stop(wait, 1);
        profiler.end_pass(pass, 1, position);
    }
    timer.finish(&mut device).expect("it is there");
    profiler.profile()
}

/// Prefill by launches and decode by a replayed graph, on a device whose clock drifts from the host's, so
/// that some kernels seem to begin before they are launched.
fn graph() -> Profile {
    let stream = StreamId(0);
    let mut device = SimulatedDevice::new(1).with_drift(-400.0);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let gemv = profiler.device_kernel("q4_k_gemv", DeviceLaunch::default());
    let mut timer = profiler.device().timer(&mut device).expect("it has a clock");
    let work = Work { elements: 2048, flops: 4096, bytes: 1 << 20, ..Work::default() };
    let issue = |timer: &mut DeviceTimer<'_>, device: &mut SimulatedDevice, phase| {
        timer.begin_pass(device, phase, 1, 0).expect("none is open");
        for layer in 0..3 {
            timer.brick(device, stream, Some(layer), BrickId::DownProjection, work).expect("room");
            for _ in 0..2 {
                timer.kernel(device, stream, gemv, work).expect("a brick runs");
                device.launch(stream, 5_000);
            }
        }
    };
    let pass = profiler.begin_pass(Phase::Prefill);
    issue(&mut timer, &mut device, Phase::Prefill);
    timer.end_pass(&mut device).expect("it is open");
    timer.settle(&mut device, true).expect("it is there");
    profiler.end_pass(pass, 1, 0);
    issue(&mut timer, &mut device, Phase::Decode);
    let recorded = timer.end_recorded(&mut device).expect("room").expect("a pass is open");
    for position in 1..9 {
        device.host_works(100_000);
        let pass = profiler.begin_pass(Phase::Decode);
        let mut same = |_, work| work;
        timer.replayed(&mut device, &recorded, 1, position, &mut same).expect("none is open");
        device.begin_set(recorded.set()).expect("it is there");
        for mark in 0..recorded.n_marks() {
            device.mark(stream, recorded.set(), mark).expect("it is there");
            device.launch(stream, 5_000);
        }
        timer.settle(&mut device, true).expect("it is there");
        profiler.end_pass(pass, 1, position);
    }
    timer.finish(&mut device).expect("it is there");
    profiler.profile()
}

/// Decode passes of 22 layers with a brick and a kernel each, with this many spans in total.
fn many(spans: u64) -> Profile {
    const LAYERS: u16 = 22;
    let name = |name: &str, kind, host| Name {
        name: name.to_owned(),
        kind,
        category: None,
        host,
        device: None,
        transfer: None,
    };
    let launch = HostLaunch { shape: "2048×5632 q4_k".to_owned(), threads: 2 };
    let mut profile = Profile::empty(ClockInfo::default());
    profile.lanes = vec![Lane { name: Some("main".to_owned()), tid: Some(1) }];
    profile.names = vec![
        name("DownProjection", NameKind::Brick, None),
        name("gemv_q4_k_avx2", NameKind::Kernel, Some(launch.clone())),
    ];
    let mut sums = [BrickStats::new("DownProjection"), BrickStats::new("gemv_q4_k_avx2")];
    let mut decode = PhaseTotal {
        phase: Phase::Decode,
        passes: 0,
        disturbed: 0,
        unwatched: None,
        tokens: 0,
        wall_ns: 0,
        attributed_ns: 0,
        unattributed_ns: 0,
    };
    profile.spans.reserve_exact(spans as usize);
    let mut now = 1_000;
    let mut left = spans;
    for serial in 1.. {
        if left == 0 {
            break;
        }
        let mut pass = Pass {
            serial,
            phase: Phase::Decode,
            lane: 0,
            tokens: 1,
            position: u64::from(serial),
            start_ns: now,
            wall_ns: 0,
            attributed_ns: 0,
            unattributed_ns: 0,
            disturbance: None,
            is_left_out: false,
        };
        now += 5;
        for layer in 0..LAYERS {
            let n = left.min(3);
            left -= n;
            let duration_ns = 100 + u64::from(serial.wrapping_mul(7919) % 1000);
            let work = Work { elements: 1, flops: 2, bytes: 1 << 20, ..Work::default() };
            let of_layer = profile.spans.len() as u32;
            let span = |name, parent, exclusive_ns, work| Span {
                name,
                source: Source::Host,
                lane: 0,
                pass: Some(serial),
                layer: Some(layer),
                parent,
                start_ns: now,
                duration_ns,
                exclusive_ns,
                work,
            };
            let spans = [
                span(None, None, 0, Work::default()),
                span(Some(0), Some(of_layer), duration_ns, work),
                span(Some(1), Some(of_layer + 1), 0, work),
            ];
            profile.spans.extend_from_slice(&spans[..n as usize]);
            for (sum, _) in sums.iter_mut().zip(1..n) {
                sum.add_sample(duration_ns, 1);
                sum.total_flops += 2;
                sum.total_bytes += 1 << 20;
            }
            if n > 1 {
                pass.attributed_ns += duration_ns;
            } else {
                pass.unattributed_ns += if n > 0 { duration_ns } else { 0 };
            }
            now += if n > 0 { duration_ns } else { 0 };
        }
        pass.unattributed_ns += 5;
        pass.wall_ns = now - pass.start_ns;
        decode.passes += 1;
        decode.tokens += 1;
        decode.wall_ns += pass.wall_ns;
        decode.attributed_ns += pass.attributed_ns;
        decode.unattributed_ns += pass.unattributed_ns;
        profile.passes.push(pass);
    }
    profile.phases = vec![decode];
    let kinds = [(NameKind::Brick, None), (NameKind::Kernel, Some(launch))];
    let total = |(stats, (kind, host)): (BrickStats, (NameKind, Option<HostLaunch>))| Total {
        phase: Some(Phase::Decode),
        kind,
        category: (kind == NameKind::Brick).then(|| BrickId::DownProjection.category()),
        source: Source::Host,
        host,
        device: None,
        std_dev_ns: stats.std_dev_ns(),
        percentiles: stats.percentiles(),
        stats,
        counters: None,
    };
    profile.totals = sums.into_iter().zip(kinds).map(total).collect();
    // A kernel has no exclusive time.
    profile.totals[1].stats.exclusive_ns = 0;
    profile
}

/// Prints the cost of each format.
fn cost(profile: &Profile) -> Anyhow<()> {
    let spans = profile.spans.len();
    let folder = tempfile::tempdir()?;
    println!("{spans} spans, {} MB with the profile", resident()? >> 20);
    type Write<'p> = Box<dyn FnMut(&mut BufWriter<fs::File>) -> io::Result<bool> + 'p>;
    let part_bytes = 256 << 20;
    let mut perfetto = export::perfetto::Trace::new(profile, part_bytes);
    let mut chrome = export::chrome::Trace::new(profile, part_bytes);
    let forms: [(&str, Write<'_>); 3] = [
        (
            "perfetto",
            Box::new(move |out| perfetto.write_part(out, &mut |_| {}).map(|_| perfetto.is_done())),
        ),
        (
            "chrome",
            Box::new(move |out| chrome.write_part(out, &mut |_| {}).map(|_| chrome.is_done())),
        ),
        ("csv", Box::new(|out| export::csv::spans(profile, out, &mut |_| {}).map(|()| true))),
    ];
    for (form, mut write) in forms {
        let before = resident()?;
        // Reset the peak.
        fs::write("/proc/self/clear_refs", "5")?;
        let begin = Instant::now();
        let mut parts = Vec::new();
        let mut is_done = false;
        while !is_done {
            let path = folder.path().join(form);
            let mut out = BufWriter::with_capacity(1 << 18, fs::File::create(&path)?);
            is_done = write(&mut out)?;
            out.flush()?;
            parts.push(path.metadata()?.len() >> 20);
            fs::remove_file(path)?;
        }
        println!(
            "{form}: {:.1} s, parts of {parts:?} MB, {} MB beyond the profile",
            begin.elapsed().as_secs_f64(),
            of_status("VmHWM")?.saturating_sub(before) >> 20
        );
    }
    Ok(())
}

fn resident() -> Anyhow<u64> {
    of_status("VmRSS")
}

/// A line of this process's status, in bytes.
fn of_status(what: &str) -> Anyhow<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).ok_or("no such line")?;
    Ok(kilobytes.parse::<u64>()? << 10)
}
