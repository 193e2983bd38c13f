//! Taking rows out of logs: into sums, and as records.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::log::{Owner, ThreadLog, row_of};
use super::{Recorder, thread};
use crate::fold::Fold;
use crate::row::{Block, Record, Row, SpanKind, Timing};
use crate::sync::{MutexGuard, lock};
use crate::template::PassTemplate;

/// What ended threads leave is kept up to so many times what one may keep. A program that starts a
/// thread for every request would fill the memory otherwise.
const MOST_FORMER: usize = 8;

/// What has been made of a log's rows so far.
#[derive(Debug, Default)]
pub(super) struct Drained {
    /// Rows before this one are in `fold`.
    up_to: usize,
    tiles_up_to: usize,
    /// Spans that the trace had no room for.
    dropped: u64,
    fold: Fold,
    /// When the making of the log began and ended, if that was since the last reset.
    pub(super) prepared: Option<[u64; 2]>,
    /// What labels timestamps, by its number.
    pub(super) templates: Vec<PassTemplate>,
    /// The thread that owns the log.
    thread: Owner,
    /// The threads that owned it before and have ended.
    former: Vec<Lane>,
}

/// What a thread left in a log.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    /// The serial of the log while it was that thread's.
    pub(crate) serial: u32,
    pub(crate) thread: Owner,
    /// What was kept, in the order of ends.
    pub(crate) records: Vec<Record>,
}

impl Drained {
    /// The log's thread has ended: keeps what it left.
    pub(super) fn leave(&mut self, log: &ThreadLog) {
        self.fold.abandon();
        self.fold.end_thread(log.last_end.load(Relaxed));
        if let Some(layers) = &mut self.fold.layers {
            layers.abandon();
        }
        let mut lane = self.lane_of(log);
        let held: usize = self.former.iter().map(|lane| lane.records.len()).sum();
        if held + lane.records.len() > log.kept.saturating_mul(MOST_FORMER) {
            let spans = lane.records.drain(..).filter(Record::is_span);
            self.dropped += spans.count() as u64;
        }
        if !lane.records.is_empty() || self.fold.has_passes_of(lane.serial) {
            self.former.push(lane);
        }
    }

    /// Another thread begins with an empty log.
    pub(super) fn begin(&mut self, serial: u32, thread: Owner, is_small: bool, sums_layers: bool) {
        self.up_to = 0;
        self.tiles_up_to = 0;
        self.thread = thread;
        self.fold.forget_unseen();
        self.fold.forget_newest();
        self.fold.begin_thread();
        self.fold.log = serial;
        self.fold.is_small = is_small;
        if sums_layers {
            self.fold.layers.get_or_insert_default();
        }
    }

    pub(super) fn is_up_to(&self, next: usize) -> bool {
        self.up_to == next
    }

    pub(super) fn start_tail_over(&mut self, kept: usize) {
        self.up_to = kept;
    }

    pub(super) fn start_tiles_over(&mut self) {
        self.tiles_up_to = 0;
    }

    /// Forgets what was recorded, but not how far that was.
    fn forget(&mut self) {
        self.fold = Fold::default();
        self.dropped = 0;
        self.former = Vec::new();
        self.prepared = None;
    }

    /// What the owner of the log left so far.
    fn lane_of(&self, log: &ThreadLog) -> Lane {
        let kept = &log.rows[..self.up_to.min(log.kept)];
        let mut records = Vec::with_capacity(kept.len());
        each_record(kept, &self.templates, |record| records.push(*record));
        Lane { serial: self.fold.log, thread: self.thread.clone(), records }
    }
}

impl ThreadLog {
    /// Folds what was written since the last time.
    pub(super) fn drain(&self, drained: &mut Drained) {
        let next = row_of(self.place.load(Acquire));
        let (trace, tail) = self.rows.split_at(self.kept);
        let Drained { fold, templates, up_to, .. } = drained;
        let before = std::mem::replace(up_to, next);
        take_all(fold, templates, trace.get(before..next.min(self.kept)).unwrap_or_default());
        let ended = fold.ended();
        let tail = &tail[before.saturating_sub(self.kept)..next.saturating_sub(self.kept)];
        take_all(fold, templates, tail);
        // A log of no capacity was not asked for; it drops nothing.
        if self.kept > 0 {
            drained.dropped += drained.fold.ended() - ended;
        }
        if let Some(tiles) = self.tiles.get() {
            let next = tiles.next.load(Acquire);
            for row in &tiles.rows[drained.tiles_up_to..next] {
                row.records().for_each(|record| drained.fold.take(&record));
            }
            drained.tiles_up_to = next;
        }
    }
}

/// What the rows begin with: a row, the timestamps that it stands before, and all that comes after.
#[inline(always)]
fn split_first(rows: &[Row]) -> Option<(&Row, &[Row], &[Row])> {
    let (first, rest) = rows.split_first()?;
    let timestamps = if first.is_block() { Block::rows(first.load_block().timestamps) } else { 0 };
    let (timestamps, rest) = rest.split_at_checked(timestamps)?;
    Some((first, timestamps, rest))
}

/// Calls `f` with the spans of a block, in the order of ends. Returns how many they are.
#[inline(always)]
fn each_in_block(
    block: &Row,
    timestamps: &[Row],
    templates: &[PassTemplate],
    f: impl FnMut(&Record),
) -> u64 {
    let Block { template, position, pass, order, layer, .. } = block.load_block();
    let Some(template) = templates.get(template as usize) else { return 0 };
    let timestamp = |i: usize| timestamps[i / 8].timestamp(i);
    template.each_record([pass, order], layer, position, timestamp, f);
    template.spans()
}

/// Calls `f` with all records of some rows, in the order of ends.
fn each_record(mut rows: &[Row], templates: &[PassTemplate], mut f: impl FnMut(&Record)) {
    while let Some((row, timestamps, rest)) = split_first(rows) {
        if row.is_block() {
            each_in_block(row, timestamps, templates, &mut f);
        } else {
            row.records().for_each(|record| f(&record));
        }
        rows = rest;
    }
}

/// The rows up to the first that says how a pass ended, with that one, and how many these are.
fn up_to_pass(rows: &[Row]) -> (Option<&Row>, usize) {
    let mut rest = rows;
    while let Some((row, _, after)) = split_first(rest) {
        rest = after;
        if row.ends_pass() {
            return (Some(row), rows.len() - rest.len());
        }
    }
    (None, rows.len())
}

fn take_all(fold: &mut Fold, templates: &[PassTemplate], mut rows: &[Row]) {
    if let Some(layers) = &mut fold.layers {
        each_record(rows, templates, |record| layers.take(record));
    }
    loop {
        // Read once: it doesn't matter to rows of no pass how the next pass ends.
        rows = take_while(fold, templates, rows, Row::load_plain_outside, Row::is_outside);
        if rows.is_empty() {
            break;
        }
        // Each pass with its own row, which comes last and says where what came before it belongs: so no sums have
        // to wait for it, and to be moved when it comes, which takes longer than all else.
        let (pass, n) = up_to_pass(rows);
        let (of_pass, rest) = rows.split_at(n);
        fold.expect(pass.and_then(Row::load).as_ref());
        take_while(fold, templates, of_pass, Row::load_plain, |_| true);
        rows = rest;
    }
    fold.expect(None);
}

/// Takes rows up to the first that isn't to be taken; `plain` has the timings of most. Returns that one and those
/// after it.
fn take_while<'a>(
    fold: &mut Fold,
    templates: &[PassTemplate],
    mut rows: &'a [Row],
    plain: impl Fn(&Row) -> Option<Timing>,
    is_taken: impl Fn(&Row) -> bool,
) -> &'a [Row] {
    loop {
        rows = take_plain(fold, rows, &plain);
        let Some((row, timestamps, rest)) = split_first(rows).filter(|(row, ..)| is_taken(row))
        else {
            return rows;
        };
        if row.is_brick_kernel() {
            row.load_brick_kernel().iter().for_each(|record| take_labelled(fold, record));
            fold.add_ended(2);
        } else if row.is_block() {
            let ended = each_in_block(row, timestamps, templates, |record| {
                take_labelled(fold, record);
            });
            fold.add_ended(ended);
        } else if let Some(record) = row.load() {
            fold.take(&record);
        }
        rows = rest;
    }
}

/// Takes a span without flags, which the caller counts.
#[inline(always)]
fn take_labelled(fold: &mut Fold, record: &Record) {
    if let Some(span) = record.span().filter(|span| span.kind != SpanKind::Layer) {
        fold.take_span(span.timing(record.pass));
    }
}

/// Takes the plain spans that the rows begin with. Returns the rows after them.
#[inline(never)]
fn take_plain<'a>(
    fold: &mut Fold,
    rows: &'a [Row],
    plain: impl Fn(&Row) -> Option<Timing>,
) -> &'a [Row] {
    let mut rest = rows.iter();
    while let Some(span) = rest.as_slice().first().and_then(&plain) {
        fold.take_span(span);
        rest.next();
    }
    let rest = rest.as_slice();
    fold.add_ended((rows.len() - rest.len()) as u64);
    rest
}

impl Recorder {
    /// Forgets all that was recorded. Spans open now are forgotten too.
    pub(crate) fn reset(&self) {
        let _held = lock(&self.switch);
        self.first_log.store(ThreadLog::next_serial(), Relaxed);
        let generation = self.begin_generation();
        thread::not_within_itself(|| {
            for log in self.all_logs() {
                let mut drained = lock(&log.drained);
                // Its thread may have started it over already.
                if log.generation.load(Relaxed) != generation {
                    // The rest is its own thread's, which starts over when it records again.
                    drained.forget();
                }
            }
        });
        self.written.homeless.store(0, Relaxed);
        self.forget_foreign();
    }

    /// Has bricks summed by layer, too, from here on, or no longer.
    pub(crate) fn sum_layers(&self, sums_layers: bool) {
        // What is adopted from here on asks for itself.
        if self.sums_layers.swap(sums_layers, Relaxed) == sums_layers {
            return;
        }
        self.collect(|mut log| {
            let layers = &mut log.drained.fold.layers;
            *layers = sums_layers.then(|| layers.take().unwrap_or_default());
        });
    }

    pub(crate) fn sums_layers(&self) -> bool {
        self.sums_layers.load(Relaxed)
    }

    /// Calls `f` with what came of each log, as of now. Meanwhile its thread may go on until the
    /// tail is full.
    pub(crate) fn collect(&self, mut f: impl FnMut(Collected<'_>)) {
        // An allocator that records would otherwise wait for itself.
        thread::not_within_itself(|| {
            for log in self.all_logs() {
                let mut drained = lock(&log.drained);
                if log.generation.load(Relaxed) == self.generation.load(Relaxed) {
                    log.drain(&mut drained);
                    f(Collected { log, drained });
                }
            }
        });
    }

    /// Records for which there was no log, or no room.
    pub(crate) fn homeless(&self) -> u64 {
        let generation = self.generation.load(Relaxed);
        let logs = self
            .all_logs()
            .filter(|log| log.generation.load(Relaxed) == generation)
            .map(|log| log.homeless.load(Relaxed));
        self.written.homeless.load(Relaxed) + logs.sum::<u64>()
    }
}

/// What came of one log. Holds it still.
pub(crate) struct Collected<'l> {
    log: &'l ThreadLog,
    pub(super) drained: MutexGuard<'l, Drained>,
}

impl Collected<'_> {
    pub(crate) fn fold(&self) -> &Fold {
        &self.drained.fold
    }

    /// Spans that the trace had no room for.
    pub(crate) fn dropped(&self) -> u64 {
        self.drained.dropped
    }

    /// When its making began and ended.
    pub(crate) fn prepared(&self) -> Option<[u64; 2]> {
        self.drained.prepared
    }

    /// Spans that were begun.
    pub(crate) fn begun(&self) -> u64 {
        self.log.begun.load(Relaxed)
    }

    /// Whether a pass is open.
    pub(crate) fn in_pass(&self) -> bool {
        self.log.pass() != 0
    }

    /// Whether it is the calling thread's.
    pub(crate) fn is_here(&self) -> bool {
        let generation = self.log.generation.load(Relaxed);
        self.log.key.load(Relaxed) == thread::here().key_of(generation)
    }

    /// When the last brick of the thread ended that has it.
    pub(crate) fn last_end(&self) -> u64 {
        self.log.last_end.load(Relaxed)
    }

    /// Layers that cross other layers or bricks.
    pub(crate) fn crossing_layers(&self) -> u64 {
        self.log.crossing_layers.load(Relaxed)
    }

    /// Layers that ended in another pass than they began in.
    pub(crate) fn straddling_layers(&self) -> u64 {
        self.log.straddling_layers.load(Relaxed)
    }

    /// Spans that began in passes which ended before them.
    pub(crate) fn left_open(&self) -> u64 {
        self.log.left_open.load(Relaxed)
    }

    pub(crate) fn forget_tiles(&mut self) {
        self.drained.fold.forget_tiles();
    }

    /// The thread that has this log, without what it left.
    pub(crate) fn lane(&self) -> Lane {
        let Drained { fold, thread, .. } = &*self.drained;
        Lane { serial: fold.log, thread: thread.clone(), records: Vec::new() }
    }

    /// What each thread left that had this log, oldest first.
    pub(crate) fn lanes(&mut self) -> Vec<Lane> {
        let last = self.drained.lane_of(self.log);
        self.drained.former.iter().cloned().chain([last]).collect()
    }
}
