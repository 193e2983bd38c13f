//! Samples this process itself, where `perf_event_open` is refused: in containers, or with
//! `kernel.perf_event_paranoid` above 2.
//!
//! Each thread has a timer of its own CPU clock, which sends it a signal; the signal's handler notes where
//! the thread is and copies the top of its stack. So only CPU time is sampled, no thread is woken from its
//! sleep, and it is the kernel's tick that says when, not a thread that has to get a CPU first: such a
//! thread runs when another one gives way, and finds programs where they give way. The price is that
//! such timers fire with the tick only: 250 times a second where 999 were asked for, on a kernel with
//! a tick of 250 Hz.
//!
//! A thread of its own takes the samples from the threads, and looks for new ones.

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

/// The variable that asks a program to sample itself: where the samples shall go.
pub const SAMPLES_VARIABLE: &str = "BRICKSCOPE_TIMER_SAMPLES";
/// The variable with the samples in a second.
pub const FREQUENCY_VARIABLE: &str = "BRICKSCOPE_TIMER_SAMPLES_FREQUENCY";

/// How to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Samples in a second of a thread's CPU time, at most 10,000.
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
/// The text is whole: an error of the system is in it, and not the source besides.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimerError {
    /// Not Linux, or a processor whose registers aren't known here.
    #[error("a program samples itself on Linux only, on x86-64 and AArch64; this is {0}")]
    Unsupported(String),
    /// An option is out of its range.
    #[error("{name} is {value}, but must be {range}")]
    Option {
        /// Which.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        range: &'static str,
    },
    /// It does so already.
    #[error("this process samples itself already")]
    Running,
    /// Another profiler, or the program itself, uses the signal.
    #[error("SIGPROF has a handler already, as of another profiler in this process")]
    SignalInUse,
    /// Something that always works didn't.
    #[error("can't {what}: {error}")]
    System {
        /// What.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

/// Samples this process until [`finish`](Self::finish), or until it is dropped.
#[derive(Debug)]
#[must_use = "sampling ends when it is dropped"]
pub struct TimerSampler(system::Running);

impl TimerSampler {
    /// Ends the sampling and gives what was noted.
    #[must_use]
    pub fn finish(self) -> Recording {
        self.0.finish()
    }
}

/// Begins to sample all threads of this process, those too that begin later.
///
/// # Errors
///
/// If this process is being sampled already, by this or by another profiler, or if the system has
/// no way to do it.
pub fn start(options: &Options) -> Result<TimerSampler, TimerError> {
    if !(1..=10_000).contains(&options.frequency) {
        return Err(TimerError::Option {
            name: "the sampling frequency",
            value: options.frequency.to_string(),
            range: "from 1 to 10,000 samples a second",
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

/// Begins to sample if [`SAMPLES_VARIABLE`] says where the samples shall go, and gives that too.
///
/// # Errors
///
/// As of [`start`], and if [`FREQUENCY_VARIABLE`] is no number.
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
            range: "a number of samples a second",
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
