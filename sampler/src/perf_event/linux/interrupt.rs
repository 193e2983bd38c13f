//! Keeps this process alive when Ctrl-C ends the command that it samples.

#![allow(unsafe_code, reason = "the standard library has no signals")]

use std::sync::{Mutex, MutexGuard, PoisonError};

const SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

/// While it lives, SIGINT and SIGQUIT do nothing to this process.
///
/// They have a handler, since what is ignored would be ignored by the command too: the kernel gives
/// that, but no handler, to the program that a process runs.
pub(super) struct Outlive {
    before: [libc::sigaction; SIGNALS.len()],
    // Two at a time would put back each other's.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

extern "C" fn nothing(_signal: libc::c_int) {}

impl Outlive {
    pub(super) fn start() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = SIGNALS.map(|signal| {
            // SAFETY: a sigaction is plain data for which zeros are valid: no flags, no signal
            // blocked.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            // SAFETY: as above.
            let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: both pointers are to whole sigactions, and the handler does nothing, which a
            // handler may do at any time.
            unsafe { libc::sigaction(signal, &raw const action, &raw mut before) };
            if before.sa_sigaction == libc::SIG_IGN {
                // Whoever started us wants it ignored, by the command too, as `nohup` does.
                // SAFETY: the pointer is to what the system gave us.
                unsafe { libc::sigaction(signal, &raw const before, std::ptr::null_mut()) };
            }
            before
        });
        Self { before, _alone: alone }
    }
}

impl Drop for Outlive {
    fn drop(&mut self) {
        for (&signal, before) in SIGNALS.iter().zip(&self.before) {
            // SAFETY: the pointer is to what the system gave us for this signal.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        }
    }
}
