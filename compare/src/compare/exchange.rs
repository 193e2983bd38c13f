//! How rare a difference of pairs is among the orders in which their sides could have run: an exchange of the sides.

use brickscope_profile::stats::student;

use super::trimming::TRIMMED_FROM;
use super::turns::is_balanced;

/// From this many pairs on, it is rare enough that the order within them happens to be the one that puts the sides
/// furthest apart, whatever the noise is: that are 2 of the 252 orders in which either side goes first equally often.
pub(super) const PAIRS_THAT_DECIDE: usize = 9;

/// Up to this many pairs, each balanced order is tried; with more their sums are close to normal.
const EXCHANGED: usize = TRIMMED_FROM - 1;

/// By how much more a difference has to be for the exchange of the sides of pairs to see it, too: from simulated
/// comparisons (see the tests). With fewer pairs the exchange says no more than t.
pub(super) fn of_exchange(pairs: usize) -> f64 {
    if pairs < PAIRS_THAT_DECIDE { 1.0 } else { 1.09 }
}

/// Below this probability by Student's t, a second test has its say: above the levels of all rows.
pub(super) const LOOKS_AGAIN: f64 = 0.02;

/// In which part of the balanced orders the mean of the pairs would be at least as far from 0, if who goes first or
/// second were all that mattered. 0 where no other order would put it further and t has to decide: where all pairs
/// agree or, from [`PAIRS_THAT_DECIDE`] on, where only the opposite order would put it as far.
pub(super) fn exchanged(logs: &[f64], a_first: &[bool]) -> f64 {
    if logs.iter().all(|log| *log > 0.0) || logs.iter().all(|log| *log < 0.0) {
        return 0.0;
    }
    if logs.len() > EXCHANGED {
        return exchanged_many(logs, a_first);
    }
    let sum: f64 = logs.iter().sum();
    let as_far = sum.abs() * (1.0 - 1e-9);
    // One pair stays as it is, since exchanging all changes the sign only. The others in the order of a Gray code
    // (Gray, US patent 2632058, 1953): one exchange from each way to the next.
    let n = logs.len();
    let ways = 1_u32 << (n - 1);
    let mut is_a_first = a_first.to_vec();
    let mut firsts = a_first.iter().filter(|first| **first).count();
    let mut signs = vec![1.0; n];
    let (mut now, mut balanced, mut found) = (sum, 0_u32, 0_u32);
    for way in 1..=ways {
        if is_balanced(firsts, n) {
            balanced += 1;
            found += u32::from(now.abs() >= as_far);
        }
        if way < ways {
            let at = way.trailing_zeros() as usize;
            now -= 2.0 * signs[at] * logs[at];
            signs[at] = -signs[at];
            firsts = if is_a_first[at] { firsts - 1 } else { firsts + 1 };
            is_a_first[at] = !is_a_first[at];
        }
    }
    // Of few pairs, no order is rarer than that. From so many on it is rare enough.
    if found <= 1 && n >= PAIRS_THAT_DECIDE {
        return 0.0;
    }
    f64::from(found) / f64::from(balanced.max(1))
}

/// The same of many pairs, by a double saddlepoint approximation: of the sum's distribution, given how often A goes
/// first (Skovgaard, "Saddlepoint expansions for conditional distributions", 1987). Differences are clipped, so that
/// one odd pair says no more than others. Sums of balanced orders have steps, which are large where differences are of
/// one size; so the sum counts as nearer to 0 by most of half a step.
fn exchanged_many(logs: &[f64], a_first: &[bool]) -> f64 {
    let n = logs.len() as f64;
    let mut sizes: Vec<f64> = logs.iter().map(|log| log.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let most = sizes[sizes.len() - 1 - sizes.len() / 5];
    if most <= 0.0 {
        return 1.0;
    }
    // How much longer the second process of a pair took than the first, from its mean: a cost that all second ones
    // have is the same in all balanced orders. In units of the largest.
    let sign = |first: bool| if first { 1.0 } else { -1.0 };
    let later = |(log, first): (&f64, &bool)| sign(*first) * log.clamp(-most, most) / most;
    let mut later: Vec<f64> = logs.iter().zip(a_first).map(later).collect();
    let mean = later.iter().sum::<f64>() / n;
    later.iter_mut().for_each(|value| *value -= mean);
    let sum: f64 = later.iter().zip(a_first).map(|(value, first)| sign(*first) * value).sum();
    // By how many pairs more A goes first than B: 0, or 1 or −1. Turned around where the sum is negative.
    let turn = if sum < 0.0 { -1.0 } else { 1.0 };
    let surplus = turn * a_first.iter().map(|first| sign(*first)).sum::<f64>();
    let step = 1.5 * later.iter().map(|value| value.abs()).sum::<f64>() / n;
    let off = turn * sum - step;
    if off <= 0.0 {
        return 1.0;
    }
    // Both sums have to be as they are: that of the differences by `at`, that of who goes first by `shift`.
    let exact = 1e-15 * n;
    let shift_at = |at: f64| {
        let end = 2.0 * at + 2.0;
        crossing([-end, end], 0.0, exact, |shift| {
            let sums = Sums::of(&later, at, shift);
            [sums.firsts - surplus, sums.bends[2]]
        })
    };
    let beyond = |at: f64| {
        let sums = Sums::of(&later, at, shift_at(at));
        let [squares, products, ones] = sums.bends;
        [sums.differences - off, squares - products * products / ones]
    };
    let mut high = 1.0;
    while beyond(high)[0] < 0.0 && high < 1e3 {
        high *= 2.0;
    }
    let at = crossing([0.0, high], high / 2.0, exact, beyond);
    let shift = shift_at(at);
    let alone = (surplus / n).atanh();
    // The logarithm of the hyperbolic cosine, which itself may be too large.
    let log_cosh = |x: f64| x.abs() + (-2.0 * x.abs()).exp().ln_1p() - std::f64::consts::LN_2;
    let cosines = later.iter().map(|value| log_cosh(at * value + shift)).sum::<f64>();
    let height = at * off + shift * surplus - cosines;
    let height_alone = alone * surplus - n * log_cosh(alone);
    let bends = Sums::of(&later, at, shift).bends;
    let bend = bends[0] * bends[2] - bends[1] * bends[1];
    let bend_alone = n * (1.0 - alone.tanh().powi(2));
    let root = (2.0 * (height - height_alone)).max(0.0).sqrt();
    let scaled = at * (bend.max(0.0) / bend_alone).sqrt();
    if root < 1e-3 || scaled <= 0.0 {
        return 1.0;
    }
    let density = (-root * root / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let tail = student::two_sided(root, f64::from(u32::MAX)) / 2.0;
    (2.0 * (tail + density * (1.0 / scaled - 1.0 / root))).clamp(0.0, 1.0)
}

/// What orders add up to in which each pair goes one way with a chance by its difference times `at`, and by `shift`.
struct Sums {
    /// By how many pairs more A goes first than B.
    firsts: f64,
    differences: f64,
    /// By how much both grow: the differences by `at`, either by the other's, and `firsts` by `shift`.
    bends: [f64; 3],
}

impl Sums {
    fn of(differences: &[f64], at: f64, shift: f64) -> Self {
        let mut sums = Self { firsts: 0.0, differences: 0.0, bends: [0.0; 3] };
        for value in differences {
            let first = (at * value + shift).tanh();
            let bend = 1.0 - first * first;
            sums.firsts += first;
            sums.differences += value * first;
            sums.bends[0] += value * value * bend;
            sums.bends[1] += value * bend;
            sums.bends[2] += bend;
        }
        sums
    }
}

/// Where a sum that only grows reaches 0 within a bracket, or to within `exact` of that: by Newton's method, and by halving
/// the bracket where a step leaves it or isn't half as long as the one before the last. `sum_and_slope` says both.
fn crossing(
    [mut low, mut high]: [f64; 2],
    start: f64,
    exact: f64,
    sum_and_slope: impl Fn(f64) -> [f64; 2],
) -> f64 {
    let mut at = start;
    let mut steps = [high - low; 2];
    for _ in 0..100 {
        let [sum, slope] = sum_and_slope(at);
        if sum.abs() <= exact {
            break;
        }
        if sum < 0.0 {
            low = at;
        } else {
            high = at;
        }
        let by_newton = at - sum / slope;
        let is_short = (by_newton - at).abs() <= steps[0] / 2.0;
        let next = match is_short && (low..=high).contains(&by_newton) {
            true => by_newton,
            false => low + (high - low) / 2.0,
        };
        steps = [steps[1], (next - at).abs()];
        at = next;
        if steps[1] <= f64::EPSILON * at.abs() {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use brickscope_profile::stats::SplitMix64;

    use super::super::ratio::Ratio;
    use super::super::simulated::{Random, by_turns};
    use super::super::trimming::Trimmed;
    use super::*;

    /// The number of ways to choose.
    fn choose(n: usize, k: usize) -> f64 {
        if k > n { 0.0 } else { (0..k).fold(1.0, |ways, i| ways * (n - i) as f64 / (i + 1) as f64) }
    }

    /// The exact probability of pairs of one size: how often A goes first among those in which the second process took
    /// longer is hypergeometric.
    fn of_one_size(pairs: &[f64], a_first: &[bool]) -> f64 {
        let n = pairs.len();
        let later = pairs.iter().zip(a_first).filter(|(log, first)| (**log > 0.0) == **first);
        let (later, firsts) = (later.count(), n / 2);
        let sum = |both: usize| {
            let against = (firsts - both) as f64;
            let second_longer = 2.0 * both as f64 - later as f64;
            second_longer - 2.0 * against + (n - later) as f64
        };
        let observed = pairs.iter().map(|log| log.signum()).sum::<f64>().abs();
        let ways = |both: usize| choose(later, both) * choose(n - later, firsts - both);
        let as_far = (0..=firsts).filter(|&both| sum(both).abs() >= observed);
        as_far.map(ways).sum::<f64>() / choose(n, firsts)
    }

    #[test]
    fn a_difference_is_as_rare_as_counting_the_balanced_orders_says() {
        // Of eight pairs of one size seven agree. In five the second process took longer: A goes first in four of
        // those, or in one, in 5 + 5 of 70 orders.
        let seven = [1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(exchanged(&seven, &by_turns(8)), 10.0 / 70.0);
        assert!((of_one_size(&seven, &by_turns(8)) - 10.0 / 70.0).abs() < 1e-12);
        // All agree: no order is further, and so few say nothing by that.
        assert_eq!(exchanged(&[0.5, 0.1, 0.2, 0.9, 0.3], &by_turns(5)), 0.0);
        // As many as 24 pairs of one size.
        for against in [1, 2, 3, 4, 5, 6] {
            let pairs: Vec<f64> = (0..24).map(|i| if i < against { -0.2 } else { 0.2 }).collect();
            for a_first in [by_turns(24), (0..24).map(|i| i < 12).collect()] {
                let (p, exact) = (exchanged(&pairs, &a_first), of_one_size(&pairs, &a_first));
                // Hardly too rare, and not at all where a verdict depends on it.
                let least = if exact <= LOOKS_AGAIN / 4.0 { 0.8 } else { 0.65 };
                assert!((least..2.0).contains(&(p / exact)), "{against} of 24: {p} for {exact}");
            }
        }
        // Two states of a machine: differences are of one size, and t takes that for certainty.
        let two: Vec<f64> = (0..20).map(|i| if i < 4 { -0.2 } else { 0.2 }).collect();
        let by_t = Trimmed::mean(&two).unwrap();
        assert!(by_t.error < 1e-15, "{by_t:?}");
        let near: Vec<f64> = two.iter().zip(0..).map(|(d, i)| d + 1e-4 * f64::from(i)).collect();
        let p = Ratio::paired(&near, &by_turns(near.len())).unwrap().probability();
        assert!(p > 0.005, "{p}");
    }

    #[test]
    fn of_all_orders_that_could_have_been_drawn_as_few_are_rare_as_the_probability_says() {
        let mut random = Random(SplitMix64(12));
        let states = |random: &mut Random| if random.uniform() < 0.5 { -1.0 } else { 1.0 };
        for pairs in [9, 10, 12] {
            // How much longer the second process of each pair took, whichever side it was: between two states, or not.
            for is_normal in [false, true] {
                let draw = |_| match is_normal {
                    true => 0.5 + random.normal(),
                    false => states(&mut random) + 1e-6 * random.normal(),
                };
                let later: Vec<f64> = (0..pairs).map(draw).collect();
                let mut found = Vec::new();
                for order in 0..1_u32 << pairs {
                    let a_first: Vec<bool> = (0..pairs).map(|i| order >> i & 1 == 1).collect();
                    if is_balanced(order.count_ones() as usize, pairs) {
                        let log =
                            |(value, first): (&f64, &bool)| if *first { *value } else { -value };
                        let logs: Vec<f64> = later.iter().zip(&a_first).map(log).collect();
                        found.push(exchanged(&logs, &a_first));
                    }
                }
                found.sort_by(f64::total_cmp);
                let agree = found.iter().take_while(|p| **p == 0.0).count();
                assert!(agree <= 2, "{agree} orders in which all pairs agree");
                for (rarer, p) in found.iter().enumerate().skip(agree) {
                    let part = (rarer + 1) as f64 / found.len() as f64;
                    assert!(
                        part <= p + 1e-9,
                        "{pairs} pairs: {part} of the orders have {p} or less"
                    );
                }
            }
        }
    }
}
