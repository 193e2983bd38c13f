//! From frames to snapshots: a frame completed with the constant facts, and the activity since a moment
//! ago.

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use brickscope_analysis::findings::Findings;
use brickscope_analysis::requests::Now;
use brickscope_analysis::view;
use brickscope_live::socket::{Facts, Frame};
use brickscope_profile::{
    Absent, BrickStats, DeviceStream, Dropped, GrainTotal, Latency, Percentiles, Phase, PhaseTotal,
    Profile, Total,
};

use crate::history::History;

/// How far back the newest snapshot is compared: long enough for stable figures.
const WINDOW_NS: u64 = 2_000_000_000;
/// The most snapshots that are kept: more than there are in that time at the highest rate.
const MOST_KEPT: usize = 64;
/// How often the rules are asked. What they say of sums since the start changes slowly.
const ASK_EVERY_NS: u64 = 1_000_000_000;
/// The least time between two frames for a figure.
const LEAST_WINDOW_NS: u64 = 500_000_000;

/// The state of an engine at a moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) seq: u64,
    /// Its time, by the clock of the profile.
    pub(crate) at_ns: u64,
    /// The time spent on making frames until then.
    pub(crate) made_ns: u64,
    /// Whether the engine announced its end after it.
    pub(crate) is_last: bool,
    /// The profile, with the facts and the newest table of bricks by layer. If a device ran the bricks, it
    /// is the device's part, by its own clock.
    pub(crate) profile: Profile,
    /// The device, if one ran the bricks.
    pub(crate) device: Option<String>,
    /// If a device ran the bricks, the sums of the host's passes: what a user waits for is by the host's clock.
    pub(crate) of_host: Option<Vec<PhaseTotal>>,
    /// Losses and omissions outside of `profile`.
    pub(crate) elsewhere: Vec<String>,
    /// The engine's requests, if it says that it has any.
    pub(crate) requests: Option<Now>,
}

impl Snapshot {
    /// The passes of a phase as a user waits for them: by the host's clock, where it timed them.
    pub(crate) fn waited_for(&self, phase: Phase) -> Option<PhaseTotal> {
        find(self.of_host.as_ref().unwrap_or(&self.profile.phases), phase)
    }
}

fn find(phases: &[PhaseTotal], phase: Phase) -> Option<PhaseTotal> {
    phases.iter().find(|total| total.phase == phase).copied()
}

/// The activity between two snapshots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Window {
    /// The time between them.
    pub(crate) ns: u64,
    /// The sums over that time; anything but sums is absent.
    pub(crate) profile: Profile,
    /// As in the newer snapshot.
    of_host: Option<Vec<PhaseTotal>>,
    /// The time spent on making frames meanwhile.
    pub(crate) made_ns: u64,
}

/// The recent snapshots of an engine.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    facts: Facts,
    /// The newest frame that came with all details.
    detailed: Option<Frame>,
    /// The newest last. The first is at least a window older, if there is one.
    kept: VecDeque<Rc<Snapshot>>,
    /// The window between the first and the last, computed on demand.
    window: OnceCell<Result<Rc<Window>, Absent>>,
    /// What slows the engine down, and when that was asked.
    findings: Option<(u64, Rc<Findings>)>,
    /// How fast it was lately.
    history: Rc<History>,
}

impl Snapshots {
    pub(crate) fn new(facts: Facts) -> Self {
        Self { facts, ..Self::default() }
    }

    pub(crate) fn newest(&self) -> Option<&Rc<Snapshot>> {
        self.kept.back()
    }

    pub(crate) fn take(&mut self, mut frame: Frame) {
        self.window.take();
        if frame.details {
            self.detailed = Some(frame.clone());
        } else if let Some(before) = &self.detailed {
            frame.take_details_of(before);
        }
        let Frame { seq, at_ns, made_ns, last, mut profile, requests, .. } = frame;
        self.describe(&mut profile);
        let phases = profile.phases.clone();
        let (profile, device, elsewhere) = where_it_ran(profile);
        let of_host = (device.is_some() && !phases.is_empty()).then_some(phases);
        let is_last = last;
        let snapshot = Snapshot {
            seq,
            at_ns,
            made_ns,
            is_last,
            profile,
            device,
            of_host,
            elsewhere,
            requests,
        };
        // An engine may discard its recording and start over.
        if self.newest().is_some_and(|before| !goes_on(before, &snapshot)) {
            self.kept.clear();
            self.findings = None;
            self.history = Rc::default();
        }
        let phases = snapshot.of_host.as_ref().unwrap_or(&snapshot.profile.phases);
        Rc::make_mut(&mut self.history).take(at_ns, phases);
        self.ask(&snapshot);
        self.kept.push_back(Rc::new(snapshot));
        // A publisher's clock may stand still.
        while self.kept.len() > MOST_KEPT
            || self
                .kept
                .get(1)
                .is_some_and(|second| at_ns.saturating_sub(second.at_ns) >= WINDOW_NS)
        {
            self.kept.pop_front();
        }
    }

    /// Asks the rules, at most once a second and at the end. A snapshot has sums, percentiles and the newest pass, but no
    /// single spans and no readings of the scheduler for each pass: so rules that need those (`stalls`, `slow-layer`,
    /// `gaps-between-passes`, who disturbed a pass) find nothing here, and do in the run.
    fn ask(&mut self, snapshot: &Snapshot) {
        let is_due = self
            .findings
            .as_ref()
            .is_none_or(|(asked_ns, _)| snapshot.at_ns.saturating_sub(*asked_ns) >= ASK_EVERY_NS);
        if (is_due || snapshot.is_last) && snapshot.device.is_none() {
            self.findings = Some((snapshot.at_ns, Rc::new(Findings::of(&snapshot.profile))));
        }
    }

    pub(crate) fn history(&self) -> Rc<History> {
        Rc::clone(&self.history)
    }

    /// What slows the engine down.
    ///
    /// # Errors
    ///
    /// If no rule can tell.
    pub(crate) fn findings(&self) -> Result<Rc<Findings>, Absent> {
        let findings = self.findings.as_ref().map(|(_, findings)| Rc::clone(findings));
        findings.ok_or_else(|| Absent {
            reason: "rules for devices need single launches, which the run has".to_owned(),
        })
    }

    /// The recent activity.
    ///
    /// # Errors
    ///
    /// If there are too few snapshots yet.
    pub(crate) fn window(&self) -> Result<Rc<Window>, Absent> {
        let between = || {
            let ends = self.kept.front().zip(self.kept.back());
            let window = ends.and_then(|(before, now)| Window::between(before, now));
            window
                .map(Rc::new)
                .ok_or_else(|| Absent { reason: "needs half a second of frames".to_owned() })
        };
        self.window.get_or_init(between).clone()
    }

    fn describe(&self, profile: &mut Profile) {
        let Facts {
            run,
            model,
            machine,
            ceilings,
            ceilings_absent,
            device_ceilings,
            device_ceilings_absent,
        } = &self.facts;
        profile.run.clone_from(run);
        profile.model.clone_from(model);
        profile.machine.clone_from(machine);
        profile.ceilings.clone_from(ceilings);
        profile.ceilings_absent.clone_from(ceilings_absent);
        // A frame has none: they are added to the run when it has ended.
        if let Some(device) = profile.devices.first_mut() {
            device.ceilings.clone_from(device_ceilings);
            device.ceilings_absent.clone_from(device_ceilings_absent);
        }
    }
}

/// The device's part of a profile and the device, if the host only issued work and waited; and notes on
/// everything that isn't shown.
fn where_it_ran(mut profile: Profile) -> (Profile, Option<String>, Vec<String>) {
    // A running engine always has some.
    profile.devices.iter_mut().for_each(|device| device.unsettled_passes = 0);
    let mut elsewhere = view::device_notes(&profile);
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
            let of_host =
                Dropped { open_passes: 0, unfinished: 0, disturbed_passes: 0, ..profile.dropped };
            elsewhere.extend(of_host.lines().map(|line| format!("on the host: {line}")));
            let timed = profile.devices.iter().flat_map(|device| &device.streams);
            let others = timed.filter(|stream| !stream.phases.is_empty()).count() - 1;
            if others > 0 {
                elsewhere.push(format!("streams of devices that aren't shown: {others}"));
            }
            let device = Some(profile.devices[0].name.clone());
            (Profile { observed: profile.observed, ..on_device }, device, elsewhere)
        }
        None => (profile, None, elsewhere),
    }
}

/// Whether the sums of `now` can continue those of `before`.
fn goes_on(before: &Snapshot, now: &Snapshot) -> bool {
    let phases = before.profile.phases.iter().all(|earlier| {
        now.profile
            .phase(earlier.phase)
            .is_some_and(|later| later.passes >= earlier.passes && later.wall_ns >= earlier.wall_ns)
    });
    phases && now.at_ns >= before.at_ns && before.device == now.device
}

/// Rows with their keys. Rows with equal keys are numbered in their order.
fn numbered<'r, R, K: Hash + Eq + Clone>(
    rows: &'r [R],
    key: impl Fn(&'r R) -> K,
) -> impl Iterator<Item = ((K, u32), &'r R)> {
    let mut seen: HashMap<K, u32> = HashMap::new();
    rows.iter().map(move |row| {
        let key = key(row);
        let nth = seen.entry(key.clone()).or_default();
        *nth += 1;
        ((key, *nth), row)
    })
}

/// Each row of `now` minus that of `before`, subtracted by `less`, without unchanged rows. `None` if any
/// sum fell.
fn rows_between<'r, R, K: Hash + Eq + Clone>(
    before: &'r [R],
    now: &'r [R],
    key: impl Fn(&'r R) -> K + Copy,
    less: impl Fn(Option<&R>, &R) -> Option<(R, u64)>,
) -> Option<Vec<R>> {
    let earlier: HashMap<(K, u32), &R> = numbered(before, key).collect();
    let mut rows = Vec::new();
    for (key, row) in numbered(now, key) {
        let (row, count) = less(earlier.get(&key).copied(), row)?;
        if count > 0 {
            rows.push(row);
        }
    }
    Some(rows)
}

impl Window {
    /// As [`Snapshot::waited_for`].
    pub(crate) fn waited_for(&self, phase: Phase) -> Option<PhaseTotal> {
        find(self.of_host.as_ref().unwrap_or(&self.profile.phases), phase)
    }

    /// `None` if they are too close, or if a sum fell meanwhile.
    fn between(before: &Snapshot, now: &Snapshot) -> Option<Self> {
        let ns = now.at_ns.checked_sub(before.at_ns).filter(|&ns| ns >= LEAST_WINDOW_NS)?;
        let mut profile = now.profile.clone();
        profile.latency = Latency::default();
        profile.phases = phases_between(&before.profile.phases, &now.profile.phases)?;
        for now in &mut profile.grains {
            let is_same = |of: &&GrainTotal| (of.phase, of.grain) == (now.phase, now.grain);
            if let Some(earlier) = before.profile.grains.iter().find(is_same) {
                *now = grain_between(earlier, now)?;
            }
        }
        let before_it = &before.profile;
        profile.totals = rows_between(
            &before_it.totals,
            &now.profile.totals,
            |row| {
                (row.phase, row.kind, row.source, row.stats.name.as_str(), &row.host, &row.device)
            },
            |earlier, row| {
                let stats = match earlier {
                    Some(earlier) => stats_between(&earlier.stats, &row.stats)?,
                    None => row.stats.clone(),
                };
                let (count, percentiles) = (stats.count, Percentiles::default());
                let row =
                    Total { stats, std_dev_ns: None, percentiles, counters: None, ..row.clone() };
                Some((row, count))
            },
        )?;
        profile.layers = rows_between(
            &before_it.layers,
            &now.profile.layers,
            |row| (row.phase, row.layer, row.name.as_str()),
            |earlier, row| {
                let mut row = row.clone();
                if let Some(earlier) = earlier {
                    row.count = row.count.checked_sub(earlier.count)?;
                    row.total_ns = row.total_ns.checked_sub(earlier.total_ns)?;
                    row.exclusive_ns = row.exclusive_ns.checked_sub(earlier.exclusive_ns)?;
                }
                let count = row.count;
                Some((row, count))
            },
        )?;
        profile.brick_kernels = rows_between(
            &before_it.brick_kernels,
            &now.profile.brick_kernels,
            |row| (row.phase, row.brick.as_str(), row.kernel.as_str()),
            |earlier, row| {
                let mut row = row.clone();
                if let Some(earlier) = earlier {
                    row.count = row.count.checked_sub(earlier.count)?;
                    row.total_ns = row.total_ns.checked_sub(earlier.total_ns)?;
                }
                let count = row.count;
                Some((row, count))
            },
        )?;
        let of_host = match (&before.of_host, &now.of_host) {
            (Some(before), Some(now)) => Some(phases_between(before, now)?),
            _ => now.of_host.clone(),
        };
        let made_ns = now.made_ns.checked_sub(before.made_ns)?;
        Some(Self { ns, profile, of_host, made_ns })
    }
}

/// Those of which a pass ended.
fn phases_between(before: &[PhaseTotal], now: &[PhaseTotal]) -> Option<Vec<PhaseTotal>> {
    let mut phases = now.to_vec();
    for phase in &mut phases {
        if let Some(earlier) = find(before, phase.phase) {
            *phase = phase_between(&earlier, phase)?;
        }
    }
    phases.retain(|phase| phase.passes > 0);
    Some(phases)
}

fn phase_between(before: &PhaseTotal, now: &PhaseTotal) -> Option<PhaseTotal> {
    Some(PhaseTotal {
        phase: now.phase,
        passes: now.passes.checked_sub(before.passes)?,
        disturbed: now.disturbed.checked_sub(before.disturbed)?,
        unwatched: now.unwatched.map(|n| n.saturating_sub(before.unwatched.unwrap_or(0))),
        tokens: now.tokens.checked_sub(before.tokens)?,
        wall_ns: now.wall_ns.checked_sub(before.wall_ns)?,
        attributed_ns: now.attributed_ns.checked_sub(before.attributed_ns)?,
        unattributed_ns: now.unattributed_ns.checked_sub(before.unattributed_ns)?,
    })
}

fn grain_between(before: &GrainTotal, now: &GrainTotal) -> Option<GrainTotal> {
    Some(GrainTotal {
        phase: now.phase,
        grain: now.grain,
        passes: now.passes.checked_sub(before.passes)?,
        marks: now.marks.checked_sub(before.marks)?,
        wall_ns: now.wall_ns.checked_sub(before.wall_ns)?,
        timed_ns: now.timed_ns.checked_sub(before.timed_ns)?,
        gaps_ns: now.gaps_ns.checked_sub(before.gaps_ns)?,
    })
}

/// The sums; minimum and maximum of the time between are unknown.
fn stats_between(before: &BrickStats, now: &BrickStats) -> Option<BrickStats> {
    Some(BrickStats {
        count: now.count.checked_sub(before.count)?,
        total_ns: now.total_ns.checked_sub(before.total_ns)?,
        exclusive_ns: now.exclusive_ns.checked_sub(before.exclusive_ns)?,
        total_elements: now.total_elements.checked_sub(before.total_elements)?,
        total_flops: now.total_flops.checked_sub(before.total_flops)?,
        total_bytes: now.total_bytes.checked_sub(before.total_bytes)?,
        data: now.data.since(&before.data)?,
        ..BrickStats::new(&now.name)
    })
}

#[cfg(test)]
mod tests {
    use brickscope_profile::ClockInfo;

    use super::*;

    fn total(wall_ns: u64) -> PhaseTotal {
        PhaseTotal {
            phase: Phase::Decode,
            passes: 1,
            disturbed: 0,
            unwatched: None,
            tokens: 1,
            wall_ns,
            attributed_ns: 0,
            unattributed_ns: wall_ns,
        }
    }

    #[test]
    fn a_user_of_a_device_waits_for_the_host() {
        let profile = Profile { phases: vec![total(1)], ..Profile::empty(ClockInfo::default()) };
        let snapshot = |of_host: Option<Vec<PhaseTotal>>| Snapshot {
            seq: 1,
            at_ns: 0,
            made_ns: 0,
            is_last: false,
            profile: profile.clone(),
            device: of_host.is_some().then(|| "a device".to_owned()),
            of_host,
            elsewhere: Vec::new(),
            requests: None,
        };
        let wall_ns = |of: Snapshot| of.waited_for(Phase::Decode).map(|total| total.wall_ns);
        assert_eq!(wall_ns(snapshot(None)), Some(1));
        assert_eq!(wall_ns(snapshot(Some(vec![total(3)]))), Some(3));
        assert_eq!(wall_ns(snapshot(Some(Vec::new()))), None);
    }
}
