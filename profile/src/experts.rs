//! Which experts of a mixture ran, layer by layer, and how long each took.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;
use crate::brick::Phase;

/// What was asked of one expert of a layer, in the passes of a phase that count.
///
/// There is no time in it, see [`ExpertTime`]: where all experts of a product are computed in one operation, no clock is
/// read around one.
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

/// How long one expert of a layer ran on devices, in the passes of a phase: where a file tells which kernels are its own.
///
/// A kernel that computes several experts at once is of none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExpertTime {
    /// Its number.
    pub expert: u32,
    /// How long its kernels and copies ran, summed: each by two readings of its device's clock.
    pub ns: u64,
    /// How many these are.
    pub kernels: u64,
    /// In how many passes there was one.
    pub passes: u64,
}

/// Which experts of a layer ran, in the passes of a phase that count: also in those that something disturbed, since choices
/// are no times.
///
/// A run knows what was chosen (`experts`), or how long each took (`times`). What it doesn't know is not in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerExperts {
    /// The phase of the passes.
    pub phase: Phase,
    /// The layer; `None` if nothing named it.
    pub layer: Option<u16>,
    /// How many experts it has; `None` if nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_expert: Option<u32>,
    /// How many each token chose; `None` if no choice could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_used: Option<u32>,
    /// Passes in which a choice was read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub passes: u64,
    /// How often the layer was computed with a choice that was read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reads: u64,
    /// The tokens that chose, where a choice was read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// Those that ran where a choice was read, by their numbers. The others ran in none of these passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experts: Vec<ExpertRuns>,
    /// How long experts ran, by their numbers, where that was recorded. The others may have run without a name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<ExpertTime>,
    /// In how many passes any of `times` ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub timed_passes: u64,
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
        let n_expert = self.n_expert.filter(|&n| n > 0)?;
        (choices > 0.0).then(|| busiest * f64::from(n_expert) / choices)
    }

    /// How many experts ran at all.
    #[must_use]
    pub fn ran(&self) -> u64 {
        self.experts.len() as u64
    }

    /// How many experts no token chose; `None` if nothing tells how many there are.
    #[must_use]
    pub fn idle(&self) -> Option<u64> {
        self.n_expert.map(|n| u64::from(n).saturating_sub(self.ran()))
    }

    /// How long the experts with a time ran, summed.
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.times.iter().map(|of| of.ns).fold(0, u64::saturating_add)
    }

    /// What ran of the experts with a time: kernels and copies.
    #[must_use]
    pub fn kernels(&self) -> u64 {
        self.times.iter().map(|of| of.kernels).fold(0, u64::saturating_add)
    }

    /// The expert that ran longest; of several, the first.
    #[must_use]
    pub fn longest(&self) -> Option<&ExpertTime> {
        let ran = self.times.iter().filter(|of| of.ns > 0);
        // The last of equals is the first one then.
        ran.rev().max_by_key(|of| of.ns)
    }

    /// How many times as long the longest expert ran as one of those with a time on average.
    #[must_use]
    pub fn time_imbalance(&self) -> Option<f64> {
        let longest = self.longest()?.ns as f64;
        let all = self.time_ns() as f64;
        Some(longest * self.times.len() as f64 / all)
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
            n_expert: Some(n_expert),
            n_used: Some(2),
            passes: 2,
            reads: 4,
            tokens: 6,
            experts: tokens.iter().map(of).collect(),
            times: Vec::new(),
            timed_passes: 0,
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
        assert_eq!((of.ran(), of.idle()), (3, Some(5)));
        // Nine reads of experts in four of the layer.
        assert_eq!((of.different(), of.bytes()), (Some(2.25), 900));
    }

    #[test]
    fn of_a_layer_that_nobody_saw_nothing_is_said() {
        let none = LayerExperts { reads: 0, ..layer(8, &[]) };
        assert_eq!((none.busiest(), none.imbalance(), none.different()), (None, None, None));
        assert_eq!(none.idle(), Some(8));
        // A file may contain anything.
        let odd = layer(0, &[(7, u64::MAX), (9, u64::MAX)]);
        assert_eq!((odd.choices(), odd.imbalance(), odd.idle()), (u64::MAX, None, Some(0)));
    }

    #[test]
    fn what_is_not_there_takes_no_room_in_a_file() {
        let of = layer(8, &[(1, 2)]);
        let json = serde_json::to_string(&of).expect("it is data");
        assert!(!json.contains("odd") && !json.contains("unread"), "{json}");
        assert_eq!(serde_json::from_str::<LayerExperts>(&json).expect("it was written"), of);
    }

    /// Of experts whose kernels alone are known.
    fn timed(times: &[(u32, u64)]) -> LayerExperts {
        let of = |&(expert, ns): &(u32, u64)| ExpertTime { expert, ns, kernels: 3, passes: 1 };
        LayerExperts {
            n_expert: None,
            n_used: None,
            passes: 0,
            reads: 0,
            tokens: 0,
            times: times.iter().map(of).collect(),
            timed_passes: 2,
            ..layer(0, &[])
        }
    }

    #[test]
    fn a_time_needs_no_tokens_and_none_are_written_as_0() {
        let of = timed(&[(2, 100), (5, 500), (9, 500), (11, 400)]);
        assert_eq!((of.time_ns(), of.kernels()), (1500, 12));
        assert_eq!(of.longest().map(|of| of.expert), Some(5));
        assert_eq!(of.time_imbalance(), Some(500.0 * 4.0 / 1500.0));
        assert_eq!((of.busiest(), of.imbalance(), of.idle()), (None, None, None));
        let json = serde_json::to_string(&timed(&[(5, 500)])).expect("it is data");
        let time = r#"{"expert":5,"ns":500,"kernels":3,"passes":1}"#;
        let all = format!(r#"{{"phase":"decode","layer":0,"times":[{time}],"timed_passes":2}}"#);
        assert_eq!(json, all);
        assert_eq!(
            serde_json::from_str::<LayerExperts>(&json).expect("it was written"),
            timed(&[(5, 500)])
        );
        // A file may contain anything.
        let odd = timed(&[(0, u64::MAX), (1, u64::MAX), (2, 0)]);
        assert_eq!((odd.time_ns(), odd.longest().map(|of| of.expert)), (u64::MAX, Some(0)));
        assert_eq!(timed(&[(3, 0)]).time_imbalance(), None);
    }
}
