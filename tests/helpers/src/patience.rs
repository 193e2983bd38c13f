//! Tests that need no luck on a busy machine: they wait for events, not for a time, and a limit of time only ends a hang.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A limit that only a hang reaches, however busy the machine is.
pub const HANG: Duration = Duration::from_secs(600);

/// How long a test looks for what it needs, such as enough samples, before it gives up.
pub const FAR: Duration = Duration::from_secs(240);

/// Waits until `done` returns true, which it is asked every few milliseconds.
///
/// # Panics
///
/// After [`HANG`], with `what` was waited for.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < HANG, "after {HANG:?} there is still not: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// What `work` returns, which is done on another thread: work that hangs fails the test instead of hanging it.
///
/// # Panics
///
/// If `work` does, or after [`HANG`].
#[track_caller]
pub fn unless_it_hangs<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waits) = channel();
    let working = thread::spawn(move || {
        let _ = done.send(work());
    });
    match waits.recv_timeout(HANG) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("it is not done after {HANG:?}"),
        Err(RecvTimeoutError::Disconnected) => match working.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sends before it ends"),
        },
    }
}

/// Calls `attempt` with 0, 1, 2 and so on until it returns something to judge. An error says why there was nothing, with
/// numbers. After [`FAR`], the last error is printed as the reason for which the test is skipped, and `None` returned.
///
/// An attempt that may have too little of something should double it each time.
pub fn first_to_judge<T>(mut attempt: impl FnMut(u32) -> Result<T, String>) -> Option<T> {
    let begun = Instant::now();
    for n in 0.. {
        match attempt(n) {
            Ok(found) => return Some(found),
            Err(why) if begun.elapsed() >= FAR => {
                let (attempts, took) = (n + 1, begun.elapsed());
                eprintln!("skipped: {why} (the last of {attempts} attempts in {took:.0?})");
                return None;
            }
            Err(_) => {}
        }
    }
    None
}

/// The CPU time that this thread has used, which doesn't grow while others have the processor; `None` where the system
/// doesn't tell.
#[must_use]
pub fn cpu_time() -> Option<Duration> {
    let [run, _] = schedule()?;
    Some(Duration::from_nanos(run))
}

/// How long this thread has been ready to run while others had the processor; `None` where the system doesn't tell.
#[must_use]
pub fn waited() -> Option<Duration> {
    let [_, wait] = schedule()?;
    Some(Duration::from_nanos(wait))
}

/// Nanoseconds on a processor, and in its queue.
fn schedule() -> Option<[u64; 2]> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    // A kernel that doesn't count says 0.
    let run = numbers.next()??;
    (run > 0).then_some([run, numbers.next()??])
}
