//! Student's t distribution, for any number of degrees of freedom from 1 on, whole or not.

use std::cell::RefCell;
use std::collections::HashMap;

/// The probability that |t| is at least `t`.
///
/// By the incomplete beta function: `I(ν / (ν + t²); ν/2, 1/2)` (Abramowitz and Stegun, 26.7.1 and
/// 26.5.27).
#[must_use]
pub fn two_sided(t: f64, degrees: f64) -> f64 {
    tail(t, degrees, log_beta(degrees / 2.0, 0.5))
}

/// As [`two_sided`]; `log_beta` is that of half the degrees and ½.
fn tail(t: f64, degrees: f64, log_beta: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(degrees / 2.0, 0.5, degrees / t.mul_add(t, degrees), log_beta)
}

/// The most quantiles that are kept.
const KEPT: usize = 512;

thread_local! {
    /// Quantiles that were asked for, by the bits of what they are of: all rows of a table ask for the same few.
    static FOUND: RefCell<HashMap<[u64; 2], f64>> = RefCell::new(HashMap::new());
}

/// The value that |t| exceeds with this probability.
#[must_use]
pub fn quantile(probability: f64, degrees: f64) -> f64 {
    FOUND.with_borrow_mut(|found| {
        if found.len() >= KEPT {
            found.clear();
        }
        let of = [probability.to_bits(), degrees.to_bits()];
        *found.entry(of).or_insert_with(|| solved(probability, degrees))
    })
}

/// By Newton's method on the logarithms of both, which are nearly linear in the tails, within a bracket that is halved if a
/// step leaves it.
fn solved(probability: f64, degrees: f64) -> f64 {
    let half = degrees / 2.0;
    // Once, not at each step: it takes as long as all else of one.
    let log_beta = log_beta(half, 0.5);
    let (mut low, mut high) = (0.0, 1.0);
    while tail(high, degrees, log_beta) > probability {
        low = high;
        high *= 4.0;
        if high > 1e15 {
            return f64::INFINITY;
        }
    }
    let log_front =
        ln_gamma(half + 0.5) - ln_gamma(half) - 0.5 * (degrees * std::f64::consts::PI).ln();
    let mut t = high;
    for _ in 0..100 {
        let tail = tail(t, degrees, log_beta);
        if tail > probability {
            low = t;
        } else {
            high = t;
        }
        let density = (log_front - (half + 0.5) * (t * t / degrees).ln_1p()).exp();
        let step = (tail / probability).ln() * tail / (2.0 * density * t);
        let mut next = t * step.exp();
        if !(low..=high).contains(&next) {
            next = low + (high - low) / 2.0;
        }
        let is_there = (next - t).abs() <= 1e-13 * t;
        t = next;
        if is_there {
            break;
        }
    }
    t
}

/// The probability of at least `successes` in `trials` that succeed with probability `chance` each, by the
/// same function (Abramowitz and Stegun, 26.5.24).
#[must_use]
pub fn binomial_at_least(successes: u64, trials: u64, chance: f64) -> f64 {
    if successes == 0 {
        return 1.0;
    }
    if successes > trials {
        return 0.0;
    }
    let (a, b) = (successes as f64, (trials - successes + 1) as f64);
    incomplete_beta(a, b, chance, log_beta(a, b))
}

/// The logarithm of the beta function.
fn log_beta(a: f64, b: f64) -> f64 {
    ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b)
}

/// The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22), evaluated by Lentz's
/// method. `log_beta` is that of `a` and `b`, in either order.
fn incomplete_beta(a: f64, b: f64, x: f64, log_beta: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast only on this side.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x, log_beta);
    }
    let front = (a * x.ln() + b * (-x).ln_1p() - log_beta).exp() / a;
    let away_from_0 = |x: f64| if x.abs() < 1e-300 { 1e-300 } else { x };
    let (mut fraction, mut c, mut d) = (1.0, 1.0, 0.0);
    for step in 0..500 {
        let m = f64::from(step / 2);
        let numerator = match step {
            0 => 1.0,
            _ if step % 2 == 0 => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        };
        d = 1.0 / away_from_0(1.0 + numerator * d);
        c = away_from_0(1.0 + numerator / c);
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * (fraction - 1.0)
}

/// The logarithm of the gamma function above 0, by Lanczos's approximation (g = 7, 9 terms).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Reflection.
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let t = x + 7.5;
    let terms = TERMS.iter().zip(1_u8..).map(|(term, i)| term / (x + f64::from(i)));
    let sum = 0.999_999_999_999_809_9 + terms.sum::<f64>();
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Fisher and Yates, "Statistical tables", table III, and for whole degrees of freedom by
        // closed forms: tan for 1, and 2 has t = √(2/(p(2−p)) − 2).
        for (probability, degrees, t) in [
            (0.05, 1.0, 12.706_205),
            (0.05, 4.0, 2.776_445),
            (0.05, 30.0, 2.042_272),
            (0.01, 10.0, 3.169_273),
            (0.001, 5.0, 6.868_827),
            (0.001, 19.0, 3.883_406),
            (0.05, 1e6, 1.959_966),
        ] {
            let found = quantile(probability, degrees);
            assert!((found / t - 1.0).abs() < 1e-6, "{probability}, {degrees}: {found}, not {t}");
        }
        for probability in [0.5, 0.05, 1e-3, 1e-6, 1e-10_f64] {
            let one = (std::f64::consts::FRAC_PI_2 * (1.0 - probability)).tan();
            assert!((quantile(probability, 1.0) / one - 1.0).abs() < 1e-5, "{probability}");
            let two = (2.0 / (probability * (2.0 - probability)) - 2.0).sqrt();
            assert!((quantile(probability, 2.0) / two - 1.0).abs() < 1e-9, "{probability}");
        }
    }

    #[test]
    fn the_tails_are_what_the_quantiles_leave() {
        for degrees in [1.0, 2.5, 7.0, 18.9, 400.0] {
            for probability in [0.9, 0.3, 0.01, 1e-5] {
                let back = two_sided(quantile(probability, degrees), degrees);
                assert!(
                    (back / probability - 1.0).abs() < 1e-9,
                    "{degrees}, {probability}: {back}"
                );
            }
            assert_eq!(two_sided(0.0, degrees), 1.0);
            assert_eq!(two_sided(f64::INFINITY, degrees), 0.0);
        }
    }
}
