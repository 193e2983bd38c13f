//! A phase that is far from its roof, and the brick with the most to gain.

use brickscope_profile::Absent;
use brickscope_profile::run::Format;
use brickscope_profile::text::printable;

use super::facts::{Facts, PhaseFacts};
use super::kernel_bound;
use super::long_context::{self, READ_THE_CACHE};
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::{Bound, Reach, RooflineBrick};
use crate::waiting::Waiting;
use crate::words::{fraction, time, whole_percent};

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    const RULE: &str = "far-from-the-roof";
    const NOTHING: f64 = 0.05;
    // Its own rule knows what its tests read and compute.
    if facts.is_from(Format::LlamaBench) {
        return;
    }
    for of in facts.under_a_roof() {
        let phase = of.name(facts.profile);
        let roofline = match &of.roofline {
            Ok(roofline) => roofline,
            Err(Absent { reason }) => {
                findings.unknown(RULE, format!("how fast {phase} could be is not known: {reason}"));
                continue;
            }
        };
        let Some(verdict) = &of.verdict else {
            findings.unknown(
                RULE,
                format!("how fast {phase} could be is not known: no FLOPs and bytes were stated"),
            );
            continue;
        };
        if verdict.reach == Reach::Unsettled {
            findings.unknown(
                RULE,
                format!("how near {phase} is to its roof is not known: {}", verdict.says()),
            );
            continue;
        }
        let is_near_memory = verdict.reach == Reach::Near && verdict.bound == Bound::Memory;
        if !matches!(verdict.reach, Reach::Near | Reach::Far) || is_near_memory {
            continue;
        }
        // Attention over a long context has a finding of its own.
        let is_long = findings
            .found
            .iter()
            .any(|found| found.rule == long_context::RULE && found.phase == Some(of.phase));
        // And so have bricks that their kernels limit.
        let at_pace = kernel_bound::bricks(of);
        let is_at_pace =
            |brick: &&RooflineBrick| at_pace.iter().any(|(other, _)| other.name == brick.name);
        let bricks: Vec<&RooflineBrick> = roofline
            .bricks
            .iter()
            .filter(|brick| !is_long || !READ_THE_CACHE.contains(&brick.name.as_str()))
            .filter(|brick| !is_at_pace(brick))
            .collect();
        let by_gain =
            |a: &&&RooflineBrick, b: &&&RooflineBrick| above_ns(a).total_cmp(&above_ns(b));
        let Some(most) = bricks.iter().max_by(by_gain).filter(|most| above_ns(most) > 0.0) else {
            continue;
        };
        let above = above_ns(most) / of.passes;
        // Of a phase that is near its roof, or whose kernels are found to be slow, a little is nothing to look at.
        let is_explained = verdict.reach == Reach::Near || !at_pace.is_empty();
        if is_explained && above < NOTHING * of.pass_ns {
            continue;
        }
        let name = printable(&most.name);
        let part = fraction(above / of.pass_ns);
        let mut finding = Finding::new(RULE, FindingKind::Slow, Some(of.phase))
            .because(
                format!("{phase} reaches {} of its roof", whole_percent(verdict.of_roof)),
                "the roofline",
            )
            .because(format!("{name}: {} a pass above its roof", time(above)), "the roofline");
        finding.what = format!(
            "{name} takes {} a pass more than its roof allows, {part} of {phase}",
            time(above)
        );
        let all: f64 = bricks.iter().map(|brick| above_ns(brick)).sum::<f64>() / of.passes;
        finding.advice = cause(facts, of, verdict.reach);
        finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
        match of.device {
            None => "another kernel, or another number of threads, takes as long",
            Some(_) => "another kernel takes as long",
        }
        .clone_into(&mut finding.refuted_if);
        finding.test = match of.device {
            None => facts.flags.is_ours.then(|| "brickscope show RUN --as roofline".to_owned()),
            Some(index) => Some(format!("brickscope show RUN --device {index} --as roofline")),
        };
        // Whether its code can be as fast as the machine, the profile doesn't say. That of another brick is.
        let gain = Gain::between(of.pass_ns, of.least_ns, [0.0, all]);
        let likely = above_the_best_ns(&bricks, of);
        if likely > 0.0 {
            finding = finding.because(
                format!(
                    "if each came as near to its roof as the nearest: {} a pass less",
                    time(likely)
                ),
                "the roofline",
            );
        }
        let absent = roofline.pace_absent.as_ref().filter(|_| !facts.flags.is_ours);
        if let Some(Absent { reason }) = absent {
            finding = finding.because(reason.trim_end_matches('.'), "/run/backend");
        }
        // It names no cause, so it comes after what does.
        finding.rank_ns = Some(0.0);
        findings.found.push(finding.gains(gain));
    }
}

/// What all spans of a brick take beyond their least time.
pub(super) fn above_ns(brick: &RooflineBrick) -> f64 {
    brick.place.as_ref().map_or(0.0, |place| place.us_to_roof * 1e3 * brick.spans as f64)
}

/// What a pass would take less if each brick came as near to its roof as that which comes nearest, of those that take a
/// twentieth of a pass.
fn above_the_best_ns(bricks: &[&RooflineBrick], of: &PhaseFacts<'_>) -> f64 {
    const LEAST: f64 = 0.05;
    let total_ns = |brick: &RooflineBrick| brick.total_ns as f64 / of.passes;
    let least_ns = |brick: &RooflineBrick| total_ns(brick) - above_ns(brick) / of.passes;
    let of_roof = |brick: &RooflineBrick| least_ns(brick) / total_ns(brick);
    let large: Vec<&RooflineBrick> = bricks
        .iter()
        .copied()
        .filter(|brick| brick.place.is_some() && total_ns(brick) >= LEAST * of.pass_ns)
        .collect();
    let best = large.iter().map(|brick| of_roof(brick)).fold(0.0, f64::max);
    if best <= 0.0 {
        return 0.0;
    }
    large.iter().map(|brick| (total_ns(brick) - least_ns(brick) / best).max(0.0)).sum()
}

/// What likely makes it slow.
fn cause(facts: &Facts<'_>, of: &PhaseFacts<'_>, reach: Reach) -> String {
    /// Less than this part of their time is not what makes a run slow.
    const MUCH: f64 = 0.1;
    let (threads, shares) = (facts.flags.threads, facts.flags.shares);
    if reach != Reach::Far {
        return "its kernel could save that much at most".to_owned();
    }
    if of.device.is_some() {
        return "likely latency, or too few threads or bytes in flight: look at its kernels in the full report"
            .to_owned();
    }
    if facts.threads() < 2
        && let Some(pace) = of.verdict.as_ref().and_then(|verdict| verdict.pace.as_ref())
    {
        let take = if pace.is_of_several() { "compute" } else { "take in" };
        return format!(
            "likely latency, or something else had the core: its products {take} {}",
            pace.says()
        );
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
