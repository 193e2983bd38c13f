//! A prompt that is read in so few tokens at once that memory is the limit.

use brickscope_profile::Phase;

use super::facts::Facts;
use super::products::{Product, products};
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::{Bound, NEAR};
use crate::words::{fraction, size, time};

/// From this part of prefill on it is worth a word.
const LEAST: f64 = 0.5;
/// Larger batches are not worth a prediction.
const MOST_TOKENS: f64 = 1e6;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(of) = facts.phases.iter().find(|of| of.phase == Phase::Prefill) else { return };
    let Ok(roofline) = &of.roofline else { return };
    let all = products(of, facts.profile.model.as_ref());
    let bound: Vec<&Product<'_>> = all.iter().filter(|of| of.is_bound_by(Bound::Memory)).collect();
    let sum = |of: fn(&Product<'_>) -> f64| bound.iter().map(|product| of(product)).sum::<f64>();
    let (ns, least_ns) = (sum(|of| of.ns), sum(|of| of.least_ns));
    let (flops, bytes, weights) = (sum(|of| of.flops), sum(|of| of.bytes), sum(|of| of.weights));
    let tokens = of.total.tokens as f64 / of.total.passes as f64;
    // Far from what memory gives, memory isn't what it waits for.
    if ns < LEAST * of.pass_ns || least_ns < NEAR * ns || tokens < 1.0 || weights <= 0.0 {
        return;
    }
    // Weights are read once for all tokens, and activations once for each.
    let (of_token, moved) = (flops / tokens, (bytes - weights).max(0.0) / tokens);
    let needed = roofline.ridge * weights / (of_token - roofline.ridge * moved);
    if !(needed > tokens && needed < MOST_TOKENS) {
        return;
    }
    let then_ns = flops / roofline.peak_flops_per_second * 1e9;
    let mut finding = Finding::new("short-batch", FindingKind::Limit, Some(Phase::Prefill))
        .because(
            format!(
                "products take {} of {} a pass of {tokens:.0} tokens, and read {} of weights",
                time(ns),
                time(of.pass_ns),
                size(weights)
            ),
            "/totals",
        )
        .because(
            format!(
                "they compute {:.1} FLOPs for each byte; arithmetic is the limit from {:.1} on",
                flops / bytes,
                roofline.ridge
            ),
            "the roofline",
        );
    finding.what = format!(
        "matrices are read for {tokens:.0} tokens at once, so memory limits {} of prefill",
        fraction(ns / of.pass_ns)
    );
    finding.advice = format!(
        "read more tokens at once (larger batches, or several prompts together): from about {:.0} on, arithmetic is the limit",
        needed.ceil()
    );
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    "with twice as many tokens a pass takes twice as long".clone_into(&mut finding.refuted_if);
    // For the same tokens, as a part of such a batch.
    let least_then = of.least_ns - least_ns + then_ns;
    findings.found.push(finding.gains(Gain::between(of.pass_ns, least_then, [0.0, ns - then_ns])));
}
