//! The command, where what it measures is what is tested: times, samples, and what arrives while it runs. Cargo runs
//! one program of tests at a time, and of this one each test waits until it is alone.

mod check_overhead;
mod flamegraph;
mod honest;
mod interrupt;
mod machine;
mod main_job;
mod roofline;
mod top;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For as long as a test has it, no other one runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed has left nothing half done.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
