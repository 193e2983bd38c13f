//! Samples the stacks of running programs, without privilege, and names their functions.
//!
//! This happens in two steps. While the program runs, a sampler records which thread was where and when, and unwinds its
//! stack to addresses at once: a [`Recording`]. Afterwards, [`resolve`] names the functions at these addresses, including
//! inlined ones: [`Sampled`]. Recordings of the program `perf` go through the same steps.
//!
//! This crate knows nothing of bricks. Its times come from system clocks, so callers that know what ran when on which
//! thread can match the two.
//!
//! # Map
//!
//! | file | contents |
//! |---|---|
//! | `recording.rs`, `sampled.rs` | the data: samples with addresses; samples with names |
//! | `perf_event/` | samples a command and everything it starts, with `perf_event_open`: `linux/ring.rs` events and rings, `event.rs` records, `journal.rs` processes and samples, `interrupt.rs` Ctrl-C |
//! | `timer/` | samples this process itself, with signals: `linux/handler.rs` the signal handler and its slots, `threads.rs` the threads, `maps.rs` their code |
//! | `perf.rs` | runs the program `perf` |
//! | `perf_data/` | reads `perf.data` files without `perf`: `layout.rs` headers, `record.rs` and `sample.rs` records, `replay.rs` from records to a recording |
//! | `unwind.rs` | from registers and a copy of the stack to addresses |
//! | `symbols/` | names for addresses: `locations.rs` which file an address is in, `file.rs` and `kernel.rs` names, `debug_file.rs` separate debug information, `demangle.rs` |
//! | `code_file.rs`, `mmap.rs` | ELF files; mapping them into memory |
//! | `clock.rs` | the clock of samples |
//!
//! # Unsafe code
//!
//! `unsafe` is only in modules that talk to the system, each with `allow(unsafe_code)` at its head: the clock, mapping
//! files, waiting for the kernel's rings, and signals. Safe code parses everything that the kernel or a signal provides.

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
