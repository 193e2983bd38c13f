//! A small model in the layout of Microsoft's `bitnet-b1.58-2B-4T`, as `ggml-model-i2_s.gguf` has it: the same keys and
//! tensors in the same order and of the same types, with random weights. What the file holds is in the log of llama.cpp's
//! loader that users post (for example microsoft/BitNet issue 373, ikawrakow/ik_llama.cpp issue 387). It has no
//! `tokenizer.ggml.pre` and no `output.weight`.

use brickscope::stats::SplitMix64;
use brickscope_engine::gguf::{TensorType, Writer};
use brickscope_kernels::QuantType;
use brickscope_kernels::quant::quantize_row;

// Of the real model: 2560, 30, 20, 5, 6912 and 128256. A query head has 128 elements, and four share a key head.
const DIM: usize = 256;
const N_LAYERS: usize = 2;
const N_HEADS: usize = 4;
const N_KV_HEADS: usize = 1;
const FFN: usize = 768;
const N_VOCAB: usize = 512;
const HEAD: usize = DIM / N_HEADS;

/// The seed of the fixture: one with which the likeliest tokens after `2+2=` lead clearly.
pub(crate) const SEED: u64 = 54;

/// The bytes of the file.
pub(crate) fn file(seed: u64) -> Vec<u8> {
    let mut writer = Writer::new("bitnet-b1.58");
    let (tokens, types, merges) = vocabulary();
    let begin_of_text = N_VOCAB as u32 - 10;
    writer
        .set("general.architecture", "bitnet-b1.58")
        .set("general.name", "bitnet2b")
        .set("bitnet-b1.58.vocab_size", N_VOCAB as u32)
        .set("bitnet-b1.58.context_length", 4096u32)
        .set("bitnet-b1.58.embedding_length", DIM as u32)
        .set("bitnet-b1.58.block_count", N_LAYERS as u32)
        .set("bitnet-b1.58.feed_forward_length", FFN as u32)
        .set("bitnet-b1.58.rope.dimension_count", HEAD as u32)
        .set("bitnet-b1.58.attention.head_count", N_HEADS as u32)
        .set("bitnet-b1.58.attention.head_count_kv", N_KV_HEADS as u32)
        .set("tokenizer.ggml.add_bos_token", true)
        .set("bitnet-b1.58.attention.layer_norm_rms_epsilon", 1e-5f32)
        .set("bitnet-b1.58.rope.freq_base", 500_000f32)
        .set("general.file_type", 40u32)
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.tokens", tokens)
        .set("tokenizer.ggml.scores", vec![0f32; N_VOCAB])
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.merges", merges)
        .set("tokenizer.ggml.bos_token_id", begin_of_text)
        .set("tokenizer.ggml.eos_token_id", begin_of_text + 1)
        .set("tokenizer.ggml.padding_token_id", begin_of_text + 1)
        .set(
            "tokenizer.chat_template",
            "{% for message in messages %}{{ message['content'] }}{% endfor %}",
        )
        .set("general.quantization_version", 2u32);

    let (f32, i2_s) = (TensorType::F32, TensorType::I2_S);
    writer.tensor("token_embd.weight", &[DIM, N_VOCAB], TensorType::F16);
    for layer in 0..N_LAYERS {
        for (part, dims, kind) in [
            ("attn_norm", &[DIM][..], f32),
            ("ffn_down", &[FFN, DIM], i2_s),
            ("ffn_sub_norm", &[FFN], f32),
            ("ffn_gate", &[DIM, FFN], i2_s),
            ("ffn_up", &[DIM, FFN], i2_s),
            ("ffn_norm", &[DIM], f32),
            ("attn_sub_norm", &[DIM], f32),
            ("attn_k", &[DIM, N_KV_HEADS * HEAD], i2_s),
            ("attn_output", &[DIM, DIM], i2_s),
            ("attn_q", &[DIM, DIM], i2_s),
            ("attn_v", &[DIM, N_KV_HEADS * HEAD], i2_s),
        ] {
            writer.tensor(format!("blk.{layer}.{part}.weight"), dims, kind);
        }
    }
    writer.tensor("output_norm.weight", &[DIM], f32);

    let mut data = writer.begin(Vec::new()).unwrap();
    let mut random = Random(SplitMix64(seed));
    while let Some(tensor) = data.awaits() {
        let n = tensor.n_elements();
        let bytes = match tensor.kind {
            TensorType::I2_S => i2_s_tensor(&mut random, n),
            TensorType::F16 => {
                let weights: Vec<f32> = (0..n).map(|_| 0.25 * random.bell()).collect();
                let mut bytes = Vec::new();
                quantize_row(QuantType::F16, &weights, &mut bytes);
                bytes
            }
            _ => (0..n).flat_map(|_| (1.0 + 0.2 * random.bell()).to_le_bytes()).collect(),
        };
        data.write(&bytes).unwrap();
    }
    data.finish().unwrap()
}

/// Codes of random weights, two of five of them 0, and the scale of the tensor behind them.
fn i2_s_tensor(random: &mut Random, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n / 4 + 32];
    for i in 0..n {
        let code = [0, 0, 0, 1, 1, 1, 1, 2, 2, 2][random.next() as usize % 10];
        bytes[i / 128 * 32 + i % 32] |= code << (6 - 2 * (i % 128 / 32));
    }
    let scale = 0.06 + 0.03 * (random.next() % 64) as f32 / 64.0;
    bytes[n / 4..][..4].copy_from_slice(&scale.to_le_bytes());
    bytes
}

/// The bytes in the alphabet of GPT-2, merges of them into English words, and the first ten control tokens of Llama 3.
fn vocabulary() -> (Vec<String>, Vec<i32>, Vec<String>) {
    let is_itself = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let printable = (0..=255).filter(is_itself).map(char::from);
    let others =
        (0..256 - printable.clone().count()).map(|i| char::from_u32(256 + i as u32).unwrap());
    let mut tokens: Vec<String> = printable.chain(others).map(String::from).collect();
    let mut merges = Vec::new();
    let n_texts = N_VOCAB - CONTROL.len();
    for word in ["  ", "    "].into_iter().chain(WORDS.split(' ')) {
        // Spelled out: two tokens at a time.
        let word = word.replace(' ', "Ġ");
        let word = if word.starts_with('Ġ') { word } else { format!("Ġ{word}") };
        let ends = word.char_indices().map(|(at, c)| (at, at + c.len_utf8())).skip(1);
        for (at, end) in ends {
            let token = word[..end].to_owned();
            if tokens.len() < n_texts && !tokens.contains(&token) {
                merges.push(format!("{} {}", &word[..at], &word[at..end]));
                tokens.push(token);
            }
        }
    }
    assert_eq!(tokens.len(), n_texts, "more words are needed");
    let mut types = vec![1; n_texts];
    tokens.extend(CONTROL.map(String::from));
    types.resize(N_VOCAB, 3);
    (tokens, types, merges)
}

const CONTROL: [&str; 10] = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|reserved_special_token_2|>",
    "<|reserved_special_token_3|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|reserved_special_token_4|>",
    "<|eot_id|>",
];

const WORDS: &str = "the of and to in is that it was for on are as with be at this have from or had by hot word but \
    what some we can out other were all there when up use your how said an each she which do their time if will way \
    about many then them would write like so these her long make thing see him two has look more day could go come \
    did number sound no most people my over know water than call first who may down side been now find any new work \
    part take get place made live where after back little only round man year came show every good me give our under";

struct Random(SplitMix64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// Around 0, with a deviation of about 1, and made of integers only, so that it is the same on every machine.
    fn bell(&mut self) -> f32 {
        let bits = self.next();
        let parts = (0..4).map(|i| (bits >> (16 * i) & 0xffff) as i32);
        (parts.sum::<i32>() - 2 * 0xffff) as f32 / 37_837.0
    }
}
