//! Whether a request in the queue waited for a place, and not for the end of the pass that ran.

use std::collections::HashSet;

use super::{Interval, OfPass, Requests};

impl Requests<'_> {
    /// When each pass that was for this many requests or more began and ended, in the order of their begins.
    pub(crate) fn passes_for(&self, requests: u64) -> Vec<[u64; 2]> {
        let is_for = |pass: &&OfPass| {
            let parts = &self.parts[pass.parts[0]..pass.parts[1]];
            let of_whom: HashSet<u32> = parts.iter().map(|(request, ..)| *request).collect();
            of_whom.len() as u64 >= requests
        };
        self.passes.iter().filter(is_for).map(|pass| [pass.start_ns, pass.end_ns]).collect()
    }

    /// Whether one of these passes ran from begin to end while the request of an interval was in the queue.
    pub(crate) fn was_passed_over(&self, interval: &Interval, passes: &[[u64; 2]]) -> bool {
        let of = &self.profile.requests[interval.request as usize];
        let (begin, end) = (interval.from_ns, interval.to_ns);
        let from = of.received_ns.unwrap_or(begin).clamp(begin, end);
        let to = of.admitted_ns.unwrap_or(from).clamp(from, end);
        let first = passes.partition_point(|[begin, _]| *begin < from);
        let mut meanwhile = passes[first..].iter().take_while(|[begin, _]| *begin < to);
        meanwhile.any(|[_, end]| *end <= to)
    }
}
