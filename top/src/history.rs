//! How fast an engine was lately: a rate for each half second or more, from the sums of two frames.

use std::collections::VecDeque;

use brickscope_profile::{Phase, PhaseTotal};

/// The most points: two minutes, if frames come often enough.
const MOST: usize = 240;
/// The least time between the two frames of a point.
const LEAST_NS: u64 = 500_000_000;

/// The rates of all phases, the newest last.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    points: VecDeque<Point>,
    /// The sums at the end of the newest point, and when that was.
    before: Option<(u64, Vec<PhaseTotal>)>,
}

/// What happened between two frames.
#[derive(Debug, Clone)]
struct Point {
    ns: u64,
    /// Of phases of which a pass with tokens ended meanwhile.
    rates: Vec<(Phase, f64)>,
}

/// The rates of one phase.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rates {
    /// Tokens per second of wall time, the newest last; `None` where no pass ended.
    pub(crate) rates: Vec<Option<f64>>,
    /// The time that they cover.
    pub(crate) ns: u64,
}

impl History {
    /// Adds a point if there is enough time since the last one.
    pub(crate) fn take(&mut self, at_ns: u64, phases: &[PhaseTotal]) {
        if let Some((from_ns, before)) = &self.before {
            let ns = at_ns.saturating_sub(*from_ns);
            if ns < LEAST_NS {
                return;
            }
            let rate = |now: &PhaseTotal| {
                let earlier = before.iter().find(|of| of.phase == now.phase);
                Some((now.phase, rate_between(earlier, now)?))
            };
            let rates = phases.iter().filter_map(rate).collect();
            self.points.push_back(Point { ns, rates });
            if self.points.len() > MOST {
                self.points.pop_front();
            }
        }
        self.before = Some((at_ns, phases.to_vec()));
    }

    /// At most the newest `most` points of a phase.
    pub(crate) fn of(&self, phase: Phase, most: usize) -> Rates {
        let points = || self.points.iter().skip(self.points.len().saturating_sub(most));
        let rate =
            |point: &Point| point.rates.iter().find(|(of, _)| *of == phase).map(|&(_, rate)| rate);
        Rates {
            rates: points().map(rate).collect(),
            ns: points().fold(0, |sum, point| sum.saturating_add(point.ns)),
        }
    }
}

/// The rate of the passes between two sums. `None` if there was none, or if a sum fell.
fn rate_between(before: Option<&PhaseTotal>, now: &PhaseTotal) -> Option<f64> {
    let (tokens, wall_ns) = before.map_or((0, 0), |of| (of.tokens, of.wall_ns));
    let tokens = now.tokens.checked_sub(tokens)?;
    let wall_ns = now.wall_ns.checked_sub(wall_ns)?;
    (tokens > 0 && wall_ns > 0).then(|| tokens as f64 * 1e9 / wall_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(tokens: u64, wall_ns: u64) -> PhaseTotal {
        PhaseTotal {
            phase: Phase::Decode,
            passes: tokens,
            disturbed: 0,
            unwatched: None,
            tokens,
            wall_ns,
            attributed_ns: wall_ns,
            unattributed_ns: 0,
        }
    }

    #[test]
    fn a_point_is_what_two_frames_differ_by_and_a_pause_is_no_zero() {
        let mut history = History::default();
        history.take(0, &[total(10, 100_000_000)]);
        // Too soon for a point.
        history.take(100_000_000, &[total(15, 150_000_000)]);
        history.take(500_000_000, &[total(60, 600_000_000)]);
        history.take(1_500_000_000, &[total(60, 600_000_000)]);
        history.take(2_000_000_000, &[total(62, 700_000_000)]);
        let rates = history.of(Phase::Decode, 100);
        assert_eq!(rates, Rates { rates: vec![Some(100.0), None, Some(20.0)], ns: 2_000_000_000 });
        assert_eq!(history.of(Phase::Decode, 1).rates, [Some(20.0)]);
        assert_eq!(history.of(Phase::Prefill, 2).rates, [None, None]);
    }

    #[test]
    fn the_oldest_points_are_forgotten() {
        let mut history = History::default();
        for nth in 0..1_000 {
            history.take(nth * LEAST_NS, &[total(nth, nth * 1_000)]);
        }
        assert_eq!(history.of(Phase::Decode, usize::MAX).rates.len(), MOST);
    }
}
