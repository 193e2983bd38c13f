//! Which events of a trace are passes: those that the user's patterns choose, or else the steps of a server.

use brickscope_profile::Phase;

use super::kineto::EventKind;
use super::pattern::Pattern;
use super::trace::{Timed, Trace, bit};
use super::{At, ImportError, Options};

/// The phases that there is a pattern for, as in [`Passes::patterns`].
const PHASES: [Phase; 2] = [Phase::Prefill, Phase::Decode];

/// The patterns of [`Options`].
#[derive(Default)]
pub(super) struct Passes {
    /// For each phase the pattern of its passes, with its text.
    patterns: [Option<(Pattern, String)>; 2],
}

impl Passes {
    pub(super) fn of(options: &Options) -> Self {
        let parsed = |text: &String| (Pattern::parse(text), text.clone());
        Self { patterns: [&options.prefill, &options.decode].map(|text| text.as_ref().map(parsed)) }
    }

    fn each(&self) -> impl Iterator<Item = (Phase, &Pattern, &str)> {
        let patterns = PHASES.into_iter().zip(&self.patterns);
        patterns.filter_map(|(phase, pattern)| {
            pattern.as_ref().map(|(pattern, text)| (phase, pattern, text.as_str()))
        })
    }

    /// The phases that an event is a pass of, as [`Timed::passes`] has them. `argument` looks up an argument
    /// of it.
    pub(super) fn bits(&self, name: &str, argument: impl Fn(&str) -> Option<String>) -> u8 {
        self.each()
            .filter(|(_, pattern, _)| pattern.chooses(name, &argument))
            .fold(0, |bits, (phase, ..)| bits | bit(phase))
    }

    /// Keeps those passes whose numbers are asked for. If there is no pattern, `has_steps` says that the
    /// steps of servers are passes by their names.
    ///
    /// # Errors
    ///
    /// The pattern that chooses no event, and names that there are.
    pub(super) fn choose(
        &self,
        trace: &mut Trace,
        at: &At<'_>,
        has_steps: bool,
    ) -> Result<(), ImportError> {
        if has_steps && self.each().next().is_none() {
            trace.choose_steps();
        }
        for (phase, pattern, _) in self.each() {
            choose_nth(trace, phase, pattern);
        }
        for (phase, _, text) in self.each() {
            let is_it = |event: &Timed| event.passes & bit(phase) != 0;
            if !trace.timed.iter().any(is_it) {
                return Err(at.whole(format!(
                    "has no event `{text}`, which should be a {phase} pass; it has {}",
                    some(trace)
                )));
            }
        }
        Ok(())
    }
}

/// Keeps those passes whose number, in the order of time, the pattern names.
fn choose_nth(trace: &mut Trace, phase: Phase, pattern: &Pattern) {
    let Some((from, to)) = pattern.nth else { return };
    let mut chosen: Vec<&mut Timed> =
        trace.timed.iter_mut().filter(|event| event.passes & bit(phase) != 0).collect();
    chosen.sort_by_key(|event| event.start);
    // PyTorch's ranges are on the host and on a device too.
    let mut numbers = [0_u64; 2];
    for event in chosen {
        let number = &mut numbers[usize::from(event.kind.is_of_device())];
        *number += 1;
        if !(from..=to).contains(number) {
            event.passes &= !bit(phase);
        }
    }
}

/// Some of the names, for an error message: those that people give first.
fn some(trace: &Trace) -> String {
    let mut ranks = vec![2_u8; trace.names.len()];
    for event in &trace.timed {
        let rank = match event.kind {
            kind if kind.is_range() => 0,
            // Thousands, of which hardly one is a pass.
            EventKind::Function => 2,
            _ => 1,
        };
        let least = &mut ranks[event.name as usize];
        *least = rank.min(*least);
    }
    let mut names: Vec<(u8, &String)> = ranks.into_iter().zip(&trace.names).collect();
    names.extend(trace.counted_names().map(|name| (2, name)));
    names.sort_by_key(|&(rank, _)| rank);
    let quoted: Vec<String> = names.iter().take(20).map(|(_, name)| format!("`{name}`")).collect();
    let more = if names.len() > 20 { ", and more" } else { "" };
    quoted.join(", ") + more
}
