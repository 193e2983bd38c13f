//! Profiles as they are shown and judged: without what disturbed passes.

use std::borrow::Cow;
use std::collections::HashSet;

use brickscope_profile::{BrickStats, Grain, NameKind, Pass, Phase, PhaseTotal, Profile, Total};

use super::{Basis, RULE, STALL, STALL_OF_PASS, Typical, TypicalBrick, has_all_spans};
use crate::passes::{is_of_device, with_bricks};
use crate::words::time;

/// The profile as it is shown: without the passes that [`Typical`] leaves out. Their number is in
/// [`Dropped::left_out_passes`](brickscope_profile::Dropped::left_out_passes), and `is_left_out` marks them. Phases of
/// which too few passes would remain keep all. If some passes were left out before, other than to warm up, or not all
/// spans were kept, it is the profile as it was.
#[must_use]
pub fn shown(profile: &Profile) -> Cow<'_, Profile> {
    if !has_all_spans(profile) || profile.dropped.left_out_later() > 0 {
        return Cow::Borrowed(profile);
    }
    let mut left_out: HashSet<u32> = HashSet::new();
    for typical in Typical::all(profile) {
        if typical.basis == Basis::Passes && typical.left_out.passes > 0 {
            let stalled: HashSet<u32> = typical.stalls.iter().map(|stall| stall.pass).collect();
            let passes = profile.passes.iter().filter(|pass| pass.phase == typical.phase);
            let is_out = |pass: &&Pass| pass.is_disturbed() || stalled.contains(&pass.serial);
            left_out.extend(passes.filter(is_out).map(|pass| pass.serial));
        }
    }
    if left_out.is_empty() {
        return Cow::Borrowed(profile);
    }
    match profile.without(|pass| left_out.contains(&pass.serial)) {
        Ok(rest) => Cow::Owned(rest),
        Err(_) => Cow::Borrowed(profile),
    }
}

/// The profile by which a phase is judged: as [`shown`], and where nearly all passes were disturbed, with the sums that
/// the passes would have if each span took the median of its brick. Where single spans were not kept, each span that is
/// a stall by its brick's histogram counts as the brick's median. Of a device by itself, the passes of which bricks were
/// timed.
#[must_use]
pub fn judged(profile: &Profile, phase: Phase) -> Cow<'_, Profile> {
    if is_of_device(profile) {
        return finely_timed(profile, phase);
    }
    if !has_all_spans(profile) {
        return capped(profile, phase);
    }
    let shown = shown(profile);
    // Of all passes: those that remain may seem to have further stalls.
    let Some(typical) = Typical::of(profile, phase) else { return shown };
    if typical.basis != Basis::Spans {
        return shown;
    }
    let mut judged = shown.into_owned();
    let n = typical.passes as f64;
    let mut attributed = 0_u64;
    let bricks = judged
        .totals
        .iter_mut()
        .filter(|total| total.phase == Some(phase) && total.kind == NameKind::Brick);
    for total in bricks {
        let stats = &mut total.stats;
        let of = |brick: &&TypicalBrick| brick.name == stats.name && brick.source == total.source;
        let Some(brick) = typical.bricks.iter().find(of) else { continue };
        let own_ns = ((brick.time.ns * n) as u64).min(stats.exclusive_ns);
        // What lies inside of it is judged by itself.
        stats.total_ns = stats.total_ns.saturating_sub(stats.exclusive_ns - own_ns);
        stats.exclusive_ns = own_ns;
        attributed = attributed.saturating_add(own_ns);
    }
    for total in judged.phases.iter_mut().filter(|total| total.phase == phase) {
        total.attributed_ns = attributed;
        total.unattributed_ns = ((typical.unattributed.ns * n) as u64).min(total.unattributed_ns);
        total.wall_ns = attributed.saturating_add(total.unattributed_ns);
    }
    Cow::Owned(judged)
}

/// Whether what [`judged`] says of a phase is by the median span of each brick, since nearly all passes were disturbed.
#[must_use]
pub fn is_of_medians(profile: &Profile, phase: Phase) -> bool {
    Typical::of(profile, phase).is_some_and(|typical| typical.basis == Basis::Spans)
}

/// What a pass takes by that, in nanoseconds. `None` if [`judged`] is by the passes themselves.
#[must_use]
pub fn median_pass_ns(profile: &Profile, phase: Phase) -> Option<f64> {
    if !is_of_medians(profile, phase) {
        return None;
    }
    let judged = judged(profile, phase);
    let total = judged.phase(phase).filter(|total| total.passes > 0)?;
    Some(total.wall_ns as f64 / total.passes as f64)
}

/// What the sums of a phase are on each screen where it is [`judged`] by others than were measured: `by median spans: 4.49 ms
/// of the 18.5 ms that a pass took`.
#[must_use]
pub fn basis_in_words(is_of_medians: bool, judged: &PhaseTotal, measured: &PhaseTotal) -> String {
    let each = |total: &PhaseTotal| time(total.wall_ns as f64 / total.passes.max(1) as f64);
    let how = if is_of_medians { "by median spans" } else { "without stalls" };
    format!("{how}: {} of the {} that a pass took", each(judged), each(measured))
}

/// A device's profile with the passes of a phase in which bricks were timed. Others have no bricks, but layers, or the
/// whole pass: that is no gap.
fn finely_timed(profile: &Profile, phase: Phase) -> Cow<'_, Profile> {
    let Some(total) = profile.phase(phase) else { return Cow::Borrowed(profile) };
    let fine = with_bricks(profile, total);
    if fine == *total {
        return Cow::Borrowed(profile);
    }
    let mut judged = profile.clone();
    for total in judged.phases.iter_mut().filter(|total| total.phase == phase) {
        *total = fine;
    }
    judged.grains.retain(|of| of.phase != phase || of.grain > Grain::Layer);
    Cow::Owned(judged)
}

/// A profile without single spans, in which a stall counts as the median of its brick.
fn capped(profile: &Profile, phase: Phase) -> Cow<'_, Profile> {
    let Some(total) = profile.phase(phase) else { return Cow::Borrowed(profile) };
    let of_pass = total.wall_ns / total.passes.max(1) / STALL_OF_PASS;
    let longer = |stats: &BrickStats| {
        // Of bricks with others inside, the histogram isn't of their own time.
        let is_whole = stats.exclusive_ns == stats.total_ns;
        let is_known = is_whole && stats.histogram.count() == stats.count;
        let p50_ns = stats.percentiles().p50_ns.filter(|_| is_known)?;
        let bound = p50_ns.saturating_mul(STALL).max(p50_ns.saturating_add(of_pass));
        let (n, sum) = stats.histogram.above(bound);
        (n > 0 && n <= (total.passes / RULE).max(1))
            .then(|| sum.saturating_sub(n.saturating_mul(p50_ns)).min(stats.exclusive_ns))
    };
    let in_phase = |total: &Total| total.phase == Some(phase) && total.kind == NameKind::Brick;
    let is_stalled = |total: &&Total| in_phase(total) && longer(&total.stats).is_some();
    if !profile.totals.iter().any(|total| is_stalled(&total)) {
        return Cow::Borrowed(profile);
    }
    let mut capped = profile.clone();
    let mut all_ns = 0_u64;
    for total in capped.totals.iter_mut().filter(|total| in_phase(total)) {
        let Some(ns) = longer(&total.stats) else { continue };
        total.stats.exclusive_ns -= ns;
        total.stats.total_ns -= ns;
        all_ns = all_ns.saturating_add(ns);
    }
    for total in capped.phases.iter_mut().filter(|total| total.phase == phase) {
        total.attributed_ns = total.attributed_ns.saturating_sub(all_ns);
        total.wall_ns = total.wall_ns.saturating_sub(all_ns);
    }
    Cow::Owned(capped)
}
