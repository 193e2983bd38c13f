//! Which brick, layer and kernel a node of ggml's graph is, and the work that it states.

use brickscope::{BrickCategory, BrickId, Data, Work};

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
    /// What it computes, reads and writes, without what `attends` adds.
    pub work: Work,
    /// The part of the work that each token before the pass adds, of attention.
    pub attends: Option<Attends>,
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

/// What attention reads for each token that it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attends {
    /// The tokens that its shape has room for.
    pub room: u64,
    /// FLOPs of all queries and heads for one token that they look at.
    pub flops: u64,
    /// Bytes of its keys and values.
    pub bytes: u64,
}

/// The name of the brick of scores, softmax and values in one kernel.
pub const FLASH_ATTENTION: &str = "FlashAttention";

/// Tells what a node is. It never fails: what no name tells is [`Brick::Named`] by its kind of operation.
///
/// The names of GGUF files tell what a matrix is for (`blk.3.attn_q.weight`); llama.cpp's names of results, where there is
/// no matrix (`kq-3`).
#[must_use]
pub fn describe(node: &Node) -> Described {
    let op = node.op.as_str();
    let name = node.then.as_ref().map_or(&node.out.name, |then| &then.out.name);
    let first = node.src.first();
    let sources: Vec<&Tensor> = match &node.then {
        Some(then) => then.src.iter().collect(),
        None => node.src.iter().collect(),
    };
    let weight = sources.iter().find(|src| is_weight(&src.name));
    let role = weight.map_or("", |weight| role_of(&weight.name));
    let rotated = sources.get(1).filter(|_| op == "MUL_MAT" && first.is_some_and(is_rotation));
    let brick = match rotated {
        Some(_) => Brick::Named("KvRotation", BrickCategory::Attention),
        None => brick_of(op, role, name),
    };
    let layer = weight
        .and_then(|weight| block_of(&weight.name))
        .or_else(|| layer_of(name))
        .or_else(|| layer_of(&rotated?.name))
        .or_else(|| cache_of(name))
        .or_else(|| sources.iter().find_map(|src| cache_of(&src.name)));
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
    let (work, attends) = work_of(node, &sources);
    Described { brick, layer, kernel, shape, work, attends }
}

/// llama.cpp rotates what it keeps in few bits, so that no number of it is much larger than the others.
fn is_rotation(src: &Tensor) -> bool {
    matches!(src.name.as_str(), "attn_inp_k_rot" | "attn_inp_v_rot")
}

fn is_weight(name: &str) -> bool {
    name.ends_with(".weight") || name.ends_with(".bias")
}

/// `attn_q` of `blk.3.attn_q.weight`.
fn role_of(weight: &str) -> &str {
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

/// 3 of `cache_k_l3 (view)`.
fn cache_of(name: &str) -> Option<u16> {
    let rest = name.strip_prefix("cache_")?.split(' ').next()?;
    rest.rsplit_once("_l")?.1.parse().ok()
}

fn brick_of(op: &str, role: &str, name: &str) -> Brick {
    use BrickCategory::{Attention, Ffn, Norm, Other};
    use BrickId::*;
    let is_product = matches!(op, "MUL_MAT" | "MUL_MAT_ID");
    let stem = name.split([' ', '-']).next().unwrap_or_default();
    let known = match (op, role) {
        ("NONE" | "RESHAPE" | "VIEW" | "PERMUTE" | "TRANSPOSE", _) => return Brick::None,
        ("GET_ROWS", "token_embd" | "decoder.token_embedding") => Embedding,
        (_, "attn_q" | "attn_k" | "attn_v" | "attn_qkv") if is_product => QkvProjection,
        // DeepSeek's: low-rank projections.
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
        (_, "mlp.0") if is_product => UpProjection,
        (_, "mlp.2") if is_product => DownProjection,
        (_, "ffn_gate_inp") if is_product => return Brick::Named("Router", Ffn),
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
        // A norm's weights, where the two aren't computed as one.
        ("MUL", role) if role.ends_with("norm") => RmsNorm,
        ("MUL" | "ADD", role)
            if role.ends_with("_ln") || role.ends_with(".ln") || role.ends_with(".ln_post") =>
        {
            LayerNorm
        }
        (
            "SILU" | "GELU" | "GELU_QUICK" | "GELU_ERF" | "RELU" | "SWIGLU" | "GEGLU" | "REGLU",
            _,
        )
        | ("SWIGLU_OAI" | "GEGLU_ERF" | "GEGLU_QUICK", _) => Activation,
        ("SET_ROWS" | "CPY", _) if name.starts_with("cache_") => {
            return Brick::Named("KvCache", Attention);
        }
        ("SSM_CONV" | "SSM_SCAN" | "RWKV_WKV6" | "RWKV_WKV7" | "GATED_LINEAR_ATTN", _) => {
            return Brick::Named("StateSpace", Other);
        }
        ("L2_NORM" | "GROUP_NORM", _) => return Brick::Named("Norm", Norm),
        ("TOP_K" | "ARGSORT", _) => return Brick::Named("Router", Ffn),
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

/// FLOPs by the operation's definition, and the bytes of what it reads and writes. Attention states what it needs for
/// each token that it looks at, since its shape has room for more tokens than there are.
fn work_of(node: &Node, sources: &[&Tensor]) -> (Work, Option<Attends>) {
    let out = node.then.as_ref().map_or(&node.out, |then| &then.out);
    let elements = out.elements();
    let mut work = Work { elements, flops: 0, bytes: out.bytes, data: Data::Activations };
    match (node.op.as_str(), sources) {
        // Each element of the product takes a multiplication and an addition for each column.
        ("MUL_MAT", [a, b, ..]) => {
            work.flops = elements.saturating_mul(2).saturating_mul(a.ne[0]);
            // Heads that share keys and values read them from a cache.
            work.bytes = work.bytes.saturating_add(a.bytes).saturating_add(b.bytes);
            if is_weight(&a.name) {
                work.data = Data::Weights(a.bytes);
            } else if a.name.starts_with("cache_") {
                work.data = Data::Kv(a.bytes);
            }
        }
        // As many of the experts' matrices are read as are chosen, or all if there are more choices.
        ("MUL_MAT_ID", [a, b, ids, ..]) => {
            work.flops = elements.saturating_mul(2).saturating_mul(a.ne[0]);
            let expert = a.bytes / a.ne[2].max(1);
            let read = expert.saturating_mul(ids.elements().min(a.ne[2]));
            work.bytes = work.bytes.saturating_add(read).saturating_add(b.bytes);
            work.data = Data::Weights(read);
        }
        // It reads as many rows as it writes.
        ("GET_ROWS", [a, ..]) => {
            let row = a.bytes / a.elements().checked_div(a.ne[0]).unwrap_or(1).max(1);
            let read = row.saturating_mul(elements.checked_div(out.ne[0]).unwrap_or(0));
            work.bytes = work.bytes.saturating_add(read);
            if is_weight(&a.name) {
                work.data = Data::Weights(read);
            }
        }
        // It writes as many rows as it is given, whatever its result has room for.
        ("SET_ROWS", [rows, ..]) => {
            let width = out.bytes.checked_div(elements).unwrap_or(0);
            let written = rows.elements().saturating_mul(width);
            work = Work { elements: rows.elements(), flops: 0, ..work };
            work.bytes = rows.bytes.saturating_add(written);
            work.data = Data::Kv(written);
        }
        ("FLASH_ATTN_EXT", [q, k, v, ..]) => {
            let room = k.ne[1];
            let each = |cache: &Tensor| cache.bytes.checked_div(room).unwrap_or(0);
            // A score and its part of the result: 2 · width each, for each query and head.
            let pairs = q.ne[1].saturating_mul(q.ne[2]).saturating_mul(q.ne[3]);
            let flops = pairs.saturating_mul(2).saturating_mul(k.ne[0].saturating_add(v.ne[0]));
            work.bytes = work.bytes.saturating_add(q.bytes);
            work.data = Data::Kv(0);
            let bytes = each(k).saturating_add(each(v));
            return (work, Some(Attends { room, flops, bytes }));
        }
        _ => {
            let read = sources.iter().fold(0_u64, |sum, src| sum.saturating_add(src.bytes));
            // Without FLOPs: how many a function such as an exponential takes isn't stated anywhere.
            work.bytes = work.bytes.saturating_add(read);
        }
    }
    (work, None)
}

#[cfg(test)]
mod tests {
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
