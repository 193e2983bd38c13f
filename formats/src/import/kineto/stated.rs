//! Which layer, and which expert of a mixture, the name of a range states.

use super::table::layer_of_range;

/// What a name states: the layer, and the expert in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stated {
    pub(super) layer: Option<u16>,
    pub(super) expert: Option<u32>,
}

impl Stated {
    /// By the name of a range.
    pub(super) fn by(name: &str) -> Self {
        Self { layer: layer_of_range(name), expert: expert_of_range(name) }
    }

    /// What is stated inside of what is stated around it. The name of another layer ends the expert around.
    pub(super) fn inside(self, around: Self) -> Self {
        let is_other = self.layer.is_some() && self.layer != around.layer;
        let outer = around.expert.filter(|_| !is_other);
        Self { layer: self.layer.or(around.layer), expert: self.expert.or(outer) }
    }
}

/// The expert that a dotted name states: 17 of `model.layers.3.mlp.experts.17.gate_proj`, and of `mlp.experts.expert_17`.
/// Those of `local_experts` are numbered anew on each rank, so they are none of the model's.
fn expert_of_range(name: &str) -> Option<u32> {
    let parts = name.split('.').zip(name.split('.').skip(1));
    let number = |part: &str| {
        let digits = part.strip_prefix("expert_").unwrap_or(part);
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|_| is_number)
    };
    parts.filter(|(list, _)| *list == "experts").find_map(|(_, part)| number(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_behind_experts_is_one() {
        for (name, expert) in [
            ("model.layers.3.mlp.experts.17.gate_proj", Some(17)),
            ("model.layers.3.block_sparse_moe.experts.0", Some(0)),
            ("experts.5", Some(5)),
            ("encoder.block.3.layer.1.mlp.experts.expert_12.wi", Some(12)),
            // One kernel for all of them, or others than those that a router chooses between.
            ("model.layers.3.mlp.experts", None),
            ("model.layers.3.mlp.experts.gate_up_proj", None),
            ("model.layers.3.mlp.shared_experts.0", None),
            ("decoder.layers.3.mlp.experts.local_experts.0.linear_fc1", None),
            ("layers.3.mlp.experts.-1", None),
            ("layers.3.mlp.experts.+1", None),
            ("layers.3.mlp.experts.", None),
            ("layers.3.mlp.experts.99999999999", None),
        ] {
            assert_eq!(expert_of_range(name), expert, "{name}");
        }
    }

    #[test]
    fn another_layer_ends_an_expert() {
        let of = |layer, expert| Stated { layer, expert };
        let expert = Stated::by("layers.3.mlp.experts.17");
        assert_eq!(expert, of(Some(3), Some(17)));
        for (name, is) in [
            ("silu", of(Some(3), Some(17))),
            ("layers.3.mlp.experts.17.w1", of(Some(3), Some(17))),
            ("layers.4.input_layernorm", of(Some(4), None)),
            ("experts.18", of(Some(3), Some(18))),
        ] {
            assert_eq!(Stated::by(name).inside(expert), is, "{name}");
        }
    }
}
