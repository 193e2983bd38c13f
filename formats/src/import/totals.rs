//! What the spans and passes of a trace come to.

use std::collections::HashMap;

use brickscope_profile::name::{OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::{
    BrickStats, Name, NameKind, Pass, Phase, PhaseTotal, Source, Span, Total,
};

use super::total;

/// The most names that spans can refer to.
pub(super) const MOST_NAMES: usize = OTHER_KERNEL as usize;

/// The sums of spans by phase and name, and how many spans have a name for which there is no room.
pub(super) fn totals(spans: &[Span], passes: &[Pass], names: &[Name]) -> (Vec<Total>, u64) {
    let phases: HashMap<u32, Phase> = passes.iter().map(|pass| (pass.serial, pass.phase)).collect();
    type Key = (Option<Phase>, Source, u16);
    let mut sums: Vec<(Key, BrickStats)> = Vec::new();
    let mut of_sum: HashMap<Key, usize> = HashMap::new();
    let mut others = 0;
    for span in spans {
        let number = span.name.unwrap_or(OTHER_BRICK);
        others += u64::from(number >= OTHER_KERNEL);
        let phase = span.pass.and_then(|serial| phases.get(&serial).copied());
        let key = (phase, span.source, number);
        let index = *of_sum.entry(key).or_insert_with(|| {
            let name = names.get(usize::from(number));
            sums.push((key, BrickStats::new(name.map_or("(other)", |name| &name.name))));
            sums.len() - 1
        });
        sums[index].1.add(span.duration_ns, span.exclusive_ns, span.work);
    }
    let total = |((phase, source, number), stats): (Key, BrickStats)| {
        let sum = total(phase, source, stats);
        let is_kernel = number == OTHER_KERNEL;
        match names.get(usize::from(number)) {
            None if is_kernel => Total { kind: NameKind::Kernel, category: None, ..sum },
            None => sum,
            Some(name) => Total {
                kind: name.kind,
                category: name.brick_category(),
                host: name.host.clone(),
                device: name.device.clone(),
                ..sum
            },
        }
    };
    (sums.into_iter().map(total).collect(), others)
}

/// The sums of passes by phase.
pub(super) fn phases(passes: &[Pass]) -> Vec<PhaseTotal> {
    let sum = |phase| {
        let mut sum = PhaseTotal {
            phase,
            passes: 0,
            disturbed: 0,
            unwatched: None,
            tokens: 0,
            wall_ns: 0,
            attributed_ns: 0,
            unattributed_ns: 0,
        };
        for pass in passes.iter().filter(|pass| pass.phase == phase) {
            sum.passes += 1;
            sum.tokens = sum.tokens.saturating_add(pass.tokens);
            sum.wall_ns += pass.wall_ns;
            sum.attributed_ns += pass.attributed_ns;
            sum.unattributed_ns += pass.unattributed_ns;
        }
        // Of a part of the passes they would make a rate of nothing.
        if passes.iter().any(|pass| pass.phase == phase && pass.tokens == 0) {
            sum.tokens = 0;
        }
        sum
    };
    Phase::ALL.map(sum).into_iter().filter(|sum| sum.passes > 0).collect()
}
