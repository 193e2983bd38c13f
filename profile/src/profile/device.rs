//! A device's part of a profile as a profile of its own.

use std::collections::{BTreeMap, HashMap};

use super::Profile;
use crate::absent::Absent;
use crate::brick::Phase;
use crate::clock::ClockInfo;
use crate::device::{DeviceProfile, DeviceStream, Grain, GrainTotal};
use crate::dropped::Dropped;
use crate::latency::Latency;
use crate::machine::Ceilings;
use crate::run::Overhead;
use crate::span::{Dependency, Lane, Point, Span};
use crate::sums::{Pass, Total, sum_is_wall};

impl Profile {
    /// What a stream of a device did, as a profile of its own, which every view and export accepts. The wall
    /// time of its passes is the time that they span on the device, and unattributed time is gaps. `None` if
    /// there is no such device or stream.
    #[must_use]
    pub fn on_device(&self, device: usize, stream: usize) -> Option<Self> {
        let of = self.devices.get(device)?;
        let DeviceStream { name, dropped, phases, totals, latency, grains, passes, spans, .. } =
            of.streams.get(stream)?.clone();
        Some(Self {
            lanes: vec![Lane { name: Some(format!("{}, {name}", of.name)), tid: None }],
            dropped,
            phases,
            totals,
            latency,
            grains,
            passes,
            spans,
            ..self.of_device(of)
        })
    }

    /// What all streams of a device did, as a profile with a lane for each stream. Its graphs have the
    /// dependencies between streams, so critical paths cross them. `None` if there is no such device.
    ///
    /// The wall time of a pass is from the first mark on any stream to the last. The pass is on the stream
    /// whose bricks took the most time in all. Bricks of other streams count outside of passes, like bricks of
    /// other threads, so that no time counts twice. See [`DeviceProfile::busy`] for streams that run in
    /// parallel.
    #[must_use]
    pub fn whole_device(&self, device: usize) -> Option<Self> {
        let of = self.devices.get(device)?;
        if let [_] = of.streams[..] {
            return self.on_device(device, 0);
        }
        let mut whole = self.of_device(of);
        let bricks_ns = |stream: &DeviceStream| {
            stream.phases.iter().fold(0, |sum, p| u64::saturating_add(sum, p.attributed_ns))
        };
        // Of equals, the first.
        let main = (0..of.streams.len())
            .rev()
            .max_by_key(|&stream| bricks_ns(&of.streams[stream]))
            .unwrap_or_default();
        // From the first mark to the last, by pass.
        let mut walls: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for pass in of.streams.iter().flat_map(|stream| &stream.passes) {
            let end = pass.start_ns.saturating_add(pass.wall_ns);
            let wall = walls.entry(pass.serial).or_insert((pass.start_ns, end));
            *wall = (wall.0.min(pass.start_ns), wall.1.max(end));
        }
        let mut is_known = HashMap::new();
        let mut first_spans = Vec::new();
        for (lane, stream) in (0_u32..).zip(&of.streams) {
            let name = Some(format!("{}, {}", of.name, stream.name));
            whole.lanes.push(Lane { name, tid: None });
            add(&mut whole.dropped, &stream.dropped);
            let first_span = whole.spans.len() as u32;
            first_spans.push(first_span);
            let is_main = lane as usize == main;
            whole.spans.extend(stream.spans.iter().map(|span| Span {
                lane,
                pass: span.pass.filter(|_| is_main),
                parent: span.parent.map(|parent| parent.saturating_add(first_span)),
                ..*span
            }));
            if !is_main {
                let totals = stream.totals.iter().cloned();
                totals.for_each(|total| merge(&mut whole.totals, Total { phase: None, ..total }));
                continue;
            }
            stream.totals.iter().for_each(|total| merge(&mut whole.totals, total.clone()));
            for pass in &stream.passes {
                let (start_ns, end) = walls.get(&pass.serial).copied().unwrap_or_default();
                let wall_ns = end.saturating_sub(start_ns);
                let unattributed_ns = wall_ns.saturating_sub(pass.attributed_ns);
                whole.passes.push(Pass { lane, start_ns, wall_ns, unattributed_ns, ..*pass });
                is_known.insert(pass.serial, (start_ns, end));
            }
            whole.phases = stream.phases.clone();
            whole.grains = stream.grains.clone();
        }
        for phase in &mut whole.phases {
            // Passes that were only summed have no wall time over all streams, so the main stream's is used.
            let of_phase = |passes: &[Pass]| {
                let passes = passes.iter().filter(|pass| pass.phase == phase.phase);
                passes.fold(0, |sum, pass| u64::saturating_add(sum, pass.wall_ns))
            };
            let more = of_phase(&whole.passes).saturating_sub(of_phase(&of.streams[main].passes));
            phase.wall_ns = phase.wall_ns.saturating_add(more);
            phase.unattributed_ns = phase.wall_ns.saturating_sub(phase.attributed_ns);
        }
        let place = |point: Point| {
            let first = first_spans.get(point.lane as usize).copied().unwrap_or_default();
            Point { inside: point.inside.map(|inside| inside.saturating_add(first)), ..point }
        };
        let edges = of.dependencies.iter();
        whole
            .dependencies
            .extend(edges.map(|edge| Dependency { from: place(edge.from), to: place(edge.to) }));
        whole.dropped.dependencies = of.dropped_dependencies;
        whole.begin_streams(main as u32, &is_known);
        whole.latency = Latency::of(&whole.passes, &whole.spans, &whole.names);
        Some(whole)
    }

    /// The sums of all streams of a device, each in its phase: what ran on several at once counts for each of them, so they may
    /// be more than the passes took. `None` if there is no such device.
    #[must_use]
    pub fn totals_of_device(&self, device: usize) -> Option<Vec<Total>> {
        let mut totals = Vec::new();
        let streams = self.devices.get(device)?.streams.iter();
        streams
            .flat_map(|stream| &stream.totals)
            .for_each(|total| merge(&mut totals, total.clone()));
        Some(totals)
    }

    /// Adds a dependency on the begin of the pass to each stream that has none: nothing of a pass runs before
    /// the pass begins, so its graph includes the work of streams that wait for nothing else.
    fn begin_streams(&mut self, main: u32, passes: &HashMap<u32, (u64, u64)>) {
        let mut walls: Vec<(u64, u64)> = passes.values().copied().collect();
        walls.sort_unstable();
        let pass_at = |at: u64| {
            let after = walls.partition_point(|&(start, _)| start <= at);
            walls.get(after.checked_sub(1)?).copied().filter(|&(_, end)| at <= end)
        };
        // By lane and pass, when its first span begins.
        let mut firsts: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for span in self.spans.iter().filter(|span| span.lane != main && span.parent.is_none()) {
            if let Some((start, _)) = pass_at(span.start_ns) {
                let first = firsts.entry((span.lane, start)).or_insert(span.start_ns);
                *first = (*first).min(span.start_ns);
            }
        }
        for ((lane, start), first) in firsts {
            let is_taken = |edge: &Dependency| {
                edge.to.lane == lane && edge.to.at_ns <= first && edge.to.at_ns >= start
            };
            if self.dependencies.iter().any(is_taken) {
                continue;
            }
            // Numbered from the end, so that these points don't collide with recorded ones.
            let nth = u32::MAX - self.dependencies.len() as u32;
            let point = |lane, at_ns| Point { lane, at_ns, nth, inside: None };
            self.dependencies.push(Dependency { from: point(main, start), to: point(lane, first) });
        }
        self.dependencies
            .sort_by_key(|edge| (edge.to.at_ns, edge.to.lane, edge.from.at_ns, edge.from.lane));
    }

    /// A profile of the device that has no streams, passes or spans yet.
    fn of_device(&self, of: &DeviceProfile) -> Self {
        let absent = |reason: &str| Some(Absent { reason: reason.to_owned() });
        let spans = of.streams.iter().flat_map(|stream| &stream.totals);
        let spans = spans.fold(0, |sum, total| u64::saturating_add(sum, total.stats.count));
        Self {
            schema_version: self.schema_version,
            brickscope_version: self.brickscope_version.clone(),
            created: self.created.clone(),
            run: self.run.clone(),
            model: self.model.clone(),
            machine: self.machine.clone(),
            ceilings: of
                .ceilings
                .clone()
                .map(|limits| Ceilings { of_known_work: self.imported.is_some(), ..limits }),
            ceilings_absent: match (&of.ceilings, &of.ceilings_absent) {
                (Some(_), _) => None,
                (None, Some(why)) => Some(why.clone()),
                // Where it is read, it can't be measured.
                (None, None) if self.imported.is_some() => absent(
                    "the file has no limits of the device: `import --stated-limits` or `import --ceilings FILE` adds them",
                ),
                (None, None) => absent("the device's limits were not measured"),
            },
            process: self.process,
            among: self.among.clone(),
            sync_mode: self.sync_mode,
            overhead: of.overhead(spans),
            counters_absent: absent("hardware counters exist only for the CPU"),
            other_load_absent: absent("the device doesn't report its other users"),
            ptx: self.ptx.clone(),
            names: self.names.clone(),
            ..Self::empty(of.clock())
        }
    }
}

/// What the time of a phase's passes on a device is: the parts add up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceParts {
    /// In bricks.
    pub bricks_ns: u64,
    /// In layers of passes of which nothing smaller was timed.
    pub in_layers_ns: u64,
    /// In passes of which nothing smaller was timed.
    pub whole_passes_ns: u64,
    /// The rest: gaps.
    pub gaps_ns: u64,
    /// The passes of which bricks were timed.
    pub fine_passes: u64,
    /// What these took.
    pub fine_wall_ns: u64,
    /// The part of that in gaps.
    pub fine_gaps_ns: u64,
}

impl Profile {
    /// What the time of a phase is, in a profile that is of a device by itself. `None` if it has no pass, or it isn't known
    /// how finely passes were timed.
    #[must_use]
    pub fn device_parts(&self, phase: Phase) -> Option<DeviceParts> {
        let total = self.phase(phase)?;
        let of_phase = || self.grains.iter().filter(|of| of.phase == phase);
        of_phase().next()?;
        let sum = |is_of: &dyn Fn(Grain) -> bool, field: fn(&GrainTotal) -> u64| {
            of_phase().filter(|of| is_of(of.grain)).map(field).fold(0, u64::saturating_add)
        };
        let is_fine = |grain: Grain| grain > Grain::Layer;
        let in_layers_ns = sum(&|grain| grain == Grain::Layer, |of| of.timed_ns);
        let whole_passes_ns = sum(&|grain| grain == Grain::Pass, |of| of.timed_ns);
        let coarse_ns = in_layers_ns.saturating_add(whole_passes_ns);
        Some(DeviceParts {
            bricks_ns: total.attributed_ns,
            in_layers_ns,
            whole_passes_ns,
            gaps_ns: total.unattributed_ns.saturating_sub(coarse_ns),
            fine_passes: sum(&is_fine, |of| of.passes),
            fine_wall_ns: sum(&is_fine, |of| of.wall_ns),
            fine_gaps_ns: sum(&is_fine, |of| of.gaps_ns),
        })
    }
}

/// Adds the sums of a stream, of which another one may have the same brick.
fn merge(sums: &mut Vec<Total>, total: Total) {
    // Kernels of one name may differ in shape, grid and block.
    let is_same = |sum: &&mut Total| {
        (sum.phase, sum.kind, &sum.stats.name) == (total.phase, total.kind, &total.stats.name)
            && (&sum.host, &sum.device) == (&total.host, &total.device)
    };
    match sums.iter_mut().find(is_same) {
        Some(sum) => {
            sum.stats.merge(&total.stats);
            sum.std_dev_ns = sum.stats.std_dev_ns();
            sum.percentiles = sum.stats.percentiles();
        }
        None => sums.push(total),
    }
}

fn add(sum: &mut Dropped, part: &Dropped) {
    for (sum, part) in [
        (&mut sum.spans, part.spans),
        (&mut sum.passes, part.passes),
        (&mut sum.homeless, part.homeless),
        (&mut sum.names, part.names),
        (&mut sum.unfinished, part.unfinished),
    ] {
        *sum = sum.saturating_add(part);
    }
}

impl DeviceProfile {
    /// Checks that each stream adds up: bricks + gaps = spans.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        for (index, stream) in self.streams.iter().enumerate() {
            let of = Profile {
                dropped: stream.dropped,
                phases: stream.phases.clone(),
                totals: stream.totals.clone(),
                passes: stream.passes.clone(),
                spans: stream.spans.clone(),
                ..Profile::empty(ClockInfo::default())
            };
            of.check().map_err(|why| format!("stream {index}: {why}"))?;
            if let Some(launch) = stream.launches.iter().find(|launch| {
                let span = usize::try_from(launch.span).ok().and_then(|row| stream.spans.get(row));
                span.is_none_or(|span| span.name.is_none())
            }) {
                return Err(format!(
                    "stream {index}: there is a launch of span {}, which is no kernel or brick",
                    launch.span
                ));
            }
            for total in &stream.grains {
                let what = format!("stream {index}: {} of {}", total.grain.name(), total.phase);
                sum_is_wall(&what, total.timed_ns, total.gaps_ns, total.wall_ns)?;
            }
        }
        Ok(())
    }

    fn clock(&self) -> ClockInfo {
        ClockInfo {
            source: format!("{} device clock", self.api),
            resolution_ns: self.ticks.resolution_ns.map(|ns| ns.ceil() as u64),
            hertz: (self.ticks.ns_per_tick > 0.0).then(|| 1e9 / self.ticks.ns_per_tick),
            ..ClockInfo::default()
        }
    }

    fn overhead(&self, spans: u64) -> Overhead {
        let basis = match (&self.stamp, &self.stamp_absent) {
            (Some(stamp), _) => format!(
                "a mark takes the host {:.2} µs and the device {:.2} µs: the mean of {} in a row, \
                 measured before the run",
                stamp.host_ns / 1e3,
                stamp.device_ns / 1e3,
                stamp.marks
            ),
            (None, Some(Absent { reason })) => format!("the cost of a mark is unknown: {reason}"),
            (None, None) => "the cost of a mark is unknown".to_owned(),
        };
        Overhead { spans, basis, ..Overhead::default() }
    }
}
