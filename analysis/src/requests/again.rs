//! Tokens of a request that are computed again: they had lost their place in the KV cache.

use std::collections::HashSet;

use brickscope_profile::{Part, PartKind, PassPart};

use super::{Interval, OfPass, Requests, Until};

/// The passes with a piece of a request's prompt that an earlier one had computed for it: its tokens had lost their place in the
/// KV cache, as those of one that is preempted do.
pub(super) fn computed_again(
    passes: &[OfPass],
    by_pass: &[&PassPart],
    requests: usize,
) -> HashSet<(usize, u32)> {
    // How many tokens of each request had been computed.
    let mut reached = vec![0_u64; requests];
    let mut again = HashSet::new();
    for pass in passes {
        for of in &by_pass[pass.parts[0]..pass.parts[1]] {
            let Part { request, kind, tokens, position, .. } = of.part;
            let Some(reached) = reached.get_mut(request as usize) else { continue };
            if kind == PartKind::Prompt && position < *reached {
                again.insert((pass.nth, request));
            }
            *reached = position.saturating_add(tokens).max(*reached);
        }
    }
    again
}

impl Requests<'_> {
    /// How long passes ran in an interval between tokens that computed tokens of its own request again.
    pub(crate) fn again_ns(&self, interval: &Interval) -> u64 {
        if self.again.is_empty() || !matches!(interval.until, Until::Token(_)) {
            return 0;
        }
        let passes = self.overlapping(interval.from_ns, interval.to_ns);
        let again = passes.filter(|pass| self.again.contains(&(pass.nth, interval.request)));
        let within = again.map(|pass| {
            pass.end_ns.min(interval.to_ns).saturating_sub(pass.start_ns.max(interval.from_ns))
        });
        within.fold(0, u64::saturating_add).min(interval.ns())
    }
}
