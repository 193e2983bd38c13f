//! Memory that isn't there when a pass touches it: pages that the system maps first, or reads from a disk.

use brickscope_profile::{Change, Pass, PassTime};

use super::facts::{Facts, PhaseFacts};
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::time;

/// Fewer faults in a millisecond are no part of its time to speak of: one takes about a microsecond.
const LEAST_A_MS: f64 = 30.0;
/// One takes at most so long, with the pages around it that are mapped together.
const MOST_NS: f64 = 10_000.0;
/// On average in a pass. A disk takes from some 50 µs to some milliseconds for each.
const LEAST_DISK_FAULTS: f64 = 1.0;
/// Passes without faults that tell how long one takes.
const LEAST_PASSES: usize = 5;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    if facts.profile.imported.is_some() {
        return;
    }
    for of in &facts.phases {
        let passes: Vec<(&Pass, f64, f64)> = facts
            .profile
            .passes
            .iter()
            .filter(|pass| pass.phase == of.phase && !pass.is_left_out)
            .filter_map(|pass| {
                let found = pass.disturbance.as_ref()?;
                // Some passes may share a look.
                let each = |faults: u64| faults as f64 / found.passes.max(1) as f64;
                Some((pass, each(found.disk_faults?), each(found.page_faults?)))
            })
            .collect();
        if passes.is_empty() {
            continue;
        }
        let n = passes.len() as f64;
        let disk = passes.iter().map(|(_, disk, _)| disk).sum::<f64>() / n;
        let mapped = passes.iter().map(|(.., faults)| faults).sum::<f64>() / n;
        let wall_ms = passes.iter().map(|(pass, ..)| pass.wall_ns as f64).sum::<f64>() / n / 1e6;
        if disk >= LEAST_DISK_FAULTS {
            let is_without = |(_, disk, _): &(&Pass, f64, f64)| *disk < 1.0;
            let Some(mut finding) =
                new("disk-reads", facts, of, &passes, is_without, f64::INFINITY)
            else {
                continue;
            };
            finding.what = format!(
                "{} waits for a disk: {disk:.0} pages a pass are read from there",
                of.phase
            );
            finding = finding.because(
                format!("{disk:.0} major page faults a pass of {}", time(1e6 * wall_ms)),
                "/passes, disturbance, disk_faults",
            );
            finding.advice = format!(
                "keep the weights in memory{}: free memory, or run a smaller model",
                copied(facts)
            );
            "with the weights in memory it takes as long".clone_into(&mut finding.refuted_if);
            findings.found.push(finding);
        } else if mapped >= LEAST_A_MS * wall_ms {
            let few = LEAST_A_MS * wall_ms / 10.0;
            let is_without = |(.., faults): &(&Pass, f64, f64)| *faults < few;
            let most_ns = mapped * MOST_NS;
            let Some(mut finding) = new("page-faults", facts, of, &passes, is_without, most_ns)
            else {
                continue;
            };
            finding.what =
                format!("{} touches pages that are not mapped: {mapped:.0} a pass", of.phase);
            finding = finding.because(
                format!("{mapped:.0} minor page faults a pass of {}", time(1e6 * wall_ms)),
                "/passes, disturbance, page_faults",
            );
            finding.advice = format!(
                "find out who unmaps or allocates this memory{}: a limit of memory, an allocator that gives pages back, \
                 buffers that each pass makes anew",
                copied(facts)
            );
            "without the faults it takes as long".clone_into(&mut finding.refuted_if);
            findings.found.push(finding);
        }
    }
}

/// What to do about weights in a mapped file.
fn copied(facts: &Facts<'_>) -> &'static str {
    if is_mapped(facts) && facts.has_flag(&["--mmap"]) { " (leave out `--mmap`)" } else { "" }
}

fn is_mapped(facts: &Facts<'_>) -> bool {
    let place = facts.profile.model.as_ref().and_then(|model| model.weights_in.as_deref());
    place == Some("mapped file")
}

fn new(
    rule: &'static str,
    facts: &Facts<'_>,
    of: &PhaseFacts<'_>,
    passes: &[(&Pass, f64, f64)],
    is_without: impl Fn(&(&Pass, f64, f64)) -> bool,
    most_ns: f64,
) -> Option<Finding> {
    let finding = Finding::new(rule, FindingKind::Slow, Some(of.phase));
    let mut without: Vec<f64> = passes
        .iter()
        .filter(|pass| is_without(pass))
        .map(|(pass, ..)| pass.wall_ns as f64)
        .collect();
    without.sort_by(f64::total_cmp);
    let gain = if without.len() >= LEAST_PASSES {
        let mean = passes.iter().map(|(pass, ..)| pass.wall_ns as f64).sum::<f64>();
        let saved = mean / passes.len() as f64 - without[without.len() / 2];
        // Then the faults cost nothing that shows.
        if saved <= 0.0 {
            return None;
        }
        Gain::between(of.mean_ns, of.least_ns, [0.0, saved]).map(|gain| gain.likely(saved))
    } else {
        Gain::between(of.mean_ns, of.least_ns, [0.0, of.mean_ns.min(most_ns)])
    };
    let is_asked = facts.flags.is_ours && is_mapped(facts) && facts.has_flag(&["--mmap"]);
    let finding = finding
        .gains(gain.map(|gain| gain.of(PassTime::Mean)))
        .by(is_asked.then_some(Change::LargePages));
    Some(finding)
}
