//! The `brickscope` command. This page is its table of contents.

mod args;
mod benchmark;
mod cmd;
#[cfg(test)]
mod docs;
mod doctor;
#[allow(dead_code, unused)]
mod flame;
mod kept;
mod progress;
mod run_dir;
mod sides;
mod source;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    // As with `diff`: 1 says that there is a difference, so trouble is 2.
    let is_question = matches!(&args.command, Command::Flamegraph(args) if args.diff.is_some())
        || matches!(
            args.command,
            Command::Diverge(_)
                | Command::VerifyReceipt(_)
                | Command::Compare(_)
                | Command::Gate(_)
        );
    let trouble = if is_question { 2 } else { 1 };
    let result = match args.command {
        Command::Profile(args) if args.check_overhead => cmd::check_overhead::run(&args),
        Command::Profile(args) => sampled(|| cmd::profile::run(&args)),
        Command::Benchmark(args) => cmd::benchmark::run(&args),
        Command::Compare(args) => match cmd::compare::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Gate(args) => match cmd::gate::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Show(args) => cmd::show::run(&args),
        Command::Logits(args) => cmd::logits::run(&args),
        Command::Diverge(args) => match cmd::diverge::run(&args) {
            Ok(true) => return ExitCode::from(1),
            result => result.map(drop),
        },
        Command::VerifyReceipt(args) => match cmd::verify_receipt::run(&args) {
            Ok(false) => return ExitCode::from(1),
            result => result.map(drop),
        },
        Command::Receipt(args) => cmd::receipt::run(&args),
        Command::Tokenize(args) => cmd::tokenize::run(&args),
        Command::Synth(args) => cmd::synth::run(&args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Machine(args) => cmd::machine::run(&args),
        Command::History(args) => cmd::history::run(&args),
        Command::Flamegraph(args) => match cmd::flamegraph::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has gone, as `head` does: nobody is left to tell.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("brickscope: {error:#}");
            ExitCode::from(trouble)
        }
    }
}

/// Runs the command with samples being taken, if whoever started it asked for that.
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
