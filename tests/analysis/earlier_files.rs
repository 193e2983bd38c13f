//! What the build of commit 5dedb0f wrote, the last before there were packages: it is read as it was then.

use std::path::{Path, PathBuf};

use brickscope_analysis::compare::{Options as Comparing, Process, Side, compare};
use brickscope_analysis::receipt::{Options, Receipt, verify};
use brickscope_analysis::view;
use brickscope_profile::{Phase, Profile};

fn written(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/5dedb0f").join(path)
}

#[test]
fn profiles_are_read_and_written_back_to_the_byte() {
    for (path, decoded) in
        [("run/profile.json", 1), ("set/1/profile.json", 3), ("set/2/profile.json", 3)]
    {
        let text = std::fs::read_to_string(written(path)).expect("the fixture");
        let profile = Profile::load(&written(path)).expect("a profile");
        assert_eq!(profile.check(), Ok(()), "{path}");
        assert!(profile.to_json() == text, "{path} is written otherwise than it was");
        assert_eq!(profile.phase(Phase::Decode).map(|phase| phase.tokens), Some(decoded), "{path}");
        assert!(view::report(&profile).contains("\nDecode: "), "{path}");
        let graph = profile.typical_pass(Phase::Decode).map(|pass| pass.serial);
        assert!(graph.and_then(|pass| profile.execution_graph(pass)).is_some(), "{path}");
    }
}

#[test]
fn receipts_are_accepted_as_they_were_with_the_same_doubts() {
    let doubts: [&[&str]; 2] = [
        &["pp8: the standard deviation is 39 % of the mean."],
        &[
            "pp8: the standard deviation is 10 % of the mean.",
            "tg3: the standard deviation is 84 % of the mean.",
            "tg3: other work took cores from 1 of 3 repetitions.",
        ],
    ];
    for (process, doubts) in (1..).zip(doubts) {
        let path = written(&format!("set/{process}/receipt.json"));
        let text = std::fs::read_to_string(&path).expect("the fixture");
        let receipt = Receipt::load(&path).expect("a receipt");
        assert_eq!(receipt.to_json(), text, "{process}");
        let verdict = verify(text.as_bytes(), &Options::default());
        assert!(verdict.is_accepted(), "{process}: {:#?}", verdict.refusals);
        assert_eq!(verdict.doubts, doubts, "{process}");
    }
}

#[test]
fn sets_of_them_can_be_compared() {
    let side = |name: &str, process: u32| {
        let path = written(&format!("set/{process}/receipt.json"));
        let receipt = Receipt::load(&path).expect("a receipt");
        Side { name: name.to_owned(), processes: vec![Process::from_receipt(name, &receipt)] }
    };
    let comparison = compare(&side("A", 1), &side("B", 2), &Comparing::default());
    let text = view::comparison(&comparison.expect("the same work"));
    assert!(text.contains("one process"), "{text}");
}
