//! From the id of a span to what it is: read at each entry, so without a lock and without hashing.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{PoisonError, RwLock};

/// Room for the spans of a few models of a hundred layers each, in 64 KiB. More live spans than this go the slow way.
const SLOTS: usize = 4096;

/// How many slots an id may lie in. Ids of one thread are consecutive, so the first one is mostly it.
const TRIES: u64 = 8;

/// A slot that nobody has. Ids are never 0.
const FREE: u64 = 0;

/// A slot that somebody is about to fill.
const TAKEN: u64 = u64::MAX;

/// What a span is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(u64);

/// What entering a span does to the transformer layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerOf {
    /// Nothing: it belongs to the one that is open.
    Open,
    /// It belongs to this one, which lasts until a span of another one begins.
    Index(u16),
    /// It is this one, which ends with it.
    Is(u16),
    /// It belongs to none.
    None,
}

impl Entry {
    /// A span whose time belongs to what is around it.
    pub(crate) const AROUND: Self = Self::new(None, LayerOf::Open, None);

    /// A span that is a pass. Tokens and position are elsewhere, since passes are few.
    pub(crate) const PASS: Self = Self(Self::AROUND.0 | 4);

    /// The same for a span that is told apart by the order in which it was made.
    pub(crate) const fn ordered(self) -> Self {
        Self(self.0 | 8)
    }

    pub(crate) fn is_ordered(self) -> bool {
        self.0 & 8 != 0
    }

    pub(crate) const fn new(brick: Option<u16>, layer: LayerOf, product: Option<u16>) -> Self {
        let (kind, index) = match layer {
            LayerOf::Open => (0, 0),
            LayerOf::Index(index) => (1, index),
            LayerOf::Is(index) => (2, index),
            LayerOf::None => (3, 0),
        };
        let brick = match brick {
            Some(brick) => brick,
            None => u16::MAX,
        };
        let product = match product {
            Some(product) => product,
            None => u16::MAX,
        };
        Self((product as u64) << 48 | (brick as u64) << 32 | (index as u64) << 16 | kind)
    }

    pub(crate) fn is_pass(self) -> bool {
        self.0 & 4 != 0
    }

    pub(crate) fn brick(self) -> Option<u16> {
        Some((self.0 >> 32) as u16).filter(|&brick| brick != u16::MAX)
    }

    /// The number of the product that it is.
    pub(crate) fn product(self) -> Option<u16> {
        Some((self.0 >> 48) as u16).filter(|_| !self.has_pieces()).filter(|&n| n != u16::MAX)
    }

    /// The number of the list of its pieces, if they are different bricks.
    pub(crate) fn pieces(self) -> Option<u16> {
        self.has_pieces().then_some((self.0 >> 48) as u16)
    }

    fn has_pieces(self) -> bool {
        self.0 & 16 != 0
    }

    /// The same for a span whose pieces are different bricks.
    pub(crate) const fn in_pieces(self, pieces: u16) -> Self {
        Self(self.0 & (u64::MAX >> 16) | (pieces as u64) << 48 | 16)
    }

    pub(crate) fn layer(self) -> LayerOf {
        let index = (self.0 >> 16) as u16;
        match self.0 & 3 {
            0 => LayerOf::Open,
            1 => LayerOf::Index(index),
            2 => LayerOf::Is(index),
            _ => LayerOf::None,
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    id: AtomicU64,
    entry: AtomicU64,
}

/// What each live span is.
///
/// A slot is filled before anybody but its writer knows the id, and emptied when nobody can enter the span any more, so a
/// reader finds the slot of its id as it is to be, whatever happens in others.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Box<[Slot]>,
    others: RwLock<HashMap<u64, Entry>>,
    n_others: AtomicUsize,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            others: RwLock::default(),
            n_others: AtomicUsize::new(0),
        }
    }

    fn tries(&self, id: u64) -> impl Iterator<Item = &Slot> {
        (0..TRIES).map(move |nth| &self.slots[id.wrapping_add(nth) as usize % SLOTS])
    }

    #[inline]
    pub(crate) fn get(&self, id: u64) -> Option<Entry> {
        let found = self.tries(id).find(|slot| slot.id.load(Acquire) == id);
        match found {
            Some(slot) => Some(Entry(slot.entry.load(Relaxed))),
            None => self.get_other(id),
        }
    }

    #[cold]
    fn get_other(&self, id: u64) -> Option<Entry> {
        if self.n_others.load(Relaxed) == 0 {
            return None;
        }
        self.others.read().unwrap_or_else(PoisonError::into_inner).get(&id).copied()
    }

    /// Says what a span is, or says it anew.
    pub(crate) fn set(&self, id: u64, entry: Entry) {
        if let Some(slot) = self.tries(id).find(|slot| slot.id.load(Acquire) == id) {
            slot.entry.store(entry.0, Relaxed);
            return;
        }
        let taken = self
            .tries(id)
            .find(|slot| slot.id.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok());
        if let Some(slot) = taken {
            slot.entry.store(entry.0, Relaxed);
            slot.id.store(id, Release);
            if self.n_others.load(Relaxed) > 0 {
                // It may have found no slot before.
                let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
                others.remove(&id);
                self.n_others.store(others.len(), Relaxed);
            }
            return;
        }
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        others.insert(id, entry);
        self.n_others.store(others.len(), Relaxed);
    }

    pub(crate) fn remove(&self, id: u64) {
        if let Some(slot) = self.tries(id).find(|slot| slot.id.load(Acquire) == id) {
            slot.id.store(FREE, Release);
        } else if self.n_others.load(Relaxed) > 0 {
            let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
            others.remove(&id);
            self.n_others.store(others.len(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_unpacked_as_it_was_packed() {
        for layer in [LayerOf::Open, LayerOf::Index(0), LayerOf::Is(65535), LayerOf::None] {
            for (brick, product) in [(None, None), (Some(0), Some(65534)), (Some(1023), None)] {
                let entry = Entry::new(brick, layer, product);
                assert_eq!((entry.brick(), entry.layer()), (brick, layer));
                assert_eq!((entry.product(), entry.is_pass()), (product, false));
            }
        }
        let pieces = Entry::new(Some(3), LayerOf::Index(1), None).in_pieces(2).ordered();
        assert_eq!((pieces.pieces(), pieces.product(), pieces.brick()), (Some(2), None, Some(3)));
        assert_eq!((pieces.layer(), pieces.is_ordered()), (LayerOf::Index(1), true));
        assert!(Entry::PASS.is_pass());
        assert_eq!(Entry::PASS.brick(), None);
    }

    #[test]
    fn more_spans_than_slots_are_known_all_the_same() {
        let table = Table::new();
        let entry = |id: u64| Entry::new(Some(id as u16 % 1000), LayerOf::Open, None);
        let ids = 1..3 * SLOTS as u64;
        ids.clone().for_each(|id| table.set(id, entry(id)));
        assert!(ids.clone().all(|id| table.get(id) == Some(entry(id))));
        // One that is said anew lies where it was.
        table.set(7, Entry::AROUND);
        assert_eq!(table.get(7), Some(Entry::AROUND));
        ids.clone().for_each(|id| table.remove(id));
        assert!(ids.clone().all(|id| table.get(id).is_none()));
        assert_eq!(table.n_others.load(Relaxed), 0);
    }

    /// The registry's ids have the thread and a generation in their upper bits.
    #[test]
    fn ids_with_the_same_lower_bits_are_told_apart() {
        let table = Table::new();
        let ids: Vec<u64> = (0..12).map(|nth| nth << 40 | 5).collect();
        for (nth, &id) in ids.iter().enumerate() {
            table.set(id, Entry::new(Some(nth as u16), LayerOf::None, None));
        }
        for (nth, &id) in ids.iter().enumerate() {
            assert_eq!(table.get(id).and_then(Entry::brick), Some(nth as u16));
        }
    }
}
