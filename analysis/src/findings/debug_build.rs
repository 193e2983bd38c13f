//! A build without optimisation, whose times say nothing of the one that people run.

use super::facts::Facts;
use super::{Finding, FindingKind, Findings};

/// The name of the rule.
pub(crate) const RULE: &str = "debug-build";

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    // A client of a server times that one's work, and has no passes of its own.
    if facts.profile.phases.is_empty() && facts.profile.devices.is_empty() {
        return;
    }
    // The program that recorded says so in the basis of its estimate.
    let overhead = &facts.profile.overhead;
    if !overhead.basis.contains("(a debug build)") {
        return;
    }
    let mut finding = Finding::new(RULE, FindingKind::Doubt, None)
        .because(&overhead.basis, "/overhead/basis")
        .cannot_predict("how much faster a release build is, only a run of it tells");
    "this is a debug build: its times say little of a release build".clone_into(&mut finding.what);
    "build with optimisation (`cargo build --release`), and measure again"
        .clone_into(&mut finding.advice);
    "a release build takes as long".clone_into(&mut finding.refuted_if);
    finding.test = facts.flags.is_ours.then(|| "cargo run --release -- profile MODEL".to_owned());
    findings.found.push(finding);
}
