//! Records that are there a second time, wherever they are.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most records that are known again: there are so many before passes are left out for want of room.
const MOST: usize = 1 << 21;

/// Hashes of records.
#[derive(Debug, Default)]
pub(super) struct Seen(HashSet<u64>);

impl Seen {
    /// Whether such a record was there before. It is noted, as long as there is room.
    pub(super) fn has(&mut self, record: impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        record.hash(&mut hasher);
        let hash = hasher.finish();
        match self.0.len() < MOST {
            true => !self.0.insert(hash),
            false => self.0.contains(&hash),
        }
    }
}
