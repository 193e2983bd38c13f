//! llama.cpp as wheels and other packages have it.

use std::process::Command;

use brickscope::Profile;
use brickscope_testing::patience::skipped;

use super::{command_of, programs};

/// However llama.cpp is packaged, with a second copy beside it or not: each copy computes what it would alone, and what the
/// program prints and ends with is the same.
#[test]
fn a_program_ends_as_it_would_alone_however_llama_is_packaged() {
    let (one, other) = ("module.so", "llamamodel-mainline.so");
    let kinds: Vec<String> = (0..12).map(|nth| format!("module-{nth}.so")).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    for (program, how, files) in [
        ("packages", "local", &[one][..]),
        ("packages", "local lazy", &[one]),
        ("packages", "global", &[one]),
        ("packages", "deep", &[one]),
        ("packages", "namespace", &[one]),
        ("packages", "local", &["llama-addon.node"]),
        ("packages", "last", &kinds),
        ("packages", "local", &[one, other]),
        ("packages", "local lazy", &[one, other]),
        // The second one's calls of its own functions go to the first one's, as the linker does it; of another context.
        ("packages", "global", &[one, other]),
        ("packages", "deep", &[one, other]),
        ("packages", "namespace", &[one, other]),
        ("packages", "local", &[one, "llama-addon.node"]),
        ("packages", "local", &[one, "other.so"]),
        ("packages-lazy", "local", &["linked"]),
        ("packages-now", "local", &["linked"]),
        ("packages-no-plt", "local", &["linked"]),
        ("packages-lazy", "local samples", &["linked"]),
        ("packages-now", "local samples", &["linked", other]),
        ("packages-no-plt", "local samples", &["linked"]),
        ("packages-now", "deep", &["linked", one]),
        ("packages-now", "namespace", &[one, "linked"]),
    ] {
        let at = |file: &&str| match *file {
            "linked" => "linked".to_owned(),
            file => programs().join(file).display().to_string(),
        };
        let files: Vec<String> = files.iter().map(at).collect();
        let args: Vec<&str> = [how].into_iter().chain(files.iter().map(String::as_str)).collect();
        let alone = Command::new(programs().join(program)).args(&args).output().expect("it starts");
        assert_eq!(alone.status.code(), Some(5), "{program} {args:?}: {alone:?}");
        for options in [&[][..], &["--shares"]] {
            let (mut command, run, _dir) = command_of(options, program, &args, &[]);
            let output = command.output().expect("it starts");
            let told = String::from_utf8_lossy(&output.stderr);
            let what = format!("{program} {args:?} {options:?}: {told}");
            assert_eq!(output.status.code(), Some(5), "{what}");
            let same = output.stdout == alone.stdout;
            assert!(same, "{what} {:?} {:?}", alone.stdout, output.stdout);
            let profile = Profile::load(&run.join("profile.json"));
            let profile = profile.unwrap_or_else(|why| panic!("{what}: {why}"));
            profile.check().expect("it adds up");
            assert_eq!(profile.passes.len(), 6, "{what}");
            let is_refused = files.iter().any(|file| file.ends_with("other.so"));
            let said = "graphs of other.so: this version of ggml has other tensors";
            assert_eq!(told.contains(said), is_refused, "{what}");
            // The other copy's passes are a run of their own.
            let is_second = files.len() == 2 && !is_refused;
            let second = Profile::load(&run.join("context-2/profile.json")).ok();
            assert_eq!(second.map(|of| of.passes.len()), is_second.then_some(6), "{what}");
        }
    }
}

/// A C++ exception goes through what stands in the place of a method.
#[test]
fn an_exception_of_the_program_reaches_who_catches_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = dir.path().join("throws.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/run/throws.cpp");
    let compiled =
        Command::new("g++").args(["-shared", "-fPIC", source, "-o"]).arg(&library).status();
    let Ok(status) = compiled else { return skipped("no g++") };
    assert!(status.success());
    let args = ["local", library.to_str().expect("UTF-8")];
    let (mut command, run, _dir) = command_of(&[], "packages", &args, &[]);
    let output = command.output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert_eq!(output.stdout, b"copy 0: 7\n", "{told}");
    assert!(told.contains("no pass of the program could be read") || !run.exists(), "{told}");
}
