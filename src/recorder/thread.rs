//! Numbers for the threads that record: small ones, given out again when a thread has ended, so that
//! a recorder finds a thread's log by looking into an array.

use std::cell::Cell;

/// A thread that records: its serial, and its index in the lower half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thread(u64);

impl Thread {
    /// No number was given out yet.
    const NEW: Self = Self(0);
    /// The thread is being torn down, and its number is somebody else's.
    #[cfg(not(loom))]
    const ENDED: Self = Self(1);

    /// No two threads that live at the same time have the same one.
    #[inline(always)]
    pub(super) fn index(self) -> usize {
        self.0 as u32 as usize
    }

    /// No two threads of the process ever had the same one. Never 0, if it [is numbered](Self::is_numbered).
    fn serial(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// This thread and a recorder's state in one word. It is the key of this thread's log if the state is
    /// [`PLAIN`](super::PLAIN) and of the log's generation, and else of none: an index and a state add up without a
    /// carry into the serial, and a serial has one index.
    #[inline(always)]
    pub(super) fn key(self, state: u32) -> u64 {
        self.0.wrapping_add(state.into())
    }

    /// The key of this thread's log.
    pub(super) fn key_of(self, generation: u32) -> u64 {
        self.key(generation << 1 | super::PLAIN)
    }

    pub(super) fn is_numbered(self) -> bool {
        self.serial() != 0
    }
}

#[cfg(not(loom))]
mod numbers {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};

    use super::{Cell, Thread};

    struct Numbers {
        free: BTreeSet<u32>,
        next_index: u32,
        next_serial: u32,
    }

    static NUMBERS: Mutex<Numbers> =
        Mutex::new(Numbers { free: BTreeSet::new(), next_index: 0, next_serial: 1 });

    thread_local! {
        // Without a destructor, so that reading it is a load and nothing else.
        static HERE: Cell<Thread> = const { Cell::new(Thread::NEW) };
        static BUSY: Cell<bool> = const { Cell::new(false) };
        static ENDS: Ends = const { Ends };
    }

    /// Gives the number back when its thread ends.
    struct Ends;

    impl Drop for Ends {
        fn drop(&mut self) {
            let thread = HERE.replace(Thread::ENDED);
            if thread.is_numbered() {
                let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
                numbers.free.insert(thread.index() as u32);
            }
        }
    }

    #[inline(always)]
    pub(in crate::recorder) fn here() -> Thread {
        HERE.get()
    }

    #[cold]
    pub(in crate::recorder) fn number() -> Option<Thread> {
        if here() == Thread::NEW && ENDS.try_with(|_| ()).is_ok() {
            let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
            let index = numbers.free.pop_first().unwrap_or_else(|| {
                numbers.next_index += 1;
                numbers.next_index - 1
            });
            let serial = numbers.next_serial;
            numbers.next_serial = serial.wrapping_add(1).max(1);
            HERE.set(Thread(u64::from(serial) << 32 | u64::from(index)));
        }
        Some(here()).filter(|thread| thread.is_numbered())
    }

    /// Runs `f`, unless it is running on this thread already.
    pub(in crate::recorder) fn not_within_itself<R>(f: impl FnOnce() -> R) -> Option<R> {
        struct Done;
        impl Drop for Done {
            fn drop(&mut self) {
                BUSY.set(false);
            }
        }
        if BUSY.replace(true) {
            return None;
        }
        let _done = Done;
        Some(f())
    }
}

/// The model's threads: they are few, and none of them ends before the model does.
#[cfg(loom)]
mod numbers {
    use std::sync::atomic::Ordering::Relaxed;

    use loom::sync::atomic::AtomicU32;

    use super::{Cell, Thread};

    loom::lazy_static! {
        static ref NEXT: AtomicU32 = AtomicU32::new(0);
    }

    loom::thread_local! {
        static HERE: Cell<Thread> = Cell::new(Thread::NEW);
    }

    pub(in crate::recorder) fn here() -> Thread {
        HERE.with(Cell::get)
    }

    pub(in crate::recorder) fn number() -> Option<Thread> {
        if here() == Thread::NEW {
            let index = u64::from(NEXT.fetch_add(1, Relaxed));
            HERE.with(|here| here.set(Thread((index + 1) << 32 | index)));
        }
        Some(here())
    }

    pub(in crate::recorder) fn not_within_itself<R>(f: impl FnOnce() -> R) -> Option<R> {
        Some(f())
    }
}

pub(super) use numbers::{here, not_within_itself, number};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_out_again_but_never_a_serial() {
        // Other tests take and return numbers meanwhile, so none is expected in particular.
        let mut serials = Vec::new();
        let mut largest = 0;
        for _ in 0..100 {
            let thread =
                std::thread::spawn(|| number().expect("it lives")).join().expect("no panic");
            serials.push(thread.serial());
            largest = largest.max(thread.index());
        }
        serials.sort_unstable();
        serials.dedup();
        assert_eq!(serials.len(), 100);
        assert!(largest < 100, "{largest}");
    }

    #[test]
    fn what_runs_within_itself_does_not_run() {
        assert_eq!(not_within_itself(|| not_within_itself(|| 1)), Some(None));
        assert_eq!(not_within_itself(|| 2), Some(2));
    }
}
