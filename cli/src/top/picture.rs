//! From frames to pictures: each frame with what doesn't change, and what happened since a moment ago.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use brickscope::{
    Absent, BrickKernel, BrickStats, DeviceStream, Latency, LayerBrick, NameKind, Percentiles,
    Phase, PhaseTotal, Profile, Source, Total,
};
use brickscope_live::socket::{Facts, Frame};

/// How far back the newest moment is compared: long enough for a figure that doesn't flicker.
const WINDOW_NS: u64 = 2_000_000_000;
/// With less than this between two frames there is no figure.
const LEAST_WINDOW_NS: u64 = 500_000_000;

/// How an engine stood at a moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    pub(crate) seq: u64,
    /// By the clock of the profile.
    pub(crate) at_ns: u64,
    /// What making frames took until then.
    pub(crate) made_ns: u64,
    /// The engine ended in good order after it.
    pub(crate) is_last: bool,
    /// With the facts, and with the newest table of bricks by layer. Where a device ran the bricks, it is
    /// what that did by its own clock.
    pub(crate) profile: Profile,
    /// The device, if one ran the bricks.
    pub(crate) device: Option<String>,
}

/// What happened between two pictures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Window {
    /// How long that was.
    pub(crate) ns: u64,
    /// The sums of it; what isn't a sum is absent.
    pub(crate) profile: Profile,
    /// What making frames took of it.
    pub(crate) made_ns: u64,
}

/// The pictures of an engine, as far as they are of use.
#[derive(Debug, Default)]
pub(crate) struct Pictures {
    facts: Facts,
    /// The newest that came.
    layers: Vec<LayerBrick>,
    kernels: Vec<BrickKernel>,
    /// The newest last; the first is at least a window old, if there is such a one.
    kept: VecDeque<Rc<Picture>>,
}

impl Pictures {
    pub(crate) fn new(facts: Facts) -> Self {
        Self { facts, ..Self::default() }
    }

    pub(crate) fn newest(&self) -> Option<&Rc<Picture>> {
        self.kept.back()
    }

    pub(crate) fn take(&mut self, frame: Frame) {
        let Frame { seq, at_ns, made_ns, last, mut profile, layers } = frame;
        if layers {
            self.layers.clone_from(&profile.layers);
            self.kernels.clone_from(&profile.brick_kernels);
        } else {
            profile.layers.clone_from(&self.layers);
            profile.brick_kernels.clone_from(&self.kernels);
        }
        self.describe(&mut profile);
        let (profile, device) = where_it_ran(profile);
        let picture = Picture { seq, at_ns, made_ns, is_last: last, profile, device };
        // An engine may forget what it recorded, and begin anew.
        if self.newest().is_some_and(|before| !goes_on(before, &picture)) {
            self.kept.clear();
        }
        self.kept.push_back(Rc::new(picture));
        while self.kept.get(1).is_some_and(|second| at_ns.saturating_sub(second.at_ns) >= WINDOW_NS)
        {
            self.kept.pop_front();
        }
    }

    /// What happened lately.
    ///
    /// # Errors
    ///
    /// If there were too few pictures yet.
    pub(crate) fn window(&self) -> Result<Window, Absent> {
        let ends = self.kept.front().zip(self.kept.back());
        ends.and_then(|(before, now)| Window::between(before, now))
            .ok_or_else(|| Absent { reason: "it takes half a second of frames".to_owned() })
    }

    fn describe(&self, profile: &mut Profile) {
        let Facts { run, model, machine, ceilings, ceilings_absent } = &self.facts;
        profile.run.clone_from(run);
        profile.model.clone_from(model);
        profile.machine.clone_from(machine);
        profile.ceilings.clone_from(ceilings);
        profile.ceilings_absent.clone_from(ceilings_absent);
    }
}

/// What a device did, if the host did nothing but issue the work and wait; and the device.
fn where_it_ran(profile: Profile) -> (Profile, Option<String>) {
    let waits = |total: &Total| total.stats.name == "DeviceWait";
    let host_only_waits = profile.totals.is_empty() || profile.totals.iter().any(waits);
    let attributed = |stream: &DeviceStream| {
        stream.phases.iter().fold(0, |sum: u64, phase| sum.saturating_add(phase.attributed_ns))
    };
    let main = profile.devices.first().filter(|_| host_only_waits).and_then(|device| {
        let streams = device.streams.iter().enumerate();
        let timed = streams.filter(|(_, stream)| !stream.phases.is_empty());
        timed.max_by_key(|(_, stream)| attributed(stream)).map(|(index, _)| index)
    });
    match main.and_then(|stream| profile.on_device(0, stream)) {
        Some(on_device) => {
            let device = Some(profile.devices[0].name.clone());
            (Profile { observed: profile.observed, ..on_device }, device)
        }
        None => (profile, None),
    }
}

/// Whether the sums of `now` can be those of `before` and more.
fn goes_on(before: &Picture, now: &Picture) -> bool {
    let phases = before.profile.phases.iter().all(|earlier| {
        now.profile
            .phase(earlier.phase)
            .is_some_and(|later| later.passes >= earlier.passes && later.wall_ns >= earlier.wall_ns)
    });
    phases && now.at_ns >= before.at_ns && before.device == now.device
}

/// What tells one total from another.
type Key<'p> = (Option<Phase>, NameKind, Source, &'p str, usize);

/// Totals by what they are of. Kernels of the same name that are launched differently are told apart by
/// their order, which stays.
fn by_key(totals: &[Total]) -> HashMap<Key<'_>, &Total> {
    let mut found = HashMap::new();
    for total in totals {
        let mut nth = 0;
        let key = |nth| (total.phase, total.kind, total.source, total.stats.name.as_str(), nth);
        while found.contains_key(&key(nth)) {
            nth += 1;
        }
        found.insert(key(nth), total);
    }
    found
}

impl Window {
    /// `None` if they are too close, or of sums that fell meanwhile.
    fn between(before: &Picture, now: &Picture) -> Option<Self> {
        let ns = now.at_ns.checked_sub(before.at_ns).filter(|&ns| ns >= LEAST_WINDOW_NS)?;
        let mut profile = now.profile.clone();
        profile.latency = Latency::default();
        for phase in &mut profile.phases {
            if let Some(earlier) = before.profile.phase(phase.phase) {
                *phase = phase_between(earlier, phase)?;
            }
        }
        profile.phases.retain(|phase| phase.passes > 0);
        let earlier = by_key(&before.profile.totals);
        let mut seen: HashMap<Key<'_>, ()> = HashMap::new();
        let mut totals = Vec::new();
        for total in &now.profile.totals {
            let mut nth = 0;
            let key = |nth| (total.phase, total.kind, total.source, total.stats.name.as_str(), nth);
            while seen.contains_key(&key(nth)) {
                nth += 1;
            }
            seen.insert(key(nth), ());
            let stats = match earlier.get(&key(nth)) {
                Some(earlier) => stats_between(&earlier.stats, &total.stats)?,
                None => total.stats.clone(),
            };
            if stats.count > 0 {
                let percentiles = Percentiles::default();
                totals.push(Total {
                    stats,
                    std_dev_ns: None,
                    percentiles,
                    counters: None,
                    ..total.clone()
                });
            }
        }
        profile.totals = totals;
        let earlier: HashMap<_, &LayerBrick> = before
            .profile
            .layers
            .iter()
            .map(|row| ((row.phase, row.layer, row.name.as_str()), row))
            .collect();
        let mut layers = Vec::new();
        for row in &now.profile.layers {
            let mut row = row.clone();
            if let Some(earlier) = earlier.get(&(row.phase, row.layer, row.name.as_str())) {
                row.count = row.count.checked_sub(earlier.count)?;
                row.total_ns = row.total_ns.checked_sub(earlier.total_ns)?;
                row.exclusive_ns = row.exclusive_ns.checked_sub(earlier.exclusive_ns)?;
            }
            if row.count > 0 {
                layers.push(row);
            }
        }
        profile.layers = layers;
        let earlier: HashMap<_, &BrickKernel> = before
            .profile
            .brick_kernels
            .iter()
            .map(|row| ((row.phase, row.brick.as_str(), row.kernel.as_str()), row))
            .collect();
        for row in &mut profile.brick_kernels {
            if let Some(earlier) =
                earlier.get(&(row.phase, row.brick.as_str(), row.kernel.as_str()))
            {
                row.count = row.count.checked_sub(earlier.count)?;
                row.total_ns = row.total_ns.checked_sub(earlier.total_ns)?;
            }
        }
        profile.brick_kernels.retain(|row| row.count > 0);
        let made_ns = now.made_ns.checked_sub(before.made_ns)?;
        Some(Self { ns, profile, made_ns })
    }
}

fn phase_between(before: &PhaseTotal, now: &PhaseTotal) -> Option<PhaseTotal> {
    Some(PhaseTotal {
        phase: now.phase,
        passes: now.passes.checked_sub(before.passes)?,
        disturbed: now.disturbed.checked_sub(before.disturbed)?,
        tokens: now.tokens.checked_sub(before.tokens)?,
        wall_ns: now.wall_ns.checked_sub(before.wall_ns)?,
        attributed_ns: now.attributed_ns.checked_sub(before.attributed_ns)?,
        unattributed_ns: now.unattributed_ns.checked_sub(before.unattributed_ns)?,
    })
}

/// The sums; the least and the most of what lies between aren't known.
fn stats_between(before: &BrickStats, now: &BrickStats) -> Option<BrickStats> {
    Some(BrickStats {
        count: now.count.checked_sub(before.count)?,
        total_ns: now.total_ns.checked_sub(before.total_ns)?,
        exclusive_ns: now.exclusive_ns.checked_sub(before.exclusive_ns)?,
        total_elements: now.total_elements.checked_sub(before.total_elements)?,
        total_flops: now.total_flops.checked_sub(before.total_flops)?,
        total_bytes: now.total_bytes.checked_sub(before.total_bytes)?,
        ..BrickStats::new(&now.name)
    })
}
