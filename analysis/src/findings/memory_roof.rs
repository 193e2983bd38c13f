//! Decode that reads its weights as fast as memory gives them: only fewer bytes make it faster.

use super::facts::{Facts, PhaseFacts};
use super::slow_brick::above_ns;
use super::weights::{LEAST_SAVED, Read, SMALL_BITS};
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::{Bound, Reach, Roofline, Verdict};
use crate::words::{digits, fraction, size, whole_percent};
use brickscope_profile::text::printable;
use brickscope_profile::{Change, Phase};

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in facts.under_a_roof() {
        let (Ok(roofline), Some(verdict)) = (&of.roofline, &of.verdict) else { continue };
        let is_limit = matches!(verdict.reach, Reach::At | Reach::Near);
        if verdict.bound != Bound::Memory || !is_limit {
            continue;
        }
        findings.found.push(finding(facts, of, roofline, verdict));
    }
}

fn finding(
    facts: &Facts<'_>,
    of: &PhaseFacts<'_>,
    roofline: &Roofline,
    verdict: &Verdict,
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
    let name = of.name(facts.profile);
    let mut finding = Finding::new("memory-roof", FindingKind::Limit, Some(of.phase))
        .because(
            // Nobody may have stated which bytes are weights.
            match weights > 0.0 {
                true => format!("a pass reads {}, {} of them weights", size(all), size(weights)),
                false => format!("a pass reads {}", size(all)),
            },
            of.totals("total_bytes and data"),
        )
        .because(
            format!(
                "memory gives {}; {name} reaches {}",
                rates(least, roofline.peak_bytes_per_second),
                verdict.part()
            ),
            format!("{}, readings", of.ceilings()),
        );
    finding.what =
        format!("{name} reads {} a pass: {} that memory gives", size(all), verdict.part());
    finding.advice = if let Some(machine) =
        roofline.machine_bytes_per_second.filter(|_| !facts.flags.threads.is_empty())
    {
        // The threads of the run read what they can, and others could read more.
        format!(
            "try more `{}`, since all CPUs read {:.1} GB/s; or read fewer bytes a token: smaller weights{now}, or several \
             sequences at once",
            facts.flags.threads,
            machine / 1e9
        )
    } else if verdict.reach == Reach::At {
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
            whole_percent(1.0 - verdict.of_roof)
        )
    };
    "with smaller weights a pass takes as long".clone_into(&mut finding.refuted_if);
    if let Some(machine) = roofline.machine_bytes_per_second {
        "with more threads a pass takes as long".clone_into(&mut finding.refuted_if);
        let change = facts.cpus().filter(|_| facts.flags.is_ours).map(Change::Threads);
        let why = "how fast more threads compute is not known, only that they read more";
        return finding
            .because(format!("all CPUs read {:.1} GB/s", machine / 1e9), of.ceilings())
            .cannot_predict(why)
            .by(change);
    }
    if weights == 0.0 {
        return finding.cannot_predict("which bytes are weights was not stated");
    }
    let fewer = match model.and_then(|model| Read::as_stated(model, weights)) {
        Some(read) => {
            let fewer = read.fewer();
            finding = finding.because(format!("most weigh {}", read.most()), "/model/weights");
            if fewer >= LEAST_SAVED * read.bytes {
                finding = finding.because(
                    format!(
                        "q4_k has {SMALL_BITS} bits a weight; with all larger matrices in it a pass would read {} less",
                        size(fewer)
                    ),
                    "/model/weights",
                );
            }
            fewer
        }
        None => {
            let Some(model) = model.filter(|model| model.parameters > 0 && model.file_bytes > 0)
            else {
                return finding.cannot_predict(
                    "the number of weights, or the size of the file, is not known",
                );
            };
            let bits = 8.0 * model.file_bytes as f64 / model.parameters as f64;
            let fewer = weights * (1.0 - SMALL_BITS / bits);
            if fewer >= LEAST_SAVED * weights {
                finding = finding.because(
                    format!(
                        "{bits:.2} bits a weight; q4_k has {SMALL_BITS}, and a pass would read {} less",
                        size(fewer)
                    ),
                    "/model, file_bytes and parameters",
                );
            }
            fewer
        }
    };
    if fewer < LEAST_SAVED * weights {
        return finding.cannot_predict("the weights are small already");
    }
    let gain = smaller(
        of.pass_ns,
        of.least_ns,
        fewer / all,
        fewer,
        [least, roofline.peak_bytes_per_second],
    );
    if let Some(gain) = gain.filter(|_| of.phase == Phase::Decode) {
        let tokens = of.total.tokens as f64 / of.total.passes as f64;
        finding = finding.because(in_tokens(&gain, tokens), "the prediction");
    }
    let change = Change::Quantization("q4_k".to_owned());
    finding.gains(gain).by(facts.flags.is_ours.then_some(change))
}

/// The time that a pass saves if it reads this many bytes fewer, which are this share of its bytes, at these rates of
/// memory.
pub(super) fn smaller(
    now_ns: f64,
    least_ns: f64,
    part: f64,
    fewer: f64,
    [slow, fast]: [f64; 2],
) -> Option<Gain> {
    let [low, high] = [fast, slow].map(|rate| fewer / rate * 1e9);
    // Where the phase is below the roof, it likely stays as far below.
    let likely = part * now_ns;
    let gain = Gain::between(now_ns, least_ns - low, [low.min(likely), high.max(likely)]);
    gain.map(|gain| gain.likely(likely))
}

/// The prediction in tokens per second, if each pass makes so many.
pub(super) fn in_tokens(gain: &Gain, tokens: f64) -> String {
    // A file may contain anything.
    let rate = |less: f64| digits(tokens * 1e9 / (gain.now_ns - less).max(1.0));
    format!(
        "that is {} instead of {} tokens/s ({} to {})",
        rate(gain.likely_ns.unwrap_or(gain.lowest_ns)),
        rate(0.0),
        rate(gain.lowest_ns),
        rate(gain.highest_ns)
    )
}

pub(super) fn rates(least: f64, most: f64) -> String {
    let [least, most] = [least, most].map(|rate| format!("{:.1}", rate / 1e9));
    if least == most { format!("{most} GB/s") } else { format!("{least} to {most} GB/s") }
}
