//! Time between one decode pass and the next.

use brickscope_profile::run::Format;
use brickscope_profile::text::printable;
use brickscope_profile::{Between, Pass, PassTime, Phase, Profile};

use super::facts::{Facts, PhaseFacts};
use super::{Finding, FindingKind, Findings, Gain};
use crate::passes::is_next;
use crate::words::{fraction, time};

/// Less than this part of the time is not worth a word.
const LEAST: f64 = 0.03;
/// Nor is less than what any loop over tokens takes, and a look at the threads of the process.
const LEAST_NS: f64 = 10_000.0;
/// With fewer gaps, none is typical.
const LEAST_GAPS: usize = 5;

/// The median time between a decode pass and the one that follows it in the same text, in nanoseconds, and the number of
/// such gaps. `None` with fewer than five.
pub(crate) fn typical(profile: &Profile) -> Option<(f64, usize)> {
    let mut passes: Vec<&Pass> = profile.passes.iter().collect();
    passes.sort_by_key(|pass| pass.start_ns);
    // Of the same text: the next token.
    let follows = |a: &Pass, b: &Pass| {
        a.phase == Phase::Decode && b.phase == Phase::Decode && a.lane == b.lane && is_next(a, b)
    };
    let mut gaps: Vec<f64> = passes
        .windows(2)
        .filter(|pair| follows(pair[0], pair[1]))
        .map(|pair| {
            pair[1].start_ns.saturating_sub(pair[0].start_ns.saturating_add(pair[0].wall_ns)) as f64
        })
        .collect();
    gaps.sort_by(f64::total_cmp);
    // The median: a user may have thought for a while in between.
    (gaps.len() >= LEAST_GAPS).then(|| (gaps[gaps.len() / 2], gaps.len()))
}

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(of) = facts.phases.iter().find(|of| of.phase == Phase::Decode) else { return };
    // Other formats don't say when passes began.
    let imported = facts.profile.imported.as_ref();
    let has_begins = |format: &str| [Format::Chrome.name(), "brickscope.py"].contains(&format);
    if imported.is_some_and(|imported| !has_begins(&imported.format)) {
        return;
    }
    if let Some(between) = facts.profile.run.as_ref().and_then(|run| run.between.as_ref()) {
        // What another context computed meanwhile is no gap of this one.
        return known(of, between, findings);
    }
    let Some((gap_ns, gaps)) = typical(facts.profile) else { return };
    let now_ns = of.pass_ns + gap_ns;
    if gap_ns < LEAST * now_ns || gap_ns < LEAST_NS {
        return;
    }
    let mut finding = Finding::new("gaps-between-passes", FindingKind::Slow, Some(Phase::Decode))
        .because(
            format!(
                "{} between passes, of {} gaps the median; a pass takes {}",
                time(gap_ns),
                gaps,
                time(of.pass_ns)
            ),
            "/passes, start_ns and wall_ns",
        );
    finding.what = format!("{} of decoding lies between the passes", fraction(gap_ns / now_ns));
    "find out what runs between passes (sampling, detokenising, a network, a lock), and do it beside the next pass"
        .clone_into(&mut finding.advice);
    "a flamegraph of the whole process shows no work there, or work that the next pass has to wait for"
        .clone_into(&mut finding.refuted_if);
    finding.test = Some("brickscope flamegraph -- COMMAND".to_owned());
    // What stays is what has to be done there, which the profile doesn't say.
    let gain = Gain::between(now_ns, of.least_ns, [0.0, gap_ns]);
    findings.found.push(finding.gains(gain.map(|gain| gain.of(PassTime::WithGap))));
}

/// Where what lies between passes was recorded, by what the program did in it.
fn known(of: &PhaseFacts<'_>, between: &Between, findings: &mut Findings) {
    let Between { passes, passes_ns, between_ns, .. } = *between;
    if passes < LEAST_GAPS as u64 {
        return;
    }
    let gap_ns = between_ns as f64 / passes as f64;
    let whole_ns = passes_ns as f64 + between_ns as f64;
    let share = between_ns as f64 / whole_ns;
    if share < LEAST || gap_ns < LEAST_NS {
        return;
    }
    let (name, ns) = longest(between);
    let name = printable(name);
    let mut finding = Finding::new("gaps-between-passes", FindingKind::Slow, Some(Phase::Decode))
        .because(
            format!(
                "{} between passes on average, of {passes}; {name} takes {} of it",
                time(gap_ns),
                time(ns as f64 / passes as f64)
            ),
            "/run/between",
        );
    finding.what = format!(
        "{} of decoding lies between the passes, {name} {}",
        fraction(share),
        fraction(ns as f64 / whole_ns)
    );
    finding.advice = advice(&name);
    "a flamegraph of the whole process shows no work there, or work that the next pass has to wait for"
        .clone_into(&mut finding.refuted_if);
    finding.test = Some("brickscope flamegraph -- COMMAND".to_owned());
    let gain = Gain::between(of.pass_ns + gap_ns, of.least_ns, [0.0, gap_ns]);
    findings.found.push(finding.gains(gain.map(|gain| gain.of(PassTime::WithGap))));
}

/// What takes most of the time between passes, and how long.
pub(super) fn longest(between: &Between) -> (&str, u64) {
    let rest = ("the program itself", between.rest_ns());
    let calls = between.calls.iter().map(|of| (of.name.as_str(), of.ns));
    calls.fold(rest, |longest, of| if of.1 > longest.1 { of } else { longest })
}

/// What to do about what takes most of it.
pub(super) fn advice(name: &str) -> String {
    match name {
        "sampling" => "use fewer samplers, or those that leave few tokens (top-k) first".to_owned(),
        "grammar" => "use a simpler grammar, or check it only against the token that was chosen".to_owned(),
        "the program itself" => {
            "find out what the program does between passes (a network, a lock, an interpreter), and do it beside the next pass".to_owned()
        }
        name => format!("look at {name}: it could be done beside the next pass"),
    }
}
