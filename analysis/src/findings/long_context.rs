//! Attention that grows with the context, and when it overtakes the weights.

use std::collections::HashMap;

use brickscope_profile::{BrickId, NameKind, Phase};

use super::facts::Facts;
use super::{Finding, Findings, Gain, Kind};
use crate::words::{fraction, size, time};

/// Bricks whose time grows with the tokens in the cache.
const READ_THE_CACHE: [&str; 4] = [
    BrickId::AttentionScore.name(),
    BrickId::AttentionSoftmax.name(),
    BrickId::AttentionOutput.name(),
    "FlashAttention",
];
/// From this part of decode on it is worth a word.
const LEAST: f64 = 0.25;
/// With fewer passes there is no slope.
const LEAST_PASSES: usize = 10;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(of) = facts.phases.iter().find(|of| of.phase == Phase::Decode) else { return };
    let reads = |name: &str| READ_THE_CACHE.contains(&name);
    let own_ns = of.own_ns(reads);
    let share = own_ns / of.pass_ns;
    if share < LEAST {
        return;
    }
    let kv = of.bricks().into_iter().map(|brick| brick.stats.data.kv).fold(0, u64::saturating_add)
        as f64
        / of.passes;
    let mut finding = Finding::new("long-context", Kind::Limit, Some(Phase::Decode)).because(
        format!(
            "attention takes {} of {} a pass, and reads {} of the cache",
            time(own_ns),
            time(of.pass_ns),
            size(kv)
        ),
        "/totals",
    );
    finding.what = format!("attention over the context takes {} of decode", fraction(share));
    if let Some((slope, at)) = slope(facts) {
        finding = finding.because(
            format!(
                "each token in the cache adds {} to a pass, measured around {at:.0} tokens",
                time(slope)
            ),
            "/spans by /passes, position",
        );
        let others = of.pass_ns - own_ns;
        let overtakes = others / slope;
        if overtakes.is_finite() && overtakes < 1e7 {
            finding.what.push_str(&format!(
                "; from about {overtakes:.0} tokens on it takes more than all else"
            ));
        }
    }
    "keep fewer tokens (a window, a summary), a smaller cache (fewer KV heads, q8_0), or flash attention where it is off"
        .clone_into(&mut finding.advice);
    "with half of the tokens in the cache a pass takes as long".clone_into(&mut finding.refuted_if);
    // Half of the bytes of the cache: at best half of what reads it, at least nothing where arithmetic limits it.
    let least_then = of.least_ns * 0.5;
    findings.found.push(finding.gains(Gain::between(of.pass_ns, least_then, [0.0, own_ns / 2.0])));
}

/// By how many nanoseconds attention takes longer for each token in the cache, by least squares over the decode passes,
/// and the mean number of tokens.
fn slope(facts: &Facts<'_>) -> Option<(f64, f64)> {
    let profile = facts.profile;
    let is_meant = |name: u16| {
        let name = profile.names.get(usize::from(name));
        name.is_some_and(|name| {
            name.kind == NameKind::Brick && READ_THE_CACHE.contains(&name.name.as_str())
        })
    };
    let mut sums: HashMap<u32, f64> = HashMap::new();
    for span in &profile.spans {
        if let (Some(name), Some(pass)) = (span.name, span.pass)
            && is_meant(name)
        {
            *sums.entry(pass).or_default() += span.exclusive_ns as f64;
        }
    }
    let passes =
        profile.passes.iter().filter(|pass| pass.phase == Phase::Decode && !pass.is_disturbed());
    let points: Vec<(f64, f64)> =
        passes.filter_map(|pass| Some((pass.position as f64, *sums.get(&pass.serial)?))).collect();
    if points.len() < LEAST_PASSES {
        return None;
    }
    let n = points.len() as f64;
    let x = points.iter().map(|(x, _)| x).sum::<f64>() / n;
    let y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
    let xx: f64 = points.iter().map(|(a, _)| (a - x).powi(2)).sum();
    let xy: f64 = points.iter().map(|(a, b)| (a - x) * (b - y)).sum();
    // Over few positions noise is all that it would be.
    let slope = xy / xx;
    (xx > 0.0 && slope > 0.0 && slope.is_finite() && xx / n > 16.0).then_some((slope, x))
}
