//! A device that waits for the host to launch the next work.

use brickscope_profile::{LaunchKind, Phase};

use super::device::OnDevice;
use super::facts::Facts;
use super::{Finding, Findings, Gain, Kind};
use crate::words::{fraction, time, times};

/// Less than this part of the span is not worth a word.
const LEAST: f64 = 0.1;
/// With fewer launches, a graph saves nothing.
const LEAST_LAUNCHES: f64 = 16.0;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.devices {
        let (span, idle) = (of.busy.span_ns as f64, of.busy.idle_ns as f64);
        if of.late_ns as f64 >= LEAST * span {
            findings.found.push(finding(facts, of));
            continue;
        }
        // There are gaps, and it isn't the host that is known to be late.
        if idle >= LEAST * span && of.unknown_ns as f64 >= LEAST * span {
            findings.unknown(
                "launch-bound",
                format!(
                    "whether {} waits for launches in {} is not known: when the host launched what comes after {} of gaps a \
                     pass was not recorded",
                    of.name(facts.profile),
                    of.phase,
                    time(of.a_pass(of.unknown_ns))
                ),
            );
        }
    }
}

fn finding(facts: &Facts<'_>, of: &OnDevice<'_>) -> Finding {
    let phase = of.phase;
    let late_ns = of.a_pass(of.late_ns);
    let by = |kind: LaunchKind| of.a_pass(of.launches[kind as usize]);
    let (alone, replayed) = (by(LaunchKind::Issued), by(LaunchKind::Replayed));
    let has_graphs = ["cuda", "hip"].contains(&of.device.api.as_str());
    // A prompt is another shape each time.
    let is_off = has_graphs && phase == Phase::Decode && replayed == 0.0 && alone >= LEAST_LAUNCHES;
    let rule = if is_off { "graphs-off" } else { "launch-bound" };
    let mut finding = Finding::new(rule, Kind::Slow, Some(phase))
        .because(
            format!(
                "{} is idle for {} of {} a pass, and for {} of it the host had not launched what comes next",
                of.name(facts.profile),
                time(of.a_pass(of.busy.idle_ns)),
                time(of.span_ns()),
                time(late_ns)
            ),
            of.place("spans and launches"),
        )
        .because(
            format!("{} launches a pass by themselves, {} as part of a graph", times(alone), times(replayed)),
            of.place("launches, kind"),
        );
    let waits = format!(
        "{} waits for the host's launches for {} of {phase}",
        of.name(facts.profile),
        fraction(late_ns / of.span_ns())
    );
    if is_off {
        finding.what = format!("{waits}, and no graph is replayed");
        "record the decode pass as a graph (CUDA graphs: `torch.compile(mode=\"reduce-overhead\")`, vLLM without \
         `--enforce-eager`), so that one launch starts all of it"
            .clone_into(&mut finding.advice);
        "with graphs, the gaps stay".clone_into(&mut finding.refuted_if);
    } else {
        finding.what = waits;
        "launch less: fuse small kernels, launch ahead of the device without waiting for it, or replay passes as graphs"
            .clone_into(&mut finding.advice);
        "with half of the launches the gaps are as long".clone_into(&mut finding.refuted_if);
    }
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    // The work itself takes as long as the device is busy.
    let gain = Gain::between(of.span_ns(), of.a_pass(of.busy.busy_ns), [0.0, late_ns]);
    finding.gains(gain)
}
