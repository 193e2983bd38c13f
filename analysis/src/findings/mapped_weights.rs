//! Weights that are read from a mapped file, in small pages.

use brickscope_profile::Change;

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::{Bound, Reach};
use crate::words::whole_percent;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(of) = facts.main() else { return };
    let place = facts.profile.model.as_ref().and_then(|model| model.weights_in.as_deref());
    if place != Some("mapped file") {
        return;
    }
    let Some(verdict) = &of.verdict else {
        findings.unknown(
            "mapped-weights",
            "whether large pages would help is not known, since it isn't known how fast memory could be",
        );
        return;
    };
    let is_held = matches!(verdict.reach, Reach::At | Reach::Above | Reach::Kernel);
    if verdict.bound == Bound::Compute || is_held {
        return;
    }
    if verdict.reach == Reach::Unsettled {
        findings.unknown(
            "mapped-weights",
            format!("whether large pages would help is not known: {}", verdict.says()),
        );
        return;
    }
    let mut finding = Finding::new("mapped-weights", FindingKind::Slow, Some(of.phase))
        .because("weights were read from the mapped file", "/model/weights_in")
        .because(
            format!("{} reaches {} of what memory gives", of.phase, whole_percent(verdict.of_roof)),
            "the roofline",
        );
    finding.what = format!(
        "weights are read from a mapped file, and {} reaches {} of the roof",
        of.phase,
        whole_percent(verdict.of_roof)
    );
    let is_asked = facts.has_flag(&["--mmap"]);
    finding.advice = match is_asked {
        true => "copy the weights into large pages: leave out `--mmap`".to_owned(),
        false => {
            "copy the weights into large pages of memory: free some, or let the system give them \
                  (`/sys/kernel/mm/transparent_hugepage/enabled`: madvise or always)"
                .to_owned()
        }
    };
    "it takes as long with the weights in large pages".clone_into(&mut finding.refuted_if);
    let gain = Gain::between(of.pass_ns, of.least_ns, [0.0, of.pass_ns - of.least_ns]);
    // Only what is typical of mapped files: what the run itself shows comes first.
    finding.rank_ns = Some(0.0);
    findings.found.push(
        finding.gains(gain).by((facts.flags.is_ours && is_asked).then_some(Change::LargePages)),
    );
}
