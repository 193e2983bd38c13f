//! Attention that grows with the context, and when it overtakes the weights.

use std::collections::{HashMap, HashSet};

use brickscope_profile::stats::student;
use brickscope_profile::text::printable;
use brickscope_profile::{BrickId, Engine, NameKind, Pass, Phase};

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::{fraction, size, time};

pub(super) const RULE: &str = "long-context";
/// Bricks whose time grows with the tokens in the cache.
pub(super) const READ_THE_CACHE: [&str; 4] = [
    BrickId::AttentionScore.name(),
    BrickId::AttentionSoftmax.name(),
    BrickId::AttentionOutput.name(),
    "FlashAttention",
];
/// From this part of decode on it is worth a word.
const LEAST: f64 = 0.25;
/// Longer contexts are not worth a prediction.
const MOST_TOKENS: f64 = 1e7;
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
    let reads =
        if kv > 0.0 { format!(", and reads {} of the cache", size(kv)) } else { String::new() };
    let mut finding = Finding::new(RULE, FindingKind::Slow, Some(Phase::Decode)).because(
        format!("attention takes {} of {} a pass{reads}", time(own_ns), time(of.pass_ns)),
        "/totals",
    );
    finding.what = format!("attention over the context takes {} of decode", fraction(share));
    if let Some(Slope { ns_a_token, tokens }) = Slope::of(facts) {
        finding = finding.because(
            format!(
                "each token in the cache adds {} to a pass, measured around {tokens:.0} tokens",
                time(ns_a_token)
            ),
            "/spans by /passes, position",
        );
        let overtakes = tokens + (of.pass_ns - 2.0 * own_ns) / ns_a_token;
        if share < 0.5 && overtakes < MOST_TOKENS {
            finding.what.push_str(&format!(
                "; from about {overtakes:.0} tokens on it will take more than all else"
            ));
        }
    }
    finding.advice = advice(facts.profile.run.as_ref().and_then(|run| run.engine.as_ref()));
    "with half of the tokens in the cache a pass takes as long".clone_into(&mut finding.refuted_if);
    // Half of the bytes of the cache: at best half of what reads it, at least nothing where arithmetic limits it.
    let least_then = of.least_ns * 0.5;
    // As if a quarter of the tokens were left out: how many can be, only the user knows.
    finding.rank_ns = Some(own_ns / 4.0 / 2.0);
    findings.found.push(finding.gains(Gain::between(of.pass_ns, least_then, [0.0, own_ns / 2.0])));
}

/// What would make attention read less: of what the engine said, only what isn't so yet.
fn advice(engine: Option<&Engine>) -> String {
    let keeps = engine.and_then(|of| of.cache_keys.as_deref());
    let smaller = match keeps {
        None => "a smaller cache (fewer KV heads, q8_0)".to_owned(),
        Some("f32" | "f16" | "bf16") => {
            "a smaller cache (`-ctk q8_0 -ctv q8_0`, fewer KV heads)".to_owned()
        }
        Some(keeps) => format!("fewer KV heads (the cache is {} already)", printable(keeps)),
    };
    let attention = match engine.and_then(|of| of.flash_attention) {
        None => ", or flash attention where it is off",
        Some(false) => ", or try flash attention (`-fa on`)",
        // On some processors its products are the faster ones.
        Some(true) => ", or try without flash attention (`-fa off`)",
    };
    // Without flash attention llama.cpp keeps no quantised values.
    let attention = match keeps {
        Some(keeps) if !matches!(keeps, "f32" | "f16" | "bf16") => "",
        _ => attention,
    };
    format!("keep fewer tokens (a window, a summary), {smaller}{attention}")
}

/// How attention grows with the tokens in the cache.
struct Slope {
    ns_a_token: f64,
    /// The mean number of tokens in the passes that it was measured in.
    tokens: f64,
}

impl Slope {
    /// By least squares over the decode passes that nothing disturbed and that had no stall. `None` unless the 95 % interval
    /// of the slope lies above 0.
    fn of(facts: &Facts<'_>) -> Option<Self> {
        let profile = facts.profile;
        let of = facts.phases.iter().find(|of| of.phase == Phase::Decode)?;
        let stalled: HashSet<u32> = of.typical.stalls.iter().map(|stall| stall.pass).collect();
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
        let is_clean = |pass: &&Pass| {
            pass.phase == Phase::Decode && !pass.is_disturbed() && !stalled.contains(&pass.serial)
        };
        // More sequences in a pass take longer, wherever they are: so only those of the most frequent number.
        let mut of_tokens: HashMap<u64, usize> = HashMap::new();
        for pass in profile.passes.iter().filter(is_clean) {
            *of_tokens.entry(pass.tokens).or_default() += 1;
        }
        let most = of_tokens.into_iter().max_by_key(|&(tokens, passes)| (passes, tokens))?.0;
        let passes = profile.passes.iter().filter(is_clean).filter(|pass| pass.tokens == most);
        let points: Vec<(f64, f64)> = passes
            .filter_map(|pass| Some((pass.position as f64, *sums.get(&pass.serial)?)))
            .collect();
        if points.len() < LEAST_PASSES {
            return None;
        }
        let n = points.len() as f64;
        let x = points.iter().map(|(x, _)| x).sum::<f64>() / n;
        let y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
        let xx: f64 = points.iter().map(|(a, _)| (a - x).powi(2)).sum();
        let xy: f64 = points.iter().map(|(a, b)| (a - x) * (b - y)).sum();
        let slope = xy / xx;
        let residuals: f64 = points.iter().map(|(a, b)| (b - y - slope * (a - x)).powi(2)).sum();
        let half = student::quantile(0.05, n - 2.0) * (residuals / (n - 2.0) / xx).sqrt();
        (slope.is_finite() && slope - half > 0.0).then_some(Self { ns_a_token: slope, tokens: x })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of a server: with three clients at more tokens, a pass takes longer than with one at fewer, whatever the tokens.
    #[test]
    fn the_slope_is_that_of_passes_with_as_many_sequences() {
        use brickscope::{BrickId, BrickProfiler, MockClock};
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for nth in 0..20 {
            for (tokens, position, ns) in [(1, 100 + nth, 10_000), (3, 200 + nth, 90_000)] {
                if tokens == 1 && nth % 2 == 1 {
                    continue;
                }
                let pass = profiler.begin_pass(Phase::Decode);
                let timer = profiler.start_brick(BrickId::AttentionScore);
                hand.advance(ns + 50 * position);
                profiler.stop_brick(timer, 1);
                profiler.end_pass(pass, tokens, position);
            }
        }
        let profile = profiler.profile();
        let facts = Facts::of(&profile, &[], &mut Findings::default());
        let slope = Slope::of(&facts).expect("it grows");
        assert!((slope.ns_a_token - 50.0).abs() < 1.0, "{}", slope.ns_a_token);
        assert!((slope.tokens - 209.5).abs() < 1.0, "{}", slope.tokens);
    }

    #[test]
    fn only_what_is_not_so_yet_is_advised() {
        assert!(
            advice(None).contains("a smaller cache") && advice(None).contains("where it is off")
        );
        let of = |keys: &str, is_flash| {
            let cache_keys = Some(keys.to_owned());
            advice(Some(&Engine {
                cache_keys,
                flash_attention: Some(is_flash),
                ..Engine::default()
            }))
        };
        assert!(of("f16", false).contains("-ctk q8_0") && of("f16", false).contains("`-fa on`"));
        assert!(of("f16", true).contains("`-fa off`"));
        let small = of("q8_0", true);
        assert!(small.contains("the cache is q8_0 already") && !small.contains("-ctk"), "{small}");
        assert!(!small.contains("-fa"), "{small}");
    }
}
