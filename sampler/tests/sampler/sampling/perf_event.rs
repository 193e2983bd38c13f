//! Sampling with `perf_event_open`.

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use brickscope_sampler::perf_event::{Options, Progress, RecordError, probe, record};
use brickscope_sampler::{Ending, Recording};
use tempfile::NamedTempFile;

use super::known::{assert_shares, hits, none_lost, spinning};
use super::this_program;

/// How long a recording takes at most whose threads had a processor each: half as long again as they spin.
const SPIN: Duration = Duration::from_millis(1_500);
const CHILDREN: Duration = Duration::from_millis(3_000);
const ABORT: Duration = Duration::from_millis(300);

/// A recording of which nothing was lost; `check` is called with each. Prints a message and returns `None` where sampling
/// isn't permitted, or where each lost something.
fn recorded(
    options: &Options,
    at_rest: Duration,
    command: impl Fn() -> Command,
    check: impl Fn(&Recording, ExitStatus),
) -> Option<Recording> {
    if let Err(error) = probe() {
        eprintln!("skipped: {error}");
        return None;
    }
    none_lost(at_rest, || {
        let (recording, status) =
            record(command(), options, |_| ()).expect("it was permitted to probe");
        check(&recording, status);
        let lost = recording.lost + recording.lost_records;
        (recording, lost)
    })
}

#[test]
fn shares_and_threads_are_those_of_the_program() {
    let printed = NamedTempFile::new().expect("a file");
    let command = || {
        let mut spin = this_program("spin");
        spin.stdout(File::create(printed.path()).expect("a file"));
        spin
    };
    let Some(recording) = recorded(&Options::default(), SPIN, command, |_, status| {
        assert!(status.success());
    }) else {
        return;
    };
    assert_eq!(recording.frequency, Some(999));
    let processes = spinning(&recording);
    let &[pid] = processes.as_slice() else { unreachable!("{processes:?}") };
    let of_both = hits(&recording, pid);
    let all = of_both[0] + of_both[1];
    // Two seconds of CPU time, less the time in system calls.
    assert!((1_000..2_400).contains(&all), "{all} samples");
    let printed = fs::read_to_string(printed.path()).expect("text");
    let share = printed.lines().find_map(|line| line.strip_prefix("share ")?.parse().ok());
    assert_shares(of_both, share.expect("the program's own figure"));

    let mut names: Vec<_> = recording.threads.iter().map(|thread| thread.name.as_str()).collect();
    names.sort_unstable();
    assert!(names.ends_with(&["worker-0", "worker-1"]), "{names:?}");
    for thread in recording.threads.iter().filter(|thread| thread.name.starts_with("worker-")) {
        let samples = recording.samples.iter().filter(|sample| sample.tid == thread.tid).count();
        assert!((500..1_200).contains(&samples), "{samples} samples of {thread:?}");
    }
    assert!(recording.samples.is_sorted_by_key(|sample| sample.time_ns));
    assert!(recording.samples.iter().all(|sample| !sample.stack.is_empty()));
    let mapped = |name: &str| {
        recording.processes.iter().flat_map(|process| &process.mappings).any(|mapping| {
            mapping.file.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
        })
    };
    assert!(mapped("libc") && mapped("[vdso]"), "{:?}", recording.processes);
}

#[test]
fn times_are_of_the_clock_that_the_recording_names() {
    let before = Cell::new(0);
    let command = || {
        before.set(raw_ns());
        this_program("abort")
    };
    let Some(recording) = recorded(&Options::default(), ABORT, command, |recording, _| {
        let during = before.get()..raw_ns();
        assert!(recording.samples.iter().all(|sample| during.contains(&sample.time_ns)));
    }) else {
        return;
    };
    assert!(recording.samples.len() > 50, "{} samples", recording.samples.len());
}

#[test]
fn child_processes_are_sampled_too() {
    let command = || this_program("children");
    let Some(recording) = recorded(&Options::default(), CHILDREN, command, |_, status| {
        assert!(status.success());
    }) else {
        return;
    };
    let processes = spinning(&recording);
    assert_eq!(processes.len(), 2);
    for pid in processes {
        assert!(hits(&recording, pid)[1] > 500);
    }
}

#[test]
fn of_a_program_that_dies_the_samples_are_kept() {
    let command = || this_program("abort");
    let Some(recording) = recorded(&Options::default(), ABORT, command, |_, status| {
        assert_eq!(status.signal(), Some(libc::SIGABRT));
    }) else {
        return;
    };
    assert!(hits(&recording, spinning(&recording)[0])[1] > 50);
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    if let Err(error) = probe() {
        eprintln!("skipped: {error}");
        return;
    }
    let command = Command::new("/nowhere/to-be-found");
    let error = record(command, &Options::default(), |_| ()).expect_err("there is none");
    assert!(matches!(error, RecordError::Spawn { .. }), "{error:?}");
    assert!(error.to_string().contains("/nowhere/to-be-found: No such file"), "{error}");
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |options| {
        let error = record(Command::new("true"), &options, |_| ()).expect_err("out of range");
        assert!(matches!(error, RecordError::Option { .. }), "{error:?}");
    };
    refused(Options { frequency: 0, ..Options::default() });
    refused(Options { stack_bytes: 1_001, ..Options::default() });
    refused(Options { stack_bytes: 1 << 16, ..Options::default() });
}

#[test]
fn without_the_kernel_and_without_stacks_there_are_leaves() {
    let options = Options { kernel: false, stack_bytes: 0, ..Options::default() };
    let Some(recording) = recorded(&options, ABORT, || this_program("abort"), |_, _| ()) else {
        return;
    };
    assert_eq!(recording.event, "cpu-clock:u");
    assert!(recording.samples.iter().all(|sample| sample.n_kernel == 0));
    assert!(recording.samples.iter().all(|sample| sample.stack.len() == 1));
    // Only the entry of a program is known to have no caller.
    let roots = recording.samples.iter().filter(|sample| sample.ending == Ending::Root).count();
    assert!(roots <= 1 + recording.samples.len() / 20, "{roots} of {}", recording.samples.len());
    assert!(hits(&recording, spinning(&recording)[0])[1] > 50);
}

#[test]
fn a_filter_of_system_calls_is_told_apart_and_nothing_is_run() {
    let mut command = this_program("refused");
    let output = command.stdout(Stdio::piped()).output().expect("a child");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    // Another reason that forbids sampling on this machine is found first.
    let forbidden = matches!(probe(), Err(RecordError::Paranoid(_)));
    assert!(output.contains("--cap-add PERFMON") || forbidden, "{output}");
}

#[test]
fn an_interrupt_ends_the_program_but_not_its_recording() {
    if let Err(error) = probe() {
        eprintln!("skipped: {error}");
        return;
    }
    let mut command = this_program("interrupted");
    let output = command.process_group(0).stdout(Stdio::piped()).output().expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("ended by 2, samples were kept"), "{:?}: {text}", output.status);
}

/// Like Ctrl-C in a terminal, which signals all processes in the foreground.
#[allow(unsafe_code)]
pub(crate) fn interrupt_all_but_me() {
    // Where a shell without job control started the tests in the background, programs inherit that SIGINT is ignored.
    // SAFETY: no handler is replaced that this process needs.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let mut sent = false;
    let interrupt = |progress: &Progress| {
        if progress.samples > 20 && !sent {
            sent = true;
            // SAFETY: it takes numbers only; this process leads its group.
            unsafe { libc::kill(0, libc::SIGINT) };
        }
    };
    let recorded = record(this_program("spin for long"), &Options::default(), interrupt);
    let (recording, status) = recorded.expect("permitted");
    assert!(recording.samples.len() > 20);
    println!("ended by {}, samples were kept", status.signal().unwrap_or(0));
}

#[allow(unsafe_code)]
fn raw_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a valid timespec.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
