//! The terminal, and who brings what happens: keys, frames, looks at the process.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use brickscope_live::socket::{Next, Watch};
use ratatui::crossterm::event::{self, KeyEventKind};

use super::app::{App, Event, State};
use super::draw;
use super::engine::Engine;
use super::process::Process;

/// How long to wait before looking again whether an engine publishes.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// How often to look at the process.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where frames come from.
pub(crate) enum Source {
    /// Somebody who publishes already.
    Watch(Box<Watch>),
    /// An engine of our own, which will.
    Engine(Engine),
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
            "a live view takes a terminal: `--once` prints one picture, `--once --json` its figures"
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
            if !tell("loading the model, measuring what this machine can do, warming up") {
                return None;
            }
        }
        if let Ok(watch) = Watch::process(engine.pid()) {
            return Some(Ok(watch));
        }
        if let Some(how) = engine.ended() {
            return Some(Err(how));
        }
        thread::sleep(TRY_EVERY);
    }
}

/// What one picture takes: frames until they tell a rate of now, or the last one.
pub(crate) struct Once {
    pub(crate) app: App,
    pub(crate) engine: Option<Engine>,
}

/// Watches until the figures have settled, or the engine ends. `to_the_end`: until it ends.
pub(crate) fn once(source: Source, rate: u32, to_the_end: bool) -> Result<Once> {
    /// So long at most for figures to settle once there are frames.
    const SETTLE_WITHIN: Duration = Duration::from_secs(30);
    let (mut watch, mut engine) = match source {
        Source::Watch(watch) => (watch, None),
        Source::Engine(mut engine) => match connect(&mut engine, |_| true) {
            Some(Ok(watch)) => (Box::new(watch), Some(engine)),
            Some(Err(how)) => bail!("the engine ended before it published: {how}"),
            None => bail!("nobody waits"),
        },
    };
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
    Ok(Once { app, engine })
}

/// Whether there is a rate of now, and one of the threads.
fn has_settled(app: &App) -> bool {
    let Some(seen) = app.seen() else { return false };
    let recent = seen.window.as_ref().is_ok_and(|window| !window.profile.phases.is_empty());
    recent && (app.activity().is_ok() || app.memory().is_err())
}

/// One picture as text.
pub(crate) fn text(app: &App, width: u16, height: u16) -> Result<String> {
    let backend = ratatui::backend::TestBackend::new(width, height);
    let mut terminal = ratatui::Terminal::new(backend)?;
    terminal.draw(|frame| draw::draw(app, frame))?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let mut line = String::new();
        let mut x = 0;
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide letter takes the cells after it, too.
            x += crate::names::columns(symbol).max(1) as u16;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}
