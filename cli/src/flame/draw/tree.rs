//! Stacks as a tree of frames, with their widths and their order.

use std::cmp::Ordering;
use std::collections::HashMap;

use anyhow::{Result, bail};
use brickscope_analysis::stacks::{Class, Frame, Level, Stacks};

/// The frames of one or two sets of stacks, merged if their callers are equal.
pub(super) struct Tree<'s> {
    /// The first is the root, which is the total; parents come before children.
    nodes: Vec<Node<'s>>,
}

struct Node<'s> {
    frame: Option<&'s Frame>,
    /// The weight including the frames above, for each set of stacks.
    weights: [u64; 2],
    children: Vec<usize>,
}

/// The key by which frames are merged: the name and, in one set, the level and class.
type Key<'s> = (&'s str, Option<(Level, Class)>);

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
    pub(super) left_out: LeftOut,
}

/// The frames that are too narrow.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct LeftOut {
    pub(super) frames: u64,
    pub(super) weight: u64,
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
        let mut nodes = vec![Node { frame: None, weights: [0; 2], children: Vec::new() }];
        // Number the frames across all sets, since comparing names is slow.
        let mut numbers: HashMap<Key, usize> = HashMap::new();
        let mut known: HashMap<(usize, usize), usize> = HashMap::new();
        for (side, set) in sets.iter().enumerate() {
            let of = match (sets.len(), side) {
                (1, _) => "",
                (_, 0) => "before: ",
                _ => "after: ",
            };
            let total: u128 = set.stacks.iter().map(|stack| u128::from(stack.weight)).sum();
            if total == 0 {
                bail!("{of}there is nothing to draw: no stack has any weight");
            }
            if u64::try_from(total).is_err() {
                bail!("{of}the weights of the stacks sum up to {total}, more than 64 bits hold");
            }
            let of_set: Vec<usize> = set
                .frames
                .iter()
                .map(|frame| {
                    let next = numbers.len();
                    let kind = (sets.len() == 1).then_some((frame.level, frame.class));
                    *numbers.entry((frame.name.as_str(), kind)).or_insert(next)
                })
                .collect();
            for stack in set.stacks.iter().filter(|stack| stack.weight > 0) {
                let mut at = 0;
                nodes[at].weights[side] += stack.weight;
                for &frame in &stack.frames {
                    let frame = frame as usize;
                    let Some(&number) = of_set.get(frame) else {
                        bail!("{of}a stack has a frame {frame}, of {}", of_set.len());
                    };
                    let frame = &set.frames[frame];
                    at = match known.get(&(at, number)) {
                        Some(&child) => {
                            if nodes[child].frame.is_none_or(|other| told(frame) > told(other)) {
                                nodes[child].frame = Some(frame);
                            }
                            child
                        }
                        None => {
                            let child = nodes.len();
                            nodes.push(Node {
                                frame: Some(frame),
                                weights: [0; 2],
                                children: Vec::new(),
                            });
                            nodes[at].children.push(child);
                            known.insert((at, number), child);
                            child
                        }
                    };
                    nodes[at].weights[side] += stack.weight;
                }
            }
        }
        let mut tree = Self { nodes };
        tree.sort();
        Ok(tree)
    }

    /// Sorts siblings by their names only, so that the same program gives the same flamegraph, whichever
    /// sample came first.
    fn sort(&mut self) {
        for at in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[at].children);
            children.sort_by(|&a, &b| in_order(self.nodes[a].frame, self.nodes[b].frame));
            self.nodes[at].children = children;
        }
    }

    /// Lays out the tree with the weights of set `side` as widths.
    pub(super) fn layout(&self, side: usize) -> Layout<'s> {
        let total = u128::from(self.nodes[0].weights[side]);
        let mut blocks = Vec::new();
        let mut left_out = LeftOut::default();
        // Depth first, without recursion: these stacks may be deeper than our own could get.
        let mut waiting = vec![(0, 0, 0)];
        while let Some((at, depth, start)) = waiting.pop() {
            let Node { frame, weights, children } = &self.nodes[at];
            blocks.push(Block { frame: *frame, depth, start, weights: *weights });
            let width = |child: usize| self.nodes[child].weights[side];
            // Its own weight comes first, as in sorted folded lines.
            let on_it: u64 = children.iter().map(|&child| width(child)).sum();
            let mut x = start + (weights[side] - on_it);
            let first = waiting.len();
            for &child in children {
                let weight = width(child);
                if u128::from(weight) * PARTS >= total {
                    waiting.push((child, depth + 1, x));
                } else if weight > 0 {
                    left_out.weight += weight;
                    left_out.frames += self.frames_in(child, side);
                }
                x += weight;
            }
            waiting[first..].reverse();
        }
        Layout { blocks, left_out }
    }

    /// The number of frames with any weight from `root` upwards.
    fn frames_in(&self, root: usize, side: usize) -> u64 {
        let mut n = 0;
        let mut waiting = vec![root];
        while let Some(at) = waiting.pop() {
            if self.nodes[at].weights[side] > 0 {
                n += 1;
                waiting.extend(&self.nodes[at].children);
            }
        }
        n
    }
}

/// How much is known about a frame besides its name.
fn told(frame: &Frame) -> usize {
    usize::from(frame.level != Level::Function) + usize::from(frame.class != Class::Other)
}

fn in_order(a: Option<&Frame>, b: Option<&Frame>) -> Ordering {
    let (Some(a), Some(b)) = (a, b) else { return a.is_some().cmp(&b.is_some()) };
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
        assert_eq!(layout.left_out, LeftOut { frames: 5, weight: 3 });
        let stacks = folded(&[("a", 19_998), ("b;x", 2)]);
        let layout = Tree::of(&[&stacks]).unwrap().layout(0);
        assert_eq!(layout.left_out, LeftOut::default());
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
