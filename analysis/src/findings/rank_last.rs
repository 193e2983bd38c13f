//! A rank of a job, or a device of several in one file, that comes last to the collectives, so that the others wait for it.

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::links::Member;
use crate::ranks::InCollectives;
use crate::words::time;

pub(crate) const RULE: &str = "rank-comes-last";

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(sums) = InCollectives::of(facts.profile) else { return };
    let Some(of) = sums.straggler else {
        if let Some(why) = sums.straggler_absent {
            let many = sums.members.many();
            findings.unknown(RULE, format!("whether {many} wait for one of them: {}", why.reason));
        }
        return;
    };
    let a_pass = of.basis();
    let (one, rank, last, all) = (sums.members.one(), of.rank, of.last, of.of);
    let mut finding = Finding::new(RULE, FindingKind::Slow, of.phase)
        .because(
            format!(
                "{one} {rank} has the shortest time in {last} of {all} collectives in which one {one} clearly has it: it came \
                 last, and the others had begun to wait"
            ),
            "/ranks/collectives, on",
        )
        .because(
            format!(
                "in these it came {} {a_pass} after the last but one, and the others waited {} in the mean",
                time(of.lead_a_pass_ns()),
                time(of.others_wait_a_pass_ns())
            ),
            "/ranks/collectives, on",
        );
    finding.what = format!(
        "{one} {rank} is the straggler: the others wait {} {a_pass} for it ({last} of {all} collectives)",
        time(of.others_wait_a_pass_ns())
    );
    finding.advice = format!(
        "find out what {one} {rank} does longer before its collectives: its share of the work, its clocks and temperature, or \
         its host"
    );
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    match sums.members {
        Member::Rank => "with the ranks on each other's devices, another rank is last",
        Member::Device => "with CUDA_VISIBLE_DEVICES in another order, another device is last",
    }
    .clone_into(&mut finding.refuted_if);
    let on = facts.devices.iter().find(|on| Some(on.phase) == of.phase);
    let finding = match on {
        None if of.phase.is_some() => {
            finding.cannot_predict("what a pass takes on a device of the host shown is not known")
        }
        Some(on) => finding.gains(Gain::between(on.span_ns(), 0.0, [0.0, of.lead_a_pass_ns()])),
        None => finding.cannot_predict("its collectives are not all in passes of one phase"),
    };
    findings.found.push(finding);
}
