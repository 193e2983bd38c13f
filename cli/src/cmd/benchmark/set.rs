//! `brickscope benchmark --processes`: the same benchmark in several processes of this program, one
//! after the other.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use brickscope_analysis::receipt::{Receipt, sha256_hex};
use brickscope_engine::Model;

use super::BenchmarkArgs;
use crate::benchmark::receipt;
use crate::benchmark::rows::{Answer, Measurement};
use crate::runs::{self, RunDir, profile_in, receipt_in};
use crate::{device, family, interrupt, source, text};

/// With --resume, the processes of a set that was cut short, from the first on: they are kept.
///
/// # Errors
///
/// If one of them measured something else than what is asked for now.
pub(crate) fn finished(args: &BenchmarkArgs, model: &Model) -> Result<Vec<Measurement>> {
    let mut finished = Vec::new();
    let Some(folder) = args.out.as_deref().filter(|_| args.resume) else { return Ok(finished) };
    for process in 1..=args.processes {
        let out = folder.join(process.to_string());
        let has_profile = args.no_profiler || profile_in(&out).is_file();
        if !has_profile || !receipt_in(&out).is_file() {
            break;
        }
        finished.push(measurement(out)?);
    }
    let Some(set) = finished.first().map(|first| first.receipt.run.set.clone()) else {
        return Ok(finished);
    };
    let (words, binary) = (text::kept(arguments(args)), receipt::binary());
    let sha256 = receipt::model(model)?.sha256;
    // By default they are as many as CPUs, or as a file says.
    let threads = source::threads(&args.executor);
    let on_cpu = device::asked(&args.executor).is_none();
    for (nth, Measurement { receipt, folder, .. }) in (1..).zip(&finished) {
        let run = &receipt.run;
        let other = match () {
            () if set.is_none() || run.set != set || run.process != nth => "of another set",
            () if run.command.get(1..=words.len()) != Some(&words[..]) => "with other flags",
            () if receipt.model.sha256 != sha256 => "of another model",
            () if on_cpu && run.threads as usize != threads.get() => "on other threads",
            () if receipt.binary != binary => "by another build of brickscope",
            () => continue,
        };
        bail!(
            "--resume: {} was measured {other}: measure the set anew, with --overwrite",
            folder.display()
        );
    }
    Ok(finished)
}

/// Runs the processes of a set that `measurements` don't have yet, each with its own folder in `dir`: `1`, `2`, … Adds their
/// results, and stops at one that fails or is interrupted. Calls `show` with the number of each process before it runs.
pub(crate) fn run(
    args: &BenchmarkArgs,
    dir: &RunDir,
    show: &mut dyn FnMut(u32),
    measurements: &mut Vec<Measurement>,
) -> Result<()> {
    let folder = dir.path();
    let program = std::env::current_exe().context("the path of this program")?;
    let last = measurements.last().map(|last| &last.receipt.run);
    let set = last.and_then(|run| run.set.clone()).unwrap_or_else(|| name(folder));
    let first = last.map_or(1, |run| run.process + 1);
    for process in first..=args.processes {
        show(process);
        let out = folder.join(process.to_string());
        let mut command = Command::new(&program);
        command.args(arguments(args)).arg("--out").arg(&out);
        // What a killed process left is no whole run.
        command.args((args.overwrite || args.resume).then_some("--overwrite"));
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
        measurements.push(measurement(out)?);
        if process < args.processes && interrupt::is_asked() {
            break;
        }
    }
    Ok(())
}

/// What a process measured.
fn measurement(folder: PathBuf) -> Result<Measurement> {
    let receipt = Receipt::load(&receipt_in(&folder))?;
    // Without the profiler there is none.
    let answer = runs::load(&folder).ok().map(|profile| Answer::of(&profile));
    Ok(Measurement { receipt, folder, answer, choosing: Vec::new() })
}

/// The arguments of one process: those of this one, except the model, the folder and what becomes of what is there.
fn arguments(args: &BenchmarkArgs) -> Vec<OsString> {
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
    words.extend(args.no_profiler.then(|| "--no-profiler".into()));
    words
}

/// A name that no other set has, made of the folder, this process and the time.
fn name(folder: &Path) -> String {
    let folder: PathBuf = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let of = format!("{} {} {now}", folder.display(), std::process::id());
    sha256_hex(of.as_bytes())[..16].to_owned()
}
