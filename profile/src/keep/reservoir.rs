//! A uniform sample of passes, of which nobody knows how many there will be.

use super::{Entry, Keeper};
use crate::stats::SplitMix64;

/// A number below `n`; 0 if there is none. Its bias is below `n / 2^64`.
pub(super) fn below(n: u64, random: &mut SplitMix64) -> u64 {
    let product = u128::from(random.bits()) * u128::from(n);
    u64::try_from(product >> 64).unwrap_or(0)
}

#[derive(Debug, Clone)]
pub(super) struct Reservoir<T> {
    entries: Vec<Entry<T>>,
    seen: u64,
    bytes: usize,
    /// Whether it has as many as it will ever have.
    is_full: bool,
}

impl<T> Default for Reservoir<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), seen: 0, bytes: 0, is_full: false }
    }
}

impl<T> Reservoir<T> {
    /// Takes a pass, or, with the chance that makes all as likely, puts it in the place of another one. Returns whether it has
    /// one more now.
    pub(super) fn offer(&mut self, entry: Entry<T>, random: &mut SplitMix64) -> bool {
        self.seen += 1;
        if !self.is_full {
            self.bytes += Self::bytes_of(&entry);
            self.entries.push(entry);
            return true;
        }
        let at = usize::try_from(below(self.seen, random)).unwrap_or(usize::MAX);
        if let Some(before) = self.entries.get_mut(at) {
            self.bytes = self.bytes - Self::bytes_of(before) + Self::bytes_of(&entry);
            *before = entry;
        }
        false
    }

    /// Takes out one by chance, and never has as many again. Returns its bytes.
    pub(super) fn shrink(&mut self, random: &mut SplitMix64) -> usize {
        self.is_full = true;
        if self.entries.is_empty() {
            return 0;
        }
        let at = usize::try_from(below(self.entries.len() as u64, random)).unwrap_or(0);
        let bytes = Self::bytes_of(&self.entries.swap_remove(at));
        self.bytes -= bytes;
        bytes
    }

    fn bytes_of(entry: &Entry<T>) -> usize {
        Keeper::<T>::EACH + entry.offer.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many it was offered, and those that it has.
    pub(super) fn into_entries(self) -> (u64, Vec<Entry<T>>) {
        (self.seen, self.entries)
    }
}
