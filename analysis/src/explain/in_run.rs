//! What a run says of a word.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use brickscope_profile::text::{count, percent, printable, printable_text};
use brickscope_profile::{
    Absent, Busy, DeviceProfile, NameKind, Pass, Percentiles, Phase, Profile, Source, Total,
};
use serde::Serialize;

use super::{Group, Page, Section, of_requests, on_streams};
use crate::findings::{Finding, Findings, Unknown};
use crate::ran;
use crate::rate::{self, ByDevice, Rate, imported_tests};
use crate::roofline::{Reach, Roofline, RooflineBrick};
use crate::typical::{self, Basis, Typical};
use crate::words::{digits, fraction, size, time, times, whole_percent};

/// What a run says of a word.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct InRun {
    /// It as text.
    pub sections: Vec<Section>,
    /// The figures of a brick, one for each phase.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bricks: Vec<BrickInRun>,
    /// What a rule found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<Finding>,
    /// What a rule could not tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<Unknown>,
}

/// A brick in a phase, by the passes that the first screen goes by.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BrickInRun {
    /// The phase.
    pub phase: Phase,
    /// How its times were obtained.
    pub source: Source,
    /// The passes that these figures are of.
    pub passes: u64,
    /// Its spans in these passes.
    pub spans: u64,
    /// What it takes in a pass, without bricks inside of it, in nanoseconds.
    pub pass_ns: f64,
    /// The part of the pass in which it ran, on several streams of a device at once counted once: 0 to 1.
    pub share: f64,
    /// Whether it ran on several streams at once, so that what it takes is no part of the pass.
    #[serde(skip)]
    is_at_once: bool,
    /// Its stated FLOPs in a pass; `None` if none were stated.
    pub flops: Option<f64>,
    /// Its stated bytes in a pass; `None` if none were stated.
    pub bytes: Option<f64>,
    /// Where it stands below the roof; without `place`, why that isn't known.
    pub roof: Option<RooflineBrick>,
    /// Each layer, and what it takes there in a pass, in nanoseconds: the median over passes, or the mean where single
    /// spans were not kept. Empty if layers were not recorded.
    pub layers: Vec<(u16, f64)>,
}

/// From this ratio to the median of the layers on, a layer differs.
const DIFFERS: f64 = 1.25;
/// Layers that are named.
const MOST_LAYERS: usize = 4;
/// Bricks that are named.
const MOST_NAMED: usize = 4;
/// With fewer layers, none is an exception.
const LEAST_LAYERS: usize = 4;

impl Page {
    /// What a run says of the word: of a brick its figures, of a rule what it found, of a term its figures where it has
    /// some.
    #[must_use]
    pub fn in_run(&self, profile: &Profile) -> InRun {
        match self.group {
            Group::Brick => brick_in_run(profile, &self.word),
            Group::Rule => of_rule(profile, &self.word),
            Group::Term => {
                let mut sections = of_term(profile, &self.word);
                if sections.is_empty() {
                    let has_passes = phases(&where_it_ran(profile).0).next().is_some();
                    sections.push(match has_passes || !is_of_passes(&self.word) {
                        true => Section::new("", "a run has no figure of this word"),
                        false => Section::new("", "unknown: this run has no passes"),
                    });
                }
                InRun { sections, ..InRun::default() }
            }
        }
    }
}

/// The run, or its first device that ran bricks, with the device's name: its clock timed them.
fn where_it_ran(profile: &Profile) -> (Cow<'_, Profile>, Option<String>) {
    let of_device = |nth: usize| {
        let whole = profile.whole_device(nth).filter(|of| !of.totals.is_empty())?;
        Some((Cow::Owned(whole), Some(printable(&profile.devices[nth].name))))
    };
    (0..profile.devices.len()).find_map(of_device).unwrap_or((Cow::Borrowed(profile), None))
}

fn phases(profile: &Profile) -> impl Iterator<Item = Phase> {
    Phase::SHOWN.into_iter().filter(|&phase| profile.phase(phase).is_some())
}

/// A brick on all streams of a device that has several, as parts of the time from the first mark on any stream to the last: as
/// the first screen has it.
fn on_all_streams(whole: &Profile, phase: Phase, name: &str) -> Option<BrickInRun> {
    let (device, busy) = on_streams::of(whole, phase)?;
    let is_it = |total: &&Total| {
        let is_brick = total.kind == NameKind::Brick && total.category.is_some();
        total.phase == Some(phase) && is_brick && total.stats.name == name
    };
    let mut totals = device.streams.iter().flat_map(|of| of.totals.iter().filter(is_it));
    let mut sum = totals.next()?.clone();
    for total in totals {
        let (of, more) = (&mut sum.stats, &total.stats);
        of.exclusive_ns = of.exclusive_ns.saturating_add(more.exclusive_ns);
        of.count = of.count.saturating_add(more.count);
        of.total_flops = of.total_flops.saturating_add(more.total_flops);
        of.total_bytes = of.total_bytes.saturating_add(more.total_bytes);
    }
    // Time on several streams at once counts once.
    let ran_ns = ran::by(whole, device, phase, |_, name| name).remove(name)?.ns()?;
    // No roof, since streams share the device's memory.
    let brick = BrickInRun::of(phase, busy.passes, busy.span_ns, &sum, None, Vec::new());
    let is_at_once = ran_ns < sum.stats.exclusive_ns;
    let share = ran_ns as f64 / busy.span_ns.max(1) as f64;
    Some(BrickInRun { share, is_at_once, ..brick })
}

/// What a run says of a brick, which may be one of the engine's own. Without figures if the run has no such brick.
fn brick_in_run(whole: &Profile, name: &str) -> InRun {
    let (profile, device) = where_it_ran(whole);
    let shown = typical::shown(&profile);
    let bricks: Vec<BrickInRun> = phases(&profile)
        .filter_map(|phase| {
            if let Some(brick) = on_all_streams(whole, phase, name) {
                return Some(brick);
            }
            let judged = typical::judged(&profile, phase);
            let total = *judged.phase(phase)?;
            let totals = judged.bricks(Some(phase));
            let brick = *totals.iter().find(|brick| brick.stats.name == name)?;
            let by_layer = by_layer(&shown, phase, name);
            let roofline = Roofline::of_sums(&judged, phase).ok();
            let roof = roofline
                .and_then(|roofline| roofline.bricks.into_iter().find(|of| of.name == name));
            Some(BrickInRun::of(phase, total.passes, total.wall_ns, brick, roof, by_layer))
        })
        .collect();
    let mut sections = Vec::new();
    if let Some(device) = device.filter(|_| !bricks.is_empty()) {
        sections.push(Section::new("timed by", format!("the clock of {device}")));
    }
    for brick in &bricks {
        brick.say(&profile, &mut sections);
    }
    if bricks.is_empty() {
        let outside = profile.bricks(None).into_iter().find(|brick| brick.stats.name == name);
        sections.push(match outside {
            Some(brick) => Section::new(
                "outside",
                format!(
                    "{} in {}, outside of passes",
                    time(brick.stats.exclusive_ns as f64),
                    count(brick.stats.count, "span")
                ),
            ),
            None => Section::new("", "no span of this brick was recorded"),
        });
    }
    InRun { sections, bricks, ..InRun::default() }
}

/// What a brick takes in a pass in each layer: the median over the passes that were not left out, or where single spans
/// were not kept, or not those of all passes, the mean of all.
fn by_layer(shown: &Profile, phase: Phase, name: &str) -> Vec<(u16, f64)> {
    if shown.spans.is_empty() || shown.kept.is_some() {
        let passes = shown.phase(phase).map_or(1.0, |total| total.passes as f64).max(1.0);
        let rows = shown.layers.iter();
        let mut means: Vec<(u16, f64)> = rows
            .filter(|row| row.phase == Some(phase) && row.name == name)
            .filter_map(|row| Some((row.layer?, row.exclusive_ns as f64 / passes)))
            .collect();
        means.sort_by_key(|(layer, _)| *layer);
        return means;
    }
    let is_shown = |pass: &&Pass| pass.phase == phase && !pass.is_left_out;
    let passes: HashSet<u32> =
        shown.passes.iter().filter(is_shown).map(|pass| pass.serial).collect();
    let is_meant = |index: u16| {
        let of = shown.names.get(usize::from(index));
        of.is_some_and(|of| of.kind == NameKind::Brick && of.name == name)
    };
    let mut sums: BTreeMap<u16, HashMap<u32, u64>> = BTreeMap::new();
    for span in &shown.spans {
        if let (Some(index), Some(layer), Some(pass)) = (span.name, span.layer, span.pass)
            && passes.contains(&pass)
            && is_meant(index)
        {
            let sum = sums.entry(layer).or_default().entry(pass).or_default();
            *sum = sum.saturating_add(span.exclusive_ns);
        }
    }
    let median = |of_passes: HashMap<u32, u64>| {
        let mut all: Vec<u64> = of_passes.into_values().collect();
        all.sort_unstable();
        all[(all.len() - 1) / 2] as f64
    };
    sums.into_iter().map(|(layer, of_passes)| (layer, median(of_passes))).collect()
}

impl BrickInRun {
    fn of(
        phase: Phase,
        passes: u64,
        wall_ns: u64,
        brick: &Total,
        roof: Option<RooflineBrick>,
        layers: Vec<(u16, f64)>,
    ) -> Self {
        let stats = &brick.stats;
        let a_pass = |sum: u64| sum as f64 / passes.max(1) as f64;
        let stated = |sum: u64| (sum > 0).then(|| a_pass(sum));
        Self {
            phase,
            source: brick.source,
            passes,
            spans: stats.count,
            pass_ns: a_pass(stats.exclusive_ns),
            share: stats.exclusive_ns as f64 / wall_ns.max(1) as f64,
            is_at_once: false,
            flops: stated(stats.total_flops),
            bytes: stated(stats.total_bytes),
            roof,
            layers,
        }
    }

    fn say(&self, profile: &Profile, sections: &mut Vec<Section>) {
        let phase = self.phase.name();
        let each = self.pass_ns / (self.spans as f64 / self.passes.max(1) as f64);
        let spans = match self.spans {
            // A file may not say how many.
            0 => String::new(),
            n => format!(" ({} × {})", time(each), times(n as f64 / self.passes.max(1) as f64)),
        };
        let source = match self.source {
            Source::HostOrder => "; by host order: when it was issued",
            Source::Host | Source::Device => "",
        };
        let at_once = if self.is_at_once { " on streams that overlap" } else { "" };
        sections.push(Section::new(
            phase,
            format!(
                "{} a pass{spans}{at_once}, {} of it; of {}{source}",
                time(self.pass_ns),
                fraction(self.share),
                passes(self.passes)
            ),
        ));
        let work = match (self.flops, self.bytes) {
            (None, None) => "its FLOPs and bytes were not stated".to_owned(),
            (Some(flops), Some(bytes)) => format!(
                "{} and {} a pass: {} FLOP/byte",
                operations(flops),
                size(bytes),
                digits(flops / bytes)
            ),
            (None, Some(bytes)) => format!("{} a pass; its FLOPs were not stated", size(bytes)),
            (Some(flops), None) => {
                format!("{} a pass; its bytes were not stated", operations(flops))
            }
        };
        sections.push(Section::new("work", work));
        sections.push(Section::new("roof", self.distance(profile)));
        if let Some(layers) = self.differences() {
            sections.push(Section::new("layers", layers));
        }
    }

    /// How far it is from its roof.
    fn distance(&self, profile: &Profile) -> String {
        let Some(roof) = &self.roof else {
            let why = profile.ceilings_absent.as_ref().map_or("", |Absent { reason }| reason);
            return match why {
                "" => "unknown: this run has no ceilings of its machine".to_owned(),
                why => format!("unknown: {}", printable_text(why)),
            };
        };
        let Some(place) = &roof.place else {
            let why = roof.absent.as_ref().map_or("", |Absent { reason }| reason);
            return format!("unknown: {}", printable_text(why));
        };
        let reach = match place.reach {
            Reach::At => "at the roof",
            Reach::Near => "near it",
            Reach::Far => "far from it",
            Reach::Kernel => "as far as its own code takes it",
            Reach::Above => "above it: the stated work or the ceiling is wrong",
            Reach::Unsettled => {
                "which swung or was measured beside others, so near or far can't be told"
            }
        };
        let pace = place.pace.as_ref().map_or(String::new(), |pace| format!("; {}", pace.says()));
        let above = match place.us_to_roof * 1e3 {
            ns if ns > 0.0 => format!("; {} a span above its least time", time(ns)),
            _ => String::new(),
        };
        format!(
            "{} of its roof, {reach}; bound by {}{above}{pace}",
            whole_percent(place.of_roof),
            printable(place.limit())
        )
    }

    /// In which layers it differs.
    fn differences(&self) -> Option<String> {
        let mut sorted: Vec<f64> = self.layers.iter().map(|(_, ns)| *ns).collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (sorted.first()?, sorted.last()?);
        if sorted.len() < 2 {
            return None;
        }
        let range =
            format!("{} to {} a pass in {} layers", time(*least), time(*most), sorted.len());
        if sorted.len() < LEAST_LAYERS {
            return Some(range);
        }
        let median = sorted[(sorted.len() - 1) / 2];
        let differs = |ns: f64| ns > DIFFERS * median || ns * DIFFERS < median;
        let named: Vec<String> = self
            .layers
            .iter()
            .filter(|(_, ns)| differs(*ns))
            .map(|(layer, ns)| format!("{layer} ({})", time(*ns)))
            .collect();
        Some(match named.len() {
            0 => format!("{range}: none differs by a quarter from the median"),
            n if n > MOST_LAYERS => {
                let first = named[..MOST_LAYERS].join(", ");
                format!("{range}; {n} differ by a quarter from the median: layers {first} …")
            }
            n => {
                let layers = if n == 1 { "layer" } else { "layers" };
                let named = named.join(", ");
                format!("{range}; differing by a quarter from the median: {layers} {named}")
            }
        })
    }
}

fn passes(n: u64) -> String {
    format!("{n} {}", if n == 1 { "pass" } else { "passes" })
}

/// `24.0 MFLOP`
fn operations(flops: f64) -> String {
    match flops {
        _ if flops < 1e6 => format!("{} kFLOP", digits(flops / 1e3)),
        _ if flops < 1e9 => format!("{} MFLOP", digits(flops / 1e6)),
        _ => format!("{} GFLOP", digits(flops / 1e9)),
    }
}

fn of_rule(profile: &Profile, rule: &str) -> InRun {
    let findings = Findings::of(profile);
    let has_looked = findings.has_looked;
    let why_not = findings.unknown.first().map(|unknown| unknown.why.clone());
    let is_of = |name: &str| name == rule;
    let found: Vec<Finding> = findings.found.into_iter().filter(|of| is_of(of.rule)).collect();
    let unknown: Vec<Unknown> = findings.unknown.into_iter().filter(|of| is_of(of.rule)).collect();
    let mut sections = Vec::new();
    for finding in &found {
        sections.push(Section::new("found", printable_text(&finding.what)));
        sections.push(Section::new("predicted", finding.prediction()));
        sections.push(Section::new("do", printable_text(&finding.advice)));
        let test = finding.test.as_deref();
        sections.extend(test.map(|test| Section::new("test", printable_text(test))));
    }
    sections.extend(unknown.iter().map(|of| Section::new("not known", printable_text(&of.why))));
    let needs_spans = matches!(rule, "slow-layer" | "stalls");
    if sections.is_empty() && has_looked && needs_spans && profile.spans.is_empty() {
        sections.push(Section::new("not known", "single spans were not kept"));
    }
    if sections.is_empty() {
        sections.push(match why_not.filter(|_| !has_looked) {
            Some(why) => Section::new("not known", printable_text(&why)),
            None if !has_looked => Section::new("not known", "no pass was timed on the host"),
            None => Section::new("found", "nothing: this run doesn't have what the rule fires on"),
        });
    }
    InRun { sections, found, unknown, ..InRun::default() }
}

/// Whether a term has figures of passes.
fn is_of_passes(term: &str) -> bool {
    [
        "near",
        "far",
        "at roof",
        "swings",
        "µs above",
        "percentile",
        "brick",
        "share",
        "own time",
        "roofline",
        "roof",
        "ceiling",
        "ridge",
        "memory-bound",
        "compute-bound",
        "arithmetic intensity",
        "stall",
        "disturbed",
        "unattributed",
        "phase",
        "pass",
        "wall",
        "typical",
    ]
    .contains(&term)
}

const NO_DEVICE: &str = "none: the host's clock timed this run";

/// The figures of a term, where a run has some.
fn of_term(profile: &Profile, term: &str) -> Vec<Section> {
    let each = |of: fn(&Profile, Phase) -> Option<String>| -> Vec<Section> {
        let (at, _) = where_it_ran(profile);
        let figure = |phase: Phase| Some(Section::new(phase.name(), of(&at, phase)?));
        phases(&at).filter_map(figure).collect()
    };
    // Of a device with several streams, and else.
    type Figure = fn(&Profile, Phase) -> Option<String>;
    let each_or = |on_streams: Figure, of: Figure| -> Vec<Section> {
        let (at, _) = where_it_ran(profile);
        let figure = |phase: Phase| {
            let text = on_streams(profile, phase).or_else(|| of(&at, phase))?;
            Some(Section::new(phase.name(), text))
        };
        phases(&at).filter_map(figure).collect()
    };
    match term {
        "decode" => of_phase(profile, Phase::Decode),
        "prefill" => of_phase(profile, Phase::Prefill),
        "encode" => of_phase(profile, Phase::Encode),
        "training" => of_phase(profile, Phase::Training),
        "near" => each(|profile, phase| reach_of(profile, phase, Reach::Near)),
        "far" => each(|profile, phase| reach_of(profile, phase, Reach::Far)),
        "at roof" => each(|profile, phase| reach_of(profile, phase, Reach::At)),
        "swings" => each(|profile, phase| reach_of(profile, phase, Reach::Unsettled)),
        "µs above" => each(above),
        "percentile" => each(percentiles),
        "phase" | "pass" | "wall" | "typical" => {
            phases(profile).flat_map(|phase| of_phase(profile, phase)).collect()
        }
        "brick" | "share" | "own time" => each_or(on_streams::longest, longest),
        "span" => vec![Section::new(
            "spans",
            format!("{} recorded, {} kept one by one", profile.overhead.spans, profile.spans.len()),
        )],
        "unattributed" => each_or(on_streams::gaps, unattributed),
        "roofline" | "roof" | "ceiling" | "ridge" => {
            let mut sections = each(roof);
            sections.truncate(1);
            sections.iter_mut().for_each(|section| section.label = "ceilings".to_owned());
            sections.extend(each(reach));
            sections
        }
        "memory-bound" | "compute-bound" => each(reach),
        "arithmetic intensity" => each(intensity),
        "stall" => each(stalls),
        "disturbed" => each(disturbed),
        "gap" => {
            let mut sections = on_devices(profile, |busy| busy.idle_ns);
            sections.extend(of_rule(profile, "gaps-between-passes").sections);
            sections
        }
        "busy" | "overlap" | "stream" if profile.devices.is_empty() => {
            vec![Section::new("devices", NO_DEVICE)]
        }
        "busy" => on_devices(profile, |busy| busy.busy_ns),
        "overlap" => on_devices(profile, |busy| busy.overlap_ns),
        "stream" => {
            let of = |device: &DeviceProfile| {
                let names = device.streams.iter().map(|stream| printable(&stream.name));
                Section::new(printable(&device.name), names.collect::<Vec<_>>().join(", "))
            };
            profile.devices.iter().map(of).collect()
        }
        "wait" => ["threads-wait", "waits-for-a-cpu"]
            .into_iter()
            .flat_map(|rule| of_rule(profile, rule).sections)
            .collect(),
        "finding" => vec![Section::new("found", {
            let findings = Findings::of(profile);
            let rules: Vec<&str> = findings.found.iter().map(|finding| finding.rule).collect();
            match rules.len() {
                0 => "nothing".to_owned(),
                _ => rules.join(", "),
            }
        })],
        "overhead" => vec![Section::new("overhead", overhead(profile))],
        "device" => {
            let names: Vec<String> =
                profile.devices.iter().map(|device| printable(&device.name)).collect();
            let text = if names.is_empty() { NO_DEVICE.to_owned() } else { names.join(", ") };
            vec![Section::new("devices", text)]
        }
        _ => of_requests::of_term(profile, term),
    }
}

/// What a figure of each device is in the passes of each phase, or of all of its time in a run without passes.
fn on_devices(profile: &Profile, of: fn(&Busy) -> u64) -> Vec<Section> {
    let mut sections = Vec::new();
    for device in &profile.devices {
        let name = match profile.devices.len() {
            1 => String::new(),
            _ => format!(", {}", printable(&device.name)),
        };
        let mut add = |label: String, busy: &Busy| {
            let (nanos, all) = (of(busy) as f64, busy.span_ns as f64);
            let text = format!("{} of {}, {}", time(nanos), time(all), percent(nanos, all));
            sections.push(Section::new(label, text));
        };
        let mut has_passes = false;
        for phase in Phase::ALL {
            if let Ok(busy) = device.busy(Some(phase)) {
                has_passes = true;
                add(format!("{}{name}", phase.name()), &busy);
            }
        }
        match (has_passes, device.busy_overall(), device.busy(None)) {
            (true, ..) => {}
            (_, Some(busy), _) => add(format!("from first to last{name}"), &busy),
            (_, None, Err(why)) => {
                sections
                    .push(Section::new(format!("not known{name}"), printable_text(&why.reason)));
            }
            _ => {}
        }
    }
    sections
}

fn of_phase(profile: &Profile, phase: Phase) -> Vec<Section> {
    let Some(total) = profile.phase(phase) else {
        let tests = imported_tests(profile).into_iter().filter(|test| test.phase == Some(phase));
        let tests = tests.map(|of| Section::new(of.name, format!("{} tok/s, {}", of.rate, of.how)));
        let tests: Vec<Section> = tests.collect();
        return match tests.is_empty() {
            true => vec![Section::new("", format!("this run has no pass of {phase}"))],
            false => tests,
        };
    };
    let mut text = passes(total.passes);
    if total.tokens > 0 {
        text.push_str(&format!(", {}", count(total.tokens, "token")));
    }
    if let Some(typical) = Typical::of(profile, phase).filter(|typical| typical.wall.ns > 0.0) {
        let interval = match typical.wall.interval_ns {
            Some([low, high]) if low < high => format!(" ({} to {})", time(low), time(high)),
            _ => String::new(),
        };
        let basis = match typical.basis {
            Basis::Passes => "typically",
            Basis::Spans => "by median spans",
            Basis::Sums => "on average",
        };
        let ns = typical::median_pass_ns(profile, phase).unwrap_or(typical.wall.ns);
        text.push_str(&format!("; {basis} {} each{interval}", time(ns)));
    }
    let of_benchmark = rate::repeated(profile, phase).zip(rate::of_profile(profile, phase));
    let rate = Rate::of(profile, phase).map(|rate| digits(rate.tokens_per_second));
    let rate = match (rate, of_benchmark) {
        (Some(rate), Some((of, which))) => {
            format!("; {rate} tokens a second: {}; {which}", rate::basis(of))
        }
        (Some(rate), None) => {
            let by = ByDevice::of(profile, phase)
                .map_or_else(String::new, |by| format!(" by {}", by.says()));
            format!("; {rate} tokens a second{by}")
        }
        (None, _) => String::new(),
    };
    vec![Section::new(phase.name(), text + &rate)]
}

fn longest(profile: &Profile, phase: Phase) -> Option<String> {
    let judged = typical::judged(profile, phase);
    let total = judged.phase(phase)?;
    let bricks = judged.bricks(Some(phase));
    let longest = bricks.first()?;
    Some(format!(
        "{}; the longest is {}, {} of the wall",
        count(bricks.len() as u64, "brick"),
        printable(&longest.stats.name),
        fraction(longest.stats.exclusive_ns as f64 / total.wall_ns.max(1) as f64)
    ))
}

fn unattributed(profile: &Profile, phase: Phase) -> Option<String> {
    let judged = typical::judged(profile, phase);
    let total = judged.phase(phase).filter(|total| total.passes > 0)?;
    Some(format!(
        "{} of {} a pass, {}",
        time(total.unattributed_ns as f64 / total.passes as f64),
        time(total.wall_ns as f64 / total.passes as f64),
        fraction(total.unattributed_ns as f64 / total.wall_ns.max(1) as f64)
    ))
}

fn roof(profile: &Profile, phase: Phase) -> Option<String> {
    Some(match Roofline::of(profile, phase) {
        Ok(roofline) => format!(
            "{} GB/s, {} GFLOP/s, ridge at {} FLOP/byte",
            digits(roofline.peak_bytes_per_second / 1e9),
            digits(roofline.peak_flops_per_second / 1e9),
            digits(roofline.ridge)
        ),
        Err(Absent { reason }) => format!("unknown: {}", printable_text(&reason)),
    })
}

fn reach(profile: &Profile, phase: Phase) -> Option<String> {
    let judged = typical::judged(profile, phase);
    let unknown = || "unknown: no FLOPs and bytes were stated".to_owned();
    Some(match Roofline::of_sums(&judged, phase) {
        Ok(roofline) => roofline.verdict().map_or_else(unknown, |verdict| verdict.says()),
        Err(Absent { reason }) => format!("unknown: {}", printable_text(&reason)),
    })
}

/// The bricks that stand so to their roof, and how the phase does.
fn reach_of(profile: &Profile, phase: Phase, reached: Reach) -> Option<String> {
    let judged = typical::judged(profile, phase);
    let whole = reach(profile, phase)?;
    let Ok(roofline) = Roofline::of_sums(&judged, phase) else { return Some(whole) };
    let all = roofline.bricks.len();
    let named: Vec<String> = roofline
        .bricks
        .iter()
        .filter_map(|brick| Some((brick, brick.place.as_ref()?)))
        .filter(|(_, place)| place.reach == reached)
        .map(|(brick, place)| {
            format!("{} ({})", printable(&brick.name), whole_percent(place.of_roof))
        })
        .collect();
    let bricks = match named.len() {
        0 => format!("none of {}", count(all as u64, "brick")),
        n if n > MOST_NAMED => {
            format!("{n} of {}: {} …", count(all as u64, "brick"), named[..MOST_NAMED].join(", "))
        }
        n => format!("{n} of {}: {}", count(all as u64, "brick"), named.join(", ")),
    };
    Some(format!("{bricks}; the phase: {whole}"))
}

/// Which bricks take how much more than their least time, those with most first.
fn above(profile: &Profile, phase: Phase) -> Option<String> {
    let judged = typical::judged(profile, phase);
    let roofline = match Roofline::of_sums(&judged, phase) {
        Ok(roofline) => roofline,
        Err(Absent { reason }) => return Some(format!("unknown: {}", printable_text(&reason))),
    };
    let mut bricks: Vec<(&str, f64)> = roofline
        .bricks
        .iter()
        .filter_map(|brick| Some((&*brick.name, brick.place.as_ref()?.us_to_roof * 1e3)))
        .filter(|(_, ns)| *ns > 0.0)
        .collect();
    bricks.sort_by(|a, b| b.1.total_cmp(&a.1));
    let named: Vec<String> = bricks
        .iter()
        .take(MOST_NAMED)
        .map(|(name, ns)| format!("{} {} a span", printable(name), time(*ns)))
        .collect();
    Some(if named.is_empty() {
        "no brick has a place below its roof".to_owned()
    } else {
        named.join(", ")
    })
}

/// The percentiles of a token, and of the longest brick.
fn percentiles(profile: &Profile, phase: Phase) -> Option<String> {
    let shown = typical::shown(profile);
    let mut parts = Vec::new();
    let listed = |p: &Percentiles| {
        let all = [("p50", p.p50_ns), ("p90", p.p90_ns), ("p95", p.p95_ns), ("p99", p.p99_ns)];
        let known: Vec<String> = all
            .into_iter()
            .filter_map(|(name, ns)| Some(format!("{name} {}", time(ns? as f64))))
            .collect();
        known.join(", ")
    };
    if phase == Phase::Decode {
        let of_token = listed(&shown.latency.per_token.percentiles);
        parts.extend((!of_token.is_empty()).then(|| format!("a token: {of_token}")));
    }
    let judged = typical::judged(profile, phase);
    let longest = *judged.bricks(Some(phase)).first()?;
    let of_brick = listed(&longest.percentiles);
    parts.push(match of_brick.is_empty() {
        true => format!(
            "{}: unknown, of {}",
            printable(&longest.stats.name),
            count(longest.stats.count, "span")
        ),
        false => format!("a span of {}: {of_brick}", printable(&longest.stats.name)),
    });
    Some(parts.join("; "))
}

fn intensity(profile: &Profile, phase: Phase) -> Option<String> {
    let judged = typical::judged(profile, phase);
    let bricks = judged.bricks(Some(phase));
    let sum = |of: fn(&Total) -> u64| bricks.iter().map(|brick| of(brick) as f64).sum::<f64>();
    let (flops, bytes) = (sum(|of| of.stats.total_flops), sum(|of| of.stats.total_bytes));
    if flops == 0.0 || bytes == 0.0 {
        return Some("unknown: no FLOPs and bytes were stated".to_owned());
    }
    let ridge = Roofline::of_sums(&judged, phase).ok();
    let ridge = ridge.map(|roofline| format!("; the ridge is at {}", digits(roofline.ridge)));
    Some(format!("{} FLOP/byte{}", digits(flops / bytes), ridge.unwrap_or_default()))
}

fn stalls(profile: &Profile, phase: Phase) -> Option<String> {
    let typical = Typical::of(profile, phase)?;
    if typical.basis == Basis::Sums {
        return Some("unknown: single spans were not kept".to_owned());
    }
    let Some(longest) = typical.stalls.first() else { return Some("none".to_owned()) };
    let brick = longest.brick.as_deref().map_or("the time between bricks".to_owned(), printable);
    let layer = longest.layer.map_or(String::new(), |layer| format!(" of layer {layer}"));
    Some(format!(
        "{}; the longest, {} in {brick}{layer}, where the median is {}",
        typical.stalls.len(),
        time(longest.ns as f64),
        time(longest.median_ns as f64)
    ))
}

fn disturbed(profile: &Profile, phase: Phase) -> Option<String> {
    let total = profile.phase(phase)?;
    let unknown = match total.unwatched {
        None => return Some("unknown: nobody looked at the passes".to_owned()),
        Some(0) => String::new(),
        Some(n) => format!("; not known of {n}"),
    };
    Some(format!("{} of {}{unknown}", total.disturbed, passes(total.passes)))
}

fn overhead(profile: &Profile) -> String {
    if let Some(measured) = &profile.overhead.measured {
        return format!(
            "{} of a decode pass, measured in turns with the profiler off",
            fraction(measured.estimate)
        );
    }
    let wall: f64 = profile.phases.iter().map(|phase| phase.wall_ns as f64).sum();
    match profile.recording_ns() {
        Some(ns) if wall > 0.0 => format!("{} of the passes, by the estimate", fraction(ns / wall)),
        _ => format!("unknown: {}", printable_text(&profile.overhead.basis)),
    }
}
