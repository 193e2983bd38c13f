//! Single spans that take many times as long as others of their brick.

use brickscope_profile::text::{count, printable};
use brickscope_profile::{Disturbance, PassTime};

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::typical::{Basis, Stall};
use crate::words::{fraction, time};

/// Stalls below this part of the time are not worth a word.
const LEAST: f64 = 0.05;
/// So many are no accident.
const MANY: usize = 3;
/// Nor are these: a part of the time.
const MUCH: f64 = 0.1;
/// Stalls that are named.
const MOST_NAMED: usize = 3;

/// Whether a wait for a CPU explains half of what a stall took longer, or somebody waited for a disk.
fn is_explained(found: &Disturbance, more_ns: u64) -> bool {
    let waited = found.longest_wait_ns.unwrap_or(0).max(found.steal_ns.unwrap_or(0));
    let is_wait = match found.longest_wait_ns {
        Some(_) => found.is_disturbed() && waited >= more_ns / 2,
        None => found.is_disturbed(),
    };
    is_wait || found.disk_faults.is_some_and(|faults| faults > 0)
}

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        if of.typical.basis != Basis::Passes {
            continue;
        }
        // What waited for a CPU or a disk is another rule's, and what waited for the profiler is its cost.
        let is_own = |stall: &&Stall| {
            let more = stall.ns.saturating_sub(stall.median_ns);
            !stall.is_of_profiler() && !stall.disturbance.is_some_and(|d| is_explained(&d, more))
        };
        let stalls: Vec<_> = of.typical.stalls.iter().filter(is_own).collect();
        let more: f64 =
            stalls.iter().map(|stall| stall.ns.saturating_sub(stall.median_ns) as f64).sum();
        let wall = of.total.wall_ns as f64;
        // One or two short ones may be an accident.
        let is_rare = stalls.len() < MANY && more < MUCH * wall;
        if stalls.is_empty() || more < LEAST * wall || is_rare {
            continue;
        }
        let longest = stalls[0];
        let brick =
            longest.brick.as_deref().map_or("the time between bricks".to_owned(), printable);
        let layer = longest.layer.map_or(String::new(), |layer| format!(" of layer {layer}"));
        let mut finding = Finding::new("stalls", FindingKind::Slow, Some(of.phase));
        finding.what = format!(
            "{} of {} take {} of the time; the longest, {} in {brick}{layer}, at {} of the run",
            count(stalls.len() as u64, "stall"),
            of.phase,
            fraction(more / wall),
            time(longest.ns as f64),
            time(longest.at_ns as f64)
        );
        finding.advice = format!(
            "find out what the process waited for in these {}: a lock, a page that had to be read, an allocation, another process",
            if stalls.len() == 1 { "spans of time" } else { "times" }
        );
        for stall in stalls.iter().take(MOST_NAMED) {
            let brick = stall.brick.as_deref().map_or("between bricks".to_owned(), printable);
            let layer = stall.layer.map_or(String::new(), |layer| format!(", layer {layer}"));
            finding = finding.because(
                format!(
                    "pass {}, {brick}{layer}: {}, where its median is {}",
                    stall.pass,
                    time(stall.ns as f64),
                    time(stall.median_ns as f64)
                ),
                "/spans",
            );
        }
        "they come at other times, or not, in the next run: then something outside of this program made them"
            .clone_into(&mut finding.refuted_if);
        finding.test = Some("brickscope export RUN --format perfetto -o trace.pftrace".to_owned());
        let saved = more / of.total.passes as f64;
        // The next run has as many, give or take what random events vary by: twice the root of their number.
        let varies = 2.0 / (stalls.len() as f64).sqrt();
        let ends = [saved * (1.0 - varies), saved * (1.0 + varies)];
        let gain = Gain::between(of.mean_ns, of.least_ns, ends);
        let gain = gain.map(|gain| gain.likely(saved).of(PassTime::Mean));
        findings.found.push(finding.gains(gain));
    }
}
