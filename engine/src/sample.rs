//! Choosing the next token.

use crate::finite::LogitsSeen;
use brickscope::stats::SplitMix64;

/// How to choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// The most likely token; among equals, the one with the lowest id.
    Greedy,
    /// At random, by the softmax of `logits / temperature`, among the `top_k` most likely tokens, and
    /// among these the fewest that together reach a probability of `top_p`.
    Random {
        /// Above 0. Higher is more random.
        temperature: f32,
        /// The most candidates; 0 for all.
        top_k: usize,
        /// 0 to 1; 1 for all.
        top_p: f32,
        /// The same seed gives the same choices.
        seed: u64,
    },
}

/// Chooses tokens, one after the other.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    random: SplitMix64,
    /// Room for the candidates: token and logit, then probability.
    candidates: Vec<(u32, f32)>,
    seen: LogitsSeen,
}

impl Sampler {
    /// A sampler at the start of its random sequence.
    #[must_use]
    pub fn new(sampling: Sampling) -> Self {
        let seed = match sampling {
            Sampling::Greedy => 0,
            Sampling::Random { seed, .. } => seed,
        };
        Self {
            sampling,
            random: SplitMix64(seed),
            candidates: Vec::new(),
            seen: LogitsSeen::default(),
        }
    }

    /// What it has seen of logits so far.
    #[must_use]
    pub fn seen(&self) -> LogitsSeen {
        self.seen
    }

    /// The next token. NaN is never chosen; if there is nothing else, it is token 0. [`seen`](Self::seen) counts how often
    /// there was NaN or infinity.
    ///
    /// # Panics
    ///
    /// If there are no logits.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        assert!(!logits.is_empty(), "there is no token to choose from");
        let likeliest = Likeliest::of(logits);
        self.seen.saw(likeliest.are_finite);
        let Sampling::Random { temperature, top_k, top_p, .. } = self.sampling else {
            return likeliest.token(logits);
        };
        let candidates = &mut self.candidates;
        candidates.clear();
        candidates.extend((0..).zip(logits.iter().copied()).filter(|(_, logit)| !logit.is_nan()));
        // A temperature of NaN is none.
        if candidates.is_empty() || temperature.is_nan() || temperature <= 0.0 {
            return likeliest.token(logits);
        }
        let likeliest = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if top_k > 0 && top_k < candidates.len() {
            candidates.select_nth_unstable_by(top_k - 1, likeliest);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(likeliest);
        let max = candidates[0].1;
        if !max.is_finite() {
            return candidates[0].0;
        }
        let mut sum = 0.0;
        for (_, weight) in candidates.iter_mut() {
            *weight = ((*weight - max) / temperature).exp();
            sum += *weight;
        }
        let mut kept = 0.0;
        let n_kept = candidates
            .iter()
            .position(|&(_, weight)| {
                kept += weight;
                kept >= top_p * sum
            })
            .map_or(candidates.len(), |last| last + 1);
        candidates.truncate(n_kept);
        let total: f32 = candidates.iter().map(|&(_, weight)| weight).sum();
        let mut point = uniform(&mut self.random) * total;
        for &(token, weight) in candidates.iter() {
            point -= weight;
            if point < 0.0 {
                return token;
            }
        }
        // Rounding left the point at the very end.
        candidates[candidates.len() - 1].0
    }
}

/// What one walk over logits finds.
struct Likeliest {
    /// The highest that isn't NaN.
    logit: f32,
    /// Whether none is NaN or infinite.
    are_finite: bool,
}

impl Likeliest {
    /// Sixteen at a time: a single running maximum, or an early end, would keep the loop from running on vectors.
    fn of(logits: &[f32]) -> Self {
        let (mut most, mut bad) = ([f32::NEG_INFINITY; 16], [0u32; 16]);
        let mut add = |lane: usize, logit: f32| {
            most[lane] = if logit > most[lane] { logit } else { most[lane] };
            bad[lane] |= u32::from(!logit.is_finite());
        };
        let (sixteens, rest) = logits.as_chunks::<16>();
        for logits in sixteens {
            (0..16).for_each(|lane| add(lane, logits[lane]));
        }
        rest.iter().enumerate().for_each(|(lane, &logit)| add(lane, logit));
        let logit = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
        Self { logit, are_finite: bad == [0; 16] }
    }

    /// The first token with the highest logit; 0 if all are NaN.
    fn token(&self, logits: &[f32]) -> u32 {
        const AT_ONCE: usize = 64;
        let is_it = |&logit: &f32| logit == self.logit;
        let has_it = |logits: &[f32]| logits.iter().fold(false, |has, logit| has | is_it(logit));
        let Some(part) = logits.chunks(AT_ONCE).position(has_it) else { return 0 };
        let begin = part * AT_ONCE;
        let within = logits[begin..].iter().position(is_it).unwrap_or_default();
        u32::try_from(begin + within).unwrap_or_default()
    }
}

/// The next number in [0, 1), of the upper 24 bits.
fn uniform(random: &mut SplitMix64) -> f32 {
    (random.bits() >> 40) as f32 / (1u64 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(temperature: f32, top_k: usize, top_p: f32, seed: u64) -> Sampler {
        Sampler::new(Sampling::Random { temperature, top_k, top_p, seed })
    }

    #[test]
    fn greedy_takes_the_first_of_the_likeliest_and_never_what_is_no_number() {
        let mut sampler = Sampler::new(Sampling::Greedy);
        assert_eq!(sampler.sample(&[0.0, 3.0, 3.0, f32::NAN]), 1);
        assert_eq!(sampler.sample(&[f32::NAN, f32::NEG_INFINITY]), 1);
        assert_eq!(sampler.sample(&[f32::NAN, f32::NAN]), 0);
    }

    #[test]
    fn the_likeliest_of_many_is_the_one_that_a_plain_loop_finds() {
        let mut random = SplitMix64(5);
        for len in [1, 15, 16, 17, 63, 64, 65, 200, 1000] {
            for _ in 0..50 {
                // Few different values, so that there are equals.
                let logits: Vec<f32> =
                    (0..len).map(|_| (uniform(&mut random) * 40.0).floor() - 30.0).collect();
                let mut best = (0, f32::NEG_INFINITY);
                for (token, &logit) in (0..).zip(&logits) {
                    if logit > best.1 {
                        best = (token, logit);
                    }
                }
                let mut sampler = Sampler::new(Sampling::Greedy);
                assert_eq!(sampler.sample(&logits), best.0, "{logits:?}");
                assert_eq!(sampler.seen(), LogitsSeen { times: 1, not_finite: 0, first: None });
            }
        }
    }

    #[test]
    fn logits_that_are_no_numbers_are_counted_by_each_way_of_choosing() {
        let sampled = [random(1.0, 0, 1.0, 7), random(0.5, 2, 0.9, 7), random(f32::NAN, 3, 1.0, 7)];
        for mut sampler in sampled.into_iter().chain([Sampler::new(Sampling::Greedy)]) {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for place in [0, 3, 16, 39] {
                    let before = sampler.seen();
                    let mut logits = vec![0.25; 40];
                    let plain = sampler.sample(&logits);
                    logits[place] = bad;
                    let chosen = sampler.sample(&logits);
                    assert!(plain < 40 && chosen < 40);
                    assert_eq!(chosen as usize == place, bad == f32::INFINITY, "{bad} at {place}");
                    let after = sampler.seen();
                    let more = (after.times - before.times, after.not_finite - before.not_finite);
                    assert_eq!((more, after.first), ((2, 1), Some(1)));
                }
                let times = sampler.seen().not_finite;
                assert!(sampler.sample(&[bad; 40]) < 40);
                assert_eq!(sampler.seen().not_finite, times + 1);
            }
        }
    }

    #[test]
    fn the_same_seed_chooses_the_same_tokens() {
        let logits = [0.1, 0.2, 0.3, 0.4];
        let draw = |seed| {
            let mut sampler = random(1.0, 0, 1.0, seed);
            (0..50).map(|_| sampler.sample(&logits)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn tokens_come_as_often_as_their_probabilities_say() {
        let logits = [0.0, 1.0_f32, 2.0];
        let mut sampler = random(1.0, 0, 1.0, 1);
        let mut counts = [0u32; 3];
        for _ in 0..30_000 {
            counts[sampler.sample(&logits) as usize] += 1;
        }
        let sum: f32 = logits.iter().map(|l| l.exp()).sum();
        for (count, logit) in counts.iter().zip(logits) {
            let share = *count as f32 / 30_000.0;
            // Four standard deviations of a binomial share.
            let p = logit.exp() / sum;
            assert!((share - p).abs() < 4.0 * (p * (1.0 - p) / 30_000.0).sqrt(), "{counts:?}");
        }
    }

    #[test]
    fn top_k_and_top_p_leave_the_unlikely_out() {
        let logits = [5.0, 4.0, 3.0, -2.0];
        let (mut two, mut nucleus) = (random(2.0, 2, 1.0, 3), random(1.0, 0, 0.7, 3));
        for _ in 0..500 {
            assert!(two.sample(&logits) < 2);
            // exp(0) / (1 + e^-1 + e^-2 + e^-7) = 0.665: the second is needed to reach 0.7.
            assert!(nucleus.sample(&logits) < 2);
        }
        assert_eq!(random(1e-6, 0, 1.0, 3).sample(&logits), 0);
    }
}
