//! The pass that stands for a phase: in trees, critical paths and timelines.

use std::collections::HashSet;

use brickscope_profile::{Pass, Phase, Profile};

use super::{Typical, shown};
use crate::passes::{did, is_of_device};
use crate::words::time;

/// One pass that is shown span by span: a clean one, near the median of the clean ones. Where none is clean or was kept
/// whole, one without a stall, else another one, and why it is doubtful.
#[derive(Debug, Clone, PartialEq)]
pub struct OnePass<'p> {
    /// The pass.
    pub pass: &'p Pass,
    /// Whether it is the median, and not only near it.
    pub is_median: bool,
    /// Of how many passes.
    pub of: u64,
    /// What disturbed it, if it was: `other programs took the CPU`.
    pub doubt: Option<&'static str>,
    /// Whether one of its spans stalled: no pass without a stall was kept.
    is_stalled: bool,
    is_of_device: bool,
    /// Whether these are those that were [kept](Profile::kept), each of which counts as often as it stands for others.
    is_by_weight: bool,
}

impl<'p> OnePass<'p> {
    /// `None` if no pass of the phase was kept with all its spans.
    #[must_use]
    pub fn of(profile: &'p Profile, phase: Phase) -> Option<Self> {
        let shown = shown(profile);
        let typical = Typical::of(&shown, phase);
        let stalls = typical.iter().flat_map(|typical| &typical.stalls);
        let stalled: HashSet<u32> = stalls.map(|stall| stall.pass).collect();
        let is_still = |pass: &Pass| !stalled.contains(&pass.serial);
        let is_clean = |pass: &Pass| !pass.is_disturbed() && is_still(pass);
        let any = |_: &Pass| true;
        let wanted: [&dyn Fn(&Pass) -> bool; 3] = [&is_clean, &is_still, &any];
        let (pass, is_in) = wanted.into_iter().enumerate().find_map(|(nth, is_in)| {
            let pass = shown.drawable_pass_among(phase, is_in)?;
            // A clean pass in which no brick was timed is nothing to draw.
            (nth + 1 == wanted.len() || pass.attributed_ns > 0).then_some((pass, is_in))
        })?;
        let among = shown
            .passes
            .iter()
            .filter(|other| other.phase == phase && !other.is_left_out && is_in(other));
        let is_median = shown.median_pass_among(phase, is_in) == Some(pass);
        let is_stalled = !is_still(pass);
        let doubt = match pass.disturbance.and_then(|of| of.disturber()) {
            Some(by) => Some(did(by)),
            None => is_stalled.then_some("one of its spans stalled"),
        };
        let (serial, of) = (pass.serial, among.count() as u64);
        let pass = profile.passes.iter().find(|pass| pass.serial == serial)?;
        let (is_of_device, is_by_weight) = (is_of_device(profile), profile.kept.is_some());
        Some(Self { pass, is_median, of, doubt, is_stalled, is_of_device, is_by_weight })
    }

    /// What disturbed it, and whether it has a stall for want of a pass without one.
    #[must_use]
    pub fn doubts(&self) -> Option<String> {
        let stalls = if self.is_stalled { "; no pass without a stall was kept" } else { "" };
        self.doubt.map(|doubt| format!("{doubt}{stalls}"))
    }

    /// The first phase that has one.
    #[must_use]
    pub fn of_any(profile: &'p Profile) -> Option<Self> {
        Phase::SHOWN.into_iter().find_map(|phase| Self::of(profile, phase))
    }

    /// Which it is: `the median of 12`, and what is doubtful about it.
    #[must_use]
    pub fn which(&self) -> String {
        let near = match (self.is_median, self.of) {
            // Two have none.
            (true, 2) if !self.is_by_weight => "the shorter of",
            (true, _) => "the median of",
            (false, _) => "near the median of",
        };
        let doubt = self.doubts().map_or(String::new(), |doubt| format!(", disturbed: {doubt}"));
        let kept = if self.is_by_weight { " kept, by weight" } else { "" };
        format!("{near} {}{kept}{doubt}", self.of)
    }

    /// A title for what is of this pass alone: `One decode pass on the host: 2.28 ms, the median of 60, at position 33`.
    #[must_use]
    pub fn title(&self) -> String {
        format!(
            "One {} pass {}: {}, {}, at position {}",
            self.pass.phase,
            if self.is_of_device { "on the device" } else { "on the host" },
            time(self.pass.wall_ns as f64),
            self.which(),
            self.pass.position
        )
    }
}
