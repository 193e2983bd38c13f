//! The signal's handler, and the slots through which it and the sampling thread talk.
//!
//! Each thread has a slot, with room for one sample. The sampling thread asks for one and sends the
//! signal; the handler, on the thread that it interrupts, fills the slot. No memory is allocated in
//! the handler and nothing is waited for. Slots are never freed, so a signal that comes late finds
//! its slot, sees that nothing is asked for, and does nothing.

#![allow(unsafe_code, reason = "signals and other threads' registers are foreign calls")]

use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::clock;
use crate::timer::TimerError;
use crate::unwind::Registers;

/// Threads that can be sampled at a time.
pub(super) const SLOTS: usize = 1024;
/// The most that is copied of a stack.
pub(super) const CAPACITY: usize = 1 << 16;

/// Nothing is asked for; the slot is the sampling thread's.
const IDLE: u32 = 0;
/// A sample is asked for.
const ASKED: u32 = 1;
/// The handler is writing it; the slot is the handler's.
const WRITING: u32 = 2;
/// It is there; the slot is the sampling thread's.
const FULL: u32 = 3;

struct Slot {
    state: AtomicU32,
    thread: AtomicI32,
    time_ns: AtomicU64,
    registers: [AtomicU64; 4],
    length: AtomicUsize,
    /// [`CAPACITY`] bytes, from the slot's first use on.
    stack: AtomicPtr<u8>,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        state: AtomicU32::new(IDLE),
        thread: AtomicI32::new(0),
        time_ns: AtomicU64::new(0),
        registers: [const { AtomicU64::new(0) }; 4],
        length: AtomicUsize::new(0),
        stack: AtomicPtr::new(ptr::null_mut()),
    }
}; SLOTS];
/// Slots from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// How much is copied of a stack.
static STACK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A sample as it was taken.
pub(super) struct Taken<'a> {
    pub(super) time_ns: u64,
    pub(super) registers: Registers,
    pub(super) stack: &'a [u8],
}

/// The slots; there is one of this at a time.
#[derive(Debug)]
pub(super) struct Slots {
    free: Vec<usize>,
}

impl Slots {
    /// Sets the handler up.
    pub(super) fn open(stack_bytes: usize) -> Result<Self, TimerError> {
        install()?;
        STACK_BYTES.store(stack_bytes.min(CAPACITY), Ordering::Relaxed);
        Ok(Self { free: (0..SLOTS).rev().filter(|&index| empty(&TABLE[index])).collect() })
    }

    /// A slot for a thread; `None` if all are taken.
    pub(super) fn assign(&mut self, thread: i32) -> Option<usize> {
        let index = self.free.pop()?;
        let slot = &TABLE[index];
        if slot.stack.load(Ordering::Relaxed).is_null() {
            let stack = vec![0_u8; CAPACITY].into_boxed_slice();
            slot.stack.store(Box::leak(stack).as_mut_ptr(), Ordering::Relaxed);
        }
        slot.thread.store(thread, Ordering::Relaxed);
        USED.fetch_max(index + 1, Ordering::Release);
        Some(index)
    }

    /// Takes the slot of a thread that has ended, or that isn't to be sampled any more. A sample in
    /// it is gone: it isn't the next thread's.
    pub(super) fn release(&mut self, index: usize) {
        let slot = &TABLE[index];
        // Signals from here on find no slot.
        slot.thread.store(0, Ordering::Relaxed);
        if empty(slot) {
            self.free.push(index);
        }
    }

    /// Asks the slot's thread for a sample, by the signal. `false` if it still owes one, or has
    /// ended.
    pub(super) fn ask(&mut self, index: usize) -> bool {
        let slot = &TABLE[index];
        if slot.state.compare_exchange(IDLE, ASKED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let thread = slot.thread.load(Ordering::Relaxed);
        // SAFETY: takes numbers. The signal has a handler, and goes to a thread of this process
        // only.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) } == 0;
        if !sent {
            self.withdraw(index);
        }
        sent
    }

    /// Whether a sample that was asked for hasn't come.
    pub(super) fn is_owed(&self, index: usize) -> bool {
        matches!(TABLE[index].state.load(Ordering::Acquire), ASKED | WRITING)
    }

    /// Takes back what [`ask`](Self::ask) asked for.
    pub(super) fn withdraw(&mut self, index: usize) {
        let state = &TABLE[index].state;
        let _ = state.compare_exchange(ASKED, IDLE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Gives the slot's sample to `take`, if there is one.
    pub(super) fn take(&mut self, index: usize, take: impl FnOnce(&Taken<'_>)) {
        let slot = &TABLE[index];
        if slot.state.load(Ordering::Acquire) != FULL {
            return;
        }
        let [ip, sp, fp, lr] = [0, 1, 2, 3].map(|at| slot.registers[at].load(Ordering::Relaxed));
        let length = slot.length.load(Ordering::Relaxed).min(CAPACITY);
        // SAFETY: the pointer is to `CAPACITY` bytes, since the slot was assigned. While the state
        // is `FULL` no handler writes to them: it begins with `ASKED` only, which this thread sets,
        // and `&mut self` keeps it from doing so meanwhile.
        let stack =
            unsafe { std::slice::from_raw_parts(slot.stack.load(Ordering::Relaxed), length) };
        let registers = Registers { ip, sp, fp, lr };
        take(&Taken { time_ns: slot.time_ns.load(Ordering::Relaxed), registers, stack });
        slot.state.store(IDLE, Ordering::Release);
    }
}

const SIGNAL: libc::c_int = libc::SIGPROF;

/// Makes a slot ready for another thread. `false` if a handler writes to it, as that of a thread may
/// that hasn't ended: then it stays with it, until it is looked at again with the next
/// [`Slots::open`].
///
/// A thread that has ended is in no handler, and the exchange sees the last of what it has stored:
/// whatever the handler did, nothing of it comes after.
fn empty(slot: &Slot) -> bool {
    let unless_written = |state| (state != WRITING).then_some(IDLE);
    slot.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, unless_written).is_ok()
}

/// Sets the handler, and leaves it for ever: without it a late signal would end the process.
fn install() -> Result<(), TimerError> {
    let ours = on_signal as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    let failed = |()| TimerError::System {
        what: "set a handler for SIGPROF",
        error: io::Error::last_os_error(),
    };
    // SAFETY: a sigaction is plain data for which zeros are valid.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole sigaction.
    let read = unsafe { libc::sigaction(SIGNAL, ptr::null(), &raw mut before) };
    (read == 0).then_some(()).ok_or(()).map_err(failed)?;
    if ![libc::SIG_DFL, libc::SIG_IGN, ours].contains(&before.sa_sigaction) {
        return Err(TimerError::SignalInUse);
    }
    // SAFETY: as above; no signal is blocked while the handler runs, but its own.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ours;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the pointer is to a whole sigaction, and the handler is one for three arguments, as
    // `SA_SIGINFO` says.
    let set = unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) };
    (set == 0).then_some(()).ok_or(()).map_err(failed)
}

/// Runs on the thread that is sampled, at any point of it: so it makes only calls that
/// `man signal-safety` lists or that are bare system calls, and leaves `errno` as it was.
extern "C" fn on_signal(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: every thread has its `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: takes nothing.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let used = USED.load(Ordering::Acquire);
    let mine = |slot: &&Slot| slot.thread.load(Ordering::Relaxed) == thread;
    if let Some(slot) = TABLE.iter().take(used).find(mine)
        && slot.state.compare_exchange(ASKED, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    {
        // Since it was found, the slot may have become another thread's, which was asked. That one
        // is asked again later: its own signal may have come in the meantime, and found nothing.
        let state = if mine(&slot) {
            // SAFETY: with `SA_SIGINFO` the third argument is a ucontext, the interrupted thread's.
            let registers = registers(unsafe { &*context.cast::<libc::ucontext_t>() });
            fill(slot, &registers);
            FULL
        } else {
            IDLE
        };
        slot.state.store(state, Ordering::Release);
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let general = &context.uc_mcontext.gregs;
    let register = |number: libc::c_int| general[number as usize] as u64;
    Registers {
        ip: register(libc::REG_RIP),
        sp: register(libc::REG_RSP),
        fp: register(libc::REG_RBP),
        lr: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers { ip: machine.pc, sp: machine.sp, fp: machine.regs[29], lr: machine.regs[30] }
}

fn fill(slot: &Slot, registers: &Registers) {
    slot.time_ns.store(clock::raw_ns(), Ordering::Relaxed);
    let Registers { ip, sp, fp, lr } = *registers;
    for (register, value) in slot.registers.iter().zip([ip, sp, fp, lr]) {
        register.store(value, Ordering::Relaxed);
    }
    let stack = slot.stack.load(Ordering::Relaxed);
    let wanted = STACK_BYTES.load(Ordering::Relaxed).min(CAPACITY);
    slot.length.store(copy_stack(sp as usize, stack, wanted), Ordering::Relaxed);
}

/// Copies up to `wanted` bytes from `sp` on to `to`; says how many.
///
/// Where the stack ends isn't known here, so the kernel copies, which stops at the first page that
/// isn't there. Reading on our own could end the process: what lies above a stack is other memory,
/// and another thread may be giving it back.
fn copy_stack(sp: usize, to: *mut u8, wanted: usize) -> usize {
    const PAGE: usize = 4096;
    const PAGES: usize = CAPACITY / PAGE + 1;
    let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
    // A part for each page: the call promises to stop only between parts.
    let mut from = [nothing; PAGES];
    let mut n_parts = 0;
    let mut at = sp;
    let end = sp.saturating_add(wanted);
    while at < end && n_parts < PAGES {
        let next = ((at | (PAGE - 1)).saturating_add(1)).min(end);
        from[n_parts] = libc::iovec { iov_base: at as *mut c_void, iov_len: next - at };
        n_parts += 1;
        at = next;
    }
    let into = libc::iovec { iov_base: to.cast(), iov_len: wanted };
    // SAFETY: `to` has room for `wanted` bytes, at most `CAPACITY`, and is written by nobody else
    // while the slot's state is `WRITING`. What can't be read the kernel doesn't read.
    let copied = unsafe {
        let parts = n_parts as libc::c_ulong;
        libc::syscall(
            libc::SYS_process_vm_readv,
            libc::getpid(),
            &raw const into,
            1 as libc::c_ulong,
            from.as_ptr(),
            parts,
            0 as libc::c_ulong,
        )
    };
    if let Ok(copied) = usize::try_from(copied) {
        return copied.min(wanted);
    }
    // The call is refused, as by a filter. The page of the stack pointer is there.
    let length = if n_parts > 0 { from[0].iov_len } else { 0 };
    // SAFETY: the stack pointer's page is mapped as long as its thread runs, which is this one, and
    // `length` ends with it; `to` is as above and no part of any stack.
    unsafe { ptr::copy_nonoverlapping(sp as *const u8, to, length) };
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_on_empty_and_not_while_a_handler_writes_to_it() {
        // Not one of the first, which a sampler of this process would use.
        const INDEX: usize = SLOTS - 1;
        let state = &TABLE[INDEX].state;
        let mut slots = Slots { free: vec![INDEX] };
        for left in [IDLE, ASKED, FULL] {
            assert_eq!(slots.assign(i32::MAX), Some(INDEX));
            state.store(left, Ordering::Relaxed);
            slots.release(INDEX);
            assert_eq!(slots.assign(i32::MAX), Some(INDEX), "state {left}");
            slots.take(INDEX, |_| unreachable!("the sample of the thread before, state {left}"));
            assert_eq!(state.load(Ordering::Relaxed), IDLE, "state {left}");
            slots.release(INDEX);
        }
        assert_eq!(slots.assign(i32::MAX), Some(INDEX));
        state.store(WRITING, Ordering::Relaxed);
        slots.release(INDEX);
        assert_eq!(slots.assign(i32::MAX), None);
        assert_eq!(state.load(Ordering::Relaxed), WRITING, "it is the handler's");
        assert_eq!(TABLE[INDEX].thread.load(Ordering::Relaxed), 0);
        state.store(FULL, Ordering::Relaxed);
        assert!(empty(&TABLE[INDEX]), "the handler has ended");
    }

    #[test]
    fn what_is_copied_ends_before_memory_that_is_not_there() {
        const PAGE: usize = 4096;
        let pages = 3 * PAGE;
        // SAFETY: new memory, of which nothing is known yet.
        let memory = unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            libc::mmap(ptr::null_mut(), pages, access, kind | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let memory = memory.cast::<u8>();
        for at in 0..pages {
            // SAFETY: within the new memory.
            unsafe { memory.add(at).write((at % 251) as u8) };
        }
        // SAFETY: a page of the new memory, of which there is no reference.
        assert_eq!(unsafe { libc::munmap(memory.add(2 * PAGE).cast(), PAGE) }, 0);

        let mut copy = vec![0; CAPACITY];
        let start = 100;
        let length = copy_stack(memory as usize + start, copy.as_mut_ptr(), CAPACITY);
        let whole: Vec<_> = (start..2 * PAGE).map(|at| (at % 251) as u8).collect();
        assert_eq!(length, whole.len());
        assert_eq!(copy[..length], whole);
        assert_eq!(copy_stack(memory as usize + start, copy.as_mut_ptr(), 1_000), 1_000);
        assert_eq!(copy_stack(memory as usize + start, copy.as_mut_ptr(), 0), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(memory.cast(), 2 * PAGE) }, 0);
    }
}
