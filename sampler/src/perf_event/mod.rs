//! Samples a command and everything that it starts, with Linux's `perf_event_open` and without privilege.
//!
//! This works like `perf record`: one event of the software clock for each CPU, inherited by all threads and children of
//! the command, samples the registers and the top of the stack. Samples are unwound as soon as they are read, so a
//! recording contains addresses and no stacks.
//!
//! # Overhead
//!
//! Each sample interrupts the program, by a timer of the sampled thread. In a virtual machine with two CPUs (AMD EPYC of
//! family 25, Linux 6.18), a thread that only computes, with more stack than is copied, lost per sample:
//!
//! | copied stack | time of the program |
//! |--------------|---------------------|
//! | 4 KiB        | 15.9 µs             |
//! | 8 KiB        | 15.9 µs             |
//! | 16 KiB       | 17.4 µs             |
//! | 32 KiB       | 24.1 µs             |
//!
//! This was measured at 4,999 samples per second, to be visible at all; at 999 it comes to 1.7 % of a thread's time. With
//! other load on the machine, a sample cost 25 to 30 µs. Nearly all of that is the interrupt: the kernel's own tick took
//! as long there, and `perf record` without stacks cost the same. Where it is too much, take fewer samples. Threads that
//! wait for one another also wait for each other's interrupts: decoding with two threads that synchronise after each
//! piece of work was slowed by 3 to 7 %.
//!
//! Reading and unwinding a sample takes 2.0 to 2.5 µs, on any free CPU. When two threads were sampled for 4 seconds on a
//! busy machine, the reader processed 5,475 samples in 42 wake-ups and 12 ms of CPU time. When woken at a quarter of
//! rings half as large, it took 170 wake-ups and 20 ms.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod elsewhere;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod linux;

use std::io;
use std::process::{Command, ExitStatus};

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
use self::elsewhere as system;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use self::linux as system;
use crate::recording::Recording;

/// Options of sampling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Samples per second of a thread's CPU time. The default is 999, not 1000, so that work that repeats every
    /// millisecond isn't always sampled at the same place.
    pub frequency: u64,
    /// How much of the stack is copied with each sample, in bytes: a multiple of 8, at most 65,528.
    ///
    /// Of our engine's stacks, 44 % were complete with 8 KiB, 99 % with 16 KiB and all with 32 KiB.
    pub stack_bytes: u32,
    /// Whether to sample kernel time, too, where that is permitted.
    pub kernel: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { frequency: 999, stack_bytes: 16 << 10, kernel: true }
    }
}

/// The progress of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Samples taken so far.
    pub samples: usize,
    /// Samples and other records lost so far.
    pub lost: u64,
}

/// What [`record`] can do on this system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// Whether kernel time can be sampled, or only the program's own.
    pub kernel: bool,
    /// The highest frequency that the kernel allows, in samples per second.
    pub max_frequency: Option<u64>,
}

/// Why recording failed, and what to do about it.
///
/// The message is complete: it includes the system's error, so `source` isn't set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Not Linux, or an unsupported processor.
    #[error("programs can be sampled only on Linux, on x86-64 and AArch64; this is {0}")]
    Unsupported(String),
    /// An option is out of its range.
    #[error("{name} is {value}, but must be {range}")]
    Option {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The allowed values.
        range: &'static str,
    },
    /// A system setting forbids it.
    #[error(
        "sampling is forbidden by kernel.perf_event_paranoid={0}: \
         sudo sysctl kernel.perf_event_paranoid=2"
    )]
    Paranoid(i32),
    /// A system call filter forbids it.
    #[error(
        "perf_event_open is refused, probably by a container's seccomp filter: start the container \
         with `--cap-add PERFMON` or `--security-opt seccomp=unconfined`"
    )]
    Refused,
    /// The kernel has no such system call.
    #[error(
        "this system has no perf_event_open (ENOSYS): use a kernel with CONFIG_PERF_EVENTS; in \
         gVisor or behind a seccomp filter, run outside"
    )]
    NoSystemCall,
    /// The limit on open files is too low for one file per CPU.
    #[error("too many open files for an event on each of {cpus} CPUs: ulimit -n {}", cpus + 1024)]
    Files {
        /// How many CPUs there are.
        cpus: usize,
    },
    /// The rings would exceed the user's limit on locked memory.
    #[error(
        "not enough locked memory for rings of {ring_bytes} bytes on {cpus} CPUs: end other \
         profilers, `ulimit -l unlimited`, or sudo sysctl kernel.perf_event_mlock_kb=2048"
    )]
    LockedMemory {
        /// The smallest ring that was tried.
        ring_bytes: usize,
        /// How many CPUs there are.
        cpus: usize,
    },
    /// Another error of `perf_event_open`.
    #[error("perf_event_open failed ({0}): see ERRORS in `man perf_event_open`")]
    Open(io::Error),
    /// The command can't be started.
    #[error("can't run {program}: {error}")]
    Spawn {
        /// The program.
        program: String,
        /// The system's error.
        error: io::Error,
    },
    /// An operation failed that normally can't.
    #[error("can't {what}: {error}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

/// Runs `command` until it ends, and samples it with all its threads and child processes.
///
/// `on_tick` is called at least about five times per second. Processes that the command leaves running aren't sampled
/// after it has ended.
///
/// While the command runs, SIGINT and SIGQUIT don't end this process: Ctrl-C in the terminal ends the command, and the
/// recording so far is kept.
///
/// # Errors
///
/// If the command can't be started, or sampling isn't permitted; in that case the command doesn't run.
pub fn record(
    command: Command,
    options: &Options,
    on_tick: impl FnMut(&Progress),
) -> Result<(Recording, ExitStatus), RecordError> {
    if !(1..=1_000_000).contains(&options.frequency) {
        return Err(RecordError::Option {
            name: "the sampling frequency",
            value: options.frequency,
            range: "from 1 to 1,000,000 samples per second",
        });
    }
    if !options.stack_bytes.is_multiple_of(8) || options.stack_bytes > 65_528 {
        return Err(RecordError::Option {
            name: "the size of the copied stack",
            value: options.stack_bytes.into(),
            range: "a multiple of 8 bytes, and at most 65,528",
        });
    }
    system::record(command, options, on_tick)
}

/// Checks what [`record`] can do on this system, without running anything.
///
/// # Errors
///
/// Why it can't sample at all, and what to do about it.
pub fn probe() -> Result<Abilities, RecordError> {
    system::probe()
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn the_systems_error_is_said_once() {
        let error = || io::Error::from_raw_os_error(2);
        let errors = [
            RecordError::Spawn { program: "a".to_owned(), error: error() },
            RecordError::System { what: "do it", error: error() },
            RecordError::Open(error()),
        ];
        for error in errors {
            assert!(error.to_string().contains("os error 2"), "{error}");
            assert!(error.source().is_none(), "{error}");
        }
    }
}
