//! Replays the fuzzer's corpus: `ok-*` is accepted, all else refused for the code that its name
//! begins with, up to a dot.
//!
//! When the fuzzer finds something new, its smallest form goes there, under such a name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use brickscope_analysis::receipt::{Options, verify};

#[test]
fn each_file_has_the_verdict_of_its_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/receipt");
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the corpus is in the repository") {
        let path = entry.expect("a file").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
        let verdict = verify(&fs::read(&path).expect("it can be read"), &Options::default());
        let codes: Vec<&str> = verdict.refusals.iter().map(|refusal| refusal.code.name()).collect();
        let printed = verdict.refusals.iter().map(ToString::to_string).chain(verdict.doubts);
        for line in printed.chain(verdict.not_checked) {
            assert!(!line.chars().any(char::is_control), "{name}: {line:?}");
        }
        match name.split('.').next() {
            Some(ok) if ok.starts_with("ok-") => assert_eq!(codes, [""; 0], "{name}"),
            Some(code) => assert!(codes.contains(&code), "{name}: {codes:?}"),
            None => {}
        }
        seen.insert(name);
    }
    assert!(seen.len() >= 12, "{seen:?} are left of the corpus");
}
