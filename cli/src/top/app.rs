//! The state of the view, and how keys and frames change it. Events in, state out: nothing here reads a
//! clock, a file or a terminal, so that recorded frames reproduce the same state.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use brickscope::{Absent, BrickKernel, Phase, Profile};
use brickscope_analysis::findings::Findings;
use brickscope_analysis::roofline::Roofline;
use brickscope_analysis::typical;
use brickscope_live::socket::{Frame, Hello};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::numbers::{Beside, Numbers};
use super::process::{Activity, Memory, Reading};
use super::snapshot::{Snapshot, Snapshots, Window};

/// An event for the view.
#[derive(Debug)]
pub(crate) enum Event {
    /// The engine isn't running yet; says what it is doing.
    Starting(String),
    /// An engine publishes.
    Hello(Box<Hello>),
    Frame(Box<Frame>),
    Process(Result<Box<Reading>, Absent>),
    /// The engine no longer publishes; with the reason, if known.
    Gone(Option<String>),
    Key(KeyEvent),
    /// The terminal was resized.
    Resized,
}

/// The state of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Starting(String),
    Running,
    /// It announced its end.
    Ended,
    /// It disappeared; with the reason, if known.
    Died(Option<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Bricks,
    Heat,
    Tree,
    System,
}

impl View {
    const ALL: [Self; 4] = [Self::Bricks, Self::Heat, Self::Tree, Self::System];
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
}

/// The contents of a paused view, while the engine goes on.
#[derive(Debug)]
struct Frozen {
    seen: Seen,
    memory: Result<Memory, Absent>,
    activity: Result<Activity, Absent>,
    is_disturbance_known: bool,
}

/// A row of the table of bricks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BrickRow {
    pub(crate) name: String,
    pub(crate) exclusive_ns: u64,
    pub(crate) total_ns: u64,
    pub(crate) count: u64,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    /// The share of the roofline that is reached, and the limit.
    pub(crate) roof: Option<(f64, String)>,
}

/// A place in the tree: a layer, or a brick in one.
pub(crate) type Place = (Option<u16>, Option<String>);

/// A line of the tree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Branch {
    pub(crate) depth: usize,
    pub(crate) name: String,
    /// The place, if it can be folded, and whether it is open.
    pub(crate) place: Option<(Place, bool)>,
    pub(crate) ns: u64,
    pub(crate) count: u64,
    /// Whether it is a kernel, whose sums are over its brick in all layers.
    pub(crate) is_of_all_layers: bool,
}

#[derive(Debug)]
pub(crate) struct App {
    pub(crate) state: State,
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
    pub(crate) open: HashSet<Place>,
    pub(crate) has_colour: bool,
    pub(crate) has_quit: bool,
}

impl App {
    pub(crate) fn new(has_colour: bool) -> Self {
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
            open: HashSet::new(),
            has_colour,
            has_quit: false,
        }
    }

    /// Applies an event.
    pub(crate) fn update(&mut self, event: Event) {
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
                    self.is_disturbance_known |=
                        newest.profile.phases.iter().any(|phase| phase.disturbed > 0)
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

/// Handles a key.
impl App {
    fn press(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.has_quit = true;
            return;
        }
        if self.is_help {
            self.is_help = false;
            return;
        }
        if self.is_filtering {
            match key.code {
                KeyCode::Enter => self.is_filtering = false,
                KeyCode::Esc => {
                    self.is_filtering = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) if self.filter.chars().count() < 64 => self.filter.push(c),
                _ => {}
            }
            self.selected = 0;
            return;
        }
        match key.code {
            KeyCode::Char('q') => self.has_quit = true,
            KeyCode::Esc | KeyCode::Backspace if self.drilled.is_some() => {
                self.drilled = None;
            }
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => self.has_quit = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.is_help = true,
            KeyCode::Char(' ') => {
                self.frozen = if self.is_paused() { None } else { self.freeze() };
            }
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(View::ALL.len() - 1),
            KeyCode::Char(n @ '1'..='4') => self.show(View::ALL[n as usize - '1' as usize]),
            KeyCode::Char('s') => {
                let at = Sort::ALL.iter().position(|&sort| sort == self.sort).unwrap_or_default();
                self.sort = Sort::ALL[(at + 1) % Sort::ALL.len()];
            }
            KeyCode::Char('S' | 'r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('/') => {
                self.is_filtering = true;
                if self.view != View::Bricks {
                    self.show(View::Bricks);
                }
                self.drilled = None;
            }
            KeyCode::Char('p') => {
                let at = Phase::ALL.iter().position(|&phase| phase == self.phase).unwrap_or(0);
                let next = (1..=Phase::ALL.len()).map(|n| Phase::ALL[(at + n) % Phase::ALL.len()]);
                // Engines that encode are few.
                let has = |phase: &Phase| {
                    let of =
                        || self.seen().map(|seen| seen.snapshot.profile.phase(*phase).is_some());
                    !matches!(phase, Phase::Encode | Phase::Training) || of().unwrap_or(false)
                };
                self.phase = next.into_iter().find(has).unwrap_or(self.phase);
                self.is_phase_chosen = true;
            }
            KeyCode::Char('w') => self.is_recent = !self.is_recent,
            KeyCode::Enter => self.enter(),
            code => self.go(code),
        }
    }

    fn turn(&mut self, by: usize) {
        let at = View::ALL.iter().position(|&view| view == self.view).unwrap_or_default();
        self.show(View::ALL[(at + by) % View::ALL.len()]);
    }

    fn show(&mut self, view: View) {
        self.view = view;
        self.drilled = None;
        self.selected = 0;
    }

    fn enter(&mut self) {
        match self.view {
            View::Bricks if self.drilled.is_none() => {
                let row = self.rows().into_iter().nth(self.selected);
                self.drilled = row.map(|row| row.name);
            }
            View::Tree => self.fold(None),
            _ => {}
        }
    }

    /// Opens or closes the selected line of the tree, or toggles it if neither is given.
    fn fold(&mut self, open: Option<bool>) {
        let Some(Branch { place: Some((place, is_open)), .. }) =
            self.branches().into_iter().nth(self.selected)
        else {
            return;
        };
        if open.unwrap_or(!is_open) {
            self.open.insert(place);
        } else {
            self.open.remove(&place);
        }
    }

    fn go(&mut self, code: KeyCode) {
        let last = self.lines().saturating_sub(1);
        let is_heat = self.view == View::Heat;
        self.selected = match code {
            KeyCode::Up | KeyCode::Char('k') => self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected + 1,
            KeyCode::PageUp => self.selected.saturating_sub(10),
            KeyCode::PageDown => self.selected + 10,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => self.selected,
        }
        .min(last);
        match code {
            KeyCode::Left if is_heat => self.column = self.column.saturating_sub(1),
            KeyCode::Right if is_heat => {
                let last = self.heat().map_or(0, |heat| heat.bricks.len().saturating_sub(1));
                self.column = (self.column + 1).min(last);
            }
            KeyCode::Left if self.view == View::Tree => self.fold(Some(false)),
            KeyCode::Right if self.view == View::Tree => self.fold(Some(true)),
            KeyCode::Char('+') if self.view == View::Tree => {
                let layers = self.heat().map(|heat| heat.layers).unwrap_or_default();
                self.open.extend(layers.into_iter().map(|layer| (layer, None)));
            }
            KeyCode::Char('-') if self.view == View::Tree => self.open.clear(),
            _ => {}
        }
    }

    /// The number of lines that can be selected.
    fn lines(&self) -> usize {
        match self.view {
            View::Bricks if self.drilled.is_some() => 1,
            View::Bricks => self.rows().len(),
            View::Heat => self.heat().map_or(0, |heat| heat.layers.len()),
            View::Tree => self.branches().len(),
            // It scrolls, and is clipped when it is drawn.
            View::System => 200,
        }
    }
}

/// The contents of the views.
impl App {
    /// The bricks of the phase, filtered and sorted.
    pub(crate) fn rows(&self) -> Vec<BrickRow> {
        let Some(seen) = self.seen() else { return Vec::new() };
        let Ok(profile) = self.shown(&seen) else { return Vec::new() };
        // One stall doesn't decide the order.
        let judged = typical::judged(profile, self.phase);
        let profile = &*judged;
        let roofline = Roofline::of_sums(profile, self.phase).ok();
        let filter = self.filter.to_lowercase();
        let bricks = profile.bricks(Some(self.phase));
        let mut rows: Vec<BrickRow> = bricks
            .into_iter()
            .enumerate()
            .filter(|(_, brick)| brick.stats.name.to_lowercase().contains(&filter))
            .map(|(at, brick)| {
                let stats = &brick.stats;
                // Percentiles are of whole spans, and so is the average if no brick lies inside.
                let is_whole = stats.exclusive_ns == stats.total_ns;
                let place = roofline.as_ref().and_then(|roofline| {
                    // In the same order.
                    roofline.bricks.get(at).filter(|row| row.name == stats.name)?.place.as_ref()
                });
                BrickRow {
                    name: stats.name.clone(),
                    exclusive_ns: stats.exclusive_ns,
                    total_ns: stats.total_ns,
                    count: stats.count,
                    p50_ns: brick.percentiles.p50_ns.filter(|_| is_whole),
                    p99_ns: brick.percentiles.p99_ns.filter(|_| is_whole),
                    roof: place.map(|place| (place.of_roof, place.limit().to_owned())),
                }
            })
            .collect();
        let average = |row: &BrickRow| row.exclusive_ns as f64 / row.count.max(1) as f64;
        match self.sort {
            Sort::Share => rows.sort_by_key(|row| std::cmp::Reverse(row.exclusive_ns)),
            Sort::Average => rows.sort_by(|a, b| average(b).total_cmp(&average(a))),
            Sort::Count => rows.sort_by_key(|row| std::cmp::Reverse(row.count)),
            // The farthest from its roofline first, unknown ones last.
            Sort::Roof => rows.sort_by(|a, b| {
                let part =
                    |row: &BrickRow| row.roof.as_ref().map_or(f64::INFINITY, |(part, _)| *part);
                part(a).total_cmp(&part(b))
            }),
            Sort::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    /// The heat map of the phase.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(crate) fn heat(&self) -> Result<Heat, Absent> {
        let nothing = || Absent { reason: "no frame has come yet".to_owned() };
        let seen = self.seen().ok_or_else(nothing)?;
        let profile = self.shown(&seen)?;
        let mut heat = Heat::default();
        // Maps, since a frame may contain very many names.
        let (mut bricks, mut layers) = (HashMap::new(), BTreeMap::new());
        let rows = profile.layers.iter().filter(|row| row.phase == Some(self.phase));
        // In the order of the profile: the longest brick first.
        let by_time = profile.bricks(Some(self.phase)).into_iter().map(|brick| &brick.stats.name);
        for name in by_time.chain(rows.clone().map(|row| &row.name)) {
            bricks.entry(name).or_insert_with(|| {
                heat.bricks.push(name.clone());
                heat.bricks.len() - 1
            });
        }
        for row in rows {
            // Bricks outside of layers come last.
            let place = row.layer.map_or(u32::MAX, u32::from);
            let (_, cells) = layers.entry(place).or_insert((row.layer, BTreeMap::new()));
            if let Some(&brick) = bricks.get(&row.name) {
                cells.insert(brick, (row.exclusive_ns, row.count));
            }
        }
        if layers.is_empty() {
            let is_known = !seen.snapshot.profile.layers.is_empty();
            let reason = match is_known && self.is_recent {
                true => "no brick in a layer has ended in the last 2 s",
                false => super::numbers::layers_absent(&seen.snapshot),
            };
            return Err(Absent { reason: reason.to_owned() });
        }
        (heat.layers, heat.cells) = layers.into_values().unzip();
        Ok(heat)
    }

    /// The kernels of each brick, the longest first.
    pub(crate) fn kernels(&self) -> HashMap<String, Vec<BrickKernel>> {
        let Some(seen) = self.seen() else { return HashMap::new() };
        let Ok(profile) = self.shown(&seen) else { return HashMap::new() };
        // Kernels with the same name are one line, even if launched differently.
        let mut sums: HashMap<(&str, &str), BrickKernel> = HashMap::new();
        for row in profile.brick_kernels.iter().filter(|row| row.phase == Some(self.phase)) {
            let key = (row.brick.as_str(), row.kernel.as_str());
            let sum =
                sums.entry(key).or_insert(BrickKernel { count: 0, total_ns: 0, ..row.clone() });
            sum.count = sum.count.saturating_add(row.count);
            sum.total_ns = sum.total_ns.saturating_add(row.total_ns);
        }
        let mut kernels: HashMap<String, Vec<BrickKernel>> = HashMap::new();
        for ((brick, _), sum) in sums {
            kernels.entry(brick.to_owned()).or_default().push(sum);
        }
        for kernels in kernels.values_mut() {
            kernels.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then(a.kernel.cmp(&b.kernel)));
        }
        kernels
    }

    /// The visible lines of the tree: layers, their bricks, and their kernels.
    pub(crate) fn branches(&self) -> Vec<Branch> {
        let Ok(heat) = self.heat() else { return Vec::new() };
        let kernels = self.kernels();
        let mut branches = Vec::new();
        for (layer, cells) in heat.layers.iter().zip(&heat.cells) {
            let bricks =
                cells.iter().map(|(&brick, &(ns, count))| (&heat.bricks[brick], ns, count));
            let mut bricks: Vec<_> = bricks.collect();
            bricks.sort_by_key(|&(_, ns, _)| std::cmp::Reverse(ns));
            let place = (*layer, None);
            let is_open = self.open.contains(&place);
            branches.push(Branch {
                depth: 0,
                name: match layer {
                    Some(layer) => format!("layer {layer}"),
                    None => "outside of layers".to_owned(),
                },
                place: Some((place, is_open)),
                ns: bricks.iter().fold(0, |sum, &(_, ns, _)| u64::saturating_add(sum, ns)),
                count: bricks.iter().fold(0, |sum, &(.., count)| u64::saturating_add(sum, count)),
                is_of_all_layers: false,
            });
            if !is_open {
                continue;
            }
            for (name, ns, count) in bricks {
                let inside = kernels.get(name).map(Vec::as_slice).unwrap_or_default();
                let place = (*layer, Some(name.clone()));
                let is_open = self.open.contains(&place);
                branches.push(Branch {
                    depth: 1,
                    name: name.clone(),
                    place: (!inside.is_empty()).then_some((place, is_open)),
                    ns,
                    count,
                    is_of_all_layers: false,
                });
                if is_open {
                    branches.extend(inside.iter().map(|kernel| Branch {
                        depth: 2,
                        name: kernel.kernel.clone(),
                        place: None,
                        ns: kernel.total_ns,
                        count: kernel.count,
                        is_of_all_layers: true,
                    }));
                }
            }
        }
        branches
    }
}

/// Bricks by layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Heat {
    pub(crate) layers: Vec<Option<u16>>,
    pub(crate) bricks: Vec<String>,
    /// By layer, then by brick: nanoseconds and spans of the bricks that ran.
    pub(crate) cells: Vec<BTreeMap<usize, (u64, u64)>>,
}

impl Heat {
    /// The sum of all cells. It stands in for the wall time, since layers are summed only while somebody
    /// watches.
    pub(crate) fn total(&self) -> u64 {
        let cells = self.cells.iter().flat_map(BTreeMap::values);
        cells.fold(0, |sum, &(ns, _)| sum.saturating_add(ns))
    }

    /// The largest cell.
    pub(crate) fn most(&self) -> u64 {
        self.cells.iter().flat_map(BTreeMap::values).map(|&(ns, _)| ns).max().unwrap_or_default()
    }
}
