//! `brickscope top`: a running engine, live.

use std::io::{Write, stdout};
use std::path::Path;

use anyhow::{Context, Result, bail};
use brickscope_live::socket::LiveError;

use crate::args::TopArgs;
use crate::top::draw;
use crate::top::engine::Engine;
use crate::top::numbers::Explained;
use crate::top::session::{self, Once, Source, Target};

/// As wide as a terminal is at least.
const COLUMNS: usize = 80;

pub(crate) fn run(args: &TopArgs) -> Result<()> {
    let attached = args.attach.as_deref().map(attach).transpose()?;
    if !args.once {
        session::needs_terminal()?;
    }
    let source = match attached {
        Some(source) => source,
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

/// Who is to be watched: a process by its number, or a socket. What can't be watched is said now, while there is
/// no view in the way.
fn attach(what: &str) -> Result<Source> {
    let target = match what.parse::<u32>() {
        Ok(pid) => Target::Process(pid),
        Err(_) => {
            let path = Path::new(what);
            if !path.exists() {
                bail!("--attach {what}: neither the number of a process nor a socket");
            }
            Target::Socket(path.to_owned())
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
    let Some(seen) = app.seen() else { bail!("the engine ended before it sent a frame") };
    let text = if args.json {
        serde_json::to_string_pretty(&Explained::of(&app.numbers(&seen))?)? + "\n"
    } else {
        draw::text(&app, COLUMNS)
    };
    // A run of so many tokens is still to be written.
    if let Some(engine) = engine {
        if args.tokens.is_some() { engine.finish()? } else { drop(engine.end()) }
    }
    stdout().lock().write_all(text.as_bytes()).context("standard output")
}
