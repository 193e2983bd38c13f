//! Which passes warm up, of those that are summed one by one: the same that are left out where all are known, as far as a pass
//! can wait until that is decided.
//!
//! A pass in which a graph was described is left out if there is another one of its phase and as many tokens, so the first one
//! of its kind waits for that. So do the short passes at the begin, by which a server tries itself, until a text follows.

use std::collections::{BTreeMap, BTreeSet};

use brickscope::Phase;

/// How many short passes at the begin are taken for no text.
const MOST_TRIES: usize = 4;
/// The most kinds of passes that are told apart.
const MOST_KINDS: usize = 1 << 14;

/// What a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Is {
    /// It counts.
    Counted,
    /// It counts, though its graph was described in it, and nobody could wait for another one.
    Described,
    /// Its graph was described in it.
    WarmUp,
    /// The program warms up by it.
    OwnWarmUp,
}

/// What tells whether a pass warms up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Its number.
    pub(super) serial: u64,
    pub(super) phase: Phase,
    pub(super) tokens: u64,
    pub(super) position: Option<u64>,
    /// Whether a graph was described in it.
    pub(super) is_described: bool,
}

/// Passes of one phase and as many tokens.
#[derive(Debug, Clone, Default)]
struct Kind {
    /// Whether there is one in which no graph was described.
    has_rest: bool,
    /// Whether the first one in which one was is decided, and how.
    first: Option<Is>,
    /// Those that wait.
    waiting: BTreeSet<u64>,
}

/// Judges one pass after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Judge {
    kinds: BTreeMap<(Phase, u64), Kind>,
    /// The kinds of those that wait.
    waiting: BTreeMap<u64, (Phase, u64)>,
    /// The short passes at the begin, as long as no text followed.
    tries: Vec<Seen>,
    has_begun: bool,
}

impl Judge {
    /// Judges a pass, and those that waited for it.
    pub(super) fn add(&mut self, seen: Seen, judged: &mut Vec<(u64, Is)>) {
        let is_at_begin = seen.position == Some(0);
        let mut was_none = None;
        if !self.has_begun {
            // A try is taken out of the cache, so that what follows is at its begin, too.
            was_none = if is_at_begin { None } else { self.tries.pop() };
            let has_room = self.tries.len() < MOST_TRIES;
            if was_none.is_none() && is_at_begin && seen.tokens <= 2 && has_room {
                self.tries.push(seen);
                return;
            }
            self.has_begun = true;
        }
        if seen.tokens > 2 || !is_at_begin {
            judged.extend(self.tries.drain(..).map(|seen| (seen.serial, Is::OwnWarmUp)));
        }
        for seen in was_none.into_iter().chain([seen]) {
            self.add_to_kind(seen, judged);
        }
    }

    fn add_to_kind(&mut self, seen: Seen, judged: &mut Vec<(u64, Is)>) {
        let Seen { serial, phase, tokens, is_described, .. } = seen;
        let key = (phase, tokens);
        if self.kinds.len() >= MOST_KINDS && !self.kinds.contains_key(&key) {
            judged.push((serial, if is_described { Is::Described } else { Is::Counted }));
            return;
        }
        let kind = self.kinds.entry(key).or_default();
        if !is_described {
            kind.has_rest = true;
            for serial in std::mem::take(&mut kind.waiting) {
                self.waiting.remove(&serial);
                judged.push((serial, Is::WarmUp));
            }
            judged.push((serial, Is::Counted));
            return;
        }
        if kind.has_rest || kind.first == Some(Is::Described) {
            // Instead of the first one, which counts.
            kind.first = Some(Is::WarmUp);
            judged.push((serial, Is::WarmUp));
            return;
        }
        if kind.first.is_none()
            && let Some(first) = kind.waiting.pop_first()
        {
            kind.first = Some(Is::WarmUp);
            self.waiting.remove(&first);
            judged.push((first, Is::WarmUp));
        }
        kind.waiting.insert(serial);
        self.waiting.insert(serial, key);
    }

    /// The one that waits longest waits no more: it counts.
    pub(super) fn give_up(&mut self, judged: &mut Vec<(u64, Is)>) {
        let Some((serial, key)) = self.waiting.pop_first() else { return };
        if let Some(kind) = self.kinds.get_mut(&key) {
            kind.waiting.remove(&serial);
            kind.first.get_or_insert(Is::Described);
        }
        judged.push((serial, Is::Described));
    }

    /// Nothing follows.
    pub(super) fn finish(&mut self, judged: &mut Vec<(u64, Is)>) {
        // Where no text follows, they are what was asked for.
        for seen in std::mem::take(&mut self.tries) {
            self.add_to_kind(seen, judged);
        }
        self.kinds.clear();
        let waiting = std::mem::take(&mut self.waiting);
        judged.extend(waiting.into_keys().map(|serial| (serial, Is::Counted)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of passes: their tokens, their positions, and whether their graphs were described.
    fn judged(all: &[(u64, u64, bool)]) -> Vec<Is> {
        let mut judge = Judge::default();
        let mut judged = Vec::new();
        for (serial, &(tokens, position, is_described)) in (0..).zip(all) {
            let phase = if tokens == 1 { Phase::Decode } else { Phase::Prefill };
            let position = Some(position);
            judge.add(Seen { serial, phase, tokens, position, is_described }, &mut judged);
        }
        judge.finish(&mut judged);
        judged.sort_by_key(|(serial, _)| *serial);
        let serials: Vec<u64> = judged.iter().map(|(serial, _)| *serial).collect();
        assert_eq!(serials, (0..all.len() as u64).collect::<Vec<_>>(), "each once");
        judged.into_iter().map(|(_, is)| is).collect()
    }

    #[test]
    fn the_first_of_each_kind_is_left_out_but_for_the_only_one() {
        use Is::{Counted, WarmUp};
        let prompts = [(40, 0, true), (1, 40, true), (1, 41, false), (40, 0, false), (9, 0, true)];
        assert_eq!(judged(&prompts), [WarmUp, WarmUp, Counted, Counted, Counted]);
        // All of them described theirs: the first one goes.
        let all = [(40, 0, true), (40, 0, true), (40, 0, true)];
        assert_eq!(judged(&all), [WarmUp, Counted, Counted]);
        // Described behind others.
        assert_eq!(judged(&[(1, 40, false), (1, 41, true)]), [Counted, WarmUp]);
        // And once there is one that isn't, all go.
        let all = [(40, 0, true), (40, 0, true), (40, 0, false)];
        assert_eq!(judged(&all), [WarmUp, WarmUp, Counted]);
    }

    #[test]
    fn what_a_server_tries_before_its_first_text_is_left_out() {
        use Is::{Counted, OwnWarmUp, WarmUp};
        let all = [(2, 0, true), (2, 0, false), (41, 0, true), (1, 41, true), (1, 42, false)];
        assert_eq!(judged(&all), [OwnWarmUp, OwnWarmUp, Counted, WarmUp, Counted]);
        // A text of two tokens is none.
        let text = [(2, 0, true), (1, 2, true), (1, 3, false)];
        assert_eq!(judged(&text), [Counted, WarmUp, Counted]);
        // Where nothing else was asked for, they count.
        assert_eq!(judged(&[(2, 0, true), (2, 0, false)]), [WarmUp, Counted]);
    }

    #[test]
    fn one_that_waits_too_long_counts_and_the_next_goes_instead() {
        let mut judge = Judge::default();
        let mut judged = Vec::new();
        let seen = |serial, is_described| Seen {
            serial,
            phase: Phase::Prefill,
            tokens: 40,
            position: Some(7),
            is_described,
        };
        judge.add(seen(0, true), &mut judged);
        judge.give_up(&mut judged);
        judge.add(seen(1, true), &mut judged);
        judge.add(seen(2, false), &mut judged);
        judge.give_up(&mut judged);
        assert_eq!(judged, [(0, Is::Described), (1, Is::WarmUp), (2, Is::Counted)]);
    }
}
