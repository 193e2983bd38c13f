//! Who was in the passes of an interval, and with how many tokens. A pass that several requests share is divided among none of
//! them: it is of each for as long as it ran.

use std::cmp::Reverse;
use std::collections::HashMap;

use brickscope_profile::PartKind;

use super::{Interval, Piece, Requests};

/// A request, and what the passes of some time processed of it. The tokens of a pass are of each time that it touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPasses {
    /// The request: an index into [`Profile::requests`](brickscope_profile::Profile::requests), or one beyond them where nobody
    /// knows whose tokens these were.
    pub request: u32,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens that it decoded.
    pub decode_tokens: u64,
    /// How long passes with it ran in that time, in nanoseconds.
    pub ns: u64,
}

impl Requests<'_> {
    /// The others in the passes of an interval, once its request was admitted: first those whose prompts were processed, of
    /// these first those that were there longest, with the most tokens.
    ///
    /// # Panics
    ///
    /// If it is of a request that isn't there.
    #[must_use]
    pub fn beside(&self, interval: &Interval) -> Vec<InPasses> {
        let from = self.after_queue(interval);
        let mut found = self.in_passes(interval.request, from, interval.to_ns);
        found.sort_unstable_by_key(|of| {
            let of_prompt = of.prompt_tokens > 0;
            (Reverse((of_prompt, of.ns, of.prompt_tokens, of.decode_tokens)), of.request)
        });
        found
    }

    /// The others in the passes that ran while the request of an interval was in the queue, first those that were there longest.
    ///
    /// # Panics
    ///
    /// If it is of a request that isn't there.
    #[must_use]
    pub fn while_queued(&self, interval: &Interval) -> Vec<InPasses> {
        let queue_ns = interval.of(Piece::Queue);
        if queue_ns == 0 {
            return Vec::new();
        }
        let admitted = self.after_queue(interval).min(interval.to_ns);
        let from = admitted.saturating_sub(queue_ns);
        let mut found = self.in_passes(interval.request, from, admitted);
        found.sort_unstable_by_key(|of| {
            (Reverse((of.ns, of.prompt_tokens, of.decode_tokens)), of.request)
        });
        found
    }

    /// Tokens of its own prompt that the own passes of an interval processed, by the [`Piece`] that these passes are.
    ///
    /// # Panics
    ///
    /// If it is of a request that isn't there.
    #[must_use]
    pub fn own_prompt(&self, interval: &Interval) -> [u64; Piece::ALL.len()] {
        let mut found = [0_u64; Piece::ALL.len()];
        for pass in self.overlapping(self.after_queue(interval), interval.to_ns) {
            let [from, to] = pass.parts;
            let sum = &mut found[self.piece_of(pass, interval.request) as usize];
            for &(request, kind, tokens) in &self.parts[from..to] {
                if request == interval.request && kind == PartKind::Prompt {
                    *sum = sum.saturating_add(tokens);
                }
            }
        }
        found
    }

    /// The prompts of others that were processed in an interval, each with its tokens.
    pub(crate) fn prompts_of_others(&self, interval: &Interval) -> Vec<(u32, u64)> {
        let mut found: HashMap<u32, u64> = HashMap::new();
        let passes = self.overlapping(self.after_queue(interval), interval.to_ns);
        // Most passes have none, and are of many.
        for pass in passes.filter(|pass| pass.prompts > 0) {
            for &(request, kind, tokens) in &self.parts[pass.parts[0]..pass.parts[1]] {
                if kind == PartKind::Prompt && request != interval.request {
                    let sum = found.entry(request).or_default();
                    *sum = sum.saturating_add(tokens);
                }
            }
        }
        found.into_iter().collect()
    }

    /// The requests, but for one, in the passes of a time.
    fn in_passes(&self, but: u32, from_ns: u64, to_ns: u64) -> Vec<InPasses> {
        // With each, the last pass whose time it has: one may have several parts of it.
        let mut found: HashMap<u32, (InPasses, Option<usize>)> = HashMap::new();
        for pass in self.overlapping(from_ns, to_ns) {
            let ns = pass.end_ns.min(to_ns).saturating_sub(pass.start_ns.max(from_ns));
            let [from, to] = pass.parts;
            let others = self.parts[from..to].iter().filter(|(request, ..)| *request != but);
            for &(request, kind, tokens) in others {
                let none = InPasses { request, prompt_tokens: 0, decode_tokens: 0, ns: 0 };
                let (of, last) = found.entry(request).or_insert((none, None));
                if *last != Some(pass.nth) {
                    *last = Some(pass.nth);
                    of.ns = of.ns.saturating_add(ns);
                }
                let sum = match kind {
                    PartKind::Prompt => &mut of.prompt_tokens,
                    PartKind::Decode => &mut of.decode_tokens,
                };
                *sum = sum.saturating_add(tokens);
            }
        }
        found.into_values().map(|(of, _)| of).collect()
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Part, Pass, PassPart, Phase, Profile, Request};

    use super::*;

    fn in_passes(request: u32, prompt_tokens: u64, decode_tokens: u64, ns: u64) -> InPasses {
        InPasses { request, prompt_tokens, decode_tokens, ns }
    }

    #[test]
    fn a_shared_pass_is_of_each_that_was_in_it_and_the_queue_is_told_apart() {
        let mut profile = Profile::empty(ClockInfo::default());
        let request = |admitted_ns, tokens_ns: &[u64]| Request {
            admitted_ns: Some(admitted_ns),
            tokens_ns: tokens_ns.to_vec(),
            ..Request::default()
        };
        profile.requests = vec![request(30, &[60, 90]), request(0, &[]), request(0, &[])];
        for (serial, start_ns) in [(0, 0), (1, 10), (2, 30), (3, 60)] {
            let wall_ns = if serial == 0 { 10 } else { 20 };
            profile.passes.push(Pass {
                serial,
                phase: Phase::Decode,
                lane: 0,
                tokens: 1,
                position: 0,
                start_ns,
                wall_ns,
                attributed_ns: 0,
                unattributed_ns: wall_ns,
                disturbance: None,
                is_left_out: false,
            });
        }
        let parts = [
            (0, Part::prompt(2, 70, 0)),
            (1, Part::decode(1, 4)),
            (2, Part::prompt(0, 12, 0)),
            (2, Part::decode(2, 70)),
            (3, Part::decode(0, 12)),
            (3, Part::decode(2, 71)),
            // Two parts of one in a pass, which ran once.
            (3, Part::prompt(1, 5, 5)),
            (3, Part::prompt(1, 6, 10)),
            (3, Part::decode(Part::NOBODY, 1)),
        ];
        profile.parts.extend(parts.map(|(pass, part)| PassPart { pass, part }));
        let requests = Requests::of(&profile);
        let intervals: Vec<Interval> = requests.intervals(0).collect();
        let [first, further] = &intervals[..] else { panic!("{intervals:?}") };
        assert_eq!(first.of(Piece::Queue), 30);
        assert_eq!(requests.while_queued(first), [in_passes(1, 0, 1, 20), in_passes(2, 70, 0, 10)]);
        assert_eq!(requests.beside(first), [in_passes(2, 0, 1, 20)]);
        let beside = [(1, 11, 0, 20), (2, 0, 1, 20), (Part::NOBODY, 0, 1, 20)];
        let beside = beside.map(|(of, prompt, decode, ns)| in_passes(of, prompt, decode, ns));
        assert_eq!(requests.beside(further), beside);
        assert!(requests.while_queued(further).is_empty());
        let own = requests.own_prompt(first);
        assert_eq!((own[Piece::OwnBesideDecode as usize], own.iter().sum::<u64>()), (12, 12));
        assert_eq!(requests.own_prompt(further).iter().sum::<u64>(), 0);
    }
}
