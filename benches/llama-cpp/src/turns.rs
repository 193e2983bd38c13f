//! Runs the three arms in turns.
//!
//! A round goes there and back, `A B ours ours B A`. A and B are the peer with and without repacking, and change places
//! from round to round. So each arm has one turn in each half of a round, slow changes affect all arms equally, and ours
//! goes first as often as last.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use brickscope_engine::Session;

use crate::{ik, llama};

/// The pause before each turn, until the threads of the previous arm have stopped spinning. OpenMP's spin for some
/// milliseconds, ours for half of one.
const PAUSE: Duration = Duration::from_millis(20);

/// What takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// The peer with repacked weights.
    Repacked,
    /// The peer with weights as in the file.
    Plain,
    /// brickscope's engine.
    Ours,
}

impl Arm {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Repacked => "repacked",
            Self::Plain => "plain",
            Self::Ours => "ours",
        }
    }

    /// The order of turns in a round.
    pub(crate) fn round(number: usize) -> [Self; 6] {
        let [a, b] = match number % 2 {
            0 => [Self::Repacked, Self::Plain],
            _ => [Self::Plain, Self::Repacked],
        };
        [a, b, Self::Ours, Self::Ours, b, a]
    }
}

/// An engine that runs tokens.
pub(crate) trait Engine {
    /// Forgets all tokens.
    fn clear(&mut self) -> Result<()>;

    /// Runs `tokens` after those so far.
    fn forward(&mut self, tokens: &[u32]) -> Result<()>;

    /// The logits that follow the last token.
    fn logits(&mut self) -> Result<Vec<f32>>;
}

/// brickscope's engine, with a copy of the last logits, which is in its time.
pub(crate) struct Ours<'m> {
    session: Session<'m>,
    logits: Vec<f32>,
}

impl<'m> Ours<'m> {
    pub(crate) const fn new(session: Session<'m>) -> Self {
        Self { session, logits: Vec::new() }
    }
}

impl Engine for Ours<'_> {
    fn clear(&mut self) -> Result<()> {
        self.session.clear();
        Ok(())
    }

    fn forward(&mut self, tokens: &[u32]) -> Result<()> {
        self.logits.clear();
        self.logits.extend(self.session.forward(tokens)?);
        Ok(())
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        Ok(self.logits.clone())
    }
}

impl Engine for llama::Context<'_> {
    fn clear(&mut self) -> Result<()> {
        llama::Context::clear(self);
        Ok(())
    }

    fn forward(&mut self, tokens: &[u32]) -> Result<()> {
        llama::Context::forward(self, tokens)
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        llama::Context::logits(self)
    }
}

impl Engine for ik::Context {
    fn clear(&mut self) -> Result<()> {
        ik::Context::clear(self)
    }

    fn forward(&mut self, tokens: &[u32]) -> Result<()> {
        ik::Context::forward(self, tokens)
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        ik::Context::logits(self)
    }
}

/// A turn: the prompt in one call, then one call for each token of the answer.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// Seconds for the prompt.
    pub(crate) prefill: f64,
    /// Seconds for the answer.
    pub(crate) decode: f64,
    /// The logits at the end of the prompt.
    pub(crate) logits: Vec<f32>,
    /// Bytes per second that could be read right before and right after the turn.
    pub(crate) memory: [f64; 2],
}

impl Turn {
    pub(crate) fn take(
        engine: &mut dyn Engine,
        prompt: &[u32],
        answer: &[u32],
        memory: &dyn Fn() -> f64,
    ) -> Result<Self> {
        thread::sleep(PAUSE);
        let before = memory();
        // One untimed token wakes the threads and faults in the first pages.
        engine.clear()?;
        engine.forward(&prompt[..1])?;
        engine.clear()?;

        let began = Instant::now();
        engine.forward(prompt)?;
        let prefill = began.elapsed().as_secs_f64();
        let logits = engine.logits()?;

        let began = Instant::now();
        for token in answer {
            engine.forward(std::slice::from_ref(token))?;
        }
        let decode = began.elapsed().as_secs_f64();
        thread::sleep(PAUSE);
        Ok(Self { prefill, decode, logits, memory: [before, memory()] })
    }
}

/// How close our logits are to the peer's, over the ends of many prompts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreement {
    /// How many ends of prompts were compared.
    pub(crate) compared: usize,
    /// At how many of them both prefer the same token.
    pub(crate) same_top_1: usize,
    /// The largest difference between two logits.
    pub(crate) max_difference: f64,
    /// The smallest standard deviation of the peer's logits at any end of a prompt.
    pub(crate) deviation: f64,
}

impl Agreement {
    /// Adds a comparison.
    ///
    /// # Errors
    ///
    /// If the logits can't come from the same model: their numbers differ, some aren't finite, or some differ by more
    /// than the standard deviation of the prompt's logits.
    pub(crate) fn add(&mut self, peer: &[f32], ours: &[f32]) -> Result<()> {
        ensure!(
            peer.len() == ours.len() && !peer.is_empty(),
            "the peer has {} logits for a token, but ours has {}",
            peer.len(),
            ours.len()
        );
        let are_numbers = peer.iter().chain(ours).all(|logit| logit.is_finite());
        ensure!(are_numbers, "some logits aren't numbers");
        let pairs = || peer.iter().zip(ours).map(|(&a, &b)| (f64::from(a), f64::from(b)));
        let n = peer.len() as f64;
        let mean = pairs().map(|(a, _)| a).sum::<f64>() / n;
        let deviation = (pairs().map(|(a, _)| (a - mean) * (a - mean)).sum::<f64>() / n).sqrt();
        let difference = pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        ensure!(
            difference <= deviation,
            "the logits at the end of the prompt are up to {difference:.3} apart, with a standard \
             deviation of {deviation:.3}: the two don't compute the same model"
        );
        self.deviation = if self.compared == 0 { deviation } else { self.deviation.min(deviation) };
        self.max_difference = self.max_difference.max(difference);
        self.compared += 1;
        self.same_top_1 += usize::from(top_1(peer) == top_1(ours));
        Ok(())
    }
}

/// The index of the largest logit, the first one if several are equal.
fn top_1(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_rounds_have_each_arm_once_and_ours_comes_first_in_every_other() {
        for number in 0..4 {
            let round = Arm::round(number);
            for half in round.chunks(3) {
                assert!(
                    [Arm::Repacked, Arm::Plain].iter().all(|arm| half.contains(arm)),
                    "{round:?}"
                );
            }
            assert_eq!((round[2], round[3]), (Arm::Ours, Arm::Ours));
        }
        assert_ne!(Arm::round(0)[0], Arm::round(1)[0]);
    }

    #[test]
    fn logits_agree_or_are_of_another_model() {
        let peer = [0.0, 1.0, 4.0, 2.0];
        let mut agreement = Agreement::default();
        agreement.add(&peer, &[0.25, 1.0, 4.0, 2.0]).unwrap();
        agreement.add(&peer, &[0.0, 1.0, 3.0, 3.5]).unwrap_err();
        agreement.add(&peer, &[0.0, 1.0, 3.0, 3.25]).unwrap();
        assert_eq!((agreement.compared, agreement.same_top_1), (2, 1));
        assert_eq!(agreement.max_difference, 1.25);
        let error = agreement.add(&peer, &[2.0, 4.0, 1.0, 0.0]).unwrap_err().to_string();
        assert!(error.contains("3.000 apart, with a standard deviation of 1.479"), "{error}");
        agreement.add(&peer, &[f32::NAN; 4]).unwrap_err();
        agreement.add(&peer, &[0.0; 3]).unwrap_err();
        assert_eq!(agreement.compared, 2);
    }

    #[test]
    fn a_turn_forgets_what_was_before_and_runs_each_token_once() {
        #[derive(Default)]
        struct Fake(Vec<u32>, Vec<Vec<u32>>);
        impl Engine for Fake {
            fn clear(&mut self) -> Result<()> {
                self.1.push(std::mem::take(&mut self.0));
                Ok(())
            }
            fn forward(&mut self, tokens: &[u32]) -> Result<()> {
                self.0.extend(tokens);
                Ok(())
            }
            fn logits(&mut self) -> Result<Vec<f32>> {
                Ok(vec![self.0.len() as f32])
            }
        }
        let mut fake = Fake(vec![9], vec![]);
        let reads = std::cell::Cell::new(7.0);
        let memory = || reads.replace(reads.get() + 1.0);
        let turn = Turn::take(&mut fake, &[1, 2, 3], &[4, 5], &memory).unwrap();
        assert_eq!(turn.memory, [7.0, 8.0]);
        assert_eq!(fake.1, [vec![9], vec![1]]);
        assert_eq!(fake.0, [1, 2, 3, 4, 5]);
        assert_eq!(turn.logits, [3.0], "at the end of the prompt, not of the answer");
    }
}
