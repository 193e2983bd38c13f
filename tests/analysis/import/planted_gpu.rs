//! Layers of kernels inside of graphs, by traces whose right answers are known: a kernel has its true layer,
//! or none.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use brickscope::{GraphLayers, GraphLayersBy, Name, NameKind, Phase, Profile, Span};
use brickscope_analysis::layers::DeviceLayers;
use brickscope_analysis::view;
use brickscope_formats::import::{Format, Options, read};
use brickscope_testing::gpu_trace::{
    Kernel, MAIN_STREAM, Net, Planted, Recorded, Recording, TrueKernel, Truth, all_reduce,
    attention, experts, mlp, plain_norm, shared_expert, triton_attention,
};
use proptest::prelude::*;

use super::imported;

/// A kernel as it was imported.
#[derive(Debug, Clone, Copy)]
struct Found<'p> {
    layer: Option<u16>,
    brick: &'p str,
    ns: u64,
}

/// The kernels of a profile, by begin and name.
fn found(profile: &Profile) -> HashMap<(u64, &str), Found<'_>> {
    let name = |span: &Span| -> Option<&Name> { profile.names.get(usize::from(span.name?)) };
    let mut found = HashMap::new();
    for stream in profile.devices.iter().flat_map(|device| &device.streams) {
        for span in &stream.spans {
            let Some(kernel) = name(span).filter(|name| name.kind == NameKind::Kernel) else {
                continue;
            };
            let around = span.parent.and_then(|at| name(&stream.spans[at as usize]));
            let brick = around.map_or("", |name| name.name.as_str());
            let kernel = (span.start_ns, kernel.name.as_str());
            let new = Found { layer: span.layer, brick, ns: span.duration_ns };
            let before = found.insert(kernel, new);
            assert!(before.is_none(), "{kernel:?} is there twice");
        }
    }
    found
}

/// How the layers of a profile compare with the true ones.
#[derive(Debug, Default)]
struct Compared {
    /// Kernels of layers, how many have theirs, and the time of both.
    kernels: u64,
    right: u64,
    ns: u64,
    right_ns: u64,
    /// Kernels that have another layer than theirs.
    wrong: Vec<String>,
}

impl Compared {
    /// The share of the time in layers whose layer is known.
    fn share(&self) -> f64 {
        if self.ns == 0 { 1.0 } else { self.right_ns as f64 / self.ns as f64 }
    }
}

/// Compares those kernels that `of` wants.
fn compared(profile: &Profile, truth: &Truth, of: impl Fn(&TrueKernel) -> bool) -> Compared {
    let found = found(profile);
    let mut compared = Compared::default();
    for kernel in truth.sound().filter(|kernel| of(kernel)) {
        let at = kernel.start_ns - truth.origin_ns;
        let Some(is) = found.get(&(at, kernel.name.as_str())) else {
            panic!("{kernel:?} was not imported")
        };
        assert_eq!(is.ns, kernel.ns, "{kernel:?}");
        if is.layer.is_some() && is.layer != kernel.layer {
            compared.wrong.push(format!("{kernel:?} is in layer {:?}", is.layer));
        }
        if kernel.layer.is_some() {
            let is_right = is.layer == kernel.layer;
            compared.kernels += 1;
            compared.ns += kernel.ns;
            compared.right += u64::from(is_right);
            compared.right_ns += if is_right { kernel.ns } else { 0 };
        }
    }
    compared
}

fn all(_: &TrueKernel) -> bool {
    true
}

/// No kernel has another layer than its own.
#[track_caller]
fn never_wrong(profile: &Profile, truth: &Truth) -> Compared {
    let compared = compared(profile, truth, all);
    let wrong = compared.wrong.len();
    assert!(wrong == 0, "{wrong} kernels have wrong layers: {:#?}", compared.wrong.first());
    compared
}

/// Each kernel of a layer has it, and no other kernel has one.
#[track_caller]
fn all_right(recorded: &Recorded) -> Profile {
    let profile = imported(&recorded.trace, Format::Chrome);
    let compared = never_wrong(&profile, &recorded.truth);
    assert!(compared.kernels > 0);
    let unknown = compared.kernels - compared.right;
    assert_eq!(unknown, 0, "of {} kernels: {:?}", compared.kernels, graph_layers(&profile));
    profile
}

fn graph_layers(profile: &Profile) -> Option<&GraphLayers> {
    profile.imported.as_ref().expect("of a file").graph_layers.as_ref()
}

/// What is said of how layers were found.
fn said(profile: &Profile) -> String {
    let imported = profile.imported.as_ref().expect("of a file");
    let detail = graph_layers(profile).map_or("", |layers| layers.detail.as_str());
    format!("{detail}{}", imported.doubts.join(""))
}

/// The layers of a graph, all of them by the sequence.
#[track_caller]
fn by_sequence(recorded: &Recorded) -> Profile {
    let profile = all_right(recorded);
    let layers = graph_layers(&profile).expect("they were found").clone();
    let in_graph: Vec<&TrueKernel> =
        recorded.truth.kernels.iter().filter(|kernel| kernel.is_in_graph).collect();
    let in_layers = in_graph.iter().filter(|kernel| kernel.layer.is_some()).count();
    assert_eq!(layers.by, GraphLayersBy::Sequence);
    assert_eq!(layers.layers, u32::from(recorded.truth.layers));
    assert_eq!(layers.kernels, in_layers as u64);
    // Not of those of its pass that were launched one by one.
    assert_eq!(layers.of_kernels, in_graph.len() as u64, "{layers:?}");
    profile
}

/// One of each family of models.
fn families() -> Vec<(&'static str, Net)> {
    vec![
        ("dense", Net::dense(64)),
        ("parallel", Net::parallel(32)),
        ("experts", Net::of_experts(32)),
        ("gpt-oss", Net::gpt_oss(24)),
        ("qwen3", Net::qwen3(36)),
        ("gemma", Net::gemma(48)),
        ("deepseek", Net::deepseek(61, 3)),
        ("pairs", Net::with_pairs(28)),
        ("shared experts", Net::of_shared_experts(24)),
    ]
}

/// The truth itself: kernels that are launched in the modules of their layers have those that are said to be
/// true.
#[test]
fn without_graphs_modules_tell_the_same_layers() {
    for (name, net) in families() {
        let recorded = Recording::of(net).steps(&[32, 32]).eager().record();
        let profile = imported(&recorded.trace, Format::Chrome);
        let compared = never_wrong(&profile, &recorded.truth);
        assert_eq!(compared.right, compared.kernels, "{name}");
        let steps = recorded.truth.steps.iter().zip(&profile.passes);
        for (step, pass) in steps {
            let is = (pass.start_ns, pass.wall_ns);
            assert_eq!(is, (step.start_ns - recorded.truth.origin_ns, step.ns), "{name}");
        }
        assert_eq!(profile.passes.len(), 2, "{name}");
    }
}

#[test]
fn each_layer_of_a_dense_model_is_found() {
    let recorded = Recording::of(Net::dense(64)).record();
    let profile = by_sequence(&recorded);
    // The embedding, the last norm and the head are in none.
    let found = found(&profile);
    let outside = recorded.truth.kernels.iter().filter(|kernel| kernel.layer.is_none());
    let mut bricks = Vec::new();
    for kernel in outside.filter(|kernel| kernel.is_in_range) {
        let at = (kernel.start_ns - recorded.truth.origin_ns, kernel.name.as_str());
        assert_eq!(found[&at].layer, None, "{kernel:?}");
        bricks.push(kernel.brick);
    }
    assert_eq!(bricks[3..], ["Embedding", "RmsNorm", "Copy", "LmHead"]);
    // So the sums of the layers are true, to the nanosecond.
    let mut sums: BTreeMap<Option<u16>, u64> = BTreeMap::new();
    for kernel in found.values() {
        *sums.entry(kernel.layer).or_default() += kernel.ns;
    }
    assert_eq!(sums, recorded.truth.by_layer());
    assert_eq!(sums.len(), 65);
}

#[test]
fn layers_that_alternate_are_layers_each() {
    // As gpt-oss, whose layer 0 lacks a kernel, too.
    by_sequence(&Recording::of(Net::gpt_oss(24)).record());
    by_sequence(&Recording::of(Net::gpt_oss(36)).steps(&[32, 32]).record());
    by_sequence(&Recording::of(Net::qwen3(36)).record());
}

#[test]
fn every_sixth_layer_may_be_another_one() {
    for layers in [26, 34, 48, 62] {
        by_sequence(&Recording::of(Net::gemma(layers)).record());
    }
}

#[test]
fn the_first_layers_may_be_dense_ones() {
    for (layers, dense) in [(61, 3), (27, 1), (48, 0)] {
        by_sequence(&Recording::of(Net::deepseek(layers, dense)).record());
    }
}

#[test]
fn a_layer_may_have_another_tile() {
    for (layer, nth) in [(0, 0), (17, 1), (40, 2), (63, 3)] {
        by_sequence(&Recording::of(Net::dense(64).autotuned(layer, nth)).record());
    }
    // In several layers, each another product.
    let net = Net::gpt_oss(24).autotuned(5, 0).autotuned(11, 2).autotuned(12, 1);
    by_sequence(&Recording::of(net).record());
}

#[test]
fn what_runs_beside_a_layer_is_of_it_or_of_none() {
    let recorded = Recording::of(Net::of_shared_experts(32)).steps(&[32, 32]).record();
    let profile = imported(&recorded.trace, Format::Chrome);
    never_wrong(&profile, &recorded.truth);
    let on_first = |kernel: &TrueKernel| kernel.stream == MAIN_STREAM;
    let first = compared(&profile, &recorded.truth, on_first);
    assert_eq!(first.right, first.kernels, "{:?}", graph_layers(&profile));
    assert_eq!(graph_layers(&profile).map(|of| of.layers), Some(32));
}

#[test]
fn layers_behind_lost_kernels_are_right_or_unknown() {
    // In a layer, at its begin, and across the bounds of two and of four.
    for (from, kernels) in
        [(3 + 1 + 20 * 11 + 4, 3), (4 + 20 * 11, 2), (4 + 20 * 11 + 8, 7), (4 + 20 * 11 + 5, 29)]
    {
        for steps in [&[32][..], &[32, 32, 32]] {
            let hole = Planted::Dropped { step: 0, from, kernels };
            let recorded = Recording::of(Net::dense(64)).steps(steps).plant(hole).record();
            let profile = imported(&recorded.trace, Format::Chrome);
            never_wrong(&profile, &recorded.truth);
            // The last one before the hole isn't sure: it may have the end of another one.
            let before = |of: &TrueKernel| of.step == 0 && of.layer.is_some_and(|layer| layer < 19);
            let before = compared(&profile, &recorded.truth, before);
            assert_eq!((before.right, before.kernels), (19 * 11, 19 * 11), "{from} {kernels}");
            // The other steps have all of theirs.
            let others = compared(&profile, &recorded.truth, |of| of.step > 0);
            assert_eq!(others.right, others.kernels, "{from} {kernels}");
            assert!(!said(&profile).is_empty(), "{from} {kernels}: nothing is said of it");
        }
    }
}

#[test]
fn a_step_without_its_begin_has_no_wrong_layer() {
    // As CUPTI loses the first kernels of a session: the copies, the embedding and three layers and a half.
    let lost = Planted::Dropped { step: 0, from: 0, kernels: 4 + 3 * 11 + 5 };
    let recorded = Recording::of(Net::dense(32)).steps(&[32, 32, 32]).plant(lost).record();
    let profile = imported(&recorded.trace, Format::Chrome);
    never_wrong(&profile, &recorded.truth);
    let others = compared(&profile, &recorded.truth, |of| of.step > 0);
    assert_eq!(others.right, others.kernels, "{:?}", graph_layers(&profile));
}

#[test]
fn a_sequence_that_does_not_repeat_has_no_layers() {
    for seed in 0..8 {
        for net in [Net::dense(64), Net::of_experts(32)] {
            let recorded = Recording::of(net.shuffled(seed)).record();
            let profile = imported(&recorded.trace, Format::Chrome);
            let found = found(&profile);
            let with_layer = found.values().filter(|kernel| kernel.layer.is_some()).count();
            assert_eq!(with_layer, 0, "seed {seed}: {:?}", graph_layers(&profile));
            assert!(graph_layers(&profile).is_none_or(|layers| layers.kernels == 0));
        }
    }
}

#[test]
fn a_pair_that_repeats_inside_of_a_layer_is_no_layer() {
    by_sequence(&Recording::of(Net::with_pairs(28)).record());
    by_sequence(&Recording::of(Net::with_pairs(57)).steps(&[1, 1]).record());
}

#[test]
fn few_layers_are_right_or_unknown() {
    for layers in 1..4 {
        for net in
            [Net::dense(layers), Net::gpt_oss(layers), Net::with_pairs(layers), Net::gemma(layers)]
        {
            let recorded = Recording::of(net).record();
            never_wrong(&imported(&recorded.trace, Format::Chrome), &recorded.truth);
        }
    }
}

#[test]
fn each_step_has_its_own_layers() {
    by_sequence(&Recording::of(Net::dense(64)).steps(&[32, 32, 32]).record());
    // Another number of requests is another graph, with other tiles.
    by_sequence(&Recording::of(Net::dense(64)).steps(&[32, 32, 8, 32]).record());
    by_sequence(&Recording::of(Net::gpt_oss(24)).steps(&[64, 32]).record());
}

#[test]
fn each_rank_has_its_layers() {
    let recording = Recording::of(Net::parallel(64)).steps(&[32, 32]);
    let recording = recording.plant(Planted::SlowRank { rank: 3, percent: 120 });
    for recorded in recording.ranks(4) {
        let profile = by_sequence(&recorded);
        // Times are what the file has, with what a rank waits for the others.
        let waits = recorded.truth.kernels.iter().map(|kernel| kernel.waited_ns).sum::<u64>();
        assert_eq!(waits < 100_000, recorded.truth.rank == 3, "{waits}");
        assert_eq!(profile.devices.len(), 1);
    }
}

#[test]
fn a_slow_layer_is_the_slow_one() {
    let slow = Planted::SlowLayer { layer: 17, brick: "Experts", percent: 180 };
    let recorded = Recording::of(Net::of_experts(32)).steps(&[32, 32]).plant(slow).record();
    let profile = by_sequence(&recorded);
    let mut sums: BTreeMap<Option<u16>, u64> = BTreeMap::new();
    for kernel in found(&profile).values() {
        *sums.entry(kernel.layer).or_default() += kernel.ns;
    }
    assert_eq!(sums, recorded.truth.by_layer());
    let layers = sums.iter().filter(|(layer, _)| layer.is_some());
    assert_eq!(layers.max_by_key(|(_, ns)| **ns).map(|(layer, _)| *layer), Some(Some(17)));
}

/// The first screen on one line, with its words one space apart.
fn screen(profile: &Profile) -> String {
    let text = view::summary(profile, view::Size { columns: 80, rows: 40 }, None).to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the layers of decode take on the only device.
fn on_layers(profile: &Profile) -> DeviceLayers {
    DeviceLayers::of(profile, 0, Phase::Decode).expect("it has layers")
}

#[test]
fn the_first_screen_names_the_slow_layer_and_its_slow_brick() {
    let slow = Planted::SlowLayer { layer: 17, brick: "Experts", percent: 180 };
    for steps in [&[32][..], &[32, 32, 32]] {
        let recording = Recording::of(Net::of_experts(32)).steps(steps).plant(slow);
        let recorded = recording.record();
        let profile = by_sequence(&recorded);
        let layers = on_layers(&profile);
        assert_eq!((layers.layers, layers.passes), (32, steps.len()));
        assert_eq!(layers.by, Some(GraphLayersBy::Sequence));
        let truth = recorded.truth.by_layer();
        let in_layers = truth.iter().filter(|(layer, _)| layer.is_some()).map(|(_, ns)| ns);
        assert_eq!(layers.in_layers_ns, in_layers.sum::<u64>());
        let found = layers.slow.as_ref().expect("layer 17 is slow");
        assert_eq!((found.layer, &*found.brick, found.more), (17, "Experts", 0));
        assert_eq!((found.slow_in, found.passes), (steps.len(), steps.len()));
        if steps.len() == 1 {
            assert_eq!(found.takes_ns, truth[&Some(17)]);
        }
        let screen = screen(&profile);
        assert!(screen.contains("layers 32 by the order of kernels, "), "{screen}");
        assert!(screen.contains(" · median ") && screen.contains(" · layer 17: "), "{screen}");
        assert!(screen.contains(" (Experts ") && screen.contains(" elsewhere "), "{screen}");
        let is_said = screen.contains(" in the one pass there is (");
        assert_eq!(is_said, steps.len() == 1, "{screen}");
        assert!(screen.contains(" · outside "), "{screen}");
        let next = screen.split("Next: ").nth(1).expect("it is there");
        assert!(next.starts_with("look into Experts: "), "{screen}");
        assert!(next.contains(" a layer; and at layer 17, where Experts takes "), "{screen}");
        // The report and the JSON have the same.
        let report = view::report(&profile).split_whitespace().collect::<Vec<_>>().join(" ");
        let all = format!("it is slow in {} of {} pass", steps.len(), steps.len());
        assert!(report.contains("layer 17 takes ") && report.contains(&all), "{report}");
        assert!(report.contains("told by the order of the kernels, 32 layers"), "{report}");
        let json: serde_json::Value = serde_json::from_str(&view::json(&profile)).expect("JSON");
        assert_eq!(json["layers_on_devices"][0]["slow"]["layer"], 17);
    }
}

#[test]
fn a_clean_run_has_no_slow_layer() {
    for seed in 0..40 {
        let net = match seed % 4 {
            0 => Net::of_experts(32),
            1 => Net::gpt_oss(24),
            2 => Net::gemma(48),
            _ => Net::deepseek(27, 1),
        };
        let recording = Recording { seed, jitter: 100, ..Recording::of(net) }.steps(&[32, 32]);
        let profile = imported(&recording.record().trace, Format::Chrome);
        let layers = on_layers(&profile);
        assert_eq!(layers.slow, None, "seed {seed}");
        assert!(!screen(&profile).contains(" · layer "), "seed {seed}: {}", screen(&profile));
    }
}

#[test]
fn layers_that_take_turns_have_a_median_of_each_kind() {
    let recording = Recording { jitter: 0, ..Recording::of(Net::gpt_oss(24)) };
    let profile = imported(&recording.record().trace, Format::Chrome);
    let layers = on_layers(&profile);
    // Layer 0 lacks a kernel, so it is of a kind of its own.
    let kinds: Vec<usize> = layers.kinds.iter().map(|kind| kind.layers.len()).collect();
    assert_eq!(kinds, [12, 11, 1]);
    let screen = screen(&profile);
    assert!(screen.contains(" · medians odd ") && screen.contains(", even "), "{screen}");
    assert!(!screen.contains(" · layer "), "{screen}");
    // A slow one is beside those of its kind, which take less than the others.
    let slow = Planted::SlowLayer { layer: 8, brick: "Experts", percent: 180 };
    let profile = imported(&recording.plant(slow).record().trace, Format::Chrome);
    let found = on_layers(&profile).slow.expect("layer 8 is slow");
    assert_eq!((found.layer, found.others_ns), (8, layers.kinds[1].median_ns));
}

#[test]
fn a_kernel_of_a_graph_has_its_brick_or_what_its_name_tells() {
    for (name, net) in families() {
        let recorded = Recording::of(net).record();
        let profile = imported(&recorded.trace, Format::Chrome);
        let found = found(&profile);
        for kernel in recorded.truth.kernels.iter().filter(|kernel| kernel.is_in_graph) {
            let at = (kernel.start_ns - recorded.truth.origin_ns, kernel.name.as_str());
            let brick = found[&at].brick;
            let has = |part: &str| kernel.name.contains(part);
            let is_product = Kernel::new(&kernel.name, 1, kernel.brick).is_product();
            let by_name = match brick {
                "MatMul" => is_product,
                "Elementwise" => has("elementwise") || has("triton_poi_"),
                "TopK" => has("topk"),
                "Gather" => has("gather_kernel"),
                own => own == kernel.name,
            };
            assert!(brick == kernel.brick || by_name, "{name}: {brick} is said of {kernel:?}");
        }
    }
}

#[test]
fn impossible_times_make_no_layer_wrong() {
    for kernel in [4, 5, 100, 707, 708] {
        for odd in [
            Planted::Endless { step: 0, kernel },
            Planted::Untimed { step: 0, kernel },
            Planted::Early { step: 0, kernel, ns: 2_500 },
            Planted::Early { step: 0, kernel, ns: 900_000 },
        ] {
            let recorded = Recording::of(Net::dense(64)).steps(&[32, 32]).plant(odd).record();
            let profile = imported(&recorded.trace, Format::Chrome);
            let compared = never_wrong(&profile, &recorded.truth);
            // The other step is whole.
            assert!(compared.share() > 0.49, "{odd:?}: {}", compared.share());
        }
    }
}

#[test]
fn what_a_step_takes_on_the_device_and_waits_before_it_is_true() {
    let recording = Recording { host_ns: 400_000, ..Recording::of(Net::dense(8)) };
    let recorded = recording.steps(&[32; 5]).record();
    let profile = imported(&recorded.trace, Format::Chrome);
    let truth = &recorded.truth;
    let passes = &profile.devices[0].streams[0].passes;
    let of = |start: u64, end: u64| (start - truth.origin_ns, end - start);
    let on_device: Vec<_> = truth.on_device().iter().map(|&(start, end)| of(start, end)).collect();
    assert_eq!(
        passes.iter().map(|pass| (pass.start_ns, pass.wall_ns)).collect::<Vec<_>>(),
        on_device
    );
    assert!(truth.gaps_ns().iter().all(|&gap| gap > 400_000), "{:?}", truth.gaps_ns());
    assert_eq!(profile.devices[0].name, "NVIDIA H100 80GB HBM3");
}

/// A model and a run of it, random.
#[derive(Debug, Clone)]
struct Shape {
    layers: u16,
    /// So many of the first layers have a dense MLP, where all others have experts.
    dense: u16,
    /// The attention of each layer of a period.
    pattern: Vec<u8>,
    has_experts: bool,
    has_own_norms: bool,
    has_post_norms: bool,
    has_shared: bool,
    is_parallel: bool,
    /// More kernels in each layer: where, and which.
    extras: Vec<(usize, usize)>,
    autotuned: Option<(u16, usize)>,
    steps: Vec<u32>,
    /// Where kernels are missing, as a share of the layers, and how many.
    lost: Option<(f64, usize)>,
    jitter: u64,
    seed: u64,
}

/// What models have in their layers here and there.
const EXTRAS: [(&str, u64, &str); 4] = [
    ("void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16>", 2_500, "Quantize"),
    ("triton_poi_fused_add_mul_1", 2_900, "Elementwise"),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor>",
        2_200,
        "Elementwise",
    ),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>", 3_000, "MatMul"),
];

impl Shape {
    fn body(&self, layer: u16) -> Vec<Kernel> {
        let of = self.pattern[usize::from(layer) % self.pattern.len()];
        let mut all = match of {
            0 => attention(),
            1 => triton_attention(true),
            _ => triton_attention(false),
        };
        if self.has_own_norms {
            all.splice(2..2, [plain_norm(), plain_norm()]);
        }
        if self.is_parallel {
            all.push(all_reduce());
        }
        if self.has_post_norms {
            all.push(plain_norm());
        }
        let has_experts = layer >= self.dense && (self.has_experts || self.dense > 0);
        let mut rest = if has_experts { experts() } else { mlp() };
        if has_experts && self.has_shared {
            rest.splice(1..1, shared_expert());
        }
        all.extend(rest);
        if self.is_parallel {
            all.push(all_reduce());
        }
        if self.has_post_norms {
            all.push(plain_norm());
        }
        // Behind the norm that a layer begins with.
        for &(place, which) in &self.extras {
            let (name, ns, brick) = EXTRAS[which];
            let place = 1 + place % all.len();
            all.insert(place, Kernel::new(name, ns, brick));
        }
        all
    }

    fn recording(&self) -> Recording {
        let mut net = Net::of(self.layers, |layer| self.body(layer));
        if let Some((layer, nth)) = self.autotuned {
            net = net.autotuned(layer % self.layers, nth);
        }
        let recording = Recording { jitter: self.jitter, seed: self.seed, ..Recording::of(net) };
        let recording = recording.steps(&self.steps);
        let Some((part, kernels)) = self.lost else { return recording };
        // In the middle, and less than a layer has on its first stream, where layers are told: that one is missing can't be
        // seen if the others are alike.
        let layers = &recording.net.layers;
        let sizes: Vec<usize> = layers.iter().map(Vec::len).collect();
        let on_first = |layer: &Vec<Kernel>| layer.iter().filter(|kernel| !kernel.is_aside).count();
        let all: usize = sizes.iter().sum();
        let (first, last) = (sizes.first().copied(), sizes.last().copied());
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
        let least = layers.iter().map(on_first).min().unwrap_or(0);
        let kernels = 1 + kernels % least.saturating_sub(1).max(1);
        let room = all.saturating_sub(first + last + kernels);
        let begin = recording.net.before.len() + recording.net.prologue.len() + first;
        let from = begin + (room as f64 * part) as usize;
        recording.plant(Planted::Dropped { step: 0, from, kernels })
    }

    /// Whether all layers can be found: nothing is missing, and each kind of layer comes often.
    fn is_clean(&self) -> bool {
        let alike = usize::from(self.layers.saturating_sub(self.dense));
        let is_whole = self.lost.is_none() && !self.has_shared;
        let is_plain = self.autotuned.is_none() || self.pattern.len() == 1;
        // Where layers differ, what is more in each is at another place of each.
        let is_plain =
            is_plain && (self.extras.is_empty() || self.dense == 0 && self.pattern.len() == 1);
        is_whole && is_plain && alike >= 4 * self.pattern.len() && alike >= 8
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let model = (
        prop_oneof![1 => 2_u16..8, 4 => 8_u16..40],
        prop_oneof![3 => Just(0_u16), 1 => 1_u16..4],
        prop::collection::vec(0_u8..3, 1..6),
        prop::array::uniform5(any::<bool>()),
        prop::collection::vec((0_usize..64, 0_usize..EXTRAS.len()), 0..4),
        prop::option::of((0_u16..64, 0_usize..4)),
    );
    let run = (
        prop::collection::vec(prop_oneof![3 => Just(32_u32), 1 => Just(8_u32)], 1..3),
        prop::option::of((0.0..1.0_f64, 0_usize..64)),
        0_u64..200,
        any::<u64>(),
    );
    (model, run).prop_map(|(model, run)| {
        let (layers, dense, pattern, has, extras, autotuned) = model;
        let (steps, lost, jitter, seed) = run;
        let [has_experts, has_own_norms, has_post_norms, has_shared, is_parallel] = has;
        Shape {
            layers,
            dense,
            pattern,
            has_experts,
            has_own_norms,
            has_post_norms,
            has_shared,
            is_parallel,
            extras,
            autotuned,
            steps,
            lost,
            jitter,
            seed,
        }
    })
}

proptest! {
    // The search itself is tried by more in `sequence/random.rs`.
    #![proptest_config(brickscope_testing::cases(24))]

    #[test]
    fn no_kernel_of_any_model_has_a_wrong_layer(shape in shapes()) {
        let recorded = shape.recording().record();
        let options = Options::default();
        let profile = read(&recorded.trace, Path::new("a.file"), Format::Chrome, &options)
            .expect("it is a trace");
        prop_assert_eq!(profile.check(), Ok(()));
        let compared = compared(&profile, &recorded.truth, all);
        let wrong = compared.wrong.len();
        prop_assert!(wrong == 0, "{wrong} wrong: {:#?}", compared.wrong.first());
        if shape.is_clean() {
            let share = compared.share();
            prop_assert!(share >= 0.95, "{share}: {:?}", graph_layers(&profile));
        }
    }
}
