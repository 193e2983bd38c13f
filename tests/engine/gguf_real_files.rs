//! Reads the reference models beside the checkout, where there are any.

use std::fs;
use std::path::Path;

use brickscope_engine::gguf::{Gguf, TensorType};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");

#[test]
fn every_reference_model_reads() {
    let Ok(entries) = fs::read_dir(DATA) else {
        eprintln!("skipped: no reference models at {DATA}");
        return;
    };
    let mut n_models = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "gguf") {
            continue;
        }
        let model = Gguf::open(&path).unwrap_or_else(|error| panic!("{error}"));
        let architecture = model.metadata.str("general.architecture").unwrap();
        assert_eq!(
            model.metadata.u32(&format!("{architecture}.block_count")).unwrap(),
            2,
            "{}",
            path.display()
        );
        let n_vocab = model.metadata.strings("tokenizer.ggml.tokens").unwrap().len();
        assert_eq!(model.metadata.i32s("tokenizer.ggml.token_type").unwrap().len(), n_vocab);
        let embedding = model.tensor("token_embd.weight").unwrap();
        assert_eq!(embedding.n_rows(), n_vocab);
        for tensor in &model.tensors {
            assert_eq!(model.bytes(tensor).len(), tensor.n_bytes);
            assert_eq!(
                model.bytes(tensor).as_ptr() as usize % 32,
                0,
                "`{}` is not aligned",
                tensor.name
            );
        }
        n_models += 1;
    }
    assert!(n_models > 0, "{DATA} has no models");
}

#[test]
fn the_tiny_llama_is_what_it_is_known_to_be() {
    let path = Path::new(DATA).join("tiny-Q8_0.gguf");
    if !path.exists() {
        eprintln!("skipped: no {}", path.display());
        return;
    }
    let model = Gguf::open(&path).unwrap();
    assert_eq!(model.version, 3);
    assert_eq!(model.metadata.str("general.name").unwrap(), "synthetic-tiny");
    assert_eq!(model.metadata.f32("llama.attention.layer_norm_rms_epsilon").unwrap(), 1e-5);
    assert!(model.metadata.bool("tokenizer.ggml.add_bos_token").unwrap());
    assert_eq!(
        model.metadata.strings("tokenizer.ggml.tokens").unwrap()[..4],
        ["<unk>", "<s>", "</s>", "<0x00>"]
    );
    assert_eq!(model.metadata.opt_u32("llama.expert_count").unwrap(), None);
    assert_eq!(model.tensors.len(), 21);
    let down = model.tensor("blk.1.ffn_down.weight").unwrap();
    assert_eq!((down.dims.as_slice(), down.kind), ([768, 256].as_slice(), TensorType::Q8_0));
    assert_eq!((down.n_cols(), down.n_rows(), down.n_bytes), (768, 256, 768 * 256 / 32 * 34));
}
