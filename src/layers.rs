//! Bricks by layer, and kernels by the brick that they ran in. Of spans that were kept they are made when
//! somebody asks; a live view has no spans, and has them summed beside the hot path, as `fold.rs` sums names.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::brick::Phase;
use crate::fold::Slot;
use crate::profile::{BrickKernel, LayerBrick, Name, Span};
use crate::recorder::{Kind, NONE, NameIdx, Record};

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

/// Each kernel that ends is looked up: by a multiplication, since there are no more names than 2^16, and who
/// chooses them slows down nobody but himself.
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

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    count: u64,
    total: u64,
    exclusive: u64,
}

impl Cell {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
    }
}

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
    /// Takes the next row, whatever it is.
    pub(crate) fn take(&mut self, record: &Record) {
        let slot = if record.pass == 0 { Slot::Outside } else { Slot::Open };
        match record.kind {
            Kind::Kernel => {
                if self.waiting.len() == MOST_WAITING {
                    self.forgotten += MOST_WAITING as u64;
                    self.waiting.clear();
                }
                self.waiting.push((record.order, record.name, record.duration));
            }
            Kind::Brick => {
                let sums = &mut self.slots[slot as usize];
                let layer =
                    if record.layer == NONE { NO_LAYER } else { usize::from(record.layer) + 1 };
                sums.cell(layer, record.name).add(Cell {
                    count: 1,
                    total: record.duration,
                    exclusive: record.exclusive,
                });
                // What began later than this brick and has ended lies in it.
                while let Some(&(order, kernel, total)) = self.waiting.last()
                    && order.wrapping_sub(record.order) as i32 > 0
                {
                    self.waiting.pop();
                    let inside = Inside { brick: record.name, kernel };
                    sums.kernels.entry(inside).or_default().add(Cell {
                        count: 1,
                        total,
                        exclusive: 0,
                    });
                }
            }
            Kind::Pass if record.pass != 0 => {
                let phase = Phase::ALL[usize::from(record.name).min(Phase::ALL.len() - 1)];
                self.move_open_to(phase.into());
            }
            Kind::Abandoned => self.abandon(),
            _ => {}
        }
    }

    /// The open pass will never end: what was recorded in it counts outside of passes.
    pub(crate) fn abandon(&mut self) {
        self.move_open_to(Slot::Outside);
    }

    fn move_open_to(&mut self, slot: Slot) {
        self.waiting.clear();
        let mut open = std::mem::take(&mut self.slots[Slot::Open as usize]);
        self.slots[slot as usize].take_all_of(&mut open);
        // With its memory.
        self.slots[Slot::Open as usize] = open;
    }
}

/// The sums of several logs.
#[derive(Default)]
pub(crate) struct LayerTables {
    bricks: BTreeMap<(Option<u8>, usize, NameIdx), Cell>,
    kernels: BTreeMap<(Option<u8>, NameIdx, NameIdx), Cell>,
}

impl LayerTables {
    pub(crate) fn add(&mut self, sums: &LayerSums) {
        let phases = Phase::ALL.map(|phase| (Some(phase as u8), Slot::from(phase)));
        for (phase, slot) in phases.into_iter().chain([(None, Slot::Outside)]) {
            let sums = &sums.slots[slot as usize];
            for (layer, row) in sums.bricks.iter().enumerate() {
                for (cell, name) in row.iter().zip(0..).filter(|(cell, _)| cell.count > 0) {
                    self.bricks.entry((phase, layer, name)).or_default().add(*cell);
                }
            }
            for (&Inside { brick, kernel }, cell) in
                sums.kernels.iter().filter(|(_, cell)| cell.count > 0)
            {
                self.kernels.entry((phase, brick, kernel)).or_default().add(*cell);
            }
        }
    }

    /// Adds the span of a brick.
    pub(crate) fn add_brick(&mut self, phase: Option<Phase>, brick: NameIdx, span: &Span) {
        let layer = span.layer.map_or(NO_LAYER, |layer| usize::from(layer) + 1);
        let key = (phase.map(|phase| phase as u8), layer, brick);
        self.bricks.entry(key).or_default().add(Cell {
            count: 1,
            total: span.duration_ns,
            exclusive: span.exclusive_ns,
        });
    }

    /// The rows of both tables.
    pub(crate) fn finish(self, names: &[Name]) -> (Vec<LayerBrick>, Vec<BrickKernel>) {
        let name = |index: NameIdx| {
            names.get(usize::from(index)).map_or("(other)", |name| &name.name).to_owned()
        };
        let phase = |phase: Option<u8>| phase.map(|phase| Phase::ALL[usize::from(phase)]);
        let bricks = self.bricks.into_iter().map(|((of, layer, brick), cell)| LayerBrick {
            phase: phase(of),
            layer: layer.checked_sub(1).and_then(|layer| u16::try_from(layer).ok()),
            name: name(brick),
            count: cell.count,
            total_ns: cell.total,
            exclusive_ns: cell.exclusive,
        });
        // Kernels of one name that are launched differently have numbers of their own.
        let mut first: HashMap<&str, NameIdx> = HashMap::new();
        let mut by_name: BTreeMap<_, Cell> = BTreeMap::new();
        for ((of, brick, kernel), cell) in self.kernels {
            let known = names.get(usize::from(kernel)).map(|name| name.name.as_str());
            let kernel = known.map_or(kernel, |known| *first.entry(known).or_insert(kernel));
            by_name.entry((of, brick, kernel)).or_default().add(cell);
        }
        let kernels = by_name.into_iter().map(|((of, brick, kernel), cell)| BrickKernel {
            phase: phase(of),
            brick: name(brick),
            kernel: name(kernel),
            count: cell.count,
            total_ns: cell.total,
        });
        (bricks.collect(), kernels.collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::brick::{Source, Work};

    fn record(kind: Kind, order: u32) -> Record {
        Record {
            start: order.into(),
            duration: 1,
            exclusive: 0,
            work: Work::default(),
            pass: 1,
            order,
            name: 0,
            layer: NONE,
            flags: 0,
            kind,
            source: Source::Host,
        }
    }

    #[test]
    fn kernels_that_wait_too_long_for_their_brick_are_counted() {
        let (mut sums, most) = (LayerSums::default(), MOST_WAITING as u32);
        (1..=most).for_each(|order| sums.take(&record(Kind::Kernel, order)));
        assert_eq!(sums.forgotten, 0, "there is room for so many");
        (most + 1..most + 8).for_each(|order| sums.take(&record(Kind::Kernel, order)));
        sums.take(&record(Kind::Brick, 0));
        let in_brick: u64 =
            sums.slots.iter().flat_map(|s| s.kernels.values()).map(|c| c.count).sum();
        assert_eq!((in_brick, sums.forgotten), (7, u64::from(most)));
    }
}
