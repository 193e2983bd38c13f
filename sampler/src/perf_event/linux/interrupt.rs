//! Keeps this process alive when Ctrl-C ends the command being sampled.

#![allow(unsafe_code, reason = "the standard library has no signals")]

use std::sync::{Mutex, MutexGuard, PoisonError};

const SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

/// While this exists, SIGINT and SIGQUIT don't end this process. Handlers that the program has installed stay.
///
/// It installs a handler instead of ignoring the signals, because the command would inherit that: `exec` preserves
/// ignored signals, but resets handlers.
pub(super) struct Outlive {
    before: [libc::sigaction; SIGNALS.len()],
    // Two at the same time would restore each other's handlers.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

extern "C" fn nothing(_signal: libc::c_int) {}

impl Outlive {
    pub(super) fn start() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = SIGNALS.map(|signal| {
            // SAFETY: a sigaction is plain data for which zeros are valid: no flags, no blocked signals.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            // SAFETY: as above.
            let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: both pointers are to valid sigactions. The handler does nothing, which is allowed in a signal
            // handler.
            unsafe { libc::sigaction(signal, &raw const action, &raw mut before) };
            if before.sa_sigaction != libc::SIG_DFL {
                // This program has its own way with the signal. Or whoever started it wants it ignored, by the command as
                // well, as `nohup` does.
                // SAFETY: the pointer is to the sigaction that the system returned.
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
            // SAFETY: the pointer is to the sigaction that the system returned for this signal.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        }
    }
}
