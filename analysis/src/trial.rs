//! What a change brings, by runs with it and without it in turns.

use brickscope_profile::save::now_rfc3339;
use brickscope_profile::stats;
use brickscope_profile::{
    Absent, Change, PairedRatio, PassTime, Phase, Profile, Trial, TrialVerdict,
};

use crate::findings::{Finding, gaps};
use crate::typical::Typical;

/// Less saved is nothing gained.
const LEAST: f64 = 0.01;
/// A prediction is right within this part.
const TOLERANCE: f64 = 0.15;

/// A question to runs: what is saved of which time.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The change.
    pub change: Change,
    /// Whose passes count.
    pub phase: Phase,
    /// Which time of a pass counts.
    pub time: PassTime,
    /// The rule of the finding, if it is one's.
    pub rule: Option<String>,
    /// What is predicted to be saved, as parts of the time: see [`Trial::predicted`].
    pub predicted: Option<[f64; 3]>,
}

impl Question {
    /// Whether a finding is right, by its own change or by another one. `main` is the phase that counts if the finding is
    /// about the whole run.
    #[must_use]
    pub fn of(finding: &Finding, change: Change, main: Phase) -> Self {
        // What another change brings, nobody predicted.
        let is_meant = finding.change.as_ref().is_none_or(|meant| *meant == change);
        let gain = finding.gain.filter(|_| is_meant);
        Self {
            change,
            phase: finding.phase.unwrap_or(main),
            time: finding.gain.map_or(PassTime::default(), |gain| gain.time),
            rule: Some(finding.rule.to_owned()),
            predicted: gain.map(|gain| gain.parts()),
        }
    }

    /// What some pairs of runs say: each without the change and with it.
    ///
    /// ```
    /// use brickscope::{BrickProfiler, Change, MockClock, PassTime, Phase, Profile, TrialVerdict};
    /// use brickscope_analysis::trial::Question;
    ///
    /// let run = |pass_ns| {
    ///     let hand = MockClock::default();
    ///     let profiler = BrickProfiler::with_clock(hand.clock());
    ///     profiler.enable();
    ///     for position in 0..20 {
    ///         let pass = profiler.begin_pass(Phase::Decode);
    ///         hand.advance(pass_ns);
    ///         profiler.end_pass(pass, 1, position);
    ///     }
    ///     profiler.profile()
    /// };
    /// let pairs: Vec<(Profile, Profile)> =
    ///     (0..6).map(|noise| (run(1_000_000 + noise), run(700_000 + noise))).collect();
    /// let question = Question {
    ///     change: Change::Threads(2),
    ///     phase: Phase::Decode,
    ///     time: PassTime::Typical,
    ///     rule: None,
    ///     predicted: None,
    /// };
    /// let trial = question.answer(&pairs).expect("decode passes");
    /// assert_eq!(trial.verdict, TrialVerdict::Confirmed);
    /// assert!((trial.saved()[1] - 0.3).abs() < 0.01);
    /// ```
    ///
    /// # Errors
    ///
    /// If a run has no passes of that phase, or there are fewer than six pairs.
    pub fn answer(&self, pairs: &[(Profile, Profile)]) -> Result<Trial, Absent> {
        let times = pairs.iter().map(|(a, b)| Ok((self.time_of(a)?, self.time_of(b)?)));
        let shares = pairs.iter().flat_map(|(a, b)| [a, b]).map(others_share);
        self.answer_times(&times.collect::<Result<Vec<_>, Absent>>()?, mean(shares))
    }

    /// The same by the times of a pass, in nanoseconds: see [`time_of`](Self::time_of).
    ///
    /// # Errors
    ///
    /// If there are fewer than six pairs.
    pub fn answer_times(
        &self,
        pairs: &[(f64, f64)],
        others_share: Option<f64>,
    ) -> Result<Trial, Absent> {
        let ratio = PairedRatio::new(pairs).map_err(|e| Absent { reason: e.to_string() })?;
        let median = |of: fn(&(f64, f64)) -> f64| {
            stats::median(&pairs.iter().map(of).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        Ok(Trial {
            measured: now_rfc3339(),
            rule: self.rule.clone(),
            change: self.change.clone(),
            phase: self.phase,
            time: self.time,
            before_ns: median(|pair| pair.0),
            after_ns: median(|pair| pair.1),
            ratio,
            predicted: self.predicted,
            verdict: verdict(&ratio, self.predicted, others_share),
            others_share,
        })
    }

    /// The time of a pass that counts, in nanoseconds.
    ///
    /// # Errors
    ///
    /// If the run has no passes of that phase, or too few that follow each other.
    pub fn time_of(&self, profile: &Profile) -> Result<f64, Absent> {
        let phase = self.phase;
        let total = profile.phase(phase).filter(|total| total.passes > 0 && total.wall_ns > 0);
        let absent = |reason: String| Absent { reason };
        let total = total.ok_or_else(|| absent(format!("a run has no passes of {phase}")))?;
        let typical = || {
            let typical = Typical::of(profile, phase).map(|typical| typical.wall.ns);
            typical.ok_or_else(|| absent(format!("a run has no typical pass of {phase}")))
        };
        match self.time {
            PassTime::Typical => typical(),
            PassTime::Mean => Ok(total.wall_ns as f64 / total.passes as f64),
            PassTime::WithGap => match gaps::typical(profile) {
                Some((gap_ns, _)) => Ok(typical()? + gap_ns),
                None => Err(absent("a run has too few passes that follow each other".to_owned())),
            },
        }
    }
}

/// The part of the CPU time that other programs used during a run.
#[must_use]
pub fn others_share(profile: &Profile) -> Option<f64> {
    profile.other_load.as_ref().map(|load| load.others_share())
}

/// The mean of those that are known.
#[must_use]
pub fn mean(shares: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (n, sum) = shares.flatten().fold((0, 0.0), |(n, sum), share| (n + 1, sum + share));
    (n > 0).then(|| sum / f64::from(n))
}

/// Beside programs that use more of the CPUs than this, a change that brings little may have brought much by itself.
const MUCH_LOAD: f64 = 0.2;

/// What the measured ratio says of a prediction.
fn verdict(
    ratio: &PairedRatio,
    predicted: Option<[f64; 3]>,
    others_share: Option<f64>,
) -> TrialVerdict {
    let [least, most] = [-ratio.high, -ratio.low];
    let promised = predicted.map_or(0.0, |[lowest, ..]| (1.0 - TOLERANCE) * lowest).max(LEAST);
    if most < promised && others_share.is_some_and(|share| share > MUCH_LOAD) {
        TrialVerdict::Inconclusive
    } else if most < promised {
        TrialVerdict::Refuted
    } else if least > 0.0 {
        TrialVerdict::Confirmed
    } else {
        TrialVerdict::Inconclusive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(low: f64, high: f64) -> PairedRatio {
        PairedRatio { pairs: 8, estimate: (low + high) / 2.0, low, high, of_totals: 0.0 }
    }

    #[test]
    fn a_prediction_is_confirmed_refuted_or_neither() {
        use TrialVerdict::{Confirmed, Inconclusive, Refuted};
        for (low, high, predicted, expected) in [
            // 20 % less, as predicted.
            (-0.21, -0.19, Some([0.18, 0.2, 0.22]), Confirmed),
            // Up to half was predicted.
            (-0.21, -0.19, Some([0.0, 0.25, 0.5]), Confirmed),
            // At least 40 % was.
            (-0.21, -0.19, Some([0.4, 0.45, 0.5]), Refuted),
            // Nothing is gained, or it is slower.
            (-0.005, 0.004, Some([0.0, 0.25, 0.5]), Refuted),
            (0.02, 0.05, None, Refuted),
            // It may be nothing, and may be a lot.
            (-0.3, 0.1, Some([0.0, 0.25, 0.5]), Inconclusive),
            // Nobody predicted anything.
            (-0.21, -0.19, None, Confirmed),
        ] {
            for share in [None, Some(0.1)] {
                let said = verdict(&ratio(low, high), predicted, share);
                assert_eq!(said, expected, "{low} {high}");
            }
            // Beside others that take the CPUs a change may seem to bring nothing.
            let beside = verdict(&ratio(low, high), predicted, Some(0.85));
            assert_eq!(beside, if expected == Refuted { Inconclusive } else { expected });
        }
    }
}
