//! Bricks that ran beside the passes, on threads that joined none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use brickscope_profile::Profile;
use brickscope_profile::text::printable;

use crate::words::{many, time};

/// How long they took, once the first pass had begun. They may be parts of passes, which then lack them, or work of another
/// kind: only the program knows. What ran before all passes, as what loads a model does, is no part of one.
pub(super) fn beside_passes(profile: &Profile) -> Option<String> {
    let first = profile.passes.iter().map(|pass| pass.start_ns).min()?;
    // The bricks of an abandoned pass are told as such.
    if profile.imported.is_some() || profile.dropped.abandoned_passes > 0 {
        return None;
    }
    let of_passes = profile.passes.iter().map(|pass| pass.lane);
    let in_open_passes = profile.spans.iter().filter(|span| span.pass.is_some());
    // A thread that is handed work, or hands it over, says what it works for.
    let handed = profile.dependencies.iter().flat_map(|of| [of.from.lane, of.to.lane]);
    let tied: HashSet<u32> =
        of_passes.chain(in_open_passes.map(|span| span.lane)).chain(handed).collect();
    let mut by_name: BTreeMap<u16, u64> = BTreeMap::new();
    for span in &profile.spans {
        let is_apart = span.start_ns >= first && !tied.contains(&span.lane);
        if let (Some(name), true, 1..) = (span.name, is_apart, span.exclusive_ns) {
            let sum = by_name.entry(name).or_default();
            *sum = sum.saturating_add(span.exclusive_ns);
        }
    }
    let (&name, _) = by_name.iter().max_by_key(|&(name, ns)| (*ns, Reverse(*name)))?;
    let ns = by_name.values().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let others = match by_name.len() as u64 - 1 {
        0 => String::new(),
        n => format!(" and {}", many(n, "other brick")),
    };
    let name = profile.names.get(usize::from(name)).map(|name| printable(&name.name))?;
    Some(format!(
        "{} of {name}{others} ran outside of passes, on threads that joined none: if passes are to have it, call `join_pass` there",
        time(ns as f64)
    ))
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, BrickProfiler, MockClock, Phase};

    use super::*;
    use crate::view::{self, Size};

    /// A pass of 1 ms during which another thread times `ns` of a brick of each name.
    fn run(names: &[&str], ns: u64) -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::QkvProjection);
        hand.advance(1_000_000);
        profiler.stop_brick(timer, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for name in names {
                    let timer = profiler.start(name);
                    hand.advance(ns);
                    profiler.stop(timer, 1);
                }
            });
        });
        profiler.end_pass(pass, 1, 0);
        profiler.profile()
    }

    #[test]
    fn the_first_screen_says_what_ran_on_a_thread_that_joined_no_pass() {
        let profile = run(&["UpProjection"], 818_000);
        let said = beside_passes(&profile).expect("it ran apart");
        assert!(said.starts_with("818 µs of UpProjection ran outside of passes, on thr"), "{said}");
        let screen = view::summary(&profile, Size::default(), None).to_string();
        assert!(screen.contains("818 µs of UpProjection ran outside of passes"), "{screen}");
        let several = beside_passes(&run(&["Tokenize", "Send"], 9_000)).expect("they ran apart");
        assert!(several.starts_with("18.0 µs of Tokenize and 1 other brick ran"), "{several}");
    }

    #[test]
    fn what_runs_in_passes_or_without_any_is_not_apart() {
        assert_eq!(beside_passes(&run(&[], 0)), None);
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(5);
        profiler.stop_brick(timer, 1);
        assert_eq!(beside_passes(&profiler.profile()), None);
    }
}
