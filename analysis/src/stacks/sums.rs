//! The sums of stacks by frame and by class.

use std::collections::HashMap;

use super::{Class, Frame, Level, Stack, Stacks};

/// The weight of all frames of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inclusive<'a> {
    /// The name.
    pub name: &'a str,
    /// What kind of work it does; if frames of the name differ, that of the first.
    pub class: Class,
    /// The weight of the stacks that contain it, each counted once.
    pub weight: u64,
    /// The weight of the stacks that end with it.
    pub self_weight: u64,
    /// The part of `weight` in each block of time.
    pub by_block: Vec<u64>,
}

/// The weight of all stacks of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassSum {
    /// The class.
    pub class: Class,
    /// The weight of its stacks.
    pub weight: u64,
    /// The part of it in each block of time.
    pub by_block: Vec<u64>,
}

impl Stacks {
    /// The frames of a stack, the outermost first.
    pub fn frames_of<'a>(
        &'a self,
        stack: Stack<'a>,
    ) -> impl DoubleEndedIterator<Item = &'a Frame> + Clone {
        stack.frames.iter().map(|&frame| &self.frames[frame as usize])
    }

    /// Whether there are no stacks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For each name of a frame of this level, the weight of the stacks that contain it and of those that
    /// end with it. The heaviest first; equal ones by name.
    #[must_use]
    pub fn inclusive(&self, level: Level) -> Vec<Inclusive<'_>> {
        let mut sums: Vec<Inclusive<'_>> = Vec::new();
        let mut of_name: HashMap<&str, usize> = HashMap::new();
        // The sum that each frame adds to.
        let of_frame: Vec<Option<usize>> = self
            .frames
            .iter()
            .map(|frame| {
                (frame.level == level).then(|| {
                    *of_name.entry(&frame.name).or_insert_with(|| {
                        sums.push(Inclusive {
                            name: &frame.name,
                            class: frame.class,
                            weight: 0,
                            self_weight: 0,
                            by_block: vec![0; self.blocks],
                        });
                        sums.len() - 1
                    })
                })
            })
            .collect();
        // The index of the stack that was last added to each sum.
        let mut last_seen = vec![usize::MAX; sums.len()];
        for (number, stack) in self.iter().enumerate() {
            for &frame in stack.frames {
                let Some(at) = of_frame[frame as usize] else { continue };
                if std::mem::replace(&mut last_seen[at], number) != number {
                    sums[at].weight = sums[at].weight.saturating_add(stack.weight);
                    add_blocks(&mut sums[at].by_block, stack.by_block);
                }
            }
            if let Some(at) = stack.frames.last().and_then(|&last| of_frame[last as usize]) {
                sums[at].self_weight = sums[at].self_weight.saturating_add(stack.weight);
            }
        }
        // A frame in no stack has no weight.
        sums.retain(|sum| sum.weight > 0);
        sums.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(b.name)));
        sums
    }

    /// The class of a stack, by the classes of its frames; [`Class::Other`] never decides.
    ///
    /// If the innermost class is memory, the system or waiting, the stack has that class, whatever called it.
    /// Otherwise a kernel that the engine named knows better than the functions inside it, which may be
    /// for weights of any kind: the stack has the class of the innermost such kernel. Otherwise it has
    /// the class of the innermost function. So a page fault in a kernel counts as memory, and an unknown
    /// helper counts as the function that calls it.
    #[must_use]
    pub fn class_of(&self, stack: Stack<'_>) -> Class {
        let mut told = self.frames_of(stack).rev().filter(|frame| frame.class != Class::Other);
        let Some(innermost) = told.clone().next() else { return Class::Other };
        if matches!(innermost.class, Class::Memory | Class::System | Class::Waiting) {
            return innermost.class;
        }
        let kernel = told.find(|frame| matches!(frame.level, Level::Kernel | Level::Tile));
        kernel.unwrap_or(innermost).class
    }

    /// The weight of each class, in the order of [`Class::ALL`]. Each stack counts once, for
    /// [its class](Self::class_of).
    #[must_use]
    pub fn by_class(&self) -> Vec<ClassSum> {
        let sum = |class| ClassSum { class, weight: 0, by_block: vec![0; self.blocks] };
        let mut sums = Class::ALL.map(sum);
        for stack in self.iter() {
            let sum = &mut sums[self.class_of(stack) as usize];
            sum.weight = sum.weight.saturating_add(stack.weight);
            add_blocks(&mut sum.by_block, stack.by_block);
        }
        sums.into()
    }

    /// The weight in each block of time; empty if times aren't known.
    #[must_use]
    pub fn block_totals(&self) -> Vec<u64> {
        let mut totals = vec![0; self.blocks];
        self.iter().for_each(|stack| add_blocks(&mut totals, stack.by_block));
        totals
    }
}

fn add_blocks(sums: &mut [u64], blocks: &[u64]) {
    for (sum, block) in sums.iter_mut().zip(blocks) {
        *sum = sum.saturating_add(*block);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Unit;
    use super::*;

    /// A stack of functions, its weight, and its block.
    type Made<'a> = (&'a [(&'a str, Class)], u64, usize);

    fn stacks(list: &[Made<'_>]) -> Stacks {
        let mut stacks = Stacks::new(Unit::Samples, 2);
        for &(names, weight, block) in list {
            let frames: Vec<u32> = names
                .iter()
                .map(|&(name, class)| {
                    stacks.frame(Frame { name: name.to_owned(), level: Level::Function, class })
                })
                .collect();
            stacks.add(&frames, weight, block);
        }
        stacks
    }

    const MAIN: (&str, Class) = ("main", Class::Other);
    const DOT: (&str, Class) = ("vec_dot_q8_0", Class::Quantized);
    const MATMUL: (&str, Class) = ("mul_mat", Class::Matmul);
    const HELP: (&str, Class) = ("help", Class::Other);
    const COPY: (&str, Class) = ("memcpy", Class::Memory);
    const CALL: (&str, Class) = ("syscall", Class::System);

    #[test]
    fn a_function_that_calls_itself_counts_once_in_a_stack() {
        let stacks = stacks(&[
            (&[MAIN, DOT, HELP, DOT], 5, 0),
            (&[MAIN, DOT], 2, 1),
            (&[MAIN, HELP], 1, 1),
            (&[HELP], 1, 1),
        ]);
        let found: Vec<_> = stacks
            .inclusive(Level::Function)
            .into_iter()
            .map(|sum| (sum.name, sum.weight, sum.self_weight, sum.by_block))
            .collect();
        assert_eq!(
            found,
            [
                ("main", 8, 0, vec![5, 3]),
                ("help", 7, 2, vec![5, 2]),
                ("vec_dot_q8_0", 7, 7, vec![5, 2]),
            ]
        );
        assert_eq!(stacks.inclusive(Level::Brick), []);
        assert_eq!(stacks.block_totals(), [5, 4]);
    }

    #[test]
    fn frames_of_one_name_are_one_sum_whatever_their_class() {
        let stacks = stacks(&[(&[HELP], 1, 0), (&[("help", Class::Memory)], 4, 1)]);
        let sums = stacks.inclusive(Level::Function);
        assert_eq!((sums.len(), sums[0].weight, sums[0].class), (1, 5, Class::Other));
    }

    #[test]
    fn the_innermost_frame_of_a_class_decides_for_its_stack() {
        for (frames, class) in [
            (&[MAIN][..], Class::Other),
            (&[], Class::Other),
            (&[MAIN, DOT, HELP], Class::Quantized),
            (&[MAIN, MATMUL, DOT], Class::Quantized),
            (&[MAIN, DOT, MATMUL], Class::Matmul),
            (&[MAIN, DOT, COPY], Class::Memory),
            (&[MAIN, DOT, HELP, CALL, HELP], Class::System),
            (&[CALL, DOT, HELP], Class::Quantized),
        ] {
            let stacks = stacks(&[(frames, 3, 1)]);
            for sum in stacks.by_class() {
                let expected = if sum.class == class { (3, vec![0, 3]) } else { (0, vec![0, 0]) };
                assert_eq!((sum.weight, sum.by_block), expected, "{frames:?}");
            }
        }
    }

    #[test]
    fn a_kernel_that_the_engine_named_knows_better_than_functions_inside_of_it() {
        let mut stacks = Stacks::new(Unit::Samples, 0);
        let mut frame =
            |name: &str, level, class| stacks.frame(Frame { name: name.to_owned(), level, class });
        let gemv = frame("gemv_q8_0_avx2", Level::Kernel, Class::Quantized);
        let dense = frame("gemv_f32_avx2", Level::Kernel, Class::Matmul);
        let norm = frame("rms_norm_avx2", Level::Kernel, Class::Other);
        let rows = frame("gemv_rows", Level::Function, Class::Matmul);
        let fault = frame("clear_page_erms", Level::Function, Class::Memory);
        for (frames, class) in [
            (&[gemv, rows][..], Class::Quantized),
            (&[gemv, rows, fault], Class::Memory),
            (&[norm, rows], Class::Matmul),
            (&[gemv, dense, rows], Class::Matmul),
            (&[fault, gemv, rows], Class::Quantized),
            (&[gemv, fault, rows], Class::Quantized),
        ] {
            let stack = Stack { frames, weight: 1, by_block: &[] };
            assert_eq!(stacks.class_of(stack), class, "{frames:?}");
        }
    }

    #[test]
    fn sums_beyond_what_fits_stay_at_the_most() {
        let stacks = stacks(&[(&[MAIN], u64::MAX, 0), (&[MAIN, DOT], 7, 0)]);
        assert_eq!(stacks.inclusive(Level::Function)[0].weight, u64::MAX);
        assert_eq!(stacks.block_totals(), [u64::MAX, 0]);
    }
}
