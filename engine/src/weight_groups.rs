//! The weights of a model file by tensor and format.

use std::collections::HashMap;

use brickscope::WeightGroup;

use crate::gguf::{Directory, TensorInfo, TensorType};

/// The tensors of a file by their names without the layer, and by format; those with the most bytes first. A file with
/// more groups than a profile keeps has a last one for all others.
#[must_use]
pub fn weight_groups(file: &Directory) -> Vec<WeightGroup> {
    let mut groups: Vec<WeightGroup> = Vec::new();
    let mut known: HashMap<(&str, TensorType, bool), usize> = HashMap::new();
    for tensor in &file.tensors {
        let key = (role(&tensor.name), tensor.kind, is_matrix(tensor));
        let at = *known.entry(key).or_insert_with(|| {
            groups.push(WeightGroup {
                name: key.0.to_owned(),
                format: tensor.kind.name().to_lowercase(),
                is_matrix: key.2,
                ..WeightGroup::default()
            });
            groups.len() - 1
        });
        let (parameters, bytes) = (tensor.n_elements() as u64, tensor.n_bytes as u64);
        add(&mut groups[at], 1, parameters, bytes);
    }
    groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    if groups.len() > WeightGroup::MOST {
        let rest = groups.split_off(WeightGroup::MOST - 1);
        let mut others = WeightGroup { name: "(others)".to_owned(), ..WeightGroup::default() };
        rest.iter().for_each(|of| add(&mut others, of.tensors, of.parameters, of.bytes));
        groups.push(others);
    }
    groups
}

/// The format of most of a file's weights, in lower case, such as `q4_k`: without the embedding, if there is a head of its
/// own. Empty without weights.
#[must_use]
pub fn quantization(file: &Directory) -> String {
    let has_head = file.tensors.iter().any(|tensor| tensor.name == "output.weight");
    let counts = |name: &str| !(has_head && name == "token_embd.weight");
    let mut elements: Vec<(TensorType, usize)> = Vec::new();
    for tensor in file.tensors.iter().filter(|tensor| counts(&tensor.name)) {
        match elements.iter_mut().find(|(kind, _)| *kind == tensor.kind) {
            Some((_, n)) => *n = n.saturating_add(tensor.n_elements()),
            None => elements.push((tensor.kind, tensor.n_elements())),
        }
    }
    let most = elements.into_iter().max_by_key(|&(_, n)| n);
    most.map_or_else(String::new, |(kind, _)| kind.name().to_lowercase())
}

fn add(group: &mut WeightGroup, tensors: u64, parameters: u64, bytes: u64) {
    for (sum, more) in [
        (&mut group.tensors, tensors),
        (&mut group.parameters, parameters),
        (&mut group.bytes, bytes),
    ] {
        *sum = sum.saturating_add(more);
    }
}

/// `blk.3.ffn_down.weight` is `ffn_down`.
fn role(name: &str) -> &str {
    let in_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let name = in_layer.filter(|(layer, _)| is_number(layer)).map_or(name, |(_, role)| role);
    name.strip_suffix(".weight").unwrap_or(name)
}

fn is_matrix(tensor: &TensorInfo) -> bool {
    tensor.n_rows() > 1
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::gguf::Gguf;

    #[test]
    fn tensors_of_all_layers_are_a_group() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf");
        let file = Gguf::open(&path).expect("the fixture");
        let groups = weight_groups(&file);
        let layers = groups.iter().find(|group| group.name == "ffn_down").expect("layers have it");
        assert_eq!((layers.format.as_str(), layers.is_matrix), ("q8_0", true));
        assert!((layers.bits().expect("weights") - 8.5).abs() < 1e-9);
        let norms = groups.iter().find(|group| group.name == "ffn_norm").expect("norms");
        assert_eq!((norms.format.as_str(), norms.is_matrix), ("f32", false));
        assert_eq!(norms.tensors, layers.tensors);
        let bytes = |of: u64| file.tensors.iter().map(|t| t.n_bytes as u64).sum::<u64>() == of;
        assert!(bytes(groups.iter().map(|group| group.bytes).sum()));
        assert!(groups.is_sorted_by(|a, b| a.bytes >= b.bytes));
    }

    #[test]
    fn the_role_is_what_all_layers_share() {
        for (name, is) in [
            ("blk.12.attn_q.weight", "attn_q"),
            ("blk.0.attn_q.bias", "attn_q.bias"),
            ("output.weight", "output"),
            ("blk.x.attn_q.weight", "blk.x.attn_q"),
            ("blk.1", "blk.1"),
            ("", ""),
        ] {
            assert_eq!(role(name), is);
        }
    }
}
