//! Devices in other programs' files: the work of some of what they did is known, and only that is held to their limits.

use std::collections::HashMap;

use brickscope_profile::text::percent;
use brickscope_profile::{Absent, NameKind, Phase, PhaseTotal, Profile, Source, Span, Total, Work};
use serde::Serialize;

/// The part of what ran on a device whose work is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Known {
    /// How long it ran.
    pub ns: u64,
    /// How long all ran.
    pub of_ns: u64,
}

impl Known {
    /// Its share: `61.0%`.
    #[must_use]
    pub fn share(&self) -> String {
        percent(self.ns as f64, self.of_ns as f64)
    }
}

/// Whether the work of a span is known: that it moved bytes, or that these are stated at another span of the same operation.
pub(crate) fn is_known(work: &Work) -> bool {
    work.bytes > 0 || (work.flops == 0 && work.elements > 0)
}

/// What is summed of a brick's spans.
#[derive(Default)]
struct Sums {
    count: u64,
    total_ns: u64,
    exclusive_ns: u64,
    flops: u64,
    bytes: u64,
}

impl Sums {
    fn of_span(span: &Span) -> Self {
        Self {
            count: 1,
            total_ns: span.duration_ns,
            exclusive_ns: span.exclusive_ns,
            flops: span.work.flops,
            bytes: span.work.bytes,
        }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        for (sum, of) in [
            (&mut self.total_ns, other.total_ns),
            (&mut self.exclusive_ns, other.exclusive_ns),
            (&mut self.flops, other.flops),
            (&mut self.bytes, other.bytes),
        ] {
            *sum = sum.saturating_add(of);
        }
    }

    /// The sums of a brick, of these spans only. What its bytes are is kept in its own sums, to which spans without bytes add
    /// nothing.
    fn of(self, total: &Total) -> Total {
        let mut total = total.clone();
        total.stats.count = self.count;
        total.stats.total_ns = self.total_ns;
        total.stats.exclusive_ns = self.exclusive_ns;
        total.stats.total_flops = self.flops;
        total.stats.total_bytes = self.bytes;
        total
    }
}

/// What is known of the work of a phase, where only a part of it is, as a profile of that part: its wall time is the sum of
/// its spans. `None` of a profile all of whose work counts.
///
/// A peak that was measured is that of floats, without the units that multiply matrices: products aren't held to it, so they
/// have no FLOPs here.
///
/// # Errors
///
/// If no work is known.
pub(super) fn of(profile: &Profile, phase: Phase) -> Result<Option<(Profile, Known)>, Absent> {
    let Some(ceilings) = profile.ceilings.as_ref().filter(|ceilings| ceilings.of_known_work) else {
        return Ok(None);
    };
    let Some((mut part, known)) = known_part(profile, phase) else {
        return Err(Absent {
            reason: "the file tells the work of nothing that ran there; PyTorch's profiler writes the shapes of products with \
                     record_shapes=True"
                .to_owned(),
        });
    };
    if !ceilings.is_stated() {
        part.totals.iter_mut().for_each(|total| total.stats.total_flops = 0);
    }
    Ok(Some((part, known)))
}

/// The part of a phase whose work is known, in the profile of a device by itself. Its wall time is the sum of its spans.
/// Bricks of which nothing is known stay, without work. `None` if no work is known.
pub(crate) fn known_part(profile: &Profile, phase: Phase) -> Option<(Profile, Known)> {
    let total = profile.phase(phase)?;
    let passes: HashMap<u32, bool> = profile
        .passes
        .iter()
        .filter(|pass| pass.phase == phase)
        .map(|pass| (pass.serial, pass.is_left_out))
        .collect();
    // By the numbers of names: there may be millions of spans.
    let mut by_number: HashMap<(u16, Source), Sums> = HashMap::new();
    let mut known = Known { ns: 0, of_ns: 0 };
    let mut spans = Vec::new();
    for span in &profile.spans {
        let Some(false) = span.pass.and_then(|serial| passes.get(&serial)).copied() else {
            continue;
        };
        let Some(number) = span.name else { continue };
        let name = profile.names.get(usize::from(number));
        if name.is_none_or(|name| name.kind != NameKind::Brick) {
            continue;
        }
        known.of_ns = known.of_ns.saturating_add(span.exclusive_ns);
        if !is_known(&span.work) {
            continue;
        }
        known.ns = known.ns.saturating_add(span.exclusive_ns);
        by_number.entry((number, span.source)).or_default().add(&Sums::of_span(span));
        spans.push(Span { parent: None, ..*span });
    }
    if known.ns == 0 {
        return None;
    }
    let mut sums: HashMap<(&str, Source), Sums> = HashMap::new();
    for ((number, source), of) in by_number {
        let name = profile.names[usize::from(number)].name.as_str();
        sums.entry((name, source)).or_default().add(&of);
    }
    let bricks = profile
        .totals
        .iter()
        .filter(|of| of.phase == Some(phase) && of.kind == NameKind::Brick)
        .map(|of| match sums.remove(&(of.stats.name.as_str(), of.source)) {
            Some(known) => known.of(of),
            // Some of its spans may have FLOPs alone.
            None => {
                let mut unknown = of.clone();
                (unknown.stats.total_flops, unknown.stats.total_bytes) = (0, 0);
                unknown
            }
        });
    let totals = bricks.collect();
    let part =
        PhaseTotal { wall_ns: known.ns, attributed_ns: known.ns, unattributed_ns: 0, ..*total };
    let part = Profile {
        run: profile.run.clone(),
        model: profile.model.clone(),
        ceilings: profile.ceilings.clone(),
        phases: vec![part],
        totals,
        passes: profile.passes.clone(),
        names: profile.names.clone(),
        spans,
        ..Profile::empty(profile.clock.clone())
    };
    Some((part, known))
}
