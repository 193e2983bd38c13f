//! A brick that one thread works at while the others wait.

use std::collections::{BTreeMap, BTreeSet};

use brickscope_profile::text::{count, printable};
use brickscope_profile::{Phase, Profile};

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::{fraction, time};

/// Less than this part of a pass is not worth a word.
const LEAST: f64 = 0.05;
/// A thread that did this part of a brick did all of it, but for the little that the clock sees of the others.
const ALL: f64 = 0.95;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        let alone = Alone::of(facts.profile, of.phase);
        let passes = of.total.passes as f64;
        for Alone { brick, thread, threads, worked_ns, even_ns, waited_ns } in alone {
            let own_ns = worked_ns / passes;
            if own_ns < LEAST * of.mean_ns {
                continue;
            }
            let name = printable(brick);
            let mut finding = Finding::new("one-thread", FindingKind::Slow, Some(of.phase))
                .because(
                    format!(
                        "thread {thread} worked {} a pass at {name}, all others together {}",
                        time(own_ns),
                        time((even_ns * threads as f64 - worked_ns).max(0.0) / passes)
                    ),
                    "/shares, worked_ns",
                )
                .because(
                    format!(
                        "the others waited {} a pass, in this brick and others",
                        time(waited_ns / passes)
                    ),
                    "/shares, waited_ns",
                );
            finding.what = format!(
                "one of {} computes {name}, which takes {} of {}",
                count(threads as u64, "thread"),
                fraction(own_ns / of.mean_ns),
                of.phase
            );
            finding.advice = format!("share {name} among the threads");
            finding.in_a_sentence = Some(format!("{}: {}", finding.advice, finding.what));
            "its parts need each other's results, or sharing costs more than it saves"
                .clone_into(&mut finding.refuted_if);
            let saved = (worked_ns - even_ns) / passes;
            findings.found.push(finding.gains(Gain::between(
                of.mean_ns,
                of.least_ns,
                [0.0, saved],
            )));
        }
    }
}

/// A brick that one thread computed.
pub(super) struct Alone<'p> {
    pub(super) brick: &'p str,
    thread: u32,
    threads: usize,
    worked_ns: f64,
    /// What each thread would work if they shared it evenly.
    even_ns: f64,
    /// What the others waited in all bricks.
    waited_ns: f64,
}

impl<'p> Alone<'p> {
    /// All of a phase. Nobody says what a thread without a share did meanwhile, unless the threads waited as long.
    pub(super) fn of(profile: &'p Profile, phase: Phase) -> Vec<Self> {
        let shares = || profile.shares.iter().filter(|share| share.phase == phase);
        let threads = shares().map(|share| share.thread).collect::<BTreeSet<_>>().len();
        if threads < 2 {
            return Vec::new();
        }
        let mut bricks: BTreeMap<&str, Vec<(u32, f64)>> = BTreeMap::new();
        for share in shares() {
            let worked = (share.thread, share.share.worked_ns as f64);
            bricks.entry(&share.brick).or_default().push(worked);
        }
        let mut waited: BTreeMap<u32, f64> = BTreeMap::new();
        for share in shares() {
            *waited.entry(share.thread).or_default() += share.share.waited_ns as f64;
        }
        let all_waited: f64 = waited.values().sum();
        let alone = |(brick, worked): (&'p str, Vec<(u32, f64)>)| {
            let all: f64 = worked.iter().map(|(_, ns)| ns).sum();
            let &(thread, worked_ns) = worked.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            let waited_ns = (all_waited - waited.get(&thread).copied().unwrap_or(0.0)).max(0.0);
            let is_alone = worked_ns > 0.0 && worked_ns >= ALL * all;
            let is_waited_for = waited_ns >= 0.5 * worked_ns * (threads - 1) as f64;
            (is_alone && is_waited_for).then_some(Self {
                brick,
                thread,
                threads,
                worked_ns,
                even_ns: all / threads as f64,
                waited_ns,
            })
        };
        bricks.into_iter().filter_map(alone).collect()
    }
}
