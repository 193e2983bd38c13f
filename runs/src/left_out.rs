//! What is left out of a run that is shown.

use std::collections::HashSet;

use brickscope_analysis::typical::{Basis, Typical};
use brickscope_profile::{Pass, Profile};

/// The profile without passes that were disturbed or had a stall. Each phase is decided by itself: one of which no
/// pass would remain keeps all, with a note. A report leaves them out by itself, and says why, unless too few would
/// remain. Calls `tell` with each note.
pub fn without_disturbed(profile: Profile, is_report: bool, tell: fn(&str)) -> Profile {
    let mut out: HashSet<u32> = HashSet::new();
    let mut report_does_it = true;
    for typical in Typical::all(&profile) {
        let phase = typical.phase;
        let stalled: HashSet<u32> = typical.stalls.iter().map(|stall| stall.pass).collect();
        let is_out = |pass: &&Pass| pass.is_disturbed() || stalled.contains(&pass.serial);
        let passes = || profile.passes.iter().filter(|p| p.phase == phase && !p.is_left_out);
        let of_phase: Vec<u32> = passes().filter(is_out).map(|pass| pass.serial).collect();
        if !of_phase.is_empty() && of_phase.len() == passes().count() {
            tell(&format!(
                "all passes of {phase} were disturbed or had a stall ({}), so none is left out of it",
                of_phase.len()
            ));
            continue;
        }
        report_does_it &= of_phase.is_empty() || typical.basis == Basis::Passes;
        out.extend(of_phase);
    }
    if is_report && report_does_it && !out.is_empty() {
        return profile;
    }
    profile.without(|pass| out.contains(&pass.serial)).unwrap_or_else(|absent| {
        tell(&absent.reason);
        profile
    })
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, BrickProfiler, Disturbance, MockClock, Phase};
    use brickscope_analysis::view;

    use super::*;

    fn without_disturbed(profile: Profile, is_report: bool) -> Profile {
        super::without_disturbed(profile, is_report, |_| {})
    }

    /// Passes of one brick, of a prompt and of an answer. The 20th pass of the answer has a stall, and these of the
    /// prompt were disturbed.
    fn with_both_phases(prompt: usize, disturbed: &[usize]) -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for nth in 0..prompt + 40 {
            let phase = if nth < prompt { Phase::Prefill } else { Phase::Decode };
            let pass = profiler.begin_pass(phase);
            for brick in [BrickId::QkvProjection, BrickId::LmHead] {
                let timer = profiler.start_brick(brick);
                hand.advance(if nth == prompt + 20 { 90_000_000 } else { 1_000_000 });
                profiler.stop_brick(timer, 1);
            }
            profiler.end_pass(pass, 1, nth as u64);
        }
        let mut profile = profiler.profile();
        for &pass in disturbed {
            profile.passes[pass].disturbance = Some(Disturbance {
                passes: 1,
                wall_ns: profile.passes[pass].wall_ns,
                longest_wait_ns: Some(1_500_000),
                run_queue_wait_ns: Some(1_500_000),
                ..Disturbance::default()
            });
        }
        let n = profile.passes.iter().filter(|pass| pass.is_disturbed()).count();
        assert_eq!(n, disturbed.len());
        let prefill = profile.phases.iter_mut().find(|total| total.phase == Phase::Prefill);
        prefill.expect("a prompt").disturbed = n as u64;
        profile.dropped.disturbed_passes = n as u64;
        profile.check().expect("it adds up");
        profile
    }

    #[test]
    fn what_is_left_out_of_a_phase_does_not_depend_on_the_other() {
        let passes = |profile: &Profile| {
            [Phase::Prefill, Phase::Decode].map(|phase| profile.phase(phase).map(|of| of.passes))
        };
        // Of three passes of the prompt one was disturbed: fewer than five would remain, and the report by itself
        // leaves none out of this phase.
        let few = with_both_phases(3, &[1]);
        for is_report in [false, true] {
            let rest = without_disturbed(few.clone(), is_report);
            rest.check().expect("it adds up");
            assert_eq!(passes(&rest), [Some(2), Some(39)]);
            assert_eq!((rest.dropped.left_out_passes, rest.dropped.disturbed_passes), (2, 0));
            let left_out = rest.passes.iter().filter(|pass| pass.is_left_out);
            assert_eq!(left_out.map(|pass| pass.serial).collect::<Vec<u32>>(), [2, 24]);
            assert!(view::report(&rest).contains("passes left out of the tables: 2"));
        }
        // Of many the report does it, with the reasons.
        let many = with_both_phases(10, &[1, 4]);
        assert_eq!(passes(&without_disturbed(many.clone(), false)), [Some(8), Some(39)]);
        assert_eq!(without_disturbed(many.clone(), true), many);
        // A phase without any pass would say that it never ran.
        for is_report in [false, true] {
            let rest = without_disturbed(with_both_phases(2, &[0, 1]), is_report);
            let shown = view::json(&rest);
            assert_eq!(passes(&rest)[0], Some(2), "{shown}");
            assert_eq!(passes(&rest)[1], Some(if is_report { 40 } else { 39 }), "{shown}");
        }
    }
}
