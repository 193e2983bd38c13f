//! `brickscope synth`: writes a model file of a real shape with random weights.

use anyhow::Result;
use brickscope_engine::synth;
use brickscope_engine::synth::{Shape, SynthQuant};
use std::path::PathBuf;

use crate::progress;

/// Write a model file of a real shape with random weights.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  brickscope synth --shape 1b --quant q4_k_m -o 1b-q4_k_m.gguf")]
pub(crate) struct SynthArgs {
    /// The shape: tiny (2 layers of width 256), 110m (12 of 768), 1b (22 of 2048), or moe (4 of 256, each with 32 experts, for
    /// llama.cpp).
    #[arg(long, default_value = "tiny")]
    pub(crate) shape: Shape,

    /// The format of the weights: tq2_0, q4_0, q4_k, q4_k_m, q5_k_m, q6_k, q8_0, f16 or f32. The two that
    /// end in _m are llama.cpp's mixtures; q4_k uses 4 bits in all layers.
    #[arg(long, default_value = "q8_0")]
    pub(crate) quant: SynthQuant,

    /// The random seed. The same seed gives the same file.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// The file to write.
    #[arg(short, long, alias = "out", value_name = "FILE")]
    pub(crate) output: PathBuf,
}

pub(crate) fn run(args: &SynthArgs) -> Result<()> {
    let bar = progress::bytes("making", 0);
    let made = synth::write(args.shape, args.quant, args.seed, &args.output, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    Ok(made?)
}
