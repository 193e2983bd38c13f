//! The newest requests, for who watches: as much as is copied soon, however long an engine has run.

use brickscope_profile::{ClockInfo, Lately, Part, Profile};

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
    /// copies, and so what it costs, has a limit, which is told where it was reached. Threads that record requests wait for no
    /// more than the copy.
    #[must_use]
    pub fn lately(self) -> Option<Lately> {
        // Before the passes: else a token could be there without the pass that made it.
        let newest = lock(&self.0.requests).newest();
        let Newest { mut copied, lost, left_out, older_than, without, cut } = newest;
        copied.hide(&without, older_than);
        let since = copied.requests.iter().map(|request| request.arrived_ns).min()?;
        let mut profile = Profile::empty(ClockInfo::default());
        let until = collect::passes_since(&mut profile, &self.0.recorder, since);
        copied.fill(&mut profile);
        let is_without_parts = |serial: u32| cut.is_some_and(|cut| serial <= cut);
        let passes = profile.passes.iter().filter(|pass| is_without_parts(pass.serial));
        let from = passes.map(|pass| pass.start_ns.saturating_add(pass.wall_ns)).max();
        Some(Lately { profile, known_ns: from.unwrap_or(0)..until, left_out, lost })
    }
}

/// A copy of the newest requests.
struct Newest {
    copied: Copied,
    /// Which of them have not ended, and are recorded no further.
    lost: Vec<u32>,
    left_out: u64,
    /// Requests with lower numbers were not looked at.
    older_than: Option<u32>,
    /// The numbers of those that were looked at and left out.
    without: Vec<u32>,
    /// Passes with serials up to this one have parts that were not copied.
    cut: Option<u32>,
}

impl Requests {
    /// All that go on, and the newest of the others. Nothing is searched here: the engine waits meanwhile.
    fn newest(&self) -> Newest {
        let (mut numbers, mut requests, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        let (mut others, mut tokens, mut without) = (0, 0, Vec::new());
        for told in self.told.iter().rev().take(MOST_LOOKED_AT) {
            let request = &told.request;
            let goes_on = request.ended_ns.is_none() && !told.is_cut;
            // From the first one on that has no room, those that don't go on are left out.
            tokens += request.tokens_ns.len();
            others += usize::from(!goes_on);
            if goes_on || (tokens <= MOST_TOKENS && others <= MOST_ENDED) {
                numbers.push(told.number);
                requests.push(request.clone());
                lost.push(told.is_cut);
            } else {
                without.push(told.number);
            }
        }
        numbers.reverse();
        requests.reverse();
        without.reverse();
        let lost = lost.iter().rev().zip(0..).filter(|(is_cut, _)| **is_cut);
        let lost = lost.map(|(_, nth)| nth).collect();
        let left_out = (self.told.len() - requests.len()) as u64;
        let not_looked_at = self.told.len().checked_sub(MOST_LOOKED_AT).filter(|&n| n > 0);
        let older_than = not_looked_at.map(|n| self.told[n].number);
        let begin = self.parts.len().saturating_sub(MOST_PARTS);
        let cut = begin.checked_sub(1).map(|before| self.parts[before].pass);
        let known = self.parts[begin..].iter().filter(|of| cut.is_none_or(|cut| of.pass > cut));
        let parts = known.copied().collect();
        let copied = Copied { numbers, requests, parts, dropped: self.dropped };
        Newest { copied, lost, left_out, older_than, without, cut }
    }
}

impl Copied {
    /// A part of a request that is left out is for somebody: the pass was for others, too.
    fn hide(&mut self, without: &[u32], older_than: Option<u32>) {
        if without.is_empty() && older_than.is_none() {
            return;
        }
        let numbers = &self.numbers;
        let is_left_out = |number: u32| {
            without.binary_search(&number).is_ok()
                || (older_than.is_some_and(|oldest| number < oldest)
                    && numbers.binary_search(&number).is_err())
        };
        for of in &mut self.parts {
            if is_left_out(of.part.request) {
                of.part.request = Part::NOBODY;
            }
        }
    }
}
