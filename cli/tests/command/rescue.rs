//! What was measured is shown and kept, whatever happens after.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use brickscope::Profile;
use brickscope_analysis::receipt::Receipt;
use tempfile::TempDir;

use brickscope_testing::command::{self, brickscope, text};
use brickscope_testing::patience::tries;

fn model() -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    models.join("tiny-Q8_0.gguf").to_str().expect("UTF-8").to_owned()
}

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().expect("a folder");
        fs::create_dir(dir.path().join("tmp")).expect("a folder");
        Self { dir }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// A command that writes to `out`, with a folder for temporary files of its own.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = brickscope(args);
        command.env("TMPDIR", self.dir.path().join("tmp"));
        command.current_dir(self.dir.path());
        command
    }

    fn profile(&self) -> Command {
        self.profile_of("4")
    }

    fn profile_of(&self, tokens: &str) -> Command {
        let model = model();
        let args = ["profile", &model, "--prompt", "Hi", "--tokens", tokens, "--threads", "1"];
        let mut command = self.command(&args);
        command.arg("--out").arg(self.out());
        command
    }

    fn benchmark(&self) -> Command {
        self.benchmark_of("2")
    }

    fn benchmark_of(&self, repetitions: &str) -> Command {
        let model = model();
        let args = ["benchmark", &model, "-p", "4", "-n", "4", "--threads", "1", "-r", repetitions];
        let mut command = self.command(&args);
        command.arg("--out").arg(self.out());
        command
    }

    /// The one folder among the temporary files.
    fn rescued(&self) -> PathBuf {
        let entries = fs::read_dir(self.dir.path().join("tmp")).expect("a folder");
        let found = entries.map(|entry| entry.expect("an entry").path());
        // The folder of sockets has the user's number in its name only.
        let of_runs = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().matches('-').count() == 2)
        };
        let found: Vec<PathBuf> = found.filter(of_runs).collect();
        let [one] = &found[..] else { panic!("{found:?}") };
        one.clone()
    }
}

/// Runs a command with files of at most this many KiB, as on a full disk.
fn on_a_small_disk(command: &Command, kib: u32) -> Output {
    let mut limited = Command::new("bash");
    // The limit comes with a signal, which ends a process that doesn't take it.
    limited.args(["-c", &format!("ulimit -f {kib}; exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.expect("it is set"));
    }
    limited.current_dir(command.get_current_dir().expect("it is set"));
    limited.output().expect("bash starts")
}

fn failed(output: &Output) -> (&str, &str) {
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{shown}{said}");
    assert!(!said.contains("panicked"), "{said}");
    (shown, said)
}

/// Runs a command, and once its run has begun, puts a file where its folder should be: the early check has
/// found that it can be made.
fn in_the_way(command: &mut Command, out: &Path) -> Output {
    // On a busy machine the run may be over before this process goes on.
    let mut outputs = tries().filter_map(|_| once_in_the_way(command, out));
    outputs.next().expect("a run that is still on when it says that it begins")
}

fn once_in_the_way(command: &mut Command, out: &Path) -> Option<Output> {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut lines = String::new();
    // It says so right before the first pass.
    while !lines.contains("publishing;") {
        assert_ne!(said.read_line(&mut lines).expect("UTF-8"), 0, "{lines}");
    }
    if fs::write(out, "in the way").is_err() {
        let _ = (child.kill(), child.wait(), fs::remove_dir_all(out));
        return None;
    }
    said.read_to_string(&mut lines).expect("UTF-8");
    let mut output = child.wait_with_output().expect("it ends");
    output.stderr = lines.into_bytes();
    Some(output)
}

#[test]
fn a_profile_is_shown_and_kept_elsewhere_if_its_folder_is_gone() {
    let place = Place::new();
    let output = in_the_way(place.profile_of("500").arg("--live"), &place.out());
    let (shown, said) = failed(&output);
    assert!(shown.contains("Decode"), "{shown}");
    let rescued = place.rescued();
    let expected = format!(
        "the run could not be written to {}: File exists (os error 17); it was saved to {} instead",
        place.out().display(),
        rescued.display()
    );
    assert!(said.contains(&expected), "{said}");
    let more = format!("brickscope show {} --full", rescued.display());
    assert!(shown.contains(&more), "{shown}");
    assert_eq!(Profile::load(&rescued.join("profile.json")).expect("a profile").check(), Ok(()));
}

#[test]
fn a_full_disk_takes_no_figures() {
    let place = Place::new();
    // Ceilings and the like are in the cache by now.
    assert!(place.profile().output().expect("it starts").status.success());
    fs::remove_dir_all(place.out()).expect("it is there");

    let output = on_a_small_disk(&place.profile(), 1);
    let (shown, said) = failed(&output);
    assert!(shown.contains("Decode"), "{shown}");
    assert!(said.contains("the run could not be written to"), "{said}");
    assert!(said.contains("File too large"), "{said}");
    assert!(said.contains("; nor could it be saved elsewhere: "), "{said}");
    assert!(!place.out().exists(), "an empty folder is left");
    let left = fs::read_dir(place.dir.path().join("tmp")).expect("a folder").count();
    assert_eq!(left, 0, "something is left among the temporary files");

    let mut command = place.profile();
    let output = on_a_small_disk(command.arg("--json"), 1);
    let (shown, said) = failed(&output);
    let json: serde_json::Value = serde_json::from_str(shown).expect("JSON");
    assert!(json["phases"].is_array() && said.contains("nor could it be saved"), "{said}");

    let output = on_a_small_disk(&place.benchmark(), 1);
    let (shown, said) = failed(&output);
    assert!(shown.contains("| ") && shown.contains(" tg4 "), "{shown}");
    assert!(said.contains("nor could it be saved elsewhere"), "{said}");
    assert!(!place.out().exists(), "an empty folder is left");
}

#[test]
fn a_benchmark_is_shown_and_kept_elsewhere() {
    let place = Place::new();
    let output = in_the_way(place.benchmark_of("500").arg("--live"), &place.out());
    let (shown, said) = failed(&output);
    assert!(shown.contains(" tg4 "), "{shown}");
    let rescued = place.rescued();
    assert!(said.contains(&format!("it was saved to {} instead", rescued.display())), "{said}");
    Receipt::load(&rescued.join("receipt.json")).expect("a receipt");
    Profile::load(&rescued.join("profile.json")).expect("a profile");
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_is_kept_though_its_report_can_not_be_printed() {
    for is_benchmark in [false, true] {
        let place = Place::new();
        let mut command = if is_benchmark { place.benchmark() } else { place.profile() };
        let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = command.stdout(full).output().expect("it starts");
        let (_, said) = failed(&output);
        assert!(said.contains("standard output: No space left on device"), "{said}");
        Profile::load(&place.out().join("profile.json")).expect("a profile");
    }
}

#[test]
fn a_flamegraph_is_shown_and_kept_elsewhere() {
    let place = Place::new();
    let model = model();
    let args = ["flamegraph", &model, "--via", "spans", "--tokens", "4", "--threads", "1", "-o"];
    let mut command = place.command(&args);
    command.arg(place.out());
    assert!(command.output().expect("it starts").status.success());
    // Of the run, which is there, only the drawing fails.
    let drawn_again = ["flamegraph", "out", "--via", "spans", "-o", "again"];
    let output = on_a_small_disk(&place.command(&drawn_again), 1);
    let (shown, said) = failed(&output);
    assert!(shown.contains("QkvProjection"), "{shown}");
    assert!(said.contains("the flamegraph could not be written to again: "), "{said}");
    assert!(said.contains("nor could it be saved elsewhere"), "{said}");
    // The run itself can't be written anywhere.
    fs::remove_dir_all(place.out()).expect("it is there");
    let output = on_a_small_disk(&command, 1);
    let (_, said) = failed(&output);
    assert!(said.contains("the run could not be written to"), "{said}");
    assert!(!place.out().exists(), "an empty folder is left");
}

#[cfg(target_os = "linux")]
#[test]
fn too_few_file_handles_are_an_error_and_take_no_figures() {
    let place = Place::new();
    assert!(place.profile().output().expect("it starts").status.success());
    let mut refused = 0;
    for n in 4..20 {
        let _ = fs::remove_dir_all(place.out());
        let command = place.profile();
        let mut limited = Command::new("bash");
        limited.args(["-c", &format!("ulimit -n {n}; exec \"$0\" \"$@\"")]);
        limited.arg(command.get_program()).args(command.get_args()).current_dir(place.dir.path());
        limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = limited.output().expect("bash starts");
        // 127: the dynamic linker found no handle for a library, and the program never began.
        if output.status.success() || output.status.code() == Some(127) {
            continue;
        }
        let (shown, said) = failed(&output);
        refused += 1;
        assert!(!said.contains("could not be written") || shown.contains("Decode"), "{n}: {said}");
        assert!(!place.out().exists(), "{n}: an empty folder is left");
    }
    assert!(refused > 0, "four handles were enough");
}

#[cfg(target_os = "linux")]
#[test]
fn a_thread_or_a_process_that_can_not_start_is_an_error() {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    if !is_root || !has_setpriv {
        return eprintln!("skipped: only root can run a process as a user without threads");
    }
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    assert!(place.profile().output().expect("it starts").status.success());
    for folder in [place.dir.path().to_owned(), place.out(), place.dir.path().join("tmp")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    }
    // Where that user can read it, wherever the build folder is. By another process, as `command::script` says.
    let program = place.dir.path().join("brickscope");
    let copied = Command::new("cp").arg(command::program()).arg(&program).status();
    assert!(copied.expect("there is cp").success());
    let model_here = place.dir.path().join("model.gguf");
    fs::copy(model(), &model_here).expect("there is room");
    fs::set_permissions(&model_here, fs::Permissions::from_mode(0o644)).expect("it is ours");
    for args in [
        &["profile", "model.gguf", "--threads", "2"][..],
        &["top", "model.gguf", "--once"],
        &["benchmark", "model.gguf", "--threads", "2"],
        &["benchmark", "model.gguf", "--processes", "2"],
        &["profile", "model.gguf", "--check-overhead"],
        &["profile", "model.gguf", "--threads", "1", "--tokens", "2", "--live"],
        &["profile", "model.gguf", "--threads", "1", "--metrics", "127.0.0.1:0"],
        &["diverge", "model.gguf", "--threads-a", "1", "--threads-b", "1"],
        &["flamegraph", "model.gguf"],
        &["flamegraph", "--", "true"],
        &["show", "out", "--as", "svg"],
    ] {
        let mut alone = Command::new("setpriv");
        alone.args(["--reuid=65531", "--regid=65531", "--clear-groups", "bash", "-c"]);
        alone.arg("ulimit -u 1; exec \"$0\" \"$@\"").arg(&program).args(args);
        alone.current_dir(place.dir.path()).env("TMPDIR", place.dir.path().join("tmp"));
        alone.env("BRICKSCOPE_CACHE", place.dir.path().join("tmp"));
        let output = alone.output().expect("setpriv starts");
        let said = text(&output.stderr);
        assert!(!said.contains("panicked"), "{args:?}: {said}");
        assert!(
            matches!(output.status.code(), Some(1 | 2)),
            "{args:?}: {:?} {said}",
            output.status
        );
        assert!(said.contains("brickscope: "), "{args:?}: {said}");
    }
}

#[test]
fn a_missing_folder_for_temporary_files_is_named() {
    let place = Place::new();
    let mut command = place.profile();
    let output = on_a_small_disk(command.env("TMPDIR", "/nowhere/at/all"), 1);
    let (_, said) = failed(&output);
    assert!(said.contains("elsewhere: there is no folder /nowhere/at/all, which should"), "{said}");
    assert!(said.contains("TMPDIR"), "{said}");
    let mut live = place.command(&["profile", &model(), "--live", "--tokens", "2"]);
    live.env("TMPDIR", "/nowhere/at/all").env_remove("XDG_RUNTIME_DIR");
    let output = live.output().expect("it starts");
    let (_, said) = failed(&output);
    assert!(said.contains("/nowhere/at/all") && said.contains("TMPDIR"), "{said}");
}
