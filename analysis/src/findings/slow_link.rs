//! A group of ranks that transfers longer than other groups do what is the same.

use super::facts::Facts;
use super::{Finding, FindingKind, Findings};
use crate::links::{Member, slow_links};
use crate::words::time;

const RULE: &str = "slow-link";

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    // The one that takes the most more; `show --full` has the others.
    let Some(of) = slow_links(facts.profile).into_iter().next() else { return };
    let (one, many) = (of.members.one(), of.members.many());
    let mut finding = Finding::new(RULE, FindingKind::Slow, None)
        .because(
            format!(
                "of {} collectives of this size the median of the shortest time of its {many} is {}; no {one} waits in these",
                of.collectives,
                time(of.transfer_ns as f64)
            ),
            "/ranks/collectives, on",
        )
        .because(
            format!(
                "in {} it is {}, and three quarters of theirs are shorter than three quarters of its own",
                match of.other_groups {
                    1 => format!("the other group of as many {many}"),
                    n => format!("{n} other groups of as many {many}"),
                },
                time(of.others_ns as f64)
            ),
            "/ranks/collectives, on",
        );
    finding.what = of.in_words();
    finding.advice = format!(
        "see which way the data of these {many} take (`nvidia-smi topo -m`, NCCL_DEBUG=INFO), and what else uses it"
    );
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    match of.members {
        Member::Rank => "with these ranks on the devices of another group, that group is slow",
        Member::Device => "with CUDA_VISIBLE_DEVICES in another order, others are slow",
    }
    .clone_into(&mut finding.refuted_if);
    findings
        .found
        .push(finding.cannot_predict("how much of a pass waits for these transfers is not known"));
}
