//! Which experts of a mixture ran, layer by layer.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;
use crate::brick::Phase;

/// What was asked of one expert of a layer, in the passes of a phase that count.
///
/// There is no time in it: where all experts of a product are computed in one operation, no clock is read around one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExpertRuns {
    /// Its number.
    pub expert: u32,
    /// How many tokens chose it.
    pub tokens: u64,
    /// In how many passes at least one did.
    pub passes: u64,
    /// How often its matrices were read: once for each time that the layer was computed and a token chose it. A pass of
    /// more tokens than are computed at once computes a layer several times.
    pub reads: u64,
    /// The bytes of its matrices in these reads.
    pub bytes: u64,
}

/// Which experts of a layer ran, in the passes of a phase that count: also in those that something disturbed, since choices
/// are no times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerExperts {
    /// The phase of the passes.
    pub phase: Phase,
    /// The layer; `None` if nothing named it.
    pub layer: Option<u16>,
    /// How many experts it has.
    pub n_expert: u32,
    /// How many each token chose; `None` if no choice could be read.
    #[serde(default)]
    pub n_used: Option<u32>,
    /// Passes in which a choice was read.
    pub passes: u64,
    /// How often the layer was computed with a choice that was read.
    pub reads: u64,
    /// The tokens that chose.
    pub tokens: u64,
    /// Those that ran, by their numbers. The others ran in none of these passes.
    pub experts: Vec<ExpertRuns>,
    /// Choices that were the number of no expert. Some versions leave out experts by a number below 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub odd: u64,
    /// How often the layer was computed, and what was chosen could not be read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread: u64,
    /// Why it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_absent: Option<Absent>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LayerExperts {
    fn sum(&self, of: impl Fn(&ExpertRuns) -> u64) -> u64 {
        self.experts.iter().map(of).fold(0, u64::saturating_add)
    }

    /// All choices of experts: each token makes as many as it uses.
    #[must_use]
    pub fn choices(&self) -> u64 {
        self.sum(|of| of.tokens)
    }

    /// The bytes of experts' matrices that were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sum(|of| of.bytes)
    }

    /// How often the matrices of any expert were read.
    #[must_use]
    pub fn expert_reads(&self) -> u64 {
        self.sum(|of| of.reads)
    }

    /// How many different experts ran each time that the layer was computed, on average.
    #[must_use]
    pub fn different(&self) -> Option<f64> {
        (self.reads > 0).then(|| self.expert_reads() as f64 / self.reads as f64)
    }

    /// The expert that most tokens chose; of several, the first.
    #[must_use]
    pub fn busiest(&self) -> Option<&ExpertRuns> {
        let ran = self.experts.iter().filter(|of| of.tokens > 0);
        // The last of equals is the first one then.
        ran.rev().max_by_key(|of| of.tokens)
    }

    /// How many times as many tokens chose the busiest expert as chose an expert on average, the idle ones included: 1 if
    /// all are chosen alike.
    #[must_use]
    pub fn imbalance(&self) -> Option<f64> {
        let choices = self.choices() as f64;
        let busiest = self.busiest()?.tokens as f64;
        (choices > 0.0 && self.n_expert > 0).then(|| busiest * f64::from(self.n_expert) / choices)
    }

    /// How many experts ran at all.
    #[must_use]
    pub fn ran(&self) -> u64 {
        self.experts.len() as u64
    }

    /// How many experts no token chose.
    #[must_use]
    pub fn idle(&self) -> u64 {
        u64::from(self.n_expert).saturating_sub(self.ran())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(n_expert: u32, tokens: &[(u32, u64)]) -> LayerExperts {
        let of = |&(expert, tokens): &(u32, u64)| ExpertRuns {
            expert,
            tokens,
            passes: 2,
            reads: 3,
            bytes: 300,
        };
        LayerExperts {
            phase: Phase::Decode,
            layer: Some(0),
            n_expert,
            n_used: Some(2),
            passes: 2,
            reads: 4,
            tokens: 6,
            experts: tokens.iter().map(of).collect(),
            odd: 0,
            unread: 0,
            unread_absent: None,
        }
    }

    #[test]
    fn the_busiest_is_held_against_the_mean_of_all() {
        let of = layer(8, &[(1, 2), (4, 7), (5, 7)]);
        assert_eq!(of.busiest().map(|of| of.expert), Some(4));
        // 16 choices of 8 experts: 2 each.
        assert_eq!((of.choices(), of.imbalance()), (16, Some(3.5)));
        assert_eq!((of.ran(), of.idle()), (3, 5));
        // Nine reads of experts in four of the layer.
        assert_eq!((of.different(), of.bytes()), (Some(2.25), 900));
    }

    #[test]
    fn of_a_layer_that_nobody_saw_nothing_is_said() {
        let none = LayerExperts { reads: 0, ..layer(8, &[]) };
        assert_eq!((none.busiest(), none.imbalance(), none.different()), (None, None, None));
        assert_eq!(none.idle(), 8);
        // A file may contain anything.
        let odd = layer(0, &[(7, u64::MAX), (9, u64::MAX)]);
        assert_eq!((odd.choices(), odd.imbalance(), odd.idle()), (u64::MAX, None, 0));
    }

    #[test]
    fn what_is_not_there_takes_no_room_in_a_file() {
        let of = layer(8, &[(1, 2)]);
        let json = serde_json::to_string(&of).expect("it is data");
        assert!(!json.contains("odd") && !json.contains("unread"), "{json}");
        assert_eq!(serde_json::from_str::<LayerExperts>(&json).expect("it was written"), of);
    }
}
