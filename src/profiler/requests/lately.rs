//! The newest requests, for who watches: as much as is copied soon, however long an engine has run.

use brickscope_profile::{ClockInfo, Lately, Part, PassPart, Profile};

use super::{Copied, RequestRecorder, Requests};
use crate::collect;
use crate::sync::lock_unmodelled as lock;

/// The most requests that are looked at.
const MOST_LOOKED_AT: usize = 1 << 16;
/// The most that have ended, tokens and parts of passes that are copied.
const MOST_ENDED: usize = 1 << 13;
const MOST_TOKENS: usize = 1 << 17;
const MOST_PARTS: usize = 1 << 17;

impl RequestRecorder<'_> {
    /// The newest requests, with the passes that ran meanwhile: what a live view needs. `None` if there was no request. What it
    /// copies, and so what it costs, has a limit, which is told where it was reached.
    #[must_use]
    pub fn lately(self) -> Option<Lately> {
        // Before the passes: else a token could be there without the pass that made it.
        let Newest { copied, left_out, cut } = lock(&self.0.requests).newest();
        let since = copied.requests.iter().map(|request| request.arrived_ns).min()?;
        let mut profile = Profile::empty(ClockInfo::default());
        let until = collect::passes_since(&mut profile, &self.0.recorder, since);
        copied.fill(&mut profile);
        let is_without_parts = |serial: u32| cut.is_some_and(|cut| serial <= cut);
        let without = profile.passes.iter().filter(|pass| is_without_parts(pass.serial));
        let from = without.map(|pass| pass.start_ns.saturating_add(pass.wall_ns)).max();
        Some(Lately { profile, known_ns: from.unwrap_or(0)..until, left_out })
    }
}

/// A copy of the newest requests.
struct Newest {
    copied: Copied,
    left_out: u64,
    /// Passes with serials up to this one have parts that were not copied.
    cut: Option<u32>,
}

impl Requests {
    /// All that go on, and the newest that have ended.
    fn newest(&self) -> Newest {
        let (mut numbers, mut requests) = (Vec::new(), Vec::new());
        let (mut ended, mut tokens) = (0, 0);
        for told in self.told.iter().rev().take(MOST_LOOKED_AT) {
            let request = &told.request;
            let has_ended = request.ended_ns.is_some();
            // From the first one on that has no room, those that have ended are left out.
            tokens += request.tokens_ns.len();
            ended += usize::from(has_ended);
            if !has_ended || (tokens <= MOST_TOKENS && ended <= MOST_ENDED) {
                numbers.push(told.number);
                requests.push(request.clone());
            }
        }
        numbers.reverse();
        requests.reverse();
        let left_out = (self.told.len() - requests.len()) as u64;
        let begin = self.parts.len().saturating_sub(MOST_PARTS);
        let cut = begin.checked_sub(1).map(|before| self.parts[before].pass);
        let known = self.parts[begin..].iter().filter(|of| cut.is_none_or(|cut| of.pass > cut));
        let parts = match left_out {
            0 => known.copied().collect(),
            _ => known.map(|&of| self.without_left_out(of, &numbers)).collect(),
        };
        let copied = Copied { numbers, requests, parts, dropped: self.dropped };
        Newest { copied, left_out, cut }
    }

    /// A part of a request that is left out is for somebody: the pass was for others, too.
    fn without_left_out(&self, of: PassPart, numbers: &[u32]) -> PassPart {
        let number = of.part.request;
        let is_told = || self.told.binary_search_by_key(&number, |told| told.number).is_ok();
        if numbers.binary_search(&number).is_err() && is_told() {
            return PassPart { part: Part { request: Part::NOBODY, ..of.part }, ..of };
        }
        of
    }
}
