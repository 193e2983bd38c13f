//! What llama.cpp's nodes are and what they do, held against independent counts: names and shapes as llama.cpp makes them,
//! and bytes as `ggml_nbytes` says them, from the first to the last one of a view.

use brickscope::{
    BrickCategory, BrickId, BrickKey, BrickProfiler, Data, TimedSpan, TimedWork, Work,
};
use brickscope_llama::bricks::{Brick, Described, describe};
use brickscope_llama::{Labels, LooksAt, Node, Ran, Tensor, Then};

/// As `ggml_nbytes` counts the bytes of a view: numbers of a block, and its bytes.
fn view(name: &str, kind: &str, block: [u64; 2], ne: [u64; 4], nb: [u64; 4]) -> Tensor {
    let far = |from: usize| (from..4).map(|i| (ne[i] - 1) * nb[i]).sum::<u64>();
    let bytes = match block {
        [1, bytes] => bytes + far(0),
        [numbers, _] => ne[0] * nb[0] / numbers + far(1),
    };
    Tensor { name: name.to_owned(), kind: kind.to_owned(), ne, bytes, ..Tensor::default() }
}

fn tensor(name: &str, kind: &str, ne: [u64; 4]) -> Tensor {
    let [numbers, bytes] = match kind {
        "f32" | "i32" => [1, 4],
        "f16" => [1, 2],
        "i64" => [1, 8],
        "q8_0" => [32, 34],
        "q4_0" => [32, 18],
        other => panic!("{other}"),
    };
    let bytes = ne.iter().product::<u64>() / numbers * bytes;
    Tensor { name: name.to_owned(), kind: kind.to_owned(), ne, bytes, ..Tensor::default() }
}

fn row(name: &str) -> Tensor {
    tensor(name, "f32", [768, 1, 1, 1])
}

fn node(op: &str, out: Tensor, src: Vec<Tensor>) -> Node {
    Node { op: op.to_owned(), out, src, then: None }
}

/// The work of each kernel of a graph.
fn works(nodes: &[Node], ran: &Ran<'_>) -> Vec<Work> {
    let profiler = BrickProfiler::enabled();
    let mut spans: Vec<TimedSpan> = Vec::new();
    let times: Vec<[u64; 2]> = (0..nodes.len() as u64).map(|n| [n, n + 1]).collect();
    Labels::new(&profiler, nodes, 1).add_spans_of(&mut spans, &times, ran);
    let kernels = spans.iter().filter(|span| matches!(span.what, TimedWork::Kernel(_)));
    kernels.map(|span| span.work).collect()
}

fn work(node: &Node, looks_at: LooksAt) -> Work {
    works(std::slice::from_ref(node), &Ran { looks_at: Some(looks_at), experts: &[] })[0]
}

/// A model like TinyLlama: 32 heads of 64 that share 4 for keys and values, kept as f16.
const WIDTH: u64 = 64;
const HEADS: u64 = 32;
const KV_HEADS: u64 = 4;
/// The bytes of a token's keys.
const ROW: u64 = WIDTH * KV_HEADS * 2;

/// A view of keys, or of values that aren't transposed, of caches of so many tokens.
fn keys(name: &str, [size, seen, streams]: [u64; 3]) -> Tensor {
    let nb = [2, ROW, WIDTH * 2, ROW * size];
    view(name, "f16", [1, 2], [WIDTH, seen, KV_HEADS, streams], nb)
}

/// Values as they are without flash attention: all tokens of one number lie beside each other.
fn transposed(name: &str, [size, seen, streams]: [u64; 3]) -> Tensor {
    let nb = [2, size * 2, size * WIDTH * 2, size * ROW];
    view(name, "f16", [1, 2], [seen, WIDTH, KV_HEADS, streams], nb)
}

fn flash(tokens: u64, of: [u64; 3]) -> Node {
    let [_, seen, streams] = of;
    let queries = tensor("q-7", "f32", [WIDTH, tokens, HEADS, streams]);
    let cache = |kv| keys(&format!("cache_{kv}_l7 (view) (permuted)"), of);
    let mask = tensor("attn_inp_kq_mask", "f16", [seen, 64, 1, streams]);
    let out = tensor("__fattn__-7", "f32", [WIDTH, HEADS, tokens, streams]);
    node("FLASH_ATTN_EXT", out, vec![queries, cache("k"), cache("v"), mask])
}

/// Bytes of the queries and of the result of one token.
const AROUND: u64 = 2 * 4 * WIDTH * HEADS;

#[test]
fn bricks_and_layers_are_those_of_the_weights() {
    use BrickCategory::{Attention, Ffn, Other};
    let known = |of: BrickId| Brick::Known(of);
    let (router, bias) = (Brick::Named("Router", Ffn), Brick::Named("Bias", Other));
    let matrix = |name: &str| tensor(name, "f16", [768, 3072, 1, 1]);
    let of = |op: &str, name: &str, src: Vec<Tensor>| node(op, row(name), src);
    for (what, node, brick, layer) in [
        (
            "GPT-2's norm",
            of("MUL", "norm_w-0", vec![row("norm-0"), row("blk.0.attn_norm.weight")]),
            known(BrickId::LayerNorm),
            0,
        ),
        (
            "GPT-2's norm's bias",
            of("ADD", "attn_norm-0", vec![row("norm_w-0"), row("blk.0.attn_norm.bias")]),
            known(BrickId::LayerNorm),
            0,
        ),
        (
            "BERT's norm",
            of("MUL", "norm_w-0", vec![row("norm-0"), row("blk.0.attn_output_norm.weight")]),
            known(BrickId::LayerNorm),
            0,
        ),
        (
            "Falcon's second norm",
            of("MUL", "norm_w-0", vec![row("norm-0"), row("blk.0.attn_norm_2.weight")]),
            known(BrickId::LayerNorm),
            0,
        ),
        (
            "a norm without a bias",
            of("MUL", "attn_norm-2", vec![row("norm-2"), row("blk.2.attn_norm.weight")]),
            known(BrickId::RmsNorm),
            2,
        ),
        (
            "Gemma's norm after attention",
            of(
                "MUL",
                "attn_post_norm-2",
                vec![row("norm-2"), row("blk.2.post_attention_norm.weight")],
            ),
            known(BrickId::RmsNorm),
            2,
        ),
        (
            "a product's bias",
            of("ADD", "Qcur-1", vec![row("Qcur-1"), row("blk.1.attn_q.bias")]),
            bias,
            1,
        ),
        (
            "the gate of Qwen2-MoE's shared expert",
            of(
                "MUL_MAT",
                "shared_expert_gate-3",
                vec![row("blk.3.ffn_gate_inp_shexp.weight"), row("ffn_norm-3")],
            ),
            router,
            3,
        ),
        (
            "the shared expert's own gate",
            of(
                "MUL_MAT",
                "ffn_gate-3",
                vec![matrix("blk.3.ffn_gate_shexp.weight"), row("ffn_norm-3")],
            ),
            known(BrickId::GateProjection),
            3,
        ),
        (
            "DeepSeek's values after attention",
            of("MUL_MAT", "kqv_mla-3", vec![matrix("blk.3.attn_v_b.weight"), row("kqv-3")]),
            known(BrickId::AttentionOutput),
            3,
        ),
        (
            "T5's encoder",
            of("MUL_MAT", "Qcur-3", vec![matrix("enc.blk.3.attn_q.weight"), row("attn_norm-3")]),
            known(BrickId::QkvProjection),
            3,
        ),
        (
            "T5's decoder, at the encoder's text",
            of("MUL_MAT", "Qcur-3", vec![matrix("dec.blk.3.cross_attn_q.weight"), row("x-3")]),
            known(BrickId::QkvProjection),
            3,
        ),
        (
            "weights that were copied to a GPU",
            of(
                "MUL_MAT",
                "ffn_up-5",
                vec![matrix("CUDA0#blk.5.ffn_up.weight#0"), row("ffn_norm-5")],
            ),
            known(BrickId::UpProjection),
            5,
        ),
        (
            "an adapter's first matrix",
            of("MUL_MAT", "node_7", vec![matrix("blk.4.attn_q.weight.lora_a"), row("attn_norm-4")]),
            known(BrickId::QkvProjection),
            4,
        ),
        (
            "an adapter's second matrix on a GPU",
            of(
                "MUL_MAT",
                "node_8",
                vec![matrix("CUDA0#blk.4.ffn_down.weight.lora_b#0"), row("node_7")],
            ),
            known(BrickId::DownProjection),
            4,
        ),
        (
            "Mamba's first product",
            of("MUL_MAT", "x-6", vec![matrix("blk.6.ssm_in.weight"), row("attn_norm-6")]),
            Brick::Named("StateSpaceProjection", Other),
            6,
        ),
        (
            "a rotation by factors that are weights",
            of(
                "ROPE",
                "Qcur-4",
                vec![row("Qcur-4 (reshaped)"), row("inp_pos"), row("rope_freqs.weight")],
            ),
            known(BrickId::RopeEmbedding),
            4,
        ),
        (
            "experts' bias for the choice",
            of(
                "ADD",
                "ffn_moe_probs_biased-3",
                vec![row("ffn_moe_probs-3"), row("blk.3.exp_probs_b.bias")],
            ),
            router,
            3,
        ),
        (
            "the weights of the chosen experts",
            of(
                "GET_ROWS",
                "ffn_moe_weights-3",
                vec![row("ffn_moe_probs-3 (reshaped)"), row("ffn_moe_topk-3")],
            ),
            router,
            3,
        ),
        (
            "gpt-oss's biases of experts",
            of(
                "ADD_ID",
                "ffn_moe_up_biased-3",
                vec![
                    row("ffn_moe_up-3"),
                    tensor("blk.3.ffn_up_exps.bias", "f32", [2880, 32, 1, 1]),
                    tensor("ids", "i32", [4, 1, 1, 1]),
                ],
            ),
            bias,
            3,
        ),
        (
            "DeepSeek's indexer",
            of(
                "MUL_MAT",
                "indexer_q-3",
                vec![matrix("blk.3.indexer.attn_q_b.weight"), row("qr-3")],
            ),
            Brick::Named("Indexer", Attention),
            3,
        ),
    ] {
        let seen = describe(&node);
        assert_eq!((seen.brick, seen.layer), (brick, Some(layer)), "{what}");
    }
}

#[test]
fn a_norms_weights_and_bias_are_of_the_brick_of_the_norm() {
    for (op, weights, brick) in [
        ("NORM", "blk.0.attn_norm.weight", BrickId::LayerNorm),
        ("RMS_NORM", "blk.0.attn_norm_2.weight", BrickId::RmsNorm),
    ] {
        // Without a bias, both have the same names; and another norm of the layer came before.
        let other = if op == "NORM" { "RMS_NORM" } else { "NORM" };
        let nodes = [
            node(other, row("norm-0"), vec![row("embd")]),
            node(op, row("norm-0"), vec![row("l_out-0")]),
            node("MUL", row("attn_norm-0"), vec![row("norm-0"), row(weights)]),
            node(
                "ADD",
                row("attn_norm_b-0"),
                vec![row("attn_norm-0"), row("blk.0.attn_norm.bias")],
            ),
        ];
        let labels = Labels::new(&BrickProfiler::enabled(), &nodes, 1);
        let bricks: Vec<Option<BrickKey>> = labels.bricks().skip(1).collect();
        assert_eq!(bricks, vec![Some(brick.into()); 3], "{op}");
    }
}

/// 40 tokens are in a cache of 32768, of which 256 are seen, and one is added.
#[test]
fn without_flash_attention_the_tokens_in_the_cache_count() {
    let of = [32768, 256, 1];
    let looks = || LooksAt::one(40, 1);
    let queries = tensor("q-7", "f32", [WIDTH, 1, HEADS, 1]);
    let scores = |name: &str| tensor(name, "f32", [256, 1, HEADS, 1]);
    let keys = keys("cache_k_l7 (view) (permuted)", of);
    let values = transposed("cache_v_l7 (view) (permuted)", of);
    // What ggml says it spans.
    assert!(values.bytes > 16_000_000, "{}", values.bytes);

    let product = node("MUL_MAT", scores("kq-7"), vec![keys, queries.clone()]);
    // All that the view sees.
    let Described { work: all, .. } = describe(&product);
    assert_eq!((all.flops, all.data), (2 * 256 * WIDTH * HEADS, Data::Kv(256 * ROW)));
    let seen = work(&product, looks());
    assert_eq!((seen.flops, seen.data), (2 * 41 * WIDTH * HEADS, Data::Kv(41 * ROW)));
    assert_eq!(seen.bytes, 41 * ROW + 4 * WIDTH * HEADS + 4 * 41 * HEADS);
    assert_eq!(seen.elements, 41 * HEADS);

    let mask = tensor("attn_inp_kq_mask", "f32", [256, 64, 1, 1]);
    let softmax = node("SOFT_MAX", scores("kq_soft_max-7"), vec![scores("kq-7"), mask.clone()]);
    let seen = work(&softmax, looks());
    assert_eq!((seen.bytes, seen.elements), (2 * 4 * 41 * HEADS + 4 * 41 * 64, 41 * HEADS));
    // Older versions don't name it.
    let mask = Tensor { name: "KQ_mask".to_owned(), ..mask };
    let nameless = node("SOFT_MAX", scores("node_10"), vec![scores("node_9"), mask]);
    let others = node("SET_ROWS", row("cache_k_l7"), vec![row("Kcur-7")]);
    let ran = Ran { looks_at: Some(looks()), experts: &[] };
    assert_eq!(works(&[others, nameless], &ran)[1], seen);

    let result = tensor("kqv-7", "f32", [WIDTH, 1, HEADS, 1]);
    let product = node("MUL_MAT", result, vec![values, scores("kq_soft_max-7")]);
    let Described { work: all, .. } = describe(&product);
    assert_eq!((all.flops, all.data), (2 * 256 * WIDTH * HEADS, Data::Kv(256 * ROW)));
    assert_eq!(all.bytes, 256 * ROW + 4 * WIDTH * HEADS + 4 * 256 * HEADS);
    let seen = work(&product, looks());
    assert_eq!((seen.flops, seen.data), (2 * 41 * WIDTH * HEADS, Data::Kv(41 * ROW)));
    assert_eq!(seen.bytes, 41 * ROW + 4 * WIDTH * HEADS + 4 * 41 * HEADS);
}

/// Values as q8_0, whose tokens lie apart as far as the context is long.
#[test]
fn views_of_quantised_caches_count_their_numbers() {
    let row_bytes = WIDTH * KV_HEADS * 34 / 32;
    let nb = [34, row_bytes, WIDTH * 34 / 32, row_bytes * 4096];
    let cache = |name| view(name, "q8_0", [32, 34], [WIDTH, 256, KV_HEADS, 1], nb);
    let node = Node {
        src: vec![
            tensor("q-7", "f32", [WIDTH, 1, HEADS, 1]),
            cache("cache_k_l7 (view)"),
            cache("cache_v_l7 (view)"),
        ],
        ..flash(1, [4096, 256, 1])
    };
    let seen = work(&node, LooksAt::one(99, 1));
    assert_eq!(seen.data, Data::Kv(2 * 100 * row_bytes));
    // Numbers whose type nobody knows count what they span.
    let unknown = Tensor { kind: "q9_9".to_owned(), ..cache("cache_k_l7") };
    assert_eq!(unknown.used_bytes(), unknown.bytes);
}

#[test]
fn sequences_with_caches_of_their_own_count_each() {
    let node = flash(1, [8192, 256, 4]);
    let looks = LooksAt::several(&[[200, 201]; 4]).expect("they grew");
    let seen = work(&node, looks);
    assert_eq!(seen.flops, 4 * 201 * 4 * WIDTH * HEADS);
    assert_eq!(seen.data, Data::Kv(4 * 201 * 2 * ROW));
    assert_eq!(seen.bytes, 4 * 201 * 2 * ROW + 4 * AROUND);
    // Of different lengths, in one cache and in caches of their own, as tokens are counted one by one.
    let lengths = [[10, 11], [200, 201], [0, 1], [99, 100]];
    let looks = || LooksAt::several(&lengths).expect("they grew");
    let tokens: u64 = lengths.iter().map(|of| u64::from(of[1])).sum();
    for node in [node, Node { src: flash(4, [8192, 512, 1]).src, ..flash(4, [8192, 512, 1]) }] {
        let seen = work(&node, looks());
        assert_eq!(
            (seen.flops, seen.data),
            (4 * tokens * WIDTH * HEADS, Data::Kv(tokens * 2 * ROW))
        );
    }
}

#[test]
fn each_micro_batch_of_a_prompt_counts_its_own_tokens() {
    let pass = LooksAt::one(0, 2048);
    for nth in 0..4_u64 {
        let room = 512 * (nth + 1);
        let seen =
            work(&flash(512, [8192, room, 1]), pass.part(512 * nth, 512).expect("one sequence"));
        let truth: u64 = (0..512).map(|token| (512 * nth + token + 1) * 4 * WIDTH * HEADS).sum();
        assert_eq!(seen.flops, truth, "micro-batch {nth}");
        assert_eq!(seen.data, Data::Kv(room * 2 * ROW));
    }
    // A last one that is shorter, after what was in the cache before.
    let pass = LooksAt::one(300, 700);
    let seen = work(&flash(188, [8192, 1024, 1]), pass.part(512, 188).expect("one sequence"));
    let truth: u64 = (812..1000).map(|position| (position + 1) * 4 * WIDTH * HEADS).sum();
    assert_eq!((seen.flops, seen.data), (truth, Data::Kv(1000 * 2 * ROW)));
}

#[test]
fn writes_to_the_cache_have_their_bytes() {
    for (kind, numbers, bytes) in [("f16", 1, 2), ("q8_0", 32, 34), ("q4_0", 32, 18)] {
        let given = tensor("Kcur-7 (view)", "f32", [256, 512, 1, 1]);
        let places = tensor("attn_inp_k_idxs", "i64", [512, 1, 1, 1]);
        let out = tensor("cache_k_l7 (view)", kind, [256, 4096, 1, 1]);
        let whole = tensor("cache_k_l7", kind, [256, 4096, 1, 1]);
        let Described { work, .. } = describe(&node("SET_ROWS", out, vec![given, places, whole]));
        let written = 256 * 512 / numbers * bytes;
        assert_eq!(work.data, Data::Kv(written), "{kind}");
        assert_eq!(work.bytes, written + 4 * 256 * 512 + 8 * 512, "{kind}");
    }
    // Versions of 2025 copy: what is read is the first source.
    let part = || tensor("cache_k_l7 (view)", "f16", [256, 1, 1, 1]);
    let out = Tensor { name: "cache_k_l7 (view) (copy of Kcur-7)".to_owned(), ..part() };
    let seen = describe(&node("CPY", out, vec![row("Kcur-7"), part()]));
    assert_eq!((seen.work.bytes, seen.work.data), (3072 + 512, Data::Kv(512)));
    assert_eq!(seen.brick, Brick::Named("KvCache", BrickCategory::Attention));
    // Transposed values, which lie apart.
    let apart =
        view("cache_v_l7 (view)", "f16", [1, 2], [1, 256, 1, 1], [2, 2 * 8192, 2 * 8192, 2 * 8192]);
    let given = tensor("Vcur-7 (transposed)", "f32", [1, 256, 1, 1]);
    let seen = describe(&node("CPY", apart.clone(), vec![given, apart])).work;
    assert_eq!((seen.bytes, seen.data), (1024 + 512, Data::Kv(512)));
}

#[test]
fn of_experts_those_count_that_ran() {
    let expert = 2048 * 768 / 32 * 34;
    let product = |sequences: u64| {
        let weights = tensor("blk.0.ffn_up_exps.weight", "q8_0", [2048, 768, 128, 1]);
        let given = tensor("x", "f32", [2048, 1, sequences, 1]);
        let ids = tensor("ffn_moe_topk-0", "i32", [8, sequences, 1, 1]);
        node(
            "MUL_MAT_ID",
            tensor("ffn_moe_up-0", "f32", [768, 8, sequences, 1]),
            vec![weights, given, ids],
        )
    };
    let flops = |sequences: u64| 2 * 2048 * 768 * 8 * sequences;
    let around = |sequences: u64| 4 * (2048 + 768 * 8 + 8) * sequences;
    // One token chooses as many as its shape says.
    let seen = describe(&product(1)).work;
    assert_eq!(seen.data, Data::Weights(8 * expert));
    assert_eq!((seen.flops, seen.bytes), (flops(1), 8 * expert + around(1)));
    // Of 16, which choose for themselves, nobody knows, unless it was counted.
    let seen = describe(&product(16)).work;
    assert_eq!((seen.flops, seen.bytes, seen.data), (flops(16), 0, Data::Unstated));
    let nodes = [product(16), row_of_bias(), product(16), product(16)];
    let seen = works(&nodes, &Ran { looks_at: None, experts: &[Some(81), None, Some(129)] });
    assert_eq!(seen[0].data, Data::Weights(81 * expert));
    assert_eq!((seen[0].flops, seen[0].bytes), (flops(16), 81 * expert + around(16)));
    for unknown in &seen[2..] {
        assert_eq!((unknown.bytes, unknown.data, unknown.flops), (0, Data::Unstated, flops(16)));
    }
    // A bias has a row for each expert, and one is read for each choice.
    assert_eq!(seen[1].bytes, 4 * (2 * 4 * 2880 + 4 * 2880 + 4));
}

fn row_of_bias() -> Node {
    let wide = |name| tensor(name, "f32", [2880, 4, 1, 1]);
    let bias = tensor("blk.3.ffn_up_exps.bias", "f32", [2880, 32, 1, 1]);
    node(
        "ADD_ID",
        wide("ffn_moe_up_biased-3"),
        vec![wide("ffn_moe_up-3"), bias, tensor("ids", "i32", [4, 1, 1, 1])],
    )
}

/// 8000 tokens, of which a layer sees the last 512, which it keeps in 1024 cells.
#[test]
fn within_a_sliding_window_its_tokens_count() {
    let local = flash(1, [1024, 1024, 1]);
    let seen = work(&local, LooksAt::one(8000, 1).within(512));
    assert_eq!((seen.flops, seen.data), (512 * 4 * WIDTH * HEADS, Data::Kv(512 * 2 * ROW)));
    assert_eq!(seen.bytes, 512 * 2 * ROW + AROUND);
    // How long its window is isn't known: neither is its work.
    let seen = work(&local, LooksAt::one(8000, 1));
    assert_eq!((seen.flops, seen.bytes, seen.data), (0, 0, Data::Unstated));

    // A model with layers of both kinds, which are told apart by what they keep.
    let write = |layer: u64, cells: u64| {
        let out = tensor(&format!("cache_k_l{layer} (view)"), "f16", [256, cells, 1, 1]);
        node("SET_ROWS", out, vec![tensor("Kcur (view)", "f32", [256, 1, 1, 1])])
    };
    let reads = |layer: u64, seen: u64| {
        let mut node = flash(1, [32768, seen, 1]);
        node.out.name = format!("__fattn__-{layer}");
        for (src, kv) in node.src[1..3].iter_mut().zip(["k", "v"]) {
            src.name = format!("cache_{kv}_l{layer} (view) (permuted)");
        }
        node
    };
    let nodes = [write(0, 1024), reads(0, 768), write(1, 32768), reads(1, 768)];
    let looks_at = Some(LooksAt::one(700, 1).within(512));
    let seen = works(&nodes, &Ran { looks_at, experts: &[] });
    assert_eq!([1, 3].map(|n| seen[n].data), [512, 701].map(|of| Data::Kv(of * 2 * ROW)));
    // Where all keep as many, nobody knows which look at a window, once that is full.
    let nodes = [write(0, 32768), reads(0, 768), write(1, 32768), reads(1, 768)];
    for (position, data) in [(511, Data::Kv(512 * 2 * ROW)), (512, Data::Unstated)] {
        let looks_at = Some(LooksAt::one(position, 1).within(512));
        let seen = works(&nodes, &Ran { looks_at, experts: &[] });
        assert_eq!([1, 3].map(|n| seen[n].data), [data; 2], "{position}");
    }
}

#[test]
fn keys_that_have_the_values_in_them_are_read_once() {
    // DeepSeek's: 576 numbers of a token, of which 512 are its values.
    let of = |ne0: u64| {
        view(
            "cache_k_l3 (view) (permuted)",
            "f16",
            [1, 2],
            [ne0, 256, 1, 1],
            [2, 1152, 1152, 1152 * 4096],
        )
    };
    let queries = tensor("q-3", "f32", [576, 1, 16, 1]);
    let out = tensor("__fattn__-3", "f32", [512, 16, 1, 1]);
    let seen =
        work(&node("FLASH_ATTN_EXT", out, vec![queries, of(576), of(512)]), LooksAt::one(99, 1));
    assert_eq!(seen.data, Data::Kv(100 * 1152));
    assert_eq!(seen.flops, 100 * 16 * 2 * (576 + 512));
}

#[test]
fn a_graph_without_a_cache_looks_at_its_own_tokens() {
    let own = |name: &str| tensor(name, "f16", [WIDTH, 9, KV_HEADS, 1]);
    let out = tensor("__fattn__-7", "f32", [WIDTH, HEADS, 9, 1]);
    let queries = tensor("q-7", "f32", [WIDTH, 9, HEADS, 1]);
    let node = node("FLASH_ATTN_EXT", out, vec![queries, own("Kcur-7"), own("Vcur-7")]);
    assert_eq!(work(&node, LooksAt::one(0, 9)).flops, 9 * 9 * 4 * WIDTH * HEADS);
}

#[test]
fn a_fused_norm_has_the_work_of_both() {
    let then = Then {
        op: "MUL".to_owned(),
        out: row("attn_norm-1"),
        src: vec![row("norm-1"), row("blk.1.attn_norm.weight")],
    };
    let fused = Node { then: Some(then), ..node("RMS_NORM", row("norm-1"), vec![row("l_out-0")]) };
    let seen = describe(&fused);
    assert_eq!((seen.brick, seen.layer), (Brick::Known(BrickId::RmsNorm), Some(1)));
    assert_eq!(seen.work.bytes, 3 * 3072);
}
