//! Runs the program `perf` to record a command.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::perf_data;

/// An installed `perf` that is allowed to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfProgram {
    /// Its version in its own words, such as `6.1.187`.
    pub version: String,
    /// The event that triggers samples: `cycles:u` if the processor supports it, otherwise `cpu-clock:u`.
    pub event: String,
}

/// Checks whether `perf` is installed and allowed to record, by recording `true`.
///
/// # Errors
///
/// A message that says why not. This changes nothing and asks for no privileges.
pub fn probe() -> Result<PerfProgram, String> {
    let mut version = Command::new("perf");
    let said = version.arg("--version").stdin(Stdio::null()).output();
    let said = said.map_err(|error| format!("perf can't be run: {error}"))?;
    if !said.status.success() {
        // Some systems have a wrapper script here that needs the `perf` of the running kernel.
        return Err(format!("perf --version failed: {}", last_line(&said.stderr)));
    }
    let text = String::from_utf8_lossy(&said.stdout);
    let version = text.trim().trim_start_matches("perf version ").to_owned();

    let folder = tempfile::Builder::new().prefix("brickscope-perf-").tempdir();
    let folder = folder.map_err(|error| format!("temporary files (TMPDIR): {error}"))?;
    let event = smoke_test(&folder.path().join("perf.data"));
    event.map(|event| PerfProgram { version, event })
}

/// The event in a recording of `true`. Without hardware counters, `perf` uses another event than it was told.
fn smoke_test(file: &Path) -> Result<String, String> {
    let mut why = String::new();
    for event in ["cycles:u", "cpu-clock:u"] {
        let mut perf = command(event, 99, 1024, file, &Command::new("true"));
        let said = perf.stdin(Stdio::null()).output().map_err(|e| format!("perf record: {e}"))?;
        if said.status.success() {
            let recording = perf_data::read(file, &mut |_, _| {});
            return recording.map(|recording| recording.event).map_err(|e| e.to_string());
        }
        why = last_line(&said.stderr);
    }
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let paranoid = paranoid.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
    Err(format!("perf isn't allowed to record: {why} (kernel.perf_event_paranoid is {paranoid})"))
}

/// The command that makes `perf` record the command `of` into the file `output`: with `event`, this many times per
/// second of each thread's CPU time, and with this many bytes of its stack.
///
/// The environment and the working directory of `of` apply; a relative `output` is relative to the latter. The size of
/// stacks is rounded up to a multiple of 8; `perf` takes at most 65528.
#[must_use]
pub fn command(
    event: &str,
    frequency: u64,
    stack_bytes: u32,
    output: &Path,
    of: &Command,
) -> Command {
    let mut perf = Command::new("perf");
    perf.args(["record", "-k", "CLOCK_MONOTONIC_RAW", "--call-graph"])
        .arg(format!("dwarf,{}", stack_bytes.clamp(8, 65528).next_multiple_of(8)))
        .args(["-F", &frequency.to_string()])
        .args(["-e", &user_only(event)])
        .arg("-o")
        .arg(path_argument(output))
        .arg("--")
        .arg(of.get_program())
        .args(of.get_args());
    for (name, value) in of.get_envs() {
        match value {
            Some(value) => perf.env(name, value),
            None => perf.env_remove(name),
        };
    }
    if let Some(folder) = of.get_current_dir() {
        perf.current_dir(folder);
    }
    perf
}

/// Restricts an event to user mode, which is what unprivileged users may record.
fn user_only(event: &str) -> String {
    if event.contains(':') { event.to_owned() } else { format!("{event}:u") }
}

/// Protects a path `-`, which alone would mean standard output.
fn path_argument(path: &Path) -> OsString {
    if path == Path::new("-") { PathBuf::from("./-").into() } else { path.into() }
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("it printed nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_recorded_as_it_was() {
        let mut of = Command::new("./engine");
        of.args(["--prompt", "a b"]).env("THREADS", "2").current_dir("/srv");
        let perf = command("cycles", 999, 16_001, Path::new("perf.data"), &of);
        let args: Vec<_> = perf.get_args().map(|arg| arg.to_str().unwrap()).collect();
        assert_eq!(
            args.join(" "),
            "record -k CLOCK_MONOTONIC_RAW --call-graph dwarf,16008 -F 999 -e cycles:u \
             -o perf.data -- ./engine --prompt a b"
        );
        assert_eq!(args.last(), Some(&"a b"));
        assert_eq!(perf.get_current_dir(), Some(Path::new("/srv")));
        assert_eq!(perf.get_envs().count(), 1);
    }
}
