//! The terminal, and who brings what happens: keys, frames, looks at the process.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use brickscope_live::socket::{LiveError, Next, Watch};
use ratatui::crossterm::event::{self, KeyEventKind};

use super::app::{App, Event, State};
use super::draw;
use super::engine::Engine;
use super::process::Process;
use crate::progress;

/// How long to wait before looking again whether an engine publishes.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// How often to look at the process.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where frames come from.
pub(crate) enum Source {
    /// Somebody who publishes already.
    Watch(Box<Watch>),
    /// Somebody who will.
    Starting(Target),
    /// An engine of our own, which will.
    Engine(Engine),
}

/// Who is to be watched.
pub(crate) enum Target {
    Process(u32),
    Socket(PathBuf),
}

impl Target {
    /// Connects. While the engine starts, `told` hears what it is at, and says whether to wait.
    pub(crate) fn watch(&self, told: &mut dyn FnMut(&str) -> bool) -> Result<Watch, LiveError> {
        match self {
            Self::Process(pid) => Watch::process_telling(*pid, told),
            Self::Socket(path) => Watch::socket_telling(path, told),
        }
    }
}

/// Whether text may have colours: <https://no-color.org>.
pub(crate) fn has_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// # Errors
///
/// If there is no terminal to draw on and to read keys from.
pub(crate) fn needs_terminal() -> Result<()> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!(
            "a live view takes a terminal: `--once` prints one snapshot, `--once --json` its figures"
        );
    }
    Ok(())
}

/// Shows what comes until somebody quits. Returns our own engine, if there is one.
pub(crate) fn run(source: Source, rate: u32) -> Result<Option<Engine>> {
    needs_terminal()?;
    let (events, happens) = mpsc::channel();
    let mut app = App::new(has_colour());
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let keys = events.clone();
    // It ends with the program: nothing wakes who waits for a key.
    thread::spawn(move || read_keys(&keys));
    let feeder = thread::spawn(move || feed(source, rate, &events));
    let shown = (|| -> io::Result<()> {
        while !app.has_quit {
            terminal.draw(|frame| draw::draw(&app, frame))?;
            take(&mut app, &happens);
        }
        Ok(())
    })();
    let restored = ratatui::try_restore();
    // Nobody listens any more, which ends the feeder at its next event.
    drop(happens);
    let engine = feeder.join().ok().flatten();
    shown.context("the terminal")?;
    restored.context("the terminal")?;
    Ok(engine)
}

/// Waits for something to happen, and takes all that has.
fn take(app: &mut App, happens: &Receiver<Event>) {
    let Ok(first) = happens.recv() else {
        app.has_quit = true;
        return;
    };
    app.update(first);
    while let Ok(next) = happens.try_recv() {
        app.update(next);
    }
}

fn read_keys(events: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => Event::Key(key),
            Ok(event::Event::Resize(..)) => Event::Resized,
            Ok(_) => continue,
            Err(_) => return,
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

/// Brings what happens to the engine, until nobody listens. Returns our own engine.
fn feed(source: Source, rate: u32, events: &Sender<Event>) -> Option<Engine> {
    let (mut watch, mut engine) = match source {
        Source::Watch(watch) => (watch, None),
        Source::Starting(target) => {
            let mut tell = |what: &str| events.send(Event::Starting(what.to_owned())).is_ok();
            match target.watch(&mut tell) {
                Ok(watch) => (Box::new(watch), None),
                Err(LiveError::Starting(_)) => return None,
                Err(why) => {
                    let _ = events.send(Event::Gone(Some(why.to_string())));
                    return None;
                }
            }
        }
        Source::Engine(mut engine) => {
            match connect(&mut engine, |what| events.send(Event::Starting(what.to_owned())).is_ok())
            {
                Some(Ok(watch)) => (Box::new(watch), Some(engine)),
                Some(Err(why)) => {
                    let _ = events.send(Event::Gone(Some(why)));
                    return Some(engine);
                }
                None => return Some(engine),
            }
        }
    };
    let mut feed = || -> Result<(), mpsc::SendError<Event>> {
        events.send(Event::Hello(Box::new(watch.hello().clone())))?;
        if let Err(why) = watch.ask(rate) {
            return events.send(Event::Gone(Some(why.to_string())));
        }
        let mut process = match Process::of(watch.hello().pid) {
            Ok(process) => Some(process),
            Err(why) => {
                events.send(Event::Process(Err(why)))?;
                None
            }
        };
        let mut looked: Option<Instant> = None;
        loop {
            if let Some(process) = &mut process
                && looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY)
            {
                looked = Some(Instant::now());
                events.send(Event::Process(Ok(Box::new(process.read()))))?;
            }
            let why = match watch.next(LOOK_EVERY) {
                Ok(Next::Frame(frame)) => {
                    events.send(Event::Frame(frame))?;
                    continue;
                }
                Ok(Next::Nothing) => {
                    // Nobody may listen any more; only sending tells.
                    events.send(Event::Resized)?;
                    continue;
                }
                Ok(Next::Gone) => how_it_ended(&mut engine),
                Err(error) => Some(error.to_string()),
            };
            return events.send(Event::Gone(why));
        }
    };
    let _ = feed();
    engine
}

/// How our own engine ended, as soon as the system knows.
fn how_it_ended(engine: &mut Option<Engine>) -> Option<String> {
    let engine = engine.as_mut()?;
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        let ended = engine.ended();
        if ended.is_some() || Instant::now() >= until {
            return ended;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until our own engine publishes. `None` if `tell` says that nobody waits any more.
pub(crate) fn connect(
    engine: &mut Engine,
    mut tell: impl FnMut(&str) -> bool,
) -> Option<Result<Watch, String>> {
    let mut told: Option<Instant> = None;
    loop {
        if told.is_none_or(|told| told.elapsed() >= LOOK_EVERY) {
            told = Some(Instant::now());
            if !tell("starting the engine") {
                return None;
            }
        }
        match Watch::process_telling(engine.pid(), &mut tell) {
            Ok(watch) => return Some(Ok(watch)),
            Err(LiveError::Starting(_)) => return None,
            // It isn't so far, or never will be.
            Err(_) => {}
        }
        if let Some(how) = engine.ended() {
            return Some(Err(how));
        }
        thread::sleep(TRY_EVERY);
    }
}

/// What one snapshot takes: frames until they tell a rate of now, or the last one.
pub(crate) struct Once {
    pub(crate) app: App,
    pub(crate) engine: Option<Engine>,
}

/// Watches until the figures have settled, or the engine ends. `to_the_end`: until it ends.
pub(crate) fn once(source: Source, rate: u32, to_the_end: bool) -> Result<Once> {
    /// So long at most for figures to settle once there are frames.
    const SETTLE_WITHIN: Duration = Duration::from_secs(30);
    let note = progress::note("connecting");
    let mut tell = |what: &str| {
        note.set_message(what.to_owned());
        note.tick();
        true
    };
    let (mut watch, mut engine) = match source {
        Source::Watch(watch) => (watch, None),
        Source::Starting(target) => (Box::new(target.watch(&mut tell)?), None),
        Source::Engine(mut engine) => match connect(&mut engine, tell) {
            Some(Ok(watch)) => (Box::new(watch), Some(engine)),
            Some(Err(how)) => bail!("the engine ended before it published: {how}"),
            None => bail!("nobody waits"),
        },
    };
    note.set_message("watching until the figures have settled");
    note.tick();
    let mut app = App::new(false);
    watch.ask(rate)?;
    app.update(Event::Hello(Box::new(watch.hello().clone())));
    let mut process = match Process::of(watch.hello().pid) {
        Ok(process) => Some(process),
        Err(why) => {
            app.update(Event::Process(Err(why)));
            None
        }
    };
    let until = Instant::now() + SETTLE_WITHIN;
    let mut looked: Option<Instant> = None;
    while app.state != State::Ended {
        if let Some(process) = &mut process
            && looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY)
        {
            looked = Some(Instant::now());
            app.update(Event::Process(Ok(Box::new(process.read()))));
        }
        match watch.next(LOOK_EVERY)? {
            Next::Frame(frame) => app.update(Event::Frame(frame)),
            Next::Nothing => {}
            Next::Gone => {
                let how = how_it_ended(&mut engine);
                app.update(Event::Gone(how));
                break;
            }
        }
        if !to_the_end && (has_settled(&app) || Instant::now() >= until) {
            break;
        }
    }
    note.finish_and_clear();
    Ok(Once { app, engine })
}

/// Whether there is a rate of now, and one of the threads.
fn has_settled(app: &App) -> bool {
    let Some(seen) = app.seen() else { return false };
    let recent = seen.window.as_ref().is_ok_and(|window| !window.profile.phases.is_empty());
    recent && (app.activity().is_ok() || app.memory().is_err())
}
