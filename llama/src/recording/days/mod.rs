//! A recording that is read while it is written, so that neither the file nor what is kept of it grows with the time.
//!
//! The library in the program writes on; what was read of its file is given back to the disk, all but descriptions of graphs,
//! which are read again when they are needed. When a pass has ended, it is labelled, added to the sums, and offered to a
//! [`Keeper`], which has the slowest passes whole and a sample of the others. Its times between tokens may yet make passes
//! before it slow, so each waits a while.

mod firsts;
mod intervals;
mod items;
mod room;
mod served;
mod trigger;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brickscope::keep::{Chosen, Keeper, Limits, Offer, Timed, When};
use brickscope::{BrickProfiler, Clock, Phase};

use self::intervals::Intervals;
use self::items::{Before, Item, split, whole};
use self::room::Room;
use self::served::Served;
use self::trigger::{Ended, Trigger};
use super::events::{Event, Recorded};
use super::format::{HEADER, MAGIC, MOST, Record, VERSION, halves};
use super::groups::id_of;
use super::part::{Id, Part};
use super::passes::Passes;
use super::read::FileError;
use super::replay::{Graphs, MOST_ROWS, Summed, rows};

/// As much is read at once, if no record is larger.
const CHUNK: usize = 4 << 20;
/// Descriptions of graphs that stay in memory.
const MOST_SHAPES: usize = 16;
/// So many passes wait for what comes after them.
const WAITING: usize = 64;
/// Half as many passes as a profile lists.
const MOST_PASSES: usize = 1 << 15;
/// Of requests, as many bytes are kept beside as this part of those of passes.
const SERVED: usize = 4;
/// The most bytes of passes that don't count, as long as all others are there.
const MOST_OTHERS: usize = 4 << 20;

/// A recording that goes on for days.
#[derive(Debug, Clone)]
pub struct Days {
    file: Arc<File>,
    path: PathBuf,
    clock: Clock,
    recorded: Recorded,
    /// Those of the sequences of the next pass.
    numbers: Vec<(u32, Option<u32>)>,
    /// Up to where the file was read.
    at: u64,
    /// What of it needs room no more.
    room: Room,
    /// Where the descriptions of graphs are, by their numbers.
    described: HashMap<u32, Range<u64>>,
    profilers: BTreeMap<Id, Arc<BrickProfiler>>,
    /// Of a copy: those that its original goes on with, which have the sums up to then.
    of_original: BTreeMap<Id, Arc<BrickProfiler>>,
    summed: BTreeMap<Id, Summed>,
    before: Before,
    intervals: Intervals,
    serial: u64,
    /// The numbers of these are what [`Offer::of`] is.
    ids: Vec<Id>,
    waiting: VecDeque<Waiting>,
    /// Passes of which it isn't decided whether they count, by their numbers.
    not_judged: BTreeMap<u64, Waiting>,
    /// All bytes of what is kept.
    most_bytes: usize,
    keeper: Keeper<Item>,
    /// What has passes before the keeper, if something is to be kept whole.
    trigger: Option<Trigger>,
    /// Passes that don't count. `None` once there was no room for all.
    others: Option<Vec<(u64, Item)>>,
    others_bytes: usize,
    served: Served,
}

/// A pass that may yet be found to be slow.
#[derive(Debug, Clone)]
struct Waiting {
    offer: Offer,
    begin_ns: u64,
    end_ns: u64,
    /// The tokens that came at its end: when the one before had come, and how long ago that was.
    tokens: Vec<(u64, u64)>,
    /// Whether a graph was described in it.
    is_described: bool,
    item: Item,
}

impl Waiting {
    /// For who looks at passes in the order in which they ended. Whether it counts is decided by then.
    fn ended(&self, counts: bool) -> Ended<'_> {
        let Offer { serial, of, .. } = self.offer;
        let of = (counts && !self.is_described).then_some(of);
        let (begin_ns, end_ns) = (self.begin_ns, self.end_ns);
        Ended { serial, begin_ns, end_ns, of, tokens: &self.tokens }
    }
}

impl Days {
    /// Of a file that the library writes, or has begun to. `clock` is the processor's counter since a moment before the program
    /// began ([`Clock::counter_since`]).
    ///
    /// # Errors
    ///
    /// If it can't be opened.
    pub fn follow(path: &Path, clock: Clock, limits: Limits) -> io::Result<Self> {
        Ok(Self {
            file: Arc::new(File::options().read(true).write(true).open(path)?),
            path: path.to_owned(),
            clock,
            recorded: Recorded::default(),
            numbers: Vec::new(),
            at: HEADER as u64,
            room: Room::default(),
            described: HashMap::new(),
            profilers: BTreeMap::new(),
            of_original: BTreeMap::new(),
            summed: BTreeMap::new(),
            before: Before::default(),
            intervals: Intervals::default(),
            serial: 0,
            ids: Vec::new(),
            waiting: VecDeque::new(),
            not_judged: BTreeMap::new(),
            most_bytes: limits.slowest.saturating_add(limits.sampled),
            keeper: Keeper::new(limits),
            trigger: None,
            others: Some(Vec::new()),
            others_bytes: 0,
            served: Served::new(limits.slowest.saturating_add(limits.sampled) / SERVED),
        })
    }

    /// Keeps those passes whole that `when` is true of, or that such a first token waited for, and their neighbours, within the
    /// same `limits` as all others. Said before anything is read.
    #[must_use]
    pub fn watching_for(mut self, when: When, limits: Limits) -> Self {
        let (bytes, others) = limits.with_held();
        self.trigger = Some(Trigger::new(when, bytes));
        self.keeper = Keeper::new(others);
        if when.timed() == Timed::FirstToken {
            self.served.note_over(when.over_ns());
        }
        self
    }

    /// The file, for who gives back what was read.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reads a piece of what was written since. Returns the bytes of the file that nobody needs any more; `None` if nothing new
    /// is there.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or is none of the library's.
    pub fn advance(&mut self) -> Result<Option<Vec<Range<u64>>>, FileError> {
        let Some(used) = self.header()? else { return Ok(None) };
        let from = self.at;
        let mut size = CHUNK;
        loop {
            let here = usize::try_from(used.saturating_sub(from)).unwrap_or(usize::MAX).min(size);
            let mut bytes = vec![0; here];
            self.file.read_exact_at(&mut bytes, from).map_err(|why| self.fault(why.to_string()))?;
            let read = self.add_all(&bytes)?;
            if read > 0 || here == 0 {
                break;
            }
            if here < size || size >= MOST {
                // It has said that it wrote more than that.
                return Err(self.fault("a record is cut off".to_owned()));
            }
            size = size.saturating_mul(2).min(MOST);
        }
        if self.at == from {
            return Ok(None);
        }
        self.settle(false);
        Ok(Some(self.room.free(self.at)))
    }

    /// Tells the library that what was read takes no room any more, so that it may write as much.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn release(&self) -> Result<(), FileError> {
        let written = self.file.write_all_at(&self.at.to_le_bytes(), 40);
        written.map_err(|why| self.fault(why.to_string()))
    }

    /// How much of the file is written. `None` if that isn't more than what was read.
    fn header(&mut self) -> Result<Option<u64>, FileError> {
        let mut header = [0; HEADER];
        match self.file.read_exact_at(&mut header, 0) {
            // It is just being made.
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(why) => return Err(self.fault(why.to_string())),
            Ok(()) => {}
        }
        let (words, _) = header.as_chunks::<8>();
        let word = |nth: usize| words.get(nth).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let used = word(2);
        let is_one = header.starts_with(MAGIC) && word(1) == VERSION;
        if is_one {
            self.recorded.process = u32::try_from(word(3)).unwrap_or(0);
            // They grow where nothing is written.
            self.recorded.refused = word(4);
            self.recorded.missed = word(6);
        }
        if used <= self.at {
            return Ok(None);
        }
        if !is_one {
            let fault = "not a recording of this version of `brickscope run`";
            return Err(self.fault(fault.to_owned()));
        }
        Ok(Some(used))
    }

    fn fault(&self, fault: String) -> FileError {
        FileError::new(&self.path, usize::try_from(self.at).unwrap_or(usize::MAX), fault)
    }

    /// Adds the whole records of these bytes, and returns how many bytes they are.
    fn add_all(&mut self, bytes: &[u8]) -> Result<usize, FileError> {
        let mut read = 0;
        while let Some(([kind, len], record)) = bytes.get(read..).and_then(record_in) {
            let begin = self.at;
            let end = begin + 8 + u64::from(len).next_multiple_of(8);
            let kind = kind.to_le_bytes()[0];
            if kind == Record::Nodes as u8
                && let Some(number) = number_of(record)
            {
                self.described.insert(number, begin..end);
                self.room.keep(begin..end);
            }
            let added = self.recorded.add(kind, record, &mut self.numbers);
            added.map_err(|fault| self.fault(fault))?;
            read += 8 + record.len().next_multiple_of(8);
            self.at = end;
        }
        Ok(read)
    }

    /// Takes the passes that have ended out of the events, and settles the requests that they end.
    fn settle(&mut self, is_last: bool) {
        self.take_ended(is_last);
        let clock = self.clock.clone();
        let at = |count: u64| clock.time_of_count(count).unwrap_or(count);
        let is_whole = self.is_whole();
        self.served.settle(&mut self.recorded.asked, (is_whole, is_last), &at);
    }

    /// Takes the passes that have ended out of the events, and sums them.
    fn take_ended(&mut self, is_last: bool) {
        let events = std::mem::take(&mut self.recorded.events);
        let (items, open) = split(events, is_last);
        self.recorded.events = open;
        let clock = self.clock.clone();
        let at = |count: u64| clock.time_of_count(count).unwrap_or(count);
        let is_whole = self.is_whole();
        self.served.look(&mut self.recorded.asked, is_whole, &at);
        if let Some(trigger) = &mut self.trigger {
            trigger.came_late(self.served.take_late());
        }
        if self.served.is_large() {
            self.others = None;
        }
        let needed: BTreeSet<u32> = items.iter().flat_map(Item::graphs).collect();
        self.describe(&needed);
        self.sum(items);
        self.forget_but(&needed);
    }

    /// Reads the descriptions of these graphs, and forgets others where that makes them many.
    fn describe_few(&mut self, needed: &BTreeSet<u32>) {
        self.describe(needed);
        self.forget_but(needed);
    }

    /// Forgets descriptions of graphs but for these, if there are many.
    fn forget_but(&mut self, needed: &BTreeSet<u32>) {
        if self.recorded.graphs.len() > MOST_SHAPES {
            self.recorded.graphs.retain(|number, _| needed.contains(number));
        }
    }

    /// Reads descriptions of graphs again that aren't in memory.
    fn describe(&mut self, needed: &BTreeSet<u32>) {
        for number in needed {
            if self.recorded.graphs.contains_key(number) {
                continue;
            }
            let Some(range) = self.described.get(number) else { continue };
            let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
            let mut bytes = vec![0; len];
            // Passes whose graphs have no description are counted.
            if self.file.read_exact_at(&mut bytes, range.start).is_ok()
                && let Some(([kind, _], record)) = record_in(&bytes)
            {
                let _ = self.recorded.add(kind.to_le_bytes()[0], record, &mut Vec::new());
            }
        }
    }

    fn sum(&mut self, items: Vec<Item>) {
        for item in &items {
            if let Some(found) = Passes::over(item.events.iter(), false).next() {
                let id = id_of(&self.recorded, &found);
                let clock = &self.clock;
                self.profilers
                    .entry(id)
                    .or_insert_with(|| Arc::new(Summed::profiler(clock.clone())));
            }
        }
        let (recorded, profilers, clock) = (&self.recorded, &self.profilers, &self.clock);
        let at = |count: u64| clock.time_of_count(count).unwrap_or(count);
        let mut all_labels: HashMap<Id, Graphs<'_>> = HashMap::new();
        let mut others = Vec::new();
        for mut item in items {
            let lead = self.before.lead(&item);
            let n = lead.iter().filter(|event| matches!(event, Event::Pass(_))).count();
            let all = lead.iter().chain(&item.events);
            let Some(found) = Passes::over(all, false).nth(n) else { continue };
            let id = id_of(recorded, &found);
            let Some(profiler) = profilers.get(&id) else { continue };
            let sum = self.summed.entry(id).or_default();
            let labels = all_labels.entry(id).or_insert_with(|| Graphs::new(profiler, recorded));
            let serial = self.serial;
            self.serial += 1;
            let judged = sum.add(serial, profiler, labels, &found);
            let [begin_ns, end_ns] = [found.pass.begin, found.pass.end].map(at);
            self.served.add(&found.pass, id, [begin_ns, end_ns]);
            if let Some(trigger) = &mut self.trigger {
                trigger.ran(serial, end_ns);
            }
            let slow = self.intervals.add(&found.pass, end_ns);
            let least = least_bytes(self.most_bytes, rows(&found));
            let is_described = !found.described.is_empty();
            drop(found);
            let mut slow_ns = end_ns.saturating_sub(begin_ns);
            for &(from_ns, ns) in &slow {
                sum.intervals.add(ns);
                slow_ns = slow_ns.max(ns);
                // Nobody had this token while these ran, either.
                let not_judged = self.not_judged.values_mut();
                let all = self.waiting.iter_mut().chain(not_judged);
                for of in all.filter(|of| of.end_ns > from_ns) {
                    of.offer.slow_ns = of.offer.slow_ns.max(ns);
                }
            }
            self.before.went(&mut item);
            let nth = self.ids.iter().position(|of| *of == id).unwrap_or_else(|| {
                self.ids.push(id);
                self.ids.len() - 1
            });
            let of = u32::try_from(nth).unwrap_or(u32::MAX);
            let bytes = item.bytes().max(least);
            // Its phase and its tokens are stated when it is judged.
            let offer = Offer { serial, of, phase: Phase::Decode, tokens: 0, slow_ns, bytes };
            let waiting = Waiting { offer, begin_ns, end_ns, tokens: slow, is_described, item };
            self.not_judged.insert(serial, waiting);
            for (serial, counted) in judged {
                let Some(mut waiting) = self.not_judged.remove(&serial) else { continue };
                if let Some(trigger) = &mut self.trigger {
                    trigger.ended(&waiting.ended(counted.is_some()));
                }
                let Some((phase, tokens)) = counted else {
                    others.push((serial, waiting.item));
                    continue;
                };
                (waiting.offer.phase, waiting.offer.tokens) = (phase, tokens);
                self.waiting.push_back(waiting);
                if self.waiting.len() > WAITING {
                    let first = self.waiting.pop_front();
                    keep(first, self.trigger.as_mut(), &mut self.keeper);
                }
            }
        }
        drop(all_labels);
        others.into_iter().for_each(|(serial, item)| self.add_other(serial, item));
    }

    /// Nothing follows: what waited for it is judged, and nothing waits any more.
    fn judge_all(&mut self) {
        let mut others = Vec::new();
        for (id, summed) in &mut self.summed {
            let Some(profiler) = self.profilers.get(id) else { continue };
            for (serial, counted) in summed.end(profiler) {
                let Some(mut waiting) = self.not_judged.remove(&serial) else { continue };
                if let Some(trigger) = &mut self.trigger {
                    trigger.ended(&waiting.ended(counted.is_some()));
                }
                match counted {
                    Some((phase, tokens)) => {
                        (waiting.offer.phase, waiting.offer.tokens) = (phase, tokens);
                        self.waiting.push_back(waiting);
                    }
                    None => others.push((serial, waiting.item)),
                }
            }
        }
        others.into_iter().for_each(|(serial, item)| self.add_other(serial, item));
    }

    fn add_other(&mut self, serial: u64, item: Item) {
        self.others_bytes += item.bytes();
        if self.keeper.dropped() > 0 || self.others_bytes > MOST_OTHERS {
            self.others = None;
        }
        if let Some(others) = &mut self.others {
            others.push((serial, item));
        }
    }

    /// Whether everything is there that was recorded.
    fn is_whole(&self) -> bool {
        self.keeper.dropped() == 0 && self.others.is_some()
    }

    /// What was recorded, when the program has ended: all of it, if that had room; else what was kept, and the sums of all.
    ///
    /// # Errors
    ///
    /// If the rest of it can't be read.
    pub fn finish(mut self) -> Result<Recorded, FileError> {
        while self.advance()?.is_some() {}
        self.settle(true);
        self.judge_all();
        Ok(self.end(false))
    }

    /// What it would be if the program had ended now: without a pass that has not ended, and with all that wait to be judged.
    /// The recording goes on; until what is returned is dropped, there is twice as much in memory.
    #[must_use]
    pub fn so_far(&self) -> Recorded {
        let mut now = self.clone();
        now.sum_apart();
        now.take_ended(true);
        now.judge_all();
        // Of a pass that goes on.
        now.recorded.events.clear();
        let at = |count: u64| self.clock.time_of_count(count).unwrap_or(count);
        let is_whole = now.is_whole();
        now.served.end_so_far(&mut now.recorded.asked, is_whole, &at);
        now.end(true)
    }

    /// Of a copy: sums what is judged from now on by profilers of its own, since its original will judge it, too. What waits is
    /// labelled anew: names are each profiler's own.
    fn sum_apart(&mut self) {
        let own = |id: &Id| (*id, Arc::new(Summed::profiler(self.clock.clone())));
        let own = self.profilers.keys().map(own).collect();
        self.of_original = std::mem::replace(&mut self.profilers, own);
        let not_judged = std::mem::take(&mut self.not_judged);
        for (serial, Waiting { item, .. }) in &not_judged {
            // One after the other: each prompt of a new length may have graphs of its own.
            self.describe_few(&item.graphs().collect());
            let Some(found) = Passes::over(item.events.iter(), false).next() else { continue };
            let id = id_of(&self.recorded, &found);
            let (Some(profiler), Some(summed)) =
                (self.profilers.get(&id), self.summed.get_mut(&id))
            else {
                continue;
            };
            summed.label_anew(*serial, &mut Graphs::new(profiler, &self.recorded), &found);
        }
        self.not_judged = not_judged;
    }

    fn end(mut self, goes_on: bool) -> Recorded {
        if let Some(trigger) = &mut self.trigger {
            trigger.end(goes_on);
        }
        while let Some(first) = self.waiting.pop_front() {
            keep(Some(first), self.trigger.as_mut(), &mut self.keeper);
        }
        let is_whole = self.is_whole();
        let keeper = std::mem::replace(&mut self.keeper, Keeper::new(Limits::default()));
        let (mut kept, mut chosen) = keeper.finish();
        if let Some(trigger) = self.trigger.take() {
            let of = (&self.ids[..], self.served.asked());
            let fired = trigger.finish(of, &mut kept, &mut chosen);
            self.recorded.fired = Some(if is_whole { fired.all_whole() } else { fired });
        }
        let mut items: Vec<(u64, Item)> =
            kept.into_iter().map(|(offer, item)| (offer.serial, item)).collect();
        if is_whole {
            items.extend(self.others.take().into_iter().flatten());
            items.sort_by_key(|(serial, _)| *serial);
        } else {
            self.recorded.events.clear();
            self.recorded.asked.clear();
        }
        let needed: BTreeSet<u32> = items.iter().flat_map(|(_, item)| item.graphs()).collect();
        self.describe(&needed);
        let mut events = whole(items);
        events.append(&mut self.recorded.events);
        if !is_whole {
            self.recorded.part = Some(self.part(chosen));
        }
        Recorded { events, ..self.recorded }
    }

    fn part(&mut self, chosen: Vec<Chosen>) -> Part {
        let served = std::mem::replace(&mut self.served, Served::new(0));
        let mut part = Part { requests: served.finish(), ..Part::default() };
        for chosen in chosen {
            let id = usize::try_from(chosen.of).ok().and_then(|nth| self.ids.get(nth)).copied();
            let Some(id) = id else { continue };
            let profilers = [self.of_original.get(&id), self.profilers.get(&id)];
            let profilers: Vec<&BrickProfiler> =
                profilers.into_iter().flatten().map(|of| &**of).collect();
            let (Some((first, more)), Some(summed)) =
                (profilers.split_first(), self.summed.remove(&id))
            else {
                continue;
            };
            part.of.insert(id, summed.finish(first, more, chosen));
        }
        part
    }
}

/// Keeps a pass that waits no more, or drops it or another one.
fn keep(first: Option<Waiting>, trigger: Option<&mut Trigger>, keeper: &mut Keeper<Item>) {
    let Some(Waiting { offer, item, .. }) = first else { return };
    match trigger {
        Some(trigger) => trigger.keep(offer, item, keeper),
        None => keeper.add(offer, item),
    }
}

/// What a pass counts at least of so many bytes: a profile has no more passes than it lists, and no more rows of single spans
/// than fit, else some of what was kept would be lost again.
fn least_bytes(all: usize, rows: usize) -> usize {
    (all / MOST_PASSES).max(all.saturating_mul(rows) / MOST_ROWS)
}

/// The kind and the length of the record that bytes begin with, and its own bytes, if they are whole.
fn record_in(bytes: &[u8]) -> Option<([u32; 2], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let [kind, len] = halves(u64::from_le_bytes(*head));
    let len_here = usize::try_from(len).ok()?;
    // With the zeros that fill it up.
    rest.get(..len_here.next_multiple_of(8))?;
    Some(([kind, len], rest.get(..len_here)?))
}

/// The number of the graph that a record describes.
fn number_of(record: &[u8]) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        graph: u32,
    }
    serde_json::from_slice::<Numbered>(record).ok().map(|of| of.graph)
}

#[cfg(test)]
mod tests;
