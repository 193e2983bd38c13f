//! The state of the view, and how keys and frames change it. Events in, state out: nothing here reads a
//! clock, a file or a terminal, so that recorded frames reproduce the same state.

mod contents;
mod keys;

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use brickscope_analysis::findings::Findings;
use brickscope_live::socket::{Frame, Hello};
use brickscope_profile::{Absent, Phase, Profile};
use ratatui::crossterm::event::KeyEvent;

pub(crate) use self::contents::{Branch, BrickRow, Heat, Place};
use crate::history::History;
use crate::look::Look;
use crate::numbers::{Beside, Explained, Numbers};
use crate::process::{Activity, Memory, Reading};
use crate::snapshot::{Snapshot, Snapshots, Window};

/// An event for the view.
#[derive(Debug)]
pub enum Event {
    /// The engine isn't running yet; says what it is doing.
    Starting(String),
    /// An engine publishes.
    Hello(Box<Hello>),
    /// Its state.
    Frame(Box<Frame>),
    /// What the system says of its process, or why it says nothing.
    Process(Result<Box<Reading>, Absent>),
    /// The engine no longer publishes.
    Gone(Death),
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal was resized.
    Resized,
}

/// The state of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It doesn't run yet; says what it is doing.
    Starting(String),
    /// It publishes.
    Running,
    /// It announced its end.
    Ended,
    /// It disappeared.
    Died(Death),
}

/// What is known of how an engine died.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Death {
    /// How its process ended, or why its frames can't be read: `signal: 9 (SIGKILL)`.
    pub how: Option<String>,
    /// The last lines that it wrote to standard error; `None` of an engine that somebody else started.
    pub said: Option<Vec<String>>,
}

impl Death {
    /// The same in one line, with the last one that it wrote. `None` if nothing is known.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        match (&self.how, self.said.as_ref().and_then(|said| said.last())) {
            (Some(how), Some(said)) => Some(format!("{how}: {said}")),
            (how, said) => how.clone().or_else(|| said.cloned()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Bricks,
    Heat,
    Tree,
    System,
    Findings,
    Requests,
}

impl View {
    const ALL: [Self; 6] =
        [Self::Bricks, Self::Heat, Self::Tree, Self::System, Self::Findings, Self::Requests];
}

/// The sort key of the table of bricks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Share,
    Average,
    Count,
    Roof,
    Name,
}

impl Sort {
    const ALL: [Self; 5] = [Self::Share, Self::Average, Self::Count, Self::Roof, Self::Name];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Average => "average",
            Self::Count => "count",
            Self::Roof => "roof",
            Self::Name => "name",
        }
    }
}

/// What the view shows: the newest snapshot, or the one at which it was paused.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) snapshot: Rc<Snapshot>,
    pub(crate) window: Result<Rc<Window>, Absent>,
    /// What slows the engine down, as of at most a second before.
    pub(crate) findings: Result<Rc<Findings>, Absent>,
    /// How fast it was lately.
    pub(crate) history: Rc<History>,
}

/// The contents of a paused view, while the engine goes on.
#[derive(Debug)]
struct Frozen {
    seen: Seen,
    memory: Result<Memory, Absent>,
    activity: Result<Activity, Absent>,
    is_disturbance_known: bool,
}

/// The state of the view.
#[derive(Debug)]
pub struct App {
    /// The state of the engine.
    pub state: State,
    pub(crate) hello: Option<Box<Hello>>,
    snapshots: Snapshots,
    /// `Some` while the view is paused.
    frozen: Option<Frozen>,
    /// Readings of the last few seconds, the newest last.
    readings: Vec<Reading>,
    process_absent: Option<Absent>,
    activity: Option<Activity>,
    /// Whether the engine ever reported disturbances.
    is_disturbance_known: bool,
    pub(crate) view: View,
    /// Where `f` goes back to.
    came_from: View,
    pub(crate) phase: Phase,
    pub(crate) is_phase_chosen: bool,
    pub(crate) is_recent: bool,
    pub(crate) sort: Sort,
    pub(crate) is_reversed: bool,
    pub(crate) filter: String,
    pub(crate) is_filtering: bool,
    pub(crate) is_help: bool,
    /// The brick whose kernels are shown.
    pub(crate) drilled: Option<String>,
    /// The selected line of the view, and the column in the heat map.
    pub(crate) selected: usize,
    pub(crate) column: usize,
    /// How far the page that was drawn last scrolls: only drawing knows its lines.
    pub(crate) scrolls: Cell<usize>,
    pub(crate) open: HashSet<Place>,
    /// Whether requests that have ended are listed.
    pub(crate) has_ended_ones: bool,
    pub(crate) look: Look,
    /// Whether the user wants to leave.
    pub has_quit: bool,
}

impl App {
    /// A view that waits for its first event.
    #[must_use]
    pub fn new(look: Look) -> Self {
        Self {
            state: State::Starting("connecting".to_owned()),
            hello: None,
            snapshots: Snapshots::default(),
            frozen: None,
            readings: Vec::new(),
            process_absent: None,
            activity: None,
            is_disturbance_known: false,
            view: View::Bricks,
            came_from: View::Bricks,
            phase: Phase::Decode,
            is_phase_chosen: false,
            is_recent: false,
            sort: Sort::Share,
            is_reversed: false,
            filter: String::new(),
            is_filtering: false,
            is_help: false,
            drilled: None,
            selected: 0,
            column: 0,
            scrolls: Cell::new(0),
            open: HashSet::new(),
            has_ended_ones: false,
            look,
            has_quit: false,
        }
    }

    /// Applies an event.
    pub fn update(&mut self, event: Event) {
        match event {
            Event::Starting(what) => self.state = State::Starting(what),
            Event::Hello(hello) => {
                self.snapshots = Snapshots::new(hello.facts.clone());
                self.hello = Some(hello);
                self.state = State::Running;
            }
            Event::Frame(frame) => {
                self.snapshots.take(*frame);
                if let Some(newest) = self.snapshots.newest() {
                    let of_host = newest.of_host.iter().flatten();
                    let mut phases = newest.profile.phases.iter().chain(of_host);
                    self.is_disturbance_known |= phases.any(|phase| phase.disturbed > 0)
                        || newest.profile.passes.iter().any(|pass| pass.disturbance.is_some());
                    self.state = if newest.is_last { State::Ended } else { State::Running };
                    // Until the user selects a phase, show the one that has data.
                    if !self.is_phase_chosen
                        && newest.profile.phase(self.phase).is_none()
                        && let Some(first) = newest.profile.phases.first()
                    {
                        self.phase = first.phase;
                    } else if !self.is_phase_chosen && newest.profile.phase(Phase::Decode).is_some()
                    {
                        self.phase = Phase::Decode;
                    }
                }
            }
            Event::Process(Ok(reading)) => self.look(*reading),
            Event::Process(Err(absent)) => self.process_absent = Some(absent),
            Event::Gone(why) => {
                if self.state != State::Ended {
                    self.state = State::Died(why);
                }
            }
            Event::Key(key) => self.press(key),
            Event::Resized => {}
        }
    }

    fn look(&mut self, reading: Reading) {
        // The newest reading that is long enough ago.
        let activity = self.readings.iter().rev().find_map(|before| reading.since(before));
        self.activity = activity.or_else(|| self.activity.take());
        self.readings.push(reading);
        if self.readings.len() > 8 {
            self.readings.remove(0);
        }
    }

    /// Whether there is a current rate, and a current activity of the threads.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        let Some(seen) = self.seen() else { return false };
        let recent = seen.window.as_ref().is_ok_and(|window| !window.profile.phases.is_empty());
        recent && (self.activity().is_ok() || self.memory().is_err())
    }

    /// All figures of what the view shows, as JSON for scripts; `None` before the first frame.
    ///
    /// # Errors
    ///
    /// None: the figures are plain data.
    pub fn json(&self) -> serde_json::Result<Option<String>> {
        let Some(seen) = self.seen() else { return Ok(None) };
        let numbers = self.numbers(&seen);
        serde_json::to_string_pretty(&Explained::of(&numbers)?).map(Some)
    }

    /// What the view shows; `None` before the first frame.
    pub(crate) fn seen(&self) -> Option<Seen> {
        match &self.frozen {
            Some(frozen) => Some(frozen.seen.clone()),
            None => self.newest(),
        }
    }

    fn freeze(&self) -> Option<Frozen> {
        Some(Frozen {
            seen: self.newest()?,
            memory: self.memory(),
            activity: self.activity().cloned(),
            is_disturbance_known: self.is_disturbance_known,
        })
    }

    fn newest(&self) -> Option<Seen> {
        Some(Seen {
            snapshot: Rc::clone(self.snapshots.newest()?),
            window: self.snapshots.window(),
            findings: self.snapshots.findings(),
            history: self.snapshots.history(),
        })
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// The sums to show: since the start, or over the last seconds.
    pub(crate) fn shown<'s>(&self, seen: &'s Seen) -> Result<&'s Profile, Absent> {
        if !self.is_recent {
            return Ok(&seen.snapshot.profile);
        }
        seen.window.as_ref().map(|window| &window.profile).map_err(Absent::clone)
    }

    /// The activity of the process according to the system.
    pub(crate) fn memory(&self) -> Result<Memory, Absent> {
        if let Some(frozen) = &self.frozen {
            return frozen.memory.clone();
        }
        let newest = self.readings.last().and_then(|reading| reading.memory);
        newest.ok_or_else(|| self.nothing_of_process())
    }

    pub(crate) fn activity(&self) -> Result<&Activity, Absent> {
        if let Some(frozen) = &self.frozen {
            return frozen.activity.as_ref().map_err(Absent::clone);
        }
        self.activity.as_ref().ok_or_else(|| match self.process_absent {
            None => Absent { reason: "needs a second of readings".to_owned() },
            Some(_) => self.nothing_of_process(),
        })
    }

    /// Whether the engine reports disturbances.
    pub(crate) fn is_disturbance_known(&self) -> bool {
        self.frozen.as_ref().map_or(self.is_disturbance_known, |frozen| frozen.is_disturbance_known)
    }

    fn nothing_of_process(&self) -> Absent {
        self.process_absent.clone().unwrap_or_else(|| Absent {
            reason: "the system has no data on this process".to_owned(),
        })
    }

    /// All figures of what the view shows.
    pub(crate) fn numbers<'s>(&'s self, seen: &'s Seen) -> Numbers<'s> {
        let state = match self.state {
            State::Starting(_) | State::Running => "running",
            State::Ended => "ended",
            State::Died(_) => "died",
        };
        let pid = self.hello.as_ref().map_or(0, |hello| hello.pid);
        let window = seen.window.as_ref().map(Rc::as_ref);
        let (memory, activity) = (self.memory(), self.activity());
        let findings = seen.findings.as_ref().map(Rc::as_ref).map_err(Absent::clone);
        Numbers::of(&seen.snapshot, Beside { state, pid, window, findings, memory, activity })
    }
}
