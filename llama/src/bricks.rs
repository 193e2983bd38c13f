//! Which brick, layer and kernel a node of ggml's graph is, and the work that it states.

use brickscope::{BrickCategory, BrickId, Work};

use crate::node::original;
pub use crate::work::{Attends, Experts};
use crate::work::{CACHE, Counted, cache, count, stem};
use crate::{Node, Tensor};

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Its purpose.
    pub brick: Brick,
    /// The transformer layer, if the node's names say one.
    pub layer: Option<u16>,
    /// Such as `mul_mat_q8_0`.
    pub kernel: String,
    /// The shape of its matrix: rows × columns.
    pub shape: String,
    /// What it computes, reads and writes. Attention counts all tokens that its shape has room for; of experts, bytes are
    /// not stated where the shape doesn't tell how many run.
    pub work: Work,
    /// The part of the work that each token adds that is looked at, of attention over a cache.
    pub attends: Option<Attends>,
    /// What experts there are, of a product with their matrices.
    pub experts: Option<Experts>,
}

/// A well-known brick, or a name and its category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brick {
    /// One that every profiler knows.
    Known(BrickId),
    /// One that no profiler knows.
    Named(&'static str, BrickCategory),
    /// It computes nothing: a view.
    None,
}

/// The name of the brick of scores, softmax and values in one kernel.
pub const FLASH_ATTENTION: &str = "FlashAttention";

/// Tells what a node is. It never fails: what no name tells is [`Brick::Named`] by its kind of operation.
///
/// The names of GGUF files tell what a matrix is for (`blk.3.attn_q.weight`); llama.cpp's names of results, where there is
/// no matrix (`kq-3`).
#[must_use]
pub fn describe(node: &Node) -> Described {
    described(node).0
}

/// The same, with what its work is made of.
pub(crate) fn described(node: &Node) -> (Described, Counted) {
    let op = node.op.as_str();
    let name = node.then.as_ref().map_or(&node.out.name, |then| &then.out.name);
    let first = node.src.first();
    let sources: Vec<&Tensor> = match &node.then {
        Some(then) => then.src.iter().collect(),
        None => node.src.iter().collect(),
    };
    let weight = sources.iter().map(|src| original(&src.name)).find(|name| is_weight(name));
    let role = weight.map_or("", role_of);
    let rotated = sources.get(1).filter(|_| op == "MUL_MAT" && first.is_some_and(is_rotation));
    let brick = match rotated {
        Some(_) => Brick::Named("KvRotation", BrickCategory::Attention),
        None => brick_of(op, role, name),
    };
    let layer = weight
        .and_then(block_of)
        .or_else(|| layer_of(name))
        .or_else(|| layer_of(&rotated?.name))
        .or_else(|| cache(name).map(|(_, layer)| layer))
        .or_else(|| sources.iter().find_map(|src| Some(cache(original(&src.name))?.1)))
        .or_else(|| sources.iter().find_map(|src| block_of(original(&src.name))));
    let matrix = first.filter(|_| matches!(op, "MUL_MAT" | "MUL_MAT_ID" | "GET_ROWS"));
    let mut kernel = op.to_lowercase();
    // How the cache keeps what attention reads decides which code does that.
    let cache: &[&Tensor] = match (op, sources.as_slice()) {
        ("FLASH_ATTN_EXT", [_, keys, values, ..]) if keys.kind == values.kind => &[*keys],
        ("FLASH_ATTN_EXT", [_, keys, values, ..]) => &[*keys, *values],
        ("SET_ROWS", _) => &[&node.out],
        _ => &[],
    };
    for of in matrix.iter().copied().chain(cache.iter().copied()) {
        kernel = format!("{kernel}_{}", of.kind.to_lowercase());
    }
    if let Some(then) = &node.then {
        kernel = format!("{kernel}_{}", then.op.to_lowercase());
    }
    let shape = matrix.map_or(String::new(), |m| format!("{}×{}", m.ne[1], m.ne[0]));
    let counted = count(node, &sources, first.is_some_and(|src| is_weight(original(&src.name))));
    let Counted { attends, experts, .. } = counted;
    let work = counted.work(None, None, None);
    (Described { brick, layer, kernel, shape, work, attends, experts }, counted)
}

/// llama.cpp rotates what it keeps in few bits, so that no number of it is much larger than the others.
fn is_rotation(src: &Tensor) -> bool {
    matches!(src.name.as_str(), "attn_inp_k_rot" | "attn_inp_v_rot")
}

/// Views of weights are some, too: `blk.3.attn_kv_b.weight (view)`.
fn is_weight(name: &str) -> bool {
    let name = without_adapter(name.split(' ').next().unwrap_or_default());
    name.ends_with(".weight") || name.ends_with(".bias")
}

/// `blk.0.attn_q.weight` of `blk.0.attn_q.weight.lora_a`: an adapter's matrices are for what that is for.
fn without_adapter(name: &str) -> &str {
    name.strip_suffix(".lora_a").or_else(|| name.strip_suffix(".lora_b")).unwrap_or(name)
}

/// Whether a weight belongs to a norm: `attn_norm_2`, `ffn_norm_exps`, `output_norm`, `cross_attn_ln`.
pub(crate) fn is_of_norm(role: &str) -> bool {
    let is_norm = |word: &str| word.ends_with("norm") || word == "ln" || word == "ln_post";
    role.split('.').any(|part| is_norm(part) || part.split('_').any(is_norm))
}

/// The weight of a norm that a product or a sum applies.
pub(crate) fn norm_weight(node: &Node) -> Option<&str> {
    let is_it = |src: &&Tensor| {
        let name = original(&src.name);
        is_weight(name) && is_of_norm(role_of(name))
    };
    let of = (matches!(&*node.op, "MUL" | "ADD")).then(|| node.src.iter().find(is_it)).flatten()?;
    Some(original(&of.name))
}

/// `attn_q` of `blk.3.attn_q.weight`.
fn role_of(weight: &str) -> &str {
    let weight = without_adapter(weight.split(' ').next().unwrap_or_default());
    let name = weight.strip_suffix(".weight").or_else(|| weight.strip_suffix(".bias"));
    let name = name.unwrap_or(weight);
    match block(name).and_then(|rest| rest.split_once('.')) {
        Some((_, role)) => role,
        None => name,
    }
}

fn block_of(weight: &str) -> Option<u16> {
    block(weight)?.split_once('.')?.0.parse().ok()
}

/// `3.attn_q` of `blk.3.attn_q`. T5's encoder and decoder have blocks of their own, and so have parts for pictures and
/// sounds. Whisper's are `encoder.blocks.3.attn.query`.
fn block(name: &str) -> Option<&str> {
    if let Some(inner) =
        ["encoder.blocks.", "decoder.blocks."].iter().find_map(|part| name.strip_prefix(part))
    {
        return Some(inner);
    }
    let inner = ["enc.", "dec.", "v.", "a."].iter().find_map(|part| name.strip_prefix(part));
    inner.unwrap_or(name).strip_prefix("blk.")
}

/// 3 of `kq-3` and of `Qcur-3 (view)`.
fn layer_of(name: &str) -> Option<u16> {
    let name = name.split(' ').next()?;
    name.rsplit_once('-')?.1.parse().ok()
}

fn brick_of(op: &str, role: &str, name: &str) -> Brick {
    use BrickCategory::{Attention, Ffn, Norm, Other};
    use BrickId::*;
    let is_product = matches!(op, "MUL_MAT" | "MUL_MAT_ID");
    let stem = stem(name);
    let known = match (op, role) {
        ("NONE" | "RESHAPE" | "VIEW" | "PERMUTE" | "TRANSPOSE", _) => return Brick::None,
        ("GET_ROWS", "token_embd" | "decoder.token_embedding") => Embedding,
        (_, "attn_q" | "attn_k" | "attn_v" | "attn_qkv") if is_product => QkvProjection,
        // DeepSeek's: what attention gives becomes values after it.
        (_, "attn_v_b") if is_product && matches!(stem, "kqv_mla" | "fattn_mla") => AttentionOutput,
        // Its low-rank projections.
        (_, "attn_q_a" | "attn_q_b" | "attn_kv_a_mqa" | "attn_kv_b" | "attn_k_b" | "attn_v_b")
            if is_product =>
        {
            QkvProjection
        }
        // T5's decoder looks at the encoder's text, too.
        (_, "cross_attn_q" | "cross_attn_k" | "cross_attn_v") if is_product => QkvProjection,
        (_, "attn_output" | "attn_out" | "attn_o" | "cross_attn_o") if is_product => {
            OutputProjection
        }
        // Whisper's.
        (_, role)
            if is_product && [".query", ".key", ".value"].iter().any(|of| role.ends_with(of)) =>
        {
            QkvProjection
        }
        (_, "attn.out" | "cross_attn.out") if is_product => OutputProjection,
        (_, "attn_kv" | "vis_attn_qkv") if is_product => QkvProjection,
        (_, "attn_output_a" | "attn_output_b" | "vis_attn_output") if is_product => {
            OutputProjection
        }
        (_, role) if is_product && role.starts_with("indexer.") => {
            return Brick::Named("Indexer", Attention);
        }
        // Mamba's, RWKV's, and short convolutions.
        (_, role)
            if is_product
                && ["ssm_", "time_mix_", "shortconv."].iter().any(|of| role.starts_with(of)) =>
        {
            return Brick::Named("StateSpaceProjection", Other);
        }
        (_, "channel_mix_key" | "vis_up") if is_product => UpProjection,
        (_, "channel_mix_receptance" | "vis_gate") if is_product => GateProjection,
        (_, "channel_mix_value" | "vis_down") if is_product => DownProjection,
        (_, "mlp.0") if is_product => UpProjection,
        (_, "mlp.2") if is_product => DownProjection,
        // Scores of experts, and of the one that all tokens share.
        (_, role) if is_product && role.starts_with("ffn_gate_inp") => {
            return Brick::Named("Router", Ffn);
        }
        (_, role) if is_product && role.starts_with("ffn_gate") => GateProjection,
        (_, role) if is_product && role.starts_with("ffn_up") => UpProjection,
        (_, role) if is_product && role.starts_with("ffn_down") => DownProjection,
        (_, "output" | "token_embd" | "decoder.token_embedding") if is_product => LmHead,
        ("MUL_MAT", _) if stem == "kq" => AttentionScore,
        ("MUL_MAT", _) if stem == "kqv" => AttentionOutput,
        ("FLASH_ATTN_EXT", _) => return Brick::Named(FLASH_ATTENTION, Attention),
        ("ROPE", _) => RopeEmbedding,
        ("SOFT_MAX", _) if stem.starts_with("kq") => AttentionSoftmax,
        ("RMS_NORM", _) => RmsNorm,
        ("NORM", _) => LayerNorm,
        // A norm's weights, where the two aren't computed as one: `Labels` know which norm it is. One that has a bias, too,
        // is llama.cpp's other one.
        ("MUL" | "ADD", role) if is_of_norm(role) => {
            let is_layer_norm = op == "ADD" || stem == "norm_w" || role.contains("ln");
            if is_layer_norm { LayerNorm } else { RmsNorm }
        }
        (
            "SILU" | "GELU" | "GELU_QUICK" | "GELU_ERF" | "RELU" | "SWIGLU" | "GEGLU" | "REGLU",
            _,
        )
        | ("SWIGLU_OAI" | "GEGLU_ERF" | "GEGLU_QUICK", _) => Activation,
        ("SET_ROWS" | "CPY", _) if name.starts_with(CACHE) => {
            return Brick::Named("KvCache", Attention);
        }
        ("SSM_CONV" | "SSM_SCAN" | "RWKV_WKV6" | "RWKV_WKV7" | "GATED_LINEAR_ATTN", _) => {
            return Brick::Named("StateSpace", Other);
        }
        ("L2_NORM" | "GROUP_NORM", _) => return Brick::Named("Norm", Norm),
        ("TOP_K" | "ARGSORT", _) => return Brick::Named("Router", Ffn),
        // Experts' scores: their softmax, their biases, and those of the chosen ones.
        (_, "exp_probs_b") => return Brick::Named("Router", Ffn),
        ("SOFT_MAX" | "SIGMOID" | "GET_ROWS", _)
            if ["ffn_moe_logits", "ffn_moe_probs", "ffn_moe_weights"]
                .iter()
                .any(|of| stem.starts_with(of)) =>
        {
            return Brick::Named("Router", Ffn);
        }
        ("ADD_ID", _) => return Brick::Named("Bias", Other),
        ("ADD", _) if matches!(stem, "ffn_inp" | "l_out") => {
            return Brick::Named("Residual", Other);
        }
        ("ADD", role) if !role.is_empty() => return Brick::Named("Bias", Other),
        ("GET_ROWS", _) => return Brick::Named("GetRows", Other),
        ("CONT" | "CPY" | "DUP" | "CONCAT" | "REPEAT", _) => return Brick::Named("Copy", Other),
        _ if is_product => return Brick::Named("MatMul", Other),
        _ => return Brick::Named("Elementwise", Other),
    };
    Brick::Known(known)
}

#[cfg(test)]
mod tests {
    use brickscope::Data;

    use super::*;
    use crate::Then;

    fn tensor(name: &str, kind: &str, ne: [u64; 4], bytes: u64) -> Tensor {
        Tensor { name: name.to_owned(), kind: kind.to_owned(), ne, bytes, numbers: None }
    }

    fn node(op: &str, name: &str, src: Vec<Tensor>) -> Node {
        Node { op: op.to_owned(), out: tensor(name, "f32", [64, 2, 1, 1], 512), src, then: None }
    }

    fn f32s(name: &str) -> Tensor {
        tensor(name, "f32", [64, 2, 1, 1], 512)
    }

    fn weight(name: &str) -> Tensor {
        tensor(name, "q4_K", [256, 64, 1, 1], 9216)
    }

    /// Names as llama.cpp has them for llama, Qwen, gpt-2, Mixtral and DeepSeek.
    #[test]
    fn nodes_are_known_by_the_names_of_weights_and_else_by_their_own() {
        use BrickId::*;
        let named = |name| Brick::Named(name, BrickCategory::Other);
        for (op, name, first, brick, layer) in [
            ("GET_ROWS", "embd", weight("token_embd.weight"), Brick::Known(Embedding), None),
            (
                "MUL_MAT",
                "Qcur-3",
                weight("blk.3.attn_q.weight"),
                Brick::Known(QkvProjection),
                Some(3),
            ),
            (
                "MUL_MAT",
                "wqkv-0",
                weight("blk.0.attn_qkv.weight"),
                Brick::Known(QkvProjection),
                Some(0),
            ),
            (
                "MUL_MAT",
                "q-1",
                weight("blk.1.attn_q_a.weight"),
                Brick::Known(QkvProjection),
                Some(1),
            ),
            ("MUL_MAT", "kq-7", f32s("cache_k_l7 (view)"), Brick::Known(AttentionScore), Some(7)),
            ("SOFT_MAX", "kq_soft_max-7", f32s("kq-7"), Brick::Known(AttentionSoftmax), Some(7)),
            ("MUL_MAT", "kqv-7", f32s("cache_v_l7"), Brick::Known(AttentionOutput), Some(7)),
            (
                "MUL_MAT",
                "attn_out-2",
                weight("blk.2.attn_output.weight"),
                Brick::Known(OutputProjection),
                Some(2),
            ),
            (
                "MUL_MAT",
                "ffn_gate-2",
                weight("blk.2.ffn_gate.weight"),
                Brick::Known(GateProjection),
                Some(2),
            ),
            (
                "MUL_MAT_ID",
                "x-2",
                weight("blk.2.ffn_up_exps.weight"),
                Brick::Known(UpProjection),
                Some(2),
            ),
            (
                "MUL_MAT_ID",
                "x-2",
                weight("blk.2.ffn_down_exps.weight"),
                Brick::Known(DownProjection),
                Some(2),
            ),
            (
                "MUL_MAT",
                "logits-2",
                weight("blk.2.ffn_gate_inp.weight"),
                Brick::Named("Router", BrickCategory::Ffn),
                Some(2),
            ),
            (
                "MUL_MAT",
                "node_8",
                weight("encoder.blocks.2.attn.key.weight"),
                Brick::Known(QkvProjection),
                Some(2),
            ),
            (
                "MUL_MAT",
                "node_9",
                weight("decoder.blocks.1.cross_attn.out.weight"),
                Brick::Known(OutputProjection),
                Some(1),
            ),
            (
                "MUL_MAT",
                "node_9",
                weight("decoder.blocks.1.mlp.2.weight"),
                Brick::Known(DownProjection),
                Some(1),
            ),
            (
                "MUL",
                "node_7",
                weight("decoder.blocks.1.cross_attn_ln.weight"),
                Brick::Known(LayerNorm),
                Some(1),
            ),
            (
                "MUL_MAT",
                "node_9",
                weight("decoder.token_embedding.weight"),
                Brick::Known(LmHead),
                None,
            ),
            ("MUL_MAT", "result_output", weight("output.weight"), Brick::Known(LmHead), None),
            ("MUL_MAT", "result_output", weight("token_embd.weight"), Brick::Known(LmHead), None),
            ("ROPE", "Qcur-11", f32s("Qcur-11"), Brick::Known(RopeEmbedding), Some(11)),
            ("SWIGLU", "ffn_swiglu-0", f32s("ffn_gate-0"), Brick::Known(Activation), Some(0)),
            ("NORM", "norm-4", f32s("l_out-3"), Brick::Known(LayerNorm), Some(4)),
            (
                "SET_ROWS",
                "cache_k_l5 (view)",
                f32s("Kcur-5 (view)"),
                Brick::Named("KvCache", BrickCategory::Attention),
                Some(5),
            ),
            ("ADD", "l_out-6", f32s("ffn_out-6"), named("Residual"), Some(6)),
            ("VIEW", "Qcur-1 (view)", f32s("Qcur-1"), Brick::None, Some(1)),
            ("CONT", "kqv_out-1", f32s("kqv-1"), named("Copy"), Some(1)),
            ("SCALE", "x", f32s("y"), named("Elementwise"), None),
        ] {
            let seen = describe(&node(op, name, vec![first, f32s("x")]));
            assert_eq!((seen.brick, seen.layer), (brick, layer), "{op} {name}");
        }
    }

    #[test]
    fn kernels_have_the_type_and_the_shape_of_their_matrix() {
        let seen = describe(&node("MUL_MAT", "x", vec![weight("blk.0.attn_q.weight"), f32s("y")]));
        assert_eq!((seen.kernel.as_str(), seen.shape.as_str()), ("mul_mat_q4_k", "64×256"));
        assert_eq!(seen.work.flops, 2 * 128 * 256);
        assert_eq!((seen.work.bytes, seen.work.data), (9216 + 512 + 512, Data::Weights(9216)));
        let fused = Node {
            then: Some(Then {
                op: "MUL".to_owned(),
                out: f32s("attn_norm-1"),
                src: vec![
                    f32s("norm-1"),
                    tensor("blk.1.attn_norm.weight", "f32", [64, 1, 1, 1], 256),
                ],
            }),
            ..node("RMS_NORM", "norm-1", Vec::new())
        };
        let seen = describe(&fused);
        assert_eq!((seen.brick, seen.layer), (Brick::Known(BrickId::RmsNorm), Some(1)));
        assert_eq!((seen.kernel.as_str(), seen.work.bytes), ("rms_norm_mul", 512 + 512 + 256));
    }

    #[test]
    fn of_experts_as_many_are_read_as_are_chosen() {
        let experts = tensor("blk.0.ffn_up_exps.weight", "q4_K", [256, 64, 8, 1], 8 * 9216);
        let chosen = |n| tensor("ids", "i32", [n, 1, 1, 1], 4 * n);
        for (n, read) in [(2, 2), (16, 8)] {
            let src = vec![experts.clone(), f32s("x"), chosen(n)];
            assert_eq!(
                describe(&node("MUL_MAT_ID", "x-0", src)).work.data,
                Data::Weights(read * 9216)
            );
        }
    }

    #[test]
    fn encoders_and_decoders_have_layers_of_their_own() {
        for (weight, brick, layer) in [
            ("enc.blk.3.attn_q.weight", BrickId::QkvProjection, Some(3)),
            ("dec.blk.0.cross_attn_k.weight", BrickId::QkvProjection, Some(0)),
            ("dec.blk.11.attn_o.weight", BrickId::OutputProjection, Some(11)),
            ("v.blk.2.attn_out.weight", BrickId::OutputProjection, Some(2)),
            ("a.blk.1.ffn_up.weight", BrickId::UpProjection, Some(1)),
            ("blk.7.ffn_down.weight", BrickId::DownProjection, Some(7)),
            ("output.weight", BrickId::LmHead, None),
        ] {
            let of = |name: &str| tensor(name, "f32", [64, 64, 1, 1], 1 << 14);
            let src = vec![of(weight), of("x")];
            let node = Node { op: "MUL_MAT".to_owned(), out: of("node_1"), src, then: None };
            let described = describe(&node);
            assert_eq!(
                (described.brick, described.layer),
                (Brick::Known(brick), layer),
                "{weight}"
            );
        }
    }

    #[test]
    fn kernels_say_how_the_cache_keeps_what_they_read_and_its_rotation_is_attention() {
        let of = |name: &str, kind: &str| tensor(name, kind, [64, 8, 1, 1], 512);
        let node = |op: &str, name: &str, kind: &str, src| Node {
            op: op.to_owned(),
            out: of(name, kind),
            src,
            then: None,
        };
        let flash = |keys: &str, values: &str| {
            let read = vec![of("Qcur-3", "f32"), of("cache_k_l3", keys), of("cache_v_l3", values)];
            describe(&node("FLASH_ATTN_EXT", "node_30", "f32", read)).kernel
        };
        assert_eq!(flash("q8_0", "q8_0"), "flash_attn_ext_q8_0");
        assert_eq!(flash("q8_0", "f16"), "flash_attn_ext_q8_0_f16");
        let write = node("SET_ROWS", "cache_k_l3 (view)", "q8_0", vec![of("Kcur-3", "f32")]);
        assert_eq!(describe(&write).kernel, "set_rows_q8_0");
        let read = vec![of("attn_inp_k_rot", "f32"), of("Qcur-3 (reshaped)", "f32")];
        let rotation = describe(&node("MUL_MAT", "node_7", "f32", read));
        assert_eq!(rotation.brick, Brick::Named("KvRotation", BrickCategory::Attention));
        assert_eq!(rotation.layer, Some(3));
    }

    #[test]
    fn shapes_that_no_tensor_has_are_no_panic() {
        let huge = tensor("blk.0.attn_q.weight", "f32", [u64::MAX; 4], u64::MAX);
        let none = tensor("", "", [0; 4], 0);
        for op in ["MUL_MAT", "MUL_MAT_ID", "GET_ROWS", "SET_ROWS", "FLASH_ATTN_EXT", "ADD", ""] {
            for src in [vec![], vec![huge.clone(); 4], vec![none.clone(); 4]] {
                for out in [&huge, &none] {
                    let node =
                        Node { op: op.to_owned(), out: out.clone(), src: src.clone(), then: None };
                    let _ = describe(&node);
                }
            }
        }
    }
}
