//! Which layer, and which expert of a mixture, the name of a range states.

use super::table::LISTS;

/// What a layer or a list of them is called in any case of letters, after none or one of [`KINDS`].
const WORDS: [&str; 5] = ["layers", "layer", "blocks", "block", "blk"];

/// What such a name may have before it: `TransformerLayer`, `LlamaDecoderLayer`, `encoder_layers`.
const KINDS: [&str; 3] = ["transformer", "decoder", "encoder"];

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

/// The layer that a name states: 3 of `model.layers.3.mlp`, `model/layers_3/attn`, `TransformerLayer.3` and `layer 3`.
pub(super) fn layer_of_range(name: &str) -> Option<u16> {
    // Most names have no number, and each look costs.
    if !name.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut before = "";
    for part in name.split(['.', '/']) {
        let of_list = if is_list(before) { number(part) } else { None };
        if let Some(layer) = of_list.or_else(|| layer_of_part(part)) {
            return Some(layer);
        }
        before = part;
    }
    None
}

/// The layer that a part of a name states alone: 3 of `layers_3`, `Layer3` and `layer#3`.
fn layer_of_part(part: &str) -> Option<u16> {
    let is_digit = |at: usize| part.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let mut begins = (1..part.len()).filter(|&at| is_digit(at) && !is_digit(at - 1));
    begins.find_map(|at| {
        let (front, behind) = part.split_at(at);
        let is_layer = match front.strip_suffix(['_', '[']) {
            Some(word) => is_list(word),
            // A block may be one of tokens or of memory, and what stands behind `layers` may be how many there are.
            None => {
                let word = front.strip_suffix([' ', '#', '-']).unwrap_or(front);
                is_list(word) && without(word, "layer").is_some()
            }
        };
        if is_layer { number(behind) } else { None }
    })
}

/// Whether a word is what layers are called. Words that merely begin or end so, such as `layernorm`, aren't.
fn is_list(word: &str) -> bool {
    LISTS.contains(&word)
        || WORDS.iter().filter_map(|list| without(word, list)).any(|kind| {
            let kind = kind.strip_suffix(['_', ' ']).unwrap_or(kind);
            kind.is_empty() || KINDS.iter().any(|known| without(kind, known).is_some())
        })
}

/// `text` without its `end`, whatever the case of its letters.
fn without<'t>(text: &'t str, end: &str) -> Option<&'t str> {
    let at = text.len().checked_sub(end.len())?;
    let is_end = text.get(at..)?.eq_ignore_ascii_case(end);
    if is_end { text.get(..at) } else { None }
}

/// The number that `text` begins with. None of a range of numbers, and none with letters behind it.
fn number(text: &str) -> Option<u16> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut behind = text[end..].chars();
    let (first, second) = (behind.next(), behind.next());
    let is_whole =
        first.is_none_or(|c| !c.is_alphanumeric()) && second.is_none_or(|c| !c.is_ascii_digit());
    text[..end].parse().ok().filter(|_| is_whole)
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
    fn the_index_behind_the_word_layer_is_one() {
        for (name, layer) in [
            ("model.layers.13.self_attn.q_proj", Some(13)),
            ("h.0", Some(0)),
            ("encoder.block.3.layer.1.mlp", Some(3)),
            ("layer_3", Some(3)),
            ("layer 3", Some(3)),
            ("Layer 3: attention", Some(3)),
            ("Layer3", Some(3)),
            ("layer#3", Some(3)),
            ("layer-3", Some(3)),
            ("layers[3]", Some(3)),
            ("model/layers_3/attn", Some(3)),
            ("/model/layers.3/self_attn/MatMul", Some(3)),
            ("transformer/h/3/attn", Some(3)),
            ("TransformerLayer.3", Some(3)),
            ("Qwen2DecoderLayer_3", Some(3)),
            ("transformer_blocks.3.attn", Some(3)),
            ("decoder layer 3", Some(3)),
            ("layer_3_attn", Some(3)),
            ("blk.3.attn_q", Some(3)),
            ("h_3", Some(3)),
            // Of others, of several, and of words that have a number or `layer` in them.
            ("layers.x.1", None),
            ("layers.99999", None),
            ("layers.-1", None),
            ("layer_norm_1", None),
            ("layernorm2", None),
            ("LayerNorm.1", None),
            ("sublayer.1", None),
            ("player 3", None),
            ("block_size_128", None),
            ("block 5", None),
            ("h3", None),
            ("layers 32", None),
            ("layers32", None),
            ("layers_0-15", None),
            ("layer 0-15", None),
            ("layer3x", None),
            ("32 layers", None),
            ("step_3", None),
            ("layer_", None),
            ("layer", None),
            ("3", None),
            ("é3", None),
            ("", None),
        ] {
            assert_eq!(layer_of_range(name), layer, "{name}");
        }
    }

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
