//! Several devices in one file: they get what the files of several ranks get, without a shift of clocks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brickscope::{MatchedBy, Profile};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::links::{Member, slow_links};
use brickscope_analysis::ranks::InCollectives;
use brickscope_analysis::view::{self, Size};
use brickscope_formats::import::{Format, Options, join, read};
use brickscope_testing::gpu_trace::{Net, Planted, Recording, Truth};

use super::{databases, imported};

/// Four layers and four steps, in which devices add up what they computed in groups; each kernel has a call of its own.
fn eight(group: u32) -> Recording {
    Recording { group, ..Recording::of(Net::parallel(4)) }.eager().steps(&[32; 4])
}

fn in_graphs(recording: Recording) -> Recording {
    Recording { is_eager: false, ..recording }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn screen(profile: &Profile) -> String {
    one_line(&view::summary(profile, Size { columns: 80, rows: 40 }, None).to_string())
}

fn lacks(profile: &Profile) -> Vec<&str> {
    let imported = profile.imported.iter();
    imported.flat_map(|imported| &imported.lacks).map(|lack| &*lack.reason).collect()
}

/// Holds what was found to what is true of eight devices, of which the sixth is slow. Returns what the group is called.
fn is_true(profile: &Profile, truths: &[Truth]) -> String {
    let sums = InCollectives::of(profile).expect("they have some in common");
    let waits: Vec<(u32, u64)> = sums.ranks.iter().map(|of| (of.rank, of.wait_ns)).collect();
    let of_truth = |truth: &Truth| -> (u32, u64) {
        (truth.rank, truth.kernels.iter().map(|kernel| kernel.waited_ns).sum())
    };
    assert_eq!(waits, truths.iter().map(of_truth).collect::<Vec<_>>());
    // The slow one computes a fifth longer than each of the others.
    let own = |rank: usize| sums.ranks[rank].own_ns.expect("the devices are here") as f64;
    assert!((1.15..1.23).contains(&(own(5) / own(0))), "{} and {}", own(5), own(0));
    let straggler = sums.straggler.expect("one comes last");
    // Two of each of four layers, in four steps.
    assert_eq!((straggler.rank, straggler.last, straggler.of), (5, 32, 32));
    assert_eq!((sums.members, sums.collectives, sums.kinds.len()), (Member::Device, 32, 1));
    let ranks = profile.ranks.as_ref().expect("there are eight");
    assert_eq!(ranks.ranks.len(), 8);
    for of in &ranks.ranks {
        assert_eq!((of.collectives, of.unmatched, of.shift_ns), (32, 0, None));
        assert_eq!(of.matched_by, Some(MatchedBy::Order));
    }
    assert!(profile.devices.iter().all(|device| device.rank.is_none()));
    assert!(!lacks(profile).iter().any(|lack| lack.starts_with("with which device")));
    sums.kinds[0].group.clone()
}

#[test]
fn devices_of_one_trace_wait_as_long_as_is_true() {
    let slow = Planted::SlowRank { rank: 5, percent: 120 };
    let (trace, truths) = eight(0).plant(slow).devices(8);
    let profile = imported(&trace, Format::Chrome);
    assert_eq!(is_true(&profile, &truths), "1");
    let mut layers: BTreeMap<u16, u64> = BTreeMap::new();
    for kernel in truths.iter().flat_map(|truth| &truth.kernels) {
        if let Some(layer) = kernel.layer.filter(|_| kernel.brick == "AllReduce") {
            *layers.entry(layer).or_default() += kernel.waited_ns;
        }
    }
    let sums = InCollectives::of(&profile).expect("they have some in common");
    let of_layers: BTreeMap<u16, u64> =
        sums.layers.iter().map(|of| (of.layer, of.wait_ns)).collect();
    assert_eq!(of_layers, layers);
    // Of a graph the file tells no group.
    let (trace, truths) = in_graphs(eight(0)).plant(slow).devices(8);
    assert_eq!(is_true(&imported(&trace, Format::Chrome), &truths), "devices 0-7");
}

#[test]
fn devices_of_an_nsight_file_wait_as_long_as_is_true() {
    let slow = Planted::SlowRank { rank: 5, percent: 120 };
    let (sql, truths) = in_graphs(eight(0)).plant(slow).nsight(8);
    let profile = databases::import(&sql, &Options::default()).expect("it is a database");
    // Each device has another number for the stream.
    assert_eq!(is_true(&profile, &truths), "devices 0-7");
    let report = one_line(&view::report(&profile));
    assert!(report.contains("device 5 is the straggler: the others wait"), "{report}");
}

#[test]
fn screens_call_devices_what_they_are() {
    let slow = Planted::SlowRank { rank: 5, percent: 120 };
    let (trace, _) = eight(0).plant(slow).devices(8);
    let profile = imported(&trace, Format::Chrome);
    let screen = screen(&profile);
    assert!(screen.contains("Devices 8: device 5 is the straggler: the others wait"), "{screen}");
    let report = one_line(&view::report(&profile));
    for said in [
        "Devices with collectives: 8 Dev. Collectives Time Transfer Wait",
        "Wait by device",
        "Wait of all devices",
        "device 7: NVIDIA H100 80GB HBM3; 32 of 32 collectives found on other devices, by their order",
    ] {
        assert!(report.contains(said), "{said}: {report}");
    }
    assert!(!report.contains("clock couldn't be aligned"), "{report}");
    for text in [&screen, &report] {
        assert!(!text.contains("rank 5") && !text.contains("Ranks"), "{text}");
    }
    let found = Findings::of(&profile).found;
    let found = found.iter().find(|found| found.rule == "rank-comes-last").expect("it is found");
    assert!(found.what.starts_with("device 5 is the straggler: "), "{}", found.what);
    let json: serde_json::Value = serde_json::from_str(&view::json(&profile)).expect("it is JSON");
    assert_eq!(json["in_collectives"]["members"], "device");
    assert_eq!(json["in_collectives"]["straggler"]["rank"], 5);
}

#[test]
fn the_devices_with_the_slow_link_are_named() {
    let recording = eight(4).plant(Planted::SlowLink { group: 1, percent: 250 });
    let profile = imported(&recording.devices(8).0, Format::Chrome);
    let links = slow_links(&profile);
    let [link] = &links[..] else { panic!("{links:?}") };
    assert_eq!((&link.ranks[..], link.members), (&[4, 5, 6, 7][..], Member::Device));
    assert_eq!((link.bytes, link.collectives), (524_288, 32));
    let said = "all_reduce of group 1 (devices 4 to 7) transfers ";
    assert!(link.in_words().starts_with(said), "{}", link.in_words());
    let found = Findings::of(&profile).found;
    assert!(found.iter().any(|found| found.rule == "slow-link" && found.what.starts_with(said)));
    let report = one_line(&view::report(&profile));
    assert!(report.contains(&format!("slow link {said}")), "{report}");
}

#[test]
fn devices_that_have_nothing_to_do_with_each_other_get_nothing() {
    let (trace, _) = Recording::of(Net::dense(4)).steps(&[32; 4]).devices(2);
    let profile = imported(&trace, Format::Chrome);
    assert_eq!(profile.devices.len(), 2);
    assert_eq!(profile.ranks.as_ref().map(|ranks| ranks.ranks.len()), Some(1));
    assert_eq!(InCollectives::of(&profile), None);
    for text in [screen(&profile), one_line(&view::report(&profile))] {
        assert!(!text.contains("collective"), "{text}");
    }
    let Findings { found, unknown, .. } = Findings::of(&profile);
    assert!(!found.iter().any(|of| of.rule == "rank-comes-last" || of.rule == "slow-link"));
    assert!(!unknown.iter().any(|of| of.rule == "rank-comes-last"), "{unknown:?}");
}

#[test]
fn collectives_that_never_met_are_not_matched_and_that_is_said() {
    // Those of the second device end long after those of the first.
    let recording = Recording { skew_ns: 1_234_567, ..in_graphs(eight(0)) };
    let profile = imported(&recording.devices(2).0, Format::Chrome);
    assert_eq!(InCollectives::of(&profile), None);
    let said = "with which device 64 of 64 collectives were: ";
    assert!(lacks(&profile).iter().any(|lack| lack.starts_with(said)), "{:?}", lacks(&profile));
    let said = "Devices 2 with collectives, of which none is known to be the same on two";
    let screen = screen(&profile);
    assert!(screen.contains(said), "{screen}");
    let report = one_line(&view::report(&profile));
    assert!(report.contains("no collective is known to be the same on two of them"), "{report}");
}

#[test]
fn files_of_several_devices_are_not_ranks() {
    let file = |number: u64| {
        let recording = Recording { seed: number, ..eight(0) };
        let path = PathBuf::from(format!("rank{number}.json"));
        let profile = read(&recording.devices(2).0, &path, Format::Chrome, &Options::default());
        (path, profile.expect("it is a trace"))
    };
    let profile = join(vec![file(0), file(1)]).expect("they are two files");
    assert_eq!(profile.check(), Ok(()));
    assert_eq!((profile.devices.len(), InCollectives::of(&profile)), (4, None));
    for rank in 0..2 {
        let said = format!("collectives of rank {rank}: several devices of its file have some");
        assert!(lacks(&profile).iter().any(|lack| lack.starts_with(&said)), "{said}");
    }
    let ranks = profile.ranks.as_ref().expect("there are two");
    let alone: Vec<u64> = ranks.ranks.iter().map(|of| of.unmatched).collect();
    assert_eq!(alone, [64, 64]);
}
