//! Rounds of batches, and what they say.

use crate::row::{PAIR, Row, Target};

/// How long a batch should take: long beside the reading of the clock around it, short beside the
/// time in which a processor changes its frequency.
const BATCH_NANOS: f64 = 200_000.0;

/// The figures of a row.
pub(crate) struct Figures {
    pub(crate) id: &'static str,
    pub(crate) name: String,
    pub(crate) spans: usize,
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

/// Times a batch of each row, one row after the other, in each of so many rounds.
///
/// What is slow for some rounds, such as a processor at a lower frequency, is slow for all rows:
/// ratios are of two batches of one round.
pub(crate) fn measure(rows: &mut [Row<'_>], rounds: usize) -> Vec<Figures> {
    let spans: Vec<usize> = rows.iter_mut().map(spans_in_a_batch).collect();
    let mut nanos = vec![Vec::with_capacity(rounds); rows.len()];
    for _ in 0..rounds {
        for ((row, &spans), nanos) in rows.iter_mut().zip(&spans).zip(&mut nanos) {
            nanos.push((row.batch)(spans));
        }
    }
    let of = |id: &str| rows.iter().position(|row| row.id == id).map(|index| &nanos[index]);
    let ratio = |nanos: &[f64], base: &str| {
        let base = of(base).expect("a row's base is a row");
        Median::of(nanos.iter().zip(base).map(|(nanos, base)| nanos / base).collect())
    };
    let figures = rows.iter().zip(&nanos).zip(spans).map(|((row, nanos), spans)| Figures {
        id: row.id,
        name: row.name.clone(),
        spans,
        nanos: Median::of(nanos.clone()),
        least: nanos.iter().copied().fold(f64::INFINITY, f64::min),
        to_pair: ratio(nanos, PAIR),
        target: row.target.map(|target| (target, ratio(nanos, target.base))),
    });
    figures.collect()
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
