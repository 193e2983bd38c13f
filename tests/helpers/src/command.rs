//! Running the command, and reading its files as a script would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The program, which Cargo builds before it runs the tests of its package.
///
/// # Panics
///
/// If it isn't there.
#[must_use]
pub fn program() -> PathBuf {
    let name = format!("brickscope{}", std::env::consts::EXE_SUFFIX);
    let test = std::env::current_exe().expect("a test knows its program");
    let folder = test.ancestors().nth(2).expect("a test's program is in target/PROFILE/deps");
    let program = folder.join(name);
    assert!(program.exists(), "no {}", program.display());
    program
}

/// The cache folder of the tests.
#[must_use]
pub fn cache() -> PathBuf {
    crate::temporary().join("cache")
}

/// The command with these arguments, and with the cache folder of the tests.
#[must_use]
pub fn brickscope(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.env("BRICKSCOPE_CACHE", cache());
    command.args(args);
    command
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    output
}

/// Runs a command whose standard output and standard error nobody reads: the pipes are closed before it
/// starts.
pub fn unread(command: &mut Command) -> std::process::ExitStatus {
    let closed = || std::io::pipe().expect("a pipe").1;
    command.stdout(closed()).stderr(closed()).status().expect("the command starts")
}

/// What the command wrote.
///
/// # Panics
///
/// If it isn't UTF-8.
#[must_use]
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command writes UTF-8")
}

/// Asserts bricks + unattributed = wall, as a script would add them up from the file.
pub fn adds_up(json: &Value) {
    let phases = json["phases"].as_array().expect("phases");
    assert!(!phases.is_empty());
    for phase in phases {
        let bricks: u64 = json["totals"]
            .as_array()
            .expect("totals")
            .iter()
            .filter(|total| total["phase"] == phase["phase"] && total["kind"] == "brick")
            .map(|total| total["exclusive_ns"].as_u64().expect("nanoseconds"))
            .sum();
        let unattributed = phase["unattributed_ns"].as_u64().expect("nanoseconds");
        assert!(bricks > 0);
        assert_eq!(Some(bricks + unattributed), phase["wall_ns"].as_u64(), "{phase}");
    }
}

/// If others used more than this share of the CPU time, the command rejects a ceiling as too low.
const MUCH: f64 = 0.05;

/// Marks the ceilings in `cache` as undisturbed, if others used so much CPU time that each run would
/// measure them again, which takes longer than the run itself. Raises them by what others may have
/// taken, up to three quarters. Returns the number of ceilings that are as measured.
pub fn quiet_ceilings(cache: &Path) -> usize {
    let mut real = 0;
    for entry in std::fs::read_dir(cache).expect("the cache folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("ceilings-") {
            let text = std::fs::read_to_string(&path).expect("it was written");
            let mut json: Value = serde_json::from_str(&text).expect("JSON");
            // Ceilings that were raised before are marked as undisturbed, and are higher than measured.
            let is_raised = !json[RAISED].is_null();
            if json["others_share"].as_f64().is_some_and(|share| share > MUCH) {
                json["others_share"] = 0.0.into();
                raise(&mut json["value"]);
                json[RAISED] = true.into();
                std::fs::write(&path, json.to_string()).expect("written");
            } else if !is_raised {
                real += 1;
            }
        }
    }
    real
}

/// A field that the command doesn't know, and ignores.
const RAISED: &str = "raised_by_the_tests";

fn raise(value: &mut Value) {
    for rate in ["read_bytes_per_second", "flops_per_second"] {
        if let Some(number) = value[rate].as_f64() {
            value[rate] = (4.0 * number).into();
        }
    }
    for cache in value["caches"].as_array_mut().into_iter().flatten() {
        raise(cache);
    }
}
