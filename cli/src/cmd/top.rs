//! `brickscope top`: a running engine, live.

use std::io::{Write, stdout};
use std::path::Path;

use anyhow::{Context, Result, bail};
use brickscope_live::socket::Watch;

use crate::args::TopArgs;
use crate::top::engine::Engine;
use crate::top::session::{self, Once, Source};

pub(crate) fn run(args: &TopArgs) -> Result<()> {
    let watch = args.attach.as_deref().map(attach).transpose()?;
    if !args.once {
        session::needs_terminal()?;
    }
    let source = match watch {
        Some(watch) => Source::Watch(Box::new(watch)),
        None => Source::Engine(Engine::start(args)?),
    };
    if args.once {
        return once(source, args);
    }
    let engine = session::run(source, args.rate)?;
    let report = engine.map(Engine::end).unwrap_or_default();
    if args.tokens.is_some() && report.is_empty() {
        eprintln!("note: the run was ended early, and nothing of it is written");
    }
    // What the run printed, now that there is room for it.
    stdout().lock().write_all(&report).context("standard output")
}

/// Who is to be watched: a process by its number, or a socket.
fn attach(what: &str) -> Result<Watch> {
    match what.parse::<u32>() {
        Ok(pid) => Ok(Watch::process(pid)?),
        Err(_) => {
            let path = Path::new(what);
            if !path.exists() {
                bail!("--attach {what}: neither the number of a process nor a socket");
            }
            Ok(Watch::socket(path)?)
        }
    }
}

fn once(source: Source, args: &TopArgs) -> Result<()> {
    let Once { app, engine } = session::once(source, args.rate, args.tokens.is_some())?;
    let Some(seen) = app.seen() else { bail!("the engine ended before it sent a frame") };
    let text = if args.json {
        serde_json::to_string_pretty(&app.numbers(&seen))? + "\n"
    } else {
        session::text(&app, 80, 24)?
    };
    // A run of so many tokens is still to be written.
    if let Some(engine) = engine {
        if args.tokens.is_some() { engine.finish()? } else { drop(engine.end()) }
    }
    stdout().lock().write_all(text.as_bytes()).context("standard output")
}
