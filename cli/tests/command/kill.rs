//! Files with their final names are complete, whenever a run is killed.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brickscope::Profile;
use brickscope_analysis::receipt::Receipt;
use tempfile::TempDir;

use brickscope_testing::command::{as_asked, run};
use brickscope_testing::patience::{skipped, tries};

/// A command that writes into `dir`, in its own process group.
struct Job {
    command: Command,
    dir: PathBuf,
}

impl Job {
    fn new(words: &[&str], dir: PathBuf) -> Self {
        let model =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf");
        let mut command = as_asked(words);
        command.arg("--threads").arg("1").arg("--out").arg(&dir).arg(model);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self { command, dir }
    }

    /// How long it takes if it isn't killed.
    fn duration(&mut self) -> Duration {
        let start = Instant::now();
        run(&mut self.command);
        start.elapsed()
    }

    /// Starts it, waits for `moment`, and kills it with all its children. Returns whether it was still
    /// running.
    fn kill(&mut self, moment: Moment) -> bool {
        let mut child = self.command.spawn().expect("the command starts");
        match moment {
            Moment::After(delay) => std::thread::sleep(delay),
            Moment::Change(nth) => {
                for _ in 0..nth {
                    let before = sizes(&self.dir);
                    while is_running(&mut child) && sizes(&self.dir) == before {
                        // Else it would take the CPU from the command that it watches.
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
            }
        }
        let was_running = is_running(&mut child);
        // A system call, since starting `kill` takes longer than many writes.
        let _ = child.kill();
        let group = format!("-{}", child.id());
        // The group may have ended already.
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let status = child.wait().expect("it was started");
        was_running && status.signal() == Some(9)
    }
}

/// When to kill.
#[derive(Debug, Clone, Copy)]
enum Moment {
    After(Duration),
    /// At the n-th removal, renaming or write of a file.
    Change(u32),
}

fn is_running(child: &mut Child) -> bool {
    child.try_wait().expect("it was started").is_none()
}

/// All files below a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn is_partial(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with('.') && name.ends_with(".partial")
}

/// The length of each file that has contents, or will have.
fn sizes(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let has_content = |path: &PathBuf| !path.to_string_lossy().contains(".writable.");
    let size = |path: PathBuf| {
        let size = fs::metadata(&path).map(|metadata| metadata.len());
        (path, size.unwrap_or_default())
    };
    files(dir).into_iter().filter(has_content).map(size).collect()
}

/// Asserts that each file is complete, and that the files in a folder are of one run.
fn is_whole(dir: &Path) {
    for path in files(dir) {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("receipt.json") => {
                let receipt = Receipt::load(&path).expect("a receipt");
                let sha256 = receipt.canonical_sha256().expect("JSON");
                assert_eq!(receipt.seal.map(|seal| seal.sha256), Some(sha256), "{path:?}");
            }
            Some("profile.json") => {
                let profile = Profile::load(&path).expect("a profile");
                assert_eq!(profile.check(), Ok(()), "{path:?}");
                if let Ok(receipt) = Receipt::load(&path.with_file_name("receipt.json")) {
                    assert_eq!(receipt.timestamp, profile.created, "of two runs: {path:?}");
                    let walls = profile.passes.iter().map(|pass| pass.wall_ns);
                    let kept = receipt.tests.iter().filter_map(|test| test.samples.last());
                    let kept = kept.flat_map(|sample| sample.pass_ns.iter().copied());
                    assert!(walls.eq(kept), "of two runs: {path:?}");
                }
            }
            // It counts only for the very profile that it was made from.
            Some(".summary.json") => {}
            _ => assert!(is_partial(&path), "{path:?} is neither whole nor hidden"),
        }
    }
}

/// The processes of a set that have receipts; 0 for a run outside of a set.
fn processes(dir: &Path) -> Vec<u32> {
    let receipts = files(dir).into_iter().filter(|path| path.ends_with("receipt.json"));
    let runs = receipts.map(|path| Receipt::load(&path).expect("a receipt").run);
    let mut found: Vec<u32> =
        runs.map(|run| if run.set.is_some() { run.process } else { 0 }).collect();
    found.sort_unstable();
    found
}

/// Kills a job until `kills` of its runs were running; `prepare` comes before each. One that overwrites a run leaves one.
fn kill_often(mut job: Job, kills: u32, prepare: &mut dyn FnMut()) {
    let overwrites = job.command.get_args().any(|arg| arg == "--overwrite");
    // So that there is something to overwrite, and all that a first run makes is there.
    run(&mut job.command);
    prepare();
    let mut duration = job.duration();
    // How often in a row it had ended before it was to be killed.
    let mut late = 0;

    let mut killed = 0;
    for attempt in tries() {
        prepare();
        // The golden ratio spreads moments evenly, however many there are.
        let part = (f64::from(attempt) * 0.618_033_988_749_895).fract();
        let moment = match attempt % 4 {
            0 => Moment::Change(1 + attempt / 4 % 4),
            _ => Moment::After(duration.mul_f64(part)),
        };
        if job.kill(moment) {
            killed += 1;
            late = 0;
        } else if let Moment::After(_) = moment {
            // The machine is faster now than before, by little or by much.
            duration = duration.mul_f64(0.9);
            late += 1;
            if late % 5 == 0 {
                prepare();
                duration = job.duration();
            }
        }
        is_whole(&job.dir);
        assert!(!overwrites || !processes(&job.dir).is_empty());
        if killed == kills {
            break;
        }
    }
    assert!(killed > 0, "each came too late");
    if killed < kills {
        skipped(&format!("the rest of {kills} kills: {killed} came before the end of a run"));
    }
    // After all these kills the command still works.
    prepare();
    run(&mut job.command);
    is_whole(&job.dir);
}

const RUN: [&str; 8] = ["benchmark", "--overwrite", "-p", "8", "-n", "4", "-r", "1"];
const SET: [&str; 10] =
    ["benchmark", "--overwrite", "-p", "8", "-n", "4", "-r", "1", "--processes", "2"];

#[test]
fn a_kill_of_a_benchmark_leaves_the_old_run_or_the_new_one() {
    let folder = TempDir::new().expect("a temporary folder");
    let dir = folder.path().join("one");
    kill_often(Job::new(&RUN, dir.clone()), 20, &mut || ());
    assert_eq!(processes(&dir), [0]);
}

#[test]
fn a_kill_of_a_set_leaves_the_old_run_or_the_new_one() {
    let folder = TempDir::new().expect("a temporary folder");
    kill_often(Job::new(&SET, folder.path().join("set")), 20, &mut || ());
}

#[test]
fn a_kill_of_a_profile_leaves_the_whole_run_or_none() {
    let folder = TempDir::new().expect("a temporary folder");
    let dir = folder.path().join("profile");
    let job = Job::new(&["profile", "--tokens", "4"], dir.clone());
    // A profile doesn't overwrite another.
    kill_often(job, 20, &mut || {
        let _ = fs::remove_dir_all(&dir);
    });
}

#[test]
fn a_kill_of_a_run_over_a_set_leaves_one_of_them() {
    kill_over_another(&RUN, &SET, &[1, 2]);
}

#[test]
fn a_kill_of_a_set_over_a_run_leaves_one_of_them() {
    kill_over_another(&SET, &RUN, &[0]);
}

/// Kills `words` while it writes over what `before` wrote, which are these processes.
fn kill_over_another(words: &[&str], before: &[&str], has: &[u32]) {
    let folder = TempDir::new().expect("a temporary folder");
    let dir = folder.path().join("both");
    let kept = folder.path().join("kept");
    let mut before = Job::new(before, dir.clone());
    let mut prepared = 0;
    kill_often(Job::new(words, dir.clone()), 20, &mut || {
        // Over what a kill left. A copy of it does for the others, and takes no measurement.
        if prepared % 3 == 0 {
            run(&mut before.command);
            let _ = fs::remove_dir_all(&kept);
            copy(&dir, &kept);
        } else {
            let _ = fs::remove_dir_all(&dir);
            copy(&kept, &dir);
        }
        prepared += 1;
        assert_eq!(processes(&dir), has);
    });
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("copied");
        }
    }
}
