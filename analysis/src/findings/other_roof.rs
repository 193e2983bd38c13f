//! A phase at the limit of the machine's arithmetic or of its caches, or above its roof.

use super::facts::Facts;
use super::{Finding, Findings, Kind};
use crate::roofline::{Bound, Reach};
use crate::words::whole_percent;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        let Some(verdict) = &of.verdict else { continue };
        let evidence =
            format!("{} reaches {} of its roof", of.phase, whole_percent(verdict.of_roof));
        let mut finding = match verdict.reach {
            Reach::Above => {
                let mut finding = Finding::new("above-the-roof", Kind::Doubt, Some(of.phase));
                finding.what =
                    format!("{} is faster than the machine was measured to be", of.phase);
                finding.advice = "measure the machine's limits again (`brickscope machine`), and check the stated work: the \
                                  run beat its roof"
                    .to_owned();
                finding.refuted_if =
                    "measured again, the limits are the same and the work is right".to_owned();
                finding.test = Some("brickscope machine --add-to RUN".to_owned());
                finding
            }
            Reach::At if verdict.bound != Bound::Memory => {
                let mut finding = Finding::new("compute-roof", Kind::Limit, Some(of.phase));
                finding.what = format!("{} is at the limit of this machine", of.phase);
                finding.advice = format!(
                    "{} is at its limit, so kernels have little to gain: try less work (a smaller model) or more cores",
                    of.phase
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
