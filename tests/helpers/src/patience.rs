//! Waiting on a machine that may be busy with anything.

use std::io::Write;
use std::time::{Duration, Instant};

/// After so long something hangs. It is no measure of speed: a machine with ten busy programs per core is waited for.
pub const HANG: Duration = Duration::from_secs(900);

/// For so long a test asks for more of what happens by chance.
const LONG: Duration = Duration::from_secs(240);

/// Waits for something that comes sooner or later.
///
/// # Panics
///
/// If it hasn't come after [`HANG`].
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < HANG, "{what}: not within {} seconds", HANG.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The numbers of tries, from 0, for what depends on how much CPU time a program is given: at least one, and more until
/// minutes have passed. Who has tried all of them says with [`skipped`] what didn't happen.
pub fn tries() -> impl Iterator<Item = u32> {
    let start = Instant::now();
    (0..).take_while(move |&n| n == 0 || start.elapsed() < LONG)
}

/// Says why something was not tested, even if nobody asked for the output of a test that passes.
pub fn skipped(why: &str) {
    // Bypasses the test harness, which captures the output of a test.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
