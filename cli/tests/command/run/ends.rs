//! The ends of a program, its own and those from outside.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use brickscope::{Phase, Profile};
use tempfile::TempDir;

use super::{command, command_of, run, total};

#[test]
fn a_program_that_dies_leaves_what_it_recorded() {
    for (how, signal) in [("crash", 6), ("kill", 9)] {
        let ran = run("good/loads", &[how], &[]);
        assert_eq!(ran.output.status.code(), Some(128 + signal), "{}", ran.stderr());
        let profile = ran.profile();
        assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(19), "{how}");
        let cut_short = profile.run.and_then(|run| run.cut_short).unwrap_or_default();
        assert!(cut_short.contains("signal"), "{how}: {cut_short}");
    }
}

#[test]
fn the_exit_code_is_the_programs() {
    let ran = run("good/loads", &["fail"], &[]);
    assert_eq!(ran.output.status.code(), Some(3), "{}", ran.stderr());
    assert_eq!(ran.profile().passes.len(), 22);
}

/// Passes are recorded after they ran, which a debug build takes for a mistake of who embeds a profiler.
#[test]
fn a_recording_does_not_misuse_its_own_profiler() {
    let kept = ["--keep", "tail", "--keep-mib", "1"];
    for options in [&[][..], &kept[..]] {
        let (mut command, _run, _dir) = command_of(options, "good/loads", &[], &[]);
        let output = command.output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !told.contains("not where they belong"), "{told}");
    }
}

#[test]
fn a_process_that_becomes_another_program_is_recorded_in_both() {
    let ran = run("good/loads", &["exec"], &[]);
    assert_eq!(ran.output.status.code(), Some(3), "{}", ran.stderr());
    assert_eq!(ran.stdout(), "generated\ngenerated\n");
    assert_eq!(ran.profile().passes.len(), 22);
    assert!(ran.stderr().contains("1 process more recorded passes"), "{}", ran.stderr());
    let other = Profile::load(&ran.run.join("context-2/profile.json")).expect("it is there");
    assert_eq!(other.passes.len(), 22);
}

#[test]
fn sigterm_ends_the_program_and_is_reported() {
    let (mut command, run, _dir) = command("good/loads", &["wait"], &[]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut line = [0; 10];
    stdout.read_exact(&mut line).expect("it says that it has generated");
    let kill = Command::new("kill").arg(child.id().to_string()).status().expect("kill");
    assert!(kill.success());
    let mut rest = String::new();
    let mut stderr = child.stderr.take().expect("it is piped");
    stderr.read_to_string(&mut rest).expect("text");
    let status = child.wait().expect("it ends");
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    assert!(rest.contains("Decode"), "{rest}");
    assert_eq!(Profile::load(&run.join("profile.json")).expect("it is written").passes.len(), 22);
}

/// Starts a run whose program has computed all and waits.
fn waiting() -> (std::process::Child, PathBuf, TempDir) {
    let (mut command, run, dir) = command("good/loads", &["wait"], &[]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = [0; 10];
    let stdout = child.stdout.as_mut().expect("it is piped");
    stdout.read_exact(&mut line).expect("it says that it has generated");
    (child, run, dir)
}

#[test]
fn what_a_killed_run_recorded_is_named_by_the_next_one_and_can_be_reported() {
    let (mut child, run, dir) = waiting();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(!run.exists());
    let recordings = || {
        let entries =
            std::fs::read_dir(dir.path()).expect("it is there").map(|entry| entry.expect("it"));
        let begins = |entry: &std::fs::DirEntry| {
            entry.file_name().to_string_lossy().starts_with("brickscope-tmp-")
        };
        entries.filter(begins).count()
    };
    assert_eq!(recordings(), 1);
    let (mut next, _, _dir) = command("/usr/bin/true", &[], &[]);
    let next = next.env("TMPDIR", dir.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&next.stderr).into_owned();
    assert!(
        said.contains("1 earlier run did not come to the end: `brickscope run --recover`"),
        "{said}"
    );
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let folder = std::env::current_dir().expect("there is one").display().to_string();
    assert!(words.contains(&format!("good/loads wait, in {folder}")), "{said}");
    let recover = || {
        let mut command = Command::new(command::program());
        command.args(["run", "--recover", "--out"]).arg(&run).env("TMPDIR", dir.path());
        // A later one than what was recorded.
        command.env("BRICKSCOPE_COMMIT", "later");
        command.env("BRICKSCOPE_CACHE", command::cache()).output().expect("it starts")
    };
    let recovered = recover();
    let said = String::from_utf8_lossy(&recovered.stderr).into_owned();
    assert_eq!(recovered.status.code(), Some(0), "{said}");
    // A note is cut into lines where the program's path is long.
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Decode") && words.contains("good/loads wait"), "{said}");
    let profile = Profile::load(&run.join("profile.json")).expect("it is written");
    assert_eq!(profile.passes.len(), 22);
    // Each has its own time, one after the other, and its nodes have theirs.
    profile.check().expect("it adds up");
    assert!(profile.passes.iter().all(|pass| pass.wall_ns > 0), "{:?}", profile.passes);
    assert!(profile.passes.windows(2).all(|pair| pair[0].start_ns < pair[1].start_ns));
    let product = total(&profile, Phase::Decode, "DownProjection");
    assert!(product.stats.total_ns > 0, "{product:?}");
    let cut_short = profile.run.expect("a run").cut_short.expect("it was");
    assert!(cut_short.contains("brickscope ended before the program"), "{cut_short}");
    assert_ne!(profile.named.and_then(|named| named.commit).as_deref(), Some("later"));
    assert_eq!(recordings(), 0);
    let nothing = recover();
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(nothing.status.code() == Some(1) && said.contains("no earlier run has left"), "{said}");
}

#[test]
fn the_end_of_a_terminal_ends_the_program_and_the_run_is_written() {
    // Also where these tests run by `nohup`, which hands it down that nobody hears of the end.
    let (direct, run, _dir) = command("good/loads", &["wait"], &[]);
    let mut child = Command::new("env");
    child.arg("--default-signal=HUP").arg(direct.get_program()).args(direct.get_args());
    child.envs(direct.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = child.stdout(Stdio::piped()).spawn().expect("env, of GNU coreutils");
    let mut line = [0; 10];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut line).expect("it computes");
    let hangup = Command::new("kill").args(["-HUP", &child.id().to_string()]).status();
    assert!(hangup.expect("kill").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert_eq!(Profile::load(&run.join("profile.json")).expect("it is written").passes.len(), 22);
    // Who outlives it by `nohup` goes on.
    let (direct, run, _dir) = command("good/loads", &["wait"], &[]);
    let mut child = Command::new("nohup");
    child.arg(direct.get_program()).args(direct.get_args());
    child.envs(direct.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nohup");
    let mut line = [0; 10];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut line).expect("it computes");
    for signal in ["-HUP", "-TERM"] {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        assert!(signal != "-HUP" || child.try_wait().expect("it is ours").is_none());
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert!(run.join("profile.json").is_file());
}

/// As a script ends a server: nobody else tells the program.
#[test]
fn sigint_without_a_terminal_ends_the_program_and_is_reported() {
    let (command, run, _dir) = command("good/loads", &["wait"], &[]);
    // In a session of its own there is no terminal.
    let mut alone = Command::new("setsid");
    alone.arg(command.get_program()).args(command.get_args());
    alone.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    alone.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = alone.spawn().expect("setsid, of util-linux");
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut line = [0; 10];
    stdout.read_exact(&mut line).expect("it says that it has generated");
    let id = child.id().to_string();
    let kill = Command::new("kill").args(["-INT", &id]).status().expect("kill");
    assert!(kill.success());
    let mut rest = String::new();
    let mut stderr = child.stderr.take().expect("it is piped");
    stderr.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert!(rest.contains("Decode"), "{rest}");
    assert_eq!(Profile::load(&run.join("profile.json")).expect("it is written").passes.len(), 22);
}

#[test]
fn the_child_of_a_fork_is_not_recorded() {
    let ran = run("good/loads", &["fork"], &[]);
    assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
    assert_eq!(ran.profile().passes.len(), 22);
}
