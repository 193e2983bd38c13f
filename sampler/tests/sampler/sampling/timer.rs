//! Sampling with signals in the process itself; each test has a process of its own.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use brickscope_sampler::timer::{Options, TimerError, start, start_if_asked};
use brickscope_sampler::{Recording, Sampler};
use brickscope_testing::patience::wait_until;

use super::known::{assert_shares, hits, none_lost};
use super::{known_split, refuse, this_program};

/// Runs a task in a process of its own; it must finish.
#[track_caller]
fn assert_done(task: &str) {
    let mut command = this_program(task);
    command.env("BRICKSCOPE_TIMER_SAMPLES", "there");
    let output = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let output = output.output().expect("a child");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    error.lines().filter(|line| line.starts_with("skipped: ")).for_each(|line| eprintln!("{line}"));
}

#[test]
fn shares_and_threads_are_those_of_the_program() {
    assert_done("timer: shares");
}

#[test]
fn only_threads_that_run_are_sampled_and_none_is_woken() {
    assert_done("timer: sleep");
}

#[test]
fn threads_may_end_while_they_are_sampled() {
    assert_done("timer: ends");
}

#[test]
fn a_process_is_sampled_by_one_at_a_time_and_again() {
    assert_done("timer: again");
}

#[test]
fn a_late_signal_does_nothing() {
    assert_done("timer: late");
}

#[test]
fn a_handler_of_someone_else_stays() {
    assert_done("timer: in use");
}

#[test]
fn a_program_samples_itself_if_it_is_asked_to() {
    assert_done("timer: asked");
}

pub(crate) fn task(task: &str) {
    match task {
        "timer: shares" => shares(),
        "timer: sleep" => sleep(),
        "timer: ends" => ends(),
        "timer: again" => again(),
        "timer: late" => late(),
        "timer: in use" => in_use(),
        "timer: asked" => asked(),
        task => unreachable!("{task}"),
    }
}

/// With `perf_event_open` refused, as in a container.
fn shares() {
    refuse::refuse_perf_event_open();
    let share = Cell::new(0.0);
    // Both threads spin for a second.
    let Some(recording) = none_lost(Duration::from_millis(1_500), || {
        let recording = sampled(|| share.set(known_split::run(2, 1_000)));
        let lost = recording.lost;
        (recording, lost)
    }) else {
        return;
    };
    assert_eq!(recording.sampler, Sampler::Timer);
    let of_both = hits(&recording, std::process::id());
    let all = of_both[0] + of_both[1];
    // Two seconds of CPU time with a sample for each kernel tick (100 to 1000 per second), less the time in system
    // calls.
    assert!((150..2_400).contains(&all), "{all} samples: {:?}", recording.notes);
    let says_so = recording.notes.iter().any(|note| note.contains("with the kernel's tick only"));
    assert!(says_so || all >= 1_000, "{all} samples: {:?}", recording.notes);
    assert_shares(of_both, share.get());
    let worker = |name: &str| recording.threads.iter().find(|thread| thread.name == name);
    for name in ["worker-0", "worker-1"] {
        let tid = worker(name).expect("it was seen").tid;
        let samples = recording.samples.iter().filter(|sample| sample.tid == tid).count();
        assert!((75..1_200).contains(&samples), "{samples} samples of {name}");
    }
    assert!(recording.samples.is_sorted_by_key(|sample| sample.time_ns));
}

/// The recording of the first of these works that has more than so many samples. The works are numbered from 0; each
/// should take twice as much CPU time as the one before.
fn with_samples(more_than: usize, recorded: impl Fn(u32) -> Recording) -> Recording {
    for n in 0.. {
        let recording = recorded(n);
        let found = recording.samples.len();
        if found > more_than {
            return recording;
        }
        assert!(n < MOST_DOUBLINGS, "{found} samples: {:?}", recording.notes);
    }
    unreachable!("the last work has samples")
}

/// Work of a hundred milliseconds is then one of twelve seconds: far more than enough for some samples, though ticks come
/// seldom, threads are new to the sampler, and a host may keep its processors to itself.
const MOST_DOUBLINGS: u32 = 7;

fn sleep() {
    with_samples(50, |n| {
        let (recording, tid) = beside_a_sleeper(300 << n);
        assert_eq!(recording.samples.iter().filter(|sample| sample.tid == tid).count(), 0);
        recording
    });
}

/// Samples so many milliseconds of CPU time, while a thread sleeps, whose number is returned too.
#[allow(unsafe_code)]
fn beside_a_sleeper(milliseconds: u64) -> (Recording, u32) {
    static SLEEPER: AtomicU32 = AtomicU32::new(0);
    SLEEPER.store(0, Ordering::Release);
    let sleeper = || {
        // SAFETY: the call takes no arguments.
        SLEEPER.store(unsafe { libc::syscall(libc::SYS_gettid) } as u32, Ordering::Release);
        let time = libc::timespec { tv_sec: 0, tv_nsec: 500_000_000 };
        // Unlike the standard library's sleep, it isn't resumed.
        // SAFETY: the pointer is to a valid timespec, and the remaining time isn't requested.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) != 0 }
    };
    let sleeper = thread::spawn(sleeper);
    // It may have to wait for a CPU before it sleeps.
    wait_until("a sleeper", || {
        let tid = SLEEPER.load(Ordering::Acquire);
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
        let state =
            stat.ok().and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()));
        state.is_some_and(|state| state.starts_with('S')) || sleeper.is_finished()
    });
    let mut broken = None;
    let recording = sampled(|| {
        known_split::run(1, milliseconds);
        broken = Some(sleeper.join().expect("no panic"));
    });
    assert_eq!(broken, Some(false), "its sleep was broken off");
    (recording, SLEEPER.load(Ordering::Acquire))
}

fn ends() {
    for n in 0.. {
        let recording = sampled(|| {
            for _ in 0..100 << n {
                known_split::run(4, 3);
            }
        });
        let workers = recording.threads.iter().filter(|thread| thread.name.starts_with("worker-"));
        let (samples, workers) = (recording.samples.len(), workers.count());
        if samples > 50 && workers > 10 {
            return;
        }
        assert!(n < 5, "{samples} samples of {workers} threads: {:?}", recording.notes);
    }
}

fn again() {
    let first = start(&Options::default()).expect("the first");
    let second = start(&Options::default()).expect_err("there is one");
    assert!(matches!(second, TimerError::Running), "{second:?}");
    drop(first);
    for _ in 0..3 {
        with_samples(20, |n| {
            sampled(|| {
                known_split::run(1, 100 << n);
            })
        });
    }
}

#[allow(unsafe_code)]
fn late() {
    drop(sampled(|| {
        known_split::run(1, 50);
    }));
    // SAFETY: it takes a number only; the signal has a handler.
    assert_eq!(unsafe { libc::raise(libc::SIGPROF) }, 0);
}

#[allow(unsafe_code)]
fn in_use() {
    extern "C" fn handler(_signal: libc::c_int) {}
    let handler = handler as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing, which is always allowed.
    unsafe { libc::signal(libc::SIGPROF, handler as usize) };
    let error = start(&Options::default()).expect_err("the signal is used");
    assert!(matches!(error, TimerError::SignalInUse), "{error:?}");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::signal(libc::SIGPROF, handler as usize) }, handler as usize);
}

fn asked() {
    with_samples(20, |n| {
        let (sampler, path) = start_if_asked().expect("it can").expect("it was asked");
        assert_eq!(path.as_os_str(), "there");
        known_split::run(1, 100 << n);
        sampler.finish()
    });
}

fn sampled(work: impl FnOnce()) -> Recording {
    let sampler = start(&Options::default()).expect("it can");
    work();
    sampler.finish()
}
