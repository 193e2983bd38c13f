//! The sums of bricks and kernels in one repetition, on the host and on a device.

use std::collections::BTreeMap;

use brickscope::{DeviceProfile, Grain, NameKind, Pass, Profile, Total, Work};
use brickscope_analysis::receipt::v1::{Brick, DeviceTimes, Kernel};

/// How long it took to choose tokens, which is outside of the passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Choosing {
    pub(crate) tokens: u64,
    pub(crate) ns: u64,
}

impl Choosing {
    pub(super) fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// The sums of some passes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Sums {
    pub(super) wall_ns: u64,
    pub(super) unattributed_ns: u64,
    pub(super) passes: Vec<Pass>,
    /// Exclusive times, in the order of the profile's table.
    pub(super) bricks: Vec<(Brick, u64)>,
    pub(super) kernels: BTreeMap<String, Kernel>,
    pub(super) spans: u64,
    pub(super) dropped: BTreeMap<String, u64>,
    /// Of the device, if there is one.
    pub(super) device: Option<DeviceSums>,
}

/// The sums of the passes that a device timed.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct DeviceSums {
    /// Without times of bricks, whose order is not known yet.
    times: DeviceTimes,
    /// In the order of the profile's table.
    pub(super) bricks: Vec<(Brick, u64)>,
}

impl DeviceSums {
    /// The sums of a profile's first device; `None` if it has none.
    fn of(profile: &Profile) -> Option<Self> {
        // Our executors have one stream.
        let stream = profile.devices.first()?.streams.first()?;
        let mut sums = Self::default();
        let times = &mut sums.times;
        for total in &stream.grains {
            times.passes += total.passes;
            times.span_ns += total.wall_ns;
            if matches!(total.grain, Grain::Brick | Grain::Kernel) {
                times.passes_in_bricks += total.passes;
                times.gaps_ns += total.gaps_ns;
            }
        }
        let in_passes = stream.totals.iter().filter(|total| total.phase.is_some());
        for total in in_passes.filter(|total| total.kind == NameKind::Brick) {
            add_brick(&mut sums.bricks, &brick(total), total.stats.exclusive_ns);
        }
        Some(sums)
    }

    /// Its times, with those of `bricks`.
    pub(super) fn times(&self, bricks: &[Brick]) -> DeviceTimes {
        let brick_ns = bricks.iter().map(|brick| time_of(&self.bricks, brick)).collect();
        DeviceTimes { brick_ns, ..self.times.clone() }
    }
}

fn brick(total: &Total) -> Brick {
    let category = total.category.unwrap_or_default().name().to_owned();
    Brick { name: total.stats.name.clone(), category }
}

fn time_of(bricks: &[(Brick, u64)], brick: &Brick) -> u64 {
    bricks.iter().find(|(other, _)| other == brick).map_or(0, |&(_, ns)| ns)
}

fn add_brick(bricks: &mut Vec<(Brick, u64)>, brick: &Brick, ns: u64) {
    match bricks.iter_mut().find(|(other, _)| other == brick) {
        Some((_, sum)) => *sum += ns,
        None => bricks.push((brick.clone(), ns)),
    }
}

impl Sums {
    /// The sums of all passes of a profile. Bricks outside of passes aren't measured.
    pub(super) fn of(profile: &Profile) -> Self {
        let mut sums = Self {
            wall_ns: profile.phases.iter().map(|phase| phase.wall_ns).sum(),
            unattributed_ns: profile.phases.iter().map(|phase| phase.unattributed_ns).sum(),
            passes: profile.passes.clone(),
            spans: profile.overhead.spans,
            dropped: dropped(profile),
            device: DeviceSums::of(profile),
            ..Self::default()
        };
        for total in profile.totals.iter().filter(|total| total.phase.is_some()) {
            let stats = &total.stats;
            if total.kind == NameKind::Brick {
                add_brick(&mut sums.bricks, &brick(total), stats.exclusive_ns);
            } else {
                // A span that states bytes also states FLOPs, even if they are zero, as for a copy.
                let is_stated = stats.total_flops | stats.total_bytes > 0;
                sums.add_kernel(&Kernel {
                    id: stats.name.clone(),
                    launches: stats.count,
                    flops: is_stated.then_some(stats.total_flops),
                    bytes: is_stated.then_some(stats.total_bytes),
                });
            }
        }
        sums
    }

    /// The difference to `earlier` sums of the same profiler, on the host. A device's profiler is empty before each
    /// repetition.
    pub(super) fn since(mut self, earlier: &Self) -> Self {
        self.wall_ns -= earlier.wall_ns;
        self.unattributed_ns -= earlier.unattributed_ns;
        self.passes.drain(..earlier.passes.len());
        for (brick, ns) in &mut self.bricks {
            *ns -= earlier.brick(brick);
        }
        self.bricks.retain(|&(_, ns)| ns > 0);
        for (id, kernel) in &mut self.kernels {
            if let Some(before) = earlier.kernels.get(id) {
                let minus = |now: Option<u64>, then: Option<u64>| Some(now? - then?);
                kernel.launches -= before.launches;
                kernel.flops = minus(kernel.flops, before.flops);
                kernel.bytes = minus(kernel.bytes, before.bytes);
            }
        }
        self.kernels.retain(|_, kernel| kernel.launches > 0);
        self.spans -= earlier.spans;
        for (what, count) in &mut self.dropped {
            *count -= earlier.dropped.get(what).copied().unwrap_or_default();
        }
        self.dropped.retain(|_, count| *count > 0);
        self
    }

    pub(super) fn brick(&self, brick: &Brick) -> u64 {
        time_of(&self.bricks, brick)
    }

    fn add_kernel(&mut self, kernel: &Kernel) {
        let new = Kernel { id: kernel.id.clone(), launches: 0, flops: Some(0), bytes: Some(0) };
        let sum = self.kernels.entry(kernel.id.clone()).or_insert(new);
        let plus = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
        sum.launches += kernel.launches;
        sum.flops = plus(sum.flops, kernel.flops);
        sum.bytes = plus(sum.bytes, kernel.bytes);
    }

    /// Adds kernels that a device launched. Their ids say what they run on, as those of the CPU do.
    pub(super) fn add_launches(&mut self, launches: Vec<(String, Work)>, backend: &str) {
        for (name, work) in launches {
            let is_stated = work.flops | work.bytes > 0;
            self.add_kernel(&Kernel {
                id: format!("{name}_{backend}"),
                launches: 1,
                flops: is_stated.then_some(work.flops),
                bytes: is_stated.then_some(work.bytes),
            });
        }
    }

    /// Adds empty rows for the bricks of `other`.
    pub(super) fn add_names(&mut self, other: &Self) {
        for (brick, _) in &other.bricks {
            add_brick(&mut self.bricks, brick, 0);
        }
        if let Some(other) = &other.device {
            let device = self.device.get_or_insert_default();
            for (brick, _) in &other.bricks {
                add_brick(&mut device.bricks, brick, 0);
            }
        }
    }

    /// Adds everything of the host except the passes.
    pub(super) fn add(&mut self, other: &Self) {
        self.wall_ns += other.wall_ns;
        self.unattributed_ns += other.unattributed_ns;
        for (brick, ns) in &other.bricks {
            add_brick(&mut self.bricks, brick, *ns);
        }
        for kernel in other.kernels.values() {
            self.add_kernel(kernel);
        }
        self.spans += other.spans;
        for (what, count) in &other.dropped {
            *self.dropped.entry(what.clone()).or_default() += count;
        }
    }
}

/// Whether a pass was disturbed; `None` if none is known to be, and it isn't known of all that they were not.
pub(super) fn disturbed(passes: &[Pass]) -> Option<bool> {
    let is_known = passes.iter().all(|pass| pass.disturbance.is_some()) && !passes.is_empty();
    let any = passes.iter().any(Pass::is_disturbed);
    (any || is_known).then_some(any)
}

/// How long threads waited for a core. One reading may cover several passes in a row.
pub(super) fn run_queue_wait(passes: &[Pass]) -> Option<u64> {
    let mut rest = passes;
    let mut sum: u64 = 0;
    while let Some(pass) = rest.first() {
        let disturbance = pass.disturbance?;
        sum = sum.checked_add(disturbance.run_queue_wait_ns?)?;
        let covered = usize::try_from(disturbance.passes).ok()?.max(1);
        rest = rest.get(covered..).unwrap_or_default();
    }
    (!passes.is_empty()).then_some(sum)
}

/// Counters that aren't zero, by name, except disturbed passes: samples have those.
fn dropped(profile: &Profile) -> BTreeMap<String, u64> {
    let counters = serde_json::to_value(profile.dropped);
    let counters = counters.ok().and_then(|value| value.as_object().cloned()).unwrap_or_default();
    let of_devices: u64 = profile.devices.iter().map(DeviceProfile::untimed_passes).sum();
    counters
        .into_iter()
        .chain([("untimed_device_passes".to_owned(), of_devices.into())])
        .filter(|(name, _)| {
            !["disturbed_passes", "left_out_passes", "warm_up_passes"].contains(&name.as_str())
        })
        .filter_map(|(name, count)| Some((name, count.as_u64().filter(|&count| count > 0)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, BrickProfiler, Disturbance, MockClock, Phase, Work};

    use super::*;

    fn pass(disturbance: Option<Disturbance>) -> Pass {
        Pass {
            serial: 1,
            phase: Phase::Decode,
            lane: 0,
            tokens: 1,
            position: 0,
            start_ns: 0,
            wall_ns: 1000,
            attributed_ns: 0,
            unattributed_ns: 1000,
            disturbance,
            is_left_out: false,
        }
    }

    /// A reading that covers some passes, in which one thread waited for some time.
    fn look(passes: u64, wait_ns: u64) -> Disturbance {
        Disturbance {
            passes,
            wall_ns: 1000 * passes,
            run_queue_wait_ns: Some(wait_ns),
            longest_wait_ns: Some(wait_ns),
            ..Disturbance::default()
        }
    }

    #[test]
    fn a_look_at_several_passes_counts_once() {
        let (first, second) = (look(2, 5), look(1, 700));
        let passes = [pass(Some(first)), pass(Some(first)), pass(Some(second))];
        assert_eq!(run_queue_wait(&passes), Some(705));
        assert_eq!((disturbed(&passes), disturbed(&passes[..2])), (Some(true), Some(false)));
        // Without a reading it isn't known, unless another pass is known to be disturbed.
        assert_eq!(disturbed(&[pass(Some(first)), pass(None)]), None);
        assert_eq!(disturbed(&[pass(Some(second)), pass(None)]), Some(true));
        assert_eq!(run_queue_wait(&[pass(Some(second)), pass(None)]), None);
        assert_eq!((run_queue_wait(&[]), disturbed(&[pass(None)])), (None, None));
    }

    /// The sums of passes of one brick with one kernel, given the nanoseconds of each.
    fn sums(profiler: &BrickProfiler, hand: &MockClock, phase: Phase, passes: &[u64]) -> Sums {
        let kernel = profiler.kernel("gemv", None);
        for &ns in passes {
            let pass = profiler.begin_pass(phase);
            let brick = profiler.start_brick_kernel(BrickId::LmHead, kernel);
            hand.advance(ns);
            profiler.stop_brick_kernel(
                brick,
                Work { elements: 1, flops: 0, bytes: 10, ..Work::default() },
            );
            hand.advance(1);
            profiler.end_pass(pass, 3, 0);
        }
        Sums::of(&profiler.profile())
    }

    #[test]
    fn what_a_repetition_took_is_what_came_since() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let before = sums(&profiler, &hand, Phase::Prefill, &[100, 50]);
        assert_eq!((before.wall_ns, before.unattributed_ns), (152, 2));
        let after = sums(&profiler, &hand, Phase::Decode, &[7, 8, 9]).since(&before);
        assert_eq!((after.wall_ns, after.unattributed_ns, after.spans), (27, 3, 6));
        let walls: Vec<u64> = after.passes.iter().map(|pass| pass.wall_ns).collect();
        assert_eq!(walls, [8, 9, 10]);
        let brick = Brick { name: "LmHead".to_owned(), category: "Other".to_owned() };
        assert_eq!(after.brick(&brick), 24, "{:?}", after.bricks);
        let kernel = &after.kernels["gemv"];
        assert_eq!((kernel.launches, kernel.flops, kernel.bytes), (3, Some(0), Some(30)));
    }
}
