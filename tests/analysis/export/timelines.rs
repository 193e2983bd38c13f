use std::collections::BTreeMap;

use brickscope::{
    Anchor, BrickId, BrickProfiler, ClockInfo, Device, DeviceTimer, LaunchKind, Phase, Profile,
    SimulatedDevice, StreamId, Work,
};
use brickscope_formats::export::{TraceFile, chrome};
use proptest::prelude::*;
use serde_json::Value;

use brickscope_testing::nesting;

/// A slice: its category, when it began, and for how long it was.
type Slice = (String, u64, u64);

/// What a part has: the slices of each track, and how many arrows begin and end in it.
#[derive(Debug, Default)]
struct Read {
    tracks: BTreeMap<u64, Vec<Slice>>,
    arrows: [usize; 2],
    /// The track and the moment of each end of an arrow.
    ends: Vec<(u64, u64)>,
    /// By the number of an arrow, when it begins and ends.
    flows: BTreeMap<u64, [Option<u64>; 2]>,
    /// The moments on tracks of launches.
    launches: Vec<u64>,
}

/// Arrows from here on are of launches.
const LAUNCHES: u64 = 2 << 32;

impl Read {
    fn flow(&mut self, id: u64, is_end: bool, at: u64) {
        let ends = self.flows.entry(id).or_default();
        let before = ends[usize::from(is_end)].replace(at);
        assert!(before.is_none(), "arrow {id} has an end twice");
    }

    /// Whether each arrow from this number on has both ends, and leads forward.
    fn flows_lead_forward(&self, first: u64) -> bool {
        let mut flows = self.flows.range(first..);
        flows.all(|(_, ends)| matches!(ends, [Some(from), Some(to)] if from <= to))
    }
}

/// The slices that there must be, on the host and on all streams.
fn expected(profile: &Profile) -> Vec<Slice> {
    let streams = profile.devices.iter().flat_map(|device| &device.streams);
    let of_streams = streams.map(|stream| (&stream.spans, &stream.passes));
    let mut slices = Vec::new();
    for (spans, passes) in std::iter::once((&profile.spans, &profile.passes)).chain(of_streams) {
        slices.extend(spans.iter().map(|span| {
            let name = span.name.map(|name| &profile.names[usize::from(name)]);
            let kind =
                name.map_or("layer".to_owned(), |name| format!("{:?}", name.kind).to_lowercase());
            (kind, span.start_ns, span.duration_ns)
        }));
        slices.extend(passes.iter().map(|one| ("pass".to_owned(), one.start_ns, one.wall_ns)));
    }
    slices.sort();
    slices
}

/// All of spans and passes; those of no time where work is launched or handed off are for the arrows.
fn slices(parts: &[Read]) -> Vec<Slice> {
    let all = parts.iter().flat_map(|part| part.tracks.values().flatten());
    let is_wanted = |(kind, ..): &&Slice| kind != "hand-off" && kind != "launch";
    let mut all: Vec<Slice> = all.filter(is_wanted).cloned().collect();
    all.sort();
    all
}

/// Whether any two slices of a track nest or lie apart.
fn nests(part: &Read) -> bool {
    part.tracks.values().all(|slices| {
        let mut slices: Vec<(u64, u64)> =
            slices.iter().map(|&(_, start, duration)| (start, start + duration)).collect();
        slices.sort_by_key(|&(start, end)| (start, std::cmp::Reverse(end)));
        let mut open: Vec<u64> = Vec::new();
        slices.into_iter().all(|(start, end)| {
            while open.pop_if(|open| *open <= start).is_some() {}
            let is_inside = open.last().is_none_or(|&outer| end <= outer);
            open.push(end);
            is_inside
        })
    })
}

/// Whether each end of an arrow lies in a slice of its track, since a viewer draws it from there.
fn ends_are_in_slices(part: &Read) -> bool {
    part.ends.iter().all(|(track, at)| {
        let mut slices = part.tracks.get(track).into_iter().flatten();
        slices.any(|(_, start, duration)| (*start..=start + duration).contains(at))
    })
}

/// All parts, by what writes one and says whether it was the last.
fn parts(mut write: impl FnMut(&mut Vec<u8>) -> (TraceFile, bool)) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut bytes = Vec::new();
        let (part, is_last) = write(&mut bytes);
        assert_eq!(part.bytes, bytes.len() as u64);
        assert_eq!(part.left_out, 0);
        assert!(part.first_ns <= part.last_ns);
        all.push(bytes);
        assert!(is_last || part.spans + part.passes > 0, "a part with nothing in it");
        if is_last {
            return all;
        }
    }
}

fn of_chrome(profile: &Profile, part_bytes: u64) -> Vec<Read> {
    let mut trace = chrome::Trace::new(profile, part_bytes);
    let parts = parts(|out| {
        let part = trace.write_part(out, &mut |_| {}).expect("it can be written");
        (part, trace.is_done())
    });
    parts.iter().map(|part| read_chrome(part)).collect()
}

/// Nanoseconds of a figure in microseconds, to the digit.
fn nanos(text: &str) -> u64 {
    let (micros, nanos) = text.split_once('.').expect("three decimals");
    assert_eq!(nanos.len(), 3, "{text}");
    micros.parse::<u64>().expect("digits") * 1000 + nanos.parse::<u64>().expect("digits")
}

fn read_chrome(bytes: &[u8]) -> Read {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    let file: Value = serde_json::from_str(text).expect("JSON");
    let events = file["traceEvents"].as_array().expect("events");
    // An event is a line, from which times are read as they are written.
    let lines = text.lines().skip(1);
    let mut read = Read::default();
    for (event, line) in events.iter().zip(lines) {
        let after = |key: &str| {
            let at = line.find(key).unwrap_or_else(|| panic!("{key} in {line}")) + key.len();
            line[at..].split([',', '}']).next().expect("a number")
        };
        let track = || {
            event["tid"].as_u64().expect("a thread")
                | event["pid"].as_u64().expect("a process") << 32
        };
        match event["ph"].as_str() {
            Some("X") => {
                let kind = event["cat"].as_str().expect("a category").to_owned();
                let slice = (kind, nanos(after("\"ts\":")), nanos(after("\"dur\":")));
                read.launches.extend((slice.0 == "launch").then_some(slice.1));
                read.tracks.entry(track()).or_default().push(slice);
            }
            Some(end @ ("s" | "f")) => {
                read.arrows[usize::from(end == "f")] += 1;
                let at = nanos(after("\"ts\":"));
                read.ends.push((track(), at));
                let id = event["id"].as_u64().expect("a number");
                read.flow(id, end == "f", at);
            }
            _ => {}
        }
    }
    read
}

fn of_perfetto(profile: &Profile, part_bytes: u64) -> Vec<Read> {
    let mut trace = brickscope_formats::export::perfetto::Trace::new(profile, part_bytes);
    let parts = parts(|out| {
        let part = trace.write_part(out, &mut |_| {}).expect("it can be written");
        (part, trace.is_done())
    });
    parts.iter().map(|part| read_perfetto(part)).collect()
}

/// By the numbers of `trace_packet.proto` and `track_event.proto`.
fn read_perfetto(bytes: &[u8]) -> Read {
    use crate::export::wire::{Message, text};
    let mut read = Read::default();
    let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let mut tracks = Vec::new();
    let mut categories = BTreeMap::new();
    for packet in Message::new(bytes).messages(1) {
        for interned in packet.messages(12) {
            for category in interned.messages(1) {
                let name = String::from_utf8(text(category.all(2)[0]).to_owned()).expect("UTF-8");
                categories.insert(category.number(1), name);
            }
        }
        tracks.extend(packet.messages(60).iter().map(|track| track.number(1)));
        let at = packet.number(8);
        for event in packet.messages(11) {
            let track = event.number(11);
            assert!(tracks.contains(&track), "nothing describes track {track}");
            read.arrows[0] += event.all(47).len();
            read.arrows[1] += event.all(48).len();
            for (field, is_end) in [(47, false), (48, true)] {
                for id in event.numbers(field) {
                    read.flow(id, is_end, at);
                }
            }
            // A slice begins, a slice ends.
            let kind = event.number(9);
            if kind == 1 || kind == 2 {
                let newest = last.insert(track, at).unwrap_or_default();
                assert!(newest <= at, "track {track} goes back from {newest} to {at}");
            }
            match kind {
                1 => {
                    let [category] = event.numbers(3)[..] else { panic!("one category") };
                    let slice = (categories[&category].clone(), at);
                    open.entry(track).or_default().push(slice);
                }
                2 => {
                    let begun = open.get_mut(&track).and_then(Vec::pop);
                    let (kind, start) = begun.expect("an end has a begin");
                    read.tracks.entry(track).or_default().push((kind, start, at - start));
                }
                3 if event.numbers(3).iter().any(|number| categories[number] == "launch") => {
                    read.launches.push(at);
                }
                _ => {}
            }
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    read
}

fn all_of(profile: &Profile, part_bytes: u64) -> Vec<Vec<Read>> {
    vec![of_chrome(profile, part_bytes), of_perfetto(profile, part_bytes)]
}

proptest! {
    #[test]
    fn every_span_and_pass_is_one_slice_and_slices_nest(
        passes in prop::collection::vec(nesting::steps(), 0..6),
        log_capacity in prop_oneof![Just(1 << 16), 0_usize..40],
        part_bytes in prop_oneof![Just(u64::MAX), 0_u64..20_000],
    ) {
        let profile = super::profile(&passes, log_capacity);
        for parts in all_of(&profile, part_bytes) {
            prop_assert_eq!(slices(&parts), expected(&profile));
            for part in &parts {
                prop_assert!(nests(part), "{:?}", part);
                prop_assert!(ends_are_in_slices(part), "{:?}", part);
                prop_assert_eq!(part.arrows[0], part.arrows[1]);
            }
            let arrows: usize = parts.iter().map(|part| part.arrows[0]).sum();
            prop_assert_eq!(arrows, profile.dependencies.len());
        }
    }
}

/// A host that gives two passes to a device of two streams, whose second waits for the first.
fn on_device() -> Profile {
    let (main, side) = (StreamId(0), StreamId(1));
    let mut device = SimulatedDevice::new(2);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let mut timer = profiler.device().timer(&mut device).expect("it has a clock");
    for position in 0..2 {
        let pass = profiler.begin_pass(Phase::Decode);
        timer.begin_pass(&mut device, Phase::Decode, 1, position).expect("none is open");
        let down = BrickId::DownProjection;
        timer.brick(&mut device, main, Some(0), down, Work::elements(1)).expect("room");
        device.launch(main, 1_000);
        timer.depends(&mut device, side, main).expect("room");
        device.depend(side, main);
        timer.brick(&mut device, side, Some(0), down, Work::elements(1)).expect("room");
        device.launch(side, 2_000);
        timer.end_pass(&mut device).expect("it is open");
        timer.settle(&mut device, true).expect("it is there");
        profiler.end_pass(pass, 1, position);
    }
    timer.finish(&mut device).expect("it is there");
    profiler.profile()
}

#[test]
fn streams_are_tracks_and_arrows_lead_to_them_from_the_host() {
    let profile = on_device();
    assert_eq!((profile.passes.len(), profile.devices[0].streams.len()), (2, 2));
    let waits = profile.devices[0].dependencies.len();
    assert!(waits > 0);
    let streams = profile.devices[0].streams.iter();
    let mut launched: Vec<u64> =
        streams.flat_map(|stream| stream.launches.iter().map(|launch| launch.issued_ns)).collect();
    launched.sort_unstable();
    assert_eq!(launched.len(), 4, "a brick on each stream in each pass");
    for part_bytes in [u64::MAX, 1] {
        for parts in all_of(&profile, part_bytes) {
            assert_eq!(slices(&parts), expected(&profile));
            // A pass of the host and one of a device may be cut apart here; a launch and its kernel never are.
            assert!(
                parts
                    .iter()
                    .all(|part| part.flows_lead_forward(LAUNCHES) && ends_are_in_slices(part))
            );
            let mut launches: Vec<u64> =
                parts.iter().flat_map(|part| part.launches.clone()).collect();
            launches.sort_unstable();
            assert_eq!(launches, launched);
            if part_bytes == u64::MAX {
                let [part] = &parts[..] else { panic!("one part") };
                let is_launch =
                    |slices: &&Vec<Slice>| slices.iter().all(|(kind, ..)| kind == "launch");
                assert_eq!(part.tracks.values().filter(|slices| !is_launch(slices)).count(), 3);
                // From each pass to the device, from stream to stream, and from each launch.
                assert_eq!(part.arrows, [2 + waits + launched.len(); 2]);
            } else {
                assert!(parts.len() >= 2);
            }
        }
    }
}

/// Bricks of several kernels on two streams, launched one by one or from a graph, by a host whose clock was
/// taken to be later by `off_ns` than it is.
fn launched(passes: u64, kernels: u64, is_graph: bool, off_ns: u64) -> Profile {
    let mut device = SimulatedDevice::new(2).with_sets(3);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    let gemv = profiler.device_kernel("gemv", Default::default());
    let mut timer = profiler.device().timer(&mut device).expect("it has a clock");
    let issue = |timer: &mut DeviceTimer<'_>, device: &mut SimulatedDevice, position| {
        timer.begin_pass(device, Phase::Decode, 1, position).expect("none is open");
        for stream in [StreamId(0), StreamId(1)] {
            let down = BrickId::DownProjection;
            timer.brick(device, stream, Some(0), down, Work::elements(1)).expect("room");
            for _ in 0..kernels {
                timer.kernel(device, stream, gemv, Work::elements(1)).expect("a brick runs");
                if !is_graph {
                    device.launch(stream, 1_000);
                }
            }
        }
    };
    if is_graph {
        issue(&mut timer, &mut device, 0);
        let recorded = timer.end_recorded(&mut device).expect("room").expect("a pass is open");
        for position in 0..passes {
            device.host_works(777);
            let mut same = |_, work| work;
            timer.replayed(&mut device, &recorded, 1, position, &mut same).expect("none is open");
            // As a graph's nodes mark: in the order in which they were recorded.
            let (set, n_marks) = (recorded.set(), recorded.n_marks());
            device.begin_set(set).expect("it is there");
            for mark in 0..n_marks {
                let stream = StreamId(u16::from(
                    mark > u32::try_from(kernels).expect("few") - 1 && mark != n_marks - 2,
                ));
                device.mark(stream, set, mark).expect("it is there");
                device.launch(stream, 1_000);
            }
        }
    } else {
        for position in 0..passes {
            issue(&mut timer, &mut device, position);
            timer.end_pass(&mut device).expect("it is open");
        }
    }
    timer.finish(&mut device).expect("it is there");
    let mut profile = profiler.profile();
    for stream in &mut profile.devices[0].streams {
        stream.launches.iter_mut().for_each(|launch| launch.issued_ns += off_ns);
    }
    profile
}

#[test]
fn a_graph_is_launched_once_and_says_so_at_each_kernel() {
    let profile = launched(3, 4, true, 0);
    for stream in &profile.devices[0].streams {
        assert_eq!(stream.launches.len(), 12);
        assert!(stream.launches.iter().all(|launch| launch.kind == LaunchKind::Replayed));
    }
    for parts in all_of(&profile, u64::MAX) {
        let [part] = &parts[..] else { panic!("one part") };
        // One for each replay and stream, with one arrow.
        assert_eq!((part.launches.len(), part.arrows), (6, [6; 2]));
        assert!(part.flows_lead_forward(0));
    }
    let mut out = Vec::new();
    chrome::write(&profile, &mut out).expect("written");
    let text = String::from_utf8(out).expect("UTF-8");
    assert_eq!(text.matches("\"launch\":\"as part of a graph\"").count(), 24);
    assert_eq!(text.matches("\"name\":\"graph\"").count(), 6);
}

#[test]
fn what_seems_to_begin_before_its_launch_says_so_and_has_no_arrow() {
    let profile = launched(1, 2, false, 0);
    let error = profile.devices[0].clock_error_ns().expect("it was looked at");
    assert!(error > 0);
    let delay = |profile: &Profile| {
        let stream = &profile.devices[0].streams[0];
        stream.launches[0].delay_ns(&stream.spans[stream.launches[0].span as usize])
    };
    let first = delay(&profile);
    assert!(first >= 0);
    for (before, told) in [(1, "within the error"), (error + 1, "by more than the error")] {
        let profile = launched(1, 2, false, first as u64 + before);
        assert_eq!(delay(&profile), -(before as i64));
        let mut out = Vec::new();
        chrome::write(&profile, &mut out).expect("written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.contains(&format!("\"start_after_launch_ns\":-{before},")), "{text}");
        assert!(text.contains(told), "{text}");
        assert!(text.contains("device.0.stream.0.spans that seem to begin before their launch"));
        for parts in all_of(&profile, u64::MAX) {
            assert_eq!(parts[0].launches.len(), 4, "all were read, and are drawn");
            assert!(parts[0].arrows[0] < 4 && parts[0].flows_lead_forward(0));
        }
    }
}

#[test]
fn a_profile_from_before_launches_were_recorded_has_none_and_says_so() {
    let mut profile = launched(1, 2, false, 0);
    profile.devices[0].streams.iter_mut().for_each(|stream| stream.launches.clear());
    let json = profile.to_json();
    assert!(!json.contains("launches"));
    let profile = Profile::from_json(&json, "x".as_ref()).expect("it was written");
    for parts in all_of(&profile, u64::MAX) {
        assert_eq!((parts[0].launches.len(), parts[0].arrows), (0, [0; 2]));
    }
    let mut out = Vec::new();
    chrome::write(&profile, &mut out).expect("written");
    let file: Value = serde_json::from_slice(&out).expect("JSON");
    let reason = file["otherData"]["device.0.stream.0.absent.launches"].as_str().expect("a reason");
    assert!(reason.contains("earlier versions"), "{reason}");
}

#[test]
fn parts_begin_where_passes_do_and_keep_to_their_size() {
    let (profiler, hand) = nesting::on(1 << 16);
    let step = nesting::Step::Brick(3, vec![nesting::Step::Idle(5)]);
    for _ in 0..300 {
        nesting::pass(&profiler, &hand, Phase::Decode, &vec![step.clone(); 10]);
    }
    let profile = profiler.profile();
    const MOST: u64 = 100_000;
    let mut trace = chrome::Trace::new(&profile, MOST);
    let mut n_parts = 0;
    let mut seen = 0;
    while !trace.is_done() {
        let mut told = Vec::new();
        let mut out = Vec::new();
        let part = trace.write_part(&mut out, &mut |spans| told.push(spans)).expect("written");
        assert!(part.bytes <= MOST, "{part:?}");
        assert_eq!(part.spans, 10 * part.passes, "a pass is in one part: {part:?}");
        let read = read_chrome(&out);
        let first = read.tracks.values().flatten().min_by_key(|slice| slice.1).expect("slices");
        assert_eq!((first.0.as_str(), Some(first.1)), ("pass", part.first_ns));
        seen += part.spans;
        n_parts += 1;
        if trace.is_done() {
            assert_eq!(told.last(), Some(&seen));
        }
    }
    assert_eq!(seen, 3_000);
    assert!(n_parts > 3);
}

#[test]
fn a_profile_of_nothing_is_a_timeline_of_nothing() {
    let profile = Profile::empty(ClockInfo::default());
    for parts in all_of(&profile, 1) {
        let [part] = &parts[..] else { panic!("one part") };
        assert!(part.tracks.is_empty());
    }
}

#[test]
fn what_overlaps_without_end_is_counted_and_not_drawn_over_each_other() {
    let mut profile = super::profile(&[vec![nesting::Step::Brick(1, Vec::new())]], 100);
    let span = profile.spans[0];
    profile.spans = (0..40)
        .map(|nth| brickscope::Span {
            pass: None,
            parent: None,
            start_ns: 1_000_000 + nth,
            duration_ns: 100,
            ..span
        })
        .collect();
    let mut out = Vec::new();
    let part = chrome::Trace::new(&profile, u64::MAX).write_part(&mut out, &mut |_| {});
    let part = part.expect("written");
    assert_eq!((part.spans + part.left_out, part.spans), (40, 17));
    let read = read_chrome(&out);
    assert!(nests(&read));
    let file: Value = serde_json::from_slice(&out).expect("JSON");
    let told = file["otherData"]["left out"].as_str().expect("it says so");
    assert!(told.ends_with(": 23"), "{told}");
}

#[test]
fn numbers_that_nobody_recorded_end_in_a_file_or_an_error() {
    let mut profile = on_device();
    profile.process = Some(u32::MAX);
    profile.clock.anchors = vec![Anchor {
        at_ns: u64::MAX,
        monotonic_ns: 0,
        monotonic_raw_ns: 0,
        unix_ns: None,
        width_ns: 0,
    }];
    for (nth, span) in (0..).zip(&mut profile.spans) {
        span.lane = u32::MAX - nth;
        span.start_ns = u64::MAX - 1;
        span.duration_ns = u64::MAX;
        span.name = Some(u16::MAX - (nth % 3) as u16);
        span.pass = Some(u32::MAX);
    }
    for pass in &mut profile.passes {
        (pass.lane, pass.start_ns, pass.wall_ns) = (77, u64::MAX, u64::MAX);
        (pass.tokens, pass.position) = (u64::MAX, u64::MAX);
    }
    let device = &mut profile.devices[0];
    for launch in device.streams.iter_mut().flat_map(|stream| &mut stream.launches) {
        launch.issued_ns = u64::MAX;
    }
    device.ticks.ns_per_tick = f64::NAN;
    for edge in &mut device.dependencies {
        edge.to.lane = u32::MAX;
        edge.from.inside = Some(u32::MAX);
    }
    for part_bytes in [0, u64::MAX] {
        let mut trace = chrome::Trace::new(&profile, part_bytes);
        while !trace.is_done() {
            let mut out = Vec::new();
            trace.write_part(&mut out, &mut |_| {}).expect("a vector has room");
            serde_json::from_slice::<Value>(&out).expect("JSON");
        }
        {
            let mut trace = brickscope_formats::export::perfetto::Trace::new(&profile, part_bytes);
            while !trace.is_done() {
                trace.write_part(&mut Vec::new(), &mut |_| {}).expect("a vector has room");
            }
        }
    }
}
