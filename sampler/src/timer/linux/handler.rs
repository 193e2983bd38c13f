//! The signal's handler, and the slots through which it and the sampling thread talk.
//!
//! Each thread has a slot, with room for some samples, and a timer of its CPU clock, which sends it the
//! signal. The handler, on the thread that it interrupts, fills the next cell of the slot; the sampling
//! thread empties them. No memory is allocated in the handler and nothing is waited for. Slots are never
//! freed, so a signal that comes late finds its slot, sees that nothing is asked for, and does nothing.

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
/// Samples that a slot has room for, until the sampling thread comes to take them.
const CELLS: usize = 16;

/// Nothing is asked for; the cell is the sampling thread's.
const IDLE: u32 = 0;
/// There is room for a sample.
const ASKED: u32 = 1;
/// The handler is writing it; the cell is the handler's.
const WRITING: u32 = 2;
/// It is there; the cell is the sampling thread's.
const FULL: u32 = 3;

struct Slot {
    thread: AtomicI32,
    /// Samples that were begun, by the handler: the next one's cell.
    written: AtomicUsize,
    /// Samples that were taken, by the sampling thread.
    read: AtomicUsize,
    /// Signals that found no room.
    missed: AtomicU64,
    cells: [Cell; CELLS],
    /// [`CAPACITY`] bytes for each cell, from the slot's first use on.
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

    /// A slot for a thread, which may be written to from now on; `None` if all are taken.
    pub(super) fn assign(&mut self, thread: i32) -> Option<usize> {
        let index = self.free.pop()?;
        let slot = &TABLE[index];
        if slot.stacks.load(Ordering::Relaxed).is_null() {
            // Zeros of the system's, which take no memory until they are written to.
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

    /// Takes the slot of a thread that has ended, or that isn't to be sampled any more. Samples in
    /// it are gone: they aren't the next thread's.
    pub(super) fn release(&mut self, index: usize) {
        let slot = &TABLE[index];
        // Signals from here on find no slot.
        slot.thread.store(0, Ordering::Relaxed);
        if empty(slot) {
            self.free.push(index);
        }
    }

    /// Signals of the slot's thread that found no room for a sample.
    pub(super) fn missed(&self, index: usize) -> u64 {
        TABLE[index].missed.load(Ordering::Relaxed)
    }

    /// Gives the slot's samples to `take`, the first one first.
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
            // SAFETY: the pointer is to `CELLS` times `CAPACITY` bytes, since the slot was assigned.
            // While the state is `FULL` no handler writes to this cell's: it begins with `ASKED` only,
            // which this thread sets, and `&mut self` keeps it from doing so meanwhile.
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

/// A timer of a thread's CPU clock, which sends the thread the signal.
///
/// It fires with the kernel's tick: as often as that at most, and wherever the thread is then.
#[derive(Debug)]
pub(super) struct CpuTimer(libc::timer_t);

// SAFETY: a number that the kernel gave, which any thread of the process may use.
unsafe impl Send for CpuTimer {}

impl CpuTimer {
    /// Sends a signal for each `period_ns` of CPU time from now on; `None` if the thread has ended, or the
    /// system has no more timers.
    pub(super) fn start(thread: i32, clock: libc::clockid_t, period_ns: u64) -> Option<Self> {
        // SAFETY: a sigevent is plain data for which zeros are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = thread;
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: the pointers are to whole values; the thread is one of this process, or the call fails.
        if unsafe { libc::timer_create(clock, &raw mut event, &raw mut timer) } != 0 {
            return None;
        }
        let timer = Self(timer);
        let period = libc::timespec {
            tv_sec: (period_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (period_ns % 1_000_000_000) as libc::c_long,
        };
        let times = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer was made above, and the pointer is to a whole itimerspec; what was before isn't
        // asked for.
        let set = unsafe { libc::timer_settime(timer.0, 0, &raw const times, ptr::null_mut()) };
        (set == 0).then_some(timer)
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: it was made by `timer_create` and is deleted once.
        unsafe { libc::timer_delete(self.0) };
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
    // All of them, whatever comes of each.
    slot.cells.iter().fold(true, |is_empty, cell| {
        let emptied =
            cell.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, unless_written).is_ok();
        is_empty && emptied
    })
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
    if let Some(slot) = TABLE.iter().take(used).find(mine) {
        // The signal is blocked in here, so nobody else counts this one.
        let number = slot.written.load(Ordering::Relaxed);
        let cell = &slot.cells[number % CELLS];
        let asked =
            cell.state.compare_exchange(ASKED, WRITING, Ordering::AcqRel, Ordering::Relaxed);
        match asked {
            // Since it was found, the slot may have become another thread's.
            Ok(_) if !mine(&slot) => cell.state.store(ASKED, Ordering::Release),
            Ok(_) => {
                // SAFETY: with `SA_SIGINFO` the third argument is a ucontext, the interrupted thread's.
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
    // SAFETY: the pointer is to `CELLS` times `CAPACITY` bytes, since the slot was assigned.
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
    // while the cell's state is `WRITING`. What can't be read the kernel doesn't read.
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
        // This very thread, without the signal: the handler is called.
        // SAFETY: takes nothing.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        assert_eq!(slots.assign(thread), Some(INDEX));
        // SAFETY: plain data for which zeros are valid: a stack at address 0, of which nothing is copied.
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
