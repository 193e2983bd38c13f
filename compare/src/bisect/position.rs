//! Where the step is: what pairs of revisions say of each place.

use std::collections::BTreeMap;

use super::evidence::{self, log_sum};

/// The degrees of freedom of the noise, from one that has neither mean nor variance to one that is nearly normal.
/// With Γ((ν+1)/2) / (Γ(ν/2) √(νπ)) of each, the height of its density.
const TAILS: [(f64, f64); 3] =
    [(1.0, std::f64::consts::FRAC_1_PI), (2.5, 0.361_808_7), (8.0, 0.386_699_0)];

/// Scales of the noise, in parts of the one that the first pairs had.
const SCALES: [f64; 9] = [0.25, 0.4, 0.6, 0.85, 1.2, 1.7, 2.5, 4.0, 8.0];

/// Sizes of the step on either side of the one that the first pairs had.
const SIZES: i32 = 5;

/// The least scale, below which clocks and file systems matter more than programs.
const LEAST_SCALE: f64 = 1e-4;

/// The probability of each place of the step, given all pairs so far.
///
/// With a step at place p, the pair of revisions a < b differs by its size if a < p ≤ b, and else by nothing, except for
/// noise that is symmetric, since the order of each pair was drawn. Its density is Student's t, whose size of step, scale
/// and tails are unknown: each combination of a grid is a cell, and a place's probability is the sum over all. At first
/// each place is equally likely.
///
/// This is a noisy binary search as a Bayesian does it (Horstein, "Sequential transmission using noiseless feedback",
/// 1963; Ben-Or and Hassidim, "The Bayesian learner is optimal for noisy binary search", FOCS 2008): nothing is ever
/// decided for good, so later pairs can outvote earlier ones.
#[derive(Debug, Clone)]
pub(super) struct Places {
    cells: Vec<Cell>,
    /// The revisions that were measured, from 0 to the last. Within two of them all places are equally likely. With the
    /// sum, for each cell, of what speaks for a step after this revision and not before it.
    measured: BTreeMap<usize, Vec<f64>>,
}

#[derive(Debug, Clone)]
struct Cell {
    size: f64,
    scale: f64,
    tails: f64,
    height: f64,
    /// The logarithm of the density of all pairs if none had the step in it.
    none: f64,
}

impl Cell {
    /// The logarithm of the density at `off`, but for what all cells have in common.
    fn log(&self, off: f64) -> f64 {
        let t = off / self.scale;
        (self.height / self.scale).ln() - 0.5 * (self.tails + 1.0) * (t * t / self.tails).ln_1p()
    }
}

/// Places from `after + 1` to `to`, that no measured revision separates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Segment {
    pub(super) after: usize,
    pub(super) to: usize,
    pub(super) mass: f64,
}

impl Places {
    /// Of revisions from 0 to `last`, which differ by `pairs`.
    pub(super) fn new(last: usize, pairs: &[f64]) -> Self {
        let size = evidence::middle(pairs).unwrap_or(0.0).max(LEAST_SCALE);
        let scale = evidence::scale(pairs).unwrap_or(0.0).max(LEAST_SCALE);
        // The standard error of a median of normal noise, and a half more.
        let error = 1.9 * scale / (pairs.len().max(1) as f64).sqrt();
        let mut cells = Vec::new();
        for nth in -SIZES..=SIZES {
            let size = size + 3.0 * error * f64::from(nth) / f64::from(SIZES);
            if size < LEAST_SCALE {
                continue;
            }
            for part in SCALES {
                let scale = (part * scale).max(LEAST_SCALE);
                cells.extend(TAILS.map(|(tails, height)| Cell {
                    size,
                    scale,
                    tails,
                    height,
                    none: 0.0,
                }));
            }
        }
        let zeros = vec![0.0; cells.len()];
        Self { cells, measured: BTreeMap::from([(0, zeros.clone()), (last, zeros)]) }
    }

    /// Adds the difference `pair` = b − a of the revisions a ≤ b.
    pub(super) fn add(&mut self, a: usize, b: usize, pair: f64) {
        let count = self.cells.len();
        for revision in [a, b] {
            self.measured.entry(revision).or_insert_with(|| vec![0.0; count]);
        }
        for (nth, cell) in self.cells.iter_mut().enumerate() {
            let (none, with) = (cell.log(pair), cell.log(pair - cell.size));
            cell.none += none;
            if a == b {
                continue;
            }
            // As a sum from the left: what lies after a, and not after b.
            for (revision, gain) in [(a, with - none), (b, none - with)] {
                if let Some(gains) = self.measured.get_mut(&revision) {
                    gains[nth] += gain;
                }
            }
        }
    }

    /// The probability of the places, in order.
    pub(super) fn segments(&self) -> Vec<Segment> {
        let mut sums: Vec<f64> = self.cells.iter().map(|cell| cell.none).collect();
        let mut segments = Vec::with_capacity(self.measured.len());
        let mut ends = self.measured.iter().peekable();
        while let Some((&after, gains)) = ends.next() {
            sums.iter_mut().zip(gains).for_each(|(sum, gain)| *sum += gain);
            let Some(&(&to, _)) = ends.peek() else { break };
            let log = log_sum(&sums) + ((to - after) as f64).ln();
            segments.push(Segment { after, to, mass: log });
        }
        let logs: Vec<f64> = segments.iter().map(|segment| segment.mass).collect();
        let all = log_sum(&logs);
        segments.iter_mut().for_each(|segment| segment.mass = (segment.mass - all).exp());
        segments
    }

    /// How large the step likely is, in scales of the noise.
    pub(super) fn clearness(&self) -> f64 {
        let segments = self.segments();
        let Some(top) = segments.iter().max_by(|a, b| a.mass.total_cmp(&b.mass)) else {
            return 0.0;
        };
        let mut logs: Vec<f64> = self.cells.iter().map(|cell| cell.none).collect();
        for (_, gains) in self.measured.range(..=top.after) {
            logs.iter_mut().zip(gains).for_each(|(log, gain)| *log += gain);
        }
        let all = log_sum(&logs);
        let parts = self.cells.iter().zip(&logs);
        parts.map(|(cell, log)| (log - all).exp() * cell.size / cell.scale).sum()
    }
}
