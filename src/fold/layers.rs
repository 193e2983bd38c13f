//! Bricks by layer and kernels by brick, for a live view, which keeps no spans: summed beside the hot path, as the
//! parent module sums names. Where spans are kept, the tables are made of those.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use brickscope_profile::Phase;
use brickscope_profile::layers::{Cell, LayerTables};

use super::Slot;
use crate::row::{Event, NONE, NameIdx, Record, Span, SpanKind};

/// Kernels whose brick has not ended; beyond that they belong to none, since nothing around them ends. They are
/// counted.
const MOST_WAITING: usize = 4096;

/// Sums of the rows of one log.
#[derive(Debug, Default)]
pub(crate) struct LayerSums {
    /// By [`Slot`].
    slots: [Sums; Slot::ALL.len()],
    /// Kernels since the last brick that held them all: order, name and duration.
    waiting: Vec<(u32, NameIdx, u64)>,
    /// Kernels that were too many to wait for their brick.
    pub(crate) forgotten: u64,
}

#[derive(Debug, Default)]
struct Sums {
    /// By layer, [`NO_LAYER`] for none, and name.
    bricks: Vec<Vec<Cell>>,
    /// By brick and kernel.
    kernels: HashMap<Inside, Cell, BuildHasherDefault<Mixed>>,
}

/// A brick, and a kernel in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inside {
    brick: NameIdx,
    kernel: NameIdx,
}

impl std::hash::Hash for Inside {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(u32::from(self.brick) << 16 | u32::from(self.kernel));
    }
}

/// Each kernel that ends is looked up: by a multiplication, since there are no more names than 2^16, and colliding names
/// slow only their own process.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write_u32(&mut self, both: u32) {
        // The fraction of the golden ratio; the upper half is mixed best, and tables use both ends.
        let mixed = u64::from(both).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(self.0 as u32 ^ u32::from(byte)));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Where what runs outside of layers is summed.
const NO_LAYER: usize = 0;

impl Sums {
    fn cell(&mut self, layer: usize, name: NameIdx) -> &mut Cell {
        let name = usize::from(name);
        if layer >= self.bricks.len() {
            self.bricks.resize_with(layer + 1, Vec::new);
        }
        let row = &mut self.bricks[layer];
        if name >= row.len() {
            row.resize(name + 1, Cell::default());
        }
        &mut row[name]
    }

    /// Forgets all sums, and keeps the memory.
    fn clear(&mut self) {
        self.bricks.iter_mut().for_each(|row| row.fill(Cell::default()));
        self.kernels.values_mut().for_each(|cell| *cell = Cell::default());
    }

    fn take_all_of(&mut self, other: &mut Self) {
        for (layer, row) in other.bricks.iter_mut().enumerate() {
            for (cell, name) in row.iter_mut().zip(0..) {
                if cell.count > 0 {
                    self.cell(layer, name).add(std::mem::take(cell));
                }
            }
        }
        for (key, cell) in &mut other.kernels {
            if cell.count > 0 {
                self.kernels.entry(*key).or_default().add(std::mem::take(cell));
            }
        }
    }
}

impl LayerSums {
    /// Takes the next record, whatever it is.
    pub(crate) fn take(&mut self, record: &Record) {
        match &record.event {
            Event::Span(span) => self.take_span(record, span),
            Event::Pass(end) => self.move_open_to(end.phase.into()),
            Event::Abandoned => self.abandon(),
            Event::Discarded => self.discard(),
            _ => {}
        }
    }

    fn take_span(&mut self, record: &Record, span: &Span) {
        match span.kind {
            SpanKind::Layer => {}
            SpanKind::Kernel => {
                if self.waiting.len() == MOST_WAITING {
                    self.forgotten += MOST_WAITING as u64;
                    self.waiting.clear();
                }
                self.waiting.push((record.order, span.name, span.duration));
            }
            SpanKind::Brick => {
                let slot = if record.pass == 0 { Slot::Outside } else { Slot::Open };
                let sums = &mut self.slots[slot as usize];
                let layer = if span.layer == NONE { NO_LAYER } else { usize::from(span.layer) + 1 };
                sums.cell(layer, span.name).add(Cell::of(span.duration, span.exclusive));
                // What began later than this brick and has ended lies in it.
                while let Some(&(order, kernel, total)) = self.waiting.last()
                    && order.wrapping_sub(record.order) as i32 > 0
                {
                    self.waiting.pop();
                    let inside = Inside { brick: span.name, kernel };
                    sums.kernels.entry(inside).or_default().add(Cell::of(total, 0));
                }
            }
        }
    }

    /// The open pass will never end: what was recorded in it counts outside of passes.
    pub(crate) fn abandon(&mut self) {
        self.move_open_to(Slot::Outside);
    }

    fn discard(&mut self) {
        self.waiting.clear();
        self.slots[Slot::Open as usize].clear();
    }

    fn move_open_to(&mut self, slot: Slot) {
        self.waiting.clear();
        let mut open = std::mem::take(&mut self.slots[Slot::Open as usize]);
        self.slots[slot as usize].take_all_of(&mut open);
        // With its memory.
        self.slots[Slot::Open as usize] = open;
    }

    /// Adds all but what is of the open pass to `tables`.
    pub(crate) fn add_to(&self, tables: &mut LayerTables) {
        let phases = Phase::ALL.map(|phase| (Some(phase), Slot::from(phase)));
        for (phase, slot) in phases.into_iter().chain([(None, Slot::Outside)]) {
            let sums = &self.slots[slot as usize];
            for (layer, row) in sums.bricks.iter().enumerate() {
                let layer = layer.checked_sub(1).map(|layer| layer as u16);
                for (cell, name) in row.iter().zip(0..).filter(|(cell, _)| cell.count > 0) {
                    tables.add_bricks(phase, layer, name, *cell);
                }
            }
            for (inside, cell) in sums.kernels.iter().filter(|(_, cell)| cell.count > 0) {
                tables.add_kernels(phase, inside.brick, inside.kernel, *cell);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use brickscope_profile::{Source, Work};

    use super::*;

    fn record(kind: SpanKind, order: u32) -> Record {
        let span = Span {
            kind,
            start: order.into(),
            duration: 1,
            exclusive: 0,
            work: Work::default(),
            name: 0,
            layer: NONE,
            flags: 0,
            source: Source::Host,
        };
        Record { pass: 1, order, event: Event::Span(span) }
    }

    #[test]
    fn kernels_that_wait_too_long_for_their_brick_are_counted() {
        let (mut sums, most) = (LayerSums::default(), MOST_WAITING as u32);
        (1..=most).for_each(|order| sums.take(&record(SpanKind::Kernel, order)));
        assert_eq!(sums.forgotten, 0, "there is room for so many");
        (most + 1..most + 8).for_each(|order| sums.take(&record(SpanKind::Kernel, order)));
        sums.take(&record(SpanKind::Brick, 0));
        let in_brick: u64 =
            sums.slots.iter().flat_map(|s| s.kernels.values()).map(|c| c.count).sum();
        assert_eq!((in_brick, sums.forgotten), (7, u64::from(most)));
    }
}
