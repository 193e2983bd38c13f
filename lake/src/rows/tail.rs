//! Which passes of a run keep their spans in a lake: the slow ones, and a sample of the others.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::stats::SplitMix64;
use brickscope_profile::{Pass, Span};

/// Slow passes of a phase that are kept.
const SLOW: usize = 4;

/// Others of it.
const SAMPLE: usize = 4;

/// Fewer passes than this have no slow ones: all of them are the sample's.
const LEAST_PASSES: usize = 20;

/// A pass that keeps its spans.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chosen {
    pub(super) is_slow: bool,
    /// How many passes of its phase it stands for.
    pub(super) weight: f64,
}

/// Chooses passes, by their serial. Those whose spans were dropped can't be chosen, and the others stand for them. Where not
/// all passes are there, `weights` says for how many of them each stands that doesn't stand for itself.
///
/// The sample is drawn without replacement with equal chances among the passes that aren't slow, so that weighted
/// sums estimate those of all passes without bias (D. G. Horvitz, D. J. Thompson: *A generalization of sampling
/// without replacement from a finite universe*, Journal of the American Statistical Association 47, 1952).
pub(super) fn choose(
    passes: &[Pass],
    spans: &[Span],
    weights: &HashMap<u32, f64>,
) -> HashMap<u32, Chosen> {
    let stands_for = |serial: u32| weights.get(&serial).copied().unwrap_or(1.0);
    let mut explained: HashMap<u32, u64> = HashMap::new();
    for span in spans {
        if let Some(pass) = span.pass {
            let sum = explained.entry(pass).or_default();
            *sum = sum.saturating_add(span.exclusive_ns);
        }
    }
    let mut phases: BTreeMap<&str, (usize, Vec<&Pass>)> = BTreeMap::new();
    for pass in passes {
        let (all, whole) = phases.entry(pass.phase.name()).or_default();
        *all += 1;
        if explained.get(&pass.serial) == Some(&pass.attributed_ns) {
            whole.push(pass);
        }
    }
    let mut chosen = HashMap::new();
    for (all, mut whole) in phases.into_values() {
        whole.sort_by_key(|pass| (std::cmp::Reverse(pass.wall_ns), pass.serial));
        let n_slow = if whole.len() < LEAST_PASSES { 0 } else { SLOW };
        let mut rest = whole.split_off(n_slow);
        let slow = |p: &&Pass| (p.serial, Chosen { is_slow: true, weight: stands_for(p.serial) });
        chosen.extend(whole.iter().map(slow));
        // The same run gives the same sample.
        let seed = rest.iter().fold(0, |seed: u64, pass| seed.rotate_left(5) ^ pass.wall_ns);
        SplitMix64(seed).shuffle(&mut rest);
        rest.truncate(SAMPLE);
        let each = (all - n_slow) as f64 / rest.len() as f64;
        let sampled =
            |p: &&Pass| (p.serial, Chosen { is_slow: false, weight: each * stands_for(p.serial) });
        chosen.extend(rest.iter().map(sampled));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{Phase, Work};
    use brickscope_profile::{Source, sums};

    use super::*;

    fn pass(serial: u32, wall_ns: u64) -> Pass {
        sums::Pass {
            serial,
            phase: Phase::Decode,
            lane: 0,
            tokens: 1,
            position: serial.into(),
            start_ns: 0,
            wall_ns,
            attributed_ns: wall_ns,
            unattributed_ns: 0,
            disturbance: None,
            is_left_out: false,
        }
    }

    fn span(of: &Pass) -> Span {
        Span {
            name: Some(0),
            source: Source::Host,
            lane: 0,
            pass: Some(of.serial),
            layer: None,
            parent: None,
            start_ns: 0,
            duration_ns: of.wall_ns,
            exclusive_ns: of.wall_ns,
            work: Work::default(),
        }
    }

    #[test]
    fn the_slowest_are_chosen_and_the_weights_add_up_to_all_passes() {
        let passes: Vec<Pass> = (0..100).map(|n| pass(n, 1000 + u64::from(n * 37 % 100))).collect();
        let spans: Vec<Span> = passes.iter().map(span).collect();
        let chosen = choose(&passes, &spans, &HashMap::new());
        let mut slow: Vec<u64> = passes
            .iter()
            .filter(|pass| chosen.get(&pass.serial).is_some_and(|chosen| chosen.is_slow))
            .map(|pass| pass.wall_ns)
            .collect();
        slow.sort_unstable();
        assert_eq!(slow, [1096, 1097, 1098, 1099]);
        assert_eq!(chosen.len(), SLOW + SAMPLE);
        let all: f64 = chosen.values().map(|chosen| chosen.weight).sum();
        assert!((all - 100.0).abs() < 1e-9, "{all}");

        // Passes without their spans can't be chosen; the others stand for them.
        let chosen = choose(&passes, &spans[50..], &HashMap::new());
        assert!(chosen.keys().all(|serial| *serial >= 50));
        let all: f64 = chosen.values().map(|chosen| chosen.weight).sum();
        assert!((all - 100.0).abs() < 1e-9, "{all}");
        assert!(choose(&passes, &[], &HashMap::new()).is_empty());
    }

    /// Each fast one stands for 100.
    #[test]
    fn passes_that_stand_for_others_do_so_here_too() {
        let passes: Vec<Pass> = (0..60).map(|n| pass(n, 1000 + u64::from(n))).collect();
        let spans: Vec<Span> = passes.iter().map(span).collect();
        let weights: HashMap<u32, f64> = (0..56).map(|n| (n, 100.0)).collect();
        let chosen = choose(&passes, &spans, &weights);
        let all: f64 = chosen.values().map(|chosen| chosen.weight).sum();
        assert!((all - 5604.0).abs() < 1e-6, "{all}");
        assert!(chosen.values().all(|of| of.is_slow == (of.weight < 1.5)));
    }

    #[test]
    fn weighted_sums_estimate_those_of_all_passes() {
        // Over many runs, the mean of the estimates comes near the sum.
        let mut ratio = 0.0;
        for run in 0..400_u64 {
            let wall = |n: u32| 1000 + (u64::from(n) * 7919 + run * 104_729) % 1000;
            let passes: Vec<Pass> = (0..60).map(|n| pass(n, wall(n))).collect();
            let spans: Vec<Span> = passes.iter().map(span).collect();
            let chosen = choose(&passes, &spans, &HashMap::new());
            let estimate: f64 = passes
                .iter()
                .filter_map(|pass| Some(chosen.get(&pass.serial)?.weight * pass.wall_ns as f64))
                .sum();
            ratio += estimate / passes.iter().map(|pass| pass.wall_ns as f64).sum::<f64>() / 400.0;
        }
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    }
}
