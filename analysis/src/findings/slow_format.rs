//! A format of weights whose products are slower than those of another format in the same run.

use std::collections::BTreeMap;

use brickscope_profile::Phase;
use brickscope_profile::text::printable;

use super::facts::Facts;
use super::products::products;
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::Bound;
use crate::words::{digits, fraction, time};

/// A format is much slower if it reaches less than this part of another one's rate.
const SLOWER: f64 = 0.7;
/// Less than this part of prefill is not worth a word, and no measure of a format.
const LEAST: f64 = 0.05;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(of) = facts.phases.iter().find(|of| of.phase == Phase::Prefill) else { return };
    let all = products(of, facts.profile.model.as_ref());
    // Time and FLOPs.
    let mut formats: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for product in all.iter().filter(|of| of.is_bound_by(Bound::Compute)) {
        let Some(format) = product.format else { continue };
        let (ns, flops) = formats.entry(format).or_default();
        *ns += product.ns;
        *flops += product.flops;
    }
    let rate = |(ns, flops): (f64, f64)| flops / ns * 1e9;
    let measured = || formats.iter().filter(|(_, sums)| sums.0 >= LEAST * of.pass_ns);
    let Some((fast, best)) = measured().max_by(|a, b| rate(*a.1).total_cmp(&rate(*b.1))) else {
        return;
    };
    let saved = |sums: &(f64, f64)| sums.0 * (1.0 - rate(*sums) / rate(*best));
    let slower = measured().filter(|(_, sums)| rate(**sums) < SLOWER * rate(*best));
    let Some((slow, sums)) = slower.max_by(|a, b| saved(a.1).total_cmp(&saved(b.1))) else {
        return;
    };
    if saved(sums) < LEAST * of.pass_ns {
        return;
    }
    let (slow, fast) = (printable(slow), printable(fast));
    let of_format = |format: &str, sums: (f64, f64)| {
        format!(
            "products with {format}: {} GFLOP/s in {} a pass",
            digits(rate(sums) / 1e9),
            time(sums.0)
        )
    };
    let mut finding = Finding::new("slow-format", FindingKind::Slow, Some(Phase::Prefill))
        .because(of_format(&slow, *sums), "the roofline by /model/weights")
        .because(of_format(&fast, *best), "the roofline by /model/weights");
    finding.what = format!(
        "products with {slow} reach {} of the rate of those with {fast}",
        fraction(rate(*sums) / rate(*best))
    );
    finding.advice =
        format!("try the model with {fast} instead of {slow}, or another kernel for it");
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    finding.refuted_if = format!("in {fast} the same matrices take as long");
    finding.test = facts.flags.is_ours.then(|| "brickscope profile OTHER_MODEL".to_owned());
    findings.found.push(finding.gains(Gain::between(of.pass_ns, of.least_ns, [0.0, saved(sums)])));
}
