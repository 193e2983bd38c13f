//! A profile of the passes that were kept, with the sums of all.

use brickscope::keep::{Fired, Kept, Sample, WallsOf};
use brickscope::{Absent, Dropped, Phase, Profile};

use crate::recording::groups::Group;
use crate::recording::part::{AllPasses, Part};

/// Puts the sums of all passes of a group in the place of those of the passes that were kept, and says what these stand for.
/// `None` if the recording has nothing of the group.
pub(crate) fn state(profile: &mut Profile, part: &Part, group: &Group) -> Option<AllPasses> {
    let mut of_group = group.ids().iter().filter_map(|id| part.of.get(id));
    let mut all = of_group.next()?.clone();
    of_group.for_each(|more| all.merge(more));
    let requests = part.requests.as_ref().map(|of| of.kept.clone());
    let of_phases = all.sums.phases.iter().map(|phase| phase.passes);
    let passes = of_phases.fold(0, u64::saturating_add);
    profile.kept = kept(profile, &all, passes).map(|kept| Kept { requests, ..kept });
    if profile.kept.is_none() {
        // Nobody knows what each stands for, and they are no fair sample.
        profile.passes.clear();
        profile.spans.clear();
        profile.dependencies.clear();
        profile.fired = profile.fired.map(Fired::none_whole);
        profile.requests.clear();
        profile.parts.clear();
        all.notes.push("which passes were kept can't be told, so only sums are shown".to_owned());
    }
    let sums = &all.sums;
    let there = profile.passes.iter().filter(|pass| !pass.is_left_out).count() as u64;
    profile.dropped = Dropped {
        passes: passes.saturating_sub(there),
        // That the spans of a pass are its bricks is only true of those that are there.
        spans: sums.dropped.spans.saturating_sub(profile.spans.len() as u64).max(1),
        ..sums.dropped
    };
    profile.phases.clone_from(&sums.phases);
    profile.totals.clone_from(&sums.totals);
    profile.layers.clone_from(&sums.layers);
    profile.brick_kernels.clone_from(&sums.brick_kernels);
    profile.shares.clone_from(&sums.shares);
    profile.cpu_waits.clone_from(&sums.cpu_waits);
    profile.latency.clone_from(&sums.latency);
    profile.overhead.spans = sums.overhead.spans;
    if profile.phase(Phase::Decode).is_some() {
        let reason = "passes were kept by how slow they are, so they are no fair comparison";
        profile.latency.slow_absent = Some(Absent { reason: reason.to_owned() });
    }
    Some(all)
}

/// `None` if the passes aren't those that were chosen, so that nobody knows what each stands for.
fn kept(profile: &Profile, all: &AllPasses, passes: u64) -> Option<Kept> {
    let chosen = &all.chosen;
    let mut numbers: Vec<u64> = chosen.slowest.clone();
    numbers.extend(&chosen.around);
    chosen.samples.iter().for_each(|(.., of)| numbers.extend(of));
    numbers.sort_unstable();
    // The others are there for the requests that waited for them.
    let own = profile.passes.iter().filter(|pass| !pass.is_left_out);
    let mut serials: Vec<u32> = own.map(|pass| pass.serial).collect();
    serials.sort_unstable();
    if numbers.len() != serials.len() {
        return None;
    }
    let serial = |number: &u64| serials.get(numbers.binary_search(number).ok()?).copied();
    let sample = |(phase, tokens, of, kept): &(Phase, u64, u64, Vec<u64>)| Sample {
        phase: *phase,
        tokens: *tokens,
        of: *of,
        passes: kept.iter().filter_map(serial).collect(),
    };
    let of_phase = all.walls.iter();
    let walls = of_phase.map(|(phase, walls)| WallsOf { phase: *phase, walls: walls.clone() });
    Some(Kept {
        passes,
        slowest: chosen.slowest.len() as u64,
        slower_than_ns: chosen.slower_than_ns,
        around: chosen.around.len() as u64,
        samples: chosen.samples.iter().map(sample).collect(),
        walls: walls.collect(),
        intervals: all.intervals.clone(),
        requests: None,
    })
}
