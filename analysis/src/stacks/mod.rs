//! Weighted stacks, from which flamegraphs are drawn: of measured spans, or of a sampled program.
//! [`Stacks`] is the data, [`Class`] the kind of work of a frame, [`diff`] the comparison of shares.

mod class;
pub mod diff;
mod spans;
mod sums;

use std::collections::HashMap;

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
#[derive(Debug, Clone, PartialEq)]
pub struct Stacks {
    /// What the weights count.
    pub unit: Unit,
    /// The frames of all stacks, each once.
    pub frames: Vec<Frame>,
    /// The stacks, in the order in which they were first seen.
    pub stacks: Vec<Stack>,
    /// The number of blocks of time that the run is cut into, to tell how much weights vary within it; 0
    /// if times aren't known.
    pub blocks: usize,
    index: HashMap<Vec<u32>, u32>,
    frame_index: HashMap<Frame, u32>,
}

/// One stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Indices into [`Stacks::frames`], the outermost first.
    pub frames: Vec<u32>,
    /// The weight of exactly this stack, without deeper ones.
    pub weight: u64,
    /// The weight in each block of time.
    pub by_block: Vec<u64>,
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
            stacks: Vec::new(),
            blocks,
            index: HashMap::new(),
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
            let sum = &mut self.stacks[stack].by_block[block];
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
        let number = match self.index.get(frames) {
            Some(&number) => number as usize,
            None => {
                let number = self.stacks.len();
                self.index.insert(frames.to_vec(), number as u32);
                let by_block = vec![0; self.blocks];
                self.stacks.push(Stack { frames: frames.to_vec(), weight: 0, by_block });
                number
            }
        };
        let stack = &mut self.stacks[number];
        stack.weight = stack.weight.saturating_add(weight);
        Some(number)
    }

    /// The weight of all stacks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.stacks.iter().fold(0, |sum, stack| u64::saturating_add(sum, stack.weight))
    }
}
