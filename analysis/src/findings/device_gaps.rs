//! Time between one decode pass of a device and the next.

use brickscope_profile::Phase;

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::{fraction, time};

/// Less than this part of the time is not worth a word.
const LEAST: f64 = 0.03;
/// With fewer gaps, none is typical.
const LEAST_GAPS: usize = 5;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in facts.devices.iter().filter(|of| of.phase == Phase::Decode) {
        let mut gaps = of.between_ns.clone();
        gaps.sort_unstable();
        if gaps.len() < LEAST_GAPS {
            continue;
        }
        // Users, and servers, may have waited in between.
        let gap_ns = gaps[gaps.len() / 2] as f64;
        let now_ns = of.span_ns() + gap_ns;
        if gap_ns < LEAST * now_ns {
            continue;
        }
        let name = of.name(facts.profile);
        let mut finding = Finding::new("gaps-between-passes", FindingKind::Slow, Some(of.phase))
            .because(
                format!(
                    "{} between passes on {name}, of {} gaps the median; a pass spans {}",
                    time(gap_ns),
                    gaps.len(),
                    time(of.span_ns())
                ),
                of.place("passes, start_ns and wall_ns"),
            );
        finding.what = format!(
            "{name} has nothing to do for {} of decoding, between the passes",
            fraction(gap_ns / now_ns)
        );
        "launch the next pass before the last token is on the host (sample on the device), and do the rest (detokenising, \
         scheduling) beside it"
            .clone_into(&mut finding.advice);
        finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
        "what runs there needs the token of the pass before, on the host"
            .clone_into(&mut finding.refuted_if);
        let least_ns = of.a_pass(of.busy.busy_ns);
        findings.found.push(finding.gains(Gain::between(now_ns, least_ns, [0.0, gap_ns])));
    }
}
