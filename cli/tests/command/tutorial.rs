//! docs/tutorial.md: its commands run in order, on a program that has llama.cpp's functions without its computations.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use brickscope_testing::command::{self, text};
use tempfile::TempDir;

use crate::run::programs;

/// The lines of the page's blocks that begin with a prompt.
fn commands() -> Vec<&'static str> {
    let page = include_str!("../../../docs/tutorial.md");
    let blocks = page.split("```console\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ ")).collect()
}

/// A `llama-cli` of which two threads are slow, as those of the page are.
fn llama_cli(folder: &Path) {
    let program = programs().join("good/loads");
    let script = format!(
        "case \"$*\" in\n*'-t 1'*) export N_THREADS=1 ;;\n*) export SLOW=l_out-1 TIMES=8 ;;\nesac\nexec '{}'",
        program.display()
    );
    command::script(&folder.join("llama-cli"), &script);
}

#[test]
fn the_commands_of_the_tutorial_run_in_order() {
    let commands = commands();
    let words: Vec<_> = commands.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(words, ["run", "findings", "try", "versus", "run"]);

    let dir = TempDir::new().expect("a folder");
    llama_cli(dir.path());
    let brickscope = command::program();
    let folder = brickscope.parent().expect("it lies in a folder");
    let before = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{before}", dir.path().display(), folder.display());
    for line in commands {
        // A quiet machine has no such finding, and here the time isn't what is tested.
        let line = line.replace(" other-programs", "").replace("--within 5m", "--within 60s");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(dir.path()).stdin(Stdio::null());
        shell.env("PATH", &path).env("BRICKSCOPE_CACHE", command::cache());
        let output = shell.output().expect("sh starts");
        // What it brings depends on the machine: 1 is refuted, 3 inconclusive.
        let codes: &[i32] = match line.split(' ').nth(1) {
            Some("try") => &[0, 1, 3],
            Some("versus") => &[0, 3],
            _ => &[0],
        };
        let code = output.status.code().expect("no signal ended it");
        let told = (text(&output.stdout), text(&output.stderr));
        assert!(codes.contains(&code), "{line}: {code}: {told:?}");
    }
    let runs = fs::read_dir(dir.path().join("brickscope-runs")).expect("the runs are kept");
    assert_eq!(runs.count(), 4, "`try` keeps none of its own, and `versus` those of each side");
}
