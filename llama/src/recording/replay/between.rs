//! What lies between the passes that decode.

use brickscope::{Between, Calls, Pass, Phase, Profile};

use crate::recording::format::CALLS;
use crate::recording::passes::Found;

/// The time before a pass, since its thread's pass before.
#[derive(Debug)]
pub(crate) struct Gap {
    ns: u64,
    calls: [[u64; 2]; CALLS.len()],
}

impl Gap {
    pub(crate) fn of(found: &Found<'_>, at: impl Fn(u64) -> u64) -> Option<Self> {
        let before = found.before?;
        let begin = at(found.pass.begin);
        // Counts of calls are those of the same clock, so many of them from any moment on.
        let ns = |counts: u64| begin.saturating_sub(at(found.pass.begin.saturating_sub(counts)));
        let ns_of = |[calls, counts]: [u64; 2]| [calls, ns(counts)];
        Some(Self { ns: begin.saturating_sub(at(before.ended)), calls: before.calls.map(ns_of) })
    }
}

/// What lies between passes that decode; `None` if there are none after others.
pub(crate) fn between(profile: &Profile, gaps: &[Option<Gap>]) -> Option<Between> {
    let mut between = Between::default();
    let mut sums = [[0_u64; 2]; CALLS.len()];
    let decodes = |pass: &&Pass| pass.phase == Phase::Decode && !pass.is_left_out;
    for pass in profile.passes.iter().filter(decodes) {
        let nth = (pass.serial as usize).checked_sub(1);
        let Some(gap) = nth.and_then(|nth| gaps.get(nth)?.as_ref()) else { continue };
        between.passes += 1;
        for (sum, more) in [
            (&mut between.tokens, pass.tokens),
            (&mut between.passes_ns, pass.wall_ns),
            (&mut between.between_ns, gap.ns),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in sums.as_flattened_mut().iter_mut().zip(gap.calls.as_flattened()) {
            *sum = sum.saturating_add(*more);
        }
    }
    let calls = CALLS.iter().zip(sums).filter(|(_, [calls, _])| *calls > 0);
    between.calls =
        calls.map(|(name, [calls, ns])| Calls { name: (*name).to_owned(), calls, ns }).collect();
    (between.passes > 0).then_some(between)
}
