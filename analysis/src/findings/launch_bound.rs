//! A device that waits for the host to launch the next work.

use brickscope_profile::{LaunchKind, Phase};

use super::device::{OnDevice, RIGHT_AFTER_NS};
use super::device_waits;
use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::{fraction, time, times};

/// Less than this part of the span is not worth a word.
const LEAST: f64 = 0.1;
/// The same of the host's pass.
const LEAST_OF_PASS: f64 = 0.02;
/// With fewer launches, a graph saves nothing.
const LEAST_LAUNCHES: f64 = 16.0;
/// A launch takes some microseconds, and some tens with what a framework does for it. A host that is later than this for each
/// of them does something else.
const MOST_FOR_A_LAUNCH_NS: f64 = 100_000.0;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.devices {
        let (span, idle) = (whole_ns(of), of.busy.idle_ns as f64);
        // Of files alone it is known which pass of the host launched what.
        let queued = of.around.map_or(0.0, |around| {
            of.queued_ns.saturating_add(around.before_ns.saturating_sub(around.unlaunched_ns))
                as f64
        });
        if queued > 0.0 && queued >= LEAST * span && !device_waits::is_found(facts.profile, of) {
            findings.unknown(
                "launch-bound",
                format!(
                    "what {} waited for in {} of {} a pass of {} is not known: work was launched, and none in the file \
                     ran; a pass before, an event or another process may have kept it",
                    of.name(facts.profile),
                    time(queued / of.busy.passes.max(1) as f64),
                    time(span / of.busy.passes.max(1) as f64),
                    of.phase
                ),
            );
        }
        let first = of.around.map_or(0, |around| around.unlaunched_ns);
        // Where the host's pass goes on for long behind the kernels, launches aren't what it takes.
        let behind = of.around.map_or(0, |around| around.behind_ns) as f64;
        let late = of.late_ns.max(first) as f64;
        if late > 0.0 && late >= LEAST * span && late >= LEAST_OF_PASS * (span + behind) {
            findings.found.push(finding(facts, of));
            continue;
        }
        if let Some(finding) = without_gaps(facts, of) {
            findings.found.push(finding);
            continue;
        }
        // There are gaps, and it isn't the host that is known to be late.
        if idle >= LEAST * span && of.unknown_ns as f64 >= LEAST * span {
            findings.unknown(
                "launch-bound",
                format!(
                    "whether {} waits for launches in {} is not known: {}",
                    of.name(facts.profile),
                    of.phase,
                    why_unknown(of)
                ),
            );
        }
    }
}

/// Why it isn't known what the device waited for between its kernels.
fn why_unknown(of: &OnDevice<'_>) -> String {
    let gaps = time(of.a_pass(of.unknown_ns));
    match of.has_fitting_clock {
        true => format!(
            "when the host launched what comes after {gaps} of gaps a pass was not recorded"
        ),
        false => format!(
            "the clocks of host and device don't fit, so {gaps} of gaps a pass aren't compared with launches"
        ),
    }
}

/// From the first kernel of a pass to the last; where the host's pass is known and the device does nothing before, from its
/// begin.
fn whole_ns(of: &OnDevice<'_>) -> f64 {
    of.busy.span_ns.saturating_add(of.around.map_or(0, |around| around.before_ns)) as f64
}

/// Time of it in which the device had nothing to do, and the host had not launched what comes next.
fn late_ns(of: &OnDevice<'_>) -> f64 {
    of.late_ns.saturating_add(of.around.map_or(0, |around| around.unlaunched_ns)) as f64
}

/// Where bricks last until the next one begins, gaps are in them. That the device waited shows by what begins as soon as it
/// is launched; how long, doesn't.
fn without_gaps(facts: &Facts<'_>, of: &OnDevice<'_>) -> Option<Finding> {
    let alone = of.launches[LaunchKind::Issued as usize];
    // Imported files have the ends of kernels. Without an alignment delays mean nothing.
    let error = of.device.clock_error_ns()?;
    let is_precise = i64::try_from(error).is_ok_and(|error| error <= RIGHT_AFTER_NS / 2);
    let has_gaps = of.busy.idle_ns as f64 >= LEAST * of.busy.span_ns as f64;
    let is_dry = of.a_pass(alone) >= LEAST_LAUNCHES && of.dry >= alone.div_ceil(2);
    if has_gaps || !is_precise || !is_dry || facts.profile.imported.is_some() {
        return None;
    }
    let name = of.name(facts.profile);
    let finding = Finding::new(rule(of), FindingKind::Slow, Some(of.phase)).because(
        format!(
            "{} of {alone} kernels began within {} of their launch, so nothing was queued before them",
            of.dry,
            time(RIGHT_AFTER_NS as f64)
        ),
        of.place("spans and launches"),
    );
    let what = format!("{name} waits for the host's launches in {}", of.phase);
    let finding = advised(facts, of, finding, what);
    Some(finding.cannot_predict(
        "a brick lasts until the next one begins, so how long the device waited within it is not known",
    ))
}

/// Whether there are graphs, and none was used. A prompt is another shape each time.
fn is_off(of: &OnDevice<'_>) -> bool {
    let by = |kind: LaunchKind| of.a_pass(of.launches[kind as usize]);
    let has_graphs = ["cuda", "hip"].contains(&of.device.api.as_str());
    has_graphs
        && of.phase == Phase::Decode
        && by(LaunchKind::Replayed) == 0.0
        && by(LaunchKind::Issued) >= LEAST_LAUNCHES
}

fn rule(of: &OnDevice<'_>) -> &'static str {
    if is_off(of) { "graphs-off" } else { "launch-bound" }
}

fn finding(facts: &Facts<'_>, of: &OnDevice<'_>) -> Finding {
    let phase = of.phase;
    let passes = of.busy.passes.max(1) as f64;
    let (late_ns, whole_ns) = (late_ns(of) / passes, whole_ns(of) / passes);
    let by = |kind: LaunchKind| of.a_pass(of.launches[kind as usize]);
    let (alone, replayed) = (by(LaunchKind::Issued), by(LaunchKind::Replayed));
    let by_themselves = match times(alone).as_str() {
        "1" => "1 launch a pass by itself".to_owned(),
        alone => format!("{alone} launches a pass by themselves"),
    };
    let finding = Finding::new(rule(of), FindingKind::Slow, Some(phase))
        .because(
            format!(
                "{} is idle for {} of {} a pass, and for {} of it the host had not launched what comes next",
                of.name(facts.profile),
                time(of.idle_ns(whole_ns)),
                time(whole_ns),
                time(late_ns)
            ),
            of.place("spans and launches"),
        )
        .because(
            format!("{by_themselves}, {} as part of a graph", times(replayed)),
            of.place("launches, kind"),
        );
    let waits = format!(
        "{} waits for the host's launches for {} of {phase}",
        of.name(facts.profile),
        fraction(late_ns / whole_ns)
    );
    let finding = advised(facts, of, finding, waits);
    // The work itself takes as long as the device is busy.
    let mut finding = finding;
    if let Some(around) = of.around.filter(|around| around.unlaunched_ns > of.late_ns) {
        let first_ns = of.a_pass(around.unlaunched_ns);
        finding.what = format!(
            "{} waits {} of {} a pass of {phase} for the host to launch its first kernel",
            of.name(facts.profile),
            time(first_ns),
            time(whole_ns)
        );
        "do less on the host before the first launch, or launch the next pass while this one runs"
            .clone_into(&mut finding.advice);
        "with the first launch earlier it takes as long".clone_into(&mut finding.refuted_if);
        finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    }
    let gain = Gain::between(whole_ns, of.a_pass(of.busy.busy_ns), [0.0, late_ns]);
    finding.gains(gain)
}

fn advised(facts: &Facts<'_>, of: &OnDevice<'_>, mut finding: Finding, waits: String) -> Finding {
    if is_off(of) {
        finding.what = format!("{waits}, and no graph is replayed");
        let how = match facts.profile.imported.is_some() {
            true => " (`torch.compile(mode=\"reduce-overhead\")`; vLLM without `--enforce-eager`)",
            false => "",
        };
        finding.advice =
            format!("record the decode pass as a graph{how}, so that one launch starts all of it");
        "with graphs it takes as long".clone_into(&mut finding.refuted_if);
    } else {
        finding.what = waits;
        // Where that isn't known, launches themselves are the first guess.
        let launches = of.launches.iter().fold(0, |sum, &n| u64::saturating_add(sum, n));
        let late_each_ns = late_ns(of) / launches.max(1) as f64;
        if late_each_ns > MOST_FOR_A_LAUNCH_NS {
            finding.advice = format!(
                "look at what the host does between its launches (`brickscope show RUN --host --full`): it is {} late for each \
                 in the mean, which is far more than a launch takes",
                time(late_each_ns)
            );
            "with less of that on the host it takes as long".clone_into(&mut finding.refuted_if);
            finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
            return finding;
        }
        "launch less: fuse small kernels, launch ahead of the device without waiting for it, or replay passes as graphs"
            .clone_into(&mut finding.advice);
        "with half of the launches it takes as long".clone_into(&mut finding.refuted_if);
    }
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    finding
}
