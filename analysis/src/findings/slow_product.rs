//! A product of weights that is slower than another one of the same format.

use brickscope_profile::Phase;
use brickscope_profile::text::printable;

use super::facts::Facts;
use super::products::{Product, products};
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::Bound;
use crate::words::{digits, fraction};

/// Rates that differ by less than this part are alike: shapes differ, too.
const ALIKE: f64 = 0.8;
/// Less than this part of prefill is not worth a word.
const LEAST: f64 = 0.05;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(of) = facts.phases.iter().find(|of| of.phase == Phase::Prefill) else { return };
    let all = products(of, facts.profile.model.as_ref());
    let computing: Vec<&Product<'_>> =
        all.iter().filter(|of| of.is_bound_by(Bound::Compute)).collect();
    // Each with the fastest of its format, and what it takes longer.
    let slower = computing.iter().filter_map(|slow| {
        let alike = computing.iter().filter(|of| of.format.is_some() && of.format == slow.format);
        let best = alike.max_by(|a, b| a.rate().total_cmp(&b.rate()))?;
        let ratio = slow.rate() / best.rate();
        (ratio < ALIKE).then_some((*slow, *best, slow.ns * (1.0 - ratio)))
    });
    let Some((slow, best, saved)) = slower.max_by(|a, b| a.2.total_cmp(&b.2)) else { return };
    if saved < LEAST * of.pass_ns {
        return;
    }
    let (name, other) = (printable(slow.name), printable(best.name));
    let format = printable(slow.format.unwrap_or_default());
    let rate = |of: &Product<'_>| {
        format!("{} GFLOP/s, {} of the peak", digits(of.rate() / 1e9), fraction(of.place.of_peak))
    };
    let mut finding = Finding::new("slow-product", FindingKind::Slow, Some(Phase::Prefill))
        .because(format!("{name}: {}", rate(slow)), "the roofline")
        .because(format!("{other}, also {format}: {}", rate(best)), "the roofline")
        .because("both have this one format", "/model/weights");
    finding.what =
        format!("{name} computes slower than {other}, whose weights have the same format");
    finding.advice = format!("look at the kernel and the shapes of {name}");
    finding.in_a_sentence = Some(format!("{}: {}", finding.advice, finding.what));
    finding.refuted_if = format!("with the kernel of {other} it takes as long");
    finding.test = Some("brickscope show RUN --as kernels".to_owned());
    findings.found.push(finding.gains(Gain::between(of.pass_ns, of.least_ns, [0.0, saved])));
}
