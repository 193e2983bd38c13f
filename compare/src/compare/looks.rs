//! When sides that run in turns are compared.
//!
//! Who compares after each few pairs and stops at the first verdict has several chances of a false one. So look number n has
//! 1 ÷ (n (n + 1)) of the level; of any number of looks, these add up to less than the level.

use super::{ratio, turns_at_random};

/// After which numbers of pairs there is a look, and which one it is: 5, 7, 10, 14, 19 and so on, each by a third more.
#[must_use]
pub fn look_after(pairs: usize) -> Option<u32> {
    let (mut at, mut look) = (ratio::MIN_PROCESSES, 1);
    while at < pairs {
        at += at.div_ceil(3);
        look += 1;
    }
    (at == pairs).then_some(look)
}

/// For each pair up to the next look whether A goes first: at random, and of all pairs by then either side first equally
/// often, or one time more of an odd number.
#[must_use]
pub fn until_next_look(order: &[bool], seed: u64) -> Vec<bool> {
    let firsts = |order: &[bool]| order.iter().filter(|first| **first).count();
    let next = (order.len() + 1..).find(|&pairs| look_after(pairs).is_some());
    let pairs = next.map_or(1, |next| next - order.len());
    let more = turns_at_random(pairs, seed);
    // Of an odd number, the side that went first more often so far goes first less often now.
    let all = firsts(order) + firsts(&more);
    let is_even = (2 * all).abs_diff(order.len() + pairs) <= 1;
    if is_even { more } else { more.into_iter().map(|first| !first).collect() }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::stats::SplitMix64;

    use super::*;

    #[test]
    fn looks_are_rarer_the_more_pairs_there_are() {
        let looks: Vec<usize> = (0..60).filter(|&pairs| look_after(pairs).is_some()).collect();
        assert_eq!(looks, [5, 7, 10, 14, 19, 26, 35, 47]);
        assert_eq!([5, 7, 47].map(look_after), [Some(1), Some(2), Some(8)]);
        let levels = (1..1000).map(|look| 1.0 / f64::from(look * (look + 1)));
        assert!(levels.sum::<f64>() < 1.0);
    }

    #[test]
    fn at_each_look_either_side_has_gone_first_as_often() {
        for seed in 0..50 {
            let mut random = SplitMix64(seed);
            let mut order = Vec::new();
            while order.len() < 100 {
                order.extend(until_next_look(&order, random.bits()));
                let firsts = order.iter().filter(|first| **first).count();
                assert!(look_after(order.len()).is_some(), "{}", order.len());
                assert!((2 * firsts).abs_diff(order.len()) <= 1, "{firsts} of {}", order.len());
            }
        }
    }
}
