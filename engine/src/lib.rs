//! The engine that brickscope profiles: GGUF models, from file to tokens.

pub mod gguf;
pub mod synth;
pub mod tokenizer;
