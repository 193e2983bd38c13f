//! Which weights a pass reads, and how many bytes fewer they would have in a smaller format.

use brickscope_profile::text::printable;
use brickscope_profile::{Model, WeightGroup};

use crate::words::{size, whole_percent};

/// Bits of a weight in `q4_k`: blocks of 256 in 144 bytes (ggml, `block_q4_K`). The smallest format that is widely used.
pub(super) const SMALL_BITS: f64 = 4.5;
/// Where less than this part of the bytes would be saved, there is little left to save.
pub(super) const LEAST_SAVED: f64 = 0.15;

/// Tensors of which a token reads a row.
const LOOKED_UP: [&str; 4] = ["token_embd", "per_layer_token_embd", "position_embd", "token_types"];

/// The weights that a pass reads.
#[derive(Debug)]
pub(super) struct Read<'m> {
    /// Those with the most bytes first.
    groups: Vec<&'m WeightGroup>,
    /// All their bytes.
    pub(super) bytes: f64,
    /// Whether the embedding is also the head, so that a pass reads all of it.
    is_tied: bool,
}

impl<'m> Read<'m> {
    /// `None` if the profile doesn't say which weights there are, or if a pass reads only some of them.
    pub(super) fn of(model: &'m Model) -> Option<Self> {
        let has = |name: &str| model.weights.iter().any(|group| group.name == name);
        let is_tied = has("token_embd") && !has("output");
        // Of experts a token reads some. What the last group of very many holds nobody knows.
        let is_unknown = |group: &WeightGroup| {
            group.name.contains("_exps") || group.name == "(others)" || group.parameters == 0
        };
        if model.weights.is_empty() || model.weights.iter().any(is_unknown) {
            return None;
        }
        let is_read = |group: &&WeightGroup| {
            let name = group.name.as_str();
            !LOOKED_UP.contains(&name) || (is_tied && name == "token_embd")
        };
        let mut groups: Vec<_> = model.weights.iter().filter(is_read).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
        let bytes = groups.iter().map(|group| group.bytes as f64).sum();
        (bytes > 0.0).then_some(Self { groups, bytes, is_tied })
    }

    /// The same, if they are the weights that bricks were said to read: within a twentieth.
    pub(super) fn as_stated(model: &'m Model, bytes: f64) -> Option<Self> {
        Self::of(model).filter(|read| (read.bytes / bytes - 1.0).abs() < 0.05)
    }

    /// What a pass would read less if all matrices with more bits had [`SMALL_BITS`]. Vectors stay as they are.
    pub(super) fn fewer(&self) -> f64 {
        let matrices = self.groups.iter().filter(|group| group.is_matrix);
        let fewer = |group: &&WeightGroup| {
            let small = group.parameters as f64 * SMALL_BITS / 8.0;
            (group.bytes as f64 - small).max(0.0)
        };
        matrices.map(fewer).sum()
    }

    /// The three that weigh most: `ffn_down 38 MB (q8_0), 31 %; …`.
    pub(super) fn most(&self) -> String {
        let of = |group: &&WeightGroup| {
            let (name, format) = (printable(&group.name), printable(&group.format));
            let bytes = group.bytes as f64;
            format!("{name} {} ({format}), {}", size(bytes), whole_percent(bytes / self.bytes))
        };
        let most: Vec<String> = self.groups.iter().take(3).map(of).collect();
        let tied = match self.is_tied {
            true => "; token_embd is the head, too, so a pass reads all of it",
            false => "",
        };
        most.join("; ") + tied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, is_matrix: bool, parameters: u64, bits: u64) -> WeightGroup {
        let bytes = parameters * bits / 8;
        WeightGroup {
            name: name.to_owned(),
            format: format!("of {bits} bits"),
            is_matrix,
            tensors: 1,
            parameters,
            bytes,
        }
    }

    #[test]
    fn an_embedding_is_read_if_it_is_the_head() {
        let mut model = Model {
            weights: vec![
                group("token_embd", true, 800, 16),
                group("ffn_up", true, 1_000, 16),
                group("ffn_down", true, 1_000, 4),
                group("ffn_norm", false, 100, 32),
            ],
            ..Model::default()
        };
        let read = Read::of(&model).expect("weights");
        assert_eq!(read.bytes, 1_600.0 + 2_000.0 + 500.0 + 400.0);
        // Norms, and what is smaller already, stay as they are.
        assert_eq!(read.fewer(), (1_600.0 - 450.0) + (2_000.0 - 562.5));
        assert!(read.most().contains("is the head, too"), "{}", read.most());
        model.weights.push(group("output", true, 800, 16));
        let read = Read::of(&model).expect("weights");
        assert_eq!(read.bytes, 1_600.0 + 2_000.0 + 500.0 + 400.0);
        assert!(!read.most().contains("token_embd"), "{}", read.most());
        assert!(Read::as_stated(&model, 9_000.0).is_none());
        // A token reads some of the experts.
        model.weights.push(group("ffn_up_exps", true, 800, 16));
        assert!(Read::of(&model).is_none());
        assert!(Read::of(&Model::default()).is_none());
    }
}
