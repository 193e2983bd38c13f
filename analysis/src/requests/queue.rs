//! Whether a request in the queue waited for a place, and not for the end of the pass that ran.

use std::collections::HashSet;

use super::{Interval, Requests};

impl Requests<'_> {
    /// Whether a whole pass for this many requests or more ran while the one of an interval was in the queue.
    pub(crate) fn was_passed_over(&self, interval: &Interval, full: u64) -> bool {
        let of = &self.profile.requests[interval.request as usize];
        let (begin, end) = (interval.from_ns, interval.to_ns);
        let from = of.received_ns.unwrap_or(begin).clamp(begin, end);
        let to = of.admitted_ns.unwrap_or(from).clamp(from, end);
        self.overlapping(from, to).any(|pass| {
            let parts = &self.parts[pass.parts[0]..pass.parts[1]];
            let of_whom: HashSet<u32> = parts.iter().map(|(request, ..)| *request).collect();
            pass.start_ns >= from && pass.end_ns <= to && of_whom.len() as u64 >= full
        })
    }
}
