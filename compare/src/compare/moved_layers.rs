//! In which layers a pass moved, and whether in all of them alike.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use brickscope_profile::Absent;
use serde::Serialize;

use super::counted::Counted;
use super::pairs::{MovedPart, Pairs, most_first, wall};
use super::{Test, UNATTRIBUTED};

/// What a pass moved by in its layers. These and what is in none of them add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MovedLayers {
    /// How the difference is spread over them; `None` where the test is neither slower nor faster, and where the runs don't
    /// tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<LayerSpread>,
    /// All of them together.
    pub in_layers: MovedPart,
    /// Each of them, in their order.
    pub layers: Vec<MovedLayer>,
    /// What is in none of them: bricks before and after them, and the time in no brick.
    pub outside: MovedLayer,
}

/// What a layer moved by.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MovedLayer {
    /// Which one; `None` for what is in none.
    pub layer: Option<u16>,
    /// All of it.
    #[serde(flatten)]
    pub whole: MovedPart,
    /// The bricks in it, those that moved most first.
    pub bricks: Vec<MovedPart>,
}

/// How a difference is spread over layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum LayerSpread {
    /// Together they moved by more than half of what the pass did, and each one did: none by less than half or by more than
    /// one and a half of the mean.
    Alike,
    /// A few layers moved by more than half of what the pass moved by.
    Most {
        /// Which: those that moved by at least half of what the one did that moved most.
        layers: Vec<u16>,
        /// The brick in them that moved by more than half of what they did, if one did.
        #[serde(skip_serializing_if = "Option::is_none")]
        brick: Option<String>,
    },
}

/// Of layers that moved alike, each did by so many times the mean.
const ALIKE: RangeInclusive<f64> = 0.5..=1.5;
/// One in so many layers is few, and no more than that are named.
const FEW: usize = 4;
const MOST_NAMED: usize = 8;

/// What a process took in each layer, and in none, by brick.
type Times<'t> = BTreeMap<Option<u16>, BTreeMap<&'t str, f64>>;

impl MovedLayers {
    /// Those of a test that moved by `whole_ns`. Only if it `is_moved`, slower or faster, there is a difference that can be
    /// spread. The error is why there are none, if that is worth telling.
    pub(super) fn of(
        pairs: &mut Pairs<'_>,
        counted: Counted,
        whole_ns: f64,
        is_moved: bool,
    ) -> Result<Self, Option<Absent>> {
        let times: Vec<[Times<'_>; 2]> = (0..pairs.len())
            .map(|nth| [0, 1].map(|side| times(pairs.test(nth, side), counted)))
            .collect();
        let has_layers = |side: usize| {
            !times.is_empty() && times.iter().all(|of| of[side].keys().any(Option::is_some))
        };
        let only = |side: &str| {
            let reason = format!("only the runs of {side} tell the layers of their bricks");
            Err(Some(Absent { reason }))
        };
        match [0, 1].map(has_layers) {
            [true, true] => {}
            [true, false] => return only("A"),
            [false, true] => return only("B"),
            [false, false] => return Err(None),
        }
        let kept = times[pairs.kept()].iter().flatten();
        let numbers: BTreeSet<u16> = kept.flat_map(BTreeMap::keys).flatten().copied().collect();
        if !is_moved {
            // What is in no layer is beside them.
            pairs.share_among(numbers.len() + 1);
        }
        let pairs = &*pairs;
        let layers: Vec<MovedLayer> =
            numbers.into_iter().map(|layer| of_layer(pairs, &times, layer)).collect();
        let in_layers = pairs.part("(in layers)", &|nth, side| Some(sum(&times[nth][side])));
        let spread = if is_moved { spread(&layers, &in_layers, whole_ns) } else { None };
        let outside = outside(pairs, &times);
        Ok(Self { spread, in_layers, layers, outside })
    }
}

fn times(test: &Test, counted: Counted) -> Times<'_> {
    let mut times = Times::new();
    for cell in &test.inside.cells {
        let Some(brick) = test.bricks.get(cell.brick) else { continue };
        let ns = times.entry(cell.layer).or_default().entry(brick.name.as_str()).or_default();
        *ns += test.inside.mean(cell.ns, counted);
    }
    times
}

/// What is in layers.
fn sum(times: &Times<'_>) -> f64 {
    let layers = times.iter().filter(|(layer, _)| layer.is_some());
    layers.flat_map(|(_, bricks)| bricks.values()).sum()
}

fn of_layer(pairs: &Pairs<'_>, times: &[[Times<'_>; 2]], layer: u16) -> MovedLayer {
    let of = |nth: usize, side: usize| times[nth][side].get(&Some(layer));
    let name = format!("layer {layer}");
    let took = |nth: usize, side: usize| Some(of(nth, side)?.values().sum::<f64>());
    let whole = pairs.part(&name, &took);
    MovedLayer { layer: Some(layer), whole, bricks: bricks(pairs, times, Some(layer)) }
}

/// The bricks in a layer, or in none.
fn bricks(pairs: &Pairs<'_>, times: &[[Times<'_>; 2]], layer: Option<u16>) -> Vec<MovedPart> {
    let of = |nth: usize, side: usize| times[nth][side].get(&layer);
    let kept = times[pairs.kept()].iter().flatten().filter_map(|of| of.get(&layer));
    let names: BTreeSet<&str> = kept.flat_map(BTreeMap::keys).copied().collect();
    let part = |name: &str| pairs.part(name, &|nth, side| of(nth, side)?.get(name).copied());
    let mut parts: Vec<MovedPart> = names.into_iter().map(part).collect();
    most_first(&mut parts);
    parts
}

fn outside(pairs: &Pairs<'_>, times: &[[Times<'_>; 2]]) -> MovedLayer {
    let whole = pairs.part("(in no layer)", &|nth, side| {
        Some(wall(pairs.test(nth, side)) - sum(&times[nth][side]))
    });
    let mut bricks = bricks(pairs, times, None);
    if pairs.tests().all(|test| !test.unattributed_ns.is_empty()) {
        bricks.push(pairs.part(UNATTRIBUTED, &|nth, side| {
            pairs.test(nth, side).unattributed_ns.first().map(|&ns| ns as f64)
        }));
    }
    most_first(&mut bricks);
    MovedLayer { layer: None, whole, bricks }
}

/// Whether all layers moved alike, or most is in few of them. Of either, each layer that is meant has to have moved by its own
/// interval, so noise is never spread.
fn spread(layers: &[MovedLayer], in_layers: &MovedPart, whole_ns: f64) -> Option<LayerSpread> {
    let sign = whole_ns.signum();
    let has_moved = |of: &MovedPart| {
        of.interval_ns.is_some_and(|[low, high]| (low * sign).min(high * sign) > 0.0)
    };
    if layers.len() < 2 || in_layers.moved_ns * sign <= 0.0 {
        return None;
    }
    let is_most = |ns: f64| 2.0 * ns > whole_ns * sign;
    let mean = in_layers.moved_ns / layers.len() as f64;
    let is_alike = |of: &MovedPart| {
        let is_on_both = of.a_ns.is_some() && of.b_ns.is_some();
        is_on_both && has_moved(of) && ALIKE.contains(&(of.moved_ns / mean))
    };
    if is_most(in_layers.moved_ns * sign) && layers.iter().all(|of| is_alike(&of.whole)) {
        return Some(LayerSpread::Alike);
    }
    let moved = |of: &MovedLayer| of.whole.moved_ns * sign;
    let most = layers.iter().map(moved).fold(0.0, f64::max);
    let named: Vec<&MovedLayer> = layers.iter().filter(|of| 2.0 * moved(of) >= most).collect();
    let named_ns: f64 = named.iter().map(|of| moved(of)).sum();
    let is_few = named.len() <= (layers.len() / FEW).clamp(1, MOST_NAMED);
    if !is_few || !is_most(named_ns) || !named.iter().all(|of| has_moved(&of.whole)) {
        return None;
    }
    let mut bricks: BTreeMap<&str, f64> = BTreeMap::new();
    for part in named.iter().flat_map(|of| &of.bricks) {
        *bricks.entry(part.name.as_str()).or_default() += part.moved_ns * sign;
    }
    // Where others became faster, several may have more than half.
    let brick = bricks.into_iter().max_by(|x, y| x.1.total_cmp(&y.1));
    let brick = brick.filter(|&(_, ns)| 2.0 * ns > named_ns);
    Some(LayerSpread::Most {
        layers: named.iter().filter_map(|of| of.layer).collect(),
        brick: brick.map(|(name, _)| name.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_bricks_that_moved_both_ways_the_one_that_moved_most_is_named() {
        let part = |name: &str, moved_ns: f64| MovedPart {
            name: name.to_owned(),
            a_ns: Some(100.0),
            b_ns: Some(100.0 + moved_ns),
            moved_ns,
            interval_ns: Some([moved_ns - 1.0, moved_ns + 1.0]),
        };
        let layer = |layer: u16, bricks: [f64; 3]| {
            let named = ["Attention", "Down", "Gate"].into_iter().zip(bricks);
            MovedLayer {
                layer: Some(layer),
                whole: part("layer", bricks.iter().sum()),
                bricks: named.map(|(name, ns)| part(name, ns)).collect(),
            }
        };
        let mut layers = vec![layer(0, [60.0, 120.0, -80.0])];
        layers.extend((1..8).map(|nth| layer(nth, [0.0; 3])));
        let brick = Some("Down".to_owned());
        let most = LayerSpread::Most { layers: vec![0], brick };
        assert_eq!(spread(&layers, &part("(in layers)", 100.0), 100.0), Some(most));
    }
}
