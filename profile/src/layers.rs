//! Tables of bricks by layer, and of kernels by the brick that they ran in.

use std::collections::{BTreeMap, HashMap};

use crate::brick::Phase;
use crate::name::{Name, NameIdx};
use crate::span::Span;
use crate::sums::{BrickKernel, LayerBrick};

/// Where what runs outside of layers is summed.
pub const NO_LAYER: usize = 0;

/// How many spans, and their times in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cell {
    pub count: u64,
    pub total: u64,
    pub exclusive: u64,
}

impl Cell {
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
    }
}

/// The sums of several logs.
#[derive(Debug, Default)]
pub struct LayerTables {
    bricks: BTreeMap<(Option<u8>, usize, NameIdx), Cell>,
    kernels: BTreeMap<(Option<u8>, NameIdx, NameIdx), Cell>,
}

impl LayerTables {
    /// Adds spans of a brick. `layer` is 0 for none, and else the layer's index plus 1.
    pub fn add_brick_sum(&mut self, phase: Option<Phase>, layer: usize, name: NameIdx, sum: Cell) {
        self.bricks.entry((phase.map(|phase| phase as u8), layer, name)).or_default().add(sum);
    }

    /// Adds spans of a kernel inside a brick.
    pub fn add_kernel_sum(
        &mut self,
        phase: Option<Phase>,
        brick: NameIdx,
        kernel: NameIdx,
        sum: Cell,
    ) {
        self.kernels.entry((phase.map(|phase| phase as u8), brick, kernel)).or_default().add(sum);
    }

    /// Adds the span of a brick.
    pub fn add_brick(&mut self, phase: Option<Phase>, brick: NameIdx, span: &Span) {
        let layer = span.layer.map_or(NO_LAYER, |layer| usize::from(layer) + 1);
        let sum = Cell { count: 1, total: span.duration_ns, exclusive: span.exclusive_ns };
        self.add_brick_sum(phase, layer, brick, sum);
    }

    /// The rows of both tables.
    pub fn finish(self, names: &[Name]) -> (Vec<LayerBrick>, Vec<BrickKernel>) {
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
