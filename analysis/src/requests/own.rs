//! Of a slow token's own passes: the brick and layer that took longer than they typically do.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::text::printable;
use brickscope_profile::{Phase, Profile};

use super::cause::median;
use super::{Interval, PartKind, Requests};
use crate::words::time;

/// With fewer passes that have a brick, nobody knows what is typical of it.
const FEWEST: usize = 7;

/// A brick in a layer, or in none; without a name, the time between bricks.
type Key = (Option<u16>, Option<u16>);
/// Passes that do the same: of a phase, for as many prompts, requests and tokens.
type Alike = (Phase, usize, usize, u64);

/// What each brick took in each pass, and what it typically takes in such passes.
pub(crate) struct OwnBricks<'r, 'p> {
    requests: &'r Requests<'p>,
    /// By an index into the profile's passes.
    took: Vec<BTreeMap<Key, u64>>,
    alike: Vec<Alike>,
    typical: HashMap<(Alike, Key), u64>,
}

impl<'r, 'p> OwnBricks<'r, 'p> {
    /// `None` if single bricks were not recorded, or not kept.
    pub(crate) fn of(requests: &'r Requests<'p>) -> Option<Self> {
        let profile: &Profile = requests.profile;
        if profile.spans.is_empty() || profile.dropped.spans > 0 {
            return None;
        }
        let passes = profile.passes.iter().zip(0..);
        let by_serial: HashMap<u32, usize> = passes.map(|(pass, nth)| (pass.serial, nth)).collect();
        let mut took: Vec<BTreeMap<Key, u64>> = profile
            .passes
            .iter()
            .map(|pass| BTreeMap::from([((None, None), pass.unattributed_ns)]))
            .collect();
        for span in profile.spans.iter().filter(|span| span.exclusive_ns > 0) {
            let nth = span.pass.and_then(|serial| by_serial.get(&serial));
            if let (Some(&nth), Some(name)) = (nth, span.name) {
                let sum = took[nth].entry((Some(name), span.layer)).or_default();
                *sum = sum.saturating_add(span.exclusive_ns);
            }
        }
        let mut parts = vec![(0, 0); took.len()];
        for pass in &requests.passes {
            let of = &requests.parts[pass.parts[0]..pass.parts[1]];
            let prompts = of.iter().filter(|(_, kind, _)| *kind == PartKind::Prompt).count();
            parts[pass.nth] = (prompts, of.len());
        }
        let alike = profile.passes.iter().zip(parts);
        let alike: Vec<Alike> =
            alike.map(|(pass, (prompts, all))| (pass.phase, prompts, all, pass.tokens)).collect();
        let mut times: HashMap<(Alike, Key), Vec<u64>> = HashMap::new();
        for (took, &alike) in took.iter().zip(&alike) {
            for (&key, &ns) in took {
                times.entry((alike, key)).or_default().push(ns);
            }
        }
        let known = times.into_iter().filter(|(_, times)| times.len() >= FEWEST);
        let typical = known.map(|(of, mut times)| (of, median(&mut times))).collect();
        Some(Self { requests, took, alike, typical })
    }

    /// What took longer in the own passes of an interval that is slow by these, in a sentence.
    pub(crate) fn sentence(&self, interval: &Interval) -> String {
        let profile = self.requests.profile;
        let from = self.requests.after_queue(interval);
        let own = self.requests.overlapping(from, interval.to_ns).filter(|pass| {
            let parts = &self.requests.parts[pass.parts[0]..pass.parts[1]];
            parts.iter().any(|(request, ..)| *request == interval.request)
        });
        let longer = own.flat_map(|pass| {
            let alike = self.alike[pass.nth];
            self.took[pass.nth].iter().filter_map(move |(&key, &ns)| {
                let typical = *self.typical.get(&(alike, key))?;
                Some((ns.checked_sub(typical)?, pass.nth, key, ns, typical))
            })
        });
        let Some((more, nth, (name, layer), ns, typical)) =
            longer.max_by_key(|(more, nth, ..)| (*more, std::cmp::Reverse(*nth)))
        else {
            return "too few passes are like its own to say which brick was longer".to_owned();
        };
        if more == 0 {
            return "no brick of its own passes took longer than it typically does".to_owned();
        }
        let name = name.and_then(|name| profile.names.get(usize::from(name)));
        let what = name.map_or("the time between bricks".to_owned(), |name| printable(&name.name));
        let layer = layer.map_or(String::new(), |layer| format!(" of layer {layer}"));
        format!(
            "in its own pass {} {what}{layer} took {}, typically {}",
            profile.passes[nth].serial,
            time(ns as f64),
            time(typical as f64)
        )
    }
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, BrickProfiler, Ending, MockClock, Part};

    use crate::view;

    #[test]
    fn a_slow_token_names_the_brick_and_the_layer_of_its_own_pass() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let requests = profiler.requests();
        let a = requests.arrive("a");
        requests.admit(a);
        for nth in 0..40_u64 {
            let pass = profiler.begin_pass_of(&[Part::decode(a, nth)]);
            for index in 0..2 {
                let layer = profiler.begin_layer(index);
                for brick in [BrickId::QkvProjection, BrickId::DownProjection] {
                    let is_slow = nth == 25 && index == 1 && brick == BrickId::DownProjection;
                    let timer = profiler.start_brick(brick);
                    hand.advance(if is_slow { 9_000_000 } else { 1_000_000 });
                    profiler.stop_brick(timer, 1);
                }
                profiler.end_layer(layer);
            }
            profiler.end_pass(pass, 1, nth);
            hand.advance(1_000);
            requests.token(a);
        }
        requests.end(a, Ending::Stop);
        let text = view::request(&profiler.profile(), "a").expect("it is there");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.matches("slow: ").count(), 1, "{text}");
        let said = "DownProjection of layer 1 took 9.00 ms, typically 1.00 ms";
        assert!(text.contains(said), "{text}");
    }
}
