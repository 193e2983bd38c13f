//! Rounds of batches, and what they say.

use crate::calm;
use crate::row::{PAIR, Row, Target};

/// How long a batch should take: long beside the reading of the clock around it, short beside the
/// time in which a processor changes its frequency.
const BATCH_NANOS: f64 = 200_000.0;

/// A row with fewer calm rounds than this is of all of them.
const FEWEST_CALM: usize = 10;

/// How often a batch is run at most until the core is calm.
const TRIES: u32 = 5;

/// One batch of a row.
#[derive(Clone, Copy)]
struct Batch {
    /// Of one span.
    nanos: f64,
    /// Of the loop beside it: the longer of two.
    beside: f64,
}

/// What came of all rounds.
pub(crate) struct Series {
    pub(crate) figures: Vec<Figures>,
    /// How large a share of all batches had the core for themselves.
    pub(crate) calm: f64,
}

/// The figures of a row.
pub(crate) struct Figures {
    pub(crate) id: &'static str,
    pub(crate) name: String,
    pub(crate) spans: usize,
    /// How many rounds they are of.
    pub(crate) rounds: usize,
    /// Whether these are all rounds there were, as too few of them were calm.
    pub(crate) is_disturbed: bool,
    pub(crate) nanos: Median,
    pub(crate) least: f64,
    /// Against two raw readings of the same round.
    pub(crate) to_pair: Median,
    pub(crate) target: Option<(Target, Median)>,
}

impl Figures {
    pub(crate) fn misses(&self) -> bool {
        self.target.is_some_and(|(target, ratio)| !target.bound.holds(ratio.median))
    }
}

/// A median, with an interval that has the true one with a probability of 95 % if rounds are
/// independent.
#[derive(Clone, Copy)]
pub(crate) struct Median {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Median {
    /// By order statistics: how many values lie below the true median is binomial with p = 1/2,
    /// here by its normal approximation (David and Nagaraja, Order Statistics, 7.1).
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len() as f64;
        let below = (n / 2.0 - 1.96 * n.sqrt() / 2.0).floor().max(0.0) as usize;
        let last = values.len() - 1;
        Self { low: values[below], median: values[values.len() / 2], high: values[last - below] }
    }
}

/// Times a batch of each row, one row after the other, in each of so many rounds. Those count that had
/// the core for themselves.
///
/// What is slow for some rounds, such as a processor at a lower frequency, is slow for all rows:
/// ratios are of two batches of one round.
pub(crate) fn measure(rows: &mut [Row<'_>], rounds: usize) -> Series {
    let spans: Vec<usize> = rows.iter_mut().map(spans_in_a_batch).collect();
    let mut batches = vec![Vec::with_capacity(rounds); rows.len()];
    let mut least = f64::INFINITY;
    let mut tried = 0;
    for _ in 0..rounds {
        for ((row, &spans), batches) in rows.iter_mut().zip(&spans).zip(&mut batches) {
            let batch = (0..TRIES).find_map(|tries| {
                let before = calm::time();
                let nanos = (row.batch)(spans);
                let after = calm::time();
                least = least.min(before).min(after);
                tried += 1;
                let beside = before.max(after);
                let is_taken = beside <= calm::AT_MOST * least || tries == TRIES - 1;
                is_taken.then_some(Batch { nanos, beside })
            });
            batches.extend(batch);
        }
    }
    let is_calm = |batch: &Batch| batch.beside <= calm::AT_MOST * least;
    let calm = batches.iter().flatten().filter(|batch| is_calm(batch)).count();

    let of = |id: &str| rows.iter().position(|row| row.id == id).map(|index| &batches[index]);
    // A row beside its base, in the rounds in which both were calm: which rounds, and are they all for want of such?
    let beside = |batches: &[Batch], base: &str| -> (Vec<(f64, f64)>, bool) {
        let base = of(base).expect("a row's base is a row");
        let pairs = || batches.iter().zip(base);
        let nanos = |(row, base): (&Batch, &Batch)| (row.nanos, base.nanos);
        let calm: Vec<_> =
            pairs().filter(|(row, base)| is_calm(row) && is_calm(base)).map(nanos).collect();
        if calm.len() < FEWEST_CALM { (pairs().map(nanos).collect(), true) } else { (calm, false) }
    };
    let ratio = |batches: &[Batch], base: &str| {
        Median::of(beside(batches, base).0.into_iter().map(|(row, base)| row / base).collect())
    };
    let figures = rows.iter().zip(&batches).zip(spans).map(|((row, batches), spans)| {
        let (pairs, is_disturbed) = beside(batches, PAIR);
        Figures {
            id: row.id,
            name: row.name.clone(),
            spans,
            rounds: pairs.len(),
            is_disturbed,
            nanos: Median::of(pairs.into_iter().map(|(row, _)| row).collect()),
            least: batches.iter().map(|batch| batch.nanos).fold(f64::INFINITY, f64::min),
            to_pair: ratio(batches, PAIR),
            target: row.target.map(|target| (target, ratio(batches, target.base))),
        }
    });
    Series { figures: figures.collect(), calm: calm as f64 / f64::from(tried) }
}

/// So many that a batch takes about [`BATCH_NANOS`]. Also wakes the row up.
fn spans_in_a_batch(row: &mut Row<'_>) -> usize {
    let mut spans = 256.min(row.most);
    loop {
        let nanos = (row.batch)(spans);
        if nanos * spans as f64 >= BATCH_NANOS / 4.0 || spans == row.most {
            return ((BATCH_NANOS / nanos) as usize).clamp(1, row.most);
        }
        spans = (2 * spans).min(row.most);
    }
}
