//! What the turns of one model on a number of threads show.

use anyhow::{Context as _, Result};
use brickscope::PairedRatio;

use crate::memory::Memory;
use crate::turns::{Agreement, Arm, Turn};

/// All turns of a model on a number of threads.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) threads: usize,
    pub(crate) prefill: Phase,
    pub(crate) decode: Phase,
    pub(crate) agreement: Agreement,
    /// Bytes per second read by loops that only read, once each round; or why they weren't measured.
    pub(crate) bandwidth: Result<Vec<f64>, String>,
    /// Bytes per second that could be read right before and right after each turn, by arm.
    pub(crate) around: [Vec<[f64; 2]>; 3],
}

/// A phase with a fixed number of tokens in each turn.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) tokens: usize,
    /// The seconds of each turn, by arm in the order of [`Arm`].
    pub(crate) seconds: [Vec<f64>; 3],
    /// The peer's arm with the lower median.
    pub(crate) better: Arm,
    /// The time of that arm over ours: how many times as fast ours is.
    pub(crate) ratio: PairedRatio,
}

/// The pairs of turns during which memory was equally fast.
#[derive(Debug)]
pub(crate) struct Alike {
    pub(crate) pairs: usize,
    /// Tokens per second of the peer's better arm and of ours, by the medians of their turns in these pairs.
    pub(crate) rates: [f64; 2],
    /// As in [`Phase`]; `None` with too few pairs.
    pub(crate) ratio: Option<PairedRatio>,
}

impl Phase {
    fn new(turns: &[Vec<Turn>; 3], tokens: usize, of: fn(&Turn) -> f64) -> Result<Self> {
        let seconds = turns.each_ref().map(|turns| turns.iter().map(of).collect::<Vec<_>>());
        // Choosing after the fact can only favour the peer.
        let [repacked, plain, ours] = &seconds;
        let better = if median(repacked) <= median(plain) { Arm::Repacked } else { Arm::Plain };
        let theirs = if better == Arm::Repacked { repacked } else { plain };
        let pairs: Vec<_> = ours.iter().copied().zip(theirs.iter().copied()).collect();
        Ok(Self { tokens, ratio: PairedRatio::new(&pairs)?, seconds, better })
    }

    /// Tokens per second, by the median of the turns.
    pub(crate) fn rate(&self, arm: Arm) -> f64 {
        self.tokens as f64 / median(&self.seconds[arm as usize])
    }

    /// The turns of the peer's better arm and of ours, in pairs.
    fn pairs(&self) -> impl Iterator<Item = [f64; 2]> {
        let [theirs, ours] = [self.better, Arm::Ours].map(|arm| &self.seconds[arm as usize]);
        theirs.iter().zip(ours).map(|(&theirs, &ours)| [theirs, ours])
    }
}

impl Cell {
    /// Computes the figures from the turns of each arm, in the order in which they were taken.
    pub(crate) fn new(
        threads: usize,
        turns: &[Vec<Turn>; 3],
        [prompt, answer]: [usize; 2],
        bandwidth: Result<Vec<f64>, String>,
    ) -> Result<Self> {
        let [repacked, plain, ours] = turns;
        let mut agreement = Agreement::default();
        for (arm, turns) in [(Arm::Repacked, repacked), (Arm::Plain, plain)] {
            for (turn, ours) in turns.iter().zip(ours) {
                let add = agreement.add(&turn.logits, &ours.logits);
                add.with_context(|| format!("the peer ({}) and ours", arm.name()))?;
            }
        }
        Ok(Self {
            threads,
            prefill: Phase::new(turns, prompt, |turn| turn.prefill)?,
            decode: Phase::new(turns, answer, |turn| turn.decode)?,
            agreement,
            bandwidth,
            around: turns.each_ref().map(|turns| turns.iter().map(|turn| turn.memory).collect()),
        })
    }

    /// The most bytes per second that could be read before or after any turn.
    pub(crate) fn best_around(&self) -> f64 {
        self.around.iter().flatten().flatten().copied().fold(0.0, f64::max)
    }

    /// The figures of the pairs of turns in which both turns had `memory`.
    pub(crate) fn alike(&self, phase: &Phase, memory: Memory) -> Alike {
        let best = self.best_around();
        let [theirs, ours] = [phase.better, Arm::Ours].map(|arm| &self.around[arm as usize]);
        let of = theirs.iter().zip(ours).map(|(theirs, ours)| [*theirs, *ours].concat());
        let pairs: Vec<_> = phase
            .pairs()
            .zip(of)
            .filter_map(|(pair, rates)| (Memory::new(rates, best) == memory).then_some(pair))
            .collect();
        let rate = |arm: usize| {
            let seconds: Vec<f64> = pairs.iter().map(|pair| pair[arm]).collect();
            phase.tokens as f64 / median(&seconds)
        };
        let swapped: Vec<_> = pairs.iter().map(|&[theirs, ours]| (ours, theirs)).collect();
        Alike {
            pairs: pairs.len(),
            rates: [rate(0), rate(1)],
            ratio: PairedRatio::new(&swapped).ok(),
        }
    }

    /// The most bytes per second read in any round.
    pub(crate) fn roof(&self) -> Option<f64> {
        self.bandwidth.as_ref().ok()?.iter().copied().max_by(f64::total_cmp)
    }

    /// The share of [`roof`](Self::roof) at which an arm reads weights while decoding, at `bytes` per token.
    pub(crate) fn share_of_roof(&self, arm: Arm, bytes: usize) -> Option<f64> {
        self.roof().map(|roof| self.decode.rate(arm) * bytes as f64 / roof)
    }

    /// The share of what could be read right before or after a turn, whichever is more, at which an arm reads weights
    /// while decoding, at `bytes` per token: the median of its turns.
    pub(crate) fn share_around(&self, arm: Arm, bytes: usize) -> f64 {
        let turns = self.decode.seconds[arm as usize].iter().zip(&self.around[arm as usize]);
        let share = |(seconds, [before, after]): (&f64, &[f64; 2])| {
            (self.decode.tokens * bytes) as f64 / seconds / before.max(*after)
        };
        median(&turns.map(share).collect::<Vec<_>>())
    }
}

/// The middle value, or the mean of the two middle ones; NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    if n % 2 == 1 { at(n / 2) } else { (at((n / 2).wrapping_sub(1)) + at(n / 2)) / 2.0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn made(threads: usize) -> Cell {
        made_of(6, threads)
    }

    /// `n` turns each, every one slower than the last. The peer is better plain in prefill, and repacked in decode.
    pub(crate) fn made_of(n: u32, threads: usize) -> Cell {
        let turns = |prefill: f64, decode: f64| -> Vec<Turn> {
            let turn = |i: u32| {
                let d = 1.0 + 0.01 * f64::from(i);
                Turn {
                    prefill: d * prefill,
                    decode: d * decode,
                    logits: vec![0.0, 1.0, 2.0],
                    // All of memory in two thirds of the turns, then half of it, and in the last sixth it comes back.
                    memory: match 6 * i / n {
                        ..4 => [50e9, 45e9],
                        4 => [25e9; 2],
                        _ => [25e9, 50e9],
                    },
                }
            };
            (0..n).map(turn).collect()
        };
        let arms = [turns(1.2, 2.5), turns(0.6, 2.6), turns(0.8, 1.25)];
        Cell::new(threads, &arms, [128, 32], Ok(vec![30e9, 40e9, 35e9])).unwrap()
    }

    #[test]
    fn the_better_of_the_two_counts_in_each_phase() {
        let Cell { prefill, decode, agreement, .. } = made(1);
        assert_eq!((prefill.better, decode.better), (Arm::Plain, Arm::Repacked));
        assert!((prefill.ratio.estimate - (0.6 / 0.8 - 1.0)).abs() < 1e-12, "ours takes longer");
        assert!((decode.ratio.estimate - 1.0).abs() < 1e-12, "ours is twice as fast");
        assert!((decode.rate(Arm::Ours) - 32.0 / (1.25 * 1.025)).abs() < 1e-9);
        assert_eq!((agreement.compared, agreement.same_top_1), (12, 12));
    }

    #[test]
    fn the_roof_is_the_best_round() {
        let cell = made(1);
        assert_eq!(cell.roof(), Some(40e9));
        let share = cell.share_of_roof(Arm::Ours, 1_000_000_000).unwrap();
        assert!((share - 32.0 / (1.25 * 1.025) / 40.0).abs() < 1e-9);
        let without = Cell { bandwidth: Err("no memory".to_owned()), ..cell };
        assert_eq!(without.share_of_roof(Arm::Ours, 1), None);
    }

    #[test]
    fn a_turn_is_held_against_the_better_of_what_was_read_before_and_after_it() {
        let cell = made(1);
        // Ours: 32 tokens in 1.25 s and 0 to 5 % more, of 50 GB/s in all turns but the fifth, with 25.
        let of = |turn: f64, rate: f64| 32.0 / (1.25 * (1.0 + 0.01 * turn)) / rate;
        let expected = median(&[
            of(0.0, 50.0),
            of(1.0, 50.0),
            of(2.0, 50.0),
            of(3.0, 50.0),
            of(4.0, 25.0),
            of(5.0, 50.0),
        ]);
        assert!((cell.share_around(Arm::Ours, 1_000_000_000) - expected).abs() < 1e-9);
    }

    #[test]
    fn pairs_are_told_apart_by_what_memory_gave() {
        let cell = made(2);
        assert_eq!(cell.best_around(), 50e9);
        let alike = |memory| cell.alike(&cell.decode, memory);
        let [all, less, changed] = [Memory::All, Memory::Less, Memory::Changed].map(alike);
        assert_eq!([all.pairs, less.pairs, changed.pairs], [4, 1, 1]);
        assert!(all.ratio.is_none(), "four are too few");
        assert!((all.rates[0] - 32.0 / (2.5 * 1.015)).abs() < 1e-9, "the median of four");
        assert!((less.rates[1] - 32.0 / (1.25 * 1.04)).abs() < 1e-9);
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        assert!(median(&[]).is_nan());
    }
}
