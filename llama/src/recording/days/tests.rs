use brickscope::{MockClock, Phase, Profile};
use tempfile::NamedTempFile;

use super::super::format::{Head, OfPass, PAGES, word};
use super::super::{groups, replay};
use super::*;

const PASSES: u64 = 500;
/// The graph of most passes.
const GRAPH: u32 = 7;

fn record(kind: Record, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("it is short");
    let mut bytes = word([kind as u32, len]).to_le_bytes().to_vec();
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn words(kind: Record, words: &[u64]) -> Vec<u8> {
    record(kind, &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
}

/// A product of a layer, and the head.
fn nodes() -> Vec<u8> {
    nodes_of(GRAPH)
}

fn nodes_of(graph: u32) -> Vec<u8> {
    let tensor =
        |name: &str| format!(r#""name":"{name}","type":"f32","ne":[64,1,1,1],"bytes":256"#);
    let product = |out: &str, weight: &str| {
        let (out, weight, x) = (tensor(out), tensor(weight), tensor("x"));
        format!(r#"{{"op":"MUL_MAT",{out},"src":[{{{weight}}},{{{x}}}]}}"#)
    };
    let first = product("Qcur-0", "blk.0.attn_q.weight");
    let head = product("result_output", "output.weight");
    record(Record::Nodes, format!(r#"{{"graph":{graph},"nodes":[{first},{head}]}}"#).as_bytes())
}

/// More than a page of what isn't needed again.
fn padding() -> Vec<u8> {
    record(Record::Lost, &[b'x'; 100_000])
}

/// When a pass begins, and how long it takes: every hundredth long.
fn times(nth: u64) -> [u64; 2] {
    let slow = u64::from(nth % 100 == 99) * 9_000;
    [10_000 + nth * 50_000, 5_000 + nth * 7 % 97 * 10 + slow]
}

/// The records of a pass with so many tokens.
fn pass_of(nth: u64, tokens: u32) -> Vec<u8> {
    pass_by(nth, tokens, GRAPH)
}

fn pass_by(nth: u64, tokens: u32, number: u32) -> Vec<u8> {
    let [begin, wall] = times(nth);
    let end = begin + wall;
    let head = Head { number, threads: 2, of_thread: 0 }.word();
    let graph = [head, begin + 100, end - 50, begin + 100, begin + 3_000];
    let of = OfPass { graphs: 1, is_decode: true, ..OfPass::default() }.word();
    let place = u32::try_from(nth).expect("it is small") + 1;
    let pass = [begin, end, tokens.into(), nth, 0, of, word([place, place + tokens])];
    [words(Record::Graph, &graph), words(Record::Pass, &pass)].concat()
}

/// The records of each pass: one token after the other.
fn passes() -> Vec<Vec<u8>> {
    (0..PASSES).map(|nth| pass_of(nth, 1)).collect()
}

/// The same, but each fiftieth is a prompt of a new length, whose graph is described in it.
fn passes_with_prompts() -> Vec<Vec<u8>> {
    let of_pass = |nth: u64| {
        if nth % 50 != 30 {
            return pass_of(nth, 1);
        }
        let [begin, _] = times(nth);
        let described = words(Record::Described, &[begin + 10, begin + 60, 0]);
        let tokens = u32::try_from(nth).expect("it is small") + 40;
        [described, pass_of(nth, tokens)].concat()
    };
    (0..PASSES).map(of_pass).collect()
}

/// The file as it is after each of some pieces, and all of it.
fn file() -> (Vec<u64>, Vec<u8>) {
    file_of(passes())
}

fn file_of(passes: Vec<Vec<u8>>) -> (Vec<u64>, Vec<u8>) {
    let mut bytes = vec![0; HEADER];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&VERSION.to_le_bytes());
    bytes[24..32].copy_from_slice(&4321_u64.to_le_bytes());
    for records in [padding(), nodes(), padding()] {
        bytes.extend(records);
    }
    let mut used = Vec::new();
    for pass in passes {
        bytes.extend(pass);
        used.push(bytes.len() as u64);
    }
    let all = bytes.len() as u64;
    bytes[16..24].copy_from_slice(&all.to_le_bytes());
    (used, bytes)
}

/// Follows it to its end.
fn followed(limits: Limits) -> (Recorded, Vec<u8>) {
    let (_on_disk, days, bytes) = following(limits, None);
    (days.finish().expect("it can be read"), bytes)
}

/// Follows it, while a few passes are written at a time, and what isn't needed is taken away. The last of them aren't read yet.
fn following(limits: Limits, when: Option<&str>) -> (NamedTempFile, Days, Vec<u8>) {
    let (used, bytes) = file();
    let on_disk = NamedTempFile::new().expect("a file");
    on_disk.as_file().write_all_at(&bytes, 0).expect("it can be written");
    let mut days =
        Days::follow(on_disk.path(), MockClock::default().clock(), limits).expect("it is there");
    if let Some(when) = when {
        days = days.watching_for(when.parse().expect("a condition"), limits);
    }
    let begin = (HEADER + padding().len()) as u64;
    let described = begin..begin + nodes().len() as u64;
    let mut given = 0;
    for used in used.iter().skip(6).step_by(7) {
        on_disk.as_file().write_all_at(&used.to_le_bytes(), 16).expect("it can be written");
        while let Some(free) = days.advance().expect("it can be read") {
            for range in free {
                assert!(range.end <= described.start || range.start >= described.end);
                given += range.end - range.start;
                let len = usize::try_from(range.end - range.start).expect("it is short");
                on_disk.as_file().write_all_at(&vec![0; len], range.start).expect("ours");
            }
            days.release().expect("it can be written");
            let mut read = [0; 8];
            on_disk.as_file().read_exact_at(&mut read, 40).expect("it is there");
            assert_eq!(u64::from_le_bytes(read), *used);
        }
        assert!(days.recorded.events.len() <= 2, "what has ended is taken out");
    }
    assert!(given >= PAGES as u64, "room is given back");
    let all = used.last().expect("there are passes");
    on_disk.as_file().write_all_at(&all.to_le_bytes(), 16).expect("it can be written");
    (on_disk, days, bytes)
}

fn replayed(recorded: &Recorded) -> Profile {
    let groups = groups(recorded);
    let profiler = BrickProfiler::with_clock(MockClock::default().clock());
    let profile = replay(recorded, &groups[0], profiler).profile;
    profile.check().expect("it adds up");
    profile
}

#[test]
fn what_fits_is_as_if_nobody_had_followed_it() {
    let (recorded, bytes) = followed(Limits::default());
    let whole = Recorded::read(&bytes, Path::new("7.nodes")).expect("it is whole");
    assert!(recorded.part.is_none());
    assert_eq!((recorded.process, &recorded.events), (whole.process, &whole.events));
    assert_eq!(recorded.graphs, whole.graphs);
}

#[test]
fn sums_are_those_of_all_passes_and_the_slow_ones_are_there() {
    let (recorded, _) = followed(Limits { slowest: 20_000, sampled: 10_000 });
    let profile = replayed(&recorded);
    let kept = profile.kept.as_ref().expect("not all were kept");
    let walls: u64 = (0..PASSES).map(|nth| times(nth)[1]).sum();
    let decode = profile.phase(Phase::Decode).expect("it decoded");
    assert_eq!((decode.passes, decode.tokens, decode.wall_ns), (PASSES, PASSES, walls));
    // All but the time before the graph and after it.
    assert_eq!(decode.attributed_ns, walls - PASSES * 150);
    assert_eq!((kept.walls[0].walls.count, kept.walls[0].walls.total_ns), (PASSES, walls));
    let end = |nth: u64| times(nth).iter().sum::<u64>();
    let intervals = &kept.intervals;
    assert_eq!((intervals.count, intervals.total_ns), (PASSES - 1, end(PASSES - 1) - end(0)));
    let products = profile.totals.iter().filter(|total| total.stats.count == PASSES).count();
    assert!(products >= 2, "{:?}", profile.totals);
    for slow in (99..PASSES).step_by(100) {
        let [begin, wall] = times(slow);
        let is_it = |pass: &&brickscope::Pass| (pass.start_ns, pass.wall_ns) == (begin, wall);
        let pass = profile.passes.iter().find(is_it);
        let pass = pass.unwrap_or_else(|| panic!("pass {slow} isn't there"));
        let spans = profile.spans.iter().filter(|span| span.pass == Some(pass.serial));
        assert!(spans.count() >= 2, "with its bricks");
    }
    let weights: f64 = kept.weights().values().sum();
    assert!((weights + kept.slowest as f64 - PASSES as f64).abs() < 1e-6, "{weights}");
    assert_eq!(profile.passes.len() as u64 + profile.dropped.passes, PASSES);
    assert!((10..200).contains(&profile.passes.len()), "{}", profile.passes.len());
    // Half of all passes are faster than the one that stands for them.
    let typical = profile.typical_pass(Phase::Decode).expect("it decoded").wall_ns;
    assert!(typical < 9_000, "{typical}");
}

/// Every hundredth token comes late.
#[test]
fn tokens_over_a_limit_are_kept_whole_with_their_neighbours() {
    let limits = Limits { slowest: 60_000, sampled: 10_000 };
    let (_on_disk, days, _) = following(limits, Some("token>55us"));
    let profile = replayed(&days.finish().expect("it can be read"));
    let fired = profile.fired.expect("there was a condition");
    assert_eq!(fired.line(), "5 tokens took over 55 µs; 5 are kept whole");
    for slow in (99..PASSES).step_by(100) {
        for near in slow - 2..(slow + 3).min(PASSES) {
            let [begin, wall] = times(near);
            let is_it = |pass: &&brickscope::Pass| (pass.start_ns, pass.wall_ns) == (begin, wall);
            let pass = profile.passes.iter().find(is_it);
            let pass = pass.unwrap_or_else(|| panic!("pass {near} isn't there"));
            let spans = profile.spans.iter().filter(|span| span.pass == Some(pass.serial));
            assert!(spans.count() >= 2, "with its bricks");
        }
    }
    let kept = profile.kept.as_ref().expect("not all were kept");
    assert_eq!((kept.passes, kept.around), (PASSES, 5 * 5 - 2), "the last one has none after it");
    let sampled: f64 = kept.weights().values().sum();
    let all = sampled + (kept.slowest + kept.around) as f64;
    assert!((all - PASSES as f64).abs() < 1e-6, "{sampled}");
    // Sums are of all, as without a condition.
    let (recorded, _) = followed(limits);
    assert_eq!(profile.phases, replayed(&recorded).phases);
}

#[test]
fn a_condition_that_never_comes_true_is_told_too() {
    let (_on_disk, days, _) = following(Limits::default(), Some("pass>1s"));
    let recorded = days.finish().expect("it can be read");
    assert!(recorded.part.is_none());
    let fired = replayed(&recorded).fired.expect("there was a condition");
    assert_eq!(fired.line(), "no pass took over 1 s");
    let (recorded, _) = followed(Limits::default());
    assert_eq!(replayed(&recorded).fired, None);
}

#[test]
fn what_is_kept_so_far_is_a_recording_and_it_goes_on() {
    for limits in [Limits::default(), Limits { slowest: 20_000, sampled: 10_000 }] {
        let (_on_disk, days, _) = following(limits, Some("token>55us"));
        let so_far = days.so_far();
        let profile = replayed(&so_far);
        let listed = so_far.events.iter().filter(|event| matches!(event, Event::Pass(_))).count();
        let passes = profile.kept.as_ref().map_or(listed as u64, |kept| kept.passes);
        // Three passes aren't read yet. Of the last one it isn't known what comes after it: it has ended.
        assert_eq!(passes, PASSES - 3);
        assert_eq!(profile.kept.is_none(), limits == Limits::default());
        assert_eq!(profile.fired.map(|fired| fired.fired), Some(4));
        assert_eq!(days.so_far().events, so_far.events, "it changes nothing");
        let (_on_disk, alone, _) = following(limits, Some("token>55us"));
        let [ended, alone] = [days, alone].map(|days| days.finish().expect("it can be read"));
        assert_eq!(ended.events, alone.events);
        assert_eq!(replayed(&ended).fired.map(|fired| fired.fired), Some(5));
    }
}

/// Whether a prompt counts whose length is new is known when another one of that length comes, or none any more. It took its
/// time all the same, and further tokens waited for it.
#[test]
fn prompts_of_new_lengths_are_in_what_is_kept_so_far() {
    let (_, bytes) = file_of(passes_with_prompts());
    for limits in [Limits::default(), Limits { slowest: 20_000, sampled: 10_000 }] {
        let on_disk = NamedTempFile::new().expect("a file");
        on_disk.as_file().write_all_at(&bytes, 0).expect("it can be written");
        let clock = MockClock::default().clock();
        let mut days = Days::follow(on_disk.path(), clock, limits).expect("it is there");
        while days.advance().expect("it can be read").is_some() {}
        let so_far = replayed(&days.so_far());
        let prompts = so_far.phase(Phase::Prefill).expect("it read prompts").passes;
        let decodes = so_far.phase(Phase::Decode).expect("it decoded").passes;
        assert_eq!((prompts, decodes), (PASSES / 50, PASSES - PASSES / 50));
        // As often as it is asked for, and in the end.
        let ended = |days: Days| replayed(&days.finish().expect("it can be read"));
        for more in [replayed(&days.so_far()), ended(days)] {
            assert_eq!((&more.passes, &more.kept), (&so_far.passes, &so_far.kept));
            for phase in [Phase::Prefill, Phase::Decode] {
                assert_eq!(more.phase(phase), so_far.phase(phase));
            }
            let times = |profile: &Profile| -> u64 {
                profile.totals.iter().map(|total| total.stats.total_ns).sum()
            };
            assert_eq!((more.totals.len(), times(&more)), (so_far.totals.len(), times(&so_far)));
        }
    }
}

/// Each waits, since its length is new, and would have its description in memory.
#[test]
fn many_prompts_of_new_lengths_with_graphs_of_their_own_are_read_one_after_the_other() {
    let prompts = 3 * u32::try_from(MOST_SHAPES).expect("it is small");
    let mut records = vec![pass_of(0, 1), pass_of(1, 1)];
    for (at, graph) in (2..).step_by(2).zip(100..100 + prompts) {
        let [begin, _] = times(at);
        let described = words(Record::Described, &[begin + 10, begin + 60, 0]);
        records.push([nodes_of(graph), described, pass_by(at, graph, graph)].concat());
        records.push(pass_of(at + 1, 1));
    }
    let (used, bytes) = file_of(records);
    let on_disk = NamedTempFile::new().expect("a file");
    on_disk.as_file().write_all_at(&bytes, 0).expect("it can be written");
    let clock = MockClock::default().clock();
    let mut days = Days::follow(on_disk.path(), clock, Limits::default()).expect("it is there");
    // As they are written.
    for used in used {
        on_disk.as_file().write_all_at(&used.to_le_bytes(), 16).expect("it can be written");
        while days.advance().expect("it can be read").is_some() {}
    }
    assert!(days.not_judged.len() > 2 * MOST_SHAPES, "{}", days.not_judged.len());
    let mut now = days.clone();
    now.sum_apart();
    assert!(now.recorded.graphs.len() <= MOST_SHAPES, "{}", now.recorded.graphs.len());
    assert_eq!(now.not_judged.len(), days.not_judged.len());
    // All have their names.
    let so_far = replayed(&days.so_far());
    let passes = so_far.phase(Phase::Prefill).expect("it read prompts").passes;
    assert_eq!(passes, u64::from(prompts));
    let ended = replayed(&days.finish().expect("it can be read"));
    for phase in [Phase::Prefill, Phase::Decode] {
        assert_eq!(ended.phase(phase), so_far.phase(phase));
    }
}

/// A token of one sequence that waits for a pass of another one is slow, and so is that pass.
#[test]
fn the_passes_between_two_tokens_are_as_slow_as_these() {
    let mut intervals = Intervals::default();
    let pass = |numbers: &[(u32, Option<u32>)], sequences: &[[u32; 2]]| crate::recording::Pass {
        numbers: numbers.to_vec(),
        sequences: sequences.to_vec(),
        is_decode: true,
        ..crate::recording::Pass::default()
    };
    let one = Some(1);
    assert!(intervals.add(&pass(&[(0, one)], &[[0, 9]]), 100).is_empty());
    assert_eq!(intervals.add(&pass(&[(0, one)], &[[9, 10]]), 150), [(100, 50)]);
    // The prompt of another one, in two pieces.
    assert!(intervals.add(&pass(&[(1, Some(0))], &[[0, 512]]), 900).is_empty());
    let both = pass(&[(0, one), (1, one)], &[[10, 11], [512, 700]]);
    assert_eq!(intervals.add(&both, 1_000), [(150, 850)]);
    // The next request goes on with what is in the cache: that it waited for somebody to ask is no time between tokens.
    assert!(intervals.add(&pass(&[(1, one)], &[[700, 730]]), 9_000).is_empty());
    // Four were drafted, two of them refused, and all come at once.
    assert_eq!(intervals.add(&pass(&[(1, Some(4))], &[[730, 734]]), 9_100), [(9_000, 100)]);
    assert_eq!(intervals.add(&pass(&[(1, one)], &[[732, 733]]), 9_200), [(9_100, 100)]);
}

#[test]
fn what_is_no_recording_is_refused() {
    let on_disk = NamedTempFile::new().expect("a file");
    let follow = || {
        let clock = MockClock::default().clock();
        Days::follow(on_disk.path(), clock, Limits::default()).expect("it is there")
    };
    // It is just being made.
    assert_eq!(follow().advance(), Ok(None));
    on_disk.as_file().write_all_at(&[0xff; 128], 0).expect("it can be written");
    let refused = follow().advance().expect_err("it is none").to_string();
    assert!(refused.contains("not a recording of this version"), "{refused}");
    let (_, mut bytes) = file();
    let long = (bytes.len() as u64 + 800).to_le_bytes();
    bytes[16..24].copy_from_slice(&long);
    on_disk.as_file().write_all_at(&bytes, 0).expect("it can be written");
    assert!(follow().advance().is_err(), "it states more than there is");
}

/// As of a client that sends all its requests at once, and of a file without room.
#[test]
fn what_is_only_counted_is_counted_though_nothing_is_written_after_it() {
    let (on_disk, mut days, _) = following(Limits::default(), None);
    while days.advance().expect("it can be read").is_some() {}
    for (at, count) in [(32, 3_u64), (48, 5)] {
        on_disk.as_file().write_all_at(&count.to_le_bytes(), at).expect("it can be written");
    }
    assert_eq!(days.advance(), Ok(None));
    assert_eq!((days.so_far().refused, days.so_far().missed), (3, 5));
    let recorded = days.finish().expect("it can be read");
    assert_eq!((recorded.refused, recorded.missed), (3, 5));
}

/// A GiB of short passes would be more than a profile lists, and of long ones more than it has rows for.
#[test]
fn what_is_kept_has_room_in_a_profile() {
    let all = 1 << 30;
    for (rows, most) in [(4, MOST_PASSES), (2_000, MOST_ROWS / 2_000)] {
        let passes = all / least_bytes(all, rows);
        assert!((most / 2..=most).contains(&passes), "{passes} of {rows} rows");
    }
    assert_eq!(least_bytes(0, 7), 0);
}
