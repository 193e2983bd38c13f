//! Sums of bricks by layer, and of kernels by the brick that they ran in.

use std::collections::{BTreeMap, HashMap};

use crate::brick::Phase;
use crate::name::{Name, NameIdx};
use crate::span::Span;
use crate::sums::{BrickKernel, LayerBrick};

/// The sums of some spans.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    pub count: u64,
    pub total: u64,
    pub exclusive: u64,
}

impl Cell {
    /// The sums of one span.
    pub fn of(total: u64, exclusive: u64) -> Self {
        Self { count: 1, total, exclusive }
    }

    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
    }
}

/// The sums of several logs.
#[derive(Default)]
pub struct LayerTables {
    /// By phase, layer and brick. `None` comes first.
    bricks: BTreeMap<(Option<u8>, Option<u16>, NameIdx), Cell>,
    /// By phase, brick and kernel.
    kernels: BTreeMap<(Option<u8>, NameIdx, NameIdx), Cell>,
}

impl LayerTables {
    /// Adds the span of a brick.
    pub fn add_brick(&mut self, phase: Option<Phase>, brick: NameIdx, span: &Span) {
        let cell = Cell::of(span.duration_ns, span.exclusive_ns);
        self.add_bricks(phase, span.layer, brick, cell);
    }

    /// Adds spans of a brick in a layer, or outside of layers.
    pub fn add_bricks(
        &mut self,
        phase: Option<Phase>,
        layer: Option<u16>,
        brick: NameIdx,
        cell: Cell,
    ) {
        let key = (phase.map(|phase| phase as u8), layer, brick);
        self.bricks.entry(key).or_default().add(cell);
    }

    /// Adds launches of a kernel in a brick.
    pub fn add_kernels(
        &mut self,
        phase: Option<Phase>,
        brick: NameIdx,
        kernel: NameIdx,
        cell: Cell,
    ) {
        let key = (phase.map(|phase| phase as u8), brick, kernel);
        self.kernels.entry(key).or_default().add(cell);
    }

    /// The rows of both tables.
    pub fn finish(self, names: &[Name]) -> (Vec<LayerBrick>, Vec<BrickKernel>) {
        let name = |index: NameIdx| {
            names.get(usize::from(index)).map_or("(other)", |name| &name.name).to_owned()
        };
        let phase = |phase: Option<u8>| phase.map(|phase| Phase::ALL[usize::from(phase)]);
        let bricks = self.bricks.into_iter().map(|((of, layer, brick), cell)| LayerBrick {
            phase: phase(of),
            layer,
            name: name(brick),
            count: cell.count,
            total_ns: cell.total,
            exclusive_ns: cell.exclusive,
        });
        // Kernels of one name that are launched differently have different numbers.
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
