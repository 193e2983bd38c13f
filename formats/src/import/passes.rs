//! Which events of a trace are passes: those that the user's patterns choose, or else the steps of a server.

use std::collections::HashMap;

use brickscope_profile::Phase;
use brickscope_profile::text::shortened;

use super::kineto::{EventKind, labelled};
use super::pattern::Pattern;
use super::trace::{Timed, Trace, bit};
use super::{At, ImportError, Options};

/// The phases that there is a pattern for, as in [`Passes::patterns`].
const PHASES: [Phase; 2] = [Phase::Prefill, Phase::Decode];

/// Names that an error lists, and the characters of each: kernels of templates have hundreds.
const MOST_NAMES: usize = 12;
const LONGEST_NAME: usize = 48;

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

    /// Whether there are any.
    pub(super) fn are_given(&self) -> bool {
        self.each().next().is_some()
    }

    /// The phases that an event is a pass of, as [`Timed::passes`] has them. `argument` looks up an argument
    /// of it.
    pub(super) fn bits(&self, name: &str, argument: impl Fn(&str) -> Option<String>) -> u8 {
        self.each()
            .filter(|(_, pattern, _)| pattern.chooses(name, &argument))
            .fold(0, |bits, (phase, ..)| bits | bit(phase))
    }

    /// Keeps those passes whose numbers are asked for. If there is no pattern, `has_steps` says that the
    /// steps of servers are passes by their names: such a file tells kernels from what the host did.
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
        if has_steps && !self.are_given() {
            trace.choose_steps();
        }
        for (phase, pattern, _) in self.each() {
            choose_nth(trace, phase, pattern);
        }
        let timeless = without_timeless(trace);
        for (phase, pattern, text) in self.each() {
            // A kernel counts to the pass that launched it, and is none. Files without steps may call something else so.
            let is_work = |event: &Timed| has_steps && event.kind == EventKind::Work;
            let is_it = |event: &Timed| event.passes & bit(phase) != 0 && !is_work(event);
            if trace.timed.iter().any(is_it) {
                continue;
            }
            let is_kernel = |event: &Timed| {
                let name = trace.names.get(event.name as usize);
                is_work(event) && name.is_some_and(|name| pattern.chooses(name, |_| None))
            };
            let mut open = trace.tracks.iter().flat_map(|track| &track.open);
            let should_be = format!("which should be a {phase} pass");
            let why = if trace.timed.iter().any(is_kernel) {
                format!(
                    "`{text}` is only kernels or copies of a device, which are no {phase} passes:"
                )
            } else if open.any(|event| event.passes & bit(phase) != 0) {
                format!("its event `{text}`, {should_be}, begins and has no end;")
            } else if timeless & bit(phase) != 0 {
                format!("its event `{text}`, {should_be}, takes 0 ns;")
            } else {
                format!("has no event `{text}`, {should_be};")
            };
            return Err(at.whole(format!("{why} {}", some(trace, has_steps))));
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
    // PyTorch's ranges are on the host and on a device too. Each rank of a merged file has its first.
    let mut numbers: HashMap<(Option<&str>, bool), u64> = HashMap::new();
    for event in chosen {
        let track = trace.tracks.get(event.lane as usize);
        let label = track.and_then(|track| labelled(&track.pid)).map(|(label, _)| label);
        let number = numbers.entry((label, event.kind.is_of_device())).or_default();
        *number += 1;
        if !(from..=to).contains(number) {
            event.passes &= !bit(phase);
        }
    }
}

/// Removes passes that end when they begin: a mean of them and others is of no pass. Returns the phases of those removed, as
/// [`Timed::passes`] has them.
fn without_timeless(trace: &mut Trace) -> u8 {
    let mut phases = 0;
    let before = trace.timed.len();
    trace.timed.retain(|event| {
        let is_it = event.passes != 0 && event.start == event.end && !event.kind.is_of_device();
        phases |= if is_it { event.passes } else { 0 };
        !is_it
    });
    trace.left_out.timeless += (before - trace.timed.len()) as u64;
    phases
}

/// Some of the names that passes may have, for an error message: those that people give first.
fn some(trace: &Trace, has_steps: bool) -> String {
    // Kernels and copies have none.
    let may_be = |event: &&Timed| !has_steps || event.kind != EventKind::Work;
    let mut ranks: Vec<Option<u8>> = vec![None; trace.names.len()];
    for event in trace.timed.iter().filter(may_be) {
        let rank = match event.kind {
            kind if kind.is_range() => 0,
            // Thousands, of which hardly one is a pass.
            EventKind::Function => 2,
            _ => 1,
        };
        let least = &mut ranks[event.name as usize];
        *least = Some(least.map_or(rank, |least| least.min(rank)));
    }
    let named = ranks.into_iter().zip(&trace.names);
    let mut names: Vec<(u8, &String)> =
        named.filter_map(|(rank, name)| Some((rank?, name))).collect();
    names.extend(trace.counted_names().map(|name| (2, name)));
    names.sort_by_key(|&(rank, _)| rank);
    if names.is_empty() {
        return "it has nothing that could be one: record ranges or calls of the host, too \
                (docs/import.md)"
            .to_owned();
    }
    let told = names.iter().take(MOST_NAMES);
    let quoted: Vec<String> =
        told.map(|(_, name)| format!("`{}`", shortened(name, LONGEST_NAME, ""))).collect();
    let more = if names.len() > MOST_NAMES { ", and more" } else { "" };
    format!("it has {}{more}", quoted.join(", "))
}
