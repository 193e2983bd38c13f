//! What a program finds when it starts, and what it starts itself.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use brickscope::Phase;
use brickscope_testing::patience::unless_it_hangs;

use super::{Ran, command, command_of, programs, run};

/// What of ours is in an environment, as `env` prints it.
fn ours(environment: &str) -> Vec<&str> {
    let names = ["LD_PRELOAD", "BRICKSCOPE_RECORD", "BRICKSCOPE_SHARES", "BRICKSCOPE_TURNS"];
    let name = |line: &&str| line.split('=').next().is_some_and(|name| names.contains(&name));
    environment.lines().filter(name).collect()
}

#[test]
fn a_program_and_what_it_starts_have_the_environment_that_they_have_alone() {
    // A program itself; what a shell starts, waits for and leaves running; and one that becomes another one, which gets an
    // environment of its own.
    for line in [
        &["/usr/bin/env"][..],
        &["/bin/sh", "-c", "env; env | cat; (exec env); env &"],
        &["/usr/bin/env", "nice", "-n", "0", "/usr/bin/env"],
        &["/usr/bin/env", "-i", "A=1", "/usr/bin/env"],
    ] {
        let (mut command, _, _dir) = command(line[0], &line[1..], &[]);
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!said.is_empty() && output.status.success(), "{line:?}: {output:?}");
        assert_eq!(ours(&said), [""; 0], "{line:?}");
    }
    // The user's own libraries stay in the list.
    let own = programs().join("good/libggml-base.so");
    let own = own.to_str().expect("a path");
    let (mut command, _, _dir) = command("/usr/bin/env", &[], &[("LD_PRELOAD", own)]);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(ours(&said), [format!("LD_PRELOAD={own}")]);
}

#[test]
fn a_program_that_becomes_another_one_is_recorded() {
    let program = programs().join("good/loads");
    let program = program.to_str().expect("a path");
    for before in
        [&["nice", "-n", "0"][..], &["-i"], &["LD_PRELOAD="], &["sh", "-c", "exec \"$0\""]]
    {
        let words: Vec<&str> = before.iter().copied().chain([program]).collect();
        let ran = run("/usr/bin/env", &words, &[]);
        assert!(ran.profile().phase(Phase::Decode).is_some(), "{before:?}: {}", ran.stderr());
    }
}

#[test]
fn what_a_program_starts_is_recorded_where_that_is_asked_for() {
    let program = programs().join("good/loads");
    let line = format!("{}; true", program.display());
    let ran = run("/bin/sh", &["-c", &line], &[]);
    assert_eq!(ran.stdout(), "generated\n");
    assert!(ran.stderr().contains("brickscope run --follow"), "{}", ran.stderr());
    assert!(!ran.run.exists());
    let (mut command, run, _dir) = command_of(&["--follow"], "/bin/sh", &["-c", &line], &[]);
    let ran = Ran { output: command.output().expect("it starts"), run, _dir };
    assert!(ran.profile().phase(Phase::Decode).is_some(), "{}", ran.stderr());
}

#[test]
fn what_is_left_running_loads_no_library_of_another_user() {
    // The environment that a process has which outlives the run. It starts a program once the run has ended: one that starts
    // while the run removes what was recorded may just write there.
    let left = "env; { read go < go; exec env > left; } &";
    let (mut command, run, _dir) = command_of(&["--follow"], "/bin/sh", &["-c", left], &[]);
    let parent = run.parent().expect("a folder").to_owned();
    let (go, printed) = (parent.join("go"), parent.join("printed"));
    assert!(Command::new("mkfifo").arg(&go).status().expect("mkfifo is there").success());
    command.stdout(File::create(&printed).expect("a file")).stderr(Stdio::piped());
    let mut child = command.current_dir(&parent).spawn().expect("it starts");
    child.wait().expect("it ends");
    unless_it_hangs(move || std::fs::write(go, "\n").expect("it is waited for"));
    // To the end of its standard error, which is also that of what was left.
    child.wait_with_output().expect("it is read");
    assert!(parent.join("left").is_file());
    let said = std::fs::read_to_string(printed).expect("it was printed");
    let of = |name: &str| {
        let mut lines = said.lines().filter_map(|line| line.strip_prefix(name));
        PathBuf::from(lines.next().unwrap_or_else(|| panic!("no {name}: {said}")))
    };
    let (library, records) = (of("LD_PRELOAD="), of("BRICKSCOPE_RECORD="));
    // What was recorded is gone, and so it is free to make again; the library isn't.
    assert!(!records.exists() && library.is_file(), "{said}");
    let user = std::fs::metadata(&parent).expect("it is there").uid();
    for path in [&*library, library.parent().expect("a folder")] {
        let found = std::fs::symlink_metadata(path).expect("it is there");
        assert_eq!((found.mode() & 0o777, found.uid()), (0o700, user), "{}", path.display());
    }

    // Another user has made the folder again, or made it writable: a program that is left writes nothing there.
    let makes = |mode: u32| {
        std::fs::create_dir(&records).expect("it is free");
        std::fs::set_permissions(&records, PermissionsExt::from_mode(mode)).expect("ours");
        let mut left = Command::new("/bin/true");
        left.env("LD_PRELOAD", &library).env("BRICKSCOPE_RECORD", &records);
        assert!(left.status().expect("it starts").success());
        let written = std::fs::read_dir(&records).expect("it is there").count();
        std::fs::remove_dir_all(&records).expect("it is ours");
        written
    };
    assert_eq!([makes(0o700), makes(0o777)], [1, 0]);
    let link = parent.join("elsewhere");
    std::fs::create_dir(&link).expect("a folder");
    std::os::unix::fs::symlink(&link, &records).expect("a link");
    let mut left = Command::new("/bin/true");
    left.env("LD_PRELOAD", &library).env("BRICKSCOPE_RECORD", &records);
    assert!(left.status().expect("it starts").success());
    assert_eq!(std::fs::read_dir(&link).expect("it is there").count(), 0);
}

#[test]
fn a_library_that_is_removed_in_the_end_is_not_passed_on() {
    // The linker takes no library from such a folder, so it lies among temporary files.
    let of = |options: &[&str]| {
        let (mut command, run, dir) = command_of(options, "good/loads", &[], &[]);
        let spaced = run.parent().expect("a folder").join("a folder");
        std::fs::create_dir(&spaced).expect("a folder");
        command.env("BRICKSCOPE_CACHE", &spaced).env_remove("XDG_RUNTIME_DIR");
        Ran { output: command.output().expect("it starts"), run, _dir: dir }
    };
    let ran = of(&[]);
    assert!(ran.profile().phase(Phase::Decode).is_some(), "{}", ran.stderr());
    let ran = of(&["--follow"]);
    assert_eq!((ran.output.status.code(), &*ran.stdout()), (Some(1), ""), "{}", ran.stderr());
    assert!(ran.stderr().contains("by BRICKSCOPE_CACHE"), "{}", ran.stderr());
}
