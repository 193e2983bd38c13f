//! The terminal, and the sources of events: keys, frames, readings of the process.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use brickscope_live::socket::{LiveError, Next, Watch};
use brickscope_top::ratatui::crossterm::event::{self, KeyEventKind};
use brickscope_top::{App, Death, Event, Look, Process, State, draw, ratatui};

use super::engine::Engine;
use crate::{family, output, progress};

/// How long to wait before checking again whether an engine publishes.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// How often to read the process.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where frames come from.
pub(crate) enum Source {
    /// An engine that publishes already.
    Watch(Box<Watch>),
    /// An engine that will.
    Starting(Target),
    /// Our own engine, which will.
    Engine(Engine),
}

/// The engine to watch.
pub(crate) enum Target {
    Process(u32),
    Socket(PathBuf),
}

impl Target {
    /// Connects. While the engine starts, calls `told` with what it is doing; `told` returns whether to wait.
    pub(crate) fn watch(&self, told: &mut dyn FnMut(&str) -> bool) -> Result<Watch, LiveError> {
        match self {
            Self::Process(pid) => Watch::process_telling(*pid, told),
            Self::Socket(path) => Watch::socket_telling(path, told),
        }
    }
}

/// What the terminal can show.
fn look() -> Look {
    let look =
        Look::of(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()));
    // `--color` may say otherwise than the environment.
    Look { has_colour: output::wants_colour_on(true), ..look }
}

/// The end of what can't be watched any more for this reason.
fn because(why: impl ToString) -> Event {
    Event::Gone(Death { how: Some(why.to_string()), said: None })
}

/// # Errors
///
/// If there is no terminal for drawing and for reading keys.
pub(crate) fn needs_terminal() -> Result<()> {
    if !output::is_terminal() || !io::stdin().is_terminal() {
        bail!(
            "a live view needs a terminal: `--once` prints one screen, `--once --json` its figures"
        );
    }
    Ok(())
}

/// Shows the view until the user quits. Returns our own engine, if there is one.
pub(crate) fn run(source: Source, rate: u32) -> Result<Option<Engine>> {
    needs_terminal()?;
    let (events, happens) = mpsc::channel();
    let mut app = App::new(look());
    let keys = events.clone();
    // Before the view covers the screen, since the system may have no room for a thread.
    let feeder = family::spawn("feeder", move || feed(source, rate, &events))?;
    let mut terminal = ratatui::try_init().context("the terminal")?;
    // This thread ends with the program: nothing wakes a thread that waits for a key.
    if let Err(error) = family::spawn("keys", move || read_keys(&keys)) {
        ratatui::try_restore().context("the terminal")?;
        return Err(error);
    }
    let shown = (|| -> io::Result<()> {
        while !app.has_quit {
            terminal.draw(|frame| draw(&app, frame))?;
            take(&mut app, &happens);
        }
        Ok(())
    })();
    let restored = ratatui::try_restore();
    // Closes the channel, which ends the feeder at its next event.
    drop(happens);
    let engine = feeder.join().ok().flatten();
    shown.context("the terminal")?;
    restored.context("the terminal")?;
    Ok(engine)
}

/// Waits for an event, and takes all that are there.
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

/// Sends the events of the engine until the channel is closed. Returns our own engine.
fn feed(source: Source, rate: u32, events: &Sender<Event>) -> Option<Engine> {
    let (mut watch, mut engine) = match source {
        Source::Watch(watch) => (watch, None),
        Source::Starting(target) => {
            let mut tell = |what: &str| events.send(Event::Starting(what.to_owned())).is_ok();
            match target.watch(&mut tell) {
                Ok(watch) => (Box::new(watch), None),
                Err(LiveError::Starting(_)) => return None,
                Err(why) => {
                    let _ = events.send(because(why));
                    return None;
                }
            }
        }
        Source::Engine(mut engine) => {
            match connect(&mut engine, |what| events.send(Event::Starting(what.to_owned())).is_ok())
            {
                Some(Ok(watch)) => (Box::new(watch), Some(engine)),
                Some(Err(death)) => {
                    let _ = events.send(Event::Gone(death));
                    return Some(engine);
                }
                None => return Some(engine),
            }
        }
    };
    let mut feed = || -> Result<(), mpsc::SendError<Event>> {
        events.send(Event::Hello(Box::new(watch.hello().clone())))?;
        if let Err(why) = watch.ask(rate) {
            return events.send(because(why));
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
            let gone = match watch.next(LOOK_EVERY) {
                Ok(Next::Frame(frame)) => {
                    events.send(Event::Frame(frame))?;
                    continue;
                }
                Ok(Next::Nothing) => {
                    // The channel may be closed, which only sending shows.
                    events.send(Event::Resized)?;
                    continue;
                }
                Ok(Next::Gone) => Event::Gone(how_it_ended(&mut engine)),
                Err(error) => because(error),
            };
            return events.send(gone);
        }
    };
    let _ = feed();
    engine
}

/// How our own engine ended, once the system knows. Of others nothing is known.
fn how_it_ended(engine: &mut Option<Engine>) -> Death {
    let Some(engine) = engine else { return Death::default() };
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        match engine.ended() {
            Some(death) => return death,
            None if Instant::now() >= until => return Death::default(),
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Waits until our own engine publishes. `None` if `tell` returns that nobody waits any more.
pub(crate) fn connect(
    engine: &mut Engine,
    mut tell: impl FnMut(&str) -> bool,
) -> Option<Result<Watch, Death>> {
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
            // It isn't ready yet, or never will be.
            Err(_) => {}
        }
        if let Some(how) = engine.ended() {
            return Some(Err(how));
        }
        thread::sleep(TRY_EVERY);
    }
}

/// The result of `--once`.
pub(crate) struct Once {
    pub(crate) app: App,
    pub(crate) engine: Option<Engine>,
}

/// Watches until there is a current rate, or until the engine ends. With `to_the_end` always the latter.
pub(crate) fn once(source: Source, rate: u32, to_the_end: bool) -> Result<Once> {
    /// The longest wait for figures to settle, once there are frames.
    const SETTLE_WITHIN: Duration = Duration::from_secs(30);
    let note = progress::note("connecting");
    let mut tell = |what: &str| {
        progress::quote(&note, what);
        note.tick();
        true
    };
    let (mut watch, mut engine) = match source {
        Source::Watch(watch) => (watch, None),
        Source::Starting(target) => (Box::new(target.watch(&mut tell)?), None),
        Source::Engine(mut engine) => match connect(&mut engine, tell) {
            Some(Ok(watch)) => (Box::new(watch), Some(engine)),
            Some(Err(death)) => {
                bail!("the engine ended before it published: {}", death.line().unwrap_or_default())
            }
            None => bail!("nobody waits"),
        },
    };
    note.set_message("watching until the figures have settled");
    note.tick();
    let mut app = App::new(Look { has_colour: false, ..look() });
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
        if !to_the_end && (app.has_settled() || Instant::now() >= until) {
            break;
        }
    }
    note.finish_and_clear();
    Ok(Once { app, engine })
}
