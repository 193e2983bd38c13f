//! Passes that only read the clock while they run, and are labelled afterwards.
//!
//! Between two bricks of a model the caches are full of weights, so the cost of a span is the cache lines that it
//! touches: of its code, of the log, and of all that describes it. A timestamp is one number, next to the one before
//! it. When the pass is over, the timestamps go to the log as they are, eight in a row, with the number of the template
//! that labels them, since they mean the same in each pass. Records are made of them when somebody wants records.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::log::{ThreadLog, row_of};
use super::stays::Stays;
use super::{HAS_PLAIN_CLOCK, OpenPass, Recorder, TAIL, thread};
use crate::clock::Ticks;
use crate::row::Block;
use crate::sync::lock;
use crate::template::PassTemplate;

/// The timestamps of a pass that is open on this thread.
///
/// What taking one needs comes first, and lies in one line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Timestamps<'p> {
    room: &'p [Cell<u64>],
    taken: Cell<usize>,
    recorder: &'p Recorder,
    pass: &'p OpenPass,
    log: &'p ThreadLog,
    /// What was recorded when the pass began: see [`Recorder::state`].
    state: u32,
    /// Whose the log was when the pass began.
    key: u64,
    /// Where the log stood then.
    stood: [u64; 4],
    /// Only the thread of the pass may write to its log.
    _stays: Stays,
}

impl Recorder {
    /// For a pass that [`begin_pass`](Self::begin_pass) of this recorder began, on its thread. `None` if nothing
    /// records it, or if a brick is more than its timestamps: where events are counted in each, or the clock isn't the
    /// processor's. Also `None` on a second call for the same pass.
    pub(crate) fn timestamps<'p>(
        &'p self,
        pass: Option<&'p OpenPass>,
        room: &'p mut [u64],
    ) -> Option<Timestamps<'p>> {
        let pass = pass?;
        let log = pass.log.as_ref()?;
        let state = self.state.load(Relaxed);
        // A pass of somebody else's is none that this recorder's bricks can be in.
        let own = self.near_log(thread::here(), state)?;
        let is_first = Arc::ptr_eq(own, log) && !pass.has_timestamps.replace(true);
        is_first.then(|| Timestamps {
            recorder: self,
            pass,
            log,
            state,
            key: log.key.load(Relaxed),
            stood: log.stands(),
            room: Cell::from_mut(room).as_slice_of_cells(),
            taken: Cell::new(0),
            _stays: Stays::HERE,
        })
    }

    /// The clock in two steps, of which only the first one has to be taken at once.
    #[inline(always)]
    fn plain_count(&self) -> u64 {
        if HAS_PLAIN_CLOCK { self.clock.now() } else { Ticks::count() }
    }

    #[inline(always)]
    fn plain_at(&self, count: u64) -> u64 {
        if HAS_PLAIN_CLOCK { count } else { self.ticks.at(count) }
    }
}

impl<'p> Timestamps<'p> {
    /// Reads the clock. Out of line, for the sake of its callers: where the caches are full of weights, each line of
    /// code is fetched anew in each layer, and a call is a few bytes.
    #[inline(never)]
    pub(crate) fn take(&self) {
        let taken = self.taken.get();
        if let Some(cell) = self.room.get(taken) {
            cell.set(self.recorder.plain_count());
        }
        self.taken.set(taken + 1);
    }

    /// The pass ends here. `None` if there are more than there was room for, if anything else was recorded on this
    /// thread meanwhile, or if recording isn't what it was: off, or begun anew.
    pub(crate) fn end(self) -> Option<Unlabelled<'p>> {
        self.pass.ended.set(Some(self.recorder.plain_now()));
        let (log, key, stood) = (self.log, self.key, self.stood);
        let is_on = self.recorder.state.load(Relaxed) == self.state;
        let timestamps = self.room.get(..self.taken.get())?;
        if !is_on || !log.is_at(key, stood) {
            return None;
        }
        // From here on those that are left are counted there.
        self.taken.set(0);
        Some(Unlabelled {
            recorder: self.recorder,
            log,
            key,
            stood,
            timestamps,
            _stays: Stays::HERE,
        })
    }
}

impl Drop for Timestamps<'_> {
    fn drop(&mut self) {
        self.log.leave_unlabelled(self.taken.get(), self.key);
    }
}

/// The timestamps of a pass that has ended.
#[derive(Debug)]
pub(crate) struct Unlabelled<'p> {
    recorder: &'p Recorder,
    log: &'p ThreadLog,
    key: u64,
    stood: [u64; 4],
    timestamps: &'p [Cell<u64>],
    _stays: Stays,
}

impl Unlabelled<'_> {
    /// Says what they mean, at this position. Returns whether it could: not if the template has keys of another profiler, or
    /// more timestamps or fewer, nor if anything was recorded otherwise meanwhile. It lies after them, and in a log ends
    /// only grow.
    pub(crate) fn label(mut self, template: &PassTemplate, position: u64) -> bool {
        if !template.is_of(self.recorder.number()) {
            self.recorder.note_foreign_key();
            return false;
        }
        // What allocates comes first: the allocator may record.
        let number = self.log.place_for(template);
        let is_so =
            template.timestamps() == self.timestamps.len() && self.log.is_at(self.key, self.stood);
        if is_so {
            let timestamps = std::mem::take(&mut self.timestamps);
            // No brick begins before the last one ended, though the clock of the core that the thread has moved to may
            // say so.
            let mut last = self.log.last_end.load(Relaxed);
            for timestamp in timestamps {
                last = last.max(self.recorder.plain_at(timestamp.get()));
                timestamp.set(last);
            }
            self.log.label(timestamps, template, number, position);
        }
        is_so
    }
}

impl Drop for Unlabelled<'_> {
    fn drop(&mut self) {
        self.log.leave_unlabelled(self.timestamps.len(), self.key);
    }
}

/// Templates that a log knows. What others label is written row by row.
pub(super) const MOST_TEMPLATES: usize = if cfg!(miri) { 16 } else { 1024 };

impl ThreadLog {
    /// What changes with any span that begins, and with the end of any brick or layer.
    fn stands(&self) -> [u64; 4] {
        let [begun, covered, last_end] =
            [&self.begun, &self.covered, &self.last_end].map(|word| word.load(Relaxed));
        [begun, covered, last_end, self.layer().into()]
    }

    /// Whether the log is still the same thread's, and nothing was recorded since.
    fn is_at(&self, key: u64, stood: [u64; 4]) -> bool {
        self.key.load(Relaxed) == key && self.stands() == stood
    }

    /// Counts timestamps that were not labelled, as spans that never ended, unless the log has been left since.
    fn leave_unlabelled(&self, timestamps: usize, key: u64) {
        if self.key.load(Relaxed) == key {
            self.begun.store(self.begun.load(Relaxed) + timestamps as u64, Relaxed);
        }
    }

    /// The number of a template in this log, for whose timestamps there is room. `None` if all of it is to be written row
    /// by row.
    fn place_for(&self, template: &PassTemplate) -> Option<u32> {
        let needed = rows_of(template);
        // A row is to be a span at least, as in any log.
        if template.spans() < needed as u64 || needed > TAIL {
            return None;
        }
        let number = self.number_of(template)?;
        let at = self.next_row();
        if at >= self.kept && at + needed > self.rows.len() {
            self.start_tail_over()?;
        }
        Some(number)
    }

    /// Labels timestamps that never fall.
    fn label(
        &self,
        timestamps: &[Cell<u64>],
        template: &PassTemplate,
        number: Option<u32>,
        position: u64,
    ) {
        let [begun, covered, ..] = self.stands();
        let signed = timestamps.iter().zip(template.signs());
        let covered = signed.fold(covered, |covered, (timestamp, &sign)| {
            covered.wrapping_add(timestamp.get().wrapping_mul(i64::from(sign) as u64))
        });
        // Before the rows: for one of them the tail may have to be folded.
        self.begun.store(begun + template.spans(), Relaxed);
        self.covered.store(covered, Relaxed);
        if let Some(last) = template.last_end() {
            self.last_end.store(timestamps[last].get(), Relaxed);
        }
        let block = Block {
            template: number.unwrap_or_default(),
            timestamps: timestamps.len(),
            position,
            pass: self.pass(),
            order: begun as u32,
            layer: self.layer(),
        };
        let written = number.and_then(|_| {
            self.write_block(&block, timestamps, rows_of(template), template.spans())
        });
        if written.is_none() {
            let Block { pass, order, layer, .. } = block;
            let timestamp = |i: usize| timestamps[i].get();
            template.each_record([pass, order], layer, position, timestamp, |record| {
                self.push(record);
            });
        }
    }

    /// `None` if they don't fit, and nothing is written.
    fn write_block(
        &self,
        block: &Block,
        timestamps: &[Cell<u64>],
        needed: usize,
        ended: u64,
    ) -> Option<()> {
        let place = self.place.load(Relaxed);
        let at = row_of(place);
        // Kept or not, they are so together.
        let end = if at < self.kept { self.kept } else { self.rows.len() };
        let (first, rows) = self.rows.get(at..end)?.get(..needed)?.split_first()?;
        first.store_block(block);
        for (row, eight) in rows.iter().zip(timestamps.chunks(8)) {
            row.store_timestamps(std::array::from_fn(|i| eight.get(i).map_or(0, Cell::get)));
        }
        self.advance(place, needed as u64, ended);
        Some(())
    }

    /// The number that a template has in this log. `None` if there are too many.
    fn number_of(&self, template: &PassTemplate) -> Option<u32> {
        let [known, number] = &self.template;
        if known.load(Relaxed) != template.address() {
            let found = thread::not_within_itself(|| {
                let templates = &mut lock(&self.drained).templates;
                let found = templates.iter().position(|known| known == template);
                match found {
                    // The one that is held, so that no other comes to lie there.
                    Some(found) => templates[found] = template.clone(),
                    None if templates.len() == MOST_TEMPLATES => return None,
                    None => templates.push(template.clone()),
                }
                Some(found.unwrap_or(templates.len() - 1))
            });
            number.store(found??, Relaxed);
            known.store(template.address(), Relaxed);
        }
        Some(number.load(Relaxed) as u32)
    }
}

fn rows_of(template: &PassTemplate) -> usize {
    1 + Block::rows(template.timestamps())
}
