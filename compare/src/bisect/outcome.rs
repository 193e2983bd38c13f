//! What a search found, and how far it is.

use serde::Serialize;

use super::evidence::{interval, middle};
use super::position::Segment;
use super::{Bisect, Progress, merged};

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The answer.
    pub verdict: Verdict,
    /// The last revision beside the first one.
    pub ends: Option<Estimate>,
    /// The revision that was found beside the one before it.
    pub step: Option<Estimate>,
    /// Which revisions may have made the step, with 95 %, and how likely the likeliest is.
    pub likely: Places,
    /// What the machine did by itself.
    pub controls: Controls,
    /// Pairs of measurements.
    pub pairs: usize,
    /// Measurements.
    pub measurements: u64,
    /// Revisions that can't be measured, of those that were asked for.
    pub unusable: Vec<usize>,
}

/// The answer of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Verdict {
    /// One of the revisions from `after + 1` to `to` made it slower. It is one revision, unless those between can't be
    /// measured.
    Found {
        /// The last revision that is as fast as the first one.
        after: usize,
        /// The first revision that is known to be slower.
        to: usize,
    },
    /// There is none to be found here.
    None {
        /// Why.
        why: Why,
    },
    /// It could not be decided.
    Inconclusive {
        /// Why.
        why: Why,
    },
}

/// Why no revision was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The ends don't differ by as much as matters.
    NoDifference,
    /// The last revision is faster than the first one.
    Faster,
    /// The machine drifted by more than what is looked for.
    Drift,
    /// No more measurements were allowed.
    Cap,
    /// No single revision stands out: the change may be one of several, or many small ones.
    NotOneStep,
}

/// How much longer one revision takes than another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The ratio of times: 1.03 is 3 % slower.
    pub ratio: f64,
    /// The lower end of its interval of 95 %; `None` if it is not bounded yet.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The pairs it is from.
    pub pairs: usize,
}

/// Where the step may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Places {
    /// The first revision that may have made it.
    pub first: usize,
    /// The last one.
    pub last: usize,
    /// The probability of the likeliest revision, or of the likeliest ones that can't be told apart.
    pub top: f64,
}

/// What the machine did by itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Controls {
    /// The first revision beside itself.
    pub itself: Option<Estimate>,
    /// How much longer the second run of a pair takes than the first one: 1.01 is 1 %.
    pub second: Option<f64>,
    /// How much longer the first revision took at the end than at the beginning: 1.05 is 5 %. Between the two of a pair
    /// there is little of it.
    pub drift: Option<f64>,
}

impl Bisect {
    /// How many pairs were measured.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Whether it is known already that the last revision is slower than the first one.
    #[must_use]
    pub fn ends_differ(&self) -> bool {
        self.places.is_some()
    }

    /// How much slower revision `b` is than `a`, by the pairs that they were measured in; `None` without any.
    #[must_use]
    pub fn beside(&self, a: usize, b: usize) -> Option<Estimate> {
        let ratio = middle(&self.even_of(a, b))?.exp();
        let (low, high) = self.interval(a, b);
        let bound = |log: f64| log.is_finite().then(|| log.exp());
        let pairs = self.pairs_of(a, b).count();
        Some(Estimate { ratio, low: bound(low), high: bound(high), pairs })
    }

    fn interval(&self, a: usize, b: usize) -> (f64, f64) {
        let pairs: Vec<(f64, f64)> =
            self.pairs_of(a, b).map(|pair| (pair.even, pair.scale)).collect();
        interval(&pairs, 0.05)
    }

    /// How far the search is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let now = self.now().map(|run| {
            let (a, b) = (run.revision.min(run.beside), run.revision.max(run.beside));
            (run, self.beside(a, b))
        });
        Progress {
            measurements: self.measurements,
            now,
            ends: self.beside(0, self.record.last),
            likely: self.likely(),
            left: self.left(),
        }
    }

    /// What is said when no more measurements are allowed.
    pub(super) fn undecided(&self) -> Verdict {
        let ends = middle(&self.even_of(0, self.record.last)).unwrap_or_default();
        let sought = ends.abs().max(self.record.options.least.ln_1p());
        let drift = self.controls().drift.map_or(0.0, |drift| drift.ln().abs());
        // Then there is another reason than too few measurements.
        if drift > sought {
            return Verdict::Inconclusive { why: Why::Drift };
        }
        Verdict::Inconclusive { why: Why::Cap }
    }

    /// Why there is nothing slower by as much as matters.
    pub(super) fn below_what(&self) -> Why {
        let (_, high) = self.interval(0, self.record.last);
        if high < 0.0 { Why::Faster } else { Why::NoDifference }
    }

    pub(super) fn outcome_of(&self, verdict: Verdict) -> Outcome {
        let step = match verdict {
            Verdict::Found { after, to } => self.beside(after, to),
            _ => None,
        };
        Outcome {
            verdict,
            ends: self.beside(0, self.record.last),
            step,
            likely: self.likely(),
            controls: self.controls(),
            pairs: self.pairs.len(),
            measurements: self.measurements,
            unusable: self.unusable.iter().copied().collect(),
        }
    }

    fn segments(&self) -> Vec<Segment> {
        let whole = || vec![Segment { after: 0, to: self.record.last, mass: 1.0 }];
        self.places.as_ref().map_or_else(whole, |places| places.segments())
    }

    fn likely(&self) -> Places {
        let segments = self.segments();
        let at = |share: f64| {
            let mut before = 0.0;
            for Segment { after, to, mass } in &segments {
                if before + mass >= share {
                    let part = (share - before) / mass * (to - after) as f64;
                    return (after + part.ceil().max(1.0) as usize).min(*to);
                }
                before += mass;
            }
            self.record.last
        };
        let of_one = |segment: &Segment| match self.top(&[*segment]) {
            Some(whole) => whole.mass,
            None => segment.mass / (segment.to - segment.after) as f64,
        };
        let segments = merged(&segments, |revision| self.is_usable(revision));
        let top = segments.iter().map(of_one).fold(0.0, f64::max);
        Places { first: at(0.025), last: at(0.975), top }
    }

    fn controls(&self) -> Controls {
        let third = self.of_good.len() / 3;
        let ends = (third >= 3).then(|| {
            let (first, last) =
                (&self.of_good[..third], &self.of_good[self.of_good.len() - third..]);
            Some((middle(last)? - middle(first)?).exp())
        });
        Controls {
            itself: self.beside(0, 0),
            second: middle(&self.costs_of_second()).map(f64::exp),
            drift: ends.flatten(),
        }
    }

    /// About how many measurements are left: from simulations (see the tests).
    fn left(&self) -> Option<u64> {
        let places = self.places.as_ref()?;
        let clearness = places.clearness();
        let bits: f64 = places
            .segments()
            .iter()
            .filter(|segment| segment.mass > 0.0)
            .map(|s| s.mass * ((s.to - s.after) as f64 / s.mass).log2())
            .sum();
        let a_pair = 0.55 * (1.0 - (-0.3 * clearness * clearness).exp());
        let test = self.testing.and_then(|ends| self.tests.get(&ends));
        let missing = test.map_or(1.0, |test| 1.0 - test.wealth.part_of(test.alpha));
        let pairs = (bits.max(0.0) + 6.0 * missing) / a_pair;
        let most = self.record.options.max_measurements.saturating_sub(self.measurements);
        // A float beyond the range becomes the largest integer.
        Some(((2.0 * pairs).ceil() as u64).clamp(2, most.max(2)))
    }
}
