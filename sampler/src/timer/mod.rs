//! Samples this process itself, where `perf_event_open` is refused: in containers, or with
//! `kernel.perf_event_paranoid` above 2.
//!
//! Each thread has a timer of its own CPU clock, which sends it a signal. The signal handler records where the thread is
//! and copies the top of its stack. So only CPU time is sampled, and no thread is woken from sleep. The kernel's tick
//! decides when to sample, not a thread that must get a CPU first: such a thread runs when another one yields, and so
//! finds programs at the points where they yield. The price is that the timers only fire with the tick: on a kernel with
//! a tick of 250 Hz, that is 250 times per second where 999 were requested.
//!
//! A thread of its own collects the samples and looks for new threads.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod elsewhere;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod linux;

use std::env;
use std::io;
use std::path::PathBuf;

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
use self::elsewhere as system;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use self::linux as system;
use crate::recording::Recording;

/// The environment variable that asks a program to sample itself, with the path for the samples.
pub const SAMPLES_VARIABLE: &str = "BRICKSCOPE_TIMER_SAMPLES";
/// The environment variable with the number of samples per second.
pub const FREQUENCY_VARIABLE: &str = "BRICKSCOPE_TIMER_SAMPLES_FREQUENCY";

/// Options of sampling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Samples per second of a thread's CPU time, at most 10,000.
    pub frequency: u64,
    /// How much of the stack is copied with each sample, in bytes, at most 65,536.
    pub stack_bytes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { frequency: 999, stack_bytes: 16 << 10 }
    }
}

/// Why this process can't sample itself.
///
/// The message is complete: it includes the system's error, so `source` isn't set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimerError {
    /// Not Linux, or an unsupported processor.
    #[error("a program can sample itself only on Linux, on x86-64 and AArch64; this is {0}")]
    Unsupported(String),
    /// An option is out of its range.
    #[error("{name} is {value}, but must be {range}")]
    Option {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        range: &'static str,
    },
    /// This process samples itself already.
    #[error("this process already samples itself")]
    Running,
    /// Another profiler or the program itself uses the signal.
    #[error("SIGPROF already has a handler, probably of another profiler in this process")]
    SignalInUse,
    /// An operation failed that normally can't.
    #[error("can't {what}: {error}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

/// Samples this process until [`finish`](Self::finish) is called or this value is dropped.
#[derive(Debug)]
#[must_use = "sampling ends when it is dropped"]
pub struct TimerSampler(system::Running);

impl TimerSampler {
    /// Stops sampling and returns the recording.
    #[must_use]
    pub fn finish(self) -> Recording {
        self.0.finish()
    }
}

/// Starts sampling all threads of this process, including those that start later.
///
/// # Errors
///
/// If this process is already being sampled, by this crate or another profiler, or the system doesn't support it.
pub fn start(options: &Options) -> Result<TimerSampler, TimerError> {
    if !(1..=10_000).contains(&options.frequency) {
        return Err(TimerError::Option {
            name: "the sampling frequency",
            value: options.frequency.to_string(),
            range: "from 1 to 10,000 samples per second",
        });
    }
    if options.stack_bytes > 1 << 16 {
        return Err(TimerError::Option {
            name: "the size of the copied stack",
            value: options.stack_bytes.to_string(),
            range: "at most 65,536 bytes",
        });
    }
    system::start(options).map(TimerSampler)
}

/// Starts sampling if [`SAMPLES_VARIABLE`] is set, and also returns the path in it.
///
/// # Errors
///
/// As for [`start`]; also if [`FREQUENCY_VARIABLE`] isn't a number.
pub fn start_if_asked() -> Result<Option<(TimerSampler, PathBuf)>, TimerError> {
    let Some(path) = env::var_os(SAMPLES_VARIABLE).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let mut options = Options::default();
    if let Some(frequency) = env::var_os(FREQUENCY_VARIABLE) {
        let frequency = frequency.to_string_lossy();
        options.frequency = frequency.parse().map_err(|_| TimerError::Option {
            name: FREQUENCY_VARIABLE,
            value: frequency.into_owned(),
            range: "a number of samples per second",
        })?;
    }
    Ok(Some((start(&options)?, path.into())))
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn the_systems_error_is_said_once() {
        let error = io::Error::from_raw_os_error(2);
        let error = TimerError::System { what: "do it", error };
        assert!(error.to_string().contains("os error 2"), "{error}");
        assert!(error.source().is_none(), "{error}");
    }
}
