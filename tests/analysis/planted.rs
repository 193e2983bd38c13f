//! What is found first in runs of the real engine in which a bottleneck was planted: the short form of
//! `benches/planted/run`, which recorded them (`--record`). The spans of kernels are left out but for `slow-layer`, since no
//! other rule here reads them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use brickscope_analysis::findings::{FindingKind, Findings};
use brickscope_profile::Profile;
use flate2::read::GzDecoder;

/// The recordings and what was planted: the rule that has to come first, or nothing.
const RECORDED: [(&str, &str); 18] = [
    ("few-threads", "number-of-threads"),
    ("many-threads", "threads-share-a-cpu"),
    ("one-cpu", "threads-share-a-cpu"),
    ("other-load", "other-programs"),
    ("large-weights", "memory-roof"),
    ("long-context", "long-context"),
    ("unmapped", "page-faults"),
    ("small-pages", "small-pages"),
    ("slow-layer", "slow-layer"),
    ("slow-sampler", "slow-sampling"),
    ("imbalance", "threads-wait"),
    ("gaps", "gaps-between-passes"),
    ("stalls", "stalls"),
    ("slow-disk", "disk-reads"),
    ("debug-build", "debug-build"),
    ("recording", "profiling-cost"),
    ("clean-f16", ""),
    ("clean-f32", ""),
];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../data/planted/{name}.json.gz"))
}

/// A profile that is compressed.
pub(crate) fn read(path: &Path) -> Profile {
    let compressed = File::open(path).expect("a recording");
    let mut json = String::new();
    GzDecoder::new(compressed).read_to_string(&mut json).expect("a compressed text");
    Profile::from_json(&json, path).expect("a profile")
}

fn recorded(name: &str) -> Profile {
    read(&file(name))
}

#[test]
fn what_was_planted_is_found_first_and_nothing_in_clean_runs() {
    for (name, rule) in RECORDED {
        let findings = Findings::of(&recorded(name));
        let counts = |kind: FindingKind| !rule.is_empty() || kind != FindingKind::Limit;
        let first = findings.found.iter().find(|finding| counts(finding.kind));
        assert_eq!(first.map_or("", |first| first.rule), rule, "{name}: {first:?}");
    }
}
