//! Whose the passes of a profile are, which of them have bricks, who disturbed them, and how busy all streams were in them:
//! what several screens ask of the same passes.

use std::borrow::Cow;
use std::collections::HashMap;

use brickscope_profile::{
    Busy, DeviceProfile, DeviceStream, Disturber, Pass, Phase, PhaseTotal, Profile, Source, Total,
};

/// What is known of passes, by their serials, asked for span by span. There may be millions, and those of a pass mostly follow
/// each other: so the last answer is kept.
pub(crate) struct BySerial<'a, T> {
    all: &'a HashMap<u32, T>,
    last: Option<(u32, Option<T>)>,
}

impl<'a, T: Copy> BySerial<'a, T> {
    pub(crate) const fn new(all: &'a HashMap<u32, T>) -> Self {
        Self { all, last: None }
    }

    pub(crate) fn get(&mut self, serial: u32) -> Option<T> {
        match self.last {
            Some((last, found)) if last == serial => found,
            _ => {
                let found = self.all.get(&serial).copied();
                self.last = Some((serial, found));
                found
            }
        }
    }
}

/// Whether a profile is of a device by itself, see [`Profile::whole_device`]: its unattributed time is gaps, and its
/// ceilings are the device's.
pub(crate) fn is_of_device(profile: &Profile) -> bool {
    // Passes of which only layers, or the whole, were timed have no bricks.
    let is_without_bricks = profile.totals.is_empty() && !profile.grains.is_empty();
    let is_of_device = |total: &Total| total.source == Source::Device;
    is_without_bricks || !profile.totals.is_empty() && profile.totals.iter().all(is_of_device)
}

/// A profile without the passes that were [kept](Profile::kept) where not all were: those are the slow ones and a sample that
/// is none of all of them by itself, so no mean, median or slope of theirs is the run's. Its sums are.
pub(crate) fn without_kept(profile: &Profile) -> Cow<'_, Profile> {
    if profile.kept.is_none() {
        return Cow::Borrowed(profile);
    }
    let (passes, spans, dependencies) = (Vec::new(), Vec::new(), Vec::new());
    Cow::Owned(Profile { passes, spans, dependencies, ..profile.clone() })
}

/// The passes of a phase in which bricks have times. On a device the others may have been timed by layers, or as a whole:
/// their bricks state no work.
pub(crate) fn with_bricks(profile: &Profile, total: &PhaseTotal) -> PhaseTotal {
    // Their sums, also of passes that were only summed.
    if let Some(parts) = profile.device_parts(total.phase) {
        if parts.fine_passes == 0 || parts.fine_passes >= total.passes {
            return *total;
        }
        let fine =
            profile.passes.iter().filter(|of| of.phase == total.phase && of.attributed_ns > 0);
        let (n, tokens) =
            fine.fold((0, 0), |(n, sum), of| (n + 1, u64::saturating_add(sum, of.tokens)));
        return PhaseTotal {
            passes: parts.fine_passes,
            // Nobody counted those of passes that were only summed.
            tokens: if n == parts.fine_passes { tokens } else { 0 },
            wall_ns: parts.fine_wall_ns,
            attributed_ns: parts.fine_wall_ns.saturating_sub(parts.fine_gaps_ns),
            unattributed_ns: parts.fine_gaps_ns,
            ..*total
        };
    }
    let of_phase = |pass: &&Pass| pass.phase == total.phase && !pass.is_left_out;
    let passes = || profile.passes.iter().filter(of_phase);
    let is_without = |pass: &Pass| pass.attributed_ns == 0;
    if !is_of_device(profile)
        || passes().count() as u64 != total.passes
        || !passes().any(is_without)
    {
        return *total;
    }
    let none = PhaseTotal { passes: 0, tokens: 0, wall_ns: 0, ..*total };
    let without = passes().filter(|pass| is_without(pass)).fold(none, |sum, pass| PhaseTotal {
        passes: sum.passes + 1,
        tokens: sum.tokens.saturating_add(pass.tokens),
        wall_ns: sum.wall_ns.saturating_add(pass.wall_ns),
        ..sum
    });
    if without.passes == total.passes {
        return *total;
    }
    // Where each span counts as its brick's median, the wall isn't that of the passes.
    PhaseTotal {
        passes: total.passes - without.passes,
        tokens: total.tokens.saturating_sub(without.tokens),
        wall_ns: total.wall_ns.saturating_sub(without.wall_ns),
        unattributed_ns: total.unattributed_ns.saturating_sub(without.wall_ns),
        ..*total
    }
}

/// Who disturbed a pass, and how: on the first screen and in findings.
pub(crate) const fn did(by: Disturber) -> &'static str {
    match by {
        Disturber::Others => "other programs took the CPU",
        Disturber::OwnThreads => "threads shared a CPU",
        Disturber::Quota => "the CPU quota stopped threads",
        Disturber::Hypervisor => "the hypervisor took the CPU",
        Disturber::Unknown => "threads waited for a CPU",
    }
}

/// How busy a device with several streams was, if that is known of all of its passes.
pub(crate) fn all_streams(device: &DeviceProfile, phase: Phase) -> Option<Busy> {
    let of_phase = |stream: &DeviceStream| {
        stream.phases.iter().find(|of| of.phase == phase).map_or(0, |of| of.passes)
    };
    let passes = device.streams.iter().map(of_phase).max().unwrap_or(0);
    let several = device.streams.len() > 1;
    device.busy(Some(phase)).ok().filter(|busy| several && busy.passes >= passes)
}

/// What shares of what a device did are of, in the sentence and the table of the first screen: the time from its first kernel
/// to its last; where a file's device did nothing for more than half of that, the time in which something ran, since all
/// shares of the other were near 0. The tables of the report have the gaps as a row, and the whole as another: there all
/// shares are of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole {
    span_ns: u64,
    idle_ns: u64,
}

impl Whole {
    /// Of all passes of a phase. `None` if the device has none.
    pub(crate) fn of(device: &DeviceProfile, phase: Phase) -> Option<Self> {
        if let Some(busy) = all_streams(device, phase) {
            return Some(Self { span_ns: busy.span_ns, idle_ns: busy.idle_ns });
        }
        let of_phase = |stream: &DeviceStream| {
            stream
                .phases
                .iter()
                .find(|of| of.phase == phase)
                .map(|of| (of.wall_ns, of.unattributed_ns))
        };
        let longest = device.streams.iter().filter_map(of_phase).max()?;
        // What other streams did meanwhile isn't known.
        let idle_ns = if device.streams.len() == 1 { longest.1 } else { 0 };
        Some(Self { span_ns: longest.0, idle_ns })
    }

    /// Whether shares are of the time in which something ran.
    pub(crate) const fn is_busy_time(self) -> bool {
        self.idle_ns > self.span_ns / 2
    }

    /// How long it is.
    pub(crate) const fn ns(self) -> u64 {
        if self.is_busy_time() { self.span_ns.saturating_sub(self.idle_ns) } else { self.span_ns }
    }
}

/// Whether a pass comes after another one in the same text. Files of servers have tokens and no positions: there the next one
/// is.
pub(crate) fn is_next(a: &Pass, b: &Pass) -> bool {
    b.position == a.position.saturating_add(a.tokens) || (a.position, b.position) == (0, 0)
}
