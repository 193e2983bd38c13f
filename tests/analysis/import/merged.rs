//! Files that a tool merged of the traces of several ranks, whose calls have the same numbers.

use std::path::PathBuf;

use brickscope::Profile;
use brickscope_formats::import::{Format, Options, join, read, read_capture};
use brickscope_testing::gpu_trace::{Net, Planted, Recorded, Recording};

use super::{import, imported};

/// Two ranks of four layers and four steps, of which the second computes longer.
fn two(is_eager: bool) -> Vec<Recorded> {
    let recording = Recording { seed: 3, ..Recording::of(Net::parallel(4)) }.eager();
    let recording = recording.steps(&[32; 4]).plant(Planted::SlowRank { rank: 1, percent: 120 });
    Recording { is_eager, ..recording }.ranks(2)
}

/// The events of a trace, one a line, with what is before them.
fn parts(trace: &str) -> (&str, Vec<&str>) {
    let begin = "\"traceEvents\": [\n";
    let at = trace.find(begin).expect("it has events") + begin.len();
    let (events, _) = trace[at..].split_once("\n]}").expect("they end");
    (&trace[..at], events.lines().map(|line| line.trim_end_matches(',')).collect())
}

/// An event with a label before its process, as SGLang's merger writes it.
fn with_label(event: &str, label: &str) -> String {
    let (before, rest) = event.split_once("\"pid\":").expect("it has a process");
    let (pid, after) = rest.split_once(',').expect("it has a thread");
    format!("{before}\"pid\":\"[{label}] {pid}\",{after}")
}

fn is_of_device(event: &str) -> bool {
    event.contains(r#""cat":"kernel""#) || event.contains(r#""cat":"gpu_"#)
}

fn file(head: &str, events: &[String]) -> String {
    format!("{head}{}\n]}}\n", events.join(",\n"))
}

/// A file with all ranks, which states what the first one does.
fn merged(ranks: &[Recorded], labels: &[&str]) -> String {
    let labelled = ranks.iter().zip(labels).flat_map(|(rank, label)| {
        parts(&rank.trace).1.into_iter().map(|event| with_label(event, label)).collect::<Vec<_>>()
    });
    file(parts(&ranks[0].trace).0, &labelled.collect::<Vec<_>>())
}

fn joined(ranks: &[Recorded], options: &Options) -> Profile {
    let one = |of: &Recorded| {
        let path = PathBuf::from(format!("rank{}.pt.trace.json", of.truth.rank));
        let profile = read(&of.trace, &path, Format::Chrome, options);
        (path, profile.expect("it is a trace"))
    };
    join(ranks.iter().map(one).collect()).expect("they are ranks of one job")
}

fn lacks(profile: &Profile) -> Vec<&str> {
    let imported = profile.imported.iter();
    imported.flat_map(|imported| &imported.lacks).map(|lack| &*lack.reason).collect()
}

fn left_out(profile: &Profile, why: &str) -> u64 {
    let imported = profile.imported.iter().flat_map(|imported| &imported.left_out);
    imported.filter(|(reason, _)| reason.starts_with(why)).map(|(_, count)| count).sum()
}

fn is_as_of_single_files(merged: &Profile, single: &Profile) {
    assert_eq!(merged.names, single.names);
    assert_eq!(merged.passes, single.passes);
    assert_eq!(merged.phases, single.phases);
    assert_eq!(merged.totals, single.totals);
    assert_eq!(merged.devices, single.devices);
    let collectives = |of: &Profile| of.ranks.as_ref().map(|ranks| ranks.collectives.clone());
    assert_eq!(collectives(merged), collectives(single));
}

#[test]
fn a_merged_file_is_read_as_the_files_of_its_ranks() {
    let labels = ["TP00-EP00", "TP01-EP01"];
    for is_eager in [true, false] {
        let ranks = two(is_eager);
        let profile = imported(&merged(&ranks, &labels), Format::Chrome);
        is_as_of_single_files(&profile, &joined(&ranks, &Options::default()));
        // The passes are those of one rank.
        assert_eq!((profile.passes.len(), profile.devices.len()), (4, 2));
        let about = profile.imported.as_ref().expect("of a file");
        assert_eq!(about.file, "a.file");
        let condition = ("ranks".to_owned(), "2 of 2".to_owned());
        assert!(about.conditions.contains(&condition), "{:?}", about.conditions);
        let rows = profile.ranks.iter().flat_map(|ranks| &ranks.ranks);
        let files: Vec<(u32, &str)> = rows.map(|rank| (rank.rank, &*rank.file)).collect();
        assert_eq!(files, [(0, "a.file [TP00-EP00]"), (1, "a.file [TP01-EP01]")]);
    }
}

#[test]
fn passes_of_a_merged_file_are_counted_on_each_rank() {
    let ranks = two(true);
    let options =
        Options { decode: Some("execute_context_*[2..3]".to_owned()), ..Options::default() };
    let text = merged(&ranks, &["TP00", "TP01"]);
    let profile = import(&text, Format::Chrome, &options).expect("it is a trace");
    assert_eq!(profile.passes.len(), 2);
    is_as_of_single_files(&profile, &joined(&ranks, &options));
}

#[test]
fn labels_that_tell_no_number_are_counted_and_what_has_none_is_left_out() {
    let ranks = two(true);
    let text = merged(&ranks, &["TP00-PP00", "TP00-PP01"]);
    let other = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":1}"#;
    let text = text.replace("\n]}", &format!(",\n{other}\n]}}"));
    let profile = imported(&text, Format::Chrome);
    let rows = profile.ranks.iter().flat_map(|ranks| &ranks.ranks);
    assert_eq!(rows.map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1]);
    let lacks = lacks(&profile);
    assert!(lacks.iter().any(|lack| lack.starts_with("the numbers of ranks: the labels")));
    assert_eq!(left_out(&profile, "events of a merged file that have no label of a rank"), 1);
    // A file of one rank with a label is that of one rank, however its process is called.
    let one = imported(&merged(&ranks[..1], &["TP00"]), Format::Chrome);
    let plain = imported(&ranks[0].trace, Format::Chrome);
    assert_eq!((&one.devices, &one.passes), (&plain.devices, &plain.passes));
}

#[test]
fn what_was_left_out_of_a_merged_file_is_told_though_its_first_rank_has_no_device() {
    let ranks = two(true);
    let (head, first) = parts(&ranks[0].trace);
    let host = first.iter().filter(|event| !is_of_device(event));
    let mut all: Vec<String> = host.map(|event| with_label(event, "TP00")).collect();
    all.extend(parts(&ranks[1].trace).1.into_iter().map(|event| with_label(event, "TP01")));
    all.push(r#"{"ph":"i","name":"mark","pid":"[TP00] 1","tid":1,"ts":1}"#.to_owned());
    let profile = imported(&file(head, &all), Format::Chrome);
    let why = "ranks of a merged file of which nothing on a device is there";
    assert_eq!(left_out(&profile, why), 1);
    assert_eq!(left_out(&profile, "instants"), 1);
    assert_eq!(profile.devices.len(), 1);
}

#[test]
fn a_kernel_that_two_processes_could_have_launched_is_of_none() {
    let ranks = two(true);
    let (head, first) = parts(&ranks[0].trace);
    let (_, second) = parts(&ranks[1].trace);
    let all: Vec<String> = first.iter().chain(&second).map(|&event| event.to_owned()).collect();
    let profile = imported(&file(head, &all), Format::Chrome);
    // Those of one process, not of both.
    assert_eq!(profile.passes.len(), 4);
    assert!(left_out(&profile, "events of the host of other processes") > 0);
    let why = "which process launched ";
    assert!(lacks(&profile).iter().any(|lack| lack.starts_with(why)), "{:?}", lacks(&profile));
    for stream in profile.devices.iter().flat_map(|device| &device.streams) {
        assert!(stream.passes.is_empty() && stream.spans.iter().all(|span| span.pass.is_none()));
    }
    // Where one number alone repeats, the others tell whose kernels are.
    let later = |event: &&str| -> String {
        let Some((before, rest)) = event.split_once("\"correlation\":") else {
            return (*event).to_owned();
        };
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..end].parse().expect("a number");
        let number = if number == 1 { 1 } else { number + 1_000_000 };
        format!("{before}\"correlation\":{number}{}", &rest[end..])
    };
    let apart: Vec<String> =
        first.iter().map(|&event| event.to_owned()).chain(second.iter().map(later)).collect();
    let profile = imported(&file(head, &apart), Format::Chrome);
    assert_eq!(profile.passes.len(), 4);
    assert!(left_out(&profile, "kernels and copies that other processes launched") > 0);
    let streams = profile.devices.iter().flat_map(|device| &device.streams);
    let in_passes = streams.flat_map(|stream| &stream.spans).filter(|span| span.pass.is_some());
    assert!(in_passes.count() > 0);
}

#[test]
fn the_captures_of_several_ranks_are_refused() {
    let text = merged(&two(false), &["TP00", "TP01"]);
    let error = read_capture(&text, "c.json".as_ref(), &Options::default()).expect_err("of two");
    assert!(error.to_string().starts_with("c.json is merged of 2 ranks: "), "{error}");
}
