//! Our own engine to watch, in a separate process, so that the view outlives it.

use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use brickscope_top::Death;

use crate::family::{self, Lifeline};

/// The most output of the engine that is kept.
const MOST_OUTPUT: usize = 1 << 20;
/// The least that is kept of the end of its errors.
const LAST_BYTES: usize = 64 << 10;
/// The last lines of them that say why an engine died.
const LAST_LINES: usize = 20;
/// How long to wait for the end of the errors of an engine that has ended: who else has its pipe may never close it.
const READ_WITHIN: Duration = Duration::from_millis(300);
/// How long an engine may take to end.
const END_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Engine {
    child: Child,
    /// Closing it ends the engine.
    tied: Option<Lifeline>,
    is_endless: bool,
    complaints: Arc<Mutex<Vec<u8>>>,
    /// Reads them, to their end.
    listener: Option<JoinHandle<()>>,
    report: Option<JoinHandle<Vec<u8>>>,
}

impl Engine {
    /// Runs `brickscope profile` with these arguments; it begins when somebody watches.
    pub(crate) fn start(args: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let args: Vec<OsString> = args.into_iter().collect();
        let is_endless = args.iter().any(|word| word == "--endless");
        let program = std::env::current_exe().context("this program's file")?;
        let mut command = Command::new(program);
        command.arg("profile").args(args).args(["--live", "--await-watcher"]);
        let tied = family::tie(&mut command)?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("can't start the engine")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // From here on, an error ends it.
        let complaints = Arc::default();
        let kept = Arc::clone(&complaints);
        let tied = Some(tied);
        let mut engine = Self { child, tied, is_endless, complaints, listener: None, report: None };
        if let Some(stderr) = stderr {
            engine.listener =
                Some(family::spawn("engine-errors", move || keep_end(stderr, &kept))?);
        }
        if let Some(stdout) = stdout {
            engine.report = Some(family::spawn("engine-report", move || {
                let kept = Mutex::default();
                keep(stdout, &kept);
                kept.into_inner().unwrap_or_else(PoisonError::into_inner)
            })?);
        }
        Ok(engine)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the engine ended, if it has, with the last lines of its errors.
    pub(crate) fn ended(&mut self) -> Option<Death> {
        let status = self.child.try_wait().ok()??;
        // What it wrote last may still be in the pipe.
        let until = Instant::now() + READ_WITHIN;
        while self.listener.as_ref().is_some_and(|listener| !listener.is_finished())
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(5));
        }
        let said = self.complaints.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let said = String::from_utf8_lossy(&said);
        let lines = said.lines().map(str::trim_end).filter(|line| !line.is_empty());
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.drain(..lines.len().saturating_sub(LAST_LINES));
        Some(Death { how: Some(status.to_string()), said: Some(lines) })
    }

    /// The same in one line.
    fn ended_in_words(&mut self) -> Option<String> {
        self.ended()?.line()
    }

    /// Waits until the engine has ended by itself.
    ///
    /// # Errors
    ///
    /// If the engine failed, with its message.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.child.wait().context("the engine")?;
        if !status.success() {
            bail!("the engine: {}", self.ended_in_words().unwrap_or_default());
        }
        Ok(())
    }

    /// Ends the engine if it still runs. Returns its output, and how it failed if it did so by itself.
    pub(crate) fn end(mut self) -> (Vec<u8>, Option<String>) {
        // A run that is to be written may just be at its end.
        if self.is_endless {
            self.tied = None;
        }
        let until = Instant::now() + END_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let has_failed = matches!(self.child.try_wait(), Ok(Some(status)) if !status.success());
        let failure = has_failed.then(|| self.ended_in_words()).flatten();
        let _ = self.child.kill();
        let _ = self.child.wait();
        let report = self.report.take().and_then(|report| report.join().ok());
        (report.unwrap_or_default(), failure)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It would go on unwatched.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps output up to a limit, but reads all of it, so that the engine never blocks.
fn keep(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MOST_OUTPUT {
            kept.extend_from_slice(&buffer[..n]);
        }
    }
}

/// The same, but keeps the end of it.
fn keep_end(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= 2 * LAST_BYTES {
            let surplus = kept.len() - LAST_BYTES;
            kept.drain(..surplus);
        }
        kept.extend_from_slice(&buffer[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_errors_the_end_is_kept_and_of_a_report_the_beginning() {
        let mut said = vec![b'x'; 3 * MOST_OUTPUT];
        said[..5].copy_from_slice(b"first");
        said.extend_from_slice(b"last");
        let (errors, report) = (Mutex::default(), Mutex::default());
        keep_end(&said[..], &errors);
        keep(&said[..], &report);
        let [errors, report] =
            [errors, report].map(|kept: Mutex<Vec<u8>>| kept.into_inner().expect("kept"));
        assert!(errors.ends_with(b"last"));
        assert!((LAST_BYTES..=2 * LAST_BYTES + 4096).contains(&errors.len()), "{}", errors.len());
        assert!(report.starts_with(b"first") && report.len() < MOST_OUTPUT + 4096);
    }
}
