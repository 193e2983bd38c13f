//! The products of weights in a prefill pass, by the format of the weights.

use brickscope_profile::{BrickId, Model};

use super::facts::PhaseFacts;
use crate::roofline::{Bound, Standing};

/// Which tensors a brick multiplies by.
const TENSORS: [(BrickId, &[&str]); 5] = [
    (BrickId::QkvProjection, &["attn_q", "attn_k", "attn_v", "attn_qkv"]),
    (BrickId::OutputProjection, &["attn_output"]),
    (BrickId::GateProjection, &["ffn_gate"]),
    (BrickId::UpProjection, &["ffn_up"]),
    (BrickId::DownProjection, &["ffn_down"]),
];

/// A brick that multiplies all tokens of a pass by weights; so not the head, which multiplies the last one.
#[derive(Debug)]
pub(super) struct Product<'f> {
    pub(super) name: &'f str,
    /// The format of its weights, if they have only one and it is known.
    pub(super) format: Option<&'f str>,
    pub(super) place: &'f Standing,
    /// Its time, FLOPs and bytes in a pass.
    pub(super) ns: f64,
    pub(super) flops: f64,
    pub(super) bytes: f64,
    /// Of these, weights.
    pub(super) weights: f64,
    /// What it could take at best.
    pub(super) least_ns: f64,
}

impl Product<'_> {
    /// FLOPs per second.
    pub(super) fn rate(&self) -> f64 {
        self.flops / self.ns * 1e9
    }

    pub(super) fn is_bound_by(&self, bound: Bound) -> bool {
        self.place.bound == bound
    }
}

/// The products of a phase, with a known place under the roof.
pub(super) fn products<'f>(of: &'f PhaseFacts<'_>, model: Option<&'f Model>) -> Vec<Product<'f>> {
    let Ok(roofline) = &of.roofline else { return Vec::new() };
    let stats = of.bricks();
    let product = |brick: &'f crate::roofline::RooflineBrick| {
        let (_, tensors) = TENSORS.iter().find(|(id, _)| id.name() == brick.name)?;
        let place = brick.place.as_ref()?;
        let sums = stats.iter().find(|total| total.stats.name == brick.name)?;
        let a_pass = |sum: u64| sum as f64 / of.passes;
        let (ns, flops) = (a_pass(brick.total_ns), a_pass(brick.flops?));
        let above_ns = place.us_to_roof * 1e3 * brick.spans as f64 / of.passes;
        (ns > 0.0 && flops > 0.0).then(|| Product {
            name: &brick.name,
            format: model.and_then(|model| format(model, tensors)),
            place,
            ns,
            flops,
            bytes: a_pass(brick.bytes.unwrap_or(0)),
            weights: a_pass(sums.stats.data.weights),
            least_ns: (ns - above_ns).max(0.0),
        })
    };
    roofline.bricks.iter().filter_map(product).collect()
}

fn format<'m>(model: &'m Model, tensors: &[&str]) -> Option<&'m str> {
    let groups = model.weights.iter();
    let mut groups =
        groups.filter(|group| group.is_matrix && tensors.contains(&group.name.as_str()));
    let first = groups.next()?.format.as_str();
    groups.all(|group| group.format == first).then_some(first)
}
