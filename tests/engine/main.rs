//! The engine by its public calls.

mod bitnet;
mod bitnet_b158;
mod cuda;
mod decode_threads;
mod diverge;
mod gguf_damage;
mod gguf_hostile;
mod gguf_real_files;
mod gguf_round_trip;
mod gguf_synth;
mod logits;
mod metadata;
mod not_finite;
mod reference;
mod shares;
mod tensors;
mod tiles;
mod tokenizer;
mod work;
