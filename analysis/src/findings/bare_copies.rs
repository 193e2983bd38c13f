//! Copies between host and device during which the device computes nothing.

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::{fraction, time};

/// Less than this part of the span is not worth a word.
const LEAST: f64 = 0.05;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.devices {
        let (bare_ns, copies_ns) = (of.a_pass(of.bare_ns), of.a_pass(of.copies_ns));
        if bare_ns < LEAST * of.span_ns() || of.bare_ns == 0 {
            continue;
        }
        let mut finding = Finding::new("unhidden-copies", FindingKind::Slow, Some(of.phase)).because(
            format!(
                "copies between host and device take {} of {} a pass, and in {} of it nothing else runs",
                time(copies_ns),
                time(of.span_ns()),
                time(bare_ns)
            ),
            of.place("spans"),
        );
        finding.what = format!(
            "{} only copies for {} of {}",
            of.name(facts.profile),
            fraction(bare_ns / of.span_ns()),
            of.phase
        );
        "copy on another stream while the device computes, from page-locked memory; or keep the data where they are used"
            .clone_into(&mut finding.advice);
        finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
        "what is copied is needed at once, and only there".clone_into(&mut finding.refuted_if);
        let least_ns = of.span_ns() - bare_ns;
        findings.found.push(finding.gains(Gain::between(of.span_ns(), least_ns, [0.0, bare_ns])));
    }
}
