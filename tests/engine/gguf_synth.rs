//! Synthetic models are real ones in all but their weights, and the same everywhere.

use std::fs;
use std::path::Path;

use brickscope_engine::gguf::{Gguf, TensorType};
use brickscope_engine::synth::{Shape, SynthQuant, cached, write};
use tempfile::TempDir;

/// A fresh folder in cargo's own place for such things, which other runs of these tests may use, too.
fn folder(name: &str) -> TempDir {
    TempDir::with_prefix_in(name, env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn tiny(quant: SynthQuant, seed: u64, path: &Path) -> Vec<u8> {
    write(Shape::Tiny, quant, seed, path, &mut |_, _| {}).unwrap();
    fs::read(path).unwrap()
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// If this fails, files of old seeds aren't what they were: raise `synth::REVISION` and write down
/// the new hashes.
#[test]
fn a_seed_names_a_file_byte_for_byte() {
    let dir = folder("synth-seed");
    let path = dir.path().join("tiny.gguf");
    assert_eq!(hash(&tiny(SynthQuant::F32, 1, &path)), 0xb34e_dd8d_0246_42c2);
    assert_eq!(hash(&tiny(SynthQuant::Q8_0, 1, &path)), 0x0fff_674d_a7bd_6cbd);
}

#[test]
fn another_seed_makes_another_file() {
    let dir = folder("synth-seeds");
    let folder = dir.path();
    let (one, two) = (folder.join("1.gguf"), folder.join("2.gguf"));
    let same_len = tiny(SynthQuant::Q8_0, 1, &one).len() == tiny(SynthQuant::Q8_0, 2, &two).len();
    assert!(same_len);
    let (one, two) = (Gguf::open(&one).unwrap(), Gguf::open(&two).unwrap());
    for tensor in &one.tensors {
        assert_ne!(
            one.bytes(tensor),
            two.bytes(two.tensor(&tensor.name).unwrap()),
            "{}",
            tensor.name
        );
    }
}

#[test]
fn the_tiny_model_has_all_that_a_llama_has() {
    let dir = folder("synth-tiny");
    let path = dir.path().join("tiny.gguf");
    for (quant, linear, head, file_type) in [
        (SynthQuant::F32, TensorType::F32, TensorType::F32, 0),
        (SynthQuant::F16, TensorType::F16, TensorType::F16, 1),
        (SynthQuant::Q8_0, TensorType::Q8_0, TensorType::Q8_0, 7),
        (SynthQuant::Q6_K, TensorType::Q6_K, TensorType::Q6_K, 18),
        (SynthQuant::Q4_K, TensorType::Q4_K, TensorType::Q6_K, 14),
        (SynthQuant::Q4_K_M, TensorType::Q4_K, TensorType::Q6_K, 15),
        (SynthQuant::Q5_K_M, TensorType::Q5_K, TensorType::Q6_K, 17),
        (SynthQuant::Q4_0, TensorType::Q4_0, TensorType::Q6_K, 2),
        (SynthQuant::TQ2_0, TensorType::TQ2_0, TensorType::Q6_K, 37),
    ] {
        tiny(quant, 7, &path);
        let model = Gguf::open(&path).unwrap();
        let metadata = &model.metadata;
        assert_eq!(metadata.str("general.architecture").unwrap(), "llama");
        assert_eq!(metadata.str("general.name").unwrap(), "brickscope-synth-tiny");
        assert_eq!(
            metadata.str("general.description").unwrap(),
            "random weights (seed 7): timings are real, text is noise"
        );
        assert_eq!(metadata.u32("general.file_type").unwrap(), file_type);
        for (key, value) in [
            ("context_length", 512),
            ("embedding_length", 256),
            ("block_count", 2),
            ("feed_forward_length", 768),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("rope.dimension_count", 64),
            ("vocab_size", 512),
        ] {
            assert_eq!(metadata.u32(&format!("llama.{key}")).unwrap(), value, "{key}");
        }
        assert_eq!(metadata.f32("llama.attention.layer_norm_rms_epsilon").unwrap(), 1e-5);
        assert_eq!(metadata.f32("llama.rope.freq_base").unwrap(), 10_000.0);

        let has = |name: &str, dims: &[usize], kind| {
            let tensor = model.tensor(name).unwrap_or_else(|| panic!("no tensor `{name}`"));
            assert_eq!((tensor.dims.as_slice(), tensor.kind), (dims, kind), "{name}");
        };
        has("token_embd.weight", &[256, 512], linear);
        has("output.weight", &[256, 512], head);
        has("output_norm.weight", &[256], TensorType::F32);
        for layer in 0..2 {
            let blk = |part: &str| format!("blk.{layer}.{part}.weight");
            has(&blk("attn_norm"), &[256], TensorType::F32);
            has(&blk("attn_q"), &[256, 256], linear);
            has(&blk("attn_k"), &[256, 128], linear);
            // Of two layers llama.cpp's mixtures give more bits to the second.
            let is_mixed = [SynthQuant::Q4_K_M, SynthQuant::Q5_K_M].contains(&quant);
            let more = if is_mixed && layer == 1 { TensorType::Q6_K } else { linear };
            has(&blk("attn_v"), &[256, 128], more);
            has(&blk("attn_output"), &[256, 256], linear);
            has(&blk("ffn_norm"), &[256], TensorType::F32);
            has(&blk("ffn_gate"), &[256, 768], linear);
            has(&blk("ffn_up"), &[256, 768], linear);
            has(&blk("ffn_down"), &[768, 256], more);
        }
        assert_eq!(model.tensors.len(), 21);
    }
}

#[test]
fn the_tokenizer_is_described_completely() {
    let dir = folder("synth-tokenizer");
    let path = dir.path().join("tiny.gguf");
    tiny(SynthQuant::Q8_0, 1, &path);
    let model = Gguf::open(&path).unwrap();
    let metadata = &model.metadata;
    let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.len(), 512);
    assert_eq!(metadata.f32s("tokenizer.ggml.scores").unwrap().len(), 512);
    let types = metadata.i32s("tokenizer.ggml.token_type").unwrap();
    assert_eq!(types.len(), 512);
    assert_eq!((&types[..4], &types[258..260]), ([2, 3, 3, 6].as_slice(), [6, 1].as_slice()));
    assert_eq!((tokens[3].as_str(), tokens[258].as_str()), ("<0x00>", "<0xFF>"));
    assert_eq!(metadata.str("tokenizer.ggml.model").unwrap(), "llama");
    let special =
        |name: &str| &tokens[metadata.usize(&format!("tokenizer.ggml.{name}_token_id")).unwrap()];
    assert_eq!([special("unknown"), special("bos"), special("eos")], ["<unk>", "<s>", "</s>"]);
    assert!(metadata.bool("tokenizer.ggml.add_space_prefix").unwrap());
}

#[test]
fn progress_reaches_the_end_and_never_goes_back() {
    let dir = folder("synth-progress");
    let path = dir.path().join("tiny.gguf");
    let mut told = Vec::new();
    write(Shape::Tiny, SynthQuant::Q8_0, 1, &path, &mut |done, total| told.push((done, total)))
        .unwrap();
    let file_len = fs::metadata(&path).unwrap().len();
    assert!(told.is_sorted());
    assert!(told.iter().all(|&(_, total)| total == file_len));
    assert_eq!(told.last(), Some(&(file_len, file_len)));
}

#[test]
fn a_cached_model_is_made_once_and_again_when_it_is_damaged() {
    let dir = folder("synth-cache");
    let folder = dir.path().join("made/on/demand");
    let get = || {
        let mut n_told = 0;
        let path =
            cached(Shape::Tiny, SynthQuant::Q4_K, 3, &folder, &mut |_, _| n_told += 1).unwrap();
        (path, n_told > 0)
    };
    let (path, was_made) = get();
    assert!(was_made);
    assert!(path.file_name().unwrap().to_str().unwrap().starts_with("synth-tiny-q4_k-seed3-r"));
    let whole = fs::read(&path).unwrap();

    assert_eq!(get(), (path.clone(), false));

    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(get(), (path.clone(), true));
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "something was left behind");
}

#[test]
fn names_are_read_as_they_are_written() {
    for shape in Shape::ALL {
        assert_eq!(shape.to_string().parse(), Ok(shape));
    }
    for quant in SynthQuant::ALL {
        assert_eq!(quant.to_string().parse(), Ok(quant));
    }
    let error = "7b".parse::<Shape>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no synthetic shape `7b`: choose one of tiny, 110m, 1b, moe"
    );
    let error = "q9".parse::<SynthQuant>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no synthetic quantisation `q9`: choose one of tq2_0, q4_0, q4_k, q4_k_m, q5_k_m, \
         q6_k, q8_0, f16, f32"
    );
}

/// As llama.cpp reads Mixtral's: a router, and matrices with a third dimension.
#[test]
fn the_mixture_has_experts_in_each_layer() {
    let dir = folder("synth-moe");
    let path = dir.path().join("moe.gguf");
    write(Shape::Moe, SynthQuant::Q8_0, 1, &path, &mut |_, _| {}).unwrap();
    let model = Gguf::open(&path).unwrap();
    let metadata = &model.metadata;
    assert_eq!(metadata.u32("llama.expert_count").unwrap(), 32);
    assert_eq!(metadata.u32("llama.expert_used_count").unwrap(), 4);
    for layer in 0..4 {
        for (part, dims, kind) in [
            ("ffn_gate_inp", &[256, 32][..], TensorType::F32),
            ("ffn_gate_exps", &[256, 256, 32], TensorType::Q8_0),
            ("ffn_up_exps", &[256, 256, 32], TensorType::Q8_0),
            ("ffn_down_exps", &[256, 256, 32], TensorType::Q8_0),
        ] {
            let name = format!("blk.{layer}.{part}.weight");
            let tensor = model.tensor(&name).unwrap_or_else(|| panic!("no tensor `{name}`"));
            assert_eq!((tensor.dims.as_slice(), tensor.kind), (dims, kind), "{name}");
        }
        assert!(model.tensor(&format!("blk.{layer}.ffn_up.weight")).is_none());
    }
    // Our engine says that it can't run it.
    let error = brickscope_engine::Config::read(&model).expect_err("a mixture").to_string();
    assert!(error.contains("mixtures of experts are not supported"), "{error}");
}

#[test]
fn the_110m_model_ties_its_head_to_a_vocabulary_of_32000() {
    let dir = folder("synth-110m");
    let folder = dir.path();
    let path = folder.join("110m.gguf");
    write(Shape::M110, SynthQuant::Q8_0, 1, &path, &mut |_, _| {}).unwrap();
    let model = Gguf::open(&path).unwrap();
    assert!(model.tensor("output.weight").is_none());
    assert_eq!(model.metadata.strings("tokenizer.ggml.tokens").unwrap().len(), 32_000);
    let n_weights: usize = model.tensors.iter().map(|tensor| tensor.n_elements()).sum();
    assert_eq!(n_weights, 109_529_856);
}
