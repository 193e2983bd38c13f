//! What lies between the passes that decode.

use brickscope::{Between, Calls, Pass, Phase, Profile};

use crate::recording::format::CALLS;
use crate::recording::passes::Found;

/// The time before a pass, since its thread's pass before.
#[derive(Debug, Clone)]
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
    let mut sums = Sums::default();
    let decodes = |pass: &&Pass| pass.phase == Phase::Decode && !pass.is_left_out;
    for pass in profile.passes.iter().filter(decodes) {
        let nth = (pass.serial as usize).checked_sub(1);
        let Some(gap) = nth.and_then(|nth| gaps.get(nth)?.as_ref()) else { continue };
        sums.add(pass.tokens, pass.wall_ns, gap);
    }
    sums.finish()
}

/// The sums of passes that decode and come after others, and of what lies before them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    between: Between,
    calls: [[u64; 2]; CALLS.len()],
}

impl Sums {
    pub(crate) fn add(&mut self, tokens: u64, wall_ns: u64, gap: &Gap) {
        let Self { between, calls } = self;
        between.passes += 1;
        for (sum, more) in [
            (&mut between.tokens, tokens),
            (&mut between.passes_ns, wall_ns),
            (&mut between.between_ns, gap.ns),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in calls.as_flattened_mut().iter_mut().zip(gap.calls.as_flattened()) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// `None` if there are none.
    pub(crate) fn finish(self) -> Option<Between> {
        let calls = CALLS.iter().zip(self.calls).filter(|(_, [calls, _])| *calls > 0);
        let calls = calls.map(|(name, [calls, ns])| Calls { name: (*name).to_owned(), calls, ns });
        let between = Between { calls: calls.collect(), ..self.between };
        (between.passes > 0).then_some(between)
    }
}
