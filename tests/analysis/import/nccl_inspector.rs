//! Files of NCCL's Inspector: eight processes, two groups of four and one of all, of which every time is planted.

use std::path::{Path, PathBuf};

use brickscope::{MatchedBy, Profile};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::links::slow_links;
use brickscope_analysis::ranks::InCollectives;
use brickscope_analysis::view::{self, Size};
use brickscope_formats::import::{Format, ImportError, Options, join, read};
use brickscope_testing::gpu_trace::Random;

use super::{NCCL, imported, refused};

const NUMBERS: u64 = 20;

/// Microseconds of each process: what a transfer in the group of all takes, by how much each rank comes later, and what a
/// transfer of 32 MiB takes in each of the two groups.
struct Made {
    all_us: u64,
    late_us: [u64; 8],
    half_us: [u64; 2],
    seed: u64,
}

impl Made {
    fn clean(seed: u64) -> Self {
        Self { all_us: 60, late_us: [0; 8], half_us: [200; 2], seed }
    }

    /// The files of all processes. Transfers are up to 5 % longer, and a rank comes up to 8 µs later, by chance.
    fn texts(&self) -> Vec<String> {
        let mut random = Random::new(self.seed);
        let mut texts = vec![String::new(); 8];
        for number in 0..NUMBERS {
            let mut add = |operation: &str, bytes: u64, us: u64, members: &[usize], id: &str| {
                let us = us + random.below(us / 20 + 1);
                let come: Vec<u64> =
                    members.iter().map(|&rank| self.late_us[rank] + random.below(8)).collect();
                let last = come.iter().copied().max().unwrap_or(0);
                for (at, (&rank, come)) in members.iter().zip(come).enumerate() {
                    texts[rank].push_str(&format!(
                        "{{\"header\":{{\"id\":\"{id}\",\"rank\":{at},\"n_ranks\":{},\"nnodes\":1}},\"metadata\":\
                         {{\"inspector_output_format_version\":\"v4.0\",\"dump_timestamp_us\":1748030377748202,\
                         \"hostname\":\"node1\",\"pid\":{}}},\"coll_perf\":{{\"coll\":\"{operation}\",\"coll_sn\":{number},\
                         \"coll_msg_size_bytes\":{bytes},\"coll_exec_time_us\":{},\"coll_timing_source\":\
                         \"kernel_gpu\"}}}}\n",
                        members.len(),
                        4_100 + rank,
                        last - come + us
                    ));
                }
            };
            add("AllReduce", 1 << 20, self.all_us, &[0, 1, 2, 3, 4, 5, 6, 7], "0xa0");
            for (half, id) in [(0, "0xb0"), (1, "0xb1")] {
                let members = [0, 1, 2, 3].map(|rank| 4 * half + rank);
                add("AllReduce", 32 << 20, self.half_us[half], &members, id);
                add("ReduceScatter", 8 << 20, 150, &members, id);
            }
        }
        texts
    }

    fn join(&self) -> Profile {
        joined(&self.texts()).expect("they are of one job")
    }
}

fn joined(texts: &[String]) -> Result<Profile, ImportError> {
    let file = |(nth, text): (usize, &String)| {
        let path = PathBuf::from(format!("node1-pid{}.log", 4_100 + nth));
        let profile = read(text, &path, Format::NcclInspector, &Options::default());
        (path, profile.expect("it has collectives"))
    };
    let profile = join(texts.iter().enumerate().map(file).collect())?;
    assert_eq!(profile.check(), Ok(()));
    let json = profile.to_json();
    let back = Profile::from_json(&json, Path::new("profile.json")).expect("it was written");
    assert_eq!(back.to_json(), json);
    Ok(profile)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn collectives_are_found_on_all_ranks_by_their_numbers() {
    let profile = Made::clean(1).join();
    let ranks = profile.ranks.as_ref().expect("there are eight");
    assert_eq!(ranks.ranks.iter().map(|of| of.rank).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    for of in &ranks.ranks {
        assert_eq!((of.collectives, of.unmatched), (3 * NUMBERS, 0));
        assert_eq!(of.matched_by, Some(MatchedBy::Number));
        assert!(of.file.ends_with(&format!("pid{}.log", 4_100 + of.rank)));
    }
    // One of all, and two of each half.
    assert_eq!(ranks.collectives.len() as u64, 5 * NUMBERS);
    for of in &ranks.collectives {
        let kind = &ranks.kinds[of.kind as usize];
        assert_eq!(Some(of.on.len() as u32), kind.group_size);
        assert!(of.on.iter().all(|on| on.start_ns.is_none() && on.duration_ns >= 60_000));
    }
    let scattered = ranks.kinds.iter().filter(|kind| kind.name == "reduce_scatter");
    // Four times what a rank gets.
    assert!(scattered.map(|kind| kind.bytes).all(|bytes| bytes == Some(32 << 20)));
    let of = profile.imported.as_ref().expect("it is imported");
    assert_eq!(of.file, "node1-pid4100.log and 7 more files");
    assert!(of.conditions.contains(&("ranks".to_owned(), "8 of 8".to_owned())), "{of:?}");
}

#[test]
fn the_rank_that_comes_last_and_the_slow_group_are_named() {
    let mut made = Made::clean(1);
    made.late_us[5] = 40;
    let profile = made.join();
    let straggler = InCollectives::of(&profile).and_then(|sums| sums.straggler);
    assert_eq!(straggler.map(|of| of.rank), Some(5));
    assert!(slow_links(&profile).is_empty());

    let profile = Made { half_us: [200, 400], ..Made::clean(1) }.join();
    let links = slow_links(&profile);
    let [link] = &links[..] else { panic!("{links:?}") };
    assert_eq!((&*link.group, &link.ranks[..], link.bytes), ("0xb1", &[4, 5, 6, 7][..], 32 << 20));
    assert!((400_000..=420_000).contains(&link.transfer_ns), "{link:?}");
    assert!((200_000..=210_000).contains(&link.others_ns), "{link:?}");
    let found = Findings::of(&profile).found;
    let found = found.iter().find(|found| found.rule == "slow-link").expect("it is found");
    assert!(found.what.starts_with("all_reduce of group 0xb1 (ranks 4 to 7) transfers 34 MB in 4"));
    let screen = view::summary(&profile, Size { columns: 80, rows: 40 }, None).to_string();
    let said = "It has 100 collectives of 8 ranks, and times of nothing else.";
    assert!(one_line(&screen).contains(said), "{screen}");
    assert!(one_line(&screen).contains("Ranks 8 of 8: "), "{screen}");
    assert!(one_line(&screen).contains("ranks 4 to 7"), "{screen}");
    let report = view::report(&profile);
    assert!(one_line(&report).contains("the other group in 20"), "{report}");
    assert!(
        one_line(&report).contains("60 of 60 collectives found on other ranks, by their numbers")
    );
}

#[test]
fn clean_runs_name_nobody() {
    for seed in 0..40 {
        let profile = Made::clean(seed).join();
        assert!(slow_links(&profile).is_empty(), "{seed}");
        let sums = InCollectives::of(&profile).expect("there are some");
        assert_eq!(sums.straggler, None, "{seed}");
    }
}

#[test]
fn all_files_in_one_are_the_same_run() {
    let texts = Made::clean(1).texts();
    let of = |profile: &Profile| InCollectives::of(profile).map(|sums| (sums.ranks, sums.kinds));
    let one = imported(&texts.concat(), Format::NcclInspector);
    assert_eq!(of(&one), of(&joined(&texts).expect("they are of one job")));
}

#[test]
fn files_that_are_of_one_rank_are_refused() {
    let texts = Made::clean(1).texts();
    let said = joined(&[texts[0].clone(), texts[0].clone()]).expect_err("twice").to_string();
    assert!(said.starts_with("node1-pid4101.log is of rank 0, as node1-pid4100.log is"), "{said}");
}

#[test]
fn a_file_alone_says_what_is_missing() {
    let profile = imported(NCCL, Format::NcclInspector);
    let ranks = profile.ranks.as_ref().expect("there is one");
    let [rank] = &ranks.ranks[..] else { panic!("{ranks:?}") };
    assert_eq!((rank.rank, rank.collectives, rank.point_to_point), (1, 4, 1));
    let of: Vec<_> = ranks
        .collectives
        .iter()
        .map(|of| (&*ranks.kinds[of.kind as usize].name, of.number, of.on[0].duration_ns))
        .collect();
    assert_eq!(
        of,
        [
            ("all_reduce", Some(1_407), 412_000),
            ("all_reduce", Some(1_408), 409_000),
            ("all_gather", Some(96), 198_000),
            ("broadcast", Some(12), 21_000)
        ]
    );
    // One that breaks off, one by the host's clock, and one that wasn't written.
    let left_out = &profile.imported.as_ref().expect("it is imported").left_out;
    assert_eq!(left_out.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 1, 1], "{left_out:?}");
    let screen = view::summary(&profile, Size::default(), None).to_string();
    assert!(one_line(&screen).contains("4 collectives of one rank"), "{screen}");
    assert!(one_line(&screen).contains("import the files of all ranks together"), "{screen}");
    let said = refused("{}", Format::NcclInspector, &Options::default());
    assert!(said.contains("no collective of NCCL's Inspector"), "{said}");
}
