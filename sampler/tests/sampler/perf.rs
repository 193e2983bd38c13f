//! Records a program with a known distribution of time with `perf`, with both kinds of call chains. Where `perf`
//! isn't installed or isn't allowed to record, these tests say so and pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use brickscope_sampler::{Frame, FrameKind, Sampled, Sampler, TimeBase, perf, perf_data, resolve};
use brickscope_testing::patience::first_to_judge;

/// The program with all debug information.
fn with_all() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("all", "debuginfo=limited"))
}

/// Compiles the program with frame pointers and debug information, whatever the tests' profile.
fn program(folder: &str, debug_info: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let program = folder.join("three_to_one");
    // The compiler's files beside its output are named after the program, and others may compile it, too.
    let own = folder.join(std::process::id().to_string());
    fs::create_dir_all(&own).unwrap();
    let made = own.join("three_to_one");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/three_to_one.rs");
    let status = Command::new("rustc")
        .args(["--edition", "2024", "-O", "-C", "force-frame-pointers=yes"])
        .args(["-C", debug_info, source, "-o"])
        .arg(&made)
        .status();
    assert!(status.unwrap().success());
    fs::rename(&made, &program).unwrap();
    fs::remove_dir_all(own).unwrap();
    program
}

/// The event that `perf` can record; `None` if it can't record.
fn event() -> Option<&'static str> {
    static EVENT: OnceLock<Result<String, String>> = OnceLock::new();
    match EVENT.get_or_init(|| perf::probe().map(|perf| perf.event)) {
        Ok(event) => Some(event),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

/// Runs `perf` and names what it recorded, once it lost nothing: where it gets no processor in time, it loses samples, and
/// what tells their code.
fn record(perf: &mut Command, file: &Path) -> Option<Sampled> {
    first_to_judge(|_| {
        let said = perf.stdin(Stdio::null()).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let recording = perf_data::read(file, &mut |_, _| {}).unwrap();
        fs::remove_file(file).unwrap();
        match (recording.lost, recording.lost_records) {
            (0, 0) => Ok(resolve(&recording, &mut |_, _| {})),
            (samples, records) => Err(format!("perf lost {samples} samples, {records} records")),
        }
    })
}

/// Of this run of the tests alone: others may run beside it.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.{name}", std::process::id()))
}

/// Each sample's stack, outermost first.
fn stacks(sampled: &Sampled) -> impl Iterator<Item = Vec<&Frame>> {
    sampled.samples.iter().map(|sample| {
        let stack = &sampled.stacks[sample.stack as usize];
        stack.iter().map(|&frame| &sampled.frames[frame as usize]).collect()
    })
}

/// How the stacks of a recording were found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chains {
    /// From copies of the stack.
    Unwound,
    /// By frame pointers: while a function enters or leaves, the frame of its caller isn't linked, so such a sample
    /// lacks the caller.
    FramePointers,
}

/// Checks the samples' distribution, and their stacks against the program.
fn check_split(sampled: &Sampled, step_name: &str, chains: Chains) {
    let mut counts = BTreeMap::<&str, u32>::new();
    let mut callerless = Vec::new();
    for stack in stacks(sampled) {
        let names: Vec<&str> = stack.iter().map(|frame| frame.function.as_str()).collect();
        let Some(at) =
            names.iter().position(|name| name.ends_with("::heavy") || name.ends_with("::light"))
        else {
            continue;
        };
        if !names[..at].contains(&"three_to_one::main") {
            callerless.push(names.clone());
        }
        assert_eq!(stack[at].kind, FrameKind::User);
        assert_eq!(stack[at].module, "three_to_one");
        let source = stack[at].file.as_deref().unwrap_or_default();
        assert!(source.ends_with("three_to_one.rs"), "{source}");
        *counts.entry(names[at]).or_default() += 1;
        // Inlined functions are inside their caller, and their work is inside the step.
        if let Some(step) = names.iter().position(|name| *name == step_name) {
            assert!(step > at, "{names:?}");
            assert_eq!(stack[step].kind, FrameKind::Inlined);
            *counts.entry("step").or_default() += 1;
        }
    }
    let count = |name| f64::from(counts.get(name).copied().unwrap_or(0));
    let (heavy, light) = (count("three_to_one::heavy"), count("three_to_one::light"));
    let n = heavy + light;
    assert!(n > 100.0, "{counts:?}");
    let allowed = match chains {
        Chains::Unwound => 0.0,
        Chains::FramePointers => 0.05 * n,
    };
    assert!(callerless.len() as f64 <= allowed, "{callerless:?}");
    // Five standard deviations of a binomial: one false alarm in a million runs.
    let allowed = 5.0 * (0.75 * 0.25 * n).sqrt();
    assert!((heavy - 0.75 * n).abs() <= allowed, "{counts:?}");
    assert!(count("step") > 0.5 * n, "{counts:?}");
}

#[test]
fn stacks_that_are_unwound_here_have_the_split() {
    let Some(event) = event() else { return };
    let file = file("dwarf.perf.data");
    let of = Command::new(with_all());
    let Some(sampled) = record(&mut perf::command(event, 999, 4096, &file, &of), &file) else {
        return;
    };
    check_split(&sampled, "three_to_one::step", Chains::Unwound);
    assert_eq!(sampled.sampler, Sampler::Perf);
    assert_eq!(sampled.event, event);
    assert_eq!(sampled.frequency, Some(999));
    assert_eq!(sampled.time_base, TimeBase::MonotonicRaw);
    assert_eq!(sampled.cut, 0, "{:?}", sampled.notes);
    // The loader begins in code without unwind information; slow machines have some samples there.
    let n = sampled.samples.len();
    assert!(sampled.unwound_in_part as usize <= n / 20, "{:?}", sampled.notes);
    assert!(sampled.threads.iter().any(|thread| thread.name == "three_to_one"));
    let outermost: Vec<_> = stacks(&sampled).map(|stack| stack[0].function.clone()).collect();
    let whole = outermost.iter().filter(|name| *name == "_start").count();
    assert!(whole >= n - n / 20, "{outermost:?}");
}

#[test]
fn the_processes_that_a_program_starts_are_recorded_too() {
    let Some(event) = event() else { return };
    let file = file("children.perf.data");
    let mut of = Command::new("sh");
    of.args(["-c", "\"$0\" & \"$0\"; wait"]).arg(with_all());
    let Some(sampled) = record(&mut perf::command(event, 999, 4096, &file, &of), &file) else {
        return;
    };
    check_split(&sampled, "three_to_one::step", Chains::Unwound);
    let in_heavy = |pid: u32| {
        let of_pid = sampled.samples.iter().zip(stacks(&sampled)).filter(|(s, _)| s.pid == pid);
        of_pid
            .filter(|(_, stack)| stack.iter().any(|f| f.function == "three_to_one::heavy"))
            .count()
    };
    let pids: BTreeSet<u32> = sampled.samples.iter().map(|sample| sample.pid).collect();
    assert_eq!(pids.iter().filter(|&&pid| in_heavy(pid) > 20).count(), 2, "{pids:?}");
}

#[test]
fn debug_information_in_a_file_of_its_own_is_found() {
    let Some(event) = event() else { return };
    let folder = file("stripped");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("three_to_one");
    fs::copy(with_all(), &program).unwrap();
    let objcopy = |args: &[&str]| {
        Command::new("objcopy").args(args).current_dir(&folder).status().is_ok_and(|s| s.success())
    };
    let parted = objcopy(&["--only-keep-debug", "three_to_one", "three_to_one.debug"])
        && objcopy(&["--strip-all", "three_to_one"])
        && objcopy(&["--add-gnu-debuglink=three_to_one.debug", "three_to_one"]);
    if !parted {
        eprintln!("skipped: objcopy can't be run");
        return;
    }
    let file = file("stripped.perf.data");
    let of = Command::new(&program);
    let Some(sampled) = record(&mut perf::command(event, 999, 4096, &file, &of), &file) else {
        return;
    };
    check_split(&sampled, "three_to_one::step", Chains::Unwound);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn call_chains_by_frame_pointers_have_the_split() {
    let Some(event) = event() else { return };
    let file = file("chains.perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-k", "CLOCK_MONOTONIC", "-g", "-F", "999", "-e", event, "-o"]);
    perf.arg(&file).arg("--").arg(program("chains", "debuginfo=line-tables-only"));
    let Some(sampled) = record(&mut perf, &file) else { return };
    // With this level of debug information, inlined functions have names without modules.
    check_split(&sampled, "step", Chains::FramePointers);
    assert_eq!(sampled.time_base, TimeBase::Monotonic);
    assert!(sampled.notes.iter().any(|note| note.contains("frame pointers")));
}

#[test]
fn stacks_deeper_than_their_copy_say_that_they_are_cut() {
    let Some(event) = event() else { return };
    let file = file("deep.perf.data");
    let mut of = Command::new(with_all());
    of.arg("deep");
    let Some(sampled) = record(&mut perf::command(event, 999, 8192, &file, &of), &file) else {
        return;
    };
    let mut n_deep = 0;
    for stack in stacks(&sampled)
        .filter(|stack| stack.iter().any(|frame| frame.function == "three_to_one::heavy"))
    {
        n_deep += 1;
        assert_eq!(stack[0].function, "[stack cut off]");
        assert_eq!(stack[1].function, "three_to_one::deeper");
        let depth = stack.iter().filter(|frame| frame.function == "three_to_one::deeper").count();
        assert!((100..2000).contains(&depth), "{depth}");
    }
    assert!(n_deep > 10, "{n_deep} of {}", sampled.samples.len());
    assert!(sampled.cut >= n_deep);
}
