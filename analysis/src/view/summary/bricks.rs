//! What the table of bricks is of: of the host or of a device, and which time shares are of.

use brickscope_profile::{NameKind, Phase, PhaseTotal, Profile, Total};

use super::lines::Tone;
use crate::findings::slow_layer::SlowLayer;
use crate::layers::DeviceLayers;
use crate::passes::{self, Whole, is_of_device};
use crate::ran::{self, Ran, shown_name};
use crate::roofline::{Reach, Roofline, RooflineBrick, Verdict};
use crate::typical;
use crate::words::whole_percent;

/// What the table of bricks is of.
pub(super) struct Main {
    pub(super) phase: Option<Phase>,
    /// Whether a sentence says how fast it was, since no phase of the host does.
    pub(super) is_told: bool,
    pub(super) bricks: Vec<Brick>,
    /// Their shares are of this.
    pub(super) whole_ns: f64,
    /// Whether its times are of median spans.
    pub(super) is_of_medians: bool,
    /// Whether that is the time in which a device was busy, since that is less than half of all.
    pub(super) is_of_busy_time: bool,
    pub(super) unattributed_ns: Option<f64>,
    /// What the time between bricks is called.
    pub(super) rest: &'static str,
    pub(super) verdict: Option<Verdict>,
    /// Whether the roofs of bricks are of limits that nobody measured.
    pub(super) is_stated_roof: bool,
    pub(super) passes: f64,
    /// Time in which bricks ran on several streams of a device, if there are several. It counts for each of them.
    pub(super) at_once_ns: Option<f64>,
    /// The layers of a device in another program's trace.
    pub(super) layers: Option<DeviceLayers>,
}

pub(super) struct Brick {
    pub(super) name: String,
    pub(super) own_ns: f64,
    /// When it ran, on a device of several streams.
    ran: Option<Ran>,
    pub(super) spans: u64,
    /// Of whole spans, if no other brick lies inside.
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
    pub(super) roof: Option<RooflineBrick>,
}

impl Main {
    pub(super) fn of(profile: &Profile) -> Self {
        if !profile.devices.is_empty() {
            let on_device = (0..profile.devices.len())
                .filter_map(|index| Some((index, profile.whole_device(index)?)))
                .find(|(_, of)| !of.totals.is_empty());
            let mut main = Self::empty();
            if let Some((index, of)) = on_device {
                main = Self::of_host(&of);
                main.all_streams(profile, index);
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
            is_of_medians: false,
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
            is_of_medians: phase.is_some_and(|phase| typical::is_of_medians(profile, phase)),
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

    /// Bricks of all streams, each with all of its time. Their shares are of the time from the first mark on any stream to the
    /// last, in which they ran on one stream at least; without passes, of the time in which anything ran.
    fn all_streams(&mut self, profile: &Profile, index: usize) {
        let Some(device) = profile.devices.get(index) else { return };
        let busy = match self.phase {
            Some(phase) => passes::all_streams(device, phase),
            None => device.busy_overall().filter(|_| device.streams.len() > 1),
        };
        let Some(busy) = busy else { return };
        let mut bricks: Vec<Brick> = Vec::new();
        let of_phase = |total: &&Total| {
            total.phase == self.phase && total.kind == NameKind::Brick && total.category.is_some()
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
        let mut all = match self.phase {
            Some(phase) => {
                ran::by(profile, device, phase, |span, name| shown_name(name, span.source))
            }
            None => ran::overall(profile, device, |span, name| shown_name(name, span.source)),
        };
        for brick in &mut bricks {
            let has_time = brick.own_ns > 0.0;
            let none = || if has_time { Ran::default() } else { Ran::any_of([]) };
            brick.ran = Some(all.remove(&brick.name).unwrap_or_else(none));
        }
        bricks.sort_by(|a, b| b.ran_ns().total_cmp(&a.ran_ns()));
        (self.bricks, self.verdict, self.passes) = (bricks, None, busy.passes as f64);
        self.at_once_ns = Some(busy.overlap_ns as f64);
        match self.phase {
            Some(_) => {
                self.whole_ns = busy.span_ns as f64;
                self.unattributed_ns = Some(busy.idle_ns as f64);
            }
            None => self.whole_ns = busy.busy_ns as f64,
        }
    }

    pub(super) fn share(&self, ns: f64) -> f64 {
        if self.whole_ns > 0.0 { ns / self.whole_ns } else { 0.0 }
    }

    /// The share of bricks in which any of them ran; `None` if it isn't known when that was.
    pub(super) fn share_of(&self, bricks: &[Brick]) -> Option<f64> {
        if let [brick] = bricks {
            return match &brick.ran {
                Some(ran) => ran.ns().map(|ns| self.share(ns as f64)),
                None => Some(self.share(brick.own_ns)),
            };
        }
        let is_on_streams = bricks.iter().any(|brick| brick.ran.is_some());
        let ns = match is_on_streams {
            true => Ran::any_of(bricks.iter().filter_map(|brick| brick.ran.as_ref())).ns()? as f64,
            false => bricks.iter().map(|brick| brick.own_ns).sum(),
        };
        Some(self.share(ns))
    }

    pub(super) fn slow_layer(&self, profile: &Profile) -> Option<SlowLayer> {
        SlowLayer::of(profile, self.phase?)
    }

    /// Of all the time, whatever other shares are of.
    pub(super) fn unattributed(&self) -> f64 {
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
        Self {
            name: shown_name(&stats.name, total.source),
            own_ns: stats.exclusive_ns as f64,
            ran: None,
            spans: stats.count,
            p50_ns: percentiles.and_then(|of| of.p50_ns),
            p99_ns: percentiles.and_then(|of| of.p99_ns),
            roof,
        }
    }

    /// How long it ran: on several streams at once counts once, if it is known when that was.
    pub(super) fn ran_ns(&self) -> f64 {
        self.ran.as_ref().and_then(Ran::ns).map_or(self.own_ns, |ns| ns as f64)
    }

    /// Where it stands below its roof, in at most 20 characters.
    pub(super) fn reach(&self, share: f64) -> (String, Tone) {
        let Some(place) = self.roof.as_ref().and_then(|roof| roof.place.as_ref()) else {
            return (String::new(), Tone::Plain);
        };
        let of_roof = whole_percent(place.of_roof);
        let tone = match place.reach {
            Reach::At => Tone::Good,
            Reach::Above => return (format!("{of_roof}, above it"), Tone::Plain),
            Reach::Near | Reach::Unsettled | Reach::Kernel => Tone::Plain,
            // Red is for what is worth a look.
            Reach::Far if share < 0.05 => Tone::Plain,
            Reach::Far => Tone::Bad,
        };
        (of_roof, tone)
    }
}
