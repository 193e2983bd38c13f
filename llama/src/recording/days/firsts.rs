//! First tokens that came late, and the passes that ran while they were waited for.
//!
//! A token is known when it was sent, and that may be read before the passes that it waited for, or after. So it waits until a
//! pass is there that ended later; of those before it, the last ones are remembered.

use std::collections::VecDeque;

use super::WAITING;

/// The most first tokens that wait for a pass: a program that sends more without computing waits for none.
const MOST_LATE: usize = 1 << 10;

/// What a late first token waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waited {
    /// The serials of the first and the last pass that ended meanwhile, as far as they are remembered.
    pub(super) passes: Option<[u64; 2]>,
    /// Whether these are all.
    pub(super) are_all: bool,
    /// How long it was waited for.
    pub(super) ns: u64,
}

/// The last passes, and the first tokens of which it isn't known yet which of them they waited for.
#[derive(Debug, Clone, Default)]
pub(super) struct Firsts {
    /// The serial of each, and when it ended, whether it counts or not.
    passes: VecDeque<(u64, u64)>,
    /// When the last of those before them ended.
    gone_ns: Option<u64>,
    /// When they were asked for, and when they were sent.
    late: Vec<[u64; 2]>,
}

impl Firsts {
    /// A pass ended: the one after those that were added before. Returns what is known by it.
    pub(super) fn ended(&mut self, serial: u64, end_ns: u64) -> Vec<Waited> {
        self.passes.push_back((serial, end_ns));
        let known = self.known();
        // The tokens that it isn't known of yet may have waited for as many.
        if self.passes.len() > WAITING {
            let gone_ns = self.passes.pop_front().map(|(_, end_ns)| end_ns);
            self.gone_ns = self.gone_ns.max(gone_ns);
        }
        known
    }

    /// First tokens came late: when they were asked for, and when they were sent. Returns what is known of them already.
    pub(super) fn came(&mut self, late: Vec<[u64; 2]>) -> Vec<Waited> {
        self.late.extend(late);
        let mut known = self.known();
        let too_many = self.late.len().saturating_sub(MOST_LATE);
        let first: Vec<[u64; 2]> = self.late.drain(..too_many).collect();
        known.extend(first.into_iter().map(|of| self.waited(of, None)));
        known
    }

    /// No pass follows. If the recording goes on, the last ones may not be there.
    pub(super) fn end(&mut self, goes_on: bool) -> Vec<Waited> {
        let late = std::mem::take(&mut self.late);
        let waited = late.into_iter().map(|of| self.waited(of, None));
        waited.map(|of| Waited { are_all: of.are_all && !goes_on, ..of }).collect()
    }

    /// Those after which a pass ended.
    fn known(&mut self) -> Vec<Waited> {
        let mut known = Vec::new();
        for of in std::mem::take(&mut self.late) {
            let [_, sent_ns] = of;
            match self.passes.iter().find(|(_, end_ns)| *end_ns > sent_ns) {
                Some((next, _)) => known.push(self.waited(of, Some(*next))),
                None => self.late.push(of),
            }
        }
        known
    }

    /// What one waited for before the pass `next`.
    fn waited(&self, [asked_ns, sent_ns]: [u64; 2], next: Option<u64>) -> Waited {
        let meanwhile = |(serial, end_ns): &&(u64, u64)| {
            *end_ns > asked_ns && next.is_none_or(|next| *serial < next)
        };
        let mut serials = self.passes.iter().filter(meanwhile).map(|(serial, _)| *serial);
        let passes = serials.next().map(|first| [first, serials.next_back().unwrap_or(first)]);
        let are_all = self.gone_ns.is_none_or(|gone_ns| gone_ns <= asked_ns);
        Waited { passes, are_all, ns: sent_ns.saturating_sub(asked_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes that end each ten nanoseconds, from 10 on.
    fn after(passes: u64) -> Firsts {
        let mut firsts = Firsts::default();
        for serial in 0..passes {
            assert!(firsts.ended(serial, (serial + 1) * 10).is_empty());
        }
        firsts
    }

    fn waited(passes: [u64; 2], ns: u64) -> Waited {
        Waited { passes: Some(passes), are_all: true, ns }
    }

    #[test]
    fn a_first_token_waits_for_the_passes_that_end_before_it_is_sent() {
        // It is read before the pass that follows, and after it.
        let mut firsts = after(4);
        assert!(firsts.came(vec![[15, 41]]).is_empty());
        assert_eq!(firsts.ended(4, 50), [waited([1, 3], 26)]);
        let mut firsts = after(9);
        assert_eq!(firsts.came(vec![[15, 41], [30, 45]]), [waited([1, 3], 26), waited([3, 3], 15)]);
        assert!(firsts.end(false).is_empty());
        // Before the passes that it waited for.
        let mut firsts = after(1);
        assert!(firsts.came(vec![[15, 41]]).is_empty());
        for serial in 1..4 {
            assert!(firsts.ended(serial, (serial + 1) * 10).is_empty());
        }
        assert_eq!(firsts.ended(4, 50), [waited([1, 3], 26)]);
    }

    #[test]
    fn after_the_last_pass_all_is_known_if_nothing_goes_on() {
        let mut firsts = after(4);
        assert!(firsts.came(vec![[15, 41]]).is_empty());
        let mut now = firsts.clone();
        assert_eq!(now.end(true), [Waited { are_all: false, ..waited([1, 3], 26) }]);
        assert_eq!(firsts.end(false), [waited([1, 3], 26)]);
        assert!(firsts.end(false).is_empty());
    }

    #[test]
    fn of_more_passes_than_are_remembered_the_last_ones_are_known() {
        let most = WAITING as u64;
        let mut firsts = after(most + 2);
        let sent = (most + 2) * 10 + 1;
        assert!(firsts.came(vec![[20, sent], [19, sent]]).is_empty());
        let [all, some] = firsts.ended(most + 2, sent + 9)[..] else { panic!("both are known") };
        assert_eq!(all, waited([2, most + 1], sent - 20));
        assert_eq!(some, Waited { are_all: false, ..waited([2, most + 1], sent - 19) });
    }

    /// As of an answer that needs no pass, and of a program that answers without any.
    #[test]
    fn a_first_token_that_no_pass_was_for_has_none_and_waits_for_none() {
        let mut firsts = after(4);
        assert!(firsts.came(vec![[41, 43]]).is_empty());
        let none = Waited { passes: None, are_all: true, ns: 2 };
        assert_eq!(firsts.ended(4, 50), [none]);
        let mut firsts = Firsts::default();
        let more = 3;
        let known = firsts.came(vec![[41, 43]; MOST_LATE + more]);
        assert_eq!(known, vec![none; more]);
        assert_eq!(firsts.end(false).len(), MOST_LATE);
    }
}
