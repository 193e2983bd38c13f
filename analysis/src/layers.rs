//! Layers on the devices of another program's trace: how they are known, what they take, and which one is slow.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use brickscope_profile::name::NameIdx;
use brickscope_profile::{BrickCategory, GraphLayersBy, Phase, Profile};
use serde::Serialize;

use crate::passes::Whole;
use crate::ran::{self, Ran};
use crate::ranks::is_together;

/// The layers of a phase's passes on a device. All times are sums of what kernels took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceLayers {
    /// The device: an index into `devices`.
    pub device: usize,
    /// The phase.
    pub phase: Phase,
    /// What tells the layers of kernels inside of graphs; `None` if ranges around the launches tell all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<GraphLayersBy>,
    /// How many layers there are.
    pub layers: usize,
    /// The passes in which they have times.
    pub passes: usize,
    /// What kernels of layers took.
    pub in_layers_ns: u64,
    /// How long at least one of them ran: what ran on several streams at once counts once. `None` if that isn't known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_layers_ran_ns: Option<u64>,
    /// What shares of it are of: see `is_of_busy_time`.
    pub of_ns: u64,
    /// Whether that is the time in which the device was busy: it did nothing for more than half of the time from its first
    /// kernel to its last. Else it is all of that time.
    pub is_of_busy_time: bool,
    /// What the bricks in layers took, the longest first.
    pub bricks: Vec<BrickOfLayers>,
    /// The same of what is in no layer.
    pub outside: Vec<BrickOfLayers>,
    /// Layers with the same bricks, those with most layers first.
    pub kinds: Vec<KindOfLayers>,
    /// One that takes much longer than others of its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowOne>,
    /// How many layers of passes have times: as many as layers times passes, if none lacks any.
    pub layers_of_passes: usize,
}

/// A brick in all layers together, or outside of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrickOfLayers {
    /// Its name.
    pub brick: String,
    /// What it took in all passes.
    pub ns: u64,
    /// How long it ran on at least one stream. `None` if that isn't known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_ns: Option<u64>,
    /// How often it ran.
    pub spans: u64,
    /// How often it ran in each layer of each pass, if that is the same in all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_a_layer: Option<u64>,
}

/// Layers that have the same bricks, as many times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KindOfLayers {
    /// Which.
    pub layers: Vec<u16>,
    /// What one of them takes in a pass, without what ranks do together: the median.
    pub median_ns: u64,
}

/// A layer that takes much longer than others of its kind, in most passes. What ranks do together isn't counted, since it
/// includes waits for other ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlowOne {
    /// The layer.
    pub layer: u16,
    /// What it takes: the median over the passes in which it was compared.
    pub takes_ns: u64,
    /// What the median layer of its kind takes, likewise.
    pub others_ns: u64,
    /// The brick that takes most more there.
    pub brick: String,
    /// What that takes there.
    pub brick_ns: u64,
    /// What it takes in the median layer of the kind.
    pub brick_of_others_ns: u64,
    /// In how many passes it was slow.
    pub slow_in: usize,
    /// In how many it was compared.
    pub passes: usize,
    /// How many more layers are slow.
    pub more: usize,
}

/// So many times as long as the median of its kind is slow.
const SLOW: f64 = 1.3;
/// With fewer layers of a kind, none is an exception.
const LEAST_LAYERS: usize = 4;
/// Where one of so many layers is slow, that is how the model is made: layers that attend to all tokens among others that
/// attend to a window come back after as many at most.
const MOST_TURNS: usize = 12;
/// Where there are so few layers before and behind it, one that attends to all tokens may be the only one.
const MOST_ATTENTION_TURNS: usize = 8;

/// A brick in a layer of a pass.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    ns: u64,
    spans: u64,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
        self.spans += 1;
    }
}

/// The bricks of a layer in a pass.
type Bricks = BTreeMap<NameIdx, Sum>;

impl DeviceLayers {
    /// Those of a device and a phase. `None` for devices of our own runs, which say it by themselves, and where no kernel has
    /// a layer.
    #[must_use]
    pub fn of(profile: &Profile, index: usize, phase: Phase) -> Option<Self> {
        let imported = profile.imported.as_ref()?;
        let device = profile.devices.get(index).filter(|device| !device.includes_waits)?;
        let passes = device.streams.iter().flat_map(|stream| &stream.passes);
        let passes: HashSet<u32> =
            passes.filter(|pass| pass.phase == phase).map(|pass| pass.serial).collect();
        let mut outside = Bricks::new();
        let mut rows: BTreeMap<(u32, u16), Bricks> = BTreeMap::new();
        for span in device.streams.iter().flat_map(|stream| &stream.spans) {
            let pass = span.pass.filter(|serial| passes.contains(serial));
            // As `DeviceProfile::busy` counts.
            let (Some(pass), Some(name), 1..) = (pass, span.name, span.exclusive_ns) else {
                continue;
            };
            let bricks = match span.layer {
                Some(layer) => rows.entry((pass, layer)).or_default(),
                None => &mut outside,
            };
            bricks.entry(name).or_default().add(span.exclusive_ns);
        }
        if rows.is_empty() {
            return None;
        }
        let whole = Whole::of(device, phase)?;
        let mut all = Bricks::new();
        for (&name, sum) in rows.values().flatten() {
            let of = all.entry(name).or_default();
            (of.ns, of.spans) = (of.ns.saturating_add(sum.ns), of.spans + sum.spans);
        }
        // Each in layers, or outside.
        let ran = ran::by(profile, device, phase, |span, _| (span.layer.is_some(), span.name));
        let in_layers = ran.iter().filter(|&(&(is_in_layer, _), _)| is_in_layer);
        let known = imported.graph_layers.as_ref().filter(|of| of.kernels > 0);
        let layers: BTreeSet<u16> = rows.keys().map(|&(_, layer)| layer).collect();
        let of_passes: BTreeSet<u32> = rows.keys().map(|&(pass, _)| pass).collect();
        Some(Self {
            device: index,
            phase,
            by: known.map(|of| of.by),
            layers: layers.len(),
            passes: of_passes.len(),
            in_layers_ns: all.values().fold(0, |sum, of| u64::saturating_add(sum, of.ns)),
            in_layers_ran_ns: Ran::any_of(in_layers.map(|(_, ran)| ran)).ns(),
            of_ns: whole.ns(),
            is_of_busy_time: whole.is_busy_time(),
            bricks: named(profile, &all, &rows, |name| ran.get(&(true, Some(name)))?.ns()),
            outside: named(profile, &outside, &BTreeMap::new(), |name| {
                ran.get(&(false, Some(name)))?.ns()
            }),
            kinds: kinds(profile, &rows),
            slow: slow(profile, &rows),
            layers_of_passes: rows.len(),
        })
    }

    /// Those of all devices, in the order of devices and phases.
    #[must_use]
    pub fn all(profile: &Profile) -> Vec<Self> {
        let devices = 0..profile.devices.len();
        let all = devices.flat_map(|index| Phase::SHOWN.map(|phase| (index, phase)));
        all.filter_map(|(index, phase)| Self::of(profile, index, phase)).collect()
    }

    /// A part of the time that shares are of, 0 to 1.
    #[must_use]
    pub fn share(&self, ns: u64) -> f64 {
        if self.of_ns > 0 { ns as f64 / self.of_ns as f64 } else { 0.0 }
    }

    /// How often a brick runs in each layer, if it is as often in all of them.
    #[must_use]
    pub fn times_a_layer(&self, brick: &str) -> Option<u64> {
        self.bricks.iter().find(|of| of.brick == brick)?.times_a_layer
    }

    /// Whether layers have something that ranks do together, which is in no time of a layer.
    #[must_use]
    pub fn has_collectives(&self) -> bool {
        self.bricks.iter().any(|of| is_together(&of.brick))
    }
}

/// A layer without what ranks do together.
fn own(profile: &Profile, bricks: &Bricks) -> Bricks {
    let own = bricks.iter().filter(|&(&name, _)| !is_together(name_of(profile, name)));
    own.map(|(&name, &sum)| (name, sum)).collect()
}

/// How often a brick runs in each of these layers, if it is as often in all of them.
fn times_a_layer(rows: &BTreeMap<(u32, u16), Bricks>, name: NameIdx) -> Option<u64> {
    let mut times = rows.values().map(|bricks| bricks.get(&name).map_or(0, |sum| sum.spans));
    let first = times.next()?;
    times.all(|n| n == first).then_some(first)
}

/// With their names, the longest first. `rows` are the layers that they are in.
fn named(
    profile: &Profile,
    bricks: &Bricks,
    rows: &BTreeMap<(u32, u16), Bricks>,
    ran_ns: impl Fn(NameIdx) -> Option<u64>,
) -> Vec<BrickOfLayers> {
    let mut all: Vec<BrickOfLayers> = bricks
        .iter()
        .map(|(&name, sum)| BrickOfLayers {
            brick: name_of(profile, name).to_owned(),
            ns: sum.ns,
            ran_ns: ran_ns(name),
            spans: sum.spans,
            times_a_layer: times_a_layer(rows, name),
        })
        .collect();
    all.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.brick.cmp(&b.brick)));
    all
}

fn name_of(profile: &Profile, name: NameIdx) -> &str {
    profile.names.get(usize::from(name)).map_or("", |of| &of.name)
}

/// Which bricks a layer has, and how often each.
type Signature = Vec<(NameIdx, u64)>;

fn signature(bricks: &Bricks) -> Signature {
    bricks.iter().map(|(&name, sum)| (name, sum.spans)).collect()
}

fn sum_of(bricks: &Bricks) -> u64 {
    bricks.values().fold(0, |sum, of| u64::saturating_add(sum, of.ns))
}

fn kinds(profile: &Profile, rows: &BTreeMap<(u32, u16), Bricks>) -> Vec<KindOfLayers> {
    let mut all: BTreeMap<Signature, (BTreeSet<u16>, Vec<u64>)> = BTreeMap::new();
    for (&(_, layer), bricks) in rows {
        let (layers, times) = all.entry(signature(bricks)).or_default();
        layers.insert(layer);
        times.push(sum_of(&own(profile, bricks)));
    }
    let mut kinds: Vec<KindOfLayers> = all
        .into_values()
        .map(|(layers, times)| KindOfLayers {
            layers: layers.into_iter().collect(),
            median_ns: median(times),
        })
        .collect();
    kinds.sort_by(|a, b| b.layers.len().cmp(&a.layers.len()).then(a.layers.cmp(&b.layers)));
    kinds
}

/// What is known of a layer beside others of its kind, over the passes.
#[derive(Default)]
struct Compared {
    slow_in: usize,
    /// What it takes in each pass, and what the median one does.
    takes_ns: Vec<u64>,
    others_ns: Vec<u64>,
    /// The same of each of its bricks.
    bricks: BTreeMap<NameIdx, (Vec<u64>, Vec<u64>)>,
    /// How many layers its kind has, and its place among them, where it was compared last.
    of: usize,
    place: usize,
}

/// The slow layer that takes most more than others of its kind.
fn slow(profile: &Profile, rows: &BTreeMap<(u32, u16), Bricks>) -> Option<SlowOne> {
    let mut kinds: BTreeMap<(u32, Signature), Vec<(u16, Bricks)>> = BTreeMap::new();
    for (&(pass, layer), bricks) in rows {
        kinds.entry((pass, signature(bricks))).or_default().push((layer, own(profile, bricks)));
    }
    let mut compared: HashMap<u16, Compared> = HashMap::new();
    let mut widest = 0;
    for kind in kinds.into_values().filter(|kind| kind.len() >= LEAST_LAYERS) {
        compare(&kind, &mut compared);
        widest = widest.max(kind.len());
    }
    let mut slow: Vec<(u16, Compared)> =
        compared.into_iter().filter(|(_, of)| 2 * of.slow_in > of.takes_ns.len()).collect();
    if slow.len() > 1 && slow.len() * MOST_TURNS >= widest {
        return None;
    }
    let more = slow.len().checked_sub(1)?;
    slow.sort_by_key(|(layer, of)| (std::cmp::Reverse(of.excess_ns()), *layer));
    let (layer, of) = slow.into_iter().next()?;
    let (brick, brick_ns, brick_of_others_ns) = of.brick()?;
    let is_attention = profile.names.get(usize::from(brick)).and_then(|name| name.brick_category())
        == Some(BrickCategory::Attention);
    let before_or_after = of.place.max(of.of.saturating_sub(of.place + 1));
    if is_attention && before_or_after < MOST_ATTENTION_TURNS {
        return None;
    }
    Some(SlowOne {
        layer,
        slow_in: of.slow_in,
        passes: of.takes_ns.len(),
        takes_ns: median(of.takes_ns),
        others_ns: median(of.others_ns),
        brick: name_of(profile, brick).to_owned(),
        brick_ns,
        brick_of_others_ns,
        more,
    })
}

impl Compared {
    fn excess_ns(&self) -> u64 {
        median(self.takes_ns.clone()).saturating_sub(median(self.others_ns.clone()))
    }

    /// The brick that takes most more than elsewhere, with both medians.
    fn brick(&self) -> Option<(NameIdx, u64, u64)> {
        let all = self
            .bricks
            .iter()
            .map(|(&name, (takes, others))| (name, median(takes.clone()), median(others.clone())));
        all.max_by_key(|&(name, takes, others)| {
            (takes.saturating_sub(others), std::cmp::Reverse(name))
        })
    }
}

/// Each layer of a kind in a pass beside the median one.
fn compare(kind: &[(u16, Bricks)], compared: &mut HashMap<u16, Compared>) {
    let others_ns = median(kind.iter().map(|(_, bricks)| sum_of(bricks)).collect());
    // All have the same bricks.
    let mut by_brick: BTreeMap<NameIdx, Vec<u64>> = BTreeMap::new();
    for (&name, sum) in kind.iter().flat_map(|(_, bricks)| bricks) {
        by_brick.entry(name).or_default().push(sum.ns);
    }
    let by_brick: BTreeMap<NameIdx, u64> =
        by_brick.into_iter().map(|(name, times)| (name, median(times))).collect();
    for (place, (layer, bricks)) in kind.iter().enumerate() {
        let takes_ns = sum_of(bricks);
        let of = compared.entry(*layer).or_default();
        of.slow_in += usize::from(takes_ns as f64 > SLOW * others_ns as f64);
        of.takes_ns.push(takes_ns);
        of.others_ns.push(others_ns);
        (of.of, of.place) = (kind.len(), place);
        for (&name, sum) in bricks {
            let (takes, others) = of.bricks.entry(name).or_default();
            takes.push(sum.ns);
            others.push(by_brick.get(&name).copied().unwrap_or(0));
        }
    }
}

/// The median, or the mean of the two in the middle; 0 of nothing.
fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    let upper = all.get(all.len() / 2).copied().unwrap_or(0);
    match all.len() % 2 {
        1 => upper,
        _ => {
            let lower = (all.len() / 2).checked_sub(1).and_then(|at| all.get(at));
            lower.map_or(0, |&lower| u64::midpoint(lower, upper))
        }
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{Name, NameKind};

    use super::*;

    /// A profile with these names of bricks.
    fn names(names: &[&str]) -> Profile {
        let name = |name: &&str| Name {
            name: (*name).to_owned(),
            kind: NameKind::Brick,
            category: name.contains("Attention").then_some(BrickCategory::Attention),
            host: None,
            device: None,
            transfer: None,
        };
        Profile {
            names: names.iter().map(name).collect(),
            ..Profile::empty(brickscope_profile::ClockInfo::default())
        }
    }

    /// Layers in one pass each: what their bricks take.
    fn rows(passes: &[&[&[u64]]]) -> BTreeMap<(u32, u16), Bricks> {
        let mut rows = BTreeMap::new();
        for (pass, layers) in (1..).zip(passes) {
            for (layer, times) in (0..).zip(*layers) {
                let bricks: Bricks =
                    (0..).zip(*times).map(|(name, &ns)| (name, Sum { ns, spans: 1 })).collect();
                rows.insert((pass, layer), bricks);
            }
        }
        rows
    }

    #[test]
    fn the_slow_one_is_compared_with_layers_that_have_the_same_bricks() {
        let profile = names(&["Experts", "RmsNorm", "FlashAttention"]);
        // Every other layer has attention, too, and takes twice as long.
        let plain: &[u64] = &[100, 10];
        let wide: &[u64] = &[100, 10, 110];
        let turns = [plain, wide, plain, wide, plain, wide, plain, wide];
        assert_eq!(slow(&profile, &rows(&[&turns])), None);
        let mut with_slow = turns;
        with_slow[4] = &[170, 11];
        let found = slow(&profile, &rows(&[&with_slow])).expect("layer 4");
        assert_eq!((found.layer, found.takes_ns, found.others_ns), (4, 181, 110));
        let brick = (&*found.brick, found.brick_ns, found.brick_of_others_ns);
        assert_eq!(brick, ("Experts", 170, 100));
        // 1.3 times as long isn't more than 1.3 times.
        with_slow[4] = &[133, 10];
        assert_eq!(slow(&profile, &rows(&[&with_slow])), None);
    }

    #[test]
    fn the_median_of_layers_is_of_what_the_slow_one_is_of() {
        let profile = names(&["Experts", "AllReduce"]);
        let mut layers: [&[u64]; 6] = [&[100, 900]; 6];
        layers[2] = &[200, 50];
        let of = rows(&[&layers]);
        let kinds = kinds(&profile, &of);
        assert_eq!((kinds.len(), kinds[0].median_ns), (1, 100));
        let found = slow(&profile, &of).expect("layer 2");
        assert_eq!((found.layer, found.takes_ns, found.others_ns), (2, 200, 100));
    }

    #[test]
    fn kernels_a_layer_are_as_many_in_each() {
        let mut of = rows(&[&[&[100, 10], &[100, 10], &[100, 10]]]);
        assert_eq!([0, 1, 2].map(|name| times_a_layer(&of, name)), [Some(1), Some(1), Some(0)]);
        // Three layers with six kernels have not two each.
        for (layer, spans) in [(0, 4), (1, 1), (2, 1)] {
            let sum = of.get_mut(&(1, layer)).and_then(|bricks| bricks.get_mut(&0));
            sum.expect("it is there").spans = spans;
        }
        assert_eq!([0, 1].map(|name| times_a_layer(&of, name)), [None, Some(1)]);
        // Nor has a layer without the brick.
        of.get_mut(&(1, 2)).expect("it is there").remove(&1);
        assert_eq!(times_a_layer(&of, 1), None);
        assert_eq!(times_a_layer(&BTreeMap::new(), 1), None);
    }

    #[test]
    fn a_layer_that_is_slow_in_half_of_the_passes_or_less_is_not_named() {
        let profile = names(&["Experts"]);
        let even: [&[u64]; 6] = [&[100]; 6];
        let mut odd = even;
        odd[2] = &[190];
        assert_eq!(slow(&profile, &rows(&[&even, &odd])), None);
        let found = slow(&profile, &rows(&[&even, &odd, &odd])).expect("layer 2");
        assert_eq!((found.layer, found.slow_in, found.passes), (2, 2, 3));
        // One of another rank's waits isn't this layer's.
        let profile = names(&["AllReduce"]);
        assert_eq!(slow(&profile, &rows(&[&odd, &odd])), None);
    }

    #[test]
    fn layers_that_come_back_are_the_models_and_a_single_one_of_attention_may_be() {
        let profile = names(&["FlashAttention"]);
        const WIDE: &[u64] = &[300];
        const PLAIN: &[u64] = &[100];
        let of = |layers: usize, turns: usize| -> Vec<&'static [u64]> {
            (0..layers).map(|at| if at % turns == turns - 1 { WIDE } else { PLAIN }).collect()
        };
        for (layers, turns) in [(26, 6), (48, 6), (24, 12), (12, 8)] {
            assert_eq!(slow(&profile, &rows(&[&of(layers, turns)])), None, "{layers} {turns}");
        }
        assert!(slow(&profile, &rows(&[&of(20, 18)])).is_some());
    }
}
