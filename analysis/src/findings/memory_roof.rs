//! Decode that reads its weights as fast as memory gives them: only fewer bytes make it faster.

use super::facts::{Facts, PhaseFacts};
use super::slow_brick::above_ns;
use super::{Finding, Findings, Gain, Kind};
use crate::roofline::{Bound, Reach, Roofline};
use crate::words::{fraction, size, whole_percent};
use brickscope_profile::Change;
use brickscope_profile::text::printable;

/// Bits of a weight in `q4_k`: blocks of 256 in 144 bytes (ggml, `block_q4_K`). The smallest format that is widely used.
const SMALL_BITS: f64 = 4.5;
/// With fewer bits there is little left to save.
const LEAST_BITS: f64 = 5.5;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        let (Ok(roofline), Some(verdict)) = (&of.roofline, &of.verdict) else { continue };
        let is_limit = matches!(verdict.reach, Reach::At | Reach::Near);
        if verdict.bound != Bound::Memory || !is_limit {
            continue;
        }
        findings.found.push(finding(facts, of, roofline, verdict.reach, verdict.of_roof));
    }
}

fn finding(
    facts: &Facts<'_>,
    of: &PhaseFacts<'_>,
    roofline: &Roofline,
    reach: Reach,
    of_roof: f64,
) -> Finding {
    let stats = || of.bricks().into_iter().map(|brick| &brick.stats);
    let a_pass = |sum: u64| sum as f64 / of.passes;
    let all = a_pass(stats().map(|stats| stats.total_bytes).fold(0, u64::saturating_add));
    let weights = a_pass(stats().map(|stats| stats.data.weights).fold(0, u64::saturating_add));
    let model = facts.profile.model.as_ref();
    let format =
        model.map(|model| printable(&model.quantization)).filter(|format| !format.is_empty());
    let now = format.as_ref().map_or(String::new(), |format| format!(" (now {format})"));
    let least = roofline.least_bytes_per_second.min(roofline.peak_bytes_per_second);
    let mut finding = Finding::new("memory-roof", Kind::Limit, Some(of.phase))
        .because(
            // Nobody may have stated which bytes are weights.
            match weights > 0.0 {
                true => format!("a pass reads {}, {} of them weights", size(all), size(weights)),
                false => format!("a pass reads {}", size(all)),
            },
            "/totals, total_bytes and data",
        )
        .because(
            format!(
                "memory gives {}; {} reaches {}",
                rates(least, roofline.peak_bytes_per_second),
                of.phase,
                whole_percent(of_roof)
            ),
            "/ceilings, readings",
        );
    finding.what =
        format!("{} reads {} a pass about as fast as memory gives them", of.phase, size(all));
    finding.advice = if reach == Reach::At {
        format!(
            "faster kernels won't help, since each pass reads {} as fast as memory gives them: try smaller weights{now}, \
             several sequences at once, or speculative decoding",
            size(all)
        )
    } else {
        let by_gain = roofline.bricks.iter().max_by(|a, b| above_ns(a).total_cmp(&above_ns(b)));
        let most = by_gain.map_or(String::new(), |most| {
            format!(
                ", and {} in {}, more than in any other",
                fraction(above_ns(most) / of.passes / of.pass_ns),
                printable(&most.name)
            )
        });
        format!(
            "read fewer bytes a token: smaller weights{now}, or several sequences at once; faster kernels alone can save \
             {} of the time at most{most}",
            whole_percent(1.0 - of_roof)
        )
    };
    "with smaller weights a pass takes as long".clone_into(&mut finding.refuted_if);
    let bits = model
        .filter(|model| model.parameters > 0)
        .map(|model| 8.0 * model.file_bytes as f64 / model.parameters as f64);
    match bits {
        Some(bits) if bits > LEAST_BITS && weights > 0.0 => {
            let fewer = weights * (1.0 - SMALL_BITS / bits);
            let [low, high] =
                [roofline.peak_bytes_per_second, least].map(|rate| fewer / rate * 1e9);
            let least_then = of.least_ns - low;
            finding = finding.because(
                format!(
                    "{bits:.2} bits a weight; q4_k has {SMALL_BITS}, and a pass would read {} less",
                    size(fewer)
                ),
                "/model, file_bytes and parameters",
            );
            // Where the phase is below the roof, it likely stays as far below.
            let likely = fewer / all * of.pass_ns;
            let gain = Gain::between(of.pass_ns, least_then, [low, high.max(likely)]);
            let change = Change::Quantization("q4_k".to_owned());
            finding
                .gains(gain.map(|gain| gain.likely(likely)))
                .by(facts.flags.is_ours.then_some(change))
        }
        Some(_) if weights == 0.0 => {
            finding.cannot_predict("which bytes are weights was not stated")
        }
        Some(_) => finding.cannot_predict("the weights are small already"),
        None => {
            finding.cannot_predict("the number of weights, or the size of the file, is not known")
        }
    }
}

fn rates(least: f64, most: f64) -> String {
    let [least, most] = [least, most].map(|rate| format!("{:.1}", rate / 1e9));
    if least == most { format!("{most} GB/s") } else { format!("{least} to {most} GB/s") }
}
