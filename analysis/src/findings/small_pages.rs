//! Weights that were copied into memory, but into small pages.

use brickscope_profile::Change;
use brickscope_profile::text::printable;

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::{Bound, Reach};
use crate::words::whole_percent;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    const RULE: &str = "small-pages";
    let Some(of) = facts.main() else { return };
    let place = facts.profile.model.as_ref().and_then(|model| model.weights_in.as_deref());
    let Some(place) = place.filter(|place| {
        place.starts_with("memory, in small pages")
            || place.starts_with("memory, partly in large pages")
    }) else {
        return;
    };
    // A cache reads them as fast from small pages.
    let caches = facts.profile.ceilings.iter().flat_map(|ceilings| &ceilings.caches);
    let largest = caches.map(|cache| cache.bytes).max().unwrap_or(0);
    if facts.profile.model.as_ref().is_some_and(|model| (1..=largest).contains(&model.file_bytes)) {
        return;
    }
    let Some(verdict) = &of.verdict else {
        findings.unknown(
            RULE,
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
            RULE,
            format!("whether large pages would help is not known: {}", verdict.says()),
        );
        return;
    }
    let mut finding = Finding::new(RULE, FindingKind::Slow, Some(of.phase))
        .because(format!("the weights are in {}", printable(place)), "/model/weights_in")
        .because(
            format!("{} reaches {} of what memory gives", of.phase, whole_percent(verdict.of_roof)),
            "the roofline",
        );
    finding.what = format!(
        "the weights are in {}, and {} reaches {} of the roof",
        printable(place),
        of.phase,
        whole_percent(verdict.of_roof)
    );
    let is_asked = facts.has_flag(&["--small-pages"]);
    finding.advice = match is_asked {
        true => "use large pages: leave out `--small-pages`".to_owned(),
        false => "let the system give large pages (`/sys/kernel/mm/transparent_hugepage/enabled`: madvise or always), and \
                  free memory"
            .to_owned(),
    };
    "it takes as long in large pages".clone_into(&mut finding.refuted_if);
    let gain = Gain::between(of.pass_ns, of.least_ns, [0.0, of.pass_ns - of.least_ns]);
    // Only what is typical of small pages: what the run itself shows comes first.
    finding.rank_ns = Some(0.0);
    findings.found.push(
        finding.gains(gain).by((facts.flags.is_ours && is_asked).then_some(Change::LargePages)),
    );
}
