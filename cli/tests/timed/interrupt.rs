//! Ctrl-C and SIGTERM: what was measured until then is reported. And no process outlives its parent.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use brickscope::Profile;
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{self, brickscope, text};
use brickscope_testing::patience::{first_to_judge, tries, until};

fn model() -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    models.join("tiny-Q8_0.gguf").to_str().expect("UTF-8").to_owned()
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.expect("kill").success());
}

/// The processes below this one.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    lists.iter().flat_map(|list| list.split_whitespace()).flat_map(str::parse).collect()
}

/// Whether a process runs: one that has ended, but that nobody waited for, doesn't.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// A command that has said that its run begins.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let said = BufReader::new(child.stderr.take().expect("a pipe"));
        Self { child, said }
    }

    fn says(mut self, what: &str) -> Self {
        self.wait_for(what);
        self
    }

    fn wait_for(&mut self, what: &str) {
        let mut lines = String::new();
        while !lines.contains(what) {
            assert_ne!(self.said.read_line(&mut lines).expect("UTF-8"), 0, "{lines}");
        }
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// The exit code, and what it printed.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        // Else it waits for somebody to read on.
        let reader = thread::spawn(move || {
            let _ = self.said.read_to_string(&mut said);
            said
        });
        let output = self.child.wait_with_output().expect("it ends");
        let said = reader.join().expect("no panic");
        assert!(!said.contains("panicked"), "{said}");
        (output.status.code(), text(&output.stdout).to_owned() + &said)
    }
}

/// The passes of a run that publishes are watched until there are some.
fn has_passes(pid: u32) -> bool {
    let once = ["top", "--attach", &pid.to_string(), "--once", "--json"];
    let output = brickscope(&once).output().expect("it starts");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    !json.is_null()
}

fn out() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a folder");
    let out = dir.path().join("runs/out");
    (dir, out)
}

#[test]
fn an_interrupted_profile_reports_and_saves_its_passes() {
    let _alone = crate::alone();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let (dir, out, shown) =
            interrupted(&["profile", "--tokens", "1900", "--prompt", "Hi"], (name, code), |_| true);
        let first: Vec<&str> = shown.lines().take(10).collect();
        let marked = first.iter().any(|line| line.starts_with("cut short: interrupted"));
        assert!(marked && shown.contains("Decode"), "{shown}");
        let profile = Profile::load(&out.join("profile.json")).expect("a profile");
        assert_eq!(profile.check(), Ok(()));
        let run = profile.run.expect("it says how it ran");
        assert!(run.generated_tokens < 1900 && run.generated_tokens > 0);
        let how = run.cut_short.expect("it says so");
        assert_eq!(how, format!("interrupted after {} of 1900 tokens", run.generated_tokens));
        drop(dir);
    }
}

/// Interrupts a run in the middle: its folder, and what it says. One that has ended before it could be asked for its
/// passes is run again. `suits` says whether what it says is what was to be interrupted; else it is tried later in the run.
fn interrupted(
    command: &[&str],
    (name, code): (&str, i32),
    suits: impl Fn(&str) -> bool,
) -> (TempDir, PathBuf, String) {
    for nth in tries() {
        let (dir, out) = out();
        let mut command = brickscope(command);
        let running =
            Running::start(command.arg("--live").arg("--out").arg(&out)).says("publishing;");
        until("passes", || {
            (has_passes(running.child.id()) || !runs(running.child.id())).then_some(())
        });
        thread::sleep(Duration::from_millis(50) * nth);
        running.signal(name);
        let (ended, shown) = running.end();
        if ended == Some(0) && !shown.contains("cut short") {
            continue;
        }
        assert_eq!(ended, Some(code), "{shown}");
        if suits(&shown) {
            return (dir, out, shown);
        }
    }
    panic!("{command:?}: no run was interrupted in the middle");
}

/// Runs a command that is to be interrupted before its first pass, which is after a second at the earliest, until it was:
/// on a busy machine a signal may be late. `begins` waits for the moment and sends it.
fn before_the_first_pass(command: &[&str], begins: impl Fn(&mut Running)) {
    let in_time = tries().any(|_| {
        let (dir, out) = out();
        let mut running = Running::start(brickscope(command).arg(&out));
        begins(&mut running);
        let (ended, shown) = running.end();
        assert_eq!(ended, Some(143), "{shown}");
        if shown.contains("cut short: interrupted") {
            return false;
        }
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0, "a folder is left");
        true
    });
    assert!(in_time, "{command:?}: each signal came after the first pass");
}

#[test]
fn before_the_first_pass_it_just_ends_and_leaves_nothing() {
    let _alone = crate::alone();
    for command in ["profile", "benchmark"] {
        before_the_first_pass(&[command, "--live", "--out"], |running| {
            // Long before the run: the model is still read.
            running.wait_for("will publish");
            running.signal("TERM");
        });
    }
}

#[test]
fn an_interrupted_benchmark_reports_its_samples_and_has_no_receipt() {
    let _alone = crate::alone();
    let model = model();
    let args = ["benchmark", &model, "-p", "16", "-n", "4", "-r", "10000"];
    // Nothing says when the warm-up is over.
    let is_measured = |shown: &str| {
        let is_cut = shown.starts_with("note: cut short: interrupted after ");
        assert_eq!(is_cut, shown.contains(" pp16 "), "{shown}");
        is_cut
    };
    let (_dir, out, shown) = interrupted(&args, ("INT", 130), is_measured);
    assert!(!out.join("receipt.json").exists());
    assert!(shown.contains("no receipt is written"), "{shown}");
}

#[test]
fn an_interrupted_set_reports_the_processes_that_are_whole() {
    let _alone = crate::alone();
    let (dir, out) = out();
    let model = model();
    let args = ["benchmark", &model, "-p", "16", "-n", "4", "-r", "2", "--processes", "900"];
    let running = Running::start(brickscope(&args).arg("--out").arg(&out));
    until("a whole process", || out.join("1/receipt.json").exists().then_some(()));
    running.signal("TERM");
    let (ended, shown) = running.end();
    assert_eq!(ended, Some(143), "{shown}");
    assert!(shown.starts_with("note: cut short: interrupted after "), "{shown}");
    assert!(shown.contains(" of 900 processes"), "{shown}");
    drop(dir);
}

#[test]
fn an_interrupted_flamegraph_draws_what_ran() {
    let _alone = crate::alone();
    let samples = ["flamegraph", "--via", "sampler", "-o"];
    let dir = TempDir::new().expect("a folder");
    let probe =
        brickscope(&samples).arg(dir.path().join("flames")).args(["--", "sleep", "0.1"]).output();
    let can_sample = probe.expect("it starts").status.success();
    an_interrupted_flamegraph("spans", "TERM", 143);
    an_interrupted_flamegraph("timer", "INT", 130);
    if can_sample {
        an_interrupted_flamegraph("sampler", "INT", 130);
    }
}

fn an_interrupted_flamegraph(via: &str, name: &str, code: i32) {
    // Nothing says when the first pass is over: an interrupt before it leaves nothing, and a later one is tried.
    for ticks in [100, 200, 400, 800, 1600, 3200] {
        let (dir, out) = out();
        let args =
            ["flamegraph", "--via", via, "--tokens", "1900", "--prompt", "Hi", "--threads", "1"];
        let running = Running::start(brickscope(&args).arg("-o").arg(&out));
        let child = until("the run", || children(running.child.id()).first().copied());
        until("passes", || (cpu_ticks(child)? > ticks).then_some(()));
        running.signal(name);
        let (ended, shown) = running.end();
        assert_eq!(ended, Some(code), "--via {via}: {shown}");
        if !shown.contains("cut short: interrupted") {
            assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0, "a folder is left");
            continue;
        }
        assert!(out.join("flamegraph.svg").exists(), "{shown}");
        assert!(shown.contains("the run was cut short: interrupted"), "{shown}");
        let profile = Profile::load(&out.join("profile.json")).expect("a profile");
        assert!(profile.run.expect("it says how").cut_short.is_some());
        return;
    }
    panic!("--via {via}: no pass within half a minute of CPU time");
}

#[test]
fn a_flamegraph_of_nothing_leaves_no_folder() {
    let _alone = crate::alone();
    let args = ["flamegraph", "--via", "spans", "--threads", "1", "--tokens", "1900", "-o"];
    before_the_first_pass(&args, |running| {
        until("the run", || children(running.child.id()).first().copied());
        running.signal("TERM");
    });
}

/// How long a process has computed, in ticks of the system.
fn cpu_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(11)?.parse().ok()
}

/// Kills a command that runs another process and doesn't end by itself, and waits until that has ended, too.
fn no_orphans(command: &mut Command) {
    assert!(leaves_no_orphan(command), "{command:?} ended");
}

/// Kills a command that runs another process, and waits until that has ended, too. Returns false if the command had done
/// its work before it was killed.
fn leaves_no_orphan(command: &mut Command) -> bool {
    let mut parent =
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let words = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).ok();
    let own = words(parent.id()).expect("it was started");
    // Not in the moment between fork and exec, when it has the command line of its parent, nor one that has ended.
    let is_another = |&child: &u32| words(child).is_some_and(|of| !of.is_empty() && of != own);
    let child = until("a child", || match parent.try_wait().expect("it is ours") {
        Some(status) => {
            assert!(status.success(), "{command:?} ended: {status}");
            Some(None)
        }
        None => children(parent.id()).into_iter().find(is_another).map(Some),
    });
    let Some(child) = child else { return false };
    parent.kill().expect("it is ours");
    if parent.wait().expect("it was killed").success() {
        return false;
    }
    until(&format!("{command:?}: the end of its child"), || (!runs(child)).then_some(()));
    true
}

#[test]
fn children_end_with_their_parent_even_if_it_is_killed() {
    let _alone = crate::alone();
    let (dir, out) = out();
    let model = model();
    let at = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let out = out.to_str().expect("UTF-8");
    let long = ["--repetitions", "1000", "-p", "64", "-n", "4"];
    let set = ["benchmark", &model, "--processes", "2", "--out", out];
    no_orphans(&mut brickscope(&[&set[..], &long].concat()));
    let check = ["profile", "--check-overhead", "--overhead-seconds", "600"];
    no_orphans(&mut brickscope(&check));
    let program = command::program();
    let compared = program.to_str().expect("UTF-8");
    let (turns, model_of) = (["compare", compared, compared, "--processes", "1"], at("turns"));
    let turns = [&turns[..], &["--model", &model, "--out", &model_of, "--"], &long].concat();
    no_orphans(&mut brickscope(&turns));
    // This one ends by itself, a second or two after its engine began to publish.
    first_to_judge(|_| {
        match leaves_no_orphan(&mut brickscope(&["top", &model, "--once", "--rate", "1"])) {
            true => Ok(()),
            false => Err("`top --once` ended before it was killed".to_owned()),
        }
    });
    let flames = at("flames");
    let drawn =
        ["flamegraph", "--via", "spans", "--threads", "1", "--tokens", "1900", "-o", &flames];
    no_orphans(&mut brickscope(&drawn));
    // A program that knows nothing of us, in each way to run it that works here.
    for via in ["spans", "timer", "sampler", "perf"] {
        let drawn = ["flamegraph", "--via", via, "-o", &flames, "--", "sleep", "1000"];
        let probe = ["flamegraph", "--via", via, "-o", &at("probe"), "--", "true"];
        let works = brickscope(&probe).output().expect("it starts");
        let said = text(&works.stderr);
        if said.contains("can't sample") || said.contains("can't use perf") {
            continue;
        }
        no_orphans(&mut brickscope(&drawn));
    }
}
