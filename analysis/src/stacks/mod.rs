//! Weighted stacks, from which flamegraphs are drawn: of measured spans, or of a sampled program.
//! [`Stacks`] is the data, [`Class`] the kind of work of a frame, [`diff`] the comparison of shares.

mod class;
mod device;
pub mod diff;
pub mod insights;
pub mod shares;
mod spans;
pub mod summary;
mod sums;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use serde::{Deserialize, Serialize};

pub use self::class::Class;
pub use self::spans::{By, NOT_KEPT, OUTSIDE, UNATTRIBUTED};
pub use self::sums::{ClassSum, Inclusive};

/// What weights count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Measured time.
    Nanoseconds,
    /// Samples.
    Samples,
}

/// Stacks, each with its time or its number of samples. No stack is in it twice.
///
/// A stack takes four bytes for each of its frames and some sixty besides, since there may be millions: of a large
/// program, most of its samples have a stack of their own.
#[derive(Debug, Clone)]
pub struct Stacks {
    /// What the weights count.
    pub unit: Unit,
    /// The frames of all stacks, each once.
    pub frames: Vec<Frame>,
    /// The number of blocks of time that the run is cut into, to tell how much weights vary within it; 0
    /// if times aren't known.
    pub blocks: usize,
    /// In the order in which they were first seen.
    entries: Vec<Entry>,
    /// The frames of one stack after those of another.
    of_stacks: Vec<u32>,
    /// The weights in blocks, likewise.
    by_block: Vec<u64>,
    /// For each hash of a stack's frames, the newest stack that has it.
    index: HashMap<u64, u32>,
    hasher: RandomState,
    frame_index: HashMap<Frame, u32>,
}

/// A stack as it is kept.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where its frames end.
    end: usize,
    weight: u64,
    /// An older stack with the same hash.
    same_hash: Option<u32>,
}

/// One stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stack<'s> {
    /// Indices into [`Stacks::frames`], the outermost first.
    pub frames: &'s [u32],
    /// The weight of exactly this stack, without deeper ones.
    pub weight: u64,
    /// The weight in each block of time.
    pub by_block: &'s [u64],
}

/// A part of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The name that is shown.
    pub name: String,
    /// What the frame is.
    pub level: Level,
    /// What kind of work it does.
    pub class: Class,
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A thread.
    Thread,
    /// Prefill, decode, or outside of passes.
    Phase,
    /// A transformer layer.
    Layer,
    /// A brick, or `unattributed`.
    Brick,
    /// A kernel.
    Kernel,
    /// A part of a kernel: a thread's share.
    Tile,
    /// A function that was sampled.
    Function,
}

impl Stacks {
    /// No stacks yet.
    #[must_use]
    pub fn new(unit: Unit, blocks: usize) -> Self {
        Self {
            unit,
            frames: Vec::new(),
            blocks,
            entries: Vec::new(),
            of_stacks: Vec::new(),
            by_block: Vec::new(),
            index: HashMap::new(),
            hasher: RandomState::new(),
            frame_index: HashMap::new(),
        }
    }

    /// The index of a frame, which is added if it is new.
    pub fn frame(&mut self, frame: Frame) -> u32 {
        if let Some(&number) = self.frame_index.get(&frame) {
            return number;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.frame_index.insert(frame, number);
        number
    }

    /// Adds `weight` to the stack of these frames, the outermost first, and to a block of time if blocks
    /// are kept. A `weight` of 0 adds nothing.
    ///
    /// # Panics
    ///
    /// If a frame isn't of these stacks, or blocks are kept and `block` is not one of them.
    pub fn add(&mut self, frames: &[u32], weight: u64, block: usize) {
        if let Some(stack) = self.stack_to_add(frames, weight)
            && self.blocks > 0
        {
            let sum = &mut self.by_block[stack * self.blocks..][..self.blocks][block];
            *sum = sum.saturating_add(weight);
        }
    }

    /// Adds `weight` to the stack of these frames if its block of time isn't known. A `weight` of 0 adds
    /// nothing.
    ///
    /// # Panics
    ///
    /// If a frame isn't of these stacks.
    pub fn add_in_no_block(&mut self, frames: &[u32], weight: u64) {
        let _ = self.stack_to_add(frames, weight);
    }

    fn stack_to_add(&mut self, frames: &[u32], weight: u64) -> Option<usize> {
        if weight == 0 {
            return None;
        }
        assert!(frames.iter().all(|&frame| (frame as usize) < self.frames.len()));
        let hash = self.hasher.hash_one(frames);
        let newest = self.index.get(&hash).copied();
        let mut same_hash = newest;
        while let Some(number) = same_hash.map(|number| number as usize) {
            if self.frames_at(number) == frames {
                let sum = &mut self.entries[number].weight;
                *sum = sum.saturating_add(weight);
                return Some(number);
            }
            same_hash = self.entries[number].same_hash;
        }
        let number = self.entries.len();
        self.index.insert(hash, u32::try_from(number).expect("memory ends before"));
        self.of_stacks.extend_from_slice(frames);
        self.entries.push(Entry { end: self.of_stacks.len(), weight, same_hash: newest });
        self.by_block.resize(self.by_block.len() + self.blocks, 0);
        Some(number)
    }

    fn frames_at(&self, number: usize) -> &[u32] {
        let start = number.checked_sub(1).map_or(0, |before| self.entries[before].end);
        &self.of_stacks[start..self.entries[number].end]
    }

    /// The stack with this number, in the order in which they were first seen.
    ///
    /// # Panics
    ///
    /// If there are no more than `number` stacks.
    #[must_use]
    pub fn stack(&self, number: usize) -> Stack<'_> {
        Stack {
            frames: self.frames_at(number),
            weight: self.entries[number].weight,
            by_block: &self.by_block[number * self.blocks..][..self.blocks],
        }
    }

    /// The stacks, in the order in which they were first seen.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Stack<'_>> + ExactSizeIterator + Clone {
        (0..self.len()).map(|number| self.stack(number))
    }

    /// The number of stacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The weight of all stacks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter().fold(0, |sum, stack| u64::saturating_add(sum, stack.weight))
    }
}

impl PartialEq for Stacks {
    fn eq(&self, other: &Self) -> bool {
        (self.unit, &self.frames, self.blocks) == (other.unit, &other.frames, other.blocks)
            && self.iter().eq(other.iter())
    }
}
