//! The difference of two sides that did not run in turns, without the steady drift of the machine.

use super::trimming::{kept, trimmed};

/// A difference of two sides if the machine became steadily slower or faster, within them and between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Drift {
    pub(super) log: f64,
    pub(super) error: f64,
    pub(super) degrees: f64,
}

impl Drift {
    /// From the logarithms of both sides and when they were measured. Without times, the processes of a side
    /// followed each other evenly, and the sides were as far apart as one of them is long.
    pub(super) fn taken_off(a: &[f64], b: &[f64], times: Option<[&[f64]; 2]>) -> Option<Self> {
        let even = |n: usize| (0..n).map(|i| i as f64).collect::<Vec<f64>>();
        let (even_a, even_b) = (even(a.len()), even(b.len()));
        let [times_a, times_b] = times.unwrap_or([&even_a, &even_b]);
        let (line_a, line_b) = (Line::of(times_a, a)?, Line::of(times_b, b)?);
        let squares = line_a.squares + line_b.squares;
        let slope = (line_a.products + line_b.products) / squares;
        let most = line_a.length + line_b.length;
        let apart = if times.is_some() { line_b.time - line_a.time } else { most };
        let apart = apart.clamp(-most, most);
        let degrees = (kept(a.len()) + kept(b.len())) as f64 - 3.0;
        // As with the winsorised error of a mean: fewer count than there are.
        let [n_a, n_b] = [a.len() as f64, b.len() as f64];
        let counted = (kept(a.len()) + kept(b.len())) as f64 / (n_a + n_b);
        let variance = (line_a.off(slope) + line_b.off(slope)) / degrees / counted;
        Some(Self {
            log: line_b.log - line_a.log - slope * apart,
            error: (variance * (1.0 / n_a + 1.0 / n_b + apart * apart / squares)).sqrt(),
            degrees,
        })
    }
}

/// The logarithms of a side against their times.
#[derive(Debug)]
struct Line {
    /// The mean time, and the time from the first process to one after the last.
    time: f64,
    length: f64,
    /// The mean logarithm.
    log: f64,
    /// Of the times' deviations from their mean; and those times the logarithms'.
    squares: f64,
    products: f64,
    /// Deviations of times and of logarithms.
    points: Vec<(f64, f64)>,
}

impl Line {
    /// `None` if all were measured at one time.
    fn of(times: &[f64], logs: &[f64]) -> Option<Self> {
        let logs = near_their_line(times, logs);
        let n = times.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
        let (time, log) = (mean(times), mean(&logs));
        let points: Vec<(f64, f64)> =
            times.iter().zip(&logs).map(|(t, l)| (t - time, l - log)).collect();
        let ends = times.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &t| {
            (least.min(t), most.max(t))
        });
        let squares: f64 = points.iter().map(|(t, _)| t * t).sum();
        (squares > 0.0).then(|| Self {
            time,
            length: (ends.1 - ends.0) * n / (n - 1.0),
            log,
            squares,
            products: points.iter().map(|(t, l)| t * l).sum(),
            points,
        })
    }

    /// The sum of the squares of the logarithms' distances from a line with this slope.
    fn off(&self, slope: f64) -> f64 {
        self.points.iter().map(|(t, l)| (l - slope * t) * (l - slope * t)).sum()
    }
}

/// The same logarithms; where trimming begins, the fifths that are farthest above and below their line are moved to
/// where the others end. The line is that of the median slope of two points (Theil 1950, Sen 1968).
fn near_their_line(times: &[f64], logs: &[f64]) -> Vec<f64> {
    let cut = trimmed(logs.len());
    if cut == 0 {
        return logs.to_vec();
    }
    let mut slopes = Vec::new();
    for (i, (t, l)) in times.iter().zip(logs).enumerate() {
        let before = times.iter().zip(logs).take(i);
        slopes.extend(before.map(|(t0, l0)| (l - l0) / (t - t0)).filter(|s| s.is_finite()));
    }
    let Some(slope) = brickscope_profile::stats::median(&slopes) else { return logs.to_vec() };
    let off = || times.iter().zip(logs).map(|(t, l)| l - slope * t);
    let mut sorted: Vec<f64> = off().collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[cut], sorted[sorted.len() - 1 - cut]);
    off().zip(times).map(|(off, t)| off.clamp(low, high) + slope * t).collect()
}
