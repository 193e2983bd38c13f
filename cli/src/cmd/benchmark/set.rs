//! `brickscope benchmark --processes`: the same benchmark in several processes of this program, one
//! after the other.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use brickscope_analysis::receipt::{Receipt, sha256_hex};

use super::BenchmarkArgs;
use crate::benchmark::rows::{Answer, Measurement};
use crate::runs::{self, RunDir, receipt_in};
use crate::{family, interrupt};

/// Runs the processes of a set, each with its own folder in `dir`: `1`, `2`, … Adds their results to
/// `measurements`, and stops at one that fails or is interrupted. Calls `show` with the number of each process before it runs.
pub(crate) fn run(
    args: &BenchmarkArgs,
    dir: &RunDir,
    show: &mut dyn FnMut(u32),
    measurements: &mut Vec<Measurement>,
) -> Result<()> {
    let folder = dir.path();
    let program = std::env::current_exe().context("the path of this program")?;
    let set = name(folder);
    for process in 1..=args.processes {
        show(process);
        let out = folder.join(process.to_string());
        let mut command = Command::new(&program);
        command.args(arguments(args, &out));
        command.args(["--process", &process.to_string(), "--set", &set]);
        if let Some(model) = &args.model {
            command.arg("--").arg(model);
        }
        command.stdout(Stdio::null());
        let _tied = family::tie(&mut command)?;
        let status = command.status().with_context(|| program.display().to_string())?;
        if interrupt::was_child(status) {
            break;
        }
        if !status.success() {
            bail!("process {process} of {} failed: {status}", args.processes);
        }
        if process == 1 {
            // Only now is there a new run that replaces what was here.
            dir.leave_the_first_process()?;
        }
        let receipt = Receipt::load(&receipt_in(&out))?;
        // Without the profiler there is none.
        let answer = runs::load(&out).ok().map(|profile| Answer::of(&profile));
        measurements.push(Measurement { receipt, folder: out, answer, choosing: Vec::new() });
        if process < args.processes && interrupt::is_asked() {
            break;
        }
    }
    Ok(())
}

/// The arguments of one process: those of this one, except the model and the folder.
fn arguments(args: &BenchmarkArgs, out: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["benchmark".into()];
    let depths: Vec<String> = args.depth.iter().map(usize::to_string).collect();
    for (flag, value) in [
        ("--prompt-tokens", args.prompt_tokens.to_string()),
        ("--tokens", args.tokens.to_string()),
        ("--depth", depths.join(",")),
        ("--repetitions", args.repetitions.to_string()),
        ("--seed", args.seed.to_string()),
        ("--processes", args.processes.to_string()),
    ] {
        words.extend([flag.into(), value.into()]);
    }
    words.extend(args.executor.words().into_iter().map(Into::into));
    for (flag, is_set) in [("--no-profiler", args.no_profiler), ("--overwrite", args.overwrite)] {
        words.extend(is_set.then(|| flag.into()));
    }
    words.extend(["--out".into(), out.into()]);
    words
}

/// A name that no other set has, made of the folder, this process and the time.
fn name(folder: &Path) -> String {
    let folder: PathBuf = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let of = format!("{} {} {now}", folder.display(), std::process::id());
    sha256_hex(of.as_bytes())[..16].to_owned()
}
