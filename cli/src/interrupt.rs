//! Ctrl-C and SIGTERM.
//!
//! What was measured so far is worth reporting, so the first signal only asks to stop: after the pass or
//! the sample that runs. The second one ends the process at once, and so does the first while there is
//! nothing to report yet.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;

/// The signals that ask to stop.
pub(crate) const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// What a shell adds to the number of the signal that ended a process.
const BY_SIGNAL: i32 = 128;

struct State {
    /// Whether a signal ends the process at once.
    at_once: Arc<AtomicBool>,
    /// The signal that asked to stop; 0 for none.
    asked: Arc<AtomicUsize>,
    /// Whether something was cut short because of it.
    heeded: AtomicBool,
    is_watching: AtomicBool,
}

static STATE: LazyLock<State> = LazyLock::new(|| State {
    at_once: Arc::new(AtomicBool::new(true)),
    asked: Arc::default(),
    heeded: AtomicBool::new(false),
    is_watching: AtomicBool::new(false),
});

/// Makes a file that may not grow (`ulimit -f`) an error of writing, as a full disk is, instead of the end of this process.
/// Programs that this one starts have the system's way again.
pub(crate) fn take_full_files() {
    // Whoever ignores it has that already, and so have the programs that are started. Without either, the system's way it is.
    if !is_ignored(SIGXFSZ) {
        let _ = flag::register(SIGXFSZ, Arc::default());
    }
}

/// Begins to take signals. Until [`keep`] they end the process at once.
pub(crate) fn watch() -> Result<()> {
    STATE.is_watching.store(true, Ordering::Release);
    for signal in SIGNALS {
        let (at_once, asked) = (Arc::clone(&STATE.at_once), Arc::clone(&STATE.asked));
        // In this order: a signal ends the process if an earlier one, or nobody yet, has set the flag.
        flag::register_conditional_shutdown(signal, BY_SIGNAL + signal, Arc::clone(&at_once))
            .and_then(|_| flag::register_usize(signal, asked, signal as usize))
            .and_then(|_| flag::register(signal, at_once))
            .context("can't take signals")?;
    }
    Ok(())
}

/// Leaves Ctrl-C to a program that this process waits for, in the same terminal. Returns what is set by signals that this
/// process alone gets, which are to pass on: SIGTERM, and without a terminal SIGINT, as of a script that ends a server. So is
/// the end of the terminal, unless this process was started to outlive it, as by `nohup`.
pub(crate) fn leave_to_child() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    let has_terminal = std::fs::File::open("/dev/tty").is_ok();
    let of_ctrl_c = if has_terminal { Arc::default() } else { Arc::clone(&asked) };
    let hangup = (!is_ignored(SIGHUP)).then(|| (SIGHUP, Arc::clone(&asked)));
    let others = [(SIGINT, of_ctrl_c), (SIGQUIT, Arc::default()), (SIGTERM, Arc::clone(&asked))];
    for (signal, flag) in others.into_iter().chain(hangup) {
        flag::register(signal, flag).context("can't take signals")?;
    }
    Ok(asked)
}

/// Returns what SIGUSR1 sets, by which this process is asked for what it has so far; it is none of the program's, which has
/// the system's way again. `None` if whoever started this process made it ignore that: so does the program then.
pub(crate) fn take_requests() -> Result<Option<Arc<AtomicBool>>> {
    if is_ignored(SIGUSR1) {
        return Ok(None);
    }
    let asked = Arc::new(AtomicBool::new(false));
    flag::register(SIGUSR1, Arc::clone(&asked)).context("can't take signals")?;
    Ok(Some(asked))
}

/// Whether whoever started this process made it ignore a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Whether this process takes signals: else they end it.
pub(crate) fn is_watching() -> bool {
    STATE.is_watching.load(Ordering::Acquire)
}

/// From now on there is something to report: the next signal only asks to stop.
pub(crate) fn keep() {
    if STATE.asked.load(Ordering::Acquire) == 0 {
        STATE.at_once.store(false, Ordering::Release);
    }
}

/// Asks to stop, as a signal does. Asking again changes nothing.
pub(crate) fn ask() {
    if STATE.at_once.load(Ordering::Acquire) && STATE.asked.load(Ordering::Acquire) == 0 {
        std::process::exit(BY_SIGNAL + SIGTERM);
    }
    let signal = SIGTERM as usize;
    if STATE.asked.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        // A signal after that is the second one.
        STATE.at_once.store(true, Ordering::Release);
    }
}

/// Whether to stop now. Who asks must heed the answer.
pub(crate) fn is_asked() -> bool {
    let asked = STATE.asked.load(Ordering::Acquire) != 0;
    if asked {
        STATE.heeded.store(true, Ordering::Release);
    }
    asked
}

/// Whether a signal asked to stop, for what cuts nothing short.
#[cfg(feature = "otlp")]
pub(crate) fn was_asked() -> bool {
    STATE.asked.load(Ordering::Acquire) != 0
}

/// Whether something was cut short.
pub(crate) fn was_heeded() -> bool {
    STATE.heeded.load(Ordering::Acquire)
}

/// The exit code of a command that was cut short and has reported what there was: 130 after SIGINT, 143
/// after SIGTERM, as if the signal had ended it.
pub(crate) fn exit_code() -> Option<u8> {
    was_heeded().then(|| (BY_SIGNAL + STATE.asked.load(Ordering::Acquire) as i32) as u8)
}

/// Whether a signal cut a child short, which may have ended at once or after a report. Then so is this process.
pub(crate) fn was_child(status: ExitStatus) -> bool {
    let is_of = |signal: &i32| {
        status.code() == Some(BY_SIGNAL + signal) || status.signal() == Some(*signal)
    };
    let signal = SIGNALS.into_iter().find(is_of);
    if let Some(signal) = signal {
        let asked = &STATE.asked;
        let _ = asked.compare_exchange(0, signal as usize, Ordering::AcqRel, Ordering::Acquire);
        STATE.heeded.store(true, Ordering::Release);
    }
    signal.is_some()
}

/// The end of a command that a signal stopped before there was anything to report: no error to print.
#[derive(Debug)]
pub(crate) struct Nothing;

impl std::fmt::Display for Nothing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted before anything was measured")
    }
}

impl std::error::Error for Nothing {}
