//! The processes of this program that this program starts: they end when it ends, however it ends.
//!
//! Each has a pipe from its parent as standard input. When the parent ends, the system closes the pipe,
//! and the child ends. A byte through it asks the child to stop and to report what it has; the parent's
//! handler of signals writes it.

use std::io::{self, PipeWriter, Read};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};

use crate::interrupt;

/// Tells a child that standard input is its lifeline.
const VARIABLE: &str = "BRICKSCOPE_LIFELINE";

/// Holds a child: it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Lifeline {
    to_child: PipeWriter,
    /// The handlers that write to it.
    passing_on: Vec<SigId>,
}

/// Ties the process that `command` will start to this one. A signal that asks this process to stop asks
/// the child as well.
pub(crate) fn tie(command: &mut Command) -> Result<Lifeline> {
    let mut tied = || -> io::Result<Lifeline> {
        let (from_parent, to_child) = io::pipe()?;
        command.stdin(from_parent).env(VARIABLE, "stdin");
        let mut line = Lifeline { to_child, passing_on: Vec::new() };
        // Without a handler of its own, a signal ends this process, and with it the child.
        for signal in interrupt::SIGNALS.into_iter().filter(|_| interrupt::is_watching()) {
            let to_child = line.to_child.try_clone()?;
            line.passing_on.push(pipe::register(signal, to_child)?);
        }
        Ok(line)
    };
    tied().context("can't make a pipe to a child")
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.passing_on.drain(..).for_each(|id| {
            unregister(id);
        });
    }
}

/// Makes a foreign command not take its standard input for a lifeline.
pub(crate) fn untie(command: &mut Command) {
    command.env_remove(VARIABLE);
}

/// What to do before this process ends because its parent did.
type Farewell = Box<dyn FnOnce() + Send>;

static FAREWELL: Mutex<Option<Farewell>> = Mutex::new(None);

/// Ends this process with its parent, if it was [tied](tie).
pub(crate) fn watch_parent() -> Result<()> {
    match std::env::var_os(VARIABLE) {
        Some(_) => watch(),
        None => Ok(()),
    }
}

/// Ends this process when its standard input ends, after `farewell`.
pub(crate) fn end_with_input(farewell: impl FnOnce() + Send + 'static) -> Result<()> {
    *FAREWELL.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(farewell));
    watch()
}

fn watch() -> Result<()> {
    static WATCHED: OnceLock<()> = OnceLock::new();
    if WATCHED.set(()).is_err() {
        return Ok(());
    }
    let is_tied = std::env::var_os(VARIABLE).is_some();
    spawn("brickscope-line", move || {
        let mut line = io::stdin().lock();
        loop {
            match line.read(&mut [0]) {
                Ok(1..) if is_tied => interrupt::ask(),
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        let farewell = FAREWELL.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(farewell) = farewell {
            farewell();
        }
        std::process::exit(0);
    })
    .map(drop)
}

/// Starts a thread. A system that has no room for one more is an error, and no panic.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<thread::JoinHandle<T>> {
    spawn_by(thread::Builder::new().name(name.to_owned()), work)
}

fn spawn_by<T: Send + 'static>(
    builder: thread::Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<thread::JoinHandle<T>> {
    builder.spawn(work).context("can't start a thread")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_can_not_start_is_an_error() {
        // As if the system had no room: no address space is that large.
        let huge = thread::Builder::new().stack_size(usize::MAX / 4);
        let error = spawn_by(huge, || ()).map(drop).expect_err("there is no room");
        assert!(format!("{error:#}").starts_with("can't start a thread: "), "{error:#}");
        spawn("works", || ()).expect("a thread").join().expect("it ends");
    }
}
