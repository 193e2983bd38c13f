//! The signal handler, and the slots through which it communicates with the sampling thread.
//!
//! Each thread has a slot with room for some samples, and a timer of its CPU clock, which sends it the signal. The
//! handler runs on the interrupted thread and fills the next cell of the slot; the sampling thread empties the cells.
//! The handler doesn't allocate or block. Slots are never freed, so a late signal still finds its slot, sees that it
//! isn't wanted, and does nothing.

#![allow(unsafe_code, reason = "signals and other threads' registers are foreign calls")]

use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::clock;
use crate::timer::TimerError;
use crate::unwind::Registers;

/// The most threads that can be sampled at the same time.
pub(super) const SLOTS: usize = 1024;
/// The most bytes that are copied of a stack.
pub(super) const CAPACITY: usize = 1 << 16;
/// How many samples a slot holds until the sampling thread takes them.
const CELLS: usize = 16;

/// Not in use; the cell belongs to the sampling thread.
const IDLE: u32 = 0;
/// Ready for a sample.
const ASKED: u32 = 1;
/// The handler is writing a sample; the cell belongs to the handler.
const WRITING: u32 = 2;
/// A sample is there; the cell belongs to the sampling thread.
const FULL: u32 = 3;

struct Slot {
    thread: AtomicI32,
    /// How many samples the handler has begun, which gives the next sample's cell.
    written: AtomicUsize,
    /// How many samples the sampling thread has taken.
    read: AtomicUsize,
    /// How many signals found no room.
    missed: AtomicU64,
    cells: [Cell; CELLS],
    /// [`CAPACITY`] bytes for each cell, allocated at the slot's first use.
    stacks: AtomicPtr<u8>,
}

struct Cell {
    state: AtomicU32,
    time_ns: AtomicU64,
    registers: [AtomicU64; 4],
    length: AtomicUsize,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        thread: AtomicI32::new(0),
        written: AtomicUsize::new(0),
        read: AtomicUsize::new(0),
        missed: AtomicU64::new(0),
        cells: [const {
            Cell {
                state: AtomicU32::new(IDLE),
                time_ns: AtomicU64::new(0),
                registers: [const { AtomicU64::new(0) }; 4],
                length: AtomicUsize::new(0),
            }
        }; CELLS],
        stacks: AtomicPtr::new(ptr::null_mut()),
    }
}; SLOTS];
/// Slots from here on have never been used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// How many bytes of a stack are copied.
static STACK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A sample from a slot.
pub(super) struct Taken<'a> {
    pub(super) time_ns: u64,
    pub(super) registers: Registers,
    pub(super) stack: &'a [u8],
}

/// The sampling thread's access to the slots. There is one at a time.
#[derive(Debug)]
pub(super) struct Slots {
    free: Vec<usize>,
}

impl Slots {
    /// Installs the handler.
    pub(super) fn open(stack_bytes: usize) -> Result<Self, TimerError> {
        install()?;
        STACK_BYTES.store(stack_bytes.min(CAPACITY), Ordering::Relaxed);
        Ok(Self { free: (0..SLOTS).rev().filter(|&index| empty(&TABLE[index])).collect() })
    }

    /// Assigns a slot to a thread, which may write to it from now on; `None` if all are taken.
    pub(super) fn assign(&mut self, thread: i32) -> Option<usize> {
        let index = self.free.pop()?;
        let slot = &TABLE[index];
        if slot.stacks.load(Ordering::Relaxed).is_null() {
            // Zeroed memory from the system, which takes no physical memory until it is written to.
            let stacks = vec![0_u8; CELLS * CAPACITY].into_boxed_slice();
            slot.stacks.store(Box::leak(stacks).as_mut_ptr(), Ordering::Relaxed);
        }
        for counter in [&slot.written, &slot.read] {
            counter.store(0, Ordering::Relaxed);
        }
        slot.missed.store(0, Ordering::Relaxed);
        for cell in &slot.cells {
            cell.state.store(ASKED, Ordering::Release);
        }
        slot.thread.store(thread, Ordering::Release);
        USED.fetch_max(index + 1, Ordering::Release);
        Some(index)
    }

    /// Releases the slot of a thread that has ended or is no longer sampled. Its remaining samples are dropped, so that
    /// they aren't attributed to the next thread.
    pub(super) fn release(&mut self, index: usize) {
        let slot = &TABLE[index];
        // From here on, signals find no slot.
        slot.thread.store(0, Ordering::Relaxed);
        if empty(slot) {
            self.free.push(index);
        }
    }

    /// How many signals of the slot's thread found no room for a sample.
    pub(super) fn missed(&self, index: usize) -> u64 {
        TABLE[index].missed.load(Ordering::Relaxed)
    }

    /// Passes the slot's samples to `take`, oldest first.
    pub(super) fn take(&mut self, index: usize, mut take: impl FnMut(&Taken<'_>)) {
        let slot = &TABLE[index];
        loop {
            let number = slot.read.load(Ordering::Relaxed);
            let cell = &slot.cells[number % CELLS];
            if cell.state.load(Ordering::Acquire) != FULL {
                return;
            }
            let [ip, sp, fp, lr] =
                [0, 1, 2, 3].map(|at| cell.registers[at].load(Ordering::Relaxed));
            let length = cell.length.load(Ordering::Relaxed).min(CAPACITY);
            let stacks = slot.stacks.load(Ordering::Relaxed);
            // SAFETY: the pointer is to `CELLS` times `CAPACITY` bytes since the slot was assigned. While the state is
            // `FULL`, no handler writes to this cell: a handler begins only at `ASKED`, which only this thread sets,
            // and `&mut self` prevents that meanwhile.
            let stack = unsafe {
                std::slice::from_raw_parts(stacks.add(number % CELLS * CAPACITY), length)
            };
            let registers = Registers { ip, sp, fp, lr };
            take(&Taken { time_ns: cell.time_ns.load(Ordering::Relaxed), registers, stack });
            slot.read.store(number.wrapping_add(1), Ordering::Relaxed);
            cell.state.store(ASKED, Ordering::Release);
        }
    }
}

/// A timer of a thread's CPU clock, which sends the signal to the thread.
///
/// It fires with the kernel's tick: no more often than that, and wherever the thread is then.
#[derive(Debug)]
pub(super) struct CpuTimer(libc::timer_t);

// SAFETY: it is a number from the kernel, which any thread of the process may use.
unsafe impl Send for CpuTimer {}

impl CpuTimer {
    /// Sends a signal for each `period_ns` of CPU time from now on; `None` if the thread has ended, or the system has
    /// no more timers.
    pub(super) fn start(thread: i32, clock: libc::clockid_t, period_ns: u64) -> Option<Self> {
        // SAFETY: a sigevent is plain data for which zeros are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = thread;
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: the pointers are to valid values. If the thread isn't one of this process, the call fails.
        if unsafe { libc::timer_create(clock, &raw mut event, &raw mut timer) } != 0 {
            return None;
        }
        let timer = Self(timer);
        let period = libc::timespec {
            tv_sec: (period_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (period_ns % 1_000_000_000) as libc::c_long,
        };
        let times = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer was created above, and the pointer is to a valid itimerspec; the old value isn't
        // requested.
        let set = unsafe { libc::timer_settime(timer.0, 0, &raw const times, ptr::null_mut()) };
        (set == 0).then_some(timer)
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: it was created by `timer_create` and is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

const SIGNAL: libc::c_int = libc::SIGPROF;

/// Empties a slot for another thread. Returns false if a handler is writing to it, which is possible if its thread
/// hasn't ended: then the slot stays with that thread until the next [`Slots::open`].
///
/// A thread that has ended is in no handler, and the exchange sees the last value that it stored: nothing that the
/// handler did comes after it.
fn empty(slot: &Slot) -> bool {
    let unless_written = |state| (state != WRITING).then_some(IDLE);
    // All cells, even after one that can't be emptied.
    slot.cells.iter().fold(true, |is_empty, cell| {
        let emptied =
            cell.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, unless_written).is_ok();
        is_empty && emptied
    })
}

/// Installs the handler and never removes it: without it, a late signal would end the process.
fn install() -> Result<(), TimerError> {
    let ours = on_signal as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    let failed = |()| TimerError::System {
        what: "set a handler for SIGPROF",
        error: io::Error::last_os_error(),
    };
    // SAFETY: a sigaction is plain data for which zeros are valid.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a valid sigaction.
    let read = unsafe { libc::sigaction(SIGNAL, ptr::null(), &raw mut before) };
    (read == 0).then_some(()).ok_or(()).map_err(failed)?;
    if ![libc::SIG_DFL, libc::SIG_IGN, ours].contains(&before.sa_sigaction) {
        return Err(TimerError::SignalInUse);
    }
    // SAFETY: as above; while the handler runs, only its own signal is blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ours;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the pointer is to a valid sigaction, and the handler takes three arguments, as `SA_SIGINFO` requires.
    let set = unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) };
    (set == 0).then_some(()).ok_or(()).map_err(failed)
}

/// Runs on the sampled thread, at any point of its execution. So it only makes calls that are listed in `man
/// signal-safety` or are plain system calls, and restores `errno`.
extern "C" fn on_signal(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: every thread has an `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: the call takes no arguments.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let used = USED.load(Ordering::Acquire);
    let mine = |slot: &&Slot| slot.thread.load(Ordering::Relaxed) == thread;
    if let Some(slot) = TABLE.iter().take(used).find(mine) {
        // The signal is blocked in here, so nothing else changes this number.
        let number = slot.written.load(Ordering::Relaxed);
        let cell = &slot.cells[number % CELLS];
        let asked =
            cell.state.compare_exchange(ASKED, WRITING, Ordering::AcqRel, Ordering::Relaxed);
        match asked {
            // Meanwhile the slot may have been given to another thread.
            Ok(_) if !mine(&slot) => cell.state.store(ASKED, Ordering::Release),
            Ok(_) => {
                // SAFETY: with `SA_SIGINFO`, the third argument is the interrupted thread's ucontext.
                let registers = registers(unsafe { &*context.cast::<libc::ucontext_t>() });
                fill(slot, number % CELLS, &registers);
                slot.written.store(number.wrapping_add(1), Ordering::Relaxed);
                cell.state.store(FULL, Ordering::Release);
            }
            Err(_) => drop(slot.missed.fetch_add(1, Ordering::Relaxed)),
        }
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

fn fill(slot: &Slot, cell: usize, registers: &Registers) {
    let stacks = slot.stacks.load(Ordering::Relaxed);
    // SAFETY: the pointer is to `CELLS` times `CAPACITY` bytes since the slot was assigned.
    let stack = unsafe { stacks.add(cell * CAPACITY) };
    let cell = &slot.cells[cell];
    cell.time_ns.store(clock::raw_ns(), Ordering::Relaxed);
    let Registers { ip, sp, fp, lr } = *registers;
    for (register, value) in cell.registers.iter().zip([ip, sp, fp, lr]) {
        register.store(value, Ordering::Relaxed);
    }
    let wanted = STACK_BYTES.load(Ordering::Relaxed).min(CAPACITY);
    cell.length.store(copy_stack(sp as usize, stack, wanted), Ordering::Relaxed);
}

/// Copies up to `wanted` bytes from `sp` on to `to`, and returns how many.
///
/// Where the stack ends isn't known here, so the kernel copies, and stops at the first missing page. A direct read could
/// end the process: above a stack lies other memory, which another thread may be unmapping.
fn copy_stack(sp: usize, to: *mut u8, wanted: usize) -> usize {
    const PAGE: usize = 4096;
    const PAGES: usize = CAPACITY / PAGE + 1;
    let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
    // One part per page, since the call only promises to stop between parts.
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
    // SAFETY: `to` has room for `wanted` bytes, at most `CAPACITY`, and nothing else writes to it while the cell's
    // state is `WRITING`. The kernel skips what it can't read.
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
    // The call is refused, for example by a filter. The page of the stack pointer is mapped.
    let length = if n_parts > 0 { from[0].iov_len } else { 0 };
    // SAFETY: the stack pointer's page is mapped as long as its thread runs, which is this one, and `length` ends
    // with it; `to` is as above, and not part of any stack.
    unsafe { ptr::copy_nonoverlapping(sp as *const u8, to, length) };
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_on_empty_and_not_while_a_handler_writes_to_it() {
        // Not one of the first slots, which a sampler of this process would use.
        const INDEX: usize = SLOTS - 1;
        let state = &TABLE[INDEX].cells[0].state;
        let mut slots = Slots { free: vec![INDEX] };
        for left in [IDLE, ASKED, FULL] {
            assert_eq!(slots.assign(i32::MAX), Some(INDEX));
            state.store(left, Ordering::Relaxed);
            slots.release(INDEX);
            assert_eq!(state.load(Ordering::Relaxed), IDLE);
            assert_eq!(slots.assign(i32::MAX), Some(INDEX), "state {left}");
            slots.take(INDEX, |_| unreachable!("the sample of the thread before, state {left}"));
            assert_eq!(state.load(Ordering::Relaxed), ASKED, "state {left}");
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
    fn samples_are_taken_in_order_and_what_finds_no_room_is_counted() {
        const INDEX: usize = SLOTS - 2;
        let mut slots = Slots { free: vec![INDEX] };
        // Calls the handler directly on this thread, without a signal.
        // SAFETY: the call takes no arguments.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        assert_eq!(slots.assign(thread), Some(INDEX));
        // SAFETY: plain data for which zeros are valid: a stack at address 0, from which nothing is copied.
        let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        let mut signal = || on_signal(SIGNAL, ptr::null_mut(), (&raw mut context).cast());
        for round in 1..=3 {
            for _ in 0..CELLS + 2 {
                signal();
            }
            let mut times = Vec::new();
            slots.take(INDEX, |taken| times.push(taken.time_ns));
            assert_eq!(times.len(), CELLS);
            assert!(times.is_sorted());
            assert_eq!(slots.missed(INDEX), 2 * round);
        }
        slots.release(INDEX);
    }

    #[test]
    fn what_is_copied_ends_before_memory_that_is_not_there() {
        const PAGE: usize = 4096;
        let pages = 3 * PAGE;
        // SAFETY: maps new memory.
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
        // SAFETY: a page of the new memory, without references to it.
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
