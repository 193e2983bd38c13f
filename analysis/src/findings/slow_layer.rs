//! A brick that takes much longer in one layer than in the others: a matrix of another format, memory that is far away, a
//! kernel that wasn't chosen.

use std::collections::HashMap;

use brickscope_profile::name::NameIdx;
use brickscope_profile::text::printable;
use brickscope_profile::{NameKind, Pass, Phase, Profile, Source};

use super::facts::Facts;
use super::{Finding, Findings, Gain, Kind};
use crate::typical::interval_of_median;
use crate::words::{fraction, time};

/// From this part of the passes on, a slow layer slows the run down; below, it is only mentioned on the first screen.
const MUCH_SLOWER: f64 = 0.05;
/// With another kernel than the other layers have it isn't noise.
const MUCH_SLOWER_BY_KERNEL: f64 = 0.01;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        let slow = SlowLayer::of(facts.profile, of.phase);
        let Some(slow) = slow.filter(SlowLayer::slows_down) else { continue };
        let (brick, layer) = (printable(&slow.brick), slow.layer);
        let mut finding = Finding::new("slow-layer", Kind::Slow, Some(of.phase)).because(
            format!(
                "{brick} of layer {layer} takes {}, of other layers {}: medians over passes",
                time(slow.takes_ns as f64),
                time(slow.others_ns as f64)
            ),
            "/spans",
        );
        if let Some([here, there]) = &slow.kernels {
            let kernels =
                format!("its kernel is {}, the others' {}", printable(here), printable(there));
            finding = finding.because(kernels, "/spans, kernels");
        }
        finding.what = slow.to_string();
        finding.in_a_sentence = Some(format!("look at {slow}"));
        "look at its kernel, the format of its weights, and where they are"
            .clone_into(&mut finding.advice);
        finding.refuted_if = format!(
            "{brick} of layer {layer} takes as long with the format and the place of the other layers' weights"
        );
        finding.test = Some("brickscope show RUN --as kernels".to_owned());
        let saved = |[here, there]: [u64; 2]| here.saturating_sub(there) as f64;
        let ends = [
            saved([slow.takes_between_ns[0], slow.others_ns]),
            saved([slow.takes_between_ns[1], slow.others_ns]),
        ];
        let gain = Gain::between(of.pass_ns, of.least_ns, ends);
        findings.found.push(
            finding.gains(gain.map(|gain| gain.likely(saved([slow.takes_ns, slow.others_ns])))),
        );
    }
}

/// With fewer layers, or fewer passes, none is an exception.
const LEAST_LAYERS: usize = 4;
const LEAST_PASSES: usize = 5;
/// It takes so many times as long as in the other layers.
const LEAST_RATIO: f64 = 1.5;
/// Where more layers than this part of them are slow, they are no exceptions: mixed quantisation has two formats.
const MOST_SLOW: f64 = 0.25;
/// From this ratio on a layer counts as slow.
const SLOW: f64 = 1.25;
/// It costs at least this part of the passes.
const LEAST_SHARE: f64 = 0.01;
/// With another kernel than the other layers have, this part and [`SLOW`] are enough: then it isn't noise.
const LEAST_SHARE_OF_OTHER_KERNEL: f64 = 0.003;

/// A brick in a layer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SlowLayer {
    pub(crate) brick: String,
    pub(crate) layer: u16,
    /// What it takes there in a pass: the median over passes, in nanoseconds.
    pub(crate) takes_ns: u64,
    /// The 95 % interval of that median, by order statistics.
    pub(crate) takes_between_ns: [u64; 2],
    /// The median of the same over the other layers.
    pub(crate) others_ns: u64,
    /// Its kernel there and the other layers' one, if they differ.
    pub(crate) kernels: Option<[String; 2]>,
    /// What it takes more, as a part of the median pass, 0 to 1.
    pub(crate) share: f64,
}

impl SlowLayer {
    /// Whether it slows the run down; else it is only mentioned on the first screen.
    pub(crate) fn slows_down(&self) -> bool {
        let least = if self.kernels.is_some() { MUCH_SLOWER_BY_KERNEL } else { MUCH_SLOWER };
        self.share >= least
    }

    /// The one that costs most, if there is one.
    pub(crate) fn of(profile: &Profile, phase: Phase) -> Option<Self> {
        let passes = profile.passes.iter();
        // Threads that wait for a CPU mostly do so in the first layer.
        let is_clean =
            |pass: &&Pass| pass.phase == phase && !pass.is_left_out && !pass.is_disturbed();
        let passes: Vec<_> = passes.filter(is_clean).collect();
        if passes.len() < LEAST_PASSES {
            return None;
        }
        let pass_ns = median(passes.iter().map(|pass| pass.wall_ns).collect()).max(1) as f64;
        let of_phase: HashMap<u32, usize> =
            passes.iter().enumerate().map(|(nth, pass)| (pass.serial, nth)).collect();
        // By brick and layer: what each pass spent there.
        let mut sums: HashMap<(NameIdx, u16), HashMap<usize, u64>> = HashMap::new();
        for span in &profile.spans {
            let (Some(name), Some(layer), Some(pass)) = (span.name, span.layer, span.pass) else {
                continue;
            };
            let is_brick = profile.names.get(usize::from(name)).is_some_and(is_brick);
            if let Some(&pass) = of_phase.get(&pass)
                && is_brick
                && span.source == Source::Host
            {
                let sum = sums.entry((name, layer)).or_default().entry(pass).or_default();
                *sum = sum.saturating_add(span.exclusive_ns);
            }
        }
        let mut by_brick: HashMap<NameIdx, Vec<(u16, u64, [u64; 2])>> = HashMap::new();
        for ((name, layer), of_passes) in sums {
            if of_passes.len() >= LEAST_PASSES {
                let mut all: Vec<u64> = of_passes.into_values().collect();
                all.sort_unstable();
                let between = interval_of_median(&all);
                by_brick.entry(name).or_default().push((layer, median(all), between));
            }
        }
        let found = by_brick.into_iter().filter_map(|(name, mut layers)| {
            if layers.len() < LEAST_LAYERS {
                return None;
            }
            layers.sort_by_key(|&(layer, ns, _)| (std::cmp::Reverse(ns), layer));
            let (layer, takes_ns, between) = layers[0];
            let others_ns = median(layers[1..].iter().map(|&(_, ns, _)| ns).collect());
            let is_slow = |ns: u64| ns as f64 >= SLOW * others_ns as f64;
            let slow = layers.iter().filter(|&&(_, ns, _)| is_slow(ns)).count();
            let share = (takes_ns.saturating_sub(others_ns)) as f64 / pass_ns;
            let ratio = takes_ns as f64 / others_ns as f64;
            let is_much = ratio >= LEAST_RATIO && share >= LEAST_SHARE;
            let is_some = is_slow(takes_ns) && share >= LEAST_SHARE_OF_OTHER_KERNEL;
            let is_one = slow as f64 <= MOST_SLOW * layers.len() as f64
                && (is_much || is_some && kernels(profile, name, layer).is_some());
            is_one.then_some((name, layer, takes_ns, between, others_ns, share))
        });
        let (name, layer, takes_ns, takes_between_ns, others_ns, share) =
            found.max_by(|a, b| a.5.total_cmp(&b.5).then(b.0.cmp(&a.0)))?;
        let brick = profile.names.get(usize::from(name))?.name.clone();
        let kernels = kernels(profile, name, layer);
        Some(Self { brick, layer, takes_ns, takes_between_ns, others_ns, kernels, share })
    }
}

/// `DownProjection of layer 7: 340 µs a pass where other layers take 108 µs (iq3_s; there q8_0), 6.1 % of the time`
impl std::fmt::Display for SlowLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { brick, layer, takes_ns, others_ns, kernels, share, .. } = self;
        let [takes, others] = [takes_ns, others_ns].map(|&ns| time(ns as f64));
        let kernels = kernels.as_ref().map_or(String::new(), |[here, there]| {
            format!(" ({}; there {})", printable(here), printable(there))
        });
        write!(
            f,
            "{} of layer {layer}: {takes} a pass where other layers take {others}{kernels}, {} of the time",
            printable(brick),
            fraction(*share)
        )
    }
}

fn is_brick(name: &brickscope_profile::Name) -> bool {
    name.kind == NameKind::Brick
}

/// The median, or the mean of the two in the middle. There is at least one.
fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    let mid = all.len() / 2;
    match all.len() % 2 {
        1 => all[mid],
        _ => u64::midpoint(all[mid - 1], all[mid]),
    }
}

/// The kernels that take most of a brick's time in `layer`, and in the other layers, if they differ.
fn kernels(profile: &Profile, brick: NameIdx, layer: u16) -> Option<[String; 2]> {
    let mut times: [HashMap<NameIdx, u64>; 2] = Default::default();
    for span in &profile.spans {
        let Some(name) = span.name else { continue };
        let parent = span.parent.and_then(|parent| profile.spans.get(parent as usize));
        if parent.is_some_and(|parent| parent.name == Some(brick))
            && profile.names.get(usize::from(name)).is_some_and(|name| !is_brick(name))
        {
            let time = times[usize::from(span.layer != Some(layer))].entry(name).or_default();
            *time = time.saturating_add(span.duration_ns);
        }
    }
    let [here, there] = times.map(|times| {
        let longest = times.into_iter().max_by_key(|&(name, ns)| (ns, std::cmp::Reverse(name)))?;
        Some(profile.names.get(usize::from(longest.0))?.name.clone())
    });
    here.zip(there).filter(|(here, there)| here != there).map(<[String; 2]>::from)
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, BrickProfiler, MockClock, Work};

    use super::*;

    /// Passes of so many layers, with what a product takes in each.
    fn profile(passes: u64, takes: &[u64]) -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let kernels = ["mul_mat_q8_0", "mul_mat_iq3_s"].map(|name| profiler.kernel(name, None));
        for position in 0..passes {
            let pass = profiler.begin_pass(Phase::Decode);
            for (layer, &ns) in (0..).zip(takes) {
                let layer = profiler.begin_layer(layer);
                let timer = profiler.start_brick(BrickId::RmsNorm);
                hand.advance(50);
                profiler.stop_brick(timer, 1);
                let kernel = kernels[usize::from(ns > 200)];
                let timer = profiler.start_brick_kernel(BrickId::DownProjection, kernel);
                // One pass is an exception itself.
                hand.advance(if position == 3 { 90_000 } else { ns });
                profiler.stop_brick_kernel(timer, Work::elements(1));
                profiler.end_layer(layer);
            }
            profiler.end_pass(pass, 1, position);
        }
        profiler.profile()
    }

    #[test]
    fn the_slow_layer_is_named_with_its_kernel() {
        let profile = profile(60, &[100, 101, 99, 300, 100, 102]);
        let found = SlowLayer::of(&profile, Phase::Decode).expect("layer 3");
        assert_eq!((found.brick.as_str(), found.layer), ("DownProjection", 3));
        assert_eq!((found.takes_ns, found.others_ns), (300, 100));
        let kernels = found.kernels.expect("they differ");
        assert_eq!(kernels, ["mul_mat_iq3_s", "mul_mat_q8_0"]);
        assert!(SlowLayer::of(&profile, Phase::Prefill).is_none());
        // Another kernel is reason enough to name a smaller difference.
        let found = self::profile(60, &[160, 165, 162, 210, 161, 160]);
        let found = SlowLayer::of(&found, Phase::Decode).expect("layer 3");
        assert_eq!((found.layer, found.takes_ns), (3, 210));
    }

    #[test]
    fn layers_that_differ_little_or_often_are_no_exceptions() {
        for takes in [
            // All alike.
            &[100, 101, 99, 103, 100, 102][..],
            // Two formats.
            &[100, 180, 100, 180, 100, 100],
            // Few layers.
            &[100, 100, 300],
        ] {
            assert_eq!(SlowLayer::of(&profile(60, takes), Phase::Decode), None, "{takes:?}");
        }
        assert_eq!(SlowLayer::of(&profile(4, &[100, 100, 300, 100]), Phase::Decode), None);
    }
}
