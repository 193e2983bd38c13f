//! Choosing the next token, where that shows.

use brickscope_profile::{BrickId, Change};

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::{fraction, time};

/// Less than this part of decode is not worth a word.
const LEAST: f64 = 0.03;
/// As many of the likeliest tokens as most programs sample from.
const FEW: u32 = 40;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(of) = facts.main() else { return };
    let own_ns = of.own_ns(|name| name == BrickId::Sampling.name());
    let share = own_ns / of.pass_ns;
    if share < LEAST {
        return;
    }
    let mut finding = Finding::new("slow-sampling", FindingKind::Slow, Some(of.phase)).because(
        format!("Sampling takes {} of {} a pass", time(own_ns), time(of.pass_ns)),
        "/totals, Sampling",
    );
    finding.what = format!("choosing the next token takes {} of {}", fraction(share), of.phase);
    "use a sampler that doesn't sort the whole vocabulary: keep the likeliest tokens first (top-k), or decode greedily"
        .clone_into(&mut finding.advice);
    "greedy decoding takes as long".clone_into(&mut finding.refuted_if);
    let gain = Gain::between(of.pass_ns, of.least_ns, [0.0, own_ns]);
    // Greedy decoding sorts nothing, and by default few tokens are kept.
    let is_random = facts.profile.run.as_ref().is_some_and(|run| run.seed.is_some());
    let kept = facts.value_of("--top-k").and_then(|k| k.parse::<u32>().ok());
    let is_many = kept.is_some_and(|k| k == 0 || k > FEW);
    let change = (facts.flags.is_ours && is_random && is_many).then_some(Change::TopK(FEW));
    findings.found.push(finding.gains(gain).by(change));
}
