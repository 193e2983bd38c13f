//! Samples a command and all that it starts, by Linux's `perf_event_open` and without privilege.
//!
//! The way of `perf record`: one event of the software clock for each CPU, inherited by every
//! thread and child of the command, that samples the registers and the top of the stack. A sample
//! is unwound as soon as it is read, so that a run keeps addresses and no stacks.
//!
//! # What it costs
//!
//! Each sample interrupts the program, by a timer of the thread that is sampled. In a virtual
//! machine with two CPUs (AMD EPYC of family 25, Linux 6.18) a thread that only computes, with more
//! stack than is copied, lost per sample:
//!
//! | of the stack | time of the program |
//! |--------------|---------------------|
//! | 4 KiB        | 15.9 µs             |
//! | 8 KiB        | 15.9 µs             |
//! | 16 KiB       | 17.4 µs             |
//! | 32 KiB       | 24.1 µs             |
//!
//! These were taken at 4,999 samples a second, to be seen at all; at 999 they come to 1.7 % of a
//! thread's time. With other load on the machine a sample cost 25 to 30 µs. Nearly all of it is the
//! interrupt: the kernel's own tick took as long there, and `perf record` without stacks cost the
//! same. Where that is too much, take fewer samples. Threads that wait for one another wait for each
//! other's interrupts too: decoding with two threads that meet after each piece of work was slowed
//! by 3 to 7 %.
//!
//! Reading and unwinding a sample takes 2.0 to 2.5 µs, on whatever CPU is free. Of two threads that
//! were sampled for 4 seconds, on a busy machine, the reader took 5,475 samples in 42 wakes and
//! 12 ms of CPU time. When it was woken at a quarter of rings half as large, these were 170 wakes
//! and 20 ms.

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

/// How to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Samples in a second of a thread's CPU time. 999, not 1000, so that work which repeats every
    /// millisecond isn't met at the same place each time.
    pub frequency: u64,
    /// How much of the stack is copied with each sample, in bytes: a multiple of 8, at most 65,528.
    ///
    /// Of our engine's stacks 99 % were whole with 16 KiB, all with 32 KiB, and 44 % with 8 KiB.
    pub stack_bytes: u32,
    /// Whether time in the kernel is sampled too, where that is permitted.
    pub kernel: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { frequency: 999, stack_bytes: 16 << 10, kernel: true }
    }
}

/// How far a recording is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Samples taken so far.
    pub samples: usize,
    /// Samples and other records lost so far.
    pub lost: u64,
}

/// What [`record`] could do here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// Whether time in the kernel can be sampled, or only the program's own.
    pub kernel: bool,
    /// The highest frequency that the kernel allows, in samples a second.
    pub max_frequency: Option<u64>,
}

/// Why there is no recording, and what to do about it.
///
/// The text is whole: an error of the system is in it, and not the source besides.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Not Linux, or a processor whose registers aren't known here.
    #[error("programs are sampled on Linux only, on x86-64 and AArch64; this is {0}")]
    Unsupported(String),
    /// An option is out of its range.
    #[error("{name} is {value}, but must be {range}")]
    Option {
        /// Which.
        name: &'static str,
        /// What it is.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// The system's setting forbids it.
    #[error(
        "sampling is forbidden by kernel.perf_event_paranoid={0}: \
         sudo sysctl kernel.perf_event_paranoid=2"
    )]
    Paranoid(i32),
    /// A filter of system calls forbids it.
    #[error(
        "perf_event_open is refused, as by a container's seccomp filter: start the container with \
         `--cap-add PERFMON`, or with `--security-opt seccomp=unconfined`"
    )]
    Refused,
    /// The kernel has no such call.
    #[error(
        "there is no perf_event_open here (ENOSYS): use a kernel with CONFIG_PERF_EVENTS; in \
         gVisor or behind a seccomp filter, run outside"
    )]
    NoSystemCall,
    /// One file for each CPU is too many.
    #[error("too many open files for an event on each of {cpus} CPUs: ulimit -n {}", cpus + 1024)]
    Files {
        /// How many CPUs there are.
        cpus: usize,
    },
    /// The samples' rings would be more locked memory than the user may have.
    #[error(
        "no locked memory is left for rings of {ring_bytes} bytes on {cpus} CPUs: end other \
         profilers, `ulimit -l unlimited`, or sudo sysctl kernel.perf_event_mlock_kb=2048"
    )]
    LockedMemory {
        /// The smallest ring that was tried.
        ring_bytes: usize,
        /// How many CPUs there are.
        cpus: usize,
    },
    /// Another error of the kernel's.
    #[error("perf_event_open failed ({0}): see ERRORS in `man perf_event_open`")]
    Open(io::Error),
    /// The command can't be run.
    #[error("can't run {program}: {error}")]
    Spawn {
        /// Its program.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// Something that always works didn't.
    #[error("can't {what}: {error}")]
    System {
        /// What.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

/// Runs `command` and samples it, with all its threads and child processes, until it ends.
///
/// `on_tick` is called about five times a second or more often. What the command leaves running isn't
/// sampled any more once the command has ended.
///
/// While the command runs, this process isn't ended by SIGINT and SIGQUIT: Ctrl-C in the terminal
/// ends the command, and the recording up to there is kept.
///
/// # Errors
///
/// If the command can't be run, or sampling isn't permitted; then the command isn't run.
pub fn record(
    command: Command,
    options: &Options,
    on_tick: impl FnMut(&Progress),
) -> Result<(Recording, ExitStatus), RecordError> {
    if !(1..=1_000_000).contains(&options.frequency) {
        return Err(RecordError::Option {
            name: "the sampling frequency",
            value: options.frequency,
            range: "from 1 to 1,000,000 samples a second",
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

/// What [`record`] could do here. Runs nothing.
///
/// # Errors
///
/// Why it can't sample at all, and what to do.
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
