//! Threads that wait for the slowest of them.

use std::collections::{BTreeMap, BTreeSet};

use brickscope_profile::PassTime;
use brickscope_profile::text::printable;

use super::facts::Facts;
use super::one_thread::Alone;
use super::{Finding, FindingKind, Findings, Gain};
use crate::waiting::Waiting;
use crate::words::{fraction, time, whole_percent};

/// Less than this part of the threads' time is what any work has.
const LEAST: f64 = 0.05;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    const RULE: &str = "threads-wait";
    for of in &facts.phases {
        let Some(waiting) = Waiting::of(facts.profile, of.phase) else {
            if facts.threads() > 1 && facts.profile.imported.is_none() {
                let how =
                    if facts.flags.shares.is_empty() { "" } else { " (`--shares` records it)" };
                findings.unknown(
                    RULE,
                    format!("how evenly threads share {} is not known: what each did was not recorded{how}", of.phase),
                );
            }
            continue;
        };
        // What the slowest thread of each brick worked more than the mean: with even shares, nobody waits for it.
        let mut worked: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        // Bricks of one thread have a rule of their own.
        let alone = Alone::of(facts.profile, of.phase);
        let alone: BTreeSet<&str> = alone.iter().map(|alone| alone.brick).collect();
        let is_shared = |brick: &str| !alone.contains(brick);
        let shares = facts.profile.shares.iter().filter(|share| share.phase == of.phase);
        for share in shares.filter(|share| is_shared(&share.brick)) {
            worked.entry(&share.brick).or_default().push(share.share.worked_ns as f64);
        }
        let uneven = |threads: &Vec<f64>| {
            let most = threads.iter().copied().fold(0.0, f64::max);
            most - threads.iter().sum::<f64>() / threads.len() as f64
        };
        let passes = of.total.passes as f64;
        let saved = worked.values().map(uneven).sum::<f64>() / passes;
        let part = waiting.part();
        if part < LEAST || saved < LEAST * of.mean_ns {
            continue;
        }
        let most = worked.iter().max_by(|a, b| uneven(a.1).total_cmp(&uneven(b.1)));
        let most = most.map_or(String::new(), |(name, _)| printable(name));
        let mut finding = Finding::new(RULE, FindingKind::Slow, Some(of.phase))
            .because(format!("threads waited for each other for {} of their time", fraction(part)), "/shares, waited_ns")
            .because(
                format!(
                    "with even shares, the slowest threads would work {} a pass less, most of it in {most}",
                    time(saved)
                ),
                "/shares, worked_ns",
            );
        finding.what = format!(
            "threads wait for each other in {}: for {} of their time, most in {most}",
            of.phase,
            whole_percent(part)
        );
        finding.advice = format!(
            "share {most} more evenly: smaller pieces that threads take one by one, or other `{}`",
            facts.flags.threads
        );
        "with other numbers of threads the slowest works as long"
            .clone_into(&mut finding.refuted_if);
        finding.test =
            facts.flags.is_ours.then(|| "brickscope profile MODEL --shares --threads 1".to_owned());
        let gain = Gain::between(of.mean_ns, of.least_ns, [0.0, saved]);
        let gain = gain.map(|gain| gain.likely(saved).of(PassTime::Mean));
        findings.found.push(finding.gains(gain));
    }
}
