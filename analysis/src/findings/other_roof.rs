//! A phase at the limit of the machine's arithmetic or of its caches, or above its roof.

use super::facts::Facts;
use super::{Finding, FindingKind, Findings};
use crate::roofline::{Bound, Reach};
use crate::words::whole_percent;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in facts.under_a_roof() {
        let Some(verdict) = &of.verdict else { continue };
        let name = of.name(facts.profile);
        let what_ran_it = if of.device.is_some() { "device" } else { "machine" };
        let evidence = format!("{name} reaches {} of its roof", whole_percent(verdict.of_roof));
        let mut finding = match verdict.reach {
            Reach::Above => {
                let mut finding =
                    Finding::new("above-the-roof", FindingKind::Doubt, Some(of.phase));
                finding.what =
                    format!("{name} is faster than the {what_ran_it} was measured to be");
                finding.advice = match of.device {
                    None => "measure the machine's limits again (`brickscope machine`), and check the stated work: the \
                             run beat its roof",
                    Some(_) => "measure the device's limits again, and check the stated work: the run beat its roof",
                }
                .to_owned();
                finding.refuted_if =
                    "measured again, the limits are the same and the work is right".to_owned();
                finding.test =
                    of.device.is_none().then(|| "brickscope machine --add-to RUN".to_owned());
                finding
            }
            Reach::At if verdict.bound != Bound::Memory => {
                let mut finding = Finding::new("compute-roof", FindingKind::Limit, Some(of.phase));
                finding.what = format!("{name} is at the limit of this {what_ran_it}");
                let more = if of.device.is_some() { "a faster device" } else { "more cores" };
                finding.advice = format!(
                    "{name} is at its limit, so kernels have little to gain: try less work (a smaller model) or {more}"
                );
                finding.refuted_if = "another kernel is faster".to_owned();
                finding
            }
            _ => continue,
        };
        finding = finding.because(evidence, "the roofline");
        findings.found.push(
            finding.cannot_predict("it depends on what else is computed, or on other hardware"),
        );
    }
}
