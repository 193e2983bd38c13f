//! The passes of devices with several streams: a pass is one, from its first mark on any stream to its last. A stream has a
//! part of it only, and what it doesn't fill another may.

use std::collections::BTreeMap;

use brickscope_profile::{DeviceProfile, Pass, Phase};

/// Whether its passes are those of [`all_streams`] rather than a stream's own.
pub(super) fn has_several_streams(device: &DeviceProfile) -> bool {
    device.streams.len() > 1
}

/// The passes, by number, each with the time in which no stream ran a brick, if that is known.
pub(super) fn all_streams(device: &DeviceProfile) -> Vec<(Pass, Option<u64>)> {
    let mut passes: BTreeMap<u32, Pass> = BTreeMap::new();
    for of in device.streams.iter().flat_map(|stream| &stream.passes) {
        let pass = passes.entry(of.serial).or_insert(*of);
        let end = |pass: &Pass| pass.start_ns.saturating_add(pass.wall_ns);
        let end = end(pass).max(end(of));
        pass.start_ns = pass.start_ns.min(of.start_ns);
        pass.wall_ns = end.saturating_sub(pass.start_ns);
        pass.tokens = pass.tokens.max(of.tokens);
        pass.is_left_out |= of.is_left_out;
    }
    let busy = device.busy_by_pass(None);
    let with_rest = |(serial, pass): (u32, Pass)| (pass, busy.get(&serial).map(|busy| busy.idle_ns));
    passes.into_iter().map(with_rest).collect()
}

/// The time of the passes of each phase in which no stream ran a brick, if it is known of all of them.
pub(super) fn rest(device: &DeviceProfile) -> Vec<(Phase, u64)> {
    let of_phase = |phase: Phase| {
        let sums = device.streams.iter().flat_map(|stream| &stream.phases);
        let passes = sums.filter(|sum| sum.phase == phase).map(|sum| sum.passes).max()?;
        let busy = device.busy(Some(phase)).ok().filter(|busy| busy.passes >= passes)?;
        Some((phase, busy.idle_ns))
    };
    Phase::ALL.into_iter().filter_map(of_phase).collect()
}
