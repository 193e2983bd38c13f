//! A phase that is far from its roof, and the brick with the most to gain.

use brickscope_profile::Absent;
use brickscope_profile::run::Format;
use brickscope_profile::text::printable;

use super::facts::{Facts, PhaseFacts};
use super::{Finding, Findings, Gain, Kind};
use crate::roofline::{Bound, Reach, RooflineBrick};
use crate::waiting::Waiting;
use crate::words::{fraction, time, whole_percent};

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    const RULE: &str = "far-from-the-roof";
    // Its own rule knows what its tests read and compute.
    if facts.is_from(Format::LlamaBench) {
        return;
    }
    for of in &facts.phases {
        let roofline = match &of.roofline {
            Ok(roofline) => roofline,
            Err(Absent { reason }) => {
                findings.unknown(
                    RULE,
                    format!("how fast {} could be is not known: {reason}", of.phase),
                );
                continue;
            }
        };
        let Some(verdict) = &of.verdict else {
            findings.unknown(
                RULE,
                format!(
                    "how fast {} could be is not known: no FLOPs and bytes were stated",
                    of.phase
                ),
            );
            continue;
        };
        let is_near_memory = verdict.reach == Reach::Near && verdict.bound == Bound::Memory;
        if !matches!(verdict.reach, Reach::Near | Reach::Far) || is_near_memory {
            continue;
        }
        let by_gain = |a: &&RooflineBrick, b: &&RooflineBrick| above_ns(a).total_cmp(&above_ns(b));
        let Some(most) = roofline.bricks.iter().max_by(by_gain).filter(|most| above_ns(most) > 0.0)
        else {
            continue;
        };
        let above = above_ns(most) / of.passes;
        let name = printable(&most.name);
        let part = fraction(above / of.pass_ns);
        let mut finding = Finding::new(RULE, Kind::Slow, Some(of.phase))
            .because(
                format!("{} reaches {} of its roof", of.phase, whole_percent(verdict.of_roof)),
                "the roofline",
            )
            .because(format!("{name}: {} a pass above its roof", time(above)), "the roofline");
        finding.what = format!(
            "{name} takes {} a pass more than its roof allows, {part} of {}",
            time(above),
            of.phase
        );
        let all: f64 = roofline.bricks.iter().map(above_ns).sum::<f64>() / of.passes;
        finding.advice = cause(facts, of, verdict.reach);
        finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
        "another kernel, or another number of threads, takes as long"
            .clone_into(&mut finding.refuted_if);
        finding.test = facts.flags.is_ours.then(|| "brickscope show RUN --as roofline".to_owned());
        // Whether its code can be as fast as the machine, the profile doesn't say.
        findings.found.push(finding.gains(Gain::between(of.pass_ns, of.least_ns, [0.0, all])));
    }
}

/// What all spans of a brick take beyond their least time.
pub(super) fn above_ns(brick: &RooflineBrick) -> f64 {
    brick.place.as_ref().map_or(0.0, |place| place.us_to_roof * 1e3 * brick.spans as f64)
}

/// What likely makes it slow.
fn cause(facts: &Facts<'_>, of: &PhaseFacts<'_>, reach: Reach) -> String {
    /// Less than this part of their time is not what makes a run slow.
    const MUCH: f64 = 0.1;
    let (threads, shares) = (facts.flags.threads, facts.flags.shares);
    if reach != Reach::Far {
        return "no other brick has more to gain".to_owned();
    }
    if facts.threads() < 2 {
        return format!("likely latency, or a single thread: try more `{threads}`");
    }
    let Some(waiting) = Waiting::of(facts.profile, of.phase) else {
        return format!("likely waits or idle threads, so try other `{threads}`{shares}");
    };
    let part = whole_percent(waiting.part());
    match waiting.most().filter(|_| waiting.part() >= MUCH) {
        Some(most) => {
            format!(
                "threads waited for each other for {part} of their time, most in {most}: try other `{threads}`"
            )
        }
        None => format!(
            "threads waited for each other for {part} of their time, so its code or its data are slow"
        ),
    }
}
