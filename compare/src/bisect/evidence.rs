//! Evidence from pairs whose order was drawn at random, that holds whenever one stops to look.

use brickscope_profile::stats::median;

/// The differences of logarithms that bets are on.
const EFFECTS: [f64; 3] = [0.005, 0.02, 0.1];

/// The scales of noise that they reckon with.
const SCALES: [f64; 3] = [0.001, 0.006, 0.03];

/// Where noise seems larger than this, all of them are larger in proportion.
pub(super) const USUAL_SCALE: f64 = 0.03;

/// So many pairs tell how large noise seems to be.
pub(super) const SCALE_FROM: usize = 4;

/// What has been won by bets on pairs being above 0, from a stake of 1.
///
/// Who of a pair runs first is drawn by a fair coin. If the two don't differ, the coin decides the sign of a pair's
/// difference and nothing else does, whatever the machine did meanwhile: drift, states, heavy tails. So of a pair of the
/// size |d| either sign is equally likely, and what a bet at these odds has won is more than 1/α at any time with a
/// probability of at most α (Ville, "Étude critique de la notion de collectif", 1939; such bets on signs: Ramdas, Ruf,
/// Larsson and Koolen, "Admissible anytime-valid sequential inference must rely on nonnegative martingales", 2020). That
/// is why one may stop as soon as it is enough.
///
/// A bet stakes, for an assumed difference and scale, as Student's t with 2 degrees of freedom says how much likelier the
/// sign is than its opposite. Large outliers then say nearly nothing. How large noise seems to be is known from earlier
/// pairs, so it knows nothing of the coin. The stake is divided between all cells of a grid (a mixture: Robbins,
/// "Statistical methods related to the law of the iterated logarithm", 1970).
#[derive(Debug, Clone)]
pub(super) struct Wealth {
    /// The logarithm of what each cell has won.
    cells: [f64; EFFECTS.len() * SCALES.len()],
    /// The most there was so far, as a logarithm.
    most: f64,
}

impl Default for Wealth {
    fn default() -> Self {
        Self { cells: [0.0; EFFECTS.len() * SCALES.len()], most: 0.0 }
    }
}

impl Wealth {
    /// Of all these pairs.
    fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut wealth = Self::default();
        pairs.into_iter().for_each(|(pair, scale)| wealth.bet(pair, scale));
        wealth
    }

    /// Bets on a pair, where noise seems to have this scale.
    pub(super) fn bet(&mut self, pair: f64, scale: f64) {
        let more = (scale / USUAL_SCALE).max(1.0);
        let mut cell = 0;
        for effect in EFFECTS.map(|effect| effect * more) {
            let (near, far) = ((pair - effect).powi(2), (pair + effect).powi(2));
            for part in SCALES {
                let square = 2.0 * (part * more).powi(2);
                let odds = 1.5 * ((square + far) / (square + near)).ln();
                self.cells[cell] += std::f64::consts::LN_2 - (-odds).exp().ln_1p();
                cell += 1;
            }
        }
        self.most = self.most.max(self.log());
    }

    /// The logarithm of what there is now.
    fn log(&self) -> f64 {
        log_sum(&self.cells) - (self.cells.len() as f64).ln()
    }

    /// Whether it was ever so much that chance would have won it with a probability of at most `alpha`.
    pub(super) fn is_enough(&self, alpha: f64) -> bool {
        self.most >= -alpha.ln()
    }

    /// How far it is on the way there, from 0 to 1.
    pub(super) fn part_of(&self, alpha: f64) -> f64 {
        (self.most / -alpha.ln()).clamp(0.0, 1.0)
    }
}

/// The logarithm of a sum, of logarithms.
pub(super) fn log_sum(logs: &[f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !most.is_finite() {
        return most;
    }
    most + logs.iter().map(|log| (log - most).exp()).sum::<f64>().ln()
}

/// The middle of pairs: the median of the means of each two of them (Hodges and Lehmann, "Estimates of location based
/// on rank tests", 1963). `None` for no pairs.
pub(super) fn middle(pairs: &[f64]) -> Option<f64> {
    // So many say enough, and the number of means grows with their square.
    let pairs = &pairs[pairs.len().saturating_sub(300)..];
    let mut means = Vec::with_capacity(pairs.len() * (pairs.len() + 1) / 2);
    for (nth, one) in pairs.iter().enumerate() {
        means.extend(pairs[nth..].iter().map(|other| one / 2.0 + other / 2.0));
    }
    median(&means)
}

/// The robust standard deviation of pairs (1.4826 × the median absolute deviation: Hampel, "The influence curve and its
/// role in robust estimation", 1974). `None` for no pairs.
pub(super) fn scale(pairs: &[f64]) -> Option<f64> {
    let centre = median(pairs)?;
    let away: Vec<f64> = pairs.iter().map(|pair| (pair - centre).abs()).collect();
    Some(1.4826 * median(&away)?)
}

/// All differences that the pairs don't speak against: the true one is missed with a probability of at most `alpha`,
/// whenever one looks (a confidence sequence: Darling and Robbins, "Confidence sequences for mean, variance, and
/// median", 1967). Infinite where there are too few pairs. Each pair comes with the scale that it was bet with.
pub(super) fn interval(pairs: &[(f64, f64)], alpha: f64) -> (f64, f64) {
    let values: Vec<f64> = pairs.iter().map(|(pair, _)| *pair).collect();
    let Some(centre) = middle(&values) else { return (f64::NEG_INFINITY, f64::INFINITY) };
    let end = |sign: f64| {
        // Half of the error to each side.
        let is_out = |at: f64| {
            let off = pairs.iter().map(|(pair, scale)| (sign * (at - pair), *scale));
            Wealth::of(off).log() >= -(alpha / 2.0).ln()
        };
        let mut step = 1e-4;
        while !is_out(centre + sign * step) {
            step *= 1.5;
            // No program becomes a million times slower.
            if step > 14.0 {
                return f64::INFINITY * sign;
            }
        }
        let (mut inside, mut outside) = (step / 1.5, step);
        for _ in 0..12 {
            let half = inside + (outside - inside) / 2.0;
            if is_out(centre + sign * half) { outside = half } else { inside = half }
        }
        centre + sign * outside
    };
    (end(-1.0), end(1.0))
}
