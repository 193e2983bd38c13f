//! Passes by how many tokens they had: a server's batches, prompts of several lengths.

use std::collections::BTreeMap;
use std::fmt::Write;

use brickscope_profile::text::count;
use brickscope_profile::{Phase, Profile};
use serde::Serialize;

use crate::typical;
use crate::words::digits;

/// The passes of a phase that had as many tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Batch {
    /// The phase.
    pub phase: Phase,
    /// Tokens of each pass: in decode, the sequences that each got one.
    pub tokens: u64,
    /// How many passes.
    pub passes: u64,
    /// How long they took, in nanoseconds.
    pub wall_ns: u64,
}

impl Batch {
    /// Tokens per second; `None` if they took no time.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        let tokens = self.tokens as f64 * self.passes as f64;
        (self.wall_ns > 0).then(|| tokens * 1e9 / self.wall_ns as f64)
    }
}

/// The batches of each phase whose passes had different numbers of tokens, those with more tokens later. Of the passes that
/// are [shown](typical::shown), so that their sums are the phase's. Empty if passes were not kept one by one.
#[must_use]
pub fn batches(profile: &Profile) -> Vec<Batch> {
    let shown = typical::shown(profile);
    let mut all: BTreeMap<(Phase, u64), Batch> = BTreeMap::new();
    for pass in shown.passes.iter().filter(|pass| !pass.is_left_out && pass.tokens > 0) {
        let (phase, tokens) = (pass.phase, pass.tokens);
        let batch =
            all.entry((phase, tokens)).or_insert(Batch { phase, tokens, passes: 0, wall_ns: 0 });
        batch.passes += 1;
        batch.wall_ns = batch.wall_ns.saturating_add(pass.wall_ns);
    }
    let mut all: Vec<Batch> = all.into_values().collect();
    let sums: BTreeMap<Phase, [u64; 3]> = all.iter().fold(BTreeMap::new(), |mut sums, batch| {
        let [batches, passes, wall_ns]: &mut [u64; 3] = sums.entry(batch.phase).or_default();
        *batches += 1;
        *passes += batch.passes;
        *wall_ns = wall_ns.saturating_add(batch.wall_ns);
        sums
    });
    all.retain(|batch| {
        let [batches, passes, wall_ns] = sums[&batch.phase];
        let are_all = shown
            .phase(batch.phase)
            .is_some_and(|total| (total.passes, total.wall_ns) == (passes, wall_ns));
        batches > 1 && are_all
    });
    all
}

/// The most batches of a phase that the first screen has, and that the report has.
const MOST: [usize; 2] = [3, 12];

/// `16 passes of 33 tokens at 310 tok/s · 16 passes of 64 tokens at 402 tok/s`. Of more than three, nothing: the report has them.
pub(super) fn in_summary(profile: &Profile, phase: Phase) -> Option<String> {
    // One prompt of our own engine is several passes, of which only the last is shorter.
    let is_of_others = profile.run.as_ref().is_some_and(|run| run.engine.is_some());
    if phase != Phase::Decode && !is_of_others {
        return None;
    }
    let all: Vec<Batch> = batches(profile).into_iter().filter(|of| of.phase == phase).collect();
    if all.is_empty() || all.len() > MOST[0] {
        return None;
    }
    let text = |batch: &Batch| {
        let rate = batch.tokens_per_second().map_or("no rate".to_owned(), digits);
        let passes = typical::passes_text(batch.passes);
        format!("{passes} of {} at {rate} tok/s", count(batch.tokens, "token"))
    };
    Some(all.iter().map(text).collect::<Vec<_>>().join(" · "))
}

/// A table of the batches of a phase, those that took longest if there are many.
pub(super) fn in_report(profile: &Profile, phase: Phase, text: &mut String) {
    let mut all: Vec<Batch> = batches(profile).into_iter().filter(|of| of.phase == phase).collect();
    if all.is_empty() {
        return;
    }
    let n = all.len();
    if n > MOST[1] {
        all.sort_by_key(|batch| std::cmp::Reverse(batch.wall_ns));
        all.truncate(MOST[1]);
        all.sort_by_key(|batch| batch.tokens);
    }
    text.push_str("\nTokens a pass      Passes  Total (ms)    ms a pass    tokens/s\n");
    for batch in &all {
        let ms = batch.wall_ns as f64 / 1e6;
        let rate = batch.tokens_per_second().map_or("n/a".to_owned(), |rate| format!("{rate:.1}"));
        let each = ms / batch.passes as f64;
        let Batch { tokens, passes, .. } = batch;
        let _ = writeln!(text, "{tokens:>13} {passes:>11} {ms:>11.3} {each:>12.3} {rate:>11}");
    }
    if n > all.len() {
        let _ = writeln!(text, "and {} other numbers of tokens, which took less", n - all.len());
    }
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickProfiler, MockClock};

    use super::*;

    fn of(passes: &[(Phase, u64, u64)]) -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for &(phase, tokens, ns) in passes {
            let pass = profiler.begin_pass(phase);
            hand.advance(ns);
            profiler.end_pass(pass, tokens, 0);
        }
        profiler.profile()
    }

    #[test]
    fn passes_of_other_batches_are_rows_whose_sums_are_the_phases() {
        use Phase::{Decode, Prefill};
        let profile = of(&[
            (Prefill, 100, 5_000_000),
            (Decode, 33, 1_000_000),
            (Decode, 64, 2_000_000),
            (Decode, 33, 3_000_000),
        ]);
        let all = batches(&profile);
        let rows: Vec<_> = all.iter().map(|of| (of.tokens, of.passes, of.wall_ns)).collect();
        assert_eq!(rows, [(33, 2, 4_000_000), (64, 1, 2_000_000)], "of prefill all are alike");
        assert_eq!(all[0].tokens_per_second(), Some(16_500.0));
        let wall: u64 = all.iter().map(|of| of.wall_ns).sum();
        assert_eq!(Some(wall), profile.phase(Decode).map(|of| of.wall_ns));
        let summary = in_summary(&profile, Decode).expect("there are two");
        assert_eq!(
            summary,
            "2 passes of 33 tokens at 16500 tok/s · 1 pass of 64 tokens at 32000 tok/s"
        );
        let mut text = String::new();
        in_report(&profile, Decode, &mut text);
        assert!(
            text.contains("           33           2       4.000        2.000     16500.0\n"),
            "{text}"
        );
        assert_eq!(in_summary(&profile, Prefill), None);
    }

    #[test]
    fn of_many_batches_the_report_has_those_that_took_longest_and_counts_the_others() {
        let many: Vec<_> = (1..=20).map(|n| (Phase::Prefill, n, n * 1_000_000)).collect();
        let profile = of(&many);
        assert_eq!(in_summary(&profile, Phase::Prefill), None);
        let mut text = String::new();
        in_report(&profile, Phase::Prefill, &mut text);
        assert!(text.contains("and 8 other numbers of tokens"), "{text}");
        assert!(text.contains("            9 ") && !text.contains("            8 "), "{text}");
    }
}
