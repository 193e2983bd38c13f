//! A phase whose own code limits it, or bricks of it whose code limits them: their products are nearly as fast as their kernels
//! are with weights in a cache.

use brickscope_profile::Change;
use brickscope_profile::text::printable;

use super::facts::{Facts, PhaseFacts};
use super::{Finding, FindingKind, Findings, Gain};
use crate::roofline::{OwnPace, Reach, RooflineBrick, Verdict};
use crate::words::{digits, whole_percent};

const RULE: &str = "kernel-bound";
/// A brick in which better code could save less than this part of a pass is not worth a word.
const LEAST: f64 = 0.05;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        let Some(verdict) = &of.verdict else { continue };
        let finding = match (verdict.reach, &verdict.pace) {
            (Reach::Kernel, pace) => pace.as_ref().map(|pace| of_phase(facts, of, verdict, pace)),
            _ => of_bricks(facts, of),
        };
        findings.found.extend(finding);
    }
}

/// A brick at the pace of its kernels.
pub(super) type AtPace<'f> = (&'f RooflineBrick, &'f OwnPace);

/// The bricks that their own code limits, if better code could save something; those with the most to save first.
pub(super) fn bricks<'f>(of: &'f PhaseFacts<'_>) -> Vec<AtPace<'f>> {
    let bricks = of.roofline.iter().flat_map(|roofline| &roofline.bricks);
    let mut at_pace: Vec<AtPace<'f>> = bricks
        .filter_map(|brick| {
            let place = brick.place.as_ref().filter(|place| place.reach == Reach::Kernel)?;
            Some((brick, place.pace.as_ref()?))
        })
        .filter(|(_, pace)| pace.above_ns() >= LEAST * of.pass_ns * of.passes)
        .collect();
    at_pace.sort_by(|a, b| b.1.above_ns().total_cmp(&a.1.above_ns()));
    at_pace
}

fn of_phase(facts: &Facts<'_>, of: &PhaseFacts<'_>, verdict: &Verdict, pace: &OwnPace) -> Finding {
    let name = of.name(facts.profile);
    let at_pace = bricks(of);
    let is_one_of_several = at_pace.first().is_some_and(|(_, one)| *one != pace);
    let most = at_pace.first().filter(|_| is_one_of_several);
    let helps = verdict.helps().map(|helps| match most {
        Some((brick, _)) => format!("{helps}, most in {}", printable(&brick.name)),
        None => helps,
    });
    let mut finding = finding(facts, of, pace, "products", false).because(
        format!("{name} reaches {} of its roof", whole_percent(verdict.of_roof)),
        "the roofline",
    );
    if is_one_of_several {
        finding = with_each(finding, &at_pace);
    }
    finding.what = format!("{name} is {}", verdict.says());
    advised(facts, of, finding, helps, pace)
}

/// Bricks of a phase that isn't at the pace of its kernels as a whole. `None` without one.
fn of_bricks(facts: &Facts<'_>, of: &PhaseFacts<'_>) -> Option<Finding> {
    let at_pace = bricks(of);
    let pace = OwnPace::together(at_pace.iter().map(|(_, pace)| *pace))?;
    let names: Vec<String> = at_pace.iter().map(|(brick, _)| printable(&brick.name)).collect();
    let names = names.join(" and ");
    let is_one = at_pace.len() == 1;
    let mut finding = finding(facts, of, &pace, &names, is_one);
    if !is_one {
        finding = with_each(finding, &at_pace);
    }
    let are = if is_one { "is" } else { "are" };
    finding.what = format!("{names} {are} kernel-bound: {}", pace.says());
    let wall_ns = of.pass_ns * of.passes;
    let least_ns = wall_ns - pace.above_ns();
    let phase = of.name(facts.profile);
    let helps = (least_ns > 0.0)
        .then(|| format!("better code helps {phase} up to {:.1} ×", wall_ns / least_ns));
    Some(advised(facts, of, finding, helps, &pace))
}

/// With the rates: `products` says of which products.
fn finding(
    facts: &Facts<'_>,
    of: &PhaseFacts<'_>,
    pace: &OwnPace,
    products: &str,
    is_one: bool,
) -> Finding {
    let (rates, unit) = pace.rates();
    let [own, reached, lowest] = rates.map(digits);
    let s = if is_one { "s" } else { "" };
    let kernels: Vec<String> = pace.kernels.iter().map(|name| printable(name)).collect();
    let mut finding = Finding::new(RULE, FindingKind::Slow, Some(of.phase))
        .because(
            match pace.is_of_several() {
                true => format!("{products} compute{s} {own} {unit}"),
                false => format!("{products} take{s} in {own} {unit} of weights"),
            },
            of.totals("total_ns and data"),
        )
        .because(
            format!(
                "with weights in {}, {} reached {reached} {unit}, and {lowest} at least",
                printable(&pace.level),
                kernels.join(" and ")
            ),
            format!("{}, paces and spreads", of.ceilings()),
        );
    "with the same kernel, products of weights that a cache holds are faster"
        .clone_into(&mut finding.refuted_if);
    finding.test = facts.flags.is_ours.then(|| "brickscope show RUN --as roofline".to_owned());
    // Whoever runs a model writes no kernels, so it comes after what a flag brings.
    finding.rank_ns = Some(0.0);
    finding
}

/// Says of each brick how fast it was.
fn with_each(finding: Finding, at_pace: &[AtPace<'_>]) -> Finding {
    at_pace.iter().fold(finding, |finding, (brick, pace)| {
        finding.because(format!("{}: {}", printable(&brick.name), pace.says()), "the roofline")
    })
}

/// With what to do, and what that brings.
fn advised(
    facts: &Facts<'_>,
    of: &PhaseFacts<'_>,
    mut finding: Finding,
    helps: Option<String>,
    pace: &OwnPace,
) -> Finding {
    let cpus = facts.cpus().filter(|cpus| *cpus > facts.threads());
    let threads = cpus.map(|_| format!("more `{}` may help", facts.flags.threads));
    let other = "weights of another format have another kernel".to_owned();
    let all = [helps, threads, Some(other)].into_iter().flatten();
    finding.advice = all.collect::<Vec<_>>().join("; ");
    finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
    match cpus.filter(|_| facts.flags.can_try) {
        Some(cpus) => finding
            .cannot_predict("how fast more threads compute, only runs tell")
            .by(Some(Change::Threads(cpus))),
        None => {
            let most = pace.above_ns() / of.passes;
            finding.gains(Gain::between(of.pass_ns, of.least_ns, [0.0, most]))
        }
    }
}
