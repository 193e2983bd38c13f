//! Finds where the level of a series of figures changed for good.
//!
//! The method is that of performance change points in CI: find the place that splits a series best, ask
//! whether chance would do as well, and repeat in the parts (Matteson and James, "A nonparametric approach
//! for multiple change point analysis of multivariate data", JASA 109, 2014; Daly et al., "The use of
//! change point detection to identify software performance regressions in a continuous integration
//! system", ICPE 2020; Fleming and Kołaczkowski, "Hunter: using change point detection to hunt for
//! performance regressions", ICPE 2023, now Apache Otava). Five things differ, the last of them below:
//!
//! - Only levels are compared, by means of clipped scores, since a change of the spread is no regression.
//!   A score is a figure's logarithm minus the median, in robust standard deviations (the median absolute
//!   deviation × 1.4826), limited to ±3: so one disturbed run, however bad, weighs no more than one at the
//!   edge of the noise (Huber, "Robust estimation of a location parameter", 1964).
//! - A level that went and came back is searched for as well, by a pair of places at once, as in circular
//!   binary segmentation (Olshen et al., Biostatistics 5, 2004): the longer the series, the less of it a
//!   single split sees, a weakness that the authors of Hunter describe.
//! - The test is by permutation, which assumes nothing about the noise except that its order is random. Its
//!   generator is seeded: the same series gives the same answer. Hunter gave permutations up because theirs
//!   didn't.
//! - At the end each place is searched for again between its neighbours (Bai, "Estimating multiple breaks
//!   one at a time", Econometric Theory 13, 1997), since the first was found before the others were known,
//!   and with a loss that outliers don't move.
//!
//! Scores, their centre and their scale don't depend on the order of the series, so the test is exact: of
//! series in random order, at most 2 × [`ALPHA`] get a change.
//!
//! But on a shared machine the order is not random even without any change of the program: what disturbs one
//! run is still there for the next, and speed drifts. So a change also has to be larger than the variation
//! within levels: the widest swing between medians of [`LEAST_SEGMENT`] neighbours of one level, anywhere
//! in the series, widened as far as neighbours are alike (`persistence`). That can only remove changes,
//! so the bound above still holds. All changes are checked together, when they are known, since any that
//! was not yet found would be part of a swing.
//!
//! Last, a machine may have two states, such as two bandwidths of its memory, and stay in each for some runs. Then its
//! levels are real, and no change of a program. Figures that go back and forth between two levels get no change at
//! all, but a sentence ([`two_states`]).

use super::{SplitMix64, mean, median};

/// The least points of a segment between two changes: enough to outvote one odd point.
pub const LEAST_SEGMENT: usize = 3;

/// The least points of a series. In shorter ones no order is rare enough: with 12 points, two groups of six
/// that don't overlap are 2 of 924 splits, 0.0022; with 11 points, 2 of 462, 0.0043.
pub const LEAST_POINTS: usize = 12;

/// The largest probability at which chance may find a split as good as one that counts; the same for a
/// level that went and came back.
pub const ALPHA: f64 = 0.004;

/// Random orders per test: the least `p` is one in 2000.
const PERMUTATIONS: u32 = 1_999;

/// The most robust standard deviations from the median that a figure counts as.
const CLIP: f64 = 3.0;

/// A place where the level changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The first point of the new level.
    pub at: usize,
    /// The part of all orders of the points, as sampled, that split at least as well.
    pub p: f64,
}

/// Finds where the level of `values` changed, first to last. Values must be above 0.
#[must_use]
pub fn steps(values: &[f64]) -> Vec<Step> {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    if logs.iter().any(|log| !log.is_finite()) {
        return Vec::new();
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut parts = vec![(0, logs.len())];
    while let Some((mut start, end)) = parts.pop() {
        let places = split(&logs[start..end]);
        let offset = start;
        for step in &places {
            let at = offset + step.at;
            parts.push((start, at));
            steps.push(Step { at, ..*step });
            start = at;
        }
        if !places.is_empty() {
            parts.push((start, end));
        }
    }
    steps.sort_by_key(|step| step.at);
    settle(&logs, &mut steps);
    while let Some(weak) = weak(&logs, &steps) {
        steps.remove(weak);
        settle(&logs, &mut steps);
    }
    steps
}

/// The two levels of a series that goes back and forth between them: all its figures lie near one of the two, far
/// from the other, and it goes from one to the other at least three times. A change that stays goes once, one that is
/// taken back twice.
#[must_use]
pub fn two_states(values: &[f64]) -> Option<[f64; 2]> {
    /// The levels are so many times as far apart as their figures are spread.
    const APART: f64 = 4.0;
    /// Figures between the levels, as a part of all: runs during which the state changed.
    const BETWEEN: usize = 10;
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    if logs.len() < LEAST_POINTS || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    // The split with the least squares about two means (Fisher, "On grouping for maximum homogeneity", 1958).
    let mut sorted = logs.clone();
    sorted.sort_by(f64::total_cmp);
    let squares = |part: &[f64]| {
        let mean = mean(part).unwrap_or(0.0);
        part.iter().map(|log| (log - mean) * (log - mean)).sum::<f64>()
    };
    let (_, at) = (LEAST_SEGMENT..=sorted.len() - LEAST_SEGMENT)
        .map(|at| (squares(&sorted[..at]) + squares(&sorted[at..]), at))
        .min_by(|a, b| a.0.total_cmp(&b.0))?;
    let (low, high) = sorted.split_at(at);
    let (centre_low, centre_high) = (median(low)?, median(high)?);
    let spread = |part: &[f64], centre: f64| {
        let off: Vec<f64> = part.iter().map(|log| (log - centre).abs()).collect();
        median(&off).map(|off| 1.4826 * off)
    };
    let widest = spread(low, centre_low)?.max(spread(high, centre_high)?);
    let distance = centre_high - centre_low;
    if distance <= APART * widest || distance <= 0.0 {
        return None;
    }
    // Neither near one nor near the other.
    let state = |log: f64| {
        let part = (log - centre_low) / distance;
        if part < 0.35 { Some(false) } else { (part > 0.65).then_some(true) }
    };
    let states: Vec<bool> = logs.iter().filter_map(|log| state(*log)).collect();
    if (logs.len() - states.len()) * BETWEEN > logs.len() {
        return None;
    }
    // A single odd run is no state.
    let mut stays: Vec<bool> =
        states.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect();
    stays.dedup();
    (stays.len() > 3).then(|| [centre_low.exp(), centre_high.exp()])
}

/// Moves each place given the others; twice, since they affect each other.
fn settle(logs: &[f64], steps: &mut [Step]) {
    for _ in 0..2 {
        for i in 0..steps.len() {
            let start = if i == 0 { 0 } else { steps[i - 1].at };
            let end = steps.get(i + 1).map_or(logs.len(), |next| next.at);
            steps[i].at = start + settled(&logs[start..end], steps[i].at - start);
        }
    }
}

/// The smallest of the steps, if the levels between them vary as much within themselves.
fn weak(logs: &[f64], steps: &[Step]) -> Option<usize> {
    let starts = [0].into_iter().chain(steps.iter().map(|step| step.at));
    let ends = steps.iter().map(|step| step.at).chain([logs.len()]);
    let levels: Vec<&[f64]> = starts.zip(ends).map(|(start, end)| &logs[start..end]).collect();
    let medians: Vec<f64> = levels.iter().filter_map(|level| median(level)).collect();
    let sizes = medians.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    let (least, size) = sizes.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let swing = levels.iter().map(|level| swing(level)).fold(0.0, f64::max);
    (size <= swing * persistence(&levels)).then_some(least)
}

/// The largest distance between medians of neighbouring points within a level.
fn swing(level: &[f64]) -> f64 {
    let medians = level.windows(LEAST_SEGMENT).filter_map(median);
    let (low, high) = medians
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), m| (low.min(m), high.max(m)));
    (high - low).max(0.0)
}

/// How much more a mean wanders than that of independent points, if each point keeps the part φ of the one
/// before: √((1 + φ) ÷ (1 − φ)) (Bayley and Hammersley, "The 'effective' number of independent observations
/// in an autocorrelated time series", 1946). φ is estimated from all levels together, from clipped
/// deviations from their medians.
fn persistence(levels: &[&[f64]]) -> f64 {
    // So few points can't estimate more than this, and the factor would grow without bounds.
    const MOST: f64 = 0.8;
    let off = |level: &&[f64]| {
        let centre = median(level).unwrap_or(0.0);
        level.iter().map(|log| log - centre).collect::<Vec<f64>>()
    };
    let mut off: Vec<Vec<f64>> = levels.iter().map(off).collect();
    let sizes: Vec<f64> = off.iter().flatten().map(|off| off.abs()).collect();
    let most = CLIP * 1.4826 * median(&sizes).unwrap_or(0.0);
    let (mut products, mut squares) = (0.0, 0.0);
    for level in &mut off {
        level.iter_mut().for_each(|off| *off = off.clamp(-most, most));
        let mean = mean(level).unwrap_or(0.0);
        level.iter_mut().for_each(|off| *off -= mean);
        products += level.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
        squares += level.iter().map(|off| off * off).sum::<f64>();
    }
    if squares <= 0.0 {
        return 1.0;
    }
    let part = (products / squares).clamp(0.0, MOST);
    ((1.0 + part) / (1.0 - part)).sqrt()
}

/// The one or two places that split these points better than chance would, if any.
fn split(logs: &[f64]) -> Vec<Step> {
    if logs.len() < LEAST_POINTS {
        return Vec::new();
    }
    let Some(scores) = scores(logs) else { return Vec::new() };
    let split = (best_split as fn(&[f64]) -> Option<Found>, has_split as Reaches, 1);
    for (search, reaches, places) in [split, (best_bump, has_bump, 2)] {
        let Some(found) = search(&scores) else { continue };
        if let Some(p) = p_value(&scores, found.size, reaches) {
            return found.at[..places].iter().map(|&at| Step { at, p }).collect();
        }
    }
    Vec::new()
}

/// Where the level of these points changes, given that it does and that `at` is near: the place with the
/// least loss about the medians of both sides. The loss is the square up to [`CLIP`] deviations, and
/// constant beyond (Fearnhead and Rigaill, "Changepoint detection in the presence of outliers", JASA 114,
/// 2019), so that an odd point right before the place doesn't become part of the new level.
fn settled(logs: &[f64], at: usize) -> usize {
    let Some((before, after)) = logs.split_at_checked(at) else { return at };
    let (Some(low), Some(high)) = (median(before), median(after)) else { return at };
    let sides = before.iter().map(|log| log - low).chain(after.iter().map(|log| log - high));
    let off: Vec<f64> = sides.map(f64::abs).collect();
    let most = CLIP * 1.4826 * median(&off).unwrap_or(0.0);
    let loss = |log: f64, centre: f64| (log - centre).powi(2).min(most * most);
    // How the loss changes as one point after the other moves to the side before.
    let mut gain = 0.0;
    let mut best: Option<(f64, usize)> = None;
    for (i, &log) in logs.iter().enumerate().take(logs.len().saturating_sub(LEAST_SEGMENT)) {
        gain += loss(log, high) - loss(log, low);
        if i + 1 >= LEAST_SEGMENT && best.is_none_or(|(most, _)| gain > most) {
            best = Some((gain, i + 1));
        }
    }
    // If nothing differs, or the best place is the present one, it stays.
    best.filter(|_| most > 0.0).map_or(at, |(_, at)| at)
}

/// Clipped scores around their mean; `None` if all figures are the same.
fn scores(logs: &[f64]) -> Option<Vec<f64>> {
    let centre = median(logs)?;
    let off: Vec<f64> = logs.iter().map(|log| (log - centre).abs()).collect();
    // If most figures are the same to the bit, the median deviation is 0 and the mean deviation is not.
    let scale = match median(&off)? * 1.4826 {
        0.0 => off.iter().sum::<f64>() / off.len() as f64,
        scale => scale,
    };
    if scale == 0.0 {
        return None;
    }
    let mut scores: Vec<f64> =
        logs.iter().map(|log| ((log - centre) / scale).clamp(-CLIP, CLIP)).collect();
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    scores.iter_mut().for_each(|score| *score -= mean);
    Some(scores)
}

/// The best of the splits that were tried.
struct Found {
    /// The place; for a bump, its begin and end.
    at: [usize; 2],
    /// The difference of the means of the parts, over its deviation if a score has a deviation of 1.
    size: f64,
}

/// The place that splits `scores`, whose sum is 0, into the parts that differ most.
fn best_split(scores: &[f64]) -> Option<Found> {
    let n = scores.len();
    let mut best: Option<Found> = None;
    let mut sum = 0.0;
    for (i, score) in scores.iter().enumerate().take(n.saturating_sub(LEAST_SEGMENT)) {
        sum += score;
        let size = sum.abs() * weight(i + 1, n);
        if i + 1 >= LEAST_SEGMENT && best.as_ref().is_none_or(|best| size > best.size) {
            best = Some(Found { at: [i + 1, n], size });
        }
    }
    best
}

/// The two places between which `scores`, whose sum is 0, differ most from the others.
fn best_bump(scores: &[f64]) -> Option<Found> {
    let n = scores.len();
    let mut best: Option<Found> = None;
    let mut sums = Vec::new();
    sum_up(scores, &mut sums);
    let last = n.saturating_sub(LEAST_SEGMENT);
    // A root for each pair of places would take most of the time.
    let weights = weights(n);
    for start in LEAST_SEGMENT..last {
        for end in start + LEAST_SEGMENT..=last {
            let size = (sums[end] - sums[start]).abs() * weights[end - start];
            if best.as_ref().is_none_or(|best| size > best.size) {
                best = Some(Found { at: [start, end], size });
            }
        }
    }
    best
}

/// Whether scores with these sums have a place, or two, as [`best_split`] and [`best_bump`] look for, of this size or a larger
/// one.
type Reaches = fn(&Sums<'_>, f64) -> bool;

/// What [`sum_up`] and [`weights`] make of scores.
struct Sums<'s> {
    sums: &'s [f64],
    weights: &'s [f64],
}

fn has_split(of: &Sums<'_>, size: f64) -> bool {
    let mut parts = of.sums.iter().zip(of.weights).skip(LEAST_SEGMENT);
    parts.any(|(sum, weight)| sum.abs() * weight >= size)
}

fn has_bump(of: &Sums<'_>, size: f64) -> bool {
    // As far as the places lie.
    let Some(sums) = of.sums.get(LEAST_SEGMENT..of.weights.len()) else { return false };
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = sums.iter().fold(none, |(low, high), sum| (low.min(*sum), high.max(*sum)));
    (LEAST_SEGMENT..sums.len()).any(|part| {
        let weight = of.weights[part];
        // No two sums are further apart. By chance few are nearly as far apart as a change makes them, so that this leaves
        // little to look at.
        (high - low) * weight >= size
            && sums.iter().zip(&sums[part..]).any(|(a, b)| (b - a).abs() * weight >= size)
    })
}

/// The sums of the first scores: of none, of one, and so on to all.
fn sum_up(scores: &[f64], sums: &mut Vec<f64>) {
    sums.clear();
    sums.push(0.0);
    sums.extend(scores.iter().scan(0.0, |sum, score| {
        *sum += score;
        Some(*sum)
    }));
}

/// The [`weight`] of each number of scores that leaves a segment to the others.
fn weights(n: usize) -> Vec<f64> {
    (0..=n.saturating_sub(LEAST_SEGMENT)).map(|part| weight(part, n)).collect()
}

/// By what the sum of `part` of `n` scores is multiplied to be the distance of their mean from that of the rest, if all scores
/// add up to 0.
fn weight(part: usize, n: usize) -> f64 {
    let [part, n] = [part as f64, n as f64];
    (n / (part * (n - part))).sqrt()
}

/// The part of the orders of `scores`, the given one included, that reach at least `size`;
/// `None` if that is more than [`ALPHA`]. The given order counts, so that the test is valid however few are
/// sampled (Phipson and Smyth, "Permutation p-values should never be zero", 2010).
fn p_value(scores: &[f64], size: f64, reaches: Reaches) -> Option<f64> {
    // Sums in another order round differently; an order that is as good must count as such.
    let as_good = size * (1.0 - 1e-9);
    let mut random = SplitMix64(0);
    let mut scores = scores.to_vec();
    let weights = weights(scores.len());
    let mut sums = Vec::with_capacity(scores.len() + 1);
    let mut found = 1_u32;
    for _ in 0..PERMUTATIONS {
        random.shuffle(&mut scores);
        sum_up(&scores, &mut sums);
        found += u32::from(reaches(&Sums { sums: &sums, weights: &weights }, as_good));
        // It can't become significant any more (Besag and Clifford, "Sequential Monte Carlo
        // p-values", 1991).
        if f64::from(found) > ALPHA * f64::from(PERMUTATIONS + 1) {
            return None;
        }
    }
    Some(f64::from(found) / f64::from(PERMUTATIONS + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    trait Draw {
        fn normal(&mut self) -> f64;
        fn below(&mut self, n: usize) -> usize;
    }

    impl Draw for SplitMix64 {
        /// Box and Muller, "A note on the generation of random normal deviates", 1958.
        fn normal(&mut self) -> f64 {
            let mut uniform = || ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            let (u, v) = (uniform(), uniform());
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        }

        fn below(&mut self, n: usize) -> usize {
            (self.bits() % n as u64) as usize
        }
    }

    /// Tokens per second with a hundredth of noise, times what `level` says.
    fn series(random: &mut SplitMix64, n: usize, level: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..n).map(|i| 300.0 * level(i) * (1.0 + 0.01 * random.normal())).collect()
    }

    fn places(values: &[f64]) -> Vec<usize> {
        steps(values).into_iter().map(|step| step.at).collect()
    }

    #[test]
    fn a_series_that_did_not_change_rarely_gets_a_change() {
        let mut random = SplitMix64(1);
        let mut alarms = 0;
        for run in 0..500 {
            let values = series(&mut random, 12 + run % 60, |_| 1.0);
            alarms += usize::from(!steps(&values).is_empty());
        }
        // 2 × ALPHA of 500.
        assert!(alarms <= 5, "{alarms} of 500");
    }

    #[test]
    fn neighbours_that_are_alike_are_no_change_by_themselves() {
        // Each point has a part of the one before in it: what a shared machine does.
        let mut random = SplitMix64(8);
        for (part, most) in [(0.2, 8), (0.5, 35)] {
            let mut alarms = 0;
            for run in 0..500 {
                let mut last = random.normal();
                let values: Vec<f64> = (0..12 + run % 60)
                    .map(|_| {
                        last = part * last + (1.0 - part * part).sqrt() * random.normal();
                        300.0 * (1.0 + 0.01 * last)
                    })
                    .collect();
                alarms += usize::from(!steps(&values).is_empty());
            }
            assert!(alarms <= most, "{alarms} of 500 with {part}");
        }
    }

    /// A machine with two states that stays in each for so many points on average.
    fn between_states(random: &mut SplitMix64, n: usize, dwell: f64) -> (Vec<f64>, usize) {
        let mut uniform = random.clone();
        let mut is_slow = uniform.bits() & 1 == 1;
        let mut changes = 0;
        let level: Vec<f64> = (0..n)
            .map(|_| {
                let part = (uniform.bits() >> 12) as f64 / (1_u64 << 52) as f64;
                if part < 1.0 / dwell {
                    is_slow = !is_slow;
                    changes += 1;
                }
                if is_slow { 0.8 } else { 1.0 }
            })
            .collect();
        random.0 = uniform.0;
        (series(random, n, |i| level[i]), changes)
    }

    #[test]
    fn a_machine_that_goes_back_and_forth_between_two_states_gets_no_change() {
        let mut random = SplitMix64(21);
        for dwell in [3.0, 5.0, 8.0] {
            let (mut before, mut after, mut all) = (0, 0, 0);
            for _ in 0..100 {
                let (values, changes) = between_states(&mut random, 60, dwell);
                // Fewer is what a program may do: it became slower, and was mended.
                if changes < 6 {
                    continue;
                }
                all += 1;
                let is_marked = !steps(&values).is_empty();
                before += usize::from(is_marked);
                after += usize::from(is_marked && two_states(&values).is_none());
            }
            println!("{dwell} points in a state: {before} of {all}, now {after}");
            assert!(all > 40 && 20 * after <= all, "{dwell}: {before} of {all}, now {after}");
        }
    }

    #[test]
    fn what_a_program_does_is_no_pair_of_states() {
        let mut random = SplitMix64(22);
        for _ in 0..100 {
            let one = series(&mut random, 40, |_| 1.0);
            let step = series(&mut random, 40, |i| if i < 20 { 1.0 } else { 0.9 });
            let mended = series(&mut random, 40, |i| if (15..25).contains(&i) { 0.9 } else { 1.0 });
            let stairs = series(&mut random, 60, |i| [1.0, 0.9, 1.05, 1.2][i / 15]);
            // Odd runs as slow as the new level.
            let odd =
                series(&mut random, 40, |i| if i == 5 || i == 11 || i >= 20 { 0.9 } else { 1.0 });
            for values in [one, step, mended, stairs, odd] {
                assert_eq!(two_states(&values), None, "{values:?}");
            }
        }
        assert_eq!(two_states(&[7.0; 40]), None);
        assert_eq!(two_states(&[]), None);
    }

    #[test]
    fn what_the_levels_do_by_themselves_is_weak() {
        // Up by 4 for good; before that, three neighbours were off by 3, or by 5.
        let series = |off: f64| -> Vec<f64> {
            let level = |i: usize| match i {
                8..11 => 100.0 + off,
                20.. => 104.0,
                _ => 100.0,
            };
            (0..40).map(|i| (level(i) + if i % 2 == 0 { 0.1 } else { -0.1 }).ln()).collect()
        };
        let step = [Step { at: 20, p: ALPHA }];
        assert_eq!(weak(&series(0.0), &step), None);
        assert_eq!(weak(&series(5.0), &step), Some(0));
        assert_eq!(weak(&series(5.0), &[]), None);
        assert!(swing(&series(3.0)[..20]) > 0.02 && swing(&[1.0, 2.0]) == 0.0);
        // Alternating points are the opposite of alike; a slow wave is alike.
        assert_eq!(persistence(&[&series(0.0)[..20]]), 1.0);
        let wave: Vec<f64> = (0..40).map(|i| (f64::from(i) / 8.0).sin()).collect();
        assert!((persistence(&[&wave]) - 3.0).abs() < 1e-9, "no more than that of 0.8");
        assert_eq!(persistence(&[&[7.0; 5]]), 1.0);
    }

    #[test]
    fn single_outliers_make_no_change() {
        let mut random = SplitMix64(2);
        let mut alarms = 0;
        for run in 0..500 {
            let mut values = series(&mut random, 12 + run % 60, |_| 1.0);
            let odd = random.below(values.len());
            values[odd] *= [0.1, 0.7, 0.95, 1.3][run % 4];
            alarms += usize::from(!steps(&values).is_empty());
        }
        assert!(alarms <= 5, "{alarms} of 500");
    }

    #[test]
    fn a_step_of_five_percent_in_noise_of_one_is_found_where_it_is() {
        let mut random = SplitMix64(3);
        let mut found = 0;
        for run in 0..500 {
            let n = 15 + run % 45;
            let at = 5 + random.below(n - 9);
            let values = series(&mut random, n, |i| if i < at { 1.0 } else { 0.95 });
            found += usize::from(matches!(places(&values)[..], [p] if p.abs_diff(at) <= 1));
        }
        assert!(found >= 475, "{found} of 500");
    }

    #[test]
    fn the_last_three_points_are_enough_in_a_series_of_thirty() {
        let mut random = SplitMix64(4);
        let mut found = 0;
        for _ in 0..200 {
            let values = series(&mut random, 30, |i| if i < 27 { 1.0 } else { 0.95 });
            found += usize::from(matches!(places(&values)[..], [p] if p.abs_diff(27) <= 1));
        }
        assert!(found >= 180, "{found} of 200");
    }

    #[test]
    fn a_step_is_found_beside_an_outlier() {
        let mut random = SplitMix64(5);
        let mut found = 0;
        for _ in 0..200 {
            let mut values = series(&mut random, 40, |i| if i < 25 { 1.0 } else { 0.95 });
            let odd = random.below(40);
            values[odd] *= 0.5;
            found += usize::from(matches!(places(&values)[..], [p] if p.abs_diff(25) <= 1));
        }
        assert!(found >= 190, "{found} of 200");
    }

    #[test]
    fn what_went_and_came_back_has_two_changes() {
        let mut random = SplitMix64(6);
        let mut found = 0;
        for _ in 0..200 {
            let values =
                series(&mut random, 60, |i| if (30..35).contains(&i) { 0.95 } else { 1.0 });
            let places = places(&values);
            found += usize::from(matches!(
                places[..],
                [a, b] if a.abs_diff(30) <= 1 && b.abs_diff(35) <= 1
            ));
        }
        assert!(found >= 190, "{found} of 200");
    }

    #[test]
    fn a_staircase_has_every_step() {
        let mut random = SplitMix64(7);
        let mut found = 0;
        for _ in 0..100 {
            let values = series(&mut random, 60, |i| [1.0, 0.95, 1.02, 1.1][i / 15]);
            let places = places(&values);
            let near = |(place, step): (&usize, usize)| place.abs_diff(step) <= 1;
            found += usize::from(places.len() == 3 && places.iter().zip([15, 30, 45]).all(near));
        }
        assert!(found >= 90, "{found} of 100");
    }

    #[test]
    fn equal_figures_never_change_and_two_plain_levels_do() {
        assert_eq!(steps(&[7.0; 100]), []);
        let two: Vec<f64> = (0..12).map(|i| if i < 6 { 7.0 } else { 8.0 }).collect();
        assert_eq!(places(&two), [6]);
        // One short of what can be told from chance.
        assert_eq!(steps(&two[..LEAST_POINTS - 1]), []);
    }

    proptest! {
        #[test]
        fn an_order_reaches_what_is_found_in_it_and_no_more(
            scores in prop::collection::vec(-CLIP..CLIP, LEAST_POINTS..60),
            part in 0.5..1.5f64,
        ) {
            let (mut sums, weights) = (Vec::new(), weights(scores.len()));
            sum_up(&scores, &mut sums);
            let sums = Sums { sums: &sums, weights: &weights };
            let split = (best_split as fn(&[f64]) -> Option<Found>, has_split as Reaches);
            for (search, reaches) in [split, (best_bump, has_bump)] {
                let size = search(&scores).expect("there are enough").size;
                prop_assert!(reaches(&sums, size));
                prop_assert!(!reaches(&sums, size * (1.0 + 1e-15) + f64::MIN_POSITIVE));
                prop_assert_eq!(reaches(&sums, size * part), part <= 1.0);
            }
        }

        #[test]
        fn segments_are_long_enough_and_p_is_small(
            values in prop::collection::vec(1e-3..1e6f64, 0..80),
        ) {
            let steps = steps(&values);
            let mut ends: Vec<usize> = steps.iter().map(|step| step.at).collect();
            ends.insert(0, 0);
            ends.push(values.len());
            prop_assert!(
                steps.is_empty() || ends.windows(2).all(|w| w[0] + LEAST_SEGMENT <= w[1]),
                "{ends:?}"
            );
            prop_assert!(steps.iter().all(|step| step.p > 0.0 && step.p <= ALPHA));
        }

        #[test]
        fn the_unit_does_not_matter(
            values in prop::collection::vec(1.0..2.0f64, 12..40),
            power in -20..20i32,
        ) {
            let scaled: Vec<f64> = values.iter().map(|v| v * 2f64.powi(power)).collect();
            prop_assert_eq!(places(&values), places(&scaled));
        }

        #[test]
        fn hostile_numbers_do_not_panic(values in prop::collection::vec(any::<f64>(), 0..40)) {
            let _ = steps(&values);
        }
    }
}
