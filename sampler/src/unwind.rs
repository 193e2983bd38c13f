//! From a thread's registers and the top of its stack to the addresses of its callers.

use crate::recording::{Ending, Mapping};

/// A thread's registers, as far as unwinding takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// Where it is.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
    /// The link register, of AArch64.
    pub lr: u64,
}

/// Unwinds stacks of processes whose mappings it was told of, while they are being sampled.
#[derive(Debug, Default)]
pub struct Unwinder {}

impl Unwinder {
    /// One that knows of no process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A process has mapped code. A file that can't be read is noted, and stacks end in it.
    pub fn map(&mut self, _pid: u32, _mapping: &Mapping) {}

    /// A process has forked: the child has the parent's mappings.
    pub fn fork(&mut self, _parent: u32, _child: u32) {}

    /// A process runs another program: its mappings are gone.
    pub fn exec(&mut self, _pid: u32) {}

    /// Appends to `addresses` where the thread is and the return addresses of its callers, the
    /// innermost first. `stack` is a copy of its stack from `registers.sp` upwards.
    pub fn unwind(
        &mut self,
        _pid: u32,
        registers: &Registers,
        _stack: &[u8],
        addresses: &mut Vec<u64>,
    ) -> Ending {
        addresses.push(registers.ip);
        Ending::Lost
    }
}
