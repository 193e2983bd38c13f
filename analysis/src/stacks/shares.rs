//! Sums over stacks, by class, brick and function.

use std::collections::HashMap;

use brickscope_profile::Phase;

use super::summary::Share;
use super::{Class, Level, Stacks, Unit};

/// Self weights by class, the largest first, without classes that don't occur.
#[must_use]
pub fn classes(stacks: &Stacks) -> Vec<Share<Class>> {
    let sums = stacks.by_class().into_iter().filter(|sum| sum.weight > 0);
    let mut shares: Vec<Share<Class>> = sums
        .map(|sum| Share {
            name: sum.class,
            phase: None,
            weight: sum.weight,
            self_weight: sum.weight,
            by_block: sum.by_block,
        })
        .collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.weight));
    shares
}

/// The weight in each brick of each phase, without the bricks inside of it, the largest first.
#[must_use]
pub fn bricks(stacks: &Stacks) -> Vec<Share<String>> {
    let mut numbers: HashMap<(Option<Phase>, &str), usize> = HashMap::new();
    let mut shares: Vec<Share<String>> = Vec::new();
    for stack in stacks.iter() {
        let mut phase = None;
        let mut brick = None;
        for frame in stacks.frames_of(stack) {
            match frame.level {
                Level::Phase => {
                    phase = Phase::ALL.into_iter().find(|p| p.to_string() == frame.name)
                }
                Level::Brick => brick = Some(frame.name.as_str()),
                _ => {}
            }
        }
        let Some(brick) = brick else { continue };
        let number = *numbers.entry((phase, brick)).or_insert_with(|| {
            shares.push(Share {
                name: brick.to_owned(),
                phase,
                weight: 0,
                self_weight: 0,
                by_block: vec![0; stacks.blocks],
            });
            shares.len() - 1
        });
        let share = &mut shares[number];
        share.weight = share.weight.saturating_add(stack.weight);
        for (sum, block) in share.by_block.iter_mut().zip(stack.by_block) {
            *sum = u64::saturating_add(*sum, *block);
        }
        let ends = stacks.frames_of(stack).next_back();
        if ends.is_some_and(|last| last.level == Level::Brick) {
            share.self_weight = share.self_weight.saturating_add(stack.weight);
        }
    }
    sort(&mut shares);
    shares
}

/// Functions or, for measured spans, kernels, the largest first.
#[must_use]
pub fn functions(stacks: &Stacks) -> Vec<Share<String>> {
    let level = match stacks.unit {
        Unit::Samples => Level::Function,
        Unit::Nanoseconds => Level::Kernel,
    };
    let sums = stacks.inclusive(level).into_iter();
    let mut shares: Vec<Share<String>> = sums
        .map(|sum| Share {
            name: sum.name.to_owned(),
            phase: None,
            weight: sum.weight,
            self_weight: sum.self_weight,
            by_block: sum.by_block,
        })
        .collect();
    sort(&mut shares);
    shares
}

fn sort(shares: &mut [Share<String>]) {
    shares.sort_by(|a, b| {
        let by_weight = b.weight.cmp(&a.weight);
        by_weight.then_with(|| a.name.cmp(&b.name)).then_with(|| a.phase.cmp(&b.phase))
    });
}
