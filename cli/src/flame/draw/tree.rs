//! Stacks as a tree of frames, with their widths and their order.

use std::cmp::Ordering;
use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use brickscope_analysis::stacks::{Class, Frame, Level, Stack, Stacks};

use crate::flame::summary::Frames;

/// The frames of one or two sets of stacks, merged if their callers are equal.
///
/// The tree itself may have a frame for each of twenty million frames in stacks, and most are too narrow to draw. So it
/// isn't made: stacks in the order of its branches pass along them, and only what is drawn is kept.
pub(super) struct Tree<'s> {
    sets: Vec<Set<'s>>,
    /// The place of each frame among all, by its number.
    places: Vec<u32>,
    /// The stacks of all sets in the order of the branches, each with its set and its number there.
    sorted: Vec<(u8, u32)>,
    totals: [u64; 2],
}

struct Set<'s> {
    stacks: &'s Stacks,
    /// The number of each frame, across all sets.
    numbers: Vec<u32>,
}

/// The key by which frames are merged: the name and, in one set, the level and class.
type Key<'s> = (&'s str, Option<(Level, Class)>);

/// A frame whose stacks are passing.
struct Open {
    number: u32,
    /// Where it is among the blocks, if it will be drawn.
    block: usize,
    /// The frames from it upwards that have any weight.
    frames: u64,
    left_out: Frames,
    /// The set and the number of the stack that its frame is from.
    from: (u8, u32),
}

/// A frame with its place.
pub(super) struct Block<'s> {
    /// `None` for the root.
    pub(super) frame: Option<&'s Frame>,
    pub(super) depth: usize,
    /// Its position from the left, in weight.
    pub(super) start: u64,
    /// The weight including the frames above, for each set of stacks.
    pub(super) weights: [u64; 2],
}

/// The layout of all blocks that are wide enough to draw.
pub(super) struct Layout<'s> {
    /// Parents before children; the root is the first.
    pub(super) blocks: Vec<Block<'s>>,
    /// The frames that are too narrow.
    pub(super) left_out: Frames,
}

/// A frame with less than this fraction of the total is left out: on a screen of 1200 pixels that is an
/// eighth of a pixel. The same limit as `inferno`'s.
const PARTS: u128 = 10_000;

impl<'s> Tree<'s> {
    /// The tree of one set of stacks, or of two. In two, frames are merged by name alone, since files of
    /// folded stacks have neither levels nor classes and would never match stacks that have.
    ///
    /// # Errors
    ///
    /// If a set has no weight, or more than 64 bits can hold.
    pub(super) fn of(sets: &[&'s Stacks]) -> Result<Self> {
        // Number the frames across all sets, since comparing names is slow.
        let mut by_key: HashMap<Key, u32> = HashMap::new();
        let mut of_number: Vec<&Frame> = Vec::new();
        let mut totals = [0; 2];
        let mut numbered = Vec::new();
        let mut sorted = Vec::new();
        for (side, &stacks) in sets.iter().enumerate() {
            let of = match (sets.len(), side) {
                (1, _) => "",
                (_, 0) => "before: ",
                _ => "after: ",
            };
            let total: u128 = stacks.iter().map(|stack| u128::from(stack.weight)).sum();
            if total == 0 {
                bail!("{of}there is nothing to draw: no stack has any weight");
            }
            totals[side] = u64::try_from(total).with_context(|| {
                format!("{of}the weights of the stacks sum up to {total}, more than 64 bits hold")
            })?;
            let numbers = stacks.frames.iter().map(|frame| {
                let kind = (sets.len() == 1).then_some((frame.level, frame.class));
                let number = *by_key.entry((frame.name.as_str(), kind)).or_insert_with(|| {
                    of_number.push(frame);
                    of_number.len() as u32 - 1
                });
                let best = &mut of_number[number as usize];
                if told(frame) > told(best) {
                    *best = frame;
                }
                number
            });
            numbered.push(Set { numbers: numbers.collect(), stacks });
            sorted.extend((0..stacks.len() as u32).map(|number| (side as u8, number)));
        }
        let mut in_place: Vec<u32> = (0..of_number.len() as u32).collect();
        in_place.sort_by(|&a, &b| in_order(of_number[a as usize], of_number[b as usize]));
        let mut places = vec![0; in_place.len()];
        for (place, number) in (0..).zip(in_place) {
            places[number as usize] = place;
        }
        let mut tree = Self { sets: numbered, places, sorted: Vec::new(), totals };
        // Siblings by their names only, so that the same program gives the same flamegraph, whichever sample came first.
        // A name that is a phase in one of two sets stands as one in both.
        // A stack comes before those that go on from it, as in sorted folded lines.
        sorted.sort_unstable_by(|&a, &b| {
            let places = |which| tree.numbers(which).map(|number| tree.places[number as usize]);
            places(a).cmp(places(b)).then(a.cmp(&b))
        });
        tree.sorted = sorted;
        Ok(tree)
    }

    fn stack(&self, (set, number): (u8, u32)) -> Stack<'s> {
        self.sets[usize::from(set)].stacks.stack(number as usize)
    }

    /// The numbers of a stack's frames.
    fn numbers(&self, which: (u8, u32)) -> impl Iterator<Item = u32> {
        let numbers = &self.sets[usize::from(which.0)].numbers;
        self.stack(which).frames.iter().map(|&frame| numbers[frame as usize])
    }

    /// Lays out the tree with the weights of set `side` as widths.
    pub(super) fn layout(&self, side: usize) -> Layout<'s> {
        let root = Block { frame: None, depth: 0, start: 0, weights: [0; 2] };
        let mut layout = Layout { blocks: vec![root], left_out: Frames::default() };
        let mut open = vec![Open {
            number: u32::MAX,
            block: 0,
            frames: 0,
            left_out: Frames::default(),
            from: (0, 0),
        }];
        let mut x = 0;
        for &which in &self.sorted {
            let stack = self.stack(which);
            // What this stack shares with the one before it.
            let common = open[1..].iter().zip(self.numbers(which));
            let common = common.take_while(|(open, number)| open.number == *number).count();
            while open.len() > common + 1 {
                self.close(&mut open, &mut layout.blocks, side);
            }
            let frames = &self.sets[usize::from(which.0)].stacks.frames;
            for (depth, (&frame, number)) in (1..).zip(stack.frames.iter().zip(self.numbers(which)))
            {
                let frame = &frames[frame as usize];
                if depth <= common {
                    // The frame that says most and, of equal ones, that of the first stack.
                    let (block, from) =
                        (&mut layout.blocks[open[depth].block], &mut open[depth].from);
                    let best = block.frame.map_or(0, told);
                    if told(frame) > best || (told(frame) == best && which < *from) {
                        (block.frame, *from) = (Some(frame), which);
                    }
                } else {
                    let block = layout.blocks.len();
                    let left_out = Frames::default();
                    open.push(Open { number, block, frames: 0, left_out, from: which });
                    layout.blocks.push(Block {
                        frame: Some(frame),
                        depth,
                        start: x,
                        weights: [0; 2],
                    });
                }
            }
            for open in &open {
                layout.blocks[open.block].weights[usize::from(which.0)] += stack.weight;
            }
            if usize::from(which.0) == side {
                x += stack.weight;
            }
        }
        while open.len() > 1 {
            self.close(&mut open, &mut layout.blocks, side);
        }
        layout.left_out = open.remove(0).left_out;
        layout
    }

    /// Ends the innermost open frame, and forgets it if it is too narrow.
    fn close(&self, open: &mut Vec<Open>, blocks: &mut Vec<Block<'s>>, side: usize) {
        let (Some(closed), Some(around)) = (open.pop(), open.last_mut()) else { return };
        let weight = blocks[closed.block].weights[side];
        let frames = closed.frames + u64::from(weight > 0);
        around.frames += frames;
        if u128::from(weight) * PARTS >= u128::from(self.totals[side]) {
            around.left_out.frames += closed.left_out.frames;
            around.left_out.weight += closed.left_out.weight;
        } else {
            blocks.truncate(closed.block);
            around.left_out.frames += frames;
            around.left_out.weight += weight;
        }
    }
}

/// How much is known about a frame besides its name.
fn told(frame: &Frame) -> usize {
    usize::from(frame.level != Level::Function) + usize::from(frame.class != Class::Other)
}

fn in_order(a: &Frame, b: &Frame) -> Ordering {
    rank(a)
        .cmp(&rank(b))
        .then_with(|| by_name(&a.name, &b.name))
        .then_with(|| (a.level, a.class).cmp(&(b.level, b.class)))
}

/// The order of phases: as they happen.
fn rank(frame: &Frame) -> u8 {
    match (frame.level, frame.name.as_str()) {
        (Level::Phase, "prefill") => 0,
        (Level::Phase, "decode") => 1,
        (Level::Phase, _) => 2,
        _ => 3,
    }
}

/// Compares names alphabetically, and numbers in them by value: `layer 2` is before `layer 10`.
fn by_name(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (n, m) = (digits(left), digits(right));
        if n > 0 && m > 0 {
            let (number, other) =
                (left[..n].trim_start_matches('0'), right[..m].trim_start_matches('0'));
            let order = number.len().cmp(&other.len()).then_with(|| number.cmp(other));
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (&left[n..], &right[m..]);
            continue;
        }
        let (mut rest, mut others) = (left.chars(), right.chars());
        match (rest.next(), others.next()) {
            (Some(c), Some(d)) if c == d => (left, right) = (rest.as_str(), others.as_str()),
            (Some(c), Some(d)) => return c.cmp(&d),
            // Equal except for leading zeros.
            (None, None) => return a.cmp(b),
            (c, d) => return c.is_some().cmp(&d.is_some()),
        }
    }
}

/// The number of digits at the beginning of `text`.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use brickscope_analysis::stacks::Unit;
    use proptest::prelude::*;

    use super::*;
    use crate::flame::draw::tests::{folded, function};

    fn placed(layout: &Layout) -> Vec<(String, usize, u64, u64)> {
        let name = |block: &Block| block.frame.map_or("all".to_owned(), |f| f.name.clone());
        layout.blocks.iter().map(|b| (name(b), b.depth, b.start, b.weights[0])).collect()
    }

    #[test]
    fn each_frame_lies_on_its_caller_beside_what_the_caller_does_itself() {
        let stacks = folded(&[("a;b", 30), ("a", 10), ("a;c", 20), ("d", 40)]);
        let layout = Tree::of(&[&stacks]).unwrap().layout(0);
        let expected = [("all", 0, 0, 100), ("a", 1, 0, 60), ("b", 2, 10, 30), ("c", 2, 40, 20)];
        let expected = expected.into_iter().chain([("d", 1, 60, 40)]);
        let expected: Vec<_> = expected.map(|(n, d, s, w)| (n.to_owned(), d, s, w)).collect();
        assert_eq!(placed(&layout), expected);
    }

    #[test]
    fn a_frame_of_a_ten_thousandth_is_drawn_and_a_narrower_one_is_counted() {
        let stacks = folded(&[("a", 19_998), ("b;x", 2), ("c;y;z", 1), ("c;y", 0)]);
        let layout = Tree::of(&[&stacks]).unwrap().layout(0);
        let names: Vec<_> = placed(&layout).into_iter().map(|(name, ..)| name).collect();
        // 2 of 20 001 is just below a ten-thousandth.
        assert_eq!(names, ["all", "a"]);
        assert_eq!(layout.left_out, Frames { frames: 5, weight: 3 });
        let stacks = folded(&[("a", 19_998), ("b;x", 2)]);
        let layout = Tree::of(&[&stacks]).unwrap().layout(0);
        assert_eq!(layout.left_out, Frames::default());
        assert_eq!(layout.blocks.len(), 4);
    }

    #[test]
    fn siblings_stand_by_name_and_number_and_phases_as_they_happen() {
        let mut stacks = folded(&[("layer 10", 1), ("layer 2", 1), ("Layer", 1), ("layer 02", 1)]);
        for name in ["outside of passes", "decode", "prefill"] {
            let phase = stacks.frame(Frame { level: Level::Phase, ..function(name) });
            stacks.add(&[phase], 1, 0);
        }
        let layout = Tree::of(&[&stacks]).unwrap().layout(0);
        let names: Vec<_> = placed(&layout).into_iter().map(|(name, ..)| name).skip(1).collect();
        let phases = ["prefill", "decode", "outside of passes"];
        let others = ["Layer", "layer 02", "layer 2", "layer 10"];
        assert_eq!(names, [&phases[..], &others[..]].concat());
    }

    #[test]
    fn refuses_what_has_no_weight_or_too_much() {
        let said = |stacks: &Stacks| Tree::of(&[stacks]).err().map(|error| error.to_string());
        let nothing = Some("there is nothing to draw: no stack has any weight".to_owned());
        assert_eq!(said(&Stacks::new(Unit::Samples, 0)), nothing);
        let much = said(&folded(&[("a", u64::MAX), ("b", 1)])).expect("refused");
        assert!(much.contains("18446744073709551616"), "{much}");
        assert_eq!(said(&folded(&[("a", u64::MAX)])), None);
    }

    proptest! {
        #[test]
        fn children_lie_within_their_parents_and_side_by_side(
            stacks in prop::collection::vec((prop::collection::vec(0..4u8, 0..5), 1..1000u64), 1..40)
        ) {
            let lines: Vec<(String, u64)> = stacks
                .iter()
                .map(|(names, weight)| {
                    let names: Vec<String> = names.iter().map(|n| format!("f{n}")).collect();
                    (names.join(";"), *weight)
                })
                .collect();
            let lines: Vec<(&str, u64)> = lines.iter().map(|(l, w)| (l.as_str(), *w)).collect();
            let stacks = folded(&lines);
            let layout = Tree::of(&[&stacks]).unwrap().layout(0);
            prop_assert_eq!(layout.blocks[0].weights[0], stacks.total());
            let mut path: Vec<&Block> = Vec::new();
            // The end of the previous block at each depth.
            let mut free = [0; 8];
            for block in &layout.blocks {
                path.truncate(block.depth);
                if let Some(parent) = path.last() {
                    let end = parent.start + parent.weights[0];
                    prop_assert!(block.start >= parent.start && block.start + block.weights[0] <= end);
                }
                prop_assert!(block.start >= free[block.depth]);
                free[block.depth] = block.start + block.weights[0];
                path.push(block);
            }
        }
    }
}
