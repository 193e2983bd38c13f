//! Metadata that a model can't run with is refused, by its key, its value and its type.

use brickscope_engine::Model;
use brickscope_engine::gguf::Value;

use brickscope_testing::models::with_value;

fn open(key: &str, value: Value) -> Result<Model, String> {
    Model::from_gguf(with_value("tiny-F16", key, value)).map_err(|error| error.to_string())
}

/// What a model with this value is refused for.
#[track_caller]
fn refused(key: &str, value: Value) -> String {
    let said = open(key, value.clone()).map(drop).expect_err("it is refused");
    assert!(said.contains(&format!("`{key}`")), "{key} = {value:?}: {said}");
    assert!(said.contains("(byte "), "{said}");
    said
}

#[test]
fn a_value_of_another_type_is_refused_with_the_key_and_both_types() {
    for (key, wanted) in [
        ("general.architecture", "string"),
        ("general.name", "string"),
        ("llama.vocab_size", "usize"),
        ("llama.block_count", "usize"),
        ("llama.context_length", "usize"),
        ("llama.embedding_length", "usize"),
        ("llama.feed_forward_length", "usize"),
        ("llama.attention.head_count", "usize"),
        ("llama.attention.head_count_kv", "usize"),
        ("llama.attention.key_length", "usize"),
        ("llama.attention.value_length", "usize"),
        ("llama.attention.layer_norm_rms_epsilon", "f32"),
        ("llama.rope.dimension_count", "usize"),
        ("llama.rope.freq_base", "f32"),
        ("llama.rope.scaling.type", "string"),
        ("llama.rope.scaling.factor", "f32"),
        ("llama.rope.scale_linear", "f32"),
        ("llama.expert_count", "usize"),
        ("tokenizer.ggml.model", "string"),
        ("tokenizer.ggml.pre", "string"),
        ("tokenizer.ggml.tokens", "array of string"),
        ("tokenizer.ggml.scores", "array of f32"),
        ("tokenizer.ggml.token_type", "array of i32"),
        ("tokenizer.ggml.merges", "array of string"),
        ("tokenizer.ggml.bos_token_id", "u32"),
        ("tokenizer.ggml.eos_token_id", "u32"),
        ("tokenizer.ggml.unknown_token_id", "u32"),
        ("tokenizer.ggml.add_bos_token", "bool"),
        ("tokenizer.ggml.add_eos_token", "bool"),
        ("tokenizer.ggml.add_space_prefix", "bool"),
    ] {
        let others: [Value; 5] =
            ["32".into(), 32.0f32.into(), 32u32.into(), true.into(), vec![true].into()];
        for value in others.into_iter().filter(|other| !wanted.starts_with(other.type_name())) {
            // Integers may have any width.
            let found = value.type_name();
            if (found, wanted) == ("u32", "usize") {
                continue;
            }
            let said = refused(key, value);
            assert!(said.contains(&format!("should be {wanted}, but is {found} ")), "{said}");
        }
    }
}

#[test]
fn numbers_that_no_model_has_are_refused_with_key_and_value() {
    let sensible = "must be from 0 to 1";
    for (bad, said) in [
        (3.4e38f32, "340000000000000000000000000000000000000"),
        (f32::NAN, "NaN"),
        (-1e-5, "-0.00001"),
    ] {
        let refusal = refused("llama.attention.layer_norm_rms_epsilon", bad.into());
        assert!(refusal.contains(&format!("is {said} (byte ")), "{refusal}");
        assert!(refusal.contains(sensible), "{refusal}");
    }
    for bad in [1.5, f32::INFINITY, f32::NEG_INFINITY] {
        refused("llama.attention.layer_norm_rms_epsilon", bad.into());
    }
    assert!(refused("llama.rope.freq_base", 0.0_f32.into()).contains("must be from"));
    for key in ["llama.rope.freq_base", "llama.rope.scaling.factor", "llama.rope.scale_linear"] {
        for bad in [-1.0, 1e-40, 3.4e38, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(refused(key, bad.into()).contains("must be from"), "{key}");
        }
        // In either width.
        assert!(refused(key, f64::NAN.into()).contains("is NaN (byte "), "{key}");
    }
    for key in
        ["block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size"]
    {
        let said = refused(&format!("llama.{key}"), 0u32.into());
        assert!(said.contains("is 0 (byte ") && said.contains("must be at least 1"), "{said}");
    }
    for key in ["attention.head_count", "attention.head_count_kv", "attention.key_length"] {
        assert!(refused(&format!("llama.{key}"), 0u32.into()).contains("is 0 (byte "));
    }
    let negative = refused("llama.context_length", (-5i32).into());
    assert!(negative.contains("should be usize, but -5 does not fit"), "{negative}");
}

#[test]
fn numbers_that_models_have_are_read() {
    for (key, value) in [
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F64(1e-5)),
        ("llama.rope.freq_base", Value::F32(4.5e7)),
        ("llama.rope.scaling.factor", Value::F32(8.0)),
        ("llama.rope.scale_linear", Value::F32(0.25)),
        // None, as in llama.cpp.
        ("llama.rope.scaling.factor", Value::F32(0.0)),
        ("llama.vocab_size", Value::U64(512)),
        ("llama.context_length", Value::I16(64)),
    ] {
        open(key, value).unwrap_or_else(|said| panic!("{key}: {said}"));
    }
}
