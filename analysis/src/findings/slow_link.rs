//! A group of ranks that transfers longer than other groups do what is the same.

use super::facts::Facts;
use super::{Finding, FindingKind, Findings};
use crate::links::slow_links;
use crate::words::time;

const RULE: &str = "slow-link";

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    // The one that takes the most more; `show --full` has the others.
    let Some(of) = slow_links(facts.profile).into_iter().next() else { return };
    let mut finding = Finding::new(RULE, FindingKind::Slow, None)
        .because(
            format!(
                "of {} collectives of this size the median of the shortest time of its ranks is {}; no rank waits in these",
                of.collectives,
                time(of.transfer_ns as f64)
            ),
            "/ranks/collectives, on",
        )
        .because(
            format!(
                "in {} it is {}, and three quarters of theirs are shorter than three quarters of its own",
                match of.other_groups {
                    1 => "the other group of as many ranks".to_owned(),
                    n => format!("{n} other groups of as many ranks"),
                },
                time(of.others_ns as f64)
            ),
            "/ranks/collectives, on",
        );
    finding.what = of.in_words();
    finding.advice =
        "see which way the data of these ranks take (`nvidia-smi topo -m`, NCCL_DEBUG=INFO), and what else uses it".to_owned();
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    "with these ranks on the devices of another group, that group is slow"
        .clone_into(&mut finding.refuted_if);
    findings
        .found
        .push(finding.cannot_predict("how much of a pass waits for these transfers is not known"));
}
