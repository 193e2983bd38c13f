//! Traces of several ranks as one run: three ranks of two layers and four steps, of which every time is planted.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use brickscope::{MatchedBy, Phase, Profile};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::links::slow_links;
use brickscope_analysis::ranks::InCollectives;
use brickscope_analysis::view::{self, Size};
use brickscope_formats::import::{Format, ImportError, Options, join, read};
use brickscope_testing::gpu_trace::{Net, Planted, Recorded, Recording};
use proptest::prelude::*;

use super::LLAMA_BENCH;

/// What a rank's trace is made of.
#[derive(Clone)]
struct Made {
    rank: usize,
    /// How far its clock is ahead, in microseconds.
    ahead_us: i64,
    /// By how many microseconds each rank comes later to each collective.
    late_us: [i64; 3],
    steps: Range<i64>,
    /// Whether collectives have numbers.
    is_numbered: bool,
    /// A collective that the file lacks.
    missing: Option<i64>,
    /// By how many microseconds its collectives end later, from one to the next of three.
    scatter_us: i64,
    ranks: usize,
}

fn made(rank: usize, ahead_us: i64) -> Made {
    Made {
        rank,
        ahead_us,
        late_us: [0, 3, 50],
        steps: 0..4,
        is_numbered: false,
        missing: None,
        scatter_us: 0,
        ranks: 3,
    }
}

/// Three ranks, of which the third comes last, the second lacks a collective, and clocks are 5 ms apart.
fn three() -> Vec<Made> {
    vec![made(0, 0), Made { missing: Some(5), ..made(1, 5_000) }, made(2, -5_000)]
}

impl Made {
    fn text(&self) -> String {
        let mut events = Vec::new();
        let mut add = |cat: &str, name: &str, at: i64, dur: i64, args: String| {
            let at = at + self.ahead_us;
            let (pid, tid) = if cat == "kernel" { (self.rank, 7) } else { (4000, 4000) };
            events.push(format!(
                "{{\"ph\":\"X\",\"cat\":\"{cat}\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{at},\
                 \"dur\":{dur},\"args\":{{{args}}}}}"
            ));
        };
        let mut now = 100_000;
        for step in 0..4 {
            let begin = now;
            let is_there = self.steps.contains(&step);
            for layer in 0..2 {
                let k = 2 * step + layer;
                // No two are alike, so that clocks fit in one way only.
                let compute = 200 + (k * k * 37) % 101;
                let come = now + 30 + compute + self.late_us[self.rank];
                let last = now + 30 + compute + self.late_us.into_iter().max().unwrap_or(0);
                let end = last + 30 + k + (k % 3) * self.scatter_us;
                if is_there {
                    let (launch, calls) = (begin + 1 + 10 * layer, [10 * k + 1, 10 * k + 2]);
                    add(
                        "user_annotation",
                        &format!("model.layers.{layer}.mlp"),
                        launch,
                        9,
                        String::new(),
                    );
                    for (nth, call) in (0..).zip(calls) {
                        let call = format!("\"correlation\":{call}");
                        add("cuda_runtime", "cudaLaunchKernel", launch + 1 + 3 * nth, 1, call);
                    }
                    let on = format!("\"device\":{},\"stream\":7,\"correlation\"", self.rank);
                    add(
                        "kernel",
                        "gemm_kernel",
                        now + 30,
                        come - now - 30,
                        format!("{on}:{}", calls[0]),
                    );
                    let number = if self.is_numbered {
                        format!(",\"Seq\":{}", 70 + k)
                    } else {
                        String::new()
                    };
                    let of = format!(
                        "{on}:{},\"Collective name\":\"allreduce\",\"In msg nelems\":4096,\"dtype\":\"BFloat16\",\
                         \"Group size\":3,\"Process Group Name\":\"0\",\"Process Group Ranks\":\"[0, 1, 2]\"{number}",
                        calls[1]
                    );
                    if self.missing != Some(k) {
                        let name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)";
                        add("kernel", name, come, end - come, of);
                    }
                }
                now = last + 30 + k + 5;
            }
            if is_there {
                let name = format!("ProfilerStep#{step}");
                add("user_annotation", &name, begin, now - begin, String::new());
            }
            now += 40 + 7 * step;
        }
        format!(
            "{{\"schemaVersion\":1,\"distributedInfo\":{{\"backend\":\"nccl\",\"rank\":{},\"world_size\":{}}},\
             \"baseTimeNanoseconds\":1790857026000000000,\"traceEvents\":[\n{}\n]}}",
            self.rank,
            self.ranks,
            events.join(",\n")
        )
    }

    fn read(&self) -> (PathBuf, Profile) {
        let path = PathBuf::from(format!("traces/{}.json", self.rank));
        let profile = read(&self.text(), &path, Format::Chrome, &Options::default());
        (path, profile.expect("it is a trace"))
    }
}

fn joined(all: &[Made]) -> Result<Profile, ImportError> {
    let profile = join(all.iter().map(Made::read).collect())?;
    assert_eq!(profile.check(), Ok(()));
    let json = profile.to_json();
    let back = Profile::from_json(&json, "profile.json".as_ref()).expect("it was written");
    assert_eq!(back.to_json(), json);
    Ok(profile)
}

fn run(all: &[Made]) -> Profile {
    joined(all).expect("they are ranks of one job")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_ranks_wait_is_what_was_planted() {
    let profile = run(&three());
    let sums = InCollectives::of(&profile).expect("they have some in common");
    assert_eq!((sums.collectives, sums.with_a_root, sums.passes), (8, 0, 4));
    // The last one transfers for 30 + k µs; the first waits 50 µs, the second, which lacks k = 5, 47 µs.
    let all: u64 = (0..8).map(|k| 30_000 + 1_000 * k).sum();
    let parts: Vec<[u64; 4]> = sums
        .ranks
        .iter()
        .map(|of| [u64::from(of.rank), of.collectives, of.transfer_ns, of.wait_ns])
        .collect();
    assert_eq!(parts, [[0, 8, all, 8 * 50_000], [1, 7, all - 35_000, 7 * 47_000], [2, 8, all, 0]]);
    assert_eq!(sums.kinds.len(), 1);
    assert_eq!((&*sums.kinds[0].name, &*sums.kinds[0].group), ("all_reduce", "0"));
    // 4096 elements of two bytes each time.
    assert_eq!(sums.kinds[0].bytes, Some(8 * 8_192));
    let layers: Vec<(u16, u64, u64)> =
        sums.layers.iter().map(|of| (of.layer, of.collectives, of.wait_ns)).collect();
    assert_eq!(layers, [(0, 4, 4 * 97_000), (1, 4, 3 * 97_000 + 50_000)]);
    let straggler = sums.straggler.expect("one comes last");
    assert_eq!((straggler.rank, straggler.last, straggler.of), (2, 8, 8));
    assert_eq!(straggler.phase, Some(Phase::Decode));
    assert_eq!(straggler.others_wait_ns, 7 * 48_500 + 50_000);
    assert_eq!(straggler.lead_ns, 7 * 47_000 + 50_000);
}

#[test]
fn clocks_are_aligned_and_what_is_missing_is_counted() {
    let profile = run(&three());
    let ranks = profile.ranks.as_ref().expect("there are three");
    let of: Vec<_> = ranks
        .ranks
        .iter()
        .map(|of| (of.rank, of.shift_ns, of.shift_spread_ns, of.unmatched))
        .collect();
    assert_eq!(
        of,
        [
            (0, Some(0), Some(0), 0),
            (1, Some(-5_000_000), Some(0), 0),
            (2, Some(5_000_000), Some(0), 0)
        ]
    );
    let by: Vec<_> = ranks.ranks.iter().map(|of| of.matched_by).collect();
    assert_eq!(by, [MatchedBy::Ends, MatchedBy::Ends, MatchedBy::Order].map(Some));
    for of in &ranks.collectives {
        let start = |rank: u32| of.on.iter().find(|on| on.rank == rank).and_then(|on| on.start_ns);
        let first = start(0).expect("the first rank has all");
        assert_eq!(start(2), Some(first + 50_000));
        assert_eq!(start(1), (of.on.len() == 3).then_some(first + 3_000));
    }
    assert_eq!(ranks.collectives.iter().filter(|of| of.on.len() == 2).count(), 1);
    // The devices stand beside each other, with the passes of the first rank.
    let names: Vec<(Option<u32>, bool)> = profile
        .devices
        .iter()
        .map(|device| {
            (device.rank, device.name.starts_with(&format!("rank {}: ", device.rank.unwrap_or(9))))
        })
        .collect();
    assert_eq!(names, [(Some(0), true), (Some(1), true), (Some(2), true)]);
    for device in &profile.devices {
        let serials: Vec<u32> = device.streams[0].passes.iter().map(|pass| pass.serial).collect();
        assert_eq!(serials, [1, 2, 3, 4]);
    }
    // All ranks begin at once, and each computes 200 µs or more from 30 µs on.
    let begins: Vec<u64> =
        profile.devices.iter().map(|device| device.streams[0].spans[0].start_ns).collect();
    assert_eq!(begins, [30_000; 3]);
    let imported = profile.imported.as_ref().expect("it is imported");
    assert_eq!(imported.file, "traces/0.json and 2 more files");
    assert!(imported.conditions.contains(&("ranks".to_owned(), "3 of 3".to_owned())));
    for rank in [1, 2] {
        let why = format!("spans of the host of rank {rank}: the host shown is that of rank 0");
        assert!(imported.left_out.iter().any(|(of, n)| *of == why && *n > 0), "{imported:?}");
    }
}

#[test]
fn screens_name_the_straggler_with_its_evidence() {
    let profile = run(&three());
    // (7 × 48.5 + 50) ÷ 4 µs.
    let said =
        "rank 2 is the straggler: the others wait 97.4 µs a pass for it (8 of 8 collectives)";
    let screen = view::summary(&profile, Size { columns: 80, rows: 40 }, None).to_string();
    assert!(one_line(&screen).contains(&format!("Ranks 3 of 3: {said}")), "{screen}");
    // The host is that of rank 0, and tells nothing of the other devices.
    assert!(!screen.contains("rank 1 is busy"), "{screen}");
    let report = view::report(&profile);
    for said in [
        said,
        "0 8 668 µs 268 µs 400 µs 0 ns 0 of 8 1.93 ms",
        "1 7 562 µs 233 µs 329 µs 0 ns 0 of 7 1.96 ms",
        // What it computes more than the first one: 8 × 50 µs.
        "2 8 268 µs 268 µs 0 ns 0 ns 8 of 8 2.33 ms",
        "all_reduce 0 8 65.5 kB 268 µs - 0: 400 µs, 1: 329 µs, 2: 0 ns",
        "its clock is 5.00 ms ahead of that of rank 0, ± 0 ns",
        "its clock is 5.00 ms behind that of rank 0, ± 0 ns",
        "2 devices of other ranks: `--device 1` and on",
    ] {
        assert!(one_line(&report).contains(said), "{said}: {report}");
    }
    let found = Findings::of(&profile).found;
    let found = found.iter().find(|found| found.rule == "rank-comes-last").expect("it is found");
    assert_eq!(found.what, said);
    // (7 × 47 + 50) ÷ 4 µs.
    assert_eq!(found.gain.map(|gain| gain.highest_ns), Some(94_750.0));
    let json: serde_json::Value = serde_json::from_str(&view::json(&profile)).expect("it is JSON");
    assert_eq!(json["in_collectives"]["ranks"][0]["wait_ns"], 400_000);
    assert_eq!(json["in_collectives"]["straggler"]["rank"], 2);
}

#[test]
fn numbers_match_what_clocks_and_order_can_not() {
    let numbered = |rank, ahead_us| Made { is_numbered: true, ..made(rank, ahead_us) };
    // A day apart, and another part of the steps.
    let all = [numbered(0, 0), Made { steps: 2..4, ..numbered(1, 86_400_000_000) }];
    let profile = run(&all);
    let ranks = profile.ranks.as_ref().expect("there are two");
    assert_eq!(ranks.ranks[1].matched_by, Some(MatchedBy::Number));
    assert_eq!(ranks.ranks[1].shift_ns, Some(-86_400_000_000_000));
    assert_eq!(ranks.ranks.iter().map(|of| of.unmatched).collect::<Vec<_>>(), [4, 0]);
    let numbers: Vec<_> = ranks.collectives.iter().map(|of| (of.number, of.pass)).collect();
    assert_eq!(
        numbers,
        [(Some(74), Some(3)), (Some(75), Some(3)), (Some(76), Some(4)), (Some(77), Some(4))]
    );
    // So its steps are the last two of the first rank.
    let serials: Vec<u32> =
        profile.devices[1].streams[0].passes.iter().map(|pass| pass.serial).collect();
    assert_eq!(serials, [3, 4]);
}

#[test]
fn passes_of_a_rank_that_began_later_are_those_of_its_collectives() {
    let all = [made(0, 0), Made { steps: 1..4, ..made(1, 5_000) }];
    let profile = run(&all);
    let serials: Vec<u32> =
        profile.devices[1].streams[0].passes.iter().map(|pass| pass.serial).collect();
    assert_eq!(serials, [2, 3, 4]);
    // The other way round, the first step has no partner, and its work is in no pass.
    let profile = run(&[Made { steps: 1..4, ..made(0, 0) }, made(1, 5_000)]);
    let stream = &profile.devices[1].streams[0];
    let serials: Vec<u32> = stream.passes.iter().map(|pass| pass.serial).collect();
    assert_eq!(serials, [1, 2, 3]);
    assert!(stream.spans.iter().any(|span| span.pass.is_none()));
    let left_out = &profile.imported.as_ref().expect("it is imported").left_out;
    assert!(left_out.iter().any(|(why, n)| why.starts_with("passes of rank 1") && *n == 1));
    // The second rank began first, so all times count from there.
    assert!(profile.passes[0].start_ns > 0);
    let begins = profile.devices.iter().map(|device| device.streams[0].spans[0].start_ns);
    assert_eq!(begins.min(), Some(30_000));
}

#[test]
fn scattered_ends_align_no_clock_and_waits_stay() {
    let numbered = |rank, scatter_us| Made {
        is_numbered: true,
        late_us: [0, 50, 50],
        scatter_us,
        ..made(rank, 0)
    };
    let profile = run(&[numbered(0, 0), numbered(1, 100)]);
    let ranks = profile.ranks.as_ref().expect("there are two");
    assert_eq!(ranks.ranks[1].shift_ns, None);
    assert!(ranks.ranks[1].shift_absent.is_some());
    assert!(one_line(&view::report(&profile)).contains("its clock couldn't be aligned: the ends"));
    assert!(InCollectives::of(&profile).expect("they have some").ranks[0].wait_ns > 0);
}

#[test]
fn no_straggler_is_named_where_ranks_come_at_once() {
    let alike = |rank| Made { late_us: [0, 1, 0], ..made(rank, 0) };
    let profile = run(&[alike(0), alike(1), alike(2)]);
    let sums = InCollectives::of(&profile).expect("they have some");
    assert_eq!(sums.straggler, None);
    let ranks = profile.ranks.as_ref().expect("there are three");
    // They have one clock.
    assert!(ranks.ranks.iter().all(|of| of.shift_ns == Some(0)));
    let screen = view::summary(&profile, Size::default(), None).to_string();
    let line = one_line(&screen);
    assert!(line.contains("Ranks 3 of 3: 8 ") && line.contains(" transfer for "), "{screen}");
    assert!(line.contains("; beside that rank "), "{screen}");
    let unknown = Findings::of(&profile).unknown;
    assert!(unknown.iter().any(|of| of.rule == "rank-comes-last"), "{unknown:?}");
}

#[test]
fn a_phase_without_a_rate_has_none_beside_other_ranks() {
    // Steps that end on the host while their kernels run.
    let late = |rank: usize| {
        let text = made(rank, 0).text();
        let mut trace: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        for event in trace["traceEvents"].as_array_mut().expect("there are events") {
            if event["name"].as_str().is_some_and(|name| name.starts_with("ProfilerStep#")) {
                event["name"] = "execute_context_0(0)_generation_4(4)".into();
                event["dur"] = 100.into();
            }
        }
        let path = PathBuf::from(format!("{rank}.json"));
        let profile = read(&trace.to_string(), &path, Format::Chrome, &Options::default());
        (path, profile.expect("it is a trace"))
    };
    let tokens = |profile: &Profile| -> Vec<u64> {
        let streams = profile.devices.iter().flat_map(|device| &device.streams);
        streams.flat_map(|of| &of.phases).map(|of| of.tokens).collect()
    };
    let files = vec![late(0), late(1)];
    assert_eq!(tokens(&files[0].1), [0]);
    assert!(files[0].1.devices[0].streams[0].passes.iter().all(|pass| pass.tokens == 4));
    let profile = join(files).expect("they are two ranks");
    assert_eq!(profile.check(), Ok(()));
    assert_eq!(tokens(&profile), [0, 0]);
}

#[test]
fn a_file_alone_is_what_it_was() {
    let (path, profile) = made(1, 0).read();
    let ranks = profile.ranks.clone().expect("it is of a rank");
    assert_eq!((ranks.ranks[0].rank, ranks.ranks[0].collectives), (1, 8));
    assert_eq!(join(vec![(path, profile.clone())]).as_ref(), Ok(&profile));
    assert_eq!(InCollectives::of(&profile), None);
    let screen = view::summary(&profile, Size::default(), None).to_string();
    assert!(!screen.contains("Ranks"), "{screen}");
}

#[test]
fn files_that_are_not_of_one_job_are_refused() {
    let refused = |all: &[Made]| joined(all).expect_err("it is refused").to_string();
    assert_eq!(
        refused(&[made(0, 0), made(1, 0), made(0, 0)]),
        "traces/0.json is of rank 0, as traces/0.json is: a job has each rank once"
    );
    let other = Made { ranks: 8, ..made(1, 0) };
    assert_eq!(
        refused(&[made(0, 0), other]),
        "traces/1.json is of rank 1 of 8, and traces/0.json of one of 3: they aren't ranks of one job"
    );
    let bench = read(LLAMA_BENCH, "bench.json".as_ref(), Format::LlamaBench, &Options::default());
    let bench = ("bench.json".into(), bench.expect("it is one"));
    let error = join(vec![made(0, 0).read(), bench]).expect_err("it has no device").to_string();
    assert!(error.starts_with("bench.json is no trace with a device."), "{error}");
    assert!(join(Vec::new()).is_err());
}

#[test]
fn ranks_that_no_file_states_are_counted_in_order_and_said() {
    let plain = |of: Made, name: &str| {
        let text = of.text().replace("\"distributedInfo\"", "\"other\"");
        let path = PathBuf::from(name);
        let profile = read(&text, &path, Format::Chrome, &Options::default());
        (path, profile.expect("it is a trace"))
    };
    let by_name = join(vec![plain(made(2, 0), "x_rank2.json"), plain(made(1, 0), "x_rank1.json")]);
    let by_name = by_name.expect("they are two ranks");
    let numbers = |of: &Profile| -> Vec<u32> {
        of.ranks.iter().flat_map(|ranks| &ranks.ranks).map(|rank| rank.rank).collect()
    };
    assert_eq!(numbers(&by_name), [1, 2]);
    let in_order = join(vec![plain(made(2, 0), "b.json"), plain(made(1, 0), "a.json")]);
    let in_order = in_order.expect("they are two ranks");
    assert_eq!(numbers(&in_order), [0, 1]);
    let lacks = &in_order.imported.as_ref().expect("it is imported").lacks;
    assert!(lacks.iter().any(|lack| lack.reason.starts_with("the numbers of ranks")), "{lacks:?}");
}

#[test]
fn what_only_some_files_lack_is_said_with_their_ranks() {
    let with = |rank: usize, own: &str| {
        let (path, mut profile) = launched_late(rank);
        let imported = profile.imported.as_mut().expect("of a file");
        imported.lacks = ["all of them lack it", own]
            .map(|reason| brickscope::Absent { reason: reason.to_owned() })
            .to_vec();
        (path, profile)
    };
    let profile = join(vec![with(0, "work of 11 %"), with(1, "work of 10 %")]).expect("two ranks");
    let lacks: Vec<&str> = profile
        .imported
        .iter()
        .flat_map(|imported| &imported.lacks)
        .map(|lack| lack.reason.as_str())
        .collect();
    assert_eq!(lacks[..3], ["all of them lack it", "rank 0: work of 11 %", "rank 1: work of 10 %"]);
}

#[test]
fn the_device_of_another_rank_by_itself_says_how_busy_it_was() {
    let mut profile = join(vec![launched_late(0), launched_late(1)]).expect("two ranks");
    profile.devices = vec![profile.devices.swap_remove(1)];
    let screen = view::summary(&profile, Size::default(), None).to_string();
    let text = one_line(&screen);
    assert!(text.contains("the device is busy 1.50 ms of "), "{screen}");
    assert!(text.contains("Next: import the file of rank 1 alone"), "{screen}");
}

/// A rank whose host launches each of five kernels a pass 90 µs after the one before has ended.
fn launched_late(rank: usize) -> (PathBuf, Profile) {
    let mut events = Vec::new();
    for step in 0..6 {
        let begin = 1_000 * step;
        events.push(format!(
            "{{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#{step}\",\"pid\":1,\"tid\":1,\"ts\":{begin},\
             \"dur\":900}}"
        ));
        for kernel in 0..5 {
            let (at, call) = (begin + 10 + 150 * kernel, 10 * step + kernel + 1);
            events.push(format!(
                "{{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":{at},\
                 \"dur\":5,\"args\":{{\"correlation\":{call}}}}}"
            ));
            events.push(format!(
                "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm_kernel\",\"pid\":0,\"tid\":7,\"ts\":{},\"dur\":50,\
                 \"args\":{{\"device\":0,\"stream\":7,\"correlation\":{call}}}}}",
                at + 10
            ));
        }
    }
    let text = format!(
        "{{\"schemaVersion\":1,\"distributedInfo\":{{\"backend\":\"nccl\",\"rank\":{rank},\"world_size\":2}},\n\
         \"traceEvents\":[\n{}\n]}}",
        events.join(",\n")
    );
    let path = PathBuf::from(format!("{rank}.json"));
    let profile = read(&text, &path, Format::Chrome, &Options::default());
    (path, profile.expect("it is a trace"))
}

#[test]
fn what_is_found_of_devices_is_found_of_the_host_shown_alone() {
    // Of the other rank's host it isn't known how long its launches took.
    let profile = join(vec![launched_late(0), launched_late(1)]).expect("two ranks");
    assert_eq!(profile.devices.len(), 2);
    let findings = Findings::of(&profile);
    let late = findings.found.iter().filter(|found| found.rule == "launch-bound");
    let late: Vec<&str> = late.map(|found| &*found.what).collect();
    let [what] = &late[..] else { panic!("{late:?}") };
    assert!(what.starts_with("rank 0 waits for the host's launches for "), "{what}");
    assert!(!findings.unknown.iter().any(|of| of.why.contains("rank 1")), "{findings:?}");
    let screen = view::summary(&profile, Size::default(), None).to_string();
    assert!(one_line(&screen).contains("Next: rank 0 waits for the host's launches"), "{screen}");
}

#[test]
fn the_straggler_comes_next_if_it_costs_more_than_waits_do() {
    let screen = |all: &[Made]| {
        let text = view::summary(&run(all), Size { columns: 80, rows: 40 }, None).to_string();
        one_line(&text)
    };
    let text = screen(&three());
    let said = "Next: rank 2 is the straggler: the others wait 97.4 µs a pass for it (8 of 8 collectives); find out what";
    assert!(text.contains(said), "{text}");
    // 6 µs of 680 a pass, less than 3 %.
    let late = |rank| Made { late_us: [0, 0, 3], ..made(rank, 0) };
    let text = screen(&[late(0), late(1), late(2)]);
    assert!(text.contains("rank 2 is the straggler") && !text.contains("Next: rank 2"), "{text}");
}

proptest! {
    #[test]
    fn transfer_and_wait_are_all_of_the_time(
        late in prop::array::uniform3(0_i64..200),
        missing in prop::array::uniform3(prop::option::of(0_i64..8)),
        ahead in prop::array::uniform3(-9_000_i64..9_000),
    ) {
        let all: Vec<Made> = (0..3)
            .map(|rank| Made { late_us: late, missing: missing[rank], ..made(rank, ahead[rank]) })
            .collect();
        let profile = run(&all);
        let ranks = profile.ranks.as_ref().expect("there are three");
        let mut planted = [0_u64; 3];
        for of in &ranks.collectives {
            let least = of.transfer_ns().expect("two ranks or more have it");
            prop_assert!(of.on.iter().all(|on| on.duration_ns >= least));
            for on in &of.on {
                planted[on.rank as usize] += on.duration_ns;
            }
        }
        for of in InCollectives::of(&profile).iter().flat_map(|sums| &sums.ranks) {
            prop_assert_eq!(of.transfer_ns + of.wait_ns + of.with_a_root_ns, of.time_ns);
            prop_assert_eq!(of.time_ns, planted[of.rank as usize]);
        }
        // What a rank has alone is counted.
        for (rank, of) in ranks.ranks.iter().enumerate() {
            let common = ranks.collectives.iter().filter(|c| c.on.iter().any(|on| on.rank == of.rank));
            prop_assert_eq!(common.count() as u64 + of.unmatched, of.collectives, "{}", rank);
        }
    }
}

/// Eight ranks, which add up what they computed in groups; each kernel has a call of its own.
fn eight(group: u32, seed: u64) -> Recording {
    let recording = Recording { group, seed, ..Recording::of(Net::parallel(4)) };
    recording.eager().steps(&[32; 4])
}

fn recorded(recording: &Recording) -> Profile {
    let file = |of: Recorded| {
        let path = PathBuf::from(format!("rank{}.pt.trace.json", of.truth.rank));
        let profile = read(&of.trace, &path, Format::Chrome, &Options::default());
        (path, profile.expect("it is a trace"))
    };
    let profile = join(recording.ranks(8).into_iter().map(file).collect());
    let profile = profile.expect("they are ranks of one job");
    assert_eq!(profile.check(), Ok(()));
    profile
}

#[test]
fn of_eight_ranks_the_slow_one_is_the_straggler() {
    let slow = |recording: Recording| recording.plant(Planted::SlowRank { rank: 5, percent: 120 });
    // Also in graphs, of which the file tells no group.
    let in_graphs = Recording { is_eager: false, ..eight(0, 1) };
    for recording in [eight(0, 1), in_graphs] {
        let profile = recorded(&slow(recording));
        let sums = InCollectives::of(&profile).expect("they have some in common");
        let straggler = sums.straggler.expect("one comes last");
        // Two of each of four layers, in four steps.
        assert_eq!((straggler.rank, straggler.last, straggler.of), (5, 32, 32));
        assert!(sums.slow_links.is_empty());
    }
}

#[test]
fn the_group_with_the_slow_link_is_named() {
    for (group, slow, ranks) in [(4, 1, &[4, 5, 6, 7][..]), (2, 2, &[4, 5])] {
        let recording = eight(group, 1).plant(Planted::SlowLink { group: slow, percent: 250 });
        let profile = recorded(&recording);
        let links = slow_links(&profile);
        let [link] = &links[..] else { panic!("{links:?}") };
        // 32 requests with 8192 numbers of two bytes each.
        assert_eq!((&link.ranks[..], link.bytes, link.collectives), (ranks, 524_288, 32));
        let ratio = link.transfer_ns as f64 / link.others_ns as f64;
        assert!((2.4..2.6).contains(&ratio), "{link:?}");
        assert_eq!(link.other_groups, u64::from(8 / group - 1));
        let found = Findings::of(&profile).found;
        assert!(found.iter().any(|found| found.rule == "slow-link"), "{found:?}");
        assert!(found.iter().all(|found| found.rule != "rank-comes-last"), "{found:?}");
        let report = one_line(&view::report(&profile));
        assert!(report.contains("slow link all_reduce of group 1 (ranks 4 "), "{report}");
    }
}

#[test]
fn eight_clean_ranks_have_no_slow_link_and_no_straggler() {
    for seed in 0..10 {
        for group in [0, 2, 4] {
            let profile = recorded(&eight(group, seed));
            let sums = InCollectives::of(&profile).expect("they have some in common");
            assert!(sums.slow_links.is_empty(), "{seed}, {group}: {sums:?}");
            assert_eq!(sums.straggler, None, "{seed}, {group}");
        }
    }
}

#[test]
fn what_keeps_devices_waiting_is_found_and_nothing_in_a_clean_run() {
    let rules = |recording: Recording| -> Vec<&'static str> {
        let profile = recorded(&recording);
        let found = Findings::of(&profile).found;
        let rules: BTreeSet<&'static str> = found.iter().map(|found| found.rule).collect();
        rules.into_iter().collect()
    };
    // The host does something else for 400 µs between steps of 2 ms, in eight of them.
    let eight_steps = || Recording { is_eager: false, ..eight(0, 1) }.steps(&[32; 8]);
    let busy = Recording { host_ns: 400_000, ..eight_steps() };
    assert_eq!(rules(busy), ["gaps-between-passes"]);
    // Kernels of an eighth of their time are over before the host has launched the next one.
    let mut small = eight(0, 1);
    for kernel in small.net.layers.iter_mut().flatten() {
        kernel.ns /= 8;
    }
    assert!(rules(small).contains(&"graphs-off"));
    assert!(rules(eight(0, 1)).is_empty());
}
