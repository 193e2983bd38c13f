//! Passes that are kept whole since something came true in them, and their neighbours.
//!
//! What came is an event: the passes that a token waited for, of which the last one computed it, and [`Held::BESIDE`] passes
//! before and after these. Passes that are in no event are given back at once. When those in one are over their bytes, the
//! event is given up that took least, and with it each pass that is in no other one. Once one was given up, none that took as
//! little is taken: all that took longer are there, whole.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::when::{Fired, Timed, When};
use super::{Chosen, Entry, Keeper, Offer};

/// Tokens that came at the end of a pass, a pass, or the first token of a request, that took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Came {
    /// The context of the pass, as [`Offer::of`] has it.
    pub of: u32,
    /// The serial of the first pass that was waited for. It is yet to be [added](Held::add), or its event is none.
    pub first: u64,
    /// The serial of the last one.
    pub last: u64,
    /// How long it took; of several, the longest.
    pub slow_ns: u64,
    /// How many they are: 0 of what was counted [apart](Held::came_apart), of which only some passes are there.
    pub count: u64,
}

/// The serials of the passes of an event, with their neighbours.
#[derive(Debug, Clone, Copy)]
struct Event {
    of: u32,
    from: u64,
    /// The first one that was waited for.
    first: u64,
    to: u64,
    count: u64,
}

/// The least is given up first: of those that took as long, the last one.
type Rank = (u64, Reverse<u64>);

/// A pass, and how many events it is in.
#[derive(Debug, Clone)]
struct Pass<T> {
    entry: Entry<T>,
    events: u64,
}

/// Keeps the passes of events: those around what a condition is true of.
#[derive(Debug, Clone)]
pub struct Held<T> {
    when: When,
    limit: usize,
    events: BTreeMap<Rank, Event>,
    /// Those that further passes may be in.
    open: Vec<Rank>,
    passes: BTreeMap<u64, Pass<T>>,
    bytes: usize,
    /// One more than the greatest serial of those that were added.
    next: u64,
    /// How long the event took that took longest of those that were given up.
    floor_ns: Option<u64>,
    fired: BTreeMap<u32, Fired>,
}

impl<T> Held<T> {
    /// So many passes before an event, and after it, are kept with it.
    pub const BESIDE: u64 = 2;

    /// What an event takes besides its passes.
    const EVENT: usize = size_of::<(Rank, Event)>();

    /// One that has nothing yet, and at most so many bytes.
    #[must_use]
    pub fn new(when: When, limit: usize) -> Self {
        Self {
            when,
            limit,
            events: BTreeMap::new(),
            open: Vec::new(),
            passes: BTreeMap::new(),
            bytes: 0,
            next: 0,
            floor_ns: None,
            fired: BTreeMap::new(),
        }
    }

    /// The condition.
    #[must_use]
    pub fn when(&self) -> When {
        self.when
    }

    /// The bytes of what is kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn fired(&mut self, of: u32) -> &mut Fired {
        let when = self.when;
        self.fired.entry(of).or_insert_with(|| Fired::none(when))
    }

    /// Something came whose passes are not all there.
    pub fn came_apart(&mut self, of: u32, count: u64) {
        let fired = self.fired(of);
        fired.fired = fired.fired.saturating_add(count);
        fired.apart = fired.apart.saturating_add(count);
    }

    /// Something came: its passes are kept when they are added, if there is room.
    pub fn came(&mut self, came: Came) {
        let Came { of, first, last, slow_ns, count } = came;
        if first < self.next || last < first {
            return self.came_apart(of, count);
        }
        let has_room = self.floor_ns.is_none_or(|floor| slow_ns > floor);
        let fired = self.fired(of);
        fired.fired = fired.fired.saturating_add(count);
        if !has_room {
            fired.no_room = fired.no_room.saturating_add(count);
            return;
        }
        // What was added before was not for this one.
        let from = first.saturating_sub(Self::BESIDE).max(self.next);
        let event = Event { of, from, first, to: last.saturating_add(Self::BESIDE), count };
        let rank = (slow_ns, Reverse(last));
        if let Some(same) = self.events.get_mut(&rank) {
            // Two requests that waited for the same passes, and as long.
            (same.from, same.first) = (same.from.min(from), same.first.min(first));
            same.count = same.count.saturating_add(count);
            return;
        }
        self.events.insert(rank, event);
        self.open.push(rank);
        self.bytes += Self::EVENT;
    }

    /// Adds a pass, after all events that it is in. Those that aren't kept, now or any more, go to `others`.
    pub fn add(&mut self, offer: Offer, item: T, mut others: impl FnMut(Offer, T)) {
        let events = self.events_with(offer.serial);
        if events == 0 {
            return others(offer, item);
        }
        let serial = offer.serial;
        let entry = Entry { offer, item };
        self.bytes += Self::bytes_of(&entry);
        self.passes.insert(serial, Pass { entry, events });
        self.give_up(others);
    }

    /// How many events a pass is in, which is added now.
    fn events_with(&mut self, serial: u64) -> u64 {
        let Self { events, open, next, .. } = self;
        let is_in = |event: &Event| (event.from..=event.to).contains(&serial);
        if serial < *next {
            // A later one came first, as of another context.
            return events.values().filter(|event| is_in(event)).count() as u64;
        }
        *next = serial.saturating_add(1);
        open.retain(|rank| events.get(rank).is_some_and(|event| event.to >= serial));
        let all = open.iter().filter_map(|rank| events.get(rank));
        all.filter(|event| is_in(event)).count() as u64
    }

    /// Gives events up until there is room.
    fn give_up(&mut self, mut others: impl FnMut(Offer, T)) {
        while let Some(least) = self.events.first_entry() {
            let (slow_ns, _) = *least.key();
            if self.bytes <= self.limit && self.floor_ns.is_none_or(|floor| slow_ns > floor) {
                return;
            }
            let event = least.remove();
            self.floor_ns = self.floor_ns.max(Some(slow_ns));
            self.bytes -= Self::EVENT;
            let fired = self.fired(event.of);
            fired.no_room = fired.no_room.saturating_add(event.count);
            let mut free = Vec::new();
            for (serial, pass) in self.passes.range_mut(event.from..=event.to) {
                pass.events -= 1;
                if pass.events == 0 {
                    free.push(*serial);
                }
            }
            for serial in free {
                if let Some(Pass { entry, .. }) = self.passes.remove(&serial) {
                    self.bytes -= Self::bytes_of(&entry);
                    others(entry.offer, entry.item);
                }
            }
        }
    }

    /// Counts those apart of which a pass was not added. Of first tokens that isn't known before: which passes ran while one
    /// waited is known by their times, and whether they count is judged later.
    fn look_for_gaps(&mut self) {
        if self.when.timed() != Timed::FirstToken {
            return;
        }
        let Self { when, events, passes, fired, .. } = self;
        for Event { of, first, to, count, .. } in events.values() {
            let last = to.saturating_sub(Self::BESIDE).max(*first);
            let there = passes.range(*first..=last).count() as u64;
            if there <= last - first {
                let fired = fired.entry(*of).or_insert_with(|| Fired::none(*when));
                fired.apart = fired.apart.saturating_add(*count);
            }
        }
    }

    fn bytes_of(entry: &Entry<T>) -> usize {
        Keeper::<T>::EACH + entry.offer.bytes
    }

    /// Adds what was kept to what a [`Keeper`] has of the others, in the order of the serials. Returns how often the condition
    /// came true in each context in which it did.
    #[must_use]
    pub fn finish(
        mut self,
        kept: &mut Vec<(Offer, T)>,
        chosen: &mut Vec<Chosen>,
    ) -> BTreeMap<u32, Fired> {
        self.look_for_gaps();
        let slower_than_ns = chosen.first().and_then(|of| of.slower_than_ns);
        for (serial, Pass { entry: Entry { offer, item }, .. }) in self.passes {
            let at = chosen.iter().position(|of| of.of == offer.of).unwrap_or_else(|| {
                chosen.push(Chosen::none(offer.of, slower_than_ns));
                chosen.len() - 1
            });
            chosen[at].around.push(serial);
            kept.push((offer, item));
        }
        kept.sort_by_key(|(offer, _)| offer.serial);
        let mut all = self.fired;
        for fired in all.values_mut() {
            let missing = fired.no_room.saturating_add(fired.apart);
            fired.whole = fired.fired.saturating_sub(missing);
        }
        all
    }
}

#[cfg(test)]
mod tests;
