//! Another number of threads that the same file measured to be faster.

use brickscope_profile::Phase;
use brickscope_profile::stats::student;

use super::facts::{Facts, PhaseFacts};
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::time;

const RULE: &str = "number-of-threads";
/// How often all intervals of a phase together may miss.
const ERROR: f64 = 0.05;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(imported) = &facts.profile.imported else { return };
    for of in &facts.phases {
        let others = imported.other_threads.iter().filter(|other| {
            let tokens = of.total.tokens.checked_div(of.total.passes);
            other.phase == of.phase && Some(other.tokens) == tokens
        });
        let others: Vec<(u32, Times)> = others
            .filter_map(|other| {
                let samples = other.samples_ns.iter().map(|&ns| ns as f64);
                Some((other.threads, Times::of(samples)?))
            })
            .collect();
        let own = own(facts, of.phase);
        let Some(own) = own.filter(|_| !others.is_empty()) else { continue };
        // The best of many is lucky: each difference gets the part of the error that it has among all numbers, so that
        // all intervals hold together (Bonferroni's).
        let error = ERROR / (others.len() + 1) as f64;
        let saved = others
            .iter()
            .filter_map(|(threads, times)| Some((*threads, *times, own.more_than(times, error)?)));
        let Some((threads, best, saved)) = saved.max_by(|a, b| a.2[0].total_cmp(&b.2[0])) else {
            let fastest = others.iter().min_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
            let threads = fastest.map_or(0, |(threads, _)| *threads);
            findings.unknown(
                RULE,
                format!(
                    "whether {threads} threads are faster in {} is not known: there is one repetition of a test",
                    of.phase
                ),
            );
            continue;
        };
        if saved[0] > 0.0 {
            findings.found.push(finding(facts, of, own, threads, best, saved));
        }
    }
}

fn finding(
    facts: &Facts<'_>,
    of: &PhaseFacts<'_>,
    own: Times,
    threads: u32,
    best: Times,
    saved: [f64; 2],
) -> Finding {
    let now = facts.threads();
    let mut finding = Finding::new(RULE, FindingKind::Slow, Some(of.phase))
        .because(
            format!(
                "with {now} threads a repetition takes {}, mean of {:.0}",
                time(own.mean),
                own.count
            ),
            "/passes, wall_ns",
        )
        .because(
            format!("with {threads}, {}, mean of {:.0}", time(best.mean), best.count),
            "/imported/other_threads",
        );
    finding.what = format!("{threads} threads are faster than {now} in {}", of.phase);
    finding.advice = format!("run {threads} threads (`{} {threads}`)", facts.flags.threads);
    finding.in_a_sentence = Some(format!("{}: {}", finding.advice, finding.what));
    "measured again in turns, they take as long".clone_into(&mut finding.refuted_if);
    let gain = Gain::between(own.mean, 0.0, saved);
    finding.gains(gain.map(|gain| gain.likely(own.mean - best.mean)))
}

fn own(facts: &Facts<'_>, phase: Phase) -> Option<Times> {
    let passes = facts.profile.passes.iter().filter(|pass| pass.phase == phase);
    Times::of(passes.map(|pass| pass.wall_ns as f64))
}

/// Measured times.
#[derive(Debug, Clone, Copy)]
struct Times {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Times {
    fn of(times: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let count = times.clone().count() as f64;
        let mean = times.clone().sum::<f64>() / count;
        let variance = times.map(|ns| (ns - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        (count > 0.0).then_some(Self { count, mean, variance })
    }

    /// The interval of the difference of the means that misses this often, by Welch's t; `None` of single times.
    fn more_than(&self, other: &Self, error: f64) -> Option<[f64; 2]> {
        if self.count < 2.0 || other.count < 2.0 {
            return None;
        }
        let difference = self.mean - other.mean;
        let parts = [self, other].map(|of| of.variance / of.count);
        let variance = parts[0] + parts[1];
        if variance == 0.0 {
            return Some([difference, difference]);
        }
        let spread = parts[0].powi(2) / (self.count - 1.0) + parts[1].powi(2) / (other.count - 1.0);
        let half = student::quantile(error, variance.powi(2) / spread) * variance.sqrt();
        half.is_finite().then_some([difference - half, difference + half])
    }
}
