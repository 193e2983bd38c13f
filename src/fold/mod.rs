//! From the rows of a log to sums: what has happened, brick by brick and pass by pass. Runs beside
//! the hot path, never on it.
//!
//! Records come in the order of ends, so the end of a pass comes after the spans in it. Mostly the spans are taken
//! when that end is known, and join its phase at once: see [`Fold::expect`]. Otherwise their sums wait in
//! [`Slot::Open`], so that a profile taken in the middle of a pass adds up, too.

mod apart;
mod layers;
mod slot;
mod sums;

use brickscope_profile::{BrickStats, Disturbance, Phase, Source, Work};

use self::apart::Apart;
pub(crate) use self::layers::LayerSums;
pub(crate) use self::slot::Slot;
use self::sums::Sums;
use crate::row::{
    Counted, Event, NameIdx, PassEnd, Product, Record, SpanKind, Tile, TileWork, Timing, flag,
};

/// How many passes a thread keeps one by one, 8 MiB of them; the sums of all passes are exact in any
/// case.
const MOST_PASSES: usize = if cfg!(miri) { 64 } else { 1 << 16 };
/// The limit when only sums are kept.
const FEW_PASSES: usize = MOST_PASSES / 16;

/// One pass, as read back from a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassRecord {
    pub(crate) serial: u32,
    /// The log it was recorded in.
    pub(crate) log: u32,
    pub(crate) phase: Phase,
    pub(crate) start: u64,
    pub(crate) wall: u64,
    pub(crate) covered: u64,
    pub(crate) tokens: u64,
    pub(crate) position: u64,
    /// `None` if nobody has looked since.
    pub(crate) disturbance: Option<Disturbance>,
}

/// The sums of all passes of one phase.
#[derive(Debug, Clone, Default)]
pub(crate) struct PassSums {
    pub(crate) tokens: u64,
    /// Their count, and their walls; what bricks cover of them as `exclusive`.
    pub(crate) walls: Sums,
    /// How many of them other work disturbed.
    pub(crate) disturbed: u64,
    /// Those that ended since somebody last looked for disturbance.
    unseen: u64,
    /// Those of which it won't be known whether other work disturbed them.
    unknown: u64,
    /// Those of which it is known.
    known: u64,
}

impl PassSums {
    /// Of how many it is not known whether other work disturbed them; `None` if nobody ever looked.
    pub(crate) fn unwatched(&self) -> Option<u64> {
        (self.known + self.unknown > 0).then_some(self.unseen + self.unknown)
    }

    /// Passes that ended since the last look.
    pub(crate) fn unseen(&self) -> u64 {
        self.unseen
    }
}

/// A prompt that is read in one or more passes.
#[derive(Debug, Clone, Copy)]
struct Reading {
    log: u32,
    start: u64,
    end: u64,
    /// Where the next pass has to begin to belong to it.
    position: u64,
}

/// Things that went otherwise than a caller meant. None of them loses a measured time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Oddities {
    pub(crate) ended: u64,
    pub(crate) moved: u64,
    pub(crate) straddling: u64,
    pub(crate) overlapping: u64,
    /// Of those, how often bricks of a device were settled apart from the pass that issued them.
    pub(crate) settled_apart: u64,
    pub(crate) nested_passes: u64,
    pub(crate) abandoned_passes: u64,
    pub(crate) passes_full: u64,
    /// Not counted where no spans are kept.
    pub(crate) take_overs: u64,
}

/// The sums of the tiles of one level.
#[derive(Debug, Default)]
pub(crate) struct TileSums {
    /// One for each tile, or for each run of tiles that were timed together.
    runs: Sums,
    tiles: u64,
}

impl TileSums {
    fn add(&mut self, tile: &Tile) {
        let TileWork { tiles, elements, flops } = tile.work;
        self.runs.add(tile.duration, tile.duration, Work { elements, flops, ..Work::default() });
        self.tiles = self.tiles.saturating_add(tiles);
    }

    /// Adds the runs to `runs`, without their distribution, and the tiles to `tiles`.
    pub(crate) fn add_to(&self, runs: &mut BrickStats, tiles: &mut u64) {
        self.runs.add_without_histogram(runs);
        *tiles = tiles.saturating_add(self.tiles);
    }
}

/// The sums of products that threads shared.
#[derive(Debug, Default)]
pub(crate) struct ProductSums {
    /// Their longest shares.
    longest: Sums,
    offered: u64,
}

impl ProductSums {
    /// Adds the longest shares to `longest`, and the time that all threads had for the products to `offered`.
    pub(crate) fn add_to(&self, longest: &mut BrickStats, offered: &mut u64) {
        self.longest.add_without_histogram(longest);
        *offered = offered.saturating_add(self.offered);
    }
}

/// All that is known of the rows taken so far.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    /// The log whose rows come now.
    pub(crate) log: u32,
    pub(crate) oddities: Oddities,
    apart: Apart,
    /// The first of them.
    pub(crate) passes: Vec<PassRecord>,
    /// The serials of passes whose spans are not wanted, though they may have been kept.
    pub(crate) discarded: Vec<u32>,
    /// The newest of all, and the newest of which it is known what disturbed it.
    newest: Option<PassRecord>,
    looked_at: Option<PassRecord>,
    /// Whether spans are not kept, and few passes are.
    pub(crate) is_small: bool,
    /// Where somebody asked for them.
    pub(crate) layers: Option<Box<LayerSums>>,
    /// Decode passes of one token.
    pub(crate) tokens: Sums,
    /// Prompts that were read to their end.
    prompts: Sums,
    /// The prompt whose pass came last, while nothing else has come.
    reading: Option<Reading>,
    pub(crate) phases: [PassSums; Phase::ALL.len()],
    /// By level.
    tiles: [TileSums; 3],
    products: ProductSums,
    /// By source and [`Slot`], then by name: so that rows of one slot find their table once.
    names: [[Vec<Option<Box<Sums>>>; Slot::ALL.len()]; Source::ALL.len()],
    /// What has sums in the open pass.
    open: Vec<(Source, NameIdx)>,
    /// For how many there is memory to wait in.
    can_wait: usize,
    /// Where what runs in the open pass belongs.
    within: Slot,
    /// The walls of passes that ended since somebody last looked for disturbance.
    unseen_ns: u64,
}

/// The place of a name in a table that grows.
fn entry(sums: &mut Vec<Option<Box<Sums>>>, name: NameIdx) -> &mut Option<Box<Sums>> {
    let index = usize::from(name);
    if index >= sums.len() {
        sums.resize_with(index + 1, || None);
    }
    &mut sums[index]
}

impl Fold {
    /// Spans taken so far.
    pub(crate) fn ended(&self) -> u64 {
        self.oddities.ended
    }

    /// Counts spans that [`take_span`](Self::take_span) took.
    pub(crate) fn add_ended(&mut self, spans: u64) {
        self.oddities.ended += spans;
    }

    /// The log's thread has ended, and its last brick at `last_end`.
    pub(crate) fn end_thread(&mut self, last_end: u64) {
        self.apart.end_thread(self.oddities.ended, last_end);
    }

    /// Another thread has the log from here on.
    pub(crate) fn begin_thread(&mut self) {
        self.apart.begin_thread(self.oddities.ended);
    }

    /// Spans of threads that began no pass, and went on after `first_pass` began. `this`: whether the log's thread is in no
    /// pass now, and when its last brick ended.
    pub(crate) fn spans_without_pass(&self, this: (bool, u64), first_pass: u64) -> u64 {
        self.apart.spans(self.oddities.ended, this, first_pass)
    }

    /// How many spans ended outside of passes, of names of that kind.
    pub(crate) fn spans_outside(&self, is_one: impl Fn(NameIdx) -> bool) -> u64 {
        let outside =
            self.all_sums().filter(|&(name, _, slot, _)| slot == Slot::Outside && is_one(name));
        outside.map(|(.., sums)| sums.count).sum()
    }

    /// `last` is the last of the records that come next: if it says how the open pass ends, the spans before it
    /// join its phase at once.
    pub(crate) fn expect(&mut self, last: Option<&Record>) {
        self.within = match last.filter(|last| last.pass != 0).map(|last| last.event) {
            Some(Event::Pass(PassEnd { phase, .. })) => phase.into(),
            Some(Event::Abandoned) => Slot::Outside,
            _ => Slot::Open,
        };
    }

    /// Takes the next record, whatever it is.
    #[inline(never)]
    pub(crate) fn take(&mut self, record: &Record) {
        self.apart.take(&record.event);
        let odd = &mut self.oddities;
        match &record.event {
            Event::Span(span) => {
                odd.ended += 1;
                odd.moved += u64::from(span.flags & flag::MOVED != 0);
                odd.straddling += u64::from(span.flags & flag::STRADDLING != 0);
                let overlaps = span.flags & flag::OVERLAPPING != 0;
                odd.overlapping += u64::from(overlaps);
                odd.settled_apart += u64::from(overlaps && span.source == Source::HostOrder);
                if span.kind != SpanKind::Layer {
                    self.take_span(span.timing(record.pass));
                }
            }
            Event::Pass(end) => self.take_pass(record.pass, end),
            Event::NestedPass => odd.nested_passes += 1,
            Event::Abandoned => {
                odd.abandoned_passes += 1;
                self.abandon();
            }
            Event::Discarded => self.discard(record.pass),
            Event::LoadUnknown => self.forget_unseen(),
            Event::Load(figures) => self.take_disturbance(figures.disturbance(), false),
            Event::LoadAtMost(figures) => self.take_disturbance(figures.disturbance(), true),
            Event::Counters(counted) => self.take_counters(record.pass, counted),
            // Of interest only beside the spans that were kept.
            Event::HandOff(_) => {}
            Event::TakeOver(_) => odd.take_overs += u64::from(!self.is_small),
            Event::Tile(tile) => {
                if let Some(sums) = self.tiles.get_mut(usize::from(tile.level)) {
                    sums.add(tile);
                }
            }
            Event::Product(Product { longest, offered, .. }) => {
                self.products.longest.add(*longest, *longest, Work::default());
                self.products.offered = self.products.offered.saturating_add(*offered);
            }
        }
    }

    /// Takes a brick or a kernel. The caller counts it.
    #[inline(always)]
    pub(crate) fn take_span(&mut self, span: Timing) {
        if self.take_common_span(span).is_none() {
            // In parts: as a whole it goes by its address, and the compiler then stores it on the common way, too.
            let Timing { duration, exclusive, work, pass, name, source } = span;
            self.take_uncommon_span([duration, exclusive], work, pass, name, source);
        }
    }

    /// Takes it if it is like those before, which nearly all are. Else `None`, and nothing is done.
    #[inline(always)]
    fn take_common_span(&mut self, span: Timing) -> Option<()> {
        let slot = self.slot_of(span.pass);
        let sums = &mut self.names[span.source as usize][slot as usize];
        let sums = sums.get_mut(usize::from(span.name))?.as_deref_mut()?;
        sums.add_common(span.duration, span.exclusive, span.work)
    }

    #[cold]
    #[inline(never)]
    fn take_uncommon_span(
        &mut self,
        [duration, exclusive]: [u64; 2],
        work: Work,
        pass: u32,
        name: NameIdx,
        source: Source,
    ) {
        let slot = self.slot_of(pass);
        let slots = &mut self.names[source as usize];
        let sums = entry(&mut slots[slot as usize], name).get_or_insert_default();
        if sums.count == 0 && slot == Slot::Open {
            self.open.push((source, name));
        }
        if sums.add(duration, exclusive, work) && pass != 0 {
            self.widen_open(source, name, slot);
        }
    }

    /// Has memory for what may have to wait for the end of its pass: in the next one it may be this name, and then
    /// nothing is to be allocated for times like those seen so far.
    #[cold]
    #[inline(never)]
    fn widen_open(&mut self, source: Source, name: NameIdx, slot: Slot) {
        let slots = &mut self.names[source as usize];
        let mut open = entry(&mut slots[Slot::Open as usize], name).take().unwrap_or_else(|| {
            self.can_wait += 1;
            Box::default()
        });
        if let Some(sums) = entry(&mut slots[slot as usize], name) {
            open.histogram.widen_to(&sums.histogram);
        }
        // Those that began to wait at once are in the list, which has had room for them.
        self.can_wait += usize::from(slot == Slot::Open && open.count == 1);
        *entry(&mut slots[Slot::Open as usize], name) = Some(open);
        self.open.reserve(self.can_wait.saturating_sub(self.open.len()));
    }

    #[inline(always)]
    fn slot_of(&self, pass: u32) -> Slot {
        if pass == 0 { Slot::Outside } else { self.within }
    }

    /// Adds what was counted to the sums that the brick went to: if it was taken before it was known how the pass
    /// ends, they still wait.
    fn take_counters(&mut self, pass: u32, counted: &Counted) {
        let slot = self.slot_of(pass);
        let (host, name) = (Source::Host, counted.brick);
        let slot = if self.sums(host, slot, name).is_some() { slot } else { Slot::Open };
        let sums = &mut self.names[host as usize][slot as usize];
        if let Some(Some(sums)) = sums.get_mut(usize::from(name)) {
            sums.counters.get_or_insert_default().add(&counted.reading());
        }
    }

    fn take_pass(&mut self, serial: u32, end: &PassEnd) {
        let PassEnd { phase, start, wall, covered, tokens, position } = *end;
        self.move_open_to(phase.into());
        let sums = &mut self.phases[phase as usize];
        sums.tokens = sums.tokens.saturating_add(tokens);
        sums.walls.add(wall, covered, Work::default());
        sums.unseen += 1;
        self.unseen_ns = self.unseen_ns.saturating_add(wall);
        let pass = PassRecord {
            serial,
            log: self.log,
            phase,
            start,
            wall,
            covered,
            tokens,
            position,
            disturbance: None,
        };
        self.time_tokens(&pass);
        self.newest = Some(pass);
        if self.passes.len() < if self.is_small { FEW_PASSES } else { MOST_PASSES } {
            self.passes.push(pass);
        } else {
            self.oddities.passes_full += 1;
        }
    }

    /// As `latency.rs` does it from the passes that were kept.
    fn time_tokens(&mut self, pass: &PassRecord) {
        let before = self.reading.take();
        if pass.phase == Phase::Prefill {
            let goes_on =
                before.filter(|before| (before.log, before.position) == (pass.log, pass.position));
            self.reading = Some(Reading {
                log: pass.log,
                start: goes_on.map_or(pass.start, |before| before.start),
                end: pass.start.saturating_add(pass.wall),
                position: pass.position.saturating_add(pass.tokens),
            });
            if goes_on.is_some() {
                return;
            }
        } else if pass.tokens == 1 {
            self.tokens.add(pass.wall, pass.wall, Work::default());
        }
        if let Some(Reading { start, end, .. }) = before {
            let wall = end.saturating_sub(start);
            self.prompts.add(wall, wall, Work::default());
        }
    }

    /// The newest pass of which it is known what disturbed it, and the newest.
    pub(crate) fn newest(&self) -> Vec<PassRecord> {
        let looked_at = self
            .looked_at
            .filter(|pass| self.newest.is_none_or(|newest| newest.serial != pass.serial));
        looked_at.into_iter().chain(self.newest).collect()
    }

    /// The passes that come are those of another thread.
    pub(crate) fn forget_newest(&mut self) {
        (self.newest, self.looked_at) = (None, None);
    }

    /// From the begin of each prompt to its end, as far as that is known: the one whose pass came last may
    /// go on.
    pub(crate) fn prompts(&self) -> &Sums {
        &self.prompts
    }

    /// The open pass will never end: what was recorded in it counts outside of passes.
    pub(crate) fn abandon(&mut self) {
        self.move_open_to(Slot::Outside);
    }

    /// What was recorded in the open pass is not wanted.
    fn discard(&mut self, serial: u32) {
        for (source, name) in self.open.drain(..) {
            let slots = &mut self.names[source as usize];
            if let Some(open) = entry(&mut slots[Slot::Open as usize], name) {
                open.clear();
            }
        }
        if !self.is_small {
            self.discarded.push(serial);
        }
    }

    fn move_open_to(&mut self, slot: Slot) {
        for (source, name) in self.open.drain(..) {
            let slots = &mut self.names[source as usize];
            let mut open = entry(&mut slots[Slot::Open as usize], name).take();
            if let Some(open) = &mut open {
                entry(&mut slots[slot as usize], name).get_or_insert_default().merge(open);
                open.clear();
            }
            *entry(&mut slots[Slot::Open as usize], name) = open;
        }
    }

    /// What disturbed the passes that nobody has looked at won't be known.
    pub(crate) fn forget_unseen(&mut self) {
        self.unseen_ns = 0;
        for sums in &mut self.phases {
            sums.unknown += std::mem::take(&mut sums.unseen);
        }
    }

    /// Somebody has looked: the figures are of all passes that ended since the last look. With a pause in them they are
    /// more than that of the passes, so then they can only tell that nothing disturbed these. A look without a figure of
    /// waits tells nothing: the number of threads went beyond what a look reads, for one.
    fn take_disturbance(&mut self, mut disturbance: Disturbance, with_pause: bool) {
        disturbance.passes = self.phases.iter().map(|sums| sums.unseen).sum();
        disturbance.wall_ns = std::mem::take(&mut self.unseen_ns);
        let is_disturbed = disturbance.is_disturbed();
        let tells = is_disturbed
            || disturbance.longest_wait_ns.is_some()
            || disturbance.involuntary_switches.is_some();
        if !tells || with_pause && is_disturbed {
            self.forget_unseen();
            return;
        }
        for sums in &mut self.phases {
            let unseen = std::mem::take(&mut sums.unseen);
            sums.known += unseen;
            sums.disturbed += if is_disturbed { unseen } else { 0 };
        }
        if let Some(newest) = &mut self.newest
            && disturbance.passes > 0
        {
            newest.disturbance = Some(disturbance);
            self.looked_at = Some(*newest);
        }
        let unseen = self.passes.iter_mut().rev().take_while(|pass| pass.disturbance.is_none());
        // Of those beyond the room for passes there is nothing to mark.
        for pass in unseen.take(disturbance.passes as usize) {
            pass.disturbance = Some(disturbance);
        }
    }

    /// The sums of one name, if there are any.
    pub(crate) fn sums(&self, source: Source, slot: Slot, name: NameIdx) -> Option<&Sums> {
        self.names[source as usize][slot as usize].get(usize::from(name))?.as_deref()
    }

    /// The sums of every name that has any.
    pub(crate) fn all_sums(&self) -> impl Iterator<Item = (NameIdx, Source, Slot, &Sums)> {
        let names = self.names.iter().flatten().map(Vec::len).max().unwrap_or(0);
        (0..names as NameIdx).flat_map(move |name| {
            Source::ALL.into_iter().flat_map(move |source| {
                let of_slot =
                    move |slot| Some((name, source, slot, self.sums(source, slot, name)?));
                Slot::ALL.into_iter().filter_map(of_slot)
            })
        })
    }

    pub(crate) fn tiles(&self, level: usize) -> &TileSums {
        &self.tiles[level]
    }

    pub(crate) fn products(&self) -> &ProductSums {
        &self.products
    }

    pub(crate) fn forget_tiles(&mut self) {
        self.tiles = Default::default();
        self.products = ProductSums::default();
    }

    /// Whether the last log that had passes was this one.
    pub(crate) fn has_passes_of(&self, log: u32) -> bool {
        self.passes.last().is_some_and(|pass| pass.log == log)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use brickscope_profile::CounterReading;

    use super::*;
    use crate::row::{NONE, Span};

    #[test]
    fn what_was_counted_in_a_brick_finds_it_though_it_is_known_by_now_how_the_pass_ends() {
        let span = Span {
            kind: SpanKind::Brick,
            start: 1,
            duration: 2,
            exclusive: 2,
            work: Work::default(),
            name: 3,
            layer: NONE,
            flags: 0,
            source: Source::Host,
        };
        let reading = CounterReading { cycles: Some(5), ..CounterReading::default() };
        let end =
            PassEnd { phase: Phase::Decode, start: 1, wall: 2, covered: 2, tokens: 0, position: 0 };
        let record = |event| Record { pass: 7, order: 0, event };
        let brick = record(Event::Span(span));
        let counters = record(Event::Counters(Counted::new(3, &reading)));
        let pass = record(Event::Pass(end));
        let mut fold = Fold::default();
        fold.take(&brick);
        fold.expect(Some(&pass));
        [counters, pass].iter().for_each(|record| fold.take(record));
        let sums = fold.sums(Source::Host, Slot::Decode, 3).expect("it ran in a decode pass");
        assert_eq!(sums.count, 1);
        assert!(sums.counters().is_some());
    }
}
