//! A phase whose own code limits it: its products take weights in nearly as fast as their kernels do from a cache.

use brickscope_profile::Change;
use brickscope_profile::text::printable;

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::Reach;
use crate::words::{digits, whole_percent};

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        let Some(verdict) = of.verdict.as_ref().filter(|of| of.reach == Reach::Kernel) else {
            continue;
        };
        let Some(pace) = &verdict.pace else { continue };
        let name = of.name(facts.profile);
        let gigabytes = |rate: f64| digits(rate / 1e9);
        let kernels: Vec<String> = pace.kernels.iter().map(|name| printable(name)).collect();
        let mut finding = Finding::new("kernel-bound", FindingKind::Slow, Some(of.phase))
            .because(
                format!("products take in {} GB/s of weights", gigabytes(pace.bytes_per_second)),
                of.totals("total_ns and data"),
            )
            .because(
                format!(
                    "with weights in {}, {} reached {} GB/s, and {} at least",
                    printable(&pace.level),
                    kernels.join(" and "),
                    gigabytes(pace.pace_per_second),
                    gigabytes(pace.lowest_per_second)
                ),
                format!("{}, paces and spreads", of.ceilings()),
            )
            .because(
                format!("{name} reaches {} of its roof", whole_percent(verdict.of_roof)),
                "the roofline",
            );
        finding.what = format!("{name} is {}", verdict.says());
        let cpus = facts.cpus().filter(|cpus| *cpus > facts.threads());
        let threads = cpus.map(|_| format!("more `{}` may help", facts.flags.threads));
        let helps = [verdict.helps(), threads].into_iter().flatten();
        let other = "weights of another format have another kernel".to_owned();
        finding.advice = helps.chain([other]).collect::<Vec<_>>().join("; ");
        finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
        "with the same kernel, weights that a cache holds are taken in faster"
            .clone_into(&mut finding.refuted_if);
        finding.test = facts.flags.is_ours.then(|| "brickscope show RUN --as roofline".to_owned());
        // Whoever runs a model writes no kernels, so it comes after what a flag brings.
        finding.rank_ns = Some(0.0);
        let finding = match cpus.filter(|_| facts.flags.can_try) {
            Some(cpus) => finding
                .cannot_predict("how fast more threads compute, only runs tell")
                .by(Some(Change::Threads(cpus))),
            None => {
                let most = pace.above_ns() / of.passes;
                finding.gains(Gain::between(of.pass_ns, of.least_ns, [0.0, most]))
            }
        };
        findings.found.push(finding);
    }
}
