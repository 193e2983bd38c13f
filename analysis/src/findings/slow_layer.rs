//! A brick that takes much longer in one layer than in the others of its kind: a matrix of another format, memory that is
//! far away, a kernel that wasn't chosen. Models have layers that differ by design, too: see `layers.rs`.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::name::NameIdx;
use brickscope_profile::text::printable;
use brickscope_profile::{BrickCategory, Pass, Phase, Profile};

use super::facts::Facts;
use super::layers::{Layer, layers};
use super::{Finding, FindingKind, Findings, Gain};
use crate::words::{fraction, time};

/// From this part of the passes on, a slow layer slows the run down; below, it is only mentioned on the first screen.
pub(super) const MUCH_SLOWER: f64 = 0.05;
/// With another kernel than the other layers have it isn't noise.
const MUCH_SLOWER_BY_KERNEL: f64 = 0.01;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        let slow = SlowLayer::of(facts.profile, of.phase);
        let Some(slow) = slow.filter(SlowLayer::slows_down) else { continue };
        let (brick, layer) = (printable(&slow.brick), slow.layer);
        let mut finding = Finding::new("slow-layer", FindingKind::Slow, Some(of.phase)).because(
            format!(
                "{brick} of layer {layer} takes {}, of other layers of its kind {}: medians over passes",
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
pub(super) const LEAST_PASSES: usize = 5;
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
        if profile.kept.is_some() {
            return None;
        }
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
        let found = layers(profile, &of_phase).into_iter().flat_map(|(brick, all)| {
            let exceptions = exceptions(all, profile.names.get(usize::from(brick)));
            exceptions.into_iter().map(move |of| (brick, of))
        });
        let found = found.filter_map(|(brick, Exception { slow, others })| {
            let others_ns = median(others.iter().map(|of| of.takes_ns).collect());
            let share = slow.takes_ns.saturating_sub(others_ns) as f64 / pass_ns;
            let kernels = slow.kernel.zip(kernel_of(&others)).filter(|(here, there)| here != there);
            let is_much =
                slow.takes_ns as f64 >= LEAST_RATIO * others_ns as f64 && share >= LEAST_SHARE;
            let is_some = kernels.is_some() && share >= LEAST_SHARE_OF_OTHER_KERNEL;
            (is_much || is_some).then_some((brick, slow, others_ns, kernels, share))
        });
        let (brick, slow, others_ns, kernels, share) =
            found.max_by(|a, b| a.4.total_cmp(&b.4).then(b.0.cmp(&a.0)))?;
        let name = |of| profile.names.get(usize::from(of)).map(|of| of.name.clone());
        let kernels = kernels.and_then(|(here, there)| Some([name(here)?, name(there)?]));
        Some(Self {
            brick: name(brick)?,
            layer: slow.layer,
            takes_ns: slow.takes_ns,
            takes_between_ns: slow.between_ns,
            others_ns,
            kernels,
            share,
        })
    }
}

/// A layer that is slow, and those of its kind.
struct Exception {
    slow: Layer,
    others: Vec<Layer>,
}

/// The layers of a brick that are slower than the others of their kind.
fn exceptions(all: Vec<Layer>, brick: Option<&brickscope_profile::Name>) -> Vec<Exception> {
    let is_attention = brick.and_then(|of| of.brick_category()) == Some(BrickCategory::Attention);
    let first = all.iter().map(|of| of.layer).min();
    let mut found = Vec::new();
    for kind in kinds(all) {
        if kind.iter().all(Layer::states_work) {
            // They do the same, so that no design makes them differ.
            found.extend(slowest(&kind, MOST_SLOW));
            continue;
        }
        // Of the same kernel nobody says that each does as much. Those that differ by design do so in turns.
        let (places, turns) = in_turns(&kind);
        let slow: Vec<Exception> = places.iter().filter_map(|of| slowest(of, 1.0)).collect();
        let [only] = &slow[..] else { continue };
        let at = kind.iter().position(|of| of.layer == only.slow.layer).unwrap_or(0);
        let is_alike = kernel_of(&only.others) == only.slow.kernel;
        // The first layer may have a wider network, and of few layers one may be the only one that attends to all tokens.
        let may_be_first = is_alike && Some(only.slow.layer) == first;
        let before_or_after = at.max(kind.len() - 1 - at);
        let may_be_only = is_attention && turns == 1 && before_or_after < MOST_ATTENTION_TURNS;
        if !may_be_first && !may_be_only {
            found.extend(slow);
        }
    }
    found
}

/// Layers of one kind each: with the same bricks, and as much work by kernels that compute the same.
fn kinds(all: Vec<Layer>) -> Vec<Vec<Layer>> {
    let mut kinds: Vec<Vec<Layer>> = Vec::new();
    for layer in all {
        match kinds.iter_mut().find(|kind| kind[0].is_like(&layer)) {
            Some(kind) => kind.push(layer),
            None => kinds.push(vec![layer]),
        }
    }
    kinds
}

/// The slowest one, if it is an exception: at most `most` of them are slow, and there are enough.
fn slowest(kind: &[Layer], most: f64) -> Option<Exception> {
    let mut sorted = kind.to_vec();
    sorted.sort_by_key(|of| (std::cmp::Reverse(of.takes_ns), of.layer));
    if sorted.len() < LEAST_LAYERS {
        return None;
    }
    let slow = slow_of(&sorted);
    let others = sorted.split_off(1);
    let is_one = slow > 0 && slow as f64 <= most * kind.len() as f64;
    sorted.pop().filter(|_| is_one).map(|slow| Exception { slow, others })
}

/// How many of them are slow, the slowest first.
fn slow_of(sorted: &[Layer]) -> usize {
    let rest: Vec<u64> = sorted.iter().skip(1).map(|of| of.takes_ns).collect();
    if rest.is_empty() {
        return 0;
    }
    let others_ns = median(rest);
    sorted.iter().filter(|of| of.takes_ns as f64 >= SLOW * others_ns as f64).count()
}

/// Layers that differ by design repeat after at most so many.
const MOST_TURNS: usize = 12;
/// Those that attend to all tokens come back after as many at most: in known models, after six.
const MOST_ATTENTION_TURNS: usize = 8;

/// Those at the same place of a period, and how long that is: the shortest by which at most one layer differs. None if
/// there is no such period. Of a prompt's last layer only the last token may be needed.
fn in_turns(kind: &[Layer]) -> (Vec<Vec<Layer>>, usize) {
    let last = kind.last().map(|of| of.layer);
    for turns in 1..=MOST_TURNS.min(kind.len() / 2) {
        let mut places: Vec<Vec<Layer>> = vec![Vec::new(); turns];
        for (at, layer) in kind.iter().enumerate() {
            places[at % turns].push(layer.clone());
        }
        let differ = |place: &Vec<Layer>| {
            let mut sorted = place.clone();
            sorted.sort_by_key(|of| std::cmp::Reverse(of.takes_ns));
            let rest: Vec<u64> = sorted.iter().skip(1).map(|of| of.takes_ns).collect();
            let others_ns = if rest.is_empty() { 0 } else { median(rest) };
            let is_fast = |of: &&Layer| of.takes_ns as f64 * SLOW <= others_ns as f64;
            let fast = sorted.iter().filter(is_fast).filter(|of| Some(of.layer) != last).count();
            slow_of(&sorted) + fast
        };
        if places.iter().map(differ).sum::<usize>() <= 1 {
            return (places, turns);
        }
    }
    (Vec::new(), 0)
}

/// The kernel that most of them have.
fn kernel_of(layers: &[Layer]) -> Option<NameIdx> {
    let mut counts: BTreeMap<NameIdx, usize> = BTreeMap::new();
    for kernel in layers.iter().filter_map(|of| of.kernel) {
        *counts.entry(kernel).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|&(kernel, count)| (count, std::cmp::Reverse(kernel)))
        .map(|of| of.0)
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

/// The median, or the mean of the two in the middle. There is at least one.
pub(super) fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    let mid = all.len() / 2;
    match all.len() % 2 {
        1 => all[mid],
        _ => u64::midpoint(all[mid - 1], all[mid]),
    }
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickCategory, BrickId, BrickProfiler, MockClock, Work};

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

    /// A model of so many layers that decodes 60 tokens: what attention and the last product take in each layer, the
    /// product's kernel, and the operations and bytes of attention, if they are stated.
    fn model(layers: u16, of: impl Fn(u16) -> ([u64; 2], &'static str, Option<u64>)) -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let attention = profiler.named_brick("FlashAttention", BrickCategory::Attention);
        let flash = profiler.kernel("flash_attn_ext", None);
        for position in 0..60_u64 {
            let pass = profiler.begin_pass(Phase::Decode);
            for layer in 0..layers {
                let ([attends, multiplies], kernel, work) = of(layer);
                let in_layer = profiler.begin_layer(layer);
                let timer = profiler.start_brick_kernel(attention, flash);
                hand.advance(attends + position);
                let work =
                    work.map_or(Work::elements(1), |n| Work { flops: n, ..Work::elements(1) });
                profiler.stop_brick_kernel(timer, work);
                let kernel = profiler.kernel(kernel, None);
                let timer = profiler.start_brick_kernel(BrickId::DownProjection, kernel);
                hand.advance(multiplies + position % 7);
                profiler.stop_brick_kernel(timer, Work::elements(1));
                profiler.end_layer(in_layer);
            }
            profiler.end_pass(pass, 1, 8000 + position);
            hand.advance(1000);
        }
        profiler.profile()
    }

    const Q4: &str = "mul_mat_q4_k";
    const LOCAL: u64 = 60_000;
    const GLOBAL: u64 = 1_500_000;

    /// Attention over all tokens in one of so many layers, the last of them, and in the others over a window.
    fn turns(every: u16) -> impl Fn(u16) -> u64 {
        move |layer| if layer % every == every - 1 { GLOBAL } else { LOCAL }
    }

    #[test]
    fn layers_that_differ_by_design_are_no_exceptions() {
        for (layers, every) in
            [(26, 6), (62, 6), (16, 4), (48, 4), (24, 2), (8, 6), (9, 6), (6, 4), (18, 6)]
        {
            let attends = turns(every);
            let profile = model(layers, |of| ([attends(of), 300_000], Q4, None));
            let found = SlowLayer::of(&profile, Phase::Decode);
            assert_eq!(found, None, "{layers} layers, each {every}th");
            // The first of them, too.
            let profile = model(layers, |of| ([attends(layers - 1 - of), 300_000], Q4, None));
            let found = SlowLayer::of(&profile, Phase::Decode);
            assert_eq!(found, None, "{layers} layers, each {every}th from the end");
        }
        // The first layers are dense, and experts compute in the others; or nobody says what computes.
        for dense in [1, 2, 3] {
            for kernel in ["mul_mat_id_q4_k", Q4] {
                let is_dense = |of: u16| of < dense;
                let takes = |of| if is_dense(of) { 900_000 } else { 300_000 };
                let profile = model(27, |of| {
                    ([LOCAL, takes(of)], if is_dense(of) { Q4 } else { kernel }, None)
                });
                assert_eq!(SlowLayer::of(&profile, Phase::Decode), None, "{dense} {kernel}");
            }
        }
        // In no order.
        let takes = |of| if [2, 3, 11, 19].contains(&of) { GLOBAL } else { LOCAL };
        let profile = model(26, |of| ([takes(of), 300_000], Q4, None));
        assert_eq!(SlowLayer::of(&profile, Phase::Decode), None);
        // As much work tells which are alike.
        let profile = model(26, |of| ([takes(of), 300_000], Q4, Some(takes(of))));
        assert_eq!(SlowLayer::of(&profile, Phase::Decode), None);
    }

    #[test]
    fn a_slow_layer_among_its_kind_is_found() {
        let found = |profile: &Profile| {
            let slow = SlowLayer::of(profile, Phase::Decode).expect("one is slow");
            assert!(slow.slows_down(), "{slow}");
            (slow.brick.clone(), slow.layer, slow.others_ns)
        };
        // Among those that attend to all tokens, and among those that do so to a window.
        for (layers, every, slow) in
            [(26, 6, 11), (26, 6, 7), (16, 4, 7), (16, 4, 9), (24, 2, 5), (24, 2, 8)]
        {
            let attends = turns(every);
            let takes = |of| if of == slow { attends(of) + 2_000_000 } else { attends(of) };
            let (brick, layer, others_ns) =
                found(&model(layers, |of| ([takes(of), 300_000], Q4, None)));
            assert_eq!((&*brick, layer), ("FlashAttention", slow), "{layers} {every}");
            assert!(others_ns.abs_diff(attends(slow)) < 100, "{others_ns}");
        }
        // Beside a dense first layer.
        let takes = |of| [900_000, 300_000, 1_200_000][usize::from(of > 0) + usize::from(of == 9)];
        let kernel = |of| if of == 0 { Q4 } else { "mul_mat_id_q4_k" };
        let profile = model(27, |of| ([LOCAL, takes(of)], kernel(of), None));
        assert_eq!(found(&profile), ("DownProjection".to_owned(), 9, 300_003));
        // Those that attend to all tokens in no order, one of which takes twice as long for as much work.
        let is_global = |of: u16| [2, 3, 11, 12, 19].contains(&of);
        let takes = |of: u16| match of {
            11 => 2 * GLOBAL,
            of if is_global(of) => GLOBAL,
            _ => LOCAL,
        };
        let work = |of| if is_global(of) { 8000 } else { 512 };
        let profile = model(26, |of| ([takes(of), 300_000], Q4, Some(work(of))));
        let (brick, layer, others_ns) = found(&profile);
        assert_eq!((&*brick, layer), ("FlashAttention", 11));
        assert!(others_ns.abs_diff(GLOBAL) < 100, "{others_ns}");
    }
}
