//! One record of a log, as its own thread writes it and as anyone reads it back.

use std::sync::atomic::Ordering::Relaxed;

use super::NameIdx;
use crate::brick::{Source, Work};
use crate::sync::AtomicU64;

/// A cache line: start, duration, exclusive, elements, flops, bytes, then
/// `pass << 32 | layer << 16 | name` and `order << 32 | flags << 16 | source << 8 | kind`.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Row([AtomicU64; 8]);

impl Default for Row {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// What a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A brick: takes part in exclusive time.
    Brick = 0,
    /// A kernel launch inside a brick: detail, which explains no time that its brick doesn't.
    Kernel = 1,
    /// A layer around bricks: likewise.
    Layer = 2,
    /// A pass that ended: its wall, and what its bricks cover of it as `exclusive`; tokens as
    /// `elements`, the position as `flops`, the phase as `name`.
    Pass = 3,
    /// A pass that never ended: what was recorded in it counts outside of passes.
    Abandoned = 4,
    /// A tile; its level as `name`.
    Tile = 5,
}

impl Kind {
    /// Whether the trace shows it as a span.
    pub(crate) fn is_span(self) -> bool {
        matches!(self, Self::Brick | Self::Kernel | Self::Layer)
    }

    fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Brick,
            1 => Self::Kernel,
            2 => Self::Layer,
            3 => Self::Pass,
            4 => Self::Abandoned,
            _ => Self::Tile,
        }
    }
}

/// What went otherwise than its caller meant. None of it loses a measured time.
pub(crate) mod flag {
    /// It ended on another thread than it began on.
    pub(crate) const MOVED: u16 = 1;
    /// It began and ended in different passes.
    pub(crate) const STRADDLING: u16 = 2;
    /// It overlaps another brick without nesting.
    pub(crate) const OVERLAPPING: u16 = 4;
    /// A pass was begun inside this one.
    pub(crate) const NESTED_PASS: u16 = 8;
}

/// One record, read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) start: u64,
    pub(crate) duration: u64,
    pub(crate) exclusive: u64,
    pub(crate) work: Work,
    pub(crate) pass: u32,
    /// Its place in the order of begins; its place in the log is that of ends.
    pub(crate) order: u32,
    pub(crate) name: NameIdx,
    pub(crate) layer: u16,
    pub(crate) flags: u16,
    pub(crate) kind: Kind,
    pub(crate) source: Source,
}

impl Record {
    /// Inlined, so that what is constant at the caller is packed by the compiler.
    #[inline(always)]
    pub(super) fn packed(&self) -> [u64; 8] {
        let Self { start, duration, exclusive, work, .. } = *self;
        let place = u64::from(self.pass) << 32 | u64::from(self.layer) << 16 | u64::from(self.name);
        let what = u64::from(self.order) << 32
            | u64::from(self.flags) << 16
            | (self.source as u64) << 8
            | self.kind as u64;
        [start, duration, exclusive, work.elements, work.flops, work.bytes, place, what]
    }
}

impl Row {
    #[inline(always)]
    pub(super) fn store(&self, values: [u64; 8]) {
        for (cell, value) in self.0.iter().zip(values) {
            cell.store(value, Relaxed);
        }
    }

    /// Whether it is a brick or a kernel, timed by the host's clock, of which there is nothing else
    /// to tell: nearly all rows are.
    #[inline(always)]
    pub(super) fn is_ordinary(&self) -> bool {
        const KERNEL: u64 = Kind::Kernel as u64;
        // Flags, source and all bits of the kind but the one that tells kernels from bricks.
        self.0[7].load(Relaxed) & (0xffff_ffff & !KERNEL) == 0
    }

    #[inline(always)]
    pub(super) fn load(&self) -> Record {
        let [start, duration, exclusive, elements, flops, bytes, place, what] =
            std::array::from_fn(|i| self.0[i].load(Relaxed));
        Record {
            start,
            duration,
            exclusive,
            work: Work { elements, flops, bytes },
            pass: (place >> 32) as u32,
            order: (what >> 32) as u32,
            name: place as u16,
            layer: (place >> 16) as u16,
            flags: (what >> 16) as u16,
            kind: Kind::from_bits(what as u8),
            source: if (what >> 8) as u8 == 0 { Source::Host } else { Source::HostOrder },
        }
    }
}
