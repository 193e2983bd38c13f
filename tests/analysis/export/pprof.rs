use std::collections::BTreeMap;
use std::io::Read;

use brickscope_analysis::stacks::{Stacks, Unit};
use brickscope_formats::export::pprof;
use proptest::prelude::*;

use super::wire::{Message, text};
use super::{bytes, deep, functions, named, run, stacks};

/// What a file has: its unit, its stacks with weights, and the labels of each.
struct File {
    unit: [String; 2],
    stacks: Vec<(Vec<String>, u64)>,
    labels: Vec<Vec<(String, String)>>,
}

fn read(packed: &[u8]) -> File {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("gzip");
    let profile = Message::new(&bytes);
    let strings: Vec<String> = profile
        .all(6)
        .iter()
        .map(|&field| String::from_utf8(text(field).to_owned()).expect("UTF-8"))
        .collect();
    assert_eq!(strings[0], "");
    let string = |number: u64| strings[number as usize].clone();
    let functions: BTreeMap<u64, String> = profile
        .messages(5)
        .iter()
        .map(|function| (function.number(1), string(function.number(2))))
        .collect();
    let locations: BTreeMap<u64, u64> = profile
        .messages(4)
        .iter()
        .map(|location| {
            let [line] = &location.messages(4)[..] else { panic!("a location has one line") };
            (location.number(1), line.number(1))
        })
        .collect();
    assert!(!functions.contains_key(&0) && !locations.contains_key(&0), "0 means none");
    let samples = profile.messages(2);
    let [kind] = &profile.messages(1)[..] else { panic!("one type of value") };
    let stacks = samples
        .iter()
        .map(|sample| {
            let names =
                sample.numbers(1).into_iter().rev().map(|at| functions[&locations[&at]].clone());
            let [value] = sample.numbers(2)[..] else { panic!("one value") };
            (names.collect(), value)
        })
        .collect();
    let label = |label: &Message<'_>| (string(label.number(1)), string(label.number(2)));
    let labels = samples.iter().map(|sample| sample.messages(3).iter().map(label).collect());
    File { unit: [1, 2].map(|field| string(kind.number(field))), stacks, labels: labels.collect() }
}

fn written(stacks: &Stacks) -> File {
    read(&bytes(|out| pprof::write(stacks, out)))
}

proptest! {
    #[test]
    fn every_file_has_all_stacks(stacks in stacks()) {
        let file = written(&stacks);
        prop_assert_eq!(file.stacks.iter().map(|(_, weight)| weight).sum::<u64>(), stacks.total());
        prop_assert_eq!(file.stacks, named(&stacks));
        prop_assert_eq!(file.unit, ["samples", "count"]);
    }
}

#[test]
fn a_run_by_layers_has_labels() {
    let file = written(&run());
    assert_eq!(file.unit, ["time", "nanoseconds"]);
    assert_eq!(file.stacks, named(&run()));
    let label = |key: &str, name: &str| (key.to_owned(), name.to_owned());
    assert_eq!(
        file.labels[1],
        [label("phase", "prefill"), label("layer", "layer 0"), label("brick", "DownProjection")]
    );
    assert_eq!(file.labels[9], [label("phase", "decode"), label("brick", "unattributed")]);
}

#[test]
fn the_same_stacks_are_the_same_bytes() {
    let [first, second] = [(), ()].map(|()| bytes(|out| pprof::write(&run(), out)));
    assert_eq!(first, second);
}

#[test]
fn empty_and_deep_stacks_are_files_too() {
    for stacks in [Stacks::new(Unit::Samples, 0), deep(), functions(&[(Vec::<&str>::new(), 1)])] {
        assert_eq!(written(&stacks).stacks, named(&stacks));
    }
}

#[test]
fn weights_beyond_its_numbers_are_refused() {
    let write = |weight| pprof::write(&functions(&[(vec!["a"], weight)]), &mut Vec::new());
    assert!(write(i64::MAX as u64).is_ok());
    let refused = write(i64::MAX as u64 + 1).expect_err("beyond").to_string();
    assert_eq!(refused, "the weights add up to more than pprof's signed 64 bits hold");
}
