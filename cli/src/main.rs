//! The `brickscope` command. This page is its map and its table of contents.
//!
//! ```text
//! main ──► args: the list of commands
//!   └────► cmd/: a file or folder for each command, with its help and its output
//!            ├──► the rooms of large commands: benchmark, bisect, doctor, flame, recording, top
//!            └──► shared by commands: runs, flags and the files below
//! ```
//!
//! | where | what |
//! |---|---|
//! | `args` | the list of commands; each command's arguments are in its `cmd/` file |
//! | `cmd/` | the commands, which import none of each other |
//! | `flags/` | flags that several commands share, and the parsers of their values; `profile.rs` those that make a run |
//! | `runs/` | runs in folders, beside `brickscope-runs`: `named.rs` which one a word names, `finish.rs` how one ends, `again.rs` making one again, `command.rs` command lines that are measured, `sides.rs` those on each side of a comparison, `lake.rs` and `otlp.rs` where they go |
//! | `measure` | how much of a run is kept; ceilings for a run that was made before |
//! | `comparison` | two sides compared: printed, with an exit code |
//! | `benchmark/` | measuring repeatedly: plan, warm-up, samples, receipt, tables, warnings |
//! | `bisect/` | finding a slow commit or version: git, builds in worktrees, what is fetched, measurements, the file to go on from |
//! | `doctor/` | one probe per capability of the machine |
//! | `recording/` | what `run` does around a recording of another program; `llama/` writes and reads it |
//! | `flame/` | flamegraphs: recording and joining samples, drawing, diffs, history |
//! | `top/` | the loop of the live view: frames, keys, the terminal |
//! | `source`, `device` | opening models, and running them on the CPU or on a device |
//! | `live`, `metrics` | what others can watch while a model runs |
//! | `cache`, `machine_name` | the cache folder; what names this machine and the engine's commit |
//! | `ceilings_cache` | measured ceilings, stored for the next run |
//! | `output` | the exits: all that is printed passes them, so that nothing controls a terminal |
//! | `summary` | the first screen of a run, as wide and high as the terminal |
//! | `interrupt`, `family`, `child` | Ctrl-C and SIGTERM; child processes and threads; commands that end with us |
//! | `figures`, `text`, `progress` | formatting numbers, text and progress bars |
//! | `docs`, `advice` | tests: the documentation's commands; flags that printed sentences name |
//!
//! Imports go one way: a room never imports `cmd` or `args`, and no two modules import each other. What a
//! room needs from the command line it takes as plain values. The command prints and handles errors;
//! analysing runs and rendering most views is the library's part.

// `output` has what prints: these would panic if nobody reads the output any more.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

// Its macro is for the modules below.
#[macro_use]
mod output;

#[cfg(all(test, feature = "full"))]
mod advice;
mod args;
mod benchmark;
mod bisect;
mod cache;
mod ceilings_cache;
mod child;
mod cmd;
mod comparison;
mod device;
#[cfg(test)]
mod docs;
mod doctor;
mod family;
mod figures;
mod flags;
mod flame;
mod in_turns;
mod interrupt;
mod live;
mod machine_name;
mod measure;
mod metrics;
mod progress;
mod recording;
mod runs;
mod source;
mod summary;
mod text;
#[cfg(feature = "top")]
mod top;

use std::process::ExitCode;

// For the modules below, as if it were one of them.
use brickscope_runs::private;
use brickscope_runs::settings::Settings;
use clap::CommandFactory;

use crate::args::{Args, Command};
use crate::flags::profile::ProfileArgs;

fn main() -> ExitCode {
    interrupt::take_full_files();
    let args = parse();
    if let Err(error) = family::watch_parent() {
        return ended(Err(error), 1);
    }
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
    let broken = Settings::find().map(Settings::keep).err();
    let args = Args::read(std::env::args_os());
    // Help says how the flags are called, also beside settings that can't be read.
    let is_asked_for_help = args.as_ref().is_err_and(|error| !error.use_stderr());
    if let Some(error) = broken.filter(|_| !is_asked_for_help) {
        output::write_error(&error);
        std::process::exit(2);
    }
    let args = Box::new(args.unwrap_or_else(|error| {
        let is_plain = |word: std::ffi::OsString| {
            !word.to_string_lossy().contains(brickscope_analysis::view::is_unprintable)
        };
        if error.use_stderr() && !std::env::args_os().all(is_plain) {
            // It quotes a word, which may be the name of a file; so without its colours.
            tell!("{}", error.render());
            std::process::exit(error.exit_code());
        }
        error.exit()
    }));
    output::set_colour(args.color);
    args
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
        Command::Versus(args) => return code(cmd::versus::run(args)),
        Command::Gate(args) => return code(cmd::gate::run(args)),
        Command::Flamegraph(args) if args.diff.is_some() => {
            return code(cmd::flamegraph::run(args));
        }
        Command::Diverge(args) => return yes_or_no(cmd::diverge::run(args).map(|found| !found)),
        Command::Try(args) => return code(cmd::trial::run(args, &of_profile)),
        Command::Run(args) => {
            return cmd::run::run(args).unwrap_or_else(|error| ended(Err(error), 1));
        }
        Command::Bisect(args) => {
            return cmd::bisect::run(args).unwrap_or_else(|error| ended(Err(error), 1));
        }
        Command::Explain(args) => {
            return cmd::explain::run(args).unwrap_or_else(|error| ended(Err(error), 1));
        }
        Command::VerifyReceipt(args) => return code(cmd::verify_receipt::run(args)),
        Command::Selftest(args) => return yes_or_no(cmd::selftest::run(args)),
        Command::Profile(args) if args.compare_backends => {
            cmd::profile::compare_backends::run(args)
        }
        Command::Profile(args) => cmd::profile::check_overhead::run(args),
        Command::Benchmark(args) => cmd::benchmark::run(args),
        Command::Ls(args) => cmd::ls::run(args),
        Command::Tag(args) => cmd::tag::run(args),
        Command::Rm(args) => cmd::rm::run(args),
        Command::Gc(args) => cmd::gc::run(args),
        Command::Show(args) => cmd::show::run(args),
        Command::Findings(args) => cmd::findings::run(args),
        Command::Requests(args) => cmd::requests::run(args),
        Command::Load(args) => cmd::load::run(args),
        Command::Collect(args) => cmd::collect::run(args),
        Command::Lake(args) => cmd::lake::run(args),
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
        Command::Completions(args) => cmd::completions::run(args, Args::command()),
        Command::Man(args) => cmd::man::run(args, Args::command()),
    };
    ended(result, 1)
}

/// The flags of a command line of `profile`; `None` if it is one of another command.
fn of_profile(words: &[String]) -> anyhow::Result<Option<ProfileArgs>> {
    Ok(match Args::read(words)?.command {
        Command::Profile(args) => Some(args),
        _ => None,
    })
}

/// Prints the error of a finished command, if any, and returns its exit code. `trouble` is the code for
/// an error.
fn ended(result: anyhow::Result<()>, trouble: u8) -> ExitCode {
    match result {
        Ok(()) => interrupt::exit_code().map_or(ExitCode::SUCCESS, ExitCode::from),
        Err(error) if error.is::<interrupt::Nothing>() => {
            ExitCode::from(interrupt::exit_code().unwrap_or(trouble))
        }
        Err(error) => {
            output::write_error(&error);
            ExitCode::from(trouble)
        }
    }
}

/// Runs the command while sampling it, if the parent process asked for that.
#[cfg(feature = "flamegraph")]
fn sampled(run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let asked = flame::timer::Asked::start()?;
    let ran = run();
    // The samples of a run that couldn't be written are still samples.
    let finished = asked.map_or(Ok(()), flame::timer::Asked::finish);
    ran.and(finished)
}

#[cfg(not(feature = "flamegraph"))]
fn sampled(run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    run()
}
