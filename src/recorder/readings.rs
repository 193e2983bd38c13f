//! A pass whose clock is read while it runs, and which is told afterwards what the readings were of.
//!
//! Between two bricks of a model the caches are full of weights, so that what a span costs are the lines that it
//! touches: of its code, of the log, and of all that says what it is. Here it is one number, next to the one before
//! it. When the pass is over the readings go to the log as they are, eight in a row, with the number of a script: what
//! they are of is the same in each pass. Records are made of them when somebody wants records.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use super::row::Told;
use super::{OpenPass, Record, Recorder, Relaxed, Release, TAIL, ThreadLog, lock, thread};
use crate::script::PassScript;

/// The readings of a pass that is open on this thread.
///
/// What a reading needs comes first, and lies in one line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Readings<'p> {
    room: &'p [Cell<u64>],
    taken: Cell<usize>,
    recorder: &'p Recorder,
    pass: &'p OpenPass,
    log: &'p ThreadLog,
    /// Whose the log was when the pass began, and for which generation.
    owner: u64,
    /// Where the log stood then.
    stood: [u64; 4],
    /// Only the thread of the pass may write to its log.
    stays: PhantomData<*const ()>,
}

impl Recorder {
    /// For a pass that [`begin_pass`](Self::begin_pass) of this recorder began, on its thread. `None` if nothing
    /// records it, or if a brick is more than its readings: where events are counted in each, or the clock isn't the
    /// processor's. And the second time.
    pub(crate) fn readings<'p>(
        &'p self,
        pass: Option<&'p OpenPass>,
        room: &'p mut [u64],
    ) -> Option<Readings<'p>> {
        let pass = pass?;
        let log = pass.log.as_ref()?;
        // A pass of somebody else's is none that this recorder's bricks can be in.
        let own = self.near_log(thread::here(), self.active.load(Relaxed))?;
        if !Arc::ptr_eq(own, log) {
            return None;
        }
        let owner = log.owner.load(Relaxed);
        // No log is of the generation that is off.
        let is_plain = self.plain.load(Relaxed) == owner as u32;
        (is_plain && !pass.is_read.replace(true)).then(|| Readings {
            recorder: self,
            pass,
            log,
            owner,
            stood: log.stands(),
            room: Cell::from_mut(room).as_slice_of_cells(),
            taken: Cell::new(0),
            stays: PhantomData,
        })
    }
}

impl<'p> Readings<'p> {
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
    pub(crate) fn end(self) -> Option<Untold<'p>> {
        self.pass.ended.set(Some(self.recorder.plain_now()));
        let (log, owner, stood) = (self.log, self.owner, self.stood);
        let is_on = self.recorder.plain.load(Relaxed) == owner as u32;
        let readings = self.room.get(..self.taken.get())?;
        if !is_on || !log.is_at(owner, stood) {
            return None;
        }
        // From here on those that are left are counted there.
        self.taken.set(0);
        Some(Untold { recorder: self.recorder, log, owner, stood, readings, stays: PhantomData })
    }
}

impl Drop for Readings<'_> {
    fn drop(&mut self) {
        self.log.leave_untold(self.taken.get(), self.owner);
    }
}

/// Readings of a pass that has ended.
#[derive(Debug)]
pub(crate) struct Untold<'p> {
    recorder: &'p Recorder,
    log: &'p ThreadLog,
    owner: u64,
    stood: [u64; 4],
    readings: &'p [Cell<u64>],
    stays: PhantomData<*const ()>,
}

impl Untold<'_> {
    /// Says what they were of, at this position. Whether that is so: not if the script has more readings or fewer, nor
    /// if anything was recorded otherwise meanwhile. It lies after the readings, and in a log ends only grow.
    pub(crate) fn tell(mut self, script: &PassScript, position: u64) -> bool {
        // What allocates comes first: the allocator may record.
        let number = self.log.place_for(script);
        let is_so =
            script.readings() == self.readings.len() && self.log.is_at(self.owner, self.stood);
        if is_so {
            let readings = std::mem::take(&mut self.readings);
            // No brick begins before the last one ended, though the clock of the core that the thread has moved to may
            // say so.
            let mut last = self.log.last_end.load(Relaxed);
            for reading in readings {
                last = last.max(self.recorder.plain_at(reading.get()));
                reading.set(last);
            }
            self.log.tell(readings, script, number, position);
        }
        is_so
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        self.log.leave_untold(self.readings.len(), self.owner);
    }
}

/// Scripts that a log knows. What is told by others is written row by row.
pub(super) const MOST_SCRIPTS: usize = if cfg!(miri) { 16 } else { 1024 };

impl ThreadLog {
    /// What changes with any span that begins, and with the end of any brick or layer.
    fn stands(&self) -> [u64; 4] {
        let [begun, covered, last_end] =
            [&self.begun, &self.covered, &self.last_end].map(|word| word.load(Relaxed));
        [begun, covered, last_end, self.layer.load(Relaxed).into()]
    }

    /// Whether the log is still that owner's, and nothing was recorded since.
    fn is_at(&self, owner: u64, stood: [u64; 4]) -> bool {
        self.owner.load(Relaxed) == owner && self.stands() == stood
    }

    /// Counts readings of which nobody said what they were of: as spans that never ended, unless the log has been
    /// left since.
    fn leave_untold(&self, readings: usize, owner: u64) {
        if self.owner.load(Relaxed) == owner {
            self.begun.store(self.begun.load(Relaxed) + readings as u64, Relaxed);
        }
    }

    /// The number of a script in this log, for whose readings there is room. `None` if all of it is to be written row
    /// by row.
    fn place_for(&self, script: &PassScript) -> Option<u32> {
        let needed = rows_of(script);
        // A row is to be a span at least, as in any log.
        if script.spans() < needed as u64 || needed > TAIL {
            return None;
        }
        let number = self.number_of(script)?;
        let at = self.next.load(Relaxed) as usize;
        if at >= self.kept && at + needed > self.rows.len() {
            self.start_tail_over()?;
        }
        Some(number)
    }

    /// Of readings that never fall.
    fn tell(
        &self,
        readings: &[Cell<u64>],
        script: &PassScript,
        number: Option<u32>,
        position: u64,
    ) {
        let [begun, covered, ..] = self.stands();
        let signed = readings.iter().zip(script.signs());
        let covered = signed.fold(covered, |covered, (reading, &sign)| {
            covered.wrapping_add(reading.get().wrapping_mul(i64::from(sign) as u64))
        });
        // Before the rows: for one of them the tail may have to be folded.
        self.begun.store(begun + script.spans(), Relaxed);
        self.covered.store(covered, Relaxed);
        if let Some(last) = script.last_end() {
            self.last_end.store(readings[last].get(), Relaxed);
        }
        let told = Told {
            script: number.unwrap_or_default(),
            readings: readings.len(),
            position,
            pass: self.pass(),
            order: begun as u32,
            layer: self.layer(),
        };
        let written = number.and_then(|_| self.write_told(&told, readings, rows_of(script)));
        if written.is_none() {
            let Told { pass, order, layer, .. } = told;
            let first = Record { order, layer, ..Record::nothing(pass) };
            let reading = |i: usize| readings[i].get();
            script.each_record(&first, position, reading, |record| self.push(*record));
        }
    }

    /// `None` if they don't fit, and nothing is written.
    fn write_told(&self, told: &Told, readings: &[Cell<u64>], needed: usize) -> Option<()> {
        let at = self.next.load(Relaxed) as usize;
        // Kept or not, they are so together.
        let end = if at < self.kept { self.kept } else { self.rows.len() };
        let (first, rows) = self.rows.get(at..end)?.get(..needed)?.split_first()?;
        first.store_told(told);
        for (row, eight) in rows.iter().zip(readings.chunks(8)) {
            row.store(std::array::from_fn(|i| eight.get(i).map_or(0, Cell::get)));
        }
        self.next.store((at + needed) as u32, Release);
        Some(())
    }

    /// The number that a script has in this log. `None` if there are too many.
    fn number_of(&self, script: &PassScript) -> Option<u32> {
        let [known, number] = &self.script;
        if known.load(Relaxed) != script.address() {
            let found = thread::not_within_itself(|| {
                let scripts = &mut lock(&self.drained).scripts;
                let found = scripts.iter().position(|known| known == script);
                match found {
                    // The one that is held, so that no other comes to lie there.
                    Some(found) => scripts[found] = script.clone(),
                    None if scripts.len() == MOST_SCRIPTS => return None,
                    None => scripts.push(script.clone()),
                }
                Some(found.unwrap_or(scripts.len() - 1))
            });
            number.store(found??, Relaxed);
            known.store(script.address(), Relaxed);
        }
        Some(number.load(Relaxed) as u32)
    }
}

fn rows_of(script: &PassScript) -> usize {
    1 + Told::rows(script.readings())
}
