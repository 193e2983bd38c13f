//! What a build without features says of what it lacks. The tests have all features, so another program is asked:
//! `BRICKSCOPE_BARE`, which `.ci/run` sets.

use std::path::Path;
use std::process::{Command, Output};

use brickscope::{ClockInfo, Profile};
use brickscope_testing::command::text;

/// What such a program answers, if there is one.
fn answer(args: &[&str]) -> Option<Output> {
    let Some(program) = std::env::var_os("BRICKSCOPE_BARE") else {
        eprintln!("skipped: BRICKSCOPE_BARE names no program that was built without features");
        return None;
    };
    Some(Command::new(program).args(args).output().expect("it starts"))
}

#[test]
fn a_build_without_the_live_view_says_how_to_get_it() {
    let Some(output) = answer(&["top", "--once"]) else { return };
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("built without it") && said.contains("--features full"), "{said}");
}

fn left(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("the folder").count()
}

#[test]
fn a_build_without_parquet_says_how_to_get_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let profile = Profile::empty(ClockInfo::default());
    profile.save(&folder.path().join("profile.json")).expect("it is written");
    let run = folder.path().to_str().expect("UTF-8");
    let Some(output) = answer(&["export", run, "-f", "parquet"]) else { return };
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(left(folder.path()), 1, "nothing is left of it");
    let said = text(&output.stderr);
    assert!(said.contains("built without it") && said.contains("--features full"), "{said}");
}

#[test]
fn a_build_without_a_client_says_how_to_get_it() {
    let Some(output) = answer(&["load", "http://localhost"]) else { return };
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("built without it") && said.contains("--features full"), "{said}");
}

#[test]
fn a_build_without_flamegraphs_says_how_to_get_it_and_makes_no_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("flames");
    let Some(output) = answer(&["flamegraph", "-o", out.to_str().expect("UTF-8")]) else { return };
    assert_eq!((output.status.code(), left(folder.path())), (Some(1), 0), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("built without it") && said.contains("--features full"), "{said}");
}
