//! Tests that need no luck on a busy machine: they wait for events, not for a time, and a limit of time only ends a hang.

use std::fs;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A limit that only a hang reaches: it is no measure of speed, and a machine with ten busy programs per core is waited
/// for.
pub const HANG: Duration = Duration::from_secs(900);

/// How long a test looks for what it needs, such as enough samples, before it gives up.
pub const FAR: Duration = Duration::from_secs(240);

/// Waits until `look`, which is asked every few milliseconds, finds what comes sooner or later.
///
/// # Panics
///
/// If `what` it waits for hasn't come after [`HANG`].
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < HANG, "after {HANG:?} there is still not: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until `done` returns true.
///
/// # Panics
///
/// After [`HANG`], with `what` was waited for.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    until(what, || done().then_some(()));
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

/// The numbers of tries, from 0, for what depends on how much CPU time a program is given: at least one, and more until
/// [`FAR`] has passed. Who has made all of them says with [`skipped`] what didn't happen.
pub fn tries() -> impl Iterator<Item = u32> {
    tries_at_least(1)
}

/// The same, and so many of them at least, however long each takes.
pub fn tries_at_least(least: u32) -> impl Iterator<Item = u32> {
    let begun = Instant::now();
    (0..).take_while(move |&n| n < least || begun.elapsed() < FAR)
}

/// Calls `attempt` with the number of each of the [`tries`] until it returns something to judge. An error says why there
/// was nothing, with numbers: the last one is the reason for which the test is skipped, with `None`.
///
/// An attempt that may have too little of something should double it each time.
pub fn first_to_judge<T>(mut attempt: impl FnMut(u32) -> Result<T, String>) -> Option<T> {
    let mut last = String::new();
    for n in tries() {
        match attempt(n) {
            Ok(found) => return Some(found),
            Err(why) => last = format!("{why} (the last of {} attempts)", n + 1),
        }
    }
    skipped(&last);
    None
}

/// Says why something was not tested, even if nobody asked for the output of a test that passes.
pub fn skipped(why: &str) {
    // Bypasses the test harness, which captures the output of a test.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
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
