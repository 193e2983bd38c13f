//! Whether other numbers of threads are faster, which only a sweep tells.

use std::collections::BTreeMap;

use brickscope_profile::text::count;
use brickscope_profile::{Change, Trial};

use super::facts::{Facts, PhaseFacts};
use super::{Finding, FindingKind, Findings, Gain};
use crate::requests::is_server;
use crate::words::{fraction, time};

/// Less saved is not worth a word.
const LEAST: f64 = 0.01;
const RULE: &str = "number-of-threads";
/// Nobody tries more numbers, but a file may say so.
const MOST_NUMBERS: usize = 64;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let threads = facts.threads();
    let Some(of) = facts.main().filter(|_| threads > 0 && facts.profile.imported.is_none()) else {
        return;
    };
    let sweep = latest(facts, of);
    if sweep.is_empty() {
        let cpus = facts.cpus().map_or(String::new(), |cpus| {
            format!(", on this machine with {},", count(cpus.into(), "CPU"))
        });
        let how = match facts.flags.can_try {
            true => format!(" (`brickscope try RUN --threads {}`)", worth_trying(facts.cpus())),
            false if is_server(facts.profile) => {
                format!(" (`{}`, under the same load)", facts.flags.threads)
            }
            false => format!(" (`{}`)", facts.flags.threads),
        };
        findings.unknown(
            RULE,
            format!("whether another number of threads than {threads}{cpus} is faster is not known: only runs tell{how}"),
        );
        return;
    }
    let by_ratio =
        |a: &&(u32, &Trial), b: &&(u32, &Trial)| a.1.ratio.estimate.total_cmp(&b.1.ratio.estimate);
    let faster = sweep.iter().filter(|(_, trial)| trial.saved()[0] >= LEAST);
    let Some(&(best, trial)) = faster.min_by(by_ratio) else { return };
    let mut finding = Finding::new(RULE, FindingKind::Slow, Some(of.phase));
    let [low, likely, high] = trial.saved();
    finding.what = format!(
        "{} takes {} less with {} than with {threads}, this run's number",
        of.phase,
        fraction(likely),
        count(best.into(), "thread")
    );
    for (other, trial) in &sweep {
        finding = finding.because(
            format!(
                "with {} a pass takes {}, with {threads} {}, in {} pairs of runs in turns",
                count((*other).into(), "thread"),
                time(trial.after_ns),
                time(trial.before_ns),
                trial.ratio.pairs
            ),
            "/trials, ratio",
        );
    }
    finding.advice = format!("run `{} {best}`", facts.flags.threads);
    finding.refuted_if = format!("with {} a pass takes as long", count(best.into(), "thread"));
    let now = of.pass_ns;
    // The least time is one of this number of threads.
    let gain = Gain::between(now, 0.0, [low * now, high * now]);
    let gain = gain.map(|gain| gain.likely(likely * now));
    findings.found.push(finding.gains(gain).by(Some(Change::Threads(best))));
}

/// Numbers of threads up to that of the CPUs: `1,2,4,6`.
fn worth_trying(cpus: Option<u32>) -> String {
    let most = cpus.unwrap_or(4).max(2);
    let doubled = std::iter::successors(Some(1_u32), |n| n.checked_mul(2));
    let numbers = doubled.take_while(|&n| n < most).chain([most]);
    numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(",")
}

/// The last trial of each number of threads that nobody predicted.
fn latest<'p>(facts: &Facts<'p>, of: &PhaseFacts<'_>) -> Vec<(u32, &'p Trial)> {
    let mut latest: BTreeMap<u32, &Trial> = BTreeMap::new();
    for trial in facts.profile.trials.iter().filter(|trial| trial.phase == of.phase) {
        let Change::Threads(threads) = trial.change else { continue };
        if trial.rule.is_some() {
            continue;
        }
        latest.insert(threads, trial);
    }
    latest.into_iter().take(MOST_NUMBERS).collect()
}
