//! Running `brickscope top`, in builds that have the view (feature `top`).

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Result, bail};
use brickscope_live::socket::LiveError;
use brickscope_top::{State, text};

use super::TopArgs;
use crate::output;
use crate::source;
use crate::top::engine::Engine;
use crate::top::session::{self, Once, Source, Target};

/// The width of the smallest terminal.
const COLUMNS: usize = 80;

pub(crate) fn run(args: &TopArgs) -> Result<()> {
    let attached = args.attach.as_deref().map(attach).transpose()?;
    args.model.as_deref().map(source::refuse_run).transpose()?;
    if !args.once {
        session::needs_terminal()?;
    }
    let source = match attached {
        Some(source) => source,
        None => Source::Engine(Engine::start(profile_args(args))?),
    };
    if args.once {
        return once(source, args);
    }
    let engine = session::run(source, args.rate)?;
    let (report, failure) = engine.map(Engine::end).unwrap_or_default();
    if args.tokens.is_some() && report.is_empty() && failure.is_none() {
        tell!("note: the run was ended early, and nothing was written");
    }
    // The run's own output, now that the view has left the screen.
    output::print(String::from_utf8_lossy(&report))?;
    // Such as a run that couldn't be written. Without --tokens the view has said so.
    match failure.filter(|_| args.tokens.is_some()) {
        Some(failure) => bail!("the engine: {failure}"),
        None => Ok(()),
    }
}

/// The arguments of the `brickscope profile` that is watched.
fn profile_args(args: &TopArgs) -> Vec<OsString> {
    let mut words: Vec<OsString> = args.model.iter().map(Into::into).collect();
    match args.tokens {
        Some(tokens) => words.extend(["--tokens".into(), tokens.to_string().into()]),
        None => words.push("--endless".into()),
    }
    if let Some(prompt) = &args.prompt {
        words.extend(["--prompt".into(), prompt.into()]);
    }
    if let Some(out) = &args.out {
        words.extend(["--out".into(), out.into()]);
    }
    words.extend(args.executor.words().into_iter().map(Into::into));
    words
}

/// Finds the process to watch, by its id or its socket. Errors are reported now, before the view covers
/// the screen.
fn attach(what: &str) -> Result<Source> {
    let target = match what.parse::<u32>() {
        Ok(pid) => Target::Process(pid),
        Err(_) => {
            let path = Path::new(what);
            match path.metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                    "--attach {what}: neither a process id nor a socket, since there is no such file"
                ),
                // Connecting to it says what else is wrong.
                _ => Target::Socket(path.to_owned()),
            }
        }
    };
    match target.watch(&mut |_| false) {
        Ok(watch) => Ok(Source::Watch(Box::new(watch))),
        Err(LiveError::Starting(_)) => Ok(Source::Starting(target)),
        Err(why) => Err(why.into()),
    }
}

fn once(source: Source, args: &TopArgs) -> Result<()> {
    let Once { app, engine } = session::once(source, args.rate, args.tokens.is_some())?;
    let Some(json) = app.json()? else { bail!("the engine ended before it sent a frame") };
    let text = if args.json { json + "\n" } else { text(&app, COLUMNS) };
    // A run with --tokens still has to be written.
    let ended = match engine {
        Some(engine) if args.tokens.is_some() => engine.finish(),
        Some(engine) => {
            drop(engine.end());
            Ok(())
        }
        None => Ok(()),
    };
    // The figures first: an error at the end of the run must not lose them.
    output::print(text)?;
    match &app.state {
        State::Died(death) => {
            let how = death.line().map(|how| format!(" ({how})")).unwrap_or_default();
            bail!("the engine died{how}: these are its last figures")
        }
        _ => ended,
    }
}
