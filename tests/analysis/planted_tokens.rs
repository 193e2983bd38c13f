//! The causes that are named of slow tokens, in recordings of an unmodified llama-server in which one was planted.
//! `tests/engines/planted --fixtures tests/data/planted-tokens` makes them, each with the tokens that were hit, as the planter
//! and the clients saw it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use brickscope_analysis::requests::{Causes, Requests, Until};
use brickscope_profile::Profile;
use serde::Deserialize;

use crate::planted::read;

/// Of so many hits in 100 the cause must be named.
const IN_100: usize = 95;

/// The causes that are planted: each has recordings.
const PLANTED: [&str; 6] = ["prompts", "cpu", "disk", "between", "queue", "sending"];

/// A token: the id of its request, and which one it is, as `requests --json` has both.
type Token = (String, String);

/// What was planted.
#[derive(Debug, Deserialize)]
struct Truth {
    /// The cause that a token has which was hit.
    cause: String,
    hits: Vec<Token>,
}

/// The cause of each slow token.
fn named(profile: &Profile) -> BTreeMap<Token, String> {
    let requests = Requests::of(profile);
    let first = Causes::of(&requests, |until| until == Until::FirstToken);
    let further = Causes::of(&requests, |until| matches!(until, Until::Token(_)));
    let slow = first.into_iter().chain(further).flat_map(|causes| causes.slow);
    slow.map(|of| {
        let id = requests.all()[of.interval.request as usize].id.clone();
        let cause = serde_json::to_value(of.cause).expect("a word");
        ((id, of.interval.until.to_string()), cause.as_str().expect("a word").to_owned())
    })
    .collect()
}

#[test]
fn planted_causes_of_slow_tokens_are_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/planted-tokens");
    let files = fs::read_dir(folder).expect("the recordings are there");
    let files = files.map(|file| file.expect("it is there").path());
    let runs: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|of| of == "gz")).collect();
    let mut causes = BTreeSet::new();
    for run in runs {
        let truth = run.with_extension("").with_extension("truth.json");
        let truth = fs::read_to_string(truth).expect("the truth is beside it");
        let Truth { cause, hits } = serde_json::from_str(&truth).expect("it is as it was written");
        let named = named(&read(&run));
        let right = hits.iter().filter(|hit| named.get(*hit) == Some(&cause)).count();
        let (run, all) = (run.display(), hits.len());
        assert!(all > 0 && right * 100 >= all * IN_100, "{run}: {cause}: {right} of {all}");
        causes.insert(cause);
    }
    let absent: Vec<&str> = PLANTED.into_iter().filter(|cause| !causes.contains(*cause)).collect();
    assert!(absent.is_empty(), "no recording has {absent:?}");
}
