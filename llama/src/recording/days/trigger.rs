//! A condition by which passes are kept whole, whatever becomes of the others.

use std::collections::{BTreeMap, VecDeque};

use brickscope::keep::{Asked, Came, Chosen, Held, Keeper, Offer, Timed, When};

use super::WAITING;
use super::firsts::{Firsts, Waited};
use super::items::Item;
use crate::recording::part::{AllFired, Id};

/// A pass that ended: when a token was waited for may yet be found.
#[derive(Debug, Clone, Copy)]
struct End {
    serial: u64,
    end_ns: u64,
    /// Whether it can be kept, and shows the program as it is without us.
    counts: bool,
}

/// A pass, as the condition is asked about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended<'p> {
    pub(super) serial: u64,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// The number of its context. `None` if the pass doesn't count, or a graph was described in it, which took time.
    pub(super) of: Option<u32>,
    /// The tokens that came at its end: when the one before had come, and how long ago that was.
    pub(super) tokens: &'p [(u64, u64)],
}

/// Looks at passes as they end, and holds those that the condition is true of.
#[derive(Debug, Clone)]
pub(super) struct Trigger {
    /// The last passes, at most as many as wait to be kept.
    ends: VecDeque<End>,
    /// When the last of the passes before those ended.
    gone_ns: Option<u64>,
    /// Of a condition on first tokens: those, and the passes before they were judged.
    firsts: Firsts,
    held: Held<Item>,
}

impl Trigger {
    /// At most so many bytes are held.
    pub(super) fn new(when: When, bytes: usize) -> Self {
        let (ends, firsts) = (VecDeque::new(), Firsts::default());
        Self { ends, gone_ns: None, firsts, held: Held::new(when, bytes) }
    }

    /// A pass ended, and is yet to be judged: the one after those before.
    pub(super) fn ran(&mut self, serial: u64, end_ns: u64) {
        if self.held.when().timed() == Timed::FirstToken {
            let known = self.firsts.ended(serial, end_ns);
            self.waited(known);
        }
    }

    /// First tokens came late: when they were asked for, and when they were sent.
    pub(super) fn came_late(&mut self, late: Vec<[u64; 2]>) {
        if !late.is_empty() {
            let known = self.firsts.came(late);
            self.waited(known);
        }
    }

    /// No pass follows; if the recording goes on, only of those that are known so far. What waits is yet to be
    /// [kept](Self::keep).
    pub(super) fn end(&mut self, goes_on: bool) {
        let known = self.firsts.end(goes_on);
        self.waited(known);
    }

    /// Holds what late first tokens waited for.
    fn waited(&mut self, known: Vec<Waited>) {
        // They are of the program, whichever context the passes are of.
        let of = 0;
        for Waited { passes, are_all, ns: slow_ns } in known {
            let count = u64::from(are_all && passes.is_some());
            if count == 0 {
                self.held.came_apart(of, 1);
            }
            // What is left of the passes of such a one is kept, too.
            if let Some([first, last]) = passes {
                self.held.came(Came { of, first, last, slow_ns, count });
            }
        }
    }

    /// A pass ended. It and those that wait with it are yet to be [kept](Self::keep).
    pub(super) fn ended(&mut self, pass: &Ended<'_>) {
        let &Ended { serial, begin_ns, end_ns, of, tokens } = pass;
        self.ends.push_back(End { serial, end_ns, counts: of.is_some() });
        if self.ends.len() > WAITING {
            let gone_ns = self.ends.pop_front().map(|end| end.end_ns);
            self.gone_ns = self.gone_ns.max(gone_ns);
        }
        let Some(of) = of else { return };
        let when = self.held.when();
        let mut came = Came { of, first: serial, last: serial, slow_ns: 0, count: 0 };
        match when.timed() {
            Timed::Pass => {
                let ns = end_ns.saturating_sub(begin_ns);
                if ns > when.over_ns() {
                    (came.slow_ns, came.count) = (ns, 1);
                }
            }
            Timed::Token => {
                for &(from_ns, ns) in tokens.iter().filter(|(_, ns)| *ns > when.over_ns()) {
                    let Some(first) = self.first_after(from_ns, serial) else {
                        self.held.came_apart(of, 1);
                        continue;
                    };
                    came.first = came.first.min(first);
                    came.slow_ns = came.slow_ns.max(ns);
                    came.count += 1;
                }
            }
            // That isn't known of a pass.
            Timed::FirstToken => {}
        }
        if came.count > 0 {
            self.held.came(came);
        }
    }

    /// The serial of the first pass that ended later than this. `None` if not all can be kept from it to the last one.
    fn first_after(&self, from_ns: u64, last: u64) -> Option<u64> {
        if self.gone_ns.is_some_and(|gone_ns| gone_ns > from_ns) {
            return None;
        }
        let after = self.ends.iter().filter(|end| end.end_ns > from_ns);
        let first = after.map(|end| end.serial).min()?;
        let counts = |end: &&End| end.counts && (first..=last).contains(&end.serial);
        let there = self.ends.iter().filter(counts).count() as u64;
        (there == last.saturating_sub(first).saturating_add(1)).then_some(first)
    }

    /// Holds a pass that waits no more, or offers it, or others that have no room any more, to `keeper`.
    pub(super) fn keep(&mut self, offer: Offer, item: Item, keeper: &mut Keeper<Item>) {
        self.held.add(offer, item, |offer, item| keeper.add(offer, item));
    }

    /// Adds what is held to what was kept of the others. `ids` are those of the numbers of contexts, `asked` the requests.
    pub(super) fn finish(
        self,
        (ids, asked): (&[Id], Asked),
        kept: &mut Vec<(Offer, Item)>,
        chosen: &mut Vec<Chosen>,
    ) -> AllFired {
        let when = self.held.when();
        let mut of = BTreeMap::new();
        for (nth, fired) in self.held.finish(kept, chosen) {
            if let Some(id) = usize::try_from(nth).ok().and_then(|nth| ids.get(nth)) {
                of.insert(*id, fired);
            }
        }
        AllFired { when, of, asked }
    }
}

#[cfg(test)]
mod tests {
    use brickscope::Phase;

    use super::*;

    const MS: u64 = 1_000_000;

    fn of(when: &str) -> Trigger {
        Trigger::new(when.parse().expect("a condition"), 1 << 20)
    }

    /// How often it came true, of passes that end each millisecond. Nothing of them is kept.
    fn told(trigger: Trigger) -> String {
        let (mut kept, mut chosen) = (Vec::new(), Vec::new());
        let ids = [Id::Context(0)];
        let asked = Asked { requests: 9, first_tokens: 9 };
        trigger.finish((&ids[..], asked), &mut kept, &mut chosen).of(&ids).line()
    }

    fn pass(serial: u64, of: Option<u32>, tokens: &[(u64, u64)]) -> Ended<'_> {
        Ended { serial, begin_ns: serial * MS, end_ns: (serial + 1) * MS, of, tokens }
    }

    #[test]
    fn what_takes_longer_than_the_limit_comes_true() {
        let mut trigger = of("pass>1ms");
        for serial in 0..10 {
            let longer = u64::from(serial % 5 == 4);
            let end_ns = (serial + 1) * MS + longer;
            trigger.ended(&Ended { end_ns, ..pass(serial, Some(0), &[(0, 99 * MS)]) });
        }
        assert_eq!(told(trigger), "2 passes took over 1 ms; 2 are kept whole");
        let mut trigger = of("token>3ms");
        for serial in 0..10 {
            let end = (serial + 1) * MS;
            // Two sequences: of one each token, of the other each fifth pass.
            let tokens = [(end - MS, MS), (end.saturating_sub(5 * MS), 5 * MS)];
            let n = if serial % 5 == 4 { 2 } else { 1 };
            trigger.ended(&pass(serial, Some(0), &tokens[..n]));
        }
        assert_eq!(told(trigger), "2 tokens took over 3 ms; 2 are kept whole");
    }

    /// Of what can't be kept whole each is counted: it waited for a pass that doesn't count, or for more than wait.
    #[test]
    fn what_can_not_be_kept_whole_is_counted() {
        let mut trigger = of("token>3ms");
        trigger.ended(&pass(0, Some(0), &[]));
        trigger.ended(&pass(1, None, &[(0, 99 * MS)]));
        trigger.ended(&pass(2, Some(0), &[(MS, 4 * MS)]));
        // The pass that doesn't count was over.
        trigger.ended(&pass(3, Some(0), &[(2 * MS, 4 * MS)]));
        let left_out = "1 waited for too many passes, or for one left out";
        let said = format!("2 tokens took over 3 ms; 1 is kept whole, {left_out}");
        assert_eq!(told(trigger.clone()), said);
        let most = WAITING as u64;
        (4..4 + most).for_each(|serial| trigger.ended(&pass(serial, Some(0), &[])));
        let last = 4 + most;
        let from = |passes: u64| (last + 1 - passes) * MS;
        let tokens = [most, most + 1].map(|passes| (from(passes), passes * MS));
        trigger.ended(&pass(last, Some(0), &tokens));
        let said = told(trigger);
        let begin = "4 tokens took over 3 ms; 2 are kept whole, 2 waited for too many";
        assert!(said.starts_with(begin), "{said}");
    }

    #[test]
    fn passes_that_nothing_is_true_of_go_to_the_keeper() {
        let mut trigger = of("token>1s");
        let mut keeper = Keeper::new(brickscope::keep::Limits::default());
        let phase = Phase::Decode;
        for serial in 0..10 {
            let offer = Offer { serial, of: 0, phase, tokens: 1, slow_ns: 1, bytes: 100 };
            trigger.ended(&pass(serial, Some(0), &[(0, serial * MS)]));
            trigger.keep(offer, Item::default(), &mut keeper);
        }
        assert_eq!(keeper.offered(), 10);
        assert_eq!(told(trigger), "no token took over 1 s");
    }

    /// Requests wait for passes of all kinds, so that one that doesn't count is missed.
    #[test]
    fn first_tokens_that_came_late_are_whole_if_each_pass_is_kept_that_they_waited_for() {
        let mut trigger = of("ttft>3ms");
        let mut keeper = Keeper::new(brickscope::keep::Limits::default());
        // Sent after the passes 3 and 13 ended, and after the last one.
        trigger.came_late(vec![[0, 4 * MS + 1], [10 * MS, 14 * MS + 1], [16 * MS, 20 * MS + 1]]);
        for serial in 0..20 {
            trigger.ran(serial, (serial + 1) * MS);
            let counts = serial != 12;
            trigger.ended(&pass(serial, counts.then_some(0), &[(0, 99 * MS)]));
        }
        let mut now = trigger.clone();
        for (trigger, goes_on) in [(&mut trigger, false), (&mut now, true)] {
            trigger.end(goes_on);
            for serial in (0..20).filter(|serial| *serial != 12) {
                let phase = Phase::Decode;
                let offer = Offer { serial, of: 0, phase, tokens: 1, slow_ns: 1, bytes: 100 };
                trigger.keep(offer, Item::default(), &mut keeper);
            }
        }
        let missed = |n| format!("{n} waited for too many passes, or for one left out");
        let told_of = |n, whole: &str| format!("{n} first tokens took over 3 ms; {whole}");
        assert_eq!(told(trigger), told_of(3, &format!("2 are kept whole, {}", missed(1))));
        assert_eq!(told(now), told_of(3, &format!("1 is kept whole, {}", missed(2))));
        // Of the first one 0 to 5, of the second one 8 to 15 without 12, of the third one 14 to 19.
        assert_eq!(keeper.offered(), 2 * (20 - 1 - 6 - 7 - 4));
    }
}
