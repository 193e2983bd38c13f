//! Commands that end with the process that starts them.

use std::process::{Child, Command};

/// How a command is told that its parent has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It is killed.
    Kill,
    /// It is asked to end, for programs such as `perf record` that end what they run themselves.
    Ask,
}

/// Ends the process that `command` will start when the thread that starts it ends, or its whole process does, however
/// that happens. So start it on a thread that waits for it.
///
/// On Linux only; elsewhere this does nothing. What the process starts itself isn't tied.
pub(crate) fn end_with_parent(command: &mut Command, how: End) {
    system::end_with_parent(command, how);
}

/// Asks a process to end, with SIGTERM. Does nothing on systems where [`end_with_parent`] doesn't, or if it has ended.
pub(crate) fn ask_to_end(child: &Child) {
    system::ask_to_end(child);
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::process::{Child, Command};

    use super::End;

    pub(super) fn end_with_parent(_: &mut Command, _: End) {}

    pub(super) fn ask_to_end(_: &Child) {}
}

#[cfg(target_os = "linux")]
mod system {
    #![allow(
        unsafe_code,
        reason = "the standard library can't ask for a signal at a parent's death"
    )]

    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::End;

    pub(super) fn ask_to_end(child: &Child) {
        // SAFETY: it takes numbers only. The process has not been waited for, so the number is still its own.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    }

    pub(super) fn end_with_parent(command: &mut Command, how: End) {
        let signal = match how {
            End::Kill => libc::SIGKILL,
            End::Ask => libc::SIGTERM,
        };
        let parent = std::process::id();
        let tie = move || {
            // SAFETY: this option takes a signal and no pointer.
            if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } != 0 {
                return Err(io::Error::last_os_error());
            }
            // It may have ended before the call.
            if std::os::unix::process::parent_id() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        };
        // SAFETY: between fork and exec this makes two system calls, allocates nothing and takes no lock.
        unsafe { command.pre_exec(tie) };
    }
}
