//! What recording itself costs, where it is more than a hundredth.

use brickscope_profile::Change;

use super::disturbed::MUCH_LOAD;
use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::{fraction, time};

/// Less is not worth a word.
const LEAST: f64 = 0.01;
/// Then no other figure is certain.
const DOUBTFUL: f64 = 0.05;

/// What records more, if a run is asked for it.
const COSTLY: [&str; 3] = ["--counters", "--shares", "--tiles"];

/// What makes recording cheaper in this run: only what it can be told.
fn advice(facts: &Facts<'_>) -> String {
    let load = facts.profile.other_load.as_ref().map_or(0.0, |load| load.others_share());
    let asked: Vec<&str> = COSTLY.into_iter().filter(|flag| facts.has_flag(&[*flag])).collect();
    if load > MUCH_LOAD {
        // Beside them even turns differ.
        return format!(
            "stop other programs first, which used {} of this machine's CPU time, and measure again",
            fraction(load)
        );
    }
    match (&asked[..], facts.flags.is_ours) {
        ([], true) => "take shares from this run, and speeds from one without the profiler",
        ([], false) => "time fewer bricks, and take speeds from a run without the profiler",
        _ => return format!("run it without {}", asked.join(", ")),
    }
    .to_owned()
}

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    const RULE: &str = "profiling-cost";
    let profile = facts.profile;
    let Some(of) = facts.main() else { return };
    let overhead = &profile.overhead;
    let new = |part: f64| {
        let kind = if part >= DOUBTFUL { FindingKind::Doubt } else { FindingKind::Slow };
        let mut finding = Finding::new(RULE, kind, Some(of.phase));
        finding.advice = advice(facts);
        "a run with the profiler off takes as long".clone_into(&mut finding.refuted_if);
        let is_asked = facts.has_flag(&COSTLY);
        finding.by((facts.flags.is_ours && is_asked).then_some(Change::RecordLess))
    };
    if let Some(measured) = &overhead.measured {
        if measured.low > LEAST {
            let mut finding = new(measured.low).because(
                format!(
                    "recorded passes take {} longer than those in turns with them",
                    fraction(measured.estimate)
                ),
                "/overhead/measured",
            );
            finding.what =
                format!("recording slows this run down by {}", fraction(measured.estimate));
            let saved = |part: f64| of.pass_ns * (1.0 - 1.0 / (1.0 + part.max(0.0)));
            let ends = [measured.low, measured.high].map(saved);
            let gain = Gain::between(of.pass_ns, of.least_ns, ends);
            findings
                .found
                .push(finding.gains(gain.map(|gain| gain.likely(saved(measured.estimate)))));
        }
        return;
    }
    let wall: f64 = profile.phases.iter().map(|phase| phase.wall_ns as f64).sum();
    match profile.recording_ns() {
        Some(ns) if wall > 0.0 && ns / wall > LEAST => {
            let part = ns / wall;
            let mut finding = new(part).because(
                format!(
                    "{} spans of {:.0} ns",
                    overhead.spans,
                    overhead.span_ns.unwrap_or_default()
                ),
                "/overhead",
            );
            if profile.prepared_ns() > 0 {
                finding = finding.because(
                    format!(
                        "threads took {} to make their logs at their first call; `prepare_thread` does it before",
                        time(profile.prepared_ns() as f64)
                    ),
                    "/overhead/preparations",
                );
            }
            finding.what =
                format!("recording takes {} of the time, by an estimate", fraction(part));
            // It is measured where caches are empty: in a pass a span costs more, by how much only turns tell.
            findings.found.push(finding.cannot_predict("only turns with the profiler off tell it"));
        }
        Some(_) => {}
        None if overhead.basis.contains("hardware counters") => {
            let mut finding = new(0.0)
                .because(&overhead.basis, "/overhead/basis")
                .cannot_predict("what reading hardware counters takes was not measured");
            "hardware counters were read at each brick, which takes up to some microseconds"
                .clone_into(&mut finding.what);
            findings.found.push(finding);
        }
        None => {}
    }
}
