//! The `brickscope` command. This page is its table of contents.

mod args;
mod benchmark;
mod ceilings_cache;
#[cfg(test)]
mod chromium;
mod cmd;
mod device;
#[cfg(test)]
mod docs;
mod doctor;
mod figures;
mod flags;
mod flame;
mod live;
mod metrics;
#[cfg(feature = "parquet")]
mod parquet;
mod progress;
mod report;
mod run_dir;
mod sides;
mod source;
mod text;
mod top;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

fn main() -> ExitCode {
    let args = parse();
    match &args.command {
        // Separate from the others, to keep the stack small while the model runs: samplers copy only a few
        // kilobytes of it.
        Command::Profile(args) if !args.check_overhead && !args.compare_backends => {
            ended(sampled(|| cmd::profile::run(args)), 1)
        }
        others => run(others),
    }
}

#[inline(never)]
fn parse() -> Box<Args> {
    Box::new(Args::parse())
}

#[inline(never)]
fn run(command: &Command) -> ExitCode {
    // As with `diff`, 1 means a difference, so errors are 2.
    let code =
        |result: anyhow::Result<ExitCode>| result.unwrap_or_else(|error| ended(Err(error), 2));
    let yes_or_no = |result: anyhow::Result<bool>| {
        code(result.map(|yes| if yes { ExitCode::SUCCESS } else { ExitCode::from(1) }))
    };
    let result = match command {
        Command::Compare(args) => return code(cmd::compare::run(args)),
        Command::Gate(args) => return code(cmd::gate::run(args)),
        Command::Flamegraph(args) if args.diff.is_some() => {
            return code(cmd::flamegraph::run(args));
        }
        Command::Diverge(args) => return yes_or_no(cmd::diverge::run(args).map(|found| !found)),
        Command::VerifyReceipt(args) => return yes_or_no(cmd::verify_receipt::run(args)),
        Command::Selftest(args) => return yes_or_no(cmd::selftest::run(args)),
        Command::Profile(args) if args.compare_backends => cmd::compare_backends::run(args),
        Command::Profile(args) => cmd::check_overhead::run(args),
        Command::Benchmark(args) => cmd::benchmark::run(args),
        Command::Show(args) => cmd::show::run(args),
        Command::Top(args) => cmd::top::run(args),
        Command::Export(args) => cmd::export::run(args),
        Command::Import(args) => cmd::import::run(args),
        Command::Report(args) => cmd::report::run(args),
        Command::Logits(args) => cmd::logits::run(args),
        Command::Receipt(args) => cmd::receipt::run(args),
        Command::Tokenize(args) => cmd::tokenize::run(args),
        Command::Synth(args) => cmd::synth::run(args),
        Command::Doctor(args) => cmd::doctor::run(args),
        Command::Machine(args) => cmd::machine::run(args),
        Command::History(args) => cmd::history::run(args),
        Command::Flamegraph(args) => cmd::flamegraph::run(args).map(drop),
    };
    ended(result, 1)
}

/// Prints the error of a finished command, if any, and returns its exit code. `trouble` is the code for
/// an error.
fn ended(result: anyhow::Result<()>, trouble: u8) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The error may quote names of untrusted files, which may contain escape sequences.
            let text = format!("{error:#}");
            let lines: Vec<String> = text.lines().map(brickscope::view::printable).collect();
            eprintln!("brickscope: {}", lines.join("\n"));
            ExitCode::from(trouble)
        }
    }
}

/// Runs the command while sampling it, if the parent process asked for that.
fn sampled(run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let asked = flame::timer::Asked::start()?;
    run()?;
    asked.map_or(Ok(()), flame::timer::Asked::finish)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
