//! `run --keep tail --when`, and what is kept so far.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use brickscope::Profile;
use brickscope_testing::command;
use brickscope_testing::patience::{first_to_judge, wait_until};

use super::room::is_of_sockets;
use super::{Ran, command_of};

/// Words with a space between any two.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn ran(options: &[&str], decodes: &str) -> Ran {
    let options = [&["--keep", "tail", "--keep-mib", "1"][..], options].concat();
    let (mut command, run, dir) = command_of(&options, "good/loads", &[], &[("DECODES", decodes)]);
    let ran = Ran { output: command.output().expect("it starts"), run, _dir: dir };
    assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
    ran
}

/// How many passes there were, kept or not.
fn all(profile: &Profile) -> u64 {
    profile.kept.as_ref().map_or(profile.passes.len() as u64, |kept| kept.passes)
}

/// Each pass takes longer than nothing: more than there is room for.
#[test]
fn what_takes_longer_is_kept_whole_as_far_as_there_is_room_and_all_is_counted() {
    let ran = ran(&["--when", "pass>0us"], "2000");
    let profile = ran.profile();
    profile.check().expect("it adds up");
    let kept = profile.kept.as_ref().expect("not all were kept");
    let fired = profile.fired.expect("there was a condition");
    // Without the first pass of each of two shapes, in which its graph was described.
    assert_eq!((kept.passes, fired.fired, fired.apart), (2000, 2000, 0));
    assert!(fired.whole > 0 && fired.no_room > 0, "{fired:?}");
    assert!(kept.around >= fired.whole, "{fired:?} {}", kept.around);
    assert_eq!(profile.passes.len() as u64, kept.kept());
    let said = fired.line();
    assert!(said.starts_with("2000 passes took over 0 s; "), "{said}");
    assert!(ran.said().contains(&said), "{}", ran.said());
    let run = ran.run.to_str().expect("UTF-8");
    let findings = command::brickscope(&["findings", run]).output().expect("it starts");
    let found = words(&String::from_utf8_lossy(&findings.stdout));
    assert!(found.contains(&said), "{found}");
}

#[test]
fn what_never_takes_longer_is_said_too() {
    let ran = ran(&["--when", "token>9000000s"], "20");
    let profile = ran.profile();
    assert_eq!((profile.passes.len(), profile.kept.is_none()), (22, true), "{}", ran.said());
    let fired = profile.fired.expect("there was a condition");
    assert_eq!((fired.fired, fired.whole), (0, 0));
    assert!(ran.said().contains("no token took over 9000000 s"), "{}", ran.said());
}

/// A program that is no server has no first tokens, which is not that none was late.
#[test]
fn of_a_program_that_nobody_asks_it_can_not_be_told_whether_a_first_token_was_late() {
    let ran = ran(&["--when", "ttft>0us"], "20");
    let fired = ran.profile().fired.expect("there was a condition");
    let asked = fired.asked.expect("it is one on first tokens");
    assert_eq!((fired.fired, asked.requests, asked.first_tokens), (0, 0, 0));
    let said = "whether ttft>0s came true can't be told: no request of a server was seen";
    assert!(words(&ran.said()).contains(said), "{}", ran.said());
}

#[test]
fn what_is_no_condition_is_refused_before_the_program_runs() {
    for (options, why) in [
        (&["--keep", "tail", "--when", "token"][..], "it has no limit"),
        (&["--keep", "tail", "--when", "first>2s"][..], "only a token, a pass or a ttft can"),
        (&["--keep", "tail", "--when", "pass>50"][..], "no whole number of us, ms or s"),
        (&["--when", "token>200ms"][..], "--keep"),
    ] {
        let (mut command, run, _dir) = command_of(options, "good/loads", &[], &[]);
        let output = command.output().expect("it starts");
        let told = words(&String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(why) && (options.len() == 2 || told.contains("'token>200ms'")));
        assert!(output.stdout.is_empty() && !run.exists(), "{told}");
    }
}

/// SIGUSR1 is brickscope's: the program hears nothing of it, goes on, and ends as it would alone.
#[test]
fn what_is_kept_so_far_is_a_run_while_the_program_goes_on() {
    let options = ["--keep", "tail", "--keep-mib", "1", "--when", "pass>0us"];
    let (mut command, run, dir) =
        command_of(&options, "good/loads", &["goes on"], &[("DECODES", "300")]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut line = [0; 10];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut line).expect("it computes");
    assert_eq!(&line, b"generated\n");
    let so_far = |n: u32| dir.path().join(format!("run-so-far-{n}"));
    for n in 1..=2 {
        let sent = Command::new("kill").args(["-USR1", &child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        let file = so_far(n).join("profile.json");
        wait_until("a run of what is kept so far", || file.exists());
        let profile = Profile::load(&file).expect("it is whole");
        profile.check().expect("it adds up");
        let passes = all(&profile);
        assert_eq!(passes, 302);
        let fired = profile.fired.expect("there was a condition");
        assert_eq!(fired.fired + 2, passes);
        let cut_short = profile.run.expect("a run").cut_short;
        assert_eq!(cut_short.as_deref(), Some("written while the program ran"));
        let why = profile.ceilings_absent.expect("nothing was measured beside the program").reason;
        assert_eq!(why, "not measured while the program ran");
        assert!(child.try_wait().expect("it is ours").is_none() && !run.exists());
    }
    child.stdin.take().expect("it is piped").write_all(b"g").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let told = words(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "went on\n");
    let profile = Profile::load(&run.join("profile.json")).expect("it is written");
    profile.check().expect("it adds up");
    assert_eq!((all(&profile), profile.fired.map(|fired| fired.fired)), (602, Some(600)));
    assert!(told.contains("kill -USR1 ") && told.contains("passes so far: "), "{told}");
    let mut names: Vec<String> = std::fs::read_dir(dir.path())
        .expect("it is there")
        .map(|entry| entry.expect("it is").file_name().to_string_lossy().into_owned())
        .filter(|name| !is_of_sockets(name))
        .collect();
    names.sort();
    assert_eq!(names, ["run", "run-so-far-1", "run-so-far-2"]);
}

/// Of another shell: the same as by a signal.
#[test]
fn whoever_asks_on_the_socket_gets_the_run_and_the_program_goes_on() {
    let options = ["--keep", "tail", "--keep-mib", "1"];
    let (mut command, run, dir) =
        command_of(&options, "good/loads", &["goes on"], &[("DECODES", "300")]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut line = [0; 10];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut line).expect("it computes");
    assert_eq!(&line, b"generated\n");
    let id = child.id().to_string();
    let ask = |words: &[&str]| {
        let mut command = command::brickscope(words);
        let output = command.env("TMPDIR", dir.path()).output().expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), self::words(&String::from_utf8_lossy(&said)))
    };
    for n in 1..=2 {
        let (is_done, said) = ask(&["requests", "--attach", &id]);
        assert!(is_done && said.contains(&format!("run-so-far-{n}")), "{said}");
        let file = dir.path().join(format!("run-so-far-{n}/profile.json"));
        let profile = Profile::load(&file).expect("it is whole");
        assert_eq!(all(&profile), 302);
        assert!(said.contains(" passes so far: "), "{said}");
        assert!(child.try_wait().expect("it is ours").is_none() && !run.exists());
    }
    // Who waits for a live view is told that there is none.
    if cfg!(feature = "top") {
        // A `run` that gets no processor for some seconds doesn't say it in time.
        let judged = first_to_judge(|_| match ask(&["top", "--attach", &id, "--once"]) {
            (false, said) if said.contains("whoever listens says nothing") => Err(said),
            answer => Ok(answer),
        });
        if let Some((is_done, said)) = judged {
            assert!(!is_done && said.contains("`brickscope requests --attach"), "{said}");
        }
    }
    let (is_done, said) = ask(&["requests", "--attach", &std::process::id().to_string()]);
    assert!(!is_done && said.contains("only `brickscope run --keep tail`"), "{said}");
    child.stdin.take().expect("it is piped").write_all(b"g").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let told = words(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "went on\n");
    assert!(told.contains(&format!("`brickscope requests --attach {id}` writes")), "{told}");
    let profile = Profile::load(&run.join("profile.json")).expect("it is written");
    assert_eq!(all(&profile), 602);
    let (is_done, said) = ask(&["requests", "--attach", &id]);
    assert!(!is_done && said.contains(&id), "{said}");
}

/// Who asks for it without `--keep` is told so, and ends nothing.
#[test]
fn without_keep_nothing_is_written_while_the_program_goes_on() {
    let (mut command, run, dir) = command_of(&[], "good/loads", &["goes on"], &[("DECODES", "20")]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut line = [0; 10];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut line).expect("it computes");
    assert_eq!(&line, b"generated\n");
    let sent = Command::new("kill").args(["-USR1", &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    let mut said: Vec<u8> = Vec::new();
    let mut stderr = child.stderr.take().expect("it is piped");
    let note = b"note: only with `--keep tail`";
    while !said.windows(note.len()).any(|told| told == note) {
        let mut byte = [0];
        let read = stderr.read_exact(&mut byte);
        assert!(read.is_ok(), "{}", String::from_utf8_lossy(&said));
        said.extend(byte);
    }
    child.stdin.take().expect("it is piped").write_all(b"g").expect("it reads");
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("it is text");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{rest}");
    assert!(run.join("profile.json").is_file() && !dir.path().join("run-so-far-1").exists());
}
