//! How finely a device is timed: as finely as the budget allows.

use std::ops::RangeInclusive;

use brickscope_profile::{Grain, GrainChoice, Phase, StampCost};

use crate::device::issued::Needs;

/// The share of a pass that its marks may cost by default.
pub(crate) const DEFAULT_SHARE: f64 = 0.01;

/// The part of the share that may be spent by the measured cost of marks. In a pass, whose kernels leave caches cold,
/// marks cost up to twice what they cost in a row. (On lavapipe 3.3 µs instead of 1.8, and a pass 35 instead of 16.)
const WARM: f64 = 0.5;

/// A finer grain is chosen only if it costs at most this part of the budget. This hysteresis keeps passes of
/// nearly the same length from alternating between grains.
const ROOM_TO_GO_FINER: f64 = 0.8;

/// Decode passes are many and much alike. Rather than time all of them less finely, one in up to this many is
/// timed.
const DECODE_APART: u32 = 8;
/// The same limit for passes so short that their boundaries alone cost too much.
const MOST_APART: u32 = 16;

/// Chooses the grain of each phase.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) share: f64,
    pub(crate) stamp: Option<StampCost>,
    /// The grain that the caller set.
    pub(crate) forced: Option<Grain>,
    /// The number of marks in a set.
    room: u32,
    phases: [Chosen; Phase::ALL.len()],
}

#[derive(Debug)]
struct Chosen {
    grain: Grain,
    /// Why, according to the pass that was settled last.
    because: Because,
    changes: u64,
    /// The finest grain that may be chosen: coarser than any at which a pass ran out of marks.
    most: Grain,
    /// One in this many passes is timed.
    every: u32,
    /// Whether the executor set `every`.
    is_sampled: bool,
    /// Passes since the last one that was timed.
    waited: u32,
}

#[derive(Debug, Clone, Copy)]
enum Because {
    /// No pass has been settled yet.
    First,
    /// The number of marks at this grain and at the next finer one, and the span of the pass.
    Costs { marks: u32, finer: u32, span_ns: u64 },
    /// The marks of the next finer grain, at least `finer` of them, don't fit a set.
    NoRoom { finer: u32 },
}

impl Budget {
    pub(crate) fn new(room: u32) -> Self {
        let phases = Phase::ALL.map(|_| Chosen {
            grain: Grain::Kernel,
            because: Because::First,
            changes: 0,
            most: Grain::Kernel,
            every: 1,
            is_sampled: false,
            waited: 0,
        });
        Self { share: DEFAULT_SHARE, stamp: None, forced: None, room, phases }
    }

    /// The grain of the next pass of a phase.
    pub(crate) fn grain(&self, phase: Phase) -> Grain {
        self.forced.unwrap_or(self.phases[phase as usize].grain)
    }

    /// A pass of a phase was recorded to be replayed: from now on, the executor decides when.
    pub(crate) fn recorded(&mut self, phase: Phase) {
        let chosen = &mut self.phases[phase as usize];
        if !chosen.is_sampled {
            (chosen.every, chosen.is_sampled) = (1, true);
        }
    }

    /// Sets that one in `every` passes of a phase is timed. All of them share the cost of its marks.
    pub(crate) fn sampled(&mut self, phase: Phase, every: u32) {
        let chosen = &mut self.phases[phase as usize];
        (chosen.every, chosen.is_sampled) = (every.max(1), true);
    }

    /// Whether the next pass of a phase is to be timed. Always true if the executor samples passes itself.
    pub(crate) fn is_turn(&mut self, phase: Phase) -> bool {
        let is_forced = self.forced.is_some();
        let chosen = &mut self.phases[phase as usize];
        chosen.waited += 1;
        let is_turn = is_forced || chosen.is_sampled || chosen.waited >= chosen.every;
        if is_turn {
            chosen.waited = 0;
        }
        is_turn
    }

    /// Learns from a settled pass that spanned `span_ns`.
    pub(crate) fn learn(&mut self, phase: Phase, needs: &Needs, span_ns: u64) {
        let (share, stamp, room) = (self.share, self.stamp, self.room);
        let chosen = &mut self.phases[phase as usize];
        let (now, most, before) = (chosen.grain, chosen.most, chosen.every);
        let fits = |grain: Grain, every: u32| {
            let Some(stamp) = stamp else { return true };
            let is_dearer = grain > now || every < before;
            let part = if is_dearer { ROOM_TO_GO_FINER } else { 1.0 };
            let allowed = part * WARM * share * span_ns as f64 * f64::from(every);
            stamp.of_pass(needs.of(grain)) <= allowed
        };
        let has_room = |grain: Grain| grain <= most && needs.of(grain) <= room;
        let finest = Grain::ALL.into_iter().rev();
        // The time to the first token is the sum of all passes of a prompt, so each of them is timed.
        if !chosen.is_sampled && phase == Phase::Decode && span_ns > 0 {
            let first = |grain, apart: RangeInclusive<u32>| apart.clone().find(|&n| fits(grain, n));
            let in_full = finest.clone().find(|&grain| has_room(grain)).unwrap_or(Grain::Pass);
            let whole = || first(Grain::Pass, DECODE_APART..=MOST_APART).unwrap_or(MOST_APART);
            chosen.every = first(in_full, 1..=DECODE_APART).unwrap_or_else(whole);
        }
        let every = chosen.every;
        let grain = finest.clone().find(|&g| has_room(g) && fits(g, every)).unwrap_or(Grain::Pass);
        let next = Grain::ALL.get(grain as usize + 1).copied().unwrap_or(grain);
        chosen.changes += u64::from(grain != now);
        chosen.grain = grain;
        let finer = needs.of(next);
        chosen.because = if has_room(next) {
            Because::Costs { marks: needs.of(grain), finer, span_ns }
        } else {
            Because::NoRoom { finer }
        };
    }

    /// A pass at `grain` had more marks than fit a set.
    pub(crate) fn ran_out(&mut self, phase: Phase, grain: Grain) {
        let room = self.room;
        let chosen = &mut self.phases[phase as usize];
        let coarser = Grain::ALL[(grain as usize).saturating_sub(1)];
        if coarser < chosen.most {
            chosen.most = coarser;
            chosen.changes += 1;
        }
        chosen.grain = chosen.grain.min(chosen.most);
        chosen.because = Because::NoRoom { finer: room.saturating_add(1) };
    }

    /// The choice for each phase that had a pass, and why.
    pub(crate) fn choices(&self) -> Vec<GrainChoice> {
        let seen = Phase::ALL.into_iter().zip(&self.phases);
        let seen = seen.filter(|(_, chosen)| !matches!(chosen.because, Because::First));
        seen.map(|(phase, chosen)| GrainChoice {
            phase,
            grain: self.grain(phase),
            reason: self.reason(chosen),
            changes: chosen.changes,
        })
        .collect()
    }

    fn reason(&self, chosen: &Chosen) -> String {
        if let Some(forced) = self.forced {
            return format!("{}: set by the caller", words(forced));
        }
        let grain = chosen.grain;
        let finer = Grain::ALL.get(grain as usize + 1).copied().unwrap_or(grain).name();
        match (chosen.because, self.stamp) {
            (Because::NoRoom { finer: marks }, _) => format!(
                "{}: {finer} take {marks} stamps or more, and a pass has room for {}",
                words(grain),
                self.room
            ),
            (_, None) => format!(
                "{}: the cost of a stamp was not measured, so there is no budget",
                words(grain)
            ),
            (Because::First, _) => words(grain).to_owned(),
            (Because::Costs { marks, finer: more, span_ns }, Some(stamp)) => {
                let cost = format!("{:.1} µs", stamp.ns() / 1e3);
                let cost = match stamp.pass_ns {
                    Some(ns) => format!("{cost}, and {:.1} µs for any,", ns / 1e3),
                    None => cost,
                };
                let budget = 100.0 * WARM * self.share;
                // All passes share the cost of the one that is timed.
                let span_ns = span_ns as f64 * f64::from(chosen.every);
                let passes = match chosen.every {
                    1 => "a pass".to_owned(),
                    every => format!("{every} passes, of which one has them"),
                };
                let part = |marks: u32| {
                    if span_ns == 0.0 {
                        return "n/a".to_owned();
                    }
                    format!("{:.1} %", 100.0 * stamp.of_pass(marks) / span_ns)
                };
                if grain == Grain::Kernel {
                    format!(
                        "{}: {marks} stamps of {cost} are {} of {passes}",
                        words(grain),
                        part(marks)
                    )
                } else if grain == Grain::Pass && stamp.of_pass(marks) > WARM * self.share * span_ns
                {
                    format!(
                        "{}: even so {marks} stamps of {cost} are {} of {passes}, and {budget} % are allowed",
                        words(grain),
                        part(marks)
                    )
                } else if stamp.of_pass(more) <= WARM * self.share * span_ns {
                    let finer_from = ROOM_TO_GO_FINER * budget;
                    format!(
                        "{}: the {more} stamps of {cost} that {finer} take would be {} of {passes}, just \
                         within the {budget} % that are allowed: it takes {finer_from} % to go finer again",
                        words(grain),
                        part(more)
                    )
                } else {
                    format!(
                        "{}: the {more} stamps of {cost} that {finer} take would be {} of {passes}, and \
                         {budget} % are allowed",
                        words(grain),
                        part(more)
                    )
                }
            }
        }
    }
}

fn words(grain: Grain) -> &'static str {
    match grain {
        Grain::Pass => "whole passes only",
        Grain::Layer => "layers only",
        Grain::Brick => "bricks only",
        Grain::Kernel => "bricks and kernels",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 kernels in 40 bricks of 10 layers.
    fn needs() -> Needs {
        let mut needs = Needs::default();
        for (grain, marks) in Grain::ALL.into_iter().zip([2, 12, 41, 101]) {
            (0..marks).for_each(|_| needs.add(&[grain]));
        }
        needs
    }

    fn budget() -> Budget {
        let mut budget = Budget::new(4096);
        // Half of it is allowed, by the cost measured warm.
        budget.share = 0.02;
        budget.stamp =
            Some(StampCost { host_ns: 2_000.0, device_ns: 500.0, marks: 64, pass_ns: None });
        budget
    }

    fn turns(budget: &mut Budget, phase: Phase) -> usize {
        (0..48).filter(|_| budget.is_turn(phase)).count()
    }

    #[test]
    fn where_boundaries_alone_cost_too_much_one_of_some_decode_passes_is_timed() {
        let mut budget = budget();
        budget.stamp.as_mut().unwrap().pass_ns = Some(60_000.0);
        // Its marks cost 202 µs, plus 60 µs for the pass: about a hundredth of 27 ms.
        budget.learn(Phase::Decode, &needs(), 27_000_000);
        assert_eq!(turns(&mut budget, Phase::Decode), 48);
        budget.learn(Phase::Decode, &needs(), 14_000_000);
        assert_eq!(turns(&mut budget, Phase::Decode), 24);
        let expected = "of 2 passes, of which one has them";
        assert!(budget.choices()[0].reason.contains(expected), "{:?}", budget.choices());
        // Within the budget, but not by enough to time every pass again.
        budget.learn(Phase::Decode, &needs(), 27_000_000);
        assert_eq!(turns(&mut budget, Phase::Decode), 24);
        budget.learn(Phase::Decode, &needs(), 34_000_000);
        assert_eq!(turns(&mut budget, Phase::Decode), 48);
        // A pass of no length doesn't change which passes are timed.
        budget.learn(Phase::Decode, &needs(), 0);
        assert_eq!(turns(&mut budget, Phase::Decode), 48);
        // However short passes are, one in 16 is timed, and the reason states the cost.
        budget.learn(Phase::Decode, &needs(), 1_000);
        assert_eq!(turns(&mut budget, Phase::Decode), 48 / MOST_APART as usize);
        assert_eq!(budget.grain(Phase::Decode), Grain::Pass);
        let expected = "whole passes only: even so 2 stamps of 2.0 µs, and 60.0 µs for any, are 400.0 % of \
                        16 passes, of which one has them, and 1 % are allowed";
        assert_eq!(budget.choices()[0].reason, expected);
        // Prefill passes are all timed.
        budget.learn(Phase::Prefill, &needs(), 1_000);
        assert_eq!(turns(&mut budget, Phase::Prefill), 48);
        // The caller's grain is used, whatever it costs.
        budget.forced = Some(Grain::Layer);
        assert_eq!(turns(&mut budget, Phase::Decode), 48);
        budget.forced = None;
        budget.sampled(Phase::Decode, 8);
        assert_eq!(turns(&mut budget, Phase::Decode), 48);
    }

    #[test]
    fn of_decode_passes_some_are_timed_in_full_rather_than_all_of_them_less_finely() {
        // The marks of kernels are 202 µs, of bricks 162, of layers 42.
        for (span, every, grain) in [
            (21_000_000, 1, Grain::Kernel),
            (11_000_000, 2, Grain::Kernel),
            (2_600_000, 8, Grain::Kernel),
            (2_200_000, 8, Grain::Brick),
            (600_000, 8, Grain::Layer),
            (100_000, 8, Grain::Pass),
            (30_000, 14, Grain::Pass),
        ] {
            let mut budget = budget();
            // Nothing costs more than what was before.
            budget.phases[Phase::Decode as usize].every = 1;
            budget.learn(Phase::Decode, &needs(), span);
            assert_eq!(budget.grain(Phase::Decode), grain, "{span} ns");
            assert_eq!(budget.phases[Phase::Decode as usize].every, every, "{span} ns");
            assert_eq!(turns(&mut budget, Phase::Decode), 48 / every as usize, "{span} ns");
        }
    }

    #[test]
    fn marks_that_would_cost_more_than_the_budget_are_not_made() {
        let spans = [
            (30_000_000, Grain::Kernel),
            (20_000_000, Grain::Brick),
            (8_000_000, Grain::Layer),
            (2_000_000, Grain::Pass),
        ];
        for (span, grain) in spans {
            let mut budget = budget();
            budget.learn(Phase::Prefill, &needs(), span);
            assert_eq!(
                (budget.grain(Phase::Prefill), budget.grain(Phase::Decode)),
                (grain, Grain::Kernel)
            );
        }
    }

    #[test]
    fn the_grain_is_fine_again_when_passes_are_long_enough_and_does_not_go_to_and_fro() {
        let mut budget = budget();
        budget.learn(Phase::Prefill, &needs(), 20_000_000);
        // The marks of kernels are 202 µs: 1 % of this, but not 0.8 %.
        budget.learn(Phase::Prefill, &needs(), 21_000_000);
        assert_eq!(budget.grain(Phase::Prefill), Grain::Brick);
        budget.learn(Phase::Prefill, &needs(), 26_000_000);
        assert_eq!(budget.grain(Phase::Prefill), Grain::Kernel);
        budget.learn(Phase::Prefill, &needs(), 21_000_000);
        assert_eq!(budget.grain(Phase::Prefill), Grain::Kernel);
        assert_eq!(budget.choices()[0].changes, 2);
    }

    #[test]
    fn the_reason_has_the_figures() {
        let mut budget = budget();
        budget.learn(Phase::Prefill, &needs(), 10_000_000);
        let [choice] = &budget.choices()[..] else { panic!("one phase was seen") };
        let expected = "bricks only: the 101 stamps of 2.0 µs that kernels take would be 2.0 % of a pass, \
                        and 1 % are allowed";
        assert_eq!(choice.reason, expected);
        budget.forced = Some(Grain::Layer);
        assert_eq!(budget.choices()[0].reason, "layers only: set by the caller");
    }

    #[test]
    fn passes_of_which_one_is_sampled_share_what_it_costs() {
        let mut budget = budget();
        budget.sampled(Phase::Decode, 8);
        // 202 µs of 24 ms.
        budget.learn(Phase::Decode, &needs(), 3_000_000);
        assert_eq!(budget.grain(Phase::Decode), Grain::Kernel);
        let expected =
            "bricks and kernels: 101 stamps of 2.0 µs are 0.8 % of 8 passes, of which one has them";
        assert_eq!(budget.choices()[0].reason, expected);
        budget.sampled(Phase::Decode, 0);
        budget.learn(Phase::Decode, &needs(), 3_000_000);
        assert_eq!(budget.grain(Phase::Decode), Grain::Layer);
    }

    #[test]
    fn what_there_is_no_room_for_is_not_tried_again() {
        let mut budget = Budget::new(50);
        budget.ran_out(Phase::Decode, Grain::Kernel);
        assert_eq!(budget.grain(Phase::Decode), Grain::Brick);
        budget.learn(Phase::Decode, &needs(), u64::MAX);
        assert_eq!(budget.grain(Phase::Decode), Grain::Brick);
        let reason = &budget.choices()[0].reason;
        assert!(reason.contains("101 stamps or more, and a pass has room for 50"), "{reason}");
    }
}
