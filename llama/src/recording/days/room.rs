//! What of a file needs room on the disk no more.
//!
//! Whole pages are given back, and never that of the header or the one that is written now: the library has them mapped, and
//! where a page has several blocks of the disk, to write to it again needs room for all of them. A disk that is full meanwhile
//! would end the program.

use std::ops::Range;

use crate::recording::format::PAGES;

/// A multiple of whole pages.
const PAGE: u64 = PAGES as u64;

#[derive(Debug, Clone)]
pub(super) struct Room {
    /// Up to here nothing is left to give back.
    from: u64,
    /// What is to stay, in order, as far as it isn't before that.
    stays: Vec<Range<u64>>,
}

impl Default for Room {
    fn default() -> Self {
        Self { from: PAGE, stays: Vec::new() }
    }
}

impl Room {
    /// These bytes are needed again. They lie behind all others of which that was said.
    pub(super) fn keep(&mut self, bytes: Range<u64>) {
        self.stays.push(bytes);
    }

    /// What may be given back now that all before `read` was read.
    pub(super) fn free(&mut self, read: u64) -> Vec<Range<u64>> {
        let to = read / PAGE * PAGE;
        let mut free = Vec::new();
        let mut begin = self.from;
        for bytes in &self.stays {
            let end = (bytes.start / PAGE * PAGE).min(to);
            if begin < end {
                free.push(begin..end);
            }
            begin = begin.max(bytes.end.next_multiple_of(PAGE));
        }
        if begin < to {
            free.push(begin..to);
        }
        self.from = self.from.max(to);
        self.stays.retain(|bytes| bytes.end > self.from);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: Range<u64>) -> Vec<Range<u64>> {
        vec![bytes]
    }

    #[test]
    fn whole_pages_are_given_back_but_for_the_header_and_what_stays() {
        let mut room = Room::default();
        // A description right behind the header, and one across two pages.
        room.keep(64..900);
        assert!(room.free(PAGE + 100).is_empty(), "the header's page, and the one that is written");
        assert_eq!(room.free(3 * PAGE + 1), one(PAGE..3 * PAGE));
        assert!(room.free(4 * PAGE - 8).is_empty());
        room.keep(6 * PAGE - 8..6 * PAGE + 8);
        assert_eq!(room.free(6 * PAGE + 8), one(3 * PAGE..5 * PAGE));
        assert!(room.free(7 * PAGE).is_empty(), "its end is needed, too");
        assert_eq!(room.free(9 * PAGE), one(7 * PAGE..9 * PAGE));
        // Several at once, two of them in one page.
        room.keep(10 * PAGE..10 * PAGE + 8);
        room.keep(10 * PAGE + 16..10 * PAGE + 24);
        room.keep(12 * PAGE + 8..12 * PAGE + 16);
        let free = room.free(14 * PAGE);
        assert_eq!(free, [9 * PAGE..10 * PAGE, 11 * PAGE..12 * PAGE, 13 * PAGE..14 * PAGE]);
        assert!(room.stays.is_empty(), "nothing is looked at twice");
    }

    #[test]
    fn what_comes_in_small_pieces_is_given_back_once() {
        let mut room = Room::default();
        let free: Vec<Range<u64>> =
            (0..20 * PAGE).step_by(1000).flat_map(|read| room.free(read)).collect();
        assert!(free.iter().all(|of| of.start % PAGE == 0 && of.end % PAGE == 0), "{free:?}");
        let all: u64 = free.iter().map(|of| of.end - of.start).sum();
        assert_eq!(all, 18 * PAGE);
    }
}
