//! Samples the stacks of running programs, without privilege, and names what it finds.
//!
//! Two steps. While the program runs, a sampler notes which thread was where and when, and unwinds
//! its stack to addresses at once: a [`Recording`]. Afterwards the addresses get the names of
//! functions, inlined ones too: [`Sampled`]. What comes from `perf` goes the same way.
//!
//! This crate knows nothing of bricks. Times are of the system's clocks, so whoever knows what ran
//! when on which thread can join the two.
//!
//! # Unsafe code
//!
//! It is in the modules that talk to the system only, each with `allow(unsafe_code)` at its head:
//! the clock, the wait for the kernel's rings, the handling of signals. What the kernel or a signal
//! handed over is parsed by safe code.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod clock;
mod code_file;
mod mmap;
pub mod perf;
pub mod perf_data;
pub mod perf_event;
mod recording;
mod sampled;
mod symbols;
pub mod timer;
mod unwind;

pub use crate::recording::{
    Ending, KERNEL_PID, Mapping, Process, RawSample, Recording, Sampler, Thread, TimeBase,
};
pub use crate::sampled::{Frame, FrameKind, Sampled, Seen};
pub use crate::symbols::resolve;
pub use crate::unwind::{Registers, Unwinder};
