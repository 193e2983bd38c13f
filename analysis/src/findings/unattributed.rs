//! Time of passes that no brick explains.

use super::disturbed::cause;
use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::typical::Basis;
use crate::words::{fraction, time};

/// Then a phase can't be judged.
const MOST: f64 = 0.1;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        let share = of.unattributed_ns / of.pass_ns;
        // Threads that wait for a CPU do so between bricks, too.
        let is_of_spans = of.typical.basis == Basis::Spans;
        let is_disturbed = is_of_spans && cause(facts.profile, &of.typical, of.total).is_some();
        if share <= MOST || of.bricks().is_empty() || is_disturbed {
            continue;
        }
        let mut finding = Finding::new("unattributed", FindingKind::Doubt, Some(of.phase)).because(
            format!("{} of {} a pass", time(of.unattributed_ns), time(of.pass_ns)),
            format!("{}, unattributed_ns", of.place()),
        );
        finding.what = format!("{} of {} is in no brick", fraction(share), of.phase);
        let is_of_others = facts.profile.run.as_ref().is_some_and(|run| run.engine.is_some());
        finding.advice = if is_of_others {
            format!(
                "sample the engine: {} of a pass is what it does besides its graph's nodes, such as starting threads",
                fraction(share)
            )
        } else {
            format!(
                "time what lies between the bricks: {} of the pass is in none of them",
                fraction(share)
            )
        };
        "bricks around that time show that it is work that has to be done"
            .clone_into(&mut finding.refuted_if);
        finding.test = Some("brickscope flamegraph -- COMMAND".to_owned());
        let gain = Gain::between(of.pass_ns, of.least_ns, [0.0, of.unattributed_ns]);
        findings.found.push(finding.gains(gain));
    }
}
