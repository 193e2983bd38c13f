//! `brickscope run`, on a program that has llama.cpp's functions without its computations.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod ends;
mod experts;
mod gpu;
mod models;
mod nodes;
mod packages;
mod programs;
mod room;
mod starts;
mod when;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use brickscope::{Phase, Profile, Total};
use brickscope_testing::command;
use tempfile::TempDir;

pub(crate) use self::programs::programs;

struct Ran {
    output: Output,
    run: PathBuf,
    _dir: TempDir,
}

impl Ran {
    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// The same without the ends of lines, between any words of which there may be one.
    fn said(&self) -> String {
        self.stderr().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn profile(&self) -> Profile {
        let profile = Profile::load(&self.run.join("profile.json"));
        profile.unwrap_or_else(|why| panic!("{why}\n{}", self.stderr()))
    }
}

pub(crate) fn command(
    program: &str,
    args: &[&str],
    environment: &[(&str, &str)],
) -> (Command, PathBuf, TempDir) {
    command_of(&[], program, args, environment)
}

pub(crate) fn command_of(
    options: &[&str],
    program: &str,
    args: &[&str],
    environment: &[(&str, &str)],
) -> (Command, PathBuf, TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("run");
    let mut command = Command::new(command::program());
    command.arg("run").args(options).arg("--out").arg(&run).arg("--");
    command.arg(programs().join(program)).args(args).envs(environment.iter().copied());
    // So that nothing is left of a recording that failed.
    command.env("TMPDIR", dir.path()).env("BRICKSCOPE_CACHE", command::cache());
    command.stdin(Stdio::null());
    (command, run, dir)
}

fn run(program: &str, args: &[&str], environment: &[(&str, &str)]) -> Ran {
    let (mut command, run, _dir) = command(program, args, environment);
    Ran { output: command.output().expect("it starts"), run, _dir }
}

/// The program as it runs by itself, once for all tests that read its run.
fn as_it_is() -> &'static Ran {
    static RAN: OnceLock<Ran> = OnceLock::new();
    RAN.get_or_init(|| run("good/loads", &[], &[]))
}

fn total<'p>(profile: &'p Profile, phase: Phase, name: &str) -> &'p Total {
    let is_it = |total: &&Total| total.phase == Some(phase) && total.stats.name == name;
    profile.totals.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {phase}"))
}

#[test]
fn what_recording_costs_is_measured_on_every_other_pass() {
    let (mut command, run, _dir) = command_of(&["--check-overhead"], "good/loads", &[], &[]);
    let output = command.output().expect("it runs");
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("Recording costs "), "{output:?}");
    assert!(shown.contains(" pairs)"), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("11 passes left out: their nodes were not timed"), "{told}");
    let profile = Profile::load(&run.join("profile.json")).expect("a profile");
    profile.check().expect("it adds up");
    // Of 22 passes, and the first of each shape describes its graph.
    assert_eq!(profile.phase(Phase::Decode).expect("it decoded").passes, 9);
    assert!(total(&profile, Phase::Decode, "LmHead").stats.count == 9);
}

#[test]
fn why_nothing_was_recorded_is_said() {
    for (program, args, environment, said) in [
        ("good/loads", &["nothing"][..], &[][..], "it computed no graph of a shared ggml"),
        ("whole", &[], &[], "llama.cpp is part of the program"),
        ("other/loads", &[], &[], "this version of ggml has other tensors than brickscope knows"),
        ("good/loads", &[], &[("ON_A_GPU", "1")], "22 passes not seen: the CPU computed nothing"),
    ] {
        let ran = run(program, args, environment);
        assert_eq!(ran.output.status.code(), Some(0), "{program}: {}", ran.stderr());
        assert!(ran.said().contains(said), "{program} {environment:?}: {}", ran.stderr());
        assert!(!ran.run.exists(), "{program}");
    }
    let ran = run("nowhere", &[], &[]);
    assert_eq!(ran.output.status.code(), Some(1));
    assert!(ran.stderr().contains("can't run") && ran.stderr().contains("nowhere"));
}

#[test]
fn a_program_that_is_not_in_path_or_stands_without_dashes_is_a_mistake_that_is_explained() {
    let run = |words: &[&str]| {
        let mut command = Command::new(command::program());
        let output = command.arg("run").args(words).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["--", "no-such-llama-bench"]);
    assert!(code == Some(1) && said.contains("It isn't in PATH: give its path"), "{said}");
    let (code, said) = run(&["--", "/no/such/llama-bench"]);
    assert!(code == Some(1) && !said.contains("PATH"), "{said}");
    for words in [&["sh", "-c", "true"][..], &["/bin/sh", "-c", "true"]] {
        let (code, said) = run(words);
        let begin = format!("error: a program comes after `--`: brickscope run -- {} …", words[0]);
        assert!(code == Some(2) && said.starts_with(&begin), "{said}");
    }
}

#[test]
fn passes_that_fail_are_counted_and_left_out() {
    let ran = run("good/loads", &[], &[("FAILS", "1")]);
    assert!(
        ran.stderr().contains("20 passes left out: llama.cpp returned an error"),
        "{}",
        ran.stderr()
    );
    let profile = ran.profile();
    assert_eq!(profile.phase(Phase::Prefill).map(|of| of.passes), Some(1));
    assert!(profile.phase(Phase::Decode).is_none_or(|of| of.passes == 0));
}

#[test]
fn without_a_command_run_is_profile() {
    let dir = tempfile::tempdir().expect("a folder");
    let ran = Command::new(command::program())
        .args(["run", "--model"])
        .arg(dir.path().join("none.gguf"))
        .output()
        .expect("it starts");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("none.gguf"), "{ran:?}");
}
