//! The first screen: how fast the run was, what limits it, where its time goes, and what to do next.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use brickscope_profile::text::{
    alike_when_cut, brief, count, printable, printable_text, screened_lines,
};
use brickscope_profile::{
    DeviceProfile, Disturber, NameKind, Phase, PhaseTotal, Profile, Source, SyncMode, Total,
};

use crate::findings::disturbed::cause;
use crate::findings::slow_layer::SlowLayer;
use crate::findings::{Finding, Findings, Gain, rank_last};
use crate::layers::DeviceLayers;
use crate::passes::{self, Whole, did, is_of_device};
use crate::rate::{self, Rate, RateOf};
use crate::roofline::{Bound, Reach, Roofline, RooflineBrick, Verdict};
use crate::text::{cut, wrap};
use crate::typical::{self, Basis, Stall, Typical};
use crate::view::report::MOST_DRIFT_PPM;
use crate::view::{
    batches, between, by_the_file, device, headline, imported, kernels, layers, ranks, requests,
    waits,
};
use crate::words::{digits, fraction, size, time, times, whole_percent};

/// The room for a summary, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Its width. Less than 66 counts as 66.
    pub columns: usize,
    /// Its height. Less than 12 counts as 12.
    pub rows: usize,
}

impl Default for Size {
    /// A terminal of 80 × 24, with a line for the prompt.
    fn default() -> Self {
        Self { columns: 80, rows: 23 }
    }
}

/// What a piece of a line says, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tone {
    /// Nothing in particular.
    Plain,
    /// At its limit.
    Good,
    /// Far from it, or doubtful.
    Bad,
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The text, without line breaks.
    pub text: String,
    /// What it says.
    pub tone: Tone,
}

/// The first screen of a run, see [`summary()`]. Its [`Display`](fmt::Display) is the text without colours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// The lines.
    pub lines: Vec<Vec<Piece>>,
}

impl Summary {
    /// The text, each piece after what `paint` gives for its tone; `plain` ends a colour.
    #[must_use]
    pub fn painted(&self, paint: impl Fn(Tone) -> &'static str, plain: &str) -> String {
        let mut text = String::new();
        for line in &self.lines {
            for piece in line {
                let colour = paint(piece.tone);
                let plain = if colour.is_empty() { "" } else { plain };
                let _ = write!(text, "{colour}{}{plain}", piece.text);
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }

    fn line(&mut self, text: impl Into<String>) {
        self.toned(text, Tone::Plain);
    }

    fn toned(&mut self, text: impl Into<String>, tone: Tone) {
        self.lines.push(vec![Piece { text: screened_lines(text.into()), tone }]);
    }

    /// `text` in as many lines as it needs; lines but the first are indented.
    fn wrapped(&mut self, text: &str, columns: usize, indent: usize, tone: Tone) {
        for (i, line) in wrap(text, columns - indent).into_iter().enumerate() {
            let before = if i == 0 { 0 } else { indent };
            self.toned(format!("{:before$}{line}", ""), tone);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.painted(|_| "", ""))
    }
}

/// The narrowest row of a brick.
const LEAST_COLUMNS: usize = 66;
/// A brick with less of the time than this is not worth a row.
const LEAST_SHARE: f64 = 0.01;
/// A rank that comes last is worth a look before bricks, if passes could take so much less without it.
const LEAST_LEAD: f64 = 0.03;
/// Then a phase can't be judged, since too much of it lies outside of all bricks.
const MOST_UNATTRIBUTED: f64 = 0.1;
/// The most other runs of the process; the report has all.
const MOST_BESIDE: usize = 4;
/// The most notes; the report has all.
const MOST_NOTES: usize = 3;
/// The most lines of each, and of all together.
const MOST_LINES_OF_A_NOTE: usize = 3;
const MOST_LINES_OF_NOTES: usize = 2 * MOST_NOTES;

/// The first screen of a run: how fast each phase was and what limits it, how much of it was disturbed, the bricks
/// that take the most time, and what to do next. `run` is the run's folder, for the commands in the last line.
///
/// It goes by what passes [typically](crate::typical) take, as [`headline`](crate::view::headline()) does.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, MockClock, Phase};
/// use brickscope_analysis::view::{self, Size};
///
/// let hand = MockClock::default();
/// let profiler = BrickProfiler::with_clock(hand.clock());
/// profiler.enable();
/// let pass = profiler.begin_pass(Phase::Decode);
/// let timer = profiler.start_brick(BrickId::LmHead);
/// hand.advance(950_000);
/// profiler.stop_brick(timer, 32_000);
/// hand.advance(50_000);
/// profiler.end_pass(pass, 1, 0);
/// let text = view::summary(&profiler.profile(), Size::default(), None).to_string();
/// assert!(text.starts_with("Decode   1000 tok/s"));
/// assert!(text.contains("██████████ LmHead  95.0 %     950 µs × 1"), "{text}");
/// assert!(text.contains("unattributed 5.0 %"));
/// ```
#[must_use]
pub fn summary(profile: &Profile, size: Size, run: Option<&str>) -> Summary {
    let (columns, rows) = (size.columns.max(LEAST_COLUMNS), size.rows.max(12));
    let mut head = Summary::default();
    let main = Main::of(profile);
    if main.is_told {
        head.wrapped(&headline(profile), columns, 2, Tone::Plain);
    } else {
        if let Some(not_finite) = &profile.not_finite {
            head.wrapped(&format!("{not_finite}."), columns, 2, Tone::Bad);
        }
        for phase in Phase::SHOWN {
            rate_line(profile, phase, columns, &mut head);
            if phase == Phase::Decode
                && let Some(of) = profile.run.as_ref().and_then(|run| run.between.as_ref())
            {
                for line in wrap(&between::in_summary(of), columns - 9) {
                    head.line(format!("{:9}{line}", ""));
                }
            }
            if let Some(of_batches) = batches::in_summary(profile, phase) {
                head.line(cut(&format!("{:9}{of_batches}", ""), columns));
            }
        }
    }
    if let Some(of_ranks) = ranks::in_summary(profile) {
        head.wrapped(&of_ranks, columns, 2, Tone::Plain);
    }
    let notes = notes(profile, &main);
    let lines = (MOST_LINES_OF_NOTES / notes.len().max(1)).min(MOST_LINES_OF_A_NOTE);
    for note in notes {
        // The whole is in the report. What is cut ends before a word, never within a number or its unit.
        let room = lines * (columns - 6);
        head.wrapped(&cut_at_a_word(&note.text, room), columns, 2, note.tone);
    }

    let mut foot = Summary::default();
    foot.line(fitting(ends(profile, &main), columns));
    foot.line("");
    let mut advice = Summary::default();
    let mut next = next(profile, &main, &Findings::of(profile));
    if let Some(run) = run {
        let show = format!("brickscope show {} ", printable_text(run));
        next = next.replace("brickscope show RUN ", &show);
    }
    advice.wrapped(&format!("Next: {next}"), columns, 6, Tone::Plain);
    foot.lines.append(&mut advice.lines);
    let run = run.map_or_else(|| "RUN".to_owned(), printable_text);
    let mut commands =
        vec![format!("brickscope show {run} --full"), format!("brickscope report {run}")];
    if let Some(requests) = requests::in_summary(profile) {
        for line in wrap(&format!("Requests {requests}"), columns) {
            foot.line(line);
        }
        commands.insert(0, format!("brickscope requests {run}"));
    }
    let beside = profile.run.iter().flat_map(|run| &run.beside);
    for of in beside.clone().take(MOST_BESIDE) {
        foot.line(cut(&format!("Beside: {}", between::beside(of)), columns));
    }
    if let Some(more) = beside.count().checked_sub(MOST_BESIDE).filter(|&more| more > 0) {
        foot.line(format!("Beside: {more} more, in {run}/context-{} and on", MOST_BESIDE + 2));
    }
    // To be copied, so no command is broken.
    let line = format!("More: {}", commands.join(" · "));
    if line.chars().count() <= columns {
        foot.line(line);
    } else {
        for (nth, command) in commands.iter().enumerate() {
            foot.line(format!("{}{command}", if nth == 0 { "More: " } else { "      " }));
        }
    }
    let ran = what_ran(profile);
    if !ran.is_empty() {
        foot.line(fitting(ran, columns));
    }

    let mut layers = Summary::default();
    if let Some(of) = &main.layers {
        for (nth, line) in wrap(&layers::in_summary(of), columns - 11).iter().enumerate() {
            layers.line(format!("{:10} {line}", if nth == 0 { "layers" } else { "" }));
        }
    }
    // A blank line before the bricks and a row that sums up the rest are kept free.
    let taken = head.lines.len() + layers.lines.len() + foot.lines.len();
    let room = rows.saturating_sub(taken + 2).max(3);
    for line in imported::in_summary(profile, columns, room) {
        head.line(line);
    }
    if !main.bricks.is_empty() {
        head.line("");
        head.lines.append(&mut layers.lines);
        table(&main, columns, room, &mut head);
    }
    head.lines.append(&mut foot.lines);
    head
}

/// `text` in at most `most` columns, without a part of a word at its end, or of a figure and its unit.
fn cut_at_a_word(text: &str, most: usize) -> String {
    let short = cut(text, most);
    if short == text {
        return short;
    }
    let kept = short.rsplit_once(' ').map_or(&*short, |(before, _)| before);
    // A figure whose unit was cut.
    let kept = match kept.rsplit_once(' ') {
        Some((before, last)) if last.ends_with(|c: char| c.is_ascii_digit()) => before,
        _ => kept,
    };
    format!("{kept} …")
}

/// What the table of bricks is of.
struct Main {
    phase: Option<Phase>,
    /// Whether a sentence says how fast it was, since no phase of the host does.
    is_told: bool,
    bricks: Vec<Brick>,
    /// Their shares are of this.
    whole_ns: f64,
    /// Whether that is the time in which a device was busy, since that is less than half of all.
    is_of_busy_time: bool,
    unattributed_ns: Option<f64>,
    /// What the time between bricks is called.
    rest: &'static str,
    verdict: Option<Verdict>,
    /// Whether the roofs of bricks are of limits that nobody measured.
    is_stated_roof: bool,
    passes: f64,
    /// Time in which bricks ran on several streams of a device, if there are several. It counts for each of them.
    at_once_ns: Option<f64>,
    /// The layers of a device in another program's trace.
    layers: Option<DeviceLayers>,
}

struct Brick {
    name: String,
    own_ns: f64,
    spans: u64,
    /// Of whole spans, if no other brick lies inside.
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    roof: Option<RooflineBrick>,
}

impl Main {
    fn of(profile: &Profile) -> Self {
        if !profile.devices.is_empty() {
            let on_device = (0..profile.devices.len())
                .filter_map(|index| Some((index, profile.whole_device(index)?)))
                .find(|(_, of)| !of.totals.is_empty());
            let mut main = Self::empty();
            if let Some((index, of)) = on_device {
                main = Self::of_host(&of);
                main.all_streams(&profile.devices[index]);
                main.by_the_file(profile, index);
            }
            main.is_told = true;
            main.rest = "gaps";
            return main;
        }
        let mut main = Self::of_host(profile);
        main.is_told |= profile.imported.is_some();
        main
    }

    fn empty() -> Self {
        Self {
            phase: None,
            is_told: true,
            bricks: Vec::new(),
            whole_ns: 0.0,
            is_of_busy_time: false,
            unattributed_ns: None,
            rest: "unattributed",
            verdict: None,
            is_stated_roof: false,
            passes: 0.0,
            at_once_ns: None,
            layers: None,
        }
    }

    fn of_host(profile: &Profile) -> Self {
        let phase = Phase::SHOWN.into_iter().find(|&p| profile.phase(p).is_some());
        let judged = phase.map(|phase| typical::judged(profile, phase));
        let judged = judged.as_deref().unwrap_or(profile);
        let totals = judged.bricks(phase);
        let total = phase.and_then(|phase| judged.phase(phase));
        let attributed = totals.iter().map(|brick| brick.stats.exclusive_ns as f64).sum();
        let roofline = phase.and_then(|phase| Roofline::of_sums(judged, phase).ok());
        let verdict = roofline.as_ref().and_then(Roofline::verdict);
        let is_stated_roof = roofline.as_ref().is_some_and(|roofline| roofline.is_stated);
        let passes = total.map_or(0.0, |total| total.passes as f64);
        let stats = || totals.iter().map(|brick| &brick.stats);
        let bytes: f64 = stats().map(|stats| stats.total_bytes as f64).sum();
        let flops: f64 = stats().map(|stats| stats.total_flops as f64).sum();
        let mut roofs = roofline.map(|roofline| roofline.bricks).unwrap_or_default().into_iter();
        let bricks = totals.iter().map(|total| Brick::of(total, roofs.next())).collect();
        // On a device, layers and whole passes that were timed as such are no gaps.
        let gaps = phase.and_then(|phase| judged.device_parts(phase)).map(|parts| parts.gaps_ns);
        let unattributed = |total: &PhaseTotal| gaps.unwrap_or(total.unattributed_ns) as f64;
        Self {
            phase,
            is_told: total.is_none(),
            bricks,
            whole_ns: total.map_or(attributed, |total| total.wall_ns as f64),
            is_of_busy_time: false,
            unattributed_ns: total.map(unattributed),
            rest: if is_of_device(profile) { "gaps" } else { "unattributed" },
            verdict: verdict.filter(|_| bytes > 0.0 && flops > 0.0),
            is_stated_roof,
            passes,
            at_once_ns: None,
            layers: None,
        }
    }

    /// What a device of another program's trace has beside: layers; and shares of its busy time, where gaps are most of all.
    fn by_the_file(&mut self, profile: &Profile, index: usize) {
        let device = profile.devices.get(index).filter(|_| profile.imported.is_some());
        let Some((device, phase)) = device.zip(self.phase) else { return };
        self.layers = DeviceLayers::of(profile, index, phase);
        let is_of_busy_time = Whole::of(device, phase).is_some_and(Whole::is_busy_time);
        let busy_ns = self.whole_ns - self.unattributed_ns.unwrap_or(0.0);
        if is_of_busy_time && busy_ns > 0.0 {
            (self.is_of_busy_time, self.whole_ns) = (true, busy_ns);
        }
    }

    /// Bricks of all streams, each with all of its time, as parts of the time from the first mark on any stream to the last.
    fn all_streams(&mut self, device: &DeviceProfile) {
        let Some(phase) = self.phase else { return };
        let Some(busy) = passes::all_streams(device, phase) else { return };
        let mut bricks: Vec<Brick> = Vec::new();
        let of_phase = |total: &&Total| {
            total.phase == Some(phase) && total.kind == NameKind::Brick && total.category.is_some()
        };
        for total in device.streams.iter().flat_map(|of| of.totals.iter().filter(of_phase)) {
            // No roof, since streams share the device's memory.
            let brick = Brick::of(total, None);
            match bricks.iter_mut().find(|of| of.name == brick.name) {
                Some(of) => {
                    of.own_ns += brick.own_ns;
                    of.spans = of.spans.saturating_add(brick.spans);
                    (of.p50_ns, of.p99_ns) = (None, None);
                }
                None => bricks.push(brick),
            }
        }
        bricks.sort_by(|a, b| b.own_ns.total_cmp(&a.own_ns));
        (self.bricks, self.verdict, self.passes) = (bricks, None, busy.passes as f64);
        self.whole_ns = busy.span_ns as f64;
        self.unattributed_ns = Some(busy.idle_ns as f64);
        self.at_once_ns = Some(busy.overlap_ns as f64);
    }

    fn share(&self, ns: f64) -> f64 {
        if self.whole_ns > 0.0 { ns / self.whole_ns } else { 0.0 }
    }

    fn slow_layer(&self, profile: &Profile) -> Option<SlowLayer> {
        SlowLayer::of(profile, self.phase?)
    }

    /// Of all the time, whatever other shares are of.
    fn unattributed(&self) -> f64 {
        let ns = self.unattributed_ns.unwrap_or(0.0);
        let all_ns = if self.is_of_busy_time { self.whole_ns + ns } else { self.whole_ns };
        if all_ns > 0.0 { ns / all_ns } else { 0.0 }
    }
}

impl Brick {
    fn of(total: &Total, roof: Option<RooflineBrick>) -> Self {
        let stats = &total.stats;
        let is_whole = stats.exclusive_ns == stats.total_ns;
        let percentiles = Some(&total.percentiles).filter(|_| is_whole);
        let mark = if total.source == Source::HostOrder { "†" } else { "" };
        Self {
            name: printable(&stats.name) + mark,
            own_ns: stats.exclusive_ns as f64,
            spans: stats.count,
            p50_ns: percentiles.and_then(|of| of.p50_ns),
            p99_ns: percentiles.and_then(|of| of.p99_ns),
            roof,
        }
    }

    /// Where it stands below its roof, in at most 20 characters.
    fn reach(&self, share: f64) -> (String, Tone) {
        let Some(place) = self.roof.as_ref().and_then(|roof| roof.place.as_ref()) else {
            return (String::new(), Tone::Plain);
        };
        let of_roof = whole_percent(place.of_roof);
        let tone = match place.reach {
            Reach::At => Tone::Good,
            Reach::Above => return (format!("{of_roof}, above it"), Tone::Plain),
            Reach::Near | Reach::Unsettled => Tone::Plain,
            // Red is for what is worth a look.
            Reach::Far if share < 0.05 => Tone::Plain,
            Reach::Far => Tone::Bad,
        };
        (of_roof, tone)
    }
}

/// `Decode   291 tok/s ± 1 % p50 3.39 ms memory-bound: at the roof (41 GB/s)`
fn rate_line(profile: &Profile, phase: Phase, columns: usize, head: &mut Summary) {
    // As measured: what is judged may be of median spans.
    let shown = typical::shown(profile);
    let total = shown.phase(phase);
    let rate = Rate::of(profile, phase);
    let is_of = |of: RateOf| rate.is_some_and(|rate| rate.of == of);
    // A test of a benchmark that was cut short may have no profile.
    if total.is_none() && !is_of(RateOf::Repetitions) {
        return;
    }
    // What is encoded may be no text.
    let each = || match total.and_then(|total| total.wall_ns.checked_div(total.passes)) {
        Some(ns) if matches!(phase, Phase::Encode | Phase::Training) => {
            format!("{} a pass", time(ns as f64))
        }
        _ => "no rate".to_owned(),
    };
    let said = rate.map_or_else(each, |rate| {
        let spread = match rate.of {
            RateOf::Passes => spread(profile, phase),
            RateOf::WholePasses
            | RateOf::Repetitions
            | RateOf::DeviceSteps
            | RateOf::DeviceSpans => String::new(),
        };
        format!("{} tok/s{spread}", digits(rate.tokens_per_second))
    });
    let whole = profile.serialised(phase).filter(|of| of.whole_passes > 0);
    let timed = shown.latency.per_token.percentiles.p50_ns;
    let p50_ns = whole.map_or(timed, |whole| whole.whole_p50_ns);
    let p50_ns = p50_ns.filter(|_| phase == Phase::Decode);
    let p50 = p50_ns.map_or(String::new(), |ns| format!("p50 {}", time(ns as f64)));
    // That of the repetition that was profiled is none of the benchmark.
    let (p50, of_profile) = match is_of(RateOf::Repetitions) {
        true => (String::new(), if p50.is_empty() { p50 } else { format!(", {p50}") }),
        false => (p50, String::new()),
    };
    let (limit, tone) = limit(profile, phase);
    let start = format!("{:8} {said:16} {p50:11} ", phase.heading());
    if start.chars().count() + limit.chars().count() <= columns {
        head.lines.push(vec![
            Piece { text: start, tone: Tone::Plain },
            Piece { text: screened_lines(limit), tone },
        ]);
    } else {
        head.line(start.trim_end());
        for line in wrap(&limit, columns - 9) {
            head.toned(format!("{:9}{line}", ""), tone);
        }
    }
    if let Some(overlapped) = rate.and_then(|rate| rate.passes_overlapped) {
        head.line(format!("{:9}{overlapped}", ""));
    }
    if let (Some(of), Some(which)) =
        (rate::repeated(profile, phase), rate::of_profile(profile, phase))
    {
        for line in wrap(&format!("{}; {which}{of_profile}", rate::basis(of)), columns - 9) {
            head.line(format!("{:9}{line}", ""));
        }
    }
}

/// What limits a phase, in a few words: `memory-bound: at the roof (41 GB/s)`. Empty if it had no pass.
#[must_use]
pub fn phase_limit(profile: &Profile, phase: Phase) -> Piece {
    // A host that only issued the bricks to a device is limited by that.
    let has_bricks = |on: &Profile| !on.bricks(Some(phase)).is_empty();
    let on_device =
        (0..profile.devices.len()).find_map(|index| profile.whole_device(index).filter(has_bricks));
    let (text, tone) = limit(on_device.as_ref().unwrap_or(profile), phase);
    Piece { text: screened_lines(text), tone }
}

fn limit(profile: &Profile, phase: Phase) -> (String, Tone) {
    let judged = typical::judged(profile, phase);
    let Some(total) = judged.phase(phase) else { return (String::new(), Tone::Plain) };
    let wall = total.wall_ns as f64;
    let bricks = judged.bricks(Some(phase));
    if bricks.is_empty() {
        let parts = profile.device_parts(phase).unwrap_or_default();
        let what = match parts.in_layers_ns.saturating_add(parts.whole_passes_ns) {
            0 => "no brick was timed in it",
            _ => "only layers, or the whole pass, were timed",
        };
        return (what.to_owned(), Tone::Bad);
    }
    if let Some(serialised) = profile.serialised(phase) {
        let devices = printable_text(&serialised.devices.join(", "));
        let how = if serialised.whole_passes == 0 { "serialised; " } else { "" };
        return (format!("{how}no roof is known for {devices}"), Tone::Plain);
    }
    if total.unattributed_ns as f64 > MOST_UNATTRIBUTED * wall {
        let share = fraction(total.unattributed_ns as f64 / wall);
        let why = disturber(profile, phase).unwrap_or("unknown limit");
        return (format!("{why}: {share} of {phase} lies outside of all bricks"), Tone::Bad);
    }
    let sum = |of: fn(&Total) -> u64| bricks.iter().map(|brick| of(brick) as f64).sum::<f64>();
    let (bytes, flops) = (sum(|of| of.stats.total_bytes), sum(|of| of.stats.total_flops));
    if bytes == 0.0 || flops == 0.0 {
        return ("unknown limit: no FLOPs and bytes were stated".to_owned(), Tone::Plain);
    }
    let roofline = match Roofline::of_sums(&judged, phase) {
        Ok(roofline) => roofline,
        Err(_) => return ("unknown limit: no measured ceilings".to_owned(), Tone::Plain),
    };
    let Some(verdict) = roofline.verdict() else {
        return ("unknown limit: no brick has a roof".to_owned(), Tone::Plain);
    };
    let tone = match verdict.reach {
        Reach::At => Tone::Good,
        Reach::Near | Reach::Unsettled | Reach::Above => Tone::Plain,
        Reach::Far => Tone::Bad,
    };
    let typical = Typical::of(profile, phase);
    let is_of_spans = typical.is_some_and(|typical| typical.basis == Basis::Spans);
    match disturber(profile, phase) {
        // What disturbs nearly all passes is what limits them.
        Some(by) if !matches!(verdict.reach, Reach::At | Reach::Above) => {
            (format!("{by}: {}", verdict.part()), Tone::Bad)
        }
        _ if is_of_spans => (format!("{}, by median spans", verdict.says()), Tone::Plain),
        _ => (verdict.says(), tone),
    }
}

/// What disturbed nearly all passes of a phase, in a few words: `threads shared a CPU`. `None` if enough passes were
/// clean.
#[must_use]
pub fn disturber(profile: &Profile, phase: Phase) -> Option<&'static str> {
    let typical = Typical::of(profile, phase).filter(|typical| typical.basis == Basis::Spans)?;
    cause(&typical, profile.phase(phase)?).map(|(by, _)| did(by))
}

/// What somebody did who disturbed passes, in a few words: `threads shared a CPU`.
#[must_use]
pub const fn disturbed_by(by: Disturber) -> &'static str {
    did(by)
}

/// ` ± 4 %`, of the mean pass; nothing if that isn't known.
fn spread(profile: &Profile, phase: Phase) -> String {
    let Some(pass) = rate::pass_interval(profile, phase) else { return String::new() };
    let half = 50.0 * (pass.interval_ns[1] - pass.interval_ns[0]) / pass.ns;
    if half < 0.95 { format!(" ± {half:.1} %") } else { format!(" ± {half:.0} %") }
}

/// What is doubtful, or was left out: a short line each.
fn notes(profile: &Profile, main: &Main) -> Vec<Piece> {
    let mut notes = Vec::new();
    let bad = |text: String| Piece { text, tone: Tone::Bad };
    if let Some(how) = profile.run.as_ref().and_then(|run| run.cut_short.as_ref()) {
        notes.push(bad(format!("cut short: {}", printable_text(how))));
    }
    for doubt in profile.imported.iter().flat_map(|imported| &imported.doubts) {
        notes.push(bad(printable_text(doubt)));
    }
    if let Some(waited) = main.phase.and_then(|phase| waits::in_summary(profile, phase)) {
        notes.push(bad(waited));
    }
    let mut dropped = profile.dropped;
    if !main.is_told {
        let phases = Phase::SHOWN.into_iter();
        let lines: Vec<Piece> = phases.filter_map(|phase| disturbances(profile, phase)).collect();
        if !lines.is_empty() {
            // They have these, with the causes.
            dropped.disturbed_passes = 0;
        }
        notes.extend(lines);
    }
    let mixed = imported::mixed(profile);
    notes.extend(mixed.map(|text| Piece { text, tone: Tone::Plain }));
    // First, since it says what the figures are.
    let serialised = device::serialised_notes(profile).into_iter();
    notes.splice(..0, serialised.map(|text| Piece { text, tone: Tone::Plain }));
    if let Some(kept) = &profile.kept {
        // What isn't listed was not lost.
        (dropped.passes, dropped.spans) = (0, 0);
        notes.push(Piece { text: kept.line(), tone: Tone::Plain });
    }
    let [lost, left_out] = dropped.lost_and_left_out();
    notes.extend(lost.lines().map(bad));
    // That was on purpose.
    notes.extend(left_out.lines().map(|text| Piece { text, tone: Tone::Plain }));
    notes.extend(device::losses(profile).into_iter().map(bad));
    if let Some(ppm) = profile.clock.drift_ppm.filter(|ppm| ppm.abs() > MOST_DRIFT_PPM) {
        notes.push(bad(format!("the counter drifted {ppm:+.0} ppm from the OS clock")));
    }
    for phase in Phase::SHOWN {
        let verdict = Roofline::of(profile, phase).ok().and_then(|roofline| roofline.verdict());
        if let Some(verdict) = verdict.filter(|verdict| verdict.reach == Reach::Above) {
            let roof = match verdict.bound {
                Bound::Compute => "peak FLOP/s were".to_owned(),
                _ => format!("bandwidth of {} was", printable(&verdict.level)),
            };
            notes.push(Piece {
                text: format!(
                    "{phase}: the {roof} measured too low, or more work was stated than was done"
                ),
                tone: Tone::Plain,
            });
        }
    }
    let slow = main.slow_layer(profile).filter(|slow| !slow.slows_down());
    notes.extend(slow.map(|slow| Piece { text: slow.to_string(), tone: Tone::Plain }));
    if notes.len() > MOST_NOTES {
        let more = notes.len() - (MOST_NOTES - 1);
        notes.truncate(MOST_NOTES - 1);
        notes.push(bad(format!("{more} more notes: `--full`")));
    }
    notes
}

/// How many passes count, and what became of the others.
fn disturbances(profile: &Profile, phase: Phase) -> Option<Piece> {
    let total = profile.phase(phase)?;
    let typical = Typical::of(profile, phase)?;
    let all = total.passes;
    let out = &typical.left_out;
    if typical.basis == Basis::Sums && total.disturbed > 0 {
        let n = total.disturbed;
        let text = format!("{n} of {all} {phase} passes disturbed; they are in the times");
        return Some(Piece { text, tone: Tone::Bad });
    }
    let plain = |text: String| Some(Piece { text, tone: Tone::Plain });
    if out.passes == 0 {
        let is_known = total.disturbed == 0
            && profile.dropped.left_out_later() == 0
            && typical.unwatched == Some(0);
        // One pass says little, and a line is dear.
        return if is_known && all > 1 {
            plain(format!("all {all} {phase} passes undisturbed"))
        } else {
            None
        };
    }
    let mut causes: Vec<String> =
        out.disturbed.iter().map(|(&by, n)| format!("{} ({n})", did(by))).collect();
    let by_itself =
        |stall: &&Stall| !stall.disturbance.is_some_and(|disturbance| disturbance.is_disturbed());
    if let (Some(stall), 1..) = (typical.stalls.iter().find(by_itself), out.stalled) {
        let stalls = match out.stalled {
            1 => "one stall".to_owned(),
            n => format!("{n} stalls, the longest"),
        };
        let layer = stall.layer.map_or(String::new(), |layer| format!(" in layer {layer}"));
        causes.push(format!("{stalls} of {}{layer}", time(stall.ns as f64)));
    }
    let causes = match &out.disturbed.iter().collect::<Vec<_>>()[..] {
        // The number is in the sentence.
        [(by, n)] if **n == out.passes => did(**by).to_owned(),
        _ => causes.join(", "),
    };
    if typical.basis == Basis::Spans {
        let text = match (all, all.saturating_sub(out.passes)) {
            (1, _) => format!("the {phase} pass was disturbed: {causes}"),
            (_, 0) => format!("no {phase} pass is clean, so bricks are by median spans: {causes}"),
            (_, n) => {
                let clean = typical.clean.and_then(|clean| clean.tokens_per_second());
                let rate = clean.map_or(String::new(), |rate| format!(" ({} tok/s)", digits(rate)));
                format!(
                    "only {n} of {all} {phase} passes are clean{rate}, so bricks are by median spans: {causes}"
                )
            }
        };
        return Some(Piece { text, tone: Tone::Bad });
    }
    let share = fraction(out.wall_ns as f64 / (total.wall_ns as f64).max(1.0));
    plain(format!("{} of {all} {phase} passes left out ({share} of wall): {causes}", out.passes))
}

/// The rows of bricks, and one that sums up the rest.
fn table(main: &Main, columns: usize, room: usize, text: &mut Summary) {
    let (bar, has_spread, has_rates) = match columns {
        ..110 => (10, false, false),
        110..150 => (20, true, false),
        _ => (30, true, true),
    };
    // The header.
    let room = room.saturating_sub(1).max(3);
    let is_shown = |brick: &&Brick| main.share(brick.own_ns) >= LEAST_SHARE;
    // A table without rows says nothing.
    const LEAST_ROWS: usize = 3;
    let n = main.bricks.iter().take_while(is_shown).count();
    let mut n = n.max(LEAST_ROWS.min(main.bricks.len())).min(room);
    // A row that sums up one brick is as long as its own.
    if n + 1 == main.bricks.len() && n < room {
        n += 1;
    }
    // A name that looks like another one when it is cut has a line of its own.
    let names = |n: usize| main.bricks[..n].iter().map(|brick| &*brick.name);
    // Beside the name: its bar, share, time and place, and the further columns.
    let others = bar + 50 + if has_spread { 22 } else { 0 } + if has_rates { 30 } else { 0 };
    let alike = alike_when_cut(names(n), columns.saturating_sub(others).max(5));
    while n > 1 && n + names(n).filter(|name| alike.contains_key(name)).count() > room {
        n -= 1;
    }
    let shown = &main.bricks[..n];
    let longest = shown.iter().map(|brick| brick.name.chars().count()).max().unwrap_or(0);
    let width = longest.min(columns.saturating_sub(others)).max(5);
    let phase = main.phase.map_or("", Phase::name);
    let each = if main.passes > 0.0 { "× a pass" } else { "× spans" };
    let share = if main.is_of_busy_time { "of busy" } else { "share" };
    let mut header = format!("{phase:bar$} {:width$} {share:>7} {:>10} {each:9}", "brick", "each");
    if has_spread {
        let _ = write!(header, "{:>9}{:>11}", "p50", "p99");
    }
    if has_rates {
        let _ = write!(header, "{:>9}{:>10}{:>11}", "GB/s", "GFLOP/s", "µs above");
    }
    if main.bricks.iter().any(|brick| brick.roof.is_some()) {
        header.push_str("  of its roof");
    }
    text.line(header.trim_end());
    let most = shown.first().map_or(0.0, |brick| brick.own_ns);
    for brick in shown {
        let share = main.share(brick.own_ns);
        let (reach, tone) = brick.reach(share);
        let whole = alike.get(&*brick.name);
        if let Some(whole) = whole {
            text.line(format!("{:bar$} {}", "", cut(whole, columns - bar - 1)));
        }
        let mean = match brick.spans {
            0 => String::new(),
            n => time(brick.own_ns / n as f64),
        };
        let times = match brick.spans as f64 / main.passes {
            each if main.passes > 0.0 && each.is_finite() && brick.spans > 0 => {
                format!("× {}", times(each))
            }
            _ if brick.spans > 0 => format!("× {}", brick.spans),
            _ => String::new(),
        };
        let mut row = format!(
            " {:width$} {:>7} {mean:>10} {times:9}",
            whole.map_or_else(|| cut(&brick.name, width), |_| String::new()),
            fraction(share),
        );
        if has_spread {
            let of = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| time(ns as f64));
            let _ = write!(row, "{:>9}{:>11}", of(brick.p50_ns), of(brick.p99_ns));
        }
        if has_rates {
            let place = brick.roof.as_ref().and_then(|roof| roof.place.as_ref());
            let of = |rate: f64| if rate > 0.0 { digits(rate / 1e9) } else { "-".to_owned() };
            let [bytes, flops, above] = place.map_or([const { String::new() }; 3], |place| {
                let above = format!("{:.1}", place.us_to_roof);
                [of(place.bytes_per_second), of(place.flops_per_second), above]
            });
            let _ = write!(row, "{bytes:>9}{flops:>10}{above:>11}");
        }
        row.push_str("  ");
        text.lines.push(vec![
            Piece { text: bar_of(brick.own_ns / most, bar), tone },
            Piece { text: screened_lines(row), tone: Tone::Plain },
            Piece { text: screened_lines(reach), tone },
        ]);
    }
    let rest = &main.bricks[n..];
    if !rest.is_empty() {
        let sum: f64 = rest.iter().map(|brick| brick.own_ns).sum();
        let text_of_rest = format!("{} more, {} together", rest.len(), fraction(main.share(sum)));
        text.line(format!("{:bar$} {text_of_rest}", "…"));
    }
}

/// `parts` in a line, without the last ones if it would be too long.
fn fitting(parts: Vec<String>, columns: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let more = if line.is_empty() { part } else { format!(" · {part}") };
        if !line.is_empty() && line.chars().count() + more.chars().count() > columns {
            break;
        }
        line += &more;
    }
    cut(&line, columns)
}

/// `unattributed 0.1 % · profiling cost 0.2 %`
fn ends(profile: &Profile, main: &Main) -> Vec<String> {
    let mut parts = Vec::new();
    let is_of_tests = profile.imported.is_some() && main.bricks.is_empty();
    if main.unattributed_ns.is_some() && !is_of_tests {
        let of = if main.is_of_busy_time { " of the span" } else { "" };
        parts.push(format!("{} {}{of}", main.rest, fraction(main.unattributed())));
        if let Some(ns) = main.at_once_ns.filter(|&ns| ns > 0.0) {
            parts.push(format!("several streams at once {}", fraction(main.share(ns))));
        }
    }
    let wall: u64 = profile.phases.iter().map(|phase| phase.wall_ns).fold(0, u64::saturating_add);
    let cost = profile.overhead.estimate_ns().filter(|_| profile.overhead.spans > 0 && wall > 0);
    match (&profile.overhead.measured, cost) {
        (Some(measured), _) => {
            let part = 100.0 * measured.estimate;
            parts.push(format!("profiling cost {part:+.1} % (measured)"));
        }
        (None, Some(ns)) => {
            parts.push(format!("profiling cost {} (estimate)", fraction(ns / wall as f64)))
        }
        (None, None) => parts.push("profiling cost unknown".to_owned()),
    }
    if !profile.tiles.is_empty() {
        parts.push("tiles: `--full`".to_owned());
    }
    if main.bricks.iter().any(|brick| brick.name.ends_with('†')) {
        parts.push("† host order".to_owned());
    }
    if main.bricks.iter().any(|brick| brick.roof.is_some()) {
        let how = if main.is_stated_roof { "stated" } else { "measured" };
        parts.push(format!("roof: {how} limit"));
    }
    if let Some(load) = profile.other_load.as_ref().filter(|load| load.others_share() >= 0.01) {
        parts.push(format!("other programs {} of the CPUs", fraction(load.others_share())));
    }
    parts
}

/// `brickscope-synth-110m, q8_0`, `avx512, 2 threads`, `AMD EPYC, 2 CPUs`
fn what_ran(profile: &Profile) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(model) = &profile.model {
        let name = model.name.as_deref().map_or_else(|| printable_text(&model.path), printable);
        // A table of llama-bench has no path.
        let name = if name.is_empty() { printable(&model.architecture) } else { name };
        let random = if model.synthetic { ", random weights" } else { "" };
        let quantization = match model.quantization.as_str() {
            "" => String::new(),
            of => format!(", {}", printable(of)),
        };
        parts.push(format!("{name}{quantization}{random}"));
    }
    if let Some(run) = &profile.run {
        let threads = match run.threads {
            0 => String::new(),
            n => format!(", {}", count(n.into(), "thread")),
        };
        let tokens = match (run.prompt_tokens, run.generated_tokens) {
            (0, 0) => String::new(),
            (prompt, generated) => format!(", {prompt} + {generated} tokens"),
        };
        parts.push(format!("{}{threads}{tokens}", printable(&run.backend)));
    }
    if let Some(machine) = &profile.machine {
        let cpus = machine.logical_cpus;
        let cpus = cpus.map_or(String::new(), |n| format!(", {}", count(n.into(), "CPU")));
        let cpu = machine.cpu.as_deref().unwrap_or("unnamed CPU");
        parts.push(format!("{}{cpus}", printable(cpu)));
    }
    parts
}

/// What the longest kind of copies moved on the device whose bricks are shown: `of which Memcpy HtoD moves 25.5 GB in 921 ms,
/// 27.7 GB/s`. `None` if its bytes aren't stated.
fn copies(profile: &Profile, phase: Option<Phase>) -> Option<String> {
    let has_totals =
        |device: &&DeviceProfile| device.streams.iter().any(|stream| !stream.totals.is_empty());
    let device = profile.devices.iter().find(has_totals)?;
    let totals = device.streams.iter().flat_map(|stream| &stream.totals);
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for total in totals.filter(|total| {
        total.kind == NameKind::Kernel
            && total.stats.name.starts_with(kernels::COPY)
            && (phase.is_none() || total.phase == phase)
    }) {
        let (ns, bytes) = sums.entry(&total.stats.name).or_default();
        *ns = ns.saturating_add(total.stats.total_ns);
        *bytes = bytes.saturating_add(total.stats.total_bytes);
    }
    let (name, (ns, bytes)) = sums.into_iter().max_by_key(|&(_, (ns, _))| ns)?;
    let rate = kernels::rate(bytes, ns)?;
    let (bytes, ns) = (size(bytes as f64), time(ns as f64));
    Some(format!("of which {} moves {bytes} in {ns}, {rate}", printable(name)))
}

/// Where a device's kernels are, after a colon, if any were recorded: the full report has its bricks alone.
fn kernels_of(profile: &Profile) -> &'static str {
    let has_kernels = profile.devices.iter().any(|device| {
        let mut totals = device.streams.iter().flat_map(|stream| &stream.totals);
        totals.any(|total| total.kind == NameKind::Kernel)
    });
    if has_kernels { ": `brickscope show RUN --as kernels` lists its kernels" } else { "" }
}

/// What to do first, in a sentence without its first capital letter: what [`Findings`] have first, or where they have
/// nothing, what would tell more.
#[must_use]
pub fn next_step(profile: &Profile) -> String {
    screened_lines(next(profile, &Main::of(profile), &Findings::of(profile)))
}

fn next(profile: &Profile, main: &Main, findings: &Findings) -> String {
    if profile.not_finite.is_some() {
        return "find out where the values stop being numbers before trusting any time".to_owned();
    }
    if !profile.devices.is_empty() {
        if let Some(first) = first_of(main, findings) {
            return first.sentence().to_owned();
        }
        let longest = main.bricks.iter().max_by(|a, b| a.own_ns.total_cmp(&b.own_ns));
        let gaps_ns = main.unattributed_ns.unwrap_or(0.0);
        let longest_ns = longest.map_or(0.0, |brick| brick.own_ns);
        if let Some(next) =
            main.phase.and_then(|phase| by_the_file::wait(profile, phase, longest_ns))
        {
            return next;
        }
        if let Some(next) =
            by_the_file::without_passes_next(profile).filter(|_| main.phase.is_none())
        {
            return next;
        }
        return match longest {
            Some(longest) if longest.own_ns > gaps_ns => {
                let share = fraction(main.share(longest.own_ns));
                let name = brief(&longest.name);
                let place = longest.roof.as_ref().and_then(|roof| roof.place.as_ref());
                match (place.filter(|place| place.reach != Reach::Above), &main.layers) {
                    (Some(place), _) => format!(
                        "look at {name}, {share} of the device's time there, at {} of its roof{}",
                        whole_percent(place.of_roof),
                        kernels_of(profile)
                    ),
                    (None, Some(of)) => layers::next(of, &longest.name, &share),
                    (None, None) => {
                        let moved = copies(profile, main.phase).filter(|_| longest.name == "Copy");
                        let moved = moved.map_or_else(String::new, |moved| format!(", {moved}"));
                        let kernels = kernels_of(profile);
                        format!(
                            "look at {name}, {share} of the device's time there{moved}{kernels}"
                        )
                    }
                }
            }
            _ => {
                let of_rank =
                    main.phase.and_then(|phase| by_the_file::of_other_rank_next(profile, phase));
                of_rank.unwrap_or_else(|| {
                    "look at the gaps between bricks on the device in the full report".to_owned()
                })
            }
        };
    }
    if main.bricks.is_empty() {
        if let Some(next) = imported::next(profile) {
            return findings.found.first().map_or(next, |first| first.sentence().to_owned());
        }
        // Requests tell what they waited for without bricks, too.
        let is_of_requests = |finding: &&Finding| finding.waits.is_some() && !finding.is_refuted();
        if let Some(first) = findings.found.iter().find(is_of_requests) {
            return first.sentence().to_owned();
        }
        return match main.phase {
            _ if profile.sync_mode == SyncMode::None => {
                "use another sync mode: the mode `none` times nothing".to_owned()
            }
            Some(_) => "time bricks inside the pass, to see where its time goes".to_owned(),
            None if !profile.requests.is_empty() => {
                "put it beside the server's run: brickscope requests SERVER_RUN --client RUN"
                    .to_owned()
            }
            None => "begin a pass and time bricks inside it".to_owned(),
        };
    }
    if let Some(serialised) = main.phase.and_then(|phase| profile.serialised(phase)) {
        let longest = &main.bricks[0];
        return format!(
            "look at {}, {} of passes whose nodes ran one at a time; the profiler of {} itself tells what they take \
             together",
            longest.name,
            fraction(main.share(longest.own_ns)),
            printable_text(&serialised.devices.join(", "))
        );
    }
    if let Some(first) = first_of(main, findings) {
        return first.sentence().to_owned();
    }
    let longest = &main.bricks[0];
    let longest_is =
        format!("{} takes the most time, {}", longest.name, fraction(main.share(longest.own_ns)));
    if main.verdict.is_some() || profile.imported.is_some() {
        longest_is
    } else if is_of_device(profile)
        && let Some(why) = &profile.ceilings_absent
    {
        // The machine's ceilings aren't the device's.
        format!("{longest_is}; {}", printable_text(&why.reason))
    } else if profile.ceilings.is_none() {
        format!(
            "{longest_is}; ceilings (`brickscope machine --add-to RUN`) would say how fast it could be"
        )
    } else {
        format!("{longest_is}; state its FLOPs and bytes to see how fast it could be")
    }
}

/// The first finding about the phase that the screen shows, or about the whole run. A straggler that could save little isn't
/// worth a look before bricks.
fn first_of<'f>(main: &Main, findings: &'f Findings) -> Option<&'f Finding> {
    let is_little = |gain: Gain| gain.highest_ns < LEAST_LEAD * gain.now_ns;
    let is_meant = |finding: &&Finding| {
        (finding.phase.is_none() || finding.phase == main.phase)
            && !finding.is_refuted()
            && !(finding.rule == rank_last::RULE && finding.gain.is_some_and(is_little))
    };
    findings.found.iter().find(is_meant)
}

/// A bar of `share` of `width` characters, in steps of an eighth.
fn bar_of(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = ((share * width as f64 * 8.0).round() as usize).max(1);
    let bar = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    let blank = width.saturating_sub(bar.chars().count());
    bar + &" ".repeat(blank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_before_a_word_and_never_within_a_figure() {
        let text = "other programs took the CPU (1), 2 stalls, the longest of 4.33 ms in layer 7";
        assert_eq!(cut_at_a_word(text, 200), text);
        let expected = "other programs took the CPU (1), 2 stalls, the longest of …";
        for most in [expected.chars().count() + 4, expected.chars().count() + 5] {
            assert_eq!(cut_at_a_word(text, most), expected, "{most}");
        }
    }
}
