//! What limits a phase, and what disturbed it, in a few words.

use brickscope_profile::text::{printable_text, screened_lines};
use brickscope_profile::{Disturber, Phase, Profile, Total};

use super::lines::{Piece, Tone};
use crate::findings::disturbed::{Waited, cause};
use crate::passes::did;
use crate::roofline::{Reach, Roofline};
use crate::typical::{self, Basis, Typical};
use crate::words::fraction;

/// Then a phase can't be judged, since too much of it lies outside of all bricks.
const MOST_UNATTRIBUTED: f64 = 0.1;

/// What limits a phase, in a few words: `memory-bound: at the roof (41 GB/s)`. Empty if it had no pass.
#[must_use]
pub fn phase_limit(profile: &Profile, phase: Phase) -> Piece {
    // A host that only issued the bricks to a device is limited by that.
    let has_bricks = |on: &Profile| !on.bricks(Some(phase)).is_empty();
    let on_device =
        (0..profile.devices.len()).find_map(|index| profile.whole_device(index).filter(has_bricks));
    let (text, tone) = limit(on_device.as_ref().unwrap_or(profile), phase);
    Piece { text: screened_lines(text), tone }
}

pub(super) fn limit(profile: &Profile, phase: Phase) -> (String, Tone) {
    let judged = typical::judged(profile, phase);
    let Some(total) = judged.phase(phase) else { return (String::new(), Tone::Plain) };
    let wall = total.wall_ns as f64;
    let bricks = judged.bricks(Some(phase));
    if bricks.is_empty() {
        let parts = profile.device_parts(phase).unwrap_or_default();
        let what = match parts.in_layers_ns.saturating_add(parts.whole_passes_ns) {
            0 => "no brick was timed in it",
            _ => "only layers, or the whole pass, were timed",
        };
        return (what.to_owned(), Tone::Bad);
    }
    if let Some(serialised) = profile.serialised(phase) {
        let devices = printable_text(&serialised.devices.join(", "));
        let how = if serialised.whole_passes == 0 { "serialised; " } else { "" };
        return (format!("{how}no roof is known for {devices}"), Tone::Plain);
    }
    if total.unattributed_ns as f64 > MOST_UNATTRIBUTED * wall {
        let share = fraction(total.unattributed_ns as f64 / wall);
        let why = disturber(profile, phase).unwrap_or("unknown limit");
        return (format!("{why}: {share} of {phase} lies outside of all bricks"), Tone::Bad);
    }
    let sum = |of: fn(&Total) -> u64| bricks.iter().map(|brick| of(brick) as f64).sum::<f64>();
    let (bytes, flops) = (sum(|of| of.stats.total_bytes), sum(|of| of.stats.total_flops));
    if bytes == 0.0 || flops == 0.0 {
        return ("unknown limit: no FLOPs and bytes were stated".to_owned(), Tone::Plain);
    }
    let roofline = match Roofline::of_sums(&judged, phase) {
        Ok(roofline) => roofline,
        Err(_) => return ("unknown limit: no measured ceilings".to_owned(), Tone::Plain),
    };
    let Some(verdict) = roofline.verdict() else {
        return ("unknown limit: no brick has a roof".to_owned(), Tone::Plain);
    };
    let tone = match verdict.reach {
        Reach::At => Tone::Good,
        Reach::Near | Reach::Unsettled | Reach::Above | Reach::Kernel => Tone::Plain,
        Reach::Far => Tone::Bad,
    };
    let typical = Typical::of(profile, phase);
    let is_of_spans = typical.is_some_and(|typical| typical.basis == Basis::Spans);
    let is_near = matches!(verdict.reach, Reach::At | Reach::Near);
    match disturber(profile, phase) {
        Some(_) if is_near && Waited::of(profile, phase).is_some() => {
            (format!("without the waits: {}", verdict.says().replacen(": ", ", ", 1)), Tone::Plain)
        }
        // What disturbs nearly all passes is what limits them.
        Some(by) if !matches!(verdict.reach, Reach::At | Reach::Above) => {
            let reached = format!("reached {} ({})", verdict.part(), verdict.limit());
            (format!("{reached}; cause: {by}"), Tone::Bad)
        }
        _ if is_of_spans => (format!("{}, by median spans", verdict.says()), Tone::Plain),
        _ => (verdict.says(), tone),
    }
}

/// What disturbed nearly all passes of a phase, in a few words: `threads shared a CPU`. `None` if enough passes were
/// clean.
#[must_use]
pub fn disturber(profile: &Profile, phase: Phase) -> Option<&'static str> {
    let typical = Typical::of(profile, phase).filter(|typical| typical.basis == Basis::Spans)?;
    cause(profile, &typical, profile.phase(phase)?).map(|(by, _)| did(by))
}

/// Whether more than a quarter of a phase's time was waiting for CPUs, which medians of spans don't show. Then what they
/// come to is not what limits it.
#[must_use]
pub fn waits_most(profile: &Profile, phase: Phase) -> bool {
    Waited::of(profile, phase).is_some()
}

/// What somebody did who disturbed passes, in a few words: `threads shared a CPU`.
#[must_use]
pub const fn disturbed_by(by: Disturber) -> &'static str {
    did(by)
}
