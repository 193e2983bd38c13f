//! What a run took, what limits it and what slows it down, for the text of a flamegraph: as its own screens say.

use brickscope_profile::{Phase, Profile};

use super::summary::Latency;
use crate::findings::{Finding, Findings};
use crate::rate::Rate;
use crate::{typical, view};

/// The most findings; `brickscope findings` has all.
const MOST: usize = 5;

/// What the passes of each phase took.
#[must_use]
pub fn latency(profile: &Profile) -> Vec<Latency> {
    let shown = typical::shown(profile);
    let of = |phase| {
        let total = shown.phase(phase).filter(|total| total.passes > 0)?;
        let rate = Rate::of(profile, phase);
        Some(Latency {
            phase,
            passes: total.passes,
            wall_ns: total.wall_ns,
            tokens_per_second: rate.map(|rate| rate.tokens_per_second),
        })
    };
    Phase::SHOWN.into_iter().filter_map(of).collect()
}

/// How near each phase is to its limit, then what was found, a sentence each.
#[must_use]
pub fn insights(profile: &Profile) -> Vec<String> {
    let phases = Phase::SHOWN.into_iter().filter(|&phase| profile.phase(phase).is_some());
    let limits = phases.map(|phase| format!("{phase}: {}", view::phase_limit(profile, phase).text));
    let findings = Findings::of(profile);
    let found = findings.found.iter().filter(|finding| !finding.is_refuted());
    limits.chain(found.take(MOST).map(sentence)).collect()
}

fn sentence(finding: &Finding) -> String {
    let gain = finding.gain.map(|gain| format!(": up to {:.0} % less", 100.0 * gain.parts()[2]));
    format!("{}{}; {}", finding.what, gain.unwrap_or_default(), finding.advice)
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickProfiler, MockClock};

    use super::*;

    #[test]
    fn a_run_says_what_its_passes_took_and_what_slows_it_down() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for position in 0..20 {
            let pass = profiler.begin_pass(Phase::Decode);
            let timer = profiler.start("Mlp");
            hand.advance(1_000_000);
            profiler.stop(timer, 1);
            profiler.end_pass(pass, 1, position);
            // Something else runs after each pass.
            hand.advance(500_000);
        }
        let profile = profiler.profile();
        let took = Latency {
            phase: Phase::Decode,
            passes: 20,
            wall_ns: 20_000_000,
            tokens_per_second: Some(1000.0),
        };
        assert_eq!(latency(&profile), [took]);
        let said = insights(&profile);
        assert!(said[0].starts_with("decode: "), "{said:?}");
        assert!(said[1..].iter().any(|line| line.contains(" % less; ")), "{said:?}");
    }
}
