//! A device that waits with work launched: for what, its trace doesn't tell. The host isn't late then, so nothing that launches
//! less helps; what it is has to be found out first.

use std::collections::BTreeMap;

use brickscope_profile::text::brief;
use brickscope_profile::{NameKind, Profile};

use super::device::OnDevice;
use super::facts::Facts;
use super::{Finding, FindingKind, Findings};
use crate::words::time;

const RULE: &str = "waits-with-work-launched";

/// Less than this part of a pass is not worth a word.
const LEAST: f64 = 0.1;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    findings.found.extend(facts.devices.iter().filter_map(|of| finding(facts.profile, of)));
}

/// Whether the rule has a finding of a device and a phase.
pub(super) fn is_found(profile: &Profile, of: &OnDevice<'_>) -> bool {
    queued(profile, of).is_some()
}

/// How long it waits in all passes with work launched, and the part of it before the first kernels, where that is the longest
/// of its waits, and all of them together take longer than its longest brick.
fn queued(profile: &Profile, of: &OnDevice<'_>) -> Option<(u64, u64)> {
    // Of files alone it is known which pass of the host launched what.
    profile.imported.as_ref()?;
    let around = of.around?;
    let late_ns = of.late_ns.saturating_add(around.unlaunched_ns);
    let first_ns = of.before_first_ns();
    let queued_ns = of.queued_ns.saturating_add(first_ns);
    let all = [late_ns, queued_ns, around.behind_ns, of.unknown_ns];
    let sum = all.iter().fold(0, |sum, &ns| u64::saturating_add(sum, ns));
    let is_longest = queued_ns > late_ns.max(of.unknown_ns) && queued_ns >= around.behind_ns;
    let is_worth = queued_ns as f64 >= LEAST * whole_ns(of) && sum > longest_brick_ns(of);
    (is_longest && is_worth).then_some((queued_ns, first_ns))
}

/// From the begin of the host's pass, as long as the device did nothing else, to the last kernel.
fn whole_ns(of: &OnDevice<'_>) -> f64 {
    of.busy.span_ns.saturating_add(of.around.map_or(0, |around| around.before_ns)) as f64
}

/// What the brick that takes most of the phase takes on the device, on all streams.
fn longest_brick_ns(of: &OnDevice<'_>) -> u64 {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let totals = of.device.streams.iter().flat_map(|stream| &stream.totals);
    for total in totals.filter(|total| {
        total.phase == Some(of.phase) && total.kind == NameKind::Brick && total.category.is_some()
    }) {
        let sum = sums.entry(&total.stats.name).or_default();
        *sum = sum.saturating_add(total.stats.exclusive_ns);
    }
    sums.into_values().max().unwrap_or(0)
}

fn finding(profile: &Profile, of: &OnDevice<'_>) -> Option<Finding> {
    let (queued_ns, first_ns) = queued(profile, of)?;
    let passes = of.busy.passes.max(1) as f64;
    let (name, phase) = (of.name(profile), of.phase);
    let [waits, whole] = [queued_ns as f64, whole_ns(of)].map(|ns| time(ns / passes));
    let mut finding = Finding::new(RULE, FindingKind::Slow, Some(phase)).because(
        format!(
            "{name} is idle for {} of {whole} a pass, and for {waits} of it what comes next was launched, and nothing in the \
             file ran",
            time(of.idle_ns(whole_ns(of) / passes).max(0.0))
        ),
        of.place("spans and launches"),
    );
    let longest = of.longest.filter(|gap| gap.late_ns.is_some_and(|late| late < gap.ns / 2));
    let place = match longest.zip(of.around_longest(profile)) {
        Some((gap, [before, after])) if of.queued_ns > first_ns => format!(
            "the longest, {}, lies between {} and {}",
            time(gap.ns as f64),
            brief(before.kernel),
            brief(after.kernel)
        ),
        _ => "the pass before it, recorded too, would tell".to_owned(),
    };
    finding = finding.because(place.clone(), of.place("spans"));
    finding.what = format!(
        "{name} waits {waits} of {whole} a pass of {phase} with work launched, for what the file doesn't tell"
    );
    "find out what it waits for: an event, another stream or process, a pass before, or the profiler itself"
        .clone_into(&mut finding.advice);
    "a trace that has the passes before and all processes of the device shows that it ran something then"
        .clone_into(&mut finding.refuted_if);
    finding.in_a_sentence = Some(format!(
        "find out what {name} waits for: {waits} a pass with work launched, and nothing in the file ran; {place}"
    ));
    // As much as of what is saved at most by launching earlier.
    finding.rank_ns = Some(queued_ns as f64 / passes / 2.0);
    Some(finding.cannot_predict("what it waits for isn't known, nor what that would save"))
}
