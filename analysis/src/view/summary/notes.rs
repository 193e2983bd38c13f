//! What is doubtful or was left out.

use brickscope_profile::text::{printable, printable_text};
use brickscope_profile::{Dropped, Phase, Profile};

use super::apart::beside_passes;
use super::bricks::Main;
use super::lines::{Piece, Tone};
use crate::passes::did;
use crate::roofline::{Bound, Reach, Roofline};
use crate::typical::{Basis, Stall, Typical, median_pass_ns};
use crate::view::report::MOST_DRIFT_PPM;
use crate::view::{device, imported, waits};
use crate::words::{digits, fraction, time};

/// The most notes; the report has all.
pub(super) const MOST_NOTES: usize = 3;

/// What is doubtful, or was left out: a short line each.
pub(super) fn notes(profile: &Profile, main: &Main) -> Vec<Piece> {
    let mut notes = Vec::new();
    let bad = |text: String| Piece { text, tone: Tone::Bad };
    if let Some(how) = profile.run.as_ref().and_then(|run| run.cut_short.as_ref()) {
        notes.push(bad(format!("cut short: {}", printable_text(how))));
    }
    for doubt in profile.imported.iter().flat_map(|imported| &imported.doubts) {
        notes.push(bad(printable_text(doubt)));
    }
    if let Some(waited) = main.phase.and_then(|phase| waits::in_summary(profile, phase)) {
        notes.push(bad(waited));
    }
    let apart = beside_passes(profile).into_iter();
    notes.extend(apart.map(|text| Piece { text, tone: Tone::Plain }));
    let mut dropped = profile.dropped;
    if let Some(missing) = missing_passes(profile) {
        notes.insert(0, bad(missing));
        (dropped.abandoned_passes, dropped.nested_passes) = (0, 0);
    }
    if !main.is_told {
        let phases = Phase::SHOWN.into_iter();
        let lines: Vec<Piece> = phases.filter_map(|phase| disturbances(profile, phase)).collect();
        if !lines.is_empty() {
            // They have these, with the causes.
            dropped.disturbed_passes = 0;
        }
        notes.extend(lines);
    }
    let of_steps = imported::mixed(profile).into_iter().chain(imported::waiting(profile));
    notes.extend(of_steps.map(|text| Piece { text, tone: Tone::Plain }));
    // First, since it says what the figures are.
    let serialised = device::serialised_notes(profile).into_iter();
    notes.splice(..0, serialised.map(|text| Piece { text, tone: Tone::Plain }));
    if let Some(kept) = &profile.kept {
        // What isn't listed was not lost.
        (dropped.passes, dropped.spans) = (0, 0);
        notes.insert(0, Piece { text: kept.line(), tone: Tone::Plain });
    }
    if let Some(fired) = &profile.fired {
        // What somebody waits for.
        let tone = if fired.fired > 0 { Tone::Bad } else { Tone::Plain };
        notes.insert(0, Piece { text: fired.line(), tone });
    }
    // Before all else, since what is cut from the notes is their end: no figure tells that these came.
    let missed_requests = std::mem::take(&mut dropped.missed_requests);
    let missed = Dropped { missed_requests, ..Dropped::default() };
    notes.splice(..0, missed.lines().map(bad));
    let [lost, left_out] = dropped.lost_and_left_out();
    notes.extend(lost.lines().map(bad));
    // That was on purpose.
    notes.extend(left_out.lines().map(|text| Piece { text, tone: Tone::Plain }));
    notes.extend(device::losses(profile).into_iter().map(bad));
    if let Some(ppm) = profile.clock.drift_ppm.filter(|ppm| ppm.abs() > MOST_DRIFT_PPM) {
        notes.push(bad(format!("the counter drifted {ppm:+.0} ppm from the OS clock")));
    }
    for phase in Phase::SHOWN {
        let verdict = Roofline::of(profile, phase).ok().and_then(|roofline| roofline.verdict());
        if let Some(verdict) = verdict.filter(|verdict| verdict.reach == Reach::Above) {
            let roof = match verdict.bound {
                Bound::Compute => "peak FLOP/s were".to_owned(),
                _ => format!("bandwidth of {} was", printable(&verdict.level)),
            };
            notes.push(Piece {
                text: format!(
                    "{phase}: the {roof} measured too low, or more work was stated than was done"
                ),
                tone: Tone::Plain,
            });
        }
    }
    let slow = main.slow_layer(profile).filter(|slow| !slow.slows_down());
    notes.extend(slow.map(|slow| Piece { text: slow.to_string(), tone: Tone::Plain }));
    if notes.len() > MOST_NOTES {
        let more = notes.len() - (MOST_NOTES - 1);
        notes.truncate(MOST_NOTES - 1);
        notes.push(bad(format!("{more} more notes: `--full`")));
    }
    notes
}

/// Passes that an engine forgot to end: how many, of all, and what to call.
fn missing_passes(profile: &Profile) -> Option<String> {
    let [never_ended, nested] =
        [profile.dropped.abandoned_passes, profile.dropped.nested_passes].map(u128::from);
    if never_ended + nested == 0 || profile.imported.is_some() {
        return None;
    }
    let ended: u128 = profile.phases.iter().map(|phase| u128::from(phase.passes)).sum();
    let why = match (never_ended, nested) {
        (n, 0) => format!("{n} never ended"),
        (0, n) => format!("{n} began inside of another one"),
        (n, inside) => format!("{n} never ended, {inside} began inside of another one"),
    };
    let (missing, all) = (never_ended + nested, never_ended + nested + ended);
    let passes = if all == 1 { "pass" } else { "passes" };
    let are = if missing == 1 { "is" } else { "are" };
    Some(format!("{missing} of {all} {passes} {are} missing, {why}: call end_pass"))
}

/// How many passes count, and what became of the others.
fn disturbances(profile: &Profile, phase: Phase) -> Option<Piece> {
    let total = profile.phase(phase)?;
    let typical = Typical::of(profile, phase)?;
    let all = total.passes;
    let out = &typical.left_out;
    if typical.basis == Basis::Sums && total.disturbed > 0 {
        let n = total.disturbed;
        let text = format!("{n} of {all} {phase} passes disturbed; they are in the times");
        return Some(Piece { text, tone: Tone::Bad });
    }
    let plain = |text: String| Some(Piece { text, tone: Tone::Plain });
    if out.passes == 0 {
        let is_known = total.disturbed == 0
            && profile.dropped.left_out_later() == 0
            && typical.unwatched == Some(0);
        // One pass says little, and a line is dear.
        return if is_known && all > 1 {
            let which = match missing_passes(profile) {
                Some(_) => format!("the {all} {phase} passes that ended were"),
                None => format!("all {all} {phase} passes"),
            };
            plain(format!("{which} undisturbed"))
        } else {
            None
        };
    }
    let mut causes: Vec<String> =
        out.disturbed.iter().map(|(&by, n)| format!("{} ({n})", did(by))).collect();
    let by_itself =
        |stall: &&Stall| !stall.disturbance.is_some_and(|disturbance| disturbance.is_disturbed());
    if let (Some(stall), 1..) = (typical.stalls.iter().find(by_itself), out.stalled) {
        let stalls = match out.stalled {
            1 => "one stall".to_owned(),
            n => format!("{n} stalls, the longest"),
        };
        let layer = stall.layer.map_or(String::new(), |layer| format!(" in layer {layer}"));
        causes.push(format!("{stalls} of {}{layer}", time(stall.ns as f64)));
    }
    let causes = match &out.disturbed.iter().collect::<Vec<_>>()[..] {
        // The number is in the sentence.
        [(by, n)] if **n == out.passes => did(**by).to_owned(),
        _ => causes.join(", "),
    };
    if typical.basis == Basis::Spans {
        let mean_ns = total.wall_ns as f64 / (all as f64).max(1.0);
        let median_ns = median_pass_ns(profile, phase)?;
        let basis = format!("by median spans ({} of {} a pass)", time(median_ns), time(mean_ns));
        let text = match (all, all.saturating_sub(out.passes)) {
            (1, _) => format!("the {phase} pass was disturbed, so bricks are {basis}: {causes}"),
            (_, 0) => format!("no {phase} pass is clean, so bricks are {basis}: {causes}"),
            (_, n) => {
                let clean = typical.clean.and_then(|clean| clean.tokens_per_second());
                let rate = clean.map_or(String::new(), |rate| format!(" ({} tok/s)", digits(rate)));
                format!(
                    "only {n} of {all} {phase} passes are clean{rate}, so bricks are {basis}: {causes}"
                )
            }
        };
        return Some(Piece { text, tone: Tone::Bad });
    }
    let share = fraction(out.wall_ns as f64 / (total.wall_ns as f64).max(1.0));
    plain(format!("{} of {all} {phase} passes left out ({share} of wall): {causes}", out.passes))
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, BrickProfiler, MockClock};
    use brickscope_profile::ClockInfo;
    use brickscope_profile::keep::{Fired, Kept};

    use super::*;
    use crate::view::{self, Size};

    #[test]
    fn one_pass_that_is_missing_is_one() {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.dropped.nested_passes = 1;
        let said = "1 of 1 pass is missing, 1 began inside of another one: call end_pass";
        assert_eq!(missing_passes(&profile).as_deref(), Some(said));
    }

    #[test]
    fn requests_that_are_not_recorded_are_told_whatever_else_there_is_to_tell() {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.kept = Some(Kept { passes: 9, ..Kept::default() });
        profile.fired = Some(Fired::none("token>5ms".parse().expect("a condition")));
        (profile.dropped.missed_requests, profile.dropped.late) = (3, 1);
        let notes = notes(&profile, &Main::of(&profile));
        let notes: Vec<&str> = notes.iter().map(|note| &*note.text).collect();
        assert_eq!(notes.len(), MOST_NOTES, "{notes:?}");
        assert_eq!(notes[0], "requests that came and are not recorded: 3");
        assert_eq!(notes[MOST_NOTES - 1], "2 more notes: `--full`");
    }

    #[test]
    fn passes_that_were_never_ended_are_told_first() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for nth in 0..8 {
            let pass = profiler.begin_pass(Phase::Decode);
            let timer = profiler.start_brick(BrickId::LmHead);
            hand.advance(1_000_000);
            profiler.stop_brick(timer, 1);
            if nth < 3 {
                profiler.end_pass(pass, 1, nth);
            }
        }
        let profile = profiler.profile();
        let said = "5 of 8 passes are missing, 5 never ended: call end_pass";
        assert_eq!(missing_passes(&profile).as_deref(), Some(said));
        let screen = view::summary(&profile, Size::default(), None).to_string();
        assert!(screen.lines().any(|line| line.trim() == said), "{screen}");
        assert!(!screen.contains("all 3 decode passes"), "{screen}");
    }
}
