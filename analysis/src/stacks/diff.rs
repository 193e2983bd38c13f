//! Whether a share of weight changed between two runs, or differs only by chance.
//!
//! A share is the weight of a part over that of a whole, a ratio of two sums that both vary. Two errors
//! say how far it may be off, and a shift counts only if it is larger than chance by both:
//!
//! - By **blocks of time**: how far the part is from its share in each of them (batch means: Conway,
//!   "Some tactical problems in digital simulation", 1963; the residuals of a ratio: Cochran, "Sampling
//!   techniques", 1977, 6.4). Prefill and decode are different work, so if the weight of a block is known
//!   by phase, the part has a share in each phase, and the residuals are from these: by least squares,
//!   weighted by the weight of the block. Neighbouring blocks that resemble each other hold less
//!   information than their number suggests, which widens the error by √((1 + φ) ÷ (1 − φ)), where φ is the
//!   autocorrelation of neighbouring blocks (Bayley and Hammersley, "The 'effective' number of independent
//!   observations in an autocorrelated time series", 1946). Degrees of freedom of two sides are Welch's
//!   (1947), and the distribution is Student's t.
//! - By **counts**, of samples: if samples were drawn independently, their number would be binomial. No run
//!   is more certain than that, however similar its blocks are. Both shares are tested against a common one,
//!   as for equal sides, with the continuity correction of Yates (1934).
//!
//! A run without blocks has only the error of counts, which doesn't know of load that comes and goes. And no
//! error from within runs knows how much two runs of one program differ.

use brickscope_profile::stats::student;

use super::Unit;
use crate::compare::holm;

/// The most autocorrelation of neighbouring blocks that is taken into account: a few blocks can't tell
/// more, and the error would grow without bounds.
const MOST_ALIKE: f64 = 0.8;

/// The fewest samples of a run whose shares are compared. With fewer, a count isn't near enough to normal for the levels
/// of many parts: of 20 samples, one more or less is five points.
pub const LEAST_SAMPLES: u64 = 100;

/// The whole that shares are of.
#[derive(Debug, Clone, PartialEq)]
pub struct Whole {
    /// What its weight counts.
    pub unit: Unit,
    /// The weight of all of it.
    pub weight: u64,
    /// The weight in each block of time, for each kind of work that has shares of its own: by phase, if
    /// that is known. Together they are `weight`. Empty if times aren't known.
    pub kinds: Vec<Vec<u64>>,
}

/// A part of the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part<'p> {
    /// Its weight.
    pub weight: u64,
    /// The weight in each block of time.
    pub by_block: &'p [u64],
}

/// A share of one run beside the same share of another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// The share of the first side, 0 to 1.
    pub before: f64,
    /// The share of the second side.
    pub after: f64,
    blocks: Option<Spread>,
    counts: Option<Counts>,
}

/// An error, with its degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    error: f64,
    degrees: f64,
}

/// The error of counts, and the correction for counts being whole numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counts {
    error: f64,
    continuity: f64,
}

impl Shift {
    /// The shift from the share of `before` in the first side to that of `after` in the second. A part
    /// that is missing has a weight of 0.
    ///
    /// # Errors
    ///
    /// A sentence, if a side is empty, has fewer than [`LEAST_SAMPLES`] or too few blocks of time, or if it counts
    /// nanoseconds without blocks.
    pub fn of(before: (Part<'_>, &Whole), after: (Part<'_>, &Whole)) -> Result<Self, String> {
        let sides = [before, after];
        if sides.iter().any(|(_, whole)| whole.weight == 0) {
            return Err("one side is empty".to_owned());
        }
        let few = sides.iter().filter(|(_, whole)| whole.unit == Unit::Samples);
        if let Some(least) = few.map(|(_, whole)| whole.weight).filter(|&n| n < LEAST_SAMPLES).min()
        {
            return Err(format!("too few samples: {least}, and a shift takes {LEAST_SAMPLES}"));
        }
        let share = |(part, whole): (Part<'_>, &Whole)| part.weight as f64 / whole.weight as f64;
        let is_counted = sides.iter().all(|(_, whole)| whole.unit == Unit::Samples);
        let has_blocks = |(_, whole): &(Part<'_>, &Whole)| !whole.kinds.is_empty();
        let blocks = match sides.iter().all(has_blocks) {
            true => match sides.map(|(part, whole)| spread(part, whole)) {
                [Some(before), Some(after)] => Some(together(before, after)),
                _ => return Err("it is in too few blocks of time".to_owned()),
            },
            false if is_counted => None,
            false => return Err("its course over time is unknown".to_owned()),
        };
        let counts = is_counted.then(|| {
            let [n, m] = sides.map(|(_, whole)| whole.weight as f64);
            let share = (before.0.weight as f64 + after.0.weight as f64) / (n + m);
            let each = 1.0 / n + 1.0 / m;
            let error = (share * (1.0 - share).max(0.0) * each).sqrt();
            Counts { error, continuity: each / 2.0 }
        });
        Ok(Self { before: share(before), after: share(after), blocks, counts })
    }

    /// How much larger the second share is; negative if it is smaller.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.after - self.before
    }

    /// The probability of so large a shift if there is none.
    #[must_use]
    pub fn probability(&self) -> f64 {
        let size = self.difference().abs();
        let of = |size: f64, error: f64, degrees: f64| match error > 0.0 {
            true => student::two_sided(size / error, degrees),
            false if size > 0.0 => 0.0,
            false => 1.0,
        };
        let blocks = self.blocks.map_or(0.0, |by| of(size, by.error, by.degrees));
        let counts = self
            .counts
            .map_or(0.0, |by| of((size - by.continuity).max(0.0), by.error, f64::from(u32::MAX)));
        blocks.max(counts)
    }

    /// The error of the difference: the true one lies outside of it with the probability `alpha`, above 0
    /// and below 1.
    #[must_use]
    pub fn error(&self, alpha: f64) -> f64 {
        let half = |error: f64, degrees: f64| match error > 0.0 {
            true => student::quantile(alpha, degrees) * error,
            false => 0.0,
        };
        let blocks = self.blocks.map_or(0.0, |by| half(by.error, by.degrees));
        let counts =
            self.counts.map_or(0.0, |by| half(by.error, f64::from(u32::MAX)) + by.continuity);
        blocks.max(counts)
    }
}

/// The probability to test each of these shifts against, so that `level` is the probability of calling any
/// of them more than chance if none is (Holm, "A simple sequentially rejective multiple test procedure",
/// 1979). A shift is beyond chance if its [`Shift::probability`] is at most that.
#[must_use]
pub fn levels(shifts: &[Shift], level: f64) -> Vec<f64> {
    let probabilities: Vec<f64> = shifts.iter().map(Shift::probability).collect();
    holm(&probabilities, level)
}

/// The spread of the difference of two shares.
fn together(a: Spread, b: Spread) -> Spread {
    let [square_a, square_b] = [a, b].map(|side| side.error * side.error);
    let square = square_a + square_b;
    let parts = square_a * square_a / a.degrees + square_b * square_b / b.degrees;
    // Without any spread, the degrees of freedom don't matter.
    let degrees = if parts > 0.0 { square * square / parts } else { a.degrees };
    Spread { error: square.sqrt(), degrees }
}

/// The error of a share, by its blocks; `None` if no degree of freedom is left, since too few blocks have
/// any weight.
fn spread(part: Part<'_>, whole: &Whole) -> Option<Spread> {
    let blocks = whole.kinds.iter().map(Vec::len).min()?;
    let of = |kind: &Vec<u64>, block: usize| kind[block] as f64;
    let mut rows: Vec<(Vec<f64>, f64)> = Vec::new();
    for block in 0..blocks {
        let kinds: Vec<f64> = whole.kinds.iter().map(|kind| of(kind, block)).collect();
        let root = kinds.iter().sum::<f64>().sqrt();
        if root > 0.0 {
            // A block counts by its weight.
            let weight = part.by_block.get(block).copied().unwrap_or(0) as f64;
            rows.push((kinds.iter().map(|kind| kind / root).collect(), weight / root));
        }
    }
    let (residuals, fitted) = residuals(rows);
    let degrees = residuals.len().checked_sub(fitted).filter(|&degrees| degrees > 0)? as f64;
    let squares: f64 = residuals.iter().map(|off| off * off).sum();
    let products: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let alike = if squares > 0.0 { (products / squares).clamp(0.0, MOST_ALIKE) } else { 0.0 };
    let widened = (1.0 + alike) / (1.0 - alike);
    // The variance of the whole's share, from that of a unit of weight.
    let square = squares / degrees / whole.weight as f64 * widened;
    Some(Spread { error: square.sqrt(), degrees })
}

/// The residual of each row's figure after the least squares of all rows, and how many columns it took.
/// Modified Gram-Schmidt, column by column: what each adds to those before it.
fn residuals(rows: Vec<(Vec<f64>, f64)>) -> (Vec<f64>, usize) {
    let count = rows.first().map_or(0, |(row, _)| row.len());
    let mut columns: Vec<Vec<f64>> =
        (0..count).map(|at| rows.iter().map(|(row, _)| row[at]).collect()).collect();
    let mut left: Vec<f64> = rows.iter().map(|(_, figure)| *figure).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let take = |from: &mut Vec<f64>, unit: &[f64]| {
        let along = dot(from, unit);
        from.iter_mut().zip(unit).for_each(|(from, unit)| *from -= along * unit);
    };
    let mut fitted = 0;
    for at in 0..count {
        let size = rows.iter().map(|(row, _)| row[at] * row[at]).sum::<f64>().sqrt();
        let norm = dot(&columns[at], &columns[at]).sqrt();
        // Only rounding is left of a column that depends on the others.
        if norm <= 1e-9 * size {
            continue;
        }
        let unit: Vec<f64> = columns[at].iter().map(|value| value / norm).collect();
        columns[at + 1..].iter_mut().for_each(|column| take(column, &unit));
        take(&mut left, &unit);
        fitted += 1;
    }
    // Rounding is not a residual either.
    let most = rows.iter().map(|(_, figure)| figure.abs()).fold(0.0, f64::max);
    left.iter_mut().filter(|off| off.abs() <= 1e-12 * most).for_each(|off| *off = 0.0);
    (left, fitted)
}

#[cfg(test)]
mod tests {
    use brickscope_profile::stats::SplitMix64;
    use proptest::prelude::*;

    use super::*;

    fn whole(kinds: &[&[u64]]) -> Whole {
        let kinds: Vec<Vec<u64>> = kinds.iter().map(|kind| kind.to_vec()).collect();
        Whole { unit: Unit::Nanoseconds, weight: kinds.iter().flatten().sum(), kinds }
    }

    fn part(by_block: &[u64]) -> Part<'_> {
        Part { weight: by_block.iter().sum(), by_block }
    }

    #[test]
    fn hand_checked_figures() {
        // 10, 20 and 30 of 100 each: shares are off by 0.1, 0 and −0.1, so the error of their mean is
        // √(0.02 ÷ 2 ÷ 3).
        let all = whole(&[&[100, 100, 100]]);
        let spread = spread(part(&[10, 20, 30]), &all).unwrap();
        assert!((spread.error - (0.02_f64 / 6.0).sqrt()).abs() < 1e-12, "{spread:?}");
        assert_eq!(spread.degrees, 2.0);
        let shift = Shift::of((part(&[10, 20, 30]), &all), (part(&[30, 40, 50]), &all)).unwrap();
        assert!((shift.difference() - 0.2).abs() < 1e-12);
        // Student's t of 4 degrees: 2.776445 for 5 %.
        let error = shift.error(0.05);
        assert!((error - 2.776_445 * (0.02_f64 / 3.0).sqrt()).abs() < 1e-6, "{error}");
        assert_eq!(shift.probability() < 0.05, shift.difference() > error);
    }

    #[test]
    fn other_work_in_other_blocks_is_no_spread() {
        // Half of prefill and a tenth of decode, exactly; one block has both.
        let all = whole(&[&[100, 40, 0, 0, 0], &[0, 60, 100, 100, 100]]);
        let exact = spread(part(&[50, 26, 10, 10, 10]), &all).unwrap();
        assert_eq!((exact.error, exact.degrees), (0.0, 3.0));
        let mixed = whole(&[&[100, 100, 100, 100, 100]]);
        assert!(spread(part(&[50, 26, 10, 10, 10]), &mixed).unwrap().error > 0.05);
    }

    #[test]
    fn samples_are_no_surer_than_their_number() {
        let all = Whole { unit: Unit::Samples, weight: 1000, kinds: vec![vec![250; 4]] };
        let (before, after) = ([50; 4], [60; 4]);
        let shift = Shift::of((part(&before), &all), (part(&after), &all)).unwrap();
        // All blocks alike: √(0.22 · 0.78 · 2 ÷ 1000) · 1.96 and the continuity.
        let error = shift.error(0.05);
        assert!((error - (1.959_964 * (0.22_f64 * 0.78 / 500.0).sqrt() + 0.001)).abs() < 1e-6);
        assert!(shift.probability() > 0.02);
        let folded = Whole { kinds: Vec::new(), ..all };
        let alone = Part { weight: 200, by_block: &[] };
        let shift = Shift::of((alone, &folded), (part(&after), &folded)).unwrap();
        assert!((shift.error(0.05) - error).abs() < 1e-12);
    }

    #[test]
    fn what_can_not_be_told_has_a_reason() {
        let [nothing, one, two] = [whole(&[]), whole(&[&[100]]), whole(&[&[100, 100]])];
        let none = part(&[]);
        let said = |a: &Whole, b: &Whole| Shift::of((none, a), (none, b)).unwrap_err();
        assert_eq!(said(&nothing, &two), "one side is empty");
        assert_eq!(said(&one, &two), "it is in too few blocks of time");
        let no_times = Whole { weight: 5, ..nothing };
        assert_eq!(said(&two, &no_times), "its course over time is unknown");
        // As many kinds as blocks leave nothing to tell an error by.
        let as_many = whole(&[&[100, 0], &[0, 100]]);
        assert_eq!(said(&two, &as_many), "it is in too few blocks of time");
    }

    fn blocks() -> impl Strategy<Value = Vec<u64>> {
        let weight = prop_oneof![Just(0), 0..100_u64, any::<u64>()];
        prop::collection::vec(weight, 0..12)
    }

    proptest! {
        #[test]
        fn whatever_a_file_says_a_shift_is_beyond_its_error_where_its_probability_says_so(
            parts in prop::array::uniform2(blocks()),
            kinds in prop::array::uniform2(prop::collection::vec(blocks(), 0..4)),
            is_counted in any::<bool>(),
            alpha in 1e-6..0.5,
        ) {
            let sum = |blocks: &[u64]| blocks.iter().fold(0, |sum, b| u64::saturating_add(sum, *b));
            let unit = if is_counted { Unit::Samples } else { Unit::Nanoseconds };
            let wholes = kinds.map(|kinds| {
                let weight = sum(&kinds.iter().map(|kind| sum(kind)).collect::<Vec<u64>>());
                Whole { unit, weight, kinds }
            });
            let part = |at: usize| Part { weight: sum(&parts[at]), by_block: &parts[at] };
            if let Ok(shift) = Shift::of((part(0), &wholes[0]), (part(1), &wholes[1])) {
                let (probability, error) = (shift.probability(), shift.error(alpha));
                prop_assert!((0.0..=1.0).contains(&probability), "{shift:?}: {probability}");
                prop_assert!(error >= 0.0, "{shift:?}: {error}");
                let size = shift.difference().abs();
                // At the very edge either may round.
                if (size - error).abs() > 1e-6 * error {
                    prop_assert_eq!(size > error, probability < alpha, "{:?}, {}", shift, alpha);
                }
            }
        }
    }

    /// A program's noise: how much of the time of each of its blocks is what.
    #[derive(Debug, Clone, Copy)]
    struct Noise {
        blocks: usize,
        samples: f64,
        /// The deviation of a part's rate in a block, as a part of it.
        size: f64,
        /// How much of that is there in the next block.
        alike: f64,
    }

    fn uniform(random: &mut SplitMix64) -> f64 {
        ((random.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Box and Muller, "A note on the generation of random normal deviates", 1958.
    fn normal(random: &mut SplitMix64) -> f64 {
        let (u, v) = (uniform(random), uniform(random));
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Shares of 20 parts, each 0.7 of the one before.
    const PARTS: usize = 20;

    impl Noise {
        /// Weights of the parts by block; the part `grown` takes so many times as long.
        fn run(self, grown: (usize, f64), random: &mut SplitMix64) -> Vec<Vec<u64>> {
            let mut state: Vec<f64> = (0..PARTS).map(|_| normal(random)).collect();
            let mut parts = vec![Vec::new(); PARTS];
            for _ in 0..self.blocks {
                let fresh = (1.0 - self.alike * self.alike).sqrt();
                let mut rates: Vec<f64> = Vec::new();
                for (at, state) in state.iter_mut().enumerate() {
                    *state = self.alike * *state + fresh * normal(random);
                    let more = if at == grown.0 { grown.1 } else { 1.0 };
                    rates.push(0.7_f64.powi(at as i32) * (self.size * *state).exp() * more);
                }
                let all: f64 = rates.iter().sum();
                let mut counts = [0; PARTS];
                for _ in 0..(self.samples / self.blocks as f64) as u64 {
                    let mut at = uniform(random) * all;
                    let which = rates.iter().position(|rate| {
                        at -= rate;
                        at < 0.0
                    });
                    counts[which.unwrap_or(0)] += 1;
                }
                parts.iter_mut().zip(counts).for_each(|(part, count)| part.push(count));
            }
            parts
        }

        /// Of `runs` pairs of runs: how many call any part moved, and how many the grown one.
        fn called(self, grown: (usize, f64), runs: usize, level: f64) -> (usize, usize) {
            let mut random = SplitMix64(7);
            let (mut any, mut found) = (0, 0);
            for _ in 0..runs {
                let sides = [(0, 1.0), grown].map(|grown| self.run(grown, &mut random));
                let wholes = sides.each_ref().map(|parts| {
                    let block = |at: usize| parts.iter().map(|part| part[at]).sum();
                    let blocks: Vec<u64> = (0..self.blocks).map(block).collect();
                    let weight = blocks.iter().sum();
                    Whole { unit: Unit::Samples, weight, kinds: vec![blocks] }
                });
                let of = |side: usize, at: usize| (part(&sides[side][at]), &wholes[side]);
                // Too few samples call nothing.
                let shifts: Result<Vec<Shift>, String> =
                    (0..PARTS).map(|at| Shift::of(of(0, at), of(1, at))).collect();
                let Ok(shifts) = shifts else { continue };
                let is_moved: Vec<bool> = levels(&shifts, level)
                    .iter()
                    .zip(&shifts)
                    .map(|(level, shift)| shift.probability() <= *level)
                    .collect();
                any += usize::from(is_moved.contains(&true));
                found += usize::from(is_moved[grown.0]);
            }
            (any, found)
        }
    }

    /// A third of 1 %, as a family of three has.
    const LEVEL: f64 = 0.01 / 3.0;

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of runs")]
    fn runs_of_one_program_rarely_differ_by_more_than_the_error() {
        for (blocks, size, alike, most) in [
            (10, 0.0, 0.0, 4),
            (20, 0.1, 0.0, 4),
            (20, 0.1, 0.3, 4),
            (40, 0.1, 0.6, 4),
            // A load that stays for five blocks is more than they know of.
            (40, 0.3, 0.8, 80),
            (20, 0.3, 0.5, 12),
            (10, 0.1, 0.8, 32),
        ] {
            let noise = Noise { blocks, samples: 4000.0, size, alike };
            let (any, _) = noise.called((0, 1.0), 400, LEVEL);
            println!("{blocks} blocks, {size}, {alike}: {any} of 400");
            assert!(any <= most, "{noise:?}: {any} of 400");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of runs")]
    fn few_samples_of_one_program_raise_no_alarm() {
        for samples in [20.0, 100.0, 200.0, 500.0] {
            for (blocks, size) in [(1, 0.0), (4, 0.0), (10, 0.1), (20, 0.1)] {
                let noise = Noise { blocks, samples, size, alike: 0.3 };
                let (any, _) = noise.called((0, 1.0), 400, LEVEL);
                println!("{samples} samples, {blocks} blocks, {size}: {any} of 400");
                assert!(any <= if samples < 100.0 { 0 } else { 4 }, "{noise:?}: {any} of 400");
            }
        }
        let few = Whole { unit: Unit::Samples, weight: 20, kinds: vec![vec![5; 4]] };
        let moved = (part(&[0; 4]), part(&[5; 4]));
        let said = Shift::of((moved.0, &few), (moved.1, &few)).unwrap_err();
        assert_eq!(said, "too few samples: 20, and a shift takes 100");
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of runs")]
    fn a_part_that_grew_is_found() {
        // From 21 % of the time to 25.7 %.
        for (blocks, samples, least) in [(20, 4000.0, 36), (40, 4000.0, 60), (40, 20_000.0, 95)] {
            let noise = Noise { blocks, samples, size: 0.1, alike: 0.3 };
            let (_, found) = noise.called((1, 1.3), 100, LEVEL);
            println!("{blocks} blocks, {samples} samples: {found} of 100");
            assert!(found >= least, "{noise:?}: {found} of 100");
        }
    }
}
