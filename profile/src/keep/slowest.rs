//! The slowest passes, as many as there is room for.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{Entry, Keeper};

/// Sorted so that the fastest one is on top; of equals, the last one.
#[derive(Debug, Clone)]
struct Fastest<T>(Entry<T>);

impl<T> Fastest<T> {
    /// Greater is faster.
    fn cmp_key(&self, other: &Self) -> Ordering {
        let (this, other) = (&self.0.offer, &other.0.offer);
        other.slow_ns.cmp(&this.slow_ns).then(this.serial.cmp(&other.serial))
    }
}

impl<T> PartialEq for Fastest<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp_key(other).is_eq()
    }
}

impl<T> Eq for Fastest<T> {}

impl<T> PartialOrd for Fastest<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Fastest<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_key(other)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Slowest<T> {
    heap: BinaryHeap<Fastest<T>>,
    bytes: usize,
    limit: usize,
    /// How slow the slowest is that was taken out: none that is no slower stays.
    floor_ns: Option<u64>,
}

impl<T> Slowest<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { heap: BinaryHeap::new(), bytes: 0, limit, floor_ns: None }
    }

    pub(super) fn push(&mut self, entry: Entry<T>) {
        self.bytes += Self::bytes_of(&entry);
        self.heap.push(Fastest(entry));
    }

    /// Takes out the fastest pass if there is no room for it, or one as fast was taken out before.
    pub(super) fn pop_over(&mut self) -> Option<Entry<T>> {
        let fastest = self.heap.peek()?.0.offer.slow_ns;
        if self.bytes <= self.limit && self.floor_ns.is_none_or(|floor| fastest > floor) {
            return None;
        }
        let Fastest(entry) = self.heap.pop()?;
        self.bytes -= Self::bytes_of(&entry);
        self.floor_ns = self.floor_ns.max(Some(fastest));
        Some(entry)
    }

    fn bytes_of(entry: &Entry<T>) -> usize {
        Keeper::<T>::EACH + entry.offer.bytes
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn floor_ns(&self) -> Option<u64> {
        self.floor_ns
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry<T>> {
        self.heap.into_iter().map(|Fastest(entry)| entry)
    }
}
