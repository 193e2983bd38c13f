//! Profiles candle's `quantized_llama` on a GGUF file: `cargo run --release --example profile -- model.gguf runs/candle`.
//! docs/rust.md shows these lines.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use brickscope::{BrickProfiler, Phase, Run};
use brickscope_tracing::{BrickLayer, Map, Weight};
use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use tracing_subscriber::prelude::*;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, path, out] = args.as_slice() else { anyhow::bail!("usage: profile MODEL FOLDER") };
    anyhow::ensure!(!Path::new(out).exists(), "{out} is there already: name another folder");
    let mut file = File::open(path).with_context(|| path.clone())?;
    let content = Content::read(&mut file)?;

    let infos = Content::read(&mut File::open(path)?)?.tensor_infos;
    let map = Map::candle_quantized_llama().with_weights(move |name| {
        let info = infos.get(name)?;
        let (rows, columns) = info.shape.dims2().ok()?;
        let bytes = rows * columns / info.ggml_dtype.block_size() * info.ggml_dtype.type_size();
        Some(Weight { rows: rows as u64, columns: columns as u64, bytes: bytes as u64 })
    });
    let profiler = Arc::new(BrickProfiler::enabled());
    let layer = BrickLayer::new(&profiler, map);
    tracing_subscriber::registry().with(layer.clone()).init(); // before the model is loaded

    let mut model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;

    let mut tokens: Vec<u32> = (1..=64).collect();
    let mut position = 0;
    for _ in 0..64 {
        let input = Tensor::new(&tokens[position..], &Device::Cpu)?.unsqueeze(0)?;
        let phase = if position == 0 { Phase::Prefill } else { Phase::Decode };

        let pass = layer.begin_pass(phase, (tokens.len() - position) as u64, position as u64);
        let logits = model.forward(&input, position)?;
        pass.end();

        position = tokens.len();
        tokens.push(logits.squeeze(0)?.argmax(0)?.to_scalar()?);
    }

    println!("{}", layer.seen()); // what isn't in the profile, and why
    let mut profile = profiler.profile();
    profile.run = Some(Run {
        command: args.clone(),
        backend: "candle, CPU".to_owned(),
        threads: candle_core::utils::get_num_threads() as u32,
        prompt_tokens: 64,
        generated_tokens: 63,
        ..Run::default()
    });
    profile.save_run(Path::new(out))?;
    Ok(())
}
