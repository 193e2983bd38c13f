//! Samples a program of which it is known where its time goes.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[allow(dead_code, reason = "it is a program too")]
#[path = "../examples/known_split.rs"]
mod known_split;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use brickscope_sampler::perf_event::{Options, RecordError, probe, record};
use brickscope_sampler::{Ending, Recording};

/// This program, which then runs only [`tasks`] and in it the task.
fn this_program(task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "tasks", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("TASK", task).stderr(Stdio::null()).stdout(Stdio::null());
    command
}

#[test]
#[ignore = "what the other tests run in processes of their own"]
fn tasks() {
    match std::env::var("TASK").as_deref() {
        Ok("spin") => known_split::run(2, 1_000),
        Ok("spin for long") => known_split::run(1, 600_000),
        Ok("children") => {
            for _ in 0..2 {
                this_program("spin").status().expect("a child");
            }
        }
        Ok("abort") => {
            known_split::run(1, 200);
            std::process::abort();
        }
        Ok("interrupted") => interrupt_all_but_me(),
        Ok("refused") => {
            refuse_perf_event_open();
            let recorded = record(this_program("spin"), &Options::default(), |_| ());
            println!("{}", recorded.expect_err("perf_event_open is refused"));
        }
        task => unreachable!("{task:?}"),
    }
}

/// What was recorded; `None`, aloud, where sampling isn't permitted.
fn recorded(command: Command) -> Option<(Recording, ExitStatus)> {
    if let Err(error) = probe() {
        eprintln!("skipped: {error}");
        return None;
    }
    Some(record(command, &Options::default(), |_| ()).expect("it was permitted to probe"))
}

/// The processes that have workers of [`known_split::run`].
fn spinning(recording: &Recording) -> Vec<u32> {
    let workers = recording.threads.iter().filter(|thread| thread.name.starts_with("worker-"));
    let mut processes: Vec<_> = workers.map(|thread| thread.pid).collect();
    processes.dedup();
    processes
}

/// How many samples of a process lie in the function for a quarter of the time, and in that for
/// three quarters.
fn hits(recording: &Recording, pid: u32) -> [usize; 2] {
    // The same file is mapped elsewhere in each process.
    let offsets = known_split::places().map(|place| {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let mut lines = maps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let around = |fields: &Vec<&str>| {
            let (start, end) = fields[0].split_once('-').expect("addresses");
            (number(start)..number(end)).contains(&place)
        };
        let fields = lines.find(around).expect("the code is mapped");
        place - number(fields[0].split_once('-').expect("addresses").0) + number(fields[2])
    });
    let exe = std::env::current_exe().expect("a path");
    let process = recording.processes.iter().find(|process| process.pid == pid);
    let mappings = &process.expect("it has mapped code").mappings;
    let code = mappings.iter().filter(|mapping| mapping.file == exe);
    let code: Vec<_> = code.collect();
    let offset = |address| {
        let mapping = code.iter().find(|mapping| mapping.addresses.contains(&address))?;
        Some(address - mapping.addresses.start + mapping.file_offset)
    };
    let mut hits = [0; 2];
    for sample in recording.samples.iter().filter(|sample| sample.pid == pid) {
        let leaf = recording.addresses[sample.stack.start];
        let Some(leaf) = offset(leaf) else { continue };
        // Longer than either function; where they are nearer than that, the nearest is it.
        let near = |&place: &u64| (0..512).contains(&(leaf.wrapping_sub(place)));
        let nearest = (0..2).filter(|&at| near(&offsets[at])).max_by_key(|&at| offsets[at]);
        if let Some(at) = nearest {
            hits[at] += 1;
        }
    }
    hits
}

#[test]
fn shares_and_threads_are_those_of_the_program() {
    let Some((recording, status)) = recorded(this_program("spin")) else { return };
    assert!(status.success());
    assert_eq!(recording.lost, 0, "{:?}", recording.notes);
    assert_eq!(recording.frequency, Some(999));
    let processes = spinning(&recording);
    let &[pid] = processes.as_slice() else { unreachable!("{processes:?}") };
    let [seldom, often] = hits(&recording, pid);
    let all = (seldom + often) as f64;
    // Two seconds of CPU time, less what the system's calls took.
    assert!((1_000.0..2_400.0).contains(&all), "{all} samples");
    let share = often as f64 / all;
    let sigma = (0.75 * 0.25 / all).sqrt();
    assert!((share - 0.75).abs() < 5.0 * sigma, "{share} of {all}");

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
    let before = raw_ns();
    let Some((recording, _)) = recorded(this_program("abort")) else { return };
    let during = before..raw_ns();
    assert!(recording.samples.len() > 50, "{} samples", recording.samples.len());
    assert!(recording.samples.iter().all(|sample| during.contains(&sample.time_ns)));
}

#[test]
fn child_processes_are_sampled_too() {
    let Some((recording, status)) = recorded(this_program("children")) else { return };
    assert!(status.success());
    let processes = spinning(&recording);
    assert_eq!(processes.len(), 2);
    for pid in processes {
        assert!(hits(&recording, pid)[1] > 500);
    }
}

#[test]
fn of_a_program_that_dies_the_samples_are_kept() {
    let Some((recording, status)) = recorded(this_program("abort")) else { return };
    assert_eq!(status.signal(), Some(libc::SIGABRT));
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
    if let Err(error) = probe() {
        eprintln!("skipped: {error}");
        return;
    }
    let options = Options { kernel: false, stack_bytes: 0, ..Options::default() };
    let (recording, _) = record(this_program("abort"), &options, |_| ()).expect("permitted");
    assert_eq!(recording.event, "cpu-clock:u");
    assert!(recording.samples.iter().all(|sample| sample.n_kernel == 0));
    assert!(recording.samples.iter().all(|sample| sample.ending != Ending::Root));
    assert!(hits(&recording, spinning(&recording)[0])[1] > 50);
}

#[test]
fn a_filter_of_system_calls_is_told_apart_and_nothing_is_run() {
    let mut command = this_program("refused");
    let output = command.stdout(Stdio::piped()).output().expect("a child");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    // What else forbids sampling on this machine is found first.
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

/// As Ctrl-C in a terminal, which signals every process of the foreground.
#[allow(unsafe_code)]
fn interrupt_all_but_me() {
    let mut sent = false;
    let interrupt = |progress: &brickscope_sampler::perf_event::Progress| {
        if progress.samples > 20 && !sent {
            sent = true;
            // SAFETY: takes numbers; this process is the first of its group.
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
    // SAFETY: the pointer is to a whole timespec.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// From now on the call is refused to this process, as in a container.
#[allow(unsafe_code)]
fn refuse_perf_event_open() {
    let load_number = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump_if_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give_back = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jt, k| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let mut steps = [
        step(load_number, 0, 0),
        libc::sock_filter { jf: 1, ..step(jump_if_equal, 0, libc::SYS_perf_event_open as u32) },
        step(give_back, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(give_back, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter =
        libc::sock_fprog { len: steps.len() as libc::c_ushort, filter: steps.as_mut_ptr() };
    // SAFETY: the filter's steps are alive, and the kernel copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter), 0);
    }
    assert!(Path::new("/proc/self").exists(), "other calls are allowed");
}
