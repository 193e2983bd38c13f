//! Tiny models of candle, of two layers with weights of zero, under the map of each: all spans of a pass are counted, by
//! layer and brick.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use brickscope::{BrickCategory, BrickProfiler, Phase, Profile};
use brickscope_tracing::{BrickLayer, Map, Seen, Weight};
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::{GgmlDType, QTensor, gguf_file};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models::{
    gemma3, llama, phi3, quantized_gemma3, quantized_llama, quantized_phi3, quantized_qwen3, qwen2,
    qwen3,
};
use tracing_subscriber::layer::SubscriberExt;

const LAYERS: usize = 2;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD: usize = WIDTH / HEADS;
const HIDDEN: usize = 96;
const VOCABULARY: usize = 128;
const PROMPT: usize = 5;

const CPU: Device = Device::Cpu;

/// Runs a prompt of five tokens and two more tokens, and returns what was recorded and seen. `load` is called under the layer, and
/// returns what runs the model on tokens at a position.
fn run<F>(map: Map, load: impl FnOnce() -> Result<F>) -> (Profile, Seen)
where
    F: FnMut(&Tensor, usize) -> Result<Tensor>,
{
    run_after(PROMPT, map, load)
}

fn run_after<F>(prompt: usize, map: Map, load: impl FnOnce() -> Result<F>) -> (Profile, Seen)
where
    F: FnMut(&Tensor, usize) -> Result<Tensor>,
{
    let profiler = Arc::new(BrickProfiler::enabled());
    let layer = BrickLayer::new(&profiler, map);
    let subscriber = tracing_subscriber::registry().with(layer.clone());
    tracing::subscriber::with_default(subscriber, || {
        let mut forward = load().expect("it loads");
        let passes = [
            (Phase::Prefill, prompt, 0),
            (Phase::Decode, 1, prompt),
            (Phase::Decode, 1, prompt + 1),
        ];
        for (phase, tokens, position) in passes {
            let input = Tensor::ones((1, tokens), DType::U32, &CPU).expect("tokens");
            let pass = layer.begin_pass(phase, tokens as u64, position as u64);
            let logits = forward(&input, position).expect("it runs");
            pass.end();
            assert_eq!(logits.elem_count(), VOCABULARY);
        }
    });
    (profiler.profile(), layer.seen())
}

/// Checks that each of the three passes has these spans in each layer and outside of layers, and that all adds up.
fn expect((profile, seen): (Profile, Seen), in_layer: &[(&str, usize)], outside: &[(&str, usize)]) {
    assert_eq!(profile.check(), Ok(()));
    // Others may have run meanwhile.
    let dropped = brickscope::Dropped { disturbed_passes: 0, ..profile.dropped };
    assert_eq!(dropped, brickscope::Dropped::default());
    assert_eq!(
        (seen.unmapped.as_slice(), seen.outside, seen.out_of_order),
        (&[][..], 0, 0),
        "{seen}"
    );
    let mut expected = BTreeMap::new();
    for pass in 1..=3_u32 {
        for layer in 0..LAYERS as u16 {
            expected.extend(in_layer.iter().map(|&(brick, n)| ((pass, Some(layer), brick), n)));
            expected.insert((pass, Some(layer), "the layer"), 1);
        }
        expected.extend(outside.iter().map(|&(brick, n)| ((pass, None, brick), n)));
    }
    let mut found = BTreeMap::new();
    for span in &profile.spans {
        let name = span.name.map_or("the layer", |name| &profile.names[usize::from(name)].name);
        *found.entry((span.pass.expect("in a pass"), span.layer, name)).or_insert(0) += 1;
        assert!(span.name.is_none() || span.exclusive_ns == span.duration_ns, "in pieces");
    }
    assert_eq!(found, expected);
    let others = ["LmHead", "Residual"];
    for total in &profile.totals {
        let is_other = total.category == Some(BrickCategory::Other);
        assert_eq!(is_other, others.contains(&total.stats.name.as_str()), "{}", total.stats.name);
    }
    for phase in &profile.phases {
        let of = |total: &&brickscope::Total| total.phase == Some(phase.phase);
        let bricks: u64 =
            profile.totals.iter().filter(of).map(|total| total.stats.exclusive_ns).sum();
        assert_eq!(bricks + phase.unattributed_ns, phase.wall_ns);
        assert_eq!(phase.passes, if phase.phase == Phase::Prefill { 1 } else { 2 });
    }
}

#[test]
fn llama() {
    let config = llama::Config {
        hidden_size: WIDTH,
        intermediate_size: HIDDEN,
        vocab_size: VOCABULARY,
        num_hidden_layers: LAYERS,
        num_attention_heads: HEADS,
        num_key_value_heads: KV_HEADS,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 1e4,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: 32,
        tie_word_embeddings: false,
    };
    for tie_word_embeddings in [false, true] {
        let config = llama::Config { tie_word_embeddings, ..config.clone() };
        let ran = run(Map::candle_llama(), || {
            let mut cache = llama::Cache::new(true, DType::F32, &config, &CPU)?;
            let model = llama::Llama::load(VarBuilder::zeros(DType::F32, &CPU), &config)?;
            Ok(move |input: &Tensor, position| model.forward(input, position, &mut cache))
        });
        let in_layer = [
            ("RmsNorm", 2),
            ("QkvProjection", 3),
            ("RopeEmbedding", 2),
            // Seven pieces of `attn`, before, between and after six spans.
            ("Attention", 1),
            ("attn", 6),
            ("OutputProjection", 1),
            ("GateProjection", 1),
            ("UpProjection", 1),
            ("DownProjection", 1),
            ("Activation", 1),
            ("GatedProduct", 1),
            ("mlp", 2),
        ];
        expect(ran, &in_layer, &NORM_AND_HEAD);
    }
}

/// Of a layer whose attention has no span.
const PRODUCTS: [(&str, usize); 5] = [
    ("QkvProjection", 3),
    ("OutputProjection", 1),
    ("GateProjection", 1),
    ("UpProjection", 1),
    ("DownProjection", 1),
];

const NORM_AND_HEAD: [(&str, usize); 2] = [("RmsNorm", 1), ("LmHead", 1)];

fn and<'a>(these: &[(&'a str, usize)], more: &[(&'a str, usize)]) -> Vec<(&'a str, usize)> {
    [these, more].concat()
}

#[test]
fn qwen2() {
    let config = qwen2::Config {
        vocab_size: VOCABULARY,
        hidden_size: WIDTH,
        intermediate_size: HIDDEN,
        num_hidden_layers: LAYERS,
        num_attention_heads: HEADS,
        num_key_value_heads: KV_HEADS,
        max_position_embeddings: 32,
        sliding_window: 32,
        max_window_layers: 0,
        tie_word_embeddings: false,
        rope_theta: 1e4,
        rms_norm_eps: 1e-6,
        use_sliding_window: false,
        hidden_act: Activation::Silu,
    };
    let ran = run(Map::candle_qwen2(), || {
        let zeros = VarBuilder::zeros(DType::F32, &CPU);
        let mut model = qwen2::ModelForCausalLM::new(&config, zeros)?;
        Ok(move |input: &Tensor, position| model.forward(input, position))
    });
    expect(ran, &and(&PRODUCTS, &[("RmsNorm", 2)]), &NORM_AND_HEAD);
}

#[test]
fn qwen3() {
    for tie_word_embeddings in [false, true] {
        let config = qwen3::Config {
            vocab_size: VOCABULARY,
            hidden_size: WIDTH,
            intermediate_size: HIDDEN,
            num_hidden_layers: LAYERS,
            num_attention_heads: HEADS,
            head_dim: HEAD,
            attention_bias: false,
            num_key_value_heads: KV_HEADS,
            max_position_embeddings: 32,
            sliding_window: None,
            max_window_layers: 0,
            tie_word_embeddings,
            rope_theta: 1e4,
            rms_norm_eps: 1e-6,
            use_sliding_window: false,
            hidden_act: Activation::Silu,
        };
        let ran = run(Map::candle_qwen3(), || {
            let zeros = VarBuilder::zeros(DType::F32, &CPU);
            let mut model = qwen3::ModelForCausalLM::new(&config, zeros)?;
            Ok(move |input: &Tensor, position| model.forward(input, position))
        });
        // With those of Q and of K.
        expect(ran, &and(&PRODUCTS, &[("RmsNorm", 4)]), &NORM_AND_HEAD);
    }
}

#[test]
fn phi3() {
    let config = phi3::Config {
        vocab_size: VOCABULARY,
        hidden_act: Activation::Silu,
        hidden_size: WIDTH,
        intermediate_size: HIDDEN,
        num_hidden_layers: LAYERS,
        num_attention_heads: HEADS,
        num_key_value_heads: KV_HEADS,
        rms_norm_eps: 1e-5,
        rope_theta: 1e4,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: 32,
        original_max_position_embeddings: None,
        partial_rotary_factor: None,
        tie_word_embeddings: false,
    };
    let ran = run(Map::candle_phi3(), || {
        let mut model = phi3::Model::new(&config, VarBuilder::zeros(DType::F32, &CPU))?;
        Ok(move |input: &Tensor, position| model.forward(input, position))
    });
    let in_layer = [
        ("RmsNorm", 2),
        ("QkvProjection", 1),
        ("OutputProjection", 1),
        ("GateUpProjection", 1),
        ("DownProjection", 1),
    ];
    expect(ran, &in_layer, &NORM_AND_HEAD);
}

/// gemma3 takes candle-nn's layers, which have no spans: nothing is recorded, and that is said. (Its cache takes no prompt
/// of several tokens on a CPU.)
#[test]
fn gemma3_has_no_spans() {
    let config = gemma3::Config {
        attention_bias: false,
        head_dim: HEAD,
        hidden_activation: Activation::Silu,
        hidden_size: WIDTH,
        intermediate_size: HIDDEN,
        num_attention_heads: HEADS,
        num_hidden_layers: LAYERS,
        num_key_value_heads: KV_HEADS,
        rms_norm_eps: 1e-6,
        rope_theta: 1e4,
        rope_local_base_freq: 1e4,
        vocab_size: VOCABULARY,
        final_logit_softcapping: None,
        attn_logit_softcapping: None,
        query_pre_attn_scalar: HEAD,
        sliding_window: 16,
        sliding_window_pattern: 2,
        max_position_embeddings: 32,
    };
    let (profile, seen) = run_after(1, Map::candle_quantized_gemma3(), || {
        let mut model = gemma3::Model::new(false, &config, VarBuilder::zeros(DType::F32, &CPU))?;
        Ok(move |input: &Tensor, position| model.forward(input, position))
    });
    assert_eq!((profile.check(), profile.spans.len(), seen.made), (Ok(()), 0, 0));
    assert_eq!(profile.phases[0].unattributed_ns, profile.phases[0].wall_ns);
}

/// A GGUF file in memory, as candle reads it.
fn gguf(architecture: &str, more: &[(&str, Value)], in_layer: &[(&str, &[usize])]) -> Vec<u8> {
    let number = |value: usize| Value::U32(value as u32);
    let mut metadata: Vec<(String, Value)> = [
        ("attention.head_count", number(HEADS)),
        ("attention.head_count_kv", number(KV_HEADS)),
        ("attention.key_length", number(HEAD)),
        ("attention.value_length", number(HEAD)),
        ("attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("block_count", number(LAYERS)),
        ("context_length", number(32)),
        ("embedding_length", number(WIDTH)),
        ("feed_forward_length", number(HIDDEN)),
        ("rope.dimension_count", number(HEAD)),
        ("rope.freq_base", Value::F32(1e4)),
    ]
    .into_iter()
    .map(|(key, value)| (format!("{architecture}.{key}"), value))
    .collect();
    metadata.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    let zeros = |shape: &[usize]| {
        QTensor::quantize(&Tensor::zeros(shape, DType::F32, &CPU)?, GgmlDType::F32)
    };
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("token_embd.weight".to_owned(), vec![VOCABULARY, WIDTH]),
        ("output_norm.weight".to_owned(), vec![WIDTH]),
        ("output.weight".to_owned(), vec![VOCABULARY, WIDTH]),
    ];
    for layer in 0..LAYERS {
        let named =
            |&(name, shape): &(&str, &[usize])| (format!("blk.{layer}.{name}"), shape.to_vec());
        shapes.extend(in_layer.iter().map(named));
    }
    let tensors: Vec<(String, QTensor)> =
        shapes.into_iter().map(|(name, shape)| (name, zeros(&shape).expect("zeros"))).collect();
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut file = Cursor::new(Vec::new());
    gguf_file::write(&mut file, &metadata, &tensors).expect("written");
    file.into_inner()
}

const KV: usize = KV_HEADS * HEAD;

const LLAMA: [(&str, &[usize]); 9] = [
    ("attn_norm.weight", &[WIDTH]),
    ("attn_q.weight", &[WIDTH, WIDTH]),
    ("attn_k.weight", &[KV, WIDTH]),
    ("attn_v.weight", &[KV, WIDTH]),
    ("attn_output.weight", &[WIDTH, WIDTH]),
    ("ffn_norm.weight", &[WIDTH]),
    ("ffn_gate.weight", &[HIDDEN, WIDTH]),
    ("ffn_up.weight", &[HIDDEN, WIDTH]),
    ("ffn_down.weight", &[WIDTH, HIDDEN]),
];

/// The sizes of a file's matrices, for the map.
fn weights(file: &[u8]) -> impl Fn(&str) -> Option<Weight> + Send + Sync + 'static {
    let content = Content::read(&mut Cursor::new(file)).expect("a GGUF file");
    move |name| {
        let info = content.tensor_infos.get(name)?;
        let (rows, columns) = info.shape.dims2().ok()?;
        let blocks = rows * columns / info.ggml_dtype.block_size();
        let bytes = (blocks * info.ggml_dtype.type_size()) as u64;
        Some(Weight { rows: rows as u64, columns: columns as u64, bytes })
    }
}

#[test]
fn quantized_llama() {
    let file = gguf("llama", &[], &LLAMA);
    let ran = run(Map::candle_quantized_llama().with_weights(weights(&file)), || {
        let mut reader = Cursor::new(&file);
        let content = Content::read(&mut reader)?;
        let mut model = quantized_llama::ModelWeights::from_gguf(content, &mut reader, &CPU)?;
        Ok(move |input: &Tensor, position| model.forward(input, position))
    });
    let profile = &ran.0;
    let work = |brick: &str, pass| {
        let is_it = |span: &&brickscope::Span| {
            span.pass == Some(pass)
                && span.name.is_some_and(|n| profile.names[usize::from(n)].name == brick)
        };
        profile.spans.iter().find(is_it).expect("it ran").work
    };
    let (prefill, decode) = (work("DownProjection", 1), work("DownProjection", 2));
    assert_eq!(prefill.flops, (2 * WIDTH * HIDDEN * PROMPT) as u64);
    assert_eq!(decode.flops, (2 * WIDTH * HIDDEN) as u64);
    let matrix = (4 * WIDTH * HIDDEN) as u64;
    assert_eq!(decode.bytes, matrix + 4 * (WIDTH + HIDDEN) as u64);
    let down = |total: &&brickscope::Total| {
        total.stats.name == "DownProjection" && total.phase == Some(Phase::Decode)
    };
    let down = profile.totals.iter().find(down).expect("it ran");
    // Two layers in two passes.
    assert_eq!(down.stats.data.weights, 4 * matrix);
    // The head sees the last token only.
    assert_eq!(work("LmHead", 1).flops, (2 * WIDTH * VOCABULARY) as u64);
    let in_layer = [
        ("RmsNorm", 2),
        ("RopeEmbedding", 2),
        ("Attention", 1),
        ("attn", 6),
        ("Activation", 1),
        ("Residual", 1),
        ("attn-mlp", 3),
    ];
    expect(ran, &and(&PRODUCTS, &in_layer), &NORM_AND_HEAD);
}

#[test]
fn quantized_qwen3() {
    let norms: [(&str, &[usize]); 2] =
        [("attn_q_norm.weight", &[HEAD]), ("attn_k_norm.weight", &[HEAD])];
    let is_f32 = [("general.dtype", Value::U32(0))];
    let file = gguf("qwen3", &is_f32, &[&LLAMA[..], &norms].concat());
    let ran = run(Map::candle_quantized_qwen3(), || {
        let mut reader = Cursor::new(&file);
        let content = Content::read(&mut reader)?;
        let mut model = quantized_qwen3::ModelWeights::from_gguf(content, &mut reader, &CPU)?;
        Ok(move |input: &Tensor, position| model.forward(input, position))
    });
    let in_layer = [
        ("RmsNorm", 4),
        ("Attention", 1),
        ("attn", 6),
        ("Activation", 1),
        ("GatedProduct", 1),
        ("mlp", 2),
    ];
    expect(ran, &and(&PRODUCTS, &in_layer), &NORM_AND_HEAD);
}

#[test]
fn quantized_gemma3() {
    let norms: [(&str, &[usize]); 4] = [
        ("attn_q_norm.weight", &[HEAD]),
        ("attn_k_norm.weight", &[HEAD]),
        ("post_attention_norm.weight", &[WIDTH]),
        ("post_ffw_norm.weight", &[WIDTH]),
    ];
    let window = [("gemma3.attention.sliding_window", Value::U32(16))];
    let file = gguf("gemma3", &window, &[&LLAMA[..], &norms].concat());
    let ran = run(Map::candle_quantized_gemma3(), || {
        let mut reader = Cursor::new(&file);
        let content = Content::read(&mut reader)?;
        let mut model = quantized_gemma3::ModelWeights::from_gguf(content, &mut reader, &CPU)?;
        Ok(move |input: &Tensor, position| model.forward(input, position))
    });
    let in_layer = [
        ("RmsNorm", 6),
        ("Attention", 1),
        ("attn", 6),
        ("Activation", 1),
        ("Residual", 1),
        ("attn-mlp", 4),
    ];
    expect(ran, &and(&PRODUCTS, &in_layer), &NORM_AND_HEAD);
}

#[test]
fn quantized_phi3() {
    let in_layer: [(&str, &[usize]); 6] = [
        ("attn_norm.weight", &[WIDTH]),
        ("attn_qkv.weight", &[WIDTH + 2 * KV, WIDTH]),
        ("attn_output.weight", &[WIDTH, WIDTH]),
        ("ffn_norm.weight", &[WIDTH]),
        ("ffn_up.weight", &[2 * HIDDEN, WIDTH]),
        ("ffn_down.weight", &[WIDTH, HIDDEN]),
    ];
    let file = gguf("phi3", &[], &in_layer);
    let ran = run(Map::candle_quantized_phi3(), || {
        let mut reader = Cursor::new(&file);
        let content = Content::read(&mut reader)?;
        let mut model = quantized_phi3::ModelWeights::from_gguf(false, content, &mut reader, &CPU)?;
        Ok(move |input: &Tensor, position| model.forward(input, position))
    });
    let in_layer = [
        ("QkvProjection", 1),
        ("RopeEmbedding", 2),
        ("Attention", 1),
        ("attn", 4),
        ("OutputProjection", 1),
        ("GateUpProjection", 1),
        ("DownProjection", 1),
    ];
    expect(ran, &in_layer, &[("LmHead", 1)]);
}
